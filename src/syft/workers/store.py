"""`ObjectStorage`: what a worker holds, who may fetch it, and what is waiting to be deleted."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Collection, Iterable
from typing import Any

import torch

from syft.core.identity import identity_of, known_identity
from syft.core.nested import found_in
from syft.exceptions import ObjectNotFoundError, QuotaExceededError
from syft.tensors.object_pointer import ObjectPointer
from syft.workers.caller import proved_user
from syft.workers.permissions import About, Allowed, Policy, intersect
from syft.workers.quotas import OWNER, Holdings, bytes_of_allowed, held_in

# NOTE [Stored with its restriction]
# An object and the users who may fetch it are written in one step, `set_obj(obj_id, obj, allowed)`, after everything
# that may refuse it: who may replace what is there, the quota, the data directory. Whatever refuses it, what was there
# before stays, with the restriction, the holder and the trust it had. `restrict` by itself is for what is held already.

#: In the place of a restriction: the one that is there.
AS_IT_IS: Any = object()


class ObjectStorage:
    """Objects by id in a dict, `_objects`; restrictions stand beside it, for those that have one."""

    id: Any = None
    policy: Any

    def __init__(self) -> None:
        self._stored: dict[Any, Any] = {}
        self._allowed: dict[Any, frozenset[str]] = {}
        self._extra_references: dict[Any, int] = {}
        #: What was brought here as private, as against what was computed from it.
        self._private_ids: set[Any] = set()
        #: What the owner put here: the owner answers for what it does when it is called.
        self._trusted_ids: set[Any] = set()
        #: What upper rooms keep with a worker, by their own name for it.
        self._attached: dict[str, Any] = {}
        #: Who brought or computed what, where the policy is guarded: see NOTE [Whose objects] in permissions.
        self._holdings: Holdings | None = None
        #: What the owner of a guarded worker put here, and the restriction they chose for it.
        self._owners_data: dict[Any, Allowed] = {}
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
        self.set_obj(obj_id, obj, None if allowed is None else frozenset(allowed))

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

    def set_obj(self, obj_id: Any, obj: Any, allowed: Any = AS_IT_IS, is_private: bool = False) -> None:
        """Keep an object under an id, to be fetched by `allowed`; !! QuotaExceededError where users have quotas.

        `is_private`: it was brought here as private. When it is refused, everything is as it was: see NOTE
        [Stored with its restriction].
        """
        if self._holdings is not None:
            holder = proved_user(OWNER)
            # The last of several checks, and the one that none passes by:
            if holder != OWNER and obj_id in self._stored:
                self.policy.check_send(holder, obj_id, self.changeable_by(obj_id))
            named = bytes_of_allowed(allowed, is_private) if holder != OWNER else 0
            unsaid = allowed is None or (allowed is AS_IT_IS and obj_id not in self._allowed)
            if unsaid and holder != OWNER:
                policy: Policy = self.policy
                allowed = policy.on_result(None, holder)
            self._holdings.hold(obj_id, obj, holder, named)
        # Nothing below refuses anything.
        if allowed is None:
            self._allowed.pop(obj_id, None)
        elif allowed is not AS_IT_IS:
            self._allowed[obj_id] = allowed
        if is_private:
            self._private_ids.add(obj_id)
        if self._trusted_ids:  # whoever put it here: `register_obj` says again that it is the owner's
            self._trusted_ids.discard(obj_id)
        self._stored[obj_id] = obj

    def put_in_place(self, obj_id: Any, obj: Any) -> None:
        """Put an object in the place of one that is here: with its holder, its restriction and what it costs."""
        if obj_id in self._stored:
            self._stored[obj_id] = obj

    def _to_put_back(self, obj_id: Any) -> Callable[[], None]:
        """What makes everything about an id as it is now, after something was stored under it."""
        if obj_id not in self._stored:
            return lambda: self.force_rm_obj(obj_id)
        obj, allowed, holdings = self._stored[obj_id], self._allowed.get(obj_id), self._holdings
        is_private, is_trusted = obj_id in self._private_ids, obj_id in self._trusted_ids
        is_held = holdings is not None and holdings.is_held(obj_id)
        holder = None if holdings is None else holdings.holder_of(obj_id)

        def put_back() -> None:
            self.restrict(obj_id, intersect(self._allowed.get(obj_id), allowed))
            self._stored[obj_id] = obj
            self.restrict(obj_id, allowed)
            (self._private_ids.add if is_private else self._private_ids.discard)(obj_id)
            if is_trusted:
                self._trusted_ids.add(obj_id)
            if holdings is None:
                return
            holdings.drop(obj_id)
            if is_held:
                try:
                    named = bytes_of_allowed(allowed, is_private) if holder != OWNER else 0
                    holdings.hold(obj_id, obj, holder, named)
                except QuotaExceededError:  # the owner allows less by now than when it came
                    self.force_rm_obj(obj_id)

        return put_back

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
        self._trusted_ids.discard(obj_id)
        if self._allowed:
            self._allowed.pop(obj_id, None)
            self._private_ids.discard(obj_id)
        if self._holdings is not None:
            self._holdings.drop(obj_id)
            self._owners_data.pop(obj_id, None)

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
        self._trusted_ids.clear()
        self._owners_data.clear()
        if self._holdings is not None:
            self._holdings.clear()
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
        if not (self._allowed or self._extra_references or self._waiting_deletes or self._holdings):
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

    def is_held_by(self, user: str | None, obj_id: Any) -> bool:
        """Whether it was this user who brought or computed an object, where that is noted."""
        holdings = self._holdings
        return holdings is not None and holdings.is_held_by(user, obj_id)

    def remeasure(self, *values: Any) -> None:
        """After something was written into tensors among these: an `out=` may have grown.

        !! QuotaExceededError if it grew above the quota. Then everything that shares its memory is gone: it was a
        user's, because what is the owner's cannot be written into.
        """
        if self._holdings is None:
            return
        too_much = self._holdings.remeasure(found_in(values, torch.Tensor))
        for obj_id in too_much.difference(self._owners_data):
            self.force_rm_obj(obj_id)
        if too_much:
            raise QuotaExceededError(
                "What was written into has grown to more than the user may hold on this worker, and was dropped. Write "
                "into a tensor that has the size of the result, or ask the owner for more."
            )

    def changeable_by(self, obj_id: Any) -> Allowed:
        """The users who may change or remove an object by message.

        Nobody, if the owner of the worker put it there. Else those who may fetch it and, where that is noted, the
        one who brought or computed it: what they write into it may take away that they may fetch it.
        """
        if obj_id in self._owners_data:
            return frozenset()
        allowed = self.allowed_users(obj_id)
        if self._holdings is None:
            return allowed
        holder = self._holdings.holder_of(obj_id)
        if allowed is not None and (holder is None or holder in allowed):
            return allowed
        return (allowed or frozenset()) | (frozenset() if holder is None else {holder})

    def about(self, obj_id: Any) -> About:
        """What the policy is told about an object that is held here."""
        holder = None if self._holdings is None else self._holdings.holder_of(obj_id)
        return About(
            self.allowed_users(obj_id), tags_of(self._stored.get(obj_id)), holder, obj_id in self._owners_data
        )

    def private_among(self, tensors: Iterable[Any], among: Collection[Any] | None = None) -> list[Any]:
        """The ids of what was brought here as private (or of `among`) and shares memory with any of `tensors`."""
        among = self._private_ids if among is None else among
        storages = {address for t in tensors for address in _storages(t)} if among else None
        if not storages:
            return []
        found: list[Any] = []
        if self._is_indexed():
            known, perhaps = self._holdings.sharing(storages)  # type: ignore[union-attr]
            found, among = [i for i in known if i in among], perhaps.intersection(among)
        found += [i for i in tuple(among) if not storages.isdisjoint(_storages(self._stored.get(i)))]
        return found

    def _is_indexed(self) -> bool:
        """Whether the holdings know of every object; one that was stored past them has to be looked for."""
        return self._holdings is not None and len(self._holdings) == len(self._stored)

    def taint(self, tensors: Iterable[Any], allowed: Allowed, spared: Collection[Any] = ()) -> None:
        """Restrict everything that shares memory with `tensors`, which restricted data is written into.

        `spared` are the ids of what is known not to be written into.
        """
        storages = {address for t in tensors for address in _storages(t)}
        for obj_id in spared:  # nor into views of it, whoever holds them
            storages -= _storages(self._stored.get(obj_id))
        if not storages:
            return
        provenance = self._attached.get("provenance")
        # NB: a copy, because a finalizer may remove objects at any moment.
        if self._is_indexed():
            known, perhaps = self._holdings.sharing(storages)  # type: ignore[union-attr]
            ids: Iterable[Any] = known | perhaps
        else:
            ids = self._stored.copy()
        for obj_id in ids:
            if provenance is None and self._allowed.get(obj_id) is allowed:
                continue  # it is restricted like that
            if obj_id not in spared and not storages.isdisjoint(_storages(self._stored.get(obj_id))):
                self.restrict(obj_id, intersect(self.allowed_users(obj_id), allowed))
                if provenance is not None:
                    provenance.may_be_written(self._stored.get(obj_id))


def tags_of(obj: Any) -> Collection[str]:
    """The tags of a stored object. A tensor that was never tagged is not given an identity for it."""
    if type(obj) is torch.Tensor:
        known = known_identity(obj)
        return known.tags if known is not None else ()
    return getattr(obj, "tags", None) or ()


def _storages(obj: Any) -> set[Any]:
    """Identities of the memory behind a stored object, whatever holds it."""
    if type(obj) is torch.Tensor and obj.layout is torch.strided:
        return {obj.untyped_storage()._cdata}
    found: set[Any] = set()
    for part in held_in(obj):
        if isinstance(part, torch.Tensor):
            if part.layout is torch.strided:
                found.add(part.untyped_storage()._cdata)
        elif isinstance(part, ObjectPointer):
            found.add((part.location.id, part.id_at_location))
    return found
