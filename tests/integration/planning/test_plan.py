"""`plan` against the real local service: what it asks, what it foretells, and that it spends nothing."""

import dataclasses
import io
import json
import logging
from datetime import timedelta
from pathlib import Path

import pytest
from msgspec.structs import replace
from PIL import Image

from batchkiln.api.app_context import AppContext
from batchkiln.api.apply_manifests import apply_manifests
from batchkiln.cli.plan_text import short_lines
from batchkiln.clock import machine_now
from batchkiln.config import Config, Profile
from batchkiln.core.errors import ExitStatus, InputError, QueueBusy
from batchkiln.core.forecast import EndRange
from batchkiln.core.rate_limits import Limits, RequestKind
from batchkiln.core.timestamps import ClockReading, to_milliseconds
from batchkiln.planning.plan import Plan, make_plan
from batchkiln.planning.plan_document import plan_document
from batchkiln.planning.plan_warnings import note_of_images_to_make, warnings_of
from batchkiln.planning.queue_access import QueueAccess, RecordRequest, open_access
from batchkiln.planning.quotes import QuoteSession
from batchkiln.presentation.ends import JobEnd
from batchkiln.presentation.overview import read_overview
from batchkiln.store import Store
from batchkiln.store.apply import ApplyOptions
from batchkiln.store.session import Session
from batchkiln.store.sqlite.file_database import SqliteDatabase
from batchkiln.store.sqlite.file_lock import QueueLock
from batchkiln.store.usage import logged_requests

from .conftest import KEY, OLD_KEY, Ground, GroundMaker

TWO_MODELS = """\
- {matrix: {n: [1, 2, 3]}, id: "fox-{{ n }}", prompt: "fox {{ n }}"}
- id: clip
  model: alpha-2.5-lite
  mode: text-to-video
  prompt: an owl
  parameters: {resolution: 480p, duration_seconds: 2, aspect_ratio: "16:9"}
"""


SQUARE = 'parameters: {resolution: 512x512, aspect_ratio: "16:9"}'
"""Each is offered, and the two do not go together: the catalogue does not tell so, as it is understood."""


async def planned(
    app: AppContext, *paths: str, options: ApplyOptions | None = None, record_request: RecordRequest | None = None
) -> Plan:
    """Plan as the command does: the queue may be there or not."""
    store = await Store.open_if_there(app.queue)
    try:
        return await make_plan(
            QueueAccess(app, store, record_request), paths, options=options or ApplyOptions(), stdin=io.BytesIO()
        )
    finally:
        await store.close()


async def enqueue(ground: Ground, *paths: str) -> None:
    store = await Store.open_for_writing(ground.queue)
    try:
        await apply_manifests(store, ground.app, paths, options=ApplyOptions(), stdin=io.BytesIO())
    finally:
        await store.close()


def codes(plan: Plan) -> list[str]:
    return [warning.code for warning in warnings_of(plan)]


async def test_a_plan_asks_each_price_once_and_sends_nothing_else(make_ground: GroundMaker) -> None:
    """The catalogue, quotes and a balance: no create, no upload; and no queue is made."""
    ground = await make_ground()

    plan = await planned(ground.app, ground.manifest(TWO_MODELS))

    assert await ground.sent() == ["/models", "/quotes", "/quotes", "/credits/balance"]
    assert {cost.model: (cost.items, cost.credits) for cost in plan.costs} == {
        "alpha-2.5-lite": (1, 20),
        "epsilon-2": (3, 6),
    }
    assert plan.credits == 26
    assert plan.quotes.balances == {("studio", "main"): 10_000}
    assert not ground.queue.parent.exists()
    assert codes(plan) == []


async def test_one_key_under_two_names_is_not_planned(make_ground: GroundMaker) -> None:
    """Law 5: a forecast with one account's limits counted twice would be wrong; nothing is asked."""
    ground = await make_ground()
    (main,) = ground.app.config.profile("studio").accounts
    app = ground.with_profile(accounts=(main, dataclasses.replace(main, name="other")))

    with pytest.raises(InputError, match=r"studio/main .* and studio/other .* have the same API key"):
        await planned(app, ground.manifest(TWO_MODELS))

    assert await ground.sent() == []


async def test_prices_that_the_queue_knows_are_not_asked(make_ground: GroundMaker) -> None:
    """A stored quote is used; the queue stays as it is."""
    ground = await make_ground()
    manifest = ground.manifest(TWO_MODELS)
    await enqueue(ground, manifest)
    database = await SqliteDatabase.open_for_writing(ground.queue)
    await database.write(
        lambda connection: (
            connection.execute("INSERT INTO quote SELECT DISTINCT 'studio', price_key, 7, 1 FROM recipe").rowcount
        )
    )
    await database.close()
    before = ground.queue.read_bytes()

    plan = await planned(ground.app, manifest)

    assert await ground.sent() == ["/models", "/credits/balance"]
    assert plan.credits == 28
    assert ground.queue.read_bytes() == before


async def test_status_and_plan_foretell_the_same_end(make_ground: GroundMaker) -> None:
    """Both ask one forecast; a job that is queued ends when `status` says so."""
    ground = await make_ground(limits=Limits(credits_per_day=10))
    manifest = ground.manifest('- {matrix: {n: [1, 2, 3, 4, 5, 6, 7, 8, 9]}, id: "f-{{ n }}", prompt: "{{ n }}"}')
    await enqueue(ground, manifest)
    database = await SqliteDatabase.open_for_writing(ground.queue)
    await database.write(
        lambda connection: connection.execute("INSERT INTO quote SELECT 'studio', price_key, 2, 1 FROM recipe").rowcount
    )
    plan = await planned(ground.app, manifest)
    overview = await Store(database).read(read_overview, ground.app.config, ["foxes"], machine_now())
    await database.close()

    forecast = overview.jobs[0].estimated_end_at

    assert forecast is not None
    assert plan.jobs[0].end.at is not None
    assert abs((plan.jobs[0].end.at - forecast).total_seconds()) < 5
    assert [day.credits for day in plan.outlooks[0].forecast.days] == [10, 8]


async def test_the_read_window_is_kept(make_ground: GroundMaker) -> None:
    """More prices than a minute has reads: the plan waits by itself, and is never refused. Service section 8."""
    limits = Limits(reads_per_minute=4, minute_seconds=30)
    ground = await make_ground(limits=limits, time_scale=60)
    sizes = ["512x512", "1024x1024", "2048x2048"]
    items = "\n".join(
        f'- {{id: "i-{model}-{size}", prompt: "x", model: {model}, parameters: {{resolution: {size}, '
        'aspect_ratio: "1:1"}}'
        for model in ("epsilon-2",)
        for size in sizes
    )
    items += "\n" + TWO_MODELS.split("\n", 1)[1]

    plan = await planned(ground.app, ground.manifest(items))

    assert [request["status"] for request in await ground.answered()] == [200] * 6
    assert plan.unpriced == 0


async def test_a_day_without_reads_left_is_reported_and_not_overstepped(make_ground: GroundMaker) -> None:
    """The second price would be one read too many. Service section 8."""
    ground = await make_ground(limits=Limits(reads_per_day=2))

    plan = await planned(ground.app, ground.manifest(TWO_MODELS))

    assert await ground.sent() == ["/models", "/quotes"]
    assert "reads and quotes of the account are used up" in plan.quotes.failures[0].reason
    assert 0 < plan.unpriced < 4


async def test_what_another_process_has_asked_counts_in_the_window(
    make_ground: GroundMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reads that the queue has noted leave fewer places; the plan waits until they are free."""
    pauses: list[float] = []

    async def pause(_: QuoteSession, seconds: float) -> None:
        pauses.append(seconds)

    monkeypatch.setattr(QuoteSession, "pause", pause)
    ground = await make_ground(limits=Limits(reads_per_minute=4))
    manifest = ground.manifest(TWO_MODELS)
    await enqueue(ground, manifest)
    database = await SqliteDatabase.open_for_writing(ground.queue)
    await database.write(_note_reads, 3)
    await database.close()

    plan = await planned(ground.app, manifest)

    assert plan.unpriced == 0
    assert pauses
    assert 0 < max(pauses) <= 61  # what is left of the minute since they were noted


async def test_reads_are_noted_in_the_queue_also_while_it_is_driven(make_ground: GroundMaker) -> None:
    """A drive that starts within the minute counts them, and the day has them at once. Law 5."""
    ground = await make_ground()
    manifest = ground.manifest(TWO_MODELS)
    await enqueue(ground, manifest)
    driver = await SqliteDatabase.open_for_writing(ground.queue)
    lock = QueueLock(ground.queue)
    await lock.acquire(driver, command="run", now=machine_now())
    items = await driver.read(_all_of, "item")

    async with open_access(ground.app) as access:
        plan = await planned(ground.app, manifest, record_request=access.record_request)

    noted = await driver.read(logged_requests, "studio", 60)
    reads = await driver.read(lambda connection: connection.execute("SELECT sum(reads) FROM account_day").fetchone()[0])
    assert await driver.read(_all_of, "item") == items
    await lock.release(driver)
    await driver.close()
    assert plan.unpriced == 0
    assert [request.kind for request in noted] == [RequestKind.QUOTE] * len(await ground.sent())
    assert reads == 4


async def test_a_queue_that_cannot_be_written_is_planned_for_as_well(
    make_ground: GroundMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a disk for reading only the reads go unnoted, and keep to half of the minute as ever."""
    ground = await make_ground()
    manifest = ground.manifest(TWO_MODELS)
    await enqueue(ground, manifest)

    async def refuse(_: Path) -> SqliteDatabase:
        raise QueueBusy("attempt to write a readonly database")

    monkeypatch.setattr(SqliteDatabase, "open_for_writing", refuse)
    async with open_access(ground.app) as access:
        plan = await planned(ground.app, manifest, record_request=access.record_request)

    assert plan.unpriced == 0
    assert plan.quotes.failures == []


async def test_what_cannot_be_noted_is_not_sent(make_ground: GroundMaker) -> None:
    """The disk is full in the middle: the plan says so, and asks nothing more. Law 5."""
    ground = await make_ground()

    async def full(_: str, __: str, ___: ClockReading) -> None:
        raise QueueBusy("the disk is full")

    plan = await planned(ground.app, ground.manifest(TWO_MODELS), record_request=full)

    assert await ground.sent() == []
    assert "the disk is full" in plan.quotes.failures[0].reason


def _all_of(connection: Session, table: str) -> list[tuple[object, ...]]:
    return [tuple(row) for row in connection.execute(f"SELECT * FROM {table} ORDER BY id")]


def _note_reads(connection: Session, count: int) -> None:
    connection.execute("INSERT INTO account (profile, name) VALUES ('studio', 'main')")
    now = to_milliseconds(machine_now())
    for _ in range(count):
        connection.execute("INSERT INTO request (account_id, kind, sent_at) VALUES (1, 'read', ?)", (now,))


async def test_an_old_key_is_reported_with_the_exit_status_of_a_run(make_ground: GroundMaker) -> None:
    """The differences are still shown; prices are not known. Service rule 5.4."""
    ground = await make_ground()
    (ground.folder / "key").write_text(OLD_KEY, "utf-8")

    plan = await planned(ground.app, ground.manifest(TWO_MODELS))

    assert [failure.exit_status for failure in plan.quotes.failures] == [ExitStatus.ACCOUNT_CANNOT_WORK]
    assert plan.unpriced == 4
    assert plan.outlooks[0].forecast.days == ()
    assert "account_not_asked" in codes(plan)


async def test_a_service_that_is_not_there_leaves_the_differences(make_ground: GroundMaker) -> None:
    """Without a network the plan has no prices, and says why."""
    ground = await make_ground()
    app = ground.with_profile(base_url="http://127.0.0.1:9/api/v1")

    plan = await planned(app, ground.manifest(TWO_MODELS))

    assert plan.jobs[0].to_send == 4
    assert plan.jobs[0].end.at is None
    assert "does not answer" in plan.quotes.failures[0].reason
    assert plan.quotes.failures[0].exit_status is ExitStatus.ACCOUNT_CANNOT_WORK
    (warning,) = plan.warnings  # one for prices and catalogue: they are missing for one cause
    assert "does not answer" in warning
    assert "4 items have no price" in warning
    assert "`batchkiln doctor`" in warning


async def test_a_missing_key_is_reported(make_ground: GroundMaker) -> None:
    """As `run` would, but with the differences."""
    ground = await make_ground()
    (ground.folder / "key").unlink()

    plan = await planned(ground.app, ground.manifest(TWO_MODELS))

    assert plan.quotes.failures[0].exit_status is ExitStatus.USAGE
    assert await ground.sent() == []


async def test_what_the_service_refuses_is_reported_before_it_is_sent(make_ground: GroundMaker) -> None:
    """A combination that no model offers: nothing was paid, and the reason is the service's own."""
    ground = await make_ground()

    plan = await planned(ground.app, ground.manifest(f"- {{id: fox, prompt: x, {SQUARE}}}"))

    assert codes(plan) == ["refused"]
    assert plan.jobs[0].refused[0].item == "fox"
    assert plan.credits == 0


EDITS = """\
- {id: still, prompt: x}
- {id: a, prompt: y, mode: image-to-image, inputs: [{item: still}]}
- {id: b, prompt: y, mode: image-to-image, inputs: [{item: still}]}
- {id: c, prompt: y, mode: image-to-image, inputs: [{item: still}], parameters: {resolution: 1024x1024}}
"""
TO_MAKE = "3 items are made from images that are not there yet"
ALIKE = "those of equal requests with other images"


@pytest.mark.parametrize(
    ("known", "unpriced", "note"),
    [
        ("", 3, TO_MAKE),
        ("512", 1, f"{TO_MAKE}; 1 of them has no price yet, and the other prices are {ALIKE}"),
        ("1024", 2, f"{TO_MAKE}; 2 of them have no price yet, and the other prices are {ALIKE}"),
        ("512 1024", 0, f"{TO_MAKE}; the prices are {ALIKE}"),
    ],
)
async def test_note_says_how_prices_of_images_that_are_not_there_were_found(
    make_ground: GroundMaker, known: str, unpriced: int, note: str
) -> None:
    """By quotes of earlier requests, where the queue has them; the service is asked only with images that it has."""
    ground = await make_ground()
    manifest = ground.manifest(EDITS)
    await enqueue(ground, manifest)
    database = await SqliteDatabase.open_for_writing(ground.queue)
    for size in known.split():
        await database.write(_note_price, size)
    await database.close()

    plan = await planned(ground.app, manifest)

    assert note_of_images_to_make(plan.jobs[0], plan) == note
    assert (plan.jobs[0].to_make, plan.jobs[0].to_make_unpriced) == (3, unpriced)
    assert plan.unpriced == unpriced


def _note_price(connection: Session, size: str) -> None:
    connection.execute(
        "INSERT INTO quote SELECT 'studio', price_key, 3, 1 FROM recipe WHERE inputs_count = 1 AND parameters LIKE ?",
        (f'%"{size}x%',),
    )


async def test_items_that_can_never_fit_are_reported(make_ground: GroundMaker) -> None:
    """A cap below the quote, and a job's budget that does not cover all (contract, section 7)."""
    ground = await make_ground()
    capped = '- {matrix: {n: [1, 2]}, id: "f-{{ n }}", prompt: "x {{ n }}", max_cost_credits: 1}'
    many = '- {matrix: {n: [1, 2, 3]}, id: "g-{{ n }}", prompt: "y {{ n }}"}'

    plan = await planned(ground.app, ground.manifest(f"{capped}\n{many}", more="budget: {credits: 5}"))

    assert codes(plan) == ["over_cap", "over_job_budget"]
    assert plan.credits == 4
    assert (plan.costs[0].items, plan.costs[0].credits) == (2, 4)


async def test_a_job_longer_than_the_retention_and_a_low_balance_are_reported(make_ground: GroundMaker) -> None:
    """Results are kept for fourteen days. Service section 8."""
    ground = await make_ground(limits=Limits(credits_per_day=2))
    numbers = ", ".join(str(number) for number in range(20))
    manifest = ground.manifest(f'- {{matrix: {{n: [{numbers}]}}, id: "f-{{{{ n }}}}", prompt: "x {{{{ n }}}}"}}')

    plan = await planned(ground.app, manifest)
    plan.quotes.balances["studio", "main"] = 3

    assert codes(plan) == ["longer_than_retention", "balance_too_low"]


@pytest.mark.parametrize(("latest", "message"), [(19, "it may take 19 days"), (14, None)])
async def test_a_job_that_may_be_longer_than_the_retention_is_reported(
    make_ground: GroundMaker, latest: int, message: str | None
) -> None:
    """The range counts: a job of thirteen days may well take longer than the fourteen of service section 8."""
    ground = await make_ground()
    plan = await planned(ground.app, ground.manifest('- {id: "f", prompt: "x"}'))
    (job,) = plan.jobs
    found = EndRange(job.now + timedelta(days=9), job.now + timedelta(days=latest))
    changed = replace(job, end=JobEnd(job.now + timedelta(days=13), found))

    warnings = warnings_of(replace(plan, jobs=(changed,)))

    assert [warning.message.partition(",")[0] for warning in warnings] == ([] if message is None else [message])


async def test_images_are_not_uploaded_for_a_plan(make_ground: GroundMaker) -> None:
    """A quote needs them, so the price stays unknown; what they need of the days' uploads is told."""
    ground = await make_ground(limits=Limits(upload_files_per_day=1))
    items = []
    for number in range(2):
        Image.new("RGB", (300, 300), (number, 9, 9)).save(ground.folder / f"{number}.png")
        items.append(
            f"- {{id: i-{number}, mode: image-to-image, prompt: x, inputs: [{number}.png], "
            'parameters: {resolution: 512x512, aspect_ratio: "1:1"}}'
        )

    plan = await planned(ground.app, ground.manifest("\n".join(items)))

    assert codes(plan) == ["uploads_take_days", "unpriced_uploads"]
    assert not any("uploads" in request for request in await ground.sent())
    assert plan.jobs[0].manifest.uploads.files == 2


@pytest.mark.parametrize(
    ("cap", "more", "bound", "bound_by", "most"),
    [
        ("", "", 2000, "the account's daily credits", 4006),
        ("max_cost_credits: 30, ", "", 30, "max_cost_credits", 66),
        ("", "budget: {credits: 50}", 50, "the rest of budget.credits", 50),
        ("", "budget: {credits_per_day: 40}", 40, "budget.credits_per_day", 86),
    ],
    ids=["account", "cap", "budget", "daily budget"],
)
async def test_what_has_no_price_is_reported_with_the_tightest_bound(  # noqa: PLR0917  a table's columns
    make_ground: GroundMaker, cap: str, more: str, bound: int, bound_by: str, most: int
) -> None:
    """By model, mode, parameters and images, with the reason; what others cost says nothing about it."""
    ground = await make_ground()
    Image.new("RGB", (300, 300)).save(ground.folder / "a.png")
    clips = (
        f'- {{matrix: {{n: [1, 2]}}, id: "c-{{{{ n }}}}", model: alpha-2.5, mode: image-to-video, prompt: x, {cap}'
        "inputs: [a.png], parameters: {resolution: 480p, duration_seconds: 4}}"
    )
    foxes = '- {matrix: {n: [1, 2, 3]}, id: "f-{{ n }}", prompt: x}'

    plan = await planned(ground.app, ground.manifest(f"{foxes}\n{clips}", more=more))

    document = plan_document(plan)
    (group,) = document["jobs"][0]["unpriced_groups"]
    assert (group["model"], group["mode"], group["items"], group["images"]) == ("alpha-2.5", "image-to-video", 2, 1)
    assert (group["at_most_each"], group["bound_by"]) == (bound, bound_by)
    assert "uploaded only during a run" in group["reason"]
    assert (document["cost"]["credits"], document["cost"]["at_most"]) == (6, most)
    assert plan.is_bounded is bool(cap or more)


async def test_the_local_service_prices_images_and_is_gone_afterwards(tmp_path: Path) -> None:
    """Without configuration, images are priced too: they are uploaded to a temporary service."""
    Image.new("RGB", (300, 300)).save(tmp_path / "a.png")
    app = AppContext(tmp_path / "q" / "queue.db", Config({"local": Profile("local")}, "local"), working_dir=tmp_path)
    text = (
        "version: 1\njob: j\nitems:\n  - {id: i, prompt: x, model: epsilon-2, mode: image-to-image, inputs: [a.png],"
        ' parameters: {resolution: 512x512, aspect_ratio: "1:1"}}\n'
    )
    (tmp_path / "m.yaml").write_text(text, "utf-8")

    plan = await planned(app, str(tmp_path / "m.yaml"))

    assert plan.unpriced == 0
    assert plan.credits > 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.png", "m.yaml"]


async def test_other_jobs_of_the_queue_are_named_and_left_out(make_ground: GroundMaker) -> None:
    """`run` sends only the jobs that it names."""
    ground = await make_ground()
    await enqueue(ground, ground.manifest(TWO_MODELS))
    other = ground.folder / "owls.yaml"
    other.write_text((ground.folder / "foxes.yaml").read_text("utf-8").replace("job: foxes", "job: owls"), "utf-8")

    plan = await planned(ground.app, str(other))

    assert plan.others == ("foxes",)
    assert plan.credits == 26
    assert codes(plan) == ["other_jobs"]


async def test_mistakes_of_a_manifest_are_reported_as_ever(make_ground: GroundMaker) -> None:
    """A broken manifest has no plan, and no price is asked."""
    ground = await make_ground()

    with pytest.raises(InputError, match="propmt"):
        await planned(ground.app, ground.manifest("- {id: a, propmt: x}"))

    assert await ground.sent() == ["/models"]


async def test_keys_are_nowhere_in_a_plan(make_ground: GroundMaker, caplog: pytest.LogCaptureFixture) -> None:
    """Neither in the document, nor in the short form, nor in the log (Law 8)."""
    caplog.set_level(logging.DEBUG)
    ground = await make_ground()
    texts = []
    for key in (KEY, OLD_KEY):
        (ground.folder / "key").write_text(key, "utf-8")
        plan = await planned(ground.app, ground.manifest(TWO_MODELS))
        texts += [json.dumps(plan_document(plan)), "\n".join(short_lines(plan)), repr(plan)]

    assert not [text for text in [*texts, caplog.text] if KEY in text or OLD_KEY in text]
