"""Programs on shares that lie on a CUDA device, without one: tensors that have a device and a shape and no values.

Torch's fake tensors refuse what a device would refuse: operands on two devices, values that are read. So what runs here
runs on the device without a copy to the CPU and without waiting for it. Kernels in Triton are stood for by their shapes.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from types import SimpleNamespace

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from syft.mpc import encoding, fixed_methods, kernels, precision, randomness
from syft.mpc.protocols import beaver
from syft.mpc.rules import fixed_kinds, fixed_pooling, shared_products

CUDA = torch.device("meta")
"""Stands for a CUDA device: a torch without CUDA has no fake tensors there that can be indexed."""


def _product(x, y, out=None, add=False):
    assert x.device == y.device == CUDA
    made = torch.matmul(x.to(torch.float64), y.to(torch.float64))
    return out.copy_(made) if out is not None else made.to(torch.int64)


def _encoded(tensor, scale):
    return (tensor.detach().to(torch.float64) * scale).round().to(torch.int64)


@contextlib.contextmanager
def fake_cuda() -> Iterator[FakeTensorMode]:
    """Inside, `torch.empty(..., device=CUDA)` gives tensors that behave like those on a device."""
    with pytest.MonkeyPatch.context() as patch, torch.no_grad():
        patch.setattr(
            randomness.Stream,
            "wide_words",
            lambda self, shape, device: torch.empty(tuple(shape), dtype=torch.int64, device=device),
        )
        for module in (kernels, shared_products):
            patch.setattr(
                module,
                "is_on_cuda",
                lambda x: x.device == CUDA and getattr(x, "dtype", torch.int64) == torch.int64,
            )
        patch.setattr(kernels, "_on_cuda", lambda: SimpleNamespace(matmul=_product))
        for module in (encoding, precision, fixed_kinds, fixed_methods):
            patch.setattr(module, "encode_integers", _encoded)
        # Public values may be read; here they have none.
        finite = fixed_kinds.finite
        patch.setattr(
            fixed_kinds, "finite", lambda v, like: v if isinstance(v, torch.Tensor) else finite(v, like)
        )
        patch.setattr(fixed_kinds, "_tensor_factor", lambda value: (_encoded(value, 1024), 1024))
        # It compares addresses, which these have not.
        patch.setattr(beaver.MaskedOperand, "is_of", lambda self, share: share._version == self.version)
        mean = fixed_pooling._mean_of
        patch.setattr(fixed_pooling, "_mean_of", lambda total, counts, by: mean(total, counts, by or 4))
        with FakeTensorMode(allow_non_fake_inputs=True) as mode:
            yield mode


class CopyToCpuError(AssertionError):
    """Something that lay on the device was brought to the CPU."""


class RefusingCopies(TorchDispatchMode):
    """Inside, what lies on the device stays there."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        made = func(*args, **(kwargs or {}))
        if isinstance(made, torch.Tensor) and made.device.type == "cpu":
            given = [t for t in tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor)]
            if any(t.device == CUDA for t in given):
                raise CopyToCpuError(f"{func} made a tensor on the CPU of one on the device")
        return made
