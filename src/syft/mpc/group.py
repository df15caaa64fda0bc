"""`Group`: the workers that hold the shares of a secret and the one that deals them randomness.

Turns nodes into what party programs take and back: shares are read from the holders' stores, the driver runs
the program, results are stored at the holders. In one process the driver is `Lockstep`; among workers on a network
it is `NetworkDriver`, and shares are never read here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

import torch

from syft.core.ids import ID_PROVIDER
from syft.core.spec import spec_of
from syft.mpc import metering
from syft.mpc.correlations import Correlation
from syft.mpc.drivers import Cost, Lockstep, Shares, programs_name, spent_by
from syft.mpc.party import Program
from syft.mpc.protocols.beaver import MaskedOperand
from syft.mpc.provider import Provider, ProviderCost
from syft.mpc.reuse import GivenMasked, Masked
from syft.tensors.pointer import PointerTensor, new_pointer
from syft.workers.pipeline import Call, permit

if TYPE_CHECKING:
    from syft.mpc.network.driver import NetworkDriver


class Group:
    """Holders in order, their provider, and the driver that runs programs among them."""

    def __init__(self, holders: Sequence[Any], provider: Any) -> None:
        self.holders = tuple(holders)
        self.provider = provider
        self.driver = _driver_among(self.holders, provider)

    @classmethod
    def of(cls, holders: Sequence[Any], provider: Any) -> Group:
        """The group of these workers; one and the same for as long as the provider lives."""
        key = tuple(holders)
        known: dict[tuple[Any, ...], Group] = getattr(provider, "__dict__", {}).get("_sharing_groups", {})
        found = known.get(key)
        if found is None:
            _check_members(holders, provider)
            groups = provider.__dict__.setdefault("_sharing_groups", {})
            found = groups.setdefault(key, cls(holders, provider))
        return found

    @property
    def online(self) -> Cost:
        """Rounds, bytes and seconds of all programs so far, the provider's work left out."""
        return self.driver.cost

    @property
    def offline(self) -> ProviderCost:
        """What the provider has made, sent and spent so far."""
        return self.driver.provider.cost

    def waiting(self) -> AbstractContextManager[None]:
        """Inside, whoever waits for one member is told when another one is gone."""
        return nullcontext() if isinstance(self.driver, Lockstep) else self.driver.waiting()

    def prepare(self) -> None:
        """Before new values are shared."""
        if not isinstance(self.driver, Lockstep):
            self.driver.prepare()

    def provide(self, *kinds: Correlation, count: int = 1) -> None:
        """Let the provider make correlations of these kinds ahead of time; they are used first in, first out."""
        self.driver.provider.provide(*kinds, count=count)

    def reset_costs(self) -> None:
        self.driver.reset()

    def run(self, protocol: Callable[..., Program[Any]], *args: Any, **kwargs: Any) -> Any:
        """Run a party program; lists of pointers among the arguments are shares, the rest is public."""
        if not isinstance(self.driver, Lockstep):
            if metering.is_measuring():
                return self._measured(self.driver, protocol, *args, **kwargs)
            return self.driver.run(protocol, *args, **kwargs)
        calls = self._calls((*args, *kwargs.values()))
        result = self.driver.run(
            protocol, *(self.read(a) for a in args), **{k: self.read(v) for k, v in kwargs.items()}
        )
        return self._stored(result, calls)

    def _measured(self, driver: NetworkDriver, protocol: Any, *args: Any, **kwargs: Any) -> Any:
        """The same among workers on a network, which are asked what it cost."""
        with self.issuing():
            for value in (*args, *kwargs.values()):
                getattr(value, "pointers", None)  # what was not computed yet is no part of this program
            before = driver.spent()
            result = driver.run(protocol, *args, **kwargs)
            after = driver.spent()
        metering.note(programs_name(protocol), spent_by(*_difference(after, before)))
        return result

    def issuing(self) -> Any:
        """Held while a program is prepared and asked for, where the order of programs matters."""
        return nullcontext() if isinstance(self.driver, Lockstep) else self.driver.issuing

    def epoch(self) -> Any:
        """What changes when the seeds of the group do."""
        return id(self.driver) if isinstance(self.driver, Lockstep) else self.driver.joined()

    def is_current(self, node: Any, masked: Masked) -> bool:
        """Whether a masked form is that of a secret as it is now, as far as that can be seen from here."""
        if not isinstance(self.driver, Lockstep):
            return True  # the holders check it
        operands = zip(masked.operands, self.read(node), strict=True)
        return all(operand.is_of(share) for operand, share in operands)

    def run_and_tell(
        self, kind: Correlation, protocol: Callable[..., Program[Any]], *args: Any
    ) -> tuple[Any, Any]:
        """The same, and the value of the run's first correlation, of that kind, which the provider tells us."""
        if not isinstance(self.driver, Lockstep):
            return self.driver.run_and_tell(kind, protocol, *args)
        calls = self._calls(args)
        result, told = self.driver.run_and_tell(kind, protocol, *(self.read(a) for a in args))
        return self._stored(result, calls), told

    def _calls(self, given: Sequence[Any]) -> list[Call]:
        return [self._permit(rank, given) for rank in range(len(self.holders))]

    def _permit(self, rank: int, given: Sequence[Any]) -> Call:
        """The call of one holder, as if it had been asked by a message: results are restricted like all inputs."""
        ids = [value.pointers[rank].id_at_location for value in given if hasattr(value, "pointers")]
        return permit(self.holders[rank], None, ids, name="A program on shares")

    def _stored(self, result: Any, calls: Sequence[Call]) -> Any:
        """The results of a program with pointers in the place of tensors, which their holders have stored."""
        if isinstance(result, Shares) and isinstance(result[0], MaskedOperand):
            return Masked(self.epoch(), result, result[0].place)
        if isinstance(result, tuple) and result and isinstance(result[0], torch.Tensor):
            return Shares(_kept(call, share) for call, share in zip(calls, result, strict=True))
        if isinstance(result, tuple):
            return tuple(self._stored(part, calls) for part in result)
        return result

    def read(self, value: Any) -> Any:
        """The shares that a node's pointers point to; anything else as it is."""
        if isinstance(value, GivenMasked):
            return value.masked.operands
        pointers = getattr(value, "pointers", None)
        if pointers is None:
            return value
        if not isinstance(self.driver, Lockstep):
            raise NotImplementedError(
                f"The shares are at {', '.join(str(h.id) for h in self.holders)}, on a network, and are not read here. "
                "Call `.get()` to open the secret."
            )
        return Shares(p.location._entries[p.id_at_location].value for p in pointers)


def _difference(
    after: tuple[Cost, ProviderCost], before: tuple[Cost, ProviderCost]
) -> tuple[Cost, ProviderCost]:
    (online, offline), (online_before, offline_before) = after, before
    sent = [a - b for a, b in zip(online.bytes_sent, online_before.bytes_sent, strict=True)]
    seconds = online.seconds - online_before.seconds
    made = ProviderCost(
        offline.correlations - offline_before.correlations,
        offline.bytes - offline_before.bytes,
        offline.messages - offline_before.messages,
        offline.seconds - offline_before.seconds,
    )
    return Cost(online.rounds - online_before.rounds, sent, seconds), made


def _kept(call: Call, share: torch.Tensor) -> PointerTensor:
    new_id = ID_PROVIDER.pop()
    call.keep(new_id, share)
    return new_pointer(call.worker, new_id, spec_of(share))


def _check_members(holders: Sequence[Any], provider: Any) -> None:
    names = [str(h.id) for h in holders]
    if len(holders) < 2:
        raise ValueError(
            f"A secret needs at least two holders, got {len(holders)} ({', '.join(names) or 'nobody'}). "
            "Name two or more workers: x.share(alice, bob, crypto_provider=carol)."
        )
    if len(set(names)) != len(names):
        raise ValueError(f"Every holder is named once; got {', '.join(names)}.")
    if provider is None or any(provider is h or provider.id == h.id for h in holders):
        who = "nobody" if provider is None else repr(provider.id)
        raise ValueError(
            f"The crypto provider is {who}, and it must be a worker that holds no share of the secret (the holders are "
            f"{', '.join(names)}): a holder that knew the masks could read it. Pass crypto_provider=another_worker."
        )
    far = [str(w.id) for w in (*holders, provider) if _is_far(w)]
    if far and len(far) <= len(holders):
        near = [str(w.id) for w in (*holders, provider) if not _is_far(w)]
        raise ValueError(
            f"{', '.join(far)} are on a network and {', '.join(near)} in this process; those who hold a secret and who "
            "provides for them are of one kind. Name workers on the network only, as crypto_provider=... too."
        )


def _is_far(worker: Any) -> bool:
    return not getattr(worker, "is_in_process", True)


def _driver_among(holders: Sequence[Any], provider: Any) -> Lockstep | NetworkDriver:
    if not _is_far(provider):
        return Lockstep(len(holders), Provider(len(holders)))
    # A third of this room, for those who are on a network only.
    from syft.mpc.network.driver import NetworkDriver

    return NetworkDriver(holders, provider)
