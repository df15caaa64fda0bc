"""Which tensors on a worker have rows that each depend on one record of a private data set.

One duty: to follow records through operations. A released number has noise for what one record can change. For
a data set that is one row; for what was computed from it, only if every operation worked row by row. What is
not known to do so loses the mark, and with it the way out. Imports `core`, `messaging`, `workers`.

NOTE [Marks that expire]
A mark is kept beside the tensor, weakly. What an operation writes into is unmarked, with all that shares its
memory. An aten operation says in its schema what it writes into. A public function does not, and neither do the
normalisations that the executor lists: unless they are told to write, they are given copies of what is
marked. Writes that come by other ways (a callable of the owner's) are noticed by torch's own count of writes to
a memory (`_version`, which views share). NB: it does not count below `__torch_dispatch__`, where a worker in
this process runs.

NOTE [Operations that can fail]
None of those below raises because of a value. One that did would leave a failure in place of all rows, because
of one record. So there is no integer division, and no index that comes from data.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.utils.weak import WeakTensorKeyDictionary

from syft.core.commands import KnownCommand
from syft.core.nested import found_in
from syft.policy.permissions import Allowed, intersect
from syft.workers.entry import Entry
from syft.workers.guards import Guard
from syft.workers.pipeline import Call as GuardedCall


@dataclass(eq=False)
class Source:
    """A data set: an object whose rows are records. `names` are those of the budgets that it is charged to."""

    names: set[str]


def names_of(sources: Iterable[Source]) -> list[str]:
    """What is charged for rows of these: a name once for every source that has it."""
    return sorted(name for source in sources for name in source.names.copy())


@dataclass(frozen=True)
class Rows:
    """Row i of the tensor depends on one record of each source: the i-th, after `cuts` of dimension 0."""

    sources: frozenset[Source]
    cuts: tuple[Any, ...] = ()
    readers: Allowed = None
    """Who may have the other tensors that went in: the noise is not for those."""
    version: int = 0
    declared: Source | None = None
    """The source that this very tensor is."""


class Provenance(Guard):
    """The marks of one worker's tensors; the guard that follows every operation on restricted data."""

    follows_rows = True

    def __init__(self) -> None:
        self._marks: Any = WeakTensorKeyDictionary()
        #: The `id`s of all tensors that have a mark, and of some that had one and are gone.
        self._marked: set[int] = set()

    def declare(self, tensor: torch.Tensor, name: str) -> None:
        """The owner says that dimension 0 of a tensor is records, and under which name they are charged."""
        known = self.rows_of(tensor)
        if known is not None and known.declared is not None:
            known.declared.names.add(name)
            return
        source = Source({name})  # NB: never without a name: others may release it as soon as it is marked
        # What was computed from other data sets is still charged to them, too.
        before = known or Rows(frozenset())
        self._mark(
            tensor,
            replace(before, sources=before.sources | {source}, declared=source, version=tensor._version),
        )

    def _mark(self, tensor: torch.Tensor, rows: Rows) -> None:
        if len(self._marked) > 1000 + 2 * len(self._marks):
            self._marked = set(map(id, self._marks.keys()))
        self._marked.add(id(tensor))
        self._marks[tensor] = rows

    def rows_of(self, obj: Any) -> Rows | None:
        """The mark of a tensor, unless it was written into since."""
        if type(obj) is not torch.Tensor:
            return None
        rows: Rows | None = self._marks.get(obj)
        return rows if rows is not None and rows.version == obj._version else None

    # -- hooks of the pipeline ------------------------------------------------------------------------

    def minds(self, entry: Entry) -> bool:
        """Nothing is marked that is made of what has no mark."""
        return id(entry.value) in self._marked

    def written(self, entry: Entry) -> None:
        """Unmark what an operation writes into, and what shares its memory: see NOTE [Marks that expire]."""
        if type(entry.value) is torch.Tensor:
            self._marks.pop(entry.value, None)

    def may_be_written(self, entry: Entry) -> None:
        """Unmark what a plan or a callable may write into, unless it is a data set: that is kept from strangers."""
        obj = entry.value
        known = self._marks.get(obj) if type(obj) is torch.Tensor else None
        if known is not None and known.declared is None:
            self._marks.pop(obj, None)

    def after_run(
        self, call: GuardedCall, command: KnownCommand, args: Any, kwargs: Any, fresh: list[Any]
    ) -> None:
        """Mark the results of an operation that worked row by row."""
        rule = _RULES.get(command.name)
        rows = self._joined(call, kwargs) if rule is not None and fresh else None
        if rule is None or rows is None:
            return
        operation = Call(
            command.function, args, kwargs, [self.rows_of(t) is not None for t in _tensors(args)], rows
        )
        for result in fresh:
            if type(result) is torch.Tensor and result.dim() and not result.is_inference():
                marked = rule(operation, result)
                if marked is not None:
                    self._mark(result, replace(marked, version=result._version))

    def _joined(self, call: GuardedCall, kwargs: Any) -> Rows | None:
        """The marks of all inputs as one; None if an input is private and has no mark, or rows do not match."""
        if any(True for _ in found_in(kwargs, torch.Tensor)):
            return None
        joined: Rows | None = None
        readers: Allowed = None
        for entry in call.entries:  # NB: all of them stand in positional arguments
            rows = self.rows_of(entry.value)
            if rows is None:
                allowed = entry.allowed
                if allowed is not None and not call.worker.policy.may_get(call.user, allowed):
                    return None
                readers = intersect(readers, allowed)
            else:
                readers = intersect(readers, rows.readers)
                if joined is None:
                    joined = rows
                elif joined.cuts != rows.cuts:
                    return None
                else:
                    joined = replace(joined, sources=joined.sources | rows.sources)
        return None if joined is None else replace(joined, readers=readers, declared=None)


# -- rules -------------------------------------------------------------------------------------------------


def _tensors(values: Any) -> list[torch.Tensor]:
    return list(found_in(values, torch.Tensor))


@dataclass(frozen=True)
class Call:
    """An operation that ran: what it was given, and which of the tensors were marked."""

    func: Any
    args: Sequence[Any]
    kwargs: dict[str, Any]
    is_marked: list[bool]
    rows: Rows

    @property
    def data(self) -> torch.Tensor:
        return _tensors(self.args)[0]

    def named(self, name: str) -> Any:
        """An argument by its name in the schema; its default if it was left out."""
        for position, argument in enumerate(self.func._schema.arguments):
            if argument.name == name:
                return (
                    self.args[position]
                    if position < len(self.args)
                    else self.kwargs.get(name, argument.default_value)
                )
        return None

    def is_aligned_with(self, result: torch.Tensor) -> bool:
        """Whether every marked operand of a broadcast kept its rows: same dimensions, same number of rows."""
        return all(
            t.dim() == result.dim() and t.shape[0] == result.shape[0]
            for t, marked in zip(_tensors(self.args), self.is_marked, strict=True)
            if marked
        )


#: (call, one of its results) -> the mark of the result
Rule = Callable[[Call, torch.Tensor], Rows | None]

_RULES: dict[str, Rule] = {}


def _rule(*operations: str) -> Callable[[Rule], Rule]:
    """Add a rule for aten operations: for "name.overload", or for all overloads of "name" that take tensors."""

    def add(rule: Rule) -> Rule:
        for operation in " ".join(operations).split():
            packet, _, overload = operation.partition(".")
            overloads = [overload] if overload else getattr(torch.ops.aten, packet).overloads()
            for found in overloads:
                schema = getattr(getattr(torch.ops.aten, packet), found)._schema
                takes_tensors = any("Tensor" in str(argument.type) for argument in schema.arguments)
                if takes_tensors and not schema.is_mutable:
                    _RULES[f"aten.{packet}.{found}"] = rule
        return rule

    return add


def _spares_rows(dims: Any, size: int) -> bool:
    """Whether dimensions are named, and the first is not among them."""
    several = list(dims) if isinstance(dims, (list, tuple)) else [dims]
    return bool(several) and all(type(d) is int and d % size != 0 for d in several)


@_rule(
    """abs acos acosh add addcdiv addcmul alias asin asinh atan atan2 atanh bitwise_and bitwise_not bitwise_or
    bitwise_xor ceil celu clamp clamp_max clamp_min clone copysign cos cosh deg2rad detach elu eq erf erfc exp exp2
    expm1 floor fmax fmin frac ge gelu gt hardsigmoid hardswish hardtanh heaviside hypot isfinite isinf isnan le
    leaky_relu lerp log log10 log1p log2 logaddexp logical_and logical_not logical_or logical_xor lt max.other maximum
    min.other minimum mish mul nan_to_num ne neg positive rad2deg reciprocal relu relu6 round rsqrt rsub selu sgn sigmoid
    sign signbit silu sin sinh softplus softshrink sqrt square sub tan tanh threshold trunc where.self
    where.ScalarSelf where.ScalarOther where.Scalar xlogy _to_copy zeros_like ones_like full_like"""
)
def elementwise(call: Call, result: torch.Tensor) -> Rows | None:
    return call.rows if call.is_aligned_with(result) else None


@_rule("div true_divide pow fmod remainder floor_divide")
def elementwise_on_floats(call: Call, result: torch.Tensor) -> Rows | None:
    # NB: dividing integers by zero raises, and so does a negative power of one.
    return elementwise(call, result) if result.is_floating_point() else None


@_rule(
    """sum.dim_IntList mean.dim prod.dim_int amax amin argmax argmin any.dim any.dims all.dim all.dims logsumexp
    var.dim var.correction std.dim std.correction softmax.int _softmax log_softmax.int _log_softmax cumsum cumprod
    max.dim min.dim median.dim sort argsort topk linalg_vector_norm"""
)
def along_a_row(call: Call, result: torch.Tensor) -> Rows | None:
    size = call.data.dim()
    return call.rows if size > 1 and _spares_rows(call.named("dim"), size) else None


@_rule("mm mv addmm addmv linear")
def times_public(call: Call, result: torch.Tensor) -> Rows | None:
    """Rows times a public matrix: the rows stand in "self", "mat1" or "input", and nowhere else but in the bias."""
    names = [argument.name for argument in call.func._schema.arguments]
    is_marked = dict(zip(names, call.is_marked, strict=False))
    if names[0] == "self" and len(call.is_marked) == 3:  # the bias comes first
        first, second = is_marked[names[1]], is_marked[names[2]]
        return call.rows if first and not second and _bias_is_aligned(call, result) else None
    return call.rows if call.data.dim() > 1 and call.is_marked[0] and not any(call.is_marked[1:]) else None


def _bias_is_aligned(call: Call, result: torch.Tensor) -> bool:
    bias = call.args[0]
    return not call.is_marked[0] or (bias.dim() == result.dim() and bias.shape[0] == result.shape[0])


@_rule("view.default reshape _unsafe_view flatten.using_ints unflatten.int view_as_real")
def other_shape(call: Call, result: torch.Tensor) -> Rows | None:
    # Elements keep their order, so that as many rows as before are the same rows.
    return call.rows if result.shape[0] == call.data.shape[0] else None


@_rule(
    """select.int squeeze.dim squeeze.dims unbind.int index_select split.Tensor split.sizes split_with_sizes chunk"""
)
def part_of_a_row(call: Call, result: torch.Tensor) -> Rows | None:
    is_ours = call.is_marked[0] and not any(call.is_marked[1:])
    return call.rows if is_ours and _spares_rows(call.named("dim"), call.data.dim()) else None


@_rule("unsqueeze cat stack")
def beside(call: Call, result: torch.Tensor) -> Rows | None:
    return call.rows if _spares_rows(call.named("dim"), result.dim()) else None


@_rule("slice.Tensor")
def fewer_rows_or_columns(call: Call, result: torch.Tensor) -> Rows | None:
    if _spares_rows(call.named("dim"), call.data.dim()):
        return call.rows
    return replace(call.rows, cuts=(*call.rows.cuts, tuple(call.named(n) for n in ("start", "end", "step"))))


@_rule("transpose.int")
def other_order_of_two(call: Call, result: torch.Tensor) -> Rows | None:
    dims = [call.named("dim0"), call.named("dim1")]
    return call.rows if _spares_rows(dims, call.data.dim()) else None


@_rule("permute")
def other_order(call: Call, result: torch.Tensor) -> Rows | None:
    return call.rows if call.named("dims")[0] % call.data.dim() == 0 else None
