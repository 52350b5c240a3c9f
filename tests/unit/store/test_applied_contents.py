"""An unchanged manifest is known by what it was read from, and by nothing less."""

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import pytest
from msgspec.structs import replace

from batchkiln.core.catalog_checks import Catalogue
from batchkiln.core.errors import InputError
from batchkiln.core.responses import ModelEntry
from batchkiln.core.states import Event
from batchkiln.manifest import Manifest, open_manifest
from batchkiln.store import apply
from batchkiln.store.apply import ApplyOptions, ApplyReport, apply_manifest
from batchkiln.store.plans import ManifestPlan, Plans
from batchkiln.store.staging import Placed
from support.queue_file import NOW, QueueFile, spec

MANIFEST = """version: 1
job: birds
defaults: {model: epsilon-2, mode: text-to-image, parameters: {resolution: 1024x1024, aspect_ratio: "1:1"}}
items:
  - from: rows.tsv
    prompt: "{{ Prompt }}"
    metadata: [Kind, Number]
"""
ROWS = "Prompt\tKind\tNumber\nan owl\tnight\t1\na crow\tday\t2\nan owl\tnight\t3\n"
CATALOGUE = Catalogue(
    "local",
    {
        "epsilon-2": ModelEntry(
            "epsilon-2",
            frozenset({"text-to-image", "image-to-image"}),
            frozenset({"1024x1024", "2048x2048"}),
            frozenset({"1:1", "16:9"}),
            frozenset(),
            None,
            None,
        )
    },
)


@dataclass
class Folder:
    """A manifest with its source, and the queue that it is applied to."""

    path: Path
    queue: QueueFile
    catalogue: Catalogue | None = None
    text: str = MANIFEST
    was_read: bool = field(default=False)

    def write(self, rows: str = ROWS, *, source: str = "rows.tsv") -> None:
        (self.path / "birds.yaml").write_text(self.text)
        (self.path / source).write_text(rows)

    def apply(self, options: ApplyOptions | None = None, profile: str = "local") -> ApplyReport:
        """Apply the manifest, and note whether its items were read."""
        manifest = open_manifest("birds.yaml", working_dir=self.path)
        return apply_manifest(
            self.queue.connection,
            manifest.job,
            self._noted(manifest.items(self.catalogue)),
            profile=profile,
            now=NOW,
            options=options or ApplyOptions(),
            diagnostic_at=manifest.diagnostic_at,
            contents=manifest.contents(self.catalogue),
        )

    def plan(self) -> ManifestPlan:
        manifest = open_manifest("birds.yaml", working_dir=self.path)
        return Plans(self.queue.connection).compare(
            manifest.job,
            self._noted(manifest.items(self.catalogue)),
            profile="local",
            account="main",
            day=datetime(1970, 1, 1, tzinfo=UTC),
            options=ApplyOptions(),
            diagnostic_at=manifest.diagnostic_at,
            contents=manifest.contents(self.catalogue),
        )

    def _noted(self, items: Iterable[Placed]) -> Iterator[Placed]:
        self.was_read = True
        yield from items

    def is_read_again(self, options: ApplyOptions | None = None) -> bool:
        self.was_read = False
        self.apply(options)
        return self.was_read


@pytest.fixture
def folder(tmp_path: Path, queue: QueueFile) -> Folder:
    """Return a manifest that has been applied."""
    found = Folder(tmp_path, queue)
    found.write()
    found.apply()
    return found


def test_unchanged_manifest_is_not_read_again(folder: Folder) -> None:
    """Report, digest and history are those of a reading."""
    folder.queue.connection.execute("UPDATE applied_contents SET content = NULL")
    read = folder.apply(ApplyOptions(dry_run=True))
    assert folder.is_read_again()

    assert not folder.is_read_again(ApplyOptions(agreed=read.digest))
    assert folder.apply(ApplyOptions(dry_run=True)) == read
    assert folder.apply(ApplyOptions(dry_run=True)).digest == read.digest
    assert (read.new, read.known) == (0, 3)
    assert folder.queue.kinds() == ["job_created", *["manifest_applied"] * 3]
    assert folder.queue.one("SELECT detail FROM event WHERE id = 4") == folder.queue.one(
        "SELECT detail FROM event WHERE id = 3"
    )


def test_plan_of_an_unchanged_manifest_is_that_of_a_reading(folder: Folder) -> None:
    """Counts, questions and equal requests do not depend on the way."""
    folder.was_read = False
    short = folder.plan()
    assert not folder.was_read

    folder.queue.connection.execute("UPDATE applied_contents SET content = NULL")
    assert replace(folder.plan(), durations=short.durations) == short
    assert folder.was_read
    assert short.equal_requests == (1, (("rows-3", "rows-1"),))


def _rows_of_the_same_size(folder: Folder) -> None:
    source = folder.path / "rows.tsv"
    before = source.stat()
    source.write_text(ROWS.replace("crow", "cRow"))
    os.utime(source, ns=(before.st_atime_ns, before.st_mtime_ns))


def _another_prompt_in_the_manifest(folder: Folder) -> None:
    folder.text = MANIFEST.replace("{{ Prompt }}", "{{ Prompt }}!")
    folder.write()


def _catalogue(folder: Folder) -> None:
    folder.catalogue = CATALOGUE


def _item_that_is_rejected(folder: Folder) -> None:
    folder.queue.move("rows-2", Event.NEVER_FITS, code="over_cap")


def _lost_attempt(folder: Folder) -> None:
    folder.queue.connection.execute(
        "INSERT INTO lost_attempt (job, item, profile, account, number, idempotency_key, key_fingerprint, checksum,"
        " quote_credits, recorded_at) VALUES ('birds', 'rows-2', 'local', 'main', 1, 'k', 'f', 0, 5, 0)"
    )


def _manifest_of_the_same_job(folder: Folder) -> None:
    folder.queue.apply([spec("rows-1", prompt="another")])


@pytest.mark.parametrize(
    "change",
    [
        _rows_of_the_same_size,
        _another_prompt_in_the_manifest,
        _catalogue,
        _item_that_is_rejected,
        _lost_attempt,
        _manifest_of_the_same_job,
    ],
)
def test_every_change_is_read(folder: Folder, change: Callable[[Folder], None]) -> None:
    """A source edited without a change of size and time, another catalogue, and states that may change, are read."""
    change(folder)

    assert folder.is_read_again()


def test_missing_source_is_an_error(folder: Folder) -> None:
    """A file that is gone is reported as at the first time."""
    (folder.path / "rows.tsv").unlink()

    with pytest.raises(InputError, match=r"rows\.tsv` is not a file"):
        folder.apply()


def test_changed_source_is_refused_after_a_person_agreed(folder: Folder) -> None:
    """What was confirmed is compared with what is there, read or not."""
    agreed = folder.apply(ApplyOptions(dry_run=True)).digest
    folder.write(ROWS.replace("crow", "jay"))

    with pytest.raises(InputError, match="changed after the cost was shown"):
        folder.apply(ApplyOptions(agreed=agreed))


def test_canceled_items_stay_canceled(folder: Folder) -> None:
    """An unchanged manifest queues nothing again, as when it is read."""
    folder.queue.move("rows-2", Event.CANCEL_REQUESTED)

    report = folder.apply()

    assert (report.known, report.missing, report.requeued) == (3, 0, 0)
    assert folder.queue.names("canceled") == ["rows-2"]


def test_catalogue_is_equal_in_each_process(folder: Folder) -> None:
    """The order of a set differs from process to process, and is not part of the key."""
    folder.catalogue = CATALOGUE
    assert folder.is_read_again()
    entry = CATALOGUE.models["epsilon-2"]
    turned = replace(entry, modes=frozenset(sorted(entry.modes, reverse=True)))
    folder.catalogue = Catalogue("local", {entry.id: turned})

    assert not folder.is_read_again()


def test_another_profile_is_compared(folder: Folder) -> None:
    """The profile decides about prices and budgets."""
    folder.was_read = False
    folder.apply(profile="other")

    assert folder.was_read


@pytest.mark.parametrize(
    "entry",
    [
        "    limit: 2\n",  # the rest of the source is not read, so its end is unknown
        '    review: "{{ 1 == 1 }}"\n    where: Number == "9"\n',
    ],
)
def test_reading_that_leaves_something_open_is_not_recorded(folder: Folder, entry: str) -> None:
    """A source that was not read whole, and a warning, are read each time."""
    folder.text = MANIFEST + entry
    folder.write()
    folder.apply()

    assert folder.is_read_again()


def test_differing_item_is_not_recorded(folder: Folder) -> None:
    """A manifest that changes items is recorded when it is applied again without a difference."""
    folder.write(ROWS.replace("crow", "jay"))

    assert folder.is_read_again()
    assert folder.is_read_again()
    assert not folder.is_read_again()
    assert folder.queue.item("rows-2")["prompt"] == "a jay"


def test_manifest_without_some_items_is_not_recorded(folder: Folder) -> None:
    """Items that are no longer in the manifest are told each time."""
    folder.write(ROWS.replace("an owl\tnight\t3\n", ""))

    assert [folder.apply().missing for _ in range(3)] == [1, 1, 1]


def test_done_item_with_another_priority_is_not_recorded(folder: Folder) -> None:
    """What a done item no longer uses, it uses again if it is made again."""
    folder.queue.finish("rows-2")
    assert not folder.is_read_again()
    folder.text = MANIFEST + "    priority: 1\n"
    folder.write()
    folder.apply()

    assert [folder.is_read_again() for _ in range(3)] == [True, True, True]


def test_another_process_that_applies_meanwhile_leaves_no_record(folder: Folder, tmp_path: Path) -> None:
    """Only who was alone from the comparison to the end may say what the items were read from."""
    other = QueueFile(tmp_path / "queue.db")
    folder.write(ROWS + "a jay\tday\t4\n")
    manifest = open_manifest("birds.yaml", working_dir=tmp_path)

    def items() -> Iterator[Placed]:
        yield from manifest.items()
        other.apply([spec("rows-1", prompt="another")])

    apply_manifest(
        folder.queue.connection,
        manifest.job,
        items(),
        profile="local",
        now=NOW,
        options=ApplyOptions(),
        diagnostic_at=manifest.diagnostic_at,
        contents=manifest.contents(),
    )
    other.connection.close()

    assert folder.queue.one("SELECT content FROM applied_contents") is None
    assert folder.is_read_again()


def test_kill_between_the_transactions_leaves_no_record(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    """The record is taken away with the first change, and comes back with the last transaction."""
    folder.write(ROWS + "a jay\tday\t4\na tit\tday\t5\n")
    monkeypatch.setattr(apply, "ITEMS_AT_ONCE", 1)

    class PowerCutError(Exception):
        pass

    def cut(*_: object, **__: object) -> None:
        raise PowerCutError

    monkeypatch.setattr(apply, "log_job_event", cut)
    with pytest.raises(PowerCutError):
        folder.apply()
    monkeypatch.undo()

    assert folder.queue.one("SELECT content FROM applied_contents") is None
    assert folder.is_read_again()
    assert not folder.is_read_again()


def test_rows_that_are_stored_together_are_as_those_stored_one_by_one(tmp_path: Path, folder: Folder) -> None:
    """The way changes neither the items nor the counts, and equal requests are found across both."""
    other = QueueFile(tmp_path / "other.db")
    folder.text = MANIFEST + "  - {id: once, prompt: an owl}\n"
    folder.write()
    folder.apply()
    manifest = open_manifest("birds.yaml", working_dir=tmp_path)
    together = apply_manifest(
        other.connection,
        manifest.job,
        manifest.portions(),
        profile="local",
        now=NOW,
        options=ApplyOptions(),
        diagnostic_at=manifest.diagnostic_at,
        contents=manifest.contents(),
    )
    columns = "name, position, prompt, metadata, priority, inputs, file_name, recipe_id"
    stored = f"SELECT {columns} FROM item ORDER BY position"

    assert together.new == 4
    assert other.all(stored) == folder.queue.all(stored)
    assert other.all("SELECT state, n FROM rest_tally") == folder.queue.all("SELECT state, n FROM rest_tally")
    assert other.one("SELECT equal_requests FROM applied_contents") == '[2, [["rows-3", "rows-1"], ["once", "rows-1"]]]'
    other.check()
    other.connection.close()


def apply_whole(queue: QueueFile, manifest: Manifest) -> None:
    """Apply all portions of a manifest, without what was recorded of it before."""
    apply_manifest(
        queue.connection,
        manifest.job,
        manifest.portions(),
        profile="local",
        now=NOW,
        options=ApplyOptions(),
        diagnostic_at=manifest.diagnostic_at,
    )


def test_two_entries_with_the_same_ids_are_refused(tmp_path: Path, queue: QueueFile) -> None:
    """Ids of the rows' numbers differ within an entry, and not from those of another entry for the same file."""
    folder = Folder(tmp_path, queue, text=MANIFEST + MANIFEST.partition("items:\n")[2])
    folder.write()
    manifest = open_manifest("birds.yaml", working_dir=tmp_path)

    with pytest.raises(InputError, match=r"rows\.tsv:2:1: several items here have the id 'rows-1'"):
        apply_whole(queue, manifest)
    assert queue.all("SELECT * FROM job") == []


@pytest.mark.parametrize("row", ['a "jay"\tday\t4', "a jay\tda\\y\t4"])
def test_id_that_a_row_takes_from_an_item_is_refused(tmp_path: Path, queue: QueueFile, row: str) -> None:
    """An item beside the rows may have the id of a row, also of one that is read alone."""
    folder = Folder(tmp_path, queue, text=MANIFEST + "  - {id: rows-4, prompt: an owl}\n")
    folder.write(f"{ROWS}{row}\n")
    manifest = open_manifest("birds.yaml", working_dir=tmp_path)

    with pytest.raises(InputError, match=r"the id 'rows-4' is already used at rows\.tsv:5"):
        apply_whole(queue, manifest)
