"""Variants, choices and reviews: what the manifest may ask for, verdicts, and who waits for them."""

import json
from typing import Literal

import pytest

from batchkiln.core.errors import InputError
from batchkiln.core.job import ItemSpec, Mode, Recipe, SourceRef, VariantGroup, Verdict
from batchkiln.core.states import Event, ItemState
from batchkiln.presentation.chained_inputs import (
    awaiting_line,
    blocker_command,
    blocker_text,
    effect_lines,
    stale_text,
    waits_remedy,
    waits_text,
)
from batchkiln.store import reviews
from batchkiln.store.item_sources import ItemSource, sources_of, stale_items
from batchkiln.store.items import Filter, Items
from batchkiln.store.jobs import Blocker, Jobs
from batchkiln.store.reviews import Decided, Release, ReviewReport, Reviews, ReviewStep, review
from batchkiln.store.session import transaction
from batchkiln.store.versions import choose_version
from support.queue_file import NOW, QueueFile, spec


def variants(name: str, count: int, choose: int | None = None) -> list[ItemSpec]:
    """Give the items of a group, as a manifest makes them."""
    return [spec(f"{name}-{number}", group=VariantGroup(name, choose)) for number in range(1, count + 1)]


def decide(queue: QueueFile, decided: Decided, *names: str, version: int | None = None) -> ReviewReport:
    with transaction(queue.connection):
        named = dict.fromkeys(names, version)
        return review(queue.connection, "birds", named, decided, by="ann", now=NOW)


def finish_all(queue: QueueFile, *names: str) -> None:
    for name in names:
        queue.finish(name)


def make_again(queue: QueueFile, name: str) -> int:
    queue.move(name, Event.REDO_REQUESTED)
    return queue.finish(name, f"out/{name}.v2.png")


def link(
    queue: QueueFile, dependent: str, *, source: str | None = None, group: str | None = None, rank: int = 1
) -> None:
    """Let a queued item be made from another one, or from a group."""
    source_id = None if source is None else queue.item(source)["id"]
    group_id = None if group is None else queue.one("SELECT id FROM variant_group WHERE name = ?", group)
    queue.connection.execute(
        "INSERT INTO item_source (item_id, place, source_id, group_id, rank) VALUES (?, 0, ?, ?, ?)",
        (queue.item(dependent)["id"], source_id, group_id, rank),
    )
    queue.connection.execute("UPDATE item SET inputs = '[null]', open_inputs = 1 WHERE name = ?", (dependent,))
    queue.connection.execute(
        "UPDATE item SET is_source = 1 WHERE id = ? OR group_id = ?", (source_id or 0, group_id or 0)
    )


def sources(queue: QueueFile, name: str) -> tuple[ItemSource, ...]:
    item_id = queue.item(name)["id"]
    return sources_of(queue.connection, [item_id])[item_id]


def reasons(error: pytest.ExceptionInfo[InputError]) -> list[str]:
    return [mistake.reason for mistake in error.value.mistakes]


# --- manifests ---


def test_variants_are_items_of_one_group(queue: QueueFile) -> None:
    """Each variant is an item of its own; the group knows how many of them are chosen."""
    queue.apply([*variants("owl", 3, 1), spec("fox", needs_review=True)])

    assert queue.all("SELECT name, choose FROM variant_group") == [("owl", 1)]
    group_id = queue.one("SELECT id FROM variant_group")
    assert queue.all("SELECT name, group_id, needs_review FROM item ORDER BY id") == [
        *((f"owl-{number}", group_id, 0) for number in (1, 2, 3)),
        ("fox", None, 1),
    ]


def test_equal_manifest_changes_no_group(queue: QueueFile) -> None:
    """Applying the same manifest again is the normal way to resume."""
    items = [*variants("owl", 2, 1), spec("fox", needs_review=True)]
    queue.apply(items)

    report = queue.apply(items)

    assert (report.new, report.known, report.updated, report.changed) == (0, 3, 0, ())


def test_changed_choice_and_review_are_settings_also_of_done_items(queue: QueueFile) -> None:
    """They are never sent, so nothing is made or paid again."""
    queue.apply([*variants("owl", 2, 1), spec("fox")])
    finish_all(queue, "owl-1", "owl-2", "fox")
    changed = [*variants("owl", 2, 2), spec("fox", needs_review=True)]

    plan = queue.plan(changed)
    report = queue.apply(changed)

    assert {change.item: change.fields for change in plan.changes} == {
        "owl-1": ("choose",),
        "owl-2": ("choose",),
        "fox": ("review",),
    }
    assert (report.updated, report.requeued, report.changed) == (3, 0, ())
    assert queue.one("SELECT choose FROM variant_group") == 2
    assert (queue.item("fox")["state"], queue.item("fox")["needs_review"]) == ("done", 1)
    assert queue.apply(changed).updated == 0


def test_known_items_may_become_a_group_and_more_variants_may_follow(queue: QueueFile) -> None:
    """Items of `repeat` have the same ids as variants."""
    queue.apply([spec("owl-1"), spec("owl-2")])

    report = queue.apply(variants("owl", 3))
    assert (report.new, report.updated) == (1, 2)
    assert len(set(queue.all("SELECT group_id FROM item"))) == 1

    report = queue.apply([spec(f"owl-{number}") for number in (1, 2, 3)])
    assert report.updated == 3
    assert set(queue.all("SELECT group_id FROM item")) == {(None,)}


@pytest.mark.parametrize("is_in_queue", [False, True])
def test_group_may_not_have_the_id_of_an_item(queue: QueueFile, *, is_in_queue: bool) -> None:
    """Whoever refers to a name must know what it means."""
    if is_in_queue:
        queue.apply([spec("owl")])

    with pytest.raises(InputError) as error:
        queue.apply(variants("owl", 2) if is_in_queue else [spec("owl"), *variants("owl", 2)])

    where = "in the queue" if is_in_queue else "at birds.yaml:10"
    assert reasons(error) == [f"the id 'owl' of these variants is already the id of the item {where}"]
    assert error.value.mistakes[0].line == (10 if is_in_queue else 11)
    assert queue.all("SELECT * FROM variant_group") == []


def test_item_may_not_have_the_name_of_a_group_of_the_queue(queue: QueueFile) -> None:
    """The group is still there, even if the manifest no longer has it."""
    queue.apply(variants("owl", 2))

    with pytest.raises(InputError) as error:
        queue.apply([spec("owl")])

    assert reasons(error) == ["the id 'owl' is already the name of a group of variants in the queue"]


# --- verdicts ---


def test_verdicts_are_facts_with_who_and_which_version(queue: QueueFile) -> None:
    """The history tells them, and the item has the current one."""
    queue.apply([spec("fox")])
    attempt_id = queue.finish("fox")

    decide(queue, Decided.KEEP, "fox", version=1)
    decide(queue, Decided.DROP, "fox")
    assert Items(queue.connection).by_name("birds", "fox").verdict is Verdict.DROPPED
    report = decide(queue, Decided.UNDO, "fox")

    assert (report.changed, report.skipped) == (("fox",), ())
    events = queue.all("SELECT kind, attempt_id, detail, state FROM event ORDER BY id DESC LIMIT 3")[::-1]
    assert [kind for kind, *_ in events] == ["kept", "dropped", "verdict_undone"]
    assert {(attempt, detail, state) for _, attempt, detail, state in events} == {
        (attempt_id, json.dumps({"by": "ann", "version": 1}, separators=(",", ":")), None)
    }
    assert queue.item("fox")["verdict"] is None


def test_verdict_about_a_version_that_is_not_current_is_refused(queue: QueueFile) -> None:
    """The person saw other files."""
    queue.apply([spec("fox")])
    queue.finish("fox")
    make_again(queue, "fox")

    report = decide(queue, Decided.KEEP, "fox", version=1)

    assert report.changed == ()
    assert "version 2 is current now" in report.skipped[0].reason
    assert queue.item("fox")["verdict"] is None
    assert decide(queue, Decided.KEEP, "fox", version=2).changed == ("fox",)


def test_only_done_items_have_verdicts(queue: QueueFile) -> None:
    """Nothing is kept that is not there, or that is being made again."""
    queue.apply([spec("fox"), spec("owl")])
    queue.finish("owl")
    queue.move("owl", Event.REDO_REQUESTED)

    report = decide(queue, Decided.KEEP, "fox", "owl")

    assert [entry.reason for entry in report.skipped] == [
        "it is queued, and only a done item can be reviewed" for _ in range(2)
    ]
    with pytest.raises(InputError):
        decide(queue, Decided.KEEP, "wolf")


def test_new_version_clears_the_verdict(queue: QueueFile) -> None:
    """A verdict is about files that were seen; this holds for a redo and for a version that is chosen."""
    queue.apply([spec("fox")])
    queue.finish("fox")
    decide(queue, Decided.KEEP, "fox")

    make_again(queue, "fox")
    item = Items(queue.connection).by_name("birds", "fox")
    assert (item.version, item.verdict) == (2, None)

    decide(queue, Decided.KEEP, "fox")
    with transaction(queue.connection):
        choose_version(queue.connection, "birds", "fox", 1, NOW)
    item = Items(queue.connection).by_name("birds", "fox")
    assert (item.version, item.verdict) == (1, None)


def test_dependent_waits_until_its_source_is_kept(queue: QueueFile) -> None:
    """A review holds what is made from the item; a dropped source holds it again."""
    queue.apply([spec("still", needs_review=True), spec("clip")])
    link(queue, "clip", source="still")
    queue.finish("still")
    assert queue.item("clip")["open_inputs"] == 1

    assert decide(queue, Decided.KEEP, "still").made_ready == 1
    assert queue.item("clip")["open_inputs"] == 0

    decide(queue, Decided.DROP, "still")
    assert queue.item("clip")["open_inputs"] == 1


def test_dependent_of_a_group_waits_until_enough_are_kept(queue: QueueFile) -> None:
    """It is made from the kept variant at its rank, and never from a dropped one."""
    queue.apply([*variants("owl", 3, 2), spec("clip")])
    link(queue, "clip", group="owl", rank=2)
    finish_all(queue, "owl-1", "owl-2", "owl-3")

    assert decide(queue, Decided.KEEP, "owl-3").made_ready == 0
    assert decide(queue, Decided.KEEP, "owl-1").made_ready == 1
    made_by = queue.one("SELECT made_by FROM item_source")
    assert made_by == queue.item("owl-3")["version_id"]

    decide(queue, Decided.DROP, "owl-3")
    assert queue.item("clip")["open_inputs"] == 1


def effects(queue: QueueFile, name: str) -> list[str]:
    return list(effect_lines(Reviews(queue.connection).effects("birds", [name], unknown)))


def unknown(profile: str, recipe: Recipe, prompt: str) -> int | None:
    """As a service that is not embedded: no price is known without a quote."""
    del profile, recipe, prompt
    return None


def test_choice_names_what_it_lets_begin_and_what_was_sent_before(queue: QueueFile) -> None:
    """Nobody pays for a clip by a key that says nothing of it, or takes it for one of the picture that is kept."""
    queue.apply([*variants("owl", 3, 1), spec("clip")])
    link(queue, "clip", group="owl")
    queue.quote(20)
    finish_all(queue, "owl-1", "owl-2", "owl-3")
    queue.connection.execute("UPDATE output SET sha256 = path")
    redo = "`batchkiln redo birds clip` makes it again from the choice"

    decide(queue, Decided.KEEP, "owl-2")
    assert effects(queue, "owl-2") == ["clip can begin now (about 20 credits)"]
    attempt_id = queue.send("clip", quote=20, generation_id="paid")
    assert effects(queue, "owl-2") == ["clip was sent already (20 credits)"]
    decide(queue, Decided.UNDO, "owl-2")
    sent = "clip was already sent from owl-2 (20 credits) and stays as it is"
    assert effects(queue, "owl-2") == [f"{sent}; once it is done and one is chosen, {redo}"]
    queue.end(attempt_id, "succeeded")
    queue.move("clip", Event.OUTPUTS_READY)
    queue.move("clip", Event.FILES_SAVED)
    assert len(stale_items(queue.connection, 1)) == 0  # nothing else is offered yet
    decide(queue, Decided.KEEP, "owl-3")
    assert effects(queue, "owl-3") == [f"{sent}; {redo}"]
    assert len(stale_items(queue.connection, 1)) == 1

    sources = Items(queue.connection).by_name("birds", "clip").sources
    assert stale_text(sources, "birds") == "stale: it was made from owl-2, and another variant was chosen since"
    make_again(queue, "owl-2")
    decide(queue, Decided.UNDO, "owl-3")
    queue.connection.execute("UPDATE output SET sha256 = path")
    decide(queue, Decided.KEEP, "owl-2")
    sources = Items(queue.connection).by_name("birds", "clip").sources
    assert stale_text(sources, "birds") == "stale: it was made from another version of a chosen one of owl"
    assert len(stale_items(queue.connection, 1)) == 1


def test_price_of_what_a_verdict_lets_begin_is_told_before_and_after_it(queue: QueueFile) -> None:
    """Also without a quote, if the service's prices are known without one."""
    queue.apply([*variants("owl", 3, 1), spec("clip"), spec("other")])
    link(queue, "clip", group="owl")
    link(queue, "other", source="owl-3")
    finish_all(queue, "owl-1", "owl-2", "owl-3")
    reviews = Reviews(queue.connection)
    step = reviews.step("birds")
    assert step is not None

    told = [reviews.awaiting(step, price) for price in (unknown, lambda *_: 20)]
    assert told == [Release(("clip",), None, 1), Release(("clip",), 20, 0)]
    assert awaiting_line(told[0]) == "clip waits for what is kept here (no price is known yet)"
    assert awaiting_line(told[1]) == "clip waits for what is kept here (about 20 credits)"
    decide(queue, Decided.KEEP, "owl-1")
    step = reviews.step("birds", step.at)
    assert step is not None
    assert reviews.awaiting(step, unknown) == Release()
    assert reviews.effects("birds", ["owl-1"], lambda *_: 20).ready == Release(("clip",), 20, 0)


def test_variant_that_is_kept_beyond_the_choice_is_called_unused(queue: QueueFile) -> None:
    """Nobody pays for a clip of the first one because the second was kept later."""
    queue.apply([*variants("owl", 3, 1), spec("clip")])
    link(queue, "clip", group="owl")
    finish_all(queue, "owl-1", "owl-2", "owl-3")
    decide(queue, Decided.KEEP, "owl-1")
    decide(queue, Decided.KEEP, "owl-2")
    drop = "to use another, drop one: `batchkiln review birds --drop owl-1`"

    assert effects(queue, "owl-2") == [
        f"2 of owl are kept, and 1 is asked for: owl-1 is used, and not owl-2; {drop}",
    ]
    decide(queue, Decided.DROP, "owl-1")
    assert effects(queue, "owl-1") == []


def test_verdict_about_what_nothing_is_made_from_says_no_more(queue: QueueFile) -> None:
    queue.apply([spec("still", needs_review=True)])
    queue.finish("still")
    decide(queue, Decided.KEEP, "still")

    assert effects(queue, "still") == []


def test_lower_choice_starts_what_waits_for_the_group(queue: QueueFile) -> None:
    """The setting decides at once, without a payment."""
    queue.apply([*variants("owl", 3, 2), spec("clip")])
    link(queue, "clip", group="owl")
    finish_all(queue, "owl-1", "owl-2", "owl-3")
    decide(queue, Decided.KEEP, "owl-2")
    assert queue.item("clip")["open_inputs"] == 1

    queue.connection.execute("UPDATE item SET open_inputs = 1 WHERE name = 'clip'")
    queue.apply(variants("owl", 3, 1))

    assert queue.item("clip")["open_inputs"] == 0


# --- steps ---


def steps(queue: QueueFile, *, is_all: bool = False) -> list[list[str]]:
    found = Reviews(queue.connection).waiting("birds", is_all=is_all)
    return [[item.name for item in step.items] for step in found]


def test_review_goes_through_reviews_and_groups_without_enough_kept(queue: QueueFile) -> None:
    """What was decided is left out; so are groups without a choice, unless all are asked for."""
    queue.apply([*variants("owl", 2, 1), spec("fox", needs_review=True), *variants("elk", 2), spec("cat")])
    finish_all(queue, "owl-1", "owl-2", "fox", "elk-1", "elk-2", "cat")

    assert steps(queue) == [["owl-1", "owl-2"], ["fox"]]
    assert steps(queue, is_all=True) == [["owl-1", "owl-2"], ["fox"], ["elk-1", "elk-2"], ["cat"]]
    summary = Jobs(queue.connection).summary("birds")
    assert (summary.to_review, summary.to_choose) == (1, 1)

    decide(queue, Decided.DROP, "owl-1", "fox")
    assert steps(queue) == [["owl-1", "owl-2"]]
    decide(queue, Decided.KEEP, "owl-2")
    assert steps(queue) == []
    summary = Jobs(queue.connection).summary("birds")
    assert (summary.to_review, summary.to_choose) == (0, 0)


def test_group_of_dropped_items_still_waits_for_a_choice(queue: QueueFile) -> None:
    """A person must make one again, or take a verdict back."""
    queue.apply(variants("owl", 2, 1))
    finish_all(queue, "owl-1", "owl-2")

    decide(queue, Decided.DROP, "owl-1", "owl-2")

    assert Jobs(queue.connection).summary("birds").to_choose == 1


def test_group_that_is_still_made_waits_for_no_choice_yet(queue: QueueFile) -> None:
    """Those that are there can be reviewed already."""
    queue.apply(variants("owl", 2, 1))
    finish_all(queue, "owl-1")

    assert Jobs(queue.connection).summary("birds").to_choose == 0
    assert steps(queue) == [["owl-1", "owl-2"]]


def test_steps_lead_forward_and_back_also_over_what_was_decided(queue: QueueFile) -> None:
    """A person who decided too fast goes back and undoes it."""
    queue.apply([*variants("owl", 2, 1), spec("fox", needs_review=True), *variants("elk", 2, 1)])
    finish_all(queue, "owl-1", "owl-2", "fox", "elk-1", "elk-2")
    reviews = Reviews(queue.connection)
    first = reviews.step("birds")
    assert first is not None
    assert (first.previous_at, first.group, first.choose, first.is_decided) == (None, "owl", 1, False)
    assert reviews.left("birds") == 3

    decide(queue, Decided.KEEP, "owl-1")
    second = reviews.step("birds", first.next_at)
    assert second is not None
    assert [item.name for item in second.items] == ["fox"]
    back = reviews.step("birds", second.previous_at)
    assert back is not None
    assert (back.group, back.is_decided, reviews.left("birds")) == ("owl", True, 2)
    last = reviews.step("birds", second.next_at)
    assert last is not None
    assert ([item.name for item in last.items], last.next_at) == (["elk-1", "elk-2"], None)


@pytest.mark.parametrize("looked_at", [1, 2, 4000])
def test_steps_are_those_with_a_matching_item(
    queue: QueueFile, monkeypatch: pytest.MonkeyPatch, looked_at: int
) -> None:
    """However few steps are searched at once, and however far apart the matching ones are."""
    monkeypatch.setattr(reviews, "LOOKED_AT", looked_at)
    wild, tame = '{"kind":"wild"}', '{"kind":"tame"}'
    names = [f"i{number}" for number in range(8)]
    kinds = [wild if number in {1, 6} else tame for number in range(8)]
    items = [spec(name, needs_review=True, metadata=kind) for name, kind in zip(names, kinds, strict=True)]
    queue.apply([*items, *variants("owl", 3, 1)])
    finish_all(queue, *names, "owl-1", "owl-2", "owl-3")
    decide(queue, Decided.DROP, "owl-2", "i1")
    found = Reviews(queue.connection)

    def shown(wanted: Filter, *, is_all: bool) -> list[list[str]]:
        """Go to the end; the way back has to be the same."""
        there: list[ReviewStep] = []
        back: list[ReviewStep] = []
        step = found.step("birds", is_all=is_all, wanted=wanted)
        while step is not None:
            there.append(step)
            step = None if step.next_at is None else found.step("birds", step.next_at, is_all=is_all, wanted=wanted)
        step = there[-1] if there else None
        while step is not None:
            back.append(step)
            at = step.previous_at
            step = None if at is None else found.step("birds", at, is_all=is_all, wanted=wanted)
        assert not is_all or [step.at for step in back] == [step.at for step in there][::-1]
        return [[item.name for item in step.items] for step in there]

    by_kind = Filter(metadata=(("kind", "wild"),))
    assert shown(by_kind, is_all=False) == [["i6"]]
    assert shown(by_kind, is_all=True) == [["i1"], ["i6"]]
    assert shown(Filter(verdict="dropped"), is_all=True) == [["i1"], ["owl-1", "owl-2", "owl-3"]]
    assert shown(Filter(metadata=(("kind", "none"),)), is_all=True) == []
    if looked_at > len(names):
        assert found.left("birds", wanted=by_kind) == 1
        assert found.left("birds", wanted=Filter(verdict="dropped")) == 2


@pytest.mark.parametrize(
    ("verdict", "names"),
    [("kept", ["owl-1"]), ("dropped", ["owl-2"]), ("unreviewed", ["fox"]), (None, ["owl-1", "owl-2", "fox", "cat"])],
)
def test_items_are_found_by_verdict(
    queue: QueueFile, verdict: Literal["kept", "dropped", "unreviewed"] | None, names: list[str]
) -> None:
    """Items that are not done have none, and are not waiting for one."""
    queue.apply([*variants("owl", 2, 1), spec("fox"), spec("cat")])
    finish_all(queue, "owl-1", "owl-2", "fox")
    decide(queue, Decided.KEEP, "owl-1")
    decide(queue, Decided.DROP, "owl-2")

    found = Items(queue.connection).matching("birds", (), Filter(verdict=verdict))

    assert [item.name for item in found] == names


# --- what is made from a group of the same manifest ---


def clip(name: str, item: str, choice: int | None = None) -> ItemSpec:
    """Give an item that is made from a kept one of a group, or from an item."""
    ref = SourceRef(item, choice=choice, file="birds.yaml", line=20, column=5)
    return spec(name, recipe=Recipe("alpha-2.5-lite", Mode.IMAGE_TO_VIDEO, (), 1, None, 3), inputs=(ref,))


def test_item_may_be_made_from_a_group_of_its_own_manifest(queue: QueueFile) -> None:
    """It waits for the choice, and is then made from the chosen one; before and after the group in the text."""
    items = [clip("early", "owl"), *variants("owl", 2, 1), clip("late", "owl")]
    queue.apply(items)
    assert [queue.item(name)["is_source"] for name in ("owl-1", "owl-2")] == [1, 1]
    finish_all(queue, "owl-1", "owl-2")
    assert [queue.item(name)["open_inputs"] for name in ("early", "late")] == [1, 1]

    assert queue.apply(items).updated == 0
    report = decide(queue, Decided.KEEP, "owl-2")

    assert report.made_ready == 2
    assert set(queue.all("SELECT made_by FROM item_source")) == {(queue.item("owl-2")["version_id"],)}
    assert queue.apply(items).updated == 0


@pytest.mark.parametrize(
    ("items", "reason"),
    [
        ([*variants("owl", 2), clip("clip", "owl")], "nothing is chosen among them"),
        ([*variants("owl", 2, 1), clip("clip", "owl", choice=2)], "`choice` is more than the group's `choose`"),
        ([spec("owl"), clip("clip", "owl", choice=1)], "which is one item, so there is no `choice`"),
        (
            [clip(f"owl-{n}", "owl")._replace(group=VariantGroup("owl", 1)) for n in (1, 2)],
            "which makes a video, and an input is an image",
        ),
    ],
)
def test_reference_to_a_group_that_cannot_be_is_an_error(queue: QueueFile, items: list[ItemSpec], reason: str) -> None:
    """It is said when the manifest is read, and nothing is stored."""
    with pytest.raises(InputError) as error:
        queue.apply(items)

    assert reason in reasons(error)[0]
    assert queue.all("SELECT name FROM item") == []


def test_group_that_is_made_from_itself_is_a_circle(queue: QueueFile) -> None:
    """Also over another item."""
    still = Recipe("epsilon-2", Mode.IMAGE_TO_IMAGE, (), 1, None, 3)
    between = clip("between", "owl")._replace(recipe=still)
    items = [clip(f"owl-{n}", "between")._replace(recipe=still, group=VariantGroup("owl", 1)) for n in (1, 2)]

    with pytest.raises(InputError) as error:
        queue.apply([between, *items])

    assert "made from each other in a circle" in reasons(error)[0]


def test_group_of_which_too_few_can_be_kept_is_named_with_its_first_failure(queue: QueueFile) -> None:
    """A review cannot help then, and only that item's own remedy does."""
    queue.apply([*variants("owl", 3, 2), spec("clip")])
    link(queue, "clip", group="owl")
    finish_all(queue, "owl-1")
    queue.fail("owl-2")
    assert Jobs(queue.connection).summary("birds").blockers == ()
    assert "review" in str(waits_remedy(sources(queue, "clip")))

    queue.fail("owl-3")

    (blocker,) = Jobs(queue.connection).summary("birds").blockers
    assert blocker_text(blocker, "birds") == "1 waits for a choice of owl, of which too few can be kept: owl-2 failed"
    assert blocker_command(blocker) == "batchkiln retry birds owl-2"
    assert waits_text(sources(queue, "clip"), "birds").endswith("of owl, of which too few can be kept: owl-2 failed")
    assert str(waits_remedy(sources(queue, "clip"))).startswith("`batchkiln retry birds owl-2`")


def test_rejected_source_is_not_to_be_retried() -> None:
    """The same request would be rejected again."""
    blocker = Blocker("birds", "owl", ItemState.REJECTED, 2)

    assert blocker_text(blocker, "birds") == "2 wait for owl, which was rejected"
    assert blocker_command(blocker) == "batchkiln show birds owl"


def test_group_with_more_kept_than_asked_for_is_left_to_decide(queue: QueueFile) -> None:
    """Otherwise a person who keeps another variant believes that it is used."""
    queue.apply(variants("owl", 3, 1))
    finish_all(queue, "owl-1", "owl-2", "owl-3")
    decide(queue, Decided.KEEP, "owl-1", "owl-3")
    step = Reviews(queue.connection).step("birds", queue.item("owl-1")["id"], is_all=True)

    assert step is not None
    assert (step.surplus, step.is_decided) == (("owl-3",), False)

    decide(queue, Decided.DROP, "owl-1")
    step = Reviews(queue.connection).step("birds", queue.item("owl-1")["id"], is_all=True)

    assert step is not None
    assert (step.surplus, step.is_decided) == ((), True)
