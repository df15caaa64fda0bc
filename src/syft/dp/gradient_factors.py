"""The gradients of a parameter, one per example, kept as what they are made of.

One duty: `Factor` and its kinds: norms, weighted sums, the full gradients. Imports nothing of ours.

NOTE [Factors]
Clipping needs the norm of every example's gradient and a weighted sum of them, seldom the gradients. For a
Linear layer on vectors the gradient of example i is the outer product g_i a_i^T: its norm is |g_i| |a_i|
(Goodfellow 2015), and the weighted sum is one matrix product. Only `expand` makes the full tensors.

NOTE [In double precision]
What is clipped must be as short as it is said to be, whatever the gradients are. A square of 1e-25 is 0 in single
precision, and a norm of 0 is not clipped. So norms and sums are in double precision. There the square of every
number of single, half or brain precision is exact: it has at most 48 bits, and lies between 2^-298 and 2^256.
The square of a double may be 0 or infinite, so doubles are divided by the largest of them first. A sum of n
squares is then off by a part in 2^53 / n at most, in any order (Higham 2002, section 4.2), and its root by less.
No sum is over more than 2^15 squares; the roots are joined by `hypot`, which is off by a part in 2^52. So a norm
is off by less than a part in 10^10, for up to 10^10 parameters in 10^5 tensors.

NOTE [Blocks]
A double copy of all gradients would be in pages fresh from the operating system, which cost more than the
arithmetic. So a block of examples x columns is made double at a time, small enough to stay in the cache of a
core, and a convolution copies the patches of as many examples. An accelerator gets larger blocks, fewer times.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import torch
from torch import Tensor

#: Numbers of a block on a CPU and on an accelerator: see NOTE [Blocks].
_BLOCK_CPU, _BLOCK_ACCELERATOR = 1 << 17, 1 << 26
#: Columns of a block at most: see NOTE [In double precision].
_WIDEST = 1 << 15
#: Numbers of two factors that are put into double precision at once for a matrix product, and examples.
_NUMBERS_AT_ONCE, _EXAMPLES_AT_ONCE = 1 << 22, 1 << 10


class Factor(Protocol):
    """The gradients of one parameter, one per example; norms and sums: see NOTE [In double precision]."""

    def norms(self) -> Tensor: ...
    def weighted_sum(self, weights: Tensor) -> Tensor: ...
    def expand(self) -> Tensor: ...


@dataclass(frozen=True)
class Full:
    """The gradients themselves: examples x the parameter's shape, in any order in memory."""

    gradients: Tensor

    def norms(self) -> Tensor:
        return _norms(self.gradients.permute(0, *self._order()))

    def weighted_sum(self, weights: Tensor) -> Tensor:
        order, weights = self._order(), weights.double()
        stored = self.gradients.permute(0, *order)
        flat = _flat(stored)
        total = flat.new_zeros(flat.shape[1], dtype=torch.float64)
        for rows, columns in _blocks(flat):
            total[columns].addmv_(flat[rows, columns].double().T, weights[rows])
        return total.view(stored.shape[1:]).permute([order.index(i) for i in range(1, stored.dim())])

    def _order(self) -> list[int]:
        """The parameter's dimensions as they follow each other in memory: so flattened, nothing is copied."""
        return sorted(range(1, self.gradients.dim()), key=self.gradients.stride, reverse=True)

    def expand(self) -> Tensor:
        return self.gradients


@dataclass(frozen=True)
class Outer:
    """left_i right_i^T: see NOTE [Factors]."""

    left: Tensor
    right: Tensor

    def norms(self) -> Tensor:
        return _norms(self.left) * _norms(self.right)

    def weighted_sum(self, weights: Tensor) -> Tensor:
        total = self.left.new_zeros(self.left.shape[1], self.right.shape[1], dtype=torch.float64)
        for part in _parts(self.left, self.right):
            left, right = self.left[part].double(), self.right[part].double()
            total += (left * weights[part].double()[:, None]).T @ right
        return total

    def expand(self) -> Tensor:
        return self.left[:, :, None] * self.right[:, None, :]


@dataclass(frozen=True)
class Rows:
    """Rows of a table: example i adds `gradients[i, t]` to the row `index[i, t]`."""

    index: Tensor
    gradients: Tensor
    rows: int

    @cached_property
    def _added_up(self) -> tuple[Tensor, Tensor, Tensor]:
        """Example, row and gradient of every row that an example uses.

        A row used twice gets the sum of both. NB: weighted sums add up these, not their terms: terms that
        cancel have no norm, and what is small beside them would still be rounded away from the table.
        """
        batch, _, width = self.gradients.shape
        example = torch.arange(batch, device=self.index.device)[:, None]
        places, inverse = torch.unique(example * self.rows + self.index, return_inverse=True)
        wide = torch.promote_types(self.gradients.dtype, torch.float32)
        sums = self.gradients.new_zeros(places.numel(), width, dtype=wide)
        sums.index_add_(0, inverse.flatten(), self.gradients.flatten(0, 1).to(wide))
        return places // self.rows, places % self.rows, sums

    def norms(self) -> Tensor:
        owner, _row, sums = self._added_up
        each = _norms(sums)
        largest = each.new_zeros(self.index.shape[0]).scatter_reduce(0, owner, each, "amax")
        scale = torch.where(largest > 0, largest, 1.0)
        squares = (each / scale[owner]).square()
        return largest * torch.zeros_like(largest).index_add_(0, owner, squares).sqrt()

    def weighted_sum(self, weights: Tensor) -> Tensor:
        owner, row, sums = self._added_up
        table = sums.new_zeros(self.rows, sums.shape[1], dtype=torch.float64)
        for part in _parts(sums):
            table.index_add_(0, row[part], sums[part].double() * weights.double()[owner[part], None])
        return table

    def expand(self) -> Tensor:
        batch, _, width = self.gradients.shape
        example = torch.arange(batch, device=self.index.device)[:, None]
        flat = self.gradients.new_zeros(batch * self.rows, width)
        flat.index_add_(0, (example * self.rows + self.index).flatten(), self.gradients.flatten(0, 1))
        return flat.view(batch, self.rows, width)


def _parts(*tensors: Tensor) -> Iterator[slice]:
    """The examples, so many at a time as are put into double precision at once."""
    examples = tensors[0].shape[0]
    width = max(sum(tensor[:1].numel() for tensor in tensors), 1)
    size = max(min(_NUMBERS_AT_ONCE // width, _EXAMPLES_AT_ONCE), 1)
    for start in range(0, examples, size):
        yield slice(start, start + size)


def _flat(gradients: Tensor) -> Tensor:
    """Examples x numbers, of a parameter that is a single number too."""
    return gradients.unsqueeze(-1).flatten(1)


def numbers_at_once(tensor: Tensor) -> int:
    """See NOTE [Blocks]."""
    return _BLOCK_CPU if tensor.device.type == "cpu" else _BLOCK_ACCELERATOR


def _blocks(flat: Tensor) -> Iterator[tuple[slice, slice]]:
    """The examples and columns that are put into double precision at once: see NOTE [Blocks]."""
    examples, width = flat.shape
    wide = max(min(width, _WIDEST), 1)
    high = max(numbers_at_once(flat) // wide, 1)
    for column in range(0, width, wide):
        for row in range(0, examples, high):
            yield slice(row, row + high), slice(column, column + wide)


def _norms(gradients: Tensor) -> Tensor:
    """The L2 norm of each example; not finite where it has a number that is not."""
    flat = _flat(gradients)
    found = flat.new_zeros(flat.shape[0], dtype=torch.float64)
    for rows, columns in _blocks(flat):
        block = flat[rows, columns]
        if block.dtype == torch.float64:
            largest = block.abs().amax(1)
            scaled = block / torch.where(largest > 0, largest, 1.0)[:, None]
            own = largest * torch.linalg.vector_norm(scaled, dim=1)
        else:
            own = torch.linalg.vector_norm(block, dim=1, dtype=torch.float64)
        found[rows] = torch.hypot(found[rows], own)
    return found
