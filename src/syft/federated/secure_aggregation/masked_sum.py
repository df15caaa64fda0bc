"""`MaskedSum`: a whole round of pairwise-masked summation in one process, for the Trainer's `aggregation`.

One duty: to play server and clients against each other over serialised messages, drop-outs included. It is the
protocol, byte for byte; what it cannot show is the separation, because one process has all the updates to begin with.
Imports the files above it in the list of this package.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch

from syft import serde
from syft.federated.secure_aggregation.client import Noise, SecureClient
from syft.federated.secure_aggregation.graph import SparseGraph
from syft.federated.secure_aggregation.keys import Identity
from syft.federated.secure_aggregation.server import SecureServer
from syft.federated.secure_aggregation.setting import RoundSetting, Weighing

#: The steps of a round, as `dropouts` is told of them.
STEPS = ("keys", "shares", "input", "confirmation", "unmasking")

Dropouts = Callable[[str, tuple[str, ...]], Collection[str]]

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class RoundReport:
    """What is known after a round, beside the sum."""

    survivors: tuple[str, ...]
    """Whose updates are in the sum."""
    dropped: tuple[str, ...]
    """Whose are not."""
    weight: float
    """The sum of the survivors' weights."""
    clamped: int
    """Values outside the declared range, all clients together. Only a simulation can know it."""
    to_server: int
    """Bytes that all clients sent together."""
    from_server: int
    """Bytes that all clients were sent together."""


class MaskedSum:
    """Sums updates so that the server sees the sum, the total weight, and who took part.

    threshold      how many clients must stay for anything to be opened: a number, or a fraction of those of a round
                   (0.6: sixty percent, rounded up); more than two thirds of them if not given
    clip           values are clamped to [-clip, clip], and it is logged when some were
    max_weight     the largest weight
    fraction_bits  precision; the finest for which the sum has room if not given
    word_bits      of a number that travels: 64, or 2 to 32; "fit" for as few as `fraction_bits` and the sum need
    sparse         a `SparseGraph`: clients share keys with some others only, so that thousands can take part
    signed         with signatures on keys and survivors; keys are made for the simulation
    noise          noise that every client adds to its words (see `syft.dp.federated`), within `noise_reach`
    dropouts       for simulation: called with a step (one of STEPS) and who is still there; whom it returns is gone
                   before sending its message of that step
    """

    def __init__(
        self,
        threshold: int | float | None = None,
        *,
        clip: float = 1024.0,
        max_weight: float = 2.0**20,
        fraction_bits: int | None = None,
        word_bits: int | Literal["fit"] = 64,
        sparse: SparseGraph | None = None,
        signed: bool = False,
        noise: Noise | None = None,
        noise_reach: int = 0,
        dropouts: Dropouts | None = None,
    ) -> None:
        if isinstance(threshold, bool) or not isinstance(threshold, int | float | None):
            raise TypeError(
                f"MaskedSum was given threshold={threshold!r}: it is a number of clients, or a fraction of them."
            )
        if isinstance(threshold, float) and not 0.5 < threshold <= 1.0:
            raise ValueError(f"A threshold as a fraction is above 0.5 and at most 1.0, got {threshold}.")
        self.threshold, self.dropouts = threshold, dropouts
        self.noise, self.noise_reach = noise, noise_reach
        self.clip, self.max_weight = clip, max_weight
        self.fraction_bits, self.signed = fraction_bits, signed
        if sparse is not None and not isinstance(sparse, SparseGraph):
            raise TypeError(
                f"MaskedSum was given sparse={sparse!r}: it is a SparseGraph(colluding=..., dropping=...)."
            )
        if not isinstance(signed, bool):
            raise TypeError(f"MaskedSum was given signed={signed!r}: it is True or False.")
        if word_bits != "fit" and (isinstance(word_bits, bool) or not isinstance(word_bits, int)):
            raise TypeError(
                f"MaskedSum was given word_bits={word_bits!r}: it is 64, a number from 2 to 32, or 'fit'."
            )
        self.word_bits: int | Literal["fit"] = word_bits
        self.sparse = sparse
        self.report: RoundReport | None = None
        """Of the last round, if it came to a sum."""

    def weighted_sum(self, updates: Mapping[str, torch.Tensor], weights: Mapping[str, float]) -> torch.Tensor:
        """The sum of weight * update over the clients that stayed; `report` says who, and their total weight."""
        self.report = None
        length, dtype = check_updates(updates, weights)
        self.before_sum(length, weights)
        setting = self.setting(len(updates), length)
        trip = _Trip()
        server = SecureServer(setting, updates)
        identities = _identities(updates) if self.signed else {}
        clients = {
            name: SecureClient(name, setting, identity=identities.get(name)) for name in sorted(updates)
        }
        present = set(clients)

        def still(step: str, expected: Iterable[str]) -> list[str]:
            if self.dropouts is not None:
                present.difference_update(self.dropouts(step, tuple(sorted(present))))
            return sorted(present & set(expected))

        for name in still("keys", clients):
            server.receive(trip.up(clients[name].advertise_keys()))
        rosters = server.rosters()
        for name in still("shares", rosters):
            server.receive(trip.up(clients[name].share_keys(trip.down(rosters[name]))))
        deliveries = server.deliveries()
        for name in still("input", deliveries):
            message = clients[name].masked_input(
                trip.down(deliveries[name]), updates[name], weights[name], noise=self.noise
            )
            server.receive(trip.up(message))
        survivors = server.survivor_lists()
        confirmations = None
        if self.signed:
            for name in still("confirmation", survivors):
                server.receive(trip.up(clients[name].confirm(trip.down(survivors[name]))))
            confirmations = server.confirmations()
        for name in still("unmasking", server.waiting_for()):
            told = None if confirmations is None else trip.down(confirmations)
            server.receive(trip.up(clients[name].unmask(trip.down(survivors[name]), told)))
        found = server.result()
        clamped = sum(clients[name].clamped for name in found.survivors)
        if clamped:
            _log.warning(
                "%d of %d values were outside the declared range of +-%g and were clamped to it: declare a larger clip.",
                clamped,
                length * len(found.survivors),
                self.clip,
            )
        dropped = tuple(sorted(set(updates) - set(found.survivors)))
        self.report = RoundReport(
            found.survivors, dropped, found.weight, clamped, trip.to_server, trip.from_server
        )
        return found.total.to(dtype)

    def before_sum(self, length: int, weights: Mapping[str, float]) -> None:
        """Called before updates of so many numbers leave their clients. Nothing to do here."""

    def step_for(self, clients: int) -> float:
        """Numbers of a client of weight 1 are rounded to multiples of it, in a round of so many clients."""
        return 1.0 / self.setting(clients, 1).encoding.units

    def setting(
        self, clients: int, length: int, context: bytes = b"", weighing: Weighing = ""
    ) -> RoundSetting:
        """The setting of a round of so many clients and so long updates."""
        threshold = (
            math.ceil(self.threshold * clients) if isinstance(self.threshold, float) else self.threshold
        )
        return RoundSetting.new(
            clients,
            length,
            threshold=threshold,
            clip=self.clip,
            max_weight=self.max_weight,
            fraction_bits=self.fraction_bits,
            noise_reach=self.noise_reach,
            signed=self.signed,
            context=context,
            weighing=weighing,
            word_bits=self.word_bits,
            sparse=self.sparse,
        )


class _Trip:
    """Every message goes through bytes, which are counted."""

    def __init__(self) -> None:
        self.to_server = self.from_server = 0

    def up(self, message: Any) -> Any:
        data = serde.serialize(message)
        self.to_server += len(data)
        return serde.deserialize(data)

    def down(self, message: Any) -> Any:
        data = serde.serialize(message)
        self.from_server += len(data)
        return serde.deserialize(data)


def _identities(names: Iterable[str]) -> dict[str, Identity]:
    pairs = {name: Identity.new_key() for name in names}
    trusted = {name: public for name, (_private, public) in pairs.items()}
    return {name: Identity(private, trusted) for name, (private, _public) in pairs.items()}


def check_updates(
    updates: Mapping[str, torch.Tensor], weights: Mapping[str, float]
) -> tuple[int, torch.dtype]:
    """The length and dtype that all updates have; !! ValueError."""
    if len(updates) < 2:
        raise ValueError(
            f"A secure sum needs the updates of 2 clients or more to hide one among others; {len(updates)} were given."
        )
    if set(updates) != set(weights):
        raise ValueError(
            f"Every update has a weight: {sorted(set(updates) ^ set(weights))} have only one of the two."
        )
    kinds = {(tuple(update.shape), update.dtype) for update in updates.values()}
    if len(kinds) > 1:
        raise ValueError(f"Updates that are summed have one shape and dtype, got {sorted(map(str, kinds))}.")
    ((shape, dtype),) = kinds
    if len(shape) != 1 or not shape[0] or not dtype.is_floating_point:
        raise ValueError(
            f"An update is a flat floating-point tensor of 1 number or more, got shape {shape} of {dtype}."
        )
    return shape[0], dtype
