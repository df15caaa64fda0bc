"""Run the benchmarks whose names contain any of the given words (all without)."""

from __future__ import annotations

import dataclasses
import json
import logging
import platform
import sys
from pathlib import Path

import torch

from bench import (  # noqa: F401  (they register themselves)
    chain,
    dp,
    fedavg,
    fedavg_flower,
    fedavg_many,
    federated,
    integrity,
    mpc_network,
    network,
    network_isolated,
    network_trouble,
    plain_torch,
    plan,
    pointers,
    secrets_in_process,
    secure_aggregation,
    serde,
    transport,
)
from bench.harness import BENCHMARKS, Figure


def _seconds(value: float | None) -> str:
    if value is None:
        return "-"
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if value >= scale:
            return f"{value / scale:.3g} {unit}"
    return f"{value / 1e-9:.3g} ns"


def _row(figure: Figure) -> str:
    ratio = "-" if figure.ratio is None else f"{figure.ratio:.2f}x"
    verdict = {True: "met", False: "MISSED", None: ""}[figure.met]
    return (
        f"{figure.name:<38} {_seconds(figure.ours):>10} {_seconds(figure.other):>10} {ratio:>8}  "
        f"{figure.against:<26} {figure.target:<24} {verdict}"
    )


def main(words: list[str]) -> int:
    import syft

    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    syft.TorchHook(torch)
    print(f"torch {torch.__version__}, {platform.machine()}, one thread, medians, both sides in one run")
    print(f"{'what':<38} {'ours':>10} {'other':>10} {'ratio':>8}  {'against':<26} {'target':<24}")
    figures: list[Figure] = []
    for name, run in BENCHMARKS.items():
        if not words or any(word in name for word in words):
            for figure in run():
                figures.append(figure)
                print(_row(figure), flush=True)
    results = Path(__file__).parent / "results"
    results.mkdir(exist_ok=True)
    (results / "latest.json").write_text(json.dumps([dataclasses.asdict(f) for f in figures], indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
