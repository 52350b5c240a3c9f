"""Files and small pictures: by key, in parts, and none but the queue's own."""

import io
import os
import re
import shlex
from collections.abc import Callable
from html import unescape
from pathlib import Path
from urllib.parse import unquote

import pytest
from PIL import Image

from integration.dashboard.interface import serving
from integration.dashboard.sample_queue import Browser
from support.queue_file import QueueFile


async def link(browser: Browser, item: str, kind: str) -> str:
    page = await browser.get(f"/jobs/birds/item?id={item}")
    found = re.search(rf'"(/{kind}/\d+/[0-9a-f]{{16}})["?]', page.text)
    assert found is not None
    return found[1]


async def thumb_of(browser: Browser, item: str) -> str:
    return (await link(browser, item, "media")).replace("/media/", "/thumbs/")


@pytest.mark.parametrize("item", ["picture", "clip"])
async def test_small_picture_is_sent_once_until_the_file_changes(browser: Browser, tmp_path: Path, item: str) -> None:
    """The browser keeps it and asks again; what is private stays in this browser."""
    thumb = await thumb_of(browser, item)
    page = await browser.get(thumb)

    assert page.headers["Cache-Control"] == "private, no-cache"
    known = {"If-None-Match": page.headers["ETag"]}
    again = await browser.get(thumb, headers=known)
    assert (again.status, again.body) == (304, b"")
    os.utime(next(tmp_path.glob(f"{item}.*")), ns=(1, 1))
    later = await browser.get(thumb, headers=known)
    assert (later.status, later.body) == (200, page.body)
    with Image.open(io.BytesIO(page.body)) as picture:
        assert page.headers["Content-Type"] == picture.get_format_mimetype()
        assert picture.width > picture.height > 100


async def test_a_clip_is_played_in_parts(browser: Browser, tmp_path: Path) -> None:
    """A browser seeks in it by ranges."""
    path = await link(browser, "clip", "media")

    page = await browser.get(path, headers={"Range": "bytes=10-19"})

    assert page.status == 206
    assert page.headers["Content-Type"] == "video/mp4"
    assert page.body == (tmp_path / "clip.mp4").read_bytes()[10:20]


async def test_a_file_that_is_gone_is_a_gap(browser: Browser, tmp_path: Path) -> None:
    """And not an accident. The item's page leads nowhere then."""
    media, thumb = await link(browser, "picture", "media"), await thumb_of(browser, "picture")
    (tmp_path / "picture.png").unlink()

    assert (await browser.get(media)).status == 404
    assert (await browser.get(thumb)).headers["Content-Type"].startswith("image/svg+xml")
    assert "/media/" not in (await browser.get("/jobs/birds/item?id=picture")).text


@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        (Path.unlink, ("is missing", "missing")),
        (lambda path: path.write_text("broken\n"), ("has 7 bytes, not {size}", "changed")),
        (lambda path: os.truncate(path, 900), ("has 900 bytes, not {size}", "changed")),
    ],
)
@pytest.mark.parametrize("address", ["item?id=picture", "items?text=picture&large=1", "review?all=1"])
async def test_broken_file_is_told_with_its_remedy(
    browser: Browser, tmp_path: Path, spoil: Callable[[Path], object], told: tuple[str, str], address: str
) -> None:
    """By its recorded size, on each page that shows it large; the small picture tells what was found in drawing it."""
    path = tmp_path / "picture.png"
    large, tile = (words.format(size=f"{path.stat().st_size:,}") for words in told)
    whole, small = await browser.get(f"/jobs/birds/{address}"), await thumb_of(browser, "picture")
    assert (await browser.get(small)).status == 200
    spoil(path)

    page = await browser.get(f"/jobs/birds/{address}")

    at_once = re.sub("<template.*?</template>", "", whole.text, flags=re.DOTALL)  # without what a browser may tell
    assert "batchkiln fetch" not in at_once
    assert f"<strong>picture.png</strong> {large}. <code>batchkiln fetch birds picture</code>" in page.text
    assert f">{tile}</text>" in (await browser.get(small)).text


async def test_kept_picture_of_a_file_that_broke_is_not_shown(browser: Browser, tmp_path: Path) -> None:
    """Also where its size is the same."""
    path, small = tmp_path / "picture.png", await thumb_of(browser, "picture")
    assert (await browser.get(small)).status == 200
    path.write_bytes(bytes(path.stat().st_size))

    assert ">broken</text>" in (await browser.get(small)).text


async def test_remedy_is_a_command_that_a_shell_takes(browser: Browser, queue: QueueFile, tmp_path: Path) -> None:
    """The id of an item may hold anything."""
    (tmp_path / "picture.png").unlink()
    queue.connection.execute("UPDATE item SET name = ? WHERE name = 'picture'", ("-it's a fox",))

    page = await browser.get("/jobs/birds/item?id=-it%27s%20a%20fox")

    found = re.search(r"<code>(batchkiln fetch [^<]*)</code>", page.text)
    assert found is not None
    assert shlex.split(unescape(found[1])) == ["batchkiln", "fetch", "--", "birds", "-it's a fox"]


async def test_a_file_is_saved_under_its_own_name(browser: Browser, queue: QueueFile, tmp_path: Path) -> None:
    """Whatever the name holds: it is quoted, and begins no other header."""
    name = 'a "fox",\r\nat dusk; é.png'
    (tmp_path / "picture.png").rename(tmp_path / name)
    queue.connection.execute("UPDATE output SET path = ? WHERE path LIKE '%picture.png'", (str(tmp_path / name),))

    page = await browser.get(await link(browser, "picture", "media") + "?download")

    told = page.headers["Content-Disposition"]
    assert told.startswith("attachment; filename*=UTF-8''a%20%22fox%22%2C%0D%0Aat")
    assert unquote(told.partition("''")[2]) == name


async def test_what_a_browser_might_run_is_only_handed_out(browser: Browser, queue: QueueFile) -> None:
    """A file of a type that we do not know is saved, never shown."""
    queue.connection.execute("UPDATE output SET media_type = 'text/html' WHERE path LIKE '%picture.png'")

    page = await browser.get(await link(browser, "picture", "media"))

    assert page.headers["Content-Type"] == "application/octet-stream"
    assert page.headers["Content-Disposition"] == "attachment; filename*=UTF-8''picture.png"
    assert page.headers["X-Content-Type-Options"] == "nosniff"


@pytest.mark.parametrize(
    "path",
    [
        "/media/1/0000000000000000",
        "/media/999/0000000000000000",
        "/media/1/..%2F..%2F..%2Fetc",
        "/media/../queue.db",
        "/static/..%2Fserver.py",
        "/static/../server.py",
    ],
)
async def test_nothing_else_of_the_disk_is_served(browser: Browser, path: str) -> None:
    """No part of an address is ever a path."""
    assert (await browser.get(path)).status == 404


async def test_an_unauthorized_visitor_gets_no_file(browser: Browser, stranger: Browser) -> None:
    """Not by its whole address."""
    path = await link(browser, "picture", "media")
    browser.session.cookie_jar.clear()

    assert (await stranger.get(path)).status == 401


@pytest.mark.parametrize("media_type", ["image/svg+xml", "text/html", "application/pdf", "text/javascript"])
@pytest.mark.parametrize("query", ["", "?download=true"])
async def test_paid_file_that_a_browser_would_run_runs_nowhere(queue: QueueFile, media_type: str, query: str) -> None:
    """Over the HTTP interface too: it is bytes to save, with a policy that forbids scripts of its own."""
    queue.connection.execute("UPDATE output SET media_type = ? WHERE path LIKE '%picture.png'", (media_type,))

    async with serving(queue.path) as client:
        answer = await client.get(f"/jobs/birds/items/picture/outputs/1{query}")

    assert answer.status == 200
    assert answer.headers["Content-Type"] == "application/octet-stream"
    assert answer.headers["Content-Disposition"].startswith("attachment")
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert answer.headers["Content-Security-Policy"].startswith("default-src 'none'")
    assert "unsafe" not in answer.headers["Content-Security-Policy"]
