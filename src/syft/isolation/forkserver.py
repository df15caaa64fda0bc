"""The fork server: a process that has imported torch and syft and holds nobody's data; executors are forked from it.

It is started by executing Python anew, with an environment of its own: neither keys nor data of the broker have ever been
in its memory, and the C library fills memory that is taken and freed (`MALLOC_PERTURB_`). It has one thread, serves the
broker alone, starts and ends executors, and ends with the broker.
"""

from __future__ import annotations

import gc
import os
import select
import signal
import socket
import sys
from typing import Any

from syft.isolation import limits
from syft.isolation.channel import Channel, ChannelClosed, close_all
from syft.isolation.records import Exited, Fork, Forked, Kill, Ready, ToForkServer


def main() -> None:
    descriptor = int(sys.argv[1])
    options = set(sys.argv[2:])
    limits.die_with_parent()
    from syft.isolation import executor  # imports torch and syft

    prepared = executor.preload("--budgets" in options)
    gc.collect()
    gc.freeze()
    end = socket.socket(fileno=descriptor)
    channel = Channel(end, ToForkServer, 0)
    channel.send(Ready(limits.faults()))
    ForkServer(channel, prepared).serve()


class ForkServer:
    """Starts and ends executors."""

    def __init__(self, channel: Channel, prepared: Any) -> None:
        self._channel, self._prepared = channel, prepared
        self._children: dict[int, int] = {}  #: pid -> number
        self._woken, wake = socket.socketpair()
        self._woken.setblocking(False)
        wake.setblocking(False)
        self._wake = wake
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # a Ctrl-C is for the broker, which ends us in order
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signal.set_wakeup_fd(wake.fileno(), warn_on_full_buffer=False)

    def serve(self) -> None:
        try:
            while True:
                ready, _, _ = select.select([self._channel.fileno(), self._woken.fileno()], [], [])
                if self._woken.fileno() in ready:
                    self._woken.recv(4096)
                    self._reap()
                if self._channel.fileno() in ready:
                    self._obey(*self._channel.receive())
        except ChannelClosed:
            pass  # the broker has ended
        finally:
            for pid in self._children:
                os.kill(pid, signal.SIGKILL)
            os._exit(0)  # NB: there is nothing to clean up, and to free all that was imported takes a while

    def _obey(self, record: Any, _payload: bytearray, descriptors: list[int]) -> None:
        if type(record) is Fork and len(descriptors) == 2:
            self._fork(record.number, descriptors)
        elif type(record) is Kill:
            for pid, number in self._children.items():
                if number == record.number:
                    os.kill(pid, signal.SIGKILL)  # NB: not reaped yet, so that the pid is nobody else's
        close_all(descriptors)

    def _fork(self, number: int, descriptors: list[int]) -> None:
        pid = os.fork()
        if pid:
            self._children[pid] = number
            self._channel.send(Forked(number, pid))
            return
        status = 1
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            limits.die_with_parent()
            for end in (self._channel, self._woken, self._wake):
                os.close(end.fileno())
            from syft.isolation import executor

            executor.run(self._prepared, *descriptors)
            status = 0
        finally:
            os._exit(status)

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if not pid:
                return
            number = self._children.pop(pid, None)
            if number is not None:
                ended_by = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
                self._channel.send(Exited(number, ended_by, os.WEXITSTATUS(status) if not ended_by else 0))


if __name__ == "__main__":
    main()
