"""Which models may be trained beside private data: programs of operations from a list.

One duty: `check_program(module)`. Models travel as plans (`federated.plan_module`); here it is looked at what a plan
does. Imports that, `execution`, `core.spec`.

NOTE [Operations beside private data]
DP-SGD runs a program for one example at a time (`per_sample`, way "vmap"), so that no operation can mix examples. It
bounds what an example can do to the gradients. What is left is how a run ends, and what it takes: an operation of the
list never raises because of a value, draws nothing, and its shapes follow from shapes. So whether a run fails, and what
it takes, is the same for all data, and is found out with zeros before anything is charged. Tensors stand only where an
operation takes tensors: one in the place of a number would be asked for its value. Nothing is written to the parameters.
A plan may write into the rows it is given: each pass has copies of its own, and no row is the reason for another pass
(`clipping.clipped`). What is not hidden is the clock: NaN, infinities and subnormal numbers take a processor longer.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from syft.core.spec import TensorSpec, spec_of
from syft.exceptions import ReleaseNotPermittedError
from syft.execution.operation import Operation, slots_in
from syft.execution.replay import Replay
from syft.federated.plan_module import PlanModule

#: What the values of one example may take on the way through a model, in bytes.
MOST_BYTES = 1 << 30

#: Operations of functions that layers are made of -> how many of the first arguments are tensors, and which by name.
_WEIGHTS = frozenset({"weight", "bias"})
_NONE: frozenset[str] = frozenset()
OPERATIONS: dict[str, tuple[int, frozenset[str]]] = {
    **{f"torch.nn.functional.{name}": (3, _WEIGHTS) for name in ("linear", "conv1d", "conv2d")},
    **{f"torch.nn.functional.{name}": (1, _WEIGHTS) for name in ("layer_norm", "group_norm")},
    **{
        f"torch.nn.functional.{name}": (1, _NONE)
        for name in (
            "relu leaky_relu elu gelu silu softplus max_pool2d avg_pool2d adaptive_avg_pool2d pad".split()
        )
    },
    **{
        f"{prefix}{name}": (1, _NONE)
        for prefix in ("", "torch.")
        for name in "relu tanh sigmoid neg flatten reshape".split()
    },
    "view": (1, _NONE),
    **{f"{prefix}{name}": (2, _NONE) for prefix in ("", "torch.") for name in "add sub mul".split()},
}


def check_program(module: Any, example: TensorSpec) -> None:
    """!! ReleaseNotPermittedError that names every operation which does not run beside private data, or what it takes.

    example   what one record looks like, as a batch of one
    """
    if not isinstance(module, PlanModule):
        raise ValueError(f"A model arrives as a SentModule with its plan, not as a {type(module).__name__}.")
    faults = [fault for replay in module._replays for fault in _faults(replay)]
    if faults:
        raise ReleaseNotPermittedError(
            f"train_privately does not run {', '.join(dict.fromkeys(faults))} beside private data. A model is made of "
            f"these operations, and of layers that are: {', '.join(OPERATIONS)}."
        )
    for replay, slots in zip(module._replays, module._slots, strict=True):
        state = [spec_of(module._tensors()[slot].to("meta")) for slot in slots]
        described = replay.describe([example] * len(replay.program.inputs), state)
        if described is None or described.total > MOST_BYTES:
            takes = "memory that depends on values" if described is None else f"{described.total} bytes"
            raise ReleaseNotPermittedError(
                f"train_privately does not run a model that takes {takes} for one record; the most is {MOST_BYTES} bytes."
            )
        if any(index >= len(replay.program.inputs) for index in described.written):
            raise ReleaseNotPermittedError(
                "train_privately does not run a model that writes to its own parameters."
            )


def _faults(replay: Replay) -> Iterator[str]:
    for operation in replay.program.operations:
        if operation.name not in OPERATIONS:
            yield operation.name
        elif stray := _stray_tensor(operation):
            yield f"{operation.name} with a tensor as {stray}"


def _stray_tensor(operation: Operation) -> str:
    """Where a tensor stands that is none of the operation's operands."""
    leading, named = OPERATIONS[operation.name]
    for place, value in enumerate(operation.args):
        if place >= leading and slots_in(value):
            return f"argument {place}"
    return next(
        (name for name, value in operation.kwargs.items() if name not in named and slots_in(value)), ""
    )
