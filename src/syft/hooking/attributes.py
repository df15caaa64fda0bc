"""`TorchAttributes`: lists and tables about torch that the hook and the command guard share."""

from __future__ import annotations

import logging
from collections.abc import Callable
from types import ModuleType
from typing import Any, ClassVar

from syft.core.commands import aten_operations, command_named, public_operations
from syft.exceptions import UnknownCommandError

logger = logging.getLogger(__name__)


class FrameworkAttributes:
    """What the hook knows about a framework. torch is the one there is."""

    ALIAS: ClassVar[str] = ""

    def __init__(self, framework: ModuleType, hook: Any) -> None:
        self.framework = framework
        self.hook = hook
        #: The command guard's list: what a worker runs, by name.
        self.allowed_commands: frozenset[str] = frozenset()
        #: The framework's own functions, by name.
        self.native_commands: dict[str, Any] = {}

    @property
    def Tensor(self) -> Any:
        """The tensors of the framework."""
        return self.framework.Tensor

    def is_inplace_method(self, method_name: str) -> bool:
        """Whether a name says that the method writes into its tensor: `add_`, not `__iadd__`."""
        is_operator = method_name.startswith("__") and method_name.endswith("__")
        return method_name.endswith("_") and not is_operator

    def _command_guard(self, command: str, get_native: bool = False) -> Any:
        """A command that a worker will run: its name or, with `get_native`, the function. !! UnknownCommandError"""
        if command not in self.allowed_commands:
            raise UnknownCommandError(command)
        if not get_native:
            return command
        native = self.native_commands.get(command)
        return command_named(command).function if native is None or isinstance(native, str) else native

    def _is_command_valid_guard(self, command: str) -> bool:
        """Whether `_command_guard` lets a command pass."""
        return command in self.allowed_commands

    @classmethod
    def get_native_framework_name(cls, attr: str) -> str:
        """torch.add -> torch.native_add"""
        module, _, name = attr.rpartition(".")
        return f"{module}.native_{name}" if module else f"native_{name}"


class TorchAttributes(FrameworkAttributes):
    """Names of torch: what exists, what gets a `native_` alias, what a worker will run."""

    ALIAS: ClassVar[str] = "torch"

    #: Methods that are about a tensor rather than operations on it; they get no hooked counterpart.
    exclude: ClassVar[tuple[str, ...]] = (
        "ndimension",
        "nelement",
        "size",
        "numel",
        "type",
        "tolist",
        "dim",
        "__iter__",
        "select",
        "__getattr__",
        "_get_type",
    )

    #: The modules whose functions get a `native_` alias.
    modules: ClassVar[tuple[str, ...]] = ("torch", "torch.nn.functional")

    def __init__(self, torch: ModuleType, hook: Any) -> None:
        super().__init__(torch, hook)
        self.torch = torch
        self.torch_modules = {
            name: [n.removeprefix(name + ".") for n in public_operations() if self._is_in(name, n)]
            for name in self.modules
        }
        self.native_commands = {
            f"{module}.{function}": self.get_native_torch_name(f"{module}.{function}")
            for module, functions in self.torch_modules.items()
            for function in functions
        }
        self.allowed_commands = aten_operations() | public_operations()
        #: Functions that make a tensor on a worker: `worker.remote.torch.<name>`.
        self.worker_methods = self.torch_modules["torch"]

    @staticmethod
    def _is_in(module: str, name: str) -> bool:
        return name.startswith(module + ".") and "." not in name.removeprefix(module + ".")

    def eval_torch_modules(self) -> dict[str, Callable[..., Any]]:
        """Turn the names in `native_commands` into the native functions themselves."""
        for module in self.modules:
            holder = _module(self.torch, module)
            for function in self.torch_modules[module]:
                full = f"{module}.{function}"
                if isinstance(self.native_commands[full], str):
                    # NB: torch has a few `native_` functions of its own, and torch.native_layer_norm is not
                    # torch.layer_norm. `torch.tensor` is the only function that the hook puts another beside.
                    name = "native_tensor" if full == "torch.tensor" else function
                    self.native_commands[full] = getattr(holder, name)
        return self.native_commands

    @staticmethod
    def get_native_torch_name(attr: str) -> str:
        """torch.add -> torch.native_add"""
        return FrameworkAttributes.get_native_framework_name(attr)

    @staticmethod
    def apply_fix16922(torch: ModuleType) -> bool:
        """There is nothing to fix: what it mended in torch 1.0.1 is mended in every torch we run on."""
        logger.info("torch %s needs no fix for pull request 16922; nothing was changed.", torch.__version__)
        return False

    def is_known_command(self, name: str) -> bool:
        """Whether a worker will run a command of that name."""
        return name in self.allowed_commands


def _module(torch: ModuleType, dotted: str) -> Any:
    holder: Any = torch
    for part in dotted.split(".")[1:]:
        holder = getattr(holder, part)
    return holder
