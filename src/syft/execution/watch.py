"""Running a program on tensors without data, with an eye on every operation: its shapes, flops and memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch

from syft.core.chain import Wrapper
from syft.core.spec import TensorSpec, spec_of
from syft.execution.merge import example_shapes
from syft.execution.operation import Slot, leaves
from syft.execution.program import Program
from syft.execution.replay import Description, Replay

#: (number of the operation, the call) -> what it returns
Watcher = Callable[[int, Callable[[], Any]], Any]


def watched(program: Program, watcher: Watcher) -> Replay:
    """A replay whose every operation goes through `watcher`."""
    replay = Replay(program)
    for index, step in enumerate(replay._steps):
        step.function = partial(_through, watcher, index, step.function)
    return replay


def _through(watcher: Watcher, index: int, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    return watcher(index, lambda: function(*args, **kwargs))


def spec_of_shape(shape: Sequence[int], dtype: torch.dtype) -> TensorSpec:
    return spec_of(torch.empty(tuple(shape), dtype=dtype, device="meta"))


def specs_of_state(tensors: Sequence[Any]) -> list[TensorSpec]:
    """Specs of the state as it is when it is neither shared nor elsewhere."""
    return [spec_of_shape(t.shape, dtype_of(t)) for t in tensors]


def dtype_of(tensor: Any) -> torch.dtype:
    """The dtype of a tensor; of one that is shared or of fixed precision, that of real numbers."""
    if type(tensor) is Wrapper and getattr(tensor.child, "location", None) is None:
        return torch.get_default_dtype()
    dtype: torch.dtype = tensor.dtype
    return dtype


# -- shapes ----------------------------------------------------------------------------------------


def shapes_of(program: Program, state: Sequence[Any]) -> dict[int, tuple[int, ...]]:
    """The shape of the tensor in each slot, by slot, with -1 where it is any size; those that could be told."""
    for ties in ("none", "rows", "all"):
        first, second = (_shapes(program, state, is_second, ties) for is_second in (False, True))
        if first is not None and second is not None:
            return {
                slot: tuple(a if a == b else -1 for a, b in zip(shape, second[slot], strict=True))
                for slot, shape in first.items()
                if len(shape) == len(second.get(slot, ()))
            }
    return {}


def _shapes(
    program: Program, state: Sequence[Any], is_second: bool, ties: str
) -> dict[int, tuple[int, ...]] | None:
    found: dict[int, tuple[int, ...]] = {}

    def look(index: int, call: Callable[[], Any]) -> Any:
        value = call()
        slot = program.operations[index].results
        if type(slot) is Slot and isinstance(value, torch.Tensor):
            found[slot.index] = tuple(value.shape)
        return value

    shapes = example_shapes([given.shape for given in program.inputs], is_second, ties)
    specs = [spec_of_shape(s, i.dtype) for s, i in zip(shapes, program.inputs, strict=True)]
    try:
        described = watched(program, look).describe(specs, specs_of_state(state))
    except (RuntimeError, ValueError, TypeError, IndexError):  # sizes that do not go together
        return None
    return None if described is None else found


# -- flops and memory ------------------------------------------------------------------------------


class Measured:
    """What a run took: flops and bytes of results by operation, and the most memory it had at a time."""

    def __init__(self, described: Description, flops: list[int], sizes: list[int]) -> None:
        self.described, self.flops, self.sizes, self.peak = described, flops, sizes, described.peak


def measure(program: Program, inputs: Sequence[TensorSpec], state: Sequence[Any]) -> Measured | None:
    """Run a program on metadata; None if only data can tell what it does.

    Flops are those of torch's own formulas: products, convolutions and attention, one multiplication and one addition
    each; everything else counts as nothing.
    """
    from torch.utils.flop_counter import FlopCounterMode  # imports much that nothing else here needs

    flops, sizes = [0] * len(program.operations), [0] * len(program.operations)
    counter = FlopCounterMode(display=False)

    def look(index: int, call: Callable[[], Any]) -> Any:
        before = counter.get_total_flops()
        value = call()
        flops[index] = counter.get_total_flops() - before
        sizes[index] = sum(t.nbytes for t in leaves(value) if isinstance(t, torch.Tensor))
        return value

    with counter:
        described = watched(program, look).describe(inputs, specs_of_state(state))
    return None if described is None else Measured(described, flops, sizes)
