"""Notifications of whole runs: they arrive, and whatever is wrong with them, the run does not notice."""

import asyncio
import json
import os
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import structlog
from aiohttp import web
from aiohttp.test_utils import TestServer

import batchkiln
from batchkiln.notifications import run_notifications
from integration.cli.workspace import HURRIED, Result, Workspace

CANARY = "canary-token-7d1f"
SMALL: batchkiln.Defaults = {"model": "epsilon-2", "mode": "text-to-image", "parameters": {"resolution": "512x512"}}


@dataclass
class Receiver:
    """Keeps the messages it got; `statuses` are its replies, then 204."""

    statuses: list[int] = field(default_factory=list)
    got: list[dict[str, Any]] = field(default_factory=list)
    hangs: bool = False
    called: asyncio.Event = field(default_factory=asyncio.Event)
    url: str = ""

    async def receive(self, request: web.Request) -> web.Response:
        self.got.append(json.loads(await request.read()))
        self.called.set()
        if self.hangs:
            await asyncio.Event().wait()
        return web.Response(status=self.statuses.pop(0) if self.statuses else 204)

    @property
    def types(self) -> list[str]:
        return [message["type"] for message in self.got]


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    made = Receiver()
    app = web.Application()
    app.router.add_post("/{path:.*}", made.receive)
    async with TestServer(app) as server:
        made.url = f"http://127.0.0.1:{server.port}/{CANARY}"
        yield made


def config_of(receiver: Receiver, *, credits_per_day: int = 2000, **notifier: object) -> dict[str, object]:
    return {
        "profiles": {"local": {"time_scale": 600, "limits": {"credits_per_day": credits_per_day}}},
        "notify": {"ci": {"webhook": {"url": receiver.url}, **notifier}},
    }


async def drive(folder: Path, config: dict[str, object], *prompts: str, **wishes: Any) -> batchkiln.RunResult:  # noqa: ANN401
    async with asyncio.timeout(30), batchkiln.open_queue(folder / "q.db", config=config, working_dir=folder) as queue:
        await queue.enqueue_items(prompts, job="foxes", defaults=SMALL)
        return await queue.run(**wishes)


async def test_a_run_shows_its_end(receiver: Receiver, tmp_path: Path) -> None:
    """Before it returns; and the same run again tells nothing."""
    await drive(tmp_path, config_of(receiver), "A fox")
    await drive(tmp_path, config_of(receiver), "A fox")

    assert receiver.types == ["job_ended"]
    assert receiver.got[0]["data"]["job"] == "foxes"


async def test_a_day_that_is_spent_is_reported(receiver: Receiver, tmp_path: Path) -> None:
    """Work is left, and the run ends by `--until budget`."""
    ending = await drive(tmp_path, config_of(receiver, credits_per_day=3), "A fox", "An owl", until="budget")

    assert ending.exit_status is batchkiln.ExitStatus.STOPPED_WITH_WORK_LEFT
    assert receiver.types == ["budget_spent"]
    assert receiver.got[0]["data"]["left"] == 1


async def test_only_wanted_events_are_reported(receiver: Receiver, tmp_path: Path) -> None:
    """`events` chooses."""
    await drive(tmp_path, config_of(receiver, events=["item_held"]), "A fox")

    assert receiver.types == []


async def test_a_receiver_that_is_down_holds_nothing_up_and_is_reported_later(
    receiver: Receiver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run ends as it would have; the next one, even without work, tells what was left, under the same id."""
    monkeypatch.setattr(run_notifications, "END_SECONDS", 0.2)
    receiver.hangs = True
    ending = await drive(tmp_path, config_of(receiver), "A fox")
    receiver.hangs = False

    await drive(tmp_path, config_of(receiver), "A fox")

    assert ending.exit_status is batchkiln.ExitStatus.OK
    assert receiver.types == ["job_ended", "job_ended"]
    assert receiver.got[0]["data"]["id"] == receiver.got[1]["data"]["id"]


async def test_the_wait_for_a_receiver_that_hangs_is_said(
    receiver: Receiver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that does not return without a word is taken for one that hangs."""
    monkeypatch.setattr(run_notifications, "ANNOUNCE_AFTER_SECONDS", 0.1)
    monkeypatch.setattr(run_notifications, "END_SECONDS", 0.3)
    receiver.hangs = True

    with structlog.testing.capture_logs() as logs:
        await drive(tmp_path, config_of(receiver), "A fox")

    assert [line["event"] for line in logs if line["event"].startswith("notifications_")] == [
        "notifications_awaited",
        "notifications_left",
    ]


@pytest.mark.parametrize("has_ended", [True, False])
async def test_a_stop_waits_for_no_receiver_that_hangs(
    receiver: Receiver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, has_ended: bool
) -> None:
    """Neither one that comes while the run waits for its last notices, nor one before."""
    monkeypatch.setattr(run_notifications, "END_SECONDS", 600.0)
    monkeypatch.setattr(run_notifications, "STOPPED_SECONDS", 0.1)
    receiver.hangs = True
    async with asyncio.timeout(30), batchkiln.open_queue(tmp_path / "q.db", config=config_of(receiver)) as queue:
        await queue.enqueue_items(["A fox"], job="foxes", defaults=SMALL)
        await queue.start(forever=not has_ended)
        await receiver.called.wait()

        ending = await queue.stop()

    assert ending is not None


async def test_a_busy_receiver_is_tried_again_within_the_run(receiver: Receiver, tmp_path: Path) -> None:
    """One 503, then it arrives."""
    receiver.statuses = [503]

    await drive(tmp_path, config_of(receiver), "A fox")

    assert receiver.types == ["job_ended", "job_ended"]


async def test_a_bug_in_a_notifier_does_not_reach_the_run(
    receiver: Receiver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Money is spent by the run, not by its messenger."""

    def broken(*_: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(run_notifications, "notifications_since", broken)
    first = await drive(tmp_path, config_of(receiver), "A fox")
    monkeypatch.setattr(run_notifications, "channels_of", broken)
    second = await drive(tmp_path, config_of(receiver), "A fox")

    assert first.exit_status is second.exit_status is batchkiln.ExitStatus.OK
    assert receiver.got == []


async def test_manifest_names_only_what_is_configured(receiver: Receiver, tmp_path: Path) -> None:
    """A name that is not there is told with the one that may be meant, and nothing is enqueued."""
    async with batchkiln.open_queue(tmp_path / "q.db", config=config_of(receiver)) as queue:
        with pytest.raises(batchkiln.InputError, match="there is no notifier cii; did you mean `ci`"):
            await queue.enqueue_items(["A fox"], job="foxes", defaults=SMALL, notify=["cii"])
        with pytest.raises(batchkiln.InputError, match="list") as raised:
            await queue.enqueue_text("version: 1\njob: foxes\nnotify: ci\nitems: []\n")

        assert (await queue.overview()).jobs == ()
    assert raised.value.mistakes[0].line == 3


async def command(workspace: Workspace, *arguments: str, **environment: str) -> Result:
    """Run a command while the receiver serves in this loop."""
    return await asyncio.to_thread(workspace.call, *arguments, **environment)


async def test_no_address_and_no_secret_is_left_anywhere(receiver: Receiver, tmp_path: Path) -> None:
    """Law 8: neither in the queue's files, nor in what is printed, also when nothing works."""
    workspace, secret = Workspace(tmp_path), "canary-secret-93ab"
    workspace.configure(
        f"{HURRIED}notify:\n  ci: {{webhook: {{url: {receiver.url}, secret_env: HOOK}}}}\n"
        f"  gone: {{webhook: {{url: {receiver.url.replace(CANARY, 'gone-' + CANARY)}}}}}\n"
        "  phone: {apprise: {env: PHONE}}\n  odd: {apprise: {env: ODD}}\n"
    )
    receiver.statuses = [410, 410]
    environment = {"HOOK": secret, "PHONE": f"json://127.0.0.1:1/{CANARY}", "ODD": f"odd://{CANARY}"}
    manifest = workspace.manifest(more="notify: [ci, gone, odd]")

    run = await command(workspace, "run", "-vv", manifest, **environment)
    looks = [await command(workspace, *look) for look in (("status", "--json"), ("show", "foxes", "fox-1", "--json"))]

    printed = "".join(result.out + result.err for result in (run, *looks))
    files = [path for path in tmp_path.rglob("*") if path.is_file() and path.name != "batchkiln.yaml"]
    kept = b"".join(path.read_bytes() for path in files)
    assert run.exit == 0, run.err
    assert len(receiver.got) == 2
    assert "notification_given_up" in run.err
    assert "notifier_unusable" in run.err
    for canary in (CANARY, secret):
        assert canary not in printed
        assert canary.encode() not in kept


@pytest.mark.parametrize(
    "text",
    [
        f"notify: {{ci: {{webhok: {{url: 'https://ci.invalid/{CANARY}'}}}}}}\n",
        f"notify:\n  ci: {{apprise: 'slack://{CANARY}', events: [job_endet]}}\n",
        f"notify:\n  ci: {{apprise: 'slack://{CANARY}', webhook: {{url: 'https://ci.invalid/{CANARY}'}}}}\n",
        f"notify:\n  ci: {{apprise: 'slack://{CANARY}\n",
    ],
)
async def test_mistakes_of_the_configuration_show_no_address(text: str, tmp_path: Path) -> None:
    """Place and reason, without the line: it holds a secret."""
    (tmp_path / "batchkiln.yaml").write_text(text)

    with pytest.raises(batchkiln.InputError) as raised:
        async with batchkiln.open_queue(tmp_path / "q.db", config=tmp_path / "batchkiln.yaml"):
            pass

    assert CANARY not in str(raised.value)
    assert "batchkiln.yaml:" in str(raised.value)


async def test_mistakes_of_a_mapping_show_no_address(tmp_path: Path) -> None:
    """An address that a program passed is not shown either."""
    config = {"notify": {"ci": {"apprise": CANARY}}}

    with pytest.raises(batchkiln.InputError, match=r"notify\.ci\.apprise") as raised:
        async with batchkiln.open_queue(tmp_path / "q.db", config=config):
            pass

    assert CANARY not in str(raised.value)
    assert os.fspath(tmp_path) not in str(raised.value)
