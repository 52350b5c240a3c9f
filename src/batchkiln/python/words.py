"""Errors and reports in the words of a Python program: arguments in place of options, values in place of YAML."""

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterator
from contextlib import aclosing, contextmanager
from functools import wraps
from inspect import isasyncgenfunction, iscoroutinefunction
from typing import Any, Final, TypeVar

from msgspec.structs import replace

from batchkiln.api.changes import FetchReport
from batchkiln.core.errors import BatchkilnError, Diagnostic, InputError
from batchkiln.presentation import python_words
from batchkiln.python.signatures import with_named_fields
from batchkiln.store import CancelReport, RedoReport, RetryReport, ReviewReport

_YAML: Final = {
    "quote it to make it text": "give a text, such as str(value)",
    "quote it if it looks like a number": "give a text, such as str(value)",
    "write a text behind it": "give a text",
}
"""Remedies for a value that a manifest's file has, with those for one that a program gave."""

_Class = TypeVar("_Class", bound=type)
_Call = Callable[..., Coroutine[Any, Any, Any]]


def with_python_words(kind: _Class) -> _Class:
    """Have all public methods of a class, also inherited ones, speak of calls in their errors and reports."""
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
            return _result_in_python_words(await method(*args, **kwargs))

    call.__signature__ = with_named_fields(method)  # type: ignore[attr-defined]  # read by `inspect`
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
    """Name calls and arguments of Python in the text of an error, where it names commands and their options."""
    try:
        yield
    except InputError as error:
        error.mistakes = tuple(map(diagnostic_in_python_words, error.mistakes))
        raise
    except BatchkilnError as error:
        error.args = tuple(python_words.in_python_words(each) if isinstance(each, str) else each for each in error.args)
        raise


def diagnostic_in_python_words(mistake: Diagnostic) -> Diagnostic:
    """Return a mistake, or a warning, with its remedy for a program."""
    remedy = mistake.remedy
    if remedy is not None and mistake.field is not None:
        remedy = _YAML.get(remedy, remedy)
    return replace(
        mistake,
        reason=python_words.in_python_words(mistake.reason),
        remedy=None if remedy is None else python_words.in_python_words(remedy),
    )


def _result_in_python_words(result: object) -> object:
    """Return the result of a method; of items that a report says stay unchanged, the reasons name calls."""
    if not isinstance(result, CancelReport | FetchReport | RedoReport | RetryReport | ReviewReport):
        return result
    skipped = tuple(replace(each, reason=python_words.in_python_words(each.reason)) for each in result.skipped)
    return replace(result, skipped=skipped)
