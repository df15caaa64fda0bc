"""`Outbox`: the commands of a session that the worker has not confirmed. No I/O, and no lock.

Commands are collected and numbered, packed many to a frame, and kept until they are confirmed, to be sent again after
a cut. `add` and `pack` are for whoever may send on the link, `confirm` is for whoever may read.
"""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass
from typing import Any

from syft import serde
from syft.messaging.message import PointersGoneMessage
from syft.serde.errors import SerdeError
from syft.transport import session_frames as frames
from syft.transport.memory import joined
from syft.transport.session_frames import Head, Kind
from syft.workers.network.sites import Site

_BATCH_COMMANDS = 48
_BATCH_SECONDS = 600e-6
_BATCH_DELETES = 8_192
_WINDOW_COMMANDS = 8_192
_WINDOW_BYTES = 32 << 20
#: Above this many bytes a command may wait until it is confirmed, instead of being copied to be sent again.
_UNCOPIED_BYTES = 256 << 10


@dataclass(frozen=True, slots=True)
class Sent:
    """A frame of commands on its way. A borrowed one looks into the memory of the user's tensors."""

    last: int
    head: Head
    payload: list[Any]
    sites: list[Site]
    nbytes: int
    is_borrowed: bool


class Outbox:
    """See the top of this file. A session that ends takes its outbox with it."""

    def __init__(self) -> None:
        #: How commands are packed: as the worker said, when it welcomed us, that it can read them.
        self.compression: str | None = None
        #: The last command that was given a number; that was packed; that the worker has executed.
        self.numbered = self._packed = self.confirmed = 0
        self._sent_bytes = self._confirmed_bytes = 0
        self.unconfirmed: deque[Sent] = deque()
        self._failed_sites: dict[int, Site] = {}
        self._renew()

    def _renew(self) -> None:
        self._batch = serde.BatchWriter()
        self._sites: list[Site] = []
        self._began = 0.0

    # -- collecting --------------------------------------------------------------------------------

    def __len__(self) -> int:
        """Commands that wait to be packed."""
        return len(self._sites)

    def add(self, message: Any, site: Site = ()) -> None:
        """Take a command. !! SerdeError if it cannot travel; then it has no number"""
        self._batch.add(message)
        if not self._sites:
            self._began = time.monotonic()
        self._sites.append(site)
        self.numbered += 1

    def add_deletes(self, deletes: deque[Any]) -> None:
        """Take ids of objects whose pointers have gone, not more than fit well into a frame."""
        if deletes:
            # NB: only as many as there are now; a finalizer may add more meanwhile.
            count = min(len(deletes), _BATCH_DELETES)
            self.add(PointersGoneMessage(tuple([deletes.popleft() for _ in range(count)])))

    def is_due(self) -> bool:
        """Whether what was collected should go now."""
        return (
            self._batch.has_buffers
            or len(self._sites) >= _BATCH_COMMANDS
            or time.monotonic() - self._began > _BATCH_SECONDS
        )

    # -- packing -----------------------------------------------------------------------------------

    def pack(self, flags: int, most_bytes: int) -> Sent:
        """What was collected, as one frame. !! SerdeError if it is too much: then it is dropped."""
        count = len(self._sites)
        try:
            payload = self._batch.frames(self.compression)
            nbytes = sum(map(len, payload))
            if nbytes > most_bytes:
                raise SerdeError(
                    f"The worker takes messages of at most {most_bytes} bytes, and this one has {nbytes}. Send it in "
                    "parts, or ask the owner of the worker to allow more (max_frame in the policy, max_message)."
                )
        except SerdeError as error:
            self.numbered = self._packed
            self._renew()
            if count > 1:
                error.add_note(f"{count - 1} commands that were to travel with it were not sent either.")
            raise
        sites = self._sites
        self._renew()
        is_borrowed = nbytes > _UNCOPIED_BYTES and (nbytes > _WINDOW_BYTES // 2 or not self.unconfirmed)
        if not is_borrowed:
            payload = [joined(payload, nbytes)]
        if is_borrowed or self._is_beyond(_WINDOW_COMMANDS // 2, _WINDOW_BYTES // 2):
            flags |= frames.CONFIRM
        first, last = self._packed + 1, self.numbered
        self._packed = last
        sent = Sent(
            last, Head(Kind.COMMANDS, flags, number=first, count=count), payload, sites, nbytes, is_borrowed
        )
        self.unconfirmed.append(sent)
        self._sent_bytes += nbytes
        return sent

    # -- the window --------------------------------------------------------------------------------

    def _is_beyond(self, commands: int, nbytes: int) -> bool:
        return self.numbered - self.confirmed > commands or self._sent_bytes - self._confirmed_bytes > nbytes

    def is_full(self) -> bool:
        """Whether we are as far ahead of the worker as we may be."""
        return self._is_beyond(_WINDOW_COMMANDS, _WINDOW_BYTES)

    def has_room(self) -> bool:
        """Whether the worker has caught up enough to go on."""
        return not self.unconfirmed or not self._is_beyond(_WINDOW_COMMANDS // 2, _WINDOW_BYTES // 2)

    # -- confirmations -----------------------------------------------------------------------------

    def confirm(self, executed: int, failed: int) -> bool:
        """The worker has executed so many, and `failed` was the first to fail; whether that is news."""
        waiting = self.unconfirmed
        while waiting and waiting[0].last <= executed:
            sent = waiting.popleft()
            first = sent.head.number
            if failed and first <= failed <= sent.last:
                self._failed_sites[failed] = sent.sites[failed - first]
            self._confirmed_bytes += sent.nbytes
        is_news = executed > self.confirmed
        if is_news:
            self.confirmed = executed
        return is_news

    def site_of_failed(self, number: int) -> Site:
        """Where a command that failed was issued. Told once."""
        return self._failed_sites.pop(number, ())
