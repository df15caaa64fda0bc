"""What one operation on a chain costs above plain torch."""

from __future__ import annotations

import torch

from bench.harness import Figure, benchmark, side_by_side


@benchmark
def chain_operation() -> list[Figure]:
    from syft.tensors.local import LocalTensor
    from syft.tensors.logging import LoggingTensor

    class Quiet:
        def __enter__(self) -> None:
            self.sink, LoggingTensor.sink = LoggingTensor.sink, None

        def __exit__(self, *_error: object) -> None:
            LoggingTensor.sink = self.sink  # type: ignore[assignment]

    x, y = torch.randn(10), torch.randn(10)
    a, b = LoggingTensor().on(x), LoggingTensor().on(y)
    c, d = LocalTensor().on(x), LocalTensor().on(y)
    deep_a, deep_b = LoggingTensor().on(LocalTensor().on(x)), LoggingTensor().on(LocalTensor().on(y))
    with Quiet():
        plain, listened, overloaded, silent, deep = side_by_side(
            lambda: x - y, lambda: a - b, lambda: a + b, lambda: c - d, lambda: deep_a - deep_b
        )
    return [
        Figure(name, ours, plain, "plain torch", "<= 15 us above plain", ours - plain <= 15e-6)
        for name, ours in (
            ("LocalTensor sub", silent),
            ("LoggingTensor sub (observed)", listened),
            ("LoggingTensor add (overloaded)", overloaded),
        )
    ] + [Figure("Logging > Local > tensor sub", deep, plain, "plain torch", "", None)]
