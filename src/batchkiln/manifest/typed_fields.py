"""The fields of a manifest as types, for programs that give items and manifests as mappings.

They help editors and type checkers only: the reader of manifests checks the same values again, by `schema.py`.
"""

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, Required, TypedDict

Mode = Literal["text-to-video", "image-to-video", "text-to-image", "image-to-image"]


class Parameters(TypedDict, total=False):
    """The service's `parameters`, by their names. None removes a default."""

    resolution: str | None
    aspect_ratio: str | None
    duration_seconds: int | None
    generate_audio: bool | None
    image_mode: Literal["first-frame", "first-last-frame", "reference-image"] | None
    output_format: Literal["png", "jpg"] | None
    google_search: bool | None


class ItemInput(TypedDict, total=False):
    """An input image that another item makes: the id of that item, and which of its outputs (1 is the first)."""

    item: Required[str]
    output: int | None
    job: str | None
    choice: int | None


class Defaults(TypedDict, total=False):
    """The fields that all items of a job may share; an item's own value takes precedence.

    `inputs` are local image files, or what other items make. `max_cost_credits` is the maximum cost of one item.
    """

    model: str | None
    mode: Mode | None
    parameters: Parameters | None
    inputs: Sequence[str | os.PathLike[str] | ItemInput] | None
    max_cost_credits: int | None
    attempts: int | None
    priority: int | None
    metadata: Mapping[str, object] | None
    variants: int | None
    choose: int | None
    review: bool | None


class Item(Defaults, total=False):
    """One prompt. `id` is unique in the job; without it, an item is called `item` and its position, from 1."""

    prompt: Required[str]
    id: str | None
    repeat: int | None


class TemplatedParameters(TypedDict, total=False):
    """The service's `parameters`, of which each may be a template."""

    resolution: str | None
    aspect_ratio: str | None
    duration_seconds: int | str | None
    generate_audio: bool | str | None
    image_mode: str | None
    output_format: str | None
    google_search: bool | str | None


class _Templated(TypedDict, total=False):
    id: str | None
    model: str | None
    mode: str | None
    parameters: TemplatedParameters | None
    inputs: Sequence[str | os.PathLike[str] | ItemInput] | None
    max_cost_credits: int | str | None
    attempts: int | str | None
    priority: int | str | None
    metadata: Sequence[str] | Mapping[str, object] | None
    variants: int | str | None
    choose: int | str | None
    review: bool | str | None
    where: str | None
    repeat: int | None


_From = TypedDict("_From", {"from": str | os.PathLike[str]})  # a keyword, so not possible as a class


class TableItems(_From, _Templated, total=False):
    """One item for each row of the file or URL `from`. Texts may be templates over its columns."""

    prompt: str | None
    offset: int | None
    limit: int | None


class MatrixItems(_Templated, total=False):
    """One item for each combination of the values of `matrix`. Texts may be templates over its names."""

    matrix: Required[Mapping[str, Sequence[str | int | float]]]
    prompt: Required[str]


class Budget(TypedDict, total=False):
    """The credits that the job may reserve, in all and for each UTC day."""

    credits: int | None
    credits_per_day: int | None


class Output(TypedDict, total=False):
    """The folder or URL of the output files, and the patterns of their names."""

    dir: str | os.PathLike[str] | None
    filename: str | None
    versions: str | None
    sidecar: Literal["json", "txt"] | None


class JobFields(TypedDict, total=False):
    """A manifest's fields beside its version and its items."""

    job: Required[str]
    description: str | None
    profile: str | None
    account: str | None
    accounts: Sequence[str] | None
    order: Literal["manifest", "pack"] | None
    budget: Budget | None
    notify: Sequence[str] | None
    defaults: Defaults | None
    output: Output | None


AnyItem = str | Item | TableItems | MatrixItems
"""A prompt alone, one item with its fields, or an entry that makes several items."""


class Manifest(JobFields):
    """A whole manifest. Its `version` is 1."""

    version: Literal[1]
    items: Iterable[AnyItem]
