"""`Wrapper`, the only `torch.Tensor` subclass, and the two levels at which torch asks it what to do.

__torch_function__   public names: only types that overload or observe the name are asked
(autograd)           torch's own
__torch_dispatch__   aten operations: unwrap, let the head of the chain interpret, rewrap
"""

from __future__ import annotations

import copy
import math
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch.utils._python_dispatch import return_and_correct_aliasing

from syft.core import hook_args, html
from syft.core.descent import descend, empty_wrapper, rewrap_response
from syft.core.nested import found_in
from syft.core.node import MISSED, Node
from syft.core.ops import facts_of, written_argument
from syft.core.public_names import public_name, spoken_name, writes_first
from syft.core.routes import OBSERVE, Overload, route
from syft.core.spec import TensorSpec
from syft.core.swap import become
from syft.exceptions import (
    ChainError,
    TensorsNotCollocatedException,
    UnsupportedOperationError,
    ValueNotHereError,
)

_make_wrapper = torch.Tensor._make_wrapper_subclass
_disable_torch_function = torch._C.DisableTorchFunctionSubclass
_plain_data: Any = torch.Tensor.data
_plain_grad: Any = torch.Tensor.grad
_get_grad, _set_grad = _plain_grad.__get__, _plain_grad.__set__


#: `tensor.grad`, `tensor.shape` and the like arrive as the descriptor's bound `__get__` and `__set__`.
_PropertyAccess = type(vars(torch._C.TensorBase)["grad"].__get__)
_GRAD_FN = vars(torch._C.TensorBase)["grad_fn"]

_MOVES = frozenset({torch.ops.aten._to_copy.default, torch.ops.aten.to.dtype_layout})
_META = torch.device("meta")
#: Functions that run the operations of a graph: an error in one of those is not about their own arguments.
_WALKS_A_GRAPH = frozenset({torch.autograd.grad, torch.autograd.backward})


#: Functions that use the graph of their tensors, or listen to it.
_USES_GRAPHS = _WALKS_A_GRAPH | {torch.Tensor.register_hook, torch.Tensor.retain_grad}


class _Empty(threading.local):
    """Whether views of empty wrappers are empty wrappers, and no mistake, in this thread."""

    has_views = False


EMPTY = _Empty()


@dataclass(frozen=True)
class Calls:
    """How public calls on chains are made: the functions of `syft.core.levels`, which stands on this module.

    NB: it hands them to `Wrapper.calls`. A wrapper has a node, its type derives from `AbstractTensor`, and that module
    imports `levels`: so they are there before the first chain is.
    """

    on_bare_nodes: Callable[[Any, tuple[Any, ...], dict[str, Any]], Any]
    call_overload: Callable[[Any, Any, Overload, tuple[Any, ...], dict[str, Any]], Any]
    call_below: Callable[[Any, tuple[Any, ...], dict[str, Any]], Any]
    call_on_chains: Callable[[Any, Overload, tuple[Any, ...], dict[str, Any]], Any]


class Wrapper(torch.Tensor):
    """A tensor with no storage of its own whose behaviour is that of its `.child`."""

    # NB: found before the `child` that the hook puts on torch.Tensor, and no data descriptor, so that
    # the instance's own attribute wins. Slots would make `__class__` unswappable (see syft.core.swap).
    child: Any = None
    calls: ClassVar[Calls]
    #: function of torch -> what runs it on chains as one command, or answers MISSED; see syft.tensors.fused.
    fused: ClassVar[dict[Any, Callable[[tuple[Any, ...], dict[str, Any]], Any]]] = {}

    @staticmethod
    def __new__(cls: Any, child: Any = None, *, requires_grad: bool = False) -> Wrapper:
        if child is None:
            return _make_wrapper(cls, (0,), requires_grad=requires_grad)  # type: ignore[no-any-return]
        made = new_wrapper(child)
        return made.requires_grad_() if requires_grad else made  # type: ignore[return-value]

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func.__class__ is _PropertyAccess:
            if func.__self__ is _GRAD_FN:
                _tell_of_graphs(_GRAD_FN, args)
            with _disable_torch_function():
                return func(*args)
        kwargs = kwargs or {}
        at_once = cls.fused.get(func)
        if at_once is not None:
            response = at_once(args, kwargs)
            if response is not MISSED:
                return response
        if func in _USES_GRAPHS:
            _tell_of_graphs(func, args)
        if len(types) > 1 and any(issubclass(t, Node) for t in types):
            return Wrapper.calls.on_bare_nodes(func, args, kwargs)
        if func in _READS_INDICES:
            args, kwargs = _read_indices(args, kwargs)
        node = args[0].child if args and type(args[0]) is Wrapper else first_node(args, kwargs)
        if args and type(args[0]) is torch.Tensor and writes_first(func):
            taken = _tell_of_writing(func, args[0], node)
            if taken is not None:
                return _written_or_put_back(func, args, kwargs, taken)
        is_head = is_clear_above = True
        while isinstance(node, Node):
            node_type = type(node)
            routes = node_type.public_routes
            answer = routes[func] if func in routes else route(node_type, func)
            if answer is not None:
                if is_head and answer is not OBSERVE:
                    return Wrapper.calls.call_overload(func, node_type, answer, args, kwargs)
                if answer is OBSERVE and node_type.observes_from_above:
                    node_type.on_public_call(func, args, kwargs)
                elif not is_head and is_clear_above:
                    return Wrapper.calls.call_below(func, args, kwargs)
                elif answer is OBSERVE:
                    node_type.on_public_call(func, args, kwargs)
            node = node.child
            if node is None:
                break
            if isinstance(node, Node):
                # What is below a type that changes operations is reached through that type only.
                is_head, is_clear_above = False, is_clear_above and node_type.is_transparent()
        try:
            if kwargs and kwargs.get("out") is not None:
                return _call_with_out(func, args, kwargs)
            with _disable_torch_function():
                return func(*args, **kwargs)
        except TensorsNotCollocatedException as error:
            # The place that finds out knows the aten operation only, and names cost nothing until they are needed.
            raise error if func in _WALKS_A_GRAPH else error.called(public_name(func)) from None

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        try:
            facts = func._syft_facts  # NB: this is `facts_of`, without a call
        except AttributeError:
            facts = facts_of(func)
        if facts.same_child:
            return alias(args[0])
        if facts.eager_twin is not None:
            func = facts.eager_twin
            facts = facts_of(func)
        kwargs = kwargs or {}
        if facts.changes_shape and type(args[0]) is Wrapper and facts.functional is not None:
            return _change_shape(func, facts.functional, args, kwargs)
        shortcut = getattr(args[0].child, "shortcut", None) if args and type(args[0]) is Wrapper else None
        response = MISSED if shortcut is None else shortcut(func, args, kwargs)
        if response is MISSED:
            if func in _MOVES and args[0].child is not None and kwargs.get("device") == _META:
                # NB: so torch asks what a sum with zeros that it has not made would be (backward of `sgn`).
                return func(_without_values(args[0]), **kwargs)
            _tell_of_graphs(func, (args, kwargs))
            child_args, child_kwargs, _, head = descend(Wrapper, func, args, kwargs)
            if head is None or head is type(None):
                if EMPTY.has_views:
                    return _view_of_nothing(func, args, kwargs)
                raise empty_wrapper(spoken_name(func))
            response = head.interpret(func, child_args, child_kwargs)
        if facts.mutates:
            if facts.returns_first and type(args[0]) is Wrapper and response is args[0].child:
                return args[0]
            return _written_wrappers(facts, response, args, kwargs)
        if isinstance(response, Node):
            if shortcut is None or type(response) is not type(args[0].child):
                return new_wrapper(response)
            # NB: this is `new_wrapper` of a pointer, without its calls.
            spec = response._spec  # type: ignore[attr-defined]
            made = _make_wrapper(
                Wrapper, spec.shape, strides=spec.strides, storage_offset=spec.offset, dtype=spec.dtype
            )
            made.child = response
            return made
        if shortcut is not None and type(response) is tuple and len(response) == 2:
            one, other = response
            if isinstance(one, Node) and isinstance(other, Node):
                return new_wrapper(one), new_wrapper(other)
        return rewrap_response(Wrapper, func, response, None)

    def backward(self, gradient: Any = None, *args: Any, **kwargs: Any) -> None:
        """As torch's, but that a chain of several elements starts from ones when no gradient is given."""
        if gradient is None:
            node = self.child
            if node is not None and math.prod(node.spec.shape) != 1:
                gradient = torch.ones_like(self.detach())
            elif node is not None and not args and not kwargs:
                differentiate = node.backward_there
                if differentiate is not None and differentiate(self):
                    return
        elif type(gradient) is Wrapper and type(gradient.child) is not type(self.child):
            takes_in = getattr(type(self.child), "takes_in", None)
            if takes_in is not None and type(self.child).is_transparent():
                gradient = new_wrapper(self.child.like(gradient.child))
        # Not through __torch_function__: hooks and custom backward functions keep their public level.
        torch.autograd.backward(self, gradient, *args, **kwargs)

    # -- what is asked so often that the way through `__torch_function__` would show ------------------

    #: Chains hold dense tensors.
    is_sparse = False

    @property
    def grad(self) -> Any:
        """As torch's own."""
        with _disable_torch_function():
            return _get_grad(self)

    @grad.setter
    def grad(self, value: Any) -> None:
        with _disable_torch_function():
            _set_grad(self, value)

    @grad.deleter
    def grad(self) -> None:
        with _disable_torch_function():
            _plain_grad.__delete__(self)

    # -- what torch answers from memory that a wrapper does not have ----------------------------------

    @property
    def data(self) -> Any:
        """The same value without its history."""
        with _disable_torch_function():
            return _plain_data.__get__(self)

    @data.setter
    def data(self, value: torch.Tensor) -> None:
        if self.child is None:
            raise empty_wrapper("`.data = ...`")
        made = value if type(value) is Wrapper else new_wrapper(self.child.like(value.detach()))
        _set_metadata(self, made)
        self.child = made.child

    def item(self) -> Any:
        """The value of a single number; of a tensor that is elsewhere the error says what to call, whatever its size."""
        node = self.child
        if node is not None and node.is_remote and self.numel() != 1 and not _is_overloaded(self, "item"):
            place = getattr(node.location, "id", None)
            raise ValueNotHereError(
                "`.item()`", "on other workers" if place is None else f"on worker {place!r}"
            )
        return super().item()

    def transpose(self, *args: Any, **kwargs: Any) -> Any:
        # NB: torch counts the dimensions before it asks anybody; a type may know what none at all means.
        overload = (
            None if args or kwargs or self.child is None else self.child.public_overloads.get("transpose")
        )
        if overload is None:
            return super().transpose(*args, **kwargs)
        return Wrapper.calls.call_on_chains(type(self.child), overload, (self,), {})

    def tolist(self) -> Any:
        if _is_overloaded(self, "tolist"):
            return super().tolist()
        plain = _plain_value(self, "`.tolist()`")
        if plain is not None:
            return plain.tolist()
        return [part.tolist() for part in self] if self.dim() else self.item()

    def numpy(self, *, force: bool = False) -> Any:
        if _is_overloaded(self, "numpy"):
            return super().numpy(force=force)
        if self.requires_grad and not force:
            raise RuntimeError(
                "numpy() was called on a chain that requires grad, and numpy keeps no gradients. "
                "Call `.detach().numpy()` instead."
            )
        plain = _plain_value(self, "`.numpy()`")
        return plain.numpy(force=force) if plain is not None else np.asarray(self.tolist())

    def share_memory_(self) -> Any:
        # NB: torch would end the process here: there is no memory behind a wrapper.
        raise ChainError(
            f"share_memory_() was called on a {type(self.child).__name__} chain, which has no memory of its "
            "own to share. Share the tensor at its end, or fetch the value with `.get()` first."
        )

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]
        shown = f"(Wrapper)>{self.child}"
        return f"Parameter containing:\n{shown}" if isinstance(self, torch.nn.Parameter) else shown

    __str__ = __repr__

    def _repr_html_(self) -> str:
        rows = [("chain", str(self).split("\n")[0]), ("shape", tuple(self.shape)), ("dtype", self.dtype)]
        tags, description = getattr(self, "tags", None), getattr(self, "description", None)
        if tags:
            rows.append(("tags", " ".join(sorted(tags))))
        if description:
            rows.append(("description", description))
        return html.table(type(self).__name__, (), rows)

    def __format__(self, format_spec: str) -> str:
        # As torch does: a single number can be formatted as one, e.g. f"{loss:.3f}".
        if format_spec and self.dim() == 0 and self.child is not None:
            return format(self.item(), format_spec)
        return format(str(self), format_spec)

    def __copy__(self) -> Wrapper:
        made = alias(self)
        made.requires_grad_(self.requires_grad)
        return _with_attributes(made, self, lambda value: value)

    def __deepcopy__(self, memo: dict[int, Any]) -> Wrapper:
        if id(self) in memo:
            return memo[id(self)]  # type: ignore[no-any-return]
        if not self.is_leaf:
            raise RuntimeError(
                "Only leaves of the autograd graph can be deep-copied. Call `.detach()` or `.clone()` on it."
            )
        if self.child is None:
            made = type(self)()
        else:
            with torch.no_grad():
                made = self.clone()  # type: ignore[assignment]
            made.child.tags, made.child.description = set(self.child.tags), self.child.description
        memo[id(self)] = made
        made.requires_grad_(self.requires_grad)
        if self.grad is not None:
            made.grad = copy.deepcopy(self.grad, memo)
        return _with_attributes(made, self, lambda value: copy.deepcopy(value, memo))

    def __reduce_ex__(self, protocol: Any) -> Any:
        kind = "An empty wrapper" if self.child is None else f"A {type(self.child).__name__} chain"
        raise TypeError(
            f"{kind} cannot be pickled: it may stand for data on another machine. Fetch the value with "
            "`.get()` and save that, or use syft.serde.serialize."
        )


# -- wrappers and nodes ------------------------------------------------------------------------------


def new_wrapper(child: Node) -> Wrapper:
    """`Wrapper > child` with the metadata the child presents; no autograd history."""
    spec = child.spec
    if spec.__class__ is TensorSpec:
        made = _make_wrapper(
            Wrapper, spec.shape, strides=spec.strides, storage_offset=spec.offset, dtype=spec.dtype
        )
    elif spec.layout is torch.strided:
        made = _make_wrapper(
            Wrapper,
            spec.shape,
            strides=spec.stride(),
            storage_offset=spec.storage_offset(),
            dtype=spec.dtype,
            device=spec.device,
        )
    else:
        # NB: torch aborts the process when autograd meets a wrapper of another layout.
        raise UnsupportedOperationError(
            f"a result of layout {spec.layout}",
            type(child),
            "Chains hold dense tensors: call `.to_dense()` first.",
        )
    made.child = child
    return made


def alias(wrapper: Wrapper) -> Wrapper:
    """Another wrapper of the same child, as `detach` returns."""
    made = _make_wrapper(
        Wrapper,
        wrapper.shape,
        strides=wrapper.stride(),
        storage_offset=wrapper.storage_offset(),
        dtype=wrapper.dtype,
        device=wrapper.device,
    )
    made.child = wrapper.child
    return made


def _with_attributes(made: Wrapper, original: Any, copied: Callable[[Any], Any]) -> Wrapper:
    """`made` with the other Python attributes of `original` (among them the mark of a Parameter)."""
    for name, value in original.__dict__.items():
        if name != "child":
            made.__dict__[name] = copied(value)
    return made


def _is_overloaded(wrapper: Any, name: str) -> bool:
    """Whether a type in the chain overloads a public name."""
    node = wrapper.child
    while isinstance(node, Node):
        if name in node.public_overloads:
            return True
        node = node.child
    return False


def _plain_value(wrapper: Any, request: str) -> torch.Tensor | None:
    """The torch tensor at the end of a chain that changes nothing about it; None if a type does.

    !! ValueNotHereError for a chain that ends on another machine.
    """
    node = wrapper.child
    if node is None:
        raise empty_wrapper(request)
    if node.location is not None:
        raise ValueNotHereError(request, f"on worker {node.location.id!r}")
    while isinstance(node, Node):
        if not type(node).is_transparent():
            return None
        node = node.child
    return node if isinstance(node, torch.Tensor) else None


#: Functions that read the values of an argument before the dispatcher is asked.
_READS_INDICES = frozenset({torch.tensor_split, torch.Tensor.tensor_split})


def _read_indices(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of `tensor_split` with the places to split at as numbers."""

    def read(value: Any) -> Any:
        return value.tolist() if isinstance(value, torch.Tensor) else value

    kwargs = {name: value if name in ("input", "self") else read(value) for name, value in kwargs.items()}
    return (*args[:1], *map(read, args[1:])), kwargs


def _tell_of_writing(func: Any, target: torch.Tensor, node: Any) -> torch.Tensor | None:
    """Tell the type of a node that its values will be written into a plain tensor. !! what it refuses

    What the tensor was, if the type made a chain of it.
    """
    reader = node
    while isinstance(reader, Node) and reader.takes_over is None and type(reader).is_transparent():
        reader = reader.child
    take_over = type(reader).takes_over if isinstance(reader, Node) else None
    return None if take_over is None else take_over(func, target, node)


def _written_or_put_back(func: Any, args: Any, kwargs: dict[str, Any], before: torch.Tensor) -> Any:
    """Write into the first argument, a chain that took the place of `before`: after an error it is plain again."""
    is_written = False
    try:
        response = func(*args, **kwargs)
        is_written = True
    finally:
        if not is_written:
            become(args[0], before)
    return response


def first_node(args: Any, kwargs: dict[str, Any] | None = None) -> Any:
    """The child of the first Wrapper (or the first bare node) among arguments, or None."""
    for value in args:
        cls = type(value)
        if cls is Wrapper:
            return value.child
        if cls is tuple or cls is list:
            found = first_node(value)
            if found is not None:
                return found
        elif isinstance(value, Node):
            return value
    return first_node(kwargs.values()) if kwargs else None


def map_tensors(step: Callable[[Any], Any], value: Any) -> Any:
    """`value` with `step` applied to every tensor and node in it, containers kept."""
    if isinstance(value, (torch.Tensor, Node)):
        return step(value)
    cls = type(value)
    if cls is tuple or cls is list:
        return cls(map_tensors(step, v) for v in value)
    if cls is dict:
        return {k: map_tensors(step, v) for k, v in value.items()}
    if isinstance(value, tuple) and cls is not torch.Size:
        mapped = [map_tensors(step, v) for v in value]
        return cls._make(mapped) if hasattr(cls, "_make") else cls(mapped)
    return value


def _change_shape(func: Any, functional: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`t_`, `squeeze_`, ...: this wrapper gets a new view as its child; other aliases keep theirs."""
    target = args[0]
    child_args, child_kwargs, _, head = descend(Wrapper, functional, args, kwargs)
    viewed = head.interpret(functional, child_args, child_kwargs)
    returned = return_and_correct_aliasing(func, args, kwargs, target)  # type: ignore[no-untyped-call]
    target.child = viewed
    return returned


def _view_of_nothing(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Wrapper:
    """An empty wrapper of the metadata that a view would have."""
    view = func(*map_tensors(_without_values, args), **map_tensors(_without_values, kwargs))
    return _make_wrapper(Wrapper, view.shape, strides=view.stride(), dtype=view.dtype)


def _without_values(tensor: Any) -> torch.Tensor:
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="meta")


def _set_metadata(wrapper: Any, like: torch.Tensor) -> None:
    """Give a wrapper the shape, strides and dtype of another; its history and its gradient stay."""
    with _disable_torch_function():
        _plain_data.__set__(wrapper, like.detach())


def _tell_of_graphs(func: Any, args: Any) -> None:
    """Tell the types of chains whose graph is used. !! what they refuse"""
    for tensor in found_in(args, Wrapper):
        told = getattr(tensor.child, "graph_is_used", None)
        if told is not None:
            told(func, tensor)


def settle_resized(wrapper: Any) -> Any:
    """After `out=`: torch resizes what it writes into, and the wrapper has to present the new shape."""
    if type(wrapper) is Wrapper and wrapper.child is not None and wrapper.shape != wrapper.child.shape:
        _set_metadata(wrapper, new_wrapper(wrapper.child))
    return wrapper


#: Functions that, given a tensor subclass as `out`, return it without having written into it (torch 2.13).
_FORGETS_OUT = frozenset({torch.linalg.matrix_rank})


def _call_with_out(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    out = kwargs["out"]
    with _disable_torch_function():
        if func in _FORGETS_OUT and type(out) is Wrapper:
            out.data = func(*args, **{name: value for name, value in kwargs.items() if name != "out"})
            return out
        response = func(*args, **kwargs)
    map_tensors(settle_resized, out)
    return response


def _written_wrappers(facts: Any, response: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The response of an operation that writes into its arguments: those arguments themselves."""
    several = isinstance(response, (tuple, list))
    owned = []
    for index, value in enumerate(response if several else (response,)):
        target = written_argument(facts, index, args, kwargs)
        if target is None:
            target = new_wrapper(value) if isinstance(value, Node) else value
        owned.append(target)
    return type(response)(owned) if several else owned[0]


hook_args.register_type_rule({Wrapper: hook_args.one})
hook_args.register_forward_func({Wrapper: hook_args.get_child})
hook_args.register_backward_func(
    {Wrapper: lambda node, **_kwargs: new_wrapper(node) if isinstance(node, Node) else node}
)
