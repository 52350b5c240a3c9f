"""How the program is built: what one item runs through, what knows the database, how much there is of it.

One text-to-image item is run to its end by `batchkiln run` on the embedded local service, in a process of its own that
notes every call in every thread. Counted are functions of ours that ran (no class bodies, no comprehensions), the
modules in which they stand, and the pairs of modules of which one called the other directly. The local service's own
code is left out; so is the library code between two functions of ours. The other figures are read from the source:
`tests/support/source_figures.py` defines each.

    python benchmarks/structure.py [--packages] [--names]
"""

import argparse
import inspect
import json
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FrameType

sys.path[:0] = [str(Path(__file__).resolve().parent), str(Path(__file__).resolve().parents[1] / "tests")]

from figure import HEAD, Figure  # noqa: E402  found where this file is

from support import source_figures as source  # noqa: E402  as above

MANIFEST = """
version: 1
job: one
defaults: {model: epsilon-2, mode: text-to-image, parameters: {resolution: 512x512}}
output: {dir: out}
items:
  - {id: fox, prompt: A fox in fresh snow}
"""
GOALS = {
    "functions": 350,
    "modules": 60,
    "edges": 130,
    "connection modules": 0,
    "port methods": 14,
    "doubled names": 8,
    "product code": 20_000,
    "service code": 5_500,
}


@dataclass(frozen=True, slots=True)
class Way:
    """What one item ran through, all as places of the product: `module:function` and modules."""

    functions: frozenset[str]
    edges: frozenset[tuple[str, str]]

    @property
    def modules(self) -> frozenset[str]:
        """The modules in which the functions stand."""
        return frozenset(each.split(":")[0] for each in self.functions)


class Tracer:
    """Notes every call of every thread from `start` on."""

    def __init__(self) -> None:
        """Know nothing yet."""
        self._codes: set[CodeType] = set()
        self._edges: set[tuple[CodeType, CodeType]] = set()

    def start(self) -> None:
        """Note the calls of this thread, and of those that begin from now on."""
        threading.setprofile(self._note)
        sys.setprofile(self._note)

    def way(self) -> Way:
        """Return what was noted."""
        places = {code: _place(code) for code in {*self._codes, *(each for edge in self._edges for each in edge)}}
        edges = ((places[caller], places[called]) for caller, called in self._edges)
        files = ((caller.split(":")[0], called.split(":")[0]) for caller, called in edges if caller and called)
        return Way(
            functions=frozenset(filter(None, (places[code] for code in self._codes))),
            edges=frozenset((caller, called) for caller, called in files if caller != called),
        )

    def _note(self, frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            self._codes.add(frame.f_code)
            if frame.f_back is not None:
                self._edges.add((frame.f_back.f_code, frame.f_code))


def way_of_one_item() -> Way:
    """Run one item to its end in a process of its own, and return what it ran through."""
    with tempfile.TemporaryDirectory() as folder:
        traced = Path(folder, "way.json")
        command = [sys.executable, str(Path(__file__).resolve()), "--trace", str(traced)]
        subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        found = json.loads(traced.read_text())
    return Way(frozenset(found["functions"]), frozenset((caller, called) for caller, called in found["edges"]))


def figures() -> Iterator[Figure]:
    """Give the lines of the table."""
    way = way_of_one_item()
    yield _figure("functions that one item runs through", len(way.functions), "functions")
    yield _figure("modules that one item runs through", len(way.modules), "modules")
    yield _figure("file-to-file calls that one item runs through", len(way.edges), "edges")
    yield _figure(
        "modules outside the store that know a connection", len(source.connection_modules()), "connection modules"
    )
    yield _figure("methods of the worker's port of the queue", len(source.port_methods()), "port methods")
    for name, modules in (("product", source.product_modules()), ("service", source.service_modules())):
        size = source.size_of(modules)
        yield _figure(f"{name}: doubled module names", len(source.doubled_names(modules)), "doubled names")
        yield _figure(f"{name}: lines of code, {size.sql:,} of SQL beside", size.code, f"{name} code")
        yield _plain(f"{name}: modules", size.modules)
        yield _plain(f"{name}: median lines of a module", source.median_lines(modules))
    yield _plain("test functions", source.number_of_tests())


def main() -> int:
    """Print the table; 1 where a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--packages", action="store_true", help="the size of each package as well")
    parser.add_argument(
        "--names", action="store_true", help="what is behind the figures: doubled names, modules, methods"
    )
    parser.add_argument("--trace", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.trace:
        _trace(args.trace)
    print(HEAD)
    found = []
    for figure in figures():
        print(figure.row(), flush=True)
        found.append(figure)
    if args.packages:
        _print_packages()
    if args.names:
        _print_names()
    return 0 if all(figure.is_reached for figure in found) else 1


def _figure(work: str, value: int, goal: str) -> Figure:
    return Figure(work, f"{value:,}", "", None, f"at most {GOALS[goal]:,}", value <= GOALS[goal])


def _plain(work: str, value: int) -> Figure:
    return Figure(work, f"{value:,}", "", None)


def _place(code: CodeType) -> str:
    """Return `module:function` for a function of ours; "" for all else."""
    path = Path(code.co_filename)
    is_function = code.co_flags & inspect.CO_OPTIMIZED and code.co_name not in {
        "<listcomp>",
        "<setcomp>",
        "<dictcomp>",
        "<genexpr>",
    }
    if not is_function or not path.is_relative_to(source.PRODUCT) or path.is_relative_to(source.SERVICE):
        return ""
    return f"{path.relative_to(source.PRODUCT)}:{code.co_qualname}:{code.co_firstlineno}"


def _trace(target: Path) -> None:
    """Run one item in this process and write down what it ran through; ends the process."""
    Path("m.yaml").write_text(MANIFEST)
    sys.argv = ["batchkiln", "run", "m.yaml", "--yes"]
    tracer = Tracer()
    tracer.start()
    try:
        from batchkiln.__main__ import main as program  # noqa: PLC0415  its imports are part of the run

        program()
    finally:
        sys.setprofile(None)
        way = tracer.way()
        target.write_text(json.dumps({"functions": sorted(way.functions), "edges": sorted(way.edges)}))


def _print_packages() -> None:
    print("\n| package | modules | lines | code | SQL |\n|---|---:|---:|---:|---:|")
    for modules, root in ((source.product_modules(), source.PRODUCT), (source.service_modules(), source.SERVICE)):
        for name, size in source.sizes_by_package(modules, root).items():
            print(f"| {root.name}/{name} | {size.modules} | {size.lines:,} | {size.code:,} | {size.sql:,} |")


def _print_names() -> None:
    print("\nproduct, doubled names:", *source.doubled_names(source.product_modules()))
    print("service, doubled names:", *source.doubled_names(source.service_modules()))
    print("know a connection:", *source.connection_modules())
    print("the port:", *source.port_methods())


if __name__ == "__main__":
    sys.exit(main())
