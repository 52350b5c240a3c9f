"""Short playable clips: H.264 in MP4, with a tone in AAC where sound is asked for."""

import array
import math
from fractions import Fraction
from functools import lru_cache
from pathlib import Path
from typing import Final

import av

from batchkiln_service.media.motion import Painter

FRAMES_PER_SECOND: Final = 8
_SAMPLES_PER_SECOND: Final = 48_000
_SAMPLES_PER_FRAME: Final = 1024  # what an AAC frame holds
_TONE_LOUDNESS: Final = 1200  # of 32767: audible, not annoying


def save_clip(paint: Painter, path: Path, *, size: tuple[int, int], duration_seconds: int, tone: int | None) -> None:
    """Encode the frames of a clip of that length.

    `tone` None leaves the clip without an audio track; otherwise it chooses the pitch (1 to 20).
    One encoder thread, so that the same frames give the same bytes.
    """
    count = duration_seconds * FRAMES_PER_SECOND
    with av.open(str(path), "w", format="mp4", options={"movflags": "faststart"}) as container:
        video = container.add_stream("libx264", rate=FRAMES_PER_SECOND)
        video.width, video.height = size
        video.pix_fmt = "yuv420p"
        video.options = {"preset": "ultrafast", "crf": "26"}
        video.codec_context.thread_count = 1
        audio = None if tone is None else container.add_stream("aac", rate=_SAMPLES_PER_SECOND, layout="mono")
        sounded = 0
        for number in range(count):
            container.mux(video.encode(_frame(paint, number, count)))
            while audio is not None and sounded < (number + 1) * _SAMPLES_PER_SECOND // FRAMES_PER_SECOND:
                container.mux(audio.encode(_sound(tone or 1, sounded)))
                sounded += _SAMPLES_PER_FRAME
        container.mux(video.encode(None))
        if audio is not None:
            container.mux(audio.encode(None))


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
    """Return the samples of one frame: a sine with a whole number of periods, so that frames join without a click."""
    turn = 2 * math.pi * tone * 8 / _SAMPLES_PER_FRAME
    samples = (int(_TONE_LOUDNESS * math.sin(turn * index)) for index in range(_SAMPLES_PER_FRAME))
    return array.array("h", samples).tobytes()
