"""What the first use of a thing takes longer than the second, each in a fresh process after its worker has started.

`python -m bench.first_use CASE` runs one of them, and prints the seconds of both as JSON.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch

from bench.harness import Figure, benchmark
from bench.mlp import mlp, sgd_step

Use = Callable[[], Any]
#: The longest pause that is wanted, in seconds.
_WANTED = 0.05


def _virtual() -> Any:
    import syft as sy

    return sy.VirtualWorker(sy.TorchHook(torch), id="first")


def _operation() -> Use:
    bob = _virtual()
    x = torch.ones(3, 3).send(bob)  # type: ignore[attr-defined]
    return lambda: (x @ x).relu().sum().get()


def _layer_of_time() -> Use:
    bob = _virtual()
    layer, x = torch.nn.LSTM(8, 16).send(bob), torch.randn(5, 4, 8).send(bob)  # type: ignore[operator,attr-defined]
    return lambda: layer(x)[0].sum().backward()


def _encoding() -> Use:
    _virtual()
    x = torch.ones(3)
    return lambda: x.fix_precision()  # type: ignore[attr-defined]


def _optimizer() -> Use:
    """torch's own optimizer imports torch's compiler, here as without this library."""
    model, x, y = mlp(), torch.randn(64, 784), torch.randint(10, (64,))
    return lambda: sgd_step(model, torch.optim.SGD(model.parameters(), lr=0.1), x, y)


def _training_plan() -> Use:
    """At a worker that a program has started; who sends it has an optimizer already."""
    import syft as sy
    from syft.workers.network.client_worker import NetworkClientWorker

    _optimizer()()
    hook = sy.TorchHook(torch)
    child = subprocess.Popen(
        [sys.executable, "-m", "bench.first_use", "serve"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert child.stdout is not None
    client = NetworkClientWorker(hook, json.loads(child.stdout.readline()), auto_add=False)
    model = mlp()
    kinds = [torch.float32, torch.int64]
    steps = torch.optim.SGD(model.parameters(), lr=0.1)
    loss = torch.nn.functional.cross_entropy
    x, y = torch.randn(64, 784).send(client), torch.randint(10, (64,)).send(client)  # type: ignore[attr-defined]
    plan = sy.Plan.training(model, loss, steps, [(-1, 784), (-1,)], kinds).send(client)
    client.sync()
    time.sleep(2)  # a worker starts, and its users come later

    def use() -> None:
        plan(x, y)
        client.sync()

    return use


def _serve() -> None:
    import syft as sy
    from syft.workers.network.server_worker import NetworkServerWorker

    worker = NetworkServerWorker(sy.TorchHook(torch), ["tcp://127.0.0.1:0"], id="first").start(block=False)
    print(json.dumps(worker.addresses[0]), flush=True)
    sys.stdin.read()


CASES: dict[str, tuple[str, Callable[[], Use]]] = {
    "operation": ("an operation on a pointer", _operation),
    "lstm": ("a recurrent layer at a worker", _layer_of_time),
    "encoding": ("fix_precision", _encoding),
    "optimizer": ("a step of a torch optimizer, plain torch", _optimizer),
    "training_plan": ("a training plan at a worker made by start()", _training_plan),
}


@benchmark
def first_uses() -> Iterator[Figure]:
    for name, (what, _) in CASES.items():
        done = subprocess.run(
            [sys.executable, "-m", "bench.first_use", name], capture_output=True, text=True, check=True
        )
        first, second = json.loads(done.stdout.splitlines()[-1])
        is_ours = name != "optimizer"
        yield Figure(
            f"first use: {what}",
            first,
            second,
            "the second use",
            "<= 50 ms more" if is_ours else "",
            first - second <= _WANTED if is_ours else None,
        )


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        _serve()
    else:
        use = CASES[sys.argv[1]][1]()
        taken = []
        for _ in range(2):
            began = time.perf_counter()
            use()
            taken.append(time.perf_counter() - began)
        print(json.dumps(taken), flush=True)
