"""The owner's socket: a worker that runs tells its owner about itself, on this machine alone. Read-only.

    syft worker --control worker.sock        makes it
    syft sessions worker.sock                asks it, as `ask(path, "sessions")` does in Python

A line of JSON, {"ask": NAME}, is answered by a line of JSON, {"answer": ...} or {"error": SENTENCE}. `ANSWERS` is what
may be asked; a field may be added to an answer and none is removed. The socket is the owner's file: the operating
system lets nobody else connect, and whose process has connected is checked as well.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import json
import os
import socket
import socketserver
import stat
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from syft.exceptions import WorkerUnreachableError

#: Longest question, and longest answer that a client reads.
_LONGEST_QUESTION = 4_096
_LONGEST_ANSWER = 64 << 20
_SECONDS = 10.0
#: What the operating system takes as the path of a socket.
_LONGEST_PATH = 100


def ask(path: str | Path, what: str) -> Any:
    """What the worker with this socket says. !! WorkerUnreachableError"""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as end:
        end.settimeout(_SECONDS)
        try:
            end.connect(str(path))
            end.sendall(json.dumps({"ask": what}).encode() + b"\n")
            with end.makefile("rb") as stream:
                line = stream.readline(_LONGEST_ANSWER)
            said = json.loads(line)
        except (OSError, ValueError) as error:
            raise WorkerUnreachableError(
                f"No worker can be asked at {path}: {error}. Pass the file that `syft worker --control FILE` made, while "
                "it runs, as the user who runs it."
            ) from error
    if not isinstance(said, dict) or "answer" not in said:
        found = said.get("error") if isinstance(said, dict) else None
        raise WorkerUnreachableError(str(found or f"{path} is not the owner's socket of a worker."))
    return said["answer"]


@contextlib.contextmanager
def served(worker: Any, path: str | Path | None) -> Iterator[None]:
    """Inside, the owner of this machine's account may ask about the worker; nothing without a path. !! ValueError"""
    if path is None:
        yield
        return
    _check_path(Path(path))
    before = os.umask(0o177)
    try:
        server = _Server(str(path), _Handler)
    except OSError as error:
        raise ValueError(f"--control {path} cannot be made: {error}.") from error
    finally:
        os.umask(before)
    server.worker = worker
    thread = threading.Thread(target=server.serve_forever, args=(0.2,), name="owner's socket", daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)


def _check_path(path: Path) -> None:
    if len(os.fsencode(path)) > _LONGEST_PATH:
        raise ValueError(
            f"--control {path}: the path of a socket has {_LONGEST_PATH} characters at most. Choose a shorter one."
        )
    try:
        is_socket = stat.S_ISSOCK(path.lstat().st_mode)
    except FileNotFoundError:
        return
    if not is_socket:
        raise ValueError(f"--control {path} is there, and is no socket. Choose another name.")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as end:
        try:
            end.connect(str(path))
        except OSError:
            path.unlink()  # a worker that was killed left it
            return
    raise ValueError(f"--control {path} is the socket of a worker that runs. Choose another name.")


class _Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True
    worker: Any

    def verify_request(self, request: Any, client_address: Any) -> bool:
        return _is_owner(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Whoever asked has gone."""


class _Handler(socketserver.StreamRequestHandler):
    timeout = _SECONDS

    def handle(self) -> None:
        server: Any = self.server
        self.wfile.write(json.dumps(answered(server.worker, self.rfile.readline(_LONGEST_QUESTION))).encode())
        self.wfile.write(b"\n")


def _is_owner(connection: socket.socket) -> bool:
    if sys.platform != "linux":
        return True  # the mode of the file has to do
    size = struct.calcsize("3i")
    _pid, uid, _gid = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size))
    return bool(uid in (0, os.getuid()))


def answered(worker: Any, line: bytes) -> dict[str, Any]:
    """The answer to a line that was asked."""
    try:
        question = json.loads(line)
        wanted = ANSWERS.get(question["ask"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return {"error": 'A question is a line of JSON: {"ask": "sessions"}.'}
    if wanted is None:
        return {"error": f"A worker is asked for one of {', '.join(ANSWERS)}."}
    return {"answer": wanted(worker)}


# -- what may be asked ---------------------------------------------------------------------------------


def _status(worker: Any) -> dict[str, Any]:
    decisions = worker.decisions()
    return {
        **worker.status(),
        "id": str(worker.id),
        "addresses": list(worker.addresses),
        "pid": os.getpid(),
        "granted": decisions.get(True, 0),
        "refused": decisions.get(False, 0),
    }


def _sessions(worker: Any) -> list[dict[str, Any]]:
    """NB: without the ids of sessions, with which one could go on in the place of a user."""
    return [_session(one) for one in worker.server_sessions()]


def _session(session: Any) -> dict[str, Any]:
    now, running = time.monotonic(), session.running
    connection = session.connection
    return {
        "user": session.user,
        "proved": session.proof is not None,
        "peer": getattr(connection, "peer", None),
        "connected": connection is not None,
        "began": _moment(session.began),
        "idle": round(max(0.0, now - session.last_heard), 3),
        "commands": session.executed,
        "running": None if running is None else _name_of(running[1]),
        "running_for": None if running is None else round(max(0.0, now - running[0]), 3),
    }


def _name_of(message: Any) -> str:
    return str(getattr(message, "cmd_name", None) or type(message).__name__)[:200]


def _datasets(worker: Any) -> list[dict[str, Any]]:
    """The owner's data, and what is offered for training; names and shapes, no values."""
    from syft.core.identity import tags_of

    found: list[dict[str, Any]] = []
    for entry in list(worker._entries.values()):
        if not entry.is_owners:
            continue
        found.append(
            {
                "kind": "tensor",
                "id": str(entry.id),
                "tags": sorted(tags_of(entry.value)),
                "description": getattr(entry.value, "description", None) or "",
                "shape": list(getattr(entry.value, "shape", ())),
                "dtype": str(getattr(entry.value, "dtype", "")).removeprefix("torch."),
                "allowed": None if entry.allowed is None else sorted(map(str, entry.allowed)),
                "released_only": entry.is_released_only,
            }
        )
    return [*found, *_offers(worker)]


def _offers(worker: Any) -> Iterator[dict[str, Any]]:
    from syft.federated.federated_client import FederatedClient

    client = worker.extension(FederatedClient)
    for name in sorted({*client.datasets, *client.infos}):
        allowed, info = client.allowed.get(name), client.infos.get(name)
        yield {
            "kind": "offer",
            "name": name,
            "rows": len(client.datasets[name]) if name in client.datasets else None,
            "allowed": None if allowed is None else sorted(map(str, allowed)),
            "least_in_sum": client.least_in_sum.get(name),
            "minimum_noise": client.minimum_noise.get(name),
            "told": None if info is None else dataclasses.asdict(info),
        }


def _moment(seconds: float) -> str:
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).isoformat(timespec="seconds")


#: What may be asked, and who answers. Each is given the worker, and returns what JSON can say.
ANSWERS: dict[str, Callable[[Any], Any]] = {"status": _status, "sessions": _sessions, "datasets": _datasets}
