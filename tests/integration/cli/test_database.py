"""The commands on a queue in PostgreSQL: the same words as on a file, and no password in any of them."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from batchkiln.core.job import AttemptState
from batchkiln.store.location import DatabaseUrl
from batchkiln.store.postgres.connecting import connect
from integration.cli.test_dashboard import link_of
from integration.cli.workspace import HURRIED, Workspace, finished, interrupt
from support import postgres

pytestmark = pytest.mark.postgres

PASSWORD = "hush-hush"


@pytest.fixture
def url() -> Iterator[DatabaseUrl]:
    """An empty queue, by a URL with a password that the server does not ask for."""
    postgres.require()
    with postgres.server().database() as lent:
        yield DatabaseUrl(lent.secret.replace("batchkiln@", f"batchkiln:{PASSWORD}@"), may_lose_commits=True)


@pytest.fixture
def configured(tmp_path: Path, url: DatabaseUrl) -> Iterator[Workspace]:
    """A workspace whose configuration names the queue."""
    made = Workspace(tmp_path)
    made.configure(f"queue: {url.secret}\nallow_lost_commits: true\n{HURRIED}")
    yield made
    made.end_all()


def test_a_job_is_run_in_a_database(configured: Workspace, url: DatabaseUrl) -> None:
    """From the manifest to the files: each prompt is paid once, and the folder holds no queue file."""
    manifest = configured.manifest()

    ran = configured.call("run", manifest)
    again = configured.call("run", manifest)
    calls = [
        configured.call(*words.split())
        for words in ("status --json", "items foxes --json", "show foxes fox-1", f"plan {manifest}", "doctor -v")
    ]

    assert (ran.exit, again.exit) == (0, 0), ran.err + again.err
    assert [call.exit for call in calls[:4]] == [0, 0, 0, 0], [call.err for call in calls]
    assert calls[0].document["jobs"][0]["items"]["done"] == 2
    assert "database fsync" in calls[4].out
    assert not list(configured.folder.rglob("queue.db"))
    with closing(connect(url)) as session:
        states = [row[0] for row in session.execute("SELECT state FROM attempt ORDER BY id")]
    assert states == [AttemptState.SUCCEEDED] * 2
    for call in (ran, again, *calls):
        assert PASSWORD not in call.out + call.err
    assert f"batchkiln:…@/{url.name}" in calls[4].out


@pytest.mark.long
def test_link_of_the_dashboard_is_not_printed_into_a_log(configured: Workspace) -> None:
    """The token is in a file of the machine, the same at each start; without the file, no token is printed either."""
    configured.call("enqueue", configured.manifest())
    state = configured.folder / "state"
    links = []
    for _ in range(2):
        process = configured.start("dashboard", "--no-open", XDG_STATE_HOME=str(state))
        links.append(link_of(process))
        interrupt(process)
        finished(process)
    no_folder = configured.folder / "no-folder"
    no_folder.write_text("", "utf-8")
    process = configured.start("dashboard", "--no-open", XDG_STATE_HOME=str(no_folder))
    assert process.stderr is not None
    line = process.stderr.readline()
    interrupt(process)
    rest = finished(process)

    first, second = (link.partition("token=")[2] for link in links)
    assert first == second
    assert "its token cannot be stored in" in line
    assert "http.tokens" in line
    assert "token=" not in line + rest.out + rest.err


def test_what_resumes_a_run_is_reported_without_the_password(configured: Workspace, url: DatabaseUrl) -> None:
    """The whole command line is repeated to the person, but for that. Law 8."""
    ran = configured.call("run", configured.manifest(), "--max-credits", "2", "--queue", url.secret)

    assert ran.exit == 5
    assert "To resume" in ran.err
    assert PASSWORD not in ran.out + ran.err


def test_migrate_tells_what_it_found(configured: Workspace, url: DatabaseUrl) -> None:
    """A queue that is up to date is left alone; a newer one is refused before anything is sent."""
    current = configured.call("migrate", "--check", "--json").document
    with closing(connect(url)) as session:
        session.execute("UPDATE meta SET value = '999' WHERE key = 'schema_version'")
        try:
            newer = configured.call("run", configured.manifest())
        finally:
            session.execute("UPDATE meta SET value = ? WHERE key = 'schema_version'", (str(current["latest"]),))

    assert current["before"] == current["after"] == current["latest"]
    assert PASSWORD not in current["queue"]
    assert newer.exit == 2
    assert "written by a newer batchkiln" in newer.err


def test_migrate_checks_and_makes_a_file_as_well(workspace: Workspace) -> None:
    """The same command in a script serves both."""
    missing = workspace.call("migrate", "--check")
    made = workspace.call("migrate")
    current = workspace.call("migrate", "--check")

    assert (missing.exit, made.exit, current.exit) == (2, 0, 0)
    assert "does not exist yet" in missing.out
    assert "made a queue" in made.out


def test_a_queue_is_moved_to_a_database_and_back(configured: Workspace, url: DatabaseUrl) -> None:
    """Each command then refuses the old place and names the new one, without the password."""
    manifest = configured.manifest()
    assert configured.call("run", manifest, "--queue", "queue.db").exit == 0

    there = configured.call("queue", "copy", "queue.db", url.secret)
    old = [configured.call(*words.split(), "--queue", "queue.db") for words in ("status", f"run {manifest}", "doctor")]
    again = configured.call("run", manifest)
    back = configured.call("queue", "copy", url.secret, "back.db", "--json")
    last = configured.call("status", "--json", "--queue", "back.db")

    assert (there.exit, again.exit, back.exit, last.exit) == (0, 0, 0, 0), there.err + again.err + back.err
    assert "moved 1 jobs with 2 items" in there.out
    assert [call.exit for call in old] == [2, 2, 2]
    for call in old:
        assert "was moved to postgresql://batchkiln:…@" in " ".join((call.out + call.err).split())
    assert back.document["items"] == 2
    assert last.document["jobs"][0]["items"]["done"] == 2
    for call in (there, *old, again, back):
        assert PASSWORD not in call.out + call.err


def test_a_copy_to_a_database_without_a_queue_names_the_remedy(workspace: Workspace) -> None:
    """Nothing is marked: the file is used on."""
    postgres.require()
    empty = postgres.server().create("copied_to_nowhere")
    workspace.configure(f"allow_lost_commits: true\n{HURRIED}")
    assert workspace.call("enqueue", workspace.manifest(), "--queue", "queue.db").exit == 0

    copied = workspace.call("queue", "copy", "queue.db", empty.secret)

    assert copied.exit == 2
    assert "Run `batchkiln migrate`" in copied.err
    assert workspace.call("status", "--queue", "queue.db").exit == 0


def test_a_copy_of_what_is_no_queue_is_refused(configured: Workspace, url: DatabaseUrl) -> None:
    """A mistyped path makes no file."""
    copied = configured.call("queue", "copy", "mistyped.db", url.secret)

    assert copied.exit == 2
    assert not list(configured.folder.glob("mistyped*"))
