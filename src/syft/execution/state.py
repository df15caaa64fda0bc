"""`State`: the tensors that belong to a plan and travel with it: parameters, buffers, an optimizer's moments."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch

from syft.core.chain import Wrapper
from syft.execution import protobuf
from syft.execution.placeholder import PlaceHolder

#: Prefix of the names given to tensors that nobody declared: a function was found to use them when it was traced.
CAPTURED = "captured-"


class State:
    """Tensors in a fixed order. What is done in place to one of them is done for everybody who holds it.

    names     how the tensors are called, e.g. "fc1.weight"
    buffers   the positions of those that are not trained

    Made of placeholders with tensors in them, each with its name as a tag; `State.of(tensors)` takes the tensors.
    """

    def __init__(self, owner: Any = None, state_placeholders: Sequence[PlaceHolder] | None = None) -> None:
        placeholders = list(state_placeholders or ())
        empty = [p for p in placeholders if not isinstance(p, PlaceHolder) or p.child is None]
        if empty:
            raise TypeError(
                f"State was given {empty[0]!r:.80}; it takes placeholders with a tensor in them. State.of(tensors) "
                "takes the tensors themselves."
            )
        self._tensors: list[Any] = [placeholder.child for placeholder in placeholders]
        self.names = [_name(p, index) for index, p in enumerate(placeholders)]
        self.buffers: frozenset[int] = frozenset()
        self.owner = owner

    @classmethod
    def of(
        cls,
        tensors: Iterable[torch.Tensor] = (),
        names: Sequence[str] = (),
        buffers: Iterable[int] = (),
        owner: Any = None,
    ) -> State:
        """The state of these tensors; those without a name are called by their position."""
        made = cls(owner)
        made._tensors = list(tensors)
        given = list(names)
        made.names = [*given, *(str(i) for i in range(len(given), len(made._tensors)))]
        made.buffers = frozenset(buffers)
        return made

    def tensors(self) -> list[Any]:
        """The tensors, in order."""
        return list(self._tensors)

    def read(self) -> tuple[Any, ...]:
        """The tensors that were declared, for a function that takes the state as its last argument.

        Those that it was found to use beside them are not among them: tensors of its closure, the state of a plan that it
        calls. It has them from where it took them.
        """
        pairs = zip(self.names, self._tensors, strict=True)
        return tuple([tensor for name, tensor in pairs if not name.startswith(CAPTURED)])

    def parameters(self) -> list[Any]:
        """The tensors that are not buffers."""
        return [tensor for index, tensor in enumerate(self._tensors) if index not in self.buffers]

    @property
    def state_placeholders(self) -> list[PlaceHolder]:
        """A placeholder around every tensor."""
        return [
            PlaceHolder(self.owner, index, ["#state", f"#{name}"]).instantiate(tensor)
            for index, (name, tensor) in enumerate(zip(self.names, self._tensors, strict=True))
        ]

    @staticmethod
    def create_grad_if_missing(tensor: Any) -> None:
        """Give a tensor that is trained a gradient of zeros, if it has none."""
        if tensor.requires_grad and tensor.is_leaf and tensor.grad is None:
            tensor.grad = torch.zeros_like(tensor)

    def copy(self) -> State:
        """The same values in tensors of their own."""
        return State.of([_copied(tensor) for tensor in self._tensors], self.names, self.buffers, self.owner)

    def set_(self, values: Sequence[torch.Tensor]) -> State:
        """Write values into the tensors; returns self."""
        if len(values) != len(self._tensors):
            raise ValueError(
                f"set_() was given {len(values)} tensors; the state has {len(self._tensors)}: {self.names}."
            )
        with torch.no_grad():
            for tensor, value in zip(self._tensors, values, strict=True):
                tensor.copy_(value)
        return self

    # -- in place, for everybody who holds the tensors -----------------------------------------------

    def fix_precision_(self, *args: Any, **kwargs: Any) -> State:
        return self._each(lambda t: t.fix_precision_(*args, **kwargs), _is_real)

    def float_precision_(self) -> State:
        return self._each(lambda t: t.float_precision_(), _is_chain)

    def share_(self, *args: Any, **kwargs: Any) -> State:
        return self._each(lambda t: t.share_(*args, **kwargs), _is_chain)

    def get_(self, **kwargs: Any) -> State:
        """Fetch what is elsewhere: pointers, and shares."""
        return self._each(lambda t: t.get_(**kwargs), _is_elsewhere)

    def send_(self, *locations: Any, **kwargs: Any) -> State:
        """Send every tensor, in place."""
        return self._each(lambda t: t.send_(*locations, **kwargs), lambda t: not _is_elsewhere(t))

    def _each(self, change: Callable[[Any], Any], concerns: Callable[[Any], bool]) -> State:
        for tensor in self._tensors:
            if concerns(tensor):
                change(tensor)
        return self

    def replace(self, old: Any, new: Any) -> None:
        """Another tensor in the place of one."""
        self._tensors = [new if tensor is old else tensor for tensor in self._tensors]

    def __len__(self) -> int:
        return len(self._tensors)

    def __str__(self) -> str:
        held = ", ".join(f"{n}{tuple(t.shape)}" for n, t in zip(self.names, self._tensors, strict=True))
        return f"<State: {held}>"

    __repr__ = __str__

    @staticmethod
    def simplify(worker: Any, state: State) -> tuple[Any, ...]:
        """The attributes of a state as a tuple."""
        return tuple(state._tensors), tuple(state.names), tuple(sorted(state.buffers))

    @staticmethod
    def detail(worker: Any, state_tuple: tuple[Any, ...]) -> State:
        """A state from its attributes."""
        tensors, names, buffers = state_tuple
        if len(tensors) != len(names) or any(not 0 <= index < len(tensors) for index in buffers):
            raise ValueError(
                f"A state has {len(tensors)} tensors, {len(names)} names and the buffers {buffers}."
            )
        return State.of(tensors, names, buffers, worker)

    @staticmethod
    def bufferize(worker: Any, state: State) -> Any:
        """The state as a Protocol Buffer (`StatePB`)."""
        return protobuf.bufferize(worker, state)

    @staticmethod
    def unbufferize(worker: Any, protobuf_state: Any) -> State:
        """The state of a `StatePB`."""
        made: State = protobuf.unbufferize(worker, protobuf_state, State)
        return made


def _name(placeholder: PlaceHolder, index: int) -> str:
    """The name among the tags of a placeholder of a state, e.g. "fc1.weight"; its position if there is none."""
    tags = sorted(tag for tag in placeholder.tags if tag != "#state" and not tag.removeprefix("#").isdigit())
    return tags[0].removeprefix("#") if tags else str(index)


def _is_chain(tensor: Any) -> bool:
    return type(tensor) is Wrapper


def _is_real(tensor: Any) -> bool:
    # Counters stay as they are: they are not part of what is computed.
    return bool(tensor.dtype.is_floating_point) and type(tensor) is not Wrapper


def _is_elsewhere(tensor: Any) -> bool:
    return type(tensor) is Wrapper and tensor.child is not None and bool(tensor.child.is_remote)


def _copied(tensor: Any) -> Any:
    with torch.no_grad():
        made = tensor.detach().clone()
    if isinstance(tensor, torch.nn.Parameter) and type(made) is torch.Tensor:
        return torch.nn.Parameter(made, requires_grad=tensor.requires_grad)
    return made.requires_grad_(tensor.requires_grad)
