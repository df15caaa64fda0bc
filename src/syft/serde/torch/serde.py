"""Historical path of how single tensors become bytes, and of the names of torch's dtypes and memory formats.

All four functions use the one format of `syft.serde`; nothing is pickled.
"""

from __future__ import annotations

from typing import Any

import torch

from syft.serde.codec import Buffer, deserialize, serialize
from syft.serde.errors import SerdeError
from syft.serde.torch_types import DTYPES, MEMORY_FORMATS

TORCH_DTYPE_STR: dict[torch.dtype, str] = {dtype: name for name, dtype in DTYPES.items()}
TORCH_STR_DTYPE: dict[str, torch.dtype] = dict(DTYPES)
TORCH_MFORMAT_ID: dict[torch.memory_format, int] = {
    memory_format: number for number, memory_format in enumerate(MEMORY_FORMATS.values(), start=1)
}
TORCH_ID_MFORMAT: dict[int, torch.memory_format] = {number: made for made, number in TORCH_MFORMAT_ID.items()}


def torch_tensor_serializer(worker: Any, tensor: torch.Tensor) -> bytes:
    """A tensor as bytes."""
    return serialize(tensor, worker)


def torch_tensor_deserializer(worker: Any, tensor_bin: Buffer) -> torch.Tensor:
    """The tensor that bytes stand for. !! SerdeError if they stand for something else"""
    made = deserialize(tensor_bin, worker)
    if not isinstance(made, torch.Tensor):
        raise SerdeError(
            f"The bytes stand for a {type(made).__name__} and not for a tensor. Use serde.deserialize."
        )
    return made


def numpy_tensor_serializer(worker: Any, tensor: torch.Tensor) -> bytes:
    """The values of a tensor as the bytes of a numpy array."""
    return serialize(tensor.detach().numpy(), worker)


def numpy_tensor_deserializer(tensor_bin: Buffer) -> torch.Tensor:
    """The tensor whose values `numpy_tensor_serializer` wrote."""
    return torch.from_numpy(deserialize(tensor_bin))
