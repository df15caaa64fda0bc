"""Public torch functions that fixed precision overloads, because torch would run each as one operation on floats.

They take chains, as the user passed them, and are written with torch functions that have rules.
"""

from __future__ import annotations

import itertools
from typing import Any

import torch
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from syft.core.chain import Wrapper
from syft.exceptions import UnsupportedOperationError

#: Functions with a gradient of their own, by name; rules register them, because they stand on the classes that import
#: this file.
AUTOGRAD: dict[str, Any] = {}


def dropout(
    input: torch.Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
) -> torch.Tensor:
    """torch's dropout with a plain mask."""
    if not training or p == 0:
        return input
    kept = torch.empty(input.shape).bernoulli_(1 - p)
    mask = kept.div_(1 - p) if p < 1 else kept
    return input.mul_(mask) if inplace else input * mask


def can_be_nested(*_args: Any, **_kwargs: Any) -> bool:
    """`nn.TransformerEncoder` asks whether it may leave out padding, as a nested tensor: secrets are dense tensors."""
    return False


def scaled_dot_product_attention(*args: Any, **kwargs: Any) -> Any:
    """torch's attention as products and a softmax: its fused kernels are one operation on floats."""
    with torch._C.DisableTorchFunctionSubclass(), sdpa_kernel(SDPBackend.MATH):
        return F.scaled_dot_product_attention(*args, **kwargs)


def multi_head_attention_forward(*args: Any, **kwargs: Any) -> Any:
    """The same for what `nn.MultiheadAttention` and the Transformer layers call."""
    with torch._C.DisableTorchFunctionSubclass(), sdpa_kernel(SDPBackend.MATH):
        return F.multi_head_attention_forward(*args, **kwargs)


def cov(
    input: torch.Tensor,
    *,
    correction: int = 1,
    fweights: torch.Tensor | None = None,
    aweights: torch.Tensor | None = None,
) -> torch.Tensor:
    """torch's covariance; torch's own code looks at the weights before it uses them."""
    given = [weights for weights in (fweights, aweights) if weights is not None]
    if not given:
        with torch._C.DisableTorchFunctionSubclass():
            return torch.cov(input, correction=correction)
    rows = input if input.ndim > 1 else input.reshape(1, -1)
    weights = given[0] if len(given) == 1 else given[0] * given[1]
    total = weights.sum()
    off = rows - (rows * weights).sum(1, keepdim=True) / total
    spent = 1 if aweights is None else (weights * aweights).sum() / total
    return (off @ (off * weights).t() / (total - correction * spent)).squeeze()


# -- recurrent layers ----------------------------------------------------------------------------------------


def _run_recurrent(function: Any, data: Any, hidden: Any, *rest: Any, **kwargs: Any) -> Any:
    """torch's layer step by step: its fused kernel for processors is one operation on floats.

    It adds to the first hidden state in place, so that is made as secret as the data.
    """
    if type(data) is Wrapper:
        nothing = data.detach().reshape(-1)[:1] * 0
        if isinstance(hidden, torch.Tensor):
            hidden = hidden if type(hidden) is Wrapper else nothing + hidden
        else:
            hidden = [h if type(h) is Wrapper else nothing + h for h in hidden]
    enabled = torch._C._get_mkldnn_enabled()
    torch._C._set_mkldnn_enabled(False)
    try:
        with torch._C.DisableTorchFunctionSubclass():
            return function(data, hidden, *rest, **kwargs)
    finally:
        torch._C._set_mkldnn_enabled(enabled)


def _recurrent(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    data, second, *rest = args
    if len(args) > 1 and isinstance(second, torch.Tensor) and not second.is_floating_point():
        # A packed sequence: its lengths, and only then the hidden state.
        hidden, *others = rest

        def packed(data: Any, hidden: Any, *rest: Any, **kwargs: Any) -> Any:
            return function(data, second, hidden, *rest, **kwargs)

        return _run_recurrent(packed, data, hidden, *others, **kwargs)
    return _run_recurrent(function, data, second, *rest, **kwargs)


def lstm(*args: Any, **kwargs: Any) -> Any:
    """`torch.lstm`."""
    return _recurrent(torch.lstm, args, kwargs)


def gru(*args: Any, **kwargs: Any) -> Any:
    """`torch.gru`."""
    return _recurrent(torch.gru, args, kwargs)


def rnn_tanh(*args: Any, **kwargs: Any) -> Any:
    """`torch.rnn_tanh`."""
    return _recurrent(torch.rnn_tanh, args, kwargs)


def rnn_relu(*args: Any, **kwargs: Any) -> Any:
    """`torch.rnn_relu`."""
    return _recurrent(torch.rnn_relu, args, kwargs)


# -- norms, losses, tables -----------------------------------------------------------------------------------


def rms_norm(
    input: torch.Tensor,
    normalized_shape: Any,
    weight: torch.Tensor | None = None,
    eps: float | None = None,
) -> torch.Tensor:
    """torch's as one operation that keeps small means of squares."""
    if type(input) is not Wrapper and weight is not None:
        return F.rms_norm(input, normalized_shape, None, eps) * weight
    made: torch.Tensor = AUTOGRAD["rms_norm"].apply(input, weight, list(normalized_shape), eps)
    return made


def cross_entropy(
    input: Any,
    target: Any,
    weight: Any = None,
    size_average: Any = None,
    ignore_index: int = -100,
    reduce: Any = None,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Any:
    """torch's, also with smoothed labels where the labels are secret integers."""
    secret_labels = type(target) is Wrapper and not target.is_floating_point()
    if not label_smoothing or not secret_labels:
        with torch._C.DisableTorchFunctionSubclass():
            return F.cross_entropy(
                input, target, weight, size_average, ignore_index, reduce, reduction, label_smoothing
            )
    if weight is not None or ignore_index >= 0 or size_average is not None or reduce is not None:
        raise UnsupportedOperationError(
            "cross_entropy(label_smoothing=...) of secret labels with weight=, ignore_index=, size_average= or reduce=",
            type(target.child),
            "It takes reduction= only. Smooth the labels yourself (one-hot * (1 - s) + s / classes) and pass them as "
            "probabilities.",
        )
    dim = 0 if input.ndim == 1 else 1
    logarithms = torch.log_softmax(input, dim)
    hard = F.nll_loss(logarithms, target, reduction=reduction)
    soft = -logarithms.mean(dim)
    if reduction != "none":
        soft = soft.mean() if reduction == "mean" else soft.sum()
    return hard * (1 - label_smoothing) + soft * label_smoothing


def embedding_bag(
    input: Any,
    weight: Any,
    offsets: Any = None,
    max_norm: float | None = None,
    norm_type: float = 2,
    scale_grad_by_freq: bool = False,
    mode: str = "mean",
    sparse: bool = False,
    per_sample_weights: Any = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> Any:
    """Rows of a secret table at public or secret places, then their sum, mean or maximum per bag."""
    for name, asked in (
        ("max_norm", max_norm),
        ("scale_grad_by_freq", scale_grad_by_freq),
        ("sparse", sparse),
    ):
        if asked:
            raise _no_bag(f"{name}={asked}", weight, "Leave it out.")
    if per_sample_weights is not None and mode != "sum":
        raise _no_bag(
            f"per_sample_weights and mode={mode!r}", weight, "torch allows them with mode='sum' only."
        )
    if padding_idx is not None and (mode != "sum" or type(input) is Wrapper):
        raise _no_bag(f"padding_idx and mode={mode!r}", weight, "Public places and mode='sum' take it.")
    bags = input.reshape(-1) if input.ndim == 2 else input
    if input.ndim == 2:
        count, length = input.shape
        edges = [length * i for i in range(count + 1)]
    else:
        starts = offsets.tolist()
        edges = starts if include_last_offset else [*starts, bags.shape[0]]
    rows = F.embedding(bags, weight)
    if padding_idx is not None:
        rows = rows * (bags != padding_idx).unsqueeze(1).to(torch.get_default_dtype())
    if per_sample_weights is not None:
        rows = rows * per_sample_weights.reshape(-1, 1)
    sizes = [end - start for start, end in itertools.pairwise(edges)]
    if mode == "max":
        if not all(sizes):
            raise _no_bag("an empty bag and mode='max'", weight, "Give every bag a place.")
        return torch.stack([part.amax(0) for part in rows[edges[0] : edges[-1]].split(sizes)])
    chosen = torch.zeros(len(sizes), bags.shape[0])
    for bag, (start, end) in enumerate(itertools.pairwise(edges)):
        chosen[bag, start:end] = 1.0
    total = chosen @ rows
    if mode == "sum":
        return total
    return total / torch.tensor(sizes).clamp_min(1).unsqueeze(1)


def _no_bag(what: str, weight: Any, cure: str) -> UnsupportedOperationError:
    node = weight.child if type(weight) is Wrapper else weight
    return UnsupportedOperationError(f"embedding_bag with {what}", type(node), cure)
