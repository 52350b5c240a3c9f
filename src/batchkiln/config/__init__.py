"""Configuration: profiles, accounts, keys, limits (contract, section 6)."""

from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Final

from batchkiln.config.profiles import Account, KeySource, Profile, base_url_problem
from batchkiln.core.errors import InputError

__all__ = ["ENV", "LOCAL", "Account", "Config", "KeySource", "Profile", "found_file", "load_config"]

CONFIRM_ABOVE_CREDITS: Final = 1000
"""Above this `run` asks on a terminal, where the configuration says nothing else: half of a day's credits."""

LOCAL: Final = "local"
ENV: Final = "env"


class Config:
    """All profiles, which is the default, and above how many credits `run` asks on a terminal."""

    def __init__(
        self, profiles: Mapping[str, Profile], default: str, *, confirm_above_credits: int = CONFIRM_ABOVE_CREDITS
    ) -> None:
        """Take resolved profiles."""
        self.profiles = dict(profiles)
        self.default = default
        self.confirm_above_credits = confirm_above_credits

    def profile(self, name: str | None) -> Profile:
        """Return a profile by name, or the default one. Raises `InputError` for an unknown name."""
        wanted = name or self.default
        if wanted not in self.profiles:
            close = get_close_matches(wanted, self.profiles, n=1)
            hint = f"; did you mean {close[0]}?" if close else f"; there are: {', '.join(sorted(self.profiles))}"
            raise InputError(f"there is no profile {wanted}{hint}")
        return self.profiles[wanted]


def found_file(path: Path | None, environ: Mapping[str, str]) -> Path | None:
    """Return which file is read: the one named, else `batchkiln.yaml` here, else the user's; None where there is none.

    The one named need not be there.
    """
    return path or _found(environ)


def load_config(path: Path | None, environ: Mapping[str, str]) -> Config:
    """Read the configuration: the file named, else `batchkiln.yaml` here, else the user's folder, else none.

    Raises `InputError` with file and line for what is wrong in it.
    """
    chosen = found_file(path, environ)
    if path is not None and not path.is_file():
        raise InputError(f"{path}: there is no such configuration file")
    wanted: str | None = None
    profiles: dict[str, Profile] = {}
    confirm_above = CONFIRM_ABOVE_CREDITS
    if chosen is not None:
        from batchkiln.config.file import read_file  # noqa: PLC0415  its models are slow to import, and often not needed

        wanted, profiles, asked_above = read_file(chosen)
        confirm_above = confirm_above if asked_above is None else asked_above
    profiles.setdefault(LOCAL, Profile(LOCAL))
    default = wanted or LOCAL
    if environ.get("BATCHKILN_BASE_URL") and not environ.get("BATCHKILN_API_KEY"):
        raise InputError("BATCHKILN_BASE_URL is set, but BATCHKILN_API_KEY is not; set both, or neither")
    if environ.get("BATCHKILN_BASE_URL") and environ.get("BATCHKILN_API_KEY"):
        profiles[ENV] = _from_environment(environ["BATCHKILN_BASE_URL"])
        default = ENV
    config = Config(profiles, default, confirm_above_credits=confirm_above)
    config.profile(default)
    return config


def _from_environment(base_url: str) -> Profile:
    if problem := base_url_problem(base_url):
        raise InputError(f"BATCHKILN_BASE_URL: {problem}")
    account = Account("main", (KeySource(env="BATCHKILN_API_KEY"),))
    return Profile(ENV, base_url=base_url.rstrip("/"), accounts=(account,))


def _found(environ: Mapping[str, str]) -> Path | None:
    home = Path(environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
    places = (Path("batchkiln.yaml"), home / "batchkiln" / "batchkiln.yaml")
    return next((place for place in places if place.is_file()), None)
