"""Where the traces of runs go: as the configuration says, or OpenTelemetry's own variables."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from batchkiln.config.notifiers import is_web

_ENDPOINTS: Final = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")


@dataclass(frozen=True, slots=True)
class Traces:
    """That traces are wanted. `endpoint` is a collector's base URL; None where OpenTelemetry's variables name it.

    A URL may itself be the right to write there, so it is shown nowhere.
    """

    endpoint: str | None = field(default=None, repr=False)


def traces_of(endpoint: str | None, environ: Mapping[str, str]) -> Traces | None:
    """Return where traces go; None where nobody has named a place, or the variables switch them off.

    The configuration wins over the endpoint of the environment: it speaks of this program, and not of all.
    """
    is_off = environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"
    if is_off or environ.get("OTEL_TRACES_EXPORTER", "").strip().lower() == "none":
        return None
    if endpoint is None and not any(environ.get(name) for name in _ENDPOINTS):
        return None
    return Traces(endpoint)


def checked_endpoint(value: str) -> str:
    """Return a collector's base URL. Raises `ValueError`, without the value."""
    if not is_web(value):
        raise ValueError("the URL of a collector begins with http:// or https:// and a host")
    return value.rstrip("/")
