"""A modelled rehearsal is the whole program's: the same bill, states, days, requests and end, seed by seed."""

import io
import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random  # draws from the test's seed alone
from typing import Any

import pytest
from msgspec.structs import asdict, replace

from batchkiln.api.app_context import AppContext
from batchkiln.cli.rehearsal_report import rehearsal_document
from batchkiln.config import Account, Config, load_config
from batchkiln.core.rate_limits import Limits
from batchkiln.core.states import ItemState
from batchkiln.rehearsal.simulation import RehearsalOptions, RehearsalResult, rehearse
from simulation.log_silencing import silence

START = datetime(2026, 3, 1, 9, 30, tzinfo=UTC)
KINDS = [
    *(
        {"model": "epsilon-2", "mode": "text-to-image", "parameters": {"resolution": size}}
        for size in ("512x512", "1024x1024", "2048x2048")
    ),
    *(
        {
            "model": "alpha-2.0-mini",
            "mode": "text-to-video",
            "parameters": {"resolution": "480p", "duration_seconds": seconds},
        }
        for seconds in (5, 10)
    ),
]
MARKERS = ["", "", "", "", " [fail]", " [fail-once]", " [slow]", " [cancel]"]


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """What the program logs is not what is looked at here."""
    with silence():
        yield


def drawn_job(draw: Random, name: str) -> dict[str, Any]:
    """Draw a job: kinds, prices, priorities, caps, budgets, an order, and generations that fail."""
    items = []
    for number in range(draw.randint(1, 6)):
        prompt = draw.choice(["A fox", "A cat"]) + draw.choice(MARKERS)
        item = {"id": f"i{number}", "prompt": prompt, "repeat": draw.randint(1, 9), **draw.choice(KINDS)}
        item |= {"priority": draw.randint(-2, 5)} if draw.random() < 0.2 else {}
        item |= {"max_cost_credits": draw.choice([1, 3, 20])} if draw.random() < 0.1 else {}
        items.append(item)
    budget = {"credits": draw.randint(1, 200)} if draw.random() < 0.3 else {}
    budget |= {"credits_per_day": draw.randint(4, 120)} if draw.random() < 0.3 else {}
    job = {"version": 1, "job": name, "items": items, "defaults": {"attempts": draw.randint(1, 3)}}
    job |= {"budget": budget} if budget else {}
    return job | {"order": draw.choice(["manifest", "pack"])}


def drawn_limits(draw: Random) -> Limits:
    """Draw limits, most of them those of the service."""
    drawn: dict[str, tuple[float, Any]] = {
        "credits_per_day": (0.4, draw.randint(5, 200)),
        "creates_per_day": (0.3, draw.randint(2, 20)),
        "reads_per_day": (0.2, draw.randint(12, 100)),
        "creates_per_minute": (0.2, draw.randint(1, 3)),
        "reads_per_minute": (0.2, draw.randint(10, 20)),
        "requests_per_minute_per_ip": (0.2, draw.randint(5, 30)),
        "poll_interval_seconds": (0.2, draw.choice([0.5, 3.0, 25.0])),
    }
    return replace(Limits(), **{name: value for name, (chance, value) in drawn.items() if draw.random() < chance})


def played(
    folder: Path,
    jobs: list[dict[str, Any]],
    *,
    limits: Limits | None = None,
    accounts: int = 1,
    **options: Any,  # noqa: ANN401
) -> RehearsalResult:
    """Rehearse jobs with the options of a rehearsal."""
    paths = []
    for job in jobs:
        paths.append(folder / f"{job['job']}.yaml")
        paths[-1].write_text(json.dumps(job))
    local = replace(load_config(None, {}).profiles["local"], limits=limits or Limits())
    if accounts > 1:
        local = replace(local, accounts=tuple(Account(f"a{number}", ()) for number in range(accounts)))
    app = AppContext(folder / "queue.db", Config({"local": local}, "local"), working_dir=folder)
    plain = RehearsalOptions([str(path) for path in paths], "none", 3, START, io.BytesIO())
    return rehearse(app, replace(plain, **options))


def told(result: RehearsalResult) -> dict[str, Any]:
    """Everything that a result tells, but for its temporary folder and for how it was found."""
    jobs = [{**asdict(job), "output_dir": ""} for job in result.jobs]
    return {**asdict(result), "jobs": jobs, "report": asdict(result.report), "profile": "", "is_modelled": ""}


@pytest.mark.long
@pytest.mark.parametrize("seed", range(24))
def test_model_and_program_give_the_same_result(seed: int, tmp_path: Path) -> None:
    """To the last request and the last millisecond: whatever the job, the limits and the time of day."""
    draw = Random(seed)
    jobs = [drawn_job(draw, f"j{number}") for number in range(draw.choice([1, 1, 2]))]
    limits, starts_at = drawn_limits(draw), START + timedelta(milliseconds=draw.randrange(86_400_000))

    model, program = (
        played(tmp_path, jobs, limits=limits, seed=seed, starts_at=starts_at, is_full=is_full)
        for is_full in (False, True)
    )

    assert (model.is_modelled, program.is_modelled) == (True, False)
    assert told(model) == told(program)


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS[::3])
def test_a_long_run_ends_at_the_same_time(kind: dict[str, Any], tmp_path: Path) -> None:
    """The poll times are learned from each generation before: one difference would move all that follow."""
    jobs = [{"version": 1, "job": "foxes", "items": [{"id": "fox", "prompt": "A fox", "repeat": 150, **kind}]}]

    model, program = (played(tmp_path, jobs, seed=11, is_full=is_full) for is_full in (False, True))

    assert model.is_modelled
    assert told(model) == told(program)


IMAGE = {"model": "epsilon-2", "mode": "text-to-image", "parameters": {"resolution": "512x512"}}
FOX = {"id": "fox", "prompt": "A fox", **IMAGE}
NOT_COVERED: dict[str, tuple[list[dict[str, Any]], dict[str, Any], dict[str, Any]]] = {
    "faults": ([FOX], {}, {"level": "mild"}),
    "several accounts": ([FOX], {"accounts": ["a0", "a1"]}, {"accounts": 2}),
    "a small minute": ([FOX], {}, {"limits": Limits(reads_per_minute=9)}),
    "a review": ([FOX | {"review": True}], {}, {}),
    "a choice": ([FOX | {"variants": 2, "choose": 1}], {}, {}),
    "a chain": ([FOX, FOX | {"id": "snow", "mode": "image-to-image", "inputs": [{"item": "fox"}]}], {}, {}),
    "a refusal": ([FOX | {"prompt": "A fox" * 1000}], {}, {}),
    "the option": ([FOX], {}, {"is_full": True}),
}


@pytest.mark.long
@pytest.mark.parametrize("name", NOT_COVERED)
def test_the_program_runs_what_no_model_covers(name: str, tmp_path: Path) -> None:
    """And the result says so."""
    items, job, options = NOT_COVERED[name]

    result = played(tmp_path, [{"version": 1, "job": "foxes", "items": items, **job}], **options)

    assert not result.is_modelled
    assert rehearsal_document(result, level="none", seed=3)["modelled"] is False
    assert result.is_all_done == (name != "a refusal")


def test_one_of_several_accounts_is_modelled(tmp_path: Path) -> None:
    """What counts is where the job runs: on the first account, unless it names one."""
    jobs = [{"version": 1, "job": "foxes", "items": [FOX | {"repeat": 3}], "accounts": ["a1"]}]

    model, program = (played(tmp_path, jobs, accounts=2, is_full=is_full) for is_full in (False, True))

    assert model.is_modelled
    assert told(model) == told(program)
    assert rehearsal_document(model, level="none", seed=3)["modelled"] is True


def test_an_empty_job_ends_at_once(tmp_path: Path) -> None:
    """Items over their caps are rejected after one quote, and nothing is created."""
    jobs = [{"version": 1, "job": "dear", "items": [FOX | {"repeat": 700, "max_cost_credits": 1}]}]

    model, program = (played(tmp_path, jobs, is_full=is_full) for is_full in (False, True))

    assert model.jobs[0].items[ItemState.REJECTED] == 700
    assert told(model) == told(program)


def test_progress_is_told_and_may_stop_it(tmp_path: Path) -> None:
    """A caller that stops raises from there, as in the whole program."""
    seen: list[tuple[datetime, int]] = []

    def progress(now: datetime, left: int) -> None:
        seen.append((now, left))
        if len(seen) == 3:
            raise KeyboardInterrupt

    jobs = [{"version": 1, "job": "foxes", "items": [FOX | {"repeat": 400}]}]
    with pytest.raises(KeyboardInterrupt):
        played(tmp_path, jobs, on_progress=progress)

    assert [now for now, _ in seen] == [START + timedelta(minutes=30) * number for number in range(3)]
    assert [left for _, left in seen] == sorted((left for _, left in seen), reverse=True)
