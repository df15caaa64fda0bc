"""`train_privately`: DP-SGD on a data set that is on a worker, with noise added where the data is.

One duty: to charge a training run to the budgets of its data, and then run it there. Imports `dpsgd`, `release`,
`worker_budgets`.

NOTE [Models are data here]
A model that a user brings would be code that runs beside private data. So it may consist only of layers from
a list, of exactly those types, without hooks: each works on one example at a time, and none of them
raises because of a value. Labels are clamped to the classes there are, for the same reason.

NOTE [From one record more to one record replaced]
The accountant of DP-SGD is about one record more or less. A record that is replaced is one less and one more,
and a person with k records is 2k such steps: (e, d) becomes (2k e, d (1 + e^e + ... + e^((2k - 1) e))) (Vadhan
2017, lemma 2.2). The noise is found for the e and d that give what was asked for.

For workers in this process. On a network the model has to travel: as a Plan, which this list would be checked
against, and with a message of its own.
"""

from __future__ import annotations

import copy
import math
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from syft.core.chain import Wrapper
from syft.dp.dpsgd import make_private
from syft.dp.release import released_rows
from syft.dp.worker_budgets import Charge
from syft.exceptions import ReleaseNotPermittedError
from syft.tensors.pointer import PointerTensor
from syft.workers.permissions import AuditRecord

#: Layers that work on one example at a time and never raise because of a value.
LAYERS: frozenset[type[nn.Module]] = frozenset(
    {
        nn.Sequential,
        nn.Identity,
        nn.Linear,
        nn.Conv1d,
        nn.Conv2d,
        nn.ReLU,
        nn.LeakyReLU,
        nn.ELU,
        nn.GELU,
        nn.SiLU,
        nn.Tanh,
        nn.Sigmoid,
        nn.Softplus,
        nn.Flatten,
        nn.MaxPool2d,
        nn.AvgPool2d,
        nn.AdaptiveAvgPool2d,
        nn.LayerNorm,
        nn.GroupNorm,
    }
)

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
    examples, labels = (worker.get_obj(place) for place in places)
    names: set[str] = set()
    try:
        cuts = []
        for obj, place in zip((examples, labels), places, strict=True):
            desk, rows = released_rows(worker, obj, place, user)
            names |= {name for source in rows.sources for name in source.names}
            cuts.append(rows.cuts)
        _check(examples, labels, cuts, model, loss, epsilon, delta)
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
        worker.policy.audit_log.append(AuditRecord("release", places[0], user, False, "dpsgd"))
        raise
    worker.policy.audit_log.append(AuditRecord("release", places[0], user, True, "dpsgd"))
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
    if first._attached.get("releases") is None:
        raise ReleaseNotPermittedError(
            f"Worker {first.id!r} has no budgets here. Its owner sets them with set_budget; a worker on a network does "
            "not train yet: it has to be a VirtualWorker."
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
    faults = [
        f"{name or 'the model'} ({type(layer).__name__})"
        for name, layer in model.named_modules()
        if not _is_plain(layer)
    ]
    if faults:
        raise ReleaseNotPermittedError(
            f"train_privately does not run {', '.join(faults)} beside private data. A model is made of these layers, as "
            f"they come and without hooks: {', '.join(sorted(layer.__name__ for layer in LAYERS))}."
        )


def _is_plain(layer: nn.Module) -> bool:
    """Whether a layer is of the list and does what its type says."""
    hooks = (value for name, value in vars(layer).items() if name.endswith("_hooks"))
    own = all(type(p) is nn.Parameter for p in layer._parameters.values() if p is not None)
    if isinstance(layer, nn.Flatten) and (layer.start_dim, layer.end_dim) != (1, -1):
        return False
    return type(layer) in LAYERS and not any(hooks) and own and "forward" not in vars(layer)


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
