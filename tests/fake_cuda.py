"""Programs on shares that lie on a CUDA device, without one: tensors that have a device and a shape and no values.

Torch's fake tensors refuse what a device would refuse: operands on two devices, values that are read. So what runs here
runs on the device without a copy to the CPU and without waiting for it. Kernels in Triton are stood for by their shapes.

`holders_on_cuda` is for workers on a network, in threads of this process: the CPU stands for the device, with values.
Both refuse the operations on int64 that CUDA has not (`RefusingProducts`).
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_leaves

from syft.mpc import device_methods, encoding, fixed_methods, kernels, precision, randomness
from syft.mpc.protocols import beaver, lookup
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
        patch.setattr(device_methods, "_NOWHERE", None)
        # It compares addresses, which these have not.
        patch.setattr(beaver.MaskedOperand, "is_of", lambda self, share: share._version == self.version)
        mean = fixed_pooling._mean_of
        patch.setattr(fixed_pooling, "_mean_of", lambda total, counts, by: mean(total, counts, by or 4))
        with FakeTensorMode(allow_non_fake_inputs=True) as mode, RefusingProducts(CUDA):
            yield mode


#: Operations that CUDA has for floats and not for int64, and how it says so. By torch's own table of operations
#: (`op_db`: int64 among `dtypes` and not among `dtypesIfCUDA`): see test_network_products.py.
REFUSED = {
    "mm": "addmm_cuda",
    "addmm": "addmm_cuda",
    "bmm": "baddbmm_cuda",
    "baddbmm": "baddbmm_cuda",
    "addbmm": "baddbmm_cuda",
    "_trilinear": "baddbmm_cuda",
    "mv": "addmv_impl_cuda",
    "addmv": "addmv_impl_cuda",
    "dot": "dot",
    "vdot": "vdot",
    "convolution": "slow_conv2d_cuda",
    "_convolution": "slow_conv2d_cuda",
    "avg_pool2d": "avg_pool2d_out_cuda_frame",
    "avg_pool3d": "avg_pool3d_out_frame",
    "max_pool2d_with_indices": "max_pool2d_with_indices_out_cuda_frame",
    "max_pool3d_with_indices": "max_pool3d_with_indices_out_frame",
}


class RefusingProducts(TorchDispatchMode):
    """Inside, tensors of int64 on a device have no products and no pooling, as on CUDA."""

    def __init__(self, device: torch.device) -> None:
        super().__init__()
        self.device = device

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = REFUSED.get(func._overloadpacket.__name__)
        if name is not None:
            given = [t for t in tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor)]
            if any(t.dtype == torch.int64 and t.device == self.device for t in given):
                raise NotImplementedError(f"\"{name}\" not implemented for 'Long'")
        return func(*args, **(kwargs or {}))


def _exact_product(x, y, out=None, add=False):
    with _disable_current_modes():
        made = torch.matmul(x, y)
        if out is None:
            return made
        return out.add_(made) if add else out.copy_(made)


@contextlib.contextmanager
def holders_on_cuda(servers: Iterable[Any]) -> Iterator[list[str]]:
    """What these workers do happens on a device: the CPU, less what CUDA refuses. Lists the products by kernels."""
    here, made, cpu = threading.local(), [], torch.device("cpu")

    def product(x, y, out=None, add=False):
        made.append(f"{tuple(x.shape)} x {tuple(y.shape)}")
        return _exact_product(x, y, out, add)

    def handling(plain):
        def handle(message):
            before, here.is_device = getattr(here, "is_device", False), True
            try:
                with RefusingProducts(cpu):
                    return plain(message)
            finally:
                here.is_device = before

        return handle

    with pytest.MonkeyPatch.context() as patch:
        for module in (kernels, lookup):
            patch.setattr(
                module, "is_on_cuda", lambda x: getattr(here, "is_device", False) and x.device == cpu
            )
        patch.setattr(kernels, "_on_cuda", lambda: SimpleNamespace(matmul=product))
        for server in servers:
            patch.setattr(server, "device", cpu)
            patch.setattr(server, "recv_msg", handling(server.recv_msg))
        yield made


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
