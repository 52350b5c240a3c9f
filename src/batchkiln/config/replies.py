"""The part `replies:` of a profile, as the file has it: where fields of replies stand, and what refusals mean."""

from typing import Annotated, Self

import jmespath
from jmespath.exceptions import JMESPathError
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from batchkiln.core.response_rules import RefusalMeaning, RefusalRule, ReplyField, ReplyRules

_PATH_MAX_CHARACTERS = 500


def _checked_path(path: str) -> str:
    """Refuse what is no JMESPath; a JSON Pointer is told apart, since it looks alike."""
    if path.startswith("/"):
        raise ValueError("this is a JSON Pointer; a JMESPath is expected, as data.files[].id")
    try:
        jmespath.compile(path)
    except (JMESPathError, RecursionError, ValueError) as error:
        reason = str(error).partition("\n")[0]
        raise ValueError(f"this is no JMESPath, as data.files[].id is one: {reason}") from None
    return path


_Path = Annotated[str, Field(min_length=1, max_length=_PATH_MAX_CHARACTERS), AfterValidator(_checked_path)]


class Refusal(BaseModel):
    """One refusal: all that is given has to fit; letter case does not count, and `text` is any part of the message."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    means: RefusalMeaning
    status: int | None = Field(default=None, ge=200, le=599)
    code: str | None = Field(default=None, min_length=1, max_length=200)
    text: str | None = Field(default=None, min_length=3, max_length=200)

    @model_validator(mode="after")
    def _says_which(self) -> Self:
        if self.status is None and self.code is None and self.text is None:
            raise ValueError("a refusal is told by at least one of status, code and text")
        return self


class Replies(BaseModel):
    """Where the fields of this service's replies stand, and what its refusals mean."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    fields: dict[ReplyField, _Path] = Field(default_factory=dict)
    refusals: tuple[Refusal, ...] = Field(default=(), max_length=100)

    def rules(self) -> ReplyRules:
        """Return them as used."""
        refusals = (RefusalRule(each.means, each.status, each.code, each.text) for each in self.refusals)
        return ReplyRules(dict(self.fields), tuple(refusals))
