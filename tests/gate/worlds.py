"""Running a call in two worlds, and comparing what their users hear and hold."""

from __future__ import annotations

import warnings
from typing import Any

import torch
from calls import Call, specs_of, tensors_of

from syft.core.nested import found_in
from syft.core.spec import extent_in_bytes, spec_of
from syft.operations import Admission, Outcome, admit, run


def admitted(call: Call) -> Admission | None:
    """The admission of a call, or None where it is refused."""
    args, kwargs = specs_of(call)
    try:
        return admit(call[0], args, kwargs)
    except (RuntimeError, ValueError, TypeError, IndexError):
        return None


def run_in(admission: Admission, call: Call, world: str, seed: int = 1) -> tuple[Outcome, Any, Any]:
    """The outcome of a call in a world, and its arguments after it ran."""
    args, kwargs = tensors_of(call, world, seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return run(admission, args, kwargs), args, kwargs


def heard(admission: Admission, outcome: Outcome, args: Any, kwargs: Any) -> list[Any]:
    """All that somebody can see who may not see values: the specs of what there is, and the memory that it takes."""
    inputs = list(found_in((args, kwargs), torch.Tensor))
    memories = [t.untyped_storage()._cdata for t in inputs]
    seen: list[Any] = [spec_of(t) for t in inputs]
    for result, made in zip(admission.results, outcome.results, strict=True):
        storage = made.untyped_storage()
        shared = memories.index(storage._cdata) if storage._cdata in memories else None
        seen.append((spec_of(made), storage.nbytes(), shared, made.requires_grad))
        assert spec_of(made) == result.spec
        assert shared == result.view_of if result.view_of is not None else shared is None
        if result.view_of is None:
            assert storage.nbytes() == extent_in_bytes(result.spec) + result.spec.offset * made.dtype.itemsize
    return seen


def same(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two tensors are equal bit for bit, where a NaN equals a NaN."""
    if one.shape != other.shape or one.dtype is not other.dtype:
        return False
    if one.is_complex():
        one, other = torch.view_as_real(one), torch.view_as_real(other)
    if one.dtype.is_floating_point:
        return bool(((one == other) | (one.isnan() & other.isnan())).all())
    return torch.equal(one, other)
