"""Private training without random batches: DP-FTRL.

One duty: `make_private_ftrl`: clipped gradients as in DP-SGD, on a data set that is gone through in a fixed order, with
noise that is correlated from step to step. Imports `accounting`, `correlated_noise`, `dpsgd`, `events`, `noise`,
`poisson_loader`, `private_models`.

NOTE [Rounding here]
The grid is that of DP-SGD (`dpsgd`, NOTE [Noise on a grid]). Here one Gaussian mechanism is over all n steps, and
rounding n d numbers moves them by sqrt(n d) / 2 grid points at most, two data sets by twice that. The noise is wider by
as much.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, RandomSampler

from syft.dp.accounting import Kind
from syft.dp.clipping import clipping_bounds
from syft.dp.correlated_noise import Banded, Mechanism, Tree
from syft.dp.dpsgd import LARGEST_SUM, PrivateTraining, check_noise, check_set_up, planned_noise
from syft.dp.events import Event, Gaussian
from syft.dp.noise import ROUNDED_STEPS
from syft.dp.per_sample import LossFunction
from syft.dp.poisson_loader import PoissonLoader, rate_of
from syft.exceptions import BudgetExceededError


class FixedOrderLoader(PoissonLoader):
    """The batches of a data set in its order, the same in every epoch. The last one of an epoch may be smaller."""

    def __init__(self, loader: DataLoader[Any], epochs: int) -> None:
        self.batch_size, self.epochs, self._next = int(loader.batch_size or 1), epochs, 0
        super().__init__(loader.dataset, 1.0, loader.collate_fn, like=loader)

    def __len__(self) -> int:
        """Steps per epoch."""
        return math.ceil(len(self.dataset) / self.batch_size)

    def steps_left(self) -> int:
        return len(self) - self.drawn % len(self)

    def sample(self) -> Tensor:
        start = self._next % len(self) * self.batch_size
        self._next += 1
        return torch.arange(start, min(start + self.batch_size, len(self.dataset)))

    def __iter__(self) -> Iterator[Any]:
        if self.drawn >= self.epochs * len(self):
            raise BudgetExceededError(
                f"This training was made for {self.epochs} epochs, all of them are done, and its epsilon covers no more. "
                "Make a new training with more epochs: none can be added afterwards."
            )
        self._next = self.drawn  # after an epoch that was left in the middle, go on there
        return super().__iter__()


@dataclass
class FtrlTraining(PrivateTraining):
    """A model in private training without random batches. Made by `make_private_ftrl`."""

    mechanisms: dict[str, Mechanism] = field(default_factory=dict)
    """One for each parameter: they are the same, and each keeps the noise of its own numbers."""
    steps: int = field(default=0, init=False)
    """How many were taken."""

    @property
    def _event(self) -> Event:
        return Gaussian(self.noise_multiplier)

    @property
    def expected_batch(self) -> float:
        assert isinstance(self.loader, FixedOrderLoader)  # noqa: S101  (made so)
        return float(self.loader.batch_size)

    @property
    def noise_scale(self) -> float:
        """The standard deviation of the noise on what is released (`correlated_noise`, NOTE [Matrices])."""
        sensitivity = self.sensitivity * next(iter(self.mechanisms.values())).sensitivity()
        count = self.planned_steps * sum(p.numel() for p in self.model.parameters() if p.requires_grad)
        rounding = math.sqrt(count) / ROUNDED_STEPS  # see NOTE [Rounding here]
        return self.noise_multiplier * sensitivity * (1 + 1e-9 + 2 * rounding * self.noise_multiplier)

    def check_step(self, inputs: Any, targets: Any) -> int:
        if self.loader.outstanding is not None and self.loader.drawn != self.steps + 1:
            raise ValueError(
                f"The loader has handed out {self.loader.drawn} batches, and {self.steps} steps were taken. Step on "
                "every batch, in the loader's order: the noise is made for exactly this order."
            )
        return super().check_step(inputs, targets)

    def charge_step(self) -> None:
        """All of the training is charged with its first step."""
        if not self.steps:
            super().charge_step()
        self.steps += 1
        self.loader.outstanding = None

    @torch.no_grad()
    def set_noisy_gradients(self, total: Mapping[str, Tensor]) -> None:
        unit = self.noise_scale / ROUNDED_STEPS
        parameters = dict(self.model.named_parameters())
        if total.keys() != self.mechanisms.keys():
            raise ValueError(
                "Parameters were frozen or unfrozen since this training was made, and their noise is correlated from "
                "step to "
                "step: make another with make_private_ftrl."
            )
        for name, value in total.items():
            on_grid = (value.double() / unit).round_().clamp_(-LARGEST_SUM, LARGEST_SUM)
            noisy = self.mechanisms[name].noisy(on_grid, self.stream)
            parameters[name].grad = noisy.mul_(unit / self.expected_batch).to(parameters[name].dtype)

    def state_dict(self) -> dict[str, Any]:
        raise NotImplementedError(
            "A training with correlated noise is not saved in the middle: what is needed to go on is the noise "
            "itself, which "
            "nobody may have. Save the model at the end, or train each part of the data by a training of its own."
        )

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.state_dict()


def make_private_ftrl(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    loader: DataLoader[Any],
    *,
    loss_fn: LossFunction,
    epochs: int = 1,
    max_grad_norm: float | Mapping[str, float] = 1.0,
    noise_multiplier: float | None = None,
    target_epsilon: float | None = None,
    target_delta: float | None = None,
    mechanism: Literal["tree", "banded"] = "tree",
    restart: bool = False,
    bands: int | None = None,
    clipping: str = "flat",
    physical_batch: int | None = None,
    accountant: Kind | None = None,
    way: str = "auto",
) -> FtrlTraining:
    """Train `model` with DP-FTRL on the data of `loader`, in its order: where rows cannot be drawn at random.

    `mechanism`: "tree" (`restart=True`: a new tree in every epoch), or "banded" (`bands`: how many, the steps of an
    epoch without; 1 is independent noise). `noise_multiplier` is the noise over what one example can change in the
    whole training, of all `epochs`. The rest is as in `make_private`; the optimizer may have momentum and a schedule.
    """
    model = check_set_up(
        "make_private_ftrl",
        model,
        optimizer,
        loss_fn,
        way,
        physical_batch=physical_batch,
        epochs=epochs,
        bands=bands,
    )
    rate_of(loader)  # refuses what is no loader
    if isinstance(loader.sampler, RandomSampler):
        raise ValueError(
            "make_private_ftrl got a loader that shuffles. Its noise is for one fixed order, in which every row comes "
            "again after "
            "one epoch: make the loader with shuffle=False, of data in the order you like. For random batches, "
            "make_private needs less noise."
        )
    # NB: all of a training is one release.
    noise, accounts, budget = planned_noise(
        "make_private_ftrl", noise_multiplier, target_epsilon, target_delta, accountant
    )
    ordered = FixedOrderLoader(loader, epochs)
    trained = {n: p for n, p in model.named_parameters() if p.requires_grad}
    made = {name: _mechanism(mechanism, len(ordered), epochs, restart, bands) for name in trained}
    bounds = clipping_bounds(model, max_grad_norm, clipping)
    # NB: of a sum over a band, which is that of all batches of an epoch at most.
    check_noise(noise, float(len(ordered.dataset)))
    return FtrlTraining(
        model=model,
        optimizer=optimizer,
        loader=ordered,
        loss_fn=loss_fn,
        noise_multiplier=noise,
        bounds=bounds,
        budget=budget,
        accountant=accounts,
        planned_steps=epochs * len(ordered),
        target_delta=target_delta,
        physical_batch=physical_batch,
        way=way,
        mechanisms=made,
    )


def _mechanism(kind: str, steps: int, epochs: int, restart: bool, bands: int | None) -> Mechanism:
    if kind == "tree":
        if bands is not None:
            raise ValueError('bands goes with mechanism="banded"; a tree has none.')
        return Tree(steps, epochs, restart)
    if kind == "banded":
        if restart:
            raise ValueError('restart goes with mechanism="tree"; bands end by themselves.')
        return Banded(steps, epochs, steps if bands is None else bands)
    raise ValueError(f'mechanism is "tree" or "banded", got {kind!r}.')
