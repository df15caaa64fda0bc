"""Krum and Multi-Krum: Blanchard, El Mhamdi, Guerraoui, Stainer 2017, "Machine Learning with Adversaries:
Byzantine Tolerant Gradient Descent"."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from syft.federated.aggregation import Updates
from syft.federated.strategies.base import Strategy, check_range, register_strategy


def krum_scores(vectors: Tensor, f: int) -> Tensor:
    """s(i) = sum over the n - f - 2 nearest others of |V_i - V_j|^2 (section 4)."""
    n = len(vectors)
    # NB: not by way of a product, which loses small distances between long vectors.
    distances = torch.cdist(vectors.double(), vectors.double(), compute_mode="donot_use_mm_for_euclid_dist")
    nearest = distances.square().sort(dim=1).values[:, 1 : n - f - 1]  # without itself
    return nearest.sum(dim=1)


@register_strategy
class MultiKrum(Strategy):
    """The mean of the `m` updates that are nearest to their neighbours. All clients weigh alike.

    f   how many clients may send anything; a round needs 2 f + 3 updates
    m   how many updates are averaged (without: all but f)
    """

    name = "multikrum"
    needs_single_updates = True

    def __init__(self, f: int = 1, m: int | None = None) -> None:
        check_range(self, "f", f, 0)
        if m is not None:
            check_range(self, "m", m, 1)
        self.f, self.m = f, m

    def too_few(self, count: int) -> str | None:
        # Proposition 1: 2 f + 2 < n
        needed = max(2 * self.f + 3, self.m or 0)
        if count >= needed:
            return None
        return f"{type(self).__name__} with f={self.f}, m={self.m} needs {needed} updates"

    def step(self, updates: Updates, optimizer_args: Mapping[str, Any]) -> Tensor:
        vectors = updates.stacked()
        best = krum_scores(vectors, self.f).sort(stable=True).indices
        return vectors[best[: self.m or len(vectors) - self.f]].mean(dim=0)

    def settings(self) -> dict[str, float]:
        return {"f": self.f, "m": self.m or 0}


@register_strategy
class Krum(MultiKrum):
    """The one update that is nearest to its neighbours. See `MultiKrum`."""

    name = "krum"

    def __init__(self, f: int = 1) -> None:
        super().__init__(f, m=1)
