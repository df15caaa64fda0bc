"""`TrainingPlan`: forward, loss, backward and the optimizer's step as one plan, one message per batch.

    plan = sy.Plan.training(
        model, loss_fn, optimizer, args_shape=[(-1, 784), (-1,)], args_dtype=[torch.float32, torch.int64]
    )
    remote = plan.send(bob)
    for data, target in batches:          # pointers to bob
        loss = remote(data, target)       # one message
    plan.get_()                           # parameters, buffers and the optimizer's memory come back

The model's parameters and buffers, and what the optimizer keeps, are the state of the plan. A call here takes the same
step with the user's own optimizer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from syft.execution.errors import PlanError
from syft.execution.operation import leaves, map_structure
from syft.execution.optimizers import LIKE, OPTIMIZERS, name_of_optimizer, options_of
from syft.execution.plan import Plan
from syft.execution.program import Program
from syft.execution.state import State
from syft.execution.structures import plain_of
from syft.execution.training import TrainedGroup, TrainingStep


class TrainingPlan(Plan):
    """A plan that trains. Made by `Plan.training`."""

    _model: torch.nn.Module
    _started: torch.Tensor

    def __init__(
        self,
        model: torch.nn.Module,
        loss_fn: Callable[..., Any],
        optimizer: torch.optim.Optimizer,
        args_shape: Any = None,
        args_dtype: Any = None,
        name: str | None = None,
    ) -> None:
        super().__init__(name=name or f"training of {type(model).__name__}")
        object.__setattr__(self, "_model", model)
        self._loss_fn, self._optimizer = loss_fn, optimizer
        self._optimizer_name = name_of_optimizer(optimizer)
        trained = {id(p) for group in optimizer.param_groups for p in group["params"]}
        if not trained <= {id(p) for p in model.parameters()}:
            raise PlanError(
                "The optimizer of a training plan has parameters that are not the model's. Make it of model.parameters()."
            )
        self._attributes[""] = model
        self.forward_func = self._step_here
        kept = OPTIMIZERS[self._optimizer_name].keeps
        #: per trained parameter, in the order of the groups: what the optimizer keeps for it, by name
        self._memory = [
            (p, {n: _empty(kind, p) for n, kind in kept(options_of(self._optimizer_name, group)).items()})
            for group in optimizer.param_groups
            for p in group["params"]
            if p.requires_grad
        ]
        started = torch.zeros(len(self._memory), dtype=torch.int64)
        object.__setattr__(self, "_started", started)
        if args_shape:
            self.build_from_shapes(args_shape, args_dtype)

    def _takes_names(self) -> bool:
        return False

    def _positional(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
        raise PlanError(
            f"A training plan was called with {', '.join(kwargs)} by name. Its first argument is the data, a dict "
            "for a model that takes its arguments by name; what the loss needs follows."
        )

    def _traced(self, *args: Any) -> Any:
        return plain_of(self._loss(args))

    def _loss(self, args: tuple[Any, ...]) -> Any:
        """What the plan returns: the loss, or a tuple that begins with it. Data in a dict are passed by name."""
        if not args:
            raise PlanError("A training plan takes the data first, and what the loss needs after it.")
        data, *rest = args
        output = self._model(**data) if isinstance(data, dict) else self._model(data)
        return self._loss_fn(output, *rest)

    def _step_here(self, *args: Any) -> Any:
        """The same step with the user's own model and optimizer."""
        self._optimizer.zero_grad()
        returned = self._loss(args)
        loss = next(leaf for leaf in leaves(returned) if isinstance(leaf, torch.Tensor))
        torch.autograd.backward(loss)
        self._optimizer.step()
        self._optimizer.zero_grad()
        return map_structure(lambda v: v.detach() if isinstance(v, torch.Tensor) else v, returned)

    # -- the optimizer's memory ------------------------------------------------------------------------

    def _declared_state(self) -> State:
        """The model's parameters and buffers, then what the optimizer keeps."""
        model = super()._declared_state()
        names, held = list(model.names), model.tensors()
        label = {id(tensor): name for name, tensor in zip(names, held, strict=True)}
        count = len(held)
        for parameter, memory in self._memory:
            for name, tensor in memory.items():
                names.append(f"{label[id(parameter)]}.{name}")
                held.append(tensor)
        return State.of(
            [*held, self._started],
            [*names, "optimizer.started"],
            {*model.buffers, *range(count, len(held) + 1)},
            self._owner,
        )

    def _finish(self, built: tuple[Program, list[torch.Tensor]], declared: State) -> None:
        super()._finish(built, declared)
        position = {id(tensor): index for index, tensor in enumerate(self.state.tensors())}
        memory = {
            id(parameter): {name: position[id(tensor)] for name, tensor in kept.items()}
            for parameter, kept in self._memory
        }
        groups = []
        for group in self._optimizer.param_groups:
            parameters = [p for p in group["params"] if p.requires_grad]
            groups.append(
                TrainedGroup(
                    options_of(self._optimizer_name, group),
                    tuple(position[id(p)] for p in parameters),
                    tuple(memory[id(p)] for p in parameters),
                )
            )
        self._train_with(TrainingStep(self._optimizer_name, tuple(groups), position[id(self._started)]))

    def _rates(self) -> tuple[float, ...]:
        """The learning rates as they are now: schedulers change them."""
        return tuple([float(group["lr"]) for group in self._optimizer.param_groups])

    def _before_send(self) -> None:
        """The optimizer may have taken steps here: what it keeps goes along."""
        with torch.no_grad():
            for number, (parameter, memory) in enumerate(self._memory):
                current = self._optimizer.state.get(parameter) or {}
                known = {name: current[name] for name in memory if current.get(name) is not None}
                self._started[number] = int(bool(known))
                for name, value in known.items():
                    memory[name].copy_(torch.as_tensor(value))

    def _after_get(self) -> None:
        """The optimizer here goes on from where the one there is."""
        begun = self._started.tolist()
        for number, (parameter, memory) in enumerate(self._memory):
            if begun[number]:
                self._optimizer.state[parameter].update({n: t.clone() for n, t in memory.items()})


def _empty(kind: str, parameter: torch.Tensor) -> torch.Tensor:
    if kind == LIKE:
        return torch.zeros_like(parameter, memory_format=torch.preserve_format).detach()
    is_double = torch.get_default_dtype() == torch.float64
    return torch.zeros((), dtype=torch.float64 if is_double else torch.float32)
