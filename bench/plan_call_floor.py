"""What a plan call over a network takes at least: two servers that are no workers, and who calls them.

`barely`  a byte comes, the model runs, the bytes of its result go
`safely`  the least that a call by a stranger needs: a frame of checked types, a plan and an input looked up, and whose
          they are, the layers, a result under an id that is free, its metadata and its bytes; a tensor made of them

Neither has pointers, threads, sessions, limits or errors. Both ends look for an answer before they sleep, as ours do.
"""

from __future__ import annotations

import os
import select
import socket
import time
from collections.abc import Callable
from typing import Any

import msgspec
import torch
from torch.nn import functional as F

#: How long an end looks before it sleeps.
_LOOKS = 5e-4


def called_model() -> tuple[torch.nn.Sequential, torch.Tensor]:
    """The model that plan calls are measured with, and its input."""
    torch.manual_seed(0)
    layers = [torch.nn.Linear(784, 128), torch.nn.ReLU(), torch.nn.Linear(128, 64), torch.nn.ReLU()]
    return torch.nn.Sequential(*layers, torch.nn.Linear(64, 10)), torch.randn(64, 784)


class Call(msgspec.Struct, array_like=True, frozen=True):
    """Run a plan on an input, keep the result, and send it."""

    plan: int
    given: int
    result: int


class Answer(msgspec.Struct, array_like=True, frozen=True):
    """What the bytes after it are."""

    result: int
    shape: tuple[int, ...]
    nbytes: int


class Wire:
    """One end of a connection."""

    def __init__(self, connection: socket.socket, looks: bool = True) -> None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.setblocking(not looks)
        self.connection, self._looks = connection, looks
        self._poll = select.poll()
        self._poll.register(connection, select.POLLIN)
        self._come = bytearray()

    def read(self, size: int) -> bytes:
        """So many bytes. !! EOFError at the end"""
        while len(self._come) < size:
            part = self._some()
            if not part:
                raise EOFError
            self._come += part
        taken = bytes(self._come[:size])
        del self._come[:size]
        return taken

    def _some(self) -> bytes:
        if not self._looks:
            return self.connection.recv(1 << 16)
        until = time.perf_counter() + _LOOKS
        while True:
            try:
                return self.connection.recv(1 << 16)
            except BlockingIOError:
                os.sched_yield()
                if time.perf_counter() > until:
                    self._poll.poll()

    def frame(self) -> bytes:
        return self.read(int.from_bytes(self.read(4), "little"))

    def send(self, head: bytes, *parts: Any) -> None:
        self.connection.sendmsg([len(head).to_bytes(4, "little"), head, *parts])


# -- the other process -----------------------------------------------------------------------------------


@torch.no_grad()
def serve_barely(listener: socket.socket, looks: bool = False) -> None:
    wire = Wire(listener.accept()[0], looks)
    model, data = called_model()
    while wire.read(1):
        wire.connection.sendall(model(data).numpy().data)


@torch.no_grad()
def serve_safely(listener: socket.socket) -> None:
    wire = Wire(listener.accept()[0])
    model, data = called_model()
    steps: list[tuple[Callable[..., Any], tuple[Any, ...]]] = [
        (F.linear, (layer.weight, layer.bias)) if isinstance(layer, torch.nn.Linear) else (torch.relu, ())
        for layer in model
    ]
    user = "ann"
    plans, objects = {1: (steps, user)}, {2: (data, user)}
    decode, encode = msgspec.msgpack.Decoder(Call).decode, msgspec.msgpack.Encoder().encode
    while True:
        call = decode(wire.frame())
        plan, owner = plans[call.plan]
        value, holder = objects[call.given]
        if user != owner or user != holder or call.result in objects:
            raise PermissionError
        for function, parameters in plan:
            value = function(value, *parameters)
        objects[call.result] = value, user
        wire.send(encode(Answer(call.result, tuple(value.shape), value.nbytes)), value.numpy().data)
        del objects[call.result]


# -- this process ----------------------------------------------------------------------------------------


def barely(connection: socket.socket, looks: bool) -> Callable[[], Any]:
    wire, (model, data) = Wire(connection, looks), called_model()
    with torch.no_grad():
        size = model(data).nbytes

    def call() -> bytes:
        connection.sendall(b"c")
        return wire.read(size)

    return call


def safely(connection: socket.socket) -> Callable[[], torch.Tensor]:
    wire, numbers = Wire(connection), iter(range(3, 1 << 60))
    decode, encode = msgspec.msgpack.Decoder(Answer).decode, msgspec.msgpack.Encoder().encode

    def call() -> torch.Tensor:
        number = next(numbers)
        wire.send(encode(Call(1, 2, number)))
        answer = decode(wire.frame())
        if answer.result != number or answer.nbytes != 4 * torch.Size(answer.shape).numel():
            raise ValueError("That is no answer to this call.")
        come = bytearray(wire.read(answer.nbytes))
        return torch.frombuffer(come, dtype=torch.float32).view(answer.shape)

    return call
