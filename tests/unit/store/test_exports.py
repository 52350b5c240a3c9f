"""What the queue gives to a dataset: rows and shapes, page by page, and nothing that is to stay here."""

import pytest
from msgspec.structs import asdict, replace

from batchkiln.core.errors import InputError
from batchkiln.core.job import Mode
from batchkiln.core.states import Event
from batchkiln.store import exports
from batchkiln.store.exports import Exports
from support.queue_file import JOB, RECIPE, QueueFile, spec


def test_a_row_tells_all_of_an_output(queue: QueueFile) -> None:
    """The request, the file, the generation that gave it, and the metadata."""
    queue.apply([spec("queued"), spec("fox", metadata='{"species":"fox"}')])
    queue.end(queue.send("fox", generation_id="first"), "failed")
    queue.move("fox", Event.GENERATION_FAILED)
    queue.finish("fox", "/out/fox.png")

    (row,) = Exports(queue.connection).rows("birds", below=2)

    assert (row.item, row.index, row.output, row.prompt) == ("fox", 1, 1, "a picture of fox")
    assert (row.path, row.size_bytes, row.sha256, row.media_type) == ("/out/fox.png", 7, "abc", "image/png")
    assert (row.model, row.mode, row.parameters) == ("epsilon-2", Mode.TEXT_TO_IMAGE, {"resolution": "1024x1024"})
    assert (row.generation_id, row.metadata, row.is_video) == ("gen-fox", {"species": "fox"}, False)


def test_rows_come_by_index_whatever_was_done_first(queue: QueueFile, monkeypatch: pytest.MonkeyPatch) -> None:
    """Page after page, without other jobs, and with each output of an item."""
    monkeypatch.setattr(exports, "PAGE", 3)
    names = [f"item-{number}" for number in range(8)]
    queue.apply([spec(name) for name in names])
    queue.apply([spec("elsewhere")], job=replace(JOB, name="other"))
    for name in [*reversed(names), "elsewhere"]:
        queue.finish(name)
    queue.connection.execute(
        "INSERT INTO output (item_id, attempt_id, number, type, path, size_bytes, sha256, media_type, saved_at)"
        " SELECT item_id, attempt_id, 2, type, path || '2', size_bytes, sha256, media_type, saved_at FROM output"
        " WHERE path LIKE '%item-4%'"
    )

    found = [(row.item, row.output) for row in Exports(queue.connection).rows("birds", below=8)]

    assert found == sorted([(name, 1) for name in names] + [("item-4", 2)])


def test_items_of_later_manifests_are_left_for_the_next_export(queue: QueueFile) -> None:
    """Their metadata have not been looked at when their rows would come."""
    queue.apply([spec("first")])
    below = Exports(queue.connection).item_count("birds")
    queue.apply([spec("first"), spec("second")])
    queue.finish("first")
    queue.finish("second")

    assert [row.item for row in Exports(queue.connection).rows("birds", below=below)] == ["first"]
    assert len([*Exports(queue.connection).shapes("birds", below=below)]) == 1


def test_shapes_are_of_all_items_in_their_order(queue: QueueFile, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also of those that are not done: a later export must not find another type."""
    monkeypatch.setattr(exports, "PAGE", 2)
    clip = replace(RECIPE, mode=Mode.TEXT_TO_VIDEO, parameters=(("duration_seconds", 5),))
    queue.apply([spec("a", metadata='{"n":1}'), spec("b"), spec("c", metadata='{"n":"x"}', recipe=clip)])
    queue.finish("b")

    found = [*Exports(queue.connection).shapes("birds", below=3)]

    assert [shape.metadata for shape in found] == [{"n": 1}, {}, {"n": "x"}]
    assert [shape.makes_video for shape in found] == [False, False, True]
    assert found[2].parameters == {"duration_seconds": 5}


def test_a_row_holds_nothing_of_attempts(queue: QueueFile) -> None:
    """Idempotency keys, fingerprints and bodies, which name links, have no business in a dataset. Law 8."""
    queue.apply([spec("fox")])
    queue.finish("fox")

    (row,) = Exports(queue.connection).rows("birds", below=1)

    assert not {"idempotency_key", "key_fingerprint", "body"} & asdict(row).keys()
    assert queue.one("SELECT idempotency_key FROM attempt") not in str(asdict(row))


def test_an_unknown_job_is_reported(queue: QueueFile) -> None:
    """With the one that is near."""
    queue.apply([spec("fox")])

    with pytest.raises(InputError, match="no job 'bird'"):
        Exports(queue.connection).item_count("bird")
