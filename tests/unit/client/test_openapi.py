"""What a service's description says otherwise is named before it costs anything (contract, section 8)."""

import copy
import json
from collections.abc import Iterator
from typing import Any

import pytest

from batchkiln.client.openapi import Mismatch, hints_from_openapi, mismatches
from batchkiln.client.reply_mapping import FieldHints
from batchkiln.core.responses import Described
from batchkiln.doctor.service import check_description
from batchkiln_service.api.openapi import description

WHOLE: Any = json.loads(description())


@pytest.fixture
def document() -> Any:  # noqa: ANN401  JSON
    return copy.deepcopy(WHOLE)


def graves(found: list[Mismatch]) -> list[str]:
    return [mismatch.what for mismatch in found if mismatch.is_breaking]


def test_the_local_service_is_as_the_client_expects() -> None:
    """No difference where there is none."""
    assert mismatches(WHOLE) == []
    (finding,) = check_description(Described("t", "1", WHOLE))
    assert finding.message == "matches the requests of batchkiln"


def test_paths_may_be_described_with_their_prefix(document: Any) -> None:  # noqa: ANN401
    """With the version in them, or only in the server's address; the names of what they hold do not count."""
    document["paths"] = {
        f"/api/v1{path}".replace("{id}", "{generation_id}"): item for path, item in document["paths"].items()
    }
    document["servers"] = [{"url": "https://example.invalid/api/v1"}]

    assert mismatches(document) == []


def test_an_endpoint_that_is_gone_is_grave_where_every_run_needs_it(document: Any) -> None:  # noqa: ANN401
    """Quotes are needed always, the catalog is not."""
    del document["paths"]["/quotes"]
    del document["paths"]["/models"]

    assert mismatches(document) == [
        Mismatch("GET /models is not described"),
        Mismatch("POST /quotes is not described", is_breaking=True),
    ]


def test_a_create_without_an_idempotency_key_is_grave(document: Any) -> None:  # noqa: ANN401
    """A replay could be charged again. Service rule 4.1."""
    document["paths"]["/images"]["post"]["parameters"] = []

    (what,) = graves(mismatches(document))

    assert what.startswith("POST /images takes no Idempotency-Key")


@pytest.mark.parametrize(
    "schema", [{"maxLength": 20}, {"minLength": 64}, {"pattern": "^[0-9]{16,128}$"}], ids=["short", "long", "digits"]
)
def test_a_key_of_another_form_is_grave(document: Any, schema: dict[str, Any]) -> None:  # noqa: ANN401
    """Our keys would be refused."""
    document["paths"]["/videos"]["post"]["parameters"][0]["schema"] = schema

    (what,) = graves(mismatches(document))

    assert "another form of Idempotency-Key" in what


def test_a_pattern_that_would_take_for_ever_is_not_tried(document: Any) -> None:  # noqa: ANN401
    """The description is foreign: it must not hang the program."""
    document["paths"]["/videos"]["post"]["parameters"][0]["schema"] = {"pattern": "^bk-(0+)+x$"}

    assert mismatches(document) == []


def test_fields_that_are_no_longer_taken_or_newly_required_are_grave(document: Any) -> None:  # noqa: ANN401
    """Each request would be refused."""
    document["components"]["schemas"]["UploadRequest"] = {
        "type": "object",
        "additionalProperties": False,
        "properties": {"documents": {}, "purpose": {}},
        "required": ["documents", "purpose"],
    }

    assert graves(mismatches(document)) == [
        "POST /uploads does not take files",
        "POST /uploads requires documents, purpose, which batchkiln does not send",
    ]


def test_texts_of_the_description_are_made_safe(document: Any) -> None:  # noqa: ANN401
    """No control character, no link, and none longer than a line."""
    evil = "\x1b[2J https://evil.invalid/?token=secret " + "x" * 5000
    document["components"]["schemas"]["UploadRequest"]["required"] = [evil]

    texts = [mismatch.what for mismatch in mismatches(document)]

    assert texts
    assert all("\x1b" not in text and "secret" not in text and len(text) < 300 for text in texts)


def upload_list(document: Any, **properties: object) -> None:  # noqa: ANN401  JSON
    """Give the entries of the reply to an upload request other fields."""
    entry = {"type": "object", "properties": {"upload_url": {"type": "string"}, **properties}}
    schema = {"type": "object", "properties": {"data": {"type": "array", "items": entry}}}
    document["components"]["schemas"]["UploadList"] = schema


def test_a_described_identifier_is_learned(document: Any) -> None:  # noqa: ANN401
    """Its own words say which field it is, whatever its name; another one would have looked like it."""
    blob = {"type": "string", "description": "The asset's identifier, for the completion."}
    upload_list(document, id={"type": "string"}, blob=blob)

    assert hints_from_openapi(document).asset_id == ("data", "blob")


def test_an_identifier_without_a_description_is_not_learned(document: Any) -> None:  # noqa: ANN401
    """A name alone says no more than a reply does."""
    upload_list(document, id={"type": "string"}, blob={"type": "string"})

    assert hints_from_openapi(document).asset_id == ()


def test_an_identifier_that_is_a_key_is_learned(document: Any) -> None:  # noqa: ANN401
    """A map by asset id has it in no field."""
    entry = {"type": "object", "properties": {"upload_url": {"type": "string"}}}
    by_id = {"type": "object", "description": "Keyed by asset id.", "additionalProperties": entry}
    document["components"]["schemas"]["UploadList"] = {"allOf": [by_id]}

    assert hints_from_openapi(document).asset_id == ("*",)


def test_references_in_a_circle_come_to_an_end(document: Any) -> None:  # noqa: ANN401
    """A hostile description costs a moment, not the program."""
    schemas = document["components"]["schemas"]
    schemas["GenerationRecord"] = {"oneOf": [{"$ref": "#/components/schemas/GenerationRecord"}] * 2}
    schemas["Quote"] = {"$ref": "#/components/schemas/Quote"}
    schemas["UploadList"] = {"oneOf": [{"items": {"$ref": "#/components/schemas/UploadList"}}] * 3}

    assert isinstance(mismatches(document), list)
    assert isinstance(hints_from_openapi(document), FieldHints)


def nodes(holder: Any, depth: int) -> Iterator[tuple[Any, Any]]:  # noqa: ANN401  JSON
    """Give each place of a document, as the container and the key in it, down to a depth."""
    for key in list(holder) if isinstance(holder, dict) else range(len(holder)):
        yield holder, key
        if depth and isinstance(holder[key], dict | list):
            yield from nodes(holder[key], depth - 1)


def test_a_document_with_any_hole_is_survived(document: Any) -> None:  # noqa: ANN401
    """Whatever stands in a place, the answer is a list."""
    document["paths"] = {"/uploads": document["paths"]["/uploads"]}
    whole = mismatches(document)

    for holder, key in list(nodes({part: document[part] for part in ("paths", "servers")}, 7)):
        kept = holder[key]
        for strange in (None, "x", [[1]]):
            holder[key] = strange
            assert isinstance(mismatches(document), list)
            assert isinstance(hints_from_openapi(document), FieldHints)
        holder[key] = kept

    assert mismatches(document) == whole
