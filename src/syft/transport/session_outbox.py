"""`Outbox`: the commands of a session that the worker has not confirmed. No I/O, and no lock.

Commands are collected and numbered, packed many to a frame, and kept until they are confirmed, to be sent again after
a cut. `add` and `pack` are for whoever may send on the link, `confirm` is for whoever may read.
"""

from __future__ import annotations

from collections import deque
from time import monotonic as _now
from typing import Any

import msgspec

from syft import serde
from syft.core.call_sites import Site
from syft.messaging.message import PointersGoneMessage
from syft.serde.errors import SerdeError
from syft.serde.lone_frames import lone_frame
from syft.transport import session_frames as frames
from syft.transport.memory import joined
from syft.transport.session_frames import Head, Kind

_BATCH_COMMANDS = 64
_COMMANDS = int(Kind.COMMANDS)
#: How long commands are collected. The first frame after a wait goes soon, to an idle worker; each that follows may take
#: twice as long as the one before, because the worker has something to do meanwhile, and a frame costs both ends
#: as much as several commands.
_FIRST_SECONDS, _LATER_SECONDS = 400e-6, 3.2e-3
_BATCH_DELETES = 8_192
_SMALL_BYTES = 1 << 15
_WINDOW_COMMANDS = 8_192
_WINDOW_BYTES = 32 << 20
#: Above this many bytes a command may wait until it is confirmed, instead of being copied to be sent again.
_UNCOPIED_BYTES = 256 << 10
_NO_SITES: list[Site] = [()]


class Sent(msgspec.Struct, frozen=True):
    """A frame of commands on its way. A borrowed one looks into the memory of the user's tensors.

    So does a lent one, which has the sums of its payload: NOTE [Lent memory].
    """

    last: int
    head: Head
    payload: list[Any]
    sites: list[Site]
    nbytes: int
    is_borrowed: bool
    sums: frames.Sums | None = None


class _Collected:
    """Commands that wait to be packed, the first of which has the number `first`.

    commands  what stands for each in the batch
    sites     where each was issued; the last may be of one that was not taken
    """

    __slots__ = ("add", "batch", "began", "buffers", "commands", "first", "sites")

    def __init__(self, first: int) -> None:
        self.first, self.began = first, 0.0
        self.batch = batch = serde.BatchWriter()
        self.add, self.commands, self.buffers = batch.add, batch.roots, batch.buffers
        self.sites: list[Site] = []


class Outbox:
    """See the top of this file. A session that ends takes its outbox with it.

    NOTE [Interrupted between two lines]
    KeyboardInterrupt may come at any line. A command is taken by one call (`batch.add`), its number is its place, and
    what was packed is first kept to be sent and then taken out of what is collected. So a command is there or not, under
    one number; at worst it travels in two frames, and the worker runs each number once.

    NOTE [Lent memory]
    What parties of a program tell each other is not written to as a rule, and they go on once it is sent. So a large
    message of theirs is neither copied nor waited for: the outbox looks into the tensors until it is confirmed. Sums of
    them are taken when it is sent first, and stand in its head every time. If a tensor was written to before the message
    has to be sent again, the session is given up: no peer ever accepts other words than those that were sent.
    """

    def __init__(self) -> None:
        #: How commands are packed: as the worker said, when it welcomed us, that it can read them.
        self.compression: str | None = None
        #: The last command that the worker has executed.
        self.confirmed = 0
        self._sent_bytes = self._confirmed_bytes = 0
        self.unconfirmed: deque[Sent] = deque()
        self._failed_sites: dict[int, Site] = {}
        self._collected = _Collected(1)
        self._seconds = _FIRST_SECONDS

    @property
    def began(self) -> float:
        """When the first command was collected of those that wait; 0 if none ever did."""
        return self._collected.began

    @property
    def numbered(self) -> int:
        """The last command that was given a number."""
        return self._collected.first + len(self._collected.commands) - 1

    # -- collecting --------------------------------------------------------------------------------

    def __len__(self) -> int:
        """Commands that wait to be packed."""
        return len(self._collected.commands)

    def add(self, message: Any, site: Site = ()) -> int:
        """Take a command; returns how many waited before it. !! SerdeError if it cannot travel; then it has no number"""
        collected = self._collected
        place = len(collected.commands)
        if not place:
            collected.began = _now()
        collected.sites[place:] = (site,)
        collected.add(message)
        return place

    def add_deletes(self, deletes: deque[Any]) -> None:
        """Take ids of objects whose pointers have gone, not more than fit well into a frame."""
        if deletes:
            # NB: only as many as there are now; a finalizer may add more meanwhile.
            count = min(len(deletes), _BATCH_DELETES)
            self.add(PointersGoneMessage(tuple([deletes.popleft() for _ in range(count)])))

    def buffer_bytes(self) -> int:
        """The memory of tensors that waits to be packed."""
        return sum([len(memory) for memory, _compressible in self._collected.buffers])

    def is_due(self) -> bool:
        """Whether what was collected should go now."""
        collected = self._collected
        return (
            bool(collected.buffers)
            or len(collected.commands) >= _BATCH_COMMANDS
            or _now() - collected.began > self._seconds
        )

    # -- packing -----------------------------------------------------------------------------------

    def pack(self, flags: int, most_bytes: int, is_lent: bool = False) -> Sent:
        """What was collected, as one frame. !! SerdeError if it is too much: then it is dropped.

        `is_lent`: NOTE [Lent memory]
        """
        collected = self._collected
        first, count = collected.first, len(collected.commands)
        try:
            payload = collected.batch.frames(self.compression)
            nbytes = sum(map(len, payload))
            if nbytes > most_bytes:
                raise SerdeError(
                    f"The worker takes messages of at most {most_bytes} bytes, and this one has {nbytes}. Send it in "
                    "parts, or ask the owner of the worker to allow more (max_frame in the policy, max_message)."
                )
        except SerdeError as error:
            self._collected = _Collected(first)
            if count > 1:
                error.add_note(f"{count - 1} commands that were to travel with it were not sent either.")
            raise
        sums = frames.Sums.of(payload) if is_lent and nbytes > _UNCOPIED_BYTES else None
        is_borrowed = (
            sums is None
            and nbytes > _UNCOPIED_BYTES
            and (nbytes > _WINDOW_BYTES // 2 or not self.unconfirmed)
        )
        if not is_borrowed and sums is None:
            payload = [bytearray().join(payload) if nbytes <= _SMALL_BYTES else joined(payload, nbytes)]
        last, lent = first + count - 1, 0 if sums is None else nbytes
        flags |= frames.CONFIRM if is_borrowed else self._asks(last, lent)
        self._seconds = _FIRST_SECONDS if flags & frames.WAITS else min(2 * self._seconds, _LATER_SECONDS)
        head = frames.new_head(Head, (_COMMANDS, flags, first, 0, 0, count, 0, 0))
        sent = Sent(last, head, payload, collected.sites[:count], nbytes, is_borrowed, sums)
        self.unconfirmed.append(sent)  # NOTE [Interrupted between two lines]
        self._collected = _Collected(last + 1)
        self._sent_bytes += nbytes
        return sent

    def pack_alone(self, message: Any, most_bytes: int) -> Sent | None:
        """A message of parties in a frame of its own; None: `add` and `pack` it. NOTE [Lent memory]"""
        collected, number = self._collected, self._collected.first
        payload = None if collected.commands or self.is_full() else lone_frame(message)
        nbytes = 0 if payload is None else sum(map(len, payload))
        if payload is None or nbytes > min(most_bytes, frames.CHUNK_BYTES):
            return None
        sums = frames.Sums.of(payload) if nbytes > _UNCOPIED_BYTES else None
        if sums is None:
            payload = [b"".join(payload)]
        flags = self._asks(number, nbytes if sums is not None else 0)
        head = frames.new_head(Head, (_COMMANDS, flags, number, 0, 0, 1, 0, 0))
        sent = Sent(number, head, payload, _NO_SITES, nbytes, False, sums)
        # NB: in threads of workers, which no KeyboardInterrupt comes to: NOTE [Interrupted between two lines]
        self.unconfirmed.append(sent)
        collected.first = number + 1
        self._sent_bytes += nbytes
        return sent

    def _asks(self, last: int, lent: int) -> int:
        """The flag that asks for a confirmation, once half of the window is used; `lent` bytes go as soon as it comes."""
        is_half_used = (
            last - self.confirmed > _WINDOW_COMMANDS // 2
            or self._sent_bytes + lent - self._confirmed_bytes > _WINDOW_BYTES // 2
        )
        return frames.CONFIRM if is_half_used else 0

    def has_changed(self) -> bool:
        """Whether something was written to that is lent, and may have to be sent again. NOTE [Lent memory]"""
        return any(
            one.sums is not None and one.sums != frames.Sums.of(one.payload) for one in self.unconfirmed
        )

    # -- the window --------------------------------------------------------------------------------

    def is_full(self) -> bool:
        """Whether we are as far ahead of the worker as we may be."""
        collected = self._collected
        return (
            collected.first + len(collected.commands) - 1 - self.confirmed > _WINDOW_COMMANDS
            or self._sent_bytes - self._confirmed_bytes > _WINDOW_BYTES
        )

    def has_room(self) -> bool:
        """Whether the worker has caught up enough to go on."""
        return not self.unconfirmed or (
            self.numbered - self.confirmed <= _WINDOW_COMMANDS // 2
            and self._sent_bytes - self._confirmed_bytes <= _WINDOW_BYTES // 2
        )

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
