"""`SecureServer`: the server's part in one round of secure aggregation, without I/O.

One duty: collect, pass on, and recover the sum from what is left after drop-outs (Bonawitz et al. 2017, figure 4).
It adds masked inputs up as they come and keeps none of them. Imports the files above it in the list of this package.

Between two steps the server waits as long as it likes for `receive(message)`; the method that ends a step says who is
in the next one, or raises `TooFewClientsError`. A message that is late, repeated or foreign raises
`ProtocolViolationError` and changes nothing: the round can go on without it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache
from typing import Any

import torch

from syft.federated.secure_aggregation.client import transcript
from syft.federated.secure_aggregation.errors import (
    ProtocolViolationError,
    SecureAggregationError,
    TooFewClientsError,
)
from syft.federated.secure_aggregation.graph import circle, share_places, window
from syft.federated.secure_aggregation.keys import KeyPair
from syft.federated.secure_aggregation.masks import pair_seed, pair_sign, self_seed
from syft.federated.secure_aggregation.messages import (
    AdvertisedKeys,
    Confirmation,
    Confirmations,
    Delivery,
    MaskedInput,
    Roster,
    SealedShares,
    Survivors,
    UnmaskingShares,
)
from syft.federated.secure_aggregation.setting import RoundSetting
from syft.federated.secure_aggregation.shamir import lagrange, recover, share_value
from syft.federated.secure_aggregation.words import Words, packed_like


@dataclass(frozen=True)
class SecureSum:
    """All that a round opens."""

    total: torch.Tensor
    """The sum of weight * update over the survivors, in double precision."""
    weight: float
    """The sum of their weights."""
    survivors: tuple[str, ...]
    dropped: tuple[str, ...]
    """Who shared keys and sent no input."""


class Stage(IntEnum):
    """What the server is collecting."""

    KEYS = 0
    SHARES = 1
    INPUTS = 2
    CONFIRMATIONS = 3
    UNMASKING = 4
    OVER = 5


class SecureServer:
    """Call, in this order: `roster`, `deliveries`, `survivors`, [`confirmations`,] `result`; `receive` in between."""

    def __init__(self, setting: RoundSetting, clients: Iterable[str]) -> None:
        self.setting = setting
        self._invited = frozenset(clients)
        if not setting.threshold <= len(self._invited) <= setting.clients:
            raise ValueError(
                f"{len(self._invited)} clients were invited to a round for {setting.threshold} (its threshold) to "
                f"{setting.clients} clients."
            )
        self._stage = Stage.KEYS
        self._keys: dict[str, AdvertisedKeys] = {}
        self._sealed: dict[str, dict[str, bytes]] = {}
        self._transcript = b""
        self._arrived: set[str] = set()
        self._sum = Words(setting)
        #: By client: who holds shares of its secrets, itself included, at which places. Symmetric.
        self._holders: dict[str, Mapping[str, int]] = {}
        self._confirmed: dict[str, Confirmation] = {}
        self._answers: dict[str, UnmaskingShares] = {}

    # -- in ----------------------------------------------------------------------------------------------

    def receive(self, message: Any) -> None:
        """Take one client's message of the current step."""
        stage, take = _TAKES.get(type(message), (None, None))
        if stage is None or take is None:
            raise ProtocolViolationError(f"A server of secure aggregation takes no {type(message).__name__}.")
        kind = type(message).__name__
        if message.round != self.setting.round:
            raise ProtocolViolationError(
                f"{message.client!r} sent a {kind} of round {message.round.hex()} to the server of round "
                f"{self.setting.round.hex()}."
            )
        if stage is not self._stage:
            raise ProtocolViolationError(
                f"{message.client!r} sent a {kind} while the server was collecting {self._stage.name.lower()}: it is "
                "late, or early, and is not taken."
            )
        expected = self._expected()
        if message.client not in expected:
            raise ProtocolViolationError(
                f"{message.client!r} sent a {kind} and is not among the {len(expected)} clients who may, at this step."
            )
        if message.client in self._heard():
            raise ProtocolViolationError(f"{message.client!r} sent a {kind} twice.")
        take(self, message)

    def waiting_for(self) -> tuple[str, ...]:
        """Who may still send a message of the current step."""
        return tuple(sorted(self._expected() - self._heard()))

    def _take_keys(self, message: AdvertisedKeys) -> None:
        self._keys[message.client] = message

    def _take_shares(self, message: SealedShares) -> None:
        others = set(self._holders[message.client]) - {message.client}
        if set(message.sealed) != others:
            raise ProtocolViolationError(
                f"{message.client!r} sealed shares for {len(message.sealed)} clients, and not for each of the "
                f"{len(others)} others of the roster."
            )
        self._sealed[message.client] = message.sealed

    def _take_input(self, message: MaskedInput) -> None:
        vector, (dtype, length) = message.vector, packed_like(self.setting)
        if vector.dtype != dtype or vector.shape != (length,):
            raise ProtocolViolationError(
                f"{message.client!r} sent a masked input of shape {tuple(vector.shape)} and {vector.dtype}; it is a "
                f"vector of {length} {str(dtype).removeprefix('torch.')} words."
            )
        self._sum.add_packed(vector)
        self._arrived.add(message.client)

    def _take_confirmation(self, message: Confirmation) -> None:
        self._confirmed[message.client] = message

    def _take_unmasking(self, message: UnmaskingShares) -> None:
        held = self._sealed.keys() & self._holders[message.client].keys()
        dropped, stayed = held - self._arrived, held & self._arrived
        if set(message.mask_keys) != dropped or set(message.self_masks) != stayed:
            raise ProtocolViolationError(
                f"{message.client!r} sent {len(message.mask_keys)} shares of mask keys and {len(message.self_masks)} "
                f"of self masks; {len(dropped)} clients dropped out and {len(stayed)} did not."
            )
        for share in (*message.mask_keys.values(), *message.self_masks.values()):
            share_value(share)
        self._answers[message.client] = message

    def _expected(self) -> frozenset[str]:
        """Who may send a message of the current step."""
        last: Iterable[str] = self._confirmed if self.setting.signed else self._arrived
        may: dict[Stage, Iterable[str]] = {
            Stage.KEYS: self._invited,
            Stage.SHARES: self._keys,
            Stage.INPUTS: self._sealed,
            Stage.CONFIRMATIONS: self._arrived,
            Stage.UNMASKING: last,
        }
        return frozenset(may.get(self._stage, ()))

    def _heard(self) -> frozenset[str]:
        """Who has sent it."""
        have: dict[Stage, Iterable[str]] = {
            Stage.KEYS: self._keys,
            Stage.SHARES: self._sealed,
            Stage.INPUTS: self._arrived,
            Stage.CONFIRMATIONS: self._confirmed,
            Stage.UNMASKING: self._answers,
        }
        return frozenset(have.get(self._stage, ()))

    # -- out ---------------------------------------------------------------------------------------------

    def roster(self) -> Roster:
        """To everybody who advertised keys."""
        self._close(Stage.KEYS, "advertised keys", len(self._keys))
        roster = Roster(self.setting.round, tuple(self._keys[name] for name in sorted(self._keys)))
        self._transcript = transcript(self.setting, roster)
        self._holders = dict.fromkeys(self._keys, share_places(sorted(self._keys)))
        return roster

    def rosters(self) -> dict[str, Roster]:
        """To each who advertised keys; in a sparse graph, its neighbours' only."""
        whole = self.roster()
        if not self.setting.neighbours:
            return dict.fromkeys(self._keys, whole)
        mark = self._transcript
        order = circle(mark, list(self._keys))
        found = {}
        for place, name in enumerate(order):
            near = window(order, place, self.setting.neighbours)
            self._holders[name] = share_places(near)
            keys = tuple(self._keys[other] for other in near)
            found[name] = Roster(self.setting.round, keys, len(order), mark)
        self._transcript = transcript(self.setting, found[order[0]])
        return found

    def deliveries(self) -> dict[str, Delivery]:
        """To each client that shared its keys, what the others sealed for it."""
        self._close(Stage.SHARES, "sent shares of their keys", len(self._sealed))
        return {
            name: Delivery(
                self.setting.round,
                name,
                {s: self._sealed[s][name] for s in self._holders[name] if s != name and s in self._sealed},
            )
            for name in sorted(self._sealed)
        }

    def survivors(self) -> Survivors:
        """To everybody whose input arrived."""
        self._close(Stage.INPUTS, "sent their masked input", len(self._arrived))
        if not self.setting.signed:
            self._stage = Stage.UNMASKING
        return Survivors(self.setting.round, tuple(sorted(self._arrived)))

    def survivor_lists(self) -> dict[str, Survivors]:
        """To each whose input arrived; in a sparse graph, those of its neighbours."""
        whole = self.survivors()
        if not self.setting.neighbours:
            return dict.fromkeys(whole.clients, whole)
        return {
            name: Survivors(
                self.setting.round,
                tuple(sorted(self._arrived & self._holders[name].keys())),
                len(self._arrived),
            )
            for name in whole.clients
        }

    def confirmations(self) -> Confirmations:
        """To everybody who confirmed (signed rounds only)."""
        self._close(Stage.CONFIRMATIONS, "confirmed the list of survivors", len(self._confirmed))
        return Confirmations(
            self.setting.round, tuple(self._confirmed[name] for name in sorted(self._confirmed))
        )

    def result(self) -> SecureSum:
        """The sum: what arrived, less the self masks of the survivors and the masks they had with the dropped."""
        self._close(Stage.UNMASKING, "helped to unmask the sum", len(self._answers))
        # Secrets whose shares are of the same places have the weights in common: all of them, where nobody is gone.
        weights = lru_cache(maxsize=64)(lagrange)

        def secret(what: str, of: str, shares: Callable[[UnmaskingShares], dict[str, bytes]]) -> bytes:
            places = self._holders[of]
            answering = [name for name in places if name in self._answers][: self.setting.opening]
            if len(answering) < self.setting.opening:
                raise TooFewClientsError(
                    f"of those who hold shares of {of!r} helped to unmask the sum",
                    len(answering),
                    self.setting.opening,
                )
            try:
                found = {places[name]: shares(self._answers[name])[of] for name in answering}
                return recover(found, weights(tuple(found)))
            except ProtocolViolationError as error:
                raise SecureAggregationError(
                    f"The shares of the {what} of {of!r} do not belong to one secret: {of!r} or one of the clients "
                    f"{', '.join(answering)} sent wrong ones. The sum cannot be opened."
                ) from error

        survivors = sorted(self._arrived)
        dropped = sorted(set(self._sealed) - self._arrived)
        seeds = [
            (
                -1,
                self_seed(
                    secret("self mask", name, lambda answer: answer.self_masks), self._transcript, name
                ),
            )
            for name in survivors
        ]
        for name in dropped:
            pair = KeyPair(secret("mask key", name, lambda answer: answer.mask_keys))
            if pair.public != self._keys[name].mask_key:
                raise SecureAggregationError(
                    f"The mask key of {name!r} that was recovered is not the one it advertised: it shared another "
                    "one. The sum cannot be opened."
                )
            for other in sorted(self._arrived & self._holders[name].keys()):
                agreed = pair.agree(self._keys[other].mask_key, other)
                seeds.append((-pair_sign(other, name), pair_seed(agreed, self._transcript, name, other)))
        self._sum.add_masks(seeds)
        words, weight = self._sum.total()
        encoding = self.setting.encoding
        return SecureSum(
            encoding.decode(words),
            encoding.decode_weight(weight),
            tuple(survivors),
            tuple(dropped),
        )

    def _close(self, stage: Stage, what: str, found: int) -> None:
        if self._stage is not stage:
            raise ProtocolViolationError(
                f"The server was asked to end the step {stage.name.lower()} while it was at {self._stage.name.lower()}. "
                "A round's steps are taken once, in order."
            )
        if found < self.setting.threshold:
            self._stage = Stage.OVER
            raise TooFewClientsError(what, found, self.setting.threshold)
        self._stage = Stage(stage + 1)


_TAKES: dict[type, tuple[Stage, Callable[[SecureServer, Any], None]]] = {
    AdvertisedKeys: (Stage.KEYS, SecureServer._take_keys),
    SealedShares: (Stage.SHARES, SecureServer._take_shares),
    MaskedInput: (Stage.INPUTS, SecureServer._take_input),
    Confirmation: (Stage.CONFIRMATIONS, SecureServer._take_confirmation),
    UnmaskingShares: (Stage.UNMASKING, SecureServer._take_unmasking),
}
