"""Worlds end in violent ways; this keeps their last words from the terminal."""

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
    """Say nothing of what the program logs, nor of what is finalised; the dead are finalised before this ends."""
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
    """Return a pool of processes in which nobody ever says anything."""
    return multiprocessing.get_context("fork").Pool(processes, _begin_worker)


def _begin_worker() -> None:
    _fall_silent()
    gc.freeze()  # what was imported is never garbage, and shall not be looked at again and again


def _fall_silent() -> None:
    sys.unraisablehook = lambda _: None
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")
