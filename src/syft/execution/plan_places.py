"""A plan at workers: sent there, pointed to, and its state brought back."""

from __future__ import annotations

from typing import Any

from syft.core.chain import Wrapper
from syft.core.session import session
from syft.execution.errors import PlanError
from syft.execution.held import HeldPlan
from syft.execution.pointer_plan import PlanAtWorkers, PointerPlan, kind_of, placed
from syft.messaging.message import ObjectMessage


class HasPlaces:
    """The part of a plan that is about the workers that have it."""

    def send(self: Any, *locations: Any, force: bool = False) -> PointerPlan:
        """Send the plan and its state; returns a pointer to it. A worker that has it is not sent it again.

        force   send it again: the state there becomes the state here
        """
        if not self.is_built:
            raise RuntimeError("A plan needs to be built before being sent to a worker.")
        if not locations:
            raise TypeError("send() needs the worker to send to, e.g. plan.send(bob).")
        me = session.require_local_worker()
        workers = [me.get_worker(w, fail_hard=True) for o in locations for w in _several(o)]
        pointers = [self._sent_to(worker, force) for worker in workers]
        return pointers[0] if len(pointers) == 1 else PlanAtWorkers(pointers)

    def _sent_to(self: Any, location: Any, force: bool = False) -> PointerPlan:
        known = self.pointers.get(location.id)
        if known is None or force:
            known = self.pointers[location.id] = self._send(location)
        return known  # type: ignore[no-any-return]

    def _send(self: Any, location: Any) -> PointerPlan:
        state = self.state
        self._before_send()
        pointers = [placed(tensor, location, self.name) for tensor in state.tensors()]
        held = HeldPlan(
            self.program,
            [p.child.id_at_location for p in pointers],
            state.names,
            state.buffers,
            [kind_of(t) for t in state.tensors()],
            self._training,
            self.name,
            self.id,
            self.tags,
            self.description,
            self._replay,
        )
        session.require_local_worker().send_msg(ObjectMessage(held, self.id), location)
        return self.create_pointer(None, True, location, self.id, state=pointers)  # type: ignore[no-any-return]

    def _before_send(self) -> None:
        """For subclasses whose state is kept somewhere else until it travels."""

    def create_pointer(
        self: Any,
        owner: Any,
        garbage_collect_data: bool,
        location: Any = None,
        id_at_location: Any = None,
        **kwargs: Any,
    ) -> PointerPlan:
        """A pointer to this plan at a worker that holds it."""
        return PointerPlan(
            location,
            self.id if id_at_location is None else id_at_location,
            owner,
            garbage_collect_data=garbage_collect_data,
            tags=self.tags,
            description=self.description,
            state=kwargs.get("state", ()),
            buffers=self.state.buffers,
            replay=self._replay,
            name=self.name,
            trains=self._training is not None,
            rates=self._rates if self._training is not None else None,
            build_results=self._build_results,
        )

    def _rates(self) -> tuple[float, ...]:
        return ()

    def get_pointers(self: Any) -> dict[Any, PointerPlan]:
        """Where the plan was sent: pointers by the id of the worker."""
        return dict(self.pointers)

    def get_(self: Any, location: Any = None, **kwargs: Any) -> Any:
        """Bring the state back, in place; returns self.

        State that is elsewhere (shared, or sent tensor by tensor) is fetched. State of a plan that was sent, as a whole,
        takes the values it has there; `location` names the worker if there are several.
        """
        if any(
            type(t) is Wrapper and t.child is not None and t.child.is_remote for t in self.state.tensors()
        ):
            self.state.get_(**kwargs)
            return self
        pointer = self._pointer_at(location)
        if pointer is not None:
            fetched = pointer.fetch(kwargs.get("user"))
            self.state.set_(fetched.state.tensors())
            self._after_get()
        return self

    get = get_

    def _after_get(self) -> None:
        """For subclasses whose state is kept somewhere else, too."""

    def _pointer_at(self: Any, location: Any) -> PointerPlan | None:
        if location is not None:
            worker = session.require_local_worker().get_worker(location, fail_hard=True)
            if worker.id not in self.pointers:
                raise PlanError(
                    f"The plan {self.name!r} was not sent to worker {worker.id!r}. Call plan.send(worker) first."
                )
            return self.pointers[worker.id]  # type: ignore[no-any-return]
        if len(self.pointers) > 1:
            raise PlanError(
                f"The plan {self.name!r} was sent to {', '.join(map(repr, self.pointers))}. Name the one whose state is "
                "wanted: plan.get_(location=...)."
            )
        return next(iter(self.pointers.values()), None)


def _several(value: Any) -> Any:
    return value if isinstance(value, (list, tuple)) else (value,)
