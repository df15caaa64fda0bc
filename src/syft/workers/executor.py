"""Running a command on what a worker holds: guard, look up, permit, run, store.

No I/O, and no knowledge of how the message came here.
"""

from __future__ import annotations

from typing import Any

import torch

from syft.core import shapes
from syft.core.commands import KnownCommand, command_named
from syft.core.hook_args import register_response
from syft.core.ids import ID_PROVIDER
from syft.core.ops import facts_of
from syft.core.spec import spec_of
from syft.exceptions import GetNotPermittedError, ObjectNotFoundError, RemoteError
from syft.messaging.message import Operation, Ref
from syft.workers.permissions import Allowed, intersect

_MISSING = object()


def resolve(worker: Any, values: Any) -> list[Any]:
    """Message arguments with the objects they refer to."""
    objects = worker._stored
    resolved = []
    for value in values:
        cls = type(value)
        if cls is Ref:
            found = objects.get(value.id, _MISSING)
            if found is _MISSING:
                raise ObjectNotFoundError(value.id, worker)
            resolved.append(found)
        elif cls is list:
            resolved.append(resolve(worker, value))
        elif cls is tuple:
            resolved.append(tuple(resolve(worker, value)))
        elif cls is dict:
            resolved.append(dict(zip(value, resolve(worker, value.values()), strict=True)))
        else:
            resolved.append(value)
    return resolved


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
    """The users allowed on every one of these objects."""
    allowed: Allowed = None
    for obj_id in ids:
        allowed = intersect(allowed, worker.allowed_users(obj_id))
    return allowed


def execute(worker: Any, message: Operation) -> Any:
    """Run one operation and store its results. Replies (ids, metadata) if asked to, else nothing."""
    command = command_named(message.cmd_name)
    args = resolve(worker, message.cmd_args)
    if message.cmd_owner is not None:
        args.insert(0, resolve(worker, (message.cmd_owner,))[0])
    kwargs = message.cmd_kwargs
    if kwargs:
        kwargs = dict(zip(kwargs, resolve(worker, kwargs.values()), strict=True))
    if worker._allowed:
        ids = referenced_ids((message.cmd_owner, message.cmd_args, message.cmd_kwargs))
        allowed = allowed_on_all(worker, ids)
        if allowed is not None:
            return _execute_restricted(worker, message, command, args, kwargs, allowed)
    result = _run(command, args, kwargs)
    if type(result) is torch.Tensor and len(message.return_ids) == 1:
        worker._stored[message.return_ids[0]] = result
        return None
    return _store(worker, message, command, result)


def _run(command: KnownCommand, args: list[Any], kwargs: dict[str, Any]) -> Any:
    result = command.function(*args, **kwargs)
    if command.leaves_memory_uninitialised and isinstance(result, torch.Tensor):
        result.zero_()
    elif command.name == "aten.resize.default":
        result.view(-1)[args[0].numel() :].zero_()
    return result


def _store(worker: Any, message: Operation, command: KnownCommand, result: Any) -> Any:
    """Store the tensors of a response; what else it holds stays here."""
    facts = facts_of(command.function) if isinstance(command.function, torch._ops.OpOverload) else None
    fresh = fresh_results(result, facts)
    if not message.wants_specs:
        register_response(command.name, tuple(fresh), message.return_ids, worker)
        return None
    ids = tuple(ID_PROVIDER.pop() for _ in fresh)
    register_response(command.name, tuple(fresh), ids[::-1], worker)
    return ids, without_values(shapes.describe(result, facts))


def fresh_results(result: Any, facts: Any) -> list[Any]:
    """The tensors of a response that are new, in order (arguments that were written into are not)."""
    aliases = facts.aliases if facts is not None and facts.mutates else ()
    found: list[Any] = []
    several = isinstance(result, (tuple, list))
    for index, value in enumerate(result if several else (result,)):
        if index < len(aliases) and aliases[index] is not None:
            continue
        if isinstance(value, torch.Tensor):
            found.append(value)
        elif isinstance(value, (tuple, list)):
            found.extend(fresh_results(value, None))
    return found


def without_values(answer: shapes.Answer) -> shapes.Answer:
    """An answer that carries metadata only: Python values that came from data are left out."""
    parts = tuple(
        without_values(p)
        if isinstance(p, shapes.Answer)
        else p
        if isinstance(p, shapes.TensorSpec) or p is shapes.ALIAS
        else None
        for p in answer.parts
    )
    return shapes.Answer(spec=answer.spec, parts=parts, kind=answer.kind)


# -- restricted data -------------------------------------------------------------------------------


def _execute_restricted(
    worker: Any,
    message: Operation,
    command: KnownCommand,
    args: list[Any],
    kwargs: dict[str, Any],
    allowed: frozenset[str],
) -> Any:
    """Like `execute`, on data that not everybody may see: results, writes and errors give nothing away."""
    permitted = worker.policy.may_get(message.user, allowed)
    if message.wants_specs and not permitted and not _shapes_are_public(command, args, kwargs):
        worker.policy.check_get(message.user, message.cmd_name, allowed, action="learn the result shape of")
    result = run_discreetly(lambda: _run(command, args, kwargs), command.name, permitted)
    facts = facts_of(command.function) if isinstance(command.function, torch._ops.OpOverload) else None
    if facts is None or facts.mutates:
        worker.taint((t for t in _tensors((args, kwargs))), allowed)
    reply = _store(worker, message, command, result)
    for obj_id in message.return_ids if reply is None else reply[0]:
        worker.restrict(obj_id, allowed)
    return reply


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


def _shapes_are_public(command: KnownCommand, args: list[Any], kwargs: dict[str, Any]) -> bool:
    """Whether the shapes of the results can be told without looking at the data."""
    func = command.function
    if isinstance(func, torch._ops.OpOverload) and shapes.depends_on_data(func):
        return False
    try:
        func(*shapes.to_meta(_as_specs(args)), **shapes.to_meta(_as_specs(kwargs)))
    except Exception:
        return False
    return True


def _as_specs(values: Any) -> Any:
    if isinstance(values, torch.Tensor):
        return spec_of(values)
    if isinstance(values, (tuple, list)) and not isinstance(values, torch.Size):
        return type(values)(_as_specs(v) for v in values)
    if isinstance(values, dict):
        return {k: _as_specs(v) for k, v in values.items()}
    return values


def _tensors(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, dict):
        yield from _tensors(tuple(value.values()))
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from _tensors(item)
