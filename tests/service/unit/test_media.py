"""What is drawn: letters, input pictures in every form, frames."""

import io
import struct
import zlib
from collections.abc import Callable
from itertools import combinations, pairwise
from pathlib import Path

import orjson
import pytest
from PIL import Image, ImageChops, ImageFilter, ImageOps, ImageStat

from batchkiln_service.media.clips import painter_of
from batchkiln_service.media.input_images import UnreadablePictureError, examine, open_picture, size_by_header
from batchkiln_service.media.legible_text import legible
from batchkiln_service.media.pictures import caption_panel, draw_picture
from batchkiln_service.rules.render_spec import RenderSpec

ORANGE = (255, 128, 0)
ORIENTATION = 0x0112


def render_spec(**changes: object) -> RenderSpec:
    fields: dict[str, object] = {
        "kind": "image",
        "mode": "text-to-image",
        "model": "epsilon-2",
        "prompt": "A red fox",
        "width": 256,
        "height": 192,
        "output_format": "png",
        "duration_seconds": None,
        "with_audio": False,
        "image_mode": None,
        "asset_ids": (),
    }
    return RenderSpec(**fields | changes)  # type: ignore[arg-type]  # the tests know the types


def distance(one: Image.Image, other: Image.Image) -> float:
    """Give the mean difference of two pictures of one size, 0 to 255."""
    return sum(ImageStat.Stat(ImageChops.difference(one, other)).mean) / 3


def edges(picture: Image.Image) -> float:
    """Give the strength of the edges in a picture, as a filter for sharpness does; its rim is left out."""
    found = ImageOps.crop(picture.convert("L").filter(ImageFilter.FIND_EDGES), 4)
    return ImageStat.Stat(found).stddev[0]


def halves(path: Path, left: tuple[int, int, int], right: tuple[int, int, int]) -> Path:
    picture = Image.new("RGB", (80, 60), left)
    picture.paste(right, (40, 0, 80, 60))
    picture.save(path, "PNG")
    return path


@pytest.mark.parametrize(
    ("prompt", "written"),
    [
        ("A red fox, 5 o'clock!", "A red fox, 5 o'clock!"),
        ("Größe \u2013 «Zürich»", "Grosse - «Zurich»"),
        ("Рыжая лиса", "Ryzhaya lisa"),
        ("αλεπού", "alepoy"),
        ("赤い狐", "ChiiHu"),
        ("\N{FOX FACE} now", ":fox: now"),
        ("ثلج", "thlj"),
        ("\N{WOMAN}\u200d\N{ROCKET}\ufe0f", ":woman::rocket:"),
        ("\x00\x07", ""),
        ("a\ud800b \ue000", "ab"),
    ],
)
def test_what_the_font_lacks_is_transliterated(prompt: str, written: str) -> None:
    """Prompts in any script can be told apart, without a font for them."""
    assert legible(prompt) == written


@pytest.mark.parametrize("prompt", ["owl", "An owl. " * 1000, "x" * 8000, "\u200d", "a\ud800b"])
@pytest.mark.parametrize("size", [(64, 64), (854, 480), (480, 1120)])
def test_prompt_of_any_length_leaves_most_of_the_picture(prompt: str, size: tuple[int, int]) -> None:
    """The panel is as wide as the picture and less than half as high, however long the prompt is."""
    panel = caption_panel(size, prompt, "epsilon-2 · #0123ab")

    assert panel.width == size[0]
    assert panel.height < max(size[1] / 2, 48)


def test_short_prompt_is_written_large() -> None:
    """Letters are as large as fits: a prompt of one word is higher than a line of a long one."""
    short, long = (caption_panel((512, 512), prompt, "") for prompt in ("owl", "owls and foxes " * 60))

    assert short.height > long.height / 7
    assert ImageStat.Stat(short.crop((16, 8, 100, 52))).mean[0] > 30


@pytest.mark.parametrize("change", [{"prompt": "A red fix"}, {"model": "epsilon-pro"}, {"asset_ids": ("ast_1",)}])
def test_other_requests_look_different(change: dict[str, object]) -> None:
    """Colours come from a hash of all that was asked for; the same drawing gives the same pixels."""
    first, again, other = (draw_picture(each, []) for each in (render_spec(), render_spec(), render_spec(**change)))

    assert first.tobytes() == again.tobytes()
    assert distance(first, other) > 1


def test_equal_requests_vary_in_shape_and_color() -> None:
    """Variants of one request can be told apart without reading anything, and keep their caption panel's size."""
    variants = [draw_picture(render_spec(variation=str(number)), []) for number in range(4)]

    for one, other in combinations(variants, 2):
        assert distance(one, other) > 8
        assert distance(one.convert("L").convert("RGB"), other.convert("L").convert("RGB")) > 3


def test_blurred_picture_has_no_edges() -> None:
    """A filter for sharpness finds it, though its colours are those of the sharp one."""
    sharp, soft = (draw_picture(render_spec(is_blurred=blurred), []) for blurred in (False, True))

    assert edges(soft) < edges(sharp) / 3


def test_blurred_clip_has_no_edges_in_any_frame() -> None:
    """From its first frame to its last."""
    clips = [painter_of(render_spec(kind="video", duration_seconds=2, is_blurred=each), []) for each in (False, True)]

    for passed in (0.0, 0.5, 1.0):
        sharp, soft = (paint(passed) for paint in clips)
        assert edges(soft) < edges(sharp) / 3


@pytest.mark.parametrize("size", [(160, 120), (320, 120), (90, 160)])
def test_first_frame_shows_the_whole_input(size: tuple[int, int], tmp_path: Path) -> None:
    """Both of its sides are seen, whatever the proportions of the clip are."""
    path = halves(tmp_path / "input.png", (200, 30, 30), (30, 30, 200))
    spec = render_spec(
        kind="video", image_mode="first-frame", width=size[0], height=size[1], duration_seconds=2, asset_ids=("a",)
    )

    frame = painter_of(spec, [path])(0.0)

    width = min(size[0], size[1] * 4 // 3)
    left, right = (size[0] - width) // 2 + 4, (size[0] + width) // 2 - 5
    assert frame.getpixel((left, size[1] // 2)) == (200, 30, 30)
    assert frame.getpixel((right, size[1] // 2)) == (30, 30, 200)


def test_specification_stored_by_an_earlier_version_is_still_drawn() -> None:
    """It has no variation and is sharp."""
    stored = orjson.loads(render_spec().as_json())
    del stored["variation"], stored["is_blurred"]

    assert RenderSpec.from_json(orjson.dumps(stored)) == render_spec()


def _rgba() -> Image.Image:
    picture = Image.new("RGBA", (40, 20), (*ORANGE, 255))
    picture.paste((0, 0, 0, 0), (20, 0, 40, 20))
    return picture


def _palette() -> Image.Image:
    return Image.new("RGB", (40, 20), ORANGE).quantize(4)


def _wide_grey() -> Image.Image:
    return Image.frombytes("I;16", (40, 20), struct.pack("<H", 128 * 256) * 800)


def _animation(picture: Image.Image) -> bytes:
    buffer = io.BytesIO()
    frames = [Image.new("RGB", picture.size, "blue")]
    picture.save(buffer, "WEBP", save_all=True, append_images=frames, lossless=True)
    return buffer.getvalue()


def _turned(picture: Image.Image) -> bytes:
    buffer, exif = io.BytesIO(), Image.Exif()
    exif[ORIENTATION] = 6
    picture.save(buffer, "JPEG", exif=exif, quality=95)
    return buffer.getvalue()


def _as(kind: str) -> Callable[[Image.Image], bytes]:
    def saved(picture: Image.Image) -> bytes:
        buffer = io.BytesIO()
        picture.save(buffer, kind)
        return buffer.getvalue()

    return saved


@pytest.mark.parametrize(
    ("picture", "save", "size", "color"),
    [
        (_rgba(), _as("PNG"), (40, 20), ORANGE),
        (_rgba(), _as("WEBP"), (40, 20), ORANGE),
        (_palette(), _as("PNG"), (40, 20), ORANGE),
        (_wide_grey(), _as("PNG"), (40, 20), (128, 128, 128)),
        (Image.new("1", (40, 20), 1), _as("PNG"), (40, 20), (255, 255, 255)),
        (Image.new("LA", (40, 20), (90, 255)), _as("PNG"), (40, 20), (90, 90, 90)),
        (Image.new("CMYK", (40, 20), (0, 127, 255, 0)), _as("JPEG"), (40, 20), ORANGE),
        (Image.new("RGB", (40, 20), ORANGE), _animation, (40, 20), ORANGE),
        (Image.new("RGB", (40, 20), ORANGE), _turned, (20, 40), ORANGE),
    ],
    ids=["alpha", "alpha-webp", "palette", "16-bit", "1-bit", "grey-alpha", "cmyk", "animated", "rotated"],
)
def test_any_kind_of_pixels_can_be_an_input(
    tmp_path: Path,
    picture: Image.Image,
    save: Callable[[Image.Image], bytes],
    size: tuple[int, int],
    color: tuple[int, int, int],
) -> None:
    """Every form of the allowed types is opened upright, in its colours; of an animation the first frame."""
    path = tmp_path / "input"
    path.write_bytes(save(picture))

    opened = open_picture(path, at_least=(40, 40))

    assert (opened.mode, opened.size) == ("RGB", size)
    assert distance(opened.crop((2, 2, 12, 12)), Image.new("RGB", (10, 10), color)) < 4


def test_large_input_is_shrunk_and_still_upright(tmp_path: Path) -> None:
    """A picture far larger than needed is made smaller before it is worked on, but never too small."""
    picture = Image.new("RGBA", (1200, 600), (*ORANGE, 255))
    picture.paste((0, 0, 255, 255), (0, 0, 600, 600))
    exif = Image.Exif()
    exif[ORIENTATION] = 8
    picture.save(tmp_path / "input", "PNG", exif=exif)

    opened = open_picture(tmp_path / "input", at_least=(100, 80))

    assert opened.size == (100, 200)
    assert distance(opened.crop((0, 0, 100, 90)), Image.new("RGB", (100, 90), ORANGE)) < 4


def test_nothing_shows_through_a_transparent_picture(tmp_path: Path) -> None:
    """What is transparent is paper, and not black."""
    _rgba().save(tmp_path / "input", "PNG")

    assert min(open_picture(tmp_path / "input", at_least=(40, 20)).crop((30, 5, 31, 6)).tobytes()) > 200


def _png_claiming(width: int, height: int) -> bytes:
    """Make a small file that says it has so many pixels."""
    content = bytearray(_as("PNG")(Image.new("L", (1, 1))))
    content[16:24] = struct.pack(">II", width, height)
    content[29:33] = struct.pack(">I", zlib.crc32(content[12:29]))
    return bytes(content)


@pytest.mark.parametrize("size", [(10_001, 10_000), (12_000, 9_000), (60_000, 60_000)])
def test_decompression_bomb_is_refused_by_its_header(tmp_path: Path, size: tuple[int, int]) -> None:
    """A small file that would need gigabytes is never decoded; also where Pillow itself would only warn."""
    path = tmp_path / "bomb"
    path.write_bytes(_png_claiming(*size))

    for look in (size_by_header, examine):
        with pytest.raises(UnreadablePictureError, match="more than 100000000 pixels"):
            look(path, "PNG")


@pytest.mark.parametrize("content", [b"", b"GIF89a", b"\x89PNG\r\n\x1a\n", _as("PNG")(Image.new("L", (90, 90)))[:-30]])
def test_broken_file_is_no_picture(tmp_path: Path, content: bytes) -> None:
    """Nothing, another type, a head alone and a file cut short are refused with a reason."""
    path = tmp_path / "input"
    path.write_bytes(content)

    with pytest.raises(UnreadablePictureError, match="PNG picture"):
        examine(path, "PNG")


def test_picture_of_another_type_is_refused(tmp_path: Path) -> None:
    """The type is the one that was promised, not just any that can be read."""
    path = tmp_path / "input"
    path.write_bytes(_as("JPEG")(Image.new("RGB", (8, 8))))

    with pytest.raises(UnreadablePictureError, match="not a PNG picture"):
        examine(path, "PNG")


@pytest.mark.parametrize("count", [1, 2, 3, 5, 10])
def test_every_input_shows_in_a_picture(tmp_path: Path, count: int) -> None:
    """Image-to-image shows all its inputs, each in its own colour, and none is covered. Service section 4."""
    colors = [(25 * index, 255 - 25 * index, 40) for index in range(count)]
    paths = []
    for index, color in enumerate(colors):
        paths.append(tmp_path / str(index))
        Image.new("RGB", (30, 20), color).save(paths[-1], "PNG")

    picture = draw_picture(render_spec(mode="image-to-image"), paths)

    found = {color for _, color in picture.getcolors(2**24) or []}
    assert found.issuperset(colors)


def test_clip_begins_with_its_first_frame_and_moves(tmp_path: Path) -> None:
    """The first frame is the input alone; later ones differ, and show the prompt. Service section 2.2."""
    path = halves(tmp_path / "a", (200, 30, 30), (30, 30, 200))
    paint = painter_of(render_spec(kind="video", mode="image-to-video", image_mode="first-frame"), [path])
    with Image.open(path) as image:
        whole = image.resize((256, 192))

    first, middle, last = (paint(passed) for passed in (0, 0.5, 1))

    assert distance(first, whole) < 3
    assert distance(first, middle) > 5
    assert distance(middle, last) > 1


def test_clip_goes_from_its_first_to_its_last_frame(tmp_path: Path) -> None:
    """The last frame is the second input alone, and there is no jump on the way. Service section 2.2."""
    one, two = halves(tmp_path / "a", (200, 30, 30), (90, 0, 0)), halves(tmp_path / "b", (30, 200, 30), (0, 90, 0))
    paint = painter_of(render_spec(kind="video", mode="image-to-video", image_mode="first-last-frame"), [one, two])

    frames = [paint(number / 31) for number in range(32)]

    for frame, path in ((frames[0], one), (frames[-1], two)):
        with Image.open(path) as image:
            assert distance(frame, image.resize((256, 192))) < 3
    assert max(distance(a, b) for a, b in pairwise(frames)) < 25
