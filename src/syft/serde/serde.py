"""`serialize` and `deserialize` as programs of 2020 call them: the two of `syft.serde`, with the options of that time."""

from __future__ import annotations

import warnings
from typing import Any

from syft.serde import codec
from syft.serde.codec import Buffer
from syft.serde.limits import DEFAULT_LIMITS, Limits
from syft.serde.reader import TakesOver


def serialize(
    obj: Any,
    worker: Any = None,
    compression: str | None = None,
    *,
    simplified: bool = False,
    force_full_simplification: bool = False,
    strategy: Any = None,
    limits: Limits = DEFAULT_LIMITS,
) -> bytes:
    """An object as bytes. `compression` is None, "lz4" or "zstd". !! UnserializableError, SerdeError

    simplified                 `obj` is what `simplify` returned
    force_full_simplification  !! ValueError for a worker, which travels by its id; no difference for anything else
    strategy                   ignored, with a warning: there is one format
    """
    _warn_of_strategy("serialize", strategy)
    if force_full_simplification and hasattr(type(obj), "force_simplify"):
        raise ValueError(
            "serialize(force_full_simplification=True) was called with a worker. A worker travels by its id: use "
            "BaseWorker.force_simplify(me, worker) to have its objects, too."
        )
    if simplified:
        obj = codec.detail(worker, obj)
    return codec.serialize(obj, worker, compression, limits=limits)


def deserialize(
    binary: Buffer,
    worker: Any = None,
    *,
    strategy: Any = None,
    limits: Limits = DEFAULT_LIMITS,
    take_over: TakesOver = False,
) -> Any:
    """The object that bytes stand for. !! SerdeError, whatever the bytes are

    binary     from `bytes` every tensor is copied out, once; in a bytearray (or other writable memory) large
               tensors stay where they are, so hand it over and do not write to it again
    worker     who reads: it resolves the names of workers, and owns the pointers; the local worker by default
    strategy   ignored, with a warning: there is one format
    limits     what the bytes may ask for
    take_over  pointers take over the duty to delete, see NOTE [Who deletes, on the wire]
    """
    _warn_of_strategy("deserialize", strategy)
    return codec.deserialize(binary, worker, limits=limits, take_over=take_over)


def _warn_of_strategy(called: str, strategy: Any) -> None:
    if strategy is not None:
        warnings.warn(
            f"{called}(strategy=...) is ignored: syft.serde has one format. Leave it out.", stacklevel=3
        )
