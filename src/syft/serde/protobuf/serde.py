"""Any object as bytes, plans as Protocol Buffers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from syft.serde import codec
from syft.serde.codec_tables import BY_CODE, codec_of
from syft.serde.msgpack.serde import _Of
from syft.serde.serde import serialize as serialize_any

#: type -> (function that makes bytes, function that reads them), for types that have functions of their own.
MAP_TO_PROTOBUF_TRANSLATORS: dict[type, tuple[Any, Any]] = {}
#: Types of this library that travel.
OBJ_PROTOBUF_TRANSLATORS = _Of("syft.core.objects.AbstractObject")
#: Types that have a full form.
OBJ_FORCE_FULL_PROTOBUF_TRANSLATORS = _Of("syft.workers.abstract.AbstractWorker")
#: Errors that travel.
EXCEPTION_PROTOBUF_TRANSLATORS = _Of("")
#: Types whose functions other classes inherit.
inherited_bufferizers_found: dict[type, type] = {}


def _generate_bufferizers_and_unbufferizers() -> tuple[
    dict[type, Callable[..., Any]], dict[type, Callable[..., Any]]
]:
    """The functions that make bytes and those that read them, by type."""
    pairs = MAP_TO_PROTOBUF_TRANSLATORS
    return {cls: pair[0] for cls, pair in pairs.items()}, {cls: pair[1] for cls, pair in pairs.items()}


def _bufferize(worker: Any, obj: Any, **kwargs: Any) -> Any:
    """What the class makes of an object (`Plan.bufferize`), or its bytes."""
    own = getattr(type(obj), "bufferize", None)
    if own is not None:
        return own(worker, obj, **kwargs)
    found = codec_of(type(obj))
    if found is not None and found.cls is not type(obj):
        inherited_bufferizers_found[type(obj)] = found.cls
    return serialize_any(obj, worker)


def _force_full_bufferize(worker: Any, obj: Any) -> Any:
    """The bytes of a worker with everything that it holds; of any other object as `_bufferize` has them."""
    full = getattr(type(obj), "force_simplify", None)
    return _bufferize(worker, obj) if full is None else serialize_any(full(worker, obj), worker)


def _unbufferize(worker: Any, obj: Any, **kwargs: Any) -> Any:
    """The object that `_bufferize` was given. !! SerdeError"""
    if isinstance(obj, (bytes, bytearray, memoryview)):
        return codec.deserialize(bytes(obj), worker)
    plans: Any = BY_CODE["Plan"].cls
    return plans.unbufferize(worker, obj)


def serialize(
    obj: Any,
    worker: Any = None,
    simplified: bool = False,
    force_no_compression: bool = False,
    force_no_serialization: bool = False,
    force_full_simplification: bool = False,
) -> Any:
    """An object as bytes. `simplified`: it is what `_bufferize` made already; `force_no_serialization` stops there.

    The bytes are not compressed, whether `force_no_compression` asks for it or not.
    """
    if force_no_serialization or simplified:
        return obj if simplified else _bufferize(worker, obj)
    return _force_full_bufferize(worker, obj) if force_full_simplification else serialize_any(obj, worker)


def deserialize(binary: Any, worker: Any = None, unbufferizes: bool = True) -> Any:
    """The object in the bytes; the bytes themselves if nothing is to be read. !! SerdeError"""
    return _unbufferize(worker, binary) if unbufferizes else binary
