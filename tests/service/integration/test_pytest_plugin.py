"""The pytest fixture for tests of clients, used as its users do: by the names and examples of the manual."""

import json
import re
import tomllib
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from batchkiln_service import ServiceConfig, running_service
from batchkiln_service.testing import RunningService

pytest_plugins = ["pytester"]
ROOT = Path(__file__).resolve().parents[3]
PLUGIN = ("-p", "no:cacheprovider", "-p", "no:asyncio")


def test_plugin_is_found_by_pytest() -> None:
    """The entry point names the module with the fixture of the same name."""
    points = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["entry-points"]["pytest11"]

    assert points == {"batchkiln_service": "batchkiln_service.pytest_plugin"}


def test_example_of_the_manual_passes(pytester: pytest.Pytester) -> None:
    """It is complete: a file with nothing else is a test."""
    manual = (ROOT / "docs" / "serve.md").read_text("utf-8")
    (example,) = re.findall(r"^```python\n(import urllib.*?)^```$", manual, re.MULTILINE | re.DOTALL)
    pytester.makepyfile(example)

    result = pytester.runpytest_subprocess(*PLUGIN, "--strict-markers", "-W", "error")

    result.assert_outcomes(passed=1)


def test_mistake_in_the_marker_is_named_in_one_line(pytester: pytest.Pytester) -> None:
    """With the field that was probably meant, as `serve` names it, and without the inside of a library."""
    pytester.makepyfile(
        """
        import pytest

        @pytest.mark.batchkiln_service(limitz={"reads_per_minute": 1})
        def test_client(batchkiln_service):
            pass
        """
    )

    result = pytester.runpytest_subprocess(*PLUGIN)

    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["@pytest.mark.batchkiln_service: unknown field `limitz`; did you mean `limits`[?]"])
    result.stdout.no_fnmatch_line("*pydantic*")


def test_settings_of_the_context_manager_are_checked_alike() -> None:
    """All mistakes together."""
    told = r"^time_scale: must be greater than or equal to 0.001; unknown field `instan`; did you mean `instant`\?$"

    with pytest.raises(ValueError, match=told), running_service(instan=True, time_scale=-1):
        pass


def test_client_that_breaks_a_rule_fails_its_test(pytester: pytest.Pytester) -> None:
    """The message names the rule and its place in the service's description."""
    pytester.makepyfile(
        """
        import urllib.error
        import urllib.request

        import pytest

        @pytest.mark.batchkiln_service(limits={"reads_per_minute": 1})
        def test_client(batchkiln_service):
            headers = {"Authorization": f"Bearer {batchkiln_service.api_key}"}
            request = urllib.request.Request(f"{batchkiln_service.base_url}/models", headers=headers)
            for _ in range(2):
                try:
                    urllib.request.urlopen(request)
                except urllib.error.HTTPError as error:
                    error.close()
            batchkiln_service.assert_ok()
        """
    )

    result = pytester.runpytest_subprocess(*PLUGIN)

    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*rate_limited: requests beyond the limit of a minute (1)*"])


def test_test_of_a_client_may_have_no_limits() -> None:
    """The eleventh create of a minute is accepted, as with `serve --no-limits`."""
    with running_service(no_limits=True, instant=True) as service:
        body = {
            "model": "epsilon-2",
            "mode": "text-to-image",
            "prompt": "A fox",
            "parameters": {"resolution": "512x512"},
        }
        headers = {"Authorization": f"Bearer {service.api_key}", "Content-Type": "application/json"}
        for number in range(11):
            headers["Idempotency-Key"] = f"idempotency-key-{number}"
            create = urllib.request.Request(f"{service.base_url}/images", json.dumps(body).encode(), headers)
            urllib.request.urlopen(create, timeout=20).close()
        service.assert_ok()


def test_a_test_without_the_fixture_pays_nothing(pytester: pytest.Pytester) -> None:
    """The service is not even imported."""
    pytester.makepyfile(
        """
        import sys

        def test_nothing():
            assert "batchkiln_service.server" not in sys.modules
            assert "aiohttp" not in sys.modules
        """
    )

    result = pytester.runpytest_subprocess(*PLUGIN)

    result.assert_outcomes(passed=1)


def test_running_service_does_what_an_operator_can() -> None:
    """Time, faults and a new beginning, from a thread without an event loop."""
    with running_service(tiny_media=True) as service:
        service.add_fault("throttle", "models", times=None)
        service.clear_faults()
        service.advance(60)
        service.reset()
        service.assert_ok()
        folder = service._service.config.state_dir

        assert service.environ["BATCHKILN_API_KEY"] == "test-key"
        assert service.report().requests == ()
    assert not folder.exists()


def test_a_wrong_fault_is_told_as_by_the_operators_port() -> None:
    """A misspelled kind and field have a sentence each, and no text of a library."""
    wrong = {"times": None, "tmes": 3}
    with running_service(tiny_media=True, operator_port=0) as service:
        with pytest.raises(ValueError, match="did you mean `throttle`") as raised:
            service.add_fault("throtle", **wrong)  # type: ignore[arg-type]
        request = urllib.request.Request(
            f"{service._service.operator_url}/faults",
            json.dumps({"kind": "throtle", "endpoint": "any", **wrong}).encode(),
            {"Content-Type": "application/json"},
        )
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(request)
        told = refused.value.read().decode()

    assert "unknown field `tmes`" in str(raised.value)
    assert "pydantic" not in str(raised.value)
    assert str(raised.value) in told


def test_methods_of_the_manual_are_those_that_there_are() -> None:
    """Each name of the table is one of the object's, and none is missing."""
    manual = (ROOT / "docs" / "serve.md").read_text("utf-8")
    (table,) = re.findall(r"^\| name \| meaning \|\n.*?\n((?:\|.*\n)+)", manual, re.MULTILINE)
    told = {name for row in table.splitlines() for name in re.findall(r"`(\w+)(?:\([^)]*\))?`", row.split("|")[1])}

    assert told == {name for name in dir(RunningService) if not name.startswith("_")}


def test_settings_are_checked_before_anything_starts() -> None:
    """A misspelt field is told by its name."""
    with pytest.raises(ValueError, match="time_scales"), running_service(time_scales=60):
        pass
    assert "time_scale" in ServiceConfig.model_fields
