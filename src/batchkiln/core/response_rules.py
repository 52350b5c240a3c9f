"""What a person knows of a service's replies and no reading finds: paths to fields, meanings of refusals."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class ReplyField(StrEnum):
    """A field of a reply whose place the service's document leaves open (contract, section 8).

    `GENERATION` is the whole record; the six after it are looked up in the whole reply, `OUTPUT_URL` in each output.
    Those of uploads give one value per file, or per asset, in the order asked.
    """

    GENERATION = "generation"
    GENERATION_ID = "generation_id"
    STATUS = "status"
    COST = "cost"
    CREATED_AT = "created_at"
    OUTPUTS = "outputs"
    OUTPUT_URL = "output_url"
    PRICE = "price"
    BALANCE = "balance"
    MODELS = "models"
    ASSET_ID = "asset_id"
    UPLOAD_URL = "upload_url"
    UPLOAD_HEADERS = "upload_headers"
    ASSET_URL = "asset_url"
    ERROR_CODE = "error_code"
    ERROR_MESSAGE = "error_message"


class RefusalMeaning(StrEnum):
    """What a refusal means where its own words do not tell."""

    BUSY = "busy"
    NO_CREDITS = "no_credits"
    OVER_QUOTE = "over_quote"
    ASSET_GONE = "asset_gone"
    INVALID = "invalid"


@dataclass(frozen=True, slots=True)
class RefusalRule:
    """One refusal: all that is given has to fit. `code` and `text` are compared without regard to letter case.

    `text` is any part of the service's message, taken literally.
    """

    means: RefusalMeaning
    status: int | None = None
    code: str | None = None
    text: str | None = None

    def fits(self, status: int, code: str, message: str) -> bool:
        """Whether a reply with this status, code and message is meant."""
        return (
            self.status in {None, status}
            and (self.code is None or self.code.casefold() == code.casefold())
            and (self.text is None or self.text.casefold() in message.casefold())
        )


@dataclass(frozen=True, slots=True)
class ReplyRules:
    """The part `replies:` of a profile. `fields` gives a JMESPath per field."""

    fields: Mapping[ReplyField, str] = field(default_factory=dict)
    refusals: tuple[RefusalRule, ...] = ()


def remedy_line(name: ReplyField, path: str | None) -> str:
    """Return the line to paste below the profile's name; `<path>` where there is no guess."""
    quoted = "<path>" if path is None else "'" + path.replace("'", "''") + "'"
    return f"replies: {{fields: {{{name}: {quoted}}}}}"
