"""torch's own operator database through fixed precision over plain integers, values and gradients."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import opdb
from syft.core.chain import Wrapper, new_wrapper
from syft.mpc.precision import FixedPrecisionTensor

#: 20 fractional bits; results may differ by this, relative or absolute.
BASE, DIGITS, TOLERANCE = 2, 20, 2e-3

COMPLEX = "complex numbers have no fixed-precision form"
SPARSE = "a chain presents dense tensors, and the result is sparse"
SHOWS = "the shape of the result, or the draw, would show the secret"
FACTORS = "matrix factorisations pivot on the data; only the inverse and `solve` exist"
SPECIAL = "no approximation yet"
BACKWARD = "forward or backward has neither a rule nor a decomposition by torch"
VALUES = (
    "NaN or infinity among the values, strides beyond the tensor, or a result that the precision cannot hold"
)
NO_RULE = "no rule yet"

#: The entries that do not agree with plain torch, and why. Strict: whoever mends one strikes its name.
NOT_YET: dict[str, str] = {
    name: reason
    for reason, names in {
        COMPLEX: """
            view_as_complex complex stft polar cdouble cfloat chalf fft.fft fft.fft2 fft.fftn fft.hfft
            fft.hfft2 fft.hfftn fft.rfft fft.rfft2 fft.rfftn fft.ifft fft.ifft2 fft.ifftn fft.ihfft
            fft.ihfft2 fft.ihfftn fft.irfft fft.irfft2 fft.irfftn
        """,
        SPARSE: """
            sparse.sampled_addmm sparse.mm.reduce to_sparse
        """,
        SHOWS: """
            unique unique_consecutive multinomial nonzero nonzero_static argwhere
        """,
        FACTORS: """
            cholesky cholesky_inverse cholesky_solve geqrf lu_unpack lu lu_solve matrix_exp ormqr qr
            triangular_solve svd svd_lowrank pca_lowrank pinverse logdet norm.nuc linalg.det
            linalg.cholesky linalg.cholesky_ex linalg.cond linalg.eig linalg.eigvals linalg.eigh
            linalg.eigvalsh linalg.householder_product linalg.ldl_factor linalg.ldl_factor_ex
            linalg.ldl_solve linalg.lstsq linalg.lstsq.grad_oriented linalg.qr linalg.slogdet
            linalg.lu_factor linalg.lu_factor_ex linalg.lu linalg.lu_solve linalg.solve_triangular
            linalg.matrix_rank linalg.matrix_rank.hermitian linalg.pinv linalg.pinv.singular
            linalg.pinv.hermitian linalg.svd linalg.svdvals
        """,
        SPECIAL: """
            i0 igamma igammac mvlgamma.mvlgamma_p_1 mvlgamma.mvlgamma_p_3 mvlgamma.mvlgamma_p_5
            polygamma.polygamma_n_0 polygamma.polygamma_n_1 polygamma.polygamma_n_2
            polygamma.polygamma_n_3 polygamma.polygamma_n_4 digamma erfinv lgamma special.i0e special.i1
            special.i1e special.polygamma.special_polygamma_n_0 special.zeta special.ndtri
            special.log_ndtr special.erfcx special.airy_ai special.bessel_j0 special.bessel_j1
            special.bessel_y0 special.bessel_y1 special.chebyshev_polynomial_t
            special.chebyshev_polynomial_u special.chebyshev_polynomial_v special.chebyshev_polynomial_w
            special.hermite_polynomial_h special.hermite_polynomial_he special.laguerre_polynomial_l
            special.legendre_polynomial_p special.modified_bessel_i0 special.modified_bessel_i1
            special.modified_bessel_k0 special.modified_bessel_k1 special.scaled_modified_bessel_k0
            special.scaled_modified_bessel_k1 special.shifted_chebyshev_polynomial_t
            special.shifted_chebyshev_polynomial_u special.shifted_chebyshev_polynomial_v
            special.shifted_chebyshev_polynomial_w special.spherical_bessel_j0
        """,
        BACKWARD: """
            masked_scatter nn.functional.pad.replicate nn.functional.pad.replicate_negative
            nn.functional.multi_margin_loss nn.functional.multilabel_margin_loss
        """,
        VALUES: """
            item as_strided.partial_views torch.ops.aten._safe_softmax.default
            __rpow__ logit special.xlog1py masked.median masked.log_softmax
            masked.logaddexp
        """,
        NO_RULE: """
            atan2 allclose cdist cummax cummin frexp isin nn.functional.linear_cross_entropy.chunked
            nn.functional.linear_cross_entropy.chunked_none _batch_norm_with_update
            nn.functional.adaptive_avg_pool3d nn.functional.avg_pool3d _upsample_bilinear2d_aa
            nn.functional.fractional_max_pool2d nn.functional.fractional_max_pool3d
            nextafter mode angle index_reduce.mean index_reduce.prod
            index_reduce.amin index_reduce.amax histogram histogramdd histc bucketize searchsorted
            resize_ resize_as_ logcumsumexp nn.functional.grid_sample
            grid_sampler_2d grid_sampler_3d hash_tensor nn.functional.ctc_loss nn.functional.pdist
            scatter_reduce.sum scatter_reduce.prod scatter_reduce.mean scatter_reduce.amin
            scatter_reduce.amax _segment_reduce.lengths _segment_reduce.offsets nn.functional.rrelu
        """,
    }.items()
    for name in names.split()
}

#: n^2 comparisons, and the database asks for 20 000 elements.
TOO_LARGE = {"sort", "msort", "argsort"}

#: Functions that make tensors from numbers, and entries of the database whose samples hold none.
TAKES_NO_TENSOR = set(
    """
    arange broadcast_shapes linspace logspace randn randint ones zeros full empty_strided empty eye
    empty_permuted scalar_tensor signal.windows.hamming signal.windows.hann signal.windows.bartlett
    signal.windows.blackman signal.windows.cosine signal.windows.exponential signal.windows.gaussian
    signal.windows.kaiser signal.windows.general_cosine signal.windows.general_hamming
    signal.windows.nuttall
    """.split()
)

#: What never makes sense on secrets: not counted against the share of supported entries.
WITHOUT_SENSE = (COMPLEX, SPARSE, SHOWS)


def lift(tensor: torch.Tensor) -> torch.Tensor:
    if not tensor.is_floating_point():
        return tensor
    chain = new_wrapper(FixedPrecisionTensor.encode(tensor.detach(), BASE, DIGITS))
    return chain.requires_grad_(tensor.requires_grad)


def lower(tensor: torch.Tensor) -> torch.Tensor:
    fixed = type(tensor) is Wrapper and isinstance(tensor.child, FixedPrecisionTensor)
    return tensor.child.decode() if fixed else tensor  # type: ignore[attr-defined]


def close(actual: torch.Tensor, expected: torch.Tensor, most: float = TOLERANCE, **_exactness: Any) -> None:
    if actual.shape != expected.shape:
        raise AssertionError(f"shape {tuple(actual.shape)} instead of {tuple(expected.shape)}")
    if expected.is_floating_point():
        tolerance = dict(rtol=most, atol=most, equal_nan=True)
        _assert_close(actual.double(), expected.double(), **tolerance)
    else:
        _assert_close(actual.to(expected.dtype), expected)


_assert_close = torch.testing.assert_close
ENTRIES = [op for op in opdb.entries(torch.float32) if opdb.op_id(op) not in TOO_LARGE]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("op", ENTRIES, ids=opdb.op_id)
def test_fixed_precision_agrees_with_torch(op: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.testing, "assert_close", close)

    def run() -> int:
        return opdb.compare(op, torch.float32, lift, lower, limit=3, may_be_plain=True)

    if opdb.op_id(op) in NOT_YET:
        with pytest.raises(Exception):  # noqa: B017, PT011  (whatever kind: the table says why)
            run()
    else:
        assert (run() == 0) == (opdb.op_id(op) in TAKES_NO_TENSOR)


def test_the_table_names_only_entries_and_most_are_supported() -> None:
    names = {opdb.op_id(op) for op in ENTRIES}
    assert set(NOT_YET) <= names | opdb.LATER
    sensible = [n for n in names - TAKES_NO_TENSOR if NOT_YET.get(n) not in WITHOUT_SENSE]
    assert sum(name not in NOT_YET for name in sensible) >= 0.7 * len(sensible)
