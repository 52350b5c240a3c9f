"""What a service's description tells of the fields that its document leaves open (contract, section 8)."""

import copy
import json
from collections.abc import Iterator
from typing import Any

import pytest

from batchkiln.client.openapi_fields import UndocumentedField, hints_from_openapi, undocumented_fields
from batchkiln.client.reply_mapping import FieldHints
from batchkiln.core.response_rules import ReplyField
from batchkiln.core.responses import Described
from batchkiln.doctor.check_results import Level
from batchkiln.doctor.service import check_description
from batchkiln_service.api.openapi import description

WHOLE: Any = json.loads(description())
TEXT = {"type": "string"}


@pytest.fixture
def document() -> Any:  # noqa: ANN401  JSON
    return copy.deepcopy(WHOLE)


def answering(document: Any, path: str, schema: object) -> Any:  # noqa: ANN401  JSON
    """Give the document with another shape of one success."""
    (method,) = document["paths"][path]
    responses = document["paths"][path][method]["responses"]
    status = next(status for status in responses if status.startswith("2"))
    responses[status]["content"]["application/json"] = {"schema": schema}
    return document


def listed(**properties: object) -> dict[str, Any]:
    entry = {"type": "object", "properties": {"upload_url": TEXT, "upload_headers": {"type": "object"}, **properties}}
    return {"type": "object", "properties": {"data": {"type": "array", "items": entry}}}


def of(document: Any, name: ReplyField) -> UndocumentedField:  # noqa: ANN401  JSON
    return next(each for each in undocumented_fields(document) if each.name is name)


def test_each_open_field_of_the_local_service_is_found() -> None:
    """Where it is described, it is read, and what is sent back is named."""
    assert {each.name: each.found for each in undocumented_fields(WHOLE)} == {
        ReplyField.MODELS: "models[].id",
        ReplyField.BALANCE: "balance",
        ReplyField.PRICE: "cost_credits",
        ReplyField.GENERATION_ID: "id",
        ReplyField.ASSET_ID: "uploads[].asset_id",
        ReplyField.ASSET_URL: "assets[].url",
        ReplyField.ERROR_CODE: "error.code",
    }
    assert [each for each in undocumented_fields(WHOLE) if not each.is_found] == []
    findings = check_description(Described("t", "1", WHOLE))
    assert findings[-1].message == "as batchkiln expects it"
    assert "sent back in asset_ids" in " ".join(finding.message for finding in findings)


def test_a_described_identifier_is_learned_and_used(document: Any) -> None:  # noqa: ANN401
    """Its own words say which field it is, whatever its name; another one would have looked like it."""
    blob = {"type": "string", "description": "The asset's identifier, for the completion."}
    answering(document, "/uploads", listed(id=TEXT, blob=blob))

    assert hints_from_openapi(document).asset_id == ("data", "blob")
    assert of(document, ReplyField.ASSET_ID).found == "data[].blob"


def test_an_identifier_that_is_a_key_is_learned(document: Any) -> None:  # noqa: ANN401
    """A map by asset id has it in no field."""
    entry = {"type": "object", "properties": {"upload_url": TEXT}}
    answering(
        document, "/uploads", {"type": "object", "description": "Keyed by asset id.", "additionalProperties": entry}
    )

    assert hints_from_openapi(document).asset_id == ("*",)
    assert of(document, ReplyField.ASSET_ID).is_found


def test_what_would_not_be_found_is_told_with_its_remedy(document: Any) -> None:  # noqa: ANN401
    """`doctor` says so before anything is uploaded, and not that all is as expected. Law 10."""
    answering(document, "/uploads", listed(blob=TEXT, thing=TEXT))

    findings = check_description(Described("t", "1", document))

    (told,) = [finding for finding in findings if finding.check == "description, asset_id"]
    assert told.level is Level.WARN
    assert "replies: {fields: {asset_id: <path>}}" in str(told.remedy)
    assert not [finding for finding in findings if finding.message == "as batchkiln expects it"]


def holes(holder: Any, depth: int) -> Iterator[tuple[Any, Any]]:  # noqa: ANN401  JSON
    for key in list(holder) if isinstance(holder, dict) else range(len(holder)):
        yield holder, key
        if depth and isinstance(holder[key], dict | list):
            yield from holes(holder[key], depth - 1)


def test_any_hole_and_any_circle_is_survived(document: Any) -> None:  # noqa: ANN401
    """A foreign document raises nothing, and costs a moment."""
    document["paths"] = {"/uploads": document["paths"]["/uploads"]}
    schemas = document["components"]["schemas"]
    document["components"] = {"schemas": {name: schemas[name] for name in schemas if "Upload" in name}}
    for holder, key in list(holes({"d": document}, 8)):
        kept = holder[key]
        for strange in (None, "x", [[1]]):
            holder[key] = strange
            assert isinstance(hints_from_openapi({"paths": document.get("paths"), **document}), FieldHints)
        holder[key] = kept
    document["components"]["schemas"]["UploadList"] = {"oneOf": [{"$ref": "#/components/schemas/UploadList"}] * 3}

    assert len(undocumented_fields(document)) == 7
