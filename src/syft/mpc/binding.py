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
from collections.abc import Mapping, Sequence
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
    if value is None:
        return b"n"
    if isinstance(value, int):  # True is 1: they are equal
        return b"i%d;" % value
    if isinstance(value, float):
        return b"f" + value.hex().encode() + b";"
    if isinstance(value, (str, bytes)):
        raw = value.encode() if isinstance(value, str) else value
        return b"%c%d:" % (b"s" if isinstance(value, str) else b"y", len(raw)) + raw
    if isinstance(value, torch.dtype):
        return b"d" + encoded(str(value))
    if isinstance(value, torch.Tensor):
        content = value.detach().contiguous().reshape(-1).view(torch.uint8).numpy()
        found = hashlib.blake2b(content.data, digest_size=DIGEST_BYTES).digest()
        return b"t" + encoded((value.dtype, tuple(value.shape), found))
    if isinstance(value, Mapping):
        return b"m" + encoded(sorted(value.items()))
    if isinstance(value, (tuple, list)):
        return b"(%d:" % len(value) + b"".join(map(encoded, value))
    if is_dataclass(value) and not isinstance(value, type):
        return b"r" + encoded((type(value).__name__, *(getattr(value, f.name) for f in fields(value))))
    raise TypeError(f"Programs on shares take no public {type(value).__name__}.")


#: Kinds are asked for again and again, and are frozen.
_encoded_kind = lru_cache(maxsize=4096)(encoded)


def purpose(run: int, program: bytes, position: int, kind: Any, is_wide: bool = False) -> bytes:
    """What one correlation is for. NOTE [Bound to its purpose] `is_wide`: its words are, NOTE [Wide words]"""
    place = b"%d,%d,%d%s;" % (run, position, len(program), b",wide" if is_wide else b"")
    return place + program + _encoded_kind(kind)


def program_digest(name: str, args: Sequence[Any], kwargs: Mapping[str, Any], *more: Any) -> bytes:
    """What the parties of a run agree on; the shares among the arguments are stood for by their shapes."""
    whole = encoded((name, tuple(args), dict(kwargs), more))
    return hashlib.blake2b(whole, digest_size=DIGEST_BYTES, person=b"syft program").digest()
