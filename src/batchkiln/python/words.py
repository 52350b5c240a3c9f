"""The errors of a Python program in its own words: arguments in place of options, values in place of YAML."""

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterator
from contextlib import aclosing, contextmanager
from dataclasses import replace
from functools import wraps
from inspect import isasyncgenfunction, iscoroutinefunction
from typing import Any, Final, TypeVar

from batchkiln.core.errors import Diagnostic, InputError
from batchkiln.presentation import python_words

_YAML: Final = {
    "quote it to make it text": "give a text, such as str(value)",
    "quote it if it looks like a number": "give a text, such as str(value)",
    "write a text behind it": "give a text",
}
"""Remedies for a value that a manifest's file has, with those for one that a program gave."""

_Class = TypeVar("_Class", bound=type)
_Call = Callable[..., Coroutine[Any, Any, Any]]


def with_errors_in_python_words(kind: _Class) -> _Class:
    """Have all public methods of a class, also inherited ones, raise their errors in Python's words."""
    for name in dir(kind):
        method = getattr(kind, name)
        if not name.startswith("_") and iscoroutinefunction(method):
            setattr(kind, name, _calling(method))
        elif not name.startswith("_") and isasyncgenfunction(method):
            setattr(kind, name, _iterating(method))
    return kind


def _calling(method: _Call) -> _Call:
    @wraps(method)
    async def call(*args: object, **kwargs: object) -> object:
        with in_python_words():
            return await method(*args, **kwargs)

    return call


def _iterating(method: Callable[..., AsyncGenerator[Any]]) -> Callable[..., AsyncIterator[Any]]:
    @wraps(method)
    async def iterate(*args: object, **kwargs: object) -> AsyncIterator[Any]:
        with in_python_words():
            async with aclosing(method(*args, **kwargs)) as found:
                async for each in found:
                    yield each

    return iterate


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
