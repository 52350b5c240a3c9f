"""The replies of quote, balance and catalogue. Fixed: cost_credits; open: the balance's name, a model's fields."""

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

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
_LIMIT_NAMES: Final[Mapping[str, Mapping[str, str]]] = {
    "plain": {
        "resolutions": "resolutions",
        "aspect_ratios": "aspect_ratios",
        "durations": "durations_seconds",
        "prompt": "prompt_limit_characters",
        "images": "max_input_images",
        "modes": "modes",
    },
    "max": {
        "resolutions": "supported_resolutions",
        "aspect_ratios": "supported_aspect_ratios",
        "durations": "supported_durations",
        "prompt": "max_prompt_length",
        "images": "max_images",
        "modes": "supported_modes",
    },
    "nested": {
        "resolutions": "resolutions",
        "aspect_ratios": "aspect_ratios",
        "durations": "durations",
        "prompt": "prompt",
        "images": "inputs",
        "modes": "modes",
    },
    "short": {
        "resolutions": "sizes",
        "aspect_ratios": "ratios",
        "durations": "seconds",
        "prompt": "prompt_chars",
        "images": "image_limit",
        "modes": "modes",
    },
}


def quote_shape(dialect: Dialect) -> Shape:
    """Return the shape of the reply of POST /quotes."""
    is_float = dialect["quote_number"] == "float"
    cost = Shape(
        lambda given: float(given["cost_credits"]) if is_float else given["cost_credits"],
        described_as(NUMBER if is_float else INTEGER, "Credits; pass it as `max_cost_credits`."),
    )
    fields: dict[str, Shape] = {"cost_credits": cost}
    more = extras(dialect, "quote", frozenset(fields))
    match dialect["quote"]:
        case "quote" | "pricing" | "estimate" as name:
            return object_of(
                {**more, name: object_of(fields)} if dialect.number("quote", 2) else {name: object_of(fields)}
            )
        case "list":
            return object_of({"quotes": at(lambda given: [given], list_of(object_of({**fields, **more})))})
        case _:
            return object_of({**more, **fields})


def balance_shape(dialect: Dialect) -> Shape:
    """Return the shape of the reply of GET /credits/balance."""
    spelling = dialect["spelling"]
    name = spelled(dialect["balance_name"], spelling)
    number = Shape(lambda given: given["balance"], described_as(INTEGER, "Remaining credits."))
    more = extras(dialect, "balance", frozenset({name}))
    match dialect["balance"]:
        case "nested":
            around = "credits" if name != "credits" else "account"
            return object_of({around: object_of({name: number}), **more})
        case "parts":
            parts: dict[str, Shape] = {
                spelled("subscription_credits", spelling): constant(0, INTEGER),
                spelled("purchased_credits", spelling): number,
            }
            return object_of({name: number, "breakdown": object_of(parts), **more})
        case "text":
            text = described_as({"type": "string", "pattern": r"^[0-9]+$"}, "Remaining credits.")
            return object_of({name: Shape(lambda given: str(given["balance"]), text), **more})
        case "float":
            return object_of(
                {name: Shape(lambda given: float(given["balance"]), described_as(NUMBER, "Remaining credits.")), **more}
            )
        case "deep":
            return object_of(
                {"account": object_of({"id": constant("acc_1", TEXT), "credits": object_of({name: number})}), **more}
            )
        case _:
            return object_of({name: number, **more})


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
    spelling, words = dialect["spelling"], _LIMIT_NAMES[dialect["limits_names"]]

    def name(subject: str) -> str:
        return spelled(words[subject], spelling)

    limits: dict[str, Shape] = {
        name("resolutions"): field_of("resolutions", _TEXTS),
        name("aspect_ratios"): field_of("aspect_ratios", _TEXTS),
        name("durations"): _durations(dialect),
        name("prompt"): _figure(dialect, "prompt_limit_characters", "max_length"),
        name("images"): _figure(dialect, "max_input_images", "max"),
    }
    modes: dict[str, Shape] = {name("modes"): field_of("modes", _TEXTS)}
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
            return object_of({**head, name("modes"): pairs, **switches}, name="Model")
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
    take: Callable[[Any], Sequence[int]] = lambda given: given["durations_seconds"]  # noqa: E731
    match dialect["durations"]:
        case "texts":
            return Shape(lambda given: [f"{seconds}s" for seconds in take(given)], _TEXTS)
        case "objects":
            each: Schema = {"type": "object", "required": ["seconds"], "properties": {"seconds": INTEGER}}
            return Shape(
                lambda given: [{"seconds": seconds} for seconds in take(given)], {"type": "array", "items": each}
            )
        case "range":
            steps: Schema = {
                "type": "object",
                "required": ["min", "max", "step"],
                "properties": {"min": INTEGER, "max": INTEGER, "step": INTEGER},
            }
            return Shape(lambda given: _range(take(given)), {"anyOf": [steps, integers]})
        case _:
            return Shape(take, integers)


def _range(durations: Sequence[int]) -> object:
    """Return minimum, maximum and step of regular durations; else the durations."""
    gaps = {after - before for before, after in pairwise(durations)}
    if len(gaps) != 1:
        return list(durations)
    return {"min": durations[0], "max": durations[-1], "step": gaps.pop()}
