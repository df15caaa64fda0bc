"""torch RPC and its distributed autograd: two processes of its own, in whatever environment has torch.

    python -m bench.peers.torch_rpc

The first process starts the second one, and runs what it is asked for: the same work as ours.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from typing import Any

import torch
import torch.distributed.autograd as dist_autograd
import torch.distributed.rpc as rpc
from torch.distributed.optim import DistributedOptimizer
from torch.nn import functional as F

from bench.mlp import mlp
from bench.peer import answer_jobs

ADDS = 1000
OTHER = "bench1"


# -- what is called in the second process ----------------------------------------------------------------------


def zeros_there(count: int) -> Any:
    return torch.zeros(count)


def add_there(held: Any, number: int) -> Any:
    return held.local_value() + number


def give_back(tensor: Any) -> Any:
    return tensor


class Held(torch.nn.Module):
    """The model and its batch, where they are; a step asks for the loss of it."""

    def __init__(self) -> None:
        super().__init__()
        self.model = mlp()
        self.data, self.target = torch.randn(64, 784), torch.randint(10, (64,))

    def forward(self) -> Any:
        return F.cross_entropy(self.model(self.data), self.target)

    def references(self) -> list[Any]:
        return [rpc.RRef(one) for one in self.parameters()]


# -- what is asked for -----------------------------------------------------------------------------------------


def chain() -> None:
    x = rpc.remote(OTHER, zeros_there, args=(10,))
    for _ in range(ADDS):
        x = rpc.remote(OTHER, add_there, args=(x, 1))
    x.to_here()


def jobs() -> dict[str, Any]:
    tensor = torch.randn(1_000_000)
    held = rpc.remote(OTHER, Held)
    optimizer = DistributedOptimizer(torch.optim.SGD, held.rpc_sync().references(), lr=0.1)

    def step() -> None:
        with dist_autograd.context() as context:
            dist_autograd.backward(context, [held.rpc_sync().forward()])
            optimizer.step(context)

    return {"chain": chain, "echo": lambda: rpc.rpc_sync(OTHER, give_back, args=(tensor,)), "step": step}


def main(words: list[str]) -> None:
    torch.set_num_threads(1)
    rank = int(words[0]) if words else 0
    if rank == 0:
        with socket.create_server(("127.0.0.1", 0)) as probe:
            port = probe.getsockname()[1]
        subprocess.Popen([sys.executable, "-m", "bench.peers.torch_rpc", "1", str(port)])
    else:
        port = int(words[1])
    options = rpc.TensorPipeRpcBackendOptions(init_method=f"tcp://127.0.0.1:{port}", num_worker_threads=4)
    rpc.init_rpc(f"bench{rank}", rank=rank, world_size=2, rpc_backend_options=options)
    if rank:
        rpc.shutdown()  # waits for the first one to end, too
        return
    known = jobs()

    def answer(job: str, calls: int) -> dict[str, float]:
        began = time.perf_counter()
        for _ in range(calls):
            known[job]()
        return {"seconds": (time.perf_counter() - began) / calls}

    answer_jobs(answer, version=torch.__version__)
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1:])
