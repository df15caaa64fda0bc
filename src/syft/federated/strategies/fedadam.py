"""FedAdam: Reddi et al. 2021, algorithm 2."""

from __future__ import annotations

from torch import Tensor

from syft.federated.strategies.adaptive import Adaptive
from syft.federated.strategies.base import register_strategy


@register_strategy
class FedAdam(Adaptive):
    """Adam at the server, without bias correction, as in the paper. See `Adaptive`."""

    name = "fedadam"

    def __init__(
        self, server_lr: float = 0.1, beta1: float = 0.9, beta2: float = 0.99, tau: float = 1e-3
    ) -> None:
        super().__init__(server_lr, beta1, beta2, tau)

    def second_moment(self, v: Tensor, square: Tensor) -> Tensor:
        return self.beta2 * v + (1 - self.beta2) * square  # v_t = b2 v_{t-1} + (1 - b2) D_t^2
