"""`PrivateGridNetwork`: several workers searched as one."""

from __future__ import annotations

from typing import Any


class PrivateGridNetwork:
    """The workers a program works with."""

    def __init__(self, *workers: Any) -> None:
        self.workers = list(workers)

    def search(self, *query: str) -> dict[Any, list[Any]]:
        """Pointers to everything that matches all terms, by the id of the worker that holds it."""
        found = {worker.id: worker.search(list(query)) for worker in self.workers}
        return {worker_id: pointers for worker_id, pointers in found.items() if pointers}

    def __repr__(self) -> str:
        return f"<PrivateGridNetwork of {', '.join(str(w.id) for w in self.workers) or 'no workers'}>"
