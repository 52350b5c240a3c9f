"""Tells the events of an item's history in sentences. Details of a kind that is not known are listed as they are."""

from collections.abc import Mapping
from typing import Any, Final

from batchkiln.core.byte_sizes import format_size
from batchkiln.core.states import Event
from batchkiln.presentation.formatting import plural, sanitize

SENTENCES: Final[Mapping[str, str]] = {
    Event.ATTEMPT_RECORDED: "Attempt {number} recorded, to be sent for {quote_credits}",
    Event.OUTCOME_UNKNOWN: "Sent, without a definite reply",
    Event.ACCEPTED: "Accepted by the service for {cost_credits} ({generation_id})",
    Event.REFUSED: "Refused by the service; nothing was created",
    Event.NOT_CREATED: "Nothing was created, so it is queued again",
    Event.REFUSED_IN_DOUBT: "Held for a person, because it was refused while an earlier send was in doubt",
    Event.KEY_CONFLICT: "Held for a person, because something may have been created",
    Event.KEY_FORGOTTEN: "Held for a person, after a day without a reply",
    Event.SET_ASIDE: "Held for a person's decision",
    Event.KEY_MISSING: "Held until its API key is configured again",
    Event.INPUT_LOST: "Held, because an image cannot be used",
    Event.NEVER_FITS: "Rejected before it was sent, because of its price",
    Event.GENERATION_FAILED: "The generation failed and was refunded; it is tried again",
    Event.TRIES_EXHAUSTED: "The generation failed and was refunded; no try is left",
    Event.GENERATION_CANCELED: "The service canceled the generation",
    Event.GENERATION_LOST: "Held for a person, because the service has denied the generation for an hour",
    Event.OUTPUTS_READY: "The generation succeeded; its files are being downloaded",
    Event.URL_EXPIRED: "A download link expired; the next poll returns a new one",
    Event.OUTPUTS_UNUSABLE: "Held for a person, because a file could not be saved",
    Event.RETENTION_ENDED: "The service no longer keeps the files",
    Event.FILES_SAVED: "All files are saved",
    Event.CANCEL_REQUESTED: "Canceled by a person",
    Event.RETRY_REQUESTED: "Queued again, for a new attempt",
    Event.BUDGET_RAISED: "Queued again, because the manifest raised its cap or budget",
    Event.REQUEST_CHANGED: "The manifest changed its request ({fields})",
    Event.REPLAY_RESUMED: "To be sent again, with the same idempotency key",
    Event.POLL_RESUMED: "The generation is polled again",
    Event.DOWNLOAD_RESUMED: "The download continues",
    Event.REQUEUED: "Queued again",
    Event.GIVEN_UP: "Given up by a person",
    Event.REDO_REQUESTED: "Queued to be made again",
    Event.REDO_CANCELED: "No longer to be made again",
    Event.FETCH_REQUESTED: "To be downloaded again: {files}",
    Event.VERSION_CHOSEN: "Version {version} is current, as a person chose",
    "job_created": "Created from {manifest}",
    "manifest_applied": "Added with {manifest}",
    "quoted": "Its price is {cost_credits}",
    "price_not_had": "Its price is not known yet",
    "upload_not_had": "Its image is not uploaded yet",
    "input_opened": "Input {place} is to be made",
    "input_filled": "Input {place} is made",
    "status_seen": "The service says: {status}",
    "unknown_status_taken_for_success": "The service says {status}, which is taken for a success",
    "create_refused": "Refused again, while an earlier send is in doubt",
    "create_postponed": "The service asks to send it later",
    "account_blocked": "The service refuses the account",
    "account_refused": "The account {account} cannot work: {code}: {message}",
    "overcharged": "The service charged {cost_credits}, above the maximum of {max_cost_credits}; the job is paused",
    "service_unreachable": "The service does not answer",
    "service_reachable": "The service answers again",
    "file_staged": "File {number} is complete on {host}, to be written to the job's URL",
    "file_saved": "Saved {path}, {size_bytes}",
    "file_gone": "{path} is gone from the disk",
    "hook_redo": "on_saved has it made again, for {credits}",
    "kept": "Version {version} kept by {by}",
    "dropped": "Version {version} dropped by {by}",
    "verdict_undone": "The verdict about version {version} was taken back by {by}",
}
"""A sentence for each kind of event, with the details that it needs in braces."""

_CREDITS: Final = frozenset({"quote_credits", "cost_credits", "max_cost_credits", "credits"})
_FOLDERS_SHOWN: Final = 2


def sentence_of(kind: str, detail: Mapping[str, Any]) -> str:
    """Return an event as a sentence without a full stop, on one line: what happened, and the reason if it has one."""
    facts = {name: _fact(name, value) for name, value in detail.items()}
    try:
        text = SENTENCES[kind].format_map(facts)
    except KeyError:  # of a later version, or from a queue of an earlier one
        listed = ", ".join(f"{name.replace('_', ' ')} {sanitize(str(value))}" for name, value in detail.items())
        return f"{sanitize(kind.replace('_', ' ')).capitalize()}{': ' if listed else ''}{listed}"
    if reason := facts.get("message") or facts.get("reason"):
        text += f": {reason}"
    return text + (f" ({facts['code']})" if facts.get("code") else "")


def _fact(name: str, value: object) -> str:
    """Return a detail as text: credits and files with their nouns, sizes in units, a path by its end."""
    if isinstance(value, int) and name in _CREDITS:
        return plural(value, "credit")
    if isinstance(value, int) and name == "files":
        return plural(value, "file")
    if isinstance(value, int) and name == "place":
        return str(value + 1)  # people count from 1
    if isinstance(value, int) and name == "size_bytes":
        return format_size(value)
    text = "" if value is None else sanitize(str(value))
    return "/".join(text.split("/")[-_FOLDERS_SHOWN:]) if name in {"path", "manifest"} else text
