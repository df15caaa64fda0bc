"""A worker's part in rounds of training: what it offers, and the work on it. Adds itself to the table of handlers.

One duty: to check what a stranger asks for, and run the one loop of `local_training` on data that the owner offers.
No I/O. Imports `federated_client`, `local_training`, `network_clients`, `offers`, `plan_module`,
`secure_aggregation.kept_updates`.

NOTE [A worker's own chance]
The seed of a round is each client's own, so it is no part of what all are told alike. A trainer that chooses it could
have all but one of them drop everything out, and read that one off the sum. For an update that is kept the worker
draws its seed itself, and masked rounds are not repeated bit for bit.
"""

from __future__ import annotations

import copy
import logging
import secrets
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from syft.core.interfaces import Worker
from syft.federated.federated_client import FederatedClient, check_offer, check_plain, offered_to
from syft.federated.layout import Layout, named_state, state_fault
from syft.federated.local_training import OPTIMIZERS, OverdueError, evaluate_locally, train_locally
from syft.federated.network_clients import task_digest
from syft.federated.offers import Offer, described
from syft.federated.plan_module import PlanModule, SentModule
from syft.federated.records import (
    ClientFailure,
    EvaluateInstructions,
    EvaluateResult,
    FitInstructions,
    FitResult,
)
from syft.federated.secure_aggregation.kept_updates import Kept, KeptUpdates
from syft.messaging.message import OffersMessage, RoundMessage
from syft.policy.caller import user_of
from syft.serde import register_exception
from syft.workers import handlers, pipeline

register_exception(OverdueError)

_log = logging.getLogger(__name__)


def tell_offers(worker: Worker, message: OffersMessage) -> dict[str, Offer | None]:
    """What the rows of the data sets look like that a user may train on."""
    user = user_of(message)
    offered = worker.extension(FederatedClient).datasets
    return {
        key: described(worker, dataset)
        for key, dataset in offered.items()
        if worker.policy.may_get(user, offered_to(worker, user, key))
    }


def take_part(worker: Worker, message: RoundMessage) -> FitResult | EvaluateResult | ClientFailure:
    """Train or evaluate a user's model on an offered data set, on a copy of it."""
    user, instructions = user_of(message), message.instructions
    _check_instructions(instructions)
    is_fit = isinstance(instructions, FitInstructions)
    dataset = check_offer(worker, user, message.dataset_key, "train on" if is_fit else "evaluate on")
    offers = worker.extension(FederatedClient)
    if not is_fit and message.keep is not None:
        raise ValueError("An evaluation was asked for with a name to keep it under. Only updates are kept.")
    if message.keep is None:
        # Figures tell as much: it is their asker who writes the loss.
        check_plain(offers, message.dataset_key)
    model = copy.deepcopy(_own(worker, user, message.model))
    loss = _own(worker, user, message.loss)
    shapes = {name: tuple(tensor.shape) for name, tensor in named_state(model).items()}
    if fault := state_fault(instructions.state, shapes):
        raise ValueError(f"The state does not fit the model that was sent: {fault}.")
    if not is_fit:
        metrics = {name: _own(worker, user, obj_id) for name, obj_id in message.metrics.items()}
        return _discreetly(
            worker, "the evaluation", lambda: evaluate_locally(model, loss, dataset, metrics, instructions)
        )
    if message.keep is None:
        return _discreetly(worker, "the training", lambda: train_locally(model, loss, dataset, instructions))
    context = task_digest(_own(worker, user, message.model), loss, instructions, message.dataset_key)
    layout = _in_order(Layout.of(model), instructions)
    own = replace(instructions, seed=secrets.randbits(63))  # see NOTE [A worker's own chance]
    least = offers.least_in_sum.get(message.dataset_key)
    if least is None:
        result: FitResult = _discreetly(
            worker, "the training", lambda: train_locally(model, loss, dataset, own)
        )
        vector = layout.flatten(result.update)
        if not bool(torch.isfinite(vector).all()):
            return ClientFailure(str(worker.id), "not finite", "Something in the update is NaN or infinite.")
        answer = replace(result, update={})
    else:
        answer, vector = _train_silently(worker, model, loss, dataset, own, layout)
    kept: KeptUpdates = worker.extension(KeptUpdates)
    kept.keep(user, message.keep, Kept(vector, answer.num_examples, least or 2, context))
    return answer


def _train_silently(
    worker: Worker,
    model: PlanModule,
    loss: PlanModule,
    dataset: Any,
    instructions: FitInstructions,
    layout: Layout,
) -> tuple[FitResult, torch.Tensor]:
    """Train on data of which nothing leaves but sums: the answer, and the update.

    That a training failed is a bit of one worker's data, and who writes the model chooses which bit. So a failure is
    answered like a success, and adds nothing to the sum; the owner's log has it.
    """
    size, batch = len(dataset), instructions.batch_size
    steps = instructions.epochs * (size // batch if instructions.drop_last else -(-size // batch))
    if not steps:
        raise ValueError("There was no batch to train on. Lower batch_size, or set drop_last=False.")
    answer = FitResult(instructions.round, {}, size, steps)
    zeros = torch.zeros(layout.size, dtype=layout.dtype)
    try:
        vector = layout.flatten(train_locally(model, loss, dataset, instructions).update)
    except OverdueError:
        raise  # nobody waits for this worker any more
    except Exception as error:  # noqa: BLE001  (whatever it is, it is not told)
        _log.warning(
            "Worker %r: a training failed, and adds zeros to its sum: %s", worker.id, type(error).__name__
        )
        return answer, zeros
    if not bool(torch.isfinite(vector).all()):
        _log.warning("Worker %r: an update is NaN or infinite, and adds zeros to its sum.", worker.id)
        return answer, zeros
    return answer, vector


def _own(worker: Worker, user: str | None, obj_id: Any) -> PlanModule:
    """A model, a loss or a metric that a user brought."""
    found = worker.get_obj(obj_id)
    worker.policy.check_get(user, obj_id, worker.allowed_users(obj_id), action="train with")
    if type(found) is not SentModule:
        raise TypeError(
            f"The object {str(obj_id)[:60]!r} of worker {worker.id!r} is a {type(found).__name__}. A round runs models "
            "and losses that were sent as plans."
        )
    return found.module


def _check_instructions(instructions: Any) -> None:
    """!! TypeError, ValueError for what no trainer asks for"""
    if not isinstance(instructions, (FitInstructions, EvaluateInstructions)):
        raise TypeError(f"A round was asked for with a {type(instructions).__name__} as instructions.")
    counts = {"batch_size": instructions.batch_size}
    if isinstance(instructions, FitInstructions):
        counts["epochs"] = instructions.epochs
        if instructions.optimizer not in OPTIMIZERS:
            raise ValueError(
                f"The optimizer {instructions.optimizer[:60]!r} is not known. Name one of "
                f"{', '.join(sorted(OPTIMIZERS))}."
            )
    for name, value in counts.items():
        if value < 1:
            raise ValueError(f"A round was asked for with {name}={value}: it is a whole number of 1 or more.")


def _discreetly(worker: Worker, what: str, work: Callable[[], Any]) -> Any:
    """Run `work`. Errors of the data's making are not told; that time is up is."""

    def run() -> Any:
        try:
            return work()
        except OverdueError as error:
            return error

    found = pipeline.run_discreetly(run, what, worker.policy.allows_by_default)
    if isinstance(found, OverdueError):
        raise OverdueError(*found.args)
    return found


def _in_order(layout: Layout, instructions: FitInstructions) -> Layout:
    """The layout with its entries in the trainer's order, which is that of the state it sent."""
    place = {name: number for number, name in enumerate(instructions.state)}
    entries = sorted(layout.entries, key=lambda entry: (not entry.is_parameter, place[entry.name]))
    return Layout(tuple(entries), layout.dtype)


handlers.HANDLERS[OffersMessage] = tell_offers
handlers.HANDLERS[RoundMessage] = take_part
