"""Convolutions, pools, paddings, resampling."""

from __future__ import annotations

from syft.operations.costs import columns, windows
from syft.operations.row import copies, rows
from syft.operations.spec_checks import (
    check_adaptive_pool,
    check_columns,
    check_convolution,
    check_fractions,
    check_grid_2d,
    check_grid_3d,
    check_not_empty,
    check_padded_1d,
    check_padded_2d,
    check_padded_3d,
    check_pooled_2d,
    check_pooled_3d,
    check_scales,
    check_shuffle,
    check_unfolded,
    check_unpooled,
    check_window,
)

_FAMILY = "convolution and pooling"

ROWS = [
    *rows(_FAMILY, "convolution", check=check_window, work=windows, extra=columns),
    *rows(_FAMILY, "convolution_backward", check=check_convolution, work=windows, extra=columns),
    *rows(
        _FAMILY,
        "avg_pool2d avg_pool3d max_pool2d_with_indices max_pool3d_with_indices im2col",
        check=check_window,
        work=windows,
        extra=copies,
    ),
    *rows(
        _FAMILY,
        "_adaptive_avg_pool2d _adaptive_avg_pool3d adaptive_max_pool2d adaptive_max_pool3d",
        check=check_adaptive_pool,
        work=windows,
        extra=copies,
    ),
    *rows(_FAMILY, "col2im", check=check_columns, work=windows, extra=copies),
    *rows(
        _FAMILY,
        "avg_pool2d_backward _adaptive_avg_pool2d_backward",
        check=check_pooled_2d,
        work=windows,
        extra=copies,
    ),
    *rows(
        _FAMILY,
        "avg_pool3d_backward _adaptive_avg_pool3d_backward",
        check=check_pooled_3d,
        work=windows,
        extra=copies,
    ),
    # Pools whose indices torch trusts.
    *rows(
        _FAMILY,
        "max_pool2d_with_indices_backward adaptive_max_pool2d_backward",
        way="checked",
        check=check_pooled_2d,
        work=windows,
        extra=copies,
    ),
    *rows(
        _FAMILY,
        "max_pool3d_with_indices_backward adaptive_max_pool3d_backward",
        way="checked",
        check=check_pooled_3d,
        work=windows,
        extra=copies,
    ),
    *rows(
        _FAMILY,
        """fractional_max_pool2d fractional_max_pool3d fractional_max_pool2d_backward
        fractional_max_pool3d_backward""",
        way="checked",
        check=check_fractions,
        work=windows,
        extra=copies,
    ),
    *rows(
        _FAMILY, "max_unpool2d max_unpool3d", way="checked", check=check_unpooled, work=windows, extra=copies
    ),
    # Paddings.
    *rows(
        _FAMILY,
        """constant_pad_nd reflection_pad1d reflection_pad2d reflection_pad3d replication_pad1d replication_pad2d
        replication_pad3d""",
        extra=copies,
    ),
    *rows(
        _FAMILY, "reflection_pad1d_backward replication_pad1d_backward", check=check_padded_1d, extra=copies
    ),
    *rows(
        _FAMILY, "reflection_pad2d_backward replication_pad2d_backward", check=check_padded_2d, extra=copies
    ),
    *rows(
        _FAMILY, "reflection_pad3d_backward replication_pad3d_backward", check=check_padded_3d, extra=copies
    ),
    *rows(_FAMILY, "unfold_backward", check=check_unfolded, extra=copies),
    *rows(_FAMILY, "pixel_shuffle pixel_unshuffle", check=check_not_empty, extra=copies),
    *rows(_FAMILY, "channel_shuffle", check=check_shuffle, extra=copies),
    # Resampling.
    *rows(
        _FAMILY,
        """upsample_nearest1d upsample_nearest2d upsample_nearest3d upsample_linear1d upsample_bilinear2d
        upsample_trilinear3d upsample_bicubic2d _upsample_nearest_exact1d _upsample_nearest_exact2d
        _upsample_nearest_exact3d _upsample_bilinear2d_aa _upsample_bicubic2d_aa upsample_nearest1d_backward
        upsample_nearest2d_backward upsample_nearest3d_backward upsample_linear1d_backward
        upsample_bilinear2d_backward upsample_trilinear3d_backward upsample_bicubic2d_backward
        _upsample_nearest_exact1d_backward _upsample_nearest_exact2d_backward _upsample_nearest_exact3d_backward
        _upsample_bilinear2d_aa_backward _upsample_bicubic2d_aa_backward""",
        check=check_scales,
        work=windows,
        extra=copies,
    ),
    *rows(
        _FAMILY,
        "grid_sampler_2d grid_sampler_2d_backward",
        way="checked",
        check=check_grid_2d,
        work=windows,
        extra=copies,
    ),
    *rows(
        _FAMILY,
        "grid_sampler_3d grid_sampler_3d_backward",
        way="checked",
        check=check_grid_3d,
        work=windows,
        extra=copies,
    ),
]
