"""Historical path of the tools that gradient functions are made with."""

from typing import Any

from syft import serde
from syft.serde import SerdeError
from syft.tensors import gradient_functions
from syft.tensors.gradient_functions import (
    Accumulate,
    GradFunc,
    apply_dim_transformations,
    forward_grad,
    get_mismatch_dims,
)

__all__ = ["Accumulate", "GradFunc", "apply_dim_transformations", "forward_grad", "get_mismatch_dims"]

_KINDS = {
    kind.__name__: kind
    for kind in vars(gradient_functions).values()
    if isinstance(kind, type) and issubclass(kind, GradFunc) and kind is not GradFunc
}


def _simplify(worker: Any, grad_fn: GradFunc) -> tuple[str, Any]:
    """The name of a gradient function and its operands in simple form."""
    if _KINDS.get(type(grad_fn).__name__) is not type(grad_fn):
        raise SerdeError(f"GradFunc.simplify was given a {type(grad_fn).__name__}, which does not travel.")
    return type(grad_fn).__name__, serde.simplify(worker, grad_fn.operands)


def _detail(worker: Any, gradfn_tuple: tuple[str, Any]) -> GradFunc:
    """The gradient function again; its operands are leaves. !! SerdeError"""
    name, operands = gradfn_tuple
    if name not in _KINDS:
        raise SerdeError(f"{str(name)[:60]!r} is not the name of a gradient function.")
    return _KINDS[name](*serde.detail(worker, operands))


GradFunc.simplify = staticmethod(_simplify)  # type: ignore[attr-defined]
GradFunc.detail = staticmethod(_detail)  # type: ignore[attr-defined]
