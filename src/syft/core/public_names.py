"""The public names of torch's functions, and the functions of public names.

Both directions are closed tables read from torch itself: a name that came from a user or from the wire
is looked up, never evaluated and never fetched with `getattr`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch.overrides import get_overridable_functions, resolve_name

_METHOD = "torch.Tensor."
_FUNCTIONAL = "torch.nn.functional."

#: The operator a method serves, where torch reports the method's name for it.
OPERATORS = {
    "add": "__add__",
    "sub": "__sub__",
    "mul": "__mul__",
    "div": "__truediv__",
    "matmul": "__matmul__",
    "remainder": "__mod__",
    "neg": "__neg__",
    "abs": "__abs__",
    "eq": "__eq__",
    "ne": "__ne__",
    "lt": "__lt__",
    "le": "__le__",
    "gt": "__gt__",
    "ge": "__ge__",
    "pow": "__pow__",
    "floor_divide": "__floordiv__",
    "bitwise_and": "__and__",
    "bitwise_or": "__or__",
    "bitwise_xor": "__xor__",
    "bitwise_not": "__invert__",
    "add_": "__iadd__",
    "sub_": "__isub__",
    "mul_": "__imul__",
    "div_": "__itruediv__",
    "pow_": "__ipow__",
    "remainder_": "__imod__",
    "floor_divide_": "__ifloordiv__",
}
#: The operators that write into their left operand.
IN_PLACE_OPERATORS = frozenset(
    f"__i{name}__"
    for name in "add sub mul matmul truediv floordiv mod pow and or xor lshift rshift div".split()
)
#: The operators that torch asks of their right operand.
REFLECTED_OPERATORS = frozenset(
    f"__r{name}__" for name in "add sub mul matmul truediv floordiv mod pow and or xor lshift rshift".split()
)
_METHOD_OF_OPERATOR = {operator: method for method, operator in OPERATORS.items()}

#: Creation functions: torch does not let tensors override them, so its own table leaves them out.
FACTORIES = (
    "arange",
    "empty",
    "empty_like",
    "empty_strided",
    "eye",
    "from_numpy",
    "full",
    "full_like",
    "linspace",
    "logspace",
    "ones",
    "ones_like",
    "rand",
    "rand_like",
    "randint",
    "randint_like",
    "randn",
    "randn_like",
    "randperm",
    "scalar_tensor",
    "sparse_coo_tensor",
    "tensor",
    "tril_indices",
    "triu_indices",
    "zeros",
    "zeros_like",
)
#: Methods that torch's table leaves out for the same reason.
METHODS = ("new_empty", "new_full", "new_ones", "new_zeros", "unflatten")

#: Functions of torch.nn.functional that tensors can override and that torch's table leaves out all the same.
FUNCTIONALS = ("hardsigmoid", "hardswish")

#: Reading these moves no data; they are neither logged nor checked.
METADATA_METHODS = frozenset(
    """size dim ndimension nelement numel stride storage_offset element_size data_ptr is_floating_point
    is_complex is_signed is_contiguous is_conj is_neg is_inference is_pinned is_shared has_names get_device
    register_hook register_post_accumulate_grad_hook retain_grad requires_grad_ backward __len__ __hash__
    __dir__ __repr__ __format__ __reduce_ex__ __deepcopy__ __setstate__ _is_view _version type""".split()
)


@cache
def public_name(func: Any) -> str:
    """The name a user knows a torch function by: `add`, `torch.add`, `torch.nn.functional.relu`."""
    name = resolve_name(func) or ""
    if name.startswith(_METHOD):
        return name.removeprefix(_METHOD)
    if name.startswith("torch.functional."):
        return "torch." + name.removeprefix("torch.functional.")
    return name or getattr(func, "__name__", repr(func))


@cache
def writes_first(func: Any) -> bool:
    """Whether a torch function (`add_`, `torch.relu_`, `__iadd__`, `__setitem__`) writes into its first argument."""
    name = public_name(func)
    return name == "__setitem__" or writes_in_place(name)


def writes_in_place(name: str) -> bool:
    """Whether what has this public name writes into its first argument, and returns it."""
    last = name.rpartition(".")[2]
    if last.startswith("__"):
        return last in IN_PLACE_OPERATORS
    return last.endswith("_")


@cache
def spoken_name(func: Any) -> str:
    """The public name nearest to an operation of the dispatcher: `add` for aten.add.Tensor."""
    schema = getattr(func, "_schema", None)
    return public_name(func) if schema is None else str(schema.name).partition("::")[2].lstrip("_")


@cache
def is_property_access(func: Any) -> bool:
    return getattr(func, "__name__", "") in ("__get__", "__set__", "__delete__")


@cache
def names_of(func: Any) -> tuple[str, ...]:
    """All names under which a type may overload `func`, the most specific first.

    A method answers to its operator and to the function of the same name in `torch`, and the other way
    round: whoever overloads `add` means `x + y`, `x.add(y)` and `torch.add(x, y)`.
    """
    name = public_name(func)
    if name.startswith(_FUNCTIONAL):
        return (name,)
    bare = name.removeprefix("torch.")
    if "." in bare:
        return (name,)
    bare = _METHOD_OF_OPERATOR.get(bare, bare)
    names = [name, bare]
    if bare in OPERATORS:
        names.append(OPERATORS[bare])
    names.append(f"torch.{bare}")
    if hasattr(torch.nn.functional, bare) and not hasattr(torch, bare):
        names.append(_FUNCTIONAL + bare)
    return tuple(dict.fromkeys(names))


@cache
def known_functions() -> dict[str, Callable[..., Any]]:
    """Every public torch function, method (by its bare name) and operator, by name."""
    table: dict[str, Callable[..., Any]] = {}
    for functions in get_overridable_functions().values():
        for func in functions:
            if not is_property_access(func):
                table.setdefault(public_name(func), func)
    for factory in FACTORIES:
        table.setdefault(f"torch.{factory}", getattr(torch, factory))
    for name in FUNCTIONALS:
        table.setdefault(_FUNCTIONAL + name, getattr(torch.nn.functional, name))
    for method in METHODS:
        table.setdefault(method, getattr(torch.Tensor, method))
    return table


def function_named(name: str) -> Callable[..., Any] | None:
    """The torch function of a public name, or None when torch has none."""
    table = known_functions()
    return table.get(name) or table.get(_METHOD_OF_OPERATOR.get(name, name))
