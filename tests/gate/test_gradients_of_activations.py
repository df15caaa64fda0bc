"""Activations on a worker that denies by default: values and derivatives are those of torch, bit for bit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import syft as sy
from core.test_shapes import LAYOUTS
from syft.core.chain import Wrapper
from syft.policy.caller import speaking_for
from syft.policy.owner_policy import OwnerPolicy, read_rules

RULES = read_rules('[limits]\nmax_bytes = "64 MB"\nmax_objects = 2000\n')

ACTIVATIONS: dict[str, Callable[[Any], Any]] = {
    "gelu": F.gelu,
    "gelu, tanh": lambda x: F.gelu(x, approximate="tanh"),
    "gelu, sigmoid": lambda x: x * torch.sigmoid(1.702 * x),
    "gelu, written out": lambda x: 0.5 * x * (1 + torch.tanh(0.797 * (x + 0.044715 * torch.pow(x, 3)))),
    "silu": F.silu,
    "silu, in place": lambda x: F.silu(x * 1, inplace=True),
    "mish": F.mish,
    "softplus": F.softplus,
    "softplus, steeper": lambda x: F.softplus(x, beta=2, threshold=3),
    "elu": F.elu,
    "elu, alpha": lambda x: F.elu(x, alpha=1.3),
    "celu": F.celu,
    "selu": F.selu,
    "relu": F.relu,
    "relu6": F.relu6,
    "leaky_relu": F.leaky_relu,
    "prelu": lambda x: F.prelu(x, x.new_full((1,), 0.25)),
    "hardswish": F.hardswish,
    "hardsigmoid": F.hardsigmoid,
    "hardtanh": F.hardtanh,
    "hardshrink": F.hardshrink,
    "softshrink": F.softshrink,
    "softsign": F.softsign,
    "tanhshrink": F.tanhshrink,
    "threshold": lambda x: F.threshold(x, 0.1, 2.0),
    "logsigmoid": F.logsigmoid,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "erf": torch.erf,
    "logit": lambda x: torch.logit(torch.sigmoid(x), eps=1e-3),
    "softmax": lambda x: F.softmax(x, 1),
    "log_softmax": lambda x: F.log_softmax(x, -1),
    "glu": lambda x: F.glu(x, 1),
}

#: Ways to the values that an activation is given, in the graph: part of a wider tensor, turned, the same for all.
PATHS: dict[str, Callable[[Any], Any]] = {
    "as it is": lambda x: x,
    "half of it": lambda x: x.chunk(2, dim=1)[1],
    "half of it, turned": lambda x: x.transpose(1, 2).chunk(2, dim=-1)[0].transpose(1, 2),
    "its beginning": lambda x: x[..., :-3],
    "every second": lambda x: x[:, :, ::2],
    "repeated": lambda x: x[:, :, :1].expand(-1, -1, 7),
}


@pytest.fixture(scope="module")
def denying(hook: Any) -> Any:
    return sy.VirtualWorker(hook, id="activations", auto_add=False, policy=OwnerPolicy(RULES))


def derivatives(activation: Any, path: Any, after: Any, leaf: Any) -> list[Any]:
    """Values, gradients, and gradients of these."""
    leaf.requires_grad_()
    made = activation(path(leaf))
    (first,) = torch.autograd.grad((after(made) ** 3).sum(), leaf, create_graph=True)
    found = [made, first]
    if first.requires_grad and activation is not F.hardsigmoid:  # of which torch has no second derivative
        found += torch.autograd.grad((first * first).sum(), leaf, allow_unused=True)
    values = [None if one is None else one.detach() for one in found]
    return [value.copy().get() if type(value) is Wrapper else value for value in values]


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_gradients_of_activations_are_those_of_torch(name: str, path: str, denying: Any) -> None:
    torch.manual_seed(4)
    start = torch.randn(2, 32, 19) * 3
    start[0, 0, :3] = torch.tensor([0.0, -3.0, 3.0])
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        for layout in (torch.Tensor.clone, *LAYOUTS.values()):
            values = layout(start.to(dtype))
            for after in (lambda t: t, lambda t: t.transpose(1, 2).contiguous()):
                here = derivatives(ACTIVATIONS[name], PATHS[path], after, values.clone())
                with speaking_for("eve"):
                    leaf = values.clone().send(denying)  # type: ignore[attr-defined]
                    there = derivatives(ACTIVATIONS[name], PATHS[path], after, leaf)
                assert len(here) == len(there)
                for order, (one, other) in enumerate(zip(here, there, strict=True)):
                    assert (one is None) is (other is None)
                    if one is not None:
                        # NB: torch computes some second derivatives in another order for subclasses of tensors.
                        off = 0 if order < 2 else 1e-6 if dtype is not torch.bfloat16 else 1e-2
                        torch.testing.assert_close(other, one, rtol=off, atol=100 * off, equal_nan=True)
