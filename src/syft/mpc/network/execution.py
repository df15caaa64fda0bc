"""Running a program at one party, and dealing for one: the network's counterpart of `drivers.Lockstep`.

See NOTE [What a network driver does] in `syft.mpc.drivers`. May import `membership`.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import torch

from syft.mpc.correlations import Correlation, Tensors
from syft.mpc.drivers import NoSource, RoundMismatchError, check
from syft.mpc.network.membership import Membership, seed_of_run
from syft.mpc.network.messages import KINDS, Dealt, Frame
from syft.mpc.network.programs import PartyProgram
from syft.mpc.party import Party, Round
from syft.mpc.provider import CorrelationReusedError, Provider, expand
from syft.mpc.randomness import Stream

#: The most a provider makes for one correlation.
_MOST_BYTES = 16 << 30


class HolderSource(NoSource):
    """`party.CorrelationSource` of one run: the seed in common with the provider, and what it sends."""

    def __init__(self, membership: Membership, ahead: Sequence[tuple[int, int] | None] = ()) -> None:
        self._membership = membership
        self._ahead = list(ahead)
        self._taken = 0
        self._stream = Stream(seed_of_run(membership.dealing[membership.rank], membership.last_run))

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
        is_last = membership.rank == membership.holders - 1
        due = [one for one in kind.derived if is_last or one.common]
        received: Tensors = ()
        if due:
            dealt: Dealt = membership.receive(membership.holders, Dealt)
            received = dealt.tensors
            if dealt.kind != kind or [tuple(t.shape) for t in received] != [one.shape for one in due]:
                raise RoundMismatchError(
                    f"Holder {membership.rank} takes a {kind}, and the provider dealt a {dealt.kind} in run "
                    f"{membership.last_run}."
                )
        return expand(kind, self._stream, received, is_last)

    def mask(self, shape: Sequence[int]) -> tuple[int, torch.Tensor]:
        raise NotImplementedError("Masks that a provider remembers are for workers of one process so far.")


def run_program(
    membership: Membership,
    program: PartyProgram,
    args: Sequence[Any],
    kwargs: dict[str, Any],
    ahead: Sequence[tuple[int, int] | None],
) -> Any:
    """Run a program as this member, for the run that has begun; returns this party's result."""
    start = time.perf_counter()
    source = NoSource() if membership.is_provider else HolderSource(membership, ahead)
    party = Party(membership.rank, membership.holders, source)
    if getattr(program, "provider_online", False):
        party.private = {
            rank: Stream(seed_of_run(seed, membership.last_run)) for rank, seed in membership.pairwise.items()
        }
    running = program(party, *args, **kwargs)
    reply: Any = None
    try:
        while True:
            reply = _exchange(membership, running.send(reply))
    except StopIteration as done:
        return done.value
    finally:
        membership.seconds += time.perf_counter() - start


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


def deal(membership: Membership, run: int, kinds: Sequence[Correlation]) -> None:
    """Make correlations for a run, in order, and send each holder what it needs of them."""
    for kind in kinds:
        _check_kind(kind)
    seeds = [seed_of_run(membership.dealing[rank], run) for rank in range(membership.holders)]
    provider = Provider(membership.holders, seeds)
    provider.cost = membership.deals
    for kind in kinds:
        for rank, tensors in enumerate(provider.corrections(kind)):
            if tensors:
                channel = membership.channels[rank]
                channel.send(Dealt(channel.ticket, run, kind, tensors))


def _check_kind(kind: Any) -> None:
    """!! TypeError, ValueError: what a client may not ask a provider for."""
    if type(kind) not in KINDS or kind.kept:
        raise TypeError(f"A provider on a network deals no {type(kind).__name__} of that form.")
    fields = (*kind.base, *kind.derived)
    if any(n < 0 for one in fields for n in one.shape) or sum(one.nbytes for one in fields) > _MOST_BYTES:
        raise ValueError(
            f"A {type(kind).__name__} of {sum(one.nbytes for one in fields)} bytes was asked for; {_MOST_BYTES} is the "
            "most. Work on smaller batches."
        )


def take_ahead(membership: Membership, kinds: Sequence[Correlation]) -> None:
    """Take correlations now, for programs that name them later."""
    source = HolderSource(membership)
    for position, kind in enumerate(kinds):
        _check_kind(kind)
        membership.ahead[membership.last_run, position] = kind, source.draw(kind)
