"""What happens to an aten operation that has no rule of its own on fixed precision.

    structural     run on the integers (`fixed_structure`)
    in place       the functional twin, then a copy into the storage of the written argument
    prims          the aten operation that the prim stands for
    decomposition  torch's own (`torch._decomp`), run on chains, if it ends in operations that have rules
    else           !! UnsupportedOperationError naming the operation and a cure

This file imports every family of rules, so importing it makes them known.
"""

from __future__ import annotations

import threading
from typing import Any

from torch._decomp import decomposition_table

from syft.core.abstract import AbstractTensor
from syft.core.chain import Wrapper, map_tensors, new_wrapper
from syft.core.ops import _functional_twin, facts_of
from syft.exceptions import UnsupportedOperationError
from syft.mpc.precision import SHARED_WITH_VIEWS
from syft.mpc.rules import (
    fixed_approximations,
    fixed_arithmetic,
    fixed_compare,
    fixed_extrema,
    fixed_functions,
    fixed_gathering,
    fixed_lists,
    fixed_losses,
    fixed_nn,
    fixed_norms,
    fixed_pooling,
    fixed_powers,
    fixed_products,
    fixed_reductions,
    fixed_rounding,
    fixed_secret_index,
    fixed_softmax,
    fixed_structure,
)

#: Imported for the rules they register.
FAMILIES = (
    fixed_approximations,
    fixed_arithmetic,
    fixed_compare,
    fixed_extrema,
    fixed_functions,
    fixed_gathering,
    fixed_lists,
    fixed_losses,
    fixed_nn,
    fixed_norms,
    fixed_pooling,
    fixed_powers,
    fixed_products,
    fixed_reductions,
    fixed_rounding,
    fixed_secret_index,
    fixed_softmax,
    fixed_structure,
)

#: Why an operation is refused, by name; everything else gets the general sentence.
REFUSED = {
    "nonzero": "The shape of its result would show the secret.",
    "nonzero_static": "The shape of its result would show the secret.",
    "_unique2": "The shape of its result would show the secret.",
    "unique_dim": "The shape of its result would show the secret.",
    "unique_consecutive": "The shape of its result would show the secret.",
    "multinomial": "The draw would show the probabilities.",
    "view_as_complex": "Complex numbers have no fixed-precision form. Encode real and imaginary part apart.",
}

_twins: dict[Any, Any] = {}


class _Running(threading.local):
    """The operations whose decompositions are running on this thread: one that needs itself ends there."""

    def __init__(self) -> None:
        self.operations: list[Any] = []


_running = _Running()


def interpret(cls: Any, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    namespace, name = func._schema.name.split("::")
    if namespace == "prims":
        return _on_chains(func, func.impl_aten, args, kwargs)
    if name in fixed_structure.STRUCTURAL:
        return fixed_structure.run_structural(func, tuple(args), kwargs)
    if facts_of(func).mutates:
        twin = _twin(func)
        if twin is not None:
            return _in_place(cls, func, twin, args, kwargs)
    elif func not in _running.operations:
        run = decomposition_table.get(func) or (func.decompose if func._can_decompose() else None)
        response = NotImplemented if run is None else _on_chains(func, run, args, kwargs)
        if response is not NotImplemented:
            return response
    reason = REFUSED.get(name)
    raise UnsupportedOperationError(
        str(func),
        cls,
        reason
        or "Write it with operations that have one (arithmetic, comparisons, products, reductions), or call "
        "float_precision() first (after `.get()`, where the values are shared) if they may be seen.",
    )


def _on_chains(func: Any, run: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """Run a function made of torch operations on chains, and take the nodes off what it returns."""

    def up(value: Any) -> Any:
        return new_wrapper(value) if isinstance(value, AbstractTensor) else value

    def down(value: Any) -> Any:
        return value.child if type(value) is Wrapper else value

    _running.operations.append(func)
    try:
        response = run(*map_tensors(up, tuple(args)), **map_tensors(up, kwargs))
    finally:
        _running.operations.pop()
    return map_tensors(down, response)


def _twin(func: Any) -> Any:
    """The operation that returns what `func` writes into its first argument."""
    if func not in _twins:
        twin = _functional_twin(func)
        _twins[func] = None if twin is None or facts_of(twin).mutates else twin
    return _twins[func]


def _in_place(cls: Any, func: Any, twin: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    target = args[0]
    value = cls.interpret(twin, args, kwargs)
    fixed_structure.write(target, value)
    if fixed_structure.kinds.is_node(value):
        # The target is the value now, so what is known of it holds; but of bits its views would not know the end.
        target.known.update(
            {name: what for name, what in value.known.items() if name not in SHARED_WITH_VIEWS}
        )
    return target
