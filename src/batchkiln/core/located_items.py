"""Items of a manifest with the places that define them: one at a time, or many that differ in a few texts alone."""

from collections.abc import Iterator, Sequence

from msgspec import Struct

from batchkiln.core.catalog_checks import PlacedObjection
from batchkiln.core.job import InputFile, ItemSpec, Recipe, SourceRef


class LocatedItem(Struct):
    """An item and its location: the line (from 1) of the manifest, or of its row's source file.

    `objections` are the reasons, from the service's catalogue, why the service would refuse the item. `repetition` is
    the number of an item of `repeat`, 0 for other items. `has_default_id`: the id is made from the position alone.
    """

    spec: ItemSpec
    file: str
    line: int
    objections: tuple[PlacedObjection, ...] = ()
    repetition: int = 0
    has_default_id: bool = False


class SimilarItems(Struct, frozen=True):
    """Items of some rows of a file that differ in name, prompt and metadata alone. The sequences are equally long.

    The others are the fields of `ItemSpec` and `LocatedItem`. `metadata` is None if no item has any. `series` is not
    None if the names of all items with the same series differ: they are made of the numbers of an entry's rows.
    """

    file: str
    lines: Sequence[int]
    names: Sequence[str]
    prompts: Sequence[str]
    metadata: Sequence[str] | None
    recipe: Recipe
    inputs: tuple[InputFile | SourceRef, ...] = ()
    priority: int = 0
    needs_review: bool = False
    objections: tuple[PlacedObjection, ...] = ()
    series: object | None = None

    def __len__(self) -> int:
        """Return the number of items."""
        return len(self.names)

    def __iter__(self) -> Iterator[LocatedItem]:
        """Yield the items one at a time."""
        for place, (line, name, prompt) in enumerate(zip(self.lines, self.names, self.prompts, strict=True)):
            metadata = None if self.metadata is None else self.metadata[place]
            spec = ItemSpec(
                name, self.recipe, prompt, self.inputs, self.priority, metadata, needs_review=self.needs_review
            )
            yield LocatedItem(spec, self.file, line, self.objections)
