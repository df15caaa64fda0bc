"""Types of torch as bytes of `syft.serde`."""

from __future__ import annotations

from typing import Any, TypeVar

import torch

from syft.serde import codec
from syft.serde.errors import SerdeError
from syft.serde.msgpack.torch_serde import SERIALIZER
from syft.serde.msgpack.torch_serde import _deserialize_tensor as _deserialize_tensor
from syft.serde.msgpack.torch_serde import _serialize_tensor as _serialize_tensor
from syft.serde.protobuf.serde import MAP_TO_PROTOBUF_TRANSLATORS

_T = TypeVar("_T")

#: How the values of a tensor are written, and back: there is one way.
SERIALIZERS_SYFT_TO_PROTOBUF = {SERIALIZER: SERIALIZER}
SERIALIZERS_PROTOBUF_TO_SYFT = {SERIALIZER: SERIALIZER}


def _read(worker: Any, data: Any, kind: type[_T]) -> _T:
    made = codec.deserialize(bytes(data), worker)
    if not isinstance(made, kind):
        raise SerdeError(f"The bytes are those of a {type(made).__name__}, not of a {kind.__name__}.")
    return made


def protobuf_tensor_serializer(worker: Any, tensor: torch.Tensor) -> bytes:
    return _serialize_tensor(worker, tensor)


def protobuf_tensor_deserializer(worker: Any, protobuf_tensor: bytes) -> torch.Tensor:
    return _read(worker, protobuf_tensor, torch.Tensor)


def _bufferize_torch_tensor(worker: Any, tensor: torch.Tensor) -> bytes:
    """A tensor with its id, tags and gradient."""
    return _serialize_tensor(worker, tensor)


def _unbufferize_torch_tensor(worker: Any, protobuf_tensor: bytes) -> torch.Tensor:
    return _read(worker, protobuf_tensor, torch.Tensor)


def _bufferize_torch_parameter(worker: Any, param: torch.nn.Parameter) -> bytes:
    return _serialize_tensor(worker, param)


def _unbufferize_torch_parameter(worker: Any, protobuf_param: bytes) -> torch.nn.Parameter:
    return _read(worker, protobuf_param, torch.nn.Parameter)


def _bufferize_torch_device(worker: Any, device: torch.device) -> bytes:
    return codec.serialize(device, worker)


def _unbufferize_torch_device(worker: Any, protobuf_device: bytes) -> torch.device:
    return _read(worker, protobuf_device, torch.device)


def _bufferize_torch_size(worker: Any, size: torch.Size) -> bytes:
    return codec.serialize(size, worker)


def _unbufferize_torch_size(worker: Any, protobuf_size: bytes) -> torch.Size:
    return _read(worker, protobuf_size, torch.Size)


MAP_TORCH_PROTOBUF_TRANSLATORS: dict[type, tuple[Any, Any]] = {
    torch.Tensor: (_bufferize_torch_tensor, _unbufferize_torch_tensor),
    torch.nn.Parameter: (_bufferize_torch_parameter, _unbufferize_torch_parameter),
    torch.device: (_bufferize_torch_device, _unbufferize_torch_device),
    torch.Size: (_bufferize_torch_size, _unbufferize_torch_size),
}
MAP_TO_PROTOBUF_TRANSLATORS.update(MAP_TORCH_PROTOBUF_TRANSLATORS)
