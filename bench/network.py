"""Remote execution between two processes, against torch RPC and the websockets library, all in one run.

The other process serves a worker with the permissions every network worker has, and echoes bytes over websockets.
torch RPC has two processes of its own, which are stopped while others are timed: its threads look for work without a
pause, and would take the cores from whoever is.
"""

from __future__ import annotations

import contextlib
import copy
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed.rpc as rpc
from torch.nn import functional as F

from bench.harness import Figure, TimedElsewhere, benchmark, side_by_side, time_run
from bench.mlp import mlp, sgd_step

ADDS = 1000


# -- the other process -----------------------------------------------------------------------------------


def _serve() -> None:
    import syft as sy
    from syft.workers.network.server_worker import NetworkServerWorker

    worker = NetworkServerWorker(
        sy.TorchHook(torch), ["tcp://127.0.0.1:0", "ws://127.0.0.1:0"], id="bench_network"
    ).start(block=False)
    from websockets.sync.server import serve

    with serve(_echo, "127.0.0.1", 0, compression=None, max_size=None) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        print(json.dumps([*worker.addresses, server.socket.getsockname()[1]]), flush=True)
        sys.stdin.read()
    os._exit(0)


def _echo(connection: Any) -> None:
    for message in connection:
        connection.send(message)


# -- torch RPC -------------------------------------------------------------------------------------------


def _take_part(rank: int, port: int) -> None:
    """Of two processes the second waits; the first is told what to run, and how often, and says how long it took."""
    options = rpc.TensorPipeRpcBackendOptions(init_method=f"tcp://127.0.0.1:{port}", num_worker_threads=4)
    rpc.init_rpc(f"bench{rank}", rank=rank, world_size=2, rpc_backend_options=options)
    tensor = torch.randn(1_000_000)
    jobs: dict[str, Any] = {
        "echo": lambda: rpc.rpc_sync("bench1", give_back, args=(tensor,)),
        "chain": _rpc_chain if rank == 0 else None,
    }
    print("ready", flush=True)
    for line in sys.stdin:
        job, calls = line.split()
        print(time_run(jobs[job], int(calls)), flush=True)
    os._exit(0)


def zeros_there(count: int) -> Any:
    """What torch RPC calls in the other process; so are the next two."""
    return torch.zeros(count)


def add_there(held: Any, number: int) -> Any:
    return held.local_value() + number


def give_back(tensor: Any) -> Any:
    return tensor


def _rpc_chain() -> None:
    x = rpc.remote("bench1", zeros_there, args=(10,))
    for _ in range(ADDS):
        x = rpc.remote("bench1", add_there, args=(x, 1))
    x.to_here()


class _Rpc:
    """The two processes, stopped but when they are timed."""

    def __init__(self, processes: list[Any]) -> None:
        self._processes = processes
        for process in processes:
            process.stdout.readline()
        self._signal(signal.SIGSTOP)

    def _signal(self, number: int) -> None:
        for process in self._processes:
            process.send_signal(number)

    def job(self, name: str) -> TimedElsewhere:
        return TimedElsewhere(lambda calls: self._timed(name, calls))

    def _timed(self, name: str, calls: int) -> float:
        first = self._processes[0]
        self._signal(signal.SIGCONT)
        try:
            first.stdin.write(f"{name} {calls}\n".encode())
            first.stdin.flush()
            return float(first.stdout.readline())
        finally:
            self._signal(signal.SIGSTOP)


# -- this process ----------------------------------------------------------------------------------------


@contextlib.contextmanager
def _child(*words: str) -> Iterator[Any]:
    child = subprocess.Popen(
        [sys.executable, "-m", "bench.network", *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    try:
        yield child
    finally:
        child.kill()
        child.communicate()


@contextlib.contextmanager
def _other() -> Iterator[tuple[Any, Any, Any, _Rpc | None]]:
    """(client over tcp, client over ws, websocket echo, torch RPC if it is in this build of torch)."""
    from websockets.sync.client import connect

    import syft as sy
    from syft.workers.network.client_worker import NetworkClientWorker

    with contextlib.ExitStack() as stack:
        child = stack.enter_context(_child("serve"))
        tcp_address, ws_address, echo_port = json.loads(child.stdout.readline())
        torch_rpc = None
        if rpc.is_available():
            with socket.create_server(("127.0.0.1", 0)) as probe:
                port = str(probe.getsockname()[1])
            torch_rpc = _Rpc([stack.enter_context(_child("rpc", rank, port)) for rank in "01"])
        hook = sy.local_worker.hook
        tcp = stack.enter_context(NetworkClientWorker(hook, tcp_address, auto_add=False))
        ws = stack.enter_context(NetworkClientWorker(hook, ws_address, auto_add=False))
        echo = stack.enter_context(connect(f"ws://127.0.0.1:{echo_port}", compression=None, max_size=None))
        yield tcp, ws, echo, torch_rpc


def _chain(client: Any) -> Any:
    held = torch.zeros(10).send(client)  # type: ignore[attr-defined]

    def run() -> None:
        x = held
        for _ in range(ADDS):
            x = x + 1
        x.get()

    return run


@benchmark
def network() -> list[Figure]:
    with _other() as (tcp, ws, echo, torch_rpc):
        figures = [
            _round_trip(tcp),
            *_adds(tcp, torch_rpc),
            *_send_and_get(tcp, ws, echo, torch_rpc),
            _sgd_step(tcp),
            _training_plan_step(tcp),
            *_plan_call(tcp),
            _bert_forward(tcp),
        ]
        if torch_rpc is None:
            print("torch RPC is not in this build of torch")
        return figures


def _round_trip(client: Any) -> Figure:
    (ours,) = side_by_side(client.sync)
    return Figure("round trip, tcp", ours, None, "", "", None)


def _adds(client: Any, torch_rpc: _Rpc | None) -> list[Figure]:
    runs = [_chain(client), *([torch_rpc.job("chain")] if torch_rpc is not None else [])]
    ours, *others = side_by_side(*runs, rounds=7)
    figures = [Figure("1000 chained pointer adds, tcp", ours, None, "", "<= 30 ms", ours <= 0.03)]
    if others:
        (other,) = others
        figures.append(Figure("  the same", ours, other, "torch RPC", ">= 4x faster", other >= 4 * ours))
    return figures


def _send_and_get(tcp: Any, ws: Any, echo: Any, torch_rpc: _Rpc | None) -> list[Figure]:
    x = torch.randn(1_000_000)
    data = x.numpy().tobytes()

    def raw() -> None:
        echo.send(data)
        echo.recv()

    over_tcp, over_ws, raw_ws, *others = side_by_side(
        lambda: x.send(tcp).get(),  # type: ignore[attr-defined]
        lambda: x.send(ws).get(),  # type: ignore[attr-defined]
        raw,
        *([torch_rpc.job("echo")] if torch_rpc is not None else []),
    )
    figures = [
        Figure(
            "send().get(), 1e6 floats, ws",
            over_ws,
            raw_ws,
            "websockets echo",
            "<= 1.3x",
            over_ws <= 1.3 * raw_ws,
        )
    ]
    name, target = "send().get(), 1e6 floats, tcp", "<= 1.5x"
    figures += [
        Figure(name, over_tcp, other, "torch RPC", target, over_tcp <= 1.5 * other) for other in others
    ]
    return figures


def _sgd_step(client: Any) -> Figure:
    local = mlp()
    remote = copy.deepcopy(local).send(client)  # type: ignore[operator]
    data, target = torch.randn(64, 784), torch.randint(10, (64,))
    there, wanted = data.send(client), target.send(client)  # type: ignore[attr-defined]
    local_sgd = torch.optim.SGD(local.parameters(), lr=0.1)
    remote_sgd = torch.optim.SGD(remote.parameters(), lr=0.1)

    def run() -> None:
        for _ in range(10):
            sgd_step(remote, remote_sgd, there, wanted)
        client.sync()

    plain, ours = side_by_side(lambda: sgd_step(local, local_sgd, data, target), run, rounds=9)
    return Figure(
        "SGD step over tcp, op by op", ours / 10, plain, "local step", "<= 2.2 ms", ours / 10 <= 2.2e-3
    )


def _training_plan_step(client: Any) -> Figure:
    import syft as sy

    local, planned = mlp(), mlp()
    sgd, of_plan = (torch.optim.SGD(model.parameters(), lr=0.1) for model in (local, planned))
    data, target = torch.randn(64, 784), torch.randint(10, (64,))
    there, wanted = data.send(client), target.send(client)  # type: ignore[attr-defined]
    kinds = [torch.float32, torch.int64]
    plan = sy.Plan.training(planned, F.cross_entropy, of_plan, [(-1, 784), (-1,)], kinds).send(client)

    def run() -> None:
        for _ in range(10):
            plan(there, wanted)
        client.sync()

    plain, ours = side_by_side(lambda: sgd_step(local, sgd, data, target), run, rounds=9)
    return Figure(
        "training plan step over tcp", ours / 10, plain, "local step", "<= 1.2 ms", ours / 10 <= 1.2e-3
    )


def _plan_call(client: Any) -> list[Figure]:
    """The target is the local call and one and a half round trips, all of it taken in turns."""
    import syft as sy

    torch.manual_seed(0)
    layers = [torch.nn.Linear(784, 128), torch.nn.ReLU(), torch.nn.Linear(128, 64), torch.nn.ReLU()]
    model = torch.nn.Sequential(*layers, torch.nn.Linear(64, 10))
    plan = sy.func2plan(args_shape=[(-1, 784)])(model).send(client)
    data = torch.randn(64, 784)
    there = data.send(client)  # type: ignore[attr-defined]
    with torch.no_grad():
        local, round_trip, ours = side_by_side(lambda: model(data), client.sync, lambda: plan(there).get())
    wanted = local + 1.5 * round_trip
    return [
        Figure("plan call and get over tcp", ours, wanted, "local + 1.5 rtt", "<= 1.2x", ours <= 1.2 * wanted)
    ]


class _Block(torch.nn.Module):
    """One layer of BERT-base, written out: 768 wide, 12 heads."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value, self.out = (torch.nn.Linear(768, 768) for _ in range(4))
        self.wide, self.narrow = torch.nn.Linear(768, 3072), torch.nn.Linear(3072, 768)
        self.first, self.second = torch.nn.LayerNorm(768), torch.nn.LayerNorm(768)

    def forward(self, x: Any) -> Any:
        heads = [part(x).view(1, -1, 12, 64).transpose(1, 2) for part in (self.query, self.key, self.value)]
        scores = heads[0] @ heads[1].transpose(-2, -1) / 8.0
        mixed = (scores.softmax(-1) @ heads[2]).transpose(1, 2).reshape(1, -1, 768)
        x = self.first(x + self.out(mixed))
        return self.second(x + self.narrow(F.gelu(self.wide(x))))


def _bert_forward(client: Any) -> Figure:
    """Twelve layers of the shape of BERT-base on 128 tokens, op by op; all layers have one set of weights."""
    torch.manual_seed(0)
    local = _Block().eval()
    remote = copy.deepcopy(local).send(client)  # type: ignore[operator]
    data = torch.randn(1, 128, 768)
    there = data.send(client)  # type: ignore[attr-defined]

    def run(block: Any, x: Any) -> Any:
        for _ in range(12):
            x = block(x)
        return x

    with torch.no_grad():
        plain, ours = side_by_side(lambda: run(local, data), lambda: run(remote, there).get(), rounds=5)
    name = "BERT-base-shaped forward over tcp, op by op"
    return Figure(name, ours, plain, "local forward", "<= 1.3x", ours <= 1.3 * plain)


if __name__ == "__main__":
    torch.set_num_threads(1)
    if sys.argv[1] == "serve":
        _serve()
    else:
        _take_part(int(sys.argv[2]), int(sys.argv[3]))
