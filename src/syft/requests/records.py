"""What users ask the owner of a worker for, and how far a request has come. No I/O."""

from __future__ import annotations

import re
from typing import Literal

import msgspec

from syft.exceptions import (
    RequestDeniedError,
    RequestExpiredError,
    RequestNotPermittedError,
    RequestTimeoutError,
)

Kind = Literal["get", "release", "train"]
Status = Literal["waiting", "approved", "denied", "used", "expired", "withdrawn"]

#: Statuses in which something may still happen.
OPEN: tuple[Status, ...] = ("waiting", "approved")
#: Of what a user says. Longer texts are refused, not cut: the owner decides about all of it.
MOST_REASON = 1_000
MOST_CODE = 200_000
MOST_DETAILS = 40
MOST_DETAIL = 2_000
MOST_USES = 100_000
#: For how long the owner may think about a request, and how long an approval holds unless they say otherwise.
WAITS_SECONDS = 30 * 86_400.0
APPROVED_SECONDS = 7 * 86_400.0


class Ask(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What somebody asks for.

    binding    stands for exactly that: an approval covers nothing of another binding
    what       one line for the owner
    details    more about it, by name: shapes, settings, options
    code       the plan that is to run, as text
    uses       how often it is to be done, if the owner does not say otherwise: rounds of training, else 1
    charge, epsilon, datasets   of a release: exactly what is charged, its epsilon if it has one, and to what
    """

    kind: Kind
    binding: str
    what: str
    reason: str = ""
    details: dict[str, str] = {}
    code: str = ""
    uses: int = 1
    charge: str = ""
    epsilon: float | None = None
    datasets: tuple[str, ...] = ()


class Request(msgspec.Struct, frozen=True):
    """A request as its owner sees it. `nbytes`: of the value that would be handed out; 0: there is none."""

    id: str
    time: float
    user: str
    peer: str
    ask: Ask
    status: Status
    uses_left: int
    expires: float
    decided: float | None
    reply: str
    nbytes: int

    @property
    def is_open(self) -> bool:
        return self.status in OPEN


class Told(msgspec.Struct, frozen=True):
    """What the one who asked is told of a request: nothing that they did not say, and what the owner answered."""

    id: str
    kind: Kind
    what: str
    status: Status
    reply: str
    uses_left: int
    expires: float


class Event(msgspec.Struct, frozen=True):
    """Something that happened to a request, for the audit log."""

    number: int
    time: float
    request: str
    user: str
    peer: str
    action: str
    granted: bool
    text: str


def told(request: Request) -> Told:
    ask = request.ask
    return Told(
        request.id,
        ask.kind,
        ask.what,
        request.status,
        request.reply,
        request.uses_left if request.status == "approved" else 0,
        request.expires,
    )


_BINDING = re.compile(r"[0-9a-f]{64}")


def check_ask(ask: Ask) -> None:
    """!! RequestNotPermittedError for a text that is too long to be read, and for numbers that are none"""
    texts = {
        "reason": (ask.reason, MOST_REASON),
        "plan": (ask.code, MOST_CODE),
        "line": (ask.what, 500),
        "charge": (ask.charge, 2_000),
    }
    texts |= {f"entry {name[:60]!r}": (name + text, MOST_DETAIL) for name, text in ask.details.items()}
    for name, (text, most) in texts.items():
        if len(text) > most:
            raise RequestNotPermittedError(
                f"The {name} of the request has {len(text)} characters; the owner of the worker reads {most} at most. "
                "Say it in fewer words, or ask for less at once."
            )
    if len(ask.details) > MOST_DETAILS or len(ask.datasets) > MOST_DETAILS:
        raise RequestNotPermittedError(f"A request has {MOST_DETAILS} details at most; ask for less at once.")
    if ask.kind != "train" and ask.uses != 1:
        raise RequestNotPermittedError(
            f"A value or a release is asked for once, and this request is for {ask.uses} times. Ask again for the next; "
            "the owner may approve more."
        )
    if not 1 <= ask.uses <= MOST_USES:
        raise RequestNotPermittedError(
            f"A request is for 1 to {MOST_USES} times; this one is for {ask.uses}. Ask for a number of times that the "
            "owner can decide about."
        )
    if not _BINDING.fullmatch(ask.binding):
        raise RequestNotPermittedError("A request does not say what it is bound to.")


def refuse_unless_approved(request: Told) -> None:
    """!! the error that says why a request is of no use, or not yet"""
    what = f"request {request.id!r} ({request.what})"
    if request.status == "denied":
        why = f": {request.reply}" if request.reply else ", and gave no reason"
        raise RequestDeniedError(f"The owner said no to {what}{why}.")
    if request.status == "waiting":
        raise RequestTimeoutError(
            f"The owner has not answered {what} yet. It stays in the queue: call wait() again, or come back later with "
            f"worker.request({request.id!r})."
        )
    if request.status != "approved":
        why = {"used": "was used up", "withdrawn": "was withdrawn"}.get(request.status, "is over")
        raise RequestExpiredError(f"The {what} {why}. Ask again.")
