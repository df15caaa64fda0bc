"""Operations that only move elements, on types that keep an element in some form of their own.

torch rearranges the numbers of the elements, and the type takes its elements from the places where they were.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from syft.core.chain import map_tensors

aten = torch.ops.aten


def _overloads(names: str) -> list[Any]:
    packets = [getattr(aten, name) for name in names.split()]
    return [
        getattr(p, name) for p in packets for name in p.overloads() if not getattr(p, name)._schema.is_mutable
    ]


#: Operations whose results are elements of their arguments.
MOVING = _overloads(
    """
    view _unsafe_view reshape _reshape_alias t transpose permute expand squeeze unsqueeze select slice narrow unfold
    diagonal split split_with_sizes unbind chunk flip roll rot90 repeat tile index index_select gather take cat stack
    movedim swapaxes repeat_interleave contiguous
    """
)
#: Those of them that take several tensors of values.
JOINING = (aten.cat, aten.stack)


def nodes_in(kind: type, *values: Any) -> list[Any]:
    """The nodes of a type among arguments, in the order in which `moved` numbers their elements."""
    found: list[Any] = []
    map_tensors(lambda v: found.append(v) if isinstance(v, kind) else None, values)
    return found


def moved(func: Any, args: Any, kwargs: Any, kind: type, take: Callable[[torch.Tensor], Any]) -> Any:
    """Run `func` on the numbers of the elements of all nodes of type `kind`, and `take` the elements it names."""
    offset = 0

    def places(value: Any) -> Any:
        nonlocal offset
        if not isinstance(value, kind):
            return value
        start, offset = offset, offset + value.shape.numel()  # type: ignore[attr-defined]
        return torch.arange(start, offset).view(value.shape)  # type: ignore[attr-defined]

    rearranged = func(*map_tensors(places, args), **map_tensors(places, kwargs))
    return map_tensors(take, rearranged)
