"""Runs torch's own operator database through a chain and compares with plain torch."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from torch.testing._internal.common_methods_invocations import op_db

from torch.utils._pytree import tree_flatten, tree_map

Convert = Callable[[torch.Tensor], torch.Tensor]

#: Results are drawn at random or left uninitialised: there is nothing to compare, only that it runs.
WITHOUT_VALUES = {"empty", "empty_like", "empty_strided", "empty_permuted", "new_empty", "new_empty_strided"}


def op_id(op: Any) -> str:
    return f"{op.name}.{op.variant_test_name}" if op.variant_test_name else op.name


def entries(dtype: torch.dtype) -> list[Any]:
    """Every entry of the database that torch supports on CPU for `dtype`."""
    return [
        op for op in op_db if dtype in op.supported_dtypes("cpu") and not op.name.startswith("jiterator")
    ]  # (jiterator claims the CPU and refuses to run there)


def _samples(op: Any, dtype: torch.dtype, requires_grad: bool, limit: int) -> Iterator[Any]:
    torch.manual_seed(0)
    for index, sample in enumerate(op.sample_inputs("cpu", dtype, requires_grad=requires_grad)):
        if index == limit:
            return
        yield sample


def _has_tensor(sample: Any) -> bool:
    flat, _ = tree_flatten((sample.input, sample.args, sample.kwargs))
    return any(isinstance(value, torch.Tensor) for value in flat)


def _leaves(value: Any) -> list[torch.Tensor]:
    return [leaf for leaf in tree_flatten(value)[0] if isinstance(leaf, torch.Tensor)]


def _differentiable(outputs: list[torch.Tensor]) -> list[torch.Tensor]:
    return [t for t in outputs if t.requires_grad and (t.is_floating_point() or t.is_complex())]


def _run(op: Any, arguments: Any, requires_grad: bool, settle: Any) -> tuple[Any, list[Any]]:
    """(outputs, gradients of a fixed weighting of them) of one call."""
    torch.manual_seed(1)
    call_args, call_kwargs = arguments
    result = op(*call_args, **call_kwargs)
    gradients: list[Any] = []
    if requires_grad:
        outputs = _differentiable(_leaves(settle(result)))
        inputs = [t for t in _leaves(arguments) if t.requires_grad]
        if outputs and inputs:
            weights = [torch.ones_like(t) for t in outputs]
            gradients = list(torch.autograd.grad(outputs, inputs, weights, allow_unused=True))
    return result, gradients


def compare(
    op: Any,
    dtype: torch.dtype,
    lift: Convert,
    lower: Convert,
    limit: int = 4,
    same: Callable[[Any, Any], None] | None = None,
) -> int:
    """Run an entry plainly and through `lift`; raises at the first difference. Returns the samples run.

    Each sample runs on fresh copies, so that in-place variants cannot help each other.
    """
    requires_grad = dtype.is_floating_point and op.supports_autograd
    run = 0
    for sample in _samples(op, dtype, requires_grad, limit):
        if not _has_tensor(sample):
            continue
        arguments = ((sample.input, *sample.args), dict(sample.kwargs))

        def fresh(t: Any) -> Any:
            if not isinstance(t, torch.Tensor) or t.layout != torch.strided:
                return t
            whole = torch.empty(0, dtype=t.dtype).set_(t.detach().untyped_storage().clone())
            return whole.as_strided(t.shape, t.stride(), t.storage_offset()).requires_grad_(t.requires_grad)

        def lifted(t: Any) -> Any:
            return lift(fresh(t)) if isinstance(t, torch.Tensor) and t.layout == torch.strided else t

        settle = sample.output_process_fn_grad
        expected, expected_grads = _run(op, tree_map(fresh, arguments), requires_grad, settle)
        actual, actual_grads = _run(op, tree_map(lifted, arguments), requires_grad, settle)
        if op.name in WITHOUT_VALUES:
            run += 1
            continue
        for want, got in ((expected, actual), (expected_grads, actual_grads)):
            got = tree_map(lambda t: lower(t) if isinstance(t, torch.Tensor) else t, got)
            want_leaves, got_leaves = tree_flatten(want)[0], tree_flatten(got)[0]
            if len(want_leaves) != len(got_leaves):
                raise AssertionError(f"{len(got_leaves)} results instead of {len(want_leaves)}")
            for w, g in zip(want_leaves, got_leaves, strict=True):
                if isinstance(w, torch.Tensor):
                    torch.testing.assert_close(g.detach(), w.detach(), equal_nan=True, check_stride=False)
                elif w is None or isinstance(w, (int, float, bool, str)):
                    if w != g:
                        raise AssertionError(f"{g!r} instead of {w!r}")
        run += 1
    return run
