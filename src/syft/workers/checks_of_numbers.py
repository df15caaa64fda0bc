"""Checks of numbers that divide by zero in the processor, or keep it busy for ever. See syft.workers.sound_arguments.

Where a processor divides the least of all integers by -1, or an integer by zero, it ends the process.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from syft.workers.bound_arguments import Arguments, at_end, has_values

_LEAST = {torch.int32: -(2**31), torch.int64: -(2**63)}


def _holds(value: Any, number: int) -> bool:
    """Whether a number, or an element of a tensor, is this number."""
    if isinstance(value, torch.Tensor):
        return has_values(value) and bool((value.detach() == number).any())
    return bool(value == number)


def _is_integral(value: Any) -> bool:
    if isinstance(value, torch.Tensor):
        return not (value.dtype.is_floating_point or value.dtype.is_complex)
    return isinstance(value, int)


# -- division --------------------------------------------------------------------------------------------


def check_multiples(a: Any) -> None:
    """torch divides by what it takes for the common divisor, which may be -1 if one is the least integer."""
    for name in ("self", "other"):
        least = _LEAST.get(a[name].dtype)
        a.require(
            least is None or not _holds(a[name], least),
            f"{name!r} holds {least}, of which there is no multiple",
        )


def check_division(a: Any) -> None:
    """A division of integers that is cut off: floats are not concerned, and torch looks after `floor` itself."""
    if a["rounding_mode"] != "trunc" or not (_is_integral(a["self"]) and _is_integral(a["other"])):
        return
    if _holds(a["other"], -1):
        a.require(
            not any(_holds(a["self"], least) for least in _LEAST.values()),
            "the least of all integers is divided by -1, and there is no such integer",
        )


def check_floating_loss(a: Any) -> None:
    """torch divides in the type of the arguments."""
    types = {a[name].dtype for name in ("grad_output", "self", "target")}
    a.require(
        len(types) == 1 and all(dtype.is_floating_point for dtype in types),
        f"'grad_output', 'self' and 'target' are not of one floating type but {sorted(map(str, types))}",
    )


# -- loops -----------------------------------------------------------------------------------------------

#: Degrees of polynomials: torch takes as many steps for each element.
_HIGHEST_DEGREE = 10_000


def check_degree(a: Any) -> None:
    degree = a["n"]
    if isinstance(degree, torch.Tensor):
        if not has_values(degree) or not degree.numel():
            return
        finite = degree.detach().double().nan_to_num(0.0, math.inf, -math.inf)
        degree = float(finite.max())
    # NB: a NaN is no degree, and torch takes no step for one.
    a.require(not degree > _HIGHEST_DEGREE, f"a polynomial of a degree beyond {_HIGHEST_DEGREE} is asked for")


#: Integers that a float64 tells from the next one.
_MOST_TRIALS = 2.0**53


def check_binomial(a: Any) -> None:
    for name, most in (("count", _MOST_TRIALS), ("prob", 1.0)):
        values = a[name]
        if has_values(values) and values.numel():
            fits = (values.detach() >= 0) & (values.detach() <= most)
            a.require(bool(fits.all()), f"{name!r} holds values that are not in [0, {most:g}]")


def check_random(a: Any) -> None:
    low = a.get("from", 0)
    a.require(
        _is_integral(a["self"]) or int(low) < 2**62,
        f"'from' is {low}, beyond what {a['self'].dtype} tells from the next number",
    )


def check_adaptive_pool(a: Any) -> None:
    check_pooled_sizes(f"aten.{a.packet}", [None, a["output_size"]], {})


#: Numbers as large are no size of a window, and no number of dimensions.
_LARGEST_WINDOW = 2**31
_MOST_DIMENSIONS = 64
_LONGEST_OF_NOTHING = 2**16


def check_window(name: str, args: Any, kwargs: Arguments) -> None:
    """`max_pool1d(input, kernel_size, stride, padding, dilation, ...)`"""
    for value in _numbers((args[1:], list(kwargs.values()))):
        if abs(value) >= _LARGEST_WINDOW:
            raise ValueError(
                f"{name} was not run: {value} is no size of a window. Pass one that fits the input."
            )


def check_pooled_sizes(name: str, args: Any, kwargs: Arguments) -> None:
    """`adaptive_avg_pool2d(input, output_size)`: torch goes along one side although the other is empty."""
    sizes = _numbers((args[1:], list(kwargs.values())))
    if 0 in sizes and max(sizes) >= _LONGEST_OF_NOTHING:
        raise ValueError(
            f"{name} was not run: it would take {max(sizes)} steps to make nothing. Pass other sizes."
        )


def check_combinations(name: str, args: Any, kwargs: Arguments) -> None:
    """`combinations(input, r, with_replacement)`"""
    for value in _numbers((args[1:], list(kwargs.values()))):
        if value > _MOST_DIMENSIONS:
            raise ValueError(
                f"{name} was not run: torch makes a tensor of {value} dimensions of it. Pass an r of at most "
                f"{_MOST_DIMENSIONS}."
            )


def check_power(name: str, args: Any, kwargs: Arguments) -> None:
    """`matrix_power(input, n)`: torch negates n."""
    for value in _numbers((args[1:], list(kwargs.values()))):
        if value <= _LEAST[torch.int64]:
            raise ValueError(f"{name} was not run: there is no power -({value}). Pass a smaller one.")


def check_fraction(name: str, args: Any, kwargs: Arguments) -> None:
    """`fractional_max_pool2d_backward(grad_output, self, kernel_size, output_size, indices)`"""
    sizes = args[3] if len(args) > 3 else kwargs.get("output_size")
    if not isinstance(sizes, (list, tuple)) or len(sizes) != (3 if "3d" in name else 2):
        raise ValueError(
            f"{name} was not run: {sizes} are no sizes of an output. Pass one for each dimension."
        )


#: More digits than a float64 has before and behind its point.
_MOST_DIGITS = 400


def check_digits(name: str, _args: Any, kwargs: Arguments) -> None:
    """`round(input, decimals=...)`: without data, torch works out a power of ten in full."""
    if abs(int(kwargs.get("decimals", 0))) > _MOST_DIGITS:
        raise ValueError(
            f"{name} was not run: no number has as many digits. Pass at most {_MOST_DIGITS} decimals."
        )


def check_heads(name: str, args: Any, kwargs: Arguments) -> None:
    """`scaled_dot_product_attention(query, key, value, ..., enable_gqa)`: torch divides by the number of heads."""
    if not kwargs.get("enable_gqa"):
        return
    given = {**dict(zip(("query", "key", "value"), args, strict=False)), **kwargs}
    for part in ("key", "value"):
        shape = tuple(getattr(given.get(part), "shape", ()))
        if len(shape) < 3 or shape[-3] == 0:
            raise ValueError(
                f"{name} was not run: {part!r} has no heads (its shape is {list(shape)}). Pass tensors of at least "
                "one head, or leave out enable_gqa."
            )


def _numbers(values: Any) -> list[int]:
    found: list[int] = []
    for value in values:
        if isinstance(value, (list, tuple)):
            found.extend(_numbers(value))
        elif isinstance(value, int):
            found.append(value)
    return found


# -- lists -----------------------------------------------------------------------------------------------


def check_lists(a: Any) -> None:
    """The lists of `_foreach_` operations go together element by element."""
    lengths = {len(value) for value in a.values() if isinstance(value, (list, tuple))}
    a.require(len(lengths) == 1, f"its lists have {sorted(lengths)} elements")
    a.require(
        all(isinstance(at_end(v), torch.Tensor) for v in a["self"]),
        "'self' holds something that is no tensor",
    )
