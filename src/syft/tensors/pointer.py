"""`PointerTensor`: a tensor that lives on a worker, as metadata and an id.

Every aten operation on it becomes one `Operation` message to where the data is. The shape of the result is
known without asking (`syft.core.shapes`) and its id is picked here, so nothing is waited for.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from syft.core import shapes
from syft.core.abstract import MISSED, AbstractTensor
from syft.core.chain import Wrapper, map_tensors, new_wrapper
from syft.core.hook_args import (
    base_types,
    one,
    register_backward_func,
    register_forward_func,
    register_type_rule,
)
from syft.core.ids import ID_PROVIDER
from syft.core.nested import found_in
from syft.core.ops import facts_of, written_argument
from syft.core.public_names import spoken_name
from syft.core.session import session
from syft.core.spec import TensorSpec, spec_of
from syft.core.user_code import asking_code
from syft.exceptions import (
    CannotRequestObjectAttribute,
    RemoteObjectFoundError,
    TensorsNotCollocatedException,
    UnsupportedOperationError,
    ValueNotHereError,
)
from syft.messaging.message import (
    ObjectMessage,
    ObjectRequestMessage,
    Operation,
    Ref,
)
from syft.operations.table import admitted_names, is_admitted
from syft.tensors import kept_graphs, learnt_graphs
from syft.tensors.bare_pointers import BarePointer
from syft.tensors.decomposed import run_decomposed
from syft.tensors.local_arguments import refuse_local_tensors
from syft.tensors.object_pointer import ObjectPointer

_pop_id = ID_PROVIDER.pop
_tracks = torch.is_grad_enabled


class PointerTensor(BarePointer, ObjectPointer, AbstractTensor):
    """Points to a tensor at a worker and behaves like it."""

    observes_from_above = True

    # Most pointers are intermediate results, made and dropped by the thousand: what they never set is here.
    _id: Any = None
    _owner: Any = None
    child: Any = None
    description: str | None = None
    garbage_collect_data: bool = True
    point_to_attr: str | None = None
    _tags: set[str] | None = None
    #: The users that a PrivateTensor named when it was sent. What is fetched is private to them again.
    private_to: tuple[Any, ...] | None = None
    #: The value, while `syft.tensors.transfer.prefetched` has asked for it together with others.
    _prefetched: Any = None
    #: The graph that the worker keeps of how it was computed; see NOTE [Two graphs, one of them used].
    _tape: Any = None

    def __init__(
        self,
        location: Any = None,
        id_at_location: Any = None,
        owner: Any = None,
        id: Any = None,
        garbage_collect_data: bool = True,
        shape: Any = None,
        point_to_attr: str | None = None,
        tags: Any = None,
        description: str | None = None,
        spec: TensorSpec | None = None,
    ) -> None:
        super().__init__(
            location, id_at_location, owner, id, garbage_collect_data, point_to_attr, tags, description
        )
        if spec is None:
            spec = shapes.contiguous_spec(tuple(shape or ()), torch.get_default_dtype())
        self._spec = spec

    @property
    def is_remote(self) -> bool:
        return True

    @property
    def spec(self) -> TensorSpec:
        return self._spec

    @property
    def tags(self) -> set[str]:
        if self._tags is None:
            self._tags = set()
        return self._tags

    @tags.setter
    def tags(self, value: Any) -> None:
        self._tags = set(value) if value else None

    # -- operations --------------------------------------------------------------------------------

    @classmethod
    def on_public_call(cls, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Nothing is sent silently: a local tensor in a call on pointers is refused by name."""
        for value in (*args, *kwargs.values()) if kwargs else args:
            kind = type(value)
            if kind is not Wrapper and kind not in base_types:
                refuse_local_tensors(func, args, kwargs)
                return

    @classmethod
    def interpret(cls, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        result = _repeat(func, args, kwargs)
        if result is not MISSED:
            return result
        call = _Call(func)
        refs = call.scan(args)
        ref_kwargs = {name: call.scan_one(name, value) for name, value in kwargs.items()}
        return call.send(refs, ref_kwargs, args, kwargs)

    # -- moving data -------------------------------------------------------------------------------

    def get(self, user: str | None = None, reason: str = "", deregister_ptr: bool = True) -> Any:
        """Fetch the value. The remote object goes with the last pointer to it; see NOTE [Who deletes]."""
        return self._fetch(user, reason, keep=self.garbage_collect_data)

    def get_last(self, user: str | None = None, reason: str = "") -> Any:
        """Fetch the value for the only holder of this pointer: it is handed over instead of copied."""
        if self._prefetched is not None:
            return self._fetch(user, reason, keep=True)  # it is still there, and goes with this pointer
        value = self._fetch(user, reason, keep=False)
        self.garbage_collect_data = False
        return value

    def get_copy(self, user: str | None = None, reason: str = "") -> Any:
        """Fetch the value and leave it there."""
        return self._fetch(user, reason, keep=True)

    def get_share(self, user: str | None = None, reason: str = "", keep: bool = False) -> Any:
        """Fetch the share of a secret: as `get`, but nobody tries to compress what is random. `keep`: it stays there."""
        return self._fetch(user, reason, keep or self.garbage_collect_data, is_random=True)

    def _fetch(self, user: str | None, reason: str, keep: bool, is_random: bool = False) -> Any:
        if self.point_to_attr:
            raise CannotRequestObjectAttribute(
                f"get() was called on a pointer to the attribute {self.point_to_attr!r} of an object. Fetch the object: "
                "set `point_to_attr = None` first."
            )
        if self._prefetched is not None:
            value, self._prefetched = self._prefetched, None
            return value
        message = ObjectRequestMessage((self._id_at_location, user, reason), keep, is_random)
        speaker = self._speaker()
        value = speaker.send_msg(message, self._location)
        return value if type(value) is torch.Tensor else take_over(value, speaker)

    def place(self) -> PointerTensor:
        """A pointer to nothing at the same worker: what `sending.put_back` needs, and no more."""
        made = new_pointer(self._location, None, self._spec)
        made.garbage_collect_data = False
        return made

    def beside(self, obj_id: Any, spec: TensorSpec) -> PointerTensor:
        """A pointer to another result at the same worker."""
        return new_pointer(self._location, obj_id, spec)


def new_pointer(location: Any, obj_id: Any, spec: TensorSpec) -> PointerTensor:
    """A pointer to a fresh result; the constructor without its questions (the rest are class defaults)."""
    made: PointerTensor = _new(PointerTensor)
    made._location = location
    made._id_at_location = obj_id
    made._spec = spec
    return made


_new = PointerTensor.__new__


#: Arguments that are sent, and compared, as they are.
PLAIN = frozenset({int, float, bool, type(None), torch.dtype, torch.memory_format, str})


def _repeat(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """The result of a plain operation whose like was run before; `MISSED` if `_Call` has to look closer.

    Most operations by far are of this kind: pointers of one place, bare or wrapped, and numbers in, one new tensor out
    or the first argument written into. Same as `_Call`, without its bookkeeping (see bench/pointers.py).
    """
    try:
        facts = func._syft_facts  # NB: this is `facts_of`, without a call
    except AttributeError:
        facts = facts_of(func)
    key: list[Any] = [facts]
    refs: list[Any] = []
    first: PointerTensor | None = None
    is_tracked = False
    for value in args:
        kind = type(value)
        if kind is Wrapper:
            if value.requires_grad:
                is_tracked = True
            value = value.child
            kind = type(value)
            if kind is not PointerTensor:  # also an empty one, whose child is None
                return MISSED
        if kind is PointerTensor:
            if first is None:
                first = value
            elif value._location is not first._location:
                return MISSED
            key.append(value._spec)
            value = Ref(value._id_at_location)
        elif kind in PLAIN:
            key.append(kind)
            key.append(value)
        elif kind is list:
            key.append((list, len(value)))
            for item in value:
                if type(item) is not int:
                    return MISSED
                key.append(int)
                key.append(item)
        else:
            return MISSED
        refs.append(value)
    for name, value in kwargs.items():
        if type(value) not in PLAIN:
            return MISSED
        key.append(name)
        key.append(type(value))
        key.append(value)
    answer = shapes.recalled(tuple(key))
    if answer is None or first is None:
        return MISSED
    location = first._location
    if location.admits_only_table and facts.name not in admitted_names():
        return MISSED
    if answer.asks:
        answer = shapes.recalled((*key, *_told_by(location)))
        if answer is None:
            return MISSED
    speaker = first._owner or session.local_worker
    at_once = location.run_at_once
    if answer.spec is not None:
        new_id = _pop_id()
        made: PointerTensor = _new(PointerTensor)
        made._location = location
        made._id_at_location = new_id
        made._spec = answer.spec
        tape = None
        if is_tracked and _tracks():
            if location.keeps_graphs:
                tape = kept_graphs.follow(args, refs, location)
            elif location.learns_graphs:
                tape = learnt_graphs.follow(key, args, refs, location, (new_id,))
        if at_once is None or not at_once(speaker, facts.name, refs, kwargs, (new_id,)):
            speaker.send_msg(Operation(facts.name, None, refs, kwargs, (new_id,)), location)
        if tape is not None:
            made._tape = tape
        return made
    if answer.parts == _WRITTEN and answer.kind is None and (args[0] is first or args[0].child is first):
        if first._tape is not None:
            kept_graphs.invalidate((first,))
        if location._stream is not None:
            learnt_graphs.forget(location)
        if at_once is None or not at_once(speaker, facts.name, refs, kwargs, ()):
            speaker.send_msg(Operation(facts.name, None, refs, kwargs, ()), location)
        return first
    if answer.kind is tuple and not facts.mutates and all(type(part) is TensorSpec for part in answer.parts):
        several = [new_pointer(location, _pop_id(), spec) for spec in answer.parts]
        ids = tuple([pointer._id_at_location for pointer in reversed(several)])
        tape = None
        if is_tracked and _tracks():
            if location.keeps_graphs:
                tape = kept_graphs.follow(args, refs, location)
            elif location.learns_graphs:
                tape = learnt_graphs.follow(key, args, refs, location, ids)
        if at_once is None or not at_once(speaker, facts.name, refs, kwargs, ids):
            speaker.send_msg(Operation(facts.name, None, refs, kwargs, ids), location)
        if tape is not None:
            for made in several:
                made._tape = tape
        return tuple(several)
    return MISSED


PointerTensor.shortcut = staticmethod(_repeat)
PointerTensor.backward_there = staticmethod(kept_graphs.backward_there)
PointerTensor.graph_is_used = staticmethod(kept_graphs.graph_is_used)


def _run_decomposed(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """The result of an operation that the worker does not admit, made by operations that it does."""

    def wrap(value: Any) -> Any:
        return new_wrapper(value) if isinstance(value, PointerTensor) else value

    result = run_decomposed(func, map_tensors(wrap, args), map_tensors(wrap, kwargs))
    if facts_of(func).mutates:
        return written_argument(facts_of(func), 0, args, kwargs)
    return map_tensors(lambda value: value.child if type(value) is Wrapper else value, result)


#: Parts of the names of operations whose results are not dense, which a pointer could not describe.
_OTHER_LAYOUTS = ("to_sparse", "to_mkldnn")

#: The answer of an operation that returns the one argument it has written into.
_WRITTEN = (shapes.ALIAS,)


class _Call:
    """One operation on pointers while it is being turned into a message."""

    __slots__ = ("facts", "first", "func", "key", "lifted", "location")

    def __init__(self, func: Any) -> None:
        self.func = func
        self.facts = facts_of(func)
        self.key: list[Any] = [self.facts]
        self.location: Any = None
        self.first: PointerTensor | None = None
        self.lifted: list[PointerTensor] = []

    def scan(self, values: Any) -> list[Any]:
        """The values as the message carries them; notes where they live and what they look like."""
        refs = []
        key = self.key
        for value in values:
            cls = type(value)
            if cls is PointerTensor:
                location = value._location
                if self.location is None:
                    self.location = location
                    self.first = value
                elif location is not self.location and location.id != self.location.id:
                    raise TensorsNotCollocatedException(self.first, value, spoken_name(self.func))
                key.append(value._spec)
                refs.append(Ref(value._id_at_location))
            else:
                refs.append(self._scan_other(cls, value))
        return refs

    def scan_one(self, name: str, value: Any) -> Any:
        self.key.append(name)
        return self.scan((value,))[0]

    def _scan_other(self, cls: type, value: Any) -> Any:
        key = self.key
        if cls is list or cls is tuple:
            key.append((cls, len(value)))
            scanned = self.scan(value)
            return scanned if cls is list else tuple(scanned)
        if isinstance(value, torch.Generator):
            raise UnsupportedOperationError(
                str(self.func), PointerTensor, "A random generator cannot be sent; seed the worker's instead."
            )
        if isinstance(value, torch.Tensor):
            # The public level has refused tensors of the user; this one torch made itself, e.g. from the
            # list in ptr[[0, 2]] or inside a backward formula.
            return self._lift(value)
        if cls not in base_types:
            raise UnsupportedOperationError(
                str(self.func),
                PointerTensor,
                f"An argument of type {cls.__name__} cannot be sent to a worker.",
            )
        key.append(cls)
        key.append(value)
        return value

    def _lift(self, value: torch.Tensor) -> Any:
        # NB: where to send it is only known once the pointers have been seen.
        holder = new_pointer(None, _pop_id(), spec_of(value))
        self.key.append(holder._spec)
        self.lifted.append(holder)
        holder.child = value
        return Ref(holder._id_at_location)

    def _refuse_local_targets(self, args: Any, kwargs: dict[str, Any]) -> None:
        """A result that is written on the worker would never reach a tensor that is here."""
        for position, argument in enumerate(self.func._schema.arguments):
            if argument.alias_info is not None and argument.alias_info.is_write:
                value = args[position] if position < len(args) else kwargs.get(argument.name)
                local = next((t for t in found_in(value, torch.Tensor) if type(t) is not Wrapper), None)
                if local is not None:
                    raise TensorsNotCollocatedException(local, self.first, spoken_name(self.func))

    def send(self, refs: list[Any], ref_kwargs: dict[str, Any], args: Any, kwargs: dict[str, Any]) -> Any:
        func, location, facts = self.func, self.location, self.facts
        speaker = self.first._owner or session.local_worker  # type: ignore[union-attr]
        if not facts.returns_tensors:
            raise ValueNotHereError(_asking(facts.name), f"on worker {location.id!r}", asking_code())
        if location.admits_only_table and not is_admitted(facts.name):
            return _run_decomposed(func, args, kwargs)
        answer = shapes.remembered(self.key)
        if answer is None:
            if any(name in facts.name for name in _OTHER_LAYOUTS):
                raise UnsupportedOperationError(
                    facts.name, PointerTensor, "Chains hold dense tensors: fetch the value first."
                )
            answer = shapes.infer(self.key, func, _specs(args), _specs(kwargs))
        if answer.asks:
            self.key += _told_by(location)
            answer = shapes.remembered(self.key) or answer
        if facts.mutates:
            kept_graphs.invalidate(found_in((args, kwargs), PointerTensor))
            learnt_graphs.forget(location)
            if self.lifted:
                self._refuse_local_targets(args, kwargs)
        for holder in self.lifted:
            value, holder.child = holder.child, None
            speaker.send_msg(ObjectMessage(value, holder._id_at_location, is_public=True), location)
            holder._location = location
        spec = answer.spec
        if spec is not None:
            new_id = _pop_id()
            speaker.send_msg(Operation(facts.name, None, refs, ref_kwargs, (new_id,)), location)
            return new_pointer(location, new_id, spec)
        if answer.kind is None and answer.parts == _WRITTEN:
            speaker.send_msg(Operation(facts.name, None, refs, ref_kwargs, ()), location)
            return written_argument(facts, 0, args, kwargs)
        if answer.asks:
            return self._send_and_ask(facts, refs, ref_kwargs, args, kwargs, speaker)
        return self._send_several(facts, answer, refs, ref_kwargs, args, kwargs, speaker)

    def _send_several(
        self, facts: Any, answer: Any, refs: Any, ref_kwargs: Any, args: Any, kwargs: Any, speaker: Any
    ) -> Any:
        ids: list[Any] = []

        def next_id() -> Any:
            ids.append(_pop_id())
            return ids[-1]

        result = _build_results(answer, facts, self.location, args, kwargs, next_id)
        speaker.send_msg(Operation(facts.name, None, refs, ref_kwargs, tuple(reversed(ids))), self.location)
        return result

    def _send_and_ask(
        self, facts: Any, refs: Any, ref_kwargs: Any, args: Any, kwargs: Any, speaker: Any
    ) -> Any:
        reply = speaker.send_msg(
            Operation(facts.name, None, refs, ref_kwargs, (), wants_specs=True), self.location
        )
        is_settled = self.location.admits_only_table or facts.name not in shapes.ASKED_EACH_TIME
        if facts.name in shapes.MISJUDGED and is_settled and not reply[1].asks:
            shapes.remember(self.key, reply[1])
        return results_from_reply(reply, self.location, facts, args, kwargs)


def _told_by(location: Any) -> tuple[Any, ...]:
    """What is added to a key that only the worker can answer: open workers and those that deny may differ."""
    return location.id, location.admits_only_table


def _specs(values: Any) -> Any:
    """Arguments with specs in place of pointers and tensors."""
    if isinstance(values, PointerTensor):
        return values._spec
    if isinstance(values, torch.Tensor):
        return spec_of(values)
    if isinstance(values, (tuple, list)) and not isinstance(values, torch.Size):
        return (
            tuple([_specs(v) for v in values]) if isinstance(values, tuple) else [_specs(v) for v in values]
        )
    if isinstance(values, dict):
        return {k: _specs(v) for k, v in values.items()}
    return values


def _build_results(
    answer: Any, facts: Any, location: Any, args: Any, kwargs: Any, next_id: Callable[[], Any]
) -> Any:
    """The results that an answer describes: pointers, arguments that were written into, None."""

    def pointer(spec: TensorSpec) -> PointerTensor:
        return new_pointer(location, next_id(), spec)

    if answer.spec is not None:
        return pointer(answer.spec)
    built = []
    for index, part in enumerate(answer.parts):
        if isinstance(part, shapes.Answer):
            built.append(_build_results(part, None, location, args, kwargs, next_id))
        elif part is shapes.ALIAS:
            built.append(None if facts is None else written_argument(facts, index, args, kwargs))
        else:
            built.append(pointer(part) if isinstance(part, TensorSpec) else part)
    return answer.kind(built) if answer.kind is not None else built[0]


def results_from_reply(
    reply: Any, location: Any, facts: Any = None, args: Any = (), kwargs: dict[str, Any] | None = None
) -> Any:
    """Pointers to results that a worker has stored under ids of its own choice."""
    ids, answer = reply
    return _build_results(answer, facts, location, args, kwargs or {}, iter(ids).__next__)


def _asking(name: str) -> str:
    if "_local_scalar_dense" in name or ".item" in name:
        return "`.item()` (also bool(), float(), int(), `if tensor:`)"
    return f"{name}, which returns a Python value,"


def take_over(value: Any, owner: Any) -> Any:
    """What a worker handed out, as a thing of ours: a pointer it held is now our pointer."""
    if type(value) is Wrapper and isinstance(value.child, PointerTensor):
        value.child._owner = owner
        value.child._id = None
    return value


def pointer_from_found(found: Any, location: Any, owner: Any = None) -> Any:
    """A wrapped pointer to a tensor that was searched for; it does not delete what it points to."""
    return new_wrapper(
        PointerTensor(
            location,
            found.id,
            owner,
            garbage_collect_data=False,
            tags=found.tags,
            description=found.description,
            spec=found.spec,
        )
    )


def _refuse_unwrap(pointer: PointerTensor) -> Any:
    raise RemoteObjectFoundError(pointer)


register_type_rule({PointerTensor: one})
register_forward_func({PointerTensor: _refuse_unwrap})
register_backward_func({PointerTensor: lambda pointer, **_kwargs: pointer})
