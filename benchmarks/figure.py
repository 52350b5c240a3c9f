"""A line of the table: what was measured, what it is held against, and whether the goal is reached."""

from collections.abc import Iterable
from dataclasses import dataclass

HEAD = "| work | measured | bound or peer | ratio | goal | |\n|---|---|---|---|---|---|"


@dataclass(frozen=True, slots=True)
class Figure:
    """`beside` is the bound or peer with its own value; the ratio is to that, where there is one.

    Without a goal, the figure shows only what is: its last column is empty.
    """

    work: str
    measured: str
    beside: str
    ratio: float | None
    goal: str = ""
    is_reached: bool = True

    def row(self) -> str:
        """Give the line in Markdown."""
        ratio = "" if self.ratio is None else f"{self.ratio:.3f}"
        reached = "" if not self.goal else "yes" if self.is_reached else "**no**"
        return f"| {self.work} | {self.measured} | {self.beside} | {ratio} | {self.goal} | {reached} |"


def at_most(work: str, measured: str, beside: str, ratio: float, goal: float) -> Figure:
    """Give a figure whose ratio is to stay at or below a goal."""
    return Figure(work, measured, beside, ratio, f"at most {goal:g}", ratio <= goal)


def at_least(work: str, measured: str, beside: str, ratio: float, goal: float) -> Figure:
    """Give a figure whose ratio is to reach a goal."""
    return Figure(work, measured, beside, ratio, f"at least {goal:g}", ratio >= goal)


def below(work: str, value: float, unit: str, beside: str, goal: float) -> Figure:
    """Give a figure that is to stay below a goal by itself."""
    return Figure(work, f"{value:.2f} {unit}", beside, None, f"under {goal:g} {unit}", value < goal)


def table(figures: Iterable[Figure]) -> str:
    """Give all lines below their head."""
    return "\n".join([HEAD, *(figure.row() for figure in figures)])
