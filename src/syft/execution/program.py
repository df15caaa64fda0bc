"""`Program`: what a built plan does, as data, and the check that a program of a stranger has to pass.

Slots are numbered: first the inputs, then the state, then the constants, then every result in order.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from syft.execution.errors import InvalidProgramError, PlanArgumentsError
from syft.execution.inputs import Fit
from syft.execution.inputs import Input as Input
from syft.execution.operation import PLAIN_TYPES, SIZE_OPERATORS, Operation, Size, Slot, slots_in
from syft.execution.vocabulary import plan_command

MAX_OPERATIONS = 100_000
MAX_DEPTH = 20
MAX_VALUES = 1_000_000
_MAX_RANK = 64


@dataclass(frozen=True, slots=True, eq=False)
class Program:
    """All of a built plan but its state.

    signature   the arguments of a call: a tuple of structures with a Slot for each tensor
    inputs      what the tensors of a call look like, in the order of their slots
    state       how many tensors of state there are
    constants   tensors that the function made without an operation
    operations  what is done
    outputs     what is returned: a structure with Slots
    """

    signature: tuple[Any, ...]
    inputs: tuple[Input, ...]
    state: int
    constants: tuple[torch.Tensor, ...]
    operations: tuple[Operation, ...]
    outputs: Any

    @property
    def first_result(self) -> int:
        return len(self.inputs) + self.state + len(self.constants)

    @property
    def slot_count(self) -> int:
        return self.first_result + sum(len(slots_in(op.results)) for op in self.operations)

    @property
    def takes_names(self) -> bool:
        """Whether the last argument may be passed by name: it is a dict of names."""
        last = self.signature[-1] if self.signature else None
        return isinstance(last, dict) and bool(last) and all(type(name) is str for name in last)

    def with_names(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], name: str = "The plan"
    ) -> tuple[Any, ...]:
        """The arguments of a call as `flatten` takes them: those by name are the last. !! PlanArgumentsError"""
        if not kwargs:
            return args
        if not self.takes_names:
            raise PlanArgumentsError(
                f"{name} was called with {', '.join(kwargs)} by name. It was built without names: pass the arguments in "
                "order, or build it with plan.build(name=example)."
            )
        wanted = self.signature[-1]
        if set(wanted) != set(kwargs):
            raise PlanArgumentsError(
                f"{name} was called with {', '.join(kwargs)} by name; it was built with {', '.join(wanted)}. Pass "
                "these, or build it anew."
            )
        return (*args, {key: kwargs[key] for key in wanted})

    def flatten(self, args: tuple[Any, ...], name: str = "The plan") -> list[Any]:
        """The tensors of a call, in the order of their slots; !! PlanArgumentsError if the call does not fit."""
        if len(args) != len(self.signature):
            raise PlanArgumentsError(
                f"{name} was called with {len(args)} arguments; it was built for {len(self.signature)}: "
                f"{', '.join(map(str, self.inputs)) or 'no tensor'}. Call it with these, or build it anew."
            )
        found: list[Any] = []
        for index, (wanted, given) in enumerate(zip(self.signature, args, strict=True)):
            self._match(wanted, given, found, f"argument {index}", name)
        return found

    def _match(self, wanted: Any, given: Any, found: list[Any], place: str, name: str) -> None:
        if type(wanted) is Slot:
            self._match_tensor(self.inputs[wanted.index], given, place, name)
            found.append(given)
            return
        if (
            isinstance(wanted, (tuple, list))
            and isinstance(given, (tuple, list))
            and len(wanted) == len(given)
        ):
            for index, (w, g) in enumerate(zip(wanted, given, strict=True)):
                self._match(w, g, found, f"{place}[{index}]", name)
            return
        if isinstance(wanted, dict) and isinstance(given, dict) and list(wanted) == list(given):
            for key, w in wanted.items():
                self._match(w, given[key], found, f"{place}[{key!r}]", name)
            return
        is_container = isinstance(wanted, (tuple, list, dict)) or isinstance(given, torch.Tensor)
        if is_container or type(wanted) is not type(given) or wanted != given:
            shown = (
                f"a tensor of shape {tuple(given.shape)}" if isinstance(given, torch.Tensor) else repr(given)
            )
            raise PlanArgumentsError(
                f"{name} was called with {shown[:200]} as {place}; it was built with {str(wanted)[:200]}, which is "
                "part of it now. Pass the same, or build the plan anew."
            )

    @staticmethod
    def _match_tensor(wanted: Input, given: Any, place: str, name: str) -> None:
        if not isinstance(given, torch.Tensor):
            raise PlanArgumentsError(
                f"{name} was called with a {type(given).__name__} as {place}; it takes a tensor, {wanted}."
            )
        if not wanted.takes_shape(given.shape):
            raise PlanArgumentsError(
                f"{name} was called with a tensor of shape {tuple(given.shape)} as {place}; it was built for "
                f"{wanted}, and does something else for other sizes. -1 in args_shape stands for any size: build it "
                "with that, or with the shape that it is called with."
            )
        if not wanted.takes_dtype(given.dtype):
            raise PlanArgumentsError(
                f"{name} was called with a tensor of {given.dtype} as {place}; it was built for {wanted}, and does "
                f"something else for other dtypes. Convert the tensor with `.to({wanted.dtype})`, or build the plan with "
                "that dtype."
            )


def checked_program(program: Program) -> Program:
    """A program, after a look at every part of it; !! InvalidProgramError, UnknownCommandError.

    All that a checked program can do is call functions of the vocabulary on its inputs, its state, its constants and on
    what those calls returned.
    """
    _Check(program).run()
    return program


class _Check:
    def __init__(self, program: Program) -> None:
        self.program = program
        self.known = program.first_result
        self.values = 0

    def run(self) -> None:
        program = self.program
        if len(program.operations) > MAX_OPERATIONS:
            raise InvalidProgramError(
                f"A plan has {len(program.operations)} operations; {MAX_OPERATIONS} are allowed. Split it."
            )
        if not 0 <= program.state <= MAX_VALUES:
            raise InvalidProgramError(f"A plan announces {program.state} tensors of state.")
        for constant in program.constants:
            # A chain would act for whoever runs the program: a pointer has a worker send messages in its own name.
            if (
                type(constant) is not torch.Tensor
                or constant.layout is not torch.strided
                or constant.requires_grad
            ):
                raise InvalidProgramError(
                    f"A plan has a {type(constant).__name__} as a constant; constants are plain, dense tensors."
                )
        for given in program.inputs:
            if len(given.shape) > _MAX_RANK or any(n < -1 for n in given.shape):
                raise InvalidProgramError(
                    f"A plan takes a tensor of shape {given.shape}, which there is not."
                )
            if given.others is not None:
                self._check_fit(given.others, len(given.shape))
        named = [slot.index for slot in slots_in(program.signature)]
        if named != list(range(len(program.inputs))):
            raise InvalidProgramError("The arguments of a plan and the tensors it takes are not the same.")
        self.known = len(program.inputs)
        self._check_value(program.signature, "the arguments")
        self.known = program.first_result
        for index, operation in enumerate(program.operations):
            place = f"operation {index}"
            plan_command(operation.name)
            self._check_value(operation.args, place)
            self._check_value(operation.kwargs, place)
            if not all(type(key) is str and key.isidentifier() for key in operation.kwargs):
                raise InvalidProgramError(f"{place} ({operation.name}) has a keyword that is no name.")
            for slot in self._result_slots(operation.results, place):
                if slot.index != self.known:
                    raise InvalidProgramError(
                        f"{place} ({operation.name}) writes slot {slot.index}; the next one is {self.known}."
                    )
                self.known += 1
        self._check_value(program.outputs, "the outputs")

    @staticmethod
    def _check_fit(others: Fit, rank: int) -> None:
        if len(others.sizes) != rank or any(n < -1 for n in others.sizes):
            raise InvalidProgramError(
                f"A plan takes a tensor of {rank} dimensions, and other ones of sizes {others.sizes}."
            )
        if any(not 0 <= n <= _MAX_RANK for n in others.ranks or ()):
            raise InvalidProgramError(
                f"A plan takes tensors of {others.ranks} dimensions, which there are not."
            )

    def _result_slots(self, results: Any, place: str, depth: int = 0) -> Iterator[Slot]:
        if type(results) is Slot:
            yield results
        elif isinstance(results, tuple) and depth <= MAX_DEPTH:
            for part in results:
                yield from self._result_slots(part, place, depth + 1)
        elif results is not None:
            raise InvalidProgramError(f"The results of {place} are a {type(results).__name__}, not slots.")

    def _check_value(self, value: Any, place: str, depth: int = 0) -> None:
        self.values += 1
        if depth > MAX_DEPTH or self.values > MAX_VALUES:
            raise InvalidProgramError(
                f"{place} of a plan is nested too deeply, or the plan has too many values."
            )
        kind = type(value)
        if kind is Slot:
            self._check_slot(value.index, place)
        elif kind is Size:
            self._check_size(value, place, depth)
        elif kind in (tuple, list):
            for part in value:
                self._check_value(part, place, depth + 1)
        elif kind is dict:
            for key, part in value.items():
                if type(key) not in (str, int, bool):
                    raise InvalidProgramError(f"{place} of a plan has a {type(key).__name__} as a key.")
                self._check_value(part, place, depth + 1)
        elif kind is slice:
            for part in (value.start, value.stop, value.step):
                self._check_value(part, place, depth + 1)
        elif kind not in PLAIN_TYPES:
            raise InvalidProgramError(f"{place} of a plan holds a {kind.__name__}, which cannot stand there.")

    def _check_slot(self, index: Any, place: str) -> None:
        if type(index) is not int or not 0 <= index < self.known:
            raise InvalidProgramError(f"{place} of a plan uses slot {index!r} before anything is in it.")

    def _check_size(self, size: Size, place: str, depth: int) -> None:
        if size.op == "dim":
            self._check_slot(size.left, place)
            if type(size.right) is not int or not 0 <= size.right < _MAX_RANK:
                raise InvalidProgramError(f"{place} of a plan asks for the size of dimension {size.right!r}.")
            return
        if size.op not in SIZE_OPERATORS:
            raise InvalidProgramError(f"{place} of a plan computes a size with {str(size.op)[:60]!r}.")
        for operand in (size.left, size.right)[: SIZE_OPERATORS[size.op]]:
            if type(operand) not in (int, float, Size):
                raise InvalidProgramError(f"{place} of a plan computes a size of a {type(operand).__name__}.")
            self._check_value(operand, place, depth + 1)
