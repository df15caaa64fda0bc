"""Running a program at one party, and dealing for one: the network's counterpart of `drivers.Lockstep`.

See NOTE [What a network driver does] in `syft.mpc.drivers`. May import `membership`.
"""

from __future__ import annotations

import hashlib
import math
import secrets
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch

from syft import serde
from syft.messaging.message import Id, MessageRecord
from syft.mpc.binding import DIGEST_BYTES, kind_digest, program_digest, purpose
from syft.mpc.correlations import Correlation, Field, Mask, Place, Tensors, placed
from syft.mpc.drivers import NoSource, check_from, pairwise_seed
from syft.mpc.integrity.sealed import Entrance, Key, Sealed
from syft.mpc.network.membership import Membership, TakenAhead
from syft.mpc.network.messages import KINDS, SEALED, Agreement, Dealt, Frame
from syft.mpc.network.programs import program_named
from syft.mpc.parcels import parcels
from syft.mpc.party import Party, Round, RoundMismatchError
from syft.mpc.provider import CorrelationReusedError, drawn_shapes, expand
from syft.mpc.randomness import Stream
from syft.mpc.supplies import SupplyError

CPU = torch.device("cpu")
#: The most a provider makes for one correlation.
_MOST_BYTES = 16 << 30


#: From so many words on, the fields of a correlation are drawn one by one, when they are asked for.
_MANY_WORDS = 1 << 13

#: What correlations are bound to that are taken ahead of time, for no program in particular.
AHEAD = b"ahead of time"


class StoredPart(MessageRecord, frozen=True):
    """A holder's part of what one call takes, as it lies on the disk: NOTE [The same part]."""

    identity: bytes
    holders: tuple[Id, ...]
    rank: int
    run: int
    kinds: tuple[Any, ...]
    parts: tuple[tuple[torch.Tensor, ...], ...]


serde.register_record(StoredPart, "mpc.StoredPart")


class _Awaited:
    """What the provider sends of one correlation."""

    __slots__ = ("_due", "_kind", "tensors")

    def __init__(self, kind: Correlation, due: Sequence[Field]) -> None:
        self._kind, self._due = kind, due
        self.tensors: Tensors | None = None

    def receive(self, membership: Membership, program: bytes) -> Tensors:
        received: Tensors = ()
        for part in parcels([one.nbytes for one in self._due]):
            dealt: Dealt = membership.receive(membership.holders, Dealt)
            _check_dealt(membership, dealt, program)
            shapes = [tensor.shape for tensor in dealt.tensors]
            if dealt.kind != kind_digest(self._kind) or shapes != [one.shape for one in self._due[part]]:
                raise RoundMismatchError(
                    f"Holder {membership.rank} takes a {self._kind}, and the provider dealt another kind, or another "
                    f"shape, in run {membership.last_run}."
                )
            received += dealt.tensors
        return received


class HolderSource(NoSource):
    """`party.CorrelationSource` of one run: the seed in common with the provider, and what it sends."""

    def __init__(
        self,
        membership: Membership,
        program: bytes,
        ahead: Sequence[tuple[int, int] | None] = (),
        device: torch.device | None = None,
    ) -> None:
        self._membership = membership
        self._device = device
        self._program = program
        self._ahead = list(ahead)
        self._taken = self._drawn = 0
        #: What was taken, and is to be received still.
        self._awaited: deque[_Awaited] = deque()

    def take(self, kind: Correlation) -> Iterable[torch.Tensor]:
        position, self._taken = self._taken, self._taken + 1
        tag = self._ahead[position] if position < len(self._ahead) else None
        if tag is None:
            return self.draw(kind)
        kept, part = self._membership.ahead.pop(tag, (None, ()))
        if kept != kind:
            raise CorrelationReusedError(
                f"The correlation {tag}, taken ahead of time, is not here any more, or is no {type(kind).__name__}."
            )
        return _arrived(part, self._device or CPU)

    def draw(self, kind: Correlation) -> Iterator[torch.Tensor]:
        """This holder's fields of a new correlation, each drawn or received when it is asked for."""
        position, self._drawn = self._drawn, self._drawn + 1
        is_last = self._membership.rank == self._membership.holders - 1
        due = [one for one in kind.derived if is_last or one.common]
        if not due:
            return self.expand(kind, position, tuple)
        awaited = _Awaited(kind, due)
        self._awaited.append(awaited)
        return self.expand(kind, position, lambda: self._received(awaited))

    def _received(self, awaited: _Awaited) -> Tensors:
        """What the provider sends of a correlation. It comes in the order in which they were taken."""
        while awaited.tensors is None:
            first = self._awaited.popleft()
            first.tensors = first.receive(self._membership, self._program)
        return awaited.tensors

    def expand(
        self, kind: Correlation, position: int, received: Callable[[], Tensors]
    ) -> Iterator[torch.Tensor]:
        """This holder's fields, where its shares lie, of what the provider sent and of the stream that they share."""
        membership, device = self._membership, None if kind.on_cpu else self._device
        meant = purpose(membership.last_run, self._program, position, kind, device is not None)
        is_last = membership.rank == membership.holders - 1
        shapes = drawn_shapes(kind, is_last)
        is_large = sum(map(math.prod, shapes)) >= _MANY_WORDS
        stream = membership.stream.apart(meant) if is_large else membership.stream.at(meant)
        drawn = stream.draw_all(shapes, device)
        return expand(
            kind, drawn if is_large else iter(tuple(drawn)), lambda: _arrived(received(), device), is_last
        )

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
        return Key.of(self._membership.stream)


def run_program(
    membership: Membership,
    name: str,
    args: Sequence[Any],
    kwargs: dict[str, Any],
    ahead: Sequence[tuple[int, int] | None],
    digest: bytes,
    device: torch.device | None = None,
) -> Any:
    """Run a program as this member, for the run that has begun; returns this party's result.

    `digest` says what was asked for: randomness is bound to it, and the parties compare it before the first frame.
    `device`: where its shares lie in a run whose words are wide. Frames travel from and to the CPU.
    """
    start = time.perf_counter()
    program = program_named(name)
    is_online = getattr(program, "provider_online", False)
    parties = [rank for rank in membership.channels if is_online or rank != membership.holders]
    _tell_program(membership, parties, digest)
    source = NoSource() if membership.is_provider else HolderSource(membership, digest, ahead, device)
    page = membership.ledger.pages()[0]
    party = Party(membership.rank, membership.holders, source, page=page, owns_received=True)
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
            one = running.send(_exchange(membership, one, device))
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


def _exchange(membership: Membership, one: Round, device: torch.device | None = None) -> Any:
    sent, is_round = 0, False
    outgoing = one.outgoing if device is None else departing(one.outgoing)
    for to, tensors in outgoing.items():
        channel, sizes = membership.channels[to], [tensor.nbytes for tensor in tensors]
        for part in parcels(sizes):
            channel.send(Frame(channel.ticket, membership.last_run, tensors[part]))
        sent += sum(sizes)
    received = {}
    for rank, expected in one.incoming.items():
        tensors = ()
        for part in parcels([kind.nbytes for kind in expected] if len(expected) > 1 else (0,)):
            arrived = membership.receive(rank, Frame).tensors
            check_from(membership.rank, rank, expected[part], arrived)
            tensors += arrived
        received[rank] = tensors
        is_round = is_round or any(tensor.nbytes for tensor in tensors)
    membership.bytes_sent += sent
    membership.rounds += is_round or sent > 0
    if device is not None:
        received = {rank: _arrived(tensors, device) for rank, tensors in received.items()}
    return one.finish(received)


def departing(outgoing: Mapping[int, Tensors]) -> Mapping[int, Tensors]:
    """What goes out, on the CPU. All copies from a device are under way at once, and are waited for once."""
    there = {id(t): t for tensors in outgoing.values() for t in tensors if t.device.type != "cpu"}
    if not there:
        return outgoing
    copies = {key: t.to("cpu", non_blocking=True) for key, t in there.items()}
    for device in {t.device for t in there.values() if t.device.type == "cuda"}:
        torch.cuda.current_stream(device).synchronize()
    return {to: tuple(copies.get(id(t), t) for t in tensors) for to, tensors in outgoing.items()}


def _arrived(tensors: Tensors, device: torch.device | None) -> Tensors:
    """What came, where the shares lie. The copy has left the memory of the frame when this returns."""
    return tensors if device is None else tuple(tensor.to(device) for tensor in tensors)


def deal(
    membership: Membership,
    run: int,
    kinds: Sequence[Correlation],
    program: bytes,
    device: torch.device | None = None,
) -> None:
    """Make correlations for a run, in order, and send each holder what it needs of them.

    `device`: where to make them for shares that lie on devices; it may be the CPU.
    """
    for kind in kinds:
        _check_kind(kind)
    dealing = membership.dealer.begin(run, program or AHEAD, device)
    for kind in kinds:
        corrections = departing(dict(enumerate(dealing.corrections(kind))))
        for rank, tensors in corrections.items():
            channel, digest = membership.channels[rank], kind_digest(kind)
            for part in parcels([tensor.nbytes for tensor in tensors]) if tensors else ():
                channel.send(Dealt(channel.ticket, run, dealing.program, digest, tensors[part]))


def _check_kind(kind: Any) -> None:
    """!! TypeError, ValueError: what a client may not ask a provider for."""
    inner = kind.kind if type(kind) is Sealed else kind
    if type(kind) not in KINDS or type(inner) not in SEALED + KINDS or type(inner) is Sealed:
        raise TypeError(f"A provider on a network deals no {type(kind).__name__} of that form.")
    fields = (*kind.base, *kind.derived, *(Field(one.shape) for one in kind.kept))
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
    return membership.dealer.tell(run, program, kind)


def size_of(kinds: Sequence[Correlation]) -> int:
    """Bytes that a holder keeps of correlations. !! TypeError, ValueError: what a client may not ask for"""
    for kind in kinds:
        _check_kind(kind)
    return sum(one.nbytes for kind in kinds for one in (*kind.base, *kind.derived))


def take_ahead(
    membership: Membership, kinds: Sequence[Correlation], device: torch.device | None = None
) -> TakenAhead:
    """Take correlations now, for programs that name them later."""
    source = HolderSource(membership, AHEAD, device=device)
    parts = [(kind, tuple(source.draw(kind))) for kind in kinds]
    for position, part in enumerate(parts):
        membership.ahead[membership.last_run, position] = part
    return TakenAhead([part for _, part in parts])


# -- supplies on disk ----------------------------------------------------------------------------------------


# NOTE [The same part]
# Correlations that are taken in one group and used in another are not drawn from seeds which the parties have in common
# then. If two holders used different ones in one run, what is opened would be an equation in the secret. So when holders
# keep a part they agree on its kinds and give it an `identity`, a hash that each of them adds random bytes to: no two
# parts have the same, whatever a client asks for. A run that takes from it has the identity in the digest which the
# parties compare before the first frame goes out.


def part_to_store(
    membership: Membership,
    kinds: Sequence[Correlation],
    place: tuple[str, int, int],
    device: torch.device | None = None,
) -> bytes:
    """Take correlations, and agree with the other holders on what they are called; as bytes for the disk."""
    for kind in kinds:
        if type(kind) is Sealed:
            raise SupplyError(
                "Correlations with MACs are not kept on disk: the key of the MACs is of one group, and ends with it. "
                "Leave store=... out, or share with another protocol."
            )
    holders = membership.members[:-1]
    digest = program_digest("supply", (*place, tuple(kinds), holders), {})
    nonce, nonces = secrets.token_bytes(DIGEST_BYTES), {}
    others = [rank for rank in membership.channels if rank != membership.holders]
    _tell_program(membership, others, nonce + digest)
    source = HolderSource(membership, AHEAD, device=device)
    parts = tuple(_arrived(tuple(source.draw(kind)), CPU) for kind in kinds)
    for rank in others:
        said = membership.receive(rank, Agreement).program
        if said[DIGEST_BYTES:] != digest:
            raise RoundMismatchError(
                f"Worker {membership.members[membership.rank]!r} was asked to keep other correlations than worker "
                f"{membership.members[rank]!r} for call {place[2]} of the supply {place[0]!r}."
            )
        nonces[rank] = said[:DIGEST_BYTES]
    nonces[membership.rank] = nonce
    whole = b"".join(nonces[rank] for rank in sorted(nonces))
    identity = hashlib.blake2b(whole + digest, digest_size=DIGEST_BYTES, person=b"syft supply").digest()
    stored = StoredPart(identity, holders, membership.rank, membership.last_run, tuple(kinds), parts)
    return serde.serialize(stored)


def take_part(membership: Membership, name: str, lot: int, content: bytes) -> tuple[StoredPart, TakenAhead]:
    """Let programs of this group use what was read from the disk, in the run that has begun. !! SupplyError"""
    part = serde.deserialize(content)
    if type(part) is not StoredPart or len(part.kinds) != len(part.parts):
        raise SupplyError(f"What was kept of the supply {name!r} is of another kind: provide again.")
    here = membership.members[:-1]
    if (part.holders, part.rank) != (here, membership.rank):
        raise SupplyError(
            f"The supply {name!r} was made for the holders {', '.join(map(str, part.holders))}, in this order, and not "
            f"for {', '.join(map(str, here))}."
        )
    runs = membership.supply_runs.setdefault((name, lot), {})
    runs[part.run] = membership.last_run
    kinds = placed_anew(part.kinds, runs)
    for position, (kind, tensors) in enumerate(zip(kinds, part.parts, strict=True)):
        membership.ahead[membership.last_run, position] = kind, tuple(tensors)
    membership.supplied[membership.last_run] = part.identity
    return part, TakenAhead(list(part.parts))


def placed_anew(kinds: Sequence[Correlation], runs: Mapping[int, int]) -> list[Correlation]:
    """Kinds whose masks were dealt in other runs than they are used in. !! SupplyError if one is not here"""
    places: dict[Place, Place] = {}
    for kind in kinds:
        for place, *_ in kind.kept:
            if place.run not in runs:
                raise SupplyError(
                    "The masks of weights that this call of a supply goes with were taken in another session. Begin "
                    "another lot."
                )
            places[place] = Place(runs[place.run], AHEAD, place.position)
    return [placed(kind, places) for kind in kinds]


def identities(
    supplied: Mapping[int, bytes], ahead: Sequence[tuple[int, int] | None]
) -> tuple[tuple[bytes, ...], ...]:
    """What parties add to what they agree on if a run takes from supplies. NOTE [The same part]"""
    runs = dict.fromkeys(tag[0] for tag in ahead if tag is not None and tag[0] in supplied)
    return (tuple(supplied[run] for run in runs),) if runs else ()
