"""`HandedOver`: which pointers a client gave to a worker, so that no reply can name others.

NOTE [Pointers in replies]
Whoever drops a pointer that owns its object deletes the object, in their own name. A worker that answers with an
owning pointer to somebody else's object would let its client delete it. So a pointer in a reply owns only what this
client handed over to that very worker before, and gets back. A worker may have computed with such pointers and answer
with pointers to results at the same place: these own nothing. A pointer to any other worker is refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from syft.core.chain import Wrapper
from syft.core.interfaces import Id
from syft.serde.errors import SerdeError
from syft.tensors.object_pointer import ObjectPointer


class HandedOver:
    """The pointers that one worker was sent over one connection."""

    def __init__(self) -> None:
        self._pointers: set[tuple[Any, Any]] = set()
        self._places: set[Any] = set()

    def note(self, obj: Any) -> None:
        """An object was sent: the worker has the duty to delete what pointers in it own."""
        for pointer in pointers_in(obj):
            place = getattr(pointer.location, "id", pointer.location)
            self._places.add(place)
            if pointer.garbage_collect_data:
                self._pointers.add((place, pointer.id_at_location))
            pointer.garbage_collect_data = False

    def takes_over(self, place: Any, obj_id: Id, giver: Any) -> bool:
        """Whether a pointer in a reply of `giver` owns its object. !! SerdeError if it must not be there at all"""
        key = (place, obj_id)
        if key in self._pointers:
            self._pointers.discard(key)
            return True
        if place == giver or place in self._places:
            return False
        raise SerdeError(
            f"Worker {giver!r} answered with a pointer to worker {str(place)[:60]!r}, which you never named to it. "
            "The pointer was refused. Ask the worker's owner, and do not use the worker until then."
        )


def pointers_in(obj: Any) -> Iterator[ObjectPointer]:
    """The pointers that a sent object consists of: itself, or those at the end of its chain."""
    while type(obj) is Wrapper:
        obj = obj.child
    if isinstance(obj, ObjectPointer):
        yield obj
        return
    child = getattr(obj, "child", None)
    if isinstance(child, dict):
        for part in child.values():
            yield from pointers_in(part)
