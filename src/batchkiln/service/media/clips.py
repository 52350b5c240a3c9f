"""Short playable clips: H.264 in MP4, mostly a still card with a bar that shows the time passing."""

import array
import math
from fractions import Fraction
from pathlib import Path

import av
from PIL import Image, ImageDraw

FRAMES_PER_SECOND = 8
_SAMPLES_PER_SECOND = 48_000
_SAMPLES_PER_FRAME = 1024  # what an AAC frame holds
_TONE_LOUDNESS = 1200  # of 32767: audible, not annoying


def save_clip(card: Image.Image, path: Path, *, duration_seconds: int, tone: int | None) -> None:
    """Encode the card as a clip of that length.

    `tone` None leaves the clip without an audio track; otherwise it chooses the pitch (1 to 20).
    One encoder thread, so that the same card gives the same bytes.
    """
    with av.open(str(path), "w", format="mp4", options={"movflags": "faststart"}) as container:
        video = container.add_stream("libx264", rate=FRAMES_PER_SECOND)
        video.width, video.height = card.size
        video.pix_fmt = "yuv420p"
        video.options = {"preset": "ultrafast", "crf": "28"}
        video.codec_context.thread_count = 1
        audio = None if tone is None else container.add_stream("aac", rate=_SAMPLES_PER_SECOND, layout="mono")
        count = duration_seconds * FRAMES_PER_SECOND
        sounded = 0
        for number in range(count):
            container.mux(video.encode(_frame(card, number, count)))
            while audio is not None and sounded < (number + 1) * _SAMPLES_PER_SECOND // FRAMES_PER_SECOND:
                container.mux(audio.encode(_sound(tone or 1, sounded)))
                sounded += _SAMPLES_PER_FRAME
        container.mux(video.encode(None))
        if audio is not None:
            container.mux(audio.encode(None))


def _frame(card: Image.Image, number: int, count: int) -> av.VideoFrame:
    width, height = card.size
    bar = max(4, height // 60)
    picture = card.copy()
    ImageDraw.Draw(picture).rectangle((0, 0, width * (number + 1) // count, bar), fill=(255, 210, 90))
    frame: av.VideoFrame = av.VideoFrame.from_image(picture)  # type: ignore[no-untyped-call]  # PyAV has no types here
    frame.pts = number
    frame.time_base = Fraction(1, FRAMES_PER_SECOND)
    return frame


def _sound(tone: int, start: int) -> av.AudioFrame:
    """Return one frame of a sine with a whole number of periods, so that frames join without a click."""
    turn = 2 * math.pi * tone * 8 / _SAMPLES_PER_FRAME
    samples = array.array("h", (int(_TONE_LOUDNESS * math.sin(turn * index)) for index in range(_SAMPLES_PER_FRAME)))
    frame = av.AudioFrame(format="s16", layout="mono", samples=_SAMPLES_PER_FRAME)
    frame.planes[0].update(samples.tobytes())
    frame.sample_rate = _SAMPLES_PER_SECOND
    frame.pts = start
    frame.time_base = Fraction(1, _SAMPLES_PER_SECOND)
    return frame
