"""Staging of a manifest's items in temporary tables until all of them are known.

The database keeps them on disk, so that memory stays constant. They are never synced, and end with the connection. The
queue is only read, except that missing recipes and images are stored at once, which is harmless if the manifest is then
refused.
"""

import hashlib
import json
import marshal
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import repeat
from typing import Final, Protocol

from batchkiln.core.catalog_checks import PlacedObjection
from batchkiln.core.errors import Diagnostic, InputError
from batchkiln.core.filenames import fields, identifies_item, render
from batchkiln.core.job import InputFile, ItemSpec, JobSpec, Recipe, SourceRef
from batchkiln.core.located_items import SimilarItems
from batchkiln.core.request import parameters_json, price_key, recipe_key
from batchkiln.core.unread_items import ItemsInvalid, UnreadItems
from batchkiln.store import drivers
from batchkiln.store.references import References, refs_of
from batchkiln.store.session import Session, StagingSession, transaction
from batchkiln.store.sql import query
from batchkiln.store.variants import Variants

ROWS_AT_ONCE: Final = 2_000
MISTAKES_SHOWN: Final = 100
"""Maximum number of errors of one kind to show; the others are counted."""

OBJECTIONS_KEPT: Final = 1_000
_MORE_CLEAR: Final = -1  # stands for the number of an objection that is not kept
_MORE: Final = -2
_CATALOGUE_REMEDY: Final = "if the catalogue is wrong, use --no-catalogue"
_SAME_ENTRY_REMEDY: Final = (
    "use a different id for each: in a matrix, one with its variables; in two entries of one file, one of each"
)
_DEFAULT_ID: Final = "item"
_IDS_KEPT: Final = 20_000  # recipes and images whose ids are kept in memory; others are read again


class DiagnosticAt(Protocol):
    """Creates an error in the manifest's format, with the text of the line."""

    def __call__(
        self, file: str, line: int, reason: str, remedy: str | None, column: int | None = None, /
    ) -> Diagnostic:
        """Return the error at a line of a file, with reason and remedy.

        Without `column`, it concerns the whole line.
        """


class Placed(Protocol):
    """An item and the place in the manifest that defines it; lines count from 1."""

    @property
    def spec(self) -> ItemSpec:
        """The requested item."""

    @property
    def file(self) -> str:
        """The name of the file that defines the item."""

    @property
    def line(self) -> int:
        """The line that defines the item."""

    @property
    def objections(self) -> tuple[PlacedObjection, ...]:
        """The objections of the service's catalogue."""

    @property
    def repetition(self) -> int:
        """The number of an item of `repeat`; 0 for other items."""

    @property
    def has_default_id(self) -> bool:
        """Whether the id is the default: `item` and the position."""


@contextmanager
def staging_of(connection: Session, job: JobSpec, *, may_store: bool) -> Iterator["Staging"]:
    """Yield an empty staging for one manifest. Without `may_store`, the queue is not changed at all."""
    with drivers.staging(connection):
        for name in (
            "stage_placed",
            "stage_recipes",
            "stage_inputs",
            "stage_differences",
            "stage_fresh",
            "stage_pending",
            "stage_objections",
            "stage_paid_before",
            "stage_chosen",
        ):
            connection.execute(query(name))
        yield Staging(connection, job, may_store=may_store)


class Staging:
    """The staged items of one manifest: the tables `staging.*` of one connection. See `staging_of`."""

    def __init__(self, connection: Session, job: JobSpec, *, may_store: bool) -> None:
        """Use a connection with an empty staging."""
        self.files: list[str] = []
        self.omitted = 0
        self.is_partial = False
        self.unread = UnreadItems()
        self._connection = connection
        self._may_store = may_store
        self._job = job
        self.references = References(connection, job.name)
        self.variants = Variants(connection)
        self._names_collide = not identifies_item(job.filename) and "index" not in fields(job.filename)
        self._file_numbers: dict[str, int] = {}
        self._recipe_ids: dict[str, int] = {}
        self._input_ids: dict[InputFile, int] = {}
        self._last_recipe: tuple[Recipe, str, str] | None = None
        self.staged = 0  # items, also those with the id of another one
        self._series: set[object | None] = set()  # None: of names that may be equal
        self._objections: dict[PlacedObjection, int] = {}
        self._digest = hashlib.sha256(repr(job).encode())

    @property
    def digest(self) -> str:
        """A hash of everything staged, including the images' contents."""
        return self._digest.hexdigest()

    @property
    def _has_numbered_names(self) -> bool:
        """Whether all names differ for certain, because they are of one series."""
        return len(self._series) == 1 and None not in self._series

    def fill(self, placed: Iterable[Placed | SimilarItems], *, are_all_new: bool = False) -> list[Diagnostic]:
        """Stage all items, and return the errors found while reading them.

        Names that differ for certain get no index if the items `are_all_new`, since nobody asks for one by its name.
        """
        mistakes: list[Diagnostic] = []
        chunk: list[Placed] = []
        for each in self._reading(placed, mistakes):
            if isinstance(each, SimilarItems) and self._may_stage_together(each):
                self._stage(chunk)
                self._stage_together(each)
                self._series.add(each.series)
                chunk = []
                continue
            chunk += each if isinstance(each, SimilarItems) else (each,)
            if len(chunk) >= ROWS_AT_ONCE:
                self._stage(chunk)
                chunk = []
        self._stage(chunk)
        # With the index, PostgreSQL's planner learns about the table.
        if isinstance(self._connection, StagingSession) or not (are_all_new and self._has_numbered_names):
            self._connection.execute(query("index_placed_names"))
        self._connection.execute(query("index_objections"))
        return mistakes

    def duplicates(self, diagnostic_at: DiagnosticAt) -> list[Diagnostic]:
        """Return a mistake for each item whose id an earlier item has, and remove it from the staging."""
        reason, remedy = "the id {!r} is already used at {}", "use a different id for each item of a job"
        found = [] if self._has_numbered_names else self._shared("duplicate_names", reason, remedy, diagnostic_at)
        if found:
            self._connection.execute(query("forget_duplicates"))
        for name, (file, line) in self.unread.names.items():
            staged = self._connection.execute(query("place_of_name"), {"name": name}).fetchone()
            if staged is not None:
                first, second = (self.files[staged[0]], staged[1]), (file, line)
                if first[0] == file and first[1] > line:
                    first, second = second, first
                found.append(diagnostic_at(*second, reason.format(name, f"{first[0]}:{first[1]}"), remedy))
        return found

    def collisions(self, diagnostic_at: DiagnosticAt) -> list[Diagnostic]:
        """Return a mistake for each item whose file names equal those of another item.

        Only patterns whose fields are variables can collide; {item} or {index} in one prevents it.
        """
        if not self._names_collide:
            return []
        self._connection.execute(query("index_placed_outputs"))
        reason = "the output name {!r} is already used by the item at {}"
        remedy = f"let `output.filename`, now {self._job.filename!r}, contain {{item}} or {{index}}"
        return self._shared("duplicate_outputs", reason, remedy, diagnostic_at)

    @property
    def has_objections(self) -> bool:
        """Whether the catalogue objects to any item."""
        return bool(self._objections)

    def object_to(self, seq: int) -> None:
        """Mark a known item whose request differs from its last one."""
        self._connection.execute(query("object_to"), {"seq": seq})

    def objected(self, job_id: int | None, diagnostic_at: DiagnosticAt) -> tuple[list[Diagnostic], list[Diagnostic]]:
        """Return the catalogue's objections to items that are still to be sent, as mistakes and as warnings.

        A clear objection to a new or changed item is a mistake. An unclear one, or one to a queued item, is a warning:
        neither may keep a job from continuing.
        """
        if not self._objections and not self.unread.objections:
            return [], []
        rows = self._connection.execute(query("objections"), {"job_id": job_id}).fetchall()
        known = list(self._objections)
        rows += [
            (number, True, 1)
            for number, one in enumerate(self.unread.objections, len(known))
            if one not in self._objections
        ]
        known += self.unread.objections
        mistakes: list[Diagnostic] = []
        warnings: list[Diagnostic] = []
        for number, is_new, items in rows:
            is_clear = number == _MORE_CLEAR or (number >= 0 and known[number].is_clear)
            found = mistakes if is_clear and is_new else warnings
            if number < 0 or len(found) >= MISTAKES_SHOWN:
                self.omitted += items if found is mistakes else 0
                continue
            one = known[number]
            reason = one.reason if items == 1 else f"{one.reason} ({items:,} items)"
            remedy = one.remedy
            if found is mistakes and not mistakes:
                remedy = f"{remedy}{' ' if remedy.endswith('?') else '; '}{_CATALOGUE_REMEDY}"
            found.append(diagnostic_at(one.file, one.line, reason, remedy, one.column))
        return mistakes, warnings

    def place(self, file: int, line: int) -> str:
        """Return a staged place as text for a person."""
        return f"{self.files[file]}:{line}"

    def _shared(self, name: str, reason: str, remedy: str, diagnostic_at: DiagnosticAt) -> list[Diagnostic]:
        rows = self._connection.execute(query(name), {"limit": MISTAKES_SHOWN + 1}).fetchall()
        if len(rows) > MISTAKES_SHOWN:
            self.omitted += self._connection.execute(query(f"count_{name}")).fetchone()[0] - MISTAKES_SHOWN
        return [
            diagnostic_at(self.files[file], line, f"several items here have the id {shared!r}", _SAME_ENTRY_REMEDY)
            if name == "duplicate_names" and (file, line) == (first_file, first_line)
            else diagnostic_at(
                self.files[file], line, reason.format(shared, self.place(first_file, first_line)), remedy
            )
            for shared, file, line, first_file, first_line in rows[:MISTAKES_SHOWN]
        ]

    def _reading(
        self, placed: Iterable[Placed | SimilarItems], mistakes: list[Diagnostic]
    ) -> Iterator[Placed | SimilarItems]:
        try:
            yield from placed
        except InputError as error:
            mistakes.extend(error.mistakes)
            self.omitted += error.omitted
            self.is_partial = error.is_partial
            if isinstance(error, ItemsInvalid):
                self.unread = error.unread

    def _may_stage_together(self, items: SimilarItems) -> bool:
        is_complex = items.inputs or items.objections or items.needs_review
        return not is_complex and not self._names_collide

    def _stage_together(self, items: SimilarItems) -> None:
        """Stage items that differ in name, prompt and metadata alone."""
        key, price = self._keys_of(items.recipe)
        self._learn_recipes({key: items.recipe})
        metadata = items.metadata
        self._digest.update(marshal.dumps((key, items.priority), 2))
        for texts in (items.names, items.prompts, metadata or ()):
            self._digest.update(marshal.dumps(tuple(texts), 2))
        self.staged += len(items)
        alike = _hash_without_prompt(price, ())
        rows = zip(
            items.names,
            repeat(self._recipe_ids[key]),
            repeat(items.priority),
            items.prompts,
            repeat(None) if metadata is None else metadata,
            repeat(self._number_of(items.file)),
            items.lines,
            [alike ^ one for one in map(hash, items.prompts)],
        )
        self._connection.execute("BEGIN")
        drivers.insert_many(self._connection, query("stage_similar_item"), rows)
        self._connection.execute("COMMIT")

    def _stage(self, chunk: Sequence[Placed]) -> None:
        if not chunk:
            return
        self._series.add(None)
        specs = [placed.spec for placed in chunk]
        keys = [self._keys_of(spec.recipe) for spec in specs]
        self._learn_recipes({key: spec.recipe for (key, _), spec in zip(keys, specs, strict=True)})
        has_inputs = any(spec.inputs for spec in specs)
        if has_inputs:
            self._learn_inputs({each for spec in specs for each in spec.inputs if isinstance(each, InputFile)})
        parts, rows = [], []
        for placed, spec, (key, price) in zip(chunk, specs, keys, strict=True):
            name, _, prompt, given, priority, metadata, file_name, group, needs_review = spec
            images: tuple[object, ...] = ()
            inputs, open_inputs = None, 0
            if given:
                ids = [self._input_ids[each] if isinstance(each, InputFile) else None for each in given]
                images, inputs, open_inputs = _images(spec), json.dumps(ids), ids.count(None)
            choice = None if group is None else (group.name, group.choose)
            parts.append((name, key, prompt, images, priority, metadata, file_name, choice, needs_review))
            rows.append(
                (
                    name,
                    self._recipe_ids[key],
                    priority,
                    prompt,
                    inputs,
                    metadata,
                    file_name,
                    self._output_key(spec) if self._names_collide else None,
                    self._number_of(placed.file),
                    placed.line,
                    name.removeprefix(_DEFAULT_ID) if placed.has_default_id else None,
                    placed.repetition,
                    hash(prompt) ^ _hash_without_prompt(price, images),
                    open_inputs,
                )
            )
        self._digest.update(marshal.dumps(parts, 2))
        first = self.staged + 1
        self.staged += len(chunk)
        self._connection.execute("BEGIN")
        drivers.insert_many(self._connection, query("stage_item"), rows)
        self.variants.stage(specs, first)
        if any(placed.objections for placed in chunk):
            self._connection.executemany(query("stage_objection"), list(self._objection_rows(chunk, first)))
        if has_inputs:
            self.references.stage(
                (seq, place, self._number_of(ref.file), ref)
                for seq, spec in enumerate(specs, first)
                for place, ref in refs_of(spec)
            )
        self._connection.execute("COMMIT")

    def _objection_rows(self, chunk: Sequence[Placed], first: int) -> Iterator[tuple[int, int]]:
        """Yield the items with objections by their `seq`. Objections beyond the display limit are only counted."""
        for seq, placed in enumerate(chunk, first):
            for objection in placed.objections:
                if objection not in self._objections and len(self._objections) < OBJECTIONS_KEPT:
                    self._objections[objection] = len(self._objections)
                unkept = _MORE_CLEAR if objection.is_clear else _MORE
                yield seq, self._objections.get(objection, unkept)

    def _output_key(self, spec: ItemSpec) -> str:
        """Return the path of the item's first output. Its kind replaces the extension, which is still unknown."""
        kind = "video" if spec.recipe.mode.makes_video else "image"
        pattern = spec.file_name or self._job.filename
        return render(pattern, job=self._job.name, item=spec.name, index=0, output=1, model=spec.recipe.model, ext=kind)

    def _number_of(self, file: str) -> int:
        number = self._file_numbers.get(file)
        if number is None:
            number = self._file_numbers[file] = len(self.files)
            self.files.append(file)
        return number

    def _keys_of(self, recipe: Recipe) -> tuple[str, str]:
        """Return the keys of recipe and price, cached by object identity, because 1 and true are equal."""
        if self._last_recipe is None or self._last_recipe[0] is not recipe:
            self._last_recipe = (recipe, recipe_key(recipe), price_key(recipe))
        return self._last_recipe[1:]

    def _learn_recipes(self, recipes: Mapping[str, Recipe]) -> None:
        if len(self._recipe_ids) > _IDS_KEPT:
            self._recipe_ids.clear()
        unknown = [
            {
                "recipe_key": key,
                "price_key": price_key(recipe),
                "model": recipe.model,
                "mode": recipe.mode.value,
                "parameters": parameters_json(recipe),
                "inputs_count": recipe.inputs_count,
                "max_cost_credits": recipe.max_cost_credits,
                "attempts": recipe.attempts,
            }
            for key, recipe in recipes.items()
            if key not in self._recipe_ids
        ]
        for row, recipe_id in zip(unknown, self._learn("recipe", unknown), strict=True):
            self._recipe_ids[str(row["recipe_key"])] = recipe_id

    def _learn_inputs(self, files: set[InputFile]) -> None:
        if len(self._input_ids) > _IDS_KEPT:
            self._input_ids.clear()
        unknown = [file for file in files if file not in self._input_ids]
        rows = [
            {"path": file.path, "sha256": file.sha256, "size_bytes": file.size_bytes, "media_type": file.media_type}
            for file in unknown
        ]
        self._input_ids.update(zip(unknown, self._learn("input", rows), strict=True))

    def _learn(self, noun: str, rows: Sequence[Mapping[str, object]]) -> list[int]:
        """Return the ids of recipes or images, and stage their data. New ones are stored."""
        if not rows:
            return []
        find = query(f"find_{noun}")
        if self._may_store and any(self._connection.execute(find, row).fetchone() is None for row in rows):
            with transaction(self._connection):
                self._connection.executemany(query(f"insert_{noun}"), rows)
        ids: list[int] = []
        for row in rows:
            known = self._connection.execute(find, row).fetchone()
            staged = {**row, "id": known[0] if known else None}
            ids.append(self._connection.execute(query(f"stage_{noun}"), staged).fetchone()[0])
        return ids


def _hash_without_prompt(price: str, images: tuple[object, ...]) -> int:
    """Return a hash of what a request has beside its prompt. The staging ends with the process, so its hashes may."""
    return hash((price, images))


def _images(spec: ItemSpec) -> tuple[object, ...]:
    return tuple(each.sha256 if isinstance(each, InputFile) else _ref_key(each) for each in spec.inputs)


def _ref_key(ref: SourceRef) -> tuple[str | None, str, int, int | None]:
    return ref.job, ref.item, ref.output, ref.choice
