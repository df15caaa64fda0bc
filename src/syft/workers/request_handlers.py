"""What a worker does with requests to its owner; adds itself to the table in `handlers`.

    ask       AskMessage: the message that a user would like to send is looked at as if it were sent, up to the point
              where it is refused. What the owner will read is made of public facts, and goes into the queue
    decide    the owner does that elsewhere: on the queue (`syft.requests.book`)
    take      RequestMessage: how far a request has come; and the value, of one that was for a value

NOTE [Nothing shows when asking]
Everything an asker hears is decided by specs and public values, as for any command. A result that could not be computed
is asked for like any other; the owner is told, and the asker when it was approved.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import Any

import torch

from syft.core.identity import tags_of
from syft.core.interfaces import Worker
from syft.core.rooms import FilledLater
from syft.exceptions import RequestExpiredError, RequestNotPermittedError
from syft.messaging.message import AskMessage, ObjectRequestMessage, RequestMessage
from syft.policy.caller import user_of
from syft.requests.approvals import Prepared, Requests, Versions
from syft.requests.keeper import keeper_of
from syft.requests.records import Ask, Told, refuse_unless_approved
from syft.requests.values import DTYPES, content_of, value_from
from syft.workers import handlers, pipeline
from syft.workers.entry import Entry
from syft.workers.guards import Guard

#: type of a message -> what prepares a request to be allowed to send it
ASKS: FilledLater[type, Callable[[Any, AskMessage], Prepared]] = FilledLater()
#: more that the owner is told of an entry, by those who keep it
FACTS: list[Callable[[Any, Entry], dict[str, str]]] = []


class Tokens(Guard):
    """The tokens of what users computed and asked for: see NOTE [What an approval covers] in syft.requests.approvals."""

    def __init__(self) -> None:
        self._tokens: dict[Any, tuple[Entry, str]] = {}

    def of(self, entry: Entry, is_asked: bool = False) -> str:
        """The token of an object; empty if it has none. `is_asked`: then it gets one."""
        known = self._tokens.get(entry.id)
        if known is not None and known[0] is entry:
            return known[1]
        if not is_asked:
            return ""
        self._tokens[entry.id] = entry, secrets.token_hex(16)
        return self._tokens[entry.id][1]

    def written(self, entry: Entry) -> None:
        self._tokens.pop(entry.id, None)

    may_be_written = written

    def store(self, worker: Any, entry: Entry, before: Entry | None) -> None:
        self._tokens.pop(entry.id, None)

    def drop(self, entry: Entry, heir: Entry | None) -> None:
        self._tokens.pop(entry.id, None)


def versions_of(worker: Any) -> Versions:
    requests: Requests = worker.extension(Requests)
    if requests.versions is None:
        tokens = requests.versions = Tokens()
        worker.add_guard(tokens)
    return requests.versions


# -- asking ----------------------------------------------------------------------------------------------------


def ask_owner(worker: Worker, message: AskMessage) -> Told:
    """Put a request into the queue."""
    user = _named(message)
    prepare = ASKS.find(type(message.message))
    if prepare is None:
        raise RequestNotPermittedError(
            f"A {type(message.message).__name__} cannot be asked for. Ask to fetch an object (pointer.request), for a "
            "release (worker.request_release) or for training (worker.request_training)."
        )
    keeper = keeper_of(worker)
    keeper.check_room(user, 0)
    prepared = prepare(worker, message)
    entry = worker._entries.get(prepared.about) if prepared.ask.kind != "train" else None
    token = "" if entry is None or entry.is_owners else versions_of(worker).of(entry, is_asked=True)
    return keeper.file(user, prepared, token)


def ask_to_get(worker: Any, message: AskMessage) -> Prepared:
    """Ask for a value: a copy of it waits in the queue."""
    inner: ObjectRequestMessage = message.message
    obj_id, user = inner.request[0], _named(message)
    (entry,) = pipeline.permit(worker, message, (obj_id,), name="a request").entries
    value = entry.value
    if worker.policy.may_get(user, entry.allowed):
        raise RequestNotPermittedError(f"You may fetch object {obj_id!r} without asking: pointer.get().")
    dtype = str(getattr(value, "dtype", "")).removeprefix("torch.")
    if type(value) is not torch.Tensor or dtype not in DTYPES or value.device.type == "meta":
        raise RequestNotPermittedError(
            f"Object {obj_id!r} is a {type(value).__name__} and cannot be asked for; tensors can. Ask for what was "
            "computed from it."
        )
    keeper_of(worker).check_room(user, value.nbytes)
    details = {"shape": str(tuple(value.shape)), "dtype": dtype, "tags": " ".join(map(str, tags_of(value)))}
    for facts in FACTS:
        details |= facts(worker, entry)
    if entry.failure is not None:
        details["failure"] = str(entry.failure)[:300]
    ask = Ask(
        "get",
        "",
        "a value",
        message.reason,
        {name: text for name, text in details.items() if text},
        uses=message.uses,
    )
    return Prepared(ask, obj_id, content_of(value))


def _named(message: Any) -> str:
    user = user_of(message)
    if not user:
        raise RequestNotPermittedError(
            "A request was made by somebody who gave no user name, and the owner has to know whom to answer. Name "
            "yourself: request(..., user=...)."
        )
    return user


# -- what becomes of it ----------------------------------------------------------------------------------------


def about_requests(worker: Worker, message: RequestMessage) -> Any:
    """Tell, list or withdraw requests of a user's; or hand out a value that its owner has approved."""
    user, keeper = _named(message), keeper_of(worker)
    if message.action in ("tell", "list", "withdraw"):
        return keeper.ask(user, message.action, message.id)
    if message.action != "take":
        raise RequestNotPermittedError(
            f"There is no action {str(message.action)[:60]!r} on a request: it is told, listed, withdrawn or taken."
        )
    request: Told = keeper.ask(user, "tell", message.id)
    if request.kind != "get":
        raise RequestNotPermittedError(
            f"Request {request.id!r} is not for a value that waits. Do what was approved: worker.release(...) or "
            "trainer.fit(...), with exactly the arguments that were asked for."
        )
    refuse_unless_approved(request)
    found = keeper.take(user, request.id)
    if found is None:
        raise RequestExpiredError(f"Request {request.id!r} was used up meanwhile. Ask again.")
    return value_from(*found)


ASKS[ObjectRequestMessage] = ask_to_get
handlers.HANDLERS[AskMessage] = ask_owner
handlers.HANDLERS[RequestMessage] = about_requests
