"""Running admitted operations on what a worker holds: the steps admit, run and store of a guarded command.

NOTE [Nothing shows]
Whoever runs an operation on data that they may not fetch learns nothing of it but what its metadata tells. Everything
they hear is decided by `syft.operations.admit`, which is given specs and public values. What happens to the values
shows nowhere:

- results are restricted like their inputs, and so is everything that shares memory with what was written;
- a failure (an index out of bounds is one bit about the index) is stored as zeros of the spec that was predicted, and
  noted in `Entry.failure`. Only `get` looks at that note, for those who may fetch the object, and releases do;
- a result has memory of its own, exactly as large as was predicted, unless metadata alone tells that it is a view.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch._ops import OpOverload
from torch.utils._python_dispatch import TorchDispatchMode

from syft.core import shapes
from syft.core.abstract import AbstractTensor
from syft.core.chain import Wrapper
from syft.core.commands import KnownCommand
from syft.core.ids import ID_PROVIDER
from syft.core.interfaces import Worker
from syft.core.nested import found_in
from syft.core.ops import OpFacts, facts_of
from syft.core.spec import TensorSpec, extent_in_bytes, spec_of
from syft.exceptions import (
    OperationNotAdmittedError,
    PermissionDeniedError,
    RemoteError,
    ResponseSignatureError,
    UnsupportedOperationError,
)
from syft.messaging.message import Operation
from syft.operations import Admission, admit, is_admitted, run
from syft.operations.admission import remembered
from syft.operations.expansion import inner_row
from syft.operations.running import compute_inner
from syft.policy.owner_log import tell_owner
from syft.tensors.decomposed import run_decomposed
from syft.workers.entry import Entry
from syft.workers.holdings import storages_of
from syft.workers.results import fresh_results

if TYPE_CHECKING:
    from syft.workers.pipeline import Call


#: An operation that takes no more than this is charged when its result is stored, and not before.
_TINY = 1 << 12


def execute_admitted(
    call: Call, message: Operation, command: KnownCommand, args: list[Any], kwargs: dict[str, Any]
) -> Any:
    """Admit, run and store one operation; see NOTE [Nothing shows]. Replies (ids, metadata) if asked to."""
    worker = call.worker
    if not worker.admits_only_table and not is_admitted(command.name):
        # The clients of an open worker decompose nothing, because most of its data is open.
        if not isinstance(command.function, OpOverload):
            return _execute_composed(call, message, command.function, args, kwargs)
        facts = facts_of(command.function)
        return _execute_composed(call, message, _decomposition(command.function), args, kwargs, facts)
    admission = admission_of(command.name, args, kwargs)
    if admission.memory > _TINY or len(admission.results) > 1:
        call.check_fits(admission.result_bytes, len(admission.results), admission.memory)
    failure = failure_among(call.entries)
    if failure is not None and call.may_see:
        tell_failures(call.entries)
    written: list[torch.Tensor] = []
    if admission.writes:
        tensors = list(found_in((args, kwargs), torch.Tensor))
        written = [tensors[place] for place in admission.writes]
        prepare_writing(call, written)
    outcome = run(admission, args, kwargs)
    if outcome.failure is not None:
        if call.may_see:
            raise RemoteError(f"{admission.operation} failed on the worker: {outcome.failure}")
        failure = failure or outcome.failure
    if failure is not None:
        mark_failed(worker, written, failure)
    for guard in call.guards:
        guard.after_run(call, command, args, kwargs, outcome.results)
    if len(outcome.results) == 1 and len(message.return_ids) == 1 and not message.wants_specs:
        call.keep(message.return_ids[0], outcome.results[0], failure)
        return None
    return _keep(call, message, admission.answer, outcome.results, failure)


def _decomposition(function: OpOverload) -> Callable[..., Any]:
    return lambda *args, **kwargs: run_decomposed(function, args, kwargs)


def _execute_composed(
    call: Call,
    message: Operation,
    function: Callable[..., Any],
    args: list[Any],
    kwargs: dict[str, Any],
    facts: OpFacts | None = None,
) -> Any:
    """A function made of several operations, each of which is admitted and run by itself."""
    metas, named = metas_in(args), _on_meta(metas_in(kwargs))
    described = describe_composed(lambda: function(*metas, **named), facts=facts)
    call.check_fits(described.result_bytes, len(described.specs), transient=described.transient)
    results, failure = run_composed(call, lambda: fresh_results(function(*args, **kwargs), facts), described)
    if not message.return_ids and not message.wants_specs and all(any(r is a for a in args) for r in results):
        return None  # it wrote into an argument and returned that
    return _keep(call, message, described.answer, results, failure)


def _keep(
    call: Call, message: Operation, answer: shapes.Answer, results: list[torch.Tensor], failure: str | None
) -> Any:
    """Store what is new under the ids of the message.

    If there are too few ids the rest are stored under ids of their own, and !! ResponseSignatureError carries them all.
    """
    given = list(message.return_ids)
    used = [given.pop() if given else ID_PROVIDER.pop() for _ in results]
    for obj_id, value in zip(used, results, strict=True):
        call.keep(obj_id, value, failure)
    if message.wants_specs:
        return tuple(used), answer
    if len(used) != len(message.return_ids):
        raise ResponseSignatureError(used)
    return None


# -- failures --------------------------------------------------------------------------------------


def failure_among(entries: Iterable[Entry]) -> str | None:
    """Why one of these could not be computed; None if all were."""
    for entry in entries:
        if entry.failure is not None:
            return entry.failure
    return None


def tell_failures(entries: Iterable[Entry]) -> None:
    """!! RemoteError if one of these could not be computed. For those who may fetch them."""
    failure = failure_among(entries)
    if failure is not None:
        raise RemoteError(f"The value could not be computed on the worker: {failure}")


def mark_failed(worker: Worker, written: list[torch.Tensor], failure: str) -> None:
    """A failed write: what was to be written is zeros, and so is what shares its memory."""
    for entry in worker.sharing(written) if written else ():
        entry.failure = failure


def prepare_writing(call: Call, written: list[torch.Tensor]) -> None:
    """Restrict what is written into, and what shares its memory, like the inputs of the call.

    !! SendNotPermittedError if data that was brought here as private is to be changed by one who may not
    """
    worker = call.worker
    entries = worker.sharing(written)
    for entry in entries:
        if entry.is_private or entry.is_owners:
            worker.policy.check_send(call.user, entry.id, worker.changeable_by(entry.id), action="write into")
    for guard in call.guards:
        for entry in entries:
            guard.written(entry)
    worker.taint(written, call.allowed)


# -- functions made of several operations ----------------------------------------------------------


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
            return func(*metas_in(args), **_on_meta(metas_in(kwargs)))
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
        return _as_returned(func, admission, outcome.results, written)

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Not to be wrapped by torch, which takes as long as a small operation: nothing here is compiled."""
        return False


def _as_returned(
    func: OpOverload, admission: Admission, results: list[torch.Tensor], written: list[Any]
) -> Any:
    """New values and written arguments in the structure that an operation returns."""
    answer = admission.answer
    if answer.spec is not None:
        return results[0]
    fresh, aliases = iter(results), iter(written)

    def put(part: Any) -> Any:
        if isinstance(part, shapes.Answer):
            if part.spec is not None:
                return next(fresh)
            return (part.kind or tuple)(put(p) for p in part.parts)
        if isinstance(part, TensorSpec):
            return next(fresh)
        return next(aliases) if part is shapes.ALIAS else None

    parts = [put(part) for part in answer.parts]
    if answer.kind is None:
        return parts[0] if len(func._schema.returns) == 1 else None if not parts else tuple(parts)
    return list(parts) if answer.kind is list else tuple(parts)


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


def run_composed(
    call: Call,
    compute: Callable[[], Any],
    described: Described,
    grad: bool = False,
    within: str | None = None,
) -> tuple[list[torch.Tensor], str | None]:
    """The tensors that a function returns, and why they are zeros, if they are: see NOTE [Nothing shows]."""
    may_see = call.may_see
    if may_see:
        tell_failures(call.entries)
    inputs = _memories_of(call.entries)
    mode = Admitting(call, within)
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
        return _in_own_memory(results, inputs), failure


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


def zeros_of(spec: TensorSpec) -> torch.Tensor:
    memory = torch.zeros(spec.offset + extent_in_bytes(spec) // spec.dtype.itemsize, dtype=spec.dtype)
    return memory.as_strided(spec.shape, spec.strides, spec.offset)


def _memories_of(entries: Iterable[Entry]) -> set[Any]:
    """Identities of the memory behind these objects."""
    found: set[Any] = set()
    for entry in entries:
        value = entry.value
        if type(value) is torch.Tensor and value.layout is torch.strided:
            found.add(value.untyped_storage()._cdata)
        else:
            found |= storages_of(value)
    return found


def _in_own_memory(results: list[torch.Tensor], inputs: set[Any]) -> list[torch.Tensor]:
    """Results, each in memory of exactly its size, unless they are views of inputs."""
    taken: set[Any] = set()
    kept = []
    for result in results:
        storage = result.untyped_storage()
        if storage._cdata not in inputs:
            if storage._cdata in taken or storage.nbytes() != extent_in_bytes(result):
                result = result.clone(memory_format=torch.contiguous_format)
            taken.add(result.untyped_storage()._cdata)
        kept.append(result)
    return kept


# -- metadata --------------------------------------------------------------------------------------


def admission_of(name: str, args: Sequence[Any], kwargs: Mapping[str, Any] | None = None) -> Admission:
    """What an operation on these values will return. One like it that was admitted before costs a look-up."""
    key: list[Any] = [name]
    for value in args:
        kind = type(value)
        if kind is torch.Tensor:
            key.append(spec_of(value))
        elif kind in _EXACT:
            key += (kind, value)
        elif kind is float:
            key += (kind, repr(value))
        elif kind is list and not any(type(item) is not int for item in value):
            key.append((list, len(value)))
            for item in value:
                key += (int, item)
        else:
            break
    else:
        if not kwargs:
            known = remembered(tuple(key))
            if known is not None:
                return known
    return admit(name, specs_in(args), specs_in(kwargs) if kwargs else None)


#: Values that are equal only if they are the same.
_EXACT = frozenset({int, bool, type(None), str, torch.dtype})


def metas_in(values: Any) -> Any:
    """Arguments with meta tensors in the place of tensors."""
    return shapes.to_meta(specs_in(values))


def _on_meta(kwargs: dict[str, Any]) -> dict[str, Any]:
    return {**kwargs, "device": torch.device("meta")} if kwargs.get("device") is not None else kwargs


def specs_in(values: Any) -> Any:
    """Arguments with specs in the place of tensors. !! UnsupportedOperationError for a tensor with other types on top"""
    kind = type(values)
    if kind is torch.Tensor:
        return spec_of(values)
    if kind is list or kind is tuple:
        return [
            spec_of(v) if type(v) is torch.Tensor else v if type(v) in _PLAIN else specs_in(v) for v in values
        ]
    if kind is dict:
        return {k: specs_in(v) for k, v in values.items()}
    if kind is Wrapper or isinstance(values, AbstractTensor):
        name = type(getattr(values, "child", values)).__name__
        raise UnsupportedOperationError(
            f"an operation on a restricted {name}",
            torch.Tensor,
            "Send private data as plain tensors, without other types.",
        )
    return spec_of(values) if isinstance(values, torch.Tensor) else values


_PLAIN = frozenset({int, float, bool, type(None), str, torch.dtype})


@contextlib.contextmanager
def own_randomness(is_restricted: bool = True) -> Iterator[None]:
    """Inside, random numbers come from the operating system and the generator is left as it was.

    How many numbers a callable draws may depend on its data, and the next one drawn would tell.
    """
    if not is_restricted:
        yield
        return
    state = torch.default_generator.get_state()
    torch.default_generator.manual_seed(secrets.randbits(63))
    try:
        yield
    finally:
        torch.default_generator.set_state(state)
