"""Many objects in one frame, each read for itself: one that is wrong does not spoil its neighbours.

NOTE [Whose pointers]
A pointer in a frame is made into a pointer of the one who reads it: it speaks for the reader, and deletes for the
reader. A worker that serves users it does not trust with its own name reads with `names_workers=False`.
"""

from __future__ import annotations

from typing import Any

from syft.exceptions import DependencyError
from syft.serde.compression import compression_named
from syft.serde.errors import SerdeError
from syft.serde.limits import DEFAULT_LIMITS, Limits
from syft.serde.lone_frames import READERS
from syft.serde.plain_commands import plain_commands
from syft.serde.reader import Reader, may_name_workers
from syft.serde.wire import pack, unpack
from syft.serde.writer import Writer

Buffer = bytes | bytearray | memoryview


class BatchWriter:
    """Collects objects; `frames` gives the bytes of them all. Until then it looks into the memory of tensors."""

    __slots__ = ("_limits", "_writer", "buffers", "roots")

    def __init__(self, worker: Any = None, limits: Limits = DEFAULT_LIMITS) -> None:
        self._limits = limits
        self._writer = Writer(worker, limits=limits, pins=True)
        #: What stands for each object, and the memory of tensors that is still to be looked into. For reading.
        self.roots: list[Any] = []
        self.buffers = self._writer.buffers

    def add(self, obj: Any) -> None:
        """Take one more. An object that cannot travel is refused, and leaves the others as they were."""
        writer = self._writer
        before = len(writer.buffers)
        try:
            self.roots.append(writer.write(obj))
        except BaseException as error:
            del writer.buffers[before:]
            writer._depth = writer.incompressible = 0
            if isinstance(error, RecursionError):
                raise SerdeError("The object is nested too deeply to be serialised. Flatten it.") from error
            raise

    def __len__(self) -> int:
        return len(self.roots)

    def frames(self, compression: str | None = None) -> list[Buffer]:
        """The bytes, in pieces that are to be sent in this order."""
        return pack(
            self.roots,
            self._writer.buffers,
            None if compression is None else compression_named(compression),
            self._limits,
        )


def deserialize_batch(
    binary: Buffer,
    worker: Any = None,
    *,
    limits: Limits = DEFAULT_LIMITS,
    take_over: bool = False,
    names_workers: bool = True,
) -> list[Any]:
    """The objects of a `BatchWriter`, with a SerdeError in place of each that cannot be read.

    !! SerdeError if the bytes are no batch at all
    """
    frame = memoryview(binary).cast("B")
    read_lone = READERS.get(bytes(frame[:4]))
    if read_lone is not None:
        return [read_lone(frame, limits)]
    commands = plain_commands(frame, limits)
    if commands is not None:
        return commands
    roots, buffers = unpack(frame, limits)
    if not isinstance(roots, list):
        raise SerdeError(f"A batch is a list of objects; a {type(roots).__name__} was found.")
    reader = Reader(worker, buffers, limits, take_over)
    token = may_name_workers.set(names_workers)
    try:
        return [_read_one(reader, root) for root in roots]
    finally:
        may_name_workers.reset(token)


def _read_one(reader: Reader, root: Any) -> Any:
    try:
        value = reader.read(root)
    except (SerdeError, DependencyError) as error:
        reader.give_up()
        return error
    except Exception as error:  # noqa: BLE001  (see NOTE [Parts come from strangers])
        reader.give_up()
        return SerdeError(f"The bytes do not describe an object: {type(error).__name__}: {error}")
    reader.carry_out()
    return value
