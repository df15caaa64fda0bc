"""Item 13: reals as residues, checked against Python's integers and fractions."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import syft as sy
from syft.exceptions import ChainError, UnsupportedOperationError, ValueNotHereError
from syft.mpc.crt_precision import CRTPrecisionTensor, _moduli_for_fields, _sizes_for_fields, coefficients
from syft.mpc.limbs import objects
from syft.serde import SerdeError, deserialize, serialize

X = torch.tensor([[1.5, -2.25, 0.0], [1e6, -3e-2, 7.0]], dtype=torch.float64)
Y = torch.tensor([[2.5, 4.0, -1.0], [0.125, 1e-3, 7.0]], dtype=torch.float64)


def crt(values: torch.Tensor, digits: int = 3, **options: Any) -> Any:
    return values.fix_prec(storage="crt", precision_fractional=digits, **options)


def of_units(integers: list[int], digits: int = 0, field: str = "int100") -> Any:
    empty = {m: torch.zeros(0, dtype=torch.int64) for m in _moduli_for_fields[field]}
    node = CRTPrecisionTensor(empty, precision_fractional=digits)
    return node.over(objects(integers, (len(integers),))).wrap()


def units(chain: Any) -> list[int]:
    return list(chain.child.integers().flat)


def fetched(chain: Any) -> Any:
    return chain.get() if chain.child.is_remote else chain


# -- encoding ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("field", _moduli_for_fields)
@pytest.mark.parametrize(
    "values",
    [
        torch.tensor(-2.5),
        torch.tensor([1.5, -2.0, 3.125]),
        torch.tensor([[1.5, 2e9], [-1.0, 0.0]]),
        torch.empty(0),
        torch.empty(2, 0),
        torch.tensor([3, -4]),
    ],
)
def test_residues_modulo_the_primes_of_the_field_decode_to_the_values(
    field: str, values: torch.Tensor
) -> None:
    x = crt(values, field_type=field)
    assert isinstance(x.child, sy.CRTPrecisionTensor)
    assert tuple(x.child.child) == _moduli_for_fields[field]
    for modulus, residue in x.child.child.items():
        assert residue.shape == values.shape
        assert torch.equal(residue, (values.double() * 1000).long() % modulus)
    assert torch.equal(x.float_prec(), values.to(x.dtype))


@pytest.mark.parametrize(("field", "bits"), [("int64", 64), ("int100", 100)])
def test_a_field_has_as_many_integers_as_its_name_says(field: str, bits: int) -> None:
    moduli = _moduli_for_fields[field]
    assert all(all(m % d for d in range(2, math.isqrt(m) + 1)) for m in moduli)
    assert len(set(moduli)) == len(moduli)
    assert _sizes_for_fields[field] == math.prod(moduli) > 2**bits
    for m, coefficient in coefficients(moduli).items():
        assert [coefficient % other for other in moduli] == [int(other == m) for other in moduli]


HALF = _sizes_for_fields["int100"] // 2


@given(
    st.lists(st.one_of(st.integers(-HALF, HALF), st.sampled_from([HALF, -HALF, 0])), min_size=1, max_size=4)
)
def test_every_integer_of_the_field_is_restored_and_travels(values: list[int]) -> None:
    assert units(of_units(values)) == values
    assert units(deserialize(serialize(of_units(values)))) == values
    assert units(of_units(values).child.reconstruct()) == values


@given(st.floats(-1e20, 1e20), st.integers(0, 9), st.sampled_from([2, 10]))
def test_encoding_is_off_by_half_a_unit_at_most(value: float, digits: int, base: int) -> None:
    x = crt(torch.tensor([value], dtype=torch.float64), digits, base=base)
    assert abs(Fraction(units(x)[0], base**digits) - Fraction(value)) <= Fraction(1, 2 * base**digits)


def test_what_is_out_of_range_or_not_finite_is_refused_with_the_range() -> None:
    for bad in (math.nan, math.inf, -math.inf, 1e30):
        with pytest.raises(ValueError, match=r"finite and between -2.02\d*e\+28 and 2.02"):
            crt(torch.tensor([bad], dtype=torch.float64))
    with pytest.raises(ValueError, match="out of the range"):
        of_units([HALF]) + 1
    with pytest.raises(ValueError, match="out of the range"):
        of_units([2**60]) * 2**60
    with pytest.raises(ValueError, match="no number with so many"):
        crt(X, 40)
    with pytest.raises(ValueError, match="fields are 'int64', 'int100'"):
        crt(X, field_type="int9000")
    with pytest.raises(ValueError, match="keep no gradients"):
        crt(torch.ones(1, requires_grad=True))
    with pytest.raises(ValueError, match="Complex"):
        crt(torch.tensor([1j]))


# -- arithmetic ------------------------------------------------------------------------------------------------

OPERATIONS: dict[str, Callable[[Any, Any], Any]] = {
    "x + y": lambda x, y: x + y,
    "x - y": lambda x, y: x - y,
    "x * y": lambda x, y: x * y,
    "sum and product": lambda x, y: x * y + x - y * 2,
    "x + number": lambda x, y: x + 2.5,
    "number - x": lambda x, y: 2 - x,
    "x * integer": lambda x, y: -3 * x,
    "x * number": lambda x, y: x * 0.5,
    "x * plain": lambda x, y: x * Y,
    "neg": lambda x, y: -x,
    "broadcast": lambda x, y: x * y[0],
    "x @ y": lambda x, y: x @ y.t(),
    "x @ plain": lambda x, y: x @ Y.t(),
    "matrix and vector": lambda x, y: x @ y[0],
    "dot": lambda x, y: x[0] @ y[1],
    "batched": lambda x, y: torch.bmm(x.view(1, 2, 3), y.view(1, 3, 2)),
    "sum": lambda x, y: x.sum(),
    "sum along": lambda x, y: x.sum(1, keepdim=True),
    "x == y": lambda x, y: (x == y).to(torch.float64),
    "x != y": lambda x, y: (x != y).to(torch.float64),
    "x == number": lambda x, y: (x == 7).to(torch.float64),
    "bits compute": lambda x, y: (x == y) * x,
    "cat of unlike": lambda x, y: torch.cat([x * y, y]),
    "views": lambda x, y: torch.stack([x, y]).permute(2, 0, 1)[1:, 0],
    "unbind": lambda x, y: x.unbind(1)[2] + y[:, 0],
}
PLACES: dict[str, Callable[[Any, Any], Any]] = {
    "here": lambda x, workers: x,
    "sent": lambda x, workers: x.send(workers.alice),
    "shared": lambda x, workers: x.share(workers.alice, workers.bob, crypto_provider=workers.charlie),
}
CASES = [(name, place) for name in OPERATIONS for place in PLACES if place != "sent" or "plain" not in name]


@pytest.mark.parametrize(("name", "place"), CASES)
def test_residues_compute_what_torch_computes_here_sent_and_shared(
    name: str, place: str, workers: Any
) -> None:
    operation = OPERATIONS[name]
    found = fetched(operation(PLACES[place](crt(X), workers), PLACES[place](crt(Y), workers)))
    true = operation(X, Y)
    assert found.shape == true.shape
    assert torch.allclose(found.float_prec(), true.double(), rtol=1e-12, atol=1e-12)


@given(st.integers(-(2**45), 2**45), st.integers(-(2**45), 2**45), st.integers(0, 3), st.integers(0, 3))
def test_local_arithmetic_and_comparison_are_those_of_fractions(a: int, b: int, i: int, j: int) -> None:
    x, y = of_units([a], i), of_units([b], j)
    p, q = Fraction(a, 10**i), Fraction(b, 10**j)

    def value(chain: Any) -> Fraction:
        return Fraction(units(chain)[0], chain.child.scale)

    assert value(x + y) == p + q
    assert value(x - y) == p - q
    assert value(x * y) == p * q
    for found, true in ((x > y, p > q), (x < y, p < q), (x >= y, p >= q), (x <= y, p <= q), (x == y, p == q)):
        assert value(found) == true
    if b:
        quotient = x / y
        assert abs(value(quotient) - p / q) <= Fraction(1, 2 * quotient.child.scale)


@settings(max_examples=15)
@given(
    st.lists(st.integers(-(2**49), 2**49), min_size=5, max_size=5),
    st.lists(st.integers(-9, 9), min_size=5, max_size=5),
)
def test_shared_arithmetic_and_equality_are_exact(a: list[int], b: list[int]) -> None:
    holders = [sy.VirtualWorker(sy.hook, id=f"holder of residues {i}") for i in range(3)]
    x, y = (of_units(v).share(*holders[:2], crypto_provider=holders[2]) for v in (a, b))
    assert units((x * x).get()) == [p * p for p in a]
    assert units((x * y * y - x + 5).get()) == [p * q * q - p + 5 for p, q in zip(a, b, strict=True)]
    assert units((y == 3).get()) == [int(q == 3) for q in b]
    assert units((x != x).get()) == [0] * 5
    total = x
    for _ in range(60):
        total = total + x
    assert units(total.get()) == [61 * p for p in a]


@pytest.mark.parametrize("place", PLACES)
def test_in_place_forms_write_into_the_tensor_that_others_hold(place: str, workers: Any) -> None:
    x = PLACES[place](crt(X), workers)
    held = x
    x += PLACES[place](crt(Y), workers)
    x -= 1
    x *= 2
    assert x is held
    assert torch.allclose(fetched(x).float_prec(), (X + Y - 1) * 2, rtol=1e-12)


def test_writing_in_place_is_refused_while_a_view_looks_on() -> None:
    x = crt(X)
    row = x[0]
    for target in (x, row):
        with pytest.raises(ChainError, match="view"):
            target += 1
    del row, target
    x += 1
    assert torch.equal(x.float_prec(), X + 1)


def test_what_residues_do_not_tell_is_refused_on_shares_with_the_cure(workers: Any) -> None:
    x = crt(X).share(workers.alice, workers.bob, crypto_provider=workers.charlie)
    for operation in (lambda: x > 0, lambda: x <= x, lambda: x / 2):
        with pytest.raises(UnsupportedOperationError, match="storage='large'"):
            operation()
    with pytest.raises(ValueNotHereError):
        x[0, 0].item()
    with pytest.raises(ChainError, match="not here"):
        x.float_prec()
    with pytest.raises(ChainError, match="shared already"):
        x.share(workers.alice, workers.bob, crypto_provider=workers.charlie)
    assert torch.equal(x.virtual_get().float_prec(), X)
    with pytest.raises(ChainError, match="same field_type"):
        crt(X) + crt(X, field_type="int64")
    with pytest.raises(ZeroDivisionError):
        crt(X) / 0
    with pytest.raises(ChainError, match="encodes plain tensors"):
        sy.LoggingTensor().on(X).fix_prec(storage="crt")


def test_scalars_are_read_and_large_integers_are_operands() -> None:
    assert crt(torch.tensor(2.5)).item() == 2.5
    assert bool((crt(X) == crt(X)).all()) and torch.equal(crt(X), crt(X))
    assert not bool((crt(X) == crt(Y)).all()) and bool((crt(X) == crt(Y)).any())
    n = 2**70
    assert units(of_units([5]) + n) == units(n + of_units([5])) == [5 + n]
    assert units(n - of_units([5])) == [n - 5]


# -- nodes made by hand, and frames ------------------------------------------------------------------------------


def test_a_node_is_made_of_residues_and_checks_them() -> None:
    residues = {3: torch.tensor([2]), 5: torch.tensor([4]), 7: torch.tensor([6])}
    node = CRTPrecisionTensor(
        residues, base=10, precision_fractional=0, reconstruction_coeffs=coefficients((3, 5, 7))
    )
    assert node.shape == (1,) and node.grad is None
    assert node.float_precision().tolist() == [-1.0]  # 104 of 105
    for bad, text in (
        ({4: torch.tensor([1]), 6: torch.tensor([1])}, "common divisors"),
        ({3: torch.tensor([3])}, "not from 0 to 2"),
        ({3: torch.tensor([1]), 5: torch.tensor([1, 2])}, "same shape"),
        ({1: torch.tensor([0])}, "whole numbers from 2"),
        ({1 << 40: torch.tensor([0])}, "whole numbers from 2"),
    ):
        with pytest.raises(ValueError, match=text):
            CRTPrecisionTensor(bad, precision_fractional=0)
    with pytest.raises(TypeError, match="int64"):
        CRTPrecisionTensor({3: torch.tensor([1.0])}, precision_fractional=0)
    with pytest.raises(ValueError, match="not those of the moduli"):
        CRTPrecisionTensor(residues, precision_fractional=0, reconstruction_coeffs={3: 1, 5: 1, 7: 1})


def test_residues_travel_with_their_precision_and_identity_and_frames_are_checked() -> None:
    x = crt(X).tag("#x").describe("residues")
    back = deserialize(serialize(x))
    assert torch.equal(back.float_prec(), X)
    assert (back.tags, back.description) == ({"#x"}, "residues")
    assert back.child.get_class_attributes() == x.child.get_class_attributes()
    for name, value in (("precision_fractional", 10**9), ("base", 0), ("presented_dtype", torch.int64)):
        changed = crt(X)
        setattr(changed.child, name, value)
        with pytest.raises(SerdeError):
            deserialize(serialize(changed))
    changed = crt(X)
    changed.child.child[_moduli_for_fields["int100"][0]] = torch.tensor([-1])
    with pytest.raises(SerdeError):
        deserialize(serialize(changed))


def test_the_historical_path_is_the_same_module() -> None:
    from syft.frameworks.torch.tensors.interpreters import crt_precision as old

    assert old.CRTPrecisionTensor is CRTPrecisionTensor is sy.CRTPrecisionTensor
    assert old._moduli_for_fields is _moduli_for_fields
