"""Operations that take indices from tensors. torch looks at the indices of most; of the others we do."""

from __future__ import annotations

from syft.operations.argument_checks import (
    check_bag,
    check_bag_backward,
    check_embedding,
    check_index,
    check_one_hot,
    check_repeats,
    check_search,
)
from syft.operations.costs import sorting
from syft.operations.row import PART_OF_A_ROW, copies, rows
from syft.operations.spec_checks import check_strides

_FAMILY = "indexing"

ROWS = [
    *rows(_FAMILY, "index_select", row_wise=PART_OF_A_ROW, extra=copies),
    *rows(
        _FAMILY,
        """gather scatter.src scatter.value scatter.reduce scatter.value_reduce scatter_add scatter_reduce.two index_add
        index_copy index_fill.int_Scalar index_fill.int_Tensor index_reduce take put masked_scatter
        masked_scatter_backward select_scatter slice_scatter diagonal_scatter isin.Tensor_Tensor isin.Tensor_Scalar
        isin.Scalar_Tensor nonzero_static""",
        in_place=True,
        work=sorting,
        extra=copies,
    ),
    *rows(
        _FAMILY,
        "bucketize.Tensor searchsorted.Tensor bucketize.Scalar searchsorted.Scalar",
        way="checked",
        check=check_search,
        work=sorting,
        extra=copies,
    ),
    *rows(_FAMILY, "index.Tensor index_put", in_place=True, check=check_index, extra=copies),
    *rows(
        _FAMILY,
        "_unsafe_index.Tensor _unsafe_index_put _unsafe_masked_index _unsafe_masked_index_put_accumulate",
        way="checked",
        check=check_index,
        extra=copies,
    ),
    *rows(_FAMILY, "as_strided_scatter", check=check_strides, extra=copies),
    *rows(_FAMILY, "one_hot", check=check_one_hot, extra=copies),
    *rows(_FAMILY, "embedding", extra=copies),
    *rows(_FAMILY, "embedding_dense_backward", way="checked", check=check_embedding, extra=copies),
    *rows(
        _FAMILY, "_embedding_bag _embedding_bag_forward_only", way="checked", check=check_bag, extra=copies
    ),
    *rows(
        _FAMILY,
        """_embedding_bag_backward _embedding_bag_dense_backward
        _embedding_bag_per_sample_weights_backward""",
        way="checked",
        check=check_bag_backward,
        extra=copies,
    ),
    *rows(_FAMILY, "repeat_interleave.Tensor", way="checked", check=check_repeats, extra=copies),
]
