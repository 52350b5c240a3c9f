"""A command under whatever process it is given: other streams, another locale, an optimizing Python."""

import json
import os
import subprocess
import sys

import pytest

from integration.cli.workspace import TIMEOUT_SECONDS, Workspace
from support.programs import environment

ASCII = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}


def shell(workspace: Workspace, script: str, **more: str) -> subprocess.CompletedProcess[str]:
    """Run a line of a shell, in which `$RUN` is the program; the exit status is the program's."""
    interpreter = more.pop("interpreter", sys.executable)
    surroundings = environment(XDG_CONFIG_HOME=str(workspace.folder), RUN=f"{interpreter} -m batchkiln") | more
    command = ["bash", "-o", "pipefail", "-c", script]
    return subprocess.run(
        command,
        cwd=workspace.folder,
        env=surroundings,
        capture_output=True,
        timeout=TIMEOUT_SECONDS,
        text=True,
        check=False,
    )


def done(workspace: Workspace, job: str = "foxes") -> int:
    found: int = workspace.call("status", job, "--json").document["items"]["done"]
    return found


@pytest.mark.long
def test_an_optimizing_python_runs_a_job(workspace: Workspace) -> None:
    """`python -O` leaves out assertions; nothing of a run hangs on one (Law 1)."""
    result = shell(workspace, f"$RUN run -q {workspace.manifest(items=3)}", interpreter=f"{sys.executable} -O")

    assert result.returncode == 0, result.stderr
    assert done(workspace) == 3


@pytest.mark.parametrize("closed", [">&-", "<&- >&- 2>&-"])
def test_closed_streams_end_no_run(workspace: Workspace, closed: str) -> None:
    """A service manager may close the standard streams: all works, and no file gets their place."""
    result = shell(workspace, f"$RUN run {workspace.manifest()} {closed}")

    assert result.returncode == 0, result.stderr
    assert done(workspace) == 2


@pytest.mark.parametrize("closed", ["<&-", "2>&-"])
def test_closed_streams_end_no_command_that_only_looks(done: Workspace, closed: str) -> None:
    """`status` says what it has to say."""
    result = shell(done, f"$RUN status {closed}")

    assert result.returncode == 0, result.stderr
    assert "foxes" in result.stdout


@pytest.mark.long
def test_a_run_outlives_whoever_reads_it(workspace: Workspace) -> None:
    """`run --json | head -1`: the reader is gone after a line, and the run ends as it would have."""
    result = shell(workspace, f"$RUN run --json {workspace.manifest(items=4)} | head -1")

    assert result.returncode == 0, result.stderr
    assert len(result.stdout.splitlines()) == 1
    assert done(workspace) == 4


def test_a_run_outlives_whoever_reads_its_progress(workspace: Workspace) -> None:
    """`run 2>&1 | true`: standard error may go away as well."""
    result = shell(workspace, f"$RUN run -vv {workspace.manifest()} 2>&1 | true")

    assert result.returncode == 0
    assert done(workspace) == 2


@pytest.mark.parametrize("command", ["items foxes", "items foxes --json", "schema"])
def test_a_reader_that_has_seen_enough_is_no_error(done: Workspace, command: str) -> None:
    """`items | head`: a normal end, without a word."""
    result = shell(done, f"$RUN {command} | true")

    assert result.returncode == 0
    assert result.stderr == ""


def test_a_result_that_cannot_be_written_is_reported(done: Workspace) -> None:
    """A full disk below standard output: a sentence and 1, and no traceback."""
    result = shell(done, "$RUN items foxes > /dev/full")

    assert result.returncode == 1
    assert result.stderr == "batchkiln: standard output cannot be written: No space left on device\n"


def test_without_names_beyond_ascii_a_run_is_refused_before_it_pays(workspace: Workspace) -> None:
    """A name that the locale cannot spell would end the run after its item was paid."""
    manifest = workspace.manifest()
    text = (workspace.folder / manifest).read_text("utf-8").replace('"fox-{{ n }}"', '"Füchsin-{{ n }}"')
    (workspace.folder / manifest).write_text(text, "utf-8")

    refused = shell(workspace, f"$RUN run {manifest}", **ASCII)

    assert refused.returncode == 2
    assert "PYTHONUTF8=1" in refused.stderr
    assert "Nothing was sent" in refused.stderr
    assert workspace.call("status", "foxes", "--json").document["credits"]["charged"] == 0
    assert workspace.call("run", manifest).exit == 0


@pytest.mark.long
def test_a_locale_of_ascii_reads_and_prints_everything(workspace: Workspace) -> None:
    """What cannot be spelled is escaped for people, and JSON stays JSON."""
    manifest = workspace.manifest()
    text = (workspace.folder / manifest).read_text("utf-8").replace('"fox {{ n }}"', '"Füchse 🦊 {{ n }}"')
    (workspace.folder / manifest).write_text(text, "utf-8")
    assert workspace.call("enqueue", manifest).exit == 0

    shown = shell(workspace, "$RUN items foxes; $RUN show foxes fox-1", **ASCII)
    lines = shell(workspace, "$RUN items foxes --json", **ASCII).stdout.splitlines()
    doctor = shell(workspace, "$RUN doctor", **ASCII)

    assert shown.returncode == 0, shown.stderr
    assert "F\\xfcchse" in shown.stdout
    assert json.loads(lines[0])["prompt"] == "Füchse 🦊 1"
    assert "PYTHONUTF8=1" in doctor.stdout
    assert os.environ.get("PYTHONUTF8") != "0"
