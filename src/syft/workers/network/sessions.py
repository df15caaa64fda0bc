"""`ServerSession`: the server's end of a session. No I/O: frames in, frames out.

See NOTE [Neither lost nor twice].
"""

from __future__ import annotations

import secrets
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

import msgspec
import torch

from syft import serde
from syft.core import worker_lock
from syft.core.chain import Wrapper
from syft.core.interfaces import Id, Worker
from syft.exceptions import (
    CannotRequestObjectAttribute,
    ObjectNotFoundError,
    PermissionDeniedError,
    PlanCommandUnknownError,
    ProtocolError,
    QuotaExceededError,
    RemoteError,
    UnknownCommandError,
)
from syft.messaging.internal import STORED, FetchedCall
from syft.messaging.message import (
    ForwardMessage,
    LearntMessage,
    ObjectMessage,
    ObjectRequestMessage,
    Operation,
    PlanCallMessage,
    PointersGoneMessage,
    SyncMessage,
)
from syft.policy.authentication import Proof
from syft.policy.caller import speaking_for
from syft.policy.permissions import AuditRecord
from syft.serde.errors import SerdeError
from syft.tensors.pointer import PointerTensor
from syft.transport import session_frames as frames
from syft.transport.session_frames import Head, Kind
from syft.workers import handlers
from syft.workers.network.learnt import Programs

_CONFIRM_COMMANDS = 1_024
#: In one frame. Clients send far fewer.
MOST_COMMANDS = 4_096
_MAX_REPLIES = 1_024
#: Replies are kept up to the size of the largest message, and so many bytes.
_REPLY_SLACK = 64 << 20
_OWNED_SLACK = 1_024
#: Replies up to this many bytes are copied, to be sent again as they were.
_COPIED_BYTES = 64 << 10
_LONGEST_NOTED = 128
_REPLY = int(Kind.REPLY)
#: Messages after which a session holds nothing more.
_MAKES_NOTHING = frozenset({FetchedCall, ObjectRequestMessage, SyncMessage})
#: Where a message says what it is about.
_SUBJECTS = ("id", "cmd_name", "name", "command_name", "plan")
#: What a user should not have asked for; most of these are in the audit log when they get here.
_REFUSALS = (
    PermissionDeniedError,
    UnknownCommandError,
    CannotRequestObjectAttribute,
    PlanCommandUnknownError,
    ObjectNotFoundError,
)


class Reply(msgspec.Struct, frozen=True):
    """What a command that waits is answered."""

    number: int
    flags: int
    failed: int
    payload: list[Any]


class ServerSession:
    """What a worker knows of one client: how far it came, what it was told, what it holds.

    user      the name that was proved, or one made up for this session
    limits    what a frame of this user may ask for
    proof     what proved the name; None: nothing did
    """

    def __init__(
        self,
        worker: Worker,
        user: str,
        lock: threading.Lock,
        limits: serde.Limits,
        compression: str | None,
        proof: Proof | None = None,
    ) -> None:
        self.id = secrets.token_hex(16)
        self.worker, self.user, self.limits = worker, user, limits
        self.compression, self.proof = compression, proof
        self._worker_lock = lock
        #: Held by whoever executes, resumes or ends the session.
        self.lock = threading.Lock()
        self.connection: Any = None
        #: Of the connection: lets who waits for this client read it.
        self.lending: Any = None
        self.executed = 0
        self._confirmed_to_client = 0
        self._replies: deque[Reply] = deque()
        #: Of the replies that are kept.
        self.reply_bytes = 0
        #: The first command that failed and has not been told of, and its error as it will be sent.
        self._failure: tuple[int, list[Any]] | None = None
        #: How many refusals were in the audit log when the command began that is running.
        self._refused_before = 0
        self._owned: set[Any] = set()
        self._programs = Programs()
        self.began = time.time()
        self.last_heard = time.monotonic()
        #: Since when a frame is worked on, the wait for the worker's lock included; None: none is.
        self.busy_since: float | None = None
        #: When the command that is running began, and what it is; None: nothing is running.
        self.running: tuple[float, Any] | None = None
        #: No command begins any more.
        self.ended = False

    # -- commands ----------------------------------------------------------------------------------

    def execute(self, head: Head, payload: memoryview) -> tuple[Head, list[Any]] | None:
        """Run the commands of a frame; the frame to answer, if one is. Called with `lock` held."""
        last = head.number + head.count - 1
        if not head.count:
            raise ProtocolError("A frame of commands holds none.")
        if last <= self.executed:
            return self._repeat(head, last)
        if head.number > self.executed + 1:
            raise ProtocolError(f"Command {head.number} arrived where {self.executed + 1} was due.")
        reply = self._run_frame(head, payload)
        if self.ended:
            return None
        if reply is not None:
            self._replies.append(reply)
            self.reply_bytes += sum(map(len, reply.payload))
            if len(self._replies) > _MAX_REPLIES:
                raise ProtocolError(f"More than {_MAX_REPLIES} replies have not been confirmed.")
            return self._reply_frame(reply)
        return self.confirmation() if self.owes_confirmation(head) else None

    def _run_frame(self, head: Head, payload: memoryview) -> Reply | None:
        """Run the commands of a frame that were not run before; the reply, if one is waited for."""
        messages = self._messages(head, payload)
        if self._run_without_lock(head, messages):
            return None
        return self._run_all(messages, head)

    def _run_without_lock(self, head: Head, messages: list[Any]) -> bool:
        """Run what parties of a program tell each other, often; whether the frame is that and nothing else."""
        worker, message = self.worker, messages[0]
        handler = handlers.WITHOUT_LOCK.get(type(message))
        if (
            handler is None
            or head.count > 1
            or head.flags & frames.WAITS
            or worker.log_msgs
            or worker.verbose
        ):
            return False
        self._refused_before = worker.policy.decisions.get(False, 0)
        self.executed = head.number  # noted before it runs: it is not run again
        try:
            handler(worker, message, self.lending)
        except Exception as error:  # noqa: BLE001  (every error comes back as itself)
            self._note_failure(head.number, message, error)
        return True

    def take_without_lock(self, head: Head, payload: memoryview) -> bool:
        """The same for whoever borrows the connection (`lending`); False: nothing was run. Called with `lock` held."""
        if head.count != 1 or head.number != self.executed + 1 or self.keeps_too_much:
            return False
        return self._run_without_lock(head, self._messages(head, payload))

    def owes_confirmation(self, head: Head) -> bool:
        """Whether the client is to be told that a frame was executed for which there is no reply."""
        return (
            bool(head.flags & frames.CONFIRM) or self.executed - self._confirmed_to_client > _CONFIRM_COMMANDS
        )

    def interrupt(self, why: str) -> None:
        """End what is running, where that can be done: torch cannot be interrupted in a thread."""

    def _messages(self, head: Head, payload: memoryview) -> list[Any]:
        """The commands, or the error that there is in place of each. !! ProtocolError if there are too many"""
        if head.count > MOST_COMMANDS:
            raise ProtocolError(
                f"{head.count} commands were announced in one frame; {MOST_COMMANDS} is the most."
            )
        try:
            messages = serde.deserialize_batch(
                payload,
                self.worker,
                limits=self.limits,
                take_over=True,
                names_workers=not self.worker.policy.is_guarded,
            )
            if len(messages) != head.count:
                raise SerdeError(f"{head.count} commands were announced, and {len(messages)} are here.")
        except SerdeError as error:
            return [error] * head.count
        except Exception as error:  # noqa: BLE001  (it would come again, and again)
            return [SerdeError(f"The commands cannot be read: {type(error).__name__}: {error}")] * head.count
        return messages

    def _run_all(self, messages: list[Any], head: Head) -> Reply | None:
        reply = None
        first, last = self.executed + 1, head.number + head.count - 1
        try:
            with (
                worker_lock.held(self._worker_lock),
                speaking_for(self.user, getattr(self.connection, "peer", "")),
            ):
                for number in range(first, last + 1):
                    if self.ended:  # while the one before ran
                        break
                    # Noted before it runs: whatever happens in it, it is not run again.
                    self.executed = number
                    message = messages[number - head.number]
                    if number == last and head.flags & frames.WAITS:
                        reply = self._answer(number, message)
                    elif type(message) is PlanCallMessage and last - number == head.flags & frames.WAITS == 1:
                        reply = self._answer_both(number, message, messages[-1])
                        if reply is not None:
                            break
                    else:
                        self._obey(number, message)
        finally:
            self.running = None
        if len(self._owned) > 2 * len(self.worker._entries) + _OWNED_SLACK:
            self._owned.intersection_update(self.worker._entries)
        return reply

    def _obey(self, number: int, message: Any) -> None:
        """Run a command that nobody waits for."""
        try:
            self._run(message)
        except Exception as error:  # noqa: BLE001  (every error comes back as itself)
            self._note_failure(number, message, error)

    def _answer_both(self, number: int, call: PlanCallMessage, request: Any) -> Reply | None:
        """Run a call, and answer the request behind it if that is for its result; None: it is still to be answered."""
        is_noted = self.worker.log_msgs or self.worker.verbose
        if type(request) is not ObjectRequestMessage or self._failure is not None or is_noted:
            self._obey(number, call)
            return None
        try:
            found = [self._run(FetchedCall(call, request, self.limits.max_bytes))]
            if found[0] is not STORED:
                self.executed = number + 1
                return self._reply(number + 1, request, found.pop())  # NB: nobody else refers to it
            self._note_ownership(call, None)
        except Exception as error:  # noqa: BLE001  (every error comes back as itself)
            self._note_failure(number, call, error)
        return None

    def _note_failure(self, number: int, message: Any, error: Exception) -> None:
        self._note_refusal(message, error)
        if self._failure is None:
            self._failure = number, self._written_error(error)

    def _answer(self, number: int, message: Any) -> Reply:
        """Run the command that is waited for, unless an earlier one failed."""
        if self._failure is not None:
            failed, written = self._failure
            self._failure = None
            return Reply(number, frames.FAILED_EARLIER, failed, written)
        try:
            return self._reply(number, message, self._run(message))
        except Exception as error:  # noqa: BLE001  (every error comes back as itself)
            self._note_refusal(message, error)
            return Reply(number, frames.FAILED, 0, self._written_error(error))

    def _note_refusal(self, message: Any, error: Exception) -> None:
        """Write into the audit log what was refused, if who refused it has not."""
        policy = self.worker.policy
        if isinstance(error, _REFUSALS) and policy.decisions.get(False, 0) == self._refused_before:
            what = next(
                (found for name in _SUBJECTS if (found := getattr(message, name, None)) is not None), ""
            )
            action = type(message).__name__.removesuffix("Message").lower()
            policy.record(
                AuditRecord(action, str(what)[:_LONGEST_NOTED], self.user, False, type(error).__name__)
            )

    def _run(self, message: Any) -> Any:
        self._refused_before = self.worker.policy.decisions.get(False, 0)
        if isinstance(message, Exception):
            raise message.with_traceback(
                None
            )  # or one error in place of many would collect how often it was raised
        self.running = time.monotonic(), message
        if type(message) is PointersGoneMessage:
            # Nobody lets go of what they never held.
            message = PointersGoneMessage(self._droppable(message.ids))
        elif type(message) is ObjectRequestMessage:
            self._refuse_too_large(message.request[0], "get")
        elif type(message) is ForwardMessage:
            self._refuse_too_large(message.id, "move")
        elif type(message) is LearntMessage:
            message = self._programs.resolve(message)
        answer = self.worker.recv_msg(message)
        if answer is None and type(message) is Operation:  # by far the most are this
            self._owned.update(message.return_ids)
        elif type(message) not in _MAKES_NOTHING:
            self._note_ownership(message, answer)
        return answer

    def _refuse_too_large(self, obj_id: Id, action: str) -> None:
        """!! QuotaExceededError for a tensor that no message can carry, before it is copied.

        NB: a view of four bytes may stand for gigabytes.
        """
        worker = self.worker
        entry = worker._entries.get(obj_id) if type(obj_id) in (int, str) else None
        obj = None if entry is None else entry.value
        if not isinstance(obj, torch.Tensor) or type(obj) is Wrapper:
            return
        nbytes, most = obj.numel() * obj.dtype.itemsize, self.limits.max_bytes
        # Who may not have it is told that by its handler, and nothing about its size.
        if nbytes > most and worker.policy.may_get(self.user, worker.allowed_users(obj_id)):
            reason = f"it has {nbytes} bytes, and a message to this user has at most {most}"
            worker.policy.record(AuditRecord(action, obj_id, self.user, False, reason))
            raise QuotaExceededError(
                f"Object {obj_id!r} cannot leave worker {worker.id!r}: {reason}. Fetch it in parts, or ask the owner of "
                "the worker to allow more (max_frame in the policy, max_message)."
            )

    # -- replies -----------------------------------------------------------------------------------

    def _reply(self, number: int, message: Any, value: Any) -> Reply:
        is_gone = type(message) is ObjectRequestMessage and not message.keep and type(value) is torch.Tensor
        is_alone = is_gone and value.nbytes > _COPIED_BYTES and _is_alone(value)
        written = self._written(value)
        if not is_alone:
            # It is sent after the lock is released, and perhaps again later: as it was now.
            written = [b"".join(written)]
        reply = Reply(number, 0, 0, written)
        if value is not None and type(value) is Wrapper and isinstance(value.child, PointerTensor):
            value.child.garbage_collect_data = False  # whoever gets a pointer gets the duty to delete
        return reply

    def _written(self, value: Any) -> list[Any]:
        return serde.serialize_frames(value, self.worker, self.compression)

    def _written_error(self, error: Exception) -> list[Any]:
        try:
            return [b"".join(self._written(error))]
        except Exception:  # noqa: BLE001  (an error that cannot travel is told of all the same)
            return self._written(RemoteError(f"{type(error).__name__}, which cannot be sent as it is."))

    def _repeat(self, head: Head, last: int) -> tuple[Head, list[Any]]:
        """A frame that came before: it is answered as it was, and not run."""
        found = next((reply for reply in self._replies if reply.number == last), None)
        if found is None and head.flags & frames.WAITS:
            # Either the client has the reply already, and drops this one, or there never was one.
            lost = RemoteError("The worker began this command and lost its reply; it is not run again.")
            found = Reply(last, frames.FAILED, 0, self._written(lost))
        return self.confirmation() if found is None else self._reply_frame(found)

    # -- frames ------------------------------------------------------------------------------------

    def _reply_frame(self, reply: Reply) -> tuple[Head, list[Any]]:
        executed = self._confirmed_to_client = self.executed
        failed = reply.failed or self.failed
        head = frames.new_head(Head, (_REPLY, reply.flags, reply.number, executed, failed, 0, 0, 0))
        return head, reply.payload

    def confirmation(self) -> tuple[Head, list[Any]]:
        executed = self._confirmed_to_client = self.executed
        return Head(Kind.CONFIRMATION, confirmed=executed, failed=self.failed), []

    def heartbeat(self) -> tuple[Head, list[Any]]:
        """Says that we live, and nothing else: it may be sent while commands run."""
        return Head(Kind.HEARTBEAT), []

    @property
    def failed(self) -> int:
        """The first command that failed and has not been told of; 0: none."""
        return 0 if self._failure is None else self._failure[0]

    def note_confirmed(self, reply_number: int) -> None:
        """The client has these replies."""
        while self._replies and self._replies[0].number <= reply_number:
            self.reply_bytes -= _size(self._replies.popleft())

    @property
    def keeps_too_much(self) -> bool:
        """Whether no command should run before some replies are confirmed."""
        return self.reply_bytes > self.limits.max_bytes + _REPLY_SLACK

    def unconfirmed_replies(self) -> list[tuple[Head, list[Any]]]:
        return [self._reply_frame(reply) for reply in self._replies]

    # -- what the client holds ---------------------------------------------------------------------

    def _note_ownership(self, message: Any, answer: Any) -> None:
        owned = self._owned
        if type(message) is PointersGoneMessage:
            owned.difference_update([i for i in message.ids if i not in self.worker._entries])
        elif type(message) is PlanCallMessage and answer is None:
            owned.update(message.return_ids)
            if message.handle is not None:
                owned.add(message.handle)
        else:
            self._note_results(message, answer)

    def _note_results(self, message: Any, answer: Any) -> None:
        owned = self._owned
        if type(message) is ObjectMessage:
            owned.add(message.object.id if message.id is None else message.id)
        for ids in (getattr(message, "return_ids", ()), _ids_in(answer)):
            owned.update(ids)
        for name in ("return_id", "handle"):
            obj_id = getattr(message, name, None)
            if obj_id is not None:
                owned.add(obj_id)

    @property
    def holds_something(self) -> bool:
        return bool(self._owned)

    def _is_ours(self, obj_id: Id) -> bool:
        """Whether an object came by this session. NB: a message may name ids that it does not use."""
        worker = self.worker
        return obj_id in self._owned and (worker._holdings is None or worker.is_held_by(self.user, obj_id))

    def _droppable(self, ids: tuple[Id, ...]) -> tuple[Id, ...]:
        """Those that `_may_drop`; of most it is told without a call."""
        owned, entries, user = self._owned, self.worker._entries, self.user
        found = []
        for obj_id in ids:
            entry = entries.get(obj_id)
            if (entry is not None and entry.holder == user and obj_id in owned) or self._may_drop(obj_id):
                found.append(obj_id)
        return tuple(found)

    def _may_drop(self, obj_id: Id) -> bool:
        """What came by this session, and what another worker brought here for this user by name."""
        if self._is_ours(obj_id):
            return True
        entry = self.worker._entries.get(obj_id)
        return (
            entry is not None
            and entry.allowed is not None
            and self.user in entry.allowed
            and not entry.is_owners
        )

    def end(self, keeps: Callable[[Any, Any], bool]) -> int:
        """Free what the client held, except what `keeps(id, object)` says to keep; returns how many went.

        Called with `lock` held.
        """
        self.ended = True
        freed = 0
        with (
            worker_lock.held(self._worker_lock),
            speaking_for(self.user, getattr(self.connection, "peer", "")),
        ):
            entries = self.worker._entries
            for obj_id in list(self._owned):
                if obj_id in entries and self._is_ours(obj_id) and not keeps(obj_id, entries[obj_id].value):
                    self.worker.force_rm_obj(obj_id)
                    freed += 1
        self._owned.clear()
        self._replies.clear()
        self.reply_bytes = 0
        self._failure = None
        return freed


def _size(reply: Reply) -> int:
    return sum(map(len, reply.payload))


def _ids_in(answer: Any) -> Iterable[Any]:
    """The ids that a worker has chosen itself, from its answer `(ids, metadata)`."""
    if type(answer) is tuple and len(answer) == 2 and type(answer[0]) is tuple:
        return answer[0]
    return ()


def _is_alone(value: torch.Tensor) -> bool:
    """Whether nobody but the callers of this holds a tensor, or its memory."""
    memory = value.untyped_storage()
    users = torch._C._storage_Use_Count(memory._cdata)
    return users <= _OWN_USERS and sys.getrefcount(value) <= _OWN_REFERENCES


#: The tensor and `memory`.
_OWN_USERS = 2
#: `value` here, `value` and the argument in `_reply`, and the argument of `getrefcount`.
_OWN_REFERENCES = 4
