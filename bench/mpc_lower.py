"""What the lower half of the MPC room costs: all parties and the provider in one process, one torch thread.

    python bench/mpc_lower.py [--holders 2] [--repeats 9]

Prints, per protocol: median wall and processor time (the latter for a machine that is not quiet) with the
provider's work in them, the provider's part of the wall time, rounds, and bytes sent per party online and by
the provider. `--keep` keeps freed memory (`kernels.keep_freed_memory`).
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import torch

from syft.mpc import kernels, ring
from syft.mpc.drivers import Lockstep, Shares
from syft.mpc.kernels import Bilinear
from syft.mpc.protocols.beaver import MATMUL, spdz_mul
from syft.mpc.protocols.registry import comparison
from syft.mpc.protocols.select import Pooling, argmax, max_pool2d
from syft.mpc.protocols.truncate import truncate
from syft.mpc.randomness import Stream

STREAM = Stream()


def cases(holders: int) -> list[tuple[str, Callable[..., Any], tuple[Any, ...]]]:
    def shared(*shape: int) -> Shares:
        return Shares(ring.share(STREAM.words(shape) >> 3, holders, STREAM))

    rows: list[tuple[str, Callable[..., Any], tuple[Any, ...]]] = []
    for count in (1, 10_000, 1_000_000):
        x = shared(count)
        rows += [
            (f"x < 0, {count:.0e}", comparison("tree").is_negative, (x,)),
            (f"x < 0, fan-in 2, {count:.0e}", comparison("tree2").is_negative, (x,)),
            (f"x == 0, {count:.0e}", comparison("tree").is_zero, (x,)),
            (f"relu, {count:.0e}", comparison("tree").relu, (x,)),
            (f"mul, {count:.0e}", spdz_mul, (x, x)),
            (f"truncate by 1000, {count:.0e}", truncate, (x, 1000)),
            (f"truncate by 2^16, {count:.0e}", truncate, (x, 1 << 16)),
        ]
    if holders == 2:
        x = shared(10_000)
        rows += [(f"x < 0, {name}, 1e+04", comparison(name).is_negative, (x,)) for name in ("snn", "fss")]
    for size in (256, 512):
        rows.append((f"matmul {size}", spdz_mul, (shared(size, size), shared(size, size), MATMUL)))
    conv = Bilinear.of("conv", padding=1)
    rows += [
        ("conv 1x64x56x56, 64 3x3", spdz_mul, (shared(1, 64, 56, 56), shared(64, 64, 3, 3), conv)),
        ("max_pool2d 2x2, 1x16x32x32", max_pool2d, (shared(1, 16, 32, 32), Pooling((2, 2), (2, 2)))),
        ("argmax 128x10", argmax, (shared(128, 10), 1)),
    ]
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--holders", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--keep", action="store_true", help="keep freed memory in the process")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.keep:
        kernels.keep_freed_memory()
    print(f"{'what':32}{'ms':>9}{'cpu ms':>9}{'provider':>10}{'rounds':>8}{'B/party':>12}{'B provider':>12}")
    for name, protocol, arguments in cases(options.holders):
        driver = Lockstep(options.holders)
        times, busy, offline = [], [], []
        for _ in range(options.repeats + 2):
            driver.reset()
            start, used = time.perf_counter(), time.process_time()
            driver.run(protocol, *arguments)
            times.append(1e3 * (time.perf_counter() - start))
            busy.append(1e3 * (time.process_time() - used))
            offline.append(1e3 * driver.provider.cost.seconds)
        cost, made = driver.cost, driver.provider.cost
        print(
            f"{name:32}{median(times[2:]):9.2f}{median(busy[2:]):9.2f}{median(offline[2:]):10.2f}{cost.rounds:8}"
            f"{max(cost.bytes_sent):12}{made.bytes:12}"
        )


if __name__ == "__main__":
    main()
