"""`PlanCost`: what a call of a plan costs, told from shapes. On shares: rounds and bytes, by protocol.

NOTE [Who counts shares]
Shares belong to a room above this one (`syft.mpc`). It adds the function that counts them to `SHARE_METERS`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from syft.core.ids import ID_PROVIDER
from syft.core.rooms import FilledLater
from syft.core.spec import TensorSpec
from syft.execution.errors import PlanArgumentsError, PlanError
from syft.execution.held import HeldPlan
from syft.execution.program import Program
from syft.execution.watch import dtype_of, measure, spec_of_shape, specs_of_state
from syft.messaging.message import ObjectMessage, PlanCallMessage, Ref
from syft.serde import serialize


@dataclass(frozen=True, slots=True)
class OperationCost:
    """One operation: its flops, and the bytes of its results."""

    name: str
    flops: int
    bytes: int


@dataclass(frozen=True, slots=True)
class ShareOperationCost:
    """All calls of one operation of a plan on shares: see `ShareCost`."""

    name: str
    calls: int
    rounds: int
    online: int
    offline: int


@dataclass(frozen=True, slots=True)
class ShareCost:
    """One call of a plan on shares.

    rounds      how often the holders wait for each other
    online      bytes that all of them send, together
    offline     bytes that the provider sends beforehand
    operations  the same for each operation
    again       the same for a second call with the same state, which is cheaper: docs/secrets.md
    """

    protocol: str
    holders: int
    rounds: int
    online: int
    offline: int
    operations: tuple[ShareOperationCost, ...] = ()
    again: ShareCost | None = None

    def on(self, latency: float, bandwidth: float) -> float:
        """Seconds that rounds and sending take on a network, computing left out: `latency` in seconds, one way,
        `bandwidth` in bytes per second.
        """
        return self.rounds * latency + self.online / self.holders / bandwidth

    def __str__(self) -> str:
        return (
            f"{self.rounds} rounds, {_bytes(self.online)} online, {_bytes(self.offline)} offline "
            f"({self.holders} holders)"
        )


@dataclass(frozen=True, slots=True)
class PlanCost:
    """One call of a plan for arguments of `shapes`. Sizes are in bytes.

    flops    of products, convolutions and attention; nothing else is counted. Forward only
    peak     the most memory of results and intermediate values at a time, without gradients
    program  the message that sends the plan, its state left out (sent once)
    call     the message of a call
    """

    name: str
    shapes: tuple[tuple[int, ...], ...]
    flops: int
    inputs: int
    outputs: int
    state: int
    peak: int
    program: int
    call: int
    operations: tuple[OperationCost, ...]
    shares: tuple[ShareCost, ...] = ()

    def __str__(self) -> str:
        rows = [
            ("flops, forward", f"{self.flops:,}"),
            ("peak memory", _bytes(self.peak)),
            ("inputs", _bytes(self.inputs)),
            ("outputs", _bytes(self.outputs)),
            ("sent once", f"{_bytes(self.program + self.state)} ({_bytes(self.state)} of it state)"),
            ("sent per call", _bytes(self.call)),
        ]
        rows += [(f"shares, {share.protocol}", str(share)) for share in self.shares]
        width = max(len(label) for label, _ in rows)
        shapes = ", ".join(map(str, self.shapes)) or "no tensor"
        return "\n".join(
            [f"{self.name} for {shapes}", *(f"  {label:<{width}}  {value}" for label, value in rows)]
        )


def _bytes(count: int) -> str:
    if count < 1000:
        return f"{count} B"
    value, unit = count / 1000, "kB"
    for larger in ("MB", "GB", "TB"):
        if value >= 1000:
            value, unit = value / 1000, larger
    return f"{value:.3g} {unit}" if value < 1000 else f"{value:.0f} {unit}"


#: (plan, shapes, protocol, holders) -> cost; see NOTE [Who counts shares]
ShareMeter = Callable[[Any, tuple[tuple[int, ...], ...], str, int], ShareCost]
SHARE_METERS: FilledLater[str, ShareMeter] = FilledLater()
#: (plan, count, shapes, store, lot) -> what was dealt ahead of time; filled in the same way
SHARE_PROVIDERS: FilledLater[str, Callable[[Any, int, tuple[Any, ...], str | None, int], Any]] = FilledLater()


def cost_of(plan: Any, shapes: Sequence[Sequence[int]], protocol: Any, holders: int) -> PlanCost:
    """What `plan.cost(...)` returns."""
    program: Program = plan.program
    settled = settled_shapes(program, shapes, plan.name)
    specs = [spec_of_shape(s, i.dtype) for s, i in zip(settled, program.inputs, strict=True)]
    tensors = plan.state.tensors()
    try:
        plan._ready().check_fit(specs, specs_of_state(tensors), f"cost() of the plan {plan.name!r}")
    except PlanArgumentsError as error:
        index = next(
            i
            for i, (g, w) in enumerate(zip(specs, program.inputs, strict=True))
            if not w.is_like(g.shape, g.dtype)
        )
        raise PlanArgumentsError(
            f"cost() was called with {settled[index]} as shape {index}; the plan {plan.name!r} was built for "
            f"{program.inputs[index].shape}, and its operations do not go with the other."
        ) from error
    measured = measure(program, specs, tensors)
    if measured is None:
        raise PlanError(
            f"cost() was called on the plan {plan.name!r}. It has a result whose shape only data can tell "
            "(nonzero, a mask as an index), so its cost does not follow from shapes. Use torch.where instead."
        )
    return PlanCost(
        plan.name,
        settled,
        sum(measured.flops),
        sum(map(_size, specs)),
        sum(map(_size, measured.described.results)),
        sum(_size(spec_of_shape(t.shape, dtype_of(t))) for t in tensors),
        measured.peak,
        _program_bytes(plan),
        _call_bytes(plan, len(specs), len(measured.described.results)),
        tuple(
            OperationCost(op.name, flops, size)
            for op, flops, size in zip(program.operations, measured.flops, measured.sizes, strict=True)
        ),
        tuple(_share_cost(plan, settled, name, holders) for name in _names(protocol)),
    )


def settled_shapes(
    program: Program, shapes: Sequence[Sequence[int]], name: str
) -> tuple[tuple[int, ...], ...]:
    """One shape for each tensor that a plan takes; !! PlanArgumentsError for those that do not fit it."""
    wanted = [given.shape for given in program.inputs]
    if not shapes:
        return tuple(tuple(1 if n == -1 else n for n in shape) for shape in wanted)
    if len(shapes) != len(wanted):
        raise PlanArgumentsError(
            f"cost() was called with {len(shapes)} shapes; the plan {name!r} takes {len(wanted)} tensors: "
            f"{', '.join(map(str, program.inputs)) or 'none'}."
        )
    for index, (given, shape) in enumerate(zip(shapes, wanted, strict=True)):
        if not isinstance(given, (tuple, list)) or not all(isinstance(n, int) and n >= 0 for n in given):
            raise PlanArgumentsError(
                f"cost() was called with {given!r} as shape {index}. A shape is a tuple of sizes, e.g. (64, 784); the "
                "cost depends on all of them, so none is -1."
            )
        if not program.inputs[index].takes_shape(given):
            raise PlanArgumentsError(
                f"cost() was called with {tuple(given)} as shape {index}; the plan {name!r} was built for {shape}."
            )
    return tuple(tuple(int(n) for n in given) for given in shapes)


def _names(protocol: Any) -> tuple[str, ...]:
    if protocol is None:
        return ()
    names = (protocol,) if isinstance(protocol, str) else tuple(protocol)
    if not all(isinstance(name, str) for name in names):
        raise TypeError(f"cost() was called with protocol={protocol!r}; it is a name, or a list of names.")
    return names


def _share_cost(plan: Any, shapes: tuple[tuple[int, ...], ...], protocol: str, holders: int) -> ShareCost:
    meter = SHARE_METERS.find("additive")
    if meter is None:
        raise PlanError("The cost on shares was asked, and nobody here can share. Import syft as a whole.")
    return meter(plan, shapes, protocol, holders)


def _size(spec: TensorSpec) -> int:
    count = 1
    for n in spec.shape:
        count *= n
    return count * spec.dtype.itemsize


def _program_bytes(plan: Any) -> int:
    """The message that carries a plan; its state goes by messages of its own, as large as the tensors are."""
    state = plan.state
    held = HeldPlan(
        plan.program,
        [ID_PROVIDER.pop() for _ in state.names],
        state.names,
        state.buffers,
        [0] * len(state.names),
        plan._training,
        plan.name,
        plan.id,
        plan.tags,
        plan.description,
        plan._replay,
    )
    return len(serialize(ObjectMessage(held, plan.id)))


def _call_bytes(plan: Any, inputs: int, outputs: int) -> int:
    args = tuple(Ref(ID_PROVIDER.pop()) for _ in range(inputs))
    ids = tuple(ID_PROVIDER.pop() for _ in range(outputs))
    rates = () if plan._training is None else plan._rates()
    return len(serialize(PlanCallMessage(plan.id, args, (), None, ids, rates, False, None)))
