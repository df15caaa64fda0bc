"""FedAvg: McMahan, Moore, Ramage, Hampson, Agüera y Arcas 2017, "Communication-Efficient Learning of Deep
Networks from Decentralized Data"."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from syft.federated.aggregation import Updates
from syft.federated.strategies.base import Strategy, check_range, register_strategy


@register_strategy
class FedAvg(Strategy):
    """The mean of the clients' models, weighted by their numbers of examples.

    server_lr   how much of the way to that mean the parameters go (1: all of it, as in the paper)
    """

    name = "fedavg"

    def __init__(self, server_lr: float = 1.0) -> None:
        check_range(self, "server_lr", server_lr, 0, open_low=True)
        self.server_lr = server_lr

    def step(self, updates: Updates, optimizer_args: Mapping[str, Any]) -> Tensor:
        # Algorithm 1: w <- sum_k (n_k / n) w_k, as a difference
        step = updates.mean()
        if self.server_lr != 1.0:
            step[: self.layout.trainable] *= self.server_lr
        return step

    def settings(self) -> dict[str, float]:
        return {"server_lr": self.server_lr}
