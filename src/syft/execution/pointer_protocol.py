"""`PointerProtocol`: a protocol that a worker keeps."""

from __future__ import annotations

from typing import Any

from syft.execution.pointer_parts import pointer_options, pointer_parts
from syft.messaging.message import ObjectRequestMessage
from syft.tensors.object_pointer import ObjectPointer


class PointerProtocol(ObjectPointer):
    """Points to a protocol at a worker. The worker keeps it; it is run from here.

    `get()` brings it back and removes it there, as for every object.
    """

    def fetch(self, user: str | None = None, reason: str = "") -> Any:
        """A copy of the protocol; the worker keeps it."""
        return self.ask(ObjectRequestMessage((self._id_at_location, user, reason), keep=True))

    def run(self, *args: Any, user: str | None = None, **kwargs: Any) -> Any:
        """Run a protocol that is deployed, on tensors that are here or at the worker that keeps it.

        See `Protocol.run`, and NOTE [Whose run it is] in syft.execution.protocol.
        """
        protocol = self.fetch(user)
        protocol._location = self._location
        return protocol.run(*args, user=user, **kwargs)

    def request_remote_run(self, location: Any, args: Any, kwargs: Any) -> Any:
        """Run the protocol on tensors of a worker; returns pointers to that worker, which has pointers to the results."""
        return self.fetch((kwargs or {}).get("user")).request_remote_run(location, args, kwargs)

    @staticmethod
    def simplify(worker: Any, ptr: PointerProtocol) -> tuple[Any, ...]:
        """The attributes of a pointer as a tuple."""
        return pointer_parts(ptr)

    @staticmethod
    def detail(worker: Any, tensor_tuple: tuple[Any, ...]) -> PointerProtocol:
        """A pointer from its attributes; it deletes nothing."""
        return PointerProtocol(**pointer_options(worker, tensor_tuple))

    def wrap(self, type: Any = None, register: bool = False, **kwargs: Any) -> PointerProtocol:
        """This pointer: only pointers to tensors are wrapped. A `type` to wrap it in is refused."""
        if type is not None or register or kwargs:
            raise TypeError("wrap() of a PointerProtocol takes no options: it returns the pointer itself.")
        return self
