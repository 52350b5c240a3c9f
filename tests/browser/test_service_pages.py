"""The pages of the local service in a browser that can reach nothing else."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from urllib.parse import urljoin

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, Route, expect

from batchkiln_service import RunningService, running_service
from browser.conftest import PATIENCE_SECONDS


@dataclass
class Seen:
    """A page of a service, the requests to other hosts, and the words of the console."""

    page: Page
    service: RunningService
    elsewhere: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)

    def go(self, path: str) -> None:
        self.page.goto(urljoin(self.service.base_url, path))


@pytest.fixture
def visit(chromium: Browser) -> Iterator[Seen]:
    """Give a page that is cut off from all hosts but the service."""
    with running_service() as service:
        context = chromium.new_context(viewport={"width": 1280, "height": 900})
        context.set_default_timeout(PATIENCE_SECONDS * 1000)
        found = Seen(context.new_page(), service)

        def only_the_service(route: Route) -> None:
            if route.request.url.startswith((urljoin(service.base_url, "/"), "data:")):
                route.continue_()
            else:
                found.elsewhere.append(route.request.url)
                route.abort()

        context.route("**/*", only_the_service)
        found.page.on("console", lambda message: found.faults.append(message.text))
        found.page.on("pageerror", lambda error: found.faults.append(str(error)))
        yield found
        context.close()


@pytest.mark.long
def test_api_can_be_tried_in_the_browser(visit: Seen) -> None:
    """Open the description, enter the key, and execute a read and a create, whose browser request has an Origin."""
    page = visit.page
    visit.go("/")
    page.get_by_role("link", name="Interactive description").click()
    page.get_by_role("button", name="Authorize", exact=True).first.click()
    page.locator("input[aria-label='auth-bearer-value']").fill(visit.service.api_key)
    page.get_by_label("Apply credentials").click()
    page.get_by_role("button", name="Close").last.click()

    statuses = []
    for operation in ("readBalance", "createImage"):
        block = page.locator(f"[id$='-{operation}']")
        block.locator(".opblock-summary-control").first.click()
        block.get_by_role("button", name="Try it out").click()
        block.get_by_role("button", name="Execute").click()
        live = block.locator(".live-responses-table .response-col_status").last
        expect(live).to_contain_text("20")
        statuses.append(live.inner_text().split()[0])

    assert statuses == ["200", "202"]
    assert visit.elsewhere == []
    assert visit.faults == []
    visit.service.assert_ok()


@pytest.mark.long
def test_each_visit_has_an_idempotency_key_of_its_own(visit: Seen) -> None:
    """A second visitor with another prompt would meet a conflict with the first one's request."""
    keys = set()
    for _ in range(2):
        for operation in ("createImage", "createVideo"):
            visit.go("/docs")
            block = visit.page.locator(f"[id$='-{operation}']")
            block.locator(".opblock-summary-control").first.click()
            block.get_by_role("button", name="Try it out").click()
            keys.add(block.get_by_placeholder("Idempotency-Key").input_value())

    assert len(keys) == 4
    assert [key for key in keys if not re.fullmatch("[A-Za-z0-9_-]{16,128}", key)] == []
    assert visit.faults == []


@pytest.mark.parametrize("width", [390, 1440])
def test_landing_page_is_for_everybody(visit: Seen, width: int) -> None:
    """It fits a phone, and axe finds nothing."""
    visit.page.set_viewport_size({"width": width, "height": 900})
    visit.go("/")

    assert visit.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert Axe().run(visit.page).response["violations"] == []
    assert visit.faults == []
