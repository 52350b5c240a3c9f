"""The operations of the API as the interface description tells them: what each takes, and how each may answer."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from batchkiln.service.rules.replies import AssetList, Balance, GenerationRecord, ModelList, Quote, Reply, UploadList

Codes = Mapping[int, tuple[str, ...]]
_ALWAYS: Final[Codes] = {
    400: ("bad_request", "invalid_fault"),
    408: ("request_timeout",),
    500: ("internal_error",),
    503: ("unavailable", "too_many_connections"),
}
_ANY: Final[Codes] = {
    **_ALWAYS,
    401: ("invalid_api_key",),
    403: ("api_key_upgrade_required", "origin_not_allowed"),
    429: ("rate_limited", "daily_limit"),
}
_BODY: Final[Codes] = {
    400: ("invalid_json", "invalid_body"),
    413: ("body_too_large",),
    415: ("unsupported_media_type",),
    422: ("invalid_request",),
}
_ASKED: Final = (
    "unsupported_option",
    "external_url_not_allowed",
    "asset_not_found",
    "asset_expired",
    "asset_not_ready",
)


def together(*parts: Codes) -> Codes:
    """Return the refusals of all parts by status, in order."""
    statuses = sorted({status for part in parts for status in part})
    return {status: tuple(code for part in parts for code in part.get(status, ())) for status in statuses}


_CREATE: Final = together(
    _ANY,
    _BODY,
    {
        400: ("invalid_idempotency_key",),
        402: ("insufficient_credits",),
        403: ("credits_required", "wrong_api_key"),
        409: ("idempotency_conflict",),
        422: (*_ASKED, "cost_exceeds_max"),
        429: ("credit_budget_exhausted", "generation_active"),
    },
)


@dataclass(frozen=True, slots=True)
class Operation:
    """One endpoint. `request` names a schema; `links` are those of OpenAPI, for its success."""

    method: str
    path: str
    id: str
    tag: str
    summary: str
    description: str
    reply: type[Reply] | None
    reply_text: str
    refusals: Codes
    status: int = 200
    request: str | None = None
    takes_idempotency_key: bool = False
    takes_generation_id: bool = False
    links: Mapping[str, Mapping[str, object]] = field(default_factory=dict)


_READ_IT: Final = {
    "readGeneration": {
        "operationId": "readGeneration",
        "parameters": {"id": "$response.body#/id"},
        "description": "Poll it, at most once every 10 seconds, until its status is one that does not change.",
    }
}
_COMPLETE_IT: Final = {
    "completeUploads": {
        "operationId": "completeUploads",
        "requestBody": {"asset_ids": ["$response.body#/uploads/0/asset_id"]},
        "description": "Once the bytes have been PUT to the `upload_url`.",
    }
}
_CREATE_TEXT: Final = (
    "Reserves the price and starts the work; a 202 means accepted or replayed, not finished. After a timeout or a "
    "lost connection, send the identical body again with the same Idempotency-Key and API key: it is answered with "
    "the same generation and costs nothing more (Service rules 4.1 to 4.3). Counts in the windows of creates."
)

OPERATIONS: Final = (
    Operation(
        method="get",
        path="/models",
        id="listModels",
        tag="Catalog",
        summary="List the models",
        description="What every model takes and costs. Counts in the windows of reads.",
        reply=ModelList,
        reply_text="All models on offer.",
        refusals=_ANY,
    ),
    Operation(
        method="get",
        path="/credits/balance",
        id="readBalance",
        tag="Credits",
        summary="Read the balance",
        description="What is left to spend; what active generations have reserved is taken off. Counts as a read.",
        reply=Balance,
        reply_text="The account's balance.",
        refusals=_ANY,
    ),
    Operation(
        method="post",
        path="/quotes",
        id="quote",
        tag="Credits",
        summary="Ask what a generation would cost",
        description="Takes the body of a create; nothing is generated or charged. Counts in the windows of reads.",
        reply=Quote,
        reply_text="The price.",
        refusals=together(_ANY, _BODY, {422: _ASKED}),
        request="GenerationRequest",
    ),
    Operation(
        method="post",
        path="/videos",
        id="createVideo",
        tag="Generations",
        summary="Generate a video",
        description=_CREATE_TEXT,
        reply=GenerationRecord,
        reply_text="Accepted, or replayed.",
        refusals=_CREATE,
        status=202,
        request="VideoRequest",
        takes_idempotency_key=True,
        links=_READ_IT,
    ),
    Operation(
        method="post",
        path="/images",
        id="createImage",
        tag="Generations",
        summary="Generate an image",
        description=_CREATE_TEXT,
        reply=GenerationRecord,
        reply_text="Accepted, or replayed.",
        refusals=_CREATE,
        status=202,
        request="ImageRequest",
        takes_idempotency_key=True,
        links=_READ_IT,
    ),
    Operation(
        method="get",
        path="/generations/{id}",
        id="readGeneration",
        tag="Generations",
        summary="Read a generation",
        description=(
            "Only with the API key that created it, and at most once every 10 seconds while it is active. Each read "
            "gives fresh download links while the media are retained, for 14 days. Counts in the windows of reads."
        ),
        reply=GenerationRecord,
        reply_text="The generation, as far as it has come.",
        refusals=together(_ANY, {403: ("wrong_api_key",), 404: ("not_found",)}),
        takes_generation_id=True,
    ),
    Operation(
        method="post",
        path="/uploads",
        id="prepareUploads",
        tag="Uploads",
        summary="Prepare uploads",
        description=(
            "Gives a signed URL and headers for each file. PUT the exact bytes there, with all of the headers, within "
            "five minutes; then complete the upload. JPEG, PNG and WebP, at most 30 MiB each. Counts as a create."
        ),
        reply=UploadList,
        reply_text="Where to send the bytes.",
        refusals=together(_ANY, _BODY, {403: ("credits_required",)}),
        request="UploadRequest",
        links=_COMPLETE_IT,
    ),
    Operation(
        method="post",
        path="/uploads/complete",
        id="completeUploads",
        tag="Uploads",
        summary="Complete uploads",
        description=(
            "Looks at the bytes that have arrived, and gives each image the URL that `inputs` name it by. May be "
            "repeated. Counts as a create."
        ),
        reply=AssetList,
        reply_text="The images, ready to be used.",
        refusals=together(
            _ANY, _BODY, {404: ("asset_not_found",), 422: ("asset_expired", "asset_not_ready", "asset_invalid")}
        ),
        request="CompletionRequest",
    ),
    Operation(
        method="get",
        path="/openapi.json",
        id="readDescription",
        tag="Catalog",
        summary="Read this description",
        description="Public: it needs no API key, and counts in no window of an account.",
        reply=None,
        reply_text="This document.",
        refusals=together(_ALWAYS, {403: ("origin_not_allowed",)}),
    ),
)
