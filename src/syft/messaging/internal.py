"""Messages that a session makes of those that came, for the worker in its process. They do not travel."""

from __future__ import annotations

from typing import Any, NamedTuple

from syft.messaging.message import Message, ObjectRequestMessage, PlanCallMessage


class FetchedCall(NamedTuple):
    """A call of a plan, and the request for its one result that came right behind it.

    `most_bytes` is what the result may have. The answer is the result, or `STORED`: then it is where the call wanted it,
    and the request is still to be answered.
    """

    call: PlanCallMessage
    request: ObjectRequestMessage
    most_bytes: int


Message.register(FetchedCall)
#: What a `FetchedCall` is answered whose result was not handed out.
STORED: Any = object()
