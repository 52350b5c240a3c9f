"""Plans, rehearsals, exports and reports from Python; the same without asyncio; and what a notebook shows."""

import asyncio
import inspect
import pydoc
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from io import BytesIO
from pathlib import Path
from typing import Any, Final, cast, get_args

import msgspec
import pytest
import structlog
from rich.pretty import pretty_repr
from structlog.testing import capture_logs

import batchkiln
from batchkiln import ItemState
from batchkiln.api.item_selection import StateNames
from batchkiln.api.run import RunOptions
from batchkiln.config import Profile
from batchkiln.core.catalog_checks import Catalogue
from batchkiln.planning.catalogues import Catalogues
from batchkiln.store import ApplyOptions
from support.programs import environment

CONFIG: Final = {"profiles": {"local": {"time_scale": 600}}}
SMALL: Final[batchkiln.Defaults] = {
    "model": "epsilon-2",
    "mode": "text-to-image",
    "parameters": {"resolution": "512x512"},
}
FOXES: Final = {"version": 1, "job": "foxes", "defaults": SMALL, "items": ["A red fox", "An arctic fox"]}


def opened(folder: Path) -> batchkiln.SyncQueue:
    return batchkiln.open_queue_sync(folder / "queue.db", config=CONFIG, working_dir=folder)


def unreachable(monkeypatch: pytest.MonkeyPatch) -> dict[str, object]:
    """Return the configuration of a service that nobody runs."""
    monkeypatch.setenv("STUDIO_KEY", "k" * 20)
    account = {"name": "main", "keys": [{"env": "STUDIO_KEY"}]}
    studio = {"base_url": "http://127.0.0.1:9/api/v1", "accounts": [account]}
    return {"default_profile": "studio", "profiles": {"studio": studio}}


def test_a_plan_and_a_rehearsal_leave_the_queue_as_it_is(tmp_path: Path) -> None:
    """Both tell the price that a run then charges, and enqueue nothing."""
    with opened(tmp_path) as queue:
        plan = queue.plan(FOXES)
        rehearsal = queue.rehearse(FOXES)
        jobs_before = queue.overview().jobs
        queue.enqueue(FOXES)
        ending = queue.run("foxes")

    assert jobs_before == ()
    assert plan.jobs[0].to_send == 2
    assert rehearsal.is_sound
    assert ending.views[0].summary.credits.charged == plan.credits == rehearsal.charged_credits > 0


def test_a_run_of_a_few_leaves_the_others_queued(tmp_path: Path) -> None:
    """A wrong selection is an error, and nothing is sent."""
    many = FOXES | {"items": [{"id": f"fox-{number}", "prompt": f"Fox {number}"} for number in range(4)]}
    with opened(tmp_path) as queue:
        queue.enqueue(many)
        with pytest.raises(batchkiln.InputError):
            queue.run("foxes", limit=0)
        first = queue.run("foxes", limit=1)
        chosen = queue.run("foxes", only=["fox-2"])
        done = {item.name for item in queue.items("foxes") if item.state == "done"}
        drawn = queue.run("foxes", sample=4, seed=7)

    assert done == {"fox-0", "fox-2"}
    assert [ending.views[0].summary.items[ItemState.DONE] for ending in (first, chosen, drawn)] == [1, 2, 4]


def test_a_run_with_nothing_to_do_does_not_look_like_success(tmp_path: Path) -> None:
    """Its status covers the jobs on which it worked; the status of a named job covers that job."""
    with opened(tmp_path) as queue:
        queue.enqueue(FOXES | {"items": ["A red fox", {"prompt": "A fox [fail]", "attempts": 1}]})
        worked, again, named = queue.run(), queue.run(), queue.run("foxes")
        queue.enqueue(FOXES | {"job": "owls"})
        queue.pause("owls")
        paused = queue.run()

    assert [ending.exit_status for ending in (worked, again, named)] == [3, 0, 3]
    assert repr(worked) == "<RunResult exit status: 3 (items not done), foxes: 1 of 2 done, 2 credits>"
    assert repr(again) == "<RunResult exit status: 0 (nothing to do)>"
    assert repr(paused) == "<RunResult exit status: 0 (nothing to do), paused: owls with 2 queued items>"


def test_a_mistake_in_a_mapping_is_told_by_a_plan(tmp_path: Path) -> None:
    """A mapping without items names what is missing; a wrong field is reported as by `enqueue`."""
    with opened(tmp_path) as queue:
        with pytest.raises(batchkiln.InputError, match="`items` is missing"):
            queue.plan({"version": 1, "job": "foxes"})
        with pytest.raises(batchkiln.InputError, match="unknown field `promt`"):
            queue.plan(FOXES | {"items": [{"promt": "A fox"}]})


def test_enqueueing_checks_the_catalogue(tmp_path: Path) -> None:
    """A model that the service does not list is a mistake by each way to enqueue, as by the command."""
    wrong: batchkiln.Defaults = {**SMALL, "model": "epsilon2"}
    text = f"version: 1\njob: foxes\ndefaults: {wrong}\nitems: [A fox, An owl]\n"
    (tmp_path / "foxes.yaml").write_text(text)

    with opened(tmp_path) as queue:
        ways: tuple[Callable[[], object], ...] = (
            lambda: queue.enqueue(FOXES | {"defaults": wrong}),
            lambda: queue.enqueue(tmp_path / "foxes.yaml"),
            lambda: queue.enqueue_text(text),
            lambda: queue.enqueue_items(["A fox", {"prompt": "An owl", "model": "nano2"}], job="foxes", defaults=wrong),
        )
        for way in ways:
            with pytest.raises(batchkiln.InputError, match="did you mean `epsilon-2`"):
                way()
        jobs = queue.overview().jobs
        unchecked = queue.enqueue(FOXES | {"defaults": wrong}, no_catalogue=True)

    assert jobs == ()
    assert unchecked.report.new == 2
    assert unchecked.report.warnings == ()


def test_a_plan_without_prices_does_not_show_a_price_of_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The service cannot be reached: the most is known by bounds, the price is not."""
    with batchkiln.open_queue_sync(tmp_path / "queue.db", config=unreachable(monkeypatch)) as queue:
        plan = queue.plan(FOXES)

    assert plan.unpriced == 2
    assert "credits: not known" in repr(plan)
    assert "epsilon-2: 2 items, price not known" in repr(plan)
    assert "items without a known price: 2" in repr(plan.jobs[0])


def test_an_unreadable_catalogue_stops_no_enqueue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The result warns of it each time, though the service is asked once."""
    asked: list[str] = []
    read = Catalogues.of

    async def counted(self: Catalogues, profile: Profile, account: str) -> Catalogue | None:
        asked.append(account)
        return await read(self, profile, account)

    monkeypatch.setattr(Catalogues, "of", counted)
    config = unreachable(monkeypatch)
    with batchkiln.open_queue_sync(tmp_path / "queue.db", config=config, working_dir=tmp_path) as queue:
        applied = [queue.enqueue_items(["A fox"], job=job, defaults=SMALL) for job in ("a", "b")]

    assert [each.report.new for each in applied] == [1, 1]
    for each in applied:
        (warning,) = each.report.warnings
        assert "were not checked against the service's catalogue, which could not be read" in warning.reason
    assert asked == ["main"]


def test_wrong_words_are_answered_with_the_right_ones(tmp_path: Path) -> None:
    """A state, a format and a kind of link are texts; an unknown one names those there are."""
    assert set(get_args(StateNames)) == {*ItemState}
    with opened(tmp_path) as queue:
        queue.enqueue(FOXES)
        assert len(list(queue.items("foxes", state="queued"))) == 2
        with pytest.raises(batchkiln.InputError, match=r"state must be one of queued, .*, not 'finished'"):
            list(queue.items("foxes", state="finished"))  # type: ignore[arg-type]
        with pytest.raises(batchkiln.InputError, match=r"format must be one of jsonl, csv, .*, not 'foo'; nothing"):
            queue.export("foxes", format="foo")  # type: ignore[arg-type]
        with pytest.raises(batchkiln.InputError, match="link must be one of hard, sym, copy, not 'foo'; nothing"):
            queue.export("foxes", link="foo")  # type: ignore[arg-type]


async def test_canceling_ends_a_rehearsal(tmp_path: Path) -> None:
    """The thread of a canceled rehearsal does not outlive the call (a run of many days would take minutes)."""
    many = FOXES | {"items": [{"id": f"fox-{number}", "prompt": f"Fox {number}"} for number in range(3000)]}
    async with batchkiln.open_queue(tmp_path / "queue.db", config=CONFIG, working_dir=tmp_path) as queue:
        rehearsal = asyncio.create_task(queue.rehearse(many))
        await asyncio.to_thread(str)  # the rehearsal's own thread has begun before this one
        rehearsal.cancel()
        with pytest.raises(asyncio.CancelledError):
            await rehearsal

    assert rehearsal.cancelled()


def test_an_export_and_a_report_are_below_the_working_folder(tmp_path: Path) -> None:
    """Relative places are those of the program's folder; the result names them and counts the files."""
    with opened(tmp_path) as queue:
        queue.enqueue(FOXES)
        queue.run()
        exported = queue.export("foxes", "dataset", format="imagefolder")
        nothing_kept = queue.export("foxes", "kept", verdict="kept")
        written = queue.report("foxes")

    assert exported.files == 2
    assert (tmp_path / "dataset" / "train" / "metadata.jsonl").is_file()
    assert nothing_kept.files == 0
    assert [page.path for page in written.files] == [tmp_path / "foxes-report.html"]


def test_wrong_options_of_an_export_write_nothing(tmp_path: Path) -> None:
    """Shares that are not 1 in all, and formats that do not exist, are input errors."""
    with opened(tmp_path) as queue:
        with pytest.raises(batchkiln.InputError, match=r"add up to 0\.5"):
            queue.export("foxes", splits={"train": 0.5})
        with pytest.raises(batchkiln.InputError, match="nothing was written"):
            queue.export("foxes", format="xml")  # type: ignore[arg-type]

    assert not (tmp_path / "exports").exists()


def test_a_held_item_is_resolved_by_a_word(tmp_path: Path) -> None:
    """`resolve` takes the words of the command, refuses others, and refuses an item that nothing holds."""
    with opened(tmp_path) as queue:
        queue.enqueue(FOXES)
        fox = queue.show("foxes", "item-1")
        with pytest.raises(batchkiln.InputError, match="a decision is one of not-created, failed"):
            queue.resolve(fox, "created")
        with pytest.raises(batchkiln.InputError, match="generation_id"):
            queue.resolve(fox, "generation")
        with pytest.raises(batchkiln.InputError):
            queue.resolve(fox, "failed")

        assert queue.show("foxes", "item-1").item.state is ItemState.QUEUED


async def test_the_calls_without_asyncio_work_beside_a_running_loop(tmp_path: Path) -> None:
    """A notebook's loop runs while its cells do: the queue's own loop is in another thread."""
    with opened(tmp_path) as queue:
        queue.enqueue(FOXES)
        queue.start()
        names = sorted(item.name for item in queue.results("foxes"))
        ending = queue.join()

    assert names == ["item-1", "item-2"]
    assert ending.exit_status is batchkiln.ExitStatus.OK


def test_each_call_of_the_queue_is_there_without_asyncio() -> None:
    """What the manual shows of a queue, it shows of both: the same calls with the same arguments."""
    manual = (Path(__file__).parents[3] / "docs" / "python.md").read_text("utf-8")
    calls = [
        name
        for name, call in inspect.getmembers(batchkiln.Queue, inspect.isfunction)
        if not name.startswith("_") and f"`{name}(" in manual and name != "open_queue"
    ]

    assert "rehearse" in calls
    assert [name for name in calls if not hasattr(batchkiln.SyncQueue, name)] == []
    for name in calls:
        asked = inspect.signature(getattr(batchkiln.Queue, name))
        offered = inspect.signature(getattr(batchkiln.SyncQueue, name))
        assert list(asked.parameters.values()) == list(offered.parameters.values())
        assert ("Async" not in str(asked)) == (asked.return_annotation == offered.return_annotation)
        assert "Async" not in str(offered)


def test_help_names_the_fields_of_items_and_an_iterator(tmp_path: Path) -> None:
    """What `help` and an editor show of a call is how it is called; a field that may be left out is None."""
    told = str(inspect.signature(batchkiln.SyncQueue.enqueue_items))
    with opened(tmp_path) as queue:
        queue.enqueue_items(["A red fox"], job="foxes", description=None, budget=None, defaults=SMALL, output=None)
        found = queue.items("foxes")

    assert "*, job: str, description: str | None = None" in told
    assert "JobFields" not in told
    assert "-> collections.abc.Iterator[batchkiln.ItemSummary]" in str(inspect.signature(batchkiln.SyncQueue.items))
    assert isinstance(found, Iterator)


def test_docstrings_name_only_what_can_be_imported() -> None:
    """An exception or a law that a program cannot look up says nothing to its author."""
    calls = [each for name, each in inspect.getmembers(batchkiln.Queue, inspect.isfunction) if name[0] != "_"]
    told = " ".join(each.__doc__ or "" for each in calls)

    raised = set(re.findall(r"Raise `(\w+)`|and `(\w+)` (?:for|if)", told))
    assert {name for pair in raised for name in pair if name} - set(batchkiln.__all__) == set()
    assert "Law " not in told


def test_a_closed_queue_says_so(tmp_path: Path) -> None:
    """A call after `close` is an error with a remedy, and closing again does nothing."""
    queue = opened(tmp_path)
    queue.close()
    queue.close()

    with pytest.raises(batchkiln.InputError, match="open it again"):
        queue.overview()
    assert repr(queue) == f"<SyncQueue {tmp_path / 'queue.db'}, closed>"


def test_the_programs_own_error_leaves_a_with_statement(tmp_path: Path) -> None:
    """The queue is closed, and the error that ended the block is raised."""
    with pytest.raises(ZeroDivisionError), opened(tmp_path) as queue:
        raise ZeroDivisionError
    with pytest.raises(batchkiln.InputError, match="closed"):
        queue.overview()


ENDED_FIRST: Final = (  # what the end of a script does before anything else: no thread begins new work
    "import concurrent.futures.thread, time\n"
    "concurrent.futures.thread._python_exit()\n"
    "while not queue._opened._task.done():\n"
    "    time.sleep(0.01)\n"
)


@pytest.mark.parametrize("then", ["", ENDED_FIRST], ids=["the run still goes on", "the run has failed first"])
def test_a_script_that_forgets_to_close_ends_and_is_told(tmp_path: Path, then: str) -> None:
    """The threads of an open queue do not keep the interpreter alive; that a run was cut off is not silent."""
    many = FOXES | {"items": [f"Fox {number}" for number in range(100)]}  # more than the script has time for
    code = (
        "import batchkiln\n"
        "queue = batchkiln.open_queue_sync('queue.db')\n"
        f"queue.enqueue({many!r})\n"
        "queue.start()\n"
        "print(len(queue.overview().jobs))\n"
    ) + then
    done = subprocess.run(
        [sys.executable, "-W", "default::ResourceWarning", "-c", code],
        cwd=tmp_path,
        env=environment(XDG_CONFIG_HOME=str(tmp_path)),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert (done.returncode, done.stdout) == (0, "1\n")
    assert "run_cut_off" in done.stderr
    assert "call `join` before the script ends; the next run continues them" in done.stderr
    assert "ResourceWarning: " in done.stderr
    assert "the queue was not closed: use `with`, or call `close`" in done.stderr
    assert re.search(r"Its run was cut off with \d+ items left, which the next run continues", done.stderr)


def test_a_run_without_work_left_is_not_called_cut_off(tmp_path: Path, recwarn: pytest.WarningsRecorder) -> None:
    """A script that ends while its endless run only waits has lost nothing; the queue was not closed, which is told."""
    queue = opened(tmp_path)
    queue.enqueue(FOXES)
    queue.run()
    queue.start(forever=True)

    with capture_logs() as logged:
        queue._warn_of_open_queue()
    queue.close()

    assert [line for line in logged if line["event"] == "run_cut_off"] == []
    assert str(recwarn.pop(ResourceWarning).message).endswith("the queue was not closed: use `with`, or call `close`")


def test_a_forgotten_async_with_is_told() -> None:
    """The error of a beginner names both ways to open a queue."""
    with pytest.raises(AttributeError, match=r"async with batchkiln\.open_queue.*open_queue_sync"):
        batchkiln.open_queue("queue.db", config=CONFIG).enqueue  # type: ignore[attr-defined]  # noqa: B018


async def test_a_queue_stays_open_from_cell_to_cell(tmp_path: Path) -> None:
    """The manual's way for a notebook with `await`; the last cell ends a run and closes the queue."""
    cells = AsyncExitStack()
    queue = await cells.enter_async_context(
        batchkiln.open_queue(tmp_path / "queue.db", config=CONFIG, working_dir=tmp_path)
    )
    await queue.enqueue(FOXES)
    await queue.start(forever=True)
    await cells.aclose()

    assert repr(queue).endswith(", closed>")


async def test_another_way_to_open_is_answered_with_the_right_ones() -> None:
    """`await` and `with` in place of `async with` name both ways, too; so does what a shell shows."""
    opening = batchkiln.open_queue("queue.db", config=CONFIG)

    with pytest.raises(TypeError, match=r"not awaited: .*async with batchkiln\.open_queue.*open_queue_sync"):
        await opening  # type: ignore[misc]
    with pytest.raises(TypeError, match=r"async with batchkiln\.open_queue.*open_queue_sync"), opening:  # type: ignore[attr-defined]
        pass
    assert repr(opening) == "<OpeningQueue queue.db, opened by `async with`>"


def test_a_preview_is_not_shown_as_a_deed(tmp_path: Path) -> None:
    """What would be done is told from what was done; the figures are the same."""
    with opened(tmp_path) as queue:
        queue.enqueue(FOXES | {"items": ["A red fox", {"prompt": "A fox [fail]", "attempts": 1}]})
        queue.run()
        redo, retry = queue.preview_redo("foxes", ["item-1"]), queue.preview_retry("foxes")
        redone, retried = queue.redo("foxes", ["item-1"]), queue.retry("foxes")

    assert repr(redo).startswith("<RedoReport would be made again: 1, may cost in credits: 2")
    assert repr(redone).startswith("<RedoReport made again: 1, may cost in credits: 2")
    assert repr(retry).startswith("<RetryReport would be queued again: 1 failed, may cost in credits: 2")
    assert repr(retried).startswith("<RetryReport queued again: 1 failed, may cost in credits: 2")


def test_results_are_short_in_a_shell_and_tables_in_a_notebook(tmp_path: Path) -> None:
    """Each result fits on a few lines; a notebook's table escapes what a manifest says."""
    with opened(tmp_path) as queue:
        plan = queue.plan(FOXES)
        applied = queue.enqueue(FOXES | {"items": ["A <b>red</b> fox", "An owl " * 200]})
        shown = [
            plan,
            plan.jobs[0],
            queue.rehearse(FOXES),
            applied,
            applied.report,
            queue.run(),
            queue.preview_retry("foxes"),
            queue.preview_redo("foxes", ["item-1"]),
            queue.status("foxes"),
            queue.overview(),
            *queue.items("foxes"),
            queue.show("foxes", "item-1"),
            queue.show("foxes", "item-1").events[0],
            queue.show("foxes", "item-1").item.outputs[0],
            queue.status("foxes").summary,
            queue.preview_redo("foxes", ["item-1"]).effects,
            queue.fetch("foxes"),
            next(iter(queue.events(after=0))),
            queue.export("foxes", "dataset"),
            queue.report("foxes"),
        ]

    assert [repr(each) for each in shown if not 20 < len(repr(each)) < 700] == []
    assert [pretty_repr(each) for each in shown if len(pretty_repr(each)) > 900] == []
    assert [each for each in shown if not isinstance(each, msgspec.Struct)] == []
    pages = [each._repr_html_() for each in shown]
    assert all(page.startswith("<table><tr>") for page in pages)
    assert "&lt;b&gt;red" in "".join(pages)
    assert "<b>" not in "".join(pages)


def test_python_helps_with_every_public_name() -> None:
    """A struct looks up what its types name; what only a type checker imports is not there."""
    values = {name: getattr(batchkiln, name) for name in batchkiln.__all__}

    pages = {name: pydoc.render_doc(value) for name, value in values.items() if callable(value)}

    assert {"Overview", "JobView", "AskedAgain", "open_queue"} <= pages.keys()


def test_a_warning_is_shown_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its end says what to do."""
    with batchkiln.open_queue_sync(tmp_path / "q.db", config=unreachable(monkeypatch), working_dir=tmp_path) as queue:
        applied = queue.enqueue(FOXES)

    (warning,) = applied.report.warnings
    assert len(warning.reason) > 200
    assert f"warnings: {warning.reason}" in repr(applied)


def test_a_service_that_never_answers_ends_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The argument bounds the wait; the result has the status of the command and names the account."""
    config = unreachable(monkeypatch)
    with batchkiln.open_queue_sync(tmp_path / "queue.db", config=config, working_dir=tmp_path) as queue:
        queue.enqueue(FOXES, no_catalogue=True)
        with pytest.raises(batchkiln.InputError, match="contact_timeout must be a number of seconds"):
            queue.run(contact_timeout=-1)
        with capture_logs() as lines:
            ending = queue.run(contact_timeout=0.01)

    assert (int(ending.exit_status), ending.left) == (4, 2)
    assert "cannot work: studio/main: unreachable" in repr(ending)
    assert re.search(r"until.{1,5}\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC", repr(lines))


def test_a_run_waits_a_minute_for_the_first_answer_unless_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the commands do; an endless run waits as long as it takes."""
    asked: list[float | None] = []

    @asynccontextmanager
    async def noted(_: object, options: RunOptions, *, command: str) -> AsyncIterator[None]:
        asked.append(options.contact_seconds)
        raise batchkiln.InputError(command)
        yield

    monkeypatch.setattr(batchkiln.Queue, "_driving", noted)
    with opened(tmp_path) as queue:
        for arguments in ({}, {"forever": True}, {"contact_timeout": 0}, {"contact_timeout": 5, "forever": True}):
            with pytest.raises(batchkiln.InputError, match="python"):
                queue.start(**cast("Any", arguments))

    assert asked == [60, None, None, 5]


BIRDS: Final[batchkiln.Manifest] = {
    "version": 1,
    "job": "birds",
    "defaults": SMALL,
    "items": [
        {"id": "owl", "prompt": "An owl", "variants": 3, "choose": 1},
        {"id": "owl-turned", "prompt": "It turns", "mode": "image-to-image", "inputs": [{"item": "owl"}]},
    ],
}


def test_a_choice_is_shown_with_its_calls(tmp_path: Path) -> None:
    """What waits for a choice is not left to a run: it is stuck, and each result names the call that shows it."""
    with opened(tmp_path) as queue:
        queue.enqueue(BIRDS)
        ending = queue.run()
        view, waiting, step = queue.status("birds"), queue.show("birds", "owl-turned"), queue.review_step("birds")
        assert step is not None
        kept = queue.keep("birds", ["owl-2"])
        after = queue.run()

    told = "1 group waits for a choice: `queue.review_step('birds')`, then `queue.keep('birds', [ID])`"
    assert (ending.left, ending.stuck, int(ending.exit_status)) == (0, 1, 3)
    assert told in repr(ending)
    assert told in repr(view)
    assert "waits for: a choice in the group owl: `queue.review_step('birds')`" in repr(waiting)
    for shown in (ending, view, waiting, step):
        assert "queue.keep(&#x27;birds&#x27;" in shown._repr_html_()
    assert "choose: 1 of 3, 0 kept" in repr(step)
    assert repr(kept) == "<ReviewReport changed: owl-2, made ready: 1>"
    assert (after.left, after.stuck, int(after.exit_status)) == (0, 0, 0)
    assert "waits" not in repr(after)


# --- several ids ---

SEVERAL: Final = re.compile(r"\b(Sequence|Collection|Iterable|list|tuple|set)\[")
VALUES: Final = {"action": "retry", "decided": "keep", "options": ApplyOptions(), "stdin": BytesIO()}


def lists_of(kind: type) -> list[tuple[str, str]]:
    """Return the methods of a queue with each parameter that takes several texts."""
    return [
        (name, parameter.name)
        for name, call in inspect.getmembers(kind, inspect.isfunction)
        if not name.startswith("_")
        for parameter in inspect.signature(call).parameters.values()
        if SEVERAL.search(inspect.formatannotation(parameter.annotation))
        and parameter.name not in {"only", "accounts", "notify"}  # a pattern, and fields of a manifest
    ]


def arguments_with(call: Callable[..., object], parameter: str, value: object) -> dict[str, object]:
    """Return the required arguments of a method, and one more."""
    needed = {
        each.name: VALUES.get(each.name, "num")
        for each in inspect.signature(call).parameters.values()
        if each.default is each.empty and each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)
    }
    return needed | {parameter: value}


@pytest.mark.parametrize(("method", "parameter"), lists_of(batchkiln.Queue))
async def test_one_text_in_place_of_several_changes_nothing(tmp_path: Path, method: str, parameter: str) -> None:
    """A text would be read letter by letter: with the ids 1 to 12, `"12"` would be the items 1 and 2."""
    numbers = FOXES | {"job": "num", "items": [{"id": str(number), "prompt": f"Fox {number}"} for number in range(13)]}
    async with batchkiln.open_queue(tmp_path / "queue.db", config=CONFIG, working_dir=tmp_path) as queue:
        await queue.enqueue(numbers)
        before = [item.state async for item in queue.items("num")]
        call = getattr(queue, method)
        for wrong in ("12", 12, b"12", *([] if method == "enqueue_items" else [[12]])):
            with pytest.raises(batchkiln.InputError, match=r"must be a list of .*; nothing was (changed|done)"):
                await call(**arguments_with(call, parameter, wrong))

        assert [item.state async for item in queue.items("num")] == before


def test_every_way_without_asyncio_refuses_one_text(tmp_path: Path) -> None:
    """The same calls of `SyncQueue`; an empty list does not stand for all items."""
    with opened(tmp_path) as queue:
        queue.enqueue(
            FOXES | {"job": "num", "items": [{"id": "1", "prompt": "A fox"}, {"id": "2", "prompt": "An owl"}]}
        )
        for method, parameter in lists_of(batchkiln.SyncQueue):
            if method != "enqueue_items":
                call = getattr(queue, method)
                with pytest.raises(batchkiln.InputError, match=r"items must be a list of ids.*write \['12'\]"):
                    call(**arguments_with(call, parameter, "12"))
        for optional in (queue.retry, queue.preview_retry, queue.cancel, queue.fetch):
            with pytest.raises(batchkiln.InputError, match="items is an empty list; nothing was changed"):
                optional("num", [])
        with pytest.raises(batchkiln.InputError, match="jobs are named one by one"):
            queue.run(["num"])  # type: ignore[arg-type]
        assert {item.state for item in queue.items("num")} == {ItemState.QUEUED}
        assert queue.redo("num", []).redone == 0
        assert queue.cancel("num").canceled == 2


# --- arguments of the wrong kind ---

COMMAND_LINE: Final = re.compile(r"(?<![\w-])--[a-z]|`batchkiln |\b(the|same) command\b")
"""What no text for a program contains; tests/unit/presentation/test_python_words.py reads all texts."""

WRONG: Final[dict[str, tuple[Callable[[Any], object], str]]] = {
    "a number as manifest": (lambda queue: queue.enqueue(3), "a manifest is the path of a file, .* not int"),
    "a list as manifest": (lambda queue: queue.plan(["A fox"]), "not list; nothing .* use `enqueue_items`"),
    "a number as text": (lambda queue: queue.enqueue_text(3), "a manifest's text must be text, not int"),
    "an unknown change": (lambda queue: queue.enqueue(FOXES, on_change="x"), "on_change must be one of error, keep"),
    "a text as time": (
        lambda queue: queue.run(until=batchkiln.Until(at=cast("Any", "x"))),
        "`at` must be a datetime or",
    ),
    "a number as end": (lambda queue: queue.run(until=3), "until must be done, budget"),
    "a text as credits": (lambda queue: queue.run(max_credits="x"), "max_credits must be a number"),
    "a text as limit": (lambda queue: queue.run(limit="x"), "limit must be a number of items"),
    "a number as pattern": (lambda queue: queue.run(only=3), "only must be a pattern of ids"),
    "a number as job": (lambda queue: queue.status(3), "a job is given by its name, a text, not by int"),
    "a number as item": (lambda queue: queue.show("foxes", 3), "an item is given by its id, a text, not by int"),
    "a text as share": (lambda queue: queue.rehearse(FOXES, kept="x"), "kept a share from 0 to 1"),
    "an unknown decision": (lambda queue: queue.review("foxes", ["item-1"], "x"), "decided must be one of keep, drop"),
    "a number as folder": (lambda queue: queue.export("foxes", 3), "to must be a path, not int; nothing was written"),
    "a number as shares": (lambda queue: queue.export("foxes", splits=3), "splits must be a mapping"),
    "an unknown verdict": (lambda queue: queue.export("foxes", verdict="x"), "verdict must be one of kept, dropped"),
    "a text as page size": (lambda queue: queue.report("foxes", page_size="3"), "page_size must be a number"),
    "no prompt": (lambda queue: queue.enqueue_items([None], job="none", defaults=SMALL), "give a text, such as str"),
    "another prompt": (
        lambda queue: queue.enqueue(FOXES | {"items": ["A wolf", "An arctic fox"]}),
        'pass `on_change="keep"` to keep the sent version, or pass `on_change="redo"`',
    ),
    "the same prompt": (
        lambda queue: queue.enqueue(FOXES | {"items": [{"id": "new", "prompt": "A red fox"}]}),
        "pass `allow_duplicates=True` to pay for it again",
    ),
    "an unknown job": (lambda queue: queue.status("owls"), r"run `queue\.overview\(\)` for a list of jobs"),
    "an unknown item": (lambda queue: queue.retry("foxes", ["x"]), r"run `queue\.items\('foxes'\)` for a list"),
    "an item that is done": (lambda queue: queue.resolve(queue.show("foxes", "item-1"), "failed"), "only held items"),
    "an item by its id": (lambda queue: queue.resolve("item-1", "failed"), "resolve takes an item as show returned it"),
    "no dataset": (lambda queue: queue.export("foxes", "."), "^/.*it contains other files; name a new folder"),
    "a place of no report": (lambda queue: queue.report("foxes", "queue.db"), "name another file with `to`"),
    "a format without packages": (
        lambda queue: queue.export("foxes", "d", format="parquet"),
        '`format="parquet"` needs packages',
    ),
    "links at a URL": (lambda queue: queue.export("foxes", "memory://d", link="hard"), '`link="hard"`'),
    "an unknown model": (
        lambda queue: queue.enqueue(FOXES | {"job": "b", "defaults": {**SMALL, "model": "epsilon2"}}),
        "use `no_catalogue=True`",
    ),
}


@pytest.fixture(scope="module")
def foxes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[batchkiln.SyncQueue]:
    """Return a queue whose job has ended. Not to be changed."""
    with opened(tmp_path_factory.mktemp("foxes")) as queue:
        queue.enqueue(FOXES)
        queue.run()
        yield queue


@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_argument_is_told_in_words_of_the_library(
    foxes: batchkiln.SyncQueue, wrong: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error is an `InputError` that names the argument, and nothing was done."""
    monkeypatch.setitem(sys.modules, "pyarrow", None)  # as if its extra were not installed
    call, told = WRONG[wrong]

    with pytest.raises(batchkiln.InputError, match=told) as raised:
        call(foxes)

    assert not COMMAND_LINE.search(str(raised.value))
    assert [item.state for item in foxes.items("foxes")] == [ItemState.DONE] * 2
    assert [view.summary.name for view in foxes.overview().jobs] == ["foxes"]


@pytest.mark.parametrize(
    ("place", "told"), [("there/is/none.db", "there is no folder"), (3, "a queue is a path, .* not int")]
)
def test_a_queue_in_a_wrong_place_makes_no_folders(tmp_path: Path, place: str | int, told: str) -> None:
    """A path with a mistake in it is told; one new folder, such as .batchkiln, is made."""
    with pytest.raises(batchkiln.InputError, match=told):
        batchkiln.open_queue_sync(tmp_path / place if isinstance(place, str) else cast("Any", place), config=CONFIG)

    assert list(tmp_path.iterdir()) == []
    batchkiln.open_queue_sync(tmp_path / "new" / "queue.db", config=CONFIG).close()
    assert (tmp_path / "new" / "queue.db").is_file()


@pytest.mark.parametrize("is_folder", [True, False])
def test_a_file_that_is_no_queue_is_told_in_words_of_the_library(tmp_path: Path, *, is_folder: bool) -> None:
    """The type of the error stays, with its exit status."""
    place = tmp_path / "other"
    if is_folder:
        place.mkdir()
    else:
        place.write_text("no queue " * 50)

    with pytest.raises(batchkiln.QueueUnusable, match=r"choose another.* with `open_queue`") as raised:
        batchkiln.open_queue_sync(place, config=CONFIG)

    assert not COMMAND_LINE.search(str(raised.value))


def test_reports_warnings_and_a_missing_key_name_calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a method returns, and the error of a run, name no command where there is a call."""
    with opened(tmp_path) as queue:
        queue.enqueue(FOXES)
        queue.run()
        stale = queue.keep("foxes", {"item-1": 3})
        other = queue.plan(FOXES | {"job": "other", "items": ["A wolf"]})
        queue.enqueue(FOXES | {"job": "left", "items": ["A bear"]})
        planned = queue.plan(FOXES | {"job": "other", "items": ["A wolf"]})
        again = queue.preview_redo("left", ["item-1"])

    config = unreachable(monkeypatch)
    monkeypatch.delenv("STUDIO_KEY")
    with batchkiln.open_queue_sync(tmp_path / "keys.db", config=config, working_dir=tmp_path) as queue:
        queue.enqueue(FOXES, no_catalogue=True)
        with pytest.raises(batchkiln.InputError, match="Set it and repeat the call") as raised:
            queue.start(forever=True)

    assert stale.skipped[0].reason.endswith("`queue.show('foxes', 'item-1')` lists the versions")
    assert other.warnings == []
    assert "a run of this job alone does not send them, `queue.run()` may send them first" in planned.warnings[0]
    texts = [each.reason for report in (stale, again) for each in report.skipped]
    assert [text for text in (*texts, *planned.warnings, str(raised.value)) if COMMAND_LINE.search(text)] == []


def test_a_log_names_calls(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Files in the place of a new job's are no error; the log says which queue to use."""
    with opened(tmp_path) as queue:
        queue.enqueue(FOXES)
        queue.run()
    structlog.reset_defaults()
    with batchkiln.open_queue_sync(tmp_path / "b.db", config=CONFIG, working_dir=tmp_path) as queue:
        queue.enqueue(FOXES)

    (line,) = [record.getMessage() for record in caplog.records if "files_there_already" in record.getMessage()]
    assert "use that queue with `open_queue`" in line
    assert not COMMAND_LINE.search(line)
