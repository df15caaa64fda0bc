"""Normalisations and their backward passes, which trust the statistics that they are given."""

from __future__ import annotations

from syft.operations.layer_checks import (
    check_batch_norm,
    check_group_norm,
    check_layer_norm,
    check_weight_norm,
)
from syft.operations.row import copies, rows

_FAMILY = "norms"
_STATISTICS = ("running_mean", "running_var")

ROWS = [
    *rows(_FAMILY, "native_batch_norm", check=check_batch_norm, extra=copies, writes=_STATISTICS),
    *rows(
        _FAMILY,
        """_native_batch_norm_legit _native_batch_norm_legit.no_stats _native_batch_norm_legit_no_training
        _native_batch_norm_legit_functional _batch_norm_with_update _batch_norm_with_update_functional
        _batch_norm_no_update native_batch_norm_backward batch_norm_backward""",
        check=check_batch_norm,
        extra=copies,
    ),
    *rows(_FAMILY, "native_layer_norm native_layer_norm_backward", check=check_layer_norm, extra=copies),
    *rows(_FAMILY, "native_group_norm native_group_norm_backward", check=check_group_norm, extra=copies),
    *rows(
        _FAMILY,
        "_weight_norm_interface _weight_norm_interface_backward",
        check=check_weight_norm,
        extra=copies,
    ),
]
