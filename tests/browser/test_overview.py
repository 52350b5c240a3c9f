"""The pages of a queue in a browser: what stands where, at the width of a desk and of a phone."""

from playwright.sync_api import expect

from browser.conftest import Opened

LOWEST = "(part) => Math.max(...[...document.querySelectorAll(part)].map((one) => one.getBoundingClientRect().bottom))"


def test_columns_of_the_overview_end_together(seen: Opened) -> None:
    """No hole below the shorter one."""
    seen.page.set_viewport_size({"width": 1440, "height": 900})
    seen.go("/")
    columns = [f".columns > div:nth-child({number}) :is(.card, .plot, .driver)" for number in (1, 2)]
    left, right = (seen.page.evaluate(LOWEST, column) for column in columns)

    assert abs(left - right) < 12


def test_only_account_fills_its_card(seen: Opened) -> None:
    """Its gauges share the height that jobs give it: there is no empty half."""
    seen.page.set_viewport_size({"width": 1440, "height": 900})
    seen.go("/")
    space = seen.page.evaluate(  # at once: the page may be updated meanwhile
        f"""() => {{
            document.querySelector('.jobs').style.minHeight = '30rem';
            const lowest = {LOWEST};
            return lowest('[data-part=slots] .card') - lowest('[data-part=slots] .gauges dd');
        }}"""
    )

    assert space < 24


def test_phone_shows_running_work_first(seen: Opened) -> None:
    """What is active, then its job; what failed comes after that, and the plot at the end."""
    seen.page.set_viewport_size({"width": 390, "height": 844})
    seen.go("/")
    tops = seen.page.evaluate(
        "() => [...document.querySelectorAll('[data-part]')].filter((one) => one.offsetHeight)"
        ".map((one) => [one.getBoundingClientRect().top, one.dataset.part]).sort((a, b) => a[0] - b[0])"
    )

    assert [part for _, part in tops] == ["headline", "slots", "jobs", "problems", "newest", "hours"]


def test_attempts_are_cards_on_a_phone(seen: Opened) -> None:
    """Nothing of them is beyond the edge, and each value has its name."""
    seen.page.set_viewport_size({"width": 390, "height": 844})
    seen.go("/jobs/birds/item?id=failed")
    region = seen.page.get_by_role("region", name="Attempts")

    expect(region.locator("td").first).to_be_visible()
    assert region.evaluate("(one) => one.scrollWidth <= one.clientWidth")
    label = "(one) => getComputedStyle(one, '::before').content"
    assert region.locator("td").nth(1).evaluate(label) == '"State"'
