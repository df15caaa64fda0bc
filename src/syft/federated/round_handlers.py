"""A worker's part in rounds of training: what it offers, and the work on it. Adds itself to the table of handlers.

One duty: to check what a stranger asks for, and run the one loop of `local_training` on data that the owner offers.
No I/O. Imports `federated_client`, `local_training`, `network_clients`, `offers`, `plan_module`,
`secure_aggregation.kept_updates`.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from syft.federated.federated_client import check_offer, check_plain, offered_to
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
from syft.federated.secure_aggregation.kept_updates import KEPT, Kept, KeptUpdates
from syft.messaging.message import OffersMessage, RoundMessage
from syft.serde import register_exception
from syft.workers import executor, handlers
from syft.workers.caller import user_of

register_exception(OverdueError)


def tell_offers(worker: Any, message: OffersMessage) -> dict[str, Offer | None]:
    """What the rows of the data sets look like that a user may train on."""
    user = user_of(message)
    offered = worker.extension("federated_client").datasets
    return {
        key: described(worker, dataset)
        for key, dataset in offered.items()
        if worker.policy.may_get(user, offered_to(worker, user, key))
    }


def take_part(worker: Any, message: RoundMessage) -> FitResult | EvaluateResult | ClientFailure:
    """Train or evaluate a user's model on an offered data set, on a copy of it."""
    user, instructions = user_of(message), message.instructions
    _check_instructions(instructions)
    is_fit = isinstance(instructions, FitInstructions)
    dataset = check_offer(worker, user, message.dataset_key, "train on" if is_fit else "evaluate on")
    offers = worker.extension("federated_client")
    if message.keep is None:
        check_plain(
            offers, message.dataset_key
        )  # figures tell as much: it is their asker who writes the loss
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
    result: FitResult = _discreetly(
        worker, "the training", lambda: train_locally(model, loss, dataset, instructions)
    )
    if message.keep is None:
        return result
    context = task_digest(_own(worker, user, message.model), loss, instructions)
    vector = _in_order(Layout.of(model), instructions).flatten(result.update)
    if not bool(torch.isfinite(vector).all()):
        return ClientFailure(str(worker.id), "not finite", "Something in the update is NaN or infinite.")
    kept: KeptUpdates = worker.extension(KEPT)
    least = offers.least_in_sum.get(message.dataset_key, 2)
    kept.keep(user, message.keep, Kept(vector, result.num_examples, least, context))
    is_hidden = message.dataset_key in offers.least_in_sum
    return replace(result, update={}, metrics={} if is_hidden else result.metrics)


def _own(worker: Any, user: str | None, obj_id: Any) -> PlanModule:
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


def _discreetly(worker: Any, what: str, work: Callable[[], Any]) -> Any:
    """Run `work`. Errors of the data's making are not told; that time is up is."""

    def run() -> Any:
        try:
            return work()
        except OverdueError as error:
            return error

    found = executor.run_discreetly(run, what, worker.policy.allows_by_default)
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
