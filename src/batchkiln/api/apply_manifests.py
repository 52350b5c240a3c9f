"""Applies manifests to the queue."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from typing import BinaryIO, Final

import structlog
from msgspec import Struct
from msgspec.structs import replace

from batchkiln.api.app_context import AppContext, ManifestStep
from batchkiln.api.shared_folder_check import check_shared_folder
from batchkiln.config import Profile
from batchkiln.core.catalog_checks import Catalogue
from batchkiln.core.errors import Diagnostic, InputError, InputErrors, OutputDirNotWritable
from batchkiln.core.job import InputFile, JobSpec
from batchkiln.core.located_items import LocatedItem, SimilarItems
from batchkiln.core.queue_types import Scope
from batchkiln.core.shown import Shown
from batchkiln.core.suggestions import closest, did_you_mean
from batchkiln.inputs import SharedInputObjects, SharedInputs, shared_inputs
from batchkiln.manifest import NO_NAME, Manifest, open_manifest
from batchkiln.outputs.paths import taken_names
from batchkiln.store import ApplyOptions, ApplyReport, Store, Writer

CatalogueOf = Callable[[Profile, str], Awaitable[Catalogue | None]]
"""Reads the catalogue of a profile's service through an account; returns None if it is not available."""


class ReadManifest(Struct, frozen=True):
    """A manifest, its profile, and the service's catalogue if known."""

    manifest: Manifest
    profile: Profile
    catalogue: Catalogue | None = None


_TAKEN_SHOWN: Final = 3
TAKEN_REMEDY: Final = (
    "if another queue created them, use that queue with --queue, because this one would pay for them again; if this "
    "queue was restored from an older copy, its journal of attempts knows what was paid, and nothing is paid again"
)
_ITEMS_OF_A_STEP: Final = 1_000

log = structlog.get_logger()


class Applied(Shown, Struct, frozen=True):
    """The result of applying one manifest.

    `taken` lists existing files in the job's folder whose names the first new items would use.
    """

    job: JobSpec
    profile: str
    report: ApplyReport
    taken: tuple[str, ...] = ()

    def _shown(self) -> Iterator[tuple[str, object]]:
        yield "job", self.job.name
        yield "profile", self.profile
        yield from self.report._shown()  # noqa: SLF001  the same display


async def apply_manifests(
    store: Store,
    app: AppContext,
    paths: Sequence[str],
    *,
    options: ApplyOptions,
    stdin: BinaryIO,
    stdin_name: str = "<stdin>",
    agreed: Mapping[str, str] | None = None,
    catalogue_of: CatalogueOf | None = None,
) -> list[Applied]:
    """Enqueue manifests; if one of several is invalid, none is enqueued.

    The path `-` reads `stdin`, which error messages call `stdin_name`. `agreed` maps each path to the digest of the
    content that a person confirmed: other content is not enqueued, and the caller asks about existing files of new
    items. If `catalogue_of` is given, the items are checked against their service's catalogue.

    Raise `InputError` with the mistakes of all manifests, or if two of them define the same job.
    """
    if len(paths) != len(set(paths)):
        raise InputError("a manifest is named twice; nothing was enqueued: name each once")
    if len(paths) > 1 and "-" in paths:
        raise InputError("standard input cannot be combined with other manifests; nothing was enqueued")
    if not options.dry_run:
        await check_shared_folder(store, app, is_worker=False)
    ready: list[tuple[ReadManifest, ApplyOptions]] = []
    errors, earlier = InputErrors(), dict[str, str]()
    for path in paths:
        with errors.collected():
            # This runs in the store's thread, so that an interrupt does not wait for the end of standard input.
            found = await store.run_in_thread(read_manifest, app, path, stdin, stdin_name=stdin_name)
            refuse_second_of_job(path, found[0].job.name, earlier)
            wanted = replace(options, agreed=(agreed or {}).get(path))
            trial = replace(wanted, dry_run=True, is_trial=True, earlier_jobs=tuple(earlier))
            earlier[found[0].job.name] = path
            manifest = await with_catalogue(found, catalogue_of)
            if len(paths) > 1 and not options.dry_run:
                await store.run(_apply, app, manifest, trial)
            ready.append((manifest, wanted))
    errors.raise_found()
    applied = [await store.run(_apply, app, manifest, wanted) for manifest, wanted in ready]
    store.notify()
    for entry in applied:
        if entry.taken and agreed is None:  # otherwise a person is asked about them
            log.warning(
                "files_there_already",
                job=entry.job.name,
                reason=describe_taken_files(entry.job, entry.taken),
                remedy=TAKEN_REMEDY,
            )
    return applied


def refuse_second_of_job(path: str, name: str, earlier: Mapping[str, str]) -> None:
    """Raise `InputError` if one of the earlier manifests of the same command defines the job of `path`, too.

    `earlier` maps jobs to paths. The items of the second manifest would replace those of the first with the same ids.
    """
    if name in earlier and name != NO_NAME:
        raise InputError(
            f"two of these manifests define the job {name}: {earlier[name]} and {path}; nothing was enqueued. Give one "
            "of them another `job`, or put all items into one manifest"
        )


async def with_catalogue(found: tuple[Manifest, Profile], catalogue_of: CatalogueOf | None) -> ReadManifest:
    """Return a manifest with its profile, and the catalogue read through the job's first account."""
    manifest, profile = found
    if catalogue_of is None:
        return ReadManifest(manifest, profile)
    account = (manifest.job.accounts or profile.account_names)[0]
    return ReadManifest(manifest, profile, await catalogue_of(profile, account))


def describe_taken_files(job: JobSpec, taken: Sequence[str]) -> str:
    """Return a warning about files that already use the names of new items; another queue may have paid for them."""
    some = ", ".join(taken[:_TAKEN_SHOWN]) + (" and more" if len(taken) > _TAKEN_SHOWN else "")
    return f"files with the names of new items already exist in {job.output_dir}: {some}"


def scope_of(applied: Sequence[Applied]) -> Scope:
    """Return the scope of the applied jobs."""
    return Scope(frozenset(entry.report.job_id for entry in applied if entry.report.job_id is not None))


async def check_output_folder(app: AppContext, path: str) -> None:
    """Check that a manifest's output folder is writable, before any item is enqueued.

    Raise `InputError` if it is not. The mistakes of the manifest are left to the reading of its items.
    """
    manifest = await asyncio.to_thread(open_manifest, path, working_dir=app.working_dir, output_base=app.output_base)
    if not manifest.is_valid:
        return
    try:
        await app.check_output_dir(manifest.job.output_dir)
    except OutputDirNotWritable as error:
        raise InputError([Diagnostic(f"the output folder is not writable: {error}", path)]) from error


def read_manifest(
    app: AppContext, path: str, stdin: BinaryIO, *, stdin_name: str = "<stdin>"
) -> tuple[Manifest, Profile]:
    """Open a manifest, and return it with its profile.

    Raise `InputError` if its profile, an account or a notifier is not configured, with its other mistakes.
    """
    manifest = open_manifest(
        path,
        stdin=stdin,
        stdin_name=stdin_name,
        working_dir=app.working_dir,
        output_base=app.output_base,
        access=app.access,
    )
    return manifest, _profile_of(app, manifest)


def _profile_of(app: AppContext, manifest: Manifest) -> Profile:
    job = manifest.job
    try:
        profile = app.config.profile(app.profile or job.profile)
    except InputError as error:
        if app.profile is not None:
            raise  # the mistake is in the command
        manifest.refuse("profile", reason=str(error))
    if unknown := [account for account in job.accounts if account not in profile.account_names]:
        reason = f"profile {profile.name} has no account {', '.join(unknown)}"
        meant = did_you_mean(closest(unknown[0], profile.account_names))
        remedy = meant or f"it has {', '.join(profile.account_names)}"
        manifest.refuse("account", "accounts", reason=reason, remedy=remedy)
    try:
        app.config.check_notifiers(job.notify or ())
    except InputError as error:
        manifest.refuse("notify", reason=f"`notify`: {error}")
    return profile


def _apply(writer: Writer, app: AppContext, read: ReadManifest, options: ApplyOptions) -> Applied:
    manifest, profile = read.manifest, read.profile
    job = manifest.job
    if app.output_root is not None:
        job = replace(job, output_dir=str(app.output_root / job.name))
    items: Iterable[LocatedItem | SimilarItems] = watched_items(app, read)
    if app.shared_dir is not None and not options.dry_run:
        items = _with_images_kept(items, shared_inputs(app.shared_dir))
    report = writer.apply_manifest(
        job,
        items,
        profile=profile.name,
        machine_now=app.environment.wall(),
        options=options,
        diagnostic_at=manifest.diagnostic_at,
        contents=manifest.contents(read.catalogue),
        on_stored=lambda done, total: app.on_step(ManifestStep(done, "", done / total, total)),
    )
    report = replace(report, warnings=(*manifest.warnings, *report.warnings))
    taken: tuple[str, ...] = ()
    if report.new and report.job_id is not None and not options.dry_run:
        names = writer.items.new_file_names(report.job_id, job, new=report.new)
        taken = tuple(taken_names(job.output_dir, names))
    return Applied(job, profile.name, report, taken)


def watched_items(app: AppContext, read: ReadManifest) -> Iterator[LocatedItem | SimilarItems]:
    """Yield the items of a manifest, and tell the context's `on_step` how far the reading is."""
    count = told = 0
    for each in read.manifest.portions(read.catalogue):
        yield each
        count += len(each) if isinstance(each, SimilarItems) else 1
        if count - told >= _ITEMS_OF_A_STEP:
            told = count
            place = read.manifest.reading_place
            app.on_step(ManifestStep(count, place.name, place.share))


def _with_images_kept(
    items: Iterable[LocatedItem | SimilarItems], shared: SharedInputs | SharedInputObjects
) -> Iterator[LocatedItem | SimilarItems]:
    """Yield the items after their input images have been copied to the place that the uploading machines share."""
    for item in items:
        for each in item.inputs if isinstance(item, SimilarItems) else item.spec.inputs:
            if isinstance(each, InputFile):  # what another item makes is below the shared folder anyway
                shared.keep(each)
        yield item
