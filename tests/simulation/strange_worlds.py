"""Small worlds with a service in a dialect: what is asked for, what goes wrong, and what came of it, by its books."""

import hashlib
import json
import random
import re
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Final

from batchkiln_service.dialects import Dialect
from batchkiln_service.dialects.sample_files import EXTENSIONS, small_file

from .plan import START, Plan
from .scenarios import Storms

HOUR: Final = 3_600.0
CALM_AT: Final = 1_200.0
ENDS_BY: Final = 8 * HOUR
CREATES_MAX: Final = 6  # in vain, before it rests
UPLOAD_FILES_MAX: Final = 2
_FAULTS: Final = (
    ("reply_lost", "create"),
    ("reply_lost", "poll"),
    ("reply_lost", "quote"),
    ("reply_lost", "upload"),
    ("reply_lost", "complete"),
    ("reset_before", "create"),
    ("reset_after", "create"),
    ("cut_body", "create"),
    ("cut_body", "download"),
    ("unavailable", "create"),
    ("unavailable", "poll"),
    ("unavailable", "upload"),
    ("edge_block", "create"),
    ("edge_block", "poll"),
    ("html", "create"),
    ("throttle", "create"),
    ("slow_generation", "create"),
)
_POOR_SHARE: Final = 0.15
_POOR_CREDITS: Final = (1, 60)  # all items cost more than that
_TOPPED_UP_BETWEEN: Final = (300.0, 2_400.0)
_REFUSED_SHARE: Final = 0.1
_TEXTS: Final = ("A red fox in snow", "An owl at dusk", "A heron in the reeds", "A lynx on a rock")
_IMAGES: Final = ("epsilon-2", "epsilon-pro", "delta-image-2")
_CLIPS: Final = ("alpha-2.5-lite", "alpha-2.0-fast", "gamma-3.1-fast")


@dataclass(frozen=True)
class Verdict:
    """What came of one dialect. `reasons` say why it did not complete, `broken` which goals of money it broke."""

    seed: int
    is_complete: bool
    reasons: tuple[str, ...] = ()
    broken: tuple[str, ...] = ()
    credits_beyond: int = 0
    double_charges: int = 0
    lost_results: int = 0
    creates_in_vain: int = 0
    upload_files_in_vain: int = 0
    is_told: bool = True
    generations: int = 0

    @property
    def wrong(self) -> tuple[str, ...]:
        """What went wrong, without names and figures."""
        return tuple(re.sub(r"\d+|'[^']*'", "…", each) for each in (*self.reasons, *self.broken))


def draw_plan(seed: int, *, without: tuple[str, ...] = (), is_fair: bool = False) -> Plan:
    """Return the world of a dialect's seed: six to eight items, and faults and kills for a share of them."""
    chance = random.Random(f"strange world {seed}")
    plan = Plan(
        seed=seed,
        starts_at=START,
        manifests={"strange.yaml": _manifest(chance)},
        pictures=("owl.png", "fox.png"),
        service={"dialect": seed, "dialect_without": list(without), "duration_scale": 0.1},
        is_left_alone=True,
        other_outputs=_other_outputs(),
        ends_by=ENDS_BY,
    )
    is_rough, is_killed, is_stormy = (chance.random() < share for share in (0.5, 0.25, 0.2))
    faults = [
        {"kind": kind, "endpoint": endpoint, "times": 2, "probability": 0.4}
        | ({"seconds": 20} if kind in {"unavailable", "throttle", "slow_generation"} else {})
        for kind, endpoint in chance.sample(_FAULTS, 3)
    ]
    kills = tuple(sorted(chance.uniform(0, 300) for _ in range(chance.randint(1, 3))))
    if is_fair:
        return plan
    if is_rough:
        plan.service["faults"] = faults
    if is_killed:
        plan.kills = kills
    if is_stormy:
        plan.weather = partial(Storms, seed, probability=0.02, calm_at=CALM_AT)
    return _in_want(replace(plan, calm_at=CALM_AT), seed)


def _in_want(plan: Plan, seed: int) -> Plan:
    """Let a share of the accounts run out of credits in the middle, and replays be refused by what has changed."""
    chance = random.Random(f"strange purse {seed}")
    is_poor, is_refused = (chance.random() < share for share in (_POOR_SHARE, _REFUSED_SHARE))
    if is_poor:
        plan.service["accounts"] = [{"name": plan.accounts[0], "credits": chance.randint(*_POOR_CREDITS)}]
    if is_refused:
        rules: list[dict[str, object]] = [
            {"kind": kind, "endpoint": "create", "times": 3, "probability": 0.6}
            for kind in ("reply_lost", "refuse_replay")
        ]
        plan.service["faults"] = rules
    if is_poor or is_refused:  # either way the account is said to have no credits
        plan.topped_up_at = chance.uniform(*_TOPPED_UP_BETWEEN)
    return plan


@cache
def _other_outputs() -> frozenset[str]:
    """Return the hashes of all files that a dialect may have in place of the service's own, and beside them."""
    files = (small_file(extension, number) for extension in EXTENSIONS for number in range(2))
    return frozenset(hashlib.sha256(content).hexdigest() for content in files)


def _manifest(chance: random.Random) -> str:
    image, clip = chance.choice(_IMAGES), chance.choice(_CLIPS)
    still, moved = "512x512", "480p"
    lines = [
        "version: 1",
        "job: strange",
        f"defaults: {{model: {image}, mode: text-to-image, parameters: {{resolution: {still}}}, attempts: 2}}",
        "items:",
    ]
    lines += [
        f"  - {{id: picture-{number}, prompt: {text}}}" for number, text in enumerate(_TEXTS[: chance.randint(2, 4)])
    ]
    fails = chance.choice(("[fail]", "[fail-once]"))
    lines.append(f'  - {{id: fails, prompt: "A crane {fails}"}}')
    lines.append("  - {id: changed, prompt: An owl in ink, mode: image-to-image, inputs: [owl.png]}")
    seconds = {"alpha-2.5-lite": 2, "alpha-2.0-fast": 5, "gamma-3.1-fast": 4}[clip]
    video = f"model: {clip}, parameters: {{resolution: {moved}, duration_seconds: {seconds}}}"
    pictures = chance.choice(("fox.png", "owl.png"))
    lines.append(f"  - {{id: moved, prompt: The animal turns, mode: image-to-video, inputs: [{pictures}], {video}}}")
    if chance.random() < 0.5:
        lines.append(f"  - {{id: clip, prompt: Waves at night, mode: text-to-video, {video}}}")
    return "\n".join(lines) + "\n"


class Books:
    """What service and queue have written, side by side."""

    def __init__(self, folder: Path, seed: int, without: tuple[str, ...] = ()) -> None:
        self._seed = seed
        self._dialect = Dialect.draw(seed).without(without)
        with closing(_opened(folder / "service" / "service.db")) as books:
            self._made = books.execute(
                "SELECT *, json_extract(CAST(drawing_json AS TEXT), '$.prompt') AS prompt FROM generations"
            ).fetchall()
            self._requests = books.execute("SELECT * FROM requests").fetchall()
            self._assets = books.execute("SELECT name FROM assets").fetchall()
        with closing(_opened(folder / "program" / "queue.db")) as queue:
            self._jobs = queue.execute("SELECT * FROM job").fetchall()
            self._items = queue.execute(
                "SELECT item.*, recipe.attempts AS tries_allowed FROM item JOIN recipe ON recipe.id = item.recipe_id"
            ).fetchall()
            self._attempts = queue.execute("SELECT * FROM attempt").fetchall()
            self._outputs = queue.execute("SELECT * FROM output").fetchall()
            self._events = queue.execute("SELECT * FROM event ORDER BY id").fetchall()
            self._misunderstood = _misunderstood(queue)

    def verdict(self, violations: list[str]) -> Verdict:
        """Say what came of it."""
        reasons = tuple(sorted(set(self._reasons())))
        is_complete = not reasons
        beyond, doubled, lost = self._beyond(), list(self._doubled()), list(self._lost())
        creates, files = self._in_vain()
        broken = [f"{beyond} credits beyond those booked"] if beyond else []
        broken += [f"{prompt!r} is paid {count} times" for prompt, count in doubled]
        broken += [f"the result of {prompt!r} is lost" for prompt in lost]
        if not is_complete and creates > CREATES_MAX:
            broken.append(f"{creates} creates in vain")
        if not is_complete and files > UPLOAD_FILES_MAX:
            broken.append(f"{files} upload files in vain")
        broken += [violation for violation in violations if "not everything has ended" not in violation]
        return Verdict(
            self._seed,
            is_complete,
            reasons=reasons,
            broken=tuple(broken),
            credits_beyond=beyond,
            double_charges=len(doubled),
            lost_results=len(lost),
            creates_in_vain=0 if is_complete else creates,
            upload_files_in_vain=0 if is_complete else files,
            is_told=all(self._is_told(item) for item in self._items),
            generations=len(self._made),
        )

    def _reasons(self) -> Iterator[str]:
        """Tell of each item that is not as it should be by what the service did."""
        failures = Counter(made["prompt"] for made in self._made if made["outcome"] == "failed")
        last: dict[int | None, str] = {}
        for event in self._events:
            last[event["item_id"]] = event["kind"]
        for item in self._items:
            has_failed = failures[item["prompt"]] >= item["tries_allowed"]
            if item["state"] == ("failed" if has_failed else "done"):
                continue
            if item["state"] in {"queued", "waiting"}:
                yield f"{item['state']} ({self._account_word()})"
                continue
            yield f"{item['state']}: {item['error_code'] or last.get(item['id'], '')}"

    def _account_word(self) -> str:
        """Return what is known of the account, where an item waits for it."""
        if self._misunderstood:
            return f"not understood: {', '.join(sorted(self._misunderstood))}"
        kinds = [event["kind"] for event in self._events if "block" in event["kind"]]
        return kinds[-1] if kinds else "nothing said"

    def _beyond(self) -> int:
        taken = sum(
            made["cost_credits"] for made in self._made if made["outcome"] != "failed" or not made["ended_at_ms"]
        )
        booked = sum(job["charged"] - job["refunded"] + job["reserved"] for job in self._jobs)
        return max(0, int(taken - booked))

    def _doubled(self) -> Iterator[tuple[str, int]]:
        kept = Counter(made["prompt"] for made in self._made if made["outcome"] != "failed")
        yield from ((prompt, count) for prompt, count in kept.items() if count > 1)

    def _lost(self) -> Iterator[str]:
        """Give the prompts whose result was paid for, and is neither here, with all of its files, nor still to come."""
        files: defaultdict[int, set[str]] = defaultdict(set)
        for output in self._outputs:
            files[output["item_id"]].add(output["sha256"])
        by_prompt = {item["prompt"]: item for item in self._items}
        for made in self._made:
            if made["outcome"] != "success":
                continue
            item = by_prompt[made["prompt"]]
            is_open = item["state"] in {"queued", "submitting", "active", "downloading", "held"}
            is_video = json.loads(made["drawing_json"])["kind"] == "video"
            has_second = self._dialect["outputs"] == "two" or (self._dialect["outputs"] != "one" and is_video)
            wanted = 2 if has_second else 1
            is_here = len(files[item["id"]]) >= wanted and item["state"] == "done"
            if not is_open and not is_here:
                yield made["prompt"]

    def _in_vain(self) -> tuple[int, int]:
        """Count creates that made nothing and files that were uploaded again, where no fault was the reason."""
        sent = [row for row in self._requests if row["kind"] == "create" and row["fault"] is None]
        creates = len(sent) - len(self._made)
        struck = [row for row in self._requests if row["kind"] == "upload" and row["fault"] and row["status"] < 400]
        return max(0, creates), max(0, len(self._assets) - 2 - len(struck))

    def _is_told(self, item: sqlite3.Row) -> bool:
        """Say whether a person is told why an item is not done, by the item or by the account that it waits for."""
        return item["state"] in {"done", "failed"} or bool(item["error_code"]) or any(self._misunderstood.values())


def _misunderstood(queue: sqlite3.Connection) -> dict[str, str]:
    """Return the calls that rest since their replies are not understood, each with its remedy."""
    if not queue.execute("SELECT 1 FROM sqlite_master WHERE name = 'misunderstood'").fetchone():
        return {}
    return {row["call"]: row["remedy"] for row in queue.execute("SELECT call, remedy FROM misunderstood")}


def _opened(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path)
    connection.row_factory = sqlite3.Row
    return connection
