"""resyft: private machine learning in ordinary PyTorch, imported as `syft`.

import torch, syft as sy
hook = sy.TorchHook(torch)
bob = sy.VirtualWorker(hook, id="bob")
x = torch.tensor([1.0, 2.0]).send(bob)
(x + x).get()
"""

from typing import Any as _Any

from torch import Tensor as Variable

from syft import exceptions, serde
from syft.core import hook_args
from syft.core.abstract import AbstractTensor
from syft.core.chain import Wrapper
from syft.core.ids import ID_PROVIDER
from syft.core.overload import overloaded
from syft.core.session import session as _session
from syft.grid import PrivateGridNetwork
from syft.hooking.attributes import TorchAttributes
from syft.hooking.framework_hook import FrameworkHook
from syft.hooking.torch_hook import TorchHook
from syft.mpc.precision import FixedPrecisionTensor
from syft.mpc.sharing import AdditiveSharingTensor
from syft.sandbox import create_sandbox
from syft.tensors.autograd import AutogradTensor
from syft.tensors.local import LocalTensor
from syft.tensors.logging import LoggingTensor
from syft.tensors.multi_pointer import MultiPointerTensor, combine_pointers
from syft.tensors.native import TorchTensor
from syft.tensors.numpy_array import NumpyTensor
from syft.tensors.object_pointer import ObjectPointer
from syft.tensors.object_wrapper import CallablePointer, ObjectWrapper
from syft.tensors.plusisminus import PlusIsMinusTensor
from syft.tensors.pointer import PointerTensor
from syft.tensors.polynomial import PolynomialTensor
from syft.tensors.private import PrivateTensor
from syft.tensors.string import String, StringPointer
from syft.workers.base import BaseWorker
from syft.workers.virtual import VirtualWorker

__version__ = "0.1.0"

_FROM_SESSION = {
    "local_worker": "local_worker",
    "hook": "hook",
    "torch": "framework",
    "framework": "framework",
}


def __getattr__(name: str) -> _Any:
    """`sy.local_worker`, `sy.hook`, `sy.torch` and `sy.framework`: set by TorchHook."""
    try:
        return getattr(_session, _FROM_SESSION[name])
    except KeyError:
        raise AttributeError(f"module 'syft' has no attribute {name!r}") from None


__all__ = [
    "ID_PROVIDER",
    "AbstractTensor",
    "AdditiveSharingTensor",
    "AutogradTensor",
    "BaseWorker",
    "CallablePointer",
    "FixedPrecisionTensor",
    "FrameworkHook",
    "LocalTensor",
    "LoggingTensor",
    "MultiPointerTensor",
    "NumpyTensor",
    "ObjectPointer",
    "ObjectWrapper",
    "PlusIsMinusTensor",
    "PointerTensor",
    "PolynomialTensor",
    "PrivateGridNetwork",
    "PrivateTensor",
    "String",
    "StringPointer",
    "TorchAttributes",
    "TorchHook",
    "TorchTensor",
    "Variable",
    "VirtualWorker",
    "Wrapper",
    "combine_pointers",
    "create_sandbox",
    "exceptions",
    "hook_args",
    "overloaded",
    "serde",
]
