"""Where torch's meta kernels are missing, or answer something else than the CPU kernels make.

Each function takes meta tensors, and returns what the operation would. Imports nothing of ours.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch._prims_common import suggest_memory_format


def _argument(args: Any, kwargs: dict[str, Any], position: int, name: str, default: Any = None) -> Any:
    return args[position] if position < len(args) else kwargs.get(name, default)


# -- wrong ---------------------------------------------------------------------------------------------------

_LOW_PRECISION = (torch.float16, torch.bfloat16)


def _type_of_statistics(whole: torch.Tensor, parameters: Any) -> torch.dtype:
    """Of low precision too, unless a parameter is of full precision."""
    is_mixed = any(isinstance(p, torch.Tensor) and p.dtype is torch.float32 for p in parameters)
    return torch.float32 if whole.dtype in _LOW_PRECISION and is_mixed else whole.dtype


def _in_order(result: Any, _args: Any = (), _kwargs: Any = None) -> Any:
    """Fresh results are contiguous, whatever the inputs are. A gradient that is not wanted is None."""
    if result is None:
        return None
    if isinstance(result, torch.Tensor):
        return torch.empty_like(result, memory_format=torch.contiguous_format)
    return type(result)(_in_order(value) for value in result)


def _as_images(result: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """Batch norms keep the layout "channels last" of images and volumes, and no other."""
    return torch.empty_like(result, memory_format=suggest_memory_format(like))


def _batch_norm_backward(result: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """The meta kernel makes the gradient of the input, wanted or not."""
    is_wanted = _argument(args, kwargs, 9, "output_mask")[0]
    return (_as_images(result[0], args[1]) if is_wanted else None, *result[1:])


def _layer_norm(result: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    dtype = _type_of_statistics(
        args[0], [_argument(args, kwargs, 2, "weight"), _argument(args, kwargs, 3, "bias")]
    )
    return (result[0], *(t.new_empty(t.shape, dtype=dtype) for t in result[1:3]))


def _batch_norm(result: Any, args: Any, kwargs: dict[str, Any], trains: bool) -> Any:
    dtype = _type_of_statistics(args[0], args[1:5])
    sizes = [args[0].shape[1]] if trains else [0]
    statistics = (args[0].new_empty(sizes, dtype=dtype) for _ in range(2))
    return (_as_images(result[0], args[0]), *statistics, *result[3:])


def _batch_norm_told(result: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    return _batch_norm(result, args, kwargs, bool(_argument(args, kwargs, 5, "training")))


def _batch_norm_without_statistics(result: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    return _batch_norm(result, (args[0], *args[1:3], None, None), kwargs, trains=True)


def _batch_norm_updated(result: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    return _batch_norm(result, args, kwargs, trains=True)


def _batch_norm_not_updated(result: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    return _batch_norm(result, args, kwargs, trains=False)


def _multilabel_margin(result: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    alone = int(_argument(args, kwargs, 2, "reduction", 1)) == 0 and args[0].dim() > 1
    return args[0].new_empty(args[0].shape[:1] if alone else []), result[1]


def _with_width(signal: torch.Tensor) -> torch.Tensor:
    return signal.unsqueeze(2) if signal.dim() == 3 else signal


def _of_convolution(result: Any, whole: torch.Tensor, weight: torch.Tensor) -> Any:
    """Channels are last where those of the input or of the weight are; of signals, where those of the weight are."""
    if result is None or weight.dim() not in (3, 4) or result.dim() != weight.dim():
        return result  # a gradient that is not wanted, or of a bias; volumes differ by type and size
    decide = (whole, weight) if weight.dim() == 4 else (weight,)
    is_last = torch.channels_last in (suggest_memory_format(_with_width(each)) for each in decide)
    layout = torch.channels_last if is_last else torch.contiguous_format
    made = torch.empty_like(_with_width(result), memory_format=layout)
    return made.squeeze(2) if weight.dim() == 3 else made


def _convolution(result: Any, args: Any, _kwargs: Any) -> Any:
    return _of_convolution(result, args[0], args[1])


def _convolution_backward(result: Any, args: Any, _kwargs: Any) -> Any:
    return tuple(_of_convolution(each, args[1], args[2]) for each in result)


#: Operation -> what makes the right answer of the one that its meta kernel gave.
CORRECTED: dict[str, Callable[[Any, Any, dict[str, Any]], Any]] = {
    "aten.multilabel_margin_loss_forward.default": _multilabel_margin,
    "aten.convolution.default": _convolution,
    "aten.convolution_backward.default": _convolution_backward,
    "aten.native_layer_norm.default": _layer_norm,
    "aten.native_batch_norm.default": _batch_norm_told,
    "aten._native_batch_norm_legit.default": _batch_norm_told,
    "aten._native_batch_norm_legit.no_stats": _batch_norm_without_statistics,
    "aten._native_batch_norm_legit_no_training.default": _batch_norm_not_updated,
    "aten._native_batch_norm_legit_functional.default": _batch_norm_told,
    "aten._batch_norm_with_update.default": _batch_norm_updated,
    "aten._batch_norm_no_update.default": _batch_norm_not_updated,
    "aten.native_batch_norm_backward.default": _batch_norm_backward,
    "aten.batch_norm_backward.default": _batch_norm_backward,
    "aten.native_layer_norm_backward.default": _in_order,
    "aten._log_softmax_backward_data.default": _in_order,
    "aten.mse_loss_backward.default": _in_order,
    "aten.huber_loss_backward.default": _in_order,
    "aten.log_sigmoid_forward.default": _in_order,
    "aten.normal.Tensor_Tensor": _in_order,
}


# -- missing -------------------------------------------------------------------------------------------------


def _like_input(_grad_output: torch.Tensor, whole: torch.Tensor, *_: Any, **__: Any) -> torch.Tensor:
    return torch.empty_like(whole, memory_format=torch.contiguous_format)


def _ctc_loss(
    log_probs: torch.Tensor, targets: torch.Tensor, lengths: Any, target_lengths: Any, *_: Any, **__: Any
) -> Any:
    steps, batch, _classes = log_probs.shape
    longest = max((int(n) for n in target_lengths), default=0)
    return log_probs.new_empty([batch]), log_probs.new_empty([batch, steps, 2 * longest + 1])


def _ctc_loss_backward(_grad: torch.Tensor, log_probs: torch.Tensor, *_: Any, **__: Any) -> torch.Tensor:
    return torch.empty_like(log_probs, memory_format=torch.contiguous_format)


def _repeat_interleave(repeats: torch.Tensor, *, output_size: int | None = None) -> torch.Tensor:
    if output_size is None:
        raise NotImplementedError("The repeats add up to a size that only their values tell.")
    return repeats.new_empty([output_size], dtype=repeats.dtype)


def _embedding_bag(
    weight: torch.Tensor,
    indices: torch.Tensor,
    offsets: torch.Tensor,
    scale_grad_by_freq: bool = False,
    mode: int = 0,
    sparse: bool = False,
    per_sample_weights: Any = None,
    include_last_offset: bool = False,
    padding_idx: int = -1,
) -> Any:
    """NB: what torch keeps for the backward pass depends on how it computes. `run` makes all of it, always."""
    bags, width = offsets.shape[0] - int(include_last_offset), weight.shape[1]
    return (
        weight.new_empty([bags, width]),
        offsets.new_empty(indices.shape),
        offsets.new_empty([bags]),
        offsets.new_empty([bags, width] if mode == 2 else [bags]),
    )


def _like_first(first: torch.Tensor, *_: Any, **__: Any) -> torch.Tensor:
    return first.new_empty(first.shape)


def _one_hot(numbers: torch.Tensor, num_classes: int = -1) -> torch.Tensor:
    return numbers.new_empty([*numbers.shape, num_classes])


def _embedding_bag_backward(
    grad: torch.Tensor,
    _indices: Any,
    _offsets: Any,
    _to_bag: Any,
    _sizes: Any,
    _largest: Any,
    num_weights: int,
    *_: Any,
) -> torch.Tensor:
    return grad.new_empty([num_weights, grad.shape[1]])


def _nothing(*_: Any, **__: Any) -> None:
    return None


#: Operation that has no meta kernel -> what tells its results.
WITHOUT_META: dict[str, Callable[..., Any]] = {
    "aten.fractional_max_pool3d_backward.default": _like_input,
    "aten.multi_margin_loss_backward.default": _like_input,
    "aten.multilabel_margin_loss_backward.default": _like_input,
    "aten._ctc_loss.default": _ctc_loss,
    "aten._ctc_loss_backward.default": _ctc_loss_backward,
    "aten.one_hot.default": _one_hot,
    "aten._sample_dirichlet.default": _like_first,
    "aten.binomial.default": _like_first,
    "aten._standard_gamma_grad.default": _like_first,
    "aten._dirichlet_grad.default": _like_first,
    "aten.repeat_interleave.Tensor": _repeat_interleave,
    "aten._embedding_bag.default": _embedding_bag,
    "aten._embedding_bag_backward.default": _embedding_bag_backward,
    "aten._embedding_bag_forward_only.default": _embedding_bag,
    **{
        f"aten._fused_{name}_.{overload}": _nothing
        for name in ("sgd", "adagrad", "adam", "adamw")
        for overload in ("default", "tensor_lr")
    },
}
