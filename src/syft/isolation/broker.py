"""`Broker`: what stays with the worker when sessions run in executors: policy, budgets, audit log, data, peers.

It answers the questions of executors from its own table and its own policy. An executor may be under its user's control:
what it says about itself can change nothing but that user's own objects.

    broker = Broker(worker)   before the worker is started: each user's commands run in a process of their own
    broker.close()            after it was stopped
"""

from __future__ import annotations

import contextlib
import logging
from typing import Any

import msgspec
import torch

from syft.core import worker_lock
from syft.isolation import records
from syft.isolation.answers import Answers
from syft.isolation.executors import Executor, Executors
from syft.isolation.sealed import (
    Sealed,
)
from syft.isolation.session import ExecutorEndedError, IsolatedSession
from syft.policy.caller import speaking_for
from syft.policy.owner_policy import DataRule, OwnerPolicy, Rules
from syft.policy.permissions import AuditRecord
from syft.workers import handlers
from syft.workers.entry import Entry
from syft.workers.guards import Guard

logger = logging.getLogger("syft.worker")

#: What executors may say happened, beside that a message of some kind was refused. All else is the broker's to say.
_ACTIONS = frozenset(
    {
        "get",
        "compute",
        "send",
        "move",
        "share",
        "open",
        "call",
        "join",
        "release",
        "learn a shape",
        "let others use",
        "train with",
    }
    | {"train on", "evaluate on"}
)
_TRANSIENT = 4


class _Changes(Guard):
    """Tells executors of what they were given and has changed."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def drop(self, entry: Entry, heir: Entry | None) -> None:
        self._broker.note_change(entry)


class Broker(Answers):
    """One per worker."""

    def __init__(
        self,
        worker: Any,
        sealed: Sealed | None = None,
        threads: int | None = None,
        module: str = "syft.isolation.forkserver",
    ) -> None:
        if worker.device is not None:
            raise ValueError(
                f"Worker {worker.id!r} keeps its tensors on {worker.device}, which processes of users cannot open. "
                "Leave device= out, or use isolation 'none'."
            )
        policy = worker.policy
        if type(policy) is not OwnerPolicy:
            raise ValueError(
                f"A worker with a {type(policy).__name__} cannot be isolated: its rules cannot be told to other "
                "processes. Use an OwnerPolicy (a policy file), or isolation 'none'."
            )
        super().__init__(worker, sealed)
        self._threads = threads
        self._server = worker._server
        self.executors = Executors(self._hello, self._note_end, self._note_death, worker.has_budgets, module)
        worker.guards.append(_Changes(self))
        self._server.make_session = self._new_session
        self._server.stop_seconds = 0.5
        worker.held_elsewhere = self._held_by_executors
        self._kinds = {kind.__name__.removesuffix("Message").lower() for kind in handlers.HANDLERS}

    def _new_session(self, *args: Any, **options: Any) -> IsolatedSession:
        return IsolatedSession(self, *args, **options)

    def wait_until_ready(self) -> None:
        """Until executors can be started; what they lack on this machine is logged. !! WorkerUnreachableError"""
        self.executors.wait_until_ready()
        for fault in self.executors.server.faults:
            logger.warning("%s: isolation is weaker than it could be: %s", self.worker.id, fault)

    def close(self) -> None:
        """End all executors."""
        self.executors.close()

    def _held_by_executors(self) -> tuple[int, int]:
        """How many objects and bytes users hold in their processes, as these say."""
        executors = self.executors.all()
        return sum(e.objects for e in executors), sum(e.nbytes for e in executors)

    # -- executors ---------------------------------------------------------------------------------

    def _hello(self, user: str, computes_releases: bool) -> records.Hello:
        policy = self.worker.policy
        quota = policy.quota_of(user).max_bytes or 0
        held = sum(
            e.value.nbytes for e in list(self.worker._entries.values()) if type(e.value) is torch.Tensor
        )
        return records.Hello(
            self.worker.id,
            user,
            self._rules_of(user),
            quota * (1 + _TRANSIENT) + held,
            1_024,
            self.worker.has_budgets,
            self._threads,
            computes_releases,
        )

    def _rules_of(self, user: str) -> bytes:
        """The policy as far as it is about one user: nobody is told what others may do."""
        rules = self.worker.policy.rules
        own = {user: rules.users[user]} if user in rules.users else {}
        data = tuple(
            DataRule(
                rule.tags, *(_only(who, user) for who in (rule.may_compute, rule.may_get, rule.may_find))
            )
            for rule in rules.data
        )
        return msgspec.msgpack.encode(Rules(rules.defaults, own, data))

    def news_for(self, executor: Executor) -> tuple[bytes | None, list[Any], bool]:
        """What an executor has to hear before it runs anything more: rules, objects that changed, budgets."""
        rules: bytes | None = None
        current = id(self.worker.policy.rules)
        if executor.rules_version != current:
            rules = self._rules_of(executor.user) if executor.rules_version != -1 else None
            executor.rules_version = current
        forget, executor.to_forget = executor.to_forget, []
        has_budgets = self.worker.has_budgets and not executor.knows_budgets
        executor.knows_budgets = executor.knows_budgets or has_budgets
        return rules, forget, has_budgets

    def take_news(self, session: IsolatedSession, done: records.FrameDone) -> None:
        """What an executor says at the end of a frame. It is about its own user, whatever it says."""
        executor = session.executor
        if executor is None:
            return
        peer = getattr(session.connection, "peer", "")
        executor.objects, executor.nbytes = done.objects, done.nbytes
        for line in done.lines:
            if line.action in _ACTIONS or (line.action in self._kinds and not line.granted):
                self.worker.policy.record(
                    AuditRecord(
                        line.action,
                        line.obj_id,
                        session.user,
                        line.granted,
                        line.reason,
                        peer=peer,
                        reported=True,
                    )
                )
        for text in done.log:
            logger.warning("%s: the process of %s says: %s", self.worker.id, session.user, _on_one_line(text))
        for offer in done.offers:
            known = self._offers.get(offer.id)
            if known is None or known[0] is executor or known[0].is_ended:
                allowed = None if offer.allowed is None else frozenset(offer.allowed)
                self._offers[offer.id] = executor, allowed, frozenset(offer.computers)
        if done.dropped:
            with worker_lock.held(self._lock), speaking_for(session.user, peer):
                for obj_id in done.dropped:
                    self._drop(session, executor, obj_id)

    def note_change(self, entry: Entry) -> None:
        for executor in self.executors.all():
            if entry.id in executor.given:
                executor.given.discard(entry.id)
                executor.to_forget.append(entry.id)

    def _drop(self, session: IsolatedSession, executor: Executor, obj_id: Any) -> None:
        """A user lets an object go: theirs, or one that was brought here for them by name."""
        group = executor.groups.pop(obj_id, None)
        if group is not None:
            self._groups.pop(obj_id, None)
            for ticket in group:
                self._tickets.pop(ticket, None)
        offer = self._offers.get(obj_id)
        if offer is not None and offer[0] is executor:
            del self._offers[obj_id]
        elif offer is not None and offer[1] is not None and session.user in offer[1]:
            del self._offers[obj_id]
            with contextlib.suppress(OSError):
                offer[0].ask(records.Remove([obj_id]))
        entry = self.worker._entries.get(obj_id)
        if entry is None or entry.is_owners:
            return
        if entry.holder == session.user or (entry.allowed is not None and session.user in entry.allowed):
            executor.given.discard(obj_id)
            self.worker.rm_obj(obj_id)

    def _note_death(self, reason: str) -> None:
        """The process that executors are forked from has ended."""
        logger.error("%s: %s", self.worker.id, reason)
        self._write_down(None, reason)

    def _write_down(self, user: str | None, reason: str) -> None:
        try:
            self.worker.policy.record(AuditRecord("process", None, user, False, reason))
        except (OSError, ValueError):
            logger.exception("%s: it could not be written to the audit log", self.worker.id)

    def _note_end(self, executor: Executor, why: str, was_expected: bool) -> None:
        """An executor has ended. If it did so by itself, it is written down; each of its sessions finds out."""
        self._forget(executor)
        if was_expected:
            return
        reason = f"the process of the user has ended: {why}"
        logger.warning("%s: %s: %s", self.worker.id, executor.user, reason)
        self._write_down(executor.user, reason)
        for session in self._server.sessions():
            if (
                isinstance(session, IsolatedSession)
                and session.executor is executor
                and session._frame is None
            ):
                self.dismiss(session, why)

    def _forget(self, executor: Executor) -> None:
        for table in (self._offers, self._groups, self._tickets):
            for key, value in list(table.items()):
                if (value[0] if type(value) is tuple else value) is executor:
                    table.pop(key, None)

    def dismiss(self, session: IsolatedSession, why: str) -> None:
        error = ExecutorEndedError(
            f"The worker ended the session: its process has ended ({why}). What was only there is gone; what has tags "
            "is still on the worker. The next call begins a new session."
        )
        self._server.dismiss(session, error, "process")

    def seconds_per_operation(self, user: str) -> float | None:
        return self._server.settings_of(user).seconds_per_operation  # type: ignore[no-any-return]


def _only(users: frozenset[str] | None, user: str) -> frozenset[str] | None:
    return None if users is None else users & {user}


def _on_one_line(text: str) -> str:
    return "".join(c if c.isprintable() else " " for c in text)[:1000]
