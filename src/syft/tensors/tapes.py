"""`Tape`: a graph that somebody else follows, too; and what tells that torch's own has to be used."""

from __future__ import annotations

import contextlib
import weakref
from typing import Any, ClassVar

import torch
from torch.autograd.function import BackwardCFunction

saved_hooks = torch._C._autograd._top_saved_tensors_default_hooks
GRAD_FN: Any = vars(torch._C.TensorBase)["grad_fn"]
grad_fn_of = GRAD_FN.__get__
#: `.grad` of a tensor, where torch functions are off.
GRAD: Any = vars(torch._C.TensorBase)["grad"]
#: The kinds of nodes that `syft.tensors.fused` puts into the graph here.
FUSED_NODES: set[type] = set()


class Tape:
    """A graph that is kept here and followed elsewhere.

    is_invalid  it may not be used there; used: it was differentiated there, and is not freed here
    leaves   by their id there; joined: the tape that stands for both after two graphs met
    fused    nodes, weakly, that may have to compute what they save; see `fused.CrossEntropy`
    """

    __slots__ = ("__weakref__", "fused", "is_invalid", "joined", "leaves", "used")

    def __init__(self) -> None:
        self.leaves: dict[Any, Any] = {}
        self.fused: list[weakref.ref[Any]] = []
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
            self.fused += other.fused
        return self

    def add_leaf(self, obj_id: Any, leaf: Any) -> None:
        if self.leaves.setdefault(obj_id, leaf) is not leaf:  # two leaves of one value have a gradient each
            self.is_invalid = True

    def note_fused(self, node: weakref.ref[Any]) -> None:
        """A node saved its input, of which it needs something that is computed later."""
        if len(self.fused) >= 64 and not len(self.fused) & (len(self.fused) - 1):
            self.fused = [known for known in self.fused if known() is not None]
        self.fused.append(node)

    #: Computes what torch would have saved where a node has saved its input: (node, input).
    compute_later: ClassVar[Any]

    def compute_saved(self) -> None:
        """What fused nodes saved is about to be written into, or handed out: compute what they need of it."""
        nodes, self.fused = [known() for known in self.fused], []
        for node in nodes:
            if node is not None and node.later is not None:
                with contextlib.suppress(RuntimeError):  # freed
                    self.compute_later(node, node.saved_tensors[0])
                    node._raw_saved_tensors[0].register_hooks(_nothing, _nothing)


def _nothing(_saved: Any) -> Any:
    return torch.empty(0)


def node_is_ours(result: Any) -> bool:
    """Whether the last step that led to a result is one of torch's own.

    A function of the user's may return what it was given, `detach()`ed: the same value, and another gradient.
    NB: called where torch functions are off, as they are inside the dispatcher.
    """
    node = grad_fn_of(result)
    return not isinstance(node, BackwardCFunction) or type(node) in FUSED_NODES


def is_listened_to() -> bool:
    """Whether somebody wants to see the operations of torch's backward passes."""
    return torch.is_anomaly_enabled() or bool(torch._C._len_torch_dispatch_stack())
