"""The rules of fixed precision ask of their integers only what `fixed_ring` says, wherever these are."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn import functional as F

from syft.core.abstract import AbstractTensor
from syft.core.chain import new_wrapper
from syft.core.hook_args import default_register_tensor
from syft.mpc.fixed_methods import fix_precision, float_precision
from syft.mpc.precision import FixedPrecisionTensor
from syft.mpc.rules.fixed_structure import STRUCTURAL
from syft.tensors.pointer import PointerTensor

PROMISED = STRUCTURAL | set(
    "add sub neg mul mm bmm dot mv convolution sum cumsum zeros_like new_zeros clone copy_".split()
)


class Opaque(AbstractTensor):
    """Integers as shares present them: linear and bilinear operations, a truncation, signs."""

    @classmethod
    def interpret(cls, func: Any, args: Any, kwargs: Any) -> Any:
        name = func._schema.name.split("::")[1]
        if name not in PROMISED:
            raise AssertionError(f"{func} was asked of secret integers")
        if any(isinstance(a, torch.Tensor) and a.is_floating_point() for a in args):
            raise AssertionError(f"{func} met a float")
        return cls.pass_on(func, args, kwargs)

    def truncate(self, divisor: int) -> Any:
        down = torch.div(self.child, divisor, rounding_mode="floor")
        inexact = (down * divisor != self.child).long()
        return self.like(down + inexact * torch.randint(0, 2, down.shape))

    def less_than_zero(self) -> Any:
        return self.like((self.child < 0).long())


default_register_tensor(Opaque)


def opaque(tensor: torch.Tensor) -> Any:
    node = FixedPrecisionTensor.encode(tensor.detach(), 2, 16)
    return new_wrapper(node.like(Opaque().on(node.child, wrap=False))).requires_grad_(tensor.requires_grad)


def seen(chain: Any) -> torch.Tensor:
    node = chain.child
    assert isinstance(node.child, Opaque)
    return node.like(node.child.child).decode()  # type: ignore[no-any-return, attr-defined]


FUNCTIONS: dict[str, Any] = {
    "arithmetic": lambda x: (x + 1.5) * x - 2 * x / 3 + 0.25 * x**3,
    "quotient": lambda x: x / (x * x + 1),
    "matmul": lambda x: x @ x.t() @ x,
    "einsum": lambda x: torch.einsum("ij,kj->ik", x, x),
    "relu": torch.relu,
    "leaky_relu": lambda x: F.leaky_relu(x, 0.1),
    "clamp": lambda x: x.clamp(-0.5, 0.5),
    "abs": torch.abs,
    "where": lambda x: torch.where(x > 0, x, x * x),
    "public mask": lambda x: x.masked_fill(torch.eye(4, dtype=torch.bool), 2.0),
    "max": lambda x: x.max(1)[0] + x.amin(0),
    "sort": lambda x: x.sort(1)[0],
    "topk": lambda x: x.topk(2, 1)[0],
    "exp": torch.exp,
    "log": lambda x: (x.abs() + 0.5).log(),
    "sqrt": lambda x: (x.abs() + 0.5).sqrt(),
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "gelu": F.gelu,
    "softmax": lambda x: x.softmax(1),
    "cross_entropy": lambda x: F.cross_entropy(x, torch.tensor([0, 1, 2, 3])),
    "mse": lambda x: F.mse_loss(x, x.detach() * 0.5),
    "std": lambda x: x.std(1),
    "layer_norm": lambda x: F.layer_norm(x, (4,)),
    "conv": lambda x: F.conv2d(x.view(1, 2, 2, 4), x.view(2, 2, 2, 2), padding=1),
    "max_pool": lambda x: F.max_pool2d(x.view(1, 1, 4, 4), 2, 1, 1),
    "avg_pool": lambda x: F.avg_pool2d(x.view(1, 1, 4, 4), 2, 1, 1),
    "adaptive": lambda x: F.adaptive_avg_pool2d(x.view(1, 1, 4, 4), 3),
    "embedding": lambda x: F.embedding(torch.tensor([0, 3, 3]), x),
    "cumsum": lambda x: x.cumsum(1),
    "floor": torch.floor,
    "inverse": lambda x: torch.inverse(x + 4 * torch.eye(4)),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_values_and_gradients_without_looking_at_the_integers(name: str) -> None:
    torch.manual_seed(3)
    x = torch.randn(4, 4, requires_grad=True)
    chain = opaque(x)
    want, got = FUNCTIONS[name](x), FUNCTIONS[name](chain)
    torch.testing.assert_close(seen(got), want.detach(), atol=2e-3, rtol=2e-3)
    want.sum().backward()
    got.sum().backward()
    torch.testing.assert_close(seen(chain.grad), x.grad, atol=5e-3, rtol=5e-3)


def test_dropout_spends_no_product_of_secrets() -> None:
    x = torch.ones(100)
    torch.manual_seed(0)
    want = F.dropout(x, 0.25)
    torch.manual_seed(0)
    torch.testing.assert_close(seen(F.dropout(opaque(x), 0.25)), want, atol=1e-4, rtol=0)


def test_values_that_are_elsewhere_are_not_read() -> None:
    chain = opaque(torch.ones(2))
    with pytest.raises(RuntimeError, match="needs the value"):
        bool(chain.sum() > 0)
    with pytest.raises(ValueError, match="not here"):
        float_precision(chain)


@pytest.mark.parametrize("is_restricted", [False, True])
def test_a_pointer_is_encoded_computed_on_and_decoded_where_it_is(bob: Any, is_restricted: bool) -> None:
    x, y = torch.randn(3, 4), torch.randn(4, 2)
    there = x.send(bob), y.send(bob)
    if is_restricted:  # the node stays here, above the integers
        for pointer in there:
            bob.restrict(pointer.id_at_location, frozenset({"ann"}))
    chain, other = (fix_precision(pointer, 16, 2) for pointer in there)
    if is_restricted:
        assert isinstance(chain.child.child, PointerTensor) and chain.child.child.dtype == torch.int64
    else:
        assert isinstance(bob._objects[chain.id_at_location].child, FixedPrecisionTensor)
    for function in (lambda a, b: a @ b, lambda a, b: a.softmax(1), lambda a, b: torch.relu(a) * 0.3):
        fetched = function(chain, other).get(user="ann")
        torch.testing.assert_close(float_precision(fetched), function(x, y), atol=1e-3, rtol=1e-3)
    torch.testing.assert_close(float_precision(chain).get(user="ann"), x, atol=1e-4, rtol=0)
