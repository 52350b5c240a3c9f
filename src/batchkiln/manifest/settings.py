"""Merges the settings of items with the defaults, checks each combination once, and makes recipes of them."""

from collections.abc import Container, Iterator, Mapping, Sequence
from typing import Any, Final

import orjson
from msgspec import Struct
from msgspec.structs import replace

from batchkiln.core.catalog_checks import Catalogue, PlacedObjection
from batchkiln.core.job import InputFile, Mode, Recipe, SourceRef
from batchkiln.core.unread_items import UnreadItems
from batchkiln.manifest.images import Images
from batchkiln.manifest.schema import MAX_INPUTS, Parameters, Settings, SourceInput
from batchkiln.manifest.validation import check, checked_id, valid_part
from batchkiln.yaml_reading.diagnostics import Diagnostics, InvalidValue, Mark, quoted
from batchkiln.yaml_reading.yaml_parser import ScalarEvent
from batchkiln.yaml_reading.yaml_tree import MapNode, Node, RenderedScalar, SeqNode, plain_value, scalar_value

RECIPE_FIELDS: Final = (
    *("model", "mode", "parameters", "max_cost_credits", "attempts", "priority"),
    *("variants", "choose", "review"),
)
DEFAULT_ATTEMPTS: Final = 3
MAX_METADATA_SIZE_BYTES: Final = 64 << 10
_MAX_CACHED: Final = 10_000
_MAX_WITH_OBJECTIONS: Final = 1_000
_MAX_FLAT_PAIRS: Final = 200  # as for `Metadata`
_MAX_NAME_LENGTH: Final = 1000  # as for `Text`
_FILE_WORDS: Final = ("file", "path", "image", "url", "src")  # what people write before the name of a file
_IMAGE_ONLY: Final = ("output_format", "google_search")  # Service section 2.2

Pairs = dict[str, tuple[ScalarEvent, Node]]
Input = InputFile | SourceRef


class ResolvedSettings(Struct, frozen=True):
    """Settings that many items share. `objections` and `prompt_limit` come from the service's catalogue.

    The unit of `prompt_limit` is not documented. `variants` is None for an item that is not a member of a group.
    """

    recipe: Recipe
    priority: int
    variants: int | None = None
    choose: int | None = None
    review: bool = False
    objections: tuple[PlacedObjection, ...] = ()
    prompt_limit: int | None = None


class SettingsReader:
    """Merges and checks settings, and caches valid ones. Invalid ones add diagnostics.

    The catalogue's objections to the valid part of invalid settings are kept in `unread`.
    """

    def __init__(
        self,
        defaults: MapNode | None,
        images: Images,
        diagnostics: Diagnostics,
        catalogue: Catalogue | None = None,
        *,
        unread: UnreadItems,
    ) -> None:
        self._defaults: Pairs = defaults.pairs if defaults is not None else {}
        self._images = images
        self._diagnostics = diagnostics
        self._catalogue = catalogue
        self._unread = unread
        self._with_objections = 0
        self._cache: dict[tuple[object, ...], ResolvedSettings] = {}
        shared = self._defaults.get("metadata")
        self._metadata = plain_value(shared[1]) if shared is not None and isinstance(shared[1], MapNode) else {}
        try:
            self._metadata_text = canonical(self._metadata)
        except TypeError:  # the header's diagnostics report it
            self._metadata, self._metadata_text = {}, None

    @property
    def default_metadata(self) -> Mapping[str, Any]:
        """The metadata of the defaults."""
        return self._metadata

    def resolve(self, entry: MapNode, inputs_count: int) -> ResolvedSettings | None:
        """Return the settings of an entry; None if they are invalid."""
        pairs = entry.pairs
        key = (inputs_count, *[(name, fingerprint(pairs[name][1])) for name in RECIPE_FIELDS if name in pairs])
        resolved = self._cache.get(key)
        if resolved is None:
            resolved = self._resolve(entry, inputs_count)
            # Objections name the entry's own lines, so settings that have some are not shared, up to a limit.
            self._with_objections += 0 if resolved is None else bool(resolved.objections)
            if resolved is not None and (not resolved.objections or self._with_objections > _MAX_WITH_OBJECTIONS):
                if len(self._cache) >= _MAX_CACHED:
                    self._cache.clear()
                self._cache[key] = resolved
        return resolved

    def makes_several(self, entry: MapNode) -> bool:
        """Return whether an entry may make several items, whose ids are not its own."""
        return bool({"repeat", "variants"} & entry.pairs.keys() or "variants" in self._defaults)

    def inputs(self, entry: MapNode) -> tuple[Input, ...] | None:
        """Return the inputs of an entry, with checked files; None if one of them is invalid."""
        pair = entry.pairs.get("inputs") or self._defaults.get("inputs")
        return () if pair is None else self.inputs_in(pair[1])

    def inputs_count(self, entry: MapNode) -> int:
        """Return the number of inputs that an entry names, valid or not."""
        pair = entry.pairs.get("inputs") or self._defaults.get("inputs")
        if pair is None or (isinstance(pair[1], ScalarEvent) and scalar_value(pair[1]) is None):
            return 0
        return len(pair[1].items) if isinstance(pair[1], SeqNode) else 1

    def inputs_in(self, node: Node) -> tuple[Input, ...] | None:
        """Return the inputs of a list, with checked files; None if one of them is invalid."""
        if not isinstance(node, SeqNode):
            if isinstance(node, (MapNode, RenderedScalar)) or scalar_value(node) is not None:
                self._diagnostics.at(node.start_mark, "`inputs` must be a list", "as in `inputs: [images/owl.png]`")
                return None
            return ()
        if len(node.items) > MAX_INPUTS:
            self._diagnostics.at(node.start_mark, f"{len(node.items)} inputs", f"an item takes at most {MAX_INPUTS}")
            return None
        inputs = [self.input(item, place) for place, item in enumerate(node.items, 1)]
        return None if None in inputs else tuple(each for each in inputs if each is not None)

    def input(self, node: Node, place: int) -> Input | None:
        """Return one input of a list, at a place from 1; None after adding diagnostics."""
        return self.source_ref(node, place) if isinstance(node, MapNode) else self._input_file(node)

    def source_ref(self, node: MapNode, place: int) -> SourceRef | None:
        """Return an input that another item makes; None after adding diagnostics."""
        if "item" not in node.pairs and (word := next((name for name in node.pairs if name in _FILE_WORDS), None)):
            reason = f"`inputs[{place}]`: a file is given by its name alone, without `{word}:`"
            self._diagnostics.at(node.start_mark, reason, f"write `inputs: [{_file_in(node.pairs[word][1])}]`")
            return None
        found = check(SourceInput, node, self._diagnostics, prefix=f"inputs[{place}]")
        if found is None:
            return None
        value = node.pairs["item"][1]
        try:
            checked_id(found.item)
        except InvalidValue as error:
            self._diagnostics.at(value.start_mark, error.reason, error.remedy)
            return None
        mark = value.start_mark
        return SourceRef(
            item=found.item,
            output=found.output or 1,
            job=found.job,
            choice=found.choice,
            file=self._diagnostics.file,
            line=mark.line + 1,
            column=mark.column + 1,
        )

    def metadata(self, node: Node | None) -> tuple[Mapping[str, Any], str | None] | None:
        """Return an inline item's metadata as values and as JSON; None if they are invalid."""
        if node is None:
            return self._metadata, self._metadata_text
        own = _flat_values(node)
        if own is None:
            key = ScalarEvent(None, None, (True, False), "metadata", start_mark=node.start_mark)
            if check(Settings, MapNode(node.start_mark, {"metadata": (key, node)}), self._diagnostics) is None:
                return None
            own = plain_value(node) or {}
        return self.merged_metadata(own, node.start_mark)

    def merged_metadata(self, own: Mapping[str, Any], mark: Mark) -> tuple[Mapping[str, Any], str | None] | None:
        """Return the defaults' metadata updated by an item's own, as values and as JSON; None if too large."""
        values = {**self._metadata, **own} if self._metadata else own
        try:
            text = canonical(values)
        except TypeError as error:
            self._diagnostics.at(mark, f"`metadata` cannot be written as JSON: {error}")
            return None
        if text is not None and len(text) > MAX_METADATA_SIZE_BYTES:
            limit = f"at most {MAX_METADATA_SIZE_BYTES >> 10} KiB as JSON"
            self._diagnostics.at(mark, "`metadata` is too large", limit)
            return None
        return values, text

    def _input_file(self, node: Node) -> InputFile | None:
        name = None if isinstance(node, (MapNode, SeqNode)) else node.value
        if not name or (isinstance(node, ScalarEvent) and not isinstance(scalar_value(node), str)):
            reason = "an input is the name of a local file, or `{item: ID}` for what another item makes"
            self._diagnostics.at(node.start_mark, reason, "quote it if it looks like a number")
            return None
        try:
            return self._images.get(name)
        except InvalidValue as error:
            self._diagnostics.at(node.start_mark, error.reason, error.remedy)
            return None

    def _resolve(self, entry: MapNode, inputs_count: int) -> ResolvedSettings | None:
        merged = MapNode(entry.start_mark, self._merged(entry.pairs))
        settings = check(Settings, merged, self._diagnostics)
        if settings is None:
            self._keep_objections(merged, valid_part(Settings, merged), inputs_count)
            return None
        inputs = entry.pairs.get("inputs") or self._defaults.get("inputs")
        merged.pairs.update({"inputs": inputs} if inputs is not None else {})
        for name in ("model", "mode"):
            if getattr(settings, name) is None:
                self._diagnostics.at(entry.start_mark, f"`{name}` is missing", "set it in the item or in `defaults`")
        if settings.model is None or settings.mode is None:
            self._keep_objections(merged, settings, inputs_count)
            return None
        mode = Mode(settings.mode)
        parameters = settings.parameters or Parameters()
        conflicts = list(_conflicts(mode, parameters, inputs_count))
        for field, reason, remedy in conflicts:
            mark, line = _mark_of(merged, field), entry.start_mark.line
            if field == "mode" and not mode.takes_images and "inputs" in entry.pairs and "mode" not in entry.pairs:
                # The item is what differs: another mode in the defaults would change all others.
                mark = entry.pairs["inputs"][0].start_mark
                remedy = f"set `mode: {_with_images(mode)}` in this item"  # noqa: PLW2901  the item's own
            inherited = f"; {self._diagnostics.item_at(line + 1)} inherits it" if mark.line < line else ""
            self._diagnostics.at(mark, reason, remedy, context=inherited)
        if conflicts or not self._can_choose(entry, settings):
            self._keep_objections(merged, settings, inputs_count, conflicts=[field for field, _, _ in conflicts])
            return None
        recipe = _recipe(settings, settings.model, mode, inputs_count)
        resolved = ResolvedSettings(
            recipe,
            settings.priority or 0,
            variants=settings.variants,
            choose=settings.choose if settings.variants is not None else None,
            review=settings.review or False,
        )
        if self._catalogue is None:
            return resolved
        prompt_limit = self._catalogue.prompt_limit(recipe.model)
        return replace(resolved, objections=tuple(self._objections(merged, recipe)), prompt_limit=prompt_limit)

    def _objections(
        self, merged: MapNode, recipe: Recipe, *, besides: Container[str] = ()
    ) -> Iterator[PlacedObjection]:
        """Yield the catalogue's objections to a recipe, besides those to some fields."""
        for one in () if self._catalogue is None else self._catalogue.against(recipe):
            if one.field not in besides:
                mark = _mark_of(merged, one.field)
                location = (self._diagnostics.file, mark.line + 1, mark.column + 1)
                yield PlacedObjection(*location, one.reason, one.remedy, one.is_clear)

    def _keep_objections(
        self, merged: MapNode, settings: Settings | None, inputs_count: int, *, conflicts: Sequence[str] = ()
    ) -> None:
        """Keep the objections to invalid settings, as far as they are valid; conflicts have their diagnostics."""
        if settings is not None and settings.model is not None:
            besides = {*conflicts, *(() if settings.mode is not None else ("mode",))}
            mode = Mode(settings.mode or Mode.TEXT_TO_IMAGE)
            recipe = _recipe(settings, settings.model, mode, inputs_count)
            self._unread.keep_objections(tuple(self._objections(merged, recipe, besides=besides)))

    def _can_choose(self, entry: MapNode, settings: Settings) -> bool:
        """Return whether an entry's `choose` goes with its `variants`; add a diagnostic if not."""
        if settings.choose is None:
            return True
        pair = entry.pairs.get("choose") or self._defaults.get("choose")
        mark = entry.start_mark if pair is None else pair[1].start_mark
        if settings.variants is None and "choose" in entry.pairs:
            self._diagnostics.at(mark, "`choose` needs `variants`", "as in `variants: 4` with `choose: 1`")
            return False
        if settings.variants is not None and settings.choose > settings.variants:
            reason = f"`choose` is {settings.choose}, and there are {settings.variants} `variants`"
            self._diagnostics.at(mark, reason, f"1 to {settings.variants}")
            return False
        return True

    def _merged(self, own: Pairs) -> Pairs:
        """Return an item's recipe fields over the defaults'. Parameters are merged one by one."""
        merged: Pairs = {name: self._defaults[name] for name in RECIPE_FIELDS if name in self._defaults}
        merged.update((name, own[name]) for name in RECIPE_FIELDS if name in own)
        shared, mine = self._defaults.get("parameters"), own.get("parameters")
        if shared and mine and isinstance(shared[1], MapNode) and isinstance(mine[1], MapNode):
            pairs = {**shared[1].pairs, **mine[1].pairs}
            merged["parameters"] = mine[0], MapNode(mine[1].start_mark, pairs)
        return merged


def _recipe(settings: Settings, model: str, mode: Mode, inputs_count: int) -> Recipe:
    values = {name: value for name, value in settings.parameters or () if value is not None}
    return Recipe(
        model=model,
        mode=mode,
        parameters=tuple(sorted(values.items())),
        inputs_count=inputs_count,
        max_cost_credits=settings.max_cost_credits,
        attempts=settings.attempts if settings.attempts is not None else DEFAULT_ATTEMPTS,
    )


def _conflicts(mode: Mode, parameters: Parameters, inputs_count: int) -> Iterator[tuple[str, str, str]]:
    """Yield field, reason and remedy of settings that contradict the mode. The catalogue knows a model's own limits."""
    if mode.takes_images and not inputs_count:
        yield "mode", f"the mode {mode} needs images", "name them by `inputs: [file, …]` or `inputs: [{item: ID}]`"
    if not mode.takes_images and inputs_count:
        remedy = f"did you mean `{_with_images(mode)}`?"
        yield "mode", f"the mode {mode} takes no images, and `inputs` names some", remedy
    if not mode.makes_video:
        if parameters.duration_seconds is not None:
            yield "duration_seconds", "an image has no `duration_seconds`", "remove it, or set it to null in the item"
        return
    if parameters.duration_seconds is None:
        yield "mode", f"the mode {mode} needs `parameters.duration_seconds`", "as in {duration_seconds: 5}"
    for name in _IMAGE_ONLY:
        if getattr(parameters, name) is not None:
            yield name, f"`{name}` is for images, and {mode} makes a video", "remove it, or set it to null in the item"


def _with_images(mode: Mode) -> Mode:
    """Return the mode of the same result that takes images."""
    return Mode.IMAGE_TO_VIDEO if mode.makes_video else Mode.IMAGE_TO_IMAGE


def fingerprint(node: Node) -> object:
    """Return a hashable value that is equal for equal trees, wherever they are in the text."""
    if isinstance(node, MapNode):
        return tuple((name, fingerprint(value)) for name, (_, value) in node.pairs.items())
    if isinstance(node, SeqNode):
        return ("list", *map(fingerprint, node.items))
    return node.value, node.implicit[0], node.tag


def _file_in(node: Node) -> str:
    return quoted(node.value) if isinstance(node, ScalarEvent) and node.value else "images/owl.png"


def _mark_of(merged: MapNode, name: str) -> Mark:
    parameters = merged.pairs.get("parameters")
    if parameters is not None and isinstance(parameters[1], MapNode) and name in parameters[1].pairs:
        return parameters[1].pairs[name][0].start_mark
    pair = merged.pairs.get(name)
    return pair[1].start_mark if pair is not None else merged.start_mark


def _flat_values(node: Node) -> dict[str, Any] | None:
    """Return a mapping of valid scalars, the usual case; None for a node that needs the full check."""
    if not isinstance(node, MapNode) or len(node.pairs) > _MAX_FLAT_PAIRS:
        return None
    values: dict[str, Any] = {}
    for name, (_, node_value) in node.pairs.items():
        if not (isinstance(node_value, ScalarEvent) and name.isprintable() and 0 < len(name) < _MAX_NAME_LENGTH):
            return None
        value = scalar_value(node_value)
        if isinstance(value, float) or (isinstance(value, int) and not -(2**63) <= value < 2**63):
            return None
        values[name] = value
    return values


def canonical(values: Mapping[str, Any]) -> str | None:
    """Return metadata as JSON in canonical form; None without any. Raise `TypeError`."""
    return orjson.dumps(values, option=orjson.OPT_SORT_KEYS).decode() if values else None


def describe(node: Node) -> str:
    """Return a short description of a node for a sentence, such as its type and value."""
    return "a mapping" if isinstance(node, MapNode) else "a list" if isinstance(node, SeqNode) else quoted(node.value)
