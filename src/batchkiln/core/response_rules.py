"""The user's rules for reading a service's replies: paths of fields, and meanings of refusals."""

from collections.abc import Mapping
from enum import StrEnum

from msgspec import Struct, field


class ReplyField(StrEnum):  # contract, section 8
    """A field of a reply whose position the service does not document.

    `GENERATION` is the whole record. The next five, from `GENERATION_ID` to `OUTPUTS`, are paths in the whole reply;
    `OUTPUT_URL` is a path in each output. Fields of uploads give one value per file or asset, in the order requested.
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
    """The configurable meanings of a refusal."""

    BUSY = "busy"
    NO_CREDITS = "no_credits"
    OVER_QUOTE = "over_quote"
    ASSET_GONE = "asset_gone"
    INVALID = "invalid"


class RefusalRule(Struct, frozen=True):
    """A rule for refusals; all its conditions have to match. Letter case is ignored.

    `text` is any part of the service's message, taken literally.
    """

    means: RefusalMeaning
    status: int | None = None
    code: str | None = None
    text: str | None = None

    def fits(self, status: int, code: str, message: str) -> bool:
        """Return whether the rule matches a reply with this status, code and message."""
        return (
            self.status in {None, status}
            and (self.code is None or self.code.casefold() == code.casefold())
            and (self.text is None or self.text.casefold() in message.casefold())
        )


class ReplyRules(Struct, frozen=True):
    """The section `replies:` of a profile. `fields` maps each field to a JMESPath."""

    fields: Mapping[ReplyField, str] = field(default_factory=dict)
    refusals: tuple[RefusalRule, ...] = ()


def remedy_line(name: ReplyField, path: str | None) -> str:
    """Return the configuration line for a field, to add below the profile's name.

    Without a guess, the line contains `<path>`.
    """
    quoted = "<path>" if path is None else "'" + path.replace("'", "''") + "'"
    return f"replies: {{fields: {{{name}: {quoted}}}}}"
