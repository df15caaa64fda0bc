"""`DocumentedWorker`: methods of workers that programs of 2020 call, each in terms of what a worker does today.

The guard is not passed by: what another worker's message could ask for goes through `recv_msg` like any message.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from syft import serde
from syft.codes import PLAN_CMDS, TENSOR_SERIALIZATION
from syft.core.chain import Wrapper
from syft.core.identity import identity_of
from syft.core.interfaces import IMPLEMENTATIONS, Id, Worker
from syft.exceptions import PlanCommandUnknownError, WorkerNotFoundException
from syft.messaging.message import (
    GetShapeMessage,
    ObjectRequestMessage,
    Operation,
    PlanCommandMessage,
)
from syft.tensors.pointer import PointerTensor, results_from_reply
from syft.tensors.references import as_refs
from syft.workers import handlers
from syft.workers.abstract import AbstractWorker


class DocumentedWorker:
    """Names of 2020. `self` is a `BaseWorker`."""

    # -- carrying out messages ---------------------------------------------------------------------------

    def execute_command(self: Any, message: Any) -> Any:
        """Run a command here: an `Operation`, or `((name, self, args, kwargs), return_ids)`; returns pointers to results.

        A list of ids is emptied as results are stored under its ids. An operation writes into its first argument in
        place, and returns it then.
        """
        if isinstance(message, Operation):
            (name, owner, args, kwargs), ids = message.contents
        else:
            (name, owner, args, kwargs), ids = message
        given = tuple(ids or ())
        every = tuple(args) if owner is None else (owner, *args)
        refs = tuple(as_refs(a, self) for a in every), as_refs(dict(kwargs), self)
        operation = Operation(name, None, *refs, given, wants_specs=True)
        reply = self.recv_msg(operation)
        if isinstance(ids, list):
            del ids[max(0, len(ids) - len(reply[0])) :]
        result = handlers.wrapped(results_from_reply(reply, self))
        return every[0] if result is None and every else result

    def execute_plan_command(self: Any, message: Any) -> Any:
        """Carry out a `PlanCommandMessage` (or what stands in one: (command, arguments)) here."""
        if isinstance(message, PlanCommandMessage):
            command, args = message.command_name, message.message
        else:
            command, args = message
        if command == PLAN_CMDS.FETCH_PLAN:
            return self._fetch_plan_remote(*args)
        if command == PLAN_CMDS.FETCH_PROTOCOL:
            return self._fetch_protocol_remote(*args)
        raise PlanCommandUnknownError(
            f"{str(command)[:60]!r} is not a command about plans. Those there are: fetch_plan, fetch_protocol."
        )

    def respond_to_obj_req(self: Any, request_msg: Any) -> Any:
        """The object that is asked for by (id, user, reason), for those who may have it; it is removed here."""
        if not isinstance(request_msg, ObjectRequestMessage):
            request_msg = ObjectRequestMessage(tuple(request_msg))
        return self.recv_msg(request_msg)

    def _recv_bytes(self: Any, binary: bytes) -> bytes:
        """The reply, as bytes, to a message that came as bytes."""
        return serde.serialize(self.recv_msg(serde.deserialize(binary, worker=self)), worker=self)

    def _get_msg(self: Any, index: int) -> Any:
        """A message of `msg_history`, which is kept with `log_msgs=True`."""
        return self.msg_history[index]

    @staticmethod
    def create_message_execute_command(
        command_name: str, command_owner: Any = None, return_ids: Any = None, *args: Any, **kwargs: Any
    ) -> Operation:
        """The message that asks for a command: its arguments are Refs and plain values."""
        return Operation(command_name, command_owner, args, kwargs, tuple(return_ids or ()))

    # -- the address book --------------------------------------------------------------------------------

    def _get_worker(self: Any, worker: AbstractWorker) -> Any:
        """That worker, which is known from now on."""
        return self.get_worker(worker)

    def _get_worker_based_on_id(self: Any, worker_id: Any, fail_hard: bool = False) -> Any:
        """The worker of that id; unknown: the id itself, or !! WorkerNotFoundException if `fail_hard`."""
        if isinstance(worker_id, AbstractWorker):
            raise WorkerNotFoundException(
                f"_get_worker_based_on_id() was given a worker and not an id. Use get_worker({worker_id.id!r})."
            )
        return self.get_worker(worker_id, fail_hard)

    # -- questions -----------------------------------------------------------------------------------------

    @staticmethod
    def is_tensor_none(obj: Any) -> bool:
        """Whether there is nothing."""
        return obj is None

    @staticmethod
    def get_tensor_shape(tensor: Any) -> list[int]:
        """The shape of a tensor or pointer as a list."""
        return list(tensor.shape)

    def request_remote_tensor_shape(self: Any, pointer: Any) -> Any:
        """Ask the worker for the shape of what a pointer points to."""
        node = pointer.child if type(pointer) is Wrapper else pointer
        return torch.Size(self.send_msg(GetShapeMessage(node.id_at_location), node.location))

    def list_tensors_remote(self: Any) -> list[Any]:
        """The ids of the tensors there, as far as we may know of them."""
        ids = self.list_objects_remote()
        found = {p.id_at_location for i in ids for p in self.search([str(i)]) if _is_tensor_pointer(p)}
        return [i for i in ids if i in found]

    def list_objects_remote(self: Any) -> list[Any]:
        """The ids of the objects there."""
        return list(self._objects)

    def objects_count_remote(self: Any) -> int:
        """How many objects there are."""
        return len(self.list_objects_remote())

    def tensors_count_remote(self: Any) -> int:
        """How many tensors there are, as far as we may know of them."""
        return len(self.list_tensors_remote())

    # -- plans and protocols ---------------------------------------------------------------------------------

    def _fetch_plan_remote(self: Any, plan_id: Id, copy: bool) -> Any:
        """A plan that is held here, with the values of its state."""
        return self.recv_msg(PlanCommandMessage("fetch_plan", (plan_id, copy)))

    def fetch_protocol(self: Any, protocol_id: Any, location: Any, copy: bool = False) -> Any:
        """A protocol that a worker holds, and keeps; `copy` gives it an id of its own."""
        request = ObjectRequestMessage((protocol_id, None, ""), keep=True)
        return _as_asked(self.send_msg(request, self.get_worker(location, True)), copy, self)

    def _fetch_protocol_remote(self: Any, protocol_id: Any, copy: bool) -> Any:
        """A protocol that is held here."""
        return _as_asked(self.recv_msg(ObjectRequestMessage((protocol_id, None, ""), keep=True)), copy, self)

    # -- bytes -------------------------------------------------------------------------------------------------

    @property
    def serializer(self) -> str:
        """How tensors travel between workers: torch's memory as it is."""
        return TENSOR_SERIALIZATION.TORCH

    @staticmethod
    def simplify(_worker: Worker, worker: Worker) -> tuple[Any, ...]:
        """What a worker is to others: its id."""
        if not isinstance(worker, AbstractWorker):
            raise TypeError(f"BaseWorker.simplify was given a {type(worker).__name__}; it takes a worker.")
        return tuple(serde.simplify(_worker, worker)[1:])

    @staticmethod
    def detail(worker: Worker, worker_tuple: Iterable[Any]) -> Any:
        """The worker of that id, as `worker` knows it."""
        return serde.detail(worker, ("worker", *worker_tuple))

    @staticmethod
    def force_simplify(_worker: Worker, worker: Worker) -> tuple[Any, Any, bool]:
        """A worker with everything that it holds, in simple form. For its owner: it passes by all permissions."""
        return worker.id, serde.simplify(_worker, dict(worker._objects)), worker.auto_add

    @staticmethod
    def force_detail(worker: Worker, worker_tuple: Any) -> Any:
        """A VirtualWorker with what `force_simplify` wrote."""
        worker_id, objects, auto_add = worker_tuple
        made = IMPLEMENTATIONS[Worker](getattr(worker, "hook", None), id=worker_id, auto_add=auto_add)
        for obj_id, obj in serde.detail(made, objects).items():
            made.set_obj(obj_id, obj)
        return made


def own(worker: Worker, obj: Any) -> None:
    """Data that a worker is given belongs to it."""
    if isinstance(obj, torch.Tensor):
        identity_of(obj).owner = worker


def _is_tensor_pointer(pointer: Any) -> bool:
    return type(pointer) is Wrapper and isinstance(pointer.child, PointerTensor)


def _as_asked(protocol: Any, copy: bool, owner: Any) -> Any:
    if not hasattr(type(protocol), "deploy"):
        raise TypeError(f"The object is a {type(protocol).__name__} and no protocol. Fetch it with `.get()`.")
    if copy:
        return protocol.copy()
    protocol.owner = owner
    return protocol
