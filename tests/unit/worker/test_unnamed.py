"""Results under a status word that nobody knows."""

from msgspec.structs import replace

from batchkiln.core.responses import GenerationRecord, GenerationStatus, OutputLink
from batchkiln.worker.poll_timing import UNNAMED_READS, UNNAMED_SECONDS, UnnamedResults
from support.builders import record

S = GenerationStatus
RESULT = record(S.UNKNOWN, status_word="delivered", outputs=(OutputLink("image", "https://files/1", None),))


def after(records: list[GenerationRecord], *, every_seconds: float) -> list[GenerationStatus]:
    """Read the records one after the other; return what each counts as."""
    results = UnnamedResults()
    return [results.read(1, entry, number * every_seconds).status for number, entry in enumerate(records)]


def test_a_result_that_stands_is_a_success_in_the_end() -> None:
    """Law 3: what was paid for is fetched, whatever word its status has."""
    statuses = after([RESULT] * 40, every_seconds=10.0)

    assert statuses.index(S.SUCCESS) == UNNAMED_SECONDS / 10.0
    assert set(statuses[: statuses.index(S.SUCCESS)]) == {S.UNKNOWN}


def test_neither_few_reads_nor_a_short_time_are_enough() -> None:
    """A preview of what is not ended must not be taken for the result (contract, section 8)."""
    assert after([RESULT] * (UNNAMED_READS - 1), every_seconds=UNNAMED_SECONDS)[-1] is S.UNKNOWN
    assert after([RESULT] * UNNAMED_READS, every_seconds=1.0)[-1] is S.UNKNOWN


def test_each_change_begins_the_count_again() -> None:
    """Another word, another number of outputs, or none at all."""
    for other in (
        replace(RESULT, status_word="delivering"),
        replace(RESULT, outputs=RESULT.outputs * 2),
        replace(RESULT, outputs=()),
        record(S.PROCESSING),
    ):
        records = [RESULT] * UNNAMED_READS + [other] + [RESULT] * (UNNAMED_READS - 1)
        assert after(records, every_seconds=UNNAMED_SECONDS / (UNNAMED_READS - 1) - 1)[-1] is S.UNKNOWN


def test_an_unknown_word_without_outputs_never_ends() -> None:
    """Contract, section 8."""
    assert after([record(S.UNKNOWN, status_word="mixing")] * 100, every_seconds=600.0)[-1] is S.UNKNOWN
