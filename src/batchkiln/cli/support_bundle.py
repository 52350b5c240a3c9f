"""The support bundle of one item, for the service's support to find a generation (Service rule 4.5).

Law 8: the bundle contains fingerprints instead of API keys, URLs without signatures, and no folders of this machine.
Each request body is exact unless such a text had to be removed from it; its hash is that of the bytes sent.
"""

import hashlib
import json
import os
import platform
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import asdict

from batchkiln.api import SCHEMA_VERSION, SQLITE_VERSION, RequestRecord
from batchkiln.client import fingerprint
from batchkiln.config import Config
from batchkiln.core.errors import InputError
from batchkiln.core.provider import create_path
from batchkiln.core.secret_texts import mask_keys
from batchkiln.disk_sync import sync_file
from batchkiln.presentation.formatting import plural
from batchkiln.presentation.item_documents import iso
from batchkiln.presentation.redaction import known_keys, redact, strip_query

if TYPE_CHECKING:
    from batchkiln.api.reading import ItemReport

_LIBRARIES: Final = ("batchkiln", "aiohttp", "aiosqlite", "pydantic", "yarl")
_README: Final = """\
{name}: the records of batchkiln at {now}.

{sentences}

Attempts. Each was sent, and resent if necessary, with its idempotency key:

{attempts}

item.json           the item, its attempts with all ids and times, the service's messages, and the whole history
request-N.json      the body of attempt N; its hash in item.json is that of the bytes sent
configuration.json  the service's address, the accounts and their limits
versions.json       the versions of the programs

The bundle contains no API keys and no signed links. A fingerprint that batchkiln computes identifies each API key.
"""


def write_bundle(path: Path, report: "ItemReport", document: Mapping[str, Any], config: Config) -> dict[str, Any]:
    """Write the zip file atomically, and return its path and size.

    Raise `InputError` if the file exists or cannot be written.
    """
    keys = known_keys(config, report.summary.profile)
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        if os.path.lexists(path):
            raise InputError(f"{path} already exists, and is not overwritten; name another file with --bundle")
        try:
            with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                _write(file, _entries(report, document, config, keys), report)
                file.flush()
                sync_file(file.fileno())
            part.replace(path)
        finally:
            part.unlink(missing_ok=True)
    except OSError as fault:
        raise InputError(f"{path}: the bundle cannot be written: {fault.strerror}; name another file") from fault
    return {"path": str(path), "bytes": path.stat().st_size}


def _write(file: Any, entries: Iterator[tuple[str, bytes]], report: "ItemReport") -> None:  # noqa: ANN401  a binary file
    made_at = report.context.now.timetuple()[:6]
    with zipfile.ZipFile(file, "w") as archive:
        for name, content in entries:
            entry = zipfile.ZipInfo(name, date_time=made_at)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o600 << 16
            archive.writestr(entry, content)


def _entries(
    report: "ItemReport", document: Mapping[str, Any], config: Config, keys: Sequence[str]
) -> Iterator[tuple[str, bytes]]:
    """Yield the name and the content of each file in the bundle."""
    bodies = {request.number: _body(request, keys) for request in report.requests}
    requests = {request.number: request for request in report.requests}
    attempts = [
        attempt | _request_document(requests[attempt["number"]], is_exact=bodies[attempt["number"]][1])
        for attempt in document["attempts_made"]
    ]
    item = redact({**document, "attempts_made": attempts, "now": iso(report.context.now)}, keys)
    yield "README.txt", _readme(report, item).encode("utf-8", "replace")
    yield "item.json", _json(item)
    for number, (body, _) in bodies.items():
        yield f"request-{number}.json", body
    yield "configuration.json", _json(redact(_configuration(config, report.summary.profile, keys), keys))
    yield "versions.json", _json(_versions())


def _request_document(request: RequestRecord, *, is_exact: bool) -> dict[str, Any]:
    return {
        "endpoint": f"POST {create_path(is_video=request.is_video)}",
        "body_file": f"request-{request.number}.json",
        "body_bytes": len(request.body),
        "body_sha256": hashlib.sha256(request.body).hexdigest(),
        "body_file_is_exact": is_exact,
    }


def _body(request: RequestRecord, keys: Sequence[str]) -> tuple[bytes, bool]:
    """Return the body of a request without API keys and signatures, and whether that left it unchanged."""
    body = request.body
    with suppress(ValueError, TypeError, KeyError, AttributeError):  # a damaged disk can return any bytes
        for url in [entry["url"] for entry in json.loads(body).get("inputs", ())]:
            written, plain = (json.dumps(link, ensure_ascii=False).encode() for link in (url, strip_query(url)))
            body = body.replace(written, plain)
    body = mask_keys(body.decode("utf-8", "surrogateescape"), keys).encode("utf-8", "surrogateescape")
    return body, body == request.body


def _readme(report: "ItemReport", item: Mapping[str, Any]) -> str:
    attempts = [_attempt_line(attempt) for attempt in item["attempts_made"]]
    return _README.format(
        name=f"{report.detail.job}/{report.detail.item.name} ({report.detail.item.state})",
        now=iso(report.context.now),
        sentences="\n".join(f"{name}: {item[name]}." for name in ("story", "charged")),
        attempts="\n".join(attempts) or "  none: the item was never sent",
    )


def _attempt_line(attempt: Mapping[str, Any]) -> str:
    facts = {
        "Idempotency-Key": attempt["idempotency_key"],
        "generation": attempt["generation_id"] or "not known",
        "last status": attempt["generation_status"] or "not known",
        "recorded at": attempt["recorded_at"],
        "sent": plural(attempt["sends"], "time"),
        "last read": attempt["last_read_at"] or "never",
    }
    return f"  {attempt['number']}. {attempt['endpoint']}\n" + "\n".join(
        f"     {name}: {value}" for name, value in facts.items()
    )


def _configuration(config: Config, name: str, keys: Sequence[str]) -> dict[str, Any]:
    """Return the profile of the item's job, with the sources and fingerprints of its API keys, but no API key."""
    profile = config.profiles.get(name)
    if profile is None:
        return {"profile": name, "configured": False}
    return {
        "profile": name,
        "configured": True,
        "base_url": profile.base_url,
        "embedded": profile.is_embedded,
        "time_scale": profile.time_scale,
        "day_seconds": profile.day.seconds,
        "day_start": iso(profile.day.start),
        "limits": asdict(profile.limits),
        "accounts": [
            {"name": account.name, "keys": [str(source) for source in account.keys]} for account in profile.accounts
        ],
        "key_fingerprints": sorted({fingerprint(key) for key in keys}),
    }


def _versions() -> dict[str, Any]:
    return {name: version(name) for name in _LIBRARIES} | {
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.release()} {platform.machine()}",
        "sqlite": ".".join(map(str, SQLITE_VERSION)),
        "queue_schema": SCHEMA_VERSION,
    }


def _json(value: object) -> bytes:
    return (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode("utf-8", "replace")
