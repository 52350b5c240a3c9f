"""A complete local implementation of the generation service; it imports nothing else of batchkiln."""

from batchkiln.service.clock import HandClock, RunningClock, ServiceClock
from batchkiln.service.config import AccountConfig, KeyConfig, Limits, ServiceConfig, load_config
from batchkiln.service.errors import StateFolderInUseError
from batchkiln.service.faults import FaultRule, Faults
from batchkiln.service.server import LocalService, serve

__all__ = [
    "AccountConfig",
    "FaultRule",
    "Faults",
    "HandClock",
    "KeyConfig",
    "Limits",
    "LocalService",
    "RunningClock",
    "ServiceClock",
    "ServiceConfig",
    "StateFolderInUseError",
    "load_config",
    "serve",
]
