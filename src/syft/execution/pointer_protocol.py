"""`PointerProtocol`: a protocol that a worker keeps."""

from __future__ import annotations

from typing import Any

from syft.messaging.message import ObjectRequestMessage
from syft.tensors.object_pointer import ObjectPointer


class PointerProtocol(ObjectPointer):
    """Points to a protocol at a worker. The worker keeps it; it is run from here.

    `get()` brings it back and removes it there, as for every object.
    """

    def fetch(self, user: str | None = None, reason: str = "") -> Any:
        """A copy of the protocol; the worker keeps it."""
        return self.ask(ObjectRequestMessage((self._id_at_location, user, reason), keep=True))

    def run(self, *args: Any, user: str | None = None) -> Any:
        """Run a protocol that is deployed: its plans are called where they are, on `args`; see `Protocol.run`."""
        return self.fetch(user).run(*args, user=user)
