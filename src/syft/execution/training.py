"""The update of a training plan: which optimizer, on which tensors of the state, and how one step is taken.

What travels is names and numbers. The forward pass and the loss are the operations of the plan; the gradients are
torch's; the step is that of an optimizer of a closed list.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from msgspec import Struct

from syft.execution.errors import InvalidProgramError, PlanError
from syft.execution.operation import leaves, map_structure
from syft.execution.optimizers import Keeper, checked_options, optimizer_named
from syft.execution.program import Program
from syft.execution.replay import Replay


class TrainedGroup(Struct, frozen=True):
    """One parameter group of an optimizer, by positions in the state.

    memory   what the optimizer keeps, name -> position, one dict per parameter
    """

    options: dict[str, Any]
    parameters: tuple[int, ...]
    memory: tuple[dict[str, int], ...]


class TrainingStep(Struct, frozen=True):
    """An optimizer and what it works on. `started` is the position of the marks of begun parameters."""

    optimizer: str
    groups: tuple[TrainedGroup, ...]
    started: int

    def written(self) -> set[int]:
        """The positions of the state that a step writes into."""
        found = {self.started}
        for group in self.groups:
            found.update(group.parameters)
            for memory in group.memory:
                found.update(memory.values())
        return found


def checked_step(step: TrainingStep, program: Program) -> TrainingStep:
    """A training step that fits its program; !! InvalidProgramError, PlanError."""
    optimizer_named(step.optimizer)
    positions = [step.started]
    for group in step.groups:
        checked_options(step.optimizer, group.options)
        if len(group.parameters) != len(group.memory):
            raise InvalidProgramError(
                "A training plan has memory for another number of parameters than it trains."
            )
        positions += [*group.parameters, *(p for memory in group.memory for p in memory.values())]
    if any(not 0 <= p < program.state for p in positions) or len(set(positions)) != len(positions):
        raise InvalidProgramError(
            "A training plan trains tensors that its state does not have, or one of them twice."
        )
    return step


class Trainer:
    """Takes the steps of a training plan on tensors that it is handed at every call."""

    def __init__(self, replay: Replay, step: TrainingStep) -> None:
        self.replay = replay
        self.step = checked_step(step, replay.program)
        self._positions = [p for group in step.groups for p in group.parameters]
        #: Whether a step depends on nothing but the tensors and the rates that it is handed.
        self.keeps_nothing = not any(memory for group in step.groups for memory in group.memory)
        self._keeper: Keeper | None = None
        #: The tensors that the keeper works on, whom it does not keep alive: when one goes, so does the keeper.
        self._kept: list[weakref.ref[torch.Tensor]] = []

    def run(
        self,
        inputs: Sequence[Any],
        state: Sequence[Any],
        rates: Sequence[float] | None = None,
    ) -> Any:
        """Forward, loss, backward and update; returns what the program returns, the loss first, without history."""
        keeper = self._keeper_of(state)
        parameters = keeper.flat_leaves()
        given = list(state)
        for position, leaf in zip(self._positions, parameters, strict=True):
            given[position] = leaf
        with torch.enable_grad():
            outputs = self.replay.run(inputs, given)
            loss = next(leaf for leaf in leaves(outputs) if isinstance(leaf, torch.Tensor))
            if loss.numel() != 1 or not loss.requires_grad:
                raise PlanError(
                    f"The loss of a training plan has the shape {tuple(loss.shape)} and "
                    f"{'depends' if loss.requires_grad else 'does not depend'} on its parameters. It has to be one "
                    "number that does: return the loss first."
                )
            gradients = torch.autograd.grad(loss, parameters, allow_unused=True)
        keeper.step(gradients, rates)
        return map_structure(lambda v: v.detach() if isinstance(v, torch.Tensor) else v, outputs)

    def take_rates(self, rates: Sequence[float]) -> None:
        """The learning rates from now on, after a step that was taken elsewhere."""
        if self._keeper is not None:
            self._keeper.take_rates(rates)

    def _keeper_of(self, state: Sequence[Any]) -> Keeper:
        """The optimizer of these very tensors; one that worked on others is of no use."""
        keeper = self._keeper
        if keeper is None or any(a() is not b for a, b in zip(self._kept, state, strict=True)):
            same = [t.detach() for t in state]
            keeper = Keeper(
                self.step.optimizer,
                [
                    (
                        group.options,
                        [same[p] for p in group.parameters],
                        [{name: same[p] for name, p in memory.items()} for memory in group.memory],
                    )
                    for group in self.step.groups
                ],
                same[self.step.started],
            )
            forget = partial(_forget, weakref.ref(self))
            self._keeper, self._kept = keeper, [weakref.ref(t, forget) for t in state]
        return keeper


def _forget(trainer: weakref.ref[Trainer], _gone: Any) -> None:
    held = trainer()
    if held is not None:
        held._keeper, held._kept = None, []
