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
from syft.core.interfaces import Id
from syft.exceptions import QuotaExceededError
from syft.policy.quotas import OWNER, Quotas, User
from syft.tensors.object_pointer import ObjectPointer
from syft.workers.abstract import AbstractWorker
from syft.workers.entry import Entry

# -- objects and the memory behind them ------------------------------------------------------------


class _Block(msgspec.Struct, eq=False):
    """A piece of memory, who pays for it, how many objects of each user it is behind, and which entries these are."""

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
        self._blocks: dict[Any, _Block] = {}
        #: Entries of objects that are no plain tensors: what they hold may change while they are held.
        self._opaque: dict[Entry, None] = {}
        self._waiting: deque[tuple[Entry, int]] = deque()
        self._lock = threading.Lock()

    def charge(self, entry: Entry, count: int = 1) -> None:
        """Charge the holder of an entry for what it keeps. !! QuotaExceededError; nothing is charged then

        `count` is 0 if it takes the place of an entry of the same holder. What is in `entry.own_bytes` is charged, too.
        """
        obj_id, user = entry.id, entry.holder
        if type(obj_id) is not int or not -_LARGEST_ID <= obj_id < _LARGEST_ID:
            if user != OWNER:
                _check_id(obj_id)
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
                block = known.get(key)
                if block is None:
                    known[key] = _Block(storage.nbytes(), user, storage, {user: 1}, {entry: None})
                else:
                    block.holders[user] = block.holders.get(user, 0) + 1
                    block.entries[entry] = None
            entry.own_bytes, entry.blocks = own_bytes, tuple(blocks)
            if type(obj) is not torch.Tensor:
                self._opaque[entry] = None
        finally:
            self._lock.release()
            if self._waiting:
                self._run_releases()

    def _charge_one(self, entry: Entry, storage: torch.UntypedStorage, count: int) -> None:
        """`charge` for a tensor that nobody named."""
        key, user = storage._cdata, entry.holder
        self._lock.acquire()
        try:
            if self._waiting:
                self._carry_out_releases()
            block = self._blocks.get(key)
            if block is None:
                nbytes = storage.nbytes()
                self.quotas.charge(user, nbytes + entry.own_bytes, count)
                self._blocks[key] = _Block(nbytes, user, storage, {user: 1}, {entry: None})
            else:
                self.quotas.charge(user, entry.own_bytes, count)
                block.holders[user] = block.holders.get(user, 0) + 1
                block.entries[entry] = None
            entry.blocks = (key,)
        finally:
            self._lock.release()
            if self._waiting:
                self._run_releases()

    def fits_whole(self, entry: Entry) -> bool:
        """Whether all memory behind an entry, shared or not, fits into what its holder may still hold."""
        own_bytes, blocks = _memory_of(entry.value)
        left = self.quotas.bytes_left(entry.holder)
        return left is None or own_bytes + sum(storage.nbytes() for storage in blocks.values()) <= left

    def release(self, entry: Entry, count: int = 1) -> None:
        """Note that an entry that was charged is gone; `count` as it was charged."""
        self._waiting.append((entry, count))
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
            entry, count = self._waiting.popleft()
            if self._opaque:
                self._opaque.pop(entry, None)
            freed, user = entry.own_bytes, entry.holder
            for key in entry.blocks:
                block = self._blocks[key]
                block.entries.pop(entry, None)
                left = block.holders[user] - 1
                if left:
                    block.holders[user] = left
                    continue
                del block.holders[user]
                if block.payer == user:
                    freed += block.nbytes
                    self._pass_on(key, block)
            self.quotas.release(user, freed, count)

    def _pass_on(self, key: Any, block: _Block) -> None:
        """The payer has let go: the next holder pays, or the memory is nobody's."""
        if not block.holders:
            del self._blocks[key]
            return
        block.payer = next(iter(block.holders))
        # NB: above their quota, if need be: it is theirs already, and they can only let go of it.
        self.quotas.charge(block.payer, block.nbytes, 0, enforced=False)

    def __bool__(self) -> bool:
        return True

    def behind(self, addresses: Iterable[Any]) -> list[Entry]:
        """The entries of tensors in this memory, and of objects that may hold some of it, in the order of arrival.

        Memory is named as `torch.UntypedStorage._cdata` does.
        """
        found: dict[Entry, None] = {}
        for address in addresses:
            block = self._blocks.get(address)
            if block is not None:
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

# -- names that users choose -----------------------------------------------------------------------

#: Nobody is charged for ids, so they are short.
LONGEST_NAME = 128
_LARGEST_ID = 1 << 64
_MOST_ALLOWED = 1000
_FEW_ALLOWED = 16


def _check_id(obj_id: Id) -> None:
    """!! QuotaExceededError if an object cannot be kept under this id by a user."""
    if type(obj_id) is str:
        if len(obj_id) <= LONGEST_NAME:
            return
        found = f"a text of {len(obj_id)} characters"
    else:
        found = "a larger number" if type(obj_id) is int else f"a {type(obj_id).__name__}"
    raise QuotaExceededError(
        f"An object was to be kept under an id that is {found}. An id is a whole number below 2**64, or a text of "
        f"{LONGEST_NAME} characters at most. Choose a shorter one."
    )


def bytes_of_allowed(allowed: Any, is_chosen: bool) -> int:
    """What it costs to name the users who may fetch an object; a few are free.

    `is_chosen`: by the one who brings it. !! QuotaExceededError if they are too many
    """
    if type(allowed) is not frozenset or not allowed:
        return 0
    count = len(allowed)
    if is_chosen and (count > _MOST_ALLOWED or max(map(len, allowed)) > LONGEST_NAME):
        raise QuotaExceededError(
            f"An object was to be allowed to {count} users. At most {_MOST_ALLOWED} can be named, with {LONGEST_NAME} "
            "characters each. Name fewer, or ask the owner of the worker to open the data to all."
        )
    return count * LONGEST_NAME if count > _FEW_ALLOWED else 0
