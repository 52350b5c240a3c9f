"""What the simulated worlds ask for: manifests drawn from a seed, by what their items cost."""

import random
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Final

DAY_CREDITS: Final = 2000
UPLOADS_A_DAY: Final = 100
PICTURES: Final = tuple(f"picture-{number}.png" for number in range(3))
MANY_PICTURES: Final = tuple(f"picture-{number}.png" for number in range(40))
BEYOND_A_DAY: Final = tuple(f"picture-{number}.png" for number in range(104))  # a day takes 100 uploads


@dataclass(frozen=True)
class Offer:
    """One way to spend credits; `takes_picture` where it starts from an image."""

    price: int
    request: str
    takes_picture: bool = False


def image(model: str, resolution: str, price: int) -> Offer:
    return Offer(price, f"model: {model}, mode: text-to-image, parameters: {{resolution: {resolution}}}")


def _edit(model: str, resolution: str, price: int) -> Offer:
    request = f"model: {model}, mode: image-to-image, parameters: {{resolution: {resolution}}}"
    return Offer(price, request, takes_picture=True)


def clip(model: str, resolution: str, seconds: int, price: int) -> Offer:
    parameters = f"{{resolution: {resolution}, duration_seconds: {seconds}}}"
    return Offer(price, f"model: {model}, mode: text-to-video, parameters: {parameters}")


def _moved(model: str, resolution: str, seconds: int, price: int) -> Offer:
    parameters = f"{{resolution: {resolution}, duration_seconds: {seconds}}}"
    return Offer(price, f"model: {model}, mode: image-to-video, parameters: {parameters}", takes_picture=True)


_CHEAP: Final = (
    image("epsilon-2", "512x512", 2),
    _edit("epsilon-2", "1024x1024", 5),
    clip("alpha-2.5-lite", "480p", 5, 50),
    clip("alpha-2.5-lite", "480p", 8, 80),
    clip("alpha-2.5-lite", "480p", 10, 100),
    _moved("alpha-2.5-lite", "480p", 5, 50),
    _moved("alpha-2.0-mini", "720p", 10, 60),
)
_DEAR: Final = (
    clip("gamma-3.1-fast", "1080p", 8, 160),
    _moved("gamma-3.1-fast", "1080p", 8, 160),
    clip("alpha-2.0-pro", "1080p", 10, 300),
    _moved("beta-3.0", "720p", 15, 240),
    clip("beta-3.0", "1080p", 15, 420),
    clip("alpha-2.5", "1080p", 12, 480),
)
_RUSHED: Final = (_edit("epsilon-2", "512x512", 2),)  # over at once, each with an upload: the minutes are what is short
_STYLES: Final = (*[_DEAR] * 9, _CHEAP, _CHEAP + _DEAR, _RUSHED)  # what takes long to play comes seldom

_SIDECARS: Final = {"job-0": ["output: {sidecar: json}"], "job-1": ["output: {sidecar: txt}"]}


_CHAINED: Final = 0.4  # of the items that take an image, those that are made from another item
_REVIEWED: Final = 0.5  # of these others, where a person reviews
_VARIED: Final = 0.4  # likewise: those that are a group of variants
_STILL: Final = image("epsilon-2", "512x512", 2)
_OF_VARIANT: Final = 0.2  # of what is made from a group: it names a variant, whichever is chosen
_REFERENCE: Final = re.compile(r"\{(?:job: (?P<job>[^,}]+), )?item: (?P<item>[^,}]+)\}")
_CREDITS: Final = re.compile(r"(budget: \{.*?\bcredits: )(\d+)")
_DEPTH: Final = 3


@dataclass(frozen=True)
class _Still:
    """An item that makes an image, and how many items it is made from, one after the other."""

    job: str
    item: str
    depth: int


@dataclass(frozen=True)
class Wishes:
    """The manifests of a world, and within how many days of calm all of it can be had, at the very worst."""

    manifests: dict[str, str]
    days_at_most: float
    busy_hours: float  # after each midnight, about: then the day's credits are spent
    pictures: tuple[str, ...]
    is_rushed: bool


def draw_wishes(
    chance: random.Random,
    *,
    days: float,
    accounts: tuple[str, ...],
    is_rushed: bool,
    is_choosing: bool = False,
    reviews: random.Random | None = None,
) -> Wishes:
    """Draw one to three jobs whose cost takes about so many days of the accounts.

    With `reviews`, some items that others are made from need a review first, or are variants to choose from.
    """
    style = _RUSHED if is_rushed else _CHEAP if is_choosing else chance.choice(_STYLES)
    credits_in_all = round(DAY_CREDITS * days * chance.uniform(0.5, 1.0)) * len(accounts)
    jobs = [f"job-{number}" for number in range(1 if style is _RUSHED else chance.randint(1, 3))]
    is_rushed = style is _RUSHED
    pictures = chance.choice((MANY_PICTURES, MANY_PICTURES, BEYOND_A_DAY)) if is_rushed else PICTURES
    price = 2 * len(pictures) if is_rushed else credits_in_all // len(jobs)
    stills: list[_Still] = []
    drawn = [
        _draw_job(chance, job, price, accounts=accounts, style=style, pictures=pictures, stills=stills) for job in jobs
    ]
    texts = {job: text for job, (text, _) in zip(jobs, drawn, strict=True)}
    if reviews is not None:
        texts = with_choices(reviews, texts, (2, 3, 4) if is_choosing else (0, 1, 2))
    return Wishes(
        manifests={f"{job}.yaml": text for job, text in texts.items()},
        days_at_most=sum(needed for _, needed in drawn) + (reviews is not None),  # a variant is cheap
        busy_hours=0.25 if style is not _CHEAP else 0.6,
        pictures=pictures,
        is_rushed=is_rushed,
    )


def _gallery(chance: random.Random, sizes: tuple[int, ...]) -> Iterator[str]:
    """Give a few cheap pictures, and what is made from them: they become variants to choose from, or need a review."""
    for number in range(chance.choice(sizes)):
        yield f"  - {{id: g{number}-still, prompt: gallery {number} still, {_STILL.request}}}\n"
        for copy in range(chance.choice((1, 1, 2))):
            inputs = f"inputs: [{{item: g{number}-still}}]"
            yield f"  - {{id: g{number}-{copy}, prompt: gallery {number} {copy}, {inputs}, {_RUSHED[0].request}}}\n"


def with_choices(chance: random.Random, texts: dict[str, str], sizes: tuple[int, ...]) -> dict[str, str]:
    """Return manifests by their jobs with galleries, and with groups and reviews among what only makes an input.

    A job with a budget gets no gallery. `sizes` has the numbers of pictures to draw from.
    """
    galleries = {job: text + "".join(_gallery(chance, sizes)) for job, text in texts.items() if "credits: " not in text}
    return _with_choices(chance, texts | galleries)


def _with_choices(chance: random.Random, texts: dict[str, str]) -> dict[str, str]:
    """Let some of the items that only make an input need a review, or be a group of variants to choose from."""
    groups: dict[tuple[str, str], tuple[int, int]] = {}  # the variants, and how many are chosen
    chosen = {}
    for job, text in texts.items():
        lines = []
        for line in text.splitlines(keepends=True):
            item = line.partition("{id: ")[2].partition(",")[0]
            drawn = chance.random() if " still, " in line else 1.0
            fields = "review: true, " if drawn < _REVIEWED else ""
            if " still, " in line and chance.random() < _VARIED:
                variants, choose = groups[job, item] = chance.choice(((2, 1), (3, 1), (3, 2)))
                fields += f"variants: {variants}, choose: {choose}, "
            lines.append(line.replace(f"{{id: {item}, ", f"{{id: {item}, {fields}") if fields else line)
        more = sum(_STILL.price * (variants - 1) for (owner, _), (variants, _) in groups.items() if owner == job)
        chosen[job] = _CREDITS.sub(partial(_raised, more=more), "".join(lines))
    return {job: _referring(chance, job, text, groups) for job, text in chosen.items()}


def _raised(found: re.Match[str], *, more: int) -> str:
    return f"{found[1]}{int(found[2]) + more}"


def _referring(chance: random.Random, job: str, manifest: str, groups: dict[tuple[str, str], tuple[int, int]]) -> str:
    """Let items that are made from a group name one of those that are chosen, or now and then a variant."""

    def refer(found: re.Match[str]) -> str:
        owner, item = found["job"] or job, found["item"]
        if (owner, item) not in groups:
            return found[0]
        variants, choose = groups[owner, item]
        if chance.random() < _OF_VARIANT:
            return found[0].replace(item, f"{item}-{chance.randint(1, variants)}")
        return found[0].replace(item, f"{item}, choice: {chance.randint(1, choose)}")

    return _REFERENCE.sub(refer, manifest)


def _draw_job(
    chance: random.Random,
    job: str,
    credits_in_all: int,
    *,
    accounts: tuple[str, ...],
    style: tuple[Offer, ...],
    pictures: tuple[str, ...],
    stills: list[_Still],
) -> tuple[str, float]:
    lines = ["version: 1", f"job: {job}", f"accounts: [{', '.join(accounts)}]"]
    lines.append(f"order: {chance.choice(('manifest', 'pack'))}")
    a_day = chance.choice((800, 1500)) if chance.random() < 0.3 else DAY_CREDITS
    items, spent, number, chained = list[str](), 0, 0, 0
    while spent < credits_in_all or not number:
        number += 1
        offer = chance.choice(style)
        spent += offer.price
        picture = pictures[number % len(pictures)] if style is _RUSHED else chance.choice(pictures)
        item, priority, depth = f"i{number}", chance.choice((0, 0, 0, 5)), 0
        if offer.takes_picture and style is not _RUSHED and chance.random() < _CHAINED:
            chained += 1
            still = chance.choice([None, *(each for each in stills if each.depth < _DEPTH - 1)])
            if still is None:
                still = _Still(job, f"i{number}-still", 0)
                stills.append(still)
                spent += _STILL.price
                line = f"  - {{id: {still.item}, prompt: {job} {number} still, {_STILL.request}}}"
                items.insert(chance.randint(0, len(items)), line)
            picture = f"{{item: {still.item}}}" if still.job == job else f"{{job: {still.job}, item: {still.item}}}"
            depth = still.depth + 1
        if "-to-image" in offer.request and style is not _RUSHED:
            stills.append(_Still(job, item, depth))
        inputs = f", inputs: [{picture}]" if offer.takes_picture else ""
        items.append(f"  - {{id: {item}, priority: {priority}, prompt: {job} {number}{inputs}, {offer.request}}}")
    budget = [f"credits_per_day: {a_day}"] if a_day < DAY_CREDITS else []
    budget += [f"credits: {spent}"] if chance.random() < 0.3 else []  # just enough, if refunds are counted
    lines += [f"budget: {{{', '.join(budget)}}}"] if budget else []
    lines += _SIDECARS.get(job, [])
    dearest = max(offer.price for offer in style)
    uploads = (len(pictures) + chained) / UPLOADS_A_DAY
    return "\n".join([*lines, "items:", *items]) + "\n", (number + chained) / (a_day // dearest) + uploads
