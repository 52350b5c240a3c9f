"""Silence the logs and finalisers of simulated processes that are killed."""

import gc
import logging
import multiprocessing
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.pool import Pool

import structlog


@contextmanager
def silence() -> Iterator[None]:
    """Discard logs, warnings and errors of finalisers; collect garbage before the end."""
    hook, configuration, level = sys.unraisablehook, structlog.get_config(), logging.root.manager.disable
    try:
        with warnings.catch_warnings():
            _fall_silent()
            yield
            gc.collect()
    finally:
        sys.unraisablehook = hook
        structlog.configure(**configuration)
        logging.disable(level)


def silent_pool(processes: int) -> Pool:
    """Return a pool of processes that log nothing."""
    return multiprocessing.get_context("fork").Pool(processes, _begin_worker)


def _begin_worker() -> None:
    _fall_silent()
    gc.freeze()  # what was imported is never garbage, and shall not be looked at again and again


def _fall_silent() -> None:
    sys.unraisablehook = lambda _: None
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")
