"""FedYogi: Reddi et al. 2021, algorithm 2."""

from __future__ import annotations

from torch import Tensor

from syft.federated.strategies.adaptive import Adaptive
from syft.federated.strategies.base import register_strategy


@register_strategy
class FedYogi(Adaptive):
    """Yogi at the server: like Adam, but its memory of squares changes by steps of bounded size. See `Adaptive`."""

    name = "fedyogi"

    def __init__(
        self, server_lr: float = 0.1, beta1: float = 0.9, beta2: float = 0.99, tau: float = 1e-3
    ) -> None:
        super().__init__(server_lr, beta1, beta2, tau)

    def second_moment(self, v: Tensor, square: Tensor) -> Tensor:
        # v_t = v_{t-1} - (1 - b2) D_t^2 sign(v_{t-1} - D_t^2)
        return v - (1 - self.beta2) * square * (v - square).sign()
