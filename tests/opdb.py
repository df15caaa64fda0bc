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

#: Entries that older versions of torch do not have.
LATER = {"nn.functional.linear_cross_entropy.chunked", "nn.functional.linear_cross_entropy.chunked_none"}
#: Results are uninitialised memory: there is nothing to compare, only that it runs.
WITHOUT_VALUES = {"empty", "empty_like", "empty_strided", "empty_permuted", "new_empty", "new_empty_strided"}


def op_id(op: Any) -> str:
    return f"{op.name}.{op.variant_test_name}" if op.variant_test_name else op.name


def entries(dtype: torch.dtype) -> list[Any]:
    """Every entry of the database that torch supports on CPU for `dtype`."""
    return [
        op for op in op_db if dtype in op.supported_dtypes("cpu") and not op.name.startswith("jiterator")
    ]  # (jiterator claims the CPU and refuses to run there)


def seed(number: int) -> None:
    """torch.manual_seed for the CPU alone, which is a hundred times faster."""
    torch.default_generator.manual_seed(number)


def samples(op: Any, dtype: torch.dtype, requires_grad: bool, limit: int) -> Iterator[Any]:
    seed(0)
    # NB: not op.sample_inputs, which reads the source of every frame of the stack (80 ms under pytest).
    for index, sample in enumerate(op.sample_inputs_func(op, "cpu", dtype, requires_grad)):
        if index == limit:
            return
        yield sample


def _has_tensor(sample: Any) -> bool:
    flat, _ = tree_flatten((sample.input, sample.args, sample.kwargs))
    return any(isinstance(value, torch.Tensor) for value in flat)


def leaves(value: Any) -> list[torch.Tensor]:
    return [leaf for leaf in tree_flatten(value)[0] if isinstance(leaf, torch.Tensor)]


def differentiable(outputs: list[torch.Tensor]) -> list[torch.Tensor]:
    return [t for t in outputs if t.requires_grad and (t.is_floating_point() or t.is_complex())]


def _run(op: Any, arguments: Any, requires_grad: bool, settle: Any) -> tuple[Any, list[Any]]:
    """(outputs, gradients of a fixed weighting of them) of one call."""
    seed(1)
    call_args, call_kwargs = arguments
    result = op(*call_args, **call_kwargs)
    gradients: list[Any] = []
    if requires_grad:
        outputs = differentiable(leaves(settle(result)))
        inputs = [t for t in leaves(arguments) if t.requires_grad]
        if outputs and inputs:
            weights = [torch.ones_like(t) for t in outputs]
            gradients = list(torch.autograd.grad(outputs, inputs, weights, allow_unused=True))
    return result, gradients


def is_dense(t: Any) -> bool:
    return isinstance(t, torch.Tensor) and t.layout == torch.strided


def fresh(t: Any) -> Any:
    """A copy with the same strides and offset, also when it overlaps itself."""
    if not is_dense(t):
        return t
    whole = torch.empty(0, dtype=t.dtype).set_(t.detach().untyped_storage().clone())
    return whole.as_strided(t.shape, t.stride(), t.storage_offset()).requires_grad_(t.requires_grad)


def compare(
    op: Any,
    dtype: torch.dtype,
    lift: Convert,
    lower: Convert,
    limit: int = 4,
    may_be_plain: bool = False,
) -> int:
    """Run an entry plainly and through `lift`; raises at the first difference. Returns the samples run.

    Each sample runs on fresh copies, so that in-place variants cannot help each other. A result has to be as
    deep a chain as the arguments were, unless `may_be_plain`: a value that slipped out is a difference.
    """
    requires_grad = dtype.is_floating_point and op.supports_autograd
    run = 0
    for sample in samples(op, dtype, requires_grad, limit):
        if not _has_tensor(sample):
            continue
        arguments = ((sample.input, *sample.args), dict(sample.kwargs))

        def lifted(t: Any) -> Any:
            return lift(fresh(t)) if is_dense(t) else t

        settle = sample.output_process_fn_grad
        expected, expected_grads = _run(op, tree_map(fresh, arguments), requires_grad, settle)
        actual, actual_grads = _run(op, tree_map(lifted, arguments), requires_grad, settle)
        if op.name in WITHOUT_VALUES:
            run += 1
            continue
        for want, got in ((expected, actual), (expected_grads, actual_grads)):
            for t in leaves(got):
                if lower(t) is t and not may_be_plain:
                    raise AssertionError(f"a result is a {type(t).__name__} and no chain any more")
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


def compare_written(op: Any, dtype: torch.dtype, lift: Convert, lower: Convert, limit: int = 3) -> int:
    """The in-place variant of an entry, and `out=` into an empty tensor; returns how many were run.

    What torch refuses plainly (a sample that broadcasts, an `out=` it does not have) is left out.
    """
    run = 0
    in_place = op.get_inplace()
    for sample in samples(op, dtype, False, limit):
        if not is_dense(sample.input):
            continue
        arguments = ((sample.input, *sample.args), dict(sample.kwargs))
        attempts = [(in_place, False)] if in_place is not None else []
        if op.supports_out:
            attempts.append((op.op, True))
        for function, into_out in attempts:
            wanted = _written(function, tree_map(fresh, arguments), into_out, lambda t: t)
            if wanted is None:
                continue
            if not into_out and wanted[0].shape != sample.input.shape:
                continue  # a quirk of addbmm_, which resizes what it should refuse
            lifted = tree_map(lambda t: lift(fresh(t)) if is_dense(t) else t, arguments)
            got = _written(function, lifted, into_out, lift)
            if got is None:
                raise AssertionError(f"out={into_out} runs plainly and not through the chain")
            (want, _), (found, is_same) = wanted, got
            if not is_same:
                raise AssertionError("the call returned something else than what it wrote into")
            if found.shape != want.shape:
                raise AssertionError(f"the wrapper shows {found.shape} instead of {want.shape}")
            torch.testing.assert_close(lower(found), want, equal_nan=True, check_stride=False)
            run += 1
    return run


def _written(function: Any, arguments: Any, into_out: bool, lift: Convert) -> tuple[Any, bool] | None:
    """(what was written, whether that is what was returned); None if torch has no such call."""
    args, kwargs = arguments
    if not into_out:
        seed(1)
        try:
            return args[0], function(*args, **kwargs) is args[0]
        except (RuntimeError, TypeError, IndexError):
            if lift(args[0]) is args[0]:
                return None
            raise
    seed(1)
    result = function(*args, **kwargs)
    if not isinstance(result, torch.Tensor):
        return None
    out = lift(torch.empty(0, dtype=result.dtype))
    seed(1)
    try:
        return out, function(*args, **kwargs, out=out) is out
    except (RuntimeError, TypeError):
        if lift(out) is out:
            return None
        raise
