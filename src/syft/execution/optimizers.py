"""The optimizers that a training plan may name, and their step on tensors that somebody else keeps.

torch's own classes do the arithmetic, so that a step is the very step that local training takes. What they keep per
parameter (moments, counters) is written into tensors of the plan's state after every step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from msgspec import Struct

from syft.execution.errors import PlanError

#: What a name of an optimizer's state is: a tensor like its parameter, or one number.
LIKE, NUMBER = "like", "number"

_Options = dict[str, Any]


class OptimizerKind(Struct, frozen=True):
    """One optimizer: its class, the options that travel, and what it keeps per parameter under those options."""

    cls: Any
    options: frozenset[str]
    keeps: Callable[[_Options], dict[str, str]]


def _sgd(options: _Options) -> dict[str, str]:
    return {"momentum_buffer": LIKE} if options.get("momentum") else {}


def _adam(options: _Options) -> dict[str, str]:
    kept = {"step": NUMBER, "exp_avg": LIKE, "exp_avg_sq": LIKE}
    return {**kept, "max_exp_avg_sq": LIKE} if options.get("amsgrad") else kept


def _rmsprop(options: _Options) -> dict[str, str]:
    kept = {"step": NUMBER, "square_avg": LIKE}
    if options.get("momentum"):
        kept["momentum_buffer"] = LIKE
    return {**kept, "grad_avg": LIKE} if options.get("centered") else kept


def _adagrad(options: _Options) -> dict[str, str]:
    return {"step": NUMBER, "sum": LIKE}


_COMMON = frozenset({"lr", "weight_decay", "maximize", "foreach"})
#: The optimizers there are. Add one here: torch's class, its options, what it keeps.
OPTIMIZERS: dict[str, OptimizerKind] = {
    "SGD": OptimizerKind(torch.optim.SGD, _COMMON | {"momentum", "dampening", "nesterov", "fused"}, _sgd),
    "Adam": OptimizerKind(
        torch.optim.Adam, _COMMON | {"betas", "eps", "amsgrad", "fused", "decoupled_weight_decay"}, _adam
    ),
    "AdamW": OptimizerKind(torch.optim.AdamW, _COMMON | {"betas", "eps", "amsgrad", "fused"}, _adam),
    "RMSprop": OptimizerKind(
        torch.optim.RMSprop, _COMMON | {"alpha", "eps", "momentum", "centered"}, _rmsprop
    ),
    "Adagrad": OptimizerKind(
        torch.optim.Adagrad, _COMMON | {"lr_decay", "eps", "initial_accumulator_value", "fused"}, _adagrad
    ),
}


def optimizer_named(name: Any) -> OptimizerKind:
    """The optimizer of a name; !! PlanError naming those there are."""
    found = OPTIMIZERS.get(name) if isinstance(name, str) else None
    if found is None:
        raise PlanError(
            f"A training plan names the optimizer {str(name)[:60]!r}. Those it can use are: {', '.join(OPTIMIZERS)}."
        )
    return found


def name_of_optimizer(optimizer: torch.optim.Optimizer) -> str:
    """The name of an optimizer's class, exactly: a subclass may do something else."""
    for name, kind in OPTIMIZERS.items():
        if type(optimizer) is kind.cls:
            return name
    raise PlanError(
        f"A training plan cannot use a {type(optimizer).__module__}.{type(optimizer).__qualname__}. Those it can use are "
        f"torch's own {', '.join(OPTIMIZERS)}."
    )


def options_of(name: str, group: _Options) -> _Options:
    """The options of a parameter group that travel; !! PlanError for those that cannot."""
    for option in ("differentiable", "capturable"):
        if group.get(option):
            raise PlanError(
                f"The optimizer was made with {option}=True, which a training plan cannot record. Leave it out."
            )
    kind = OPTIMIZERS[name]
    chosen = {option: group[option] for option in kind.options if option in group}
    chosen = {k: float(v) if isinstance(v, torch.Tensor) else v for k, v in chosen.items()}
    chosen = {k: tuple(float(x) for x in v) if isinstance(v, (tuple, list)) else v for k, v in chosen.items()}
    return checked_options(name, dict(sorted(chosen.items())))


def checked_options(name: str, options: Any) -> _Options:
    """Options that came from somebody else: names that the optimizer has, numbers as values."""
    kind = optimizer_named(name)
    for option, value in options.items():
        parts = value if isinstance(value, tuple) else (value,)
        if option not in kind.options or any(type(p) not in (bool, int, float, type(None)) for p in parts):
            raise PlanError(
                f"A training plan gives {name} the option {str(option)[:60]!r}={str(value)[:60]}."
            )
    return dict(options)


class Keeper:
    """An optimizer whose parameters, and whose memory, are tensors that a plan keeps.

    groups   per group: its options, its parameters, and per parameter the tensors of its state by name
    started  one number per parameter, in the order of the groups: whether its state means anything yet
    """

    def __init__(
        self,
        name: str,
        groups: Sequence[tuple[_Options, list[torch.Tensor], list[dict[str, torch.Tensor]]]],
        started: torch.Tensor,
    ) -> None:
        self.leaves = [[p.detach().requires_grad_() for p in parameters] for _, parameters, _ in groups]
        self.optimizer: Any = optimizer_named(name).cls(
            [{**options, "params": own} for (options, *_), own in zip(groups, self.leaves, strict=True)]
        )
        self.kept = [states for *_, states in groups]
        self.started = started
        self._load()

    def _load(self) -> None:
        begun = iter(self.started.tolist())
        for own, states in zip(self.leaves, self.kept, strict=True):
            for leaf, kept in zip(own, states, strict=True):
                if next(begun):
                    self.optimizer.state[leaf] = dict(kept)
                else:
                    # NB: what torch makes at the first step is made then, e.g. the momentum from the first gradient.
                    self.optimizer.state.pop(leaf, None)

    def flat_leaves(self) -> list[torch.Tensor]:
        return [leaf for own in self.leaves for leaf in own]

    def take_rates(self, rates: Sequence[float]) -> None:
        for group, rate in zip(self.optimizer.param_groups, rates, strict=True):
            group["lr"] = rate

    def step(self, gradients: Sequence[torch.Tensor | None], rates: Sequence[float] | None) -> None:
        """One step with these gradients; `rates` are the learning rates of the groups from now on."""
        if rates is not None:
            self.take_rates(rates)
        for leaf, gradient in zip(self.flat_leaves(), gradients, strict=True):
            leaf.grad = gradient
        self.optimizer.step()
        self._write_back()

    def _write_back(self) -> None:
        position = 0
        for own, states in zip(self.leaves, self.kept, strict=True):
            for leaf, kept in zip(own, states, strict=True):
                leaf.grad = None
                current = self.optimizer.state.get(leaf)
                if current:
                    self._keep(current, kept, position)
                position += 1

    def _keep(self, current: dict[str, Any], kept: dict[str, torch.Tensor], position: int) -> None:
        is_new = False
        for name, tensor in kept.items():
            value = current.get(name)
            if value is not tensor and value is not None:
                tensor.copy_(value) if isinstance(value, torch.Tensor) else tensor.fill_(value)
                current[name] = tensor
                is_new = True
        if is_new:
            self.started[position] = 1
