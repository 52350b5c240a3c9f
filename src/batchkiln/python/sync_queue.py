"""An open queue for scripts and notebooks without asyncio.

The event loop runs in a separate thread, so that the calls also work beside another loop, as in a notebook.
"""

import asyncio
import threading
import warnings
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Iterator
from contextlib import AbstractAsyncContextManager, suppress
from functools import wraps
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

import structlog

from batchkiln.core.errors import InputError
from batchkiln.presentation.formatting import plural
from batchkiln.python.async_queue import Queue
from batchkiln.python.signatures import without_asyncio

log = structlog.get_logger()

P = ParamSpec("P")
T = TypeVar("T")


def _waiting(
    call: Callable[Concatenate[Queue, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate["SyncQueue", P], T]:
    """Return a method that waits for the end of a method of `Queue`."""

    @wraps(call)
    def wait(self: "SyncQueue", /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._wait(call(self._queue, *args, **kwargs))

    return wait


def _iterating(
    call: Callable[Concatenate[Queue, P], AsyncGenerator[T]],
) -> Callable[Concatenate["SyncQueue", P], Iterator[T]]:
    """Return a method that iterates over the values that a method of `Queue` yields."""

    @wraps(call)
    def iterate(self: "SyncQueue", /, *args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        found = call(self._queue, *args, **kwargs)
        try:
            with suppress(StopAsyncIteration):
                while True:
                    yield self._wait(anext(found))
        finally:
            self._wait(found.aclose())

    iterate.__signature__ = without_asyncio(call)  # type: ignore[attr-defined]  # read by `inspect`
    return iterate


class SyncQueue:
    """An open queue with the methods of `Queue`, which have the same arguments but wait for their results.

    Close it by `close`, or use it in a `with` statement. Ctrl-C during a call cancels the call, which is as safe as
    killing the program.
    """

    enqueue = _waiting(Queue.enqueue)
    enqueue_text = _waiting(Queue.enqueue_text)
    enqueue_items = _waiting(Queue.enqueue_items)
    plan = _waiting(Queue.plan)
    rehearse = _waiting(Queue.rehearse)
    run = _waiting(Queue.run)
    start = _waiting(Queue.start)
    join = _waiting(Queue.join)
    stop = _waiting(Queue.stop)
    wait_job = _waiting(Queue.wait_job)
    wait_item = _waiting(Queue.wait_item)
    results = _iterating(Queue.results)
    events = _iterating(Queue.events)
    status = _waiting(Queue.status)
    overview = _waiting(Queue.overview)
    items = _iterating(Queue.items)
    show = _waiting(Queue.show)
    retry = _waiting(Queue.retry)
    preview_retry = _waiting(Queue.preview_retry)
    redo = _waiting(Queue.redo)
    preview_redo = _waiting(Queue.preview_redo)
    stale_items = _waiting(Queue.stale_items)
    cancel = _waiting(Queue.cancel)
    pause = _waiting(Queue.pause)
    unpause = _waiting(Queue.unpause)
    use_version = _waiting(Queue.use_version)
    fetch = _waiting(Queue.fetch)
    keep = _waiting(Queue.keep)
    drop = _waiting(Queue.drop)
    undo = _waiting(Queue.undo)
    review = _waiting(Queue.review)
    review_step = _waiting(Queue.review_step)
    resolve = _waiting(Queue.resolve)
    ask_again = _waiting(Queue.ask_again)
    export = _waiting(Queue.export)
    report = _waiting(Queue.report)

    def __init__(self, opening: AbstractAsyncContextManager[Queue]) -> None:
        """Use `open_queue_sync` instead."""
        self._opening = opening
        self._loop = asyncio.new_event_loop()
        self._closing = threading.Lock()
        self._is_closed = False
        self._thread = threading.Thread(target=self._loop.run_forever, name="batchkiln-loop")
        self._thread.start()
        try:
            self._opened = self._wait(opening.__aenter__())
        except BaseException:
            self._end_loop()
            raise
        # The database's threads would keep the interpreter alive after a script that forgets to close the queue.
        threading.Thread(target=self._close_at_exit, name="batchkiln-exit", daemon=True).start()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._opened.place}{', closed' if self._is_closed else ''}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close(kind, error, trace)

    def close(self) -> None:
        """Stop a run once work in progress is recorded, and close the queue; raise the error that stopped the run."""
        self._close(None, None, None)

    def _close(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._closing:
            if self._is_closed:
                return
            try:
                self._wait(self._opening.__aexit__(kind, error, trace))
            except BaseException as raised:
                if raised is not error:
                    raise
            finally:
                self._end_loop()

    def _close_at_exit(self) -> None:
        threading.main_thread().join()
        with suppress(Exception):  # the queue may be closed already, or may no longer be read
            self._warn_of_open_queue()
        canceled = asyncio.CancelledError()  # at once, which is as safe as a crash
        with suppress(asyncio.CancelledError):
            self._close(asyncio.CancelledError, canceled, None)

    def _warn_of_open_queue(self) -> None:
        """Warn that the script ended without `close`; a run that this cuts off is also logged, which is always seen."""
        if self._is_closed:
            return
        place, told = self._opened.place, "the queue was not closed: use `with`, or call `close`"
        views = self._wait(self._opened.overview()).jobs if self._is_run_cut_off() else ()
        if number := sum(view.summary.left for view in views):
            remedy = "call `join` before the script ends; the next run continues them, and nothing is charged twice"
            log.warning("run_cut_off", queue=place, items=number, reason="the script ended", remedy=remedy)
            told += f". Its run was cut off with {plural(number, 'item')} left, which the next run continues"
        warnings.warn(f"{place}: {told}", ResourceWarning, source=self, stacklevel=1)

    def _is_run_cut_off(self) -> bool:
        """Whether the script's end stops a run, or already has: Python then begins no more work in other threads."""
        queue = self._opened
        task = queue._task  # noqa: SLF001  the same interface
        if task is None or queue._is_failure_raised:  # noqa: SLF001
            return False
        return not task.done() or task.cancelled() or task.exception() is not None

    def _end_loop(self) -> None:
        self._is_closed = True
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    @property
    def _queue(self) -> Queue:
        if self._is_closed:
            raise InputError("this queue is closed; open it again")
        return self._opened

    def _wait(self, work: Awaitable[T]) -> T:
        """Return the result of a call in the loop's thread. Ctrl-C cancels the call, and waits until it has ended."""
        ended = threading.Event()
        tasks: list[asyncio.Task[T]] = []

        async def call() -> T:
            return await work

        def begin() -> None:
            task = self._loop.create_task(call())
            tasks.append(task)
            task.add_done_callback(lambda _: ended.set())

        def cancel() -> None:
            tasks[0].cancel()

        self._loop.call_soon_threadsafe(begin)
        try:
            ended.wait()
        except BaseException:
            self._loop.call_soon_threadsafe(cancel)
            ended.wait()
            if not tasks[0].cancelled():
                tasks[0].exception()  # retrieved so that the loop does not report it
            raise
        return tasks[0].result()
