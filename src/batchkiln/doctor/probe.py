"""`doctor --probe`: checks the undocumented parts of the service without paying.

The limits that each request uses are announced first, and each request is counted like a worker's (Law 5). For each
reply the report shows the documentation, the names and types in the reply, and its interpretation. No create is sent.
"""

from collections.abc import AsyncIterator, Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

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
from batchkiln.doctor.counted_client import CountedClient, RequestNotSent
from batchkiln.doctor.learned import BALANCE, DESCRIPTION, Learned, description_digest
from batchkiln.doctor.samples import FILE_NAME, MEDIA_TYPE, PROMPT, chunks, image_recipes, text_recipes, tiny_image
from batchkiln.presentation.formatting import plural

CHECK: Final = "probe"
_NO_SUCH_ID: Final = "batchkiln-probe-no-such-generation"
_TRIES: Final = 3
_SHOWN: Final = 6


class Step(Struct, frozen=True):
    """One step of the probe: its call, the documented form of the reply, and the maximum number of requests."""

    name: str
    call: str
    documented: str
    reads: int = 0
    uploads: int = 0

    @property
    def limits_text(self) -> str:
        """The limits that the step uses, in words."""
        if self.uploads:
            return plural(self.uploads, "upload request")
        return f"{'up to ' if self.reads > 1 else ''}{plural(self.reads, 'read')}" if self.reads else "nothing"


CATALOGUE: Final = Step(
    "catalogue", f"GET {provider.MODELS}", "models with modes, sizes and limits; fields not documented", reads=1
)
CREDITS: Final = Step("balance", BALANCE, "the remaining credits; field name not documented", reads=1)
UNKNOWN: Final = Step(
    "unknown id",
    f"GET {provider.GENERATIONS}/{{id}}",
    "for an unknown id: status and error not documented",
    reads=1,
)
QUOTE: Final = Step("quote", f"POST {provider.QUOTES}", "cost_credits", reads=_TRIES)
OVER: Final = Step(
    "quote over the maximum",
    f"POST {provider.QUOTES} with max_cost_credits",
    "rejected before generation, in an undocumented way; a quote may also ignore the maximum",
    reads=2,
)
UPLOAD: Final = Step(
    "upload",
    f"POST {provider.UPLOADS}",
    "upload_url, upload_headers, and an asset id whose field is not documented",
    uploads=1,
)
BYTES: Final = Step("upload of the bytes", "PUT to upload_url", "accepts the bytes; status not documented")
COMPLETION: Final = Step("completion", f"POST {provider.UPLOADS_COMPLETE}", "a url per asset", uploads=1)
IMAGE_QUOTE: Final = Step("quote with the image", f"POST {provider.QUOTES} with inputs", "cost_credits", reads=_TRIES)
STEPS: Final = (CATALOGUE, CREDITS, UNKNOWN, QUOTE, OVER, UPLOAD, BYTES, COMPLETION, IMAGE_QUOTE)


def announce(account: str) -> CheckResult:
    """Announce which limits each step uses."""
    size_bytes = len(tiny_image())
    lines = [f"{step.name} ({step.call}): {step.limits_text}" for step in STEPS]
    reads, uploads = sum(step.reads for step in STEPS), sum(step.uploads for step in STEPS)
    total = (
        f"in total 0 credits, up to {plural(reads, 'read')}, {plural(uploads, 'upload request')} and 1 uploaded file "
        f"of {size_bytes:,} bytes"
    )
    return ok(CHECK, "\n".join([f"uses the account {account}; its requests count toward these limits:", *lines, total]))


class Probe(Struct):
    """The probe of one account. `models` and `text` are the models and the recipe that its requests use."""

    counted: CountedClient
    profile: str
    learned: Learned
    models: Sequence[ModelEntry] = ()
    text: Recipe | None = None
    text_price: int | None = None
    asset_url: str | None = None
    has_ended: bool = False
    other_paths: Sequence[str] = ()  # other places in the source reply from which the sent value could have been read

    async def results(self) -> AsyncIterator[CheckResult]:
        """Run the steps and yield their results; stop early if the account or its limits prevent more."""
        for part in (
            self._begin,
            self._catalogue,
            self._balance,
            self._unknown_id,
            self._quote,
            self._quote_over_maximum,
            self._upload,
        ):
            if self.has_ended:
                return
            try:
                for result in await part():
                    yield result
            except RequestNotSent as reason:
                self.has_ended = True
                yield warn(CHECK, f"ended early: {reason}", "run the same command later for the remaining steps")

    async def _begin(self) -> list[CheckResult]:
        await self.counted.start()
        if (document := self.counted.client.description) is not None:
            self.learned = self.learned.with_call(DESCRIPTION, description_digest(document))
        return []

    async def _catalogue(self) -> list[CheckResult]:
        reply = await self.counted.ask(RequestKind.READ, self.counted.client.models)
        if not isinstance(reply, CatalogRead):
            return [self._failed_step(CATALOGUE, reply)]
        self.models = reply.models
        if not reply.models:
            return [
                self._not_found(CATALOGUE, "no model was found in it; the service checks each item", ReplyField.MODELS)
            ]
        limits = [
            f"{sum(bool(getattr(entry, name)) for entry in reply.models)} with {word}"
            for name, word in (
                ("modes", "modes"),
                ("resolutions", "resolutions"),
                ("aspect_ratios", "aspect ratios"),
                ("prompt_max_characters", "a prompt limit"),
                ("images_max", "an image limit"),
            )
        ]
        return [self._understood(CATALOGUE, f"{plural(len(reply.models), 'model')}, {', '.join(limits)}")]

    async def _balance(self) -> list[CheckResult]:
        reply = await self.counted.ask(RequestKind.READ, self.counted.client.balance)
        if not isinstance(reply, BalanceRead):
            return [self._failed_step(CREDITS, reply)]
        if reply.credits is None:
            return [self._not_found(CREDITS, "no number in it is certainly the balance", ReplyField.BALANCE)]
        place = self._place(reply.credits, "balance", "credits")
        return [self._understood(CREDITS, f"{plural(reply.credits, 'credit')} left, {place}")]

    async def _unknown_id(self) -> list[CheckResult]:
        client = self.counted.client

        async def send() -> object:
            return await client.read_generation(_NO_SUCH_ID, key_fingerprint=client.newest_key)

        reply = await self.counted.ask(RequestKind.READ, send)
        match reply:
            case NotFound():
                return [self._understood(UNKNOWN, "the generation does not exist")]
            case RecordRead():
                return [self._result(Level.WARN, UNKNOWN, "a generation, although none can exist")]
            case AccountBlocked() | Throttled() | EdgeBlocked():
                return [self._failed_step(UNKNOWN, reply)]
            case _:
                lost = "not as a missing generation: an id that the service has lost would be polled repeatedly"
                return [self._result(Level.WARN, UNKNOWN, lost)]

    async def _quote(self) -> list[CheckResult]:
        return await self._ask_price(QUOTE, text_recipes(self.models), ())

    async def _ask_price(self, step: Step, recipes: Sequence[Recipe], urls: tuple[str, ...]) -> list[CheckResult]:
        """Ask for a price; if the service refuses a recipe, try the next one."""
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
                return [self._failed_step(step, reply, is_vital=True)]
        if reply is None:
            return [warn(f"{CHECK}, {step.name}", "not sent: the catalogue has no model that accepts an image")]
        if urls and isinstance(reply, Refused) and self.other_paths:
            return [self._rejected_value(step, reply, ReplyField.ASSET_URL)]
        tried = " and ".join(described(recipe) for recipe in recipes[:_TRIES])
        words = f"a refusal of the request, of {tried}"
        return [self._result(Level.WARN, step, words, "run `batchkiln plan` with your manifest to see its prices")]

    async def quote(
        self, recipe: Recipe, urls: tuple[str, ...] = (), *, max_cost_credits: int | None = None
    ) -> QuoteReply:
        """Ask for a recipe's price. Raise `RequestNotSent`."""
        body = request_body(recipe, prompt=PROMPT, input_urls=urls, max_cost_credits=max_cost_credits)
        return await self.counted.ask(RequestKind.QUOTE, lambda: self.counted.client.quote(body))

    async def _quote_over_maximum(self) -> list[CheckResult]:
        if self.text is None or not self.text_price:
            return [warn(f"{CHECK}, {OVER.name}", "not sent: no price is known, so no maximum can be below it")]
        reply = await self.quote(self.text, max_cost_credits=1 if self.text_price > 1 else 0)
        if isinstance(reply, Quoted):
            ignored = "the quote ignores the maximum; the reply to a create above it remains unknown"
            return [self._understood(OVER, ignored)]
        if not isinstance(reply, Refused):
            return [self._failed_step(OVER, reply)]
        if reply.kind is RefusalKind.OVER_QUOTE:
            return [
                self._understood(OVER, "the price is above the maximum: the item gets a new quote and is sent again")
            ]
        remedy = self._suggested_line(self._refusal_rule(reply))
        result = self._result(Level.WARN, OVER, "a refusal of the request itself", remedy)
        control = await self.quote(self.text, max_cost_credits=self.text_price)
        if isinstance(control, Quoted):
            return [result]
        return [
            self._result(
                Level.OK,
                OVER,
                "a quote does not accept max_cost_credits; according to the service's document, a create does",
            )
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
        self.other_paths = client.other_paths(ticket.asset_id, are_links=False)
        asset, url = self._place(ticket.asset_id, "asset_id", "id"), self._place(ticket.url, "upload_url")
        headers = plural(len(ticket.headers), "header")
        found = [self._understood(UPLOAD, f"the asset id, {asset}; the upload url, {url}; {headers} for the PUT")]
        stored = await client.put_upload(ticket, lambda: chunks(content), len(content))
        if not isinstance(stored, BytesStored):
            message = f"{BYTES.call}\ndocumented: {BYTES.documented}\nreceived: {stored.reason}"
            return [*found, fail(f"{CHECK}, {BYTES.name}", message, exit_status=ExitStatus.UNEXPECTED)]
        found.append(ok(f"{CHECK}, {BYTES.name}", "the storage accepted the bytes"))
        return found + await self._complete(ticket)

    async def _complete(self, ticket: UploadTicket) -> list[CheckResult]:
        client = self.counted.client

        async def send() -> object:
            return await client.complete_uploads([ticket.asset_id])

        reply = await self.counted.ask(RequestKind.UPLOAD, send)
        if isinstance(reply, Refused):
            return [self._rejected_value(COMPLETION, reply, ReplyField.ASSET_ID)]
        if not isinstance(reply, AssetsReady):
            return [self._upload_failed(COMPLETION, reply)]
        self.asset_url = reply.urls[0]
        self.other_paths = client.other_paths(self.asset_url, are_links=True)
        found = [self._understood(COMPLETION, f"the url for `inputs`, {self._place(self.asset_url, 'url')}")]
        recipes = image_recipes(self.models, self.text)
        return found + await self._ask_price(IMAGE_QUOTE, recipes, (self.asset_url,))

    # --- results ---

    def _upload_failed(self, step: Step, reply: object) -> CheckResult:
        if isinstance(reply, Refused):
            words = f"a refusal ({reply.error.code}): items with images cannot run, items without images can"
            return self._result(
                Level.WARN, step, words, "check in the service's description whether it supports uploads"
            )
        return self._failed_step(step, reply, is_vital=isinstance(reply, NotUnderstood))

    def _rejected_value(self, step: Step, refused: Refused, name: ReplyField) -> CheckResult:
        """Report a refusal of a value from an earlier reply: it may have been read from the wrong field."""
        words = (
            f"a refusal ({refused.error.code}) of a value from an earlier reply; the {name} may be in another "
            "field of that reply"
        )
        remedy = self._suggested_line(remedy_line(name, None), self.other_paths)
        result = self._result(Level.FAIL, step, words, remedy)
        return replace(result, exit_status=ExitStatus.UNEXPECTED)

    def _failed_step(self, step: Step, reply: object, *, is_vital: bool = False) -> CheckResult:
        """Report a failed step; end the probe if the account is refused or the service asks for a pause."""
        assert isinstance(reply, TransientError), "every other reply was handled before"
        if isinstance(reply, AccountBlocked):
            self.has_ended = True
            message = (
                f"{step.call}\nreceived: {self.counted.client.describe_last()}\nunderstood: {describe_error(reply)}"
            )
            return fail(f"{CHECK}, {step.name}", message, exit_status=ExitStatus.ACCOUNT_CANNOT_WORK)
        self.has_ended = isinstance(reply, Throttled | EdgeBlocked)
        level = Level.FAIL if is_vital else Level.WARN
        if isinstance(reply, NotUnderstood):
            is_asset = ReplyField.ASSET_ID in str(reply.remedy) or ReplyField.ASSET_URL in str(reply.remedy)
            others = self.counted.client.other_paths("", are_links=step is COMPLETION) if is_asset else ()
            words = f"not understood: it {reply.lacking}"
            result = self._result(Level.WARN, step, words, self._suggested_line(reply.remedy, others))
        else:
            result = self._result(Level.WARN, step, describe_error(reply))
        return replace(result, level=level, exit_status=ExitStatus.UNEXPECTED if is_vital else ExitStatus.OK)

    def _not_found(self, step: Step, words: str, name: ReplyField) -> CheckResult:
        return self._result(Level.WARN, step, f"not understood: {words}", self._suggested_line(remedy_line(name, None)))

    def _understood(self, step: Step, words: str) -> CheckResult:
        """Report a reply that was understood, with its changes since the last probe."""
        types = self.counted.client.last_types()
        changed = self.learned.differences(step.call, types)
        self.learned = self.learned.with_call(step.call, types)
        if changed:
            words = f"{words}\nchanged since the last probe: {'; '.join(changed)}"
        return self._result(Level.WARN if changed else Level.OK, step, words)

    def _result(self, level: Level, step: Step, words: str, remedy: str | None = None) -> CheckResult:
        received = self.counted.client.describe_last()
        message = f"{step.call}\ndocumented: {step.documented}\nreceived: {received}\nunderstood: {words}"
        return CheckResult(f"{CHECK}, {step.name}", level, message, remedy)

    def _place(self, value: str | float, *names: str) -> str:
        place = self.counted.client.path_of(value, *names)
        return f"read at {place}" if place is not None else "read from several places"

    def _refusal_rule(self, refused: Refused) -> str:
        """Return the configuration line that defines the meaning of a refusal."""
        facts = [f"status: {self.counted.client.last_status}"]
        if not refused.error.code.startswith("http_"):
            facts.append("code: '" + refused.error.code.replace("'", "''") + "'")
        return f"replies: {{refusals: [{{{', '.join(facts)}, means: {RefusalMeaning.OVER_QUOTE}}}]}}"

    def _suggested_line(self, line: str | None, others: Sequence[str] = ()) -> str | None:
        """Return the configuration lines to paste; `others` are the paths of other possible values in the reply."""
        if line is None:
            return None
        how = (
            f"if the reply contains it, configure its place: paste below `{self.profile}:` in batchkiln.yaml, and "
            f"probe again\n{line}"
        )
        return f"{how}\nplaces in that reply: {', '.join(others[:_SHOWN])}" if others else how


def described(recipe: Recipe) -> str:
    """Return a short description of a recipe."""
    parameters = ", ".join(str(value) for _, value in recipe.parameters)
    return f"{recipe.model} {recipe.mode}" + (f" ({parameters})" if parameters else "")
