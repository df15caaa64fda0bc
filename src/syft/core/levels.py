"""Steps between the levels of a chain above autograd, and the calls of overloads that take them.

NOTE [Levels and autograd]
At the dispatcher autograd is already above us, so stepping down a chain needs no gradient code. An
overload of a public name runs above autograd and computes one level down, so the step down and the step
up are nodes of the graph themselves: the gradient of one is the other. That is all there is to it, and
since each is made of the other they can be differentiated any number of times.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import cache
from typing import Any

import torch

from syft.core import hook_args
from syft.core.chain import Calls, Wrapper, first_node, map_tensors, new_wrapper, settle_resized
from syft.core.descent import empty_wrapper, rewrap
from syft.core.nested import found_in
from syft.core.node import Node
from syft.core.public_names import known_functions, public_name, writes_in_place
from syft.core.routes import BELOW, BELOW_WITH_SELF, CHAINS, Overload
from syft.exceptions import MixedChainsError


def _tracks(tensor: torch.Tensor) -> bool:
    return tensor.requires_grad and torch.is_grad_enabled()


def _as_tensor(child: Any) -> torch.Tensor:
    return child if isinstance(child, torch.Tensor) else new_wrapper(child)


def _below(node: Node) -> torch.Tensor:
    """One level below a node, by the way its type registered, as something torch understands."""
    return _as_tensor(hook_args._forward_of(node)(node))


def _as_child(tensor: torch.Tensor) -> Any:
    return tensor.child if type(tensor) is Wrapper else tensor


class _Template:
    """Makes nodes like one, without keeping its value alive: a graph lives for as long as anybody adds up losses."""

    def __init__(self, node: Node) -> None:
        self.kind, self.attributes = type(node), node.get_class_attributes()

    def like(self, child: Any) -> Node:
        made: Node = rewrap(self.kind, child, self.attributes)
        return made


class StepDown(torch.autograd.Function):
    """From `Wrapper > A > child` to the child (in a Wrapper of its own if it is a node)."""

    @staticmethod
    def forward(ctx: Any, wrapper: Wrapper) -> torch.Tensor:
        ctx.set_materialize_grads(False)
        ctx.template = _Template(wrapper.child)
        below = _below(wrapper.child).detach()
        if not (below.is_floating_point() or below.is_complex()):
            ctx.mark_non_differentiable(below)
        return below

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor | None) -> Any:
        return None if grad is None else step_up(ctx.template, grad)


class StepUp(torch.autograd.Function):
    """From a tensor to `Wrapper > A > tensor`."""

    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, template: Node) -> Wrapper:
        ctx.set_materialize_grads(False)
        return new_wrapper(template.like(_as_child(tensor.detach())))

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor | None) -> Any:
        return (None if grad is None else step_down(grad)), None


def step_down(tensor: torch.Tensor) -> torch.Tensor:
    """One level down; a plain tensor is there already."""
    if type(tensor) is not Wrapper:
        return tensor
    if _tracks(tensor):
        return StepDown.apply(tensor)  # type: ignore[no-any-return, no-untyped-call]
    return _below(tensor.child)


def step_up(template: Node, tensor: torch.Tensor) -> torch.Tensor:
    """One level up, below a node like `template`."""
    if _tracks(tensor):
        return StepUp.apply(tensor, template)  # type: ignore[no-any-return, no-untyped-call]
    return new_wrapper(template.like(_as_child(tensor)))


def wrap_node(node: Node) -> Wrapper:
    """`Wrapper > node`, connected to the history of the node's child if it has one."""
    child = node.child
    if isinstance(child, torch.Tensor):
        if _tracks(child):
            return step_up(node, child)  # type: ignore[return-value]
        if type(child) is Wrapper:
            return new_wrapper(node.like(child.child))
    return new_wrapper(node)


def bare_node(wrapper: Wrapper) -> Node:
    """The head of a chain as a node; its child carries the history that the wrapper had."""
    head: Node = wrapper.child
    return head.like(step_down(wrapper)) if _tracks(wrapper) else head


def put_on_top(node: Node, tensor: torch.Tensor, wrap: bool) -> Any:
    """`AbstractTensor.on`: `node` between a tensor's wrapper (if any) and the rest."""
    if not wrap:
        node.child = _as_child(tensor)
        return node
    if _tracks(tensor) and not tensor.is_leaf:
        return StepUp.apply(tensor, _BranchTemplate(node))  # type: ignore[no-untyped-call]
    node.child = _as_child(tensor.detach() if tensor.requires_grad else tensor)
    chain = new_wrapper(node).requires_grad_(tensor.requires_grad)
    if isinstance(tensor, torch.nn.Parameter):
        chain._is_param = True  # so that a model takes it in the place of the parameter
    return chain


class _BranchTemplate:
    """Lets `StepUp` use the very node the user made instead of a new one like it."""

    def __init__(self, node: Node) -> None:
        self.node = node

    def like(self, child: Any) -> Node:
        self.node.child = child
        return self.node


# -- calling overloads ------------------------------------------------------------------------------


def call_overload(
    func: Any, cls: Any, overload: Overload, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Call the overload of a type, below the types among the arguments that take it in."""
    for chain in found_in((args, kwargs), Wrapper):
        above = type(chain.child)
        if above is not cls and hasattr(above, "takes_in") and above.is_transparent() and above.takes_in(cls):
            return call_below(func, args, kwargs, chain.child)
    return call_on_chains(cls, overload, args, kwargs)


def call_below(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], template: Any = None) -> Any:
    """A public call that a type further down overloads: the same call, one level down."""
    if template is None:
        template = first_node(args, kwargs)
    name = public_name(func)
    writes = writes_in_place(name)
    if writes:
        _refuse_written_leaf(name, args)
    down = _stepping_down(type(template), func)
    response = func(*map_tensors(down, args), **map_tensors(down, kwargs))
    response = map_tensors(lambda t: step_up(template, t), response)
    if not (writes or kwargs):
        return response
    with (
        torch._C.DisableTorchFunctionSubclass()
    ):  # what is written below is only noted above, not called again
        return _written_or(response, args, kwargs, writes)


def call_on_chains(cls: Any, overload: Overload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call an overload with what it takes, made from the chains that the user passed."""
    if overload.takes == CHAINS:
        return overload.function(*args, **kwargs)
    template = first_node(args, kwargs)
    writes = writes_in_place(overload.name)
    if writes:
        _refuse_written_leaf(overload.name, args)
    # Methods know no `out`: torch.add(x, y, out=z) is the method, written to z.
    passed = kwargs
    if kwargs and overload.takes == BELOW_WITH_SELF and "out" in kwargs:
        passed = {name: value for name, value in kwargs.items() if name != "out"}
    if passed:
        passed = _without_defaults(overload, passed)
    try:
        response = _call(cls, overload, template, args, passed)
    except Exception as error:
        error.add_note(f"This happened while {cls.__name__} ran its overload of {overload.name}.")
        raise
    return _written_or(response, args, kwargs, writes) if writes or kwargs else response


def _without_defaults(overload: Overload, kwargs: dict[str, Any]) -> dict[str, Any]:
    """The keyword arguments less those that the user did not choose and the overload does not take.

    torch fills in its defaults on the way: `relu(x)` arrives as `relu(x, inplace=False)`. One that differs from the
    default stays, and the overload refuses it.
    """
    taken = _keywords_of(overload.function)
    if taken is None or taken.issuperset(kwargs):
        return kwargs
    defaults = _defaults_of(overload.name)
    return {
        name: value
        for name, value in kwargs.items()
        if name in taken or name not in defaults or value is not defaults[name]
    }


@cache
def _keywords_of(function: Any) -> frozenset[str] | None:
    """The keyword arguments that a function takes; None: any, or not known."""
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):
        return None
    if any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        return None
    return frozenset(parameters)


@cache
def _defaults_of(name: str) -> dict[str, Any]:
    """The defaults of a public function of torch."""
    try:
        parameters = inspect.signature(known_functions()[name]).parameters
    except (KeyError, TypeError, ValueError):
        return {}
    return {n: p.default for n, p in parameters.items() if p.default is not p.empty}


@cache
def _refuse_written_leaf(name: str, args: tuple[Any, ...]) -> None:
    """What torch checks before it writes; an overload would find out after."""
    if args and type(args[0]) is Wrapper and args[0].is_leaf and _tracks(args[0]):
        raise RuntimeError(
            f"{name} was called on a leaf that requires grad: a leaf Variable that requires grad cannot be "
            "written in place. Do it inside `with torch.no_grad():`, or on a copy."
        )


def _written_or(response: Any, args: tuple[Any, ...], kwargs: dict[str, Any], writes: bool) -> Any:
    """The argument that a call wrote into (its first, or `out`), or its response if it wrote into none."""
    if kwargs and type(kwargs.get("out")) is Wrapper:
        out = kwargs["out"]
        if out.child.child is not _as_child(step_down(response)):
            out.data = response
        return settle_resized(out)
    target = args[0] if args and writes else None
    if type(target) is not Wrapper or type(response) is not Wrapper:
        return response
    if _tracks(target) or _tracks(response) or target.child.child is not _as_child(step_down(response)):
        target.copy_(response)
    return target


def _call(cls: Any, overload: Overload, template: Node, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if overload.takes in (BELOW, BELOW_WITH_SELF):
        down = _stepping_down(cls, overload.name)
        inner_args, inner_kwargs = map_tensors(down, args), map_tensors(down, kwargs)
        if overload.takes == BELOW_WITH_SELF:
            me = args[0].child if type(args[0]) is Wrapper else template.like(args[0])
            response = overload.function(me, *inner_args, **inner_kwargs)
        else:
            response = overload.function(*inner_args, **inner_kwargs)
        return map_tensors(lambda t: step_up(template, t), response)

    def as_node(tensor: Any) -> Any:
        if type(tensor) is Wrapper:
            _same_type(cls, tensor.child, overload.name)
            return bare_node(tensor)
        return template.like(tensor)

    response = overload.function(*map_tensors(as_node, args), **map_tensors(as_node, kwargs))
    return map_tensors(lambda t: wrap_node(t) if isinstance(t, Node) else t, response)


def _stepping_down(cls: Any, operation: Any) -> Callable[[Any], Any]:
    takes_in = getattr(cls, "takes_in", None) if cls.is_transparent() else None

    def down(tensor: Any) -> Any:
        if type(tensor) is Wrapper and type(tensor.child) is not cls:
            if takes_in is not None and tensor.child is not None and takes_in(type(tensor.child)):
                return tensor  # it stands on the level below already
            _same_type(cls, tensor.child, operation)
        return step_down(tensor)

    return down


def _same_type(cls: Any, node: Any, operation: Any) -> None:
    if type(node) is not cls:
        name = operation if isinstance(operation, str) else public_name(operation)
        if node is None:
            raise empty_wrapper(name)
        raise MixedChainsError(name, cls, type(node))


def on_bare_nodes(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A torch function on bare nodes: wrapped for the call, bare again after. Chains stay chains."""
    found_bare = False

    def as_chain(tensor: Any) -> Any:
        nonlocal found_bare
        if isinstance(tensor, Node):
            found_bare = True
            return wrap_node(tensor)
        return tensor

    chain_args, chain_kwargs = map_tensors(as_chain, args), map_tensors(as_chain, kwargs)
    response = func(*chain_args, **chain_kwargs)
    if not found_bare:
        return response
    return map_tensors(lambda t: bare_node(t) if type(t) is Wrapper else t, response)


def call_on_nodes(cls: Any, overload: Overload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call an overload directly on bare nodes, as `node.add(other)` does."""
    return on_bare_nodes(lambda *a, **k: call_on_chains(cls, overload, a, k), args, kwargs)


Wrapper.calls = Calls(on_bare_nodes, call_overload, call_below, call_on_chains)
