"""Clipping: how long the gradient of each example is, and what the shortened ones add up to.

One duty: `clipped`, and the bounds it clips to. Imports `events`, `gradient_factors`, `per_sample`.

NOTE [A part in a million]
Gradients are clipped to a millionth less than the bound. That pays for rounding: of the norm (a part in 10^10),
and of the sum, which is in double precision. A sum of B vectors of length C, in any order, is off by at most
B^2 C / 2^53 (Higham 2002, section 4.2, and the triangle inequality), and two such sums by twice that: less
than the millionth for batches of up to 60 000 examples.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from syft.dp.events import number
from syft.dp.gradient_factors import Factor, sum_in_parts
from syft.dp.per_sample import LossFunction, factors
from syft.dp.ruled_pass import Checked

#: Clipping bounds beyond these would meet the ends of single precision, and are mistakes.
LEAST_BOUND, LARGEST_BOUND = 1e-6, 1e6


def group_of(parameter: str, bounds: Mapping[str, Any]) -> str:
    """The clipping group of a parameter: its layer, or the only one there is."""
    return "" if "" in bounds else parameter.rpartition(".")[0] or "(model)"


class ClippedSums(Mapping[str, Tensor]):
    """The sum over examples of clipped gradients by parameter, in double precision. Each is made when it is asked for.

    NB: of tensors that the model and the caller have, too. Ask before anybody can write to those.
    """

    def __init__(self, found: Mapping[str, Factor], weights: Mapping[str, Tensor], most: float) -> None:
        self._found, self._weights = found, weights
        self.most = most
        """What no number of a sum is beyond."""
        self._in_units: tuple[float, dict[str, Tensor]] = (1.0, dict(weights))

    def __getitem__(self, name: str) -> Tensor:
        return self._found[name].weighted_sum(self._weight_of(name))

    def in_parts(self, name: str, unit: float) -> Iterator[Tensor]:
        """The same in units of `unit`, flat, in parts that follow each other and are the caller's to change."""
        if self._in_units[0] != unit:
            self._in_units = unit, {group: weight / unit for group, weight in self._weights.items()}
        return sum_in_parts(self._found[name], self._in_units[1][group_of(name, self._weights)])

    def _weight_of(self, name: str) -> Tensor:
        return self._weights[group_of(name, self._weights)]

    def __iter__(self) -> Iterator[str]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)


def clipped(
    model: nn.Module,
    loss_fn: LossFunction,
    inputs: Any,
    targets: Any,
    bounds: Mapping[str, float],
    *,
    way: str = "auto",
    checked: Checked | None = None,
) -> tuple[ClippedSums, Tensor]:
    """The sum over examples of gradients clipped to `bounds`, and the losses.

    An example whose gradient is not finite adds nothing: whatever else it did would tell. NB: its zeros stand where its
    numbers stood. Were the others computed again without it, their last digits could change, and a model can make much
    of those.
    """
    found, losses = factors(model, loss_fn, inputs, targets, way, checked)
    weights = _weights(found, bounds)
    finite = torch.stack(list(weights.values())).isfinite().all(0)
    if not bool(finite.all()):
        found = {name: factor.only(finite) for name, factor in found.items()}
        weights = {group: weight.nan_to_num(0.0) for group, weight in weights.items()}
        losses = losses.nan_to_num(0.0, 0.0, 0.0)
    return ClippedSums(found, weights, 2 * len(losses) * max(bounds.values())), losses


def clipped_sum(*args: Any, **named: Any) -> tuple[dict[str, Tensor], Tensor]:
    """What `clipped` gives, as tensors of their own."""
    sums, losses = clipped(*args, **named)
    return dict(sums), losses


def _weights(found: Mapping[str, Factor], bounds: Mapping[str, float]) -> dict[str, Tensor]:
    """Per group and example, by how much its gradient is shortened; NaN where it is not finite."""
    norms: dict[str, Tensor] = {}
    for name, factor in found.items():
        group, own = group_of(name, bounds), factor.norms()
        # NB: hypot neither overflows nor underflows where squares would.
        norms[group] = torch.hypot(norms[group], own) if group in norms else own
    weights = {}
    for group, norm in norms.items():
        bound = bounds[group]
        weight = bound * (1 - 1e-6) / norm.clamp(min=bound)  # see NOTE [A part in a million]
        # Nothing longer than the bound is added up, also if the line above should be wrong.
        length = weight * norm
        weight = torch.where(length > bound, weight * (bound / length), weight)
        weights[group] = torch.where(norm.isfinite(), weight, torch.nan)
    return weights


def clipping_bounds(
    model: nn.Module, max_grad_norm: float | Mapping[str, float], clipping: str
) -> dict[str, float]:
    if clipping == "flat":
        if isinstance(max_grad_norm, Mapping):
            raise ValueError(
                'Flat clipping takes one max_grad_norm; bounds per layer go with clipping="per_layer".'
            )
        bounds = {"": number(max_grad_norm)}
    elif clipping == "per_layer":
        names = [n for n, p in model.named_parameters() if p.requires_grad]
        layers = list(dict.fromkeys(n.rpartition(".")[0] or "(model)" for n in names))
        if isinstance(max_grad_norm, Mapping):
            if set(max_grad_norm) != set(layers):
                raise ValueError(f"max_grad_norm names a bound for each of the layers {layers}.")
            bounds = {layer: number(max_grad_norm[layer]) for layer in layers}
        else:
            bounds = {layer: number(max_grad_norm) / math.sqrt(len(layers)) for layer in layers}
    else:
        raise ValueError(f'clipping is "flat" or "per_layer", got {clipping!r}.')
    if not all(LEAST_BOUND <= bound <= LARGEST_BOUND for bound in bounds.values()):
        raise ValueError(
            f"max_grad_norm is a number from {LEAST_BOUND:g} to {LARGEST_BOUND:g} (of each layer, with bounds per "
            f"layer), got {max_grad_norm!r}. Scale the loss if gradients are of another size."
        )
    return bounds
