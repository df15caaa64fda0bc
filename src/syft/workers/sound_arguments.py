"""Arguments that torch trusts are looked at before an operation is run.

NOTE [Memory beside the tensors]
Operations that torch keeps for itself (most of them belong to a backward pass) take it that their arguments came from
the forward pass: an index is used without asking whether there is such an element, and saved statistics are read as far
as the input is long. A command that names such an operation could bring arguments of its own, and read and write
the memory of the whole process: other users' data, and keys. So each of these operations has a check here, which
compares what it is given with what the forward pass would have made. It raises before anything is touched.

A check may look at values that the user may not see. It is therefore part of the run itself, whose failures are concealed
(NOTE [Nothing shows] in syft.workers.restricted): never call it outside. Of tensors without values (meta tensors), only
the shapes are checked.

An aten operation is checked by its arguments. Functions made of several operations (public functions, and aten operations
that torch decomposes) run with each of their operations checked on the way.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch._ops import OpOverload
from torch.utils._python_dispatch import TorchDispatchMode

from syft.core.commands import KnownCommand
from syft.workers.bound_arguments import Arguments, Bound, Check, has_values
from syft.workers.checks_of_indices import (
    check_bag,
    check_bag_backward,
    check_ctc,
    check_embedding,
    check_margins,
    check_nll,
    check_scaled,
    check_segments,
    check_unfolded,
    grid_of,
    lengths_in,
    padded,
    pooled,
)
from syft.workers.checks_of_shapes import (
    RECURRENT,
    check_attention,
    check_batch_norm,
    check_cdist,
    check_columns,
    check_convolution,
    check_finite,
    check_fourier,
    check_group_norm,
    check_layer_norm,
    check_of_input,
    check_of_output,
    check_pdist,
    check_pivots,
    check_recurrent,
    check_recurrent_layer,
    check_repeats,
    check_weight_norm,
    nothing_to_check,
)


@cache
def sound(command: KnownCommand) -> Callable[..., Any] | None:
    """The function of a command, which raises if its arguments reach beyond its tensors; None if torch looks itself."""
    function: Any = command.function
    if not isinstance(function, OpOverload):
        last = command.name.rpartition(".")[2]
        return _watched(function, last) if last in _REACHING else None
    packet = function._schema.name.partition("::")[2]
    if packet in _CHECKS:
        return _checked(function)
    if packet not in _DECOMPOSED_SOUNDLY and _is_decomposed(function):
        return _watched(function, packet)
    return None


def _is_decomposed(function: OpOverload) -> bool:
    return function.has_kernel_for_dispatch_key(torch._C.DispatchKey.CompositeImplicitAutograd)


def _checked(function: OpOverload) -> Callable[..., Any]:
    def run(*args: Any, **kwargs: Any) -> Any:
        bound = check_operation(function, args, kwargs)
        return _without_remains(bound, function(*args, **kwargs))

    return run


def _watched(function: Any, name: str) -> Callable[..., Any]:
    is_recurrent = name in RECURRENT

    def run(*args: Any, **kwargs: Any) -> Any:
        if is_recurrent:
            _with_sentences(name, lambda: check_recurrent(name, args, kwargs))
        with _Checking():  # type: ignore[no-untyped-call]
            return function(*args, **kwargs)

    return run


class _Checking(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Inside, the arguments of every aten operation are checked."""

    def __torch_dispatch__(
        self, func: OpOverload, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        bound = check_operation(func, args, kwargs)
        return _without_remains(bound, func(*args, **kwargs))


def check_operation(function: OpOverload, args: Any, kwargs: Arguments) -> Any:
    """The arguments by name; !! ValueError or IndexError if one would reach beyond the tensors of the operation."""
    packet, check, outs, layout = _layout(function)
    if check is None:
        return None
    if outs and not outs.isdisjoint(kwargs):
        raise ValueError(
            f"aten.{packet} was not run: torch does not check the size of its `out`. Leave it out, and copy the result."
        )
    bound = Bound(packet, layout, args, kwargs)
    _with_sentences(packet, lambda: check(bound))
    return bound


@cache
def _layout(function: OpOverload) -> tuple[str, Check | None, frozenset[str], Any]:
    """Of an operation: its packet, its check, the names of what it must not write into, and its arguments."""
    schema = function._schema
    packet = schema.name.partition("::")[2]
    outs = frozenset(a.name for a in schema.arguments if a.is_out) if packet in _NOT_INTO_OUT else frozenset()
    layout = tuple(
        (a.name, a.kwarg_only, a.default_value if a.has_default_value() else None) for a in schema.arguments
    )
    return packet, _CHECKS.get(packet), outs, layout


def _with_sentences(packet: str, check: Callable[[], None]) -> None:
    try:
        check()
    except (AttributeError, KeyError, TypeError) as error:  # something else stands in the place of a tensor
        raise ValueError(
            f"aten.{packet} was not run: an argument that it needs is missing or of another kind ({error}). See its "
            "schema in torch."
        ) from None


_CHECKS: dict[str, Check] = {
    "max_pool2d_with_indices_backward": pooled(2),
    "max_pool3d_with_indices_backward": pooled(3),
    "adaptive_max_pool2d_backward": pooled(2),
    "adaptive_max_pool3d_backward": pooled(3),
    "fractional_max_pool2d_backward": pooled(2),
    "fractional_max_pool3d_backward": pooled(3),
    "_adaptive_avg_pool2d_backward": pooled(2),
    "_adaptive_avg_pool3d_backward": pooled(3),
    "adaptive_avg_pool3d_backward": pooled(3),
    "avg_pool2d_backward": pooled(2),
    "avg_pool3d_backward": pooled(3),
    **{
        f"{kind}_pad{dims}d_backward": padded(dims)
        for kind in ("reflection", "replication")
        for dims in (1, 2, 3)
    },
    **{
        f"{name}{backward}": check_scaled
        for name in """_upsample_bicubic2d_aa _upsample_bilinear2d_aa upsample_bicubic2d upsample_bilinear2d
        upsample_linear1d upsample_trilinear3d upsample_nearest1d upsample_nearest2d upsample_nearest3d
        _upsample_nearest_exact1d _upsample_nearest_exact2d _upsample_nearest_exact3d""".split()
        for backward in ("", "_backward")
    },
    "col2im": check_columns,
    "mse_loss": nothing_to_check,
    "smooth_l1_loss": nothing_to_check,
    "unfold_backward": check_unfolded,
    "multilabel_margin_loss_backward": check_margins,
    "multi_margin_loss_backward": check_margins,
    "lu_unpack": check_pivots,
    "grid_sampler_2d_backward": grid_of(2),
    "grid_sampler_3d_backward": grid_of(3),
    "_grid_sampler_2d_cpu_fallback": grid_of(2),
    "_grid_sampler_2d_cpu_fallback_backward": grid_of(2),
    "embedding_dense_backward": check_embedding,
    "_embedding_bag": check_bag,
    "_embedding_bag_forward_only": check_bag,
    "_embedding_bag_backward": check_bag_backward,
    "_embedding_bag_dense_backward": check_bag_backward,
    "_embedding_bag_per_sample_weights_backward": check_bag_backward,
    "nll_loss_backward": check_nll,
    "nll_loss2d_backward": check_nll,
    "_ctc_loss": check_ctc,
    "_ctc_loss_backward": check_ctc,
    "segment_reduce": check_segments,
    "_segment_reduce_backward": check_segments,
    "native_batch_norm": check_batch_norm,
    "_native_batch_norm_legit": check_batch_norm,
    "_native_batch_norm_legit_functional": check_batch_norm,
    "_native_batch_norm_legit_no_training": check_batch_norm,
    "_batch_norm_with_update": check_batch_norm,
    "_batch_norm_with_update_functional": check_batch_norm,
    "_batch_norm_no_update": check_batch_norm,
    "_batch_norm_impl_index": check_batch_norm,
    "batch_norm_update_stats": check_batch_norm,
    "native_batch_norm_backward": check_batch_norm,
    "batch_norm_backward": check_batch_norm,
    "native_layer_norm_backward": check_layer_norm,
    "_fused_rms_norm_backward": check_layer_norm,
    "native_group_norm": check_group_norm,
    "native_group_norm_backward": check_group_norm,
    "_weight_norm_interface": check_weight_norm,
    "_weight_norm_interface_backward": check_weight_norm,
    "convolution_backward": check_convolution,
    "_scaled_dot_product_flash_attention_for_cpu": check_attention,
    "_scaled_dot_product_flash_attention_for_cpu_backward": check_attention,
    "mkldnn_rnn_layer": check_recurrent_layer,
    "_pdist_backward": check_pdist,
    "_cdist_backward": check_cdist,
    "gelu_backward": check_of_input,
    "_softmax_backward_data": check_of_output,
    "_log_softmax_backward_data": check_of_output,
    "_masked_softmax_backward": check_of_output,
    "_fft_c2c": check_fourier,
    "_fft_c2r": check_fourier,
    "_fft_r2c": check_fourier,
    "linalg_eig": check_finite,
    "linalg_eigvals": check_finite,
    "_linalg_eigvals": check_finite,
    "repeat_interleave": check_repeats,
}


#: Of these, what is written into has to be as large as the results, and torch does not look.
_NOT_INTO_OUT = frozenset(_CHECKS) - frozenset(
    """_fft_c2c _fft_c2r _fft_r2c linalg_eig linalg_eigvals _linalg_eigvals repeat_interleave _softmax_backward_data
    _log_softmax_backward_data lu_unpack""".split()
)

#: Public functions that come to one of the operations above in their forward pass, by the last part of their names.
_REACHING = frozenset(
    """embedding_bag ctc_loss segment_reduce batch_norm instance_norm native_batch_norm native_group_norm group_norm
    interpolate grid_sample grid_sampler grid_sampler_2d repeat_interleave eig eigvals lu_unpack lu_solve weight_norm
    fft fft2 fftn ifft ifft2 ifftn rfft rfft2 rfftn irfft irfft2 irfftn hfft hfft2 hfftn ihfft ihfft2 ihfftn stft
    istft scaled_dot_product_attention multi_head_attention_forward lstm gru rnn_tanh rnn_relu
    mse_loss smooth_l1_loss histogram histogramdd fold max_unpool1d max_unpool2d max_unpool3d
    batch_norm_update_stats""".split()
)

#: aten operations that torch decomposes, and that come to none of the operations above. Those that are often called.
_DECOMPOSED_SOUNDLY = frozenset(
    """matmul linear reshape flatten contiguous to type_as expand_as view_as square silu conv1d conv2d conv3d dropout
    cross_entropy_loss softmax log_softmax layer_norm max_pool2d numpy_T mT mH adjoint item size stride is_floating_point
    is_complex chunk tensor_split split unflatten einsum where outer ger std var absolute subtract multiply divide
    true_divide negative greater less clip concat concatenate vstack hstack dstack""".split()
)


# -- memory that was not written ------------------------------------------------------------------------


#: They make memory larger than their result and do not write all of it, and `as_strided` reaches all of it.
_OVERSIZED = frozenset({"col2im", "mse_loss", "smooth_l1_loss"})


def _without_remains(bound: Any, result: Any) -> Any:
    """The results of an operation, without what their memory held before."""
    if bound is None:
        return result
    if bound.packet in _OVERSIZED:
        return result.clone() if has_values(result) else result
    if bound.packet == "_ctc_loss" and has_values(result[1]):
        _clear_beyond_lengths(bound, result[1])
    return result


def _clear_beyond_lengths(bound: Any, alpha: torch.Tensor) -> None:
    """Beyond the lengths of a sequence and of its targets, nothing is written (and nothing is read afterwards)."""
    steps = torch.tensor(lengths_in(bound, "input_lengths"), dtype=torch.int64).clamp(min=1)
    states = 2 * torch.tensor(lengths_in(bound, "target_lengths"), dtype=torch.int64) + 1
    written = (torch.arange(alpha.shape[1]) < steps[:, None])[:, :, None] & (
        torch.arange(alpha.shape[2]) < states[:, None]
    )[:, None, :]
    alpha.masked_fill_(~written, 0.0)
