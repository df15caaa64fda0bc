"""`Protocol`: plans at several workers, each of which goes on with what the one before it returned.

    protocol = sy.Protocol([("first", embed), ("second", classify)])
    protocol.deploy(alice, bob)          # "first" is alice, "second" is bob; the plans are sent
    protocol.run(x).get()                # x goes to alice, her result to bob, and bob's is pointed to

A plan that returns a tuple or a list passes its parts on as arguments; anything else is one argument. Results go from
worker to worker and not through here.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

import torch
from msgspec import Struct

from syft.core.chain import Wrapper
from syft.core.ids import ID_PROVIDER
from syft.core.objects import AbstractObject
from syft.core.session import session
from syft.execution.errors import PlanError, PlanProtocolError
from syft.execution.operation import map_structure
from syft.execution.plan import Plan
from syft.execution.pointer_plan import PointerPlan
from syft.execution.pointer_protocol import PointerProtocol
from syft.tensors.object_wrapper import POINTERS, send_object
from syft.tensors.pointer import PointerTensor
from syft.tensors.transfer import move
from syft.workers import handlers

_Id = int | str


class Step(Struct, frozen=True):
    """One plan of a protocol and its place.

    worker    the id of the worker, or the name that `deploy` gives to one
    is_open   it is such a name
    plan      the plan; None if it is at the worker, under `plan_id`
    """

    worker: _Id
    is_open: bool
    plan: Plan | None
    plan_id: _Id | None = None


class Protocol(AbstractObject):
    """Plans chained over workers.

    plans   pairs of a worker and a plan, in order; a string in the place of a worker is given one by `deploy`

    NB: what it is made of is kept under names with an underscore, so that nobody reaches it by `pointer.attr(...)`, and
    it has no `__call__`, so that nobody makes a worker that holds it run it.
    """

    pointer_kind = "protocol"

    def __init__(
        self,
        plans: Sequence[tuple[Any, Any]] | None = None,
        id: Any = None,
        owner: Any = None,
        tags: Iterable[str] | None = None,
        description: str | None = None,
    ) -> None:
        super().__init__(id=id, owner=owner, tags=tags, description=description)
        #: the workers that were given as such, by id: they need not be known to the local worker
        self._given: dict[Any, Any] = {}
        self._steps = tuple(self._step(index, pair) for index, pair in enumerate(plans or ()))
        self._pointers: tuple[PointerPlan, ...] | None = None

    def _step(self, index: int, pair: Any) -> Step:
        if not isinstance(pair, (tuple, list)) or len(pair) != 2 or not isinstance(pair[1], Plan):
            found = (
                f"({', '.join(type(p).__name__ for p in pair)})"
                if isinstance(pair, (tuple, list))
                else repr(pair)
            )
            raise TypeError(
                f"Protocol was given {found[:100]} as part {index}. It takes pairs of a worker, or a name for one, and a "
                'plan: sy.Protocol([("first", plan1), (bob, plan2)]).'
            )
        worker, plan = pair
        if isinstance(worker, str):
            return Step(worker, True, plan)
        if not hasattr(worker, "send_msg"):
            raise TypeError(
                f"Protocol was given a {type(worker).__name__} as the worker of part {index}; it takes a worker, or a "
                "string that deploy() gives a worker to."
            )
        self._given[worker.id] = worker
        return Step(worker.id, False, plan)

    # -- what it is ----------------------------------------------------------------------------------

    @property
    def plans(self) -> list[tuple[Any, Any]]:
        """Pairs of a worker (or a name, if it has none yet) and a plan (or a pointer to it, if it is there)."""
        pointers = self._pointers or (None,) * len(self._steps)
        return [
            (
                step.worker if step.is_open else self._given.get(step.worker, step.worker),
                step.plan if pointer is None else pointer,
            )
            for step, pointer in zip(self._steps, pointers, strict=True)
        ]

    @property
    def is_deployed(self) -> bool:
        """Whether every plan is at a worker."""
        return bool(self._steps) and all(step.plan_id is not None for step in self._steps)

    @property
    def open_names(self) -> list[str]:
        """The names that have no worker yet, each once, in the order in which `deploy` takes workers."""
        return list(dict.fromkeys(str(step.worker) for step in self._steps if step.is_open))

    # -- at workers ----------------------------------------------------------------------------------

    def deploy(self, *workers: Any) -> Protocol:
        """Send every plan to its worker; returns self. `workers` are given to the open names, in order."""
        if self.is_deployed:
            raise PlanProtocolError(
                f"{self._called()} is deployed already, at {self._route()}. Make another one of the same plans to have "
                "it elsewhere, too."
            )
        if not self._steps:
            raise PlanProtocolError(
                f"{self._called()} has no plans. Make it of pairs: sy.Protocol([(worker, plan), ...])."
            )
        names = self.open_names
        me = session.require_local_worker()
        found = [me.get_worker(w, fail_hard=True) for w in workers]
        if len(found) != len(names):
            raise PlanProtocolError(
                f"deploy() was called with {len(found)} workers; {self._called()} has {len(names)} names that need one"
                f"{': ' + ', '.join(map(repr, names)) if names else ''}. Pass one worker for each."
            )
        for step in self._steps:
            if step.plan is None or not step.plan.is_built:
                raise PlanProtocolError(
                    f"deploy() found a plan that is not built: {step.plan!r}. Build it with plan.build(*examples), or "
                    "give it args_shape. Nothing was sent."
                )
        places = dict(zip(names, found, strict=True))
        self._given.update({worker.id: worker for worker in found})
        at = [places[str(s.worker)] if s.is_open else self._worker(s.worker) for s in self._steps]
        self._pointers = tuple(
            s.plan.send(w) for s, w in zip(self._steps, at, strict=True) if s.plan is not None
        )
        self._steps = tuple(
            Step(w.id, False, s.plan, p.id_at_location)
            for s, w, p in zip(self._steps, at, self._pointers, strict=True)
        )
        return self

    def _worker(self, worker_id: Any) -> Any:
        found = self._given.get(worker_id)
        return (
            session.require_local_worker().get_worker(worker_id, fail_hard=True) if found is None else found
        )

    def _at_workers(self) -> tuple[PointerPlan, ...]:
        """Pointers to the plans; those of a protocol that came from elsewhere delete nothing."""
        if not self.is_deployed:
            raise PlanProtocolError(
                f"run() was called, and {self._called()} is not deployed. Call protocol.deploy"
                f"({', '.join(self.open_names)}) first: it sends the plans to their workers."
            )
        if self._pointers is None:
            self._pointers = tuple(
                PointerPlan(self._worker(s.worker), s.plan_id, garbage_collect_data=False)
                for s in self._steps
            )
        return self._pointers

    def run(self, *args: Any, user: str | None = None) -> Any:
        """Run the plans one after the other; returns pointers to what the last one returns.

        Tensors that are here are sent to the first worker. Pointers have to point there.
        """
        pointers = self._at_workers()
        first = pointers[0]
        if first._replay is not None:  # nothing is sent for a call that cannot be made
            called = f"{self._called()}, whose first plan is {first.name!r},"
            given = first._replay.program.flatten(args, called)
            first._replay.check_fit(given, first.state, called)
        result: Any = tuple(map_structure(lambda leaf: _at_first(leaf, first.location), arg) for arg in args)
        for index, pointer in enumerate(pointers):
            if index:
                result = map_structure(partial(_moved, location=pointer.location, user=user), result)
            arguments = result if isinstance(result, (tuple, list)) else (result,)
            try:
                result = pointer(*arguments, user=user)
            except PlanError as error:
                error.add_note(
                    f"This happened in step {index} of a protocol, at worker {pointer.location.id!r}."
                )
                raise
        return result

    def send(self, worker: Any, garbage_collect_data: bool = True) -> PointerProtocol:
        """Give the protocol to a worker to keep, e.g. for others to find by its tags; returns a pointer to it.

        One that is deployed goes as a list of where its plans are. From then on they stay there until somebody deletes
        them. One that is not goes with its plans and their state.
        """
        for pointer in self._pointers or ():
            pointer.garbage_collect_data = False
            for tensor in pointer.state:
                tensor.child.garbage_collect_data = False
        sent: PointerProtocol = send_object(self, worker, garbage_collect_data)
        return sent

    def held_tensors(self) -> list[Any]:
        """The tensors inside, for a worker that counts what it holds."""
        plans = [step.plan for step in self._steps if step.plan is not None]
        return [t for plan in plans for t in (*plan.state.tensors(), *plan.program.constants)]

    # -- copies and bytes ------------------------------------------------------------------------------

    def copy(self) -> Protocol:
        """Another protocol of the same steps; plans that are here are copied, with their state."""
        made = copy.deepcopy(self)
        made._id = ID_PROVIDER.pop()
        made._given = dict(self._given)
        return made

    def __deepcopy__(self, memo: dict[int, Any]) -> Protocol:
        id, steps, tags, description = Protocol.simplify(None, self)
        copied = tuple(Step(s.worker, s.is_open, copy.deepcopy(s.plan, memo), s.plan_id) for s in steps)
        return Protocol.detail(None, (id, copied, tags, description))

    @staticmethod
    def simplify(worker: Any, protocol: Protocol) -> tuple[Any, ...]:
        """The attributes of a protocol as a tuple. The plans of one that is deployed stay where they are."""
        steps = tuple(
            step if step.plan_id is None else Step(step.worker, False, None, step.plan_id)
            for step in protocol._steps
        )
        return protocol.id, steps, frozenset(protocol.tags), protocol.description

    @staticmethod
    def detail(worker: Any, parts: tuple[Any, ...]) -> Protocol:
        """A protocol from its attributes."""
        id, steps, tags, description = parts
        for step in steps:
            if (step.plan is None) == (step.plan_id is None) or (step.is_open and step.plan is None):
                raise PlanProtocolError(
                    "A step of a protocol has either a plan or the id of one that is at a worker."
                )
        if len({step.plan is None for step in steps}) > 1:
            raise PlanProtocolError("Some steps of a protocol are deployed, and others are not.")
        made = Protocol(None, id, worker, tags, description)
        made._steps = tuple(steps)
        return made

    @staticmethod
    def bufferize(worker: Any, protocol: Protocol) -> Any:
        """The protocol as a Protocol Buffer (`ProtocolPB`)."""
        from syft.execution.protobuf import bufferize

        return bufferize(worker, protocol)

    @staticmethod
    def unbufferize(worker: Any, message: Any) -> Protocol:
        """The protocol of a `ProtocolPB`; every operation of its plans is checked."""
        from syft.execution.protobuf import unbufferize

        made: Protocol = unbufferize(worker, message, Protocol)
        return made

    # -- in words --------------------------------------------------------------------------------------

    def _called(self) -> str:
        return f"The protocol {self.id}"

    def _route(self) -> str:
        return " -> ".join(repr(step.worker) for step in self._steps)

    def __repr__(self) -> str:
        how = "deployed" if self.is_deployed else "not deployed"
        tags = f" tags:{' '.join(sorted(map(str, self.tags)))}" if self.tags else ""
        return f"<Protocol id:{self.id} {self._route() or 'empty'} {how}{tags}>"

    def __str__(self) -> str:
        """`repr`, and one line per plan."""
        return "\n".join([repr(self), *(f"  {step.worker!r}: {_shown(step)}" for step in self._steps)])


def _shown(step: Step) -> str:
    return f"the plan {step.plan_id} there" if step.plan is None else repr(step.plan)


def _at_first(leaf: Any, location: Any) -> Any:
    """An argument at the first worker."""
    if not isinstance(leaf, torch.Tensor):
        return leaf
    if type(leaf) is not Wrapper:
        return leaf.send(location)  # type: ignore[attr-defined]
    if not isinstance(leaf.child, PointerTensor):
        raise PlanProtocolError(
            f"run() was called with a {type(leaf.child).__name__}. It takes tensors that are here, which it sends to "
            f"{location.id!r}, and pointers to {location.id!r}."
        )
    if leaf.child.location.id != location.id:
        raise PlanProtocolError(
            f"run() was called with a tensor on worker {leaf.child.location.id!r}; the first plan of the protocol is at "
            f"{location.id!r}. Move the tensor there with `.move({location.id})`, or pass one that is here."
        )
    return leaf


def _moved(leaf: Any, location: Any, user: str | None) -> Any:
    return move(leaf, location, user) if isinstance(leaf, torch.Tensor) else leaf


POINTERS[Protocol.pointer_kind] = PointerProtocol
handlers.POINTER_KINDS[Protocol.pointer_kind] = PointerProtocol
