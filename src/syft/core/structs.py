"""msgspec's structs and dataclasses, made ready before threads read them.

msgspec prepares a class when it is first read, and other threads see the class half prepared: one that reads it at that
moment crashes the process (seen with 0.22). `prepared` lets one thread at a time prepare, and nobody read before.
"""

from __future__ import annotations

import threading
from typing import TypeVar

import msgspec

_T = TypeVar("_T")
#: What was made ready; whoever finds a class here need not ask for it.
READY: set[object] = set()
_preparing = threading.RLock()


def prepared(kind: _T) -> _T:
    """`kind`, which msgspec can now read in any thread: `msgspec.convert(value, prepared(Record))`."""
    if kind not in READY:
        with _preparing:
            if kind not in READY:
                msgspec.msgpack.Decoder(kind)
                READY.add(kind)
    return kind
