"""Private training: clip every example's gradient, add noise to the sum, count what it costs.

One duty: DP-SGD (Abadi et al. 2016). `make_private` ties together what must agree for the stated epsilon to
be true: the Poisson sampler, the clipping bound, the noise and the accountant. Imports `accounting`, `noise`,
`per_sample`, `mpc.randomness`.

    training = make_private(model, optimizer, loader, loss_fn=loss_fn, target_epsilon=3, target_delta=1e-5, epochs=10)
    for _ in range(10):
        for inputs, targets in training.loader:
            training.step(inputs, targets)
    training.epsilon()

NOTE [Noise on a grid]
Sum and noise are both rounded to multiples of std / 2^32 and added as integers, so which outputs are possible
does not depend on the data (Mironov 2012; see `noise`). Rounding a sum of d coordinates moves it by at most
sqrt(d) / 2^33 standard deviations: a millionth for a hundred million parameters.

NOTE [A part in a million]
Gradients are clipped to a millionth less than the bound. That pays for rounding: of the norm (a part in 10^10),
and of the sum, which is in double precision. A sum of B vectors of length C, in any order, is off by at most
B^2 C / 2^53 (Higham 2002, section 4.2, and the triangle inequality), and two such sums by twice that: less
than the millionth for batches of up to 60 000 examples.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset, default_collate

from syft.dp.accounting import Accountant, Budget, Gaussian, Kind, noise_multiplier_for
from syft.dp.noise import ROUNDED_STEPS, rounded_gaussian
from syft.dp.per_sample import Factor, LossFunction, factors, settled_way
from syft.mpc.randomness import Stream

#: Clipping bounds beyond these would meet the ends of single precision, and are mistakes.
LEAST_BOUND, LARGEST_BOUND = 1e-6, 1e6

# -- sampling --------------------------------------------------------------------------------------------


class PoissonLoader:
    """Batches in which every row of the data set is with the same probability, independently, each time anew.

    The accountant's sampling theorem is about this, not about shuffled batches of one size. A batch has
    `rate * len(dataset)` rows on average; it may be empty, and is then trained on all the same (noise only).
    """

    def __init__(
        self, dataset: Any, rate: float, collate_fn: Any = None, stream: Stream | None = None
    ) -> None:
        if not 0 < rate <= 1:
            raise ValueError(f"A sampling rate is above 0 and at most 1, got {rate}.")
        self.dataset, self.rate = dataset, rate
        self.collate_fn = collate_fn or default_collate
        self.outstanding: int | None = None
        """The size of the batch that was handed out and not yet trained on."""
        self._stream = stream or Stream()

    def __len__(self) -> int:
        """Steps per epoch."""
        return math.ceil(1 / self.rate - 1e-9)

    def sample(self) -> Tensor:
        """The row numbers of one batch: each with probability `rate`, rounded down to a multiple of 2^-63."""
        words = self._stream.words(len(self.dataset)) & (2**63 - 1)
        return torch.nonzero(words <= int(self.rate * 2**63) - 1).flatten()

    def __iter__(self) -> Iterator[Any]:
        for _ in range(len(self)):
            rows = self.sample()
            batch = self._rows(rows)
            self.outstanding = len(rows)
            yield batch

    def _rows(self, rows: Tensor) -> Any:
        if isinstance(self.dataset, TensorDataset) and self.collate_fn is default_collate:
            return [t[rows] for t in self.dataset.tensors]
        if len(rows):
            return self.collate_fn([self.dataset[i] for i in rows.tolist()])
        return [part[:0] for part in self.collate_fn([self.dataset[0]])]  # the shapes, and no row


# -- what cannot be private ------------------------------------------------------------------------------


def check_model(model: nn.Module) -> None:
    """Refuse layers that mix the examples of a batch, all at once, each with its replacement."""
    if not isinstance(model, nn.Module):
        raise TypeError(f"A model is an nn.Module, got a {type(model).__name__}.")
    faults = []
    for name, layer in model.named_modules():
        if isinstance(layer, nn.modules.batchnorm._BatchNorm):
            groups = math.gcd(32, layer.num_features)
            faults.append(
                f"{name or 'the model'} is {type(layer).__name__}, which mixes the examples of a batch: put "
                f"nn.GroupNorm({groups}, {layer.num_features}) in its place, or call replace_batch_norm(model)"
            )
        elif isinstance(layer, nn.modules.instancenorm._InstanceNorm) and layer.track_running_stats:
            faults.append(
                f"{name or 'the model'} is {type(layer).__name__} and keeps statistics of the data without noise: "
                "make it with track_running_stats=False"
            )
    if faults:
        raise ValueError("This model cannot be trained privately: " + "; ".join(faults) + ".")


def replace_batch_norm(model: nn.Module) -> nn.Module:
    """Put GroupNorm in the place of every BatchNorm, in place. Make the optimizer after it."""
    if isinstance(model, nn.modules.batchnorm._BatchNorm):
        return nn.GroupNorm(math.gcd(32, model.num_features), model.num_features, affine=model.affine)
    for name, layer in list(model.named_children()):
        setattr(model, name, replace_batch_norm(layer))
    return model


# -- one step --------------------------------------------------------------------------------------------


@dataclass
class PrivateTraining:
    """A model in private training. Made by `make_private`."""

    model: nn.Module
    optimizer: torch.optim.Optimizer
    loader: PoissonLoader
    loss_fn: LossFunction
    noise_multiplier: float
    bounds: dict[str, float]
    """Clipping bound per group of parameters: one group "" when flat, one per layer otherwise."""
    budget: Budget | None
    accountant: Accountant
    planned_steps: int = 0
    target_delta: float | None = None
    physical_batch: int | None = None
    way: str = "auto"
    stream: Stream = field(default_factory=Stream)
    _settled: bool = False

    @property
    def sensitivity(self) -> float:
        """How much one example can move the sum of clipped gradients (L2)."""
        return math.sqrt(math.fsum(bound**2 for bound in self.bounds.values()))

    @property
    def expected_batch(self) -> float:
        return self.loader.rate * len(self.loader.dataset)

    def epsilon(self, delta: float | None = None) -> float:
        """What the steps so far cost."""
        delta = self.target_delta if delta is None else delta
        if delta is None:
            raise ValueError("epsilon() needs a delta: less than one over the number of rows, say 1e-5.")
        return self.accountant.epsilon(delta)

    def step(self, inputs: Tensor, targets: Any) -> float:
        """One step on the batch the loader just gave; charged first. Returns the mean loss, which is NOT private."""
        if self.loader.outstanding is None or self.loader.outstanding != len(inputs):
            raise ValueError(
                f"step() got a batch of {len(inputs)} rows, and the loader has "
                f"{'none' if self.loader.outstanding is None else self.loader.outstanding} outstanding. Step once "
                "on each batch of training.loader: epsilon is computed for its random choice of rows."
            )
        event = Gaussian(self.noise_multiplier, self.loader.rate)
        if self.budget is None or self.accountant.spent.get(event, 0) < self.planned_steps:
            self.accountant.compose(event)  # the noise was chosen so that the planned steps fit the budget
        else:
            self.budget.spend(event)  # its accountant is ours
        self.loader.outstanding = None
        total, loss = self._clipped_sums(inputs, targets)
        self._set_noisy_gradients(total)
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss / max(len(inputs), 1)

    def _clipped_sums(self, inputs: Tensor, targets: Any) -> tuple[dict[str, Tensor], float]:
        """The sum of clipped gradients, in as many virtual steps as the physical batch asks for."""
        trained = {n: p for n, p in self.model.named_parameters() if p.requires_grad}
        total = {n: torch.zeros_like(p, dtype=torch.float64) for n, p in trained.items()}
        size, loss = self.physical_batch or max(len(inputs), 1), 0.0
        for start in range(0, len(inputs), size):
            part = slice(start, start + size)
            if self.way == "auto" and not self._settled:
                self.way = settled_way(self.model, self.loss_fn, inputs[part], targets[part])
                self._settled = True
            sums, losses = clipped_sum(
                self.model, self.loss_fn, inputs[part], targets[part], self.bounds, way=self.way
            )
            loss += float(losses.sum())
            for name, value in sums.items():
                total[name] += value
        return total, loss

    @torch.no_grad()
    def _set_noisy_gradients(self, total: Mapping[str, Tensor]) -> None:
        """See NOTE [Noise on a grid]."""
        unit = self.noise_multiplier * self.sensitivity / ROUNDED_STEPS
        noise = torch.from_numpy(rounded_gaussian(sum(t.numel() for t in total.values()), self.stream))
        parameters, start = dict(self.model.named_parameters()), 0
        for name, value in total.items():
            drawn = noise[start : start + value.numel()].view(value.shape).to(value.device)
            start += value.numel()
            noisy = (value.double() / unit).round_().long().add_(drawn)
            parameter = parameters[name]
            parameter.grad = noisy.double().mul_(unit / self.expected_batch).to(parameter.dtype)


def group_of(parameter: str, bounds: Mapping[str, float]) -> str:
    """The clipping group of a parameter: its layer, or the only one there is."""
    return "" if "" in bounds else parameter.rpartition(".")[0] or "(model)"


def clipped_sum(
    model: nn.Module,
    loss_fn: LossFunction,
    inputs: Tensor,
    targets: Any,
    bounds: Mapping[str, float],
    *,
    way: str = "auto",
) -> tuple[dict[str, Tensor], Tensor]:
    """The sum over examples of gradients clipped to `bounds`, in double precision, and the losses.

    An example whose gradient is not finite adds nothing: whatever else it did would tell.
    """
    found, losses = factors(model, loss_fn, inputs, targets, way)
    weights = _weights(found, bounds)
    finite = torch.stack(list(weights.values())).isfinite().all(0)
    if not bool(finite.all()):
        # NB: a weight of 0 would not do, 0 * inf is NaN.
        if not bool(finite.any()):
            return {}, losses.nan_to_num(0.0, 0.0, 0.0)
        sums, _ = clipped_sum(model, loss_fn, inputs[finite], targets[finite], bounds, way=way)
        return sums, losses.nan_to_num(0.0, 0.0, 0.0)
    return {name: f.weighted_sum(weights[group_of(name, bounds)]) for name, f in found.items()}, losses


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


# -- one call --------------------------------------------------------------------------------------------


def make_private(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    loader: DataLoader[Any],
    *,
    loss_fn: LossFunction,
    max_grad_norm: float | Mapping[str, float] = 1.0,
    noise_multiplier: float | None = None,
    target_epsilon: float | None = None,
    target_delta: float | None = None,
    epochs: int | None = None,
    clipping: str = "flat",
    physical_batch: int | None = None,
    accountant: Kind = "rdp",
    way: str = "auto",
) -> PrivateTraining:
    """Train `model` with DP-SGD on the data of `loader`, whose batch size becomes the average one.

    Either `noise_multiplier` (the noise's standard deviation in clipping bounds), or `target_epsilon` with
    `target_delta` and `epochs`, for which the least noise is found; steps beyond the target are then refused.
    `loss_fn(outputs, targets)` is called for every example alone. `clipping`: "flat" bounds the whole
    gradient by `max_grad_norm`; "per_layer" each layer, by `max_grad_norm[layer]` or an equal part.
    `physical_batch`: at most so many examples in memory at once. `way`: see `per_sample.factors`.
    """
    check_model(model)
    if not callable(loss_fn):
        raise TypeError(
            f"make_private got loss_fn={str(loss_fn)[:60]!r}: it is a function of outputs and targets, e.g. nn.MSELoss()."
        )
    trained = [p for p in model.parameters() if p.requires_grad]
    if not trained:
        raise ValueError(
            "The model has no parameter to train: all are frozen (requires_grad=False), or there is none."
        )
    held = [p for group in optimizer.param_groups for p in group["params"] if p.requires_grad]
    if {id(p) for p in trained} != {id(p) for p in held}:
        raise ValueError(
            "The optimizer holds other parameters than the model trains: make it of model.parameters()."
        )
    if loader.batch_size is None:
        raise ValueError("make_private needs a loader with a batch_size: it is the average size of a batch.")
    for number, value in (("physical_batch", physical_batch), ("epochs", epochs)):
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
            raise ValueError(f"{number} is a whole number, 1 at least, got {value!r}.")
    if not all(math.isfinite(float(group.get("lr", 0.0))) for group in optimizer.param_groups):
        raise ValueError("The learning rate of the optimizer is not a finite number: give it another lr.")
    size: int = len(loader.dataset)  # type: ignore[arg-type]
    if size == 0:
        raise ValueError("make_private got a data set without rows: there is nothing to train on.")
    poisson = PoissonLoader(loader.dataset, min(1.0, loader.batch_size / size), loader.collate_fn)
    if (noise_multiplier is None) == (target_epsilon is None):
        raise ValueError("make_private takes either noise_multiplier or target_epsilon.")
    bounds = _bounds(model, max_grad_norm, clipping)
    accounts, budget, planned = Accountant(accountant), None, 0
    if target_epsilon is not None:
        if target_delta is None or epochs is None:
            raise ValueError("A target_epsilon needs target_delta and epochs: how long the training will be.")
        noise_multiplier = noise_multiplier_for(
            target_epsilon,
            target_delta,
            sampling_rate=poisson.rate,
            steps=(planned := epochs * len(poisson)),
            kind=accountant,
        )
        budget = Budget(target_epsilon, target_delta, accounts)
    assert noise_multiplier is not None  # noqa: S101  (one of the two was given)
    Gaussian(noise_multiplier, poisson.rate)  # refuses what is no noise
    return PrivateTraining(
        model=model,
        optimizer=optimizer,
        loader=poisson,
        loss_fn=loss_fn,
        noise_multiplier=float(noise_multiplier),
        bounds=bounds,
        budget=budget,
        accountant=accounts,
        planned_steps=planned,
        target_delta=target_delta,
        physical_batch=physical_batch,
        way=way,
    )


def _bounds(model: nn.Module, max_grad_norm: float | Mapping[str, float], clipping: str) -> dict[str, float]:
    if clipping == "flat":
        if isinstance(max_grad_norm, Mapping):
            raise ValueError(
                'Flat clipping takes one max_grad_norm; bounds per layer go with clipping="per_layer".'
            )
        bounds = {"": _number(max_grad_norm)}
    elif clipping == "per_layer":
        names = [n for n, p in model.named_parameters() if p.requires_grad]
        layers = list(dict.fromkeys(n.rpartition(".")[0] or "(model)" for n in names))
        if isinstance(max_grad_norm, Mapping):
            if set(max_grad_norm) != set(layers):
                raise ValueError(f"max_grad_norm names a bound for each of the layers {layers}.")
            bounds = {layer: _number(max_grad_norm[layer]) for layer in layers}
        else:
            bounds = {layer: _number(max_grad_norm) / math.sqrt(len(layers)) for layer in layers}
    else:
        raise ValueError(f'clipping is "flat" or "per_layer", got {clipping!r}.')
    if not all(LEAST_BOUND <= bound <= LARGEST_BOUND for bound in bounds.values()):
        raise ValueError(
            f"max_grad_norm is a number from {LEAST_BOUND:g} to {LARGEST_BOUND:g} (of each layer, with bounds per "
            f"layer), got {max_grad_norm!r}. Scale the loss if gradients are of another size."
        )
    return bounds


def _number(value: Any) -> float:
    """A float, or NaN for what is none."""
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else math.nan
