"""Running admitted operations on what a worker holds: the steps admit, run and store of a guarded command.

NOTE [Nothing shows]
Whoever runs an operation on data that they may not fetch learns nothing of it but what its metadata tells. Everything
they hear is decided by `syft.operations.admit`, which is given specs and public values. What happens to the values
shows nowhere:

- results are restricted like their inputs, and so is everything that shares memory with what was written;
- a failure (an index out of bounds is one bit about the index) is stored as zeros of the spec that was predicted, and
  noted in `Entry.failure`. Only `get` looks at that note, for those who may fetch the object, and releases do;
- a result has memory of its own, exactly as large as was predicted, unless metadata alone tells that it is a view.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch._ops import OpOverload

from syft.core import shapes
from syft.core.commands import KnownCommand
from syft.core.ids import ID_PROVIDER
from syft.core.nested import found_in
from syft.core.ops import OpFacts, facts_of
from syft.exceptions import RemoteError, ResponseSignatureError
from syft.messaging.message import Operation
from syft.operations import is_admitted, run
from syft.operations.on_tensors import admission_of, metas_in, on_meta
from syft.tensors.decomposed import run_decomposed
from syft.workers.composed import describe_composed, run_composed
from syft.workers.failures import failure_among, mark_failed, prepare_writing, tell_failures
from syft.workers.results import fresh_results

if TYPE_CHECKING:
    from syft.workers.pipeline import Call


#: An operation that takes no more than this is charged when its result is stored, and not before.
TINY = 1 << 12


def execute_admitted(
    call: Call, message: Operation, command: KnownCommand, args: list[Any], kwargs: dict[str, Any]
) -> Any:
    """Admit, run and store one operation; see NOTE [Nothing shows]. Replies (ids, metadata) if asked to."""
    worker = call.worker
    if not worker.admits_only_table and not is_admitted(command.name):
        # The clients of an open worker decompose nothing, because most of its data is open.
        if not isinstance(command.function, OpOverload):
            return _execute_composed(call, message, command.function, args, kwargs)
        facts = facts_of(command.function)
        return _execute_composed(call, message, _decomposition(command.function), args, kwargs, facts)
    admission = admission_of(command.name, args, kwargs, worker.admits_only_table)
    if admission.memory > TINY or len(admission.results) > 1:
        call.check_fits(admission.result_bytes, len(admission.results), admission.memory)
    failure = failure_among(call.entries)
    if failure is not None and call.may_see:
        tell_failures(call.entries)
    written: list[torch.Tensor] = []
    if admission.writes:
        tensors = list(found_in((args, kwargs), torch.Tensor))
        written = [tensors[place] for place in admission.writes]
        prepare_writing(call, written)
    outcome = run(admission, args, kwargs)
    if outcome.failure is not None:
        if call.may_see:
            raise RemoteError(f"{admission.operation} failed on the worker: {outcome.failure}")
        failure = failure or outcome.failure
    if failure is not None:
        mark_failed(worker, written, failure)
    for after_run in call.guards.after_run:
        after_run(call, command, args, kwargs, outcome.results)
    if len(outcome.results) == 1 and len(message.return_ids) == 1 and not message.wants_specs:
        call.keep(message.return_ids[0], outcome.results[0], failure)
        return None
    return _keep(call, message, admission.answer, outcome.results, failure)


def _decomposition(function: OpOverload) -> Callable[..., Any]:
    return lambda *args, **kwargs: run_decomposed(function, args, kwargs)


def _execute_composed(
    call: Call,
    message: Operation,
    function: Callable[..., Any],
    args: list[Any],
    kwargs: dict[str, Any],
    facts: OpFacts | None = None,
) -> Any:
    """A function made of several operations, each of which is admitted and run by itself."""
    metas, named = metas_in(args), on_meta(metas_in(kwargs))
    described = describe_composed(lambda: function(*metas, **named), facts=facts)
    call.check_fits(described.result_bytes, len(described.specs), transient=described.transient)
    results, failure = run_composed(call, lambda: fresh_results(function(*args, **kwargs), facts), described)
    if not message.return_ids and not message.wants_specs and all(any(r is a for a in args) for r in results):
        return None  # it wrote into an argument and returned that
    return _keep(call, message, described.answer.once(), results, failure)


def _keep(
    call: Call, message: Operation, answer: shapes.Answer, results: list[torch.Tensor], failure: str | None
) -> Any:
    """Store what is new. What is left without an id gets one, and !! ResponseSignatureError carries all of them."""
    given = list(message.return_ids)
    used = [given.pop() if given else ID_PROVIDER.pop() for _ in results]
    for obj_id, value in zip(used, results, strict=True):
        call.keep(obj_id, value, failure)
    if message.wants_specs:
        return tuple(used), answer
    if len(used) != len(message.return_ids):
        raise ResponseSignatureError(used)
    return None
