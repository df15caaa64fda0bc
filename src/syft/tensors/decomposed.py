"""Running an operation that a worker does not admit as several that it does, or as one that writes nowhere.

For pointers on the client's side, and for restricted tensors of an open worker on the worker's.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from torch._ops import OpOverload

from syft.operations.decomposition import decompose, refusal


def run_decomposed(func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The result of `func` by other operations. An `out` is written by a copy. !! OperationNotAdmittedError"""
    outs = _outs_of(func)
    if outs:
        functional = _without_outs(func)
        if functional is None or any(name not in kwargs for name in outs):
            raise refusal(func)
        made = functional(*args, **{name: value for name, value in kwargs.items() if name not in outs})
        return _copied(kwargs, outs, made)
    result = decompose(func, args, kwargs)
    if result is NotImplemented:
        raise refusal(func)
    return result


def _copied(kwargs: dict[str, Any], outs: tuple[str, ...], made: Any) -> Any:
    results = made if isinstance(made, (tuple, list)) else (made,)
    for name, result in zip(outs, results, strict=True):
        out = kwargs[name]
        if out.shape != result.shape:
            raise ValueError(
                f"An out= of shape {tuple(out.shape)} was given for a result of shape {tuple(result.shape)}. On a worker "
                "it is not resized: pass a tensor of the right shape, or call the function without it."
            )
        out.copy_(result)
    return kwargs[outs[0]] if len(outs) == 1 else tuple(kwargs[name] for name in outs)


@cache
def _outs_of(func: OpOverload) -> tuple[str, ...]:
    return tuple(argument.name for argument in func._schema.arguments if argument.is_out)


@cache
def _without_outs(func: OpOverload) -> OpOverload | None:
    """The overload that returns what this one writes; None if there is none."""
    packet = func._overloadpacket
    wanted = [(a.name, str(a.real_type)) for a in func._schema.arguments if not a.is_out]
    for name in packet.overloads():  # type: ignore[no-untyped-call]
        other: OpOverload = getattr(packet, name)
        if [(a.name, str(a.real_type)) for a in other._schema.arguments] == wanted and not _outs_of(other):
            return other
    return None
