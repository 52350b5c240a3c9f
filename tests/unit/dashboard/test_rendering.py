"""Texts of the pages: code, and times that the browser shows in its own time zone."""

from pathlib import Path

import pytest

from batchkiln.core.states import ItemState
from batchkiln.dashboard.rendering import code, environment, project_name, queue_name, queue_path, sentence
from support.view_builders import job_view


def test_a_time_within_a_sentence_is_one_of_the_pages_times() -> None:
    """A headline's end is shown in the viewer's zone, as the lists' times are."""
    assert code("Waiting until 2030-01-02 00:00 UTC for `main`") == (
        'Waiting until <time datetime="2030-01-02T00:00:00+00:00">2030-01-02 00:00 UTC</time> for <code>main</code>'
    )


@pytest.mark.parametrize("text", ["2030-13-41 00:00 UTC", "2030-01-02 00:00 XYZ", "on 2030-01-02 at 00:00"])
def test_what_only_looks_like_a_time_stays_text(text: str) -> None:
    """A service's message may hold anything."""
    assert code(text) == text


@pytest.mark.parametrize(
    ("name", "words"), [("queue.db.dashboard", "beside the queue"), (None, "<code>batchkiln dashboard --json</code>")]
)
def test_sign_in_begins_with_the_token_and_names_the_file_of_the_queue(name: str | None, words: str) -> None:
    """A queue in a database has no file beside it."""
    page = environment().get_template("unauthorized.html").render(token_file=name, is_wrong=False)

    assert page.index("<form") < page.index("batchkiln dashboard</code> printed") < page.index(words)
    assert ("beside the queue" in page) == (name is not None)


@pytest.mark.parametrize(
    ("done", "failed", "words"),
    [(0, 1, "0 of 1 item is done"), (1, 1, "1 of 2 items is done"), (0, 2, "0 of 2 items are done")],
)
def test_number_of_done_items_has_its_verb(done: int, failed: int, words: str) -> None:
    """One item of many, and none of one."""
    summary = job_view({ItemState.DONE: done, ItemState.FAILED: failed}).summary

    assert words in environment().from_string('{% from "macros.html" import ended %}{{ ended(summary) }}').render(
        summary=summary
    )


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("the service is busy", "The service is busy."),
        ("parameters.resolution '777x777' is not offered", "parameters.resolution '777x777' is not offered."),
        ("max_cost_credits is too low", "max_cost_credits is too low."),
        ("owl-clip waits for a choice", "owl-clip waits for a choice."),
        ("birds2: one item is held", "birds2: one item is held."),
        ("birds: one item is held", "birds: one item is held."),
        ("night/owl is queued", "night/owl is queued."),
        ("stale: it was made again since", "Stale: it was made again since."),
        ("why?", "Why?"),
        ("", "."),
    ],
)
def test_sentence_leaves_ids_and_names_of_fields_as_they_are(text: str, told: str) -> None:
    """An item, a job and a field of the manifest are looked for as they are written there."""
    assert sentence(text) == told


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/home/me/birds/.batchkiln/queue.db", "birds/.batchkiln/queue.db"),
        ("/home/me/owls.db", "me/owls.db"),
        ("/owls.db", "/owls.db"),
    ],
)
def test_queue_is_named_with_its_folder(path: str, name: str) -> None:
    """Two queues can be told apart, and the page has no path of the machine."""
    assert queue_name(Path(path)) == name


def test_projects_with_folders_of_one_name_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Titles have the folder's name, and the footer the whole path, from the home folder on if it is there."""
    monkeypatch.setenv("HOME", "/home/me")
    places = [Path(f"{parent}/birds/.batchkiln/queue.db") for parent in ("/home/me/a", "/home/me/b", "/srv")]

    assert [project_name(place) for place in places] == ["birds"] * 3
    assert [queue_path(place) for place in places] == [
        "~/a/birds/.batchkiln/queue.db",
        "~/b/birds/.batchkiln/queue.db",
        "/srv/birds/.batchkiln/queue.db",
    ]
    assert project_name(Path("/home/me/owls.db")) == "owls"
