"""`Reader`: from a simple form and its buffers back to an object.

Whatever it is given, it makes one of the registered types or raises. A frame names codes, never classes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextvars import ContextVar
from typing import Any

from syft.core.session import session
from syft.serde.codec_tables import BY_CODE
from syft.serde.errors import SerdeError, UnknownWorkerError
from syft.serde.limits import DEFAULT_LIMITS, Limits

_THEMSELVES = frozenset({type(None), bool, int, float, str, bytes})


#: Whether pointers own what they point to; or who says it of each, by the ids of its worker and its object.
TakesOver = bool | Callable[[Any, Any], bool]


class Reader:
    """One deserialisation. `buffers` gives, once each, the memory beside the header."""

    __slots__ = ("_buffers", "_depth", "_objects", "_taken", "_when_done", "limits", "takes_over", "worker")

    def __init__(
        self,
        worker: Any = None,
        buffers: Sequence[Callable[[], memoryview]] = (),
        limits: Limits = DEFAULT_LIMITS,
        takes_over: TakesOver = False,
    ) -> None:
        self.worker = session.local_worker if worker is None else worker
        self.limits = limits
        self.takes_over = takes_over
        self._buffers = buffers
        self._taken: set[int] = set()
        self._depth = 0
        self._objects = 0
        self._when_done: list[Callable[[], None]] = []

    def read(self, simple: Any) -> Any:
        """The object that a simple form stands for."""
        self._objects += 1
        cls = type(simple)
        if cls in _THEMSELVES:
            return simple
        if (cls is not list and cls is not tuple) or not simple:
            raise SerdeError(
                f"A {cls.__name__} was found in what should be a serialised object, which has only numbers, texts and "
                "lists. It was not made by syft.serde."
            )
        code = simple[0]
        codec = (BY_CODE.get(code) or BY_CODE.find(code)) if type(code) is str else None
        if codec is None:
            raise SerdeError(
                f"Something of the type {str(code)[:60]!r} was found, which is not registered here. The sender may "
                "be of another version, or the room that registers the type has not been imported."
            )
        self._depth += 1
        if self._depth > self.limits.max_depth or self._objects > self.limits.max_objects:
            raise SerdeError(
                f"The frame has more than {self.limits.max_objects} objects or more than "
                f"{self.limits.max_depth} levels. Pass other limits to deserialize if you trust the sender."
            )
        value = codec.read(self, simple)
        self._depth -= 1
        return value

    def read_all(self, parts: Sequence[Any]) -> list[Any]:
        """The object of each part, without a call for those that stand for themselves."""
        self._objects += len(parts)
        if self._objects > self.limits.max_objects:
            raise SerdeError(f"The frame has more than {self.limits.max_objects} objects.")
        values = []
        for part in parts:
            if type(part) in _THEMSELVES:
                values.append(part)
            else:
                self._objects -= 1  # it is counted where it is read
                values.append(self.read(part))
        return values

    def count(self, objects: int) -> None:
        """Objects that were read without `read`; they count towards the limit all the same."""
        self._objects += objects
        if self._objects > self.limits.max_objects:
            raise SerdeError(f"The frame has more than {self.limits.max_objects} objects.")

    def buffer(self, simple: Any) -> memoryview:
        """Memory that nobody else will be given, to be kept as it is; or to be copied, if it is read-only."""
        if type(simple) is bytes:
            return memoryview(simple)
        if type(simple) is not int or not 0 <= simple < len(self._buffers) or simple in self._taken:
            raise SerdeError(
                f"The buffer {str(simple)[:60]} was asked for; there are {len(self._buffers)}, and each can be used once."
            )
        self._taken.add(simple)
        return self._buffers[simple]()

    def when_done(self, step: Callable[[], None]) -> None:
        """Do this after the whole frame has been read, if nothing was wrong with it."""
        self._when_done.append(step)

    def finish(self, value: Any) -> Any:
        """`value`, now that all of the frame has been read."""
        if len(self._taken) != len(self._buffers):
            raise SerdeError(
                f"The frame has {len(self._buffers)} buffers and uses {len(self._taken)} of them. It was not made by us."
            )
        self.carry_out()
        return value

    def carry_out(self) -> None:
        """Do what was to be done once everything read so far was found to be right."""
        for step in self._when_done:
            step()
        self._when_done.clear()

    def give_up(self) -> None:
        """Forget the object that could not be read; the next one begins afresh."""
        self._when_done.clear()
        self._depth = 0


#: Whether what is read may name workers; see NOTE [Whose pointers] in syft.serde.batch.
may_name_workers: ContextVar[bool] = ContextVar("syft_may_name_workers", default=True)


def resolve_worker(worker: Any, worker_id: Any) -> Any:
    """The worker of that id, as the deserialising worker knows it; !! UnknownWorkerError."""
    if not may_name_workers.get():
        raise SerdeError(
            "This worker accepts no pointers, and nothing else that names other workers: it would use them under its own "
            "name. Send values, or move them between workers with `.move()`."
        )
    if type(worker_id) not in (int, str):
        raise SerdeError(f"A worker's id is a string or a number; a {type(worker_id).__name__} was found.")
    if worker is None:
        raise SerdeError(
            f"A frame names the worker {worker_id!r}, and there is nobody here to know it. Pass "
            "deserialize(binary, worker=...), or make a TorchHook first."
        )
    if worker.id == worker_id:
        return worker
    found = worker.get_worker(worker_id)
    if found is None or isinstance(found, (int, str)):
        raise UnknownWorkerError(
            f"A frame names the worker {worker_id!r}, which {worker.id!r} does not know. Introduce it first with "
            "add_worker(worker), or connect to it."
        )
    return found
