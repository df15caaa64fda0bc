"""FedAdagrad: Reddi et al. 2021, algorithm 2."""

from __future__ import annotations

from torch import Tensor

from syft.federated.strategies.adaptive import Adaptive
from syft.federated.strategies.base import register_strategy


@register_strategy
class FedAdagrad(Adaptive):
    """Adagrad at the server: steps shrink for numbers that have moved much. See `Adaptive`."""

    name = "fedadagrad"

    def __init__(self, server_lr: float = 0.1, beta1: float = 0.0, tau: float = 1e-3) -> None:
        super().__init__(server_lr, beta1, 0.0, tau)

    def second_moment(self, v: Tensor, square: Tensor) -> Tensor:
        return v + square  # v_t = v_{t-1} + D_t^2
