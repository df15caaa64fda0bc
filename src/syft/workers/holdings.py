"""`Holdings`: what memory is behind which objects of a worker, and who pays for it. It keeps the counts of `Quotas` true.

NOTE [Who pays for memory]
Several objects may share memory: a view, an alias. Memory is paid for once, by the user who held it first,
until nobody holds it; if they let go while others still hold it, the next holder pays. So a view of the owner's
data costs nothing, and a small view that keeps a large tensor alive costs what it keeps alive.
"""

from __future__ import annotations

import sys
import threading
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from types import ModuleType
from typing import Any

import msgspec
import numpy as np
import torch

from syft.core.chain import Wrapper
from syft.core.identity import known_identity
from syft.policy.quota_of_names import LARGEST_ID, check_id
from syft.policy.quotas import OWNER, UNLIMITED, Quota, Quotas, User
from syft.tensors.object_pointer import ObjectPointer
from syft.workers.abstract import AbstractWorker
from syft.workers.entry import Entry

# -- objects and the memory behind them ------------------------------------------------------------


class _Block(msgspec.Struct, eq=False):
    """A piece of memory that several objects share: who pays for it, how many of each user, and which entries."""

    nbytes: int
    payer: User
    storage: torch.UntypedStorage  # held, so that its address is not given to another
    holders: dict[User, int]
    entries: dict[Entry, None]  # a set in the order of arrival: addresses must not decide what a user reads


class Holdings:
    """What memory is behind which entries, and who pays for it. The counts in `quotas`, which are its own, follow.

    An entry may be released at any moment, also by the finalizer of a pointer that runs while this very
    thread is noting something: then it is released right after.
    """

    def __init__(self, quotas: Quotas) -> None:
        self.quotas = quotas
        #: The memory of one object is known by its entry, which holds it: `Entry.memory`.
        self._blocks: dict[Any, _Block | Entry] = {}
        #: Entries of objects that are no plain tensors: what they hold may change while they are held.
        self._opaque: dict[Entry, None] = {}
        self._waiting: deque[tuple[Entry, int]] = deque()
        self._lock = threading.Lock()

    def charge(self, entry: Entry, count: int = 1) -> None:
        """Charge the holder of an entry for what it keeps. !! QuotaExceededError; nothing is charged then

        `count` is 0 if it takes the place of an entry of the same holder. What is in `entry.own_bytes` is charged, too.
        """
        obj_id, user = entry.id, entry.holder
        if type(obj_id) is not int or not -LARGEST_ID <= obj_id < LARGEST_ID:
            if user != OWNER:
                check_id(obj_id)
        obj = entry.value
        if type(obj) is torch.Tensor and known_identity(obj) is None and obj.layout is torch.strided:
            self._charge_one(entry, obj.untyped_storage(), count)  # by far the most are this
            return
        own_bytes, blocks = _memory_of(obj)
        own_bytes += entry.own_bytes
        self._lock.acquire()
        try:
            if self._waiting:
                self._carry_out_releases()
            known, needed = self._blocks, own_bytes
            for key, storage in blocks.items():
                if key not in known:
                    needed += storage.nbytes()
            self.quotas.charge(user, needed, count)
            for key, storage in blocks.items():
                if key not in known:
                    known[key] = _Block(storage.nbytes(), user, storage, {user: 1}, {entry: None})
                else:
                    self._share(key, entry)
            entry.own_bytes, entry.blocks = own_bytes, tuple(blocks)
            if type(obj) is not torch.Tensor:
                self._opaque[entry] = None
        finally:
            self._lock.release()
            if self._waiting:
                self._run_releases()

    def _charge_one(self, entry: Entry, storage: torch.UntypedStorage, count: int) -> None:
        """`charge` for a tensor that nobody named."""
        self.charge_result(entry, storage, self.quotas.quota_of(entry.holder), count)

    def charge_result(
        self, entry: Entry, storage: torch.UntypedStorage, quota: Quota, count: int = 1
    ) -> None:
        """`charge` for a tensor that nobody named, in this memory, of a user who has this quota."""
        key = storage._cdata
        self._lock.acquire()
        try:
            if self._waiting:
                self._carry_out_releases()
            if key in self._blocks:
                self.quotas.charge(entry.holder, entry.own_bytes, count, quota)
                self._share(key, entry)
            else:
                nbytes = storage.nbytes()
                self.quotas.charge(entry.holder, nbytes + entry.own_bytes, count, quota)
                self._blocks[key] = entry
                entry.memory, entry.memory_bytes = storage, nbytes
            entry.blocks = (key,)
        finally:
            self._lock.release()
            if self._waiting:
                self._run_releases()

    def _share(self, key: Any, entry: Entry) -> None:
        """Note one more entry in memory that is known."""
        known, user = self._blocks[key], entry.holder
        if isinstance(known, Entry):
            block = _Block(known.memory_bytes, known.holder, known.memory, {known.holder: 1}, {known: None})
            self._blocks[key] = block
            known.memory = None
        else:
            block = known
        block.holders[user] = block.holders.get(user, 0) + 1
        block.entries[entry] = None

    def is_alone(self, entry: Entry) -> bool:
        """Whether nothing else that is here can have a part in the memory of a tensor."""
        return entry.memory is not None and not self._opaque

    def fits_whole(self, entry: Entry) -> bool:
        """Whether all memory behind an entry, shared or not, fits into what its holder may still hold."""
        own_bytes, blocks = _memory_of(entry.value)
        left = self.quotas.bytes_left(entry.holder)
        return left is None or own_bytes + sum(storage.nbytes() for storage in blocks.values()) <= left

    def release(self, entry: Entry, count: int = 1) -> None:
        """Note that an entry that was charged is gone; `count` as it was charged."""
        if self._waiting or not self._lock.acquire(blocking=False):
            self._waiting.append((entry, count))
        else:
            try:
                if entry.memory is not None:  # as most have
                    del self._blocks[entry.blocks[0]]
                    self.quotas.release(entry.holder, entry.own_bytes + entry.memory_bytes, count)
                else:
                    self._release(entry, count)
            finally:
                self._lock.release()
        if self._waiting:
            self._run_releases()

    def _run_releases(self) -> None:
        """Whoever holds the lock does this after giving it back, so that no release is left waiting."""
        while self._waiting and self._lock.acquire(blocking=False):
            try:
                self._carry_out_releases()
            finally:
                self._lock.release()

    def _carry_out_releases(self) -> None:
        while self._waiting:
            self._release(*self._waiting.popleft())

    def _release(self, entry: Entry, count: int) -> None:
        if self._opaque:
            self._opaque.pop(entry, None)
        freed = entry.own_bytes
        if entry.memory is not None:
            del self._blocks[entry.blocks[0]]
            freed += entry.memory_bytes
        else:
            freed += self._leave(entry)
        self.quotas.release(entry.holder, freed, count)

    def _leave(self, entry: Entry) -> int:
        """An entry leaves memory that others have a part in: how much its holder pays less."""
        freed, user = 0, entry.holder
        for key in entry.blocks:
            block: Any = self._blocks[key]
            block.entries.pop(entry, None)
            left = block.holders[user] - 1
            if left:
                block.holders[user] = left
            else:
                del block.holders[user]
                if block.payer == user:
                    freed += block.nbytes
                    self._pass_on(key, block)
            if len(block.entries) == 1:
                self._leave_alone(key, block)
        return freed

    def _leave_alone(self, key: Any, block: _Block) -> None:
        """One entry is left in memory that was shared."""
        (last,) = block.entries
        if last not in self._opaque and len(last.blocks) == 1:
            self._blocks[key] = last
            last.memory, last.memory_bytes = block.storage, block.nbytes

    def _pass_on(self, key: Any, block: _Block) -> None:
        """The payer has let go: the next holder pays, or the memory is nobody's."""
        if not block.holders:
            del self._blocks[key]
            return
        block.payer = next(iter(block.holders))
        # NB: above their quota, if need be: it is theirs already, and they can only let go of it.
        self.quotas.charge(block.payer, block.nbytes, 0, UNLIMITED)

    def __bool__(self) -> bool:
        return True

    def behind(self, addresses: Iterable[Any]) -> list[Entry]:
        """The entries of tensors in this memory, and of objects that may hold some of it, in the order of arrival.

        Memory is named as `torch.UntypedStorage._cdata` does.
        """
        found: dict[Entry, None] = {}
        for address in addresses:
            block = self._blocks.get(address)
            if isinstance(block, Entry):
                found[block] = None
            elif block is not None:
                found |= block.entries
        return [*found, *self._opaque]


_Storages = dict[Any, torch.UntypedStorage]


def _memory_of(obj: Any) -> tuple[int, _Storages]:
    """Bytes of its own, and the pieces of memory behind an object, by their identity."""
    own_bytes = 0
    blocks: _Storages = {}
    for part in held_in(obj):
        if isinstance(part, torch.Tensor):
            if part.layout is torch.strided:
                storage = part.untyped_storage()
                blocks[storage._cdata] = storage
            known = known_identity(part)
            if known is not None:
                own_bytes += sum(map(_bytes_of_text, known.tags)) + _bytes_of_text(known.description)
        elif isinstance(part, np.ndarray):
            own_bytes += part.nbytes
        elif isinstance(part, (str, bytes, bytearray)):
            own_bytes += _bytes_of_text(part)
        else:
            own_bytes += _SMALL
            # NB: of the class. What stands in an object, its user wrote.
            if hasattr(type(part), "costs_bytes"):
                own_bytes += part.costs_bytes
    return own_bytes, blocks


def storages_of(obj: Any) -> set[Any]:
    """Identities of the memory behind a stored object, whatever holds it; and of what pointers in it point to."""
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


def _bytes_of_text(text: Any) -> int:
    """What a text takes in memory, where a character takes up to four bytes, and that of the place it stands in."""
    return 0 if text is None else sys.getsizeof(text) + _SMALL


def held_in(obj: Any) -> Iterator[Any]:
    """An object and everything inside it: tensors and texts as often as they stand there, all else once."""
    seen: set[int] = set()
    waiting = [obj]
    while waiting:
        part = waiting.pop()
        if type(part) is Wrapper:
            waiting.append(part.child)
        elif isinstance(part, _LEAVES):
            yield part
        elif id(part) not in seen:
            seen.add(id(part))
            yield part
            waiting.extend(_parts_of(part))


_LEAVES = (torch.Tensor, np.ndarray, str, bytes, bytearray)


def _parts_of(obj: Any) -> Iterable[Any]:
    """What an object holds. Pointers, workers, modules and classes hold nothing of the user's."""
    if isinstance(obj, (type, AbstractWorker, ModuleType, ObjectPointer)):
        return ()
    if isinstance(obj, Mapping):
        return (*obj.keys(), *obj.values())
    if isinstance(obj, (list, tuple, set, frozenset)):
        return obj
    if hasattr(obj, "held_tensors"):
        held: Iterable[Any] = obj.held_tensors()
        return held
    return tuple(getattr(obj, "__dict__", {}).values())


#: What is charged for an object itself, beside the tensors and texts it holds.
_SMALL = 16
