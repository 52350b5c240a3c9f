"""Documented replies in random dressings are read alike (contract, section 8)."""

import json
from typing import Any

from hypothesis import given, settings, strategies as st

from batchkiln.client.http_response import RawReply
from batchkiln.client.parse import parse_balance, parse_complete, parse_create, parse_prepare, parse_quote, parse_read
from batchkiln.core.responses import (
    Accepted,
    AssetsReady,
    BalanceRead,
    Quoted,
    RecordRead,
    UploadsPrepared,
    UploadTicket,
)
from property.client.reply_variants import (
    NOISE,
    SPELLINGS,
    Draw,
    completions,
    preparations,
    records,
    respelled,
    wrapped,
)
from support.examples import examples


def answer(document: object, status: int = 200) -> RawReply:
    return RawReply(status, {"content-type": "application/json"}, json.dumps(document).encode())


@settings(max_examples=examples(120), deadline=None)
@given(told=records())
def test_the_record_is_found_in_every_dressing(told: tuple[Any, str, str]) -> None:
    """Its own id, never an envelope's; status, price, instant and links as they are. Laws 2 and 3."""
    document, generation_id, status = told

    created = parse_create(answer(document, 202))
    read = parse_read(answer(document), generation_id)

    assert isinstance(created, Accepted)
    assert isinstance(read, RecordRead)
    assert created.record == read.record
    assert (created.record.id, created.record.status.value, created.record.cost_credits) == (generation_id, status, 4)
    assert created.record.created_at is not None
    assert len(created.record.outputs) == (status == "success")


@settings(max_examples=examples(150), deadline=None)
@given(told=preparations())
def test_each_file_gets_its_own_ticket_in_every_dressing(told: tuple[Any, list[str], list[Any]]) -> None:
    """The asset's id by what stands around the url; the bytes of one file never go to another's place."""
    document, names, tickets = told

    assert parse_prepare(answer(document), names) == UploadsPrepared(tuple(UploadTicket(*each) for each in tickets))


@settings(max_examples=examples(150), deadline=None)
@given(told=completions())
def test_each_asset_gets_its_own_url_in_every_dressing(told: tuple[Any, list[str], list[str]]) -> None:
    """URLs are matched by id if the reply has ids, else by position; no other link of the asset is used."""
    document, ids, urls = told

    assert parse_complete(answer(document), ids) == AssetsReady(tuple(urls))


@settings(max_examples=examples(60), deadline=None)
@given(data=st.data(), price=st.integers(0, 10**6), spell=st.sampled_from(SPELLINGS))
def test_the_documented_price_wins_in_every_dressing(data: st.DataObject, price: int, spell: Any) -> None:  # noqa: ANN401
    """Whatever else has a figure. Service section 2.4."""
    other = data.draw(st.dictionaries(st.sampled_from(["credits", "price", "total", "cost", "balance"]), st.integers()))
    draw: Draw = data.draw
    document = wrapped(draw, respelled({**other, "cost_credits": price}, spell), noise=frozenset(NOISE))

    assert parse_quote(answer(document)) == Quoted(price)


@settings(max_examples=examples(60), deadline=None)
@given(data=st.data(), left=st.integers(0, 10**6), spell=st.sampled_from(SPELLINGS[:4]))
def test_the_balance_is_found_in_every_dressing(data: st.DataObject, left: int, spell: Any) -> None:  # noqa: ANN401
    """Under any name that says what is left, beside what was used and what is allowed. Service section 2.4."""
    draw: Draw = data.draw
    names = ["balance", "remaining", "remaining_credits", "credits_remaining", "available_credits", "credit_balance"]
    fields = {draw(st.sampled_from(names)): left, "used": 7, "daily_limit": 2000, "user_id": "u_1"}
    document = wrapped(draw, respelled(fields, spell), noise=frozenset(NOISE))

    assert parse_balance(answer(document)) == BalanceRead(left)
