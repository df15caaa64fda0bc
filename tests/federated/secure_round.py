"""A round of secure aggregation played step by step, with everything that the server was sent kept."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from syft.federated.secure_aggregation import Identity, RoundSetting, SecureClient, SecureServer
from syft.federated.secure_aggregation.messages import MaskedInput, Survivors, UnmaskingShares


def names(count: int) -> list[str]:
    return [f"client-{number:02}" for number in range(count)]


def seeded(*seed: Any) -> Callable[[int], bytes]:
    """Bytes that follow from a seed, in the place of the operating system's. For tests only."""
    state = hashlib.shake_256(repr(seed).encode())
    position = 0

    def draw(count: int) -> bytes:
        nonlocal position
        position += count
        return state.digest(position)[-count:]

    return draw


def identities(people: Iterable[str]) -> dict[str, Identity]:
    pairs = {name: Identity.new_key() for name in people}
    trusted = {name: public for name, (_private, public) in pairs.items()}
    return {name: Identity(private, trusted) for name, (private, _public) in pairs.items()}


@dataclass
class Played:
    """Everybody after the inputs have arrived, before anything is opened."""

    setting: RoundSetting
    server: SecureServer
    clients: dict[str, SecureClient]
    inputs: dict[str, MaskedInput]
    survivors: Survivors
    answers: dict[str, UnmaskingShares] = field(default_factory=dict)

    def unmask(self, answering: Iterable[str] | None = None) -> Any:
        for name in self.survivors.clients if answering is None else answering:
            self.answers[name] = self.clients[name].unmask(self.survivors)
            self.server.receive(self.answers[name])
        return self.server.result()


def play(
    updates: Mapping[str, torch.Tensor],
    *,
    silent: Iterable[str] = (),
    entropy: Callable[[str], Callable[[int], bytes]] | None = None,
    setting: RoundSetting | None = None,
    **options: Any,
) -> Played:
    """Up to the list of survivors; `silent` share their keys and then send no input."""
    length = next(iter(updates.values())).numel()
    setting = setting or RoundSetting.new(len(updates), length, **options)
    server = SecureServer(setting, updates)
    extra = {name: {} if entropy is None else {"entropy": entropy(name)} for name in updates}
    clients = {name: SecureClient(name, setting, **extra[name]) for name in updates}
    for client in clients.values():
        server.receive(client.advertise_keys())
    roster = server.roster()
    for client in clients.values():
        server.receive(client.share_keys(roster))
    deliveries = server.deliveries()
    inputs = {
        name: clients[name].masked_input(deliveries[name], updates[name])
        for name in updates
        if name not in set(silent)
    }
    for message in inputs.values():
        # NB: the server adds up what it is given; tests look at the vectors afterwards.
        server.receive(message)
    return Played(setting, server, clients, inputs, server.survivors())
