"""Reading a manifest: what comes of it, and how each mistake is told."""

import io
import json
import re
import time
from pathlib import Path
from typing import Final
from unittest.mock import ANY

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from batchkiln.core.errors import InputError
from batchkiln.core.job import Mode, Order
from batchkiln.manifest import example_manifest, json_schema, open_manifest
from batchkiln.manifest.schema import (
    Budget,
    Header,
    InlineItem,
    ManifestFile,
    MatrixItem,
    Output,
    Settings,
    SourceInput,
    SourceItem,
)
from support.examples import examples

from .manifest_texts import HEADER, HEADER_LINES, mistakes, placed, places, specs

_COMMENTED: Final = re.compile(r"^( *)# (?=(?:- )?[a-z_]+: | {2}[a-z_]+: )", re.MULTILINE)


def test_the_example_runs(tmp_path: Path) -> None:
    """What `init` writes can be read as it is."""
    items = placed(tmp_path, example_manifest())

    assert [one.spec.name for one in items] == ["red-fox", "fox-watercolor", "fox-ink", "owl-watercolor", "owl-ink"]


def test_all_that_the_example_leaves_out_can_be_taken_in(tmp_path: Path) -> None:
    """Uncommenting every line of an example in it gives a valid manifest."""
    (tmp_path / "prompts.csv").write_text("prompt,style\n" + "A fox,plain\n" * 11)
    (tmp_path / "m.yaml").write_text(_COMMENTED.sub(r"\1", example_manifest()), "utf-8")

    manifest = open_manifest("m.yaml", working_dir=tmp_path)
    names = [one.spec.name for one in manifest.items()]

    assert manifest.job.budget_credits_per_day == 200
    assert {"red-fox-4", "row-11", "owl-4", "owl-clip"} <= {*names}


def test_the_example_has_every_field() -> None:
    """What `init` promises: no field has to be looked up elsewhere, except the model's own parameters."""
    models = (Header, Settings, InlineItem, SourceInput, SourceItem, MatrixItem, Budget, Output)
    fields = {field.alias or name for model in models for name, field in model.model_fields.items()}

    assert {name for name in fields if f"{name}:" not in example_manifest()} == set()


def test_header_fields(tmp_path: Path) -> None:
    """Each field of the header arrives, paths made absolute against the working directory."""
    (tmp_path / "m.yaml").write_text(
        "version: 1\njob: a.b-c_1\ndescription: d\nprofile: p\naccounts: [x, y]\norder: pack\n"
        "budget: {credits: 50, credits_per_day: 20}\noutput: {dir: there, filename: '{index:03d}.{ext}'}\nitems: []\n"
    )

    job = open_manifest("m.yaml", working_dir=tmp_path).job

    assert (job.name, job.description, job.profile, job.accounts) == ("a.b-c_1", "d", "p", ("x", "y"))
    assert (job.order, job.budget_credits, job.budget_credits_per_day) == (Order.PACK, 50, 20)
    assert (job.output_dir, job.filename) == (str(tmp_path / "there"), "{index:03d}.{ext}")
    assert job.manifest_path == str(tmp_path / "m.yaml")


def test_defaults_are_merged_field_by_field(tmp_path: Path) -> None:
    """An item's scalars win, parameters and metadata merge by key, and a null parameter removes the default's."""
    head = (
        "version: 1\njob: t\ndefaults:\n  model: a\n  mode: text-to-image\n  priority: 5\n"
        "  parameters: {resolution: 1k, output_format: png}\n  metadata: {x: 1, y: no}\nitems:\n"
    )

    own = "- prompt: p\n  model: b\n  parameters: {output_format: ~, google_search: true}\n  metadata: {x: 2}\n"
    items = placed(tmp_path, head + own)

    spec = items[0].spec
    assert (spec.recipe.model, spec.recipe.mode, spec.recipe.attempts, spec.priority) == ("b", Mode.TEXT_TO_IMAGE, 3, 5)
    assert spec.recipe.parameters == (("google_search", True), ("resolution", "1k"))
    assert spec.metadata == '{"x":2,"y":"no"}'


def test_inline_texts_are_no_templates(tmp_path: Path) -> None:
    """Braces that are no whole template are meant as they stand; a plain text is an item with a default id."""
    first, second = specs(tmp_path, "- 'a {fox}, {{ b'\n- {id: b, prompt: '{% x'}\n")

    assert (first.name, first.prompt) == ("item-1", "a {fox}, {{ b")
    assert second.prompt == "{% x"


def test_keys_after_items_count(tmp_path: Path) -> None:
    """The header is whole wherever `items` stands, and anchors reach across it."""
    items = placed(
        tmp_path,
        "items:\n- {prompt: p, model: &m a}\n- {prompt: q}\n"
        "version: 1\njob: t\ndefaults: {model: *m, mode: text-to-image}\n",
    )

    assert [one.spec.recipe.model for one in items] == ["a", "a"]


def test_repeat_numbers_the_ids(tmp_path: Path) -> None:
    """`repeat` gives ids that end in -1 to -n."""
    assert [spec.name for spec in specs(tmp_path, "- {id: a, prompt: p, repeat: 3}\n")] == ["a-1", "a-2", "a-3"]


def test_standard_input(tmp_path: Path) -> None:
    """`-` reads standard input, with names relative to the working directory."""
    manifest = open_manifest("-", stdin=io.BytesIO((HEADER + "- p\n").encode()), working_dir=tmp_path)

    assert [one.spec.name for one in manifest.items()] == ["item-1"]
    assert manifest.job.manifest_path == "-"


def test_items_can_be_read_twice(tmp_path: Path) -> None:
    """Reading again gives the same."""
    (tmp_path / "m.yaml").write_text(HEADER + "- p\n- q\n")
    manifest = open_manifest("m.yaml", working_dir=tmp_path)

    assert list(manifest.items()) == list(manifest.items())


def test_a_misspelt_file_name_has_a_suggestion(tmp_path: Path) -> None:
    """It is that of a manifest in the same folder."""
    (tmp_path / "birds.yaml").write_text(HEADER + "- p\n")

    with pytest.raises(InputError, match=r"brids.yaml: the manifest cannot be read.*\n +did you mean `birds.yaml`\?"):
        open_manifest("brids.yaml", working_dir=tmp_path)
    with pytest.raises(InputError, match=r"looked for .*other.yaml"):
        open_manifest("other.yaml", working_dir=tmp_path)


def test_mistake_at_shows_the_line(tmp_path: Path) -> None:
    """The queue can name a place that it only knows by file and line."""
    (tmp_path / "m.yaml").write_text(HEADER + "- {id: twice, prompt: p}\n")
    manifest = open_manifest("m.yaml", working_dir=tmp_path)
    (item,) = manifest.items()

    mistake = manifest.diagnostic_at(item.file, item.line, "the id `twice` is taken", "choose another")

    assert str(mistake).startswith("m.yaml:5:3: the id `twice` is taken\n    - {id: twice, prompt: p}")


def test_unknown_field_with_a_suggestion(tmp_path: Path) -> None:
    """A misspelt field is named with what was meant."""
    found = mistakes(tmp_path, HEADER + "- prompt: a\n  promt: b\n")

    assert places(found) == [(6, 3)]
    assert found[0].source_line == "  promt: b"
    assert found[0].remedy == "did you mean `prompt`?"


@pytest.mark.parametrize(
    ("name", "meant"),
    [("resolutoin", "resolution"), ("qualty", "resolution"), ("ratio", "aspect_ratio"), ("format", "output_format")],
)
def test_an_unknown_parameter_with_a_suggestion(tmp_path: Path, name: str, meant: str) -> None:
    """Also for the names that other services use."""
    found = mistakes(tmp_path, HEADER + f"- {{prompt: a, parameters: {{{name}: x}}}}\n")

    assert f"parameters.{name}" in found[0].reason
    assert found[0].remedy == f"did you mean `{meant}`?"


def test_field_of_items_at_the_top_is_sent_to_its_place(tmp_path: Path) -> None:
    """It would otherwise be taken for a mistyped field of the header."""
    found = mistakes(tmp_path, "version: 1\njob: birds\nmodel: epsilon-2\nitems:\n  - prompt: a wren\n")

    assert found[0].remedy == "`model` is a field of items: put it into `defaults`, or into an item"


def test_template_in_an_item_without_variables_is_a_mistake(tmp_path: Path) -> None:
    """Contract 3: an undefined variable is an error, also without any `matrix`: nothing is paid for braces."""
    items = (
        '- {id: "{{ animal }}", prompt: p, mode: text-to-image, model: m}\n- A {% if x %}fox\n- "{a: {b: {c: 1}}}"\n'
        "- {matrix: {x: [1]}, prompt: \"{{ '{{' }} x }}\", mode: text-to-image, model: m}\n"
    )

    found = mistakes(tmp_path, f"version: 1\njob: birds\ndefaults: {{model: m, mode: text-to-image}}\nitems:\n{items}")

    assert places(found) == [(5, 8), (6, 3)]
    assert found[0].reason == "`id` has the template {{ animal }}, and this item has no variables"
    assert found[1].reason == "`prompt` has the template {% if x %}, and this item has no variables"


def test_default_that_an_item_cannot_have_names_the_item(tmp_path: Path) -> None:
    """The place is that of the default, which may be right for all the others."""
    defaults = "defaults:\n  model: epsilon-2\n  mode: text-to-video\n  parameters: {duration_seconds: 5}\n"
    found = mistakes(tmp_path, f"version: 1\njob: birds\n{defaults}items:\n- p\n- {{prompt: p, mode: text-to-image}}\n")

    assert places(found) == [(6, 16)]
    assert found[0].reason == "an image has no `duration_seconds`; the item in line 9 inherits it"
    assert found[0].remedy == "remove it, or set it to null in the item"


@pytest.mark.parametrize(
    ("inherited", "remedy"),
    [
        ("mode: text-to-image", "set `mode: image-to-image` in this item"),
        ("mode: text-to-video, parameters: {duration_seconds: 5}", "set `mode: image-to-video` in this item"),
    ],
)
def test_an_item_with_images_is_told_to_set_its_own_mode(tmp_path: Path, inherited: str, remedy: str) -> None:
    """Another mode in the defaults would change all other items."""
    head = HEADER.replace("mode: text-to-image", inherited)
    found = mistakes(tmp_path, head + "- {id: a, prompt: p}\n- {prompt: p, inputs: [{item: a}]}\n")

    assert places(found) == [(HEADER_LINES + 2, 15)]
    assert "takes no images, and `inputs` names some" in found[0].reason
    assert found[0].remedy == remedy


def test_default_that_no_item_can_have_hides_no_other_mistake(tmp_path: Path) -> None:
    """It is reported once, with the first item that inherits it."""
    head = HEADER.replace("text-to-image", "text-to-image, parameters: {duration_seconds: 5}")
    found = mistakes(tmp_path, head + "- p\n" * 60 + "- {prompt: p, promt: q}\n")

    assert [one.reason.partition(";")[0] for one in found] == ["an image has no `duration_seconds`", ANY]
    assert found[0].reason.endswith(f"; the item in line {HEADER_LINES + 1} inherits it")
    assert "promt" in found[1].reason


@pytest.mark.parametrize(
    ("items", "line", "column", "part"),
    [
        ("- {id: a, id: b, prompt: p}\n", 5, 11, "second time"),
        ("- prompt: 5\n", 5, 11, "must be text"),
        ("- {prompt: p, mode: text-to-vide}\n", 5, 21, "`mode`"),
        ("- {prompt: p, attempts: '3'}\n", 5, 25, "a whole number"),
        ("- {prompt: p, attempts: 21}\n", 5, 25, "`attempts`"),
        ("- {prompt: p, parameters: {resolution: 720}}\n", 5, 40, "must be text"),
        ("- {prompt: p, parameters: {resolutoin: a}}\n", 5, 28, "unknown field `parameters.resolutoin`"),
        ("- {prompt: p, parameters: {duration_seconds: 5}}\n", 5, 28, "no `duration_seconds`"),
        ("- {prompt: p, mode: text-to-video}\n", 5, 21, "needs `parameters.duration_seconds`"),
        ("- {prompt: p, mode: image-to-image}\n", 5, 21, "needs images"),
        ("- {prompt: p, inputs: [https://example.invalid/a.png]}\n", 5, 24, "is a URL"),
        ("- {prompt: p, inputs: [none.png]}\n", 5, 24, "cannot be read"),
        ('- "a\\u0007b"\n', 5, 3, "U+0007"),
        ("- '  '\n", 5, 3, "empty"),
        ("- {id: ' a', prompt: p}\n", 5, 8, "white space"),
        ("- {prompt: p, repeat: 0}\n", 5, 23, "`repeat`"),
        ("- {prompt: p, metadata: {a: .inf}}\n", 5, 25, "infinite"),
        ("- {prompt: p, metadata: {a: 123456789012345678901}}\n", 5, 25, "64 bits"),
        ("- !!python/object:x p\n", 5, 3, "tag"),
        ("- {<<: {a: 1}, prompt: p}\n", 5, 4, "merge keys"),
        ("- &a {prompt: p, metadata: {x: *a}}\n", 5, 32, "inside the value"),
        ("- {prompt: *nobody}\n", 5, 12, "no anchor"),
        ("- [p]\n", 5, 3, "not a list"),
        ("- p\n--- \nb: 1\n", 6, 1, "second document"),
        ("- prompt: 'open\n", 5, 11, "not YAML"),
        ("- prompt: a: b\n", 5, 12, "not YAML"),
        ("- prompt: a\n\tid: b\n", 6, 1, "not YAML"),
        ("- a\x01b\n", 5, 4, "U+0001"),
        ("- {matrix: {a: [1]}, from: x.csv}\n", 5, 4, "not both"),
        ("- {matrix: {a: []}, prompt: p}\n", 5, 16, "matrix"),
        ("- {matrix: {a: [x]}, prompt: '{{ b }}'}\n", 5, 30, "`b` is undefined"),
        ("- {from: none.csv}\n", 5, 10, "not a file"),
        ("- {from: none.xls}\n", 5, 10, "endings"),
    ],
)
def test_each_mistake_has_its_place(tmp_path: Path, items: str, line: int, column: int, part: str) -> None:
    """A mistake names line and column, shows the line, and says what is wrong."""
    found = mistakes(tmp_path, HEADER + items)

    assert [(one.line, one.column) for one in found if part in one.reason] == [(line, column)], found
    assert found[-1].file == "m.yaml"
    shown = (HEADER + items).split("\n")[line - 1].replace("\t", "→").replace("\x01", "\ufffd")
    assert any(one.source_line == shown for one in found)


@pytest.mark.parametrize(
    ("header", "line", "column", "part"),
    [
        ("version: 2\njob: t\nitems: []\n", 1, 10, "`version`"),
        ("job: t\nitems: []\n", 1, 1, "`version` is missing"),
        ("version: 1\njob: a b\nitems: []\n", 2, 6, "`job`"),
        ("version: 1\njob: ..\nitems: []\n", 2, 6, "`job` may not be"),
        ("version: 1\njob: t\nitem: []\n", 3, 1, "unknown field `item`"),
        ("version: 1\njob: t\naccount: a\naccounts: [b]\nitems: []\n", 4, 1, "both"),
        ("version: 1\njob: t\nbudget: {credit: 5}\nitems: []\n", 3, 10, "unknown field `budget.credit`"),
        ("version: 1\njob: t\noutput: {filename: '../{item}'}\nitems: []\n", 3, 21, "output.filename"),
        ("version: 1\njob: t\noutput: {versions: .v2}\nitems: []\n", 3, 20, "lacks {version}"),
        ("version: 1\njob: t\noutput: {versions: '/{version}'}\nitems: []\n", 3, 20, "not usable in a file name"),
        ("version: 1\njob: t\noutput: {versions: '-{version}'}\nitems: []\n", 3, 20, "not usable in a file name"),
        ("version: 1\njob: t\nitems: {}\n", 3, 8, "`items` is a list"),
        ("- a\n", 1, 1, "a mapping of fields"),
    ],
)
def test_mistakes_of_the_header(tmp_path: Path, header: str, line: int, column: int, part: str) -> None:
    """A header that is wrong is refused, with the place."""
    found = mistakes(tmp_path, header)

    assert [(one.line, one.column) for one in found if part in one.reason] == [(line, column)], found


def test_all_mistakes_come_at_once_in_the_order_of_the_text(tmp_path: Path) -> None:
    """Reading continues after a mistake; even before a broken end, all mistakes are reported."""
    found = mistakes(tmp_path, "version: 3\njob: '?'\nitems:\n- {promt: a}\n- {prompt: 1}\n- 'open\n")

    assert [one.line for one in found] == sorted(one.line or 0 for one in found)
    assert {one.line for one in found} >= {1, 2, 4, 5}
    assert "not YAML" in found[-1].reason


def test_many_mistakes_are_bounded(tmp_path: Path) -> None:
    """The first fifty are told, the others counted."""
    (tmp_path / "m.yaml").write_text(HEADER + "- {prompt: 1}\n" * 70)

    with pytest.raises(InputError) as caught:
        list(open_manifest("m.yaml", working_dir=tmp_path).items())

    assert (len(caught.value.mistakes), caught.value.omitted) == (50, 20)


def test_a_prompt_of_five_megabytes(tmp_path: Path) -> None:
    """A huge prompt gets a sentence and a short line."""
    found = mistakes(tmp_path, HEADER + f"- id: big\n  prompt: {'x' * 5_000_000}\n")

    assert places(found) == [(6, 11)]
    assert "5,000,000" in found[0].reason
    assert len(found[0].source_line or "") <= 160


def test_an_exploding_alias_is_refused_quickly(tmp_path: Path) -> None:
    """Nested aliases are counted as if they were written out."""
    lines = ["a: &a [x,x,x,x,x,x,x,x,x,x]"]
    names = zip("abcdefgh", "bcdefghi", strict=True)
    lines += [f"{new}: &{new} [{','.join([f'*{old}'] * 10)}]" for old, new in names]
    begun = time.process_time()

    found = mistakes(tmp_path, HEADER + "- prompt: p\n  metadata:\n" + "".join(f"    {line}\n" for line in lines))

    assert "too many values" in found[0].reason
    assert found[0].source_line is not None
    assert time.process_time() - begun < 2


def test_nesting_is_bounded(tmp_path: Path) -> None:
    """Brackets without end are an error at the one too many."""
    found = mistakes(tmp_path, HEADER + "- " + "[" * 500 + "\n")

    assert "levels deep" in found[0].reason
    assert found[0].line == 5


def test_nesting_that_the_parser_itself_refuses(tmp_path: Path) -> None:
    """Some versions of libyaml refuse a thousand brackets before they give the first one."""
    found = mistakes(tmp_path, HEADER + "- " + "[" * 5000 + "\n")

    assert "levels deep" in found[0].reason or "maximum nesting depth" in found[0].reason
    assert "is nested that deeply" in (found[0].remedy or "")
    assert found[0].line == 5


@pytest.mark.parametrize(
    ("raw", "part"),
    [
        (b"version: 1\njob: \xff\n", "0xFF is not UTF-8"),
        ("version: 1\n".encode("utf-16"), "UTF-16"),
        (b"", "empty"),
        (b"# nothing\n", "empty"),
    ],
)
def test_files_that_are_no_manifests(tmp_path: Path, raw: bytes, part: str) -> None:
    """Wrong encodings and empty files are told as such."""
    assert part in mistakes(tmp_path, raw)[0].reason


def test_a_byte_order_mark_at_the_start_is_harmless(tmp_path: Path) -> None:
    """Editors that write one make good manifests."""
    assert len(placed(tmp_path, b"\xef\xbb\xbf" + (HEADER + "- p\n").encode())) == 1


def test_variables_in_file_names(tmp_path: Path) -> None:
    """A pattern that names metadata is filled for each item, and an item without it is a mistake."""
    head = HEADER.replace("items:", "output: {filename: '{kind}/{item}.{ext}'}\nitems:")

    item = placed(tmp_path, head + "- {prompt: p, metadata: {kind: a/b}}\n")[0]
    found = mistakes(tmp_path, head + "- {prompt: p, metadata: {knd: a}}\n")

    assert item.spec.file_name is not None
    assert item.spec.file_name.startswith("a_b~")
    assert item.spec.file_name.endswith("/{item}.{ext}")
    assert places(found) == [(6, 3)]
    assert found[0].remedy == "did you mean `knd`?"


def test_the_schema_is_json_and_names_every_field() -> None:
    """Editors get the same fields that the reader takes."""
    schema = json_schema()

    assert json.loads(json.dumps(schema)) == schema
    assert set(schema["properties"]) == {*Header.model_fields, "items"}  # type: ignore[call-overload]
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert ManifestFile.model_json_schema()


PARTS = (
    *(
        "version: 1\n",
        "job: t\n",
        "items:\n",
        "defaults: {model: a, mode: text-to-image}\n",
        "output: {filename: '{x}'}\n",
    ),
    *(
        "- ",
        "prompt",
        ": ",
        "{{ a }}",
        "matrix: {a: [1]}",
        "from: m.yaml",
        "repeat: 2",
        "metadata: ",
        "where: a",
        "\n",
        "  ",
    ),
    *(
        "&a ",
        "*a",
        "[",
        "]",
        "{",
        "}",
        ",",
        "'",
        '"',
        "|",
        ">",
        "!x ",
        "<<",
        "#",
        "%",
        "? ",
        "---\n",
        "...\n",
        "\t",
        "\u2028",
    ),
    *("\ufeff", "\x00", "from: m.txt", "from: m.csv", "from: m.jsonl"),
)
FRAGMENTS = st.lists(st.sampled_from(PARTS), max_size=25).map("".join)


@settings(max_examples=examples(300), suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    text=st.text() | FRAGMENTS | FRAGMENTS.map(lambda tail: HEADER + tail) | st.binary(),
)
def test_no_text_crashes_the_reader(tmp_path: Path, text: str | bytes) -> None:
    """Whatever a file holds, it gives items or an `InputError`."""
    raw = text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass")
    for name in ("m.txt", "m.csv", "m.jsonl"):
        (tmp_path / name).write_bytes(raw)

    try:
        items = placed(tmp_path, raw)
    except InputError as error:
        told = [str(mistake) for mistake in error.mistakes]
    else:
        told = [one.spec.prompt for one in items]

    assert all(told)


def test_an_image_that_is_missing_hides_no_other_mistake(tmp_path: Path) -> None:
    """All mistakes of the item are reported together, in inline and templated items."""
    bad = "inputs: [nix.png], mode: image-to-image, priority: high"

    found = mistakes(tmp_path, HEADER + f"- {{id: a, prompt: p, {bad}}}\n- {{matrix: {{x: [1]}}, prompt: p, {bad}}}\n")

    assert [("priority" in one.reason, one.line) for one in found] == [(False, 5), (True, 5), (False, 6), (True, 6)]


def test_what_is_wrong_in_the_defaults_is_reported_once(tmp_path: Path) -> None:
    """Not a second time for each item that inherits it."""
    head = HEADER.replace("text-to-image", "text-to-vid")

    assert [one.reason for one in mistakes(tmp_path, head + "- a\n- b\n")] == [
        "`defaults.mode` cannot be `text-to-vid`",
    ]


def test_a_tab_leaves_the_mark_under_its_place(tmp_path: Path) -> None:
    """A tab is shown, by one character."""
    (mistake,) = mistakes(tmp_path, HEADER + "- {id: a,\tprompt: 3}\n")

    assert mistake.source_line == "- {id: a,→prompt: 3}"


def test_the_mark_is_below_its_place_behind_wide_characters(tmp_path: Path) -> None:
    """A terminal gives such a character two columns, and a combining one none."""
    (mistake,) = mistakes(tmp_path, HEADER + '- {prompt: p, id: "日本e\u0301", promt: "x"}\n')

    *_, shown, mark, _ = str(mistake).splitlines()
    assert mistake.column is not None
    assert mark.index("^") == 4 + mistake.column - 1 + 2 - 1
    assert shown[4 + mistake.column - 1 :].startswith("promt")


def test_an_attribute_of_what_a_template_may_not_reach_is_reported_in_plain_words(tmp_path: Path) -> None:
    """No class name of Jinja's."""
    (mistake,) = mistakes(tmp_path, HEADER + '- {matrix: {a: [1]}, prompt: "{{ a.__class__.__mro__ }}"}\n')

    assert "jinja" not in str(mistake)


@pytest.mark.parametrize(
    ("text", "is_partial"),
    [
        (HEADER.replace("job:", "jbo:") + "- prompt: a\n", True),
        (HEADER + "- prompt: a\n- prompt: [b\n", True),
        (HEADER + "- prompt: a\n  promt: b\n", False),
        (HEADER + '- matrix: {a: [b]}\n  prompt: "{{ c }}"\n', True),
    ],
)
def test_mistakes_that_hide_others_say_so(tmp_path: Path, text: str, *, is_partial: bool) -> None:
    """Items of a job without a name are compared with nothing; a syntax error or a wrong template ends the reading."""
    path = tmp_path / "birds.yaml"
    path.write_text(text, "utf-8")

    with pytest.raises(InputError) as error:
        list(open_manifest(str(path), working_dir=tmp_path).items())

    assert error.value.is_partial is is_partial


@pytest.mark.parametrize(
    ("field", "remedy"),
    [
        ("attempts: many", "write digits without quotes, as in `3`"),
        ("attempts: 0", "it must be at least 1"),
        ("review: maybe", "write true or false without quotes"),
        ("metadata: 7", "write names with values, as in `{name: value}`"),
        ("mode: picture", "it must be 'text-to-video', 'image-to-video', 'text-to-image' or 'image-to-image'"),
    ],
)
def test_a_wrong_value_has_a_remedy(tmp_path: Path, field: str, remedy: str) -> None:
    """The values that are possible, or how to write one."""
    found = mistakes(tmp_path, HEADER + f"- prompt: a\n  {field}\n")

    assert [one.remedy for one in found] == [remedy]


@pytest.mark.parametrize("entry", ["prompt: p", 'matrix: {a: [x]}, prompt: "{{ a }}"'])
@pytest.mark.parametrize("word", ["file", "path"])
def test_a_file_behind_a_word_is_told_how_to_be_written(tmp_path: Path, entry: str, word: str) -> None:
    """`inputs: [{file: x.png}]` is a natural guess; the mapping is for what other items make."""
    text = f"{HEADER}- {{{entry}, mode: image-to-image, inputs: [{{{word}: x.png}}]}}\n"

    (mistake,) = mistakes(tmp_path, text)

    assert mistake.reason == f"`inputs[1]`: a file is given by its name alone, without `{word}:`"
    assert mistake.remedy == "write `inputs: [x.png]`"


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("fox.png", b"\x89PNG\r\n\x1a\n", "this is a PNG image, and no manifest"),
        ("owl.mp4", b"\0\0\0\x20ftypisom", "this is a video, and no manifest"),
        ("photo", b"RIFF\x10\0\0\0WEBPVP8 ", "this is a WebP image, and no manifest"),
    ],
)
def test_another_file_in_place_of_a_manifest_is_named(tmp_path: Path, name: str, content: bytes, told: str) -> None:
    """By its first bytes, whatever its name: that a byte is not UTF-8 would help nobody."""
    (tmp_path / name).write_bytes(content)

    with pytest.raises(InputError, match=told):
        open_manifest(name, working_dir=tmp_path)


def test_folder_in_place_of_a_manifest_is_named_with_the_manifest_in_it(tmp_path: Path) -> None:
    """Nothing is run by a guess."""
    (tmp_path / "jobs").mkdir()
    with pytest.raises(InputError, match="this is a folder, and no manifest\n    it has no YAML file"):
        open_manifest("jobs", working_dir=tmp_path)
    (tmp_path / "jobs" / "birds.yaml").write_text(HEADER, "utf-8")

    with pytest.raises(InputError, match=r"give a file in it, such as jobs/birds\.yaml; `batchkiln watch` runs"):
        open_manifest("jobs", working_dir=tmp_path)
