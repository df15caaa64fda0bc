"""`admit`: everything that a user hears about an operation, from specs and public values alone.

NOTE [Told before it runs]
Whoever computes on tensors that they may not fetch hears only what this function says: the specs of the results, or an
error. It is given no tensor, so nothing that it says depends on one. It is total: for whatever arguments it returns
or raises, in bounded time, and allocates no memory for tensors (torch's meta kernels have none). It imports nothing that
holds values; an import contract keeps it so.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from syft.core import shapes
from syft.core.commands import refuse_numbers_for_kinds
from syft.core.memory import Memory
from syft.core.spec import TensorSpec, extent_in_bytes
from syft.exceptions import OperationNotAdmittedError, SyftError
from syft.operations.expansion import Expansion
from syft.operations.row import Call, Row, Way
from syft.operations.spec_checks import LARGEST_SIZE, MOST_RESULTS, overlaps_itself
from syft.operations.table import all_rows

#: Arguments of calls that are remembered. A call with more is worked out every time.
_MOST_REMEMBERED = 512
#: Values in the arguments of one call, and characters in a string among them.
_MOST_VALUES = 2**16
_LONGEST_STRING = 200

_admissions: Memory[tuple[Any, ...], Admission] = Memory(20_000)

_OTHER_PUBLIC = (torch.device, torch.layout, torch.memory_format)
#: Types of public values that are equal only if they are the same.
EXACT = frozenset({int, bool, type(None), str, torch.dtype, torch.layout, torch.memory_format})


def size_in_memory(spec: TensorSpec) -> int:
    """The bytes of a tensor that has its memory for itself, with the gaps between its elements."""
    return extent_in_bytes(spec) + spec.offset * spec.dtype.itemsize


def _is_possible(spec: TensorSpec) -> bool:
    """Whether there can be a tensor of that spec."""
    numbers = (*spec.shape, *spec.strides, spec.offset)
    return (
        all(0 <= n < LARGEST_SIZE for n in numbers) and max(size_in_memory(spec), spec.nbytes) < LARGEST_SIZE
    )


class Result:
    """One new value of an operation.

    spec     its metadata
    view_of  the place of the tensor that it shares memory with, among all tensors of the call; None: none
    """

    __slots__ = ("spec", "view_of")

    def __init__(self, spec: TensorSpec, view_of: int | None = None) -> None:
        self.spec, self.view_of = spec, view_of

    def __repr__(self) -> str:
        return f"Result({self.spec}, view_of={self.view_of})"


def _is_empty(result: Result) -> bool:
    return result.view_of is None and 0 in result.spec.shape


class Admission:
    """What an operation will return, write and cost. Equal calls share one.

    answer   the specs of all values that it returns; see syft.core.shapes
    results  those that are new, in order
    writes   the places of the tensors that it writes into, among all tensors of the call
    work     a bound on its steps
    memory   a bound on the bytes that it takes while it runs, results included
    """

    __slots__ = (
        "answer",
        "makes_nothing",
        "makes_one",
        "memory",
        "of_kernel",
        "operation",
        "result_bytes",
        "results",
        "row",
        "straight",
        "work",
        "writes",
    )

    def __init__(
        self,
        row: Row,
        answer: shapes.Answer,
        results: tuple[Result, ...],
        writes: tuple[int, ...],
        work: int,
        memory: int,
    ) -> None:
        self.row, self.operation = row, row.name
        self.answer, self.results, self.writes = answer, results, writes
        self.work, self.memory = work, memory
        #: It makes one new tensor, and writes into none.
        self.makes_one = not writes and answer.spec is not None and results[0].view_of is None
        #: All that it makes has no elements, and it writes into nothing: no kernel is called for it.
        self.makes_nothing = bool(results) and not writes and all(_is_empty(r) for r in results)
        #: How its kernel is run at once, where nothing else is to be done: see `running.straight_of`.
        self.straight: Any = None
        #: The same with results that lie as its kernel makes them: see `on_tensors.admission_of`.
        self.of_kernel: Admission | None = None
        self.result_bytes = sum(size_in_memory(r.spec) for r in results if r.view_of is None)

    @property
    def way(self) -> Way:
        return self.row.way

    @property
    def row_wise(self) -> str | None:
        return self.row.row_wise

    def __repr__(self) -> str:
        return f"Admission({self.operation}, {self.way}, {list(self.results)}, writes={list(self.writes)})"


def admit(operation: str, args: Sequence[Any], kwargs: Mapping[str, Any] | None = None) -> Admission:
    """What an operation will return, from `TensorSpec`s in place of its tensors; see NOTE [Told before it runs].

    !! OperationNotAdmittedError if it is not in the table, and whatever torch says of wrong shapes, types and values.
    """
    key: list[Any] = [operation]
    specs: list[TensorSpec] = []
    count = _scan(args, key, specs, 0)
    if kwargs:
        for name, value in kwargs.items():
            key.append(name)
            count = _scan((value,), key, specs, count)
    if count <= _MOST_REMEMBERED:
        known = _admissions.get(tuple(key))
        if known is not None:
            return known
    admission = _worked_out(operation, args, dict(kwargs or {}), specs)
    if count <= _MOST_REMEMBERED and len(admission.results) <= _MOST_REMEMBERED:
        _admissions[tuple(key)] = admission
    return admission


#: The admission of a call that was asked for before. The key is its name and, of each argument in turn, its spec; or its
#: type and its value, of a float the `repr`; or, of a list, (list, length) and its items. Arguments by name follow, each
#: after its name.
remembered = _admissions.get


def key_of(operation: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Any, ...] | None:
    """All that a call on specs and public values depends on; None if it has too many of them to be remembered."""
    key: list[Any] = [operation]
    count = _scan(args, key, [], 0)
    for name, value in kwargs.items():
        key.append(name)
        count = _scan((value,), key, [], count)
    return tuple(key) if count <= _MOST_REMEMBERED else None


def _scan(values: Any, key: list[Any], specs: list[TensorSpec], count: int) -> int:
    """Note all that a call depends on, and its specs in order. !! TypeError for what is neither spec nor public value."""
    for value in values:
        kind = type(value)
        count += 1
        if kind is TensorSpec:
            key.append(value)
            specs.append(value)
        elif kind in EXACT:
            key.append(kind)
            key.append(value)
            if kind is str and len(value) > _LONGEST_STRING:
                raise ValueError(
                    f"An argument is a string of {len(value)} characters. Pass at most {_LONGEST_STRING}."
                )
        elif kind is float or kind is complex:
            key.append(kind)
            # NB: -0.0 equals 0.0, and NaN does not equal itself.
            key.append(repr(value))
        elif kind is list or kind is tuple or kind is torch.Size:
            key.append((list, len(value)))
            count = _scan(value, key, specs, count)
        elif isinstance(value, _OTHER_PUBLIC):
            key.append(str(value))
        else:
            raise TypeError(
                f"admit takes the specs of tensors and public values; got a {kind.__name__}. Pass `spec_of(tensor)` in "
                "place of a tensor."
            )
        if count > _MOST_VALUES:
            raise ValueError(f"A call has more than {_MOST_VALUES} arguments. Split it.")
    return count


def _worked_out(operation: str, args: Any, kwargs: dict[str, Any], specs: list[TensorSpec]) -> Admission:
    row = all_rows().get(operation) if type(operation) is str else None
    if row is None or row.inner:
        raise OperationNotAdmittedError(operation)
    refuse_numbers_for_kinds(operation, row.kinds, args, kwargs)
    call = Call(operation, row.layout, args, kwargs)
    _refuse_elsewhere(call)
    if row.check is not None:
        _in_sentences(operation, lambda: row.check(call))  # type: ignore[misc]
    writes = _written_places(row, call, args, kwargs)
    admission: Admission = _in_sentences(operation, lambda: _asked(row, call, args, kwargs, specs, writes))
    return admission


def _asked(
    row: Row, call: Call, args: Any, kwargs: dict[str, Any], specs: list[TensorSpec], writes: tuple[int, ...]
) -> Admission:
    expansion = Expansion(row) if row.way == "decomposed" else None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        predicted = shapes.predict(row.function, args, kwargs, expansion)
    if predicted is None:
        raise OperationNotAdmittedError(
            row.name, "The shape of its result depends on values, or torch cannot tell it."
        )
    answer, fresh, views = predicted
    if len(fresh) > MOST_RESULTS or not all(map(_is_possible, fresh)):
        raise ValueError(
            f"{row.name} was not run: its results are too many, or too large. Pass smaller sizes."
        )
    results = tuple(Result(spec, view) for spec, view in zip(fresh, views, strict=True))
    made = [r.spec for r in results if r.view_of is None]
    work = row.work(specs, fresh, call) if expansion is None else expansion.work
    extra = row.extra(specs, fresh, call) if expansion is None else expansion.memory
    memory = sum(map(size_in_memory, made)) + extra + 2 * sum(specs[i].nbytes for i in writes)
    return Admission(row, answer, results, writes, work, memory)


def _refuse_elsewhere(call: Call) -> None:
    """Tensors are dense and on the CPU, and nobody brings a generator."""
    for name, value in call.items():
        if name == "layout" and value not in (None, torch.strided):
            raise OperationNotAdmittedError(call.operation, f"Workers hold dense tensors, not {value}.")
        if name == "pin_memory" and value:
            raise OperationNotAdmittedError(call.operation, "Workers do not pin memory.")


def _written_places(row: Row, call: Call, args: Any, kwargs: dict[str, Any]) -> tuple[int, ...]:
    """The places of what is written; !! RuntimeError if elements of it share memory."""
    names = row.written_by(call)
    if not names:
        return ()
    places: list[int] = []
    position = 0
    given = [(row.layout[i][0] if i < len(row.layout) else "", value) for i, value in enumerate(args)]
    for name, value in (*given, *kwargs.items()):
        found = _specs_in(value)
        if name in names:
            places.extend(range(position, position + len(found)))
            if any(map(overlaps_itself, found)):
                raise RuntimeError(
                    f"{row.name}: unsupported operation: more than one element of the written-to tensor refers to a "
                    "single memory location. Please clone() the tensor before performing the operation."
                )
        position += len(found)
    return tuple(places)


def _specs_in(value: Any) -> list[TensorSpec]:
    if type(value) is TensorSpec:
        return [value]
    if isinstance(value, (list, tuple)):
        return [spec for item in value for spec in _specs_in(item)]
    return []


#: What torch raises for wrong arguments; anything else becomes one of these.
_ERRORS_OF_TORCH = (RuntimeError, ValueError, TypeError, IndexError, SyftError)


def _in_sentences(operation: str, ask: Callable[[], Any]) -> Any:
    try:
        return ask()
    except _ERRORS_OF_TORCH:
        raise
    except Exception as error:  # noqa: BLE001  (the meta kernels written in Python assert, and index lists)
        raise ValueError(
            f"{operation} was not run: its arguments do not go together ({type(error).__name__}: {error}). See its "
            "schema in torch."
        ) from None
