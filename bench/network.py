"""Remote execution between two processes, against torch RPC and the websockets library, all in one run.

The other process serves a worker with the permissions every network worker has, and echoes bytes over websockets.
torch RPC has two processes of its own, which are stopped while others are timed (`bench.peer`): its threads look for work
without a pause, and would take the cores from whoever is.
"""

from __future__ import annotations

import contextlib
import copy
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from torch.nn import functional as F

from bench.harness import Figure, benchmark, beside, side_by_side
from bench.mlp import mlp, sgd_step
from bench.peer import Peers
from bench.plan_call_floor import barely, called_model, safely, serve_barely, serve_safely

ADDS, RPC = 1000, "torch RPC"


# -- the other process -----------------------------------------------------------------------------------


def _serve() -> None:
    import syft as sy
    from syft.workers.network.server_worker import NetworkServerWorker

    worker = NetworkServerWorker(
        sy.TorchHook(torch), ["tcp://127.0.0.1:0", "ws://127.0.0.1:0"], id="bench_network"
    ).start(block=False)
    from websockets.sync.server import serve

    floors = [socket.create_server(("127.0.0.1", 0)) for _ in range(3)]
    for listener, called in zip(
        floors, (serve_barely, partial(serve_barely, looks=True), serve_safely), strict=True
    ):
        threading.Thread(target=called, args=(listener,), daemon=True).start()
    with serve(_echo, "127.0.0.1", 0, compression=None, max_size=None) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        ports = [each.getsockname()[1] for each in (server.socket, *floors)]
        print(json.dumps([*worker.addresses, *ports]), flush=True)
        sys.stdin.read()
    os._exit(0)


def _echo(connection: Any) -> None:
    for message in connection:
        connection.send(message)


# -- this process ----------------------------------------------------------------------------------------


@contextlib.contextmanager
def child_process(*words: str) -> Iterator[Any]:
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
def _other() -> Iterator[tuple[Any, Any, Any, Any, Peers]]:
    """(client over tcp, client over ws, websocket echo, sockets to what is no worker, peers)."""
    from websockets.sync.client import connect

    import syft as sy
    from syft.workers.network.client_worker import NetworkClientWorker

    with contextlib.ExitStack() as stack:
        child = stack.enter_context(child_process("serve"))
        tcp_address, ws_address, echo_port, *floor_ports = json.loads(child.stdout.readline())
        peers = Peers(stack)
        peers.start(RPC, "bench.peers.torch_rpc")
        hook = sy.local_worker.hook
        tcp = stack.enter_context(NetworkClientWorker(hook, tcp_address, auto_add=False))
        ws = stack.enter_context(NetworkClientWorker(hook, ws_address, auto_add=False))
        echo = stack.enter_context(connect(f"ws://127.0.0.1:{echo_port}", compression=None, max_size=None))
        floors = [stack.enter_context(socket.create_connection(("127.0.0.1", port))) for port in floor_ports]
        yield tcp, ws, echo, floors, peers


def _jobs(peers: Peers, name: str) -> dict[str, Any]:
    return {label: peer.job(name) for label, peer in peers.there.items()}


def _chain(client: Any) -> Any:
    held = torch.zeros(10).send(client)  # type: ignore[attr-defined]

    def run() -> None:
        x = held
        for _ in range(ADDS):
            x = x + 1
        x.get()

    return run


_ROWS = ("chain_1000", "sgd_tcp", "plan_step_tcp", "plan_call_tcp", "send_get_tcp", "send_get_ws")


@benchmark(rows=_ROWS, rank=1, limit=180)
def network() -> Iterator[Figure]:
    with _other() as (tcp, ws, echo, floors, peers):
        yield _round_trip(tcp)
        yield _adds(tcp, peers)
        yield from _sgd_step(tcp, peers)
        yield _training_plan_step(tcp, peers)
        yield from _plan_call(tcp, floors)
        yield from _send_and_get(tcp, ws, echo, peers)
        yield _bert_forward(tcp)


@benchmark(rank=6)
def network_beside_ray() -> Iterator[Figure]:
    """Apart, because Ray keeps processes busy that cannot be stopped while others are timed."""
    with _other() as (tcp, _, _, _, peers):
        peers.start("Ray", "bench.peers.ray_calls", name="ray")
        if why := peers.absent.get("Ray"):
            yield Figure("1000 chained adds, tcp, beside Ray", None, absent={"Ray": why})
            return
        ours, other = side_by_side(_chain(tcp), peers.there["Ray"].job(f"chain_{ADDS}"), rounds=7)
        yield Figure("1000 chained adds, tcp, beside Ray", ours, other, "Ray, one actor")


def _round_trip(client: Any) -> Figure:
    (ours,) = side_by_side(client.sync)
    return Figure("round trip, tcp", ours)


def _adds(client: Any, peers: Peers) -> Figure:
    jobs = _jobs(peers, "chain")
    ours, *others = side_by_side(_chain(client), *jobs.values(), rounds=9)
    return beside("chain_1000", ours, dict(zip(jobs, others, strict=True)), absent=peers.absent)


def _send_and_get(tcp: Any, ws: Any, echo: Any, peers: Peers) -> Iterator[Figure]:
    x = torch.randn(1_000_000)
    data = x.numpy().tobytes()

    def raw() -> None:
        echo.send(data)
        echo.recv()

    jobs = _jobs(peers, "echo")
    over_tcp, over_ws, raw_ws, *others = side_by_side(
        lambda: x.send(tcp).get(),  # type: ignore[attr-defined]
        lambda: x.send(ws).get(),  # type: ignore[attr-defined]
        raw,
        *jobs.values(),
    )
    yield beside("send_get_tcp", over_tcp, dict(zip(jobs, others, strict=True)), absent=peers.absent)
    yield beside("send_get_ws", over_ws, {"websockets echo": raw_ws})


def _autograd(peers: Peers) -> dict[str, Any]:
    return dict(zip(["torch dist_autograd"], _jobs(peers, "step").values(), strict=False))


def _sgd_step(client: Any, peers: Peers) -> Iterator[Figure]:
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

    def run_unlearnt() -> None:
        client.learns_graphs = False
        try:
            run()
        finally:
            client.learns_graphs = True

    jobs = _autograd(peers)
    plain, ours, unlearnt, *others = side_by_side(
        lambda: sgd_step(local, local_sgd, data, target), run, run_unlearnt, *jobs.values(), rounds=9
    )
    known = {"local step": plain, **dict(zip(jobs, others, strict=True))}
    yield beside("sgd_tcp", ours / 10, known, absent=peers.absent)
    yield Figure("SGD step over tcp, learns_graphs = False", unlearnt / 10, plain, "local step")


def _training_plan_step(client: Any, peers: Peers) -> Figure:
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

    jobs = _autograd(peers)
    plain, ours, *others = side_by_side(
        lambda: sgd_step(local, sgd, data, target), run, *jobs.values(), rounds=9
    )
    known = {"local step": plain, **dict(zip(jobs, others, strict=True))}
    return beside("plan_step_tcp", ours / 10, known, absent=peers.absent)


def _plan_call(client: Any, floors: list[socket.socket]) -> Iterator[Figure]:
    """The target is the local call and one and a half round trips, all of it taken in turns.

    NB: a model that is called in a loop is in the caches, and its core awake. Whoever waits for a call has neither:
    the same call of what is no worker (`bench.plan_call_floor`) shows how much of the time is that.
    """
    import syft as sy

    model, data = called_model()
    plan = sy.func2plan(args_shape=[(-1, 784)])(model).send(client)
    there = data.send(client)  # type: ignore[attr-defined]
    sleeping, looking, safe = floors
    with torch.no_grad():
        local, round_trip, ours, *least = side_by_side(
            lambda: model(data),
            client.sync,
            lambda: plan(there).get(),
            barely(sleeping, False),
            barely(looking, True),
            safely(safe),
        )
    figures = [local, round_trip, *least]
    names = ("local us", "round trip us", "bare socket us", "bare socket that looks us", "safe call us")
    details = {name: float(figure) * 1e6 for name, figure in zip(names, figures, strict=True)}
    what = "plan call and get, 3-layer MLP, over tcp"
    yield Figure(what, ours, least[0], "a bare socket and plain torch")
    yield Figure(what, ours, least[1], "the same, looking before it sleeps")
    yield Figure(what, ours, least[2], "the least of a safe call, in Python")
    yield beside(
        "plan_call_tcp",
        ours,
        {"local + 1.5 round trips": float(local) + 1.5 * float(round_trip)},
        details=details,
    )


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
    _serve()
