"""A plain tensor that secrets, or numbers in fixed precision, are written into becomes one of them, in place.

    total = torch.zeros(4, 3)
    total.index_add_(0, target, messages)      # messages is a secret: so is total from here on

Models that make a buffer and fill it are written so. What the tensor held is public, and stays so: it is shared as a
public value is, which costs no round. Whoever holds the tensor sees the change. Its memory does not: a tensor that is a
view, or whose memory is seen through a view or an array, is refused. If the write fails, the tensor is what it was.
"""

from __future__ import annotations

from typing import Any

import torch

from syft.core.chain import new_wrapper
from syft.core.public_names import public_name
from syft.core.swap import become
from syft.exceptions import UnsupportedOperationError
from syft.mpc.precision import FixedPrecisionTensor
from syft.mpc.sharing import AdditiveSharingTensor
from syft.tensors.lone_memory import memory_is_seen_elsewhere


def take_over(func: Any, target: torch.Tensor, node: Any) -> torch.Tensor | None:
    """Before `func` writes the values of `node` into `target`: the tensor that it was. !! UnsupportedOperationError

    What torch refuses itself is left to it (None): leaves that require grad, and dtypes that do not fit.
    """
    if target.is_floating_point() != node.dtype.is_floating_point:
        return None
    if target.requires_grad and target.is_leaf:
        return None
    if target._is_view() or memory_is_seen_elsewhere(target):
        raise UnsupportedOperationError(
            f"{public_name(func)} into a plain tensor whose memory is also that of a view, another tensor or an array",
            type(node),
            "They would keep the old values. Write into the tensor itself before anything else sees its memory (for "
            "a part of it: `whole[0] = whole[0] + secret`), into a `.clone()`, or use the operation without the "
            "underscore.",
        )
    with torch.no_grad():
        nothing = new_wrapper(node).new_zeros(target.shape, dtype=target.dtype)
    made: torch.Tensor = nothing + target
    become(target, made)
    return made  # after the exchange, this is the plain tensor


for _type in (FixedPrecisionTensor, AdditiveSharingTensor):
    _type.takes_over = staticmethod(take_over)
