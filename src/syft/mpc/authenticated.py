"""Secrets under `share(protocol="spdz2k")`, from the user's side: entering, computing, leaving.

A holder keeps four words per element (`integrity.shares.Auth`), so every operation on such a secret is a program, the
linear ones too. `sharing` and `rules.shared_linear` hand over to this file where a secret is authenticated. May
import `shared_node`, `protocols.spdz2k`, `integrity`.

NOTE [Views]
For torch x[0] and x.t() share memory with x. Here they are shares of their own, so a write into one of them would be
lost: it raises. After a write into x itself, the views that were made of it before raise when they are used.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

import torch

from syft.core.shapes import contiguous_spec
from syft.exceptions import ChainError
from syft.mpc.integrity import linear
from syft.mpc.integrity.errors import IntegrityError, NoMacsError
from syft.mpc.integrity.sealed import Entrance, Sealed
from syft.mpc.placing import all_placed
from syft.mpc.programs import name_of
from syft.mpc.protocols import spdz2k
from syft.mpc.shared_node import group_of
from syft.tensors.pointer import PointerTensor

PROTOCOL = spdz2k.NAME
CPU = torch.device("cpu")


def is_authenticated(node: Any) -> bool:
    """Whether a secret has MACs."""
    return getattr(node, "protocol", None) == PROTOCOL


def spec_of(packed: Any) -> Any:
    """The metadata of a secret from that of its shares."""
    return contiguous_spec(tuple(packed.shape)[1:], torch.int64)


def check_alike(one: Any, other: Any) -> None:
    """!! ChainError where a secret with MACs meets one without"""
    if is_authenticated(one) != is_authenticated(other):
        raise ChainError(
            "A secret shared with protocol='spdz2k' met one that has no MACs. Their result could be changed unnoticed. "
            "Share both with protocol='spdz2k', or both without."
        )


def check_current(nodes: Sequence[Any]) -> None:
    """!! ChainError for a view of a secret that was written to. NOTE [Views]"""
    if any(getattr(node, "is_stale", False) for node in nodes):
        raise ChainError(
            "A view (x[0], x.t(), ...) of a secret under protocol='spdz2k' was used after x was written to in place, and "
            "does not see the change. Take the view again."
        )


# -- entering and leaving ----------------------------------------------------------------------------------


def enter(values: torch.Tensor, holders: Sequence[Any], provider: Any) -> dict[Any, PointerTensor]:
    """Share integers that are here: pointers by the holders' ids. NOTE [Entering and leaving] in `protocols.spdz2k`"""
    group = group_of(holders, provider)
    shape = tuple(values.shape)
    masks, mask = group.run_and_tell(Sealed(Entrance(shape)), spdz2k.entrance, shape)
    masked = values.to("cpu", torch.int64).contiguous() - mask
    pointers = group.run(spdz2k.enter, Held(masks), masked)
    return {pointer.location.id: pointer for pointer in pointers}


def leave(node: Any) -> torch.Tensor:
    """The integers of a secret, after all that was opened so far has been checked. !! IntegrityError"""
    check_current([node])
    masked, mask = node.group.run_and_tell(Sealed(Entrance(tuple(node.shape))), spdz2k.leave, node)
    copies = [pointer.get_share().cpu() for pointer in masked]
    if any(not torch.equal(copies[0], other) for other in copies[1:]):
        raise IntegrityError(
            "The holders of a secret under protocol='spdz2k' do not agree about it. At least one of them did not follow "
            "the program, and nothing says which; the result is not told."
        )
    found: torch.Tensor = copies[0] + mask
    return found


class Held:
    """Pointers as an argument of a program."""

    def __init__(self, pointers: Sequence[PointerTensor]) -> None:
        self.pointers = list(pointers)


# -- computing ---------------------------------------------------------------------------------------------


def run(node: Any, protocol: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """A party program on a secret first and `args` after it: shares, as `Group.run` gives them."""
    check_current([node, *args])
    name, fixed = name_of(protocol)
    if name not in spdz2k.COVERED:
        raise NoMacsError(
            f"The program {name}",
            "Share without protocol='spdz2k', or use one of the operations that docs/secrets.md names.",
        )
    args, kwargs = all_placed((tuple(args), kwargs), CPU)
    return node.group.run(spdz2k.apply, name, node, *args, **{**fixed, **kwargs})


def at_every_holder(func: Any, args: Any, kwargs: dict[str, Any], nodes: Sequence[Any], types: Any) -> Any:
    """An aten operation that is linear in its secrets; `types` are those of secrets and of public summands."""
    template = nodes[0]
    check_current(nodes)
    name = linear.name_of(func)
    described = linear.described(func, args, kwargs, *types)
    if func._schema.is_mutable:
        return _written(func, args[0], template.nodes(_run(template, name, described)))
    there = all(node.was_shared_there for node in nodes)
    made = template.nodes(_run(template, name, described), there)
    returned = func._schema.returns
    if returned and returned[0].alias_info is not None and isinstance(args[0], types[0]):
        for view in made if isinstance(made, tuple) else (made,):
            _note_view(args[0], view)
    return made


def _run(node: Any, name: str, described: tuple[Any, list[Any], list[torch.Tensor]]) -> Any:
    template, secrets, tensors = described
    tensors = all_placed(tensors, CPU)
    return node.group.run(spdz2k.linear, name, template, len(secrets), *secrets, *tensors)


def _note_view(base: Any, view: Any) -> None:
    view.is_view = True
    base.__dict__.setdefault("_views", weakref.WeakSet()).add(view)


def _written(func: Any, target: Any, made: Any) -> Any:
    """Put what an in-place operation made into its target. NOTE [Views]"""
    if getattr(target, "is_view", False):
        raise NoMacsError(
            f"{func} on a view (x[0], x.t(), ...)",
            "The change would be lost. Write the whole tensor, x = torch.where(...) or torch.cat(...), or clone() first.",
        )
    if tuple(made.shape) != tuple(target.shape):
        raise RuntimeError(
            f"{func} would make a tensor of shape {tuple(made.shape)} of one of {tuple(target.shape)}."
        )
    for view in target.__dict__.get("_views", ()):
        view.is_stale = True
    target.child.update(made.child)
    return target
