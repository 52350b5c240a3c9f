"""The manuals say what the program does: their examples work, and nothing is missing from them."""

import io
import re
import runpy
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import pytest

import batchkiln
from batchkiln.core.errors import InputError
from batchkiln.manifest import json_schema, open_manifest
from batchkiln.manifest.filters import FILTERS
from batchkiln_service.rules.catalog import load_catalog
from batchkiln_service.rules.validation import check_request

ROOT: Final = Path(__file__).resolve().parents[2]
DOCS: Final = ROOT / "docs"
PAGES: Final = [*sorted(ROOT.glob("*.md")), *sorted(DOCS.rglob("*.md"))]
MANUAL: Final = (DOCS / "manifest.md").read_text("utf-8")
_BLOCK: Final = re.compile(r"<!-- (?P<mark>[a-z ]+)(?:: (?P<name>\S+))? -->\n```\w+\n(?P<text>.*?)```", re.DOTALL)
BLOCKS: Final = [(match["mark"], match["text"]) for match in _BLOCK.finditer(MANUAL)]
MANIFESTS: Final = [text for mark, text in BLOCKS if mark == "manifest"]
EXAMPLES: Final = sorted((ROOT / "jobs").glob("*.yaml"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Give a folder with the files that the examples name."""
    for name in ("images", "prompts"):
        shutil.copytree(ROOT / "jobs" / name, tmp_path / name)
    return tmp_path


@pytest.mark.parametrize("text", MANIFESTS, ids=lambda text: text.split()[3])
def test_every_manifest_of_the_manual_is_accepted(text: str, folder: Path) -> None:
    """A block marked as a whole manifest can be copied and run."""
    manifest = open_manifest("-", stdin=io.BytesIO(text.encode()), working_dir=folder)

    assert list(manifest.items())


def test_shown_mistakes_are_the_real_ones(tmp_path: Path) -> None:
    """The error message in the manual is what the program prints for the manifest above it."""
    found = dict(BLOCKS)
    (tmp_path / "guide.yaml").write_text(found["mistaken manifest"], "utf-8")

    with pytest.raises(InputError) as raised:
        list(open_manifest("guide.yaml", working_dir=tmp_path).items())

    assert found["its mistakes"] == f"{raised.value}\n"


def test_manual_names_every_field() -> None:
    """The manual explains every field of the JSON Schema, each in the first cell of a table's row."""
    explained = set(re.findall(r"^\| `(?:\w+\.)?(\w+)` \|", MANUAL, re.MULTILINE))

    assert _field_names(json_schema()) <= explained


def _field_names(schema: Any) -> set[str]:  # noqa: ANN401  any part of a JSON document
    if isinstance(schema, list):
        return set().union(*map(_field_names, schema))
    if not isinstance(schema, dict):
        return set()
    below = set().union(*map(_field_names, schema.values()))
    properties = schema.get("properties")
    return below | set(properties) if isinstance(properties, dict) else below


def test_manual_names_every_filter() -> None:
    """The manual lists every filter that templates may use, and no other."""
    listed = re.search(r"^- Filters: (.+?)\.$", MANUAL, re.MULTILINE | re.DOTALL)

    assert listed is not None
    assert set(re.findall(r"`(\w+)`", listed[1])) == set(FILTERS)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # click-man calls what click gives up
def test_man_pages_are_fresh() -> None:
    """`docs/man` holds what `docs/make_man.py` writes: one page of each command, and no other."""
    pages = dict(runpy.run_path(str(DOCS / "make_man.py"))["pages"]())

    assert {page.name: page.read_text("utf-8") for page in (DOCS / "man").iterdir()} == pages


def test_states_page_is_fresh() -> None:
    """The page of states is what `docs/make_diagrams.py` draws from the table now; run it if this fails."""
    page = runpy.run_path(str(DOCS / "make_diagrams.py"))["states_page"]()

    assert (DOCS / "states.md").read_text("utf-8") == page


def test_code_map_is_whole() -> None:
    """Each folder and module beside `__init__` has its line in the architecture page's code map."""
    package = Path(batchkiln.__file__).parent
    parts = {path.name + "/" * path.is_dir() for path in package.iterdir() if path.name[0] not in "._"}
    parts = {part for part in parts if part.endswith(("/", ".py"))}

    mapped = set(re.findall(r"^\| `([\w/.]+)` \|", (DOCS / "architecture.md").read_text("utf-8"), re.MULTILINE))

    assert parts <= mapped


def test_diagram_shows_the_imports() -> None:
    """The solid arrows of the architecture page are the imports between the layers, no more and no less."""
    page = (DOCS / "architecture.md").read_text("utf-8")
    siblings = {*re.findall(r"^ {8}(\w+)\[", page, re.MULTILINE), "clock", "config", "inputs", "logs"}
    drawn = {
        (left, right)
        for left, rights in re.findall(r"^ +(\w+) --> (.+)$", page, re.MULTILINE)
        for right in rights.split(" & ")
    }

    package = Path(batchkiln.__file__).parent
    imports = {
        (path.relative_to(package).parts[0].removesuffix(".py"), imported)
        for path in package.rglob("*.py")
        for imported in re.findall(r"^ *(?:from|import) batchkiln[._](\w+)", path.read_text("utf-8"), re.MULTILINE)
    }
    layers = {tuple("siblings" if part in siblings else part for part in pair) for pair in imports}

    assert drawn == {pair for pair in layers if pair[0] != pair[1] and pair[0] not in {"__main__", "__init__"}}


def test_every_law_is_shown_by_a_test_that_cites_it() -> None:
    """The table of invariants has all laws in order, and the tests that it names for each speak of that law."""
    rows = re.findall(r"^\| (\d+)\. .* \| ([^|]*) \|$", (DOCS / "architecture.md").read_text("utf-8"), re.MULTILINE)

    silent = [
        f"{test} does not cite Law {law}"
        for law, tests in rows
        for test in re.findall(r"`(.+?)`", tests)
        if f"Law {law}" not in (ROOT / test).read_text("utf-8")
    ]

    assert [int(law) for law, _ in rows] == list(range(1, 11))
    assert all("`tests/" in tests for _, tests in rows)
    assert silent == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_named_files_exist(page: Path) -> None:
    """A path that a page names in backquotes or links to is there."""
    text = page.read_text("utf-8")
    named = re.findall(r"`((?:src|tests|docs|jobs|benchmarks)/[\w/.-]+)`", text)
    linked = re.findall(r"\]\((?!https?:)([^)#\s]+)", text)
    packages = "|".join(path.name for path in Path(batchkiln.__file__).parent.iterdir() if path.is_dir())
    shortened = re.findall(rf"`((?:{packages})/[\w/]+\.(?:py|sql|toml|html))`", text)

    of_the_service = re.findall(r"`(batchkiln_service/[\w/]+\.\w+)`", text)

    paths = [
        *(ROOT / name for name in named),
        *(page.parent / name for name in linked),
        *(ROOT / "src" / "batchkiln" / name for name in shortened),
        *(ROOT / "src" / name for name in of_the_service),
    ]

    assert [str(path) for path in paths if not path.exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_named_tests_exist(page: Path) -> None:
    """A test that a page names is there."""
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)(?:::\w+)?`", page.read_text("utf-8"))

    assert [
        name for path, name in named if not re.search(rf"(def|class) {name}\b", (ROOT / path).read_text("utf-8"))
    ] == []


def test_named_planted_bugs_exist() -> None:
    """What the page for a new account calls planted is in the list of planted bugs."""
    page = (DOCS / "guides" / "new-account.md").read_text("utf-8")
    planted = (ROOT / "tests" / "simulation" / "planted.py").read_text("utf-8")
    named = [
        name for cell in re.findall(r"planted: ((?:`[^`]+`(?:, )?)+)", page) for name in re.findall("`(.+?)`", cell)
    ]

    assert named
    assert [name for name in named if f'"{name}",\n' not in planted and not name.startswith("tests/")] == []


def test_every_assumption_is_complete() -> None:
    """The assumptions are numbered without a gap, and each says what is open, what both sides do, what to change."""
    entries = re.split(r"^### ", (DOCS / "assumptions.md").read_text("utf-8"), flags=re.MULTILINE)[1:]

    labels = [tuple(re.findall(r"^- ([A-Z][a-z ]+):", entry, re.MULTILINE)) for entry in entries]

    assert [entry.split(".")[0] for entry in entries] == [str(number) for number in range(1, len(entries) + 1)]
    assert set(labels) == {("Open", "Client", "Local service", "Change")}


def test_every_assumption_names_a_place_that_is_there() -> None:
    """Each function or constant that an entry names exists in its module."""
    text = (DOCS / "assumptions.md").read_text("utf-8")
    places = [
        (name, f"src/{file}" if file.startswith("batchkiln_service/") else f"src/batchkiln/{file}")
        for name, file in re.findall(r"`\(?(?:\w+[.,] ?)*(\w+)\)?` in `(?:src/batchkiln/)?(\w+/\w+\.py)`", text)
    ]

    missing = [f"{name} in {file}" for name, file in places if name not in (ROOT / file).read_text("utf-8")]

    assert len(places) > 30
    assert missing == []


def test_architecture_names_functions_that_exist() -> None:
    """Where the page names a function of a module, the module defines it."""
    text = (DOCS / "architecture.md").read_text("utf-8")
    places = re.findall(r"`(\w+)` in\s+`((?:\w+/)+\w+\.py)`", text)

    missing = [
        f"{name} in {file}"
        for name, file in places
        if not any(
            (parent / file).exists() and re.search(rf"\b(def|class) {name}\b", (parent / file).read_text("utf-8"))
            for parent in (ROOT / "src", ROOT / "src" / "batchkiln")
        )
    ]

    assert len(places) > 5
    assert missing == []


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_every_example_fits_its_models(path: Path) -> None:
    """The examples ask for what the local service's models offer, so that none of their items is rejected."""
    for placed in open_manifest(str(path), working_dir=ROOT).items():
        recipe = placed.spec.recipe
        body: dict[str, object] = {"model": recipe.model, "mode": recipe.mode.value, "prompt": placed.spec.prompt}
        if recipe.inputs_count:
            body["inputs"] = [{"type": "image", "url": "https://assets.invalid/a"}] * recipe.inputs_count
        body["parameters"] = dict(recipe.parameters)

        quote = check_request(body, load_catalog()).cost_credits

        assert quote <= (recipe.max_cost_credits or 0)


def test_the_site_starts_at_its_root() -> None:
    """Whoever opens the folder of the site comes to its start page."""
    settings = (ROOT / "docs" / "site" / "conf.py").read_text("utf-8")
    start = (ROOT / "docs" / "site" / "start" / "index.html").read_text("utf-8")
    root = re.search(r'^root_doc = "(.+)"$', settings, re.MULTILINE)

    assert root is not None
    assert 'html_extra_path = ["start"]' in settings
    assert re.findall(r'(?:url=|href=")([^"]+)', start) == [f"{root[1]}.html"] * 2


def test_the_python_reference_begins_with_what_a_program_begins_with() -> None:
    """All public names are there once, and those that open a queue come first."""
    page = (ROOT / "docs" / "site" / "python-reference.md").read_text("utf-8")
    named = re.findall(r"^\.\. auto(?:class|function|exception):: (\w+)$", page, re.MULTILINE)

    assert named[:4] == ["open_queue", "open_queue_sync", "Queue", "SyncQueue"]
    assert sorted(named) == sorted(set(batchkiln.__all__) - {"__version__"})


def test_the_site_refuses_a_page_that_asks_another_machine(tmp_path: Path) -> None:
    """Its pages work without a network; a missing picture is an error, too."""
    site = runpy.run_path(str(ROOT / "docs" / "site" / "conf.py"))
    (tmp_path / "there.svg").touch()
    wrong = {
        '<img src="https://cdn.invalid/a.svg">': "cdn.invalid",
        '<script type="module">import a from "https://cdn.invalid/a.mjs";</script>': "cdn.invalid",
        '<link rel="stylesheet" href="//cdn.invalid/a.css">': "cdn.invalid",
        '<img src="gone.svg">': "gone.svg",
    }

    for text, told in wrong.items():
        (tmp_path / "page.html").write_text(text, "utf-8")
        with pytest.raises(Exception, match=told):
            site["check_pages"](SimpleNamespace(outdir=tmp_path), None)
    (tmp_path / "page.html").write_text('<a href="https://elsewhere.invalid"><img src="there.svg"></a>', "utf-8")
    site["check_pages"](SimpleNamespace(outdir=tmp_path), None)


def test_the_start_page_of_the_site_has_the_installation() -> None:
    """And no sentence that leads to the README, which the site has not."""
    text = runpy.run_path(str(ROOT / "docs" / "site" / "conf.py"))["start_page"]()

    assert ".venv/bin/pip install ." in text
    assert "README.md) shows" not in text
    assert max(map(len, re.findall(r"^  ?.*$|^python3.*$", text, re.MULTILINE))) < 60
