"""Checks items against the service's model catalog before anything is sent (Service sections 1 and 2.2).

The catalog's fields are not documented (Service section 2.4), and values that differ by mode have been united. An
objection is therefore clear only if no reading of the catalog allows the request; otherwise it is a warning. A field
that could not be read gives no objection: the service decides (contract, section 8).
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

from msgspec import Struct

from batchkiln.core.job import Mode, Recipe
from batchkiln.core.provider import DOCUMENTED_MODELS
from batchkiln.core.responses import ModelEntry
from batchkiln.core.suggestions import closest, did_you_mean

_LEAST_PROMPT_LIMIT: Final = 100
"""A smaller number is hardly a limit in characters; it may count words or images."""

_SIZE: Final = re.compile(r"(\d{1,5})\s*[x\u00d7*]\s*(\d{1,5})|(\d{3,4})p|(\d{1,2})k")
_RATIO: Final = re.compile(r"(\d{1,3})\s*[:x/]\s*(\d{1,3})")


class Objection(Struct, frozen=True):
    """A conflict between a request and the catalog. `field` is `model`, `mode`, `inputs`, `prompt` or a parameter.

    `is_clear` means that the service would refuse the request by any reading of the catalog; otherwise it might.
    """

    field: str
    reason: str
    remedy: str
    is_clear: bool


class PlacedObjection(Struct, frozen=True):
    """An objection and its place: `line` and `column` count from 1; `column` is None for a whole line."""

    file: str
    line: int
    column: int | None
    reason: str
    remedy: str
    is_clear: bool


class Catalogue(Struct, frozen=True):
    """The models of one profile's service, by id."""

    profile: str
    models: Mapping[str, ModelEntry]

    def against(self, recipe: Recipe) -> tuple[Objection, ...]:
        """Return the objections to a recipe; none if no model of the catalog could be read."""
        if not self.models:
            return ()
        entry = self.models.get(recipe.model)
        return (self._no_model(recipe.model),) if entry is None else tuple(_against(recipe, entry))

    def prompt_limit(self, model: str) -> int | None:
        """Return the limit of a model's prompts, in an undocumented unit; None if it is unknown."""
        entry = self.models.get(model)
        return None if entry is None else entry.prompt_max_characters

    def _no_model(self, model: str) -> Objection:
        """Return the objection to a model that is not listed; a documented one may be on a page that was not read."""
        meant = did_you_mean(closest(model, self.models))
        remedy = meant or f"the catalogue lists: {', '.join(sorted(self.models)[:40])}"
        is_clear = bool(DOCUMENTED_MODELS & self.models.keys()) and model not in DOCUMENTED_MODELS
        return Objection("model", f"the service lists no model `{model}`", remedy, is_clear)


def against_prompt(prompt: str, limit: int) -> Objection | None:
    """Return the objection to a prompt by a limit of undocumented unit (docs/assumptions.md, entry 60), or None.

    It is clear only if the prompt is too long in code points, the smallest count; in bytes it may be.
    """
    length = len(prompt)
    if length * 4 <= limit:  # a code point has at most four bytes
        return None
    remedy = f"at most {limit:,}, by the service's catalogue"
    if length > limit:
        is_clear = limit >= _LEAST_PROMPT_LIMIT
        return Objection("prompt", f"the prompt is {length:,} characters long", remedy, is_clear)
    size_bytes = len(prompt.encode("utf-8", "surrogatepass"))
    if size_bytes > limit:
        reason = f"the prompt is {size_bytes:,} bytes long, in {length:,} characters"
        return Objection("prompt", reason, f"{remedy}, if it counts bytes", is_clear=False)
    return None


def _against(recipe: Recipe, entry: ModelEntry) -> Iterator[Objection]:
    parameters = dict(recipe.parameters)
    yield from _against_mode(recipe, entry)
    for name, offered, reading in (
        ("resolution", entry.resolutions, _size_of),
        ("aspect_ratio", entry.aspect_ratios, _ratio_of),
    ):
        if name in parameters and offered:
            yield from _against_text(recipe.model, name, str(parameters[name]), offered, reading)
    seconds, durations = parameters.get("duration_seconds"), entry.durations_seconds
    if durations and seconds is not None and seconds not in durations:
        remedy = f"the model makes clips of {_listed(map(str, sorted(durations)))} seconds"
        reason = f"{recipe.model} makes no clip of {seconds} seconds"
        yield Objection("duration_seconds", reason, remedy, is_clear=len(durations) > 1)
    if entry.images_max is not None and recipe.inputs_count > entry.images_max:
        remedy = f"it takes at most {entry.images_max}"
        reason = f"{recipe.inputs_count} images are too many for {recipe.model}"
        yield Objection("inputs", reason, remedy, is_clear=entry.images_max > 0)


def _against_mode(recipe: Recipe, entry: ModelEntry) -> Iterator[Objection]:
    known = entry.modes & set(Mode)
    if known and recipe.mode not in known:
        reason = f"{recipe.model} offers no {recipe.mode}"
        yield Objection("mode", reason, f"it offers {_listed(sorted(known))}", is_clear=known == entry.modes)


def _against_text(
    model: str, name: str, wanted: str, offered: frozenset[str], reading: Callable[[str], object]
) -> Iterator[Objection]:
    """Yield an objection if neither the text nor its meaning is offered. A single offered value may be a default."""
    meaning = reading(wanted)
    meanings = {reading(value) for value in offered}
    words = {value.casefold() for value in offered}
    if wanted.casefold() in words or (meaning is not None and meaning in meanings):
        return
    is_clear = len(offered) > 1 and meaning is not None and all(_is_plain(value, reading) for value in offered)
    what = name.replace("_", " ")
    yield Objection(name, f"{model} offers no {what} {wanted}", f"it offers {_listed(in_order(offered))}", is_clear)


def _is_plain(value: str, reading: Callable[[str], object]) -> bool:
    """Return whether a value can be interpreted: as a size or ratio, or as a word such as `auto`."""
    return reading(value) is not None or value.replace("-", "").replace("_", "").isalpha()


def _size_of(text: str) -> tuple[str, ...] | None:
    found = _SIZE.fullmatch(text.strip().casefold())
    return None if found is None else tuple(part or "" for part in found.groups())


def _ratio_of(text: str) -> tuple[str, ...] | None:
    found = _RATIO.fullmatch(text.strip().casefold())
    return None if found is None else found.groups()


def in_order(values: Iterable[str]) -> list[str]:
    """Return the values sorted by the numbers in them: 4:3 before 16:9, 720p before 1080p."""
    return sorted(values, key=lambda value: ([int(number) for number in re.findall(r"[0-9]+", value)], value))


def _listed(values: Iterable[str]) -> str:
    names = list(values)
    return ", ".join(names[:20]) + (", …" if len(names) > 20 else "")  # noqa: PLR2004  a longer list is not readable
