"""Manifests nobody would write: told where they are wrong, or taken; never a crash, a hang or a file elsewhere.

`BATCHKILN_FUZZ=50 pytest tests/fuzz` draws fifty times as many, new ones each time.
"""

import gzip
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from batchkiln.core.errors import InputError, OutputDirNotWritable
from batchkiln.outputs import FileSystem
from batchkiln.outputs.paths import place_inside
from fuzz import invariants, manifest_strategies as strategies
from fuzz.manifests import CONDITIONS, TEMPLATES, WORDS


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with all that the manifests name."""
    made = tmp_path_factory.mktemp("ground")
    invariants.furnish(made)
    return made


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty queue, to be copied."""
    return invariants.empty_queue(tmp_path_factory.mktemp("queue") / "template.db")


def check_applied(folder: Path, template: Path, manifest: bytes) -> None:
    """All that is promised of a manifest, on its real way into the queue."""
    with invariants.patience():
        found = invariants.read(folder, manifest)
        queued, error = invariants.applied(folder, "m.yaml", template)
    if isinstance(found, InputError):
        invariants.check_told(found)
    if error is not None:
        invariants.check_told(error)
        return
    assert not isinstance(found, InputError)
    job, placed = found
    assert queued == [(one.spec.name, index) for index, one in enumerate(placed)]
    invariants.check_names(job, [one.spec for one in placed], are_queued=True)


@pytest.mark.long
@strategies.often(90)
@given(manifest=strategies.manifests())
def test_almost_valid_manifests(folder: Path, template: Path, manifest: bytes) -> None:
    """An error names file, line and column, and nothing is enqueued; or all of it is, with files of their own."""
    check_applied(folder, template, manifest)


@strategies.often(80)
@given(manifest=st.one_of(strategies.mutated(), strategies.mutated(), st.binary(max_size=80)))
def test_mutated_manifests(folder: Path, template: Path, manifest: bytes) -> None:
    """As above, for valid manifests that were damaged, and for no manifests at all."""
    check_applied(folder, template, manifest)


@pytest.mark.long
@strategies.often(90)
@given(manifest=strategies.named())
def test_names_of_files(folder: Path, template: Path, manifest: bytes) -> None:
    """Whatever ids and values hold, the files stay below `output.dir`, and no two items get the same one."""
    check_applied(folder, template, manifest)


@strategies.often(60)
@given(source=strategies.rows(), is_packed=st.booleans(), entry=strategies.sources)
def test_rows(
    folder: Path, template: Path, source: tuple[str, bytes], *, is_packed: bool, entry: dict[str, object]
) -> None:
    """Row files of every kind and damage, plain and packed."""
    kind, content = source
    name = f"drawn.{kind}" + (".gz" if is_packed else "")
    (folder / name).write_bytes(gzip.compress(content, 1) if is_packed else content)

    check_applied(
        folder,
        template,
        strategies.written(strategies.HEADER_FIELDS | {"items": [entry | {"from": name}]}, is_plain=False),
    )


@strategies.often(200)
@given(parts=st.lists(st.sampled_from([*TEMPLATES, *CONDITIONS, *WORDS, *strategies.ODD]), max_size=5))
def test_templates_and_conditions(parts: list[str]) -> None:
    """A template gives text within its bound, and a condition an answer; or they say why not."""
    with invariants.patience():
        invariants.check_template("".join(parts))
        invariants.check_condition(" ".join(parts))


def test_a_link_in_the_output_folder_leads_nowhere(tmp_path: Path) -> None:
    """A folder of the pattern that is a link to elsewhere is refused when the file is to be written."""
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "t").symlink_to(tmp_path)
    found = invariants.read(tmp_path, ground_manifest())
    assert not isinstance(found, InputError)

    with pytest.raises(OutputDirNotWritable, match="symbolic link"):
        place_inside(FileSystem(), Path(found[0].output_dir), "t/a.png")


def ground_manifest() -> bytes:
    """A valid manifest whose files go to `out/t/`."""
    return strategies.written(
        strategies.HEADER_FIELDS | {"output": {"dir": "out"}, "items": [{"id": "a", "prompt": "p"}]},
        is_plain=True,
    )
