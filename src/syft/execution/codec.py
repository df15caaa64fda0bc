"""How plans travel: their records, their state, and plans themselves. Every program is checked when it arrives."""

from __future__ import annotations

from typing import Any

import torch

from syft.execution.held import HeldPlan
from syft.execution.inputs import Fit, Input
from syft.execution.operation import Operation, Size, Slot
from syft.execution.placeholder import PlaceHolder
from syft.execution.plan import Plan
from syft.execution.pointer_plan import PointerPlan
from syft.execution.pointer_protocol import PointerProtocol
from syft.execution.program import Program
from syft.execution.protocol import Protocol
from syft.execution.protocol_steps import Step
from syft.execution.state import State
from syft.execution.training import TrainedGroup, TrainingStep
from syft.serde import SerdeError, register, register_record
from syft.serde.registry import checked

_Id = int | str

register_record(Slot, "PlanSlot")
register_record(Size, "PlanSize")
register_record(Operation, "PlanOperation")
register_record(Fit, "PlanFit")
register_record(Program, "PlanProgram")
register_record(TrainedGroup)
register_record(TrainingStep)
register_record(Step, "ProtocolStep")


def _encode_input(_worker: Any, given: Input) -> tuple[Any, ...]:
    parts = (given.shape, given.dtype)
    return parts if given.others is None else (*parts, given.others)


def _decode_input(_worker: Any, parts: tuple[Any, ...]) -> Input:
    kinds = (tuple[int, ...], torch.dtype, Fit)
    if not 2 <= len(parts) <= 3:
        raise SerdeError(f"A PlanInput with {len(parts)} fields was found; it has 2 or 3.")
    return Input(*checked(parts, tuple[kinds[: len(parts)]], "PlanInput"))  # type: ignore[misc]


register(Input, "PlanInput", _encode_input, _decode_input)
register(
    State,
    "State",
    State.simplify,
    State.detail,
    fields=tuple[tuple[torch.Tensor, ...], tuple[str, ...], tuple[int, ...]],
)
register(
    Plan,
    "Plan",
    Plan.simplify,
    Plan.detail,
    fields=tuple[_Id, str, Program, State, TrainingStep | None, frozenset[str], str | None],
    subclasses=True,
)
register(
    PlaceHolder,
    "PlaceHolder",
    PlaceHolder.simplify,
    PlaceHolder.detail,
    fields=tuple[
        _Id | None,
        frozenset[str],
        str | None,
        tuple[int, ...] | None,
        torch.dtype | None,
        torch.Tensor | None,
    ],
)
register(
    HeldPlan,
    "HeldPlan",
    lambda _worker, held: held.parts(),
    lambda _worker, parts: HeldPlan(*parts),
    fields=tuple[
        Program,
        tuple[_Id, ...],
        tuple[str, ...],
        tuple[int, ...],
        tuple[int, ...],
        TrainingStep | None,
        str | None,
        _Id | None,
        frozenset[str],
        str | None,
    ],
)


register(
    Protocol,
    "Protocol",
    Protocol.simplify,
    Protocol.detail,
    fields=tuple[_Id, tuple[Step, ...], frozenset[str], str | None],
)


_kind: Any
for _kind in (PointerPlan, PointerProtocol):
    register(
        _kind,
        _kind.__name__,
        _kind.simplify,
        _kind.detail,
        fields=tuple[_Id, _Id, _Id | None, frozenset[str], str | None],
    )
