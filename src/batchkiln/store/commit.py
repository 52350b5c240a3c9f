"""Applies outcomes: the only code that changes an attempt, its item, its credits and their history after a reply.

`core.outcomes` decides, and this module stores the decision in the caller's transaction. `now` is milliseconds of
service time.
"""

from datetime import timedelta

from msgspec import Struct
from msgspec.structs import replace

from batchkiln.core import outcome_errors
from batchkiln.core.errors import InvariantBroken, LeaseLost
from batchkiln.core.job import AttemptState
from batchkiln.core.outcomes import ITEM_STATES, UNCHANGED, Credits, Known, Outcome, Stale, settle
from batchkiln.core.queue_changes import Committed, Facts
from batchkiln.core.queue_types import DownloadTask
from batchkiln.core.responses import ErrorInfo, GenerationRecord, GenerationStatus
from batchkiln.core.states import FINAL_STATES, Event, ItemState, apply
from batchkiln.store.charges import accept, charge_beyond, confirm, free, recharge, refund
from batchkiln.store.downloads import (
    count_outputs,
    count_staged_elsewhere,
    download_task,
    insert_output,
    is_name_taken,
    staged_detail,
)
from batchkiln.store.preparations import drop_assets
from batchkiln.store.session import Row, Session
from batchkiln.store.sql import query
from batchkiln.store.transitions import Detail, log_event, move
from batchkiln.store.usage import DayOf
from batchkiln.store.versions import queue_lost


def commit(  # noqa: PLR0917  a connection's work: the store passes all of them on
    connection: Session,
    attempt_id: int,
    outcome: Outcome,
    facts: Facts,
    now: int,
    day_of: DayOf,
    *,
    key: str | None = None,
) -> Committed:
    """Apply an outcome to an attempt; return the settled outcome and the item's state.

    Raise `InvariantBroken` if the outcome does not apply to the state of the attempt or its item, and `LeaseLost` as
    `attempt_row` does.
    """
    before = attempt_row(connection, attempt_id, key)
    start = ITEM_STATES.get(AttemptState(before["state"]))
    if start is None:
        raise InvariantBroken(f"attempt {attempt_id} has ended as {before['state']}, and no outcome applies to it")
    work = _Commit(connection, before, facts, now, day_of)
    settled, state = work.apply(outcome, start)
    if state in FINAL_STATES and before["has_lost"] and queue_lost(connection, now, before["item_id"]):
        state = ItemState.QUEUED
    return Committed(
        settled,
        state,
        made_ready=work.made_ready,
        overcharged_credits=0 if facts.record is None else charge_beyond(before, work.row["cost_credits"]),
        download=_download_of(connection, attempt_id) if start is not state is ItemState.DOWNLOADING else None,
    )


def _download_of(connection: Session, attempt_id: int) -> DownloadTask | None:
    """Return the data needed to download the files; None if their folder cannot be resolved.

    The outcome is stored in any case, because the generation is paid. The download then reports the error.
    """
    try:
        return download_task(connection, attempt_id)
    except (OSError, RuntimeError, ValueError):
        return None


def attempt_row(connection: Session, attempt_id: int, key: str | None = None) -> Row:
    """Return an attempt's row. Raise `LeaseLost` if it does not exist, or if it has another idempotency key.

    A database that was restored meanwhile may lack the attempt, and may have given its id to another one.
    """
    row: Row | None = connection.execute(query("select_attempt"), {"attempt_id": attempt_id}).fetchone()
    if row is None or key not in {None, row["idempotency_key"]}:
        raise LeaseLost("the database was restored to a state without this attempt; nothing was written")
    return row


class _Commit(Struct):
    """The application of one outcome. `row` is the attempt as it was last read.

    `event` is the last event so far, and `kept_error` the error that the item keeps. `made_ready` items waited only for
    its files.
    """

    connection: Session
    row: Row
    facts: Facts
    now: int
    day_of: DayOf
    event: Event | None = None
    kept_error: ErrorInfo | None = None
    made_ready: int = 0

    def apply(self, outcome: Outcome, start: ItemState) -> tuple[Outcome, ItemState]:
        """Store an outcome and the one that follows it; return the settled outcome and the item's state.

        The history gets each event. The item moves once, from its first state to its last.
        """
        settled, state = self.apply_one(outcome, start)
        if settled.then is not None and settled.then is not UNCHANGED and self.facts.record is not None:
            self.facts = Facts(record=self.facts.record, error=outcome_errors.error_of_record(self.facts.record))
            _, state = self.apply_one(settled.then, state)
        if self.event is not None:
            self.made_ready = move(
                self.connection,
                self.row["item_id"],
                start,
                state,
                event=self.event,
                now=self.now,
                attempt_id=self.row["id"],
                error=self.kept_error,
            )
        return settled, state

    def apply_one(self, outcome: Outcome, start: ItemState) -> tuple[Outcome, ItemState]:
        """Store one outcome, except the item's move."""
        self.take_over(outcome)
        known = self.known(outcome)
        settled = settle(outcome, known)
        error = self.error(outcome, settled, known)
        self.change_attempt(settled)
        return settled, self.log_outcome(settled, start, error, known)

    def take_over(self, outcome: Outcome) -> None:
        """Store the record in a reply to a read, whatever the outcome."""
        facts, record = self.facts, self.facts.record
        if outcome.event is Event.GENERATION_LOST:
            parameters = {"attempt_id": self.row["id"], "now": self.now}
            self.row = self.connection.execute(query("note_lost"), parameters).fetchone()
        if record is None or outcome.event is Event.ACCEPTED:
            return
        if self.row["generation_status"] is None:
            self.row = confirm(self.connection, self.row, record, self.now, self.day_of)
        else:
            self.row = recharge(self.connection, self.row, record, self.now)
        if facts.observation is not None:
            seen = (facts.observation.going_seconds, facts.observation.ended_seconds)
            going, ended = (round(seconds * 1000) for seconds in seen)
            parameters = {"attempt_id": self.row["id"], "going": going, "ended": max(1, ended)}
            self.connection.execute(query("note_duration"), parameters)
        self.take_over_status(record)

    def take_over_status(self, record: GenerationRecord) -> None:
        """Store and log a new status word or the end of a denial. Log an undocumented word that counts as a success."""
        kinds, word = [], record.status_word
        if word != self.row["generation_status"] or self.row["lost_since"] is not None:
            self.connection.execute(query("note_status"), {"attempt_id": self.row["id"], "status": word})
            kinds.append("status_seen")
        if record.status is GenerationStatus.SUCCESS and GenerationStatus.of(word) is GenerationStatus.UNKNOWN:
            kinds.append("unknown_status_taken_for_success")
        for kind in kinds:
            self.log(kind, detail={"status": word})

    def known(self, outcome: Outcome) -> Known:
        """Read the facts that settle this outcome."""
        facts, row = self.facts, self.row
        known = Known(unanswered=row["sends"] - row["answers"])
        match outcome.event:
            case Event.ACCEPTED if facts.record is not None:
                is_taken = self.value("is_generation_known", generation_id=facts.record.id)
                known = Known(known.unanswered, is_id_taken=bool(is_taken))
            case Event.NOT_CREATED if outcome.ends_by_refusal:
                known = replace(known, refusals=self.value("refused_in_a_row"))
            case Event.GENERATION_FAILED:
                failures, tries = self.connection.execute(
                    query("item_failures"), {"item_id": row["item_id"]}
                ).fetchone()
                known = replace(known, failures=failures, tries=tries)
            case Event.GENERATION_LOST:
                known = replace(known, denied_for=timedelta(milliseconds=self.now - row["lost_since"]))
            case Event.SET_ASIDE:
                known = replace(known, has_disputed=bool(self.value("has_disputed")))
            case Event.RETENTION_ENDED | Event.OUTPUTS_UNUSABLE if row["state"] == AttemptState.SUCCEEDED:
                files = count_outputs(self.connection, row["id"]) + count_staged_elsewhere(self.connection, row["id"])
                known = replace(known, files_saved=files)
            case _ if facts.saved is not None:
                is_taken = is_name_taken(self.connection, row["id"], facts.saved)
                known = Known(known.unanswered, is_name_taken=is_taken)
            case _:
                pass
        return known

    def value(self, name: str, **parameters: str) -> int:
        """Return the single number that a query about the attempt, its item or its account returns."""
        own = {"attempt_id": self.row["id"], "item_id": self.row["item_id"], "account_id": self.row["account_id"]}
        return int(self.connection.execute(query(name), own | parameters).fetchone()[0])

    def error(self, outcome: Outcome, settled: Outcome, known: Known) -> ErrorInfo | None:
        """Return the error that the item keeps, completed with facts from the queue where they apply."""
        facts = self.facts
        if outcome.event is Event.ACCEPTED and settled is not outcome and facts.record is not None:
            return outcome_errors.id_taken(facts.record.id)
        if settled.event is not Event.OUTPUTS_UNUSABLE:
            return facts.error
        if settled is outcome:
            return outcome_errors.unusable(known.files_saved, facts.reason or "")
        return outcome_errors.gone(known.files_saved, download_task(self.connection, self.row["id"]).listed)

    def change_attempt(self, outcome: Outcome) -> None:
        """Count the answer, update the credits, end the attempt, and delete what is stale."""
        answered = outcome.created_nothing and not outcome.ends_by_refusal
        if answered or self.facts.is_contact:
            contact_at = self.now if self.facts.is_contact else None
            parameters = {"attempt_id": self.row["id"], "answered": answered, "contact_at": contact_at}
            self.connection.execute(query("count_answer"), parameters)
        if outcome.credits is Credits.CHARGED and self.facts.record is not None:
            self.row = accept(self.connection, self.row, self.facts.record, self.now, self.day_of)
        elif outcome.attempt is not None:
            self.end(outcome.attempt, is_refunded=outcome.credits is Credits.REFUNDED)
        if outcome.credits is Credits.FREED:
            free(self.connection, self.row)
        elif outcome.credits is Credits.REFUNDED:
            refund(self.connection, self.row)
        if outcome.stale is Stale.QUOTE:
            self.connection.execute(query("drop_quote"), {"item_id": self.row["item_id"]})
        elif outcome.stale is Stale.ASSETS:
            drop_assets(self.connection, self.row["item_id"], self.row["account_id"])

    def end(self, state: AttemptState, *, is_refunded: bool) -> None:
        """End the attempt."""
        name = "expire_attempt" if self.row["state"] == AttemptState.SUCCEEDED else "end_attempt"
        parameters = {"attempt_id": self.row["id"], "state": state, "now": self.now, "is_refunded": is_refunded}
        if self.connection.execute(query(name), parameters).rowcount != 1:
            raise InvariantBroken(f"attempt {self.row['id']} had ended before it became {state}")

    def log_outcome(self, outcome: Outcome, start: ItemState, error: ErrorInfo | None, known: Known) -> ItemState:
        """Write the item's history and record a saved file; return the item's next state."""
        if outcome.log is not None:
            saved = self.facts.saved
            detail = None if saved is None else insert_output(self.connection, self.row, saved, self.now)
            detail = detail if self.facts.staged is None else staged_detail(self.facts.staged)
            self.log(outcome.log, error=error, detail=detail)
        if outcome.event is None:
            return start
        state = apply(start, outcome.event)
        stays = state is start
        self.event, self.kept_error = outcome.event, None if stays else error
        detail = {"reason": self.facts.reason} if stays else self.detail(outcome, error, known)
        self.log(outcome.event, state=state, error=self.kept_error, detail=detail)
        return state

    def detail(self, outcome: Outcome, error: ErrorInfo | None, known: Known) -> Detail | None:
        """Return the details of an event for the history, without its error."""
        match outcome.event:
            case Event.ACCEPTED if self.facts.record is not None:
                is_replay = self.row["sends"] > 1
                return {
                    "generation_id": self.facts.record.id,
                    "cost_credits": self.row["cost_credits"],
                    "is_replay": is_replay,
                }
            case Event.GENERATION_FAILED | Event.TRIES_EXHAUSTED:
                return {"failures": known.failures + 1}
            case Event.NOT_CREATED if error is None:
                return {"withdrawn": True}
            case _:
                return None

    def log(
        self,
        kind: str,
        *,
        state: ItemState | None = None,
        error: ErrorInfo | None = None,
        detail: Detail | None = None,
    ) -> None:
        """Write a line of the item's history."""
        log_event(
            self.connection,
            kind,
            item_id=self.row["item_id"],
            now=self.now,
            attempt_id=self.row["id"],
            job_id=self.row["job_id"],
            state=state,
            error=error,
            detail=detail,
        )
