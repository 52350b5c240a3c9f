# ruff: noqa: INP001, S603, T201, TID251  a script that runs the program for a while, and no package
"""Make the pictures of the manual: the dashboard in headless Chromium, and commands as a terminal shows them.

    python docs/make_screenshots.py [pages|terminal] [--to docs] [--chromium /usr/bin/chromium]

All of it is real output of jobs on the local service. Takes three minutes; `terminal` alone half a minute. Pages need
`pip install 'batchkiln[test]'` and a Chromium of the system.
"""

import argparse
import contextlib
import fcntl
import io
import os
import pty
import re
import shlex
import shutil
import struct
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Iterator
from pathlib import Path

from PIL import Image
from playwright.sync_api import Browser, sync_playwright
from rich.console import Console
from rich.text import Text

CONFIG = """\
profiles:
  local:
    time_scale: {time_scale}
    limits: {{credits_per_day: {credits_per_day}}}
"""
MANIFEST = """\
version: 1
job: field-guide
description: Northern animals in six techniques, with a few clips
budget: {credits: 5000}
defaults:
  model: epsilon-2
  mode: text-to-image
  parameters: {resolution: 512x512, aspect_ratio: "1:1"}
  attempts: 1
output: {dir: out}
items:
  - matrix:
      animal: [red fox, tawny owl, mountain hare, elk, otter, lynx, pine marten, grey heron, raven, badger]
      style: [watercolor, ink, gouache, linocut, pastel, woodcut]
      light: [dawn, noon, dusk, fog, snowfall, starlight, rain, haze, thaw, frost, storm, moonlight, sunset, clouds]
    id: "{{ animal | replace(' ', '-') }}-{{ style }}-{{ light }}"
    prompt: "{{ animal }}, {{ light }}, {{ style }}"
    metadata: [animal, style, light]
  - id: northern-lights
    prompt: "[fail] northern lights over a frozen lake"
    priority: 9
  - id: whole-herd
    prompt: A herd of four hundred reindeer, each of them sharp
    max_cost_credits: 1
    priority: 9
"""
CLIPS = """\
  - matrix: {animal: [red fox, tawny owl, otter]}
    id: "clip-{{ animal | replace(' ', '-') }}"
    model: alpha-2.5-lite
    mode: text-to-video
    prompt: "A {{ animal }} turns its head"
    parameters: {resolution: 720p, duration_seconds: 5, aspect_ratio: "16:9"}
    priority: 5
"""
NIGHT = """\
version: 1
job: night
budget: {credits: 400}
defaults:
  model: epsilon-2
  mode: text-to-image
  parameters: {resolution: 512x512, aspect_ratio: "1:1"}
  attempts: 2
items:
  - matrix: {animal: [red fox, tawny owl, grey heron, elk], light: [dawn, noon, dusk, night], style: [ink, gouache]}
    id: "{{ animal | replace(' ', '-') }}-{{ light }}-{{ style }}"
    prompt: "A {{ animal }} at {{ light }}, {{ style }}"
  - {id: northern-lights, prompt: "[fail] northern lights over a frozen lake", priority: 9}
  - {id: whole-herd, prompt: A herd of four hundred reindeer, max_cost_credits: 1, priority: 9}
  - id: owl-turns
    model: alpha-2.5-lite
    mode: text-to-video
    prompt: A tawny owl turns its head
    parameters: {resolution: 480p, duration_seconds: 3, aspect_ratio: "16:9"}
"""
COLUMNS = 110
HOME = "/home/me/birds"
_NEXT_FRAME = re.compile(r"\r?(?:\x1b\[2K|\x1b\[1A)+")
_FONTS = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)
PAST_SECONDS = 30.0
PRESENT_SECONDS = 25.0
DESK = (1280, 860)
PHONE = (390, 780)
SHOTS = (
    ("overview-light", "/", DESK, "light"),
    ("overview-dark", "/", DESK, "dark"),
    ("gallery-light", "/jobs/field-guide/items?state=done", DESK, "light"),
    ("days-dark", "/days", DESK, "dark"),
    ("phone-dark", "/", PHONE, "dark"),
)


def begin(folder: Path, manifest: str, *, time_scale: int, credits_per_day: int) -> tuple[subprocess.Popen[str], str]:
    """Start the job with its dashboard; return the process and the dashboard's link."""
    config = CONFIG.format(time_scale=time_scale, credits_per_day=credits_per_day)
    (folder / "batchkiln.yaml").write_text(config, "utf-8")
    (folder / "field-guide.yaml").write_text(manifest, "utf-8")
    command = [sys.executable, "-m", "batchkiln", "run", "field-guide.yaml", "--dashboard", "-q"]
    process = subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
    assert process.stderr is not None
    for line in process.stderr:
        if link := re.search(r"http://\S+token=\S+", line):
            return process, link[0]
    raise SystemExit("the dashboard did not begin")


def end(process: subprocess.Popen[str]) -> None:
    """End a run as a person would; everything is saved."""
    process.terminate()
    process.communicate()


def shoot(browser: Browser, link: str, folder: Path) -> None:
    """Take all pictures."""
    base = link.partition("/?")[0]
    for name, path, (width, height), scheme in SHOTS:
        context = browser.new_context(viewport={"width": width, "height": height}, device_scale_factor=1.5)
        page = context.new_page()
        page.emulate_media(color_scheme="dark" if scheme == "dark" else "light", reduced_motion="reduce")
        page.goto(link)
        page.wait_for_url(f"{base}/")
        page.goto(base + path)
        page.wait_for_timeout(2500)
        page.screenshot(path=folder / f"{name}.png")
        shrink(folder / f"{name}.png")
        context.close()
        print(f"{name}.png")


def shrink(path: Path) -> None:
    """Keep 256 colours: a quarter of the bytes, for as long as there is a history."""
    with Image.open(path) as picture:
        few = picture.convert("RGB").quantize(256, method=Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE)
    few.save(path, optimize=True)


def in_terminal(folder: Path, command: str) -> str:
    """Return all that a command of the program writes to a terminal, colours and cursor moves included."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, COLUMNS, 0, 0))
    kept = {name: value for name, value in os.environ.items() if not name.startswith("BATCHKILN_")}
    kept.pop("NO_COLOR", None)
    process = subprocess.Popen(
        [sys.executable, "-m", *shlex.split(command)],
        cwd=folder,
        env=kept | {"TERM": "xterm-256color", "COLUMNS": str(COLUMNS)},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    shown = b"".join(_pieces(ours))
    process.wait()
    os.close(ours)
    return shown.decode().replace("\r\n", "\n").replace(str(folder), HOME)


def _pieces(terminal: int) -> Iterator[bytes]:
    with contextlib.suppress(OSError):  # Linux's way to say that nobody holds the other end any more
        while piece := os.read(terminal, 65536):
            yield piece


def draw(path: Path, *screens: tuple[str, str]) -> None:
    """Write commands with what they showed as one SVG."""
    console = Console(file=io.StringIO(), record=True, width=COLUMNS, color_system="truecolor", force_terminal=True)
    for number, (command, shown) in enumerate(screens):
        console.print(Text(("\n" if number else "") + f"$ {command}", style="bold"))
        console.print(Text.from_ansi(shown.rstrip()))
    # Without fonts of other people's servers: the viewer's own monospaced one does.
    svg = _FONTS.sub("", console.export_svg(title="batchkiln", unique_id=path.stem))
    path.write_text("\n".join(line.rstrip() for line in svg.splitlines()) + "\n", "utf-8")
    print(path.name)


def draw_terminals(to: Path) -> None:
    """Plan, rehearse and run a job, and look at it."""
    to.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "batchkiln.yaml").write_text("profiles: {local: {time_scale: 30}}\n", "utf-8")
        (folder / "night.yaml").write_text(NIGHT, "utf-8")
        before = {
            "plan": "batchkiln plan night.yaml",
            "rehearse": "batchkiln rehearse night.yaml --faults mild --seed 7",
        }
        for picture, command in before.items():
            draw(to / f"{picture}.svg", (command, in_terminal(folder, command)))
        command = "batchkiln run night.yaml --yes"
        frames = _NEXT_FRAME.split(in_terminal(folder, command))
        begun = [frame for frame in frames if "active" in frame and "so far, ends" in frame]
        draw(to / "run.svg", (command, begun[len(begun) * 2 // 3]))
        commands = ("batchkiln status", "batchkiln status night", "batchkiln show night whole-herd")
        screens = [(command, in_terminal(folder, command)) for command in commands]
        draw(to / "status.svg", *screens[:2])
        draw(to / "show.svg", *screens[2:])


def main() -> None:
    """Take the pictures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="?", choices=["pages", "terminal"], help="default: both")
    parser.add_argument("--to", type=Path, default=Path(__file__).parent)
    parser.add_argument("--chromium", default=shutil.which("chromium") or shutil.which("google-chrome"))
    given = parser.parse_args()
    if given.what != "pages":
        draw_terminals(given.to / "terminal")
    if given.what != "terminal":
        shoot_pages(given.to / "dashboard", given.chromium)


def shoot_pages(to: Path, chromium: str | None) -> None:
    """Run a job for a while, take the pictures of its pages, and end it."""
    if chromium is None:
        raise SystemExit("no Chromium was found: name one with --chromium")
    to.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as name, sync_playwright() as playwright:
        process, _ = begin(Path(name), MANIFEST, time_scale=3000, credits_per_day=240)
        time.sleep(PAST_SECONDS)
        end(process)
        process, link = begin(Path(name), MANIFEST + CLIPS, time_scale=60, credits_per_day=400)
        try:
            time.sleep(PRESENT_SECONDS)
            browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
            shoot(browser, link, to)
            browser.close()
        finally:
            end(process)


if __name__ == "__main__":
    main()
