"""Matrix products of int64, exact mod 2^64, on a CUDA device.

Two ways, chosen by size. Small and batched: one kernel that splits words into eight signed bytes as it loads them and
adds up the 36 products of bytes whose weight is below 2^64. Large: residues (NOTE [Residues]), one int8 product of the
vendor's library per modulus between two elementwise kernels. Needs Triton.

NOTE [Signed bytes]
x = sum b_i 256^i with b_i in [-128, 127]: b_0 is the low byte read as signed, and (x - b_0) / 256 is split in the same
way; what leaves the top is a multiple of 2^64. Sums of equal weight i + j are kept apart in int32: (i + j + 1) 2^14 per
term, so 2^13 terms fit.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from syft.mpc.cuda.residues import MAX_INNER, Moduli, moduli_for

_BYTES_INNER = 1 << 13  # NOTE [Signed bytes]
_RESIDUES_FROM = 1 << 31  # multiplications from which residues are faster (measured: bench/gpu.py)


# -- bytes ---------------------------------------------------------------------------------------------


@triton.jit
def _next_byte(x):
    low = x.to(tl.int8)
    return low, (x - low.to(tl.int64)) >> 8


@triton.jit
def _bytes_kernel(
    a_ptr, b_ptr, c_ptr, rows, columns, inner, per_split,
    a_batch, a_row, a_inner, b_batch, b_inner, b_column, c_batch,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, ADD: tl.constexpr, SPLITS: tl.constexpr,
):  # fmt: skip
    tiles = tl.cdiv(columns, BN)
    tile = tl.program_id(0)
    batch = tl.program_id(1).to(tl.int64)
    split = tl.program_id(2)
    first_row, first_column = (tile // tiles) * BM, (tile % tiles) * BN
    m = (first_row + tl.arange(0, BM)).to(tl.int64)
    n = (first_column + tl.arange(0, BN)).to(tl.int64)
    k = tl.arange(0, BK).to(tl.int64)
    a_at = a_ptr + batch * a_batch + m[:, None] * a_row
    b_at = b_ptr + batch * b_batch + n[None, :] * b_column
    s0 = tl.zeros((BM, BN), tl.int32)
    s1 = tl.zeros((BM, BN), tl.int32)
    s2 = tl.zeros((BM, BN), tl.int32)
    s3 = tl.zeros((BM, BN), tl.int32)
    s4 = tl.zeros((BM, BN), tl.int32)
    s5 = tl.zeros((BM, BN), tl.int32)
    s6 = tl.zeros((BM, BN), tl.int32)
    s7 = tl.zeros((BM, BN), tl.int32)
    begin = split * per_split
    end = tl.minimum(inner, begin + per_split)
    for start in range(begin, end, BK):
        at = start + k
        a = tl.load(a_at + at[None, :] * a_inner, mask=(m[:, None] < rows) & (at[None, :] < end), other=0)
        b = tl.load(b_at + at[:, None] * b_inner, mask=(at[:, None] < end) & (n[None, :] < columns), other=0)
        a0, a = _next_byte(a)
        a1, a = _next_byte(a)
        a2, a = _next_byte(a)
        a3, a = _next_byte(a)
        a4, a = _next_byte(a)
        a5, a = _next_byte(a)
        a6, a = _next_byte(a)
        a7 = a.to(tl.int8)
        b0, b = _next_byte(b)
        s0 = tl.dot(a0, b0, s0, out_dtype=tl.int32)
        s1 = tl.dot(a1, b0, s1, out_dtype=tl.int32)
        s2 = tl.dot(a2, b0, s2, out_dtype=tl.int32)
        s3 = tl.dot(a3, b0, s3, out_dtype=tl.int32)
        s4 = tl.dot(a4, b0, s4, out_dtype=tl.int32)
        s5 = tl.dot(a5, b0, s5, out_dtype=tl.int32)
        s6 = tl.dot(a6, b0, s6, out_dtype=tl.int32)
        s7 = tl.dot(a7, b0, s7, out_dtype=tl.int32)
        b1, b = _next_byte(b)
        s1 = tl.dot(a0, b1, s1, out_dtype=tl.int32)
        s2 = tl.dot(a1, b1, s2, out_dtype=tl.int32)
        s3 = tl.dot(a2, b1, s3, out_dtype=tl.int32)
        s4 = tl.dot(a3, b1, s4, out_dtype=tl.int32)
        s5 = tl.dot(a4, b1, s5, out_dtype=tl.int32)
        s6 = tl.dot(a5, b1, s6, out_dtype=tl.int32)
        s7 = tl.dot(a6, b1, s7, out_dtype=tl.int32)
        b2, b = _next_byte(b)
        s2 = tl.dot(a0, b2, s2, out_dtype=tl.int32)
        s3 = tl.dot(a1, b2, s3, out_dtype=tl.int32)
        s4 = tl.dot(a2, b2, s4, out_dtype=tl.int32)
        s5 = tl.dot(a3, b2, s5, out_dtype=tl.int32)
        s6 = tl.dot(a4, b2, s6, out_dtype=tl.int32)
        s7 = tl.dot(a5, b2, s7, out_dtype=tl.int32)
        b3, b = _next_byte(b)
        s3 = tl.dot(a0, b3, s3, out_dtype=tl.int32)
        s4 = tl.dot(a1, b3, s4, out_dtype=tl.int32)
        s5 = tl.dot(a2, b3, s5, out_dtype=tl.int32)
        s6 = tl.dot(a3, b3, s6, out_dtype=tl.int32)
        s7 = tl.dot(a4, b3, s7, out_dtype=tl.int32)
        b4, b = _next_byte(b)
        s4 = tl.dot(a0, b4, s4, out_dtype=tl.int32)
        s5 = tl.dot(a1, b4, s5, out_dtype=tl.int32)
        s6 = tl.dot(a2, b4, s6, out_dtype=tl.int32)
        s7 = tl.dot(a3, b4, s7, out_dtype=tl.int32)
        b5, b = _next_byte(b)
        s5 = tl.dot(a0, b5, s5, out_dtype=tl.int32)
        s6 = tl.dot(a1, b5, s6, out_dtype=tl.int32)
        s7 = tl.dot(a2, b5, s7, out_dtype=tl.int32)
        b6, b = _next_byte(b)
        s6 = tl.dot(a0, b6, s6, out_dtype=tl.int32)
        s7 = tl.dot(a1, b6, s7, out_dtype=tl.int32)
        b7 = b.to(tl.int8)
        s7 = tl.dot(a0, b7, s7, out_dtype=tl.int32)
    total = s7.to(tl.int64)
    total = (total << 8) + s6.to(tl.int64)
    total = (total << 8) + s5.to(tl.int64)
    total = (total << 8) + s4.to(tl.int64)
    total = (total << 8) + s3.to(tl.int64)
    total = (total << 8) + s2.to(tl.int64)
    total = (total << 8) + s1.to(tl.int64)
    total = (total << 8) + s0.to(tl.int64)
    out = c_ptr + batch * c_batch + m[:, None] * columns + n[None, :]
    inside = (m[:, None] < rows) & (n[None, :] < columns)
    if SPLITS > 1:
        tl.atomic_add(out, total, mask=inside, sem="relaxed")
    elif ADD:
        tl.store(out, tl.load(out, mask=inside, other=0) + total, mask=inside)
    else:
        tl.store(out, total, mask=inside)


def bytes_bmm(
    x: torch.Tensor,
    y: torch.Tensor,
    out: torch.Tensor,
    add: bool,
    tile: tuple[int, int, int, int] | None = None,
    splits: int = 0,
) -> torch.Tensor:
    """out (+)= x @ y for (B, M, K) and (B, K, N) with any strides; `out` is contiguous."""
    batch, rows, inner = x.shape
    columns = y.shape[2]
    bm, bn, bk, warps = tile or ((64, 32, 32, 4) if rows > 32 else (32, 64, 32, 4))
    tiles = triton.cdiv(rows, bm) * triton.cdiv(columns, bn)
    if not splits:  # fill the card where there are few tiles; long sums have to be cut in any case
        splits = max(1, min(264 // max(tiles * batch, 1), inner // 256))
    splits = max(splits, triton.cdiv(inner, _BYTES_INNER))
    per_split = triton.cdiv(triton.cdiv(inner, splits), bk) * bk
    splits = triton.cdiv(inner, per_split)
    if splits > 1 and not add:
        out.zero_()
    _bytes_kernel[(tiles, batch, splits)](
        x, y, out, rows, columns, inner, per_split,
        *x.stride(), *y.stride(), out.stride(0),
        BM=bm, BN=bn, BK=bk, ADD=add, SPLITS=splits, num_warps=warps,
    )  # fmt: skip
    return out


# -- residues ------------------------------------------------------------------------------------------


@triton.jit
def _residue(t, MODULUS: tl.constexpr):
    """Balanced residue of an int32 below 2^31 in absolute value."""
    if MODULUS == 256:
        return t.to(tl.int8).to(tl.int32)
    # fold to 19 bits, then one rounded quotient in float32, which is exact there: m is odd, so no tie
    t = (t & 0xFFFF) + (t >> 16) * (65536 % MODULUS)
    t = (t & 0xFFFF) + (t >> 16) * (65536 % MODULUS)
    q = tl.floor(t.to(tl.float32) * (1.0 / MODULUS) + 0.5).to(tl.int32)
    return t - q * MODULUS


@triton.jit
def _word_residue(low, second, third, top, MODULUS: tl.constexpr):
    """Of a word in four parts of 16 bits, the top one signed."""
    t = low + second * (65536 % MODULUS)
    t += third * ((65536 * 65536) % MODULUS) + top * ((65536 * 65536 * 65536) % MODULUS)
    return _residue(t, MODULUS)


@triton.jit
def _coefficient(product, MODULUS: tl.constexpr, INVERSE: tl.constexpr):
    """c_i of NOTE [Residues], and c_i / m_i."""
    c = _residue(_residue(product, MODULUS) * INVERSE, MODULUS)
    return c.to(tl.int64), c.to(tl.float32) * (1.0 / MODULUS)


@triton.jit
def _residues_kernel(
    x_ptr, out_ptr, rows, columns, x_row, x_column, padded_rows, padded_columns,
    COUNT: tl.constexpr, MODULI: tl.constexpr, BR: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    r = (tl.program_id(0) * BR + tl.arange(0, BR)).to(tl.int64)
    c = (tl.program_id(1) * BC + tl.arange(0, BC)).to(tl.int64)
    inside = (r[:, None] < rows) & (c[None, :] < columns)
    x = tl.load(x_ptr + r[:, None] * x_row + c[None, :] * x_column, mask=inside, other=0)
    low = (x & 0xFFFF).to(tl.int32)
    second = ((x >> 16) & 0xFFFF).to(tl.int32)
    third = ((x >> 32) & 0xFFFF).to(tl.int32)
    top = (x >> 48).to(tl.int32)
    size = padded_rows * padded_columns
    out = out_ptr + r[:, None] * padded_columns + c[None, :]
    there = (r[:, None] < padded_rows) & (c[None, :] < padded_columns)
    for i in tl.static_range(COUNT):
        tl.store(out + i * size, _word_residue(low, second, third, top, MODULI[i]).to(tl.int8), mask=there)


@triton.jit
def _recombine_kernel(
    p_ptr, out_ptr, size, columns, padded_columns, p_size,
    COUNT: tl.constexpr, MODULI: tl.constexpr, INVERSES: tl.constexpr, w_ptr, PRODUCT,
    ADD: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < size
    source = p_ptr + (at // columns) * padded_columns + at % columns
    total = tl.zeros((BLOCK,), tl.int64)
    fraction = tl.zeros((BLOCK,), tl.float32)
    for i in tl.static_range(COUNT):
        c, part = _coefficient(tl.load(source + i * p_size, mask=inside, other=0), MODULI[i], INVERSES[i])
        total += c * tl.load(w_ptr + i)
        fraction += part
    q = tl.floor(fraction + 0.5).to(tl.int64)
    total -= q * PRODUCT
    if ADD:
        total += tl.load(out_ptr + at, mask=inside, other=0)
    tl.store(out_ptr + at, total, mask=inside)


_weights: dict[tuple[torch.device, int], torch.Tensor] = {}


def _weights_on(device: torch.device, constants: Moduli) -> torch.Tensor:
    key = (device, len(constants.moduli))
    if key not in _weights:
        _weights[key] = torch.tensor(constants.weights, dtype=torch.int64, device=device)
    return _weights[key]


def residues_of(x: torch.Tensor, constants: Moduli, rows: int, columns: int) -> torch.Tensor:
    """(count, rows, columns) int8: the residues of a matrix with any strides, padded with zeros."""
    out = torch.empty((len(constants.moduli), rows, columns), dtype=torch.int8, device=x.device)
    br, bc = (16, 128)
    _residues_kernel[(triton.cdiv(rows, br), triton.cdiv(columns, bc))](
        x, out, *x.shape, *x.stride(), rows, columns,
        COUNT=len(constants.moduli), MODULI=constants.moduli, BR=br, BC=bc,
    )  # fmt: skip
    return out


def residues_mm(x: torch.Tensor, y: torch.Tensor, out: torch.Tensor, add: bool) -> torch.Tensor:
    """out (+)= x @ y for (M, K) and (K, N) with any strides; `out` is contiguous."""
    rows, inner = x.shape
    columns = y.shape[1]
    constants = moduli_for(min(inner, MAX_INNER))
    for start in range(0, inner, MAX_INNER):
        part = slice(start, start + MAX_INNER)
        xs, ys = x[:, part], y[part]
        m, n, k = max(32, -(-rows // 8) * 8), -(-columns // 16) * 16, -(-xs.shape[1] // 16) * 16
        left = residues_of(xs, constants, m, k)
        right = residues_of(ys.t(), constants, n, k)  # the library wants the second one transposed
        products = torch.empty((len(constants.moduli), m, n), dtype=torch.int32, device=x.device)
        for i in range(len(constants.moduli)):
            torch.ops.aten._int_mm.out(left[i], right[i].t(), out=products[i])
        size = rows * columns
        _recombine_kernel[(triton.cdiv(size, 1024),)](
            products, out, size, columns, n, m * n,
            len(constants.moduli), constants.moduli, constants.inverses,
            _weights_on(x.device, constants), constants.product, add or start > 0, 1024,
        )  # fmt: skip
    return out


# -- both ----------------------------------------------------------------------------------------------


def matmul(
    x: torch.Tensor, y: torch.Tensor, out: torch.Tensor | None = None, add: bool = False
) -> torch.Tensor:
    """`torch.matmul` of int64 tensors; with `add`, `out += x @ y`."""
    made = torch.matmul(
        torch.empty(x.shape, device="meta"), torch.empty(y.shape, device="meta")
    ).shape  # says what does not fit
    if out is None:
        out, add = torch.empty(made, dtype=torch.int64, device=x.device), False
    if not out.is_contiguous():
        return out.copy_(matmul(x, y) + out if add else matmul(x, y))
    if 0 in (*x.shape, *y.shape):
        return out if add else out.zero_()
    left = x.unsqueeze(0) if x.ndim == 1 else x
    right = y.unsqueeze(1) if y.ndim == 1 else y
    rows, inner, columns = left.shape[-2], left.shape[-1], right.shape[-1]
    if right.ndim == 2 and left.ndim > 2:  # one matrix for all: its rows together
        left = left.reshape(-1, inner)
        rows = left.shape[0]
    if left.ndim == right.ndim == 2:
        if rows * inner * columns >= _RESIDUES_FROM and min(rows, inner, columns) >= 256:
            residues_mm(left, right, out.view(rows, columns), add)
        else:
            bytes_bmm(left.unsqueeze(0), right.unsqueeze(0), out.view(1, rows, columns), add)
        return out
    batch = torch.broadcast_shapes(left.shape[:-2], right.shape[:-2])
    left = left.expand(*batch, rows, inner).reshape(-1, rows, inner)
    right = right.expand(*batch, inner, columns).reshape(-1, inner, columns)
    bytes_bmm(left, right, out.view(-1, rows, columns), add)
    return out
