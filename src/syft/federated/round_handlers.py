"""A worker's part in rounds of training: what it offers, and the work on it. Adds itself to the table of handlers.

One duty: to check what a stranger asks for, and run the one loop of `local_training` on data that the owner offers.
No I/O. Imports `asked_training`, `compression`, `federated_client`, `local_training`, `network_clients`, `offers`,
`personal`, `plan_module`, `secure_aggregation.kept_updates`.

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

import msgspec
import torch

from syft.core.interfaces import IMPLEMENTATIONS, ClientNoise, Worker
from syft.data.schema import DataSetInfo, PartInfo
from syft.exceptions import RequestNotPermittedError
from syft.federated.asked_training import shown_code, training_digest, use_training_approval
from syft.federated.compression import HeldBack, check_feedback, compress, compressed
from syft.federated.federated_client import FederatedClient
from syft.federated.fit_handlers import (
    check_enough_noise,
    check_offer,
    check_plain,
    check_there,
    offered_to,
    policy_shows,
    told_datasets,
)
from syft.federated.layout import Layout, frozen_state, named_state, state_fault
from syft.federated.local_training import OPTIMIZERS, OverdueError, evaluate_locally, train_locally
from syft.federated.network_clients import Traced, task_digest
from syft.federated.offers import Offer, described
from syft.federated.personal import PersonalLayers, check_impersonal
from syft.federated.plan_module import PlanModule, SentModule
from syft.federated.records import (
    ClientFailure,
    EvaluateInstructions,
    EvaluateResult,
    FitInstructions,
    FitResult,
    PrivateContribution,
)
from syft.federated.secure_aggregation.client import Noise
from syft.federated.secure_aggregation.kept_updates import Kept, KeptUpdates
from syft.messaging.message import AskMessage, DatasetsMessage, OffersMessage, RoundMessage
from syft.policy.caller import user_of
from syft.requests import keeper
from syft.requests.approvals import Prepared
from syft.requests.records import Ask
from syft.serde import register_exception
from syft.workers import handlers, pipeline, request_handlers

register_exception(OverdueError)

_log = logging.getLogger(__name__)


def tell_offers(worker: Worker, message: OffersMessage) -> dict[str, Offer | None]:
    """What the rows of the data sets look like that a user may train on, or ask for."""
    user = user_of(message)
    return {key: _row_of(worker, user, key) for key in told_datasets(worker, user)}


def _row_of(worker: Worker, user: str | None, key: str) -> Offer | None:
    """What the rows of a data set look like. In the process of a user there is none that may only be asked for."""
    datasets: Any = worker.extension(FederatedClient).datasets
    elsewhere = getattr(datasets, "described", None)
    if elsewhere is not None and not worker.policy.may_get(user, offered_to(worker, user, key)):
        return elsewhere(key)
    return described(worker, datasets[key])


def tell_datasets(worker: Worker, message: DatasetsMessage) -> dict[str, DataSetInfo]:
    """What is told of the data sets that a user may use, by those who offer them or else by the rows they have."""
    user, client = user_of(message), worker.extension(FederatedClient)
    told: dict[str, DataSetInfo] = {}
    for key in told_datasets(worker, user):
        said = client.infos.get(key)
        told[key] = said if said is not None else _by_its_rows(worker, user, key, client)
    for_noise = {
        key: info
        for key, info in client.infos.items()
        if key not in client.datasets and policy_shows(worker, user, info)
    }
    return told | for_noise


def _by_its_rows(worker: Worker, user: str | None, key: str, client: FederatedClient) -> DataSetInfo:
    offer = _row_of(worker, user, key)
    parts: tuple[PartInfo, ...] = ()
    if offer is not None:
        roles = [*("inputs",) * len(offer.inputs), "target"]
        parts = tuple(
            PartInfo(role, tuple(row.shape[1:]), str(row.dtype).removeprefix("torch."))
            for role, row in zip(roles, (*offer.inputs, offer.target), strict=True)
        )
    least, noise = client.least_in_sum.get(key), client.minimum_noise.get(key)
    return DataSetInfo(key, parts, least_in_sum=least, minimum_noise=noise)


def take_part(worker: Worker, message: RoundMessage) -> FitResult | EvaluateResult | ClientFailure:
    """Train or evaluate a user's model on an offered data set, on a copy of it."""
    user, instructions = user_of(message), message.instructions
    _check_instructions(instructions)
    is_fit = isinstance(instructions, FitInstructions)

    def is_approved() -> bool:
        traced = Traced(_own(worker, user, message.model), _own(worker, user, message.loss))
        is_kept = message.keep is not None
        return use_training_approval(worker, user, message.dataset_key, traced, instructions, is_kept)

    action = "train on" if is_fit else "evaluate on"
    dataset = check_offer(worker, user, message.dataset_key, action, is_approved)
    offers = worker.extension(FederatedClient)
    if not is_fit and message.keep is not None:
        raise ValueError("An evaluation was asked for with a name to keep it under. Only updates are kept.")
    if message.keep is None:
        # Figures tell as much: it is their asker who writes the loss.
        check_plain(offers, message.dataset_key)
    private = instructions.private if isinstance(instructions, FitInstructions) else None
    if private is not None:
        if message.keep is None:
            raise ValueError("A private update was asked for in plain. It leaves under masks only.")
        noises().check(private.clip_norm, private.step, private.variance)
    check_enough_noise(offers, message.dataset_key, private)
    if instructions.local is not None:
        check_impersonal(offers.least_in_sum.get(message.dataset_key), worker.id)
    rule = instructions.compression if isinstance(instructions, FitInstructions) else None
    check_feedback(rule, offers.least_in_sum.get(message.dataset_key), worker.id)
    model = copy.deepcopy(_own(worker, user, message.model))
    loss = _own(worker, user, message.loss)
    told, instructions = instructions, _completed(instructions, model)
    local, layers = instructions.local, worker.extension(PersonalLayers)
    if local is not None:
        layers.bring(model, local, dataset, user, message.dataset_key)
    if not is_fit:
        metrics = {name: _own(worker, user, obj_id) for name, obj_id in message.metrics.items()}
        return _discreetly(
            worker, "the evaluation", lambda: evaluate_locally(model, loss, dataset, metrics, instructions)
        )

    def train(how: FitInstructions) -> FitResult:
        trained = train_locally(model, loss, dataset, how)
        if local is not None:
            layers.keep(model, local, dataset, user, message.dataset_key)
        return trained

    held, whose = worker.extension(HeldBack), (user, message.dataset_key)
    layout = _in_order(Layout.of(model, () if local is None else local.names), instructions)
    if message.keep is None:
        result: FitResult = _discreetly(worker, "the training", lambda: train(instructions))
        return compressed(result, instructions, layout, held, dataset, *whose)
    if rule is not None and rule.kind != "random":
        raise ValueError("A masked sum was asked for with compression that is not the same for all clients.")

    def as_summed(vector: torch.Tensor) -> torch.Tensor:
        """Of an update, what is masked."""
        if rule is None:
            return vector
        made = compress(vector, layout, instructions, held, dataset, *whose)
        return torch.cat([made.values, made.rest])

    context = task_digest(_own(worker, user, message.model), loss, told, message.dataset_key)
    own = replace(instructions, seed=secrets.randbits(63))  # see NOTE [A worker's own chance]
    least = offers.least_in_sum.get(message.dataset_key)
    kept: KeptUpdates = worker.extension(KeptUpdates)
    if private is not None:
        _, vector = _train_silently(worker, lambda: train(own), len(dataset), own, layout)
        clipped = noises().clipped(as_summed(vector), private.clip_norm, private.step)
        keep = Kept(clipped, 1, least or 2, context, least is not None, *_noise_of(private))
        kept.keep(user, message.keep, keep)
        return FitResult(instructions.round, {}, 1, 1)
    if least is None:
        result = _discreetly(worker, "the training", lambda: train(own))
        vector = layout.flatten(result.update)
        if not bool(torch.isfinite(vector).all()):
            return ClientFailure(str(worker.id), "not finite", "Something in the update is NaN or infinite.")
        answer = replace(result, update={})
    else:
        answer, vector = _train_silently(worker, lambda: train(own), len(dataset), own, layout)
    kept.keep(
        user,
        message.keep,
        Kept(as_summed(vector), answer.num_examples, least or 2, context, least is not None),
    )
    return answer


def ask_to_train(worker: Any, asked: AskMessage) -> Prepared:
    """Ask the owner to let a model be trained on a data set that is offered on request."""
    message: RoundMessage = asked.message
    user, key, instructions = user_of(asked), message.dataset_key, message.instructions
    _check_instructions(instructions)
    if not isinstance(instructions, FitInstructions):
        raise RequestNotPermittedError("Training can be asked for, and evaluation cannot.")
    client = worker.extension(FederatedClient)
    pipeline.permit(worker, asked)
    check_there(worker, user, key)
    if worker.policy.may_get(user, offered_to(worker, user, key)):
        raise RequestNotPermittedError(f"You may train on {key!r} without asking: trainer.fit().")
    if key not in client.on_request:
        raise RequestNotPermittedError(
            f"The data set {key[:60]!r} is offered to others, and not on request. Ask its owner in person: "
            "add_dataset(..., on_request=True) takes requests."
        )
    model, loss = _own(worker, user, message.model), _own(worker, user, message.loss)
    is_kept = message.keep is not None
    arguments = ", ".join(f"{name}={value!r}" for name, value in sorted(instructions.optimizer_args.items()))
    details = {
        "epochs in a round": str(instructions.epochs),
        "batch size": str(instructions.batch_size),
        "optimizer": f"{instructions.optimizer}({arguments})"[:1500],
        "updates leave": "in a secure sum only" if is_kept else "as they are",
        "trained numbers": str(sum(p.numel() for p in model.parameters())),
    }
    ask = Ask(
        "train",
        training_digest(model, loss, instructions, is_kept),
        "training",
        asked.reason,
        details,
        shown_code(model, loss),
        asked.uses,
    )
    return Prepared(ask, key)


def stated_training(worker: Any, prepared: Prepared) -> Ask:
    """A request to train, which says on what and how often. !! RequestNotPermittedError"""
    ask, key, client = prepared.ask, str(prepared.about), worker.extension(FederatedClient)
    if key not in client.datasets or key not in client.on_request:
        raise RequestNotPermittedError(f"The data set {key[:60]!r} is not offered on request.")
    what = f"{ask.uses} rounds of training on the data set {key[:200]!r}"
    stated = {"data set": key[:500], "rounds": str(ask.uses)}
    return msgspec.structs.replace(ask, what=what, details={**ask.details, **stated})


def noises() -> ClientNoise:
    return IMPLEMENTATIONS[ClientNoise]


def _noise_of(private: PrivateContribution) -> tuple[Noise | None, int]:
    """What draws a client's part of the noise, if it has one, and the units that it is made for."""
    units = round(1 / private.step)
    if not private.variance:
        return None, units
    return lambda count, _units: noises().drawn(count, private.variance), units


def _train_silently(
    worker: Worker,
    train: Callable[[], FitResult],
    size: int,
    instructions: FitInstructions,
    layout: Layout,
) -> tuple[FitResult, torch.Tensor]:
    """Train on data of which nothing leaves but sums: the answer, and the update.

    That a training failed is a bit of one worker's data, and who writes the model chooses which bit. So a failure is
    answered like a success, and adds nothing to the sum; the owner's log has it.
    """
    batch = instructions.batch_size
    steps = instructions.epochs * (size // batch if instructions.drop_last else -(-size // batch))
    if not steps:
        raise ValueError("There was no batch to train on. Lower batch_size, or set drop_last=False.")
    answer = FitResult(instructions.round, {}, size, steps)
    zeros = torch.zeros(layout.size, dtype=layout.dtype)
    try:
        vector = layout.flatten(train().update)
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


def _completed(instructions: Any, model: PlanModule) -> Any:
    """The instructions with the model's own frozen parameters, where they were not sent again. !! ValueError"""
    local = () if instructions.local is None else instructions.local.names
    frozen = {n: p.detach() for n, p in frozen_state(model).items() if n not in local}
    state = {**{n: p for n, p in frozen.items() if n not in instructions.state}, **instructions.state}
    shapes = {name: tuple(t.shape) for name, t in named_state(model).items() if name not in local}
    if fault := state_fault(state, shapes):
        raise ValueError(f"The state does not fit the model that was sent: {fault}.")
    return replace(instructions, state=state)


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
handlers.HANDLERS[DatasetsMessage] = tell_datasets
handlers.HANDLERS[RoundMessage] = take_part
request_handlers.ASKS[RoundMessage] = ask_to_train
keeper.STATEMENTS["train"] = stated_training
