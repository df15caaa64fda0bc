"""`Membership`: one worker's place in a group, with what its peers sent and the seeds it has in common with them.

No program runs here. May import `messages`; knows links only as workers that take messages.
"""

from __future__ import annotations

import secrets
import threading
import time
import weakref
from collections import deque
from typing import Any

from syft.core import worker_lock
from syft.core.interfaces import Worker
from syft.exceptions import ProtocolError, SyftError, WorkerRestartedError, WorkerUnreachableError
from syft.mpc.correlations import Correlation, Tensors
from syft.mpc.integrity.ledger import Ledger
from syft.mpc.network.messages import (
    Agreement,
    AreYouThere,
    Dealt,
    Frame,
    PeerFailedError,
    PeerGoneError,
    RunFailed,
)
from syft.mpc.provider import Provider, ProviderCost
from syft.mpc.randomness import SEED_BYTES, BoundStream, new_seed
from syft.workers.network import presence

TICKET_BYTES = 16
_RESTARTED = "it was restarted, or has ended its session"
#: What may lie here for runs that have not begun: see `Membership.deliver`.
_AHEAD_BYTES = 256 << 20
_AHEAD_FRAMES = 4_096
#: What a provider keeps of the masks of weights, for each group.
_MASK_BYTES = 32 << 20
#: So many tickets of groups that ended are remembered: see `channel_if_open`.
_ENDED_TICKETS = 1_024
#: Above this, both ends of a round may have to read while they send.
_SMALL_BYTES = 64 << 10
#: A peer that lives and was not asked to run gets so many times the patience.
_LENIENCE = 10
#: How often a peer that sends nothing is asked whether it still knows the group.
_DOUBT_SECONDS = 1.0
#: Those over which this process, as a client, has programs run. If a worker of this process used one of them, its frames
#: would wait behind the very command that waits for them.
LINKS_OF_CLIENTS: weakref.WeakSet[Any] = weakref.WeakSet()


class Channel:
    """The way to one peer and back: our link to it, the ticket it gave us, the ticket we gave it."""

    __slots__ = ("__weakref__", "_membership", "_session", "expected", "peer", "rank", "shown", "source")

    def __init__(self, membership: Membership, rank: int, peer: Any) -> None:
        self._membership = weakref.ref(membership)
        self.rank, self.peer = rank, peer
        self.expected = secrets.token_bytes(TICKET_BYTES)
        self.shown: bytes | None = None
        #: The connection over which the peer sends to us (`syft.transport.session_lending`); None: not known.
        self.source: Any = None
        #: Of our link, in which the peer was given its ticket; None: it was not yet.
        self._session: str | None = None

    @property
    def membership(self) -> Membership:
        found = self._membership()
        if found is None:
            raise ProtocolError("The group of this ticket has ended.")
        return found

    @property
    def ticket(self) -> bytes:
        if self.shown is None:
            raise ProtocolError(
                f"Worker {self.peer.id!r} has not given its ticket: the group is not complete."
            )
        return self.shown

    def send(self, message: Any) -> None:
        """Over our own link, at once. !! PeerGoneError"""
        if self.source is not None and _size(message) > _SMALL_BYTES:
            self._let_others_read(self.source)
        try:
            with presence.among_parties():
                self.peer._link.post(message, at_once=True)
        except (WorkerUnreachableError, WorkerRestartedError) as error:
            restarted = isinstance(error, WorkerRestartedError)
            self.membership.lose(self.rank, _RESTARTED if restarted else "it cannot be reached")
            self.membership.check_complete()

    def _let_others_read(self, source: Any) -> None:
        """Give back the connection that we read, at the latest when the peer has to read before we can go on."""
        connection = self.peer._link._connection
        if connection is not None and connection.tells_when_full:
            connection.on_full = source.call_back
        else:
            source.call_back()

    def ask(self, message: Any) -> Any:
        """Over our own link. !! NetworkError, what it raised there"""
        with presence.among_parties():
            return self.peer._recv_msg(message)

    def meet(self, message: Any) -> None:
        """Give the peer its ticket."""
        try:
            self.ask(message)
        except WorkerRestartedError:  # nothing of ours was there; a new session has begun
            self.ask(message)
        self._session = self.peer._link.presence.condition().session

    def loss(self) -> str | None:
        """Why the peer is lost to the group; None: it is there, or not missing for long. Does not wait."""
        found = self.peer._link.presence.condition()
        if found.is_missing:
            return f"it cannot be reached for more than {found.peer_patience:g} s"
        if self._session is not None and found.session != self._session:
            return _RESTARTED
        return None


class Tickets:
    """Every ticket that a worker has given out, as long as its channel lives, and the last ones of groups that ended."""

    def __init__(self) -> None:
        self.given: weakref.WeakValueDictionary[bytes, Channel] = weakref.WeakValueDictionary()
        self.ended: dict[bytes, None] = {}

    def give(self, membership: Membership) -> None:
        tickets = {channel.expected: channel for channel in membership.channels.values()}
        self.given.update(tickets)
        weakref.finalize(membership, self._end, tuple(tickets)).atexit = False

    def _end(self, tickets: tuple[bytes, ...]) -> None:
        self.ended.update(dict.fromkeys(tickets))
        for oldest in list(self.ended)[:-_ENDED_TICKETS]:
            self.ended.pop(oldest, None)


def tickets_of(worker: Worker) -> weakref.WeakValueDictionary[bytes, Channel]:
    """Every ticket that a worker has given out."""
    return worker.extension(Tickets).given


def channel_of(worker: Worker, ticket: bytes) -> Channel:
    """The peer that shows a ticket. !! ProtocolError if nobody was given it"""
    found = tickets_of(worker).get(ticket)
    if found is None:
        raise ProtocolError(
            f"Worker {worker.id!r} has given no such ticket: the group was ended, or the sender is not its member."
        )
    return found


def channel_if_open(worker: Worker, ticket: bytes) -> Channel | None:
    """The same; None for the ticket of a group that ended lately: what was on its way is of no use to anybody."""
    tickets = worker.extension(Tickets)
    found = tickets.given.get(ticket)
    return found if found is not None or ticket in tickets.ended else channel_of(worker, ticket)


class TakenAhead:
    """What one message had a holder take ahead of time: an object of the store, so that its user is charged for it."""

    # NB: no slots: what a user is charged for is found in the attributes.

    def __init__(self, parts: list[Tensors]) -> None:
        self.parts, self.left = parts, len(parts)
        self.obj_id: Any = None


class Membership:
    """See the top of this file. It is kept in the worker's store; no attribute of it can be asked for."""

    __slots__ = (
        "__weakref__",
        "_changed",
        "_dealer",
        "_failures",
        "_gone",
        "_newest",
        "_stream",
        "_waiting",
        "_waiting_bytes",
        "ahead",
        "bytes_sent",
        "channels",
        "charged",
        "dealing",
        "deals",
        "finished",
        "holders",
        "is_provider",
        "last_dealt",
        "last_run",
        "ledger",
        "members",
        "pairwise",
        "patience",
        "rank",
        "rounds",
        "seconds",
        "supplied",
        "supply_run",
        "supply_runs",
        "user",
    )

    def __init__(
        self, members: tuple[Any, ...], rank: int, peers: dict[int, Any], user: Any, patience: float
    ) -> None:
        self.members, self.rank, self.user, self.patience = members, rank, user, patience
        self.holders = len(members) - 1
        self.is_provider = rank == self.holders
        self._stream: BoundStream | None = None
        self._dealer: Provider | None = None
        self.channels = {number: Channel(self, number, peer) for number, peer in peers.items()}
        #: Seeds by rank; those of `dealing` are between the provider and each holder.
        self.pairwise: dict[int, bytes] = {}
        self.dealing: dict[int, bytes] = {}
        #: What was taken ahead of time: by run and position; and the objects that it is charged as, by run.
        self.ahead: dict[tuple[int, int], tuple[Correlation, Tensors]] = {}
        self.charged: dict[int, TakenAhead] = {}
        #: Of parts that were taken from the disk: what holders call them, by the run in which they were taken; for each
        #: lot, in which run what was dealt in another was taken; the run of the last one.
        self.supplied: dict[int, bytes] = {}
        self.supply_runs: dict[tuple[str, int], dict[int, int]] = {}
        self.supply_run = 0
        self.last_run = self.last_dealt = self.finished = 0
        self._changed = threading.Condition()
        self._waiting: dict[tuple[int, int, type], deque[Any]] = {}
        self._waiting_bytes = 0
        self._failures: dict[int, str] = {}
        #: Which member is gone, and why, in a sentence; None: all are there, as far as we know.
        self._gone: tuple[int, str] | None = None
        #: The last run that each peer sent something for, in dealing and otherwise; both go up.
        self._newest: dict[tuple[int, bool], int] = {}
        self.deals = ProviderCost()
        self.ledger = Ledger()
        self.reset_costs()

    def reset_costs(self) -> None:
        self.rounds = self.bytes_sent = 0
        self.seconds = 0.0
        self.deals = ProviderCost()

    # -- seeds -----------------------------------------------------------------------------------------

    def new_seeds(self, rank: int) -> tuple[bytes, bytes | None]:
        """Seeds in common with a member before us: for the pairwise stream, and for dealing if we deal."""
        self.pairwise[rank] = new_seed()
        if self.is_provider:
            self.dealing[rank] = new_seed()
            self.deals.bytes += SEED_BYTES
            self.deals.messages += 1
        return self.pairwise[rank], self.dealing.get(rank)

    def take_seeds(self, rank: int, pairwise: bytes, dealing: bytes | None) -> None:
        """Seeds from a member after us. Once: a second seed would put a stream back to its beginning."""
        is_provider = rank == self.holders
        seeds = (pairwise, dealing) if is_provider else (pairwise,)
        if rank in self.pairwise or rank < self.rank or any(len(s or b"") != SEED_BYTES for s in seeds):
            raise ProtocolError(f"Member {rank} sent seeds that are not due, or no seeds.")
        self.pairwise[rank] = pairwise
        if dealing is not None and is_provider:
            self.dealing[self.rank] = dealing

    # NB: a cipher costs as much as a round, so those of the seeds are kept.

    @property
    def stream(self) -> BoundStream:
        """A holder's stream in common with the provider. For the run at hand: one thread at a time."""
        if self._stream is None:
            self._stream = BoundStream(self.dealing[self.rank])
        return self._stream

    @property
    def dealer(self) -> Provider:
        """What makes correlations, at the provider."""
        if self._dealer is None:
            self._dealer = Provider(self.holders, [self.dealing[rank] for rank in range(self.holders)])
            self._dealer.is_recording = False  # holders may be threads of this process
            self._dealer.most_mask_bytes = _MASK_BYTES
        self._dealer.cost = self.deals
        return self._dealer

    # -- runs ------------------------------------------------------------------------------------------

    def begin(self, run: int) -> None:
        """Take the next number. !! ProtocolError for one that was taken, or while another runs; PeerGoneError"""
        self.check_complete()
        with self._changed:
            if run <= self.last_run or self.finished != self.last_run:
                raise ProtocolError(
                    f"Run {run} was asked for after run {self.last_run}: numbers go up, one run at a time."
                )
            self.last_run = run
            self._changed.notify_all()

    def end(self) -> None:
        """Forget what came for the run and was not used."""
        with self._changed:
            self.finished = self.last_run
            for key in [key for key in self._waiting if key[1] <= self.finished]:
                left = self._waiting.pop(key)
                if key[2] is Dealt:
                    self._waiting_bytes -= sum(map(_size, left))
            self._failures = {run: why for run, why in self._failures.items() if run > self.finished}
            self._changed.notify_all()

    def tell_failure(self, run: int, reason: str) -> None:
        """Tell the peers not to wait for us; if a member is gone, that nobody need wait for anything any more."""
        gone = None if self._gone is None else self._gone[0]
        for rank, channel in self.channels.items():
            if rank != gone:
                try:
                    channel.send(RunFailed(channel.ticket, run, reason[:1000], gone))
                except (OSError, SyftError):
                    pass  # it finds out by itself

    # -- members that are gone -------------------------------------------------------------------------

    def check_complete(self) -> None:
        """!! PeerGoneError if a member is known to be gone"""
        if self._gone is not None:
            raise PeerGoneError(self._gone[1])

    def look_around(self) -> None:
        """See whether all members are there. !! PeerGoneError"""
        for rank, channel in self.channels.items():
            loss = channel.loss()
            if loss is not None:
                self.lose(rank, loss)
        self.check_complete()

    def lose(self, rank: int, why: str) -> None:
        """A member is gone: what lies here for the group is of no use any more, and whoever waits is woken."""
        with self._changed:
            if self._gone is None:
                text = (
                    f"Worker {self.members[rank]!r} is gone: {why.rstrip('.')}. What it held is lost, and everything "
                    "that was asked of this group and not finished has failed. Share the values again when it is back."
                )
                self._gone = rank, text
            self._waiting.clear()
            self._waiting_bytes = 0
            self._failures.clear()
            self.ahead.clear()
            self._changed.notify_all()

    # -- what peers send -------------------------------------------------------------------------------

    def deliver(self, channel: Channel, message: Agreement | Frame | Dealt) -> None:
        """Put a message where the run finds it.

        A provider may deal far ahead of us. What is for later runs waits outside, in its connection, when there is
        much of it. What the run at hand needs is never kept waiting behind it: a provider sends in the order of runs.
        """
        is_kept = True
        if type(message) is Dealt and not self._has_room(message.run):
            # NB: the worker's lock is released first, and taken back when the lock is free again.
            with worker_lock.released(), self._changed:
                patience = _LENIENCE * self.patience
                is_kept = self._changed.wait_for(lambda: self._has_room(message.run), patience)
        with self._changed:
            if self._gone is not None:
                return
            stage = channel.rank, type(message) is Dealt
            self._newest[stage] = max(message.run, self._newest.get(stage, 0))
            if message.run <= self.finished:
                self._changed.notify_all()
                return
            key = channel.rank, message.run, type(message)
            queue = self._waiting.get(key)
            if queue is None:
                queue = self._waiting[key] = deque()
            if len(queue) >= _AHEAD_FRAMES or not is_kept:
                self._failures[message.run] = f"worker {channel.peer.id!r} sent more than can be kept"
            else:
                queue.append(message)
                if type(message) is Dealt:
                    self._waiting_bytes += _size(message)
            self._changed.notify_all()

    def _has_room(self, run: int) -> bool:
        return run <= self.last_run or self._waiting_bytes < _AHEAD_BYTES

    def note_failure(self, channel: Channel, run: int, reason: str, gone: int | None = None) -> None:
        """A peer cannot finish a run, or says that a member is gone."""
        if gone is not None and gone in self.channels:
            self.lose(gone, f"worker {channel.peer.id!r} says so")
            return
        with self._changed:
            if run > self.finished and len(self._failures) < _AHEAD_FRAMES:
                self._failures[run] = f"worker {channel.peer.id!r} failed: {reason}"
                self._changed.notify_all()

    def receive(self, rank: int, kind: type) -> Any:
        """The next frame, or correction, from a peer for the run at hand. !! PeerFailedError"""
        key = rank, self.last_run, kind
        began = looked = doubted = 0.0
        source = None if kind is Dealt else self.channels[rank].source
        while True:
            with self._changed:
                message = self._arrived(key)
            if message is not None:
                return message
            now = time.monotonic()
            if not began:
                began = looked = doubted = now
            elif now - looked >= min(self.patience, presence.LOOK_SECONDS):
                looked = now
                self.look_around()
                if now - doubted >= min(self.patience, _DOUBT_SECONDS):
                    doubted = now
                    self._doubt(rank, key[1], now - began)
            self._wait(key, source, min(self.patience, presence.LOOK_SECONDS))

    def _wait(self, key: tuple[int, int, type], source: Any, seconds: float) -> None:
        """Until something happens, or for so long. Where we can we read what the peer sends: NOTE [Who reads]"""
        if source is not None and source.read(seconds):
            return
        if source is not None:
            source.wakers[id(self)] = self._stir
        try:
            with self._changed:
                if self._has_news(key) or (source is not None and source.is_free):
                    return
                self._changed.wait(seconds)
        finally:
            if source is not None:
                source.wakers.pop(id(self), None)

    def _stir(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def _has_news(self, key: tuple[int, int, type]) -> bool:
        rank, run, kind = key
        return (
            bool(self._waiting.get(key))
            or run in self._failures
            or self._gone is not None
            or self._newest.get((rank, kind is Dealt), 0) > run
        )

    def _arrived(self, key: tuple[int, int, type]) -> Any:
        """The message that was waited for; None: it is not here. `_changed` is held. !! PeerFailedError"""
        rank, run, kind = key
        self.check_complete()
        queue = self._waiting.get(key)
        if queue:
            message = queue.popleft()
            if kind is Dealt:
                self._waiting_bytes -= _size(message)
                self._changed.notify_all()
            return message
        if run in self._failures:
            why = self._failures[run].rstrip(".")
        elif self._newest.get((rank, kind is Dealt), 0) > run:
            why = f"worker {self.members[rank]!r} was not asked to take part in it, or gave it up, and runs later ones"
        else:
            return None
        raise PeerFailedError(
            f"Worker {self.members[self.rank]!r} could not finish run {run} of a program on shares: {why}."
        )

    def _doubt(self, rank: int, run: int, waited: float) -> None:
        """Nothing came in time: is the peer there, and was it asked?"""
        channel = self.channels[rank]
        name = channel.peer.id
        try:
            last = channel.ask(AreYouThere(channel.ticket))
        except (OSError, SyftError) as error:
            self.lose(rank, f"it could not be asked how it is ({error})")
            self.check_complete()
        if not (type(last) is int and last >= run) and waited > _LENIENCE * self.patience:
            raise PeerFailedError(
                f"Worker {self.members[self.rank]!r} waited {waited:.1f} s for worker {name!r}, which is there and was "
                f"not asked to take part in run {run}. The client may have gone in between; share the values again."
            )


def _size(message: Any) -> int:
    return sum([tensor.nbytes for tensor in message.tensors]) if type(message) in (Frame, Dealt) else 0
