"""The gradient functions that `AutogradTensor` of 2020 was made of: one object per operation, with `.gradient(grad)`.

Nobody inside uses them: torch's own autograd differentiates every chain. They compute the same gradients from the
operands and the gradient of the result, on plain tensors and on chains, and tests compare them with torch.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.autograd.graph import GradientEdge, Node

from syft.core.abstract import AbstractTensor

__all__ = ["Accumulate", "GradFunc", "apply_dim_transformations", "forward_grad", "get_mismatch_dims"]


def forward_grad(tensor: Any) -> Any:
    """What receives the gradient of a tensor: its torch node, `Accumulate` for a leaf, None if it collects none."""
    chain = tensor.chain() if isinstance(tensor, AbstractTensor) else tensor
    if chain is None or not chain.requires_grad:
        return None
    return Accumulate(chain) if chain.grad_fn is None else chain.grad_fn


class GradFunc:
    """The gradient of one operation. `next_functions` receive what `gradient` returns."""

    def __init__(self, *args: Any) -> None:
        tensors = [arg for arg in args if isinstance(arg, (torch.Tensor, AbstractTensor))]
        self.operands = tuple(arg.detach() if isinstance(arg, torch.Tensor) else arg for arg in args)
        self.next_functions = tuple(forward_grad(tensor) for tensor in tensors)

    def gradient(self, grad: Any) -> Any:
        raise NotImplementedError(
            f"{type(self).__name__} has no gradient(). Subclass GradFunc and return one gradient per operand."
        )

    def __call__(self, grad: Any) -> Any:
        return self.gradient(grad)

    def __setattr__(self, name: str, value: Any) -> None:
        # The values are needed, not their history: a gradient is not differentiated again.
        object.__setattr__(self, name, value.detach() if isinstance(value, torch.Tensor) else value)

    def __repr__(self) -> str:
        return f"<{type(self).__name__}>"


class Accumulate:
    """Adds what it is called with to the gradient of a leaf."""

    def __init__(self, tensor: Any) -> None:
        self.tensor = tensor
        self.next_functions: tuple[Any, ...] = ()

    def __call__(self, grad: Any) -> tuple[Any, ...]:
        with torch.no_grad():
            self.tensor.grad = grad if self.tensor.grad is None else self.tensor.grad + grad
        return ()

    def __repr__(self) -> str:
        return "<Accumulate>"


def backwards_grad(grad_fn: Any, in_grad: Any = None) -> None:
    """Send a gradient back from a gradient function to the leaves."""
    if isinstance(grad_fn, Node):
        torch.autograd.backward([GradientEdge(grad_fn, 0)], None if in_grad is None else [in_grad])
        return
    gradients = grad_fn(in_grad)
    if not isinstance(gradients, tuple):
        gradients = (gradients,)
    for function, gradient in zip(grad_fn.next_functions, gradients, strict=False):
        if function is not None and gradient is not None:
            backwards_grad(function, gradient)


# -- operands that were expanded to a common shape --------------------------------------------------------


def get_mismatch_dims(
    x_shape: Any,
    y_shape: Any,
    x_squash_dims: list[int],
    x_squash_keep_dims: list[int],
    y_squash_keep_dims: list[int],
    current_dim: int = 0,
) -> tuple[list[int], list[int], list[int]]:
    """Where the shape x, the longer one, and the shape y differ; the lists are filled and returned.

    x_squash_dims       dimensions of x that y does not have
    x_squash_keep_dims  dimensions in which y has one element and x has more
    y_squash_keep_dims  dimensions in which x has one element and y has more
    """
    missing = len(x_shape) - len(y_shape)
    for dim in range(current_dim, len(x_shape)):
        if dim < missing:
            x_squash_dims.append(dim)
        elif x_shape[dim] != y_shape[dim - missing]:
            (x_squash_keep_dims if y_shape[dim - missing] == 1 else y_squash_keep_dims).append(dim)
    return x_squash_dims, x_squash_keep_dims, y_squash_keep_dims


def apply_dim_transformations(
    grad_self: Any, grad_other: Any, self_shape: Any, other_shape: Any
) -> tuple[Any, Any]:
    """The gradients of two operands, summed over the dimensions in which the operands were expanded."""
    return _summed_to(grad_self, self_shape), _summed_to(grad_other, other_shape)


def _summed_to(grad: Any, shape: Any) -> Any:
    if tuple(grad.shape) == tuple(shape):
        return grad
    missing, kept, _ = get_mismatch_dims(tuple(grad.shape), tuple(shape), [], [], [])
    if kept:
        grad = grad.sum(dim=kept, keepdim=True)
    return grad.sum(dim=missing) if missing else grad


def _shape(value: Any) -> tuple[int, ...]:
    return tuple(getattr(value, "shape", ()))


def _both(grad_self: Any, grad_other: Any, self_: Any, other: Any) -> tuple[Any, Any]:
    """The gradients of two operands; a number has none."""
    if not isinstance(other, (torch.Tensor, AbstractTensor)):
        return _summed_to(grad_self, _shape(self_)), None
    return apply_dim_transformations(grad_self, grad_other, _shape(self_), _shape(other))


# -- the functions ----------------------------------------------------------------------------------------


class _OfTwo(GradFunc):
    def __init__(self, self_: Any, other: Any) -> None:
        super().__init__(self_, other)
        self.self_, self.other = self_, other


class _OfOne(GradFunc):
    def __init__(self, self_: Any) -> None:
        super().__init__(self_)
        self.self_ = self_


class AddBackward(_OfTwo):
    def gradient(self, grad: Any) -> Any:
        return _both(grad, grad, self.self_, self.other)


class SubBackward(_OfTwo):
    def gradient(self, grad: Any) -> Any:
        return _both(grad, grad * -1, self.self_, self.other)


class MulBackward(_OfTwo):
    def gradient(self, grad: Any) -> Any:
        return _both(grad * self.other, grad * self.self_, self.self_, self.other)


class DivBackward(_OfTwo):
    def gradient(self, grad: Any) -> Any:
        of_self = grad / self.other
        return _both(of_self, of_self * self.self_ / self.other * -1, self.self_, self.other)


class MatmulBackward(_OfTwo):
    def gradient(self, grad: Any) -> Any:
        left, right = self.self_, self.other
        rows = left.reshape(1, -1) if left.dim() == 1 else left
        columns = right.reshape(-1, 1) if right.dim() == 1 else right
        if left.dim() == 1:
            grad = grad.unsqueeze(-1 if right.dim() == 1 else -2)
        if right.dim() == 1:
            grad = grad.unsqueeze(-1)
        of_left, of_right = grad.matmul(columns.transpose(-1, -2)), rows.transpose(-1, -2).matmul(grad)
        of_left, of_right = _summed_to(of_left, rows.shape), _summed_to(of_right, columns.shape)
        return of_left.reshape(left.shape), of_right.reshape(right.shape)


class PowBackward(GradFunc):
    def __init__(self, self_: Any, power: Any) -> None:
        super().__init__(self_, power)
        self.self_, self.power = self_, power

    def gradient(self, grad: Any) -> Any:
        if isinstance(self.power, (int, float)) and self.power == 0:
            return (grad * 0,)
        return (grad * (self.self_ ** (self.power - 1)) * self.power,)


class SumBackward(_OfOne):
    def gradient(self, grad: Any) -> Any:
        return (torch.ones_like(self.self_) * grad,)


class TBackward(_OfOne):
    def gradient(self, grad: Any) -> Any:
        return (grad.t(),)


class AsinBackward(_OfOne):
    def gradient(self, grad: Any) -> Any:
        return (grad * (1 - self.self_ * self.self_).rsqrt(),)


class SigmoidBackward(_OfOne):
    def gradient(self, grad: Any) -> Any:
        value = self.self_.sigmoid()
        return (grad * value * (1 - value),)


class SinBackward(_OfOne):
    def gradient(self, grad: Any) -> Any:
        return (grad * self.self_.cos(),)


class SinhBackward(_OfOne):
    def gradient(self, grad: Any) -> Any:
        return (grad * self.self_.cosh(),)


class SqrtBackward(_OfOne):
    def gradient(self, grad: Any) -> Any:
        return (grad / (self.self_.sqrt() * 2),)


class TanhBackward(_OfOne):
    def gradient(self, grad: Any) -> Any:
        value = self.self_.tanh()
        return (grad * (1 - value * value),)


class ReluBackward(_OfOne):
    def gradient(self, grad: Any) -> Any:
        return (grad * (self.self_ > 0),)
