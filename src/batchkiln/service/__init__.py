"""A complete local implementation of the generation service; it imports nothing else of batchkiln."""

from batchkiln.service.books.credits import Purse
from batchkiln.service.books.desk import Desk, open_desk
from batchkiln.service.books.keys import ApiKey, MadeKey
from batchkiln.service.books.log_reading import LoggedRequest, logged_requests
from batchkiln.service.books.report import FaultCount, Report
from batchkiln.service.clock import HandClock, RunningClock, ServiceClock
from batchkiln.service.config import AccountConfig, KeyConfig, Limits, ServiceConfig, load_config
from batchkiln.service.errors import KeyRefusedError, StateFolderInUseError, sentence_of
from batchkiln.service.faults import FaultMatch, FaultRule, Faults
from batchkiln.service.operator_port.reporting import read_report
from batchkiln.service.server import LocalService
from batchkiln.service.transport.listening import stop_on_signals

__all__ = [
    "AccountConfig",
    "ApiKey",
    "Desk",
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
