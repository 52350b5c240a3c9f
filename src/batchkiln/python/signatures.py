"""The signatures that `help`, IPython and the site show of the calls of a queue."""

import inspect
from collections.abc import Callable, Iterator
from typing import Any, get_args, get_type_hints


def with_named_fields(call: Callable[..., Any]) -> inspect.Signature:
    """Return the signature of a call with the fields of its `**header: Unpack[…]` one by one, before its options."""
    signature = inspect.signature(call)
    parameters = list(signature.parameters.values())
    if not parameters or parameters[-1].kind is not inspect.Parameter.VAR_KEYWORD:
        return signature
    (fields,) = get_args(parameters.pop().annotation)
    named = [
        inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            annotation=kind,
            default=inspect.Parameter.empty if name in fields.__required_keys__ else None,
        )
        for name, kind in get_type_hints(fields).items()
    ]
    first = next(at for at, each in enumerate(parameters) if each.kind is inspect.Parameter.KEYWORD_ONLY)
    return signature.replace(parameters=[*parameters[:first], *named, *parameters[first:]])


def without_asyncio(call: Callable[..., Any]) -> inspect.Signature:
    """Return the signature of a call that yields values, as that of an ordinary iterator."""
    signature = inspect.signature(call)
    return signature.replace(return_annotation=Iterator[get_args(signature.return_annotation)[0]])  # type: ignore[misc]
