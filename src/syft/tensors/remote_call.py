"""A whole torch function as one message and one node of the autograd graph.

`torch.lstm` and its relatives reach kernels with an opaque workspace, which cannot be sent about. So the
function runs on the worker with an autograd graph of its own, which stays there under a handle. Here the
call is one node; its backward is one message.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch

from syft.core import shapes
from syft.core.chain import Wrapper, new_wrapper
from syft.core.ids import ID_PROVIDER
from syft.core.memory import Memory
from syft.core.public_names import function_named
from syft.core.routes import CHAINS, Overload
from syft.core.session import session
from syft.core.spec import TensorSpec
from syft.exceptions import TensorsNotCollocatedException
from syft.messaging.message import CallBackwardMessage, CallMessage, Ref
from syft.tensors.pointer import PointerTensor, new_pointer
from syft.tensors.sending import send_value

#: Functions that run as one remote call.
REMOTE_CALLS = ("lstm", "gru", "rnn_tanh", "rnn_relu")

_HANDLE_SPEC = shapes.contiguous_spec((), torch.uint8)


class _Recipe:
    """A call whose tensors have been taken out: what is left, and where the tensors go."""

    def __init__(self, name: str, args: Any, kwargs: dict[str, Any]) -> None:
        self.name = name
        self.tensors: list[Any] = []
        self.args = self._take_out(args)
        self.kwargs = self._take_out(kwargs)
        self.location = self._common_location()

    def _take_out(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            self.tensors.append(value)
            return _Slot(len(self.tensors) - 1)
        if isinstance(value, (tuple, list)) and not isinstance(value, torch.Size):
            return type(value)(self._take_out(v) for v in value)
        if isinstance(value, dict):
            return {k: self._take_out(v) for k, v in value.items()}
        return value

    def _common_location(self) -> Any:
        first = next(t for t in self.tensors if type(t) is Wrapper)
        location = first.child.location
        local = [index for index, tensor in enumerate(self.tensors) if type(tensor) is not Wrapper]
        for tensor in self.tensors:
            if type(tensor) is Wrapper and tensor.child.location.id != location.id:
                raise TensorsNotCollocatedException(first.child, tensor.child, self.name)
        for index in local:
            tensor = self.tensors[index]
            if tensor.requires_grad or tensor.count_nonzero():
                raise TensorsNotCollocatedException(first.child, tensor, self.name)
        for index in local:
            # The zero state that nn.LSTM makes when it is given none: nothing is told by sending it.
            self.tensors[index] = new_wrapper(send_value(self.tensors[index], location, None, True))
        return location

    def send(self, differentiable: tuple[int, ...], handle: Any) -> list[PointerTensor]:
        """Send the call; returns pointers to its results."""
        refs = [Ref(t.child.id_at_location) for t in self.tensors]
        results = [new_pointer(self.location, ID_PROVIDER.pop(), s) for s in self.result_specs()]
        session.require_local_worker().send_msg(
            CallMessage(
                self.name,
                self.fill(self.args, refs),
                self.fill(self.kwargs, refs),
                differentiable,
                handle,
                tuple(p.id_at_location for p in results),
            ),
            self.location,
        )
        return results

    def fill(self, value: Any, with_values: list[Any]) -> Any:
        if isinstance(value, _Slot):
            return with_values[value.index]
        if isinstance(value, (tuple, list)) and not isinstance(value, torch.Size):
            return type(value)(self.fill(v, with_values) for v in value)
        if isinstance(value, dict):
            return {k: self.fill(v, with_values) for k, v in value.items()}
        return value

    def result_specs(self) -> tuple[TensorSpec, ...]:
        """The metadata of the results, from a run on meta tensors; remembered by all that it depends on."""
        specs = [t.child.spec for t in self.tensors]
        key = (self.name, repr(self.args), repr(self.kwargs), *specs)
        answer = _answers.get(key)
        if answer is None:
            metas = [spec.meta() for spec in specs]
            function: Any = function_named(self.name)
            result = function(*self.fill(self.args, metas), **self.fill(self.kwargs, metas))
            answer = shapes.describe(result)
            _answers[key] = answer
        return (answer.spec,) if answer.spec is not None else answer.parts


class _Slot:
    """The place of a tensor in a recipe."""

    def __init__(self, index: int) -> None:
        self.index = index

    def __repr__(self) -> str:
        return f"#{self.index}"


_answers: Memory[Any, shapes.Answer] = Memory(10_000)


class RemoteCall(torch.autograd.Function):
    """The node: forward sends the call, backward sends its differentiation.

    A recipe says where (`location`) and sends the call (`send`): of a function here, of a plan in syft.execution.
    """

    @staticmethod
    def forward(ctx: Any, recipe: Any, *tensors: Any) -> Any:
        pointers: list[PointerTensor] = [t.child for t in tensors]
        ctx.differentiable = tuple(i for i, needed in enumerate(ctx.needs_input_grad[1:]) if needed)
        handle = new_pointer(recipe.location, ID_PROVIDER.pop(), _HANDLE_SPEC)
        handle.garbage_collect_data = bool(ctx.differentiable)
        results = recipe.send(ctx.differentiable, handle.id_at_location)
        ctx.input_specs = [p.spec for p in pointers]
        # Saved like a tensor, so that the graph on the worker goes when torch frees the buffers of this one.
        ctx.save_for_backward(new_wrapper(handle))
        ctx.set_materialize_grads(False)
        return tuple(new_wrapper(p) for p in results)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *gradients: Any) -> Any:
        (saved,) = ctx.saved_tensors
        handle: PointerTensor = saved.child
        results = [
            new_pointer(handle.location, ID_PROVIDER.pop(), ctx.input_specs[i]) for i in ctx.differentiable
        ]
        session.require_local_worker().send_msg(
            CallBackwardMessage(
                handle.id_at_location,
                tuple(None if g is None else Ref(g.child.id_at_location) for g in gradients),
                tuple(p.id_at_location for p in results),
            ),
            handle.location,
        )
        inputs: list[Any] = [None] * len(ctx.input_specs)
        for index, pointer in zip(ctx.differentiable, results, strict=True):
            inputs[index] = new_wrapper(pointer)
        return None, *inputs


def remote_call(name: str, *args: Any, **kwargs: Any) -> Any:
    """Run a public torch function where its tensors are, as one call."""
    recipe = _Recipe(name, args, kwargs)
    results = RemoteCall.apply(recipe, *recipe.tensors)  # type: ignore[no-untyped-call]
    return results if len(results) > 1 else results[0]


for _name in REMOTE_CALLS:
    PointerTensor.public_overloads[f"torch.{_name}"] = Overload(
        partial(remote_call, f"torch.{_name}"), CHAINS, f"torch.{_name}"
    )
