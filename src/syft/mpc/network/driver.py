"""`NetworkDriver`: the client's side of programs among workers on a network.

It sends one command per party and goes on: the metadata of the results is known from the program's outline. No share,
mask, opening or seed comes here. Imported by `group`; may import `outline`, `messages`, `programs`.
"""

from __future__ import annotations

import contextlib
import threading
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from typing import Any

import torch

from syft.core.ids import ID_PROVIDER
from syft.core.session import session
from syft.core.shapes import contiguous_spec
from syft.exceptions import SyftError
from syft.messaging.message import ForceObjectDeleteMessage, ObjectMessage, Ref
from syft.mpc.binding import WIDE, Share, program_digest
from syft.mpc.correlations import Correlation, Mask, Place, placed
from syft.mpc.drivers import Cost, Shares, runs_on_cpu
from syft.mpc.network import messages
from syft.mpc.network.execution import AHEAD, identities
from syft.mpc.network.membership import LINKS_OF_CLIENTS
from syft.mpc.network.outline import Made, MadeMasked, MaskedSecret, Secret, outline_of
from syft.mpc.network.portions import PORTION
from syft.mpc.network.programs import name_of
from syft.mpc.party import Program
from syft.mpc.provider import ProviderCost
from syft.mpc.reuse import GivenMasked, Masked
from syft.mpc.taken import Taken, note_taken
from syft.tensors.pointer import new_pointer
from syft.tensors.sending import spec_when_sent
from syft.workers.network import presence

#: Every holder gets the commands of this process in one order, whichever threads and groups they come from: two runs
#: that met in another order at another holder would wait for each other.
ISSUING = threading.RLock()


class RemoteProvider:
    """What `Group` asks of a provider, asked of one on a network."""

    def __init__(self, driver: NetworkDriver) -> None:
        self._driver = driver

    @property
    def cost(self) -> ProviderCost:
        """What the provider has made, sent and spent."""
        return ProviderCost(*self._driver.ask_costs()[-1][3:])

    def ready(self, kind: Correlation) -> int:
        """Correlations of this kind that were dealt ahead of time and not used."""
        return 0 if PORTION.get() is not None else len(self._driver._ahead.get(kind, ()))

    def provide(self, *kinds: Correlation, count: int = 1) -> None:
        """Let the provider deal ahead of time; the holders keep what they get until a program takes it."""
        self._driver.provide([kind for kind in kinds for _ in range(count)])

    def provide_again(self, taken: Sequence[Taken]) -> None:
        """Deal once more what a call took (`syft.mpc.ahead`)."""
        self._driver.provide_again(taken)


class NetworkDriver:
    """Runs programs among proxies of workers, the provider last among `members`."""

    issuing = ISSUING

    def __init__(self, holders: Sequence[Any], provider: Any) -> None:
        self.holders = tuple(holders)
        self.members = (*self.holders, provider)
        self.provider = RemoteProvider(self)
        self._group: Any = None
        self._sessions: tuple[Any, ...] = ()
        self._told: tuple[int, ...] = ()
        self._run = 0
        self._ahead: dict[Correlation, deque[tuple[int, int]]] = defaultdict(deque)
        #: As `Membership` has them at the holders; and held while a call takes from a supply.
        self.supplied: dict[int, bytes] = {}
        self.supply_runs: dict[tuple[str, int], dict[int, int]] = {}
        self.supplying = threading.RLock()

    # -- the group -------------------------------------------------------------------------------------

    def joined(self) -> Any:
        """The id of the group; the members are brought together first if they are not.

        They are brought together anew when one of them has another session, or told of a party that is gone.
        """
        sessions = tuple((member._link.connect().session, member.times_cleared) for member in self.members)
        if self._group is not None and self._told_by_members() != self._told:
            self._settle()
        elif sessions != self._sessions:
            self._leave()
        told = self._told_by_members()
        if self._group is None:
            names = tuple(member.id for member in self.members)
            patience = min(max(member._link.patience for member in self.members), 600.0)
            group = ID_PROVIDER.pop()
            LINKS_OF_CLIENTS.update(member._link for member in self.members)
            self._ask_all(lambda rank: messages.JoinGroup(group, names, rank, max(patience, 0.1)))
            self._ask_all(lambda _rank: messages.MeetPeers(group))
            self._ask_all(lambda _rank: messages.ExchangeSeeds(group))
            self._group, self._sessions, self._run = group, sessions, 0
            self._told = told
            self._ahead.clear()
            self.supplied.clear()
            self.supply_runs.clear()
        return self._group

    def _leave(self) -> None:
        """Let the members free what they have of a group that is not used any more, as far as they are there."""
        group, self._group = self._group, None
        sessions, self._sessions = self._sessions, ()
        if group is None:
            return
        me = session.require_local_worker()
        for member, (before, _) in zip(self.members, sessions, strict=True):
            if member._link.welcome is not None and member._link.welcome.session == before:
                with contextlib.suppress(OSError, SyftError):
                    me.send_msg(ForceObjectDeleteMessage((group,)), member)

    def _told_by_members(self) -> tuple[int, ...]:
        """How often we were told, over each link, that something is wrong with a party."""
        return tuple(member._link.presence.told for member in self.members)

    def prepare(self) -> None:
        """Before new values are shared: if the user has heard that a party was gone, they need not hear it again."""
        with ISSUING:
            if self._group is not None and self._told_by_members() != self._told:
                self._settle()

    def _settle(self) -> None:
        """Be done with a group of which a party is gone: what else failed with it need not be told. !! NetworkError"""
        with presence.among_parties():
            for member in self.members:
                member._link.forgive_loss()
                with contextlib.suppress(messages.PeerFailedError):
                    member.sync()
        self._leave()

    def waiting(self) -> contextlib.AbstractContextManager[None]:
        """Inside, whoever waits for one member is told when another one is gone. NOTE [Parties] in `presence`"""
        return presence.among_parties(self._look_around)

    def _look_around(self) -> None:
        """!! PeerGoneError if a member is gone"""
        sessions = self._sessions or ((None, 0),) * len(self.members)
        for member, (before, _) in zip(self.members, sessions, strict=True):
            link = member._link
            found, why = link.presence.condition(), None
            if found.is_missing:
                why = f"it cannot be reached for more than {found.peer_patience:g} s"
            elif before is not None and found.session not in (None, before):
                why = "it was restarted, or has ended its session"
            if why is not None:
                link.presence.told += 1
                raise messages.PeerGoneError(
                    f"Worker {member.id!r} is gone: {why}. What it held is lost, and everything that was asked of this "
                    "group and not finished has failed. Share the values again when it is back."
                )

    def _ask_all(self, message: Callable[[int], Any]) -> list[Any]:
        me = session.require_local_worker()
        with self.waiting():
            return [me.send_msg(message(rank), member) for rank, member in enumerate(self.members)]

    def _devices(self) -> tuple[str, ...]:
        """Where each member keeps its tensors; empty if all holders do so on the CPU. NOTE [Wide words]"""
        found = tuple(getattr(member, "keeps_on", "") for member in self.members)
        return tuple(one or "cpu" for one in found) if any(found[:-1]) else ()

    # -- costs -----------------------------------------------------------------------------------------

    def ask_costs(self, reset: bool = False) -> list[Any]:
        """What each member has counted; waits until everything so far is done."""
        with ISSUING:
            if self._group is None and not reset:
                return [(0, 0, 0.0, 0, 0, 0, 0.0)] * len(self.members)
            group = self.joined()
            return self._ask_all(lambda _rank: messages.GroupCosts(group, reset))

    @property
    def cost(self) -> Cost:
        """Rounds, bytes and seconds of all programs so far, as the parties counted them."""
        return _cost_of(self.ask_costs())

    def spent(self) -> tuple[Cost, ProviderCost]:
        """What was spent online and by the provider so far; waits until everything so far is done."""
        found = self.ask_costs()
        return _cost_of(found), ProviderCost(*found[-1][3:])

    def reset(self) -> None:
        self.ask_costs(reset=True)

    # -- programs --------------------------------------------------------------------------------------

    def run(self, protocol: Callable[..., Program[Any]], *args: Any, **kwargs: Any) -> Any:
        """Run a program at every holder; gives `Shares` of pointers, in the structure of its result."""
        return self._asked(protocol, args, kwargs)[0]

    def run_and_tell(
        self, kind: Correlation, protocol: Callable[..., Program[Any]], *args: Any
    ) -> tuple[Any, torch.Tensor]:
        """The same, and the value of the run's first correlation, of that kind, which the provider tells."""
        result, group, run, digest = self._asked(protocol, args, {})
        me = session.require_local_worker()
        return result, me.send_msg(messages.TellMask(group, run, digest, kind), self.members[-1])

    def _asked(
        self, protocol: Callable[..., Program[Any]], args: Sequence[Any], kwargs: dict[str, Any]
    ) -> tuple[Any, Any, int, bytes]:
        """The result of a program, the group, the number of the run and what it is bound to."""
        name, fixed = name_of(protocol)
        kwargs = {**fixed, **kwargs}
        with ISSUING, self.waiting():
            group = self.joined()
            given = [self._sent(value) for value in args]
            named = {key: self._sent(value) for key, value in kwargs.items()}
            outline = outline_of(
                name,
                len(self.holders),
                tuple(_stand_in(value, at) for at, value in enumerate(given)),
                tuple((key, _stand_in(value)) for key, value in named.items()),
            )
            devices = () if runs_on_cpu(protocol) else self._devices()
            self._run += 1
            places = {
                _stand_in(value, at).place: value.masked.place
                for at, value in enumerate(given)
                if isinstance(value, GivenMasked)
            }
            kinds = [placed(kind, places) for kind in outline.kinds]
            ahead = self._taken_ahead(kinds)
            digest = program_digest(
                name,
                [_agreed(value) for value in given],
                {key: _agreed(value) for key, value in named.items()},
                ahead,
                *((WIDE,) if devices else ()),
                *identities(self.supplied, ahead),
            )
            places |= _own_places(kinds, ahead, self._run, digest)
            missing = tuple(
                placed(kind, places) for at, kind in enumerate(kinds) if not ahead or ahead[at] is None
            )
            for at, kind in enumerate(kinds):
                place = places.get(Place(0, b"", at), Place(self._run, digest, at))
                note_taken(self.provider, placed(kind, places), place)
            deal = messages.DealCorrelations(group, self._run, missing, digest, bool(devices))
            commands: list[tuple[Any, Any]] = [(deal, self.members[-1])] if missing else []
            made: list[Made | MadeMasked] = []
            _flatten(outline.results, made)
            ids = [[ID_PROVIDER.pop() for _ in made] for _ in self.holders]
            for rank, member in enumerate(self.members):
                if rank < len(self.holders) or outline.needs_provider:
                    returned = tuple(ids[rank]) if rank < len(self.holders) else ()
                    parts = tuple(_part(value, rank) for value in given)
                    named_parts = {key: _part(value, rank) for key, value in named.items()}
                    masked = tuple(
                        (at, value.masked.operands[rank].id_at_location)
                        for at, value in enumerate(given)
                        if isinstance(value, GivenMasked)
                    )
                    command = messages.RunProgram(
                        group,
                        self._run,
                        name,
                        parts,
                        named_parts,
                        returned,
                        ahead,
                        masked,
                        devices[rank] if devices else "",
                    )
                    commands.append((command, member))
            # NB: first, so that what some make is deleted if the others cannot be asked.
            pointers: list[Any] = [
                Shares(
                    new_pointer(holder, ids[rank][position], contiguous_spec(one.shape, one.dtype))
                    for rank, holder in enumerate(self.holders)
                )
                for position, one in enumerate(made)
            ]
            self._send(commands)
            run = self._run
        for position, one in enumerate(made):
            if isinstance(one, MadeMasked):
                pointers[position] = Masked(group, pointers[position], places[one.place])
        return _structured(outline.results, iter(pointers), len(self.holders)), group, run, digest

    def provide(self, kinds: list[Correlation]) -> None:
        """Deal these now, for programs to come."""
        if not kinds:
            return
        with ISSUING, self.waiting():
            group = self.joined()
            self._run += 1
            devices = self._devices()
            dealt = messages.DealCorrelations(group, self._run, tuple(kinds), is_wide=bool(devices))
            taken = [
                messages.TakeAhead(group, self._run, tuple(kinds), devices[rank] if devices else "")
                for rank in range(len(self.holders))
            ]
            self._send([(dealt, self.members[-1]), *zip(taken, self.holders, strict=True)])
            for position, kind in enumerate(kinds):
                self._ahead[kind].append((self._run, position))

    def provide_again(self, taken: Sequence[Taken]) -> None:
        """Deal once more what a call took, for a call to come; waits for it. !! QuotaExceededError"""
        with ISSUING:
            self.joined()
            places: dict[Place, Place] = {}
            kinds = []
            for position, one in enumerate(taken):
                kinds.append(placed(one.kind, places))
                if isinstance(one.kind, Mask):
                    places[one.place] = Place(self._run + 1, AHEAD, position)
            self.provide(kinds)
            try:
                self.settle_failures()
            except (OSError, SyftError):
                for tags in self._ahead.values():
                    for tag in [tag for tag in tags if tag[0] == self._run]:
                        tags.remove(tag)
                raise

    def settle_failures(self) -> None:
        """Wait for all members. !! what went wrong at one of them: it knows why, the others know that it did"""
        failures = []
        for member in self.members:
            try:
                member.sync()
            except (OSError, SyftError) as error:
                failures.append(error)
        if failures:
            raise first_cause(failures)

    def _taken_ahead(self, kinds: Sequence[Correlation]) -> tuple[tuple[int, int] | None, ...]:
        """Where each of these was dealt ahead of time, None for those that were not; empty if none was."""
        portion = PORTION.get()
        if portion is not None and portion.driver is self:
            return portion.take(kinds)
        ahead: list[tuple[int, int] | None] = []
        places: dict[Place, Place] = {}
        for taken, kind in enumerate(kinds):
            found = self._ahead.get(placed(kind, places))
            ahead.append(found.popleft() if found else None)
            tag = ahead[-1]
            if tag is not None and isinstance(kind, Mask):  # later kinds name it
                places[Place(0, b"", taken)] = Place(tag[0], AHEAD, tag[1])
        return tuple(ahead) if any(tag is not None for tag in ahead) else ()

    def _send(self, commands: list[tuple[Any, Any]]) -> None:
        """Send the commands of a run to several members, each of which may wait for what the others do with theirs."""
        me = session.require_local_worker()
        waited_for = [member for _, member in commands if member.debug]
        for member in waited_for:
            member.debug = False  # or the first would be waited for before the others are asked
        try:
            for command, member in commands:
                me.send_msg(command, member)
                member.flush()
        except BaseException:
            self._abandon()
            raise
        finally:
            for member in waited_for:
                member.debug = True
        for member in waited_for:
            member.sync()

    def _abandon(self) -> None:
        """Not all were asked for the run at hand: those who were shall not wait for the others."""
        me = session.require_local_worker()
        for member in self.members:
            try:
                me.send_msg(messages.AbandonRun(self._group, self._run), member)
                member.flush()
            except (OSError, SyftError):
                pass  # its peers find out that it is not there

    def _sent(self, value: Any) -> Any:
        """An argument with its shares as pointers: those of a node, or made of values by sending them."""
        if isinstance(value, GivenMasked):
            return value
        pointers = getattr(value, "pointers", None)
        if pointers is not None:
            return Shares(pointers)
        if not isinstance(value, Shares):
            return value
        me, sent = session.require_local_worker(), []
        for holder, part in zip(self.holders, value, strict=True):
            new_id = ID_PROVIDER.pop()
            me.send_msg(ObjectMessage(part, new_id), holder)
            sent.append(new_pointer(holder, new_id, spec_when_sent(part)))
        return Shares(sent)


def first_cause(failures: Sequence[Exception]) -> Exception:
    """The one who failed knows why; the others know that it did."""
    own = (error for error in failures if not isinstance(error, messages.PeerFailedError))
    return next(own, failures[0])


def _cost_of(found: Sequence[Any]) -> Cost:
    return Cost(max(one[0] for one in found), [one[1] for one in found], max(one[2] for one in found[:-1]))


def _own_places(
    kinds: Sequence[Correlation], ahead: Sequence[tuple[int, int] | None], run: int, digest: bytes
) -> dict[Place, Place]:
    """The places of the masks that a run draws itself. NOTE [Places in outlines] in `outline`"""
    places, drawn = {}, 0
    for taken, kind in enumerate(kinds):
        tag = ahead[taken] if ahead else None
        if isinstance(kind, Mask):
            found = Place(run, digest, drawn) if tag is None else Place(tag[0], AHEAD, tag[1])
            places[Place(0, b"", taken)] = found
        drawn += tag is None
    return places


def _stand_in(value: Any, argument: int = 0) -> Any:
    """An argument as the outline takes it: hashable, and without values."""
    if isinstance(value, GivenMasked):
        spec = value.pointers[0].spec
        return MaskedSecret(tuple(spec.shape), spec.dtype, argument)
    if isinstance(value, Shares):
        return Secret(tuple(value[0].spec.shape), value[0].spec.dtype)
    if isinstance(value, torch.Tensor):
        return Secret(tuple(value.shape), value.dtype)
    return tuple(value) if isinstance(value, list) else value


def _agreed(value: Any) -> Any:
    """An argument as the parties agree on it: a public value as it is, a share by its shape."""
    if isinstance(value, GivenMasked):
        return _agreed(Shares(value.pointers)), value.masked.place
    if not isinstance(value, Shares):
        return value
    return Share(tuple(value[0].spec.shape), value[0].spec.dtype)


def _part(value: Any, rank: int) -> Any:
    """An argument as one member is told it."""
    if isinstance(value, GivenMasked):
        value = Shares(value.pointers)
    if not isinstance(value, Shares):
        return value
    if rank < len(value):
        return Ref(value[rank].id_at_location)
    return messages.Shape(tuple(value[0].spec.shape), value[0].spec.dtype)


def _flatten(results: Any, into: list[Made | MadeMasked]) -> None:
    if isinstance(results, (Made, MadeMasked)):
        into.append(results)
    elif isinstance(results, tuple):
        for part in results:
            _flatten(part, into)


def _structured(results: Any, pointers: Any, holders: int) -> Any:
    if isinstance(results, (Made, MadeMasked)):
        return next(pointers)
    if results is None:
        return Shares((None,) * holders)
    return tuple(_structured(part, pointers, holders) for part in results)
