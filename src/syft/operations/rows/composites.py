"""Operations that torch runs as several others. They run as those, each by its own row.

Pointers send what they are made of; other programs may send them by name.
"""

from __future__ import annotations

from syft.operations.argument_checks import check_matrix_power
from syft.operations.layer_checks import check_heads, check_recurrent
from syft.operations.row import OTHER_SHAPE, PART_OF_A_ROW, TIMES_PUBLIC, Row, rows
from syft.operations.spec_checks import check_pieces, check_window

_FAMILY = "composites"

ROWS = [
    *rows(
        _FAMILY,
        """where.ScalarSelf where.ScalarOther where.Scalar conj_physical
        matmul square selu relu6 absolute subtract.Tensor multiply.Tensor divide.Tensor true_divide.Tensor negative
        greater.Tensor greater.Scalar less.Tensor less.Scalar clip contiguous to.dtype to.dtype_layout to.other
        type_as expand_as view_as softmax.int log_softmax.int cross_entropy_loss layer_norm group_norm
         dropout feature_dropout alpha_dropout narrow movedim.int movedim.intlist moveaxis.int swapaxes
        swapdims einsum outer ger std std.dim var var.dim std_mean var_mean concat concatenate vstack hstack dstack
        column_stack pad nll_loss nll_loss_nd bilinear cosine_similarity pairwise_distance kl_div l1_loss
        triplet_margin_loss margin_ranking_loss hinge_embedding_loss cosine_embedding_loss poisson_nll_loss
        log_sigmoid prelu linalg_norm linalg_matrix_norm linalg_solve linalg_inv linalg_det logdet slogdet
        linalg_cholesky linalg_svd linalg_eigh linalg_slogdet linalg_pinv kron tensordot inner diff
        trapezoid.x trapezoid.dx tile repeat_interleave.self_int ravel numpy_T mT mH adjoint argsort msort isfinite isreal
        isclose fliplr flipud trace_backward value_selecting_reduction_backward lstm_cell gru_cell
        rnn_tanh_cell rnn_relu_cell cumulative_trapezoid.dx diag linalg_diagonal
        linalg_vecdot linalg_multi_dot linalg_matmul cdist max.other min.other rrelu
        broadcast_to atleast_1d atleast_2d atleast_3d special_softmax special_log_softmax special_expit
        special_logsumexp fix arccos arcsin arctan not_equal.Tensor greater_equal.Tensor less_equal.Tensor
        unflatten.int """,
        way="decomposed",
    ),
    *rows(_FAMILY, "linear", way="decomposed", row_wise=TIMES_PUBLIC),
    *rows(_FAMILY, "reshape flatten.using_ints", way="decomposed", row_wise=OTHER_SHAPE),
    *rows(
        _FAMILY,
        "chunk tensor_split.sections tensor_split.indices split.sizes hsplit.int vsplit.int",
        way="decomposed",
        row_wise=PART_OF_A_ROW,
        check=check_pieces,
    ),
    *rows(_FAMILY, "linalg_matrix_power matrix_power", way="decomposed", check=check_matrix_power),
    *rows(
        _FAMILY,
        """conv1d conv2d conv3d conv1d.padding conv2d.padding conv3d.padding conv_transpose1d conv_transpose2d.input
        conv_transpose3d.input max_pool1d max_pool2d max_pool3d avg_pool1d adaptive_avg_pool1d adaptive_avg_pool2d
        adaptive_avg_pool3d adaptive_max_pool1d""",
        way="decomposed",
        check=check_window,
    ),
    *rows(_FAMILY, "scaled_dot_product_attention", way="decomposed", check=check_heads),
    *rows(
        _FAMILY, "lstm.input gru.input rnn_tanh.input rnn_relu.input", way="decomposed", check=check_recurrent
    ),
    *(
        Row(f"torch.{name}", _FAMILY, "decomposed", check=check_recurrent)
        for name in ("lstm", "gru", "rnn_tanh", "rnn_relu")
    ),
]
