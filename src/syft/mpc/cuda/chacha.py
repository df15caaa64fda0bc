"""The key stream of ChaCha20 on a CUDA device, equal to the CPU's byte by byte. Needs Triton.

RFC 8439, section 2.3: a block is 16 words of state (constants, key, block counter, nonce), mixed by ten double rounds
and added to the state. One lane makes one block.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
import triton
import triton.language as tl

_LANES = 128
STATE_WORDS = 12


@triton.jit
def _rotated(x, by: tl.constexpr):
    return (x << by) | (x >> (32 - by))


@triton.jit
def _quarter(a, b, c, d):
    a += b
    d = _rotated(d ^ a, 16)
    c += d
    b = _rotated(b ^ c, 12)
    a += b
    d = _rotated(d ^ a, 8)
    c += d
    b = _rotated(b ^ c, 7)
    return a, b, c, d


@triton.jit
def _key_stream_block(out_ptr, state_ptr, first, words, LANES: tl.constexpr):
    """LANES blocks of a key stream, from block number `first` on; at most `words` words of it are written."""
    lane = first + tl.arange(0, LANES)
    zero = tl.zeros((LANES,), tl.uint32)
    x0, x1, x2, x3 = zero + 0x61707865, zero + 0x3320646E, zero + 0x79622D32, zero + 0x6B206574
    i4 = zero + tl.load(state_ptr).to(tl.uint32, bitcast=True)
    i5 = zero + tl.load(state_ptr + 1).to(tl.uint32, bitcast=True)
    i6 = zero + tl.load(state_ptr + 2).to(tl.uint32, bitcast=True)
    i7 = zero + tl.load(state_ptr + 3).to(tl.uint32, bitcast=True)
    i8 = zero + tl.load(state_ptr + 4).to(tl.uint32, bitcast=True)
    i9 = zero + tl.load(state_ptr + 5).to(tl.uint32, bitcast=True)
    i10 = zero + tl.load(state_ptr + 6).to(tl.uint32, bitcast=True)
    i11 = zero + tl.load(state_ptr + 7).to(tl.uint32, bitcast=True)
    i12 = lane.to(tl.uint32) + tl.load(state_ptr + 8).to(tl.uint32, bitcast=True)
    i13 = zero + tl.load(state_ptr + 9).to(tl.uint32, bitcast=True)
    i14 = zero + tl.load(state_ptr + 10).to(tl.uint32, bitcast=True)
    i15 = zero + tl.load(state_ptr + 11).to(tl.uint32, bitcast=True)
    x4, x5, x6, x7, x8, x9, x10, x11 = i4, i5, i6, i7, i8, i9, i10, i11
    x12, x13, x14, x15 = i12, i13, i14, i15
    for _ in range(10):
        x0, x4, x8, x12 = _quarter(x0, x4, x8, x12)
        x1, x5, x9, x13 = _quarter(x1, x5, x9, x13)
        x2, x6, x10, x14 = _quarter(x2, x6, x10, x14)
        x3, x7, x11, x15 = _quarter(x3, x7, x11, x15)
        x0, x5, x10, x15 = _quarter(x0, x5, x10, x15)
        x1, x6, x11, x12 = _quarter(x1, x6, x11, x12)
        x2, x7, x8, x13 = _quarter(x2, x7, x8, x13)
        x3, x4, x9, x14 = _quarter(x3, x4, x9, x14)
    x0 += 0x61707865
    x1 += 0x3320646E
    x2 += 0x79622D32
    x3 += 0x6B206574
    x4, x5, x6, x7 = x4 + i4, x5 + i5, x6 + i6, x7 + i7
    x8, x9, x10, x11 = x8 + i8, x9 + i9, x10 + i10, x11 + i11
    x12, x13, x14, x15 = x12 + i12, x13 + i13, x14 + i14, x15 + i15
    # 64-bit words, little end first; then (lane, word) in the order of memory, so that stores are wide
    w0 = x0.to(tl.int64) | (x1.to(tl.int64) << 32)
    w1 = x2.to(tl.int64) | (x3.to(tl.int64) << 32)
    w2 = x4.to(tl.int64) | (x5.to(tl.int64) << 32)
    w3 = x6.to(tl.int64) | (x7.to(tl.int64) << 32)
    w4 = x8.to(tl.int64) | (x9.to(tl.int64) << 32)
    w5 = x10.to(tl.int64) | (x11.to(tl.int64) << 32)
    w6 = x12.to(tl.int64) | (x13.to(tl.int64) << 32)
    w7 = x14.to(tl.int64) | (x15.to(tl.int64) << 32)
    even = tl.join(tl.join(w0, w4), tl.join(w2, w6))
    odd = tl.join(tl.join(w1, w5), tl.join(w3, w7))
    block = tl.reshape(tl.join(even, odd), (LANES * 8,))
    at = first * 8 + tl.arange(0, LANES * 8)
    tl.store(out_ptr + at, block, mask=at < words)


@triton.jit(do_not_specialize=["words"])
def _chacha_kernel(out_ptr, state_ptr, words: tl.int64, LANES: tl.constexpr):
    _key_stream_block(out_ptr, state_ptr, tl.program_id(0).to(tl.int64) * LANES, words, LANES)


@triton.jit
def _many_kernel(table_ptr, LANES: tl.constexpr, ROW: tl.constexpr):
    """A row of the table per program: the address of the words, how many, the first block, and the state."""
    row = table_ptr + tl.program_id(0).to(tl.int64) * ROW
    out_ptr = tl.load(row).to(tl.pointer_type(tl.int64))
    state_ptr = (row + 3).to(tl.pointer_type(tl.int32))
    _key_stream_block(out_ptr, state_ptr, tl.load(row + 2), tl.load(row + 1), LANES)


def states_of(*keys: bytes) -> torch.Tensor:
    """What the kernel starts from, a row of 12 words per key: the key, then counter and nonce, which are zero."""
    rows = np.zeros((len(keys), STATE_WORDS), dtype=np.int32)
    rows[:, :8] = np.frombuffer(b"".join(keys), dtype=np.int32).reshape(len(keys), 8)
    return torch.from_numpy(rows)


def fill(out: torch.Tensor, state: torch.Tensor) -> torch.Tensor:
    """Write the key stream of a state, which lies on the device, into contiguous int64 words."""
    count = out.numel()
    if count:
        _chacha_kernel[(triton.cdiv(count, 8 * _LANES),)](out, state, count, LANES=_LANES, num_warps=4)
    return out


def key_stream(key: bytes, count: int, device: torch.device) -> torch.Tensor:
    """`count` int64 words of the key stream of a key."""
    out = torch.empty(count, dtype=torch.int64, device=device)
    return fill(out, states_of(key).to(device, non_blocking=True))


_ROW = 3 + STATE_WORDS // 2


def key_streams(keys: Sequence[bytes], counts: Sequence[int], device: torch.device) -> list[torch.Tensor]:
    """`key_stream` of several keys, each in memory of its own, by one copy to the device and one launch."""
    made = [torch.empty(count, dtype=torch.int64, device=device) for count in counts]
    programs = [triton.cdiv(count, 8 * _LANES) for count in counts]
    table = np.zeros((sum(programs), _ROW), dtype=np.int64)
    table[:, 0] = np.repeat([one.data_ptr() for one in made], programs)
    table[:, 1] = np.repeat(counts, programs)
    table[:, 2] = np.concatenate([np.arange(n) * _LANES for n in programs])
    table[:, 3:7] = np.repeat(np.frombuffer(b"".join(keys), dtype=np.int64).reshape(-1, 4), programs, axis=0)
    if len(table):
        there = torch.from_numpy(table).to(device, non_blocking=True)
        _many_kernel[(len(table),)](there, LANES=_LANES, ROW=_ROW, num_warps=4)
    return made
