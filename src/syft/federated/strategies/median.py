"""Coordinate-wise median: Yin, Chen, Kannan, Bartlett 2018, "Byzantine-Robust Distributed Learning: Towards
Optimal Statistical Rates", algorithm 1, option I."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from syft.federated.aggregation import Updates
from syft.federated.strategies.base import Strategy, register_strategy


@register_strategy
class Median(Strategy):
    """The median of every number by itself: fewer than half of the clients cannot move it out of the others' range.

    All clients weigh alike, since a number of examples is no more to be believed than an update.
    """

    name = "median"
    needs_single_updates = True

    def step(self, updates: Updates, optimizer_args: Mapping[str, Any]) -> Tensor:
        # Definition 1; of an even number of values the middle two are averaged.
        ordered = updates.stacked().sort(dim=0).values
        half = len(ordered) // 2
        return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2
