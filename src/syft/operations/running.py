"""`run`: an admitted operation on tensors. It returns what was predicted, whatever the values are.

NOTE [Zeros in place of a failure]
Whether an operation fails may depend on values: an index out of range is one bit about the index. So a failure looks
like a result: zeros of the spec that was predicted, in memory of the same size. What was to be written in place is
zeroed, too. The reason is handed back beside the results, for those who may see the values.

NOTE [Memory of its own]
A result that is no view is handed out in new memory of exactly its size, all of it written. Kernels that make
more memory than they fill are not in the table, and what has gaps between its elements is copied. Copies for
elementwise kernels have the same strides, with zeros in the gaps: other strides may give other last digits.

NOTE [Nothing to compute]
Kernels are tested least on tensors without elements: torch 2.11 divides by the number of heads in its attention, and
the process ends. Where all results are empty there is nothing to compute, so no kernel is called: the specs tell all.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any

import torch
from torch._ops import OpOverload
from torch.utils._python_dispatch import TorchDispatchMode

from syft.core.nested import found_in
from syft.core.shapes import contiguous_spec, to_meta
from syft.core.spec import TensorSpec, extent_in_bytes, is_dense_layout, spec_of
from syft.operations.admission import Admission, Result
from syft.operations.expansion import as_specs, inner_row
from syft.operations.row import Call, Row
from syft.operations.spec_checks import overlaps_itself
from syft.operations.table import all_rows
from syft.operations.value_checks import VALUE_CHECKS
from syft.operations.written_whole import WRITTEN_WHOLE


class Outcome:
    """What `run` returns.

    results  a tensor for each result of the admission
    failure  why it failed, for those who may see the values; None if it did not
    """

    __slots__ = ("failure", "results")

    def __init__(self, results: list[torch.Tensor], failure: str | None = None) -> None:
        self.results, self.failure = results, failure


class _Unlike(Exception):
    """A kernel made something else than was predicted, or refused a value."""


def run(admission: Admission, args: Sequence[Any], kwargs: Mapping[str, Any] | None = None) -> Outcome:
    """Run an admitted operation on tensors of the specs that it was admitted for. It never raises because of values."""
    row = admission.row
    given = dict(kwargs) if kwargs else {}
    if admission.makes_nothing:
        tensors = _tensors_of(args, given)
        return Outcome([_zeros(result, tensors) for result in admission.results])
    if "device" in given:
        given["device"] = None
    if admission.makes_one and _is_one_kernel(row.name):
        # Most operations by far.
        try:
            if row.trusts_memory:
                for value in args:
                    if type(value) not in _NO_TENSORS and not _lies_in_order(value):
                        args = _side_by_side(args, row.dense)
                        break
                given = _side_by_side(given, row.dense) if given else given
            made = row.kernel(*args, **given)
            result = admission.results[0]
            if _fits(made, result.spec):
                return Outcome([made])
            return Outcome([fitted(made, result, (), row)])
        except Exception as error:  # noqa: BLE001
            return failed(admission, error, ())
    tensors = _tensors_of(args, given)
    try:
        if admission.writes:
            made = _run_in_place(admission, args, given, tensors)
        else:
            made = _compute(row, args, given, tensors)
        return Outcome(_as_predicted(admission, made, tensors))
    except Exception as error:  # noqa: BLE001  (whatever it is, it must not show)
        return failed(admission, error, tensors)


class Straight:
    """How an operation is run that is one call of torch's kernel, with all that is known of it beforehand.

    kernel   what is called with its arguments
    spec     of the one tensor that it returns; nbytes: of its memory
    view_of  the place of the tensor that the result shares memory with, among all tensors of the call
    writes   the place of the one tensor that it writes into, and nothing else that it returns is new
    """

    __slots__ = ("dtype", "is_contiguous", "kernel", "nbytes", "shape", "spec", "view_of", "writes")

    def __init__(self, kernel: Any, spec: TensorSpec | None, view_of: int | None, writes: int | None) -> None:
        self.kernel, self.spec, self.view_of, self.writes = kernel, spec, view_of, writes
        self.nbytes = 0 if spec is None else spec.nbytes
        self.shape = None if spec is None else spec.shape
        self.dtype = None if spec is None else spec.dtype
        #: Whether `is_contiguous` tells the strides, and the size of its memory the offset.
        self.is_contiguous = (
            spec is not None and view_of is None and 1 not in spec.shape and _is_contiguous(spec)
        )

    def is_made(self, made: torch.Tensor, args: Sequence[Any]) -> bool:
        """Whether the kernel made what was predicted: see NOTE [Memory of its own]."""
        if made.shape != self.shape or made.dtype is not self.dtype:
            return False
        storage = made.untyped_storage()
        if self.is_contiguous:
            return made.is_contiguous() and storage.nbytes() == self.nbytes
        spec: Any = self.spec
        if made.stride() != spec.strides or made.storage_offset() != spec.offset:
            return False
        if self.view_of is None:
            return storage.nbytes() == self.nbytes
        tensors = [value for value in args if type(value) is torch.Tensor]
        return bool(storage._cdata == tensors[self.view_of].untyped_storage()._cdata)


#: The same kernels, called as Python programs call them: that takes a fifth less time beside the kernel.
_BINDINGS = {
    "aten.addmm.default": torch.addmm,
    "aten.mm.default": torch.mm,
    "aten.relu.default": torch.relu,
    "aten.t.default": torch.t,
}
#: In the place of how to run an operation: more is to be done than to call a kernel.
NOT_STRAIGHT: Any = object()


def straight_of(admission: Admission, args: Sequence[Any]) -> Any:
    """How an admitted operation on such arguments is run at once, or `NOT_STRAIGHT`.

    `args` are specs and public values. What is answered holds for all calls that share the admission.
    """
    row = admission.row
    if row.way != "native" or row.is_random or row.name in WRITTEN_WHOLE or admission.makes_nothing:
        return NOT_STRAIGHT
    if row.trusts_memory and not all(type(v) is not TensorSpec or _is_in_order(v) for v in args):
        return NOT_STRAIGHT
    if len(admission.writes) == 1 and not admission.results:
        is_whole = row.direct and not row.changes_metadata
        return Straight(row.kernel, None, None, admission.writes[0]) if is_whole else NOT_STRAIGHT
    if admission.writes or admission.answer.spec is None:
        return NOT_STRAIGHT
    result = admission.results[0]
    if row.is_view is (result.view_of is None):  # a view that is a copy here, or the other way round
        return NOT_STRAIGHT
    return Straight(_BINDINGS.get(row.name, row.kernel), result.spec, result.view_of, None)


def _is_contiguous(spec: TensorSpec) -> bool:
    return contiguous_spec(spec.shape, spec.dtype).strides == spec.strides and not spec.offset


def _is_in_order(spec: TensorSpec) -> bool:
    return is_dense_layout(spec.shape, spec.strides)


@cache
def _is_one_kernel(name: str) -> bool:
    """Whether an operation is one call of torch's kernel, with nothing to be checked, drawn or written beside it."""
    row = all_rows()[name]
    return row.way == "native" and not row.is_random and not row.is_view and name not in WRITTEN_WHOLE


def _tensors_of(args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[torch.Tensor]:
    """All tensors of a call, in order."""
    found: list[torch.Tensor] = []
    for value in (*args, *kwargs.values()) if kwargs else args:
        if isinstance(value, torch.Tensor):
            found.append(value)
        elif isinstance(value, (list, tuple)):
            found.extend(found_in(value, torch.Tensor))
    return found


def failed(admission: Admission, error: Exception, tensors: Sequence[torch.Tensor]) -> Outcome:
    """See NOTE [Zeros in place of a failure]."""
    with torch.no_grad():
        for place in admission.writes:
            tensors[place].zero_()
    reason = str(error) if type(error) is _Unlike else f"{type(error).__name__}: {error}"
    return Outcome([_zeros(result, tensors) for result in admission.results], reason)


# -- how it runs -----------------------------------------------------------------------------------------


def _compute(row: Row, args: Any, kwargs: dict[str, Any], tensors: list[torch.Tensor]) -> Any:
    """The result of an operation as torch makes it, below the walls of NOTE [Memory of its own]."""
    if row.way == "checked":
        reason = VALUE_CHECKS[row.packet](Call(row.name, row.layout, args, kwargs))
        if reason is not None:
            raise _Unlike(f"{row.name} was not run: {reason}")
    if row.way == "decomposed":
        with (
            torch.set_grad_enabled(any(t.requires_grad for t in tensors)),
            own_randomness(),
            _Tabled(row.name),
        ):
            return row.function(*args, **kwargs)
    if row.trusts_memory:
        args, kwargs = _side_by_side(args, row.dense), _side_by_side(kwargs, row.dense)
    function = WRITTEN_WHOLE.get(row.name, row.function)
    if row.is_random:
        with own_randomness():
            return function(*args, **kwargs)
    return function(*args, **kwargs)


def _nothing_made(row: Row, args: Any, kwargs: dict[str, Any]) -> Any:
    """The results of an operation, if all of them are empty; else None. See NOTE [Nothing to compute]."""
    tensors = _tensors_of(args, kwargs)
    if row.is_view or row.declared_writes or row.writes or all(t.numel() for t in tensors):
        return None
    try:
        with torch.device("meta"):
            made = row.function(*to_meta(as_specs(args)), **to_meta(as_specs(kwargs)))
    except Exception:  # noqa: BLE001  (torch cannot tell without values, or refuses it: its kernel will say so)
        return None
    parts = list(found_in(made, torch.Tensor))
    if not parts or any(part.numel() for part in parts):
        return None

    def put(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return torch.zeros(value.shape, dtype=value.dtype, device=tensors[0].device)
        return type(value)(map(put, value)) if isinstance(value, (tuple, list)) else value

    return put(made)


_NO_TENSORS = frozenset({int, float, bool, type(None), str, torch.dtype})


def _lies_in_order(value: Any) -> bool:
    """Whether a value is a tensor that needs no copy to be read in the order of its memory."""
    return type(value) is torch.Tensor and value.is_contiguous()


def _side_by_side(value: Any, keeps_strides: bool) -> Any:
    """Arguments whose elements share memory, or have gaps between them, as copies of their own."""
    kind = type(value)
    if kind is torch.Tensor or isinstance(value, torch.Tensor):
        if value.is_contiguous() or is_dense(value):
            return value
        return _with_zeros_between(value) if keeps_strides else value.contiguous()
    if kind is list or kind is tuple:
        return kind([v if type(v) in _NO_TENSORS else _side_by_side(v, keeps_strides) for v in value])
    if isinstance(value, dict):
        return {k: _side_by_side(v, keeps_strides) for k, v in value.items()}
    return value


def _with_zeros_between(tensor: torch.Tensor) -> torch.Tensor:
    """A copy with the same strides, in memory for as many elements at least; in order, if elements share memory."""
    shown = tensor
    for dimension, stride in enumerate(tensor.stride()):
        if stride == 0:
            shown = shown.narrow(dimension, 0, 1)
    if overlaps_itself(spec_of(shown)):
        return tensor.contiguous()
    count = max(tensor.numel(), extent_in_bytes(spec_of(tensor)) // tensor.dtype.itemsize)
    memory = torch.zeros(count, dtype=tensor.dtype, device=tensor.device)
    memory.as_strided(shown.shape, shown.stride()).copy_(shown)
    return memory.as_strided(tensor.shape, tensor.stride())


def is_dense(tensor: torch.Tensor) -> bool:
    """Whether its elements fill its memory, in whatever order."""
    return is_dense_layout(tensor.shape, tensor.stride())


def compute_inner(row: Row, args: Any, kwargs: dict[str, Any]) -> Any:
    """One of the operations that an admitted function runs as, or its backward pass."""
    nothing = _nothing_made(row, args, kwargs)
    return _compute(row, args, kwargs, []) if nothing is None else nothing


class _Tabled(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Inside, every operation is run as its row says; one that has no row fails."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Not to be wrapped by torch, which takes as long as a small operation: nothing here is compiled."""
        return False

    def __init__(self, name: str) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.name = name

    def __torch_dispatch__(
        self, func: OpOverload, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        row = inner_row(self.name, func)
        if row.way == "decomposed":
            return func(*args, **(kwargs or {}))
        return compute_inner(row, args, kwargs or {})


@contextlib.contextmanager
def own_randomness() -> Iterator[None]:
    """Inside, random numbers come from the operating system, and torch's generator is left as it was.

    How many numbers an operation draws may depend on its data, and the next one drawn would tell.
    """
    generators = [torch.default_generator]
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        generators.extend(torch.cuda.default_generators)
    states = [generator.get_state() for generator in generators]
    for generator in generators:
        generator.manual_seed(new_seed())
    try:
        yield
    finally:
        for generator, state in zip(generators, states, strict=True):
            generator.set_state(state)


def new_seed() -> int:
    return secrets.randbits(63)


# -- in place --------------------------------------------------------------------------------------------


def _run_in_place(
    admission: Admission, args: Any, kwargs: dict[str, Any], tensors: list[torch.Tensor]
) -> Any:
    """Run it on copies of what it writes, and copy those back when it has succeeded."""
    row = admission.row
    if row.direct and _are_alone(tensors, admission.writes):
        return row.function(*args, **kwargs)
    copies = _Copies(admission, tensors)
    new_args, new_kwargs = copies.put_into(args), copies.put_into(kwargs)
    made = _compute(row, new_args, new_kwargs, tensors)
    copies.write_back()
    return made


def _are_alone(tensors: list[torch.Tensor], places: tuple[int, ...]) -> bool:
    """Whether nothing else that is read or written shares memory with what is written."""
    if len(tensors) == 1:
        return True
    memories = [t.untyped_storage()._cdata for t in tensors]
    if len(places) == 1:
        return memories.count(memories[places[0]]) == 1
    return len(set(memories)) == len(memories)


def _copied_memory(storage: Any) -> torch.Tensor:
    return torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage.clone())


class _Copies:
    """Copies of the tensors that an operation writes. Those that share memory share it in their copies."""

    def __init__(self, admission: Admission, tensors: list[torch.Tensor]) -> None:
        self._of_place: dict[int, torch.Tensor] = {}
        self._originals = [tensors[place] for place in admission.writes]
        memories: dict[int, torch.Tensor] = {}
        with torch.no_grad():
            for place in admission.writes:
                tensor = tensors[place].detach()
                storage = tensor.untyped_storage()
                if storage._cdata not in memories:
                    memories[storage._cdata] = _copied_memory(storage)
                memory: Any = memories[storage._cdata].untyped_storage()
                self._of_place[place] = torch.empty(0, dtype=tensor.dtype, device=tensor.device).set_(
                    memory, tensor.storage_offset(), tensor.shape, tensor.stride()
                )
        self._place = 0

    def put_into(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            self._place += 1
            return self._of_place.get(self._place - 1, value)
        if isinstance(value, (tuple, list)) and not isinstance(value, torch.Size):
            return type(value)(self.put_into(v) for v in value)
        if isinstance(value, dict):
            return {k: self.put_into(v) for k, v in value.items()}
        return value

    def write_back(self) -> None:
        with torch.no_grad():
            for original, copy in zip(self._originals, self._of_place.values(), strict=True):
                original.copy_(copy)


# -- what is handed out ----------------------------------------------------------------------------------


def _as_predicted(admission: Admission, made: Any, tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    results = admission.results
    if not results:
        return []
    if type(made) is torch.Tensor and len(results) == 1:
        return [fitted(made, results[0], tensors, admission.row)]
    if admission.answer.kind is tuple and len(admission.answer.parts) == len(made):
        # A gradient that nobody asked for is left out, one that torch left out is zero.
        made = [_asked_for(value, part) for value, part in zip(made, admission.answer.parts, strict=True)]
    fresh = list(_new_tensors(made, admission.row.function._schema.returns))
    if len(fresh) != len(results):
        raise _Unlike(f"{admission.operation} made {len(fresh)} tensors instead of {len(results)}.")
    return [fitted(t, result, tensors, admission.row) for t, result in zip(fresh, results, strict=True)]


def _asked_for(value: Any, part: Any) -> Any:
    if part is None:
        return None
    return _memory_for(part).as_strided(part.shape, part.strides) if value is None else value


def _new_tensors(made: Any, returns: Any) -> Iterator[torch.Tensor]:
    for index, value in enumerate(made if isinstance(made, (tuple, list)) else (made,)):
        info = returns[index].alias_info if index < len(returns) else None
        if info is None or not info.is_write:
            yield from found_in(value, torch.Tensor)


def _fits(made: torch.Tensor, spec: TensorSpec) -> bool:
    """Whether a new tensor is what was predicted, in memory of exactly its size."""
    return (
        made.dtype is spec.dtype
        and made.shape == spec.shape
        and made.stride() == spec.strides
        and made.storage_offset() == spec.offset
        and made.untyped_storage().nbytes() == spec.nbytes
    )


def fitted(made: torch.Tensor, result: Result, tensors: Sequence[torch.Tensor], row: Row) -> torch.Tensor:
    """A result of exactly the spec that was predicted; see NOTE [Memory of its own]."""
    spec = result.spec
    if made.shape != spec.shape or made.dtype is not spec.dtype:
        raise _Unlike(
            f"{row.name} made {made.dtype} of {list(made.shape)} instead of {spec.dtype} of {list(spec.shape)}."
        )
    if result.view_of is not None:
        source = tensors[result.view_of]
        if made.untyped_storage()._cdata == source.untyped_storage()._cdata and made.stride() == spec.strides:
            return made
        raise _Unlike(f"{row.name} made a copy where a view was predicted.")
    storage = made.untyped_storage()
    if _fits(made, spec) and (
        not (row.way == "decomposed" and any(t.untyped_storage()._cdata == storage._cdata for t in tensors))
    ):
        return made
    return _copied(made, spec)


def _copied(made: torch.Tensor, spec: TensorSpec) -> torch.Tensor:
    """A result in new memory of exactly the size and layout that were predicted."""
    memory = _memory_for(spec, made.device)
    with torch.set_grad_enabled(made.requires_grad):
        if made.stride() == spec.strides and extent_in_bytes(spec) < spec.nbytes:
            # Elements that lie in one place, as in an expanded tensor, are copied once.
            reach = extent_in_bytes(spec) // spec.dtype.itemsize
            memory[spec.offset :] = made.as_strided((reach,), (1,), made.storage_offset())
            return memory.as_strided(spec.shape, spec.strides, spec.offset)
        return memory.as_strided(spec.shape, spec.strides, spec.offset).copy_(made)


def _memory_for(spec: TensorSpec, device: torch.device | None = None) -> torch.Tensor:
    return torch.zeros(
        spec.offset + extent_in_bytes(spec) // spec.dtype.itemsize, dtype=spec.dtype, device=device
    )


def _zeros(result: Result, tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    spec = result.spec
    if result.view_of is not None:
        # NB: a view looks at no values, so only a lack of memory gets here.
        return tensors[result.view_of].as_strided(spec.shape, spec.strides, spec.offset)
    where = tensors[0].device if tensors else None
    return _memory_for(spec, where).as_strided(spec.shape, spec.strides, spec.offset)
