"""Bytes that say what randomness is for: a party that is told another purpose gets unrelated randomness.

NOTE [Bound to its purpose]
A mask is safe where it masks once. Were masks read from one sequential stream, a holder that runs `square` where the
others run a product would read as mask of an operand what the provider dealt as share of a square, and the correction
to the last holder would be an equation in the secret. So every correlation is drawn from a place of its own, found
from (key, run, program, position, kind) by a keyed hash: parties who disagree on any of them draw
independent words, and whoever agrees on all of them runs the same protocol. `program` is a digest of the program's name,
its public arguments and the shapes of its shares; `position` counts the correlations that a run takes.

Two values that are equal have the same encoding, in every process, and two that differ have different ones. Imports
nothing of ours.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from functools import lru_cache
from typing import Any

import torch

DIGEST_BYTES = 16
#: Part of what parties agree on in a run with wide words: NOTE [Wide words] in `randomness`.
WIDE = "wide"


@dataclass(frozen=True)
class Share:
    """Stands for a share among the arguments of a program."""

    shape: tuple[int, ...]
    dtype: torch.dtype


def encoded(value: Any) -> bytes:
    """A public value as bytes. !! TypeError for what is no public value of programs"""
    writer = _WRITERS.get(type(value))
    if writer is not None:
        return writer(value)
    for base, general in _GENERAL:
        if isinstance(value, base):
            return general(value)
    if is_dataclass(value) and not isinstance(value, type):
        return _of_record(value)
    raise TypeError(f"Programs on shares take no public {type(value).__name__}.")


def _of_float(value: float) -> bytes:
    return b"f" + value.hex().encode() + b";"


def _of_text(value: str) -> bytes:
    raw = value.encode()
    return b"s%d:" % len(raw) + raw


def _of_bytes(value: bytes) -> bytes:
    return b"y%d:" % len(value) + value


@lru_cache(maxsize=64)
def _of_dtype(value: torch.dtype) -> bytes:
    return b"d" + _of_text(str(value))


def _of_tensor(value: torch.Tensor) -> bytes:
    content = value.detach().contiguous().reshape(-1).view(torch.uint8).numpy()
    found = hashlib.blake2b(content.data, digest_size=DIGEST_BYTES).digest()
    return b"t" + encoded((value.dtype, tuple(value.shape), found))


def _of_mapping(value: Mapping[Any, Any]) -> bytes:
    return b"m" + _of_sequence(sorted(value.items()))


def _of_sequence(value: Sequence[Any]) -> bytes:
    # NB: most are numbers, and this is called for every run at every party.
    parts = [b"i%d;" % one if type(one) is int else encoded(one) for one in value]
    return b"(%d:" % len(value) + b"".join(parts)


def _of_record(value: Any) -> bytes:
    cls: Any = type(value)
    return b"r" + _of_sequence((cls.__name__, *[getattr(value, name) for name in _names_of(cls)]))


@lru_cache(maxsize=256)
def _names_of(record: Any) -> tuple[str, ...]:
    return tuple(field.name for field in fields(record))


#: Of a type exactly; of a type and all below it, in this order.
_GENERAL: tuple[tuple[Any, Callable[[Any], bytes]], ...] = (
    (type(None), lambda _none: b"n"),
    (int, lambda value: b"i%d;" % value),  # True is 1: they are equal
    (float, _of_float),
    (str, _of_text),
    (bytes, _of_bytes),
    (torch.dtype, _of_dtype),
    (torch.Tensor, _of_tensor),
    (Mapping, _of_mapping),
    ((tuple, list), _of_sequence),
)
_WRITERS: dict[type, Callable[[Any], bytes]] = {
    base: writer for base, writer in _GENERAL if isinstance(base, type) and base is not Mapping
}
_WRITERS |= {bool: _WRITERS[int], dict: _of_mapping}
_WRITERS |= {tuple: _of_sequence, list: _of_sequence, torch.Size: _of_sequence}


#: Kinds are asked for again and again, and are frozen. Those that name a mask are for one tensor as it is at the time:
#: in training there are new ones in every step, so few of them are remembered.
_encoded_kind = lru_cache(maxsize=4096)(encoded)
_encoded_naming = lru_cache(maxsize=256)(encoded)


def _of_kind(kind: Any) -> bytes:
    return _encoded_naming(kind) if kind.kept else _encoded_kind(kind)


def kind_digest(kind: Any) -> bytes:
    """By which a provider tells a holder of which kind a correlation is."""
    return hashlib.blake2b(_of_kind(kind), digest_size=DIGEST_BYTES, person=b"syft kind").digest()


def purpose(run: int, program: bytes, position: int, kind: Any, is_wide: bool = False) -> bytes:
    """What one correlation is for. NOTE [Bound to its purpose] `is_wide`: its words are, NOTE [Wide words]"""
    place = b"%d,%d,%d%s;" % (run, position, len(program), b",wide" if is_wide else b"")
    return place + program + _of_kind(kind)


def program_digest(name: str, args: Sequence[Any], kwargs: Mapping[str, Any], *more: Any) -> bytes:
    """What the parties of a run agree on; the shares among the arguments are stood for by their shapes."""
    whole = encoded((name, tuple(args), dict(kwargs), more))
    return hashlib.blake2b(whole, digest_size=DIGEST_BYTES, person=b"syft program").digest()
