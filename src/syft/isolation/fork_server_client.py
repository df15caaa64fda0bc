"""`ForkServerClient`: the broker's side of the fork server."""

from __future__ import annotations

import contextlib
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

from syft.exceptions import WorkerUnreachableError
from syft.isolation.channel import Channel, ChannelClosed
from syft.isolation.records import Exited, Fork, Forked, FromForkServer, Kill, Ready

logger = logging.getLogger("syft.worker")

#: Of the broker's environment, what Python and its libraries need. The rest may be secret.
_ENVIRONMENT = (
    "PATH PYTHONPATH PYTHONHOME PYTHONNOUSERSITE VIRTUAL_ENV LD_LIBRARY_PATH LANG LC_ALL LC_CTYPE TZ OMP_NUM_THREADS "
    "MKL_NUM_THREADS OMP_PROC_BIND OMP_WAIT_POLICY"
).split()
_READY_SECONDS = 120.0


class ForkServerClient:
    """Starts the fork server, and asks it for executors.

    on_exit   is told when an executor has ended: (number, signal, status)
    on_death  is told, with how, when the fork server has ended by itself, and with it all that it forked
    module    what is run; a test has its own
    """

    def __init__(
        self,
        on_exit: Callable[[int, int, int], None],
        on_death: Callable[[str], None],
        budgets: bool,
        module: str = "syft.isolation.forkserver",
    ) -> None:
        self._on_exit, self._on_death = on_exit, on_death
        ours, its = Channel.pair()
        self._command = [
            sys.executable,
            "-P",
            "-m",
            module,
            str(its.fileno()),
            *(["--budgets"] if budgets else []),
        ]
        self._channel = Channel(ours, FromForkServer, 0)
        self._sending = threading.Lock()
        self._begun, self._ready = threading.Event(), threading.Event()
        self._is_closed = False
        self._process: subprocess.Popen[bytes] | None = None
        self.faults: list[str] = []
        self.pids: dict[int, int] = {}
        # NB: the thread that starts it has to live as long as it does: the system ends it with that very thread.
        threading.Thread(target=self._serve, args=(its,), name="fork server", daemon=True).start()
        self._begun.wait()

    def _serve(self, its: Any) -> None:
        kept = {name: os.environ[name] for name in _ENVIRONMENT if name in os.environ}
        # The C library fills memory that it hands out and takes back. OpenBLAS would start threads when it is imported.
        fill = {"MALLOC_PERTURB_": "165", "MALLOC_ARENA_MAX": "4", "OPENBLAS_NUM_THREADS": "1"}
        try:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=(its.fileno(),),
                env=kept | fill,
            )
        except OSError as error:
            logger.error("The fork server cannot be started: %s", error)
        finally:
            its.close()
            self._begun.set()
        self._listen()

    def _listen(self) -> None:
        try:
            while True:
                record, _, _ = self._channel.receive()
                if type(record) is Ready:
                    self.faults = record.faults
                    self._ready.set()
                elif type(record) is Forked:
                    self.pids[record.number] = record.pid
                elif type(record) is Exited:
                    self.pids.pop(record.number, None)
                    self._on_exit(record.number, record.signal, record.status)
        except ChannelClosed:
            was_closed, self._is_closed = self._is_closed, True
            with self._sending:
                self._channel.close()
            if not was_closed:
                self._on_death(self._ended())
            self._ready.set()

    def _ended(self) -> str:
        """End what is left of it; how it ended, in words."""
        if self._process is None:
            return "it was not started"
        self._process.kill()  # NB: it may live on and have lost its channel only
        status = self._process.wait()
        return f"signal {-status} ended it" if status < 0 else f"it ended, status {status}"

    def wait_until_ready(self) -> None:
        """!! WorkerUnreachableError if it does not start"""
        if not self._ready.wait(_READY_SECONDS) or self._is_closed:
            raise WorkerUnreachableError(
                "The process from which sessions are forked has not started, or has ended; the worker's log says why."
            )

    def fork(self, number: int, control: Any, progress: int) -> None:
        """Ask for an executor with these descriptors. It is there as soon as it answers on its control lane.

        !! ChannelClosed if it is not ready
        """
        if not self._ready.is_set() or self._is_closed:
            raise ChannelClosed("the process that sessions are forked from is being started")
        self._send(Fork(number), [control.fileno(), progress])

    def kill(self, number: int) -> None:
        with contextlib.suppress(ChannelClosed):
            self._send(Kill(number))

    def _send(self, record: Any, descriptors: Any = ()) -> None:
        with self._sending:
            self._channel.send(record, (), descriptors)

    def close(self) -> None:
        """End it, and with it all executors."""
        self._is_closed = True
        self._channel.close()
        if self._process is None:
            return
        try:
            self._process.wait(timeout=1.0)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
