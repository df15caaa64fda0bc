"""`Entry`: everything that a worker knows about one object it holds; `Objects`: the documented view of the table."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from typing import TYPE_CHECKING, Any

import msgspec
import torch

from syft.core.identity import identity_of, known_identity
from syft.core.interfaces import Id
from syft.core.spec import TensorSpec, spec_of
from syft.policy.quotas import OWNER
from syft.tensors.pointer import PointerTensor

if TYPE_CHECKING:
    from syft.workers.store import ObjectStorage


class Entry(msgspec.Struct, eq=False):
    """One stored object and all facts about it. Entries are compared by identity.

    allowed      who may fetch the value
    holder       the user who brought or computed it, where the worker notes that; `quotas.OWNER` for the owner
    is_private   it was brought here as private, as against computed from private data
    is_trusted   the owner of the worker put it here and answers for what it does when it is called
    person_column      which of its columns names the person a row is of, where its owner said so
    is_released_only   nobody computes with it: it is released alone, with noise (guards.ReleasedOnly)
    is_owners    it is data of the owner of a guarded worker; `chosen` is the restriction they chose for it
    references   pointers that will ask for its deletion, beyond the first
    is_public    it is a constant of a program, as a number in a command is: results are not restricted for its sake
    computers    the users who may compute with it beside its holder and those who may fetch it
    secret       of which secret it is a share, in words of `syft.mpc.offers`, if others may know
    leaf         a client's pointer in this process, weakly, whose wrapper collects the gradient of the object
    tracked      the value with its graph, or as a leaf of graphs, where the worker keeps them
    failure      why it could not be computed; then the value is zeros, see NOTE [Nothing shows] in admitted
    spec         the metadata of a plain tensor that a command has used or made; `SHOWN` if it is looked at each time
    memory       its storage, and how large that was, while no other object shares it; see syft.workers.holdings
    own_bytes    what its holder is charged for beside the shared memory `blocks`, which are storages by address
    """

    id: Any
    value: Any
    allowed: Any = None
    holder: Any = None
    is_private: bool = False
    is_trusted: bool = False
    is_owners: bool = False
    chosen: Any = None
    references: int = 0
    own_bytes: int = 0
    blocks: Any = ()
    failure: str | None = None
    is_public: bool = False
    computers: Any = None
    secret: Any = None
    tracked: Any = None
    leaf: Any = None
    is_released_only: bool = False
    person_column: int | None = None
    spec: Any = None
    memory: Any = None
    memory_bytes: int = 0


#: In the place of the spec of an object that was handed to somebody in this process, who may change its metadata.
SHOWN: Any = object()


def spec_now(entry: Entry) -> TensorSpec | None:
    """The spec of a plain tensor without a graph; None for what is none. It is kept, unless somebody has the tensor."""
    value = entry.value
    if type(value) is not torch.Tensor or value.requires_grad or value.layout is not torch.strided:
        return None
    spec = spec_of(value)
    if entry.spec is None and entry.holder != OWNER and len(entry.blocks) == 1:
        entry.spec = spec
    return spec


def changed_copy(entry: Entry, **changes: Any) -> Entry:
    """An entry for the same object with other facts about it, for which nobody has been charged yet."""
    return msgspec.structs.replace(entry, own_bytes=0, blocks=(), memory=None, memory_bytes=0, **changes)


class Objects(MutableMapping[Any, Any]):
    """The objects of a worker by id, as `worker._objects` shows them: a view, in which writing stores and deletes."""

    __slots__ = ("_entries", "_store")

    def __init__(self, store: ObjectStorage) -> None:
        self._store, self._entries = store, store._entries

    def __getitem__(self, obj_id: Id) -> Any:
        """The object. A leaf whose gradient is here as well has it in `.grad`; its memory is that of the object."""
        entry = self._entries[obj_id]
        value, entry.spec = entry.value, SHOWN
        if type(value) is not torch.Tensor:
            return value
        if known_identity(value) is None:  # nobody asked before: it is the object of that id, here
            identity = identity_of(value)
            identity.id, identity.owner = obj_id, self._store
        self._store._findable.may_be_named(entry)
        leaf = None if entry.leaf is None else entry.leaf()
        node: Any = None if leaf is None or leaf.grad is None else leaf.grad.child
        is_here = isinstance(node, PointerTensor) and node.location.id == getattr(self._store, "id", None)
        gradient = self._entries.get(node.id_at_location) if is_here else None
        if gradient is None:
            return value
        shown = value.detach().requires_grad_()
        shown.grad = gradient.value
        return shown

    def __setitem__(self, obj_id: Id, obj: Any) -> None:
        self._store.set_obj(obj_id, obj)

    def __delitem__(self, obj_id: Id) -> None:
        if obj_id not in self._entries:
            raise KeyError(obj_id)
        self._store.force_rm_obj(obj_id)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, obj_id: object) -> bool:
        return obj_id in self._entries

    def clear(self) -> None:
        self._store.clear_objects()

    def copy(self) -> dict[Any, Any]:
        """A dict of the objects as they are now."""
        # NB: the table is copied first: a finalizer may remove objects at any moment.
        shown = {}
        for obj_id, entry in self._entries.copy().items():
            shown[obj_id], entry.spec = entry.value, SHOWN
            self._store._findable.may_be_named(entry)
        return shown

    def __repr__(self) -> str:
        return repr(self.copy())
