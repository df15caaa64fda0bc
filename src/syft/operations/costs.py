"""Bounds on what operations cost, told from specs: steps, and bytes beside the results. Imports `core` only."""

from __future__ import annotations

import math
from typing import Any

from syft.core.spec import TensorSpec
from syft.operations.row import Call, copies, elements

Specs = list[TensorSpec]


def _longest(specs: Specs) -> int:
    return max((max(s.shape, default=1) for s in specs), default=1)


def sorting(arguments: Specs, results: Specs, call: Call) -> int:
    return elements(arguments, results, call) * max(1, math.ceil(math.log2(_longest(arguments) + 1)))


def selecting(arguments: Specs, results: Specs, call: Call) -> int:
    """Places of 8 bytes for each element, and a copy."""
    return copies(arguments, results, call) + 8 * sum(s.shape.numel() for s in arguments)


def products(arguments: Specs, results: Specs, call: Call) -> int:
    """Matrix products: each result takes as many steps as the longest side there is."""
    return sum(s.shape.numel() for s in results) * _longest(arguments) + elements(arguments, results, call)


def cubes(arguments: Specs, results: Specs, call: Call) -> int:
    """Factorisations: the elements of the largest matrix times its longest side, some times over."""
    largest = max((s.shape.numel() for s in (*arguments, *results)), default=1)
    return 64 * (largest + 1) * _longest([*arguments, *results])


def factors(arguments: Specs, results: Specs, call: Call) -> int:
    """Copies of matrices and room to work in."""
    largest = max((s.nbytes for s in (*arguments, *results)), default=0)
    return 8 * largest + 8 * copies(arguments, results, call) + 64 * _longest([*arguments, *results]) * 16


def pairs(arguments: Specs, results: Specs, call: Call) -> int:
    """Every row with every other."""
    rows = [max(1, s.shape.numel()) for s in (*arguments, *results)]
    return 4 * max(rows) * _longest(arguments)


def windows(arguments: Specs, results: Specs, call: Call) -> int:
    """Convolutions and pools: each element of the larger side, once for each place of the window."""
    sizes = [s.shape.numel() for s in (*arguments, *results)]
    return 4 * max(sizes, default=1) * _window(arguments, call)


def columns(arguments: Specs, results: Specs, call: Call) -> int:
    """The columns of a convolution: a copy of the input for each place of the window."""
    kernel = call.get("weight")
    if not isinstance(kernel, TensorSpec):
        return copies(arguments, results, call)
    places = math.prod(kernel.shape[2:])
    largest = max((s.nbytes for s in (*arguments, *results)), default=0)
    return 3 * copies(arguments, results, call) + 2 * largest * max(1, places)


def _window(arguments: Specs, call: Call) -> int:
    kernel = call.get("weight")
    if isinstance(kernel, TensorSpec):
        return max(1, math.prod(kernel.shape[1:]))
    sizes: Any = call.get("kernel_size")
    if isinstance(sizes, int):
        sizes = [sizes]
    if isinstance(sizes, (list, tuple)) and sizes and all(isinstance(n, int) for n in sizes):
        dims = max(1, max((len(s.shape) for s in arguments), default=3) - 2)
        several = list(sizes) if len(sizes) > 1 else [*sizes] * dims
        # NB: no window is larger than what it is put on.
        largest = 4 * max((s.shape.numel() for s in arguments), default=1)
        return max(1, min(int(math.prod(several)), largest))
    # A pool that is told what to make has a window as large as what it is put on, at most.
    whole: int = max((s.shape.numel() for s in arguments), default=1)
    return max(1, whole) if "output_size" in call else 1


def _two(call: Call) -> tuple[TensorSpec, TensorSpec]:
    return call["query"], call["key"]


def attention(arguments: Specs, results: Specs, call: Call) -> int:
    """Every place of the query with every place of the key."""
    query, key = _two(call)
    return 8 * query.shape.numel() * key.shape[-2] + 8 * key.shape.numel() * query.shape[-2] + 1


def scores(arguments: Specs, results: Specs, call: Call) -> int:
    query, key = _two(call)
    together = math.prod(query.shape[:-1]) * key.shape[-2] * 8
    return together + 4 * copies(arguments, results, call)


def twice(arguments: Specs, results: Specs, call: Call) -> int:
    """Intermediate values of an operation that is made of several."""
    return 4 * copies(arguments, results, call)
