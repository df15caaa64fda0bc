"""Any object as `(number of its type, contents)`, and MessagePack bytes of that."""

from __future__ import annotations

import importlib
from typing import Any

import msgspec
import torch

from syft.serde import codec, compression
from syft.serde.codec_tables import codec_of
from syft.serde.errors import SerdeError, UnserializableError
from syft.serde.msgpack import proto

#: Types whose numbers other classes inherit: an object of a class below them travels as one of these.
inherited_simplifiers_found: dict[type, type] = {}
#: type -> (function that takes it apart, function that makes it again), for types of Python, numpy and torch.
MAP_TO_SIMPLIFIERS_AND_DETAILERS: dict[type, tuple[Any, Any]] = {}


def _generate_simplifiers_and_detailers() -> tuple[dict[type, Any], dict[type, Any], dict[int, Any]]:
    """Functions that take apart, those for full forms, and those that make again, by type and by number."""
    simplifiers = {cls: pair[0] for cls, pair in _pairs().items()}
    forced = dict.fromkeys(OBJ_FORCE_FULL_SIMPLIFIER_AND_DETAILERS, _force_full_simplify)
    detailers = {proto.proto_type_info(cls).code: pair[1] for cls, pair in _pairs().items()}
    return simplifiers, forced, detailers


def _pairs() -> dict[type, tuple[Any, Any]]:
    _fill()
    others: dict[type, tuple[Any, Any]] = {
        cls: (_simplify_other, _detail_other)
        for cls in proto.codes()
        if cls not in MAP_TO_SIMPLIFIERS_AND_DETAILERS
    }
    return {**MAP_TO_SIMPLIFIERS_AND_DETAILERS, **others}


def _fill() -> None:
    """The modules that have the functions import this one, so they are asked when somebody needs them."""
    if not MAP_TO_SIMPLIFIERS_AND_DETAILERS:
        native = importlib.import_module("syft.serde.msgpack.native_serde")
        of_torch = importlib.import_module("syft.serde.msgpack.torch_serde")
        MAP_TO_SIMPLIFIERS_AND_DETAILERS.update(native.MAP_NATIVE_SIMPLIFIERS_AND_DETAILERS)
        MAP_TO_SIMPLIFIERS_AND_DETAILERS.update(of_torch.MAP_TORCH_SIMPLIFIERS_AND_DETAILERS)


class _Of:
    """A list of classes that the registry has, made when somebody looks."""

    def __init__(self, root: str) -> None:
        self.root = root

    def __iter__(self) -> Any:
        module, _, name = self.root.rpartition(".")
        base = getattr(importlib.import_module(module), name) if module else Exception
        return iter([cls for cls in proto.codes() if issubclass(cls, base)])

    def __contains__(self, cls: object) -> bool:
        return any(found is cls for found in self)

    def __len__(self) -> int:
        return sum(1 for _ in self)


#: Types of this library that travel.
OBJ_SIMPLIFIER_AND_DETAILERS = _Of("syft.core.objects.AbstractObject")
#: Types that have a full form.
OBJ_FORCE_FULL_SIMPLIFIER_AND_DETAILERS = _Of("syft.workers.abstract.AbstractWorker")
#: Errors that travel.
EXCEPTION_SIMPLIFIER_AND_DETAILERS = _Of("")


def _simplify_other(worker: Any, obj: Any) -> Any:
    return codec.simplify(worker, obj)


def _detail_other(worker: Any, simple: Any) -> Any:
    return codec.detail(worker, simple)


def _simplify(worker: Any, obj: Any, **kwargs: Any) -> Any:
    """An object as `(number of its type, contents)`; numbers, bytes and None as they are.

    `shallow=True` leaves the items of a collection as they are.
    """
    _fill()
    cls: Any = type(obj)
    if cls in proto.PRIMITIVES:
        return obj
    if cls not in MAP_TO_SIMPLIFIERS_AND_DETAILERS and isinstance(obj, torch.Tensor):
        cls = torch.Tensor
    if cls in MAP_TO_SIMPLIFIERS_AND_DETAILERS:
        contents = MAP_TO_SIMPLIFIERS_AND_DETAILERS[cls][0](worker, obj, **kwargs)
        return proto.proto_type_info(cls).code, contents
    found = codec_of(cls)
    if found is None:
        raise UnserializableError(
            f"A {cls.__name__} does not travel. Register the type: syft.serde.register({cls.__name__}, ...)."
        )
    if found.cls is not cls:
        inherited_simplifiers_found[cls] = found.cls
    return proto.proto_type_info(found.cls).code, _simplify_other(worker, obj)


def _force_full_simplify(worker: Any, obj: Any) -> Any:
    """A worker with everything that it holds; any other object as `_simplify` has it."""
    full = getattr(type(obj), "force_simplify", None)
    if full is None:
        return _simplify(worker, obj)
    return proto.proto_type_info(type(obj)).forced_code, full(worker, obj)


def _detail(worker: Any, obj: Any, **kwargs: Any) -> Any:
    """The object that a simple form stands for. !! SerdeError"""
    _fill()
    if type(obj) in proto.PRIMITIVES:
        return obj
    if type(obj) not in (tuple, list) or len(obj) != 2:
        raise SerdeError(f"{type(obj).__name__} is no simple form: that is a number of a type, and contents.")
    cls, is_forced = proto.type_of(obj[0])
    if is_forced:
        full: Any = importlib.import_module("syft.workers.base").BaseWorker
        return full.force_detail(worker, obj[1])
    if cls in MAP_TO_SIMPLIFIERS_AND_DETAILERS:
        return MAP_TO_SIMPLIFIERS_AND_DETAILERS[cls][1](worker, obj[1], **kwargs)
    return _detail_other(worker, obj[1])


def dtype_named(name: str) -> torch.dtype:
    """The dtype of a name. !! SerdeError"""
    found = codec.detail(None, ("dtype", name))
    if not isinstance(found, torch.dtype):
        raise SerdeError(f"{name!r} is not the name of a dtype.")
    return found


def _serialize_msgpack_simple(
    obj: Any, worker: Any = None, simplified: bool = False, force_full_simplification: bool = False
) -> Any:
    """The simple form of an object, which it is already if it is `simplified`."""
    if simplified:
        return obj
    return _force_full_simplify(worker, obj) if force_full_simplification else _simplify(worker, obj)


def _serialize_msgpack_binary(
    simple_objects: Any, worker: Any = None, simplified: bool = False, force_full_simplification: bool = False
) -> bytes:
    """The bytes of a simple form, compressed where that helps."""
    return compression._compress(msgspec.msgpack.encode(simple_objects))


def serialize(
    obj: Any, worker: Any = None, simplified: bool = False, force_full_simplification: bool = False
) -> bytes:
    """An object as bytes."""
    return _serialize_msgpack_binary(
        _serialize_msgpack_simple(obj, worker, simplified, force_full_simplification), worker
    )


def _deserialize_msgpack_binary(binary: bytes, worker: Any = None) -> Any:
    """The simple form in the bytes. !! SerdeError"""
    try:
        return _tuples(msgspec.msgpack.decode(compression._decompress(binary)))
    except (msgspec.DecodeError, RecursionError) as error:
        raise SerdeError(f"These are not the bytes of a simple form: {error}") from error


def _tuples(value: Any) -> Any:
    return tuple(_tuples(item) for item in value) if type(value) is list else value


def _deserialize_msgpack_simple(simple_objects: Any, worker: Any = None) -> Any:
    return _detail(worker, simple_objects)


def deserialize(binary: bytes, worker: Any = None) -> Any:
    """The object in the bytes. !! SerdeError"""
    return _deserialize_msgpack_simple(_deserialize_msgpack_binary(binary, worker), worker)
