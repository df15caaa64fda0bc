"""`HeldPlan`: a plan as a worker keeps it: its program, and the ids under which the worker keeps its state."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from syft.core.memory import Memory
from syft.core.objects import AbstractObject
from syft.execution.errors import InvalidProgramError
from syft.execution.operation import leaves
from syft.execution.program import Program
from syft.execution.replay import Replay
from syft.execution.training import Trainer, TrainingStep
from syft.workers.steps import Remembered

REQUIRES_GRAD, PARAMETER = 1, 2
#: Kinds of tensors for which it is known what a call does.
_MOST_CALLS = 4


class HeldPlan(AbstractObject):
    """What `plan.send(worker)` puts there. The tensors of the state are objects of the worker like any others.

    state_ids   under which the worker keeps the tensors of the state
    kinds       per tensor: whether it requires grad, and whether it is a Parameter
    """

    pointer_kind = "plan"

    def __init__(
        self,
        program: Program,
        state_ids: Sequence[Any] = (),
        names: Sequence[str] = (),
        buffers: Iterable[int] = (),
        kinds: Sequence[int] = (),
        training: TrainingStep | None = None,
        name: str | None = None,
        id: Any = None,
        tags: Iterable[str] | None = None,
        description: str | None = None,
        replay: Replay | None = None,
    ) -> None:
        super().__init__(id=id, tags=tags, description=description)
        if not len(state_ids) == len(names) == len(kinds) == program.state:
            raise InvalidProgramError(f"A plan with {program.state} tensors of state names {len(state_ids)}.")
        # NB: with an underscore, so that nobody reaches them by `pointer.attr(...)`.
        self._program = program
        self._state_ids, self._names, self._kinds = tuple(state_ids), tuple(names), tuple(kinds)
        self._buffers = frozenset(buffers)
        self._training, self._name = training, name
        self._replay = replay or Replay(program)
        #: What it is made of, for inputs that came before.
        self._steps = Remembered()
        #: What `syft.execution.remote` knows of calls that may come again, by the specs of inputs and state.
        self._calls: Memory[tuple[Any, ...], Any] = Memory(_MOST_CALLS)
        self._trainer = None if training is None else Trainer(self._replay, training)

    def parts(self) -> tuple[Any, ...]:
        """What a HeldPlan is made of."""
        return (
            self._program,
            self._state_ids,
            self._names,
            tuple(sorted(self._buffers)),
            self._kinds,
            self._training,
            self._name,
            self._id,
            frozenset(self.tags),
            self.description,
        )

    def __deepcopy__(self, memo: dict[int, Any]) -> HeldPlan:
        # The program and its prepared calls never change; what a trainer remembers is the copy's own.
        make: Any = HeldPlan
        return make(*self.parts(), replay=self._replay)  # type: ignore[no-any-return]

    def held_tensors(self) -> list[Any]:
        """What is its own: the state is kept by the worker."""
        return [*self._program.constants, *map(str, self._names), *self.tags, self._name, self.description]

    @property
    def costs_bytes(self) -> int:
        """About what the program takes, for whom quotas are charged."""
        parts = 0
        for operation in self._program.operations:
            for leaf in leaves((operation.args, operation.kwargs, operation.results)):
                parts += 1 + len(leaf) // 64 if isinstance(leaf, (str, bytes)) else 1
        return 512 * len(self._program.operations) + 64 * parts

    def run(
        self,
        inputs: Sequence[Any],
        state: Sequence[Any],
        rates: Sequence[float] | None,
    ) -> Any:
        if self._trainer is not None:
            return self._trainer.run(inputs, state, rates)
        return self._replay.run(inputs, state)

    def __str__(self) -> str:
        return f"<HeldPlan {self._name} id:{self.id}>"

    __repr__ = __str__
