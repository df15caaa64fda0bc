"""Comparison by function secret sharing: one round, eight bytes, two holders; large keys from the provider.

The provider picks r and hands the holders keys of the function z -> [z - r < 0] (or [z = r]); the holders
open z = x + r and evaluate their keys on it, each getting a Boolean share of the result; what needs it as a
number spends a second round and one more bit. Boyle, Chandran, Gilboa, Gupta, Ishai, Kumar, Rathee,
"Function secret sharing for mixed-mode and fixed-point secure computation" (EUROCRYPT 2021), figure 1 for
the distributed comparison function, here with its payload in Z_2; Boyle, Gilboa, Ishai, "Secure computation
with preprocessing via function secret sharing" (TCC 2019) for masking the input, and "Function secret
sharing: improvements and extensions" (CCS 2016) for the point function. Their letters: seeds s, control bits
t, values v, correction words CW.

NOTE [Generator]
The pseudorandom generator is fixed-key AES in Matyas-Meyer-Oseas mode, H(s) = AES(s) ^ s (Guo, Katz, Wang,
Yu, "Efficient and secure multiparty computation from fixed-key block ciphers", S&P 2020: it takes AES under
a public key for an ideal permutation, which is more than the masks elsewhere assume), one block per child:
the children of s are H(s) and H(s ^ 1). Three low bits of a seed are kept free for the child's side, its
control bit and its value bit, so seeds have 125 bits. All elements of a level are encrypted in one call. Where shares
lie on a CUDA device, keys are made and evaluated there, each in one launch (`mpc.cuda.fss`), with the same bits.

Keys take 16 bytes per element and bit (about 1 kB per comparison), so this is for few elements and slow
links.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch

from syft.mpc import ring
from syft.mpc.correlations import Correlation, Field, Tensors
from syft.mpc.kernels import is_on_cuda
from syft.mpc.party import Party, Program
from syft.mpc.protocols.compare import BIT_PROTOCOLS, Compared
from syft.mpc.protocols.registry import register_comparison
from syft.mpc.protocols.select import bitwise

HOLDERS = 2

_FREE = 7  # the low bits of a seed that are not part of it
_KEY = b"resyft fixed key"  # public: the security rests on the seeds


class _OfThread(threading.local):
    """Ciphers are for one thread at a time, and holders may be threads of one process."""

    @cached_property
    def encryptor(self) -> Any:
        from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

        return Cipher(algorithms.AES(_KEY), modes.ECB()).encryptor()  # one block per seed, no message


_own = _OfThread()


def _on_cuda() -> Any:
    """The same on a CUDA device; imports Triton."""
    from syft.mpc.cuda import fss

    return fss


def _hash(seeds: torch.Tensor, side: torch.Tensor | int) -> torch.Tensor:
    """H(s ^ side) for a batch of seeds (n, 2); its low bits carry the child's control and value bit."""
    inputs = seeds.clone()
    inputs[:, 0].bitwise_xor_(side)
    out = torch.empty(inputs.numel() + 2, dtype=torch.int64)  # 15 bytes of slack, as the cipher asks for
    plain = memoryview(inputs.numpy().view(np.uint8).reshape(-1).data)
    _own.encryptor.update_into(plain, memoryview(out.numpy().view(np.uint8).data))
    return out[:-2].view_as(inputs).bitwise_xor_(inputs)


def _parted(block: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """A child's seed, control bit and value bit."""
    low = block[:, 0]
    t, v = low & 1, (low >> 1) & 1
    low.bitwise_and_(~_FREE)
    return block, t, v


def _bits_of(word: torch.Tensor, levels: int) -> list[torch.Tensor]:
    """The lowest `levels` bits of each word, highest first."""
    return [(word >> place) & 1 for place in range(levels - 1, -1, -1)]


def generate(alpha: torch.Tensor, seeds: Sequence[torch.Tensor], levels: int, less: bool) -> torch.Tensor:
    """Correction words (levels + 1, n, 2) of [z < alpha] (`less`) or [z = alpha] for the holders' root seeds.

    The seed's correction is in the word, its free bits are t_CW left, t_CW right and V_CW.
    """
    if is_on_cuda(alpha):
        return _on_cuda().generate(_KEY, alpha, (seeds[0], seeds[1]), levels, less)
    count = alpha.numel()
    words = torch.zeros((levels + 1, count, 2), dtype=torch.int64)
    s = [seed.clone() for seed in seeds]
    for one in s:
        one[:, 0].bitwise_and_(~_FREE)
    t = [torch.zeros(count, dtype=torch.int64), torch.ones(count, dtype=torch.int64)]
    value = torch.zeros(count, dtype=torch.int64)  # V_alpha
    for level, a in enumerate(_bits_of(alpha, levels)):
        children = [[_parted(_hash(one, side)) for side in (0, 1)] for one in s]  # [holder][side]
        (s0l, t0l, v0l), (s0r, t0r, v0r) = children[0]
        (s1l, t1l, v1l), (s1r, t1r, v1r) = children[1]
        right = a.neg()  # all ones where the path goes right: keep = R, lose = L
        seed_l, seed_r = s0l ^ s1l, s0r ^ s1r
        v_l, v_r = v0l ^ v1l, v0r ^ v1r
        wide = right.unsqueeze(1)
        s_cw = seed_r ^ ((seed_l ^ seed_r) & wide)  # of the side that is lost
        v_cw = v_r ^ ((v_l ^ v_r) & right) ^ value
        if less:
            v_cw.bitwise_xor_(a)  # leaving alpha's path to the left is being less
        value = value ^ _kept(v_l, v_r, right) ^ v_cw
        tl_cw, tr_cw = t0l ^ t1l ^ a ^ 1, t0r ^ t1r ^ a
        words[level] = s_cw
        words[level, :, 0].bitwise_or_(tl_cw | (tr_cw << 1) | (v_cw << 2))
        t_keep = _kept(tl_cw, tr_cw, right)
        for holder in (0, 1):
            (sl, tl, _), (sr, tr, _) = children[holder]
            mask = t[holder].neg().unsqueeze(1)
            s[holder] = (sl ^ ((sl ^ sr) & wide)).bitwise_xor_(s_cw & mask)
            t[holder] = _kept(tl, tr, right) ^ (t[holder] & t_keep)
    if less:
        words[levels, :, 0] = (s[0][:, 1] ^ s[1][:, 1] ^ value) & 1
    return words


def _kept(left: torch.Tensor, right_value: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    return left ^ ((left ^ right_value) & right)


def evaluate(
    rank: int, z: torch.Tensor, seed: torch.Tensor, words: torch.Tensor, levels: int, less: bool
) -> torch.Tensor:
    """This holder's Boolean share, 0 or 1, of the function at each z."""
    if is_on_cuda(z):
        return _on_cuda().evaluate(_KEY, rank, z, seed, words, levels, less)
    s = seed.clone()
    s[:, 0].bitwise_and_(~_FREE)
    t = torch.full_like(z, rank)
    value = torch.zeros_like(z)
    for level, side in enumerate(_bits_of(z, levels)):
        s, t_child, v = _parted(_hash(s, side))
        word = words[level]
        low = word[:, 0]
        if less:
            value.bitwise_xor_(v).bitwise_xor_((low >> 2).bitwise_and_(t))
        s.bitwise_xor_(word & t.neg().unsqueeze(1))
        s[:, 0].bitwise_and_(~_FREE)
        t = t_child.bitwise_xor_((low >> side).bitwise_and_(t))
    if not less:
        return t
    return value.bitwise_xor_((s[:, 1] & 1) ^ (t & words[levels, :, 0]))


@dataclass(frozen=True)
class Key(Correlation):
    """r, and keys of the sign (or the zero) of z - r; with `select` as in `correlations.Comparison`."""

    count: int
    sign: bool = True
    select: bool = False

    @property
    def levels(self) -> int:
        return ring.BITS - 1 if self.sign else ring.BITS

    @property
    def base(self) -> tuple[Field, ...]:
        rho = (Field((ring.words_for(self.count),), True),) if self.select else ()
        return (Field((self.count,)), Field((self.count, 2), True), *rho)

    @property
    def derived(self) -> tuple[Field, ...]:
        words = Field((self.levels + 1, self.count, 2), common=True)
        top = Field((ring.words_for(self.count),), True)
        rho = (Field((self.count,)), Field((self.count,))) if self.select else ()
        return (words, top, *rho)

    def derive_from_parts(self, parts: Sequence[Sequence[torch.Tensor]]) -> Tensors:
        if len(parts) != HOLDERS:
            raise ValueError(
                f"Function secret sharing is for two holders, got {len(parts)}: use protocol='tree'."
            )
        r = parts[0][0] + parts[1][0]
        words = generate(r, [parts[0][1], parts[1][1]], self.levels, self.sign)
        top = ring.pack_bits((r >> 63) & 1 if self.sign else torch.zeros_like(r))
        if not self.select:
            return words, top
        rho = ring.unpack_bits(parts[0][2] ^ parts[1][2], self.count)
        return words, top, rho, rho * r


def compare(party: Party, x: torch.Tensor, sign: bool, select: bool) -> Program[Compared]:
    """Boolean shares of [x < 0] or [x == 0], exact for every int64. One round.

    The sign of x = z - r is z_63 ^ r_63 ^ [z mod 2^63 < r mod 2^63].
    """
    count = x.numel()
    kind = Key(count, sign, select)
    fields = party.take(kind)
    r, seed = fields[:2]
    words, top = fields[len(kind.base) : len(kind.base) + 2]
    z = yield party.open(r + x.reshape(-1))
    share = evaluate(party.rank, z, seed, words, kind.levels, sign)
    if sign and party.first:
        share.bitwise_xor_((z >> 63) & 1)
    extra = (fields[2], *fields[-2:]) if select else ()
    return Compared(ring.pack_bits(share).bitwise_xor_(top), count, z, r, extra)


BIT_PROTOCOLS["fss"] = compare

register_comparison(bitwise("fss", "fss", HOLDERS))
