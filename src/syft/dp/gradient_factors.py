"""The gradients of a parameter, one per example, kept as what they are made of.

One duty: `Factor` and its kinds: norms, weighted sums, the full gradients. Imports nothing of ours.

NOTE [Factors]
Clipping needs the norm of every example's gradient and a weighted sum of them, seldom the gradients. For a
Linear layer on vectors the gradient of example i is the outer product g_i a_i^T: its norm is |g_i| |a_i|
(Goodfellow 2015), and the weighted sum is one matrix product. Only `expand` makes the full tensors.

NOTE [Sequences]
For a Linear layer on sequences the gradient of example i is the sum over t of g_it a_it^T. Its squared norm is the
sum over t and u of (g_it . g_iu) (a_it . a_iu) (Li et al. 2022, "Large language models can be strong differentially
private learners"), and the weighted sum is one matrix product over all t of all examples: the gradients are never
made. Both are sums whose terms may cancel, and rounding does not cancel. With L = the sum over t of |g_it| |a_it|, T
terms, and vectors of d and e numbers, the square is off by (d + e + T^2 + 2) / 2^53 of L^2 at most. Twice that is
added to it: no norm comes out too short. The weighted sum is made of 512 terms at a time, so that it is off by (512 +
B T / 512) / 2^53 of the sum of all weighted L. Where an example's norm is below L / 64, its gradient is made as a
whole instead, and clipped as what it is then: its own only, since made gradients are rounded to single precision, and
what the others add must not change with it. Else a weighted L is 64 bounds at most, and the sum is off by a part in
10^6 of a bound for up to 60 000 examples, a part in 10^8 for a few hundred (see `clipping`, NOTE [A part in a
million]).

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
core, and a convolution copies the patches of as many examples. An accelerator gets larger blocks, fewer times. The
weighted sums of products are made by rows, so that noise meets them before they leave the cache (`sum_in_parts`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

#: Numbers of a block on a CPU and on an accelerator: see NOTE [Blocks].
_BLOCK_CPU, _BLOCK_ACCELERATOR = 1 << 17, 1 << 26
#: Columns of a block at most: see NOTE [In double precision].
_WIDEST = 1 << 15
#: Numbers of two factors that are put into double precision at once for a matrix product, and examples.
_NUMBERS_AT_ONCE, _EXAMPLES_AT_ONCE = 1 << 22, 1 << 10
#: See NOTE [Sequences].
_TERMS_AT_ONCE, _CANCELS = 512, 64.0


class Factor(Protocol):
    """The gradients of one parameter, one per example; norms and sums: see NOTE [In double precision]."""

    def norms(self) -> Tensor: ...
    def weighted_sum(self, weights: Tensor) -> Tensor: ...
    def expand(self) -> Tensor: ...
    def only(self, examples: Tensor) -> Factor:
        """The same, and zeros for examples that are False here: for those whose numbers are not finite."""
        ...


@dataclass(frozen=True)
class Full:
    """The gradients themselves: examples x the parameter's shape, in any order in memory."""

    gradients: Tensor

    def norms(self) -> Tensor:
        return self._measured

    @cached_property
    def _measured(self) -> Tensor:
        if self.gradients.dim() <= 2:
            return _norms(self.gradients)
        return _norms(self.gradients.permute(0, *self._order()))

    def weighted_sum(self, weights: Tensor) -> Tensor:
        weights = weights.double()
        if self.gradients.dim() == 2 and self.gradients.numel() <= numbers_at_once(self.gradients):
            return weights @ self.gradients.double()
        order = self._order()
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

    def only(self, examples: Tensor) -> Full:
        return Full(_only(self.gradients, examples))


@dataclass(frozen=True)
class Outer:
    """left_i right_i^T: see NOTE [Factors]. `of_left`: the factor that `left` is by itself, if there is one."""

    left: Tensor
    right: Tensor
    of_left: Full | None = None

    def norms(self) -> Tensor:
        left = _norms(self.left) if self.of_left is None else self.of_left.norms()
        return left * _norms(self.right)

    def weighted_sum(self, weights: Tensor) -> Tensor:
        return _together(self.sum_in_parts(weights), self.left, self.shape)

    def sum_in_parts(self, weights: Tensor) -> Iterator[Tensor]:
        """The weighted sum, some rows at a time, flat: see NOTE [Blocks]."""
        parts, weighted = list(_parts(self.left, self.right)), weights.double()[:, None]
        if len(parts) > 1:
            total = self.left.new_zeros(self.shape, dtype=torch.float64)
            for part in parts:
                left = _double(self.left[part]).mul_(weighted[part])
                total.addmm_(left.T, self.right[part].double())
            yield total.view(-1)
            return
        left, right = _double(self.left).mul_(weighted).T, self.right.double()
        memory = right.new_empty(0)
        for rows in _even_slices(self.shape[0], numbers_at_once(left) // 2 // max(self.shape[1], 1)):
            some = left[rows]
            if not len(memory):
                memory = right.new_empty(len(some), self.shape[1])
            yield torch.mm(some, right, out=memory[: len(some)]).view(-1)

    @property
    def shape(self) -> tuple[int, int]:
        return self.left.shape[1], self.right.shape[1]

    def expand(self) -> Tensor:
        return self.left[:, :, None] * self.right[:, None, :]

    def only(self, examples: Tensor) -> Outer:
        return Outer(_only(self.left, examples), _only(self.right, examples))


@dataclass(frozen=True)
class Sequences:
    """The sum over t of left_it right_it^T: see NOTE [Sequences]."""

    left: Tensor
    right: Tensor

    @cached_property
    def _made(self) -> tuple[Tensor, Full]:
        """The examples in which terms cancel, and their gradients: see NOTE [Sequences]."""
        norms, lengths = self._measured
        examples = torch.nonzero(norms < lengths / _CANCELS).flatten()
        return examples, Full(self.left[examples].transpose(1, 2) @ self.right[examples])

    @cached_property
    def _measured(self) -> tuple[Tensor, Tensor]:
        """The norm, and the sum over t of |left_it| |right_it|, whose squares are the terms with t = u."""
        norms = self.left.new_zeros(self.left.shape[0], dtype=torch.float64)
        lengths = torch.zeros_like(norms)
        for part in _parts(self.left, self.right, numbers=2 * numbers_at_once(self.left)):
            left, right = self.left[part].double(), self.right[part].double()
            products = _gram(left).mul_(_gram(right))
            norms[part] = products.sum((1, 2)).clamp_(min=0.0).sqrt_()
            lengths[part] = products.diagonal(dim1=1, dim2=2).sqrt().sum(1)
        return norms, lengths

    def norms(self) -> Tensor:
        # NB: with what rounding may have taken off.
        off = (self.left.shape[2] + self.right.shape[2] + self.left.shape[1] ** 2 + 2) * 2.0**-52
        norms, lengths = self._measured
        found, (examples, made) = torch.hypot(norms, lengths * off**0.5), self._made
        return found.index_copy(0, examples, made.norms()) if len(examples) else found

    def weighted_sum(self, weights: Tensor) -> Tensor:
        shape = (self.left.shape[2], self.right.shape[2])
        return _together(self.sum_in_parts(weights), self.left, shape)

    def sum_in_parts(self, weights: Tensor) -> Iterator[Tensor]:
        """The weighted sum, some rows at a time, flat: see NOTE [Blocks]."""
        left, right = self.left.flatten(0, 1), self.right.flatten(0, 1)
        weights, (examples, made) = weights.double(), self._made
        apart = made.weighted_sum(weights[examples]) if len(examples) else None
        weighted = weights.index_fill(0, examples, 0.0).repeat_interleave(self.left.shape[1])[:, None]
        most = numbers_at_once(left)
        for rows in _slices(left.shape[1], most // max(right.shape[1], _TERMS_AT_ONCE)):
            total = left.new_zeros(rows.stop - rows.start, right.shape[1], dtype=torch.float64)
            for terms in _slices(len(left), _TERMS_AT_ONCE):
                part = _double(left[terms, rows]).mul_(weighted[terms]).T
                for columns in _slices(right.shape[1], most // _TERMS_AT_ONCE):
                    total[:, columns].addmm_(part, right[terms, columns].double())
            if apart is not None:
                total += apart[rows]
            yield total.view(-1)

    def expand(self) -> Tensor:
        return self.left.transpose(1, 2) @ self.right

    def only(self, examples: Tensor) -> Sequences:
        return Sequences(_only(self.left, examples), _only(self.right, examples))


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

    def only(self, examples: Tensor) -> Rows:
        return Rows(self.index, _only(self.gradients, examples), self.rows)


def _gram(values: Tensor) -> Tensor:
    """For each example the products of its vectors with each other."""
    if values.device.type == "cpu" and torch.get_num_threads() == 1:
        # NB: NumPy sees that this is symmetric and does half the work. With threads torch is faster.
        each = values.numpy()
        return torch.from_numpy(np.matmul(each, each.transpose(0, 2, 1)))
    return values @ values.transpose(1, 2)


def _only(values: Tensor, examples: Tensor) -> Tensor:
    # NB: not times 0, which leaves NaN.
    return torch.where(examples.view(-1, *[1] * (values.dim() - 1)), values, values.new_zeros(()))


def sum_in_parts(factor: Factor, weights: Tensor) -> Iterator[Tensor]:
    """What `weighted_sum` gives, flat, in parts that follow each other. They are the caller's to change.

    NB: a part is gone when the next one is asked for, which may be made in its memory.
    """
    if isinstance(factor, (Outer, Sequences)):
        yield from factor.sum_in_parts(weights)
    else:
        yield factor.weighted_sum(weights).reshape(-1)


def _together(parts: Iterator[Tensor], like: Tensor, shape: tuple[int, int]) -> Tensor:
    made, start = like.new_empty(math.prod(shape), dtype=torch.float64), 0
    for part in parts:
        made[start : start + len(part)] = part
        start += len(part)
    return made.view(shape)


def _double(values: Tensor) -> Tensor:
    """A copy in double precision, the caller's to change."""
    return values.to(torch.float64, copy=True)


def _slices(size: int, most: int) -> Iterator[slice]:
    """0 to `size`, one slice at least, of no more than `most` each."""
    step = max(most, 1)
    for start in range(0, max(size, 1), step):
        yield slice(start, min(start + step, size))


def _even_slices(size: int, most: int) -> Iterator[slice]:
    """The same, as even as kernels like it: a product of 83 rows takes as long as one of 96."""
    count = -(-size // max(most, 1))
    even = -(-size // max(count, 1))
    return _slices(size, min(-(-even // 8) * 8, max(most, 1)))


def _parts(*tensors: Tensor, numbers: int = _NUMBERS_AT_ONCE) -> Iterator[slice]:
    """The examples, so many at a time as are put into double precision at once."""
    examples = tensors[0].shape[0]
    width = max(sum(tensor[:1].numel() for tensor in tensors), 1)
    size = max(min(numbers // width, _EXAMPLES_AT_ONCE), 1)
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
    if flat.dtype != torch.float64 and flat.shape[1] <= _WIDEST and flat.numel() <= numbers_at_once(flat):
        return torch.linalg.vector_norm(flat, dim=1, dtype=torch.float64)
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
