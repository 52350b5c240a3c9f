"""The sentences of `show`: the state of an item, its cost, and the next step."""

import shlex
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import click
import pytest
from msgspec.structs import replace

from batchkiln.api.reading import ItemReport, read_item_report
from batchkiln.cli.main import program
from batchkiln.config import Config, Profile
from batchkiln.core import outcome_errors
from batchkiln.core.rate_limits import Limits
from batchkiln.core.states import TRANSITIONS, Event, ItemState
from batchkiln.core.timestamps import from_milliseconds, to_milliseconds
from batchkiln.core.waits import WaitReason
from batchkiln.presentation.explain import DAMAGED, GONE, HOLDS, UNUSABLE, WAITS, Explanation
from batchkiln.presentation.formatting import REASONS, format_minute
from batchkiln.presentation.item_context import ItemContext, Wait
from batchkiln.store import Reader
from batchkiln.store.accounts import SlotHolder
from batchkiln.store.operations import redo
from batchkiln.store.versions import choose_version
from support.queue_file import JOB, NOW, QueueFile, capped, image, spec

AT: Final = from_milliseconds(NOW)
LATER: Final = AT + timedelta(minutes=5)
CONFIG: Final = Config({"local": Profile("local")}, "local")
MOVING: Final = (ItemState.QUEUED, ItemState.SUBMITTING, ItemState.ACTIVE, ItemState.DOWNLOADING)


@pytest.fixture
def queue(tmp_path: Path) -> Iterator[QueueFile]:
    opened = QueueFile(tmp_path / "queue.db")
    yield opened
    opened.connection.close()


def told(queue: QueueFile, name: str = "fox", *, now: datetime = LATER, config: Config = CONFIG) -> ItemReport:
    return read_item_report(Reader(queue.connection), config, "birds", name, now)


# --- one way into each state, and into each hold ---


def queued(queue: QueueFile) -> None:
    queue.quote(5)


def submitting(queue: QueueFile) -> None:
    queue.send("fox")


def active(queue: QueueFile) -> None:
    queue.send("fox", generation_id="gen-1")


def downloading(queue: QueueFile) -> None:
    queue.end(queue.send("fox", generation_id="gen-1"), "succeeded")
    queue.move("fox", Event.OUTPUTS_READY)


def done(queue: QueueFile) -> None:
    queue.finish("fox")


def failed(queue: QueueFile) -> None:
    queue.fail("fox")


def canceled_by_service(queue: QueueFile) -> None:
    queue.end(queue.send("fox", generation_id="gen-1"), "canceled")
    queue.move("fox", Event.GENERATION_CANCELED, code="canceled_by_service")


def given_up(queue: QueueFile) -> None:
    queue.move("fox", Event.INPUT_LOST, code="input_lost")
    queue.move("fox", Event.GIVEN_UP, code="given_up")


def given_up_in_doubt(queue: QueueFile) -> None:
    queue.end(queue.send("fox"), "disputed")
    queue.move("fox", Event.KEY_CONFLICT, code="idempotency_conflict")
    queue.connection.execute("UPDATE attempt SET state = 'abandoned'")
    queue.move("fox", Event.GIVEN_UP, code="given_up")


def refused(queue: QueueFile) -> None:
    queue.refuse("fox")


def never_fits(queue: QueueFile) -> None:
    queue.never_fits("fox", "over_cap")


def expired(queue: QueueFile) -> None:
    queue.end(queue.send("fox", generation_id="gen-1"), "expired")
    queue.move("fox", Event.RETENTION_ENDED, code="expired")


def canceled(queue: QueueFile) -> None:
    queue.move("fox", Event.CANCEL_REQUESTED)


def key_missing_unsent(queue: QueueFile) -> None:
    queue.send("fox")
    queue.move("fox", Event.KEY_MISSING, code="key_missing")


def key_missing_active(queue: QueueFile) -> None:
    queue.send("fox", generation_id="gen-1")
    queue.move("fox", Event.KEY_MISSING, code="key_missing")


def conflict(queue: QueueFile) -> None:
    queue.end(queue.send("fox"), "disputed")
    queue.move("fox", Event.KEY_CONFLICT, code="idempotency_conflict")


def damaged(queue: QueueFile) -> None:
    queue.end(queue.send("fox"), "disputed")
    queue.move("fox", Event.KEY_CONFLICT, code=DAMAGED)


def id_taken(queue: QueueFile) -> None:
    queue.end(queue.send("fox"), "disputed")
    queue.move("fox", Event.KEY_CONFLICT, code=ID_TAKEN)


def refused_in_doubt(queue: QueueFile) -> None:
    queue.end(queue.send("fox"), "disputed")
    queue.move("fox", Event.REFUSED_IN_DOUBT, code="over_quote")


def key_forgotten(queue: QueueFile) -> None:
    queue.end(queue.send("fox"), "disputed")
    queue.move("fox", Event.KEY_FORGOTTEN, code="key_forgotten")


def set_aside(queue: QueueFile) -> None:
    queue.end(queue.send("fox"), "disputed")
    queue.move("fox", Event.SET_ASIDE, code="http_500")


def input_lost(queue: QueueFile) -> None:
    queue.move("fox", Event.INPUT_LOST, code="input_lost")


def generation_lost(queue: QueueFile) -> None:
    queue.end(queue.send("fox", generation_id="gen-1"), "disputed")
    queue.move("fox", Event.GENERATION_LOST, code="not_found")


def output_unusable(queue: QueueFile) -> None:
    queue.end(queue.send("fox", generation_id="gen-1"), "succeeded")
    queue.move("fox", Event.OUTPUTS_READY)
    queue.move("fox", Event.OUTPUTS_UNUSABLE, code="output_unusable")


def outputs_gone(queue: QueueFile) -> None:
    queue.end(queue.send("fox", generation_id="gen-1"), "expired")
    queue.move("fox", Event.OUTPUTS_READY)
    queue.move("fox", Event.OUTPUTS_UNUSABLE, code="outputs_gone")


ID_TAKEN: Final = outcome_errors.id_taken("gen-1").code
Way = Callable[[QueueFile], None]
Row = tuple[Way, str, str, str, list[str]]
# How an item gets into a state; parts of its explanation: the state, the charge and the remedy; the named commands.
TABLE: Final[list[Row]] = [
    (queued, "not been sent yet", "never sent", "no process is running this queue", ["work"]),
    (submitting, "may or may not have been created", "5 credits are reserved", "continues it", ["work"]),
    (active, "generation gen-1", "5 credits", "continues it", ["work"]),
    (downloading, "ready", "5 credits", "continues it", ["work"]),
    (done, "downloaded completely: 1 file", "5 credits", "nothing: it is done", []),
    (
        failed,
        "failed 1 time of 3 allowed, as the service verified",
        "5 credits, which were refunded",
        "tries again",
        ["retry birds fox"],
    ),
    (
        canceled_by_service,
        "canceled generation gen-1",
        "a refund was not confirmed",
        "check the account first",
        ["retry birds fox"],
    ),
    (given_up, "a person gave it up", "never sent", "tries again", ["retry birds fox"]),
    (given_up_in_doubt, "a person gave it up", "may have been charged", "pays again", ["retry birds fox"]),
    (
        refused,
        "invalid_parameter",
        "refused, and nothing was created",
        "fix the request",
        ["run birds.yaml", "retry birds fox"],
    ),
    (never_fits, "over_cap", "never sent", "raise the cap", ["run birds.yaml", "retry birds fox"]),
    (expired, "no longer keeps", "5 credits", "pays again", ["retry birds fox"]),
    (canceled, "a person canceled it", "never sent", "queues it again", ["retry birds fox"]),
    (key_missing_unsent, "API key", "reserved", "put that API key back", ["work", "resolve --as failed birds fox"]),
    (key_missing_active, "API key", "5 credits", "put that API key back", ["work", "resolve --as failed birds fox"]),
    (
        output_unusable,
        "not all of its outputs could be downloaded: output_unusable",
        "5 credits",
        "at no cost",
        ["resolve --as generation --generation-id gen-1 birds fox", "resolve --as saved", "resolve --as failed"],
    ),
    (
        outputs_gone,
        "no longer keeps the others",
        "5 credits",
        "pays again",
        ["resolve --as saved birds fox", "resolve --as failed birds fox", "resolve --as not-created birds fox"],
    ),
    (conflict, "another body", "it is unknown whether", "look for it", ["show", *["resolve"] * 4]),
    (
        damaged,
        "the stored request",
        "it is unknown whether",
        "check the disk",
        ["show", "resolve", "resolve", "resolve"],
    ),
    (id_taken, "belongs to another item", "it is unknown whether", "look for it", ["show", *["resolve"] * 3]),
    (refused_in_doubt, "got no reply", "it is unknown whether", "look for it", ["show", *["resolve"] * 4]),
    (key_forgotten, "for a day", "it is unknown whether", "look for it", ["show", *["resolve"] * 4]),
    (set_aside, "does not decide", "it is unknown whether", "look for it", ["show", *["resolve"] * 4]),
    (
        input_lost,
        "local image",
        "never sent",
        "put the image back",
        ["run birds.yaml", "resolve --as failed birds fox"],
    ),
    (generation_lost, "no longer knows", "5 credits", "ask its support", ["show", "resolve", "resolve", "resolve"]),
]


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row[0].__name__)
def test_each_situation_has_its_sentences(queue: QueueFile, row: Row) -> None:
    """The state, the cost, the next step, and the commands."""
    way, situation, charge, remedy, commands = row
    queue.apply([spec("fox")])
    way(queue)

    telling = told(queue).explanation

    assert situation in telling.situation
    assert charge in telling.charged
    assert charge != "5 credits" or telling.charged == charge
    assert remedy in telling.next
    assert len(telling.commands) == len(commands)
    for named, wanted in zip(telling.commands, commands, strict=True):
        assert named.startswith(f"batchkiln {wanted}")


def test_equal_costs_of_several_attempts_are_reported_once(queue: QueueFile) -> None:
    """Two refunded failures are one sentence, with their number."""
    queue.apply([spec("fox")])
    for number in (1, 2):
        queue.end(queue.send("fox", generation_id=f"gen-{number}"), "failed")
        queue.move("fox", Event.GENERATION_FAILED)

    refunded = "2 times 5 credits, which were refunded, but still count toward the day's credits"
    assert told(queue).explanation.charged == refunded

    queue.send("fox", quote=2, generation_id="gen-3")
    assert told(queue).explanation.charged == f"2 credits; besides, {refunded}"


def test_the_table_leaves_no_state_and_no_hold_out(tmp_path: Path) -> None:
    """Every state of an item, and every event that leads to a hold, is in the table above."""
    reached = []
    for number, (way, *_) in enumerate(TABLE):
        queue = QueueFile(tmp_path / f"{number}.db")
        queue.apply([spec("fox")])
        way(queue)
        reached.append((queue.item("fox")["state"], queue.kinds()[-1]))
        queue.connection.close()

    ways = {event for (_, event), state in TRANSITIONS.items() if state is ItemState.HELD}
    assert {state for state, _ in reached} == set(ItemState)
    assert {kind for state, kind in reached if state == ItemState.HELD} == ways
    assert set(HOLDS) == ways | {DAMAGED, GONE, ID_TAKEN, UNUSABLE}


@pytest.mark.parametrize("reason", WaitReason)
def test_each_reason_to_wait_has_its_sentences(queue: QueueFile, reason: WaitReason) -> None:
    """What it waits for and until when, and what a person may do; driven or not."""
    queue.apply([spec("fox")])
    holder = SlotHolder(9, "foxes", "old one", ItemState.HELD) if reason is WaitReason.HELD else None
    wait = Wait(reason, "main", LATER, holder)
    base = told(queue)

    driven = replace(base, context=ItemContext(AT, is_driven=True, wait=wait)).explanation
    alone = replace(base, context=ItemContext(AT, is_driven=False, wait=wait)).explanation

    assert set(WAITS) == set(REASONS) == set(WaitReason)
    if reason is not WaitReason.NOW:
        assert "(until 2027-01-15 08:05 UTC)" in driven.situation
        is_of_the_run = reason in {WaitReason.ENOUGH, WaitReason.NOTHING}
        assert ("starts nothing new" if is_of_the_run else f"for {REASONS[reason]}") in driven.situation
    assert driven.commands
    assert alone.commands[0] == "batchkiln work"
    if reason is WaitReason.HELD:
        assert driven.commands == ("batchkiln show foxes 'old one'",)


@pytest.mark.parametrize("way", [submitting, active])
def test_what_is_stuck_is_reported_to_the_support_and_never_replaced(queue: QueueFile, way: Way) -> None:
    """After an hour without an end a person hears of the bundle; until then nobody is bothered. Service rule 4.5."""
    queue.apply([spec("fox")])
    way(queue)

    early, late = told(queue).explanation, told(queue, now=AT + timedelta(hours=2)).explanation

    assert not any("--bundle" in command for command in early.commands)
    assert "batchkiln show --bundle support.zip birds fox" in late.commands
    assert not any("retry" in command for command in late.commands)
    assert any("resolve" in command for command in late.commands)  # a person may free the slot
    assert "never" in late.next


def test_commands_can_be_typed_as_printed(queue: QueueFile) -> None:
    """A name with spaces and quotes is quoted, a manifest from standard input is `-`; the commands are real ones."""
    name = "fox's {den} $HOME"
    queue.apply([spec(name)], job=replace(JOB, manifest_path="<stdin>"))
    queue.move(name, Event.INPUT_LOST, code="input_lost")

    commands = [shlex.split(command) for command in told(queue, name).explanation.commands]

    assert commands[0] == ["batchkiln", "run", "-"]
    assert commands[1][:2] == ["batchkiln", "resolve"]
    assert commands[1][-2:] == ["birds", name]
    context = click.Context(program)
    assert all(program.get_command(context, command[1]) for command in commands)


@pytest.mark.parametrize("name", ["-x", "--yes", "fox"])
def test_commands_take_an_item_whatever_it_is_called(queue: QueueFile, name: str) -> None:
    """A name that begins with a dash is no option of the command, which understands all that is told."""
    queue.apply([spec(name)])
    queue.move(name, Event.INPUT_LOST, code="input_lost")

    command = shlex.split(told(queue, name).explanation.commands[1])

    asked = click.Context(program)
    resolve = program.get_command(asked, command[1])
    assert resolve is not None
    understood = resolve.make_context("resolve", command[2:], parent=asked).params
    assert [value for value in understood.values() if value in {"birds", name}] == ["birds", name]


def test_retention_is_reported_from_when_the_generation_was_made(queue: QueueFile) -> None:
    """Recorded without a network, sent and made a fortnight later: it can be had for another fortnight."""
    queue.apply([spec("fox")])
    downloading(queue)
    made_at = to_milliseconds(AT + timedelta(days=15))
    queue.connection.execute("UPDATE attempt SET generation_created_at = ?", (made_at,))

    situation = told(queue, now=AT + timedelta(days=15)).explanation.situation

    assert f"keeps it until {format_minute(AT + timedelta(days=29))}" in situation


def test_a_paused_job_is_the_reason_before_any_other(queue: QueueFile) -> None:
    """And `unpause` is what to do."""
    queue.apply([spec("fox")])
    queue.connection.execute("UPDATE job SET is_paused = 1")

    telling = told(queue).explanation

    assert "its job is paused" in telling.situation
    assert telling.commands == ("batchkiln unpause birds",)


def test_a_profile_that_is_not_configured_here_is_named(queue: QueueFile) -> None:
    """The item cannot continue until the profile is configured; its name is escaped."""
    queue.apply([spec("fox")], profile="stu{dio}")

    telling = told(queue).explanation

    assert "its profile stu{dio} is not in this configuration" in telling.next
    assert telling.commands == ("batchkiln work",)


# --- what the planner says of an item that is queued ---


def wait_of(queue: QueueFile, *, limits: Limits | None = None) -> Wait:
    config = Config({"local": Profile("local", limits=limits or Limits())}, "local")
    found = told(queue, config=config).context.wait
    assert found is not None
    return found


def account(queue: QueueFile, **day: int) -> None:
    """Have the account worked today."""
    queue.connection.execute("INSERT INTO account (id, profile, name) VALUES (1, 'local', 'main')")
    start = NOW - NOW % 86_400_000
    queue.connection.execute(
        "INSERT INTO account_day (account_id, day_start_at, creates, credits) VALUES (1, ?, ?, ?)",
        (start, day.get("creates", 0), day.get("credits", 0)),
    )


def test_an_item_without_a_price_or_its_images_is_being_prepared(queue: QueueFile) -> None:
    """The first until it is quoted, the second until the account has the image."""
    queue.apply([spec("fox", recipe=capped(9, inputs_count=1), inputs=(image("/in/a.png", "aa"),))])

    before = wait_of(queue)
    queue.quote(5)
    quoted = wait_of(queue)
    account(queue)
    queue.connection.execute("INSERT INTO asset VALUES (1, 'aa', 'u', 0)")

    assert (before.reason, quoted.reason) == (WaitReason.PREPARING, WaitReason.PREPARING)
    assert wait_of(queue).reason is WaitReason.NOW


def test_a_day_that_is_used_up_is_reported_with_its_end(queue: QueueFile) -> None:
    """Credits, requests, and the job's own daily budget: until the reset."""
    queue.apply([spec("fox")], job=replace(JOB, budget_credits_per_day=6))
    queue.quote(5)
    account(queue, creates=7, credits=96)
    reset = datetime(2027, 1, 16, tzinfo=UTC)

    assert wait_of(queue) == Wait(WaitReason.NOW, "main")
    assert wait_of(queue, limits=Limits(credits_per_day=100)) == Wait(WaitReason.DAY_CREDITS, "main", reset)
    assert wait_of(queue, limits=Limits(creates_per_day=7)) == Wait(WaitReason.DAY_REQUESTS, "main", reset)
    queue.connection.execute("INSERT INTO job_day VALUES (1, ?, 2)", (NOW - NOW % 86_400_000,))
    assert wait_of(queue) == Wait(WaitReason.JOB_DAY_CREDITS, "main", reset)


def test_a_wait_that_the_service_asked_for_is_reported_until_it_ends(queue: QueueFile) -> None:
    """By its reason, as the driver noted it; one that is over is none."""
    queue.apply([spec("fox")])
    queue.quote(5)
    account(queue)
    until = LATER + timedelta(minutes=1)
    change = "UPDATE account SET creates_held_until = ?, creates_held_reason = 'other_generation'"
    queue.connection.execute(change, (NOW + 360_000,))

    assert wait_of(queue) == Wait(WaitReason.OTHER_GENERATION, "main", until)
    queue.connection.execute(change, (NOW,))
    assert wait_of(queue).reason is WaitReason.NOW


def test_who_has_the_one_place_is_named(queue: QueueFile) -> None:
    """Another item that is under way, or one that is held and has to be ended first. Law 4."""
    queue.apply([spec("fox"), spec("owl")])
    queue.quote(5)
    queue.send("owl", generation_id="gen-owl")

    busy = told(queue)
    queue.move("owl", Event.KEY_MISSING, code="key_missing")
    stuck = told(queue)

    assert "birds/owl occupies the only slot of account main" in busy.explanation.situation
    assert busy.context.wait is not None
    assert busy.context.wait.reason is WaitReason.NOW
    assert stuck.context.wait is not None
    assert stuck.context.wait.reason is WaitReason.HELD
    assert "batchkiln show birds owl" in stuck.explanation.commands


def test_a_budget_that_hangs_on_what_is_under_way_is_reported(queue: QueueFile) -> None:
    """A failure of the item under way would give credits back."""
    queue.apply([spec("fox"), spec("owl")], job=replace(JOB, budget_credits=8))
    queue.quote(5)
    queue.send("owl", generation_id="gen-owl")

    assert wait_of(queue).reason is WaitReason.SETTLING


def test_of_several_accounts_the_one_that_is_free_first_counts(queue: QueueFile) -> None:
    """A job that is spread over accounts waits for none that is worse off."""
    queue.apply([spec("fox")], job=replace(JOB, accounts=("main", "second")))
    queue.quote(5)
    account(queue, credits=2000)

    assert wait_of(queue) == Wait(WaitReason.NOW, "second")


@pytest.mark.parametrize("name", ["a`b c", "it's `x`", "plain"])
def test_commands_are_whole_whatever_an_item_is_called(name: str) -> None:
    """A backquote within a quoted name does not end the command."""
    command = f"batchkiln retry foxes {shlex.quote(name)}"
    telling = Explanation("", "", f"`{command}` queues it again; `batchkiln work` resumes it")

    assert telling.commands == (command, "batchkiln work")


def test_item_that_is_made_again_keeps_its_version_in_the_sentences(queue: QueueFile) -> None:
    """It waits with the files that it had; done, it names the current version of those that it has."""
    queue.apply([spec("fox")])
    queue.finish("fox")
    redo(queue.connection, "birds", ["fox"], NOW)
    waiting = told(queue).explanation
    queue.finish("fox")
    choose_version(queue.connection, "birds", "fox", 1, NOW)

    chosen = told(queue).explanation

    assert "it is to be made again; the files of version 1 stay current until then" in waiting.situation
    assert "generation gen-fox was downloaded completely: 1 file; version 1 of 2 is current" in chosen.situation


def test_failed_redo_names_the_command_for_its_earlier_version(queue: QueueFile) -> None:
    """Trying again costs again; the files that it had are used at no cost."""
    queue.apply([spec("fox")])
    queue.finish("fox")
    redo(queue.connection, "birds", ["fox"], NOW)
    queue.end(queue.send("fox", generation_id="second"), "failed")
    queue.move("fox", Event.TRIES_EXHAUSTED, code="generation_failed")

    explanation = told(queue).explanation

    assert explanation.commands == ("batchkiln retry birds fox", "batchkiln use-version birds fox 1")
