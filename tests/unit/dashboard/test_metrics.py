"""The text that Prometheus reads."""

import json
import re
from pathlib import Path
from typing import Final

from prometheus_client.parser import text_string_to_metric_families

from batchkiln.client import RequestMeter
from batchkiln.core.states import ItemState
from batchkiln.dashboard.metrics import Metric, exposition, of_moment, of_requests
from batchkiln.dashboard.moment import Moment
from batchkiln.queue.summaries import Credits, Trouble
from batchkiln.views.overview import Overview
from unit.views.builders import job_view

DOCS: Final = Path(__file__).parents[3] / "docs"


def samples(text: str) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_a_foreign_word_in_a_label_is_read_back_as_it_was() -> None:
    """Error codes are the service's own; quotes and line ends in them break nothing."""
    strange = 'a "quoted"\nback\\slash'
    metric = Metric("batchkiln_problems", "gauge", "Problems.")
    metric.add(3, code=strange)

    assert samples(exposition([metric])) == {("batchkiln_problems", (("code", strange),)): 3}


def test_jobs_are_told_by_state_cause_and_money() -> None:
    """Every state is there, also those of no item, so that a rule finds a zero."""
    trouble = Trouble(ItemState.HELD, "key_missing", 1, None)
    view = job_view({ItemState.DONE: 7, ItemState.HELD: 1}, troubles=[trouble], money=Credits(1, 20, 5))

    found = samples(exposition(of_moment(Moment(Overview((view,), (), None), (), is_all=True))))

    assert found["batchkiln_items", (("job", "birds"), ("state", "done"))] == 7
    assert found["batchkiln_items", (("job", "birds"), ("state", "expired"))] == 0
    assert found["batchkiln_problems", (("code", "key_missing"), ("job", "birds"), ("state", "held"))] == 1
    assert found["batchkiln_job_credits", (("job", "birds"), ("kind", "refunded"))] == 5
    assert found["batchkiln_needs_person", ()] == 1
    assert found["batchkiln_driven", ()] == 0


def test_latencies_are_cumulative_and_end_at_infinity() -> None:
    """A histogram as Prometheus has it; the endpoint is a word, never an id."""
    meter = RequestMeter()
    meter.note("/generations/gen_secret", "200", 0.2)
    meter.note("/generations/gen_other", "200", 99.0)
    meter.note("/images", "no_reply", 30.0)

    text = exposition(of_requests(meter))

    found = samples(text)
    assert found["batchkiln_request_duration_seconds_bucket", (("endpoint", "generations"), ("le", "0.25"))] == 1
    assert found["batchkiln_request_duration_seconds_bucket", (("endpoint", "generations"), ("le", "+Inf"))] == 2
    assert found["batchkiln_request_duration_seconds_count", (("endpoint", "generations"),)] == 2
    assert found["batchkiln_requests_total", (("endpoint", "images"), ("status", "no_reply"))] == 1
    assert "gen_" not in text


def test_without_a_driver_beside_it_nothing_is_made_up() -> None:
    """Another process's latencies are not known, and are left out."""
    assert list(of_requests(None)) == []


def test_the_grafana_file_and_the_manual_ask_for_metrics_that_are_there() -> None:
    """A renamed metric breaks no panel in silence."""
    meter = RequestMeter()
    meter.note("/images", "202", 1.0)
    view = job_view({ItemState.DONE: 7})
    there = {metric.name for metric in of_moment(Moment(Overview((view,), (), None), (), is_all=True))}
    there |= {metric.name for metric in of_requests(meter)}
    grafana = json.loads((DOCS / "dashboard" / "grafana.json").read_text("utf-8"))

    asked = " ".join(target["expr"] for panel in grafana["panels"] for target in panel["targets"])
    told = set(re.findall(r"`(batchkiln_\w+)`", (DOCS / "dashboard.md").read_text("utf-8")))

    assert {name.removesuffix("_bucket") for name in re.findall(r"batchkiln_\w+", asked)} <= there
    assert told == there
