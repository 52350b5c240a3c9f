"""Figures of the source: what stands where, what knows the database, how much there is.

Nothing is imported to be counted. The places that the figures need are the constants below: nothing else here, in
`benchmarks/structure.py` or in `tests/unit/test_structure.py` names a package.
"""

import ast
import io
import statistics
import tokenize
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]


PRODUCT: Final = ROOT / "src" / "batchkiln"
SERVICE: Final = ROOT / "src" / "batchkiln_service"
STORE: Final = PRODUCT / "store"
"""The one package that may know the database; its `__init__` is its public door."""
PORT: Final = PRODUCT / "worker" / "ports.py"
PORT_CLASSES: Final = ("Store", "Queue")
"""The worker's protocol of the queue: the first of these classes in `PORT`."""

DRIVERS: Final = ("sqlite3", "aiosqlite")
CONNECTIONS: Final = ("Connection", "Cursor")
"""What a type is called, or ends with, that runs statements."""

_BLANK: Final = frozenset(
    {
        tokenize.ENCODING,
        tokenize.COMMENT,
        tokenize.NL,
        tokenize.NEWLINE,
        tokenize.INDENT,
        tokenize.DEDENT,
        tokenize.ENDMARKER,
    }
)


@dataclass(frozen=True, slots=True)
class Size:
    """How much a tree of modules is: modules, lines, lines of code of Python, lines of SQL."""

    modules: int
    lines: int
    code: int
    sql: int


def product_modules() -> list[Path]:
    """Return the modules of the product, without the local service."""
    return sorted(PRODUCT.rglob("*.py"))


def service_modules() -> list[Path]:
    """Return the modules of the local service."""
    return sorted(SERVICE.rglob("*.py"))


def connection_modules() -> list[str]:
    """Return the modules of the product, outside the store, that know a database connection.

    One does if it does any of these, also for type checkers alone:

    - it imports `sqlite3` or `aiosqlite`;
    - it imports a module inside the store's package, by whatever name: all but the package itself, its door;
    - it imports from that door a name that ends in `Connection` or `Cursor`.
    """
    modules = (path for path in product_modules() if not path.is_relative_to(STORE))
    return [str(path.relative_to(PRODUCT)) for path in modules if knows_a_connection(path.read_text("utf-8"))]


def knows_a_connection(source: str, store: str = f"{PRODUCT.name}.{STORE.name}") -> bool:
    """Return whether a module's source knows a database connection, as `connection_modules` defines it."""
    if not any(name in source for name in (*DRIVERS, store)):
        return False
    return any(
        name.split(".")[0] in DRIVERS or (name.startswith(f"{store}.") and (is_module or name.endswith(CONNECTIONS)))
        for name, is_module in _imports(ast.parse(source), store)
    )


def port_methods() -> list[str]:
    """Return the methods and properties of the worker's protocol of the queue."""
    classes = {node.name: node for node in ast.parse(PORT.read_text("utf-8")).body if isinstance(node, ast.ClassDef)}
    port = next(classes[name] for name in PORT_CLASSES if name in classes)
    return [node.name for node in port.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]


def doubled_names(modules: list[Path]) -> list[str]:
    """Return the names that two or more modules share; `__init__` and `__main__` are no names."""
    counts = Counter(path.stem for path in modules if not path.stem.startswith("__"))
    return sorted(name for name, count in counts.items() if count > 1)


def code_lines(source: str) -> int:
    """Count the lines of a module that hold code: no blank ones, no comments, no docstrings."""
    prose = {line for node in ast.walk(ast.parse(source)) for line in _docstring(node)}
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in _BLANK:
            lines.update(range(token.start[0], token.end[0] + 1))
    return len(lines - prose)


def sql_lines(source: str) -> int:
    """Count the lines of a file of SQL that hold a statement's text."""
    return sum(1 for line in source.splitlines() if line.strip() and not line.strip().startswith("--"))


def size_of(modules: list[Path]) -> Size:
    """Return how much some modules are, with the SQL files of their folders."""
    sources = [path.read_text("utf-8") for path in modules]
    folders = {path.parent for path in modules}
    sql = [path.read_text("utf-8") for folder in folders for path in _own_sql(folder)]
    return Size(
        modules=len(modules),
        lines=sum(len(source.splitlines()) for source in sources),
        code=sum(map(code_lines, sources)),
        sql=sum(map(sql_lines, sql)),
    )


def sizes_by_package(modules: list[Path], root: Path) -> dict[str, Size]:
    """Return the size of each package, largest first; modules of the root itself stand under "."."""
    packages: dict[str, list[Path]] = {}
    for path in modules:
        inside = path.relative_to(root)
        packages.setdefault(inside.parts[0] if len(inside.parts) > 1 else ".", []).append(path)
    sizes = {name: size_of(each) for name, each in packages.items()}
    return dict(sorted(sizes.items(), key=lambda each: -each[1].code))


def median_lines(modules: list[Path]) -> int:
    """Return the median length of modules, in lines."""
    return round(statistics.median(len(path.read_text("utf-8").splitlines()) for path in modules))


def number_of_tests() -> int:
    """Return how many test functions the repository has, before their parameters."""
    return sum(
        isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_")
        for path in (ROOT / "tests").rglob("test_*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
    )


def _imports(tree: ast.AST, store: str) -> Iterator[tuple[str, bool]]:
    """Give the full name of each import, and whether a module of the store is imported by it."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, True) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                name = f"{node.module}.{alias.name}"
                yield name, node.module != store or _is_module_of_store(alias.name)


def _is_module_of_store(name: str) -> bool:
    """Return whether a name that is imported from the door is a module behind it."""
    return (STORE / name).is_dir() or (STORE / f"{name}.py").is_file()


def _docstring(node: ast.AST) -> range:
    """Return the lines of a statement that is a string alone."""
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
        return range(node.lineno, (node.end_lineno or node.lineno) + 1)
    return range(0)


def _own_sql(folder: Path) -> Iterator[Path]:
    """Give the SQL files of a folder, and of those below it that hold no modules."""
    yield from folder.glob("*.sql")
    for below in folder.iterdir():
        if below.is_dir() and not any(below.glob("*.py")):
            yield from below.rglob("*.sql")
