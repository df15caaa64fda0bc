"""What a worker does with a backward pass that a client has told it; see NOTE [Passes that repeat].

NOTE [As if one by one]
A pass is a row of operations without writes. They run as one call: its user is asked for once, with all inputs, what it
may take is known from metadata and held against quotas every time, each operation is admitted as it would be alone, and
what is not kept is dropped on the way. Everything in a backward pass depends on the loss, so its results are
restricted as they would be one by one. Where anything goes wrong, or rows of private data are followed, the operations
run one by one as if they had been sent so, and that decides what is stored and which error is told.
"""

from __future__ import annotations

from typing import Any

import torch

from syft.core.ids import ID_PROVIDER
from syft.core.interfaces import Worker
from syft.core.spec import spec_of
from syft.exceptions import ProtocolError
from syft.messaging.message import LearntMessage, Operation, Ref
from syft.operations.fresh_memory import function_of
from syft.operations.on_tensors import metas_in
from syft.operations.slots import last_uses
from syft.tensors.learnt_programs import MOST_PROGRAMS, checked_commands
from syft.workers import handlers, pipeline
from syft.workers.composed import Described, describe_composed
from syft.workers.steps import Remembered

#: Kinds of inputs for which it is known what a pass takes.
_MOST_DESCRIBED = 8


class Program:
    """The operations of a pass, checked. !! as `checked_commands`"""

    def __init__(self, operations: Any, outputs: tuple[int, ...], inputs: int) -> None:
        commands = checked_commands(operations, outputs, inputs)
        self.operations, self.outputs, self.inputs = operations, outputs, inputs
        self._steps = [
            (function_of(command), args, kwargs, results)
            for command, (_name, args, kwargs, results) in zip(commands, operations, strict=True)
        ]
        uses = [{v.id for v in args if type(v) is Ref} for _function, args, *_ in self._steps]
        self._drops = last_uses(uses, [results for *_, results in operations], inputs, outputs)
        self._described: dict[Any, Described] = {}
        self.steps = Remembered()

    def compute(self, inputs: list[Any]) -> list[Any]:
        """What is kept of it."""
        slots: list[Any] = list(inputs)
        with torch.no_grad():
            for (function, args, kwargs, results), drops in zip(self._steps, self._drops, strict=True):
                made = function(*[slots[v.id] if type(v) is Ref else v for v in args], **kwargs)
                if results == 1 and isinstance(made, torch.Tensor):
                    slots.append(made)
                else:
                    tensors = [value for value in made if value is not None]
                    if len(tensors) != results:
                        raise ProtocolError("An operation of a backward pass has another number of results.")
                    slots += tensors
                for slot in drops:
                    slots[slot] = None
        return [slots[slot] for slot in self.outputs]

    def described(self, tensors: list[torch.Tensor], key: tuple[Any, ...]) -> Described:
        """What it makes of tensors like these, from metadata; `key` are their specs."""
        found = self._described.get(key)
        if found is None:
            metas = metas_in(tensors)
            found = describe_composed(lambda: self.compute(metas))
            if len(self._described) >= _MOST_DESCRIBED:
                self._described.clear()
            self._described[key] = found
        return found


class Programs:
    """What one session has told: the last `MOST_PROGRAMS`, by number."""

    def __init__(self) -> None:
        self._known: dict[int, Program] = {}

    def resolve(self, message: LearntMessage) -> LearntMessage:
        """The message with the program that it names. !! ProtocolError"""
        known = self._known
        if message.operations is not None:
            known.pop(message.number, None)
            known[message.number] = Program(message.operations, message.outputs, len(message.inputs))
            if len(known) > MOST_PROGRAMS:
                del known[next(iter(known))]
        program = known.get(message.number)
        if program is None or len(message.inputs) != program.inputs:
            raise ProtocolError(
                f"The worker was not told what backward pass {message.number} is for such inputs."
            )
        if len(message.return_ids) != len(program.outputs):
            raise ProtocolError(f"Backward pass {message.number} has {len(program.outputs)} results to keep.")
        return LearntMessage(message.number, message.inputs, message.return_ids, program)


def run_learnt(worker: Worker, message: LearntMessage) -> None:
    """See NOTE [As if one by one]."""
    program = message.operations
    if type(program) is not Program:
        raise ProtocolError("A backward pass that was learnt belongs to a session on a network.")
    if not worker.has_budgets:
        try:
            _run_at_once(worker, message, program)
            return
        except Exception:  # noqa: BLE001  (what is wrong is told by the operation that is)
            pass
    _run_one_by_one(worker, message, program)


def _run_at_once(worker: Worker, message: LearntMessage, program: Program) -> None:
    call = pipeline.permit(worker, message, message.inputs, message.return_ids, "A backward pass")
    tensors = [entry.value for entry in call.entries]
    if any(type(tensor) is not torch.Tensor for tensor in tensors):
        raise TypeError("A backward pass runs on tensors.")
    failure = None
    if call.is_free:
        results = program.compute(tensors)
    else:
        key = tuple([spec_of(tensor) for tensor in tensors])
        described = program.described(tensors, key)
        call.check_fits(described.total, len(described.specs), described.transient)
        results, failure = program.steps.run(call, lambda: program.compute(tensors), tensors, described, key)
    for obj_id, value in zip(message.return_ids, results, strict=True):
        call.keep(obj_id, value, failure)


def _run_one_by_one(worker: Worker, message: LearntMessage, program: Program) -> None:
    """!! what the first operation that failed raised; the others run all the same, as they do in a frame"""
    kept = dict(zip(program.outputs, message.return_ids, strict=True))
    ids = list(message.inputs)
    passing: list[Any] = []
    failed: Exception | None = None
    for name, args, kwargs, results in program.operations:
        made = []
        for _ in range(results):
            obj_id = kept.get(len(ids))
            if obj_id is None:
                obj_id = ID_PROVIDER.pop()
                passing.append(obj_id)
            made.append(obj_id)
            ids.append(obj_id)
        given = [Ref(ids[v.id]) if type(v) is Ref else v for v in args]
        try:
            pipeline.execute(worker, Operation(name, None, given, kwargs, tuple(reversed(made))))
        except Exception as error:  # noqa: BLE001  (every error comes back as itself)
            failed = failed or error
    for obj_id in passing:
        worker.rm_obj(obj_id)
    if failed is not None:
        raise failed


handlers.HANDLERS[LearntMessage] = run_learnt
