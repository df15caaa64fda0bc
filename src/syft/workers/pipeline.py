"""The path of every message that computes: resolve, permit, admit, run, store, answer.

    message -> Call(user, name, entries) -> permit -> admit -> run -> store Entries -> answer

resolve   The ids in a message become `Entry`s of the store: the value of an object and everything known about it.
          !! ObjectNotFoundError
permit    `permit(worker, message, ids, return_ids)` makes the `Call`. The guards of the worker say whether its user may
          use these entries and put results under those ids, and who may fetch the results: `call.allowed`.
          !! ComputeNotPermittedError, SendNotPermittedError
admit     What the results will be is worked out from metadata, by the table of operations (`syft.operations.admit`).
          Everything that the user hears is decided here: shapes, errors about shapes, quotas (`call.check_fits`).
run       The operation runs on the values and answers nothing: if the user may not fetch all of them, a failure is
          stored as zeros (NOTE [Nothing shows] in `admitted`).
store     `call.keep(id, value)` stores a result with the restriction of all that went into it. The guards note who holds
          it and what it costs. It is prepared first and then put into the table by one assignment.
answer    Ids and metadata, for those who wait for them.

A handler contains what is its own: how to find its entries in the message, and what to run. It cannot leave out a step,
because it has no other way to look up objects for a computation than `permit`, and none to store results but `keep`.
Guards (syft.workers.guards) are the rules, one object each. An open worker has none: a command on objects that
nobody restricted is resolved, run and stored, and nothing else happens (`execute`).

    Operation                        here: `execute`
    CallMessage, CallBackwardMessage call_handlers.run_call, call_handlers.run_call_backward
    CallObjectMessage, attributes    handlers.call_object, handlers.read_or_write_attribute
    methods of texts                 object_handlers.call_method
    plans                            syft.execution.remote
    batches, fit, rounds             syft.federated
    releases                         syft.dp.release, syft.dp.release_training
    programs on shares               syft.mpc.network.handlers; in one process syft.mpc.group

No I/O, and no knowledge of how the message came here.
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Iterable
from typing import Any

import torch
from torch._ops import OpOverload

from syft.core import shapes
from syft.core.commands import KnownCommand, command_named, refuse_numbers_for_kinds
from syft.core.hook_args import base_types
from syft.core.interfaces import Id, Worker
from syft.exceptions import GetNotPermittedError, RemoteError
from syft.messaging.message import LeafRef, Operation, Ref, TrackedRef
from syft.operations import is_admitted
from syft.operations.fresh_memory import function_of
from syft.operations.writes import written_by
from syft.policy.caller import user_of
from syft.policy.owner_log import tell_owner
from syft.policy.permissions import Allowed, AuditRecord
from syft.requests.approvals import use_approval
from syft.tensors.sending import private_copy
from syft.workers.admitted import execute_admitted
from syft.workers.entry import Entry
from syft.workers.failures import failure_among, prepare_writing, tell_failures
from syft.workers.graph_handlers import is_tracked, run_tracked, tracked_value
from syft.workers.guards import PERMISSION, Guards
from syft.workers.repeated import MISSED, execute_again
from syft.workers.results import facts_of_command, fresh_results, keep_results, refuse_other_layouts

# torch registers these operators when the module is first imported; the guard's list is made once.
with contextlib.suppress(ImportError):
    importlib.import_module("torch.nn.modules.linear_cross_entropy")

_IDS = frozenset({int, str})
#: What may stand in a command beside references. A generator is a thing of this process.
_TRAVELS = frozenset(base_types) - {torch.Generator}
#: Of that, what is the same at every worker.
_PLAIN = _TRAVELS - {torch.device}
#: What commands on restricted objects of an open worker meet.
_PERMISSION_ALONE = Guards([PERMISSION])


# -- resolve ---------------------------------------------------------------------------------------


def resolve(worker: Worker, values: Any, found: list[Entry] | None = None) -> list[Any]:
    """Message arguments with the objects they refer to, whose entries are added to `found`."""
    entries = worker._entries
    resolved = []
    for value in values:
        cls = type(value)
        if cls is Ref:
            entry = entries.get(value.id)
            if entry is None:
                entry = worker.entry_of(value.id)  # !! unless it can be brought here
            resolved.append(entry.value)
            if found is not None:
                found.append(entry)
        elif cls is TrackedRef or cls is LeafRef:
            resolved.append(tracked_value(worker, value, found))
        elif cls is list:
            resolved.append(resolve(worker, value, found))
        elif cls is tuple:
            resolved.append(tuple(resolve(worker, value, found)))
        elif cls is dict:
            resolved.append(dict(zip(value, resolve(worker, value.values(), found), strict=True)))
        elif cls in _TRAVELS:
            resolved.append(value if cls is not torch.device else worker.device or value)
        else:
            raise TypeError(
                f"A command carries numbers, names and references to objects, not a {cls.__name__}. Send the "
                "object to the worker first and refer to it."
            )
    return resolved


def resolve_objects(worker: Worker, value: Any) -> Any:
    """Like `resolve`, for calls on things that are no tensors: other arguments arrive as copies."""
    if isinstance(value, Ref):
        return worker.get_obj(value.id)
    if type(value) in (list, tuple):
        return type(value)(resolve_objects(worker, v) for v in value)
    if type(value) is dict:
        return {k: resolve_objects(worker, v) for k, v in value.items()}
    return private_copy(value)


def referenced_ids(values: Any) -> list[Any]:
    """The ids that message arguments refer to."""
    found = []
    for value in values:
        if isinstance(value, Ref):
            found.append(value.id)
        elif isinstance(value, (list, tuple)):
            found.extend(referenced_ids(value))
        elif isinstance(value, dict):
            found.extend(referenced_ids(value.values()))
    return found


# -- permit ----------------------------------------------------------------------------------------


class Call:
    """One request to compute: who asks, what for, on which entries, and who may fetch what comes of it."""

    __slots__ = ("allowed", "entries", "guards", "is_release", "name", "return_ids", "user", "worker")

    def __init__(
        self, worker: Worker, user: str | None, name: str, entries: list[Entry], return_ids: Iterable[Id]
    ) -> None:
        self.worker, self.user, self.name = worker, user, name
        self.entries, self.return_ids = entries, return_ids
        #: Whether what leaves has noise, and was charged to a budget.
        self.is_release = False
        #: The users who may fetch the results; None: everybody.
        self.allowed: Allowed = None
        self.guards: Guards = worker.guards or _PERMISSION_ALONE

    def permit(self) -> Call:
        for permit in self.guards.permit:
            permit(self)
        return self

    @property
    def is_free(self) -> bool:
        """Whether everybody may see all that goes in, on a worker that serves no strangers."""
        return self.allowed is None and self.worker._holdings is None

    @property
    def may_see(self) -> bool:
        """Whether the user may fetch all that goes in, and hence what comes out."""
        return bool(self.worker.policy.may_get(self.user, self.allowed))

    def check_fits(self, nbytes: float, count: int = 0, transient: float = 0) -> None:
        """!! QuotaExceededError if results of this size, or what they take to make, are more than the user may have."""
        for admit in self.guards.admit:
            admit(self, nbytes, count, transient)

    def check_get(self, action: str, entries: Iterable[Entry] | None = None) -> None:
        """!! GetNotPermittedError unless the user may fetch all these entries; by default all that the call uses."""
        for entry in self.entries if entries is None else entries:
            if entry.allowed is not None:
                self.worker.policy.check_get(self.user, entry.id, entry.allowed, action=action)

    def keep(self, obj_id: Id, value: Any, failure: str | None = None) -> None:
        """Store a result with the restriction of all that went into it, and with the failure of any of it."""
        if type(value) is not torch.Tensor or value.layout is not torch.strided:
            refuse_other_layouts(value)
        if failure is None:
            failure = failure_among(self.entries)
        self.worker.store_entry(Entry(obj_id, value, self.allowed, failure=failure))


def permit(
    worker: Worker, message: Any, ids: Iterable[Any] = (), return_ids: Iterable[Id] = (), name: str = ""
) -> Call:
    """The call of a message that computes with these objects. !! ObjectNotFoundError, and if its user may not"""
    stored = worker._entries
    # NB: what is no id is looked up there, and refused.
    entries = [
        (stored.get(obj_id) if type(obj_id) in _IDS else None) or worker.entry_of(obj_id) for obj_id in ids
    ]
    return Call(worker, user_of(message), name, entries, return_ids).permit()


def permit_release(worker: Worker, message: Any, ids: Iterable[Any]) -> Call:
    """The call of a message that releases a statistic of these objects, with noise. !! as `permit`"""
    call = Call(worker, user_of(message), "release", [worker.entry_of(obj_id) for obj_id in ids], ())
    call.is_release = True
    return call.permit()


def permit_get(worker: Worker, message: Any, entry: Entry, reason: str) -> bool:
    """Whether it is an approval that lets a user fetch an object. !! GetNotPermittedError if nothing does"""
    user = user_of(message)
    if not worker.policy.may_get(user, entry.allowed):
        approval = use_approval(worker, user, "get", entry.id, "")
        if approval is not None:
            worker.policy.record(AuditRecord("get", entry.id, user, True, reason or approval.what))
            return True
    worker.policy.check_get(user, entry.id, entry.allowed, reason, has_budgets=worker.has_budgets)
    return False


# -- one operation ---------------------------------------------------------------------------------


def execute(worker: Worker, message: Operation) -> Any:
    """Run one operation and store its results. Replies (ids, metadata) if asked to, else nothing."""
    if worker.guards:
        done = execute_again(worker, message)
        if done is not MISSED:
            return done
    command = command_named(message.cmd_name)
    stored = worker._entries
    entries: list[Entry] = []
    args: list[Any] = []
    # Whether an argument is restricted, and whether there are other arguments than objects and plain values.
    is_restricted = has_others = False
    for value in message.cmd_args:
        cls = type(value)
        if cls is Ref:
            entry = stored.get(value.id)
            if entry is None:
                entry = worker.entry_of(value.id)  # !! unless it can be brought here
            if entry.allowed is not None:
                is_restricted = True
            entries.append(entry)
            args.append(entry.value)
        elif cls in _PLAIN:
            args.append(value)
        else:
            args += resolve(worker, (value,), entries)
            has_others = True
    if message.cmd_owner is not None:
        args.insert(0, resolve(worker, (message.cmd_owner,), entries)[0])
        has_others = True
    kwargs = message.cmd_kwargs
    if kwargs:
        kwargs = dict(zip(kwargs, resolve(worker, kwargs.values(), entries), strict=True))
    if command.kinds:
        refuse_numbers_for_kinds(command.name, command.kinds, args, kwargs)
    return_ids = message.return_ids
    for obj_id in return_ids:
        if obj_id in stored:
            is_restricted = True  # it replaces an object
    if has_others or kwargs:
        for entry in entries:  # NB: not `any`: a generator costs more than all of this
            if entry.allowed is not None:
                is_restricted = True
    if is_restricted or worker.guards:
        # NB: without graphs.
        args = [v.detach() if type(v) is torch.Tensor and v.requires_grad else v for v in args]
        call = Call(worker, user_of(message), command.name, entries, return_ids).permit()
        return _execute_guarded(call, message, command, args, kwargs)
    function = function_of(command)
    if has_others and worker.keeps_graphs and is_tracked(args):
        result = run_tracked(function, args, kwargs)
    else:
        result = function(*args, **kwargs)
    is_one = type(result) is torch.Tensor and len(return_ids) == 1 and not message.wants_specs
    if is_one and result.layout is torch.strided and worker.device is None:
        if result.requires_grad:
            stored[return_ids[0]] = Entry(return_ids[0], result.detach(), tracked=result)
        else:
            stored[return_ids[0]] = Entry(return_ids[0], result)
        return None
    if args and result is args[0] and not return_ids and not message.wants_specs:
        return None
    return _store(worker, message, command, result)


def _execute_guarded(
    call: Call, message: Operation, command: KnownCommand, args: list[Any], kwargs: dict[str, Any]
) -> Any:
    worker = call.worker
    if not call.is_free:
        function = command.function
        is_trusted = not worker.admits_only_table and call.may_see
        if not isinstance(function, OpOverload) or not is_trusted or is_admitted(command.name):
            return execute_admitted(call, message, command, args, kwargs)
        # An open worker is trusted with itself, and this user with the data: shapes may depend on values.
        tell_failures(call.entries)
        prepare_writing(call, written_by(function, args, kwargs))
    result = function_of(command)(*args, **kwargs)
    if args and result is args[0] and not message.return_ids and not message.wants_specs:
        return None
    return _store(worker, message, command, result, call.allowed)


def _store(
    worker: Worker, message: Operation, command: KnownCommand, result: Any, allowed: Allowed = None
) -> Any:
    """Store the tensors of a response; what else it holds stays here."""
    facts = facts_of_command(command)
    answer = shapes.describe(result, facts) if message.wants_specs else None
    return keep_results(worker, message, fresh_results(result, facts), answer, allowed)


def run_discreetly(call: Any, name: str, permitted: bool) -> Any:
    """Run `call`; unless the user may see the data, a failure tells only its type, and the owner's log the rest.

    An error message of torch may quote values ("index 7 is out of bounds"), and a traceback holds tensors.
    """
    failure = None
    try:
        return call()
    except GetNotPermittedError:
        raise
    except Exception as error:
        if permitted:
            raise
        failure = type(error).__name__
        tell_owner(name, error)
    raise RemoteError(
        f"{name} failed on the worker with a {failure}. The message is withheld because it may quote data "
        "you are not allowed to see; try the same call on data of your own of the same shape."
    )
