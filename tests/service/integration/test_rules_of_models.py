"""GET /models lists exactly what each model accepts and costs. Service sections 1, 2.2 and 4."""

import pytest

from batchkiln_service import Limits

from .service_world import CLIP, Reply, World, WorldMaker

VIDEO_MODELS = (
    *("alpha-2.5", "alpha-2.5-lite", "alpha-2.0-pro", "alpha-2.0-fast", "alpha-2.0-mini"),
    *("alpha-1.5-pro", "beta-3.0", "gamma-3.1-fast"),
)
IMAGE_MODELS = ("delta-image-2", "epsilon-2", "epsilon-pro")
MODELS = (*VIDEO_MODELS, *IMAGE_MODELS)


@pytest.fixture
async def open_world(make_world: WorldMaker) -> World:
    """Start a service that refuses nothing for being asked often, and whose generations end as they begin."""
    return await make_world(limits=Limits.lifted(), instant=True)


def inputs(url: str, count: int = 1) -> list[dict[str, str]]:
    return [{"type": "image", "url": url}] * count


async def quote(world: World, body: object) -> Reply:
    return await world.send("POST", "/quotes", body=body)


async def entries(world: World) -> dict[str, dict[str, object]]:
    models = (await world.send("GET", "/models")).body["models"]
    assert isinstance(models, list)
    return {entry["id"]: entry for entry in models}


def listed(entry: dict[str, object], name: str) -> list[object]:
    value = entry[name]
    assert isinstance(value, list)
    return value


def plainest(entry: dict[str, object], mode: object) -> dict[str, object]:
    """Make a request of a model from what the catalogue says of it, with nothing that may be left out."""
    parameters = {"resolution": listed(entry, "resolutions")[0]}
    if entry["kind"] == "video":
        parameters["duration_seconds"] = listed(entry, "durations_seconds")[0]
    return {"model": entry["id"], "mode": mode, "prompt": "A red fox", "parameters": parameters}


async def test_catalogue_tells_each_models_kind(world: World) -> None:
    """Eight models make videos and three make images, by these very names. Service section 1."""
    kinds = {name: entry["kind"] for name, entry in (await entries(world)).items()}

    assert kinds == dict.fromkeys(VIDEO_MODELS, "video") | dict.fromkeys(IMAGE_MODELS, "image")


@pytest.mark.parametrize("model", MODELS)
async def test_every_mode_of_a_model_makes_its_kind(open_world: World, png: bytes, model: str) -> None:
    """From text and from images; the record has the public name that was sent, and the output its kind. Section 1."""
    entry, url = (await entries(open_world))[model], await open_world.upload(png)
    kind = "video" if model in VIDEO_MODELS else "image"

    made = []
    for mode in listed(entry, "modes"):
        body = plainest(entry, mode)
        made.append(await open_world.create(body if "text" in str(mode) else {**body, "inputs": inputs(url)}))

    assert listed(entry, "modes") == [f"text-to-{kind}", f"image-to-{kind}"]
    assert [(reply.status, reply.body["model"], reply.output["type"]) for reply in made] == [(202, model, kind)] * 2


@pytest.mark.parametrize("model", MODELS)
async def test_catalogue_lists_the_combinations_that_are_accepted(open_world: World, model: str) -> None:
    """Each resolution and ratio that go together by GET /models, in each duration; no other. Service sections 1, 4."""
    entry = (await entries(open_world))[model]
    body, combinations = plainest(entry, listed(entry, "modes")[0]), listed(entry, "combinations")
    durations = [{"duration_seconds": seconds} for seconds in listed(entry, "durations_seconds")] or [{}]
    statuses = {}

    for combination in combinations:
        assert isinstance(combination, dict)
        for ratio in ("16:9", "9:16", "1:1", "4:3", "3:4", "3:2", "2:3", "21:9", "5:4"):
            chosen = {"resolution": combination["resolution"], "aspect_ratio": ratio}
            asked = [await quote(open_world, {**body, "parameters": chosen | each}) for each in durations]
            statuses[combination["resolution"], ratio] = {reply.status for reply in asked}

    advertised = {(each["resolution"], ratio) for each in combinations for ratio in each["aspect_ratios"]}  # type: ignore[index]  # JSON
    assert [pair for pair, seen in statuses.items() if seen == {200}] == [
        pair for pair in statuses if pair in advertised
    ]
    assert {frozenset(seen) for pair, seen in statuses.items() if pair not in advertised} <= {frozenset({422})}


@pytest.mark.parametrize("model", MODELS)
async def test_catalogue_tells_the_limits_of_prompt_and_images(open_world: World, png: bytes, model: str) -> None:
    """What just fits by GET /models is accepted, and one more is not. Service sections 1, 2.2 and 8."""
    entry, url = (await entries(open_world))[model], await open_world.upload(png)
    from_text, from_images = (plainest(entry, mode) for mode in listed(entry, "modes"))
    longest, most = entry["prompt_limit_characters"], entry["max_input_images"]
    assert isinstance(longest, int)
    assert isinstance(most, int)

    prompts = [await quote(open_world, {**from_text, "prompt": "x" * count}) for count in (longest, longest + 1)]
    images = [await quote(open_world, {**from_images, "inputs": inputs(url, count)}) for count in (most, most + 1)]

    assert [reply.status for reply in (*prompts, *images)] == [200, 422, 200, 422]


@pytest.mark.parametrize("model", MODELS)
async def test_image_mode_takes_the_number_of_images_that_it_says(open_world: World, png: bytes, model: str) -> None:
    """As few and as many as GET /models has for it, and no image fewer or more. Service section 2.2."""
    entry, url = (await entries(open_world))[model], await open_world.upload(png)
    body, seen, told = plainest(entry, listed(entry, "modes")[1]), [], []
    parameters = body["parameters"]
    assert isinstance(parameters, dict)

    for limits in listed(entry, "image_mode_limits"):
        assert isinstance(limits, dict)
        chosen = {**body, "parameters": {**parameters, "image_mode": limits["image_mode"]}}
        least, most = limits["min_images"], limits["max_images"]
        counts = (least - 1, least, most, most + 1)
        seen.append([(await quote(open_world, {**chosen, "inputs": inputs(url, count)})).status for count in counts])
        told.append(limits["image_mode"])

    assert told == listed(entry, "image_modes")
    assert seen == [[422, 200, 200, 422]] * len(told)


@pytest.mark.parametrize(
    ("switch", "field", "value"),
    [
        ("audio_control", "generate_audio", False),
        ("google_search", "google_search", False),
        ("output_formats", "output_format", "png"),
        ("output_formats", "output_format", "jpg"),
        ("image_modes", "image_mode", "first-frame"),
    ],
)
@pytest.mark.parametrize("model", MODELS)
async def test_switch_may_be_sent_where_it_is_advertised(  # noqa: PLR0917  parameters of the table
    open_world: World, png: bytes, model: str, switch: str, field: str, value: object
) -> None:
    """Sound, search, format and image mode are accepted where GET /models has them, else refused. Rule 2.2.3."""
    entry = (await entries(open_world))[model]
    body = plainest(entry, listed(entry, "modes")[field == "image_mode"])
    if field == "image_mode":
        body["inputs"] = inputs(await open_world.upload(png))
    parameters = body["parameters"]
    assert isinstance(parameters, dict)

    reply = await quote(open_world, {**body, "parameters": {**parameters, field: value}})

    assert reply.status == (200 if entry[switch] else 422)


@pytest.mark.parametrize("model", MODELS)
async def test_quote_is_the_charge_of_every_model(open_world: World, png: bytes, model: str) -> None:
    """Quoted, reserved, recorded and taken off the balance are one number, in every resolution. Section 4, pricing."""
    entry, url = (await entries(open_world))[model], await open_world.upload(png)
    switches = {"generate_audio": "audio_control", "google_search": "google_search"}
    chosen: dict[str, object] = {field: True for field, advertised in switches.items() if entry[advertised]}
    if entry["kind"] == "video":
        chosen["duration_seconds"] = listed(entry, "durations_seconds")[-1]
    most = entry["max_input_images"]
    assert isinstance(most, int)
    body = {**plainest(entry, listed(entry, "modes")[1]), "inputs": inputs(url, most)}

    for resolution in listed(entry, "resolutions"):
        asked = {**body, "parameters": chosen | {"resolution": resolution}}
        cost = (await quote(open_world, asked)).body["cost_credits"]
        before = await open_world.balance()
        created = await open_world.create({**asked, "max_cost_credits": cost})
        assert isinstance(cost, int)
        assert isinstance(before, int)
        assert (created.status, created.body["credits"]) == (202, {"cost": cost})
        assert await open_world.balance() == before - cost


@pytest.mark.parametrize(
    ("seconds", "images", "cost"), [(2, 0, 20), (10, 0, 100), (2, 1, 20), (2, 5, 20), (2, 6, 27), (5, 9, 78)]
)
@pytest.mark.parametrize("resolution", ["480p", "720p"])
async def test_lite_costs_ten_a_second_and_seven_an_image_beyond_five(  # noqa: PLR0917  parameters of the table
    open_world: World, png: bytes, seconds: int, images: int, cost: int, resolution: str
) -> None:
    """Quote and charge agree at every resolution. Service section 4, pricing."""
    body = {**CLIP, "parameters": {"resolution": resolution, "duration_seconds": seconds}}
    if images:
        body |= {"mode": "image-to-video", "inputs": inputs(await open_world.upload(png), images)}

    quoted, created = await quote(open_world, body), await open_world.create(body)

    assert (quoted.body["cost_credits"], created.body["credits"]) == (cost, {"cost": cost})
