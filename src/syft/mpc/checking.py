"""`checked()`: find where numbers in fixed precision overflow, or leave the domain of a function. For debugging.

    with sy.mpc.checked():
        loss = model(x)        # raises where a result is not what it should be

Nobody can look into a secret, so what overflows is wrong in silence. In one process the shares are all here: every
operation is run a second time on plain numbers, and what comes out is compared. Errors name the operation and the
user's line.
Knows nodes by their attributes only.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import torch

from syft.core.chain import map_tensors
from syft.core.nested import found_in
from syft.exceptions import SyftError
from syft.mpc.encoding import ENCODE_LIMIT

#: A result differs from the plain one by less than so many units and this part of it. What wraps is off by 2^64 / scale.
_UNITS, _PART = 1024, 0.05
#: Finer units than this count as these: the square root of one unit of 2^-42 is 2^21 of them, and has not overflowed.
_FINEST = 2**16
#: Integers wrap at this size.
_RING = 2.0**63


class SecretOverflowError(SyftError, ArithmeticError):
    """An operation on numbers in fixed precision gave a result that does not fit: raised inside `checked()`."""


class SecretDomainError(SyftError, ArithmeticError):
    """An operation in fixed precision was given what it has no value for (1 / 0, log of a negative number)."""


@dataclass
class Checks:
    """What `checked()` gives: how many operations were compared, and which could not be."""

    compared: int = 0
    not_compared: set[str] = field(default_factory=set)


_CHECKS: ContextVar[Checks | None] = ContextVar("checks", default=None)


@contextlib.contextmanager
def checked() -> Iterator[Checks]:
    """Raise where an operation of this thread on fixed precision or secrets overflows or leaves its domain.

    Values are read, so it is for workers in this process. It is slow: every operation is run twice, and secrets are put
    together before and after.
    """
    checks = Checks()
    mark = _CHECKS.set(checks)
    try:
        yield checks
    finally:
        _CHECKS.reset(mark)


def is_checking() -> bool:
    return _CHECKS.get() is not None


def checked_call(cls: Any, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`cls._interpreted(...)`, compared with the same operation on plain numbers."""
    checks = _CHECKS.get()
    if checks is None:
        return cls._interpreted(func, args, kwargs)
    mark = _CHECKS.set(None)  # what the operation is made of is not checked by itself
    try:
        expected, given = _expected(func, args, kwargs)
        made = cls._interpreted(func, args, kwargs)
        if expected is None:
            checks.not_compared.add(str(func))
            return made
        checks.compared += 1
        results = [made] if not isinstance(made, (tuple, list)) else list(made)
        wanted = [expected] if not isinstance(expected, (tuple, list)) else list(expected)
        for one, other in zip(results, wanted, strict=False):
            if hasattr(one, "child") and isinstance(other, torch.Tensor):
                _compare(func, one, other, given)
        return made
    finally:
        _CHECKS.reset(mark)


def _expected(func: Any, args: Any, kwargs: Any) -> tuple[Any, list[torch.Tensor]]:
    """The result of an operation on plain numbers, and the reals it was given.

    The result is None if it is drawn at random, cannot be had, or has masks among its arguments, which stand for numbers
    beyond all others.
    """
    plain = map_tensors(_plain, (tuple(args), dict(kwargs)))
    given = [t.clone() for t in found_in(plain, torch.Tensor) if t.is_floating_point()]
    numbers = [*given, *(torch.tensor(value) for value in found_in(plain, float))]
    if torch.Tag.nondeterministic_seeded in func.tags or any(_has_masks(value) for value in numbers):
        return None, given
    with torch.no_grad():
        try:
            return func(*plain[0], **plain[1]), given
        except (RuntimeError, NotImplementedError, TypeError, IndexError, ValueError):
            return None, given


def _has_masks(value: torch.Tensor) -> bool:
    """NOTE [Masks] in `rules.fixed_kinds`"""
    return bool((~value.isfinite() | (value.abs() >= ENCODE_LIMIT)).any())


def _plain(value: Any) -> Any:
    """The numbers that a node stands for, in double precision; integers, bits and plain tensors as they are."""
    if isinstance(value, torch.Tensor):
        return value.to(torch.float64) if value.dtype == torch.float32 else value.clone()
    integers = _integers(value)
    if not hasattr(value, "presented_dtype"):
        return integers.to(torch.float64)
    if value.is_real:
        return integers.to(torch.float64) / value.scale
    return integers.to(value.presented_dtype)


def _integers(node: Any) -> torch.Tensor:
    """The integers of a node, put together."""
    while not isinstance(node, torch.Tensor):
        if hasattr(node, "virtual_get") and isinstance(node.child, dict):
            where = [worker for worker in node.locations if not worker.is_in_process]
            if where:
                raise NotImplementedError(
                    f"checked() reads the values that it compares, and a share is at {where[0].id}, on a network. "
                    "Try the program with VirtualWorkers."
                )
            return node.virtual_get()
        if hasattr(node, "id_at_location") and node.location is not None:
            return node.location.get_obj(node.id_at_location)
        node = node.child
    return node


def _compare(func: Any, node: Any, expected: torch.Tensor, given: list[torch.Tensor]) -> None:
    scale = getattr(node, "scale", 1) if getattr(node, "is_real", False) else 1
    is_integral = not getattr(node, "is_real", False)
    wanted = expected.to(torch.float64)
    name = str(func._schema.name).rpartition("::")[2]
    undefined = ~wanted.isfinite()
    if bool(undefined.any()):
        raise SecretDomainError(
            f"{name} was called in {_users_line()} on numbers that it has no value for: {int(undefined.sum())} of "
            f"{wanted.numel()} results would be {wanted[undefined].flatten()[0].item()}. {_inputs(given)}"
        )
    found = _integers(node).to(torch.float64) / scale
    if found.shape != wanted.shape:
        return
    bound = _PART * wanted.abs() + (0.5 if is_integral else _UNITS / min(scale, _FINEST))
    too_large = wanted.abs() * scale >= _RING
    wrong = too_large | ((found - wanted).abs() > bound)
    if is_integral:
        wrong = too_large if not hasattr(node, "presented_dtype") else wrong
    if bool(wrong.any()):
        at = int(wrong.flatten().to(torch.int8).argmax())
        raise SecretOverflowError(
            f"{name} in {_users_line()} overflowed: {int(wrong.sum())} of {wanted.numel()} results do not fit. The first "
            f"is {found.flatten()[at].item():g} and should be {wanted.flatten()[at].item():g}. {_inputs(given)} A "
            f"product needs |x * y| * scale ** 2 < 2 ** 62, and the scale is {getattr(node, 'float_scale', 1)}: use "
            "fewer fractional digits, or smaller numbers."
        )


def _inputs(given: list[torch.Tensor]) -> str:
    sizes = [f"{float(value.min()):g} to {float(value.max()):g}" for value in given if value.numel()]
    return f"Its inputs reach from {', and from '.join(sizes)}." if sizes else ""


_OURS = tuple(
    os.path.dirname(module.__file__) + os.sep
    for module in (torch, sys.modules["syft"])
    if module.__file__ is not None
)


def _users_line() -> str:
    """The innermost line that is neither ours nor torch's."""
    frame: Any = sys._getframe(1)
    while frame is not None and (
        frame.f_code.co_filename.startswith(_OURS)
        or frame.f_code.co_filename.startswith("<frozen")
        or frame.f_globals.get("__name__") == "contextlib"
    ):
        frame = frame.f_back
    return "an unknown line" if frame is None else f"{frame.f_code.co_filename}, line {frame.f_lineno}"
