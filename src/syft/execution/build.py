"""From a function and what it is to be called with to a program.

The unknown sizes of several inputs are taken to be independent of each other. If the function fails with that, those
of the first dimensions are taken to be one (a batch and its labels), then all those in the same place. For what else the
program is right is found out by `syft.execution.fit`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from syft.core.chain import Wrapper
from syft.execution.errors import PlanError, TraceError
from syft.execution.fit import Fitting, MakeExample
from syft.execution.inputs import Input
from syft.execution.merge import (
    example_shapes,
    has_escaped_sizes,
    merge,
    refuse_another_program,
    trace_function,
)
from syft.execution.operation import PLAIN_TYPES, Slot, leaves, map_structure
from syft.execution.program import Program

Function = Callable[..., Any]
Built = tuple[Program, list[torch.Tensor]]


def inputs_of_shapes(args_shape: Any, args_dtype: Any = None) -> tuple[Input, ...]:
    """What `args_shape` (and `args_dtype`) say; !! PlanError if they say nothing."""
    if isinstance(args_shape, (tuple, list)) and args_shape and all(type(n) is int for n in args_shape):
        raise PlanError(
            f"args_shape is {args_shape}, which is one shape. It is a list with a shape for each argument, e.g. "
            f"args_shape=[{tuple(args_shape)}]."
        )
    dtypes = args_dtype or [torch.get_default_dtype()] * len(args_shape)
    if isinstance(dtypes, torch.dtype):
        dtypes = [dtypes] * len(args_shape)
    if len(dtypes) != len(args_shape):
        raise PlanError(f"args_shape names {len(args_shape)} arguments and args_dtype {len(dtypes)}.")
    for shape in args_shape:
        if not all(isinstance(n, int) and (n >= 0 or n == -1) for n in shape):
            raise PlanError(f"args_shape has the shape {shape}. Sizes are 0 or more, or -1 for any size.")
    return tuple(
        Input(tuple(int(n) for n in shape), dtype) for shape, dtype in zip(args_shape, dtypes, strict=True)
    )


def example(shape: Sequence[int], dtype: torch.dtype, seed: int = 0) -> torch.Tensor:
    """A tensor to trace with: numbers between 0 and 1, zeros where only whole numbers can be (labels, indices)."""
    if dtype.is_floating_point or dtype.is_complex:
        return torch.rand(
            tuple(shape), generator=torch.Generator().manual_seed(seed), dtype=torch.float32
        ).to(dtype)
    return torch.zeros(tuple(shape), dtype=dtype)


def program_of_shapes(function: Function, inputs: tuple[Input, ...], state: Sequence[torch.Tensor]) -> Built:
    """The program of a function of tensors of these shapes."""
    signature = tuple(Slot(index) for index in range(len(inputs)))

    def examples(run: int, ties: str) -> list[torch.Tensor]:
        shapes = example_shapes([i.shape for i in inputs], run, ties)
        return [example(shape, i.dtype, run) for shape, i in zip(shapes, inputs, strict=True)]

    unknown = sum(n == -1 for i in inputs for n in i.shape)
    return _first_that_works(
        function,
        signature,
        inputs,
        state,
        examples,
        unknown,
        lambda _i, shape, dtype, run: example(shape, dtype, run),
    )


def program_of_examples(function: Function, args: tuple[Any, ...], state: Sequence[torch.Tensor]) -> Built:
    """The program of a function of arguments like these.

    The first dimension of its tensors is any size if the function allows it, and the size it has in `args` if not.
    """
    given: list[torch.Tensor] = []

    def slot(leaf: Any) -> Any:
        if isinstance(leaf, torch.Tensor):
            given.append(
                torch.zeros(leaf.shape, dtype=leaf.dtype) if type(leaf) is Wrapper else leaf.detach()
            )
            return Slot(len(given) - 1)
        if type(leaf) not in PLAIN_TYPES:
            raise PlanError(
                f"A plan was built with a {type(leaf).__name__}. It takes tensors, and numbers that become part of it."
            )
        return leaf

    signature = map_structure(slot, tuple(args))
    free = tuple(Input((-1, *t.shape[1:]) if t.ndim else (), t.dtype) for t in given)
    fixed = tuple(Input(tuple(t.shape), t.dtype) for t in given)

    def stretched(run: int, ties: str) -> list[torch.Tensor]:
        shapes = example_shapes([i.shape for i in free], run, ties)
        return [_values(_with_rows(t, s), run) for t, s in zip(given, shapes, strict=True)]

    def like_given(index: int, shape: tuple[int, ...], dtype: torch.dtype, run: int) -> torch.Tensor:
        return _like(given[index], shape, dtype, run)

    if any(t.ndim and t.shape[0] for t in given):
        try:
            return _first_that_works(function, signature, free, state, stretched, len(given), like_given)
        except Exception:  # noqa: BLE001  (whatever it is: it is asked again with the sizes that were given)
            pass
    return _first_that_works(
        function,
        signature,
        fixed,
        state,
        lambda run, _ties: [_values(t.clone(), run) for t in given],
        0,
        like_given,
    )


def _values(tensor: torch.Tensor, run: int) -> torch.Tensor:
    """The values to trace with: others in every run, so that what comes of them by ways that cannot be followed shows.

    What is positive, or a positive matrix, stays so.
    """
    if run and (tensor.dtype.is_floating_point or tensor.dtype.is_complex):
        return tensor * 0.75**run + 0.01
    return tensor


def _like(tensor: torch.Tensor, shape: tuple[int, ...], dtype: torch.dtype, run: int) -> torch.Tensor:
    """Values like those of a tensor, in another shape or dtype."""
    if tensor.is_complex() != dtype.is_complex:
        return example(shape, dtype, run)
    values = _values(tensor, run).to(dtype)
    rank = tensor.ndim
    if len(shape) >= rank and shape[len(shape) - rank :] == tuple(tensor.shape):
        return values.expand(shape).clone()
    if rank and len(shape) == rank and shape[1:] == tuple(tensor.shape[1:]):
        return _with_rows(values, shape)
    if not values.numel():
        return values.new_zeros(shape)
    count = math.prod(shape)
    return values.flatten()[torch.arange(count) % values.numel()].reshape(shape)


def _with_rows(tensor: torch.Tensor, shape: tuple[int, ...]) -> torch.Tensor:
    """A tensor with its rows repeated, or cut, to another number of them."""
    if not tensor.ndim or not tensor.shape[0]:
        return tensor.new_zeros(shape)
    return tensor[torch.arange(shape[0]) % tensor.shape[0]]


def _first_that_works(
    function: Function,
    signature: tuple[Any, ...],
    inputs: tuple[Input, ...],
    state: Sequence[torch.Tensor],
    examples: Callable[[int, str], list[torch.Tensor]],
    unknown: int,
    make_example: MakeExample,
) -> Built:
    attempts = ("none", "rows", "all") if unknown > 1 else ("none",)
    for ties in attempts:
        try:
            first = trace_function(function, signature, examples(0, ties))
            second = trace_function(function, signature, examples(1, ties))
        except TraceError:
            raise
        except Exception:
            if ties == attempts[-1]:
                raise
        else:
            built, tensors = merge(first, second, signature, inputs, state)
            if has_escaped_sizes(first[0], second[0]):
                third = trace_function(function, signature, examples(2, ties))
                again, _ = merge(first, third, signature, inputs, state)
                refuse_another_program(built, again, first[0])
            return Fitting(function, built, tensors, state, first, second, make_example).run(), tensors
    raise PlanError("The function could not be traced.")  # not reached: the last attempt raises


def tensors_of(value: Any) -> list[torch.Tensor]:
    """The tensors in nested arguments."""
    return [leaf for leaf in leaves(value) if isinstance(leaf, torch.Tensor)]
