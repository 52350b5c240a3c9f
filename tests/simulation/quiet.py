"""Worlds end in violent ways; this keeps their last words from the terminal."""

import gc
import logging
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import structlog


@contextmanager
def silence() -> Iterator[None]:
    """Say nothing of what the program logs, nor of what is finalised; the dead are finalised before this ends."""
    hook, configuration, level = sys.unraisablehook, structlog.get_config(), logging.root.manager.disable
    sys.unraisablehook = lambda _: None
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings(action="ignore"):
            yield
            gc.collect()
    finally:
        sys.unraisablehook = hook
        structlog.configure(**configuration)
        logging.disable(level)
