"""A complete local implementation of the generation service; it imports nothing else of batchkiln."""

from batchkiln.service.books.keys import ApiKey, MadeKey
from batchkiln.service.books.opening import KeyDesk, key_desk
from batchkiln.service.books.report import Report
from batchkiln.service.clock import HandClock, RunningClock, ServiceClock
from batchkiln.service.config import AccountConfig, KeyConfig, Limits, ServiceConfig, load_config
from batchkiln.service.errors import KeyRefusedError, StateFolderInUseError
from batchkiln.service.faults import FaultMatch, FaultRule, Faults
from batchkiln.service.server import LocalService, serve
from batchkiln.service.transport.listening import stop_on_signals

__all__ = [
    "AccountConfig",
    "ApiKey",
    "FaultMatch",
    "FaultRule",
    "Faults",
    "HandClock",
    "KeyConfig",
    "KeyDesk",
    "KeyRefusedError",
    "Limits",
    "LocalService",
    "MadeKey",
    "Report",
    "RunningClock",
    "ServiceClock",
    "ServiceConfig",
    "StateFolderInUseError",
    "key_desk",
    "load_config",
    "serve",
    "stop_on_signals",
]
