"""Figures that were computed from private data without noise, and say so when they are printed.

`print`, `str`, `repr`, f-strings and `format` carry the label, with any format specification. What makes another number
of them does not: arithmetic, `float(x)`, `round(x)`, `"%f" % x` and operations of torch give plain numbers and tensors,
so that whoever drops the label does it on purpose. Imports torch, and nothing of ours.
"""

from __future__ import annotations

from typing import Any

import torch

_LABEL = "(data-dependent: not releasable)"


class NotReleasable(float):
    """A float to steer by and not to publish: it was computed from private data and has no noise of its own."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"{float(self)!r} {_LABEL}"

    __str__ = __repr__

    def __format__(self, specification: str) -> str:
        return f"{float(self):{specification}} {_LABEL}"


class NotReleasableTensor(torch.Tensor):
    """The same as a tensor of one number. `item()` gives a `NotReleasable`."""

    # What is computed from it is a plain tensor, as for `torch.nn.Parameter`.
    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    def __new__(cls, value: Any, dtype: torch.dtype = torch.float64) -> NotReleasableTensor:
        number = value if isinstance(value, torch.Tensor) else float(value)
        return torch.as_tensor(number, dtype=dtype).clone().as_subclass(cls)

    def item(self) -> NotReleasable:
        return NotReleasable(super().item())

    def __deepcopy__(self, memo: dict[int, Any]) -> NotReleasableTensor:
        return NotReleasableTensor(float(self), self.dtype)

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]
        return f"{self.as_subclass(torch.Tensor)!r} {_LABEL}"

    __str__ = __repr__

    def __format__(self, specification: str) -> str:
        return format(self.item(), specification)
