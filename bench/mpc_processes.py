"""Secrets among two holders and a provider in three processes, beside CrypTen (TTP) and SPU (SEMI2K), all over tcp.

A time ends when every party has done its part, the provider's dealing included, as theirs is. Beside it stand what was
counted, the largest error against plain torch, and `online`: the time of the holders with what was dealt before.
Weights and data are secret everywhere, one thread in each process, 16 fractional bits.
"""

from __future__ import annotations

import contextlib
import itertools
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from bench.harness import Figure, Timing, benchmark, beside, by_mode, mode, side_by_side
from bench.mpc_network import Trio, trio
from bench.peer import PeerAbsentError, Peers
from bench.peers.sizes import FUNCTIONS, POSITIVE, size_of

#: label, module, its word, environment
PEERS = (
    ("CrypTen TTP", "bench.peers.crypten_parties", "TTP", "crypten"),
    ("SPU SEMI2K", "bench.peers.spu_parties", "SEMI2K", "spu"),
)
MP_SPDZ = "not in the package registry"


def mlp(*sizes: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for before, after in itertools.pairwise(sizes):
        layers += [nn.Linear(before, after), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def cnn() -> nn.Sequential:
    first = nn.Conv2d(1, 20, 5), nn.ReLU(), nn.MaxPool2d(2)
    second = nn.Conv2d(20, 50, 5), nn.ReLU(), nn.MaxPool2d(2)
    return nn.Sequential(*first, *second, nn.Flatten(), nn.Linear(800, 500), nn.ReLU(), nn.Linear(500, 10))


# NOTE [Fresh operands]
# Ours remembers the masked form of an operand, so that a second product with it opens nothing. Weights profit from that
# in every program. Data does not, so each call has new data here: `x + 0` is a new secret, at the cost of a sum.


# NOTE [What encoding costs]
# A number with 16 fractional bits is off by up to 2^-17, before any protocol begins. 1 / x is as steep as 100 at 0.1, so
# that its result is off by up to 7.6e-4 whoever computes it. What the function itself costs is its error on the number
# that is encoded, which stands beside the other; CrypTen's beside it is on what it encodes.


def plain_input(case: str) -> torch.Tensor:
    """What a case of single elements is about, the same each time."""
    size = size_of(case, mode() == "tiny")
    torch.manual_seed(0)
    return torch.randn(size) if case not in POSITIVE else torch.rand(size) * 99.9 + 0.1


def prepared(parties: Any, case: str) -> tuple[Callable[[], Any], Any]:
    """What to run, and what comes of it in plain torch (None for a step of training)."""
    size = size_of(case, mode() == "tiny")
    torch.manual_seed(0)
    if case in ("lt_1e6", "relu_1e6", "mul_1e6") or case.endswith("_1e5"):
        plain = plain_input(case)
        other = torch.randn(size)
        x, y, name = parties.share(plain), parties.share(other), case.rpartition("_")[0]
        if name == "lt":
            return lambda: x < 0, (plain < 0).float()
        if name == "mul":
            return lambda: (x + 0) * (y + 0), plain * other
        return lambda: getattr(torch, name)(x), getattr(torch, name)(plain)
    if case.startswith("matmul"):
        plain, other = torch.randn(size, size), torch.randn(size, size)
        x, y = parties.share(plain), parties.share(other)
        return lambda: (x + 0) @ (y + 0), plain @ other
    if case == "softmax":
        plain = torch.randn(size, 10)
        x = parties.share(plain)
        return lambda: torch.softmax(x, 1), plain.softmax(1)
    if case == "max_pool":
        plain = torch.randn(1, 16, size, size)
        x = parties.share(plain)
        return lambda: F.max_pool2d(x, 2), F.max_pool2d(plain, 2)
    if case == "conv":
        plain, other = torch.randn(1, 64, size, size), torch.randn(64, 64, 3, 3) / 24
        x, y = parties.share(plain), parties.share(other)
        return lambda: F.conv2d(x + 0, y + 0, padding=1), F.conv2d(plain, other, padding=1)
    if case.startswith("sgd"):
        return _training(parties, case, size), None
    shape = (size, 1, 28, 28) if case.startswith("cnn") else (size, 784)
    model = cnn() if case.startswith("cnn") else mlp(784, 128, 128, 10)
    plain = torch.randn(*shape)
    expected = model(plain).detach()
    _share_model(parties, model)
    x = parties.share(plain)

    def infer() -> Any:
        with torch.no_grad():
            return model(x + 0)

    return infer, expected


def _share_model(parties: Any, model: Any) -> None:
    *holders, provider = parties.members
    model.fix_precision(base=2, precision_fractional=16).share(*holders, crypto_provider=provider)


def _training(parties: Any, case: str, size: int) -> Callable[[], Any]:
    model = mlp(784, 128, 10)
    data = parties.share(torch.randn(size, 784))
    target = parties.share(F.one_hot(torch.randint(10, (size,)), 10).float())
    _share_model(parties, model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    loss_of = F.mse_loss if case == "sgd_mse" else F.cross_entropy

    def step() -> None:
        optimizer.zero_grad()
        loss_of(model(data + 0), target).backward()
        optimizer.step()

    return step


def _counted(parties: Trio, run: Callable[[], Any], expected: Any, case: str) -> dict[str, float]:
    """Rounds, bytes and the error of a third call: the first finds out what a program takes, the second reuses it."""
    from syft.mpc.group import Group

    *holders, provider = parties.members
    group = Group.of(holders, provider)
    began = time.perf_counter()
    run()
    parties.wait()
    first = time.perf_counter() - began
    run()
    parties.wait()
    group.reset_costs()
    before = parties.cpu_seconds()
    result = run()
    parties.wait()
    spent = [after - one for one, after in zip(before, parties.cpu_seconds(), strict=True)]
    online, offline = group.online, group.offline
    exchanged = sum(online.bytes_sent[:2])  # what one holder sends the other one receives
    found: dict[str, float] = {
        "rounds": online.rounds,
        "MB sent and received": exchanged / 1e6,
        "MB dealt": offline.bytes / 1e6,
        "provider ms": offline.seconds * 1e3,
        "processor ms of the slower holder": max(spent[:2]) * 1e3,
        "first call ms": first * 1e3,
    }
    if case.endswith("_1e6"):
        found["bytes an element"] = exchanged / size_of(case, mode() == "tiny")
    if expected is not None:
        decoded = result.get().float_precision()
        found["error"] = float((decoded - expected).abs().max())
        if case in FUNCTIONS:
            # NOTE [What encoding costs]
            held = parties.share(plain_input(case)).get().float_precision().double()
            exact = getattr(torch, case.rpartition("_")[0])(held)
            found["error on the encoded input"] = float((decoded - exact).abs().max())
    return found


def _online(parties: Trio, run: Callable[[], Any]) -> float:
    """Seconds of a call whose correlations were dealt, and had arrived, before."""
    from syft.mpc.group import Group
    from syft.mpc.taken import noting_taken

    *holders, provider = parties.members
    driver: Any = Group.of(holders, provider).driver
    with noting_taken() as taken:
        run()
    parties.wait()
    times = []
    for _ in range(by_mode(5, 3, 1)):
        driver.provider.provide_again(taken)
        parties.wait()
        began = time.perf_counter()
        run()
        parties.wait()
        times.append(time.perf_counter() - began)
    return statistics.median(times)


def _row(parties: Trio, peers: Peers, case: str) -> Figure:
    run, expected = prepared(parties, case)
    details = _counted(parties, run, expected, case)
    absent = {**peers.absent, "MP-SPDZ": MP_SPDZ}

    def ours() -> None:
        run()
        parties.wait()

    contestants: dict[str, Any] = {}
    for label, peer in list(peers.there.items()):
        try:
            found = peer.ask(case, 0)
        except PeerAbsentError as why:
            absent[label] = f"failed: {why}"
            continue
        contestants[label] = peer.job(case)
        if label.startswith("CrypTen") and "error" in found:
            details["error of CrypTen"] = found["error"]
            if "error on the encoded input" in found:
                details["error of CrypTen on the encoded input"] = found["error on the encoded input"]
    while True:
        try:
            mine, *theirs = side_by_side(
                ours, *contestants.values(), rounds=9, seconds=by_mode(15.0, 5.0, 1.0)
            )
            break
        except PeerAbsentError as why:
            label = next(name for name, job in contestants.items() if job.peer is why.peer)
            absent[label] = f"failed: {why}"
            del contestants[label]
    details["online ms"] = _online(parties, run) * 1e3
    others: dict[str, float] = dict(zip(contestants, theirs, strict=True))
    assert isinstance(mine, Timing)
    return beside(case, mine, others, absent=absent, details=details)


def measured(*cases: str) -> Iterator[Figure]:
    tiny = ["tiny"] if mode() == "tiny" else []
    with contextlib.ExitStack() as stack:
        parties = stack.enter_context(trio("tcp"))
        peers = Peers(stack)
        for label, module, word, name in PEERS:
            peers.start(label, module, word, *tiny, name=name)
        for case in cases:
            yield _row(parties, peers, case)


_PRODUCTS = ("relu_1e6", "mul_1e6", "matmul_512", "lt_1e6", "matmul_1024")
_MODELS = ("mlp_128", "cnn_1", "sgd_mse", "sgd_ce")
_FUNCTIONS = ("softmax", "exp_1e5", "sigmoid_1e5")
_MORE = ("max_pool", "conv", "tanh_1e5", "reciprocal_1e5", "sqrt_1e5", "log_1e5")


@benchmark(rows=_MODELS, rank=1, limit=150)
def mpc_processes_models() -> Iterator[Figure]:
    yield from measured(*_MODELS)


@benchmark(rows=_PRODUCTS, rank=1, limit=180)
def mpc_processes_products() -> Iterator[Figure]:
    yield from measured(*_PRODUCTS)


@benchmark(rows=_FUNCTIONS, rank=2, limit=120)
def mpc_processes_functions() -> Iterator[Figure]:
    yield from measured(*_FUNCTIONS)


@benchmark(rows=_MORE, rank=4, limit=180)
def mpc_processes_more() -> Iterator[Figure]:
    yield from measured(*_MORE)


@benchmark(rows=("cnn_128",), rank=5, limit=180)
def mpc_processes_large() -> Iterator[Figure]:
    """Each of theirs takes ten seconds a call."""
    yield from measured("cnn_128")
