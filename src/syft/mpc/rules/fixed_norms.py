"""Batch, layer, group and root-mean-square norm, and their gradients.

NOTE [Norms]
With d = x - mean and S = sum(d^2), the norm is d * sqrt(count / S). S is the sum of squares before any truncation, so a
small deviation keeps its digits, and |d| <= sqrt(S), so d / sqrt(S) is a number of at most 1 for every deviation:

    1 / sqrt(S)   a power of two (`gain`, from the leading bit of S) times a `root` between 1/2 and 3/2
    d * gain      no truncation: below 2^32
    * root        one truncation, to units

The gradient is divided by the deviation in the same way. Tensors with few digits get more of them first (`_wider`), or
the rounded mean would show.

Range: S < 2^62, so the deviation is below 2^31 / sqrt(count) of the units used: 2^15 / sqrt(count) with 16 bits or
fewer. Error of the norm: 2^-17, 4 units, and 2 units divided by the deviation, which is what the rounded mean does. Error
of the gradient: 2^-15 of the largest, 4 units, and that of the norm divided by the deviation.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from syft.core.chain import Wrapper, new_wrapper
from syft.mpc import fixed_layers
from syft.mpc.precision import FixedPrecisionTensor
from syft.mpc.rules import fixed_arithmetic as arithmetic
from syft.mpc.rules import fixed_fine, fixed_folding
from syft.mpc.rules import fixed_kinds as kinds
from syft.mpc.rules import fixed_reductions as reductions
from syft.mpc.rules import fixed_ring as ring
from syft.mpc.rules import fixed_structure as structure
from syft.mpc.rules.fixed_spread import Spread, inverse_deviation, inverse_root, least, times_root
from syft.mpc.rules.registry import on_children, rule

aten = torch.ops.aten

#: Tensors with fewer fractional bits are widened to about as many before their mean is taken.
_ENOUGH_BITS = 16


def spread_of(
    x: FixedPrecisionTensor, dims: list[int], eps: float, centred: bool = True
) -> tuple[Any, Any, Any]:
    """(spread, mean, S) over some dimensions, which are kept; the mean in units, S in units of `_wider`, squared."""
    count = reductions.count_of(x.shape, dims)
    wider = _wider(x)
    off = ring.times(x.child, wider) if wider > 1 else x.child
    mean = None
    if centred:
        total = reductions.total(off, dims, True)
        off = ring.minus(off, ring.truncate(total, count))
        mean = kinds.real(ring.truncate(total, count * wider), x)
    squares = reductions.total(ring.times(off, off), dims, True)
    raised = ring.plus(squares, least(count * eps * float(x.scale * wider) ** 2))
    gain, root = inverse_root(raised)
    factor = math.sqrt(count) * x.scale
    return Spread(times_root(off, gain, root, factor), gain, root, factor * wider), mean, squares


def _wider(x: FixedPrecisionTensor) -> int:
    return 1 << max(0, _ENOUGH_BITS - x.scale.bit_length())


def _finer(like: FixedPrecisionTensor) -> int:
    """Digits kept below the unit until a gradient is divided by the deviation."""
    most: int = like.base ** min(like.float_fractional, max(1, round(8 / math.log2(like.base))))
    return most


def input_gradient(
    grad: Any, weight: Any, spread: Spread, dims: list[int], like: FixedPrecisionTensor, centred: bool = True
) -> Any:
    """(g - mean(g) - norm * mean(g * norm)) / deviation, for g = grad * weight."""
    finer, scale = _finer(like), like.float_scale
    if weight is None:
        fine, g = ring.times(grad, finer), grad
    else:
        factor, units = kinds.factor(weight)
        product = ring.times(grad, factor)
        g = ring.truncate(product, units)
        fine = ring.truncate(product, units // finer) if units % finer == 0 else ring.times(g, finer)
    count = reductions.count_of(ring.shape_of(grad), dims)
    both = reductions.total(ring.times(g, spread.norm), dims, True)
    # NB: `both` is in units squared, `slope` in fine units.
    slope = ring.truncate(both, count * (scale // finer))
    off = ring.minus(fine, ring.scaled(spread.norm, slope, scale))
    if centred:
        off = ring.minus(off, ring.truncate(reductions.total(fine, dims, True), count))
    return spread.divided(off, finer)


def _parameter_gradients(
    grad: Any, norm: Any, dims: list[int], shape: Any, like: FixedPrecisionTensor, wanted: Any
) -> tuple[Any, Any]:
    """Gradients of weight and bias: sums over `dims`, one truncation."""

    def summed(child: Any) -> Any:
        # NB: torch sums over all dimensions if it is given none.
        total = reductions.total(child, dims, True) if dims else child
        return on_children(aten.reshape.default, total, list(shape))

    weight = ring.truncate(summed(ring.times(grad, norm)), like.float_scale) if wanted[0] else None
    bias = summed(grad) if wanted[1] else None
    return tuple(None if c is None else kinds.real(c, like) for c in (weight, bias))  # type: ignore[return-value]


def _shaped(value: Any, shape: list[int]) -> Any:
    if value is None:
        return None
    if not kinds.is_node(value):
        return value.reshape(shape)
    return kinds.same_kind(on_children(aten.reshape.default, value.child, shape), value)


def _applied(norm: Any, weight: Any, bias: Any, x: FixedPrecisionTensor) -> Any:
    made = kinds.real(norm, x)
    if weight is not None:
        made = arithmetic.multiply(made, weight)
    return made if bias is None else arithmetic.add(made, bias)


def _kept(spread: Spread, x: FixedPrecisionTensor, shape: list[int]) -> FixedPrecisionTensor:
    """1 / deviation as torch returns it, with what backward needs."""
    one = ring.plus(ring.times(spread.gain, 0), x.scale)
    made = kinds.real(on_children(aten.reshape.default, spread.divided(one, 1), shape), x)
    made.known["spread"] = spread
    return made


# -- batch norm ----------------------------------------------------------------------------------------


def _column(value: Any, rank: int) -> Any:
    """A vector over channels, shaped to meet (N, C, ...)."""
    return _shaped(value, [1, -1, *[1] * (rank - 2)])


def _blend(running: Any, new: FixedPrecisionTensor, momentum: float) -> None:
    """running <- (1 - momentum) * running + momentum * new, in place."""
    structure.write(running, arithmetic.lerp(running, new, momentum))


def _blend_variance(
    running: Any, squares: Any, divisor: int, momentum: float, x: FixedPrecisionTensor
) -> None:
    """The same for a variance, in the digits that it is kept with."""
    digits = running.precision_fractional if kinds.is_node(running) else x.precision_fractional
    # NB: no more than twice the digits of x, so this divides.
    whole = (x.scale * _wider(x)) ** 2 * divisor // x.base**digits
    flat = on_children(aten.reshape.default, ring.truncate(squares, whole), [-1])
    variance = fixed_fine.fine(flat, x, digits)
    if kinds.is_node(running) and running.is_fine:
        fixed_fine.lerp_(running, variance, momentum)
    else:
        _blend(running, variance, momentum)


def _evaluated(input: Any, running_mean: Any, running_var: Any, eps: float, rank: int) -> tuple[Any, Any]:
    """(x - mean, 1 / sqrt(var + eps)) with given statistics, secret or public."""
    off = arithmetic.subtract(input, _column(running_mean, rank))
    if not kinds.is_node(running_var):
        return off, _column((running_var + eps).rsqrt(), rank)
    return off, inverse_deviation(running_var, eps).shaped([1, -1, *[1] * (rank - 2)])


def _over(child: Any, deviation: Any, like: FixedPrecisionTensor) -> Any:
    """A node of reals divided by the deviation of `_evaluated`."""
    if isinstance(deviation, Spread):
        return kinds.real(deviation.divided(child.child, 1), like)
    return arithmetic.multiply(child, deviation)


@fixed_fine.fine_rule(aten.native_batch_norm.default, aten._native_batch_norm_legit.default)
@rule(FixedPrecisionTensor, aten.native_batch_norm.default, aten._native_batch_norm_legit.default)
def batch_norm(
    input: Any,
    weight: Any,
    bias: Any,
    running_mean: Any,
    running_var: Any,
    training: bool,
    momentum: float,
    eps: float,
) -> Any:
    like = kinds.template_of(input, weight, bias, running_mean, running_var)
    rank = len(input.shape)
    weights, biases = _column(weight, rank), _column(bias, rank)
    if not training:
        made = fixed_folding.normalised(input, weight, bias, running_mean, running_var, eps)
        if made is not None:
            return made, _empty(made), _empty(made)
        off, deviation = _evaluated(input, running_mean, running_var, eps, rank)
        made = _over(off, deviation, like)
        if weights is not None:
            made = arithmetic.multiply(made, weights) if kinds.nodes_in(made, weights) else made * weights
        return made if biases is None else arithmetic.add(made, biases), _empty(like), _empty(like)
    x = kinds.as_real(input, like)
    dims = [0, *range(2, rank)]
    spread, mean, squares = spread_of(x, dims, eps)
    count = reductions.count_of(x.shape, dims)
    if running_mean is not None:
        _blend(running_mean, _shaped(mean, [-1]), momentum)
    if running_var is not None:
        _blend_variance(running_var, squares, max(1, count - 1), momentum, x)
    return _applied(spread.norm, weights, biases, x), _shaped(mean, [-1]), _kept(spread, x, [-1])


def _empty(like: FixedPrecisionTensor) -> FixedPrecisionTensor:
    return kinds.same_kind(on_children(aten.new_zeros.default, like.child, [0]), like)


@rule(FixedPrecisionTensor, aten._native_batch_norm_legit.no_stats)
def batch_norm_without_stats(
    input: Any, weight: Any, bias: Any, training: bool, momentum: float, eps: float
) -> Any:
    return batch_norm(input, weight, bias, None, None, True, momentum, eps)


@fixed_fine.fine_rule(aten._native_batch_norm_legit_no_training.default)
@rule(FixedPrecisionTensor, aten._native_batch_norm_legit_no_training.default)
def batch_norm_for_inference(
    input: Any, weight: Any, bias: Any, running_mean: Any, running_var: Any, momentum: float, eps: float
) -> Any:
    return batch_norm(input, weight, bias, running_mean, running_var, False, momentum, eps)


@fixed_fine.fine_rule(aten.native_batch_norm_backward.default)
@rule(FixedPrecisionTensor, aten.native_batch_norm_backward.default)
def batch_norm_backward(
    grad_out: Any,
    input: Any,
    weight: Any,
    running_mean: Any,
    running_var: Any,
    save_mean: Any,
    save_invstd: Any,
    train: bool,
    eps: float,
    output_mask: Any,
) -> Any:
    like = kinds.template_of(grad_out, input, weight)
    rank, channels = len(input.shape), input.shape[1]
    dims = [0, *range(2, rank)]
    weights = _column(weight, rank)
    grad = kinds.as_real(grad_out, like)
    if train:
        x = kinds.as_real(input, like)
        spread = _found(save_invstd, lambda: spread_of(x, dims, eps)[0])
        gradient = input_gradient(grad.child, weights, spread, dims, like) if output_mask[0] else None
        parts = _parameter_gradients(grad.child, spread.norm, dims, [channels], like, output_mask[1:])
        return (None if gradient is None else kinds.real(gradient, like), *parts)
    off, deviation = _evaluated(input, running_mean, running_var, eps, rank)
    norm = _over(off, deviation, like) if output_mask[1] else None
    scaled = grad if weights is None else arithmetic.multiply(grad, weights)
    gradient = _over(scaled, deviation, like) if output_mask[0] else None
    units = None if norm is None else kinds.units(norm, like)
    return (gradient, *_parameter_gradients(grad.child, units, dims, [channels], like, output_mask[1:]))


def _found(node: Any, otherwise: Any) -> Spread:
    """What the forward pass left, or the same made again where the node travelled."""
    known = node.known.get("spread") if kinds.is_node(node) else None
    return otherwise() if known is None else known


# -- layer norm and root-mean-square norm ------------------------------------------------------------------


def _last_dims(shape: Any, normalized_shape: Any) -> list[int]:
    return list(range(len(shape) - len(normalized_shape), len(shape)))


def _leading_dims(shape: Any, dims: list[int]) -> list[int]:
    return [d for d in range(len(shape)) if d not in dims]


def _inner(shape: Any, dims: list[int]) -> list[int]:
    return [1 if d in dims else size for d, size in enumerate(shape)]


@rule(FixedPrecisionTensor, aten.native_layer_norm.default)
def layer_norm(input: Any, normalized_shape: Any, weight: Any, bias: Any, eps: float) -> Any:
    like = kinds.template_of(input, weight, bias)
    if not kinds.is_node(input):
        return _public_norm(input, normalized_shape, weight, bias, eps, like)
    x = kinds.as_real(input, like)
    dims = _last_dims(x.shape, normalized_shape)
    spread, mean, _ = spread_of(x, dims, eps)
    return _applied(spread.norm, weight, bias, x), mean, _kept(spread, x, _inner(x.shape, dims))


def _public_norm(
    input: torch.Tensor, normalized_shape: Any, weight: Any, bias: Any, eps: float, like: FixedPrecisionTensor
) -> Any:
    """Public data through secret weights."""
    norm, mean, inverse = aten.native_layer_norm.default(input, normalized_shape, None, None, eps)
    made = kinds.as_real(norm, like) if weight is None else arithmetic.multiply(weight, norm)
    made = made if bias is None else arithmetic.add(made, bias)
    return made, kinds.as_real(mean, like), kinds.as_real(inverse, like)


@rule(FixedPrecisionTensor, aten.native_layer_norm_backward.default)
def layer_norm_backward(
    grad_out: Any,
    input: Any,
    normalized_shape: Any,
    mean: Any,
    rstd: Any,
    weight: Any,
    bias: Any,
    output_mask: Any,
) -> Any:
    like = kinds.template_of(grad_out, input, weight)
    dims = _last_dims(input.shape, normalized_shape)
    # NB: torch does not hand on eps; one unit stands for it where the forward pass is not known.
    x, grad = kinds.as_real(input, like), kinds.as_real(grad_out, like)
    spread = _found(rstd, lambda: spread_of(x, dims, 1.0 / x.scale)[0])
    gradient = input_gradient(grad.child, weight, spread, dims, like) if output_mask[0] else None
    outer = _leading_dims(x.shape, dims)
    parts = _parameter_gradients(grad.child, spread.norm, outer, normalized_shape, like, output_mask[1:])
    return (None if gradient is None else kinds.real(gradient, like), *parts)


class RootMeanSquareNorm(torch.autograd.Function):
    """`torch.nn.functional.rms_norm` on chains: torch takes it apart into powers, means and roots of its own."""

    @staticmethod
    def forward(ctx: Any, input: Any, weight: Any, normalized_shape: list[int], eps: float | None) -> Any:
        given, weights = _below(input), _below(weight)
        like = kinds.template_of(given, weights)
        x = kinds.as_real(given, like)
        ctx.dims = _last_dims(x.shape, normalized_shape)
        least = torch.finfo(x.presented_dtype).eps if eps is None else eps
        ctx.spread, _, _ = spread_of(x, ctx.dims, least, centred=False)
        ctx.normalized_shape = normalized_shape
        ctx.save_for_backward(weight)
        return new_wrapper(_applied(ctx.spread.norm, weights, None, x))

    @staticmethod
    def backward(ctx: Any, grad_out: Any) -> Any:
        grad_node, weight = _below(grad_out), _below(ctx.saved_tensors[0])
        like = kinds.template_of(grad_node, weight)
        grad, spread, dims = kinds.units(grad_node, like), ctx.spread, ctx.dims
        gradient = part = None
        if ctx.needs_input_grad[0]:
            made = input_gradient(grad, weight, spread, dims, like, centred=False)
            gradient = new_wrapper(kinds.real(made, like))
        if ctx.needs_input_grad[1]:
            outer = _leading_dims(ring.shape_of(grad), dims)
            shape = ctx.normalized_shape
            of_weight, _ = _parameter_gradients(grad, spread.norm, outer, shape, like, (True, False))
            part = new_wrapper(of_weight)
        return gradient, part, None, None


fixed_layers.AUTOGRAD["rms_norm"] = RootMeanSquareNorm


def _below(value: Any) -> Any:
    return value.child if type(value) is Wrapper else value


# -- group norm ----------------------------------------------------------------------------------------


@rule(FixedPrecisionTensor, aten.native_group_norm.default)
def group_norm(input: Any, weight: Any, bias: Any, N: int, C: int, HxW: int, group: int, eps: float) -> Any:
    like = kinds.template_of(input, weight, bias)
    x = kinds.as_real(input, like)
    shape, rank = list(x.shape), len(x.shape)
    grouped = _shaped(x, [N, group, -1])
    spread, mean, _ = spread_of(grouped, [2], eps)
    norm = on_children(aten.reshape.default, spread.norm, shape)
    made = _applied(norm, _column(weight, rank), _column(bias, rank), x)
    return made, _shaped(mean, [N, group]), _kept(spread, x, [N, group])


@rule(FixedPrecisionTensor, aten.native_group_norm_backward.default)
def group_norm_backward(
    grad_out: Any,
    input: Any,
    mean: Any,
    rstd: Any,
    weight: Any,
    N: int,
    C: int,
    HxW: int,
    group: int,
    output_mask: Any,
) -> Any:
    like = kinds.template_of(grad_out, input, weight)
    x, grad = kinds.as_real(input, like), kinds.as_real(grad_out, like)
    grouped = _shaped(x, [N, group, -1])
    spread = _found(rstd, lambda: spread_of(grouped, [2], 1.0 / x.scale)[0])
    shape = [N, group, C // group, HxW]
    gain, root = (on_children(aten.reshape.default, c, [N, group, 1, 1]) for c in (spread.gain, spread.root))
    inner = Spread(on_children(aten.reshape.default, spread.norm, shape), gain, root, spread.factor)
    child = on_children(aten.reshape.default, grad.child, shape)
    weights = _shaped(weight, [1, group, C // group, 1])
    gradient = None
    if output_mask[0]:
        made = input_gradient(child, weights, inner, [2, 3], like)
        gradient = kinds.real(on_children(aten.reshape.default, made, list(x.shape)), like)
    parts = _parameter_gradients(child, inner.norm, [0, 3], [C], like, output_mask[1:])
    return (gradient, *parts)
