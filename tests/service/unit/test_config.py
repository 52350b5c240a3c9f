"""The service's configuration."""

from pathlib import Path

import pytest
import yaml

from batchkiln_service import KeyConfig, ServiceConfig
from batchkiln_service.config import load_config, read_fields


def test_defaults_are_the_documented_limits() -> None:
    """Without settings the limits are those of Service section 8."""
    limits = ServiceConfig(state_dir=Path("state")).limits

    assert limits.model_dump() == {
        "active_generations": 1,
        "creates_per_minute": 10,
        "creates_per_day": 1000,
        "reads_per_minute": 60,
        "reads_per_day": 20_000,
        "credits_per_day": 2000,
        "upload_files_per_day": 100,
        "upload_bytes_per_day": 500 * 1024 * 1024,
        "requests_per_minute_per_ip": 120,
        "poll_interval_seconds": 10.0,
        "minute_seconds": 60.0,
    }


def test_yaml_is_read(tmp_path: Path) -> None:
    """An operator's file sets any field."""
    path = tmp_path / "service.yaml"
    path.write_text(
        "state_dir: state\ntime_scale: 60\nlimits: {creates_per_minute: 3}\n"
        "accounts: [{name: main, keys: [plain, {env: KEY}]}]\nfaults: [{kind: throttle, times: 2}]\n"
    )

    config = load_config(path)

    assert (config.time_scale, config.limits.creates_per_minute, config.faults[0].times) == (60, 3, 2)
    assert config.accounts[0].key_configs == (KeyConfig(value="plain"), KeyConfig(env="KEY"))


def test_field_that_is_given_twice_is_refused(tmp_path: Path) -> None:
    """The last one would win silently, for a limit of money for example."""
    path = tmp_path / "service.yaml"
    path.write_text("state_dir: state\nlimits:\n  credits_per_day: 5\n  credits_per_day: 5000\n")

    with pytest.raises(yaml.MarkedYAMLError, match="credits_per_day: this field is given twice") as caught:
        load_config(path)

    assert caught.value.problem_mark is not None
    assert (caught.value.problem_mark.line, caught.value.problem_mark.column) == (3, 2)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("no", "no"), ("on", "on"), ("1_000", "1_000"), ("12:30", "12:30"), ("2020-01-01", "2020-01-01"), ("010", 10),
        ("null", None), ("~", None), ("", None), ("true", True), ("-7", -7), ("1e3", 1000.0), (".5", 0.5), ("'7'", "7"),
    ],
)  # fmt: skip
def test_scalars_are_those_of_yaml_1_2(tmp_path: Path, text: str, value: object) -> None:
    """As in manifests: a word such as `no` is text (section 10.3.2 of the YAML specification)."""
    path = tmp_path / "service.yaml"
    path.write_text(f"state_dir: {text}\n")

    assert read_fields(path) == {"state_dir": value}


@pytest.mark.parametrize(
    "settings",
    [
        {"time_scale": 0},
        {"unknown": 1},
        {"accounts": [{"name": "a"}, {"name": "a"}]},
        {"accounts": [{"name": "a", "keys": [f"key-{number}" for number in range(11)]}]},
        {"accounts": [{"name": "../a"}]},
        {"day_start": "2020-01-01T00:00:00"},
        {"link_seconds": 901},
        {"link_seconds": float("nan")},
        {"time_scale": float("inf")},
        {"time_scale": float("nan")},
        {"time_scale": 1e12},
        {"time_scale": 1e-300},
        {"day_seconds": 1e-9},
        {"day_seconds": 1e300},
        {"duration_scale": float("inf")},
        {"media_retention_seconds": 1e12},
        {"start_at": "9999-12-31T00:00:00Z"},
        {"limits": {"reads_per_day": 10**30}},
        {"limits": {"poll_interval_seconds": float("inf")}},
        {"accounts": [{"name": "a", "credits": 10**30}]},
        {"faults": [{"kind": "slow", "seconds": 1e300}]},
        {"faults": [{"kind": "slow", "seconds": float("nan")}]},
        {"faults": [{"kind": "slow", "seconds": 1, "times": 10**30}]},
        {"faults": [{"kind": "slow_generation", "factor": 1e300}]},
        {"faults": [{"kind": "wrong_length", "extra_bytes": 10**9}]},
        {"faults": [{"kind": "wrong_length", "extra_bytes": -(10**9)}]},
    ],
)
def test_senseless_settings_are_refused(settings: dict[str, object]) -> None:
    """Mistakes are found before the service starts. Service rules 5.3 and 2.1 bound keys and links."""
    with pytest.raises(ValueError, match="validation error"):
        ServiceConfig.model_validate({"state_dir": "state"} | settings)


def test_missing_environment_variable_is_named() -> None:
    """A key that is not there is said so by its variable's name."""
    with pytest.raises(ValueError, match="NO_SUCH_VARIABLE_HERE"):
        KeyConfig(env="NO_SUCH_VARIABLE_HERE").reveal()
