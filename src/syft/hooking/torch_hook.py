"""`TorchHook`: adds the names of this library to torch. Its methods are the steps, in order."""

from __future__ import annotations

import inspect
import logging
import warnings
from types import ModuleType
from typing import Any

import torch
from torch.jit import _builtins

from syft.core import registering
from syft.core.abstract import AbstractTensor
from syft.core.identity import identity_of, known_identity
from syft.core.public_names import IN_PLACE_OPERATORS, OPERATORS, REFLECTED_OPERATORS, function_named
from syft.core.session import session
from syft.hooking import modules, tracebacks
from syft.hooking.attributes import TorchAttributes
from syft.hooking.framework_hook import FrameworkHook
from syft.hooking.optimizers import follow_parameters
from syft.hooking.secrets import ENCRYPTION, SECRETS, AddedLater, add_encryption, add_federate, add_secrets
from syft.tensors.native import TorchTensor
from syft.tensors.private import PrivateTensor
from syft.workers.base import BaseWorker
from syft.workers.virtual import VirtualWorker

logger = logging.getLogger(__name__)

#: The releases of torch that the tests ran with: the oldest and the newest, without the last number.
TESTED_TORCH = ((2, 11), (2, 13))


def warn_if_untested(version: str) -> None:
    """One warning for a torch that is newer than every tested one."""
    numbers = tuple(int(part) for part in version.split("+")[0].split(".")[:2] if part.isdigit())
    if numbers > TESTED_TORCH[1]:
        newest = ".".join(map(str, TESTED_TORCH[1]))
        warnings.warn(
            f"torch {version} is newer than the newest release that resyft was tested with, {newest}. It will probably "
            f"work. If an operation fails that should not, try again with: pip install 'torch=={newest}.*'",
            stacklevel=3,
        )


class TorchHook(FrameworkHook):
    """The first thing a program makes: `hook = syft.TorchHook(torch)`.

    It adds methods such as `send`, `get` and `tag` to tensors, models and optimizers and names the local
    worker. Nothing that plain torch code calls is replaced, but for `torch.tensor`, which takes `owner` and
    `id` as well, and the printing of tensors, which shows tags. Hooking twice changes nothing.

    local_worker  the worker of this machine; a VirtualWorker "me" if left out
    is_client     whether that worker belongs to an end user, whose objects are not registered
    verbose       kept for the worker and the caller to read
    queue_size    accepted for old programs; messages are not queued here
    """

    def __init__(
        self,
        torch: ModuleType = torch,
        local_worker: BaseWorker | None = None,
        is_client: bool = True,
        verbose: bool = True,
        queue_size: int = 0,
    ) -> None:
        self.torch = self.framework = torch
        self.verbose = verbose
        self.queue_size = queue_size
        self.exclude = list(TorchAttributes.exclude)
        self.to_auto_overload: dict[type, list[str]] = {}
        if hasattr(torch, "torch_hooked"):
            torch.torch_hooked += 1  # type: ignore[attr-defined]
            logger.warning("Torch was already hooked... skipping hooking process")
            self.local_worker = session.local_worker
            self.to_auto_overload = session.hook.to_auto_overload
            return
        warn_if_untested(torch.__version__)
        tracebacks.install()
        session.framework = TorchAttributes(torch, self)
        session.hook = self
        if local_worker is None:
            local_worker = VirtualWorker(hook=self, id="me", is_client_worker=is_client, auto_add=False)
        local_worker.hook = self
        local_worker.add_worker(local_worker)
        self.local_worker = session.local_worker = local_worker

        self._hook_native_tensor(torch.Tensor, TorchTensor)
        self._hook_syft_tensor_methods(AbstractTensor)
        self._hook_private_tensor_methods(PrivateTensor)
        self._hook_parameters()
        self._hook_torch_module()
        self._hook_tensor()
        self._hook_backward()
        self._hook_worker_methods()
        self._hook_module()
        self._hook_optim()
        self._hook_secrets()
        self._hook_datasets()
        session.framework.eval_torch_modules()
        torch.torch_hooked = 1  # type: ignore[attr-defined]
        registering.follow(local_worker)

    # -- making things -----------------------------------------------------------------------------

    @classmethod
    def create_shape(cls, shape_dims: Any) -> torch.Size:
        """A shape in torch's own type."""
        return torch.Size(shape_dims)

    @classmethod
    def create_wrapper(cls, wrapper_type: Any, *args: Any, **kwargs: Any) -> Any:
        """An empty wrapper, to be given a child."""
        return wrapper_type(*args, **kwargs)

    @classmethod
    def create_zeros(cls, *shape: int, dtype: Any = None, **kwargs: Any) -> torch.Tensor:
        return torch.zeros(*shape, dtype=dtype, **kwargs)

    # -- tensors -----------------------------------------------------------------------------------

    def _hook_native_tensor(self, tensor_type: type, syft_type: type) -> None:
        """Give a tensor type what `syft_type` has, and `native_` aliases of its own methods."""
        self.to_auto_overload[tensor_type] = self._which_methods_should_we_auto_overload(tensor_type)
        self._rename_native_functions(tensor_type)
        self.__hook_properties(tensor_type)
        self._transfer_methods_to_native_tensor(tensor_type, syft_type)
        self._hook_printing(tensor_type)

    def _which_methods_should_we_auto_overload(self, tensor_type: type = torch.Tensor) -> list[str]:
        """The methods of a tensor type that are operations: all but private ones and `exclude`."""
        chosen = []
        for name in dir(tensor_type):
            is_operator = (
                name in OPERATORS.values()
                or name in REFLECTED_OPERATORS
                or name in IN_PLACE_OPERATORS
                or name in ("__getitem__", "__setitem__")
            )
            if (
                name in self.exclude
                or name.startswith("native_")
                or (name.startswith("_") and not is_operator)
            ):
                continue
            member = inspect.getattr_static(tensor_type, name)
            if inspect.isroutine(member) and not isinstance(member, (classmethod, staticmethod)):
                chosen.append(name)
        return chosen

    def _rename_native_functions(self, tensor_type: type) -> None:
        """`tensor.native_add` beside `tensor.add`. The original keeps its own name, too."""
        for name in self.to_auto_overload[tensor_type]:
            _add(tensor_type, f"native_{name}", getattr(tensor_type, name))

    def __hook_properties(self, tensor_type: type) -> None:
        """`id`, `owner`, `tags`, `location`, ...: what every tensor can be asked."""
        for name, member in _members(TorchTensor).items():
            if isinstance(member, property):
                setattr(tensor_type, name, member)

    @classmethod
    def _transfer_methods_to_native_tensor(cls, tensor_type: type, syft_type: type) -> None:
        """Copy the methods of `syft_type` that the tensor type does not have."""
        for name, member in _members(syft_type).items():
            if inspect.isfunction(member):
                if hasattr(tensor_type, name):
                    raise RuntimeError(
                        f"torch {torch.__version__} has a method {name!r} of its own on "
                        f"{tensor_type.__name__}; this version of syft would hide it. Please report this."
                    )
                setattr(tensor_type, name, member)

    @staticmethod
    def _hook_printing(tensor_type: Any) -> None:
        """A tagged tensor prints its tags, the first line of its description and its shape."""
        plain = tensor_type.__repr__
        tensor_type.native___repr__ = plain

        def shown(self: Any, *args: Any, **kwargs: Any) -> str:
            text: str = plain(self, *args, **kwargs)
            identity = known_identity(self)
            if identity is not None and (identity.tags or identity.description):
                if identity.tags:
                    text += "\n\tTags: " + " ".join(sorted(map(str, identity.tags)))
                if identity.description:
                    text += "\n\tDescription: " + str(identity.description).split("\n")[0]
                text += f"\n\tShape: {self.shape}"
            return text

        tensor_type.__repr__ = shown

    def _hook_syft_tensor_methods(self, syft_type: type) -> None:
        """Give bare nodes of a chain the methods of torch tensors."""
        for name in self.to_auto_overload[torch.Tensor]:
            if function_named(name) is not None:
                _add(syft_type, name, self.get_hooked_syft_method(name))

    def _hook_private_tensor_methods(self, syft_type: type) -> None:
        """Private nodes have the methods of all nodes; tensors learn to become private."""
        self._hook_syft_tensor_methods(syft_type)

    def _hook_additive_shared_tensor_methods(self) -> None:
        """Give secrets the methods of torch tensors that they do not have from `AbstractTensor` or by themselves.

        Which of them the holders of shares can compute, the rules of secrets say. Called with the first secret.
        """
        from syft.mpc.sharing import AdditiveSharingTensor

        for name in self.to_auto_overload[torch.Tensor]:
            if not hasattr(AdditiveSharingTensor, name) and function_named(name) is not None:
                _add(AdditiveSharingTensor, name, self.get_hooked_additive_shared_method(name))

    def _hook_parameters(self) -> None:
        """Parameters that hold a chain: torch's own class keeps them, so only the aliases are added."""
        for name in ("__new__", "__repr__", "__deepcopy__"):
            _add(torch.nn.Parameter, f"native_param_{name}", getattr(torch.nn.Parameter, name))

    # -- functions ---------------------------------------------------------------------------------

    def _hook_torch_module(self) -> None:
        """`torch.native_cat` beside `torch.cat`, and the same for torch.nn.functional.

        A name that torch has already (`torch.native_batch_norm`) is torch's and stays as it is.
        """
        holders = {"torch": torch, "torch.nn.functional": torch.nn.functional}
        for module, functions in session.framework.torch_modules.items():
            for name in functions:
                function = getattr(holders[module], name, None)
                if function is not None and not name.startswith("native_"):
                    _add(holders[module], f"native_{name}", function)

    def _hook_tensor(hook_self) -> None:
        """`torch.tensor(data, owner=bob, id=7)`: sets both, and an owner that is no client keeps it."""
        native_tensor = torch.tensor
        torch.native_tensor = native_tensor  # type: ignore[attr-defined]

        def tensor(*args: Any, owner: Any = None, id: Any = None, **kwargs: Any) -> torch.Tensor:
            if owner is None and id is None:
                return native_tensor(*args, **kwargs)
            with torch._C.DisableTorchFunction():  # registered below, under its own id
                made = native_tensor(*args, **kwargs)
            identity = identity_of(made)
            if id is not None:
                identity.id = id
            identity.owner = hook_self.local_worker if owner is None else owner
            identity.owner.register_obj(made, identity.id)
            return made

        tensor.__doc__ = native_tensor.__doc__
        torch.tensor = tensor
        # torch.jit knows its builtins by identity: tell it that this one is aten::tensor, too.
        _builtins._register_builtin(tensor, "aten::tensor")

    def _hook_backward(self) -> None:
        """Only an alias: torch accumulates into the same gradient, which so keeps its id."""
        _add(torch.Tensor, "native_backward", torch.Tensor.backward)

    # -- workers, models, optimizers ---------------------------------------------------------------

    def _hook_worker_methods(self) -> None:
        """Give every worker a method per function that makes tensors: they are at `worker.remote.torch`."""
        self.worker_methods = {
            name: self._get_hooked_base_worker_method(name) for name in session.framework.worker_methods
        }

    def _get_hooked_base_worker_method(hook_self, attr: str) -> Any:
        """`f(worker, *args)` runs torch.<attr> on the worker and returns a pointer."""

        def on_worker(worker: Any, *args: Any, **kwargs: Any) -> Any:
            return hook_self.local_worker.send_command(worker, (f"torch.{attr}", None, args, kwargs))

        on_worker.__name__ = attr
        return on_worker

    def _hook_module(self) -> None:
        """Models travel in place: `send`, `get`, `move`, `end_get`, `copy`, `location`, `owner`."""
        for name, member in modules.ADDED.items():
            _add(torch.nn.Module, name, member)

    def _hook_optim(self) -> None:
        """From the first sent model on, optimizers bring the state of a parameter to where it is."""
        _add(torch.optim.Optimizer, "follow_parameters", staticmethod(follow_parameters))

    def _hook_secrets(self) -> None:
        """`fix_precision`, `float_precision`, `share` and their relatives, `encrypt` and `decrypt`."""
        for holder, names in SECRETS.items():
            for name in names:
                _add(holder, name, AddedLater(name, add_secrets))
        for name in ENCRYPTION:
            _add(torch.Tensor, name, AddedLater(name, add_encryption))

    def _hook_datasets(self) -> None:
        """`dataset.federate(workers)` for every torch Dataset."""
        _add(torch.utils.data.Dataset, "federate", AddedLater("federate", add_federate))


def _members(cls: type) -> dict[str, Any]:
    """What a class and its bases define, but for what every object has."""
    return {name: value for base in reversed(cls.__mro__[:-1]) for name, value in vars(base).items()}


def _add(holder: Any, name: str, member: Any) -> None:
    """Add a name that is not there yet."""
    if name not in vars(holder):
        setattr(holder, name, member)
