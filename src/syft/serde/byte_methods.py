"""`bufferize` and `unbufferize` as static methods of classes that travel: their objects as bytes of `syft.serde`."""

from __future__ import annotations

from typing import Any

from syft.serde import codec
from syft.serde.class_methods import with_parameter
from syft.serde.errors import SerdeError
from syft.tensors.pointer import PointerTensor


def add_byte_methods(cls: Any, name: str) -> None:
    """Give a registered class the two methods. `name` is the documented name of the object to write."""

    def bufferize(worker: Any, obj: Any) -> bytes:
        if not isinstance(obj, cls):
            raise SerdeError(f"{cls.__name__}.bufferize was given a {type(obj).__name__}.")
        return codec.serialize(obj, worker)

    def unbufferize(worker: Any, protobuf_tensor: bytes) -> Any:
        made = codec.deserialize(bytes(protobuf_tensor), worker)
        if not isinstance(made, cls):
            raise SerdeError(f"{cls.__name__}.unbufferize was given the bytes of a {type(made).__name__}.")
        return made

    cls.bufferize = staticmethod(with_parameter(bufferize, name))
    cls.unbufferize = staticmethod(unbufferize)


add_byte_methods(PointerTensor, "ptr")
