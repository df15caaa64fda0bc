"""What a plan costs on shares: it is run once among workers made for that, and the group counts.

Adds itself to the table of `syft.execution.cost`. May import `group`, and the rooms below.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from syft.core.ids import ID_PROVIDER
from syft.core.session import session
from syft.execution.build import example
from syft.execution.cost import SHARE_METERS, ShareCost, ShareOperationCost
from syft.execution.plan import Plan
from syft.execution.state import State
from syft.execution.watch import dtype_of
from syft.mpc.group import Group
from syft.mpc.metering import Bill, measure
from syft.mpc.protocols.registry import comparison
from syft.workers.virtual import VirtualWorker


def share_cost(plan: Any, shapes: tuple[tuple[int, ...], ...], protocol: str, holders: int) -> ShareCost:
    """One call of `plan` on shares of numbers between 0 and 1, in place of its arguments and its state.

    Whole numbers are shared as they are. What a protocol costs depends on shapes and not on values.
    """
    comparison(protocol, holders)
    made = _workers(holders + 1)
    try:
        return _run(plan, shapes, protocol, made[:-1], made[-1])
    finally:
        for worker in made:  # sharing has made them known here
            worker.remove_worker_from_local_worker_registry()


def _workers(count: int) -> list[Any]:
    run = ID_PROVIDER.pop()
    return [VirtualWorker(session.hook, id=f"cost-{run}-{index}", auto_add=False) for index in range(count)]


def _run(plan: Any, shapes: Any, protocol: str, holders: list[Any], provider: Any) -> ShareCost:
    group = Group.of(holders, provider)
    options: dict[str, Any] = dict(crypto_provider=provider, protocol=protocol)
    program, state = plan.program, plan.state
    tensors = [example(t.shape, dtype_of(t)) for t in state.tensors()]
    twin = Plan.of_program(program, State.of(tensors, state.names, state.buffers), name=plan.name)
    with torch.no_grad():
        twin.fix_precision_().share_(*holders, **options)
        examples = [example(s, i.dtype) for s, i in zip(shapes, program.inputs, strict=True)]
        costs = []
        for _ in range(2):
            given = [_shared(x, holders, options) for x in examples]
            group.reset_costs()
            with measure() as bill:
                twin._ready().run(given, twin.state.tensors())
            online, dealt = group.online, group.offline.bytes
            sent = sum(online.bytes_sent)
            costs.append(ShareCost(protocol, len(holders), online.rounds, sent, dealt, _operations(bill)))
    return replace(costs[0], again=costs[1])


def _operations(bill: Bill) -> tuple[ShareOperationCost, ...]:
    return tuple(
        ShareOperationCost(one.name, one.calls, one.rounds, one.bytes, one.offline_bytes)
        for one in bill.operations
    )


def _shared(tensor: Any, holders: list[Any], options: dict[str, Any]) -> Any:
    if tensor.dtype is torch.bool:
        return tensor
    if tensor.dtype.is_floating_point:
        tensor = tensor.fix_precision()
    return tensor.share(*holders, **options)


SHARE_METERS["additive"] = share_cost
