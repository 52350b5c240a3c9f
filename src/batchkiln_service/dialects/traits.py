"""The traits of dialects, and how a dialect is drawn from a seed.

Each trait is drawn independently, so that one can be reset without changing the others: a dialect that a client does
not understand is reduced to the traits that matter.
"""

import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Final, Self

from batchkiln_service.config import ServiceConfig
from batchkiln_service.rules.windows import Counting

_ID_BYTES: Final = 12  # of the service's identifiers, without their prefix
_NUMBER_BYTES: Final = 5  # of numeric identifiers, which every JSON parser keeps exact
NUMBERS: Final = frozenset({"int", "digits"})
_ASSET_LIVES: Final = {"fourteen_days": 14 * 86_400.0, "day": 86_400.0, "hours": 4 * 3_600.0}
_LINK_LIVES: Final = {"fifteen_minutes": 900.0, "five_minutes": 300.0, "minute": 60.0}

Options = tuple[tuple[str, int], ...]  # with weights; the first option is that of the service without a dialect


def _options(**weights: int) -> Options:
    return tuple(weights.items())


def _even(*names: str) -> Options:
    return tuple((name, 1) for name in names)


# fmt: off
TRAITS: Final[Mapping[str, Options]] = {
    # Envelopes.
    "envelope": _options(none=30, data=20, result=6, response=4, payload=4, status_data=10, success_data=10,
                         code_data=6, nested=4, list_of_one=3, json_api=5),
    "enveloped": _options(all=60, but_records=15, only_lists=15, only_records=10),
    "spelling": _options(snake=45, camel=30, kebab=10, pascal=15),
    "extras": _options(none=25, few=40, many=35),
    "json_type": _options(plain=70, charset=15, vendor=10, hal=5),
    "reply_headers": _options(none=50, request_id=25, rate_limits=25),
    "date_header": _options(always=82, never=8, successes=5, days_ahead=2, days_behind=3),
    # Statuses of successful replies.
    "prepare_status": _options(ok=40, created=40, accepted=20),
    "complete_status": _options(ok=60, created=20, accepted=20),
    "quote_status": _options(ok=80, created=20),
    "put_status": _options(ok=50, no_content=30, created=20),
    # Identifiers.
    "generation_id": _options(prefix_hex=30, uuid=25, digits=15, base62=15, long=5, upper=10),
    "id_echo": _options(same=95, upper=3, lower=2),
    "asset_id": _options(prefix_hex=25, uuid=25, int=20, digits=5, base62=10, long=10, upper=5),
    # Uploads.
    "asset_name": _even("asset_id", "id", "file_id", "ref", "key", "handle", "token", "uuid", "image_id", "upload_id",
                        "media_id", "asset", "resource_id", "identifier", "name_id"),
    "asset_place": _options(beside=55, object=20, above=15, within=10),
    "tickets": _options(list=50, bare_list=10, map_by_id=10, map_by_name=10, parallel=5, flat_if_one=5, map_by_index=5,
                        list_in_list=5),
    "tickets_name": _even("uploads", "files", "items", "assets", "data", "results", "targets", "entries"),
    "ticket_file": _options(name=50, filename=15, original_name=10, file_object=10, none=15),
    "upload_headers": _options(object=60, pairs=12, name_value=14, key_value=6, numbers=8),
    "other_ids": _options(none=60, upload=20, batch=10, owner=10),
    # Completions.
    "assets": _options(list=60, bare_list=10, map_by_id=12, flat_if_one=8, parallel=4, list_in_list=6),
    "assets_name": _even("assets", "files", "items", "data", "results", "uploads", "images"),
    "assets_order": _options(same=75, reversed=25),
    "completed_name": _options(same=80, other=12, none=8),
    "url_place": _options(flat=70, nested=20, content=10),
    # Quote and balance.
    "quote": _options(flat=55, quote=15, pricing=15, estimate=10, list=5),
    "quote_number": _options(int=85, float=15),
    "balance": _options(flat=40, nested=25, parts=15, text=8, float=7, deep=5),
    "balance_name": _even("balance", "credits", "remaining", "available", "credits_remaining", "balance_credits",
                          "credit_balance", "remaining_credits", "available_credits", "amount"),
    # The catalogue.
    "models": _options(list=55, bare_list=15, map=20, grouped=10),
    "models_name": _even("models", "data", "items", "results", "catalog"),
    "model_name": _even("id", "model", "name", "model_id", "slug"),
    "capabilities": _options(flat=50, nested=30, by_mode=20),
    "durations": _options(list=50, range=20, texts=15, objects=15),
    "limits_names": _even("plain", "max", "nested", "short"),
    # Generation records.
    "cost": _options(final=80, zero_while_pending=20),
    "cost_after_failure": _options(same=75, zero=25),
    "expires_at": _options(milliseconds=60, seconds=20, offset=10, microseconds=10),
    "failure": _options(code_message=40, type_detail=15, text=15, reason=15, list=5, nested=10),
    "image_type": _options(image=50, picture=8, media_type=17, extension=10, photo=8, still=7),
    "outputs": _options(one=72, poster=14, two=8, poster_first=6),
    "outputs_order": _options(same=80, changing=20),
    "image_file": _options(asked=80, webp=7, jpg=5, gif=2, bmp=2, tiff=2, avif=2, svg=1, heic=1,
                         jxl=1),
    "video_file": _options(asked=85, webm=5, mov=4, mkv=3, gif=3),
    "media_type": _options(right=75, octets=15, none=10),
    "file_etag": _options(strong=70, weak=15, none=15),
    "file_ranges": _options(yes=80, no=20),
    "file_length": _options(described_as=90, chunked=10),
    # Errors.
    "error": _options(nested=28, flat=15, problem=15, list=8, detail_list=5, detail_text=7, detail_object=6, text=3,
                      status_message=6, error_text=7),
    "error_enveloped": _options(no=85, yes=15),
    "code_spelling": _options(snake=55, upper=15, camel=10, kebab=10, dotted=5, number=5),
    "words": _even("first", "second", "third", "fourth"),
    "invalid_status": _options(s422=50, s400=50),
    "over_quote_status": _options(s422=30, s400=25, s409=10, s402=15, s412=15, s403=5),
    "asset_gone_status": _options(s422=30, s404=25, s410=15, s400=20, s409=10),
    "no_credits_status": _options(s402=50, s403=25, s422=10, s400=15),
    "busy_status": _options(s429=65, s409=15, s423=7, s400=5, s403=4, s425=4),
    "not_found_status": _options(s404=85, s410=15),
    "retry_after": _options(seconds=50, date=18, missing=12, zero=6, one=6, past_date=5, negative=3),
    "edge_page": _options(html=60, text=25, empty=15),
    "unavailable_page": _options(json=60, html=25, empty=15),
    # Replays of a known key.
    "replay": _options(record=78, in_progress=14, limits_first=8),
    "in_progress_status": _options(s409=50, s425=20, s423=15, s429=10, s400=5),
    # Rate limits.
    "minutes": _options(sliding=65, fixed=35),
    "refused_requests": _options(free=65, counted=35),
    "completions": _options(counted=70, free=30),
    # Lifetimes of links and media.
    "asset_life": _options(fourteen_days=70, day=20, hours=10),
    "link_life": _options(fifteen_minutes=70, five_minutes=20, minute=10),
    # The interface description: always true, not always helpful.
    "description_texts": _options(full=60, some=25, none=15),
    "description_form": _options(references=60, inline=40),
}
# fmt: on


@dataclass(frozen=True)
class Dialect:
    """A dialect: an option for each trait. Choices within a trait come from the seed, too."""

    seed: int
    chosen: Mapping[str, str] = field(hash=False)

    @classmethod
    def draw(cls, seed: int) -> Self:
        """Return the dialect of a seed; it is the same on every machine."""
        return cls(seed, {trait: _drawn(seed, trait, options) for trait, options in TRAITS.items()})

    @classmethod
    def of(cls, config: ServiceConfig) -> Self | None:
        """Return the configured dialect; None without one. Raises ValueError for an unknown trait."""
        return None if config.dialect is None else cls.draw(config.dialect).without(config.dialect_without)

    def without(self, traits: Iterable[str]) -> Self:
        """Return the dialect without these traits. Raises ValueError for an unknown trait."""
        unknown = set(traits := list(traits)) - set(TRAITS)
        if unknown:
            raise ValueError(f"there is no trait {', '.join(sorted(unknown))}; there are: {', '.join(TRAITS)}")
        return type(self)(self.seed, {**self.chosen, **{trait: TRAITS[trait][0][0] for trait in traits}})

    def __getitem__(self, trait: str) -> str:
        return self.chosen[trait]

    def number(self, subject: str, below: int) -> int:
        """Return a number below a bound that depends only on the seed and the subject."""
        return _digest(self.seed, subject) % below

    def new_id(self, prefix: str) -> str:
        """Return a new identifier that the dialect's form of identifiers can represent."""
        trait = "asset_id" if prefix == "ast" else "generation_id"
        size = _NUMBER_BYTES if self[trait] in NUMBERS else _ID_BYTES
        number = int.from_bytes(secrets.token_bytes(size)) | 1 << 8 * size - 1  # never fewer digits
        return f"{prefix}_{number:0{2 * _ID_BYTES}x}"

    def in_configuration(self, config: ServiceConfig) -> ServiceConfig:
        """Return the configuration with the dialect's lifetimes of links and media."""
        lives = {
            "asset_retention_seconds": _ASSET_LIVES[self["asset_life"]],
            "link_seconds": _LINK_LIVES[self["link_life"]],
        }
        chosen = {name: min(seconds, getattr(config, name)) for name, seconds in lives.items()}
        return config.model_copy(update=chosen)

    @property
    def counting(self) -> Counting:
        """The way in which requests are counted in windows."""
        return Counting(
            has_fixed_minutes=self["minutes"] == "fixed",
            counts_refused=self["refused_requests"] == "counted",
            counts_completions=self["completions"] == "counted",
        )

    @property
    def unlike_plain(self) -> tuple[str, ...]:
        """The traits in which the dialect differs from the service without a dialect."""
        return tuple(trait for trait, options in TRAITS.items() if self.chosen[trait] != options[0][0])

    def as_document(self) -> dict[str, object]:
        """Return the seed and the options, for JSON."""
        return {"seed": self.seed, "traits": dict(self.chosen)}


def _drawn(seed: int, trait: str, options: Options) -> str:
    at = _digest(seed, trait) % sum(weight for _, weight in options)
    for option, weight in options:
        at -= weight
        if at < 0:
            return option
    raise AssertionError("weights add up")


def _digest(seed: int, subject: str) -> int:
    return int.from_bytes(sha256(f"{seed} {subject}".encode()).digest()[:8])
