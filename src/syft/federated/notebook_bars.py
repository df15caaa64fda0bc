"""Progress bars in a notebook, drawn as HTML in the output of the cell.

One duty: the part of `rich.progress.Progress` that `ProgressBar` uses. rich itself needs ipywidgets in notebooks.
Imports nothing of the room.
"""

from __future__ import annotations

import html
import sys
from dataclasses import dataclass
from typing import Any


def is_notebook() -> bool:
    """Whether this process is the kernel of a notebook."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return type(shell).__name__ == "ZMQInteractiveShell"


@dataclass
class _Bar:
    name: str
    total: int | None
    completed: int = 0
    told: str = ""

    def markup(self) -> str:
        total = "" if self.total is None else f' value="{self.completed}" max="{self.total}"'
        count = f"{self.completed}" + ("" if self.total is None else f" of {self.total}")
        return f"<div>{html.escape(self.name)} <progress{total}></progress> {count} {html.escape(self.told)}</div>"


class NotebookBars:
    """Bars below each other, redrawn in place."""

    def __init__(self, display: Any = None) -> None:
        self._bars: list[_Bar] = []
        self._display = display
        self._shown: Any = None

    def add_task(self, name: str, total: int | None, completed: int = 0, told: str = "") -> int:
        self._bars.append(_Bar(name, total, completed, told))
        return len(self._bars) - 1

    def start(self) -> None:
        display = self._display or sys.modules["IPython"].display
        self._markup = display.HTML
        self._shown = display.display(self._markup(self.markup()), display_id=True)

    def reset(self, task: int, total: int | None, told: str = "") -> None:
        bar = self._bars[task]
        bar.total, bar.completed, bar.told = total, 0, told
        self._draw()

    def update(self, task: int, advance: int = 0, completed: int | None = None, told: str = "") -> None:
        bar = self._bars[task]
        bar.completed = bar.completed + advance if completed is None else completed
        bar.told = told
        self._draw()

    def stop(self) -> None:
        self._draw()

    def markup(self) -> str:
        return "".join(bar.markup() for bar in self._bars)

    def _draw(self) -> None:
        if self._shown is not None:
            self._shown.update(self._markup(self.markup()))
