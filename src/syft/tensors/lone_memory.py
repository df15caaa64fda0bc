"""Whether the memory of a tensor can be handed over to a worker of this process, or from one, without a copy.

NOTE [What nobody else has]
A tensor that is sent in place, or fetched, is handed over without a copy if its memory cannot be reached in any other
way: by a view, a graph, an array, another process or a name. Whether it can is told by the references there are, to
the tensor in torch, to its storage in torch and in Python, and to a gradient in Python. How many there are of what
nobody else has depends on versions, and is counted once.
"""

from __future__ import annotations

import sys
from functools import cache
from typing import Any

import torch

from syft.core.chain import Wrapper
from syft.core.memory import CACHES


def has_lone_memory(tensor: torch.Tensor, is_gradient: bool = False) -> bool:
    """Whether nobody else has the memory of a tensor; see NOTE [What nobody else has]."""
    if type(tensor) is Wrapper or not tensor.is_contiguous() or not CACHES.are_on:
        return False
    of_tensor, of_gradient, _ = references_of_lone_tensors()
    in_torch, of_memory, in_python = of_gradient if is_gradient else of_tensor
    memory: Any = tensor.untyped_storage()
    # What numpy and others have given cannot be resized.
    return bool(
        tensor._use_count() <= in_torch  # type: ignore[attr-defined]
        and torch._C._storage_Use_Count(memory._cdata) <= of_memory
        and sys.getrefcount(memory) <= in_python
        and memory.nbytes() == tensor.nbytes
        and memory.resizable()
        and not memory.is_shared()
    )


def memory_is_seen_elsewhere(tensor: torch.Tensor) -> bool:
    """Whether a view, another tensor, an array or another process has the memory of a plain tensor, too."""
    memory = tensor.untyped_storage()
    most = references_of_lone_tensors()[0][1]
    is_seen = torch._C._storage_Use_Count(memory._cdata) > most or not memory.resizable()
    return is_seen or memory.is_shared()


def has_lone_gradient(tensor: torch.Tensor) -> bool:
    """Whether nobody else has the gradient of a leaf, or its memory."""
    gradient: Any = tensor.grad
    if gradient is None or sys.getrefcount(gradient) > references_of_lone_tensors()[2]:
        return False
    return not gradient.requires_grad and has_lone_memory(gradient, is_gradient=True)


@cache
def references_of_lone_tensors() -> tuple[tuple[int, ...], tuple[int, ...], int]:
    """As counted above: of a tensor, of a gradient, and the references in Python to a gradient."""
    leaf = torch.nn.Parameter(torch.zeros(1))
    leaf.grad = torch.zeros(1)
    found: list[tuple[int, ...]] = []
    for tensor in (leaf, leaf.grad):
        memory = tensor.untyped_storage()
        counts = torch._C._storage_Use_Count(memory._cdata), sys.getrefcount(memory)
        found.append((tensor._use_count(), *counts))  # type: ignore[attr-defined]
        del tensor, memory
    gradient = leaf.grad
    return found[0], found[1], sys.getrefcount(gradient)
