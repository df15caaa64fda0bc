"""A worker of a federated training in a process of its own. Run as `python served_clients.py SETTINGS`, in JSON.

It offers these data sets, of `rows` examples that follow from `seed`:

    train   as they are
    slow    whoever trains on it waits half a second per batch
    notes   dicts of words, a mask and "labels": with which of two words they begin
    words   dicts of words and a mask, with the words as "labels"
    mixed   something is wrong with it, as `fault` says: "nan", "shape", "nothing", "hang", or None: nothing is
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from typing import Any

import torch
from torch.utils.data import Dataset, TensorDataset

import forked

SLOW, HANGING = 0.5, 3.0


def counted_traffic(monkeypatch: Any) -> list[int]:
    """Bytes of this process's frames from now on: sent, and received."""
    from syft.transport.sockets import SocketConnection

    counted = [0, 0]
    send, receive = SocketConnection.send, SocketConnection.receive

    def counting_send(self: Any, parts: Any) -> None:
        counted[0] += sum(memoryview(part).nbytes for part in parts)
        send(self, parts)

    def counting_receive(self: Any, timeout: float | None = None) -> Any:
        frame = receive(self, timeout)
        counted[1] += len(frame)
        return frame

    monkeypatch.setattr(SocketConnection, "send", counting_send)
    monkeypatch.setattr(SocketConnection, "receive", counting_receive)
    return counted


def examples(seed: int, rows: int) -> TensorDataset:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(rows, 6, generator=generator)
    return TensorDataset(x, (x[:, 0] + x[:, 1] > 0).long())


def notes(seed: int, rows: int, length: int = 8) -> list[dict[str, torch.Tensor]]:
    """Sentences of words 5 to 31 that begin with 3 or with 4, as their label says; the end of some is padding."""
    generator = torch.Generator().manual_seed(seed)
    words = torch.randint(5, 32, (rows, length), generator=generator)
    labels = torch.arange(rows) % 2
    words[:, 0] = 3 + labels
    mask = torch.ones_like(words)
    mask[::3, -2:] = 0
    return [
        {"input_ids": w * m, "attention_mask": m, "labels": y}
        for w, m, y in zip(words, mask, labels, strict=True)
    ]


def counting(seed: int, rows: int, length: int = 8) -> list[dict[str, torch.Tensor]]:
    """Sentences in which each word is the one before and 1, from 4 to 31 and on from 4."""
    generator = torch.Generator().manual_seed(seed)
    start = torch.randint(0, 28, (rows, 1), generator=generator)
    words = (start + torch.arange(length)) % 28 + 4
    return [{"input_ids": w, "attention_mask": torch.ones_like(w), "labels": w} for w in words]


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
        self.process = forked.start(
            __file__, json.dumps(self._options), stdin=forked.PIPE, stdout=forked.PIPE
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
    worker.add_dataset(notes(options["seed"], options["rows"]), "notes")
    worker.add_dataset(counting(options["seed"], options["rows"]), "words")
    worker.add_dataset(notes(options["seed"], options["rows"]), "confidential", least_in_sum=2)
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
