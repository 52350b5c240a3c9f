"""`docs/python.md`: every example is a whole program, and works as it stands."""

import inspect
import pickle
import re
import subprocess
import sys
import traceback
from pathlib import Path
from typing import Final

import pytest

import batchkiln
from support.programs import SOURCE, environment

MANUAL: Final = (Path(__file__).resolve().parents[2] / "docs" / "python.md").read_text("utf-8")
EXAMPLES: Final = re.findall(r"^```python\n(.*?)^```$", MANUAL, re.DOTALL | re.MULTILINE)
PRINTED: Final = (
    ["red done", "arctic done", "exit status of the same run by command: 0"],
    ["3 new items", "items[1].attempts - `attempts` cannot be `0`"],
    ["40 items for", "rehearsed for", "sound: True"],
    ["item-1 done", "item-2 done", "item-1.png"],
    ["1 failed", "a retry may cost", "attempt_recorded"],
    ["0 left, 1 waiting for a person", "owl-2", "4 of 4 done"],
    ["exit status: 0 (ok)", "item: item-1, state: done", "2 files exported", "script.html"],
)
HURRIED: Final = "profiles: {local: {time_scale: 600}}\n"


def test_there_is_a_check_for_each_example() -> None:
    """A new example needs a line here that says what it prints."""
    assert len(EXAMPLES) == len(PRINTED)


@pytest.mark.long
@pytest.mark.parametrize("number", range(len(PRINTED)))
def test_examples_run(number: int, tmp_path: Path) -> None:
    """A copied example runs to its end on the embedded local service, and nothing is written to standard error."""
    (tmp_path / "batchkiln.yaml").write_text(HURRIED)
    done = subprocess.run(
        [sys.executable, "-c", EXAMPLES[number]],
        cwd=tmp_path,
        env=environment(XDG_CONFIG_HOME=str(tmp_path)),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert done.stderr == ""
    assert done.returncode == 0
    assert [piece for piece in PRINTED[number] if piece not in done.stdout] == []


def test_public_names_are_all_there_and_in_the_manual() -> None:
    """Each name of `__all__` can be imported; what a program calls on a queue, the manual names."""
    assert all(getattr(batchkiln, name) is not None for name in batchkiln.__all__)
    callable_names = {name for name in dir(batchkiln.Queue) if not name.startswith("_")}

    assert {name for name in callable_names - {"close", "place"} if f"`{name}(" not in MANUAL} == set()


def test_a_program_can_name_the_types_of_all_calls() -> None:
    """A strict script annotates what the calls of a queue take and return, and their defaults can be read."""
    calls = dict(inspect.getmembers(batchkiln.SyncQueue, inspect.isfunction))
    signatures = {name: inspect.signature(call) for name, call in calls.items() if name[0] != "_"}
    told = " ".join(
        str(annotation)
        for signature in signatures.values()
        for annotation in (signature.return_annotation, *(each.annotation for each in signature.parameters.values()))
    )
    defaults = [each.default for signature in signatures.values() for each in signature.parameters.values()]

    assert set(re.findall(r"batchkiln\.(?:\w+\.)*(\w+)", told)) - set(batchkiln.__all__) == set()
    assert {"OutputSummary", "RetryReport", "ReviewReport", "ReviewStep", "CancelReport"} <= set(batchkiln.__all__)
    assert [default for default in defaults if inspect.isfunction(default)] == []


def test_public_names_say_where_they_are_from() -> None:
    """A repr, a traceback and `help` name what a program imports; `dir` lists nothing else."""
    ours = [getattr(batchkiln, name) for name in batchkiln.__all__]
    named = {public.__module__ for public in ours if isinstance(public, type) or inspect.isfunction(public)}
    told = "".join(traceback.format_exception_only(batchkiln.InputError("a mistake")))

    assert named == {"batchkiln"}
    assert told == "batchkiln.InputError: a mistake\n"
    assert dir(batchkiln) == sorted(batchkiln.__all__)
    assert pickle.loads(pickle.dumps(batchkiln.Until(is_budget=True))) == batchkiln.Until(is_budget=True)


def test_importing_is_cheap() -> None:
    """`import batchkiln` imports nothing of what it offers: neither pydantic, aiohttp nor SQLite."""
    heavy = ["aiohttp", "pydantic", "sqlite3", "jinja2", "yaml", "structlog", "asyncio", "PIL", "av", "apprise"]
    code = f"import sys, batchkiln; dir(batchkiln); print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", code], env={"PYTHONPATH": SOURCE}, capture_output=True, text=True, check=True
    )

    assert done.stdout == "[]\n"
