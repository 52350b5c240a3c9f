"""The identity of items: ids of earlier versions, and requests that were paid for under other ids."""

import json

import pytest
from msgspec.structs import replace

from batchkiln.core.errors import InputError
from batchkiln.core.job import ItemSpec, Mode, SourceRef
from batchkiln.core.states import ItemState
from batchkiln.store.apply import ApplyOptions
from batchkiln.store.identity import SameRequest
from support.queue_file import JOB, RECIPE, Placed, QueueFile, capped, image, spec

RENAMED = replace(JOB, manifest_path="/elsewhere/copied.yaml")
PIPED = replace(JOB, manifest_path="-")
AGAIN = ApplyOptions(allow_duplicates=True)


def numbered(position: int, prompt: str, *, repetition: int = 0, **fields: object) -> Placed:
    """Give an item without an id of its own, as the manifest reads it."""
    name = f"item-{position}" + (f"-{repetition}" if repetition else "")
    item = ItemSpec(name, RECIPE, prompt)._replace(**fields)  # type: ignore[arg-type]
    return Placed(item, "m", position, repetition=repetition, has_default_id=True)


def named(name: str, prompt: str, **fields: object) -> ItemSpec:
    return spec(name, prompt=prompt, **fields)


def made_before(queue: QueueFile, *items: ItemSpec) -> None:
    """Give the job as an earlier version made it: its default ids hold the file's name `birds`."""
    queue.apply(items)
    detail = json.dumps({"manifest": JOB.manifest_path})
    event = "INSERT INTO history (id, at, job_id, kind, detail) VALUES (0, 0, 1, 'job_created', ?)"
    queue.connection.execute(event, (detail,))  # in front of the one that this version wrote


@pytest.mark.parametrize("job", [JOB, RENAMED, PIPED], ids=["same name", "renamed", "piped"])
def test_a_manifest_under_another_name_makes_nothing_again(queue: QueueFile, job: object) -> None:
    """Default ids hold no file name (contract, section 10)."""
    items = [numbered(1, "fox"), numbered(2, "owl")]
    queue.apply(items)
    queue.finish("item-1")

    report = queue.apply(items, job=job)  # type: ignore[arg-type]

    assert (report.new, report.known, report.missing) == (0, 2, 0)


@pytest.mark.parametrize("job", [JOB, RENAMED, PIPED], ids=["same name", "renamed", "piped"])
def test_old_default_ids_stay_known(queue: QueueFile, job: object) -> None:
    """A job of an earlier version keeps its ids, and pays for nothing again (contract, section 10)."""
    made_before(queue, named("birds-1", "fox"), named("birds-2-1", "owl"), named("birds-2-2", "owl"))
    queue.finish("birds-1")
    items = [numbered(1, "fox"), numbered(2, "owl", repetition=1), numbered(2, "owl", repetition=2)]

    report = queue.apply(items, job=job)  # type: ignore[arg-type]

    assert (report.new, report.known, report.missing) == (0, 3, 0)
    assert queue.all("SELECT name FROM item ORDER BY id") == [("birds-1",), ("birds-2-1",), ("birds-2-2",)]


def test_every_later_application_finds_the_old_ids(queue: QueueFile) -> None:
    """The names that the manifest had before stay known, whatever it is called afterwards."""
    made_before(queue, named("birds-1", "fox"))
    queue.finish("birds-1")

    reports = [queue.apply([numbered(1, "fox")], job=job) for job in (RENAMED, PIPED, RENAMED, JOB)]

    assert [(report.new, report.known) for report in reports] == [(0, 1)] * 4


def test_old_ids_are_found_by_their_images_contents(queue: QueueFile) -> None:
    """Images are compared by what is in them: a copied folder has other paths."""
    made_before(queue, named("birds-1", "fox", inputs=(image("/a.png", "aa"),)))
    queue.finish("birds-1")

    same = queue.plan([numbered(1, "fox", inputs=(image("/b.png", "aa"),))], job=RENAMED)
    other = queue.plan([numbered(1, "fox", inputs=(image("/a.png", "bb"),))], job=RENAMED)

    assert (same.report.new, other.report.new) == (0, 1)


def test_a_changed_prompt_updates_the_old_item_of_the_same_file(queue: QueueFile) -> None:
    """An item that was never sent is updated as before, and not made beside its successor."""
    made_before(queue, named("birds-1", "fox"))

    report = queue.apply([numbered(1, "vixen")])

    assert (report.new, report.updated) == (0, 1)
    assert queue.item("birds-1")["prompt"] == "vixen"


def test_a_changed_prompt_of_a_sent_old_item_is_told(queue: QueueFile) -> None:
    """As before: a person decides whether to generate both."""
    made_before(queue, named("birds-1", "fox"))
    queue.finish("birds-1")

    with pytest.raises(InputError, match="'birds-1' was already sent"):
        queue.apply([numbered(1, "vixen")])


def test_other_requests_under_another_name_are_new(queue: QueueFile) -> None:
    """A second manifest of the job is not mistaken for the first."""
    made_before(queue, named("birds-1", "fox"))

    report = queue.apply([numbered(1, "vixen")], job=RENAMED)

    assert (report.new, report.missing) == (1, 1)


def test_an_id_that_the_manifest_names_is_no_old_default_id(queue: QueueFile) -> None:
    """Two items never become one: rows of `birds.tsv` have such ids as well."""
    made_before(queue, named("birds-1", "fox"))

    report = queue.apply([named("birds-1", "fox"), numbered(1, "fox")])

    assert (report.new, report.known) == (1, 1)


def test_a_job_of_this_version_has_no_old_ids(queue: QueueFile) -> None:
    """A row that left its source is not mistaken for an item at its position."""
    queue.apply([named("birds-1", "fox")])

    report = queue.apply([numbered(1, "vixen")])

    assert (report.new, report.missing) == (1, 1)


def test_a_lost_attempt_is_found_under_its_old_id(queue: QueueFile) -> None:
    """An item that a restored copy has lost gets its name again, and so its idempotency key (Law 2)."""
    queue.connection.execute(
        "INSERT INTO lost_attempt (job, item, profile, account, number, idempotency_key, key_fingerprint, checksum,"
        " quote_credits, recorded_at) VALUES ('birds', 'birds-1', 'local', 'main', 1, 'k', 'f', 0, 5, 0)"
    )

    made = queue.apply([numbered(1, "fox"), numbered(2, "owl")])
    again = queue.apply([numbered(1, "fox"), numbered(2, "owl")])

    assert queue.all("SELECT name FROM item ORDER BY id") == [("birds-1",), ("item-2",)]
    assert (made.new, again.new, again.known) == (2, 0, 2)


def test_a_paid_request_under_a_new_id_is_refused(queue: QueueFile) -> None:
    """Nothing is enqueued until a person says that it may be paid for again."""
    queue.apply([spec("fox"), spec("owl")])
    queue.finish("fox")

    with pytest.raises(InputError, match="asks for the same as 'fox', which is done") as refused:
        queue.apply([named("reynard", "a picture of fox"), named("new", "another")])

    assert "--allow-duplicates" in str(refused.value)
    assert queue.names() == ["owl"]


def test_a_request_under_way_counts_as_paid(queue: QueueFile) -> None:
    """What the service is making now is not asked for a second time either."""
    queue.apply([spec("fox")])
    queue.send("fox", generation_id="gen-1")

    with pytest.raises(InputError, match="which is active"):
        queue.apply([named("reynard", "a picture of fox")])


def test_allowed_duplicates_are_enqueued_and_counted(queue: QueueFile) -> None:
    """`--allow-duplicates` pays again, and the report says for how many."""
    queue.apply([spec("fox")])
    queue.finish("fox")

    report = queue.apply([named("reynard", "a picture of fox")], options=AGAIN)

    assert (report.new, report.paid_before) == (1, 1)


@pytest.mark.parametrize(
    "other",
    [
        {"prompt": "a picture of foxes"},
        {"recipe": replace(RECIPE, model="alpha")},
        {"recipe": replace(RECIPE, parameters=(("resolution", "512x512"),))},
        {"inputs": (image("/a.png", "aa"),)},
    ],
    ids=["prompt", "model", "parameters", "images"],
)
def test_another_request_is_no_duplicate(queue: QueueFile, other: dict[str, object]) -> None:
    """A request is its model, mode, parameters, prompt and images."""
    queue.apply([spec("fox")])
    queue.finish("fox")

    report = queue.apply([named("reynard", **({"prompt": "a picture of fox"} | other))])  # type: ignore[arg-type]

    assert report.paid_before == 0


def test_cap_and_tries_are_no_part_of_a_request(queue: QueueFile) -> None:
    """They do not change what is made."""
    queue.apply([spec("fox")])
    queue.finish("fox")

    report = queue.apply([named("reynard", "a picture of fox", recipe=capped(9, attempts=5))], options=AGAIN)

    assert report.paid_before == 1


def test_equal_images_at_other_paths_are_a_duplicate(queue: QueueFile) -> None:
    """Images are compared by content."""
    queue.apply([spec("fox", inputs=(image("/a.png", "aa"), image("/b.png", "bb")))])
    queue.finish("fox")

    def found(*images: tuple[str, str]) -> int:
        item = named("x", "a picture of fox", inputs=tuple(image(path, content) for path, content in images))
        return queue.plan([item]).report.paid_before

    assert found(("/c.png", "aa"), ("/d.png", "bb")) == 1
    assert found(("/b.png", "bb"), ("/a.png", "aa")) == 0


def test_a_larger_repeat_makes_more_of_the_same(queue: QueueFile) -> None:
    """`repeat` asks for equal requests on purpose; renamed, it asks for them again."""

    def repeated(name: str, count: int) -> list[Placed]:
        return [Placed(named(f"{name}-{n}", "fox"), "m", 1, repetition=n) for n in range(1, count + 1)]

    queue.apply(repeated("fox", 2))
    queue.finish("fox-1")
    queue.finish("fox-2")

    more, renamed = queue.plan(repeated("fox", 4)), queue.plan(repeated("vixen", 2))

    assert (more.report.new, more.report.paid_before) == (2, 0)
    assert (renamed.report.new, renamed.report.paid_before) == (2, 2)


def test_a_plan_names_what_was_paid_before(queue: QueueFile) -> None:
    """The new item, its place, and the old one; a plan only tells."""
    queue.apply([spec("fox")])
    queue.finish("fox")

    plan = queue.plan([named("reynard", "a picture of fox")])

    assert plan.paid_before == (SameRequest("reynard", 0, 10, "fox", ItemState.DONE),)


def test_a_plan_names_equal_requests_of_a_manifest(queue: QueueFile) -> None:
    """Each item after the first, with the first; the items of one `repeat` are equal on purpose."""
    twice = [Placed(named(f"r-{n}", "heron"), "m", 9, repetition=n) for n in (1, 2)]

    plan = queue.plan(
        [spec("fox"), named("b", "a picture of fox"), spec("owl"), named("d", "a picture of fox"), *twice]
    )

    assert plan.equal_requests == (2, (("b", "fox"), ("d", "fox")))


def made_from(name: str, prompt: str, *sources: str) -> ItemSpec:
    inputs = tuple(SourceRef(source) for source in sources)
    return named(name, prompt, recipe=replace(RECIPE, mode=Mode.IMAGE_TO_IMAGE, inputs_count=1), inputs=inputs)


def chain_of(queue: QueueFile, *items: ItemSpec) -> None:
    """Make items, each of which is made before the next one."""
    queue.apply(items)
    for number, item in enumerate(items, start=1):
        queue.finish(item.name, sha256=f"a{number}")


def test_a_chained_request_under_a_new_id_is_refused(queue: QueueFile) -> None:
    """Made from the same item, it is the same request: nothing is enqueued until a person says so."""
    chain_of(queue, named("fox", "a fox"), made_from("fox-ink", "in ink", "fox"))

    with pytest.raises(InputError, match="asks for the same as 'fox-ink', which is done"):
        queue.apply([named("fox", "a fox"), made_from("ink-of-fox", "in ink", "fox")])


def test_a_whole_chain_under_new_ids_is_refused(queue: QueueFile) -> None:
    """Its source repeats the request of the earlier source, and so on along the chain."""
    chain_of(
        queue,
        named("fox", "a fox"),
        made_from("fox-ink", "in ink", "fox"),
        made_from("fox-oil", "in oil", "fox-ink"),
    )

    renamed = [
        named("vixen", "a fox"),
        made_from("vixen-ink", "in ink", "vixen"),
        made_from("vixen-oil", "in oil", "vixen-ink"),
    ]

    assert queue.plan(renamed).report.paid_before == 3


def test_equal_content_of_another_source_is_a_duplicate(queue: QueueFile) -> None:
    """A file and an item's output are compared by what is in them."""
    queue.apply([named("still", "a still", inputs=()), named("old", "in ink", inputs=(image("/a.png", "a1"),))])
    queue.finish("still", sha256=image("/a.png", "a1").sha256)
    queue.finish("old")
    recipe = spec("old", inputs=(image("/a.png", "a1"),)).recipe

    again = made_from("new", "in ink", "still")._replace(recipe=recipe)

    assert queue.plan([again]).report.paid_before == 1


@pytest.mark.parametrize(
    ("prompt", "source"), [("in oil", "fox"), ("in ink", "owl")], ids=["other prompt", "other source"]
)
def test_another_chained_request_is_no_duplicate(queue: QueueFile, prompt: str, source: str) -> None:
    """Other words, or another picture."""
    chain_of(queue, named("fox", "a fox"), named("owl", "an owl"), made_from("fox-ink", "in ink", "fox"))

    assert queue.plan([made_from("new", prompt, source)]).report.paid_before == 0


def test_a_source_that_was_made_again_makes_another_request(queue: QueueFile) -> None:
    """Its content is not what the earlier item was made from."""
    chain_of(queue, named("fox", "a fox"), made_from("fox-ink", "in ink", "fox"))
    queue.connection.execute("UPDATE output SET sha256 = 'b9' WHERE sha256 = 'a1'")

    assert queue.plan([made_from("new", "in ink", "fox")]).report.paid_before == 0


def test_a_reference_to_a_default_id_follows_it_to_its_old_name(queue: QueueFile) -> None:
    """The manifest names `item-1`, and the job of an earlier version has it as `birds-1`."""
    made_before(queue, named("birds-1", "fox"))
    queue.finish("birds-1", sha256="a1")

    report = queue.apply([numbered(1, "fox"), made_from("ink", "in ink", "item-1")])

    assert (report.new, report.known) == (1, 1)
    assert queue.all(
        "SELECT source.name FROM item_source JOIN item AS source ON source.id = item_source.source_id"
    ) == [("birds-1",)]
