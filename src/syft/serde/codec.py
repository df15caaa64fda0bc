"""`serialize` and `deserialize`, `simplify` and `detail`: the four ways in and out."""

from __future__ import annotations

from typing import Any

from syft.exceptions import DependencyError
from syft.serde import chain_types, error_types, message_types, numpy_types, python_types  # noqa: F401  (fill the registry)
from syft.serde.compression import compression_named
from syft.serde.errors import SerdeError
from syft.serde.limits import DEFAULT_LIMITS, Limits
from syft.serde.plain_frames import OTHER, plain_frames, value_of_plain_frame
from syft.serde.reader import Reader, TakesOver
from syft.serde.simple_form import detail, simplify
from syft.serde.wire import pack, unpack
from syft.serde.writer import Writer

__all__ = ["deserialize", "detail", "serialize", "serialize_frames", "simplify"]

Buffer = bytes | bytearray | memoryview


def serialize(
    obj: Any,
    worker: Any = None,
    compression: str | None = None,
    *,
    limits: Limits = DEFAULT_LIMITS,
    keeps_gradients: bool = False,
) -> bytes:
    """An object as bytes. `compression` is None, "lz4" or "zstd". !! UnserializableError, SerdeError"""
    return b"".join(_frames(obj, worker, compression, limits, False, keeps_gradients))


def serialize_frames(
    obj: Any, worker: Any = None, compression: str | None = None, *, limits: Limits = DEFAULT_LIMITS
) -> list[Buffer]:
    """The same bytes in pieces, for a transport that can send pieces: the memory of tensors is not copied.

    Send them before a tensor in `obj` is written to. The tensors cannot grow (`resize_`) from now on.
    """
    if compression is None and limits is DEFAULT_LIMITS:
        written: list[Buffer] | None = plain_frames(obj)
        if written is not None:
            return written
    return _frames(obj, worker, compression, limits, pins=True)


def _frames(
    obj: Any,
    worker: Any,
    compression: str | None,
    limits: Limits,
    pins: bool,
    keeps_gradients: bool = False,
) -> list[Buffer]:
    scheme = compression_named(compression)
    writer = Writer(worker, limits=limits, pins=pins, keeps_gradients=keeps_gradients)
    try:
        root = writer.write(obj)
    except RecursionError as error:
        raise SerdeError("The object is nested too deeply to be serialised. Flatten it.") from error
    return pack(root, writer.buffers, scheme, limits)


def deserialize(
    binary: Buffer, worker: Any = None, *, limits: Limits = DEFAULT_LIMITS, take_over: TakesOver = False
) -> Any:
    """The object that bytes stand for. !! SerdeError, whatever the bytes are

    binary     from `bytes` every tensor is copied out, once; in a bytearray (or other writable memory) large
               tensors stay where they are, so hand it over and do not write to it again
    worker     who reads: it resolves the names of workers, and owns the pointers; the local worker by default
    limits     what the bytes may ask for
    take_over  pointers take over the duty to delete, see NOTE [Who deletes, on the wire]; or a function that says it of
               each, by the ids of its worker and its object, and may raise SerdeError
    """
    frame = memoryview(binary).cast("B")
    value = value_of_plain_frame(frame, worker, limits)
    if value is not OTHER:
        return value
    try:
        root, buffers = unpack(frame, limits)
        reader = Reader(worker, buffers, limits, take_over)
        return reader.finish(reader.read(root))
    except (SerdeError, DependencyError):
        raise
    except Exception as error:  # see NOTE [Parts come from strangers]
        raise SerdeError(f"The bytes do not describe an object: {type(error).__name__}: {error}") from error
