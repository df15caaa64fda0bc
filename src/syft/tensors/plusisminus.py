"""`PlusIsMinusTensor`: swaps plus and minus. The smallest tensor type; CONTRIBUTING walks through it."""

from __future__ import annotations

from typing import Any

from syft.core.abstract import AbstractTensor
from syft.core.hook_args import default_register_tensor
from syft.core.overload import overloaded


class PlusIsMinusTensor(AbstractTensor):
    """`x + y` subtracts and `x - y` adds, however they are written; everything else is unchanged."""

    @overloaded.method
    def add(self: Any, _self: Any, other: Any, **kwargs: Any) -> Any:
        return _self.sub(other, **kwargs)

    @overloaded.method
    def sub(self: Any, _self: Any, other: Any, **kwargs: Any) -> Any:
        return _self.add(other, **kwargs)

    @overloaded.method
    def add_(self: Any, _self: Any, other: Any, **kwargs: Any) -> Any:
        return _self.sub_(other, **kwargs)

    @overloaded.method
    def sub_(self: Any, _self: Any, other: Any, **kwargs: Any) -> Any:
        return _self.add_(other, **kwargs)


default_register_tensor(PlusIsMinusTensor)
