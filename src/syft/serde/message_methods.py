"""`bufferize` and `unbufferize` of messages, by the names that programs of 2020 call them.

They give and take the bytes of our own format: the old one is not written any more.
"""

from __future__ import annotations

from typing import Any

from syft.messaging import message
from syft.serde import codec
from syft.serde.class_methods import add_class_methods
from syft.serde.errors import SerdeError
from syft.serde.message_types import MESSAGES


def _add_methods(cls: Any) -> None:
    of_type = f"a {cls.__name__}"

    def bufferize(worker: Any, message: Any) -> bytes:
        if type(message) is not cls:
            raise SerdeError(
                f"{cls.__name__}.bufferize was given a {type(message).__name__}; it takes {of_type}."
            )
        return codec.serialize(message, worker)

    def unbufferize(worker: Any, protobuf_obj: bytes) -> Any:
        made = codec.deserialize(protobuf_obj, worker)
        if type(made) is not cls:
            raise SerdeError(f"{cls.__name__}.unbufferize was given the bytes of a {type(made).__name__}.")
        return made

    def bufferize_operation(worker: Any, operation: Any) -> bytes:
        return bufferize(worker, operation)

    cls.bufferize = staticmethod(bufferize_operation if cls is message.Operation else bufferize)
    cls.unbufferize = staticmethod(unbufferize)


_message: Any
for _message in (*MESSAGES, message.Message):
    _add_methods(_message)
add_class_methods(message.Message, message.Message.__name__)


# -- the parts of an operation, and of any message ----------------------------------------------------------


def _bufferize_arg(worker: Any, arg: Any) -> bytes:
    return codec.serialize(arg, worker)


def _bufferize_args(worker: Any, args: Any) -> list[bytes]:
    return [_bufferize_arg(worker, arg) for arg in args]


def _unbufferize_arg(worker: Any, protobuf_arg: bytes) -> Any:
    return codec.deserialize(protobuf_arg, worker)


def _unbufferize_args(worker: Any, protobuf_args: Any) -> list[Any]:
    return [_unbufferize_arg(worker, arg) for arg in protobuf_args]


def _simplify(self: Any) -> Any:
    """The message in simple form, with the code of its type."""
    return codec.simplify(None, self)


for _part in (_bufferize_arg, _bufferize_args, _unbufferize_arg, _unbufferize_args):
    setattr(message.Operation, _part.__name__, staticmethod(_part))
for _message in (message.Message, message.MessageRecord):
    _message._simplify = _simplify
