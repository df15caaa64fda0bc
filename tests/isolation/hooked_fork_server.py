"""A fork server for tests, whose executors obey what no real one does: `aten.mul.Tensor` by one of these numbers.

It stands for an operation that does not end, crashes or takes all memory, and for a process that is wholly under its
user's control. Nothing in the package reaches it.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import mmap
import os
import socket
import sys
from typing import Any

import msgspec
import torch

ENDLESS, CRASH, MEMORY, ATTACK, GUARDED_WRITE, SLOW = (
    666_001.0,
    666_002.0,
    666_003.0,
    666_004.0,
    666_005.0,
    666_006.0,
)


def attack(orders: dict[str, Any]) -> dict[str, Any]:
    """Everything that a process can try: what came of it, by name. `orders` says what to look for."""
    from syft.isolation import broker_lane, records

    lane = broker_lane._current.get()
    assert lane is not None
    said: dict[str, Any] = {}

    def try_(name: str, call: Any) -> None:
        try:
            said[name] = repr(call())[:200]
        except BaseException as error:  # noqa: BLE001
            said[name] = f"{type(error).__name__}: {error}"[:200]

    def look_up(obj_id: Any) -> Any:
        value, _, descriptors = lane.ask(records.Lookup(obj_id))
        content = [mmap.mmap(d, 0, mmap.MAP_SHARED, mmap.PROT_READ).read(4096).hex() for d in descriptors]
        for descriptor in descriptors:
            os.close(descriptor)
        return value.kind, value.shape, content

    for name, obj_id in orders["ids"].items():
        try_(f"look up {name}", lambda i=obj_id: look_up(i))
    for path in orders["files"]:
        try_(f"open {path}", lambda p=path: open(p, "rb").read(10))  # noqa: SIM115
    try_("socket", lambda: socket.create_connection(("127.0.0.1", 1), 1))
    try_("fork", os.fork)
    try_("execute", lambda: os.execv("/bin/true", ["true"]))
    for pid in orders["pids"]:
        try_(f"kill {pid}", lambda p=pid: os.kill(p, 9))
        try_(f"limits {pid}", lambda p=pid: __import__("resource").prlimit(p, 7, (1, 1)))
    libc = ctypes.CDLL(None, use_errno=True)
    for pid in orders["pids"]:
        try_(f"trace {pid}", lambda p=pid: (libc.ptrace(16, p, 0, 0), ctypes.get_errno()))
    # budgets
    many = ["#patients"] * 1
    for name, (epsilon, delta, count) in {
        "charge less than nothing": (-1.0, 0.0, 1),
        "charge nothing at all": (0.0, 0.0, 1),
        "charge more often than can be counted": (1e-300, 0.0, 1 << 62),
        "charge no number": (float("nan"), 0.0, 1),
    }.items():
        try_(
            name,
            lambda e=epsilon, d=delta, c=count: lane.ask(records.BookCharge(many, 1, "mean", None, e, d, c)),
        )
    try_(
        "charge an unknown event",
        lambda: lane.ask(records.BookCharge(many, 1, "mean", {"event": "no such"}, 0.1, 0.0, 1)),
    )
    # others' objects and groups
    from syft import serde
    from syft.messaging.message import ObjectRequestMessage

    taken = orders["ids"].get("a patient")
    worker = lane.worker
    value, descriptor = worker.exported(worker.entry_of(orders["own"]))
    value = msgspec.structs.replace(value, tags=["#mine"], is_owners=True, holder="")
    try_("replace the owner's data", lambda: lane.ask(records.Publish(taken, value), (), [descriptor]))
    try_("publish", lambda: lane.ask(records.Publish(987_654, value), (), [descriptor]))
    loose = os.memfd_create("loose")
    os.write(loose, b"\0" * 4096)
    try_("publish memory that is not sealed", lambda: lane.ask(records.Publish(987_655, value), (), [loose]))
    os.close(loose)
    message = serde.serialize_frames(ObjectRequestMessage((1, None, "")), None, None)
    try_("ask a peer for an object", lambda: lane.ask(records.AskPeer(orders["peer"]), message))
    try_("a ticket of nobody", lambda: lane.ask(records.RouteToGroup(b"0" * 16, None), message))
    # the log
    worker.lines.append(records.Line("get", "a line\nof its own", True, 'x"}\n{"user":"ann"'))
    worker.lines.append(records.Line("connect", "ann", True, "forged"))
    worker.lines.append(records.Line("charge", "ann", True, "forged"))
    worker.lines.append(records.Line("process", "ann", True, "forged"))
    return said


def _install() -> None:
    from syft.workers import admitted, composed

    real = admitted.run
    kept: list[torch.Tensor] = []

    def hooked(admission: Any, args: Any, kwargs: Any) -> Any:
        number = args[1] if len(args) > 1 and type(args[1]) is float else None
        if admission.operation != "aten.mul.Tensor" or number is None or number < ENDLESS:
            return real(admission, args, kwargs)
        if number == ENDLESS:
            while True:
                torch.ones(1000, 1000).sum()
        if number == CRASH:
            ctypes.string_at(0)
        if number == MEMORY:
            while True:
                kept.append(torch.ones(1 << 24))
        if number == SLOW:
            import time

            time.sleep(0.2)
        if number == GUARDED_WRITE:
            from syft.isolation.broker_lane import _current

            lane = _current.get()
            assert lane is not None
            entry = next(e for e in lane.worker._entries.values() if e.is_owners)
            entry.value.zero_()  # read-only memory
        if number == ATTACK:
            # The orders are texts in a tensor of bytes, and so is what came of them.
            outcome = json.dumps(attack(json.loads(bytes(map(int, args[0].tolist()))))).encode()
            answer = real(admission, (args[0], 1.0), kwargs)
            text = torch.zeros(args[0].shape, dtype=torch.float32)
            text[: len(outcome)] = torch.tensor(list(outcome), dtype=torch.float32)
            answer.results[0] = text
            return answer
        return real(admission, (args[0], 1.0), kwargs)

    admitted.run = composed.run = hooked


if __name__ == "__main__":
    with contextlib.suppress(KeyError):
        del os.environ["PYTHONSTARTUP"]
    sys.modules["hooked_fork_server"] = sys.modules["__main__"]
    _install()
    from syft.isolation import forkserver

    forkserver.main()
