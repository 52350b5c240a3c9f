"""Uploads of services that nobody has seen: whose id an id is, and whose link a link (contract, section 8)."""

import json
from typing import Any

import pytest

from batchkiln.client.http_response import RawReply
from batchkiln.client.openapi import hints_from_openapi
from batchkiln.client.parse import parse_complete, parse_prepare, parse_read
from batchkiln.client.reply_mapping import FieldHints, ReplyMapping, search_path
from batchkiln.core.response_rules import ReplyField, ReplyRules
from batchkiln.core.responses import AssetsReady, NotUnderstood, RecordRead, UploadsPrepared

LINKS = ["https://s.example/1?sig=a", "https://s.example/2?sig=b"]
HEADERS: list[Any] = [{"Content-Length": "3"}, {"Content-Length": "4"}]
NAMES = ["a.png", "b.png"]


def answer(document: object) -> RawReply:
    return RawReply(200, {"content-type": "application/json"}, json.dumps(document).encode())


def tickets(document: object, names: list[str]) -> list[tuple[str, str, dict[str, str]]]:
    reply = parse_prepare(answer(document), names)
    assert isinstance(reply, UploadsPrepared), reply
    return [(ticket.asset_id, ticket.url, dict(ticket.headers)) for ticket in reply.tickets]


def urls(document: object, ids: list[str]) -> list[str]:
    reply = parse_complete(answer(document), ids)
    assert isinstance(reply, AssetsReady), reply
    return list(reply.urls)


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("name", ["ids", "refs", "file-ids", "tokens", "assets", "handles"])
def test_lists_side_by_side_are_read_row_by_row(name: str, count: int) -> None:
    """This includes singular names below an envelope that has an id itself. Service section 2.3."""
    ids = ["9f86d081884c", "60303ae22b99"]
    columns = {name: ids[:count], "upload_url": LINKS[:count], "upload_headers": HEADERS[:count]}
    document = {"id": "req_77", "status": "ok", "created": 1772355600, "data": columns}

    expected = list(zip(ids, LINKS, HEADERS, strict=True))[:count]
    assert tickets(document, NAMES[:count]) == expected


def test_headers_as_pairs_side_by_side_are_each_files_own() -> None:
    """One file's headers never go to another's place. Service section 2.3."""
    pairs = [[["Content-Length", "3"]], [["Content-Length", "4"]]]
    document = {"refs": ["r-9f86d0", "r-60303a"], "upload_url": LINKS, "upload_headers": pairs}

    assert [each[2] for each in tickets(document, NAMES)] == HEADERS


def test_what_stands_beside_the_lists_counts_for_each_file() -> None:
    """Headers told once are sent with each. Service section 2.3."""
    document = {"count": 2, "asset_ids": ["r-9f86d0", "r-60303a"], "upload_url": LINKS, "upload_headers": {"x-a": "b"}}

    assert tickets(document, NAMES) == [("r-9f86d0", LINKS[0], {"x-a": "b"}), ("r-60303a", LINKS[1], {"x-a": "b"})]


@pytest.mark.parametrize("header", [{"name": "Content-Length", "value": "3"}, ["Content-Length", "3"]])
def test_headers_one_by_one_are_no_list_by_file(header: Any) -> None:  # noqa: ANN401
    """As many headers as files are still the headers of each. Service section 2.3."""
    document = {"asset_ids": ["r-9f86d0"], "upload_urls": LINKS[:1], "upload_headers": [header]}

    assert tickets(document, NAMES[:1]) == [("r-9f86d0", LINKS[0], {"Content-Length": "3"})]


ENVELOPE = {"id": "req_77", "status": "ok", "created": 1772355600}
PREVIEW = {"url": "https://docs.example/preview.jpg", "width": 64}


@pytest.mark.parametrize("name", ["upload_id", "ref", "token", "key", "nameId"])
def test_the_id_of_an_envelope_is_never_the_assets(name: str) -> None:
    """However much its name looks like one, and however little that of the asset's. Service section 2.3."""
    ticket = {name: "1ae9xH4F0nztzlK7H", "upload_url": LINKS[0], "upload_headers": {}, "name": "a.png"}

    for within in (ticket, {"items": [ticket]}, {"files": {"a.png": ticket}}):
        assert tickets({**ENVELOPE, "data": within}, NAMES[:1]) == [("1ae9xH4F0nztzlK7H", LINKS[0], {})]


def test_a_reply_with_no_id_but_its_envelopes_is_not_understood() -> None:
    """A wrong id costs the files of an upload; a remedy costs nothing. Service section 2.3."""
    ticket = {"upload_url": LINKS[0], "upload_headers": {}, "name": "a.png"}

    assert isinstance(parse_prepare(answer({**ENVELOPE, "data": ticket}), NAMES[:1]), NotUnderstood)


@pytest.mark.parametrize("name", ["token", "name_id", "handle"])
@pytest.mark.parametrize("count", [1, 2])
def test_a_number_under_an_unusual_name_is_an_id(name: str, count: int) -> None:
    """Beside sizes, other ids, and whatever counts. Service section 2.3."""
    listed = [
        {
            "upload": {
                name: 559889146391 + 7919 * row,
                "upload_session_id": 1026280802403,
                "upload_url": LINKS[row],
                "upload_headers": {},
                "file": {"name": NAMES[row], "size": 1000 + row, "type": "image/png"},
                "part_size": 5242880,
            },
            "status": "pending",
        }
        for row in range(count)
    ]

    assert [each[0] for each in tickets({"results": listed}, NAMES[:count])] == [
        str(559889146391 + 7919 * row) for row in range(count)
    ]


@pytest.mark.parametrize("place", ["image", "content", "asset", "file"])
@pytest.mark.parametrize("count", [1, 2])
def test_another_link_of_an_asset_is_not_its_url(place: str, count: int) -> None:
    """A url that cannot be used as an input costs refused creates. Service section 2.3."""
    ids = ["ast_0001a", "ast_0002b"][:count]
    listed = [
        {"preview": PREVIEW, "thumbnail": {"url": f"https://t.example/{own}"}, "id": own, place: {"url": f"/in/{own}"}}
        for own in ids
    ]
    unnamed = [{name: value for name, value in each.items() if name != "id"} for each in listed]

    assert urls({"items": listed}, ids) == [f"/in/{own}" for own in ids]
    assert urls({"items": unnamed}, ids) == [f"/in/{own}" for own in ids]


@pytest.mark.parametrize("count", [1, 2])
def test_two_links_that_could_be_meant_are_not_guessed(count: int) -> None:
    """Neither says which one inputs take. Service section 2.3."""
    ids = ["ast_0001a", "ast_0002b"][:count]
    listed = [{"id": own, "large": {"url": f"/l/{own}"}, "small": {"url": f"/s/{own}"}} for own in ids]

    assert isinstance(parse_complete(answer({"items": listed}), ids), NotUnderstood)
    assert isinstance(parse_complete(answer({"items": [{"preview": PREVIEW} for _ in ids]}), ids), NotUnderstood)


def test_a_configured_id_in_other_letter_case_is_the_one_asked_for() -> None:
    """Else the generation would be polled for ever, and what was paid for never fetched. Law 3."""
    mapping = ReplyMapping(ReplyRules({ReplyField.GENERATION_ID: "data.id"}))
    document = {"data": {"id": "GEN_00FF", "status": "processing", "credits": {"cost": 4}}}

    reply = parse_read(answer(document), "gen_00ff", mapping)

    assert isinstance(reply, RecordRead)
    assert reply.record.id == "gen_00ff"


def remedies() -> list[tuple[object, int, bool]]:
    """Give replies that are not understood, how many files they are about, and whether they complete an upload."""
    ticket = {"upload_url": LINKS[0], "upload_headers": {}, "alpha": "x7f3-19aa0", "omega": "y7f3-19aa0"}
    other = {"upload_url": LINKS[1], "upload_headers": {}, "alpha": "x8c2-20bb1", "omega": "y8c2-20bb1"}
    shared = {**ENVELOPE, "data": {"a.png": {"upload": ticket}, "b.png": {"upload": other}}}
    large = [{"large": {"url": f"/l/{row}"}, "small": {"url": f"/s/{row}"}} for row in range(2)]
    return [
        ({"items": [ticket, other]}, 2, False),
        ([ticket], 1, False),
        (shared, 2, False),
        ({"groups": [{"items": {"a.png": ticket, "b.png": other}}]}, 2, False),
        ({**ENVELOPE, "data": {"upload_url": LINKS[0], "upload_headers": {}}}, 1, False),
        ({"items": large}, 2, True),
        ({"data": {"a.png": {"in": large[0]}, "b.png": {"in": large[1]}}}, 2, True),
        ({"data": [{"preview": PREVIEW, "x": {"href-a": "https://s.example/1"}}]}, 1, True),
    ]


@pytest.mark.parametrize(("document", "count", "completes"), remedies())
def test_a_printed_remedy_finds_as_many_values_as_were_asked_for(
    document: object,
    count: int,
    completes: bool,  # noqa: FBT001
) -> None:
    """A line to paste that finds nothing would cost another upload (Law 10)."""
    ids = ["ast_0001a", "ast_0002b"][:count]
    reply = parse_complete(answer(document), ids) if completes else parse_prepare(answer(document), NAMES[:count])
    assert isinstance(reply, NotUnderstood), reply
    remedy = reply.remedy or ""
    path = remedy.partition(": '")[2].rpartition("'")[0]

    if path:
        found = search_path(path, document)
        assert len(set(map(str, found if isinstance(found, list) else [found]))) == count
        assert found is not None
    else:
        assert "<path>" in remedy


@pytest.mark.parametrize("count", [1, 2])
def test_names_of_fields_that_the_description_calls_identifiers_are_read(count: int) -> None:
    """This includes values that look like field names. Service section 2.3."""
    mapping = ReplyMapping(hints=FieldHints(asset_id=("data", "files", "*")))
    ids = ["zpwKETAZOYElHWEq", "yazrFKrLqa_ldXnm"][:count]
    files = {own: {"upload_url": link, "upload_headers": {}} for own, link in zip(ids, LINKS, strict=False)}

    reply = parse_prepare(answer({"data": {"files": files}}), NAMES[:count], mapping)

    assert isinstance(reply, UploadsPrepared)
    assert [ticket.asset_id for ticket in reply.tickets] == ids


def test_a_map_that_is_described_as_of_identifiers_is_keyed_by_them() -> None:
    """What the description says of the map, it says of its names; of file names it does not. Service section 2.3."""

    def described(words: str) -> tuple[str, ...]:
        ticket = {"type": "object", "properties": {"upload_url": {"type": "string"}}}
        files = {"type": "object", "additionalProperties": ticket, "description": words}
        schema = {"type": "object", "properties": {"files": files}}
        content = {"application/json": {"schema": schema}}
        return hints_from_openapi(
            {"paths": {"/uploads": {"post": {"responses": {"200": {"content": content}}}}}}
        ).asset_id

    assert described("Identifier of the asset. Pass it in `asset_ids`.") == ("files", "*")
    assert described("The uploads by file name; complete them with `asset_ids`.") == ()


def test_urls_in_another_order_are_never_taken_by_position() -> None:
    """One picture taken for another is paid for, and of no use. Service section 2.3."""
    ids = ["ast_0001a", "ast_0002b"]
    listed = [{"id": own, "a": {"url": f"/l/{own}"}, "b": {"c": {"url": f"/s/{own}"}}} for own in reversed(ids)]

    assert isinstance(parse_complete(answer({"items": listed}), ids), NotUnderstood)
