"""What clients, holders and providers say to each other about programs on shares; one record each.

    client -> member    JoinGroup, MeetPeers, ExchangeSeeds     once per group, waited for
                        RunProgram, DealCorrelations, AbandonRun
                                                                one command per party, not waited for
                        GroupCosts, TellMask                    waited for
                        StorePart                               not waited for
                        TakePart, ListSupplies, DropSupply      waited for
    member -> member    Ticket, Seeds, Agreement, Frame, Dealt, RunFailed, AreYouThere

A share among the arguments of a program is a `Ref`; the provider is told its shape (`Shape`) instead.
"""

from __future__ import annotations

from typing import Any

import torch

from syft import serde
from syft.exceptions import NetworkError
from syft.messaging.message import Id, MessageRecord
from syft.mpc import correlations
from syft.mpc.correlations import Correlation
from syft.mpc.correlations_of_functions import (
    DigitPowers,
    InverseExponential,
    MaskedNibbles,
    MaskedPlace,
    PowersOfFraction,
    Waves,
)
from syft.mpc.integrity.errors import IntegrityError
from syft.mpc.integrity.sealed import Entrance, Sealed
from syft.mpc.kernels import Bilinear
from syft.mpc.network.raw_tensors import register_party_message
from syft.mpc.party import RoundMismatchError
from syft.mpc.protocols.crossed import Crossed
from syft.mpc.protocols.fss import Key
from syft.mpc.protocols.scaled import ScaledTriple
from syft.mpc.protocols.select import Pooling
from syft.mpc.provider import CorrelationReusedError
from syft.mpc.reuse import MaskedFormOutdatedError
from syft.mpc.supplies import SupplyError, SupplyMismatchError, SupplyUsedUpError


class PeerFailedError(NetworkError):
    """Another party of a program failed, or cannot be reached: the program cannot be finished."""


class PeerGoneError(PeerFailedError):
    """A party of the group died, was restarted or is out of reach: nothing of this group can be finished any more."""


class Command(MessageRecord, frozen=True):
    """Base of what is sent and not waited for."""

    def is_asked(self) -> bool:
        return False


# -- from the client -------------------------------------------------------------------------------------


class JoinGroup(MessageRecord, frozen=True):
    """Be the member `rank` of these, the provider last. `patience`: seconds to wait for a peer before doubting."""

    return_id: Id
    members: tuple[Id, ...]
    rank: int
    patience: float


class MeetPeers(MessageRecord, frozen=True):
    """Give every other member its ticket; they have all joined."""

    group: Id


class ExchangeSeeds(MessageRecord, frozen=True):
    """Send the members before you the seeds you have in common; all tickets are given."""

    group: Id


class RunProgram(Command, frozen=True):
    """Run a program on what you hold; its results are kept under `return_ids`, in their order.

    `ahead` names what was taken ahead of time, (run, position), for the correlations that the program takes, in their
    order; None where it takes a new one. Empty: all are new. `masked` has (position, id) of the arguments whose masked
    form you have under that id. `device`: not empty if shares of the run lie on a device, at any holder; it says where
    yours lie, and its words are wide (NOTE [Wide words] in `syft.mpc.randomness`).
    """

    group: Id
    run: int
    program: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    return_ids: tuple[Id, ...]
    ahead: tuple[tuple[int, int] | None, ...] = ()
    masked: tuple[tuple[int, Id], ...] = ()
    device: str = ""


class DealCorrelations(Command, frozen=True):
    """Provider: make these for a run, in this order, and send the holders what they need.

    `program` is the digest that the run's randomness is bound to; a wrong one gives useless randomness, no more.
    `is_wide`: for shares that lie on a device, at any holder.
    """

    group: Id
    run: int
    kinds: tuple[Any, ...]
    program: bytes = b""
    is_wide: bool = False


class TakeAhead(Command, frozen=True):
    """Holder: take these now, and keep them for programs that name them (`RunProgram.ahead`). `device`: as there."""

    group: Id
    run: int
    kinds: tuple[Any, ...]
    device: str = ""


class StorePart(Command, frozen=True):
    """Holder: take these now, and keep them on disk as one call of a supply (`syft.mpc.supplies`).

    `about`: what the supply is for, in words of the client.
    """

    group: Id
    run: int
    kinds: tuple[Any, ...]
    name: str
    lot: int
    call: int
    about: bytes
    device: str = ""


class TakePart(MessageRecord, frozen=True):
    """Holder: take a call of a supply from the disk, for the programs of this group that name it. It is spent then.

    The reply is what the holders called it when they kept it, the run in which it was dealt, and its kinds.
    """

    group: Id
    run: int
    name: str
    lot: int
    call: int


class ListSupplies(MessageRecord, frozen=True):
    """Holder: which supplies does the user have with you? The reply is a tuple of `supplies.Listed`."""


class DropSupply(MessageRecord, frozen=True):
    """Holder: remove a supply from the disk."""

    name: str


class AbandonRun(Command, frozen=True):
    """The client was interrupted while it asked for a run: tell the others not to wait for you."""

    group: Id
    run: int


class TellMask(MessageRecord, frozen=True):
    """Provider: tell the mask under which something of a run enters or leaves (`integrity.sealed.Entrance`)."""

    group: Id
    run: int
    program: bytes
    kind: Any


class GroupCosts(MessageRecord, frozen=True):
    """What have you spent on this group? `reset` sets the counters back."""

    group: Id
    reset: bool = False


class Shape(MessageRecord, frozen=True):
    """Stands for a share where there is none: at the provider."""

    shape: tuple[int, ...]
    dtype: torch.dtype


# -- between members -------------------------------------------------------------------------------------


class Ticket(MessageRecord, frozen=True):
    """What you send me as member `rank` of a group bears this. See NOTE [Tickets] in `syft.mpc.network`."""

    group: Id
    rank: int
    ticket: bytes


class Seeds(MessageRecord, frozen=True):
    """The seed of our pairwise stream, and of the stream of correlations if I am the provider."""

    ticket: bytes
    pairwise: bytes
    dealing: bytes | None = None


class Agreement(Command, frozen=True):
    """What I was asked to do in a run: its digest. No frame of a run goes out before all have said the same."""

    ticket: bytes
    run: int
    program: bytes


class Frame(Command, frozen=True):
    """My part of a round."""

    ticket: bytes
    run: int
    tensors: tuple[torch.Tensor, ...]


class Dealt(Command, frozen=True):
    """What you need of a correlation besides your stream, made for a program. `kind`: its digest."""

    ticket: bytes
    run: int
    program: bytes
    kind: bytes
    tensors: tuple[torch.Tensor, ...]


class RunFailed(Command, frozen=True):
    """I cannot finish a run: do not wait for me. `gone`: because this member is gone, and with it the whole group."""

    ticket: bytes
    run: int
    reason: str
    gone: int | None = None


class AreYouThere(MessageRecord, frozen=True):
    """The reply is the last run that you began."""

    ticket: bytes


#: The kinds of correlations that may be asked for.
KINDS: tuple[type[Correlation], ...] = (
    correlations.Mask,
    correlations.Triple,
    ScaledTriple,
    Crossed,
    correlations.Square,
    correlations.And,
    correlations.Conjunction,
    correlations.Truncation,
    correlations.OneHot,
    correlations.Digit,
    correlations.Bits,
    correlations.Prefix,
    correlations.MaskedWord,
    correlations.Comparison,
    InverseExponential,
    DigitPowers,
    MaskedNibbles,
    MaskedPlace,
    PowersOfFraction,
    Waves,
    Key,
    Sealed,
)

#: What may be sealed besides these.
SEALED: tuple[type[Correlation], ...] = (Entrance,)

for _record in (
    *(JoinGroup, MeetPeers, ExchangeSeeds, RunProgram, DealCorrelations, TakeAhead, GroupCosts, Shape),
    *(TellMask, AbandonRun, Ticket, Seeds, RunFailed, AreYouThere),
    *(StorePart, TakePart, ListSupplies, DropSupply),
    *(Bilinear, Pooling, correlations.Place, *KINDS, *SEALED),
):
    serde.register_record(_record, f"mpc.{_record.__name__}")

register_party_message(Agreement, "mpc.Agreement", has_tensors=False)
register_party_message(Frame, "mpc.Frame", has_tensors=True)
register_party_message(Dealt, "mpc.Dealt", has_tensors=True)

for _error in (
    *(IntegrityError, PeerFailedError, PeerGoneError, RoundMismatchError),
    *(CorrelationReusedError, MaskedFormOutdatedError),
    *(SupplyError, SupplyUsedUpError, SupplyMismatchError),
):
    serde.register_exception(_error)
