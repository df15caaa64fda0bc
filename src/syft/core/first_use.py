"""What torch imports when a tensor subclass is first used, imported at a moment of our choice.

NOTE [Imports of the first operation]
The first operation on any tensor subclass makes torch import `torch.distributed.tensor` (500 modules; it asks whether
the subclass is a DTensor), and the first shape worked out by a kernel written in Python makes it import `torch._dynamo`
(300 modules more). The former cannot be avoided, so `prepare` does it when the first worker is made. The latter only
happens because those kernels are marked as not to be compiled, and the mark is carried out by the compiler. While no
compiler is loaded nothing compiles them, so `call_without_compiler` lets the mark wait until one is. torch's optimizers
import it, too; a worker on a network, whose users may train, does that when it starts (`prepare_training`).
"""

from __future__ import annotations

import gc
import importlib
import sys
from collections.abc import Callable, Iterator
from functools import cache
from types import CellType, FunctionType
from typing import Any

import torch
from torch._compile import _disable_dynamo
from torch._decomp import global_decomposition_table

from syft.core.rooms import importing

#: The attribute in which torch keeps the marked function, once made.
_MADE = "__dynamo_disable"


@cache
def prepare() -> None:
    """Import what the first operation needs; once per process."""
    with importing():
        if torch.distributed.is_available():
            importlib.import_module("torch.distributed.tensor")
        _let_marks_wait()
        one = torch.empty(1, device="meta")
        torch.ops.aten.add.Tensor(one, one)
    # Python would walk all of this soon, in the middle of what somebody waits for.
    gc.collect()


def prepare_training() -> None:
    """Import torch's compiler, which the first step of any of its optimizers does; takes up to 0.5 s."""
    with importing():
        importlib.import_module("torch._dynamo")


def _let_marks_wait() -> None:
    kernels = [kernel for table in global_decomposition_table.values() for kernel in table.values()]
    for marked in _marked(kernels):
        plain = marked.__closure__[_PLACE].cell_contents
        if not hasattr(plain, _MADE):
            setattr(plain, _MADE, call_without_compiler(plain, marked))


def _marked(kernels: list[Any]) -> Iterator[Any]:
    """The functions among these, and those that they are decorators of, which `torch._disable_dynamo` made."""
    waiting, seen = list(kernels), set()
    while waiting:
        function = waiting.pop()
        if id(function) in seen or not isinstance(function, FunctionType):
            continue
        seen.add(id(function))
        if _PLACE is not None and function.__code__ is _MARKING_CODE:
            yield function
        waiting += [cell.cell_contents for cell in function.__closure__ or () if cell != CellType()]


_MARKING_CODE = getattr(_disable_dynamo(lambda: None), "__code__", None)
_FREE = getattr(_MARKING_CODE, "co_freevars", ())
#: Where a marked function keeps the plain one.
_PLACE = _FREE.index("fn") if "fn" in _FREE else None


def call_without_compiler(plain: Callable[..., Any], marked: Callable[..., Any]) -> Callable[..., Any]:
    """`plain` while torch's compiler is not loaded; from then on what torch makes of the mark."""

    def call(*args: Any, **kwargs: Any) -> Any:
        if "torch._dynamo" not in sys.modules:
            return plain(*args, **kwargs)
        if getattr(plain, _MADE, None) is call:
            delattr(plain, _MADE)
        return marked(*args, **kwargs)

    return call
