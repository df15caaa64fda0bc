"""Clients and data sets for the tests of `RayEngine`. They are in a module of their own because actors import it."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import Dataset

from syft.federated.records import EvaluateInstructions, FitInstructions
from trainer_parts import Fixed


class Dies(Fixed):
    """Its process ends while it trains."""

    def __init__(self, how: str) -> None:
        super().__init__(1000.0)
        self.how = how

    def fit(self, instructions: FitInstructions) -> Any:
        if self.how == "exit":
            os._exit(3)
        if self.how == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        raise SystemExit(3)


class Hangs(Fixed):
    """It never comes back."""

    def fit(self, instructions: FitInstructions) -> Any:
        time.sleep(600)


class Counts(Fixed):
    """It remembers how often it was asked, or would like to."""

    times = 0

    def fit(self, instructions: FitInstructions) -> Any:
        self.times += 1
        self.update = (float(self.times),)
        return super().fit(instructions)


class Locked(Fixed):
    """It cannot be copied."""

    def __init__(self) -> None:
        super().__init__(1000.0)
        self.lock = threading.Lock()


class Returns(Fixed):
    """It returns what is asked of it and nothing else."""

    def __init__(self, what: str) -> None:
        super().__init__(1000.0)
        self.what = what

    def fit(self, instructions: FitInstructions) -> Any:
        return {"nothing": None, "a dict": {"weight": 1}, "an object": object()}[self.what]


class TellsProcess(Fixed):
    """Its figures say where it ran."""

    def evaluate(self, instructions: EvaluateInstructions) -> Any:
        self.update = (float(os.getpid()),)
        return super().evaluate(instructions)


class Noisy(Dataset[Any]):
    """Draws for every item, as augmentations do."""

    def __init__(self, rows: Any) -> None:
        self.rows = rows

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> Any:
        if not isinstance(index, int):
            raise TypeError(f"An index is an int and not a {type(index).__name__}.")
        x, y = self.rows[index]
        return x + torch.randn_like(x), y


class Slow(Dataset[Any]):
    """Takes its time for every item."""

    def __len__(self) -> int:
        return 200

    def __getitem__(self, index: int) -> Any:
        time.sleep(0.05)
        return torch.ones(1), torch.ones(1)


class SaysWhere(Fixed):
    """Writes down on which node it ran, and takes a moment, so that one process does not play all of them."""

    def __init__(self, folder: str) -> None:
        super().__init__(1.0)
        self.folder = folder

    def fit(self, instructions: FitInstructions) -> Any:
        import ray

        node = ray.get_runtime_context().get_node_id()
        Path(self.folder, f"{os.getpid()}").write_text(node)
        time.sleep(0.1)
        return super().fit(instructions)
