"""`VirtualWorker`: a worker in this process, which behaves as if it were on another machine.

NOTE [No message]
What a command on pointers needs at a worker that is open and in this process is what `pipeline.execute` does for it: look
up, run, store. A message would be made, handed from method to method and taken apart again for that. So the client asks
for it in one call (`run_at_once`). The worker does it only where nobody could tell: no guards, nobody who reads or bears
messages in another way, nothing restricted, ids that are free. Else it says no before anything has happened, and the
message is sent. tests/workers/test_caches.py compares both.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch

from syft.core.commands import command_named
from syft.core.interfaces import IMPLEMENTATIONS, Worker
from syft.core.place import PLACE
from syft.messaging.message import LeafRef, ObjectMessage, Operation, Ref, TrackedRef
from syft.operations.fresh_memory import chained, function_of
from syft.tensors.made_at import At
from syft.tensors.sending import private_copy
from syft.workers.base import BaseWorker
from syft.workers.call_handlers import run_call as _run_call  # noqa: F401  (adds the handlers)
from syft.workers.entry import Entry
from syft.workers.graph_handlers import OUTSIDE
from syft.workers.object_handlers import call_method as _call_method  # noqa: F401  (adds the handlers)
from syft.workers.request_handlers import ask_owner as _ask_owner  # noqa: F401  (adds the handlers)
from syft.workers.results import facts_of_command, fresh_results, keep_results

_guard = torch._C._ForceDispatchKeyGuard


@cache
def _function_named(name: Any) -> Any:
    return function_of(command_named(name)) if type(name) is str else chained(name)


def _is_dense(value: Any) -> bool:
    return type(value) is torch.Tensor and value.layout is torch.strided


class VirtualWorker(BaseWorker):
    """Runs the store, guard and permissions of a network worker; shares no memory with the sender."""

    #: False turns off that `loss.backward()` is one message; see syft.tensors.kept_graphs.
    keeps_graphs = True

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        # One that changes what happens to messages is told every operation, unless it says otherwise.
        cls.keeps_graphs = bool(vars(cls).get("keeps_graphs", False))
        cls.run_at_once = None  # type: ignore[method-assign,assignment]

    def _send_msg(self, message: Any, location: Any) -> Any:
        if type(message) is ObjectMessage and location.is_in_process:
            message = ObjectMessage(
                private_copy(message.object), message.id, message.allowed, message.user, message.is_public
            )
        place = PLACE.at
        if place is None:
            return location._recv_msg(message)
        PLACE.at = None  # as on another machine, whose blocks are its own
        try:
            return location._recv_msg(message)
        finally:
            PLACE.at = place

    def run_at_once(
        self, speaker: Any, name: Any, refs: list[Any], kwargs: dict[str, Any], ids: tuple[Any, ...]
    ) -> bool:
        """Run an operation on pointers and plain values, if a message would do no more; whether it was run.

        `name`: that of the operation, or the names of several with how many arguments each takes; see `chained`.
        """
        place = PLACE.at
        if place is not None:
            PLACE.at = None  # as in _send_msg
            try:
                return VirtualWorker.run_at_once(self, speaker, name, refs, kwargs, ids)
            finally:
                PLACE.at = place
        stored = self._entries
        if (
            type(speaker) is not VirtualWorker
            or speaker.verbose
            or VirtualWorker._send_msg is not _SENDS
            or VirtualWorker._recv_msg is not _HANDLES
            or "send_msg" in speaker.__dict__
            or self.guards
            or self._waiting_deletes
            or self.log_msgs
            or self.verbose
            or self.device is not None
            or "_recv_msg" in self.__dict__
        ):
            return False
        args: list[Any] = []
        is_tracked = False
        for value in refs:
            kind = type(value)
            if kind is Ref:
                entry = stored.get(value.id)
                if entry is None or entry.allowed is not None:
                    return False
                args.append(entry.value)
            elif kind is TrackedRef or kind is LeafRef:
                entry = stored.get(value.id)
                if entry is None or entry.allowed is not None:
                    return False
                tracked = entry.tracked
                is_leaf = kind is LeafRef
                if tracked is None and is_leaf and type(entry.value) is torch.Tensor:
                    tracked = entry.tracked = entry.value.detach().requires_grad_()
                if tracked is None or tracked.is_leaf is not is_leaf:
                    return False
                is_tracked = True
                args.append(tracked)
            else:
                args.append(value)
        for obj_id in ids:
            if obj_id in stored:
                return False
        function = _function_named(name)
        if is_tracked and name[:5] == "aten.":
            # As in graph_handlers.run_tracked. A public function (syft.tensors.fused) was not called by the dispatcher.
            with _guard(*OUTSIDE):
                result = function(*args, **kwargs)
        else:
            result = function(*args, **kwargs)
        if type(result) is torch.Tensor and len(ids) == 1 and result.layout is torch.strided:
            obj_id = ids[0]
            if result.requires_grad:
                stored[obj_id] = Entry(obj_id, result.detach(), tracked=result)
            else:
                stored[obj_id] = Entry(obj_id, result)
        elif type(result) is tuple and len(result) == len(ids) and all(map(_is_dense, result)):
            # NB: ids are taken from the end.
            for obj_id, part in zip(reversed(ids), result, strict=True):
                if part.requires_grad:
                    stored[obj_id] = Entry(obj_id, part.detach(), tracked=part)
                else:
                    stored[obj_id] = Entry(obj_id, part)
        elif ids or result is not args[0]:
            facts = facts_of_command(command_named(name))
            message = Operation(name, None, refs, kwargs, ids)
            keep_results(self, message, fresh_results(result, facts), None, None)
        return True

    def give_msg(self, message: Any, location: Any) -> Any:
        cls = type(self)
        # NB: one that changes what happens to messages is told of every one.
        is_usual = cls._send_msg is _SENDS and cls.send_msg is BaseWorker.send_msg and not self.verbose
        if is_usual and location.is_in_process and PLACE.at is None:
            return location._recv_msg(message)
        return self.send_msg(message, location)

    def __enter__(self) -> VirtualWorker:
        """`with bob:` is `with sy.at(bob):`."""
        PLACE.blocks.append(At(self).__enter__())
        return self

    def __exit__(self, *exception: Any) -> None:
        PLACE.blocks.pop().__exit__(*exception)

    _recv_msg = BaseWorker._handle


_SENDS = VirtualWorker._send_msg
_HANDLES = VirtualWorker._recv_msg
IMPLEMENTATIONS[Worker] = VirtualWorker
