"""A worker of a federated training in a process of its own. Run as `python served_clients.py SETTINGS`, in JSON.

It offers these data sets, of `rows` examples that follow from `seed`:

    train   as they are
    slow    whoever trains on it waits half a second per batch
    mixed   something is wrong with it, as `fault` says: "nan", "shape", "nothing", "hang", or None: nothing is
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from typing import Any

import torch
from torch.utils.data import Dataset, TensorDataset

SLOW, HANGING = 0.5, 3.0


def examples(seed: int, rows: int) -> TensorDataset:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(rows, 6, generator=generator)
    return TensorDataset(x, (x[:, 0] + x[:, 1] > 0).long())


class Waiting(Dataset):
    """Takes its time for each batch."""

    def __init__(self, inner: TensorDataset, seconds: float) -> None:
        self.inner, self.seconds = inner, seconds

    def __len__(self) -> int:
        return len(self.inner)

    def __getitem__(self, index: int) -> Any:
        return self.inner[index]

    def __getitems__(self, rows: list[int]) -> list[Any]:
        if len(rows) > 1:  # not for a look at a row
            time.sleep(self.seconds)
        return [self.inner[row] for row in rows]


class ServedClient:
    """The process, as a test sees it."""

    def __init__(self, **options: Any) -> None:
        self._options = {"address": "tcp://127.0.0.1:0", "rows": 30, **options}
        self.begin()

    def begin(self) -> None:
        """Start without waiting for it; `address` does."""
        self.process = subprocess.Popen(
            [sys.executable, "-P", __file__, json.dumps(self._options)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
        )
        self._address = ""

    @property
    def address(self) -> str:
        if not self._address:
            self._address = json.loads(self.process.stdout.readline())  # type: ignore[union-attr]
        return self._address

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def kill(self) -> None:
        """kill -9"""
        self._options["address"] = self.address
        self.signal(signal.SIGKILL)
        self.process.wait()
        self._close()

    def restart(self) -> None:
        """At the same address; waits until it serves."""
        self.begin()
        assert self.address == self._options["address"]

    def _close(self) -> None:
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                stream.close()

    def end(self) -> None:
        if self.process.poll() is None:
            self.kill()


def _main(options: dict[str, Any]) -> None:
    from dataclasses import replace

    import syft as sy
    from syft.messaging.message import RoundMessage
    from syft.workers import handlers
    from syft.workers.network.server import ServerSettings

    torch.set_num_threads(1)
    hook = sy.TorchHook(torch)
    worker = sy.NetworkServerWorker(
        hook, options["address"], id=options["id"], settings=ServerSettings(heartbeat=0.5)
    )
    rows, fault = examples(options["seed"], options["rows"]), options.get("fault")
    worker.add_dataset(rows, "train")
    worker.add_dataset(Waiting(rows, SLOW), "slow")
    wrong: Any = TensorDataset(rows.tensors[0] * float("nan"), rows.tensors[1]) if fault == "nan" else rows
    worker.add_dataset(Waiting(rows, HANGING) if fault == "hang" else wrong, "mixed")
    honest = handlers.HANDLERS[RoundMessage]

    def lie(at: Any, message: RoundMessage) -> Any:
        result = honest(at, message)
        if message.dataset_key != "mixed" or fault not in ("shape", "nothing"):
            return result
        wrong = {name: tensor.unsqueeze(0) for name, tensor in result.update.items()}
        return None if fault == "nothing" else replace(result, update=wrong)

    handlers.HANDLERS[RoundMessage] = lie
    worker.start(block=False)
    print(json.dumps(worker.address), flush=True)
    sys.stdin.read()  # ends with the test, whatever happens to it
    os._exit(0)


if __name__ == "__main__":
    _main(json.loads(sys.argv[1]))
