"""What an operation writes into: its schema says most of it, and here stands the rest."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch._ops import OpOverload

from syft.core.nested import found_in

#: aten operations that write into arguments although their schema does not say so.
UNDECLARED_WRITERS = frozenset(
    """batch_norm _batch_norm_impl_index native_batch_norm cudnn_batch_norm miopen_batch_norm instance_norm
    batch_norm_gather_stats batch_norm_gather_stats_with_counts batch_norm_update_stats""".split()
)

#: How the arguments are called that `UNDECLARED_WRITERS` write into.
_STATISTICS = "running_"


def written_by(func: OpOverload, args: Any, kwargs: dict[str, Any]) -> list[Any]:
    """The tensors that an operation may write into."""
    positions, names = _written_arguments(func)
    written: list[Any] = [args[i] for i in positions if i < len(args)]
    written += [kwargs[name] for name in names if name in kwargs]
    return list(found_in(written, torch.Tensor))


@cache
def _written_arguments(func: OpOverload) -> tuple[tuple[int, ...], tuple[str, ...]]:
    found = [
        (position, argument.name)
        for position, argument in enumerate(func._schema.arguments)
        # Running statistics are written into by some operations whose schemas do not say so: by all, for all we know.
        if argument.name.startswith(_STATISTICS)
        or (argument.alias_info is not None and argument.alias_info.is_write)
    ]
    return tuple(position for position, _ in found), tuple(name for _, name in found)
