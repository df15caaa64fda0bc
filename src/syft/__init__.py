"""resyft: private machine learning in ordinary PyTorch, imported as `syft`.

import torch, syft as sy
hook = sy.TorchHook(torch)
bob = sy.VirtualWorker(hook, id="bob")
x = torch.tensor([1.0, 2.0]).send(bob)
(x + x).get()
"""

import importlib as _importlib
from typing import Any as _Any

from torch import Tensor as Variable

from syft import exceptions, messaging, serde
from syft.core import hook_args
from syft.core import left_out as _left_out
from syft.core.abstract import AbstractTensor
from syft.core.chain import Wrapper
from syft.core.ids import ID_PROVIDER
from syft.core.overload import overloaded
from syft.core.session import session as _session
from syft.dp import release as _release  # adds releases and budgets to workers
from syft.dp import release_training as _release_training  # adds private training
from syft.execution.func2plan import func2plan, method2plan
from syft.execution.placeholder import PlaceHolder
from syft.execution.plan import Plan
from syft.execution.pointer_plan import PointerPlan
from syft.execution.pointer_protocol import PointerProtocol
from syft.execution.protocol import Protocol
from syft.execution.role_protocol import func2protocol
from syft.execution.state import State
from syft.federated.dataloader import FederatedDataLoader
from syft.federated.dataset import BaseDataset, FederatedDataset
from syft.federated.federated_client import FederatedClient
from syft.federated.pointer_dataset import PointerDataset
from syft.federated.train_config import TrainConfig
from syft.grid import PrivateGridNetwork
from syft.hooking.attributes import TorchAttributes
from syft.hooking.framework_hook import FrameworkHook
from syft.hooking.torch_hook import TorchHook
from syft.mpc import plan_cost as _plan_cost  # tells plans what they cost on shares
from syft.mpc.crt_precision import CRTPrecisionTensor
from syft.mpc.large_precision import LargePrecisionTensor
from syft.mpc.paillier import PaillierTensor, keygen
from syft.mpc.precision import FixedPrecisionTensor
from syft.mpc.sharing import AdditiveSharingTensor
from syft.sandbox import create_sandbox
from syft.tensors.autograd import AutogradTensor
from syft.tensors.local import LocalTensor
from syft.tensors.logging import LoggingTensor
from syft.tensors.made_at import at
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
from syft.version import __version__ as __version__
from syft.workers.base import BaseWorker
from syft.workers.network.client_worker import NetworkClientWorker, connect
from syft.workers.network.server_worker import NetworkServerWorker
from syft.workers.virtual import VirtualWorker
from syft.workers.websocket_client import WebsocketClientWorker
from syft.workers.websocket_server import WebsocketServerWorker

_left_out.install()
# `syft.messaging.plan` and `.protocol` of 2020 are alias files like all others in `generic`, and lie there.
messaging.__path__.append(f"{__path__[0]}/generic/messaging")

_FROM_SESSION = {
    "local_worker": "local_worker",
    "hook": "hook",
    "torch": "framework",
    "framework": "framework",
}


#: Modules that are imported when somebody names them.
_ON_DEMAND = frozenset({"codes", "dependency_check", "frameworks", "generic"})


def __getattr__(name: str) -> _Any:
    """`sy.local_worker`, `sy.hook`, `sy.torch`, `sy.framework` (set by TorchHook), and what is imported on demand."""
    if name in _FROM_SESSION:
        return getattr(_session, _FROM_SESSION[name])
    if name in _ON_DEMAND:
        return _importlib.import_module(f"syft.{name}")
    if name == "pool":
        return _importlib.import_module("syft.core.thread_pool").pool
    if name == "logger":
        return _importlib.import_module("logging").getLogger("syft")
    instead = _left_out.what_instead(f"syft.{name}")
    raise AttributeError(f"module 'syft' has no attribute {name!r}" + (f". {instead}" if instead else ""))


__all__ = [
    "ID_PROVIDER",
    "AbstractTensor",
    "AdditiveSharingTensor",
    "AutogradTensor",
    "BaseDataset",
    "BaseWorker",
    "CRTPrecisionTensor",
    "CallablePointer",
    "FederatedClient",
    "FederatedDataLoader",
    "FederatedDataset",
    "FixedPrecisionTensor",
    "FrameworkHook",
    "LargePrecisionTensor",
    "LocalTensor",
    "LoggingTensor",
    "MultiPointerTensor",
    "NetworkClientWorker",
    "NetworkServerWorker",
    "NumpyTensor",
    "ObjectPointer",
    "ObjectWrapper",
    "PaillierTensor",
    "PlaceHolder",
    "Plan",
    "PlusIsMinusTensor",
    "PointerDataset",
    "PointerPlan",
    "PointerProtocol",
    "PointerTensor",
    "PolynomialTensor",
    "PrivateGridNetwork",
    "PrivateTensor",
    "Protocol",
    "State",
    "String",
    "StringPointer",
    "TorchAttributes",
    "TorchHook",
    "TorchTensor",
    "TrainConfig",
    "Variable",
    "VirtualWorker",
    "WebsocketClientWorker",
    "WebsocketServerWorker",
    "Wrapper",
    "at",
    "combine_pointers",
    "connect",
    "create_sandbox",
    "exceptions",
    "func2plan",
    "func2protocol",
    "hook_args",
    "keygen",
    "method2plan",
    "overloaded",
    "serde",
]
