"""For which other tensors than those it was traced with a program is right.

NOTE [What a trace proves]
`args_shape` is there to build with. The program is right for another tensor if the function, traced with that tensor,
would be the same program. Everything that Python code can learn of a tensor passes by the trace, so there are two cases:

- The function never asked for sizes (or for the number of dimensions, or for the dtype). Then nothing in the program
  can depend on them: it is right for all there are, and torch says itself what does not go together. (Of dtypes it says
  so only when there are values, so the program is tried with each.)
- The function asked. Then it is traced again with others, and they are taken if the program comes out the same. What
  could not be tried, or came out differently, stays as it was built: a plan that would be wrong for some tensor is
  worse than one that refuses it.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import torch

from syft.core.chain import Wrapper
from syft.execution.errors import TraceError
from syft.execution.inputs import Fit, Input
from syft.execution.merge import (
    example_shapes,
    has_escaped_sizes,
    merge,
    trace_function,
)
from syft.execution.program import Program
from syft.execution.replay import Replay
from syft.execution.trace import Trace

Traced = tuple[Trace, Any]
Shape = tuple[int, ...]
#: (number of the input, shape, dtype, number of the run) -> a tensor to trace with
MakeExample = Callable[[int, Shape, torch.dtype, int], torch.Tensor]

_DTYPES = (
    torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.complex64,
    torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool,
)  # fmt: skip
#: Sizes of dimensions before the first, where more dimensions are tried; none that a shape is likely to have.
_LEADING = (29, 23, 5)
_OTHER_SIZE = 17
#: Runs to find out what else a program is right for. What is not tried then stays as it was built.
_MOST_RUNS = 150
#: More dimensions are tried with so many elements of state and inputs, times the sizes of those dimensions: a model of
#: millions of parameters is not run thousands of times to find out that nobody calls it so.
_MOST_ELEMENTS = 2**22
_MOST_CANDIDATES = 6


class Fitting:
    """One built program, and what else it is right for.

    first, second   two traced runs of the function, of which `program` was made
    example         makes tensors to trace with
    """

    def __init__(
        self,
        function: Callable[..., Any],
        program: Program,
        state: Sequence[torch.Tensor],
        declared: Sequence[torch.Tensor],
        first: Traced,
        second: Traced,
        example: MakeExample,
    ) -> None:
        self.function, self.program, self.state, self.declared = function, program, state, declared
        self.first, self.example = first, example
        self.seconds = [second]
        self.sizes = [given.shape for given in program.inputs]
        self.dtypes = [given.dtype for given in program.inputs]
        self.reads = first[0].reads | second[0].reads
        self.runs = 0

    def run(self) -> Program:
        """The program, with all that it is right for in its inputs."""
        if not self.program.inputs:
            return self.program
        with warnings.catch_warnings():
            warnings.simplefilter(
                "ignore"
            )  # sizes are tried that do not fit each other, and torch may say so
            if "sizes" in self.reads:
                self._free_sizes()
            else:
                self.sizes = [(-1,) * len(shape) for shape in self.sizes]
            ranks = self._ranks() if "rank" in self.reads else [None] * len(self.sizes)
            dtypes = self._other_dtypes()
        inputs = tuple(
            Input(given.shape, given.dtype, Fit(s, r, d))
            for given, s, r, d in zip(self.program.inputs, self.sizes, ranks, dtypes, strict=True)
        )
        return replace(self.program, inputs=inputs)

    # -- trying ------------------------------------------------------------------------------------

    def _trace(
        self, shapes: Sequence[Shape], dtypes: Sequence[torch.dtype] | None = None, run: int = 1
    ) -> Traced | None:
        """A run with tensors like these; None if they do not go together, or there were too many runs."""
        self.runs += 1
        if self.runs > _MOST_RUNS:
            return None
        try:
            given = [
                self.example(index, tuple(shape), dtype, run)
                for index, (shape, dtype) in enumerate(zip(shapes, dtypes or self.dtypes, strict=True))
            ]
            return trace_function(self.function, self.program.signature, given)
        except Exception:  # noqa: BLE001  (whatever it is that the function says: it does not take these)
            return None

    def _merged(self, second: Traced, sizes: Sequence[Shape]) -> Program | None:
        """The program of the first run and another one; None if the function did something else."""
        inputs = tuple(Input(s, given.dtype) for s, given in zip(sizes, self.program.inputs, strict=True))
        try:
            return merge(self.first, second, self.program.signature, inputs, self.declared)[0]
        except TraceError:
            return None

    def _is_same(self, second: Traced) -> bool:
        found = self._merged(second, self.sizes)
        return found is not None and _is_same_program(found, self.program)

    def _shapes(self, traced: Traced) -> list[Shape]:
        return [tuple(map(int, t.shape)) for t in traced[0].tensors[: len(self.program.inputs)]]

    # -- sizes -------------------------------------------------------------------------------------

    def _free_sizes(self) -> None:
        everything = [(-1,) * len(shape) for shape in self.sizes]
        rows = [(-1, *shape[1:]) if shape else () for shape in self.sizes]
        if not self._try_pattern(everything):
            self._try_pattern(rows)
        known = {n for t in (*self.state, *self.program.constants) for n in t.shape}
        for dims in self._groups():
            self._try_dims(dims, known)

    def _try_pattern(self, sizes: list[Shape]) -> bool:
        """Free these sizes together, if the program stays one."""
        if sizes == self.sizes:
            return False
        for ties in ("none", "rows", "all"):
            second = self._trace(example_shapes(sizes, 1, ties))
            if second is None:
                continue
            program = self._merged(second, sizes)
            if program is None:
                return False
            if has_escaped_sizes(self.first[0], second[0]):
                third = self._trace(example_shapes(sizes, 2, ties), run=2)
                again = None if third is None else self._merged(third, sizes)
                if again is None or not _is_same_program(program, again):
                    return False
            self.program = replace(program, inputs=self.program.inputs)
            self.sizes, self.seconds = sizes, [second]
            return True
        return False

    def _groups(self) -> list[list[tuple[int, int]]]:
        """Dimensions that are still fixed: those of one size together, then each."""
        fixed = [(i, d) for i, shape in enumerate(self.sizes) for d, n in enumerate(shape) if n != -1]
        together: dict[int, list[tuple[int, int]]] = {}
        for index, dim in fixed:
            together.setdefault(self.sizes[index][dim], []).append((index, dim))
        return [*(dims for dims in together.values() if len(dims) > 1), *([place] for place in fixed)]

    def _try_dims(self, dims: list[tuple[int, int]], known: set[int]) -> None:
        """Free some dimensions, if another size of them is found that gives the same program."""
        dims = [(index, dim) for index, dim in dims if self.sizes[index][dim] != -1]
        if not dims:
            return
        size = self.sizes[dims[0][0]][dims[0][1]]
        candidates = dict.fromkeys((2 * size, _OTHER_SIZE, 1, *sorted(known)))
        pattern = [
            tuple([-1 if (index, dim) in dims else n for dim, n in enumerate(shape)])
            for index, shape in enumerate(self.sizes)
        ]
        before = self._shapes(self.seconds[0])
        for candidate in [n for n in candidates if n not in (0, size)][:_MOST_CANDIDATES]:
            shapes = [
                tuple([candidate if (index, dim) in dims else n for dim, n in enumerate(shape)])
                for index, shape in enumerate(before)
            ]
            second = self._trace(shapes)
            if second is None:
                continue
            programs = [self._merged(s, pattern) for s in (second, *self.seconds)]
            first = programs[0]
            if first is not None and all(p is not None and _is_same_program(first, p) for p in programs[1:]):
                self.program = replace(first, inputs=self.program.inputs)
                self.sizes, self.seconds = pattern, [*self.seconds, second]
            return

    # -- numbers of dimensions -----------------------------------------------------------------------

    def _ranks(self) -> list[tuple[int, ...] | None]:
        base = self._shapes(self.seconds[0])
        same: list[set[int]] = [set() for _ in base]
        other: list[set[int]] = [set() for _ in base]
        elements = sum(t.numel() for t in self.state) + sum(map(math.prod, base))
        changes = [
            n for n in (-2, -1, 1, 2, 3) if elements * math.prod(_LEADING[: max(n, 0)]) <= _MOST_ELEMENTS
        ]
        for chosen in self._together_and_alone(range(len(base))):
            for change in changes:
                if any(len(base[index]) + change < 0 for index in chosen):
                    continue
                shapes = [_with_rank(s, change) if i in chosen else s for i, s in enumerate(base)]
                traced = self._trace(shapes)
                if traced is not None:
                    verdict = same if self._is_same(traced) else other
                    for index in chosen:
                        verdict[index].add(len(shapes[index]))
        return [tuple(sorted(a - b)) for a, b in zip(same, other, strict=True)]

    # -- dtypes --------------------------------------------------------------------------------------

    def _other_dtypes(self) -> list[tuple[torch.dtype, ...]]:
        base = self._shapes(self.seconds[0])
        is_right = self._comes_out_the_same if "dtype" in self.reads else self._runs
        same: list[list[torch.dtype]] = [[] for _ in base]
        other: list[set[torch.dtype]] = [set() for _ in base]
        for kind in dict.fromkeys(self.dtypes):
            alike = [index for index, dtype in enumerate(self.dtypes) if dtype == kind]
            for chosen in self._together_and_alone(alike):
                for dtype in _DTYPES:
                    if dtype == kind:
                        continue
                    found = is_right(base, [dtype if i in chosen else d for i, d in enumerate(self.dtypes)])
                    if found is None:
                        continue
                    for index in chosen:
                        if not found:
                            other[index].add(dtype)
                        elif dtype not in same[index]:
                            same[index].append(dtype)
        return [tuple(d for d in a if d not in b) for a, b in zip(same, other, strict=True)]

    def _comes_out_the_same(self, shapes: Sequence[Shape], dtypes: Sequence[torch.dtype]) -> bool | None:
        """Whether the function is the same program for these; None if it does not take them."""
        traced = self._trace(shapes, dtypes)
        return None if traced is None else self._is_same(traced)

    def _runs(self, shapes: Sequence[Shape], dtypes: Sequence[torch.dtype]) -> bool | None:
        """Whether the program runs on these; None if it does not, or there were too many runs."""
        self.runs += 1
        if self.runs > _MOST_RUNS:
            return None
        try:
            given = [self.example(i, s, d, 1) for i, (s, d) in enumerate(zip(shapes, dtypes, strict=True))]
            with torch.no_grad(), torch.random.fork_rng(devices=[]):
                self._replay.run(given, self._state_to_run_with)
        except Exception:  # noqa: BLE001  (as above)
            return None
        return True

    @cached_property
    def _state_to_run_with(self) -> list[torch.Tensor]:
        # One copy for all runs: what they write into it does not matter.
        return [_stand_in(tensor) for tensor in self.state]

    @cached_property
    def _replay(self) -> Replay:
        return Replay(self.program)

    @staticmethod
    def _together_and_alone(indices: Sequence[int]) -> list[list[int]]:
        alone = [[index] for index in indices]
        return alone if len(alone) < 2 else [list(indices), *alone]


def _stand_in(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor of the state to run with, wherever it is."""
    if type(tensor) is Wrapper:
        return torch.zeros(tensor.shape, dtype=tensor.dtype)
    return tensor.detach().clone()


def _with_rank(shape: Shape, change: int) -> Shape:
    return shape[-change:] if change < 0 else (*_LEADING[:change], *shape)


def _is_same_program(one: Program, other: Program) -> bool:
    return (
        one.operations == other.operations
        and one.outputs == other.outputs
        and one.state == other.state
        and len(one.constants) == len(other.constants)
    )
