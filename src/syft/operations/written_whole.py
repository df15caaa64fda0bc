"""Operations that hand out memory which they have not written, and what runs in their place.

NOTE [Written whole]
Some kernels leave memory as it was: `empty` by its nature, others where an argument says that nobody will look.
Whoever fetches it sees what somebody else had there. Each has a function here that writes all of it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch


def _zeroed(function: Any, *args: Any, **kwargs: Any) -> torch.Tensor:
    made: torch.Tensor = function(*args, **kwargs)
    storage: Any = made.untyped_storage()
    storage.fill_(0)  # with the gaps between elements
    return made


def _ctc_loss(
    log_probs: torch.Tensor,
    targets: torch.Tensor,
    input_lengths: Any,
    target_lengths: Any,
    blank: int = 0,
    zero_infinity: bool = False,
) -> Any:
    """Beyond the lengths of a sequence and of its targets, torch writes nothing, and reads nothing afterwards."""
    if targets.dim() == 2 and targets.numel():
        used = torch.arange(targets.shape[1]) < torch.tensor([int(n) for n in target_lengths])[:, None]
        targets = targets.masked_fill(~used, 0)
    loss, alpha = torch.ops.aten._ctc_loss.default(
        log_probs, targets, input_lengths, target_lengths, blank, zero_infinity
    )
    steps = torch.tensor([max(1, int(n)) for n in input_lengths])
    states = 2 * torch.tensor([int(n) for n in target_lengths]) + 1
    written = (torch.arange(alpha.shape[1]) < steps[:, None])[:, :, None] & (
        torch.arange(alpha.shape[2]) < states[:, None]
    )[:, None, :]
    return loss, alpha.masked_fill(~written, 0.0)


def _ctc_loss_backward(
    grad: torch.Tensor,
    log_probs: torch.Tensor,
    targets: torch.Tensor,
    input_lengths: Any,
    target_lengths: Any,
    *rest: Any,
    **named: Any,
) -> Any:
    if targets.dim() == 2 and targets.numel():
        used = torch.arange(targets.shape[1]) < torch.tensor([int(n) for n in target_lengths])[:, None]
        targets = targets.masked_fill(~used, 0)
    return torch.ops.aten._ctc_loss_backward.default(
        grad, log_probs, targets, input_lengths, target_lengths, *rest, **named
    )


def _embedding_bag(
    function: Any,
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
    """torch keeps for the backward pass what it happens to have. Here it is always all of it."""
    made, _, _, largest = function(
        weight,
        indices,
        offsets,
        scale_grad_by_freq,
        mode,
        False,
        per_sample_weights,
        include_last_offset,
        padding_idx,
    )
    bags, count = offsets.shape[0] - int(include_last_offset), indices.shape[0]
    begins = offsets[:bags].contiguous()
    ends = torch.cat([begins[1:], begins.new_full((min(1, bags),), count)])
    to_bag = torch.bucketize(torch.arange(count, dtype=offsets.dtype), begins, right=True) - 1
    if mode != 2:
        largest = begins.new_zeros(bags)
    sizes = ends - begins
    if padding_idx >= 0 and bags:
        sizes = sizes - sizes.new_zeros(bags).index_add(0, to_bag, (indices == padding_idx).to(offsets.dtype))
    return made, to_bag.to(offsets.dtype), sizes, largest.to(offsets.dtype)


#: Operation -> what runs in its place.
WRITTEN_WHOLE: dict[str, Callable[..., Any]] = {
    "aten._efficientzerotensor.default": torch.ops.aten.zeros.default,  # whose memory torch leaves out
    "aten._ctc_loss.default": _ctc_loss,
    "aten._ctc_loss_backward.default": _ctc_loss_backward,
    "aten._embedding_bag.default": partial(_embedding_bag, torch.ops.aten._embedding_bag.default),
    "aten._embedding_bag_forward_only.default": partial(
        _embedding_bag, torch.ops.aten._embedding_bag_forward_only.default
    ),
    **{
        str(function): partial(_zeroed, function)
        for function in (
            torch.ops.aten.empty.memory_format,
            torch.ops.aten.empty_like.default,
            torch.ops.aten.empty_permuted.default,
            torch.ops.aten.empty_strided.default,
            torch.ops.aten.new_empty.default,
            torch.ops.aten.new_empty_strided.default,
        )
    },
}
