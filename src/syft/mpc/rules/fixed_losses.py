"""Losses that would leave the range on their way, written so that they do not; and products of three."""

from __future__ import annotations

import math
from typing import Any

import torch

from syft.mpc import reuse
from syft.mpc.precision import FixedPrecisionTensor
from syft.mpc.rules import fixed_approximations as approx
from syft.mpc.rules import fixed_arithmetic as arithmetic
from syft.mpc.rules import fixed_constants as constants
from syft.mpc.rules import fixed_functions as functions
from syft.mpc.rules import fixed_kinds as kinds
from syft.mpc.rules import fixed_reductions as reductions
from syft.mpc.rules import fixed_ring as ring
from syft.mpc.rules import later
from syft.mpc.rules.registry import rule
from syft.mpc.sharing import AdditiveSharingTensor

aten = torch.ops.aten


def _margin(self: Any, target: Any) -> Any:
    return arithmetic.negative(arithmetic.multiply(self, target))


@rule(FixedPrecisionTensor, aten.soft_margin_loss.default)
def soft_margin_loss(self: Any, target: Any, reduction: int = 1) -> Any:
    """log(1 + exp(-target * self)) as a softplus, which no margin is too large for."""
    return _reduced(functions.softplus(_margin(self, target)), reduction)


@rule(FixedPrecisionTensor, aten.soft_margin_loss_backward.default)
def soft_margin_loss_backward(grad_output: Any, self: Any, target: Any, reduction: int) -> Any:
    slope = arithmetic.multiply(functions.sigmoid(_margin(self, target)), target)
    gradient = arithmetic.negative(arithmetic.multiply(slope, grad_output))
    return arithmetic.divide(gradient, math.prod(gradient.shape)) if reduction == 1 else gradient


@rule(FixedPrecisionTensor, aten.mse_loss.default)
def mse_loss(self: Any, target: Any, reduction: int = 1) -> Any:
    """The mean of squares from one truncation of their sum, where that fits (NOTE [Means of squares] in
    `fixed_reductions`); error 1 unit.
    """
    gap = _gap(self, target)
    if reduction == 1 and gap.is_real and not gap.is_fine:
        found = later.mean_of_squares(gap.child, gap.scale)
        if found is not None:
            return kinds.real(found, gap)
    return _reduced(arithmetic.multiply(gap, gap), reduction)


def _gap(self: Any, target: Any) -> Any:
    """self - target: that of the loss once more in its gradient."""
    if kinds.is_node(self) and isinstance(self.child, AdditiveSharingTensor):
        key, sources = _key_of(target)
        if key is not None:
            return reuse.derived(
                key, [self.child, *sources], lambda: (arithmetic.subtract(self, target), target)
            )[0]
    return arithmetic.subtract(self, target) if kinds.nodes_in(self, target) else self - target


def _key_of(target: Any) -> tuple[Any, list[Any]]:
    """What names a target as it is, and the secrets among it; None for what may change unseen."""
    if kinds.is_node(target) and isinstance(target.child, AdditiveSharingTensor):
        return ("gap", target.presented_dtype), [target.child]
    if type(target) is torch.Tensor and not target.is_inference():
        return ("gap", id(target), target._version), []  # NB: it is kept with the gap, and so is its id
    return None, []


@rule(FixedPrecisionTensor, aten.mse_loss_backward.default)
def mse_loss_backward(grad_output: Any, self: Any, target: Any, reduction: int) -> Any:
    """2 (x - y) / count * grad: one division where the last is a known number, and none by itself where its inverse is an
    integer (NOTE [Undone quotients] in `later`).
    """
    gap = _gap(self, target)
    norm = 2.0 / math.prod(self.shape) if reduction == 1 else 2.0
    value = constants.known(grad_output) if kinds.is_node(gap) else None
    if value is not None:
        waiting = _divided(gap, norm * value)
        return arithmetic.multiply(gap, norm * value) if waiting is None else waiting
    step = arithmetic.multiply(gap, norm) if kinds.is_node(gap) else norm * gap
    return arithmetic.multiply(step, grad_output)


def _divided(gap: Any, number: float) -> Any:
    """gap * number, which waits, if the number is 1 / n."""
    if not gap.is_real or gap.is_fine or not 0 < number < 1 or number * round(1 / number) != 1:
        return None
    child = later.quotient(gap.child, round(1 / number), gap.scale)
    return None if child is None else kinds.real(child, gap)


# -- binary cross-entropy ----------------------------------------------------------------------------------

#: torch's own bound of the logarithms in this loss.
_LOWEST_LOG = -100.0


def _inside(probability: Any, like: FixedPrecisionTensor) -> Any:
    """Probabilities as units, from 1 unit to 1 less 1 unit: NOTE [Confident mistakes]."""
    return approx.clamped(kinds.units(probability, like), 1, like.float_scale - 1)


@rule(FixedPrecisionTensor, aten.binary_cross_entropy.default)
def binary_cross_entropy(self: Any, target: Any, weight: Any = None, reduction: int = 1) -> Any:
    """Error 2^-21 and 3 units, for probabilities from 0 to 1.

    NOTE [Confident mistakes]
    A probability below half a unit is 0 in fixed precision, and its logarithm is lost: a unit stands for it, so the loss
    of a mistake is at most log(scale), where torch stops at 100. The gradient is that of the unit.
    """
    like = kinds.template_of(self, target, weight)
    if not kinds.is_node(self):
        losses = _public_logs(self, target)
    else:
        p = _inside(self, like)
        both = ring.stacked([p, ring.from_public(like.float_scale, p)])
        yes, no = (kinds.real(c, like) for c in ring.unstacked(approx.logarithm(both, like.float_scale)))
        # -(y log p + (1 - y) log(1 - p))
        losses = arithmetic.negative(
            arithmetic.add(no, arithmetic.multiply(arithmetic.subtract(yes, no), target))
        )
    if weight is not None:
        losses = arithmetic.multiply(losses, weight)
    return _reduced(losses, reduction)


def _public_logs(probability: torch.Tensor, target: FixedPrecisionTensor) -> Any:
    yes, no = (torch.log(p).clamp_min(_LOWEST_LOG) for p in (probability, 1 - probability))
    return arithmetic.subtract_from(arithmetic.multiply(target, yes - no), -no)


def _reduced(losses: FixedPrecisionTensor, reduction: int) -> FixedPrecisionTensor:
    dims = list(range(len(losses.shape)))
    if reduction == 0:
        return losses
    if reduction == 1:
        made: FixedPrecisionTensor = reductions.mean(losses, dims)
        return made
    return kinds.real(reductions.total(losses.child, dims, False), losses)


@rule(FixedPrecisionTensor, aten.binary_cross_entropy_backward.default)
def binary_cross_entropy_backward(
    grad_output: Any, self: Any, target: Any, weight: Any = None, reduction: int = 1
) -> Any:
    """grad * (p - y) / (p (1 - p)), the denominator before its truncation."""
    like = kinds.template_of(grad_output, self, target, weight)
    p = _inside(self, like)
    scale = like.float_scale
    spread = ring.times(p, ring.from_public(scale, p) if kinds.is_node(self) else scale - p)
    gap = ring.minus(p, kinds.units(target, like))
    if not kinds.is_node(target) and not kinds.is_node(self):
        slope: Any = gap.double() * scale / spread
    elif isinstance(spread, torch.Tensor) and not isinstance(gap, torch.Tensor):
        slope = arithmetic.multiply(kinds.real(gap, like), scale**2 / spread.double())
    else:
        slope = kinds.real(approx.divide(gap, spread, scale**2), like)
    if weight is not None:
        slope = arithmetic.multiply(slope, weight)
    if reduction == 1:
        slope = arithmetic.divide(slope, math.prod(self.shape))
    return arithmetic.multiply(slope, grad_output)


# -- products of three ---------------------------------------------------------------------------------------


@rule(FixedPrecisionTensor, aten._trilinear.default)
def trilinear(
    i1: Any, i2: Any, i3: Any, expand1: Any, expand2: Any, expand3: Any, sumdim: Any, unroll_dim: int = 1
) -> Any:
    """The sum over some dimensions of the product of three, as `nn.Bilinear` asks for it. Error 1 unit per term of the
    first product, and 1.
    """
    like = kinds.template_of(i1, i2, i3)
    one, weights, other = (
        _expanded(value, dims) for value, dims in ((i1, expand1), (i2, expand2), (i3, expand3))
    )
    outer = arithmetic.multiply(one, other) if kinds.nodes_in(one, other) else one * other
    (a, scale_a), (b, scale_b) = kinds.factor(outer), kinds.factor(weights)
    product = ring.summed(ring.times(a, b), list(sumdim)) if sumdim else ring.times(a, b)
    return kinds.real(ring.truncate(product, scale_a * scale_b // like.float_scale), like)


def _expanded(value: Any, dims: Any) -> Any:
    for dim in dims:
        value = (
            kinds.same_kind(ring.unsqueezed(value.child, dim), value)
            if kinds.is_node(value)
            else value.unsqueeze(dim)
        )
    return value
