"""Coordinate-wise trimmed mean: Yin, Chen, Kannan, Bartlett 2018, algorithm 1, option II."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from torch import Tensor

from syft.federated.aggregation import Updates
from syft.federated.strategies.base import Strategy, check_range, register_strategy


@register_strategy
class TrimmedMean(Strategy):
    """The mean of every number without its largest and its smallest values. All clients weigh alike.

    beta   the part left out at either end, at least the part of clients that may send anything. It is rounded
           up to whole clients, so that a small round is protected too
    """

    name = "trimmed_mean"
    needs_single_updates = True

    def __init__(self, beta: float = 0.2) -> None:
        check_range(self, "beta", beta, 0, 0.5)
        self.beta = beta

    def too_few(self, count: int) -> str | None:
        if count > 2 * self._trimmed(count):
            return None
        return (
            f"a trimmed mean with beta={self.beta:g} leaves nothing of {count}: it takes {self._trimmed(count)} away "
            "at either end"
        )

    def step(self, updates: Updates, optimizer_args: Mapping[str, Any]) -> Tensor:
        # Definition 2: the mean without the beta fraction at either end
        ordered = updates.stacked().sort(dim=0).values
        trimmed = self._trimmed(len(ordered))
        return ordered[trimmed : len(ordered) - trimmed].mean(dim=0)

    def settings(self) -> dict[str, float]:
        return {"beta": self.beta}

    def _trimmed(self, count: int) -> int:
        return math.ceil(self.beta * count - 1e-9)
