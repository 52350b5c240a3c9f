"""A complete local implementation of the generation service; it imports nothing else of batchkiln.

What is named here is imported when it is first used: the process that draws needs none of it, and is started by each
run on the embedded service.
"""

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from batchkiln_service.books.credits import Purse
    from batchkiln_service.books.desk import Desk, open_desk
    from batchkiln_service.books.keys import ApiKey, MadeKey
    from batchkiln_service.books.log_reading import LoggedRequest, logged_requests
    from batchkiln_service.books.report import FaultCount, Report
    from batchkiln_service.clock import HandClock, RunningClock, ServiceClock
    from batchkiln_service.config import AccountConfig, KeyConfig, Limits, ServiceConfig, load_config
    from batchkiln_service.dialects.traits import Dialect
    from batchkiln_service.errors import KeyRefusedError, StateFolderInUseError, sentence_of
    from batchkiln_service.faults import FaultMatch, FaultRule, Faults
    from batchkiln_service.operator_port.reporting import read_report
    from batchkiln_service.server import LocalService
    from batchkiln_service.transport.listening import stop_on_signals

__all__ = [
    "AccountConfig",
    "ApiKey",
    "Desk",
    "Dialect",
    "FaultCount",
    "FaultMatch",
    "FaultRule",
    "Faults",
    "HandClock",
    "KeyConfig",
    "KeyRefusedError",
    "Limits",
    "LocalService",
    "LoggedRequest",
    "MadeKey",
    "Purse",
    "Report",
    "RunningClock",
    "ServiceClock",
    "ServiceConfig",
    "StateFolderInUseError",
    "load_config",
    "logged_requests",
    "open_desk",
    "read_report",
    "sentence_of",
    "stop_on_signals",
]

_HOMES: Final = {
    "AccountConfig": "config",
    "ApiKey": "books.keys",
    "Desk": "books.desk",
    "Dialect": "dialects.traits",
    "FaultCount": "books.report",
    "FaultMatch": "faults",
    "FaultRule": "faults",
    "Faults": "faults",
    "HandClock": "clock",
    "KeyConfig": "config",
    "KeyRefusedError": "errors",
    "Limits": "config",
    "LocalService": "server",
    "LoggedRequest": "books.log_reading",
    "MadeKey": "books.keys",
    "Purse": "books.credits",
    "Report": "books.report",
    "RunningClock": "clock",
    "ServiceClock": "clock",
    "ServiceConfig": "config",
    "StateFolderInUseError": "errors",
    "load_config": "config",
    "logged_requests": "books.log_reading",
    "open_desk": "books.desk",
    "read_report": "operator_port.reporting",
    "sentence_of": "errors",
    "stop_on_signals": "transport.listening",
}


def __getattr__(name: str) -> Any:  # noqa: ANN401  whatever the name stands for; type checkers read the imports above
    """Look a name up when it is asked for."""
    if name in _HOMES:
        from importlib import import_module  # noqa: PLC0415  only where something is asked for

        found = getattr(import_module(f"batchkiln_service.{_HOMES[name]}"), name)
        globals()[name] = found
        return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
