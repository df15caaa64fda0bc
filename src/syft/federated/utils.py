"""Arithmetic on models, and small things around federated training. Nothing here changes what it is given."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import nn

from syft.core.chain import Wrapper
from syft.exceptions import TensorsNotCollocatedException
from syft.federated.dataloader import FederatedDataLoader
from syft.federated.torchscript import copy_of
from syft.federated.toy_data import create_gaussian_mixture_toy_data as create_gaussian_mixture_toy_data
from syft.federated.toy_data import iris_data_partial as iris_data_partial
from syft.tensors.pointer import PointerTensor

logger = logging.getLogger(__name__)


def extract_batches_per_worker(federated_train_loader: FederatedDataLoader) -> dict[Any, list[Any]]:
    """All batches of one epoch, by worker: {worker: [(data, target), ...]}."""
    datasets = federated_train_loader.federated_dataset.datasets.values()
    batches: dict[Any, list[Any]] = {dataset.location: [] for dataset in datasets}
    for item in federated_train_loader:
        for worker, batch in item.items() if isinstance(item, dict) else ((item[0].location, item),):
            batches[worker].append(batch)
    return batches


# -- models as vectors -----------------------------------------------------------------------------------


def add_model(dst_model: nn.Module, src_model: nn.Module) -> nn.Module:
    """A new model whose parameters and buffers are the sums of those of two models.

    Counters and other integer buffers are added like the rest; boolean ones are joined with "or".
    """
    return _combined("add_model", [dst_model, src_model], [1.0, 1.0])


def scale_model(model: nn.Module, scale: float) -> nn.Module:
    """A new model whose parameters and buffers are those of a model times a number.

    Integer buffers are rounded, boolean ones stay as they are.
    """
    return _combined("scale_model", [model], _numbers("scale_model", [scale]))


def federated_avg(
    models: Mapping[Any, nn.Module] | Iterable[nn.Module],
    weights: Mapping[Any, float] | Sequence[float] | None = None,
) -> nn.Module:
    """A new model: the weighted mean of models, parameters and buffers alike.

    models   all here, or all on one worker, where the mean is then computed and stays
    weights  one per model, e.g. its number of examples; equal if left out. A dict if `models` is one

    Means are computed in double precision. Integer buffers (BatchNorm's `num_batches_tracked`) are rounded to the
    nearest, boolean ones follow the majority.
    """
    if isinstance(models, nn.Module) or not isinstance(models, Iterable):
        raise TypeError(
            f"federated_avg() was given a {type(models).__name__}. Give a list of models, or a dict of them by name."
        )
    several = list(models.values()) if isinstance(models, Mapping) else list(models)
    if not several:
        raise ValueError("federated_avg() was given no model. Give at least one.")
    given = _weights(models, len(several), weights)
    total = sum(given)
    return _combined("federated_avg", several, [weight / total for weight in given])


def _weights(models: Any, count: int, weights: Any) -> list[float]:
    if weights is None:
        return [1.0] * count
    if isinstance(weights, Mapping):
        if not isinstance(models, Mapping) or set(weights) != set(models):
            raise ValueError(
                "federated_avg() was given weights by name that do not name the models. Give a dict of models with "
                f"the same names; the weights have {sorted(map(str, weights))}."
            )
        weights = [weights[name] for name in models]
    elif not isinstance(weights, Iterable):
        raise TypeError(
            f"federated_avg() was given weights={weights!r}. Give a list of numbers, one per model."
        )
    given = _numbers("federated_avg", weights)
    if len(given) != count:
        raise ValueError(
            f"federated_avg() was given {count} models and {len(given)} weights. Give one weight each."
        )
    if any(not (0.0 <= weight < float("inf")) for weight in given) or sum(given) <= 0.0:
        raise ValueError(
            f"federated_avg() was given the weights {given}. Give numbers of at least 0 that are not all 0."
        )
    return given


def _numbers(caller: str, values: Iterable[Any]) -> list[float]:
    found = []
    for value in values:
        try:
            found.append(float(value))
        except (TypeError, ValueError):
            raise TypeError(f"{caller}() was given {value!r} where it needs a number.") from None
    return found


def _combined(caller: str, models: Sequence[nn.Module], factors: Sequence[float]) -> nn.Module:
    """A copy of the first model with the sum of factor times model in every tensor."""
    for model in models:
        if not isinstance(model, nn.Module):
            raise TypeError(
                f"{caller}() was given a {type(model).__name__} where it needs a model, an nn.Module."
            )
    states = [dict(_tensors(model)) for model in models]
    _check_alike(caller, states)
    made: nn.Module = copy_of(models[0])
    with torch.no_grad():
        for name, tensor in _tensors(made):
            tensor.copy_(_weighted_sum([state[name] for state in states], factors))
    for parameter in made.parameters():
        parameter.grad = None
    return made


def _tensors(model: nn.Module) -> Iterator[tuple[str, Any]]:
    yield from model.named_parameters()
    yield from model.named_buffers()


def _check_alike(caller: str, states: Sequence[dict[str, Any]]) -> None:
    first = states[0]
    for number, other in enumerate(states[1:], 1):
        missing = sorted(first.keys() ^ other.keys())
        if missing:
            raise ValueError(
                f"{caller}() was given models of different architecture: model {number} and the first differ in "
                f"{', '.join(missing[:5])}. Give models of one class and configuration."
            )
        for name, tensor in first.items():
            if tensor.shape != other[name].shape:
                raise ValueError(
                    f"{caller}() was given models of different architecture: {name} is {tuple(tensor.shape)} in the "
                    f"first and {tuple(other[name].shape)} in model {number}."
                )
            if _place(tensor) != _place(other[name]):
                raise TensorsNotCollocatedException(tensor, other[name], caller)


def _place(tensor: Any) -> Any:
    location = getattr(tensor, "location", None)
    return None if location is None else location.id


def _weighted_sum(tensors: Sequence[Any], factors: Sequence[float]) -> Any:
    first = tensors[0]
    total: Any = None
    for tensor, factor in zip(tensors, factors, strict=True):
        term = _wide(tensor.detach()) * factor
        total = term if total is None else total + term
    if first.dtype is torch.bool:
        return first if len(tensors) == 1 else total >= 0.5
    if not (first.is_floating_point() or first.is_complex()):
        total = total.round()
    return total.to(first.dtype) if total.dtype is not first.dtype else total


def _wide(tensor: Any) -> Any:
    """In double precision; a secret, which has a precision of its own, as it is."""
    if type(tensor) is Wrapper and not isinstance(tensor.child, PointerTensor):
        return tensor
    return tensor.to(torch.complex128 if tensor.is_complex() else torch.float64)


# -- figures ---------------------------------------------------------------------------------------------


def accuracy(pred_softmax: Any, target: Any) -> Any:
    """The part of the rows whose largest score is at the target.

    A float; for pointers a pointer to it, because whether it may be fetched is for the worker to say.
    """
    if len(pred_softmax) != target.numel():
        raise ValueError(
            f"accuracy() was given scores of {len(pred_softmax)} rows and {target.numel()} targets. Give one target "
            "per row."
        )
    predicted = pred_softmax.argmax(dim=1)
    share = (predicted == target.view(predicted.shape)).to(torch.float64).mean()
    return share if type(share) is Wrapper else float(share)
