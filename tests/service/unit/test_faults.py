"""Which faults strike which requests; what they then do is tested over HTTP."""

import pytest

from batchkiln_service.faults.fault_rules import (
    BEFORE,
    DELAY,
    FALSEHOOD,
    KINDS,
    OUTCOME,
    REPLY,
    FaultMatch,
    FaultRule,
    Subject,
    parse_fault_header,
    places_of,
)
from batchkiln_service.faults.registry import Faults, RequestFaults

CREATE = Subject(
    frozenset({"create"}), "POST", "/images", account="main", model="epsilon-2", prompt="A red fox in fresh snow"
)
MODELS = Subject(frozenset({"models", "read"}), "GET", "/models")


def struck_by(faults: Faults, subject: Subject = MODELS, *, requests: int = 10) -> list[str]:
    """Send so many requests; a dot stands for one that nothing strikes."""
    met = [RequestFaults(faults, subject) for _ in range(requests)]
    return [one.before.kind if one.before else ".".join(rule.kind for rule in one.late) or "." for one in met]


def positions(faults: Faults, *, requests: int = 200) -> list[int]:
    return [number for number, struck in enumerate(struck_by(faults, requests=requests)) if struck == "html"]


def test_after_every_and_times_are_exact() -> None:
    """Two pass, then each third is struck, twice in all."""
    faults = Faults([FaultRule(kind="html", after=2, every=3, times=2)], seed=0)

    assert positions(faults, requests=20) == [4, 7]
    assert faults.active_rules() == []


def test_first_of_the_rules_that_would_strike_does() -> None:
    """A rule behind another waits, and is not used up by waiting."""
    faults = Faults([FaultRule(kind="html", times=2), FaultRule(kind="throttle", times=1)], seed=0)

    assert struck_by(faults, requests=4) == ["html", "html", "throttle", "."]


def test_what_came_before_the_work_leaves_the_reply_alone() -> None:
    """A request that was refused by a fault has no reply to spoil; that fault strikes the next one."""
    faults = Faults([FaultRule(kind="reply_lost"), FaultRule(kind="html")], seed=0)

    assert struck_by(faults, requests=3) == ["html", "reply_lost", "."]


def test_slow_reply_may_get_lost_as_well() -> None:
    """Waiting is a sort of its own: it goes together with what spoils the reply."""
    faults = Faults([FaultRule(kind="cut_body"), FaultRule(kind="slow", seconds=1)], seed=0)

    assert struck_by(faults, requests=1) == ["slow.cut_body"]


def test_chance_follows_the_seed() -> None:
    """The same seed gives the same faults, another one others, and about as many as asked for."""
    runs = [positions(Faults([FaultRule(kind="html", probability=0.3, times=None)], seed=seed)) for seed in (1, 1, 2)]

    assert runs[0] == runs[1] != runs[2]
    assert all(40 <= len(run) <= 80 for run in runs)


def test_rule_with_a_seed_keeps_its_stream() -> None:
    """A rule's own seed is what counts, whatever the service's."""
    rule = FaultRule(kind="html", probability=0.3, times=None, seed=5)

    assert positions(Faults([rule], seed=1)) == positions(Faults([rule], seed=2))


@pytest.mark.parametrize(
    "other",
    [
        FaultRule(kind="throttle", probability=0.5, times=None),
        FaultRule(kind="cut_body", probability=0.5, times=None),
        FaultRule(kind="throttle", endpoint="create", times=None),
    ],
)
def test_rules_do_not_disturb_each_other(other: FaultRule) -> None:
    """Another rule changes nothing of which requests a rule would strike."""
    rule = FaultRule(kind="reply_lost", probability=0.3, times=None, after=5, every=2)
    quiet = FaultRule(kind="html", endpoint="create", probability=0.5, times=None)
    alone, beside = Faults([quiet, rule], seed=3), Faults([other, rule], seed=3)

    for subject in [MODELS] * 100:
        struck, also = RequestFaults(alone, subject), RequestFaults(beside, subject)
        hides = [one.kind for one in also.struck if one.kind == other.kind]
        assert hides or [one.kind for one in struck.struck] == [one.kind for one in also.struck]


@pytest.mark.parametrize(
    ("match", "fits"),
    [
        (FaultMatch(account="main"), True),
        (FaultMatch(account="other"), False),
        (FaultMatch(model="epsilon-2", prompt="fox"), True),
        (FaultMatch(model="epsilon-2", prompt="owl"), False),
        (FaultMatch(method="POST"), True),
        (FaultMatch(method="GET"), False),
        (FaultMatch(path="/im*"), True),
        (FaultMatch(path="/videos"), False),
    ],
)
def test_rule_applies_only_what_it_matches(match: FaultMatch, fits: bool) -> None:  # noqa: FBT001 - a table's column
    """All that a match names has to fit."""
    faults = Faults([FaultRule(kind="html", match=match)], seed=0)

    assert (struck_by(faults, CREATE, requests=1) == ["html"]) is fits


def test_request_without_a_prompt_matches_none() -> None:
    """What cannot be known does not fit."""
    faults = Faults([FaultRule(kind="html", match=FaultMatch(prompt=""))], seed=0)

    assert struck_by(faults, MODELS, requests=1) == ["."]


def test_rules_that_do_not_match_are_not_counted() -> None:
    """`after` counts only the requests that are meant."""
    faults = Faults([FaultRule(kind="html", after=1, match=FaultMatch(method="POST"))], seed=0)

    struck = [struck_by(faults, subject, requests=1)[0] for subject in (MODELS, CREATE, MODELS, CREATE)]

    assert struck == [".", ".", ".", "html"]


def test_what_a_request_asks_for_comes_first() -> None:
    """A rule of the same sort is not used up by a request that has its own fault."""
    faults = Faults([FaultRule(kind="html")], seed=0)

    asking = RequestFaults(faults, MODELS, parse_fault_header("throttle; seconds=4", MODELS.endpoints))

    assert asking.before is not None
    assert (asking.before.kind, asking.before.seconds) == ("throttle", 4)
    assert struck_by(faults, requests=2) == ["html", "."]


def test_several_faults_may_be_asked_for() -> None:
    """One for each sort: a slow reply that is then cut, of a generation that fails."""
    asked = parse_fault_header("cut_body, slow;seconds=2 ,fail_generation", CREATE.endpoints)

    faults = RequestFaults(Faults([], seed=0), CREATE, asked)
    fate = faults.draw(OUTCOME)

    assert [rule.kind for rule in faults.late] == ["slow", "cut_body"]
    assert fate is not None
    assert fate.kind == "fail_generation"
    assert [rule.kind for rule in faults.struck] == ["slow", "cut_body", "fail_generation"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "'' is not a fault of this endpoint; allowed: reset_before, throttle"),
        ("explode", "'explode' is not a fault"),
        ("throtle", "not a fault of this endpoint; did you mean `throttle`? allowed: reset_before"),
        ("link_dies_early", "'link_dies_early' is not a fault of this endpoint"),
        ("slow", "slow needs seconds"),
        ("slow; seconds=soon", "seconds: must be a valid number"),
        ("slow; seconds=nan", "seconds: must be a finite number"),
        ("slow; seconds=-1", "seconds: must be greater than or equal to 0"),
        ("slow; seconds", "'seconds' is not understood; allowed, once each: seconds=…"),
        ("slow; seconds=1; seconds=2", "'seconds=2' is not understood"),
        ("slow; times=5", "'times=5' is not understood"),
        ("reply_lost; seconds=3", "seconds does not apply to reply_lost"),
        ("slow; seconds=1,", "'' is not a fault"),
    ],
)
def test_what_cannot_be_asked_for_is_said_so(text: str, message: str) -> None:
    """A request that asks for the impossible learns what is possible at its endpoint."""
    with pytest.raises(ValueError, match=r"allowed|needs|must|applies") as caught:
        parse_fault_header(text, CREATE.endpoints)

    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"kind": "link_dies_early", "endpoint": "create"}, "cannot occur at the endpoint create; allowed: any, poll"),
        ({"kind": "upload_link_dies_early", "endpoint": "put"}, "allowed: any, upload"),
        ({"kind": "fail_generation", "endpoint": "poll"}, "allowed: any, create"),
        ({"kind": "storage_error", "endpoint": "create"}, "allowed: any, download, put"),
        ({"kind": "wrong_length", "endpoint": "poll"}, "allowed: any, download, put"),
        ({"kind": "edge_block", "endpoint": "put"}, "cannot occur at the endpoint put"),
        ({"kind": "cut_body", "endpoint": "put"}, "cannot occur at the endpoint put"),
        ({"kind": "explode"}, "Input should be 'reset_before'"),
        ({"kind": "html", "endpoint": "nowhere"}, "Input should be 'any'"),
        ({"kind": "html", "seconds": 3}, "seconds does not apply to html"),
        ({"kind": "slow", "seconds": 3, "factor": 2}, "factor does not apply to slow"),
        ({"kind": "slow_generation", "seconds": 3, "factor": 2}, "give either seconds or factor"),
        ({"kind": "wrong_length", "extra_bytes": 0}, "it cannot be 0"),
        ({"kind": "html", "every": 0}, "greater than or equal to 1"),
        ({"kind": "html", "probability": 1.5}, "less than or equal to 1"),
        ({"kind": "html", "colour": "red"}, "Extra inputs are not permitted"),
        ({"kind": "html", "match": {"colour": "red"}}, "Extra inputs are not permitted"),
        ({"kind": "html", "endpoint": "models", "match": {"prompt": "fox"}}, "have no model and no prompt"),
        ({"kind": "html", "endpoint": "openapi", "match": {"account": "main"}}, "have no account to match"),
    ],
)
def test_senseless_rules_are_refused(settings: dict[str, object], message: str) -> None:
    """A mistake in a rule is found before the service starts, and named."""
    with pytest.raises(ValueError, match="validation error") as caught:
        FaultRule.model_validate(settings)

    assert message in str(caught.value)


def test_every_kind_has_a_sort_and_a_place() -> None:
    """No kind could be configured that nothing ever looks for."""
    assert set(KINDS) == BEFORE | DELAY | FALSEHOOD | REPLY | OUTCOME | {"link_dies_early", "upload_link_dies_early"}
    assert all(places_of(kind) for kind in KINDS)


def test_withdrawn_rules_no_longer_apply() -> None:
    """One rule, or all, can be switched off by number; numbers are never used again."""
    faults = Faults([FaultRule(kind="html", times=None)], seed=0)
    number = faults.add("throttle", times=None)

    assert (faults.withdraw(0), faults.withdraw(0)) == (True, False)
    assert struck_by(faults, requests=1) == ["throttle"]
    assert (faults.clear(), struck_by(faults, requests=1)) == (1, ["."])
    assert faults.add("html") == number + 1
