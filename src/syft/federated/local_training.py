"""A client's work: train a copy of the model on the data that is here, or try it.

One duty: the ONE loop that every engine runs, wherever the client is. Imports `core.labels`, `dataset`,
`layout`, `randomness`, `records`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset, IterableDataset, Subset, TensorDataset, default_collate

from syft.core.labels import split_labels
from syft.exceptions import SyftError
from syft.federated.dataset import BaseDataset
from syft.federated.layout import Layout, named_state, write_state
from syft.federated.randomness import SeededDraws, derive_seed, seeded
from syft.federated.records import (
    EvaluateInstructions,
    EvaluateResult,
    FitInstructions,
    FitResult,
    Metrics,
)

Loss = Callable[..., Tensor]
Metric = Callable[[Tensor, Tensor], Any]

#: The optimizers a client makes, by the name that travels.
OPTIMIZERS: dict[str, type[torch.optim.Optimizer]] = {
    cls.__name__: cls
    for cls in (
        torch.optim.SGD,
        torch.optim.Adam,
        torch.optim.AdamW,
        torch.optim.Adagrad,
        torch.optim.Adadelta,
        torch.optim.Adamax,
        torch.optim.NAdam,
        torch.optim.RAdam,
        torch.optim.RMSprop,
    )
}


#: The part of its deadline that a client trains, where it may send part of its work.
PARTIAL_TIME = 0.8


class OverdueError(SyftError, TimeoutError):
    """A client noticed by itself that nobody waits for it any more."""


def optimizer_name(optimizer: str | type[torch.optim.Optimizer]) -> str:
    """The name that travels, of a name in any case or of the class itself. !! ValueError, TypeError"""
    known = f"Name one of {', '.join(sorted(OPTIMIZERS))}."
    if isinstance(optimizer, str):
        by_lower_case = {name.lower(): name for name in OPTIMIZERS}
        if optimizer.lower() not in by_lower_case:
            raise ValueError(f"The optimizer {optimizer!r} is not known. {known}")
        return by_lower_case[optimizer.lower()]
    if not isinstance(optimizer, type):
        raise TypeError(
            f"The optimizer is a name or a class of torch.optim, and a {type(optimizer).__name__} was given. Each client "
            f"makes its own, with optimizer_args. {known}"
        )
    # NB: by identity: a subclass of the same name would not be what clients make.
    if OPTIMIZERS.get(optimizer.__name__) is not optimizer:
        raise ValueError(f"The optimizer {optimizer.__qualname__} is not known to clients. {known}")
    return optimizer.__name__


def make_optimizer(name: str, args: Mapping[str, Any], parameters: Any) -> torch.optim.Optimizer:
    """An optimizer by name, out of `OPTIMIZERS`. !! ValueError"""
    if name not in OPTIMIZERS:
        raise ValueError(f"The optimizer {name!r} is not known. Name one of {', '.join(sorted(OPTIMIZERS))}.")
    try:
        return OPTIMIZERS[name](parameters, **args)
    except TypeError as error:
        raise ValueError(f"The optimizer {name} was given the arguments {dict(args)}: {error}.") from error


# -- batches ---------------------------------------------------------------------------------------------


def check_dataset(dataset: Any) -> None:
    """!! TypeError or ValueError for what cannot be trained on."""
    if isinstance(dataset, IterableDataset) or not (
        hasattr(dataset, "__len__") and hasattr(dataset, "__getitem__")
    ):
        raise TypeError(
            f"A client's data is a torch Dataset with a length and an index; this is a {type(dataset).__name__}. "
            "Put an iterable into a list, or write a client of your own with fit() and evaluate()."
        )
    if len(dataset) == 0:
        raise ValueError("The data set is empty. Leave this client out.")


def batches(
    dataset: Any,
    batch_size: int,
    order: Tensor | None = None,
    drop_last: bool = False,
    collate_fn: Callable[[list[Any]], Any] | None = None,
) -> Iterator[Any]:
    """Batches of a data set in an order of rows (None: as they are)."""
    tensors, rows = _whole_tensors(dataset) if collate_fn is None else (None, None)
    size = len(dataset)
    stop = size - size % batch_size if drop_last else size
    for start in range(0, stop, batch_size):
        end = min(start + batch_size, size)
        chosen = None if order is None else order[start:end]
        if tensors is None:
            numbers = list(range(start, end)) if chosen is None else chosen.tolist()
            yield (collate_fn or default_collate)(_items(dataset, numbers))
        elif rows is not None:
            picked = rows[start:end] if chosen is None else rows[chosen]
            yield [t.index_select(0, picked) for t in tensors]
        elif chosen is None:
            yield [t[start:end] for t in tensors]
        else:
            yield [t.index_select(0, chosen) for t in tensors]


def _whole_tensors(dataset: Any) -> tuple[tuple[Tensor, ...] | None, Tensor | None]:
    """The tensors behind a data set, and its rows in them, where a batch can be taken at once."""
    if type(dataset) is Subset:
        tensors, inner = _whole_tensors(dataset.dataset)
        if tensors is None:
            return None, None
        rows = torch.as_tensor(dataset.indices, dtype=torch.int64)
        return tensors, rows if inner is None else inner[rows]
    # NB: exactly these. A class below them may do something else with an index.
    found: tuple[Any, ...] = ()
    if type(dataset) is TensorDataset:
        found = dataset.tensors
    elif type(dataset) is BaseDataset and dataset.transform_ is None:
        found = (dataset.data, dataset.targets)
    is_plain = found and all(type(t) is Tensor and t.device.type == "cpu" for t in found)
    return (found, None) if is_plain else (None, None)


def _items(dataset: Dataset[Any], rows: list[int]) -> list[Any]:
    fetch_all = getattr(dataset, "__getitems__", None)  # torch's own protocol for many at once
    return [dataset[row] for row in rows] if fetch_all is None else fetch_all(rows)


@dataclass(frozen=True)
class _Placed:
    """Inputs and target of a batch, where the model is."""

    args: tuple[Any, ...]
    named: dict[str, Any]
    target: Any

    def output(self, model: nn.Module) -> Any:
        return model(*self.args, **self.named)


def _placed(batch: Any, device: torch.device) -> _Placed:
    """A batch is (input, ..., target), or a dict of the model's arguments and "labels". !! TypeError, ValueError"""
    if isinstance(batch, Mapping):
        named, target = split_labels(batch)
        if not isinstance(target, Tensor) or not target.dim():
            raise TypeError(
                f"The labels of a batch are one tensor whose dimension 0 is the batch; these are a "
                f"{'number' if isinstance(target, Tensor) else type(target).__name__}."
            )
        return _Placed((), {name: _moved(part, device) for name, part in named.items()}, target.to(device))
    if not isinstance(batch, (list, tuple)) or len(batch) < 2:
        raise TypeError(
            f"A batch is inputs and a target; this one is a {type(batch).__name__}"
            f"{f' of {len(batch)}' if isinstance(batch, (list, tuple)) else ''}. Let the data set's items be "
            "(input, ..., target), a dict of the model's arguments and 'labels', or write a client of your own with "
            "fit() and evaluate()."
        )
    *inputs, target = [_moved(part, device) for part in batch]
    return _Placed(tuple(inputs), {}, target)


def _moved(part: Any, device: torch.device) -> Any:
    return part.to(device) if isinstance(part, Tensor) else part


# -- training --------------------------------------------------------------------------------------------


def train_locally(
    model: nn.Module,
    loss: Loss,
    dataset: Any,
    instructions: FitInstructions,
    collate_fn: Callable[[list[Any]], Any] | None = None,
) -> FitResult:
    """Train `model`, which is the caller's to lose, as instructed; how far it moved.

    Layers that stay with clients are those that the model comes with, and are in the model afterwards.
    """
    own = () if instructions.local is None else instructions.local.names
    started = time.monotonic()
    check_dataset(dataset)
    size = len(dataset)
    shuffling = seeded(instructions.seed, "order")
    draws = SeededDraws(derive_seed(instructions.seed, "draws"))
    losses: list[Tensor] = []
    sizes: list[int] = []
    # NB: both modes belong to a thread, and the caller's may be off.
    with torch.inference_mode(False), torch.enable_grad():
        write_state(model, instructions.state, own)
        model.train()
        parameters = [p for p in model.parameters() if p.requires_grad]
        optimizer = make_optimizer(instructions.optimizer, instructions.optimizer_args, parameters)
        correct = _gradient_correction(model, instructions)
        device = parameters[0].device
        is_over = False
        for _ in range(instructions.epochs):
            if is_over:
                break
            order = torch.randperm(size, generator=shuffling) if instructions.shuffle else None
            source = batches(dataset, instructions.batch_size, order, instructions.drop_last, collate_fn)
            while True:
                is_over = bool(losses) and _is_nearly_over(instructions, started)
                if is_over:
                    break
                _check_time(instructions.deadline, started)
                watched = draws if not losses or draws.has_drawn else nullcontext()
                with watched:
                    batch = next(source, None)
                    if batch is None:
                        break
                    placed = _placed(batch, device)
                    value = loss(placed.output(model), placed.target)
                draws.is_backward = True
                with draws if draws.has_drawn else nullcontext():
                    value.backward()
                draws.is_backward = False
                if correct is not None:
                    correct()
                optimizer.step()
                optimizer.zero_grad(set_to_none=True)
                losses.append(value.detach())
                sizes.append(len(placed.target))
    if not losses:
        raise ValueError(
            f"There was no batch to train on: {size} examples make none of {instructions.batch_size} when the last "
            "one is dropped. Lower batch_size, or set drop_last=False."
        )
    update = Layout.of(model, own).difference(named_state(model), instructions.state)
    mean = torch.stack(losses).double().cpu() @ torch.tensor(sizes, dtype=torch.float64) / sum(sizes)
    return FitResult(instructions.round, update, size, len(losses), {"loss": mean.item()})


def _gradient_correction(model: nn.Module, instructions: FitInstructions) -> Callable[[], None] | None:
    """What a strategy adds to the gradients before each step, or None."""
    trained = [(n, p) for n, p in model.named_parameters() if p.requires_grad]
    mu, correction = instructions.proximal_mu, instructions.correction
    if not mu and correction is None:
        return None
    # NB: a layer that stays with its client is not pulled back to what the server has.
    anchors = {name: p.detach().clone() for name, p in trained if name in instructions.state} if mu else {}
    added = {name: c.to(p.device) for name, p in trained if (c := (correction or {}).get(name)) is not None}

    @torch.no_grad()
    def correct() -> None:
        for name, parameter in trained:
            if parameter.grad is None:
                continue
            if name in anchors:
                # Li et al. 2020, equation 2: the gradient of mu/2 |w - w_t|^2
                parameter.grad.add_(parameter - anchors[name], alpha=mu)
            if name in added:
                # Karimireddy et al. 2020, algorithm 1, line 10: g - c_i + c
                parameter.grad.add_(added[name])

    return correct


def _is_nearly_over(instructions: FitInstructions, started: float) -> bool:
    """Whether a client that may send part of its work stops here, so that its answer is in time."""
    deadline = instructions.deadline
    return (
        instructions.partial and deadline is not None and time.monotonic() - started > PARTIAL_TIME * deadline
    )


def _check_time(deadline: float | None, started: float) -> None:
    if deadline is not None and time.monotonic() - started > deadline:
        raise OverdueError(f"The client was not done after {deadline:g} s, its deadline, and stopped.")


# -- evaluation ------------------------------------------------------------------------------------------


def evaluate_locally(
    model: nn.Module,
    loss: Loss,
    dataset: Any,
    metrics: Mapping[str, Metric],
    instructions: EvaluateInstructions,
    collate_fn: Callable[[list[Any]], Any] | None = None,
) -> EvaluateResult:
    """Means over a data set, of the loss and of each metric. `model` is the caller's to lose."""
    started = time.monotonic()
    check_dataset(dataset)
    sums: Metrics = dict.fromkeys(["loss", *metrics], 0.0)
    count = 0
    with torch.no_grad():
        write_state(model, instructions.state, () if instructions.local is None else instructions.local.names)
        model.eval()
        device = next(model.parameters()).device
        for batch in batches(dataset, instructions.batch_size, collate_fn=collate_fn):
            _check_time(instructions.deadline, started)
            placed = _placed(batch, device)
            output, target = placed.output(model), placed.target
            count += len(target)
            sums["loss"] += float(loss(output, target)) * len(target)
            for name, metric in metrics.items():
                sums[name] += float(metric(output, target)) * len(target)
    return EvaluateResult(instructions.round, count, {name: total / count for name, total in sums.items()})
