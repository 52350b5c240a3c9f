"""The replies of quote, balance and catalogue. Fixed: cost_credits; open: the balance's name, a model's fields."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Final

from batchkiln_service.dialects.extra_fields import extras
from batchkiln_service.dialects.naming import spelled
from batchkiln_service.dialects.shapes import (
    INTEGER,
    NUMBER,
    TEXT,
    TRUTH,
    Schema,
    Shape,
    Take,
    at,
    constant,
    described_as,
    field_of,
    list_of,
    map_of,
    object_of,
)
from batchkiln_service.dialects.traits import Dialect

_TEXTS: Final[Schema] = {"type": "array", "items": TEXT}
_NUMBERS: Final[Mapping[str, type]] = {"int": int, "float": float, "text": str}
_SCHEMAS: Final[Mapping[type, Schema]] = {
    int: INTEGER,
    float: NUMBER,
    str: {"type": "string", "pattern": r"^[0-9]+$"},
}
# By option of the trait `limits_names`: resolutions, aspect ratios, durations, prompt limit, image limit and modes.
_LIMIT_NAMES: Final[Mapping[str, Sequence[str]]] = {
    "plain": (
        "resolutions", "aspect_ratios", "durations_seconds", "prompt_limit_characters", "max_input_images", "modes"
    ),
    "max": (
        "supported_resolutions", "supported_aspect_ratios", "supported_durations", "max_prompt_length", "max_images",
        "supported_modes",
    ),
    "nested": ("resolutions", "aspect_ratios", "durations", "prompt", "inputs", "modes"),
    "short": ("sizes", "ratios", "seconds", "prompt_chars", "image_limit", "modes"),
}  # fmt: skip


def quote_shape(dialect: Dialect) -> Shape:
    """Return the shape of the reply of POST /quotes."""
    kind = _NUMBERS[dialect["quote_number"]]
    cost = Shape(
        lambda given: kind(given["cost_credits"]),
        described_as(_SCHEMAS[kind], "Credits; pass it as `max_cost_credits`."),
    )
    fields = {"cost_credits": cost}
    more = extras(dialect, "quote", frozenset(fields))
    match dialect["quote"]:
        case "flat":
            return object_of({**more, **fields})
        case "list":
            return object_of({"quotes": at(lambda given: [given], list_of(object_of({**fields, **more})))})
        case name:
            return object_of({**(more if dialect.number("quote", 2) else {}), name: object_of(fields)})


def balance_shape(dialect: Dialect) -> Shape:
    """Return the shape of the reply of GET /credits/balance."""
    spelling, form = dialect["spelling"], dialect["balance"]
    name = spelled(dialect["balance_name"], spelling)
    kind = _NUMBERS.get(form, int)
    number = Shape(lambda given: kind(given["balance"]), described_as(_SCHEMAS[kind], "Remaining credits."))
    fields = {name: number}
    more = extras(dialect, "balance", frozenset(fields))
    match form:
        case "nested":
            return object_of({"credits" if name != "credits" else "account": object_of(fields), **more})
        case "parts":
            parts = {"subscription_credits": constant(0), "purchased_credits": number}
            breakdown = object_of({spelled(part, spelling): shape for part, shape in parts.items()})
            return object_of({**fields, "breakdown": breakdown, **more})
        case "deep":
            return object_of({"account": object_of({"id": constant("acc_1"), "credits": object_of(fields)}), **more})
        case _:
            return object_of({**fields, **more})


def models_shape(dialect: Dialect) -> Shape:
    """Return the shape of the reply of GET /models, made from the list of the service's entries."""
    around = spelled(dialect["models_name"], dialect["spelling"])
    each = _model(dialect)
    match dialect["models"]:
        case "bare_list":
            return list_of(each)
        case "map":
            return object_of({around: map_of(each, lambda given: str(given["id"]), "By model.")})
        case "grouped":
            return object_of({kind: at(_of_kind(kind), list_of(each)) for kind in ("video", "image")})
        case _:
            return object_of({around: list_of(each)})


def _of_kind(kind: str) -> Take:
    return lambda given: [one for one in given if one["kind"] == kind]


def _model(dialect: Dialect) -> Shape:
    spelling = dialect["spelling"]
    resolutions, ratios, durations, prompt, images, modes_name = (
        spelled(name, spelling) for name in _LIMIT_NAMES[dialect["limits_names"]]
    )
    limits = {
        resolutions: field_of("resolutions", _TEXTS),
        ratios: field_of("aspect_ratios", _TEXTS),
        durations: _durations(dialect),
        prompt: _figure(dialect, "prompt_limit_characters", "max_length"),
        images: _figure(dialect, "max_input_images", "max"),
    }
    modes = {modes_name: field_of("modes", _TEXTS)}
    head: dict[str, Shape] = {
        spelled(dialect["model_name"], spelling): Shape(
            lambda given: given["id"], described_as(TEXT, "The value of the request field `model`.")
        ),
        "type": field_of("kind", TEXT),
    }
    head |= extras(dialect, "model", frozenset({*head, *limits}))
    switches: dict[str, Shape] = {
        spelled("audio_control", spelling): field_of("audio_control", TRUTH),
        spelled("image_modes", spelling): field_of("image_modes", _TEXTS),
        spelled("output_formats", spelling): field_of("output_formats", _TEXTS),
    }
    match dialect["capabilities"]:
        case "nested":
            return object_of({**head, "capabilities": object_of({**modes, **limits, **switches})}, name="Model")
        case "by_mode":
            per_mode = object_of({"mode": Shape(lambda given: given[0], TEXT), **_of_entry(limits)})
            pairs = at(lambda given: [(mode, given) for mode in given["modes"]], list_of(per_mode))
            return object_of({**head, modes_name: pairs, **switches}, name="Model")
        case _:
            return object_of({**head, **modes, **limits, **switches}, name="Model")


def _of_entry(limits: Mapping[str, Shape]) -> dict[str, Shape]:
    return {name: at(lambda given: given[1], shape) for name, shape in limits.items()}


def _figure(dialect: Dialect, field: str, within: str) -> Shape:
    if dialect["limits_names"] == "nested":
        return object_of({spelled(within, dialect["spelling"]): field_of(field, INTEGER)})
    return field_of(field, INTEGER)


def _durations(dialect: Dialect) -> Shape:
    integers: Schema = {"type": "array", "items": INTEGER}
    seconds: Schema = {"type": "object", "required": ["seconds"], "properties": {"seconds": INTEGER}}
    steps = {"min": INTEGER, "max": INTEGER, "step": INTEGER}
    forms: Mapping[str, tuple[Take, Schema]] = {
        "list": (list, integers),
        "texts": (lambda given: [f"{each}s" for each in given], _TEXTS),
        "objects": (lambda given: [{"seconds": each} for each in given], {"type": "array", "items": seconds}),
        "range": (_range, {"anyOf": [{"type": "object", "required": [*steps], "properties": steps}, integers]}),
    }
    return at(lambda given: given["durations_seconds"], Shape(*forms[dialect["durations"]]))


def _range(durations: Sequence[int]) -> object:
    """Return minimum, maximum and step of evenly spaced durations, or the list of other durations."""
    gaps = {after - before for before, after in pairwise(durations)}
    if len(gaps) != 1:
        return list(durations)
    return {"min": durations[0], "max": durations[-1], "step": gaps.pop()}
