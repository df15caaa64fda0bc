"""CrypTen: two parties and its trusted third party, each in a process, over gloo. Runs in the environment `crypten`.

    python -m bench.peers.crypten_parties TTP [tiny]

The parties are asked for a case by its name in `sizes`, and say how long they took (the slower of both), how far the
result is from plain torch, and what they counted themselves: rounds, and bytes sent and received.
"""

from __future__ import annotations

import contextlib
import itertools
import multiprocessing
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from bench.gpu_crypten import import_crypten
from bench.peer import answer_jobs
from bench.peers.sizes import FUNCTIONS, POSITIVE, size_of

PARTIES = 2


def _mlp(*sizes: int) -> nn.Sequential:
    torch.manual_seed(0)
    layers: list[nn.Module] = []
    for before, after in itertools.pairwise(sizes):
        layers += [nn.Linear(before, after), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def _cnn() -> nn.Sequential:
    torch.manual_seed(0)
    first = nn.Conv2d(1, 20, 5), nn.ReLU(), nn.MaxPool2d(2)
    second = nn.Conv2d(20, 50, 5), nn.ReLU(), nn.MaxPool2d(2)
    return nn.Sequential(*first, *second, nn.Flatten(), nn.Linear(800, 500), nn.ReLU(), nn.Linear(500, 10))


def encrypted(crypten: Any, model: nn.Sequential) -> Any:
    """The same layers as modules of CrypTen's, which its importer would make from ONNX, with the same weights, secret."""
    layers = []
    for layer in model:
        if isinstance(layer, nn.Linear):
            made = crypten.nn.Linear(layer.in_features, layer.out_features)
        elif isinstance(layer, nn.Conv2d):
            made = crypten.nn.Conv2d(layer.in_channels, layer.out_channels, layer.kernel_size)
        elif isinstance(layer, nn.MaxPool2d):
            made = crypten.nn.MaxPool2d(layer.kernel_size, stride=layer.stride)
        elif isinstance(layer, nn.Flatten):
            made = crypten.nn.Flatten()
        else:
            made = crypten.nn.ReLU()
        for name, value in layer.named_parameters():
            made.set_parameter(name, value.detach().clone())
        layers.append(made)
    whole = crypten.nn.Sequential(*layers)
    whole.encrypt()
    return whole


def prepared(crypten: Any, case: str, is_tiny: bool) -> tuple[Callable[[], Any], Any]:
    """What to run, and what comes of it in plain torch (None for a step of training)."""
    size = size_of(case, is_tiny)
    torch.manual_seed(1)
    if case in ("lt_1e6", "relu_1e6", "mul_1e6") or case.endswith("_1e5"):
        plain = _plain(case, size)
        x = crypten.cryptensor(plain)
        other = torch.randn(size)
        y = crypten.cryptensor(other)
        name = case.rpartition("_")[0]
        return {
            "lt": (lambda: x < 0, (plain < 0).float()),
            "relu": (x.relu, plain.relu()),
            "mul": (lambda: x * y, plain * other),
        }.get(name) or (getattr(x, name), getattr(plain, name)())
    if case.startswith("matmul"):
        plain, other = torch.randn(size, size), torch.randn(size, size)
        x, y = crypten.cryptensor(plain), crypten.cryptensor(other)
        return lambda: x.matmul(y), plain @ other
    if case == "softmax":
        plain = torch.randn(size, 10)
        x = crypten.cryptensor(plain)
        return lambda: x.softmax(1), plain.softmax(1)
    if case == "max_pool":
        plain = torch.randn(1, 16, size, size)
        x = crypten.cryptensor(plain)
        return lambda: x.max_pool2d(2), torch.nn.functional.max_pool2d(plain, 2)
    if case == "conv":
        plain, other = torch.randn(1, 64, size, size), torch.randn(64, 64, 3, 3) / 24
        x, y = crypten.cryptensor(plain), crypten.cryptensor(other)
        return lambda: x.conv2d(y, padding=1), torch.nn.functional.conv2d(plain, other, padding=1)
    if case.startswith("sgd"):
        return _training(crypten, case, size), None
    model, shape = (
        (_cnn(), (size, 1, 28, 28)) if case.startswith("cnn") else (_mlp(784, 128, 128, 10), (size, 784))
    )
    plain = torch.randn(*shape)
    secret, data = encrypted(crypten, model), crypten.cryptensor(plain)

    def infer() -> Any:
        with crypten.no_grad():
            return secret(data)

    return infer, model(plain).detach()


def exactly(crypten: Any, case: str, is_tiny: bool) -> Callable[[], torch.Tensor] | None:
    """What comes of the encoded numbers of `prepared` in plain torch, for functions of single numbers."""
    if case not in FUNCTIONS:
        return None
    name = case.rpartition("_")[0]
    torch.manual_seed(1)
    plain = _plain(case, size_of(case, is_tiny))
    return lambda: getattr(crypten.cryptensor(plain).get_plain_text().double(), name)()


def _plain(case: str, size: int) -> torch.Tensor:
    return torch.randn(size) if case not in POSITIVE else torch.rand(size) * 99.9 + 0.1


def _training(crypten: Any, case: str, size: int) -> Callable[[], Any]:
    model = encrypted(crypten, _mlp(784, 128, 10))
    model.train()
    data = crypten.cryptensor(torch.randn(size, 784))
    target = crypten.cryptensor(torch.nn.functional.one_hot(torch.randint(10, (size,)), 10).float())
    loss_of = crypten.nn.MSELoss() if case == "sgd_mse" else crypten.nn.CrossEntropyLoss()
    optimizer = crypten.optim.SGD(model.parameters(), lr=0.05)

    def step() -> None:
        optimizer.zero_grad()
        loss_of(model(data), target).backward()
        optimizer.step()

    return step


def party(asked: list[Any], said: list[Any], is_tiny: bool) -> None:
    """One of both: it runs what it is told, and leaves with the pipe."""
    torch.set_num_threads(1)
    crypten = import_crypten()
    rank = crypten.comm.get().get_rank()
    said[rank].send({"ready": True})
    ready: dict[str, Any] = {}
    with contextlib.suppress(EOFError):
        while True:
            job, calls = asked[rank].recv()
            try:
                if job not in ready:
                    ready.clear()
                    ready[job] = *prepared(crypten, job, is_tiny), exactly(crypten, job, is_tiny)
                said[rank].send(_ran(crypten, *ready[job], calls))
            except Exception as failure:  # noqa: BLE001  (the other cases are still wanted)
                said[rank].send({"failed": f"{type(failure).__name__}: {failure}"[:300]})


def _ran(crypten: Any, run: Callable[[], Any], expected: Any, exact: Any, calls: int) -> dict[str, float]:
    if not calls:
        return _counted(crypten, run, expected, exact)
    crypten.comm.get().barrier()
    began = time.perf_counter()
    for _ in range(calls):
        run()
    return {"seconds": (time.perf_counter() - began) / calls}


def _counted(crypten: Any, run: Callable[[], Any], expected: Any, exact: Any) -> dict[str, float]:
    run()
    crypten.cfg.communicator.verbose = True
    crypten.reset_communication_stats()
    result = run()
    counts = crypten.comm.get().get_communication_stats()
    crypten.cfg.communicator.verbose = False
    found = {"rounds": counts["rounds"], "bytes": counts["bytes"]}
    if expected is not None:
        # NB: of its errors of exactly 1 (a rare negative value just above an integer) the page of TARGETS tells.
        decoded = result.get_plain_text()
        found["error"] = float((decoded - expected).abs().max())
        if exact is not None:
            found["error on the encoded input"] = float((decoded - exact()).abs().max())
    return found


def main(provider: str, is_tiny: bool) -> None:
    torch.set_num_threads(1)
    crypten = import_crypten()
    crypten.cfg.mpc.provider = provider
    pipes = [(multiprocessing.Pipe(duplex=False), multiprocessing.Pipe(duplex=False)) for _ in range(PARTIES)]
    asked, said = [pair[0][0] for pair in pipes], [pair[1][1] for pair in pipes]
    run: Any = crypten.mpc.run_multiprocess(world_size=PARTIES)(party)
    threading.Thread(target=run, args=(asked, said, is_tiny), daemon=True).start()
    for pair in pipes:
        pair[1][0].recv()

    def answer(job: str, calls: int) -> dict[str, Any]:
        for pair in pipes:
            pair[0][1].send((job, calls))
        found = [pair[1][0].recv() for pair in pipes]
        failed = [one for one in found if "failed" in one]
        slowest: dict[str, Any] = (failed or sorted(found, key=lambda one: one.get("seconds", 0.0)))[-1]
        return slowest

    answer_jobs(answer, version=crypten.__version__)


if __name__ == "__main__":
    main(sys.argv[1], "tiny" in sys.argv[2:])
