"""Running commands on data that not everybody may see.

NOTE [Nothing shows]
Whoever runs an operation on restricted data learns nothing of it but what the shapes of the inputs tell.
What they may see is worked out from metadata alone, before the data is touched (`foretell`): the shapes of
the results, and errors about shapes. What happens to the data itself shows nowhere:

- results are restricted like their inputs, and so is everything that shares memory with what was written;
- random numbers are drawn apart, so that the next one drawn does not tell how many were used;
- an operation whose result shape depends on the data is refused;
- a failure that depends on the data (an index out of bounds is one bit about the index) is kept in place of
  the result, as a `Failure`, and is told only to those who may fetch the result;
- a failure is found, counted and charged for like the result that it stands for. So a result has memory of its own,
  as large as was foretold, unless metadata alone tells that it is a view; what failed has a stand-in for that memory,
  which its views share; and a failed write leaves a failure with the memory, the tags and the holder of the tensor.
"""

from __future__ import annotations

import contextlib
import secrets
import warnings
from collections.abc import Callable, Collection, Iterator
from functools import cache
from itertools import repeat
from typing import TYPE_CHECKING, Any

import torch
from torch._ops import OpOverload
from torch.utils._python_dispatch import TorchDispatchMode

from syft.core import shapes
from syft.core.commands import KnownCommand
from syft.core.identity import known_identity
from syft.core.nested import found_in
from syft.core.spec import TensorSpec, extent_in_bytes, spec_of
from syft.exceptions import PermissionDeniedError, RemoteError, UnsupportedOperationError
from syft.messaging.message import Operation
from syft.workers.entry import Entry
from syft.workers.permissions import Policy
from syft.workers.results import facts_of_command, fresh_results, keep_results
from syft.workers.sound_arguments import sound
from syft.workers.writes import count_writes, may_write, remeasure, written_by, written_into

if TYPE_CHECKING:
    from syft.workers.pipeline import Call

Run = Callable[[], Any]


class Failure:
    """Stands in the store for the result of an operation that failed on restricted data."""

    __slots__ = ("description", "memory", "reason", "spec", "tags")

    #: Its `memory`. Or what a user holds would tell whether an operation failed.
    costs_what_it_stands_for = True

    def __init__(self, spec: TensorSpec, reason: str, memory: torch.UntypedStorage | None = None) -> None:
        self.spec, self.reason = spec, reason
        #: What the result would hold: memory of others if it is a view of theirs, else a stand-in without values.
        self.memory = memory if memory is not None else _stand_in(_bytes_behind(spec))
        self.tags: Collection[str] = ()
        self.description: str | None = None

    @property
    def shape(self) -> torch.Size:
        return self.spec.shape

    def tell(self) -> Any:
        """Raise what went wrong; for those who may know."""
        raise RemoteError(f"The value could not be computed on the worker: {self.reason}")


def _stand_in(nbytes: int) -> torch.UntypedStorage:
    return torch.empty(nbytes, dtype=torch.uint8, device="meta").untyped_storage()


def _bytes_behind(spec: TensorSpec) -> int:
    """The memory behind a tensor that has it for itself."""
    reach = extent_in_bytes(spec)
    return reach + spec.offset * spec.dtype.itemsize if spec.offset else reach


def execute_restricted(
    call: Call, message: Operation, command: KnownCommand, args: list[Any], kwargs: dict[str, Any], run: Run
) -> Any:
    """Run an operation with restricted inputs; see NOTE [Nothing shows]."""
    facts = facts_of_command(command)
    worker, user, allowed = call.worker, call.user, call.allowed
    if call.may_see:
        for entry in call.entries:
            if type(entry.value) is Failure:
                entry.value.tell()
        if may_write(command):
            refuse_writing_private(worker, command, args, kwargs, user, is_owners)
            for guard in call.guards:
                guard.before_run(call, command, args, kwargs)
            spared = write_protected(worker, command, (args, kwargs), user)
            worker.taint(written_into(command, args, kwargs), allowed, spared)
            try:
                with no_writing_into(worker, spared, user) if spared else contextlib.nullcontext():
                    result = run()
            finally:
                count_writes(command, args, kwargs)
                remeasure(worker, command, args, kwargs)
        else:
            for guard in call.guards:
                guard.before_run(call, command, args, kwargs)
            result = run()
        fresh = fresh_results(result, facts)
        answer = shapes.describe(result, facts) if message.wants_specs else None
    else:
        answer = foretell(worker, command, args, kwargs, user)
        if command.outs or kwargs.get("out") is not None:
            _refuse_resizing(command, args, kwargs)
        refuse_writing_private(worker, command, args, kwargs, user, is_private)
        spared = write_protected(worker, command, (args, kwargs), user)
        for guard in call.guards:
            guard.before_run(call, command, args, kwargs)
        worker.taint(written_into(command, args, kwargs), allowed, spared)
        try:
            with no_writing_into(worker, spared, user):
                fresh, reason = run_concealed(run, answer, facts, (args, kwargs), command)
        finally:
            count_writes(command, args, kwargs)
            remeasure(worker, command, args, kwargs)
        if reason is not None and facts is not None:
            spoil(worker, written_into(command, args, kwargs), reason)
    for guard in call.guards:
        guard.after_run(call, command, args, kwargs, fresh)
    return keep_results(worker, message, fresh, answer, allowed)


def refuse_writing_private(
    worker: Any,
    command: KnownCommand,
    args: list[Any],
    kwargs: dict[str, Any],
    user: str | None,
    is_kept: Callable[[Entry], bool],
) -> None:
    """Data that was brought here as private is not changed by those who may not."""
    facts = facts_of_command(command)
    if facts is not None:
        written = written_into(command, args, kwargs)
    else:
        names_it = command.name.endswith("_") or "out" in kwargs
        written = [*args[:1], kwargs.get("out")] if names_it else []
    for entry in worker.private_among(written, is_kept) if written else ():
        worker.policy.check_send(user, entry.id, worker.changeable_by(entry.id), action="write into")


def is_owners(entry: Entry) -> bool:
    return entry.is_owners


def is_private(entry: Entry) -> bool:
    return entry.is_private


# NOTE [Functions that may write]
# What an aten operation writes into is known. A public function may write into anything it is given (a dropout
# "in place", an embedding that renormalises its weights), so all its arguments are restricted like its
# result. For data that was brought as private that would not do: it must not be changed at all by those who may not
# have it, nor taken from others by way of its restriction. There the aten operations that the function is made of are
# watched instead, and one that writes into such data is not run.


def write_protected(worker: Any, command: KnownCommand, inputs: Any, user: str | None) -> list[Entry]:
    """The entries of what a public function is given and `user` may not change."""
    if isinstance(command.function, OpOverload):
        return []
    found: list[Entry] = worker.private_among(_tensors_in(inputs))
    return [entry for entry in found if not worker.policy.may_change(user, worker.changeable_by(entry.id))]


@contextlib.contextmanager
def no_writing_into(worker: Any, protected: Collection[Entry], user: str | None) -> Iterator[None]:
    """Inside, an aten operation that would write into one of these objects is refused."""
    if not protected:
        yield
        return
    with _Watch(worker, protected, user):
        yield


class _Watch(TorchDispatchMode):  # type: ignore[no-untyped-call]
    def __init__(self, worker: Any, protected: Collection[Entry], user: str | None) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.worker, self.protected, self.user = worker, protected, user

    def __torch_dispatch__(
        self, func: OpOverload, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        for entry in self.worker.private_among(written_by(func, args, kwargs), self.protected.__contains__):
            self.worker.policy.check_send(
                self.user, entry.id, self.worker.changeable_by(entry.id), action="write into"
            )
        return func(*args, **kwargs)


@contextlib.contextmanager
def own_randomness(is_restricted: bool = True) -> Iterator[None]:
    """Inside, random numbers come from the operating system and the generator is left as it was.

    How many numbers an operation draws may depend on its data, and the next one drawn would tell.
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


def run_concealed(
    run: Run, answer: shapes.Answer, facts: Any, inputs: Any, command: KnownCommand | None = None
) -> tuple[list[Any], str | None]:
    """The new values of an operation; if it failed, failures in place of them all, and the reason.

    `inputs` are all that it is given. Where it is one command, they are its `args` and `kwargs`, and its results may
    be views of them; else every result has memory of its own.
    """
    foretold = list(fresh_specs(answer))
    reason = next((value.reason for value in _tensors_in(inputs) if type(value) is Failure), None)
    if reason is None:
        try:
            with own_randomness():
                fresh = fresh_results(run(), facts)
                if [(t.shape, t.dtype) for t in fresh] == [(s.shape, s.dtype) for s in foretold]:
                    return _in_foretold_memory(fresh, foretold, inputs, command), None
            reason = "its shape depends on the data."
        except PermissionDeniedError:
            raise
        except Exception as error:  # noqa: BLE001  (whatever it is, it must not show)
            reason = f"{type(error).__name__}: {error}"
    memories = _memory_of_views(command, inputs, len(foretold))
    return [Failure(*parts) for parts in zip(foretold, repeat(reason), memories, strict=False)], reason


def _in_foretold_memory(
    fresh: list[Any], foretold: list[TensorSpec], inputs: Any, command: KnownCommand | None
) -> list[Any]:
    """Results in memory of their own, as large as foretold; views stay what they are, where metadata tells them."""
    if command is not None and _declares_views(command):
        return fresh
    taken = {t.untyped_storage()._cdata for t in _tensors_in(inputs) if _is_dense(t)}
    memories: list[Any] | None = None
    kept = []
    for index, (result, spec) in enumerate(zip(fresh, foretold, strict=True)):
        if _is_dense(result):
            storage = result.untyped_storage()
            if storage._cdata in taken:
                if memories is None:
                    memories = _memory_of_views(command, inputs, len(foretold))
                is_view = memories[index] is not None
                kept.append(result if is_view else _own_copy(result, spec))
                continue
            taken.add(storage._cdata)
            layout = result.stride(), result.storage_offset(), storage.nbytes()
            if layout != (spec.strides, spec.offset, _bytes_behind(spec)):
                result = _own_copy(result, spec)
        kept.append(result)
    return kept


def _own_copy(result: torch.Tensor, spec: TensorSpec) -> torch.Tensor:
    """A result in new memory of exactly the size and layout that were foretold; !! RuntimeError if it overlaps there."""
    with torch.set_grad_enabled(result.requires_grad):  # it may be the end of a graph
        result = result.resolve_conj().resolve_neg()
        memory = torch.zeros(_bytes_behind(spec) // spec.dtype.itemsize, dtype=spec.dtype)
        if (
            result.stride() == spec.strides and result.numel()
        ):  # with what lies between, and what lies there twice
            reach = extent_in_bytes(spec) // spec.dtype.itemsize
            memory[spec.offset :] = result.as_strided((reach,), (1,), result.storage_offset())
            return memory.as_strided(spec.shape, spec.strides, spec.offset)
        return memory.as_strided(spec.shape, spec.strides, spec.offset).copy_(result)


def _memory_of_views(
    command: KnownCommand | None, inputs: Any, count: int
) -> list[torch.UntypedStorage | None]:
    """Per new value of a command: the memory of the argument that it is a view of. Told by metadata alone."""
    nowhere: list[torch.UntypedStorage | None] = [None] * count
    if command is None:
        return nowhere
    args, kwargs = as_meta(inputs)
    metas = [t.untyped_storage()._cdata for t in found_in((args, kwargs), torch.Tensor)]
    given = list(_tensors_in(inputs))
    try:
        with torch.device("meta"):
            results = fresh_results(command.function(*args, **kwargs), facts_of_command(command))
    except Exception:  # noqa: BLE001  (what has no metadata is no view)
        return nowhere
    if len(results) != count or len(metas) != len(given):
        return nowhere
    sources = [metas.index(a) if (a := t.untyped_storage()._cdata) in metas else None for t in results]
    return [None if i is None else _memory(given[i]) for i in sources]


def _memory(value: Any) -> torch.UntypedStorage | None:
    if type(value) is Failure:
        return value.memory
    return value.untyped_storage() if _is_dense(value) else None


def _is_dense(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.layout is torch.strided


@cache
def _declares_views(command: KnownCommand) -> bool:
    """Whether it is an aten operation that returns views: none of these looks at the data."""
    func = command.function
    return isinstance(func, OpOverload) and any(
        r.alias_info is not None and not r.alias_info.is_write for r in func._schema.returns
    )


def spoil(worker: Any, written: list[Any], reason: str) -> None:
    """A failed write leaves a failure in what it should have written, which nobody can tell from it."""
    for target in written:
        if not isinstance(target, torch.Tensor):
            continue
        failure = Failure(spec_of(target), reason, _memory(target))
        known = known_identity(target)
        if known is not None:
            failure.tags, failure.description = set(known.tags), known.description
        for entry in worker._entries.copy().values():
            if entry.value is target:
                entry.value = failure  # with its holder, its restriction and what it costs


# -- what may be told ------------------------------------------------------------------------------

#: Tagged by torch as dependent on data, but only by a mask, which meta kernels refuse.
_SOMETIMES_KNOWN = frozenset({"aten.index.Tensor"})

_foretold: dict[Any, shapes.Answer] = {}
_FORETOLD_LIMIT = 10_000


def foretell(worker: Any, command: KnownCommand, args: Any, kwargs: Any, user: str | None) -> shapes.Answer:
    """The metadata of the results, from the metadata of the arguments; !! if only the data can tell it.

    Errors about shapes are raised from here, in full: no data has been looked at.
    """
    answer = _foretold_answer(command, args, kwargs)
    if answer is None:
        policy: Policy = worker.policy
        policy.refuse_shape(user, command.name)
    return answer


def _foretold_answer(command: KnownCommand, args: Any, kwargs: Any) -> shapes.Answer | None:
    """What `ask_without_data` says, remembered: what users ask with long texts is not, nor are long answers."""
    specs = as_specs(args), as_specs(kwargs)
    key = command.name, frozen(specs)
    answer = _foretold.get(key)
    if answer is None:
        answer = ask_without_data(command, *specs)
        if answer is None:
            return None
        if len(answer.parts) <= _MOST_REMEMBERED:
            remember(_foretold, key, answer)
    return answer


def remember(answers: dict[Any, Any], key: Any, answer: Any) -> None:
    """Keep the answer to a short question: nobody is charged for the memory it takes. Too many are forgotten together."""
    if _is_short(key):
        if len(answers) >= _FORETOLD_LIMIT:
            answers.clear()
        answers[key] = answer


#: Of values in a question, or its answer, and of the characters in them.
_MOST_REMEMBERED = 256
_LONGEST_REMEMBERED = 1024


def _is_short(key: Any) -> bool:
    values = characters = 0
    waiting = [key]
    while waiting:
        value = waiting.pop()
        values += 1
        if isinstance(value, tuple):
            waiting.extend(value[: _MOST_REMEMBERED + 1])
        elif isinstance(value, str):
            characters += len(value)
        if values > 4 * _MOST_REMEMBERED or characters > _LONGEST_REMEMBERED:
            return False
    return True


def ask_without_data(
    command: KnownCommand, args: Any, kwargs: Any, watch: TorchDispatchMode | None = None
) -> shapes.Answer | None:
    """The metadata of the results, from stand-ins for the arguments; None if only the data can tell it.

    `watch` sees all operations on the way. Then nothing is allocated, so of a few operations (`shapes.MISJUDGED`) only
    the sizes are right.
    """
    func = command.function
    facts = facts_of_command(command)
    if facts is not None and shapes.depends_on_data(func) and command.name not in _SOMETIMES_KNOWN:
        return None
    # NB: the meta kernels of these are wrong about the layout, so zeros stand in for the data.
    stand_ins = _to_zeros if command.name in shapes.MISJUDGED and watch is None else shapes.to_meta
    given_kwargs = stand_ins(kwargs)
    if stand_ins is shapes.to_meta and (given_kwargs.get("device") is not None or _takes_device(func)):
        given_kwargs["device"] = torch.device("meta")
    try:
        # NB: what makes tensors out of nothing would make them here, and large.
        given_args = stand_ins(args)
        with (
            torch.device("meta" if stand_ins is shapes.to_meta else "cpu"),
            watch or contextlib.nullcontext(),
        ):
            run = func if stand_ins is shapes.to_meta else sound(command) or func
            return shapes.describe(run(*given_args, **given_kwargs), facts)
    except NotImplementedError:
        return None
    except RuntimeError as error:
        if shapes._is_about_data(error):
            return None
        raise


def _refuse_resizing(command: KnownCommand, args: Any, kwargs: dict[str, Any]) -> None:
    """!! UnsupportedOperationError if an `out=` would change its shape: one that failed might not, and would tell."""
    args, given = as_meta(args), as_meta(kwargs)
    outs = list(found_in([given.get(name) for name in {*command.outs, "out"}], torch.Tensor))
    before = [tuple(out.shape) for out in outs]
    with warnings.catch_warnings(), torch.device("meta"):
        warnings.simplefilter("ignore")  # torch warns of what is refused here
        command.function(*args, **given)
    for out, shape in zip(outs, before, strict=True):
        if tuple(out.shape) != shape:
            raise UnsupportedOperationError(
                f"{command.name} with an out= of shape {shape}",
                torch.Tensor,
                f"On data that you may not fetch it cannot be resized: give it a tensor of shape {tuple(out.shape)}.",
            )


@cache
def _takes_device(func: Any) -> bool:
    return isinstance(func, OpOverload) and any(a.name == "device" for a in func._schema.arguments)


def as_meta(values: Any) -> Any:
    """Arguments with metadata in the place of tensors."""
    return shapes.to_meta(as_specs(values))


def _to_zeros(value: Any) -> Any:
    if isinstance(value, TensorSpec):
        # NB: laid out alike. An expanded tensor takes no more memory than what it was made of.
        extent = extent_in_bytes(value) // value.dtype.itemsize
        return torch.zeros(extent, dtype=value.dtype).as_strided(value.shape, value.strides)
    if isinstance(value, (tuple, list)) and not isinstance(value, torch.Size):
        return type(value)(_to_zeros(v) for v in value)
    if isinstance(value, dict):
        return {k: _to_zeros(v) for k, v in value.items()}
    return value


def as_specs(values: Any) -> Any:
    if isinstance(values, torch.Tensor):
        return spec_of(values)
    if type(values) is Failure:
        return values.spec
    if isinstance(values, (tuple, list)) and not isinstance(values, torch.Size):
        return type(values)(as_specs(v) for v in values)
    if isinstance(values, dict):
        return {k: as_specs(v) for k, v in values.items()}
    return values


def frozen(value: Any) -> Any:
    """A hashable stand-in: 1, 1.0 and True are different arguments."""
    if isinstance(value, (tuple, list)):
        return type(value), tuple(frozen(v) for v in value)
    if isinstance(value, dict):
        return dict, tuple((k, frozen(v)) for k, v in value.items())
    if isinstance(value, slice):
        return slice, frozen((value.start, value.stop, value.step))
    return type(value), value if isinstance(value, TensorSpec) else repr(value)


def fresh_specs(answer: shapes.Answer) -> Iterator[TensorSpec]:
    """The specs of the new values of an operation, in order."""
    if answer.spec is not None:
        yield answer.spec
    for part in answer.parts:
        if isinstance(part, shapes.Answer):
            yield from fresh_specs(part)
        elif isinstance(part, TensorSpec):
            yield part


def _tensors_in(value: Any) -> Iterator[Any]:
    return found_in(value, (torch.Tensor, Failure))
