"""`ObjectStorage`: the table of what a worker holds, and what is waiting to be deleted."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Collection, Iterable
from typing import Any, TypeVar

import torch

from syft.core.identity import identity_of, known_identity, tags_of
from syft.core.interfaces import Id
from syft.core.placing import on_device
from syft.exceptions import ObjectNotFoundError, QuotaExceededError
from syft.policy.permissions import About, Allowed, intersect
from syft.tensors import kept_graphs
from syft.workers.entry import SHOWN, Entry, Objects, changed_copy
from syft.workers.findable import Findable
from syft.workers.guards import PERMISSION, RELEASED_ONLY, Guard, Guards, Ownership, Quota
from syft.workers.holdings import Holdings, storages_of

# NOTE [Prepared, then committed]
# `store_entry` first does everything that may refuse an object: who may replace what is there, the quota, the data
# directory. Then the entry is put into the table by one assignment. Whatever refuses it, the entry that was there
# stays, and with it all that was known about it.

_Kept = TypeVar("_Kept")
#: In the place of a restriction: the one that is there.
AS_IT_IS: Any = object()


class ObjectStorage:
    """One `Entry` per object in one table, `_entries`; `_objects` shows the values."""

    id: Any = None
    policy: Any
    #: Where tensors are kept, if not on the CPU: see `syft.core.placing`.
    device: Any = None
    admits_only_table: bool
    #: Whether nothing else than the table, and the guards, hears of an object that goes.
    _removes_at_once = True
    #: Ids of objects that are not here and of which users have been told.
    elsewhere: Collection[Any] = frozenset()

    def __init__(self) -> None:
        self._entries: dict[Any, Entry] = {}
        #: The objects that a search may find.
        self._findable = Findable()
        self._view = Objects(self)
        #: What upper rooms keep with a worker: one object of each class.
        self._extensions: dict[type, Any] = {}
        #: What every command passes, in this order; an open worker has none.
        self.guards = Guards()
        #: Who pays for what, where the policy is guarded: see NOTE [Whose objects] in permissions.
        self._holdings: Holdings | None = None
        #: The loss and the tape that were differentiated last, weakly, while the graph of the client may not be freed.
        self._last_graph: Any = None
        self._waiting_deletes: deque[Any] = deque()
        self._deleting = threading.Lock()

    def guard_with(self, holdings: Holdings) -> None:
        """Note from now on who holds what, and refuse what is too much."""
        self._holdings = holdings
        self.admits_only_table, self.keeps_graphs = True, False
        self.guards.set([PERMISSION, Ownership(), Quota(holdings)])

    def add_guard(self, guard: Guard) -> None:
        """Let every command pass one more guard, after the others."""
        if not self.guards:
            self.guards.append(PERMISSION)
        self.guards.append(guard)
        self.keeps_graphs = False

    def extension(self, kind: type[_Kept]) -> _Kept:
        """The object of this class that an upper room keeps with this worker; made when it is first asked for."""
        found = self._extensions.get(kind)
        if found is None:
            found = self._extensions[kind] = kind()
        return found

    def known_extension(self, kind: type[_Kept]) -> _Kept | None:
        """The same, if it was asked for before."""
        return self._extensions.get(kind)

    @property
    def has_budgets(self) -> bool:
        """Whether its owner set budgets, so that statistics may be released."""
        return self.guards.follows_rows

    @property
    def _objects(self) -> Any:
        """The objects by id."""
        if self._last_graph is not None:
            kept_graphs.free_last(self)
        self.run_deletes()
        return self._view

    @_objects.setter
    def _objects(self, objects: dict[Any, Any]) -> None:
        chosen = dict(objects)  # they may be what is here
        self.clear_objects()
        for obj_id, obj in chosen.items():
            self.set_obj(obj_id, obj)

    # -- the documented store ----------------------------------------------------------------------

    def register_obj(self, obj: Any, obj_id: Id | None = None, allowed: Iterable[str] | None = None) -> None:
        """Keep an object under `obj_id`, or under its own id; `allowed` restricts who may fetch it."""
        obj_id = named(obj, obj_id)
        self.set_obj(obj_id, obj, None if allowed is None else frozenset(allowed))

    def de_register_obj(self, obj: Any, _recurse_torch_objs: bool = True) -> None:
        """Forget an object if it is held here."""
        if hasattr(obj, "id"):
            self.rm_obj(obj.id)

    def get_obj(self, obj_id: Id) -> Any:
        """The object of that id; !! ObjectNotFoundError with advice."""
        entry = self._entries.get(obj_id) if type(obj_id) is int else None
        entry = entry or self.entry_of(obj_id)
        obj, entry.spec = entry.value, SHOWN
        if type(obj) is torch.Tensor and known_identity(obj) is None:
            identity_of(obj).id = obj_id
        self._findable.may_be_named(entry)
        return obj

    def entry_of(self, obj_id: Id) -> Entry:
        """What is known about the object of that id; !! ObjectNotFoundError with advice."""
        try:
            return self._entries[obj_id]
        except (KeyError, TypeError):
            raise ObjectNotFoundError(obj_id, self) from None

    def set_obj(self, obj_id: Id, obj: Any, allowed: Any = AS_IT_IS, is_private: bool = False) -> None:
        """Keep an object under an id, to be fetched by `allowed`; !! QuotaExceededError where users have quotas.

        `is_private`: it was brought here as private.
        """
        entry = Entry(obj_id, obj, allowed, is_private=is_private)
        self.store_entry(entry)
        self._findable.may_be_named(entry)

    def store_entry(self, entry: Entry) -> None:
        """Put an entry into the table: see NOTE [Prepared, then committed]."""
        if self.device is not None:
            entry.value = on_device(entry.value, self.device)
        before = self._entries.get(entry.id)
        if entry.allowed is AS_IT_IS:
            entry.allowed = None if before is None else before.allowed
        for prepare in self.guards.store:
            prepare(self, entry, before)
        if before is not None:
            entry.references = before.references
            entry.is_private = entry.is_private or before.is_private
            entry.is_released_only = entry.is_released_only or before.is_released_only
            if before.is_owners and not entry.is_owners:
                entry.is_owners, entry.chosen = True, before.chosen
        try:
            self._persist(entry)
        except BaseException:
            self._drop(entry, before)
            raise
        self.put_entry(entry)
        if before is not None:
            self._drop(before, entry)

    def put_entry(self, entry: Entry) -> None:
        """Into the table, as it is; what may only be released comes with its guard."""
        if entry.is_released_only and RELEASED_ONLY not in self.guards:
            self.add_guard(RELEASED_ONLY)
        before = self._entries.get(entry.id)
        self._entries[entry.id] = entry
        if (
            type(entry.value) is not torch.Tensor
            or known_identity(entry.value) is not None
            or (before is not None and entry.id in self._findable.order)
        ):
            self._findable.note(entry, before)

    def _drop(self, entry: Entry, heir: Entry | None = None) -> None:
        for drop in self.guards.drop:
            drop(entry, heir)

    def _persist(self, entry: Entry) -> None:
        """Write an object to disk before it is in the table, where a worker does that. !! what prevents it"""

    def hand_over(self, obj_id: Id, user: str | None) -> bool:
        """Let another user hold an object, if it fits into what they may still hold; whether it does."""
        before = self._entries[obj_id]
        entry = changed_copy(before, holder=user)
        if self._holdings is None or not self._holdings.fits_whole(entry):
            return False
        try:
            self._holdings.charge(entry)
        except QuotaExceededError:  # too many objects
            return False
        self._entries[obj_id] = entry
        self._drop(before)
        return True

    def rm_obj(self, obj_id: Id) -> None:
        """Remove an object, or one reference to an object that was sent several times."""
        entry = self._entries.get(obj_id)
        if entry is None:
            return
        if entry.references:
            entry.references -= 1
            return
        self._entries.pop(obj_id, None)
        if obj_id in self._findable.order:
            self._findable.forget(entry)
        for drop in self.guards.drop:
            drop(entry, None)

    def force_rm_obj(self, obj_id: Id) -> None:
        """Remove an object however many pointers there are to it."""
        entry = self._entries.get(obj_id)
        if entry is not None:
            entry.references = 0
        self.rm_obj(obj_id)

    def clear_objects(self, return_self: bool = True) -> Any:
        """Remove everything."""
        self.run_deletes()
        for obj_id in list(self._entries):
            entry = self._entries.pop(obj_id, None)
            if entry is not None:
                self._drop(entry)
        self._findable.clear()
        return self if return_self else None

    def current_objects(self) -> dict[Any, Any]:
        """A copy of the table of objects."""
        return self._objects.copy()  # type: ignore[no-any-return]

    def __getitem__(self, obj_id: Id) -> Any:
        return self._objects.get(obj_id)

    def objects_count(self) -> int:
        return len(self._objects)

    def add_reference(self, obj_id: Id) -> None:
        """One more pointer that will ask for the deletion of an object that is here already."""
        with self._deleting:
            self._entries[obj_id].references += 1

    # -- deletes -----------------------------------------------------------------------------------

    def queue_delete(self, obj_id: Id) -> None:
        """Called by a dying pointer, at any point and from any thread."""
        if self._removes_at_once and not self._waiting_deletes:
            entry = self._entries.get(obj_id)
            if entry is None or not entry.references:
                entry = self._entries.pop(obj_id, None)
                if entry is not None:
                    if obj_id in self._findable.order:
                        self._findable.forget(entry)
                    for drop in self.guards.drop:
                        drop(entry, None)
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

    def allowed_users(self, obj_id: Id) -> Allowed:
        """The users who may fetch an object; None when it is not restricted."""
        entry = self._entries.get(obj_id)
        return None if entry is None else entry.allowed

    def restrict(self, obj_id: Id, allowed: Allowed) -> None:
        """Allow only these users (None: lift the restriction)."""
        entry = self._entries.get(obj_id)
        if entry is not None:
            entry.allowed = allowed

    def is_free(self, *obj_ids: Id) -> bool:
        """Whether everybody may have these objects, which are here."""
        found = [self._entries.get(obj_id) for obj_id in obj_ids]
        return not self.guards and all(entry is not None and entry.allowed is None for entry in found)

    def is_held_by(self, user: str | None, obj_id: Id) -> bool:
        """Whether it was this user who brought or computed an object, where that is noted."""
        entry = self._entries.get(obj_id)
        return entry is not None and self._holdings is not None and entry.holder == user

    def changeable_by(self, obj_id: Id) -> Allowed:
        """The users who may change or remove an object by message.

        Nobody, if the owner of the worker put it there. Else those who may fetch it and, where that is noted, the
        one who brought or computed it: what they write into it may take away that they may fetch it.
        """
        entry = self._entries.get(obj_id)
        if entry is None:
            return None if self._holdings is None else frozenset()
        if entry.is_owners:
            return frozenset()
        allowed: Allowed = entry.allowed
        if self._holdings is None:
            return allowed
        holder = entry.holder
        if allowed is not None and (holder is None or holder in allowed):
            return allowed
        return (allowed or frozenset()) | (frozenset() if holder is None else {holder})

    def about(self, obj_id: Id) -> About:
        """What the policy is told about an object that is held here."""
        entry = self._entries.get(obj_id)
        if entry is None:
            return About()
        return About(
            entry.allowed, tags_of(entry.value), entry.holder, entry.is_owners, entry.computers or ()
        )

    def sharing(self, tensors: Iterable[Any], spared: Collection[Entry] = ()) -> list[Entry]:
        """The entries that share memory with any of `tensors`, and with none of the entries `spared`."""
        # NB: a dict, in order: the order of a set of addresses would decide which of several objects an error names.
        storages = dict.fromkeys(address for t in tensors for address in storages_of(t))
        for entry in spared:
            for address in storages_of(entry.value):
                storages.pop(address, None)
        if not storages:
            return []
        # NB: a copy, because a finalizer may remove objects at any moment.
        among = (
            list(self._entries.copy().values()) if self._holdings is None else self._holdings.behind(storages)
        )
        return [entry for entry in among if not storages.keys().isdisjoint(storages_of(entry.value))]

    def taint(self, tensors: Iterable[Any], allowed: Allowed, sources: Collection[Entry]) -> None:
        """Restrict everything that shares memory with `tensors`, which `sources` are written into, like those."""
        for entry in self.sharing(tensors):
            for note in self.guards.may_be_written:
                note(entry)
            restrict_written(entry, allowed, sources)


def restrict_written(entry: Entry, allowed: Allowed, sources: Collection[Entry]) -> None:
    """Restrict an entry that `sources` are written into, which may be fetched by `allowed`."""
    entry.is_public = False
    if entry.allowed is not allowed:
        entry.allowed = intersect(entry.allowed, allowed)
        entry.computers = None
    elif entry.computers and any(source is not entry and source.allowed is not None for source in sources):
        entry.computers = None  # whoever brought what is written into it let nobody compute with that


def named(obj: Any, obj_id: Id | None) -> Any:
    """The id of an object that is registered; one that is given becomes the object's own, where it has one."""
    if obj_id is None:
        return obj.id
    if hasattr(obj, "id") and not (isinstance(obj, torch.Tensor) and known_identity(obj) is None):
        obj.id = obj_id
    return obj_id
