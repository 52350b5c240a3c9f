"""Dialects: what the service's description fixes stays, what it leaves open is drawn, and the description is true."""

from collections.abc import Iterator
from itertools import pairwise

import jsonschema_rs
import pytest

from batchkiln_service.api.openapi import operations
from batchkiln_service.dialects import TRAITS, Dialect
from batchkiln_service.dialects.endpoints import Endpoint, success_status
from batchkiln_service.dialects.error_replies import body_shape, meant, media_type, refused
from batchkiln_service.dialects.naming import Ids, asset_ids, generation_ids
from batchkiln_service.dialects.openapi_rewrite import describe
from batchkiln_service.dialects.sample_files import EXTENSIONS, small_file
from support.examples import examples

SEEDS = range(examples(100))
FORMS = ("prefix_hex", "uuid", "int", "digits", "base62", "long", "upper")
PLACES = {
    Endpoint.MODELS: ("get", "/models"),
    Endpoint.BALANCE: ("get", "/credits/balance"),
    Endpoint.QUOTE: ("post", "/quotes"),
    Endpoint.CREATE: ("post", "/images"),
    Endpoint.READ: ("get", "/generations/{id}"),
    Endpoint.PREPARE: ("post", "/uploads"),
    Endpoint.COMPLETE: ("post", "/uploads/complete"),
}


def given(endpoint: Endpoint) -> Iterator[object]:
    """Give what the service below answers, as the dress takes it."""
    (operation,) = (one for one in operations() if (one.method, one.path) == PLACES[endpoint])
    for example in operation.success[1]["content"]["application/json"]["examples"].values():
        value = example["value"]
        assert isinstance(value, dict)
        if endpoint is Endpoint.PREPARE:
            tickets = [ticket | {"index": 0, "type": "image/png", "size": 204_800} for ticket in value["uploads"]]
            yield tickets
            yield [tickets[0], tickets[0] | {"index": 1, "asset_id": "ast_00000000000000ffffffffff", "name": "b.png"}]
        elif endpoint is Endpoint.COMPLETE:
            yield value["assets"]
        else:
            yield value["models"] if endpoint is Endpoint.MODELS else value


def closed(part: object) -> object:
    """Return a schema that allows no field which it does not name."""
    if isinstance(part, list):
        return [closed(one) for one in part]
    if not isinstance(part, dict):
        return part
    made = {name: closed(one) for name, one in part.items()}
    return {"additionalProperties": False, **made} if made.get("type") == "object" and "properties" in made else made


def found(document: object, name: str) -> Iterator[object]:
    """Give all values that stand under a name, wherever."""
    if isinstance(document, list):
        for one in document:
            yield from found(one, name)
    elif isinstance(document, dict):
        for field, value in document.items():
            if field == name:
                yield value
            yield from found(value, name)


@pytest.mark.long
def test_each_reply_is_as_the_description_of_its_dialect_says() -> None:
    """Field for field: also no field comes that the description does not have. Service section 9."""
    wrong = []
    for seed in SEEDS:
        dialect = Dialect.draw(seed)
        document = closed(describe(dialect))
        assert isinstance(document, dict)
        for endpoint, (method, path) in PLACES.items():
            response = document["paths"][path][method]["responses"][str(success_status(dialect, endpoint))]
            (content,) = response["content"].values()
            validator = jsonschema_rs.validator_for({**content["schema"], "components": document["components"]})
            for example in given(endpoint):
                made = endpoint.shape(dialect).make(example)
                wrong += [(seed, endpoint, error.message) for error in validator.iter_errors(made)]

    assert wrong == []


def test_each_refusal_is_as_the_description_of_its_dialect_says() -> None:
    """Whatever shape errors have, it is the one that is described."""
    wrong = []
    for seed in SEEDS:
        dialect = Dialect.draw(seed)
        document = closed(describe(dialect))
        assert isinstance(document, dict)
        refusal = refused(dialect, 422, "unsupported_option", "mode 'x' is not supported")
        response = document["paths"]["/images"]["post"]["responses"][str(refusal.status)]
        schema = response["content"][media_type(dialect, refusal)]["schema"]
        if media_type(dialect, refusal) != "text/plain":
            validator = jsonschema_rs.validator_for({**schema, "components": document["components"]})
            wrong += [(seed, error.message) for error in validator.iter_errors(body_shape(dialect).make(refusal))]

    assert wrong == []


@pytest.mark.parametrize("seed", range(0, 400, 7))
def test_what_the_description_of_the_service_fixes_stays(seed: int) -> None:
    """Documented names keep their names and values, wherever they stand. Service sections 2.1, 2.3 and 2.4."""
    dialect = Dialect.draw(seed)
    *_, record = [one for one in given(Endpoint.READ) if isinstance(one, dict) and one["status"] == "success"]
    shown = Endpoint.READ.shape(dialect).make(record)
    tickets = Endpoint.PREPARE.shape(dialect).make(next(given(Endpoint.PREPARE)))
    assets = Endpoint.COMPLETE.shape(dialect).make(next(given(Endpoint.COMPLETE)))
    price = Endpoint.QUOTE.shape(dialect).make({"cost_credits": 50})

    assert record["model"] in found(shown, "model")
    assert "success" in found(shown, "status")
    assert record["created_at"] in found(shown, "created_at")
    assert record["credits"]["cost"] in [each.get("cost") for each in found(shown, "credits") if isinstance(each, dict)]
    (outputs,) = found(shown, "outputs")
    assert isinstance(outputs, list)
    assert [(one["type"], one["url"]) for one in outputs] == [("video", record["outputs"][0]["url"])]
    assert len(list(found(tickets, "upload_url"))) == len(list(found(tickets, "upload_headers"))) == 1
    assert len(list(found(assets, "url"))) >= 1
    assert list(found(price, "cost_credits")) == [50]


def test_documented_statuses_and_codes_stay() -> None:
    """Service section 7: 409 for a changed body, 429 for limits, 503, and the one code that is told."""
    for seed in SEEDS:
        dialect = Dialect.draw(seed)
        upgrade = refused(dialect, 403, "api_key_upgrade_required", "make a new one")

        assert (upgrade.status, upgrade.code) == (403, "api_key_upgrade_required")
        assert media_type(dialect, upgrade) != "text/plain"  # no JSON would be the firewall's
        assert refused(dialect, 409, "idempotency_conflict", "").status == 409
        assert refused(dialect, 429, "rate_limited", "").status == 429
        assert refused(dialect, 429, "credit_budget_exhausted", "").status == 429
        assert refused(dialect, 503, "unavailable", "").status == 503


@pytest.mark.parametrize("form", FORMS)
def test_an_id_leads_back_to_the_service_below(form: str) -> None:
    """Every form of ids has one way there and one back; what is no id leads nowhere."""
    ids = Ids("ast", form)
    dialect = Dialect.draw(1)
    own = [f"ast_{number:024x}" for number in (1 << 39, (1 << 40) - 1, 0xABCDEF0123)]

    assert [ids.own(ids.shown(one)) for one in own] == own
    assert ids.own("something else") == ids.own("") == ids.own("../..") == "unknown"
    assert generation_ids(dialect).prefix == "gen"
    assert asset_ids(dialect).prefix == "ast"


def test_a_trait_can_be_made_plain_without_a_change_of_any_other() -> None:
    """A dialect that is not understood is shrunk to the traits that matter."""
    dialect = Dialect.draw(7)

    for trait in dialect.unlike_plain:
        plain = dialect.without([trait])
        assert set(dialect.unlike_plain) - set(plain.unlike_plain) == {trait}
    assert dialect.without(TRAITS).unlike_plain == ()
    with pytest.raises(ValueError, match="there is no trait colour"):
        dialect.without(["colour"])


def test_each_option_of_each_trait_is_drawn() -> None:
    """A thousand seeds leave no option out, and the same seed is the same dialect."""
    drawn = [Dialect.draw(seed) for seed in range(1000)]

    for trait, options in TRAITS.items():
        assert {dialect[trait] for dialect in drawn} == {option for option, _ in options}
    assert Dialect.draw(5) == drawn[5]
    assert all(one != other for one, other in pairwise(drawn))


def test_what_a_replay_may_meet_says_nothing_of_conflicts() -> None:
    """Another word than that of a changed body, whatever the dialect."""
    for seed in SEEDS:
        dialect = Dialect.draw(seed)
        codes = {meant(dialect, meaning, 409).code for meaning in ("in_progress", "conflict", "busy")}

        assert len(codes) == 3


@pytest.mark.parametrize("extension", sorted(set(EXTENSIONS) - {"avif"}))
def test_second_output_of_a_kind_is_another_file(extension: str) -> None:
    """Two outputs of one generation are told apart by their bytes; the same number is the same file."""
    first, second = (small_file(extension, number) for number in range(2))

    assert first != second
    small_file.cache_clear()
    assert small_file(extension) == first
