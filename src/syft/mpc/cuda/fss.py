"""Keys of function secret sharing on a CUDA device: what `mpc.protocols.fss` does on the CPU, bit for bit. Needs Triton.

One lane has one element and goes down all its levels, so a comparison is one launch. The generator is AES-128 under a
public key (NOTE [Generator] in `mpc.protocols.fss`), by tables: FIPS 197, section 5.1, with SubBytes, ShiftRows and
MixColumns of a round as four look-ups per column (Daemen, Rijmen, "AES Proposal: Rijndael", section 5.2.1). Columns
are words with the first byte lowest. The seeds are looked up in a table, so time may tell of them to somebody who shares
the card; the CPU's AES has no such tables.
"""

from __future__ import annotations

import functools

import torch
import triton
import triton.language as tl

from syft.mpc.cuda import aes_tables
from syft.mpc.cuda.aes_tables import ROUNDS

_LANES = 128


@triton.jit
def _rotated(x, by: tl.constexpr):
    return (x << by) | (x >> (32 - by))


@triton.jit
def _looked_up(table_ptr, byte):
    return tl.load(table_ptr + (byte & 255).to(tl.int32)).to(tl.uint32, bitcast=True)


@triton.jit
def _mixed(table_ptr, a, b, c, d):
    """A column after SubBytes, ShiftRows and MixColumns, from the four columns that its bytes come from."""
    first = _looked_up(table_ptr, a) ^ _rotated(_looked_up(table_ptr, b >> 8), 8)
    return first ^ _rotated(_looked_up(table_ptr, c >> 16), 16) ^ _rotated(_looked_up(table_ptr, d >> 24), 24)


@triton.jit
def _last(table_ptr, a, b, c, d):
    """The same without MixColumns: S(x) is the second byte of an entry."""
    low = ((_looked_up(table_ptr, a) >> 8) & 255) | (_looked_up(table_ptr, b >> 8) & 0xFF00)
    high = ((_looked_up(table_ptr, c >> 16) >> 8) & 255) | (_looked_up(table_ptr, d >> 24) & 0xFF00)
    return low | (high << 16)


@triton.jit
def _round_key(key_ptr, at):
    return tl.load(key_ptr + at).to(tl.uint32, bitcast=True)


@triton.jit
def _hashed(table_ptr, key_ptr, low, high, ROUNDS: tl.constexpr):
    """H(s) = AES(s) ^ s of blocks of two words."""
    s0 = low.to(tl.uint32) ^ _round_key(key_ptr, 0)
    s1 = (low >> 32).to(tl.uint32) ^ _round_key(key_ptr, 1)
    s2 = high.to(tl.uint32) ^ _round_key(key_ptr, 2)
    s3 = (high >> 32).to(tl.uint32) ^ _round_key(key_ptr, 3)
    for number in range(1, ROUNDS):
        t0 = _mixed(table_ptr, s0, s1, s2, s3) ^ _round_key(key_ptr, 4 * number)
        t1 = _mixed(table_ptr, s1, s2, s3, s0) ^ _round_key(key_ptr, 4 * number + 1)
        t2 = _mixed(table_ptr, s2, s3, s0, s1) ^ _round_key(key_ptr, 4 * number + 2)
        s3 = _mixed(table_ptr, s3, s0, s1, s2) ^ _round_key(key_ptr, 4 * number + 3)
        s0, s1, s2 = t0, t1, t2
    t0 = _last(table_ptr, s0, s1, s2, s3) ^ _round_key(key_ptr, 4 * ROUNDS)
    t1 = _last(table_ptr, s1, s2, s3, s0) ^ _round_key(key_ptr, 4 * ROUNDS + 1)
    t2 = _last(table_ptr, s2, s3, s0, s1) ^ _round_key(key_ptr, 4 * ROUNDS + 2)
    t3 = _last(table_ptr, s3, s0, s1, s2) ^ _round_key(key_ptr, 4 * ROUNDS + 3)
    out_low = t0.to(tl.int64) | (t1.to(tl.int64) << 32)
    out_high = t2.to(tl.int64) | (t3.to(tl.int64) << 32)
    return out_low ^ low, out_high ^ high


@triton.jit(do_not_specialize=["rank", "count"])
def _evaluate_kernel(
    out_ptr, z_ptr, seed_ptr, words_ptr, table_ptr, key_ptr, rank: tl.int64, count: tl.int64,
    LEVELS: tl.constexpr, LESS: tl.constexpr, ROUNDS: tl.constexpr, LANES: tl.constexpr,
):  # fmt: skip
    at = tl.program_id(0).to(tl.int64) * LANES + tl.arange(0, LANES)
    here = at < count
    z = tl.load(z_ptr + at, mask=here, other=0)
    low = tl.load(seed_ptr + 2 * at, mask=here, other=0) & ~7
    high = tl.load(seed_ptr + 2 * at + 1, mask=here, other=0)
    value = tl.zeros((LANES,), tl.int64)
    t = value + rank
    for level in range(LEVELS):
        side = (z >> (LEVELS - 1 - level)) & 1
        low, high = _hashed(table_ptr, key_ptr, low ^ side, high, ROUNDS)
        word = words_ptr + (level * count + at) * 2
        word_low = tl.load(word, mask=here, other=0)
        if LESS:
            value ^= ((low >> 1) & 1) ^ ((word_low >> 2) & t)
        child = (low & 1) ^ ((word_low >> side) & t)
        low = (low ^ (word_low & -t)) & ~7
        high ^= tl.load(word + 1, mask=here, other=0) & -t
        t = child
    if LESS:
        t = value ^ (high & 1) ^ (t & tl.load(words_ptr + (LEVELS * count + at) * 2, mask=here, other=0))
    tl.store(out_ptr + at, t, mask=here)


@triton.jit
def _chosen(left, right, chooses):
    return left ^ ((left ^ right) & chooses)


@triton.jit(do_not_specialize=["count"])
def _generate_kernel(
    words_ptr, alpha_ptr, seed0_ptr, seed1_ptr, table_ptr, key_ptr, count: tl.int64,
    LEVELS: tl.constexpr, LESS: tl.constexpr, ROUNDS: tl.constexpr, LANES: tl.constexpr,
):  # fmt: skip
    at = tl.program_id(0).to(tl.int64) * LANES + tl.arange(0, LANES)
    here = at < count
    alpha = tl.load(alpha_ptr + at, mask=here, other=0)
    low0 = tl.load(seed0_ptr + 2 * at, mask=here, other=0) & ~7
    high0 = tl.load(seed0_ptr + 2 * at + 1, mask=here, other=0)
    low1 = tl.load(seed1_ptr + 2 * at, mask=here, other=0) & ~7
    high1 = tl.load(seed1_ptr + 2 * at + 1, mask=here, other=0)
    value = tl.zeros((LANES,), tl.int64)
    t0, t1 = value, value + 1
    for level in range(LEVELS):
        a = (alpha >> (LEVELS - 1 - level)) & 1
        right = -a
        l0, lh0 = _hashed(table_ptr, key_ptr, low0, high0, ROUNDS)
        r0, rh0 = _hashed(table_ptr, key_ptr, low0 ^ 1, high0, ROUNDS)
        l1, lh1 = _hashed(table_ptr, key_ptr, low1, high1, ROUNDS)
        r1, rh1 = _hashed(table_ptr, key_ptr, low1 ^ 1, high1, ROUNDS)
        # Of the side that is lost; the free bits are put in below.
        cw_low = _chosen(r0 ^ r1, l0 ^ l1, right) & ~7
        cw_high = _chosen(rh0 ^ rh1, lh0 ^ lh1, right)
        v_left, v_right = ((l0 ^ l1) >> 1) & 1, ((r0 ^ r1) >> 1) & 1
        v_cw = _chosen(v_right, v_left, right) ^ value
        if LESS:
            v_cw ^= a
        value = value ^ _chosen(v_left, v_right, right) ^ v_cw
        tl_cw, tr_cw = ((l0 ^ l1) & 1) ^ a ^ 1, ((r0 ^ r1) & 1) ^ a
        word = words_ptr + (level * count + at) * 2
        tl.store(word, cw_low | tl_cw | (tr_cw << 1) | (v_cw << 2), mask=here)
        tl.store(word + 1, cw_high, mask=here)
        t_keep = _chosen(tl_cw, tr_cw, right)
        kept0, kept1 = _chosen(l0, r0, right), _chosen(l1, r1, right)
        low0, high0 = (kept0 & ~7) ^ (cw_low & -t0), _chosen(lh0, rh0, right) ^ (cw_high & -t0)
        low1, high1 = (kept1 & ~7) ^ (cw_low & -t1), _chosen(lh1, rh1, right) ^ (cw_high & -t1)
        t0, t1 = (kept0 & 1) ^ (t0 & t_keep), (kept1 & 1) ^ (t1 & t_keep)
    last = words_ptr + (LEVELS * count + at) * 2
    zero = tl.zeros((LANES,), tl.int64)
    tl.store(last, ((high0 ^ high1 ^ value) & 1) if LESS else zero, mask=here)
    tl.store(last + 1, zero, mask=here)


@functools.lru_cache(maxsize=64)
def _tables(key: bytes, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.from_numpy(aes_tables.round_table()).to(device), torch.from_numpy(
        aes_tables.round_keys(key)
    ).to(device)


def _blocks(count: int) -> tuple[int]:
    return (triton.cdiv(count, _LANES),)


def evaluate(
    key: bytes,
    rank: int,
    z: torch.Tensor,
    seed: torch.Tensor,
    words: torch.Tensor,
    levels: int,
    less: bool,
) -> torch.Tensor:
    """`mpc.protocols.fss.evaluate` in one launch."""
    out, count = torch.empty_like(z), z.numel()
    if count:
        _evaluate_kernel[_blocks(count)](
            out, z.contiguous(), seed.contiguous(), words.contiguous(), *_tables(key, z.device), rank, count,
            LEVELS=levels, LESS=less, ROUNDS=ROUNDS, LANES=_LANES, num_warps=4,
        )  # fmt: skip
    return out


def generate(
    key: bytes, alpha: torch.Tensor, seeds: tuple[torch.Tensor, torch.Tensor], levels: int, less: bool
) -> torch.Tensor:
    """`mpc.protocols.fss.generate` in one launch."""
    count = alpha.numel()
    words = torch.empty((levels + 1, count, 2), dtype=torch.int64, device=alpha.device)
    if count:
        _generate_kernel[_blocks(count)](
            words, alpha.contiguous(), seeds[0].contiguous(), seeds[1].contiguous(), *_tables(key, alpha.device), count,
            LEVELS=levels, LESS=less, ROUNDS=ROUNDS, LANES=_LANES, num_warps=4,
        )  # fmt: skip
    return words
