"""Items that are made from others: what the manifest may ask for, how they wait, and how their inputs are filled."""

import json
from typing import Any

import pytest
from msgspec.structs import replace

from batchkiln.core.errors import InputError
from batchkiln.core.job import ItemSpec, Mode, Recipe, SourceRef, VariantGroup
from batchkiln.core.states import Event
from batchkiln.presentation.chained_inputs import stale_text
from batchkiln.store import Decided, operations
from batchkiln.store.apply import ITEMS_AT_ONCE, ApplyOptions
from batchkiln.store.attempts import quote_body
from batchkiln.store.item_sources import stale_items
from batchkiln.store.items import Items
from batchkiln.store.preparations import asset_urls
from batchkiln.store.redo_effects import Outdated
from batchkiln.store.reviews import review
from batchkiln.store.versions import choose_version
from support.queue_file import JOB, NOW, RECIPE, QueueFile, image, spec

CLIP = Recipe("alpha-2.5-lite", Mode.IMAGE_TO_VIDEO, (("duration_seconds", 5),), 1, None, 3)
REMADE = Recipe("epsilon-2", Mode.IMAGE_TO_IMAGE, (), 1, None, 3)


def ref(item: str, output: int = 1, **fields: Any) -> SourceRef:  # noqa: ANN401  any field of the dataclass
    return SourceRef(item, output, file=JOB.manifest_path, line=20, column=5, **fields)


def clip(name: str, *inputs: Any, **fields: Any) -> ItemSpec:  # noqa: ANN401  files and references
    return spec(name, recipe=CLIP, inputs=inputs, **fields)


def remade(name: str, *inputs: Any) -> ItemSpec:  # noqa: ANN401  files and references
    return spec(name, recipe=REMADE, inputs=inputs)


def done(queue: QueueFile, name: str, sha256: str = "a1", number: int = 1) -> int:
    """Bring an item to its end with one file, as a worker does, and give its attempt."""
    attempt_id = queue.send(name, generation_id=f"g-{name}-{sha256}")
    queue.move(name, Event.OUTPUTS_READY)
    queue.connection.execute("UPDATE attempt SET state = 'succeeded', ended_at = ? WHERE id = ?", (NOW, attempt_id))
    queue.connection.execute(
        "INSERT INTO output (item_id, attempt_id, number, type, path, size_bytes, sha256, media_type, saved_at)"
        " VALUES (?, ?, ?, 'image', ?, 10, ?, 'image/png', ?)",
        (queue.item(name)["id"], attempt_id, number, f"/out/{name}-{sha256}.png", sha256, NOW),
    )
    queue.move(name, Event.FILES_SAVED)
    return attempt_id


def inputs_of(queue: QueueFile, name: str) -> list[str | None]:
    """Give the contents of an item's inputs, None where one is still to be made."""
    return [
        None if input_id is None else queue.one("SELECT sha256 FROM input_file WHERE id = ?", input_id)
        for input_id in json.loads(queue.item(name)["inputs"])
    ]


def tally(queue: QueueFile) -> dict[str, int]:
    return dict(queue.all("SELECT state, sum(n) FROM tally WHERE n > 0 GROUP BY state"))


def reasons(error: pytest.ExceptionInfo[InputError]) -> list[str]:
    return [mistake.reason for mistake in error.value.mistakes]


def test_item_waits_until_its_source_is_saved(queue: QueueFile) -> None:
    """It is queued with an open input, and gets the file in the step that makes the source done."""
    queue.apply([spec("still"), clip("clip", ref("still"), image("/b.png", "bb"))])

    assert (queue.item("clip")["state"], queue.item("clip")["open_inputs"]) == ("queued", 1)
    assert queue.item("still")["is_source"] == 1
    assert tally(queue) == {"queued": 1, "waiting": 1}
    attempt_id = done(queue, "still")

    assert inputs_of(queue, "clip") == ["a1", "bb"]
    assert queue.item("clip")["open_inputs"] == 0
    assert queue.item("still")["version_id"] == attempt_id
    assert tally(queue) == {"queued": 1, "done": 1}
    assert queue.all("SELECT made_by, sha256 FROM item_source") == [(attempt_id, "a1")]


def test_source_may_come_later_and_be_a_dependent_itself(queue: QueueFile) -> None:
    """Order does not matter, and one source may have many dependents."""
    queue.apply(
        [clip("clip", ref("second")), remade("second", ref("first")), spec("first"), clip("more", ref("first"))]
    )

    done(queue, "first")

    assert [queue.item(name)["open_inputs"] for name in ("clip", "second", "more")] == [1, 0, 0]
    done(queue, "second", "a2")
    assert inputs_of(queue, "clip") == ["a2"]


def test_source_may_be_in_the_queue_already_and_in_another_job(queue: QueueFile) -> None:
    """A file that is there is given in the transaction that adds the item."""
    queue.apply([spec("still"), spec("later")])
    done(queue, "still")
    other = replace(JOB, name="clips")

    queue.apply([clip("clip", ref("still", job="birds")), clip("waits", ref("later", job="birds"))], job=other)

    assert inputs_of(queue, "clip") == ["a1"]
    assert queue.item("waits")["open_inputs"] == 1
    assert [queue.item(name)["is_source"] for name in ("still", "later")] == [1, 1]
    done(queue, "later", "a2")
    assert inputs_of(queue, "waits") == ["a2"]


def test_equal_reference_is_no_change_whatever_it_was_filled_with(queue: QueueFile) -> None:
    """Applying the same manifest again is the normal way to resume, before and after the source was made."""
    items = [spec("still"), clip("clip", image("/b.png", "bb"), ref("still"))]
    queue.apply(items)

    before = queue.apply(items)
    done(queue, "still")
    after = queue.apply(items)

    assert (before.updated, before.changed_count, after.updated, after.changed_count) == (0, 0, 0, 0)
    assert inputs_of(queue, "clip") == ["bb", "a1"]


def test_changed_reference_is_a_changed_request(queue: QueueFile) -> None:
    """It is taken over while the item was never sent, and refused afterwards."""
    queue.apply([spec("still"), spec("other"), clip("clip", ref("still"))])
    done(queue, "still")
    assert inputs_of(queue, "clip") == ["a1"]

    report = queue.apply([spec("still"), spec("other"), clip("clip", ref("other"))])

    assert report.updated == 1
    assert inputs_of(queue, "clip") == [None]
    assert tally(queue) == {"queued": 1, "waiting": 1, "done": 1}
    done(queue, "other", "a2")
    assert inputs_of(queue, "clip") == ["a2"]
    queue.send("clip", generation_id="g9")
    report = queue.apply([spec("still"), spec("other"), clip("clip", ref("still"))], options=ApplyOptions("keep"))
    assert report.changed == ("clip",)


def test_reference_becomes_a_file_and_a_file_a_reference(queue: QueueFile) -> None:
    """Both are changes of the request."""
    queue.apply([spec("still"), clip("clip", ref("still"))])

    report = queue.apply([spec("still"), clip("clip", image("/b.png", "bb"))])

    assert report.updated == 1
    assert (inputs_of(queue, "clip"), queue.item("clip")["open_inputs"]) == (["bb"], 0)
    assert queue.one("SELECT count(*) FROM item_source") == 0
    assert queue.apply([spec("still"), clip("clip", ref("still"))]).updated == 1
    assert queue.item("clip")["open_inputs"] == 1
    assert queue.apply([spec("still"), spec("clip")]).updated == 1
    assert (queue.item("clip")["inputs"], queue.item("clip")["open_inputs"]) == (None, 0)


def test_known_item_may_be_made_from_a_new_one(queue: QueueFile) -> None:
    """The new one is stored first."""
    queue.apply([clip("clip", image("/b.png", "bb"))])

    queue.apply([clip("clip", ref("still")), spec("still")])

    assert queue.item("clip")["open_inputs"] == 1
    done(queue, "still")
    assert inputs_of(queue, "clip") == ["a1"]


def test_other_settings_leave_filled_inputs_alone(queue: QueueFile) -> None:
    """A new priority or path is no new request."""
    queue.apply([spec("still"), clip("clip", image("/b.png", "bb"), ref("still"))])
    done(queue, "still")

    report = queue.apply([spec("still"), clip("clip", image("/c.png", "bb"), ref("still"), priority=3)])

    assert report.updated == 1
    assert (inputs_of(queue, "clip"), queue.item("clip")["priority"]) == (["bb", "a1"], 3)
    assert queue.item("clip")["open_inputs"] == 0


def test_item_that_returns_to_the_queue_gets_what_its_source_offers_now(queue: QueueFile) -> None:
    """It was canceled while the source was made."""
    queue.apply([spec("still"), clip("clip", ref("still"))])
    queue.move("clip", Event.CANCEL_REQUESTED)
    done(queue, "still")
    assert inputs_of(queue, "clip") == [None]

    queue.move("clip", Event.RETRY_REQUESTED)

    assert inputs_of(queue, "clip") == ["a1"]


def test_redone_source_opens_what_was_not_sent_and_no_more(queue: QueueFile) -> None:
    """What was sent keeps the hash that it was made from."""
    queue.apply([spec("still"), clip("sent", ref("still")), clip("queued", ref("still"))])
    done(queue, "still")
    attempt_id = queue.send("sent", generation_id="g1")
    queue.connection.execute("UPDATE attempt SET state = 'succeeded', ended_at = ? WHERE id = ?", (NOW, attempt_id))

    queue.move("still", Event.REDO_REQUESTED)

    assert (inputs_of(queue, "sent"), inputs_of(queue, "queued")) == (["a1"], [None])
    done(queue, "still", "a2")
    assert (inputs_of(queue, "sent"), inputs_of(queue, "queued")) == (["a1"], ["a2"])


def test_all_bad_references_are_told_at_once_at_their_places(queue: QueueFile) -> None:
    """Nothing is enqueued."""
    with pytest.raises(InputError) as error:
        queue.apply(
            [
                spec("still"),
                clip("a", SourceRef("stil", file=JOB.manifest_path, line=11)),
                clip("b", SourceRef("still", job="brids", file=JOB.manifest_path, line=12)),
                clip("c", SourceRef("c", file=JOB.manifest_path, line=13)),
                clip("d", SourceRef("b", file=JOB.manifest_path, line=14)),
                clip("e", SourceRef("still", choice=2, file=JOB.manifest_path, line=15)),
            ]
        )

    assert [mistake.line for mistake in error.value.mistakes] == [11, 12, 13, 14, 15]
    found = reasons(error)
    assert "'stil', which is neither in this manifest nor in its job" in found[0]
    assert error.value.mistakes[0].remedy == "did you mean 'still'?"
    assert "of the job 'brids', which the queue does not have" in found[1]
    assert "'c' is made from itself" in found[2]
    assert "makes a video" in found[3]
    assert "there is no `choice`" in found[4]
    assert queue.one("SELECT count(*) FROM item") == 0


def test_many_references_of_one_template_are_told_once(queue: QueueFile) -> None:
    """The first is named, the others are counted."""
    with pytest.raises(InputError) as error:
        queue.apply([clip(f"clip-{number}", ref(f"still-{number}")) for number in range(300)])

    assert len(error.value.mistakes) == 1
    assert "'clip-0' is made from 'still-0'" in reasons(error)[0]
    assert "(and 299 more items)" in reasons(error)[0]


def test_circle_is_refused_with_its_members(queue: QueueFile) -> None:
    """Chains beside it are not named."""
    with pytest.raises(InputError) as error:
        queue.apply(
            [
                remade("a", ref("c")),
                remade("b", ref("a")),
                remade("c", ref("b")),
                remade("tail", ref("a")),
                remade("x", ref("y")),
                spec("y"),
            ]
        )

    assert reasons(error) == ["these items are made from each other in a circle: a from c from b from a"]


def test_circle_through_the_queue_is_refused(queue: QueueFile) -> None:
    """The other half is an item of another job."""
    other = replace(JOB, name="other")
    queue.apply([remade("a", image("/b.png", "bb"))])
    queue.apply([remade("b", ref("a", job="birds"))], job=other)

    with pytest.raises(InputError) as error:
        queue.apply([remade("a", ref("b", job="other"))])

    assert reasons(error) == ["these items are made from each other in a circle: a from b from a"]


def test_long_chain_written_backward_is_no_circle(queue: QueueFile) -> None:
    """Also one that is longer than the rounds in SQL."""
    length = 400
    queue.apply([*(remade(f"n-{n}", ref(f"n-{n + 1}")) for n in range(length)), spec(f"n-{length}")])

    assert tally(queue) == {"queued": 1, "waiting": length}


def test_output_that_its_source_does_not_have_is_refused(queue: QueueFile) -> None:
    """Known only once the source is done."""
    queue.apply([spec("still")])
    done(queue, "still")

    with pytest.raises(InputError, match="fewer than 2 outputs"):
        queue.apply([spec("still"), clip("clip", ref("still", 2))])


def test_references_over_several_transactions_are_stored(queue: QueueFile, monkeypatch: pytest.MonkeyPatch) -> None:
    """A dependent may be stored before its source."""
    assert ITEMS_AT_ONCE > 3
    monkeypatch.setattr("batchkiln.store.apply.ITEMS_AT_ONCE", 3)
    count = 10
    stills = [spec(f"still-{n}") for n in range(count)]
    clips = [clip(f"clip-{n}", ref(f"still-{n}")) for n in range(count)]

    queue.apply([*clips[:5], *stills, *clips[5:]])

    assert queue.one("SELECT count(*) FROM item_source") == count
    assert queue.one("SELECT sum(is_source) FROM item") == count
    assert tally(queue) == {"queued": count, "waiting": count}


def test_interrupted_application_is_completed_by_the_same_manifest(queue: QueueFile) -> None:
    """An item whose source was not stored yet waits, and gets it."""
    items = [clip("clip", ref("still")), spec("still")]
    queue.apply(items)
    queue.connection.execute("DELETE FROM item_source")
    queue.connection.execute("UPDATE item SET is_source = 0")

    queue.apply(items)

    done(queue, "still")
    assert inputs_of(queue, "clip") == ["a1"]


def test_plan_reads_references_without_storing_anything(queue: QueueFile) -> None:
    """As every plan."""
    before = queue.dump()

    plan = queue.plan([spec("still"), clip("clip", ref("still"))])

    assert plan.report.new == 2
    assert queue.dump() == before


def test_source_that_is_made_again_and_fails_offers_nothing(queue: QueueFile) -> None:
    """Its earlier files stay, and nothing begins with them."""
    queue.apply([spec("still"), clip("clip", ref("still"))])
    done(queue, "still")
    queue.move("still", Event.REDO_REQUESTED)
    attempt_id = queue.send("still", generation_id="g2")
    queue.connection.execute("UPDATE attempt SET state = 'failed', ended_at = ? WHERE id = ?", (NOW, attempt_id))

    queue.move("still", Event.TRIES_EXHAUSTED, code="generation_failed")

    queue.move("clip", Event.CANCEL_REQUESTED)
    queue.move("clip", Event.RETRY_REQUESTED)
    assert inputs_of(queue, "clip") == [None]
    assert queue.item("clip")["open_inputs"] == 1


def test_item_that_waits_cannot_be_quoted_or_begun(queue: QueueFile) -> None:
    """Not even by a plan from before: an image is not there."""
    queue.apply([spec("still"), clip("clip", ref("still"), image("/b.png", "bb"))])
    queue.connection.execute("INSERT INTO account (profile, name) VALUES ('local', 'main') ON CONFLICT DO NOTHING")
    queue.connection.execute("INSERT INTO asset (account_id, sha256, url, ready_at) VALUES (1, 'bb', 'https://a/1', 0)")
    item_id = queue.item("clip")["id"]

    assert quote_body(queue.connection, item_id, 1) is None
    assert asset_urls(queue.connection, queue.item("clip")["inputs"], 1) is None


def test_item_that_is_made_again_no_longer_is_done_as_before(queue: QueueFile) -> None:
    """Also where its source is being made again, so that its input is open."""
    queue.apply([spec("still"), clip("clip", ref("still"))])
    done(queue, "still")
    done(queue, "clip", "c1")
    queue.move("clip", Event.REDO_REQUESTED)
    queue.move("still", Event.REDO_REQUESTED)
    assert queue.item("clip")["open_inputs"] == 1

    queue.move("clip", Event.REDO_CANCELED, attempt_id=queue.item("clip")["version_id"])

    assert (queue.item("clip")["state"], queue.item("clip")["open_inputs"]) == ("done", 0)


def test_redo_names_what_was_made_from_the_current_files(queue: QueueFile) -> None:
    """With its price: what is queued takes the new file, and what was made from an earlier one is stale already."""
    group = VariantGroup("hero", 1)
    variants = [spec(name, group=group) for name in ("hero-1", "hero-2")]
    queue.apply(
        [
            spec("still"),
            clip("clip", ref("still")),
            clip("queued", ref("still")),
            *variants,
            clip("hero-clip", ref("hero", choice=1)),
        ]
    )
    queue.quote(50)
    for name in ("still", "hero-1", "hero-2"):
        done(queue, name)
    review(queue.connection, JOB.name, {"hero-1": None}, Decided.KEEP, by="me", now=NOW)
    for name in ("clip", "hero-clip"):
        done(queue, name)

    found = {
        name: operations.preview_redo(queue.connection, JOB.name, names).effects.outdated
        for name, names in {
            "still": ["still"],
            "kept": ["hero-1"],
            "other": ["hero-2"],
            "both": ["still", "hero-1", "hero-2"],
            "with it": ["still", "clip"],
        }.items()
    }

    assert found == {
        "still": Outdated(1, "clip", 50, 0),
        "kept": Outdated(1, "hero-clip", 50, 0),
        "other": None,
        "both": Outdated(2, "clip", 100, 0),
        "with it": None,
    }


def made_from(queue: QueueFile, name: str) -> tuple[list[str], list[str | None], bool, int]:
    """Give the images that an item's files were made from, twice, and whether it is stale, alone and in its job."""
    items = Items(queue.connection)
    item_id = queue.item(name)["id"]
    (item,) = items.of_ids([item_id])
    files = [file.sha256 for _, file in items.inputs_of(item_id)]
    return files, [each.sha256 for each in item.sources], item.is_stale, len(stale_items(queue.connection, 1))


def choose(queue: QueueFile, name: str, version: int) -> None:
    choose_version(queue.connection, JOB.name, name, version, NOW)


def redone(queue: QueueFile, name: str, sha256: str) -> None:
    if queue.item(name)["state"] == "done":
        queue.move(name, Event.REDO_REQUESTED)
    queue.finish(name, f"/out/{name}-{sha256}.png", sha256=sha256)


def test_version_is_stale_by_what_it_was_made_from_itself(queue: QueueFile) -> None:
    """Whichever version of the item and of its source is in use, and however often that changes."""
    queue.apply([spec("still"), clip("clip", ref("still"))])
    redone(queue, "still", "a1")
    redone(queue, "clip", "c1")
    assert made_from(queue, "clip") == (["a1"], ["a1"], False, 0)
    redone(queue, "still", "a2")
    assert made_from(queue, "clip") == (["a1"], ["a1"], True, 1)
    redone(queue, "clip", "c2")
    assert made_from(queue, "clip") == (["a2"], ["a2"], False, 0)

    choose(queue, "clip", 1)
    assert made_from(queue, "clip") == (["a1"], ["a1"], True, 1)
    choose(queue, "still", 1)
    assert made_from(queue, "clip") == (["a1"], ["a1"], False, 0)
    choose(queue, "clip", 2)
    assert made_from(queue, "clip") == (["a2"], ["a2"], True, 1)
    redone(queue, "clip", "c3")
    assert made_from(queue, "clip") == (["a1"], ["a1"], False, 0)
    choose(queue, "clip", 2)
    assert made_from(queue, "clip") == (["a2"], ["a2"], True, 1)
    sources = Items(queue.connection).by_name(JOB.name, "clip").sources
    assert [(source.made_from, source.version) for source in sources] == [("still", 2)]
    assert stale_text(sources, JOB.name) == "stale: it was made from another version of still"


def test_given_up_redo_leaves_what_the_files_were_made_from(queue: QueueFile) -> None:
    """Canceled before it was sent or failed after, and also while the source is being made again."""
    queue.apply([spec("still"), clip("clip", ref("still"))])
    for name in ("still", "clip"):
        redone(queue, name, f"{name}-1")
    queue.move("clip", Event.REDO_REQUESTED)
    redone(queue, "still", "still-2")
    assert made_from(queue, "clip") == (["still-2"], ["still-2"], False, 0)  # what it is made from next

    operations.cancel(queue.connection, JOB.name, ["clip"], NOW)
    assert made_from(queue, "clip") == (["still-1"], ["still-1"], True, 1)
    queue.move("clip", Event.REDO_REQUESTED)
    queue.refuse("clip")
    assert made_from(queue, "clip") == (["still-1"], ["still-1"], True, 1)
    operations.retry(queue.connection, JOB.name, ["clip"], NOW)
    queue.move("still", Event.REDO_REQUESTED)
    operations.cancel(queue.connection, JOB.name, ["clip"], NOW)
    assert made_from(queue, "clip") == (["still-1"], ["still-1"], False, 0)  # nothing else is offered yet


def test_version_keeps_its_inputs_when_the_manifest_names_others(queue: QueueFile) -> None:
    """Files and items, and nothing is kept of items whose inputs stay the same."""
    first = [spec("still"), spec("other"), remade("item", ref("still")), remade("file", image("/a.png", "aa"))]
    queue.apply([*first, remade("same", image("/b.png", "bb")), spec("none")])
    for name in ("still", "other", "item", "file", "same", "none"):
        redone(queue, name, f"{name}-1")
    redo = ApplyOptions(on_change="redo")
    changed = [remade("item", ref("other")), remade("file", image("/a.png", "cc"))]
    again = replace(RECIPE, parameters=(("resolution", "512x512"),))
    queue.apply([*first[:2], *changed, remade("same", image("/c.png", "bb")), spec("none", recipe=again)], options=redo)
    for name in ("item", "file", "none"):
        redone(queue, name, f"{name}-2")
    assert [made_from(queue, name)[0] for name in ("item", "file", "same")] == [["other-1"], ["cc"], ["bb"]]

    for name in ("item", "file", "none"):
        choose(queue, name, 1)
    assert [made_from(queue, name)[0] for name in ("item", "file", "none")] == [["still-1"], ["aa"], []]
    assert queue.one("SELECT count(*) FROM version_inputs") == 2
    sources = Items(queue.connection).by_name(JOB.name, "item").sources
    assert stale_text(sources, JOB.name) == "stale: it was made from still, and is to be made from other now"
    versions = Items(queue.connection).detail(JOB.name, "file").versions
    assert [[file.sha256 for file in version.inputs] for version in versions] == [["aa"], ["cc"]]
