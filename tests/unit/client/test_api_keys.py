"""API keys are told apart by fingerprint and shown to nobody."""

import pytest

from batchkiln.client.client import ApiKeys, fingerprint
from batchkiln.core.errors import InputError, InvariantBroken

KEY = "sk-canary-1"


def test_a_fingerprint_is_stable_and_tells_nothing() -> None:
    """The queue keeps it across versions, so its value is fixed; it holds nothing of the key. Law 8."""
    assert fingerprint("sk-1") == "k-a0e753383b09d546"
    assert fingerprint("sk-1") != fingerprint("sk-2")


def test_the_first_key_is_the_newest() -> None:
    """New attempts are bound to the first key that is configured."""
    keys = ApiKeys({"k-new": "sk-new", "k-old": "sk-old"})

    assert (keys.newest, "k-old" in keys, "k-x" in keys) == ("k-new", True, False)
    assert keys.authorization("k-old") == {"Authorization": "Bearer sk-old"}


def test_a_key_is_in_no_text() -> None:
    """Neither repr nor an exception shows a key. Law 8."""
    keys = ApiKeys({"k-1": KEY})

    with pytest.raises(InvariantBroken) as missing:
        keys.authorization("k-2")

    assert "canary" not in f"{keys!r} {keys} {missing.value}"


@pytest.mark.parametrize("key", ["", "sk canary", "sk-canary\n", "sk-canäry"])
def test_a_key_that_cannot_be_sent_is_a_mistake(key: str) -> None:
    """It is found when the program starts, and not shown either."""
    with pytest.raises(InputError) as mistake:
        ApiKeys({"k-1": key})

    assert "can" not in str(mistake.value).replace("cannot", "")
