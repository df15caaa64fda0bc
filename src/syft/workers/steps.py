"""Composed calls that repeat: which operations they are made of is learnt from the first, and run as they were admitted.

NOTE [Steps]
A plan, or a backward pass, becomes operations of the table inside a dispatch mode (`Admitting`), which asks of each what
it will return. That follows from metadata alone: nothing in between sees a value. So for inputs of the same metadata the
same operations come again, and their admissions can be kept. They run by the same `syft.operations.run` as the first
time, or by the one kernel that it would call: values are checked every time, failures are zeros, results have memory of
their own. Who asks, what they may use and what it takes is decided before, every time, by whoever calls.

What cannot be kept so runs in the mode every time: calls that draw numbers, or return gradients, and tensors that are no
input and no result. What writes can be kept if it writes into inputs that share no memory, and whoever calls has
prepared them: a step of SGD is kept with its backward pass, whose tensors are known by where they lie.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch._ops import OpOverload

from syft.core.memory import Memory
from syft.core.nested import found_in
from syft.core.ops import facts_of
from syft.core.spec import spec_of
from syft.exceptions import RemoteError
from syft.operations import is_admitted
from syft.operations.on_tensors import admission_of, in_own_memory, zeros_of
from syft.operations.running import straight_of
from syft.operations.slots import Slot, Step, Steps
from syft.workers.composed import Admitting, Described, memories_of, run_composed
from syft.workers.failures import failure_among, mark_failed, tell_failures

if TYPE_CHECKING:
    from syft.workers.pipeline import Call

_MOST_STEPS = 2048
#: Kinds of inputs for which steps of one program are kept.
_MOST_KINDS = 4


class _Running:
    """In the place of the mode: what fails is noted, and everything goes on."""

    __slots__ = ("failure",)

    def __init__(self, failure: str | None) -> None:
        self.failure = failure


def run_steps(
    call: Call, steps: Steps, inputs: Sequence[torch.Tensor], described: Described
) -> tuple[list[torch.Tensor], str | None]:
    """`run_composed` of steps that were admitted before."""
    may_see = call.may_see
    running = _Running(failure_among(call.entries))
    if may_see and running.failure is not None:
        tell_failures(call.entries)
    before = torch.is_grad_enabled()
    torch._C._set_grad_enabled(False)
    try:
        results: list[torch.Tensor] | None = steps.compute(inputs, running)
        failure = running.failure
    except Exception as error:
        if may_see:
            raise
        results, failure = None, f"{type(error).__name__}: {error}"
    finally:
        torch._C._set_grad_enabled(before)
    for made, spec in zip(results or (), described.specs, strict=results is not None):
        if made.shape != spec.shape or made.dtype is not spec.dtype:
            results, failure = None, failure or "its results have other shapes than metadata told."
            break
    if failure is not None and steps.written:
        mark_failed(call.worker, [inputs[slot] for slot in steps.written], failure)
    if failure is not None and may_see:
        raise RemoteError(f"{call.name} failed on the worker: {failure}")
    if results is None:
        return [zeros_of(spec) for spec in described.specs], failure
    return in_own_memory(results, lambda: memories_of(call.entries)), failure


class _Recording(Admitting):  # type: ignore[no-untyped-call]
    """The mode, which notes what it was asked for; `steps` is None once that cannot be kept."""

    def __init__(self, call: Call, inputs: Sequence[torch.Tensor], may_write: bool) -> None:
        super().__init__(call)
        self.steps: list[Step] | None = [] if self.failure is None else None
        self._tensors: list[Any] = list(inputs)  # alive, so that their identities are
        self._others: list[Any] = []
        self._inputs, self._may_write = len(inputs), may_write
        self._slots = {self._key(tensor): Slot(slot) for slot, tensor in enumerate(inputs)}

    def _key(self, tensor: torch.Tensor) -> Any:
        """What a tensor is known by: a graph hands out others that lie in the same place."""
        if not self._may_write or tensor.is_conj() or tensor.is_neg():
            return id(tensor)
        return tensor.untyped_storage()._cdata, spec_of(tensor)

    def __torch_dispatch__(
        self, func: OpOverload, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = super().__torch_dispatch__(func, types, args, kwargs)
        if self.steps is not None:
            name = facts_of(func).name
            if is_admitted(name):
                self._note(name, args, kwargs or {}, result)
            elif name.startswith("aten."):
                self.steps = None
        return result

    def _note(self, name: str, args: Sequence[Any], kwargs: Mapping[str, Any], result: Any) -> None:
        admission = admission_of(name, args, kwargs)
        steps, self.steps = self.steps, None
        results = list(found_in(result, torch.Tensor))
        if admission.writes and self._may_write and not admission.results:
            results = []  # what it returns is what it wrote into
        elif admission.writes:
            return
        if (
            steps is None
            or self.failure is not None
            or admission.row.is_random
            or len(steps) >= _MOST_STEPS
            or len(results) != len(admission.results)
            or any(isinstance(value, torch.Tensor) for value in found_in(kwargs, torch.Tensor))
        ):
            return
        noted = []
        for value in args:
            if isinstance(value, torch.Tensor):
                value = self._slots.get(self._key(value))
                if value is None:
                    return
            elif type(value) in (list, tuple) and any(isinstance(item, torch.Tensor) for item in value):
                value = [self._slots.get(self._key(item)) for item in value]
                if None in value:
                    return
            noted.append(value)
        keys = [self._key(tensor) for tensor in results]
        if self._may_write and results and all(key in self._slots for key in keys):
            self._others += results  # nothing new: it was there already
            self.steps = steps
            return
        for tensor, key in zip(results, keys, strict=True):
            self._slots[key] = Slot(len(self._tensors))
            self._tensors.append(tensor)
        straight = admission.straight
        if straight is None:
            specs = [spec_of(v) if isinstance(v, torch.Tensor) else v for v in args]
            straight = admission.straight = straight_of(admission, specs)
        step = Step(admission, noted, dict(kwargs), len(results), straight)
        if any(slot >= self._inputs for slot in step.written()):
            return
        steps.append(step)
        self.steps = steps

    def kept(self, outputs: Sequence[torch.Tensor], inputs: int) -> Steps | None:
        """The steps of a call that returned these tensors."""
        places = [self._slots.get(self._key(tensor)) for tensor in outputs]
        if self.steps is None or self.failure is not None or None in places:
            return None
        return Steps(self.steps, [int(place) for place in places if place is not None], inputs)


class Remembered:
    """The steps of one program, by the metadata of its inputs."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: Memory[tuple[Any, ...], Steps | None] = Memory(_MOST_KINDS)

    def steps_for(self, key: tuple[Any, ...]) -> Steps | None:
        """Those for inputs of these specs, if they are kept."""
        return self._known.get(key)

    def run(
        self,
        call: Call,
        compute: Callable[[], Any],
        inputs: Sequence[torch.Tensor],
        described: Described,
        key: tuple[Any, ...],
        prepared: Sequence[torch.Tensor] | None = None,
    ) -> tuple[list[torch.Tensor], str | None]:
        """`run_composed` of a program without gradients; `key` are the specs of its inputs, and what else it depends on.

        `prepared` are the inputs that it may write into, if it may; whoever calls has prepared them.
        """
        steps = self._known.get(key)
        # NB: to the recording, one tensor that stands in two places is one input. The steps of others fit it, too.
        places = [id(t) if prepared is None else t.untyped_storage()._cdata for t in inputs]
        is_twofold = len(set(places)) < len(places)
        if steps is not None and (prepared is None or not is_twofold):
            may_be_written = {id(tensor) for tensor in prepared or ()}
            if all(id(inputs[slot]) in may_be_written for slot in steps.written):
                return run_steps(call, steps, inputs, described)
        if key in self._known or is_twofold or len(self._known) >= _MOST_KINDS:
            return run_composed(call, compute, described)
        recording = _Recording(call, inputs, prepared is not None)
        returned: list[torch.Tensor] = []

        def compute_and_note() -> Any:
            made = compute()
            returned.extend(found_in(made, torch.Tensor))
            return made

        results, failure = run_composed(call, compute_and_note, described, mode=recording)
        if failure is None:
            self._known[key] = recording.kept(returned, len(inputs))
        return results, failure
