"""`docs/serve.md` names all that the local service knows, nothing else, and with the defaults that it has."""

import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, get_args, get_type_hints

import msgspec
import pytest
import yaml
from pydantic import BaseModel

from batchkiln.yaml_reading.mapping_file import read_mapping
from batchkiln_service import admin_api
from batchkiln_service.api import scripted_outcomes
from batchkiln_service.api.routes import ROUTES
from batchkiln_service.commands.config_loading import DEFAULT_STATE_DIR
from batchkiln_service.config import AccountConfig, KeyConfig, Limits, ServiceConfig
from batchkiln_service.db.report import Report, Spread
from batchkiln_service.faults.fault_rules import KINDS, Endpoint, FaultMatch, FaultRule, places_of

ROOT: Final = Path(__file__).resolve().parents[2]
MANUAL: Final = (ROOT / "docs" / "serve.md").read_text("utf-8")
EXAMPLES: Final = re.findall(r"^```yaml\n(.*?)^```$", MANUAL, re.MULTILINE | re.DOTALL)
_WORDS_FOR_NO_DEFAULT: Final = frozenset({"required", "everything", "the documented ones", "one, `main`"})


def section(title: str) -> str:
    """Return the text below a heading, up to the next one of its rank or a higher one."""
    found = re.search(rf"^(#+) {re.escape(title)}\n(.*?)(?=^#{{1,2}} |^\1 |\Z)", MANUAL, re.MULTILINE | re.DOTALL)
    assert found is not None, f"there is no section {title}"
    return found[2]


def tables(title: str) -> Iterator[list[list[str]]]:
    """Give the tables of a section, each as rows of cells, without its head."""
    for block in re.findall(r"(?:^\|.*\|\n)+", section(title), re.MULTILINE):
        lines = [re.split(r"(?<!\\)\|", line.strip("|")) for line in block.splitlines()[2:]]
        yield [[cell.strip() for cell in cells] for cells in lines]


def table(title: str, number: int = 0) -> list[list[str]]:
    return list(tables(title))[number]


def names(rows: list[list[str]]) -> list[str]:
    """Return what the first cells hold, without backquotes."""
    return [row[0].strip("`") for row in rows]


FIELDS: Final[Mapping[str, tuple[type[BaseModel], list[list[str]]]]] = {
    "The service": (ServiceConfig, table("The service")),
    "Accounts": (AccountConfig, table("Accounts")),
    "Keys": (KeyConfig, table("Keys")),
    "Limits": (Limits, table("Limits")),
    "Faults": (FaultRule, [row for row in table("Faults", 1) if "." not in row[0]]),
    "match": (
        FaultMatch,
        [[row[0].replace("match.", ""), *row[1:]] for row in table("Faults", 1) if "match." in row[0]],
    ),
}


@pytest.mark.parametrize("title", FIELDS)
def test_every_field_is_explained(title: str) -> None:
    """A field that the manual does not name would never be found; one that is gone would be tried in vain."""
    model, rows = FIELDS[title]

    assert sorted(names(rows)) == sorted(model.model_fields)


@pytest.mark.parametrize("title", FIELDS)
def test_every_default_is_the_real_one(title: str) -> None:
    """What happens to a field that is left out, as `serve` has it."""
    model, rows = FIELDS[title]
    of_the_command = {"state_dir": DEFAULT_STATE_DIR.as_posix(), "operator_port": 0}

    wrong = []
    for row in rows:
        name, told = row[0].strip("`"), row[1]
        field = model.model_fields[name]
        if told in _WORDS_FOR_NO_DEFAULT:
            continue
        real = field.get_default(call_default_factory=True, validated_data={})
        if model is ServiceConfig:
            real = of_the_command.get(name, real)
        real = list(real) if isinstance(real, tuple) else real
        if yaml.safe_load(told.strip("`")) != real:
            wrong.append(f"{name}: {told}, not {real}")

    assert wrong == []


@pytest.mark.parametrize("title", FIELDS)
def test_every_required_field_is_said_to_be(title: str) -> None:
    """`required` stands with the fields that have no default, and with no other."""
    model, rows = FIELDS[title]

    required = {row[0].strip("`") for row in rows if row[1] == "required"}

    assert required == {name for name, field in model.model_fields.items() if field.is_required()} - {"state_dir"}


def test_every_fault_is_explained() -> None:
    """The kinds, in the order of the code."""
    assert names(table("Faults")) == list(KINDS)


def test_every_fault_stands_where_it_can_happen() -> None:
    """The second column is what a rule may name as its endpoint."""
    everywhere = frozenset(get_args(Endpoint)) - {"any"}
    words = {
        "anywhere": everywhere,
        "the API": everywhere - {"put", "download"},
        "all but `put`": everywhere - {"put"},
    }

    wrong = [
        kind
        for kind, (_, where, _) in zip(KINDS, table("Faults"), strict=True)
        if words.get(where, frozenset(re.findall(r"`(\w+)`", where))) != places_of(kind)
    ]

    assert wrong == []


def test_every_endpoint_of_a_rule_is_named() -> None:
    """And each of the API's routes goes by one of them."""
    told = re.search(r"^Endpoints are (.*?)\n\n", section("Faults"), re.MULTILINE | re.DOTALL)

    assert told is not None
    assert set(re.findall(r"`(\w+)`", told[1])) == set(get_args(Endpoint))
    assert frozenset().union(*(route.names for route in ROUTES)) <= set(get_args(Endpoint))


def test_every_prompt_marker_is_explained() -> None:
    """What a prompt may ask for; the code holds each marker in a constant."""
    known = {
        value
        for value in vars(scripted_outcomes).values()
        if isinstance(value, str) and re.fullmatch(r"\[[a-z-]+\]", value)
    }

    assert set(names(table("Prompt markers"))) == known
    assert len(known) > 1


def test_every_route_of_the_operator_is_explained() -> None:
    """As the port itself lists them."""
    assert names(table("The operator's port")) == list(admin_api._ENDPOINTS)


def test_every_field_of_the_report_is_explained() -> None:
    """The fields of the whole document, in its order."""
    assert names(table("The report")) == list(Report.__struct_fields__)


def test_every_part_of_the_report_is_explained() -> None:
    """Each row names exactly the fields of its subject; spreads and lists are explained above."""
    hints = get_type_hints(Report)
    wrong = {}
    for row in table("The report"):
        name = row[0].strip("`")
        told, real = set(re.findall(r"`(\w+)`", row[2])), set(_parts(hints[name]))
        if told != real:
            wrong[name] = told ^ real

    assert wrong == {}


def _parts(hint: Any) -> Iterator[str]:  # noqa: ANN401  any annotation
    """Give the names of the fields within, of lists and lists of lists, but not those of a spread or a listing."""
    for inner in get_args(hint):
        yield from _parts(inner)
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct) and hint.__name__ not in {"Listing", "Spread"}:
        inner_hints = get_type_hints(hint)
        for name in hint.__struct_fields__:
            yield name
            yield from _parts(inner_hints[name])


def test_how_durations_are_spread_is_explained() -> None:
    """The one form that every spread has."""
    told = set(re.findall(r"`(\w+)`", section("The report")))

    assert told.issuperset(Spread.__struct_fields__)


@pytest.mark.parametrize("number", range(len(EXAMPLES)))
def test_every_configuration_of_the_manual_is_accepted(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An example can be copied; one that shows only a part needs no more than the folder that `serve` has anyway."""
    text = EXAMPLES[number]
    path = tmp_path / "service.yaml"
    path.write_text(text if "state_dir:" in text else f"state_dir: state\n{text}", "utf-8")
    monkeypatch.setenv("REHEARSAL_KEY", "a-key")

    config = ServiceConfig.model_validate(read_mapping(path, "the configuration").values)

    assert config.model_fields_set > {"state_dir"}
    assert all(key.reveal() for account in config.accounts for key in account.key_configs)


def test_manual_has_examples() -> None:
    """The test above is not empty."""
    assert len(EXAMPLES) > 1


def test_layers_of_the_architecture_page_are_the_ones_that_are_checked() -> None:
    """The page's table has every part of the service, from top to bottom as the import contract has them."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]["contracts"]
    (layers,) = (contract["layers"] for contract in contracts if contract.get("containers") == ["batchkiln_service"])

    page = (ROOT / "docs" / "architecture.md").read_text("utf-8")
    firsts = re.findall(r"^\| ((?:`batchkiln_service/\w+(?:\.py|/)`(?:, )?)+) \|", page, re.MULTILINE)
    told = [part for cell in firsts for part in re.findall(r"`batchkiln_service/(\w+)(?:\.py|/)`", cell)]

    assert told == [part for layer in layers for part in layer.split(" | ")]


def test_assumptions_name_places_of_the_local_service_that_are_there() -> None:
    """Each function or constant of the service that an entry names exists in its module."""
    text = (ROOT / "docs" / "assumptions.md").read_text("utf-8")
    places = re.findall(r"`(?:\w+\.)?(\w+)`\s+in\s+`(batchkiln_service/\w+/\w+\.py)`", text)

    missing = [f"{name} in {file}" for name, file in places if name not in (ROOT / "src" / file).read_text("utf-8")]

    assert len(places) > 4
    assert missing == []
