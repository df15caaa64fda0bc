"""`Channel`: records, bytes and file descriptors between two processes of one machine, over a Unix socket.

Knows nothing of what is sent. The broker reads with it what an executor sends, which may be under a user's control: sizes
are checked before memory is taken, records are decoded by their types, and descriptors that nobody asked for are closed.
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from syft.core.structs import prepared

#: Bytes of the record, number of descriptors, bytes of the payload.
_HEAD = struct.Struct("<IIQ")
_LARGEST_RECORD = 64 << 20
MOST_DESCRIPTORS = 2
_DESCRIPTOR = struct.calcsize("i")
_encoder = msgspec.msgpack.Encoder()


class ChannelClosed(ConnectionError):
    """The process at the other end is gone, or sent what cannot be read."""


class Channel:
    """One end. Sends and receives for one thread at a time.

    incoming      the union of records that may arrive
    most_payload  the largest payload that is taken
    """

    def __init__(self, end: socket.socket, incoming: Any, most_payload: int) -> None:
        self._socket = end
        self._decoder = msgspec.msgpack.Decoder(prepared(incoming))
        self.most_payload = most_payload

    @classmethod
    def pair(cls) -> tuple[socket.socket, socket.socket]:
        return socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)

    def fileno(self) -> int:
        return self._socket.fileno()

    def send(self, record: Any, payload: Sequence[Any] = (), descriptors: Iterable[int] = ()) -> None:
        """!! ChannelClosed"""
        encoded = _encoder.encode(record)
        handed = list(descriptors)
        parts = [memoryview(part).cast("B") for part in payload if len(part)]
        head = _HEAD.pack(len(encoded), len(handed), sum(map(len, parts)))
        try:
            if handed:
                socket.send_fds(self._socket, [head], handed)
                self._socket.sendall(encoded)
            else:
                self._socket.sendall(head + encoded)
            for part in parts:
                self._socket.sendall(part)
        except OSError as error:
            raise ChannelClosed(f"The process at the other end is gone: {error}.") from error

    def receive(self, timeout: float | None = None) -> tuple[Any, bytearray, list[int]]:
        """The next record, its payload and descriptors, which the caller closes. !! ChannelClosed, TimeoutError"""
        descriptors: list[int] = []
        try:
            if timeout is not None:  # NB: executors may not make the system call, and wait for ever
                self._socket.settimeout(timeout)
            size, announced, length = _HEAD.unpack(self._head(descriptors))
            if timeout is not None:
                self._socket.settimeout(None)
            if size > _LARGEST_RECORD or length > self.most_payload or announced != len(descriptors):
                raise ChannelClosed("The process at the other end sent a head that makes no sense.")
            record = self._decoder.decode(self._exactly(size))
            return record, self._exactly(length), descriptors
        except msgspec.MsgspecError as error:
            close_all(descriptors)
            raise ChannelClosed(
                f"The process at the other end sent what is no record of its kind: {error}."
            ) from None
        except TimeoutError:
            close_all(descriptors)
            raise
        except OSError as error:
            close_all(descriptors)
            if isinstance(error, ChannelClosed):
                raise
            raise ChannelClosed(f"The process at the other end is gone: {error}.") from error

    def _head(self, descriptors: list[int]) -> bytes:
        head = b""
        while len(head) < _HEAD.size:
            data, ancillary, flags, _ = self._socket.recvmsg(
                _HEAD.size - len(head),
                socket.CMSG_SPACE(MOST_DESCRIPTORS * _DESCRIPTOR),
                socket.MSG_CMSG_CLOEXEC,
            )
            for level, kind, content in ancillary:
                if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                    whole = len(content) - len(content) % _DESCRIPTOR
                    descriptors += struct.unpack(f"{whole // _DESCRIPTOR}i", content[:whole])
            if not data or flags & socket.MSG_CTRUNC:
                raise ChannelClosed("The process at the other end has closed the channel.")
            head += data
        return head

    def _exactly(self, length: int) -> bytearray:
        buffer = bytearray(length)
        view, got = memoryview(buffer), 0
        while got < length:
            count = self._socket.recv_into(view[got:])
            if not count:
                raise ChannelClosed("The process at the other end has closed the channel.")
            got += count
        return buffer

    def close(self) -> None:
        """Whoever waits at either end is woken."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()


def close_all(descriptors: Iterable[int]) -> None:
    for descriptor in descriptors:
        with contextlib.suppress(OSError):
            os.close(descriptor)
