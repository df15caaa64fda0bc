"""How much memory an operation would take, worked out before it takes any.

Quotas are charged for what is stored. That is too late for `torch.zeros(10**12)`: where users have quotas, an operation
whose results would not fit into what is left is not run.

NOTE [A bound first]
Most operations are small, and for those that are used most it can be told at once: a sum is no larger than what is
summed, a product of matrices has their rows and columns. If that bound (`syft.workers.bounds`) fits, nothing more is
asked. For all other operations the metadata of the results is worked out, and remembered. Where that depends on
values, the largest that shapes allow is taken. An operation of which nothing can be told is never taken to be small.

What is counted are results, copies of arguments that are larger than the memory behind them, and the largest value on
the way of a function that is made of several operations. What one operation takes inside (the columns of a
convolution, the second copy of a sort) is not.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from syft.core.chain import map_tensors
from syft.core.commands import KnownCommand
from syft.core.nested import found_in
from syft.core.spec import TensorSpec, extent_in_bytes
from syft.exceptions import QuotaExceededError
from syft.workers import bounds
from syft.workers.caller import user_of
from syft.workers.permissions import Allowed
from syft.workers.restricted import (
    Failure,
    as_meta,
    as_specs,
    ask_without_data,
    fresh_specs,
    frozen,
    remember,
)

#: Operations that take less than this are not looked at any closer: what does not fit is refused when it is to be stored.
_TINY = 1 << 12
_ENORMOUS = 1 << 62


def refuse_what_does_not_fit(
    worker: Any, command: KnownCommand, args: Any, kwargs: dict[str, Any], allowed: Allowed
) -> None:
    """!! QuotaExceededError if the results would be more than the user who speaks may still hold.

    `allowed` are those who may see the arguments.
    """
    if worker._holdings is None:
        return
    is_free, bound = _known_of(command)
    if is_free:
        return
    size: float | None = None
    if bound is not None:
        elements = bound(args, kwargs)
        if elements is not None:
            size = elements * bounds.WIDEST
            if size <= _TINY:
                return
    user = user_of(None)
    quotas = worker._holdings.quotas
    left = quotas.bytes_left(user)
    if size is not None and (left is None or size <= left):
        return
    may_see = worker.policy.may_get(user, allowed)
    check_count(quotas.objects_left(user), _pieces(command, args, kwargs, may_see), command.name)
    if left is not None:
        check_fits(left, _bytes_needed(command, args, kwargs, may_see), command.name)


@cache
def _known_of(command: KnownCommand) -> tuple[bool, bounds.Bound | None]:
    return bounds.is_free(command), bounds.bound_of(command)


def check_fits(left: int | None, needed: float, what: str) -> None:
    if left is not None and needed > left:
        size = str(int(needed)) if needed < _ENORMOUS else "more than 2**62"
        raise QuotaExceededError(
            f"{what} was not run: its results would take {size} bytes, and the user may hold {left} more on this "
            "worker. Work on smaller batches, drop pointers that are not needed any more, or ask the owner for more."
        )


def check_count(left: int | None, needed: int, what: str) -> None:
    if left is not None and needed > left:
        raise QuotaExceededError(
            f"{what} was not run: its results would be {needed if needed < _ENORMOUS else 'more than 2**62'} objects, "
            f"and the user may hold {left} more on this worker. Cut into fewer pieces, drop pointers that are not needed "
            "any more, or ask the owner for more."
        )


def _pieces(command: KnownCommand, args: Any, kwargs: dict[str, Any], may_see: bool) -> int:
    return bounds.number_of_pieces(bounds.packet_of(command), args, kwargs, may_see)


def _bytes_needed(command: KnownCommand, args: Any, kwargs: dict[str, Any], may_see: bool) -> float:
    """The bytes of the results; 0 if the operation is refused anyway, so that nothing of the values shows."""
    packet = bounds.packet_of(command)
    on_the_way = bounds.ON_THE_WAY.get(packet)
    if on_the_way is not None and not _has_failed(args, kwargs):
        return on_the_way(args, kwargs)
    is_view = packet in bounds.VIEWS
    reads_in_place = is_view or packet in bounds.COPYING_ONCE or _is_pointwise(command)
    copies = 0 if reads_in_place else bounds.bytes_of_copies(args, kwargs)
    by_values = bounds.BY_VALUES.get(packet)
    if by_values is not None and may_see:
        return 0 if _has_failed(args, kwargs) else copies + by_values(args, kwargs)
    outs = _outs_of(command, kwargs)
    if outs:
        return copies + _bytes_of_outs(command, args, kwargs, outs)
    foretold = _foretold_bytes(command, args, kwargs, is_view)
    if foretold is not None:
        return copies + foretold
    if not may_see:
        return 0  # it is refused because of its shape
    return 0 if _has_failed(args, kwargs) else copies + bounds.bytes_by_shape(packet, args, kwargs)


def _foretold_bytes(command: KnownCommand, args: Any, kwargs: dict[str, Any], is_view: bool) -> int | None:
    """What metadata says, remembered; None if only the data can tell it."""
    specs = as_specs(args), as_specs(kwargs)
    key = command.name, frozen(specs)
    known = _remembered.get(key)
    if known is not None:
        return known
    way = _OnTheWay()
    answer = ask_without_data(command, *specs, watch=way)
    if answer is None:
        return None
    results = sum(map(extent_in_bytes if is_view else _full_size, fresh_specs(answer)))
    needed = max(results, way.largest)
    remember(_remembered, key, needed)
    return needed


_remembered: dict[Any, int] = {}


def _full_size(spec: TensorSpec) -> int:
    return max(extent_in_bytes(spec), spec.nbytes)


@cache
def _is_pointwise(command: KnownCommand) -> bool:
    return torch.Tag.pointwise in getattr(command.function, "tags", ())


def _has_failed(args: Any, kwargs: dict[str, Any]) -> bool:
    return any(True for _ in found_in((args, kwargs), Failure))


# -- out=... ---------------------------------------------------------------------------------------


def _outs_of(command: KnownCommand, kwargs: dict[str, Any]) -> tuple[str, ...]:
    """The arguments that results are written into. Public functions have no schema that names them."""
    names = command.outs or ("out",)
    return tuple(name for name in names if kwargs.get(name) is not None)


def _bytes_of_outs(command: KnownCommand, args: Any, kwargs: dict[str, Any], names: tuple[str, ...]) -> float:
    """What `out=...` would grow to, where it grows: as large as an empty tensor in its place becomes."""
    outs = {name: kwargs[name] for name in names}
    empty = map_tensors(lambda t: torch.empty(0, dtype=t.dtype, device="meta"), outs)
    try:
        command.function(*as_meta(args), **{**as_meta(kwargs), **empty})
    except (NotImplementedError, RuntimeError):
        # NB: it may be about values, and how large a result is then is told by shapes alone.
        rest = {name: value for name, value in kwargs.items() if name not in outs}
        return bounds.bytes_by_shape(bounds.packet_of(command), args, rest)
    grown = 0
    for now, then in zip(found_in(outs, torch.Tensor), found_in(empty, torch.Tensor), strict=False):
        skipped = int(now.storage_offset()) * now.dtype.itemsize
        size = then.numel() * then.dtype.itemsize + skipped
        if size > now.untyped_storage().nbytes():
            grown += size
    return grown


# -- what a call keeps to be differentiated ---------------------------------------------------------


def bytes_of_graph(command: KnownCommand, args: Any, kwargs: dict[str, Any]) -> int:
    """What the graph of a call may keep: all values on the way, told from metadata."""
    way = _OnTheWay()
    given_args, given_kwargs = as_meta(args), as_meta(kwargs)
    with way:
        command.function(*given_args, **given_kwargs)
    return way.total


class _OnTheWay(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Looks at the results of all operations that something is made of: the largest, and all together, in bytes."""

    largest: int
    total: int

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.largest = self.total = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if not any(value.alias_info is not None for value in func._schema.returns):  # no view, nor in place
            size = sum(t.numel() * t.dtype.itemsize for t in found_in(result, torch.Tensor))
            self.largest = max(self.largest, size)
            self.total += size
        return result


class Within(_OnTheWay):  # type: ignore[no-untyped-call]
    """Ends what runs inside when all its values together are more than `left`: for a graph that keeps them."""

    def __init__(self, left: int | None, what: str) -> None:
        super().__init__()
        self._left, self._what = left, what

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = super().__torch_dispatch__(func, types, args, kwargs)
        check_fits(self._left, self.total, self._what)
        return result
