"""The value that waits for an approval: the bytes of a tensor, and the tensor from them."""

from __future__ import annotations

import json
import math
from typing import Any

import msgspec
import torch

from syft.exceptions import RemoteError, RequestNotPermittedError
from syft.requests.approvals import Prepared
from syft.requests.records import Ask

#: The dtypes of tensors that can be asked for, by name.
DTYPES = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in (
        *(torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.complex64, torch.complex128),
        *(torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool),
    )
}


def content_of(value: torch.Tensor) -> bytes:
    """The bytes of a tensor; as many as its spec tells, whatever the values are."""
    return bytes(seen_content_of(value))


def seen_content_of(value: torch.Tensor) -> memoryview:
    """The same, where they are: of a contiguous tensor nothing is copied."""
    plain = value.detach().cpu().resolve_conj().resolve_neg().contiguous().reshape(-1)
    return plain.view(torch.uint8).numpy().data if plain.numel() else memoryview(b"")


def value_from(ask: Ask, content: bytes) -> torch.Tensor:
    """The tensor that waited in the queue. !! RemoteError if it could not be computed"""
    if "failure" in ask.details:
        raise RemoteError(f"The value could not be computed on the worker: {ask.details['failure']}")
    shape, dtype = _form_of(ask)
    if len(content) != math.prod(shape) * dtype.itemsize:
        raise RemoteError("The value does not have the size that the request says.")
    if not content:
        return torch.zeros(shape, dtype=dtype)
    return torch.frombuffer(bytearray(content), dtype=dtype).reshape(shape)


def stated_value(_worker: Any, prepared: Prepared) -> Ask:
    """A request for a value whose bytes are what it says. !! RequestNotPermittedError"""
    ask, content = prepared.ask, prepared.value
    try:
        shape, dtype = _form_of(ask)
    except (KeyError, ValueError) as error:
        raise RequestNotPermittedError("A request for a value does not say what the value is.") from error
    if content is None or len(content) != math.prod(shape) * dtype.itemsize:
        raise RequestNotPermittedError("A request for a value comes with another one.")
    what = f"the value of object {prepared.about!r}, {ask.details['dtype']} {tuple(shape)}"
    return msgspec.structs.replace(ask, what=what[:500])


def _form_of(ask: Ask) -> tuple[list[int], torch.dtype]:
    """Shape and dtype. !! KeyError, ValueError"""
    shape = json.loads(f"[{ask.details['shape'].strip('(),')}]")
    if not all(type(size) is int and size >= 0 for size in shape):
        raise ValueError("no shape")
    return shape, DTYPES[ask.details["dtype"]]
