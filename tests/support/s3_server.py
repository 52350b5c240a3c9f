"""An S3 server of others (moto) on loopback, as a process of its own: the outside judge of what is written to URLs."""

import importlib.util
import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.error import URLError

import pytest

from .tcp_gate import free_port

PACKAGES: Final = ("moto", "flask", "s3fs", "botocore")
CREDENTIALS: Final = {
    "AWS_ACCESS_KEY_ID": "tests-id",
    "AWS_SECRET_ACCESS_KEY": "tests-canary-secret",
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_EC2_METADATA_DISABLED": "true",
}
_START_SECONDS: Final = 60.0


def require() -> None:
    """Skip the test where a package of the server or its client is missing."""
    for name in PACKAGES:
        if importlib.util.find_spec(name) is None:
            pytest.skip(f"needs {name}")


@dataclass(frozen=True, slots=True)
class S3Server:
    """A running server."""

    endpoint: str

    def configuration(self, *, endpoint: str | None = None) -> str:
        """Return the part of a configuration file that leads to the server, or to a proxy before it."""
        config = "{retries: {max_attempts: 1}, connect_timeout: 3, read_timeout: 5}"
        client = f"{{endpoint_url: {endpoint or self.endpoint}}}"
        return f"object_storage: {{options: {{s3: {{client_kwargs: {client}, config_kwargs: {config}}}}}}}\n"

    def client(self) -> Any:  # noqa: ANN401  botocore has no types
        """Return botocore's own client, which shares no code with what is tested."""
        from botocore.session import Session  # noqa: PLC0415  an extra

        return Session().create_client(
            "s3",
            endpoint_url=self.endpoint,
            region_name="us-east-1",
            aws_access_key_id="tests-id",
            aws_secret_access_key=CREDENTIALS["AWS_SECRET_ACCESS_KEY"],
        )

    def bucket(self, name: str) -> "Bucket":
        """Make an empty bucket."""
        client = self.client()
        client.create_bucket(Bucket=name)
        return Bucket(client, name)


@dataclass(frozen=True, slots=True)
class Bucket:
    """A bucket, seen by botocore."""

    client: Any
    name: str

    def keys(self, prefix: str = "") -> list[str]:
        """Return the names of all objects."""
        listed = self.client.list_objects_v2(Bucket=self.name, Prefix=prefix)
        return sorted(entry["Key"] for entry in listed.get("Contents", []))

    def content(self, key: str) -> bytes:
        """Return an object's bytes."""
        found: bytes = self.client.get_object(Bucket=self.name, Key=key)["Body"].read()
        return found

    def metadata(self, key: str) -> dict[str, str]:
        """Return an object's metadata."""
        found: dict[str, str] = self.client.head_object(Bucket=self.name, Key=key)["Metadata"]
        return found

    def put(self, key: str, content: bytes) -> None:
        """Write an object, over whatever is there."""
        self.client.put_object(Bucket=self.name, Key=key, Body=content)

    def remove(self, key: str) -> None:
        """Remove an object."""
        self.client.delete_object(Bucket=self.name, Key=key)


@contextmanager
def s3_server(folder: Path) -> Iterator[S3Server]:
    """Run a server in memory until the end of the block."""
    require()
    port = free_port()
    with (folder / "moto.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)],
            stdout=log,
            stderr=log,
            env=os.environ | CREDENTIALS | {"MOTO_ALLOW_NONEXISTENT_REGION": "true"},
        )
    try:
        server = S3Server(f"http://127.0.0.1:{port}")
        _wait(server.endpoint, process)
        yield server
    finally:
        process.kill()
        process.wait()


def _wait(endpoint: str, process: "subprocess.Popen[bytes]") -> None:
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline:
        assert process.poll() is None, "the S3 server has ended"
        with suppress(URLError, OSError), urllib.request.urlopen(f"{endpoint}/moto-api/", timeout=1):
            return
        time.sleep(0.05)
    raise AssertionError("the S3 server did not start")
