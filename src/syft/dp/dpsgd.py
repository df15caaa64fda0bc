"""Private training: clip every example's gradient, add noise to the sum, count what it costs.

One duty: DP-SGD (Abadi et al. 2016). `make_private` ties together what must agree for the stated epsilon to
be true: the Poisson sampler, the clipping bound, the noise and the accountant. Imports `accounting`, `batch_parts`,
`clipping`, `core.labels`, `layer_rules`, `ledger`, `noise`, `per_sample`, `poisson_loader`, `private_models`,
`training_state`, `mpc.randomness`.

    training = make_private(model, optimizer, loader, loss_fn=loss_fn, target_epsilon=3, target_delta=1e-5, epochs=10)
    for _ in range(10):
        for inputs, targets in training.loader:
            training.step(inputs, targets)
    training.epsilon()

NOTE [Noise on a grid]
Sum and noise are both rounded to multiples of std / 2^32 and added as whole numbers, so which outputs are possible
does not depend on the data (Mironov 2012; see `noise`). Both are doubles; what comes out is the exact sum, rounded to a
double, which depends on that sum alone. Rounding a sum of d coordinates moves it by at most sqrt(d) / 2^33 standard
deviations: a millionth for a hundred million parameters. The whole numbers are below 2^63, so there is a least noise
for a batch: `check_noise`. A batch may come out larger than was thought of there, with a probability of 2^-160; its sum
is then cut off at 2^62, coordinate by coordinate, which brings two sums no further apart.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from numbers import Real
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

from syft.core.labels import split_labels
from syft.dp.accounting import Accountant, Budget, Kind, default_kind, noise_multiplier_for
from syft.dp.batch_parts import check_arguments, check_batch, some_rows
from syft.dp.clipping import ClippedSums, clipped, clipping_bounds, group_of
from syft.dp.events import Event, Gaussian, Spent
from syft.dp.layer_rules import trained_parameters
from syft.dp.noise import ROUNDED_STEPS, RoundedGaussians
from syft.dp.per_sample import WAYS, LossFunction
from syft.dp.poisson_loader import PoissonLoader as PoissonLoader
from syft.dp.poisson_loader import rate_of
from syft.dp.private_models import check_model as check_model
from syft.dp.private_models import check_optimizer, complex_fault
from syft.dp.private_models import replace_batch_norm as replace_batch_norm
from syft.dp.ruled_pass import Checked
from syft.dp.training_state import FORMAT, SpentByRun, read_spent
from syft.ledger import Account
from syft.mpc.randomness import Stream

#: With more noise than this nothing is learned.
LARGEST_NOISE = 1e9
#: What a sum may be in steps of the noise's grid.
LARGEST_SUM = 2.0**62

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
    ledger: Account | None = None
    """The file that every step is charged to, if there is one."""
    runs: SpentByRun = field(init=False)
    """What was spent, by run."""
    is_stepping: bool = field(default=False, init=False)
    """While `step` calls the optimizer."""
    in_own_loop: bool = field(default=False, init=False)
    """Whether `own_loop.own_loop` was made of it."""

    def __post_init__(self) -> None:
        self.runs = SpentByRun(self.accountant)
        if self.ledger is not None:
            self._know_of(self.ledger.state()[0])

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
        rows = self.check_step(inputs, targets)
        self.charge_step()
        total, loss = self.clipped_sums(inputs, targets)
        self.set_noisy_gradients(total)
        self.is_stepping = True
        try:
            self.optimizer.step()
        finally:
            self.is_stepping = False
        self.optimizer.zero_grad()
        return loss / max(rows, 1)

    def check_step(self, inputs: Any, targets: Any) -> int:
        """The rows of a batch that may be stepped on now. !! TypeError, ValueError; nothing is charged then"""
        rows = check_batch(inputs, targets)
        check_arguments(self.model, inputs)
        self._check_groups()
        if self.loader.outstanding is None or self.loader.outstanding != rows:
            raise ValueError(
                f"step() got a batch of {rows} rows, and the loader has "
                f"{'none' if self.loader.outstanding is None else self.loader.outstanding} outstanding. Step once "
                "on each batch of training.loader: epsilon is computed for its random choice of rows."
            )
        return rows

    def charge_step(self) -> None:
        """!! BudgetExceededError; nothing is charged then"""
        self.runs.notice_fork()
        if self.ledger is None:
            self._charge()
        else:
            self.ledger.change(self._charged)
        self.loader.outstanding = None

    def _charge(self) -> None:
        if self.budget is None:
            self.accountant.compose(self._event)
        else:
            self.budget.spend(self._event)  # its accountant is ours, and the steps are its plan

    def _charged(self, kept: Mapping[str, Any] | None) -> dict[str, Any]:
        """What the ledger says from now on: another run may have charged to it since this one did."""
        self._know_of(kept)
        self._charge()
        return self.state_dict()

    def _know_of(self, kept: Mapping[str, Any] | None) -> None:
        if kept is not None:
            self.runs.join(self._spent_in(kept), may_be_older=True)

    def _check_groups(self) -> None:
        """!! ValueError where parameters were frozen or unfrozen such that the bounds do not fit any more"""
        named = trained_parameters(self.model)
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

    def clipped_sums(self, inputs: Any, targets: Any) -> tuple[Mapping[str, Tensor], float]:
        """The sum of clipped gradients, in as many virtual steps as the physical batch asks for.

        Of one virtual step it is made as it is asked for: see `clipping.ClippedSums`.
        """
        trained = trained_parameters(self.model)
        total: dict[str, Tensor] = {}
        rows, loss = check_batch(inputs, targets), 0.0
        size = self.physical_batch or max(rows, 1)
        for start in range(0, rows, size):
            part = slice(start, start + size)
            sums, losses = clipped(
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
            if rows <= size and sums.keys() == trained.keys():
                return sums, loss
            for name, value in sums.items():
                total[name] = total[name].add_(value) if name in total else value
        for name, parameter in trained.items():
            if name not in total:
                total[name] = torch.zeros_like(parameter, dtype=torch.float64)
        return {name: total[name] for name in trained}, loss

    @torch.no_grad()
    def set_noisy_gradients(self, total: Mapping[str, Tensor]) -> None:
        """See NOTE [Noise on a grid]."""
        unit = self.noise_multiplier * self.sensitivity / ROUNDED_STEPS
        scale = unit / self.expected_batch
        parameters = trained_parameters(self.model)
        is_small = isinstance(total, ClippedSums) and total.most < unit * LARGEST_SUM
        noise = RoundedGaussians(sum(parameters[name].numel() for name in total), self.stream)
        for name in total:
            parameter = parameters[name]
            gradient = torch.empty_like(parameter, memory_format=torch.contiguous_format)
            made = gradient.view(-1)
            parts = (
                total.in_parts(name, unit)
                if isinstance(total, ClippedSums)
                else [total[name].reshape(-1).double() / unit]
            )
            for part in parts:
                part.round_()
                if not is_small:
                    part.clamp_(-LARGEST_SUM, LARGEST_SUM)
                size = part.numel()
                for start, drawn in noise.take(size):
                    part[start : start + drawn.numel()].add_(drawn.to(part.device))
                torch.mul(part, scale, out=made[:size])
                made = made[size:]
            parameter.grad = gradient

    # -- between runs ------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """What a training that goes on later must know, beside the states of model and optimizer: plain values.

        No noise, and nothing to draw it from. Save it with every state of the model that is kept or shown.
        """
        return {"format": FORMAT, "settings": self._settings(), "spent": self.runs.written()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Know of what was spent there, beside what was spent here (`training_state`, NOTE [Runs]).

        The training is made with the same arguments as the one that was saved.
        !! ValueError for other settings, and for a state that knows of less than was spent here
        """
        self.runs.join(self._spent_in(state))

    def _spent_in(self, state: Mapping[str, Any]) -> dict[str, Spent]:
        """What a state of this training says was spent, by run. !! ValueError"""
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
        return spent

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
    accountant: Kind | None = None,
    way: str = "auto",
    ledger: str | os.PathLike[str] | None = None,
) -> PrivateTraining:
    """Train `model` with DP-SGD on the data of `loader`, whose batch size becomes the average one.

    Either `noise_multiplier` (the noise's standard deviation in clipping bounds), or `target_epsilon` with
    `target_delta` and `epochs`, for which the least noise is found; steps beyond the target are then refused.
    `loss_fn(outputs, targets)` is called for every example alone. `clipping`: "flat" bounds the whole
    gradient by `max_grad_norm`; "per_layer" each layer, by `max_grad_norm[layer]` or an equal part.
    `physical_batch`: at most so many examples in memory at once. `way`: see `per_sample.factors`. `ledger`: a file that
    every step is charged to before it is made, on the disk; a training that is made again with it, after a crash too,
    knows of all steps there were, and of those that others make who share it.
    """
    model = check_set_up(
        "make_private", model, optimizer, loss_fn, way, physical_batch=physical_batch, epochs=epochs
    )
    rate = rate_of(loader)  # refuses what is no loader
    poisson = PoissonLoader(loader.dataset, rate, loader.collate_fn, like=loader)
    if noise_multiplier is None and target_epsilon is not None and (target_delta is None or epochs is None):
        raise ValueError("A target_epsilon needs target_delta and epochs: how long the training will be.")
    if epochs is not None and target_epsilon is None:
        raise ValueError(
            f"make_private was given epochs={epochs} without a target_epsilon: epochs say for how long noise is to last "
            "that is found for a target. Leave them out; training goes on for as long as you step."
        )
    planned = 0 if target_epsilon is None else (epochs or 0) * len(poisson)
    noise, accounts, budget = planned_noise(
        "make_private", noise_multiplier, target_epsilon, target_delta, accountant, poisson.rate, planned
    )
    bounds = clipping_bounds(model, max_grad_norm, clipping)
    check_noise(noise, poisson.rate * len(poisson.dataset))
    return PrivateTraining(
        model=model,
        optimizer=optimizer,
        loader=poisson,
        loss_fn=loss_fn,
        noise_multiplier=noise,
        bounds=bounds,
        budget=budget,
        accountant=accounts,
        planned_steps=planned,
        target_delta=target_delta,
        physical_batch=physical_batch,
        way=way,
        ledger=None if ledger is None else _opened(ledger),
    )


def check_set_up(
    caller: str, model: nn.Module, optimizer: Any, loss_fn: Any, way: str, **counts: int | None
) -> nn.Module:
    """What every private training asks of its arguments; the model, as it was written. !! TypeError, ValueError"""
    # NB: compiled or not, it is trained as it was written (`per_sample`, NOTE [Compiled models]).
    model = getattr(model, "_orig_mod", model)
    check_model(model)
    if not callable(loss_fn):
        raise TypeError(
            f"{caller} got loss_fn={str(loss_fn)[:60]!r}: it is a function of outputs and targets, e.g. nn.MSELoss()."
        )
    check_optimizer(model, optimizer)
    if way not in WAYS:
        raise ValueError(f"way is one of {', '.join(map(repr, WAYS))}, got {way!r}.")
    for what, value in counts.items():
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
            raise ValueError(f"{what} is a whole number, 1 at least, got {value!r}.")
    return model


def planned_noise(
    caller: str,
    noise_multiplier: float | None,
    target_epsilon: float | None,
    target_delta: float | None,
    kind: Kind | None,
    rate: float = 1.0,
    steps: int = 1,
) -> tuple[float, Accountant, Budget | None]:
    """The noise that was given, or the least for a target; who counts, and the budget of a target. !! ValueError"""
    if (noise_multiplier is None) == (target_epsilon is None):
        raise ValueError(f"{caller} takes either noise_multiplier or target_epsilon.")
    if target_delta is not None and not (
        isinstance(target_delta, Real) and not isinstance(target_delta, bool) and 0 < target_delta < 1
    ):
        raise ValueError(
            f"{caller} was given target_delta={target_delta!r}: delta is a number above 0 and less than one over the "
            "number of rows, say 1e-5."
        )
    accounts, budget = Accountant(kind or default_kind(target_delta)), None
    if target_epsilon is not None:
        if target_delta is None:
            raise ValueError("A target_epsilon needs a target_delta: less than one over the number of rows.")
        noise_multiplier = noise_multiplier_for(
            target_epsilon, target_delta, sampling_rate=rate, steps=steps, kind=accounts.kind
        )
        budget = Budget(target_epsilon, target_delta, accounts, (Gaussian(noise_multiplier, rate), steps))
    assert noise_multiplier is not None  # noqa: S101  (one of the two was given)
    Gaussian(noise_multiplier, rate)  # refuses what is no noise
    return float(noise_multiplier), accounts, budget


def _opened(path: str | os.PathLike[str]) -> Account:
    try:
        return Account(path)
    except FileNotFoundError:
        return Account.create(path)


def check_noise(noise_multiplier: float, expected_batch: float) -> None:
    """See NOTE [Noise on a grid]: a batch is twice the expected one and 100 more, at most."""
    least = (2 * expected_batch + 100) * ROUNDED_STEPS / LARGEST_SUM
    if not least <= noise_multiplier <= LARGEST_NOISE:
        raise ValueError(
            f"noise_multiplier={noise_multiplier:g} is out of what can be added to batches of about {expected_batch:g} "
            f"rows: {least:.2g} to {LARGEST_NOISE:g}. Less hides nobody (train without make_private instead), and more "
            "leaves nothing to learn."
        )
