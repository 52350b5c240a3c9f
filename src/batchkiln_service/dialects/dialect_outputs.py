"""Output files of a dialect: several outputs, other containers, other headers."""

from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

from aiohttp import hdrs, web

from batchkiln_service.context import Context
from batchkiln_service.dialects.sample_files import extension_of, media_type_of, small_file
from batchkiln_service.dialects.traits import Dialect
from batchkiln_service.storage.file_response import FileReply
from batchkiln_service.storage.ranges import FileFacts, decide

_TRAITS: Final = frozenset(
    {"image_file", "video_file", "outputs", "media_type", "file_etag", "file_ranges", "file_length"}
)
_OWN: Final = frozenset({"png", "jpg", "mp4"})
_OF_PARTS: Final = frozenset({206, 304, 412, 416})
POSTER: Final = "jpg"


def outputs_of(dialect: Dialect, context: Context, own: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the outputs of a record, made from the service's one output, if any."""
    if not own:
        return []
    main = dict(own[0])
    extension = _extension(main["url"])
    is_video = main["type"] == "video"
    wanted = extension_of(dialect, extension)
    if wanted != extension:
        main["url"] = _signed(context, main["url"], f"0.{wanted}")
    made = [main]
    if dialect["outputs"] == "two":
        made.append(main | {"url": _signed(context, main["url"], f"1.{wanted}")})
    elif dialect["outputs"] in {"poster", "poster_first"} and is_video:
        poster = {
            "type": "image",
            "url": _signed(context, main["url"], f"1.{POSTER}"),
            "expires_at": main["expires_at"],
        }
        made = [poster, main] if dialect["outputs"] == "poster_first" else [main, poster]
    is_turned = dialect["outputs_order"] == "changing" and sha256(main["url"].encode()).digest()[0] % 2
    return made[::-1] if is_turned else made


async def send_output(dialect: Dialect, request: web.Request, response: web.StreamResponse) -> web.StreamResponse:
    """Send the file of a link with the dialect's headers."""
    if response.prepared or _TRAITS.isdisjoint(dialect.unlike_plain):
        return response
    number, _, extension = request.match_info["file_name"].partition(".")
    is_own = number == "0" and extension in _OWN
    if isinstance(response, FileReply) and is_own:
        return _sent(dialect, request, response.file.read(0, response.facts.size_bytes), extension)
    # The range headers of the original reply are about the original file.
    if isinstance(response, FileReply) or (response.status in _OF_PARTS and not is_own):
        return _sent(dialect, request, small_file(extension, int(number)), extension)
    return response


def _sent(dialect: Dialect, request: web.Request, content: bytes, extension: str) -> web.StreamResponse:
    tag = f'"{sha256(content).hexdigest()[:32]}"'
    headers = _headers(dialect, extension, tag)
    response = web.Response(headers=headers, body=content)
    if _takes_ranges(dialect, request):
        sending = decide(request.method, request.headers, FileFacts(len(content), tag, 0))
        if sending.status == web.HTTPRequestRangeNotSatisfiable.status_code:
            return web.Response(status=416, headers=headers | {hdrs.CONTENT_RANGE: f"bytes */{len(content)}"})
        if sending.has_bytes:
            headers |= sending.content_range(len(content))
            response = web.Response(status=sending.status, headers=headers, body=content[sending.start : sending.stop])
    if dialect["media_type"] == "none":
        response.headers.popall(hdrs.CONTENT_TYPE, None)
    if dialect["file_length"] == "chunked" and response.status == 200:  # noqa: PLR2004
        response.headers.popall(hdrs.CONTENT_LENGTH, None)
        response.enable_chunked_encoding()
    return response


def _headers(dialect: Dialect, extension: str, tag: str) -> dict[str, str]:
    media_type = {"right": media_type_of(extension), "octets": "application/octet-stream"}.get(dialect["media_type"])
    shown = {"strong": tag, "weak": f"W/{tag}"}.get(dialect["file_etag"])
    ranges = "bytes" if dialect["file_ranges"] == "yes" else None
    described_as = {hdrs.CONTENT_TYPE: media_type, hdrs.ETAG: shown, hdrs.ACCEPT_RANGES: ranges}
    return {name: value for name, value in described_as.items() if value is not None}


def _takes_ranges(dialect: Dialect, request: web.Request) -> bool:
    """Return whether a byte range may be sent: If-Range, if present, requires a strong ETag (RFC 9110, 13.1.5)."""
    is_safe = hdrs.IF_RANGE not in request.headers or dialect["file_etag"] == "strong"
    return dialect["file_ranges"] == "yes" and is_safe


def _extension(url: str) -> str:
    return urlsplit(url).path.rpartition(".")[2]


def _signed(context: Context, url: str, file_name: str) -> str:
    """Return a link to another file of the same generation, with the same expiry."""
    parts = urlsplit(url)
    expires_at_ms = int(parse_qs(parts.query)["expires"][0])
    folder = parts.path.rpartition("/")[0]
    return f"{parts.scheme}://{parts.netloc}" + context.links.sign("GET", f"{folder}/{file_name}", expires_at_ms)
