"""`compute_release`: a release of data that may only be released, in a process that exists for it.

NOTE [Mapped where it is released]
The process of a user never has such data: its lookups answer with metadata. A release of it is sent to the broker, which
forks a process from the fork server, gives it this one message, and answers its lookups with the data. That process runs
no other command of the user's, and ends with the release. The noise is drawn there; the broker charges the budget.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from syft.exceptions import RemoteError
from syft.isolation import records
from syft.isolation.channel import ChannelClosed
from syft.isolation.executors import Executor
from syft.isolation.session import IsolatedSession

if TYPE_CHECKING:
    from syft.isolation.answers import Answers

#: What such a process may ask.
_QUESTIONS = (
    records.Lookup,
    records.BookRecords,
    records.BookNames,
    records.BookState,
    records.BookCharge,
    records.UseApproval,
    records.Offered,
)


@dataclass(frozen=True)
class ReleaseSession:
    """In the place of a session, for the questions of a process that computes a release."""

    session: IsolatedSession
    executor: Executor

    @property
    def user(self) -> str:
        return self.session.user

    @property
    def connection(self) -> Any:
        return self.session.connection

    @property
    def its_executor(self) -> Executor:
        return self.executor

    def permits(self, question: Any) -> bool:
        return type(question) in _QUESTIONS


def compute_release(broker: Answers, session: IsolatedSession, payload: bytearray) -> tuple[Any, bytearray]:
    """The answer or the failure of a release, with its content. !! RemoteError if its process ended"""
    executor = broker.executors.for_release(session.user)
    session.releasing = executor
    try:
        lane = executor.open_lane(records.OpenRoute())
        try:
            lane.send(records.Deliver(session.user, getattr(session.connection, "peer", "")), [payload])
            asking = ReleaseSession(session, executor)
            return session.serve_lane(lane, asking, (records.Answer, records.Failure))
        finally:
            lane.close()
    except ChannelClosed:
        why = broker.executors.why_ended(executor)
        raise RemoteError(
            f"The process that computed the release has ended ({why}). If the budget was charged, it stays charged: "
            "worker.budget(data) tells."
        ) from None
    finally:
        session.releasing = None
        broker.executors.leave(executor)
