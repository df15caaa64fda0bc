"""Where ids come from: unguessable 60-bit integers, from seeds of the operating system."""

from __future__ import annotations

import hashlib
import os
import struct
from collections import deque
from collections.abc import Iterable
from typing import Any

_BATCH = 256
_MASK = (1 << 60) - 1
_SEED_BYTES = 16
#: Of how many batches of random ids the seeds are remembered, to tell a given id that was handed out before.
_REMEMBERED_BATCHES = 512


def _batch_of(seed: bytes) -> list[int]:
    """The ids of a batch. Nobody who has seen some of them finds the seed, or the others (FIPS 202, SHAKE128)."""
    return [
        value & _MASK for value in struct.unpack(f"{_BATCH}Q", hashlib.shake_128(seed).digest(8 * _BATCH))
    ]


class IdProvider:
    """Hands out ids, each once.

    `given_ids` (or `set_next_ids`) fixes the next ones, which tests and replays use; both are taken from the end.
    The random ones come from a seed of the operating system for each batch, so that one id costs a tenth of a
    microsecond and still cannot be guessed by somebody who has seen others.
    """

    def __init__(self, given_ids: Iterable[Any] = ()) -> None:
        self._given: list[Any] = list(given_ids)
        self._fresh: list[int] = []
        self._batches: deque[bytes] = deque(maxlen=_REMEMBERED_BATCHES)
        self._given_out: set[Any] = set()
        self._recorded: list[Any] | None = None
        #: Whether `pop` has more to do than to take a random id.
        self._is_special = bool(self._given)

    def set_next_ids(self, given_ids: Iterable[Any], check_ids: bool = True) -> None:
        """Hand these out next, the last one first, before ids that were given earlier.

        `check_ids`: !! IdNotUniqueError if one of them was handed out before, is still to be handed out, or stands there
        twice. Compared are all ids that were given, and the last hundred thousand random ones.
        """
        given = list(given_ids)
        if check_ids:
            self._refuse_known(given)
        self._given += given
        self._is_special = True

    def _refuse_known(self, given: list[Any]) -> None:
        from syft.exceptions import IdNotUniqueError

        waiting = set(self._fresh)
        drawn = {i for seed in self._batches for i in _batch_of(seed)} - waiting
        known = drawn | self._given_out | set(self._given)
        repeated = {i for i in given if i in known or given.count(i) > 1}
        if repeated:
            raise IdNotUniqueError(
                f"set_next_ids() was given the ids {sorted(repeated, key=str)}, which were handed out already, wait to "
                "be, or stand there twice. Give every id once, or pass check_ids=False."
            )

    def pop(self, *args: Any) -> Any:
        """The next id. Arguments are accepted and ignored, as `list.pop` would take one."""
        if self._is_special:
            return self._pop_special()
        try:
            return self._fresh.pop()
        except IndexError:
            return self._draw()

    def _pop_special(self) -> Any:
        """The next id while some are given, or while a record is kept."""
        if self._given:
            taken = self._given.pop(-1)
            self._given_out.add(taken)
        else:
            taken = self._fresh.pop() if self._fresh else self._draw()
        if self._recorded is not None:
            self._recorded.append(taken)
        self._is_special = bool(self._given) or self._recorded is not None
        return taken

    def _draw(self) -> int:
        # NB: a thread that runs out of ids at the same time draws a batch of its own; none is lost twice.
        seed = os.urandom(_SEED_BYTES)
        drawn = _batch_of(seed)
        self._batches.append(seed)
        last = drawn.pop()
        self._fresh.extend(drawn)
        return int(last)

    # -- records ---------------------------------------------------------------------------------------

    def start_recording_ids(self) -> None:
        """Begin a new record of the ids that are handed out."""
        self._recorded = []
        self._is_special = True

    def get_recorded_ids(self, continue_recording: bool = False) -> list[Any]:
        """The ids handed out since `start_recording_ids`, in order; the record ends unless it is to continue."""
        recorded = list(self._recorded or ())
        if not continue_recording:
            self._recorded = None
            self._is_special = bool(self._given)
        return recorded


ID_PROVIDER = IdProvider()


def create_random_id() -> int:
    """A random id that no provider hands out: 60 bits from the operating system."""
    return int.from_bytes(os.urandom(8), "little") & _MASK
