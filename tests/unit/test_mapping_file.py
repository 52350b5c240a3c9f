"""The YAML reader of configurations: the same one as of manifests."""

from pathlib import Path

import pytest

from batchkiln.core.errors import InputError
from batchkiln.yaml_reading.mapping_file import MappingFile, read_mapping


def write(folder: Path, text: str) -> Path:
    path = folder / "settings.yaml"
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("no", "no"), ("on", "on"), ("1_000", "1_000"), ("12:30", "12:30"), ("2020-01-01", "2020-01-01"), ("010", 10),
        ("null", None), ("~", None), ("", None), ("true", True), ("-7", -7), ("1e3", 1000.0), (".5", 0.5), ("'7'", "7"),
    ],
)  # fmt: skip
def test_scalars_are_those_of_yaml_1_2(tmp_path: Path, text: str, value: object) -> None:
    """As in manifests: a word such as `no` is text (section 10.3.2 of the YAML specification)."""
    assert MappingFile(write(tmp_path, f"field: {text}\n")).values == {"field": value}


def test_a_name_keeps_its_zeros(tmp_path: Path) -> None:
    """The fields' types convert texts: the name `010` is not the number 10. Only a null is no text."""
    read = MappingFile(write(tmp_path, "a: 010\nb: {c: [true, ~]}\n"))

    assert read.texts == {"a": "010", "b": {"c": ["true", None]}}


def test_places_are_those_of_the_deepest_known_part(tmp_path: Path) -> None:
    """A missing field is told at the mapping that lacks it."""
    read = MappingFile(write(tmp_path, "a: 1\nb:\n  - c: 2\n  - d: 3\n"))

    assert read.place(["b", 1, "d"]) == (4, 8)
    assert read.place(["b", 1, "e"]) == (4, 5)
    assert read.place(["z"]) == (1, 1)
    assert MappingFile(write(tmp_path, "")).place(["z"]) is None


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("a: 1\na: 2\n", r"settings.yaml:2:1: the key `a` appears here a second time"),
        ("[1, 2]\n", r"a configuration is a mapping of fields"),
        ("a: [1\n", r"settings.yaml:\d+:\d+: not YAML"),
        ("a: 1\n---\nb: 2\n", r"a configuration is one document"),
        ("a: {<<: {b: 1}}\n", r"merge keys"),
        ("a: &x [*x]\n", r"settings.yaml:1:8"),
    ],
)
def test_mistakes_have_their_places(tmp_path: Path, text: str, told: str) -> None:
    """Each is an input error, told as those of a manifest are."""
    with pytest.raises(InputError, match=told):
        MappingFile(write(tmp_path, text))


def test_a_file_that_is_not_there_is_an_input_error(tmp_path: Path) -> None:
    """What it was to be is named."""
    with pytest.raises(InputError, match=r"gone.yaml: the configuration cannot be read: No such file"):
        read_mapping(tmp_path / "gone.yaml", "the configuration")
