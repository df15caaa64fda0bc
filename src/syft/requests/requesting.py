"""Asking the owner of a worker, as the two of them see it: `request_...` for those who ask, `approve` for the owner.

request = pointer.request(reason="the mean age, for the paper")    may I fetch this?
worker.request_release(data, "mean", epsilon=1.0, bounds=(0, 120), reason=...)
worker.request_training(trainer, rounds=10, reason=...)
request.wait(timeout=60)

worker.requests, worker.approve(id), worker.deny(id, reason)       the owner, where the worker runs
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from syft.core import html
from syft.core.session import session
from syft.exceptions import PermissionDeniedError
from syft.messaging.message import AskMessage, ObjectRequestMessage, ReleaseMessage, RequestMessage
from syft.requests import keeper
from syft.requests import records as records
from syft.requests.releasing import _id_of

#: How often the worker is asked whether its owner has answered, in seconds: at first, and at last.
_SOONEST, _LATEST = 0.1, 2.0


class Request:
    """Something that the owner of a worker was asked for. `wait()` returns it, or raises their refusal."""

    def __init__(self, worker: Any, told: records.Told, user: str | None, message: Any = None) -> None:
        self.worker, self.user = worker, user
        self._told, self._message = told, message

    @property
    def id(self) -> str:
        return self._told.id

    @property
    def what(self) -> str:
        """What was asked for, as the owner reads it."""
        return self._told.what

    @property
    def status(self) -> str:
        """waiting, approved, denied, used, expired or withdrawn; the worker is asked."""
        if self._told.status in records.OPEN:
            self._told = self._ask("tell")
        return self._told.status

    @property
    def reply(self) -> str:
        """What the owner said to it."""
        return self._told.reply

    def wait(self, timeout: float | None = None) -> Any:
        """What was asked for: a value, or what a release gives. For training: this request, once it is approved.

        !! RequestDeniedError with the reason of the owner; RequestExpiredError; RequestTimeoutError after `timeout`
        seconds (None: however long it takes)
        """
        if timeout is not None and not timeout >= 0:
            raise ValueError(
                f"wait(timeout={timeout!r}): seconds, 0 or more, or None to wait without an end."
            )
        began, pause = time.monotonic(), _SOONEST
        while self.status == "waiting":
            left = None if timeout is None else timeout - (time.monotonic() - began)
            if left is not None and left <= 0:
                break
            time.sleep(pause if left is None else min(pause, left))
            pause = min(2 * pause, _LATEST)
        records.refuse_unless_approved(self._told)
        if self._told.kind == "get":
            return self._ask("take")
        if self._told.kind == "release" and self._message is not None:
            return session.require_local_worker().send_msg(self._message, self.worker)
        return self

    def withdraw(self) -> None:
        """Ask for it no longer."""
        self._told = self._ask("withdraw")

    def _ask(self, action: str) -> Any:
        message = RequestMessage(action, self.id, self.user)
        return session.require_local_worker().send_msg(message, self.worker)

    def __repr__(self) -> str:
        return f"<Request {self.id!r} to {self.worker.id!r}: {self.what}, {self._told.status}>"

    def _repr_html_(self) -> str:
        rows = [("asks for", self.what), ("status", self._told.status), ("reply", self.reply)]
        return html.table(f"Request {self.id} to {self.worker.id}", (), rows)


def send_request(worker: Any, message: Any, reason: str, uses: int, user: str | None) -> Request:
    """Ask the owner of a worker to allow a message."""
    if not isinstance(reason, str):
        raise TypeError(f"The reason of a request is a text, not a {type(reason).__name__}.")
    told = session.require_local_worker().send_msg(AskMessage(message, reason, uses, user), worker)
    return Request(worker, told, user, message)


class RequestingWorker:
    """The part of a worker that is about requests."""

    #: Whether requests are kept in memory where the owner names no file for them.
    asks_in_memory = True

    if TYPE_CHECKING:
        id: Any
        is_in_process: bool

    # -- those who ask -----------------------------------------------------------------------------

    def request_value(self, pointer: Any, reason: str = "", user: str | None = None) -> Request:
        """Ask to fetch what a pointer points to; `pointer.request(reason=...)` is the same. It is copied now."""
        message = ObjectRequestMessage((_id_of(pointer, self), user, reason), True)
        return send_request(self, message, reason, 1, user)

    def request_release(
        self,
        pointer: Any,
        mechanism: str,
        epsilon: float | None = None,
        delta: float = 0.0,
        reason: str = "",
        user: str | None = None,
        **options: Any,
    ) -> Request:
        """Ask for a release, within or beyond the budget; the arguments are those of `release`.

        It is charged to the budget when it is made, by `wait()` or by `release` with exactly these arguments.
        """
        message = ReleaseMessage(
            _id_of(pointer, self), mechanism, 0.0 if epsilon is None else epsilon, delta, options, user
        )
        return send_request(self, message, reason, 1, user)

    def request_training(
        self, trainer: Any, rounds: int = 1, reason: str = "", user: str | None = None
    ) -> Request:
        """Ask to let a Trainer train here for so many rounds, with its model, loss and settings as they are.

        The Trainer was made with this worker among its clients and with a `dataset_key`. Once the owner has approved,
        `trainer.fit(rounds)` is let through.
        """
        if isinstance(rounds, bool) or not isinstance(rounds, int) or rounds < 1:
            raise ValueError(f"request_training(rounds={rounds!r}): a whole number, 1 at least.")
        make = getattr(trainer, "round_to_ask", None)
        if make is None:
            raise TypeError(
                f"request_training() was given a {type(trainer).__name__}. Give the Trainer that is to train here: "
                "Trainer(model, loss, [worker], dataset_key=...). fit() of a TrainConfig cannot be asked for, and "
                "train_privately is paid from the budget that the owner sets."
            )
        message, kept = make(self, rounds, user)
        request = send_request(self, message, reason, rounds, message.user)
        request._message = kept  # the model stays there as long as somebody holds a pointer to it
        return request

    def request(self, id: str, user: str | None = None) -> Request:
        """A request that was made before, by its id."""
        told = session.require_local_worker().send_msg(RequestMessage("tell", id, user), self)
        return Request(self, told, user)

    # -- the owner ---------------------------------------------------------------------------------

    def keep_requests(self, path: Any) -> None:
        """Take requests, and keep them in a file: a `RequestBook`, or the path of one, which is made if it is missing."""
        self._only_owner("keep_requests")
        keeper.keep_requests(self, path)

    @property
    def requests(self) -> list[Any]:
        """All requests, newest first, for the owner, where the worker runs; over a connection, one's own."""
        if self.is_in_process:
            return keeper.book_of(self).all()
        told = session.require_local_worker().send_msg(RequestMessage("list"), self)
        return [Request(self, one, None) for one in told]

    def approve(self, id: str, times: int | None = None, seconds: float | None = None) -> Any:
        """Say yes to a request, for so many times (as many as were asked for) within so many seconds (7 days)."""
        self._only_owner("approve")
        decided = keeper.book_of(self).approve(id, times, seconds)
        keeper.write_down(self)
        return decided

    def deny(self, id: str, reason: str = "") -> Any:
        """Say no to a request, or take an approval back; the reason is told to the one who asked."""
        self._only_owner("deny")
        decided = keeper.book_of(self).deny(id, reason)
        keeper.write_down(self)
        return decided

    def _only_owner(self, method: str) -> None:
        if not self.is_in_process:
            raise PermissionDeniedError(
                f"{method}() was called on a connection to worker {self.id!r}. Requests are for its owner to decide, "
                "where the worker runs: there, or with `syft requests`, `syft approve` and `syft deny`."
            )


__all__ = ["Request", "RequestingWorker", "send_request"]
