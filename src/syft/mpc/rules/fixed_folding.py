"""A convolution and the norm after it as one convolution, where neither changes: inference.

NOTE [Folding]
In evaluation a batch norm is x * s + t, with s and t from its parameters and running statistics. After a convolution,
conv(x, W) * s + t is conv(x, W s) + t, and W s is computed once, for as long as nothing of it is written to. So the norm
costs nothing from the second inference on.

The norm comes after the convolution, which has to be left undone until then. That is done where gradients are off and no
other operation has come after a convolution with the same weight. If something else comes, or if the input or the weight
is about to be written to, the convolution is done first (`LazyShares`).

s and W s have `_bits` fractional bits: 22 for the usual eps. Error: 2^-23 of the convolution before the norm (1 unit of
2^-16 for deviations up to 2^7), what rounding W s does (2^-23 of the sum of |x|), and 1 unit. Range: |s| < 2^9, and what
a product of x and W s needs.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from syft.core.shapes import contiguous_spec
from syft.mpc import metering, reuse
from syft.mpc.authenticated import is_authenticated
from syft.mpc.kernels import Bilinear
from syft.mpc.lazy_shares import LazyShares
from syft.mpc.precision import FixedPrecisionTensor
from syft.mpc.rules import fixed_kinds as kinds
from syft.mpc.rules import fixed_ring as ring
from syft.mpc.rules.fixed_spread import inverse_deviation
from syft.mpc.rules.registry import on_children
from syft.mpc.sharing import AdditiveSharingTensor

aten = torch.ops.aten

#: Fractional bits of a folded weight at most, and of products with it; bits that 1 / deviation has in all.
_MOST_BITS, _MOST_IN_PRODUCT, _ROOM = 22, 44, 30


@dataclass(eq=False)
class Convolution:
    """A convolution of secrets: what the norm after it has to know."""

    input: FixedPrecisionTensor
    weight: FixedPrecisionTensor
    bias: FixedPrecisionTensor | None
    geometry: tuple[Any, ...]


def computed_later(source: Any, shape: Any, make: Callable[[], Any]) -> Any:
    """What `make` computes from a secret, when it is first asked for; from anything else, at once."""
    if not isinstance(source, AdditiveSharingTensor) or is_authenticated(source):
        return make()
    spec = contiguous_spec(tuple(shape), torch.int64)
    shares = LazyShares(lambda: make().child, spec, source.locations)
    reuse.remembered(source).pending.add(shares)
    made = source.of([])
    made.child, made.was_shared_there = shares, source.was_shared_there
    return made


def _secrets(*nodes: Any) -> list[AdditiveSharingTensor] | None:
    """The secrets below nodes of reals, None among them left out; None if one of them is something else."""
    found = [node for node in nodes if node is not None]
    if not all(kinds.is_node(n) and n.is_real and isinstance(n.child, AdditiveSharingTensor) for n in found):
        return None
    return [node.child for node in found]


# -- the convolution ---------------------------------------------------------------------------------------------


def convolved(call: Convolution, make: Callable[[], FixedPrecisionTensor]) -> FixedPrecisionTensor:
    """The result of a convolution, or what stands for it until it is needed. NOTE [Folding]"""
    stride, padding, dilation, transposed, _, groups = call.geometry[1:]
    secrets = _secrets(call.input, call.weight, call.bias)
    if (
        secrets is None
        or transposed
        or call.input.is_fine
        or call.weight.is_fine
        or is_authenticated(secrets[0])
    ):
        return make()
    record = reuse.remembered(call.weight.child)
    if torch.is_grad_enabled() or record.is_normalised is False or not record.is_lasting:
        made = make()
    else:
        op = Bilinear.of(
            "conv", stride=tuple(stride), padding=tuple(padding), dilation=tuple(dilation), groups=int(groups)
        )
        shape = op.output_shape(call.input.shape, call.weight.shape)

        def compute() -> dict[Any, Any]:
            record.is_normalised = False
            with metering.operation("convolution", always=True):
                return make().child.child

        shares = LazyShares(compute, contiguous_spec(shape, torch.int64), call.input.child.locations)
        for secret in secrets:
            reuse.remembered(secret).pending.add(shares)
        template = call.input.child
        child = template.of([])
        child.child = shares
        child.was_shared_there = all(secret.was_shared_there for secret in secrets)
        made = kinds.result(
            child, (call.input, call.weight), kinds.template_of(call.input, call.weight), True
        )
    made.known["convolution"] = call
    return made


# -- the norm ----------------------------------------------------------------------------------------------------


def normalised(input: Any, weight: Any, bias: Any, mean: Any, variance: Any, eps: float) -> Any:
    """The norm of a convolution that was left undone; None for all other input."""
    call = input.known.get("convolution") if kinds.is_node(input) else None
    if not isinstance(call, Convolution):
        return None
    shares = input.child.child
    if not isinstance(shares, LazyShares) or shares.is_made:
        return None
    sources = _secrets(call.weight, variance, mean, weight, bias, call.bias)
    like = kinds.template_of(input, weight, bias, mean)
    bits = _bits(eps, variance)
    is_coarse = all(not node.is_fine for node in (mean, weight, bias, call.bias) if node is not None)
    if (
        sources is None
        or not is_coarse
        or not like.float_scale <= 1 << bits <= (1 << _MOST_IN_PRODUCT) // like.float_scale
    ):
        return None
    reuse.remembered(call.weight.child).is_normalised = True
    present = (mean is not None, weight is not None, bias is not None, call.bias is not None)
    folded, shift = reuse.derived(
        ("folded", eps, present),
        sources,
        lambda: _folded(call, weight, bias, mean, variance, eps, bits, like),
    )
    made = on_children(aten.convolution.default, call.input.child, folded, *call.geometry)
    if shift is not None:
        column = [1, -1, *[1] * (len(input.shape) - 2)]
        made = ring.plus(made, on_children(aten.reshape.default, shift, column))
    return kinds.real(ring.truncate(made, 1 << bits), like)


def _bits(eps: float, variance: Any) -> int:
    """Fractional bits of s and W s: 1 / deviation has room for the smallest that eps allows."""
    if not kinds.is_node(variance):
        return 0
    smallest = math.sqrt(max(eps, 1.0 / variance.scale))
    return max(0, min(_MOST_BITS, _ROOM + math.floor(math.log2(smallest))))


def _folded(
    call: Convolution,
    weight: Any,
    bias: Any,
    mean: Any,
    variance: Any,
    eps: float,
    bits: int,
    like: FixedPrecisionTensor,
) -> tuple[Any, Any]:
    """(W s in `bits` fractional bits, the shift in units of its products with reals)."""
    scale = like.float_scale
    deviation = inverse_deviation(variance, eps)
    factor = deviation.divided(ring.plus(ring.zeros_like(deviation.gain), 1 << bits), 1)
    if weight is not None:
        factor = ring.scaled(factor, weight.child, scale)
    column = on_children(aten.reshape.default, factor, [-1, *[1] * (len(call.weight.shape) - 1)])
    kernel = ring.scaled(call.weight.child, column, scale)
    reuse.remembered(kernel).is_lasting = True
    off = None if mean is None else ring.negated(mean.child)
    if call.bias is not None:
        off = call.bias.child if off is None else ring.plus(off, call.bias.child)
    shift = None if off is None else ring.times(off, factor)
    if bias is not None:
        raised = ring.times(bias.child, 1 << bits)
        shift = raised if shift is None else ring.plus(shift, raised)
    return kernel, shift
