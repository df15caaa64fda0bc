"""Sealed memory: objects that several processes map and none can change.

A file in memory (`memfd_create`) is written once and sealed. From then on nobody can write into it, nor make it smaller,
which would end whoever maps it. Whoever is handed one checks the seals before mapping it.
"""

from __future__ import annotations

import fcntl
import math
import mmap
import os
import warnings
from collections.abc import Iterable
from typing import Any

import torch

from syft import serde
from syft.core.chain import Wrapper
from syft.core.identity import identity_of, known_identity
from syft.tensors.private import PrivateTensor

_SEALS = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
#: The types of elements that can be handed over, by name.
DTYPES: dict[str, torch.dtype] = {
    str(d).removeprefix("torch."): d for d in vars(torch).values() if isinstance(d, torch.dtype)
}


class NotSealedError(ValueError):
    """What was handed over as sealed memory is none, or smaller than was said."""


def is_plain(value: Any) -> bool:
    """Whether an object is a dense tensor of a type that travels as its elements."""
    return (
        type(value) is torch.Tensor
        and value.layout is torch.strided
        and value.device.type == "cpu"
        and not value.is_quantized
        and not value.is_conj()
        and not value.is_neg()
    )


def name_of(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def sealed_bytes(parts: list[Any]) -> int:
    """A descriptor of sealed memory with these bytes."""
    descriptor = os.memfd_create("syft", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        for part in parts:
            view = memoryview(part).cast("B")
            while view:
                view = view[os.write(descriptor, view[: 1 << 30]) :]
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, _SEALS)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def sealed_tensor(tensor: torch.Tensor) -> int:
    """A descriptor of sealed memory with the elements of a tensor, in order and nothing else."""
    whole = tensor.detach().contiguous()
    if not whole.numel():
        return sealed_bytes([])
    return sealed_bytes([whole.view(-1).view(torch.uint8).numpy()])


def sealed_object(value: Any, worker: Any) -> int:
    """A descriptor of sealed memory with an object as `serde` writes it. !! UnserializableError"""
    return sealed_bytes(serde.serialize_frames(value, worker, None))


def mapped(descriptor: int, nbytes: int) -> Any:
    """Sealed memory, to be read. !! NotSealedError"""
    try:
        seals = fcntl.fcntl(descriptor, fcntl.F_GET_SEALS)
    except OSError:
        seals = 0
    if seals & _SEALS != _SEALS or os.fstat(descriptor).st_size < nbytes:
        raise NotSealedError("What was handed over is not sealed memory of the size that was said.")
    if not nbytes:
        return b""
    return mmap.mmap(descriptor, nbytes, mmap.MAP_SHARED, mmap.PROT_READ)


def mapped_tensor(descriptor: int, dtype: str, shape: list[int]) -> torch.Tensor:
    """A tensor over sealed memory: whoever writes into it ends their own process. !! NotSealedError"""
    kind = DTYPES.get(dtype)
    if kind is None or any(size < 0 for size in shape):
        raise NotSealedError(f"{dtype[:60]!r} is no type of tensors that are handed over.")
    count = math.prod(shape)
    if not count:
        return torch.empty(shape, dtype=kind)
    memory = mapped(descriptor, count * kind.itemsize)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # that it cannot be written to is the point
        return torch.frombuffer(memory, dtype=torch.uint8).view(kind).view(shape)


def mapped_object(descriptor: int, worker: Any, limits: Any) -> Any:
    """An object in sealed memory. !! NotSealedError, SerdeError"""
    size = os.fstat(descriptor).st_size
    return serde.deserialize(bytearray(mapped(descriptor, size)), worker, limits=limits)


def name_tensor(tensor: torch.Tensor, obj_id: Any, tags: Iterable[str], description: str | None) -> None:
    """Let a tensor that was handed over be known by what it was known by before."""
    identity = identity_of(tensor)
    identity.id, identity.tags, identity.description = obj_id, set(tags), description


class Sealed:
    """The owner's tensors in sealed memory, by the address of their elements: they are handed over without a copy."""

    def __init__(self) -> None:
        self._descriptors: dict[int, tuple[torch.Tensor, int]] = {}

    def take(self, value: Any) -> Any:
        """The same tensor in sealed memory, below the link that makes it private; what is no plain tensor as it is."""
        if type(value) is Wrapper and isinstance(value.child, PrivateTensor):
            value.child.child = self.take(value.child.child)
            return value
        if not is_plain(value) or value.requires_grad or not value.numel():
            return value
        descriptor = sealed_tensor(value)
        made = mapped_tensor(descriptor, name_of(value.dtype), list(value.shape))
        known = known_identity(value)
        if known is not None:
            name_tensor(made, known.id, known.tags, known.description)
        self._descriptors[made.data_ptr()] = made, descriptor
        return made

    def descriptor_of(self, tensor: torch.Tensor) -> int | None:
        """The sealed memory behind a whole tensor that was taken; None for any other."""
        found = self._descriptors.get(tensor.data_ptr())
        if found is None or found[0].shape != tensor.shape or found[0].dtype != tensor.dtype:
            return None
        return found[1] if tensor.is_contiguous() else None
