"""What the package declares: each distribution that it imports, and no version that is known not to work."""

import ast
import re
import sys
import tomllib
from importlib.metadata import packages_distributions, requires
from pathlib import Path
from typing import Any, Final

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT: Final = Path(__file__).resolve().parents[2]
PROJECT: Final[dict[str, Any]] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
EXTRAS: Final = ("datasets", "keyring", "notify", "postgres", "s3", "traces", "watch")
ALL_EXTRAS: Final[dict[str, list[str]]] = PROJECT["optional-dependencies"]
CONSTRAINTS: Final = (ROOT / "docs" / "containers" / "constraints.txt").read_text("utf-8").splitlines()
OF_PYTEST: Final = frozenset({"pytest"})  # imported by the plugin, which pytest loads


def imported() -> set[str]:
    """Return the top-level names that the two packages import, also inside functions."""
    found = set()
    for path in (ROOT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Import):
                found |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                found.add(node.module.partition(".")[0])
    return found - set(sys.stdlib_module_names) - {"batchkiln", "batchkiln_service"} - OF_PYTEST


def declared(*extras: str) -> dict[str, Requirement]:
    lines = [*PROJECT["dependencies"], *(line for extra in extras for line in PROJECT["optional-dependencies"][extra])]
    return {canonicalize_name(requirement.name): requirement for requirement in map(Requirement, lines)}


def test_every_import_is_declared() -> None:
    """A package that only comes along with another one may be gone in the other's next version."""
    distributions, known = packages_distributions(), declared(*EXTRAS)

    missing = {
        name
        for name in imported()
        if not any(canonicalize_name(each) in known for each in distributions.get(name, [name]))
    }

    assert missing == set()


def test_undocumented_parts_have_an_upper_bound() -> None:
    """Whoever overrides the inside of a library says with which versions this was tried."""
    known = declared()

    unbounded = [
        name
        for name in ("aiohttp", "aiosqlite", "jinja2", "mkdocs-swagger-ui-tag")
        if not any(each.operator == "<" for each in known[name].specifier)
    ]

    assert unbounded == []


def test_viewer_of_the_api_brings_no_site_generator() -> None:
    """Only the files of Swagger UI are used of a plugin for MkDocs."""
    brought = {canonicalize_name(Requirement(line).name) for line in requires("mkdocs-swagger-ui-tag") or []}

    assert brought == {"beautifulsoup4"}


def test_constraints_are_plain_versions_within_the_bounds() -> None:
    """No host, no path and no build of one machine; every requirement of `dev` has its version."""
    pinned = [Requirement(line) for line in CONSTRAINTS if not line.startswith("#")]
    versions = {canonicalize_name(each.name): each.specifier for each in pinned}

    assert all(re.fullmatch(r"[\w.\-]+==[\w.]+", line) for line in CONSTRAINTS if not line.startswith("#"))
    for name, requirement in declared(*(extra for extra in ALL_EXTRAS if extra != "fuzz")).items():
        if name != "batchkiln":
            (version,) = versions[canonicalize_name(name)]
            assert requirement.specifier.contains(version.version), name


def test_lowest_versions_are_tried_for_every_extra_of_the_program() -> None:
    """`.ci/lowest` installs them."""
    script = (ROOT / ".ci" / "lowest").read_text("utf-8")

    tried = re.search(r"EXTRAS = \((.*)\)", script)
    assert tried is not None
    assert re.findall(r"\w+", tried[1]) == list(EXTRAS)
    assert f".[{','.join(EXTRAS)}]" in (ROOT / ".ci" / "try").read_text("utf-8")


def test_structlog_that_breaks_every_run_is_not_allowed() -> None:
    """Below 25.5, the first log line of a run raised."""
    assert not declared()["structlog"].specifier.contains("25.4.0")


def test_each_page_of_the_manual_is_in_the_package() -> None:
    """`batchkiln help` shows them where it is installed."""
    included = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["hatch"]["build"]["targets"]["wheel"]

    assert set(included["force-include"]) == {
        "docs/guides",
        "docs/reference",
        *(f"docs/{page.name}" for page in (ROOT / "docs").glob("*.md")),
    }
