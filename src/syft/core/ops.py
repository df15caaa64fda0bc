"""What is known about one aten operation, read once from its schema."""

from __future__ import annotations

from typing import Any

import torch
from torch._ops import OpOverload

SAME_CHILD = frozenset({torch.ops.aten.detach.default, torch.ops.aten.alias.default})

#: Lazy conjugation and negation are bits on the tensor that a wrapper cannot carry: they are done at once.
EAGER_TWINS = {
    torch.ops.aten._conj.default: torch.ops.aten._conj_physical.default,
    torch.ops.aten._neg_view.default: torch.ops.aten.neg.default,
}


class OpFacts:
    """Facts of one aten overload that the dispatcher needs at every call.

    mutates        it writes into an argument
    changes_shape  it changes the metadata of its first argument in place (`t_`, `resize_`)
    aliases        per returned value: (position, name) of the argument that is returned itself, or None
    returns_first  it returns the first argument, which it has written into, and nothing else
    returns_tensors  it hands out tensors only through the store, not a Python number read from data
    same_child     its result is another wrapper of the same child
    eager_twin     the overload to run instead, because a wrapper cannot carry a lazy bit
    functional     for `changes_shape`: the overload of the same name without the underscore
    """

    __slots__ = (
        "aliases",
        "changes_shape",
        "eager_twin",
        "functional",
        "mutates",
        "name",
        "returns_first",
        "returns_tensors",
        "same_child",
    )

    def __init__(self, func: OpOverload) -> None:
        schema = func._schema
        self.name = str(func)
        self.mutates = schema.is_mutable
        self.changes_shape = torch.Tag.inplace_view in func.tags
        self.aliases: tuple[tuple[int, str] | None, ...] = tuple(
            _written_argument(schema, returned) for returned in schema.returns
        )
        self.returns_first = (
            len(self.aliases) == 1 and self.aliases[0] is not None and self.aliases[0][0] == 0
        )
        # An operation that returns nothing at all (`_foreach_add_`) hands out no value either.
        self.returns_tensors = not schema.returns or any("Tensor" in str(r.type) for r in schema.returns)
        self.same_child = func in SAME_CHILD
        self.eager_twin = EAGER_TWINS.get(func)
        self.functional = _functional_twin(func) if self.changes_shape else None


def _written_argument(schema: Any, returned: Any) -> tuple[int, str] | None:
    info = returned.alias_info
    if info is None or not info.is_write:
        return None
    for position, argument in enumerate(schema.arguments):
        if argument.alias_info is not None and argument.alias_info.before_set == info.before_set:
            return position, argument.name
    return None


def _functional_twin(func: OpOverload) -> OpOverload | None:
    """The overload that returns what `func` writes: same arguments, name without the underscore."""
    _, name = func._schema.name.split("::")
    packet = getattr(torch.ops.aten, name.rstrip("_"), None)
    if packet is None:
        return None
    wanted = [(a.name, str(a.type)) for a in func._schema.arguments]
    for overload_name in packet.overloads():
        overload = getattr(packet, overload_name)
        if [(a.name, str(a.type)) for a in overload._schema.arguments] == wanted:
            return overload  # type: ignore[no-any-return]
    return None


def facts_of(func: Any) -> OpFacts:
    """The facts of an overload. Kept on it: torch's overloads hash in Python, which costs more than all else here."""
    try:
        return func._syft_facts  # type: ignore[no-any-return]
    except AttributeError:
        facts = func._syft_facts = OpFacts(func)
        return facts


def written_argument(facts: OpFacts, index: int, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The argument that an operation returns as its `index`-th value, or None for a new value."""
    if index >= len(facts.aliases):
        return None
    where = facts.aliases[index]
    if where is None:
        return None
    position, name = where
    return args[position] if position < len(args) else kwargs.get(name)
