"""Running a command on what a worker holds: guard, look up, permit, run, store.

No I/O, and no knowledge of how the message came here.
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Collection
from functools import cache
from typing import Any

import torch

from syft.core import shapes
from syft.core.commands import KnownCommand, command_named
from syft.core.hook_args import base_types
from syft.exceptions import GetNotPermittedError, ObjectNotFoundError, RemoteError, UnknownCommandError
from syft.messaging.message import Operation, Ref
from syft.tensors.transfer import private_copy
from syft.workers.caller import user_of
from syft.workers.entry import Entry
from syft.workers.foresight import refuse_what_does_not_fit
from syft.workers.permissions import Allowed, about_own, intersect
from syft.workers.restricted import execute_restricted, refuse_overwriting
from syft.workers.results import facts_of_command, fresh_results, keep_results
from syft.workers.sound_arguments import LOOKED_AT_FIRST, sound, sound_with_out
from syft.workers.writes import remeasure

# torch registers these operators when the module is first imported; the guard's list is made once.
with contextlib.suppress(ImportError):
    importlib.import_module("torch.nn.modules.linear_cross_entropy")

#: What may stand in a command beside references. A generator is a thing of this process.
_TRAVELS = frozenset(base_types) - {torch.Generator}


def resolve(worker: Any, values: Any, found: list[Entry] | None = None) -> list[Any]:
    """Message arguments with the objects they refer to, whose entries are added to `found`."""
    entries = worker._entries
    resolved = []
    for value in values:
        cls = type(value)
        if cls is Ref:
            entry = entries.get(value.id)
            if entry is None:
                raise ObjectNotFoundError(value.id, worker)
            resolved.append(entry.value)
            if found is not None:
                found.append(entry)
        elif cls is list:
            resolved.append(resolve(worker, value, found))
        elif cls is tuple:
            resolved.append(tuple(resolve(worker, value, found)))
        elif cls is dict:
            resolved.append(dict(zip(value, resolve(worker, value.values(), found), strict=True)))
        elif cls in _TRAVELS:
            resolved.append(value)
        else:
            raise TypeError(
                f"A command carries numbers, names and references to objects, not a {cls.__name__}. Send the "
                "object to the worker first and refer to it."
            )
    return resolved


def resolve_objects(worker: Any, value: Any) -> Any:
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


def allowed_on_all(worker: Any, ids: list[Any]) -> Allowed:
    """The users allowed on every one of these objects. !! ComputeNotPermittedError if they may not be used"""
    allowed: Allowed = None
    for obj_id in ids:
        allowed = intersect(allowed, worker.allowed_users(obj_id))
    if worker._holdings is None:
        return allowed
    check_compute(worker, ids)
    return worker.policy.on_result(allowed, user_of(None))  # type: ignore[no-any-return]


def check_compute(worker: Any, ids: Collection[Any]) -> None:
    """!! ComputeNotPermittedError if the user who speaks may not use one of these objects, or compute at all."""
    if worker._holdings is None:
        return
    user = user_of(None)
    others = [i for i in ids if not worker.is_held_by(user, i)]
    for obj_id in others:
        if obj_id in worker._entries:
            worker.policy.check_compute(user, obj_id, worker.about(obj_id))
    if len(others) < len(ids) or not ids:  # one question for all that is theirs
        worker.policy.check_compute(user, None, about_own(user))


def execute(worker: Any, message: Operation) -> Any:
    """Run one operation and store its results. Replies (ids, metadata) if asked to, else nothing."""
    command = command_named(message.cmd_name)
    entries: list[Entry] = []
    args = resolve(worker, message.cmd_args, entries)
    if message.cmd_owner is not None:
        args.insert(0, resolve(worker, (message.cmd_owner,), entries)[0])
    kwargs = message.cmd_kwargs
    if kwargs:
        kwargs = dict(zip(kwargs, resolve(worker, kwargs.values(), entries), strict=True))
    if command.kinds:
        refuse_numbers_for_kinds(command, args, kwargs)
    return_ids = message.return_ids
    is_guarded = worker._holdings is not None
    if not is_guarded:
        for entry in entries:
            if entry.allowed is not None:
                is_guarded = True
        for obj_id in return_ids:
            if obj_id in worker._entries:
                is_guarded = True
    if is_guarded:
        ids = [entry.id for entry in entries]
        refuse_overwriting(worker, return_ids, user_of(message))
        allowed = allowed_on_all(worker, ids)
        if command.name in LOOKED_AT_FIRST:
            LOOKED_AT_FIRST[command.name](command.name, args, kwargs)
        refuse_what_does_not_fit(worker, command, args, kwargs, allowed)
        if allowed is not None:
            return execute_restricted(
                worker, message, command, args, kwargs, ids, allowed, lambda: _run(command, args, kwargs)
            )
    try:
        result = _run(command, args, kwargs)
    finally:
        if is_guarded:
            remeasure(worker, command, args, kwargs)
    if type(result) is torch.Tensor and len(return_ids) == 1 and result.layout is torch.strided:
        if is_guarded:
            worker.set_obj(return_ids[0], result)
        else:
            worker._entries[return_ids[0]] = Entry(return_ids[0], result)
        return None
    if args and result is args[0] and not return_ids and not message.wants_specs:
        return None
    return _store(worker, message, command, result)


def refuse_numbers_for_kinds(command: KnownCommand, args: list[Any], kwargs: dict[str, Any]) -> None:
    """!! TypeError for a number where a dtype, layout or memory format stands.

    torch keeps those as numbers inside, takes any number for one, and reads past its tables.
    """
    for position, name in command.kinds:
        value = args[position] if position < len(args) else kwargs.get(name)
        if isinstance(value, int):
            raise TypeError(
                f"{command.name} was called with {name}={value}, a number. Pass e.g. torch.float32."
            )


def _run(command: KnownCommand, args: list[Any], kwargs: dict[str, Any]) -> Any:
    if kwargs and kwargs.get("out") is not None and command.name not in _OF_OTHERS:
        return sound_with_out(command)(*args, **kwargs)
    if _is_plain(command):
        return command.function(*args, **kwargs)
    if command.name in _OF_OTHERS:
        return _resize(command, args, kwargs)
    checked = sound(command) or command.function
    return checked(*args, **kwargs)


@cache
def _is_plain(command: KnownCommand) -> bool:
    """Whether NOTE [Memory of others] does not concern it, nor NOTE [Memory beside the tensors]."""
    return command.name not in _OF_OTHERS and sound(command) is None


# NOTE [Memory of others]
# Fresh memory may have held somebody else's data. What torch leaves unwritten is cleared before anybody can
# point to it, the gaps between strides included, because `as_strided` reaches those (`sound` sees to it). Operations
# that reach memory beside their tensors are not run at all.

#: Operations that hand out memory which is not the caller's, by the name of their packet.
_OF_OTHERS = frozenset(
    f"aten.{packet}.{overload}"
    for packet in """resize resize_ resize_as resize_as_ _resize_output _resize_output_ _reshape_alias
    _reshape_alias_copy _nested_view_from_buffer _nested_view_from_buffer_copy _sparse_coo_tensor_unsafe
    _sparse_compressed_tensor_unsafe _sparse_csr_tensor_unsafe _sparse_csc_tensor_unsafe
    _sparse_bsr_tensor_unsafe _sparse_bsc_tensor_unsafe""".split()
    for overload in getattr(torch.ops.aten, packet).overloads()
) | {"resize", "resize_as"}


def _resize(command: KnownCommand, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """`resize` into new memory; every other form of it is refused."""
    if command.name not in ("aten.resize.default", "aten.resize_as.default"):
        raise UnknownCommandError(command.name)
    result = command.function(*args, **kwargs)
    result.view(-1)[args[0].numel() :].zero_()
    return result


def _store(worker: Any, message: Operation, command: KnownCommand, result: Any) -> Any:
    """Store the tensors of a response; what else it holds stays here."""
    facts = facts_of_command(command)
    answer = shapes.describe(result, facts) if message.wants_specs else None
    return keep_results(worker, message, fresh_results(result, facts), answer, None)


def run_discreetly(call: Any, name: str, permitted: bool) -> Any:
    """Run `call`; unless the user may see the data, a failure tells only its type.

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
    raise RemoteError(
        f"{name} failed on the worker with a {failure}. The message is withheld because it may quote data "
        "you are not allowed to see; try the same call on data of your own of the same shape."
    )
