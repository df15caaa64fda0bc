"""Drivers: what runs a party program and carries its rounds.

`Driver` is the interface. `Lockstep` steps all parties inside one process, hands tensors over without
copying and counts rounds and bytes exactly; among workers on a network `syft.mpc.network` does. May import
`party`, `provider`, `randomness`.

NOTE [What a network driver does]
It runs in each holder, for that holder's `Party` (`network.execution`), and is `drive` with one difference:
where `Lockstep` looks into the other programs' rounds, it sends `outgoing[rank]` to each rank as ONE frame,
waits for one frame from each rank in `incoming`, checks that it has exactly the expected shapes and dtypes
(how large a frame may be is limited before it is read), and sends `finish(received)` into the program.
Frames between two holders are ordered, so no numbering is needed beyond that of the runs. Its
`CorrelationSource` calls `provider.expand` on the seed it shares with the provider and on the corrections
received. Programs never learn which driver runs them.

NOTE [On the CPU]
SecureNN (its provider is a party online) and shares with MACs are computed on the CPU. Where the shares lie on a
device they are brought to the CPU for such a program, and its results back to the device.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

import torch

from syft.core.nested import found_in
from syft.mpc import metering
from syft.mpc.correlations import Correlation, Place
from syft.mpc.integrity.ledger import Ledger
from syft.mpc.kernels import is_on_cuda
from syft.mpc.party import Expected, Party, Program, Round, RoundMismatchError, Tensors
from syft.mpc.placing import all_placed
from syft.mpc.provider import Dealing, Provider, ProviderCost
from syft.mpc.randomness import Stream, derived_seed, new_seed

CPU = torch.device("cpu")


class Shares(tuple[Any, ...]):
    """One object per holder: arguments that differ from party to party, and results."""

    __slots__ = ()


@dataclass
class Cost:
    """The online cost of what a driver ran, for one party or (lockstep) for all."""

    rounds: int = 0
    bytes_sent: list[int] = field(default_factory=list)  # by rank; the provider, if online, comes last
    seconds: float = 0.0


class Driver(Protocol):
    """Runs protocols.

    `run(protocol, *args)` calls `protocol(party, *args)` at every party and gives the results.
    """

    cost: Cost

    def run(self, protocol: Callable[..., Program[Any]], *args: Any, **kwargs: Any) -> Any: ...


@dataclass(frozen=True)
class Seen:
    """One thing a party saw: the round, who sent it (or "opened"), and the tensor."""

    round: int
    sender: int | str
    tensor: torch.Tensor


class NoSource:
    """The provider's own: it deals correlations, and takes none."""

    def take(self, kind: Any) -> Iterable[torch.Tensor]:
        raise RoundMismatchError(
            f"The provider asked for a {type(kind).__name__}: its program took a holder's path."
        )

    def mask(self, shape: Sequence[int]) -> tuple[Place, torch.Tensor]:
        raise RoundMismatchError("The provider asked for a mask: its program took a holder's path.")

    def key(self) -> Any:
        raise RoundMismatchError("The provider asked for a holder's key: its program took a holder's path.")


class Lockstep:
    """All parties in one process, stepped together.

    `Shares` among the arguments are dealt out, everything else is public. Each party's result is its part
    of the returned `Shares`; where every party returned a tuple, a tuple of `Shares` comes back. With
    `transcript=True`, `seen[rank]` lists everything that party received and every value it saw opened.
    Several threads may run programs at the same time. All parties of a run are given one program, so `program`, the
    digest that randomness is bound to, matters only to who compares with another driver.
    """

    def __init__(
        self,
        holders: int = 2,
        provider: Provider | None = None,
        transcript: bool = False,
        program: bytes = b"",
    ) -> None:
        self.provider = Provider(holders) if provider is None else provider
        if self.provider.holders != holders:
            raise ValueError(f"The provider deals to {self.provider.holders} holders, not to {holders}.")
        self.holders = holders
        self.program = program
        self._pairwise = {(i, j): new_seed() for j in range(holders + 1) for i in range(j)}
        self._counting = threading.Lock()
        self.ledger = Ledger(holders)
        self._recordings: Any = None
        #: What a call goes through while it is recorded as a whole: see `recording`.
        self.session: Any = None
        self.cost = Cost(bytes_sent=[0] * (holders + 1))
        self.seen: list[list[Seen]] | None = [[] for _ in range(holders + 1)] if transcript else None

    def reset(self) -> None:
        """Set the counters and the transcript back."""
        self.cost = Cost(bytes_sent=[0] * (self.holders + 1))
        self.provider.cost = ProviderCost()
        if self.seen is not None:
            self.seen = [[] for _ in self.seen]

    def run(self, protocol: Callable[..., Program[Any]], *args: Any, **kwargs: Any) -> Any:
        """Run `protocol` at every holder, and at the provider if it is marked `party.with_provider`."""
        return self._run(protocol, args, kwargs)[0]

    def run_and_tell(
        self, kind: Correlation, protocol: Callable[..., Program[Any]], *args: Any, **kwargs: Any
    ) -> tuple[Any, torch.Tensor]:
        """The same, and the value of the first correlation of the run, an `Entrance` that the client is told."""
        result, dealing = self._run(protocol, args, kwargs)
        return result, self.provider.tell(dealing.run, dealing.program, kind)

    def _run(self, protocol: Callable[..., Program[Any]], args: Any, kwargs: Any) -> tuple[Any, Dealing]:
        device = device_of((args, kwargs))
        if device is not None and runs_on_cpu(protocol):
            return self._run_on_cpu(protocol, args, kwargs, device)
        return self._run_at(device, protocol, args, kwargs)

    def _run_at(
        self, device: torch.device | None, protocol: Callable[..., Program[Any]], args: Any, kwargs: Any
    ) -> tuple[Any, Dealing]:
        start = time.perf_counter()
        if device is not None:
            args, kwargs = all_placed((args, kwargs), device, Shares)
        dealing = self.provider.begin(program=self.program, device=device)
        cost = Cost(bytes_sent=[0] * (self.holders + 1))

        def stepped(arguments: Any, source: Callable[[int], Any]) -> list[Any]:
            return self._stepped(protocol, arguments[0], arguments[1], source, dealing, cost)

        try:
            if self.session is not None:
                results = self.session.run(dealing, (args, kwargs), stepped)
            elif device is None or self.seen is not None:
                results = stepped((args, kwargs), dealing.source)
            else:
                results = self._on_device(protocol, (args, kwargs), dealing, stepped, cost)
        finally:
            # The provider's work is done on demand inside the programs' time: it is reported apart.
            cost.seconds = time.perf_counter() - start - dealing.cost.seconds
            self._count(cost)
        if metering.is_measuring():
            metering.note(programs_name(protocol), spent_by(cost, dealing.cost))
        return _gathered(results), dealing

    def _run_on_cpu(
        self, protocol: Callable[..., Program[Any]], args: Any, kwargs: Any, device: torch.device
    ) -> tuple[Any, Dealing]:
        """NOTE [On the CPU]"""
        if self.session is not None:
            raise NotImplementedError(
                f"{programs_name(protocol)} is computed on the CPU, and a recording stays on the device. Record a model "
                "whose secrets are shared with the default protocol."
            )
        given, named = shares_at((tuple(args), dict(kwargs)), CPU)
        result, dealing = self._run_at(None, protocol, given, named)
        return shares_at(result, device), dealing

    def _count(self, cost: Cost) -> None:
        with self._counting:
            self.cost.rounds += cost.rounds
            self.cost.seconds += cost.seconds
            for rank, count in enumerate(cost.bytes_sent):
                self.cost.bytes_sent[rank] += count

    def _on_device(
        self, protocol: Any, arguments: Any, dealing: Dealing, stepped: Any, cost: Cost
    ) -> list[Any]:
        """On a CUDA device what was run before is replayed: see `syft.mpc.cuda.graphs`."""
        if not is_on_cuda(dealing):
            return list(stepped(arguments, dealing.source))
        from syft.mpc.cuda import graphs

        if self._recordings is None:
            self._recordings = graphs.Recordings()
        return graphs.run_program(
            self._recordings,
            protocol,
            arguments,
            lambda value: isinstance(value, Shares),
            dealing,
            self.holders,
            stepped,
            cost,
        )

    def _stepped(
        self,
        protocol: Callable[..., Program[Any]],
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        source: Callable[[int], Any],
        dealing: Dealing,
        cost: Cost,
    ) -> list[Any]:
        """Run a program with correlations from `source(rank)`; gives the result of every holder."""
        parties = [
            Party(rank, self.holders, source(rank), page=page)
            for rank, page in enumerate(self.ledger.pages())
        ]
        if getattr(protocol, "provider_online", False):
            parties.append(Party(self.holders, self.holders, NoSource()))
            self._share_pairwise_streams(parties, dealing)
        programs = [
            protocol(
                party, *(_part(a, party) for a in args), **{k: _part(v, party) for k, v in kwargs.items()}
            )
            for party in parties
        ]
        results = self._drive(programs, cost)[: self.holders]
        self.ledger.commit([party.seal for party in parties if party.seal is not None])
        return results

    def _share_pairwise_streams(self, parties: Sequence[Party], dealing: Dealing) -> None:
        """Give every two parties a stream of this run that only they know (two copies of one seed)."""
        for party in parties:
            party.private = {}
        for (i, j), seed in self._pairwise.items():
            mine = pairwise_seed(seed, dealing.run, dealing.program)
            parties[i].private[j], parties[j].private[i] = Stream(mine), Stream(mine)

    def _drive(self, programs: Sequence[Program[Any]], cost: Cost) -> list[Any]:
        results: list[Any] = [None] * len(programs)
        replies: dict[int, Any] = dict.fromkeys(range(len(programs)))
        while replies:
            rounds: dict[int, Round] = {}
            for rank, reply in replies.items():
                try:
                    rounds[rank] = programs[rank].send(reply)
                except StopIteration as done:
                    results[rank] = done.value
            # NB: every `finish` runs before any program goes on, for programs may write to what they sent.
            replies = self._exchange(rounds, cost) if rounds else {}
        return results

    def _exchange(self, rounds: Mapping[int, Round], cost: Cost) -> dict[int, Any]:
        sent = 0
        inbox: dict[int, dict[int, Tensors]] = {rank: {} for rank in rounds}
        for rank, one in rounds.items():
            for to, tensors in one.outgoing.items():
                if to not in rounds:
                    raise RoundMismatchError(f"Party {rank} sends to party {to}, whose program has ended.")
                inbox[to][rank] = tensors
                size = sum(t.nbytes for t in tensors)
                cost.bytes_sent[rank] += size
                sent += size
        cost.rounds += sent > 0
        replies = {}
        for rank, one in rounds.items():
            check(rank, one.incoming, inbox[rank])
            replies[rank] = one.finish(inbox[rank])
            if self.seen is not None:
                self._record(self.cost.rounds + cost.rounds, rank, one, inbox[rank], replies[rank])
        return replies

    def _record(
        self, number: int, rank: int, one: Round, received: Mapping[int, Tensors], reply: Any
    ) -> None:
        if self.seen is None:
            return
        for sender, tensors in received.items():
            self.seen[rank] += [Seen(number, sender, t.clone()) for t in tensors]
        if one.opened:
            self.seen[rank] += [Seen(number, "opened", t.clone()) for t in _tensors(reply)]


def programs_name(protocol: Any) -> str:
    """How a bill calls a program that belongs to no operation."""
    inner = getattr(protocol, "func", protocol)
    return f"{getattr(inner, '__module__', '').rpartition('.')[2]}.{getattr(inner, '__name__', inner)}"


def spent_by(online: Cost, offline: ProviderCost) -> metering.Spent:
    """Costs as a bill has them."""
    return metering.Spent(
        online.rounds,
        sum(online.bytes_sent),
        max(online.bytes_sent, default=0),
        online.seconds,
        offline.bytes,
        offline.seconds,
        offline.correlations,
    )


def check(rank: int, expected: Mapping[int, tuple[Expected, ...]], received: Mapping[int, Tensors]) -> None:
    """Refuse a round in which a party got anything but what its program expects."""
    if expected.keys() != received.keys():
        raise RoundMismatchError(
            f"Party {rank} expects messages from {sorted(expected)} and got them from {sorted(received)}."
        )
    for sender, kinds in expected.items():
        check_from(rank, sender, kinds, received[sender])


def check_from(rank: int, sender: int, kinds: Sequence[Expected], tensors: Tensors) -> None:
    """The same for what one sender sent."""
    if [(k.shape, k.dtype) for k in kinds] != [(t.shape, t.dtype) for t in tensors]:
        got = [(tuple(t.shape), t.dtype) for t in tensors]
        raise RoundMismatchError(
            f"Party {rank} expects {[(k.shape, k.dtype) for k in kinds]} from {sender} and got {got}."
        )


def runs_on_cpu(protocol: Any) -> bool:
    """Whether a program is computed on the CPU wherever its shares lie. NOTE [On the CPU]"""
    while isinstance(protocol, partial):
        protocol = protocol.func
    return getattr(protocol, "provider_online", False) or getattr(protocol, "on_cpu", False)


def shares_at(value: Any, device: torch.device) -> Any:
    """Arguments or results with their shares, and all other tensors, on a device."""
    if isinstance(value, Shares):
        return Shares(shares_at(part, device) for part in value)
    if isinstance(value, dict):
        return {name: shares_at(one, device) for name, one in value.items()}
    if type(value) in (list, tuple):
        return type(value)(shares_at(one, device) for one in value)
    return value.to(device) if isinstance(value, torch.Tensor) else value


def device_of(arguments: Any) -> torch.device | None:
    """Where the shares among the arguments of a program lie; None for the CPU. !! ValueError if at several places"""
    found = {share.device for shares in found_in(arguments, Shares) for share in shares}
    if len(found) > 1:
        raise ValueError(
            f"The shares of a program lie on {' and '.join(sorted(map(str, found)))}. Bring the secrets to one device "
            "first, with `.to(device)`."
        )
    return next((device for device in found if device.type != "cpu"), None)


def pairwise_seed(seed: bytes, run: int, program: bytes) -> bytes:
    """The seed of what two parties draw together in one run. NOTE [Bound to its purpose] in `binding`"""
    return derived_seed(seed, b"%d;" % run + program)


def _part(argument: Any, party: Party) -> Any:
    if isinstance(argument, Shares):
        if party.is_provider:
            return torch.empty_like(argument[0], device="meta")
        return argument[party.rank]
    return argument


def _gathered(results: Sequence[Any]) -> Any:
    if all(type(result) is tuple for result in results) and len({len(result) for result in results}) == 1:
        return tuple(_gathered(parts) for parts in zip(*results, strict=True))
    return Shares(results)


def _tensors(value: Any) -> Iterable[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, tuple):
        for one in value:
            yield from _tensors(one)
