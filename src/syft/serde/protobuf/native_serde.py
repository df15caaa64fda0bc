"""Types of Python."""

from __future__ import annotations

from typing import Any

from syft.serde import codec
from syft.serde.protobuf.serde import MAP_TO_PROTOBUF_TRANSLATORS


def _bufferize_none(worker: Any, obj: None) -> bytes:
    return codec.serialize(None, worker)


def _unbufferize_none(worker: Any, obj: bytes) -> None:
    codec.deserialize(bytes(obj), worker)


MAP_NATIVE_PROTOBUF_TRANSLATORS: dict[type, tuple[Any, Any]] = {
    type(None): (_bufferize_none, _unbufferize_none)
}
MAP_TO_PROTOBUF_TRANSLATORS.update(MAP_NATIVE_PROTOBUF_TRANSLATORS)
