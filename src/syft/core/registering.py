"""A local worker that is no client keeps the tensors that are made here, while somebody asks for it.

A torch function mode sees what torch makes. It is on inside `worker.registration_enabled()` and while the local
worker's `is_client_worker` is False; at other times nothing is intercepted. Tensors that this library makes on its way
(copies, shares) are not the program's and are not kept. `share` and `send` are no functions of torch, so secrets are
registered by `share` itself.
"""

from __future__ import annotations

import sys
from typing import Any

import torch
from torch.overrides import TorchFunctionMode, _get_current_function_mode

from syft.core.interfaces import Worker
from syft.core.nested import found_in
from syft.core.public_names import is_property_access


class RegisterTensors(TorchFunctionMode):
    """Puts every plain tensor that a torch function returns into the store of a worker."""

    def __init__(self, worker: Worker) -> None:
        super().__init__()
        self.worker = worker

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        if not self.worker.is_client_worker and not is_property_access(func) and _is_called_by_the_program():
            for tensor in found_in(result, torch.Tensor):
                if type(tensor) in (torch.Tensor, torch.nn.Parameter) and tensor.layout is torch.strided:
                    if tensor.id not in self.worker._objects:
                        self.worker.register_obj(tensor, tensor.id)
        return result


_TORCH, _LIBRARY = "torch", __name__.partition(".")[0]
#: Modules of this library that call torch in the place of the program: `torch.tensor` takes `owner` and `id`.
_IN_ITS_PLACE = f"{_LIBRARY}.hooking.torch_hook"


def _is_called_by_the_program() -> bool:
    """Whether the call that the mode has intercepted stands in the program, not in this library; torch is in between."""
    frame = sys._getframe(2)
    while frame is not None:
        module = frame.f_globals.get("__name__", "")
        if module != _IN_ITS_PLACE and module.partition(".")[0] != _TORCH:
            return bool(module.partition(".")[0] != _LIBRARY)
        frame = frame.f_back  # type: ignore[assignment]
    return True


#: The mode that is on for the whole process, if any.
_switched_on: list[RegisterTensors] = []


def follow(worker: Worker) -> None:
    """Switch the mode of the process on or off, as the local worker's `is_client_worker` says."""
    if not worker.is_client_worker and not _switched_on:
        mode = RegisterTensors(worker)
        mode.__enter__()  # type: ignore[no-untyped-call]
        _switched_on.append(mode)
    elif worker.is_client_worker and _switched_on and _is_on_top(_switched_on[0]):
        # NB: below another mode it stays until that one has ended, and registers nothing meanwhile.
        _switched_on.pop().__exit__(None, None, None)  # type: ignore[no-untyped-call]


def _is_on_top(mode: RegisterTensors) -> bool:
    return _get_current_function_mode() is mode  # type: ignore[no-untyped-call]
