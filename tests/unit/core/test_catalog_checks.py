"""What the catalogue says against an item: clear, a doubt, or nothing (contract, section 8)."""

from typing import Any

import pytest

from batchkiln.core.catalog_checks import Catalogue, against_prompt
from batchkiln.core.job import Mode, Recipe
from batchkiln.core.responses import ModelEntry


def entry(name: str = "epsilon-2", **fields: Any) -> ModelEntry:  # noqa: ANN401  any field of the dataclass
    empty: dict[str, Any] = {
        "modes": frozenset(),
        "resolutions": frozenset(),
        "aspect_ratios": frozenset(),
        "durations_seconds": frozenset(),
        "prompt_max_characters": None,
        "images_max": None,
    }
    known = {name: frozenset(value) if isinstance(value, set) else value for name, value in fields.items()}
    return ModelEntry(id=name, **(empty | known))


def recipe(model: str = "epsilon-2", mode: Mode = Mode.TEXT_TO_IMAGE, images: int = 0, **parameters: Any) -> Recipe:  # noqa: ANN401
    return Recipe(model, mode, tuple(sorted(parameters.items())), images, None, 3)


def said(wanted: Recipe, *entries: ModelEntry) -> list[tuple[str, bool]]:
    catalogue = Catalogue("studio", {one.id: one for one in entries})
    return [(objection.field, objection.is_clear) for objection in catalogue.against(wanted)]


def test_an_entry_without_understood_fields_says_nothing() -> None:
    """What was not understood is for the service to decide, and so is an empty catalogue."""
    wanted = recipe(resolution="9x9", aspect_ratio="1:1", duration_seconds=7)

    assert said(wanted, entry()) == []
    assert said(wanted) == []


@pytest.mark.parametrize(
    ("model", "listed", "is_clear"),
    [("epsilon-3", "epsilon-2", True), ("epsilon-pro", "epsilon-2", False), ("epsilon-2", "e2_internal", False)],
    ids=["of nobody", "documented", "other ids altogether"],
)
def test_a_model_that_is_not_listed(model: str, listed: str, is_clear: bool) -> None:  # noqa: FBT001
    """Clear where neither document nor catalogue has it; a documented one may stand on another page."""
    assert said(recipe(model), entry(listed)) == [("model", is_clear)]


@pytest.mark.parametrize(
    ("offered", "expected"),
    [
        ({"text-to-video"}, [("mode", True)]),
        ({"text-to-video", "upscale"}, [("mode", False)]),
        ({"t2v"}, []),
        ({"text-to-image"}, []),
    ],
)
def test_modes(offered: set[str], expected: list[tuple[str, bool]]) -> None:
    """The document fixes the words: others beside them are a doubt, others alone are not understood."""
    assert said(recipe(), entry(modes=offered)) == expected


@pytest.mark.parametrize(
    ("wanted", "offered", "expected"),
    [
        ("1080p", {"720p", "480p"}, [("resolution", True)]),
        ("1080p", {"720p"}, [("resolution", False)]),
        ("1080p", {"720p", "Full HD (1080)"}, [("resolution", False)]),
        ("1080p", {"720P", "1080P"}, []),
        ("1024x1024", {"1024 \u00d7 1024", "512 \u00d7 512"}, []),
        ("2K", {"1k", "4k"}, [("resolution", True)]),
    ],
)
def test_resolutions(wanted: str, offered: set[str], expected: list[tuple[str, bool]]) -> None:
    """Other spellings are the same; one value alone may be a default, and a label may mean anything."""
    assert said(recipe(resolution=wanted), entry(resolutions=offered)) == expected


@pytest.mark.parametrize(
    ("wanted", "offered", "expected"),
    [
        ("16:9", {"1:1", "4:3", "auto"}, [("aspect_ratio", True)]),
        ("16:9", {"16x9", "1x1"}, []),
        ("16:9", {"landscape 16/9", "1:1"}, [("aspect_ratio", False)]),
    ],
)
def test_aspect_ratios(wanted: str, offered: set[str], expected: list[tuple[str, bool]]) -> None:
    """Likewise."""
    assert said(recipe(aspect_ratio=wanted), entry(aspect_ratios=offered)) == expected


def test_durations_and_images() -> None:
    """A figure that is not among several is clear; a single one may be a default."""
    clip = recipe("alpha-2.5", Mode.IMAGE_TO_VIDEO, images=3, duration_seconds=7)

    assert said(clip, entry("alpha-2.5", durations_seconds={4, 8}, images_max=2)) == [
        ("duration_seconds", True),
        ("inputs", True),
    ]
    assert said(clip, entry("alpha-2.5", durations_seconds={5}, images_max=0)) == [
        ("duration_seconds", False),
        ("inputs", False),
    ]


def test_prompts_are_too_long_for_sure_only_in_the_most_generous_reading() -> None:
    """Entry 60 of docs/assumptions.md: code points are the fewest, bytes the most."""
    too_long, in_bytes = against_prompt("a" * 101, 100), against_prompt("ü" * 60, 100)

    assert too_long is not None
    assert too_long.is_clear
    assert in_bytes is not None
    assert not in_bytes.is_clear
    assert against_prompt("ü" * 50, 100) is None
    assert against_prompt("a" * 100, 100) is None
