"""Anything but a good request: a refusal in JSON with a stable code, nothing charged, nothing stored."""

import gzip
import json

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from batchkiln_service import Limits
from batchkiln_service.db.credits import audit
from support.examples import examples

from .raw import told
from .service_world import CLIP, IMAGE, World, WorldMaker

FUZZ = settings(
    max_examples=examples(60),
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
KEY = b"Authorization: Bearer key-one-of-main"
JSON = b"Content-Type: application/json"
POSTS = (b"/videos", b"/images", b"/quotes", b"/uploads", b"/uploads/complete")
GETS = (b"/models", b"/credits/balance", b"/generations/gen_1", b"/openapi.json")
# No line breaks: each of these is one header's value, however odd.
VALUES = st.binary(max_size=60).map(lambda value: value.translate(None, b"\r\n"))


@pytest.fixture
async def open_world(make_world: WorldMaker) -> World:
    """Start a service that refuses nothing for being asked often."""
    return await make_world(limits=Limits.lifted(), tiny_media=True)


async def answer_to(
    world: World, method: bytes, path: bytes, *, headers: tuple[bytes, ...] = (KEY,), body: bytes = b""
) -> tuple[int, bytes]:
    """Send exactly these bytes; return the status and the body of the reply."""
    lines = [method + b" " + path + b" HTTP/1.1", b"Host: h", b"Connection: close", *headers]
    if not any(line.lower().startswith((b"content-length", b"transfer-encoding")) for line in headers):
        lines.append(b"Content-Length: %d" % len(body))
    reply = await told(world.service, b"\r\n".join(lines) + b"\r\n\r\n" + body)
    head, _, content = reply.partition(b"\r\n\r\n")
    return int(head.split()[1]), content


def check_refused(status: int, content: bytes) -> None:
    """Every refusal by the API has the one shape, and none is an accident."""
    assert 400 <= status < 500, content
    error = json.loads(content)["error"]
    assert set(error) == {"code", "message"}
    assert error["code"] != "internal_error"
    assert b"Traceback" not in content


async def check_untouched(world: World) -> None:
    """Nothing was charged or stored."""
    assert await world.service.query("SELECT id FROM generations") == []
    assert await world.service.query("SELECT id FROM assets") == []
    assert await world.balance() == 10_000
    assert await world.service._run(audit) == []


def cut_somewhere(body: dict[str, object]) -> st.SearchStrategy[bytes]:
    """Give what is left of a good body when some of it is lost or overwritten."""
    whole = json.dumps(body).encode()
    places = st.integers(0, len(whole) - 1)
    return st.builds(lambda at, more: whole[:at] + more, places, st.binary(max_size=5))


def values() -> st.SearchStrategy[object]:
    """Give any JSON value, not deep."""
    plain = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20)
    return st.recursive(
        plain, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3)
    )


BODIES = st.one_of(
    st.binary(max_size=200),
    cut_somewhere(IMAGE),
    cut_somewhere(CLIP),
    values().map(lambda value: json.dumps(value).encode()),
    st.builds(lambda name, value: json.dumps({**IMAGE, name: value}).encode(), st.text(min_size=1), st.just([None])),
)


@FUZZ
@given(path=st.sampled_from(POSTS), body=BODIES)
async def test_odd_body_is_refused(open_world: World, path: bytes, body: bytes) -> None:
    """Whatever bytes a body holds."""
    headers = (KEY, JSON, b"Idempotency-Key: 0123456789abcdef")
    status, content = await answer_to(open_world, b"POST", b"/api/v1" + path, headers=headers, body=body)

    check_refused(status, content)
    await check_untouched(open_world)


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b'{"model": "\\ud800"}', 400),
        (b'{"model": 1e999}', 400),
        (b'{"prompt": "a", "prompt": "b"}', 400),
        (b"[" * 200_000, 400),
        (b'{"a":' * 900 + b"1" + b"}" * 900, 422),
        (b"9" * 5000, 400),
        (b'"' + b"x" * 1024 * 1024 + b'"', 413),
        (json.dumps({**IMAGE, "max_cost_credits": 10**25}).encode(), 422),
        (json.dumps({**IMAGE, "prompt": "\x00" * 4001}).encode(), 422),
    ],
)
async def test_hostile_body_is_refused(open_world: World, body: bytes, status: int) -> None:
    """Surrogates, infinities, fields given twice, depth, digits without end, more than a MiB."""
    headers = (KEY, JSON, b"Idempotency-Key: 0123456789abcdef")
    answered, content = await answer_to(open_world, b"POST", b"/api/v1/images", headers=headers, body=body)

    check_refused(answered, content)
    assert answered == status
    await check_untouched(open_world)


@pytest.mark.parametrize(
    "headers",
    [
        (b"Content-Encoding: gzip",),
        (b"Content-Encoding: deflate",),
        (b"Content-Encoding: br",),
        (b"Content-Encoding: nonsense",),
        (b"Transfer-Encoding: gzip, chunked",),
        (b"Transfer-Encoding: chunked",),
        (b"Content-Length: -1",),
        (b"Content-Length: 1e3",),
        (b"Content-Length: 9",) * 2 + (b"Content-Length: 10",),
    ],
)
async def test_body_that_cannot_be_decoded_is_refused(open_world: World, headers: tuple[bytes, ...]) -> None:
    """A wrong length or encoding is the client's mistake and no accident."""
    sent = (KEY, JSON, b"Idempotency-Key: 0123456789abcdef", *headers)
    status, content = await answer_to(open_world, b"POST", b"/api/v1/images", headers=sent, body=b"not compressed")

    check_refused(status, content)
    await check_untouched(open_world)


async def test_small_body_that_unpacks_to_a_large_one_is_refused(open_world: World) -> None:
    """The limit is on what has to be held."""
    bomb = gzip.compress(b'"' + b"x" * 50_000_000)
    headers = (KEY, JSON, b"Idempotency-Key: 0123456789abcdef", b"Content-Encoding: gzip")

    status, content = await answer_to(open_world, b"POST", b"/api/v1/images", headers=headers, body=bomb)

    check_refused(status, content)


@FUZZ
@given(value=VALUES)
async def test_odd_key_is_no_key(open_world: World, value: bytes) -> None:
    """Whatever stands in Authorization."""
    for path in (b"/models", b"/credits/balance"):
        status, content = await answer_to(open_world, b"GET", b"/api/v1" + path, headers=(b"Authorization: " + value,))
        check_refused(status, content)
        assert status in {400, 401}


@FUZZ
@given(name=st.sampled_from([b"Content-Type", b"Idempotency-Key", b"Expect", b"Accept", b"Range"]), value=VALUES)
async def test_odd_header_makes_no_accident(open_world: World, name: bytes, value: bytes) -> None:
    """Whatever stands in a header: refused, or ignored and then refused for the body."""
    headers = (KEY, name + b": " + value)
    status, content = await answer_to(open_world, b"POST", b"/api/v1/images", headers=headers, body=b"{}")

    check_refused(status, content)
    await check_untouched(open_world)


SEGMENTS = st.one_of(
    st.sampled_from(
        [b"..", b"%00", b"%ff", b"%", b"%2e%2e", b"%2F", b"//", b"x" * 7000, "ü".encode(), b"%zz", b";", b"\\"]
    ),
    st.text(st.characters(min_codepoint=33, max_codepoint=126, exclude_characters="?# "), max_size=20).map(str.encode),
)


@FUZZ
@given(path=st.lists(SEGMENTS, min_size=1, max_size=4).map(b"/".join))
async def test_odd_path_is_not_found(open_world: World, path: bytes) -> None:
    """Whatever a path holds, also as the id of a generation."""
    for beginning in (b"/api/v1/", b"/api/v1/generations/"):
        status, content = await answer_to(open_world, b"GET", beginning + path)
        assert status in {200, 400, 404, 405, 414}
        assert status == 200 or b"internal_error" not in content


@FUZZ
@given(query=st.text(st.characters(min_codepoint=33, max_codepoint=126, exclude_characters="#"), max_size=60))
async def test_odd_query_changes_nothing(open_world: World, query: str) -> None:
    """No endpoint has query parameters; what stands there is ignored."""
    status, _ = await answer_to(open_world, b"GET", b"/api/v1/models?" + query.encode())

    assert status == 200


EXPIRIES = ("9e99", "-1", "١٢٣", "9" * 400, "", "nan", "0x10", "1_000", "%00", " 1", "%F0%9F%98%80")


@pytest.mark.parametrize("expires", EXPIRIES)
@pytest.mark.parametrize("method", [b"GET", b"HEAD", b"PUT"])
async def test_odd_link_is_refused_by_the_storage(open_world: World, method: bytes, expires: str) -> None:
    """A signature that is none, and instants that are none."""
    place = b"/storage/uploads/ast_1" if method == b"PUT" else b"/storage/outputs/gen_1/0.png"
    query = f"?expires={expires}&nonce=x&signature={'é' * 3}".encode()

    status, content = await answer_to(open_world, method, place + query, body=b"")

    assert 400 <= status < 500, content
    assert b"internal_error" not in content


@pytest.mark.parametrize("method", [b"HEAD", b"OPTIONS", b"TRACE", b"PROPFIND", b"DELETE", b"PATCH", b"CONNECT"])
@pytest.mark.parametrize("path", [*POSTS, *GETS])
async def test_other_methods_are_not_allowed(open_world: World, method: bytes, path: bytes) -> None:
    """405 with Allow, or 400 where it is no HTTP at all."""
    status, content = await answer_to(open_world, method, b"/api/v1" + path)

    assert status in {400, 404, 405}
    assert method == b"HEAD" or json.loads(content)["error"]["code"]


@pytest.mark.parametrize("key", [None, "nobody"])
@pytest.mark.parametrize("path", ["/videos", "/images", "/quotes", "/uploads", "/uploads/complete"])
async def test_who_has_no_key_learns_nothing_of_the_body(open_world: World, path: str, key: str | None) -> None:
    """401 comes before 400, 413, 415 and 422. Service rule 5.1."""
    authorization = b"X-None: 1" if key is None else b"Authorization: Bearer " + key.encode()

    for headers, body in (((JSON,), b"{"), ((), b"{}"), ((JSON,), b"x" * 1_100_000), ((JSON,), b"{}")):
        sent = (authorization, *headers)
        status, content = await answer_to(open_world, b"POST", b"/api/v1" + path.encode(), headers=sent, body=body)
        assert (status, json.loads(content)["error"]["code"]) == (401, "invalid_api_key")


async def test_refused_bodies_count_in_the_window(world: World) -> None:
    """What was refused for what it asks uses up a place of the minute. Service section 8."""
    for _ in range(10):
        refused = await world.create({"model": "none"})
        assert refused.status == 422

    assert (await world.create()).status == 429
