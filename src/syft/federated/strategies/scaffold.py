"""SCAFFOLD: Karimireddy, Kale, Mohri, Reddi, Stich, Suresh 2020, "SCAFFOLD: Stochastic Controlled Averaging for
Federated Learning", algorithm 1 with option II.

NOTE [Who keeps the control variates]
The server does, all of them: c_i+ = c_i - c + (x - y_i) / (K eta) is made of numbers that the server has, so
clients need no memory, may fail or be replaced, and nothing but the update has to come back. A client is sent
c - c_i, which is all that its steps need. The server therefore sees single updates, and secure aggregation and
private sums are refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from syft.federated.aggregation import Updates
from syft.federated.strategies.base import LocalRule, Strategy, check_range, register_strategy

_OF_CLIENT = "client/"


@register_strategy
class Scaffold(Strategy):
    """Every client's steps are corrected by how its gradients differ from everybody's. Clients weigh alike.

    server_lr   eta_g of the paper
    """

    name = "scaffold"
    needs_single_updates = True

    def __init__(self, server_lr: float = 1.0) -> None:
        check_range(self, "server_lr", server_lr, 0, open_low=True)
        self.server_lr = server_lr
        self._c: Tensor | None = None
        self._c_of: dict[str, Tensor] = {}

    def change_clients(self, clients: Sequence[str]) -> None:
        super().change_clients(clients)
        self._c_of = {name: c_i for name, c_i in self._c_of.items() if name in self.clients}
        if self._c is not None and clients:
            # c is the mean of all c_i, which are zero at first.
            self._c = sum(self._c_of.values(), torch.zeros_like(self._c)) / len(clients)

    def check_training(self, optimizer: str, optimizer_args: Mapping[str, Any]) -> None:
        extra = [key for key in ("momentum", "weight_decay", "maximize") if optimizer_args.get(key)]
        if optimizer != "SGD" or extra or not float(optimizer_args.get("lr", 0.0)) > 0:
            found = f"{optimizer} with {dict(optimizer_args)}"
            raise ValueError(
                f"Scaffold reads clients' gradients off plain SGD steps, and they train with {found}. Use "
                "optimizer='SGD' with nothing but a positive lr."
            )

    def local_rule(self, client: str, optimizer_args: Mapping[str, Any]) -> LocalRule:
        if self._c is None:
            return LocalRule()
        correction = self._c - self._c_of.get(client, torch.zeros_like(self._c))
        return LocalRule(correction=self.layout.unflatten(correction))

    def step(self, updates: Updates, optimizer_args: Mapping[str, Any]) -> Tensor:
        eta, n = float(optimizer_args["lr"]), self.layout.trainable
        single, step = updates.single(), updates.mean(weighted=False)
        c = self._c if self._c is not None else next(iter(single.values())).new_zeros(n)
        change = torch.zeros_like(c)
        for client, update in single.items():
            c_i = self._c_of.get(client, torch.zeros_like(c))
            # Line 12, option II: c_i+ = c_i - c + (x - y_i) / (K eta)
            new = c_i - c - update[:n] / (updates.results[client].steps * eta)
            change += new - c_i
            self._c_of[client] = new
        # Lines 16 and 17: x <- x + eta_g/|S| sum (y_i - x);  c <- c + 1/N sum (c_i+ - c_i)
        self._c = c + change / len(self.clients)
        step[:n] *= self.server_lr
        return step

    def settings(self) -> dict[str, float]:
        return {"server_lr": self.server_lr}

    def state(self) -> dict[str, Tensor]:
        if self._c is None:
            return {}
        return {"c": self._c} | {_OF_CLIENT + name: c_i for name, c_i in self._c_of.items()}

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        length = self.layout.trainable
        known = {"c"} | {_OF_CLIENT + name for name in self.clients}
        if not state.keys() <= known or any(t.shape != (length,) for t in state.values()):
            found = {
                name: tuple(t.shape) for name, t in state.items() if name not in known
            } or "other lengths"
            raise ValueError(
                f"Scaffold remembers c and one vector for each of its clients, {length} numbers each; it was "
                f"given {found}. Resume with the clients of the checkpoint."
            )
        self._c = state.get("c")
        self._c_of = {
            name.removeprefix(_OF_CLIENT): c_i for name, c_i in state.items() if name.startswith(_OF_CLIENT)
        }
