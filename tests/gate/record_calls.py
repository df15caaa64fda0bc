"""Records the aten calls that torch's own databases of operators, modules and optimizers make, for `tests/gate`.

    python tests/gate/record_calls.py        # writes tests/gate/calls.jsonl anew

A call is recorded by its public values and the shapes, strides and types of its tensors. Small tensors of integers keep
their values, so that indices are valid ones; of others only the range is kept.
"""

from __future__ import annotations

import json
import sys
import warnings
from collections import defaultdict
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

sys.path.insert(0, str(Path(__file__).parent.parent))
warnings.simplefilter("ignore")

FILE = Path(__file__).parent / "calls.jsonl"
_MOST_PER_ROW = 10
_MOST_VALUES_KEPT = 32
_DTYPES = (torch.float32, torch.int64, torch.complex64, torch.bool, torch.float64, torch.bfloat16, torch.float16,
           torch.int32, torch.uint8)  # fmt: skip


def encoded(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return _encoded_tensor(value.detach())
    if isinstance(value, (list, tuple)):
        return [encoded(v) for v in value]
    if isinstance(value, float) and (value != value or value in (float("inf"), -float("inf"))):
        return {"float": str(value)}
    if isinstance(value, complex):
        return {"complex": [value.real, value.imag]}
    if isinstance(value, (torch.dtype, torch.memory_format, torch.layout)):
        return {"torch": str(value).removeprefix("torch.")}
    if isinstance(value, torch.device):
        return {"device": str(value)}
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise TypeError(type(value))


def _encoded_tensor(t: torch.Tensor) -> Any:
    if t.layout is not torch.strided or t.is_conj() or t.is_neg():
        raise TypeError("not dense")
    made: dict[str, Any] = {"t": list(t.shape), "d": str(t.dtype).removeprefix("torch.")}
    if not t.is_contiguous():
        made["s"] = list(t.stride())
    if t.numel() and not t.is_complex():
        if t.dtype.is_floating_point:
            finite = t.double()[torch.isfinite(t.double())]
            if finite.numel():
                made["r"] = [round(float(finite.min()), 3), round(float(finite.max()), 3)]
        elif t.numel() <= _MOST_VALUES_KEPT:
            made["v"] = t.flatten().tolist()
        else:
            made["r"] = [int(t.min()), int(t.max())]
    return made


class _Recorder(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.calls: dict[str, dict[str, Any]] = defaultdict(dict)
        self.source = ""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        kwargs = kwargs or {}
        try:
            record = [str(func), encoded(args), {k: encoded(v) for k, v in kwargs.items()}]
            key = json.dumps(_shape_of_call(record))
            size = sum(t.numel() for t in tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor))
            if size <= 5000:
                self.calls[str(func)].setdefault(key, (self.source, record))
        except TypeError:
            pass
        return func(*args, **kwargs)


def _shape_of_call(value: Any) -> Any:
    """What makes two calls different: all but the values of tensors."""
    if isinstance(value, dict):
        return {k: _shape_of_call(v) for k, v in value.items() if k not in ("v", "r")}
    if isinstance(value, list):
        return [_shape_of_call(v) for v in value]
    return value


def record_operators(recorder: _Recorder) -> None:
    import opdb

    for dtype in _DTYPES:
        recorder.source = str(dtype)
        for op in opdb.entries(dtype):
            differentiable = dtype.is_floating_point and op.supports_autograd
            for sample in _attempted(lambda: list(opdb.samples(op, dtype, differentiable, 10))):  # noqa: B023
                call = ((sample.input, *sample.args), dict(sample.kwargs))
                with recorder:
                    _attempted(partial(opdb._run, op, call, differentiable, sample.output_process_fn_grad))
                    in_place = op.get_inplace()
                    if in_place is not None and opdb.is_dense(sample.input):
                        args, kwargs = tree_map(
                            lambda t: opdb.fresh(t).detach() if opdb.is_dense(t) else t, call
                        )
                        _attempted(partial(in_place, *args, **kwargs))


def record_modules(recorder: _Recorder) -> None:
    from torch.testing._internal.common_modules import module_db

    recorder.source = "module"
    for info in module_db:
        for training in (True, False):
            for given in _attempted(partial(_inputs_of_module, info, training)):
                with recorder:
                    _attempted(partial(_run_module, info, given, training))


def _inputs_of_module(info: Any, training: bool) -> Any:
    return info.module_inputs_func(
        info, device="cpu", dtype=torch.float32, requires_grad=True, training=training
    )


def _run_module(info: Any, given: Any, training: bool) -> None:
    module = info.module_cls(*given.constructor_input.args, **given.constructor_input.kwargs).train(training)
    made = tree_leaves(module(*given.forward_input.args, **given.forward_input.kwargs))
    ends = [t for t in made if isinstance(t, torch.Tensor) and t.requires_grad]
    torch.autograd.backward(ends, [torch.ones_like(t) for t in ends])


def record_optimizers(recorder: _Recorder) -> None:
    from torch.testing._internal.common_optimizers import optim_db

    for info in optim_db:
        if info.optim_cls is torch.optim.SparseAdam:
            continue
        recorder.source = "optimizer"
        for given in info.optim_inputs_func(device="cpu", dtype=torch.float32):
            for extra in ({"foreach": True}, {"foreach": False}, {"fused": True}):
                with recorder:
                    _attempted(partial(_run_optimizer, info.optim_cls, {**given.kwargs, **extra}))
    with recorder:
        weights = [torch.nn.Parameter(torch.randn(3, 4)) for _ in range(2)]
        for weight in weights:
            weight.grad = torch.randn(3, 4)
        for foreach in (True, False):
            torch.nn.utils.clip_grad_norm_(weights, 1.0, foreach=foreach)
            torch.nn.utils.clip_grad_value_(weights, 1.0, foreach=foreach)


def _run_optimizer(cls: Any, options: dict[str, Any]) -> None:
    weights = [torch.nn.Parameter(torch.randn(3, 4)), torch.nn.Parameter(torch.randn(4))]
    optimizer = cls(weights, **options)

    def closure() -> Any:
        optimizer.zero_grad()
        loss = sum((w**2).sum() for w in weights)
        loss.backward()
        return loss

    for _ in range(3):
        optimizer.step(closure)


def _attempted(what: Any) -> Any:
    try:
        return what() or ()
    except Exception:  # noqa: BLE001  (an entry that cannot run here records nothing)
        return ()


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    recorder = _Recorder()
    record_modules(recorder)
    record_optimizers(recorder)
    record_operators(recorder)
    lines = []
    for name in sorted(recorder.calls):
        by_source: dict[str, list[Any]] = defaultdict(list)
        for source, record in recorder.calls[name].values():
            by_source[source].append(record)
        kept: list[Any] = []
        while len(kept) < _MOST_PER_ROW and any(by_source.values()):
            kept.extend(records.pop(0) for records in by_source.values() if records)
        lines.extend(json.dumps(record, separators=(",", ":")) for record in kept[:_MOST_PER_ROW])
    FILE.write_text("\n".join(lines) + "\n")
    print(f"{len(lines)} calls of {len(recorder.calls)} operations")


if __name__ == "__main__":
    main()
