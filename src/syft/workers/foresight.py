"""How much memory an operation would take, worked out before it takes any.

Quotas are charged for what is stored. That is too late for `torch.zeros(10**12)`: where users have quotas, an operation
whose results would not fit into what is left is not run.

NOTE [A rough bound first]
The results of most operations are no larger than all tensors and numbers that went in, multiplied: those that are known
for it are named below. Of any other (a diagonal becomes a matrix) it is taken that its results are no larger than the
square of that. So a product tells at once that most operations are small, and only for the rest the metadata of
the results is worked out. The few whose size depends on values have rules of their own.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import torch
from torch._ops import OpOverload

from syft.core.chain import map_tensors
from syft.core.commands import KnownCommand
from syft.core.nested import found_in
from syft.core.spec import extent_in_bytes
from syft.exceptions import QuotaExceededError
from syft.workers.caller import user_of
from syft.workers.permissions import Allowed
from syft.workers.restricted import Failure, as_meta, foretold_specs

#: Operations that take less than this are not looked at any closer if that is left.
_SMALL = 64 << 20
#: And less than this not even then: what does not fit is refused when it is to be stored.
_TINY = 1 << 12
_WIDEST_ELEMENT = 16


def refuse_what_does_not_fit(
    worker: Any, command: KnownCommand, args: Any, kwargs: dict[str, Any], allowed: Allowed
) -> None:
    """!! QuotaExceededError if the results would be more than the user who speaks may still hold.

    `allowed` are those who may see the arguments.
    """
    if worker._holdings is None:
        return
    grows = _growth(command)
    bound = 0.0
    if type(grows) is int:
        if not grows:  # views, and what is written into: there is nothing to multiply
            return
        closer = _closer_bound(command)
        elements = None if closer is None else closer(args, kwargs)
        if elements is None:
            elements = _rough_bound(args) * _rough_bound(kwargs.values())
            if grows > 1:
                elements *= elements
        bound = elements * _WIDEST_ELEMENT
        if bound <= _TINY and not command.outs:
            return
    left = worker._holdings.quotas.bytes_left(user_of(None))
    if left is None or (type(grows) is int and bound <= min(_SMALL, left)):
        return
    if callable(grows) and not worker.policy.may_get(user_of(None), allowed):
        return  # it is refused anyway, and what the values are must not show
    needed = _bytes_of_results(command, args, kwargs, grows)
    if type(grows) is int and command.outs:
        needed = _bytes_of_outs(command, args, kwargs, bound)
    check_fits(left, needed, command.name)


@cache
def _growth(command: KnownCommand) -> Any:
    """The power of the rough bound that bounds the results; or the rule by which they grow."""
    name = command.name.removeprefix("aten.").removeprefix("torch.").removeprefix("nn.functional.")
    packet = name.partition(".")[0]
    if packet in _GROWING:
        return _GROWING[packet]
    func = command.function
    if isinstance(func, OpOverload):
        returns = func._schema.returns
        if returns and all(value.alias_info is not None for value in returns) and not command.outs:
            return 0  # views, and what was written into
        if torch.Tag.pointwise in func.tags:
            return 1
    return 1 if packet in _NO_LARGER else 2


#: Operations whose results are no larger than the product of what went in.
_NO_LARGER = frozenset(
    """mm addmm bmm baddbmm mv dot matmul linear t transpose permute view _unsafe_view reshape expand slice
    select unsqueeze squeeze detach alias clone copy_ fill_ zero_ sum mean amax amin max min argmax
    argmin convolution convolution_backward native_batch_norm native_batch_norm_backward
    native_layer_norm native_layer_norm_backward _softmax _log_softmax _softmax_backward_data
    _log_softmax_backward_data nll_loss_forward nll_loss_backward mse_loss mse_loss_backward
    threshold_backward native_dropout native_dropout_backward embedding index index_select gather
    zeros_like ones_like empty_like full_like new_zeros new_ones zeros ones full empty rand randn
    randint arange randperm max_pool2d_with_indices avg_pool2d tanh_backward sigmoid_backward
    gelu_backward""".split()
)


@cache
def _closer_bound(command: KnownCommand) -> Callable[[Any, Any], float | None] | None:
    """For the operations of training: elements of the results, from shapes alone; None where it cannot say."""
    func = command.function
    if not isinstance(func, OpOverload):
        return None
    factors = _FACTORS.get(command.name)
    if factors is not None:
        return partial(_product, *factors)
    return _broadcast if torch.Tag.pointwise in func.tags else None


#: Matrix products -> where their two factors are.
_FACTORS = {
    "aten.mm.default": (0, 1),
    "aten.bmm.default": (0, 1),
    "aten.addmm.default": (1, 2),
    "aten.baddbmm.default": (1, 2),
}


def _product(left: int, right: int, args: Any, _kwargs: Any) -> float | None:
    if len(args) <= right or type(args[left]) is not torch.Tensor or type(args[right]) is not torch.Tensor:
        return None
    rows, columns = args[left], args[right]
    if rows.dim() < 2 or columns.dim() < 2 or not rows.size(-1):
        return None
    return float(rows.numel() // rows.size(-1) * columns.size(-1))


def _broadcast(args: Any, kwargs: Any) -> float | None:
    """Tensors of one shape, and of one element, give a tensor of that shape."""
    shape: Any = None
    elements = 1
    for value in args if not kwargs else (*args, *kwargs.values()):
        cls = type(value)
        if cls is torch.Tensor:
            if value.numel() == 1 and value.dim() <= 1:
                continue
            if shape is None:
                shape, elements = value.shape, value.numel()
            elif value.shape != shape:
                return None
        elif cls not in (int, float, bool, type(None), str):
            return None
    return float(elements)


def check_fits(left: int | None, needed: int, what: str) -> None:
    if left is not None and needed > left:
        raise QuotaExceededError(
            f"{what} was not run: its results would take {needed} bytes, and the user may hold {left} more on this "
            "worker. Work on smaller batches, drop pointers that are not needed any more, or ask the owner for more."
        )


def _rough_bound(values: Any) -> float:
    """The product of all that could multiply."""
    bound = 1.0
    for value in values:
        cls = type(value)
        if cls is torch.Tensor:
            bound *= value.numel() or 1
        elif cls is int or cls is float:
            # NB: nan and inf are sizes of nothing; the operation itself refuses them.
            bound *= max(1.0, abs(value)) if math.isfinite(value) else 1.0
        elif isinstance(value, dict):
            bound *= _rough_bound(value.values())
        elif isinstance(value, (list, tuple)):
            bound *= _rough_bound(value)
        elif isinstance(value, (torch.Tensor, Failure)):
            bound *= max(1, math.prod(value.shape))
    return bound


def _bytes_of_results(command: KnownCommand, args: Any, kwargs: dict[str, Any], grows: Any) -> int:
    if callable(grows):
        return 0 if any(True for _ in found_in((args, kwargs), Failure)) else int(grows(args, kwargs))
    specs = foretold_specs(command, args, kwargs)
    return sum(map(extent_in_bytes, specs)) if specs is not None else 0


def _bytes_of_outs(command: KnownCommand, args: Any, kwargs: dict[str, Any], bound: float) -> int:
    """What `out=...` would grow to: as large as an empty tensor in its place becomes; else the rough bound."""
    outs = {
        name: map_tensors(lambda t: torch.empty(0, dtype=t.dtype, device="meta"), kwargs[name])
        for name in command.outs
        if name in kwargs
    }
    try:
        command.function(*as_meta(args), **{**as_meta(kwargs), **outs})
    except (NotImplementedError, RuntimeError):
        return int(min(bound, 2.0**62))
    return sum(t.numel() * t.dtype.itemsize for t in found_in(outs, torch.Tensor))


# -- results whose size depends on values, or grows faster than any product -------------------------------
# They are only run for users who may see the values.


def _argument(args: Any, kwargs: dict[str, Any], position: int, name: str, default: Any) -> Any:
    return args[position] if len(args) > position else kwargs.get(name, default)


def _largest(tensor: Any) -> int:
    return int(tensor.max()) if isinstance(tensor, torch.Tensor) and tensor.numel() else 0


def _counts(args: Any, kwargs: dict[str, Any]) -> int:
    length = max(_largest(args[0]) + 1, int(_argument(args, kwargs, 2, "minlength", 0) or 0))
    return 8 * length


def _one_hot(args: Any, kwargs: dict[str, Any]) -> int:
    classes = int(_argument(args, kwargs, 1, "num_classes", -1))
    return int(8 * args[0].numel()) * (classes if classes >= 0 else _largest(args[0]) + 1)


def _repeated(args: Any, kwargs: dict[str, Any]) -> int:
    tensor = args[0]
    repeats = _argument(args, kwargs, 1, "repeats", tensor)
    if isinstance(repeats, torch.Tensor):
        total = int(repeats.sum()) * (
            1 if repeats is tensor else max(1, tensor.numel() // max(1, repeats.numel()))
        )
    else:
        total = tensor.numel() * int(repeats)
    return int(total * tensor.dtype.itemsize)


def _combinations(args: Any, kwargs: dict[str, Any]) -> int:
    tensor, r = args[0], int(_argument(args, kwargs, 1, "r", 2))
    repeats = bool(_argument(args, kwargs, 2, "with_replacement", False))
    count = math.comb(tensor.numel() + (r - 1 if repeats else 0), r) if r >= 0 else 0
    # NB: it is made of a mesh of all tuples.
    return int(max(count * r, tensor.numel() ** max(r, 0)) * tensor.dtype.itemsize)


_GROWING = {
    "bincount": _counts,
    "one_hot": _one_hot,
    "repeat_interleave": _repeated,
    "combinations": _combinations,
}
