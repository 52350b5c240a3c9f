"""`doctor --probe`: the open parts of the service, met for nothing (contract, section 8).

Each request is told beforehand with what it takes of the limits, and counted as a drive's are (Law 5). Of each reply
is told what is documented, what came (names and types), and how it is understood. No create is sent.
"""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from batchkiln.core import provider
from batchkiln.core.error_text import describe_error
from batchkiln.core.errors import ExitStatus
from batchkiln.core.job import Recipe
from batchkiln.core.rate_limits import RequestKind
from batchkiln.core.request import request_body
from batchkiln.core.response_rules import RefusalMeaning, ReplyField, remedy_line
from batchkiln.core.responses import (
    AccountBlocked,
    AssetsReady,
    BalanceRead,
    BytesStored,
    CatalogRead,
    EdgeBlocked,
    ModelEntry,
    NotFound,
    NotUnderstood,
    Quoted,
    QuoteReply,
    RecordRead,
    RefusalKind,
    Refused,
    Throttled,
    TransientError,
    UploadsPrepared,
    UploadTicket,
)
from batchkiln.doctor.check_results import CheckResult, Level, fail, ok, warn
from batchkiln.doctor.counted import Counted, NoPlace
from batchkiln.doctor.learned import BALANCE, DESCRIPTION, Learned, description_digest
from batchkiln.doctor.samples import FILE_NAME, MEDIA_TYPE, PROMPT, chunks, image_recipes, text_recipes, tiny_image
from batchkiln.presentation.formatting import plural

CHECK: Final = "probe"
_NO_SUCH_ID: Final = "batchkiln-probe-no-such-generation"
_TRIES: Final = 3
_SHOWN: Final = 6


@dataclass(frozen=True, slots=True)
class Step:
    """One part of the probe: its call, what the service's document says, and what it takes of the limits at most."""

    name: str
    call: str
    documented: str
    reads: int = 0
    uploads: int = 0

    @property
    def takes(self) -> str:
        """What it takes of the account's limits, in words."""
        if self.uploads:
            return plural(self.uploads, "upload request")
        return f"{'up to ' if self.reads > 1 else ''}{plural(self.reads, 'read')}" if self.reads else "nothing"


CATALOGUE: Final = Step(
    "catalogue", f"GET {provider.MODELS}", "models with modes, sizes and limits; fields not shown", reads=1
)
CREDITS: Final = Step("balance", BALANCE, "the remaining credits; the field's name is not shown", reads=1)
UNKNOWN: Final = Step(
    "unknown id",
    f"GET {provider.GENERATIONS}/{{id}}",
    "for an id that is not there: status and error not shown",
    reads=1,
)
QUOTE: Final = Step("quote", f"POST {provider.QUOTES}", "cost_credits", reads=_TRIES)
OVER: Final = Step(
    "quote over the maximum",
    f"POST {provider.QUOTES} with max_cost_credits",
    "rejected before generation, in a way that is not shown; a quote may also ignore the maximum",
    reads=2,
)
UPLOAD: Final = Step(
    "upload",
    f"POST {provider.UPLOADS}",
    "upload_url, upload_headers, and an asset id whose field is not shown",
    uploads=1,
)
BYTES: Final = Step("upload of the bytes", "PUT to upload_url", "takes the bytes; status not shown")
COMPLETION: Final = Step("completion", f"POST {provider.UPLOADS_COMPLETE}", "a url per asset", uploads=1)
IMAGE_QUOTE: Final = Step("quote with the image", f"POST {provider.QUOTES} with inputs", "cost_credits", reads=_TRIES)
STEPS: Final = (CATALOGUE, CREDITS, UNKNOWN, QUOTE, OVER, UPLOAD, BYTES, COMPLETION, IMAGE_QUOTE)


def announce(account: str) -> CheckResult:
    """Say beforehand what each step takes of the limits."""
    size_bytes = len(tiny_image())
    lines = [f"{step.name} ({step.call}): {step.takes}" for step in STEPS]
    reads, uploads = sum(step.reads for step in STEPS), sum(step.uploads for step in STEPS)
    total = (
        f"in all 0 credits, up to {plural(reads, 'read')}, {plural(uploads, 'upload request')} "
        f"and 1 uploaded file of {size_bytes:,} bytes"
    )
    return ok(CHECK, "\n".join([f"asks as the account {account}; of its limits it takes", *lines, total]))


@dataclass(slots=True)
class Probe:
    """One account's probe. `learned` grows with each reply; `models` and `text` are what it was asked with."""

    counted: Counted
    profile: str
    learned: Learned
    models: Sequence[ModelEntry] = ()
    text: Recipe | None = None
    text_price: int | None = None
    asset_url: str | None = None
    is_over: bool = False
    elsewhere: Sequence[str] = ()  # where else what was sent may stand in the reply that it was read from

    async def findings(self) -> AsyncIterator[CheckResult]:
        """Ask, and tell, step by step; end early where the account or the windows allow no more."""
        for part in (self._begin, self._catalogue, self._balance, self._unknown, self._quote, self._over, self._upload):
            if self.is_over:
                return
            try:
                for finding in await part():
                    yield finding
            except NoPlace as reason:
                self.is_over = True
                yield warn(CHECK, f"ended early: {reason}", "the same command later asks what is left")

    async def _begin(self) -> list[CheckResult]:
        await self.counted.begin()
        if (document := self.counted.client.description) is not None:
            self.learned = self.learned.with_call(DESCRIPTION, description_digest(document))
        return []

    async def _catalogue(self) -> list[CheckResult]:
        reply = await self.counted.ask(RequestKind.READ, self.counted.client.models)
        if not isinstance(reply, CatalogRead):
            return [self._troubled(CATALOGUE, reply)]
        self.models = reply.models
        if not reply.models:
            return [
                self._misread(CATALOGUE, "no model is found in it; the service decides of each item", ReplyField.MODELS)
            ]
        told = [
            f"{sum(bool(getattr(entry, name)) for entry in reply.models)} with {word}"
            for name, word in (
                ("modes", "modes"),
                ("resolutions", "resolutions"),
                ("aspect_ratios", "aspect ratios"),
                ("prompt_max_characters", "a prompt limit"),
                ("images_max", "an image limit"),
            )
        ]
        return [self._understood(CATALOGUE, f"{plural(len(reply.models), 'model')}, {', '.join(told)}")]

    async def _balance(self) -> list[CheckResult]:
        reply = await self.counted.ask(RequestKind.READ, self.counted.client.balance)
        if not isinstance(reply, BalanceRead):
            return [self._troubled(CREDITS, reply)]
        if reply.credits is None:
            return [self._misread(CREDITS, "no figure in it is surely the balance", ReplyField.BALANCE)]
        place = self._place(reply.credits, "balance", "credits")
        return [self._understood(CREDITS, f"{plural(reply.credits, 'credit')} left, {place}")]

    async def _unknown(self) -> list[CheckResult]:
        client = self.counted.client

        async def send() -> object:
            return await client.read_generation(_NO_SUCH_ID, key_fingerprint=client.newest_key)

        reply = await self.counted.ask(RequestKind.READ, send)
        match reply:
            case NotFound():
                return [self._understood(UNKNOWN, "there is no such generation")]
            case RecordRead():
                return [self._told(Level.WARN, UNKNOWN, "a generation, which there cannot be")]
            case AccountBlocked() | Throttled() | EdgeBlocked():
                return [self._troubled(UNKNOWN, reply)]
            case _:
                lost = "not as `there is none`: an id that the service has lost would be asked for again and again"
                return [self._told(Level.WARN, UNKNOWN, lost)]

    async def _quote(self) -> list[CheckResult]:
        return await self._priced(QUOTE, text_recipes(self.models), ())

    async def _priced(self, step: Step, recipes: Sequence[Recipe], urls: tuple[str, ...]) -> list[CheckResult]:
        """Ask a price, with the next recipe where the service refuses one."""
        reply: QuoteReply | None = None
        for recipe in recipes[:_TRIES]:
            reply = await self.quote(recipe, urls)
            if isinstance(reply, Quoted):
                if not urls:
                    self.text, self.text_price = recipe, reply.cost_credits
                place = self._place(reply.cost_credits, "cost_credits")
                price = plural(reply.cost_credits, "credit")
                return [self._understood(step, f"{price} for {described(recipe)}, {place}")]
            if not isinstance(reply, Refused):
                return [self._troubled(step, reply, is_vital=True)]
        if reply is None:
            return [warn(f"{CHECK}, {step.name}", "not asked: the catalogue has no model that takes an image")]
        if urls and isinstance(reply, Refused) and self.elsewhere:
            return [self._wrongly_read(step, reply, ReplyField.ASSET_URL)]
        tried = " and ".join(described(recipe) for recipe in recipes[:_TRIES])
        words = f"a refusal of the request, of {tried}"
        return [
            self._told(Level.WARN, step, words, "`batchkiln plan` with a manifest of yours asks the prices that matter")
        ]

    async def quote(
        self, recipe: Recipe, urls: tuple[str, ...] = (), *, max_cost_credits: int | None = None
    ) -> QuoteReply:
        """Ask what a recipe costs. Raises `NoPlace`."""
        body = request_body(recipe, prompt=PROMPT, input_urls=urls, max_cost_credits=max_cost_credits)
        return await self.counted.ask(RequestKind.QUOTE, lambda: self.counted.client.quote(body))

    async def _over(self) -> list[CheckResult]:
        if self.text is None or not self.text_price:
            return [warn(f"{CHECK}, {OVER.name}", "not asked: no price is known that a maximum could be below")]
        reply = await self.quote(self.text, max_cost_credits=1 if self.text_price > 1 else 0)
        if isinstance(reply, Quoted):
            ignored = "the quote ignores the maximum; the reply to a create above it is still to be met"
            return [self._understood(OVER, ignored)]
        if not isinstance(reply, Refused):
            return [self._troubled(OVER, reply)]
        if reply.kind is RefusalKind.OVER_QUOTE:
            return [
                self._understood(OVER, "the price is above the maximum: a new quote is asked, then the item is sent")
            ]
        finding = self._told(Level.WARN, OVER, "a refusal of the request itself", self._paste(self._meaning(reply)))
        control = await self.quote(self.text, max_cost_credits=self.text_price)
        if isinstance(control, Quoted):
            return [finding]
        return [
            self._told(Level.OK, OVER, "a quote takes no max_cost_credits; a create does, by the service's document")
        ]

    async def _upload(self) -> list[CheckResult]:
        content, client = tiny_image(), self.counted.client
        file = (FILE_NAME, MEDIA_TYPE, len(content))

        async def send() -> object:
            return await client.prepare_uploads([file])

        prepared = await self.counted.ask(RequestKind.UPLOAD, send, files=1, size_bytes=len(content))
        if not isinstance(prepared, UploadsPrepared):
            return [self._upload_failed(UPLOAD, prepared)]
        (ticket,) = prepared.tickets
        self.elsewhere = client.other_paths(ticket.asset_id, are_links=False)
        asset, url = self._place(ticket.asset_id, "asset_id", "id"), self._place(ticket.url, "upload_url")
        headers = plural(len(ticket.headers), "header")
        found = [self._understood(UPLOAD, f"the asset id, {asset}; the upload url, {url}; {headers} for the PUT")]
        stored = await client.put_upload(ticket, lambda: chunks(content), len(content))
        if not isinstance(stored, BytesStored):
            message = f"{BYTES.call}\ndocumented: {BYTES.documented}\ncame: {stored.reason}"
            return [*found, fail(f"{CHECK}, {BYTES.name}", message, exit_status=ExitStatus.UNEXPECTED)]
        found.append(ok(f"{CHECK}, {BYTES.name}", "the storage took the bytes"))
        return found + await self._complete(ticket)

    async def _complete(self, ticket: UploadTicket) -> list[CheckResult]:
        client = self.counted.client

        async def send() -> object:
            return await client.complete_uploads([ticket.asset_id])

        reply = await self.counted.ask(RequestKind.UPLOAD, send)
        if isinstance(reply, Refused):
            return [self._wrongly_read(COMPLETION, reply, ReplyField.ASSET_ID)]
        if not isinstance(reply, AssetsReady):
            return [self._upload_failed(COMPLETION, reply)]
        self.asset_url = reply.urls[0]
        self.elsewhere = client.other_paths(self.asset_url, are_links=True)
        found = [self._understood(COMPLETION, f"the url for `inputs`, {self._place(self.asset_url, 'url')}")]
        recipes = image_recipes(self.models, self.text)
        return found + await self._priced(IMAGE_QUOTE, recipes, (self.asset_url,))

    # --- telling ---

    def _upload_failed(self, step: Step, reply: object) -> CheckResult:
        if isinstance(reply, Refused):
            words = f"a refusal ({reply.error.code}): items with images cannot run, items of text alone can"
            return self._told(
                Level.WARN, step, words, "see in the service's description whether it takes uploads at all"
            )
        return self._troubled(step, reply, is_vital=isinstance(reply, NotUnderstood))

    def _wrongly_read(self, step: Step, refused: Refused, name: ReplyField) -> CheckResult:
        """Tell a refusal of what was read from the reply before: it may have been the wrong field of it."""
        words = (
            f"a refusal ({refused.error.code}) of what was read before; the {name} may stand elsewhere in that reply"
        )
        remedy = self._paste(remedy_line(name, None), self.elsewhere)
        finding = self._told(Level.FAIL, step, words, remedy)
        return replace(finding, exit_status=ExitStatus.UNEXPECTED)

    def _troubled(self, step: Step, reply: object, *, is_vital: bool = False) -> CheckResult:
        """Tell what came in place of an answer; an account that is refused, or asked to wait, ends the probe."""
        assert isinstance(reply, TransientError), "every other reply was told before"
        if isinstance(reply, AccountBlocked):
            self.is_over = True
            message = f"{step.call}\ncame: {self.counted.client.describe_last()}\nunderstood: {describe_error(reply)}"
            return fail(f"{CHECK}, {step.name}", message, exit_status=ExitStatus.ACCOUNT_CANNOT_WORK)
        self.is_over = isinstance(reply, Throttled | EdgeBlocked)
        level = Level.FAIL if is_vital else Level.WARN
        if isinstance(reply, NotUnderstood):
            is_asset = ReplyField.ASSET_ID in str(reply.remedy) or ReplyField.ASSET_URL in str(reply.remedy)
            others = self.counted.client.other_paths("", are_links=step is COMPLETION) if is_asset else ()
            words = f"not understood: it {reply.lacking}"
            finding = self._told(Level.WARN, step, words, self._paste(reply.remedy, others))
        else:
            finding = self._told(Level.WARN, step, describe_error(reply))
        return replace(finding, level=level, exit_status=ExitStatus.UNEXPECTED if is_vital else ExitStatus.OK)

    def _misread(self, step: Step, words: str, name: ReplyField) -> CheckResult:
        return self._told(Level.WARN, step, f"not understood: {words}", self._paste(remedy_line(name, None)))

    def _understood(self, step: Step, words: str) -> CheckResult:
        """Tell a reply that was understood, and what differs from the last probe."""
        types = self.counted.client.last_types()
        changed = self.learned.differences(step.call, types)
        self.learned = self.learned.with_call(step.call, types)
        if changed:
            words = f"{words}\nchanged since the last probe: {'; '.join(changed)}"
        return self._told(Level.WARN if changed else Level.OK, step, words)

    def _told(self, level: Level, step: Step, words: str, remedy: str | None = None) -> CheckResult:
        came = self.counted.client.describe_last()
        message = f"{step.call}\ndocumented: {step.documented}\ncame: {came}\nunderstood: {words}"
        return CheckResult(f"{CHECK}, {step.name}", level, message, remedy)

    def _place(self, value: str | float, *names: str) -> str:
        place = self.counted.client.path_of(value, *names)
        return f"read at {place}" if place is not None else "read from several places"

    def _meaning(self, refused: Refused) -> str:
        """Return the configuration line that says what a refusal means."""
        facts = [f"status: {self.counted.client.last_status}"]
        if not refused.error.code.startswith("http_"):
            facts.append("code: '" + refused.error.code.replace("'", "''") + "'")
        return f"replies: {{refusals: [{{{', '.join(facts)}, means: {RefusalMeaning.OVER_QUOTE}}}]}}"

    def _paste(self, line: str | None, others: Sequence[str] = ()) -> str | None:
        """Say what to configure; `others` are the places that the reply has."""
        if line is None:
            return None
        how = f"if it is there, tell where: paste below `{self.profile}:` in batchkiln.yaml, and probe again\n{line}"
        return f"{how}\nplaces of that reply: {', '.join(others[:_SHOWN])}" if others else how


def described(recipe: Recipe) -> str:
    """Return a recipe in a few words."""
    parameters = ", ".join(str(value) for _, value in recipe.parameters)
    return f"{recipe.model} {recipe.mode}" + (f" ({parameters})" if parameters else "")
