"""One step down a chain and one step up again, as the dispatcher takes them.

The functions are built from the registries of `hook_args` and kept in its caches.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from syft.core import hook_args
from syft.core.folds import _identity
from syft.core.hook_args import _backward_of, _build_part, _build_walk, _forward_of, _is_node_type
from syft.core.ops import facts_of
from syft.core.public_names import spoken_name
from syft.exceptions import ChainError, MixedChainsError

Descent = tuple[Any, dict[str, Any], Any, Any]


def descend(level: type, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Descent:
    """One step down a chain at the dispatcher.

    Returns the arguments with every `level` replaced by its child, the first `level` among them, and
    the node type to ask next (None when only plain tensors are left). Plain tensors pass as they are:
    the level below lifts them if it has to.
    """
    key = (
        level,
        facts_of(func),
        hook_args.signature(args),
        hook_args.signature((kwargs,)) if kwargs else None,
    )
    step = hook_args.hook_method_args_functions.get(key)
    if step is None:
        step = _build_descent(level, func, args, kwargs)
        hook_args.hook_method_args_functions[key] = step
    return step(args, kwargs)


def _build_descent(
    level: type, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Callable[..., Descent]:
    rules, kwarg_rules = hook_args.build_rule(args), hook_args.build_rule(kwargs)
    flat = all(rule in (0, 1) for rule in rules) and not hook_args._mentions_tensor(kwarg_rules)
    if flat:
        _refuse_other_nodes(level, func, args)
        return _flat_descent(func, [(i, _forward_of(a)) for i, a in enumerate(args) if type(a) is level])
    return _nested_descent(level, func, args, rules, kwargs, kwarg_rules)


def _flat_descent(
    func: Any, steps: list[tuple[int, Callable[..., Any]]]
) -> Callable[[tuple[Any, ...], dict[str, Any]], Descent]:
    """Arguments that hold no tensor inside a container: by far the most frequent case."""
    first = steps[0][0] if steps else None

    def step(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Descent:
        inner = list(args)
        below = None
        for position, forward in steps:
            child = inner[position] = forward(inner[position])
            if not isinstance(child, torch.Tensor):
                cls = type(child)
                if below is None:
                    below = cls
                elif below is not cls:
                    below = settle_mixed(func, [below, cls])
        return inner, kwargs, None if first is None else args[first], below

    return step


def _nested_descent(
    level: type, func: Any, args: tuple[Any, ...], rules: Any, kwargs: dict[str, Any], kwarg_rules: Any
) -> Callable[[tuple[Any, ...], dict[str, Any]], Descent]:
    def leaf(value: Any) -> Callable[..., Any]:
        if type(value) is not level:
            _refuse_other_nodes(level, func, (value,))
            return _identity
        forward = _forward_of(value)

        def step_down(node: Any, seen: list[Any], templates: list[Any]) -> Any:
            child = forward(node)
            if not isinstance(child, torch.Tensor) and type(child) not in seen:
                seen.append(type(child))
            templates.append(node)
            return child

        return step_down

    walk_args = _build_walk(args, rules, leaf, return_tuple=True)
    walk_kwargs = _build_walk(kwargs, kwarg_rules, leaf)

    def step(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Descent:
        seen: list[Any] = []
        templates: list[Any] = []
        inner_args = walk_args(args, seen=seen, templates=templates)
        inner_kwargs = walk_kwargs(kwargs, seen=seen, templates=templates)
        below = None
        if seen:
            below = seen[0] if len(seen) == 1 else settle_mixed(func, seen)
        return inner_args, inner_kwargs, templates[0] if templates else None, below

    return step


def _refuse_other_nodes(level: type, func: Any, values: Any) -> None:
    for value in values:
        if _is_node_type(type(value)) and type(value) is not level:
            raise MixedChainsError(spoken_name(func), level, type(value))


def settle_mixed(func: Any, types: list[type]) -> type:
    """Of several node types in one call, the one whose `takes_in` accepts the others."""
    for cls in types:
        takes_in = getattr(cls, "takes_in", None)
        if takes_in is not None and all(other is cls or takes_in(other) for other in types):
            return cls
    if type(None) in types:
        raise empty_wrapper(spoken_name(func))
    raise MixedChainsError(spoken_name(func), types[0], types[1])


def empty_wrapper(request: str) -> ChainError:
    """The error of a wrapper without a child."""
    return ChainError(
        f"{request} was called on an empty wrapper: its value was fetched with `.get()` or moved away, or "
        "it never had one. Use what `.get()` returned, or `.copy().get()` to keep the original."
    )


def rewrap(level: type, child: Any, attributes: dict[str, Any]) -> Any:
    """One node of type `level` over `child`."""
    return _backward_of(level)(child, **attributes)


def rewrap_response(level: type, func: Any, response: Any, template: Any) -> Any:
    """Put `level` back on top of every tensor of a response of the dispatcher."""
    attributes = template.get_class_attributes() if template is not None else {}
    if isinstance(response, torch.Tensor):
        return _backward_of(level)(response, **attributes)
    key = (facts_of(func), level, hook_args.signature((response,)))
    wrap = hook_args.hook_method_response_functions.get(key)
    if wrap is None:
        put_back = _backward_of(level)
        wrap = _build_part(response, hook_args.build_rule(response), lambda _example: put_back)
        hook_args.hook_method_response_functions[key] = wrap
    return wrap(response, **attributes)
