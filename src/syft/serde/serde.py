"""`serialize` and `deserialize` as programs of 2020 call them: the two of `syft.serde`, with the options of that time."""

from __future__ import annotations

import warnings
from typing import Any

import torch

from syft.core.abstract import AbstractTensor
from syft.core.identity import identity_of
from syft.core.objects import AbstractObject
from syft.serde import codec
from syft.serde.codec import Buffer
from syft.serde.limits import DEFAULT_LIMITS, Limits
from syft.serde.reader import TakesOver
from syft.tensors.native import TorchTensor


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
    _settle_ids(obj)
    return codec.serialize(obj, worker, compression, limits=limits, keeps_gradients=True)


def _settle_ids(obj: Any) -> None:
    """Tensors keep the ids of all links of their chains, also those that nobody has asked for before: `obj`, or its
    elements.
    """
    parts = obj.values() if type(obj) is dict else obj if type(obj) in (list, tuple) else (obj,)
    for node in parts:
        while isinstance(node, (torch.Tensor, AbstractTensor)):
            owned: Any = identity_of(node) if isinstance(node, torch.Tensor) else node
            owned.id = owned.id  # it is made when it is asked for
            node = node.__dict__.get("child")


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


# -- as methods --------------------------------------------------------------------------------------


def _serialize_self(self: Any, *args: Any, **kwargs: Any) -> bytes:
    """This object as bytes; the options are those of `syft.serde.serialize`."""
    return serialize(self, *args, **kwargs)


for _class in (AbstractObject, TorchTensor):  # what is on TorchTensor, the hook gives to torch's tensors
    for _name in ("serialize", "ser"):
        setattr(_class, _name, _serialize_self)
