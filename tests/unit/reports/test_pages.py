"""The report's pages and totals, without a disk."""

import base64
import hashlib
from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from batchkiln.core.job import Charge, Mode
from batchkiln.core.responses import ErrorInfo
from batchkiln.core.states import ItemState
from batchkiln.outputs.thumbnails import NoThumbnail, Thumbnail
from batchkiln.reports.contents import ReportFile, ReportItem, ReportJob
from batchkiln.reports.html_pages import PageLink, Picture, Shape, render_card, render_foot, render_head
from batchkiln.reports.totals import MAX_CAUSES, MAX_EXAMPLES, MAX_SETTINGS, CreditTotals, ReportTotals

NOW: Final = datetime(2030, 1, 31, 18, 30, tzinfo=UTC)
DAY: Final = datetime(2030, 1, 31, tzinfo=UTC)
HOSTILE: Final = "\"><script>alert(1)</script><img src=//evil.invalid onerror='alert(1)'>{{ 7*7 }}"
JOB: Final = ReportJob("birds", "", "local", "birds.yaml", True, "finished", NOW, NOW, None, None, "1.2.3")  # noqa: FBT003
FILE: Final = ReportFile(Path("/home/anna/out/fox.png"), "birds/fox.png", 2048, "image/png", NOW)
ITEM: Final = ReportItem(
    "fox", 0, ItemState.DONE, "A fox", "epsilon-2", Mode.TEXT_TO_IMAGE, (), (), {}, None, "gen_1", (FILE,), ()
)
THUMBNAIL: Final = Thumbnail(b"\xff\xd8", "image/jpeg", 4, 3, 40, 30)


class Seen(HTMLParser):
    """What a browser would make of a page."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.texts).split())

    def values(self, *names: str) -> list[str]:
        return [value for _, attributes in self.tags for name, value in attributes.items() if name in names and value]


def charge(charged: int = 0, *, refunded: int = 0, reserved: int = 0, day: datetime = DAY) -> Charge:
    return Charge(day, charged, refunded, reserved, NOW)


def failed(index: int, code: str, message: str = "no") -> ReportItem:
    return replace(
        ITEM, name=f"item-{index}", index=index, state=ItemState.FAILED, error=ErrorInfo(code, message), files=()
    )


def whole(items: list[ReportItem], *, job: ReportJob = JOB, links: list[PageLink] | None = None, page: int = 0) -> str:
    totals = ReportTotals()
    for item in items:
        totals.add(item, page=0)
    links = links or [PageLink("birds.html", 0, len(items) - 1)]
    cards = "".join(render_card(item, [Picture(file, THUMBNAIL) for file in item.files]) for item in items)
    head = render_head(job, totals, links, page=page, shape=Shape())
    return head + cards + render_foot(job, links, page=page)


def test_nothing_foreign_becomes_markup() -> None:
    """Whatever a prompt, a column, a model or the service says is text on the page, and only that."""
    item = replace(
        ITEM,
        name=HOSTILE,
        state=ItemState.FAILED,
        prompt=HOSTILE,
        model=HOSTILE,
        parameters=((HOSTILE, HOSTILE),),
        inputs=(HOSTILE,),
        metadata={HOSTILE: HOSTILE, "nested": {HOSTILE: [HOSTILE]}},
        error=ErrorInfo(HOSTILE, HOSTILE),
        generation_id=HOSTILE,
        files=(replace(FILE, name=HOSTILE),),
    )
    plain = Seen(whole([ITEM, replace(ITEM, files=())]))

    page = Seen(whole([item, replace(item, files=())], job=replace(JOB, description=HOSTILE, manifest=HOSTILE)))

    assert sum(tag == "script" for tag, _ in page.tags) == sum(tag == "script" for tag, _ in plain.tags) == 1
    assert not [value for value in page.values("src") if not value.startswith("data:image/jpeg;base64,")]
    assert not [name for _, attributes in page.tags for name in attributes if name.startswith("on")]
    assert page.text.count("{{ 7*7 }}") > 10


def test_a_page_asks_nothing_of_any_network() -> None:
    """No address in it leads elsewhere, and its policy forbids what the page itself does not do."""
    links = [PageLink("birds.html", 0, 0), PageLink("birds-2.html", 1, 1)]

    html = whole([ITEM], links=links)
    page = Seen(html)

    addresses = page.values("src", "href", "srcset", "action", "poster", "data", "background")
    assert {value.split("#")[0] for value in addresses if not value.startswith("data:")} == {"birds-2.html"}
    assert not {tag for tag, _ in page.tags} & {"link", "iframe", "object", "embed", "base"}
    assert "url(" not in html
    assert "@import" not in html
    (policy,) = [value for value in page.values("content") if "default-src" in value]
    script = html.split("<script>")[1].split("</script>")[0]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert policy.startswith("default-src 'none';")
    assert f"script-src 'sha256-{digest}'" in policy


def test_a_card_tells_prompt_metadata_request_and_money() -> None:
    """The caption has what was asked for; the file is named below the output folder, and never with its place."""
    item = replace(
        ITEM,
        parameters=(("resolution", "512x512"), ("generate_audio", True)),
        inputs=("owl.png",),
        metadata={"species": "vulpes", "plate": 12},
        charges=(charge(10, refunded=10), charge(7)),
    )

    card = Seen(render_card(item, [Picture(FILE, THUMBNAIL)]))

    for piece in ("fox", "A fox", "species vulpes", "plate 12", "7 cr", "resolution 512x512", "generate_audio true"):
        assert piece in card.text
    assert "birds/fox.png, 2 KiB, 40 \N{MULTIPLICATION SIGN} 30" in card.text
    assert "owl.png" in card.text
    assert "anna" not in card.text
    assert card.values("alt") == ["A fox"]


def test_what_was_made_from_another_choice_has_a_badge() -> None:
    """Who looks at the report alone does not take it for one of the kept pictures."""
    reason = "it was made from owl-2, and another variant was chosen since"

    card = render_card(replace(ITEM, stale=f"stale: {reason}"), [Picture(FILE, THUMBNAIL)])

    assert '<span class="state badge stale">stale</span>' in card
    assert f"<dt>stale</dt><dd>{reason}</dd>" in card
    assert "stale" not in render_card(ITEM, [Picture(FILE, THUMBNAIL)])


def test_a_file_that_is_gone_is_named_in_its_card() -> None:
    """There is no picture, and the name says what to look for."""
    gone = Seen(render_card(ITEM, [Picture(FILE, NoThumbnail.GONE)]))
    broken = Seen(render_card(ITEM, [Picture(FILE, NoThumbnail.UNREADABLE)]))

    assert "file is gone birds/fox.png" in gone.text
    assert "file cannot be read birds/fox.png" in broken.text
    assert gone.values("src") == broken.values("src") == []


def test_each_file_of_an_item_has_a_card_and_a_clip_its_length() -> None:
    """Two outputs are two pictures; a clip is marked."""
    clip = replace(FILE, name="birds/fox-2.mp4", media_type="video/mp4")
    item = replace(ITEM, files=(FILE, clip))

    card = Seen(render_card(item, [Picture(FILE, THUMBNAIL), Picture(clip, replace(THUMBNAIL, duration_seconds=65.2))]))

    assert "1 of 2" in card.text
    assert "2 of 2" in card.text
    assert "▶ 1:05" in card.text
    assert card.values("id") == ["i0"]


def test_what_cannot_be_written_on_a_page_is_dropped() -> None:
    """Controls and escapes of a terminal; line breaks stay."""
    card = render_card(replace(ITEM, prompt="a\x00b\x1b[31mc\nd"), [])

    assert "ab[31mc\nd" in card


def test_an_unfinished_job_is_reported_as_such() -> None:
    """With the time of the report, and its end in the words of `status`; a page beyond the first names the first."""
    links = [PageLink("birds.html", 0, 0), PageLink("birds-2.html", 1, 1)]
    job = replace(JOB, is_finished=False, end_text="ends in about 2 h 0 min, at 2030-01-31 20:30 UTC")

    first, second = Seen(whole([ITEM], job=job)), Seen(whole([ITEM], links=links, page=1))

    assert "Not finished : as of 2030-01-31 18:30 UTC, ends in about 2 h 0 min, at 2030-01-31 20:30 UTC" in first.text
    assert "Page 2 of 2; the totals are on the first" in second.text
    assert "Credits by model" not in second.text


def test_sums_are_those_of_the_items() -> None:
    """By state, by model, by day and in all: charged, refunded, reserved."""
    totals = ReportTotals()
    tomorrow = DAY + timedelta(days=1)
    totals.add(replace(ITEM, charges=(charge(10, refunded=10), charge(7, day=tomorrow))), page=0)
    totals.add(
        replace(ITEM, model="other", state=ItemState.SUBMITTING, files=(), charges=(charge(reserved=3),)), page=0
    )

    assert (totals.items, totals.states[ItemState.DONE], totals.images, totals.size_bytes) == (2, 1, 1, 2048)
    assert totals.credits == CreditTotals(generations=2, charged=17, refunded=10, reserved=3)
    assert totals.credits.spent == 7
    assert totals.days == {DAY: CreditTotals(1, 10, 10, 3), tomorrow: CreditTotals(1, 7, 0, 0)}
    assert {name: (model.items, model.done) for name, model in totals.models.items()} == {
        "epsilon-2": (1, 1),
        "other": (1, 0),
    }


def test_failures_are_reported_by_cause_with_examples() -> None:
    """The most frequent first, each with its number, the last message and some items to look at."""
    items = [failed(index, "bad_prompt", f"no {index}") for index in range(MAX_EXAMPLES + 2)]
    items.append(failed(9, "worse"))

    page = Seen(whole(items))

    assert page.text.index("bad_prompt") < page.text.index("worse")
    assert f"bad_prompt {MAX_EXAMPLES + 2} no {MAX_EXAMPLES + 1} item-0 , item-1 , item-2" in page.text
    assert "#i9" in page.values("href")


def test_an_example_on_another_page_is_linked_there() -> None:
    """The causes stand on the first page, their items anywhere."""
    totals = ReportTotals()
    totals.add(failed(0, "no"), page=1)
    links = [PageLink("a b.html", 0, 0), PageLink("a b-2.html", 1, 1)]

    assert "a%20b-2.html#i0" in Seen(render_head(JOB, totals, links, page=0, shape=Shape())).values("href")


def test_sums_do_not_grow_with_the_items() -> None:
    """A job whose every item has its own request and its own error is told within bounds."""
    totals = ReportTotals()
    for index in range(3 * MAX_SETTINGS):
        totals.add(replace(failed(index, f"code-{index}"), parameters=(("seed", index),)), page=0)

    assert (len(totals.settings), totals.other_settings) == (MAX_SETTINGS, 2 * MAX_SETTINGS)
    assert (len(totals.causes), totals.other_causes) == (MAX_CAUSES, 3 * MAX_SETTINGS - MAX_CAUSES)
    assert totals.not_done == 3 * MAX_SETTINGS


def test_cells_take_the_shape_of_most_pictures() -> None:
    """A sheet of wide clips has wide cells; a very tall or very wide one stays readable."""
    assert Shape.common({}).ratio == 1
    assert Shape.common({1.0: 2, 1.5: 5}).ratio == 1.5
    assert Shape.common({0.5: 1}).ratio == 0.8
    assert Shape.common({21 / 9: 1}).ratio == 1.778


def test_verdict_is_beside_the_name() -> None:
    """What a person kept or dropped is told apart, and found by these words."""
    kept = render_card(replace(ITEM, verdict="kept"), [Picture(FILE, THUMBNAIL)])

    assert '<b>fox</b> <span class="tag v-kept">kept</span>' in kept
    assert "tag v-" not in render_card(ITEM, [Picture(FILE, THUMBNAIL)])


def test_made_up_credits_of_a_local_service_are_called_that() -> None:
    """Somebody who is sent the report does not take them for a bill."""
    job = replace(JOB, service_note="local service: its credits are made up")

    assert "Local service: its credits are made up." in Seen(whole([ITEM], job=job)).text
    assert "made up" not in whole([ITEM])


def test_bar_begins_with_what_is_done() -> None:
    """As that of the dashboard does, and what is not begun comes last."""
    items = [replace(ITEM, state=state) for state in (ItemState.QUEUED, ItemState.FAILED, ItemState.DONE)]

    assert 'aria-label="1 done, 1 failed, 1 queued"' in whole(items)
