"""Operations along dimensions: sums, extremes, sorting, softmax."""

from __future__ import annotations

from syft.operations.argument_checks import check_output
from syft.operations.costs import selecting, sorting
from syft.operations.row import ALONG_A_ROW, copies, rows

_FAMILY = "reductions"

ROWS = [
    *rows(
        _FAMILY,
        """sum.dim_IntList mean.dim prod.dim_int amax amin argmax argmin any.dim any.dims all.dim all.dims logsumexp
        var.correction std.correction _softmax _log_softmax cumsum cumprod linalg_vector_norm nansum""",
        in_place=True,
        row_wise=ALONG_A_ROW,
        extra=copies,
    ),
    *rows(
        _FAMILY,
        "max.dim min.dim median.dim nanmedian.dim sort sort.stable topk kthvalue mode",
        row_wise=ALONG_A_ROW,
        work=sorting,
        extra=selecting,
    ),
    *rows(
        _FAMILY,
        """sum mean prod all any max min aminmax var_mean.correction std_mean.correction count_nonzero
        count_nonzero.dim_IntList cummax cummin logcumsumexp norm.ScalarOpt_dim norm.Scalar norm.ScalarOpt_dtype
        norm.ScalarOpt_dim_dtype dist _safe_softmax trace renorm histc""",
        in_place=True,
        extra=copies,
    ),
    *rows(_FAMILY, "median nanmedian", work=sorting, extra=selecting),
    *rows(_FAMILY, "_softmax_backward_data _log_softmax_backward_data", check=check_output, extra=copies),
]
