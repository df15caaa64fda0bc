"""Wrong frames for a server: `python fuzzing.py SEED COUNT` feeds so many, and prints what became of them, as JSON.

In a process of its own, with a limit on its memory: what crashes or allocates too much is seen by whoever started it.
"""

from __future__ import annotations

import collections
import importlib
import json
import random
import resource
import sys
import threading
import time
import warnings
from typing import Any

import torch

import syft as sy
from serde.mutation import corpus, mutate
from syft import serde
from syft.exceptions import ProtocolError
from syft.messaging import message as m
from syft.serde.errors import SerdeError
from syft.transport import session_frames as frames
from syft.transport import session_records as handshake
from syft.transport.session_frames import Head, Kind
from syft.workers.network.server_worker import NetworkServerWorker
from syft.workers.network.sessions import ServerSession

_MEMORY = 3 << 30
#: What no frame may make a worker do.
_FORBIDDEN = ("os.system", "os.exec", "os.posix_spawn", "subprocess.Popen", "socket.connect", "exec", "os.remove",
              "os.rename", "shutil.rmtree", "pickle.find_class", "ctypes.dlopen", "os.mkdir")  # fmt: skip


def messages() -> list[Any]:
    """One of every kind that a client sends, about objects that are there."""
    ref = m.Ref
    return [
        m.Operation("aten.add.Tensor", None, (ref(1), ref(2)), {}, (10,)),
        m.Operation("aten.mul.Tensor", None, (ref(1), 2.5), {}, (11,), wants_specs=True),
        m.Operation("torch.sum", None, (ref(1),), {"dim": 0}, (12,), wants_specs=True, user="owner"),
        m.Operation("view", None, (ref(1), 2, 5), {}, (13,)),
        m.Operation("add_", None, (ref(1), ref(2)), {}, ()),
        m.ObjectMessage(torch.arange(200.0), 20),
        m.ObjectMessage(torch.ones(2, 2).tag("#t"), 21, frozenset({"ann"})),  # type: ignore[attr-defined]
        m.ObjectRequestMessage((1, None, "because"), keep=True),
        m.ForceObjectDeleteMessage((10, 11)),
        m.PointersGoneMessage((12, 13)),
        m.GetShapeMessage(1),
        m.IsNoneMessage(99),
        m.AttributeMessage(1, "grad", return_id=30),
        m.SearchMessage(("#t",)),
        m.SyncMessage(),
        m.StatusMessage(),
        m.ListObjectsMessage(),
        m.CallObjectMessage(1, (1,), {}, 31),
        m.CallMethodMessage(1, "step", (), {}, 32),
        m.PlanCommandMessage("fetch_plan", (1, False)),
    ]


def whole_frames(worker: Any) -> list[bytes]:
    """Good frames of every kind."""
    hello = handshake.Hello(1, "me", "syft1.x.y", "ab" * 16, 3, "bob", ["zstd"])
    made = [(Head(Kind.HELLO), [handshake.encode(hello)]), (Head(Kind.HEARTBEAT, confirmed=2), [])]
    made += [(Head(Kind.CHUNK, number=1, total=300, offset=0), [b"x" * 100]), (Head(Kind.GOODBYE), [])]
    for count in (1, 3, 20):
        batch = serde.BatchWriter()
        for one in messages()[:count]:
            batch.add(one)
        made.append((Head(Kind.COMMANDS, frames.WAITS, number=1, count=count), batch.frames()))
    return [b"".join(frames.encode(head, payload)) for head, payload in made]


class Fuzzer:
    """Feeds a session, and notes what became of each frame."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.worker = NetworkServerWorker(sy.local_worker.hook, "tcp://127.0.0.1:0", id="bob")
        bob = sy.VirtualWorker(sy.local_worker.hook, id="carol")
        self.batches = [serde.BatchWriter() for _ in messages()]
        for batch, one in zip(self.batches, messages(), strict=True):
            batch.add(one)
        self.payloads = [b"".join(batch.frames()) for batch in self.batches]
        self.objects = corpus(bob)
        self.frames = whole_frames(self.worker)
        self.fates: collections.Counter[str] = collections.Counter()
        #: Messages that were put together from several chunks.
        self.assembled = 0
        self.renew()

    def renew(self) -> None:
        """A fresh session, as after every refusal, with two tensors of its own."""
        limits = serde.Limits(max_bytes=1 << 20, max_decompressed=1 << 20)
        self.worker.clear_objects()
        self.session = ServerSession(self.worker, "ann", threading.Lock(), limits, None)
        batch = serde.BatchWriter()
        for number in (1, 2):
            batch.add(m.ObjectMessage(torch.arange(10.0), number))
        head = Head(Kind.COMMANDS, 0, number=1, count=2)
        self.session.execute(head, memoryview(bytearray(b"".join(batch.frames()))))
        self.assembly = frames.Assembly(1 << 20)

    def step(self) -> None:
        kind = self.rng.randrange(10)
        if kind == 0:  # bytes changed anywhere: the checksum sees it
            frame = bytearray(self.rng.choice(self.frames))
            for _ in range(self.rng.choice((1, 2, 5))):
                frame[self.rng.randrange(len(frame))] ^= 1 << self.rng.randrange(8)
            self.feed(bytes(frame[: self.rng.choice((len(frame), self.rng.randrange(len(frame) + 1)))]))
        elif kind == 1:  # a head that lies, with a good checksum
            fields = [self.rng.choice((0, 1, 2, 3, 2**16, 2**31, 2**32 - 1)) for _ in range(8)]
            head = Head(fields[0] % 12, fields[1] % 64, *fields[2:])
            self.feed(b"".join(frames.encode(head, [self.rng.choice(self.payloads)])))
        elif kind == 2:  # a greeting that is nearly one
            raw = bytearray(bytes(frames.decode(self.frames[0])[1]))
            raw[self.rng.randrange(len(raw))] = self.rng.randrange(256)
            self.feed(b"".join(frames.encode(Head(Kind.HELLO), [raw])))
        elif kind == 3:  # a good frame with another object inside
            self.commands(self.rng.choice(self.objects))
        elif kind == 4:  # a message in chunks
            self.chunks()
        else:  # commands that are nearly right
            self.commands(mutate(self.rng, self.payloads))

    def commands(self, payload: bytes) -> None:
        flags = frames.WAITS if self.rng.random() < 0.7 else frames.CONFIRM
        count = self.rng.choice((1, 1, 1, 1, 2))
        head = Head(Kind.COMMANDS, flags, number=self.session.executed + 1, count=count)
        self.feed(b"".join(frames.encode(head, [payload])))

    def chunks(self) -> None:
        """Commands in chunks that nearly add up: some wrong, lost, twice, in another order, or of another message."""
        rng = self.rng
        payload = rng.choice(self.payloads) if rng.random() < 0.7 else mutate(rng, self.payloads)
        head = Head(Kind.COMMANDS, frames.WAITS, number=self.session.executed + 1, count=1)
        size = max(len(payload) // rng.choice((1, 2, 3, 7)), 1)
        parts = [(part_head, b"".join(part)) for part_head, part in frames.in_chunks(head, [payload], size)]
        for _ in range(rng.choice((0, 0, 1, 1, 2))):
            self.spoil(parts)
        for part_head, part in parts:
            self.feed(b"".join(frames.encode(part_head, [part])))

    def spoil(self, parts: list[tuple[Head, bytes]]) -> None:
        """Change one chunk of a message, or which there are."""
        if not parts:
            return
        rng = self.rng
        place = rng.randrange(len(parts))
        head, part = parts[place]
        kind = rng.randrange(6)
        if kind == 0:
            name = rng.choice(("total", "offset", "number", "count", "flags", "kind"))
            near = (
                0,
                1,
                getattr(head, name) + 1,
                max(getattr(head, name) - 1, 0),
                head.flags ^ frames.LAST_CHUNK,
            )
            far = (1 << 20, (1 << 20) + 1, 2**32, 2**63)
            value = rng.choice(near if name in ("count", "flags", "kind") else near + far)
            parts[place] = head._replace(**{name: value}), part
        elif kind == 1:
            parts[place] = head, rng.choice((b"", part[:-1], part + b"x", part[:: rng.choice((1, 2))]))
        elif kind == 2:
            del parts[place]
        elif kind == 3:
            parts.insert(place, (head, part))
        elif kind == 4:
            rng.shuffle(parts)
        else:
            parts.insert(place, (Head(Kind.COMMANDS, number=1, count=1), rng.choice(self.payloads)))

    def feed(self, frame: bytes) -> None:
        """As `Server` does."""
        try:
            head, payload = frames.decode(bytearray(frame))
            if head.kind == Kind.HELLO:
                handshake.decode(payload, handshake.Hello)
                self.fates["greeted"] += 1
            elif head.kind in (Kind.COMMANDS, Kind.CHUNK):
                whole = self.assembly.take(head, payload)
                if whole is None:
                    self.fates["part"] += 1
                    return
                self.assembled += len(whole) > len(payload)
                answer = self.session.execute(head, whole)
                failed = answer is not None and answer[0].flags & frames.FAILED
                self.fates["failed" if failed else "answered" if answer is not None else "done"] += 1
                self.session.note_confirmed(self.session.executed)
            else:
                self.fates["other"] += 1
        except ProtocolError:
            self.fates["refused"] += 1
            self.renew()
        except SerdeError:
            self.fates["a serde error escaped"] += 1
            raise


def main(seed: int, count: int) -> None:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    sy.TorchHook(torch)
    fuzzer = Fuzzer(seed)
    repr(torch.ones(1))  # what is imported on first use, here and when torch works out shapes
    importlib.import_module("torch._dynamo")
    for _ in range(200):
        fuzzer.step()
    is_watching = True
    seen: list[str] = []

    def watch(event: str, _args: Any) -> None:
        if is_watching and event in _FORBIDDEN:
            # NB: msgspec looks up the annotations of our own classes, which are strings, when it first needs them.
            if event != "exec" or sys._getframe(1).f_globals.get("__name__") != "typing":
                seen.append(event)

    sys.addaudithook(watch)
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began = time.monotonic()
    for _ in range(count):
        fuzzer.step()
        if len(fuzzer.worker._objects) > 1_000:
            fuzzer.renew()
    is_watching = False
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    took = time.monotonic() - began
    found = {"fates": fuzzer.fates, "forbidden": seen, "grown_kb": grown, "seconds": took}
    print(json.dumps(found | {"assembled": fuzzer.assembled}))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
