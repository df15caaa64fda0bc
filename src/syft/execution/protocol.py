"""`Protocol`: plans at several workers, each of which goes on with what the one before it returned.

    protocol = sy.Protocol([("first", embed), ("second", classify)])
    protocol.deploy(alice, bob)          # "first" is alice, "second" is bob; the plans are sent
    protocol.run(x).get()                # x goes to alice, her result to bob, and bob's is pointed to

A plan that returns a tuple or a list passes its parts on as arguments; anything else is one argument. Results go from
worker to worker and not through here.

NOTE [Whose run it is]
After `protocol.send(james)` a run starts at james and ends there: `protocol.run(x_at_james)` is a pointer to james, who
has a pointer to the result. The calls of the plans are made by whoever runs it, under their own name. If james made
them, everybody who can reach james could have him use plans that only he may use.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

import torch

from syft.core.chain import Wrapper
from syft.core.ids import ID_PROVIDER
from syft.core.objects import AbstractObject
from syft.core.session import session
from syft.exceptions import TensorsNotCollocatedException
from syft.execution import protobuf
from syft.execution.errors import PlanError, PlanProtocolError
from syft.execution.operation import map_structure
from syft.execution.plan import Plan
from syft.execution.pointer_plan import PointerPlan, location_of
from syft.execution.pointer_protocol import PointerProtocol
from syft.execution.protocol_steps import Plans, Step
from syft.tensors.object_wrapper import POINTERS, send_object
from syft.tensors.pointer import PointerTensor
from syft.tensors.transfer import move
from syft.workers import handlers


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
        #: the worker that it was sent to, where runs start and end
        self._location: Any = None

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
    def plans(self) -> Plans:
        """Pairs of a worker (or a name, if it has none yet) and a plan (or a pointer to it, if it is there).

        Until the protocol is deployed, the list can be changed: `protocol.plans[0] = ("first", plan)`.
        """
        pointers = self._pointers or (None,) * len(self._steps)
        pairs = [
            (
                step.worker if step.is_open else self._given.get(step.worker, step.worker),
                step.plan if pointer is None else pointer,
            )
            for step, pointer in zip(self._steps, pointers, strict=True)
        ]
        return Plans(pairs, self._replace_plans)

    @plans.setter
    def plans(self, pairs: Iterable[tuple[Any, Any]]) -> None:
        self._replace_plans(list(pairs))

    def _replace_plans(self, pairs: list[tuple[Any, Any]]) -> None:
        if self.is_deployed:
            raise PlanProtocolError(
                f"The plans of {self._called()} were changed, and it is deployed already, at {self._route()}. Make "
                "another one of the plans that you want."
            )
        self._steps = tuple(self._step(index, pair) for index, pair in enumerate(pairs))

    @property
    def location(self) -> Any:
        """The worker that the protocol was sent to; None if it was not."""
        return self._location

    @property
    def is_deployed(self) -> bool:
        """Whether every plan is at a worker."""
        return bool(self._steps) and all(step.plan_id is not None for step in self._steps)

    @property
    def workers_resolved(self) -> bool:
        """Whether every plan has its worker."""
        return bool(self._steps) and not self.open_names

    @property
    def open_names(self) -> list[str]:
        """The names that have no worker yet, each once, in the order in which `deploy` takes workers."""
        return list(dict.fromkeys(str(step.worker) for step in self._steps if step.is_open))

    # -- at workers ----------------------------------------------------------------------------------

    def _assert_is_resolved(self) -> None:
        """!! PlanProtocolError unless every plan has its worker."""
        if self.open_names:
            raise PlanProtocolError(
                f"{self._called()} has names without a worker: {', '.join(map(repr, self.open_names))}. Call "
                "protocol.deploy(...) with a worker for each."
            )

    def _resolve_workers(self, workers: Any) -> dict[str, Any]:
        """The worker of each open name, in the order of `deploy`."""
        names = self.open_names
        me = session.require_local_worker()
        found = [me.get_worker(w, fail_hard=True) for w in workers]
        if len(found) != len(names):
            raise PlanProtocolError(
                f"deploy() was called with {len(found)} workers; {self._called()} has {len(names)} names that need one"
                f"{': ' + ', '.join(map(repr, names)) if names else ''}. Pass one worker for each."
            )
        return dict(zip(names, found, strict=True))

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
        places = self._resolve_workers(workers)
        for step in self._steps:
            if step.plan is None or not step.plan.is_built:
                raise PlanProtocolError(
                    f"deploy() found a plan that is not built: {step.plan!r}. Build it with plan.build(*examples), or "
                    "give it args_shape. Nothing was sent."
                )
        self._given.update({worker.id: worker for worker in places.values()})
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
        if self._steps and not self.is_deployed and not self.open_names:
            self.deploy()
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

    def run(self, *args: Any, user: str | None = None, **kwargs: Any) -> Any:
        """Run the plans one after the other; returns pointers to what the last one returns.

        Tensors that are here are sent to the first worker. Pointers have to point there, or to the worker that the
        protocol was sent to: then the result is a pointer to that worker, see NOTE [Whose run it is].
        """
        if kwargs:
            raise TypeError(
                f"run() was called with {', '.join(kwargs)} by name. The arguments of a protocol go to its first plan, "
                "in order: pass them without names."
            )
        self._at_workers()  # !! if it is not deployed, before anything else is looked at
        if self._location is not None and _remote_location(args) == self._location.id:
            return self.request_remote_run(self._location, args, {"user": user})
        return self._run(args, user)

    def request_remote_run(self, location: Any, args: Any, kwargs: Any) -> Any:
        """Run the protocol on tensors of a worker; returns pointers to that worker, which has pointers to the results."""
        options = dict(kwargs or {})
        user = options.pop("user", None)
        if options:
            raise TypeError(
                f"request_remote_run() was given {', '.join(options)} by name; a plan takes arguments in order."
            )
        worker = session.require_local_worker().get_worker(location, fail_hard=True)
        first = self._at_workers()[0].location
        # NB: a copy of what the caller holds: their tensor stays where it is.
        moved = map_structure(partial(_copied_to, location=first, user=user), tuple(args))
        result = self._run(moved, user)
        return map_structure(partial(_handed_to, location=worker), result)

    @staticmethod
    def find_args_location(args: Any) -> Any:
        """The worker that has the tensors of a call, the local one if they are here; !! TensorsNotCollocatedException."""
        return location_of(args, "a protocol") or session.require_local_worker()

    def _run(self, args: tuple[Any, ...], user: str | None) -> Any:
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

    def send(self, location: Any, garbage_collect_data: bool = False) -> PointerProtocol:
        """Give the protocol to a worker to keep, e.g. for others to find by its id or its tags; returns a pointer to it.

        It stays there until somebody deletes it or fetches it with `get()`. One that is deployed goes as a list of where
        its plans are, and they stay, too. One that is not goes with its plans and their state.

        garbage_collect_data   whether it goes with the last reference to the pointer
        """
        for pointer in self._pointers or ():
            pointer.garbage_collect_data = False
            for tensor in pointer.state:
                tensor.child.garbage_collect_data = False
        sent: PointerProtocol = send_object(self, location, garbage_collect_data)
        self._location = sent.location
        return sent

    def create_pointer(
        self, owner: Any = None, garbage_collect_data: bool = False, location: Any = None
    ) -> PointerProtocol:
        """A pointer to this protocol at the worker that it was sent to, or at another one that has it."""
        at = self._location if location is None else location
        if at is None:
            raise PlanProtocolError(
                f"create_pointer() was called, and {self._called()} is at no worker. Send it with protocol.send(worker)."
            )
        return PointerProtocol(
            at,
            self.id,
            owner,
            garbage_collect_data=garbage_collect_data,
            tags=self.tags,
            description=self.description,
        )

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
    def create_from_attributes(
        worker: Any,
        id: Any,
        tags: Any,
        description: str | None,
        workers_resolved: bool,
        plans_assignments: Any,
    ) -> Protocol:
        """A protocol of pairs (worker, plan), or of pairs (worker, id of a plan that is there).

        workers_resolved   the workers are workers, or their ids; if not, they are names that `deploy` gives workers to
        """
        steps = []
        for place, plan in plans_assignments:
            worker_id = getattr(place, "id", place)
            held = None if not isinstance(plan, PointerPlan) else plan.id_at_location
            plan_id = held if isinstance(plan, (PointerPlan, Plan)) else plan
            steps.append(
                Step(worker_id, not workers_resolved, plan if isinstance(plan, Plan) else None, plan_id)
            )
        return Protocol.detail(worker, (id, tuple(steps), frozenset(tags or ()), description))

    @staticmethod
    def detail(worker: Any, protocol_tuple: tuple[Any, ...]) -> Protocol:
        """A protocol from its attributes."""
        id, steps, tags, description = protocol_tuple
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
        return protobuf.bufferize(worker, protocol)

    @staticmethod
    def unbufferize(worker: Any, pb_protocol: Any) -> Protocol:
        """The protocol of a `ProtocolPB`; every operation of its plans is checked."""
        made: Protocol = protobuf.unbufferize(worker, pb_protocol, Protocol)
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


def _remote_location(args: Any) -> Any:
    """The id of the worker that has the tensors of a call; None if they are here or not all in one place."""
    try:
        found = location_of(args, "a protocol")
    except TensorsNotCollocatedException:
        return None
    return None if found is None else found.id


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


def _handed_to(leaf: Any, location: Any) -> Any:
    return leaf.send(location) if isinstance(leaf, torch.Tensor) else leaf  # type: ignore[attr-defined]


def _copied_to(leaf: Any, location: Any, user: str | None) -> Any:
    if not isinstance(leaf, torch.Tensor) or type(leaf) is not Wrapper or leaf.child is None:
        return leaf
    is_there = leaf.child.location is not None and leaf.child.location.id == location.id
    return leaf if is_there else move(leaf.copy(), location, user)  # type: ignore[attr-defined]


def _moved(leaf: Any, location: Any, user: str | None) -> Any:
    return move(leaf, location, user) if isinstance(leaf, torch.Tensor) else leaf


POINTERS[Protocol.pointer_kind] = PointerProtocol
handlers.POINTER_KINDS[Protocol.pointer_kind] = PointerProtocol
