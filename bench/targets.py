"""What is to be beaten, and by how much: the rows that every full run reports, met, missed or not measured.

Ratios are ours over the peer's, both taken in one run. The rows of a GPU are measured by `bench.gpu`, on a machine
that has one, and their figures are absolute.
"""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bench.harness import Figure

REMOTE = "Remote execution and federated learning"
MPC = "MPC: two holders and a provider in three processes"
GPU = "MPC on one NVIDIA H200"


@dataclass(frozen=True)
class Target:
    """One row. What is stated has to hold; `at_most` is in seconds (or bytes), `ratio` beside `of` (or the best peer)."""

    key: str
    group: str
    what: str
    at_most: float | None = None
    ratio: float | None = None
    of: str = ""
    error: float | None = None
    error_share: float | None = None  # of CrypTen's error in the same run
    on_encoded: bool = False
    """The share is of errors on the encoded input: NOTE [What encoding costs] in `mpc_processes`."""
    bytes_each: float | None = None  # sent and received by a holder, for each element
    unit: str = "s"

    @property
    def text(self) -> str:
        parts = []
        if self.ratio is not None:
            whom, is_faster = self.of or "the best peer", self.ratio < 1
            faster, slower = (
                f"{1 / self.ratio:.3g} times as fast as {whom}",
                f"at most {self.ratio:g} times {whom}",
            )
            parts.append(faster if is_faster else slower)
        if self.at_most is not None:
            parts.append(f"at most {amount(self.at_most, self.unit)}")
        if self.error is not None:
            parts.append(f"error at most {self.error:g}")
        if self.error_share is not None:
            where = " on the encoded input" if self.on_encoded else ""
            parts.append(f"error{where} at most {self.error_share:g} of CrypTen's")
        if self.bytes_each is not None:
            parts.append(f"at most {self.bytes_each:g} B an element")
        return ", ".join(parts)

    def judged(self, figure: Figure) -> Figure:
        """The figure with the target's text, and whether all of it was met; None if a part could not be judged."""
        found: list[bool | None] = []
        if self.ratio is not None:
            other = figure.peers.get(self.of) if self.of else figure.other
            known = other and figure.ours is not None
            found.append(float(figure.ours or 0) <= self.ratio * float(other or 0) if known else None)
        if self.at_most is not None:
            found.append(None if figure.ours is None else float(figure.ours) <= self.at_most)
        if self.error is not None:
            found.append(_within(figure.details.get("error"), self.error))
        if self.error_share is not None:
            where = " on the encoded input" if self.on_encoded else ""
            mine, theirs = (figure.details.get(f"{name}{where}") for name in ("error", "error of CrypTen"))
            found.append(None if theirs is None else _within(mine, theirs * self.error_share))
        if self.bytes_each is not None:
            found.append(_within(figure.details.get("bytes an element"), self.bytes_each))
        met = False if False in found else None if None in found else True
        return dataclasses.replace(figure, target=self.text, met=met)


def _within(value: float | None, most: float) -> bool | None:
    return None if value is None else value <= most


def amount(value: float | None, unit: str = "s") -> str:
    """A time or a size as people read it."""
    if value is None:
        return "-"
    value = float(value)
    if unit == "B":
        scales = (("GB", 1e9), ("MB", 1e6), ("kB", 1e3), ("B", 1.0))
    elif unit == "s":
        scales = (("s", 1.0), ("ms", 1e-3), ("us", 1e-6), ("ns", 1e-9))
    else:
        return f"{value:.3g} {unit}"
    for name, scale in scales:
        if abs(value) >= scale:
            return f"{value / scale:.3g} {name}"
    return f"{value / scales[-1][1]:.3g} {scales[-1][0]}"


_RPC, _AUTOGRAD = "torch RPC", "torch dist_autograd"

_ROWS = (
    # 5 % is what the same interpreter differs by between two starts.
    Target("plain_add", REMOTE, "plain torch `a + b` after hooking", ratio=1.05, of="torch, unhooked"),
    Target("plain_mm", REMOTE, "plain torch 10 x 10 `mm` after hooking", ratio=1.05, of="torch, unhooked"),
    Target("pointer_add", REMOTE, "pointer + pointer, in process", at_most=15e-6),
    Target(
        "chain_1000", REMOTE, "1000 chained pointer adds, two processes", at_most=0.05, ratio=0.25, of=_RPC
    ),
    Target("send_get_tcp", REMOTE, "`send().get()` 1e6 floats, tcp", ratio=1.5, of=_RPC),
    Target("send_get_ws", REMOTE, "`send().get()` 1e6 floats, ws", ratio=1.3, of="websockets echo"),
    Target("sgd_in_process", REMOTE, "SGD step on pointers, in process", ratio=2.0, of="local step"),
    Target("sgd_tcp", REMOTE, "SGD step on pointers, over tcp, op by op", at_most=2.2e-3, of=_AUTOGRAD),
    Target("plan_step_tcp", REMOTE, "SGD step over tcp, as a training plan", at_most=1.2e-3, of=_AUTOGRAD),
    Target(
        "plan_call_tcp",
        REMOTE,
        "plan call and get, 3-layer MLP, over tcp",
        ratio=1.0,
        of="local + 1.5 round trips",
    ),
    Target("epoch_loop", REMOTE, "federated epoch, the documented loop", ratio=1.3, of="plain loop"),
    Target("epoch_fit", REMOTE, "federated epoch, `worker.fit`", ratio=1.3, of="plain loop"),
    Target("fedavg_first", REMOTE, "FedAvg, first round, 10 clients", ratio=1.3, of="plain loop"),
    Target("fedavg_steady", REMOTE, "FedAvg, later rounds, 10 clients", ratio=1.3, of="plain loop"),
    Target("serialize", REMOTE, "serialize 1e6 floats", ratio=2.0, of="memcpy"),
    Target("deserialize", REMOTE, "deserialize 1e6 floats", ratio=2.0, of="memcpy"),
    Target("pate_numpy", REMOTE, "PATE analysis, numpy, 100 x 1000 x 10", at_most=0.05),
    Target("pate_torch", REMOTE, "PATE analysis, torch, 100 x 1000 x 10", at_most=0.05),
    Target("memory_pointers", REMOTE, "memory grown in 1000 steps on pointers", at_most=1e6, unit="B"),
    Target("memory_shares", REMOTE, "memory grown in 1000 steps on shares", at_most=1e6, unit="B"),
    Target("lt_1e6", MPC, "x < 0, 1e6", ratio=1 / 6, at_most=0.18, bytes_each=80),
    Target("relu_1e6", MPC, "relu, 1e6", ratio=1 / 6, at_most=0.2),
    Target("mul_1e6", MPC, "mul, 1e6", ratio=0.5),
    Target("matmul_512", MPC, "matmul, 512", ratio=0.5),
    Target("matmul_1024", MPC, "matmul, 1024", ratio=0.5),
    Target("mlp_128", MPC, "MLP 784-128-128-10, batch 128", ratio=1 / 3, at_most=0.03),
    Target("cnn_1", MPC, "MNIST CNN, batch 1", ratio=1 / 6, at_most=0.04),
    Target("sgd_mse", MPC, "SGD step MLP 784-128-10, batch 64, MSE", ratio=0.2),
    Target("sgd_ce", MPC, "SGD step MLP 784-128-10, batch 64, cross-entropy", ratio=0.2),
    Target("softmax", MPC, "softmax, 32 x 10", ratio=0.1, error=1e-3),
    Target("exp_1e5", MPC, "exp, 1e5", ratio=0.2, error_share=0.1),
    Target("sigmoid_1e5", MPC, "sigmoid, 1e5", ratio=0.2, error_share=0.1),
    Target("tanh_1e5", MPC, "tanh, 1e5", ratio=0.2, error_share=0.1),
    Target("reciprocal_1e5", MPC, "reciprocal, 1e5", ratio=0.2, error_share=0.1, on_encoded=True),
    Target("sqrt_1e5", MPC, "sqrt, 1e5", ratio=0.2, error_share=0.1),
    Target("log_1e5", MPC, "log, 1e5", ratio=0.2, error_share=0.1),
    Target("max_pool", MPC, "max_pool2d 2 x 2, 1 x 16 x 32 x 32", ratio=0.1),
    Target("conv", MPC, "conv 1 x 64 x 56 x 56, 64 filters 3 x 3", ratio=0.5),
    Target("cnn_128", MPC, "MNIST CNN, batch 128", ratio=0.1, at_most=1.0),
)

TARGETS: dict[str, Target] = {row.key: row for row in _ROWS}


# -- the rows of a GPU, from the run that is committed ------------------------------------------------------


@dataclass(frozen=True)
class GpuTarget:
    """A figure of `results/gpu_h200.json`: of the row whose name begins so, one number."""

    what: str
    begins: str
    number: str
    wanted: float
    is_least: bool = False
    unit: str = "ms"
    each: float = 1.0


GPU_TARGETS = (
    GpuTarget("ring matmul, 4096", "ring matmul 4096", "Tops", 25, True, "Tops/s"),
    GpuTarget("ring matmul, 8192", "ring matmul 8192", "Tops", 35, True, "Tops/s"),
    GpuTarget("x < 0, 1e8, online", "x < 0, 100000000", "online_ms", 60),
    GpuTarget("ResNet-18, one image, online", "resnet18 224x224, batch 1 ", "online_ms", 150),
    GpuTarget("ResNet-18, an image of 32, online", "resnet18 224x224, batch 32 ", "online_ms", 20, each=32),
    GpuTarget("ResNet-50, one image, online", "resnet50 224x224, batch 1 ", "online_ms", 500),
    GpuTarget("BERT-base, 128 tokens, online", "BERT-base, 128 tokens", "online_ms", 600),
    GpuTarget("GPT-2 124M, 128 tokens, online", "GPT-2 124M, 128 tokens", "online_ms", 800),
    GpuTarget("Llama-shaped 1.3B, 128 tokens, online", "Llama-shaped 1.3B", "online_ms", 6000),
)


def gpu_lines(file: Path) -> list[tuple[str, str, str, str]]:
    """(what, ours, target, verdict) of the last run on a card."""
    rows = json.loads(file.read_text())["rows"]
    lines = []
    for target in GPU_TARGETS:
        row = next((each for each in rows if each["name"].startswith(target.begins)), None)
        wanted = f"{'at least' if target.is_least else 'at most'} {target.wanted:g} {target.unit}"
        if row is None:
            lines.append((target.what, "-", wanted, "not measured"))
            continue
        value = row[target.number] / target.each
        met = value >= target.wanted if target.is_least else value <= target.wanted
        lines.append((target.what, f"{value:.3g} {target.unit}", wanted, "met" if met else "MISSED"))
    return lines
