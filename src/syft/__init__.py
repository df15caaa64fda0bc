"""resyft: private machine learning in ordinary PyTorch, imported as `syft`.

import torch, syft as sy
hook = sy.TorchHook(torch)
bob = sy.VirtualWorker(hook, id="bob")
x = torch.tensor([1.0, 2.0]).send(bob)
(x + x).get()
"""

import importlib as _importlib
from typing import TYPE_CHECKING as _TYPE_CHECKING
from typing import Any as _Any

from syft import exceptions as _exceptions
from syft import messaging as _messaging
from syft.core import left_out as _left_out
from syft.core import rooms as _rooms
from syft.core.session import session as _session
from syft.version import __version__ as __version__

if _TYPE_CHECKING:  # what is below is imported when it is first named: see `__getattr__`
    from torch import Tensor as Variable

    from syft import exceptions, serde
    from syft.core import hook_args
    from syft.core.abstract import AbstractTensor
    from syft.core.chain import Wrapper
    from syft.core.ids import ID_PROVIDER
    from syft.core.overload import overloaded
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
    from syft.workers.base import BaseWorker
    from syft.workers.network.client_worker import NetworkClientWorker, connect
    from syft.workers.network.server_worker import NetworkServerWorker
    from syft.workers.virtual import VirtualWorker
    from syft.workers.websocket_client import WebsocketClientWorker
    from syft.workers.websocket_server import WebsocketServerWorker

#: Public name -> its module. These need nothing but pointers and workers of this process.
_FIRST = {
    "AbstractTensor": "syft.core.abstract",
    "Wrapper": "syft.core.chain",
    "ID_PROVIDER": "syft.core.ids",
    "overloaded": "syft.core.overload",
    "TorchAttributes": "syft.hooking.attributes",
    "FrameworkHook": "syft.hooking.framework_hook",
    "TorchHook": "syft.hooking.torch_hook",
    "AutogradTensor": "syft.tensors.autograd",
    "LocalTensor": "syft.tensors.local",
    "LoggingTensor": "syft.tensors.logging",
    "at": "syft.tensors.made_at",
    "MultiPointerTensor": "syft.tensors.multi_pointer",
    "combine_pointers": "syft.tensors.multi_pointer",
    "TorchTensor": "syft.tensors.native",
    "NumpyTensor": "syft.tensors.numpy_array",
    "ObjectPointer": "syft.tensors.object_pointer",
    "CallablePointer": "syft.tensors.object_wrapper",
    "ObjectWrapper": "syft.tensors.object_wrapper",
    "PlusIsMinusTensor": "syft.tensors.plusisminus",
    "PointerTensor": "syft.tensors.pointer",
    "PolynomialTensor": "syft.tensors.polynomial",
    "PrivateTensor": "syft.tensors.private",
    "String": "syft.tensors.string",
    "StringPointer": "syft.tensors.string",
    "BaseWorker": "syft.workers.base",
    "VirtualWorker": "syft.workers.virtual",
}

#: Public name -> its module. These need the room of plans, and what it stands on.
_PLANS = {
    "func2plan": "syft.execution.func2plan",
    "method2plan": "syft.execution.func2plan",
    "PlaceHolder": "syft.execution.placeholder",
    "Plan": "syft.execution.plan",
    "PointerPlan": "syft.execution.pointer_plan",
    "State": "syft.execution.state",
}

#: Public name -> its module. The first of them imports all rooms: see `syft.core.rooms`.
_REST = {
    "PointerProtocol": "syft.execution.pointer_protocol",
    "Protocol": "syft.execution.protocol",
    "func2protocol": "syft.execution.role_protocol",
    "FederatedDataLoader": "syft.federated.dataloader",
    "BaseDataset": "syft.federated.dataset",
    "FederatedDataset": "syft.federated.dataset",
    "FederatedClient": "syft.federated.federated_client",
    "PointerDataset": "syft.federated.pointer_dataset",
    "TrainConfig": "syft.federated.train_config",
    "PrivateGridNetwork": "syft.grid",
    "CRTPrecisionTensor": "syft.mpc.crt_precision",
    "LargePrecisionTensor": "syft.mpc.large_precision",
    "PaillierTensor": "syft.mpc.paillier",
    "keygen": "syft.mpc.paillier",
    "FixedPrecisionTensor": "syft.mpc.precision",
    "AdditiveSharingTensor": "syft.mpc.sharing",
    "create_sandbox": "syft.sandbox",
    "NetworkClientWorker": "syft.workers.network.client_worker",
    "connect": "syft.workers.network.client_worker",
    "NetworkServerWorker": "syft.workers.network.server_worker",
    "WebsocketClientWorker": "syft.workers.websocket_client",
    "WebsocketServerWorker": "syft.workers.websocket_server",
}

#: Rooms that fill tables of lower ones, and are named by nobody else.
_FILLING = (
    "syft.mpc.ahead",
    "syft.mpc.network.handlers",
    "syft.mpc.methods",
    "syft.mpc.plan_cost",
    "syft.dp.release",
    "syft.dp.release_training",
    "syft.dp.client_noise",
)

#: Modules by their own names: `sy.serde`, `sy.workers.virtual`.
_MODULES = frozenset(
    "codes core dependency_check dp exceptions execution federated frameworks generic grid hooking identity messaging "
    "mpc operations policy sandbox serde tensors transport version workers".split()
)

_FROM_SESSION = {
    "local_worker": "local_worker",
    "hook": "hook",
    "torch": "framework",
    "framework": "framework",
}

_left_out.install()
# `syft.messaging.plan` and `.protocol` of 2020 are alias files like all others in `generic`, and lie there.
_messaging.__path__.append(f"{__path__[0]}/generic/messaging")


def _load_rest() -> None:
    for module in dict.fromkeys((*_PLANS.values(), *_REST.values(), *_FILLING)):
        _importlib.import_module(module)


def _hook_torch() -> _Any:
    return __getattr__("TorchHook")(_importlib.import_module("torch"), verbose=False)


_session.hook_maker = _hook_torch

if not _rooms.REST:
    _rooms.REST.append(_load_rest)
    _exceptions.LOAD_ROOMS.append(_rooms.load_rest)


def __getattr__(name: str) -> _Any:
    """A public name, imported when it is first asked for; `sy.local_worker`, `sy.hook`, `sy.torch` (set by TorchHook)."""
    if name in _FROM_SESSION:
        return getattr(_importlib.import_module("syft.core.session").session, _FROM_SESSION[name])
    module = _FIRST.get(name) or _PLANS.get(name) or _REST.get(name)
    if module is not None:
        if name in _REST:
            _rooms.load_rest()
        found = getattr(_importlib.import_module(module), name)
        globals()[name] = found
        return found
    if name == "hook_args":
        return _importlib.import_module("syft.core.hook_args")
    if name in _MODULES:
        return _importlib.import_module(f"syft.{name}")
    if name == "Variable":
        return _importlib.import_module("torch").Tensor
    if name == "pool":
        return _importlib.import_module("syft.core.thread_pool").pool
    if name == "logger":
        return _importlib.import_module("logging").getLogger("syft")
    instead = _left_out.what_instead(f"syft.{name}")
    raise AttributeError(f"module 'syft' has no attribute {name!r}" + (f". {instead}" if instead else ""))


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_MODULES})


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
