"""`State`: the tensors that belong to a plan and travel with it: parameters, buffers, an optimizer's moments."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch

from syft.core.chain import Wrapper
from syft.execution.placeholder import PlaceHolder


class State:
    """Tensors in a fixed order. What is done in place to one of them is done for everybody who holds it.

    names     how the tensors are called, e.g. "fc1.weight"
    buffers   the positions of those that are not trained
    """

    def __init__(
        self,
        tensors: Iterable[torch.Tensor] = (),
        names: Sequence[str] = (),
        buffers: Iterable[int] = (),
        owner: Any = None,
    ) -> None:
        self._tensors: list[Any] = list(tensors)
        given = list(names)
        self.names = [*given, *(str(i) for i in range(len(given), len(self._tensors)))]
        self.buffers = frozenset(buffers)
        self.owner = owner

    def tensors(self) -> list[Any]:
        """The tensors, in order."""
        return list(self._tensors)

    def read(self) -> tuple[Any, ...]:
        """The tensors, for a function that takes the state as its last argument."""
        return tuple(self._tensors)

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

    def copy(self) -> State:
        """The same values in tensors of their own."""
        return State([_copied(tensor) for tensor in self._tensors], self.names, self.buffers, self.owner)

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
    def detail(worker: Any, parts: tuple[Any, ...]) -> State:
        """A state from its attributes."""
        tensors, names, buffers = parts
        if len(tensors) != len(names) or any(not 0 <= index < len(tensors) for index in buffers):
            raise ValueError(
                f"A state has {len(tensors)} tensors, {len(names)} names and the buffers {buffers}."
            )
        return State(tensors, names, buffers, worker)

    @staticmethod
    def bufferize(worker: Any, state: State) -> Any:
        """The state as a Protocol Buffer (`StatePB`)."""
        from syft.execution.protobuf import bufferize

        return bufferize(worker, state)

    @staticmethod
    def unbufferize(worker: Any, message: Any) -> State:
        """The state of a `StatePB`."""
        from syft.execution.protobuf import unbufferize

        made: State = unbufferize(worker, message, State)
        return made


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
