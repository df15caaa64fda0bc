"""`Tape`: a graph that somebody else follows, too; and what tells that torch's own has to be used."""

from __future__ import annotations

from typing import Any

import torch
from torch.autograd.function import BackwardCFunction

saved_hooks = torch._C._autograd._top_saved_tensors_default_hooks
GRAD_FN: Any = vars(torch._C.TensorBase)["grad_fn"]
grad_fn_of = GRAD_FN.__get__
#: `.grad` of a tensor, where torch functions are off.
GRAD: Any = vars(torch._C.TensorBase)["grad"]


class Tape:
    """A graph that is kept here and followed elsewhere.

    is_invalid  it may not be used there; used: it was differentiated there, and is not freed here
    leaves   by their id there; joined: the tape that stands for both after two graphs met
    """

    __slots__ = ("__weakref__", "is_invalid", "joined", "leaves", "used")

    def __init__(self) -> None:
        self.leaves: dict[Any, Any] = {}
        self.is_invalid = self.used = False
        self.joined: Tape | None = None

    def root(self) -> Tape:
        """The tape that this one was joined to, or itself."""
        tape = self
        while tape.joined is not None:
            tape = tape.joined
        return tape

    def join(self, other: Tape) -> Tape:
        """One tape for two graphs that meet in an operation."""
        if other is not self:
            other.joined = self
            self.is_invalid = self.is_invalid or other.is_invalid
            for obj_id, leaf in other.leaves.items():
                self.add_leaf(obj_id, leaf)
            other.leaves = {}
        return self

    def add_leaf(self, obj_id: Any, leaf: Any) -> None:
        if self.leaves.setdefault(obj_id, leaf) is not leaf:  # two leaves of one value have a gradient each
            self.is_invalid = True


def node_is_ours(result: Any) -> bool:
    """Whether the last step that led to a result is one of torch's own.

    A function of the user's may return what it was given, `detach()`ed: the same value, and another gradient.
    NB: called where torch functions are off, as they are inside the dispatcher.
    """
    return not isinstance(grad_fn_of(result), BackwardCFunction)


def is_listened_to() -> bool:
    """Whether somebody wants to see the operations of torch's backward passes."""
    return torch.is_anomaly_enabled() or bool(torch._C._len_torch_dispatch_stack())
