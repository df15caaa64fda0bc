"""How chains travel: wrappers, the types of this house that stand in them, pointers, and objects with an id.

A type of another room joins with `register_chain(MyTensor, {"attribute": type})`.

NOTE [Who deletes, on the wire]
A pointer that is made from a frame does not delete what it points to: a frame that anybody sent must not delete
at third parties, and a pointer read back from a file is not the only one. A worker that is handed a pointer for
good calls `deserialize(..., take_over=True)`; the duty then goes along with pointers that had it, once the whole
frame was found to be right.
"""

from __future__ import annotations

import types
from typing import Any

import torch

from syft.core.abstract import AbstractTensor
from syft.core.chain import Wrapper, new_wrapper
from syft.core.shapes import contiguous_spec
from syft.core.spec import TensorSpec
from syft.serde.codec_tables import Codec, Simple
from syft.serde.errors import SerdeError
from syft.serde.reader import Reader, resolve_worker
from syft.serde.registry import add_codec, checked, register_record
from syft.serde.torch_types import (
    PARAMETER,
    REQUIRES_GRAD,
    owner_for,
    read_identity,
    write_identity,
)
from syft.serde.writer import Writer
from syft.tensors.autograd import AutogradTensor
from syft.tensors.local import LocalTensor
from syft.tensors.logging import LoggingTensor
from syft.tensors.multi_pointer import MultiPointerTensor
from syft.tensors.numpy_array import NumpyTensor
from syft.tensors.object_pointer import ObjectPointer
from syft.tensors.object_wrapper import CallablePointer, ObjectWrapper
from syft.tensors.piecewise import Approximation, Piece
from syft.tensors.plusisminus import PlusIsMinusTensor
from syft.tensors.pointer import PointerTensor
from syft.tensors.polynomial import PolynomialTensor
from syft.tensors.private import PrivateTensor
from syft.tensors.string import String, StringPointer

# -- wrappers --------------------------------------------------------------------------------------


def _write_wrapper(writer: Writer, wrapper: Any) -> Simple:
    flags = REQUIRES_GRAD if wrapper.requires_grad else 0
    if isinstance(wrapper, torch.nn.Parameter):
        flags |= PARAMETER
    return "chain", flags, writer.write(wrapper.child)


def _read_wrapper(reader: Reader, simple: Any) -> Any:
    flags, child = checked(simple[1:], tuple[int, Any], "chain")
    head = reader.read(child)
    if head is None:
        made = Wrapper()
    elif isinstance(head, AbstractTensor):
        made = new_wrapper(head)
    else:
        raise SerdeError(f"A chain begins with a {type(head).__name__}, which is not a tensor type.")
    if flags & REQUIRES_GRAD:
        made.requires_grad_()
    if flags & PARAMETER:
        made.__dict__["_is_param"] = True
    return made


# -- links -----------------------------------------------------------------------------------------


def register_chain(
    cls: type[AbstractTensor],
    attributes: dict[str, Any] | None = None,
    *,
    code: str | None = None,
    incompressible: bool = False,
) -> None:
    """Let a tensor type travel.

    attributes  name -> type of the constructor arguments that `get_class_attributes` returns and that have to
                travel; the types are checked by msgspec
    """
    kinds = dict(attributes or {})
    the_code = code or cls.__name__
    fields: Any = types.GenericAlias(tuple, tuple(kinds.values()))

    def write(writer: Writer, node: Any) -> Simple:
        values = node.get_class_attributes()
        writer.incompressible += incompressible
        parts = [writer.write(values[name]) for name in kinds]
        child = writer.write(node.child)
        writer.incompressible -= incompressible
        return the_code, write_identity(writer, node), parts, child

    def read(reader: Reader, simple: Any) -> Any:
        identity, parts, child = simple[1:]
        values = checked(tuple([reader.read(part) for part in parts]), fields, the_code)
        node = cls(**dict(zip(kinds, values, strict=True)))
        _set_identity(reader, node, identity)
        node.child = _as_child(reader.read(child), the_code)
        return node

    add_codec(Codec(cls, the_code, write, read))


def _set_identity(reader: Reader, owned: Any, simple: Any) -> None:
    owned._id, owned.tags, owned.description = read_identity(reader, simple)
    owned._owner = owner_for(reader.worker)


def _as_child(value: Any, code: str) -> Any:
    if value is None or isinstance(value, (torch.Tensor, AbstractTensor)):
        return value
    raise SerdeError(f"A {code} stands on a {type(value).__name__}, which is not a tensor.")


def _write_autograd(writer: Writer, node: AutogradTensor) -> Simple:
    flags = (node.requires_grad, node.retain_grad)
    return "AutogradTensor", write_identity(writer, node), flags, writer.write(node.child)


def _read_autograd(reader: Reader, simple: Any) -> AutogradTensor:
    identity, flags, child = simple[1:]
    requires_grad, retain_grad = checked(flags, tuple[bool, bool], "AutogradTensor")
    node = AutogradTensor(requires_grad=requires_grad, retain_grad=retain_grad)
    _set_identity(reader, node, identity)
    node.child = _as_child(reader.read(child), "AutogradTensor")
    return node


def _write_numpy_node(writer: Writer, node: NumpyTensor) -> Simple:
    return "NumpyTensor", write_identity(writer, node), writer.write(node.child)


def _read_numpy_node(reader: Reader, simple: Any) -> NumpyTensor:
    identity, child = simple[1:]
    node = NumpyTensor(child=reader.read(child))
    _set_identity(reader, node, identity)
    return node


# -- pointers --------------------------------------------------------------------------------------

_Address = tuple[int | str, int | str, bool, str | None]


def _add_pointer(cls: Any) -> None:
    code = cls.__name__
    has_spec = issubclass(cls, PointerTensor)

    def write(writer: Writer, pointer: Any) -> Simple:
        location = pointer._location
        address = (
            writer.write(getattr(location, "id", location)),
            writer.write(pointer._id_at_location),
            bool(pointer.garbage_collect_data),
            pointer.point_to_attr,
        )
        spec = writer.write(pointer.spec) if has_spec else None
        return code, write_identity(writer, pointer), address, spec

    def read(reader: Reader, simple: Any) -> Any:
        identity, address, spec = simple[1:]
        location_id, id_at_location, owns, attribute = checked(address, _Address, code)
        location = resolve_worker(reader.worker, location_id)
        options: dict[str, Any] = {"garbage_collect_data": False, "point_to_attr": attribute}
        if has_spec:
            options["spec"] = _spec(reader.read(spec))
        pointer = cls(location, id_at_location, **options)
        _set_identity(reader, pointer, identity)
        takes_over = reader.takes_over
        if callable(takes_over):
            takes_over = takes_over(location_id, id_at_location)
        if owns and takes_over:
            reader.when_done(lambda: setattr(pointer, "garbage_collect_data", True))
        return pointer

    add_codec(Codec(cls, code, write, read))


def _spec(value: Any) -> TensorSpec:
    if value is None:
        return contiguous_spec((), torch.get_default_dtype())
    if not isinstance(value, TensorSpec):
        raise SerdeError(f"A pointer is described by a {type(value).__name__}, not by metadata of a tensor.")
    return value


def _write_multi_pointer(writer: Writer, node: MultiPointerTensor) -> Simple:
    pointers = [writer.write(pointer) for pointer in node.child.values()]
    return "MultiPointerTensor", write_identity(writer, node), pointers


def _read_multi_pointer(reader: Reader, simple: Any) -> MultiPointerTensor:
    identity, pointers = simple[1:]
    children = [reader.read(pointer) for pointer in pointers]
    if not children or not all(isinstance(child, PointerTensor) for child in children):
        raise SerdeError("A MultiPointerTensor is made of one pointer or more, and of nothing else.")
    node = MultiPointerTensor(children=children)
    _set_identity(reader, node, identity)
    return node


# -- objects ---------------------------------------------------------------------------------------


def _write_string(writer: Writer, string: String) -> Simple:
    return "String", write_identity(writer, string), str(string.child)


def _read_string(reader: Reader, simple: Any) -> String:
    identity, text = simple[1:]
    if type(text) is not str:
        raise SerdeError(f"A String holds a {type(text).__name__}.")
    made = String(text)
    _set_identity(reader, made, identity)
    return made


def _write_object(writer: Writer, wrapper: ObjectWrapper) -> Simple:
    return "ObjectWrapper", write_identity(writer, wrapper), writer.write(wrapper.obj)


def _read_object(reader: Reader, simple: Any) -> ObjectWrapper:
    identity, inner = simple[1:]
    made = ObjectWrapper(reader.read(inner))
    _set_identity(reader, made, identity)
    return made


add_codec(Codec(Wrapper, "chain", _write_wrapper, _read_wrapper))
register_chain(LocalTensor)
register_chain(LoggingTensor)
register_chain(PlusIsMinusTensor)
register_chain(PrivateTensor, {"allowed_users": tuple[int | str, ...], "released_only": bool})
register_chain(PolynomialTensor, {"functions": dict[str, Approximation]})
register_record(Approximation)
register_record(Piece)
add_codec(Codec(AutogradTensor, "AutogradTensor", _write_autograd, _read_autograd))
add_codec(Codec(NumpyTensor, "NumpyTensor", _write_numpy_node, _read_numpy_node))
for _pointer in (PointerTensor, ObjectPointer, CallablePointer, StringPointer):
    _add_pointer(_pointer)
add_codec(Codec(MultiPointerTensor, "MultiPointerTensor", _write_multi_pointer, _read_multi_pointer))
add_codec(Codec(String, "String", _write_string, _read_string))
add_codec(Codec(ObjectWrapper, "ObjectWrapper", _write_object, _read_object))
