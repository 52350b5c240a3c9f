"""The progress of reading and storing a large manifest."""

from collections.abc import Callable
from typing import Final

from msgspec.structs import replace

from batchkiln.api.app_context import AppContext, ManifestStep
from batchkiln.cli.command import Common
from batchkiln.cli.output import print_status
from batchkiln.clock import boottime_seconds
from batchkiln.presentation.formatting import format_duration, plural

_TOLD_EVERY_SECONDS: Final = 2


def app_context(common: Common) -> AppContext:
    """Return the context of a command that reads manifests. It prints their progress, unless `-q` is set."""
    context = AppContext(common.queue, common.load_config(), common.profile)
    return context if common.is_quiet else replace(context, on_step=ManifestProgress())


class ManifestProgress:
    """Prints how many items were read or stored, at which rate, and when that ends, every two seconds.

    The end of the reading is that of the file that is read, by its size. Each file and the storing have times of their
    own.
    """

    def __init__(self, seconds: Callable[[], float] = boottime_seconds) -> None:
        """Use a steady clock."""
        self._seconds = seconds
        self._first: ManifestStep | None = None
        self._begun_at = self._told_at = seconds()

    def __call__(self, step: ManifestStep) -> None:
        """Take note of a step."""
        now = self._seconds()
        first = self._first
        if first is None or step.phase != first.phase:
            self._first, self._begun_at = step, now
            return
        passed = now - self._begun_at
        if now - self._told_at < _TOLD_EVERY_SECONDS or passed <= 0 or step.share == 1:
            return
        self._told_at = now
        told = f"{(step.items - first.items) / passed:,.0f} a second"
        if step.share is not None and first.share is not None and step.share > first.share:
            told += f", {format_duration(passed * (1 - step.share) / (step.share - first.share))} left"
        if step.is_reading:
            print_status(f"{plural(step.items, 'item')} read, {told} in {step.phase}")
        else:
            print_status(f"{step.items:,} of {plural(step.total, 'item')} stored, {told}")
