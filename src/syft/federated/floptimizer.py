"""`Optims`: one optimizer per worker over the same parameters, for optimizers that remember (Adam, momentum).

optims = Optims(["bob", "alice"], optim=torch.optim.Adam(model.parameters(), lr=0.01))
...
optimizer = optims.get_optim(data.location.id)
"""

from __future__ import annotations

import copy
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import torch


class Optims:
    """What an optimizer remembers of one worker's data is used for that worker's data alone.

    workers   their ids, or the workers
    optim     the optimizer to take after; it must not have made a step yet
    """

    def __init__(self, workers: Iterable[Any], optim: torch.optim.Optimizer) -> None:
        if not isinstance(optim, torch.optim.Optimizer):
            raise TypeError(f"Optims() was given a {type(optim).__name__}. Pass optim=torch.optim.Adam(...).")
        self.optim = optim
        self.workers = [_id_of(worker) for worker in workers]
        self.optimizers: dict[Any, torch.optim.Optimizer] = {
            worker: _without_memory(optim) for worker in self.workers
        }

    def get_optim(self, worker: Any) -> torch.optim.Optimizer:
        """The optimizer of a worker. !! KeyError for one that was not named"""
        worker_id = _id_of(worker)
        if worker_id not in self.optimizers:
            raise KeyError(
                f"get_optim({worker_id!r}): there are optimizers for {', '.join(map(str, self.workers))}. Name all "
                "workers when Optims is made."
            )
        return self.optimizers[worker_id]

    def fetch_optims(self) -> dict[Any, torch.optim.Optimizer]:
        """All of them, by the id of the worker."""
        return self.optimizers

    def count(self) -> int:
        return len(self.optimizers)


def _id_of(worker: Any) -> Any:
    return getattr(worker, "id", worker)


def _without_memory(optim: torch.optim.Optimizer) -> torch.optim.Optimizer:
    """An optimizer of the same kind, options and parameters that has made no step."""
    made = copy.copy(optim)
    made.state = defaultdict(dict)
    made.param_groups = [dict(group) for group in optim.param_groups]
    return made
