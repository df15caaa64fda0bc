"""What is known of the tensors that a plan takes: what it was built with, and what else its operations are right for.

Imports nothing of the other modules of plans.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch


@dataclass(frozen=True, slots=True)
class Fit:
    """Which other tensors the operations of a plan are right for; see NOTE [What a trace proves] in syft.execution.fit.

    sizes    as a shape, with -1 for any size
    ranks    other numbers of dimensions; None: any. Sizes are compared from the last dimension on, what is before is free
    dtypes   other dtypes; None: any
    """

    sizes: tuple[int, ...]
    ranks: tuple[int, ...] | None = None
    dtypes: tuple[torch.dtype, ...] | None = None


@dataclass(frozen=True, slots=True)
class Input:
    """One tensor that a plan takes.

    shape, dtype   what the plan was built with; -1 in the shape is any size
    others         what else it may be given; None: nothing else
    """

    shape: tuple[int, ...]
    dtype: torch.dtype
    others: Fit | None = None

    def is_like(self, shape: Sequence[int], dtype: torch.dtype) -> bool:
        """Whether a tensor looks like the one that the plan was built with."""
        return dtype == self.dtype and _matches(self.shape, shape)

    def takes_dtype(self, dtype: torch.dtype) -> bool:
        others = self.others
        return dtype == self.dtype or (
            others is not None and (others.dtypes is None or dtype in others.dtypes)
        )

    def takes_shape(self, shape: Sequence[int]) -> bool:
        if _matches(self.shape, shape):
            return True
        others, rank = self.others, len(shape)
        if others is None:
            return False
        if rank == len(self.shape):
            return _matches(others.sizes, shape)
        if others.ranks is not None and rank not in others.ranks:
            return False
        shared = min(rank, len(self.shape))
        return _matches(others.sizes[len(self.shape) - shared :], shape[rank - shared :])

    def __str__(self) -> str:
        return f"{self.dtype} of shape {self.shape}"


def _matches(pattern: Sequence[int], shape: Sequence[int]) -> bool:
    return len(pattern) == len(shape) and all(n in (-1, m) for n, m in zip(pattern, shape, strict=True))
