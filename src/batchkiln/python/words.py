"""The errors of a Python program in its own words: arguments in place of options, values in place of YAML."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Final

from batchkiln.core.errors import Diagnostic, InputError
from batchkiln.presentation import python_words

_YAML: Final = {
    "quote it to make it text": "give a text, such as str(value)",
    "quote it if it looks like a number": "give a text, such as str(value)",
    "write a text behind it": "give a text",
}
"""Remedies for a value that a manifest's file has, with those for one that a program gave."""


@contextmanager
def in_python_words() -> Iterator[None]:
    """Name arguments of Python in the remedies of an `InputError`, where they name options of the commands."""
    try:
        yield
    except InputError as error:
        if type(error) is not InputError:
            raise
        told = [_in_python_words(mistake) for mistake in error.mistakes]
        raise InputError(told, omitted=error.omitted, is_partial=error.is_partial) from None


def _in_python_words(mistake: Diagnostic) -> Diagnostic:
    remedy = mistake.remedy
    if remedy is not None and mistake.field is not None:
        remedy = _YAML.get(remedy, remedy)
    return replace(
        mistake,
        reason=python_words.in_python_words(mistake.reason),
        remedy=None if remedy is None else python_words.in_python_words(remedy),
    )
