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
    from batchkiln_service.db.request_log import LoggedRequest, logged_requests
    from batchkiln_service.errors import StateFolderInUseError
    from batchkiln_service.faults.fault_rules import Endpoint, FaultRule, Misbehaviour
    from batchkiln_service.rules.catalog import Model, load_catalog
    from batchkiln_service.server import LocalService

__all__ = [
    "AccountConfig",
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
    "load_catalog",
    "logged_requests",
    "open_account_admin",
    "serve_commands",
]

_NAMES: Final = {
    "clock": ("ManualClock", "ServiceClock"),
    "commands.host_program": ("CommandError", "HostProgram"),
    "commands.serve": ("serve_commands",),
    "config": ("AccountConfig", "KeyConfig", "Limits", "ServiceConfig"),
    "db.account_admin": ("open_account_admin",),
    "db.database": ("DatabaseError",),
    "db.report": ("FaultCount", "Report"),
    "db.request_log": ("LoggedRequest", "logged_requests"),
    "errors": ("StateFolderInUseError",),
    "faults.fault_rules": ("Endpoint", "FaultRule", "Misbehaviour"),
    "rules.catalog": ("Model", "load_catalog"),
    "server": ("LocalService",),
}
_HOMES: Final = {name: module for module, names in _NAMES.items() for name in names}


def __getattr__(name: str) -> Any:  # noqa: ANN401 - any public name; type checkers read the imports above
    """Import a public name on first use."""
    if name in _HOMES:
        from importlib import import_module  # noqa: PLC0415 - not needed until a name is used

        found = getattr(import_module(f"batchkiln_service.{_HOMES[name]}"), name)
        globals()[name] = found
        return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
