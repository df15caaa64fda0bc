"""The records of plans to messages of `plan.proto` and back.

What is read goes the way of our own format: `Plan.detail` for plans, `State.detail` for states. Every program is
looked at by `checked_program`, every training step by `checked_step`, before there is a plan that could be run.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from syft.execution.errors import InvalidProgramError
from syft.execution.inputs import Fit, Input
from syft.execution.operation import Operation
from syft.execution.placeholder import PlaceHolder
from syft.execution.plan import Plan
from syft.execution.program import MAX_OPERATIONS, Program
from syft.execution.protobuf.plan_pb2 import (
    DtypesPB,
    FitPB,
    InputPB,
    KeywordPB,
    MemoryEntryPB,
    MemoryPB,
    OperationPB,
    PlaceHolderPB,
    PlanPB,
    ProgramPB,
    ProtocolPB,
    RanksPB,
    StatePB,
    StepPB,
    TrainedGroupPB,
    TrainingStepPB,
)
from syft.execution.protobuf.values import (
    dtype_name,
    read_dtype,
    read_id,
    read_mapping,
    read_tensor,
    read_value,
    write_id,
    write_mapping,
    write_tensor,
    write_value,
)
from syft.execution.protocol import Protocol
from syft.execution.protocol_steps import Step
from syft.execution.state import State
from syft.execution.training import TrainedGroup, TrainingStep
from syft.execution.vocabulary import plan_command
from syft.serde import SerdeError

VERSION = 1


def _check_version(message: Any) -> None:
    if message.version != VERSION:
        raise SerdeError(
            f"A {type(message).__name__} has the version {message.version}; version {VERSION} is read here."
        )


def _present(message: Any, *fields: str) -> None:
    for field in fields:
        if not message.HasField(field):
            raise SerdeError(f"A {type(message).__name__} has no {field!r}.")


def _described(message: Any) -> str | None:
    return message.description if message.HasField("description") else None


# -- programs --------------------------------------------------------------------------------------


def _write_operation(operation: Operation, version: int = 0) -> OperationPB:
    return OperationPB(
        version=version,
        name=operation.name,
        args=[write_value(value) for value in operation.args],
        kwargs=[KeywordPB(name=name, value=write_value(value)) for name, value in operation.kwargs.items()],
        results=write_value(operation.results),
        without_grad=not operation.tracks,
    )


def _read_operation(message: OperationPB) -> Operation:
    _present(message, "results")
    kwargs: dict[str, Any] = {}
    for keyword in message.kwargs:
        if keyword.name in kwargs:
            raise InvalidProgramError(f"An operation of a plan is given {keyword.name[:60]!r} twice.")
        kwargs[keyword.name] = read_value(keyword.value)
    args = tuple([read_value(value) for value in message.args])
    return Operation(message.name, args, kwargs, read_value(message.results), not message.without_grad)


def _read_single_operation(_worker: Any, message: OperationPB) -> Operation:
    _check_version(message)
    plan_command(message.name)
    return _read_operation(message)


def _write_input(given: Input) -> InputPB:
    others = None if given.others is None else _write_fit(given.others)
    return InputPB(shape=list(given.shape), dtype=dtype_name(given.dtype), others=others)


def _write_fit(fit: Fit) -> FitPB:
    return FitPB(
        sizes=list(fit.sizes),
        ranks=None if fit.ranks is None else RanksPB(ranks=list(fit.ranks)),
        dtypes=None if fit.dtypes is None else DtypesPB(dtypes=[dtype_name(d) for d in fit.dtypes]),
    )


def _read_input(message: InputPB) -> Input:
    others = _read_fit(message.others) if message.HasField("others") else None
    return Input(tuple(message.shape), read_dtype(message.dtype), others)


def _read_fit(message: FitPB) -> Fit:
    return Fit(
        tuple(message.sizes),
        tuple(message.ranks.ranks) if message.HasField("ranks") else None,
        tuple([read_dtype(d) for d in message.dtypes.dtypes]) if message.HasField("dtypes") else None,
    )


def _write_program(program: Program) -> ProgramPB:
    return ProgramPB(
        signature=[write_value(value) for value in program.signature],
        inputs=[_write_input(given) for given in program.inputs],
        state=program.state,
        constants=[write_tensor(tensor) for tensor in program.constants],
        operations=[_write_operation(operation) for operation in program.operations],
        outputs=write_value(program.outputs),
    )


def _read_program(message: ProgramPB) -> Program:
    _present(message, "outputs")
    if len(message.operations) > MAX_OPERATIONS:
        raise InvalidProgramError(
            f"A plan has {len(message.operations)} operations; {MAX_OPERATIONS} are allowed. Split it."
        )
    return Program(
        tuple([read_value(value) for value in message.signature]),
        tuple([_read_input(given) for given in message.inputs]),
        message.state,
        tuple([read_tensor(tensor).detach() for tensor in message.constants]),
        tuple([_read_operation(operation) for operation in message.operations]),
        read_value(message.outputs),
    )


# -- states and placeholders -------------------------------------------------------------------------


def _write_state(state: State, version: int = VERSION) -> StatePB:
    tensors, names, buffers = State.simplify(None, state)
    return StatePB(
        version=version,
        tensors=[write_tensor(tensor) for tensor in tensors],
        names=list(names),
        buffers=list(buffers),
    )


def _read_state(worker: Any, message: StatePB) -> State:
    tensors = tuple([read_tensor(tensor) for tensor in message.tensors])
    return State.detail(worker, (tensors, tuple(message.names), tuple(message.buffers)))


def _read_single_state(worker: Any, message: StatePB) -> State:
    _check_version(message)
    return _read_state(worker, message)


def _write_placeholder(placeholder: PlaceHolder) -> PlaceHolderPB:
    made = PlaceHolderPB(
        version=VERSION,
        id=write_id(placeholder.id),
        tags=sorted(placeholder.tags),
        description=placeholder.description,
    )
    if placeholder.expected_shape is not None and placeholder.expected_dtype is not None:
        made.expected.CopyFrom(_write_input(Input(placeholder.expected_shape, placeholder.expected_dtype)))
    if placeholder.child is not None:
        made.child.CopyFrom(write_tensor(placeholder.child))
    return made


def _read_placeholder(worker: Any, message: PlaceHolderPB) -> PlaceHolder:
    _check_version(message)
    _present(message, "id")
    expected = _read_input(message.expected) if message.HasField("expected") else None
    parts = (
        read_id(message.id),
        frozenset(message.tags),
        _described(message),
        None if expected is None else expected.shape,
        None if expected is None else expected.dtype,
        read_tensor(message.child) if message.HasField("child") else None,
    )
    return PlaceHolder.detail(worker, parts)


# -- training --------------------------------------------------------------------------------------


def _write_training(step: TrainingStep) -> TrainingStepPB:
    return TrainingStepPB(
        optimizer=step.optimizer,
        groups=[
            TrainedGroupPB(
                options=write_mapping(group.options),
                parameters=list(group.parameters),
                memory=[
                    MemoryPB(entries=[MemoryEntryPB(name=n, position=p) for n, p in memory.items()])
                    for memory in group.memory
                ],
            )
            for group in step.groups
        ],
        started=step.started,
    )


def _read_training(message: TrainingStepPB) -> TrainingStep:
    return TrainingStep(
        message.optimizer,
        tuple(
            [
                TrainedGroup(
                    read_mapping(group.options),
                    tuple(group.parameters),
                    tuple(
                        [{entry.name: entry.position for entry in memory.entries} for memory in group.memory]
                    ),
                )
                for group in message.groups
            ]
        ),
        message.started,
    )


# -- plans and protocols -----------------------------------------------------------------------------


def _write_plan(plan: Plan) -> PlanPB:
    id, name, program, state, training, tags, description = Plan.simplify(None, plan)
    return PlanPB(
        version=VERSION,
        id=write_id(id),
        name=name,
        program=_write_program(program),
        state=_write_state(state, 0),
        training=None if training is None else _write_training(training),
        tags=sorted(tags),
        description=description,
    )


def _read_plan(worker: Any, message: PlanPB) -> Plan:
    _check_version(message)
    _present(message, "id", "program", "state")
    parts = (
        read_id(message.id),
        message.name,
        _read_program(message.program),
        _read_state(worker, message.state),
        _read_training(message.training) if message.HasField("training") else None,
        frozenset(message.tags),
        _described(message),
    )
    return Plan.detail(worker, parts)


def _write_step(step: Step) -> StepPB:
    return StepPB(
        worker=write_id(step.worker),
        is_open=step.is_open,
        plan=None if step.plan is None else _write_plan(step.plan),
        plan_id=None if step.plan_id is None else write_id(step.plan_id),
    )


def _read_step(worker: Any, message: StepPB) -> Step:
    _present(message, "worker")
    return Step(
        read_id(message.worker),
        message.is_open,
        _read_plan(worker, message.plan) if message.HasField("plan") else None,
        read_id(message.plan_id) if message.HasField("plan_id") else None,
    )


def _write_protocol(protocol: Protocol) -> ProtocolPB:
    id, steps, tags, description = Protocol.simplify(None, protocol)
    return ProtocolPB(
        version=VERSION,
        id=write_id(id),
        steps=[_write_step(step) for step in steps],
        tags=sorted(tags),
        description=description,
    )


def _read_protocol(worker: Any, message: ProtocolPB) -> Protocol:
    _check_version(message)
    _present(message, "id")
    steps = tuple([_read_step(worker, step) for step in message.steps])
    return Protocol.detail(worker, (read_id(message.id), steps, frozenset(message.tags), _described(message)))


#: type -> what writes it, message -> what reads it, type -> its message
WRITERS: dict[type, Callable[[Any], Any]] = {
    Plan: _write_plan,
    State: _write_state,
    PlaceHolder: _write_placeholder,
    Operation: lambda operation: _write_operation(operation, VERSION),
    Protocol: _write_protocol,
}
READERS: dict[type, Callable[[Any, Any], Any]] = {
    PlanPB: _read_plan,
    StatePB: _read_single_state,
    PlaceHolderPB: _read_placeholder,
    OperationPB: _read_single_operation,
    ProtocolPB: _read_protocol,
}
MESSAGES: dict[type, Any] = {
    Plan: PlanPB,
    State: StatePB,
    PlaceHolder: PlaceHolderPB,
    Operation: OperationPB,
    Protocol: ProtocolPB,
}
