"""`VirtualWorker`: a worker in this process, which behaves as if it were on another machine."""

from __future__ import annotations

from typing import Any

from syft.core.interfaces import IMPLEMENTATIONS, Worker
from syft.core.place import PLACE
from syft.messaging.message import ObjectMessage
from syft.tensors.made_at import At
from syft.tensors.transfer import private_copy
from syft.workers.base import BaseWorker
from syft.workers.call_handlers import run_call as _run_call  # noqa: F401  (adds the handlers)
from syft.workers.object_handlers import call_method as _call_method  # noqa: F401  (adds the handlers)


class VirtualWorker(BaseWorker):
    """Runs the store, guard and permissions of a network worker; shares no memory with the sender."""

    #: False turns off that `loss.backward()` is one message; see syft.tensors.kept_graphs.
    keeps_graphs = True

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        # One that changes what happens to messages is told every operation, unless it says otherwise.
        cls.keeps_graphs = bool(vars(cls).get("keeps_graphs", False))

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
IMPLEMENTATIONS[Worker] = VirtualWorker
