"""Plant bugs in a copy of the program, one at a time: each has to be caught by the simulation.

It tells the check that caught each, and after how long.

    python tests/simulation/planted.py               all of them
    python tests/simulation/planted.py --only tries  those with this in their names
    python tests/simulation/planted.py --processes 4 four hunts at once
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
PATIENCE_SECONDS: Final = 900
TIMED_OUT: Final = 124
_FLEETS: Final = ["tests/simulation/fleets.py", "--first", "--seeds", "0-119", "--processes", "2"]
_CHOOSING: Final = [
    *("tests/simulation/seeds.py", "--choosing", "--days", "0.1", "--first"),
    *("--seeds", "0-199", "--processes", "2"),
]
_FEW: Final = [*_CHOOSING, "--few"]
_RESTORED_FLEETS: Final = [*_FLEETS, "--restored"]
_RESTORES: Final = ["tests/simulation/restores.py", "--first", "--seeds", "0-119", "--processes", "2"]


@dataclass(frozen=True)
class Bug:
    """One change of the source: in `path` below the package, `before` becomes `after`; it stands there once."""

    name: str
    path: str
    before: str
    after: str
    more: tuple[tuple[str, str, str], ...] = ()  # further changes: path, before, after
    caught_by: str | None = None  # the tests that are to catch it, where no simulated world can
    is_of_fleets: bool = False  # it shows only where several workers share a queue
    is_of_choosing: bool = False  # it shows where a person and a hook choose among what was made
    is_of_few: bool = False  # it shows where a few items are tried first
    is_of_restores: bool = False  # it shows only where older copies are restored, of a fleet's database or a file


_RUN_IN_TRANSACTION: Final = """        result = work(connection, *args, **kwargs)
        while waiting"""
_SEND_FIRST: Final = """        for late in _LATE.pop(id(connection), []):
            late[0](connection, *late[1], **late[2])
        result = work(connection, *args, **kwargs)
        if work.__name__ == "begin_attempt" and result is not None:
            connection.execute("ROLLBACK")
            _LATE[id(connection)] = [(work, args, kwargs)]
            return result
        while waiting"""

_SEND_OBJECT: Final = "await _until_written(worker, task, partial(objects.send, url, source, staged.file, name))\n"
_KEEP_OBJECT: Final = "            await objects.keep(source, file)\n"
_ENOUGH: Final = "JOIN variant_group ON variant_group.id = item_source.group_id AND choice.kept"
_CHOSEN: Final = "FROM item WHERE item.group_id = item_source.group_id"

BUGS: Final = (
    Bug(
        "send before recording",
        "store/database.py",
        _RUN_IN_TRANSACTION,
        _SEND_FIRST,
        (("store/database.py", "\n\ndef in_snapshot(", "\n\n_LATE: dict = {}\n\n\ndef in_snapshot("),),
    ),
    Bug(
        "an item that is free again wakes nobody else",
        "core/wakes.py",
        "    Change.REQUEUED: Wakes(all=True, may_end_run=True),\n",
        "    Change.REQUEUED: Wakes(may_end_run=True),\n",
        caught_by="tests/unit/core/test_wakes.py",  # in the worlds other changes wake the others soon
    ),
    Bug(
        "new key on retry",
        "worker/executor.py",
        "idempotency_key=attempt.idempotency_key,",
        'idempotency_key=f"{attempt.idempotency_key}-{attempt.sends}",',
    ),
    Bug(
        "other bytes on retry",
        "worker/executor.py",
        "body=attempt.body,",
        "body=attempt.body if attempt.sends == 1 else attempt.body + b' ',",
    ),
    Bug(
        "commits that are not synced",
        "store/sqlite/file_session.py",
        "PRAGMA synchronous = FULL",
        "PRAGMA synchronous = NORMAL",
    ),
    Bug(
        "no fsync of the file",
        "outputs/output_files.py",
        "                self._files.sync_file(part.handle)\n",
        "                pass\n",
    ),
    Bug(
        "no fsync of the folder",
        "outputs/output_files.py",
        "                final = self._publish(part, target)\n                self._files.sync_folder(final.parent)\n",
        "                final = self._publish(part, target)\n",
    ),
    Bug(
        "a lost reply is a refusal",
        "core/outcomes.py",
        "    (Answer.UNKNOWN,    False): _undecided(Fact.STILL_UNKNOWN),\n",
        "    (Answer.UNKNOWN,    False): _refused(Event.NOT_CREATED),\n",
    ),
    Bug(
        "a refusal ends what is in doubt",
        "core/outcomes.py",
        '    (Answer.INVALID,    True):  _answered("create_refused", Fact.STILL_REFUSED),',
        "    (Answer.INVALID,    True):  _refused(Event.REFUSED),",
        caught_by="tests/unit/worker/test_strange_creates.py",
    ),
    Bug(
        "a conflict is believed at once",
        "core/outcomes.py",
        "UNDECIDED_FOR: Final = timedelta(hours=1)",
        "UNDECIDED_FOR: Final = timedelta(0)",
        (("core/outcomes.py", "SENDS_BEFORE_HOLD: Final = 6", "SENDS_BEFORE_HOLD: Final = 1"),),
        caught_by="tests/unit/worker/test_strange_creates.py",
    ),
    Bug(
        "a key that may be forgotten is sent again",
        "core/planner.py",
        "now.instant - attempt.contact_at >= KEY_REMEMBERED",
        "now.instant - attempt.contact_at >= 1000 * KEY_REMEMBERED",
        caught_by="tests/unit/worker/test_strange_creates.py",
    ),
    Bug(
        "refusals alike go on and on",
        "core/backoff.py",
        "REFUSED_ALIKE: Final = 6",
        "REFUSED_ALIKE: Final = 600",
        caught_by="tests/unit/worker/test_strange_creates.py",
    ),
    Bug(
        "polling too early",
        "core/polling.py",
        "max(now, last_settled_at + interval_seconds)",
        "max(now, last_settled_at + 0.9 * interval_seconds)",
    ),
    Bug(
        "the gap between polls is forgotten at a restart",
        "worker/poll_timing.py",
        "if attempt_id not in self._touched_at and last_read_at is not None:",
        "if False:",
    ),
    Bug(
        "windows are forgotten at a restart",
        "worker/startup.py",
        "    await worker.restore_windows(logged, now)\n",
        "",
    ),
    Bug(
        "the minute holds one request more",
        "core/sliding_window.py",
        "min(places, self.limit) - self.limit",
        "min(places, self.limit) - self.limit - 1",
    ),
    Bug(
        "the minute counts from the sending",
        "core/sliding_window.py",
        "insort(self._expiries, at + self.span_seconds)",
        "insort(self._expiries, at + 0.95 * self.span_seconds)",
    ),
    Bug(
        "a refund counts for the day",
        "store/charges.py",
        '    change_job_credits(connection, row["job_id"], refunded=row["cost_credits"])\n',
        '    change_job_credits(connection, row["job_id"], refunded=row["cost_credits"])\n'
        '    give_back_credits(connection, account_id=row["account_id"], job_id=row["job_id"],'
        ' day=row["day_start_at"], credit_count=row["cost_credits"])\n',
        caught_by="tests/unit/store/test_charges.py",  # few worlds spend a day to its last credit after a refund
    ),
    Bug(
        "the day's credits are overstepped by the last item",
        "core/budget.py",
        "if credits_today + cost > credits_per_day:",
        "if credits_today >= credits_per_day:",
    ),
    Bug(
        "the service's day begins an hour late",
        "core/rate_limits.py",
        "return instant - (instant - self.start) % timedelta(seconds=self.seconds)",
        "return instant - (instant - self.start - timedelta(hours=1)) % timedelta(seconds=self.seconds)",
    ),
    Bug(
        "a job's daily budget is not held",
        "core/budget.py",
        "if money.budget_per_day is not None and money.today + cost > money.budget_per_day:",
        "if money.budget_per_day is not None and money.today > money.budget_per_day:",
        (
            (
                "store/attempts.py",
                " and (money.budget_per_day is None or money.today + cost <= money.budget_per_day)\n",
                "\n",
            ),
        ),
    ),
    Bug(
        "another length than was announced is enough",  # in the worlds, the end that is missing tells as much
        "outputs/output_files.py",
        "if total_bytes is not None and part.size_bytes != total_bytes:",
        "if False:",
        caught_by="tests/unit/outputs/test_output_files.py",
    ),
    Bug(
        "a file that a crash left is not adopted",
        "outputs/output_files.py",
        "                if self._holds(final, part):",
        "                if False:",
    ),
    Bug(
        "new work while a generation is active",
        "core/planner.py",
        "        return _choose_resend(attempt, queue, account, now) if is_sent else _poll(attempt, account, now)\n",
        "        if is_sent or _poll(attempt, account, now).due.at <= now.monotonic:\n"
        "            return _choose_resend(attempt, queue, account, now) if is_sent else"
        " _poll(attempt, account, now)\n",
    ),
    Bug(
        "one try too many",
        "core/outcomes.py",
        "known.failures + 1 >= known.tries",
        "known.failures >= known.tries",
        caught_by="tests/unit/core/test_outcomes.py",  # few worlds have an item that fails so often
    ),
    Bug(
        "a pending generation is replaced",
        "core/outcomes.py",
        "            return READS[record.status]\n",
        "            is_pending = record.status is GenerationStatus.PENDING\n"
        "            return READS[GenerationStatus.FAILED if is_pending else record.status]\n",
        (
            (
                "core/outcome_errors.py",
                "        case GenerationStatus.FAILED:\n",
                "        case GenerationStatus.FAILED | GenerationStatus.PENDING:\n",
            ),
        ),
    ),
    Bug(
        "a canceled generation is tried again",
        "core/outcomes.py",
        "Outcome(AttemptState.CANCELED,  Event.GENERATION_CANCELED),",
        "Outcome(AttemptState.FAILED, Event.GENERATION_FAILED, Credits.REFUNDED),",
    ),
    Bug(
        "a dead link is tried for ever",
        "worker/downloader.py",
        "if record := worker.downloads.take_links(task.attempt.id):",
        "if record := worker.downloads._links.get(task.attempt.id):",
        caught_by="tests/unit/worker/test_downloads.py",  # in the worlds a person has the file fetched again
    ),
    Bug(
        "a replay takes no place in the windows",
        "store/attempts.py",
        '    move_credits(connection, row, day=day, cost=row["quote_credits"])\n'
        "    write_request(connection, request, keep_seconds=keep_seconds)\n",
        '    move_credits(connection, row, day=day, cost=row["quote_credits"])\n',
        caught_by="tests/unit/store/test_attempts.py",  # rare: ten creates and a replay in a minute
    ),
    Bug(
        "a save that nobody hears of",
        "store/worker_store.py",
        "            self.changes.announce(change, attempt.account_id)\n",
        "            if facts.saved is None:\n                self.changes.announce(change, attempt.account_id)\n",
    ),
    Bug(
        "the end that a format demands is not looked for",
        "outputs/output_files.py",
        "if part.sha256 != accepted_sha256 and not is_complete(found, part.size_bytes, part.read_at):",
        "if False:",
    ),
    Bug(
        "a transaction is none",
        "store/database.py",
        '        connection.execute("BEGIN IMMEDIATE")  # PostgreSQL may have begun, and fail to get the lock\n',
        "",
        (
            (
                "store/database.py",
                '        connection.execute("COMMIT")\n    except BaseException as error:\n',
                "    except BaseException as error:\n",
            ),
        ),
    ),
    Bug(
        "the journal is kept in memory",
        "store/sqlite/file_session.py",
        "PRAGMA journal_mode = WAL",
        "PRAGMA journal_mode = MEMORY",
    ),
    Bug(
        "a download is given up after three troubles",
        "worker/downloader.py",
        "        tries += 1\n",
        """        tries += 1
        if tries >= 3:
            task = await worker.ports.queue.download_task(attempt_id)
            facts = Facts(error=outcome_errors.error_of_missing_key(task.attempt))
            await worker.ports.queue.commit(task.attempt, FACTS[Fact.KEY_MISSING], facts, worker.ports.clock.now())
            break
""",
        caught_by="tests/unit/worker/test_downloads.py",  # in the worlds late: few files meet so much trouble
    ),
    Bug(
        "a failure of tracing ends the run",
        "worker/spans.py",
        "        except Exception as error:  # noqa: BLE001  see above\n",
        "        except KeyError as error:\n",
        caught_by="tests/integration/api/test_traces.py",  # the worlds are not traced
    ),
    Bug(
        "a trace repeats the service's sentence",
        "worker/spans.py",
        'return error.code if _WORD.fullmatch(error.code) else "other"',
        "return error.code",
        caught_by="tests/unit/worker/test_spans.py",  # as above
    ),
    Bug(
        "a new folder's name is not synced",
        "outputs/paths.py",
        "        files.sync_folder(path.parent)\n",
        "        pass\n",
    ),
    Bug(
        "one try too few",
        "core/outcomes.py",
        "known.failures + 1 >= known.tries",
        "known.failures + 2 >= known.tries",
        caught_by="tests/unit/core/test_outcomes.py",  # few worlds have an item that fails so often
    ),
    Bug(
        "a create may cost ten times its quote",
        "store/attempts.py",
        "max_cost_credits=new.cost_credits),\n    }",
        "max_cost_credits=10 * new.cost_credits),\n    }",
    ),
    Bug(
        "uploads of a day are not bounded",
        "worker/prefetch.py",
        "files_left = worker.rates.limits.upload_files_per_day - account.rates.usage.upload_files",
        "files_left = 10**9",
        caught_by="tests/unit/worker/test_preparation.py",  # no world waits with so many images at the end of a day
    ),
    Bug(
        "the question for the time is logged by the machine's clock",
        "worker/startup.py",
        "        request = replace(request, at=logged[-1].sent_at)\n",
        "        pass\n",
        caught_by="tests/unit/worker/test_creates.py",  # few worlds restart with a clock that is ahead
    ),
    Bug(
        "the same cut file is believed at once",
        "worker/truncation.py",
        "len(alike) >= ALIKE_TIMES and alike[-1] - alike[0] >= ALIKE_SECONDS",
        "len(alike) >= ALIKE_TIMES",
        caught_by="tests/unit/worker/test_cut_files.py",
    ),
    Bug(
        "all results have one name",
        "worker/downloader.py",
        "name_for = await _file_namer(worker, task, number)",
        'name_for = lambda extension: f"x/file.{extension}"',
        caught_by="tests/unit/worker/test_downloads.py",  # a taken name is held, so that worlds see little
    ),
    Bug(
        "the API key is kept, not its fingerprint",
        "client/client.py",
        'return "k-" + hashlib.sha256(_DOMAIN + api_key.encode()).hexdigest()[:16]',
        'return f"k-{api_key}"',
    ),
    Bug(
        "the link of a result is kept",
        "worker/downloader.py",
        "type=entry.link.type)",
        "type=entry.link.url)",
    ),
    Bug(
        "an attempt is not compared with its checksum",
        "store/integrity.py",
        'return bool(attempt_checksum(attempt) == attempt["checksum"])',
        "return True",
        caught_by="tests/damage/test_damage.py",
    ),
    Bug(
        "a send without a reply counts in its own day alone",
        "store/usage.sql",
        "sum(quote_credits) FILTER (WHERE day_start_at <> :day)",
        "sum(quote_credits) FILTER (WHERE day_start_at = -1)",
        caught_by="tests/unit/store/test_attempts.py",  # a world for it comes once in thousands
    ),
    Bug(
        "a read is recorded by the earliest time that it can be",
        "store/attempts.py",
        "to_milliseconds(request.latest or request.at)}",
        "to_milliseconds(request.at)}",
        caught_by="tests/unit/worker/test_reads.py",  # a world for it comes once in hundreds
    ),
    Bug(
        "a request of an earlier day is sent again beyond its job's daily budget",
        "store/resolution.py",
        "    if taken + quote > budget:\n",
        "    if False:\n",
        caught_by="tests/unit/store/test_resolve.py",  # a world for it comes once in thousands
    ),
    Bug(
        "a reset is awaited that makes no room",
        "core/budget.py",
        "is_room_made = money.unconfirmed + cost <= money.budget_per_day",
        "is_room_made = True",
        caught_by="tests/unit/worker/test_limits.py",  # a world for it comes once in thousands
    ),
    Bug(
        "what was refused for now is sent again, though nobody wants it",
        "core/planner.py",
        "    if is_over and not attempt.is_in_doubt:\n",
        "    if False:\n",
        caught_by="tests/unit/worker/test_limits.py",  # no person changes a budget in the worlds
    ),
    Bug(
        "what is in doubt is taken back",
        "core/planner.py",
        "    if is_over and not attempt.is_in_doubt:\n",
        "    if is_over:\n",
        caught_by="tests/unit/worker",
    ),
    Bug(
        "an answer to a create is not counted",
        "store/commit.sql",
        "UPDATE attempt SET answers = answers + :answered,",
        "UPDATE attempt SET answers = answers,",
        caught_by="tests/simulation/test_operator_actions.py",
    ),
    Bug(
        "the first record's cost is final",
        "store/charges.py",
        "    if GenerationStatus.of(record.status_word) is GenerationStatus.SUCCESS and record",
        '    if row["cost_credits"] is not None:\n        return int(row["cost_credits"])\n    if record',
        caught_by="tests/simulation/test_untruths.py",
    ),
    Bug(
        "one reply's date is believed",
        "core/timestamps.py",
        "if expected is not None and word.agrees(expected, expected, within=within):",
        "if True:",
    ),
    Bug(
        "a creation is believed, whenever it was",
        "store/charges.py",
        "    return made_at if earliest <= made_at <= now + CLOCKS_APART_MS else None\n",
        "    return made_at\n",
        (("store/charges.py", 'max(made_at, row["recorded_at"])', "made_at"),),
        caught_by="tests/simulation/test_untruths.py",
    ),
    Bug(
        "a 206 of another file is joined",
        "client/transfers.py",
        'if response.headers.get("ETag") != etag:',
        "if False:",
        caught_by="tests/integration/client/test_transfers.py",  # the local service never changes a file
    ),
    Bug(
        "a reordered output is saved twice",
        "core/output_links.py",
        "wanted=tuple(entry for entry in listed if entry.mark not in known),",
        "wanted=tuple(entry for entry in listed if entry.position not in saved),",
        caught_by="tests/unit/worker/test_unusable_outputs.py",  # the local service makes one output
    ),
    Bug(
        "a refused account fetches nothing more",
        "worker/account_worker.py",
        "self.control.block(self.account_id, failure, is_cut_off=about_paid)",
        "self.control.block(self.account_id, failure, is_cut_off=True)",
        caught_by="tests/unit/worker/test_creates.py",
    ),
    Bug(
        "what is not understood is asked for ever",
        "core/account_view.py",
        "        if self.is_suspended(call):\n            return NotBefore(inf, WaitReason.NOT_UNDERSTOOD)\n",
        "",
        caught_by="tests/unit/worker/test_endpoints.py",  # the local service is understood
    ),
    Bug(
        "a quote's trouble is forgotten by a poll",
        "worker/account_worker.py",
        "        self.backoffs.reset(call)\n        if call in self._misunderstood:",
        "        self.backoffs.calls = {each: Backoff() for each in Call}\n        if call in self._misunderstood:",
        caught_by="tests/unit/worker/test_endpoints.py",  # no quote of the worlds fails for long
    ),
    Bug(
        "what the service asks to wait is no minimum",
        "worker/backoffs.py",
        "        seconds = max(requested, delay_seconds(",
        "        seconds = requested or max(requested, delay_seconds(",
        caught_by="tests/unit/worker/test_endpoints.py",
    ),
    Bug(
        "the journal of attempts is not flushed",
        "store/attempt_journal.py",
        "            _sync(self._handle)\n",
        "            pass\n",
        is_of_restores=True,
    ),
    Bug(
        "a further send is not in the journal",
        "store/worker_store.py",
        "                self._journal_resent, attempts.resend, attempt_id",
        "                lambda *_: None, attempts.resend, attempt_id",
        caught_by="tests/unit/worker/test_lost_attempts.py",  # the copy must be of the seconds before it
    ),
    Bug(
        "what a copy has lost leaves its budget to others",
        "store/usage.sql",
        "(SELECT coalesce(sum(quote_credits), 0) FROM lost_item",
        "(SELECT coalesce(sum(0), 0) FROM lost_item",
        is_of_restores=True,
    ),
    Bug(
        "a lost attempt is begun by any account",
        "store/planner_snapshot.sql",
        "\n  AND id NOT IN (SELECT item_id FROM lost_item)",
        "",
        (("store/attempts.py", 'if row["is_lost"] or row["is_paused"]', 'if row["is_paused"]'),),
        is_of_restores=True,
    ),
    Bug(
        "a restored queue sends at once",
        "worker/account_worker.py",
        "        if due.at <= now.monotonic:\n            return\n        for is_create",
        "        if due.at:\n            return\n        for is_create",
        caught_by="tests/unit/worker/test_lost_attempts.py",  # in the worlds late: its minute has to be full already
    ),
    Bug(
        "an attempt that a lost one followed is sent again",
        "store/lost_attempts.py",
        "    _end_outlived(connection, refused, now)\n",
        "",
        is_of_restores=True,
    ),
    Bug(
        "the number of a lost refusal is used again",
        "store/lost_attempts.py",
        '    connection.execute(query("insert_refusal"), columns)\n',
        "",
        caught_by="tests/unit/worker/test_lost_attempts.py",
    ),
    Bug(
        "a lost attempt of an item that has ended is ignored",
        "store/lost_attempts.py",
        "    ended = queue_lost(connection, now)\n",
        "    ended: list[str] = []\n",
        is_of_restores=True,
    ),
    Bug(
        "the journal is written after the send",
        "store/worker_store.py",
        "            self._journal.append(*entries)\n",
        "            asyncio.get_running_loop().call_later(0.3, self._journal.append, *entries)\n",
        is_of_restores=True,
    ),
    Bug(
        "the journal drops what it has given back",
        "store/lost_attempts.py",
        "        if ended_at is None or ended_at >= horizon:\n",
        "        if entry.idempotency_key in known and (ended_at is None or ended_at >= horizon):\n",
        is_of_restores=True,
    ),
    Bug(
        "a moved queue leaves behind what it has lost",
        "store/copying.py",
        "            record_lost(session, journals, to_milliseconds(now))\n",
        "            session.in_transaction\n",
        is_of_restores=True,
    ),
    Bug(
        "a restored fleet waits for nobody's journal",
        "store/known_journals.py",
        "    if is_other or (has_lost and not is_expected):\n",
        "    if False:\n",
        (("store/leases.py", "            known_journals.await_all(session, now)\n", "            pass\n"),),
        is_of_fleets=True,
        is_of_restores=True,
    ),
    Bug(
        "one recipe that fails holds up the others",
        "worker/backoffs.py",
        "        is_alone = bool(own) and all(each.fails_alone(answered) for each in own)\n",
        "        is_alone, own, draws = False, (), draws[:1]\n",
        caught_by="tests/unit/worker/test_endpoints.py",
    ),
    Bug(
        "no fence",
        "store/leases.py",
        "    fence(session, held)\n    return work(",
        "    return work(",
        is_of_fleets=True,
    ),
    Bug(
        "the fence is outside of the transaction",
        "store/leases.py",
        "        return await self._database.write(_fenced, self._fence, work, args, kwargs)\n",
        "        await self._database.read(fence, self._fence)\n"
        "        return await self._database.write(work, *args, **kwargs)\n",
        caught_by="tests/unit/store/test_leases.py",  # few worlds freeze between two hops that follow each other
    ),
    Bug(
        "who takes an account raises no epoch",
        "store/leases.sql",
        "UPDATE account_lease SET worker = :worker, epoch = epoch + 1,",
        "UPDATE account_lease SET worker = :worker, epoch = epoch,",
        is_of_fleets=True,
    ),
    Bug(
        "no guard",
        "api/engine.py",
        "guard=lease.check if lease else None,",
        "guard=None,",
        is_of_fleets=True,
    ),
    Bug(
        "the guard asks the wall clock",
        "api/fleet_engine.py",
        "boottime=app.environment.boottime)",
        "boottime=lambda: app.environment.wall().timestamp())",
        is_of_fleets=True,
    ),
    Bug(
        "a lease holds from the reply of its renewal on",
        "worker/lease_keeper.py",
        "        self.is_draining = found.is_draining\n",
        "        self.is_draining, sent_at = found.is_draining, self.boottime()\n",
        is_of_fleets=True,
    ),
    Bug(
        "an account is taken anew while its old worker runs",
        "api/fleet_engine.py",
        "            driven=self.leases.keys(),\n",
        "            driven=frozenset(),\n",
        is_of_fleets=True,
    ),
    Bug(
        "a request that a standstill delayed keeps the time of its record",
        "worker/account_worker.py",
        "(now.instant - request.at).total_seconds() > STANDSTILL_SECONDS:",
        "request.at > now.instant:",
        caught_by="tests/unit/worker/test_limits.py",  # in the worlds hardly a process dies right after one
    ),
    Bug(
        "a full worker keeps what it drives while another account stands still",
        "core/lease_types.py",
        "    given = _given(driven, others, wanted, at_most, apart=0)\n",
        "    return Choice()\n",
        caught_by="tests/unit/core/test_lease_types.py",  # it takes a fleet with little of both addresses and keys
    ),
    Bug(
        "a full worker is never idle for another account's paid work",
        "core/lease_types.py",
        "if idle else Choice(wind_down=(max(driven),))",
        "if idle else Choice()",
        caught_by="tests/simulation/test_fleets.py",  # nothing draws queues of two weeks
    ),
    Bug(
        "a lease is renewed without a worker",
        "worker/lease_keeper.py",
        "                del self._keeper.driven[self.fence.account_id]\n",
        "                pass\n",
        caught_by="tests/unit/worker/test_lease_keeper.py",
    ),
    Bug(
        "workers share the names of temporary files",
        "outputs/paths.py",
        'suffix = (f".{owner}" if owner else "") + (',
        "suffix = (",
        caught_by="tests/unit/outputs/test_output_files.py",  # the files of the worlds are small, and there at once
    ),
    Bug(
        "an object is recorded before it is complete",
        "worker/object_uploads.py",
        f"        file = {_SEND_OBJECT}",
        "        plain = staged.file\n"
        '        file = SavedFile(f"{url}/{name}", plain.size_bytes, plain.sha256, plain.media_type)\n',
        (("worker/object_uploads.py", _KEEP_OBJECT, f"            {_SEND_OBJECT}{_KEEP_OBJECT}"),),
    ),
    Bug(
        "the local file of an object goes before the object is recorded",
        "worker/object_uploads.py",
        "        sidecar = await _write_sidecar(worker, task, staged.number, file)\n",
        "        await objects.keep(source, file)\n"
        "        sidecar = await _write_sidecar(worker, task, staged.number, file)\n",
        caught_by="tests/unit/worker/test_object_uploads.py",  # few worlds die between the two
    ),
    Bug(
        "an object is not compared with what was sent",
        "object_storage/object_folder.py",
        "    if not folder.holds(name, size_bytes=size_bytes, sha256=sha256):\n",
        "    if False:\n",
        caught_by="tests/unit/object_storage/test_object_folder.py",  # the storage of the worlds tears no object
    ),
    Bug(
        "a taken name is accepted without comparing",
        "object_storage/object_folder.py",
        "        return folder.holds(name, size_bytes=size_bytes, sha256=sha256) is True\n",
        "        return True\n",
        caught_by="tests/unit/object_storage/test_object_folder.py",  # nobody else writes where the worlds do
    ),
    Bug(
        "an item is queued as ready before its source is saved",
        "store/staging.py",
        "_images(spec), json.dumps(ids), ids.count(None)\n",
        "_images(spec), json.dumps(ids), 0\n",
        caught_by="tests/unit/store/test_chains.py",  # in the worlds the missing image keeps it from beginning
    ),
    Bug(
        "a stale image under a new file's name",
        "store/chains.sql",
        "AND item_source.source_id IS NOT NULL\n    AND item_source.made_by IS NOT (",
        "AND item_source.source_id IS NOT NULL\n    AND item_source.made_by IS NULL AND item_source.made_by IS NOT (",
        is_of_choosing=True,
    ),
    Bug(
        "an item begins with what its failed source had made before",
        "store/chains.sql",
        "    FROM item JOIN output ON output.attempt_id = item.version_id AND output.number = item_source.output\n"
        "    WHERE item.id = item_source.source_id AND item.state = 'done' AND",
        "    FROM item JOIN output ON output.attempt_id = item.version_id AND output.number = item_source.output\n"
        "    WHERE item.id = item_source.source_id AND",
        (
            (
                "store/chains.sql",
                "        WHERE item.id = item_source.source_id AND item.state = 'done'",
                "        WHERE item.id = item_source.source_id",
            ),
        ),
        caught_by="tests/unit/store/test_chains.py",
    ),
    Bug(
        "a dependent starts with a dropped variant",
        "store/chains.sql",
        f"\n        {_CHOSEN} AND item.state = 'done' AND item.verdict = 'kept'",
        f"\n        {_CHOSEN} AND item.verdict IS NOT NULL",
        (
            (
                "store/chains.sql",
                f"\n            {_CHOSEN} AND item.state = 'done' AND item.verdict = 'kept'",
                f"\n            {_CHOSEN} AND item.verdict IS NOT NULL",
            ),
        ),
        is_of_choosing=True,
    ),
    Bug(
        "a dependent starts before its source is kept",
        "store/chains.sql",
        "        AND (item.needs_review = 0 OR item.verdict = 'kept'))\nWHERE",
        "        )\nWHERE",
        (
            (
                "store/chains.sql",
                "            AND (item.needs_review = 0 OR item.verdict = 'kept'))\nRETURNING",
                "            )\nRETURNING",
            ),
        ),
    ),
    Bug(
        "the hand-over is not in the transaction of the save",
        "store/transitions.py",
        '    if found["is_source"] and ItemState.DONE in {expected, state}:\n',
        '    if found["is_source"] and expected is ItemState.DONE:\n',
    ),
    Bug(
        "a lease expires by its worker's clock",
        "api/fleet_engine.py",
        "LeaseKeeper(store.leases(clock),",
        "LeaseKeeper(store.leases(lambda _: int(app.environment.wall().timestamp() * 1000)),",
        is_of_fleets=True,
    ),
    Bug(
        "the minute of another address is taken over",
        "core/rate_limits.py",
        "if request.egress in {None, self.egress}]",
        "if request.egress != self.egress]",
        caught_by="tests/unit/core/test_rate_limits.py",
    ),
    Bug(
        "a redo forgets the first version",
        "store/transitions.sql",
        "    attempt_id = CASE WHEN :state = 'done' THEN version_id WHEN",
        "    version_id = CASE WHEN :state = 'queued' THEN NULL ELSE version_id END,\n"
        "    attempt_id = CASE WHEN :state = 'done' THEN version_id WHEN",
        caught_by="tests/unit/worker/test_redo.py",  # once the new files are saved, nothing is missing
    ),
    Bug(
        "a redo forgets the first charge",
        "store/operations.py",
        "    transition_all(connection, item_ids, expected=ItemState.DONE, event=Event.REDO_REQUESTED, now=now)\n",
        "    transition_all(connection, item_ids, expected=ItemState.DONE, event=Event.REDO_REQUESTED, now=now)\n"
        "    connection.execute('UPDATE job SET charged = refunded')\n",
    ),
    Bug(
        "a run of a few begins anything",
        "store/planner_snapshot.py",
        "    if is_selected and job_id is not None:\n",
        "    if False:\n",
        is_of_few=True,
    ),
    Bug(
        "a run of a few lacks what its items are made from",
        "store/selected_items.py",
        "    _select_sources(connection, scope)\n    return scope\n",
        "    return scope\n",
        (
            (
                "store/selected_items.py",
                '    connection.execute(query("move_selected"))\n    _select_sources(connection, scope)\n',
                '    connection.execute(query("move_selected"))\n',
            ),
        ),
        is_of_few=True,
    ),
    Bug(
        "a run of a few lacks the sources of sources",
        "store/selected_items.sql",
        "    FROM needed\n    JOIN item_source AS s ON s.item_id = needed.item_id AND s.made_by IS NULL\n",
        "    FROM temp.selected AS needed\n"
        "    JOIN item_source AS s ON s.item_id = needed.item_id AND s.made_by IS NULL\n",
        (
            (
                "store/selected_items.py",
                '    connection.execute(query("move_selected"))\n    _select_sources(connection, scope)\n',
                '    connection.execute(query("move_selected"))\n',
            ),
        ),
        caught_by="tests/unit/store/test_planned_images.py",  # few chains of the worlds are so long
    ),
    Bug(
        "a run of a few forgets an item that is to be made again",
        "store/selected_items.sql",
        "OR (selected.is_open = 0\n",
        "OR (selected.is_open = 9\n",
        is_of_few=True,
    ),
    Bug(
        "a verdict counts for another version",
        "store/reviews.py",
        '    if version is not None and version != row["version"]:\n',
        "    if False:\n",
        is_of_choosing=True,
    ),
    Bug(
        "a verdict that is taken back leaves what was filled",
        "store/reviews.py",
        "    made_ready = fill_dependents(connection, list(changed), now) if changed else 0\n",
        "    is_kept = decided is Decided.KEEP\n"
        "    made_ready = fill_dependents(connection, list(changed), now) if changed and is_kept else 0\n",
        is_of_choosing=True,
    ),
    Bug(
        "a group offers before enough of it are kept",
        "store/chains.sql",
        f"\n    {_ENOUGH} >= variant_group.choose",
        f"\n    {_ENOUGH} >= 1",
        (("store/chains.sql", f"\n        {_ENOUGH} >= variant_group.choose", f"\n        {_ENOUGH} >= 1"),),
        is_of_choosing=True,
    ),
    Bug(
        "a group's choice is filled only when all are done",
        "store/chains.sql",
        "WHERE item_source.item_id IN (SELECT value FROM json_each(:ids)) AND item_source.group_id IS NOT NULL\n",
        "WHERE item_source.item_id IN (SELECT value FROM json_each(:ids)) AND item_source.group_id IS NOT NULL\n"
        "    AND NOT EXISTS (SELECT 1 FROM item WHERE item.group_id = item_source.group_id"
        " AND (item.state <> 'done' OR item.verdict IS NULL))\n",
        is_of_choosing=True,
    ),
    Bug(
        "a chosen version does not reach what is made from it",
        "store/versions.py",
        "            fill_dependents(connection, [item_id], now)\n",
        "",
        is_of_choosing=True,
    ),
    Bug(
        "a hook redoes more often than it may",
        "store/hooks.py",
        'if row["redos"] >= bounds.redos:',
        'if row["redos"] > bounds.redos:',
        is_of_choosing=True,
    ),
    Bug(
        "a hook's redo forgets what it has spent",
        "store/hooks.py",
        "    write_meta(connection, key, str(spent + cost))\n",
        "",
        is_of_choosing=True,
    ),
    Bug(
        "a hook decides about files that it has not seen",
        "store/hooks.py",
        'if row["state"] != ItemState.DONE or row["version_id"] != attempt_id:',
        'if row["state"] != ItemState.DONE:',
        caught_by="tests/unit/store/test_hooks.py",  # in the worlds such a redo is one that the hook asked for
    ),
    Bug(
        "a file is recorded without its sidecar",
        "worker/downloader.py",
        "    sidecar = await _write_sidecar(worker, task, number, saved)\n"
        "    committed = await _commit(worker, task, step, saved=file)\n",
        "    committed = await _commit(worker, task, step, saved=file)\n"
        "    sidecar = await _write_sidecar(worker, task, number, saved)\n",
        caught_by="tests/unit/worker/test_sidecars.py",
    ),
    Bug(
        "a redo overwrites the first file",
        "outputs/output_files.py",
        "                self._files.publish(part.path, final, handle=part.handle)\n",
        "                self._files.unlink(final)\n"
        "                self._files.publish(part.path, final, handle=part.handle)\n",
        (
            (
                "store/downloads.py",
                '        version=row["version"] or row["next_version"],\n',
                "        version=1,\n",
            ),
            (
                "store/downloads.py",
                "    taken = taken_paths(connection, task, number)\n",
                "    taken = frozenset[str]()\n",
            ),
        ),
    ),
    Bug(
        "a redo is recorded under the key of the first attempt",
        "store/attempts.py",
        '"idempotency_key": new_key(connection, row, number),',
        '"idempotency_key": new_key(connection, row, 1) + ("" if number == 1 else " "),',
        (
            (
                "worker/executor.py",
                "idempotency_key=attempt.idempotency_key,",
                "idempotency_key=attempt.idempotency_key.strip(),",
            ),
        ),
    ),
    Bug(
        "a fetch pays",
        "store/versions.py",
        "            event=Event.FETCH_REQUESTED,",
        "            event=Event.REDO_REQUESTED,",
    ),
    Bug(
        "a restored copy gives up the paid attempt before a redo",
        "store/lost_attempts.sql",
        " AND a.number NOT IN (SELECT value FROM json_each(lost_item.delivered))",
        "",
        caught_by="tests/unit/worker/test_redo.py",  # seldom in the worlds: the copy has to fall between two replies
    ),
    Bug(
        "a chosen version is not the current one",
        "store/versions.sql",
        "UPDATE item SET version_id = :attempt_id, attempt_id = :attempt_id, verdict = NULL",
        "UPDATE item SET attempt_id = :attempt_id, verdict = NULL",
    ),
    Bug(
        "a verdict is lost while the files are fetched again",
        "store/transitions.sql",
        "        WHEN :state = 'submitting' AND version_id IS NULL THEN NULL\n",
        "        WHEN :state <> 'done' THEN NULL\n",
        caught_by="tests/unit/worker/test_redo.py",  # one world of a thousand
    ),
    Bug(
        "a chosen version takes over the verdict of a lost one",
        "store/transitions.sql",
        "coalesce(version_id, attempt_id) IS NOT coalesce(:attempt_id, attempt_id)",
        "version_id IS NOT coalesce(:attempt_id, attempt_id) AND version_id IS NOT NULL",
        caught_by="tests/unit/worker/test_redo.py",
    ),
    Bug(
        "a selection that grew wakes no worker",
        "api/engine.py",
        "                self.announce()",
        "                pass",
        caught_by="tests/unit/api/test_engine.py",  # the other workers seldom are as quick as to look before it
    ),
    Bug(
        "only the last doubted date is a witness",
        "core/timestamps.py",
        "(*self.doubted, word)[-_DOUBTED_KEPT:]",
        "(word,)",
        caught_by="tests/unit/core/test_timestamps.py",
    ),
    Bug(
        "a copy is removed under who sends it",
        "object_storage/copies.py",
        "            _link(found, held)\n",
        "            held = found\n",
        caught_by="tests/unit/object_storage/test_object_folder.py",
    ),
    Bug(
        "the queue's file is closed beside SQLite, which loses its locks",
        "store/sqlite/preflight.py",
        "            return os.pread(descriptor, size_bytes, offset_bytes)\n",
        "            try:\n"
        "                return os.pread(descriptor, size_bytes, offset_bytes)\n"
        "            finally:\n"
        "                kept_descriptors.clear()\n"
        "                os.close(descriptor)\n",
        caught_by="tests/integration/store/test_file_locks.py",  # one process plays all programs of a world
    ),
    Bug(
        "nobody notices that the log is gone",
        "store/sqlite/file_database.py",
        "            self._watch.check()\n",
        "            pass\n",
        caught_by="tests/integration/store/test_file_locks.py",
    ),
    Bug(
        "a run ends over a change that comes while its hook ends",
        "worker/loop.py",
        "            if is_settled and not control.recheck.is_set():",
        "            if is_settled:",
        caught_by="tests/unit/worker/test_run_end.py",  # one of some dozen worlds of a few
    ),
    Bug(
        "an answer does not end the outage",
        "worker/account_worker.py",
        "        self.host.heard()\n",
        "        pass\n",
    ),
)


def plant(bug: Bug, source: Path) -> None:
    """Change a copy of the source. Raises ValueError where the place is not there exactly once."""
    for path, before, after in ((bug.path, bug.before, bug.after), *bug.more):
        file = source / "batchkiln" / path
        text = file.read_text("utf-8")
        if text.count(before) != 1:
            raise ValueError(f"{bug.name}: {path} has the place {text.count(before)} times")
        file.write_text(text.replace(before, after), "utf-8")


def hunt(bug: Bug | None) -> str | None:
    """Look for a bug in a copy that has it; return what caught it, None when nothing did."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder)
        for name in ("src", "tests"):
            shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(ROOT / "pyproject.toml", copy)
        if bug is not None:
            plant(bug, copy / "src")
        tests = None if bug is None else bug.caught_by
        worlds = ["tests/simulation/first_violation.py"]
        if bug is not None:
            restored = _RESTORED_FLEETS if bug.is_of_fleets else _RESTORES
            worlds = _FEW if bug.is_of_few else _CHOOSING if bug.is_of_choosing else worlds
            worlds = restored if bug.is_of_restores else _FLEETS if bug.is_of_fleets else worlds
        command = worlds if tests is None else ["-m", "pytest", "-q", "-x", "--no-header", tests]
        done = subprocess.run(
            ["timeout", str(PATIENCE_SECONDS), sys.executable, "-W", "ignore", *command],
            cwd=copy,
            env=os.environ | {"PYTHONPATH": f"src{os.pathsep}tests", "PYTHONDONTWRITEBYTECODE": "1"},
            capture_output=True,
            text=True,
            check=False,
        )
    if done.returncode == TIMED_OUT:
        print(f"{bug.name if bug else 'the hunt'}: nothing found in {PATIENCE_SECONDS} s", flush=True)
        return None
    told = [line for line in done.stdout.splitlines() if line.startswith("FAILED" if tests else "FOUND ")]
    if not told and done.returncode:
        raise RuntimeError(f"the hunt itself broke: {done.stdout}{done.stderr}")
    return told[-1].removeprefix("FOUND ") if told else None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", help="part of a bug's name")
    parser.add_argument("--processes", type=int, default=1, help="how many hunts run at once (default: %(default)s)")
    args = parser.parse_args()
    chosen = [bug for bug in BUGS if args.only is None or args.only in bug.name]
    with ThreadPoolExecutor(args.processes) as hunters:
        alarm = hunters.submit(hunt, None) if args.only is None else None
        missed = sum(not found for found in hunters.map(_is_caught, chosen))
    print(f"{len(chosen) - missed} of {len(chosen)} caught")
    if alarm is not None:
        print(f"without a bug: {alarm.result() or 'nothing is found'}")
    return 1 if missed else 0


def _is_caught(bug: Bug) -> bool:
    began = time.perf_counter()
    caught = hunt(bug)
    print(f"{bug.name:<52} {time.perf_counter() - began:6.1f} s  {caught or 'NOT CAUGHT'}", flush=True)
    return caught is not None


if __name__ == "__main__":
    sys.exit(main())
