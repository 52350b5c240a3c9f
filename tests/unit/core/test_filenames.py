"""Names of output files."""

import pytest
from hypothesis import given, settings, strategies as st

from batchkiln.core import filenames

DEFAULT = "{job}/{item}.{ext}"
ANY_TEXT = st.text() | st.text(st.sampled_from('./\\~- :\x00aAb"{}é\u0301'), max_size=8)


def named(pattern: str = DEFAULT, *, item: str = "fox", index: int = 3, output: int = 1, ext: str = "png") -> str:
    return filenames.render(pattern, job="job", item=item, index=index, output=output, model="epsilon-2", ext=ext)


@pytest.mark.parametrize(
    ("pattern", "output", "expected"),
    [
        (DEFAULT, 1, "job/fox.png"),
        (DEFAULT, 2, "job/fox-2.png"),
        ("{item}-{output}.{ext}", 2, "fox-2.png"),
        ("{index:06d}_{output:02d}.{ext}", 2, "000003_02.png"),
        ("{{{item}}}.{ext}", 1, "{fox}.png"),
        ("{model}/{item}", 2, "epsilon-2/fox-2"),
        ("{item}.final.png", 2, "fox.final-2.png"),
        ("name.png", 3, "name-3.png"),
    ],
)
def test_fields_and_later_outputs(pattern: str, output: int, expected: str) -> None:
    """Fields are filled; a later output gets its number before the extension unless the pattern names it."""
    assert named(pattern, output=output) == expected


@pytest.mark.parametrize(
    "pattern",
    [
        "",
        " ",
        "/abs/{item}",
        "../{item}",
        "a/../{item}",
        "a//b",
        "{item}/",
        "{item",
        "item}",
        "{}",
        "{item:>5}",
        "a\x00{item}",
        "a\\{item}",
        ".",
    ],
)
def test_bad_patterns_are_refused(pattern: str) -> None:
    """A pattern that leaves the folder, or cannot be read, is an error and not a surprise at download."""
    with pytest.raises(filenames.PatternError):
        filenames.fields(pattern)


@pytest.mark.parametrize(
    "item", ["../../etc/passwd", "/etc/passwd", "..", ".", "con", "NUL.txt", "a/b", "C:\\x", "x" * 200, "\u202egnp.exe"]
)
def test_hostile_ids_become_one_component(item: str) -> None:
    """An id is one component, told apart by a hash where it had to be changed."""
    name = named(item=item)

    assert name.count("/") == 1
    assert name.startswith("job/")
    assert "~" in name
    assert len(name.encode()) < 255


def test_a_value_cannot_bring_in_a_field() -> None:
    """Braces in a variable stay braces, whatever stands between them."""
    prerendered = filenames.prerender("{kind}-{index}/{item}.{ext}", {"kind": "{item}{{%s"})

    assert filenames.fields(prerendered) <= set(filenames.BUILT_IN_FIELDS)
    assert named(prerendered) == "{item}{{%s-3/fox.png"


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        (DEFAULT, True),
        ("{kind}/{item}.{ext}", True),
        ("{item}-{output}.{ext}", True),
        ("{kind}-{index}.{ext}", True),
        ("{index:04d}-{kind}.{ext}", True),
        ("{kind}-{item}.{ext}", False),
        ("{kind}{index}.{ext}", False),
        ("{item}{output}.{ext}", False),
        ("{kind}.{ext}", False),
    ],
)
def test_identifies_item(pattern: str, *, expected: bool) -> None:
    """Only a pattern from which the item can be read back rules collisions out."""
    assert filenames.identifies_item(pattern) is expected


def test_a_changed_id_differs_from_an_id_that_looks_like_it() -> None:
    """An id that already ends like a hash is hashed too, so nobody can take another's name."""
    changed = filenames.safe_value("a/b")

    assert filenames.safe_value(changed) != changed


@settings(deadline=None)
@given(item=ANY_TEXT, kind=ANY_TEXT, model=ANY_TEXT, ext=ANY_TEXT, output=st.integers(1, 99))
def test_names_stay_inside_the_folder(item: str, kind: str, model: str, ext: str, output: int) -> None:
    """No value leads out of the folder, hides a component or holds a control character."""
    pattern = filenames.prerender("x{kind}/{model}/{kind}{item}.{ext}", {"kind": kind})

    name = filenames.render(pattern, job="j", item=item, index=0, output=output, model=model, ext=ext)

    components = name.split("/")
    assert len(components) == 3
    for component in components:
        assert component.strip(". ")
        assert component == component.rstrip(". ")
        assert not any(ord(character) < 32 or character in '\\:*?"<>|\x7f' for character in component)
        assert len(component.encode()) <= 255


@settings(deadline=None)
@given(ANY_TEXT, ANY_TEXT)
def test_names_are_injective_in_the_item(first: str, second: str) -> None:
    """Two ids never become one name."""
    assert (named(item=first) == named(item=second)) == (first == second)


@settings(deadline=None)
@given(st.text(max_size=300), st.text(max_size=300))
def test_long_ids_with_a_common_start_stay_apart(first: str, second: str) -> None:
    """An id that is cut keeps the hash of the whole."""
    start = "é" * 150

    assert (named(item=start + first) == named(item=start + second)) == (first == second)


@given(
    item=ANY_TEXT | st.text(st.sampled_from("a.é "), min_size=150, max_size=230),
    pattern=st.sampled_from([DEFAULT, "{item}{ext}", "{ext}/{item}.{ext}", "{item}.png", "x{item}/{job}.{ext}"]),
    output=st.integers(1, 12),
    ext=st.sampled_from(["jpg", "webp", "gif", "avif"]),
)
def test_other_extension_gives_the_name_that_rendering_gives(item: str, pattern: str, output: int, ext: str) -> None:
    """Or none, so that it is rendered: two items never get one name by a short cut."""
    item = item or "x"
    name = named(pattern, item=item, output=output)

    other = filenames.with_extension(name, pattern, "png", ext)

    assert other in {None, named(pattern, item=item, output=output, ext=ext)}


def test_usual_name_is_not_rendered_again() -> None:
    """A file of the default pattern."""
    assert filenames.with_extension("job/fox.png", DEFAULT, "png", "webp") == "job/fox.webp"
