"""`PointerPlan`: a plan that is at a worker. A call is one message, and one node of the autograd graph here."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch

from syft.core.chain import Wrapper, new_wrapper
from syft.core.ids import ID_PROVIDER
from syft.core.memory import Memory
from syft.core.node import MISSED
from syft.core.spec import TensorSpec
from syft.exceptions import TensorsNotCollocatedException
from syft.execution.errors import PlanError
from syft.execution.held import PARAMETER, REQUIRES_GRAD
from syft.execution.operation import Slot, leaves
from syft.execution.pointer_parts import pointer_options, pointer_parts
from syft.execution.replay import Replay, rebuilt
from syft.execution.structures import Build, plain_of
from syft.messaging.message import PlanCallMessage, Ref
from syft.tensors.object_pointer import ObjectPointer
from syft.tensors.object_wrapper import POINTERS
from syft.tensors.pointer import PointerTensor, new_pointer
from syft.tensors.remote_call import RemoteCall
from syft.tensors.sending import send_value

#: Kinds of arguments for which it is known what a call returns, and the most tensors of one.
_MOST_KNOWN, _LARGEST_KNOWN = 32, 1000


def _is_wrapper(value: Any) -> bool:
    return type(value) is Wrapper


class PointerPlan(ObjectPointer):
    """Points to a plan at a worker; call it with tensors that are there.

    state    pointers to the tensors of its state; none if the plan was found by a search
    replay   what the plan does, to know the shapes of results beforehand; None if it was found by a search
    """

    def __init__(
        self,
        location: Any = None,
        id_at_location: Any = None,
        owner: Any = None,
        id: Any = None,
        garbage_collect_data: bool = True,
        tags: Any = None,
        description: str | None = None,
        *,
        state: Sequence[Any] = (),
        buffers: Iterable[int] = (),
        replay: Replay | None = None,
        name: str | None = None,
        rates: Any = None,
        trains: bool = False,
        build_results: Build | None = None,
        **_options: Any,
    ) -> None:
        super().__init__(location, id_at_location, owner, id, garbage_collect_data, None, tags, description)
        self.state = list(state)
        self.name = name
        self._buffers = frozenset(buffers)
        self._replay = replay
        self._rates = rates
        self._trains = trains
        self._build_results = build_results
        #: What calls without gradients return, by the metadata of their arguments and of the state.
        self._known: Memory[tuple[Any, ...], tuple[TensorSpec, ...]] = Memory(_MOST_KNOWN)

    @property
    def location(self) -> Any:
        return self._location

    @location.setter
    def location(self, new_location: Any) -> None:
        self._location = new_location

    @property
    def id_at_location(self) -> Any:
        return self._id_at_location

    @id_at_location.setter
    def id_at_location(self, new_id_at_location: Any) -> None:
        self._id_at_location = new_id_at_location

    def __call__(self, *args: Any, user: str | None = None, **kwargs: Any) -> Any:
        """Run the plan where it is; returns pointers to what it returns, in the objects that its function returns."""
        if user is None and not kwargs and self._known:
            made = self._run_again(args)
            if made is not MISSED:
                return made
        args = plain_of(args)
        if kwargs and self._replay is None:
            raise PlanError(
                f"A plan was called with {', '.join(kwargs)} by name. One that was found by a search knows no names: "
                "pass the arguments in order; those by name are one dict, the last."
            )
        if kwargs:
            args = self._replay.program.with_names(args, plain_of(kwargs), self._shown())  # type: ignore[union-attr]
        return self._run_there(args, user)

    def _shown(self) -> str:
        return f"The plan {self.name!r}" if self.name else "The plan"

    def _run_there(self, args: tuple[Any, ...], user: str | None, ids: tuple[Any, ...] = ()) -> Any:
        """Run the plan; its results have these ids there, if any are given."""
        shown = self._shown()
        if self._replay is not None:
            tensors = self._replay.program.flatten(args, shown)
        else:
            tensors = [leaf for leaf in leaves(args) if isinstance(leaf, torch.Tensor)]
        for tensor in tensors:
            node = tensor.child if type(tensor) is Wrapper else None
            if not isinstance(node, PointerTensor) or node.location.id != self._location.id:
                raise TensorsNotCollocatedException(self, node if node is not None else tensor, shown)
        if self._replay is not None:
            self._replay.check_fit([t.child._spec for t in tensors], self.state, shown)
        every = [*tensors, *self._differentiable_state()]
        nodes: list[PointerTensor] = [t.child for t in every]
        call = _PlanCall(self, nodes, len(tensors), user, ids)
        if not self._trains and torch.is_grad_enabled() and any(t.requires_grad for t in every):
            results: Any = RemoteCall.apply(call, *every)  # type: ignore[no-untyped-call]
        else:
            results = [new_wrapper(p) for p in call.send((), None)]
            if self._replay is not None and len(args) == len(tensors) == sum(map(_is_wrapper, args)):
                self._remember(tensors, self.state, tuple([result.child._spec for result in results]))
        made = rebuilt(call.outputs, results)
        return made if self._build_results is None else self._build_results(made)

    def _run_again(self, args: tuple[Any, ...]) -> Any:
        """A call like one that was found to fit: pointers of the same metadata, no gradients; else `MISSED`."""
        location, key, refs = self._location, [], []
        for tensor in args:
            node = tensor.child if type(tensor) is Wrapper else None
            if type(node) is not PointerTensor or node._location is not location:
                return MISSED
            key.append(node._spec)
            refs.append(Ref(node._id_at_location))
        key += [tensor.child._spec for tensor in self.state]
        specs = self._known.get(tuple(key))
        if specs is None or (not self._trains and torch.is_grad_enabled() and self._is_tracked(args)):
            return MISSED
        ids = tuple([ID_PROVIDER.pop() for _ in specs])
        rates = () if self._rates is None else self._rates()
        self.ask(PlanCallMessage(self._id_at_location, tuple(refs), (), None, ids, rates))
        results = [new_wrapper(new_pointer(location, i, s)) for i, s in zip(ids, specs, strict=True)]
        outputs = self._replay.program.outputs  # type: ignore[union-attr]
        made = results[0] if type(outputs) is Slot else rebuilt(outputs, results)
        return made if self._build_results is None else self._build_results(made)

    def _is_tracked(self, args: Iterable[Any]) -> bool:
        return any(t.requires_grad for t in args) or any(t.requires_grad for t in self.state)

    def _remember(self, tensors: list[Any], state: list[Any], specs: tuple[TensorSpec, ...]) -> None:
        nodes = [t.child for t in (*tensors, *state)]
        if len(nodes) + len(specs) <= _LARGEST_KNOWN and all(type(node) is PointerTensor for node in nodes):
            self._known[tuple([node._spec for node in nodes])] = specs

    def request_run_plan(self, location: Any, response_ids: Any, *args: Any, **kwargs: Any) -> Any:
        """Run the plan, which has to be at `location`; its results get the ids `response_ids` there."""
        if getattr(location, "id", location) != self._location.id:
            raise PlanError(
                f"request_run_plan() was called for worker {getattr(location, 'id', location)!r}; the plan is at "
                f"{self._location.id!r}."
            )
        user = kwargs.pop("user", None)
        if kwargs:
            raise PlanError(
                f"request_run_plan() was called with {', '.join(kwargs)} by name. A plan that was sent knows no names: "
                "pass the arguments in order."
            )
        ids = response_ids if isinstance(response_ids, (list, tuple)) else [response_ids]
        return self._run_there(args, user, tuple(i for i in ids if i is not None))

    def wrap(self, type: Any = None, register: bool = False, **kwargs: Any) -> PointerPlan:
        """This pointer: only pointers to tensors are wrapped. A `type` to wrap it in is refused."""
        if type is not None or register or kwargs:
            raise TypeError("wrap() of a PointerPlan takes no options: it returns the pointer itself.")
        return self

    def _differentiable_state(self) -> list[Any]:
        """The state; what the plan does not use is out of the graph, so that it gets no gradient, as in torch."""
        if self._replay is None:
            return self.state
        used, first = self._replay.used, len(self._replay.program.inputs)
        return [t if first + index in used else t.detach() for index, t in enumerate(self.state)]

    @staticmethod
    def simplify(worker: Any, ptr: PointerPlan) -> tuple[Any, ...]:
        """The attributes of a pointer as a tuple."""
        return pointer_parts(ptr)

    @staticmethod
    def detail(worker: Any, tensor_tuple: tuple[Any, ...]) -> PointerPlan:
        """A pointer from its attributes; it deletes nothing."""
        return PointerPlan(**pointer_options(worker, tensor_tuple))

    # -- the state -----------------------------------------------------------------------------------

    def parameters(self) -> list[Any]:
        """Pointers to the parameters, for an optimizer: their gradients are where they are."""
        if self._replay is None:
            raise PlanError(
                "The parameters were asked of a plan that was found by a search. Fetch it with "
                "worker.fetch_plan(pointer.id_at_location, pointer.location) and send it."
            )
        return [tensor for index, tensor in enumerate(self.state) if index not in self._buffers]

    def get(self, user: str | None = None, reason: str = "", deregister_ptr: bool = True) -> Any:
        """The plan, with the values its state has there; it is removed there."""
        plan = self.fetch(user)
        self.delete()
        self.state = []
        return plan

    def fetch(self, user: str | None = None, copy: bool = False) -> Any:
        """The plan, with the values its state has there."""
        return self._speaker().fetch_plan(self._id_at_location, self._location, copy=copy, user=user)


class _PlanCall:
    """What `RemoteCall` needs to know of one call of a plan. `nodes` are its inputs, then its state."""

    def __init__(
        self,
        pointer: PointerPlan,
        nodes: list[PointerTensor],
        inputs: int,
        user: str | None,
        ids: tuple[Any, ...] = (),
    ) -> None:
        self.ids = ids
        self.pointer, self.nodes, self.inputs, self.user = pointer, nodes, inputs, user
        self.location = pointer._location
        replay = pointer._replay
        self.outputs: Any = None if replay is None else replay.program.outputs

    def send(self, differentiable: tuple[int, ...], handle: Any) -> list[PointerTensor]:
        """Send the call; returns pointers to its results, of which nothing has to be waited for."""
        specs = self._result_specs()
        ids = self.ids
        if specs is not None and not ids:
            ids = tuple([ID_PROVIDER.pop() for _ in specs])
        if specs is not None and len(ids) != len(specs):
            raise PlanError(
                f"A plan was called with {len(ids)} response_ids; it returns {len(specs)} tensors."
            )
        rates = self.pointer._rates
        reply = self.pointer.ask(
            PlanCallMessage(
                self.pointer._id_at_location,
                tuple([Ref(node._id_at_location) for node in self.nodes[: self.inputs]]),
                differentiable,
                handle,
                ids,
                () if rates is None else rates(),
                specs is None,
                self.user,
            )
        )
        if specs is None:
            ids, specs, self.outputs = reply
        return [new_pointer(self.location, i, s) for i, s in zip(ids, specs, strict=True)]

    def _result_specs(self) -> tuple[TensorSpec, ...] | None:
        """The metadata of the results; None if only the worker can tell."""
        replay = self.pointer._replay
        if replay is None:
            return None
        given = [node._spec for node in self.nodes]
        described = replay.describe(given[: self.inputs], given[self.inputs :])
        return None if described is None else described.results


class PlanAtWorkers(PointerPlan):
    """One plan at several workers; a call goes to where its arguments are."""

    def __init__(self, parts: Sequence[PointerPlan]) -> None:
        super().__init__(
            tuple(p.location for p in parts),
            parts[0].id_at_location,
            garbage_collect_data=False,
            tags=parts[0].tags,
            description=parts[0].description,
            name=parts[0].name,
        )
        self.parts = {part.location.id: part for part in parts}

    def at(self, location: Any) -> PointerPlan:
        """The plan at one of the workers."""
        found = self.parts.get(getattr(location, "id", location))
        if found is None:
            raise PlanError(
                f"The plan {self.name!r} is at {', '.join(map(repr, self.parts))}, not at "
                f"{getattr(location, 'id', location)!r}."
            )
        return found

    def __call__(self, *args: Any, user: str | None = None, **kwargs: Any) -> Any:
        location = location_of(plain_of((*args, kwargs)), self.name or "The plan")
        if location is None:
            raise PlanError(
                f"The plan {self.name!r} is at several workers; call it with tensors of one of them."
            )
        return self.at(location)(*args, user=user, **kwargs)

    def get(self, user: str | None = None, reason: str = "", deregister_ptr: bool = True) -> list[Any]:
        """The plans, one per worker."""
        return [part.get(user, reason) for part in self.parts.values()]

    def __str__(self) -> str:
        return f"[PointerPlan {self.name} at {', '.join(map(str, self.parts))}]"

    __repr__ = __str__


# -- where things are --------------------------------------------------------------------------------


def location_of(args: Any, name: str) -> Any:
    """The worker that has the tensors of a call; None if they are here."""
    tensors = [leaf for leaf in leaves(args) if isinstance(leaf, torch.Tensor)]
    remote = [t for t in tensors if type(t) is Wrapper and isinstance(t.child, PointerTensor)]
    if not remote:
        return None
    first = remote[0].child
    for tensor in tensors:
        node: Any = tensor.child if type(tensor) is Wrapper else tensor
        if getattr(node, "location", None) is None or node.location.id != first.location.id:
            raise TensorsNotCollocatedException(first, node, f"The plan {name!r}")
    return first.location


def placed(tensor: Any, location: Any, name: str) -> Any:
    """A pointer to a tensor of the state at a worker: to itself if it is there already."""
    if type(tensor) is Wrapper:
        if isinstance(tensor.child, PointerTensor):
            if tensor.child.location.id == location.id:
                return tensor
            raise TensorsNotCollocatedException(tensor.child, _At(location), f"Sending the plan {name!r}")
    pointer: Any = new_wrapper(send_value(tensor, location, None, True, obj_id=ID_PROVIDER.pop()))
    pointer.requires_grad_(tensor.requires_grad)
    if isinstance(tensor, torch.nn.Parameter):
        pointer._is_param = True
    return pointer


class _At:
    """Something at a worker, for error messages."""

    def __init__(self, location: Any) -> None:
        self.location = location


def kind_of(tensor: Any) -> int:
    is_parameter = isinstance(tensor, torch.nn.Parameter)
    return (REQUIRES_GRAD if tensor.requires_grad else 0) | (PARAMETER if is_parameter else 0)


POINTERS["plan"] = PointerPlan
