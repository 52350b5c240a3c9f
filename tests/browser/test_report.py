"""The report in a browser: what its search finds, and its pictures in large."""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import get_args

import pytest
from msgspec.structs import replace
from PIL import Image
from playwright.sync_api import Browser, Page, expect

from batchkiln.core.job import Mode
from batchkiln.core.states import ItemState
from batchkiln.reports.contents import ReportFile, ReportItem, ReportJob
from batchkiln.reports.report_writer import ReportWriter
from browser.test_accessibility import AXE, Theme

NOW = datetime(2030, 1, 31, 18, 30, tzinfo=UTC)
JOB = ReportJob("birds", "", "local", "birds.yaml", True, "finished", NOW, NOW, None, None, "1.2.3")  # noqa: FBT003
ITEM = ReportItem(
    name="",
    index=0,
    state=ItemState.DONE,
    prompt="",
    model="epsilon-2",
    mode=Mode.TEXT_TO_IMAGE,
    parameters=(),
    inputs=(),
    metadata={},
    error=None,
    generation_id="gen_1",
    files=(),
    charges=(),
)


@pytest.fixture
def report(chromium: Browser, tmp_path: Path) -> Iterator[Page]:
    """Open a report of three pictures, as a file."""
    target = tmp_path / "report.html"
    with ReportWriter(target, job="birds", items=3) as writer:
        for index, (name, prompt) in enumerate([("owl", "A night bird"), ("fox", "A cat, red"), ("hawk", "A sky")]):
            path = tmp_path / f"{name}.png"
            Image.new("RGB", (80, 60), "orange").save(path)
            file = ReportFile(path, path.name, path.stat().st_size, "image/png", NOW)
            metadata = {"category": "animals"}
            writer.add([replace(ITEM, name=name, index=index, prompt=prompt, files=(file,), metadata=metadata)])
        writer.finish(JOB)
    page = chromium.new_page()
    page.goto(target.as_uri())
    yield page
    page.close()


@pytest.mark.parametrize(
    ("words", "found"),
    [("", "3 of 3"), ("cat", "1 of 3"), ("bird night", "1 of 3"), ("animals", "3 of 3"), ("generation", "0 of 3")],
)
def test_search_looks_at_contents_and_not_at_labels(report: Page, words: str, found: str) -> None:
    """`category` stands on each card, and says nothing about it; the number found is always told."""
    report.get_by_role("searchbox").fill(words)

    expect(report.locator("output")).to_have_text(found)


@pytest.mark.parametrize("theme", get_args(Theme))
def test_report_has_no_finding_of_axe(chromium: Browser, tmp_path: Path, theme: Theme) -> None:
    """Also of items in each state, with a picture of an earlier version and without one."""
    target, picture = tmp_path / "report.html", tmp_path / "owl.png"
    Image.new("RGB", (80, 60), "white").save(picture)
    file = ReportFile(picture, picture.name, picture.stat().st_size, "image/png", NOW)
    with ReportWriter(target, job="birds", items=2 * len(ItemState)) as writer:
        for index, state in enumerate([*ItemState, *ItemState]):
            files = (file,) if index < len(ItemState) else ()
            writer.add([replace(ITEM, name=f"owl-{index}", index=index, state=state, prompt="A bird", files=files)])
        writer.finish(replace(JOB, description="A long description. " * 30))
    context = chromium.new_context(color_scheme=theme, reduced_motion="reduce")
    page = context.new_page()
    page.goto(target.as_uri())
    page.evaluate(AXE)
    found = page.evaluate("axe.run({resultTypes: ['violations']})")["violations"]
    context.close()

    assert [(each["id"], [node["html"][:120] for node in each["nodes"]]) for each in found] == []


def test_pictures_are_enlarged_and_keys_go_through_those_that_were_found(report: Page) -> None:
    report.get_by_role("searchbox").fill("a")
    report.get_by_title("Enlarge").first.click()
    large = report.get_by_role("dialog")
    expect(large).to_contain_text("owl")
    report.keyboard.press("ArrowRight")
    expect(large).to_contain_text("fox")
    report.keyboard.press("Escape")

    expect(large).to_be_hidden()
    expect(report.get_by_title("Enlarge").nth(1)).to_be_focused()
