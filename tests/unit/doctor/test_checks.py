"""The checks of `doctor` one by one: what each finds, and what it says to do (contract, section 4)."""

import os
import sqlite3
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest
from msgspec.structs import replace

from batchkiln.client import ServiceClient, fingerprint
from batchkiln.config import Account, Config, KeySource, Profile, load_config
from batchkiln.core.errors import ExitStatus
from batchkiln.core.rate_limits import Limits, ServiceDay
from batchkiln.core.responses import BalanceRead, Described, NoResponse
from batchkiln.doctor.check_results import CheckResult, Level, exit_status_of, fail, ok, warn
from batchkiln.doctor.local_checks import (
    check_address,
    check_configuration,
    check_folder,
    check_http,
    check_key_sources,
    check_limits,
    check_notifiers,
    check_program,
    check_proxies,
    check_queue,
    check_shared_keys,
    check_work,
)
from batchkiln.doctor.service import check_accounts, check_clock, check_description, check_reachable
from batchkiln.store.sqlite.file_session import prepare_for_writing
from support.queue_file import QueueFile, spec

if TYPE_CHECKING:
    from batchkiln.clock import ServiceClock

NOWHERE = {"XDG_CONFIG_HOME": "/nonexistent"}
STUDIO = Profile("studio", "https://example.invalid/api/v1", (Account("main", (KeySource(env="STUDIO_KEY"),)),))
NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)


class ClockAt:
    """A service's clock that stands still, known to a second."""

    is_observed, is_doubted = True, False

    def __init__(self, instant: datetime, apparent_scale: float | None = None) -> None:
        self.apparent_scale = apparent_scale
        self.instant = instant
        self.latest = instant + timedelta(seconds=1)

    def now(self) -> "ClockAt":
        return self


def levels(findings: list[CheckResult]) -> list[Level]:
    return [finding.level for finding in findings]


# --- all together ---


def test_the_gravest_failure_decides_the_exit_status() -> None:
    """Configuration failures precede account failures, and those all others; warnings do not count."""
    network = fail("a", "", exit_status=ExitStatus.UNEXPECTED)
    account = fail("b", "", exit_status=ExitStatus.ACCOUNT_CANNOT_WORK)

    assert exit_status_of([ok("a", ""), warn("b", "")]) is ExitStatus.OK
    assert exit_status_of([network]) is ExitStatus.UNEXPECTED
    assert exit_status_of([network, account]) is ExitStatus.ACCOUNT_CANNOT_WORK
    assert exit_status_of([network, account, fail("c", "")]) is ExitStatus.USAGE


# --- this machine ---


def test_versions_are_named() -> None:
    """What a report of a problem needs."""
    assert sqlite3.sqlite_version in check_program().message


def test_proxies_are_reported_without_their_passwords() -> None:
    """They are used if the profile says so; their address may hold a secret (Law 8)."""
    environ = {"HTTPS_PROXY": "http://me:canary@proxy:3128", "PATH": "/bin"}
    direct = Profile("studio", "https://service.example/api/v1")
    found = check_proxies(environ, direct)

    assert (found.level, "HTTPS_PROXY" in found.message) == (Level.WARN, True)
    assert "canary" not in found.message + (found.remedy or "")
    assert "`proxy: environment`" in str(found.remedy)
    assert check_proxies(environ, replace(direct, proxy="environment")).level is Level.OK
    assert check_proxies({"PATH": "/bin"}, None).level is Level.OK


def test_a_folder_is_tried_and_left_as_it_was(tmp_path: Path) -> None:
    """A missing folder is not created either."""
    assert check_folder("queue's folder", tmp_path / "a" / "b").level is Level.OK
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_cannot_be_written_is_a_failure(tmp_path: Path) -> None:
    """A run would not begin."""
    tmp_path.chmod(0o500)

    assert check_folder("outputs", tmp_path).level is Level.FAIL


def test_a_file_in_the_place_of_a_folder_is_a_failure(tmp_path: Path) -> None:
    """Nothing can be written below it."""
    (tmp_path / "out").write_text("", "utf-8")

    found = check_folder("outputs", tmp_path / "out" / "birds")

    assert (found.level, found.exit_status) == (Level.FAIL, ExitStatus.USAGE)


def test_a_service_whose_clock_runs_faster_is_recognised() -> None:
    """The usual cause is a forgotten time scale; this machine's clock is right."""
    clock = cast("ServiceClock", ClockAt(NOON + timedelta(seconds=278), apparent_scale=60.2))

    found = check_clock(clock, NOON, is_scaled=False)

    assert (found.level, "60 times as fast" in found.message) == (Level.WARN, True)
    assert "export BATCHKILN_TIME_SCALE=60`" in str(found.remedy)


# --- the configuration ---


def test_a_broken_configuration_is_reported_with_its_place(tmp_path: Path) -> None:
    """File, line, and that there is no profile to look at."""
    path = tmp_path / "batchkiln.yaml"
    path.write_text("profiles:\n  studio:\n    base_ur: x\n", "utf-8")

    findings, config, profile = check_configuration(path, NOWHERE, None)

    assert (levels(findings), config, profile) == ([Level.FAIL], None, None)
    assert f"{path}:3" in findings[0].message


def test_an_unknown_profile_is_a_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """--profile with a name that is not configured."""
    monkeypatch.chdir(tmp_path)

    findings, config, profile = check_configuration(None, NOWHERE, "studio")

    assert levels(findings) == [Level.OK, Level.FAIL]
    assert config is not None
    assert profile is None


@pytest.mark.parametrize(
    ("address", "level"),
    [
        ("https://example.invalid/api/v1", Level.OK),
        ("http://127.0.0.1:8080/api/v1", Level.OK),
        ("http://example.invalid/api/v1", Level.FAIL),
        ("https://example.invalid", Level.WARN),
    ],
)
def test_keys_never_travel_in_clear(address: str, level: Level) -> None:
    """Without encryption only on this machine; the version belongs to the address (Service section 9)."""
    assert check_address(replace(STUDIO, base_url=address)).level is level


def test_keys_that_may_travel_in_clear_are_a_warning() -> None:
    """A person has allowed it; what it means is told all the same."""
    allowed = replace(STUDIO, base_url="http://example.invalid/api/v1", allows_http=True)

    assert check_address(allowed).level is Level.WARN


def test_missing_keys_are_reported_and_none_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run would not begin without one, and goes on with the others."""
    monkeypatch.setenv("STUDIO_KEY", "canary-key")
    key = KeySource(env="STUDIO_KEY")
    accounts = (
        Account("main", (key, KeySource(file="gone"))),
        Account("other", (key,)),
        Account("none", (KeySource(env="NOT_SET"),)),
    )

    findings = list(check_key_sources(replace(STUDIO, accounts=accounts, folder=tmp_path)))

    assert [(finding.check, finding.level) for finding in findings] == [
        ("keys of main", Level.WARN),
        ("keys of main", Level.OK),
        ("keys of other", Level.OK),
        ("keys of none", Level.FAIL),
    ]
    assert not [finding for finding in findings if "canary" in finding.message]


def test_shared_keys_are_reported_and_never_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    """One account under two names would be taken for two sets of limits; elsewhere it may be another's (Law 8)."""
    monkeypatch.setenv("STUDIO_KEY", "canary-key")
    other = replace(STUDIO, name="other", base_url="https://other.invalid/api/v1")
    twin = replace(STUDIO, name="twin", base_url="https://EXAMPLE.invalid:443/api/v1")

    config = Config({profile.name: profile for profile in (STUDIO, other, twin)}, "studio")
    findings = list(check_shared_keys(config))

    assert levels(findings) == [Level.WARN, Level.FAIL, Level.WARN]
    assert "studio/main" in findings[1].message
    assert "twin/main" in findings[1].message
    assert not [finding for finding in findings if "canary" in finding.message]


class Paying:
    """An account of the service, as far as it tells its balance."""

    def __init__(self, keys: Mapping[str, str], balances: Mapping[str, int]) -> None:
        self.credits = balances[next(iter(keys.values()))]

    async def balance(self) -> BalanceRead:
        return BalanceRead(self.credits)


@pytest.mark.parametrize(
    ("balances", "is_told"),
    [
        ({"key-a": 8137, "key-b": 8137}, True),
        ({"key-a": 8137, "key-b": 8136}, False),
        ({"key-a": 5000, "key-b": 5000}, False),
    ],
)
async def test_two_names_with_one_balance_may_be_one_account(
    monkeypatch: pytest.MonkeyPatch, balances: dict[str, int], *, is_told: bool
) -> None:
    """Keys that differ may be of one account, whose limits would be used twice; a round balance says nothing."""
    monkeypatch.setenv("KEY_A", "key-a")
    monkeypatch.setenv("KEY_B", "key-b")
    accounts = tuple(Account(name, (KeySource(env=f"KEY_{name}"),)) for name in "AB")

    def client_of(keys: Mapping[str, str]) -> ServiceClient:
        return cast("ServiceClient", Paying(keys, balances))

    found = [finding async for finding in check_accounts(client_of, replace(STUDIO, accounts=accounts))]

    assert ["may be the same account" in finding.message for finding in found].count(True) == is_told


def test_a_key_file_that_others_may_read_is_reported(tmp_path: Path) -> None:
    """It is for its owner alone."""
    (tmp_path / "key").write_text("a-key", "utf-8")
    (tmp_path / "key").chmod(0o644)
    profile = replace(STUDIO, accounts=(Account("main", (KeySource(file="key"),)),), folder=tmp_path)

    assert levels(list(check_key_sources(profile))) == [Level.WARN, Level.OK]
    (tmp_path / "key").chmod(0o600)
    assert levels(list(check_key_sources(profile))) == [Level.OK]


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"limits": Limits(credits_per_day=5000)}, "credits_per_day is 5,000"),
        ({"limits": Limits(poll_interval_seconds=1)}, "poll_interval_seconds"),
        ({"limits": Limits(reads_per_minute=3)}, "too few to poll"),
        ({"scale": 60.0}, "time_scale"),
        ({"day": ServiceDay(3600)}, "day_seconds"),
    ],
)
def test_limits_beyond_the_documented_ones_are_reported(changes: dict[str, object], word: str) -> None:
    """Requests would be refused, or polls come too often. Service section 8."""
    (found,) = check_limits(replace(STUDIO, **changes))

    assert found.level is Level.WARN
    assert word in found.message


def test_the_documented_limits_are_plausible() -> None:
    """So are smaller ones."""
    assert levels(list(check_limits(STUDIO))) == [Level.OK]
    assert levels(list(check_limits(replace(STUDIO, limits=Limits(credits_per_day=10))))) == [Level.OK]


# --- the queue ---


def test_a_queue_that_is_not_there_is_fine_and_is_not_made(tmp_path: Path) -> None:
    """`run` makes it."""
    found, health = check_queue(tmp_path / "queue.db")

    assert (found.level, health) == (Level.OK, None)
    assert list(tmp_path.iterdir()) == []


def test_a_sound_queue_is_reported_with_its_jobs_and_stays_as_it_is(tmp_path: Path) -> None:
    """Looked at as a run does before it builds on it."""
    queue = QueueFile(tmp_path / "queue.db")
    queue.apply([spec("fox")])
    queue.connection.close()
    before = queue.path.read_bytes()

    found, health = check_queue(queue.path)

    assert found.level is Level.OK
    assert "1 job," in found.message
    assert health is not None
    assert [job.name for job in health.work.jobs] == ["birds"]
    assert queue.path.read_bytes() == before


def test_a_damaged_queue_is_a_failure_with_what_to_do(tmp_path: Path) -> None:
    """A page of zeros in the middle."""
    path = tmp_path / "queue.db"
    connection = sqlite3.connect(path, isolation_level=None)
    prepare_for_writing(connection, path)
    connection.close()
    with path.open("r+b") as file:
        file.seek(4096 * 3)
        file.write(b"\x55" * 4096)

    found, health = check_queue(path)

    assert (found.level, found.exit_status, health) == (Level.FAIL, ExitStatus.USAGE, None)
    assert "damaged" in found.message


def test_an_older_queue_is_reported_and_not_changed(tmp_path: Path) -> None:
    """The next run brings it up to date, and not `doctor`."""
    path = tmp_path / "queue.db"
    connection = sqlite3.connect(path, isolation_level=None)
    prepare_for_writing(connection, path)
    connection.execute("PRAGMA user_version = 1")
    connection.close()

    found, health = check_queue(path)

    assert found.level is Level.WARN
    assert "older schema 1" in found.message
    assert health is not None
    assert not health.is_current


def test_paid_work_whose_key_is_not_configured_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the key that created a generation may ask for it. Service rule 5.7."""
    monkeypatch.setenv("STUDIO_KEY", "a-new-key")
    queue = QueueFile(tmp_path / "queue.db")
    queue.apply([spec("fox")])
    queue.send("fox", generation_id="gen-1")
    queue.connection.execute("UPDATE account SET profile = 'studio'")
    queue.connection.close()
    _, health = check_queue(queue.path)
    assert health is not None

    findings = list(check_work(health, Config({"studio": STUDIO}, "studio")))

    assert levels(findings) == [Level.WARN, Level.WARN]
    assert "the profile local, which is not configured" in findings[0].message
    assert "API key f can read" in findings[1].message
    assert fingerprint("a-new-key") not in findings[1].message


# --- the service ---


def test_a_silent_service_is_a_failure_that_names_what_was_not_checked() -> None:
    """Neither configuration nor account is to blame."""
    found = check_reachable(NoResponse("could not connect"))

    assert (found.level, found.exit_status) == (Level.FAIL, ExitStatus.ACCOUNT_CANNOT_WORK)
    assert "were not checked" in found.message


def test_a_description_without_paths_is_a_failure() -> None:
    """It is of another service."""
    (found,) = check_description(Described("Blog", "1", {"openapi": "3.1.0"}))

    assert found.level is Level.FAIL


@pytest.mark.parametrize(
    ("ahead", "word"), [(0, "agrees"), (4, "agrees"), (90, "90 s ahead of"), (-4, "agrees"), (-90, "90 s behind")]
)
def test_a_wrong_clock_is_reported(ahead: int, word: str) -> None:
    """Days follow the service's clock, so that it is only a warning."""
    clock = ClockAt(NOON)
    machine = (clock.latest if ahead > 0 else clock.instant) + timedelta(seconds=ahead)

    found = check_clock(clock, machine, is_scaled=False)  # type: ignore[arg-type]

    assert word in found.message
    assert found.level is (Level.OK if word == "agrees" else Level.WARN)


# --- the HTTP interface ---


@pytest.mark.parametrize(
    ("section", "level", "message"),
    [
        ("{}", None, ""),
        ("{host: 127.0.0.1}", None, ""),
        ("{tokens: {ci: {env: SHORT_TOKEN, scopes: [look]}}}", Level.WARN, "fewer than 32 characters"),
        ("{host: 0.0.0.0}", Level.WARN, "no token is configured"),
        ("{host: 0.0.0.0, tokens: {ci: {sha256: HASH, scopes: [look]}}}", Level.WARN, "unencrypted"),
        ("{tokens: {ci: {sha256: HASH, scopes: [look]}}}", Level.OK, "tokens: ci"),
        (
            "{host: 0.0.0.0, public_url: 'https://kiln.invalid', tokens: {ci: {sha256: HASH, scopes: [look]}}}",
            Level.OK,
            "https://kiln.invalid",
        ),
    ],
)
def test_http_interface_that_cannot_be_used_is_reported(
    tmp_path: Path, section: str, level: Level | None, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A token that is no token, and what crosses a network unencrypted."""
    monkeypatch.setenv("SHORT_TOKEN", "short")
    path = tmp_path / "batchkiln.yaml"
    path.write_text(f"http: {section.replace('HASH', '0' * 64)}\n")

    findings = list(check_http(load_config(path, {})))

    assert levels(findings) == ([] if level is None else [level])
    assert message in "".join(finding.message for finding in findings)


def test_worker_without_the_token_of_the_dashboard_is_not_warned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Containers and units share a configuration, and only the dashboard's has the token; each token is looked at."""
    monkeypatch.delenv("CREDENTIALS_DIRECTORY", raising=False)
    monkeypatch.setenv("SHORT_TOKEN", "short")
    path = tmp_path / "batchkiln.yaml"
    absent = "person: {env: MISSING_TOKEN, scopes: [look]}, ci: {file: '${CREDENTIALS_DIRECTORY}/ci', scopes: [look]}"

    path.write_text(f"http: {{tokens: {{{absent}}}}}\n", "utf-8")
    elsewhere = list(check_http(load_config(path, {})))
    path.write_text(f"http: {{tokens: {{{absent}, bad: {{env: SHORT_TOKEN, scopes: [look]}}}}}}\n", "utf-8")
    with_another = list(check_http(load_config(path, {})))

    assert levels(elsewhere) == [Level.OK, Level.OK]
    assert all("only the dashboard's process needs it" in finding.message for finding in elsewhere)
    assert "http.tokens.person: not found in the environment variable MISSING_TOKEN" in elsewhere[0].message
    assert levels(with_another) == [Level.WARN]


# --- notifiers ---


@pytest.mark.parametrize(
    ("secret", "level", "told"),
    [
        ("whsec_c2VjcmV0", Level.OK, "nothing was sent"),
        ("", Level.WARN, "no secret found in the environment variable HOOK_SECRET"),
        ("whsec_!", Level.WARN, "not base64"),
    ],
)
def test_a_notifier_that_cannot_be_used_is_reported_before_a_run(
    secret: str, level: Level, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run goes on without it and only logs that, so that nobody would be woken (Law 8: its URL is not told)."""
    path = tmp_path / "batchkiln.yaml"
    path.write_text('notify: {ci: {webhook: {url: "https://canary.invalid/h", secret_env: HOOK_SECRET}}}\n', "utf-8")
    monkeypatch.setenv("HOOK_SECRET", secret)

    (finding,) = check_notifiers(load_config(path, {}))

    assert (finding.check, finding.level) == ("notifier ci", level)
    assert told in finding.message
    assert "canary" not in str(finding)


def test_a_service_of_the_environment_is_not_called_the_local_one() -> None:
    """Without a file, the variables choose the service."""
    environ = {"BATCHKILN_BASE_URL": "https://service.example/api/v1", "BATCHKILN_API_KEY": "k"}

    findings, _, profile = check_configuration(None, NOWHERE | environ, None)

    assert profile is not None
    assert not profile.is_embedded
    assert findings[0].message == "no file"
