"""A queue file to test on, with short ways to apply manifests and to bring items into any state."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from msgspec.structs import replace

from batchkiln.core.catalog_checks import PlacedObjection
from batchkiln.core.errors import Diagnostic, InputError
from batchkiln.core.job import InputFile, ItemSpec, JobSpec, Mode, Order, Recipe
from batchkiln.core.responses import ErrorInfo
from batchkiln.core.selection import Selection
from batchkiln.core.states import Event, ItemState
from batchkiln.store.apply import ApplyOptions, ApplyReport, apply_manifest
from batchkiln.store.plans import ManifestPlan, Plans
from batchkiln.store.transitions import transition

from .stores import is_postgres, open_session

if TYPE_CHECKING:
    import sqlite3

NOW = 1_800_000_000_000
RECIPE = Recipe("epsilon-2", Mode.TEXT_TO_IMAGE, (("resolution", "1024x1024"),), 0, None, 3)
JOB = JobSpec("birds", "", None, (), Order.MANIFEST, None, None, "out", "{job}/{item}.{ext}", "birds.yaml")


@dataclass(frozen=True, slots=True)
class Placed:
    """An item in its file."""

    spec: ItemSpec
    file: str
    line: int
    objections: tuple[PlacedObjection, ...] = ()
    repetition: int = 0
    has_default_id: bool = False


def spec(name: str, **fields: Any) -> ItemSpec:  # noqa: ANN401  any field of the dataclass
    """Give an item whose prompt is its name."""
    return ItemSpec(name, RECIPE, f"a picture of {name}")._replace(**fields)


def capped(cap: int | None, **fields: Any) -> Recipe:  # noqa: ANN401  as above
    """Give the recipe with a cap."""
    return replace(RECIPE, max_cost_credits=cap, **fields)


def image(path: str, sha256: str) -> InputFile:
    """Give an input image."""
    return InputFile(path, sha256, 10, "image/png")


def placed(specs: Iterable[ItemSpec], file: str = "birds.yaml") -> list[Placed]:
    """Put items into a file, one a line from line 10."""
    return [Placed(one, file, line) for line, one in enumerate(specs, start=10)]


def then_mistaken(items: Sequence[Placed], *mistakes: Diagnostic) -> Iterator[Placed]:
    """Give items as a manifest with mistakes does: these come at its end."""
    yield from items
    raise InputError(mistakes)


def diagnostic_at(file: str, line: int, reason: str, remedy: str | None, column: int | None = None) -> Diagnostic:
    return Diagnostic(reason, file=file, line=line, column=column, remedy=remedy)


class QueueFile:
    """A queue in a real file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.connection = open_session(path)

    def apply(
        self,
        items: Iterable[ItemSpec | Placed],
        *,
        job: JobSpec = JOB,
        profile: str = "local",
        options: ApplyOptions | None = None,
    ) -> ApplyReport:
        """Apply a manifest; bare specs are put into the manifest's own file."""
        rows = (
            one if isinstance(one, Placed) else Placed(one, job.manifest_path, line)
            for line, one in enumerate(items, start=10)
        )
        return apply_manifest(
            self.connection,
            job,
            rows,
            profile=profile,
            now=NOW,
            options=options or ApplyOptions(),
            diagnostic_at=diagnostic_at,
        )

    def plan(
        self,
        items: Iterable[ItemSpec | Placed],
        *,
        job: JobSpec = JOB,
        profile: str = "local",
        account: str = "main",
        options: ApplyOptions | None = None,
        selection: Selection = Selection(),  # noqa: B008  frozen
    ) -> ManifestPlan:
        """Plan a manifest, on a connection that may not write."""
        rows = (
            one if isinstance(one, Placed) else Placed(one, job.manifest_path, line)
            for line, one in enumerate(items, start=10)
        )
        with self._read_only():
            return Plans(self.connection).compare(
                job,
                rows,
                profile=profile,
                account=account,
                day=datetime(1970, 1, 1, tzinfo=UTC),
                options=options or ApplyOptions(),
                diagnostic_at=diagnostic_at,
                selection=selection,
            )

    @contextmanager
    def _read_only(self) -> Iterator[None]:
        """Let nothing but the staging be written within."""
        name, on, off, now = (
            ("SET default_transaction_read_only =", "on", "off", "SHOW default_transaction_read_only")
            if is_postgres()
            else ("PRAGMA query_only =", "ON", "OFF", "PRAGMA query_only")
        )
        self.connection.execute(f"{name} {on}")
        try:
            yield
        finally:
            assert self.one(now) in {1, "on"}
            self.connection.execute(f"{name} {off}")

    def all(self, sql: str, *values: object) -> list[tuple[Any, ...]]:
        return [tuple(row) for row in self.connection.execute(sql, values)]

    def dump(self) -> list[str]:
        """Return all that the queue holds."""
        if not is_postgres():
            return list(cast("sqlite3.Connection", self.connection).iterdump())
        tables = self.all("SELECT tablename FROM pg_tables WHERE schemaname = 'public' ORDER BY 1")
        return sorted(f"{table}: {row}" for (table,) in tables for row in self.all(f'SELECT * FROM "{table}"'))

    def one(self, sql: str, *values: object) -> Any:  # noqa: ANN401  a column's value
        return self.all(sql, *values)[0][0]

    def item(self, name: str) -> dict[str, Any]:
        row = self.connection.execute("SELECT * FROM item WHERE name = ?", (name,)).fetchone()
        return dict(row)

    def names(self, state: str = "queued") -> list[str]:
        return [row[0] for row in self.all("SELECT name FROM item WHERE state = ? ORDER BY position", state)]

    def kinds(self) -> list[str]:
        return [row[0] for row in self.all("SELECT kind FROM event ORDER BY id")]

    def move(self, name: str, event: Event, *, attempt_id: int | None = None, code: str | None = None) -> None:
        """Move an item on from where it stands."""
        item = self.item(name)
        transition(
            self.connection,
            item_id=item["id"],
            expected=ItemState(item["state"]),
            event=event,
            now=NOW,
            attempt_id=attempt_id,
            error=ErrorInfo(code, f"because of {code}") if code else None,
        )

    def send(self, name: str, *, quote: int = 5, generation_id: str | None = None, account: str = "main") -> int:
        """Record an attempt of a queued item, accepted where it has a generation."""
        item = self.item(name)
        self.connection.execute(
            "INSERT INTO account (profile, name) VALUES ('local', ?) ON CONFLICT DO NOTHING", (account,)
        )
        number = self.one("SELECT count(*) + 1 FROM attempt WHERE item_id = ?", item["id"])
        attempt_id: int = self.connection.execute(
            "INSERT INTO attempt (item_id, job_id, account_id, number, state, is_video, idempotency_key,"
            " key_fingerprint, body, checksum, quote_credits, day_start_at, sends, recorded_at)"
            " VALUES (?, ?, (SELECT id FROM account WHERE name = ?), ?, 'sent', 0, ?, 'f', ?, 0, ?, 0, 1, ?)"
            " RETURNING id",
            (item["id"], item["job_id"], account, number, f"key-{item['id']}-{number}", b"{}", quote, NOW),
        ).fetchone()[0]
        self._money(item["job_id"], reserved=quote)
        self.move(name, Event.ATTEMPT_RECORDED, attempt_id=attempt_id)
        if generation_id is not None:
            self._money(item["job_id"], reserved=-quote, charged=quote)
            self.connection.execute(
                "UPDATE attempt SET state = 'active', generation_id = ?, cost_credits = quote_credits,"
                " generation_created_at = recorded_at WHERE id = ?",
                (generation_id, attempt_id),
            )
            self.move(name, Event.ACCEPTED)
        return attempt_id

    def end(self, attempt_id: int, state: str) -> None:
        """End an attempt; a failure is refunded."""
        is_failed = state == "failed"
        self.connection.execute(
            "UPDATE attempt SET state = ?, ended_at = ?, is_refunded = ? WHERE id = ?",
            (state, NOW, is_failed, attempt_id),
        )
        if is_failed:
            job_id, cost = self.all("SELECT job_id, cost_credits FROM attempt WHERE id = ?", attempt_id)[0]
            self._money(job_id, refunded=cost)

    def refuse(self, name: str) -> None:
        """Send an item and have the service reject it."""
        attempt_id = self.send(name)
        self.end(attempt_id, "refused")
        self.connection.execute("UPDATE job SET reserved = 0")
        self.move(name, Event.REFUSED, code="invalid_parameter")

    def finish(self, name: str, path: str | None = None, *, sha256: str = "abc") -> int:
        """Bring a queued item to its end, with a file."""
        version = self.one("SELECT count(*) + 1 FROM attempt WHERE version > 0 AND item_id = ?", self.item(name)["id"])
        attempt_id = self.send(name, generation_id=f"gen-{name}" if version == 1 else f"gen-{name}-{version}")
        self.end(attempt_id, "succeeded")
        self.connection.execute("UPDATE attempt SET version = ? WHERE id = ?", (version, attempt_id))
        self.move(name, Event.OUTPUTS_READY)
        self.connection.execute(
            "INSERT INTO output (item_id, attempt_id, number, type, path, size_bytes, sha256, media_type, saved_at)"
            " VALUES (?, ?, 1, 'image', ?, 7, ?, 'image/png', ?)",
            (
                self.item(name)["id"],
                attempt_id,
                path or f"out/{name}{'' if version == 1 else f'.v{version}'}.png",
                sha256,
                NOW,
            ),
        )
        self.move(name, Event.FILES_SAVED)
        return attempt_id

    def fail(self, name: str) -> int:
        """Let a queued item fail for good."""
        attempt_id = self.send(name, generation_id=f"gen-{name}")
        self.end(attempt_id, "failed")
        self.connection.execute("UPDATE item SET failures = 1 WHERE name = ?", (name,))
        self.move(name, Event.TRIES_EXHAUSTED, code="generation_failed")
        return attempt_id

    def never_fits(self, name: str, code: str) -> None:
        """Reject a queued item for what it would cost."""
        self.move(name, Event.NEVER_FITS, code=code)

    def quote(self, cost: int, *, price_key: str | None = None) -> None:
        """Know the price of every recipe, or of one."""
        self.connection.execute(
            "INSERT INTO quote (profile, price_key, cost_credits, quoted_at)"
            " SELECT DISTINCT 'local', price_key, CAST(? AS INTEGER), 0 FROM recipe"
            " WHERE CAST(? AS TEXT) IS NULL OR price_key = ?"
            " ON CONFLICT (profile, price_key) DO UPDATE SET cost_credits = excluded.cost_credits",
            (cost, price_key, price_key),
        )

    def _money(self, job_id: int, *, reserved: int = 0, charged: int = 0, refunded: int = 0) -> None:
        self.connection.execute(
            "UPDATE job SET reserved = reserved + ?, charged = charged + ?, refunded = refunded + ? WHERE id = ?",
            (reserved, charged, refunded, job_id),
        )

    def check(self) -> None:
        """Assert that the counters agree with what they count, and that positions are in order."""
        word = "CASE WHEN state = 'queued' AND open_inputs > 0 THEN 'waiting' ELSE state END"
        counted = f"SELECT job_id, recipe_id, {word}, count(*) FROM item GROUP BY 1, 2, 3 ORDER BY 1, 2, 3"
        kept = "SELECT job_id, recipe_id, state, n FROM tally WHERE n > 0 ORDER BY 1, 2, 3"
        assert self.all(kept) == self.all(counted)
        counted = (
            "SELECT job_id, state, error_code, count(*) FROM item WHERE error_code IS NOT NULL"
            " GROUP BY 1, 2, 3 ORDER BY 1, 2, 3"
        )
        assert self.all("SELECT job_id, state, error_code, n FROM trouble WHERE n > 0 ORDER BY 1, 2, 3") == self.all(
            counted
        )
        rows = self.all("SELECT job_id, position FROM item ORDER BY job_id, id")
        assert rows == sorted(rows)
        assert len(set(rows)) == len(rows)
        if not is_postgres():  # which looks at each commit
            assert self.all("PRAGMA foreign_key_check") == []
