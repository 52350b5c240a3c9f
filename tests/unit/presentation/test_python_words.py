"""Remedies for a Python program name its calls."""

import pytest

from batchkiln.presentation.python_words import in_python_words


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("it is paused: `batchkiln unpause birds` resumes it", "it is paused: `queue.unpause('birds')` resumes it"),
        ("see `batchkiln show birds fox-1`", "see `queue.show('birds', 'fox-1')`"),
        ("`batchkiln redo birds fox-1` makes it", "`queue.redo('birds', ['fox-1'])` makes it"),
        ("pass --on-change keep or --allow-duplicates", 'pass `on_change="keep"` or `allow_duplicates=True`'),
        ("`run` refuses the manifest (exit 2)", "`run` refuses the manifest"),
        ("`batchkiln review birds`", "`queue.review_step('birds')`"),
        ("`batchkiln review birds --drop owl-1`", "`batchkiln review birds --drop owl-1`"),
        ("`batchkiln retry birds --state failed`", "`batchkiln retry birds --state failed`"),
        ("run `batchkiln status` for a list of jobs", "run `queue.overview()` for a list of jobs"),
        ("`batchkiln status birds`", "`queue.status('birds')`"),
        ("`batchkiln doctor` looks for the cause", "`batchkiln doctor` looks for the cause"),
    ],
)
def test_commands_become_calls_where_there_are_some(text: str, told: str) -> None:
    """What has no call stays a command."""
    assert in_python_words(text) == told
