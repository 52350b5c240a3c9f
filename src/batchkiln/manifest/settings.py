"""An item's settings: the defaults and its own, merged, checked once for each combination, and made a recipe."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import orjson

from batchkiln.core.catalogue import Catalogue, PlacedObjection
from batchkiln.core.job import InputFile, Mode, Recipe
from batchkiln.manifest.diagnostics import Diagnostics, Mark, quoted
from batchkiln.manifest.images import ImageRefused, Images
from batchkiln.manifest.schema import MAX_INPUTS, Parameters, Settings
from batchkiln.manifest.validation import check
from batchkiln.manifest.yaml_events import ScalarEvent
from batchkiln.manifest.yaml_tree import MapNode, Node, Rendered, SeqNode, plain_value, scalar_value

RECIPE_FIELDS: Final = ("model", "mode", "parameters", "max_cost_credits", "attempts", "priority")
DEFAULT_ATTEMPTS: Final = 3
MAX_METADATA_SIZE_BYTES: Final = 64 << 10
_KEPT_RECIPES: Final = 10_000
_OBJECTED_MAX: Final = 1_000
_FLAT_MAX: Final = 200  # as `Metadata` allows
_NAME_MAX: Final = 1000  # as `Text` allows
_IMAGE_ONLY: Final = ("output_format", "google_search")  # Service section 2.2

Pairs = dict[str, tuple[ScalarEvent, Node]]


@dataclass(frozen=True, slots=True)
class Settled:
    """What many items share."""

    recipe: Recipe
    priority: int
    objections: tuple[PlacedObjection, ...] = ()  # of the service's catalogue
    prompt_limit: int | None = None  # likewise, in a unit that is not documented


class SettingsReader:
    """Merges and checks the settings of items; remembers those that were good."""

    def __init__(
        self, defaults: MapNode | None, images: Images, findings: Diagnostics, catalogue: Catalogue | None = None
    ) -> None:
        self._defaults: Pairs = defaults.pairs if defaults is not None else {}
        self._images = images
        self._findings = findings
        self._catalogue = catalogue
        self._objected = 0
        self._settled: dict[tuple[object, ...], Settled] = {}
        shared = self._defaults.get("metadata")
        self._metadata = plain_value(shared[1]) if shared is not None and isinstance(shared[1], MapNode) else {}
        try:
            self._metadata_text = _canonical(self._metadata)
        except TypeError:  # found wrong with the header, and reported there
            self._metadata, self._metadata_text = {}, None

    @property
    def default_metadata(self) -> Mapping[str, Any]:
        """What every item's metadata begins with."""
        return self._metadata

    def settled(self, entry: MapNode, inputs_count: int) -> Settled | None:
        """Give the recipe of an entry; None, and findings, where its settings are not valid."""
        pairs = entry.pairs
        key = (inputs_count, *[(name, fingerprint(pairs[name][1])) for name in RECIPE_FIELDS if name in pairs])
        known = self._settled.get(key)
        if known is None:
            known = self._settle(entry, inputs_count)
            # The catalogue's objections stand where each entry says it: what has some is settled anew, up to a bound.
            self._objected += 0 if known is None else bool(known.objections)
            if known is not None and (not known.objections or self._objected > _OBJECTED_MAX):
                if len(self._settled) >= _KEPT_RECIPES:
                    self._settled.clear()
                self._settled[key] = known
        return known

    def inputs(self, entry: MapNode) -> tuple[InputFile, ...] | None:
        """Give the checked input files; None, and findings, where one cannot be used."""
        pair = entry.pairs.get("inputs") or self._defaults.get("inputs")
        if pair is None:
            return ()
        return self.input_files(pair[1])

    def inputs_count(self, entry: MapNode) -> int:
        """Count the inputs that an entry names, whether or not they can be used."""
        pair = entry.pairs.get("inputs") or self._defaults.get("inputs")
        if pair is None or (isinstance(pair[1], ScalarEvent) and scalar_value(pair[1]) is None):
            return 0
        return len(pair[1].items) if isinstance(pair[1], SeqNode) else 1

    def input_files(self, node: Node) -> tuple[InputFile, ...] | None:
        """Give the files that a list names."""
        if not isinstance(node, SeqNode):
            if isinstance(node, (MapNode, Rendered)) or scalar_value(node) is not None:
                self._findings.at(node.start_mark, "`inputs` must be a list", "as in `inputs: [images/owl.png]`")
                return None
            return ()
        if len(node.items) > MAX_INPUTS:
            self._findings.at(node.start_mark, f"{len(node.items)} inputs", f"an item takes at most {MAX_INPUTS}")
            return None
        files = [self._input_file(item) for item in node.items]
        return None if None in files else tuple(file for file in files if file is not None)

    def metadata(self, node: Node | None) -> tuple[Mapping[str, Any], str | None] | None:
        """Give an inline item's metadata as values and as JSON; None, and findings, where it is not valid."""
        if node is None:
            return self._metadata, self._metadata_text
        own = _flat_values(node)
        if own is None:
            holder = MapNode(node.start_mark, {"metadata": (_key_of(node), node)})
            if check(Settings, holder, self._findings) is None:
                return None
            own = plain_value(node) or {}
        return self.merged_metadata(own, node.start_mark)

    def merged_metadata(self, own: Mapping[str, Any], mark: Mark) -> tuple[Mapping[str, Any], str | None] | None:
        """Put an item's own metadata over the defaults'."""
        values = {**self._metadata, **own} if self._metadata else own
        try:
            text = _canonical(values)
        except TypeError as error:
            self._findings.at(mark, f"`metadata` cannot be written as JSON: {error}")
            return None
        if text is not None and len(text) > MAX_METADATA_SIZE_BYTES:
            self._findings.at(mark, "`metadata` is too large", f"at most {MAX_METADATA_SIZE_BYTES >> 10} KiB as JSON")
            return None
        return values, text

    def _input_file(self, node: Node) -> InputFile | None:
        name = None if isinstance(node, (MapNode, SeqNode)) else node.value
        if not name or (isinstance(node, ScalarEvent) and not isinstance(scalar_value(node), str)):
            self._findings.at(
                node.start_mark, "an input is the name of a local file", "quote it if it looks like a number"
            )
            return None
        try:
            return self._images.get(name)
        except ImageRefused as refused:
            self._findings.at(node.start_mark, refused.reason, refused.remedy)
            return None

    def _settle(self, entry: MapNode, inputs_count: int) -> Settled | None:
        merged = MapNode(entry.start_mark, self._merged(entry.pairs))
        settings = check(Settings, merged, self._findings)
        inputs = entry.pairs.get("inputs") or self._defaults.get("inputs")
        merged.pairs.update({"inputs": inputs} if inputs is not None else {})
        if settings is None:
            return None
        absent = [name for name in ("model", "mode") if getattr(settings, name) is None]
        for name in absent:
            self._findings.at(entry.start_mark, f"`{name}` is missing", "name it in the item or in `defaults`")
        if absent or settings.model is None or settings.mode is None:
            return None
        mode = Mode(settings.mode)
        parameters = settings.parameters or Parameters()
        if not self._fits(mode, parameters, merged, inputs_count=inputs_count):
            return None
        values = {name: value for name, value in parameters if value is not None}
        recipe = Recipe(
            model=settings.model,
            mode=mode,
            parameters=tuple(sorted(values.items())),
            inputs_count=inputs_count,
            max_cost_credits=settings.max_cost_credits,
            attempts=settings.attempts if settings.attempts is not None else DEFAULT_ATTEMPTS,
        )
        return self._held_against(recipe, settings.priority or 0, merged)

    def _held_against(self, recipe: Recipe, priority: int, merged: MapNode) -> Settled:
        """Hold a recipe against the service's catalogue, where it is known: once for all items that share it."""
        if self._catalogue is None:
            return Settled(recipe, priority)
        objections = []
        for objection in self._catalogue.against(recipe):
            mark = _mark_of(merged, objection.field)
            objections.append(
                PlacedObjection(
                    self._findings.file,
                    mark.line + 1,
                    mark.column + 1,
                    objection.reason,
                    objection.remedy,
                    objection.is_clear,
                )
            )
        return Settled(recipe, priority, tuple(objections), self._catalogue.prompt_limit(recipe.model))

    def _merged(self, own: Pairs) -> Pairs:
        """Give the recipe fields: an item's scalars win, its parameters win one by one, and null removes."""
        merged: Pairs = {name: self._defaults[name] for name in RECIPE_FIELDS if name in self._defaults}
        merged.update((name, own[name]) for name in RECIPE_FIELDS if name in own)
        shared, mine = self._defaults.get("parameters"), own.get("parameters")
        if shared and mine and isinstance(shared[1], MapNode) and isinstance(mine[1], MapNode):
            pairs = {**shared[1].pairs, **mine[1].pairs}
            merged["parameters"] = mine[0], MapNode(mine[1].start_mark, pairs)
        return merged

    def _fits(self, mode: Mode, parameters: Parameters, merged: MapNode, *, inputs_count: int) -> bool:
        """Check what follows from the mode alone; what a model supports is for the catalog to say."""
        before = len(self._problems(mode, parameters, inputs_count))
        for name, reason, remedy in self._problems(mode, parameters, inputs_count):
            self._findings.at(_mark_of(merged, name), reason, remedy)
        return before == 0

    @staticmethod
    def _problems(mode: Mode, parameters: Parameters, inputs_count: int) -> list[tuple[str, str, str]]:
        problems = []
        if mode.takes_images and not inputs_count:
            problems.append(("mode", f"the mode {mode} needs images", "name them by `inputs: [file, …]`"))
        if not mode.takes_images and inputs_count:
            other = "image-to-video" if mode.makes_video else "image-to-image"
            problems.append(
                ("mode", f"the mode {mode} takes no images, and `inputs` names some", f"did you mean `{other}`?")
            )
        if mode.makes_video and parameters.duration_seconds is None:
            problems.append(
                ("mode", f"the mode {mode} needs `parameters.duration_seconds`", "as in {duration_seconds: 5}")
            )
        if not mode.makes_video and parameters.duration_seconds is not None:
            problems.append(
                ("duration_seconds", "an image has no `duration_seconds`", "remove it, or set it to null here")
            )
        problems += [
            (name, f"`{name}` is for images, and {mode} makes a video", "remove it, or set it to null here")
            for name in _IMAGE_ONLY
            if mode.makes_video and getattr(parameters, name) is not None
        ]
        return problems


def fingerprint(node: Node) -> object:
    """Give what tells one tree from another, wherever they stand."""
    if isinstance(node, MapNode):
        return tuple((name, fingerprint(value)) for name, (_, value) in node.pairs.items())
    if isinstance(node, SeqNode):
        return ("list", *map(fingerprint, node.items))
    return node.value, node.implicit[0], node.tag


def _mark_of(merged: MapNode, name: str) -> Mark:
    parameters = merged.pairs.get("parameters")
    if parameters is not None and isinstance(parameters[1], MapNode) and name in parameters[1].pairs:
        return parameters[1].pairs[name][0].start_mark
    pair = merged.pairs.get(name)
    return pair[1].start_mark if pair is not None else merged.start_mark


def _key_of(node: Node) -> ScalarEvent:
    return ScalarEvent(None, None, (True, False), "metadata", start_mark=node.start_mark)


def _flat_values(node: Node) -> dict[str, Any] | None:
    """Give the values of a mapping of plain scalars, the common case; None for one that needs a closer look."""
    if not isinstance(node, MapNode) or len(node.pairs) > _FLAT_MAX:
        return None
    values: dict[str, Any] = {}
    for name, (_, node_value) in node.pairs.items():
        if not (isinstance(node_value, ScalarEvent) and name.isprintable() and 0 < len(name) < _NAME_MAX):
            return None
        value = scalar_value(node_value)
        if isinstance(value, float) or (isinstance(value, int) and not -(2**63) <= value < 2**63):
            return None
        values[name] = value
    return values


def _canonical(values: Mapping[str, Any]) -> str | None:
    return orjson.dumps(values, option=orjson.OPT_SORT_KEYS).decode() if values else None


def describe(node: Node) -> str:
    """Name what a node is, for a sentence."""
    return "a mapping" if isinstance(node, MapNode) else "a list" if isinstance(node, SeqNode) else quoted(node.value)
