"""`python -m bench.mpc_models [FILE]`: whole models on secrets in three processes beside lockstep, call by call.

The first call of a process finds out what programs take, and masks the weights; the second and later ones use both
again. Processor time is that of the parties together; in lockstep of the one process. Written to FILE as JSON.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import torch
from torch import nn

from bench.mpc_network import trio

_CALLS = 4


def _cnn() -> nn.Module:
    first = nn.Conv2d(1, 20, 5), nn.ReLU(), nn.MaxPool2d(2)
    second = nn.Conv2d(20, 50, 5), nn.ReLU(), nn.MaxPool2d(2)
    return nn.Sequential(*first, *second, nn.Flatten(), nn.Linear(800, 500), nn.ReLU(), nn.Linear(500, 10))


def _mlp() -> nn.Module:
    inner = nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU()
    return nn.Sequential(*inner, nn.Linear(128, 10))


def _resnet() -> nn.Module:
    sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
    from mpc.resnet import ResNet18

    return ResNet18().eval()


MODELS: dict[str, tuple[Any, tuple[int, ...]]] = {
    "MLP 784-128-128-10, batch 128": (_mlp, (128, 784)),
    "CNN of TARGETS, batch 1": (_cnn, (1, 1, 28, 28)),
    "ResNet-18, 32 x 32, batch 1": (_resnet, (1, 3, 32, 32)),
}


def _calls(name: str, members: list[Any], wait: Any, cpu: Any) -> list[dict[str, Any]]:
    from syft.mpc.group import Group

    *holders, provider = members
    make, shape = MODELS[name]
    torch.manual_seed(0)
    model, x = make(), torch.randn(*shape)
    plain = model(x).detach()
    model.fix_precision(base=2, precision_fractional=16).share(*holders, crypto_provider=provider)
    fixed: Any = x.fix_precision(base=2, precision_fractional=16)  # type: ignore[attr-defined]
    data = fixed.share(*holders, crypto_provider=provider)
    group = Group.of(holders, provider)
    wait()
    found = []
    for _ in range(_CALLS):
        group.reset_costs()
        before, started = cpu(), time.perf_counter()
        with torch.no_grad():
            out = model(data)
        wait()
        row = {"wall_s": time.perf_counter() - started, "processor_s": cpu() - before}
        online, offline = group.online, group.offline
        row |= {"rounds": online.rounds, "MB_sent_by_a_holder": max(online.bytes_sent) / 1e6}
        row["MB_dealt"] = offline.bytes / 1e6
        row["largest_error"] = float((out.get().float_precision() - plain).abs().max())
        found.append({key: float(f"{value:.4g}") for key, value in row.items()})
    return found


def measured() -> dict[str, Any]:
    import syft as sy
    from syft.mpc.kernels import keep_freed_memory

    torch.set_num_threads(1)
    keep_freed_memory()
    hook = sy.TorchHook(torch)
    rows = []
    for name in MODELS:
        with trio("unix") as parties:
            there = _calls(name, parties.members, parties.wait, lambda p=parties: sum(p.cpu_seconds()))
        here = [sy.VirtualWorker(hook, id=f"{i} {name}") for i in range(3)]
        alone = _calls(name, here, lambda: None, time.process_time)
        rows.append({"name": name, "three processes": there, "lockstep": alone})
        print(json.dumps(rows[-1]), flush=True)
    conditions = (
        f"two holders and a provider, unix sockets, one torch thread each, {os.cpu_count()} cores, torch "
        f"{torch.__version__}; secret weights and data, base 2, 16 fractional bits; calls in their order, the first of a "
        f"process first; load of the machine when it ended: {os.getloadavg()[0]:.1f}"
    )
    return {"conditions": conditions, "rows": rows}


if __name__ == "__main__":
    text = json.dumps(measured(), indent=1)
    if len(sys.argv) > 1:
        Path(sys.argv[1]).write_text(text + "\n")
