"""Softmax, its logarithm, and the logarithm of a sum of exponentials. Error 2^-18 and 2 units each."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import torch

from syft.mpc.precision import FixedPrecisionTensor
from syft.mpc.protocols.lookup import packed
from syft.mpc.rules import fixed_approximations as approx
from syft.mpc.rules import fixed_arithmetic as arithmetic
from syft.mpc.rules import fixed_exponentials as exponentials
from syft.mpc.rules import fixed_extrema
from syft.mpc.rules import fixed_kinds as kinds
from syft.mpc.rules import fixed_reductions as reductions
from syft.mpc.rules import fixed_ring as ring
from syft.mpc.rules.registry import on_children, rule

aten = torch.ops.aten

#: Units of exponentials of at most 1: their sum errs by as many of these as it has terms. Those of one program have the
#: same as polynomials.
_POWER_SCALE = 1 << approx.WORK

# -- one program for few classes: NOTE [A sum of few powers] in `protocols.softmax` ----------------------------

#: Segments for each 1, and the degree of the polynomials: errors of 2^-23.
_SEGMENTS, _DEGREE = 8, 5
#: The most entries of a table, and of tables for all sums of a call: what counts then is rounds.
_MOST_ENTRIES, _MOST_DEALT = 1 << 9, 1 << 16
#: Units that quotients of numbers with WORK bits are right for.
_MOST_SCALE = 1 << 32


def _own(self: FixedPrecisionTensor, dim: int, name: str) -> Any:
    """The child's own program for this softmax, given what is public; None if there is none."""
    own, count = ring.fused(self.child, name), self.shape[dim]
    size = 1 << (_SEGMENTS * (count + 1) - 1).bit_length()
    if own is None or not count or self.scale > _MOST_SCALE:
        return None
    if size > _MOST_ENTRIES or size * self.shape.numel() // count > _MOST_DEALT:
        return None
    functions = (_inverse,) if name == "softmax_along" else (_inverse, np.log)
    # Of the exponentials times the inverse; of a logarithm times a power.
    divisor = (1 << 2 * approx.WORK) // self.scale
    tables = _tables(functions, size)
    power = exponentials.power_below_one(self.scale, _POWER_SCALE)
    return own(dim % len(self.shape), power, _SEGMENTS, approx.WORK, size, tables, divisor)


def _inverse(y: Any) -> Any:
    return 1.0 / y


@cache
def _tables(functions: tuple[Any, ...], size: int) -> bytes:
    """For each function the coefficients, lowest first, around each multiple of a segment from 1 on."""
    width = 1.0 / _SEGMENTS
    columns: list[list[int]] = []
    for function in functions:
        fits = [approx.around(function, i * width, width, _DEGREE)[0] for i in range(_SEGMENTS - 1, size)]
        rows = [[0] * (_DEGREE + 1)] * (_SEGMENTS - 1)
        rows += [[round(float(c) * (1 << approx.WORK)) for c in coefficients] for coefficients in fits]
        columns += [list(column) for column in zip(*rows, strict=True)]
    return packed(*columns)


# -- rules --------------------------------------------------------------------------------------------------


def _below_maximum(self: FixedPrecisionTensor, dims: list[int]) -> tuple[Any, Any]:
    """(x - max, max), dimensions kept: exponentials that are at most 1."""
    top = fixed_extrema.amax(self, dims, True)
    return arithmetic.subtract(self, top), top


def _powers(below: Any, dims: list[int]) -> tuple[Any, Any]:
    """(exp(x), its sum) in units of 1 / _POWER_SCALE, for x <= 0."""
    powers = exponentials.exponential(below.child, below.scale, _POWER_SCALE, most=0.0)
    return powers, reductions.total(powers, dims, True)


@rule(FixedPrecisionTensor, aten._softmax.default)
def softmax(self: Any, dim: int, half_to_float: bool = False) -> Any:
    if not self.shape:
        return kinds.real(ring.plus(ring.times(self.child, 0), self.scale), self)
    made = _own(self, dim, "softmax_along")
    if made is not None:
        return kinds.real(made, self)
    powers, total = _powers(_below_maximum(self, [dim])[0], [dim])
    if 0 < self.shape[dim] <= approx.MOST_SPREAD:
        # The largest power is 1 and no other is more, up to their errors.
        high = self.shape[dim] * _POWER_SCALE
        return kinds.real(approx.divide_bounded(powers, total, self.scale, _POWER_SCALE, high), self)
    return kinds.real(approx.divide_small(powers, total, self.scale), self)


@rule(FixedPrecisionTensor, aten._softmax_backward_data.default)
def softmax_backward(grad_output: Any, output: Any, dim: int, input_dtype: torch.dtype) -> Any:
    """y * (g - sum(g * y)): one truncation for the sum, one for the product."""
    like = kinds.template_of(grad_output, output)
    grad, y = kinds.units(grad_output, like), kinds.units(output, like)
    if not ring.shape_of(y):
        return kinds.real(ring.times(y, 0), like)
    middle = ring.truncate(reductions.total(ring.times(grad, y), [dim], True), like.float_scale)
    return kinds.real(ring.scaled(ring.minus(grad, middle), y, like.float_scale), like)


@rule(FixedPrecisionTensor, aten._log_softmax.default)
def log_softmax(self: Any, dim: int, half_to_float: bool = False) -> Any:
    if not self.shape:
        return kinds.real(ring.times(self.child, 0), self)
    found = _own(self, dim, "log_softmax_along")
    if found is not None:
        child, *powers = found
        made = kinds.real(child, self)
        made.known["powers"] = powers
        return made
    below, _ = _below_maximum(self, [dim])
    return arithmetic.subtract(below, _log_sum(below, [dim]))


@rule(FixedPrecisionTensor, aten._log_softmax_backward_data.default)
def log_softmax_backward(grad_output: Any, output: Any, dim: int, input_dtype: torch.dtype) -> Any:
    """g - exp(output) * sum(g)."""
    like = kinds.template_of(grad_output, output)
    grad = kinds.units(grad_output, like)
    if not ring.shape_of(grad):
        return kinds.real(ring.times(grad, 0), like)
    found = output.known.get("powers") if kinds.is_node(output) else None
    own = None if found is None else ring.fused(grad, "log_softmax_backward")
    if found is not None and own is not None:
        divisor = (1 << 2 * approx.WORK) // like.float_scale
        return kinds.real(own(*found, dim % len(like.shape), divisor, like.float_scale), like)
    total = reductions.total(grad, [dim], True)
    chances = exponentials.exponential(kinds.units(output, like), like.float_scale, most=0.0)
    return kinds.real(ring.minus(grad, ring.scaled(chances, total, like.float_scale)), like)


def _log_sum(below: Any, dims: list[int]) -> FixedPrecisionTensor:
    """log(sum(exp(x))) for x <= 0, in the precision of x."""
    _, total = _powers(below, dims)
    return kinds.real(approx.logarithm(total, _POWER_SCALE, below.scale), below)


@rule(FixedPrecisionTensor, aten.logsumexp.default)
def logsumexp(self: Any, dim: Any, keepdim: bool = False) -> Any:
    x = kinds.as_real(self)
    if not x.shape:
        return x
    dims = reductions.dims_of(x.shape, dim)
    below, top = _below_maximum(x, dims)
    made = arithmetic.add(_log_sum(below, dims), top)
    return made if keepdim else kinds.real(on_children(aten.squeeze.dims, made.child, dims), made)
