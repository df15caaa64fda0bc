"""Where ids come from: unguessable 60-bit integers from the operating system."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable
from typing import Any

_BATCH = 256
_MASK = (1 << 60) - 1


class IdProvider:
    """Hands out ids, each once.

    `given_ids` (or `set_next_ids`) fixes the next ones, which tests and replays use. The random ones
    are drawn from the operating system a batch at a time, so that one id costs a tenth of a
    microsecond and still cannot be guessed by somebody who has seen others.
    """

    def __init__(self, given_ids: Iterable[Any] = ()) -> None:
        self._given: list[Any] = list(given_ids)
        self._fresh: list[int] = []

    def set_next_ids(self, given_ids: Iterable[Any], check_ids: bool = True) -> None:
        """Fix the next ids. Like the random ones they are taken from the end of the list."""
        given = list(given_ids)
        if check_ids and len(set(given) | set(self._given)) != len(given) + len(self._given):
            from syft.exceptions import IdNotUniqueError

            raise IdNotUniqueError(
                f"The ids {given} are not all different from each other and from those still to be "
                "handed out. Give every id once, or pass check_ids=False."
            )
        self._given = given + self._given

    def pop(self, *args: Any) -> Any:
        """The next id. Arguments are accepted and ignored, as `list.pop` would take one."""
        if self._given:
            return self._given.pop(-1)
        try:
            return self._fresh.pop()
        except IndexError:
            return self._draw()

    def _draw(self) -> int:
        # NB: a thread that runs out of ids at the same time draws a batch of its own; none is lost twice.
        drawn = [value & _MASK for value in struct.unpack(f"{_BATCH}Q", os.urandom(8 * _BATCH))]
        last = drawn.pop()
        self._fresh.extend(drawn)
        return int(last)


ID_PROVIDER = IdProvider()
