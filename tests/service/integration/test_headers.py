"""Headers that tell who is asking and what is repeated: given once, or refused."""

from .raw import told
from .service_world import World

IMAGE = b'{"model":"epsilon-2","mode":"text-to-image","prompt":"x","parameters":{"resolution":"512x512"}}'


async def answer_to(world: World, *headers: str) -> bytes:
    """Create an image with these headers; return the reply."""
    lines = ["POST /api/v1/images HTTP/1.1", "Host: h", "Connection: close", "Content-Type: application/json"]
    lines += [f"Content-Length: {len(IMAGE)}", *headers]
    return await told(world.service, "\r\n".join(lines).encode() + b"\r\n\r\n" + IMAGE)


async def test_second_idempotency_key_is_refused(world: World) -> None:
    """With two keys, it is ambiguous which one identifies a replay. Service rule 4.1."""
    reply = await answer_to(
        world,
        "Authorization: Bearer key-one-of-main",
        "Idempotency-Key: 0123456789abcdef",
        "Idempotency-Key: fedcba9876543210",
    )

    assert reply.startswith(b"HTTP/1.1 400 ")
    assert b'"invalid_idempotency_key"' in reply
    assert await world.service.query("SELECT id FROM generations") == []


async def test_second_api_key_is_none(world: World) -> None:
    """This holds even if one of the two is valid: a proxy might have checked the other. Service rule 5.1."""
    for first, second in (("key-one-of-main", "nobodys"), ("nobodys", "key-one-of-main")):
        reply = await answer_to(
            world,
            f"Authorization: Bearer {first}",
            f"Authorization: Bearer {second}",
            "Idempotency-Key: 0123456789abcdef",
        )

        assert reply.startswith(b"HTTP/1.1 401 ")
