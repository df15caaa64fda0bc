"""A protocol as one party sees it.

A protocol is a generator function run by ONE party on its own shares. Every `yield` is one round: it hands a
`Round` to the driver and gets back what the peers said. `return` gives this party's share of the result:

    def multiply(party, x, y):
        a, b, c = party.take(Triple(MUL, x.shape, y.shape))   # correlated randomness, dealt ahead of time
        d, e = yield party.open(x - a, y - b)                 # send mine, receive theirs, add up
        return c + d * y + a * e

A protocol calls another with `yield from`, and independent ones in the same rounds with `together`. It does
no I/O, knows no network and no clock, and must take the same path at every party: it may branch on public
values only. Imports torch and `blocks`, and `correlations` for typing.

NOTE [Ownership]
A driver in one process hands tensors over without copying. What `open` returns is the receiver's own and
may be written to; what was put into a `Round` must not be written to before the round has returned, and the
tensors that `exchange` returns belong to their sender: read only.

NOTE [Fields in order]
The fields of a correlation come in order: first those that a party draws itself, then those that the provider makes. On
a network each is drawn, or waited for, when it is asked for. So a program that reads the masks, opens, and reads the rest
when it needs it computes while the provider does:

    fields = party.fields(Square(x.shape))
    a = next(fields)
    d = yield party.open(x - a)
    aa = next(fields)                                         # made meanwhile
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import wraps
from typing import Any, Protocol, TypeVar, cast

import torch

from syft.exceptions import SyftError
from syft.mpc import blocks
from syft.mpc.correlations import Correlation, Place

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])
Tensors = tuple[torch.Tensor, ...]


class RoundMismatchError(SyftError, RuntimeError):
    """Two parties disagree about what a run or a round carries: their programs have diverged."""


@dataclass(frozen=True)
class Expected:
    """What a message has to look like: a driver refuses anything else before it allocates."""

    shape: tuple[int, ...]
    dtype: torch.dtype = torch.int64

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize


@dataclass(frozen=True)
class Round:
    """One exchange: what goes out to whom, what has to come in from whom, and what to make of it."""

    outgoing: Mapping[int, Tensors]
    incoming: Mapping[int, tuple[Expected, ...]]
    finish: Callable[[Mapping[int, Tensors]], Any]
    opened: bool = False
    """True when the round reveals `finish`'s result to this party on purpose (transcripts record it)."""


Program = Generator[Round, Any, T]


class CorrelationSource(Protocol):
    """Where one party's shares of correlated randomness come from."""

    def take(self, kind: Correlation) -> Iterable[torch.Tensor]:
        """This party's fields of the next unused correlation of this kind, in order; never the same twice."""
        ...

    def mask(self, shape: Sequence[int]) -> tuple[Place, torch.Tensor]:
        """A mask for all products of one operand: its name, the same at every holder, and this holder's share."""
        ...

    def key(self) -> Any:
        """This holder's part of the MAC key of authenticated shares (`integrity.sealed.Key`)."""
        ...


@dataclass
class Party:
    """One party of a protocol: its rank among `holders`, and its source of correlated randomness.

    Ranks 0 .. holders - 1 hold shares. The provider, where a protocol needs it online, has rank `holders`;
    it has no shares, and its arguments are meta tensors that tell it the shapes.
    """

    rank: int
    holders: int
    source: CorrelationSource
    private: Any = field(default=None, repr=False)
    """Streams shared with single peers, for protocols with pairwise randomness (SecureNN): see `drivers`."""
    page: Any = field(default=None, repr=False)
    """What this holder opened of authenticated shares before and has not checked (`integrity.ledger.Page`)."""
    seal: Any = field(default=None, repr=False)
    """Its part in this run (`integrity.ledger.Seal`), where shares are authenticated: NOTE [Twins]."""
    owns_received: bool = False
    """Whether what it receives is in memory of its own, as on a network: then openings are added up there."""

    @property
    def first(self) -> bool:
        """Whether this party adds the public constants."""
        return self.rank == 0

    @property
    def is_provider(self) -> bool:
        return self.rank == self.holders

    @property
    def peers(self) -> list[int]:
        """The other holders."""
        return [rank for rank in range(self.holders) if rank != self.rank]

    def take(self, kind: Correlation) -> Tensors:
        """This party's fields of a fresh correlation."""
        return tuple(self.source.take(kind))

    def fields(self, kind: Correlation) -> Iterator[torch.Tensor]:
        """The same, each when it is asked for. NOTE [Fields in order]"""
        return iter(self.source.take(kind))

    def constant(self, value: torch.Tensor) -> torch.Tensor:
        """A share of a public value: the value at the first party, zero at the others."""
        if self.seal is not None:
            return cast(torch.Tensor, self.seal.public(value))
        return value if self.first else torch.zeros_like(value)

    def plus(self, share: torch.Tensor, value: int) -> torch.Tensor:
        """A share of a secret plus a public number."""
        return share + value if self.first or self.seal is not None else share

    def inverted(self, words: torch.Tensor) -> torch.Tensor:
        """Boolean shares of the opposite bits."""
        return ~words if self.first or self.seal is not None else words

    # -- rounds ----------------------------------------------------------------------------------------

    def open(self, *shares: torch.Tensor) -> Round:
        """Reveal additively shared tensors to all holders: gives the tensor, or a tuple of several."""
        return self._open(shares, blocks.add_, torch.add)

    def open_bits(self, *words: torch.Tensor) -> Round:
        """Reveal Boolean-shared words to all holders."""
        return self._open(words, torch.Tensor.bitwise_xor_, torch.bitwise_xor)

    def _open(self, shares: Tensors, join_: Callable[..., Any], join: Callable[..., Any]) -> Round:
        shares = tuple([share.contiguous() for share in shares])
        expected = tuple([Expected(tuple(share.shape), share.dtype) for share in shares])
        peers = self.peers

        def finish(received: Mapping[int, Tensors]) -> Any:
            opened = []
            for index, mine in enumerate(shares):
                first = received[peers[0]][index]
                total = join_(first, mine) if self.owns_received else join(mine, first)
                for peer in peers[1:]:
                    join_(total, received[peer][index])
                opened.append(total)
            return opened[0] if len(opened) == 1 else tuple(opened)

        return Round(dict.fromkeys(peers, shares), dict.fromkeys(peers, expected), finish, opened=True)

    def exchange(
        self,
        outgoing: Mapping[int, Sequence[torch.Tensor]] | None = None,
        incoming: Mapping[int, Sequence[Expected]] | None = None,
    ) -> Round:
        """Point-to-point messages: gives a dict from rank to the tuple of tensors it sent."""
        return Round(
            {rank: tuple(t.contiguous() for t in tensors) for rank, tensors in (outgoing or {}).items()},
            {rank: tuple(expected) for rank, expected in (incoming or {}).items()},
            dict,
        )


def join(*rounds: Round) -> Round:
    """Several rounds as one: one message per peer, and a tuple of their results."""
    if len(rounds) == 1:
        only = rounds[0]
        return Round(only.outgoing, only.incoming, lambda received: (only.finish(received),), only.opened)
    outgoing: dict[int, Tensors] = {}
    incoming: dict[int, tuple[Expected, ...]] = {}
    spans: list[dict[int, tuple[int, int]]] = []
    for one in rounds:
        for rank, tensors in one.outgoing.items():
            outgoing[rank] = outgoing.get(rank, ()) + tensors
        span = {}
        for rank, expected in one.incoming.items():
            start = len(incoming.get(rank, ()))
            incoming[rank] = incoming.get(rank, ()) + expected
            span[rank] = (start, start + len(expected))
        spans.append(span)

    def finish(received: Mapping[int, Tensors]) -> tuple[Any, ...]:
        return tuple(
            one.finish({rank: received[rank][a:b] for rank, (a, b) in span.items()})
            for one, span in zip(rounds, spans, strict=True)
        )

    return Round(outgoing, incoming, finish, any(one.opened for one in rounds))


def together(*programs: Program[Any]) -> Program[tuple[Any, ...]]:
    """Run independent programs side by side, each of their rounds in one.

    As many rounds as the longest has.
    """
    results: list[Any] = [None] * len(programs)
    waiting: list[tuple[int, Round]] = []
    for index in range(len(programs)):
        _advance(programs, index, None, results, waiting)
    while waiting:
        current, waiting = waiting, []
        replies = yield join(*(one for _, one in current))
        for (index, _), reply in zip(current, replies, strict=True):
            _advance(programs, index, reply, results, waiting)
    return tuple(results)


def _advance(
    programs: Sequence[Program[Any]],
    index: int,
    reply: Any,
    results: list[Any],
    waiting: list[tuple[int, Round]],
) -> None:
    try:
        waiting.append((index, programs[index].send(reply)))
    except StopIteration as done:
        results[index] = done.value


def cat(shares: Sequence[Any]) -> Any:
    """`torch.cat` of shares, authenticated or not. (Inside rules torch does not ask other types.)"""
    return (
        torch.cat(list(shares))
        if isinstance(shares[0], torch.Tensor)
        else shares[0].joined(torch.cat, shares)
    )


def stack(shares: Sequence[Any], dim: int = 0) -> Any:
    """`torch.stack` of shares, authenticated or not."""
    if isinstance(shares[0], torch.Tensor):
        return torch.stack(list(shares), dim)
    return shares[0].joined(torch.stack, shares, dim)


def zeros_like(share: Any) -> Any:
    """Shares of zeros."""
    return (
        torch.zeros_like(share)
        if isinstance(share, torch.Tensor)
        else share.like(torch.zeros_like(share.words))
    )


TWINS: dict[str, Callable[..., Program[Any]]] = {}
"""name of a primitive -> what does the same on authenticated shares."""


def primitive(program: F) -> F:
    """Mark a protocol that opens something by itself.

    NOTE [Twins]
    A protocol that is made of others runs on authenticated shares as it is. One that takes randomness and opens values
    has a twin for them (`sealed_twin`), which runs in its place where the party has a seal; without one it raises.
    """
    name = f"{program.__module__.rpartition('.')[2]}.{program.__name__}"

    @wraps(program)
    def run(party: Party, *args: Any, **kwargs: Any) -> Any:
        if party.seal is None:
            return program(party, *args, **kwargs)
        if name not in TWINS:
            raise NotImplementedError(f"{name} has no form for authenticated shares (protocol='spdz2k').")
        return TWINS[name](party, *args, **kwargs)

    return cast(F, run)


def sealed_twin(name: str) -> Callable[[F], F]:
    """Register what runs in the place of a primitive on authenticated shares. NOTE [Twins]"""

    def register(program: F) -> F:
        TWINS[name] = program
        return program

    return register


def with_provider(protocol: F) -> F:
    """Mark a protocol that needs the provider as a party online: drivers then run it there, too."""
    protocol.provider_online = True  # type: ignore[attr-defined]
    return protocol


def on_cpu(protocol: F) -> F:
    """Mark a protocol that is computed on the CPU wherever the shares lie: NOTE [On the CPU] in `drivers`."""
    protocol.on_cpu = True  # type: ignore[attr-defined]
    return protocol


def done(value: T) -> Program[T]:
    """A program without rounds, so that local results fit where a program is expected."""
    return value
    yield  # pragma: no cover - makes this a generator function
