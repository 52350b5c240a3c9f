"""Items from files of rows and from matrices, by templates."""

import gzip
import hashlib
import time
from pathlib import Path

import pytest
from PIL import Image

from batchkiln.core.errors import Diagnostic, InputError
from batchkiln.core.job import InputFile
from batchkiln.manifest import open_manifest

from .manifest_texts import HEADER, HEADER_LINES, mistakes, places, specs


def written(folder: Path, name: str, content: str | bytes) -> Path:
    path = folder / name
    raw = content.encode() if isinstance(content, str) else content
    path.write_bytes(gzip.compress(raw) if name.endswith(".gz") else raw)
    return path


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("p.csv", 'prompt,kind\n"a, ""fox""",x\nowl,y\n'),
        ("p.tsv", 'prompt\tkind\n"a, ""fox"""\tx\nowl\ty\n'),
        ("p.tsv.gz", 'prompt\tkind\r\na, "fox"\tx\r\nowl\ty\r\n'),
        ("p.jsonl", '{"prompt": "a, \\"fox\\"", "kind": "x"}\n\n{"prompt": "owl", "kind": "y"}\n'),
        ("p.csv.gz", '\ufeffprompt,kind\n"a, ""fox""",x\n\nowl,y'),
        ("p.txt", 'a, "fox"\nowl'),
    ],
)
def test_each_kind_of_source(tmp_path: Path, name: str, content: str) -> None:
    """Every format gives the same prompts, with ids from the file's stem."""
    written(tmp_path, name, content)

    items = specs(tmp_path, f"- from: {name}\n")

    assert [one.prompt for one in items] == ['a, "fox"', "owl"]
    assert items[0].name == "p-1"


@pytest.mark.parametrize(
    ("name", "content", "entry", "reason"),
    [
        ("p.csv", "prompt,kind\n", "- from: p.csv", "p.csv has no rows"),
        ("p.txt", "", "- from: p.txt", "p.txt has no rows"),
        (
            "p.csv",
            "prompt,kind\nowl,y\n",
            "- {from: p.csv, where: kind == 'x', limit: 1}",
            "p.csv has no rows that `where` and `limit` would leave",
        ),
        ("p.csv", "prompt\nowl\n", "- {from: p.csv, offset: 1}", "p.csv has no rows that `offset` would leave"),
        (
            "p.csv",
            "",
            "- {prompt: '{{ n }}', matrix: {n: [1, 2]}, where: n > 2}",
            "the matrix has no rows that `where` would leave",
        ),
    ],
)
def test_an_entry_without_rows_is_a_warning(tmp_path: Path, name: str, content: str, entry: str, reason: str) -> None:
    """It makes no item, which a person hardly wants; the warning names the entry's line, each time that it is read."""
    written(tmp_path, name, content)
    (tmp_path / "m.yaml").write_text(HEADER + "- a fox\n" + entry + "\n", "utf-8")
    manifest = open_manifest("m.yaml", working_dir=tmp_path)

    assert [len(list(manifest.items())) for _ in range(2)] == [1, 1]
    assert manifest.warnings == (Diagnostic(reason, "m.yaml", HEADER_LINES + 2),)


@pytest.mark.parametrize("name", ["file", "source"])
def test_an_entry_that_names_its_table_otherwise_is_told_of_from(tmp_path: Path, name: str) -> None:
    """The field is called `from`, which is not near to what people try first."""
    written(tmp_path, "t.csv", "prompt\nowl\n")

    found = mistakes(tmp_path, HEADER + f"- {name}: t.csv\n")

    assert "did you mean `from`?" in [one.remedy for one in found]


@pytest.mark.parametrize("name", ["t.csv", "t.jsonl.gz"])
def test_a_table_in_place_of_a_manifest_is_told_of_the_manifest(tmp_path: Path, name: str) -> None:
    """Nobody guesses from the fields of a manifest that are missing in it."""
    written(tmp_path, name, '{"prompt": "owl"}\n')

    with pytest.raises(InputError) as error:
        open_manifest(name, working_dir=tmp_path)

    (one,) = error.value.mistakes
    assert f"a table is read by a manifest with `from: {name}`" in (one.remedy or "")


def test_packed_rows_may_share_a_long_text(tmp_path: Path) -> None:
    """Prompts that differ in a number only are packed to a hundredth and less of their size."""
    style = "a fox in the snow, at dusk, in oils; " * 40
    path = written(tmp_path, "p.csv.gz", "prompt\n" + "".join(f'"{style}{n}"\n' for n in range(8000)))

    items = specs(tmp_path, "- {from: p.csv.gz, offset: 7999}\n")

    assert len(gzip.decompress(path.read_bytes())) / path.stat().st_size > 100
    assert [one.prompt for one in items] == [f"{style}7999"]


def test_tsv_quotes_are_literal_unless_they_hold_the_field(tmp_path: Path) -> None:
    """A quoted beginning is part of the text, as in prompts that quote a sign."""
    written(tmp_path, "p.tsv", 'prompt\tkind\n"HI" on a wall\tx\n"whole\t"" field"\n')

    found = mistakes(tmp_path, HEADER + "- from: p.tsv\n")

    assert places(found) == [(3, 1)]
    assert found[0].source_line == '"whole→"" field"'
    assert specs(tmp_path, "- {from: p.tsv, limit: 1}\n")[0].prompt == '"HI" on a wall'


def test_templates_fill_every_field(tmp_path: Path) -> None:
    """Prompt, id, settings and metadata may name columns; settings get the type they need."""
    written(tmp_path, "p.csv", "Some name,secs,tag\nfox,5,a\nowl,8,b\n")

    items = specs(
        tmp_path,
        "- from: p.csv\n  prompt: \"A {{ col['Some name'] | upper }}\"\n  id: x-{{ row }}\n  mode: text-to-video\n"
        '  parameters: {duration_seconds: "{{ secs }}"}\n  metadata: {t: "{{ tag }}!", n: 1}\n',
    )

    assert [one.prompt for one in items] == ["A FOX", "A OWL"]
    assert [dict(one.recipe.parameters)["duration_seconds"] for one in items] == [5, 8]
    assert items[1].metadata == '{"n":1,"t":"b!"}'
    assert [one.name for one in items] == ["x-1", "x-2"]


@pytest.mark.parametrize("more", ["", ", limit: 5"])
def test_column_without_a_name_is_no_metadata(tmp_path: Path, more: str) -> None:
    """Two such columns could not be told apart, and none has a name for the metadata."""
    written(tmp_path, "p.tsv", "prompt\t\t\nx\tfirst\tlast\n")

    with pytest.raises(InputError, match="a column without a name cannot be metadata"):
        specs(tmp_path, f'- {{from: p.tsv, metadata: [""]{more}}}\n')


def test_where_then_offset_then_limit(tmp_path: Path) -> None:
    """Rows are chosen first and counted afterwards; `row` stays the number in the file."""
    written(tmp_path, "p.csv", "prompt,n\n" + "".join(f"p{n},{n}\n" for n in range(1, 9)))

    items = specs(tmp_path, "- {from: p.csv, where: n | int is even, offset: 1, limit: 2}\n")

    assert [one.name for one in items] == ["p-4", "p-6"]


def test_matrix_is_an_ordered_product(tmp_path: Path) -> None:
    """The last variable changes fastest; ids default to the values; `where` and `repeat` apply."""
    items = specs(
        tmp_path,
        "- matrix: {a: [x, no], n: [1, 2]}\n  prompt: '{{ a }} {{ n }}'\n"
        "  where: not (a == 'no' and n == 2)\n  repeat: 2\n",
    )

    assert [one.name for one in items] == ["x-1-1", "x-1-2", "x-2-1", "x-2-2", "no-1-1", "no-1-2"]


@pytest.mark.parametrize(
    ("name", "content", "place", "part"),
    [
        ("p.tsv", "Prompt\tkind\nfox\tx\n", (5, 3), "no column `prompt`"),
        ("p.csv", "prompt,a\nfox\n", (2, 1), "1 column, where the header has 2"),
        ("p.csv", "", (None, None), "empty"),
        ("p.csv", b"prompt\nf\xffx\n", (2, 2), "0xFF is not UTF-8"),
        ("p.csv", 'prompt\n"fox\n', (2, 1), "not valid CSV"),
        ("p.csv", "prompt,prompt\n", (1, 1), "twice"),
        ("p.jsonl", '{"prompt": 1}\n{"prompt"}\n', (2, 10), "not valid JSON"),
        ("p.jsonl", "[1]\n", (1, 1), "not a JSON object"),
        ("p.jsonl", '{"prompt": null}\n', (5, 3), "null"),
        ("p.txt.gz", b"no gzip", (None, None), "cannot be read"),
        ("p.txt", "a\x07b\n", (1, 1), "U+0007"),
    ],
)
def test_bad_sources(
    tmp_path: Path, name: str, content: str | bytes, place: tuple[int | None, int | None], part: str
) -> None:
    """Each mistake is reported at its position, in the source or in the manifest that names it."""
    path = tmp_path / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)

    found = mistakes(tmp_path, HEADER + f"- from: {name}\n")

    assert [(one.line, one.column) for one in found if part in one.reason] == [place], found


def test_a_missing_column_names_the_columns(tmp_path: Path) -> None:
    """An undefined variable is an error at the template, and says which variables there are."""
    written(tmp_path, "p.tsv", "Prompt\tkind\nfox\tx\n")

    found = mistakes(tmp_path, HEADER + "- from: p.tsv\n  prompt: '{{ Prompt }} {{ colour }}'\n")

    assert places(found) == [(6, 11)]
    assert found[0].source_line == "  prompt: '{{ Prompt }} {{ colour }}'"
    assert found[0].remedy == "there are: Prompt, kind, row"


def test_a_variable_that_only_some_rows_have(tmp_path: Path) -> None:
    """In JSON lines each row has its own columns; the first row without one is named."""
    written(tmp_path, "p.jsonl", '{"prompt": "a", "x": "1"}\n{"prompt": "b"}\n{"prompt": "c"}\n')

    found = mistakes(tmp_path, HEADER + "- {from: p.jsonl, id: 'i-{{ x }}'}\n")

    assert places(found) == [(5, 23)]
    assert "p.jsonl, line 2" in (found[0].remedy or "")


@pytest.mark.parametrize(
    "template",
    [
        "{{ ''.__class__.__mro__ }}",
        "{{ prompt.__class__ }}",
        "{{ prompt['__class__'] }}",
        "{{ prompt.format(prompt) }}",
        "{{ range(10**9) | join }}",
        "{{ cycler }}",
        "{{ lipsum() }}",
        "{{ self }}",
        "{{ col.items() }}",
        "{{ (col | attr('pop')) }}",
        "{% for a in prompt %}{{ a }}{% endfor %}",
        "{% set x = 1 %}",
        "{% include 'm.yaml' %}",
        "{% import 'm.yaml' as m %}",
        "{% extends 'm.yaml' %}",
        "{% macro m() %}{% endmacro %}",
        "{{ 'a' * 10**9 }}",
        "{{ [1] * 10**9 }}",
        "{{ 10**(10**10) }}",
        "{{ '%999999999s' % prompt }}",
        "{{ 'aaaaaaaaaaaaaaaa' | replace('a', col | string) }}",
        "{{ " + "prompt | replace('', prompt*1) " * 2 + "}}",
        "{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}",
        "{{ prompt",
        "{{ prompt | nofilter }}",
        "{{ 1 / 0 }}",
    ],
)
def test_templates_reach_nothing_and_end(tmp_path: Path, template: str) -> None:
    """Whatever a template tries, the answer is a mistake at its place, and soon."""
    written(tmp_path, "p.csv", "prompt\nfox\n")
    begun = time.process_time()

    found = mistakes(tmp_path, HEADER + "- from: p.csv\n  prompt: " + repr(template).replace('\\"', '"') + "\n")

    assert {one.line for one in found} == {6}
    assert all(one.source_line for one in found)
    assert time.process_time() - begun < 2


def test_replace_cannot_explode(tmp_path: Path) -> None:
    """A chain of replacements is stopped before it fills the memory."""
    written(tmp_path, "p.txt", "a" * 5000 + "\n")
    chain = "prompt" + " | replace('a', prompt)" * 6

    found = mistakes(tmp_path, HEADER + f'- from: p.txt\n  prompt: "{{{{ {chain} }}}}"\n')

    assert "too long" in found[0].reason


def test_inputs_are_examined_once_and_may_be_templates(tmp_path: Path) -> None:
    """An image is known by its bytes, whatever its name says."""
    Image.new("RGB", (4, 3)).save(tmp_path / "a.jpg", format="PNG")
    written(tmp_path, "p.csv", "prompt,file\nfox,a\nowl,a\n")

    items = specs(
        tmp_path,
        "- {from: p.csv, mode: image-to-image, inputs: ['{{ file }}.jpg']}\n"
        "- {prompt: p, mode: image-to-image, inputs: [a.jpg]}\n",
    )

    (image,) = items[0].inputs
    assert isinstance(image, InputFile)
    assert items[0].inputs[0] is items[1].inputs[0]
    assert items[2].inputs == (image,)
    assert image.media_type == "image/png"
    assert image.sha256 == hashlib.sha256((tmp_path / "a.jpg").read_bytes()).hexdigest()
    assert image.path == str(tmp_path / "a.jpg")


@pytest.mark.parametrize(
    ("content", "part"),
    [
        (b"no image", "is not a JPEG"),
        (b"\x89PNG\r\n\x1a\n" + b"\0" * 50, "image"),
        (b"", "is not a JPEG"),
        (b"\0" * ((30 << 20) + 1), "MiB"),
    ],
)
def test_an_image_that_is_none(tmp_path: Path, content: bytes, part: str) -> None:
    """What the service would refuse is refused before anything is sent. Service section 8."""
    (tmp_path / "a.png").write_bytes(content)

    found = mistakes(tmp_path, HEADER + "- {prompt: p, mode: image-to-image, inputs: [a.png]}\n")

    assert part in found[0].reason
    assert places(found) == [(5, 46)]
    assert found[0].source_line == "- {prompt: p, mode: image-to-image, inputs: [a.png]}"


def test_a_truncated_image(tmp_path: Path) -> None:
    """The whole image is decoded, not only its first bytes."""
    Image.effect_noise((64, 64), 50).save(tmp_path / "a.png")
    (tmp_path / "a.png").write_bytes((tmp_path / "a.png").read_bytes()[:1500])

    assert "damaged" in mistakes(tmp_path, HEADER + "- {prompt: p, mode: image-to-image, inputs: [a.png]}\n")[0].reason


@pytest.mark.parametrize("name", ["default", "d"])
def test_a_default_stands_in_for_a_missing_column(tmp_path: Path, name: str) -> None:
    """Under either name of the filter, the column need not exist."""
    written(tmp_path, "p.csv", "prompt\nfox\n")

    items = specs(tmp_path, f"- {{from: p.csv, prompt: \"{{{{ prompt }}}} {{{{ style | {name}('ink') }}}}\"}}\n")

    assert [one.prompt for one in items] == ["fox ink"]
