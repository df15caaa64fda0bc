"""`FixedNumber`: a hyper-parameter of an optimizer in fixed precision."""

from __future__ import annotations

from typing import Any

import torch

from syft.mpc.precision import FixedPrecisionTensor, encode_number


class FixedNumber(float):
    """A public number with its fixed-precision form: `lr.child` are its integers, `lr.float_precision()` its value.

    It is the float that it was made from, so optimizers and schedulers of torch compute with the number itself. A product
    with a fixed-precision tensor keeps 22 significant bits of it, where the integers of a learning rate of 4e-4 are 0 at
    three digits. It is saved and copied as a float.
    """

    base: int
    precision_fractional: int

    def __new__(cls, value: float, base: int, precision_fractional: int) -> FixedNumber:
        made = super().__new__(cls, value)
        made.base, made.precision_fractional = base, precision_fractional
        return made

    @property
    def child(self) -> torch.Tensor:
        """The integers: the number in units of 1 / base ** precision_fractional, rounded."""
        return torch.tensor(encode_number(float(self), self.base**self.precision_fractional))

    def node(self) -> FixedPrecisionTensor:
        """The number as a node of a chain."""
        made = FixedPrecisionTensor(self.base, self.precision_fractional)
        made.child = self.child
        return made

    def float_precision(self) -> torch.Tensor:
        """What its integers stand for, as a plain tensor."""
        return self.node().decode()

    float_prec = float_precision

    def __repr__(self) -> str:
        return f"FixedNumber({float(self)!r})"

    def __reduce__(self) -> Any:
        return float, (float(self),)


def fix_numbers(group: dict[str, Any], base: int, precision_fractional: int) -> None:
    """Every float among the hyper-parameters of a group, also inside tuples such as betas, in fixed precision."""

    def fixed(value: Any) -> Any:
        if type(value) is tuple:
            return tuple(map(fixed, value))
        return FixedNumber(value, base, precision_fractional) if isinstance(value, float) else value

    for name, value in group.items():
        if name != "params":
            group[name] = fixed(value)


def float_numbers(group: dict[str, Any]) -> None:
    """The inverse of `fix_numbers`."""

    def plain(value: Any) -> Any:
        if type(value) is tuple:
            return tuple(map(plain, value))
        return float(value) if isinstance(value, FixedNumber) else value

    for name, value in group.items():
        if name != "params":
            group[name] = plain(value)
