"""A complete local implementation of the generation service; it imports nothing else of batchkiln.

What is named here is imported when it is first used: the process that draws needs none of it, and is started by each
run on the embedded service.
"""

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from batchkiln_service.admin_api.report_files import read_report
    from batchkiln_service.clock import ManualClock, RunningClock, ServiceClock
    from batchkiln_service.config import AccountConfig, KeyConfig, Limits, ServiceConfig, load_config
    from batchkiln_service.db.account_admin import AccountAdmin, open_account_admin
    from batchkiln_service.db.credits import CreditBalance
    from batchkiln_service.db.keys import ApiKey, MadeKey
    from batchkiln_service.db.report import FaultCount, Report
    from batchkiln_service.db.request_log_reader import LoggedRequest, logged_requests
    from batchkiln_service.dialects.traits import Dialect
    from batchkiln_service.errors import KeyRefusedError, StateFolderInUseError, sentence_of
    from batchkiln_service.faults import FaultMatch, FaultRule, Faults
    from batchkiln_service.server import LocalService
    from batchkiln_service.transport.listener import stop_on_signals

__all__ = [
    "AccountAdmin",
    "AccountConfig",
    "ApiKey",
    "CreditBalance",
    "Dialect",
    "FaultCount",
    "FaultMatch",
    "FaultRule",
    "Faults",
    "KeyConfig",
    "KeyRefusedError",
    "Limits",
    "LocalService",
    "LoggedRequest",
    "MadeKey",
    "ManualClock",
    "Report",
    "RunningClock",
    "ServiceClock",
    "ServiceConfig",
    "StateFolderInUseError",
    "load_config",
    "logged_requests",
    "open_account_admin",
    "read_report",
    "sentence_of",
    "stop_on_signals",
]

_HOMES: Final = {
    "AccountConfig": "config",
    "ApiKey": "db.keys",
    "AccountAdmin": "db.account_admin",
    "Dialect": "dialects.traits",
    "FaultCount": "db.report",
    "FaultMatch": "faults",
    "FaultRule": "faults",
    "Faults": "faults",
    "ManualClock": "clock",
    "KeyConfig": "config",
    "KeyRefusedError": "errors",
    "Limits": "config",
    "LocalService": "server",
    "LoggedRequest": "db.request_log_reader",
    "MadeKey": "db.keys",
    "CreditBalance": "db.credits",
    "Report": "db.report",
    "RunningClock": "clock",
    "ServiceClock": "clock",
    "ServiceConfig": "config",
    "StateFolderInUseError": "errors",
    "load_config": "config",
    "logged_requests": "db.request_log_reader",
    "open_account_admin": "db.account_admin",
    "read_report": "admin_api.report_files",
    "sentence_of": "errors",
    "stop_on_signals": "transport.listener",
}


def __getattr__(name: str) -> Any:  # noqa: ANN401  whatever the name stands for; type checkers read the imports above
    """Look a name up when it is asked for."""
    if name in _HOMES:
        from importlib import import_module  # noqa: PLC0415  only where something is asked for

        found = getattr(import_module(f"batchkiln_service.{_HOMES[name]}"), name)
        globals()[name] = found
        return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
