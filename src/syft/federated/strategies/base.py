"""What a strategy is: what clients do differently, and how the server steps.

All strategies work on differences: a client's update is its state minus the round's, and `step` returns the
server's state minus the round's. Vectors are flat, parameters first, then buffers (see `layout`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

from torch import Tensor

from syft.federated.aggregation import Updates
from syft.federated.layout import Layout
from syft.federated.records import State


@dataclass(frozen=True)
class LocalRule:
    """What a strategy asks of a client beside ordinary training."""

    proximal_mu: float = 0.0
    correction: State | None = None


class Strategy:
    """Base of all. A strategy object belongs to one trainer, since it may have a memory."""

    name: ClassVar[str] = ""
    needs_single_updates: ClassVar[bool] = False

    layout: Layout
    clients: Sequence[str]

    def bind(self, layout: Layout, clients: Sequence[str]) -> None:
        """Called once by the trainer, before anything else."""
        if hasattr(self, "layout"):
            raise ValueError(
                f"This {type(self).__name__} belongs to another trainer already, and has a memory of its rounds. "
                "Make one for each trainer."
            )
        self.layout, self.clients = layout, tuple(clients)

    def change_clients(self, clients: Sequence[str]) -> None:
        """Clients came or left between two rounds. What is remembered of those who left is dropped."""
        self.clients = tuple(clients)

    def check_training(self, optimizer: str, optimizer_args: Mapping[str, Any]) -> None:
        """!! ValueError if clients train in a way that the strategy is not made for."""

    def too_few(self, count: int) -> str | None:
        """Why `count` updates are not enough for a step, or None."""
        return None

    def local_rule(self, client: str, optimizer_args: Mapping[str, Any]) -> LocalRule:
        """What this client is to do in the coming round."""
        return LocalRule()

    def step(self, updates: Updates, optimizer_args: Mapping[str, Any]) -> Tensor:
        """How far the server's state moves."""
        raise NotImplementedError(f"{type(self).__name__} has no step(updates, optimizer_args).")

    def settings(self) -> dict[str, float]:
        """What it was made with; a checkpoint is resumed only with the same."""
        return {}

    def state(self) -> dict[str, Tensor]:
        """Its memory, for a checkpoint."""
        return {}

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Take up a memory. !! ValueError when it does not fit"""
        if state:
            raise ValueError(f"{type(self).__name__} has no memory, and was given {sorted(state)[:3]}.")


STRATEGIES: dict[str, Callable[[], Strategy]] = {}

S = TypeVar("S", bound=type[Strategy])


def register_strategy(cls: S) -> S:
    """Class decorator: `Trainer(strategy=cls.name)` makes one without arguments."""
    if not cls.name or cls.name in STRATEGIES:
        raise ValueError(
            f"{cls.__name__} has the name {cls.name!r}, which is empty or taken. Give it its own."
        )
    STRATEGIES[cls.name] = cls
    return cls


def make_strategy(strategy: str | Strategy) -> Strategy:
    """A strategy from its name, or itself. !! ValueError, TypeError"""
    if isinstance(strategy, str):
        if strategy not in STRATEGIES:
            raise ValueError(
                f"The strategy {strategy!r} is not known. Name one of {', '.join(sorted(STRATEGIES))}."
            )
        return STRATEGIES[strategy]()
    if not isinstance(strategy, Strategy):
        raise TypeError(
            f"A strategy is a name or a Strategy object, e.g. FedAvg(); this is {strategy!r}. "
            "Your own derives from syft.federated.strategies.Strategy."
        )
    return strategy


def check_range(
    who: object, name: str, value: float, low: float, high: float = math.inf, open_low: bool = False
) -> None:
    """!! ValueError unless low <= value < high (low < value with `open_low`)."""
    fits = math.isfinite(value) and (low < value if open_low else low <= value) and value < high
    if not fits:
        bounds = f"{'above' if open_low else 'at least'} {low:g}"
        bounds += "" if math.isinf(high) else f" and below {high:g}"
        raise ValueError(f"{type(who).__name__} was made with {name}={value!r}; it has to be {bounds}.")
