"""How many items a plan tells to be made from images that are not there yet, and at which prices.

The truth is what the queue has after the same manifest was applied with the same options: queued items with an open
input, by the key of their price.
"""

import dataclasses
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import pytest
from msgspec.structs import replace

from batchkiln.core.budget import BudgetLimit
from batchkiln.core.job import ItemSpec, Mode, Recipe, SourceRef, VariantGroup
from batchkiln.core.selection import Selection
from batchkiln.core.states import Event, ItemState
from batchkiln.store.apply import ApplyOptions
from batchkiln.store.reviews import Decided, review
from batchkiln.store.selected_items import count_needed, select
from batchkiln.store.session import transaction
from support.queue_file import JOB, NOW, RECIPE, QueueFile, image, spec

EDIT = replace(RECIPE, mode=Mode.IMAGE_TO_IMAGE, inputs_count=1)
CLIP = Recipe("alpha-2.5-lite", Mode.IMAGE_TO_VIDEO, (), 1, None, 3)
BIG = replace(EDIT, parameters=(("resolution", "2048x2048"),))
REDO = ApplyOptions(on_change="redo")
PRUNE = ApplyOptions(prune=True)


def ref(item: str, **fields: int | str) -> SourceRef:
    return dataclasses.replace(SourceRef(item, file=JOB.manifest_path, line=20), **fields)  # type: ignore[arg-type]


def made_from(name: str, *sources: SourceRef, recipe: Recipe = EDIT, **fields: object) -> ItemSpec:
    return spec(name, recipe=replace(recipe, inputs_count=len(sources)), inputs=sources, **fields)


def owls(count: int, choose: int | None) -> list[ItemSpec]:
    """Give the items of a group."""
    return [spec(f"owl-{number}", group=VariantGroup("owl", choose)) for number in range(1, count + 1)]


def finish(*names: str) -> Callable[[QueueFile], None]:
    def go(queue: QueueFile) -> None:
        for name in names:
            queue.finish(name)

    return go


def decide(decided: Decided, *names: str) -> Callable[[QueueFile], None]:
    def go(queue: QueueFile) -> None:
        with transaction(queue.connection):
            review(queue.connection, "birds", dict.fromkeys(names), decided, by="ann", now=NOW)

    return go


def cancel(name: str) -> Callable[[QueueFile], None]:
    return lambda queue: queue.move(name, Event.CANCEL_REQUESTED)


def never_fits(name: str) -> Callable[[QueueFile], None]:
    return lambda queue: queue.never_fits(name, BudgetLimit.OVER_JOB_BUDGET.value)


@dataclass(frozen=True)
class Case:
    """A queue, and a manifest for it. `open` is the number of items without an image; `stuck` wait for pruned ones."""

    name: str
    before: Iterable[ItemSpec]
    after: Iterable[ItemSpec]
    open: int
    steps: tuple[Callable[[QueueFile], None], ...] = ()
    options: ApplyOptions = field(default_factory=ApplyOptions)
    stuck: int = 0

    def __str__(self) -> str:
        return self.name


STILL = spec("still")
OTHER = spec("other")
KEPT_OWL = (finish("owl-1", "owl-2"), decide(Decided.KEEP, "owl-1"))

CASES = [
    Case("a new still with its clip", [], [STILL, made_from("clip", ref("still"), recipe=CLIP)], 1),
    Case("nothing but stills", [STILL], [STILL, OTHER], 0),
    Case("a new item of a done source", [STILL], [STILL, made_from("a", ref("still"))], 0, (finish("still"),)),
    Case("a new item of a queued source", [STILL], [STILL, made_from("a", ref("still"))], 1),
    Case(
        "a new item of a source that waits for its review",
        [spec("still", needs_review=True)],
        [spec("still", needs_review=True), made_from("a", ref("still"))],
        1,
        (finish("still"),),
    ),
    Case(
        "a new item of a reviewed source",
        [spec("still", needs_review=True)],
        [spec("still", needs_review=True), made_from("a", ref("still"))],
        0,
        (finish("still"), decide(Decided.KEEP, "still")),
    ),
    Case(
        "a new item of a dropped source",
        [STILL],
        [STILL, made_from("a", ref("still"))],
        1,
        (finish("still"), decide(Decided.DROP, "still")),
    ),
    Case(
        "a source that is to be reviewed from now on",
        [STILL, made_from("a", ref("still"))],
        [spec("still", needs_review=True), made_from("a", ref("still")), made_from("b", ref("still"))],
        2,
        (finish("still"),),
    ),
    Case(
        "a source that is not to be reviewed any more",
        [spec("still", needs_review=True), made_from("a", ref("still"))],
        [STILL, made_from("a", ref("still")), made_from("b", ref("still"))],
        0,
        (finish("still"),),
    ),
    Case("a new group with its clip", [], [*owls(2, 1), made_from("a", ref("owl"), recipe=CLIP)], 1),
    Case("a chosen group", owls(2, 1), [*owls(2, 1), made_from("a", ref("owl"))], 0, KEPT_OWL),
    Case("a group without a choice yet", owls(2, 1), [*owls(2, 1), made_from("a", ref("owl"))], 1, KEPT_OWL[:1]),
    Case(
        "a group of which more are to be chosen now",
        [*owls(3, 1), made_from("a", ref("owl"))],
        [*owls(3, 2), made_from("a", ref("owl")), made_from("b", ref("owl", choice=2))],
        2,
        KEPT_OWL,
    ),
    Case(
        "a group of which fewer are to be chosen now",
        [*owls(3, 2), made_from("a", ref("owl"))],
        [*owls(3, 1), made_from("a", ref("owl")), made_from("b", ref("owl"))],
        0,
        KEPT_OWL,
    ),
    Case(
        "both chosen ones of a group",
        [*owls(3, 2)],
        [*owls(3, 2), made_from("a", ref("owl", choice=2)), made_from("b", ref("owl"))],
        0,
        (finish("owl-1", "owl-2"), decide(Decided.KEEP, "owl-1", "owl-2")),
    ),
    Case(
        "a chosen item that is made again",
        [*owls(2, 1), made_from("a", ref("owl"))],
        [
            spec("owl-1", group=VariantGroup("owl", 1), prompt="another"),
            owls(2, 1)[1],
            made_from("a", ref("owl")),
            made_from("b", ref("owl")),
        ],
        2,
        KEPT_OWL,
        REDO,
    ),
    Case(
        "a source that is made again",
        [STILL, made_from("a", ref("still"))],
        [spec("still", prompt="another"), made_from("a", ref("still")), made_from("b", ref("still"))],
        2,
        (finish("still"),),
        REDO,
    ),
    Case(
        "a source that stays as it was sent",
        [STILL, made_from("a", ref("still"))],
        [spec("still", prompt="another"), made_from("a", ref("still")), made_from("b", ref("still"))],
        0,
        (finish("still"),),
        ApplyOptions(on_change="keep"),
    ),
    Case(
        "a changed recipe of a waiting item",
        [STILL, made_from("a", ref("still"))],
        [STILL, made_from("a", ref("still"), recipe=BIG)],
        1,
    ),
    Case(
        "a changed recipe of a waiting item whose source is done",
        [STILL, made_from("a", ref("still"))],
        [STILL, made_from("a", ref("still"), recipe=BIG)],
        0,
        (finish("still"),),
    ),
    Case(
        "another source, which is done",
        [STILL, OTHER, made_from("a", ref("still"))],
        [STILL, OTHER, made_from("a", ref("other"))],
        0,
        (finish("other"),),
    ),
    Case(
        "another source, which is not done",
        [STILL, OTHER, made_from("a", ref("still"))],
        [STILL, OTHER, made_from("a", ref("other"))],
        1,
        (finish("still"),),
    ),
    Case(
        "a source in place of a file",
        [STILL, spec("a", recipe=EDIT, inputs=(image("a.png", "a"),))],
        [STILL, made_from("a", ref("still"))],
        1,
    ),
    Case(
        "a file in place of a source",
        [STILL, made_from("a", ref("still"))],
        [STILL, spec("a", recipe=EDIT, inputs=(image("a.png", "a"),))],
        0,
    ),
    Case(
        "a file in place of one of two sources",
        [STILL, OTHER, made_from("a", ref("still"), ref("other"))],
        [STILL, OTHER, spec("a", recipe=replace(EDIT, inputs_count=2), inputs=(ref("still"), image("a.png", "a")))],
        0,
        (finish("still"),),
    ),
    Case(
        "one of two sources is there",
        [STILL, OTHER],
        [STILL, OTHER, made_from("a", ref("still"), ref("other")), made_from("b", ref("still"), ref("still"))],
        1,
        (finish("still"),),
    ),
    Case(
        "a done item that is made again from a source that is not there",
        [STILL, OTHER, made_from("a", ref("still"))],
        [STILL, OTHER, made_from("a", ref("other"))],
        1,
        (finish("still", "a"),),
        REDO,
    ),
    Case(
        "a chain that is made again",
        [STILL, made_from("a", ref("still")), made_from("b", ref("a"))],
        [spec("still", prompt="x"), made_from("a", ref("still"), prompt="y"), made_from("b", ref("a"), prompt="z")],
        2,
        (finish("still", "a", "b"),),
        REDO,
    ),
    Case(
        "a new item at the end of a chain",
        [STILL, made_from("edit", ref("still"))],
        [STILL, made_from("edit", ref("still")), made_from("a", ref("edit"))],
        2,
    ),
    Case(
        "an item that fits into a larger budget",
        [STILL, made_from("a", ref("still"))],
        [STILL, made_from("a", ref("still"))],
        1,
        (never_fits("a"),),
    ),
    Case("a waiting item that was canceled", [STILL, made_from("a", ref("still"))], [STILL], 0, (cancel("a"),)),
    Case(
        "a waiting item that left the manifest",
        [STILL, made_from("a", ref("still"))],
        [STILL],
        1,
    ),
    Case("a waiting item that is pruned", [STILL, made_from("a", ref("still"))], [STILL], 0, options=PRUNE),
    Case(
        "a source that is pruned",
        [STILL, made_from("a", ref("still"))],
        [made_from("a", ref("still"))],
        1,
        options=PRUNE,
        stuck=1,
    ),
    Case(
        "a source that is pruned, with a new item of it",
        [STILL],
        [made_from("a", ref("still"))],
        1,
        options=PRUNE,
        stuck=1,
    ),
    Case(
        "another source than the one that is pruned",
        [STILL, OTHER, made_from("a", ref("still"))],
        [OTHER, made_from("a", ref("other"))],
        1,
        options=PRUNE,
    ),
    Case(
        "a group that is pruned",
        [*owls(2, 1), made_from("a", ref("owl"))],
        [made_from("a", ref("owl"))],
        1,
        options=PRUNE,
        stuck=1,
    ),
    Case(
        "variants that are pruned, with enough left",
        [*owls(3, 1), made_from("a", ref("owl"))],
        [*owls(1, 1), made_from("a", ref("owl"))],
        1,
        options=PRUNE,
    ),
    Case(
        "variants that are pruned, with too few left",
        [*owls(3, 2), made_from("a", ref("owl"))],
        [*owls(1, 2), made_from("a", ref("owl"))],
        1,
        options=PRUNE,
        stuck=1,
    ),
    Case(
        "a chosen group whose other variants are pruned",
        [*owls(3, 1), made_from("a", ref("owl"))],
        [owls(1, 1)[0], made_from("a", ref("owl"))],
        0,
        KEPT_OWL,
        PRUNE,
    ),
]


def waiting(queue: QueueFile) -> dict[str, int]:
    """Return the queued items with an open input, by the key of their price."""
    return dict(
        queue.all(
            "SELECT r.price_key, count(*) FROM item AS i JOIN recipe AS r ON r.id = i.recipe_id"
            " WHERE i.state = 'queued' AND i.open_inputs > 0 GROUP BY r.price_key"
        )
    )


@pytest.mark.long
@pytest.mark.parametrize("case", CASES, ids=str)
def test_plan_tells_what_applying_leaves_without_its_image(queue: QueueFile, case: Case) -> None:
    """Item by item, also where the manifest itself changes what its items are made from."""
    if case.before:
        queue.apply(case.before)
    for step in case.steps:
        step(queue)
    job = replace(JOB, budget_credits=10_000)

    plan = queue.plan(case.after, job=job, options=case.options)
    queue.apply(case.after, job=job, options=case.options)

    assert dict(plan.chains.to_make) == waiting(queue)
    assert sum(plan.chains.to_make.values()) == case.open
    assert plan.chains.waiting_for_pruned == case.stuck
    queue.check()


@pytest.mark.long
@pytest.mark.parametrize("case", CASES, ids=str)
def test_plan_of_a_few_brings_along_the_sources_that_a_run_would(queue: QueueFile, case: Case) -> None:
    """The items that are made from others are selected; the plan counts what they need, and the run selects it."""
    if case.before:
        queue.apply(case.before)
    for step in case.steps:
        step(queue)
    job, few = replace(JOB, budget_credits=10_000), Selection(only=("a", "b", "clip"))

    plan = queue.plan(case.after, job=job, options=case.options, selection=few)
    queue.apply(case.after, job=job, options=case.options)
    select(queue.connection, [queue.one("SELECT id FROM job")], few)

    joined = "SELECT count(*) FROM temp.selected AS s JOIN item AS i ON i.id = s.item_id WHERE i.state = 'queued'"
    assert plan.needed == count_needed(queue.connection)
    assert sum(entry.count for entry in plan.counts if entry.state is ItemState.QUEUED) == queue.one(joined)
    assert dict(plan.chains.to_make).keys() <= waiting(queue).keys()
