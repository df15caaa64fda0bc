"""Views, copies, tensors made of nothing, and tensors put together."""

from __future__ import annotations

from syft.operations.row import (
    BESIDE,
    ELEMENTWISE,
    OTHER_SHAPE,
    PART_OF_A_ROW,
    PERMUTE,
    SLICE,
    TRANSPOSE,
    nothing,
    rows,
)
from syft.operations.spec_checks import check_pieces, check_strides

_FAMILY = "views and creation"

ROWS = [
    # Views.
    *rows(_FAMILY, "alias detach lift_fresh", row_wise=ELEMENTWISE, work=nothing),
    *rows(_FAMILY, "view view_as_real", row_wise=OTHER_SHAPE, work=nothing),
    *rows(_FAMILY, "select.int squeeze.dim squeeze.dims", row_wise=PART_OF_A_ROW, work=nothing),
    *rows(
        _FAMILY,
        "unbind.int split.Tensor split_with_sizes",
        row_wise=PART_OF_A_ROW,
        check=check_pieces,
        work=nothing,
    ),
    *rows(_FAMILY, "unsqueeze", row_wise=BESIDE, work=nothing),
    *rows(_FAMILY, "slice.Tensor", row_wise=SLICE, work=nothing),
    *rows(_FAMILY, "transpose.int", row_wise=TRANSPOSE, work=nothing),
    *rows(_FAMILY, "permute", row_wise=PERMUTE, work=nothing),
    *rows(_FAMILY, "expand t squeeze unfold diagonal view.dtype view_as_complex", work=nothing),
    *rows(_FAMILY, "as_strided _reshape_alias", check=check_strides, work=nothing),
    # They change the shape of a tensor itself, which is fine of one that is made on the way.
    *rows(_FAMILY, "transpose_ t_ squeeze_ squeeze_.dim unsqueeze_", inner=True, work=nothing),
    # Copies.
    *rows(_FAMILY, "clone _to_copy", row_wise=ELEMENTWISE),
    *rows(_FAMILY, "_unsafe_view", row_wise=OTHER_SHAPE),
    *rows(_FAMILY, "unsafe_split.Tensor unsafe_split_with_sizes", check=check_pieces),
    *rows(_FAMILY, "unbind_copy.int split_copy.Tensor split_with_sizes_copy", check=check_pieces),
    *rows(_FAMILY, "as_strided_copy", check=check_strides),
    *rows(
        _FAMILY,
        """alias_copy detach_copy diagonal_copy expand_copy permute_copy select_copy.int slice_copy.Tensor squeeze_copy
        squeeze_copy.dim squeeze_copy.dims t_copy transpose_copy.int unfold_copy unsqueeze_copy view_copy narrow_copy
        view_as_real_copy view_as_complex_copy""",
    ),
    # Tensors put together, or turned about.
    *rows(_FAMILY, "cat stack", row_wise=BESIDE),
    *rows(
        _FAMILY,
        """repeat flip roll rot90 tril triu diag_embed block_diag diagonal_backward select_backward slice_backward
        fill.Scalar fill.Tensor copy""",
        in_place=True,
    ),
    # In place by nature.
    *rows(_FAMILY, "zero_", direct=True),
    # Tensors made of nothing; those that torch would not fill are filled with zeros.
    *rows(_FAMILY, "zeros_like ones_like full_like empty_like", row_wise=ELEMENTWISE),
    *rows(
        _FAMILY,
        """zeros ones full arange arange.start arange.start_step eye eye.m linspace logspace scalar_tensor tril_indices
        triu_indices new_zeros new_ones new_full empty.memory_format empty_strided empty_permuted new_empty
        new_empty_strided _efficientzerotensor""",
    ),
]
