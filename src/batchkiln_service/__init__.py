"""A complete local implementation of the generation service.

This module is the public entry: `batchkiln` imports nothing else of the package, which imports nothing of `batchkiln`.
Names are imported on first use, because the process that renders media starts often and needs none of them.
"""

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from batchkiln_service.clock import ManualClock, ServiceClock
    from batchkiln_service.commands.host_program import CommandError, HostProgram
    from batchkiln_service.commands.serve import serve_commands
    from batchkiln_service.config import AccountConfig, KeyConfig, Limits, ServiceConfig
    from batchkiln_service.db.account_admin import open_account_admin
    from batchkiln_service.db.database import DatabaseError
    from batchkiln_service.db.report import FaultCount, Report
    from batchkiln_service.db.request_log_reader import LoggedRequest, logged_requests
    from batchkiln_service.errors import ApiError, StateFolderInUseError
    from batchkiln_service.faults import Endpoint, FaultRule, Misbehaviour
    from batchkiln_service.rules.catalog import Model, load_catalog
    from batchkiln_service.rules.validation import check_request
    from batchkiln_service.server import LocalService

__all__ = [
    "AccountConfig",
    "ApiError",
    "CommandError",
    "DatabaseError",
    "Endpoint",
    "FaultCount",
    "FaultRule",
    "HostProgram",
    "KeyConfig",
    "Limits",
    "LocalService",
    "LoggedRequest",
    "ManualClock",
    "Misbehaviour",
    "Model",
    "Report",
    "ServiceClock",
    "ServiceConfig",
    "StateFolderInUseError",
    "check_request",
    "load_catalog",
    "logged_requests",
    "open_account_admin",
    "serve_commands",
]

_HOMES: Final = {
    "AccountConfig": "config",
    "ApiError": "errors",
    "CommandError": "commands.host_program",
    "DatabaseError": "db.database",
    "Endpoint": "faults",
    "FaultCount": "db.report",
    "FaultRule": "faults",
    "HostProgram": "commands.host_program",
    "KeyConfig": "config",
    "Limits": "config",
    "LocalService": "server",
    "LoggedRequest": "db.request_log_reader",
    "ManualClock": "clock",
    "Misbehaviour": "faults",
    "Model": "rules.catalog",
    "Report": "db.report",
    "ServiceClock": "clock",
    "ServiceConfig": "config",
    "StateFolderInUseError": "errors",
    "check_request": "rules.validation",
    "load_catalog": "rules.catalog",
    "logged_requests": "db.request_log_reader",
    "open_account_admin": "db.account_admin",
    "serve_commands": "commands.serve",
}


def __getattr__(name: str) -> Any:  # noqa: ANN401 - any public name; type checkers read the imports above
    """Import a public name on first use."""
    if name in _HOMES:
        from importlib import import_module  # noqa: PLC0415 - not needed until a name is used

        found = getattr(import_module(f"batchkiln_service.{_HOMES[name]}"), name)
        globals()[name] = found
        return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
