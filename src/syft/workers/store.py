"""`ObjectStorage`: what a worker holds, who may fetch it, and what is waiting to be deleted."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable
from typing import Any

import torch

from syft.core.chain import Wrapper
from syft.core.identity import identity_of, known_identity
from syft.exceptions import ObjectNotFoundError
from syft.workers.permissions import Allowed, intersect


class ObjectStorage:
    """Objects by id in a dict, `_objects`; restrictions stand beside it, for those that have one."""

    id: Any = None

    def __init__(self) -> None:
        self._stored: dict[Any, Any] = {}
        self._allowed: dict[Any, frozenset[str]] = {}
        self._extra_references: dict[Any, int] = {}
        #: What was brought here as private, as against what was computed from it.
        self._private_ids: set[Any] = set()
        self._waiting_deletes: deque[Any] = deque()
        self._deleting = threading.Lock()

    @property
    def _objects(self) -> dict[Any, Any]:
        self.run_deletes()
        return self._stored

    # -- the documented store ----------------------------------------------------------------------

    def register_obj(self, obj: Any, obj_id: Any = None, allowed: Iterable[str] | None = None) -> None:
        """Keep an object under `obj_id`, or under its own id; `allowed` restricts who may fetch it."""
        if obj_id is None:
            obj_id = obj.id
        elif hasattr(obj, "id") and not (isinstance(obj, torch.Tensor) and known_identity(obj) is None):
            obj.id = obj_id
        self.restrict(obj_id, None if allowed is None else frozenset(allowed))
        self.set_obj(obj_id, obj)

    def de_register_obj(self, obj: Any, _recurse_torch_objs: bool = True) -> None:
        """Forget an object if it is held here."""
        if hasattr(obj, "id"):
            self.rm_obj(obj.id)

    def get_obj(self, obj_id: Any) -> Any:
        """The object of that id; !! ObjectNotFoundError with advice."""
        try:
            obj = self._stored[obj_id]
        except (KeyError, TypeError):
            raise ObjectNotFoundError(obj_id, self) from None
        if type(obj) is torch.Tensor and known_identity(obj) is None:
            identity_of(obj).id = obj_id
        return obj

    def set_obj(self, obj_id: Any, obj: Any) -> None:
        self._stored[obj_id] = obj

    def rm_obj(self, obj_id: Any) -> None:
        """Remove an object, or one reference to an object that was sent several times."""
        extra = self._extra_references.get(obj_id)
        if extra:
            if extra == 1:
                del self._extra_references[obj_id]
            else:
                self._extra_references[obj_id] = extra - 1
            return
        self._stored.pop(obj_id, None)
        if self._allowed:
            self._allowed.pop(obj_id, None)
            self._private_ids.discard(obj_id)

    def force_rm_obj(self, obj_id: Any) -> None:
        """Remove an object however many pointers there are to it."""
        self._extra_references.pop(obj_id, None)
        self.rm_obj(obj_id)

    def clear_objects(self, return_self: bool = True) -> Any:
        """Remove everything."""
        self.run_deletes()
        self._stored.clear()
        self._allowed.clear()
        self._extra_references.clear()
        self._private_ids.clear()
        return self if return_self else None

    def current_objects(self) -> dict[Any, Any]:
        """A copy of the table of objects."""
        return dict(self._objects)

    def __getitem__(self, obj_id: Any) -> Any:
        return self._objects.get(obj_id)

    def objects_count(self) -> int:
        return len(self._objects)

    def add_reference(self, obj_id: Any) -> None:
        """One more pointer that will ask for the deletion of an object that is here already."""
        with self._deleting:
            self._extra_references[obj_id] = self._extra_references.get(obj_id, 0) + 1

    # -- deletes -----------------------------------------------------------------------------------

    def queue_delete(self, obj_id: Any) -> None:
        """Called by a dying pointer, at any point and from any thread."""
        if not (self._allowed or self._extra_references or self._waiting_deletes):
            self._stored.pop(obj_id, None)
            return
        self._waiting_deletes.append(obj_id)
        self.run_deletes()

    def run_deletes(self) -> None:
        """Carry out what pointers asked for. A call from inside itself leaves the rest to the outer one."""
        if not self._waiting_deletes or not self._deleting.acquire(blocking=False):
            return
        try:
            while self._waiting_deletes:
                self.rm_obj(self._waiting_deletes.popleft())
        finally:
            self._deleting.release()

    # -- restrictions ------------------------------------------------------------------------------

    def allowed_users(self, obj_id: Any) -> Allowed:
        """The users who may fetch an object; None when it is not restricted."""
        return self._allowed.get(obj_id)

    def restrict(self, obj_id: Any, allowed: Allowed) -> None:
        """Allow only these users (None: lift the restriction)."""
        if allowed is None:
            self._allowed.pop(obj_id, None)
        else:
            self._allowed[obj_id] = allowed

    def private_among(self, tensors: Iterable[Any]) -> list[Any]:
        """The ids of what was brought here as private and shares memory with any of `tensors`."""
        if not self._private_ids:
            return []
        storages = {address for t in tensors for address in _storages(t)}
        return [i for i in self._private_ids if not storages.isdisjoint(_storages(self._stored.get(i)))]

    def taint(self, tensors: Iterable[Any], allowed: Allowed) -> None:
        """Restrict everything that shares memory with `tensors`, which restricted data is written into."""
        storages = {address for t in tensors for address in _storages(t)}
        if not storages:
            return
        # NB: a copy, because a finalizer may remove objects at any moment.
        for obj_id, obj in self._stored.copy().items():
            if not storages.isdisjoint(_storages(obj)):
                self.restrict(obj_id, intersect(self.allowed_users(obj_id), allowed))


def _storages(obj: Any, depth: int = 0) -> set[Any]:
    """Identities of the memory behind a stored object, whatever holds it."""
    if type(obj) is Wrapper:
        return _storages(obj.child, depth)
    if isinstance(obj, torch.Tensor):
        return {obj.untyped_storage()._cdata} if obj.layout is torch.strided else set()
    if getattr(obj, "id_at_location", None) is not None:
        return {(obj.location.id, obj.id_at_location)}
    if depth > _DEPTH:
        return set()
    held: Any = ()
    if isinstance(obj, dict):
        held = obj.values()
    elif isinstance(obj, (list, tuple)):
        held = obj
    elif hasattr(obj, "held_tensors"):
        held = obj.held_tensors()
    elif hasattr(obj, "__dict__"):
        held = vars(obj).values()
    return {address for value in held for address in _storages(value, depth + 1)}


#: How far a stored object is searched for tensors that share memory with others.
_DEPTH = 4
