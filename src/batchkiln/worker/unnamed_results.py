"""Results under a status word that nobody knows: fetched once they have stood unchanged for some minutes (Law 3)."""

from dataclasses import dataclass, field, replace
from typing import Final

from batchkiln.core.responses import GenerationRecord, GenerationStatus

READS: Final = 6
SECONDS: Final = 300.0
"""So often, and for so long, an unknown word has to stand with the same outputs: previews come and change."""


@dataclass(frozen=True, slots=True)
class _Standing:
    """What the reads said since `since` (monotonic seconds), so often in a row."""

    word: str
    outputs_count: int
    since: float
    reads: int = 1


@dataclass(slots=True)
class UnnamedResults:
    """Counts the reads of active generations whose status word is unknown; a new run begins to count anew."""

    _standing: dict[int, _Standing] = field(default_factory=dict)

    def read(self, attempt_id: int, record: GenerationRecord, now: float) -> GenerationRecord:
        """Return the record, as a success where its unknown word has stood beside the same outputs for long enough.

        An unknown word alone counts as not ended (contract, section 8). `now` is monotonic.
        """
        if record.status is not GenerationStatus.UNKNOWN or not record.outputs:
            self.forget(attempt_id)
            return record
        known, outputs_count = self._standing.get(attempt_id), len(record.outputs)
        if known is None or (known.word, known.outputs_count) != (record.status_word, outputs_count):
            self._standing[attempt_id] = _Standing(record.status_word, outputs_count, now)
            return record
        self._standing[attempt_id] = replace(known, reads=known.reads + 1)
        if known.reads + 1 < READS or now - known.since < SECONDS:
            return record
        return replace(record, status=GenerationStatus.SUCCESS)

    def forget(self, attempt_id: int) -> None:
        """Drop what was counted of an attempt."""
        self._standing.pop(attempt_id, None)
