"""`ObjectStorage` with the parameters of 2020, at the edge of the store that workers have."""

from __future__ import annotations

from typing import Any

from syft.core.interfaces import Id
from syft.workers import store
from syft.workers.object_store import ObjectStore

#: In the place of an argument that was not given.
MISSING: Any = object()


class ObjectStorage(store.ObjectStorage):
    """The store with the parameters of 2020: `set_obj(obj)`, `rm_obj(remote_key=...)`."""

    def set_obj(
        self,
        obj_id: Id = MISSING,
        obj: Any = MISSING,
        allowed: Any = store.AS_IT_IS,
        is_private: bool = False,
    ) -> None:
        """Keep an object under an id; with one argument, an object under its own. See `ObjectStorage.set_obj`."""
        obj_id, obj = id_and_object(obj_id, obj)
        super().set_obj(obj_id, obj, allowed, is_private)

    def rm_obj(self, remote_key: Any) -> None:
        """Remove an object, or one reference to an object that was sent several times."""
        super().rm_obj(remote_key)

    def force_rm_obj(self, remote_key: Any) -> None:
        """Remove an object however many pointers there are to it."""
        super().force_rm_obj(remote_key)

    @property
    def object_store(self) -> ObjectStore:
        """What is held here, as later releases name it."""
        return ObjectStore(self)


def id_and_object(obj_id: Id, obj: Any) -> tuple[Any, Any]:
    """The id and the object that `set_obj` was given, the id from the object if it was given alone."""
    if obj is not MISSING and obj_id is not MISSING:
        return obj_id, obj
    alone = obj_id if obj is MISSING else obj
    own_id = getattr(alone, "id", None)
    if own_id is None:
        raise TypeError(
            f"set_obj() was given a {type(alone).__name__} without an id. Name one: set_obj(obj_id, obj)."
        )
    return own_id, alone
