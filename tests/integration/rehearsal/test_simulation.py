"""Whole rehearsals: nothing of the user's is touched, limits hold, and what is told is true."""

import io
import signal
import tempfile
from asyncio import Handle
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from msgspec.structs import replace

from batchkiln.api.app_context import AppContext
from batchkiln.api.apply_manifests import Applied
from batchkiln.cli.rehearsal_report import rehearsal_document
from batchkiln.config import Config, load_config
from batchkiln.core.errors import InputError
from batchkiln.core.rate_limits import Limits
from batchkiln.core.states import ItemState
from batchkiln.rehearsal import simulation
from batchkiln.rehearsal.fault_profiles import Level
from batchkiln.rehearsal.incidents import NEVER
from batchkiln.rehearsal.network import End, MemoryNetwork, NetworkConditions
from batchkiln.rehearsal.simulation import RehearsalOptions, RehearsalResult, rehearse
from batchkiln.rehearsal.virtual_loop import VirtualLoop
from simulation.log_silencing import silence
from simulation.secret_scan import Canaries

START = datetime(2026, 3, 1, 9, 30, tzinfo=UTC)
MANIFEST = """
version: 1
job: {job}
defaults: {{model: epsilon-2, mode: text-to-image, parameters: {{resolution: 512x512}}}}
output: {{dir: "{out}"}}
items:
  - {{matrix: {{n: [fox, owl]}}, prompt: "A {{{{ n }}}}", id: "{{{{ n }}}}", repeat: {repeat}}}
"""


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Faults make the program and the service log, which is not what is looked at here."""
    with silence():
        yield


def app(folder: Path, limits: Limits | None = None) -> AppContext:
    config = load_config(None, {})
    local = replace(config.profiles["local"], limits=limits or Limits())
    return AppContext(folder / "queue.db", Config({"local": local}, "local"), working_dir=folder)


def played(
    folder: Path, *, level: Level = "none", seed: int = 3, repeat: int = 5, limits: Limits | None = None
) -> RehearsalResult:
    """Rehearse a manifest whose outputs would go to an absolute folder."""
    manifest = folder / "animals.yaml"
    manifest.write_text(MANIFEST.format(job="animals", out=folder / "out", repeat=repeat))
    options = RehearsalOptions([str(manifest)], level, seed, START, io.BytesIO())
    return rehearse(app(folder, limits), options)


def test_calm_rehearsal_has_the_bill(tmp_path: Path) -> None:
    """Every item is done, each charged once, and the two service_folder agree."""
    outcome = played(tmp_path)

    assert outcome.is_all_done
    assert outcome.is_sound
    assert outcome.charged_credits == outcome.jobs[0].credits.charged == 20
    assert outcome.incidents == ()


def test_nothing_of_the_users_is_touched(tmp_path: Path) -> None:
    """No queue, no output, no service's folder: only the manifest is there afterwards, also with an absolute folder."""
    played(tmp_path)

    assert [path.name for path in tmp_path.iterdir()] == ["animals.yaml"]


def test_no_key_of_the_users_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A profile of a real service is rehearsed without its key: nothing could be sent there."""
    monkeypatch.setenv("BATCHKILN_BASE_URL", "https://example.invalid/api/v1")
    monkeypatch.setenv("BATCHKILN_API_KEY", "canary")
    config = load_config(None, {"BATCHKILN_BASE_URL": "https://example.invalid/api/v1", "BATCHKILN_API_KEY": "canary"})
    monkeypatch.delenv("BATCHKILN_API_KEY")
    manifest = tmp_path / "animals.yaml"
    manifest.write_text(MANIFEST.format(job="animals", out="out", repeat=1))

    outcome = rehearse(
        AppContext(tmp_path / "queue.db", config, working_dir=tmp_path),
        RehearsalOptions([str(manifest)], "none", 1, START, io.BytesIO()),
    )

    assert outcome.profile.name == "env"
    assert outcome.is_all_done


def test_no_secret_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys and signed links that went over the network in memory are in no report (Law 8)."""
    canaries = Canaries()

    def listened_to(weather: NetworkConditions) -> MemoryNetwork:
        network = MemoryNetwork(weather)
        network.on_bytes.append(canaries.see)
        return network

    monkeypatch.setattr(simulation, "MemoryNetwork", listened_to)
    outcome = played(tmp_path, level="rough", repeat=10)

    told = f"{rehearsal_document(outcome, level='rough', seed=3)} {outcome}".encode()
    assert len(canaries.secrets) > 1
    assert not canaries.told_by(told)


@pytest.mark.long
def test_rough_rehearsal_charges_nothing_twice(tmp_path: Path) -> None:
    """Lost replies, cut connections, failures: whatever happens, every trouble has an end and every credit its item."""
    outcome = played(tmp_path, level="rough", seed=1, repeat=60)

    assert outcome.charged_twice == 0
    assert outcome.is_sound
    assert sum(trouble.times for trouble in outcome.incidents) > 20
    assert [trouble for trouble in outcome.incidents if NEVER in trouble.endings] == []
    assert any("replayed" in trouble.endings for trouble in outcome.incidents)


def test_limits_are_those_of_the_profile(tmp_path: Path) -> None:
    """With four creates a day, ten items take three days, and the days are the service's own."""
    outcome = played(tmp_path, limits=Limits(creates_per_day=4))

    assert outcome.is_all_done
    assert timedelta(days=1.5) < outcome.ends_at - outcome.starts_at < timedelta(days=2)
    assert [day.used_credits for day in outcome.report.days.entries] == [8, 8, 4]


@pytest.mark.long
def test_same_seed_gives_the_same_rehearsal(tmp_path: Path) -> None:
    """What was seen can be looked at again; another seed gives other troubles."""
    first, again, other = (played(tmp_path, level="rough", seed=seed, repeat=20) for seed in (5, 5, 6))

    assert first.incidents == again.incidents
    assert first.ends_at == again.ends_at
    assert first.incidents != other.incidents


def test_item_over_its_cap_is_reported(tmp_path: Path) -> None:
    """What would be rejected later is seen now, and costs nothing."""
    manifest = tmp_path / "dear.yaml"
    text = MANIFEST.format(job="dear", out="out", repeat=1).replace("defaults: {", "defaults: {max_cost_credits: 1, ")
    manifest.write_text(text)

    outcome = rehearse(app(tmp_path), RehearsalOptions([str(manifest)], "none", 1, START, io.BytesIO()))

    assert outcome.jobs[0].items[ItemState.REJECTED] == 2
    assert not outcome.is_all_done
    assert outcome.charged_credits == 0


def test_manifests_for_two_services_are_refused(tmp_path: Path) -> None:
    """One service stands on the stage: which one is to be said."""
    given = app(tmp_path)
    given.config.profiles["studio"] = replace(given.config.profiles["local"], name="studio")
    for name in ("local", "studio"):
        text = MANIFEST.format(job=name, out="out", repeat=1)
        (tmp_path / f"{name}.yaml").write_text(f"profile: {name}\n{text}")
    manifests = [str(tmp_path / "local.yaml"), str(tmp_path / "studio.yaml")]

    with pytest.raises(InputError, match="one at a time"):
        rehearse(given, RehearsalOptions(manifests, "none", 1, START, io.BytesIO()))


def test_ten_days_of_waiting_are_played(tmp_path: Path) -> None:
    """Nothing waits for real: the loop has no way to (tests/simulation/test_virtual_loop.py)."""
    outcome = played(tmp_path, limits=Limits(creates_per_day=1))

    assert outcome.ends_at - outcome.starts_at > timedelta(days=8)


def before_a_step(patch: pytest.MonkeyPatch, interrupt: Callable[[], None]) -> None:
    """The loop has taken it from what is ready: raised here, its task would never go on."""

    def stepped(loop: VirtualLoop, handle: Handle) -> None:
        interrupt()
        step(loop, handle)

    step = VirtualLoop._step
    patch.setattr(VirtualLoop, "_step", stepped)


def in_a_finalizer(patch: pytest.MonkeyPatch, interrupt: Callable[[], None]) -> None:
    """What is raised there is shown, and lost."""

    class Finalized:
        def __del__(self) -> None:
            interrupt()

    def written(end: End, content: bytes) -> None:
        Finalized()
        write(end, content)

    write = End.write
    patch.setattr(End, "write", written)


@pytest.fixture
def heeds_interrupts() -> Iterator[None]:
    """A shell has what it starts in the background ignore interrupts; so may tests be started."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("heeds_interrupts")
@pytest.mark.parametrize("times", [50, 80])
@pytest.mark.parametrize("place", [before_a_step, in_a_finalizer])
def test_a_signal_is_taken_between_two_steps(
    place: Callable[[pytest.MonkeyPatch, Callable[[], None]], None],
    times: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Wherever it comes, it is not lost, nothing is left to complain, and the folder is gone."""
    temporary, calls, faults = tmp_path / "tmp", iter(range(1, times + 1)), list[object]()
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    monkeypatch.setattr(VirtualLoop, "call_exception_handler", lambda _, context: faults.append(context))
    place(monkeypatch, lambda: signal.raise_signal(signal.SIGINT) if next(calls, 0) == times else None)

    with pytest.raises(KeyboardInterrupt):
        played(tmp_path, level="rough", repeat=20)

    assert faults == []
    assert list(temporary.glob("batchkiln-rehearsal-*")) == []


@pytest.mark.usefixtures("heeds_interrupts")
def test_a_signal_is_taken_at_once_while_manifests_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A million rows are read in one step: nobody waits for its end."""

    async def reading(*_: object, **__: object) -> list[Applied]:
        signal.raise_signal(signal.SIGINT)
        raise AssertionError("it read on")

    monkeypatch.setattr(simulation, "apply_manifests", reading)

    with pytest.raises(KeyboardInterrupt):
        played(tmp_path)


CHOICES = """
version: 1
job: owls
defaults: {{model: epsilon-2, mode: text-to-image, parameters: {{resolution: 512x512}}}}
output: {{dir: "{out}"}}
items:
  - {{id: owl, prompt: An owl, variants: 4, choose: 2}}
  - {{id: fox, prompt: A fox, review: true}}
  - {{id: ink, prompt: The owl in ink, mode: image-to-image, inputs: [{{item: owl, choice: 2}}]}}
  - {{id: snow, prompt: The fox in snow, mode: image-to-image, inputs: [{{item: fox}}]}}
"""


def reviewed(folder: Path, kept: float) -> RehearsalResult:
    """Rehearse a manifest with a group and a review."""
    manifest = folder / "owls.yaml"
    manifest.write_text(CHOICES.format(out=folder / "out"))
    return rehearse(app(folder), RehearsalOptions([str(manifest)], "none", 5, START, io.BytesIO(), kept=kept))


def test_rehearsal_keeps_what_is_reviewed_and_makes_the_rest_of_a_chain(tmp_path: Path) -> None:
    """Without a share everything is kept, as far as it is chosen."""
    outcome = reviewed(tmp_path, 1.0)

    assert outcome.is_all_done
    assert outcome.is_sound
    assert (outcome.reviews.kept, outcome.reviews.dropped, outcome.reviews.redone) == (3, 2, 0)
    assert outcome.charged_credits == 14


def test_rehearsal_pays_for_what_is_made_again(tmp_path: Path) -> None:
    """With a smaller share, what is missing is made again, and the bill holds it."""
    outcome = reviewed(tmp_path, 0.3)

    assert outcome.is_sound
    assert outcome.reviews.redone
    assert outcome.charged_credits == outcome.jobs[0].credits.charged > 14
    assert outcome.is_all_done == (outcome.jobs[0].items[ItemState.QUEUED] == 0)


def test_rehearsal_without_a_good_result_ends(tmp_path: Path) -> None:
    """Each item is made again three times at most; what waits for it is told as not done."""
    outcome = reviewed(tmp_path, 0.0)

    assert outcome.is_sound
    assert (outcome.reviews.kept, outcome.reviews.redone) == (0, 9)
    assert outcome.jobs[0].items[ItemState.QUEUED] == 2
    assert rehearsal_document(outcome, level="none", seed=5)["reviews"]["redone"] == 9
