"""`Meter`: how much memory the values of a run take, followed while it runs, on data or on metadata."""

from __future__ import annotations

import weakref
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from syft.core.nested import found_in
from syft.core.spec import extent_in_bytes


class Meter(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Inside, all operations are followed.

    total   bytes of all their results together: what a graph may keep
    live    bytes of what they made and is still there
    peak    the most of that there was at a time
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.total = self.live = self.peak = 0
        self._known: set[int] = set()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        for tensor in found_in(
            (args, kwargs), torch.Tensor
        ):  # what was there before is not made by the program
            self._known.add(tensor.untyped_storage()._cdata)
        value = func(*args, **(kwargs or {}))
        for tensor in found_in(value, torch.Tensor):
            self.total += extent_in_bytes(tensor)
            self._follow(tensor.untyped_storage())
        return value

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Not to be wrapped by torch, which imports its compiler for it: nothing here is compiled."""
        return False

    def _follow(self, storage: torch.UntypedStorage) -> None:
        key = storage._cdata
        if key in self._known:
            return
        self._known.add(key)
        size = storage.nbytes()
        self.live += size
        self.peak = max(self.peak, self.live)
        weakref.finalize(storage, self._forget, key, size)

    def _forget(self, key: int, size: int) -> None:
        self._known.discard(key)
        self.live -= size
