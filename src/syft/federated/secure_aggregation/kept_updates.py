"""`KeptUpdates`: updates that stay at the worker that made them, and its part in summing them up.

One duty: the client's side of secure aggregation behind messages. An update is kept under the name that its trainer
chose, takes part in one round, and is never sent but under masks. No I/O: adds a handler to the table of `workers`.
Imports `client`, `messages`, `setting`.

NOTE [The same for all]
A server that has one client train the model and all others something that does not move gets that client's update as
the sum (Pasquini, Francati, Ateniese 2022). So a round's setting, which all keys are bound to, stands for what is
trained, on a data set of which name, and with which weights; a worker takes part only if that is what it was told
to train, and weighs its update as the setting says. With weights of the server's choice, two sums of the same
updates would give one of them away.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from syft.federated.secure_aggregation.client import Noise, SecureClient
from syft.federated.secure_aggregation.errors import ProtocolViolationError, SecureAggregationError
from syft.federated.secure_aggregation.keys import Identity
from syft.federated.secure_aggregation.messages import Confirmations, Delivery, Roster, Survivors
from syft.federated.secure_aggregation.setting import RoundSetting
from syft.messaging.message import SecureStepMessage
from syft.policy.caller import user_of
from syft.workers import handlers

_log = logging.getLogger(__name__)

_MOST_PER_USER = 4
_MOST = 64
_SECONDS = 3600.0


@dataclass
class Kept:
    """One update, and how far its round is.

    least     of how many clients a sum is, at least
    context   stands for what was trained: see NOTE [The same for all]
    noise     what is added to its words before they are masked, and
    units     the units per 1.0 that the update was clipped for and the noise is made for; 0 for any
    insists   the owner lets it leave in sums only: all clients of its round are its neighbours
    """

    vector: Tensor | None
    examples: int
    least: int
    context: bytes
    insists: bool = False
    noise: Noise | None = None
    units: int = 0
    since: float = field(default_factory=time.monotonic)
    client: SecureClient | None = None


class KeptUpdates:
    """What a worker keeps for rounds that are not over, by user and name.

    identity   signs, for its owner's workers that take part in signed rounds only
    """

    def __init__(self) -> None:
        self.identity: Identity | None = None
        self._kept: dict[tuple[str | None, bytes], Kept] = {}

    def keep(self, user: str | None, name: bytes, update: Kept) -> None:
        """Keep an update for a sum. Old ones, that nobody came back for, go."""
        now = time.monotonic()
        self._kept = {key: kept for key, kept in self._kept.items() if now - kept.since < _SECONDS}
        mine = [key for key in self._kept if key[0] == user]
        if len(mine) >= _MOST_PER_USER:
            del self._kept[mine[0]]
        elif len(self._kept) >= _MOST:
            del self._kept[next(iter(self._kept))]
        self._kept[user, name] = update

    def find(self, user: str | None, name: bytes) -> Kept:
        found = self._kept.get((user, name))
        if found is None:
            raise SecureAggregationError(
                "No update of that name is kept here: its round is over, or this worker was restarted, or trained "
                "other models since. It is left out of the sum."
            )
        return found

    def forget(self, user: str | None, name: bytes) -> None:
        self._kept.pop((user, name), None)

    def __len__(self) -> int:
        return len(self._kept)


# -- the steps ---------------------------------------------------------------------------------------------


def _advertise(worker: Any, kept: Kept, setting: RoundSetting, _weight: float) -> Any:
    if kept.client is not None:
        raise ProtocolViolationError("This update is in a round already; it is in one sum and no other.")
    if kept.vector is None or kept.vector.numel() != setting.length:
        raise ProtocolViolationError(
            f"A round sums updates of {setting.length} numbers, and the one that is kept here has another length."
        )
    if setting.context != kept.context:
        raise ProtocolViolationError(
            "A round sums updates of one training, and this one was made by another: of another model, state or setting. "
            "It is not sent."
        )
    if kept.insists and setting.neighbours:
        raise ProtocolViolationError(
            "The owner of this worker lets updates leave in secure sums only, and a sparse graph protects from fewer "
            "colluding clients than one in which all are neighbours: train with MaskedSum without sparse=..."
        )
    if kept.units and (setting.encoding.units != kept.units or setting.weighing != "alike"):
        raise ProtocolViolationError(
            "This update was clipped to be summed with a weight of 1 on another grid than this round's, which would make "
            "it longer than its bound, or its noise smaller. It is not sent."
        )
    if kept.noise is not None and not setting.noise_reach:
        raise ProtocolViolationError(
            "This update leaves with noise, and the round has no room for any: its setting has no noise_reach."
        )
    if not setting.weighing:
        raise ProtocolViolationError(
            "The setting of this round does not say how updates are weighed, and all have to be weighed in one way: make "
            "it with weighing='alike' or weighing='examples'."
        )
    identity = worker.extension(KeptUpdates).identity
    kept.client = SecureClient(str(worker.id), setting, identity=identity, least_threshold=kept.least)
    return kept.client.advertise_keys()


def _share(_worker: Any, kept: Kept, roster: Roster, _weight: float) -> Any:
    return _of(kept).share_keys(roster)


def _mask(worker: Any, kept: Kept, delivery: Delivery, weight: float) -> Any:
    client = _of(kept)
    own = 1.0 if client.setting.weighing == "alike" else float(kept.examples)
    if kept.vector is None or weight != own:
        raise ProtocolViolationError(
            "An update is sent once, with the weight of the round's setting: of 1, or of its number of examples."
        )
    masked = client.masked_input(delivery, kept.vector, weight, noise=kept.noise)
    kept.vector = None
    if client.clamped:
        _log.warning(
            "Worker %r: %d of %d values of an update were outside the declared range of +-%g and were clamped to it.",
            worker.id,
            client.clamped,
            client.setting.length,
            client.setting.clip,
        )
    return masked


def _confirm(_worker: Any, kept: Kept, survivors: Survivors, _weight: float) -> Any:
    return _of(kept).confirm(survivors)


def _unmask(_worker: Any, kept: Kept, told: tuple[Survivors, Confirmations | None], _weight: float) -> Any:
    return _of(kept).unmask(*told)


def _of(kept: Kept) -> SecureClient:
    if kept.client is None:
        raise ProtocolViolationError("This update is in no round yet: its keys were not asked for.")
    return kept.client


def _is_told(content: Any) -> bool:
    return (
        isinstance(content, tuple)
        and len(content) == 2
        and isinstance(content[0], Survivors)
        and isinstance(content[1], Confirmations | None)
    )


_Step = tuple[Callable[[Any], bool], Callable[[Any, Kept, Any, float], Any]]

#: The steps by their names in `masked_sum.STEPS`: what they are told, and what is done.
_STEPS: dict[str, _Step] = {
    "keys": (lambda content: isinstance(content, RoundSetting), _advertise),
    "shares": (lambda content: isinstance(content, Roster), _share),
    "input": (lambda content: isinstance(content, Delivery), _mask),
    "confirmation": (lambda content: isinstance(content, Survivors), _confirm),
    "unmasking": (_is_told, _unmask),
}


def take_step(worker: Any, message: SecureStepMessage) -> Any:
    """One step of a round, for the user who had the update made."""
    user = user_of(message)
    updates: KeptUpdates = worker.extension(KeptUpdates)
    kept = updates.find(user, message.kept)
    fits, step = _STEPS.get(message.step, (None, None))
    if fits is None or step is None or not fits(message.content):
        raise ProtocolViolationError(
            f"The step {message.step[:60]!r} was asked for with a {type(message.content).__name__}."
        )
    answer = step(worker, kept, message.content, message.weight)
    if message.step == "unmasking":
        updates.forget(user, message.kept)
    return answer


handlers.HANDLERS[SecureStepMessage] = take_step
