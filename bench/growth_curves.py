"""The curves of `bench.growth`: what is varied, what is run, and what theory says of it."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import subprocess
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import TensorDataset

from bench.growth import Series, cpu_of, curve, follow, powers
from bench.mlp import sgd_step
from bench.mpc_network import _cpu_seconds
from bench.network import child_process
from bench.peer import ROOT, PeerAbsentError, python_of

Made = tuple[Callable[[], Any], int]
_CPU = "s of processor time"


def _worker(name: str) -> Any:
    import syft as sy

    return sy.VirtualWorker(id=f"growth_{name}", auto_add=False)


def _sharing(holders: int = 2) -> Callable[[Any], Any]:
    *owners, provider = (_worker(f"holder{number}") for number in range(holders + 1))
    return lambda value: value.fix_precision(base=2, precision_fractional=16).share(
        *owners, crypto_provider=provider
    )


def _sent(value: Any, worker: Any) -> Any:
    return value.send(worker)


@curve(
    "Elements, in one process",
    "elements",
    _CPU + " a call",
    "Above 32 MB the C library maps fresh memory for every result, and the system fills its pages with zeros: plain "
    "torch bends there just as pointers and copies do.",
)
def elements(is_tiny: bool) -> Iterator[Series]:
    from syft import serde

    bob, share = _worker("elements"), _sharing()

    def adding(size: int) -> Made:
        x, y = _sent(torch.randn(size), bob), _sent(torch.randn(size), bob)
        return lambda: x + y, max(1, 100_000 // size)

    def travelling(size: int) -> Made:
        x = torch.randn(size)
        return lambda: serde.deserialize(serde.serialize(x)), max(1, 100_000 // size)

    def multiplying(size: int) -> Made:
        x, y = share(torch.randn(size)), share(torch.randn(size))
        return lambda: (x + 0) * (y + 0), max(1, 10_000 // size)

    def comparing(size: int) -> Made:
        x = share(torch.randn(size))
        return lambda: torch.relu(x), max(1, 10_000 // size)

    def plain(size: int) -> Made:
        x, y = torch.randn(size), torch.randn(size)
        return lambda: x + y, max(1, 100_000 // size)

    sizes = powers(100, 10_000_000, is_tiny)
    yield follow(Series("plain torch x + y", 1, "one pass over memory"), sizes, plain)
    yield follow(Series("pointer + pointer", 1, "one pass over memory"), sizes, adding)
    yield follow(Series("serialize and back", 1, "one copy"), sizes, travelling)
    sizes = powers(100, 1_000_000, is_tiny)
    yield follow(Series("product of shares", 1, "each element is masked and opened"), sizes, multiplying)
    yield follow(Series("relu of shares", 1, "a tree of fixed depth for each element"), sizes, comparing)


def _mlp(*sizes: int) -> Any:
    torch.manual_seed(0)
    layers: list[nn.Module] = []
    for before, after in itertools.pairwise(sizes):
        layers += [nn.Linear(before, after), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


@curve("Batch, a step of SGD, MLP 64-32-10", "rows", _CPU + " a step")
def batch(is_tiny: bool) -> Iterator[Series]:
    bob, share = _worker("batch"), _sharing()

    def local(size: int) -> Made:
        model, x, y = _mlp(64, 32, 10), torch.randn(size, 64), torch.randint(10, (size,))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        return lambda: sgd_step(model, optimizer, x, y), 10

    def pointed(size: int) -> Made:
        model, x, y = _sent(_mlp(64, 32, 10), bob), torch.randn(size, 64), torch.randint(10, (size,))
        there, labels = _sent(x, bob), _sent(y, bob)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        return lambda: sgd_step(model, optimizer, there, labels), 10

    def shared(size: int) -> Made:
        model, x, y = share(_mlp(64, 32, 10)), share(torch.randn(size, 64)), share(torch.rand(size, 10))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

        def step() -> None:
            optimizer.zero_grad()
            F.mse_loss(model(x), y).backward()
            optimizer.step()

        return step, 1

    sizes = powers(1, 4096, is_tiny, 4)
    yield follow(Series("plain torch", 1, "rows of products"), sizes, local)
    yield follow(Series("on pointers", 1, "commands do not depend on the batch"), sizes, pointed)
    yield follow(Series("on shares, MSE", 1, "rounds do not depend on the batch"), sizes, shared)


@curve("Layers of 32, batch 16", "layers", _CPU + " a call")
def layers(is_tiny: bool) -> Iterator[Series]:
    bob, share = _worker("layers"), _sharing()

    def stepping(count: int) -> Made:
        model = _sent(_mlp(*[32] * (count + 1)), bob)
        x, y = _sent(torch.randn(16, 32), bob), _sent(torch.randint(10, (16,)), bob)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        return lambda: sgd_step(model, optimizer, x, y), 3

    def inferring(count: int) -> Made:
        model, x = share(_mlp(*[32] * (count + 1))), share(torch.randn(16, 32))

        def infer() -> None:
            with torch.no_grad():
                model(x)

        return infer, 1

    sizes = powers(1, 128, is_tiny, 2)
    yield follow(Series("SGD step on pointers", 1, "commands for each layer"), sizes, stepping)
    yield follow(Series("inference on shares", 1, "rounds for each layer"), sizes, inferring)


@curve(
    "Holders, all in one process, 1e4 elements",
    "holders",
    _CPU + " of all parties",
    "Each holder sends to each other one, so bytes in sum grow with the square; here all holders are in one process, and "
    "their work is in the time together.",
)
def holders(is_tiny: bool) -> Iterator[Series]:
    def of(run: Callable[[Any, Any], Any]) -> Callable[[int], Made]:
        def make(count: int) -> Made:
            share = _sharing(count)
            x, y = share(torch.randn(10_000)), share(torch.randn(10_000))
            return lambda: run(x, y), 1

        return make

    sizes = [2, 3] if is_tiny else [2, 3, 4, 5, 6, 7, 8]
    square = "n holders hear n - 1 others"
    yield follow(Series("product", 2, square), sizes, of(lambda x, y: (x + 0) * (y + 0)))
    yield follow(Series("relu", 2, square), sizes, of(lambda x, _: torch.relu(x)))


@curve("Network clients of one worker, 50 commands each", "clients", _CPU + ", all clients")
def network_clients(is_tiny: bool) -> Iterator[Series]:
    import syft as sy
    from syft.workers.network.client_worker import NetworkClientWorker

    commands = 50
    there = Series("the worker", 1, "each command costs the same")
    here = Series("the clients together", 1, "each command costs the same")
    for count in powers(1, 64, is_tiny, 2):
        with contextlib.ExitStack() as stack:
            child = stack.enter_context(child_process("serve"))
            address = json.loads(child.stdout.readline())[0]
            hook = sy.local_worker.hook
            clients = [
                stack.enter_context(NetworkClientWorker(hook, address, auto_add=False)) for _ in range(count)
            ]
            held = [_sent(torch.zeros(10), client) for client in clients]

            def run(held: list[Any] = held) -> None:
                for x in held:
                    for _ in range(commands - 1):
                        x = x + 1
                    x.get()

            def of_worker(pid: int = child.pid) -> float:
                return _cpu_seconds(pid)

            seconds, _ = cpu_of(run, 1, 5, of_worker)
            there.points.append((float(count), seconds, 0.0))
            seconds, memory = cpu_of(run, 1, 5)
            here.points.append((float(count), seconds, memory))
    yield there
    yield here


@curve(
    "Stored objects",
    "objects",
    _CPU + " a call",
    "All objects have a tag; ten have the one that is searched for. `storing` is the time of a single object while so "
    "many are there.",
)
def stored_objects(is_tiny: bool) -> Iterator[Series]:
    sizes = powers(100, 1_000_000, is_tiny)
    adding = Series("one add", 0, "a look into a table")
    getting = Series("send and get", 0, "a look into a table")
    finding = Series("search for a tag", 0, "a look into a table of tags")
    storing = Series("storing, each", 0, "an entry in a table")
    bob = _worker("stored")
    held: list[Any] = []
    x, y = _sent(torch.ones(3), bob), _sent(torch.ones(3), bob)
    plain: Any = torch.ones(3)
    for size in sizes:

        def fill(until: int = size) -> None:
            while len(held) < until:
                wanted = "#wanted" if len(held) < 10 else "#other"
                held.append(torch.zeros(1).tag(wanted).send(bob, garbage_collect_data=False))  # type: ignore[attr-defined]
                if len(held) % 1000 == 0:
                    held[-1000:] = [None] * 1000

        missing = size - len(held)
        spent, memory = _once(fill)
        storing.points.append((float(size), spent / missing, memory / missing * size))
        for series, run, calls in (
            (adding, lambda: x + y, 300),
            (getting, lambda: plain.send(bob).get(), 300),
            (finding, lambda: bob.search("#wanted"), 1),
        ):
            seconds, _ = cpu_of(run, calls)
            series.points.append((float(size), seconds, 0.0))
    yield from (adding, getting, finding, storing)


def _once(run: Callable[[], Any]) -> tuple[float, float]:
    import time

    from bench.memory import resident

    before, began = resident(), time.process_time()
    run()
    return time.process_time() - began, float(max(0, resident() - before))


@curve("Plan length", "operations", _CPU + " a call")
def plan_length(is_tiny: bool) -> Iterator[Series]:
    import syft as sy
    from syft import serde

    bob = _worker("plan")

    def program(length: int) -> Callable[[Any], Any]:
        def run(x: Any) -> Any:
            for _ in range(length):
                x = x + 1
            return x

        return run

    def built(length: int) -> Any:
        return sy.func2plan(args_shape=[(3,)])(program(length))

    def calling(length: int) -> Made:
        plan, x = built(length).send(bob), _sent(torch.ones(3), bob)
        return lambda: plan(x), max(1, 1000 // length)

    def travelling(length: int) -> Made:
        plan = built(length)
        return lambda: serde.deserialize(serde.serialize(plan)), max(1, 1000 // length)

    sizes = powers(10, 10_000, is_tiny)
    each = "each operation costs the same"
    yield follow(Series("build", 1, each), sizes, lambda length: (lambda: built(length), 1))
    yield follow(Series("call there", 1, each), sizes, calling)
    yield follow(Series("serialize and back", 1, each), sizes, travelling)


_RAY = """
import json, sys, time, torch
from torch import nn
from torch.utils.data import TensorDataset
import syft as sy
from syft.federated.engines import RayEngine
from syft.federated.trainer import Trainer
sy.TorchHook(torch)
torch.set_num_threads(1)
engine = RayEngine()
for count in json.loads(sys.argv[1]):
    x, y = torch.randn(count, 6, 64), torch.randint(0, 10, (count, 6))
    clients = {f"client {i}": TensorDataset(x[i], y[i]) for i in range(count)}
    trainer = Trainer(nn.Linear(64, 10), nn.CrossEntropyLoss(), clients, engine=engine, batch_size=6)
    trainer.fit(1)
    began = time.process_time()
    trainer.fit(2)
    print(json.dumps([count, time.process_time() - began]), flush=True)
engine.close()
"""


@curve(
    "Federated clients, one round, 6 rows each",
    "clients",
    _CPU + " a round",
    "Of the Ray engine this is the processor time of the process that leads, without its actors. Threads take more than "
    "serial: a client of six rows is some hundred small operations, and threads hand Python's lock to and fro at each. "
    "They are for clients that wait, and for large models.",
)
def federated_clients(is_tiny: bool) -> Iterator[Series]:
    from syft.federated.trainer import Trainer

    def with_engine(engine: str) -> Callable[[int], Made]:
        def make(count: int) -> Made:
            x, y = torch.randn(count, 6, 64), torch.randint(0, 10, (count, 6))
            clients = {f"client {i}": TensorDataset(x[i], y[i]) for i in range(count)}
            trainer = Trainer(nn.Linear(64, 10), nn.CrossEntropyLoss(), clients, engine=engine, batch_size=6)
            return lambda: trainer.fit(trainer.round + 1), 1

        return make

    sizes = powers(10, 10_000, is_tiny)
    for engine in ("serial", "threads"):
        yield follow(Series(engine, 1, "each client trains"), sizes, with_engine(engine))
    ray = Series("ray, the leading process", 1, "each client is sent and heard")
    with contextlib.suppress(PeerAbsentError):
        environment = {
            "PYTHONPATH": str(ROOT / "src"),
            "OMP_NUM_THREADS": "1",
            "RAY_USAGE_STATS_ENABLED": "0",
        }
        command = [python_of("ray"), "-c", _RAY, json.dumps(sizes)]
        said = _said(command, os.environ | environment, 400)
        lines = [json.loads(line) for line in said.splitlines() if line.startswith(b"[")]
        ray.points += [(float(count), seconds, 0.0) for count, seconds in lines]
    if ray.points:
        yield ray


def _said(command: list[str], environment: dict[str, str], seconds: float) -> bytes:
    """What was printed, be it all or as much as there was time for."""
    try:
        return subprocess.run(
            command, capture_output=True, timeout=seconds, check=False, env=environment
        ).stdout
    except subprocess.TimeoutExpired as stopped:
        return stopped.stdout or b""
