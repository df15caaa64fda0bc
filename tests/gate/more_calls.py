"""Calls of rows that none of torch's databases makes."""

from __future__ import annotations

from typing import Any

Call = tuple[str, list[Any], dict[str, Any]]


def f(*shape: int, dtype: str = "float32", low: float = -2.0, high: float = 2.0) -> dict[str, Any]:
    """A tensor of floats."""
    return {"t": list(shape), "d": dtype, "r": [low, high]}


def i(*shape: int, values: list[int] | None = None, dtype: str = "int64", most: int = 2) -> dict[str, Any]:
    """A tensor of integers."""
    made: dict[str, Any] = {"t": list(shape), "d": dtype}
    return {**made, "v": values} if values is not None else {**made, "r": [0, most]}


def b(*shape: int) -> dict[str, Any]:
    """A tensor of truth values."""
    return {"t": list(shape), "d": "bool"}


def calls(names: str, *args: Any, **kwargs: Any) -> list[Call]:
    """The same call of several operations; "abs" stands for "aten.abs.default"."""
    made = []
    for name in names.split():
        packet, _, overload = name.partition(".")
        made.append((f"aten.{packet}.{overload or 'default'}", list(args), kwargs))
    return made


def _foreach() -> list[Call]:
    one, two, three = ([f(3, 4), f(4)] for _ in range(3))
    unary = """abs acos asin atan ceil cos cosh erf erfc exp expm1 floor frac lgamma log log10 log1p log2 neg reciprocal
    round rsqrt sigmoid sign sin sinh sqrt tan tanh trunc"""
    made = [call for name in unary.split() for call in calls(f"_foreach_{name}", one)]
    for name in "add sub mul div clamp_max clamp_min maximum minimum pow".split():
        made += calls(f"_foreach_{name}.List", one, two)
        made += calls(f"_foreach_{name}.Scalar", one, 2.0)
        made += calls(f"_foreach_{name}.ScalarList", one, [2.0, 0.5])
    for name in ("add", "mul", "div"):
        made += calls(f"_foreach_{name}.Tensor", one, f())
    for name in ("addcdiv", "addcmul"):
        made += calls(f"_foreach_{name}.Scalar", one, two, three, 0.5)
        made += calls(f"_foreach_{name}.ScalarList", one, two, three, [0.5, 2.0])
    made += calls("_foreach_lerp.List", one, two, three) + calls("_foreach_lerp.Scalar", one, two, 0.5)
    made += calls("_foreach_lerp.ScalarList", one, two, [0.5, 0.1]) + calls("_foreach_norm.Scalar", one, 2)
    made += calls("_foreach_pow.ScalarAndTensor", 2.0, one) + calls("_foreach_zero_", one)
    made += calls("_foreach_copy_", one, two)
    for name in ("adam", "adamw"):
        options = dict(beta1=0.9, beta2=0.99, weight_decay=0.1, eps=1e-8, amsgrad=False, maximize=False)
        lists = [one, two, three, [f(3, 4, low=0), f(4, low=0)], [], [f(low=1), f(low=1)]]
        made += calls(f"_fused_{name}_", *lists, lr=0.1, **options)
        made += calls(f"_fused_{name}_.tensor_lr", *lists, lr=f(low=0), **options)
    return made


def _composites() -> list[Call]:
    x, y, m, row = f(3, 4), f(3, 4), f(4, 5), f(4)
    cube, image, volume = f(2, 3, 8), f(2, 3, 8, 8), f(2, 3, 6, 6, 6)
    made = calls(
        """square selu relu6 absolute negative log_sigmoid numpy_T mT mH adjoint ravel msort isfinite isreal
        fliplr flipud contiguous diff trapezoid.dx cumulative_trapezoid.dx diag linalg_diagonal atleast_1d
        atleast_2d atleast_3d special_expit fix arccos arcsin arctan argsort std var std_mean var_mean conj_physical rrelu
        clip linalg_norm flatten.using_ints""",
        x,
    )
    made += calls(
        """subtract.Tensor multiply.Tensor divide.Tensor true_divide.Tensor greater.Tensor less.Tensor type_as expand_as
        view_as to.other not_equal.Tensor greater_equal.Tensor less_equal.Tensor max.other min.other isclose kl_div
        l1_loss hinge_embedding_loss cosine_similarity pairwise_distance linalg_vecdot trapezoid.x kron inner cdist""",
        x,
        y,
    )
    made += calls("greater.Scalar less.Scalar", x, 0.5)
    made += calls("where.ScalarSelf", b(3, 4), 1.0, x) + calls("where.ScalarOther", b(3, 4), x, 1.0)
    made += calls("where.Scalar", b(3, 4), 1.0, 2.0) + calls("matmul linalg_matmul", x, m)
    made += calls("to.dtype", x, {"torch": "float64"}) + calls("to.dtype", x, {"torch": "float32"})
    made += calls("to.dtype_layout", x, dtype={"torch": "float64"}) + calls("clip", x, -1.0, 1.0)
    made += calls("softmax.int log_softmax.int special_softmax special_log_softmax", x, 1)
    made += calls("special_logsumexp std.dim var.dim", x, [1])
    made += calls("cross_entropy_loss nll_loss nll_loss_nd", x, i(3))
    made += calls("cross_entropy_loss", f(2, 3, 4), i(2, 4)) + calls("nll_loss_nd", f(2, 3, 4, 4), i(2, 4, 4))
    made += calls("layer_norm", x, [4], row, row) + calls("group_norm", f(2, 4, 3), 2, row, row)
    made += calls("dropout feature_dropout alpha_dropout", x, 0.5, True) + calls("dropout", x, 0.5, False)
    made += calls("narrow", x, 1, 1, 2) + calls("movedim.int moveaxis.int swapaxes swapdims", x, 0, 1)
    made += calls("movedim.intlist", cube, [0, 1], [1, 2]) + calls("einsum", "ij,jk->ik", [x, m])
    made += calls("outer ger", row, row) + calls(
        "concat concatenate vstack hstack dstack column_stack", [x, y]
    )
    made += calls("one_hot", i(5), 3) + calls("pad", x, [1, 1]) + calls("pad", image, [1, 1, 1, 1], "reflect")
    made += calls("bilinear", x, f(3, 5), f(2, 4, 5), f(2)) + calls("prelu", x, f(4))
    made += calls("triplet_margin_loss", x, y, x)
    made += calls("margin_ranking_loss", row, row, row) + calls("cosine_embedding_loss", x, y, f(3))
    made += calls("poisson_nll_loss", x, y, True, False, 1e-8, 1)
    square = f(4, 4, low=1, high=3)
    made += calls("linalg_inv linalg_det logdet slogdet linalg_slogdet linalg_eigh linalg_cholesky", square)
    made += (
        calls("linalg_svd linalg_norm", x) + calls("linalg_matrix_norm", x, 1) + calls("linalg_pinv", x, 1e-5)
    )
    made += calls("linalg_solve", square, m) + calls("linalg_matrix_power matrix_power", square, 3)
    made += calls("tensordot", x, m, [1], [0]) + calls("linalg_multi_dot", [x, m, f(5, 2)])
    made += (
        calls("tile", x, [2, 2])
        + calls("repeat_interleave.self_int", x, 2, 1)
        + calls("unflatten.int", x, 1, [2, 2])
    )
    made += calls("trace_backward", f(), [3, 3]) + calls(
        "value_selecting_reduction_backward", f(3), 1, i(3), [3, 4], False
    )
    cell = [f(8, 4), f(8, 2), f(8), f(8)]
    made += calls("lstm_cell", x, [f(3, 2), f(3, 2)], *cell)
    made += calls("gru_cell", x, f(3, 2), f(6, 4), f(6, 2), f(6), f(6))
    made += calls("rnn_tanh_cell rnn_relu_cell", x, f(3, 2), f(2, 4), f(2, 2), f(2), f(2))
    made += (
        calls("broadcast_to", row, [3, 4]) + calls("linear", x, f(5, 4), f(5)) + calls("reshape", x, [4, 3])
    )
    made += calls("reshape", {"t": [4, 3], "d": "float32", "s": [1, 4]}, [12])
    made += calls("chunk tensor_split.sections", x, 2, 1) + calls("tensor_split.indices", x, [1, 2], 1)
    made += calls("split.sizes", x, [1, 3], 1) + calls("hsplit.int", x, 2) + calls("vsplit.int", x, 3)
    made += calls("conv1d conv1d.padding", cube, f(4, 3, 3)) + calls(
        "conv2d conv2d.padding", image, f(4, 3, 3, 3)
    )
    made += calls("conv3d conv3d.padding", volume, f(4, 3, 3, 3, 3)) + calls(
        "conv_transpose1d", cube, f(3, 4, 3)
    )
    made += calls("conv_transpose2d.input", image, f(3, 4, 3, 3))
    made += calls("conv_transpose3d.input", volume, f(3, 4, 3, 3, 3))
    made += calls("max_pool1d avg_pool1d", cube, [2]) + calls("max_pool2d", image, [2, 2])
    made += calls("max_pool3d", volume, [2, 2, 2]) + calls(
        "adaptive_avg_pool1d adaptive_max_pool1d", cube, [3]
    )
    made += calls("adaptive_avg_pool2d", image, [3, 3]) + calls("adaptive_avg_pool3d", volume, [2, 2, 2])
    made += calls("scaled_dot_product_attention", f(2, 2, 4, 3), f(2, 2, 5, 3), f(2, 2, 5, 3))
    made += calls(
        "scaled_dot_product_attention", f(2, 2, 4, 3), f(2, 2, 4, 3), f(2, 2, 4, 3), None, 0.0, True
    )
    for gates, name in ((4, "lstm"), (3, "gru"), (1, "rnn_tanh"), (1, "rnn_relu")):
        state = f(1, 2, 3)
        weights = [f(3 * gates, 4), f(3 * gates, 3), f(3 * gates), f(3 * gates)]
        hidden = [state, state] if name == "lstm" else state
        made += calls(f"{name}.input", f(5, 2, 4), hidden, weights, True, 1, 0.0, True, False, False)
        made += calls(f"{name}.input", f(2, 5, 4), hidden, weights, True, 1, 0.0, False, False, True)
    return made


def _others() -> list[Call]:
    x, whole, numbers = f(3, 4), f(2, 3, 4), i(3, 4, most=9)
    made = calls("clamp_max", x, 0.5) + calls(
        "bitwise_and.Scalar bitwise_or.Scalar bitwise_xor.Scalar", numbers, 5
    )
    made += calls("xlogy.Scalar_Self special_xlog1py.self_scalar", 2.0, f(3, 4, low=0))
    made += calls("xlogy.Scalar_Other special_xlog1py.other_scalar", x, 2.0)
    made += calls("bitwise_left_shift.Tensor_Scalar bitwise_right_shift.Tensor_Scalar", numbers, 2)
    for given in (x, numbers):
        made += calls("floor_divide.Scalar fmod.Scalar remainder.Scalar", given, 3)
        made += calls("div.Scalar_mode div_.Scalar_mode", given, 3, rounding_mode="trunc")
        made += calls("remainder.Scalar_Tensor", 7, given)
    made += calls("fmod.Scalar remainder.Scalar floor_divide.Scalar", numbers, -1)
    made += calls("norm.Scalar", x, 2) + calls("norm.ScalarOpt_dtype", x, 2, dtype={"torch": "float64"})
    made += calls("norm.ScalarOpt_dim_dtype", x, 2, [1], False, dtype={"torch": "float64"})
    made += calls("_linalg_eigvals", f(4, 4)) + calls("_euclidean_dist", x, f(2, 4))
    made += calls("_upsample_nearest_exact3d", f(1, 2, 3, 3, 3), [6, 6, 6])
    made += calls("_upsample_nearest_exact3d_backward", f(1, 2, 6, 6, 6), [6, 6, 6], [1, 2, 3, 3, 3])
    made += calls("_upsample_bicubic2d_aa", f(1, 2, 6, 6), [3, 3], False)
    made += calls("_upsample_bicubic2d_aa_backward", f(1, 2, 3, 3), [3, 3], [1, 2, 6, 6], False)
    made += calls("scatter.value_reduce scatter_.value_reduce", x, 1, i(3, 2), 2.0, reduce="add")
    made += calls("slice_scatter", x, f(3, 2), 1, 1, 3) + calls("isin.Tensor_Scalar", numbers, 2)
    made += (
        calls("isin.Scalar_Tensor", 2, numbers)
        + calls("bucketize.Scalar", 0.5, f(5))
        + calls("searchsorted.Scalar", f(5), 0.5)
    )
    made += calls("searchsorted.Tensor", f(5), x, sorter=i(5, values=[0, 1, 2, 3, 4]))
    made += calls("_unsafe_index.Tensor", x, [i(2), i(2)]) + calls(
        "_unsafe_index_put", x, [i(2), i(2)], f(2), True
    )
    made += calls("index.Tensor", x, [None, i(2)]) + calls("index_put", x, [i(2), i(2)], f(2), True)
    made += calls("repeat_interleave.Tensor", i(3, values=[1, 0, 2]), output_size=3)
    for mode in (0, 1, 2):
        bag = [f(5, 3), i(6), i(3, values=[0, 2, 2])]
        made += calls("_embedding_bag _embedding_bag_forward_only", *bag, False, mode)
        made += calls("_embedding_bag", f(5, 3), i(6), i(3, values=[0, 2, 6]), False, mode, False, None, True)
        made += calls(
            "_embedding_bag_dense_backward",
            *(f(3, 3), i(6), i(6, values=[0, 0, 2, 2, 2, 2]), i(3, values=[2, 0, 4])),
            *(i(3, 3) if mode == 2 else i(3), 5, False, mode, None),
        )
        made += calls(
            "_embedding_bag_backward",
            *(f(3, 3), i(6), i(3, values=[0, 2, 2]), i(6, values=[0, 0, 2, 2, 2, 2]), i(3, values=[2, 0, 4])),
            *(i(3, 3) if mode == 2 else i(3), 5, False, mode, False, None),
        )
    made += calls("copy", x, f(4)) + calls("_efficientzerotensor", [3, 4])
    made += calls(
        "_embedding_bag_per_sample_weights_backward",
        *(f(3, 3), f(5, 3), i(6), i(3, values=[0, 2, 2]), i(6, values=[0, 0, 2, 2, 2, 2]), 0),
    )
    scores = f(5, 2, 4, low=-4, high=-1)
    made += calls("_ctc_loss", scores, i(2, 3, values=[1, 2, 3, 2, 1, 3]), [5, 4], [3, 2])
    made += calls("_ctc_loss", scores, i(5, values=[1, 2, 3, 2, 1]), [5, 4], [3, 2])
    made += calls(
        "_ctc_loss_backward",
        f(2),
        scores,
        i(2, 3, values=[1, 2, 3, 2, 1, 3]),
        [5, 4],
        [3, 2],
        f(2, low=1),
        f(2, 5, 7),
        0,
    )
    made += calls("multi_margin_loss_backward", f(), f(3, 4), i(3), 1, 1.0, None, 1)
    made += calls("multi_margin_loss_backward", f(3), f(3, 4), i(3), 1, 1.0, f(4), 0)
    made += calls("multilabel_margin_loss_backward", f(), f(2, 3), i(2, 3), 1, f(2, 3, low=0, high=0))
    made += calls("multilabel_margin_loss_forward", f(2, 3), i(2, 3), 0) + calls(
        "multi_margin_loss", f(2, 3), i(2)
    )
    mean, variance = f(3), f(3, low=0.5)
    made += calls("_native_batch_norm_legit_no_training", whole, mean, mean, mean, variance, 0.1, 1e-5)
    made += calls("_native_batch_norm_legit_functional", whole, mean, mean, mean, variance, True, 0.1, 1e-5)
    made += calls("_batch_norm_no_update", whole, mean, mean, mean, variance, 0.1, 1e-5)
    made += calls("_batch_norm_with_update_functional", whole, mean, mean, mean, variance, 0.1, 1e-5)
    made += calls("_weight_norm_interface", x, f(3, 1), 0)
    made += calls("_weight_norm_interface_backward", x, x, f(3, 1), f(3, 1, low=1), 0)
    made += calls("bernoulli.p", x, 0.5) + calls("normal.float_Tensor", 0.5, f(3, 4, low=0))
    made += calls(
        "normal_functional rand_like random_ poisson _standard_gamma _sample_dirichlet", f(3, 4, low=0.5)
    )
    made += calls("randperm", 7) + calls("native_dropout", x, 0.5, True)
    made += calls("bernoulli_.Tensor", x, f(3, 4, low=0, high=1))
    made += calls("native_dropout", x, 1.0, True)
    made += calls("random_.to", x, 5) + calls("random_.from", x, 2, 9) + calls("random_", numbers)
    made += calls("binomial", f(3, 4, low=1, high=9), f(3, 4, low=0, high=1))
    made += calls("_standard_gamma_grad", f(3, 4, low=0.5), f(3, 4, low=0.5))
    made += calls("_dirichlet_grad", f(3, 4, low=0.1, high=0.9), f(3, 4, low=0.5), f(3, 4, low=3, high=5))
    made += calls("_reshape_alias", x, [4, 3], [3, 1]) + calls("view.dtype", x, {"torch": "int32"})
    made += calls("unsafe_split_with_sizes", x, [1, 3], 1) + calls("split_copy.Tensor", x, 2, 1)
    made += (
        calls("detach_copy", x) + calls("select_copy.int", x, 0, 1) + calls("slice_copy.Tensor", x, 1, 1, 3)
    )
    made += calls("squeeze_copy.dims", f(3, 1, 4), [1]) + calls("view_as_complex_copy", f(3, 2))
    made += calls("view_as_real_copy", {"t": [3], "d": "complex64"}) + calls(
        "fill.Tensor fill_.Tensor", x, f()
    )
    made += calls("as_strided as_strided_copy", x, [2, 2], [4, 1], 1) + calls(
        "as_strided_scatter", x, f(2, 2), [2, 2], [4, 1], 1
    )
    return made


MORE: list[Call] = [*_foreach(), *_composites(), *_others()]
