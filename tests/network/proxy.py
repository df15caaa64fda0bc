"""`Proxy`: stands between a client and a server, and does what networks do. Plain sockets, one thread."""

from __future__ import annotations

import contextlib
import random
import select
import socket
import struct
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

_RESET = struct.pack("ii", 1, 0)


@dataclass(eq=False)
class Pipe:
    """One connection through the proxy."""

    client: socket.socket
    server: socket.socket
    #: Bytes of both directions until it is cut; None: never.
    budget: int | None = None
    moved: int = 0
    notes: dict[str, Any] = field(default_factory=dict)


class Proxy:
    """`plan(number)` says after how many bytes the connection of that number is cut.

    `alter(pipe, to_server, data)` returns the data to pass on. `delay` seconds follow every `most` bytes.
    """

    def __init__(
        self,
        port: int,
        plan: Callable[[int], int | None] = lambda _number: None,
        alter: Callable[[Pipe, bool, bytes], bytes] | None = None,
        seed: int = 0,
    ) -> None:
        self._target, self._plan, self._alter = port, plan, alter
        self._rng = random.Random(seed)
        self._listening = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port = self._listening.getsockname()[1]
        self._pipes: list[Pipe] = []
        self._ends: dict[socket.socket, Pipe] = {}
        self.cuts = self.connections = 0
        #: Nothing passes, in either direction, not even that an end has closed: each has to find out by itself.
        self.is_silent = False
        self.most, self.delay = 1 << 16, 0.0
        self._stopping = False
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def cut_all(self) -> None:
        """Cut what there is now."""
        for pipe in list(self._pipes):
            pipe.budget = pipe.moved

    def stop(self) -> None:
        self._stopping = True
        self._thread.join(timeout=60)

    def __enter__(self) -> Proxy:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.stop()

    def _run(self) -> None:
        with self._listening:
            while not self._stopping:
                ready, _, _ = select.select([self._listening, *self._ends], [], [], 0.01)
                for sock in ready:
                    if sock is self._listening:
                        self._accept()
                    elif sock in self._ends:
                        self._pass_on(sock, self._ends[sock])
                for pipe in [p for p in self._pipes if p.budget is not None and p.moved >= p.budget]:
                    self._cut(pipe)
        for pipe in list(self._pipes):
            self._forget(pipe)

    def _accept(self) -> None:
        client, _ = self._listening.accept()
        try:
            server = socket.create_connection(("127.0.0.1", self._target), timeout=60)
        except OSError:
            client.close()
            return
        for sock in (client, server):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        pipe = Pipe(client, server, self._plan(self.connections))
        self.connections += 1
        self._pipes.append(pipe)
        self._ends[client] = self._ends[server] = pipe

    def _pass_on(self, sock: socket.socket, pipe: Pipe) -> None:
        other = pipe.server if sock is pipe.client else pipe.client
        room = self.most if pipe.budget is None else min(self.most, max(1, pipe.budget - pipe.moved))
        try:
            data = sock.recv(room)
            if not data:
                self._end(sock, pipe)
                return
            pipe.moved += len(data)
            if self.is_silent:
                return
            if self._alter is not None:
                data = self._alter(pipe, sock is pipe.client, data)
            other.sendall(data)
        except OSError:
            self._end(sock, pipe)
        if self.delay:
            time.sleep(self.delay)

    def _cut(self, pipe: Pipe) -> None:
        self.cuts += 1
        if self._rng.random() < 0.5:  # with a reset, or as if the process had ended
            for sock in (pipe.client, pipe.server):
                with contextlib.suppress(OSError):
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        self._forget(pipe)

    def _end(self, sock: socket.socket, pipe: Pipe) -> None:
        """One end has gone, and so does the other, unless nothing is to pass."""
        if self.is_silent:
            self._ends.pop(sock, None)
            sock.close()
        else:
            self._forget(pipe)

    def _forget(self, pipe: Pipe) -> None:
        for sock in (pipe.client, pipe.server):
            self._ends.pop(sock, None)
            sock.close()
        if pipe in self._pipes:
            self._pipes.remove(pipe)


def random_budgets(seed: int) -> Callable[[int], int]:
    """Cuts at random positions: some in the middle of a greeting, most in the middle of frames."""
    rng = random.Random(seed)

    def plan(_number: int) -> int:
        return rng.choice((rng.randrange(0, 900), rng.randrange(900, 6_000), rng.randrange(900, 120_000)))

    return plan
