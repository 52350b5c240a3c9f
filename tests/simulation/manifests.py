"""What the simulated worlds ask for: manifests drawn from a seed, by what their items cost."""

import random
from dataclasses import dataclass
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


def _image(model: str, resolution: str, price: int) -> Offer:
    return Offer(price, f"model: {model}, mode: text-to-image, parameters: {{resolution: {resolution}}}")


def _edit(model: str, resolution: str, price: int) -> Offer:
    request = f"model: {model}, mode: image-to-image, parameters: {{resolution: {resolution}}}"
    return Offer(price, request, takes_picture=True)


def _clip(model: str, resolution: str, seconds: int, price: int) -> Offer:
    parameters = f"{{resolution: {resolution}, duration_seconds: {seconds}}}"
    return Offer(price, f"model: {model}, mode: text-to-video, parameters: {parameters}")


def _moved(model: str, resolution: str, seconds: int, price: int) -> Offer:
    parameters = f"{{resolution: {resolution}, duration_seconds: {seconds}}}"
    return Offer(price, f"model: {model}, mode: image-to-video, parameters: {parameters}", takes_picture=True)


_CHEAP: Final = (
    _image("epsilon-2", "512x512", 2),
    _edit("epsilon-2", "1024x1024", 5),
    _clip("alpha-2.5-lite", "480p", 5, 50),
    _clip("alpha-2.5-lite", "480p", 8, 80),
    _clip("alpha-2.5-lite", "480p", 10, 100),
    _moved("alpha-2.5-lite", "480p", 5, 50),
    _moved("alpha-2.0-mini", "720p", 10, 60),
)
_DEAR: Final = (
    _clip("gamma-3.1-fast", "1080p", 8, 160),
    _moved("gamma-3.1-fast", "1080p", 8, 160),
    _clip("alpha-2.0-pro", "1080p", 10, 300),
    _moved("beta-3.0", "720p", 15, 240),
    _clip("beta-3.0", "1080p", 15, 420),
    _clip("alpha-2.5", "1080p", 12, 480),
)
_RUSHED: Final = (_edit("epsilon-2", "512x512", 2),)  # over at once, each with an upload: the minutes are what is short
_STYLES: Final = (*[_DEAR] * 9, _CHEAP, _CHEAP + _DEAR, _RUSHED)  # what takes long to play comes seldom


_CHAINED: Final = 0.4  # of the items that take an image, those that are made from another item
_REVIEWED: Final = 0.5  # of these others, where a person reviews
_STILL: Final = _image("epsilon-2", "512x512", 2)
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
    reviews: random.Random | None = None,
) -> Wishes:
    """Draw one to three jobs whose cost takes about so many days of the accounts.

    With `reviews`, some items that others are made from need a review first.
    """
    style = _RUSHED if is_rushed else chance.choice(_STYLES)
    credits_in_all = round(DAY_CREDITS * days * chance.uniform(0.5, 1.0)) * len(accounts)
    jobs = [f"job-{number}" for number in range(1 if style is _RUSHED else chance.randint(1, 3))]
    is_rushed = style is _RUSHED
    pictures = chance.choice((MANY_PICTURES, MANY_PICTURES, BEYOND_A_DAY)) if is_rushed else PICTURES
    price = 2 * len(pictures) if is_rushed else credits_in_all // len(jobs)
    stills: list[_Still] = []
    drawn = [
        _draw_job(chance, job, price, accounts=accounts, style=style, pictures=pictures, stills=stills) for job in jobs
    ]
    return Wishes(
        manifests={
            f"{job}.yaml": text if reviews is None else _with_reviews(reviews, text)
            for job, (text, _) in zip(jobs, drawn, strict=True)
        },
        days_at_most=sum(needed for _, needed in drawn),
        busy_hours=0.25 if style is not _CHEAP else 0.6,
        pictures=pictures,
        is_rushed=is_rushed,
    )


def _with_reviews(chance: random.Random, manifest: str) -> str:
    """Let some of the items that only make an input need a review."""
    lines = manifest.splitlines(keepends=True)
    return "".join(
        line.replace("-still,", "-still, review: true,") if " still, " in line and chance.random() < _REVIEWED else line
        for line in lines
    )


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
    dearest = max(offer.price for offer in style)
    uploads = (len(pictures) + chained) / UPLOADS_A_DAY
    return "\n".join([*lines, "items:", *items]) + "\n", (number + chained) / (a_day // dearest) + uploads
