"""How large the results of operations can be, from the shapes of their arguments. For `syft.workers.foresight`.

Every bound here is meant to hold whatever the arguments are: a dimension of size 0 counts as 1, because an operation
may drop it (a sum over nothing of a (10**9, 0) is 10**9 zeros). Only operations named here one by one are bounded
by their arguments; of all others the metadata of the results is worked out.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch._ops import OpOverload

from syft.core.commands import NAMESPACES, KnownCommand
from syft.core.nested import found_in
from syft.exceptions import QuotaExceededError
from syft.workers.restricted import Failure

#: Bytes of the widest element there is.
WIDEST = 16

#: Elements of the results, and of copies of the arguments; None where it cannot say.
Bound = Callable[[Any, dict[str, Any]], float | None]


def packet_of(command: KnownCommand) -> str:
    """The name of an operation without its namespace and overload: "sum" of "aten.sum.default" and of "torch.sum"."""
    parts = command.name.split(".")
    return parts[1] if parts[0] in NAMESPACES else parts[-1]


def elements_of(tensor: Any) -> int:
    """The product of the sizes of a tensor, where nothing counts as one."""
    size = math.prod(tensor.shape) if type(tensor) is Failure else tensor.numel()
    return size or math.prod(max(1, n) for n in tensor.shape)


# -- views and what is written in place ------------------------------------------------------------

#: Operations that return views and never copies.
VIEWS = frozenset(
    """_conj _neg_view adjoint alias as_strided broadcast_tensors broadcast_to conj detach diagonal dsplit expand
    expand_as hsplit imag linalg_diagonal mH mT matrix_H meshgrid moveaxis movedim narrow numpy_T permute real select
    slice split split_with_sizes squeeze swapaxes swapdims t tensor_split transpose unbind chunk unfold unsqueeze view
    view_as view_as_complex view_as_real vsplit""".split()
)
#: Of these, those that return any number of them.
_SEVERAL = frozenset("dsplit hsplit split split_with_sizes tensor_split unbind chunk vsplit".split())
#: Operations in place that read their other arguments where they are.
_COPYING_NOTHING = frozenset("copy_ fill_ zero_ detach_ normal_ uniform_ bernoulli_ random_".split())
#: Operations that return a view of a tensor that is contiguous, and a copy of another.
_COPYING_STRIDED = frozenset("reshape reshape_as flatten ravel unflatten".split())

#: Operations that read their arguments where they are, whatever the strides: the result is the only copy.
COPYING_ONCE = _COPYING_STRIDED | frozenset(
    """contiguous to _to_copy clone resolve_conj resolve_neg conj_physical sum mean amax amin zeros_like ones_like
    empty_like full_like rand_like randn_like new_zeros new_ones new_full""".split()
)


def is_free(command: KnownCommand) -> bool:
    """Whether an aten operation takes no memory worth counting: one view, or something written in place."""
    func = command.function
    if not isinstance(func, OpOverload) or command.outs:
        return False
    aliases = [value.alias_info for value in func._schema.returns]
    if not aliases or any(alias is None for alias in aliases):
        return False
    packet = packet_of(command)
    if not any(alias.is_write for alias in aliases if alias is not None):
        return packet in VIEWS and packet not in _SEVERAL
    return torch.Tag.pointwise in func.tags or packet in _COPYING_NOTHING


def bound_of(command: KnownCommand) -> Bound | None:
    """The bound of an aten operation that was thought through; None: ask the metadata."""
    func = command.function
    if not isinstance(func, OpOverload):
        return None
    if command.name in _FACTORS:
        return partial(_product, *_FACTORS[command.name])
    if command.name in _NO_LARGER:
        return _all_together
    if torch.Tag.pointwise in func.tags or command.name in _BROADCASTING:
        return broadcast
    if packet_of(command) in _COPYING_STRIDED and not command.outs:
        return _copied_if_strided
    if command.name == "aten.contiguous.default":
        return _copied_if_strided_alone
    returns = func._schema.returns
    if (
        returns
        and not command.outs
        and all(v.alias_info is not None and v.alias_info.is_write for v in returns)
    ):
        return _all_together  # nothing grows; arguments may be copied
    return None


# -- bounds that are products of sizes -------------------------------------------------------------

#: Operations whose results have, for each of their elements, at most four in the arguments: they reduce dimensions of
#: an argument, keep its shape, put arguments together, or pool (which makes each of two sides at most twice as long).
_NO_LARGER = frozenset(
    f"aten.{name}"
    for name in """sum.default sum.dim_IntList mean.default mean.dim amax.default amin.default max.default max.dim
    min.default min.dim argmax.default argmin.default _softmax.default _log_softmax.default
    _softmax_backward_data.default _log_softmax_backward_data.default nll_loss_forward.default
    nll_loss_backward.default native_layer_norm.default native_layer_norm_backward.default native_batch_norm.default
    native_batch_norm_backward.default native_dropout.default native_dropout_backward.default clone.default
    zeros_like.default ones_like.default empty_like.default full_like.default cat.default stack.default
    max_pool2d_with_indices.default avg_pool2d.default gather.default""".split()
)
#: Operations whose result, before it is reduced, has the shape that all their tensors are broadcast to.
_BROADCASTING = frozenset(
    "aten.mse_loss.default aten.mse_loss_backward.default aten.gelu_backward.default".split()
)
#: Matrix products -> where their two factors are.
_FACTORS = {
    "aten.mm.default": (0, 1),
    "aten.bmm.default": (0, 1),
    "aten.addmm.default": (1, 2),
    "aten.baddbmm.default": (1, 2),
}


def _all_together(args: Any, kwargs: dict[str, Any]) -> float | None:
    total = 0
    for value in args if not kwargs else (*args, *kwargs.values()):
        cls = type(value)
        if cls is torch.Tensor:
            total += value.numel() or elements_of(value)
        elif cls is list or cls is tuple:
            for part in value:
                if isinstance(part, (torch.Tensor, Failure)):
                    total += elements_of(part)
        elif cls is Failure:
            total += elements_of(value)
    return 4.0 * total


def _product(left: int, right: int, args: Any, _kwargs: Any) -> float | None:
    if len(args) <= right or type(args[left]) is not torch.Tensor or type(args[right]) is not torch.Tensor:
        return None
    rows, columns = args[left], args[right]
    if rows.dim() < 2 or columns.dim() < 2:
        return None
    inner = rows.size(-1)
    made = rows.numel() // inner if inner else elements_of(rows)
    return float(made * columns.size(-1) + rows.numel() + columns.numel())


def broadcast(args: Any, kwargs: dict[str, Any]) -> float | None:
    """The elements of the shape that all tensors together are broadcast to."""
    shape: Any = None
    elements = 1
    others: list[Any] = []
    for value in args if not kwargs else (*args, *kwargs.values()):
        cls = type(value)
        if cls is torch.Tensor or cls is Failure:
            if shape is None:
                shape, elements = value.shape, elements_of(value)
            elif value.shape != shape:
                others.append(value.shape)
        elif cls is list or cls is tuple or cls is dict:
            return None
    return float(elements) if not others else float(_joint_elements([shape, *others]))


def _joint_elements(shapes: list[Any]) -> int:
    longest = max(map(len, shapes))
    return math.prod(
        max(1, *(shape[-place] for shape in shapes if len(shape) >= place)) for place in range(1, longest + 1)
    )


def _copied_if_strided(args: Any, _kwargs: Any) -> float | None:
    tensor = args[0] if args else None
    if type(tensor) is not torch.Tensor:
        return None
    return 0.0 if tensor.is_contiguous() else float(tensor.numel())


def _copied_if_strided_alone(args: Any, kwargs: Any) -> float | None:
    return _copied_if_strided(args, kwargs) if len(args) == 1 and not kwargs else None


# -- where metadata cannot tell --------------------------------------------------------------------


def bytes_by_shape(packet: str, args: Any, kwargs: dict[str, Any]) -> float:
    """A bound for results whose shape depends on values, in bytes; those who may not see the values do not get here."""
    tensors = list(found_in((args, kwargs), (torch.Tensor, Failure)))
    together = sum(map(elements_of, tensors))
    if packet in _INDICES and len(tensors) == 1:
        return 8.0 * together * max(1, len(tensors[0].shape))
    if packet == "masked_select":
        return float(WIDEST * _joint_elements([t.shape for t in tensors]))
    if packet in ("index", "__getitem__") and tensors:
        return _bytes_of_indexing(tensors)
    if packet in _UNIQUE:
        return 3.0 * WIDEST * together
    # NB: sizes may be given as tensors, so those of few elements count as the numbers they hold.
    rough = _rough(args) * _rough(kwargs.values())
    return WIDEST * rough * rough


_INDICES = frozenset("nonzero argwhere where nonzero_numpy".split())
_UNIQUE = frozenset("unique _unique _unique2 unique_consecutive unique_dim unique_dim_consecutive".split())
_FEW = 64


def _bytes_of_indexing(tensors: list[Any]) -> float:
    """A mask picks at most all of what it covers; an index of numbers picks for each of them."""
    size = float(WIDEST * elements_of(tensors[0]))
    masks = 0.0
    for index in tensors[1:]:
        if getattr(index, "dtype", None) in (torch.bool, torch.uint8):
            masks += 8.0 * elements_of(index) * max(1, len(index.shape))
        else:
            size *= elements_of(index)
    return size + masks


def _rough(values: Any) -> float:
    """The product of all that could multiply."""
    bound = 1.0
    for value in values:
        if isinstance(value, dict):
            bound *= _rough(value.values())
        elif isinstance(value, (list, tuple)):
            bound *= _rough(value)
        elif isinstance(value, (torch.Tensor, Failure)):
            bound *= elements_of(value)
            if isinstance(value, torch.Tensor) and value.numel() <= _FEW and not value.is_complex():
                bound *= _rough(value.detach().reshape(-1).tolist())
        elif isinstance(value, (int, float)):
            bound *= _as_factor(value)
    return bound


def _as_factor(value: float) -> float:
    try:
        size = abs(float(value))
    except OverflowError:
        return math.inf
    # NB: nan and inf are sizes of nothing; the operation itself refuses them.
    return max(1.0, size) if math.isfinite(size) else 1.0


def bytes_of_copies(args: Any, kwargs: dict[str, Any]) -> int:
    """What copies of the arguments would take that are larger than the memory behind them, e.g. expanded ones.

    Most operations make such a copy on the way.
    """
    total = 0
    for tensor in found_in((args, kwargs), torch.Tensor):
        if tensor.layout is torch.strided:
            size = tensor.numel() * tensor.dtype.itemsize
            if size > tensor.untyped_storage().nbytes():
                total += size
    return total


# -- several results -------------------------------------------------------------------------------


def number_of_pieces(packet: str, args: Any, kwargs: dict[str, Any], may_see: bool) -> int:
    """How many tensors a tensor is cut into, at most; 0 of an operation that does not cut."""
    name = packet.removeprefix("unsafe_").removesuffix("_copy")
    tensor = _first(args, kwargs)
    if name not in _SEVERAL or not isinstance(tensor, (torch.Tensor, Failure)):
        return 0
    shape = tuple(tensor.shape) or (1,)
    given = [*args[1:], *kwargs.values()]
    if name in ("unbind", "split", "split_with_sizes"):
        # As many as there are along the longest dimension, if each is one thick; the exact number where it is told.
        most = _length(shape, args, kwargs, 1 if name == "unbind" else 2)
        size = (
            argument(args, kwargs, 1, "split_size", kwargs.get("split_size_or_sections"))
            if name != "unbind"
            else 1
        )
        if isinstance(size, (list, tuple)):
            return len(size)
        return -(-most // size) if type(size) is int and size > 0 else most
    found = 0
    for value in given:
        if isinstance(value, (list, tuple)):
            found = max(found, len(value) + 1)
        elif isinstance(value, torch.Tensor):
            found = max(found, value.numel() + 1)
            if may_see and value.numel() == 1 and not value.is_complex():
                found = max(found, number(value))
        elif type(value) is int:
            found = max(found, value)
    return found


def _length(shape: tuple[int, ...], args: Any, kwargs: dict[str, Any], position: int) -> int:
    dim = argument(args, kwargs, position, "dim", 0)
    if type(dim) is int and -len(shape) <= dim < len(shape):
        return shape[dim]
    return max(shape)


# -- results whose size depends on values, or that take more on the way -----------------------------


def argument(args: Any, kwargs: dict[str, Any], position: int, name: str, default: Any) -> Any:
    return args[position] if len(args) > position else kwargs.get(name, default)


def _first(args: Any, kwargs: dict[str, Any]) -> Any:
    """What an operation is about: `input` of a public function, `self` of an aten one."""
    return args[0] if args else kwargs.get("input", kwargs.get("self"))


def _tensor(args: Any, kwargs: dict[str, Any]) -> torch.Tensor:
    first = _first(args, kwargs)
    if not isinstance(first, torch.Tensor):
        raise TypeError(f"The first argument is a tensor; got a {type(first).__name__}.")
    return first


def number(value: Any) -> int:
    """A number that stands in a command, or in a tensor that its user may see."""
    if isinstance(value, torch.Tensor):
        return int(value.max()) if value.numel() and not value.is_complex() else 0
    try:
        return int(value or 0)
    except (TypeError, ValueError, OverflowError):
        return 0  # the operation itself refuses it


def _counts(args: Any, kwargs: dict[str, Any]) -> int:
    return 8 * max(number(_tensor(args, kwargs)) + 1, number(argument(args, kwargs, 2, "minlength", 0)))


def _one_hot(args: Any, kwargs: dict[str, Any]) -> int:
    classes = number(argument(args, kwargs, 1, "num_classes", -1))
    tensor = _tensor(args, kwargs)
    return 8 * tensor.numel() * (classes if classes >= 0 else number(tensor) + 1)


def _repeated(args: Any, kwargs: dict[str, Any]) -> int:
    tensor = args[0] if args else kwargs.get("input", kwargs.get("self", kwargs.get("repeats")))
    if not isinstance(tensor, torch.Tensor):
        raise TypeError(f"repeat_interleave repeats a tensor; got a {type(tensor).__name__}.")
    repeats = argument(args, kwargs, 1, "repeats", tensor)
    if isinstance(repeats, torch.Tensor):
        # NB: each beside it is there as often, also if one count stands for all.
        total = int(repeats.sum()) * (
            1 if repeats is tensor else max(1, tensor.numel() // max(1, repeats.numel()))
        )
    else:
        total = tensor.numel() * number(repeats)
    return int(total * tensor.dtype.itemsize)


def _combinations(args: Any, kwargs: dict[str, Any]) -> int:
    tensor, r = _tensor(args, kwargs), number(argument(args, kwargs, 1, "r", 2))
    if r > _MOST_AT_A_TIME:
        raise QuotaExceededError(
            f"combinations was not run: r is larger than {_MOST_AT_A_TIME}, and its results would have more elements "
            f"than can be counted. Pass r={_MOST_AT_A_TIME} at most."
        )
    # NB: it is made of a mesh of all tuples, with a mask for each.
    return int(tensor.numel() ** max(r, 0) * max(r, 1) * (tensor.dtype.itemsize + 8))


#: torch keeps no tensor of more dimensions, and it is made of one of so many.
_MOST_AT_A_TIME = 64

#: By values: for those who may see them. For others the metadata is asked.
BY_VALUES: dict[str, Callable[[Any, dict[str, Any]], int]] = {
    "bincount": _counts,
    "one_hot": _one_hot,
    "repeat_interleave": _repeated,
}
#: By shapes, but more on the way than the results take.
ON_THE_WAY: dict[str, Callable[[Any, dict[str, Any]], int]] = {"combinations": _combinations}
