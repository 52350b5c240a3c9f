"""A service with a seed gives the same answers to the same requests, in each new folder."""

from pathlib import Path

from .service_world import CLIP, IMAGE, World, WorldMaker, image_with


async def history(world: World, key_prefix: str, png: bytes) -> list[object]:
    """Return the ids, ends and files of two equal requests, a clip, and an image from an upload."""
    url = await world.upload(png)
    from_upload = image_with(mode="image-to-image", inputs=[{"type": "image", "url": url}])
    for number, body in enumerate((IMAGE, IMAGE, CLIP, from_upload)):
        created = await world.create(body, idempotency_key=f"{key_prefix}-idempotency-key-{number}")
        world.clock.advance(1)
        await world.finish(created)
        world.clock.advance(60)
    rows = await world.service.query(
        "SELECT g.id, g.finish_at_ms - g.created_at_ms, o.sha256 FROM generations g"
        " JOIN outputs o ON o.generation_id = g.id ORDER BY g.created_at_ms"
    )
    return [url, *(tuple(row.values()) for row in rows)]


async def test_a_seed_repeats_ids_durations_and_files_under_any_keys(
    make_world: WorldMaker, tmp_path: Path, png: bytes
) -> None:
    """A client that makes up a key for each request sees the same ids, waits and files in the next run."""
    histories = []
    for name in ("first", "second"):
        world = await make_world(seed=3, state_dir=tmp_path / name)
        histories.append(await history(world, name, png))

    assert histories[0] == histories[1]
    assert len({str(entry) for entry in histories[0]}) == 5, "equal requests differ from each other"


async def test_another_seed_gives_other_ids(make_world: WorldMaker, tmp_path: Path) -> None:
    """The ids of two seeds have nothing in common, and without a seed nobody can guess them."""
    ids = []
    for number, seed in enumerate((3, 4, None, None)):
        world = await make_world(seed=seed, state_dir=tmp_path / str(number))
        ids.append((await world.create()).body["id"])

    assert len(set(ids)) == 4


async def test_ids_stay_unique_over_a_restart(make_world: WorldMaker) -> None:
    """The ordinal of a request is counted in the database, not in the process."""
    world = await make_world(seed=3, instant=True)
    first = await world.create()
    await world.stop()
    await world.start()

    second = await world.create()

    assert (first.status, second.status) == (202, 202)
    assert first.body["id"] != second.body["id"]
