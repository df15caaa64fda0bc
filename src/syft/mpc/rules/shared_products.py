"""Products of secrets: with public values at every holder, with each other by Beaver's trick."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from syft.mpc import checking
from syft.mpc.authenticated import Held, is_authenticated
from syft.mpc.kernels import Bilinear, is_on_cuda
from syft.mpc.protocols import local
from syft.mpc.protocols.beaver import MATMUL, MUL, spdz_mul, square
from syft.mpc.protocols.derived import square_and_truncated, square_truncated
from syft.mpc.protocols.truncate import HIGH
from syft.mpc.reuse import lies_on_device, multiply
from syft.mpc.rules import later
from syft.mpc.rules.registry import rule
from syft.mpc.rules.shared_linear import add, as_public, at_every_holder, own_of
from syft.mpc.sharing import AdditiveSharingTensor as AST
from syft.tensors.multi_pointer import MultiPointerTensor

aten = torch.ops.aten


def product(op: Bilinear, x: Any, y: Any, func: Any, *params: Any) -> Any:
    """op(x, y): a program if both are secret, `func(x, y, *params)` at every holder if one is public."""
    if isinstance(x, AST) and isinstance(y, AST):
        return x.run(square) if x is y and op == MUL else _multiply(x, y, op)
    if op != MUL and _is_for_kernels(op, x, y):
        return _by_kernel(op, x, y)
    return at_every_holder(func, (as_public(x), as_public(y), *params), {})


def product_truncated(
    x: AST, func: Any, y: Any, divisor: int, params: tuple[Any, ...] = (), bias: Any = None
) -> Any:
    """func(x, y, *params) / divisor + bias of secrets, or of one and a number, as one program; None if that takes two."""
    if not _is_joined(x, divisor):
        return None
    if func is aten.mul.Tensor and type(y) is int and abs(y) <= HIGH and bias is None:
        return x.rescaled(y, divisor)
    # NB: on a card each of the two programs is replayed.
    if not isinstance(y, AST) or not y.is_split or func not in _KERNELS or is_on_cuda(x):
        return None
    waiting = later.product(func, x, y, divisor) if bias is None else None
    if waiting is not None:
        return waiting
    for other in (y,) if bias is None else (y, bias):
        x.check_same_holders(other)
    op = _KERNELS[func](*params)
    if x is y and op == MUL:
        return x.run(square_truncated, divisor)
    return multiply(x, y, op, divisor, bias)


def squared(x: AST, divisor: int) -> Any:
    """(x * x / divisor, x * x) as one program; None if that takes two."""
    if not _is_joined(x, divisor) or is_on_cuda(x):
        return None
    return x.run(square_and_truncated, divisor)


def _is_joined(x: AST, divisor: int) -> bool:
    """Whether a product with x and its truncation are one program."""
    # NB: a check looks at the product itself.
    return 1 < divisor <= HIGH and x.is_split and not is_authenticated(x) and not checking.is_checking()


def _multiply(x: AST, y: AST, op: Bilinear) -> Any:
    x.check_same_holders(y)
    if is_authenticated(x):  # masked forms have no MACs
        return x.run(spdz_mul, y, op)
    return multiply(x, y, op)


#: From so many multiplications on, it matters whether a holder's processor is fast at int64.
_LARGE = 1 << 20


def _is_for_kernels(op: Bilinear, x: Any, y: Any) -> bool:
    """Whether our kernels multiply a share and a public value, and not torch.

    torch has no product of int64 on a device, here or at a holder on a network, and may be slow at large ones on
    processors (NOTE [Products in doubles]). Shares with MACs are computed on the CPU, by torch, wherever they lie.
    """
    secret = x if isinstance(x, AST) else y
    if is_authenticated(secret):
        return False
    if lies_on_device(secret):
        return True
    return _multiplications(op, tuple(x.shape), tuple(y.shape)) >= _LARGE


def _multiplications(op: Bilinear, x: tuple[int, ...], y: tuple[int, ...]) -> int:
    """How many numbers a product multiplies; of a convolution about, without a look at its parameters."""
    if op == MATMUL:
        return math.prod(x) * math.prod(y[-1:] if len(y) > 1 else ())
    return math.prod(x) * math.prod(y[1:] if op.name == "conv_transpose" else y[:1] + y[2:])


def _by_kernel(op: Bilinear, x: Any, y: Any) -> Any:
    """A product with a public value as a program without rounds, by the kernels of `syft.mpc.kernels`."""
    if isinstance(x, AST):
        return x.run(local.public_product, _factor(y, x), op)
    return y.run(local.public_product, _factor(x, y), op, from_left=True)


def _factor(value: Any, secret: AST) -> Any:
    """A public factor as an argument of a program; of one that was sent to all holders each uses its own."""
    public = as_public(value)
    if isinstance(public, MultiPointerTensor):
        return Held([own_of(public, holder) for holder in secret.child])
    return public


@rule(AST, aten.mul.Tensor, aten.mul.Scalar)
def mul(x: Any, y: Any) -> Any:
    return product(MUL, x, y, aten.mul.Tensor)


@rule(AST, aten.mm.default)
def mm(x: Any, y: Any) -> Any:
    return product(MATMUL, x, y, aten.mm.default)


@rule(AST, aten.bmm.default)
def bmm(x: Any, y: Any) -> Any:
    return product(MATMUL, x, y, aten.bmm.default)


@rule(AST, aten.matmul.default)
def matmul(x: Any, y: Any) -> Any:
    return product(MATMUL, x, y, aten.matmul.default)


@rule(AST, aten.mv.default)
def mv(x: Any, y: Any) -> Any:
    return product(MATMUL, x, y, aten.mv.default)


@rule(AST, aten.dot.default)
def dot(x: Any, y: Any) -> Any:
    return product(MATMUL, x, y, aten.dot.default)


@rule(AST, aten.addmm.default)
def addmm(bias: Any, x: Any, y: Any, beta: int = 1, alpha: int = 1) -> Any:
    result = mm(x, y)
    if alpha != 1:
        result = mul(result, alpha)
    if beta != 1:
        bias = bias * int(as_public(beta)) if isinstance(bias, torch.Tensor) else mul(bias, beta)
    return add(result, bias)


@rule(AST, aten.pow.Tensor_Scalar)
def power(x: AST, exponent: int) -> Any:
    if int(exponent) != exponent or exponent < 1:
        raise ValueError(f"Shared integers can be raised to the powers 1, 2, 3, ..., not to {exponent}.")
    result, base, rest = None, x, int(exponent)
    while rest:
        if rest & 1:
            result = base if result is None else mul(result, base)
        rest >>= 1
        if rest:
            base = mul(base, base)
    return result


def _conv(
    transposed: bool, stride: Any, padding: Any, dilation: Any, output_padding: Any, groups: int
) -> Bilinear:
    shape = dict(stride=tuple(stride), padding=tuple(padding), dilation=tuple(dilation), groups=int(groups))
    if transposed:
        return Bilinear.of("conv_transpose", output_padding=tuple(output_padding), **shape)
    return Bilinear.of("conv", **shape)


@rule(AST, aten.convolution.default)
def convolution(
    x: Any,
    weight: Any,
    bias: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    transposed: bool,
    output_padding: Any,
    groups: int,
) -> Any:
    op = _conv(transposed, stride, padding, dilation, output_padding, groups)
    if isinstance(x, AST) and isinstance(weight, AST):
        result = _multiply(x, weight, op)
    elif _is_for_kernels(op, x, weight):
        result = _by_kernel(op, x, weight)
    else:
        rest = (None, stride, padding, dilation, transposed, output_padding, groups)
        result = at_every_holder(aten.convolution.default, (as_public(x), as_public(weight), *rest), {})
    if bias is None:
        return result
    shape = [1, -1] + [1] * (len(result.shape) - 2)
    wide = (
        at_every_holder(aten.view.default, (bias, shape), {}) if isinstance(bias, AST) else bias.view(shape)
    )
    return add(result, wide)


def _conv_of(_bias: Any, *geometry: Any) -> Bilinear:
    stride, padding, dilation, transposed, output_padding, groups = geometry
    return _conv(transposed, stride, padding, dilation, output_padding, groups)


#: Which products of secrets are one kernel, and what gives it from their public parameters.
_KERNELS: dict[Any, Callable[..., Bilinear]] = {
    aten.mul.Tensor: lambda: MUL,
    aten.convolution.default: _conv_of,
    **{getattr(aten, name).default: lambda: MATMUL for name in ("mm", "bmm", "mv", "dot")},
}
