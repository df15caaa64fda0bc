"""`ObjectWrapper`, `ObjectPointer` and `CallablePointer`: plain Python objects that live on a worker.

The owner of a worker wraps what others may use there: a value whose public attributes can be pointed to, or
a function that can be called on remote data. Only what somebody wrapped can be reached this way.
"""

from __future__ import annotations

from typing import Any

from syft.core.ids import ID_PROVIDER
from syft.core.objects import AbstractObject
from syft.core.session import session
from syft.messaging.message import CallObjectMessage, ObjectMessage, Ref
from syft.tensors.object_pointer import POINTERS as POINTERS
from syft.tensors.object_pointer import ObjectPointer


class ObjectWrapper(AbstractObject):
    """Gives any object an id, an owner and tags, so that a worker can hold it."""

    def __init__(self, obj: Any, id: Any = None, **kwargs: Any) -> None:
        super().__init__(id=id, **kwargs)
        self._obj = obj

    @property
    def obj(self) -> Any:
        """What is wrapped."""
        return self._obj

    @staticmethod
    def create_pointer(
        object: Any,
        owner: Any,
        location: Any,
        ptr_id: Any,
        id_at_location: Any = None,
        garbage_collect_data: bool = True,
        **kwargs: Any,
    ) -> Any:
        """A pointer to a wrapped object that a worker holds already: it can be called if the object can."""
        return ObjectPointer.create_pointer(
            object,
            location,
            id_at_location,
            owner=owner,
            ptr_id=ptr_id,
            garbage_collect_data=garbage_collect_data,
            **kwargs,
        )

    @property
    def pointer_kind(self) -> str:
        return "callable" if callable(self.obj) else "object"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.obj(*args, **kwargs)

    def send(self, worker: Any, garbage_collect_data: bool = True) -> Any:
        """Put the object on a worker in this process; returns a pointer to it."""
        return send_object(self, worker, garbage_collect_data)

    def __deepcopy__(self, memo: dict[int, Any]) -> ObjectWrapper:
        # What the owner wrapped is handed over as it is: a function has no copy.
        return ObjectWrapper(self.obj, id=self._id, tags=self.tags, description=self.description)

    def __str__(self) -> str:
        return f"<ObjectWrapper id:{self.id} of a {type(self.obj).__name__}>"

    __repr__ = __str__


class CallablePointer(ObjectPointer):
    """Points to a callable; calling it runs it there, on objects that are there."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        new_id = ID_PROVIDER.pop()
        message = CallObjectMessage(
            self.id_at_location,
            tuple(as_argument(a, self) for a in args),
            {k: as_argument(v, self) for k, v in kwargs.items()},
            new_id,
        )
        return owned(self._speaker().pointer_from(self.ask(message), self.location))


def create_callable_pointer(
    location: Any,
    id: Any,
    id_at_location: Any,
    owner: Any,
    tags: Any,
    description: str | None,
    garbage_collect_data: bool = True,
    register_pointer: bool = True,
) -> CallablePointer:
    """A pointer to a callable that a worker holds already; `register_pointer` makes its owner keep the pointer."""
    me = session.require_local_worker()
    pointer = CallablePointer(
        me.get_worker(location, fail_hard=True),
        id_at_location,
        me if owner is None else me.get_worker(owner, fail_hard=True),
        id,
        garbage_collect_data,
        tags=tags,
        description=description,
    )
    if register_pointer:
        pointer.owner.register_obj(pointer, pointer.id)
    return pointer


def send_object(obj: AbstractObject, worker: Any, garbage_collect_data: bool = True) -> Any:
    """Send an object that is not a tensor; returns the pointer of its kind."""
    me = session.require_local_worker()
    location = me.get_worker(worker, fail_hard=True)
    me.send_msg(ObjectMessage(obj, obj.id), location)
    kind: type[ObjectPointer] = POINTERS[getattr(obj, "pointer_kind", "object")]
    return kind(
        location,
        obj.id,
        garbage_collect_data=garbage_collect_data,
        tags=obj.tags,
        description=obj.description,
    )


def as_argument(value: Any, beside: ObjectPointer) -> Any:
    """An argument of a remote call as the message carries it."""
    from syft.exceptions import TensorsNotCollocatedException

    node = getattr(value, "child", None) if getattr(value, "is_wrapper", False) else value
    if isinstance(node, ObjectPointer):
        if node.location.id != beside.location.id:
            raise TensorsNotCollocatedException(beside, node, "a remote call")
        return Ref(node.id_at_location)
    return value


def owned(pointer: Any) -> Any:
    """A pointer to a fresh result: it goes with its last reference."""
    node = pointer.child if getattr(pointer, "is_wrapper", False) else pointer
    node.garbage_collect_data = True
    return pointer


POINTERS["callable"] = CallablePointer
