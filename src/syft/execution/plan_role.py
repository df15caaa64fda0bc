"""What later programs ask of a plan: its role and actions, the types of its inputs, its translations."""

from __future__ import annotations

from typing import Any

import torch

from syft.execution.computation import ComputationAction, action_of
from syft.execution.errors import PlanError
from syft.execution.operation import Slot, map_structure
from syft.execution.role import Role


class HasRole:
    """The part of a plan that is about roles, actions and translations."""

    _torchscript: Any

    @property
    def actions(self: Any) -> list[ComputationAction]:
        """What the plan does, one action per operation."""
        return [action_of(operation) for operation in self.operations]

    @property
    def role(self: Any) -> Role:
        """The one role of the plan: its actions, its placeholders and its state."""
        return Role(self.name, self.owner, self.state, self.actions, self.placeholders)

    @property
    def input_types(self: Any) -> list[Any]:
        """The type of each argument, nested as the arguments are; nothing for a plan that is not built."""
        if not self.is_built:
            return []
        return [
            map_structure(lambda leaf: torch.Tensor if type(leaf) is Slot else type(leaf), wanted)
            for wanted in self.program.signature
        ]

    @property
    def torchscript(self) -> Any:
        """The plan as TorchScript, once `add_translation("torchscript")` has made it; None before."""
        return self._torchscript

    @torchscript.setter
    def torchscript(self, made: Any) -> None:
        self._torchscript = made

    def add_translation(self: Any, translator: Any) -> Any:
        """Translate the plan, and return the translation.

        translator   "torchscript", or a class with a method `translate()` that is made of a plan
        """
        if translator == "torchscript":
            self._torchscript = self.to_torchscript()
            return self._torchscript
        if not callable(translator):
            raise PlanError(
                f'add_translation() was given {translator!r:.60}; it takes "torchscript", or a class with a method '
                "translate() that is made of a plan."
            )
        made = translator(self).translate()
        if isinstance(made, torch.jit.ScriptModule):
            self._torchscript = made
        return made
