"""Parties in processes of their own that are killed at random moments, and what their clients notice of it."""

from __future__ import annotations

import contextlib
import gc
import os
import random
import signal
import threading
import time
from pathlib import Path
from typing import Any

import torch

from mpc.worker_nursery import Nursery, options_among
from syft.exceptions import SyftError
from syft.workers.network.client_worker import NetworkClientWorker


class Deaths:
    """Kills one party after the other, and measures.

    detected    seconds from the death to the error that the client got
    recovered   seconds from when the party was back to a right result of newly shared values
    """

    def __init__(
        self,
        nursery: Nursery,
        names: tuple[str, ...],
        folder: Path,
        hook: Any,
        seed: int,
        isolation: str = "none",
    ) -> None:
        self.names, self._nursery, self._folder = names, nursery, folder
        self._options = ["--isolation", isolation]
        for name in names:
            nursery.ask(*options_among(name, names, folder), *self._options)
        self.pids = nursery.wait(len(names))
        self.members = [
            NetworkClientWorker(hook, f"unix://{folder}/{name}", name, auto_add=False) for name in names
        ]
        self.random = random.Random(seed)
        # What the programs take is found out now: it is not what is measured.
        for count in (200, 50):
            x = self.share(torch.arange(count))
            (torch.relu(x * x - 1) + x).get()
            torch.relu(x - 25).get()
        self.detected: list[float] = []
        self.recovered: list[float] = []

    def share(self, tensor: torch.Tensor) -> Any:
        *holders, provider = self.members
        return tensor.share(*holders, crypto_provider=provider)  # type: ignore[attr-defined]

    def one(self) -> None:
        """One death: the client is told in time, by the right name, and the next session works."""
        victim = self.random.choice(self.names)
        x = self.share(torch.arange(200))
        assert (x * x).get().tolist() == [n * n for n in range(200)]
        died: list[float] = []

        def kill() -> None:
            time.sleep(pause)
            os.kill(self.pids[victim], signal.SIGKILL)
            died.append(time.monotonic())

        pause, queued = self.random.uniform(0, 0.3), self.random.choice((1, 5, 40))
        killer = threading.Thread(target=kill)
        killer.start()
        error = ""
        made: list[Any] = []
        one: Any = None
        while not error:
            try:
                made = [torch.relu(x * x - n) + x for n in range(queued)]
                for one in self.random.sample(made, min(3, queued)):
                    one.get()
            except SyftError as found:
                error = str(found)
                self.detected.append(time.monotonic() - died[0])
        killer.join()
        assert repr(victim) in error, error
        innocent = [name for name in self.names if name != victim]
        assert not any(f"Worker {name!r} is gone" in error for name in innocent), error
        if self.random.random() < 0.5:  # who asks once more while it is away is told at once
            with contextlib.suppress(SyftError):
                (x * x).get()
        del x, made, one
        gc.collect()  # tracebacks are cycles
        self._nursery.ask(*options_among(victim, self.names, self._folder), *self._options)
        self.pids |= self._nursery.wait(1)
        began = time.monotonic()
        y = self.share(torch.arange(50))
        assert (y * y).get().tolist() == [n * n for n in range(50)]
        assert torch.relu(y - 25).get().tolist() == [max(0, n - 25) for n in range(50)]
        self.recovered.append(time.monotonic() - began)
        del y
        self.check_memory()

    def check_memory(self) -> None:
        """All that is left is one membership at each: shares and correlations are freed."""
        for member in self.members:
            until = time.monotonic() + 60  # on a busy machine
            while True:
                member.sync()
                status = member.status()
                if (status["objects"] == 1 and status["bytes"] < 100) or time.monotonic() > until:
                    break
            assert status["objects"] == 1 and status["bytes"] < 100, (member.id, status)
