"""Operations on tensors in the terms of operations on specs: what is admitted for them, and results as predicted."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch._ops import OpOverload

from syft.core import shapes
from syft.core.abstract import AbstractTensor
from syft.core.chain import Wrapper
from syft.core.nested import found_in
from syft.core.spec import TensorSpec, extent_in_bytes, spec_of
from syft.exceptions import UnsupportedOperationError
from syft.operations.admission import EXACT, Admission, Result, admit, remembered


def admission_of(
    name: str, args: Sequence[Any], kwargs: Mapping[str, Any] | None = None, is_as_predicted: bool = True
) -> Admission:
    """What an operation on these values will return. One like it that was admitted before costs a look-up.

    NOTE [Where kernels choose]
    Workers that admit nothing but the table make all results as was predicted. Others run kernels on open data as they
    are, and their clients remember which layout a kernel chose. So with `is_as_predicted=False`, results of operations
    that torch's meta kernels misjudge lie as a kernel makes them of zeros in the same layout.
    """
    admission = _admission_of(name, args, kwargs)
    if is_as_predicted or name not in shapes.MISJUDGED or not shapes.MISJUDGED[name](specs_in(args)):
        return admission
    if admission.of_kernel is None:
        admission.of_kernel = _of_kernel(admission, args, kwargs or {})
    return admission.of_kernel


def _of_kernel(admission: Admission, args: Any, kwargs: Any) -> Admission:
    answer, fresh = admission.answer.once(), [result.spec for result in admission.results]
    try:
        with torch.no_grad():
            made = admission.row.function(*_zeros_in(args), **_zeros_in(dict(kwargs)))
    except (RuntimeError, ValueError, IndexError):  # zeros are nothing to it
        made = ()
    told = [spec_of(tensor) for tensor in found_in(made, torch.Tensor)]
    if [(s.shape, s.dtype) for s in told] == [(s.shape, s.dtype) for s in fresh] and not admission.writes:
        answer, fresh = shapes.describe(made), told
    results = tuple(Result(spec, old.view_of) for spec, old in zip(fresh, admission.results, strict=True))
    return Admission(admission.row, answer, results, admission.writes, admission.work, admission.memory)


def _zeros_in(values: Any) -> Any:
    if isinstance(values, torch.Tensor):
        return zeros_of(spec_of(values))
    if type(values) is dict:
        return {name: _zeros_in(value) for name, value in values.items()}
    return type(values)(map(_zeros_in, values)) if type(values) in (list, tuple) else values


def _admission_of(name: str, args: Sequence[Any], kwargs: Mapping[str, Any] | None) -> Admission:
    if not kwargs:
        key = key_of_tensors(name, args)
        known = None if key is None else remembered(tuple(key))
        if known is not None:
            return known
    return admit(name, specs_in(args), specs_in(kwargs) if kwargs else None)


def key_of_tensors(name: str, args: Sequence[Any]) -> list[Any] | None:
    """The key under which an operation on plain values is remembered; None if one of them is something else."""
    key: list[Any] = [name]
    for value in args:
        kind = type(value)
        if kind is torch.Tensor:
            key.append(spec_of(value))
        elif kind in EXACT:
            key.append(kind)
            key.append(value)
        elif kind is float:
            key.append(kind)
            key.append(repr(value))
        elif kind is list:
            key.append((list, len(value)))
            for item in value:
                if type(item) is not int:
                    return None
                key.append(int)
                key.append(item)
        else:
            return None
    return key


def metas_in(values: Any) -> Any:
    """Arguments with meta tensors in the place of tensors."""
    return shapes.to_meta(specs_in(values))


def on_meta(kwargs: dict[str, Any]) -> dict[str, Any]:
    return {**kwargs, "device": torch.device("meta")} if kwargs.get("device") is not None else kwargs


def specs_in(values: Any) -> Any:
    """Arguments with specs in the place of tensors. !! UnsupportedOperationError for a tensor with other types on top"""
    kind = type(values)
    if kind is torch.Tensor:
        return spec_of(values)
    if kind is list or kind is tuple:
        return [
            spec_of(v) if type(v) is torch.Tensor else v if type(v) in _PLAIN else specs_in(v) for v in values
        ]
    if kind is dict:
        return {k: specs_in(v) for k, v in values.items()}
    if kind is Wrapper or isinstance(values, AbstractTensor):
        name = type(getattr(values, "child", values)).__name__
        raise UnsupportedOperationError(
            f"an operation on a restricted {name}",
            torch.Tensor,
            "Send private data as plain tensors, without other types.",
        )
    return spec_of(values) if isinstance(values, torch.Tensor) else values


_PLAIN = frozenset({int, float, bool, type(None), str, torch.dtype})


def as_returned(
    func: OpOverload, admission: Admission, results: list[torch.Tensor], written: list[Any]
) -> Any:
    """New values and written arguments in the structure that an operation returns."""
    answer = admission.answer
    if answer.spec is not None:
        return results[0]
    fresh, aliases = iter(results), iter(written)

    def put(part: Any) -> Any:
        if isinstance(part, shapes.Answer):
            if part.spec is not None:
                return next(fresh)
            return (part.kind or tuple)(put(p) for p in part.parts)
        if isinstance(part, TensorSpec):
            return next(fresh)
        return next(aliases) if part is shapes.ALIAS else None

    parts = [put(part) for part in answer.parts]
    if answer.kind is None:
        return parts[0] if len(func._schema.returns) == 1 else None if not parts else tuple(parts)
    return list(parts) if answer.kind is list else tuple(parts)


def zeros_of(spec: TensorSpec) -> torch.Tensor:
    memory = torch.zeros(spec.offset + extent_in_bytes(spec) // spec.dtype.itemsize, dtype=spec.dtype)
    return memory.as_strided(spec.shape, spec.strides, spec.offset)


def in_own_memory(results: list[torch.Tensor], inputs: Callable[[], set[Any]]) -> list[torch.Tensor]:
    """Results, each in memory of exactly its size, unless they are views of inputs, whose memories `inputs` tells."""
    taken: set[Any] = set()
    kept = []
    for result in results:
        storage = result.untyped_storage()
        key = storage._cdata
        extent = result.nbytes if result.is_contiguous() else extent_in_bytes(spec_of(result))
        if (key in taken or storage.nbytes() != extent) and key not in inputs():
            result = result.clone(memory_format=torch.contiguous_format)
            key = result.untyped_storage()._cdata
        taken.add(key)
        kept.append(result)
    return kept
