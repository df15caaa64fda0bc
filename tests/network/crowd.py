"""Many clients of one worker: `python crowd.py ADDRESS PROCESSES THREADS`, a client in each thread of each process.

Prints `ready` when all are connected, lets them begin together when it is sent a line, and prints as JSON the replies
that were not what their client had asked for.
"""

from __future__ import annotations

import json
import multiprocessing
import sys
import threading
from typing import Any

import torch

import syft as sy
from network.waiting import Running

_STEPS = 6
_SECONDS = 80.0


def wrong_replies(client: Any, name: int) -> list[Any]:
    """What a client got that it had not asked for."""
    secret = torch.tensor([name * 1_000_003, name])
    wrong = []
    for step in range(_STEPS):
        mine = (secret + step).send(client)  # type: ignore[attr-defined]
        mine.mul_(3)
        got = mine.get().tolist()
        if got != [(name * 1_000_003 + step) * 3, (name + step) * 3]:
            wrong.append([name, step, got])
    client.close()
    return wrong


def be_a_part(address: str, names: range, processes: Any, results: Any) -> None:
    """One process of the crowd; `processes` is the barrier of all of them."""
    torch.set_num_threads(1)
    hook = sy.TorchHook(torch)
    threads = threading.Barrier(len(names) + 1)

    def work(name: int) -> list[Any]:
        client = sy.NetworkClientWorker(hook, address, auto_add=False, patience=_SECONDS)
        threads.wait(_SECONDS)  # connected
        threads.wait(_SECONDS)  # begin
        return wrong_replies(client, name)

    running = [Running(lambda name=name: work(name)) for name in names]  # type: ignore[misc]
    threads.wait(_SECONDS)
    processes.wait(_SECONDS)  # connected
    processes.wait(_SECONDS)  # begin
    threads.wait(_SECONDS)
    results.put([wrong for one in running for wrong in one.result(_SECONDS)])


def main(address: str, processes: int, threads: int) -> None:
    # NB: nothing has been started here that does not survive a fork; importing once saves seconds.
    context = multiprocessing.get_context("fork")
    barrier, results = context.Barrier(processes + 1), context.SimpleQueue()
    parts = []
    for number in range(processes):
        names = range(number * threads, (number + 1) * threads)
        parts.append(context.Process(target=be_a_part, args=(address, names, barrier, results), daemon=True))
        parts[-1].start()
    barrier.wait(_SECONDS)
    print("ready", flush=True)
    sys.stdin.readline()
    barrier.wait(_SECONDS)
    print(json.dumps([wrong for _ in parts for wrong in results.get()]), flush=True)
    for part in parts:
        part.join(_SECONDS)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
