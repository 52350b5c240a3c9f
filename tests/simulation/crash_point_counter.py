"""Points at which a node can die: each of its steps, and each operation on database, network and disk within a step.

The dead never do anything again: what unwinds, or is finalised later, meets `DiedError` at every door.

Most points are no turns: since the one before, no time has passed, nobody else has moved, and the program itself has
only thought. What dies with it makes no difference, so that dying there is dying at the point before.
"""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from batchkiln.outputs import FileSystem
from batchkiln.rehearsal.nodes import node_of

from .disk_faults import Trouble, error_of
from .virtual_loop import VirtualLoop


class DiedError(BaseException):
    """The node is dead; thrown through the frames of the step in which it died."""


class Points:
    """Counts the points that the program passes, and lets it die at those that were chosen.

    `deaths` holds, for one life after the other, the number of the point at which it ends.
    `die` is called at that instant, with the name of the point: it takes the picture of the disk.
    Operations on the queue and on files are counted too, and fail where there is to be `troubles`.
    """

    def __init__(
        self,
        loop: VirtualLoop,
        die: Callable[[str], None],
        *,
        deaths: Iterable[int] = (),
        troubles: Sequence[Trouble] = (),
    ) -> None:
        self._loop = loop
        self._die = die
        self.deaths = list(deaths)
        self.on_death: Callable[[], None] = lambda: None  # before anything else is done about it
        self._troubles = troubles
        self._life = 0
        self.count = 0
        self.operations = 0
        self.is_troubled = False  # whether an operation of this life has failed
        self.turns: list[int] = []  # the points that leave another world behind than the one before them
        self._done = 0  # operations on disk and database that are over, or halfway
        self._steps_of_others = 0
        self._last_world: object = None
        loop.on_step = self._step

    def begin_life(self) -> None:
        """Count from one again."""
        self._life += 1
        self.count = self.operations = 0
        self.turns = []
        self.is_troubled = False

    def pass_by(self, name: str) -> None:
        """Pass a point within a step.

        Raises `DiedError` when the node dies here, or is dead, and the error of a disk that is to fail here.
        """
        node = node_of(None)
        if not node.startswith("program"):
            return
        if not name.startswith("before"):
            self._done += 1
        if not self._loop.is_dead(node):
            self._count(name)
        if self._loop.is_dead(node):
            raise DiedError(name)
        if name.startswith("before ") and name != "before send":
            self._operate(name)

    def state(self, sql: str) -> None:
        """Pass a point before a statement that may change the queue. SQLite lets nobody die here but a real process."""
        if not sql.lstrip().upper().startswith(("SELECT", "PRAGMA", "--")) and node_of(None).startswith("program"):
            self._done += 1
            self._count("statement")

    def _operate(self, name: str) -> None:
        self.operations += 1
        for trouble in self._troubles:
            if trouble.strikes(self._life, self.operations):
                self.is_troubled = True
                raise error_of(trouble.kind, name)

    def _step(self, node: str) -> None:
        if node.startswith("program"):
            self._count("step")
        else:
            self._steps_of_others += 1

    def _count(self, name: str) -> None:
        self.count += 1
        world = (self._loop.time(), self._steps_of_others, self._loop.network.acts, self._done)
        if world != self._last_world:
            self._last_world = world
            self.turns.append(self.count)
        if self.deaths and self.count == self.deaths[0]:
            self.deaths.pop(0)
            self.on_death()
            self._die(name)


class PointedFiles(FileSystem):
    """The real file system, with a point before and after each thing that changes the disk."""

    def __init__(self, points: Points) -> None:
        self._points = points

    def make_folder(self, path: Path) -> None:
        self._points.pass_by("before make_folder")
        super().make_folder(path)
        self._points.pass_by("after make_folder")

    def sync_folder(self, path: Path) -> None:
        self._points.pass_by("before sync_folder")
        super().sync_folder(path)
        self._points.pass_by("after sync_folder")

    def create(self, path: Path) -> int:
        self._points.pass_by("before create")
        handle = super().create(path)
        self._points.pass_by("after create")
        return handle

    def write(self, handle: int, chunk: bytes) -> None:
        self._points.pass_by("before write")
        super().write(handle, chunk[: len(chunk) // 2])
        self._points.pass_by("within write")
        super().write(handle, chunk[len(chunk) // 2 :])
        self._points.pass_by("after write")

    def truncate(self, handle: int) -> None:
        self._points.pass_by("before truncate")
        super().truncate(handle)
        self._points.pass_by("after truncate")

    def sync_file(self, handle: int) -> None:
        self._points.pass_by("before sync_file")
        super().sync_file(handle)
        self._points.pass_by("after sync_file")

    def link(self, part: Path, final: Path) -> None:
        self._points.pass_by("before link")
        super().link(part, final)
        self._points.pass_by("after link")

    def unlink(self, path: Path) -> None:
        self._points.pass_by("before unlink")
        super().unlink(path)
        self._points.pass_by("after unlink")
