"""Models on secrets with each holder and the provider in a process of its own, all on one card: rows of `bench.gpu`.

    python -m bench.gpu_network [resnet18] [bert] [gpt2] [bert_small] [tiny] [matmul1024] [matmul4096] [relu1e6] [relu1e7]
                                [softmax] [--device cuda:0] [--repeats 3] [--json FILE]

The processes speak over tcp on the loopback interface. "online" is the time from the call to the end of what the last
holder does, with correlations that were dealt before; "offline" the time to deal them, the holders' taking included.
Bytes are what the busier holder sent, and "LAN" is what rounds and bytes would add on a network of 10 Gbit/s and 0.5 ms.
Memory is what all processes have of the card together, after the runs.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import torch

import syft as sy
from syft.mpc.group import Group
from syft.mpc.taken import noting_taken

NAMES = ("alice", "bob", "carol")
PRECISION = {"base": 2, "precision_fractional": 16}

_PARTY = """
import json, sys, torch, syft as sy
from syft.mpc.kernels import keep_freed_memory
from syft.policy.permissions import Policy
torch.set_num_threads(2)
keep_freed_memory()
hook = sy.TorchHook(torch)
worker = sy.NetworkServerWorker(hook, "tcp://127.0.0.1:0", id=sys.argv[1], policy=Policy(), device=sys.argv[2])
worker.start(block=False)
print(worker.address, flush=True)
for name, address in json.loads(sys.stdin.readline()).items():
    worker.add_worker(sy.connect(address, name, hook=hook, auto_add=False))
print("introduced", flush=True)
sys.stdin.read()
"""


def _line(process: Any) -> str:
    return str(process.stdout.readline()).strip()


@contextlib.contextmanager
def three_processes(device: str) -> Iterator[list[Any]]:
    """Two holders and a provider that know each other, as clients of theirs; they end with the block."""
    processes = {
        name: subprocess.Popen(
            [sys.executable, "-P", "-c", _PARTY, name, device],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for name in NAMES
    }
    members: list[Any] = []
    try:
        found = {name: _line(process) for name, process in processes.items()}
        for name, process in processes.items():
            stdin: Any = process.stdin
            stdin.write(json.dumps({n: a for n, a in found.items() if n != name}) + "\n")
            stdin.flush()
        for process in processes.values():
            _line(process)
        members = [sy.connect(found[name], name, auto_add=False, patience=120.0) for name in NAMES]
        yield members
    finally:
        for member in members:
            with contextlib.suppress(OSError, sy.exceptions.SyftError):
                member.close()
        for process in processes.values():
            with contextlib.suppress(OSError):
                process.stdin.close()  # type: ignore[union-attr]
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _models() -> dict[str, Callable[[], tuple[Any, str, torch.Tensor]]]:
    """name -> a model, the name of its argument, and its input."""

    def resnet() -> Any:
        import torchvision

        return torchvision.models.resnet18(weights=None), "x", torch.randn(1, 3, 224, 224)

    def bert(**options: Any) -> Any:
        import transformers as T

        config = T.BertConfig(**options)
        model = T.BertModel(config, add_pooling_layer=False)
        return model, "inputs_embeds", torch.randn(1, 128, config.hidden_size) * 0.5

    def gpt2() -> Any:
        import transformers as T

        return T.GPT2Model(T.GPT2Config(use_cache=False)), "inputs_embeds", torch.randn(1, 128, 768) * 0.5

    def tiny() -> Any:
        layers = torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.LayerNorm(16), torch.nn.Linear(16, 4)
        return torch.nn.Sequential(*layers), "input", torch.randn(3, 8)

    def bert_small() -> Any:
        return bert(num_hidden_layers=1, hidden_size=32, num_attention_heads=2, intermediate_size=64)

    def product(size: int) -> Any:
        return torch.nn.Linear(size, size, bias=False), "input", torch.randn(size, size)

    return {
        "resnet18": resnet,
        "bert": bert,
        "gpt2": gpt2,
        "bert_small": bert_small,
        "tiny": tiny,
        "matmul1024": lambda: product(1024),
        "matmul4096": lambda: product(4096),
        "relu1e6": lambda: (torch.nn.ReLU(), "input", torch.randn(10**6)),
        "relu1e7": lambda: (torch.nn.ReLU(), "input", torch.randn(10**7)),
        "softmax": lambda: (torch.nn.Softmax(-1), "input", torch.randn(12, 128, 128)),
    }


def _opened(result: Any) -> torch.Tensor:
    value = getattr(result, "last_hidden_state", result)
    return value.copy().get().float_precision()  # type: ignore[no-any-return]


def measure(name: str, device: str, repeats: int) -> dict[str, Any]:
    """One row: a model with secret weights and secret input."""
    torch.manual_seed(0)
    model, argument, x = _models()[name]()
    model.eval()
    with torch.no_grad():
        expected = model(**{argument: x})
    expected = getattr(expected, "last_hidden_state", expected)
    with three_processes(device) as members, torch.no_grad():
        *holders, provider = members
        secret: Any = x.fix_precision(**PRECISION).share(*holders, crypto_provider=provider)  # type: ignore[attr-defined]
        model.fix_precision(**PRECISION).share(*holders, crypto_provider=provider)
        group = Group.of(holders, provider)

        def run() -> Any:
            return model(**{argument: secret})

        def seconds(work: Callable[[], Any]) -> float:
            started = time.perf_counter()
            kept = work()
            for member in members:
                member.sync()
            took = time.perf_counter() - started
            del kept
            return took

        first, second = seconds(run), seconds(run)
        print(f"{name}: first call {first:.1f} s, second {second:.1f} s", flush=True)
        group.reset_costs()
        started = time.perf_counter()
        with noting_taken() as taken:
            result = run()
        answer = _opened(result)
        together = time.perf_counter() - started
        error = float((answer - expected).abs().max())
        del result
        online_cost, offline_cost = group.online, group.offline
        online, offline = [], []
        for _ in range(repeats):
            offline.append(seconds(lambda: group.driver.provider.provide_again(taken)))
            online.append(seconds(run))
        memory = None
        if device != "cpu":
            free, whole = torch.cuda.mem_get_info(device)
            memory = (whole - free) / 1e9
    sent = max(online_cost.bytes_sent)
    return {
        "name": f"{name}, two processes and a provider over tcp, on {device}",
        "online_ms": statistics.median(online) * 1e3,
        "offline_ms": statistics.median(offline) * 1e3,
        "together_ms": together * 1e3,
        "first_ms": first * 1e3,
        "repeats": repeats,
        "rounds": online_cost.rounds,
        "MB_by_a_holder": sent / 1e6,
        "MB_by_the_provider": offline_cost.bytes / 1e6,
        "LAN_adds_ms": (online_cost.rounds * 0.5e-3 + sent * 8 / 10e9) * 1e3,
        "error": error,
        "largest": float(expected.abs().max()),
        "GB_of_all": memory,
    }


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("models", nargs="*", default=["resnet18", "bert", "gpt2"])
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", help="where to write the figures, after every row")
    given = parser.parse_args(argv)
    sy.TorchHook(torch)
    rows: list[dict[str, Any]] = []
    for name in given.models:
        try:
            row = measure(name, given.device, given.repeats)
        except Exception as error:  # noqa: BLE001  (the other rows are still wanted)
            traceback.print_exc()
            row = {"name": name, "failed": f"{type(error).__name__}: {str(error)[:500]}"}
        rows.append(row)
        print(json.dumps(row), flush=True)
        if given.json:
            with open(given.json, "w") as file:
                json.dump(rows, file, indent=1)
    return int(any("failed" in row for row in rows))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
