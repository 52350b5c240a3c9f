"""A manifest of a stranger reads no file of this machine but those of one folder, and writes into one folder."""

import io
from pathlib import Path

import pytest
from PIL import Image

from batchkiln.core.errors import InputError
from batchkiln.core.job import InputFile
from batchkiln.manifest import FileAccess, open_manifest
from batchkiln.yaml_reading.diagnostics import InvalidValue

HEADER = """\
version: 1
job: foxes
defaults: {model: epsilon-2, mode: image-to-image, parameters: {resolution: 512x512}}
"""


def read(text: str, folder: Path, access: FileAccess) -> list[str]:
    manifest = open_manifest(
        "-", stdin=io.BytesIO((HEADER + text).encode()), working_dir=folder, output_base=folder, access=access
    )
    return [item.spec.name for item in manifest.items()]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a secret, and a folder of files that may be read, with a link to the secret."""
    (tmp_path / "secret.txt").write_text("the password\n")
    Image.new("RGB", (16, 16)).save(tmp_path / "secret.png")
    files = tmp_path / "files"
    files.mkdir()
    (files / "prompts.txt").write_text("A fox\n")
    Image.new("RGB", (16, 16)).save(files / "owl.png")
    (files / "link.txt").symlink_to(tmp_path / "secret.txt")
    (files / "link.png").symlink_to(tmp_path / "secret.png")
    return tmp_path


OUTSIDE = [
    "items: [{from: secret.txt}]",
    "items: [{from: ../secret.txt}]",
    "items: [{from: link.txt}]",
    "items: [{from: /etc/passwd.txt}]",
    "items: [{from: 'file:///etc/passwd.txt'}]",
    "items: [{from: 'http://169.254.169.254/latest.txt'}]",
    "items: [{prompt: A fox, inputs: [../secret.png]}]",
    "items: [{prompt: A fox, inputs: [link.png]}]",
    "items: [{matrix: {a: ['../secret']}, prompt: A fox, inputs: ['{{ a }}.png']}]",
]


@pytest.mark.parametrize("text", OUTSIDE)
@pytest.mark.parametrize("is_open", [False, True])
def test_file_outside_the_folder_is_refused(folder: Path, text: str, *, is_open: bool) -> None:
    """Whatever way it is named, with a folder of files and without; its content is not in the message."""
    access = FileAccess(folder, folder / "files" if is_open else None)

    with pytest.raises(InputError) as raised:
        read(text, folder, access)

    assert "the password" not in str(raised.value)
    assert raised.value.mistakes[0].line == 4


@pytest.mark.parametrize("name", ["there.txt", "secret.txt"])
def test_refusal_does_not_tell_whether_a_file_exists(folder: Path, name: str) -> None:
    with pytest.raises(InputError) as raised:
        read(f"items: [{{from: ../{name}}}]", folder, FileAccess(folder, folder / "files"))

    assert raised.value.mistakes[0].reason.endswith(
        "is outside the folder whose files a manifest sent over HTTP may read"
    )


@pytest.mark.parametrize("text", ["from: none.txt", "prompt: A fox, inputs: [none.png]", "from: ../secret.txt"])
def test_no_refusal_names_a_folder_of_the_server(folder: Path, text: str) -> None:
    """Its absolute paths, which hold names of people, are no business of a stranger."""
    with pytest.raises(InputError) as raised:
        read(f"items: [{{{text}}}]", folder, FileAccess(folder, folder / "files"))

    assert str(folder) not in str(raised.value)


def test_files_of_the_folder_are_read(folder: Path) -> None:
    text = "items: [{from: prompts.txt, inputs: [owl.png]}]"
    access = FileAccess(folder, folder / "files")
    manifest = open_manifest("-", stdin=io.BytesIO((HEADER + text).encode()), working_dir=folder, access=access)

    (item,) = manifest.items()

    assert item.spec.prompt == "A fox"
    assert [each.path for each in item.spec.inputs if isinstance(each, InputFile)] == [str(folder / "files/owl.png")]


def test_output_folder_in_other_storage_is_refused(tmp_path: Path) -> None:
    """A stranger would write with the server's own rights there."""
    with pytest.raises(InvalidValue, match="outside the folder"):
        FileAccess(tmp_path).check_output("s3://bucket/owls")


@pytest.mark.parametrize(
    "directory", ["s3://bucket/kiln", "s3://bucket/kiln/", "s3://bucket/kiln/.inputs", "s3://bucket/kiln2"]
)
def test_hidden_place_of_a_shared_url_is_refused(directory: str) -> None:
    """The inputs of all jobs are there."""
    access = FileAccess("s3://bucket/kiln")
    access.check_output("s3://bucket/kiln/owls")

    with pytest.raises(InvalidValue, match="outside the folders"):
        access.check_output(directory)


@pytest.mark.parametrize("directory", ["/etc", "..", "out/../../x", "link", ".", "out/..", ".batchkiln", "x/.git"])
def test_output_folder_elsewhere_is_refused(folder: Path, directory: str) -> None:
    root = folder / "work"
    root.mkdir()
    (root / "link").symlink_to(folder / "files")
    text = f"output: {{dir: {directory}}}\nitems: [A fox]"

    with pytest.raises(InputError) as raised:
        read(text, root, FileAccess(root))

    assert "`output.dir` is outside the folders" in str(raised.value)
