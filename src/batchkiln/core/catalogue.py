"""What the service's catalogue says against an item, before anything is sent (Service sections 1 and 2.2).

The catalogue's fields are not shown by the document (Service section 2.4), and what an entry holds for different modes
is united by the time it comes here. So only what no reading of it allows is clear; the rest is a doubt, and where a
field was not understood nothing is said: the service decides (contract, section 8).
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Final

from batchkiln.core.job import Mode, Recipe
from batchkiln.core.responses import ModelEntry

DOCUMENTED: Final = frozenset(
    {
        *("alpha-2.5", "alpha-2.5-lite", "alpha-2.0-pro", "alpha-2.0-fast", "alpha-2.0-mini", "alpha-1.5-pro"),
        *("beta-3.0", "gamma-3.1-fast", "delta-image-2", "epsilon-2", "epsilon-pro"),
    }
)
"""The public ids that the document itself lists (Service section 1)."""

_LEAST_PROMPT_LIMIT: Final = 100
"""A smaller figure is hardly a limit of characters: it may count words, images, or something else."""

_SIZE: Final = re.compile(r"(\d{1,5})\s*[x\u00d7*]\s*(\d{1,5})|(\d{3,4})p|(\d{1,2})k")
_RATIO: Final = re.compile(r"(\d{1,3})\s*[:x/]\s*(\d{1,3})")


@dataclass(frozen=True, slots=True)
class Objection:
    """What the catalogue says against a request. `field` is `model`, `mode`, `inputs`, `prompt` or a parameter.

    `is_clear`: the service would refuse it by any reading of the catalogue; else it may.
    """

    field: str
    reason: str
    remedy: str
    is_clear: bool


@dataclass(frozen=True, slots=True)
class PlacedObjection:
    """An objection and where it stands: `line` and `column` count from 1, `column` is None for a whole line."""

    file: str
    line: int
    column: int | None
    reason: str
    remedy: str
    is_clear: bool


@dataclass(frozen=True, slots=True)
class Catalogue:
    """The models of one profile's service, by id."""

    profile: str
    models: Mapping[str, ModelEntry]

    def against(self, recipe: Recipe) -> tuple[Objection, ...]:
        """Return what it says against a recipe; nothing where it lists no models that were understood."""
        if not self.models:
            return ()
        entry = self.models.get(recipe.model)
        return (self._no_model(recipe.model),) if entry is None else tuple(_against(recipe, entry))

    def prompt_limit(self, model: str) -> int | None:
        """Return the limit of a model's prompts in a unit that is not documented; None where none is known."""
        entry = self.models.get(model)
        return None if entry is None else entry.prompt_max_characters

    def _no_model(self, model: str) -> Objection:
        """Object to a model that is not listed. One that the document lists may stand on a page that was not read."""
        close = get_close_matches(model, self.models, n=1, cutoff=0.6)
        remedy = f"did you mean `{close[0]}`?" if close else f"there are: {', '.join(sorted(self.models)[:40])}"
        is_clear = bool(DOCUMENTED & self.models.keys()) and model not in DOCUMENTED
        return Objection("model", f"the service lists no model `{model}`", remedy, is_clear)


def against_prompt(prompt: str, limit: int) -> Objection | None:
    """Return what a limit says against a prompt, whose unit is not documented (docs/assumptions.md, entry 60).

    Clear is only what is too long when counted in code points, which gives the least; counted in bytes it may be.
    """
    length = len(prompt)
    if length * 4 <= limit:  # no code point has more bytes
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
        remedy = f"it makes clips of {_listed(map(str, sorted(durations)))} seconds"
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
    """Compare as it is written, and by what it means. One value alone may be a default and no list."""
    meaning = reading(wanted)
    meanings = {reading(value) for value in offered}
    words = {value.casefold() for value in offered}
    if wanted.casefold() in words or (meaning is not None and meaning in meanings):
        return
    is_clear = len(offered) > 1 and meaning is not None and all(_is_plain(value, reading) for value in offered)
    what = name.replace("_", " ")
    yield Objection(name, f"{model} offers no {what} {wanted}", f"it offers {_listed(in_order(offered))}", is_clear)


def _is_plain(value: str, reading: Callable[[str], object]) -> bool:
    """Tell whether a value is understood: what it says is read, or it is a word such as `auto`."""
    return reading(value) is not None or value.replace("-", "").replace("_", "").isalpha()


def _size_of(text: str) -> tuple[str, ...] | None:
    found = _SIZE.fullmatch(text.strip().casefold())
    return None if found is None else tuple(part or "" for part in found.groups())


def _ratio_of(text: str) -> tuple[str, ...] | None:
    found = _RATIO.fullmatch(text.strip().casefold())
    return None if found is None else found.groups()


def in_order(values: Iterable[str]) -> list[str]:
    """Sort by the numbers in them: 4:3 before 16:9, 720p before 1080p."""
    return sorted(values, key=lambda value: ([int(number) for number in re.findall(r"[0-9]+", value)], value))


def _listed(values: Iterable[str]) -> str:
    names = list(values)
    return ", ".join(names[:20]) + (", …" if len(names) > 20 else "")  # noqa: PLR2004  a bound for the eye
