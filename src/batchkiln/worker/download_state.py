"""What one account's worker knows of the files that it fetches, beside what is on disk."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from batchkiln.core.responses import GenerationRecord
from batchkiln.worker.failed_outputs import FailedOutputs, Failure, Output
from batchkiln.worker.truncation import TruncatedFiles


@dataclass(slots=True)
class DownloadState:
    """Links, tries and names of outputs; another process begins anew. Links are in memory alone (Law 8)."""

    truncated: TruncatedFiles = field(default_factory=TruncatedFiles)
    failed: FailedOutputs = field(default_factory=FailedOutputs)
    _links: dict[int, GenerationRecord] = field(default_factory=dict)  # by attempt: not yet used
    _marks: dict[int, dict[int, str]] = field(default_factory=dict)  # by attempt and number: see `mark_of`
    _listed: dict[int, int] = field(default_factory=dict)  # by attempt: the most outputs that a record had
    _names_taken: Counter[Output] = field(default_factory=Counter)  # how often its name was found to be another's

    def keep_links(self, attempt_id: int, record: GenerationRecord) -> None:
        """Keep the fresh links of a record for the first try, so that it need not be read again."""
        self._links[attempt_id] = record

    def take_links(self, attempt_id: int) -> GenerationRecord | None:
        """Return the record with links that were not yet used, once."""
        return self._links.pop(attempt_id, None)

    def marks(self, attempt_id: int) -> Mapping[int, str]:
        """Return the marks of an attempt's saved outputs by number; see `core/output_links.py`."""
        return self._marks.get(attempt_id, {})

    def most_listed(self, attempt_id: int, listed: int) -> int:
        """Return how many outputs a record of an attempt had at most, `listed` included."""
        self._listed[attempt_id] = max(listed, self._listed.get(attempt_id, 0))
        return self._listed[attempt_id]

    def fail(self, output: Output, failure: Failure, reason: str, at: float) -> float:
        """Count a failure of an output, and let it wait; return for how many seconds."""
        seconds = self.failed.count(output, failure, reason, at)
        self.truncated.wait(output, at + seconds)
        return seconds

    def name_taken(self, output: Output) -> None:
        """Count that the file of an output's name is another output's."""
        self._names_taken[output] += 1

    def times_name_taken(self, output: Output) -> int:
        """Return how often the file of an output's name was another output's."""
        return self._names_taken[output]

    def saved(self, output: Output, mark: str | None) -> None:
        """Forget the failures of an output that is saved; keep its mark, where it has one."""
        attempt_id, number = output
        if mark is not None:
            self._marks.setdefault(attempt_id, {})[number] = mark
        self.truncated.saved(output)
        self.failed.saved(output)
        del self._names_taken[output]

    def forget(self, attempt_id: int) -> None:
        """Forget an attempt that has left the downloads."""
        for known in (self._links, self._marks, self._listed):
            known.pop(attempt_id, None)
        self.truncated.forget(attempt_id)
        self.failed.forget(attempt_id)
