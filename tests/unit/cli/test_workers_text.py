"""The table of `workers`."""

from datetime import UTC, datetime
from typing import Final

import pytest
from msgspec.structs import replace

from batchkiln.cli.workers_text import show_workers
from batchkiln.core.lease_types import WorkerState
from batchkiln.presentation.shared_by import SharedBy
from batchkiln.presentation.worker_views import WorkerView

AT: Final = datetime(2026, 3, 2, 9, 0, tzinfo=UTC)
STATE: Final = WorkerState(
    name="fra-1/7-a", egress="fra-1", host="fra-1", pid=7, version="1", started_at=AT, seen_at=AT,
    is_draining=False, sender="fra-1/7-a", driven=0, silent_seconds=2.0, able=frozenset(),
)  # fmt: skip


def shown(state: WorkerState, capsys: pytest.CaptureFixture[str]) -> str:
    show_workers(SharedBy((state,), (), (), {}, {}), [WorkerView(state, 3, 120, 0, ())])
    return " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    ("driven", "able", "told"), [(0, (), "2 s - 3 of 120"), (1, (), "2 s 1 of 1 3 of"), (1, (4, 5), "2 s 1 of 2 3 of")]
)
def test_accounts_are_counted_of_those_with_work(
    driven: int, able: tuple[int, ...], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without work, no account is wanted, and the last one may still be driven."""
    text = shown(replace(STATE, driven=driven, able=frozenset(able)), capsys)

    assert told in text
    assert "silent worker" not in text


def test_a_silent_worker_is_explained(capsys: pytest.CaptureFixture[str]) -> None:
    """One that was killed, also before a restore of the database, stays listed for a day."""
    text = shown(replace(STATE, silent_seconds=349.0, sender=None), capsys)

    assert "silent for 349 s" in text
    assert "leaves this list" in text


def test_workers_that_others_have_replaced_are_only_counted(capsys: pytest.CaptureFixture[str]) -> None:
    """A restarted machine shows its new worker, and not the silence of each earlier one for a day."""
    gone = [replace(STATE, name=f"fra-1/{pid}-a", pid=pid, silent_seconds=243.0, sender=None) for pid in (5, 6)]
    lonely = replace(STATE, name="fra-2/9-a", egress="fra-2", silent_seconds=99.0, sender=None)

    views = [WorkerView(state, 3, 120, 0, ()) for state in (STATE, *gone, lonely)]
    show_workers(SharedBy((STATE, *gone, lonely), (), (), {}, {}), views)

    text = " ".join(capsys.readouterr().out.split())
    assert "243" not in text
    assert "Without 2 silent workers whose address another one has; `--json` lists all." in text
    assert "silent for 99 s" in text
