"""Methods of torch's tensors with the parameters that the programs of 2020 pass them in fixed precision and on shares.

    x.sigmoid(method="exp")       x.tanh(method="chebyshev")      x.exp(iterations=8)      x.log(iterations=2)
    x.reciprocal(method="NR")     x.inverse(iterations=8)         x.argmax(1, one_hot=True)  x.max(1, return_idx=True)

`CHAIN_METHODS` are for `Wrapper`, whose methods come before torch's own; without the extra parameters they are torch's.
The approximations here have one way each, exact to the bounds that `syft.mpc.rules.fixed_approximations` states, over the
whole range. So a method or a number of iterations is checked and changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from syft.core.abstract import AbstractTensor
from syft.core.chain import Wrapper, new_wrapper
from syft.core.levels import on_bare_nodes, step_down, step_up
from syft.core.routes import CHAINS, Overload
from syft.mpc.precision import FixedPrecisionTensor
from syft.mpc.rules import fixed_bits
from syft.mpc.rules import fixed_kinds as kinds
from syft.mpc.rules import fixed_ring as ring
from syft.mpc.rules.registry import on_children
from syft.mpc.sharing import AdditiveSharingTensor, roll, secret_of

aten = torch.ops.aten

#: Ways of 2020 to compute a function. All lead to the one way here.
METHODS = {
    "sigmoid": ("exp", "maclaurin", "chebyshev"),
    "tanh": ("chebyshev", "sigmoid"),
    "reciprocal": ("NR", "division", "log"),
}


# -- approximations ------------------------------------------------------------------------------------------


def _has_precision(tensor: Any) -> bool:
    node = tensor.child if type(tensor) is Wrapper else None
    while isinstance(node, AbstractTensor):
        if isinstance(node, FixedPrecisionTensor):
            return True
        node = node.child
    return False


def _approximation(name: str, *counts: str) -> Callable[..., Any]:
    """torch's method of that name; parameters of 2020 are checked (see the docstring of this file)."""
    plain = getattr(torch.Tensor, name)
    known = (("method",) if name in METHODS else ()) + counts

    def call(self: Any, *args: Any, **options: Any) -> Any:
        if options.get("method", 0) is None:
            del options["method"]
        if args or options:
            _check(name, known, self, dict(zip(known, args, strict=False)) | options, len(args))
        return plain(self)

    call.__name__, call.__qualname__ = name, f"Wrapper.{name}"
    call.__doc__ = (
        f"torch's {name}. In fixed precision {', '.join(known)} may be given; the result is the same."
    )
    return call


def _check(name: str, known: tuple[str, ...], tensor: Any, given: dict[str, Any], positional: int) -> None:
    unknown = sorted(set(given) - set(known))
    if unknown or positional > len(known):
        raise TypeError(
            f"{name}() takes {', '.join(known)}, and got {', '.join(unknown) or 'more than that'}."
        )
    if not _has_precision(tensor):
        raise TypeError(
            f"{name}({', '.join(given)}=...) is for tensors in fixed precision. Call fix_precision() first, or leave it "
            "out."
        )
    for parameter, value in given.items():
        if parameter == "method":
            if value not in METHODS[name]:
                raise ValueError(
                    f"{name}(method={value!r}): the methods are {', '.join(map(repr, METHODS[name]))}. All give the same "
                    "result here; leave it out."
                )
        elif not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise ValueError(f"{name}({parameter}={value!r}): a number of iterations is an int from 1 on.")


# -- extremes ------------------------------------------------------------------------------------------------


def _with_values_or_both(name: str) -> Callable[..., Any]:
    plain = getattr(torch.Tensor, name)

    def call(self: Any, *args: Any, return_idx: bool | None = None, **kwargs: Any) -> Any:
        """torch's own; `return_idx=False` leaves the indices along a dimension out, True gives both."""
        made = plain(self, *args, **kwargs)
        if return_idx is None:
            return made
        if isinstance(made, torch.Tensor):
            return (made, getattr(torch.Tensor, f"arg{name}")(self)) if return_idx else made
        return tuple(made) if return_idx else made[0]

    call.__name__, call.__qualname__ = name, f"Wrapper.{name}"
    return call


def _with_one_hot(name: str) -> Callable[..., Any]:
    plain = getattr(torch.Tensor, name)

    def call(self: Any, *args: Any, one_hot: bool = False, **kwargs: Any) -> Any:
        """torch's own; `one_hot=True`: a tensor of this shape with a 1 at every extreme, the first of equals."""
        if not one_hot:
            return plain(self, *args, **kwargs)
        with torch.no_grad():
            return _places(self, _dim_of(*args, **kwargs), 1 if name == "argmax" else -1)

    call.__name__, call.__qualname__ = name, f"Wrapper.{name}"
    return call


def _dim_of(dim: int | None = None, keepdim: bool = True) -> int | None:
    """The dimension among the arguments of an argmax; one-hot places always keep it."""
    return dim


def _places(tensor: Any, dim: int | None, sign: int) -> Any:
    head = tensor.child
    fixed = head if isinstance(head, FixedPrecisionTensor) else None
    child = head if fixed is None else fixed.child
    if fixed is None and not isinstance(child, AdditiveSharingTensor):
        if _has_precision(tensor) or secret_of(head) is not None:  # below an AutogradTensor, for example
            return step_up(head, _places(step_down(tensor), dim, sign))
        raise TypeError(
            f"argmax(one_hot=True) is for fixed precision and shares, and this is a {type(head).__name__}. Write "
            "torch.nn.functional.one_hot(x.argmax(dim), x.shape[dim])."
        )
    shape = list(tensor.shape)
    if dim is None or not shape:
        child, dim = on_children(aten.reshape.default, child, [-1]), 0
    _, chosen = ring.maximum_along(child if sign > 0 else ring.negated(child), dim)
    chosen = on_children(aten.reshape.default, chosen, shape)
    if fixed is None:
        return new_wrapper(chosen)
    return new_wrapper(fixed_bits.as_number(kinds.bits(chosen, fixed), fixed))


# -- truth and rolling -----------------------------------------------------------------------------------------


def truth(self: Any) -> bool:
    """`if tensor:`; a secret has no truth here, and several elements have none at all."""
    if secret_of(self.child) is not None and self.numel() != 1:
        raise ValueError(
            f"`if tensor:` was asked of a shared tensor of {self.numel()} elements. It is a secret, and the truth of "
            "several elements is ambiguous. Reduce it with `.any()` or `.all()` and fetch that with `.get()`."
        )
    with torch._C.DisableTorchFunctionSubclass():
        return torch.Tensor.__bool__(self)


#: Methods that `Wrapper` gets: they come before torch's own.
CHAIN_METHODS: dict[str, Any] = {
    "sigmoid": _approximation("sigmoid"),
    "tanh": _approximation("tanh"),
    "exp": _approximation("exp", "iterations"),
    "log": _approximation("log", "iterations", "exp_iterations"),
    "reciprocal": _approximation("reciprocal", "nr_iters"),
    "inverse": _approximation("inverse", "iterations"),
    "max": _with_values_or_both("max"),
    "min": _with_values_or_both("min"),
    "argmax": _with_one_hot("argmax"),
    "argmin": _with_one_hot("argmin"),
}


def _on_nodes(method: Any) -> Any:
    def call(*args: Any, **kwargs: Any) -> Any:
        return on_bare_nodes(method, args, kwargs)

    call.__name__, call.__doc__ = method.__name__, method.__doc__
    return call


for _name, _method in CHAIN_METHODS.items():
    setattr(Wrapper, _name, _method)
for _type in (FixedPrecisionTensor, AdditiveSharingTensor):
    _type.public_overloads |= {
        "__bool__": Overload(truth, CHAINS, "__bool__"),
        "roll": Overload(roll, CHAINS, "roll"),
    }
    for _name, _method in CHAIN_METHODS.items():
        setattr(_type, _name, _on_nodes(_method))
