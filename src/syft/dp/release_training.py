"""`train_privately`: DP-SGD on a data set that is on a worker, with noise added where the data is.

One duty: to charge a training run to the budgets of its data, and then run it there. Imports `dpsgd`, `layer_records`,
`release`, `worker_budgets`; adds a handler to the table of `workers`.

NOTE [Models are data here]
A model that a user brings would be code that runs beside private data. So it may consist only of layers from
a list, of exactly those types, without hooks: each works on one example at a time, and none of them
raises because of a value. Labels are clamped to the classes there are, for the same reason.

NOTE [From one record more to one record replaced]
The accountant of DP-SGD is about one record more or less. A record that is replaced is one less and one more,
and a person with k records is 2k such steps: (e, d) becomes (2k e, d (1 + e^e + ... + e^((2k - 1) e))) (Vadhan
2017, lemma 2.2). The noise is found for the e and d that give what was asked for.

To a worker on a network the model goes as a record of its layers, and is put together there from the same list. Who
pays is then who proved their name.
"""

from __future__ import annotations

import copy
import math
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from syft.core.chain import Wrapper
from syft.core.session import session
from syft.dp.dpsgd import make_private
from syft.dp.layer_records import check_layers, model_of, record_of
from syft.dp.release import released_rows
from syft.dp.worker_budgets import Charge
from syft.exceptions import ReleaseNotPermittedError
from syft.federated.layout import read_state, write_state
from syft.messaging.message import PrivateTrainingMessage
from syft.tensors.pointer import PointerTensor
from syft.workers import executor, handlers
from syft.workers.caller import user_of
from syft.workers.permissions import AuditRecord

LOSSES: dict[str, type[nn.Module]] = {
    "cross_entropy": nn.CrossEntropyLoss,
    "mse": nn.MSELoss,
    "binary_cross_entropy": nn.BCEWithLogitsLoss,
}


def train_privately(
    inputs: Any,
    targets: Any,
    model: nn.Module,
    *,
    loss: str,
    user: str,
    epsilon: float,
    delta: float,
    epochs: int,
    batch_size: int,
    lr: float,
    momentum: float = 0.0,
    max_grad_norm: float = 1.0,
) -> nn.Module:
    """A copy of `model`, trained with SGD where `inputs` and `targets` are, (epsilon, delta)-DP; charged first.

    inputs, targets   pointers to data sets with a budget on one worker, or to rows of them, record by record
    loss              "cross_entropy", "mse" or "binary_cross_entropy" (of logits)
    batch_size        on average: every record is in every batch with the same probability
    """
    worker, places = _place_of(inputs, targets)
    settings: dict[str, Any] = dict(
        loss=loss,
        epsilon=epsilon,
        delta=delta,
        epochs=epochs,
        batch_size=batch_size,
        lr=lr,
        momentum=momentum,
        max_grad_norm=max_grad_norm,
        user=user,
    )
    if worker.is_in_process:
        return _train(worker, places, model, **settings)
    message = PrivateTrainingMessage(*places, record_of(model), **settings)
    trained = copy.deepcopy(model)
    write_state(trained, session.require_local_worker().send_msg(message, worker))
    return trained


def train_here(worker: Any, message: PrivateTrainingMessage) -> dict[str, torch.Tensor]:
    """Train a model that was described, for somebody on a network; replies its state."""
    trained = _train(
        worker,
        (message.inputs, message.targets),
        model_of(message.model),
        message.loss,
        message.epsilon,
        message.delta,
        message.epochs,
        message.batch_size,
        message.lr,
        message.momentum,
        message.max_grad_norm,
        user_of(message),
    )
    return read_state(trained)


def _train(
    worker: Any,
    places: tuple[Any, Any],
    model: nn.Module,
    loss: str,
    epsilon: float,
    delta: float,
    epochs: int,
    batch_size: int,
    lr: float,
    momentum: float,
    max_grad_norm: float,
    user: str | None,
) -> nn.Module:
    """The work, at the worker."""
    examples, labels = (worker.get_obj(place) for place in places)
    names: set[str] = set()
    try:
        executor.check_compute(worker, places)
        cuts = []
        for obj, place in zip((examples, labels), places, strict=True):
            desk, rows = released_rows(worker, obj, place, user)
            names |= {name for source in rows.sources for name in source.names}
            cuts.append(rows.cuts)
        _check(examples, labels, cuts, model, loss, epsilon, delta)
        if epochs < 1 or batch_size < 1:
            raise ValueError(
                f"train_privately was given epochs={epochs} and batch_size={batch_size}: whole numbers of 1 or more."
            )
        trained = copy.deepcopy(model).train()
        changes = 2 * desk.book.records_per_person(names)
        per_step = epsilon / changes
        loader: Any = DataLoader(
            TensorDataset(examples.detach().clone(), _as_targets(labels, trained, examples, loss)), batch_size
        )
        training = make_private(
            trained,
            torch.optim.SGD(trained.parameters(), lr=lr, momentum=momentum),
            loader,
            loss_fn=LOSSES[loss](),
            max_grad_norm=max_grad_norm,
            target_epsilon=per_step,
            target_delta=delta / math.fsum(math.exp(step * per_step) for step in range(changes)),
            epochs=epochs,
            way="vmap",
        )
        desk.book.charge(names, user, Charge("dpsgd", None, float(epsilon), float(delta)))
    except Exception:
        worker.policy.record(AuditRecord("release", places[0], user, False, "dpsgd"))
        raise
    worker.policy.record(AuditRecord("release", places[0], user, True, "dpsgd"))
    for _ in range(epochs):
        for batch, wanted in training.loader:
            training.step(batch, wanted)
    return trained


def _place_of(inputs: Any, targets: Any) -> tuple[Any, tuple[Any, Any]]:
    nodes = [value.child if type(value) is Wrapper else value for value in (inputs, targets)]
    if not all(isinstance(node, PointerTensor) for node in nodes):
        raise TypeError(
            "train_privately takes pointers to inputs and targets. For data that is here use make_private."
        )
    first, second = (node.location for node in nodes)
    if first.id != second.id:
        raise ValueError(
            f"The inputs are on worker {first.id!r} and the targets on {second.id!r}: move one of them."
        )
    if first.is_in_process and first._attached.get("releases") is None:
        raise ReleaseNotPermittedError(
            f"Worker {first.id!r} has no budgets. Its owner sets them with set_budget, where the worker runs."
        )
    return first, (nodes[0].id_at_location, nodes[1].id_at_location)


def _check(
    examples: torch.Tensor,
    labels: torch.Tensor,
    cuts: list[Any],
    model: nn.Module,
    loss: str,
    epsilon: float,
    delta: float,
) -> None:
    """What is wrong with a request, from what is public about it."""
    if len(examples) != len(labels) or cuts[0] != cuts[1]:
        raise ValueError(
            f"Inputs and targets are the same records: {len(examples)} and {len(labels)} were given, or other rows."
        )
    if not 0 < epsilon < math.inf or not 0 < delta < 1:
        raise ValueError(
            f"train_privately needs an epsilon above 0 and a delta between 0 and 1, got {epsilon}, {delta}."
        )
    if loss not in LOSSES:
        raise ValueError(f"There is no loss {str(loss)[:60]!r}. There are: {', '.join(LOSSES)}.")
    if not examples.is_floating_point():
        raise ValueError("Inputs are floating-point numbers: call `.float()` on the pointer first.")
    check_layers(model)


def _as_targets(labels: torch.Tensor, model: nn.Module, examples: torch.Tensor, loss: str) -> torch.Tensor:
    """Targets that fit what the model gives, as far as values go; shapes are checked on one example of zeros."""
    with torch.no_grad():
        given = model(torch.zeros_like(examples[:1]))
    if loss == "cross_entropy":
        wanted = labels.detach().nan_to_num(0.0).long().clamp(0, given.shape[1] - 1)
    else:
        wanted = labels.detach().to(given.dtype).nan_to_num(0.0, 0.0, 0.0)
    if loss != "cross_entropy" and wanted.shape[1:] != given.shape[1:]:
        raise ValueError(
            f"The model gives {tuple(given.shape[1:])} per record, and a target is {tuple(wanted.shape[1:])}."
        )
    LOSSES[loss]()(given, torch.zeros_like(wanted[:1]))
    return wanted


handlers.HANDLERS[PrivateTrainingMessage] = train_here
