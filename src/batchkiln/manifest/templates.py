"""Jinja templates that see only their variables, and whose time and size are bounded.

Jinja's sandbox is narrowed. There are no calls, loops, assignments or attributes of Python objects: a dot looks up a
key of a mapping. Only listed filters and tests exist, and operations whose results can grow fast are limited. Each part
of a template is evaluated at most once, so the template and its variables bound the time and the size of the result.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any, Final, cast

from jinja2 import (
    StrictUndefined,
    TemplateError,
    TemplateSyntaxError,
    Undefined,
    UndefinedError,
    meta as jinja_meta,
    nodes,
)
from jinja2.exceptions import SecurityError
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.visitor import NodeTransformer
from msgspec import Struct

from batchkiln.core.suggestions import closest, did_you_mean
from batchkiln.manifest.filters import FILTERS, JINJA_TESTS, TESTS, TooLarge, bounded_binary

MAX_TEMPLATE_LENGTH: Final = 20_000
MAX_RENDERED_LENGTH: Final = 1 << 20
MAX_DEPTH: Final = 40  # compiling takes Jinja cubic time: two hundred signs before a name took seconds

Variables = Mapping[str, Any]
Render = Callable[[Variables], str]

# What Python or Jinja raise for an expression that is invalid, or invalid with these values.
_FAILURES: Final = (
    *(TemplateError, TooLarge, ArithmeticError, AttributeError, LookupError, TypeError, ValueError),
    *(RecursionError, MemoryError, SyntaxError, AssertionError, NotImplementedError),
)
_ALLOWED: Final = (nodes.Template, nodes.Output, nodes.If, nodes.Expr, nodes.Pair, nodes.Keyword, nodes.Operand)
_REFUSED: Final = (
    *(nodes.Call, nodes.NSRef, nodes.EnvironmentAttribute, nodes.ExtensionAttribute, nodes.ImportedName),
    *(nodes.InternalName, nodes.MarkSafe, nodes.MarkSafeIfAutoescape),
    *(nodes.ContextReference, nodes.DerivedContextReference),
)
_REFUSED_IN_WORDS: Final = {"Call": "a call", "For": "a loop", "Assign": "an assignment"}
_ASSIGNED: Final = "`=` does not compare; equality is `==`"
_UNKNOWN: Final = re.compile(r"No (filter|test) named '(.*)'(?: found)?\.")
_JINJA_NAMES: Final = frozenset({"self", "super", "caller", "loop", "varargs", "kwargs"})


class TemplateFailed(Exception):
    """Raised for a template that cannot be compiled or rendered. `missing` is the undefined variable, if any."""

    def __init__(self, reason: str, *, line: int = 1, missing: str | None = None) -> None:
        self.reason = reason
        self.line = line
        self.missing = missing
        super().__init__(reason)


class Variable(Struct, frozen=True):
    """A bare variable of a template."""

    name: str


class Template(Struct, frozen=True):
    """A compiled text. `names` are the variables that it always needs. `render` raises `TemplateFailed`.

    `parts` are the texts and the variables of a template that has nothing else.
    """

    names: frozenset[str]
    render: Render
    is_constant: bool = False
    parts: tuple[str | Variable, ...] | None = None


class Condition(Struct, frozen=True):
    """A compiled `where` expression. `holds` raises `TemplateFailed`."""

    names: frozenset[str]
    holds: Callable[[Variables], bool]


class _Environment(ImmutableSandboxedEnvironment):
    """The sandbox, in which a dot and brackets look only into mappings, lists and text."""

    intercepted_binops = frozenset({"+", "-", "*", "/", "//", "%", "**"})

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:  # noqa: ANN401, ARG002  Jinja's
        return bounded_binary(operator, left, right)

    def getattr(self, obj: Any, attribute: str) -> Any:  # noqa: ANN401  Jinja's signature
        return self.getitem(obj, attribute)

    def getitem(self, obj: Any, argument: Any) -> Any:  # noqa: ANN401  Jinja's signature
        if isinstance(obj, dict) or (isinstance(obj, (list, tuple, str)) and not isinstance(argument, str)):
            try:
                return obj[argument]
            except (LookupError, TypeError, ValueError):
                pass
        return self.undefined(obj=obj, name=argument)


class _BoundedConcat(NodeTransformer):
    """Replaces `a ~ b` by `[a, b] | join`, which is bounded: the sandbox does not intercept that operator."""

    def visit_Concat(self, node: nodes.Concat) -> nodes.Filter:  # noqa: N802  Jinja's name
        self.generic_visit(node)
        return nodes.Filter(nodes.List(node.nodes), "join", [], [], None, None, lineno=node.lineno)


def text_of(value: object) -> str:
    """Return a variable's value as text, with booleans as in JSON. Raise `TypeError` for null, lists and mappings."""
    match value:
        case str():
            return value
        case Undefined():
            return str(value)  # raises UndefinedError
        case bool():
            return "true" if value else "false"
        case int() | float():
            return str(value)
        case None:
            raise TypeError("the value is null; `| default('…')` replaces it by a text")
        case list() | tuple():
            raise TypeError("the value is a list; `| join(', ')` makes it text")
        case _:
            raise TypeError("the value is not text; name one of its keys")


def _environment() -> _Environment:
    environment = _Environment(undefined=StrictUndefined, finalize=text_of, keep_trailing_newline=True, cache_size=0)
    environment.globals.clear()
    environment.filters.clear()
    environment.filters.update(FILTERS)
    environment.tests = {name: environment.tests[name] for name in JINJA_TESTS} | dict(TESTS)
    return environment


_ENVIRONMENT: Final = _environment()


def compile_template(text: str) -> Template:
    """Compile a text. Raise `TemplateFailed`, with the line within the text (from 1)."""
    if not ("{{" in text or "{%" in text or "{#" in text):
        return Template(frozenset(), lambda _: text, is_constant=True)
    compiled = _compiled(text)
    if isinstance(compiled, TemplateFailed):  # raised as a copy: the cached one would grow by a traceback each time
        raise TemplateFailed(compiled.reason, line=compiled.line, missing=compiled.missing)
    return compiled


@lru_cache(maxsize=256)  # an alias may repeat one text a million times, and compiling takes up to a second
def _compiled(text: str) -> Template | TemplateFailed:
    if len(text) > MAX_TEMPLATE_LENGTH:
        return TemplateFailed(f"a template of {len(text):,} characters; at most {MAX_TEMPLATE_LENGTH:,}")
    try:
        tree = _ENVIRONMENT.parse(text)
        names = _checked_names(tree)
        parts = _parts(tree)
        return Template(names, _renderer(tree) if parts is None else _fast_renderer(parts), parts=parts)
    except _FAILURES as error:
        return _failed(error)


def compile_condition(expression: str) -> Condition:
    """Compile the expression of a `where`. Raise `TemplateFailed`."""
    if len(expression) > MAX_TEMPLATE_LENGTH:
        raise TemplateFailed(f"an expression of {len(expression):,} characters; at most {MAX_TEMPLATE_LENGTH:,}")
    try:
        parser = Parser(_ENVIRONMENT, expression, state="variable")
        parsed: nodes.Expr = parser.parse_expression()
        if parser.stream.current.type == "assign":
            raise TemplateSyntaxError(_ASSIGNED, parser.stream.current.lineno)
        if not parser.stream.eos:
            raise TemplateSyntaxError("the expression ends before the text does", parser.stream.current.lineno)
        names = _checked_names(nodes.Template([nodes.Output([parsed], lineno=1)], lineno=1))
        if (comparison := _fast_comparison(parsed)) is not None:
            return Condition(names, comparison)
        yes = nodes.Output([nodes.TemplateData("true")], lineno=1)
        render = _renderer(nodes.Template([nodes.If(parsed, [yes], [], [], lineno=1)], lineno=1))
    except _FAILURES as error:
        raise _failed(error) from error
    return Condition(names, lambda variables: bool(render(variables)))


def _fast_comparison(expression: nodes.Expr) -> Callable[[Variables], bool] | None:
    """Return a faster function for `variable == constant` and `!=`; None for any other expression."""
    match expression:
        case nodes.Compare(
            expr=nodes.Name(name=name), ops=[nodes.Operand(op="eq" | "ne" as kind, expr=nodes.Const(value=constant))]
        ):
            expected = kind == "eq"
        case _:
            return None

    def holds(variables: Variables) -> bool:
        if name not in variables:
            raise TemplateFailed(f"`{name}` is undefined", missing=name)
        return bool((variables[name] == constant) is expected)

    return holds


def _checked_names(tree: nodes.Template) -> frozenset[str]:
    """Refuse templates with constructs that are not allowed, and return the variables that must exist.

    For a template with a condition or a default, only rendering shows which variables it needs, so none is returned.
    """
    pending: list[tuple[nodes.Node, int]] = [(child, 1) for child in tree.iter_child_nodes()]
    while pending:
        node, depth = pending.pop()
        if depth > MAX_DEPTH:
            raise TemplateSyntaxError(f"more than {MAX_DEPTH} levels deep", node.lineno)
        pending.extend((child, depth + 1) for child in node.iter_child_nodes())
        if isinstance(node, _REFUSED) or not isinstance(node, _ALLOWED):
            kind = type(node).__name__
            reason = f"{_REFUSED_IN_WORDS.get(kind, f'`{kind.lower()}`')} is not available in a manifest's templates"
            raise TemplateSyntaxError(f"{reason}: only variables, filters, `if` and comparisons are", node.lineno)
        if isinstance(node, nodes.Name) and (node.name in _JINJA_NAMES or node.name.startswith("__")):
            raise TemplateSyntaxError(
                f"`{node.name}` is not a variable; a column of that name is col['{node.name}']", node.lineno
            )
    tree.set_environment(_ENVIRONMENT)
    is_conditional = any(tree.find_all((nodes.Test, nodes.If, nodes.CondExpr)))
    if is_conditional or any(one.name in {"default", "d"} for one in tree.find_all(nodes.Filter)):
        return frozenset()
    return frozenset(jinja_meta.find_undeclared_variables(tree))


def _renderer(tree: nodes.Template) -> Render:
    tree = _BoundedConcat().visit(tree)
    tree.set_environment(_ENVIRONMENT)
    root = _ENVIRONMENT.from_string(tree).root_render_func

    def render(variables: Variables) -> str:
        try:
            return _bounded(root(Context(_ENVIRONMENT, cast("dict[str, Any]", variables), None, {})))
        except _FAILURES as error:
            raise _failed(error) from error

    return render


def _parts(tree: nodes.Template) -> tuple[str | Variable, ...] | None:
    """Return the texts and the variables of a template that has nothing else; None for any other template."""
    parts = [part for output in tree.body for part in getattr(output, "nodes", [None])]
    if not all(isinstance(part, (nodes.TemplateData, nodes.Name)) for part in parts):
        return None
    return tuple(part.data if isinstance(part, nodes.TemplateData) else Variable(part.name) for part in parts)


def pattern_of(parts: Iterable[str | Variable]) -> str:
    """Return a pattern for the operator `%`, which takes the values of the variables."""
    return "".join("%s" if isinstance(part, Variable) else part.replace("%", "%%") for part in parts)


def _fast_renderer(parts: tuple[str | Variable, ...]) -> Render:
    """Return a function for a template of texts and variables that is faster than Jinja's."""
    names = [part.name for part in parts if isinstance(part, Variable)]
    if len(names) == 1:
        texts = [part if isinstance(part, str) else None for part in parts]
        at = texts.index(None)
        return _single_renderer("".join(filter(None, texts[:at])), names[0], "".join(filter(None, texts[at:])))
    pattern = pattern_of(parts)

    def render(variables: Variables) -> str:
        values = [value if type(value := variables.get(name)) is str else _lookup(variables, name) for name in names]
        if sum(map(len, values)) > MAX_RENDERED_LENGTH:
            raise _too_long()
        return pattern % tuple(values)

    return render


def _single_renderer(before: str, name: str, after: str) -> Render:
    def render(variables: Variables) -> str:
        value = variables.get(name)
        kind = type(value)
        return f"{before}{value if kind is str or kind is int else _lookup(variables, name)}{after}"

    return render


def _lookup(variables: Variables, name: str) -> str:
    if name not in variables:
        raise TemplateFailed(f"`{name}` is undefined", missing=name)
    try:
        return text_of(variables[name])
    except TypeError as error:
        raise TemplateFailed(f"`{name}`: {error}") from error


def _bounded(parts: Iterable[str]) -> str:
    """Join the parts of a rendered template. Raise `TemplateFailed` as soon as they are too long."""
    texts, length = [], 0
    for part in parts:
        length += len(part)
        if length > MAX_RENDERED_LENGTH:
            raise _too_long()
        texts.append(part)
    return "".join(texts)


def _too_long() -> TemplateFailed:
    return TemplateFailed(f"the result has more than {MAX_RENDERED_LENGTH:,} characters")


def _failed(error: BaseException) -> TemplateFailed:
    if isinstance(error, UndefinedError):
        if "jinja2." in str(error):  # an attribute of something undefined; its text names Jinja's own classes
            return TemplateFailed("the template asks for a part of something that is undefined")
        name = str(error).removesuffix(" is undefined")
        is_name = name != str(error) and name.startswith("'")
        return TemplateFailed(str(error).replace("'", "`"), missing=name.strip("'") if is_name else None)
    if isinstance(error, TemplateSyntaxError):
        return TemplateFailed(f"the template is not valid: {_in_words(error.message or '')}", line=error.lineno)
    if isinstance(error, SecurityError):
        return TemplateFailed(f"the template uses something that is not allowed: {error}")
    if isinstance(error, (RecursionError, MemoryError, SyntaxError, AssertionError)):
        return TemplateFailed("the template is too deeply nested")
    return TemplateFailed(f"the template fails: {_in_words(str(error))}")  # an unknown test of an `if` is found late


def _in_words(message: str) -> str:
    """Return Jinja's message about a mistake, or the program's own where it can name the remedy."""
    if message.endswith("got '='"):
        return _ASSIGNED
    if (unknown := _UNKNOWN.fullmatch(message)) is None:
        return message
    kind, name = unknown.groups()
    known = sorted(FILTERS) if kind == "filter" else sorted(filter(str.isidentifier, {*JINJA_TESTS, *TESTS}))
    remedy = did_you_mean(closest(name, known)) or f"there are {', '.join(known)}"
    return f"there is no {kind} `{name}`; {remedy}"
