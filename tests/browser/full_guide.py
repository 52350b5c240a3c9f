"""The guide "From prompts to clips" at full size, with SIGKILL on the way: its page, a service, and Chromium.

    python tests/browser/full_guide.py [--birds 40] [--seed 1]

The page's commands run in order, on its manifest with `--birds` birds in place of two. The service is a process of its
own, so that its books are no part of what is killed. Where the page names what is kept, keys of the review page in
Chromium choose. The killed commands begin again, as a person would do it. Then the service's books, the queue and the
disk are compared: each attempt is paid once, the budget holds, and each clip is made from its chosen picture.
"""

import argparse
import contextlib
import hashlib
import json
import os
import random
import shlex
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from playwright.sync_api import Browser, Page, expect

if __name__ == "__main__":  # as a command: the packages of the tests are one folder up
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from browser.conftest import PATIENCE_SECONDS, started_chromium
from crash.service_books import Books
from support.manual_commands import Block, blocks_of
from support.programs import environment, start
from support.tcp_gate import free_port

PAGE: Final = Path(__file__).resolve().parents[2] / "docs" / "guides" / "from-prompts-to-clips.md"
SCALE: Final = 600
VARIANTS: Final = 4
PICTURE_CREDITS: Final = 2
CLIP_CREDITS: Final = 20
REDONE: Final = ("owl", "heron")
SPARE_CREDITS: Final = CLIP_CREDITS - 1  # of the budget: a clip that is paid twice oversteps it
KILLS: Final = {"pictures": 3, "choice": 1, "clips": 3, "redo": 1, "look": 1, "export": 1}
_TRIES: Final = 5
_COMMAND_SECONDS: Final = 600

_SERVICE: Final = """
state_dir: service
port: {port}
time_scale: {scale}
accounts: [{{name: main, credits: 10000}}]
"""
_CONFIG: Final = """
default_profile: far
profiles:
  far:
    base_url: http://127.0.0.1:{port}/api/v1
    accounts: [{{name: main, keys: [{{file: service/key-main}}]}}]
    time_scale: {scale}
"""


def replaced(text: str, before: str, after: str) -> str:
    """Replace what the page has exactly once."""
    assert text.count(before) == 1, f"the page has {before!r} {text.count(before)} times:\n{text}"
    return text.replace(before, after)


@dataclass
class Guide:
    """A folder in which the page is followed. Every process that it starts, it ends."""

    folder: Path
    browser: Browser
    birds: int
    seed: int
    chosen: dict[str, int] = field(default_factory=dict)  # the number of the variant to keep of each bird
    kills: Counter[str] = field(default_factory=Counter)  # by phase
    shown: str = ""

    def __post_init__(self) -> None:
        self.draw = random.Random(self.seed)
        self.port, self.dashboard_port = free_port(), free_port()
        self.names = [*REDONE, *(f"bird{number}" for number in range(3, self.birds + 1))]
        self.chosen = {name: self.draw.randint(1, VARIANTS) for name in self.names}
        clips = self.birds + len(REDONE)
        self.cost = self.birds * VARIANTS * PICTURE_CREDITS + clips * CLIP_CREDITS
        own = {f"XDG_{kind}_HOME": str(self.folder / kind.lower()) for kind in ("CONFIG", "STATE", "CACHE")}
        self._environment = environment(COLUMNS="120", **own)  # with another HOME, no command could be forked

    # --- the page ---

    def follow(self) -> None:
        """Do what the page says, from its first block to its last."""
        self._write("service.yaml", _SERVICE)
        self._write("batchkiln.yaml", _CONFIG)
        with self._serving():
            for block in blocks_of(PAGE):
                self._do(block)

    def _write(self, name: str, text: str) -> None:
        (self.folder / name).write_text(text.format(port=self.port, scale=SCALE), "utf-8")

    def _do(self, block: Block) -> None:
        match block:
            case Block(mark="file"):
                (self.folder / block.value).write_text(self._full_size(block.text), "utf-8")
            case Block(mark="shows"):
                for line in self._shown_at_full_size(block.text).splitlines():
                    assert line in self.shown, f"{line!r} was not shown:\n{self.shown}"
                self.shown = ""
            case Block(language="sh"):
                expected = int(block.value) if block.mark == "fails" else 0
                for line in block.text.splitlines():
                    self._command(line, expected)
            case _:
                raise AssertionError(f"the page has a block of another kind: {block}")

    def _full_size(self, manifest: str) -> str:
        birds = f"[{', '.join(self.names)}]"
        assert manifest.count("[owl, heron]") == 2, "the page has other birds"
        assert f"variants: {VARIANTS} " in manifest
        return replaced(
            manifest.replace("[owl, heron]", birds), "{credits: 100}", f"{{credits: {self.cost + SPARE_CREDITS}}}"
        )

    def _shown_at_full_size(self, text: str) -> str:
        count, done = self.birds, self.birds * (VARIANTS + 1)
        for before, after in (
            ("2 items are made", f"{count} items are made"),
            ("2 groups wait", f"{count} groups wait"),
            ("10 of 10 items", f"{done} of {done} items"),
            ("2 images and 2 videos", f"{count} images and {count} videos"),
            ("birds: 2 items kept.", ""),
        ):
            text = text.replace(before, after)
        return text

    def _command(self, line: str, expected: int) -> None:
        """Run a line of the page, with the kills of its phase."""
        pictures, made = self.birds * VARIANTS, self._generations
        match line.split()[1:]:
            case ["run", _, "--yes"]:
                status = self._killed("pictures", line, made, (1, pictures * 9 // 10))
            case ["review", _, "--keep", "owl-2", *_]:
                status = self._choose("choice", self.chosen)
            case ["run", _]:
                status = self._killed("clips", line, made, (pictures + 1, pictures + self.birds * 9 // 10))
            case ["redo", job, "owl-clip"]:
                status = self._run(f"batchkiln redo {job} {' '.join(f'{name}-clip' for name in REDONE)}")
            case ["work"]:
                status = self._killed("redo", line, made, (pictures + self.birds + 1,) * 2)
            case ["review", _, "--keep", "owl-clip", *_]:
                status = self._choose("look", {f"{name}-clip": 1 for name in self.names})
            case ["export", *_]:
                status = self._killed("export", line, self._exported, (1, self.birds))
            case _:
                status = self._run(line)
        assert status == expected, f"exit {status} instead of {expected} of {line}:\n{self.shown}"

    # --- commands, and what they are killed by ---

    def _run(self, line: str) -> int:
        with self._log().open("ab") as log:
            if not line.startswith("batchkiln "):
                status = subprocess.run(
                    ["sh", "-c", line], cwd=self.folder, stdout=log, stderr=log, check=False
                ).returncode
            else:
                process = self._start(line, log.fileno())
                try:
                    status = process.wait(_COMMAND_SECONDS)
                finally:
                    kill(process)
        self.shown = self._log().read_text("utf-8")
        return status

    def _killed(self, phase: str, line: str, progress: Callable[[], int], between: tuple[int, int]) -> int:
        """Run a command to its end, killed on the way at drawn moments of its progress."""
        for moment in sorted(self.draw.sample(range(between[0], between[1] + 1), KILLS[phase])):
            delay = self.draw.choice((0.0, 0.0, self.draw.uniform(0.0, 0.05)))
            for _ in range(_TRIES):
                if self._is_killed_at(line, progress, moment, delay):
                    break
                assert phase == "export", f"{line} ended before it was killed:\n{self._log().read_text('utf-8')}"
                shutil.rmtree(self.folder / "exports")  # an export may be done in an instant: once more
            self.kills[phase] += 1
        return self._run(line)

    def _is_killed_at(self, line: str, progress: Callable[[], int], moment: int, delay: float) -> bool:
        with self._log().open("ab") as log:
            process = self._start(line, log.fileno())
        deadline = time.monotonic() + _COMMAND_SECONDS
        while progress() < moment and process.poll() is None:
            assert time.monotonic() < deadline, f"{line} makes nothing:\n{self._log().read_text('utf-8')}"
            time.sleep(0.0005)
        time.sleep(delay)
        return kill(process)

    def _start(self, line: str, log: int) -> subprocess.Popen[str]:
        arguments = shlex.split(line)[1:]
        return start(
            arguments, cwd=self.folder, env=self._environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log
        )

    def _log(self) -> Path:
        path = self.folder / "shown.log"
        path.touch()
        return path

    def _generations(self) -> int:
        with contextlib.closing(sqlite3.connect(self.folder / "service" / "service.db")) as books:
            return int(books.execute("SELECT count(*) FROM generations").fetchone()[0])

    def _exported(self) -> int:
        return sum(1 for file in (self.folder / "exports").rglob("*") if file.suffix in {".png", ".mp4"})

    @contextmanager
    def _serving(self) -> Iterator[None]:
        with (self.folder / "serve.log").open("wb") as log:
            service = self._start("batchkiln serve --config service.yaml", log.fileno())
            try:
                await_port(self.port, service)
                yield
            finally:
                kill(service)

    # --- the review page ---

    def _choose(self, phase: str, choices: dict[str, int]) -> int:
        """Keep what was drawn, with the keys of the review page; the dashboard is killed on the way."""
        deaths = set(self.draw.sample(range(1, len(choices)), KILLS[phase]))
        context = self.browser.new_context()
        context.set_default_timeout(PATIENCE_SECONDS * 1000)
        page, decided = context.new_page(), 0
        try:
            while True:
                with self._dashboard() as (link, process):
                    page.goto(link)
                    page.get_by_role("link", name="birds", exact=True).first.click()
                    page.get_by_role("link", name="Review…").click()
                    page.wait_for_url("**/review*")  # a click does not wait: the job's page has a heading, too
                    while (heading := heading_of(page)) != "Review":
                        decided += 1
                        press(page, choices[heading])
                        if decided in deaths:
                            time.sleep(self.draw.uniform(0.0, 0.02))
                            kill(process)
                            self.kills[phase] += 1
                            break
                        page.wait_for_function("old => document.querySelector('h1')?.textContent !== old", arg=heading)
                    else:
                        expect(page.get_by_text("Nothing is left to review.")).to_be_visible()
                        return 0
        finally:
            context.close()

    @contextmanager
    def _dashboard(self) -> Iterator[tuple[str, subprocess.Popen[str]]]:
        with (self.folder / "dashboard.log").open("w+b") as log:
            process = self._start(f"batchkiln dashboard --port {self.dashboard_port} --no-open", log.fileno())
            try:
                await_port(self.dashboard_port, process)
                token = (self.folder / ".batchkiln" / "queue.db.dashboard").read_text("ascii").strip()
                yield f"http://127.0.0.1:{self.dashboard_port}/?token={token}", process
            finally:
                kill(process)

    # --- the judges ---

    def violations(self) -> list[str]:
        """Compare the service's books, the queue and the disk, and name whatever does not fit."""
        return [*self._violations_of_payment(), *self._violations_of_chains(), *self._violations_of_files()]

    def _violations_of_payment(self) -> Iterator[str]:
        """Each attempt is one generation, paid once, and nothing else is paid."""
        books = Books.read(self.folder / "service")
        yield from books.violations_of_limits()
        made = Counter(json.loads(row["drawing_json"])["prompt"] for row in books.generations)
        wanted = Counter({picture_prompt(name): VARIANTS for name in self.names})
        wanted.update({clip_prompt(name): 1 + (name in REDONE) for name in self.names})
        yield from (f"{prompt!r}: {made[prompt]} times" for prompt in wanted | made if made[prompt] != wanted[prompt])
        moved = Counter((row["generation_id"], row["kind"]) for row in books.entries if row["generation_id"])
        yield from (f"{entry} {count} times" for entry, count in moved.items() if count != 1 or entry[1] == "refund")
        paid = sum(row["credits"] for row in books.entries if row["kind"] == "charge")
        if paid != self.cost:
            yield f"{paid} credits are paid, and {self.cost} of a budget of {self.cost + SPARE_CREDITS} are due"
        attempts = self._rows(".batchkiln/queue.db", "SELECT idempotency_key FROM attempt")
        keys = self._rows("service/service.db", "SELECT key FROM idempotency")
        if attempts != keys:
            yield f"{len(keys - attempts)} generations of no attempt, {len(attempts - keys)} attempts of no generation"

    def _violations_of_chains(self) -> Iterator[str]:
        """Each clip is made from the picture that was chosen."""
        assets = self._pairs("service/service.db", "SELECT id, name FROM assets")
        names = {row[0]: row[1] for row in assets}
        for (drawing,) in self._pairs("service/service.db", "SELECT drawing_json FROM generations"):
            told = json.loads(drawing)
            if told["kind"] != "image":
                name = told["prompt"].split()[1]
                picture = self.folder / "out" / "birds" / f"{name}-{self.chosen[name]}.png"
                expected = [f"{hashlib.sha256(picture.read_bytes()).hexdigest()[:16]}.png"]
                if [names[asset] for asset in told["asset_ids"]] != expected:
                    yield f"the clip of {name} is not made from {picture.name}"

    def _violations_of_files(self) -> Iterator[str]:
        """Each file that was made is on the disk once with its caption, and each kept one in the export."""
        folder = self.folder / "out" / "birds"
        files = {file for file in folder.iterdir() if file.suffix != ".txt"}
        hashes = Counter(hashlib.sha256(file.read_bytes()).hexdigest() for file in files)
        if hashes != Counter(row[0] for row in self._pairs("service/service.db", "SELECT sha256 FROM outputs")):
            yield "the files are not those that the service has made"
        for file in files:
            name = file.name.partition(".")[0].rpartition("-")[0]
            caption = clip_prompt(name) if file.suffix == ".mp4" else picture_prompt(name)
            if file.with_suffix(".txt").read_text("utf-8").strip() != caption:
                yield f"{file.name} has another caption"
        if captions := {file.with_suffix(".txt") for file in files} ^ set(folder.glob("*.txt")):
            yield f"captions and files differ: {captions}"
        kept = {f"{name}-{number}.png": f"{name}-{number}.png" for name, number in self.chosen.items()}
        kept |= {f"{name}-clip.mp4": f"{name}-clip.mp4" for name in self.names}
        kept[f"{REDONE[1]}-clip.mp4"] = f"{REDONE[1]}-clip.v2.mp4"  # of the first, the page takes version 1 again
        expected = {name: hashlib.sha256((folder / file).read_bytes()).hexdigest() for name, file in kept.items()}
        tables = (self.folder / "exports" / "birds" / "imagefolder").rglob("metadata.jsonl")
        rows = [json.loads(line) for table in tables for line in table.read_text("utf-8").splitlines()]
        if Counter((row["file_name"], row["sha256"]) for row in rows) != Counter(expected.items()):
            yield f"the export has {sorted(row['file_name'] for row in rows)}"
        if any(not row["text"] for row in rows):
            yield "a file of the export has no caption"

    def _rows(self, file: str, statement: str) -> set[object]:
        return {row[0] for row in self._pairs(file, statement)}

    def _pairs(self, file: str, statement: str) -> Sequence[tuple[str, ...]]:
        with contextlib.closing(sqlite3.connect(self.folder / file)) as connection:
            return connection.execute(statement).fetchall()


def picture_prompt(name: str) -> str:
    """Return the prompt of a bird's pictures, as the page's manifest makes it."""
    return f"{name.capitalize()} on a branch, watercolour"


def clip_prompt(name: str) -> str:
    """Return the prompt of a bird's clip."""
    return f"The {name} turns its head"


def heading_of(page: Page) -> str:
    """Return the name of what is to be reviewed, once its keys work; "Review" when nothing is left."""
    page.wait_for_load_state("domcontentloaded")
    return page.get_by_role("heading", level=1).inner_text()


def press(page: Page, number: int) -> None:
    """Choose a variant by its number, and keep it."""
    if page.locator("[data-candidate]").count() > 1:
        page.keyboard.press(str(number))
    page.keyboard.press("k")


def await_port(port: int, process: subprocess.Popen[str]) -> None:
    """Wait until a server listens."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        assert process.poll() is None, "the server has ended"
        time.sleep(0.01)
    raise AssertionError("the server did not start")


def kill(process: subprocess.Popen[str]) -> bool:
    """SIGKILL, and collect; return whether it was still there."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(process.pid, signal.SIGKILL)
    return process.wait() == -signal.SIGKILL


def main() -> int:
    """Follow the page once, and tell what does not fit."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--birds", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder, started_chromium() as browser:
        guide = Guide(Path(folder), browser, birds=options.birds, seed=options.seed)
        guide.follow()
        found = guide.violations()
    print(f"{options.birds} birds, {guide.kills.total()} kills {dict(guide.kills)}: {time.monotonic() - began:.0f} s")
    print("\n".join(found) or f"each attempt was paid once: {guide.cost} credits")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
