"""What a worker does with the messages of `syft.mpc.network.messages`; adds itself to the table of handlers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from syft.core import worker_lock
from syft.core.ids import ID_PROVIDER
from syft.core.interfaces import Worker
from syft.exceptions import (
    ObjectNotFoundError,
    ProtocolError,
    RemoteError,
    SyftError,
    WorkerNotFoundException,
)
from syft.messaging.message import Ref
from syft.mpc.binding import WIDE, Share, program_digest
from syft.mpc.kernels import Bilinear
from syft.mpc.network import execution, messages
from syft.mpc.network.membership import (
    LINKS_OF_CLIENTS,
    Membership,
    TakenAhead,
    Tickets,
    channel_if_open,
    channel_of,
)
from syft.mpc.network.programs import OPENING, program_named
from syft.mpc.placing import all_placed
from syft.mpc.protocols.beaver import MaskedOperand
from syft.mpc.protocols.select import Pooling
from syft.mpc.reuse import MaskedFormOutdatedError
from syft.mpc.supplies import keeper_of
from syft.policy.caller import user_of
from syft.policy.permissions import AuditRecord
from syft.workers import handlers, pipeline
from syft.workers.failures import tell_failures
from syft.workers.network.presence import await_introduction

CPU = torch.device("cpu")
_LONGEST_PATIENCE = 600.0
_MOST_MEMBERS = 256
_PUBLIC = frozenset(
    {type(None), bool, int, float, str, bytes, torch.Tensor, Bilinear, Pooling, *messages.KINDS}
)


# -- a group comes together --------------------------------------------------------------------------------


def join(worker: Worker, message: messages.JoinGroup) -> None:
    members, rank = message.members, message.rank
    if not 3 <= len(members) <= _MOST_MEMBERS or len(set(members)) != len(members):
        raise ProtocolError(
            f"A group has two holders or more and a provider, all different, not {len(members)}."
        )
    if not 0 <= rank < len(members) or members[rank] != worker.id:
        raise ProtocolError(f"Worker {worker.id!r} was asked to join as somebody else.")
    if not 0 < message.patience <= _LONGEST_PATIENCE:
        raise ProtocolError(
            f"A patience is above 0 and up to {_LONGEST_PATIENCE:g} s, not {message.patience}."
        )
    if message.return_id in worker._entries:
        raise ProtocolError("The id of a new group is that of an object which is here.")
    pipeline.permit(worker, message)
    peers = {number: _peer(worker, name) for number, name in enumerate(members) if number != rank}
    membership = Membership(members, rank, peers, user_of(message), message.patience)
    worker.set_obj(message.return_id, membership, worker.policy.on_arrival(None, user_of(message)))
    worker.policy.record(
        AuditRecord(
            "join", message.return_id, user_of(message), True, f"a group of {', '.join(map(str, members))}"
        )
    )
    worker.extension(Tickets).give(membership)


def _peer(worker: Worker, name: Any) -> Any:
    """Our own link to another member. One that its owner is about to introduce is waited for."""
    await_introduction(worker, name)
    found = worker._known_workers.get(name)
    if found is None or getattr(found, "is_in_process", True):
        raise WorkerNotFoundException(
            f"Worker {worker.id!r} has no connection of its own to worker {name!r}, and parties of a program talk "
            f"directly. Its owner introduces them: server.add_worker(sy.connect(address)), or `syft worker --peer "
            f"{name}=ADDRESS`."
        )
    if found._link in LINKS_OF_CLIENTS:
        raise ProtocolError(
            f"The connection of worker {worker.id!r} to worker {name!r} is one of the client's, which is "
            "busy while they compute. Give them their own: server.add_worker(sy.connect(address, auto_add=False))."
        )
    return found


def meet(worker: Worker, message: messages.MeetPeers) -> None:
    membership = _ours(worker, message.group, message)
    for channel in membership.channels.values():
        channel.meet(messages.Ticket(message.group, membership.rank, channel.expected))


def take_ticket(worker: Worker, message: messages.Ticket) -> None:
    """From whomever: what we send under it goes over our own link. NOTE [Tickets] in `syft.mpc.network`"""
    membership = _membership(worker, message.group)
    channel = membership.channels.get(message.rank)
    if channel is None or channel.shown is not None:
        raise ProtocolError(f"Member {message.rank} has given its ticket, or there is no such member.")
    channel.shown = message.ticket


def send_seeds(worker: Worker, message: messages.ExchangeSeeds) -> None:
    membership = _ours(worker, message.group, message)
    if any(rank in membership.pairwise for rank in range(membership.rank)):
        raise ProtocolError("The seeds of this group were sent before.")
    for rank in range(membership.rank):
        channel = membership.channels[rank]
        channel.ask(messages.Seeds(channel.ticket, *membership.new_seeds(rank)))


def take_seeds(worker: Worker, message: messages.Seeds) -> None:
    channel = channel_of(worker, message.ticket)
    channel.membership.take_seeds(channel.rank, message.pairwise, message.dealing)


def _membership(worker: Worker, group: Any) -> Membership:
    found = worker.entry_of(group).value
    if type(found) is not Membership:
        raise ObjectNotFoundError(group, worker)
    return found


def _ours(worker: Worker, group: Any, message: Any) -> Membership:
    """The membership of a group, for the user who made it."""
    membership = _membership(worker, group)
    if membership.user != user_of(message):
        raise ObjectNotFoundError(group, worker)  # as if there were none
    return membership


# -- runs ----------------------------------------------------------------------------------------------------


def run(worker: Worker, message: messages.RunProgram) -> None:
    """Run a program on shares. NOTE [One run] in `syft.mpc.network`"""
    membership = _ours(worker, message.group, message)
    membership.begin(message.run)
    permitted = True

    def work() -> tuple[list[Any], pipeline.Call]:
        nonlocal permitted
        program_named(message.program)
        masked = dict(message.masked)
        ids = [*pipeline.referenced_ids((message.args, message.kwargs)), *masked.values()]
        call = pipeline.permit(worker, message, ids, message.return_ids, message.program)
        if message.program in OPENING:
            for entry in call.entries:
                worker.policy.check_get(call.user, entry.id, entry.allowed, message.program, "open")
        permitted = call.may_see
        args = [_argument(worker, value, permitted) for value in message.args]
        kwargs = {name: _argument(worker, value, permitted) for name, value in message.kwargs.items()}
        device = _device(worker, message.device, message.program)
        for position, operand in masked.items():
            args[position] = _masked(worker, message, position, args[position], worker.get_obj(operand))
        digest = program_digest(
            message.program,
            [_agreed(sent, value) for sent, value in zip(message.args, args, strict=True)],
            {name: _agreed(message.kwargs[name], value) for name, value in kwargs.items()},
            message.ahead,
            *((WIDE,) if device is not None else ()),
            *execution.identities(membership.supplied, message.ahead),
        )
        if worker.device is not None and not membership.is_provider:  # NOTE [On the CPU] in `drivers`
            args, kwargs = all_placed((args, kwargs), device or CPU)
        given = [value for value in (*args, *kwargs.values()) if isinstance(value, torch.Tensor)]
        with worker_lock.released(), torch.no_grad():
            result = execution.run_program(
                membership, message.program, args, kwargs, message.ahead, digest, device
            )
            return [] if membership.is_provider else _kept(result, given, message.group), call

    try:
        results, call = _told(membership, message.run, work, lambda: permitted)
    finally:
        _note_used(worker, membership, message.ahead)
        membership.end()
    if len(results) != len(message.return_ids):
        raise ProtocolError(
            f"{message.program} gave {len(results)} tensors, and {len(message.return_ids)} ids were sent for them."
        )
    for obj_id, value in zip(message.return_ids, results, strict=True):
        call.keep(obj_id, value)


def _device(worker: Worker, named: str, program: str) -> torch.device | None:
    """Where a run happens here; None: on the CPU, with words that are not wide. !! ProtocolError if it cannot"""
    if not named:
        return None
    here: torch.device = worker.device or CPU
    if named != str(here):
        raise ProtocolError(
            f"Worker {worker.id!r} was asked to run {program} on {named[:60]}, and it keeps its tensors on {here}. "
            "Was it restarted with another device? Connect to it anew, or start it with `syft worker --device`."
        )
    return here


def _argument(worker: Worker, value: Any, permitted: bool) -> Any:
    if isinstance(value, messages.Shape):
        return torch.empty(value.shape, dtype=value.dtype, device="meta")
    if not isinstance(value, Ref):
        return _public(value)
    found = worker.get_obj(value.id)
    if permitted:
        tell_failures((worker.entry_of(value.id),))
    if type(found) is not torch.Tensor or found.dtype not in (torch.int64, torch.uint8):
        raise TypeError(f"The object {value.id!r} is no share: programs run on tensors of integers.")
    return found


def _masked(worker: Worker, message: messages.RunProgram, position: int, share: Any, operand: Any) -> Any:
    """The masked form of an argument. !! unless it is that of this very share, as it is now, in this group"""
    if type(operand) is not MaskedOperand or operand.group != message.group:
        raise ProtocolError(
            f"Argument {position} of {message.program} is said to be masked, and worker {worker.id!r} has no masked form "
            "of it in this group."
        )
    if type(share) is not torch.Tensor or not operand.is_of(share):
        raise MaskedFormOutdatedError(
            f"{message.program} was asked for with a secret in the masked form that worker {worker.id!r} has of it, and "
            "its share was written to since by something that is no operation on secrets. Share the values again."
        )
    return operand


def _agreed(sent: Any, value: Any) -> Any:
    """An argument as the parties agree on it: a public value as it is, a share by its shape."""
    if isinstance(value, MaskedOperand):
        return Share(tuple(value.shape), value.share.dtype), value.place
    return Share(tuple(value.shape), value.dtype) if isinstance(sent, (Ref, messages.Shape)) else value


def _public(value: Any) -> Any:
    """A public argument; !! TypeError if it is none of the kinds that programs take."""
    if type(value) in (tuple, list):
        return type(value)(_public(part) for part in value)
    if type(value) not in _PUBLIC:
        raise TypeError(
            f"A program takes shares, numbers, names and plain tensors, not a {type(value).__name__}."
        )
    return value


def _kept(result: Any, given: list[torch.Tensor], group: Any) -> list[Any]:
    """The tensors of a result, in memory of their own, and masked operands, which are for this group."""
    if result is None:
        return []
    if isinstance(result, (tuple, list)):
        return [tensor for part in result for tensor in _kept(part, given, group)]
    if isinstance(result, MaskedOperand):
        result.group = group
        return [result]
    storages = {tensor.untyped_storage().data_ptr() for tensor in given}
    if not result.is_contiguous():
        return [result.contiguous()]
    return [result.clone() if result.untyped_storage().data_ptr() in storages else result]


def _told(membership: Membership, run: int, work: Callable[[], Any], is_permitted: Callable[[], bool]) -> Any:
    """What `work` gives; if it fails, the peers hear of it. What may quote data is told to those who may have it."""
    try:
        return work()
    except SyftError as error:
        _tell(membership, run, f"{type(error).__name__}: {error}")
        raise
    except Exception as error:
        _tell(membership, run, type(error).__name__)
        if is_permitted():
            raise
        name = type(error).__name__
    raise RemoteError(f"A program on shares failed on the worker with a {name}; the message is withheld.")


def _tell(membership: Membership, run: int, reason: str) -> None:
    with worker_lock.released():
        membership.tell_failure(run, reason)


def deal(worker: Worker, message: messages.DealCorrelations) -> None:
    membership = _ours(worker, message.group, message)
    if not membership.is_provider or message.run <= membership.last_dealt:
        raise ProtocolError("Correlations for a run are dealt once, by the provider.")
    membership.check_complete()
    membership.last_dealt = message.run
    pipeline.permit(worker, message)

    def work() -> None:
        with worker_lock.released():
            device = (worker.device or CPU) if message.is_wide else None
            execution.deal(membership, message.run, message.kinds, message.program, device)

    _told(membership, message.run, work, lambda: True)


def take_ahead(worker: Worker, message: messages.TakeAhead) -> None:
    """Take correlations for programs to come. The user is charged for them like for results."""
    membership = _ours(worker, message.group, message)
    membership.begin(message.run)

    def work() -> None:
        call = pipeline.permit(worker, message, name="Dealing ahead of time")
        call.check_fits(execution.size_of(message.kinds), 1)
        device = _device(worker, message.device, "dealing ahead of time")
        with worker_lock.released():
            taken = execution.take_ahead(membership, message.kinds, device)
        _charge_ahead(worker, membership, call, message.run, taken)

    try:
        _told(membership, message.run, work, lambda: True)
    finally:
        membership.end()


def store_part(worker: Worker, message: messages.StorePart) -> None:
    """Take correlations, and keep them on disk. The user is charged for them until they are used."""
    membership = _ours(worker, message.group, message)
    membership.begin(message.run)

    def work() -> None:
        call = pipeline.permit(worker, message, name="Dealing for a supply")
        call.check_fits(0, 0, execution.size_of(message.kinds))
        keeper = keeper_of(worker)
        device = _device(worker, message.device, "dealing for a supply")
        place = message.name, message.lot, message.call
        with worker_lock.released():
            content = execution.part_to_store(membership, message.kinds, place, device)
            keeper.put(user_of(message), *place, message.about, content)

    try:
        _told(membership, message.run, work, lambda: True)
    finally:
        membership.end()


def take_part(worker: Worker, message: messages.TakePart) -> tuple[Any, ...]:
    """Take a call of a supply from the disk into memory. What the last one left unused goes."""
    membership = _ours(worker, message.group, message)
    membership.begin(message.run)

    def work() -> tuple[Any, ...]:
        call = pipeline.permit(worker, message, name="Taking from a supply")
        _forget_ahead(worker, membership, membership.supply_run)
        place = message.name, message.lot, message.call
        with worker_lock.released():
            content = keeper_of(worker).take(user_of(message), *place)
            part, taken = execution.take_part(membership, message.name, message.lot, content)
        membership.supply_run = message.run
        _charge_ahead(worker, membership, call, message.run, taken)
        return part.identity, part.run, part.kinds

    try:
        return _told(membership, message.run, work, lambda: True)
    finally:
        membership.end()


def list_supplies(worker: Worker, message: messages.ListSupplies) -> tuple[Any, ...]:
    pipeline.permit(worker, message, name="Listing supplies")
    return tuple(
        (name, about, tuple(parts)) for name, about, parts in keeper_of(worker).listing(user_of(message))
    )


def drop_supply(worker: Worker, message: messages.DropSupply) -> None:
    pipeline.permit(worker, message, name="Removing a supply")
    keeper_of(worker).drop(user_of(message), message.name)


def _charge_ahead(
    worker: Worker, membership: Membership, call: pipeline.Call, run: int, taken: TakenAhead
) -> None:
    """Charge the user for what was taken by one message. !! QuotaExceededError; it is not kept then"""
    taken.obj_id = ID_PROVIDER.pop()
    membership.charged[run] = taken
    try:
        call.keep(taken.obj_id, taken)
    except BaseException:
        _forget_ahead(worker, membership, run)
        raise


def _forget_ahead(worker: Worker, membership: Membership, run: int) -> None:
    """Let go of what was taken ahead of time by one message."""
    taken = membership.charged.pop(run, None)
    for tag in [tag for tag in membership.ahead if tag[0] == run]:
        del membership.ahead[tag]
    if taken is not None and taken.obj_id in worker._entries:
        worker.force_rm_obj(taken.obj_id)


def _note_used(worker: Worker, membership: Membership, ahead: Sequence[Any]) -> None:
    """The user is no longer charged for what was taken by one message when all of it was used."""
    for tag in ahead:
        taken = None if tag is None else membership.charged.get(tag[0])
        if taken is not None and tag not in membership.ahead:
            taken.left -= 1
            if not taken.left:
                _forget_ahead(worker, membership, tag[0])


def abandon(worker: Worker, message: messages.AbandonRun) -> None:
    membership = _ours(worker, message.group, message)
    if message.run > membership.last_run:
        membership.begin(message.run)
        _tell(membership, message.run, "the client was interrupted while it asked for the run")
        membership.end()


def tell_mask(worker: Worker, message: messages.TellMask) -> torch.Tensor:
    """NOTE [Entering and leaving] in `protocols.spdz2k`. Other masks are never told: their kind is another one."""
    membership = _ours(worker, message.group, message)
    if not membership.is_provider or not 0 < message.run <= membership.last_dealt:
        raise ProtocolError("The mask of a run is told by the provider who dealt it.")
    pipeline.permit(worker, message)
    with worker_lock.released():
        return execution.tell(membership, message.run, message.program, message.kind)


def costs(worker: Worker, message: messages.GroupCosts) -> tuple[Any, ...]:
    membership = _ours(worker, message.group, message)
    deals = membership.deals
    found = membership.rounds, membership.bytes_sent, membership.seconds
    dealt = deals.correlations, deals.bytes, deals.messages, deals.seconds
    if message.reset:
        membership.reset_costs()
    return *found, *dealt


# -- what peers send ---------------------------------------------------------------------------------------


def take_agreement(worker: Worker, message: messages.Agreement, source: Any = None) -> None:
    channel = channel_if_open(worker, message.ticket)
    if channel is not None:
        channel.source = source
        channel.membership.deliver(channel, message)


def take_frame(worker: Worker, message: messages.Frame | messages.Dealt, source: Any = None) -> None:
    channel = channel_if_open(worker, message.ticket)
    if channel is None:
        return
    channel.source = source
    membership = channel.membership
    if type(message) is messages.Dealt and channel.rank != membership.holders:
        raise ProtocolError("Correlations come from the provider.")
    for tensor in message.tensors:
        if type(tensor) is not torch.Tensor:
            raise ProtocolError("A frame between parties carries plain tensors.")
    membership.deliver(channel, message)


def take_failure(worker: Worker, message: messages.RunFailed) -> None:
    channel = channel_if_open(worker, message.ticket)
    if channel is not None:
        channel.membership.note_failure(channel, message.run, message.reason, message.gone)


def are_you_there(worker: Worker, message: messages.AreYouThere) -> int:
    membership = channel_of(worker, message.ticket).membership
    return max(membership.last_run, membership.last_dealt)


handlers.HANDLERS |= {
    messages.JoinGroup: join,
    messages.MeetPeers: meet,
    messages.Ticket: take_ticket,
    messages.ExchangeSeeds: send_seeds,
    messages.Seeds: take_seeds,
    messages.RunProgram: run,
    messages.DealCorrelations: deal,
    messages.TakeAhead: take_ahead,
    messages.StorePart: store_part,
    messages.TakePart: take_part,
    messages.ListSupplies: list_supplies,
    messages.DropSupply: drop_supply,
    messages.AbandonRun: abandon,
    messages.GroupCosts: costs,
    messages.TellMask: tell_mask,
    messages.Agreement: take_agreement,
    messages.Frame: take_frame,
    messages.Dealt: take_frame,
    messages.RunFailed: take_failure,
    messages.AreYouThere: are_you_there,
}

#: They touch nothing of the worker but its tickets.
handlers.WITHOUT_LOCK |= {
    messages.Agreement: take_agreement,
    messages.Frame: take_frame,
    messages.Dealt: take_frame,
}
