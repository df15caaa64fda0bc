"""Every function of the table in docs/secrets.md, value and gradient, densely over the range that the table states."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from mpc.edges import PRECISIONS, Secrets, assert_close, both, spread

PAGE = Path(__file__).parents[2] / "docs" / "secrets.md"
MANY, FEW = 1200, 60

Inputs = tuple[torch.Tensor, ...]


@dataclass(frozen=True)
class Row:
    """A function, what it is given (the secrets, how many, a seed), and the errors that the page states.

    `value` and `slopes` are called with the secrets, the exact inputs and what is wanted.
    """

    function: Callable[..., Any]
    inputs: Callable[[Secrets, int, int], Inputs]
    value: Callable[..., Any]
    slope: Callable[..., Any]


def signed(x: torch.Tensor, seed: int) -> torch.Tensor:
    coins = torch.rand(x.shape, generator=torch.Generator().manual_seed(seed + 1000))
    return torch.where(coins < 0.5, x, -x)


def reaching(s: Secrets) -> float:
    """The largest result of a product."""
    return 2.0**61 / s.scale**2


def factors(s: Secrets, count: int, seed: int) -> Inputs:
    x = spread(s.unit, math.sqrt(reaching(s)), count, seed)
    y = (
        torch.rand(count, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        * reaching(s)
        / x.clamp_min(1)
    )
    return signed(x, seed), signed(y.clamp(s.unit, 2.0**61 * s.unit), seed + 1)


def quotients(s: Secrets, count: int, seed: int) -> Inputs:
    return signed(spread(0.01, 1e6, count, seed), seed), signed(spread(0.1, 1e3, count, seed + 1), seed + 1)


def between(low: float, high: float) -> Callable[[Secrets, int, int], Inputs]:
    def made(_s: Secrets, count: int, seed: int) -> Inputs:
        generator = torch.Generator().manual_seed(seed)
        return (torch.rand(count, generator=generator, dtype=torch.float64) * (high - low) + low,)

    return made


def everywhere(s: Secrets, count: int, seed: int) -> Inputs:
    far = signed(spread(20, 2.0**45 * s.unit, count // 4, seed), seed)
    return (torch.cat([between(-25, 25)(s, count, seed)[0], far]),)


def angles(s: Secrets, count: int, seed: int) -> Inputs:
    return (
        torch.cat([*between(-30, 30)(s, count, seed), *between(-(2.0**16) + 1, 2.0**16 - 1)(s, count, seed)]),
    )


def exponents(s: Secrets, count: int, seed: int) -> Inputs:
    return between(-40, math.log(reaching(s)))(s, count, seed)


def positive(s: Secrets, count: int, seed: int) -> Inputs:
    return (spread(s.unit, 2.0**60 * s.unit, count, seed),)


def reciprocals(s: Secrets, count: int, seed: int) -> Inputs:
    return (signed(spread(max(2 * s.scale / 2.0**30.5, s.unit), 1e6, count, seed), seed),)


def classes(s: Secrets, count: int, seed: int) -> Inputs:
    return (torch.randn(count // 10, 10, generator=torch.Generator().manual_seed(seed)).double() * 5,)


def deviating(s: Secrets, count: int, seed: int) -> Inputs:
    rows = count // 24
    sizes = spread(20 * s.unit, 2.0**15 / math.sqrt(24) / 2, rows, seed).view(-1, 1)
    normal = torch.randn(rows, 24, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return (normal * sizes + sizes,)


def chances(s: Secrets, count: int, seed: int) -> Inputs:
    inside = spread(s.unit, 0.5, count // 2, seed)
    return (torch.cat([inside, 1 - inside]),)


def absolute(bits: int, units: float) -> Callable[..., Any]:
    return lambda s, x, wanted: 2.0**-bits + units * s.unit


def relative(bits: int, units: float, inverse: bool = False) -> Callable[..., Any]:
    """`inverse`: units times 1 + 1 / |x|, x the last input."""

    def allowed(s: Secrets, x: Inputs, wanted: torch.Tensor) -> Any:
        grown = 1 + 1 / x[-1].abs().clamp_min(s.unit) if inverse else 1.0
        return 2.0**-bits * wanted.abs() + (units + 0.1) * s.unit * grown

    return allowed


def of_deviation(s: Secrets, x: Inputs) -> torch.Tensor:
    return 1 / torch.sqrt(x[0].var(-1, correction=0, keepdim=True) + 1e-4)


def norm_value(s: Secrets, x: Inputs, wanted: torch.Tensor) -> Any:
    return 2.0**-17 * wanted.abs() + s.unit * (4 + 2 * of_deviation(s, x))


def norm_slope(s: Secrets, x: Inputs, wanted: torch.Tensor) -> Any:
    inverse = of_deviation(s, x)
    return 2.0**-15 * wanted.abs().amax(-1, keepdim=True) + s.unit * (4 + inverse + 2 * inverse**2)


def weighted(function: Any) -> Any:
    """So that gradients are not zero."""
    return lambda x: function(x) * torch.linspace(-1, 1, x.shape[-1], dtype=torch.float64)


def smooth(function: Any) -> Row:
    return Row(function, everywhere, absolute(16, 2), absolute(15, 3))


def norm(function: Any) -> Row:
    return Row(weighted(function), deviating, norm_value, norm_slope)


def chosen(function: Any) -> Row:
    return Row(
        weighted(lambda x: function(x, -1)), classes, absolute(18, 3.1), absolute(14, 6 * (1 + 10**0.5 / 10))
    )


def of_angle(s: Secrets, x: Inputs, wanted: torch.Tensor) -> Any:
    return 2.0**-15 + 2.0**-26 * x[0].abs() + 3 * s.unit


def angle(function: Any) -> Row:
    return Row(function, angles, of_angle, of_angle)


#: By the names of the page.
ROWS = {
    "x * y": Row(torch.mul, factors, relative(50, 1), relative(50, 1)),
    "x / y": Row(torch.div, quotients, relative(19, 1), relative(17, 4, True)),
    "1 / x": Row(torch.reciprocal, reciprocals, relative(19, 1), relative(17, 4, True)),
    "exp": Row(torch.exp, exponents, relative(19, 1), relative(18, 2)),
    "log": Row(torch.log, positive, absolute(22, 1.01), relative(18, 2)),
    "sqrt": Row(torch.sqrt, positive, relative(19, 1), relative(17, 2, True)),
    "rsqrt": Row(torch.rsqrt, positive, relative(19, 1), relative(17, 3, True)),
    "sigmoid": smooth(torch.sigmoid),
    "tanh": smooth(torch.tanh),
    "softplus": smooth(F.softplus),
    "logsigmoid": smooth(F.logsigmoid),
    "silu": smooth(F.silu),
    "gelu": smooth(F.gelu),
    "sin": angle(torch.sin),
    "cos": angle(torch.cos),
    "softmax": chosen(torch.softmax),
    "log_softmax": chosen(torch.log_softmax),
    "batch, layer, group, RMS norm": norm(lambda x: F.layer_norm(x, x.shape[-1:], eps=1e-4)),
    "x.pow(2).mean(-1)": Row(
        lambda x: x.pow(2).mean(-1),
        deviating,
        lambda s, x, wanted: 1.1 * s.unit**2 + 2.0**-50 * wanted,
        lambda s, x, wanted: 3 * s.unit * (1 + x[0].abs()),
    ),
    "binary_cross_entropy": Row(
        lambda p: F.binary_cross_entropy(p, torch.ones(p.shape, dtype=torch.float64), reduction="none"),
        chances,
        absolute(21, 3.1),
        relative(17, 2),
    ),
}


def test_the_table_of_the_page_is_what_is_swept() -> None:
    text = PAGE.read_text().partition("## How exact functions are")[2].partition("\n## ")[0]
    rows = [line.split(" | ")[0].strip("| ") for line in text.splitlines() if line.startswith("| ")]
    names = {name for row in rows if row for name in (re.findall(r"`([^`]+)`", row) or [row])}
    assert names == set(ROWS)


def sweep(
    name: str, make_worker: Any, holders: int, precision: tuple[int, int], count: int, seed: int
) -> None:
    secrets = Secrets(make_worker, holders, precision)
    row = ROWS[name]
    inputs = row.inputs(secrets, count, seed)
    exact = tuple(secrets.encoded(x) for x in inputs)
    values, slopes = both(row.function, secrets, *inputs)
    assert_close(values, row.value(secrets, exact, values[1]), exact[-1])
    for slope in slopes:
        assert_close(slope, row.slope(secrets, exact, slope[1]), exact[-1])


#: Those that no other file tries at their edges.
@pytest.mark.parametrize("name", ["x * y", "sin", "cos", "x.pow(2).mean(-1)"])
@pytest.mark.parametrize("holders", [2, 3])
def test_some_of_each(name: str, holders: int, make_worker: Any) -> None:
    sweep(name, make_worker, holders, PRECISIONS[0], FEW, 1)


@pytest.mark.slow
@pytest.mark.parametrize("precision", PRECISIONS, ids=["base 2", "base 10"])
@pytest.mark.parametrize("holders", [2, 3])
@pytest.mark.parametrize("name", ROWS)
def test_many_of_each(name: str, holders: int, precision: tuple[int, int], make_worker: Any) -> None:
    sweep(name, make_worker, holders, precision, MANY, 2)
