"""The interface description: valid, complete, and in step with the code that it describes."""

import ast
import json
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

import batchkiln_service
from batchkiln_service.api.openapi import FILE, Operation, document, operations
from batchkiln_service.api.routes import ROUTES
from batchkiln_service.errors import ApiError
from batchkiln_service.rules.catalog import Model, load_catalog
from batchkiln_service.rules.validation import check_request

from .openapi_file import REPLIES, formatted, schemas_of_models

CATALOG = load_catalog()
DOCUMENT: Any = document()
OPERATIONS = tuple(operations())
URL = "https://assets.batchkiln.invalid/main/ast_1f2e3d4c5b6a79881f2e3d4c"
# The storage host and the operator's port have codes of their own.
ELSEWHERE = {"storage", "admin_api.py"}


def validator(name: str) -> Any:  # noqa: ANN401 - jsonschema_rs has no type for it
    return jsonschema_rs.Draft202012Validator({**DOCUMENT, "$ref": f"#/components/schemas/{name}"})


def nodes(node: object) -> Iterator[dict[str, Any]]:
    if isinstance(node, dict):
        yield node
    for inner in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
        yield from nodes(inner)


def test_every_schema_is_one() -> None:
    """JSON Schema 2020-12, which OpenAPI 3.1 uses, without a word that it does not know."""
    known = {
        "$ref",
        "additionalProperties",
        "allOf",
        "anyOf",
        "const",
        "description",
        "discriminator",
        "enum",
        "exclusiveMinimum",
    }
    known |= {"examples", "format", "items", "maxItems", "maxLength", "maximum", "minItems", "minLength", "minimum"}
    known |= {"oneOf", "pattern", "properties", "required", "title", "type"}

    for schema in DOCUMENT["components"]["schemas"].values():
        jsonschema_rs.meta.validate(schema, registry=None)
        words = set(schema) | {word for field in schema.get("properties", {}).values() for word in field}
        assert words <= known


def test_every_reference_leads_somewhere() -> None:
    """Also those of discriminators."""
    references = [node["$ref"] for node in nodes(DOCUMENT) if isinstance(node.get("$ref"), str)]
    references += [
        ref for node in nodes(DOCUMENT) if "discriminator" in node for ref in node["discriminator"]["mapping"].values()
    ]

    for reference in set(references):
        target = DOCUMENT
        for step in reference.removeprefix("#/").split("/"):
            target = target[step]
        assert target
    assert len(references) > 100


def test_every_route_is_described_and_no_other() -> None:
    """The nine endpoints of Service section 4."""
    described = {(operation.method.upper(), operation.path) for operation in OPERATIONS}

    assert described == {(route.method, route.path) for route in ROUTES}
    assert len(described) == 9


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.id)
def test_operation_is_complete(operation: Operation) -> None:
    """Each has a summary, a text, a tag, examples both ways, and headers with every reply."""
    described = operation.described

    assert all(described[name] for name in ("operationId", "summary", "description", "tags"))
    for status, reply in described["responses"].items():
        assert reply["description"]
        assert "Date" in reply["headers"]
        assert ("Retry-After" in reply["headers"]) == (status in {"429", "503"})
        assert ("WWW-Authenticate" in reply["headers"]) == (status == "401")
        assert ("text/html" in reply["content"]) == (status == "403")
    for content in described.get("requestBody", {"content": {}})["content"].values():
        assert content["examples"]


def test_examples_of_requests_would_be_accepted() -> None:
    """Every example of a create or quote passes the check, and fits exactly one shape."""
    examined = 0
    for path, kind in (("/videos", "VideoRequest"), ("/images", "ImageRequest"), ("/quotes", "GenerationRequest")):
        content = DOCUMENT["paths"][path]["post"]["requestBody"]["content"]["application/json"]
        for example in content["examples"].values():
            assert validator(kind).is_valid(example["value"])
            assert check_request(example["value"], CATALOG).cost_credits > 0
            examined += 1
    assert examined == 2 * sum(len(model.modes) for model in CATALOG.values())


def test_schemas_are_those_of_the_models() -> None:
    """The file has the schema of each request and reply model, and no other; `openapi_file.py` writes them."""
    assert DOCUMENT["components"]["schemas"] == schemas_of_models()


def test_file_is_formatted() -> None:
    """The file is written as `openapi_file.py` writes it, so that its changes are small."""
    assert FILE.read_text("utf-8") == formatted(DOCUMENT)


def test_examples_fit_their_schemas() -> None:
    """Every example of a request and a reply, successful or not, is valid."""
    contents = [
        content
        for operation in OPERATIONS
        for body in (
            operation.described.get("requestBody", {"content": {}}),
            *operation.described["responses"].values(),
        )
        for content in body["content"].values()
    ]
    for content in contents:
        schema = jsonschema_rs.Draft202012Validator({**DOCUMENT, **content["schema"]})
        for example in content.get("examples", {}).values():
            schema.validate(example["value"])
    assert sum(len(content.get("examples", ())) for content in contents) > 100


def test_successful_examples_are_replies_of_the_models() -> None:
    """Each example of a success is made by the model that the operation answers with."""
    models = {model.__name__: model for model in REPLIES}
    for operation in OPERATIONS:
        content = operation.success[1]["content"]["application/json"]
        name = content["schema"].get("$ref", "").rpartition("/")[2]
        for example in content.get("examples", {}).values():
            assert (
                models[name].model_validate_json(json.dumps(example["value"])).model_dump(mode="json")
                == example["value"]
            )


SAMPLES: dict[str, tuple[object, ...]] = {
    "resolution": ("480p", "1K", "512x512", 480, None),
    "aspect_ratio": ("1:1", "16:9", "21:9", "16x9", None),
    "duration_seconds": (5, 5.0, 5.5, "5", True, 10**30, None),
    "generate_audio": (True, 1, "true", None),
    "output_format": ("png", "jpg", "gif", None),
    "google_search": (False, 0, None),
    "seed": (1,),
}
COSTS = (0, 0.5, 2**53 - 1, 2**53, -1, -0.0, True, "5", None)


def plain_body(model: Model) -> dict[str, object]:
    parameters: dict[str, object] = {"resolution": model.resolutions[0]}
    if model.durations_seconds:
        parameters["duration_seconds"] = model.durations_seconds[0]
    return {"model": model.id, "mode": model.modes[0], "prompt": "x", "parameters": parameters}


def image_bodies(model: Model) -> Iterator[dict[str, object]]:
    """Give every mode with every interesting count of images."""
    plain = plain_body(model)
    assert isinstance(plain["parameters"], dict)
    counts = (0, 1, 2, 3, model.most_images, model.most_images + 1)
    named = ({}, *({"image_mode": mode} for mode in ("first-frame", "first-last-frame", "reference-image", "none")))
    for mode, count, more in product(("text-to-image", "image-to-image", "image-to-video"), counts, named):
        inputs = [{"type": "image", "url": URL}] * count
        yield {**plain, "mode": mode, "inputs": inputs, "parameters": {**plain["parameters"], **more}}


def sample_bodies() -> Iterator[dict[str, object]]:
    """Give bodies around the borders of what models take: most of them wrong in one place."""
    for model in CATALOG.values():
        yield from image_bodies(model)
        plain, limit = plain_body(model), model.prompt_limit_characters
        assert isinstance(plain["parameters"], dict)
        blank = ("", " ", "\u0085", "\u001c", "\ufeff")
        yield from (
            {**plain, "prompt": prompt} for prompt in (*blank, "\u200b", "ß" * limit, "😀" * limit, "x" * (limit + 1))
        )
        yield from ({**plain, "max_cost_credits": cost} for cost in COSTS)
        for name, values in SAMPLES.items():
            yield from ({**plain, "parameters": {**plain["parameters"], name: value}} for value in values)


def test_description_and_check_agree() -> None:
    """A body that fits the description is accepted by its form, and one that does not is refused."""
    described = validator("GenerationRequest")
    verdicts = set()

    for body in sample_bodies():
        is_described = described.is_valid(body)
        try:
            check_request(body, CATALOG)
            is_accepted = True
        except ApiError:
            is_accepted = False
        assert is_described == is_accepted, body
        verdicts.add(is_accepted)
    assert verdicts == {True, False}


def test_every_code_that_the_service_raises_is_described() -> None:
    """Statuses and codes in the source of the API and of what it stands on, but for those of no operation."""
    described = {
        (status, code) for operation in OPERATIONS for status, codes in operation.errors.items() for code in codes
    }

    at_the_operators_port = {(409, "already_ended"), (409, "clock_not_movable")}
    of_no_operation = at_the_operators_port | {(400, "invalid_fault")}  # of a request for a fault
    assert set(refusals_in_source()) - described == of_no_operation


def test_codes_and_examples_of_an_error_agree() -> None:
    """Each error response allows exactly the codes that it has examples for, under the code's name."""
    for operation in OPERATIONS:
        for status, codes in operation.errors.items():
            content = operation.described["responses"][str(status)]["content"]["application/json"]
            narrowed = content["schema"]["allOf"][1]["properties"]["error"]["properties"]["code"]["enum"]
            assert narrowed == list(codes)
            assert [example["value"]["error"]["code"] for example in content["examples"].values()] == list(codes)


def refusals_in_source() -> Iterator[tuple[int, str]]:
    folder = Path(batchkiln_service.__file__).parent
    for path in folder.rglob("*.py"):
        if ELSEWHERE & set(path.relative_to(folder).parts):
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "ApiError":
                status, code = (
                    argument.value if isinstance(argument, ast.Constant) else None for argument in node.args[:2]
                )
                if isinstance(status, int) and isinstance(code, str):
                    yield status, code
