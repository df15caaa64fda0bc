"""Functions made of several operations, each admitted and run by itself: see NOTE [Nothing shows] in admitted.

describe_composed   what a function returns and takes, from metadata
run_composed        the tensors that it returns, zeros where it failed
call_unseen         both, for a function of the owner's
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import torch
from torch._ops import OpOverload
from torch.utils._python_dispatch import TorchDispatchMode

from syft.core import shapes
from syft.core.nested import found_in
from syft.core.ops import OpFacts, facts_of
from syft.core.spec import TensorSpec, extent_in_bytes, spec_of
from syft.exceptions import OperationNotAdmittedError, PermissionDeniedError, RemoteError
from syft.operations import is_admitted, run
from syft.operations.admission import key_of, remembered
from syft.operations.expansion import inner_row
from syft.operations.on_tensors import (
    admission_of,
    as_returned,
    in_own_memory,
    key_of_tensors,
    metas_in,
    on_meta,
    specs_in,
    zeros_of,
)
from syft.operations.running import NOT_STRAIGHT, compute_inner, straight_of
from syft.policy.owner_log import tell_owner
from syft.workers.entry import Entry
from syft.workers.failures import failure_among, mark_failed, prepare_writing, tell_failures
from syft.workers.holdings import storages_of
from syft.workers.results import fresh_results

if TYPE_CHECKING:
    from syft.workers.pipeline import Call


#: Namespaces of what looks at no values: optimizers tell the profiler what they do; a device is metadata.
_ABOUT_NO_VALUES = frozenset({"profiler", "prim"})


class Admitting(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Inside, every operation is admitted first and then run as the table says: on meta tensors, as torch does.

    failure   why the first that failed did; zeros take the place of its results, and everything goes on
    total     the bytes of all results together, which a graph may keep
    largest   of the largest ones
    writes    all tensors that were written into
    """

    failure: str | None
    total: int
    largest: int

    def __init__(self, call: Call | None = None, within: str | None = None) -> None:
        """`within` names a function of the table that runs as operations which are admitted nowhere else."""
        super().__init__()  # type: ignore[no-untyped-call]
        self.call, self.within = call, within
        self.failure = None if call is None else failure_among(call.entries)
        self.total = self.largest = 0

    def __torch_dispatch__(
        self, func: OpOverload, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if self.call is not None and not kwargs:
            made = self._run_again(func, args)
            if made is not None:
                return made
        kwargs = kwargs or {}
        name = facts_of(func).name
        if not name.startswith("aten.") and func.namespace in _ABOUT_NO_VALUES:
            return func(*args, **kwargs)
        if self.within is not None and not is_admitted(name):
            return compute_inner(inner_row(self.within, func), args, kwargs)
        admission = admission_of(name, args, kwargs)
        self.total += admission.result_bytes
        if admission.memory > self.largest:
            self.largest = admission.memory
        if self.call is None:
            # NB: what the function itself holds, such as weights, has values here.
            return func(*metas_in(args), **on_meta(metas_in(kwargs)))
        written: list[torch.Tensor] = []
        if admission.writes:
            tensors = list(found_in((args, kwargs), torch.Tensor))
            written = [tensors[place] for place in admission.writes]
            prepare_writing(self.call, written)
        outcome = run(admission, args, kwargs)
        if outcome.failure is not None and self.failure is None:
            self.failure = outcome.failure
        if written and self.failure is not None:
            mark_failed(self.call.worker, written, self.failure)
        return as_returned(func, admission, outcome.results, written)

    def _run_again(self, func: OpOverload, args: tuple[Any, ...]) -> torch.Tensor | None:
        """The result of an operation like one that was admitted before and is one kernel; None if it is another.

        See NOTE [The short way] in syft.workers.repeated. What fails, or is not what was predicted, is run again, as
        others are.
        """
        key = key_of_tensors(facts_of(func).name, args)
        if key is None:
            return None
        admission = remembered(tuple(key))
        if admission is None:
            return None
        straight = admission.straight
        if straight is None:
            straight = admission.straight = straight_of(admission, key)
        if straight is NOT_STRAIGHT or straight.writes is not None:
            return None
        try:
            made = straight.kernel(*args)
            if not straight.is_made(made, args):
                return None
        except Exception:  # noqa: BLE001  (it is told, or not, when it is run again)
            return None
        self.total += admission.result_bytes
        if admission.memory > self.largest:
            self.largest = admission.memory
        return made  # type: ignore[no-any-return]

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Not to be wrapped by torch, which takes as long as a small operation: nothing here is compiled."""
        return False


class Described:
    """What is known of a composed call beforehand, from metadata.

    answer    the specs of its results as they are structured; `specs` are those of the tensors among them
    total     the bytes of all values on the way, results included
    transient what it may take while it runs
    """

    __slots__ = ("answer", "result_bytes", "specs", "total", "transient")

    def __init__(self, answer: shapes.Answer, specs: list[TensorSpec], total: int, largest: int = 0) -> None:
        self.answer, self.specs, self.total = answer, specs, total
        self.transient = max(total, largest)
        self.result_bytes = sum(map(extent_in_bytes, specs))


def describe_composed(
    compute: Callable[[], Any], within: str | None = None, facts: OpFacts | None = None
) -> Described:
    """What a function of meta tensors returns. !! OperationNotAdmittedError, and whatever torch says of the metadata"""
    mode = Admitting(within=within)
    with torch.no_grad(), torch.device("meta"), mode:
        result = compute()
    specs = [spec_of(t) for t in fresh_results(result, facts)]
    return Described(shapes.describe(result, facts), specs, mode.total, mode.largest)


#: What is known of functions of the table that several operations make up, by what it depends on.
_described: dict[tuple[Any, ...], Described] = {}
_MOST_DESCRIBED = 2_000


def describe_function(
    name: str, function: Callable[..., Any], args: list[Any], kwargs: dict[str, Any]
) -> Described:
    """`describe_composed` of a function of the table on these values, which is worked out once for values like them."""
    specs, named = specs_in(args), specs_in(kwargs)
    key = key_of(name, specs, named)
    known = None if key is None else _described.get(key)
    if known is None:
        known = describe_composed(
            lambda: function(*shapes.to_meta(specs), **shapes.to_meta(named)), within=name
        )
        if key is not None and len(known.specs) <= _MOST_DESCRIBED:
            if len(_described) >= _MOST_DESCRIBED:
                _described.clear()
            _described[key] = known
    return known


def run_composed(
    call: Call,
    compute: Callable[[], Any],
    described: Described,
    grad: bool = False,
    within: str | None = None,
    mode: Any = None,
) -> tuple[list[torch.Tensor], str | None]:
    """The tensors that a function returns, and why they are zeros, if they are: see NOTE [Nothing shows].

    `mode` is what it runs in, and knows what failed; if left out, every operation is admitted (`Admitting`).
    """
    may_see = call.may_see
    if may_see:
        tell_failures(call.entries)
    mode = Admitting(call, within) if mode is None else mode
    results: list[torch.Tensor] | None = None
    try:
        with torch.set_grad_enabled(grad), mode:
            results = list(found_in(compute(), torch.Tensor))
        failure = mode.failure
        if [(t.shape, t.dtype) for t in results] != [(s.shape, s.dtype) for s in described.specs]:
            results, failure = None, failure or "its results have other shapes than metadata told."
    except (PermissionDeniedError, OperationNotAdmittedError):
        raise  # told by metadata
    except Exception as error:
        if may_see:
            raise
        failure = f"{type(error).__name__}: {error}"
    if failure is not None and may_see:
        raise RemoteError(f"{call.name} failed on the worker: {failure}")
    if results is None:
        return [zeros_of(spec) for spec in described.specs], failure
    # NB: where an operation failed, zeros took the place of its results and all else went on, so that what comes out
    # shares memory as it would have.
    with torch.set_grad_enabled(grad):
        return in_own_memory(results, lambda: memories_of(call.entries)), failure


def call_unseen(
    call: Call, function: Callable[..., Any], args: list[Any], kwargs: dict[str, Any]
) -> tuple[torch.Tensor, str | None]:
    """Call a function of the owner's for a user who may not see its inputs: its result, and why it is zeros, if it is.

    !! OperationNotAdmittedError unless shapes and types alone tell that it returns one tensor, and which
    """
    name = "The remote callable"
    try:
        described = describe_composed(lambda: function(*metas_in(args), **metas_in(kwargs)))
    except (PermissionDeniedError, OperationNotAdmittedError):
        raise
    except Exception as error:  # noqa: BLE001  (whatever it is, it must not show)
        tell_owner(name, error)
        raise OperationNotAdmittedError(
            name,
            f"What it returns cannot be told from the shapes and types of its inputs: it raised {type(error).__name__}.",
            "Ask the owner for one that looks at no values, or for the permission to fetch its inputs.",
        ) from None
    if len(described.specs) != 1 or described.answer.spec is None:
        raise OperationNotAdmittedError(
            name, "It does not return one tensor.", "Ask the owner for one that does."
        )
    call.check_fits(described.result_bytes, 1, described.transient)
    results, failure = run_composed(call, lambda: function(*args, **kwargs), described)
    return results[0], failure


def memories_of(entries: Iterable[Entry]) -> set[Any]:
    """Identities of the memory behind these objects."""
    found: set[Any] = set()
    for entry in entries:
        value = entry.value
        if entry.memory is not None:
            found.add(entry.blocks[0])
        elif type(value) is torch.Tensor and value.layout is torch.strided:
            found.add(value.untyped_storage()._cdata)
        else:
            found |= storages_of(value)
    return found
