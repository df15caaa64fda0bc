"""Graphs that a worker keeps itself, so that `loss.backward()` is one message.

NOTE [Two graphs, one of them used]
torch keeps a graph of every loss here, over pointers. Differentiating that one sends an operation per node. An open
worker of this process is told, operation by operation, which arguments torch tracks (`TrackedRef`), and so its own torch
keeps a graph of the same operations on the values. `loss.backward()` then asks the worker to differentiate that
(`BackwardMessage`), sets `.grad` of the leaves here, and frees what the graph here has saved, as torch does.

Both graphs are of the same operations, or the one here is used. A `Tape` stands for a graph that both keep. A result
has none, and then nothing computed from it has, if its operation has arguments that the worker was not told of: an input
with a history but no tape (from functions that are one node here), tensors in lists, hooks on saved tensors. A tape is
invalid when an operation writes into one of its tensors, or when somebody may listen to its nodes: `register_hook`,
`retain_grad`, `grad_fn`. Hooks of leaves, `retain_graph`, `create_graph`, `inputs`, an own gradient, anomaly detection
and dispatch modes use the graph here, too.

NOTE [Freed later]
torch frees what a graph has saved as it differentiates it. To free the graph here in the same way takes as long as a few
operations, and mostly it is about to go with its loss. So it waits until somebody uses it again (torch refuses then, as
always), until the next backward pass, or until somebody looks at what the worker holds. If its loss is gone by then and
other results of it are not, nothing leads to its nodes: the worker keeps no graphs from then on, so only this one
waits. Such a graph can be differentiated a second time, which torch would refuse; what torch does not refuse comes out
as in torch.

`worker.keeps_graphs = False` turns all of this off.
"""

from __future__ import annotations

import weakref
from typing import Any

import torch
from torch.autograd.function import BackwardCFunction

from syft.core.chain import Wrapper, new_wrapper
from syft.core.session import session
from syft.messaging.message import BackwardMessage, LeafRef, TrackedRef
from syft.tensors import learnt_graphs
from syft.tensors.stale_graphs import free_graph
from syft.tensors.tapes import (
    FUSED_NODES,
    GRAD,
    GRAD_FN,
    Tape,
    grad_fn_of,
    is_listened_to,
    node_is_ours,
    saved_hooks,
)

_disable_torch_function = torch._C.DisableTorchFunctionSubclass
_get_grad, _set_grad = GRAD.__get__, GRAD.__set__

#: Functions after which somebody may listen to the graph of their tensor, and those that free the graph here alone.
_LISTENS = frozenset({torch.Tensor.register_hook, torch.Tensor.retain_grad})
_INVALIDATES = _LISTENS | {torch.autograd.backward, torch.autograd.grad}


def follow(args: Any, refs: list[Any], location: Any) -> Tape | None:
    """The tape of an operation, whose references to tracked arguments are marked; None if it has none."""
    tape: Tape | None = None
    leaves: list[tuple[int, Any]] = []
    results: list[int] = []
    for place, value in enumerate(args):
        if type(value) is not Wrapper or not value.requires_grad:
            continue
        own = value.child._tape
        if value.is_leaf:
            if own is not None:  # `detach().requires_grad_()`: the worker knows it as a result
                return None
            leaves.append((place, value))
            continue
        if own is None:
            return None
        node = grad_fn_of(value)
        if isinstance(node, BackwardCFunction) and type(node) not in FUSED_NODES:
            return None  # NB: this is `node_is_ours`, without a call
        if own.joined is not None:
            own = own.root()
        if own.used:
            _free(value)
            return None
        tape = own if tape is None else tape.join(own)
        results.append(place)
    if (tape is None and not leaves) or location.log_msgs or saved_hooks(False) is not None:
        return None
    if tape is None:
        tape = Tape()
    for place, leaf in leaves:
        tape.add_leaf(refs[place].id, leaf)
    if tape.is_invalid:
        return None
    for place, _leaf in leaves:
        refs[place] = LeafRef(refs[place].id, tape)
    for place in results:
        refs[place] = TrackedRef(refs[place].id, tape)
    return tape


def backward_there(loss: Any) -> bool:
    """Let the worker differentiate the graph of `loss`; whether it did. If not, nothing has changed."""
    pointer = loss.child
    tape = None if pointer._tape is None else pointer._tape.root()
    location = pointer._location
    if type(tape) is learnt_graphs.Stream:
        return learnt_graphs.backward_there(loss, tape)
    if tape is not None and tape.used:
        _free(loss)
    if tape is None or tape.is_invalid or not location.keeps_graphs or location.log_msgs or is_listened_to():
        free_last(location)  # this pass may reach it
        return False
    with _disable_torch_function():
        if not node_is_ours(loss):
            return False
        before = _gradients_before(tape, location)
        if before is None:
            return False
        speaker = pointer._owner or session.local_worker
        message = BackwardMessage(pointer._id_at_location, tuple(tape.leaves), before)
        made = speaker.send_msg(message, location)
        if made is None:
            tape.is_invalid = True
            return False
        for leaf, gradient in zip(tape.leaves.values(), made, strict=True):
            if gradient is not None:
                _set_grad(leaf, new_wrapper(gradient))
        tape.leaves, tape.is_invalid, tape.used = {}, True, True
        if not free_last(location):
            location.keeps_graphs = False
        location._last_graph = weakref.ref(loss), weakref.ref(tape)
    return True


def free_last(location: Any) -> bool:
    """Free the graph that a worker differentiated last, where its loss is still there; whether no part of it is left."""
    last, location._last_graph = location._last_graph, None
    if last is None:
        return True
    loss, tape = last[0](), last[1]()
    if tape is None or not tape.used:
        return True
    own = getattr(getattr(loss, "child", None), "_tape", None)
    if own is None or own.root() is not tape:
        return False
    _free(loss)
    return True


def _free(result: Any) -> None:
    """Free the graph of a result that was differentiated at the worker."""
    with _disable_torch_function():
        free_graph(grad_fn_of(result))
    result.child._tape.root().used = False


def _gradients_before(tape: Tape, location: Any) -> tuple[Any, ...] | None:
    """The ids of the leaves' gradients, None for a leaf without; None for all if hooks or other workers have a part."""
    found: list[Any] = []
    for obj_id, leaf in tape.leaves.items():
        node = leaf.child if type(leaf) is Wrapper else None  # fetched
        if node is None or node._id_at_location != obj_id or node._location is not location:
            return None
        if leaf._backward_hooks or leaf._post_accumulate_grad_hooks or not leaf.requires_grad:
            return None
        gradient = _get_grad(leaf)
        if gradient is None:
            found.append(None)
            continue
        head = gradient.child if type(gradient) is Wrapper else None
        if head is None or type(head) is not type(node) or head._location is not location:
            return None
        if gradient.requires_grad:
            return None
        found.append(head._id_at_location)
    return tuple(found)


def invalidate(pointers: Any) -> None:
    """An operation writes into some of these: what was kept of their graphs is not what happened."""
    for pointer in pointers:
        tape = pointer._tape
        if tape is not None:
            root = tape.root()
            root.is_invalid = True
            if root.fused:
                root.compute_saved()


def graph_is_used(func: Any, tensor: Any) -> None:
    """A function that uses torch's graph is called on a pointer, or its node in it is asked for.

    Who listens invalidates the tape. Who has a node has all below it, and may listen to those of leaves for ever.
    """
    pointer = tensor.child
    if tensor.requires_grad and not tensor.is_leaf:
        tape = pointer._tape
        if tape is not None and tape.root().used:
            _free(tensor)
        if func in _INVALIDATES or func is GRAD_FN:
            if tape is not None:
                tape.root().is_invalid = True
            if func is GRAD_FN:
                pointer._location.keeps_graphs = False


def will_be_fetched(tensor: Any) -> None:
    """A result is about to be fetched with its history."""
    tape = tensor.child._tape
    if tape is None:
        return
    root = tape.root()
    if root.used:
        _free(tensor)
    if root.fused:
        root.compute_saved()
