"""The question of `run` where not all prices are known, and that what was agreed to is what is bought."""

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from textwrap import dedent
from typing import Final

import pytest
from PIL import Image

from integration.cli.workspace import Workspace, on_a_terminal

from .conftest import Ground, GroundMaker

CHEAP = '- {matrix: {n: [1, 2]}, id: "fox-{{ n }}", prompt: "fox {{ n }}"}'
CLIP = """
- id: clip
  model: alpha-2.5
  mode: image-to-video
  prompt: an owl
  inputs: [owl.png]
  parameters: {resolution: 1080p, duration_seconds: 12, aspect_ratio: "16:9"}
"""


def workspace(ground: Ground) -> Workspace:
    """Configure the ground's service for commands of the same folder, and lay an image beside."""
    (ground.folder / "batchkiln.yaml").write_text(
        dedent(
            f"""
            default_profile: studio
            profiles:
              studio:
                base_url: {ground.service.base_url}
                accounts: [{{name: main, keys: [{{file: key}}]}}]
            """
        ),
        "utf-8",
    )
    Image.new("RGB", (300, 300), (9, 9, 9)).save(ground.folder / "owl.png")
    return Workspace(ground.folder)


async def test_an_item_without_a_price_is_asked_about_and_not_guessed(make_ground: GroundMaker) -> None:
    """Two cheap pictures and a dear clip whose image is not uploaded: at most a day's credits, and not "about 6"."""
    ground = await make_ground()
    place = workspace(ground)
    manifest = ground.manifest(f"{CHEAP}{CLIP}")

    exit_status, shown = await asyncio.to_thread(on_a_terminal, place, "run", manifest, answer="n")

    assert exit_status == 2
    assert "This may spend at most 2,004 credits (4 by quotes, and 1 item without a price yet)." in shown
    assert "alpha-2.5 image-to-video, aspect_ratio 16:9, duration_seconds 12, resolution 1080p, 1 image" in shown
    assert not {"/videos", "/images", "/uploads"} & set(await ground.sent())


@pytest.mark.parametrize(
    ("cap", "more", "options"),
    [
        ("  max_cost_credits: 40\n", "", ()),
        ("", "budget: {credits: 50}", ()),
        ("", "", ("--max-credits", "50")),
    ],
    ids=["cap", "budget", "max_credits"],
)
async def test_what_a_person_bounded_below_the_limit_is_not_asked(
    make_ground: GroundMaker, cap: str, more: str, options: tuple[str, ...]
) -> None:
    """A cap, a budget or --max-credits says how much at most: less than `confirm_above_credits` is not asked about."""
    ground = await make_ground()
    place = workspace(ground)
    manifest = ground.manifest(f"{CHEAP}{CLIP}{cap}", more=more)

    _, shown = await asyncio.to_thread(
        on_a_terminal, place, "run", manifest, *options, "--until", "1970-01-01T00:00:00Z", answer="n"
    )

    assert "Continue?" not in shown
    assert "without a price" in shown


CHANGES: Final[Mapping[str, Callable[[Workspace], object]]] = {
    "manifest": lambda place: place.manifest(items=3),
    "rows": lambda place: (place.folder / "rows.csv").write_text("prompt\na\nb\nc\n", "utf-8"),
    "image": lambda place: Image.new("RGB", (300, 300), (1, 2, 3)).save(place.folder / "owl.png"),
}


@pytest.mark.parametrize("changed", CHANGES)
def test_what_changed_after_the_question_is_not_bought(tmp_path: Path, changed: str) -> None:
    """The answer was about what was read then: manifest, rows and images are compared by their contents."""
    place = Workspace(tmp_path)
    place.configure("confirm_above_credits: 0\nprofiles: {local: {time_scale: 600}}\n")
    Image.new("RGB", (300, 300), (9, 9, 9)).save(tmp_path / "owl.png")
    (tmp_path / "rows.csv").write_text("prompt\na\n", "utf-8")
    manifest = place.manifest()
    with (tmp_path / manifest).open("a", encoding="utf-8") as file:
        file.write("  - from: rows.csv\n  - {id: owl, prompt: owl, mode: image-to-image, inputs: [owl.png]}\n")

    exit_status, shown = on_a_terminal(place, "run", manifest, answer="y", meanwhile=lambda: CHANGES[changed](place))

    assert exit_status == 2
    assert "changed after the cost was shown; nothing was enqueued" in shown.replace("\r\n", " ")
    assert place.call("status", "--json").document["jobs"] == []
