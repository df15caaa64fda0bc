"""Frames made wrong on purpose: bytes changed anywhere, and headers changed so that they can still be read."""

from __future__ import annotations

import copy
import random
import struct
from collections import OrderedDict
from typing import Any

import msgspec
import numpy as np
import torch

import syft as sy
from syft import exceptions, serde
from syft.core.shapes import ALIAS, Answer
from syft.core.spec import spec_of
from syft.messaging import message

_ODD: list[Any] = [
    None, True, -1, 0, 1, 2**31, 2**40, 2**62, 2**63 - 1, -(2**63), 2**64 - 1, 0.5, float("nan"), "", "tensor", "int64",
    "bool", "chain", "PointerTensor", "worker", "bob", "\x00", b"", b"\xff" * 64, [], ["list"], ["tensor"], {"a": 1},
    ["dict", ["list"], 1], ["int", b"\x01"], ["worker", "bob"], ["Size", 2**61, 2**61], ["numpy", ["ndarray"]],
]  # fmt: skip


def corpus(worker: Any) -> list[bytes]:
    """Frames of every kind of object."""
    big = torch.arange(400.0)
    pointer = torch.ones(2, 3).tag("#x").send(worker)  # type: ignore[attr-defined]
    pointer.child.garbage_collect_data = False
    objects: list[Any] = [
        [
            None,
            True,
            1,
            2**80,
            -1.5,
            "text",
            b"bytes",
            2j,
            ...,
            slice(1, None, 2),
            range(5),
            {1, 2},
            frozenset({"a"}),
        ],
        {"a": [1, (2, 3)], (1, 2): OrderedDict(x=1)},
        b"\x01" * 600,
        torch.randn(3, 4),
        torch.randn(20, 20).t(),
        [big, big.bfloat16(), big > 3, big.to(torch.complex64)],
        torch.nn.Parameter(torch.randn(100)).tag("#p").describe("a parameter"),  # type: ignore[attr-defined]
        torch.empty(0, 5),
        [
            np.arange(300),
            np.array(["a", "bcd"]),
            np.float32(1),
            np.array([True]),
            np.datetime64("2024-01-01"),
        ],
        [torch.float32, torch.Size([1, 2]), torch.device("cpu"), torch.strided, torch.channels_last],
        sy.LoggingTensor().on(sy.PrivateTensor(allowed_users=("ann",)).on(big)),
        sy.PolynomialTensor({"f": sy.PolynomialTensor.interpolate(torch.sin, (0.0, 1.0), 3)}).on(
            torch.ones(2)
        ),
        torch.tensor([1.5]).fix_precision(),  # type: ignore[attr-defined]
        sy.AutogradTensor().on(torch.ones(2)),
        sy.NumpyTensor(numpy_tensor=np.eye(2)).wrap(),
        pointer,
        sy.MultiPointerTensor(children=[pointer]),
        [sy.String("text"), sy.ObjectWrapper([1])],
        worker,
        message.Operation(
            "aten.add.Tensor", None, [message.Ref(1), message.Ref(2)], {"alpha": 1}, (3,), True, "ann"
        ),
        message.ObjectMessage(big, 4, frozenset({"ann"}), "ann"),
        message.ObjectRequestMessage((4, "ann", ""), True),
        message.Found(1, "tensor", spec_of(big), ("#a",), None),
        Answer(parts=(spec_of(big), ALIAS, None), kind=tuple),
        ValueError("no"),
        exceptions.ResponseSignatureError([1, 2]),
    ]
    frames = [serde.serialize(obj) for obj in objects]
    frames += [serde.serialize([torch.zeros(2000), big], compression=name) for name in ("lz4", "zstd")]
    return frames


def mutate(rng: random.Random, frames: list[bytes]) -> bytes:
    """One frame of the corpus, made wrong."""
    frame = rng.choice(frames)
    return _mutated_header(rng, frame) if rng.random() < 0.6 else _mutated_bytes(rng, frame)


def _mutated_bytes(rng: random.Random, frame: bytes) -> bytes:
    data = bytearray(frame)
    for _ in range(rng.choice((1, 1, 2, 8))):
        # Most of what matters stands at the beginning.
        place = rng.randrange(min(len(data), rng.choice((24, 200, len(data)))) or 1) if data else 0
        kind = rng.randrange(6)
        if kind == 0 and data:
            data[place] ^= 1 << rng.randrange(8)
        elif kind == 1 and data:
            data[place] = rng.choice((0, 1, 0x7F, 0x80, 0x90, 0xC1, 0xD9, 0xDC, 0xDD, 0xDF, 0xFF))
        elif kind == 2:
            del data[place:]
        elif kind == 3:
            data[place:place] = rng.randbytes(rng.randrange(1, 9))
        elif kind == 4:
            del data[place : place + rng.randrange(1, 9)]
        else:
            data[place : place + 4] = struct.pack(
                rng.choice("<>") + "I", rng.choice((0, 1, 2**31, 2**32 - 1))
            )
    return bytes(data)


def _mutated_header(rng: random.Random, frame: bytes) -> bytes:
    _magic, version, reserved, length, count = struct.unpack_from("<4sHHII", frame)
    header = msgspec.msgpack.decode(frame[16 : 16 + length])
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        _change_one(rng, header)
    raw = msgspec.msgpack.encode(header)
    if isinstance(header, list) and len(header) == 2 and isinstance(header[1], list):
        count = len(header[1])
    before = 16 + length + (-(16 + length) % 64)
    body = frame[before:]
    padding = bytes(-(16 + len(raw)) % 64) if body else b""
    return struct.pack("<4sHHII", b"\x89SYF", version, reserved, len(raw), count) + raw + padding + body


def _change_one(rng: random.Random, header: Any) -> None:
    """Change one place of a nested list, chosen by walking down."""
    # Seldom the two fields of the header themselves, which would end most frames at once.
    here = header[0] if header and isinstance(header[0], list) and rng.random() < 0.9 else header
    while True:
        if not here:
            return
        place = rng.randrange(len(here))
        inner = here[place]
        if isinstance(inner, list) and inner and rng.random() < 0.8:
            here = inner
            continue
        break
    kind = rng.randrange(5)
    if kind == 0:
        here[place] = copy.deepcopy(rng.choice(_ODD))
    elif kind == 1:
        del here[place]
    elif kind == 2:
        here.insert(place, copy.deepcopy(rng.choice(_ODD)))
    elif kind == 3 and isinstance(here[place], int):
        here[place] = max(-(2**63), min(2**64 - 1, here[place] + rng.choice((-1, 1, 64, -64, 2**32))))
    else:
        here[place] = here[rng.randrange(len(here))]
