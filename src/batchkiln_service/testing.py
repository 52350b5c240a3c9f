"""The service for tests of a client, in a thread of the test's process, with blocking methods."""

import asyncio
import tempfile
import threading
from collections.abc import Coroutine, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar

from pydantic import ValidationError

from batchkiln_service.config import AccountConfig, ServiceConfig, mistakes_of
from batchkiln_service.db.report import Report
from batchkiln_service.errors import mistakes_in
from batchkiln_service.faults.fault_rules import Endpoint, FaultRule, Misbehaviour
from batchkiln_service.rules.lifecycle import Outcome
from batchkiln_service.server import LocalService

Result = TypeVar("Result")
API_KEY: Final = "test-key"


@dataclass(frozen=True, slots=True)
class RunningService:
    """A running service: its base URL, an API key of its first account, and the operator's functions.

    Methods raise `ApiError`, as the operator's port answers.
    """

    base_url: str
    api_key: str
    _service: LocalService = field(repr=False)
    _loop: asyncio.AbstractEventLoop = field(repr=False)

    @property
    def environ(self) -> dict[str, str]:
        """The environment variables by which `batchkiln` uses this service."""
        return {
            "BATCHKILN_BASE_URL": self.base_url,
            "BATCHKILN_API_KEY": self.api_key,
            "BATCHKILN_TIME_SCALE": f"{self._service.config.time_scale:g}",
        }

    def advance(self, seconds: float) -> None:
        """Advance the service's time, after the files of pending generations are drawn."""
        self._run(self._service.advance(seconds))

    def reset(self) -> None:
        """Start over: no generations, uploads and requests; initial credits and configured faults."""
        self._run(self._service.reset())

    def add_fault(self, kind: Misbehaviour, endpoint: Endpoint = "any", **settings: Any) -> None:  # noqa: ANN401 - fields
        """Add a fault rule with the fields of `faults` in the configuration.

        Raise ValueError for an invalid one, with the message of `POST /faults`.
        """
        try:
            rule = FaultRule.model_validate({"kind": kind, "endpoint": endpoint, **settings})
        except ValidationError as error:
            raise ValueError(mistakes_in(error, FaultRule.model_fields)) from None
        self._service.faults.add_rule(rule)

    def clear_faults(self) -> None:
        """Remove all fault rules."""
        self._service.faults.clear()

    def end_generation(self, generation_id: str, outcome: Outcome = "success") -> None:
        """End a generation that stays pending, as the service's support would."""
        self._run(self._service.end_pending_generation(generation_id, outcome))

    def report(self) -> Report:
        """Return the report on the clients' requests, with its verdict."""
        return self._run(self._service.report())

    def assert_ok(self) -> None:
        """Raise AssertionError with the violations if a client broke a rule of the service."""
        if violations := self.report().violations:
            told = "; ".join(f"{each.rule}: {each.meaning} ({each.count:,})" for each in violations)
            raise AssertionError(f"the client broke rules of the service: {told}")

    def _run(self, work: Coroutine[Any, Any, Result]) -> Result:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()


@contextmanager
def running_service(**settings: Any) -> Iterator[RunningService]:  # noqa: ANN401 - of the configuration
    """Run a service whose `ServiceConfig` has these fields. Without `state_dir`, its folder is temporary.

    Without `accounts`, the account `main` has the API key `test-key`. Without `seed`, the seed is 0, so that ids,
    durations and files repeat. Raise as `LocalService` does, and ValueError that names each invalid setting.
    """
    with ExitStack() as stack:
        if "state_dir" not in settings:
            settings["state_dir"] = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="batchkiln-service-")))
        defaults = {"accounts": [AccountConfig(name="main", keys=(API_KEY,))], "seed": 0}
        try:
            config = ServiceConfig.model_validate(defaults | settings)
        except ValidationError as error:
            raise ValueError("; ".join(mistakes_of(error))) from None
        service = LocalService(config)
        loop = stack.enter_context(_loop_in_thread())
        asyncio.run_coroutine_threadsafe(service.__aenter__(), loop).result()
        stack.callback(lambda: asyncio.run_coroutine_threadsafe(service.__aexit__(None, None, None), loop).result())
        yield RunningService(service.base_url, service.api_key(service.config.accounts[0].name), service, loop)


@contextmanager
def _loop_in_thread() -> Iterator[asyncio.AbstractEventLoop]:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="batchkiln-service", daemon=True)
    thread.start()
    try:
        yield loop
    finally:
        asyncio.run_coroutine_threadsafe(loop.shutdown_default_executor(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
