"""An executor: the process in which everything runs that one user asks for.

`preload` is run once, in the fork server; `run` in each executor. It serves a control lane, on which the broker opens
others, and a thread for each of those: a lane per session, and one per peer that sends to a group which is here.
"""

from __future__ import annotations

import logging
import os
import random
import signal
import socket
import threading
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import msgspec
import numpy
import torch

from syft import serde
from syft.core import first_use, rooms, worker_lock
from syft.core.structs import prepared
from syft.exceptions import ProtocolError, RemoteError
from syft.hooking.torch_hook import TorchHook
from syft.isolation import brokered, limits, records
from syft.isolation.broker_lane import Lane
from syft.isolation.channel import Channel, ChannelClosed, close_all
from syft.isolation.offered import use_offers_of_broker
from syft.isolation.preloading import import_all
from syft.isolation.progress import Progress
from syft.isolation.walls import ExecutorWorker
from syft.messaging.message import ObjectMessage, ObjectRequestMessage, Operation, PointersGoneMessage
from syft.mpc.kernels import keep_freed_memory
from syft.policy.caller import speaking_for
from syft.policy.owner_policy import Rules
from syft.requests.approvals import Requests
from syft.transport.session_frames import Head, Kind
from syft.workers.network.sessions import ServerSession

#: What the broker may hand over at once.
_MOST_PAYLOAD = 16 << 30
_EXPORT_SECONDS = 10.0
_MOST_LOG = 20
_LONGEST_LOG = 1_900


@dataclass(frozen=True)
class Prepared:
    """What executors have in common; nobody's data. `system_calls`: the filter, where there is one."""

    hook: Any
    system_calls: bytes | None


def preload(budgets: bool) -> Prepared:
    """Import everything, once, in the fork server."""
    torch.set_num_threads(1)  # NB: no thread may run where it is forked
    keep_freed_memory()
    hook = TorchHook(torch, verbose=False)
    brokered.install()
    import_all(budgets)
    rooms.load_rest()
    first_use.prepare()
    return Prepared(hook, limits.compiled_filter())


class OwnersLog(logging.Handler):
    """What the owner is to read, kept until the broker takes it: an executor writes to no file and no terminal."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.kept: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if len(self.kept) < _MOST_LOG:
            self.kept.append(record.getMessage()[-_LONGEST_LOG:])


def run(prepared: Prepared, control: int, progress: int) -> None:
    """Serve until the broker closes the control lane."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    channel = Channel(socket.socket(fileno=control), records.ToControl, _MOST_PAYLOAD)
    null = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(null, standard)
    os.close(null)
    hello, _, descriptors = channel.receive()
    close_all(descriptors)
    if type(hello) is records.Hello:
        Executor(prepared, channel, Progress(progress), hello).serve()


class Executor:
    """The worker of one user, and its lanes."""

    def __init__(
        self, prepared: Prepared, control: Channel, progress: Progress, hello: records.Hello
    ) -> None:
        torch.default_generator.seed()  # NB: torch.seed() asks every kind of device, which takes 4 ms
        random.seed()
        numpy.random.seed(int.from_bytes(os.urandom(4), "little"))
        self._control, self.progress = control, progress
        self.log = OwnersLog()
        logging.getLogger().handlers[:] = [self.log]
        self.worker = ExecutorWorker(prepared.hook, hello.worker, hello.user, read_rules(hello.rules))
        self.worker._known_workers = brokered.Peers(self.worker)
        self.worker.computes_releases = hello.computes_releases
        self.worker.extension(Requests).keeper = brokered.BrokeredKeeper()
        use_offers_of_broker(self.worker)
        brokered.keep_supplies_at_broker(self.worker)
        if hello.has_budgets:
            brokered.open_desk(self.worker)
        self.lock = threading.Lock()
        limits.restrict(hello.memory, hello.descriptors)
        if prepared.system_calls is not None:
            limits.filter_system_calls(prepared.system_calls)
        if hello.threads is not None:
            torch.set_num_threads(hello.threads)

    def serve(self) -> None:
        while True:
            try:
                record, _, descriptors = self._control.receive()
            except ChannelClosed:
                return
            if type(record) is records.OpenSession and len(descriptors) == 1:
                self._begin(SessionLane(self, self._lane(descriptors[0]), record))
            elif type(record) is records.OpenRoute and len(descriptors) == 1:
                self._begin(RouteLane(self, self._lane(descriptors[0])))
            elif type(record) is records.Export:
                self._export(record.id)
            elif type(record) is records.Remove:
                with worker_lock.held(self.lock):
                    self.worker.forget(record.ids)
                    for obj_id in record.ids:
                        self.worker.force_rm_obj(obj_id)
                self._control.send(records.Answer())

    def _lane(self, descriptor: int) -> Channel:
        return Channel(socket.socket(fileno=descriptor), records.ToLane, _MOST_PAYLOAD)

    def _begin(self, lane: Any) -> None:
        threading.Thread(target=lane.serve, daemon=True).start()

    def _export(self, obj_id: Any) -> None:
        """Give another user what the broker lets them have of this one's."""
        if not self.lock.acquire(timeout=_EXPORT_SECONDS):
            self._control.send(
                records.Failure(), _error("The user who holds the object is computing. Try again.")
            )
            return
        try:
            entry = self.worker._entries.get(obj_id)
            if entry is None:
                self._control.send(records.Value("none"))
                return
            value, descriptor = self.worker.exported(entry)
            try:
                self._control.send(value, (), [descriptor])
            finally:
                os.close(descriptor)
        except ChannelClosed:
            raise
        except Exception as error:  # noqa: BLE001  (whatever it is, it is this object's)
            self._control.send(records.Failure(), _error(f"It cannot be handed over: {error}"))
        finally:
            self.lock.release()


def _error(text: str) -> list[Any]:
    return serde.serialize_frames(RemoteError(text), None, None)


def read_rules(rules: bytes) -> Rules:
    return msgspec.msgpack.decode(rules, type=prepared(Rules))


class SessionLane:
    """Runs the frames of one session."""

    def __init__(self, executor: Executor, channel: Channel, opened: records.OpenSession) -> None:
        self._executor, self._channel = executor, channel
        worker: Any = executor.worker
        bounds = serde.Limits(max_bytes=opened.max_bytes, max_decompressed=opened.max_decompressed)
        self._session = ExecutorSession(worker, worker.user, executor.lock, bounds, opened.compression)
        self._session.progress, self._session.slot = executor.progress, opened.slot
        self._lane = Lane(channel, worker)

    def serve(self) -> None:
        try:
            with self._lane.in_use():
                while True:
                    record, payload, descriptors = self._channel.receive()
                    close_all(descriptors)
                    if type(record) is records.RunFrame:
                        self._run(record, payload)
                    elif type(record) is records.EndSession:
                        self._session.end(lambda _id, obj: bool(getattr(obj, "tags", None)))
                        self._channel.send(records.Answer())
                        return
        except ChannelClosed:
            self._session.end(lambda _id, obj: bool(getattr(obj, "tags", None)))
        finally:
            self._channel.close()

    def _run(self, frame: records.RunFrame, payload: bytearray) -> None:
        session, worker = self._session, self._executor.worker
        if frame.rules is not None or frame.forget or frame.has_budgets:
            with worker_lock.held(self._executor.lock):
                if frame.rules is not None:
                    worker.follow(read_rules(frame.rules))
                if frame.has_budgets:
                    brokered.open_desk(worker)
                worker.forget(frame.forget)
        session.connection = SimpleNamespace(peer=frame.peer)
        session.executed = frame.first - 1
        head = Head(Kind.COMMANDS, number=frame.number, count=frame.count, flags=frame.flags)
        reply = session._run_all(session._messages(head, memoryview(payload)), head)
        with worker_lock.held(self._executor.lock), speaking_for(worker.user, frame.peer):
            worker.publish_again()
            done = self._done(reply)
        self._channel.send(done, [] if reply is None else reply.payload)

    def _done(self, reply: Any) -> records.FrameDone:
        session, worker, log = self._session, self._executor.worker, self._executor.log
        used = worker._holdings.quotas.usage(worker.user)  # type: ignore[union-attr]
        done = records.FrameDone(
            session.executed,
            session.failed,
            reply is not None,
            0 if reply is None else reply.flags,
            0 if reply is None else reply.failed,
            list(worker.lines),
            list(log.kept),
            worker.offers_to_tell(),
            list(worker.dropped),
            used.objects,
            used.bytes,
        )
        worker.lines.clear()
        log.kept.clear()
        worker.dropped.clear()
        return done


class ExecutorSession(ServerSession):
    """The part of a session that looks into commands. How far it came, and what was answered, the broker keeps."""

    worker: ExecutorWorker
    progress: Progress
    slot: int = 0

    def _run(self, message: Any) -> Any:
        kind = type(message)
        name = message.cmd_name if kind is Operation else kind.__name__
        self.progress.note(self.slot, self.executed, str(name).encode("ascii", "replace"))
        if kind is not Operation:
            self._bring_in(message)
        return super()._run(message)

    def _bring_in(self, message: Any) -> None:
        """What a message is about may be the broker's, or another user's."""
        if type(message) is PointersGoneMessage:
            ids: Any = message.ids
        elif type(message) is ObjectRequestMessage:
            ids = message.request[:1]
        else:
            obj_id = None if type(message) is ObjectMessage else getattr(message, "id", None)
            ids = obj_id if type(obj_id) is tuple else (obj_id,)
        for obj_id in ids:
            if type(obj_id) in (int, str) and obj_id not in self.worker._entries:
                self.worker.look_for(obj_id)


class RouteLane:
    """Takes what a peer sends to a group that is here; in a process for releases, the release that it is for."""

    def __init__(self, executor: Executor, channel: Channel) -> None:
        self._executor, self._channel = executor, channel
        self._lane = Lane(channel, executor.worker)

    def serve(self) -> None:
        worker = self._executor.worker
        kinds = brokered.RELEASES if worker.computes_releases else brokered.FROM_PEERS
        try:
            with self._lane.in_use():
                while True:
                    record, payload, descriptors = self._channel.receive()
                    close_all(descriptors)
                    if type(record) is not records.Deliver:
                        return
                    try:
                        message = serde.deserialize(payload, worker)
                        if type(message) not in kinds:
                            raise ProtocolError(f"A {type(message).__name__} is not for this process.")
                        with worker_lock.held(self._executor.lock), speaking_for(record.user, record.peer):
                            answer = worker.recv_msg(message)
                        written = serde.serialize_frames(answer, worker, None)
                        self._channel.send(records.Answer(), written)
                    except ChannelClosed:
                        raise
                    except Exception as error:  # noqa: BLE001  (every error comes back as itself)
                        self._channel.send(records.Failure(), serde.serialize_frames(error, worker, None))
        except ChannelClosed:
            pass
        finally:
            self._channel.close()
