# ruff: noqa: INP001, S603, T201, TID251  a script that runs the program for a while, and no package
"""Make the pictures of the manual: the dashboard in headless Chromium, and commands as a terminal shows them.

    python docs/make_screenshots.py [pages|terminal] [--to docs] [--chromium /usr/bin/chromium]

All of it is real output of jobs on the local service; a run is recorded as it moves. Takes four minutes; `terminal`
alone half a minute. It needs `pip install 'batchkiln[test]'`, and for pages a Chromium of the system.
"""

import argparse
import contextlib
import fcntl
import io
import os
import pty
import re
import select
import shlex
import shutil
import struct
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Iterator, Sequence
from html import escape
from itertools import groupby
from pathlib import Path

import numpy as np
import pyte
from PIL import Image
from playwright.sync_api import Browser, sync_playwright
from rich.console import Console
from rich.terminal_theme import SVG_EXPORT_THEME
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
    prompt: "The {{ animal }} turns its head"
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
CHAINED = """\
version: 1
job: birds
description: Four pictures of each bird, and a clip of the one that is chosen
budget: {credits: 200}
defaults: {model: epsilon-2, mode: text-to-image, parameters: {resolution: 512x512, aspect_ratio: "1:1"}}
items:
  - matrix: {bird: [tawny owl, grey heron]}
    id: "{{ bird | replace(' ', '-') }}"
    prompt: "{{ bird | capitalize }} on a mossy branch, watercolour, morning light"
    metadata: [bird]
    variants: 4
    choose: 1
  - matrix: {bird: [tawny owl, grey heron]}
    id: "{{ bird | replace(' ', '-') }}-clip"
    prompt: "The {{ bird }} turns its head"
    model: alpha-2.5-lite
    mode: image-to-video
    inputs: [{item: "{{ bird | replace(' ', '-') }}"}]
    parameters: {resolution: 480p, duration_seconds: 2, aspect_ratio: "1:1", image_mode: first-frame}
    metadata: [bird]
"""
COLUMNS = 110
RECORDED_COLUMNS, RECORDED_ROWS = 80, 24
FRAME_SECONDS, HELD_SECONDS, END_SECONDS = 0.25, 1.5, 5.0
FRAMES_MAX = 80
CHARACTER, LINE, MARGIN = 8.4, 19, 14
HOME = "/home/me/birds"
_FONTS = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)
PAST_SECONDS = 30.0
PRESENT_SECONDS = 25.0
DESK = (1280, 860)
ABOVE_FAILURES = (1280, 660)  # their remedies name the temporary folder
PHONE = (390, 780)
CHAINED_SHOTS = (
    ("review-light", "/jobs/birds/review", DESK, "light"),
    ("large-dark", "/jobs/birds/items?text=owl-clip&large=1", DESK, "dark"),
)
SHOTS = (
    ("overview-light", "/", ABOVE_FAILURES, "light"),
    ("overview-dark", "/", ABOVE_FAILURES, "dark"),
    ("gallery-light", "/jobs/field-guide/items?sort=newest", DESK, "light"),
    ("days-dark", "/days", DESK, "dark"),
    ("phone-dark", "/", PHONE, "dark"),
)


def begin(folder: Path, manifest: str, *, time_scale: int, credits_per_day: int) -> tuple[subprocess.Popen[str], str]:
    """Start the job with its dashboard; return the process and the dashboard's link."""
    config = CONFIG.format(time_scale=time_scale, credits_per_day=credits_per_day)
    (folder / "batchkiln.yaml").write_text(config, "utf-8")
    (folder / "field-guide.yaml").write_text(manifest, "utf-8")
    return serve(folder, "run", "field-guide.yaml", "--dashboard", "-q")


def serve(folder: Path, *arguments: str) -> tuple[subprocess.Popen[str], str]:
    """Start a command that has a dashboard; return the process and the dashboard's link."""
    command = [sys.executable, "-m", "batchkiln", *arguments]
    env = os.environ | {"HOME": str(folder.parent)}  # pages show the path from there on
    process = subprocess.Popen(
        command, cwd=folder, env=env, stderr=subprocess.STDOUT, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    for line in process.stdout:
        if shown := re.search(r"(http://\S+) \(sign in with the token in (.+)\)", line):
            return process, f"{shown[1]}/?token={(folder / shown[2]).read_text('ascii').strip()}"
    raise SystemExit("the dashboard did not begin")


def end(process: subprocess.Popen[str]) -> None:
    """End a run as a person would; everything is saved."""
    process.terminate()
    process.communicate()


def shoot(
    browser: Browser, link: str, folder: Path, shots: Sequence[tuple[str, str, tuple[int, int], str]] = SHOTS
) -> None:
    """Take all pictures."""
    base = link.partition("/?")[0]
    for name, path, (width, height), scheme in shots:
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
    """Keep 256 colours: a quarter of the bytes, for as long as there is a history.

    Those of the style sheet stay what they are, however few pixels have them: a light's colour means something.
    """
    style = (Path(__file__).parent.parent / "src/batchkiln/dashboard/static/style.css").read_text("utf-8")
    own = [bytes.fromhex(code) for code in sorted(set(re.findall(r"#([0-9a-f]{6})\b", style)))]
    with Image.open(path) as picture:
        every = picture.convert("RGB")
    few = every.quantize(256 - len(own), method=Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE)
    palette = (few.getpalette() or [])[: 3 * (256 - len(own))]
    first, pixels, places = len(palette) // 3, np.asarray(every), np.array(few)
    for number, color in enumerate(own):
        places[(pixels == np.frombuffer(color, np.uint8)).all(axis=-1)] = first + number
    made = Image.fromarray(places)
    made.putpalette([*palette, *b"".join(own)])
    made.save(path, optimize=True)


def started(
    folder: Path, command: str, *, rows: int = 40, columns: int = COLUMNS
) -> tuple[subprocess.Popen[bytes], int]:
    """Start a command of the program in a terminal; return the process and the terminal's other end."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    kept = {name: value for name, value in os.environ.items() if not name.startswith("BATCHKILN_")}
    kept.pop("NO_COLOR", None)
    process = subprocess.Popen(
        [sys.executable, "-m", *shlex.split(command)],
        cwd=folder,
        env=kept | {"TERM": "xterm-256color", "COLUMNS": str(columns)},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    return process, ours


def in_terminal(folder: Path, command: str) -> str:
    """Return all that a command of the program writes to a terminal, colours and cursor moves included."""
    process, ours = started(folder, command)
    shown = b"".join(_pieces(ours))
    process.wait()
    os.close(ours)
    return shown.decode().replace("\r\n", "\n").replace(str(folder), HOME).replace(folder.name, Path(HOME).name)


def _pieces(terminal: int) -> Iterator[bytes]:
    with contextlib.suppress(OSError):  # Linux's way to say that nobody holds the other end any more
        while piece := os.read(terminal, 65536):
            yield piece


Row = tuple[tuple[int, str, str, bool], ...]  # of each piece: the column, the text, the colour, and whether it is bold
Frame = tuple[float, tuple[Row, ...]]  # the seconds for which a screen was shown, and its rows


def record(folder: Path, command: str) -> list[Frame]:
    """Run a command in a terminal of 80 columns, and return what it showed, at most four times a second."""
    screen = pyte.Screen(RECORDED_COLUMNS, RECORDED_ROWS)
    stream = pyte.ByteStream(screen)
    stream.feed(f"$ {command}\r\n".encode())
    process, ours = started(folder, command, rows=RECORDED_ROWS, columns=RECORDED_COLUMNS)
    begun = time.monotonic()
    shown: list[tuple[float, tuple[Row, ...]]] = [(0.0, rows_of(screen, folder))]
    with contextlib.suppress(OSError):  # as in `_pieces`
        while True:
            is_ready = bool(select.select([ours], [], [], FRAME_SECONDS)[0])
            if is_ready and not (piece := os.read(ours, 65536)):
                break
            if is_ready:
                stream.feed(piece)
            at = time.monotonic() - begun
            if at - shown[-1][0] >= FRAME_SECONDS and (rows := rows_of(screen, folder)) != shown[-1][1]:
                shown.append((at, rows))
    process.wait()
    os.close(ours)
    shown.append((time.monotonic() - begun, rows_of(screen, folder)))
    ends = [at for at, _ in shown[1:]]
    frames = [(min(end - at, HELD_SECONDS), rows) for (at, rows), end in zip(shown, ends, strict=False)]
    assert not any(str(folder) in text for _, rows in shown for row in rows for _, text, _, _ in row)
    return [*frames[:: -(-len(frames) // FRAMES_MAX)], (END_SECONDS, shown[-1][1])]


def rows_of(screen: pyte.Screen, folder: Path) -> tuple[Row, ...]:
    """Return the rows of a screen, each as its pieces of one style."""
    rows = []
    for number in range(screen.lines):
        cells = [screen.buffer[number][column] for column in range(screen.columns)]
        pieces, column = [], 0
        for (color, is_bold), group in groupby(cells, key=lambda cell: (cell.fg, cell.bold)):
            text = "".join(cell.data for cell in group)
            if text.strip():
                pieces.append((column, text.replace(str(folder), HOME), color, is_bold))
            column += len(text)
        rows.append(tuple(pieces))
    return tuple(rows)


def animate(path: Path, frames: Sequence[Frame]) -> None:
    """Write a recording as one SVG that plays by itself. Without motion, it is the picture of two thirds of the way."""
    height = max(number + 1 for _, rows in frames for number, row in enumerate(rows) if row) * LINE + 2 * MARGIN
    width = RECORDED_COLUMNS * CHARACTER + 2 * MARGIN
    numbers: dict[Row, int] = {}
    for _, rows in frames:
        for row in rows:
            if row:
                numbers.setdefault(row, len(numbers))
    total, at, steps, pictures = sum(seconds for seconds, _ in frames), 0.0, [], []
    for place, (seconds, rows) in enumerate(frames):
        steps.append(f"{100 * at / total:.2f}%{{transform:translateY({-place * height}px)}}")
        at += seconds
        used = "".join(
            f'<use href="#r{numbers[row]}" y="{place * height + MARGIN + (number + 1) * LINE - 5}"/>'
            for number, row in enumerate(rows)
            if row
        )
        pictures.append(f"<g>{used}</g>")
    still = -(len(frames) * 2 // 3) * height
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height}" width="{width:.0f}">',
        "<title>A run in a terminal</title>",
        (
            f"<style>text{{font:14px ui-monospace,Menlo,Consolas,'DejaVu Sans Mono',monospace;white-space:pre}}"
            f".b{{font-weight:bold}}#film{{transform:translateY({still}px)}}"
            f"@media (prefers-reduced-motion:no-preference){{#film{{animation:film {total:.1f}s step-end infinite}}}}"
            f"@keyframes film{{{''.join(steps)}}}</style>"
        ),
        f'<rect width="100%" height="100%" rx="8" fill="{SVG_EXPORT_THEME.background_color.hex}"/>',
        "<defs>",
        *(f'<g id="r{number}">{"".join(map(_piece, row))}</g>' for row, number in numbers.items()),
        "</defs>",
        f'<svg width="{width:.0f}" height="{height}"><g id="film">',
        *pictures,
        "</g></svg>",
        "</svg>",
    ]
    path.write_text("\n".join(lines) + "\n", "utf-8")
    print(path.name)


def _piece(piece: tuple[int, str, str, bool]) -> str:
    column, text, color, is_bold = piece
    kind = ' class="b"' if is_bold else ""
    x, length = MARGIN + column * CHARACTER, len(text) * CHARACTER
    return f'<text x="{x:.1f}" textLength="{length:.1f}" fill="{_hex(color)}"{kind}>{escape(text, quote=False)}</text>'


_COLORS = ("black", "red", "green", "brown", "blue", "magenta", "cyan", "white")


def _hex(color: str) -> str:
    """Return a colour of pyte as the other pictures have it."""
    name = color.removeprefix("bright")
    if name in _COLORS:
        return SVG_EXPORT_THEME.ansi_colors[_COLORS.index(name) + 8 * (name != color)].hex
    return SVG_EXPORT_THEME.foreground_color.hex if color == "default" else f"#{color}"


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
    """Plan and rehearse a job, record its run, and look at it."""
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
        animate(to / "run.svg", record(folder, "batchkiln run night.yaml --yes"))
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
        project = Path(name, "wildlife")  # the pages name it
        project.mkdir()
        process, _ = begin(project, MANIFEST, time_scale=3000, credits_per_day=240)
        time.sleep(PAST_SECONDS)
        end(process)
        process, link = begin(project, MANIFEST + CLIPS, time_scale=60, credits_per_day=600)
        try:
            time.sleep(PRESENT_SECONDS)
            browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
            shoot(browser, link, to)
        finally:
            end(process)
        process, link = begin_chained(Path(name, "birds"))
        try:
            shoot(browser, link, to, CHAINED_SHOTS)
        finally:
            end(process)
        browser.close()


def begin_chained(folder: Path) -> tuple[subprocess.Popen[str], str]:
    """Make a job with a clip of a chosen picture and a group to choose from, and serve its dashboard."""
    folder.mkdir()
    (folder / "batchkiln.yaml").write_text("profiles: {local: {time_scale: 600}}\n", "utf-8")
    (folder / "birds.yaml").write_text(CHAINED, "utf-8")
    for command in ("run birds.yaml --yes", "review birds --keep tawny-owl-2", "run birds.yaml --yes"):
        arguments = [sys.executable, "-m", "batchkiln", *command.split()]
        subprocess.run(arguments, cwd=folder, capture_output=True, check=False)  # 3: a group waits for a choice
    return serve(folder, "dashboard")


if __name__ == "__main__":
    main()
