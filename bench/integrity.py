"""What MACs cost: `share(protocol="spdz2k")` beside the default, each step ending with everybody's work done.

In lockstep the time is processor time of both holders and the provider; in three processes it is wall time. The two
protocols take turns in one run. Rounds and bytes (sent by a holder; dealt by the provider) are counted, and printed
below each figure.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import torch

from bench.harness import Figure, Timing, benchmark
from bench.mpc_network import trio

_REPEATS = 5
_AIM = 3.0
PROTOCOLS = (None, "spdz2k")


def _model() -> Any:
    torch.manual_seed(0)
    layers = (torch.nn.Linear(784, 128), torch.nn.ReLU(), torch.nn.Linear(128, 128), torch.nn.ReLU())
    return torch.nn.Sequential(*layers, torch.nn.Linear(128, 10))


def _cases(holders: Any, provider: Any) -> Iterator[tuple[str, list[Callable[[], Any]]]]:
    """Each case twice: under the default protocol, and with MACs."""

    def shared(*shape: int) -> list[Any]:
        value: Any = torch.randn(*shape)
        fixed = [value.fix_precision(base=2, precision_fractional=16) for _ in PROTOCOLS]
        return [
            one.share(*holders, crypto_provider=provider, protocol=protocol)
            for one, protocol in zip(fixed, PROTOCOLS, strict=True)
        ]

    def each(function: Callable[[Any], Any], values: list[Any]) -> list[Callable[[], Any]]:
        return [lambda value=value: function(value) for value in values]  # type: ignore[misc]

    vectors = shared(100_000)
    # NB: a fresh operand each time; the default opens a second use of the same one no more
    yield "mul, 1e5", each(lambda x: x * (x + 1), vectors)
    yield "matmul, 256", each(lambda x: x @ (x + 1), shared(256, 256))
    yield "relu, 1e4", each(torch.relu, shared(10_000))
    models = []
    for protocol in PROTOCOLS:
        model = _model()
        model.fix_precision(base=2, precision_fractional=16)
        models.append(model.share(*holders, crypto_provider=provider, protocol=protocol))
    batch = shared(64, 784)

    def infer(model: Any, data: Any) -> Any:
        with torch.no_grad():
            return model(data)

    pairs = list(zip(models, batch, strict=True))
    yield "MLP 784-128-128-10, batch 64", each(lambda pair: infer(*pair), pairs)
    yield "get, 1e5", each(lambda x: (x + 1).get(), vectors)


def _figure(
    name: str, runs: list[Callable[[], Any]], group: Any, wait: Callable[[], None], clock: Any
) -> Figure:
    times: list[list[float]] = [[] for _ in runs]
    counts = []
    for run in runs:
        run()
        wait()
        group.reset_costs()
        run()
        wait()
        online, offline = group.online, group.offline
        counts.append((online.rounds, max(online.bytes_sent) / 1e6, offline.bytes / 1e6))
    for _ in range(_REPEATS):
        for run, taken in zip(runs, times, strict=True):
            started = clock()
            run()
            wait()
            taken.append(clock() - started)
    default, macs = (Timing.of(taken) for taken in times)
    for protocol, (rounds, sent, dealt) in zip(PROTOCOLS, counts, strict=True):
        print(
            f"    {name}, {protocol or 'default'}: {rounds} rounds, {sent:.3g} MB sent, {dealt:.3g} MB dealt"
        )
    return Figure(name, macs, default, "the default protocol", f"<= {_AIM:g}x", macs <= _AIM * default)


@benchmark
def integrity_in_process() -> list[Figure]:
    import syft as sy
    from syft.mpc.group import Group
    from syft.mpc.kernels import keep_freed_memory

    keep_freed_memory()
    hook = sy.TorchHook(torch)
    *holders, provider = (sy.VirtualWorker(hook, id=name) for name in ("mac-alice", "mac-bob", "mac-carol"))
    group = Group.of(holders, provider)
    return [_figure(n, runs, group, lambda: None, time.process_time) for n, runs in _cases(holders, provider)]


@benchmark
def integrity_in_three_processes() -> list[Figure]:
    from syft.mpc.group import Group

    with trio("unix") as parties:
        *holders, provider = parties.members
        group = Group.of(holders, provider)
        cases = _cases(holders, provider)
        return [_figure(f"{n} (unix)", runs, group, parties.wait, time.perf_counter) for n, runs in cases]
