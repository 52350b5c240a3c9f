"""Regression tests for inputs found by fuzzing and review: each is now reported or bounded."""

import gzip
import hashlib
import io
import os
import tracemalloc
from pathlib import Path

import pytest
from PIL import Image

from batchkiln.core.errors import Diagnostic, InputError
from batchkiln.core.filenames import safe_value
from batchkiln.manifest import open_manifest
from batchkiln.manifest.images import Images
from batchkiln.manifest.sources import FREE_EXPANSION_SIZE_BYTES, MAX_EXPANSION
from batchkiln.manifest.templates import TemplateFailed, compile_condition, compile_template
from batchkiln.yaml_reading.diagnostics import InvalidValue
from fuzz import invariants

HEADER = "version: 1\njob: t\ndefaults: {model: epsilon-2, mode: text-to-image}\n"
ITEMS = HEADER + "items:\n"


def mistakes(folder: Path, manifest: str | bytes) -> tuple[Diagnostic, ...]:
    """Read a manifest that is wrong, within anybody's patience, and give what is told."""
    with invariants.patience():
        found = invariants.read(folder, manifest.encode() if isinstance(manifest, str) else manifest)
    assert isinstance(found, InputError), "it was taken"
    invariants.check_told(found)
    return found.mistakes


def names(folder: Path, manifest: str) -> list[str]:
    """Read a manifest that is right, and give its ids."""
    with invariants.patience():
        found = invariants.read(folder, manifest.encode())
    assert not isinstance(found, InputError), found
    return [one.spec.name for one in found[1]]


def test_a_matrix_of_more_combinations_than_can_be_printed(tmp_path: Path) -> None:
    """A count of over 4,300 digits is a mistake like any other."""
    values = ", ".join(f"v{number}: [1, 2]" for number in range(15_000))

    assert "quadrillion" in mistakes(tmp_path, ITEMS + f"- {{prompt: p, matrix: {{{values}}}}}\n")[0].reason


def test_repeated_combinations_count_as_often_as_they_are_made(tmp_path: Path) -> None:
    """A matrix within its bound, ten thousand times, is beyond it."""
    many = ", ".join(map(str, range(1001)))

    found = mistakes(tmp_path, ITEMS + f"- {{prompt: p, id: i, matrix: {{a: [{many}]}}, repeat: 10000}}\n")

    assert "10,010,000 combinations" in found[0].reason


def test_matrices_that_are_large_together(tmp_path: Path) -> None:
    """An alias cannot ask for the work of one matrix again and again."""
    many = ", ".join(map(str, range(3000)))
    entry = f"- &e {{prompt: '{{{{ zz }}}}', matrix: {{a: &m [{many}], b: *m}}}}\n"

    assert "up to here" in mistakes(tmp_path, ITEMS + entry + "- *e\n")[-1].reason


def test_a_large_number_in_the_defaults_of_a_wrong_header(tmp_path: Path) -> None:
    """It is one of the mistakes, and does not end the search for the others."""
    header = "version: 2\njob: t\ndefaults: {metadata: {x: 99999999999999999999}}\nitems: []\n"

    assert [one.line for one in mistakes(tmp_path, header)] == [1, 3]


def test_all_columns_can_be_kept_beside_others(tmp_path: Path) -> None:
    """`col` is a column for `metadata`, alone and in company."""
    (tmp_path / "a.csv").write_text("prompt,a\np,1\n", encoding="utf-8")

    assert names(tmp_path, ITEMS + "- {from: a.csv, metadata: [col, a]}\n- {from: a.csv, id: b, metadata: [col]}\n")


@pytest.mark.parametrize(
    "expression",
    [
        "1.5|round(1000000000, 'ceil')",
        "b|round(-1000000000)",
        "'%2000000000d' is even",
        "'%2000000000d' is odd",
        "'%*d' is divisibleby((2000000000, 1))",
        "long|trim(long ~ 'y')",
        "long|replace('x', long, -1)",
        "~".join(["long"] * 150),
        "'' ~ [" + ",".join(["long"] * 150) + "]",
        "[" + ",".join(["long"] * 150) + "] is lower",
    ],
    ids=["places", "tens", "even", "odd", "multiple", "trim", "replace", "joined", "listed", "tested"],
)
def test_expressions_that_multiply_are_refused_at_once(expression: str) -> None:
    """Neither the time nor the memory of an expression is more than a small multiple of what it is given."""
    variables = {"b": 7, "long": "x" * 500_000}
    tracemalloc.start()
    try:
        with invariants.patience():
            for evaluated in (
                lambda: compile_template("{{ " + expression + " }}").render(variables),
                lambda: compile_condition(expression).holds(variables),
            ):
                with pytest.raises(TemplateFailed):
                    evaluated()
        peak_size_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert peak_size_bytes < 50 << 20


@pytest.mark.parametrize("template", ["{{ long }}" * 150, "{{ long }}{{ long|upper }}" * 60], ids=["bare", "filtered"])
def test_long_results_are_not_made_before_they_are_refused(template: str) -> None:
    """A text of gigabytes is never put together."""
    tracemalloc.start()
    try:
        with pytest.raises(TemplateFailed, match="more than"):
            compile_template(template).render({"long": "x" * 900_000})
        peak_size_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert peak_size_bytes < 50 << 20


@pytest.mark.parametrize("sign", ["-", "not ", "+"])
def test_signs_in_a_row(sign: str) -> None:
    """A template that takes Jinja seconds to compile is refused."""
    with invariants.patience(), pytest.raises(TemplateFailed, match="levels deep"):
        compile_template("{{ " + sign * 150 + "a }}")


def test_aliases_of_long_texts(tmp_path: Path) -> None:
    """An entry cannot name one long text so often that writing it out takes gigabytes."""
    aliases = ", ".join(["*b"] * 9000)

    found = mistakes(tmp_path, ITEMS + f"- {{prompt: p, metadata: {{b: &b {'x' * (1 << 20)}, l: [{aliases}]}}}}\n")

    assert "too much text" in found[0].reason


@pytest.mark.long
def test_aliases_of_long_templates(tmp_path: Path) -> None:
    """A template that many entries share is compiled once, good or bad."""
    text = "{{a}}" * 3900
    good, bad = (
        f"- &e {{matrix: {{a: [1]}}, prompt: '{text}'}}\n",
        f"- &f {{matrix: {{a: [1]}}, prompt: '{text}{{{{'}}\n",
    )

    assert len(mistakes(tmp_path, ITEMS + good + bad + "- *e\n- *f\n" * 500)) == 1


@pytest.mark.parametrize("name", ["x" * 300 + ".csv", "closed/r.csv"])
def test_a_source_whose_name_cannot_be_looked_at(tmp_path: Path, name: str) -> None:
    """It is reported at its position in the manifest, like a missing source."""
    (tmp_path / "closed").mkdir(mode=0)

    assert [(one.line, one.column) for one in mistakes(tmp_path, ITEMS + f"- from: {name}\n")] == [(5, 9)]


def test_a_packed_source_that_is_damaged_in_the_middle(tmp_path: Path) -> None:
    """The lines around the damage cannot be shown then, and are told all the same."""
    digits = hashlib.shake_256(b"rows").hexdigest(400_000)
    rows = "prompt\n" + "".join(digits[at : at + 999] + "\n" for at in range(0, len(digits), 999))
    packed = gzip.compress(rows.encode())
    (tmp_path / "a.csv.gz").write_bytes(packed[:300_000] + b"\xff" * 3000 + packed[303_000:])

    assert "cannot be read" in mistakes(tmp_path, ITEMS + "- from: a.csv.gz\n")[-1].reason


def test_a_packed_source_that_holds_next_to_nothing(tmp_path: Path) -> None:
    """A file of one character, again and again, is refused where that shows."""
    content = b"fox\n" + (b" " * (1 << 20) + b"\n") * (2 * FREE_EXPANSION_SIZE_BYTES >> 20)
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(content, 9))

    found = mistakes(tmp_path, ITEMS + "- from: a.txt.gz\n")

    assert f"{MAX_EXPANSION} times" in found[0].reason


def test_a_row_of_many_lines_is_bounded(tmp_path: Path) -> None:
    """Quotes that are opened in each line do not make one row of the whole file."""
    (tmp_path / "a.csv").write_text("prompt\n" + ('"' + "x" * 1000 + '\n",') * 9000, encoding="utf-8")

    assert "a row of more than 8 MiB" in mistakes(tmp_path, ITEMS + "- from: a.csv\n")[0].reason


def test_half_a_character_at_the_end(tmp_path: Path) -> None:
    """A manifest that was cut inside a character is told where."""
    found = mistakes(tmp_path, (ITEMS + "- abc ").encode() + b"\xe2\x82")

    assert [(one.line, one.column) for one in found] == [(5, 7)]


def test_a_pattern_that_becomes_too_long(tmp_path: Path) -> None:
    """It is refused with the manifest, and not when the paid file is to be named."""
    header = HEADER + "output: {filename: '" + "{a}" * 200 + "{item}.{ext}'}\nitems:\n"

    assert (
        "characters long" in mistakes(tmp_path, header + f"- {{prompt: p, metadata: {{a: {'z' * 110}}}}}\n")[0].reason
    )


@pytest.mark.parametrize(
    "output", ["{filename: '" + "a/" * 16 + "{item}'}", "{dir: " + "/".join(["a" * 240] * 4) * 4 + "}"]
)
def test_paths_that_would_be_too_long(tmp_path: Path, output: str) -> None:
    """So are folders in which a file could not be made."""
    mistakes(tmp_path, HEADER + f"output: {output}\nitems: [p]\n")


def test_an_index_that_runs_into_its_neighbour(tmp_path: Path) -> None:
    """Kind `a1` with index 2 would be named like kind `a` with index 12."""
    found = mistakes(tmp_path, HEADER + "output: {filename: '{k}{index}.{ext}'}\nitems: [p]\n")

    assert "touches another field" in found[0].reason


def test_accents_without_end_in_a_file_name() -> None:
    """Sorting a run of accents takes the square of its length; the beginning of a value is enough."""
    with invariants.patience():
        assert safe_value("\u0301\u0316" * 300_000) != safe_value("\u0301\u0316" * 300_001)


def test_thousands_of_unknown_fields(tmp_path: Path) -> None:
    """Only for the mistakes that are shown is it found out what was meant."""
    unknown = ", ".join(f"promp{number}: 1" for number in range(3_000))

    assert len(mistakes(tmp_path, ITEMS + f"- &e {{{unknown}}}\n" + "- *e\n" * 60)) == 50


def test_thousands_of_unknown_columns(tmp_path: Path) -> None:
    """The same for columns, of which a file may have ten thousand."""
    (tmp_path / "a.csv").write_text(
        ",".join(["prompt", *(f"qcolumn{number}" for number in range(2000))]) + "\n", "utf-8"
    )
    wanted = ", ".join(f"zqcolumn{number}" for number in range(2000))

    assert len(mistakes(tmp_path, ITEMS + f"- {{from: a.csv, metadata: [{wanted}]}}\n")) == 50


def test_a_name_of_the_file_that_no_id_can_have(tmp_path: Path) -> None:
    """Default ids hold no file name, so that any name will do."""
    found = invariants.read(tmp_path, (ITEMS + "- p\n").encode(), name="a" * 220 + ".yaml")

    assert not isinstance(found, InputError)


def test_a_name_that_is_no_text(tmp_path: Path) -> None:
    """Paths that the queue cannot keep are refused by name."""
    with pytest.raises(InputError, match="not UTF-8"):
        open_manifest(os.fsdecode(b"\xff.yaml"), working_dir=tmp_path)


def test_a_picture_with_pictures_behind_it(tmp_path: Path) -> None:
    """What telephones write (MPO) is a JPEG."""
    content = io.BytesIO()
    Image.new("RGB", (2, 2)).save(content, "MPO", save_all=True, append_images=[Image.new("RGB", (2, 2))])
    (tmp_path / "a.jpg").write_bytes(content.getvalue())

    assert Images(tmp_path).get("a.jpg").media_type == "image/jpeg"


def test_a_missing_picture_asked_for_by_a_million_items(tmp_path: Path) -> None:
    """The kept refusal does not grow by being given again."""
    images = Images(tmp_path)
    tracemalloc.start()
    try:
        for _ in range(2_000):
            with pytest.raises(InvalidValue):
                images.get("gone.png")
        kept_size_bytes = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()

    assert kept_size_bytes < 200_000
