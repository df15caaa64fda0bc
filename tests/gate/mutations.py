"""Calls that nobody records: recorded ones with a shape, a type or a public value changed at random."""

from __future__ import annotations

import copy
import random
from typing import Any

from calls import Call, is_tensor

_SIZES = (0, 1, 2, 3, 5, 7)
_NUMBERS = (-1, 0, 1, 2, 3, 5, 8, 100, -2, -5, 2**31, 2**40, 2**62, -(2**63))
_FLOATS: tuple[Any, ...] = (0.0, -1.0, 0.5, 2.0, 1e30, -1e30, {"float": "nan"}, {"float": "inf"})
_DTYPES = "float32 float64 float16 bfloat16 int64 int32 int16 int8 uint8 bool complex64 complex128".split()


def mutated(call: Call, rng: random.Random, times: int | None = None) -> Call:
    """The call with one to three things changed."""
    made = copy.deepcopy(call)
    for _ in range(times or rng.choice((1, 1, 1, 2, 3))):
        places = list(_places(made[1])) + list(_places(made[2]))
        if not places:
            return made
        holder, key = rng.choice(places)
        holder[key] = _changed(holder[key], rng)
    return made


def _places(value: Any) -> Any:
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, item in items:
        yield value, key
        if isinstance(item, list):
            yield from _places(item)


def _changed(value: Any, rng: random.Random) -> Any:
    if is_tensor(value):
        return _changed_tensor(value, rng)
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return rng.choice((value + 1, value - 1, *_NUMBERS))
    if isinstance(value, float) or (isinstance(value, dict) and "float" in value):
        return rng.choice(_FLOATS)
    if isinstance(value, list):
        if value and rng.random() < 0.5:
            return value[:-1]
        return [*value, copy.deepcopy(value[-1])] if value else [1]
    if value is None:
        return rng.choice((None, 1, True, {"t": [3], "d": "float32"}))
    return value


def _changed_tensor(record: dict[str, Any], rng: random.Random) -> dict[str, Any]:
    shape, made = list(record["t"]), dict(record)
    kind = rng.random()
    if kind < 0.2:
        made["d"] = rng.choice(_DTYPES)
        made.pop("v", None)
        made.pop("r", None)
        return made
    if kind < 0.35 and len(shape) > 1:  # other strides
        steps, step = [], 1
        for n in shape:
            steps.append(step)
            step *= max(n, 1)
        made["s"] = steps if rng.random() < 0.6 else [0] * len(shape)
        return made
    if kind < 0.8 and shape:
        place = rng.randrange(len(shape))
        shape[place] = rng.choice((*_SIZES, shape[place] + 1, max(0, shape[place] - 1), 2 * shape[place]))
    elif kind < 0.9 and shape:
        shape.pop(rng.randrange(len(shape)))
    else:
        shape.insert(rng.randrange(len(shape) + 1), rng.choice((1, 2, 3)))
    made.pop("s", None)
    if made.get("v") is not None:
        made["r"] = [min(made["v"], default=0), max(made["v"], default=0)]
        made.pop("v")
    made["t"] = shape
    return made
