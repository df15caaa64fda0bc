"""A program as a row of prepared calls, and what it would return for tensors of given metadata.

Functions are looked up once, arguments are put together by small functions made once, and what is not needed any
more is dropped on the way.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._device import _device_constructors

from syft.core.memory import Memory
from syft.core.spec import TensorSpec, spec_of
from syft.execution.errors import PlanArgumentsError
from syft.execution.makers import Slots, argument_maker
from syft.execution.meter import Meter
from syft.execution.operation import Operation, Slot, leaves, map_structure, sizes_in, slots_in
from syft.execution.program import Program, checked_program
from syft.execution.vocabulary import plan_command
from syft.operations.fresh_memory import function_of
from syft.operations.writes import UNDECLARED_WRITERS


class _OnMeta(TorchFunctionMode):
    """Inside, new tensors are meta tensors wherever they were to be."""

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        if kwargs.get("device") is not None or func in _device_constructors():
            kwargs["device"] = "meta"
        if func in _MOVES:
            args = [torch.device("meta") if isinstance(a, (torch.device, str)) else a for a in args]
            return args[0] if func is not torch.Tensor.to else func(*args, **kwargs)
        return func(*args, **kwargs)


_MOVES = frozenset({torch.Tensor.to, torch.Tensor.cpu, torch.Tensor.cuda})


class _Step:
    """One prepared call."""

    __slots__ = ("args", "command", "drops", "function", "kwargs", "name", "result", "results", "tracks")

    def __init__(self, operation: Operation) -> None:
        self.command = command = plan_command(operation.name)
        self.name = operation.name
        # Fresh memory may have held somebody else's data; see NOTE [Memory of others] in syft.operations.fresh_memory.
        self.function = function_of(command)
        self.args = [argument_maker(value) for value in operation.args]
        self.kwargs = [(name, argument_maker(value)) for name, value in operation.kwargs.items()]
        self.results = operation.results
        self.result = operation.results.index if type(operation.results) is Slot else -1
        self.tracks = operation.tracks
        self.drops: tuple[int, ...] = ()


def _assign(slots: Slots, results: Any, value: Any) -> None:
    if type(results) is Slot:
        slots[results.index] = value
    elif isinstance(results, tuple):
        for part, item in zip(results, value, strict=True):
            _assign(slots, part, item)


class Replay:
    """A checked program, ready to run any number of times."""

    def __init__(self, program: Program) -> None:
        checked_program(program)
        self.program = program
        self._steps = [_Step(operation) for operation in program.operations]
        self._empty = [None] * (program.slot_count - program.first_result)
        self._outputs = argument_maker(program.outputs)
        self._constants = program.constants
        self._plan_drops()
        self._described: Memory[tuple[Any, ...], Description | None] = Memory(_DESCRIBED_LIMIT)
        #: Shapes and dtypes of inputs that were found to be like those it was built with.
        self._like: Memory[tuple[Any, ...], bool] = Memory(_DESCRIBED_LIMIT)

    def _plan_drops(self) -> None:
        """Have every slot emptied after its last use."""
        kept = {slot.index for slot in slots_in(self.program.outputs)}
        kept.update(size.left for size in sizes_in(self.program.outputs))
        for operation, step in zip(reversed(self.program.operations), reversed(self._steps), strict=True):
            used = {slot.index for slot in slots_in((operation.args, operation.kwargs, operation.results))}
            used.update(size.left for size in sizes_in((operation.args, operation.kwargs)))
            step.drops = tuple(used - kept)
            kept |= used
        #: the slots that take part in anything
        self.used = frozenset(kept)

    def run(
        self,
        inputs: Sequence[Any],
        state: Sequence[Any],
        constants: Sequence[Any] | None = None,
    ) -> Any:
        """What the program returns for these tensors.

        `constants` are in the place of the program's own, and may be written into.
        """
        # NB: an operation may write into a constant, and the next run must find it as it was.
        copies = [c.clone() for c in self._constants] if constants is None else constants
        slots: Slots = [*inputs, *state, *copies, *self._empty]
        step: Any = None
        try:
            for step in self._steps:
                args = [make(slots) for make in step.args]
                kwargs = {name: make(slots) for name, make in step.kwargs} if step.kwargs else {}
                if step.tracks:
                    value = step.function(*args, **kwargs)
                else:
                    with torch.no_grad():
                        value = step.function(*args, **kwargs)
                if step.result >= 0:
                    slots[step.result] = value
                elif step.results is not None:
                    _assign(slots, step.results, value)
                for index in step.drops:
                    slots[index] = None
        except Exception as error:
            error.add_note(f"This happened in {step.name}, operation {self._steps.index(step)} of a plan.")
            raise
        return self._outputs(slots)

    # -- what it would return ------------------------------------------------------------------------

    def is_like(self, inputs: Sequence[Any]) -> bool:
        """Whether there are as many tensors as the program takes, all like those that it was built with."""
        key = tuple([(tensor.shape, tensor.dtype) for tensor in inputs])
        if key in self._like:
            return True
        wanted = self.program.inputs
        if len(key) != len(wanted) or not all(
            i.is_like(*found) for i, found in zip(wanted, key, strict=True)
        ):
            return False
        if len(key) <= _LARGEST_DESCRIBED:
            self._like[key] = True
        return True

    def check_fit(self, inputs: Sequence[Any], state: Sequence[Any], name: str) -> None:
        """!! PlanArgumentsError if tensors unlike those it was built with do not go through its operations.

        Only metadata is looked at. `inputs` and `state` have a shape and a dtype each: tensors, pointers or specs.
        """
        if self.is_like(inputs):
            return
        pairs = enumerate(zip(self.program.inputs, inputs, strict=True))
        index, (wanted, given) = next(
            pair for pair in pairs if not pair[1][0].is_like(pair[1][1].shape, pair[1][1].dtype)
        )
        try:
            self.describe([_spec(tensor) for tensor in inputs], [_spec(tensor) for tensor in state])
        except (RuntimeError, ValueError, TypeError, IndexError) as error:
            reason = str(error).strip().splitlines()[:1]
            raise PlanArgumentsError(
                f"{name} was called with a tensor of {given.dtype} and shape {tuple(given.shape)} as argument {index}; "
                f"it was built for {wanted}, and its operations do not go with that one ({''.join(reason)[:200]}). Pass "
                f"one of that shape, with `.to({wanted.dtype})` if need be, or build the plan with the one it is "
                "called with."
            ) from None

    def describe(
        self,
        inputs: Sequence[TensorSpec],
        state: Sequence[TensorSpec],
        inside: Callable[[], AbstractContextManager[Any]] = nullcontext,
    ) -> Description | None:
        """The metadata of the results, and what is written; None if only the data can tell.

        Errors about shapes are raised from here: no data has been looked at. `inside` makes what it is worked out in, if
        it is not known yet.
        """
        key = (*inputs, *state)
        if key in self._described:
            return self._described[key]
        with inside():
            found = self._run_without_data(inputs, state)
        # NB: nobody is charged for what is remembered.
        size = len(key) + (0 if found is None else len(found.results))
        if size <= _LARGEST_DESCRIBED:
            self._described[key] = found
        return found

    def _run_without_data(
        self, inputs: Sequence[TensorSpec], state: Sequence[TensorSpec]
    ) -> Description | None:
        try:
            with torch.no_grad(), _OnMeta():
                # NB: the constants, too. What is made of them alone would else be made, however large it is.
                constants = [c.to("meta") for c in self._constants]
                return self._described_by([s.meta() for s in inputs], [s.meta() for s in state], constants)
        except (RuntimeError, NotImplementedError, ValueError, TypeError):
            # A function of torch that makes tensors of its own makes them on the CPU, and they do not go with meta
            # tensors. torch's fake tensors know better; they cost a second when first used, and milliseconds after.
            return self._run_on_fakes(inputs, state)

    def _run_on_fakes(self, inputs: Sequence[TensorSpec], state: Sequence[TensorSpec]) -> Description | None:
        from torch._subclasses.fake_tensor import (
            DataDependentOutputException,
            DynamicOutputShapeException,
            FakeTensorMode,
            UnsupportedOperatorException,
        )

        def fake(spec: TensorSpec) -> torch.Tensor:
            return torch.empty_strided(spec.shape, spec.strides, dtype=spec.dtype)

        try:
            with FakeTensorMode(allow_non_fake_inputs=True), torch.no_grad():
                return self._described_by([fake(s) for s in inputs], [fake(s) for s in state])
        except (DataDependentOutputException, DynamicOutputShapeException, UnsupportedOperatorException):
            return None

    def _described_by(
        self, inputs: list[Any], state: list[Any], constants: list[Any] | None = None
    ) -> Description:
        given = [*inputs, *state]
        before = [t._version for t in given]
        with Meter() as memory:
            outputs = self.run(inputs, state, constants=constants)
        written = {index for index, t in enumerate(given) if t._version != before[index]}
        written |= self._written_statistics()
        tensors = [leaf for leaf in leaves(outputs) if isinstance(leaf, torch.Tensor)]
        specs = tuple(spec_of(t) for t in tensors)
        return Description(specs, frozenset(written), memory.peak, memory.total)

    def _written_statistics(self) -> set[int]:
        """The slots of running statistics: torch writes into them and counts no version."""
        written: set[int] = set()
        first = self.program.first_result
        for operation in self.program.operations:
            where = _STATISTICS.get(operation.name)
            if where is not None:
                named = [operation.kwargs.get(name) for name in ("running_mean", "running_var")]
                written.update(slot.index for slot in slots_in((operation.args[where], named)))
            elif operation.name.rpartition(".")[2] in UNDECLARED_WRITERS:
                written.add(first)
        # NB: one that is itself the result of an operation is not found so; then everything may be written.
        if any(index >= first for index in written):
            return set(range(len(self.program.inputs) + self.program.state))
        return {index for index in written if index < first - len(self.program.constants)}


_STATISTICS = {
    "torch.nn.functional.batch_norm": slice(1, 3),
    "torch.nn.functional.instance_norm": slice(1, 3),
    "torch.batch_norm": slice(3, 5),
    "torch.instance_norm": slice(3, 5),
    "torch.native_batch_norm": slice(3, 5),
}
_DESCRIBED_LIMIT = 200
_LARGEST_DESCRIBED = 1000


class Description:
    """What is known of a run beforehand: the specs of its results, and which inputs and state it writes into.

    `peak` and `total` are the most bytes that values on the way, and results, take at a time, and all of them together.
    """

    __slots__ = ("peak", "results", "total", "written")

    def __init__(
        self, results: tuple[TensorSpec, ...], written: frozenset[int], peak: int = 0, total: int = 0
    ) -> None:
        self.results, self.written = results, written
        self.peak, self.total = peak, total


def _spec(tensor: Any) -> TensorSpec:
    """The spec of anything that has a shape and a dtype."""
    if isinstance(tensor, TensorSpec):
        return tensor
    return spec_of(torch.empty(tuple(tensor.shape), dtype=tensor.dtype, device="meta"))


def rebuilt(outputs: Any, results: Sequence[Any]) -> Any:
    """The structure that a program returns, with `results` in place of its tensors."""
    given = iter(results)
    return map_structure(lambda leaf: next(given) if type(leaf) is Slot else leaf, outputs)
