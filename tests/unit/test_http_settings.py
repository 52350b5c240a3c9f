"""The section `http` of the configuration: tokens by hash or by place, and addresses that make sense."""

from ipaddress import ip_network
from pathlib import Path

import pytest

from batchkiln.config import AccessScope, load_config, token_digest
from batchkiln.core.errors import InputError

TOKEN = "bk_0123456789abcdef0123456789abcdef"
HASH = token_digest(TOKEN)


def write(folder: Path, text: str) -> Path:
    path = folder / "batchkiln.yaml"
    path.write_text(text)
    return path


def test_whole_section_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hashes and places stand side by side; relative files are relative to the configuration."""
    monkeypatch.setenv("CI_TOKEN", "x" * 40)
    text = f"""
    http:
      tokens:
        wall: {{sha256: {HASH.upper()}, scopes: [look]}}
        ci: {{env: CI_TOKEN, scopes: [look, enqueue]}}
      host: 0.0.0.0
      public_url: https://kiln.example.org/
      trusted_proxies: [10.0.0.2, 172.16.0.0/12]
      files: incoming
    """

    http = load_config(write(tmp_path, text), {}).http

    assert {name: token.name for name, token in http.digests().items()} == {HASH: "wall", token_digest("x" * 40): "ci"}
    assert http.tokens[1].scopes == {AccessScope.LOOK, AccessScope.ENQUEUE}
    assert http.public_url == "https://kiln.example.org"
    assert http.trusted_proxies == (ip_network("10.0.0.2"), ip_network("172.16.0.0/12"))
    assert http.files == tmp_path / "incoming"
    assert http.is_beyond_loopback


def test_interface_is_off_and_local_by_default(tmp_path: Path) -> None:
    http = load_config(write(tmp_path, "profiles: {}"), {}).http

    assert http.tokens == ()
    assert not http.is_beyond_loopback


def test_token_of_the_environment_is_kept_from_programs(tmp_path: Path) -> None:
    """A hook inherits the environment without it (Law 8)."""
    config = load_config(write(tmp_path, "http: {tokens: {ci: {env: CI_TOKEN, scopes: [look]}}}"), {})

    assert "CI_TOKEN" in config.secret_variables()


@pytest.mark.parametrize(
    ("section", "reason"),
    [
        ("{tokens: {a: {scopes: [look]}}}", "exactly one of sha256, env, file and keyring"),
        (f"{{tokens: {{a: {{sha256: {HASH}, env: A, scopes: [look]}}}}}}", "exactly one of sha256"),
        ("{tokens: {a: {env: A, scopes: []}}}", "at least 1 item"),
        ("{tokens: {a: {env: A, scopes: [admin]}}}", "'look', 'enqueue' or 'decide'"),
        ("{tokens: {'a b': {env: A, scopes: [look]}}}", "pattern"),
        ("{host: kiln}", "an address to listen on is an IP address"),
        ("{public_url: kiln.example.org}", "begins with https://"),
        ("{public_url: 'https://example.org/kiln'}", "has no user, path, query or fragment"),
        ("{trusted_proxies: [proxy]}", "neither an IP address nor a network"),
    ],
)
def test_wrong_section_is_an_error_at_its_place(tmp_path: Path, section: str, reason: str) -> None:
    with pytest.raises(InputError) as raised:
        load_config(write(tmp_path, f"http: {section}"), {})

    assert reason in str(raised.value)
    assert "batchkiln.yaml:1:" in str(raised.value)


def test_token_in_place_of_its_hash_is_not_shown(tmp_path: Path) -> None:
    """The mistake is told by its place alone (Law 8)."""
    with pytest.raises(InputError) as raised:
        load_config(write(tmp_path, f"http: {{tokens: {{a: {{sha256: {TOKEN}, scopes: [look]}}}}}}"), {})

    assert TOKEN not in str(raised.value)


@pytest.mark.parametrize(("value", "reason"), [("", "no token found"), ("short", "fewer than 32 characters")])
def test_missing_or_short_token_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: str, reason: str
) -> None:
    monkeypatch.setenv("A_TOKEN", value)
    http = load_config(write(tmp_path, "http: {tokens: {a: {env: A_TOKEN, scopes: [look]}}}"), {}).http

    with pytest.raises(InputError, match=reason) as raised:
        http.digests()

    assert "nothing was served" in str(raised.value)


def test_one_token_under_two_names_is_refused(tmp_path: Path) -> None:
    """One of the two would have the scopes of the other."""
    text = f"http: {{tokens: {{a: {{sha256: {HASH}, scopes: [look]}}, b: {{sha256: {HASH}, scopes: [decide]}}}}}}"

    with pytest.raises(InputError, match="a and b have the same token"):
        load_config(write(tmp_path, text), {}).http.digests()


def test_port_is_read(tmp_path: Path) -> None:
    assert load_config(write(tmp_path, "http: {port: 8700}"), {}).http.port == 8700
