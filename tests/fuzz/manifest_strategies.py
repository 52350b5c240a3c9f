"""Strategies: manifests that are almost valid, their row files, and mutations of both."""

import json
import os
from typing import Any, Final

import yaml
from hypothesis import HealthCheck, settings, strategies as st

from fuzz.manifests import MANIFESTS, WORDS

ODD: Final = (
    *(
        "..",
        ".",
        "../../etc/passwd",
        "/abs/olute",
        "C:\\x",
        "a\\..\\b",
        "CON",
        "nul.txt",
        "com1",
        "~",
        "x~aaaaaaaaaaaa",
    ),
    *(
        "Fox",
        "fox",
        " lead",
        "trail.",
        "trail ",
        "a" * 300,
        "e\u0301",
        "\xe9",
        "\ufb01",
        "\u202egnp",
        "\u2028",
        "\ufeff",
    ),
    *(
        "{item}",
        "{{ a }}",
        "{% if a %}",
        "{",
        "}}",
        "%s",
        "%",
        "",
        "\x00",
        "\x1b[2J",
        "\r",
        "\U0001f98a",
        "\u0301\u0316",
    ),
    *(
        "a/b",
        "//",
        "a-1",
        "a",
        "1",
        "-",
        "no",
        "16:9",
        "0x10",
        "1e999",
        "null",
        "&a",
        "*a",
        "<<",
        "a: b",
        "# c",
        "'",
        '"',
    ),
)
HEADER_FIELDS: Final = {"version": 1, "job": "t", "defaults": {"model": "epsilon-2", "mode": "text-to-image"}}
FIELDS: Final = (
    *("id", "prompt", "model", "mode", "parameters", "inputs", "max_cost_credits", "attempts", "priority", "metadata"),
    *("repeat", "from", "matrix", "where", "limit", "offset", "output", "budget", "accounts", "job", "version"),
)
FILES: Final = (
    *("r.csv", "r.tsv", "r.jsonl", "r.txt", "r.csv.gz", "cut.csv.gz", "bad.csv", "empty.csv", "folder.csv", "pipe.csv"),
    *("loop.csv", "device.csv", "linked.csv", "gone.csv", "r.yaml", "../r.csv", "x" * 300 + ".csv"),
)
PIECES: Final = (
    "{job}",
    "{item}",
    "{index}",
    "{index:04d}",
    "{output}",
    "{model}",
    "{k}",
    "-",
    "/",
    "_",
    "a",
    ".",
    "1",
)


def often(examples: int) -> settings:
    """So many examples, always the same; `BATCHKILN_FUZZ=50` draws fifty times as many, new ones each time."""
    factor = int(os.environ.get("BATCHKILN_FUZZ", "0"))
    return settings(
        max_examples=examples * max(factor, 1),
        derandomize=not factor,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )


_IDS: Final = [text for text in ODD if text.isprintable() and 0 < len(text.strip()) == len(text) <= 200]
ids = st.one_of(
    st.sampled_from(_IDS), st.sampled_from(_IDS), st.text("abAB-_.~ \xe91/", min_size=1).map(lambda text: f"a{text}b")
)
odd_texts = st.one_of(st.sampled_from(ODD), st.text(max_size=20))
numbers = st.one_of(
    st.integers(-3, 12),
    st.sampled_from([10**18, -(2**63), 2**63, 2**64, 10**45, 10_000, 1e308, float("nan")]),
    st.floats(),
)
scalars = st.one_of(odd_texts, numbers, st.booleans(), st.none())
trees = st.recursive(
    scalars,
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(odd_texts, inner, max_size=4)),
    max_leaves=8,
)
templates = st.one_of(
    odd_texts,
    st.sampled_from(["{{ prompt }}", "{{ a }}", "{{ row }}", "{{ col['a'] }}", "{{ a|upper ~ row }}", "{{ zz }}"]),
)


@st.composite
def almost(draw: st.DrawFn, fields: dict[str, st.SearchStrategy[Any]]) -> dict[str, Any]:
    """Some of the fields, and now and then one with a value of any kind."""
    entry = draw(st.fixed_dictionaries({}, optional=fields))
    if draw(st.integers(0, 4)) == 0:
        entry[draw(st.sampled_from(FIELDS))] = draw(trees)
    return entry


_shared: Final[dict[str, st.SearchStrategy[Any]]] = {
    "priority": st.integers(-5, 5),
    "repeat": st.integers(1, 3),
    "parameters": st.fixed_dictionaries({}, optional={"resolution": odd_texts, "aspect_ratio": st.just("16:9")}),
}
inline = almost(
    _shared
    | {
        "id": ids,
        "prompt": st.one_of(st.just("p"), ids, odd_texts),
        "metadata": st.dictionaries(odd_texts, trees, max_size=3),
    }
)
sources = almost(
    _shared
    | {
        "prompt": templates,
        "id": templates,
        "where": st.sampled_from(["a != 'x'", "row > 1", "a is even", "a", "col", "1 +", "row % 0"]),
        "limit": st.sampled_from([0, 1, 2, 10**9]),
        "offset": st.sampled_from([0, 1, 10**9]),
        "metadata": st.one_of(
            st.lists(st.sampled_from(["a", "b", "prompt", "col", "row"]), max_size=3), st.just({"k": "{{ a }}"})
        ),
    }
).flatmap(lambda entry: st.sampled_from(FILES).map(lambda name: {"from": name} | entry))
matrices = almost(_shared | {"id": templates, "prompt": templates, "where": st.just("a == b")}).flatmap(
    lambda entry: st.dictionaries(
        st.sampled_from(["a", "b", "prompt", "k"]), st.lists(scalars, max_size=3), min_size=1
    ).map(lambda matrix: {"matrix": matrix} | entry)
)
patterns = st.lists(st.sampled_from(PIECES), min_size=1, max_size=7).map(lambda pieces: "".join(pieces) + ".{ext}")


class _Quoting(yaml.SafeDumper):
    """Writes each text in double quotes, with escapes, so that none is refused for its characters."""


_Quoting.add_representer(str, lambda dumper, text: dumper.represent_scalar("tag:yaml.org,2002:str", text, style='"'))


def written(document: Any, *, is_plain: bool) -> bytes:  # noqa: ANN401  any tree
    """Give a tree as YAML: plain where that is possible, or all texts quoted and escaped."""
    dumper = yaml.SafeDumper if is_plain else _Quoting
    return yaml.dump(document, Dumper=dumper, allow_unicode=is_plain, sort_keys=False).encode("utf-8", "replace")


@st.composite
def manifests(draw: st.DrawFn) -> bytes:
    """A manifest in which little is wrong, or nothing."""
    header = draw(almost({"description": odd_texts, "order": st.just("pack"), "budget": st.just({"credits": 5})}))
    output = draw(st.fixed_dictionaries({}, optional={"dir": odd_texts, "filename": patterns}))
    entries = draw(st.lists(st.one_of(odd_texts, inline, inline, sources, matrices), max_size=4))
    document = HEADER_FIELDS | ({"output": output} if output else {}) | header | {"items": entries}
    return written(document, is_plain=draw(st.booleans()))


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    """A valid manifest with a few bytes cut, doubled or put in."""
    content = draw(st.sampled_from(MANIFESTS)).encode()
    pieces = st.one_of(st.binary(max_size=4), st.sampled_from(WORDS).map(str.encode))
    for _ in range(draw(st.integers(1, 4))):
        begin, length = draw(st.integers(0, len(content))), draw(st.integers(0, 9))
        content = content[:begin] + draw(pieces) + content[begin + length * draw(st.booleans()) :]
    wrapping = draw(st.sampled_from(["", "", "", "bom", "crlf", "utf-16"]))
    if wrapping == "crlf":
        return content.replace(b"\n", b"\r\n")
    if wrapping == "utf-16":
        return content.decode("utf-8", "replace").encode("utf-16")
    return (b"\xef\xbb\xbf" if wrapping else b"") + content


@st.composite
def named(draw: st.DrawFn) -> bytes:
    """A valid manifest that does its worst with the names of files."""
    names = draw(st.lists(ids, min_size=1, max_size=5, unique=True))
    values = st.one_of(odd_texts, st.integers(0, 12).map(str))
    items = [{"id": name, "prompt": "p", "metadata": {"k": draw(values)}} for name in names]
    output = {"dir": draw(st.sampled_from(["out", "../out", "leads/out", "a/../b"])), "filename": draw(patterns)}
    return written(HEADER_FIELDS | {"output": output, "items": items}, is_plain=False)


@st.composite
def rows(draw: st.DrawFn) -> tuple[str, bytes]:
    """The ending and content of a row file: cells of every oddity, and bytes that are no text."""
    kind = draw(st.sampled_from(["csv", "tsv", "jsonl", "txt"]))
    if draw(st.booleans()):
        return kind, draw(st.binary(max_size=60))
    cells = draw(st.lists(st.lists(odd_texts, min_size=1, max_size=3), min_size=1, max_size=4))
    if kind == "jsonl":
        lines = [json.dumps({"prompt": line[0], "a": draw(trees)}, ensure_ascii=draw(st.booleans())) for line in cells]
    else:
        lines = [("," if kind == "csv" else "\t").join(line) for line in [["prompt", "a"], *cells]]
    return kind, draw(st.sampled_from(["\n", "\r\n", "\r"])).join(lines).encode("utf-8", "replace")
