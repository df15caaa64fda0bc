"""Plans: functions that travel.

Modules, in the order they import each other:

    errors           what is raised
    protobuf         all of this as Protocol Buffers; `protobuf.records` stands on top of all others
    inputs           what is known of the tensors that a plan takes
    operation        the records of a plan: `Slot`, `Size`, `Operation`
    vocabulary       which functions a plan may name
    program          `Program`: all of a built plan but its state, and the check that strangers' programs pass
    makers           the arguments of an operation, made when it runs
    replay           a program as a list of prepared calls; what it would return, from metadata
    sizes            numbers that remember of which sizes they were computed
    trace, merge     the function is run twice, what it did becomes a program
    fit, build       for which other tensors the program is right; all of it together
    trace_log        a list of the torch functions that were called, for people
    placeholder, state
    optimizers, training   the update of a training plan
    held, remote     a plan at a worker: how it is kept, called and differentiated
    fetched          a call whose result goes to the caller at once
    watch, cost      a run on metadata: shapes, flops, memory; what a call costs
    naming, export, views   a plan as a module of fx, as TorchScript, as code
    action, computation, communication, tracing, role, plan_role   what a plan or a role does, for people
    pointer_parts, pointer_plan, plan, func2plan
    pointer_protocol, protocol_steps, protocol   plans chained over workers
    role_protocol    functions of roles, each of which is given a worker
    codec            how all this travels
"""

from typing import Any as _Any

from syft.core.lazy import submodules_on_demand as _on_demand
from syft.execution import codec, fetched, func2plan, plan, protobuf, remote

__getattr__ = _on_demand("syft.execution")

__all__ = ["codec", "fetched", "remote"]  # imported for what they register


def _load_records() -> _Any:
    from syft.execution.protobuf import records  # needs the optional package `protobuf`

    return records


def _load_training_plan() -> _Any:
    from syft.execution.training_plan import TrainingPlan

    return TrainingPlan


# What modules need of those that stand on them:
protobuf.load_records[:] = [_load_records]
plan.Plan._training_plan = _load_training_plan
setattr(plan, "func2plan", func2plan.func2plan)  # noqa: B010  (type checkers see them there)
setattr(plan, "method2plan", func2plan.method2plan)  # noqa: B010
