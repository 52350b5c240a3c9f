"""The page about operating: alerts, files and ports are those of the program, of the units and of other pages."""

import re
import shlex
from pathlib import Path
from typing import Any, Final

import yaml

DOCS: Final = Path(__file__).resolve().parents[2] / "docs"
PAGE: Final = (DOCS / "guides" / "operate.md").read_text("utf-8")
UNIT: Final = (DOCS / "systemd" / "batchkiln-dashboard.service").read_text("utf-8")


def yaml_with(key: str) -> dict[str, Any]:
    """Return the one YAML block of the page that has a key."""
    blocks = [yaml.safe_load(text) for text in re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)]
    (found,) = (block for block in blocks if key in block)
    assert isinstance(found, dict)
    return found


def test_alerts_ask_for_metrics_that_are_there() -> None:
    """One is about the queue, one about an outage, and one about a dashboard that is away."""
    (group,) = yaml_with("groups")["groups"]
    asked = [re.findall(r"batchkiln_\w+", rule["expr"]) for rule in group["rules"]]
    table = re.findall(r"^\|([^|]*`batchkiln_[^|]+)\|", (DOCS / "dashboard.md").read_text("utf-8"), re.MULTILINE)

    assert len(asked) == 3
    assert {name for names in asked for name in names} <= set(re.findall(r"`(\w+)`", "".join(table)))
    assert [rule["expr"] for rule in group["rules"] if rule["expr"].startswith("absent(")] != []


def test_prometheus_and_the_proxies_meet_the_unit_at_its_port() -> None:
    """The token that Prometheus reads is made on the page, from the one that its drop-in loads."""
    (command,) = re.findall(r"^ExecStart=(.+)$", UNIT, re.MULTILINE)
    words = shlex.split(command)
    address = f"127.0.0.1:{words[words.index('--port') + 1]}"
    (scraped,) = yaml_with("scrape_configs")["scrape_configs"]

    assert scraped["static_configs"] == [{"targets": [address]}]
    assert yaml_with("http")["http"]["port"] == int(address.partition(":")[2])
    assert f"reverse_proxy {address} {{" in PAGE
    assert f"proxy_pass http://{address};" in PAGE
    assert "LoadCredential=prometheus:/etc/batchkiln/prometheus.token" in PAGE
    copied = f"/etc/batchkiln/prometheus.token {scraped['authorization']['credentials_file']}"
    assert copied in PAGE


def test_proxies_do_not_hold_back_streams() -> None:
    """Nor change the name that the browser asked for, and the page's URL is the one they serve."""
    url = yaml_with("http")["http"]["public_url"]
    name = url.removeprefix("https://")

    assert "flush_interval -1" in PAGE
    assert {"proxy_buffering off;", "proxy_set_header Host $host;", "client_max_body_size 64m;"} <= {
        line.strip() for line in PAGE.splitlines()
    }
    assert f"\n{name} {{" in PAGE
    assert f"server_name {name};" in PAGE
