"""Whole calls: a function that runs at a worker with its own autograd graph inside, and its backward pass.

See syft.tensors.remote_call for the other side. Adds itself to the table in `handlers`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch

from syft.core.commands import command_named
from syft.core.interfaces import Worker
from syft.core.nested import found_in
from syft.core.shapes import Answer, contiguous_spec
from syft.exceptions import UnknownCommandError
from syft.messaging.message import CallBackwardMessage, CallMessage
from syft.tensors.remote_call import REMOTE_CALLS
from syft.workers import handlers, pipeline
from syft.workers.composed import Described, describe_function, run_composed
from syft.workers.entry import Entry
from syft.workers.results import fresh_results

#: Functions that a `CallMessage` may name: none of them writes into its arguments.
CALLS = frozenset(f"torch.{name}" for name in REMOTE_CALLS)


class CallRecord:
    """What a call needs to be differentiated later. No attribute of it can be asked for.

    inputs    the leaves of the graph
    outputs   its results
    given     every tensor that the call was given: the graph may have kept any of them. What is written into one of
              them later shows in the gradients, so the record is restricted with it.
    failure   why the call failed, if it did; then there is no graph
    """

    __slots__ = ("costs_bytes", "failure", "given", "inputs", "name", "outputs")

    def __init__(
        self,
        inputs: list[torch.Tensor],
        outputs: list[torch.Tensor],
        given: Iterable[torch.Tensor] = (),
        costs_bytes: int = 0,
        failure: str | None = None,
        name: str | None = None,
    ) -> None:
        #: The function of the table that was called, if it was one.
        self.name = name
        self.inputs, self.outputs, self.failure = inputs, outputs, failure
        # NB: without their tags, which are not kept by the graph and not charged for again.
        self.given = [t.detach() for t in given]
        #: What the graph keeps beside these, as far as it is known.
        self.costs_bytes = costs_bytes

    def held_tensors(self) -> list[torch.Tensor]:
        """What it keeps alive."""
        return [*self.given, *self.outputs, *self.inputs]


def run_call(worker: Worker, message: CallMessage) -> None:
    """Run a function with its own autograd graph inside."""
    if message.name not in CALLS:
        raise UnknownCommandError(message.name)
    function = command_named(message.name).function
    ids = pipeline.referenced_ids((message.args, message.kwargs))
    call = pipeline.permit(worker, message, ids, (*message.return_ids, message.handle), message.name)
    args, kwargs = _resolved(worker, message)
    leaves, inputs = _leaves(call, message)

    def compute() -> list[torch.Tensor]:
        given_args, given_kwargs = _resolved(_StoreWithLeaves(worker, leaves), message)
        with torch.set_grad_enabled(bool(leaves)):
            return fresh_results(function(*given_args, **given_kwargs), None)

    costs_bytes, failure = 0, None
    if call.is_free:
        outputs = compute()
    else:
        described = describe_function(message.name, function, args, kwargs)
        costs_bytes = described.total if leaves else 0
        call.check_fits(costs_bytes or described.result_bytes, len(described.specs), described.transient)
        outputs, failure = run_composed(call, compute, described, bool(leaves), message.name)
    for output, obj_id in zip(outputs, message.return_ids, strict=True):
        call.keep(obj_id, output.detach(), failure)
    if message.differentiable:
        given = found_in((args, kwargs), torch.Tensor)
        call.keep(
            message.handle, CallRecord(inputs, outputs, given, costs_bytes, failure, message.name), failure
        )


def _resolved(store: Any, message: CallMessage) -> tuple[list[Any], dict[str, Any]]:
    names, values = message.kwargs.keys(), message.kwargs.values()
    return pipeline.resolve(store, message.args), dict(
        zip(names, pipeline.resolve(store, values), strict=True)
    )


def _leaves(call: pipeline.Call, message: CallMessage) -> tuple[dict[Any, torch.Tensor], list[torch.Tensor]]:
    """The leaves of a new graph by id, and one input per place that is to be differentiated.

    A tensor that stands in two places has one gradient, which is given to the first: the caller adds them up.
    """
    leaves: dict[Any, torch.Tensor] = {}
    inputs = []
    for index in message.differentiable:
        entry = call.entries[index]
        if entry.id in leaves:
            inputs.append(torch.empty_like(leaves[entry.id]).requires_grad_())
        else:
            leaves[entry.id] = entry.value.detach().requires_grad_()
            inputs.append(leaves[entry.id])
    return leaves, inputs


class _StoreWithLeaves:
    """A worker's objects, those to differentiate replaced by leaves of a new graph."""

    def __init__(self, worker: Worker, leaves: dict[Any, torch.Tensor]) -> None:
        self.id, self.device = worker.id, worker.device
        new = {i: Entry(i, leaf) for i, leaf in leaves.items()}
        self._entries = {**worker._entries, **new} if new else worker._entries
        self.entry_of = worker.entry_of


def run_call_backward(worker: Worker, message: CallBackwardMessage) -> None:
    """Differentiate a call that was run before."""
    ids = [message.handle, *pipeline.referenced_ids(message.gradients)]
    call = pipeline.permit(worker, message, ids, message.return_ids, "A gradient")
    record = call.entries[0].value
    if type(record) is not CallRecord:
        raise TypeError(f"The object {message.handle!r} is no call that could be differentiated.")
    gradients = pipeline.resolve(worker, message.gradients)
    differentiate = _differentiation(record, gradients)
    failure = None
    if call.is_free:
        results = differentiate()
    else:
        specs = [contiguous_spec(tuple(leaf.shape), leaf.dtype) for leaf in record.inputs]
        described = Described(Answer(parts=tuple(specs), kind=tuple), specs, sum(s.nbytes for s in specs))
        # NB: the gradient of an expanded tensor is as large as the tensor is expanded to.
        call.check_fits(described.total, len(specs))
        results, failure = run_composed(call, differentiate, described, within=record.name)
    for value, obj_id in zip(results, message.return_ids, strict=True):
        call.keep(obj_id, value, failure)


def _differentiation(record: CallRecord, gradients: list[Any]) -> Callable[[], list[torch.Tensor]]:
    def differentiate() -> list[torch.Tensor]:
        pairs = [
            (output, gradient)
            for output, gradient in zip(record.outputs, gradients, strict=True)
            if gradient is not None and output.requires_grad
        ]
        if record.failure is not None or not pairs:
            return [torch.zeros_like(leaf, memory_format=torch.contiguous_format) for leaf in record.inputs]
        results = torch.autograd.grad(
            [output for output, _ in pairs],
            record.inputs,
            [gradient for _, gradient in pairs],
            retain_graph=True,
            allow_unused=True,
        )
        return [
            torch.zeros_like(leaf, memory_format=torch.contiguous_format) if value is None else value
            for value, leaf in zip(results, record.inputs, strict=True)
        ]

    return differentiate


handlers.HANDLERS |= {CallMessage: run_call, CallBackwardMessage: run_call_backward}
