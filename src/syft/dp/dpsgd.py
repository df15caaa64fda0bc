"""Private training: clip every example's gradient, add noise to the sum, count what it costs.

One duty: DP-SGD (Abadi et al. 2016). `make_private` ties together what must agree for the stated epsilon to
be true: the Poisson sampler, the clipping bound, the noise and the accountant. Imports `accounting`, `batch_parts`,
`core.labels`, `noise`, `per_sample`, `poisson_loader`, `private_models`, `training_state`, `mpc.randomness`.

    training = make_private(model, optimizer, loader, loss_fn=loss_fn, target_epsilon=3, target_delta=1e-5, epochs=10)
    for _ in range(10):
        for inputs, targets in training.loader:
            training.step(inputs, targets)
    training.epsilon()

NOTE [Noise on a grid]
Sum and noise are both rounded to multiples of std / 2^32 and added as integers, so which outputs are possible
does not depend on the data (Mironov 2012; see `noise`). Rounding a sum of d coordinates moves it by at most
sqrt(d) / 2^33 standard deviations: a millionth for a hundred million parameters. The integers have 63 bits, so there
is a least noise for a batch: `_check_noise`. A batch may come out larger than was thought of there, with a probability
of 2^-160; its sum is then cut off at 2^62, coordinate by coordinate, which brings two sums no further apart.

NOTE [A part in a million]
Gradients are clipped to a millionth less than the bound. That pays for rounding: of the norm (a part in 10^10),
and of the sum, which is in double precision. A sum of B vectors of length C, in any order, is off by at most
B^2 C / 2^53 (Higham 2002, section 4.2, and the triangle inequality), and two such sums by twice that: less
than the millionth for batches of up to 60 000 examples.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

from syft.core.labels import split_labels
from syft.dp.accounting import Accountant, Budget, Kind, noise_multiplier_for
from syft.dp.batch_parts import check_batch, some_rows
from syft.dp.events import Event, Gaussian, number
from syft.dp.noise import ROUNDED_STEPS, rounded_gaussian
from syft.dp.per_sample import WAYS, Factor, LossFunction, factors
from syft.dp.poisson_loader import PoissonLoader as PoissonLoader
from syft.dp.poisson_loader import rate_of
from syft.dp.private_models import check_model as check_model
from syft.dp.private_models import check_optimizer, complex_fault
from syft.dp.private_models import replace_batch_norm as replace_batch_norm
from syft.dp.ruled_pass import Checked
from syft.dp.training_state import FORMAT, Ledger, read_spent
from syft.mpc.randomness import Stream

#: Clipping bounds beyond these would meet the ends of single precision, and are mistakes.
LEAST_BOUND, LARGEST_BOUND = 1e-6, 1e6
#: With more noise than this nothing is learned.
LARGEST_NOISE = 1e9
#: What a sum may be in steps of the noise's grid.
_LARGEST_SUM = 2.0**62

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
    checked: Checked = field(default_factory=Checked)
    """What is known about the rules for this model."""
    ledger: Ledger = field(init=False)
    """What was spent, by run."""

    def __post_init__(self) -> None:
        self.ledger = Ledger(self.accountant)

    @property
    def sensitivity(self) -> float:
        """How much one example can move the sum of clipped gradients (L2)."""
        return math.sqrt(math.fsum(bound**2 for bound in self.bounds.values()))

    @property
    def _event(self) -> Event:
        return Gaussian(self.noise_multiplier, self.loader.rate)

    @property
    def expected_batch(self) -> float:
        return self.loader.rate * len(self.loader.dataset)

    def epsilon(self, delta: float | None = None) -> float:
        """What the steps so far cost."""
        delta = self.target_delta if delta is None else delta
        if delta is None:
            raise ValueError("epsilon() needs a delta: less than one over the number of rows, say 1e-5.")
        if self.budget is not None and delta == self.budget.delta:
            return self.budget.spent()  # knows of what was spent beside the training, too
        return self.accountant.epsilon(delta)

    def step(self, inputs: Any, targets: Any = None) -> float:
        """One step on the batch the loader just gave; charged first. Returns the mean loss, which is NOT private.

        `inputs` are a tensor, `model(inputs)`; a tuple of tensors, `model(*inputs)`; or a dict, `model(**inputs)`. The
        loss is given the model's outputs and `targets`. A dict without targets has them as "labels", which the model
        is then not given.
        Each batch is stepped on, also one without rows. NB: it may come to another device or in another format, so that
        it is known by its length only: whatever is done to it in between is done to each row by itself.
        """
        if targets is None:
            inputs, targets = split_labels(inputs)
        rows = check_batch(inputs, targets)
        self._check_groups()
        if self.loader.outstanding is None or self.loader.outstanding != rows:
            raise ValueError(
                f"step() got a batch of {rows} rows, and the loader has "
                f"{'none' if self.loader.outstanding is None else self.loader.outstanding} outstanding. Step once "
                "on each batch of training.loader: epsilon is computed for its random choice of rows."
            )
        self.ledger.notice_fork()
        if self.budget is None:
            self.accountant.compose(self._event)
        else:
            self.budget.spend(self._event)  # its accountant is ours, and the steps are its plan
        self.loader.outstanding = None
        total, loss = self._clipped_sums(inputs, targets)
        self._set_noisy_gradients(total)
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss / max(rows, 1)

    def _check_groups(self) -> None:
        """!! ValueError where parameters were frozen or unfrozen such that the bounds do not fit any more"""
        named = {n: p for n, p in self.model.named_parameters() if p.requires_grad}
        trained = list(named)
        for name, parameter in named.items():
            if parameter.is_complex():
                raise ValueError(f"This model cannot be trained privately: {complex_fault(name)}.")
        without = sorted({g for n in trained if (g := group_of(n, self.bounds)) not in self.bounds})
        if without or not trained:
            raise ValueError(
                f"There is no clipping bound for {', '.join(map(repr, without))}, frozen when the training was made: "
                "make it again with make_private, and load the state_dict() of this one, which is what was spent."
                if without
                else "All parameters of the model are frozen by now: there is nothing to train, and nothing was charged."
            )

    def _clipped_sums(self, inputs: Any, targets: Any) -> tuple[dict[str, Tensor], float]:
        """The sum of clipped gradients, in as many virtual steps as the physical batch asks for."""
        trained = {n: p for n, p in self.model.named_parameters() if p.requires_grad}
        total = {n: torch.zeros_like(p, dtype=torch.float64) for n, p in trained.items()}
        rows, loss = check_batch(inputs, targets), 0.0
        size = self.physical_batch or max(rows, 1)
        for start in range(0, rows, size):
            part = slice(start, start + size)
            sums, losses = clipped_sum(
                self.model,
                self.loss_fn,
                some_rows(inputs, part),
                some_rows(targets, part),
                self.bounds,
                way=self.way,
                checked=self.checked,
            )
            if self.checked.against:
                self.way = "vmap"
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
            noisy = (value.double() / unit).round_().clamp_(-_LARGEST_SUM, _LARGEST_SUM).long().add_(drawn)
            parameter = parameters[name]
            parameter.grad = noisy.double().mul_(unit / self.expected_batch).to(parameter.dtype)

    # -- between runs ------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """What a training that goes on later must know, beside the states of model and optimizer: plain values.

        No noise, and nothing to draw it from. Save it with every state of the model that is kept or shown.
        """
        return {"format": FORMAT, "settings": self._settings(), "spent": self.ledger.written()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Know of what was spent there, beside what was spent here (`training_state`, NOTE [Runs]).

        The training is made with the same arguments as the one that was saved.
        !! ValueError for other settings, and for a state that knows of less than was spent here
        """
        try:
            settings, spent = dict(state["settings"]), read_spent(state)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ValueError(
                f"This is not the state of a private training ({type(error).__name__}: {error}). It is not taken for one "
                "that spent nothing: load what training.state_dict() gave."
            ) from error
        own = self._settings()
        others = [
            f"{name} was {settings.get(name)!r} and is {own.get(name)!r}"
            for name in sorted(own.keys() | settings.keys())
            if own.get(name) != settings.get(name)
        ]
        if others:
            raise ValueError(
                f"The state is that of another training: {'; '.join(others)}. Make the training with the same arguments, "
                "on the same data."
            )
        self.ledger.join(spent)

    def _settings(self) -> dict[str, Any]:
        target = None if self.budget is None else [self.budget.epsilon, self.budget.delta]
        return {
            "accountant": self.accountant.kind,
            "noise_multiplier": self.noise_multiplier,
            "rate": self.loader.rate,
            "rows": len(self.loader.dataset),
            "planned_steps": self.planned_steps,
            "target": target,
        }

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise TypeError(
            "A private training is neither copied nor pickled: two of them would add the same noise, and each would "
            "forget what the other spent. Keep the state_dict() of the model, of the optimizer and of the training, and "
            "load them into new ones."
        )


def group_of(parameter: str, bounds: Mapping[str, float]) -> str:
    """The clipping group of a parameter: its layer, or the only one there is."""
    return "" if "" in bounds else parameter.rpartition(".")[0] or "(model)"


def clipped_sum(
    model: nn.Module,
    loss_fn: LossFunction,
    inputs: Any,
    targets: Any,
    bounds: Mapping[str, float],
    *,
    way: str = "auto",
    checked: Checked | None = None,
) -> tuple[dict[str, Tensor], Tensor]:
    """The sum over examples of gradients clipped to `bounds`, in double precision, and the losses.

    An example whose gradient is not finite adds nothing: whatever else it did would tell.
    """
    found, losses = factors(model, loss_fn, inputs, targets, way, checked)
    weights = _weights(found, bounds)
    finite = torch.stack(list(weights.values())).isfinite().all(0)
    if not bool(finite.all()):
        # NB: a weight of 0 would not do, 0 * inf is NaN.
        if not bool(finite.any()):
            return {}, losses.nan_to_num(0.0, 0.0, 0.0)
        sums, _ = clipped_sum(
            model,
            loss_fn,
            some_rows(inputs, finite),
            some_rows(targets, finite),
            bounds,
            way=way,
            checked=checked,
        )
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
    # NB: compiled or not, it is trained as it was written (`per_sample`, NOTE [Compiled models]).
    model = getattr(model, "_orig_mod", model)
    check_model(model)
    if not callable(loss_fn):
        raise TypeError(
            f"make_private got loss_fn={str(loss_fn)[:60]!r}: it is a function of outputs and targets, e.g. nn.MSELoss()."
        )
    check_optimizer(model, optimizer)
    if way not in WAYS:
        raise ValueError(f"way is one of {', '.join(map(repr, WAYS))}, got {way!r}.")
    for what, value in (("physical_batch", physical_batch), ("epochs", epochs)):
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
            raise ValueError(f"{what} is a whole number, 1 at least, got {value!r}.")
    rate = rate_of(loader)  # refuses what is no loader
    poisson = PoissonLoader(loader.dataset, rate, loader.collate_fn)
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
        plan = Gaussian(noise_multiplier, poisson.rate), planned
        budget = Budget(target_epsilon, target_delta, accounts, plan)
    assert noise_multiplier is not None  # noqa: S101  (one of the two was given)
    Gaussian(noise_multiplier, poisson.rate)  # refuses what is no noise
    _check_noise(noise_multiplier, poisson.rate * len(poisson.dataset))
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


def _check_noise(noise_multiplier: float, expected_batch: float) -> None:
    """See NOTE [Noise on a grid]: a batch is twice the expected one and 100 more, at most."""
    least = (2 * expected_batch + 100) * ROUNDED_STEPS / _LARGEST_SUM
    if not least <= noise_multiplier <= LARGEST_NOISE:
        raise ValueError(
            f"noise_multiplier={noise_multiplier:g} is out of what can be added to batches of about {expected_batch:g} "
            f"rows: {least:.2g} to {LARGEST_NOISE:g}. Less hides nobody (train without make_private instead), and more "
            "leaves nothing to learn."
        )


def _bounds(model: nn.Module, max_grad_norm: float | Mapping[str, float], clipping: str) -> dict[str, float]:
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
