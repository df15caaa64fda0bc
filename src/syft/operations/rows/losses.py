"""Losses and their backward passes."""

from __future__ import annotations

from syft.operations.costs import pairs
from syft.operations.layer_checks import (
    check_ctc,
    check_loss,
    check_loss_backward,
    check_margins,
    check_margins_backward,
    check_nll,
    check_nll_backward,
)
from syft.operations.row import copies, rows

_FAMILY = "losses"

ROWS = [
    *rows(_FAMILY, "mse_loss binary_cross_entropy_with_logits", extra=copies),
    *rows(
        _FAMILY,
        "smooth_l1_loss huber_loss binary_cross_entropy soft_margin_loss",
        check=check_loss,
        extra=copies,
    ),
    *rows(
        _FAMILY,
        """mse_loss_backward smooth_l1_loss_backward huber_loss_backward binary_cross_entropy_backward
        soft_margin_loss_backward""",
        check=check_loss_backward,
        extra=copies,
    ),
    *rows(_FAMILY, "nll_loss_forward nll_loss2d_forward", way="checked", check=check_nll, extra=copies),
    *rows(
        _FAMILY,
        "nll_loss_backward nll_loss2d_backward",
        way="checked",
        check=check_nll_backward,
        extra=copies,
    ),
    *rows(
        _FAMILY,
        "multi_margin_loss multilabel_margin_loss_forward",
        way="checked",
        check=check_margins,
        work=pairs,
        extra=copies,
    ),
    *rows(
        _FAMILY,
        "multi_margin_loss_backward multilabel_margin_loss_backward",
        way="checked",
        check=check_margins_backward,
        work=pairs,
        extra=copies,
    ),
    *rows(_FAMILY, "_ctc_loss _ctc_loss_backward", way="checked", check=check_ctc, work=pairs, extra=copies),
]
