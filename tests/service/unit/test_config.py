"""The service's configuration."""

from pathlib import Path

import pytest

from batchkiln_service import KeyConfig, Limits, ServiceConfig


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


def test_no_limits_is_a_setting_that_wins() -> None:
    """As `serve --no-limits` has it, for the fixture, for `running_service` and for a file."""
    config = ServiceConfig(state_dir=Path("state"), no_limits=True, limits=Limits(creates_per_minute=3))

    assert config.limits == Limits.lifted()
    with pytest.raises(ValueError, match="creates_per_minute"):
        ServiceConfig.model_validate({"state_dir": "state", "no_limits": True, "limits": {"creates_per_minute": 0}})


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
