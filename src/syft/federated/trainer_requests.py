"""A Trainer's work as a message that can be asked for: the half of `request_training` that runs where the Trainer is.

Imports `network_clients`, `offers`, `plan_module`, `rounds`, `train_config`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from syft.exceptions import RequestNotPermittedError
from syft.federated.network_clients import Traced, TravellingWork
from syft.federated.offers import offer_of
from syft.federated.plan_module import SentModule
from syft.federated.records import FitInstructions
from syft.federated.rounds import instructions_for
from syft.federated.train_config import put
from syft.messaging.message import RoundMessage

#: Stands for that an update leaves only in a sum, in the message of a request.
KEPT = b"kept"


def round_to_ask(trainer: Any, worker: Any, rounds: int, user: str | None) -> tuple[RoundMessage, Any]:
    """The message that stands for so many rounds of a Trainer at a worker, and what holds its plans there."""
    name, key = str(worker.id), trainer.dataset_key
    client: Any = trainer.clients.get(name)
    if client is None or key is None:
        raise ValueError(
            "request_training() was given a Trainer that does not train on an offered data set of worker "
            f"{name!r}. Make it with Trainer(model, loss, [worker], dataset_key=...)."
        )
    asker = user if user is not None else trainer.user
    numbers = range(trainer.round + 1, trainer.round + min(rounds, 1_000) + 1)
    told = [
        instructions_for(name, n, trainer.seed, {}, trainer._training_of(n), trainer.strategy, trainer._local)
        for n in numbers
    ]
    check_can_be_asked(told)
    traced = TravellingWork(trainer._work).traced(offer_of(worker, key, asker), with_metrics=False)
    is_kept = bool(getattr(client, "keeps_updates", False))
    return round_message(worker, key, traced, told[0], is_kept, asker)


def round_message(
    worker: Any, key: str, traced: Traced, instructions: FitInstructions, is_kept: bool, user: str | None
) -> tuple[RoundMessage, Any]:
    """The message that stands for rounds of training in a request, and what holds its plans at the worker."""
    held = {
        name: put(SentModule(plan), worker, user) for name, plan in (("m", traced.model), ("l", traced.loss))
    }
    message = RoundMessage(
        held["m"].id_at_location,
        held["l"].id_at_location,
        {},
        key,
        replace(instructions, state={}, correction=None),
        KEPT if is_kept else None,
        user,
    )
    return message, held


def check_can_be_asked(rounds: list[FitInstructions]) -> None:
    """!! RequestNotPermittedError if the rounds differ: the owner approves one kind of round"""
    alike = [replace(r, round=0, seed=0, state={}, correction=None) for r in rounds]
    is_odd = rounds[0].correction is not None or rounds[0].local is not None
    if is_odd or any(r != alike[0] for r in alike):
        raise RequestNotPermittedError(
            "request_training() was asked for rounds that differ (optimizer_args that change with the round, a strategy "
            "that corrects gradients, layers that stay with clients), and an approval is for one kind of round. Use the "
            "same settings in all."
        )
