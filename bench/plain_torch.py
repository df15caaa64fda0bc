"""Plain torch before and after hooking: two processes in turns, one of them hooked."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

from bench.harness import Figure, Timing, benchmark, beside, by_mode

_CHILD = """
import sys, timeit, torch
torch.set_num_threads(1)
if sys.argv[1] == "hooked":
    import logging; logging.disable(logging.WARNING)
    import syft; syft.TorchHook(torch)
a, b = torch.randn(10), torch.randn(10)
m = torch.randn(10, 10)
for statement in ("a + b", "m @ m"):
    times = timeit.repeat(statement, globals=globals(), number=5000, repeat=21)
    print(sorted(times)[10] / 5000)
"""


def _times(kind: str) -> list[float]:
    done = subprocess.run([sys.executable, "-c", _CHILD, kind], capture_output=True, text=True, check=True)
    return [float(line) for line in done.stdout.split()]


@benchmark(rows=("plain_add", "plain_mm"), rank=2, limit=90)
def plain_torch_after_hooking() -> Iterator[Figure]:
    plain: list[list[float]] = []
    hooked: list[list[float]] = []
    for turn in range(by_mode(9, 5, 2)):
        # NB: whoever comes second finds its files in memory, so they change places
        for kind in ("plain", "hooked") if turn % 2 else ("hooked", "plain"):
            (plain if kind == "plain" else hooked).append(_times(kind))
    for index, row in enumerate(("plain_add", "plain_mm")):
        before, after = (Timing.of([times[index] for times in each]) for each in (plain, hooked))
        yield beside(row, after, {"torch, unhooked": before})
