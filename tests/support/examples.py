"""How many cases a test draws: a tenth of its number by default, all of them in CI, twenty times as many by night."""

from typing import Final

from hypothesis import settings

_PROFILES: Final = {"quick": 10, "ci": 100, "nightly": 2000}


def register_profiles() -> None:
    """Name the profiles for `--hypothesis-profile`; without one, `quick` holds."""
    for name, most in _PROFILES.items():
        settings.register_profile(name, max_examples=most, deadline=None)
    settings.load_profile("quick")


def examples(number: int) -> int:
    """Return how many cases to draw where CI draws so many; at least ten."""
    return max(min(number, 10), number * settings().max_examples // _PROFILES["ci"])
