"""Uniform randomness for secrets: AES-128 in counter mode, keyed by the operating system.

One duty: turn a 16-byte seed into tensors that nobody without the seed can tell from uniform. Two `Stream`s
of the same seed give the same tensors as long as they are asked the same questions in the same order, which
is how the provider and a holder agree on masks without sending them. torch's generator (a Mersenne Twister:
its state follows from its output) is never used near a secret. Imports nothing of ours but the CUDA backend, when it is
asked for.

NOTE [Wide words]
A GPU makes ChaCha20 faster than it is given bytes of AES. So the words of a run whose shares lie on a device are drawn
in two steps, which every party takes, also one without a device: 32 bytes of the AES stream are a key, and the words are
the key stream of ChaCha20 under it. Every draw has a key of its own, so nonce and counter begin at zero.

NOTE [Key stream of GCM]
AES-GCM under a nonce of 96 bits encrypts with AES-CTR from block 2 on (NIST SP 800-38D, sections 7.1 and 6.5; block 0 is
not used, block 1 belongs to the tag, which is never asked for). It is the same key stream, and OpenSSL makes it twice as
fast where the processor encrypts several blocks by one instruction (8 MB: 0.5 ms instead of 0.95 ms). So what a
`BoundStream` draws much of comes from there. It cannot begin anywhere else, so what lies before is skipped. A `Stream`
whose seed nobody else has takes another key from the operating system, for the key stream of GCM, when much of it is
drawn; and again before one key has made 64 GiB, which is all that GCM gives.
"""

from __future__ import annotations

import hashlib
import math
import os
import secrets
import time
from collections.abc import Iterator, Sequence
from copy import copy
from functools import lru_cache
from typing import Any

import numpy as np
import torch

SEED_BYTES = 16
WIDE_KEY_BYTES, WIDE_NONCE_BYTES = 32, 12  # RFC 8439, section 2.3

_BLOCK = 16  # bytes of one AES block
_CHUNK = 1 << 17  # plaintext encrypted per call: it stays in the cache, so only the output meets memory
_ZEROS = bytes(_CHUNK)
#: From so many bytes on a draw pays for a cipher of its own. NOTE [Key stream of GCM]
_LARGE = 1 << 16
_GCM_BEGINS, _PLACE_BYTES = 2 * _BLOCK, _BLOCK - 4
#: Bytes that a stream which chose its own key draws before it chooses another.
_MOST_OF_A_KEY = 1 << 35
#: So many words together are drawn at once: a draw costs more than some kilobytes of key stream.
_FEW_WORDS = 1 << 11
#: So many words together are made by one launch on a device; with more it is busy anyway.
_SMALL_WORDS = 1 << 22


#: How often this process and those before it were forked: told by the system, and cheaper than its number.
_process = 0


def _note_fork() -> None:
    global _process
    _process += 1


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_note_fork)


def new_seed() -> bytes:
    """A fresh key from the operating system."""
    return secrets.token_bytes(SEED_BYTES)


def derived_seed(seed: bytes, purpose: bytes) -> bytes:
    """A seed for one purpose: keyed BLAKE2b (RFC 7693, section 2.9) as a pseudo-random function of it."""
    return hashlib.blake2b(purpose, key=seed, digest_size=SEED_BYTES).digest()


def _encryptor(key: bytes, mode: str, place: bytes) -> Any:
    """AES in a mode of `cryptography`, or ChaCha20. That package is imported when the first secret is made."""
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

    if mode == "ChaCha20":
        return Cipher(algorithms.ChaCha20(key, place), mode=None).encryptor()
    return Cipher(algorithms.AES(key), modes.CTR(place) if mode == "CTR" else modes.GCM(place)).encryptor()


def _encrypt_zeros(encryptor: Any, buffer: memoryview, size: int) -> None:
    """Write `size` bytes of key stream; `buffer` needs 15 bytes of slack behind them."""
    done = 0
    while done < size:
        step = min(_CHUNK, size - done)
        plain = _ZEROS if step == _CHUNK else memoryview(_ZEROS)[:step]
        encryptor.update_into(plain, buffer[done : done + step + _BLOCK - 1])
        done += step


@lru_cache(maxsize=1)
def is_gcm_faster() -> bool:
    """Whether this machine makes the key stream of GCM faster than that of CTR. NOTE [Key stream of GCM]"""
    key, buffer = bytes(SEED_BYTES), memoryview(bytearray(_LARGE + _BLOCK))
    taken = []
    for mode, place in (("CTR", bytes(_BLOCK)), ("GCM", bytes(_PLACE_BYTES))):
        encryptor, times = _encryptor(key, mode, place), []
        for _ in range(5):
            began = time.perf_counter()
            _encrypt_zeros(encryptor, buffer, _LARGE)
            times.append(time.perf_counter() - began)
        taken.append(min(times))
    return taken[1] < 0.8 * taken[0]


class Stream:
    """The key stream of AES-128-CTR under one seed, read as tensors.

    The cipher object is kept: making one costs as much as 40 kB of key stream. A seed must never key two
    streams whose outputs are supposed to be independent; take `fork()` for that. A stream that was given no seed
    has another one in a process that is forked: its copies there are independent, too. NOTE [Key stream of GCM]
    """

    __slots__ = ("_encryptor", "_left", "_process")

    def __init__(self, seed: bytes | None = None) -> None:
        #: Of which process it is, if nobody else has its seed.
        self._process: int | None = _process if seed is None else None
        #: Bytes that its own key may make yet in GCM; None while it is in counter mode.
        self._left: int | None = None
        self._begin(new_seed() if seed is None else bytes(seed))

    def _begin(self, seed: bytes) -> None:
        if len(seed) != SEED_BYTES:
            raise ValueError(
                f"A stream is keyed by {SEED_BYTES} bytes, got {len(seed)}: make them with new_seed()."
            )
        # NIST SP 800-38A, section 6.5: the key stream is AES(key, counter), counter from zero, key used once.
        self._encryptor = _encryptor(seed, "CTR", bytes(_BLOCK))

    def _take_own_key(self, size: int) -> None:
        """Another key, where one is due before `size` bytes are drawn. Nobody else has the seed of this stream."""
        if self._process != _process:
            self._process, self._left = _process, None
            self._begin(new_seed())
        if (size >= _LARGE and is_gcm_faster()) if self._left is None else size > self._left:
            self._encryptor = _encryptor(new_seed(), "GCM", bytes(_PLACE_BYTES))
            self._left = _MOST_OF_A_KEY
        if self._left is not None:
            self._left -= size

    def fill(self, buffer: memoryview, size: int) -> None:
        """Write `size` bytes of key stream; `buffer` needs 15 bytes of slack behind them."""
        if self._process is not None:
            self._take_own_key(size)
        _encrypt_zeros(self._encryptor, buffer, size)

    def words(self, shape: Sequence[int] | int) -> torch.Tensor:
        """int64, uniform over all 2^64 values, one independent word per element."""
        shape = (shape,) if isinstance(shape, int) else tuple(shape)
        count = math.prod(shape)
        raw = torch.empty(count + 2, dtype=torch.int64)  # two words of slack for `fill`
        self.fill(memoryview(raw.numpy().view(np.uint8).data), 8 * count)
        return raw[:count].view(shape)

    def combine(self, into: torch.Tensor, function: np.ufunc) -> None:
        """into = function(into, words) with the next words, in place: they never leave the cache. On the CPU.

        Words are read as numbers of `into`'s dtype; those of a narrower one fill whole words.
        """
        flat = into.view(-1).numpy()
        step = _CHUNK // flat.itemsize
        words = np.empty(min(flat.nbytes, _CHUNK) // 8 + 2, dtype=np.int64)  # slack for `fill`
        memory, numbers = memoryview(words.view(np.uint8).data), words.view(flat.dtype)
        for start in range(0, flat.size, step):
            part = flat[start : start + step]
            self.fill(memory, part.nbytes)
            function(part, numbers[: part.size], out=part)

    def words_with(self, others: Sequence[Stream], function: np.ufunc, shape: Sequence[int]) -> torch.Tensor:
        """The next words of this stream and of others, joined by a function: they meet in the cache."""
        count = math.prod(shape)
        made = np.empty(count + 2, dtype=np.int64)  # two words of slack for `fill`
        other = np.empty(min(count, _CHUNK // 8) + 2, dtype=np.int64)
        memory, scratch = memoryview(made.view(np.uint8).data), memoryview(other.view(np.uint8).data)
        for start in range(0, count, _CHUNK // 8):
            part = made[start : min(start + _CHUNK // 8, count)]
            self.fill(memory[8 * start :], part.nbytes)
            for stream in others:
                stream.fill(scratch, part.nbytes)
                function(part, other[: part.size], out=part)
        return torch.from_numpy(made)[:count].view(tuple(shape))

    def wide_words(self, shape: Sequence[int], device: torch.device) -> torch.Tensor:
        """Like `words`, from ChaCha20 keyed by the next 32 bytes of this stream. NOTE [Wide words]"""
        key, count = self.raw(WIDE_KEY_BYTES), math.prod(shape)
        if device.type == "cuda":
            from syft.mpc.cuda.chacha import key_stream

            return key_stream(key, count, device).view(tuple(shape))
        raw = torch.empty(count, dtype=torch.int64)
        cipher = _encryptor(key, "ChaCha20", bytes(4 + WIDE_NONCE_BYTES))
        cipher.update_into(bytes(8 * count), memoryview(raw.numpy().view(np.uint8).data))
        return raw.view(tuple(shape)).to(device)

    def draw(self, shape: Sequence[int], device: torch.device | None = None) -> torch.Tensor:
        """The words of a run: `words` on the CPU (no device), `wide_words` where shares lie on a device."""
        return self.words(shape) if device is None else self.wide_words(shape, device)

    def draw_all(
        self, shapes: Sequence[Sequence[int]], device: torch.device | None = None
    ) -> Iterator[torch.Tensor]:
        """`draw` for each shape, in this order, when it is asked for. A CUDA device makes small ones by one launch."""
        counts = [math.prod(shape) for shape in shapes]
        if device is None:
            return self._words_of(shapes, counts)
        if device.type != "cuda" or len(shapes) < 2 or sum(counts) > _SMALL_WORDS:
            return (self.draw(shape, device) for shape in shapes)
        from syft.mpc.cuda.chacha import key_streams

        keys = [self.raw(WIDE_KEY_BYTES) for _ in shapes]
        parts = key_streams(keys, counts, device)
        return (part.view(tuple(shape)) for part, shape in zip(parts, shapes, strict=True))

    def _words_of(self, shapes: Sequence[Sequence[int]], counts: list[int]) -> Iterator[torch.Tensor]:
        """`words` for each shape; small neighbours are drawn together, which gives the same words."""
        start = 0
        while start < len(shapes):
            end, total = start, 0
            while end < len(shapes) and total + counts[end] <= _FEW_WORDS:
                total += counts[end]
                end += 1
            if end - start < 2:
                yield self.words(shapes[start])
                start += 1
                continue
            raw = np.empty(total + 2, dtype=np.int64)  # two words of slack for `fill`
            self.fill(memoryview(raw.view(np.uint8).data), 8 * total)
            place = 0
            # NB: not cut by torch: each counts by itself how often it was written to.
            for shape, count in zip(shapes[start:end], counts[start:end], strict=True):
                yield torch.from_numpy(raw[place : place + count].reshape(shape))
                place += count
            start = end

    def raw(self, count: int) -> bytes:
        """`count` bytes of key stream."""
        raw = bytearray(count + _BLOCK)
        self.fill(memoryview(raw), count)
        return bytes(raw[:count])

    def bits(self, shape: Sequence[int] | int) -> torch.Tensor:
        """int64 zeros and ones, one uniform bit per element."""
        shape = (shape,) if isinstance(shape, int) else tuple(shape)
        count = math.prod(shape)
        packed = np.frombuffer(self.raw((count + 7) // 8), dtype=np.uint8)
        return torch.from_numpy(np.unpackbits(packed)[:count].astype(np.int64)).view(shape)

    def below(self, bound: int, shape: Sequence[int] | int) -> torch.Tensor:
        """int64 uniform over 0 .. bound - 1, without bias: words past the last whole multiple are redrawn."""
        if not 1 <= bound <= 2**63:
            raise ValueError(f"A bound is between 1 and 2^63, got {bound}.")
        shape = (shape,) if isinstance(shape, int) else tuple(shape)
        count = math.prod(shape)
        last = np.uint64((1 << 64) // bound * bound - 1)
        drawn = self.words(count).numpy().view(np.uint64)
        rejected = np.flatnonzero(drawn > last)
        while rejected.size:
            drawn[rejected] = self.words(rejected.size).numpy().view(np.uint64)
            rejected = rejected[drawn[rejected] > last]
        return torch.from_numpy((drawn % np.uint64(bound)).astype(np.int64)).view(shape)

    def residues(self, modulus: int, shape: Sequence[int]) -> torch.Tensor:
        """uint8 uniform over 0 .. modulus - 1, from single bytes; the modulus is at most 256."""
        if not 1 <= modulus <= 256:
            raise ValueError(f"A modulus of bytes is between 1 and 256, got {modulus}.")
        count = math.prod(shape)
        last = 256 // modulus * modulus - 1
        drawn = np.frombuffer(bytearray(self.raw(count)), dtype=np.uint8)
        rejected = np.flatnonzero(drawn > last)
        while rejected.size:
            drawn[rejected] = np.frombuffer(self.raw(rejected.size), dtype=np.uint8)
            rejected = rejected[drawn[rejected] > last]
        return torch.from_numpy(drawn % modulus if modulus < 256 else drawn).view(tuple(shape))

    def permutation(self, size: int, rows: int | None = None) -> torch.Tensor:
        """A uniform permutation of 0 .. size - 1, or `rows` independent ones, as int64 indices.

        Ranks of independent 64-bit words: uniform when the words differ, so equal ones are redrawn.
        """
        shape = (size,) if rows is None else (rows, size)
        while True:
            keys = self.words(shape)
            ranked, order = torch.sort(keys, dim=-1)
            if size < 2 or not bool((ranked[..., 1:] == ranked[..., :-1]).any()):
                return order

    def fork(self) -> Stream:
        """A stream keyed by the next 16 bytes of this one: independent of everything else it gives."""
        made = Stream(self.raw(SEED_BYTES))
        made._process = self._process
        return made

    def bound_to(self, value: torch.Tensor) -> Stream:
        """A stream like `fork()`'s that also depends on a value: who has another value gets an unrelated one."""
        content = value.contiguous().reshape(-1).view(torch.uint8).numpy().data
        found = hashlib.blake2b(content, digest_size=SEED_BYTES).digest()
        return Stream(derived_seed(self.raw(SEED_BYTES), found))


class BoundStream(Stream):
    """A stream that is read from a place of its own for each purpose. NOTE [Bound to its purpose] in `binding`

    The place is the upper 96 bits of the counter, a keyed hash of the purpose, so nobody without the seed can look for
    two purposes with one place. It has 2^32 blocks, 64 GiB. The cipher is kept: to move costs a microsecond, a new one
    ten times that. One thread at a time uses it: what `at` gives is read before the next call.
    """

    __slots__ = ("_drawn", "_fast", "_key", "_place", "_place_key")

    def __init__(self, seed: bytes) -> None:
        if len(seed) != SEED_BYTES:
            raise ValueError(
                f"A stream is keyed by {SEED_BYTES} bytes, got {len(seed)}: make them with new_seed()."
            )
        keys = hashlib.blake2b(key=bytes(seed), digest_size=2 * SEED_BYTES, person=b"syft bound").digest()
        self._key, self._place_key = keys[:SEED_BYTES], keys[SEED_BYTES:]
        super().__init__(self._key)
        self._place, self._drawn = bytes(_PLACE_BYTES), 0
        #: What makes the rest of the key stream at this place, once much of it is drawn. NOTE [Key stream of GCM]
        self._fast: Any = None

    def apart(self, purpose: bytes) -> Stream:
        """A stream of its own at the place of a purpose, to be read at any time: it stays there when this one moves."""
        made = copy(self)
        made._encryptor = _encryptor(self._key, "CTR", bytes(_BLOCK))
        return made.at(purpose)

    def at(self, purpose: bytes) -> Stream:
        """This stream at the place of a purpose. Read it for each purpose once."""
        self._place = hashlib.blake2b(purpose, key=self._place_key, digest_size=_PLACE_BYTES).digest()
        self._drawn, self._fast = 0, None
        self._encryptor.reset_nonce(self._place + bytes(4))
        return self

    def fill(self, buffer: memoryview, size: int) -> None:
        if self._fast is None and size >= _LARGE and self._drawn <= size and is_gcm_faster():
            before = max(_GCM_BEGINS - self._drawn, 0)
            _encrypt_zeros(self._encryptor, buffer, before)
            self._fast = _encryptor(self._key, "GCM", self._place)
            skipped = max(self._drawn - _GCM_BEGINS, 0)
            _encrypt_zeros(self._fast, memoryview(bytearray(skipped + _BLOCK)), skipped)
            self._drawn += before
            buffer, size = buffer[before:], size - before
        _encrypt_zeros(self._encryptor if self._fast is None else self._fast, buffer, size)
        self._drawn += size
