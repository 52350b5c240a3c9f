"""The kinds of faults, the endpoints where they can occur, and the rules that request them. Pure."""

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Annotated, Any, Final, Literal, Self, get_args

from msgspec import Struct
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from batchkiln_service.errors import meant, sentence_of

Misbehaviour = Literal[
    "reset_before",  # the connection is reset before any work
    "throttle",  # 429 with Retry-After: `seconds`, or 1; no work
    "unavailable",  # 503, with Retry-After if `seconds` is given; no work
    "edge_block",  # the firewall's HTML 403; no work
    "html",  # 200 with an HTML page; no work
    "storage_error",  # the storage's 500 in XML; no work
    "storage_unavailable",  # the storage's 503 in XML, with Retry-After if `seconds` is given; no work
    "slow",  # the work is done, the reply is delayed by `seconds`
    "reply_lost",  # the work is done, the connection closes without a reply
    "reset_after",  # the work is done, the connection is reset without a reply
    "cut_body",  # the work is done, half of the body is sent
    "wrong_length",  # a download or a stored upload has `extra_bytes` more than it should (default: -1)
    "refuse_replay",  # the replay of an accepted create is refused, as if the account's state had changed; no work
    "wrong_date",  # the work is done, Date is wrong by `seconds` (default: a year) and some varying hours
    "wrong_cost",  # a record shows a cost of 0 until its generation has ended
    "wrong_creation",  # a record shows a creation time `seconds` too early (default: a month)
    "fail_generation",  # the created generation fails, and is refunded
    "cancel_generation",  # the created generation is canceled
    "stay_pending",  # the created generation stays pending for `seconds`, or forever
    "slow_generation",  # the created generation takes `seconds` more, or `factor` times as long (default: 10)
    "link_dies_early",  # download links expire after `seconds` (default: at once), despite their `expires_at`
    "upload_link_dies_early",  # upload links expire after `seconds` (default: at once), despite their `expires_at`
]
Endpoint = Literal[
    "any", "create", "upload", "complete", "read", "quote", "poll", "models", "balance", "openapi", "put", "download"
]
KINDS: Final[tuple[Misbehaviour, ...]] = get_args(Misbehaviour)
# Settings are bounded, because any client may send them and instants and lengths have to be storable.
MAX_SECONDS: Final = 10 * 365 * 86_400
MAX_FACTOR: Final = 1e6
MAX_EXTRA_BYTES: Final = 1024 * 1024
MAX_COUNT: Final = 10**12
BEFORE: Final = frozenset(
    {"reset_before", "throttle", "unavailable", "edge_block", "html", "storage_error", "storage_unavailable"}
)
DELAY: Final = frozenset({"slow"})
REPLY: Final = frozenset({"reply_lost", "reset_after", "cut_body", "wrong_length", "refuse_replay"})
FALSEHOOD: Final = frozenset({"wrong_date", "wrong_cost", "wrong_creation"})
OUTCOME: Final = frozenset({"fail_generation", "cancel_generation", "stay_pending", "slow_generation"})
LINK: Final = frozenset({"link_dies_early"})
UPLOAD_LINK: Final = frozenset({"upload_link_dies_early"})

_STORAGE: Final = frozenset({"put", "download"})
_EVERYWHERE: Final = frozenset(get_args(Endpoint)) - {"any"}
_COMMON_NAMES: Final = frozenset({"read", "upload"})  # shared by several endpoints; "upload" is also the name of one
# The endpoints of kinds that cannot occur everywhere.
_PLACES: Final[Mapping[str, frozenset[str]]] = {
    "edge_block": _EVERYWHERE - _STORAGE,  # the firewall stands only before the API
    "cut_body": _EVERYWHERE - {"put"},  # the reply to a PUT has no body
    "storage_error": _STORAGE,
    "storage_unavailable": _STORAGE,
    "wrong_length": _STORAGE,
    "refuse_replay": frozenset({"create"}),
    "wrong_date": _EVERYWHERE - _STORAGE,
    "wrong_cost": frozenset({"create", "poll"}),
    "wrong_creation": frozenset({"create", "poll"}),
    **dict.fromkeys(OUTCOME, frozenset({"create"})),
    "link_dies_early": frozenset({"poll"}),
    "upload_link_dies_early": frozenset({"upload"}),
}
# The kinds that a setting applies to.
_USES: Final[Mapping[str, frozenset[str]]] = {
    "seconds": frozenset(
        {"throttle", "unavailable", "storage_unavailable", "slow", "stay_pending", "slow_generation"}
        | {"wrong_date", "wrong_creation"}
        | LINK
        | UPLOAD_LINK
    ),
    "factor": frozenset({"slow_generation"}),
    "extra_bytes": frozenset({"wrong_length"}),
}
SETTINGS: Final = tuple(_USES)
_SUBJECTLESS: Final = frozenset(
    {"models", "balance", "openapi", "upload", "complete", "put"}
)  # neither model nor prompt


class Subject(Struct, frozen=True):
    """The data of a request that a rule may match; `endpoints` are the endpoint's names."""

    endpoints: frozenset[str]
    method: str = ""
    path: str = ""
    account: str | None = None
    model: str | None = None
    prompt: str | None = None


class FaultMatch(BaseModel):
    """A filter for requests; all given fields must match.

    `prompt` is a part of the prompt. `path` is a glob over the path below the base URL ("/generations/*") or, for the
    storage, below the host ("/storage/outputs/*"). Polls and downloads match by model and prompt of their generation.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    account: str | None = None
    model: str | None = None
    prompt: str | None = None
    method: Literal["GET", "HEAD", "POST", "PUT"] | None = None
    path: str | None = None

    @property
    def needs_details(self) -> bool:
        """Whether the filter needs account, model or prompt."""
        return (self.account, self.model, self.prompt) != (None, None, None)

    def fits(self, subject: Subject) -> bool:
        """Return whether a request matches."""
        return (
            self.account in {None, subject.account}
            and self.model in {None, subject.model}
            and self.method in {None, subject.method}
            and (self.prompt is None or (subject.prompt is not None and self.prompt in subject.prompt))
            and (self.path is None or fnmatchcase(subject.path, self.path))
        )


class FaultRule(BaseModel):
    """A fault: its kind, place and frequency.

    `times` None is unlimited. The first `after` matching requests pass. Of the others, each `every`-th is affected,
    with the given `probability`. `seconds` is service time.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Misbehaviour
    endpoint: Endpoint = "any"
    times: Annotated[int, Field(ge=1, le=MAX_COUNT)] | None = 1
    after: Annotated[int, Field(ge=0, le=MAX_COUNT)] = 0
    every: Annotated[int, Field(ge=1, le=MAX_COUNT)] = 1
    probability: Annotated[float, Field(ge=0, le=1)] = 1.0
    # Seed of the rule's random stream; default: derived from the service's seed and the rule's number.
    seed: Annotated[int, Field(ge=-(2**63), lt=2**63)] | None = None
    seconds: Annotated[float, Field(ge=0, le=MAX_SECONDS, allow_inf_nan=False)] | None = None
    factor: Annotated[float, Field(gt=0, le=MAX_FACTOR, allow_inf_nan=False)] | None = None
    extra_bytes: Annotated[int, Field(ge=-MAX_EXTRA_BYTES, le=MAX_EXTRA_BYTES)] | None = None
    match: FaultMatch = FaultMatch()

    @model_validator(mode="after")
    def _makes_sense(self) -> Self:
        places = places_of(self.kind)
        if self.endpoint != "any" and self.endpoint not in places:
            raise ValueError(
                f"{self.kind} cannot occur at the endpoint {self.endpoint}; allowed: any, {', '.join(sorted(places))}"
            )
        for setting, kinds in _USES.items():
            if getattr(self, setting) is not None and self.kind not in kinds:
                raise ValueError(f"{setting} does not apply to {self.kind}; it applies to {', '.join(sorted(kinds))}")
        if self.kind == "slow" and self.seconds is None:
            raise ValueError("slow needs seconds")
        if self.seconds is not None and self.factor is not None:
            raise ValueError("give either seconds or factor")
        if self.extra_bytes == 0:
            raise ValueError("extra_bytes is the number of added bytes, or of missing ones if negative; it cannot be 0")
        return self

    @model_validator(mode="after")
    def _match_makes_sense(self) -> Self:
        asks_for_prompt = self.match.model is not None or self.match.prompt is not None
        if asks_for_prompt and self.endpoint in _SUBJECTLESS:
            raise ValueError(f"requests to the endpoint {self.endpoint} have no model and no prompt to match")
        if self.match.account is not None and self.endpoint == "openapi":
            raise ValueError("requests to the endpoint openapi have no account to match")
        return self


def places_of(kind: Misbehaviour) -> frozenset[str]:
    """Return the endpoints where a kind can occur."""
    return _PLACES.get(kind, _EVERYWHERE)


def own_name(endpoints: frozenset[str]) -> str:
    """Return the one among an endpoint's names that no other endpoint has."""
    return min(endpoints - _COMMON_NAMES or endpoints)


def is_at(rule: FaultRule, endpoints: frozenset[str]) -> bool:
    """Return whether a rule is for the endpoint with these names."""
    return own_name(endpoints) in places_of(rule.kind) and (rule.endpoint == "any" or rule.endpoint in endpoints)


def parse_fault_header(text: str, endpoints: frozenset[str]) -> list[FaultRule]:
    """Return the rules in a fault header, such as "slow; seconds=3, reply_lost".

    Raise ValueError, with the allowed values, if the text is malformed or a fault cannot occur at this endpoint.
    """
    allowed = [kind for kind in KINDS if own_name(endpoints) in places_of(kind)]
    rules = []
    for part in text.split(","):
        kind, *settings = (piece.strip() for piece in part.split(";"))
        if kind not in allowed:
            listed = f"{meant(kind, allowed)}allowed: {', '.join(allowed)}"
            raise ValueError(f"{kind!r} is not a fault of this endpoint; {listed}")
        rules.append(_asked_rule(kind, settings))
    return rules


def _asked_rule(kind: str, settings: Sequence[str]) -> FaultRule:
    given: dict[str, Any] = {}
    for setting in settings:
        name, is_given, value = (piece.strip() for piece in setting.partition("="))
        if name not in _USES or not is_given or name in given:
            raise ValueError(f"{setting!r} is not understood; allowed, once each: {', '.join(f'{n}=…' for n in _USES)}")
        given[name] = value
    try:
        return FaultRule(kind=kind, **given)
    except ValidationError as error:
        raise ValueError(f"{kind}: {sentence_of(error.errors()[0])}") from error
