"""Random manifests applied one after the other, against a model that is a plain dictionary."""

import sqlite3
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from msgspec.structs import replace

from batchkiln.core.errors import InputError
from batchkiln.core.job import InputFile, ItemSpec
from batchkiln.core.states import Event
from batchkiln.store.apply import ApplyOptions, ApplyReport
from batchkiln.store.loads import Loads, RecipeCount
from support.examples import examples
from support.queue_file import JOB, QueueFile, capped, image, spec

NAMES = [f"item-{number}" for number in range(6)]
REQUESTS = {
    name: st.builds(
        spec,
        st.just(name),
        prompt=st.sampled_from(["one", "two"]),
        priority=st.integers(0, 1),
        recipe=st.sampled_from([capped(None), capped(5), capped(None, model="epsilon-pro")]),
        inputs=st.sampled_from([(), (image("/a", "aa"),), (image("/b", "aa"),)]),
        metadata=st.sampled_from([None, '{"k":1}']),
    )
    for name in NAMES
}
MANIFESTS = st.lists(st.sampled_from(NAMES), unique=True).flatmap(
    lambda names: st.tuples(*(REQUESTS[n] for n in names))
)
OPTIONS = st.builds(ApplyOptions, on_change=st.sampled_from(["error", "keep"]), prune=st.booleans())
STEPS = st.lists(
    st.one_of(
        st.tuples(MANIFESTS, OPTIONS),
        st.tuples(st.sampled_from(["finish", "refuse", "cancel"]), st.sampled_from(NAMES)),
    ),
    min_size=1,
    max_size=8,
)


def files_of(one: ItemSpec) -> list[InputFile]:
    """Give an item's images."""
    return [each for each in one.inputs if isinstance(each, InputFile)]


def request_of(one: ItemSpec) -> tuple[object, ...]:
    """Give what is sent: images by content, and of the recipe not its cap."""
    return (one.prompt, replace(one.recipe, max_cost_credits=None), [file.sha256 for file in files_of(one)])


@dataclass
class Model:
    """What the queue should hold: name -> [spec, state, was it sent]."""

    items: dict[str, tuple[ItemSpec, str, bool]] = field(default_factory=dict)

    def apply(self, manifest: tuple[ItemSpec, ...], options: ApplyOptions) -> ApplyReport | None:
        """Apply, or give None where it is refused."""
        known = [one for one in manifest if one.name in self.items]
        done = [request_of(one) for one, state, _ in self.items.values() if state == "done"]
        paid_before = sum(one not in known and request_of(one) in done for one in manifest)
        sent = [one for one in known if self._is_changed(one) and self.items[one.name][2]]
        if sent and options.on_change == "error":
            return None
        updated = sum(self._take_over(one) for one in known if one not in sent)
        requeued = self._requeued
        for one in manifest:
            self.items.setdefault(one.name, (one, "queued", False))
        names = {one.name for one in manifest}
        missing = [name for name, (_, state, _) in self.items.items() if name not in names and state != "canceled"]
        pruned = [name for name in missing if options.prune and self.items[name][1] == "queued"]
        for name in pruned:
            self.items[name] = (self.items[name][0], "canceled", False)
        return ApplyReport(
            job_id=1,
            new=len(manifest) - len(known),
            known=len(known),
            updated=updated,
            changed=tuple(one.name for one in sent),
            changed_count=len(sent),
            kept=len(sent),
            requeued=requeued,
            missing=len(missing),
            pruned=len(pruned),
            paid_before=paid_before,
        )

    def _is_changed(self, one: ItemSpec) -> bool:
        return request_of(one) != request_of(self.items[one.name][0])

    def _take_over(self, one: ItemSpec) -> bool:
        old, state, was_sent = self.items[one.name]
        wanted = old._replace(metadata=one.metadata) if state == "done" else one
        if self._is_changed(one) and state == "rejected":
            state = "queued"
            self._requeued += 1
        self.items[one.name] = (wanted, state, was_sent)
        return wanted != old

    _requeued: int = 0

    def begin(self) -> None:
        """Count from nothing."""
        self._requeued = 0


def act(queue: QueueFile, model: Model, deed: str, name: str) -> None:
    """Let something happen to an item that is queued."""
    one, state, _ = model.items.get(name, (None, "", False))
    if one is None or state != "queued":
        return
    match deed:
        case "finish":
            queue.finish(name)
            model.items[name] = (one, "done", True)
        case "refuse":
            queue.refuse(name)
            model.items[name] = (one, "rejected", False)
        case _:
            queue.move(name, Event.CANCEL_REQUESTED)
            model.items[name] = (one, "canceled", False)


def held(queue: QueueFile) -> dict[str, tuple[object, ...]]:
    """Read back what the queue holds."""
    rows = queue.connection.execute(
        "SELECT i.name, i.state, i.prompt, i.priority, i.metadata, r.model, r.max_cost_credits,"
        " (SELECT f.path FROM json_each(i.inputs) AS e JOIN input_file AS f ON f.id = e.value)"
        " FROM item AS i JOIN recipe AS r ON r.id = i.recipe_id ORDER BY i.position"
    )
    return {row[0]: tuple(row)[1:] for row in rows}


def expected(model: Model) -> dict[str, tuple[object, ...]]:
    """Give the model in the same form."""
    return {
        name: (
            state,
            one.prompt,
            one.priority,
            one.metadata,
            one.recipe.model,
            one.recipe.max_cost_credits,
            files_of(one)[0].path if one.inputs else None,
        )
        for name, (one, state, _) in model.items.items()
    }


def left_to_send(counts: Iterable[RecipeCount]) -> Counter[tuple[str, str, int | None]]:
    """Sum up what is queued or under way, by state, price and cap."""
    found: Counter[tuple[str, str, int | None]] = Counter()
    for entry in counts:
        found[entry.state, entry.price_key, entry.max_cost_credits] += entry.count
    return found


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give an empty queue to copy into memory."""
    empty = QueueFile(tmp_path_factory.mktemp("template") / "queue.db")
    empty.connection.execute("PRAGMA journal_mode = DELETE")
    empty.connection.close()
    return empty.path


@settings(max_examples=examples(80), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=STEPS)
def test_any_sequence_of_manifests_agrees_with_the_model(template: Path, steps: list[tuple[object, object]]) -> None:
    """Report, items and counters are what a dictionary would hold, whatever is applied and happens in between.

    And what a plan foresees to be sent is what applying then leaves in the queue.
    """
    queue = QueueFile.__new__(QueueFile)
    queue.path = template
    queue.connection = sqlite3.connect(":memory:", isolation_level=None)
    with sqlite3.connect(template) as stored:
        stored.backup(queue.connection)
    stored.close()
    queue.connection.row_factory = sqlite3.Row
    model = Model()

    for first, second in steps:
        if isinstance(second, ApplyOptions):
            manifest: tuple[ItemSpec, ...] = tuple(first)  # type: ignore[arg-type]
            model.begin()
            second = replace(second, allow_duplicates=True)  # noqa: PLW2901  the report counts them
            wanted = model.apply(manifest, second)
            planned = queue.plan(manifest, job=JOB, options=second)
            try:
                report = queue.apply(manifest, job=JOB, options=second)
            except InputError:
                assert wanted is None
            else:
                assert replace(report, digest="") == wanted
                assert left_to_send(planned.counts) == left_to_send(Loads(queue.connection).recipe_counts(1, "local"))
        else:
            act(queue, model, str(first), str(second))
        assert held(queue) == expected(model)
        queue.check()
    queue.connection.close()
