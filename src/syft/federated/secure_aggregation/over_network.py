"""`NetworkMaskedSum`: secure aggregation with workers on a network, as the Trainer's `aggregation`.

One duty: to drive `SecureServer` with the answers of workers, all of them at the same time. The updates are at the
workers, which mask them themselves (`kept_updates`); nothing else of them comes here. A worker that is late, dies, or
answers what it must not is left out of the sum, at any step. Imports `aggregation`, `engines`, `network_clients`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec
import torch
from torch import Tensor

from syft.federated.aggregation import Aggregation, PlainSum, Privacy, RemotePrivacy, check_private_sum
from syft.federated.engines.base import Engine, Task
from syft.federated.network_clients import NetworkClient
from syft.federated.records import ClientFailure, PrivateContribution
from syft.federated.secure_aggregation.errors import ProtocolViolationError, SecureAggregationError
from syft.federated.secure_aggregation.masked_sum import MaskedSum
from syft.federated.secure_aggregation.server import SecureServer
from syft.federated.secure_aggregation.setting import Weighing
from syft.federated.secure_aggregation.shares import ShareAggregation


@dataclass(frozen=True)
class NetworkSumReport:
    """What is known after a round, beside the sum."""

    survivors: tuple[str, ...]
    """Whose updates are in the sum."""
    dropped: tuple[str, ...]
    """Whose are not."""
    weight: float
    """The sum of the survivors' weights."""
    why: Mapping[str, str] = field(default_factory=dict)
    """Why those who are missing are."""


@dataclass(frozen=True)
class _StepTask(Task):
    """One worker's part of one step."""

    step: str = ""
    content: Any = None
    weight: float = 1.0

    def run(self) -> Any:
        return self.client.secure_step(self.step, self.content, self.weight)


class NetworkMaskedSum:
    """Sums updates that stay at their workers. Made by `for_clients`."""

    leaves_updates = True

    def __init__(
        self,
        settings: MaskedSum,
        clients: Mapping[str, NetworkClient],
        engine: Engine,
        deadline: float | None,
        length: int,
        dtype: torch.dtype,
    ) -> None:
        self.settings, self.clients, self.engine, self.deadline = settings, clients, engine, deadline
        self.length, self.dtype = length, dtype
        self.max_weight = settings.max_weight
        self._fraction_bits: int | None = None
        self.report: NetworkSumReport | None = None
        """Of the last round, if it came to a sum."""

    def step_for(self, clients: int) -> float:
        """As of the masked sum that this one is made of, with all clients that are asked."""
        return self.settings.step_for(clients)

    def contribution(self, privacy: RemotePrivacy, clients: int) -> PrivateContribution:
        """What the clients of a round do with their updates. The round is summed on that grid. !! ValueError"""
        found = privacy.contribution(self.length, self.step_for(clients), self.dtype)
        # NB: the aggregation may be finer; not coarser, which `contribution` refuses.
        self._fraction_bits = 1 - math.frexp(found.step)[1]
        return found

    def weighted_sum(self, updates: Mapping[str, Tensor], weights: Mapping[str, float]) -> Tensor:
        """The sum of weight * update of the workers of these names, which have the updates."""
        self.report = None
        if len(updates) < 2:
            raise ValueError(
                f"A secure sum needs the updates of 2 clients or more to hide one among others; {len(updates)} arrived. "
                "Run the round again with more clients."
            )
        context = self.clients[next(iter(updates))].context()
        weighing: Weighing = "alike" if set(weights.values()) == {1.0} else "examples"
        self.settings.before_sum(self.length, weights)
        setting = self.settings.setting(len(updates), self.length, context, weighing)
        if self._fraction_bits is not None:
            # Updates were clipped for the grid of all who were asked, however many came.
            setting = msgspec.structs.replace(setting, fraction_bits=self._fraction_bits)
        server = SecureServer(setting, updates)
        why: dict[str, str] = {}
        try:
            self._collect(server, why, "keys", dict.fromkeys(updates, setting))
            self._collect(server, why, "shares", server.rosters())
            self._collect(server, why, "input", server.deliveries(), weights)
            survivors = server.survivor_lists()
            confirmations = None
            if setting.signed:
                self._collect(server, why, "confirmation", survivors)
                confirmations = server.confirmations()
            told = {name: (survivors[name], confirmations) for name in server.waiting_for()}
            self._collect(server, why, "unmasking", told)
            found = server.result()
        except SecureAggregationError as error:
            for name, reason in why.items():
                error.add_note(f"{name}: {reason}")
            raise
        dropped = tuple(sorted(set(updates) - set(found.survivors)))
        self.report = NetworkSumReport(found.survivors, dropped, found.weight, why)
        return found.total.to(self.dtype)

    def _collect(
        self,
        server: SecureServer,
        why: dict[str, str],
        step: str,
        contents: Mapping[str, Any],
        weights: Mapping[str, float] | None = None,
    ) -> None:
        """Ask everybody for a step at the same time, and hand the server what comes."""
        tasks: list[Task] = [
            _StepTask(name, self.clients[name], None, step, content, (weights or {}).get(name, 1.0))  # type: ignore[arg-type]
            for name, content in sorted(contents.items())
        ]
        for outcome in self.engine.run(tasks, self.deadline):
            value = outcome.value
            if isinstance(value, ClientFailure):
                why[outcome.name] = f"At the step {step!r}: {value.why}"
                continue
            try:
                if getattr(value, "client", None) != outcome.name:
                    raise ProtocolViolationError(
                        f"It answered with a {type(value).__name__} that is not its own."
                    )
                server.receive(value)
            except ProtocolViolationError as error:
                why[outcome.name] = f"At the step {step!r}: {error}"


def for_clients(
    aggregation: Aggregation,
    clients: Mapping[str, Any],
    engine: Engine,
    deadline: float | None,
    length: int,
    dtype: torch.dtype,
    privacy: Privacy | None,
) -> Aggregation:
    """The aggregation as it is done with these clients: with workers on a network, a masked sum is made at the workers.

    !! ValueError for what would show updates here that were to be hidden, or longer than privacy has clipped them
    """
    if privacy is not None:
        check_private_sum(aggregation, privacy)
    remote = {name: client for name, client in clients.items() if isinstance(client, NetworkClient)}
    if not remote or type(aggregation) is PlainSum:
        return aggregation
    if isinstance(aggregation, ShareAggregation):
        raise ValueError(
            "ShareAggregation splits updates that are here, and those of workers on a network would have to come here "
            "first. Use MaskedSum, which hides them at the workers."
        )
    if not isinstance(aggregation, MaskedSum):
        return aggregation
    if len(remote) < len(clients):
        raise ValueError(
            f"{len(remote)} of {len(clients)} clients are workers on a network, and the others are in this process. In a "
            "masked sum all of them hide their updates from this process, or none needs to: use one kind."
        )
    if privacy is None and aggregation.noise is not None:
        raise ValueError(
            "This masked sum has noise that is Python code of this process, and over a network workers add their own: "
            "give the Trainer the privacy too that the aggregation was made by, privacy=DistributedPrivacy(...)."
        )
    if aggregation.dropouts is not None:
        raise ValueError("dropouts=... is for simulations; workers on a network drop out by themselves.")
    for client in remote.values():
        client.keeps_updates = True
    made = NetworkMaskedSum(aggregation, remote, engine, deadline, length, dtype)
    if privacy is not None:
        check_private_sum(made, privacy)
        has_noise = private_contribution(made, privacy, len(clients)).variance > 0  # type: ignore[union-attr]
        if has_noise != (aggregation.noise is not None):
            raise ValueError(
                f"{type(privacy).__name__} and the masked sum do not belong together: one of them has clients add noise. "
                "Give the Trainer aggregation=privacy.aggregation() with DistributedPrivacy, MaskedSum() with "
                "ClientPrivacy."
            )
    return made


def private_contribution(
    aggregation: Aggregation, privacy: Privacy | None, clients: int
) -> PrivateContribution | None:
    """What clients of a round are told about their updates, where those stay with them. !! ValueError"""
    if not isinstance(aggregation, NetworkMaskedSum) or not isinstance(privacy, RemotePrivacy):
        return None
    return aggregation.contribution(privacy, clients)
