"""`PolynomialTensor`: functions that need only additions, multiplications and comparisons.

    x = PolynomialTensor().on(tensor)      # tensor: plain, fixed precision, secret-shared, ...
    x.sigmoid(), torch.exp(x)              # evaluated as piecewise polynomials one level down

What a chain below cannot do (a sigmoid on secret shares) becomes what it can do. Torch differentiates the
polynomials, so gradients need no formula. The fitting is in `syft.tensors.piecewise`; this file has the
table of functions and the names. `x.child.approximation("exp")` tells an approximation's interval, its
largest error there, and what it does outside.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import pairwise
from typing import Any

import torch

from syft.core.abstract import AbstractTensor
from syft.core.hook_args import default_register_tensor
from syft.core.overload import overloaded
from syft.tensors.piecewise import (
    SATURATE,
    Approximation,
    Function,
    Interval,
    interpolate,
    join,
    least_squares,
)

#: The functions every PolynomialTensor has: (function, degree, breaks between the pieces). All saturate.
DEFAULTS: dict[str, tuple[Function, int, tuple[float, ...]]] = {
    "sigmoid": (torch.sigmoid, 7, (-12.0, -8.0, -4.0, 0.0, 4.0, 8.0, 12.0)),
    "tanh": (torch.tanh, 7, (-6.0, -4.0, -2.0, 0.0, 2.0, 4.0, 6.0)),
    "exp": (torch.exp, 7, (-10.0, -7.5, -5.0, -2.5, 0.0, 2.5, 5.0)),
    # A logarithm is as curved on [a, 4a] for every a.
    "log": (torch.log, 8, tuple(4.0**power for power in range(-3, 4))),
}

_LINEAR = "piecewise_linear"


@cache
def default_approximation(name: str) -> Approximation:
    """The approximation of a name in `DEFAULTS`, fitted on first use."""
    function, degree, breaks = DEFAULTS[name]
    parts = [(low, high, function) for low, high in pairwise(breaks)]
    return join(parts, degree, name=name)


class PolynomialTensor(AbstractTensor):
    """Evaluates `sigmoid`, `tanh`, `exp`, `log` and functions of the user's own as polynomials.

    functions: approximations by name, before the default ones; results of this tensor share the table.
    """

    def __init__(self, functions: dict[str, Approximation] | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.functions = {} if functions is None else functions

    def get_class_attributes(self) -> dict[str, Any]:
        return {"functions": self.functions}

    # -- the table ---------------------------------------------------------------------------------

    def addfunction(
        self,
        name: str,
        degree: int,
        pieces: Sequence[tuple[float, float, Function]],
        *,
        outside: str = SATURATE,
    ) -> Approximation:
        """Fit a function and keep it under `name`: `get_val(name, x)` evaluates it.

        `pieces` are (low, high, function), in order and without gaps; each becomes one polynomial of
        `degree`. The name of a default function replaces it for this tensor: `x.exp()` uses the new one.
        """
        self.functions[name] = join(pieces, degree, outside=outside, name=name)
        return self.functions[name]

    def approximation(self, name: str) -> Approximation:
        """The approximation kept under `name`, with its `interval`, `error` and `outside`."""
        found = self.functions.get(name)
        if found is not None:
            return found
        if name in DEFAULTS:
            return default_approximation(name)
        known = ", ".join(sorted({*DEFAULTS, *self.functions}))
        raise ValueError(
            f"There is no function {name!r}; this tensor knows {known}. Add it with "
            f"addfunction({name!r}, degree, [(low, high, function)])."
        )

    def get_val(self, name: str, x: Any) -> Any:
        """The function `name` at `x`: a tensor, a chain (which it stays) or a number."""
        return self.approximation(name)(x.wrap() if isinstance(x, AbstractTensor) else x)

    # -- fitting without keeping -------------------------------------------------------------------

    @staticmethod
    def interpolate(
        function: Function, interval: Interval, degree: int, precision: float | None = None, **kwargs: Any
    ) -> Approximation:
        """Polynomials through Chebyshev points; as many pieces as an error of `precision` needs.

        Call the result on a tensor or chain. Options are those of `piecewise.interpolate`.
        """
        return interpolate(function, interval, degree, precision, **kwargs)

    @staticmethod
    def fit_function(function: Function, interval: Interval, degree: int, **kwargs: Any) -> Approximation:
        """One polynomial on the whole interval, with the least mean square error."""
        return least_squares(function, interval, degree, **kwargs)

    def piecewise_linear_fit(
        self,
        function: Function,
        interval: Interval,
        pieces: int,
        *,
        outside: str = SATURATE,
        name: str = _LINEAR,
    ) -> Approximation:
        """Straight lines between `pieces` + 1 equally spaced points; kept for `piecewise_linear_eval`."""
        self.functions[name] = interpolate(function, interval, 1, pieces=pieces, outside=outside, name=name)
        return self.functions[name]

    def piecewise_linear_eval(self, x: Any, name: str = _LINEAR) -> Any:
        """What `piecewise_linear_fit` fitted (last, or under `name`), at `x`."""
        if name not in self.functions:
            raise ValueError(
                "piecewise_linear_eval was called before anything was fitted. "
                "Call piecewise_linear_fit(function, interval, pieces) first."
            )
        return self.get_val(name, x)

    # -- torch's names -----------------------------------------------------------------------------

    @overloaded.method
    def sigmoid(self: Any, _self: Any) -> Any:
        return self.get_val("sigmoid", _self)

    @overloaded.method
    def tanh(self: Any, _self: Any) -> Any:
        return self.get_val("tanh", _self)

    @overloaded.method
    def exp(self: Any, _self: Any) -> Any:
        return self.get_val("exp", _self)

    @overloaded.method
    def log(self: Any, _self: Any) -> Any:
        return self.get_val("log", _self)

    # What returns from a name with an underscore is written into the tensor it was called on.
    @overloaded.method
    def sigmoid_(self: Any, _self: Any) -> Any:
        return self.get_val("sigmoid", _self)

    @overloaded.method
    def tanh_(self: Any, _self: Any) -> Any:
        return self.get_val("tanh", _self)

    @overloaded.method
    def exp_(self: Any, _self: Any) -> Any:
        return self.get_val("exp", _self)

    @overloaded.method
    def log_(self: Any, _self: Any) -> Any:
        return self.get_val("log", _self)


default_register_tensor(PolynomialTensor)
