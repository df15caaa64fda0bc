"""Backward passes that were learnt, so that `loss.backward()` is one message to a worker on a network.

NOTE [Passes that repeat]
A loop computes the same thing with other tensors at every step. torch's graph here decides which operations a backward
pass sends, and what it decides follows from the operations that made the graph. So a `Stream` notes, for each operation
that torch tracks, what it was (the key of `syft.core.shapes`) and which earlier tensors it was given, as numbers. The
second time that a loss is differentiated after the same notes, the operations that torch sends are noted, too. From the
third time on the worker is told their number and the tensors they are about (`LearntMessage`), `.grad` of the leaves is
set, and the graph here is freed, as torch does.

The worker runs what it was told as if it had come one by one: same permissions, same quotas, same results to the bit
(`syft.workers.network.learnt`). Whatever could make torch do something else sends the pass to torch: hooks on tensors or
leaves, gradients that are there already, anomaly detection, dispatch modes, hooks on saved tensors, functions of users'
own, operations that write, and threads that share a worker.

Bounded: a stream has `_MOST_NOTES` operations, a worker is told `MOST_PROGRAMS` passes of `MOST_OPERATIONS` each.
`worker.learns_graphs = False` turns all of this off.
"""

from __future__ import annotations

import threading
import weakref
from typing import Any

import torch

from syft.core.chain import Wrapper, new_wrapper
from syft.core.ids import ID_PROVIDER
from syft.core.session import session
from syft.exceptions import SyftError
from syft.messaging.message import LearntMessage, Operation, Ref
from syft.tensors.learnt_programs import MOST_OPERATIONS, MOST_PROGRAMS, checked_commands
from syft.tensors.stale_graphs import free_graph
from syft.tensors.tapes import Tape, grad_fn_of, is_listened_to, node_is_ours, saved_hooks

_MOST_NOTES = 4096
#: Graphs that were seen, and not learnt.
_MOST_SEEN = 64
_SEEN: Any = object()
_UNFIT: Any = object()


class Stream(Tape):
    """What was computed at a worker since the last backward pass; its `leaves` are by their id there.

    notes   what the operations were; numbers: of the tensors by their ids there, in the order in which they came
    """

    __slots__ = ("notes", "numbers", "thread")

    def __init__(self) -> None:
        super().__init__()
        self.notes: list[Any] = []
        self.numbers: dict[Any, int] = {}
        self.thread = threading.get_ident()

    def number_of(self, obj_id: Any) -> int:
        return self.numbers.setdefault(obj_id, len(self.numbers))


class Learnt:
    """The passes that a worker was told over one link.

    passes  by what was computed before
    known   the numbers that the worker knows in this session: the last `MOST_PROGRAMS` that it was told
    lock    held while it is told: two threads must not tell it in another order than they note it
    """

    __slots__ = ("known", "lock", "next_number", "passes", "session")

    def __init__(self) -> None:
        self.passes: dict[Any, Any] = {}
        self.session: Any = None
        self.known: dict[int, None] = {}
        self.next_number = 0
        self.lock = threading.Lock()


class _Pass:
    """One backward pass.

    inputs    the numbers of the tensors that it uses
    gradients for each leaf, in order, the spec of its gradient, or None
    """

    __slots__ = ("gradients", "inputs", "number", "operations", "outputs")

    def __init__(
        self,
        number: int,
        inputs: list[int],
        operations: tuple[Any, ...],
        outputs: tuple[int, ...],
        gradients: list[Any],
    ) -> None:
        self.number, self.inputs, self.operations = number, inputs, operations
        self.outputs, self.gradients = outputs, gradients


# -- what is computed ------------------------------------------------------------------------------


def follow(key: list[Any], args: Any, refs: list[Any], location: Any, made: tuple[Any, ...]) -> Stream | None:
    """Note an operation that torch tracks, whose results have the ids `made`; the stream, or None if it is in none."""
    stream = _current(location)
    if stream is None or stream.is_invalid:
        stream = Stream()
        location._stream = weakref.ref(stream)  # its results hold it, and they alone
    if stream.thread != threading.get_ident() or saved_hooks(False) is not None:
        return None
    leaves: list[tuple[Any, Any]] = []
    note: list[Any] = [tuple(key)]
    for value, ref in zip(args, refs, strict=True):
        kind = type(ref)
        if kind is float and not ref:
            note.append(str(ref))  # zeros of both signs are equal
        if kind is not Ref:
            continue
        tracking = 0
        if type(value) is Wrapper and value.requires_grad:
            tracking = 1 if value.is_leaf else 2
            if tracking == 1:
                if value.child._tape is not None:
                    return None
                leaves.append((ref.id, value))
            elif value.child._tape is not stream or not node_is_ours(value):
                return None
        note.append(stream.number_of(ref.id))
        note.append(tracking)
    if len(stream.notes) >= _MOST_NOTES:
        forget(location)
        return None
    for obj_id, leaf in leaves:
        stream.add_leaf(obj_id, leaf)
    note += [stream.number_of(obj_id) for obj_id in made]
    stream.notes.append(tuple(note))
    return stream


def forget(location: Any) -> None:
    """Something was written at a worker, or nobody can follow what was computed there: begin anew."""
    stream, location._stream = _current(location), None
    if stream is not None:
        stream.is_invalid, stream.leaves = True, {}


def _current(location: Any) -> Stream | None:
    reference = location._stream
    return None if reference is None else reference()


# -- backward passes ---------------------------------------------------------------------------------


def backward_there(loss: Any, stream: Stream) -> bool:
    """Differentiate what was computed at a worker as was done before; whether it was. If not, nothing has changed."""
    pointer = loss.child
    location = pointer._location
    if stream.is_invalid or _current(location) is not stream or not location.learns_graphs:
        return False
    if location.log_msgs or location.verbose or stream.thread != threading.get_ident():
        return False
    with torch._C.DisableTorchFunctionSubclass():
        is_usual = node_is_ours(loss) and not is_listened_to() and _are_untouched(stream, location)
    if not is_usual:
        forget(location)
        return False
    learnt: Learnt = location._learnt
    key = (
        stream.numbers[pointer._id_at_location],
        torch.are_deterministic_algorithms_enabled(),
        torch.is_autocast_enabled("cpu"),
        *stream.notes,
    )
    known = learnt.passes.get(key)
    if type(known) is _Pass:
        _send(known, loss, stream, location, learnt)
        with torch._C.DisableTorchFunctionSubclass():
            free_graph(grad_fn_of(loss))
    elif known is None:
        if len(learnt.passes) >= _MOST_SEEN:
            learnt.passes = {k: v for k, v in learnt.passes.items() if type(v) is _Pass}
        learnt.passes[key] = _SEEN
        forget(location)
        return False
    elif known is _UNFIT:
        forget(location)
        return False
    else:
        learnt.passes[key] = _learn(loss, stream, location, learnt)
    forget(location)
    return True


def _are_untouched(stream: Stream, location: Any) -> bool:
    """Whether all leaves are where they were, and their gradients are theirs alone to set."""
    for obj_id, leaf in stream.leaves.items():
        node = leaf.child if type(leaf) is Wrapper else None  # fetched
        if node is None or node._id_at_location != obj_id or node._location is not location:
            return False
        if leaf._backward_hooks or leaf._post_accumulate_grad_hooks or not leaf.requires_grad:
            return False
        if leaf.grad is not None:
            return False
    return True


def _send(known: _Pass, loss: Any, stream: Stream, location: Any, learnt: Learnt) -> None:
    by_number = list(stream.numbers)
    inputs = tuple([by_number[number] for number in known.inputs])
    ids = tuple([ID_PROVIDER.pop() for _ in known.outputs])
    with learnt.lock:
        now = location.session_key
        if learnt.session is not now:
            learnt.session, learnt.known = now, {}
        message = LearntMessage(known.number, inputs, ids)
        if known.number not in learnt.known:
            message = LearntMessage(known.number, inputs, ids, known.operations, known.outputs)
            learnt.known[known.number] = None
            if len(learnt.known) > MOST_PROGRAMS:
                del learnt.known[next(iter(learnt.known))]
        try:
            session.require_local_worker().send_msg(message, location)
        except BaseException:
            learnt.session = None  # nobody knows what it was told
            raise
    given = iter(ids)
    for leaf, spec in zip(stream.leaves.values(), known.gradients, strict=True):
        if spec is not None:
            leaf.grad = new_wrapper(loss.child.beside(next(given), spec))


def _learn(loss: Any, stream: Stream, location: Any, learnt: Learnt) -> Any:
    """Let torch differentiate, and note what it sends; `_UNFIT` if that cannot be said in one message."""
    sent: list[Any] = []
    carry, me = location._recv_msg, threading.get_ident()

    def note(message: Any) -> Any:
        if threading.get_ident() == me:
            sent.append(message)
        return carry(message)

    location._stream = None  # what torch computes from now on is no part of it
    location._recv_msg = note
    try:
        torch.autograd.backward(loss)
    finally:
        del location._recv_msg
    return _written_down(sent, stream, location, learnt)


def _written_down(sent: list[Any], stream: Stream, location: Any, learnt: Learnt) -> Any:
    if len(sent) > MOST_OPERATIONS:
        return _UNFIT
    inputs: dict[Any, int] = {}  # ids of tensors of the stream -> their slots
    for message in sent:
        if type(message) is not Operation or message.cmd_owner is not None or message.wants_specs:
            return _UNFIT
        for value in message.cmd_args:
            if type(value) is Ref and value.id in stream.numbers:
                inputs.setdefault(value.id, len(inputs))
    slots = dict(inputs)
    operations = []
    for message in sent:
        args = [_slotted(value, slots) for value in message.cmd_args]
        if (
            _UNFIT in args
            or not message.return_ids
            or any(type(v) is Ref for v in message.cmd_kwargs.values())
        ):
            return _UNFIT
        # NB: ids are taken from the end.
        for obj_id in reversed(message.return_ids):
            slots[obj_id] = len(slots)
        operations.append((message.cmd_name, tuple(args), message.cmd_kwargs, len(message.return_ids)))
    outputs: list[int] = []
    gradients: list[Any] = []
    for leaf in stream.leaves.values():
        gradient = leaf.grad
        if gradient is None:
            gradients.append(None)
            continue
        node: Any = gradient.child if type(gradient) is Wrapper else None
        slot = slots.get(getattr(node, "_id_at_location", None))
        if slot is None or slot < len(inputs) or slot in outputs or node._location is not location:
            return _UNFIT
        outputs.append(slot)
        gradients.append(node._spec)
    try:
        checked_commands(tuple(operations), outputs, len(inputs))
    except (SyftError, TypeError):
        return _UNFIT
    numbers = [stream.numbers[obj_id] for obj_id in inputs]
    with learnt.lock:
        number = learnt.next_number
        learnt.next_number += 1
        oldest = number - MOST_PROGRAMS
        learnt.passes = {k: v for k, v in learnt.passes.items() if type(v) is not _Pass or v.number > oldest}
    return _Pass(number, numbers, tuple(operations), tuple(outputs), gradients)


def _slotted(value: Any, slots: dict[Any, int]) -> Any:
    """An argument with a slot in place of an id; `_UNFIT` if it is about something else than the pass."""
    if type(value) is not Ref:
        return value
    slot = slots.get(value.id)
    return _UNFIT if slot is None else Ref(slot)
