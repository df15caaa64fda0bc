"""`Role`: one party of a protocol, or the one of a plan: its state, and what it does.

In a protocol a role is given a worker with `assign`. Until then its part runs here.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from syft.execution.action import Action
from syft.execution.communication import CommunicationAction
from syft.execution.errors import PlanError
from syft.execution.placeholder import PlaceHolder, tag_sort
from syft.execution.state import State
from syft.execution.tracing import FrameworkWrapper


class Role:
    """What one party does.

    id            its name
    worker        who does it; None: it is done here
    state         tensors that are its own
    actions       what it does, once that is known
    placeholders  the tensors of it, by id
    """

    def __init__(
        self,
        id: Any = None,
        worker: Any = None,
        state: State | None = None,
        actions: Iterable[Action] = (),
        placeholders: dict[Any, PlaceHolder] | None = None,
    ) -> None:
        self.id, self.worker = id, worker
        self.state = State() if state is None else state
        self.actions: list[Action] = list(actions)
        self.placeholders = dict(placeholders or {})
        #: the tensors that are this role's while a protocol is built, by what Python calls them
        self._own: dict[int, torch.Tensor] = {}

    # -- for people ----------------------------------------------------------------------------------

    def input_placeholders(self) -> list[PlaceHolder]:
        """The placeholders of what it takes, in order."""
        return self._tagged("input")

    def output_placeholders(self) -> list[PlaceHolder]:
        """The placeholders of what it returns, in order."""
        return self._tagged("output")

    def _tagged(self, kind: str) -> list[PlaceHolder]:
        found = [p for p in self.placeholders.values() if any(t.startswith(f"#{kind}-") for t in p.tags)]
        return sorted(found, key=tag_sort(kind))

    def __repr__(self) -> str:
        at = "" if self.worker is None else f" at {self.worker.id}"
        return f"<Role {self.id}{at}: {len(self.actions)} actions, {len(self.state)} tensors of state>"

    # -- inside a protocol -----------------------------------------------------------------------------

    @property
    def torch(self) -> FrameworkWrapper:
        """`role.torch.rand(2)`: torch's functions, whose results are this role's."""
        return FrameworkWrapper(self)

    def load(self, tensor: Any) -> Any:
        """A tensor, where this role is."""
        return self.takes(tensor if self.worker is None else tensor.send(self.worker))

    def load_state(self) -> tuple[Any, ...]:
        """The tensors of its state, where this role is."""
        return tuple([self.load(tensor) for tensor in self.state.tensors()])

    def receive(self, tensor: Any) -> Any:
        """A tensor of another role, moved to this one."""
        if self.worker is None:
            return self.takes(tensor.clone())
        return tensor.move(self.worker) if tensor.location is not None else tensor.send(self.worker)

    def takes(self, value: Any) -> Any:
        """Note that a tensor is this role's; returns it."""
        if isinstance(value, torch.Tensor):
            self._own[id(value)] = value
        return value

    def owns(self, value: Any) -> bool:
        return id(value) in self._own

    def sends(self, tensor: Any, others: Iterable[Any]) -> None:
        self.actions.append(CommunicationAction(tensor.id, self.id, tuple(others), {}))

    def assign(self, worker: Any) -> None:
        if not hasattr(worker, "send_msg"):
            raise PlanError(f"The role {self.id!r} was given a {type(worker).__name__}; it takes a worker.")
        self.worker = worker
