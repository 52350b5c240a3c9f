"""API keys in texts (Law 8)."""

import pytest

from batchkiln.core.secret_texts import mask_keys


@pytest.mark.parametrize(
    ("text", "key", "shown"),
    [
        ("text/html", "x", "text/html"),
        ("the key x was refused", "x", "the key [key] was refused"),
        ('{"key": "x"}', "x", '{"key": "[key]"}'),
        ("Bearer: s3cret.", "s3cret", "Bearer: [key]."),
        ("for sk-0123456789abc", "sk-0123456789abc", "for [key]"),
        ("key=Xsk-0123456789abcX", "sk-0123456789abc", "key=X[key]X"),
        ("nothing", "", "nothing"),
    ],
)
def test_a_short_key_is_masked_as_a_word_and_a_long_one_anywhere(text: str, key: str, shown: str) -> None:
    """Law 8: a key of one letter leaves the words that hold it readable, and no longer key remains in any word."""
    assert mask_keys(text, [key]) == shown
