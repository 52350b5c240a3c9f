"""Draws a dialect from a seed. `traits.toml` is the table of traits.

Each trait is drawn independently, so that one can be reset without changing the others: a dialect that a client does
not understand can be reduced to the traits that cause this.
"""

import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from importlib import resources
from typing import Any, Final, Self

from batchkiln_service.config import ServiceConfig
from batchkiln_service.rules.windows import Counting

_ID_BYTES: Final = 12  # of the service's identifiers, without their prefix
_NUMBER_BYTES: Final = 5  # of numeric identifiers, which every JSON parser keeps exact
NUMBERS: Final = frozenset({"int", "digits"})
_ASSET_LIVES: Final = {"fourteen_days": 14 * 86_400.0, "day": 86_400.0, "hours": 4 * 3_600.0}
_LINK_LIVES: Final = {"fifteen_minutes": 900.0, "five_minutes": 300.0, "minute": 60.0}

Options = tuple[tuple[str, int], ...]  # with weights; the first option is that of the service without a dialect


def load_table(name: str) -> Any:  # noqa: ANN401 - a table of TOML
    """Return the table in a file beside this module."""
    return tomllib.loads(resources.files(__package__).joinpath(name).read_text(encoding="utf-8"))


TRAITS: Final[Mapping[str, Options]] = {
    trait: tuple(options.items()) if isinstance(options, dict) else tuple((option, 1) for option in options)
    for trait, options in load_table("traits.toml").items()
}


@dataclass(frozen=True)
class Dialect:
    """A dialect: an option for each trait. Choices within a trait also follow from the seed."""

    seed: int
    chosen: Mapping[str, str] = field(hash=False)

    @classmethod
    def draw(cls, seed: int) -> Self:
        """Return the dialect of a seed; it is the same on every machine."""
        return cls(seed, {trait: _drawn(seed, trait, options) for trait, options in TRAITS.items()})

    @classmethod
    def of(cls, config: ServiceConfig) -> Self | None:
        """Return the configured dialect; None without one. Raise ValueError for an unknown trait."""
        return None if config.dialect is None else cls.draw(config.dialect).without(config.dialect_without)

    def without(self, traits: Iterable[str]) -> Self:
        """Return the dialect without these traits. Raise ValueError for an unknown trait."""
        unknown = set(traits := list(traits)) - set(TRAITS)
        if unknown:
            raise ValueError(f"there is no trait {', '.join(sorted(unknown))}; there are: {', '.join(TRAITS)}")
        return type(self)(self.seed, {**self.chosen, **{trait: TRAITS[trait][0][0] for trait in traits}})

    def __getitem__(self, trait: str) -> str:
        return self.chosen[trait]

    def number(self, subject: str, below: int) -> int:
        """Return a number below a bound that depends only on the seed and the subject."""
        return _digest(self.seed, subject) % below

    def new_id(self, prefix: str, token_bytes: Callable[[int], bytes]) -> str:
        """Return a new identifier with `token_bytes` bytes, in the dialect's form of identifiers."""
        trait = "asset_id" if prefix == "ast" else "generation_id"
        size = _NUMBER_BYTES if self[trait] in NUMBERS else _ID_BYTES
        number = int.from_bytes(token_bytes(size)) | 1 << 8 * size - 1  # never fewer digits
        return f"{prefix}_{number:0{2 * _ID_BYTES}x}"

    def in_configuration(self, config: ServiceConfig) -> ServiceConfig:
        """Return the configuration with the dialect's lifetimes of links and media."""
        lives = {
            "asset_retention_seconds": _ASSET_LIVES[self["asset_life"]],
            "link_seconds": _LINK_LIVES[self["link_life"]],
        }
        chosen = {name: min(seconds, getattr(config, name)) for name, seconds in lives.items()}
        return config.model_copy(update=chosen)

    @property
    def counting(self) -> Counting:
        """The way in which requests are counted in windows."""
        return Counting(
            has_fixed_minutes=self["minutes"] == "fixed",
            counts_refused=self["refused_requests"] == "counted",
            counts_completions=self["completions"] == "counted",
        )

    @property
    def unlike_plain(self) -> tuple[str, ...]:
        """The traits in which the dialect differs from the plain service."""
        return tuple(trait for trait, options in TRAITS.items() if self.chosen[trait] != options[0][0])

    def as_document(self) -> dict[str, object]:
        """Return the seed and the options, for JSON."""
        return {"seed": self.seed, "traits": dict(self.chosen)}


def _drawn(seed: int, trait: str, options: Options) -> str:
    at = _digest(seed, trait) % sum(weight for _, weight in options)
    for option, weight in options:
        at -= weight
        if at < 0:
            return option
    raise AssertionError("weights add up")


def _digest(seed: int, subject: str) -> int:
    return int.from_bytes(sha256(f"{seed} {subject}".encode()).digest()[:8])
