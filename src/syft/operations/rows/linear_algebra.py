"""Products of matrices, factorisations, solvers, distances."""

from __future__ import annotations

from syft.operations.argument_checks import (
    check_distances,
    check_fourier,
    check_gradient_of_distances,
    check_pair_gradients,
    check_pivots,
    check_rows,
)
from syft.operations.costs import cubes, factors, pairs, products
from syft.operations.row import TIMES_PUBLIC, copies, rows

_FAMILY = "linear algebra"

ROWS = [
    *rows(_FAMILY, "mm mv addmm addmv", in_place=True, row_wise=TIMES_PUBLIC, work=products, extra=copies),
    *rows(_FAMILY, "bmm baddbmm addbmm addr dot vdot _trilinear", in_place=True, work=products, extra=copies),
    *rows(
        _FAMILY,
        """linalg_cholesky_ex cholesky cholesky_inverse cholesky_solve linalg_inv_ex _linalg_det _linalg_slogdet
        _linalg_solve_ex linalg_solve_triangular triangular_solve linalg_lu linalg_lu_factor_ex linalg_qr ormqr
        linalg_householder_product linalg_cross linalg_ldl_factor_ex _linalg_check_errors""",
        work=cubes,
        extra=factors,
    ),
    # NB: LAPACK does not end well on NaN and infinities, in some versions not at all.
    *rows(
        _FAMILY,
        """_linalg_eigh linalg_eig _linalg_eigvals _linalg_svd linalg_matrix_exp
        linalg_pinv.atol_rtol_tensor""",
        way="checked",
        work=cubes,
        extra=factors,
    ),
    *rows(_FAMILY, "linalg_lu_solve lu_unpack", way="checked", check=check_pivots, work=cubes, extra=factors),
    *rows(_FAMILY, "_fft_c2c _fft_r2c _fft_c2r", check=check_fourier, work=cubes, extra=factors),
    *rows(_FAMILY, "_euclidean_dist _cdist_forward", check=check_distances, work=pairs, extra=copies),
    *rows(_FAMILY, "_cdist_backward", check=check_gradient_of_distances, work=pairs, extra=copies),
    *rows(_FAMILY, "_pdist_forward", check=check_rows, work=pairs, extra=copies),
    *rows(_FAMILY, "_pdist_backward", check=check_pair_gradients, work=pairs, extra=copies),
]
