"""The result that applying a manifest would have (contract, section 4: `plan`)."""

from msgspec.structs import replace

from batchkiln.core.job import Mode, SourceRef
from batchkiln.core.selection import Selection
from batchkiln.core.states import ItemState
from batchkiln.store.apply import ApplyOptions
from batchkiln.store.plans import CHANGES_SHOWN, Change, ChangeKind, ManifestPlan, Uploads
from support.queue_file import JOB, RECIPE, QueueFile, capped, image, spec

CLIP = replace(RECIPE, model="alpha-2.5-lite", mode=Mode.TEXT_TO_VIDEO)
FROM_IMAGE = replace(RECIPE, mode=Mode.IMAGE_TO_IMAGE, inputs_count=1)


def queued(plan: ManifestPlan) -> dict[str, int]:
    return {entry.model: entry.count for entry in plan.counts if entry.state is ItemState.QUEUED}


def of_kind(plan: ManifestPlan, kind: ChangeKind) -> list[Change]:
    return [change for change in plan.changes if change.kind is kind]


def test_planning_changes_nothing(queue: QueueFile) -> None:
    """The queue file is unchanged to the byte after any plan."""
    queue.apply([spec("fox"), spec("owl")])
    before = queue.dump()

    queue.plan([spec("fox", prompt="another"), spec("heron", recipe=CLIP)], options=ApplyOptions(prune=True))

    assert queue.dump() == before


def test_a_new_job_is_planned_whole(queue: QueueFile) -> None:
    """All items are new, counted by recipe and named up to a bound."""
    plan = queue.plan([spec(f"fox-{number}") for number in range(30)] + [spec("owl", recipe=CLIP)])

    assert plan.numbers[ChangeKind.NEW] == 31
    assert queued(plan) == {"epsilon-2": 30, "alpha-2.5-lite": 1}
    assert [change.item for change in plan.changes] == [f"fox-{number}" for number in range(CHANGES_SHOWN)]


def test_changed_fields_are_named(queue: QueueFile) -> None:
    """Those of the request, the settings, and the metadata."""
    queue.apply([spec("fox"), spec("owl"), spec("heron"), spec("same")])

    plan = queue.plan(
        [
            spec("fox", prompt="other", recipe=replace(RECIPE, parameters=(("resolution", "512x512"),))),
            spec("owl", priority=3, recipe=capped(9)),
            spec("heron", metadata='{"a":"b"}'),
            spec("same"),
        ]
    )

    assert {change.item: change.fields for change in of_kind(plan, ChangeKind.UPDATED)} == {
        "fox": ("prompt", "parameters"),
        "owl": ("priority", "max_cost_credits"),
        "heron": ("metadata",),
    }
    assert (plan.numbers[ChangeKind.UPDATED], plan.report.known) == (3, 4)


def test_an_item_that_was_sent_and_changed_is_refused_with_its_fields(queue: QueueFile) -> None:
    """The plan succeeds, and shows the error that `run` would report."""
    queue.apply([spec("fox")])
    queue.finish("fox")

    plan = queue.plan([spec("fox", prompt="other")])

    assert plan.changes == (Change(ChangeKind.REFUSED, "fox", ItemState.DONE, ("prompt",)),)
    assert queued(plan) == {}


def test_what_left_the_manifest_is_left_alone_or_pruned(queue: QueueFile) -> None:
    """--prune cancels what was never sent, and the plan counts it no more."""
    queue.apply([spec("fox"), spec("owl"), spec("heron")])
    queue.finish("heron")

    kept = queue.plan([spec("fox")])
    pruned = queue.plan([spec("fox")], options=ApplyOptions(prune=True))

    assert [change.item for change in of_kind(kept, ChangeKind.LEFT_ALONE)] == ["owl", "heron"]
    assert queued(kept) == {"epsilon-2": 2}
    assert [change.item for change in of_kind(pruned, ChangeKind.PRUNED)] == ["owl"]
    assert [change.item for change in of_kind(pruned, ChangeKind.LEFT_ALONE)] == ["heron"]
    assert queued(pruned) == {"epsilon-2": 1}


def test_an_item_that_a_raised_cap_brings_back_is_reported_with_why_it_had_ended(queue: QueueFile) -> None:
    """It is counted once, as queued again."""
    queue.apply([spec("fox", recipe=capped(4))])
    queue.quote(5)
    queue.never_fits("fox", "over_cap")

    plan = queue.plan([spec("fox", recipe=capped(6))])

    assert plan.changes == (Change(ChangeKind.REQUEUED, "fox", ItemState.REJECTED, reason="over_cap"),)
    assert plan.numbers[ChangeKind.UPDATED] == 0
    assert queued(plan) == {"epsilon-2": 1}


def test_a_rejected_item_with_another_request_is_reported_with_its_fields(queue: QueueFile) -> None:
    """A request that the service refused may be mended."""
    queue.apply([spec("fox")])
    queue.refuse("fox")

    plan = queue.plan([spec("fox", prompt="a better one")])

    assert plan.changes == (Change(ChangeKind.REQUEUED, "fox", ItemState.REJECTED, ("prompt",)),)


def test_a_price_is_asked_once_and_not_where_it_is_known(queue: QueueFile) -> None:
    """One question for a price, by way of an item that it is for; caps and prompts do not count."""
    queue.apply([spec("fox")])
    queue.quote(5)

    plan = queue.plan(
        [spec("fox"), spec("owl", recipe=capped(3)), spec("clip", recipe=CLIP), spec("clips", recipe=CLIP)]
    )

    (question,) = plan.questions
    assert (question.item, question.prompt, question.recipe) == ("clip", "a picture of clip", CLIP)
    assert {entry.cost_credits for entry in plan.counts if entry.model == "epsilon-2"} == {5}
    assert {entry.cost_credits for entry in plan.priced({question.price_key: 50}).counts} == {5, 50}


def test_what_is_queued_already_is_asked_by_an_item_of_the_queue(queue: QueueFile) -> None:
    """An unchanged manifest has no new item to ask with."""
    queue.apply([spec("fox")])

    (question,) = queue.plan([spec("fox")]).questions

    assert question.item == "fox"


def test_uploads_are_counted_once_a_content(queue: QueueFile) -> None:
    """What the account has as an asset is not uploaded again, and what is done needs nothing."""
    items = [
        spec("a", recipe=FROM_IMAGE, inputs=(image("/a.png", "aa"),)),
        spec("b", recipe=FROM_IMAGE, inputs=(image("/copy-of-a.png", "aa"),)),
        spec("c", recipe=FROM_IMAGE, inputs=(image("/c.png", "cc"),)),
        spec("d", recipe=FROM_IMAGE, inputs=(image("/d.png", "dd"),)),
    ]
    queue.apply(items[3:])
    queue.finish("d")
    queue.connection.execute(
        "INSERT INTO asset (account_id, sha256, url, ready_at) SELECT id, 'cc', 'https://a.invalid/c', 1 FROM account"
    )

    plan = queue.plan(items)

    assert plan.uploads == Uploads(files=1, size_bytes=10, largest_bytes=10)
    (question,) = plan.questions
    assert question.urls == ("https://a.invalid/c",)


def test_the_money_of_a_known_job_is_in_its_load(queue: QueueFile) -> None:
    """The job's cost so far is deducted from its budget."""
    job = replace(JOB, budget_credits=100)
    queue.apply([spec("fox"), spec("owl")], job=job)
    queue.send("fox", quote=30, generation_id="gen-1")

    plan = queue.plan([spec("fox"), spec("owl")], job=job)

    assert plan.committed == 30
    assert [entry.state for entry in plan.counts] == [ItemState.ACTIVE, ItemState.QUEUED]


def test_a_selection_counts_what_its_items_are_made_from(queue: QueueFile) -> None:
    """Sources are counted through chains and beside the limit, and what nothing selected needs is not."""
    edited = replace(RECIPE, model="edited", mode=Mode.IMAGE_TO_IMAGE, inputs_count=1)
    items = [
        spec("clip", recipe=replace(edited, model="clip"), inputs=(SourceRef("edit", file=JOB.manifest_path, line=1),)),
        spec("edit", recipe=edited, inputs=(SourceRef("still", file=JOB.manifest_path, line=1),)),
        spec("still"),
        spec("other"),
    ]

    fresh = queue.plan(items, selection=Selection(limit=1))
    queue.apply(items)
    known = queue.plan(items, selection=Selection(limit=1))

    for plan in (fresh, known):
        assert queued(plan) == {"clip": 1, "edited": 1, RECIPE.model: 1}
        assert (plan.needed, plan.unselected) == (2, 1)
        assert sum(plan.chains.to_make.values()) == 2
