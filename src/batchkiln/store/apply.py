"""Applying a manifest: add new items, keep known ones, and update changed ones that were never sent.

The first phase stages all items, finds every error and compares the items with the job; other processes can use the
queue meanwhile. The second phase writes in short transactions, so that a running process hardly waits. A kill at any
instant leaves a consistent queue, and the same command completes it.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final, Literal

from msgspec import Struct, field
from msgspec.structs import replace

from batchkiln.core.budget import BudgetLimit
from batchkiln.core.errors import Diagnostic, InputError, command_arguments
from batchkiln.core.job import JobSpec
from batchkiln.core.located_items import SimilarItems
from batchkiln.core.selection import Selection
from batchkiln.core.shown import Shown
from batchkiln.core.states import Event, ItemState
from batchkiln.store.applied_contents import Applied, AppliedContents, Contents, EqualRequests
from batchkiln.store.diff import Difference, DiffKind, all_differences, apply_change, differences_after
from batchkiln.store.identity import (
    SameRequest,
    adopt_old_ids,
    equal_requests,
    find_paid_before,
    new_job_detail,
    paid_before,
)
from batchkiln.store.jobs import Jobs
from batchkiln.store.notification_cursor import remember_audience
from batchkiln.store.redo_effects import RedoEffects, over_budget, redo_effects
from batchkiln.store.selected_items import selectable
from batchkiln.store.session import Session, transaction
from batchkiln.store.shared_paths import stored_dir
from batchkiln.store.sql import query
from batchkiln.store.staging import DiagnosticAt, Placed, Staging, staging_of
from batchkiln.store.transitions import log_job_event, transition_all

ITEMS_AT_ONCE: Final = 20_000
"""New items per transaction; it takes a fraction of a second."""

MOVES_AT_ONCE: Final = 2_000
"""Changed items per transaction; each adds an event."""

CHANGED_SHOWN: Final = 20
_WARNINGS_SHOWN: Final = 3
_IDS_SHOWN: Final = 3

__all__ = ["ApplyOptions", "ApplyReport", "DiagnosticAt", "Placed", "apply_manifest", "compared"]


OnChange = Literal["error", "keep", "redo"]
"""The treatment of an item whose request changed after it was sent: refuse the manifest, keep the item as it was sent,
or make it again with the new request."""


class ApplyOptions(Struct, frozen=True):
    """Options of applying a manifest. `dry_run` only computes the report.

    `agreed` is the digest of the content that a person confirmed: if the manifest has changed since, nothing is
    enqueued. `earlier_jobs` are the jobs of manifests that are applied before this one; inputs may refer to their
    items. `allow_duplicates`: new items may repeat requests that the job has paid for. A dry run reports changed and
    repeated requests; with `is_trial` they are mistakes in it as well. `only` are the patterns of a run of this
    manifest alone: that no item of the job matches is a mistake.
    """

    on_change: OnChange = "error"
    prune: bool = False
    dry_run: bool = False
    agreed: str | None = None
    earlier_jobs: tuple[str, ...] = ()
    only: tuple[str, ...] = ()
    allow_duplicates: bool = False
    is_trial: bool = False

    @property
    def is_told_only(self) -> bool:
        """Whether changed and repeated requests are reported without being mistakes."""
        return self.dry_run and not self.is_trial


class ApplyReport(Shown, Struct, frozen=True):
    """The result of applying a manifest, or its preview. The manifest has `new` + `known` items.

    `updated` counts known items whose request or settings changed. `changed` names the first 20 of `changed_count`
    items whose request changed after they were sent; `kept` counts them if they were kept on purpose. `requeued` items
    may run again because of a larger budget, a fixed request or a restored image. `redone` items had ended and are made
    again with their new request; they may cost `redo_cost` credits by the known quotes, `redo_unquoted` of them have no
    quote, and `redo_over_cap` have one that exceeds their cap: they would be rejected, and cost nothing. `redo_effects`
    are those on what exists. `redo_refusal` says why the job's budget does not pay for this: in a dry run it is told,
    otherwise it is a mistake of the manifest. `missing` items are in the job, not canceled and not in the manifest;
    `pruned` of them were canceled.
    `digest` is a hash of the manifest's whole content, images included. `warnings` are the catalogue's objections that
    are uncertain or concern queued items, after those of the manifest. `paid_before` counts new items whose requests
    equal those of items of the job that are done or under way. `moved_from` is the profile that the known items, of
    which none was sent, had before; None if it stays.
    """

    job_id: int | None
    new: int = 0
    known: int = 0
    updated: int = 0
    changed: tuple[str, ...] = ()
    changed_count: int = 0
    kept: int = 0
    requeued: int = 0
    redone: int = 0
    redo_cost: int = 0
    redo_unquoted: int = 0
    redo_over_cap: int = 0
    redo_effects: RedoEffects = RedoEffects()
    redo_refusal: Diagnostic | None = None
    missing: int = 0
    pruned: int = 0
    paid_before: int = 0
    moved_from: str | None = None
    digest: str = ""
    warnings: tuple[Diagnostic, ...] = ()

    def _shown(self) -> Iterator[tuple[str, object]]:
        yield "new", self.new
        yield "known", self.known
        yield "updated", self.updated or None
        yield "changed after being sent", self.changed_count or None
        yield "kept as sent", self.kept or None
        yield "queued again", self.requeued or None
        yield "made again", self.redone or None
        yield "no longer in the manifest", self.missing or None
        yield "canceled", self.pruned or None
        yield "paid before", self.paid_before or None
        yield "moved from the profile", self.moved_from
        yield (
            "warnings",
            ["; ".join(filter(None, (each.reason, each.remedy))) for each in self.warnings[:_WARNINGS_SHOWN]],
        )


def apply_manifest(
    connection: Session,
    spec: JobSpec,
    placed: Iterable[Placed | SimilarItems],
    *,
    profile: str,
    now: int,
    options: ApplyOptions,
    diagnostic_at: DiagnosticAt,
    contents: Contents | None = None,
    on_stored: Callable[[int, int], None] = lambda _done, _total: None,
) -> ApplyReport:
    """Add, keep and update a job's items as the manifest says. For `Store.run`: it opens its own transactions.

    `profile` is the resolved one; `now` is milliseconds of service time. With `contents`, an unchanged manifest is
    recognised without reading `placed`. `on_stored` is called with the number of new items stored so far, and of all.
    Raise one `InputError` with all mistakes, including those that reading `placed` raises at its end; then nothing is
    enqueued.
    """
    with compared(
        connection,
        spec,
        placed,
        profile=profile,
        now=now,
        options=options,
        diagnostic_at=diagnostic_at,
        contents=contents,
    ) as application:
        return application.report if options.dry_run else application.store(application.report, on_stored)


@contextmanager
def compared(
    connection: Session,
    spec: JobSpec,
    placed: Iterable[Placed | SimilarItems],
    *,
    profile: str,
    now: int,
    options: ApplyOptions,
    diagnostic_at: DiagnosticAt,
    observe: Callable[[Difference], None] = lambda _: None,
    contents: Contents | None = None,
) -> Iterator["ManifestApplication"]:
    """Yield a staged manifest, compared with its job. The staging lasts as long as the context.

    The arguments and the mistakes are those of `apply_manifest`. `observe` is called with each difference of a known
    item, after the pending transitions are staged.
    """
    with staging_of(connection, spec, may_store=not options.dry_run) as staging:
        selection = _Seen(Selection(options.only))
        applied = AppliedContents(connection, spec, profile, contents)
        unchanged = applied.unchanged()
        are_all_new = not options.dry_run and applied.is_new_job
        mistakes = [] if unchanged else staging.fill(selection.watched(placed), are_all_new=are_all_new)
        application = ManifestApplication(
            connection, staging, applied, unchanged, spec=spec, profile=profile, now=now, options=options
        )
        mistakes += staging.duplicates(diagnostic_at)
        mistakes += staging.collisions(diagnostic_at)
        mistakes += application.profile_mistakes()
        mistakes += application.variant_mistakes(diagnostic_at)
        mistakes += application.reference_mistakes(diagnostic_at)
        mistakes += application.disagreement() if not mistakes else []
        if not mistakes and not selection.is_matched and not application.has_match(selection.wanted):
            ids = "it has no items"
            if unchanged:
                ids = f"`batchkiln items {command_arguments(spec.name)}` lists its ids"
            elif selection.first:
                ids = f"the ids of its items are {', '.join(selection.first)}, …"
            raise selection.wanted.no_match("nothing was enqueued", ids)
        application.report = replace(application.compare(diagnostic_at, observe), digest=application.digest)
        mistakes += application.mistakes
        objected, warnings = staging.objected(application.report.job_id, diagnostic_at)
        mistakes += objected
        application.report = replace(application.report, warnings=tuple(warnings))
        if mistakes:
            raise InputError(
                _in_order(mistakes, staging.files),
                omitted=staging.omitted + application.omitted,
                is_partial=staging.is_partial,
            )
        yield application


class _Seen(Struct):
    """Whether a selection matches one of the items that are read, and the first ids."""

    wanted: Selection
    is_matched: bool = False
    first: list[str] = field(default_factory=list)

    def watched(self, placed: Iterable[Placed | SimilarItems]) -> Iterator[Placed | SimilarItems]:
        """Yield the items, and look at their ids until one matches."""
        for one in placed:
            if not self.is_matched:
                names = one.names if isinstance(one, SimilarItems) else (one.spec.name,)
                self.first += names[: _IDS_SHOWN - len(self.first)]
                self.is_matched = any(map(self.wanted.matches, names))
            yield one


def _in_order(mistakes: list[Diagnostic], files: list[str]) -> list[Diagnostic]:
    """Return the mistakes sorted by file and line. The manifest's own come first."""
    ranks: dict[str | None, int] = {None: -1}
    for file in [*(mistake.file for mistake in mistakes), *files]:
        ranks.setdefault(file, len(ranks))
    return sorted(mistakes, key=lambda mistake: (ranks[mistake.file], mistake.line or 0))


class ManifestApplication:
    """The application of one staged manifest; `report` describes its result."""

    def __init__(
        self,
        connection: Session,
        staging: Staging,
        applied: AppliedContents,
        unchanged: Applied | None,
        *,
        spec: JobSpec,
        profile: str,
        now: int,
        options: ApplyOptions,
    ) -> None:
        """Find the job, and the ids that its items had in earlier versions. Nothing is compared yet.

        An `unchanged` manifest has an empty staging: no item is new, and none differs.
        """
        self.mistakes: list[Diagnostic] = []
        self.omitted = 0
        self.report = ApplyReport(job_id=None)
        self._connection = connection
        self._staging = staging
        self._applied = applied
        self._unchanged = unchanged
        self._spec = spec
        self._profile = profile
        self._now = now
        self._options = options
        found = connection.execute(query("applied_job"), {"name": spec.name}).fetchone()
        self._job_id: int | None = found[0] if found else None
        self._old_profile: str | None = found[1] if found else None
        self._has_old_ids = adopt_old_ids(
            connection, job_id=self._job_id, job=spec.name, manifest_path=spec.manifest_path
        )

    def has_match(self, selection: Selection) -> bool:
        """Return whether an item that the job already has matches a selection, or there are no patterns."""
        if not selection.only or self._job_id is None:
            return not selection.only
        return any(True for _ in selection.chosen(selectable(self._connection, self._job_id)))

    def profile_mistakes(self) -> list[Diagnostic]:
        """Return an error if a job with sent items would change its profile, whose account has its generations."""
        if self._old_profile in {None, self._profile} or not self._one("has_attempts"):
            return []
        reason = (
            f"the job {self._spec.name!r} uses the profile {self._old_profile!r}, not {self._profile!r}; items that "
            "were sent there can only be downloaded there"
        )
        remedy = f"use --profile {self._old_profile}, or rename the job"
        return [Diagnostic(reason, file=self._spec.manifest_path, remedy=remedy)]

    def variant_mistakes(self, diagnostic_at: DiagnosticAt) -> list[Diagnostic]:
        """Return an error for each group of variants whose name an item of the job already has."""
        return self._staging.variants.collisions(self._job_id, self._staging.files, diagnostic_at)

    def reference_mistakes(self, diagnostic_at: DiagnosticAt) -> list[Diagnostic]:
        """Return the errors of inputs that other items make, and mark the known items whose sources changed."""
        references = self._staging.references
        earlier_jobs = self._options.earlier_jobs
        found = references.mistakes(
            self._job_id,
            self._staging.files,
            diagnostic_at,
            earlier_jobs=earlier_jobs,
            unread=self._staging.unread,
        )
        if self._job_id is not None:
            references.compare(self._job_id)
        found += references.circles(self._job_id, self._staging.files, diagnostic_at)
        self.omitted += references.omitted
        return found

    @property
    def digest(self) -> str:
        """A hash of the manifest's whole content, images included."""
        return self._staging.digest if self._unchanged is None else self._unchanged.digest

    def equal_requests(self) -> EqualRequests:
        """Return how many items repeat the request of an earlier one, and the first such pairs."""
        return equal_requests(self._connection) if self._unchanged is None else self._unchanged.equal_requests

    def disagreement(self) -> list[Diagnostic]:
        """Return an error if the manifest, its rows or its images changed after a person confirmed them."""
        if self._options.agreed in {None, self.digest}:
            return []
        reason = "the manifest, its rows or its images changed after the cost was shown; nothing was enqueued"
        remedy = "run the same command again to see the new cost"
        return [Diagnostic(reason, file=self._spec.manifest_path, remedy=remedy)]

    def compare(self, diagnostic_at: DiagnosticAt, observe: Callable[[Difference], None]) -> ApplyReport:
        """Compute the report without changing the queue; add errors to `mistakes`."""
        if self._job_id is None:
            if self._staging.references:
                self._connection.execute(query("find_all_fresh"))
            else:  # which is faster than a table
                self._connection.execute(query("forget_fresh"))
                self._connection.execute(query("view_all_as_fresh"))
            return ApplyReport(job_id=None, new=self._staging.staged)
        self._connection.execute(query("find_differences"), self._settings())
        self._staging.references.add_differences()
        self._connection.execute(query("find_fresh"))
        fresh = self._one("count_fresh")
        known = self._unchanged.items if self._unchanged else self._one("count_placed") - fresh
        moved_from = None if self._old_profile == self._profile else self._old_profile
        report = self._count_pending(ApplyReport(self._job_id, fresh, known, moved_from=moved_from))
        if fresh:
            has_references = bool(self._staging.references)
            paid = find_paid_before(self._connection, self._job_id, has_references=has_references)
            report = replace(report, paid_before=paid)
        report = self._count_differences(report, diagnostic_at, observe)
        if report.paid_before and not (self._options.allow_duplicates or self._options.is_told_only):
            found = [self._paid_diagnostic(same, diagnostic_at) for same in paid_before(self._connection)]
            self.mistakes += found
            self.omitted += report.paid_before - len(found)
        return report

    def _count_differences(
        self, report: ApplyReport, diagnostic_at: DiagnosticAt, observe: Callable[[Difference], None]
    ) -> ApplyReport:
        updated = changed = 0
        requeued, redone = report.requeued, _Redone()
        shown: list[Difference] = []
        for difference in all_differences(
            self._connection, at_once=MOVES_AT_ONCE, profile=self._profile, may_redo=self._may_redo
        ):
            observe(difference)
            kind = difference.kind
            if kind in {DiffKind.TAKE_OVER, DiffKind.REDO} and self._staging.has_objections:
                self._staging.object_to(difference.seq)
            if kind is DiffKind.SENT:
                changed += 1
                if changed <= CHANGED_SHOWN:
                    shown.append(difference)
                continue
            updated += kind is not DiffKind.SAME
            requeued += difference.requeues
            redone.count(difference)
        if changed and self._options.on_change == "error" and not self._options.is_told_only:
            self.mistakes = [self._changed_diagnostic(difference, diagnostic_at) for difference in shown]
            self.omitted += changed - len(shown)
        names = tuple(difference.name for difference in shown)
        kept = 0 if self._options.on_change == "error" else changed
        report = replace(report, updated=updated, requeued=requeued, changed=names, changed_count=changed, kept=kept)
        report = replace(redone.told_in(report), redo_effects=redo_effects(self._connection, redone.done))
        refusal = self._redo_refusal(redone)
        if refusal is not None and not self._options.is_told_only:
            self.mistakes.append(refusal)
        return replace(report, redo_refusal=refusal)

    def _redo_refusal(self, redone: "_Redone") -> Diagnostic | None:
        """Return an error if the manifest's budget does not pay for the items that are made again, as for `redo`.

        Items that had ended without a result lose nothing when they are rejected, so they alone are no reason.
        """
        if not redone.done_cost or self._spec.budget_credits is None:
            return None
        summary = Jobs(self._connection).summary(self._spec.name)
        new = self._connection.execute(query("fresh_cost"), {"profile": self._profile}).fetchone()[0]
        found = over_budget(summary, self._spec.budget_credits, redone.cost, new=int(new))
        if found is None:
            return None
        reason, enough = found
        remedy = (
            f"raise it to {enough:,} in the manifest, or pass `--on-change keep` to keep what changed as it was sent; "
            "a done item that the budget does not pay for would be rejected"
        )
        those = "1 item" if redone.number == 1 else f"{redone.number:,} items"
        return Diagnostic(f"making {those} again: {reason}", self._spec.manifest_path, remedy=remedy)

    @property
    def _may_redo(self) -> bool:
        return self._options.on_change == "redo"

    def _changed_diagnostic(self, difference: Difference, diagnostic_at: DiagnosticAt) -> Diagnostic:
        fields = " and ".join(difference.request_fields)
        return diagnostic_at(
            self._staging.files[difference.file],
            difference.line,
            f"the item {difference.name!r} was already sent (it is {difference.state}), but its {fields} changed",
            "use a new id to generate both versions, pass `--on-change keep` to keep the sent version, or pass "
            "`--on-change redo` to make it again, which costs again",
        )

    def _paid_diagnostic(self, same: SameRequest, diagnostic_at: DiagnosticAt) -> Diagnostic:
        return diagnostic_at(
            self._staging.files[same.file],
            same.line,
            f"the new item {same.name!r} asks for the same as {same.old_name!r}, which is {same.state} and paid for",
            f"give it the id {same.old_name!r} to keep that one, or pass `--allow-duplicates` to pay for it again",
        )

    def _count_pending(self, report: ApplyReport) -> ApplyReport:
        self._stage_pending(Event.BUDGET_RAISED)
        self._stage_pending(Event.REQUEUED)
        has_missing = report.known < self._one("job_items")
        missing = self._one("count_missing") if has_missing else 0
        if self._options.prune and has_missing:
            self._stage_pending(Event.CANCEL_REQUESTED)
        requeued, pruned = self._connection.execute(query("count_pending")).fetchone()
        return replace(report, requeued=requeued, missing=missing, pruned=pruned)

    def store(
        self, report: ApplyReport, on_stored: Callable[[int, int], None] = lambda _done, _total: None
    ) -> ApplyReport:
        """Write the changes in several transactions, and return the report of the changes made.

        An item that was sent after the comparison stays unchanged and is reported.
        """
        job_id = self._job_id = self._store_job()
        report = replace(
            report, job_id=job_id, new=self._insert_fresh(report.new, on_stored)
        )  # they may be sources of known ones
        report = self._take_over_all(report)
        if report.known and not self._unchanged:
            self._change_choices(job_id)
        report = self._apply_pending(report)
        applied = self._unchanged or self._applied.as_staged(
            job_id, new=report.new, known=report.known, digest=self.digest
        )
        with transaction(self._connection):
            counts = {name: getattr(report, name) for name in _COUNTED}
            detail = counts | {"items": self._one("job_items"), "manifest": self._spec.manifest_path}
            log_job_event(self._connection, "manifest_applied", job_id=job_id, now=self._now, detail=detail)
            if applied is not None:
                self._applied.record(job_id, applied)
        return report

    def _store_job(self) -> int:
        with transaction(self._connection):
            found = self._connection.execute(query("applied_job"), {"name": self._spec.name}).fetchone()
            remember_audience(self._connection, self._spec.name, self._spec.notify)
            if found is not None:
                self._job_id = found[0]
                self._applied.forget(found[0])
                self._connection.execute(query("update_job"), self._settings())
                self._staging.variants.insert_groups(found[0])
                return int(found[0])
            job_id: int = self._connection.execute(query("insert_job"), self._settings()).fetchone()[0]
            self._applied.forget(job_id)
            self._staging.variants.insert_groups(job_id)
            detail = new_job_detail(self._spec.manifest_path, has_old_ids=self._has_old_ids)
            log_job_event(self._connection, "job_created", job_id=job_id, now=self._now, detail=detail)
            return job_id

    def _take_over_all(self, report: ApplyReport) -> ApplyReport:
        updated = requeued = sent = 0
        redone = _Redone()
        names: list[str] = []
        seq, is_over = 0, False
        while not is_over:
            with transaction(self._connection):
                self._forget_contents()
                page = differences_after(
                    self._connection, seq, MOVES_AT_ONCE, profile=self._profile, may_redo=self._may_redo
                )
                for difference in page:
                    apply_change(self._connection, difference, self._now)
                    if difference.kind is DiffKind.SENT:
                        sent += 1
                        names.append(difference.name)
                    updated += difference.kind not in {DiffKind.SAME, DiffKind.SENT}
                    requeued += difference.requeues
                    redone.count(difference)
            is_over = not page
            seq = page[-1].seq if page else seq
            del names[CHANGED_SHOWN:]
        kept = 0 if self._options.on_change == "error" else sent
        return redone.told_in(
            replace(report, updated=updated, requeued=requeued, changed=tuple(names), changed_count=sent, kept=kept)
        )

    def _change_choices(self, job_id: int) -> None:
        """Update the groups and reviews of known items to those in the manifest."""
        item_id: int | None = 0
        while item_id is not None:
            with transaction(self._connection):
                self._forget_contents()
                item_id = self._staging.variants.change_page(job_id, item_id, self._now)

    def _forget_contents(self) -> None:
        if self._job_id is not None:
            self._applied.forget(self._job_id)

    def _stage_pending(self, event: Event) -> None:
        self._connection.execute(_of_kind("stage_transitions", event), self._settings() | {"event": event})

    def _apply_pending(self, report: ApplyReport) -> ApplyReport:
        moved: Counter[Event] = Counter()
        item_id, is_over = 0, False
        while not is_over:
            with transaction(self._connection):
                page = self._connection.execute(query("pending"), {"after": item_id, "limit": MOVES_AT_ONCE}).fetchall()
                pending: dict[Event, list[int]] = {}
                for pending_id, event in page:
                    pending.setdefault(Event(event), []).append(pending_id)
                for event, ids in pending.items():
                    moved[event] += self._apply_transitions(event, ids)
            is_over = not page
            item_id = page[-1][0] if page else item_id
        pruned = moved.pop(Event.CANCEL_REQUESTED, 0)
        return replace(report, requeued=report.requeued + moved.total(), pruned=pruned)

    def _apply_transitions(self, event: Event, ids: Sequence[int]) -> int:
        """Apply pending transitions whose conditions still hold, inside the caller's transaction; return their number.

        Checking the state is not enough: an item that was held for an image may have been sent and held again since. It
        may have been charged, so a person has to decide (Law 2).
        """
        params = self._settings() | {"ids": json.dumps(ids)}
        found = [item_id for (item_id,) in self._connection.execute(_of_kind("still_pending", event), params)]
        transition_all(self._connection, found, expected=_PENDING[event][0], event=event, now=self._now)
        return len(found)

    def _insert_fresh(self, count: int, on_stored: Callable[[int, int], None]) -> int:
        """Insert the new items with their counters, in chunks; return their number."""
        inserted = 0
        references, job_id = self._staging.references, self._job_id or 0
        references.rank(job_id)
        for after in range(0, count, ITEMS_AT_ONCE):
            upto = min(after + ITEMS_AT_ONCE, count)
            with transaction(self._connection):
                self._forget_contents()
                params = {"job_id": self._job_id, "next_position": self._one("job_items"), "after": after, "upto": upto}
                last_id = self._one("last_item_id")
                inserted += self._connection.execute(query("insert_items"), params).rowcount
                self._staging.variants.attach_fresh(self._job_id or 0, last_id)
                self._connection.execute(query("count_in_items"), {"job_id": self._job_id, "last_id": last_id})
                self._connection.execute(query("advance_job"), {"job_id": self._job_id, "n": upto - after})
                references.link_fresh(job_id, after=after, upto=upto, last_id=last_id, now=self._now)
            on_stored(upto, count)
        return inserted

    def _one(self, name: str) -> int:
        value: int = self._connection.execute(query(name), {"job_id": self._job_id}).fetchone()[0]
        return value

    def _settings(self) -> dict[str, object]:
        spec = self._spec
        return {
            "job_id": self._job_id,
            "now": self._now,
            "name": spec.name,
            "description": spec.description,
            "profile": self._profile,
            "accounts": json.dumps(list(spec.accounts), ensure_ascii=False),
            "item_order": spec.order.value,
            "budget_credits": spec.budget_credits,
            "budget_credits_per_day": spec.budget_credits_per_day,
            "output_dir": stored_dir(self._connection, spec.output_dir),
            "filename": spec.filename,
            "versions": spec.versions,
            "sidecar": spec.sidecar,
            "manifest_path": spec.manifest_path,
            "obstacles": _OBSTACLES,
        }


class _Redone(Struct):
    """The number of items that are made again, and their cost by the known quotes; `done` are those that are done."""

    number: int = 0
    cost: int = 0
    unquoted: int = 0
    over_cap: int = 0
    done_cost: int = 0
    done: list[int] = field(default_factory=list)

    def count(self, difference: Difference) -> None:
        if difference.redoes:
            cost = 0 if difference.is_over_cap else difference.new_cost or 0
            self.number += 1
            self.cost += cost
            self.unquoted += difference.new_cost is None
            self.over_cap += difference.is_over_cap
            if difference.state is ItemState.DONE:
                self.done.append(difference.item_id)
                self.done_cost += cost

    def told_in(self, report: ApplyReport) -> ApplyReport:
        return replace(
            report,
            redone=self.number,
            redo_cost=self.cost,
            redo_unquoted=self.unquoted,
            redo_over_cap=self.over_cap,
        )


def _of_kind(name: str, event: Event) -> str:
    """Return a statement for the items of an event; its placeholder `of_kind` is replaced by their condition."""
    return query(name).replace("of_kind", query(_PENDING[event][1]))


_PENDING: Final = {
    Event.BUDGET_RAISED: (ItemState.REJECTED, "possible_again"),
    Event.REQUEUED: (ItemState.HELD, "inputs_back"),
    Event.CANCEL_REQUESTED: (ItemState.QUEUED, "unsent_missing"),
}
_OBSTACLES: Final = json.dumps([obstacle.value for obstacle in BudgetLimit])
_COUNTED: Final = ("new", "known", "updated", "changed_count", "kept", "requeued", "redone", "missing", "pruned")
