"""What a worker does with messages about plans: run one, and hand one out. Adds itself to the table of handlers."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch

from syft.core.chain import Wrapper
from syft.core.ids import ID_PROVIDER
from syft.core.shapes import Answer
from syft.core.spec import TensorSpec, spec_of
from syft.exceptions import ObjectNotFoundError, PlanCommandUnknownError
from syft.execution.errors import PlanArgumentsError, PlanError
from syft.execution.held import PARAMETER, REQUIRES_GRAD, HeldPlan
from syft.execution.plan import Plan
from syft.execution.pointer_plan import PointerPlan
from syft.execution.replay import Before
from syft.execution.state import State
from syft.messaging.message import PlanCallMessage, PlanCommandMessage
from syft.tensors.object_pointer import ObjectPointer
from syft.tensors.transfer import private_copy
from syft.workers import handlers, pipeline
from syft.workers.caller import user_of
from syft.workers.entry import Entry
from syft.workers.foresight import Within, refuse_what_does_not_fit
from syft.workers.permissions import Allowed
from syft.workers.restricted import (
    Failure,
    no_writing_into,
    run_concealed,
    spoil,
)
from syft.workers.results import fresh_results


def held_plan(worker: Any, plan_id: Any) -> HeldPlan:
    """The plan of that id; !! ObjectNotFoundError, TypeError."""
    found = worker.get_obj(plan_id)
    if type(found) is not HeldPlan:
        raise TypeError(
            f"The object {str(plan_id)[:60]!r} of worker {worker.id!r} is no plan, and cannot be run."
        )
    return found


class _Run:
    """One call of a plan: its tensors looked up, and who may see what comes of it."""

    def __init__(self, worker: Any, message: PlanCallMessage) -> None:
        self.worker, self.message = worker, message
        self.user = user_of(message)
        self.held = held_plan(worker, message.plan)
        self.ids = [*(ref.id for ref in message.args), *self.held._state_ids]
        self.tensors = [self._tensor(obj_id) for obj_id in self.ids]
        self.inputs = len(message.args)
        self._check()
        self.call = pipeline.permit(
            worker,
            message,
            [message.plan, *self.ids],
            (*message.return_ids, message.handle),
            f"The plan {self.held._name!r}",
        )
        self.allowed: Allowed = self.call.allowed
        self.leaves: list[torch.Tensor] = []
        #: What the graph of a call may keep, where that is known beforehand.
        self.graph_bytes = 0

    def _tensor(self, obj_id: Any) -> Any:
        # NB: not `worker.get_obj`, which gives what it returns an identity: that is for users to see, and takes time.
        try:
            found = self.worker._entries[obj_id].value
        except (KeyError, TypeError):
            raise ObjectNotFoundError(obj_id, self.worker) from None
        if type(found) is not torch.Tensor and type(found) is not Failure:
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
            dtype = _dtype(given)
            if not input_.takes_shape(given.shape) or not input_.takes_dtype(dtype):
                raise PlanArgumentsError(
                    f"The plan {self.held._name!r} was called with a tensor of {dtype} and shape {tuple(given.shape)} "
                    f"as input {index}; it was built for {input_}."
                )
        given = self.tensors[: self.inputs]
        if not all(i.is_like(t.shape, _dtype(t)) for i, t in zip(wanted, given, strict=True)):
            specs = [_spec(tensor) for tensor in self.tensors]
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

    def compute(self, before: Before | None = None) -> list[Any]:
        """Run the plan on leaves of a new graph; returns the tensors of its results."""
        given = list(self.tensors)
        # One leaf per place: a tensor that is passed twice has two gradients, which the caller adds.
        for index in self.message.differentiable:
            given[index] = given[index].detach().requires_grad_()
        self.leaves = [given[index] for index in self.message.differentiable]
        with torch.set_grad_enabled(bool(self.leaves)):
            # NB: the method of the class: attributes of an object can be set by message.
            result = HeldPlan.run(
                self.held, given[: self.inputs], given[self.inputs :], self.message.rates or None, before
            )
        return fresh_results(_flat(result), None)

    def compute_step_by_step(self) -> list[Any]:
        """The same, where nothing is known of it beforehand: each operation has to fit when its turn comes."""
        worker = self.worker
        if worker._holdings is None:
            return self.compute()
        left = worker._holdings.quotas.bytes_left(self.user) if self._keeps_all() else None
        with Within(left, f"The rest of the plan {self.held._name!r}") as values:
            results = self.compute(partial(refuse_what_does_not_fit, worker, allowed=self.allowed))
        self.graph_bytes = values.total
        return results

    def _keeps_all(self) -> bool:
        """Whether there is a graph, which holds all values on the way."""
        return bool(self.message.differentiable) or self.held._training is not None

    def run(self) -> list[Any]:
        """The results, with failures in their place where something went wrong that the caller may not know."""
        if self.allowed is None and self.worker._holdings is None:
            return self.compute()
        specs = [_spec(t) for t in self.tensors]
        worker = self.worker
        described = self.held._replay.describe(specs[: self.inputs], specs[self.inputs :])
        may_see = self.call.may_see
        if described is not None:
            self.graph_bytes = described.total
            self.call.check_fits(described.total if self._keeps_all() else described.peak)
        if described is None:
            if not may_see:
                worker.policy.refuse_shape(self.user, f"the plan {self.held._name!r}")
            written = list(self.tensors)
        else:
            written = [self.tensors[index] for index in sorted(described.written)]
        if self.held._training is not None:
            written += [self.tensors[self.inputs + p] for p in sorted(self.held._training.written())]
        protected = self._protected()
        for entry in worker.private_among(written, protected.__contains__):
            worker.policy.check_send(self.user, entry.id, worker.changeable_by(entry.id), action="write into")
        if may_see:
            failed = next((t for t in self.tensors if type(t) is Failure), None)
            if failed is not None:
                failed.tell()
        worker.taint(written, self.allowed, protected)
        try:
            with no_writing_into(worker, protected, self.user):
                if described is None:
                    return self.compute_step_by_step()
                if may_see:
                    return self.compute()
                answer = Answer(parts=described.results, kind=tuple)
                fresh, reason = run_concealed(lambda: tuple(self.compute()), answer, None, self.tensors)
        finally:
            worker.remeasure(written)
        if reason is not None:
            spoil(worker, written, reason)
            self.leaves = [_spec(self.tensors[i]).meta() for i in self.message.differentiable]
        return fresh

    def _protected(self) -> list[Entry]:
        """The entries of private data among what the plan is given that the user may not change."""
        worker = self.worker
        return [
            entry
            for entry in worker.private_among(self.tensors)
            if not worker.policy.may_change(self.user, worker.changeable_by(entry.id))
        ]


def run_plan(worker: Any, message: PlanCallMessage) -> Any:
    """Run a plan and store its results, restricted like all that went into them; see NOTE [Nothing shows]."""
    call = _Run(worker, message)
    outputs = call.run()
    ids = message.return_ids
    if message.wants_specs and not ids:
        ids = tuple(ID_PROVIDER.pop() for _ in outputs)
    for output, obj_id in zip(outputs, ids, strict=True):
        call.call.keep(obj_id, output.detach() if isinstance(output, torch.Tensor) else output)
    if message.differentiable:
        record = handlers.CallRecord(call.leaves, outputs, call.tensors, call.graph_bytes)
        call.call.keep(message.handle, record)
    if message.wants_specs:
        return ids, tuple(_spec(output) for output in outputs), call.held._program.outputs
    return None


def _flat(result: Any) -> Any:
    """A structure of results as `fresh_results` walks it."""
    if isinstance(result, dict):
        result = tuple(result.values())
    return tuple([_flat(v) for v in result]) if isinstance(result, (tuple, list)) else result


def _dtype(tensor: Any) -> torch.dtype:
    found: torch.dtype = tensor.spec.dtype if type(tensor) is Failure else tensor.dtype
    return found


def _spec(tensor: Any) -> TensorSpec:
    return tensor.spec if type(tensor) is Failure else spec_of(tensor)


# -- handing plans out -----------------------------------------------------------------------------


def fetch_plan(worker: Any, message: PlanCommandMessage) -> Plan:
    """A copy of a plan with the values of its state, for those who may have all of them."""
    plan_id, is_copy = message.message
    held = held_plan(worker, plan_id)
    user = user_of(message)
    for obj_id in (plan_id, *held._state_ids):
        worker.policy.check_get(user, obj_id, worker.allowed_users(obj_id), action="fetch")
    tensors = [worker.get_obj(obj_id) for obj_id in held._state_ids]
    for obj_id, tensor in zip(held._state_ids, tensors, strict=True):
        if type(tensor) is Failure:
            tensor.tell()
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


def plan_command(worker: Any, message: PlanCommandMessage) -> Any:
    command = PLAN_COMMANDS.get(message.command_name)
    if command is None:
        raise PlanCommandUnknownError(
            f"{message.command_name[:60]!r} is not a command about plans. Those there are: {', '.join(PLAN_COMMANDS)}."
        )
    return command(worker, message)


handlers.HANDLERS[PlanCallMessage] = run_plan
handlers.HANDLERS[PlanCommandMessage] = plan_command
handlers.POINTER_KINDS[HeldPlan.pointer_kind] = PointerPlan
