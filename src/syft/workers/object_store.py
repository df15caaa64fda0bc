"""`worker.object_store`: a view on what a worker holds, under the names of the later releases."""

from __future__ import annotations

from typing import Any

import torch

from syft.core.identity import tags_of
from syft.core.interfaces import Id
from syft.workers.store import ObjectStorage


class ObjectStore:
    """The objects of one worker."""

    def __init__(self, owner: ObjectStorage) -> None:
        self.owner = owner

    @property
    def _objects(self) -> Any:
        return self.owner._objects

    @property
    def _tensors(self) -> dict[Any, torch.Tensor]:
        """The tensors among them, by id."""
        return {key: obj for key, obj in self._objects.items() if isinstance(obj, torch.Tensor)}

    def register_obj(self, owner: Any, obj: Any = None, obj_id: Id | None = None) -> None:
        """Keep an object as its owner's; a client keeps nothing. `owner` is this worker, and may be left out."""
        if obj is None:
            owner, obj = self.owner, owner
        if owner is not self.owner:
            raise ValueError(
                f"register_obj() was called with the worker {getattr(owner, 'id', owner)!r} on the store of "
                f"{self.owner.id!r}. Use the store of that worker."
            )
        self.owner.register_obj(obj, obj_id)

    def de_register_obj(self, obj: Any, _recurse_torch_objs: bool = True) -> None:
        self.owner.de_register_obj(obj, _recurse_torch_objs)

    def get_obj(self, obj_id: Id) -> Any:
        """The object of that id; !! ObjectNotFoundError"""
        return self.owner.get_obj(obj_id)

    def set_obj(self, obj: Any) -> None:
        """Keep an object under its own id."""
        self.owner.set_obj(obj.id, obj)

    def rm_obj(self, obj_id: Id, force: bool = False) -> None:
        """Remove an object, or one reference to it; with `force` however many there are."""
        (self.owner.force_rm_obj if force else self.owner.rm_obj)(obj_id)

    def force_rm_obj(self, obj_id: Id) -> None:
        self.owner.force_rm_obj(obj_id)

    def clear_objects(self) -> None:
        """Remove everything."""
        self.owner.clear_objects()

    def current_objects(self) -> dict[Any, Any]:
        """A copy of the table of objects."""
        return self.owner.current_objects()

    def find_by_id(self, id: Any) -> Any:
        """The object of that id; None if there is none."""
        return self._objects.get(id)

    def find_by_tag(self, tag: str) -> set[Any]:
        """The objects that have a tag."""
        return {obj for obj in self._objects.values() if tag in tags_of(obj)}

    def __len__(self) -> int:
        return len(self._objects)

    def __contains__(self, obj_id: Id) -> bool:
        return obj_id in self._objects

    def __str__(self) -> str:
        return (
            f"<ObjectStore of {self.owner.id!r} tensors:{list(self._tensors)} objects:{list(self._objects)}>"
        )

    __repr__ = __str__
