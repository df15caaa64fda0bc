"""Operations in a row on tensors in slots: the inputs, and then all results. What nothing needs any more is dropped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import itemgetter
from typing import Any, Protocol

import torch

from syft.operations.admission import Admission
from syft.operations.running import NOT_STRAIGHT, run


def last_uses(
    uses: Sequence[set[int]], results: Sequence[int], inputs: int, outputs: Iterable[int]
) -> list[tuple[int, ...]]:
    """For each operation the slots that nothing needs after it; `uses` and `results` are its slots and its results."""
    kept, drops = set(outputs), []
    end = inputs + sum(results)
    for used, count in zip(reversed(uses), reversed(results), strict=True):
        used = used | set(range(end - count, end))
        end -= count
        drops.append(tuple(used - kept))
        kept |= used
    drops.reverse()
    return drops


class Failing(Protocol):
    """Who is told why the first that failed did."""

    failure: str | None


class Slot(int):
    """A place in a row of tensors: the inputs, and then all results."""


class Step:
    """One operation of a composed call: its arguments, with `places` for those that are in slots, and how it is run.

    several   places of arguments that are lists of tensors, and their slots
    straight  how it is run by one call of a kernel, or None; `drops` are the slots that nothing needs after it
    pick      takes the arguments from the slots, where there are several and all of them are in slots
    viewed    the place of the argument that the result of that kernel is a view of, or None
    """

    __slots__ = (
        "admission",
        "args",
        "drops",
        "kwargs",
        "pick",
        "places",
        "results",
        "several",
        "straight",
        "viewed",
    )

    def __init__(
        self, admission: Admission, args: list[Any], kwargs: dict[str, Any], results: int, straight: Any
    ) -> None:
        self.admission, self.args, self.kwargs, self.results = admission, args, kwargs, results
        self.places = [(place, int(value)) for place, value in enumerate(args) if type(value) is Slot]
        self.several = [
            (place, [int(item) for item in value])
            for place, value in enumerate(args)
            if type(value) is list and value and type(value[0]) is Slot
        ]
        is_straight = straight is not NOT_STRAIGHT and straight.writes is None
        self.straight = straight if is_straight and not kwargs and not self.several else None
        are_slots = 1 < len(self.places) == len(args)
        self.pick = itemgetter(*[slot for _, slot in self.places]) if are_slots else None
        self.viewed: int | None = None
        if self.straight is not None and self.straight.view_of is not None:
            self.viewed = self.places[self.straight.view_of][0]
        self.drops: tuple[int, ...] = ()

    def slots(self) -> set[int]:
        return {slot for _, slot in self.places}.union(*[slots for _, slots in self.several])

    def written(self) -> list[int]:
        """The slots that it writes into."""
        several = dict(self.several)
        tensors = [
            slot
            for place, value in enumerate(self.args)
            for slot in several.get(place, [int(value)] if type(value) is Slot else [])
        ]
        return [tensors[place] for place in self.admission.writes]


class Steps:
    """The operations of a composed call on inputs of certain metadata."""

    __slots__ = ("_outputs", "_steps", "written")

    def __init__(self, steps: list[Step], outputs: list[int], inputs: int) -> None:
        self._steps, self._outputs = steps, outputs
        #: The slots that they write into.
        self.written = sorted({slot for step in steps for slot in step.written()})
        drops = last_uses([step.slots() for step in steps], [step.results for step in steps], inputs, outputs)
        for step, dropped in zip(steps, drops, strict=True):
            step.drops = dropped

    def compute(self, inputs: Sequence[torch.Tensor], running: Failing) -> list[torch.Tensor]:
        """What they return. What fails is zeros, and told to `running`; gradients are off."""
        slots: list[Any] = list(inputs)
        for step in self._steps:
            if step.pick is not None:
                args = step.pick(slots)
            else:
                args = step.args.copy()
                for place, slot in step.places:
                    args[place] = slots[slot]
                for place, several in step.several:
                    args[place] = [slots[slot] for slot in several]
            straight = step.straight
            made = None
            if straight is not None:
                try:
                    made = straight.kernel(*args)
                    # NB: the first two are `straight.is_made`, without a call.
                    if step.viewed is not None:
                        is_made = (
                            made.shape == straight.shape
                            and made.dtype is straight.dtype
                            and made.stride() == straight.spec.strides
                            and made.storage_offset() == straight.spec.offset
                            and made.untyped_storage()._cdata == args[step.viewed].untyped_storage()._cdata
                        )
                    elif straight.is_contiguous:
                        is_made = (
                            made.shape == straight.shape
                            and made.dtype is straight.dtype
                            and made.is_contiguous()
                            and made.untyped_storage().nbytes() == straight.nbytes
                        )
                    else:
                        is_made = straight.is_made(made, args)
                    if not is_made:
                        made = None
                except Exception:  # noqa: BLE001  (it is told, or not, when it is run again)
                    made = None
            if made is not None:
                slots.append(made)
            else:
                outcome = run(step.admission, args, step.kwargs)
                if outcome.failure is not None and running.failure is None:
                    running.failure = outcome.failure
                slots += outcome.results
            for dropped in step.drops:
                slots[dropped] = None
        return [slots[place] for place in self._outputs]
