"""From prompts to clips, as the guide says it, with more birds: killed on the way, and each attempt paid once.

`poe nightly` and `python tests/browser/full_guide.py` follow it at full size, with 40 prompts of 4 variants.
"""

from pathlib import Path
from typing import Final

import pytest
from playwright.sync_api import Browser

from browser.full_guide import KILLS, Guide
from support.examples import examples

FULL_SIZE: Final = 40


@pytest.mark.long
def test_the_guide_is_followed_through_ten_kills_and_pays_each_attempt_once(chromium: Browser, tmp_path: Path) -> None:
    """Laws 1, 2, 4, 5, 6 and 7, by the service's own books."""
    guide = Guide(tmp_path, chromium, birds=min(FULL_SIZE, examples(12)), seed=7)

    guide.follow()

    assert guide.violations() == []
    assert guide.kills == KILLS
    assert guide.kills.total() == 10
