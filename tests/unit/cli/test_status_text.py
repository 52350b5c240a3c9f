"""The tables of `status`: whole words on a narrow terminal, and no end before the end."""

from datetime import timedelta
from io import StringIO

import pytest
from msgspec.structs import replace

from batchkiln.api import ProblemGroup
from batchkiln.cli.rich_console import SafeConsole
from batchkiln.cli.status_text import job_lines, overview_blocks, problem_lines
from batchkiln.core.states import ItemState
from batchkiln.presentation.overview import JobView, Overview
from support.view_builders import NOW, job_view, under_way

NAME = "the-job-with-thirty-characters"
WAITS = {ItemState.QUEUED: 1, ItemState.DONE: 9}
UNDER_WAY = {ItemState.QUEUED: 20, ItemState.DONE: 40}


def _printed(view: JobView, width: int) -> str:
    out = StringIO()
    console = SafeConsole(file=out, width=width, force_terminal=True, color_system=None)
    for block in overview_blocks(Overview((view,), (), None)):
        console.print(block)
    return out.getvalue()


def test_a_long_name_cuts_no_column_at_80() -> None:
    """Only the end takes a second line; no name, no heading and no number loses a character."""
    view = job_view(UNDER_WAY, name=NAME, under_way=[under_way(ItemState.ACTIVE)], end_reason="no price")
    printed = _printed(view, 80)

    heads = printed.splitlines()[0].split()
    assert heads == ["JOB", "ITEMS", "DONE", "LEFT", "PROBLEMS", "CREDITS", "ENDS"]
    assert printed.splitlines()[1].startswith(f"{NAME} ")
    assert "…" not in printed
    assert f"{NAME}: end not known yet: no price." in printed


@pytest.mark.parametrize("width", [32, 40, 60])
def test_where_a_long_name_leaves_no_room_for_a_table_it_has_a_line_of_its_own(width: int) -> None:
    """The facts stand below it, in whole words."""
    states = {ItemState.QUEUED: 2, ItemState.DONE: 4, ItemState.FAILED: 1, ItemState.CANCELED: 2}
    lines = _printed(job_view(states, name=NAME, end_reason="no price"), width).splitlines()

    assert lines[0].strip() == NAME
    told = " ".join(" ".join(lines[1:]).split())
    assert told.startswith("4 of 9 done, 2 left, 1 problem, 2 canceled, 0 credits, end not known yet")
    assert all(len(line) <= width for line in lines)


@pytest.mark.parametrize(
    ("is_driven", "told"), [(True, "ends in about 3 h 0 min"), (False, "would end in about 3 h 0 min")]
)
def test_lines_of_a_job_say_when_it_ends(told: str, *, is_driven: bool) -> None:
    """Or when it would, if a process ran it."""
    view = replace(job_view(UNDER_WAY, name=NAME, ends_at=NOW + timedelta(hours=3)), is_driven=is_driven)

    assert f"20 left, 0 credits, {told}" in " ".join(_printed(view, 50).split())


def test_no_word_is_cut_at_60() -> None:
    """The column of canceled items is there for a job that has some; ends stay whole words."""
    printed = _printed(job_view({ItemState.DONE: 9, ItemState.CANCELED: 2}, name="birds"), 60)

    assert printed.splitlines()[0].split()[-3:] == ["CANCELED", "CREDITS", "ENDS"]
    assert "finished" in printed
    assert "…" not in printed


def test_what_waits_for_a_person_is_not_finished() -> None:
    """A queued item that waits for a choice is left, so the job has not ended."""
    view = job_view(WAITS)
    view = replace(view, summary=replace(view.summary, waiting=1, stuck=1, to_choose=1))

    printed = _printed(view, 120)
    lines = [line.plain for line in job_lines(view)]
    assert "waits for a person" in printed
    assert "finished" not in printed
    assert "the rest waits for a person; the files are in out" in lines


def test_a_job_without_items_is_called_empty() -> None:
    """Nothing of it waits for a person, and nothing has finished."""
    view = job_view({})

    assert view.end_text == "empty: its manifest has no items"
    assert view.end_text in [line.plain for line in job_lines(view)]
    assert "waits for a person" not in _printed(view, 120)


def test_the_commands_below_problems_can_be_copied() -> None:
    """They stand in backquotes, within which no line is broken."""
    view = job_view({ItemState.FAILED: 1}, name="-birds", problems=[ProblemGroup(ItemState.FAILED, "timed_out", 1, "")])
    view = replace(view, examples={(ItemState.FAILED, "timed_out"): "a wren"})

    lines = [line.plain.strip() for line in problem_lines(view)]
    assert lines[1:] == ["`batchkiln show -- -birds 'a wren'`", "`batchkiln retry -- -birds`"]


@pytest.mark.parametrize(
    ("code", "step"),
    [
        ("over_cap", "raise max_cost_credits in the manifest, or request less"),
        ("over_job_budget", "raise budget.credits in the manifest"),
        ("invalid_prompt", "change what the error names in the manifest"),
    ],
)
def test_rejected_items_lead_to_the_manifest(code: str, step: str) -> None:
    """A retry would be rejected again; it is named only for items that failed or expired."""
    rejected = ProblemGroup(ItemState.REJECTED, code, 1, "")
    failed = ProblemGroup(ItemState.FAILED, "timed_out", 1, "")

    alone, both = (
        [line.plain.strip() for line in problem_lines(job_view({}, problems=problems))]
        for problems in ([rejected], [rejected, failed])
    )

    assert alone == [f"rejected: 1 {code}", f"{step}, then `batchkiln run birds.yaml`"]
    assert both == [*alone, "failed: 1 timed_out", "`batchkiln retry --state failed birds`"]


def test_the_commands_for_a_job_can_be_copied() -> None:
    """A name that begins with a hyphen is no option."""
    view = job_view({ItemState.QUEUED: 2, ItemState.DONE: 1}, name="-birds", is_paused=True, to_review=1)
    view = replace(view, summary=replace(view.summary, waiting=1, stuck=1, to_choose=1))

    text = "\n".join(line.plain for line in job_lines(view))
    assert "`batchkiln unpause -- -birds` resumes it" in text
    assert "`batchkiln review -- -birds`" in text


def test_a_job_that_has_ended_is_finished() -> None:
    """With every item done, nothing is left."""
    view = job_view({ItemState.DONE: 9})

    assert "finished" in _printed(view, 80)
    assert "finished; the files are in out" in [line.plain for line in job_lines(view)]


@pytest.mark.parametrize(
    ("filename", "folder"),
    [
        ("{job}/{item}.{ext}", "out/birds"),
        ("{item}.{ext}", "out"),
        ("{job}/{light}/{item}.{ext}", "out/birds"),
        ("a/b/{item}.{ext}", "out/a/b"),
        ("", "out"),
    ],
)
def test_the_folder_of_the_files_is_the_deepest_that_has_all(filename: str, folder: str) -> None:
    """A person who opens it sees the job's files, and no others."""
    assert replace(job_view({}).summary, filename=filename).files_dir == folder


@pytest.mark.parametrize(
    ("is_driven", "heading", "line"),
    [
        (True, "ENDS", "ends in about 3 h 0 min, at 2030-01-01 15:00 UTC"),
        (False, "WOULD END", "would end in about 3 h 0 min, at 2030-01-01 15:00 UTC if it were started now"),
    ],
)
def test_without_a_process_an_end_is_conditional(heading: str, line: str, *, is_driven: bool) -> None:
    """Nothing ends by itself."""
    view = replace(job_view({ItemState.QUEUED: 3}, ends_at=NOW + timedelta(hours=3)), is_driven=is_driven)

    assert _printed(view, 120).splitlines()[0].rstrip().endswith(f"CREDITS  {heading}")
    assert view.end_line == line
    assert line in [text.plain for text in job_lines(view)]


def test_an_earliest_end_has_its_reason() -> None:
    """The table has room for the figure only; the reason is below it, and behind the end of a single job."""
    view = job_view(UNDER_WAY, earliest_at=NOW + timedelta(hours=3), end_reason="no price")

    ends = "ends in 3 h 0 min at the earliest (2030-01-01 15:00 UTC): no price"
    assert f"birds: {ends}." in _printed(view, 120)
    assert [str(line) for line in job_lines(view)][-1] == ends
