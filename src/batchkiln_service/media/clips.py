"""Makes short playable clips: H.264 in MP4, with a tone in AAC if sound is requested."""

import array
import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import lru_cache
from pathlib import Path
from typing import Final

import av
from PIL import Image, ImageFilter, ImageOps

from batchkiln_service.media.input_images import open_picture
from batchkiln_service.media.pictures import blurred, draw_scene, panel_of, paste_panel
from batchkiln_service.rules.render_spec import RenderSpec

Painter = Callable[[float], Image.Image]  # returns the frame at a share of the clip's time, 0 to 1
FRAMES_PER_SECOND: Final = 8
_FADE: Final = 0.12  # the share of a clip in which the caption fades in, or out
_BLUR_DIVISOR: Final = 24  # of a frame's longer side; the quotient is the radius of the blur beside an input
_BAR_COLOR: Final = (255, 255, 255)
_SAMPLES_PER_SECOND: Final = 48_000
_SAMPLES_PER_FRAME: Final = 1024  # the size of an AAC frame
_TONE_AMPLITUDE: Final = 1200  # of 32767: audible, but quiet


def painter_of(spec: RenderSpec, inputs: Sequence[Path]) -> Painter:
    """Return the function that paints the frame at any time of a clip.

    A clip with a first frame fades from it to its last frame, or to a scene with its inputs. The given frames are shown
    without a caption. Any other clip is a scene with a bar that shows the time.
    """
    paint = _sharp_painter_of(spec, inputs)
    return (lambda passed: blurred(paint(passed))) if spec.is_blurred else paint


def _sharp_painter_of(spec: RenderSpec, inputs: Sequence[Path]) -> Painter:
    size, panel = (spec.width, spec.height), panel_of(spec)
    scene = draw_scene(spec, inputs, height_above_panel=spec.height - panel.height)
    if not inputs or spec.image_mode == "reference-image":
        paste_panel(scene, panel)
        return lambda passed: _with_bar(scene, passed)
    has_last = spec.image_mode == "first-last-frame" and len(inputs) > 1
    first, last = _fitted(inputs[0], size), _fitted(inputs[-1], size) if has_last else scene

    def paint(passed: float) -> Image.Image:
        frame = Image.blend(first, last, passed)
        paste_panel(frame, panel, min(passed / _FADE, (1 - passed) / _FADE if has_last else 1.0, 1.0))
        return frame

    return paint


def save_clip(spec: RenderSpec, inputs: Sequence[Path], path: Path) -> None:
    """Encode the clip of a specification. One encoder thread is used, so that equal frames give equal bytes."""
    paint = painter_of(spec, inputs)
    count = (spec.duration_seconds or 1) * FRAMES_PER_SECOND
    tone = 1 + len(spec.prompt) % 20
    with av.open(str(path), "w", format="mp4", options={"movflags": "faststart"}) as container:
        video = container.add_stream("libx264", rate=FRAMES_PER_SECOND)
        video.width, video.height = spec.width, spec.height
        video.pix_fmt = "yuv420p"
        video.options = {"preset": "ultrafast", "crf": "26"}
        video.codec_context.thread_count = 1
        audio = container.add_stream("aac", rate=_SAMPLES_PER_SECOND, layout="mono") if spec.with_audio else None
        samples = 0
        for number in range(count):
            container.mux(video.encode(_frame(paint, number, count)))
            while audio is not None and samples < (number + 1) * _SAMPLES_PER_SECOND // FRAMES_PER_SECOND:
                container.mux(audio.encode(_sound(tone, samples)))
                samples += _SAMPLES_PER_FRAME
        container.mux(video.encode(None))
        if audio is not None:
            container.mux(audio.encode(None))


def _with_bar(scene: Image.Image, passed: float) -> Image.Image:
    frame = scene.copy()
    frame.paste(_BAR_COLOR, (0, 0, round(frame.width * passed), frame.height // 20))
    return frame


def _fitted(path: Path, size: tuple[int, int]) -> Image.Image:
    """Return a whole input as large as the frame allows; a blurred copy fills the rest if the proportions differ."""
    picture = open_picture(path, at_least=size)
    inner = ImageOps.contain(picture, size, Image.Resampling.BICUBIC)
    if inner.size == size:
        return inner
    frame = ImageOps.fit(picture, size, Image.Resampling.BICUBIC).filter(
        ImageFilter.BoxBlur(max(size) // _BLUR_DIVISOR)
    )
    frame.paste(inner, ((size[0] - inner.width) // 2, (size[1] - inner.height) // 2))
    return frame


def _frame(paint: Painter, number: int, count: int) -> av.VideoFrame:
    picture = paint(number / (count - 1))
    frame: av.VideoFrame = av.VideoFrame.from_image(picture)  # type: ignore[no-untyped-call]  # PyAV has no types here
    frame.pts = number
    frame.time_base = Fraction(1, FRAMES_PER_SECOND)
    return frame


def _sound(tone: int, start: int) -> av.AudioFrame:
    frame = av.AudioFrame(format="s16", layout="mono", samples=_SAMPLES_PER_FRAME)
    frame.planes[0].update(_wave(tone))
    frame.sample_rate = _SAMPLES_PER_SECOND
    frame.pts = start
    frame.time_base = Fraction(1, _SAMPLES_PER_SECOND)
    return frame


@lru_cache(maxsize=32)
def _wave(tone: int) -> bytes:
    """Return the samples of one frame of a tone, 1 to 20: a whole number of sine periods, so that frames join."""
    turn = 2 * math.pi * tone * 8 / _SAMPLES_PER_FRAME
    samples = (int(_TONE_AMPLITUDE * math.sin(turn * index)) for index in range(_SAMPLES_PER_FRAME))
    return array.array("h", samples).tobytes()
