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

import inspect
from collections.abc import Callable
from functools import cache, partial
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
    check_packed,
    check_scaled,
    check_segments,
    check_unfolded,
    grid_of,
    lengths_in,
    padded,
    pooled,
)
from syft.workers.checks_of_numbers import (
    check_adaptive_pool,
    check_binomial,
    check_combinations,
    check_degree,
    check_digits,
    check_division,
    check_floating_loss,
    check_fraction,
    check_heads,
    check_lists,
    check_multiples,
    check_pooled_sizes,
    check_power,
    check_random,
    check_window,
)
from syft.workers.checks_of_shapes import (
    RECURRENT,
    check_attention,
    check_batch_norm,
    check_cdist,
    check_chunks,
    check_columns,
    check_convolution,
    check_finite,
    check_fourier,
    check_group_norm,
    check_layer_norm,
    check_noise,
    check_of_input,
    check_of_output,
    check_pdist,
    check_pivots,
    check_recurrent,
    check_recurrent_layer,
    check_repeats,
    check_rows,
    check_trace,
    check_weight_norm,
    nothing_to_check,
)
from syft.workers.sound_writes import (
    cleared,
    needs_look_at_writes,
    outs_of,
    refuse_overlapping,
    run_into_outs,
)
from syft.workers.writes import written_by


@cache
def sound(command: KnownCommand) -> Callable[..., Any] | None:
    """The function of a command, which raises if its arguments reach beyond its tensors; None if torch looks itself.

    A public function that is given an `out` is run by `sound_with_out` instead.
    """
    function: Any = command.function
    if command.leaves_memory_uninitialised and not command.outs:
        return _cleared(function)
    if not isinstance(function, OpOverload):
        return _sound_public(function, command.name.rpartition(".")[2])
    packet = function._schema.name.partition("::")[2]
    if command.outs or _check_of(function) is not None:
        return partial(_run_operation, function)
    if packet not in _DECOMPOSED_SOUNDLY and _is_decomposed(function):
        return _watched(function, packet)
    return partial(_run_operation, function) if needs_look_at_writes(function) else None


@cache
def sound_with_out(command: KnownCommand) -> Callable[..., Any]:
    """The function of a command that is given an `out`; see NOTE [Written by ourselves] in syft.workers.sound_writes."""
    if isinstance(command.function, OpOverload):
        return sound(command) or command.function
    return _watched(command.function, command.name.rpartition(".")[2])


def _sound_public(function: Any, last: str) -> Callable[..., Any] | None:
    if last in _REACHING:
        return _watched(function, last)
    if last in _BEFORE:
        return _after(_BEFORE[last], function, last)
    if last in _ROUNDING:
        return _watched_if(lambda _args, kwargs: "rounding_mode" in kwargs, function, last)
    place = _place_of_out(function)
    if place is not None:
        return _watched_if(lambda args, _kwargs: len(args) > place, function, last)
    if last.endswith("_") and not last.startswith("_"):
        packet = getattr(torch.ops.aten, last, None)
        overloads = packet.overloads() if packet is not None else ()
        if not overloads or any(needs_look_at_writes(getattr(packet, name)) for name in overloads):
            return _looking_at_first(function, last)
    return None


def _place_of_out(function: Any) -> int | None:
    """How many arguments come before an `out` that may be given without its name."""
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):  # a builtin, which takes it by its name only
        return None
    places = [i for i, p in enumerate(parameters) if p.name == "out" and p.kind is p.POSITIONAL_OR_KEYWORD]
    return places[0] if places else None


def _is_decomposed(function: OpOverload) -> bool:
    return function.has_kernel_for_dispatch_key(torch._C.DispatchKey.CompositeImplicitAutograd)


def _cleared(function: Any) -> Callable[..., Any]:
    """Its result has no memory of others: see NOTE [Memory of others] in syft.workers.pipeline."""
    return lambda *args, **kwargs: cleared(function(*args, **kwargs))


def _after(look: Callable[[str, Any, Arguments], None], function: Any, name: str) -> Callable[..., Any]:
    def run(*args: Any, **kwargs: Any) -> Any:
        look(name, args, kwargs)
        return function(*args, **kwargs)

    return run


def _looking_at_first(function: Any, name: str) -> Callable[..., Any]:
    def run(*args: Any, **kwargs: Any) -> Any:
        refuse_overlapping(name, args[:1] or (kwargs.get("input"), kwargs.get("self")))
        return function(*args, **kwargs)

    return run


def _watched_if(holds: Callable[[Any, Arguments], bool], function: Any, name: str) -> Callable[..., Any]:
    watched = _watched(function, name)

    def run(*args: Any, **kwargs: Any) -> Any:
        return (watched if holds(args, kwargs) else function)(*args, **kwargs)

    return run


def _watched(function: Any, name: str) -> Callable[..., Any]:
    before = _BEFORE.get(name)

    def run(*args: Any, **kwargs: Any) -> Any:
        if before is not None:
            _with_sentences(name, lambda: before(name, args, kwargs))
        with _Checking():  # type: ignore[no-untyped-call]
            return function(*args, **kwargs)

    return run


class _Checking(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Inside, the arguments of every aten operation are checked."""

    def __torch_dispatch__(
        self, func: OpOverload, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        return _run_operation(func, *args, **(kwargs or {}))


def _run_operation(function: OpOverload, /, *args: Any, **kwargs: Any) -> Any:
    """An aten operation, run if its arguments go together, and without the tensors it is to write its results into."""
    if outs_of(function):
        return run_into_outs(function, args, kwargs, _run_other)
    if needs_look_at_writes(function):
        refuse_overlapping(str(function), written_by(function, args, kwargs))
    bound = check_operation(function, args, kwargs)
    return _without_remains(bound, function(*args, **kwargs))


def _run_other(function: OpOverload, args: Any, kwargs: Arguments) -> Any:
    """Another overload of an operation, which may be one that torch decomposes."""
    packet = function._schema.name.partition("::")[2]
    if _check_of(function) is None and _is_decomposed(function):
        return _watched(function, packet)(*args, **kwargs)
    return _run_operation(function, *args, **kwargs)


def check_operation(function: OpOverload, args: Any, kwargs: Arguments) -> Any:
    """The arguments by name; !! ValueError or IndexError if one would reach beyond the tensors of the operation."""
    packet, check, layout = _layout(function)
    if check is None:
        return None
    bound = Bound(packet, layout, args, kwargs)
    _with_sentences(packet, lambda: check(bound))
    return bound


@cache
def _layout(function: OpOverload) -> tuple[str, Check | None, Any]:
    """Of an operation: its packet, its check, and its arguments."""
    schema = function._schema
    packet = schema.name.partition("::")[2]
    layout = tuple(
        (a.name, a.kwarg_only, a.default_value if a.has_default_value() else None) for a in schema.arguments
    )
    return packet, _check_of(function), layout


@cache
def _check_of(function: OpOverload) -> Check | None:
    packet = function._schema.name.partition("::")[2]
    if packet.startswith("_foreach_"):
        return check_lists
    if packet in _ROUNDING:
        return check_division if any(a.name == "rounding_mode" for a in function._schema.arguments) else None
    return _CHECKS.get(packet)


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
    "grid_sampler_2d": grid_of(2),
    "grid_sampler_3d": grid_of(3),
    "grid_sampler_2d_backward": grid_of(2),
    "grid_sampler_3d_backward": grid_of(3),
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
    "_native_batch_norm_legit_no_training": check_batch_norm,
    "_batch_norm_with_update": check_batch_norm,
    "_batch_norm_no_update": check_batch_norm,
    "_batch_norm_impl_index": check_batch_norm,
    "batch_norm_update_stats": check_batch_norm,
    "native_batch_norm_backward": check_batch_norm,
    "batch_norm_backward": check_batch_norm,
    "native_layer_norm_backward": check_layer_norm,
    "native_group_norm": check_group_norm,
    "native_group_norm_backward": check_group_norm,
    "_weight_norm_interface": check_weight_norm,
    "_weight_norm_interface_backward": check_weight_norm,
    "convolution_backward": check_convolution,
    "_scaled_dot_product_flash_attention_for_cpu": check_attention,
    "_scaled_dot_product_flash_attention_for_cpu_backward": check_attention,
    "mkldnn_rnn_layer": check_recurrent_layer,
    "_pdist_forward": check_rows,
    "_pdist_backward": check_pdist,
    "_cdist_backward": check_cdist,
    "gelu_backward": check_of_input,
    "_softmax_backward_data": check_of_output,
    "_log_softmax_backward_data": check_of_output,
    "_fft_c2c": check_fourier,
    "_fft_c2r": check_fourier,
    "_fft_r2c": check_fourier,
    "linalg_eig": check_finite,
    "linalg_eigvals": check_finite,
    "_linalg_eigvals": check_finite,
    "repeat_interleave": check_repeats,
    "_pack_padded_sequence": check_packed,
    "_pack_padded_sequence_backward": check_packed,
    "_pad_packed_sequence": check_packed,
    "_chunk_cat": check_chunks,
    "trace_backward": check_trace,
    "rrelu_with_noise": check_noise,
    "rrelu_with_noise_": check_noise,
    "lcm": check_multiples,
    "lcm_": check_multiples,
    "smooth_l1_loss_backward": check_floating_loss,
    "huber_loss_backward": check_floating_loss,
    "binomial": check_binomial,
    "random": check_random,
    "random_": check_random,
    "_adaptive_avg_pool2d": check_adaptive_pool,
    "_adaptive_avg_pool3d": check_adaptive_pool,
    "special_laguerre_polynomial_l": check_degree,
    "special_legendre_polynomial_p": check_degree,
}

#: Operations that are told how to round. Of their overloads only those are checked.
_ROUNDING = frozenset({"div", "div_", "divide", "divide_"})


#: Public functions that come to one of the operations above in their forward pass, by the last part of their names.
_REACHING = frozenset(
    """embedding_bag ctc_loss segment_reduce batch_norm instance_norm native_batch_norm native_group_norm group_norm
    interpolate grid_sample grid_sampler grid_sampler_2d repeat_interleave eig eigvals lu_unpack lu_solve weight_norm
    fft fft2 fftn ifft ifft2 ifftn rfft rfft2 rfftn irfft irfft2 irfftn hfft hfft2 hfftn ihfft ihfft2 ihfftn stft
    istft scaled_dot_product_attention multi_head_attention_forward lstm gru rnn_tanh rnn_relu
    mse_loss smooth_l1_loss histogram histogramdd fold max_unpool1d max_unpool2d max_unpool3d
    batch_norm_update_stats grid_sampler_3d pdist lcm lcm_ binomial random_ laguerre_polynomial_l
    legendre_polynomial_p""".split()
)

#: Functions that torch decomposes, or that are too common to be watched -> what looks at their arguments before.
_BEFORE: dict[str, Callable[[str, Any, Arguments], None]] = {
    **dict.fromkeys(RECURRENT, check_recurrent),
    **dict.fromkeys(("matrix_power", "linalg_matrix_power"), check_power),
    "combinations": check_combinations,
    "max_pool1d": check_window,
    "scaled_dot_product_attention": check_heads,
    **dict.fromkeys(("adaptive_avg_pool2d", "adaptive_avg_pool3d"), check_pooled_sizes),
}

#: Commands that end the process where there is only metadata, too, or do not end themselves -> what looks at their
#: arguments before all else. It must not look at values.
LOOKED_AT_FIRST: dict[str, Callable[[str, Any, Arguments], None]] = {
    "aten.scaled_dot_product_attention.default": check_heads,
    "torch.nn.functional.scaled_dot_product_attention": check_heads,
    "aten.round.decimals_out": check_digits,
    "aten.special_round.out": check_digits,
    "torch.round": check_digits,
    "torch.special.round": check_digits,
    "round": check_digits,
    **{
        f"aten.fractional_max_pool{dims}d_backward.{overload}": check_fraction
        for dims in (2, 3)
        for overload in ("default", "grad_input")
    },
}

#: aten operations that torch decomposes, and that come to none of the operations above. Those that are often called.
_DECOMPOSED_SOUNDLY = frozenset(
    """matmul linear reshape flatten contiguous to type_as expand_as view_as square silu conv1d conv2d conv3d dropout
    cross_entropy_loss softmax log_softmax layer_norm max_pool2d numpy_T mT mH adjoint item size stride is_floating_point
    is_complex chunk tensor_split split unflatten einsum where outer ger std var absolute subtract multiply divide
    true_divide negative greater less clip concat concatenate vstack hstack dstack""".split()
)


# -- memory that was not written ------------------------------------------------------------------------


#: They make memory larger than their result and do not write all of it, and `as_strided` reaches all of it.
_OVERSIZED = frozenset(
    {"col2im", "mse_loss", "smooth_l1_loss", "_embedding_bag", "_embedding_bag_forward_only"}
)


def _without_remains(bound: Any, result: Any) -> Any:
    """The results of an operation, without what their memory held before."""
    if bound is None:
        return result
    if bound.packet in _OVERSIZED:
        return _copied(result)
    if bound.packet == "_ctc_loss" and has_values(result[1]):
        _clear_beyond_lengths(bound, result[1])
    return result


def _copied(result: Any) -> Any:
    if isinstance(result, (tuple, list)):
        return tuple(map(_copied, result))
    return result.clone() if has_values(result) else result


def _clear_beyond_lengths(bound: Any, alpha: torch.Tensor) -> None:
    """Beyond the lengths of a sequence and of its targets, nothing is written (and nothing is read afterwards)."""
    steps = torch.tensor(lengths_in(bound, "input_lengths"), dtype=torch.int64).clamp(min=1)
    states = 2 * torch.tensor(lengths_in(bound, "target_lengths"), dtype=torch.int64) + 1
    written = (torch.arange(alpha.shape[1]) < steps[:, None])[:, :, None] & (
        torch.arange(alpha.shape[2]) < states[:, None]
    )[:, None, :]
    alpha.masked_fill_(~written, 0.0)
