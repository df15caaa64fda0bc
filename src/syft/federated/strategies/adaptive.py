"""An optimizer at the server: Reddi, Charles, Zaheer, Garrett, Rush, Konečný, Kumar, McMahan 2021, "Adaptive
Federated Optimization", algorithm 2. What its three variants share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from syft.federated.aggregation import Updates
from syft.federated.strategies.base import Strategy, check_range


class Adaptive(Strategy):
    """The mean update is taken for a gradient. Buffers are averaged.

    server_lr   eta, the step
    beta1       how long the mean of updates (m) remembers
    beta2       how long the mean of their squares (v) remembers
    tau         the degree of adaptivity: small is more
    """

    def __init__(self, server_lr: float, beta1: float, beta2: float, tau: float) -> None:
        check_range(self, "server_lr", server_lr, 0, open_low=True)
        check_range(self, "beta1", beta1, 0, 1)
        check_range(self, "beta2", beta2, 0, 1)
        check_range(self, "tau", tau, 0, open_low=True)
        self.server_lr, self.beta1, self.beta2, self.tau = server_lr, beta1, beta2, tau
        self._m: Tensor | None = None
        self._v: Tensor | None = None

    def second_moment(self, v: Tensor, square: Tensor) -> Tensor:
        """v_t from v_{t-1} and the squared mean update."""
        raise NotImplementedError(f"{type(self).__name__} has no second_moment(v, square).")

    def step(self, updates: Updates, optimizer_args: Mapping[str, Any]) -> Tensor:
        mean = updates.mean()
        delta = mean[: self.layout.trainable]
        m = torch.zeros_like(delta) if self._m is None else self._m
        v = torch.full_like(delta, self.tau**2) if self._v is None else self._v  # v_{-1} >= tau^2
        # Algorithm 2: m_t = b1 m_{t-1} + (1 - b1) D_t;  x_{t+1} = x_t + eta m_t / (sqrt(v_t) + tau)
        self._m = self.beta1 * m + (1 - self.beta1) * delta
        self._v = self.second_moment(v, delta * delta)
        step = mean.clone()
        step[: self.layout.trainable] = self.server_lr * self._m / (self._v.sqrt() + self.tau)
        return step

    def settings(self) -> dict[str, float]:
        return {"server_lr": self.server_lr, "beta1": self.beta1, "beta2": self.beta2, "tau": self.tau}

    def state(self) -> dict[str, Tensor]:
        return {} if self._m is None or self._v is None else {"m": self._m, "v": self._v}

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        if not state:
            self._m = self._v = None
            return
        length = self.layout.trainable
        if set(state) != {"m", "v"} or any(t.shape != (length,) for t in state.values()):
            found = {name: tuple(t.shape) for name, t in state.items()}
            raise ValueError(
                f"{type(self).__name__} remembers m and v, {length} numbers each; it was given {found}."
            )
        self._m, self._v = state["m"], state["v"]
