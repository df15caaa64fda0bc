"""Plain torch before and after hooking: two processes in turns, one of them hooked."""

from __future__ import annotations

import statistics
import subprocess
import sys

from bench.harness import Figure, benchmark

_CHILD = """
import sys, timeit, torch
torch.set_num_threads(1)
if sys.argv[1] == "hooked":
    import logging; logging.disable(logging.WARNING)
    import syft; syft.TorchHook(torch)
a, b = torch.randn(10), torch.randn(10)
m = torch.randn(10, 10)
for statement in ("a + b", "m @ m"):
    times = timeit.repeat(statement, globals=globals(), number=20000, repeat=7)
    print(min(times) / 20000)
"""


def _times(kind: str) -> list[float]:
    done = subprocess.run([sys.executable, "-c", _CHILD, kind], capture_output=True, text=True, check=True)
    return [float(line) for line in done.stdout.split()]


@benchmark
def plain_torch_after_hooking() -> list[Figure]:
    plain: list[list[float]] = []
    hooked: list[list[float]] = []
    for _ in range(7):
        plain.append(_times("plain"))
        hooked.append(_times("hooked"))
    figures = []
    for index, name in enumerate(("plain add, 10 floats", "plain mm, 10x10")):
        before = statistics.median(t[index] for t in plain)
        after = statistics.median(t[index] for t in hooked)
        figures.append(
            Figure(
                name, after, before, "torch without the hook", "ratio 1.00 within noise", after / before < 1.1
            )
        )
    return figures
