"""`doctor` against the real local service: what it asks, and that it spends nothing (contract, section 4)."""

import json
from datetime import timedelta
from pathlib import Path
from textwrap import dedent

import pytest

from batchkiln.api.app_context import Environment
from batchkiln.clock import machine_now
from batchkiln.core.errors import ExitStatus
from batchkiln.doctor.check_results import CheckResult, Level, exit_status_of
from batchkiln.doctor.runner import CheckContext, run_checks
from integration.cli.workspace import Workspace

from .conftest import KEY, OLD_KEY, Ground, GroundMaker


def context(ground: Ground, *, environment: Environment | None = None, keys: tuple[str, ...] = (KEY,)) -> CheckContext:
    """Write the configuration of the ground's service, with these keys, the newest first."""
    for number, key in enumerate(keys):
        path = ground.folder / f"key-{number}"
        path.write_text(key, "utf-8")
        path.chmod(0o600)
    sources = ", ".join(f"{{file: key-{number}}}" for number in range(len(keys)))
    config = ground.folder / "batchkiln.yaml"
    config.write_text(
        dedent(
            f"""
            default_profile: studio
            profiles:
              studio:
                base_url: {ground.service.base_url}
                accounts: [{{name: main, keys: [{sources}]}}]
            """
        ),
        "utf-8",
    )
    return CheckContext(ground.queue, config, None, {}, environment or Environment())


async def examined(whom: CheckContext) -> list[CheckResult]:
    return [finding async for finding in run_checks(whom)]


def of_check(findings: list[CheckResult], check: str) -> list[CheckResult]:
    return [finding for finding in findings if finding.check == check]


async def test_a_sound_setting_is_all_ok_and_costs_one_read(make_ground: GroundMaker) -> None:
    """The description, and the balance: no create, no upload, no quote; and no queue is made."""
    ground = await make_ground()

    findings = await examined(context(ground))

    assert [finding for finding in findings if finding.level is not Level.OK] == []
    assert exit_status_of(findings) is ExitStatus.OK
    assert await ground.sent() == ["/credits/balance"]
    assert "10,000 credits are left" in of_check(findings, "account main")[0].message
    assert not ground.queue.parent.exists()


async def test_an_old_key_is_the_accounts_failure(make_ground: GroundMaker) -> None:
    """403 with api_key_upgrade_required: exit 4, and how to replace it. Service rule 5.4."""
    ground = await make_ground()

    findings = await examined(context(ground, keys=(OLD_KEY,)))

    (found,) = of_check(findings, "account main")
    assert found.level is Level.FAIL
    assert "before the API's launch" in found.message
    assert exit_status_of(findings) is ExitStatus.ACCOUNT_CANNOT_WORK


async def test_a_refused_key_behind_a_good_one_is_a_warning(make_ground: GroundMaker) -> None:
    """New attempts are made with the first; what the other made can no longer be fetched."""
    ground = await make_ground()

    findings = await examined(context(ground, keys=(KEY, "lk_of-nobody")))

    assert [finding.level for finding in of_check(findings, "account main")] == [Level.OK, Level.WARN]
    assert exit_status_of(findings) is ExitStatus.OK


async def test_a_wrong_clock_of_this_machine_is_reported(make_ground: GroundMaker) -> None:
    """By the `Date` of a reply that costs nothing."""
    ground = await make_ground()
    environment = Environment(wall=lambda: machine_now() + timedelta(hours=2))

    findings = await examined(context(ground, environment=environment))

    (found,) = of_check(findings, "clock")
    assert found.level is Level.WARN
    assert "ahead of the service's" in found.message


async def test_without_a_network_the_rest_is_checked(make_ground: GroundMaker) -> None:
    """The service is a failure of its own; what depends on it is named as not checked."""
    ground = await make_ground()
    whom = context(ground)
    assert whom.config_path is not None
    text = whom.config_path.read_text("utf-8").replace(ground.service.base_url, "http://127.0.0.1:9/api/v1")
    whom.config_path.write_text(text, "utf-8")

    findings = await examined(whom)

    assert [finding.check for finding in findings if finding.level is Level.FAIL] == ["service"]
    assert exit_status_of(findings) is ExitStatus.ACCOUNT_CANNOT_WORK  # as `run` ends


async def test_keys_are_nowhere_in_the_findings(
    make_ground: GroundMaker, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    """Accepted, old or refused: only fingerprints are shown (Law 8)."""
    ground = await make_ground()
    refused = "lk_a-refused-key-that-nobody-may-see"

    findings = await examined(context(ground, keys=(KEY, OLD_KEY, refused)))

    shown = capsys.readouterr()
    texts = [*map(repr, findings), caplog.text, shown.out, shown.err]
    assert not [text for text in texts if "nobody-may-see" in text]


def test_without_anything_the_local_service_is_examined(tmp_path: Path) -> None:
    """A first try in an empty folder: all ok, exit 0, and the folder stays empty."""
    workspace = Workspace(tmp_path)

    result = workspace.call("doctor")

    assert result.exit == 0, result.err
    assert {line[:4].strip() for line in result.out.splitlines()} == {"ok"}
    assert list(tmp_path.iterdir()) == []


def test_a_broken_configuration_still_gives_a_document(tmp_path: Path) -> None:
    """--json: each check with its level; exit 2, and what could not be checked."""
    workspace = Workspace(tmp_path)
    workspace.configure("profiles: [\n")

    result = workspace.call("doctor", "--json")

    levels = {check["check"]: check["level"] for check in json.loads(result.out)["checks"]}
    assert result.exit == result.document["exit"] == 2
    assert levels["configuration"] == "fail"
    assert levels["service"] == "warn"
    assert levels["queue"] == levels["queue's folder"] == "ok"
