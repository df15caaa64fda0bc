"""What a worker does with messages about plans: run one, and hand one out. Adds itself to the table of handlers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from syft.core.chain import Wrapper
from syft.core.ids import ID_PROVIDER
from syft.core.interfaces import Worker
from syft.core.shapes import Answer
from syft.core.spec import TensorSpec, spec_of
from syft.exceptions import ObjectNotFoundError, PlanCommandUnknownError
from syft.execution.errors import PlanArgumentsError, PlanError
from syft.execution.held import PARAMETER, REQUIRES_GRAD, HeldPlan
from syft.execution.plan import Plan
from syft.execution.pointer_plan import PointerPlan
from syft.execution.state import State
from syft.messaging.message import PlanCallMessage, PlanCommandMessage
from syft.policy.caller import user_of
from syft.policy.permissions import Policy
from syft.tensors.object_pointer import ObjectPointer
from syft.tensors.sending import private_copy
from syft.workers import handlers, pipeline
from syft.workers.call_handlers import CallRecord
from syft.workers.composed import Admitting, Described, run_composed
from syft.workers.entry import spec_now
from syft.workers.failures import failure_among, mark_failed, prepare_writing, tell_failures
from syft.workers.results import fresh_results
from syft.workers.steps import run_steps


def held_plan(worker: Worker, message: Any, plan_id: Any) -> HeldPlan:
    """The plan of that id; !! ObjectNotFoundError, TypeError. Only who may use an object hears what it is."""
    found = worker.get_obj(plan_id)
    if type(found) is not HeldPlan:
        pipeline.permit(worker, message, (plan_id,))
        raise TypeError(
            f"The object {str(plan_id)[:60]!r} of worker {worker.id!r} is no plan, and cannot be run."
        )
    return found


class _Run:
    """One call of a plan: its tensors looked up, and who may see what comes of it."""

    def __init__(self, worker: Worker, message: PlanCallMessage) -> None:
        self.worker, self.message = worker, message
        self.user = user_of(message)
        self.held = held_plan(worker, message, message.plan)
        self.ids = [*[ref.id for ref in message.args], *self.held._state_ids]
        self.tensors = [self._tensor(obj_id) for obj_id in self.ids]
        self.inputs = len(message.args)
        if (
            message.differentiable
            or message.rates
            or not self.held._replay.is_like(self.tensors[: self.inputs])
        ):
            self._check()
        self.call = pipeline.permit(
            worker,
            message,
            [message.plan, *self.ids],
            (*message.return_ids, message.handle),
            f"The plan {self.held._name!r}",
        )
        self.leaves: list[torch.Tensor] = []
        #: What the graph of a call may keep, where that is known beforehand.
        self.graph_bytes = 0

    def _tensor(self, obj_id: Any) -> Any:
        # NB: not `worker.get_obj`, which gives what it returns an identity: that is for users to see, and takes time.
        try:
            found = self.worker._entries[obj_id].value
        except (KeyError, TypeError):
            raise ObjectNotFoundError(obj_id, self.worker) from None
        if type(found) is not torch.Tensor:
            if obj_id in self.held._state_ids and is_shared(found):
                raise PlanError(
                    f"The plan {self.held._name!r} was called at worker {self.worker.id!r}, and its state is shared "
                    "among others, so no worker can run it alone. Fetch it with fetch_plan(...), and call it with shared "
                    "tensors."
                )
            raise TypeError(
                f"A plan runs on tensors; the object {str(obj_id)[:60]!r} is a {type(found).__name__}."
            )
        return found

    def _check(self) -> None:
        wanted = self.held._program.inputs
        if self.inputs != len(wanted):
            raise PlanArgumentsError(
                f"The plan {self.held._name!r} was called with {self.inputs} tensors; it takes {len(wanted)}."
            )
        for index, (input_, given) in enumerate(zip(wanted, self.tensors, strict=False)):
            dtype = given.dtype
            if not input_.takes_shape(given.shape) or not input_.takes_dtype(dtype):
                raise PlanArgumentsError(
                    f"The plan {self.held._name!r} was called with a tensor of {dtype} and shape {tuple(given.shape)} "
                    f"as input {index}; it was built for {input_}."
                )
        given = self.tensors[: self.inputs]
        if not all(i.is_like(t.shape, t.dtype) for i, t in zip(wanted, given, strict=True)):
            specs = [spec_of(tensor) for tensor in self.tensors]
            self.held._replay.check_fit(
                specs[: self.inputs], specs[self.inputs :], f"The plan {self.held._name!r}"
            )
        if any(not 0 <= i < len(self.ids) for i in self.message.differentiable):
            raise PlanArgumentsError("A call asks for gradients of tensors that the plan does not have.")
        if self.message.rates and (
            self.held._training is None or len(self.message.rates) != len(self.held._training.groups)
        ):
            raise PlanArgumentsError(
                f"The plan {self.held._name!r} was called with {len(self.message.rates)} learning rates."
            )

    def compute(self) -> list[torch.Tensor]:
        """Run the plan on leaves of a new graph; returns the tensors of its results."""
        given = list(self.tensors)
        # One leaf per place: a tensor that is passed twice has two gradients, which the caller adds.
        for index in self.message.differentiable:
            given[index] = given[index].detach().requires_grad_()
        self.leaves = [given[index] for index in self.message.differentiable]
        with torch.set_grad_enabled(bool(self.leaves)):
            # NB: the method of the class: attributes of an object can be set by message.
            result = HeldPlan.run(
                self.held, given[: self.inputs], given[self.inputs :], self.message.rates or None
            )
        return fresh_results(_flat(result), None)

    def _keeps_all(self) -> bool:
        """Whether there is a graph, which holds all values on the way."""
        return bool(self.message.differentiable) or self.held._training is not None

    def run(self) -> tuple[list[torch.Tensor], str | None]:
        """The results, and why they are zeros, if they are; see NOTE [Nothing shows] in syft.workers.admitted."""
        call = self.call
        if call.is_free:
            return self.compute(), None
        specs = [
            entry.spec if type(entry.spec) is TensorSpec else spec_now(entry) or spec_of(entry.value)
            for entry in call.entries[1:]
        ]
        found = self.held._replay.describe(specs[: self.inputs], specs[self.inputs :], Admitting)
        if found is None:
            policy: Policy = self.worker.policy
            if self.worker.admits_only_table or not call.may_see:
                policy.refuse_shape(call.user, call.name)
            tell_failures(call.entries)
            self.worker.taint(self.tensors, call.allowed, call.entries)
            return self.compute(), None
        self.graph_bytes = found.total
        call.check_fits(found.total if self._keeps_all() else found.peak)
        written = [self.tensors[index] for index in sorted(found.written)]
        if self.held._training is not None:
            written += [self.tensors[self.inputs + p] for p in sorted(self.held._training.written())]
        if written:
            prepare_writing(call, written)
        described = Described(Answer(parts=found.results, kind=tuple), list(found.results), found.total)
        key = tuple(specs)
        trainer, rates = self.held._trainer, self.message.rates
        if trainer is not None and trainer.keeps_nothing and rates and not self.message.differentiable:
            results, failure = self.held._steps.run(
                call, self.compute, self.tensors, described, (*key, rates), written
            )
            trainer.take_rates(rates)
        elif written or self._keeps_all():
            results, failure = run_composed(
                call, self.compute, described, grad=bool(self.message.differentiable)
            )
        else:
            results, failure = self.held._steps.run(call, self.compute, self.tensors, described, key)
            steps = self.held._steps.steps_for(key)
            if steps is not None:
                self.held._calls[key] = found.peak, described, steps
        if failure is not None:
            mark_failed(self.worker, written, failure)
        return results, failure


def run_again(worker: Worker, message: PlanCallMessage) -> tuple[pipeline.Call, list[Any], str | None] | None:
    """Run a plan without gradients on tensors like those of a call before; None: it is another, nothing has happened.

    The results are still to be stored, or handed out, and are zeros if there is a reason for a failure. What depends on
    the specs of the tensors is known. Who asks, what they may use and what it takes is asked every time.
    """
    stored = worker._entries
    entry = stored.get(message.plan) if type(message.plan) is int else None
    held: Any = None if entry is None else entry.value
    if entry is None or type(held) is not HeldPlan or held._training is not None:
        return None
    if message.differentiable or message.rates or message.wants_specs:
        return None
    ids: Any = [ref.id for ref in message.args]
    inputs = len(ids)
    ids += held._state_ids
    used: list[Any] = [stored.get(obj_id) if type(obj_id) is int else None for obj_id in ids]
    if None in used or failure_among(used) is not None:
        return None
    tensors, known = [entry.value for entry in used], None
    if worker._holdings is None:
        others = [e for e in used if type(e.value) is not torch.Tensor or e.allowed is not None]
        if others or not held._replay.is_like(tensors[:inputs]):
            return None
    else:
        # NB: only specs of plain tensors are among the keys.
        known = held._calls.get(tuple([entry.spec for entry in used])) or held._calls.get(
            tuple([e.spec if type(e.spec) is TensorSpec else spec_now(e) for e in used])
        )
        if known is None:
            return None
    call = pipeline.Call(
        worker, user_of(message), f"The plan {held._name!r}", [entry, *used], message.return_ids
    ).permit()
    failure: str | None = None
    if known is None:
        if not call.is_free:
            return None
        with torch.no_grad():
            returned = HeldPlan.run(held, tensors[:inputs], tensors[inputs:], None)
        results = [returned] if type(returned) is torch.Tensor else fresh_results(_flat(returned), None)
    else:
        peak, described, steps = known
        call.check_fits(peak)
        results, failure = run_steps(call, steps, tensors, described)
    return call, results, failure


def keep_results(call: pipeline.Call, results: list[Any], ids: Iterable[Any], failure: str | None) -> None:
    for result, obj_id in zip(results, ids, strict=True):
        call.keep(obj_id, result.detach(), failure)


def run_plan(worker: Worker, message: PlanCallMessage) -> Any:
    """Run a plan and store its results, restricted like all that went into them; see NOTE [Nothing shows]."""
    known = run_again(worker, message)
    if known is not None:
        call_again, results, failure = known
        keep_results(call_again, results, message.return_ids, failure)
        return None
    call = _Run(worker, message)
    outputs, failure = call.run()
    ids = message.return_ids
    if message.wants_specs and not ids:
        ids = tuple(ID_PROVIDER.pop() for _ in outputs)
    keep_results(call.call, outputs, ids, failure)
    if message.differentiable:
        record = CallRecord(call.leaves, outputs, call.tensors, call.graph_bytes, failure)
        call.call.keep(message.handle, record, failure)
    if message.wants_specs:
        return ids, tuple(spec_of(output) for output in outputs), call.held._program.outputs
    return None


def _flat(result: Any) -> Any:
    """A structure of results as `fresh_results` walks it."""
    if isinstance(result, dict):
        result = tuple(result.values())
    return tuple([_flat(v) for v in result]) if isinstance(result, (tuple, list)) else result


# -- handing plans out -----------------------------------------------------------------------------


def fetch_plan(worker: Worker, message: PlanCommandMessage) -> Plan:
    """A copy of a plan with the values of its state, for those who may have all of them."""
    plan_id, is_copy = message.message
    held = held_plan(worker, message, plan_id)
    user = user_of(message)
    for obj_id in (plan_id, *held._state_ids):
        worker.policy.check_get(user, obj_id, worker.allowed_users(obj_id), action="fetch")
    tell_failures(worker.entry_of(obj_id) for obj_id in held._state_ids)
    tensors = [worker.get_obj(obj_id) for obj_id in held._state_ids]
    for obj_id, tensor in zip(held._state_ids, tensors, strict=True):
        if type(tensor) is not torch.Tensor and not is_shared(tensor):
            raise TypeError(
                f"The state of the plan {held._name!r} names {str(obj_id)[:60]!r}, which is no tensor."
            )
    state = State.of(
        [_as_it_was(private_copy(t), kind) for t, kind in zip(tensors, held._kinds, strict=True)],
        held._names,
        held._buffers,
    )
    return Plan.of_program(
        held._program,
        state,
        training=held._training,
        name=held._name,
        id=ID_PROVIDER.pop() if is_copy else plan_id,
        tags=held.tags,
        description=held.description,
    )


def is_shared(obj: Any) -> bool:
    """Whether an object is a tensor whose values are in shares at other workers."""
    node = obj.child if type(obj) is Wrapper else None
    return node is not None and not isinstance(node, ObjectPointer) and bool(node.is_remote)


def _as_it_was(tensor: torch.Tensor, kind: int) -> torch.Tensor:
    if kind & PARAMETER and type(tensor) is not Wrapper:
        return torch.nn.Parameter(tensor, requires_grad=bool(kind & REQUIRES_GRAD))
    return tensor.requires_grad_(bool(kind & REQUIRES_GRAD))


#: The commands about plans, by name.
PLAN_COMMANDS = {"fetch_plan": fetch_plan}


def plan_command(worker: Worker, message: PlanCommandMessage) -> Any:
    command = PLAN_COMMANDS.get(message.command_name)
    if command is None:
        raise PlanCommandUnknownError(
            f"{message.command_name[:60]!r} is not a command about plans. Those there are: {', '.join(PLAN_COMMANDS)}."
        )
    return command(worker, message)


handlers.HANDLERS[PlanCallMessage] = run_plan
handlers.HANDLERS[PlanCommandMessage] = plan_command
handlers.POINTER_KINDS[HeldPlan.pointer_kind] = PointerPlan
