"""Fuzz the manifest's loader by coverage, with atheris (`pip install batchkiln[fuzz]`).

    python tests/fuzz/manifests.py --seconds 60 --seed 1
    python tests/fuzz/manifests.py --replay findings/KeyError-3f2a…

The first byte of an input chooses what the others go to: the whole loader, a kind of row file, a template, a `where`
expression, or an image (see `TARGETS`). What breaks a promise is written to the folder of findings, one file for each
place in the program that it broke at, and the search goes on.
"""

import argparse
import hashlib
import io
import re
import resource
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Final

MEMORY_MIB: Final = 3072
INPUT_SIZE_BYTES: Final = 4096
HERE: Final = Path(__file__).parent
PATHS: Final = (str(HERE.parents[1] / "src"), str(HERE.parent))

HEADER: Final = "version: 1\njob: t\ndefaults: {model: epsilon-2, mode: text-to-image}\n"
MANIFESTS: Final = (
    HEADER + "items:\n- a fox\n- {id: b, prompt: an owl, priority: 3, repeat: 2, metadata: {k: [1, {z: null}]}}\n",
    HEADER + "output: {dir: out, filename: '{job}/{k}-{item}.{ext}'}\nitems:\n- prompt: p\n  metadata: {k: ../../x}\n",
    HEADER + "items:\n- from: r.csv\n  prompt: '{{ prompt }}'\n  where: a != 'x'\n  offset: 1\n  limit: 2\n"
    "  metadata: [a, b]\n  id: 'i{{ row }}'\n",
    HEADER + "items:\n- from: r.jsonl\n  metadata: {v: '{{ col.a }}'}\n  priority: '{{ row }}'\n- from: r.txt\n",
    HEADER + "items:\n- matrix: {animal: [fox, owl], n: [1, 2.5, true]}\n  prompt: '{{ animal }} {{ n }}'\n"
    "  id: '{{ animal }}-{{ n }}'\n  repeat: 2\n",
    (
        "version: 1\njob: v\nitems:\n- {prompt: p, model: alpha-2.0-pro, mode: text-to-video, attempts: 2,\n"
        "   parameters: {resolution: 720p, duration_seconds: 5, aspect_ratio: 16:9, generate_audio: true}}\n"
    ),
    (
        "version: 1\njob: w\norder: pack\nbudget: {credits: 50, credits_per_day: 5}\naccounts: [a, b]\ndescription: >\n"
        "  folded\nx: &x {resolution: 1k}\nitems:\n- &e {prompt: |\n    p, parameters: *x}\n- *e\n"
    ),
)
ROWS: Final = (
    (b"c", b'prompt,a\none,"x,""y"\n"t\nwo",z\n'),
    (b"t", b'prompt\ta\none\t"x\ty"\n'),
    (b"j", b'{"prompt": "p", "a": [1, 2.5, null, {"b": "\\u00e9"}]}\n{}\n[]\n'),
    (b"x", "\ufeffone\r\n\ntwo\n".encode()),
    (b"g", b"one\ntwo\n"),
)
TEMPLATES: Final = (
    "{{ a }} and {{ b + 1 }}{% if a %}x{% elif b > 2 %}y{% else %}z{% endif %}",
    "{{ a|upper|replace('X', 'yy', 2) ~ c|join(', ') }}{# note #}{% raw %}{{{% endraw %}",
    "{{ d.k|default('-')|title|trim|truncate(3) }} {{ e|round(1, 'ceil')|int }} {{ c[0:2]|length }}",
)
CONDITIONS: Final = ("a == 'x'", "b % 2 == 0 and a in c", "n is none or not d.k is defined", "b is divisibleby 3")
WORDS: Final = (
    *("version: 1", "job: ", "items:", "- ", "prompt: ", "from: ", "matrix: ", "repeat: ", "where: ", "limit: "),
    *("offset: ", "metadata: ", "parameters: ", "defaults: ", "output: ", "filename: ", "dir: ", "inputs: ", "id: "),
    *("&a ", "*a", "<<: ", "!!str ", "!!int ", "%TAG ! x", "---\n", "...\n", "? ", "| ", ">-\n", "0x", ".inf", ".nan"),
    *("{{ ", " }}", "{% if ", "{% endif %}", "{%- ", "|round(", "|trim(", "|replace(", "|join(", "|int", " ~ ", "col"),
    *("is even", "is divisibleby ", " in ", "**", "[0:1]", "row", "{item}", "{index:06d}", "{ext}", "../", "\\x00"),
    *("r.csv", "r.jsonl", "pipe.csv", "folder.csv", "device.csv", "cut.csv.gz", "\\xef\\xbb\\xbf", "\\xe2\\x80\\xa8"),
)


def targets(folder: Path) -> dict[bytes, Callable[[bytes], None]]:
    """What the first byte chooses."""
    from fuzz import invariants  # noqa: PLC0415  instrumented first

    def rows(kind: str) -> Callable[[bytes], None]:
        return lambda content: invariants.check_rows(folder, content, kind)

    return {
        b"m": lambda content: invariants.check_manifest(folder, content),
        b"c": rows("csv"),
        b"t": rows("tsv"),
        b"j": rows("jsonl"),
        b"x": rows("txt"),
        b"g": rows("txt.gz"),
        b"p": lambda content: invariants.check_template(content.decode("utf-8", "replace")),
        b"w": lambda content: invariants.check_condition(content.decode("utf-8", "replace")),
        b"i": lambda content: invariants.check_image(folder, content),
    }


def seeds() -> list[bytes]:
    """The first inputs: valid ones of each kind."""
    from PIL import Image  # noqa: PLC0415  needed by the seeds alone

    found = [b"m" + text.encode() for text in MANIFESTS]
    found += [kind + content for kind, content in ROWS]
    found += [b"p" + text.encode() for text in TEMPLATES] + [b"w" + text.encode() for text in CONDITIONS]
    for form in ("PNG", "JPEG", "WEBP"):
        content = io.BytesIO()
        Image.new("RGB", (3, 2), "teal").save(content, form)
        found.append(b"i" + content.getvalue())
    return found


def tried(content: bytes, chosen: dict[bytes, Callable[[bytes], None]]) -> BaseException | None:
    """Give what an input raises that nothing may raise."""
    from fuzz import invariants  # noqa: PLC0415  instrumented first

    target = chosen.get(content[:1], chosen[b"m"])
    try:
        with invariants.patience():
            target(content[1:])
    except (Exception, invariants.Stuck) as broken:  # noqa: BLE001  any is a finding
        return broken
    return None


def kept(content: bytes, broken: BaseException, findings: Path) -> Path:
    """Write a finding under the name of its place; the first input that broke there is kept."""
    frames = [
        frame
        for frame in traceback.extract_tb(broken.__traceback__)
        if "batchkiln" in frame.filename or "fuzz" in frame.filename
    ]
    where = f"{Path(frames[-1].filename).stem}-{frames[-1].name}" if frames else "nowhere"
    place = f"{frames[-1].filename}:{frames[-1].lineno}" if frames else ""
    path = findings / f"{type(broken).__name__}-{where}-{hashlib.sha256(place.encode()).hexdigest()[:8]}"
    if not path.exists():
        path.write_bytes(content)
        print(f"FINDING {path.name}: {type(broken).__name__}: {str(broken)[:200]}", flush=True)
    return path


def fuzz(options: argparse.Namespace, folder: Path) -> None:
    """Search until the time is over; never returns."""
    import atheris  # noqa: PLC0415  an extra of this command alone

    with atheris.instrument_imports(include=["batchkiln.manifest", "batchkiln.core", "jinja2", "yaml"]):
        from fuzz import invariants  # noqa: PLC0415  instrumented here
    invariants.furnish(folder)
    chosen = targets(folder)

    def one(content: bytes) -> None:
        if options.only:
            letters = options.only.encode()
            content = letters[content[0] % len(letters) :][:1] + content[1:] if content else b""
        broken = tried(content, chosen)
        if broken is not None:
            kept(content, broken, options.findings)

    arguments = [
        *(sys.argv[0], str(options.corpus), f"-dict={options.corpus.parent / 'words.dict'}"),
        *(f"-max_total_time={options.seconds}", f"-max_len={INPUT_SIZE_BYTES}", f"-rss_limit_mb={MEMORY_MIB}"),
        *(f"-artifact_prefix={options.findings}/native-", "-print_final_stats=1", "-timeout=60"),
        *((f"-seed={options.seed}",) if options.seed else ()),
    ]
    atheris.Setup(arguments, one)
    atheris.Fuzz()


def search(options: argparse.Namespace, folder: Path) -> int:
    """Run the search in a process of its own, whose death would be a finding as well; print what came of it."""
    corpus = options.corpus
    corpus.mkdir(parents=True, exist_ok=True)
    options.findings.mkdir(parents=True, exist_ok=True)
    for content in seeds():
        (corpus / hashlib.sha256(content).hexdigest()[:16]).write_bytes(content)
    (corpus.parent / "words.dict").write_text(
        "".join('"' + word.replace("\n", "\\x0a").replace('"', '\\"') + '"\n' for word in WORDS), encoding="utf-8"
    )
    command = [sys.executable, __file__, "--inside", str(folder), "--seconds", str(options.seconds)]
    command += ["--seed", str(options.seed), "--corpus", str(corpus), "--findings", str(options.findings)]
    command += ["--only", options.only]
    covered: list[tuple[str, str]] = []
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    ) as child:
        assert child.stdout is not None
        for line in child.stdout:
            if match := re.match(r"#(\d+)\s.*cov: (\d+)", line):
                covered.append((match[1], match[2]))
            if line.startswith(("FINDING", "stat::", "==", "SUMMARY", "Traceback")) or "Error" in line:
                print(line, end="", flush=True)
    if covered:
        print(f"executions {covered[-1][0]}, coverage {covered[0][1]} -> {covered[-1][1]} edges")
    found = sorted(options.findings.iterdir())
    print(f"{len(found)} findings in {options.findings}; exit status of the search {child.returncode}")
    return 1 if found or child.returncode else 0


def replay(path: Path, folder: Path) -> int:
    """Try one input again, and show what it breaks."""
    from fuzz import invariants  # noqa: PLC0415  not instrumented

    invariants.furnish(folder)
    broken = tried(path.read_bytes(), targets(folder))
    if broken is None:
        print("nothing is broken by it")
        return 0
    traceback.print_exception(broken)
    return 1


def main() -> int:
    """Read the arguments, and search or replay."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0, help="0 draws one")
    parser.add_argument("--findings", type=Path, default=Path(tempfile.gettempdir()) / "batchkiln-fuzz" / "findings")
    parser.add_argument("--corpus", type=Path, default=Path(tempfile.gettempdir()) / "batchkiln-fuzz" / "corpus")
    parser.add_argument("--only", default="", metavar="LETTERS", help="the targets to choose from, as pw")
    parser.add_argument("--replay", type=Path, metavar="FILE")
    parser.add_argument("--inside", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    sys.path[:0] = PATHS
    if options.inside:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        fuzz(options, options.inside)
    with tempfile.TemporaryDirectory(prefix="batchkiln-fuzz-") as folder:
        return replay(options.replay, Path(folder)) if options.replay else search(options, Path(folder))


if __name__ == "__main__":
    sys.exit(main())
