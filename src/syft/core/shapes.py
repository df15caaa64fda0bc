"""What an operation would return, asked of torch's meta kernels and remembered.

A meta run costs about 100 us, a lookup less than one, so answers are cached by the operation, the specs
of its tensors and its other arguments. A wrong shape fails here, at the user's line, before anything is
sent anywhere.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import torch
from torch._ops import OpOverload

from syft.core.memory import Memory
from syft.core.meta_kernels import CORRECTED, WITHOUT_META
from syft.core.nested import found_in
from syft.core.ops import facts_of
from syft.core.spec import TensorSpec, make_spec, spec_of
from syft.exceptions import SyftError, UnsupportedOperationError

_answers: Memory[tuple[Any, ...], Answer] = Memory(100_000)


class Answer:
    """The metadata of an operation's result.

    spec    of a single tensor, else None
    parts   of several values: a spec, None (undefined tensor) or ALIAS per value; container in `kind`
    asks    the shapes depend on data, or torch has no meta kernel: the worker has to tell
    """

    __slots__ = ("asks", "kind", "parts", "spec")

    def __init__(
        self,
        spec: TensorSpec | None = None,
        parts: tuple[Any, ...] = (),
        kind: type | None = None,
        asks: bool = False,
    ) -> None:
        self.spec, self.parts, self.kind, self.asks = spec, parts, kind, asks

    def once(self) -> Answer:
        """The same for this one call: the worker has to tell again the next time."""
        return Answer(self.spec, self.parts, self.kind, asks=True)


ALIAS = "alias"
ASK = Answer(asks=True)


def _always(_args: Any) -> bool:
    return True


def _in_evaluation(args: Any) -> bool:
    """Whether a batch norm (input, weight, bias, mean, variance, training, ...) is not in training."""
    return not args[5]


def _in_another_layout(args: Any) -> bool:
    """Whether an input is not contiguous: which layout the result has then, only the kernel tells."""
    return any(
        spec.strides != contiguous_spec(spec.shape, spec.dtype).strides for spec in found_in(args, TensorSpec)
    )


#: Operations whose meta kernels answer something else than the CPU kernel does, and for which arguments.
#: The worker is asked, once for each metadata. Where a formula is right for all arguments, it is in `CORRECTED`.
MISJUDGED: dict[str, Callable[[Any], bool]] = {
    "aten._embedding_bag.default": _always,  # shapes of the bookkeeping results
    "aten._fft_r2c.default": _always,  # strides
    "aten._linalg_svd.default": _always,  # strides
    "aten.linalg_eig.default": _always,  # strides
    "aten._native_batch_norm_legit.default": _in_evaluation,  # saved statistics are empty
    "aten.native_batch_norm.default": _in_evaluation,
    **dict.fromkeys(
        (
            "aten._fft_c2r.default",
            "aten.channel_shuffle.default",
            "aten.convolution.default",
            "aten.convolution_backward.default",
            "aten.copysign.Tensor",
            "aten.div.Tensor_mode",
            "aten.floor_divide.default",
            "aten.glu_backward.default",
            "aten.hardswish_backward.default",
            "aten.hardtanh_backward.default",
            "aten.logit_backward.default",
            "aten.max_unpool2d.default",
            "aten.native_dropout_backward.default",
            "aten.pixel_shuffle.default",
            "aten.pow.Scalar",
            "aten.reflection_pad2d.default",
            "aten.reflection_pad2d_backward.default",
            "aten.reflection_pad3d.default",
            "aten.reflection_pad3d_backward.default",
            "aten.replication_pad2d.default",
            "aten.replication_pad2d_backward.default",
            "aten.replication_pad3d.default",
            "aten.replication_pad3d_backward.default",
            "aten.roll.default",
        ),
        _in_another_layout,
    ),
}

#: Those whose results on open data have other shapes than on private data: workers that run both are always asked.
ASKED_EACH_TIME = frozenset({"aten._embedding_bag.default"})


def remembered(key: list[Any]) -> Answer | None:
    """The answer to the same question asked before, if it was."""
    try:
        return _answers.get(tuple(key))
    except TypeError:  # an unhashable argument
        return None


#: The same for a key that is a tuple, and surely hashable.
recalled = _answers.get


def infer(key: list[Any], func: Any, args: Any, kwargs: dict[str, Any]) -> Answer:
    """The metadata of `func(*args, **kwargs)`, where tensors are given by their specs."""
    answer = _ask_meta(func, args, kwargs)
    remember(key, answer)
    return answer


def remember(key: list[Any], answer: Answer) -> None:
    """Answer the same question so next time."""
    with contextlib.suppress(TypeError):  # an unhashable argument
        _answers[tuple(key)] = answer


def depends_on_data(func: Any, args: Any = ()) -> bool:
    """Whether the shape of the result depends on values. An index of integers does not, one of bits does."""
    if func is torch.ops.aten.index.Tensor and args:
        return any(getattr(index, "dtype", None) in (torch.bool, torch.uint8) for index in args[1])
    return torch.Tag.dynamic_output_shape in func.tags or torch.Tag.data_dependent_output in func.tags


def _ask_meta(func: Any, args: Any, kwargs: dict[str, Any]) -> Answer:
    misjudged = MISJUDGED.get(facts_of(func).name)
    if misjudged is not None and misjudged(args):
        return ASK
    predicted = predict(func, args, kwargs)
    if predicted is None:
        return ASK
    marked = next((spec for spec in found_in((args, kwargs), TensorSpec) if spec.number_format), None)
    return predicted[0] if marked is None else _in_fixed_precision(predicted[0], func, marked)


#: Comparisons, which are numbers in fixed precision.
_COMPARISONS = frozenset({"lt", "le", "gt", "ge", "eq", "ne"})


def _in_fixed_precision(answer: Answer, func: Any, like: TensorSpec) -> Answer:
    """The answer of an operation on remote fixed precision, given that on torch tensors; see `TensorSpec`."""
    is_comparison = func.overloadpacket.__name__ in _COMPARISONS

    def marked(part: Any) -> Any:
        if isinstance(part, Answer):
            return _in_fixed_precision(part, func, like)
        if not isinstance(part, TensorSpec) or not (part.dtype.is_floating_point or is_comparison):
            return part
        kind = like.dtype if is_comparison else part.dtype
        return make_spec(part.shape, part.strides, part.offset, kind, like.number_format)

    return Answer(marked(answer.spec), tuple(marked(part) for part in answer.parts), answer.kind, answer.asks)


def predict(
    func: Any, args: Any, kwargs: dict[str, Any], watch: Any = None
) -> tuple[Answer, list[TensorSpec], list[int | None]] | None:
    """The metadata of `func(*args, **kwargs)` in full: the answer, the specs of new values, and what those are views of.

    A view is told by the place of the tensor that it shares memory with, among all tensors of the call. None if only
    values can tell it. `watch` is a dispatch mode that sees the operations on the way.
    """
    facts = facts_of(func) if isinstance(func, OpOverload) else None
    if facts is not None and facts.name not in WITHOUT_META and depends_on_data(func, args):
        return None
    meta_args, meta_kwargs = to_meta(args), to_meta(kwargs)
    if meta_kwargs.get("device") is not None or _takes_device(func):
        meta_kwargs["device"] = torch.device("meta")
    given = list(found_in((meta_args, meta_kwargs), torch.Tensor))
    run = WITHOUT_META.get(facts.name, func) if facts is not None else func
    try:
        with torch.device("meta"), watch or contextlib.nullcontext():
            result = run(*meta_args, **meta_kwargs)
    except SyftError:
        raise
    except NotImplementedError:
        return None
    except RuntimeError as error:
        if _is_about_data(error):
            return None
        raise
    if facts is not None and facts.name in CORRECTED:
        result = CORRECTED[facts.name](result, meta_args, meta_kwargs)
    if facts is not None and facts.mutates:
        _refuse_resized(func, args, meta_args)
        _refuse_resized(func, tuple(kwargs.values()), tuple(meta_kwargs.values()))
    memories = {t.untyped_storage()._cdata: place for place, t in reversed(list(enumerate(given)))}
    fresh = list(_new_tensors(result, facts))
    return (
        describe(result, facts),
        [spec_of(t) for t in fresh],
        [memories.get(t.untyped_storage()._cdata) for t in fresh],
    )


def _new_tensors(result: Any, facts: Any) -> Iterator[torch.Tensor]:
    """The tensors of a result that are no arguments written in place, in order."""
    aliases = facts.aliases if facts is not None and facts.mutates else ()
    for index, value in enumerate(result if isinstance(result, (tuple, list)) else (result,)):
        if index >= len(aliases) or aliases[index] is None:
            yield from found_in(value, torch.Tensor)


@cache
def _takes_device(func: Any) -> bool:
    return isinstance(func, OpOverload) and any(a.name == "device" for a in func._schema.arguments)


def _is_about_data(error: RuntimeError) -> bool:
    text = str(error)
    return "meta tensor" in text or "Meta" in text or "data-dependent" in text or "not allocated" in text


def to_meta(value: Any) -> Any:
    """`value` with a meta tensor in place of every spec."""
    if isinstance(value, TensorSpec):
        return value.meta()
    if isinstance(value, (tuple, list)) and not isinstance(value, torch.Size):
        return type(value)(to_meta(v) for v in value)
    if isinstance(value, dict):
        return {k: to_meta(v) for k, v in value.items()}
    return value


def _refuse_resized(func: Any, before: Any, after: Any) -> None:
    for spec, meta in zip(before, after, strict=True):
        if isinstance(spec, TensorSpec) and spec.shape != meta.shape:
            raise UnsupportedOperationError(
                str(func),
                torch.Tensor,
                f"It would resize a remote tensor of shape {tuple(spec.shape)} to {tuple(meta.shape)} in "
                "place; give it a tensor of the right shape.",
            )


def describe(result: Any, facts: Any = None) -> Answer:
    """The answer that a result (on meta tensors or real ones) stands for."""
    aliases = facts.aliases if facts is not None and facts.mutates else ()

    def part(index: int, value: Any) -> Any:
        if index < len(aliases) and aliases[index] is not None:
            return ALIAS
        return spec_of(value) if isinstance(value, torch.Tensor) else value

    if isinstance(result, (tuple, list)):
        parts: list[Any] = []
        for index, value in enumerate(result):
            if isinstance(value, (tuple, list)):
                parts.append(describe(value))
            else:
                parts.append(part(index, value))
        return Answer(parts=tuple(parts), kind=tuple if isinstance(result, tuple) else list)
    single = part(0, result)
    if isinstance(single, TensorSpec):
        return Answer(spec=single)
    return Answer(parts=(single,), kind=None)


def contiguous_spec(shape: tuple[int, ...], dtype: torch.dtype) -> TensorSpec:
    """The spec of a fresh tensor of that shape."""
    size = torch.Size(shape)
    strides: list[int] = []
    step = 1
    for n in reversed(size):
        strides.insert(0, step)
        step *= max(n, 1)
    return make_spec(size, tuple(strides), 0, dtype)
