# ruff: noqa: INP001, S603, T201, TID251  a script that runs the program for a while, and no package
"""Make the pictures of `docs/dashboard.md`: a job on the local service, a few days into it, in headless Chromium.

    python docs/make_screenshots.py [--to docs/dashboard] [--chromium /usr/bin/chromium]

Takes two minutes. Needs `pip install 'batchkiln[test]'` and a Chromium of the system.
"""

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from PIL import Image
from playwright.sync_api import Browser, sync_playwright

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


def main() -> None:
    """Run the job for a while, take the pictures, and end it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--to", type=Path, default=Path(__file__).parent / "dashboard")
    parser.add_argument("--chromium", default=shutil.which("chromium") or shutil.which("google-chrome"))
    given = parser.parse_args()
    if given.chromium is None:
        raise SystemExit("no Chromium was found: name one with --chromium")
    given.to.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as name, sync_playwright() as playwright:
        process, _ = begin(Path(name), MANIFEST, time_scale=3000, credits_per_day=240)
        time.sleep(PAST_SECONDS)
        end(process)
        process, link = begin(Path(name), MANIFEST + CLIPS, time_scale=60, credits_per_day=400)
        try:
            time.sleep(PRESENT_SECONDS)
            browser = playwright.chromium.launch(executable_path=given.chromium, args=["--no-sandbox"])
            shoot(browser, link, given.to)
            browser.close()
        finally:
            end(process)


if __name__ == "__main__":
    main()
