"""The engine that unwraps arguments, rewraps responses and registers them on a worker.

Every step of a chain goes through a function that is built once for (operation, structure of the
arguments) and cached. What is done with a type is looked up in three registries:

    type_rule       type -> 1 for tensors, a function for containers, 0 for everything else
    forward_func    type -> how to step down (its child)
    backward_func   type -> how to put the type back on top of a result

Registering a type there is all it takes to add one. See NOTE [Signatures] for why a cached function
is never wrong, and why no error raised inside a call can be mistaken for a changed signature.

`syft.core.descent` is the same engine as the dispatcher uses it. Imports nothing above `core`.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from syft.core.folds import (  # noqa: F401  (documented names of this module)
    _fold_of,
    _identity,
    build_get_tensor_type,
    eight_fold,
    five_fold,
    four_fold,
    four_layers,
    get_element_at,
    many_fold,
    one_fold,
    one_layer,
    seven_fold,
    six_fold,
    three_fold,
    three_layers,
    two_fold,
    two_layers,
    typed_identity,
    zero_fold,
)
from syft.core.identity import identity_of
from syft.core.ids import ID_PROVIDER
from syft.exceptions import (
    PureFrameworkTensorFoundError,
    ResponseSignatureError,
    UnregisteredTypeError,
)

# NOTE [Signatures]
# A cache key is the operation plus the exact types of all leaves of its arguments, containers opened.
# Two calls that share a key share their structure, so the built function fits both. A call with
# another structure has another key. Nothing is tried, and so nothing has to be caught: an error that
# comes out of a built function is the caller's error.

# -- caches: module globals, read at call time, so that assigning {} to one empties it --------------
hook_method_args_functions: dict[Any, Any] = {}
hook_method_response_functions: dict[Any, Any] = {}
get_tensor_type_functions: dict[Any, Any] = {}
register_response_functions: dict[Any, Any] = {}


def _forget_built_functions() -> None:
    for cache in (
        hook_method_args_functions,
        hook_method_response_functions,
        get_tensor_type_functions,
        register_response_functions,
    ):
        cache.clear()
    _opened_types.clear()


class _Registry(dict[Any, Any]):
    """A dict whose changes take effect at once: every change empties the caches built from it."""

    def __setitem__(self, key: Any, value: Any) -> None:
        super().__setitem__(key, value)
        _forget_built_functions()

    def __delitem__(self, key: Any) -> None:
        super().__delitem__(key)
        _forget_built_functions()

    def update(self, *args: Any, **kwargs: Any) -> None:
        super().update(*args, **kwargs)
        _forget_built_functions()

    def pop(self, *args: Any) -> Any:
        value = super().pop(*args)
        _forget_built_functions()
        return value

    def popitem(self) -> tuple[Any, Any]:
        item = super().popitem()
        _forget_built_functions()
        return item

    def setdefault(self, key: Any, default: Any = None) -> Any:
        value = super().setdefault(key, default)
        _forget_built_functions()
        return value

    def __ior__(self, other: Any) -> _Registry:  # type: ignore[misc]
        self.update(other)
        return self

    def clear(self) -> None:
        super().clear()
        _forget_built_functions()


_opened_types: dict[type, bool] = {}

base_types = {
    int,
    float,
    complex,
    str,
    bool,
    bytes,
    bytearray,
    range,
    slice,
    set,
    frozenset,
    type(None),
    type(Ellipsis),
    torch.Size,
    torch.dtype,
    torch.device,
    torch.layout,
    torch.memory_format,
    torch.Generator,
}


def one(_args: Any) -> int:
    """The rule of a tensor."""
    return 1


def get_child(tensor: Any) -> Any:
    return tensor.child


def _framework_child(tensor: Any) -> Any:
    child = getattr(tensor, "child", None)
    if child is None:
        raise PureFrameworkTensorFoundError()
    return child


def _wrap_framework(node: Any, **_kwargs: Any) -> Any:
    return node.wrap() if hasattr(node, "wrap") and not isinstance(node, torch.Tensor) else node


type_rule: dict[Any, Any] = _Registry(
    {
        list: lambda args: [build_rule(a) for a in args],
        tuple: lambda args: tuple([build_rule(a) for a in args]),
        dict: lambda args: {key: build_rule(a) for key, a in args.items()},
        torch.Tensor: one,
        torch.nn.Parameter: one,
        np.ndarray: one,
    }
)
forward_func: dict[Any, Callable[..., Any]] = _Registry(
    {torch.Tensor: _framework_child, torch.nn.Parameter: _framework_child}
)
backward_func: dict[Any, Callable[..., Any]] = _Registry(
    {torch.Tensor: _wrap_framework, torch.nn.Parameter: _wrap_framework}
)

#: Names whose functions are built anew at every call.
ambiguous_methods: set[str] = {"__getitem__", "__setitem__"}
ambiguous_functions: set[str] = {"torch.unbind", "unbind", "torch.stack", "stack", "torch.cat", "cat"}


def register_type_rule(new_type_rules: dict[Any, Any]) -> None:
    type_rule.update(new_type_rules)


def register_forward_func(new_forward_rules: dict[Any, Callable[..., Any]]) -> None:
    forward_func.update(new_forward_rules)


def register_backward_func(new_backward_rules: dict[Any, Callable[..., Any]]) -> None:
    backward_func.update(new_backward_rules)


def register_ambiguous_method(*method: str) -> None:
    ambiguous_methods.update(method)


def register_ambiguous_function(*function: str) -> None:
    ambiguous_functions.update(function)


def default_backward_func(tensorcls: type) -> Callable[..., Any]:
    """How most types go back on top of a result: a new node with the same attributes."""

    def put_back(child: Any, **kwargs: Any) -> Any:
        node = tensorcls(**kwargs)
        node.child = child
        return node

    return put_back


def default_register_tensor(*tensorcls: type) -> None:
    """Register tensor types whose nodes unwrap to `.child` and rewrap with their class attributes."""
    for cls in tensorcls:
        register_type_rule({cls: one})
        register_forward_func({cls: get_child})
        register_backward_func({cls: default_backward_func(cls)})


# -- rules -------------------------------------------------------------------------------------------


def _is_node_type(cls: type) -> bool:
    return hasattr(cls, "interpret")


def build_rule(args: Any) -> Any:
    """The structure of `args` with 1 for every tensor and 0 for everything else.

    ([tensor, pointer], 42) gives ([1, 1], 0).
    """
    cls = type(args)
    rule = type_rule.get(cls)
    if rule is not None:
        return rule(args)
    if cls in base_types:
        return 0
    if isinstance(args, torch.Tensor):
        return 1
    if isinstance(args, (tuple, list)):  # torch's named tuples
        return type_rule[tuple if isinstance(args, tuple) else list](args)
    if isinstance(args, dict):
        return type_rule[dict](args)
    if _is_node_type(cls):
        raise UnregisteredTypeError(cls)
    return 0


def signature(values: Any) -> tuple[Any, ...]:
    """The types of all leaves of a tuple or list of arguments, containers with tensors opened."""
    types = tuple(map(type, values))
    for cls in types:
        opened = _opened_types.get(cls)
        if opened is None:
            opened = _opened_types[cls] = _is_container(cls)
        if opened:
            return tuple([_open(t, v) if _is_container(t) else t for t, v in zip(types, values, strict=True)])
    return types


def _is_container(cls: type) -> bool:
    """Whether tensors may stand inside: Python's containers, and types that a user gave a rule."""
    if issubclass(cls, (tuple, list, dict)):
        return cls not in base_types
    return type_rule.get(cls, one) is not one


def _open(cls: type, container: Any) -> Any:
    """The signature of a container; one that holds only numbers and strings is opaque.

    Otherwise every new length of a size or an index list would be a new signature.
    """
    if isinstance(container, dict):
        return cls, tuple(container), *signature(tuple(container.values()))
    if not isinstance(container, (tuple, list)) and not isinstance(build_rule(container), (tuple, list)):
        return cls, build_rule(container)
    if base_types.issuperset(map(type, container)):
        return cls
    return cls, *signature(container)


# -- unwrapping, as documented -----------------------------------------------------------------------


def unwrap_args_from_method(
    attr: str, method_self: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    """(self, args, kwargs) of a method call with every tensor replaced by its child.

    A pointer !! RemoteObjectFoundError (it carries the pointer), a plain tensor !!
    PureFrameworkTensorFoundError.
    """
    whole = (method_self, tuple(args), kwargs)
    key = (f"{type(method_self).__name__}.{attr}", signature(whole))
    unwrap = None if attr in ambiguous_methods else hook_method_args_functions.get(key)
    if unwrap is None:
        unwrap, _ = build_unwrap_args_from_function(whole)
        hook_method_args_functions[key] = unwrap
    new_self, new_args, new_kwargs = unwrap(whole)
    return new_self, tuple(new_args), new_kwargs


def unwrap_args_from_function(
    attr: str, args: tuple[Any, ...], kwargs: dict[str, Any], return_args_type: bool = False
) -> tuple[Any, ...]:
    """(args, kwargs, type of the children[, type of the tensors]) of a function call, unwrapped."""
    whole = (tuple(args), kwargs)
    key = (attr, signature(whole))
    built = None if attr in ambiguous_functions else hook_method_args_functions.get(key)
    if built is None:
        built = hook_method_args_functions[key] = build_unwrap_args_from_function(whole)
    unwrap, get_type = built
    get_tensor_type_functions[key] = get_type
    new_args, new_kwargs = unwrap(whole)
    new_type = get_type((new_args, new_kwargs))
    if new_type is None:
        raise PureFrameworkTensorFoundError(
            f"{attr} was called without any tensor, so there is nothing to unwrap."
        )
    if return_args_type:
        return tuple(new_args), new_kwargs, new_type, get_type(whole)
    return tuple(new_args), new_kwargs, new_type


def build_unwrap_args_from_function(
    args: Any, return_tuple: bool = False
) -> tuple[Callable[[Any], Any], Callable[[Any], type | None]]:
    """Build f with f(args) = args unwrapped, and the function that finds the first tensor's type."""
    rules = build_rule(args)
    return build_unwrap_args_with_rules(args, rules, return_tuple), build_get_tensor_type(rules)


def build_unwrap_args_with_rules(args: Any, rules: Any, return_tuple: bool = False) -> Callable[[Any], Any]:
    """A function that replaces, in arguments of this structure, every tensor by its child.

    A single argument comes back bare unless `return_tuple`.
    """
    return _build_walk(args, rules, _forward_of, return_tuple)


def _forward_of(value: Any) -> Callable[..., Any]:
    """How one tensor steps down."""
    cls = type(value)
    if cls in forward_func:
        return forward_func[cls]
    if isinstance(value, torch.Tensor):
        return forward_func[torch.Tensor]
    if isinstance(value, np.ndarray):
        return _identity
    raise UnregisteredTypeError(cls)


def _build_walk(
    example: Any, rules: Any, leaf: Callable[[Any], Callable[..., Any]], return_tuple: bool = True
) -> Callable[..., Any]:
    """A function over values of this structure that applies `leaf(example)` wherever the rule is 1.

    Without `return_tuple` a tuple of one gives its element alone.
    """
    if isinstance(rules, dict):
        inner = {key: _build_part(example[key], rules[key], leaf) for key in rules}
        return lambda value, **kw: {key: inner[key](value[key], **kw) for key in value}
    if not isinstance(rules, (list, tuple)):
        return _build_part(example, rules, leaf)
    parts = [_build_part(e, r, leaf) for e, r in zip(example, rules, strict=True)]
    fold = _fold_of(len(parts), return_tuple)
    if isinstance(rules, list):
        return lambda value, **kw: [part(v, **kw) for part, v in zip(parts, value, strict=True)]
    return lambda value, **kw: fold(parts, value, **kw)


def _build_part(example: Any, rule: Any, leaf: Callable[[Any], Callable[..., Any]]) -> Callable[..., Any]:
    if isinstance(rule, (list, tuple, dict)):
        if not _mentions_tensor(rule):
            return _identity
        walk = _build_walk(example, rule, leaf)
        rebuild = _rebuilding(type(example))
        return walk if rebuild is None else (lambda value, **kw: rebuild(walk(value, **kw)))
    return leaf(example) if rule == 1 else _identity


def _mentions_tensor(rule: Any) -> bool:
    if isinstance(rule, dict):
        return any(_mentions_tensor(r) for r in rule.values())
    if isinstance(rule, (list, tuple)):
        return any(_mentions_tensor(r) for r in rule)
    return bool(rule == 1)


def _rebuilding(cls: type) -> Callable[[Any], Any] | None:
    """How a container of another type than list, tuple and dict is made of its elements; None: it is not."""
    if cls in (list, tuple, dict):
        return None
    if hasattr(cls, "_make"):  # collections.namedtuple
        return cls._make  # type: ignore[no-any-return]
    if cls.__module__ == "torch.return_types" or issubclass(cls, OrderedDict):
        return cls
    return None


# -- rewrapping, as documented -----------------------------------------------------------------------


def hook_response(
    attr: str, response: Any, wrap_type: Any, wrap_args: dict[str, Any] | None = None, new_self: Any = None
) -> Any:
    """Put `wrap_type` back on top of every tensor of a response.

    An in-place operator (`__iadd__`) or method (`add_`) returns `new_self`, whose storage it wrote into.
    """
    if new_self is not None and (
        attr.startswith("__i") or (attr.endswith("_") and not attr.startswith("__"))
    ):
        return new_self
    if wrap_type is None:
        return response
    wrap_args = wrap_args or {}
    key = (attr, wrap_type, signature((response,)))
    wrap = hook_method_response_functions.get(key)
    if wrap is None:
        # NB: without the attributes of this call, which are not those of the next.
        wrap = build_wrap_reponse_from_function(response, wrap_type)
        hook_method_response_functions[key] = wrap
    return wrap(response, **wrap_args)


def build_wrap_reponse_from_function(  # (sic): the documented spelling
    response: Any, wrap_type: Any, wrap_args: dict[str, Any] | None = None
) -> Callable[..., Any]:
    """Build f with f(response) = response, each of its tensors below a `wrap_type`."""
    return build_wrap_response_with_rules(response, build_rule(response), wrap_type, wrap_args or {})


def build_wrap_response_with_rules(
    response: Any,
    rules: Any,
    wrap_type: Any,
    wrap_args: dict[str, Any],
    return_tuple: bool = False,
    return_list: bool = False,
) -> Callable[..., Any]:
    """A function that wraps, in responses of this structure, every tensor; `wrap_args` are its defaults."""
    put_back = _backward_of(wrap_type)
    walk = _build_part(response, rules, lambda _example: put_back)
    # A response of one element comes back bare unless a tuple or a list is asked for.
    single = isinstance(rules, (list, tuple)) and len(rules) == 1
    defaults = dict(wrap_args)

    def wrap(value: Any, **override: Any) -> Any:
        wrapped = walk(value, **(override or defaults))
        if return_list:
            return list(wrapped) if isinstance(wrapped, (list, tuple)) else [wrapped]
        if return_tuple and not isinstance(wrapped, tuple):
            return tuple(wrapped) if single else (wrapped,)
        return wrapped

    return wrap


def _backward_of(wrap_type: Any) -> Callable[..., Any]:
    put_back = backward_func.get(wrap_type)
    if put_back is None:
        if isinstance(wrap_type, type) and issubclass(wrap_type, torch.Tensor):
            return backward_func[torch.Tensor]
        raise UnregisteredTypeError(wrap_type)
    return put_back


# -- registering responses on a worker ---------------------------------------------------------------


def register_response(attr: str, response: Any, response_ids: Any, owner: Any) -> Any:
    """Store every tensor of a response on `owner`; returns the response with pointers in their place.

    Ids are taken from the end of `response_ids`, and out of it if it is a list; those that nothing needed stay there.
    If there are too few, the rest get ids of their own, everything is stored, and !! ResponseSignatureError carries
    the ids that were used, in order.
    """
    ids = response_ids if isinstance(response_ids, list) else list(response_ids or ())
    given = len(ids)
    key = (attr, signature((response,)))
    register = register_response_functions.get(key)
    if register is None:
        register = register_response_functions[key] = build_register_response_function(response)
    used: list[Any] = []
    registered = register(response, owner=owner, response_ids=ids, used=used)
    if len(used) > given:
        raise ResponseSignatureError(used)
    return registered


def build_register_response_function(response: Any) -> Callable[..., Any]:
    """Build f with f((1, tensor)) = (1, pointer to the tensor, which is now registered)."""
    return build_register_response(response, build_rule(response))


def build_register_response(response: Any, rules: Any, return_tuple: bool = False) -> Callable[..., Any]:
    """The function that registers the tensors of responses of this structure, found by `rules`."""
    walk = _build_part(response, rules, lambda _example: _register_leaf)
    if not return_tuple:
        return walk

    def as_tuple(value: Any, **kwargs: Any) -> tuple[Any, ...]:
        registered = walk(value, **kwargs)
        return registered if isinstance(registered, tuple) else (registered,)

    return as_tuple


def _register_leaf(
    tensor: Any, owner: Any, response_ids: list[Any] | None = None, used: list[Any] | None = None
) -> Any:
    ids = response_ids if response_ids is not None else []
    obj_id = ids.pop(-1) if ids else ID_PROVIDER.pop()
    if used is not None:
        used.append(obj_id)
    if isinstance(tensor, torch.Tensor):
        if type(tensor) in (torch.Tensor, torch.nn.Parameter):
            tensor = tensor.detach()  # the stored one belongs to `owner`, the caller's stays the caller's
        identity_of(tensor).owner = owner
    owner.register_obj(tensor, obj_id)
    return owner.pointer_to(obj_id)


def register_tensor(tensor: Any, owner: Any = None, response_ids: Any = None) -> Any:
    """Store one tensor on `owner` under an id popped from `response_ids`; returns a pointer to it.

    The order of the last two arguments was the other way round in 2019; both are understood.
    """
    if isinstance(owner, list) or hasattr(response_ids, "register_obj"):
        owner, response_ids = response_ids, owner
    if response_ids is not None and not response_ids:
        raise ResponseSignatureError()
    return _register_leaf(tensor, owner, response_ids)


# -- the names of 2019 ------------------------------------------------------------------------------
hook_method_args = unwrap_args_from_method
hook_function_args = unwrap_args_from_function
build_hook_args_function = build_unwrap_args_from_function
build_args_hook = build_unwrap_args_with_rules
build_hook_response_function = build_wrap_reponse_from_function
build_response_hook = build_wrap_response_with_rules
