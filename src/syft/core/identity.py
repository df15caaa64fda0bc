"""Id, owner, tags and description of plain torch tensors.

NOTE [Nothing until somebody asks]
A tensor's `__dict__` travels with it through `torch.save`, pickling and `copy.deepcopy`. So nothing is
stored on a tensor until its id, owner or tags are asked for, and what is stored then disappears when it
is pickled and becomes a new identity when it is copied.
"""

from __future__ import annotations

import collections
from collections.abc import Collection
from typing import Any

import torch

from syft.core.objects import AbstractObject

_KEY = "_syft_identity"


class TensorIdentity(AbstractObject):
    """What this library knows about one plain tensor."""

    def __reduce_ex__(self, protocol: Any) -> Any:
        # NB: a type that torch.load(weights_only=True) accepts; `identity_of` ignores it.
        return collections.OrderedDict, ()

    def __deepcopy__(self, memo: dict[int, Any]) -> TensorIdentity:
        return TensorIdentity(owner=self._owner, tags=self.tags, description=self.description)


def known_identity(tensor: torch.Tensor) -> TensorIdentity | None:
    """The identity of a tensor if anybody has asked for it yet."""
    found = tensor.__dict__.get(_KEY)
    return found if isinstance(found, TensorIdentity) else None


def give_identity(tensor: torch.Tensor, identity: TensorIdentity) -> None:
    """Let a tensor stand for another one, which is not used any more."""
    tensor.__dict__[_KEY] = identity


def identity_of(tensor: torch.Tensor) -> Any:
    """The identity of a tensor: its own, or that of the head of its chain."""
    child = tensor.__dict__.get("child")
    if child is not None:
        return child
    found = known_identity(tensor)
    if found is None:
        found = tensor.__dict__[_KEY] = TensorIdentity()
    return found


def tags_of(obj: Any) -> Collection[str]:
    """The tags of a stored object. A tensor that was never tagged is not given an identity for it."""
    if type(obj) is torch.Tensor:
        known = known_identity(obj)
        return known.tags if known is not None else ()
    return getattr(obj, "tags", None) or ()
