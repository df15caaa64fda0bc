"""Running a program at one party, and dealing for one: the network's counterpart of `drivers.Lockstep`.

See NOTE [What a network driver does] in `syft.mpc.drivers`. May import `membership`.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import torch

from syft.mpc.binding import purpose
from syft.mpc.correlations import Correlation, Field, Mask, Place, Tensors
from syft.mpc.drivers import NoSource, check, pairwise_seed
from syft.mpc.integrity.sealed import Entrance, Key, Sealed
from syft.mpc.network.membership import Membership, TakenAhead
from syft.mpc.network.messages import KINDS, SEALED, Agreement, Dealt, Frame
from syft.mpc.network.programs import program_named
from syft.mpc.party import Party, Round, RoundMismatchError
from syft.mpc.provider import CorrelationReusedError, Provider, expand
from syft.mpc.randomness import BoundStream, Stream

#: The most a provider makes for one correlation.
_MOST_BYTES = 16 << 30


#: What correlations are bound to that are taken ahead of time, for no program in particular.
AHEAD = b"ahead of time"


class HolderSource(NoSource):
    """`party.CorrelationSource` of one run: the seed in common with the provider, and what it sends."""

    def __init__(
        self, membership: Membership, program: bytes, ahead: Sequence[tuple[int, int] | None] = ()
    ) -> None:
        self._membership = membership
        self._program = program
        self._ahead = list(ahead)
        self._taken = self._drawn = 0
        self._stream = BoundStream(membership.dealing[membership.rank])

    def take(self, kind: Correlation) -> Tensors:
        position, self._taken = self._taken, self._taken + 1
        tag = self._ahead[position] if position < len(self._ahead) else None
        if tag is None:
            return self.draw(kind)
        kept, part = self._membership.ahead.pop(tag, (None, ()))
        if kept != kind:
            raise CorrelationReusedError(
                f"The correlation {tag}, taken ahead of time, is not here any more, or is no {type(kind).__name__}."
            )
        return part

    def draw(self, kind: Correlation) -> Tensors:
        """This holder's part of a new correlation."""
        membership = self._membership
        position, self._drawn = self._drawn, self._drawn + 1
        is_last = membership.rank == membership.holders - 1
        due = [one for one in kind.derived if is_last or one.common]
        received: Tensors = ()
        if due:
            dealt: Dealt = membership.receive(membership.holders, Dealt)
            received = dealt.tensors
            _check_dealt(membership, dealt, self._program)
            if dealt.kind != kind or [tuple(t.shape) for t in received] != [one.shape for one in due]:
                raise RoundMismatchError(
                    f"Holder {membership.rank} takes a {kind}, and the provider dealt a {dealt.kind} in run "
                    f"{membership.last_run}."
                )
        stream = self._stream.at(purpose(membership.last_run, self._program, position, kind))
        return expand(kind, stream, received, is_last)

    def mask(self, shape: Sequence[int]) -> tuple[Place, torch.Tensor]:
        kind = Mask(tuple(shape))
        tag = self._ahead[self._taken] if self._taken < len(self._ahead) else None
        if tag is None:
            place = Place(self._membership.last_run, self._program, self._drawn)
        else:
            place = Place(tag[0], AHEAD, tag[1])
        (share,) = self.take(kind)
        return place, share

    def key(self) -> Key:
        return Key.of(self._stream)


def run_program(
    membership: Membership,
    name: str,
    args: Sequence[Any],
    kwargs: dict[str, Any],
    ahead: Sequence[tuple[int, int] | None],
    digest: bytes,
) -> Any:
    """Run a program as this member, for the run that has begun; returns this party's result.

    `digest` says what was asked for: randomness is bound to it, and the parties compare it before the first frame.
    """
    start = time.perf_counter()
    program = program_named(name)
    is_online = getattr(program, "provider_online", False)
    parties = [rank for rank in membership.channels if is_online or rank != membership.holders]
    _tell_program(membership, parties, digest)
    source = NoSource() if membership.is_provider else HolderSource(membership, digest, ahead)
    party = Party(membership.rank, membership.holders, source, page=membership.ledger.pages()[0])
    if is_online:
        party.private = {
            rank: Stream(pairwise_seed(seed, membership.last_run, digest))
            for rank, seed in membership.pairwise.items()
        }
    running = program(party, *args, **kwargs)
    try:
        one = running.send(None)
        _check_agreement(membership, parties, name, digest)
        while True:
            one = running.send(_exchange(membership, one))
    except StopIteration as done:
        if party.seal is not None:
            membership.ledger.commit([party.seal])
        return done.value
    finally:
        membership.seconds += time.perf_counter() - start


def _tell_program(membership: Membership, parties: Sequence[int], digest: bytes) -> None:
    """Tell the peers what we were asked to do. It is on its way while we draw the masks of the first round."""
    for rank in parties:
        channel = membership.channels[rank]
        channel.send(Agreement(channel.ticket, membership.last_run, digest))


def _check_agreement(membership: Membership, parties: Sequence[int], name: str, digest: bytes) -> None:
    """!! RoundMismatchError, before the first frame goes out, if a peer was asked for something else"""
    others = [
        membership.members[rank] for rank in parties if membership.receive(rank, Agreement).program != digest
    ]
    if others:
        raise RoundMismatchError(
            f"Worker {membership.members[membership.rank]!r} was asked to run {name} in run {membership.last_run}, and "
            f"{', '.join(map(repr, others))} another program, or with other shapes or public arguments. Nothing of the "
            "secrets was sent."
        )


def _check_dealt(membership: Membership, dealt: Dealt, digest: bytes) -> None:
    """!! RoundMismatchError if the provider dealt for another program"""
    if dealt.program != digest:
        raise RoundMismatchError(
            f"Worker {membership.members[-1]!r} dealt for another program than worker "
            f"{membership.members[membership.rank]!r} was asked to run in run {membership.last_run}."
        )


def _exchange(membership: Membership, one: Round) -> Any:
    sent = 0
    for to, tensors in one.outgoing.items():
        channel = membership.channels[to]
        channel.send(Frame(channel.ticket, membership.last_run, tensors))
        sent += sum(tensor.nbytes for tensor in tensors)
    received = {rank: membership.receive(rank, Frame).tensors for rank in one.incoming}
    check(membership.rank, one.incoming, received)
    membership.bytes_sent += sent
    membership.rounds += bool(sent or any(t.nbytes for tensors in received.values() for t in tensors))
    return one.finish(received)


def deal(membership: Membership, run: int, kinds: Sequence[Correlation], program: bytes) -> None:
    """Make correlations for a run, in order, and send each holder what it needs of them."""
    for kind in kinds:
        _check_kind(kind)
    provider = Provider(membership.holders, [membership.dealing[rank] for rank in range(membership.holders)])
    provider.cost = membership.deals
    dealing = provider.begin(run, program or AHEAD)
    for kind in kinds:
        for rank, tensors in enumerate(dealing.corrections(kind)):
            if tensors:
                channel = membership.channels[rank]
                channel.send(Dealt(channel.ticket, run, dealing.program, kind, tensors))


def _check_kind(kind: Any) -> None:
    """!! TypeError, ValueError: what a client may not ask a provider for."""
    inner = kind.kind if type(kind) is Sealed else kind
    if type(kind) not in KINDS or type(inner) not in SEALED + KINDS or type(inner) is Sealed:
        raise TypeError(f"A provider on a network deals no {type(kind).__name__} of that form.")
    fields = (*kind.base, *kind.derived, *(Field(shape) for _, shape in kind.kept))
    if any(n < 0 for one in fields for n in one.shape) or sum(one.nbytes for one in fields) > _MOST_BYTES:
        raise ValueError(
            f"A {type(kind).__name__} of {sum(one.nbytes for one in fields)} bytes was asked for; {_MOST_BYTES} is the "
            "most. Work on smaller batches."
        )


def tell(membership: Membership, run: int, program: bytes, kind: Any) -> torch.Tensor:
    """The mask under which something enters or leaves. !! TypeError for any other correlation"""
    _check_kind(kind)
    if type(kind) is not Sealed or type(kind.kind) is not Entrance:
        raise TypeError(
            f"A provider tells the masks of what enters and leaves, and no {type(kind).__name__}."
        )
    provider = Provider(membership.holders, [membership.dealing[rank] for rank in range(membership.holders)])
    return provider.tell(run, program, kind)


def size_of(kinds: Sequence[Correlation]) -> int:
    """Bytes that a holder keeps of correlations. !! TypeError, ValueError: what a client may not ask for"""
    for kind in kinds:
        _check_kind(kind)
    return sum(one.nbytes for kind in kinds for one in (*kind.base, *kind.derived))


def take_ahead(membership: Membership, kinds: Sequence[Correlation]) -> TakenAhead:
    """Take correlations now, for programs that name them later."""
    source = HolderSource(membership, AHEAD)
    parts = [(kind, source.draw(kind)) for kind in kinds]
    for position, part in enumerate(parts):
        membership.ahead[membership.last_run, position] = part
    return TakenAhead([part for _, part in parts])
