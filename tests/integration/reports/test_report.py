"""A report on a real disk: pictures of real files, pages that are whole, and nothing written over."""

import base64
import io
import re
import tracemalloc
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import av
import pytest
from msgspec.structs import replace
from PIL import Image

from batchkiln.core.errors import InputError
from batchkiln.core.job import Mode
from batchkiln.core.responses import ErrorInfo
from batchkiln.core.states import ItemState
from batchkiln.outputs.thumbnails import NoThumbnail, Thumbnail, make_thumbnail
from batchkiln.reports.contents import ReportFile, ReportItem, ReportJob
from batchkiln.reports.report_writer import ReportWriter, WrittenReport

NOW: Final = datetime(2030, 1, 31, 18, 30, tzinfo=UTC)
JOB: Final = ReportJob("birds", "", "local", "birds.yaml", True, "finished", NOW, NOW, None, None, "1.2.3")  # noqa: FBT003
FOREIGN: Final = "<html>the minutes of a meeting</html>"


def picture(path: Path, size: tuple[int, int] = (800, 600)) -> Path:
    Image.new("RGB", size, "orange").save(path)
    return path


def clip(path: Path) -> Path:
    with av.open(str(path), "w") as container:
        stream = container.add_stream("mpeg4", rate=10)
        stream.width, stream.height, stream.pix_fmt = 320, 180, "yuv420p"
        for number in range(20):
            shade = "white" if number == 0 else "black"
            frame = av.VideoFrame.from_image(Image.new("RGB", (320, 180), shade))  # type: ignore[no-untyped-call]
            container.mux(stream.encode(frame))
        container.mux(stream.encode())
    return path


def item(index: int, *paths: Path, state: ItemState = ItemState.DONE) -> ReportItem:
    kinds = {".mp4": "video/mp4"}
    files = tuple(
        ReportFile(
            path,
            path.name,
            path.stat().st_size if path.exists() else 10,
            kinds.get(path.suffix, "image/png"),
            NOW,
        )
        for path in paths
    )
    error = ErrorInfo("bad", "no") if state is ItemState.FAILED else None
    return ReportItem(
        f"item-{index}", index, state, f"prompt {index}", "m", Mode.TEXT_TO_IMAGE, (), (), {}, error, None, files, ()
    )


def write(target: Path, items: Sequence[ReportItem], *, page_size: int = 1000, job: ReportJob = JOB) -> WrittenReport:
    with ReportWriter(target, job=job.name, items=len(items), page_size=page_size) as writer:
        writer.add(items)
        return writer.finish(job)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def shown(page: Path) -> list[str]:
    return re.findall(r"<b>(item-\d+)</b>", page.read_text("utf-8"))


def test_pictures_are_small_copies(tmp_path: Path) -> None:
    """An image keeps its sides' proportion, and the size that it really has is known."""
    made = make_thumbnail(picture(tmp_path / "a.png"), media_type="image/png", edge=100)

    assert isinstance(made, Thumbnail)
    assert (made.width, made.height, made.original_width, made.original_height) == (100, 75, 800, 600)
    with Image.open(io.BytesIO(made.content)) as small:
        assert (small.format, small.size) == ("JPEG", (100, 75))
        assert small.convert("RGB").getpixel((50, 40)) == pytest.approx((255, 165, 0), abs=4)


@pytest.mark.parametrize("mode", ["RGBA", "LA", "P", "L", "1", "I;16", "CMYK"])
def test_pictures_of_any_kind_are_shown(tmp_path: Path, mode: str) -> None:
    """Palettes, grey, transparency, sixteen bits and inks."""
    path = tmp_path / ("a.jpg" if mode == "CMYK" else "a.png")
    Image.new(mode, (64, 64)).save(path)

    assert isinstance(make_thumbnail(path, media_type="image/png", edge=32), Thumbnail)


def test_a_photograph_on_its_side_is_turned(tmp_path: Path) -> None:
    """What a camera notes about the way it was held is followed, also for the size."""
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.new("RGB", (400, 200), "red").save(tmp_path / "a.jpg", exif=exif)

    made = make_thumbnail(tmp_path / "a.jpg", media_type="image/png", edge=100)

    assert isinstance(made, Thumbnail)
    assert (made.width, made.height, made.original_width, made.original_height) == (50, 100, 200, 400)


def test_a_clip_is_shown_by_its_first_frame(tmp_path: Path) -> None:
    """With its length; the first frame is white, all others are black."""
    made = make_thumbnail(clip(tmp_path / "a.mp4"), media_type="video/mp4", edge=160)

    assert isinstance(made, Thumbnail)
    assert (made.width, made.height, made.duration_seconds) == (160, 90, 2.0)
    with Image.open(io.BytesIO(made.content)) as small:
        assert small.convert("L").getpixel((80, 45)) == pytest.approx(255, abs=10)


def test_what_is_gone_or_damaged_is_named_and_the_report_continues(tmp_path: Path) -> None:
    """The others are shown; the summary counts and names what is missing."""
    (tmp_path / "broken.png").write_bytes(b"\x89PNG\r\n\x1a\n" + b"x" * 50)
    (tmp_path / "broken.mp4").write_bytes(b"\0\0\0\x18ftypmp42")
    good, changed = picture(tmp_path / "good.png"), picture(tmp_path / "changed.png")
    gone, damaged, clipped = tmp_path / "gone.png", tmp_path / "broken.png", tmp_path / "broken.mp4"
    target = tmp_path / "report.html"

    items = [item(0, gone), item(1, good), item(2, damaged), item(3, clipped), item(4, changed)]
    changed.write_bytes(good.read_bytes() + b"more")

    written = write(target, items)

    html = target.read_text("utf-8")
    assert (written.totals.missing, written.totals.missing_count, written.totals.unreadable_count) == (
        ["gone.png"],
        1,
        2,
    )
    assert written.totals.changed_count == 1
    assert "saved: gone.png" in html
    assert "1 file was changed since it was saved; the contact sheet marks it." in html
    assert shown(target) == ["item-0", "item-1", "item-2", "item-3", "item-4"]
    assert html.count("data:image/jpeg") == 1
    assert make_thumbnail(gone, media_type="image/png", edge=10) is NoThumbnail.GONE


def test_one_file_holds_everything(tmp_path: Path) -> None:
    """Pictures are inside, no place of this machine is, and the size is told."""
    target = tmp_path / "report.html"
    paths = [picture(tmp_path / f"{number}.png", (40 + number, 40)) for number in range(5)]

    written = write(target, [item(number, path) for number, path in enumerate(paths)])

    (file,) = written.files
    html = target.read_text("utf-8")
    assert (file.path, file.size_bytes) == (target, target.stat().st_size)
    widths = [
        Image.open(io.BytesIO(base64.b64decode(content))).width
        for content in re.findall(r"data:image/jpeg;base64,([^\"]+)", html)
    ]
    assert widths == [40, 41, 42, 43, 44]
    assert str(tmp_path) not in html
    assert html.endswith("</html>\n")


def test_many_items_go_on_in_further_files(tmp_path: Path) -> None:
    """Each item is on one page, in order; the pages lead to each other by name, and failures to their page."""
    target = tmp_path / "report.html"
    items = [item(index, state=ItemState.FAILED if index == 4 else ItemState.DONE) for index in range(5)]

    written = write(target, items, page_size=2)

    assert [file.path.name for file in written.files] == ["report.html", "report-2.html", "report-3.html"]
    assert [shown(file.path) for file in written.files] == [["item-0", "item-1"], ["item-2", "item-3"], ["item-4"]]
    assert 'href="report-3.html#i4"' in target.read_text("utf-8")
    assert 'href="report.html"' in written.files[2].path.read_text("utf-8")


def test_a_shorter_report_takes_the_place_of_a_longer_one(tmp_path: Path) -> None:
    """Pages that nothing leads to any more are removed; those of another job are not."""
    items = [item(index) for index in range(4)]
    write(tmp_path / "report.html", items, page_size=1)
    write(tmp_path / "report-3.html", items[:1], job=replace(JOB, name="foxes"))

    write(tmp_path / "report.html", items, page_size=2)

    assert names(tmp_path) == ["report-2.html", "report-3.html", "report-4.html", "report.html"]
    assert shown(tmp_path / "report-2.html") == ["item-2", "item-3"]
    assert "foxes" in (tmp_path / "report-3.html").read_text("utf-8")


@pytest.mark.parametrize("name", ["report.html", "report-2.html"])
def test_a_foreign_file_is_never_written_over(tmp_path: Path, name: str) -> None:
    """Neither as the first page nor as a further one; and then none is written."""
    (tmp_path / name).write_text(FOREIGN, "utf-8")

    with pytest.raises(InputError, match="--to"):
        write(tmp_path / "report.html", [item(0), item(1)], page_size=1)

    assert names(tmp_path) == [name]
    assert (tmp_path / name).read_text("utf-8") == FOREIGN


def test_a_folder_that_is_not_there_is_reported(tmp_path: Path) -> None:
    """The place, the reason, and what to do."""
    with pytest.raises(InputError, match=r"none/report\.html.*No such file.*--to"):
        write(tmp_path / "none/report.html", [item(0)])


def test_a_report_that_is_broken_off_leaves_the_earlier_one(tmp_path: Path) -> None:
    """Nothing half-done is left, whenever it ends."""
    target = tmp_path / "report.html"
    write(target, [item(0)])
    before = target.read_bytes()

    def break_off() -> None:
        with ReportWriter(target, job="birds", items=2) as writer:
            writer.add([item(1)])
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        break_off()

    assert (names(tmp_path), target.read_bytes()) == (["report.html"], before)


def test_memory_does_not_grow_with_the_items(tmp_path: Path) -> None:
    """The cards are on the disk, not in memory, until the page is put together; and then as well."""
    with ReportWriter(tmp_path / "report.html", job="birds", items=4000, page_size=4000) as writer:
        writer.add([item(0)])
        tracemalloc.start()
        try:
            for index in range(1, 2000):
                writer.add([replace(item(index), prompt="x" * 2000)])
            writer.finish(JOB)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()

    assert (tmp_path / "report.html").stat().st_size > 4_000_000
    assert peak < 2_500_000
