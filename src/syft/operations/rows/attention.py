"""Attention, and the layer that recurrent networks are made of on a CPU."""

from __future__ import annotations

from syft.operations.costs import attention, products, scores, twice
from syft.operations.layer_checks import check_attention, check_recurrent_layer
from syft.operations.row import rows

_FAMILY = "attention"

ROWS = [
    *rows(
        _FAMILY,
        "_scaled_dot_product_flash_attention_for_cpu _scaled_dot_product_flash_attention_for_cpu_backward",
        check=check_attention,
        work=attention,
        extra=scores,
    ),
    *rows(
        _FAMILY,
        "mkldnn_rnn_layer mkldnn_rnn_layer_backward",
        check=check_recurrent_layer,
        work=products,
        extra=twice,
        inner=True,
    ),
]
