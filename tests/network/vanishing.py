"""A client that is killed: `python vanishing.py ADDRESS COUNT` sends so many tensors, says so, and waits for its end."""

from __future__ import annotations

import sys

import torch

import syft as sy
from syft.workers.network.client_worker import NetworkClientWorker

if __name__ == "__main__":
    worker = NetworkClientWorker(sy.TorchHook(torch), sys.argv[1])
    held = [torch.full((1_000,), float(number)).send(worker) for number in range(int(sys.argv[2]))]
    worker.sync()
    print(len(held), flush=True)
    sys.stdin.read()
