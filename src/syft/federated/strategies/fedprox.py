"""FedProx: Li, Sahu, Zaheer, Sanjabi, Talwalkar, Smith 2020, "Federated Optimization in Heterogeneous Networks"."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from syft.federated.strategies.base import LocalRule, check_range, register_strategy
from syft.federated.strategies.fedavg import FedAvg


@register_strategy
class FedProx(FedAvg):
    """FedAvg, with clients that are pulled back to the round's model: they minimise F_k(w) + mu/2 |w - w_t|^2.

    mu   the pull. 0 is FedAvg; clients whose data differ much want 0.01 to 1
    """

    name = "fedprox"

    def __init__(self, mu: float = 0.1, server_lr: float = 1.0) -> None:
        super().__init__(server_lr)
        check_range(self, "mu", mu, 0)
        self.mu = mu

    def local_rule(self, client: str, optimizer_args: Mapping[str, Any]) -> LocalRule:
        return LocalRule(proximal_mu=float(self.mu))  # equation 2; its gradient is in `local_training`

    def settings(self) -> dict[str, float]:
        return {**super().settings(), "mu": self.mu}
