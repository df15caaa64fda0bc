"""Two traced runs of a function become one program.

NOTE [Why a function is run twice]
A plan has to be right for sizes it has not seen. What the function does with `x.shape` is followed exactly
(`syft.execution.sizes`); what escapes that (Python's `len`, a loop over a tensor, `torch.Size.numel`) shows as a
difference between two runs with different sizes in the dimensions that are -1. The sizes are different primes, so one
number cannot be taken for another. A difference that has no explanation is refused, with its line: a plan that
would be wrong for some batch is worse than none. A size that became a plain number (`len(x)`, `int(x.shape[0])`) is
found again by its values in both runs; since Python code may have decided by it without our knowing, a third run, with
many rows, has to give the same program. Two runs also tell the tensors that exist outside of the function (its
state: the same objects in both) from those it makes, and find functions that do something else each time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from syft.core.place import WITHOUT_VALUES, made_here
from syft.execution.errors import TraceError
from syft.execution.inputs import Input
from syft.execution.makers import size_maker
from syft.execution.operation import Operation, Size, Slot, leaves, map_structure
from syft.execution.program import Program, checked_program
from syft.execution.sizes import _Symbolic
from syft.execution.trace import Call, Handle, Trace

#: Sizes for the dimensions that are -1, in the two runs. The first dimension is small in the first run, so that what is
#: cut to a few rows shows; others are larger, so that convolutions and pools have something to work on.
_ROWS = ((2, 3, 5, 7), (11, 13, 17, 19), (1021, 1031, 1033, 1039))
_OTHERS = ((31, 37, 41, 43), (53, 59, 61, 67), (71, 73, 79, 83))


def example_shapes(shapes: Sequence[tuple[int, ...]], run: int, ties: str) -> list[tuple[int, ...]]:
    """Shapes to trace with, in which every -1 has become a size.

    ties   which unknown sizes are the same: "none", "rows" (those of the first dimensions), or "all" in one place
    """
    taken = {True: 0, False: 0}
    chosen: dict[Any, int] = {}

    def size(index: int, dim: int) -> int:
        shared = ties == "all" or (ties == "rows" and dim == 0)
        key = dim if shared else (index, dim)
        if key not in chosen:
            table = (_ROWS if dim == 0 else _OTHERS)[run]
            count = taken[dim == 0]
            chosen[key] = table[count % 4] + 70 * (count // 4)
            taken[dim == 0] += 1
        return chosen[key]

    return [
        tuple([size(index, dim) if n == -1 else n for dim, n in enumerate(shape)])
        for index, shape in enumerate(shapes)
    ]


def trace_function(
    function: Callable[..., Any], signature: tuple[Any, ...], inputs: Sequence[torch.Tensor]
) -> tuple[Trace, Any]:
    """Run a function under a trace; random numbers drawn on the way are given back."""
    trace = Trace(inputs)
    args = map_structure(lambda leaf: inputs[leaf.index] if type(leaf) is Slot else leaf, signature)
    with (
        made_here(is_fixed=True),
        WITHOUT_VALUES,
        torch.random.fork_rng(devices=[]),
        torch.enable_grad(),
        trace,
    ):
        returned = function(*args)
    return trace, returned


def merge(
    first: tuple[Trace, Any],
    second: tuple[Trace, Any],
    signature: tuple[Any, ...],
    inputs: tuple[Input, ...],
    declared_state: Sequence[torch.Tensor],
) -> tuple[Program, list[torch.Tensor]]:
    """The program of two runs, and the tensors of its state: the declared ones, then those it was found to use."""
    return _Merge(first, second, signature, inputs, declared_state).run()


def has_escaped_sizes(first: Trace, second: Trace) -> bool:
    """Whether a size that may change became a plain number."""
    pairs = zip(first.log.escapes, second.log.escapes, strict=False)
    return any(a[0] != b[0] for a, b in pairs)


def refuse_another_program(program: Program, other: Program, first: Trace) -> None:
    """!! TraceError unless two programs are the same."""
    for one, two, call in zip(program.operations, other.operations, first.calls, strict=True):
        if one != two:
            raise TraceError(
                f"{call.line} does something else when there are many rows. Use x.shape[0] as it is."
            )


class _Merge:
    def __init__(self, first: Any, second: Any, signature: Any, inputs: Any, declared: Any) -> None:
        (self.a, self.returned_a), (self.b, self.returned_b) = first, second
        self.signature, self.inputs = signature, inputs
        self.state: list[torch.Tensor] = list(declared)
        self.constants: list[torch.Tensor] = []
        self.slots: dict[int, int] = {}  #: number in the first trace -> slot
        self.numbers: dict[int, int] = {}  #: number in the second trace -> number in the first

    def run(self) -> tuple[Program, list[torch.Tensor]]:
        self._refuse_decisions()
        if len(self.a.calls) != len(self.b.calls):
            self._refuse_other_calls()
        self._pair_tensors()
        operations = []
        for a, b in zip(self.a.calls, self.b.calls, strict=True):
            operations.append(self._operation(a, b))
        outputs = self._outputs()
        program = Program(
            self.signature,
            self.inputs,
            len(self.state),
            tuple(t.detach().clone() for t in self.constants),
            tuple(operations),
            outputs,
        )
        return checked_program(program), self.state

    # -- what was decided --------------------------------------------------------------------------

    def _refuse_decisions(self) -> None:
        for a, b in zip(self.a.log.decisions, self.b.log.decisions, strict=False):
            # That two sizes are the same in both runs is a check of arguments that belong together, and no choice.
            is_check = a.is_of_sizes and b.is_of_sizes and a.value == a.other and b.value == b.other
            if (a.value, a.other) != (b.value, b.other) and not is_check:
                raise TraceError(
                    f"{a.line} decides by a size that is any size (-1 in args_shape): it was {a.value} in one traced "
                    f"run and {b.value} in another. Give the dimension a fixed size, or write the function without it."
                )

    def _refuse_other_calls(self) -> None:
        for a, b in zip(self.a.calls, self.b.calls, strict=False):
            if a.name != b.name or a.line != b.line:
                raise TraceError(
                    f"{a.line} does something else when the function is run again ({a.name}, then {b.name} at "
                    f"{b.line}). A plan is one list of operations: loops over a dimension of any size, and choices made "
                    "by chance, cannot be planned. Give the dimension a fixed size, or use tensor operations."
                )
        longer = max(self.a.calls, self.b.calls, key=len)
        line = longer[min(len(self.a.calls), len(self.b.calls))].line
        raise TraceError(
            f"{line} is run a different number of times when sizes differ. A plan is one list of operations: give the "
            "dimension that is looped over a fixed size, or use tensor operations."
        )

    # -- tensors -----------------------------------------------------------------------------------

    def _pair_tensors(self) -> None:
        """Give every tensor its slot. Those that no call made are state, if both runs met the same object."""
        outsiders: list[tuple[int, int]] = []

        def pair(a: Any, b: Any) -> None:
            if isinstance(a, Handle) and isinstance(b, Handle) and b.number not in self.numbers:
                self.numbers[b.number] = a.number
                if a.number >= self.a.input_count and a.number not in self.a.made:
                    outsiders.append((a.number, b.number))

        for number in range(self.a.input_count):
            self.numbers[number] = number
        for a, b in zip(self.a.calls, self.b.calls, strict=True):
            if a.name != b.name:
                self._refuse_other_calls()
            for one, other in zip(leaves((a.args, a.kwargs)), leaves((b.args, b.kwargs)), strict=False):
                pair(one, other)
            for one, other in zip(leaves(a.results), leaves(b.results), strict=False):
                pair(one, other)
        for one, other in zip(leaves(self.returned_a), leaves(self.returned_b), strict=False):
            if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
                pair(Handle(self.a.number_of(one)), Handle(self.b.number_of(other)))
        known = {id(tensor): index for index, tensor in enumerate(self.state)}
        constants: list[int] = []
        of_state: dict[int, int] = {}
        for a, b in outsiders:
            tensor, again = self.a.tensors[a], self.b.tensors[b]
            if tensor is again:
                if id(tensor) not in known:
                    known[id(tensor)] = len(self.state)
                    self.state.append(tensor)
                of_state[a] = known[id(tensor)]
            else:
                self._refuse_changing_constant(tensor, again)
                constants.append(a)
        taken = len(self.inputs)
        self.slots = {number: number for number in range(self.a.input_count)}
        self.slots.update({number: taken + index for number, index in of_state.items()})
        taken += len(self.state)
        for index, number in enumerate(constants):
            self.constants.append(self.a.tensors[number])
            self.slots[number] = taken + index
        taken += len(constants)
        for call in self.a.calls:
            for handle in leaves(call.results):
                if isinstance(handle, Handle):
                    self.slots[handle.number] = taken
                    taken += 1

    @staticmethod
    def _refuse_changing_constant(one: torch.Tensor, other: torch.Tensor) -> None:
        if one.shape != other.shape or not torch.equal(one, other):
            raise TraceError(
                "The function makes a tensor outside of torch's functions (from numpy, or from numbers of Python), and "
                "it is another one each time. Pass it to the plan as an argument."
            )

    # -- calls -------------------------------------------------------------------------------------

    def _operation(self, a: Call, b: Call) -> Operation:
        if a.name != b.name:
            self._refuse_other_calls()
        args = self._same(a.args, b.args, a)
        kwargs = self._same(a.kwargs, b.kwargs, a)
        results = self._same(a.results, b.results, a)
        return Operation(a.name, args, kwargs, results, a.tracks)

    def _same(self, a: Any, b: Any, call: Call) -> Any:
        """What stands in the program for an argument that was `a` in one run and `b` in the other."""
        if isinstance(a, (tuple, list)) and type(a) is type(b) and len(a) == len(b):
            return type(a)([self._same(x, y, call) for x, y in zip(a, b, strict=True)])
        if isinstance(a, dict) and isinstance(b, dict) and list(a) == list(b):
            return {key: self._same(value, b[key], call) for key, value in a.items()}
        if isinstance(a, slice) and isinstance(b, slice):
            parts = zip((a.start, a.stop, a.step), (b.start, b.stop, b.step), strict=True)
            return slice(*(self._same(x, y, call) for x, y in parts))
        if isinstance(a, Handle) and isinstance(b, Handle):
            if self.numbers.get(b.number) == a.number:
                return Slot(self.slots[a.number])
        elif isinstance(a, _Symbolic) and isinstance(b, _Symbolic):
            one, other = self._in_slots(a.expression, self.a), self._in_slots(b.expression, self.b)
            if one == other:
                return one
        elif type(a) is type(b) and (a == b or (isinstance(a, float) and math.isnan(a) and math.isnan(b))):
            return a
        elif type(a) is type(b) and type(a) in (int, float):
            # One of the sizes that became plain numbers; a third run makes sure (see NOTE).
            for (one, expression), (other, _) in zip(self.a.log.escapes, self.b.log.escapes, strict=False):
                if type(one) is type(a) and (one, other) == (a, b):
                    return self._in_slots(expression, self.a)
        raise TraceError(
            f"{call.line} calls {call.name} with {_shown(a)} in one traced run and with {_shown(b)} in another, where "
            "dimensions of any size (-1 in args_shape) have other sizes. Write it with x.shape[...], or give the "
            "dimension a fixed size."
        )

    def _in_slots(self, expression: Any, trace: Trace) -> Any:
        """An expression of sizes by slots; sizes that never change become numbers."""
        if not isinstance(expression, Size):
            return expression
        if expression.op == "dim":
            number, dim = expression.left, expression.right
            slot = self.slots.get(number if trace is self.a else self.numbers.get(number, -1))
            if slot is None:
                # Of a tensor that takes part in no call, so it is not of this run: its size is a number.
                return int(trace.tensors[number].shape[dim])
            return self._fixed_size(slot, dim) or Size("dim", slot, dim)
        left, right = self._in_slots(expression.left, trace), self._in_slots(expression.right, trace)
        made = Size(expression.op, left, right)
        if isinstance(left, Size) or isinstance(right, Size):
            return made
        return _evaluated(made)

    def _fixed_size(self, slot: int, dim: int) -> int | None:
        if slot < len(self.inputs):
            shape = self.inputs[slot].shape
            return shape[dim] if dim < len(shape) and shape[dim] > 0 else None
        index = slot - len(self.inputs)
        held = [*self.state, *self.constants]
        return held[index].shape[dim] or None if index < len(held) else None

    # -- what is returned ----------------------------------------------------------------------------

    def _outputs(self) -> Any:
        def handle(trace: Trace) -> Callable[[Any], Any]:
            def step(leaf: Any) -> Any:
                if isinstance(leaf, torch.Tensor):
                    return Handle(trace.number_of(leaf))
                if isinstance(leaf, _Symbolic):
                    raise TraceError(_RETURNS_A_SIZE)
                return leaf

            return step

        a = map_structure(handle(self.a), self.returned_a)
        b = map_structure(handle(self.b), self.returned_b)
        call = Call("return", (), {}, None, True, "The function, in what it returns,")
        outputs = self._same(a, b, call)
        if any(type(leaf) is Size for leaf in leaves(outputs)):
            raise TraceError(_RETURNS_A_SIZE)
        if not any(type(leaf) is Slot for leaf in leaves(outputs)):
            raise TraceError(
                f"The function returns {_shown(outputs)}. A plan returns a tensor, or several in tuples, lists and dicts."
            )
        return outputs


_RETURNS_A_SIZE = (
    "The function returns a size. A plan returns tensors: return the tensor, and ask for its shape."
)


def _evaluated(size: Size) -> Any:
    return size_maker(size)([])


def _shown(value: Any) -> str:
    if isinstance(value, Handle):
        return "a tensor"
    if isinstance(value, (tuple, list)) and any(isinstance(leaf, Handle) for leaf in leaves(value)):
        return f"{len(leaves(value))} tensors"
    return repr(value)[:120]
