"""When the jobs of a queue end, and why that is not known."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from batchkiln.config import Account, Config, Profile
from batchkiln.core.states import ItemState
from batchkiln.core.timestamps import from_milliseconds
from batchkiln.presentation.job_documents import job_document
from batchkiln.presentation.overview import JobView, read_overview, service_notes
from batchkiln.store import Reader
from support.queue_file import JOB, NOW, QueueFile, capped, spec
from support.view_builders import job_view

AT = from_milliseconds(NOW)
CONFIG = Config({"local": Profile("local", base_url="https://service.example/api/v1")}, "local")


@pytest.fixture
def queue(tmp_path: Path) -> Iterator[QueueFile]:
    """Two jobs: `birds` has an item whose model has no price, and `foxes`, behind it, has a price."""
    opened = QueueFile(tmp_path / "queue.db")
    opened.apply([spec("dear"), spec("cheap", recipe=replace(capped(None), model="omega-9"))])
    opened.apply([spec("fox")], job=replace(JOB, name="foxes"))
    opened.quote(10)
    of_omega = "SELECT price_key FROM recipe WHERE model = 'omega-9'"
    opened.connection.execute(f"DELETE FROM quote WHERE price_key IN ({of_omega})")
    yield opened
    opened.connection.close()


def views(queue: QueueFile, *, running: list[str] | None = None, config: Config = CONFIG) -> dict[str, JobView]:
    overview = read_overview(Reader(queue.connection), config, None, AT, running=running)
    return {view.summary.name: view for view in overview.jobs}


def test_a_job_behind_an_unknown_price_has_an_earliest_end_and_the_reason(queue: QueueFile) -> None:
    """It names the items of the other job, for people and for programs."""
    view = views(queue)["foxes"]

    assert view.end_line.startswith("would end in ")
    assert "at the earliest" in view.end_line
    assert "1 item of birds (omega-9) has no price yet" in view.end_line
    document = job_document(view)
    assert document["estimated_end_at"] is None
    assert document["earliest_end_at"] is not None
    assert document["end_reason"] == view.end_reason


def test_a_run_of_one_job_has_its_end_whatever_waits_in_others(queue: QueueFile) -> None:
    """What the run does not send cannot delay it."""
    view = views(queue, running=["foxes"])["foxes"]

    assert view.estimated_end_at is not None
    assert view.end_reason is None


def test_nobody_knows_an_end_while_the_service_does_not_answer(queue: QueueFile) -> None:
    """Without a process, nobody asks the service, and the end is that of a run which finds it well again."""
    main = Account("main", ())
    config = Config({"local": replace(CONFIG.profiles["local"], accounts=(main,))}, "local")
    queue.connection.execute(
        "INSERT INTO account (profile, name, outage_since, outage_reason) VALUES ('local', 'main', ?, 'no route')",
        (NOW,),
    )
    assert views(queue, config=config)["foxes"].end is not None

    queue.connection.execute(
        "INSERT INTO lease (only, pid, host, command, started_at) VALUES (1, 1, 'elsewhere', 'run', ?)", (NOW,)
    )

    view = views(queue, config=config)["foxes"]
    assert view.end is None
    assert view.end_line == "end not known yet: the service is not available"
    assert job_document(view)["end_reason"] == "the service is not available"


def test_a_job_of_a_profile_that_is_gone_says_so(queue: QueueFile) -> None:
    """Nobody knows the limits of a service that is not configured."""
    view = views(queue, config=Config({"studio": Profile("studio")}, "studio"))["foxes"]

    assert view.end_line == "end not known yet: its profile local is not in the configuration"


def test_different_local_services_are_told_apart() -> None:
    """Two speeds without a name leave a person to guess which jobs have which."""
    fast = replace(job_view({}), time_scale=20)
    faster = replace(fast, time_scale=60, summary=replace(fast.summary, profile="served"))

    assert service_notes([fast, fast]) == [
        "Local service: its credits are made up, and its clock runs 20 times as fast."
    ]
    assert service_notes([fast, faster]) == [
        "local: local service: its credits are made up, and its clock runs 20 times as fast.",
        "served: local service: its credits are made up, and its clock runs 60 times as fast.",
    ]


def test_a_run_of_selected_items_has_their_numbers_and_their_end(queue: QueueFile) -> None:
    """What the run does not begin is neither counted nor waited for."""
    queue.apply([spec(f"fox-{number}") for number in range(400)], job=replace(JOB, name="many"))
    queue.quote(10)
    recipe = queue.one("SELECT recipe_id FROM item WHERE name = 'fox-0'")
    beside = {"many": {(recipe, ItemState.QUEUED): 398}}

    reader = Reader(queue.connection)
    (whole,) = read_overview(reader, CONFIG, ["many"], AT, running=["many"]).jobs
    (part,) = read_overview(reader, CONFIG, ["many"], AT, running=["many"], unselected=beside).jobs

    assert (whole.summary.total, part.summary.total, part.summary.left) == (400, 2, 2)
    assert whole.end is not None
    assert part.end is not None
    assert part.end.seconds < whole.end.seconds / 50
