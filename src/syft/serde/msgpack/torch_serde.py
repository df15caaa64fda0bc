"""Types of torch as tuples of their contents, and back. The values of a tensor are bytes of `syft.serde`."""

from __future__ import annotations

from typing import Any

import torch

from syft.serde import codec
from syft.serde.errors import SerdeError
from syft.serde.msgpack import serde
from syft.serde.serde import serialize as serialize_any

#: How the values of a tensor are written: there is one way.
SERIALIZER = "syft"


def _serialize_tensor(worker: Any, tensor: torch.Tensor) -> bytes:
    """A tensor as bytes, with its id, tags, gradient, and all below it if it is a chain."""
    return serialize_any(tensor, worker)


def _deserialize_tensor(worker: Any, serializer: str, tensor_bin: bytes) -> torch.Tensor:
    if serializer != SERIALIZER:
        raise SerdeError(f"Tensors are written as {SERIALIZER!r}, not as {serializer!r}.")
    made = codec.deserialize(bytes(tensor_bin), worker)
    if not isinstance(made, torch.Tensor):
        raise SerdeError(f"The bytes are those of a {type(made).__name__}, not of a tensor.")
    return made


def simplified_tensor_serializer(worker: Any, tensor: torch.Tensor) -> tuple[Any, ...]:
    """A tensor in simple form, number by number: `(size, dtype, values)`."""
    plain = tensor.detach()
    return tuple(plain.shape), str(plain.dtype).removeprefix("torch."), tuple(plain.flatten().tolist())


def simplified_tensor_deserializer(worker: Any, tensor_tuple: tuple[Any, ...]) -> torch.Tensor:
    size, name, values = tensor_tuple
    dtype = serde.dtype_named(name)
    return torch.tensor(values, dtype=dtype).reshape(tuple(size))


def _simplify_torch_tensor(worker: Any, tensor: torch.Tensor) -> tuple[Any, ...]:
    """`(id, bytes, name of the way it is written)`."""
    return tensor.id, _serialize_tensor(worker, tensor), SERIALIZER  # type: ignore[attr-defined]


def _detail_torch_tensor(worker: Any, tensor_tuple: tuple[Any, ...]) -> torch.Tensor:
    _id, data, serializer = tensor_tuple
    return _deserialize_tensor(worker, serializer, data)


def _simplify_torch_parameter(worker: Any, param: torch.nn.Parameter) -> tuple[Any, ...]:
    return _simplify_torch_tensor(worker, param)


def _detail_torch_parameter(worker: Any, param_tuple: tuple[Any, ...]) -> torch.nn.Parameter:
    made = _detail_torch_tensor(worker, param_tuple)
    if not isinstance(made, torch.nn.Parameter):
        raise SerdeError("The bytes are those of a tensor that is no parameter.")
    return made


def _simplify_torch_device(worker: Any, device: torch.device) -> tuple[Any]:
    return (serde._simplify(worker, str(device)),)


def _detail_torch_device(worker: Any, device_type: tuple[Any]) -> torch.device:
    return torch.device(serde._detail(worker, device_type[0]))


def _simplify_torch_size(worker: Any, size: torch.Size) -> tuple[int, ...]:
    return tuple(size)


def _detail_torch_size(worker: Any, size: tuple[int, ...]) -> torch.Size:
    return torch.Size(size)


def _simplify_torch_mem_format(worker: Any, mem_format: torch.memory_format) -> tuple[Any, ...]:
    return tuple(codec.simplify(worker, mem_format))


def _detail_torch_mem_format(worker: Any, mem_format: tuple[Any, ...]) -> Any:
    return codec.detail(worker, tuple(mem_format))


#: type -> (function that takes it apart, function that makes it again)
MAP_TORCH_SIMPLIFIERS_AND_DETAILERS: dict[type, tuple[Any, Any]] = {
    torch.Tensor: (_simplify_torch_tensor, _detail_torch_tensor),
    torch.nn.Parameter: (_simplify_torch_parameter, _detail_torch_parameter),
    torch.device: (_simplify_torch_device, _detail_torch_device),
    torch.Size: (_simplify_torch_size, _detail_torch_size),
    torch.memory_format: (_simplify_torch_mem_format, _detail_torch_mem_format),
}
