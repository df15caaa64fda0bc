"""Functions of torch that an open worker of this process runs as one command, whatever operations they are made of.

NOTE [One command]
`F.linear` is a transposed view and a product, `F.cross_entropy` two operations. Each would go through torch's dispatcher,
be given an id and be stored, though nobody sees it. Where the worker keeps its own graph (`syft.tensors.kept_graphs`), it
runs the function of torch itself. The graph here has one node for it, which is differentiated only where the worker's
graph cannot be used: by the formulas of torch, operation by operation, so that gradients of any order are those of torch.

Whatever could tell the difference takes the long way: modes, hooks on saved tensors, autocast, workers that are guarded
or log messages, arguments of any other kind. So does a function that torch refuses: the error is that of the long way.

A node saves what torch would save, so that what torch refuses is refused here, and nothing else.

A `Sequential` of plain layers is one command, too (`run_layers`). The graph here has the node of each layer, so nothing
differs from the layers one by one but what it takes to call them.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import is_inference_mode_enabled as _is_inference_mode_enabled
from torch import nn
from torch._C import (
    _are_functorch_transforms_active,
    _get_dispatch_stack_at,
    _increment_version,
    _is_any_autocast_enabled,
    _len_torch_dispatch_stack,
)
from torch.autograd import forward_ad
from torch.nn import functional as F

from syft.core.chain import Wrapper, new_wrapper
from syft.core.ids import ID_PROVIDER
from syft.core.memory import CACHES, Memory
from syft.core.node import MISSED
from syft.core.session import session
from syft.core.spec import TensorSpec, spec_of
from syft.messaging.message import Ref
from syft.tensors import kept_graphs
from syft.tensors.made_at import MadeAt
from syft.tensors.pointer import PLAIN, PointerTensor, new_pointer
from syft.tensors.tapes import FUSED_NODES, Tape, grad_fn_of

_disable_torch_function = torch._C.DisableTorchFunctionSubclass
_pop_id = ID_PROVIDER.pop
#: What torch raises of arguments that it does not take.
REFUSALS = (RuntimeError, TypeError, ValueError, IndexError)
_ALIAS = torch.ops.aten.alias.default


def is_usual() -> bool:
    """Whether nobody in this thread sees or changes the operations that functions are made of."""
    depth = _len_torch_dispatch_stack()
    # NB: what makes the tensors of a model where it is lets the operations on pointers pass.
    return not (
        (depth and (depth > 1 or type(_get_dispatch_stack_at(0)) is not MadeAt))
        or _are_functorch_transforms_active()
        or _is_any_autocast_enabled()
        or _is_inference_mode_enabled()
        or forward_ad._current_level >= 0
        or not CACHES.are_on
    )


def run_there(
    location: Any, owner: Any, command: Any, refs: list[Any], kwargs: dict[str, Any], ids: tuple[Any, ...]
) -> Any:
    """Let a worker run a command, outside of what this thread does with the tensors that it makes."""
    speaker = owner or session.local_worker
    if not _len_torch_dispatch_stack():
        return location.run_at_once(speaker, command, refs, kwargs, ids)
    with torch._C._DisableTorchDispatch():
        return location.run_at_once(speaker, command, refs, kwargs, ids)


def _run(node: type[Fused], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The result of a function at the worker of its arguments; MISSED if it has to take the long way."""
    if not args or len(args) > node.most or type(args[0]) is not Wrapper:
        return MISSED
    first = args[0].child
    if type(first) is not PointerTensor:
        return MISSED
    location = first._location
    if not location.keeps_graphs or location.run_at_once is None or not is_usual():
        return MISSED
    refs: list[Any] = []
    is_tracked = False
    with _disable_torch_function():
        for value in args:
            if type(value) is Wrapper:
                pointer = value.child
                if type(pointer) is not PointerTensor or pointer._location is not location:
                    return MISSED
                if value.requires_grad:
                    is_tracked = True
                refs.append(Ref(pointer._id_at_location))
            elif type(value) in PLAIN:
                refs.append(value)
            else:
                return MISSED
        for option in kwargs.values():
            if type(option) not in PLAIN:
                return MISSED
        tape = None
        if is_tracked and torch.is_grad_enabled():
            # NB: a leaf is written into without anybody asking its tape.
            if node is NarrowCopy or (node is CrossEntropy and args[0].is_leaf):
                return MISSED
            tape = kept_graphs.follow(args, refs, location)
            if tape is None:
                return MISSED
        new_id = _pop_id()
        try:
            if not run_there(location, first._owner, node.command, refs, kwargs, (new_id,)):
                return MISSED
        except REFUSALS:
            return MISSED  # the long way says what is wrong
        made = new_pointer(location, new_id, spec_of(location._entries[new_id].value))
        if tape is None:
            return new_wrapper(made)
        made._tape = tape
        return node.apply_to(made, kwargs, *args)


def _write(command: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Write into the first argument at its worker, where torch follows nothing; MISSED for the long way."""
    if torch.is_grad_enabled() or not args or type(args[0]) is not Wrapper:
        return MISSED
    written = args[0].child
    if type(written) is not PointerTensor:
        return MISSED
    location = written._location
    if not location.keeps_graphs or location.run_at_once is None or not is_usual():
        return MISSED
    refs: list[Any] = []
    for value in args:
        if type(value) is Wrapper:
            pointer = value.child
            if type(pointer) is not PointerTensor or pointer._location is not location:
                return MISSED
            refs.append(Ref(pointer._id_at_location))
        elif type(value) in PLAIN:
            refs.append(value)
        else:
            return MISSED
    for option in kwargs.values():
        if type(option) not in PLAIN:
            return MISSED
    if written._tape is not None:
        kept_graphs.invalidate((written,))
    try:
        if not run_there(location, written._owner, command, refs, kwargs, ()):
            return MISSED
    except REFUSALS:
        return MISSED  # the long way says what is wrong
    _increment_version(args[:1])
    return args[0]


# -- the graph here ----------------------------------------------------------------------------------


def _apply_of(node: Any) -> Any:
    """`node.apply`, without its look for functorch: `is_usual` has done that."""
    return super(torch.autograd.Function, node).apply


class Fused(torch.autograd.Function):
    """A function in the graph here.

    command   what the worker is told; most: so many arguments at most
    apply_to  puts it into the graph: (pointer to the result, options, arguments)
    """

    command: str
    most: int
    apply_to: Callable[..., Any]

    @classmethod
    def serve(cls, *functions: Any) -> None:
        """Run these functions of torch as this one."""
        if "apply_to" not in vars(cls):
            cls.apply_to = _apply_of(cls)
        FUSED_NODES.add(cls._backward_cls)
        for function in functions:
            Wrapper.fused[function] = partial(_run, cls)


def _differentiate(
    function: Callable[..., Any], args: tuple[Any, ...], options: dict[str, Any], grad: Any, needed: Any
) -> list[Any]:
    """The gradients of a function for those of its arguments for which they are needed, None for the others."""
    is_differentiable = torch.is_grad_enabled()
    with _disable_torch_function(), torch.enable_grad():
        again: list[Any] = []
        for value, is_needed in zip(args, needed, strict=True):
            if not is_needed:
                again.append(value)
            else:
                again.append(_ALIAS(value) if is_differentiable else value.detach().requires_grad_())
        result = function(*again, **options)
        wanted = [value for value, is_needed in zip(again, needed, strict=True) if is_needed]
        found = iter(torch.autograd.grad(result, wanted, grad, create_graph=is_differentiable))
    return [next(found) if is_needed else None for is_needed in needed]


class Linear(Fused):
    """`F.linear(input, weight, bias)`. No gradient depends on the values of the bias."""

    command, most = "torch.nn.functional.linear", 3

    @staticmethod
    def forward(ctx: Any, made: PointerTensor, options: dict[str, Any], *args: Any) -> Any:
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(args[0], args[1])
        ctx.bias = args[2].child._spec if len(args) > 2 and args[2] is not None else None
        ctx.options = options
        return new_wrapper(made)

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        needed = ctx.needs_input_grad[2:]
        if grad is None:
            return None, None, *[None] * len(needed)
        given, weight = ctx.saved_tensors
        bias = None
        if ctx.bias is not None:
            bias = torch.ops.aten.new_zeros.default(grad.detach(), ctx.bias.shape, dtype=ctx.bias.dtype)
            bias.requires_grad_(needed[2])
        args = (given, weight, bias)[: len(needed)]
        return None, None, *_differentiate(F.linear, args, ctx.options, grad, needed)


class Relu(Fused):
    """`relu(input)`. Its derivative is a function of its result, which it saves."""

    command, most = "torch.relu", 1

    @staticmethod
    def forward(ctx: Any, made: PointerTensor, options: dict[str, Any], given: Any) -> Any:
        ctx.set_materialize_grads(False)
        result = new_wrapper(made)
        ctx.save_for_backward(result)
        return result

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        if grad is None:
            return None, None, None
        (result,) = ctx.saved_tensors
        return None, None, torch.ops.aten.threshold_backward.default(grad, result, 0)


class NarrowCopy(Fused):
    """`torch.narrow_copy(input, dim, start, length)` of data, which need no gradient: a batch of a data set."""

    command, most = "torch.narrow_copy", 4


class LogSoftmax(Fused):
    """The logarithms that torch saves of a cross-entropy, which are a result of their own.

    They are computed when they are needed: when the graph here is differentiated, or before the input is written into, or
    handed out. Until then the input is saved.
    """

    @staticmethod
    def forward(ctx: Any, given: Any) -> Any:
        ctx.set_materialize_grads(False)
        ctx.later = given.child.place()
        logarithms = new_wrapper(ctx.later)
        ctx.save_for_backward(given, logarithms)
        return logarithms

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        if grad is None:
            return None
        _, logarithms = ctx.saved_tensors
        return torch.ops.aten._log_softmax_backward_data.default(grad, logarithms, 1, logarithms.dtype)


class CrossEntropy(Fused):
    """`F.cross_entropy(input, target, ...)` of rows and the numbers of their classes."""

    command, most = "torch.nn.functional.cross_entropy", 2

    @classmethod
    def apply_to(cls, made: PointerTensor, options: dict[str, Any], given: Any, target: Any) -> Any:
        logarithms: Any = LogSoftmax.apply_to(given)
        node = grad_fn_of(logarithms)
        made._tape.note_fused(weakref.ref(node))
        return _APPLY(
            made, (_REDUCTIONS[options["reduction"]], options["ignore_index"], node), logarithms, target
        )

    @staticmethod
    def forward(ctx: Any, made: PointerTensor, options: Any, logarithms: Any, target: Any) -> Any:
        ctx.set_materialize_grads(False)
        ctx.options = options
        ctx.save_for_backward(logarithms, target)
        return new_wrapper(made)

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        if grad is None:
            return None, None, None, None
        *reduction, node = ctx.options
        logarithms, target = ctx.saved_tensors
        if node.later is not None:
            compute_logarithms(node, node.saved_tensors[0])
        with torch.no_grad():
            _, weight = _NLL(logarithms.detach(), target, None, *reduction)
        return None, None, _NLL_BACKWARD(grad, logarithms, target, None, *reduction, weight), None


_NLL, _NLL_BACKWARD = torch.ops.aten.nll_loss_forward.default, torch.ops.aten.nll_loss_backward.default
_APPLY = _apply_of(CrossEntropy)
_REDUCTIONS = {"none": 0, "mean": 1, "sum": 2}


def compute_logarithms(node: Any, given: Any) -> None:
    """Compute what torch would have saved of a cross-entropy."""
    with torch.no_grad(), _disable_torch_function():
        found = torch.ops.aten._log_softmax.default(given.detach(), 1, False).child
    later, node.later = node.later, None
    later._id_at_location, later.garbage_collect_data = found._id_at_location, True
    found.garbage_collect_data = False


def _cross_entropy(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`F.cross_entropy`, unless it is about weights, smoothing, or targets that are probabilities."""
    if len(args) != 2 or type(args[0]) is not Wrapper or type(args[1]) is not Wrapper:
        return MISSED
    given, target = args[0].child, args[1].child
    if type(given) is not PointerTensor or type(target) is not PointerTensor:
        return MISSED
    rows, labels = given._spec, target._spec
    key = rows, labels, *kwargs.values()
    if not _is_usual_loss.get(key):
        if not _is_of_classes(rows, labels, kwargs):
            return MISSED
        _is_usual_loss[key] = True
    return _run(CrossEntropy, args, kwargs)


def _is_of_classes(rows: TensorSpec, labels: TensorSpec, kwargs: dict[str, Any]) -> bool:
    options = {name: value for name, value in kwargs.items() if name not in ("reduction", "ignore_index")}
    return (
        options == _DEFAULTS
        and list(kwargs) == _OPTIONS
        and kwargs["reduction"] in _REDUCTIONS
        and len(rows.shape) == 2
        and rows.strides == (rows.shape[1], 1)
        and not rows.offset
        and rows.dtype.is_floating_point
        and len(labels.shape) == 1
        and labels.dtype is torch.int64
    )


#: What F.cross_entropy hands on of its own accord.
_OPTIONS = ["weight", "size_average", "ignore_index", "reduce", "reduction", "label_smoothing"]
_is_usual_loss: Memory[tuple[Any, ...], bool] = Memory(10_000)
_DEFAULTS = {"weight": None, "size_average": None, "reduce": None, "label_smoothing": 0.0}


Linear.serve(F.linear)
Relu.serve(torch.relu, torch.Tensor.relu)
Wrapper.fused[F.relu] = lambda args, kwargs: MISSED if kwargs.get("inplace") else _run(Relu, args, {})
LogSoftmax.serve()
CrossEntropy.serve()
NarrowCopy.serve(torch.narrow_copy)
Wrapper.fused[F.cross_entropy] = _cross_entropy
Tape.compute_later = staticmethod(compute_logarithms)

for _method in (
    torch.Tensor.add_,
    torch.Tensor.mul_,
    torch.Tensor.lerp_,
    torch.Tensor.addcmul_,
    torch.Tensor.addcdiv_,
):
    Wrapper.fused[_method] = partial(_write, _method.__name__)


# -- layers ----------------------------------------------------------------------------------------------

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
            # It saves its result; nobody needs what it was given by a linear layer.
            if steps[-1][0] is Linear.command:
                steps[-1] = (*steps[-1][:2], False)
            steps.append((Relu.command, 0, True))
        else:
            return MISSED
    if len(steps) < 2:
        return MISSED
    with _disable_torch_function():
        return _run_steps(location, pointer._owner, tuple(steps), tensors)


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


def _run_steps(
    location: Any, owner: Any, steps: tuple[tuple[str, int, bool], ...], tensors: list[Any]
) -> Any:
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
