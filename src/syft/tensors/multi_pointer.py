"""`MultiPointerTensor`: the same tensor, or its parts, on several workers; operations fan out to all."""

from __future__ import annotations

from typing import Any

import torch

from syft.core.abstract import AbstractTensor
from syft.core.chain import Wrapper, new_wrapper
from syft.core.hook_args import (
    get_child,
    one,
    register_backward_func,
    register_forward_func,
    register_type_rule,
)
from syft.core.nested import found_in
from syft.core.ops import facts_of, written_argument
from syft.core.public_names import spoken_name
from syft.exceptions import TensorsNotCollocatedException
from syft.messaging.message import ObjectRequestMessage
from syft.tensors.pointer import PointerTensor


class MultiPointerTensor(AbstractTensor):
    """`child` maps each worker's id to a pointer."""

    def __init__(self, children: Any = (), **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.child = {}
        for pointer in children:
            node = pointer.child if type(pointer) is Wrapper else pointer
            if not isinstance(node, PointerTensor):
                raise TypeError(
                    f"A MultiPointerTensor is made of pointers, not of {type(node).__name__}. Send the "
                    "tensors first."
                )
            if node.location.id in self.child:
                raise ValueError(
                    f"Two of the pointers are on worker {node.location.id!r}. Give at most one pointer per "
                    "worker."
                )
            self.child[node.location.id] = node

    @classmethod
    def of(cls, pointers: list[Any]) -> torch.Tensor:
        """`Wrapper > MultiPointerTensor` over wrapped pointers; a leaf of the autograd graph."""
        made = new_wrapper(cls(children=pointers))
        return made.requires_grad_(any(getattr(p, "requires_grad", False) for p in pointers))

    @property
    def spec(self) -> Any:
        return self._first().spec

    def _first(self) -> PointerTensor:
        return next(iter(self.child.values()))  # type: ignore[no-any-return]

    @property
    def locations(self) -> list[Any]:
        return [pointer.location for pointer in self.child.values()]

    @property
    def is_remote(self) -> bool:
        return True

    @property
    def location(self) -> Any:
        return None

    def get_garbage_collect_data(self) -> bool:
        """Whether every remote value goes when its pointer goes."""
        return all(pointer.garbage_collect_data for pointer in self.child.values())

    def set_garbage_collect_data(self, value: bool) -> None:
        """Choose for all workers whether the value there goes when its pointer goes."""
        for pointer in self.child.values():
            pointer.set_garbage_collect_data(value)

    def __str__(self) -> str:
        return "MultiPointerTensor>{" + ", ".join(str(p) for p in self.child.values()) + "}"

    __repr__ = __str__

    def get(self, sum_results: bool = False, user: str | None = None, reason: str = "") -> Any:
        """The values in the order of the workers, or their sum."""
        values = [pointer.get(user=user, reason=reason) for pointer in self.child.values()]
        if sum_results:
            return torch.stack(values).sum(dim=0)
        return values

    def virtual_get(self, sum_results: bool = False, user: str | None = None, reason: str = "") -> Any:
        """The values, without removing them where they are; the workers' permissions hold."""
        values = [
            p.ask(ObjectRequestMessage((p.id_at_location, user, reason), keep=True))
            for p in self.child.values()
        ]
        return torch.stack(values).sum(dim=0) if sum_results else values

    def dim(self) -> int:
        return len(self.shape)

    @staticmethod
    def dispatch(args: Any, worker: Any) -> list[Any]:
        """Arguments as one worker sees them: its pointer of every MultiPointerTensor, its entry of every dict."""
        name = getattr(worker, "id", worker)
        return [arg[name] if isinstance(arg, dict) else _pick(arg, name) for arg in args]

    def place(self) -> MultiPointerTensor:
        return MultiPointerTensor(children=[pointer.place() for pointer in self.child.values()])

    @classmethod
    def interpret(cls, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The operation once per worker, on the pointers of that worker."""
        nodes = list(found_in((args, kwargs), MultiPointerTensor))
        ids = list(nodes[0].child)
        for node in nodes[1:]:
            if set(node.child) != set(ids):
                raise TensorsNotCollocatedException(nodes[0]._first(), node._first(), spoken_name(func))
        results = {}
        for worker_id in ids:
            results[worker_id] = PointerTensor.interpret(
                func, _pick(args, worker_id), _pick(kwargs, worker_id)
            )
        if facts_of(func).mutates:
            return written_argument(facts_of(func), 0, args, kwargs)
        return _join(list(results.values()))


def _pick(value: Any, worker_id: Any) -> Any:
    """Arguments as one worker sees them."""
    if isinstance(value, MultiPointerTensor):
        return value.child[worker_id]
    if isinstance(value, (list, tuple)) and not isinstance(value, torch.Size):
        return type(value)(_pick(v, worker_id) for v in value)
    if isinstance(value, dict):
        return {k: _pick(v, worker_id) for k, v in value.items()}
    return value


def _join(results: list[Any]) -> Any:
    """Results of all workers as one: multi-pointers where there were pointers."""
    first = results[0]
    if isinstance(first, PointerTensor):
        return MultiPointerTensor(children=results)
    if isinstance(first, (list, tuple)):
        return type(first)(_join([r[i] for r in results]) for i in range(len(first)))
    return first


def combine_pointers(*pointers: Any) -> torch.Tensor:
    """Pointers on different workers as one tensor; `.get()` returns a list."""
    if not pointers:
        raise ValueError("combine_pointers needs at least one pointer.")
    return MultiPointerTensor.of(list(pointers))


register_type_rule({MultiPointerTensor: one})
register_forward_func({MultiPointerTensor: get_child})
register_backward_func({MultiPointerTensor: lambda node, **_kwargs: node})
