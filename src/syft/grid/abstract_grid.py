"""`AbstractGrid`: what every network of workers offers."""

from __future__ import annotations

import abc
from collections.abc import Iterable
from typing import Any


class AbstractGrid(abc.ABC):
    """Workers that are searched, and that serve models, as one."""

    def __init__(self) -> None:
        super().__init__()

    @abc.abstractmethod
    def search(self, *query: str) -> dict[Any, list[Any]]:
        """Pointers to everything that matches all terms, by the id of the worker that holds it."""

    @abc.abstractmethod
    def serve_model(
        self,
        model: Any,
        id: Any,
        mpc: bool = False,
        allow_remote_inference: bool = False,
        allow_download: bool = False,
        n_replica: int = 1,
    ) -> None:
        """Let workers of this grid hold a model, to be asked under `id`."""

    @abc.abstractmethod
    def query_model_hosts(self, id: Any, mpc: bool = False) -> Any:
        """The workers that hold a model."""

    @abc.abstractmethod
    def run_remote_inference(self, id: Any, data: Any, mpc: bool = False) -> Any:
        """What a model answers."""

    def _connect_all_nodes(self, nodes: Iterable[Any], node_type: type) -> None:
        """Make the workers of a type known to each other."""
        chosen: list[Any] = [node for node in nodes if isinstance(node, node_type)]
        for node in chosen:
            for other in chosen:
                if other is not node:
                    node.add_worker(other)

    def _check_node_type(self, grid_workers: Iterable[Any], node_type: type) -> bool:
        """Whether all of them are of a type."""
        return all(isinstance(worker, node_type) for worker in grid_workers)
