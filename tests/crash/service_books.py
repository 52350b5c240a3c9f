"""What the service's own books say of a client: read from its file, never from the queue's word."""

import json
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

MINUTE_MS = 60_000
DAY_MS = 86_400_000
POLL_MS = 10_000
PER_MINUTE = {"creates": 10, "reads": 60}
PER_DAY = {"creates": 1000, "reads": 20_000}
PER_IP_MINUTE = 120
CREDITS_PER_DAY = 2000


@dataclass(frozen=True)
class Books:
    """The rows that the checks need, as the service wrote them."""

    generations: list[sqlite3.Row]
    requests: list[sqlite3.Row]
    entries: list[sqlite3.Row]

    @classmethod
    def read(cls, state_dir: Path) -> "Books":
        """Read a service's state folder; the service may be running or dead."""
        connection = sqlite3.connect(state_dir / "service.db")
        connection.row_factory = sqlite3.Row
        try:
            return cls(
                generations=connection.execute("SELECT * FROM generations ORDER BY created_at_ms").fetchall(),
                requests=connection.execute("SELECT * FROM requests ORDER BY arrived_at_ms, id").fetchall(),
                entries=connection.execute("SELECT * FROM transfers").fetchall(),
            )
        finally:
            connection.close()

    def violations(self, prompts: Iterable[str]) -> list[str]:
        """Return every broken promise, in words; none for a client that kept all of them."""
        return [*self._not_charged_once(prompts), *self.violations_of_limits()]

    def violations_of_gaps(self) -> list[str]:
        """Return what a client did too soon, in words."""
        return [*self._overlapping(), *self._polled_too_early()]

    def violations_of_limits(self) -> list[str]:
        """Return every limit that was overstepped, in words."""
        return [
            *self._overlapping(),
            *self._minutes_overstepped(),
            *self._days_overstepped(),
            *self._polled_too_early(),
            *self._refused_for_haste(),
        ]

    def _not_charged_once(self, prompts: Iterable[str]) -> list[str]:
        """Law 2: each prompt has exactly one generation, charged and not refunded."""
        made = Counter(json.loads(row["drawing_json"])["prompt"] for row in self.generations)
        refunds = [row for row in self.entries if row["kind"] == "refund"]
        found = [f"{prompt!r} generated {made[prompt]} times" for prompt in prompts if made[prompt] != 1]
        found += [f"{prompt!r} was never asked for" for prompt in made.keys() - set(prompts)]
        return found + [f"generation {row['generation_id']} was refunded" for row in refunds]

    def _overlapping(self) -> list[str]:
        """Law 4: an account never has two generations active."""
        found, last_end = [], dict[str, float]()
        for row in self.generations:
            if row["created_at_ms"] < last_end.get(row["account"], 0):
                found.append(f"generation {row['id']} began while another was active")
            last_end[row["account"]] = float("inf") if row["ended_at_ms"] is None else row["ended_at_ms"]
        return found

    def _minutes_overstepped(self) -> list[str]:
        """Law 5: no sliding minute holds more requests than allowed, whatever its alignment."""
        windows: dict[tuple[str, str], list[int]] = defaultdict(list)
        for row in self.requests:
            windows["ip", row["ip"]].append(row["arrived_at_ms"])
            if row["account"] is not None and row["kind"] in {"create", "upload"}:
                windows["creates", row["account"]].append(row["arrived_at_ms"])
            elif row["account"] is not None and row["kind"] in {"read", "quote"}:
                windows["reads", row["account"]].append(row["arrived_at_ms"])
        found = []
        for (kind, owner), arrivals in windows.items():
            limit = PER_MINUTE.get(kind, PER_IP_MINUTE)
            for first, last in zip(arrivals, arrivals[limit:], strict=False):
                if last - first < MINUTE_MS:
                    found.append(f"{limit + 1} {kind} of {owner} within {last - first} ms")
        return found

    def _days_overstepped(self) -> list[str]:
        """Law 5: neither requests nor credits of a service day exceed what is allowed."""
        requests: Counter[tuple[str, str, int]] = Counter()
        for row in self.requests:
            if row["account"] is not None:
                kind = "creates" if row["kind"] in {"create", "upload"} else "reads"
                requests[row["account"], kind, row["arrived_at_ms"] // DAY_MS] += 1
        credit_use: Counter[tuple[str, int]] = Counter()
        for row in self.generations:
            credit_use[row["account"], row["created_at_ms"] // DAY_MS] += row["cost_credits"]
        found = [
            f"{n} {kind} of {account} on day {day}" for (account, kind, day), n in requests.items() if n > PER_DAY[kind]
        ]
        return found + [
            f"{n} credits of {account} on day {day}" for (account, day), n in credit_use.items() if n > CREDITS_PER_DAY
        ]

    def _polled_too_early(self) -> list[str]:
        """Service rule 4.4: reads of one generation are at least ten seconds apart, from its create on."""
        last: dict[str, int] = {}
        found = []
        for row in self.requests:
            generation = row["generation_id"]
            if row["kind"] != "read" or generation is None:
                continue
            if generation in last and row["arrived_at_ms"] - last[generation] < POLL_MS:
                found.append(f"{generation} read again after {row['arrived_at_ms'] - last[generation]} ms")
            last[generation] = row["arrived_at_ms"]
        return found

    def _refused_for_haste(self) -> list[str]:
        """A client that keeps the limits by itself is never told to slow down."""
        hasty = [row for row in self.requests if row["status"] in {403, 429} and row["fault"] is None]
        return [f"{row['kind']} refused with {row['status']} {row['code']}" for row in hasty]
