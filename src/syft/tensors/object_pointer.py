"""`ObjectPointer`: a local stand-in for an object that a worker holds.

NOTE [Who deletes]
A pointer with `garbage_collect_data` owns what it points to: when the last Python reference to the pointer
goes, a delete is queued at the worker. Everything that shares the value locally (aliases, saved tensors of
the autograd graph) shares the pointer object, so Python's reference count is the only count there is.
Sending a pointer hands the duty over; search results never have it. Finalizers sit on the pointer, never
on the wrapper, because `syft.core.swap` moves wrappers around.
"""

from __future__ import annotations

from typing import Any

from syft.core.nested import found_in
from syft.core.objects import AbstractObject
from syft.core.plain_text import printable
from syft.core.rooms import FilledLater
from syft.core.session import session
from syft.messaging.message import (
    AttributeMessage,
    ForceObjectDeleteMessage,
    IsNoneMessage,
    ObjectRequestMessage,
    Ref,
)


class ObjectPointer(AbstractObject):
    """Points to any object at a worker."""

    def __init__(
        self,
        location: Any = None,
        id_at_location: Any = None,
        owner: Any = None,
        id: Any = None,
        garbage_collect_data: bool = True,
        point_to_attr: str | None = None,
        tags: Any = None,
        description: str | None = None,
    ) -> None:
        super().__init__(id=id, owner=owner, tags=tags, description=description)
        self._location = location
        self._id_at_location = id_at_location
        self.garbage_collect_data = garbage_collect_data
        self.point_to_attr = point_to_attr

    @property
    def location(self) -> Any:
        return self._location

    @property
    def id_at_location(self) -> Any:
        return self._id_at_location

    def get_garbage_collect_data(self) -> bool:
        """Whether the remote object goes when this pointer goes."""
        return self.garbage_collect_data

    def set_garbage_collect_data(self, value: bool) -> None:
        """Choose whether the remote object goes when this pointer goes."""
        self.garbage_collect_data = bool(value)

    gc = garbage_collection = property(get_garbage_collect_data, set_garbage_collect_data)

    @property
    def disable_gc(self) -> Any:
        """Reading it keeps the remote object from now on; returns this pointer."""
        self.garbage_collect_data = False
        return self

    def __del__(self) -> None:
        # NB: may run at any point, in any thread, and on an object whose __init__ failed.
        try:
            if self.garbage_collect_data and self._location is not None:
                self._location.queue_delete(self._id_at_location)
        except AttributeError:
            pass

    # -- talking to the worker ---------------------------------------------------------------------

    def ask(self, message: Any) -> Any:
        owner = self._owner
        return (self._speaker() if owner is None else owner).send_msg(message, self._location)

    def _speaker(self) -> Any:
        if self._owner is not None:
            return self._owner
        local = session.local_worker
        return session.require_local_worker() if local is None else local

    def ref(self) -> Ref:
        return Ref(self._id_at_location)

    def request(self, reason: str = "", user: str | None = None) -> Any:
        """Ask the owner of the worker to let it be fetched, as it is now; `.wait()` of the answer is the value."""
        return self.location.request_value(self, reason, user)

    def get(self, user: str | None = None, reason: str = "", deregister_ptr: bool = True) -> Any:
        """Fetch the object and remove it there."""
        value = self.ask(ObjectRequestMessage((self._id_at_location, user, reason)))
        self.garbage_collect_data = False
        return value

    def delete(self) -> None:
        """Remove the object at the worker now."""
        self.garbage_collect_data = False
        self.ask(ForceObjectDeleteMessage((self._id_at_location,)))

    def is_none(self) -> bool:
        """Whether the remote object is None or gone."""
        return bool(self.ask(IsNoneMessage(self._id_at_location)))

    def attr(self, attr_name: str) -> ObjectPointer:
        """A pointer to an attribute of the remote object."""
        from syft.core.ids import ID_PROVIDER

        new_id = ID_PROVIDER.pop()
        found = self.ask(AttributeMessage(self._id_at_location, attr_name, return_id=new_id))
        return self._speaker().pointer_from(found, self._location)  # type: ignore[no-any-return]

    def setattr(self, name: str, value: Any) -> None:
        """Set an attribute of the remote object to a value or to another object of the same worker."""
        child = getattr(value, "child", None)
        value = value if child is None else child
        sent = value.ref() if isinstance(value, ObjectPointer) else value
        self.ask(AttributeMessage(self._id_at_location, name, value=sent, is_write=True))

    # -- names of 2020 ------------------------------------------------------------------------------

    @staticmethod
    def create_pointer(
        obj: Any,
        location: Any = None,
        id_at_location: Any = None,
        register: bool = False,
        owner: Any = None,
        ptr_id: Any = None,
        garbage_collect_data: bool = True,
    ) -> Any:
        """A pointer, of the kind that fits, to an object that a worker holds already."""
        me = session.require_local_worker()
        kind = POINTERS[getattr(obj, "pointer_kind", "object")]
        pointer = kind(
            me.get_worker(obj.owner if location is None else location, fail_hard=True),
            obj.id if id_at_location is None else id_at_location,
            owner,
            ptr_id,
            garbage_collect_data,
            tags=obj.tags,
            description=obj.description,
        )
        if register:
            (owner or me).register_obj(pointer, pointer.id)
        return pointer

    def wrap(self, type: Any = None, register: bool = False, **kwargs: Any) -> Any:
        """The pointer itself, which needs no wrapper; `register` makes its owner keep it."""
        if register:
            self.owner.register_obj(self, self.id)
        return self

    @classmethod
    def find_a_pointer(cls, command: Any) -> Any:
        """The first pointer in a command (name, self, args, kwargs); None if it has none."""
        _name, method_self, args, kwargs = command
        return next(found_in((method_self, args, kwargs), ObjectPointer), None)

    @classmethod
    def handle_func_command(cls, command: Any) -> Any:
        """Run a command where the first pointer in it points to."""
        pointer = cls.find_a_pointer(command)
        if pointer is None:
            raise ValueError(
                f"The command {command[0]!r} has no pointer in it, so no worker can be chosen to run it."
            )
        return pointer._speaker().send_command(pointer.location, command)

    def _create_attr_name_string(self, attr_name: str) -> str:
        """The dotted name of an attribute of what this pointer points to."""
        return attr_name if self.point_to_attr is None else f"{self.point_to_attr}.{attr_name}"

    def __str__(self) -> str:
        return describe_pointer(self)

    __repr__ = __str__


def describe_pointer(pointer: Any) -> str:
    """`[PointerTensor | me:1 -> bob:2]` and what is known of the object, never its content.

    Names, tags and descriptions are others' words: they cannot command a terminal.
    """
    owner, location = pointer.owner, pointer.location
    attribute = f"::{pointer.point_to_attr}" if getattr(pointer, "point_to_attr", None) else ""
    text = printable(
        f"[{type(pointer).__name__} | {getattr(owner, 'id', owner)}:{pointer.id} -> "
        f"{getattr(location, 'id', location)}:{pointer.id_at_location}{attribute}]"
    )
    if pointer.tags or pointer.description:
        if pointer.tags:
            text += "\n\tTags: " + " ".join(sorted(printable(tag) for tag in pointer.tags))
        if getattr(pointer, "spec", None) is not None:
            text += f"\n\tShape: {pointer.shape}"
        if pointer.description:
            text += "\n\tDescription: " + printable(str(pointer.description).split("\n")[0])
    return text


#: The pointer class of each kind of object. Others add theirs.
POINTERS: FilledLater[str, type[ObjectPointer]] = FilledLater({"object": ObjectPointer})
