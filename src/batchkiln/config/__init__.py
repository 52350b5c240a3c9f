"""Configuration: profiles, accounts, keys, limits (contract, section 6), notifiers and traces."""

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Final

from batchkiln.config.notifiers import Notifier
from batchkiln.config.profiles import Account, KeySource, Profile, base_url_problem, clear_text_problem, is_loopback
from batchkiln.config.traces import Traces, traces_of
from batchkiln.core.errors import InputError

__all__ = [
    "ENV",
    "LOCAL",
    "Account",
    "Config",
    "KeySource",
    "Notifier",
    "Profile",
    "Traces",
    "config_of",
    "found_file",
    "is_loopback",
    "load_config",
]

CONFIRM_ABOVE_CREDITS: Final = 1000
"""Above this `run` asks on a terminal, where the configuration says nothing else: half of a day's credits."""

LOCAL: Final = "local"
ENV: Final = "env"


class Config:
    """All profiles, which is the default, and above how many credits `run` asks on a terminal."""

    def __init__(
        self,
        profiles: Mapping[str, Profile],
        default: str,
        notifiers: Iterable[Notifier] = (),
        *,
        confirm_above_credits: int | None = None,
        traces: Traces | None = None,
    ) -> None:
        """Take resolved profiles."""
        self.profiles = dict(profiles)
        self.default = default
        self.notifiers = {notifier.name: notifier for notifier in notifiers}
        self.traces = traces
        self.confirm_above_credits = CONFIRM_ABOVE_CREDITS if confirm_above_credits is None else confirm_above_credits

    def profile(self, name: str | None) -> Profile:
        """Return a profile by name, or the default one. Raises `InputError` for an unknown name."""
        wanted = name or self.default
        if wanted not in self.profiles:
            close = get_close_matches(wanted, self.profiles, n=1)
            hint = f"; did you mean {close[0]}?" if close else f"; there are: {', '.join(sorted(self.profiles))}"
            raise InputError(f"there is no profile {wanted}{hint}")
        return self.profiles[wanted]

    def check_notifiers(self, names: Iterable[str]) -> None:
        """Raise `InputError` for a notifier that is not configured."""
        for name in names:
            if name not in self.notifiers:
                close = get_close_matches(name, self.notifiers, n=1)
                there = f"there are: {', '.join(sorted(self.notifiers))}" if self.notifiers else "none is configured"
                raise InputError(f"there is no notifier {name}; {f'did you mean {close[0]}?' if close else there}")


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
    notifiers: list[Notifier] = []
    confirm_above: int | None = None
    endpoint: str | None = None
    if chosen is not None:
        from batchkiln.config.file import read_file  # noqa: PLC0415  its models are slow to import, and often not needed

        wanted, profiles, notifiers, confirm_above, endpoint = read_file(chosen)
    profiles.setdefault(LOCAL, Profile(LOCAL))
    default = wanted or LOCAL
    if environ.get("BATCHKILN_BASE_URL") and not environ.get("BATCHKILN_API_KEY"):
        raise InputError("BATCHKILN_BASE_URL is set, but BATCHKILN_API_KEY is not; set both, or neither")
    if environ.get("BATCHKILN_BASE_URL") and environ.get("BATCHKILN_API_KEY"):
        profiles[ENV] = _from_environment(environ["BATCHKILN_BASE_URL"], environ.get("BATCHKILN_ALLOW_HTTP", ""))
        default = ENV
    traces = traces_of(endpoint, environ)
    config = Config(profiles, default, notifiers, confirm_above_credits=confirm_above, traces=traces)
    config.profile(default)
    return config


def config_of(content: Mapping[str, object]) -> Config:
    """Take a configuration as a program has it: what the file would hold. The environment has no say in it.

    Relative key files are looked up in the current folder. Raises `InputError` with every mistake.
    """
    from batchkiln.config.file import read_content  # noqa: PLC0415  as above

    default, profiles, notifiers, confirm_above, endpoint = read_content(content)
    profiles.setdefault(LOCAL, Profile(LOCAL))
    traces = traces_of(endpoint, {})
    config = Config(profiles, default or LOCAL, notifiers, confirm_above_credits=confirm_above, traces=traces)
    config.profile(config.default)
    return config


def _from_environment(base_url: str, allow_http: str) -> Profile:
    if problem := base_url_problem(base_url):
        raise InputError(f"BATCHKILN_BASE_URL: {problem}")
    allows_http = allow_http.strip().lower() in {"1", "true", "yes"}
    problem = clear_text_problem(base_url, remedy="set BATCHKILN_ALLOW_HTTP=1")
    if problem and not allows_http:
        raise InputError(f"BATCHKILN_BASE_URL: {problem}")
    account = Account("main", (KeySource(env="BATCHKILN_API_KEY"),))
    return Profile(ENV, base_url=base_url.rstrip("/"), accounts=(account,), allows_http=allows_http)


def _found(environ: Mapping[str, str]) -> Path | None:
    home = Path(environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
    places = (Path("batchkiln.yaml"), home / "batchkiln" / "batchkiln.yaml")
    return next((place for place in places if place.is_file()), None)


def queue_path(path: Path) -> Path:
    """Follow a link in the place of the queue's file, for lock and log lie beside the file and not beside a link.

    Any other path stays as it was given, for the messages; so does a link that leads nowhere in a circle.
    """
    try:
        return _resolved(path) if path.is_symlink() else path
    except (OSError, RuntimeError):  # Python 3.12 and before call a circle a RuntimeError
        return path


def _resolved(link: Path) -> Path:
    """Follow a link; since Python 3.13 only a strict look tells a circle from a file that is not there yet."""
    try:
        return link.resolve(strict=True)
    except FileNotFoundError:
        return link.resolve()
