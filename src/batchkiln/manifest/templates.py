"""Jinja templates that can reach nothing but their variables, and cannot run long or grow without bound.

Beside the sandbox: no calls, no loops, no assignments and no attributes of Python objects (a dot looks into a
mapping), a short list of filters, and bounds on what multiplies. Each part of a template is thus evaluated at most
once, so its time and size are bounded by the template and its variables.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, cast

from jinja2 import StrictUndefined, TemplateError, TemplateSyntaxError, Undefined, UndefinedError, nodes
from jinja2 import meta as jinja_meta
from jinja2.compiler import CodeGenerator, Frame
from jinja2.exceptions import SecurityError
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment

from batchkiln.manifest.filters import FILTERS, OWN_TESTS, TESTS, TooLarge, bounded_binary, joined_texts

MAX_TEMPLATE_LENGTH: Final = 20_000
MAX_RENDERED_LENGTH: Final = 1 << 20
MAX_DEPTH: Final = 40  # Jinja takes the cube of it to compile: two hundred signs before a name took seconds

Variables = Mapping[str, Any]

# What Python or Jinja may raise for an expression that makes no sense with these values.
_FAILURES: Final = (
    TemplateError,
    TooLarge,
    ArithmeticError,
    AttributeError,
    LookupError,
    TypeError,
    ValueError,
    RecursionError,
    MemoryError,
    SyntaxError,
    AssertionError,
    NotImplementedError,
)
_ALLOWED: Final = (
    nodes.Template,
    nodes.Output,
    nodes.If,
    nodes.Expr,
    nodes.Pair,
    nodes.Keyword,
    nodes.Operand,
)
_REFUSED: Final = (
    nodes.Call,
    nodes.NSRef,
    nodes.EnvironmentAttribute,
    nodes.ExtensionAttribute,
    nodes.ImportedName,
    nodes.InternalName,
    nodes.MarkSafe,
    nodes.MarkSafeIfAutoescape,
    nodes.ContextReference,
    nodes.DerivedContextReference,
)
_JINJA_NAMES: Final = frozenset({"self", "super", "caller", "loop", "varargs", "kwargs"})


class TemplateFailed(Exception):
    """A template that cannot be compiled or rendered. `missing` is the undefined variable, where that is the reason."""

    def __init__(self, reason: str, *, line: int = 1, missing: str | None = None) -> None:
        self.reason = reason
        self.line = line
        self.missing = missing
        super().__init__(reason)


class _BoundedCode(CodeGenerator):
    """Jinja's own, but that `~` asks the environment: a sandbox does not see that operator."""

    def visit_Concat(self, node: nodes.Concat, frame: Frame) -> None:  # noqa: N802  Jinja's name
        """Write the joining of texts."""
        self.write("environment.joined_texts((")
        for part in node.nodes:
            self.visit(part, frame)
            self.write(", ")
        self.write("))")


class _Environment(ImmutableSandboxedEnvironment):
    """The sandbox, narrowed: a dot and brackets look into mappings, lists and text, and nowhere else."""

    intercepted_binops = frozenset({"+", "-", "*", "/", "//", "%", "**"})
    code_generator_class = _BoundedCode
    joined_texts = staticmethod(joined_texts)

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


def _finalized(value: object) -> str:
    """Give what a value prints as; Jinja calls it for each expression."""
    return value if isinstance(value, str) else text_of(value)


def text_of(value: object) -> str:
    """Give a variable's value as text, true and false as JSON has them. Raises TypeError for null and lists."""
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
            raise TypeError("the value is null; `| default('…')` puts a text in its place")
        case list() | tuple():
            raise TypeError("the value is a list; `| join(', ')` makes it text")
        case _:
            raise TypeError("the value is not text; name one of its keys")


def _environment() -> _Environment:
    environment = _Environment(undefined=StrictUndefined, finalize=_finalized, keep_trailing_newline=True, cache_size=0)
    environment.globals.clear()
    environment.filters.clear()
    environment.filters.update(FILTERS)
    environment.tests = {name: environment.tests[name] for name in TESTS} | dict(OWN_TESTS)
    return environment


_ENVIRONMENT: Final = _environment()


@dataclass(frozen=True, slots=True)
class Template:
    """A compiled text. `names` are the variables it always needs; `render` may raise `TemplateFailed`."""

    text: str
    names: frozenset[str]
    render: Callable[[Variables], str]
    is_constant: bool = False


@dataclass(frozen=True, slots=True)
class Condition:
    """A compiled `where` expression; `holds` may raise `TemplateFailed`."""

    names: frozenset[str]
    holds: Callable[[Variables], bool]


def is_template(text: str) -> bool:
    """Whether a text holds anything for Jinja."""
    return "{" in text and ("{{" in text or "{%" in text or "{#" in text)


def compile_template(text: str) -> Template:
    """Compile a text. Raises `TemplateFailed`, with the line within the text (from 1)."""
    if not is_template(text):
        return Template(text, frozenset(), lambda _: text, is_constant=True)
    compiled = _compiled(text)
    if isinstance(compiled, TemplateFailed):
        raise TemplateFailed(compiled.reason, line=compiled.line, missing=compiled.missing)
    return compiled


@lru_cache(maxsize=256)  # an alias may name one text a million times, and compiling takes up to a second
def _compiled(text: str) -> Template | TemplateFailed:
    if len(text) > MAX_TEMPLATE_LENGTH:
        return TemplateFailed(f"a template of {len(text):,} characters; at most {MAX_TEMPLATE_LENGTH:,}")
    try:
        tree = _ENVIRONMENT.parse(text)
        _check_nodes(tree)
        names = _needed(tree, jinja_meta.find_undeclared_variables(tree))
        simple = _simple(tree)
        if simple is not None:
            return Template(text, names, simple)
        compiled = _ENVIRONMENT.from_string(tree)
    except _FAILURES as error:
        return _failed(error)
    root, environment = compiled.root_render_func, _ENVIRONMENT

    def render(variables: Variables) -> str:
        try:
            return _bounded(root(Context(environment, cast("dict[str, Any]", variables), None, {})))
        except _FAILURES as error:
            raise _failed(error) from error

    return Template(text, names, render)


def compile_condition(expression: str) -> Condition:
    """Compile the expression of a `where`. Raises `TemplateFailed`."""
    if len(expression) > MAX_TEMPLATE_LENGTH:
        raise TemplateFailed(f"an expression of {len(expression):,} characters; at most {MAX_TEMPLATE_LENGTH:,}")
    parsed: nodes.Expr
    try:
        parser = Parser(_ENVIRONMENT, expression, state="variable")
        parsed = parser.parse_expression()
        if not parser.stream.eos:
            raise TemplateSyntaxError("the expression ends before the text does", parser.stream.current.lineno)
        tree = nodes.Template([nodes.Output([parsed], lineno=1)], lineno=1)
        tree.set_environment(_ENVIRONMENT)
        _check_nodes(tree)
        names = _needed(tree, jinja_meta.find_undeclared_variables(tree))
        if (quick := _comparison(parsed)) is not None:
            return Condition(names, quick)
        evaluate = _ENVIRONMENT.compile_expression(expression, undefined_to_none=False)
    except _FAILURES as error:
        raise _failed(error) from error

    def holds(variables: Variables) -> bool:
        try:
            return bool(evaluate(variables))
        except _FAILURES as error:
            raise _failed(error) from error

    return Condition(names, holds)


def _check_nodes(tree: nodes.Template) -> None:
    pending: list[tuple[nodes.Node, int]] = [(child, 1) for child in tree.iter_child_nodes()]
    while pending:
        node, depth = pending.pop()
        if depth > MAX_DEPTH:
            raise TemplateSyntaxError(f"more than {MAX_DEPTH} levels deep", node.lineno)
        pending.extend((child, depth + 1) for child in node.iter_child_nodes())
        if isinstance(node, _REFUSED) or not isinstance(node, _ALLOWED):
            what = {"Call": "a call", "For": "a loop", "Assign": "an assignment"}.get(type(node).__name__)
            reason = f"{what or f'`{type(node).__name__.lower()}`'} is not available in a manifest's templates"
            raise TemplateSyntaxError(f"{reason}: only variables, filters, `if` and comparisons are", node.lineno)
        if isinstance(node, nodes.Name) and (node.name in _JINJA_NAMES or node.name.startswith("__")):
            raise TemplateSyntaxError(
                f"`{node.name}` is no variable; a column of that name is col['{node.name}']", node.lineno
            )


def _needed(tree: nodes.Template, names: set[str]) -> frozenset[str]:
    """Give the variables that must be there: where the template itself asks or chooses, only rendering can tell."""
    asks = any(one.name == "default" for one in tree.find_all(nodes.Filter)) or any(
        tree.find_all((nodes.Test, nodes.If, nodes.CondExpr))
    )
    return frozenset() if asks else frozenset(names)


def _comparison(expression: nodes.Expr) -> Callable[[Variables], bool] | None:
    """Give a faster function for one variable compared with one constant; None for any other expression."""
    match expression:
        case nodes.Compare(
            expr=nodes.Name(name=name),
            ops=[nodes.Operand(op="eq" | "ne" as operator, expr=nodes.Const(value=constant))],
        ):
            wanted = operator == "eq"
        case _:
            return None

    def holds(variables: Variables) -> bool:
        if name not in variables:
            raise TemplateFailed(f"`{name}` is undefined", missing=name)
        return bool((variables[name] == constant) is wanted)

    return holds


def _simple(tree: nodes.Template) -> Callable[[Variables], str] | None:
    """Give a faster function for a template of plain text and bare variables; None for any other."""
    parts = [part for output in tree.body for part in getattr(output, "nodes", [None])]
    if not all(isinstance(part, (nodes.TemplateData, nodes.Name)) for part in parts):
        return None
    texts = [part.data if isinstance(part, nodes.TemplateData) else None for part in parts]
    names = [part.name if isinstance(part, nodes.Name) else "" for part in parts]
    if len(names) == 1 and names[0]:
        return _lone(names[0])
    if sum(map(bool, names)) == 1:
        at = next(position for position, name in enumerate(names) if name)
        before, after = "".join(text or "" for text in texts[:at]), "".join(text or "" for text in texts[at + 1 :])
        return _framed(before, names[at], after)
    return _joined(list(zip(texts, names, strict=True)))


def _lone(name: str) -> Callable[[Variables], str]:
    def render(variables: Variables) -> str:
        value = variables.get(name, variables)
        return value if type(value) is str else _looked_up(variables, name)

    return render


def _framed(before: str, name: str, after: str) -> Callable[[Variables], str]:
    def render(variables: Variables) -> str:
        value = variables.get(name, variables)
        kind = type(value)
        return f"{before}{value if kind is str or kind is int else _looked_up(variables, name)}{after}"

    return render


def _joined(parts: list[tuple[str | None, str]]) -> Callable[[Variables], str]:
    pattern = "".join("%s" if text is None else text.replace("%", "%%") for text, _ in parts)
    names = [name for text, name in parts if text is None]

    def render(variables: Variables) -> str:
        try:
            values = [variables[name] for name in names]
        except KeyError:
            values = [_looked_up(variables, name) for name in names]
        for value in values:
            if type(value) is not str and type(value) is not int:
                values = [_looked_up(variables, name) for name in names]
                break
        if sum(len(value) for value in values if type(value) is str) > MAX_RENDERED_LENGTH:
            raise TemplateFailed(f"the template gives more than {MAX_RENDERED_LENGTH:,} characters")
        return pattern % tuple(values)

    return render


def _bounded(parts: Iterable[str]) -> str:
    """Join what a template gives, and stop where it becomes too long."""
    texts, length = [], 0
    for part in parts:
        length += len(part)
        if length > MAX_RENDERED_LENGTH:
            raise TemplateFailed(f"the template gives more than {MAX_RENDERED_LENGTH:,} characters")
        texts.append(part)
    return "".join(texts)


def _looked_up(variables: Variables, name: str) -> str:
    if name not in variables:
        raise TemplateFailed(f"`{name}` is undefined", missing=name)
    try:
        return text_of(variables[name])
    except TypeError as error:
        raise TemplateFailed(f"`{name}`: {error}") from error


def _failed(error: BaseException) -> TemplateFailed:
    if isinstance(error, UndefinedError):
        if "jinja2." in str(error):  # an attribute of what is undefined already; its name is Jinja's own affair
            return TemplateFailed("the template asks for a part of something that is undefined")
        name = str(error).removesuffix(" is undefined")
        is_name = name != str(error) and name.startswith("'")
        return TemplateFailed(f"{str(error).replace(chr(39), '`')}", missing=name.strip("'") if is_name else None)
    if isinstance(error, TemplateSyntaxError):
        return TemplateFailed(f"the template cannot be read: {error.message}", line=error.lineno)
    if isinstance(error, SecurityError):
        return TemplateFailed(f"the template reaches for what it may not: {error}")
    if isinstance(error, (RecursionError, MemoryError, SyntaxError, AssertionError)):
        return TemplateFailed("the template is too deeply nested")
    return TemplateFailed(f"the template fails: {error}")
