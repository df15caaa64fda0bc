"""A `Sequential` of plain layers at an open worker of this process, run as one command.

The worker is told the functions of all layers and keeps what each returns; the graph here has the node of each
(`syft.tensors.fused`). So nothing differs from the layers one by one but what it takes to call them.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from syft.core.chain import Wrapper, new_wrapper
from syft.core.ids import ID_PROVIDER
from syft.core.node import MISSED
from syft.core.spec import spec_of
from syft.messaging.message import Ref
from syft.tensors import kept_graphs
from syft.tensors.fused import REFUSALS, Linear, Relu, is_usual, run_there
from syft.tensors.pointer import PointerTensor, new_pointer

_disable_torch_function = torch._C.DisableTorchFunctionSubclass
_pop_id = ID_PROVIDER.pop

#: What runs modules of each kind, as long as nobody has put something else there.
_CODE = {kind: (kind.forward, kind._call_impl) for kind in (nn.Sequential, nn.Linear, nn.ReLU)}
_module: Any = torch.nn.modules.module
_GLOBAL_HOOKS = (
    _module._global_forward_hooks,
    _module._global_forward_pre_hooks,
    _module._global_backward_hooks,
    _module._global_backward_pre_hooks,
)
#: What an instance may have in the place of what its class has.
_SHADOWS = frozenset({"forward", "weight", "bias"})


def run_layers(model: Any, given: Any) -> Any:
    """What a Sequential that was sent returns; MISSED if its layers have to be called one by one."""
    pointer = given.child if type(given) is Wrapper else None
    if type(pointer) is not PointerTensor:
        return MISSED
    location = pointer._location
    if not location.keeps_graphs or location.run_at_once is None or not is_usual():
        return MISSED
    if any(_GLOBAL_HOOKS) or torch._C._get_tracing_state() or not _runs_own_code(model):
        return MISSED
    for kind, code in _CODE.items():
        if (kind.forward, kind._call_impl) != code:
            return MISSED
    steps: list[tuple[str, int, bool]] = []
    tensors: list[Any] = [given]
    for layer in model._modules.values():
        kind = type(layer)
        if kind is nn.Linear and _runs_own_code(layer):
            weight, bias = layer._parameters.get("weight"), layer._parameters.get("bias")
            tensors.append(weight)
            if bias is not None:
                tensors.append(bias)
            steps.append((Linear.command, 1 if bias is None else 2, True))
        elif kind is nn.ReLU and steps and not layer.inplace and _runs_own_code(layer):
            # It saves its result; nobody needs what it was given.
            steps[-1] = (*steps[-1][:2], False)
            steps.append((Relu.command, 0, True))
        else:
            return MISSED
    if len(steps) < 2:
        return MISSED
    with _disable_torch_function():
        return _run(location, pointer._owner, tuple(steps), tensors)


def _runs_own_code(module: Any) -> bool:
    """Whether a call of a module runs the forward of its class, and nothing else."""
    own = module.__dict__
    return (
        not own["_forward_hooks"]
        and not own["_forward_pre_hooks"]
        and not own["_backward_hooks"]
        and not own["_backward_pre_hooks"]
        and own.get("_compiled_call_impl") is None
        and _SHADOWS.isdisjoint(own)
    )


def _run(location: Any, owner: Any, steps: tuple[tuple[str, int, bool], ...], tensors: list[Any]) -> Any:
    refs: list[Any] = []
    is_tracked = False
    for tensor in tensors:
        pointer = tensor.child if type(tensor) is Wrapper else None
        if type(pointer) is not PointerTensor or pointer._location is not location:
            return MISSED
        if tensor.requires_grad:
            is_tracked = True
        refs.append(Ref(pointer._id_at_location))
    tape = None
    if is_tracked and torch.is_grad_enabled():
        tape = kept_graphs.follow(tensors, refs, location)
        if tape is None:
            return MISSED
    ids = tuple([_pop_id() for step in steps if step[2]])
    try:
        if not run_there(location, owner, steps, refs, {}, ids):
            return MISSED
    except REFUSALS:
        return MISSED  # the long way says what is wrong
    entries = location._entries
    # NB: ids are taken from the end.
    kept = [new_pointer(location, obj_id, spec_of(entries[obj_id].value)) for obj_id in reversed(ids)]
    if tape is None:
        return new_wrapper(kept[-1])
    pointers, rest = iter(kept), iter(tensors)
    result, made = next(rest), None
    for command, count, is_kept in steps:
        made = next(pointers) if made is None else made
        # A result that is not kept looks like that of the step after it.
        shown = made if is_kept else made.place()
        shown._tape = tape
        node: Any = Linear if command is Linear.command else Relu
        result = node.apply_to(shown, {}, result, *[next(rest) for _ in range(count)])
        made = None if is_kept else made
    return result
