"""The text that Prometheus reads."""

import json
import re
from pathlib import Path
from typing import Final

import pytest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.parser import text_string_to_metric_families

from batchkiln.client import RequestMeter
from batchkiln.core.calls import Outage
from batchkiln.core.rate_limits import DayUsage, Limits
from batchkiln.core.states import ItemState
from batchkiln.dashboard.metrics import exposition, queue_metrics, request_metrics
from batchkiln.dashboard.snapshot import PageSnapshot, Slot
from batchkiln.presentation.overview import AccountView, Overview
from batchkiln.presentation.shared_by import Undriven
from batchkiln.presentation.worker_views import NO_KEY
from batchkiln.store.accounts import AccountSummary
from batchkiln.store.jobs import Credits, ProblemGroup
from batchkiln.store.lock import Lease
from support.view_builders import NOW, job_view, shared_by

DOCS: Final = Path(__file__).parents[3] / "docs"
UNDRIVEN: Final = Undriven("studio", "carl", NO_KEY)


def samples(text: bytes) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text.decode())
        for sample in family.samples
    }


def test_a_foreign_word_in_a_label_is_read_back_as_it_was() -> None:
    """Error codes are the service's own; quotes and line ends in them break nothing."""
    strange = 'a "quoted"\nback\\slash'
    metric = GaugeMetricFamily("batchkiln_problems", "Problems.", labels=("code",))
    metric.add_metric((strange,), 3)

    assert samples(exposition([metric])) == {("batchkiln_problems", (("code", strange),)): 3}


def test_leases_are_reported_where_workers_share_the_queue() -> None:
    """Who drives what, how often that changed, and what nobody drives: for alerts."""
    now = PageSnapshot(Overview((), (), None, shared_by(undriven=(UNDRIVEN,))), (), is_all=True)

    found = samples(exposition(queue_metrics(now)))

    account = (("account", "anna"), ("profile", "studio"))
    assert found["batchkiln_driven", ()] == 1
    assert found["batchkiln_lease_held", (*account, ("worker", "fra-1/4711-9c2e"))] == 1
    assert found["batchkiln_lease_takeovers_total", account] == 2
    assert found["batchkiln_fenced_writes_total", account] == 1
    assert found["batchkiln_account_undriven", (("account", "carl"), ("profile", "studio"))] == 1
    assert found["batchkiln_worker_alive", (("egress", "fra-1"), ("worker", "fra-1/4711-9c2e"))] == 1


@pytest.mark.parametrize(("lease", "value"), [(Lease(1, "here", "work", NOW), 1), (None, 0)])
def test_an_outage_is_reported_while_somebody_tries(lease: Lease | None, value: int) -> None:
    """Afterwards nobody knows whether the service answers again."""
    known = AccountSummary(1, "studio", "anna", NOW, DayUsage(), None, None, outage=Outage(NOW, "no route"))
    account = Slot(AccountView(known, DayUsage(), Limits(), NOW), None, (), (), None, None, None, None)
    now = PageSnapshot(Overview((), (), lease), (account,), is_all=True)

    found = samples(exposition(queue_metrics(now)))

    assert found["batchkiln_outage", (("account", "anna"), ("profile", "studio"))] == value


def test_jobs_are_reported_by_state_cause_and_money() -> None:
    """Every state is there, also those of no item, so that a rule finds a zero."""
    problem = ProblemGroup(ItemState.HELD, "key_missing", 1, None)
    view = job_view({ItemState.DONE: 7, ItemState.HELD: 1}, problems=[problem], money=Credits(1, 20, 5))

    found = samples(exposition(queue_metrics(PageSnapshot(Overview((view,), (), None), (), is_all=True))))

    assert found["batchkiln_items", (("job_name", "birds"), ("state", "done"))] == 7
    assert found["batchkiln_items", (("job_name", "birds"), ("state", "expired"))] == 0
    assert found["batchkiln_problems", (("code", "key_missing"), ("job_name", "birds"), ("state", "held"))] == 1
    assert found["batchkiln_job_credits", (("job_name", "birds"), ("kind", "refunded"))] == 5
    assert found["batchkiln_needs_person", ()] == 1
    assert found["batchkiln_driven", ()] == 0


def test_latencies_are_cumulative_and_end_at_infinity() -> None:
    """A histogram as Prometheus has it; the endpoint is a word, never an id."""
    meter = RequestMeter()
    meter.record("/generations/gen_secret", "200", 0.2)
    meter.record("/generations/gen_other", "200", 99.0)
    meter.record("/images", "no_reply", 30.0)

    text = exposition(request_metrics(meter))

    found = samples(text)
    assert found["batchkiln_request_duration_seconds_bucket", (("endpoint", "generations"), ("le", "0.25"))] == 1
    assert found["batchkiln_request_duration_seconds_bucket", (("endpoint", "generations"), ("le", "+Inf"))] == 2
    assert found["batchkiln_request_duration_seconds_count", (("endpoint", "generations"),)] == 2
    assert found["batchkiln_requests_total", (("endpoint", "images"), ("status", "no_reply"))] == 1
    assert b"gen_" not in text


def test_without_a_driver_beside_it_nothing_is_made_up() -> None:
    """Another process's latencies are not known, and are left out."""
    assert list(request_metrics(None)) == []


def documented() -> dict[str, set[str]]:
    """Return the manual's metrics with their labels."""
    manual = (DOCS / "dashboard.md").read_text("utf-8")
    table = re.findall(r"^\|([^|]*`batchkiln_[^|]+)\|([^|]*)\|", manual, re.MULTILINE)
    return {
        name: set(re.findall(r"`(\w+)`", labels)) for names, labels in table for name in re.findall(r"`(\w+)`", names)
    }


def test_the_manual_names_the_metrics_that_are_there() -> None:
    """And no label that Prometheus gives itself, which would take its place."""
    meter = RequestMeter()
    meter.record("/images", "202", 1.0)
    problem = ProblemGroup(ItemState.HELD, "key_missing", 1, None)
    view = job_view({ItemState.DONE: 7}, problems=[problem], ends_at=NOW)
    now = PageSnapshot(Overview((view,), (), None, shared_by(undriven=(UNDRIVEN,))), (), is_all=True)

    text = exposition([*queue_metrics(now), *request_metrics(meter)])

    told = documented()
    assert set(told) == set(re.findall(r"^# TYPE (\w+)", text.decode(), re.MULTILINE))
    for name, labels in samples(text):
        family = name if name in told else name.rpartition("_")[0]  # of a histogram
        assert set(dict(labels)) - {"le"} == told[family]
    assert {"job", "instance"}.isdisjoint(set().union(*told.values()))


def test_the_grafana_file_asks_for_metrics_and_labels_that_are_there() -> None:
    """A renamed one breaks no panel in silence."""
    grafana = json.loads((DOCS / "dashboard" / "grafana.json").read_text("utf-8"))
    told = {name: labels | {"le"} for name, labels in documented().items()}

    for panel in grafana["panels"]:
        for target in panel["targets"]:
            names = {name.removesuffix("_bucket") for name in re.findall(r"batchkiln_\w+", target["expr"])}
            words = ",".join(re.findall(r"(?:by|ignoring) ?\(([^)]*)\)", target["expr"]))
            asked = {word.strip() for word in words.split(",") if word.strip()}
            asked |= set(re.findall(r"[{,](\w+)(?:=|!=|=~|!~)\"", target["expr"]))
            asked |= set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
            assert names, panel["title"]
            assert names <= set(told), panel["title"]
            assert all(asked <= told[name] for name in names), panel["title"]


def test_the_grafana_file_is_a_dashboard() -> None:
    """Its panels stand beside each other on Grafana's 24 columns, and ask the data source that a person chooses."""
    grafana = json.loads((DOCS / "dashboard" / "grafana.json").read_text("utf-8"))
    (chosen,) = grafana["templating"]["list"]
    taken = [
        (x, y)
        for place in (panel["gridPos"] for panel in grafana["panels"])
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]

    assert (chosen["type"], chosen["query"]) == ("datasource", "prometheus")
    assert len(taken) == len(set(taken))
    assert max(x for x, _ in taken) < 24
    assert len({panel["id"] for panel in grafana["panels"]}) == len(grafana["panels"])
    for panel in grafana["panels"]:
        for asks in (panel, *panel["targets"]):
            assert asks["datasource"] == {"type": "prometheus", "uid": f"${{{chosen['name']}}}"}
