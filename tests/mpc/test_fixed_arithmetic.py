"""Fixed precision keeps its stated errors: sums, products, quotients, truncation, the ends of the range."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from syft.core.chain import new_wrapper
from syft.mpc.precision import ENCODE_LIMIT, FixedPrecisionTensor
from syft.mpc.rules import fixed_approximations as approx
from syft.mpc.rules import fixed_ring as ring
from syft.mpc.rules import fixed_rounding as rounding

PRECISIONS = [(2, 16), (2, 8), (2, 24), (10, 3), (10, 6)]
precisions = st.sampled_from(PRECISIONS)


def fixed(value: Any, base: int = 10, digits: int = 3) -> Any:
    tensor = value if isinstance(value, torch.Tensor) else torch.tensor(value, dtype=torch.float64)
    return new_wrapper(FixedPrecisionTensor.encode(tensor, base, digits))


def back(chain: Any) -> torch.Tensor:
    return chain.child.decode()  # type: ignore[no-any-return]


def reals(limit: float) -> Any:
    return st.lists(st.floats(-limit, limit, width=64), min_size=1, max_size=6)


def unit(base: int, digits: int) -> float:
    return 1.0 / base**digits


@given(precisions, reals(1e5))
def test_encoding_errs_by_half_a_unit(precision: Any, values: list[float]) -> None:
    x = torch.tensor(values, dtype=torch.float64)
    assert ((back(fixed(x, *precision)) - x).abs() <= 0.5000001 * unit(*precision)).all()


@given(precisions, st.integers(-(2**31), 2**31))
def test_integers_are_encoded_exactly(precision: Any, value: int) -> None:
    assert back(fixed(torch.tensor([value]), *precision)).to(torch.float64).item() == float(
        torch.tensor(value, dtype=torch.float32)
    )
    assert fixed(torch.tensor([value]), *precision).child.child.item() == value * precision[0] ** precision[1]


@given(st.integers(-ENCODE_LIMIT + 1, ENCODE_LIMIT - 1), st.integers(1, 2**40))
def test_truncation_is_less_than_one_off_for_every_sign_and_size(value: int, divisor: int) -> None:
    made = int(ring.truncate(torch.tensor([value]), divisor))
    assert abs(value - made * divisor) < divisor


@given(st.integers(-ENCODE_LIMIT + 1, ENCODE_LIMIT - 1), st.integers(1, 2**40))
def test_roundings_are_exact(value: int, divisor: int) -> None:
    child = torch.tensor([value])
    assert int(rounding.floor(child, divisor)) == value // divisor
    assert int(rounding.ceiling(child, divisor)) == -(-value // divisor)
    assert int(rounding.toward_zero(child, divisor)) == (abs(value) // divisor) * (1 if value >= 0 else -1)


@given(precisions, reals(1e5), reals(1e5))
def test_sums_and_differences_are_exact(precision: Any, a: list[float], b: list[float]) -> None:
    size = min(len(a), len(b))
    x, y = fixed(a[:size], *precision), fixed(b[:size], *precision)
    assert torch.equal((x + y).child.child, x.child.child + y.child.child)
    assert torch.equal((x - y).child.child, x.child.child - y.child.child)
    assert torch.equal((-x).child.child, -x.child.child)


@given(precisions, reals(80), reals(80))
def test_a_product_errs_by_less_than_one_unit(precision: Any, a: list[float], b: list[float]) -> None:
    size = min(len(a), len(b))
    x, y = fixed(a[:size], *precision), fixed(b[:size], *precision)
    assert ((back(x * y) - back(x) * back(y)).abs() < 1.000001 * unit(*precision)).all()


@given(precisions, reals(1000), st.floats(-100, 100))
def test_a_public_factor_keeps_22_bits(precision: Any, a: list[float], factor: float) -> None:
    x = fixed(a, *precision)
    allowed = 1.000001 * unit(*precision) + back(x).abs() * abs(factor) * 2.0**-22
    assert ((back(x * factor) - back(x) * factor).abs() <= allowed).all()
    plain = torch.full((len(a),), factor, dtype=torch.float64)
    assert ((back(plain * x) - back(x) * factor).abs() <= allowed).all()


@given(precisions, reals(1e5), st.integers(-1000, 1000).filter(bool))
def test_division_by_a_public_integer_errs_by_less_than_one_unit(
    precision: Any, a: list[float], divisor: int
) -> None:
    x = fixed(a, *precision)
    assert ((back(x / divisor) - back(x) / divisor).abs() < 1.000001 * unit(*precision)).all()


@given(precisions, reals(100), st.lists(st.floats(0.01, 1000), min_size=6, max_size=6), st.booleans())
def test_division_by_a_secret_keeps_its_bound(
    precision: Any, a: list[float], b: list[float], negative: bool
) -> None:
    x, y = fixed(a, *precision), fixed(b[: len(a)], *precision)
    if (y.child.child == 0).any():
        return
    y = -y if negative else y
    exact = back(x) / back(y)
    allowed = exact.abs() * 2.0**-19 + (1.01 + 2.0**-11 / back(y).abs()) * unit(*precision)
    assert ((back(x / y) - exact).abs() <= allowed).all()


@given(precisions, st.integers(1, 5), st.integers(1, 30), st.integers(0, 10**6))
def test_a_matrix_product_errs_by_less_than_one_unit(precision: Any, n: int, k: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    a, b = (torch.randn(shape, generator=generator, dtype=torch.float64) for shape in ((n, k), (k, n)))
    x, y = fixed(a, *precision), fixed(b, *precision)
    assert ((back(x @ y) - back(x) @ back(y)).abs() < 1.000001 * unit(*precision)).all()


def test_the_ends_of_the_range_and_tiny_values() -> None:
    largest = (ENCODE_LIMIT - 1) // 1000
    ends = torch.tensor([largest, -largest, 0, 1, -1])
    chain = fixed(ends)
    assert torch.equal(chain.child.child, ends * 1000)
    assert ((chain / 7).child.child - (ends * 1000) // 7).abs().max() <= 1
    assert back(chain < 0).tolist() == [False, True, False, False, True]
    assert torch.equal(back(chain.abs()).double(), ends.abs().float().double())
    tiny = fixed([0.0004, -0.0004, 0.0006, -0.0006])
    assert tiny.child.child.tolist() == [0, 0, 1, -1]


def test_known_faults_of_the_old_system_do_not_occur() -> None:
    assert back(torch.tensor(5) + fixed(torch.tensor(5))).item() == 10.0
    assert back(fixed([-7.0, -1.0]) / 2).tolist() == [-3.5, -0.5]
    assert back(fixed([1.0, 3.0, 2.0]).argmax()).item() == 1
    assert back(fixed([1000.0]) * 4e-4).item() == pytest.approx(0.4)
    index = fixed([1.0, 3.0, 2.0]).argmax()
    assert index.dtype == torch.int64 and back(index + 1).item() == 2


def test_bits_mix_freely_with_reals() -> None:
    x = fixed([1.5, -2.5, 0.25])
    positive = x > 0
    assert positive.dtype == x.dtype and positive.child.precision_fractional == x.child.precision_fractional
    assert back(positive * x).tolist() == [1.5, 0.0, 0.25]
    assert torch.equal((positive * x).child.child, (positive.child.child > 0) * x.child.child)
    assert back(x + positive).tolist() == [2.5, -2.5, 1.25]
    assert back(positive.float()).tolist() == [1.0, 0.0, 1.0]
    assert back(positive.sum()).item() == 2
    assert back(~positive).tolist() == [0.0, 1.0, 0.0]
    assert positive.bool().dtype == torch.bool and back(positive.bool()).tolist() == [True, False, True]
    assert back(positive.long()).tolist() == [1, 0, 1]
    assert back(positive.float() / 4).tolist() == [0.25, 0.0, 0.25]
    assert back(torch.where(positive, x, -x)).tolist() == [1.5, 2.5, 0.25]


@pytest.mark.parametrize("precision", PRECISIONS)
def test_comparisons_are_exact(precision: Any) -> None:
    units = torch.tensor([-3, -1, 0, 1, 2, ENCODE_LIMIT // 2, -ENCODE_LIMIT // 2])
    node = FixedPrecisionTensor(*precision)
    node.child = units
    x, y = new_wrapper(node).unsqueeze(1), new_wrapper(node).unsqueeze(0)
    a, b = units.unsqueeze(1), units.unsqueeze(0)
    for name in ("lt", "le", "gt", "ge", "eq", "ne"):
        assert torch.equal(back(getattr(torch, name)(x, y)), getattr(torch, name)(a, b)), name


def test_writing_in_place_reaches_views_and_returns_the_left_operand() -> None:
    x = fixed([[1.0, 2.0], [3.0, 4.0]])
    view, alias, other = x[0], x.detach(), x
    x += 1
    x[1] *= 2
    assert x is other and back(view).tolist() == [2.0, 3.0]
    view.zero_()
    assert back(alias).tolist() == [[0.0, 0.0], [8.0, 10.0]]
    x.copy_(torch.ones(2, 2))
    x.masked_fill_(torch.tensor([[True, False], [False, True]]), 0.5)
    assert back(x).tolist() == [[0.5, 1.0], [1.0, 0.5]]


def test_what_cannot_be_is_refused_with_a_sentence() -> None:
    x = fixed([1.0, 2.0])
    with pytest.raises(ValueError, match=r"between -4.61169e\+15 and 4.61169e\+15"):
        fixed([1e16])
    for bad in (float("nan"), float("inf")):
        with pytest.raises(ValueError, match="must be finite"):
            fixed([bad])
    with pytest.raises(ValueError, match="Complex numbers"):
        fixed(torch.tensor([1j]))
    with pytest.raises(ValueError, match="Bring both to the same precision"):
        x + fixed([1.0, 2.0], 2, 16)
    with pytest.raises(
        NotImplementedError, match=r"no rule for aten.lgamma.default. Write it with operations"
    ):
        torch.lgamma(x)
    with pytest.raises(NotImplementedError, match="would show the secret"):
        x.nonzero()
    with pytest.raises(NotImplementedError, match="index or mask is a secret"):
        x[x]
    with pytest.raises(NotImplementedError, match="encode the target with fix_precision"):
        torch.zeros(2, dtype=torch.long).copy_(x)
    with pytest.raises(ZeroDivisionError):
        x / 0
    with pytest.raises(ValueError, match="do not describe numbers"):
        FixedPrecisionTensor(base=1)


def test_secret_indices_read_and_write_everywhere() -> None:
    x = fixed([[1.0, 5.0, 2.0], [7.0, 3.0, 4.0]])
    values, index = x.max(1)
    assert back(values).tolist() == [5.0, 7.0] and back(index).tolist() == [1, 0]
    assert back(x.gather(1, index.unsqueeze(1))).tolist() == [[5.0], [7.0]]
    assert back(torch.zeros(2, 3).scatter(1, index.unsqueeze(1), values.unsqueeze(1))).tolist() == [
        [0.0, 5.0, 0.0],
        [7.0, 0.0, 0.0],
    ]
    assert back(x.sort(1, descending=True)[0]).tolist() == [[5.0, 2.0, 1.0], [7.0, 4.0, 3.0]]


def test_the_kernel_of_division_works_on_integers_alone() -> None:
    made = approx.divide(torch.tensor([7000, -7000]), torch.tensor([2000, 2000]), 1000)
    assert made.tolist() == [3500, -3500]
