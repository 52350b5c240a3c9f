"""`redo`, `use-version`, `fetch` and `--on-change redo`, as a person would use them, on the embedded service."""

from pathlib import Path

from integration.cli.workspace import Workspace


def files_of(workspace: Workspace, item: str) -> list[str]:
    """Return the names of the files that `items` shows."""
    rows = {row["item"]: row for row in workspace.call("items", "foxes", "--json").lines}
    return [Path(output["path"]).name for output in rows[item]["outputs"]]


def charged(workspace: Workspace) -> int:
    return int(workspace.call("status", "foxes", "--json").document["credits"]["charged"])


def test_item_is_made_again_and_its_first_version_used(workspace: Workspace) -> None:
    """The cost is named first, each version is paid once, and exports have the current one."""
    workspace.call("run", workspace.manifest())
    price = charged(workspace) // 2
    first = (workspace.folder / "out" / "foxes" / "fox-1.png").read_bytes()

    asked = workspace.call("redo", "foxes", "fox-1", "--yes")
    run = workspace.call("work")

    assert f"may cost {price} credits" in asked.err
    assert (asked.exit, run.exit) == (0, 0)
    assert charged(workspace) == 3 * price
    assert (workspace.folder / "out" / "foxes" / "fox-1.png").read_bytes() == first
    assert files_of(workspace, "fox-1") == ["fox-1.v2.png"]
    shown = workspace.call("show", "foxes", "fox-1").out
    assert "version 1: attempt 1" in shown
    assert "version 2 (current): attempt 2" in shown

    used = workspace.call("use-version", "foxes", "fox-1", "1")
    exported = workspace.call("export", "foxes", "--to", "data")

    assert (used.exit, exported.exit) == (0, 0), exported.err
    assert files_of(workspace, "fox-1") == ["fox-1.png"]
    document = workspace.call("show", "foxes", "fox-1", "--json").document
    assert (document["version"], [one["current"] for one in document["versions"]]) == (1, [True, False])
    assert charged(workspace) == 3 * price


def test_version_that_is_not_there_is_refused_with_those_that_are(workspace: Workspace) -> None:
    """Exit 2, with what there is; a queued redo names the command that ends it."""
    workspace.call("run", workspace.manifest(items=1))

    wrong = workspace.call("use-version", "foxes", "fox-1", "7")
    workspace.call("redo", "foxes", "fox-1", "--yes")
    queued = workspace.call("use-version", "foxes", "fox-1", "1")
    canceled = workspace.call("cancel", "foxes", "fox-1")

    assert (wrong.exit, queued.exit, canceled.exit) == (2, 2, 0)
    assert "has no version 7: it has 1" in wrong.err
    assert "batchkiln cancel foxes fox-1" in queued.err
    assert workspace.call("items", "foxes", "--json").lines[0]["state"] == "done"


def test_file_that_is_gone_is_fetched_again_at_no_cost(workspace: Workspace) -> None:
    """It comes back under its name; a second look finds nothing to do."""
    workspace.call("run", workspace.manifest())
    before = charged(workspace)
    path = workspace.folder / "out" / "foxes" / "fox-2.png"
    content = path.read_bytes()
    path.unlink()

    shown = workspace.call("show", "foxes", "fox-2").out
    found = workspace.call("fetch", "foxes", "--json").document
    run = workspace.call("work")
    again = workspace.call("fetch", "foxes")

    assert "gone: this file is not there; `batchkiln fetch foxes fox-2`" in shown
    assert "gone:" not in workspace.call("show", "foxes", "fox-2").out

    assert (found["present"], found["items_to_fetch"], found["lost"]) == (1, 1, [])
    assert run.exit == 0
    assert path.read_bytes() == content
    assert charged(workspace) == before
    assert "2 files on disk; 0 items to download again" in again.out


def test_another_file_in_the_place_of_a_fetched_one_is_not_taken_for_it(workspace: Workspace) -> None:
    """It has the same size, and stays as it is; the paid one is downloaded beside it."""
    workspace.call("run", workspace.manifest())
    path = workspace.folder / "out" / "foxes" / "fox-2.png"
    content = path.read_bytes()
    path.unlink()
    workspace.call("fetch", "foxes")
    path.write_bytes(bytes(len(content)))

    assert workspace.call("work").exit == 0

    assert path.read_bytes() == bytes(len(content))
    assert path.with_name("fox-2~2.png").read_bytes() == content


def test_cut_file_is_named_with_the_name_of_the_new_one(workspace: Workspace) -> None:
    """A program that goes by names would take the broken one: moving it away gives the new one its name."""
    workspace.call("run", workspace.manifest())
    path = workspace.folder / "out" / "foxes" / "fox-2.png"
    content = path.read_bytes()
    path.write_bytes(content[:40])

    found = workspace.call("fetch", "foxes")
    path.rename(path.with_name("broken"))

    assert workspace.call("work").exit == 0
    assert f"stays as it is: {path} is not the file that was saved" in found.out
    assert "gets `~2` before its extension" in found.out
    assert path.read_bytes() == content


def test_changed_requests_are_made_again_when_that_is_asked_for(workspace: Workspace) -> None:
    """The plan and the enqueueing name the cost; without the option, the manifest is refused and names it."""
    name = workspace.manifest()
    workspace.call("run", name)
    price = charged(workspace) // 2
    manifest = workspace.folder / name
    manifest.write_text(manifest.read_text().replace("fox {{ n }}", "a better fox {{ n }}"))

    refused = workspace.call("enqueue", name)
    plan = workspace.call("plan", name, "--on-change", "redo")
    run = workspace.call("run", name, "--on-change", "redo")

    assert refused.exit == 2
    assert "--on-change redo" in refused.err
    assert "would be made again, which costs again" in plan.out
    assert f"2 to be made again, which may cost {2 * price} credits by the known quotes" in run.err
    assert run.exit == 0
    assert charged(workspace) == 4 * price
    assert files_of(workspace, "fox-2") == ["fox-2.v2.png"]
    assert workspace.call("run", name).exit == 0
    assert charged(workspace) == 4 * price


def test_names_of_later_versions_follow_the_manifest(workspace: Workspace) -> None:
    """`output.versions` stands before the extension."""
    name = workspace.manifest(items=1)
    path = workspace.folder / name
    path.write_text(path.read_text().replace("{dir: out}", '{dir: out, versions: "-take{version}"}'))
    workspace.call("run", name)

    workspace.call("redo", "foxes", "fox-1", "--yes")
    workspace.call("work")

    assert files_of(workspace, "fox-1") == ["fox-1-take2.png"]


def test_export_that_is_repeated_after_a_redo_has_the_new_file(workspace: Workspace) -> None:
    """The dataset has the current version; the file that it had is not touched."""
    workspace.call("run", workspace.manifest(items=1))
    workspace.call("export", "foxes", "--to", "data", "--format", "imagefolder")
    before = (workspace.folder / "out" / "foxes" / "fox-1.png").read_bytes()
    workspace.call("redo", "foxes", "fox-1", "--yes")
    workspace.call("work")

    again = workspace.call("export", "foxes", "--to", "data", "--format", "imagefolder")

    new = (workspace.folder / "out" / "foxes" / "fox-1.v2.png").read_bytes()
    assert again.exit == 0, again.err
    assert new in [path.read_bytes() for path in (workspace.folder / "data").rglob("*.png")]
    assert (workspace.folder / "out" / "foxes" / "fox-1.png").read_bytes() == before
