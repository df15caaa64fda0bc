"""Matrix products and convolutions: one integer product and one truncation, however many terms are summed.

Error: less than 1 unit, plus 2^-22 of the sum of |terms| where one operand is a public real.
"""

from __future__ import annotations

from typing import Any

import torch

from syft.mpc.precision import FixedPrecisionTensor
from syft.mpc.rules import fixed_arithmetic as arithmetic
from syft.mpc.rules import fixed_folding
from syft.mpc.rules import fixed_kinds as kinds
from syft.mpc.rules import fixed_ring as ring
from syft.mpc.rules.registry import on_children, rule, rule_with_func

aten = torch.ops.aten


@rule_with_func(
    FixedPrecisionTensor,
    aten.mm.default,
    aten.bmm.default,
    aten.mv.default,
    aten.dot.default,
    aten.vdot.default,
)
def matrix_product(func: Any, self: Any, other: Any) -> Any:
    operation = aten.dot.default if func is aten.vdot.default else func
    child, like, reals = arithmetic.product(operation, self, other)
    return kinds.result(child, (self, other), like, reals)


def _affine(func: Any, a: Any, b: Any, bias: Any, *params: Any) -> Any:
    """func(a, b, *params) + bias of reals in one step; None for other operands."""
    if not all(kinds.is_node(one) and one.is_real and not one.is_fine for one in (a, b, bias)):
        return None
    like = kinds.template_of(a, b, bias)
    (x, scale_x), (y, scale_y) = kinds.factor(a), kinds.factor(b)
    child = ring.product(func, x, y, scale_x * scale_y // like.float_scale, *params, bias=bias.child)
    return kinds.result(child, (kinds.result(child, (a, b), like, True), bias), like, True)


def _scaled_sum(bias: Any, product: Any, beta: float, alpha: float) -> Any:
    if alpha != 1:
        product = arithmetic.multiply(product, alpha)
    if beta == 0:
        return product
    if beta != 1:
        bias = arithmetic.multiply(bias, beta) if kinds.is_node(bias) else bias * beta
    return arithmetic.add(product, bias)


@rule(FixedPrecisionTensor, aten.addmm.default)
def addmm(self: Any, mat1: Any, mat2: Any, *, beta: float = 1, alpha: float = 1) -> Any:
    made = _affine(aten.mm.default, mat1, mat2, self) if alpha == beta == 1 else None
    return made if made is not None else _scaled_sum(self, _either(aten.mm.default, mat1, mat2), beta, alpha)


@rule(FixedPrecisionTensor, aten.addmv.default)
def addmv(self: Any, mat: Any, vec: Any, *, beta: float = 1, alpha: float = 1) -> Any:
    return _scaled_sum(self, _either(aten.mv.default, mat, vec), beta, alpha)


@rule(FixedPrecisionTensor, aten.baddbmm.default)
def baddbmm(self: Any, batch1: Any, batch2: Any, *, beta: float = 1, alpha: float = 1) -> Any:
    return _scaled_sum(self, _either(aten.bmm.default, batch1, batch2), beta, alpha)


@rule(FixedPrecisionTensor, aten.addbmm.default)
def addbmm(self: Any, batch1: Any, batch2: Any, *, beta: float = 1, alpha: float = 1) -> Any:
    product = _either(aten.bmm.default, batch1, batch2)
    if kinds.is_node(product):
        product = kinds.same_kind(ring.summed(product.child, [0]), product)
    else:
        product = product.sum(0)
    return _scaled_sum(self, product, beta, alpha)


@rule(FixedPrecisionTensor, aten.addr.default)
def addr(self: Any, vec1: Any, vec2: Any, *, beta: float = 1, alpha: float = 1) -> Any:
    column = (
        kinds.same_kind(ring.unsqueezed(vec1.child, 1), vec1) if kinds.is_node(vec1) else vec1.unsqueeze(1)
    )
    outer = arithmetic.multiply(column, vec2) if kinds.nodes_in(column, vec2) else column * vec2
    return _scaled_sum(self, outer, beta, alpha)


def _either(func: Any, a: Any, b: Any) -> Any:
    """A product that is public when both factors are."""
    return matrix_product(func, a, b) if kinds.nodes_in(a, b) else func(a, b)


# -- convolutions -------------------------------------------------------------------------------------------


@rule(FixedPrecisionTensor, aten.convolution.default)
def convolution(
    input: Any,
    weight: Any,
    bias: Any,
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    transposed: bool,
    output_padding: list[int],
    groups: int,
) -> Any:
    geometry = (None, stride, padding, dilation, transposed, output_padding, groups)
    call = fixed_folding.Convolution(input, weight, bias, geometry)
    return fixed_folding.convolved(call, lambda: _convolved(input, weight, bias, geometry))


def _convolved(input: Any, weight: Any, bias: Any, geometry: tuple[Any, ...]) -> Any:
    joined = _affine(aten.convolution.default, input, weight, bias, *geometry)
    if joined is not None:
        return joined
    child, like, reals = arithmetic.product(aten.convolution.default, input, weight, *geometry)
    made = kinds.result(child, (input, weight), like, reals)
    if bias is None:
        return made
    column = [-1 if i == 1 else 1 for i in range(len(made.shape))]
    if kinds.is_node(bias):
        bias = kinds.same_kind(on_children(aten.view.default, bias.child, [bias.shape[0], *column[2:]]), bias)
    else:
        bias = bias.view(column[1:])
    return arithmetic.add(made, bias)


@rule(FixedPrecisionTensor, aten._convolution.default)
def convolution_with_flags(*args: Any) -> Any:
    return convolution(*args[:9])


@rule(FixedPrecisionTensor, aten.convolution_backward.default)
def convolution_backward(
    grad_output: Any,
    input: Any,
    weight: Any,
    bias_sizes: list[int] | None,
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    transposed: bool,
    output_padding: list[int],
    groups: int,
    output_mask: list[bool],
) -> Any:
    """The gradients of a convolution are convolutions: of the gradient with the weight, of the input with
    the gradient.
    """
    spatial = len(grad_output.shape) - 2
    stride, padding, dilation = (_full(v, spatial) for v in (stride, padding, dilation))
    grad_input = grad_weight = grad_bias = None
    if output_mask[0]:
        extra = _missing(input, grad_output, weight, stride, padding, dilation)
        if transposed:
            extra = [0] * spatial
        geometry = (None, stride, padding, dilation, not transposed, extra, groups)
        child, like, reals = arithmetic.product(aten.convolution.default, grad_output, weight, *geometry)
        for dim, size in enumerate(input.shape[2:], start=2):
            child = ring.sliced(child, dim, 0, size)
        grad_input = kinds.result(child, (grad_output, weight), like, reals)
    if output_mask[1]:
        pair = (grad_output, input) if transposed else (input, grad_output)
        grad_weight = _weight_gradient(*pair, weight, stride, padding, dilation, groups)
    if output_mask[2]:
        over = [0, *range(2, spatial + 2)]
        grad_bias = (
            kinds.same_kind(ring.summed(grad_output.child, over), grad_output)
            if kinds.is_node(grad_output)
            else grad_output.sum(over)
        )
    return grad_input, grad_weight, grad_bias


def _full(value: Any, spatial: int) -> list[int]:
    return list(value) * spatial if len(value) == 1 else list(value)


def _missing(input: Any, grad: Any, weight: Any, stride: Any, padding: Any, dilation: Any) -> list[int]:
    """How many rows at the end of the input no window reached: the output padding of the way back."""
    return [
        size - ((out - 1) * s - 2 * p + d * (k - 1) + 1)
        for size, out, k, s, p, d in zip(
            input.shape[2:], grad.shape[2:], weight.shape[2:], stride, padding, dilation, strict=True
        )
    ]


def _weight_gradient(
    input: Any, grad: Any, weight: Any, stride: Any, padding: Any, dilation: Any, groups: int
) -> Any:
    """Channels take the place of the batch: input (C, N, ...) convolved with grad (O, N, ...).

    Stride and dilation change places.
    A group is a slice of channels; each has its own convolution.
    """
    like = kinds.template_of(input, grad)
    parts = []
    for group in range(groups):
        images = _channels_first(_group(input, group, groups))
        kernels = _channels_first(_group(grad, group, groups))
        geometry = (None, dilation, padding, stride, False, [0] * len(stride), 1)
        child, _, _ = arithmetic.product(aten.convolution.default, images, kernels, *geometry)
        for dim, size in enumerate(weight.shape[2:], start=2):
            child = ring.sliced(child, dim, 0, size)
        parts.append(on_children(aten.transpose.int, child, 0, 1))
    child = parts[0] if groups == 1 else on_children(aten.cat.default, parts, 0)
    return kinds.result(child, (input, grad), like, True)


def _group(value: Any, group: int, groups: int) -> Any:
    if groups == 1:
        return value
    width = value.shape[1] // groups
    return _on(value, aten.slice.Tensor, 1, group * width, (group + 1) * width)


def _channels_first(value: Any) -> Any:
    return _on(value, aten.transpose.int, 0, 1)


def _on(value: Any, func: Any, *args: Any) -> Any:
    """A rearrangement of a node or of a plain tensor."""
    if kinds.is_node(value):
        return kinds.same_kind(on_children(func, value.child, *args), value)
    return func(value, *args)
