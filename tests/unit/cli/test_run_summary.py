"""How a run ends: the exit status of the contract's section 4, and the words beside it."""

import signal
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace

from batchkiln.api.run import RunResult
from batchkiln.cli.command import Common, Signals
from batchkiln.cli.run_display import print_run_summary, resume_command
from batchkiln.core.calls import Call, Misunderstood
from batchkiln.core.errors import ExitStatus
from batchkiln.core.responses import AccountBlocked, AccountProblem, ErrorInfo
from batchkiln.core.states import ItemState
from batchkiln.core.timestamps import EPOCH
from batchkiln.core.waits import WaitReason
from batchkiln.store.jobs import ProblemGroup
from support.view_builders import job_view

DONE = job_view({ItemState.DONE: 3})
LEFT = job_view({ItemState.DONE: 1, ItemState.QUEUED: 2})
REFUSED = (
    "studio",
    "main",
    AccountBlocked(AccountProblem.UPGRADE_REQUIRED, ErrorInfo("api_key_upgrade_required", "old")),
)


def common(*arguments: str, is_json: bool = False) -> Common:
    return Common(
        queue=Path("queue.db"),
        config_path=None,
        profile=None,
        is_json=is_json,
        verbosity=0,
        log_format="auto",
        arguments=arguments,
    )


def test_all_done_is_zero() -> None:
    """Every item done: 0."""
    assert RunResult((DONE,)).exit_status is ExitStatus.OK


def test_canceled_items_do_not_count_against_a_job() -> None:
    """Items that a person canceled are not failures."""
    assert RunResult((job_view({ItemState.DONE: 1, ItemState.CANCELED: 2}),)).exit_status is ExitStatus.OK


@pytest.mark.parametrize("state", [ItemState.FAILED, ItemState.REJECTED, ItemState.EXPIRED, ItemState.HELD])
def test_an_item_that_did_not_get_done_is_three(state: ItemState) -> None:
    """Failed, rejected, expired or held items: 3."""
    assert RunResult((DONE, job_view({state: 1}))).exit_status is ExitStatus.ITEMS_NOT_DONE


def test_an_account_that_cannot_work_is_four_while_work_is_left() -> None:
    """A refused key with items left: 4."""
    assert RunResult((LEFT,), blocked=(REFUSED,)).exit_status is ExitStatus.ACCOUNT_CANNOT_WORK


def test_an_account_that_cannot_work_is_harmless_once_all_is_done() -> None:
    """A refused key with nothing left: 0."""
    assert RunResult((DONE,), blocked=(REFUSED,)).exit_status is ExitStatus.OK


def test_a_charge_above_the_maximum_is_four_and_says_how_to_go_on(capsys: pytest.CaptureFixture[str]) -> None:
    """Its job was paused, so that nothing counts as left: 4 all the same, the reason, and the command that frees it."""
    said = ErrorInfo("overcharged", "15 credits were charged above the maximum of 10 that was sent")
    overcharged = ("studio", "main", AccountBlocked(AccountProblem.OVERCHARGED, said))
    ending = RunResult((job_view({ItemState.DONE: 1, ItemState.QUEUED: 2}, is_paused=True),), blocked=(overcharged,))

    print_run_summary(ending, common("run", "birds.yaml"))

    told = capsys.readouterr().err
    assert ending.exit_status is ExitStatus.ACCOUNT_CANNOT_WORK
    assert "15 credits were charged above the maximum" in told
    assert "batchkiln unpause birds" in told


@pytest.mark.parametrize("reason", [WaitReason.HELD, WaitReason.NO_KEY])
def test_a_slot_held_for_a_key_is_four(reason: WaitReason) -> None:
    """The account's one place belongs to an item whose key is missing, and others wait: 4."""
    assert RunResult((LEFT,), last_waits=(reason,)).exit_status is ExitStatus.ACCOUNT_CANNOT_WORK


def test_stopped_by_an_option_with_work_left_is_five() -> None:
    """--until or --max-credits, with work left: 5."""
    assert RunResult((LEFT,), may_end_early=True).exit_status is ExitStatus.STOPPED_WITH_WORK_LEFT


def test_a_limit_that_was_not_needed_changes_nothing() -> None:
    """--max-credits with all done: 0."""
    assert RunResult((DONE,), may_end_early=True).exit_status is ExitStatus.OK


def test_a_paused_job_with_items_queued_is_three_and_says_how_to_go_on(capsys: pytest.CaptureFixture[str]) -> None:
    """A paused job cannot end: 3, and the command that lets it go on."""
    ending = RunResult((job_view({ItemState.QUEUED: 2}, is_paused=True),))

    print_run_summary(ending, common("run", "birds.yaml"))

    assert ending.exit_status is ExitStatus.ITEMS_NOT_DONE
    assert "`batchkiln unpause birds`, then `batchkiln work birds`" in capsys.readouterr().err


@pytest.mark.parametrize("status", [130, 143])
def test_a_signal_wins(status: int) -> None:
    """Interrupted after saving everything: 130 or 143."""
    assert RunResult((LEFT,), blocked=(REFUSED,), signal_status=status).exit_status == status


def test_a_refused_account_is_reported_what_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    """An old key is named as what it is, with the way out, and the command to go on. Service rule 5.4."""
    print_run_summary(RunResult((LEFT,), blocked=(REFUSED,)), common("run", "my birds.yaml"))

    told = capsys.readouterr().err
    assert "studio/main" in told
    assert "api_key_upgrade_required" in told
    assert "    Create a new API key" in told
    assert "Everything is saved, and queued items stay queued." in told
    assert "batchkiln run 'my birds.yaml'" in told


def test_a_service_that_never_answered_said_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    """The network's error is not called the service's words."""
    silent = AccountBlocked(AccountProblem.UNREACHABLE, ErrorInfo("unreachable", "could not connect"))

    print_run_summary(RunResult((LEFT,), blocked=(("studio", "main", silent),)), common("run", "birds.yaml"))

    told = capsys.readouterr().err
    first, remedy, last, *_ = told.splitlines()
    assert first == "The account studio/main cannot work: the service has given no usable answer since the run began."
    assert remedy.startswith("    Check `base_url`")
    assert last == "    The last try: could not connect."
    assert "The service said" not in told


def test_an_address_of_something_else_is_not_called_unreachable(capsys: pytest.CaptureFixture[str]) -> None:
    """It answered, but not like this API, as with a mistyped path: 404 for everything."""
    words = "the address answers, but not like this API (status 404, text/html)"
    silent = AccountBlocked(AccountProblem.UNREACHABLE, ErrorInfo("unreachable", words))

    print_run_summary(RunResult((LEFT,), blocked=(("studio", "main", silent),)), common("run", "birds.yaml"))

    told = capsys.readouterr().err
    assert "the service has given no usable answer" in told
    assert words in told
    assert "reached" not in told


def test_a_result_without_rest_names_none() -> None:
    """In a notebook, `left` is shown where something is left."""
    assert "left" not in repr(RunResult((DONE,)))
    assert "left: 2" in repr(RunResult((LEFT,)))


def test_json_keeps_words_off_standard_output(capsys: pytest.CaptureFixture[str]) -> None:
    """With --json standard output has no sentence."""
    print_run_summary(RunResult((LEFT,)), common("run", "birds.yaml", is_json=True))

    captured = capsys.readouterr()
    assert captured.out == ""
    assert "To resume" in captured.err


def test_a_second_signal_ends_with_the_command_that_resumes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The last line is the one that a person needs next."""
    monkeypatch.setattr("os._exit", sys.exit)
    monkeypatch.setattr("batchkiln.cli.command.ignore_closed_output", lambda: None)
    signals = Signals("Stopping.")
    signals.stop, signals.resuming = (lambda: None), "batchkiln run birds.yaml"

    signals.receive(signal.SIGINT)
    with pytest.raises(SystemExit, match="130"):
        signals.receive(signal.SIGINT)

    lines = capsys.readouterr().err.splitlines()
    assert lines == ["Stopping.", "Stopped; everything is saved.", "To resume: `batchkiln run birds.yaml`"]


@pytest.mark.parametrize("is_live", [True, False])
def test_the_note_on_a_local_service_is_not_repeated_at_the_end(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *, is_live: bool
) -> None:
    """The block that is redrawn has shown it all the time; lines have not."""
    monkeypatch.setattr("batchkiln.cli.run_display.can_redraw", lambda: is_live)

    print_run_summary(RunResult((replace(DONE, is_embedded=True),)), common("run", "birds.yaml"))

    assert ("Local service: its credits are made up" in capsys.readouterr().err) is not is_live


def test_work_continues_a_manifest_from_standard_input() -> None:
    """What came by standard input cannot be read again: it is in the queue."""
    assert resume_command(common("run", "-")) == "batchkiln work"


def test_what_is_not_understood_is_four_with_the_shape_and_the_remedy(capsys: pytest.CaptureFixture[str]) -> None:
    """Law 10: told as what it is, with what was charged, the lines to paste and the command that goes on."""
    entry = Misunderstood(Call.QUOTE, EPOCH, "names no price", '{"amount": string}', 200, "replies: {quote: /amount}")
    ending = RunResult((LEFT,), last_waits=(WaitReason.NOT_UNDERSTOOD,), misunderstood=(("studio", "main", entry),))

    print_run_summary(ending, common("work"))

    said = capsys.readouterr().err
    assert ending.exit_status is ExitStatus.ACCOUNT_CANNOT_WORK
    for part in ("studio/main", "names no price", entry.shape, "Nothing was charged", "ask-again", entry.remedy):
        assert part in said
    assert "usable answer" not in said


def test_a_run_that_ended_says_how_to_look_at_the_results(capsys: pytest.CaptureFixture[str]) -> None:
    """The commands that follow most runs are named; not with --quiet, and not while items are left."""
    print_run_summary(RunResult((DONE,)), common("run", "birds.yaml"))
    assert "`batchkiln dashboard`, or `batchkiln report birds`" in capsys.readouterr().err

    print_run_summary(RunResult((LEFT,)), common("run", "birds.yaml"))
    assert "batchkiln report" not in capsys.readouterr().err


def test_the_hint_has_the_path_of_a_program_that_is_not_on_the_path(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As after `.venv/bin/batchkiln run`, without the environment being active."""
    program = tmp_path / "batchkiln"
    program.touch()
    monkeypatch.setattr("sys.argv", [str(program)])
    monkeypatch.setenv("PATH", str(tmp_path / "none"))

    print_run_summary(RunResult((DONE,)), common("run", "birds.yaml"))

    assert f"`{program} dashboard`" in capsys.readouterr().err


def test_the_reason_of_a_refusal_is_told_once(capsys: pytest.CaptureFixture[str]) -> None:
    """Several accounts with the same reason share it, and what stands at the items is not repeated."""
    refused = AccountBlocked(AccountProblem.KEY_REFUSED, ErrorInfo("invalid_api_key", "the API key is unknown"))
    alike = AccountBlocked(AccountProblem.REFUSED_ALIKE, ErrorInfo("forbidden_prompt", "no such words"))
    rejected = ProblemGroup(ItemState.REJECTED, "forbidden_prompt", 3, "no such words")
    view = job_view({ItemState.REJECTED: 3, ItemState.QUEUED: 2}, problems=[rejected])
    blocked = (("studio", "a", refused), ("studio", "b", refused), ("studio", "c", alike))

    print_run_summary(RunResult((view,), blocked=blocked), common("run", "birds.yaml"))

    shown = capsys.readouterr()
    told = shown.out + shown.err
    for once in ("the API key is unknown", "no such words", "complete and not revoked", "is saved"):
        assert told.count(once) == 1, told
    assert "The account studio/a cannot work: the service refuses its API key. The same holds for studio/b." in told
