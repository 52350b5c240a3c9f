"""Every way in which the API refuses: statuses, their codes, and an example of what is said. Service section 7.

The interface description is made from it; a test compares it with what the service raises.
"""

from collections.abc import Mapping
from typing import Final

STATUSES: Final[Mapping[int, str]] = {
    400: "What was sent is no JSON, or a header is malformed.",
    401: "The API key is missing, unknown or revoked.",
    402: "The account has too few credits left.",
    403: "The account or the caller may not do this; as text/html: the edge firewall, before the API was reached.",
    404: "There is no such thing, or it belongs to another account.",
    405: "The path has no such method; the header Allow tells which it has.",
    408: "The head or the body of the request took too long to arrive.",
    409: "The Idempotency-Key was used before, with another request.",
    413: "The body is too large.",
    415: "The body is not declared to be JSON.",
    422: "A field is malformed, or asks for what the model does not offer; nothing was created.",
    429: "A limit is reached; the header Retry-After tells how many seconds to wait.",
    500: "The service failed unexpectedly.",
    503: "The service cannot answer just now: send the identical request again, with the same Idempotency-Key.",
}
CODES: Final[Mapping[int, Mapping[str, str]]] = {
    400: {
        "bad_request": "this is not HTTP that can be read",
        "invalid_fault": "header X-Batchkiln-Fault: there is no such fault",
        "invalid_json": "the body is not JSON: unexpected end of data, at character 17",
        "invalid_body": "the body cannot be read: check its length and encoding",
        "invalid_idempotency_key": "Idempotency-Key needs 16 to 128 letters, digits, '_' or '-'",
    },
    401: {"invalid_api_key": "the header Authorization has to hold a valid API key, as Bearer"},
    402: {"insufficient_credits": "the quote is 50 credits, 12 remain"},
    403: {
        "api_key_upgrade_required": "this key is older than the API; make a new one",
        "origin_not_allowed": "calls must come from a server, without an Origin header",
        "credits_required": "generation needs a subscription or remaining purchased credits",
        "wrong_api_key": "poll with the API key that created the generation",
    },
    404: {
        "not_found": "there is no such generation",
        "asset_not_found": "asset 'ast_1f2e3d4c5b6a79881f2e3d4c' is not known to this account",
    },
    405: {"method_not_allowed": "Method Not Allowed"},
    408: {"request_timeout": "the body did not arrive in 30 seconds"},
    409: {"idempotency_conflict": "this Idempotency-Key was used with another request body"},
    413: {"body_too_large": "a body has at most 1048576 bytes"},
    415: {"unsupported_media_type": "send Content-Type: application/json"},
    422: {
        "invalid_request": "files[2].type must be one of image/jpeg, image/png, image/webp, not 'image/gif'",
        "unsupported_option": "parameters.duration_seconds 7 is not supported by alpha-2.5-lite here; allowed: 2, 3, 4",
        "cost_exceeds_max": "the quote is 50 credits, max_cost_credits is 40",
        "external_url_not_allowed": "inputs[0].url must be a URL returned by the upload flow",
        "asset_not_found": "inputs[0].url is not an asset of this account",
        "asset_expired": "inputs[0].url has expired; upload the image again",
        "asset_not_ready": "inputs[0].url is not ready; complete its upload first",
        "asset_invalid": "asset 'ast_1f2e3d4c5b6a79881f2e3d4c' is not a readable image/png",
    },
    429: {
        "rate_limited": "too many requests in this minute",
        "daily_limit": "the account's 1000 requests of this day are used up",
        "credit_budget_exhausted": "the quote is 50 credits, 20 of 2000 remain this day",
        "generation_active": "1 of 1 active generations",
    },
    500: {"internal_error": "the service failed unexpectedly"},
    503: {
        "unavailable": "try again later",
        "too_many_connections": "the service has too many connections",
    },
}
