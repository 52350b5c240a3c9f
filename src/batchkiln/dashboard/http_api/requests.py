"""The parameters and bodies of requests, validated by pydantic. The description is made of the same models."""

from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from batchkiln.core.states import ItemState

LIMIT_DEFAULT = 100
LIMIT_MAX = 1000
JOBS_MAX = 100
ITEMS_MAX = 10_000

_ID_MAX = 2**63 - 1
_NAME_MAX = 1000
_WORD_MAX = 200  # percent-encoded, a few of them fit into a URL

Name = Annotated[str, Field(min_length=1, max_length=_NAME_MAX)]
JobName = Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,64}$")]
Place = Annotated[int, Field(ge=0, le=_ID_MAX)]


def _whole(value: object) -> object:
    """Return a number such as 1.0 as an integer, which it is in JSON; anything else unchanged."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


Version = Annotated[int, Field(ge=1, le=1_000_000), BeforeValidator(_whole)]


class Query(BaseModel):
    """The parameters of a request. Other parameters are mistakes."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class JobsQuery(Query):
    """A page of jobs."""

    after: JobName | None = Field(default=None, description="The name of the last job of the page before.")
    limit: int = Field(default=50, ge=1, le=JOBS_MAX)


class ItemsQuery(Query):
    """A page of a job's items, with the filters of `batchkiln items`."""

    state: tuple[ItemState, ...] = Field(default=(), description="Only items in these states.")
    code: Annotated[str, Field(min_length=1, max_length=_WORD_MAX)] | None = Field(
        default=None, description="Only items with this error code."
    )
    where: tuple[Annotated[str, Field(max_length=_WORD_MAX, pattern=r"^metadata\.[^=]+=")], ...] = Field(
        default=(), description="Only items with all these metadata values, as metadata.KEY=VALUE, each key once."
    )
    verdict: Literal["kept", "dropped", "unreviewed"] | None = Field(
        default=None, description="Only items with this verdict; `unreviewed` are done items without one."
    )
    after: Place = Field(default=0, description="The `next` of the page before.")
    limit: int = Field(default=LIMIT_DEFAULT, ge=1, le=LIMIT_MAX)


class OutputQuery(Query):
    """One saved file."""

    version: Version | None = Field(default=None, description="A version of the item; by default the current one.")
    download: bool = Field(default=False, description="Name the file as an attachment.")


class ReviewQuery(Query):
    """A step of a review."""

    at: Place | None = Field(default=None, description="The place of the step; by default the first with something.")
    all: bool = Field(default=False, description="Go through all done items, also through reviewed ones.")


class EventsQuery(Query):
    """A page of the history."""

    after: Place = Field(default=0, description="The `next` of the page before.")
    limit: int = Field(default=LIMIT_DEFAULT, ge=1, le=LIMIT_MAX)
    job: JobName | None = Field(default=None, description="Only events of this job.")


class StreamQuery(Query):
    """The stream of the history."""

    after: Place | None = Field(
        default=None, description="Begin after this event; `Last-Event-ID` comes first. By default, begin now."
    )
    job: JobName | None = Field(default=None, description="Only events of this job.")


class EnqueueQuery(Query):
    """The options of `batchkiln enqueue`."""

    dry_run: bool = Field(default=False, description="Only plan: changes, cost and days. Spends nothing.")
    on_change: Literal["error", "keep", "redo"] = Field(
        default="error", description="What to do with changed items that were sent. `redo` also needs `decide`."
    )
    prune: bool = Field(
        default=False, description="Cancel items that left the manifest and were never sent. Also needs `decide`."
    )
    allow_duplicates: bool = Field(
        default=False, description="Pay again for requests that the job has already paid for under other ids."
    )


class ActionQuery(Query):
    """An action that may cost credits."""

    dry_run: bool = Field(default=False, description="Only state the cost. Nothing is changed.")


class Body(BaseModel):
    """The body of a request. Other fields are mistakes, and so are values of other types."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


_Items = Annotated[list[Name], Field(min_length=1, max_length=ITEMS_MAX)]


class VerdictBody(Body):
    """The items to decide about: ids, or ids with the version that was seen. Another current version is a conflict."""

    items: _Items | Annotated[dict[Name, Version], Field(min_length=1, max_length=ITEMS_MAX)]


class SomeItemsBody(Body):
    """The named items, or all that the action applies to."""

    items: _Items | None = None
    agreed: Annotated[str, Field(max_length=200)] | None = Field(
        default=None, description="The `agreed` of the dry run: the figures that are confirmed."
    )


class RedoBody(Body):
    """The items to make again."""

    items: _Items
    agreed: Annotated[str, Field(max_length=200)] | None = Field(
        default=None, description="The `agreed` of the dry run: the figures that are confirmed."
    )


class AgreedBody(Body):
    """The confirmed figures of a whole job."""

    agreed: Annotated[str, Field(max_length=200)] | None = None


class FetchBody(Body):
    """The items whose files are looked for; by default all."""

    items: _Items | None = None


class VersionBody(Body):
    """The version of an item whose files become current."""

    item: Name
    version: Version
