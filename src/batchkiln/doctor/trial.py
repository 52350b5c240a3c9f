"""`doctor --probe --with-generation`: generates the cheapest real picture with the ordinary engine, so all laws hold.

The job has one item, with its price as the budget. Afterwards the same bytes are sent once more with the same
idempotency key: every recovery after a lost reply relies on a replay not being charged again (Service rule 4.2).
"""

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final

from msgspec import Struct

from batchkiln.api.queue import Queue
from batchkiln.api.run import Run, RunOptions
from batchkiln.core.errors import ExitStatus, command_arguments
from batchkiln.core.job import Recipe
from batchkiln.core.rate_limits import RequestKind
from batchkiln.core.responses import Accepted, Busy, CreateReply, Quoted, ReadReply, RecordRead
from batchkiln.core.states import ItemState
from batchkiln.doctor.check_results import CheckResult, fail, ok, warn
from batchkiln.doctor.counted_client import CountedClient, RequestNotSent
from batchkiln.doctor.probe import Probe, described
from batchkiln.doctor.samples import PROMPT, text_recipes
from batchkiln.presentation.formatting import format_duration, plural
from batchkiln.store import EventRecord, ItemDetail

CHECK: Final = "generation"
ITEM: Final = "picture"
QUOTES_MAX: Final = 8
_RETENTION_WORDS: Final = re.compile(r"expir|retain|retention|ttl|until|delet", re.IGNORECASE)


class PaymentConsent(Struct, frozen=True):
    """The consent of the person who pays.

    `agrees` asks the person before anything is spent. `on_run` receives a callback that stops the run.
    """

    agrees: Callable[[str], Awaitable[bool]]
    on_run: Callable[[Callable[[], None]], None]


class Trial(Struct):
    """The generation of one paid picture, on the first account of a profile."""

    queue: Queue
    run: Run
    probe: Probe
    account: str
    consent: PaymentConsent

    async def results(self) -> AsyncIterator[CheckResult]:
        """Find the price, ask the person, generate, and yield the results."""
        try:
            cheapest = await self._cheapest()
        except RequestNotSent as reason:
            yield warn(CHECK, f"not made: {reason}", "run the same command later")
            return
        if cheapest is None:
            yield warn(CHECK, "not made: no picture has a known price", "check the probe's results about quotes")
            return
        recipe, price = cheapest
        if not await self.consent.agrees(_question(recipe, price)):
            yield warn(CHECK, "not made: not confirmed; nothing was sent or spent")
            return
        job = await self._generate(recipe, price)
        detail = await self.queue.show(job, ITEM)
        for result in _item_results(detail, price):
            yield result
        if detail.item.state is ItemState.DONE:
            async for result in self._check_replay(detail, price):
                yield result

    async def _cheapest(self) -> tuple[Recipe, int] | None:
        """Return the cheapest recipe and its price, among pictures at their smallest sizes. Only quotes are sent.

        Raise `RequestNotSent`.
        """
        recipes = text_recipes(self.probe.models) if self.probe.text is None or self.probe.models else [self.probe.text]
        found: list[tuple[int, int]] = []
        for number, recipe in enumerate(recipes[:QUOTES_MAX]):
            reply = await self.probe.quote(recipe)
            if isinstance(reply, Quoted):
                found.append((reply.cost_credits, number))
        return (recipes[min(found)[1]], min(found)[0]) if found else None

    async def _generate(self, recipe: Recipe, price: int) -> str:
        """Enqueue a job of one item and run it to its end; return the job's name."""
        now = self.probe.counted.worker.ports.clock.now().instant
        job = f"probe-{now:%Y%m%d-%H%M%S}"
        item = {
            "id": ITEM,
            "prompt": PROMPT,
            "model": recipe.model,
            "mode": recipe.mode.value,
            "parameters": dict(recipe.parameters),
            "max_cost_credits": price,
            "attempts": 1,
        }
        applied = await self.queue.enqueue(
            {
                "version": 1,
                "job": job,
                "profile": self.probe.profile,
                "account": self.account,
                "budget": {"credits": price},
                "output": {"dir": "out"},
                "items": [item],
            }
        )
        await self.run.limit_to([applied.job.name])
        self.consent.on_run(self._stop)
        self.run.options = RunOptions(max_credits=price)
        await self.run.run()
        return job

    def _stop(self) -> None:
        self.run.engine.control.stop()
        self.run.engine.announce()

    async def _check_replay(self, detail: ItemDetail, price: int) -> AsyncIterator[CheckResult]:
        """Poll the generation once more, and send its create once more."""
        counted = await CountedClient.open(self.run.engine, self.probe.profile, self.account)
        try:
            await counted.start()
            yield await _record_result(counted, detail)
            yield await self._replay(counted, detail, price)
        except RequestNotSent as reason:
            yield warn(f"{CHECK}, replay", f"not sent: {reason}")

    async def _replay(self, counted: CountedClient, detail: ItemDetail, price: int) -> CheckResult:
        attempt = detail.attempts[-1]
        (request,) = await self.queue.reader.read(lambda reader: reader.items.requests(detail.item.id))

        async def send() -> CreateReply:
            return await counted.client.create(
                is_video=request.is_video,
                body=request.body,
                idempotency_key=attempt.idempotency_key,
                key_fingerprint=attempt.key_fingerprint,
            )

        reply = await counted.ask(RequestKind.CREATE, send)
        check = f"{CHECK}, replay"
        received = counted.client.describe_last()
        if isinstance(reply, Busy):
            message = "the same request with the same idempotency key is answered as if the account were busy"
            return warn(
                check, f"{message}\nreceived: {received}", "after a lost reply, an item waits and is sent again"
            )
        if not isinstance(reply, Accepted):
            return warn(
                check,
                f"the same request with the same idempotency key did not return its generation\nreceived: {received}",
                "after a lost reply, an item would be held for your decision; it would not be paid twice",
            )
        if reply.record.id == attempt.generation_id:
            return ok(
                check,
                (
                    "the same request with the same idempotency key returned the same generation: it is not "
                    "charged again"
                ),
            )
        return fail(
            check,
            f"the same request with the same idempotency key created another generation, {reply.record.id}: the "
            f"service promises to return the same one, and may have charged {plural(price, 'credit')} again",
            "do not use this service until its support has explained this: a lost reply would be paid twice",
            exit_status=ExitStatus.UNEXPECTED,
        )


def _question(recipe: Recipe, price: int) -> str:
    credits_text = plural(price, "credit")
    return (
        f"Make one picture with {described(recipe)} for {credits_text}, in one create? The same request is then sent "
        "once more, as a second create. According to the service's document the second create is not charged; a "
        f"service that breaks this rule would charge {credits_text} again. Continue?"
    )


def _item_results(detail: ItemDetail, price: int) -> list[CheckResult]:
    """Report the item's state, times, cost and files."""
    name, state = f"{detail.job}/{detail.item.name}", detail.item.state
    first = detail.events[0].at if detail.events else None
    history = "; ".join(
        f"{_event_text(event)} after {format_duration((event.at - first).total_seconds())}"
        for event in detail.events
        if first is not None
    )
    if state is not ItemState.DONE:
        error_text = "" if detail.item.error is None else f": {detail.item.error.code}: {detail.item.error.message}"
        showing = f"`batchkiln show {command_arguments(detail.job, detail.item.name)}`"
        return [
            fail(
                CHECK,
                f"{name} is {state}{error_text}\n{history}",
                f"{showing} shows what was charged and what to do",
                exit_status=ExitStatus.UNEXPECTED,
            )
        ]
    found = [ok(CHECK, f"{name} is done\n{history}"), _cost_result(detail, price)]
    files = [
        f"{file.type} of {file.media_type}, {file.size_bytes:,} bytes: {file.path}" for file in detail.item.outputs
    ]
    fetched = "downloaded through the link alone, without the API key"
    return [*found, ok(f"{CHECK}, outputs", "\n".join([f"{plural(len(files), 'output')}, {fetched}", *files]))]


def _event_text(event: EventRecord) -> str:
    status = event.detail.get("status")
    return event.kind.replace("_", " ") + (f" ({status})" if isinstance(status, str) else "")


def _cost_result(detail: ItemDetail, price: int) -> CheckResult:
    check, cost = f"{CHECK}, cost", detail.attempts[-1].cost_credits
    if cost is None:
        return warn(check, f"the record has no credits.cost; the quote, {plural(price, 'credit')}, is counted")
    if cost > price:
        return fail(
            check,
            f"the service charged {plural(cost, 'credit')}, above the maximum of {price:,} that was sent",
            "ask its support before you run a batch: no budget can limit charges above the maximum",
            exit_status=ExitStatus.UNEXPECTED,
        )
    word = "as quoted" if cost == price else f"the quote was {price:,}"
    return ok(check, f"credits.cost is {cost:,}, {word}")


async def _record_result(counted: CountedClient, detail: ItemDetail) -> CheckResult:
    """Read the record of the ended generation; report its types, and the fields that may state its retention."""
    attempt, clock, client = detail.attempts[-1], counted.worker.ports.clock, counted.client
    await clock.sleep_until(clock.now().monotonic + counted.worker.rates.limits.poll_interval_seconds, asyncio.Event())

    async def send() -> ReadReply:
        return await client.read_generation(attempt.generation_id or "", key_fingerprint=attempt.key_fingerprint)

    reply = await counted.ask(RequestKind.READ, send)
    check, received = f"{CHECK}, record", client.describe_last()
    if not isinstance(reply, RecordRead):
        return warn(check, f"a second read of the ended generation was not understood\nreceived: {received}")
    keeping = [path for path in client.last_types() if _RETENTION_WORDS.search(path)]
    retention = (
        f"these fields may state how long it is kept: {', '.join(keeping)}"
        if keeping
        else "no field states how long it is kept"
    )
    return ok(check, f"status word {reply.record.status_word}; {retention}\nreceived: {received}")
