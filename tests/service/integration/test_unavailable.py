"""Books that cannot be written for a while: 503, nothing done, and a later try succeeds. Service section 7."""

import errno
import sqlite3
from contextlib import closing

import pytest

from batchkiln_service import Limits
from batchkiln_service.db.database import is_temporary
from batchkiln_service.db.setup import FILE_NAME

from .service_world import World, WorldMaker, image_with

KEY = "an-idempotency-key"
LONG = image_with(prompt="x" * 4000)  # needs pages that the file has not yet


@pytest.fixture
async def roomy(make_world: WorldMaker) -> World:
    """Start a service without limits."""
    return await make_world(limits=Limits.lifted(), tiny_media=True)


async def fill_disk(world: World, *, is_full: bool) -> None:
    """Let the file of the books grow no further, or again."""
    most = 1 if is_full else 2**30
    await world.service._run(lambda books: books.execute(f"PRAGMA max_page_count = {most}").fetchone()[0])


async def test_create_on_a_full_disk_can_be_sent_again(roomy: World) -> None:
    """503 with Retry-After and nothing charged; the same bytes under the same key are accepted later, once."""
    await fill_disk(roomy, is_full=True)
    refused = await roomy.create(LONG, idempotency_key=KEY)
    await fill_disk(roomy, is_full=False)
    untouched = await roomy.balance()

    accepted = await roomy.create(LONG, idempotency_key=KEY)
    replayed = await roomy.create(LONG, idempotency_key=KEY)

    assert (refused.status, refused.code, untouched) == (503, "unavailable", 10_000)
    assert refused.retry_after > 0
    assert (accepted.status, replayed.status) == (202, 202)
    assert accepted.body["id"] == replayed.body["id"]


@pytest.mark.parametrize("path", ["/models", "/credits/balance", "/generations/gen_1"])
async def test_read_while_another_process_writes_can_be_sent_again(roomy: World, path: str) -> None:
    """Also what only reads counts in a window, which has to be written down."""
    await roomy.service._run(lambda books: books.execute("PRAGMA busy_timeout = 0").fetchone()[0])
    with closing(sqlite3.connect(roomy.config.state_dir / FILE_NAME, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        refused = await roomy.send("GET", path)
        nowhere = await roomy.send("GET", "/nowhere")
        described = await roomy.send("GET", "/openapi.json", key=None)
        other.execute("ROLLBACK")

    later = await roomy.send("GET", path)

    assert (refused.status, refused.code) == (503, "unavailable")
    assert refused.retry_after > 0
    assert (nowhere.status, described.status) == (404, 200)  # these need nothing of the books
    assert later.status in {200, 404}


async def test_request_that_was_refused_so_is_in_the_log_once_it_can_be(roomy: World) -> None:
    """The row that could not be written with the work is written without it, where there is room for that."""
    await roomy.create()
    await fill_disk(roomy, is_full=True)

    await roomy.create(LONG, idempotency_key=KEY)

    await fill_disk(roomy, is_full=False)
    row = (await roomy.service.requests())[-1]
    assert (row["status"], row["code"], row["number"]) == (503, "unavailable", None)


@pytest.mark.parametrize(("number", "passes"), [(errno.ENOSPC, True), (errno.EMFILE, True), (errno.EISDIR, False)])
def test_disk_troubles_pass_and_mistakes_do_not(number: int, *, passes: bool) -> None:
    """Also what the storage meets: an upload that found no room can be sent again."""
    assert is_temporary(OSError(number, "no")) is passes
