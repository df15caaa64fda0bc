"""What the desk shows: read from the files and the socket of a worker, as they are now. Writes nothing.

A worker is a folder in which `syft worker` was told to keep its files. Each of them may be missing; what cannot be read
is a sentence on the page, and the rest is shown.
"""

from __future__ import annotations

import stat
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from syft.cli.owner_socket import ask
from syft.policy.audit import AuditLine, read_audit_tail
from syft.requests.book import RequestBook
from syft.requests.records import Request

T = TypeVar("T")
_MOST_LINES = 100
_MOST_RELEASES = 60


@dataclass(frozen=True)
class Files:
    """Where a worker keeps what the desk shows; None: it keeps none."""

    name: str
    control: Path | None = None
    requests: Path | None = None
    budgets: Path | None = None
    audit: Path | None = None


def files_in(folder: Path) -> Files:
    """The files of a worker in a folder, by the names that the pages use. !! ValueError"""
    if not folder.is_dir():
        raise ValueError(f"{folder} is no folder. Name the folder in which a worker keeps its files.")

    def there(name: str) -> Path | None:
        return folder / name if (folder / name).exists() else None

    found = Files(
        folder.resolve().name,
        there("worker.sock"),
        there("requests.db"),
        there("budgets"),
        there("audit.jsonl"),
    )
    if not any((found.control, found.requests, found.budgets, found.audit)):
        raise ValueError(
            f"There is nothing of a worker in {folder}. Start it there with `syft worker --control worker.sock "
            "--requests requests.db --budgets budgets --audit audit.jsonl`, or name the files: --control, --requests, "
            "--budgets, --audit."
        )
    return found


@dataclass(frozen=True)
class Bar:
    """One limit of a budget, what was spent of it, and the releases: (time, mechanism, epsilon)."""

    dataset: str
    who: str
    spent: float
    limit: float
    releases: tuple[tuple[float, str, float], ...]


@dataclass(frozen=True)
class Problem:
    """Why something is not shown."""

    sentence: str


@dataclass
class Snapshot:
    """A worker as it is now. What it has no file for is None."""

    files: Files
    status: dict[str, Any] | Problem | None
    sessions: list[dict[str, Any]] | Problem | None
    datasets: list[dict[str, Any]] | Problem | None
    requests: list[Request] | Problem | None
    budgets: list[Bar] | Problem | None
    audit: list[AuditLine] | Problem | None

    @property
    def waiting(self) -> int:
        found = self.requests
        return sum(one.status == "waiting" for one in found) if isinstance(found, list) else 0


def look(files: Files) -> Snapshot:
    """Read everything."""
    control = files.control
    return Snapshot(
        files,
        _tried(control, lambda path: ask(path, "status")),
        _tried(control, lambda path: ask(path, "sessions")),
        _tried(control, lambda path: ask(path, "datasets")),
        _tried(files.requests, read_requests),
        _tried(files.budgets, read_budgets),
        _tried(files.audit, lambda path: read_audit_tail(path)),
    )


def _tried(path: Path | None, read: Callable[[Path], T]) -> T | Problem | None:
    if path is None:
        return None
    try:
        return read(path)
    except Exception as error:  # noqa: BLE001  (whatever is wrong with one file, the others are shown)
        return Problem(str(error) or type(error).__name__)


def read_requests(path: Path) -> list[Request]:
    """All that are open, then the newest of the others: nobody's can be pushed off the page by many of another's."""
    book = RequestBook.open(path)
    over = [one for one in book.all(limit=_MOST_LINES) if not one.is_open]
    return [*book.all(open_only=True), *over]


def read_budgets(path: Path) -> list[Bar]:
    """Every limit in a book, with the releases that were charged to it."""
    from syft.dp.worker_budgets import BudgetBook

    book, bars = BudgetBook(path), list[Bar]()
    for name in book.datasets():
        found = book.lines(name)
        spent = {line.user: book.state(name, line.user).releases for line in found if line.user is not None}
        everybody = sorted((one for own in spent.values() for one in own), key=lambda one: one.time)
        for line in found:
            if line.user is None and not line.together and len(found) > 1:
                continue  # what each has who has spent nothing
            who = "all together" if line.together else "each user" if line.user is None else line.user
            releases = everybody if line.together else spent.get(line.user or "", ())
            shown = tuple((one.time, one.mechanism, one.epsilon) for one in releases[-_MOST_RELEASES:])
            bars.append(Bar(name, who, line.spent, line.limit.epsilon, shown))
    return bars


def chosen_lines(found: list[AuditLine], user: str, action: str, granted: str, word: str) -> list[AuditLine]:
    """The lines of an audit log that match a filter, the newest of them."""
    wanted = {"yes": True, "no": False}.get(granted)
    kept = [
        line
        for line in found
        if (not user or line.user == user)
        and (not action or line.action == action)
        and (wanted is None or line.granted is wanted)
        and (not word or word.lower() in f"{line.object} {line.reason} {line.peer}".lower())
    ]
    return kept[:_MOST_LINES]


def faults_of(files: Files) -> list[str]:
    """What is wrong with the files of a worker."""
    faults = []
    for name in ("requests", "budgets", "audit"):
        path: Path | None = getattr(files, name)
        if path is not None and path.exists() and path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
            faults.append(f"{path} can be opened by others on this machine: chmod 600 {path}")
    return faults
