"""Recorded calls, made anew with other values: the arguments of all tests of the table.

A call is [operation, args, kwargs] as `record_calls.py` writes it. A `World` says which values its hidden tensors have.
"""

from __future__ import annotations

import json
from collections import defaultdict
from functools import cache
from pathlib import Path
from typing import Any

import torch

from syft.core.shapes import contiguous_spec
from syft.core.spec import TensorSpec, make_spec
from syft.operations import all_rows

Call = tuple[str, list[Any], dict[str, Any]]

#: What the hidden values of a world are like. "recorded": as in the call that was recorded, drawn anew.
WORLDS = ("recorded", "random", "nan", "infinite", "zero", "outside", "least")


@cache
def recorded_calls() -> dict[str, list[Call]]:
    """The calls of every row of the table that was seen, and those of its siblings; see `_of_siblings`."""
    from more_calls import MORE

    seen: dict[str, list[Call]] = defaultdict(list)
    with (Path(__file__).parent / "calls.jsonl").open() as file:
        for line in file:
            operation, args, kwargs = json.loads(line)
            seen[operation].append((operation, args, kwargs))
    for operation, args, kwargs in MORE:
        seen[operation].append((operation, args, kwargs))
    return {name: seen.get(name) or _of_siblings(name, seen) for name in all_rows()}


def _of_siblings(name: str, seen: dict[str, list[Call]]) -> list[Call]:
    """An operation in place takes what the one that is not in place takes, and `torch.lstm` what the overload takes."""
    if name.startswith("torch."):
        return [(name, args, kwargs) for _, args, kwargs in seen.get(f"aten.{name[6:]}.input", [])]
    namespace, packet, overload = name.split(".")
    twin = packet.removesuffix("_") if packet.endswith("_") else packet + "_"
    return [(name, args, kwargs) for _, args, kwargs in seen.get(f"{namespace}.{twin}.{overload}", [])]


def is_tensor(value: Any) -> bool:
    return isinstance(value, dict) and "t" in value


def spec_of_record(record: dict[str, Any]) -> TensorSpec:
    dtype = getattr(torch, record["d"])
    if "s" in record:
        return make_spec(torch.Size(record["t"]), tuple(record["s"]), 0, dtype)
    return contiguous_spec(tuple(record["t"]), dtype)


def decoded(value: Any, tensor: Any) -> Any:
    """Arguments with `tensor(record)` in place of every tensor."""
    if is_tensor(value):
        return tensor(value)
    if isinstance(value, list):
        return [decoded(v, tensor) for v in value]
    if isinstance(value, dict):
        ((kind, inner),) = value.items()
        if kind == "float":
            return float(inner)
        if kind == "complex":
            return complex(*inner)
        if kind == "device":
            return torch.device(inner)
        return getattr(torch, inner)
    return value


def specs_of(call: Call) -> tuple[list[Any], dict[str, Any]]:
    return decoded(call[1], spec_of_record), {k: decoded(v, spec_of_record) for k, v in call[2].items()}


def tensors_of(call: Call, world: str, seed: int) -> tuple[list[Any], dict[str, Any]]:
    """The arguments of a call with values of that kind."""
    generator = torch.Generator().manual_seed(seed)

    def tensor(record: dict[str, Any]) -> torch.Tensor:
        return tensor_of(record, world, generator)

    return decoded(call[1], tensor), {k: decoded(v, tensor) for k, v in call[2].items()}


def tensor_of(record: dict[str, Any], world: str, generator: torch.Generator) -> torch.Tensor:
    spec = spec_of_record(record)
    extent = 1 + sum((n - 1) * s for n, s in zip(spec.shape, spec.strides, strict=True))
    memory = torch.zeros(0 if 0 in spec.shape else extent, dtype=spec.dtype)
    made = memory.as_strided(spec.shape, spec.strides)
    if made.numel():
        values = _values(record, world, generator, made)
        if overlaps(spec):
            memory.copy_(values.flatten()[:1].expand(extent))
        else:
            made.copy_(values)
    return made


def overlaps(spec: TensorSpec) -> bool:
    return any(s == 0 and n > 1 for n, s in zip(spec.shape, spec.strides, strict=True))


def _values(
    record: dict[str, Any], world: str, generator: torch.Generator, made: torch.Tensor
) -> torch.Tensor:
    shape, dtype = made.shape, made.dtype
    if dtype is torch.bool:
        if world == "recorded" and "v" in record:
            return torch.tensor(record["v"]).reshape(shape)
        return torch.rand(shape, generator=generator) < {"zero": 0.0, "least": 1.1}.get(world, 0.5)
    if dtype.is_floating_point or dtype.is_complex:
        low, high = record.get("r", (-2.0, 2.0))
        spread = torch.rand(shape, generator=generator, dtype=torch.float64)
        values = low + (high - low) * spread if world == "recorded" else 20 * spread - 10
        some = torch.rand(shape, generator=generator) < 0.5
        if world == "nan":
            values = values.masked_fill(some, float("nan"))
        elif world == "infinite":
            values = values.masked_fill(some, float("inf")).masked_fill(~some & (spread < 0.2), -float("inf"))
        elif world == "zero":
            values = values * 0
        elif world == "outside":
            values = values * 1e30
        elif world == "least":
            values = -values.abs() * 1e6 - 0.5
        return values.to(dtype)
    if world == "recorded" and "v" in record:
        return torch.tensor(record["v"], dtype=dtype).reshape(shape)
    if world == "recorded":
        low, high = record.get("r", (0, 3))
        return torch.randint(low, high + 1, shape, generator=generator).to(dtype)
    if world == "zero":
        return torch.zeros(shape, dtype=dtype)
    if world == "least":
        return torch.full(shape, torch.iinfo(dtype).min, dtype=dtype)
    if world == "random":
        return torch.randint(-3, 9, shape, generator=generator).to(dtype)
    if world == "outside":
        limits = torch.iinfo(dtype)
        return torch.randint(
            max(limits.min, -(2**62)), min(limits.max, 2**62), shape, generator=generator
        ).to(dtype)
    return torch.where(torch.rand(shape, generator=generator) < 0.5, torch.iinfo(dtype).max, -1).to(dtype)


def emptied(call: Call) -> Call | None:
    """The same call of nothing: the first size of its first tensor is 0 wherever it stands in a tensor."""
    sizes = _sizes(call[1])
    if not sizes or sizes[0] == 0:
        return None

    def change(value: Any) -> Any:
        if is_tensor(value):
            shape = [0 if n == sizes[0] else n for n in value["t"]]
            return {"t": shape, "d": value["d"]}
        if isinstance(value, list):
            return [change(v) for v in value]
        return value

    return call[0], change(call[1]), {k: change(v) for k, v in call[2].items()}


def _sizes(value: Any) -> list[int]:
    if is_tensor(value):
        return list(value["t"])
    return [n for v in value for n in _sizes(v)] if isinstance(value, list) else []
