"""Failures that must not show, and writing into what others may not see: see NOTE [Nothing shows] in admitted."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import torch

from syft.core.interfaces import Worker
from syft.exceptions import RemoteError
from syft.policy.caller import proved_user
from syft.policy.quotas import OWNER
from syft.workers.entry import Entry

if TYPE_CHECKING:
    from syft.workers.pipeline import Call


def failure_among(entries: Iterable[Entry]) -> str | None:
    """Why one of these could not be computed; None if all were."""
    for entry in entries:
        if entry.failure is not None:
            return entry.failure
    return None


def tell_failures(entries: Iterable[Entry]) -> None:
    """!! RemoteError if one of these could not be computed. For those who may fetch them."""
    failure = failure_among(entries)
    if failure is not None:
        raise RemoteError(f"The value could not be computed on the worker: {failure}")


def mark_failed(worker: Worker, written: list[torch.Tensor], failure: str) -> None:
    """A failed write: what was to be written is zeros, and so is what shares its memory."""
    for entry in worker.sharing(written) if written else ():
        entry.failure = failure


def prepare_writing(call: Call, written: list[torch.Tensor]) -> None:
    """Restrict what is written into, and what shares its memory, like the inputs of the call.

    !! SendNotPermittedError if one who may not would change what was brought here as private, or is of another user
    """
    worker = call.worker
    entries = worker.sharing(written)
    # NB: of another user's object, which this one may only compute with, also what was computed.
    holder = proved_user(OWNER)
    is_noted = worker._holdings is not None
    for entry in entries:
        if entry.is_private or entry.is_owners or (is_noted and entry.holder != holder):
            worker.policy.check_send(call.user, entry.id, worker.changeable_by(entry.id), action="write into")
    for note in call.guards.written:
        for entry in entries:
            note(entry)
    worker.taint(written, call.allowed, call.entries)
    for entry in entries:
        entry.spec = None
