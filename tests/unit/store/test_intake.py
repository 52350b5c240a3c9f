"""Applying a manifest: what is added, left alone, taken over, and reported (contract, section 3)."""

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from batchkiln.core.errors import Diagnostic, InputError
from batchkiln.core.job import JobSpec, Mode, SourceRef
from batchkiln.core.states import Event
from batchkiln.store.apply import ApplyOptions, compared
from batchkiln.store.redo_effects import Outdated, RedoEffects
from batchkiln.store.reviews import Decided, review
from support.queue_file import JOB, NOW, RECIPE, QueueFile, capped, diagnostic_at, image, placed, spec, then_mistaken

KEEP = ApplyOptions(on_change="keep")
PRUNE = ApplyOptions(prune=True)


def test_new_items_are_queued_in_the_manifests_order(queue: QueueFile) -> None:
    """Every item of a new job is queued, with its index from 0."""
    report = queue.apply([spec("fox"), spec("owl", priority=3, metadata='{"a":1}', file_name="x")])

    assert (report.new, report.known, report.job_id) == (2, 0, 1)
    assert queue.all("SELECT name, position, state, prompt, priority, metadata, file_name FROM item ORDER BY id") == [
        ("fox", 0, "queued", "a picture of fox", 0, None, None),
        ("owl", 1, "queued", "a picture of owl", 3, '{"a":1}', "x"),
    ]


def test_job_keeps_all_that_its_manifest_says(queue: QueueFile) -> None:
    """A job's settings are those of the manifest applied last."""
    queue.apply([])
    changed = replace(
        JOB, description="d", accounts=("a", "b"), budget_credits=9, budget_credits_per_day=3, output_dir="o"
    )

    queue.apply([], job=changed, profile="studio")

    columns = "description, profile, accounts, budget_credits, budget_credits_per_day, output_dir"
    assert queue.all(f"SELECT {columns} FROM job") == [("d", "studio", '["a", "b"]', 9, 3, "o")]


def test_applying_again_changes_nothing_but_the_history(queue: QueueFile) -> None:
    """Known items are left alone; new ones come behind them."""
    queue.apply([spec("fox")])
    before = queue.all("SELECT * FROM item")

    report = queue.apply([spec("owl"), spec("fox")])

    assert (report.new, report.known, report.updated) == (1, 1, 0)
    assert queue.all("SELECT * FROM item WHERE name = 'fox'") == before
    assert queue.item("owl")["position"] == 1
    assert queue.kinds() == ["job_created", "manifest_applied", "manifest_applied"]


def test_equal_recipes_and_images_are_stored_once(queue: QueueFile) -> None:
    """What many items share is one row, also over several applications."""
    fox = image("/a.png", "aa")
    items = [spec("fox", inputs=(fox,)), spec("owl", inputs=(fox, image("/b.png", "bb")))]

    queue.apply(items)
    queue.apply([*items, spec("elk")])

    assert queue.one("SELECT count(*) FROM recipe") == 1
    assert queue.all("SELECT path FROM input_file ORDER BY path") == [("/a.png",), ("/b.png",)]


def test_one_and_true_are_different_parameters(queue: QueueFile) -> None:
    """Two recipes that Python calls equal, but JSON does not, stay apart."""
    recipes = [replace(RECIPE, parameters=(("google_search", value),)) for value in (True, 1)]

    queue.apply([spec(f"item-{number}", recipe=recipe) for number, recipe in enumerate(recipes)])

    assert queue.all("SELECT r.parameters FROM item JOIN recipe AS r ON r.id = recipe_id ORDER BY item.id") == [
        ('{"google_search":true}',),
        ('{"google_search":1}',),
    ]


def test_all_mistakes_come_at_once_and_nothing_is_enqueued(queue: QueueFile) -> None:
    """Ids that are taken, in whatever source, and the mistakes of reading are one error with every place."""
    rows = placed([spec("fox"), spec("owl"), spec("fox")])
    others = placed([spec("owl"), spec("elk"), spec("owl")], "more.tsv")

    with pytest.raises(InputError) as raised:
        queue.apply(then_mistaken([*rows, *others], Diagnostic("no such file", file="birds.yaml", line=11)))

    assert [(one.file, one.line, one.reason) for one in raised.value.mistakes] == [
        ("birds.yaml", 11, "no such file"),
        ("birds.yaml", 12, "the id 'fox' is already used at birds.yaml:10"),
        ("more.tsv", 10, "the id 'owl' is already used at birds.yaml:11"),
        ("more.tsv", 12, "the id 'owl' is already used at birds.yaml:11"),
    ]
    assert queue.all("SELECT * FROM job") == queue.all("SELECT * FROM item") == queue.all("SELECT * FROM event") == []


def test_an_id_that_a_matrix_gives_to_all_its_items_is_told_as_such(queue: QueueFile) -> None:
    """The place of the first is that of the others, and says nothing."""
    with pytest.raises(InputError) as raised:
        queue.apply([placed([spec("fox")])[0] for _ in range(2)])

    (mistake,) = raised.value.mistakes
    assert (mistake.line, mistake.reason) == (10, "several items here have the id 'fox'")


def test_many_duplicates_are_counted_beyond_those_shown(queue: QueueFile) -> None:
    """A hundred mistakes of a kind are shown; the error tells how many more there are."""
    with pytest.raises(InputError) as raised:
        queue.apply([spec("fox") for _ in range(251)])

    assert len(raised.value.mistakes) == 100
    assert raised.value.omitted == 150


def test_two_items_with_one_output_name_are_a_mistake(queue: QueueFile) -> None:
    """Names that come from variables alone may meet: two items never share a file."""
    job = replace(JOB, filename="{kind}.{ext}")
    items = [
        spec("fox", file_name="red.{ext}"),
        spec("owl", file_name="grey.{ext}"),
        spec("elk", file_name="red.{ext}"),
    ]

    with pytest.raises(InputError, match=r"birds.yaml:12: the output name 'red.image' .* birds.yaml:10"):
        queue.apply(items, job=job)

    assert queue.names() == []


def test_equal_output_patterns_are_fine_where_the_item_is_in_them(queue: QueueFile) -> None:
    """A pattern with {item} or {index} tells items apart by itself."""
    for filename, file_name in (("{kind}/{item}.{ext}", "red/{item}.{ext}"), ("{kind}-{index}", "red-{index}")):
        job = replace(JOB, name=f"job-{len(filename)}", filename=filename)

        report = queue.apply([spec("fox", file_name=file_name), spec("owl", file_name=file_name)], job=job)

        assert report.new == 2


def test_changed_request_is_taken_over_while_never_sent(queue: QueueFile) -> None:
    """A queued item gets the new request, and its history tells which fields changed."""
    queue.apply([spec("fox"), spec("owl")])

    report = queue.apply([spec("fox", prompt="another fox", recipe=replace(RECIPE, model="epsilon-pro")), spec("owl")])

    assert (report.updated, report.known) == (1, 2)
    assert queue.item("fox")["prompt"] == "another fox"
    assert queue.all("SELECT kind, state, detail FROM event WHERE item_id IS NOT NULL") == [
        ("request_changed", "queued", '{"fields":"model, prompt"}')
    ]


def test_a_refused_request_may_be_mended(queue: QueueFile) -> None:
    """An item whose attempts were all refused was never created: its new request is queued."""
    queue.apply([spec("fox")])
    queue.refuse("fox")

    report = queue.apply([spec("fox", prompt="a better fox")])

    item = queue.item("fox")
    assert (report.updated, report.requeued) == (1, 1)
    assert (item["state"], item["prompt"], item["error_code"]) == ("queued", "a better fox", None)


def test_a_canceled_item_stays_canceled_with_its_new_request(queue: QueueFile) -> None:
    """A person's cancel outlives a change of the manifest."""
    queue.apply([spec("fox")])
    queue.move("fox", Event.CANCEL_REQUESTED)

    report = queue.apply([spec("fox", prompt="a better fox")])

    assert (queue.item("fox")["state"], queue.item("fox")["prompt"]) == ("canceled", "a better fox")
    assert (report.updated, report.requeued) == (1, 0)


def test_changed_requests_of_sent_items_are_reported_and_nothing_is_applied(queue: QueueFile) -> None:
    """Twenty such items are named with place, fields and remedies; even the other changes wait. Law 2."""
    names = [f"fox-{number}" for number in range(23)]
    queue.apply([spec(name) for name in [*names, "owl"]])
    for name in names:
        queue.finish(name)
    changed = [spec(name, prompt="changed") for name in names]

    with pytest.raises(InputError) as raised:
        queue.apply([*changed, spec("owl", prompt="changed"), spec("new")])

    first = raised.value.mistakes[0]
    assert (len(raised.value.mistakes), raised.value.omitted) == (20, 3)
    assert first.line == 10
    assert first.reason == "the item 'fox-0' was already sent (it is done), but its prompt changed"
    assert first.remedy is not None
    assert "--on-change keep" in first.remedy
    assert queue.one("SELECT count(*) FROM item WHERE prompt = 'changed' OR name = 'new'") == 0


def test_keep_leaves_sent_items_as_they_were(queue: QueueFile) -> None:
    """With `--on-change keep` the rest is applied, and the report counts what was kept."""
    queue.apply([spec("fox")])
    queue.send("fox")

    report = queue.apply([spec("fox", prompt="changed", priority=7), spec("new")], options=KEEP)

    assert (report.kept, report.changed, report.changed_count, report.new) == (1, ("fox",), 1, 1)
    assert (queue.item("fox")["prompt"], queue.item("fox")["priority"]) == ("a picture of fox", 0)


def test_settings_of_unfinished_items_are_taken_over_quietly(queue: QueueFile) -> None:
    """Priority, cap, tries, metadata and file name change without an event, also for what was sent."""
    queue.apply([spec("fox"), spec("owl")])
    queue.send("fox")
    settings = {"priority": 5, "metadata": '{"k":1}', "file_name": "n", "recipe": capped(7, attempts=9)}

    report = queue.apply([spec("fox", **settings), spec("owl", **settings)])

    assert report.updated == 2
    rows = "SELECT DISTINCT priority, metadata, file_name, max_cost_credits, attempts FROM item"
    assert queue.all(f"{rows} JOIN recipe ON recipe.id = recipe_id") == [(5, '{"k":1}', "n", 7, 9)]
    assert "request_changed" not in queue.kinds()


def test_a_done_item_takes_over_its_metadata_alone(queue: QueueFile) -> None:
    """What was done keeps its name and settings: its files are there."""
    queue.apply([spec("fox")])
    queue.finish("fox")

    report = queue.apply([spec("fox", priority=5, metadata='{"k":1}', file_name="n", recipe=capped(7))])
    again = queue.apply([spec("fox", priority=5, metadata='{"k":1}', file_name="n", recipe=capped(7))])

    item = queue.item("fox")
    assert (item["priority"], item["metadata"], item["file_name"]) == (0, '{"k":1}', None)
    assert (report.updated, again.updated) == (1, 0)


def test_an_image_that_moved_is_the_same_image(queue: QueueFile) -> None:
    """Images are compared by content; a new place is no change of the request."""
    queue.apply([spec("fox", inputs=(image("/a.png", "aa"), image("/b.png", "bb")))])
    queue.send("fox")

    report = queue.apply([spec("fox", inputs=(image("/new/a.png", "aa"), image("/b.png", "bb")))])

    assert (report.updated, report.changed_count) == (1, 0)


@pytest.mark.parametrize("inputs", [(("/b.png", "bb"), ("/a.png", "aa")), (("/a.png", "a2"), ("/b.png", "bb")), ()])
def test_other_images_or_another_order_are_a_changed_request(
    queue: QueueFile, inputs: tuple[tuple[str, str], ...]
) -> None:
    """The order and content of the images belong to the request."""
    queue.apply([spec("fox", inputs=(image("/a.png", "aa"), image("/b.png", "bb")))])
    queue.send("fox")

    with pytest.raises(InputError, match="its inputs changed"):
        queue.apply([spec("fox", inputs=tuple(image(*one) for one in inputs))])


def test_missing_items_stay_without_prune(queue: QueueFile) -> None:
    """Items that left the manifest stay in the queue, and are counted."""
    queue.apply([spec("fox"), spec("owl")])

    report = queue.apply([spec("owl")])

    assert (report.missing, report.pruned) == (1, 0)
    assert queue.names() == ["fox", "owl"]


def test_prune_cancels_only_what_was_never_sent(queue: QueueFile) -> None:
    """A missing item that was sent stays; one whose attempts were refused counts as never sent."""
    queue.apply([spec(name) for name in ("sent", "failed-once", "refused-once", "fresh", "there")])
    queue.end(queue.send("failed-once", generation_id="g"), "failed")
    queue.move("failed-once", Event.GENERATION_FAILED)
    queue.end(queue.send("refused-once"), "refused")
    queue.move("refused-once", Event.NOT_CREATED)
    queue.send("sent")

    report = queue.apply([spec("there")], options=PRUNE)

    assert (report.missing, report.pruned) == (4, 2)
    assert queue.names("canceled") == ["refused-once", "fresh"]


@pytest.mark.parametrize(
    ("code", "caps", "small", "large"),
    [
        ("over_cap", (9, 12), JOB, JOB),
        ("over_cap", (9, None), JOB, JOB),
        ("over_job_budget", (None, None), replace(JOB, budget_credits=9), replace(JOB, budget_credits=12)),
        ("over_job_day_budget", (None, None), replace(JOB, budget_credits_per_day=9), JOB),
    ],
)
def test_a_larger_cap_or_budget_brings_rejected_items_back(
    queue: QueueFile, code: str, caps: tuple[int | None, int | None], small: JobSpec, large: JobSpec
) -> None:
    """What never fitted is queued again once its manifest lets it fit, and not before."""
    before, after = [spec("fox", recipe=capped(caps[0]))], [spec("fox", recipe=capped(caps[1]))]
    queue.apply(before, job=small)
    queue.quote(10)
    queue.never_fits("fox", code)

    still = queue.apply(before, job=small)
    report = queue.apply(after, job=large)

    assert (still.requeued, report.requeued) == (0, 1)
    assert queue.item("fox")["state"] == "queued"
    assert queue.kinds().count("budget_raised") == 1


def test_a_raised_budget_counts_what_the_job_has_spent(queue: QueueFile) -> None:
    """An item comes back only where its quote fits what is left of the budget."""
    queue.apply([spec("fox"), spec("owl")], job=replace(JOB, budget_credits=12))
    queue.quote(10)
    queue.finish("fox")
    queue.never_fits("owl", "over_job_budget")

    tight = queue.apply([spec("fox"), spec("owl")], job=replace(JOB, budget_credits=14))
    enough = queue.apply([spec("fox"), spec("owl")], job=replace(JOB, budget_credits=15))

    assert (tight.requeued, enough.requeued) == (0, 1)


def test_a_rejection_by_the_service_is_not_mended_by_a_budget(queue: QueueFile) -> None:
    """Only rejections for money come back by money."""
    queue.apply([spec("fox", recipe=capped(5))])
    queue.refuse("fox")

    report = queue.apply([spec("fox", recipe=capped(500))])

    assert (report.requeued, queue.item("fox")["state"]) == (0, "rejected")


def test_an_item_held_for_an_image_comes_back_when_the_manifest_is_read_with_it(queue: QueueFile) -> None:
    """Whether the image is back as it was, or is another now, it was never sent: it is queued."""
    queue.apply([spec("same", inputs=(image("/a", "aa"),)), spec("other", inputs=(image("/b", "bb"),))])
    for name in ("same", "other"):
        queue.move(name, Event.INPUT_LOST, code="input_lost")

    report = queue.apply([spec("same", inputs=(image("/a", "aa"),)), spec("other", inputs=(image("/b", "b2"),))])

    assert (report.requeued, report.updated) == (2, 1)
    assert queue.names() == ["same", "other"]


def held_again(queue: QueueFile) -> None:
    """Send what was held for an image, and have it held in doubt."""
    queue.move("fox", Event.REQUEUED)
    queue.end(queue.send("fox"), "disputed")
    queue.move("fox", Event.KEY_CONFLICT, code="conflict")


def rejected_again(queue: QueueFile) -> None:
    """Queue again what was over its budget, and have the service reject it."""
    queue.move("fox", Event.RETRY_REQUESTED)
    queue.refuse("fox")


def failed_once(queue: QueueFile) -> None:
    """Send what was never sent; it is queued for its next try."""
    queue.end(queue.send("fox", generation_id="g"), "failed")
    queue.move("fox", Event.GENERATION_FAILED)


@pytest.mark.parametrize(
    ("before", "code", "meanwhile", "names"),
    [
        (Event.INPUT_LOST, "input_lost", held_again, ["fox", "owl"]),
        (Event.NEVER_FITS, "over_cap", rejected_again, ["fox", "owl"]),
        (None, None, failed_once, ["owl"]),
    ],
)
def test_what_changed_since_the_comparison_is_left_alone(
    queue: QueueFile, before: Event | None, code: str | None, meanwhile: Callable[[QueueFile], None], names: list[str]
) -> None:
    """A pending transition applies only if all its conditions still hold; an equal state is not enough."""
    queue.apply([spec("fox"), spec("owl")])
    if before is not None:
        queue.move("fox", before, code=code)
    items = placed(spec(name) for name in names)
    with compared(
        queue.connection, JOB, items, profile="local", now=NOW, options=PRUNE, diagnostic_at=diagnostic_at
    ) as intake:
        wished = intake.report.requeued + intake.report.pruned
        meanwhile(queue)
        state = queue.item("fox")["state"]
        report = intake.store(intake.report)

    assert wished == 1
    assert (report.requeued, report.pruned, queue.item("fox")["state"]) == (0, 0, state)


def test_a_job_that_was_sent_keeps_its_profile(queue: QueueFile) -> None:
    """What was sent to one service can only be fetched there. Law 3."""
    queue.apply([spec("fox")])
    queue.send("fox")

    with pytest.raises(InputError, match="uses the profile 'local', not 'studio'"):
        queue.apply([spec("fox"), spec("owl")], profile="studio")

    assert queue.one("SELECT profile FROM job") == "local"
    assert queue.names() == []


def test_job_of_which_nothing_was_sent_moves_and_says_so(queue: QueueFile) -> None:
    """In a dry run as well; a job that is new or stays moves from nowhere."""
    fresh = queue.apply([spec("fox")])
    seen = queue.apply([spec("fox")], profile="studio", options=ApplyOptions(dry_run=True))
    moved = queue.apply([spec("fox")], profile="studio")
    again = queue.apply([spec("fox")], profile="studio")

    assert [report.moved_from for report in (fresh, seen, moved, again)] == [None, "local", "local", None]
    assert queue.one("SELECT profile FROM job") == "studio"


def test_events_tell_of_the_job_and_each_application(queue: QueueFile) -> None:
    """The job's history has its creation, and each application with its counts."""
    queue.apply([spec("fox")])

    rows = queue.all("SELECT at, kind, json_extract(detail, '$.new'), json_extract(detail, '$.items') FROM event")

    assert rows == [(NOW, "job_created", None, None), (NOW, "manifest_applied", 1, 1)]


def test_jobs_do_not_touch_each_other(queue: QueueFile) -> None:
    """The same id in two jobs is two items."""
    queue.apply([spec("fox")])

    report = queue.apply([spec("fox", prompt="other")], job=replace(JOB, name="mammals"))

    assert (report.new, report.missing) == (1, 0)
    assert [row[0] for row in queue.all("SELECT prompt FROM item ORDER BY id")] == ["a picture of fox", "other"]


REDO = ApplyOptions(on_change="redo")


def test_redo_takes_over_the_changed_requests_of_ended_items(queue: QueueFile) -> None:
    """Each is queued with its new request and all its tries; the cost by the known quotes is told."""
    queue.apply([spec(name) for name in ("done", "failed", "same")])
    queue.quote(5)
    queue.finish("done")
    queue.fail("failed")
    queue.finish("same")

    report = queue.apply([spec("done", prompt="changed"), spec("failed", prompt="changed"), spec("same")], options=REDO)

    assert (report.redone, report.redo_cost, report.redo_unquoted, report.kept) == (2, 10, 0, 0)
    assert queue.names() == ["done", "failed"]
    item = queue.item("done")
    assert (item["prompt"], item["failures"], item["attempt_id"]) == ("changed", 0, None)
    assert item["version_id"] is not None
    assert queue.item("failed")["failures"] == 0


def test_redo_names_and_leaves_what_is_under_way_or_held(queue: QueueFile) -> None:
    """Rule 4.5: a generation is never replaced because its manifest changed."""
    queue.apply([spec("fox"), spec("owl")])
    queue.send("fox")
    queue.send("owl", account="second")
    queue.move("owl", Event.SET_ASIDE, code="set_aside")

    report = queue.apply([spec("fox", prompt="changed"), spec("owl", prompt="changed")], options=REDO)

    assert (report.redone, report.kept, report.changed) == (0, 2, ("fox", "owl"))
    assert queue.one("SELECT count(*) FROM item WHERE prompt = 'changed'") == 0


def test_redo_that_is_queued_takes_over_another_change_and_costs_once(queue: QueueFile) -> None:
    """The manifest changes again before the new attempt: nothing was sent of the first change."""
    queue.apply([spec("fox")])
    queue.finish("fox")
    queue.apply([spec("fox", prompt="changed")], options=REDO)

    report = queue.apply([spec("fox", prompt="changed again")], options=REDO)

    assert (report.redone, report.updated) == (0, 1)
    assert queue.item("fox")["prompt"] == "changed again"
    assert queue.item("fox")["version_id"] is not None


def test_redo_leaves_what_a_person_canceled(queue: QueueFile) -> None:
    """Its request is taken over; a retry decides whether it is sent."""
    queue.apply([spec("fox")])
    queue.end(queue.send("fox", generation_id="g"), "failed")
    queue.move("fox", Event.GENERATION_FAILED)
    queue.move("fox", Event.CANCEL_REQUESTED)

    report = queue.apply([spec("fox", prompt="changed")], options=REDO)

    assert (report.redone, queue.item("fox")["state"], queue.item("fox")["prompt"]) == (0, "canceled", "changed")


def test_manifest_that_is_applied_again_leaves_a_queued_redo(queue: QueueFile) -> None:
    """Also with `--prune`, where the item has left the manifest: its first version was paid."""
    queue.apply([spec("fox")])
    queue.finish("fox")
    queue.apply([spec("fox", prompt="changed")], options=REDO)

    again = queue.apply([spec("fox", prompt="changed")])
    without = queue.apply([spec("owl")], options=ApplyOptions(prune=True))

    assert (again.updated, again.redone, without.pruned) == (0, 0, 0)
    assert queue.item("fox")["state"] == "queued"


def test_plan_counts_what_would_be_made_again(queue: QueueFile) -> None:
    """The plan names the item, and its load holds the new attempt at its price."""
    queue.apply([spec("fox")])
    queue.quote(5)
    queue.finish("fox")

    plan = queue.plan([spec("fox", prompt="changed")], options=ApplyOptions(on_change="redo", dry_run=True))

    assert [(change.kind.value, change.item) for change in plan.changes] == [("redone", "fox")]
    assert [(entry.count, entry.cost_credits) for entry in plan.counts] == [(1, 5)]
    assert plan.report.redo_cost == 5


def test_redo_tells_the_verdicts_that_end_and_what_becomes_stale(queue: QueueFile) -> None:
    """As `redo` does, before anything is changed and after it."""
    clip = replace(RECIPE, mode=Mode.IMAGE_TO_IMAGE, inputs_count=1)
    made = spec("made", recipe=clip, inputs=(SourceRef("still"),))
    queue.apply([spec("still"), spec("other"), made])
    queue.quote(5)
    queue.finish("still")
    review(queue.connection, JOB.name, {"still": None}, Decided.KEEP, by="me", now=NOW)
    queue.finish("made")
    changed = [spec("still", prompt="changed"), spec("other"), made]

    plan = queue.plan(changed, options=ApplyOptions(on_change="redo", dry_run=True))
    kept = queue.plan(changed, options=ApplyOptions(on_change="keep", dry_run=True))
    report = queue.apply(changed, options=REDO)

    assert plan.report.redo_effects == RedoEffects(1, ("still",), Outdated(1, "made", 5, 0))
    assert report.redo_effects == plan.report.redo_effects
    assert kept.report.redo_effects == RedoEffects()


def test_redo_that_the_budget_does_not_pay_for_changes_nothing(queue: QueueFile) -> None:
    """Law 6: a done item would be rejected, and lose its state for nothing; the error names a budget that suffices."""
    job = replace(JOB, budget_credits=12)
    queue.apply([spec("fox"), spec("owl")], job=job)
    queue.quote(5)
    queue.finish("fox")
    before = queue.dump()
    changed = [spec("fox", prompt="changed"), spec("owl")]

    plan = queue.plan(changed, job=job, options=ApplyOptions(on_change="redo", dry_run=True))
    with pytest.raises(InputError) as caught:
        queue.apply(changed, job=job, options=REDO)

    reason = "making 1 item again: the job's budget.credits has 7 of 12 credits left, and this may cost 5 beside 5"
    assert reason in str(caught.value)
    assert "raise it to 15 in the manifest" in str(caught.value)
    assert plan.report.redo_refusal == caught.value.mistakes[0]
    assert queue.dump() == before
    assert queue.apply(changed, job=replace(JOB, budget_credits=15), options=REDO).redone == 1


def test_new_items_of_the_manifest_count_for_the_budget_of_a_redo(queue: QueueFile) -> None:
    """They may begin first, and leave nothing for the item that is made again."""
    job = replace(JOB, budget_credits=12)
    queue.apply([spec("fox")], job=job)
    queue.quote(5)
    queue.finish("fox")

    with pytest.raises(InputError, match="beside 5 for what is queued"):
        queue.apply([spec("fox", prompt="changed"), spec("owl")], job=job, options=REDO)

    assert queue.names("done") == ["fox"]
    assert queue.names() == []


def test_failed_items_alone_are_queued_again_whatever_the_budget(queue: QueueFile) -> None:
    """They have nothing to lose: what the budget does not pay for is rejected, as after a retry."""
    job = replace(JOB, budget_credits=4)
    queue.apply([spec("fox")], job=job)
    queue.quote(5)
    queue.fail("fox")

    report = queue.apply([spec("fox", prompt="changed")], job=job, options=REDO)

    assert (report.redone, report.redo_refusal) == (1, None)


def test_redo_over_the_cap_is_counted_apart(queue: QueueFile) -> None:
    """It is rejected at no cost, so it is no part of the sum."""
    queue.apply([spec("fox")])
    queue.quote(5)
    queue.finish("fox")

    report = queue.apply([spec("fox", prompt="changed", recipe=capped(4))], options=REDO)

    assert (report.redone, report.redo_cost, report.redo_over_cap) == (1, 0, 1)


def test_plan_counts_the_images_of_what_would_be_made_again(queue: QueueFile) -> None:
    """A new image is uploaded for the new attempt; without the option, the item stays as it was sent."""
    recipe = capped(None, inputs_count=1)
    queue.apply([spec("fox", recipe=recipe, inputs=(image("/a.png", "aa"),))])
    queue.finish("fox")
    changed = [spec("fox", recipe=recipe, inputs=(image("/b.png", "bb"),))]

    redone = queue.plan(changed, options=ApplyOptions(on_change="redo", dry_run=True))
    kept = queue.plan(changed, options=ApplyOptions(on_change="keep", dry_run=True))

    assert (redone.uploads.files, kept.uploads.files) == (1, 0)
