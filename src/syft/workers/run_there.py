"""Public functions of torch on a worker that admits only the table: the client runs them, operation by operation.

`worker.remote.torch.zeros(2, 3)` is a name of Python. A worker that serves strangers takes no such names, because nobody
can say beforehand what is behind each. So the function runs here: what it does with pointers is sent by the pointers, and
the tensors that it makes are made there.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from syft.core import shapes
from syft.core.chain import new_wrapper
from syft.core.commands import command_named
from syft.core.ids import ID_PROVIDER
from syft.core.nested import found_in
from syft.core.ops import facts_of
from syft.messaging.message import Operation
from syft.tensors.pointer import new_pointer


def run_there(name: str, args: Any, kwargs: dict[str, Any], location: Any, speaker: Any) -> Any:
    """The result of a public function at a worker, by operations that it admits. !! OperationNotAdmittedError"""
    function = command_named(name).function
    with _MadeThere(location, speaker):
        return function(*args, **kwargs)


class _MadeThere(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Inside, tensors that are made from no other tensors are made at a worker."""

    def __init__(self, location: Any, speaker: Any) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.location, self.speaker = location, speaker

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if any(True for _ in found_in((args, kwargs), torch.Tensor)):
            return func(*args, **kwargs)
        given = {
            key: value for key, value in kwargs.items() if key not in ("device", "pin_memory", "generator")
        }
        answer = shapes.infer([facts_of(func), repr((args, given))], func, args, {**given, "device": "meta"})
        if answer.spec is None:
            return func(*args, **kwargs)
        new_id = ID_PROVIDER.pop()
        self.speaker.send_msg(Operation(str(func), None, args, given, (new_id,)), self.location)
        return new_wrapper(new_pointer(self.location, new_id, answer.spec))
