"""Running commands on data that not everybody may see.

NOTE [Nothing shows]
Whoever runs an operation on restricted data learns nothing of it but what the shapes of the inputs tell.
What they may see is worked out from metadata alone, before the data is touched (`foretell`): the shapes of
the results, and errors about shapes. What happens to the data itself shows nowhere:

- results are restricted like their inputs, and so is everything that shares memory with what was written;
- random numbers are drawn apart, so that the next one drawn does not tell how many were used;
- an operation whose result shape depends on the data is refused;
- a failure that depends on the data (an index out of bounds is one bit about the index) is kept in place of
  the result, as a `Failure`, and is told only to those who may fetch the result.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Callable, Collection, Iterable, Iterator
from functools import cache
from typing import Any

import torch
from torch._ops import OpOverload
from torch.utils._python_dispatch import TorchDispatchMode

from syft.core import shapes
from syft.core.commands import KnownCommand
from syft.core.nested import found_in
from syft.core.spec import TensorSpec, extent_in_bytes, spec_of
from syft.exceptions import PermissionDeniedError, RemoteError
from syft.messaging.message import Operation
from syft.workers.caller import user_of
from syft.workers.permissions import Policy
from syft.workers.results import facts_of_command, fresh_results, keep_results

Run = Callable[[], Any]

#: aten operations that write into arguments although their schema does not say so.
UNDECLARED_WRITERS = frozenset(
    """batch_norm _batch_norm_impl_index native_batch_norm cudnn_batch_norm miopen_batch_norm instance_norm
    batch_norm_gather_stats batch_norm_gather_stats_with_counts""".split()
)


class Failure:
    """Stands in the store for the result of an operation that failed on restricted data."""

    __slots__ = ("reason", "spec")

    #: Or what a user holds would tell whether an operation failed.
    costs_what_it_stands_for = True

    def __init__(self, spec: TensorSpec, reason: str) -> None:
        self.spec, self.reason = spec, reason

    @property
    def shape(self) -> torch.Size:
        return self.spec.shape

    @property
    def nbytes(self) -> int:
        return extent_in_bytes(self.spec)

    def tell(self) -> Any:
        """Raise what went wrong; for those who may know."""
        raise RemoteError(f"The value could not be computed on the worker: {self.reason}")


def refuse_overwriting(worker: Any, ids: Iterable[Any], user: str | None) -> None:
    """!! SendNotPermittedError if a result would take the place of a restricted object."""
    for obj_id in ids:
        if obj_id in worker._allowed or (worker._holdings is not None and obj_id in worker._stored):
            worker.policy.check_send(user, obj_id, worker.changeable_by(obj_id))


def execute_restricted(
    worker: Any,
    message: Operation,
    command: KnownCommand,
    args: list[Any],
    kwargs: dict[str, Any],
    ids: Collection[Any],
    allowed: frozenset[str],
    run: Run,
) -> Any:
    """Run an operation with restricted inputs; see NOTE [Nothing shows]. `ids` are those of what it uses."""
    facts = facts_of_command(command)
    user = user_of(message)
    provenance = worker._attached.get("provenance")
    if worker.policy.may_get(user, allowed):
        for obj_id in ids:
            used = worker._stored.get(obj_id)
            if type(used) is Failure:
                used.tell()
        if _may_write(command):
            refuse_writing_private(worker, command, args, kwargs, user, worker._owners_data)
            if provenance is not None:
                provenance.before(worker, command, args, kwargs)
            spared = write_protected(worker, command, (args, kwargs), user)
            worker.taint(_written(command, args, kwargs), allowed, spared)
            try:
                with no_writing_into(worker, spared, user) if spared else contextlib.nullcontext():
                    result = run()
            finally:
                _remeasure(worker, command, args, kwargs)
        else:
            if provenance is not None:
                provenance.before(worker, command, args, kwargs)
            result = run()
        fresh = fresh_results(result, facts)
        answer = shapes.describe(result, facts) if message.wants_specs else None
    else:
        answer = foretell(worker, command, args, kwargs, user)
        refuse_writing_private(worker, command, args, kwargs, user, worker._private_ids)
        spared = write_protected(worker, command, (args, kwargs), user)
        if provenance is not None:
            provenance.before(worker, command, args, kwargs)
        worker.taint(_written(command, args, kwargs), allowed, spared)
        with no_writing_into(worker, spared, user):
            fresh, reason = run_concealed(run, answer, facts, (args, kwargs))
        _remeasure(worker, command, args, kwargs)
        if reason is not None and facts is not None:
            spoil(worker, _written(command, args, kwargs), reason)
    if provenance is not None:
        provenance.after(worker, message, command, args, kwargs, fresh)
    return keep_results(worker, message, fresh, answer, allowed)


def refuse_writing_private(
    worker: Any,
    command: KnownCommand,
    args: list[Any],
    kwargs: dict[str, Any],
    user: str | None,
    private: Collection[Any],
) -> None:
    """Data that was brought here as private is not changed by those who may not."""
    if not private:
        return
    facts = facts_of_command(command)
    if facts is not None:
        written = _written(command, args, kwargs)
    else:
        names_it = command.name.endswith("_") or "out" in kwargs
        written = [*args[:1], kwargs.get("out")] if names_it else []
    for obj_id in worker.private_among(written, private) if written else ():
        worker.policy.check_send(user, obj_id, worker.changeable_by(obj_id), action="write into")


# NOTE [Functions that may write]
# What an aten operation writes into is known. A public function may write into anything it is given (a dropout
# "in place", an embedding that renormalises its weights), so all its arguments are restricted like its
# result. For data that was brought as private that would not do: it must not be changed at all by those who may not
# have it, nor taken from others by way of its restriction. There the aten operations that the function is made of are
# watched instead, and one that writes into such data is not run.


def write_protected(worker: Any, command: KnownCommand, inputs: Any, user: str | None) -> list[Any]:
    """The ids of what a public function is given and `user` may not change."""
    if isinstance(command.function, OpOverload):
        return []
    found: list[Any] = worker.private_among(_tensors_in(inputs))
    return [i for i in found if not worker.policy.may_change(user, worker.changeable_by(i))]


@contextlib.contextmanager
def no_writing_into(worker: Any, ids: Collection[Any], user: str | None) -> Iterator[None]:
    """Inside, an aten operation that would write into one of these objects is refused."""
    if not ids:
        yield
        return
    with _Watch(worker, ids, user):
        yield


class _Watch(TorchDispatchMode):  # type: ignore[no-untyped-call]
    def __init__(self, worker: Any, ids: Collection[Any], user: str | None) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.worker, self.ids, self.user = worker, ids, user

    def __torch_dispatch__(
        self, func: OpOverload, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        for obj_id in self.worker.private_among(_written_by(func, args, kwargs), self.ids):
            self.worker.policy.check_send(
                self.user, obj_id, self.worker.changeable_by(obj_id), action="write into"
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


def run_concealed(run: Run, answer: shapes.Answer, facts: Any, inputs: Any) -> tuple[list[Any], str | None]:
    """The new values of an operation; if it failed, failures in place of them all, and the reason."""
    foretold = list(fresh_specs(answer))
    reason = next((value.reason for value in _tensors_in(inputs) if type(value) is Failure), None)
    if reason is None:
        try:
            with own_randomness():
                fresh = fresh_results(run(), facts)
        except PermissionDeniedError:
            raise
        except Exception as error:  # noqa: BLE001  (whatever it is, it must not show)
            reason = f"{type(error).__name__}: {error}"
        else:
            if [(t.shape, t.dtype) for t in fresh] == [(s.shape, s.dtype) for s in foretold]:
                return fresh, None
            reason = "its shape depends on the data."
    return [Failure(spec, reason) for spec in foretold], reason


def spoil(worker: Any, written: list[Any], reason: str) -> None:
    """A failed write leaves a failure in what it should have written."""
    for target in written:
        if isinstance(target, torch.Tensor):
            for obj_id, obj in worker._stored.copy().items():
                if obj is target:
                    worker.set_obj(obj_id, Failure(spec_of(target), reason))


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


def foretold_specs(command: KnownCommand, args: Any, kwargs: Any) -> list[TensorSpec] | None:
    """The metadata of the new values of an operation; None if only the data can tell it."""
    answer = _foretold_answer(command, args, kwargs)
    return None if answer is None else list(fresh_specs(answer))


def _foretold_answer(command: KnownCommand, args: Any, kwargs: Any) -> shapes.Answer | None:
    """What `_ask_without_data` says, remembered."""
    specs = _as_specs(args), _as_specs(kwargs)
    key = command.name, _frozen(specs)
    answer = _foretold.get(key)
    if answer is None:
        answer = _ask_without_data(command, *specs)
        if answer is None:
            return None
        if len(_foretold) >= _FORETOLD_LIMIT:
            _foretold.clear()
        _foretold[key] = answer
    return answer


def _ask_without_data(command: KnownCommand, args: Any, kwargs: Any) -> shapes.Answer | None:
    func = command.function
    facts = facts_of_command(command)
    if facts is not None and shapes.depends_on_data(func) and command.name not in _SOMETIMES_KNOWN:
        return None
    # NB: the meta kernels of these are wrong about the layout, so zeros stand in for the data.
    stand_ins = _to_zeros if command.name in shapes.MISJUDGED else shapes.to_meta
    given_kwargs = stand_ins(kwargs)
    if stand_ins is shapes.to_meta and (given_kwargs.get("device") is not None or _takes_device(func)):
        given_kwargs["device"] = torch.device("meta")
    try:
        # NB: what makes tensors out of nothing would make them here, and large.
        with torch.device("meta" if stand_ins is shapes.to_meta else "cpu"):
            return shapes.describe(func(*stand_ins(args), **given_kwargs), facts)
    except NotImplementedError:
        return None
    except RuntimeError as error:
        if shapes._is_about_data(error):
            return None
        raise


@cache
def _takes_device(func: Any) -> bool:
    return isinstance(func, OpOverload) and any(a.name == "device" for a in func._schema.arguments)


def as_meta(values: Any) -> Any:
    """Arguments with metadata in the place of tensors."""
    return shapes.to_meta(_as_specs(values))


def _to_zeros(value: Any) -> Any:
    if isinstance(value, TensorSpec):
        return torch.zeros_like(value.meta(), device="cpu")
    if isinstance(value, (tuple, list)) and not isinstance(value, torch.Size):
        return type(value)(_to_zeros(v) for v in value)
    if isinstance(value, dict):
        return {k: _to_zeros(v) for k, v in value.items()}
    return value


def _as_specs(values: Any) -> Any:
    if isinstance(values, torch.Tensor):
        return spec_of(values)
    if type(values) is Failure:
        return values.spec
    if isinstance(values, (tuple, list)) and not isinstance(values, torch.Size):
        return type(values)(_as_specs(v) for v in values)
    if isinstance(values, dict):
        return {k: _as_specs(v) for k, v in values.items()}
    return values


def _frozen(value: Any) -> Any:
    """A hashable stand-in: 1, 1.0 and True are different arguments."""
    if isinstance(value, (tuple, list)):
        return type(value), tuple(_frozen(v) for v in value)
    if isinstance(value, dict):
        return dict, tuple((k, _frozen(v)) for k, v in value.items())
    if isinstance(value, slice):
        return slice, _frozen((value.start, value.stop, value.step))
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


# -- what is written -------------------------------------------------------------------------------


def _written(command: KnownCommand, args: Any, kwargs: dict[str, Any]) -> list[Any]:
    """The tensors that a command may write into: all of them where that cannot be known."""
    func = command.function
    if not isinstance(func, OpOverload):
        return list(_tensors_in((args, kwargs)))
    return _written_by(func, args, kwargs)


def _written_by(func: OpOverload, args: Any, kwargs: dict[str, Any]) -> list[Any]:
    positions, names = _written_arguments(func)
    written: list[Any] = [args[i] for i in positions if i < len(args)]
    if kwargs:
        written += [kwargs[name] for name in names if name in kwargs]
    if len(written) == 1 and type(written[0]) is torch.Tensor:
        return written
    return list(_tensors_in(written))


def _remeasure(worker: Any, command: KnownCommand, args: Any, kwargs: dict[str, Any]) -> None:
    """What was written into may have grown: an `out=`, or anything that a public function was given."""
    if command.outs or not isinstance(command.function, OpOverload):
        worker.remeasure(args, kwargs)


@cache
def _may_write(command: KnownCommand) -> bool:
    func = command.function
    return not isinstance(func, OpOverload) or _written_arguments(func) != ((), ())


@cache
def _written_arguments(func: OpOverload) -> tuple[tuple[int, ...], tuple[str, ...]]:
    schema = func._schema
    undeclared = schema.name.partition("::")[2] in UNDECLARED_WRITERS
    found = [
        (position, argument.name)
        for position, argument in enumerate(schema.arguments)
        # They write into their running statistics, and into nothing else.
        if (undeclared and argument.name.startswith("running_"))
        or (argument.alias_info is not None and argument.alias_info.is_write)
    ]
    return tuple(position for position, _ in found), tuple(name for _, name in found)


def _tensors_in(value: Any) -> Iterator[Any]:
    return found_in(value, (torch.Tensor, Failure))
