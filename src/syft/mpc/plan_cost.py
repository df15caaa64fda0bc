"""What a plan costs on shares: it is run once among workers made for that, and the group counts.

Adds itself to the table of `syft.execution.cost`. May import `group`, and the rooms below.
"""

from __future__ import annotations

from typing import Any

import torch

from syft.core.ids import ID_PROVIDER
from syft.core.session import session
from syft.execution.build import example
from syft.execution.cost import SHARE_METERS, ShareCost
from syft.execution.plan import Plan
from syft.execution.state import State
from syft.execution.watch import dtype_of
from syft.mpc.group import Group
from syft.mpc.protocols.registry import comparison
from syft.workers.virtual import VirtualWorker


def share_cost(plan: Any, shapes: tuple[tuple[int, ...], ...], protocol: str, holders: int) -> ShareCost:
    """One call of `plan` on shares of numbers between 0 and 1, in place of its arguments and its state.

    Whole numbers are shared as they are. What a protocol costs depends on shapes and not on values.
    """
    comparison(protocol, holders)
    run = ID_PROVIDER.pop()
    made = [
        VirtualWorker(session.hook, id=f"cost-{run}-{index}", auto_add=False) for index in range(holders + 1)
    ]
    group = Group.of(made[:-1], made[-1])
    options: dict[str, Any] = dict(crypto_provider=made[-1], protocol=protocol)
    tensors = [example(t.shape, dtype_of(t)) for t in plan.state.tensors()]
    program = plan.program
    twin = Plan.of_program(program, State(tensors, plan.state.names, plan.state.buffers), name=plan.name)
    with torch.no_grad():
        twin.fix_precision_().share_(*made[:-1], **options)
        examples = [example(s, i.dtype) for s, i in zip(shapes, program.inputs, strict=True)]
        given = [_shared(x, made[:-1], options) for x in examples]
        group.reset_costs()
        twin._ready().run(given, twin.state.tensors())
    return ShareCost(
        protocol, holders, group.online.rounds, sum(group.online.bytes_sent), group.offline.bytes
    )


def _shared(tensor: Any, holders: list[Any], options: dict[str, Any]) -> Any:
    if tensor.dtype is torch.bool:
        return tensor
    if tensor.dtype.is_floating_point:
        tensor = tensor.fix_precision()
    return tensor.share(*holders, **options)


SHARE_METERS["additive"] = share_cost
