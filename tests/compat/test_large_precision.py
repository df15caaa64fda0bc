"""Item 13 and the storage half of item 5: numbers far beyond 64 bits, checked against Python's integers and fractions."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

import syft as sy
from mpc.network_parties import Parties
from syft.exceptions import ChainError, UnsupportedOperationError, ValueNotHereError
from syft.mpc import limbs
from syft.mpc.large_precision import LargePrecisionTensor, type_precision
from syft.mpc.storage import LargePrecisionWarning
from syft.serde import SerdeError, deserialize, serialize

TYPES = [torch.int8, torch.int16, torch.int32, torch.int64]
X = torch.tensor([[1.5, -2.25, 0.0], [1e6, -3e-5, 7.0]], dtype=torch.float64)
Y = torch.tensor([[2.5, 4.0, -1.0], [1.0 / 3, 1e-3, -7.0]], dtype=torch.float64)


def large(values: torch.Tensor, digits: int = 40, **options: Any) -> Any:
    return values.fix_prec(storage="large", precision_fractional=digits, **options)


def exact(chain: Any) -> list[Fraction]:
    """The values without rounding."""
    node = chain.child
    return [Fraction(v, node.scale) for v in node.integers().flat]


def big(integers: list[int], digits: int = 0, base: int = 10, kind: torch.dtype = torch.int32) -> Any:
    """A chain over integers in units."""
    node = LargePrecisionTensor(base=base, precision_fractional=digits, internal_type=kind)
    return node.over(limbs.objects(integers, (len(integers),))).wrap()


def units(chain: Any) -> list[int]:
    return list(chain.child.integers().flat)


# -- encoding and decoding ----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [*TYPES, torch.uint8])
@pytest.mark.parametrize(
    "values",
    [
        torch.tensor(-2.5),
        torch.tensor([1.5, -2.0, 3.0]),
        torch.tensor([[1.5, 2e30], [-1e-9, 0.0]]),
        torch.empty(0),
        torch.empty(2, 0, 3),
        torch.tensor([3, -4]),
        torch.tensor([True, False]),
    ],
)
def test_large_storage_keeps_limbs_of_the_asked_type_and_decodes_to_the_values(
    kind: torch.dtype, values: torch.Tensor
) -> None:
    x = values.fix_prec(storage="large", internal_type=kind, precision_fractional=64, verbose=False)
    assert isinstance(x.child, sy.LargePrecisionTensor)
    assert x.child.child.dtype == kind
    assert x.child.child.shape[:-1] == x.shape == values.shape
    assert x.child.internal_precision == type_precision[kind]
    assert torch.allclose(x.float_prec(), values.to(x.dtype), rtol=1e-7, atol=0)


@given(
    st.lists(st.integers(-(2**700), 2**700), min_size=1, max_size=4),
    st.sampled_from([*TYPES, torch.uint8]),
)
@example([2**63, -(2**63), 2**63 - 1, -(2**64)], torch.int8)
def test_integers_of_any_size_are_split_and_restored(values: list[int], kind: torch.dtype) -> None:
    x = big(values, kind=kind)
    assert units(x) == values
    assert x.child.child.dtype == kind
    assert units(deserialize(serialize(x))) == values


@given(st.floats(allow_nan=False, allow_infinity=False), st.integers(0, 60), st.sampled_from([2, 3, 10]))
def test_encoding_is_off_by_half_a_unit_at_most(value: float, digits: int, base: int) -> None:
    x = large(torch.tensor([value], dtype=torch.float64), digits, base=base)
    assert abs(exact(x)[0] - Fraction(value)) <= Fraction(1, 2 * base**digits)


@given(st.integers(-(10**400), 10**400))
def test_decoding_gives_the_nearest_float(value: int) -> None:
    x = big([value], digits=90)
    x.child.presented_dtype = torch.float64
    try:
        nearest = value / 10**90
    except OverflowError:  # pragma: no cover  (10**400 / 10**90 is below 1.8e308 in part only)
        return
    if math.isfinite(nearest):
        assert x.child.decode().item() == nearest


def test_what_does_not_fit_a_float_is_infinite_and_warned_of_when_verbose() -> None:
    huge = large(torch.tensor([3e38])) * 1000
    with pytest.warns(LargePrecisionWarning, match="decoded as infinity"):
        assert huge.float_prec().item() == math.inf
    assert huge.double().float_prec().item() == pytest.approx(3e41)
    quiet = large(torch.tensor([3e38]), verbose=False) * 1000
    assert quiet.float_prec().item() == math.inf


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_is_refused_with_the_range(bad: float) -> None:
    with pytest.raises(ValueError, match=r"finite, from -1.8e308 to"):
        large(torch.tensor([1.0, bad]))
    with pytest.raises(ValueError, match="finite"):
        large(torch.tensor([1.0])) + bad


def test_arguments_that_describe_no_numbers_are_refused() -> None:
    x = torch.tensor([1.0])
    for options, text in (
        ({"base": 1}, "base is at least 2"),
        ({"precision_fractional": -1}, "at least 0"),
        ({"precision_fractional": 10**9}, "out of range"),
        ({"internal_type": torch.float32}, "limbs are torch.int8"),
        ({"field": 1}, "2 or more"),
    ):
        with pytest.raises(ValueError, match=text):
            x.fix_prec(storage="large", **options)
    with pytest.raises(ValueError, match="range of field=1000"):
        x.fix_prec(storage="large", precision_fractional=3, field=1000)
    with pytest.raises(ValueError, match="range of field"):
        x.fix_prec(storage="large", precision_fractional=0, field=1000) * 500
    with pytest.raises(ValueError, match="Complex"):
        torch.tensor([1j]).fix_prec(storage="large")
    with pytest.raises(ValueError, match="keeps no gradients"):
        torch.ones(1, requires_grad=True).fix_prec(storage="large")


def test_an_unknown_storage_and_options_that_nobody_has_are_refused() -> None:
    x = torch.tensor([1.0])
    with pytest.raises(ValueError, match="the storages are 'auto', 'crt', 'large'"):
        x.fix_prec(storage="small")
    with pytest.raises(TypeError, match="belongs to storage='large'"):
        x.fix_prec(storage="crt", internal_type=torch.int8)
    with pytest.raises(TypeError, match="belongs to storage='crt'"):
        x.fix_prec(storage="large", field_type="int100")
    with pytest.raises(TypeError, match="no argument 'precision'"):
        x.fix_prec(precision=3)
    with pytest.raises(ValueError, match="by field_type"):
        x.fix_prec(storage="crt", field=2**100)
    with pytest.raises(ChainError, match="already"):
        large(x).fix_prec()


def test_a_precision_that_no_word_holds_chooses_limbs_and_says_so() -> None:
    x = torch.tensor([1.5, -2.0])
    with pytest.warns(LargePrecisionWarning, match="does not fit 64 bits"):
        wide = x.fix_prec(precision_fractional=256)
    assert isinstance(wide.child, LargePrecisionTensor)
    quiet = x.fix_prec(precision_fractional=256, verbose=False)
    chosen = x.fix_prec(internal_type=torch.int16, precision_fractional=256)
    for each in (wide, quiet, chosen):
        assert torch.equal(each.float_prec(), x)
    assert isinstance(x.fix_prec(precision_fractional=6).child, sy.FixedPrecisionTensor)
    assert isinstance(x.fix_prec(storage="large", no_wrap=True), LargePrecisionTensor)


def test_fix_prec_in_place_and_the_node_put_on_a_tensor() -> None:
    x = torch.tensor([1.5, -2.0])
    held = [x]
    assert x.fix_prec_(storage="large", internal_type=torch.int16, precision_fractional=128) is x
    assert isinstance(held[0].child, LargePrecisionTensor)
    assert x.float_prec_() is x
    assert torch.equal(held[0], torch.tensor([1.5, -2.0]))
    node = LargePrecisionTensor(precision_fractional=20, internal_type=torch.int8)
    assert torch.equal(node.on(x).float_prec(), x)
    assert node.fix_large_precision() is node
    assert torch.equal(node.float_precision(), x)
    assert torch.equal(node._create_internal_representation(), node.child)
    with pytest.raises(ChainError, match="plain tensors"):
        LargePrecisionTensor().on(node.wrap())


# -- arithmetic here ----------------------------------------------------------------------------------------

WHOLE = st.integers(-(2**300), 2**300)


@given(WHOLE, WHOLE, st.sampled_from(TYPES), st.integers(0, 40))
def test_sums_are_exact_and_products_and_quotients_off_by_half_a_unit(
    a: int, b: int, kind: torch.dtype, digits: int
) -> None:
    x, y = big([a], digits, kind=kind), big([b], digits, kind=kind)
    scale = 10**digits
    assert units(x + y) == [a + b]
    assert units(x - y) == [a - b]
    assert units(-x) == [-a]
    assert abs(units(x * y)[0] - Fraction(a * b, scale)) <= Fraction(1, 2)
    if b:
        assert abs(units(x / y)[0] - Fraction(a * scale, b)) <= Fraction(1, 2)
        assert units(x % y) == [a % b]
    for found, true in ((x > y, a > b), (x < y, a < b), (x >= y, a >= b), (x <= y, a <= b), (x == y, a == b)):
        assert units(found) == [true * scale]
    assert units(x != y) == [(a != b) * scale]


OPERATIONS: dict[str, Callable[[Any, Any], Any]] = {
    "x + y": lambda x, y: x + y,
    "x - y": lambda x, y: x - y,
    "x * y": lambda x, y: x * y,
    "x + number": lambda x, y: x + 2.5,
    "number - x": lambda x, y: 2 - x,
    "x * integer": lambda x, y: 3 * x,
    "x * number": lambda x, y: x * -0.5,
    "x * plain": lambda x, y: x * Y,
    "plain - x": lambda x, y: Y - x,
    "x / integer": lambda x, y: x / 3,
    "x / negative": lambda x, y: x / -7,
    "x / number": lambda x, y: x / 0.3,
    "x / plain": lambda x, y: x / torch.tensor([3, -7, 11]),
    "broadcast": lambda x, y: x + y[0] * x[:, :1],
    "add with alpha": lambda x, y: torch.add(x, y, alpha=3),
    "x @ y": lambda x, y: x @ y.t(),
    "x @ plain": lambda x, y: x @ Y.t(),
    "matrix and vector": lambda x, y: x @ y[0],
    "dot": lambda x, y: x[0] @ y[1],
    "batched": lambda x, y: torch.bmm(x.view(1, 2, 3), y.view(1, 3, 2)),
    "linear": lambda x, y: torch.nn.functional.linear(x, Y, Y[:, 0]),
    "sum": lambda x, y: x.sum(),
    "sum along": lambda x, y: x.sum(1, keepdim=True),
    "mean": lambda x, y: x.mean(0),
    "abs": lambda x, y: x.abs(),
    "square": lambda x, y: x**2,
    "cube": lambda x, y: x**3,
    "x > y": lambda x, y: (x > y).to(torch.float64),
    "x <= y": lambda x, y: (x <= y).to(torch.float64),
    "x < number": lambda x, y: (x < 1.5).to(torch.float64),
    "x == number": lambda x, y: (x == 1.5).to(torch.float64),
    "x >= x": lambda x, y: (x >= x).to(torch.float64),
    "x != y": lambda x, y: (x != y).to(torch.float64),
    "bits compute": lambda x, y: (x > 0) * x - (x < 0) * x * 1.0,
    "slices": lambda x, y: torch.cat([x[0, 1:], y[1, :2]]) * 2,
    "cat of unlike": lambda x, y: torch.cat([x * x, y]),
    "stack": lambda x, y: torch.stack([x, y]).permute(2, 0, 1).flip(0),
    "transpose": lambda x, y: x.t().reshape(-1),
    "rows": lambda x, y: x[[1, 0]],
    "long chain": lambda x, y: ((x + y) * (x - y) + x / 3 - y * 2.5).sum(0),
}


PLACES: dict[str, Callable[[Any, Any], Any]] = {
    "here": lambda x, workers: x,
    "sent": lambda x, workers: x.send(workers.alice),
    "shared": lambda x, workers: x.share(workers.alice, workers.bob, crypto_provider=workers.charlie),
}
#: A pointer and a plain tensor of several elements do not go together: that is sent first.
CASES = [
    (name, place)
    for name in OPERATIONS
    for place in PLACES
    if not (place == "sent" and ("plain" in name or name == "linear"))
]


def fetched(chain: Any) -> Any:
    return chain.get() if chain.child.is_remote else chain


@pytest.mark.parametrize(("name", "place"), CASES)
def test_large_numbers_compute_what_torch_computes_here_sent_and_shared(
    name: str, place: str, workers: Any
) -> None:
    operation = OPERATIONS[name]
    found = fetched(operation(PLACES[place](large(X), workers), PLACES[place](large(Y), workers)))
    true = operation(X, Y)
    assert found.shape == true.shape
    assert torch.allclose(found.float_prec(), true.double(), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("place", PLACES)
def test_in_place_forms_write_into_the_tensor_that_others_hold(place: str, workers: Any) -> None:
    x = PLACES[place](large(X), workers)
    held = x
    x += PLACES[place](large(Y), workers)
    x -= 1
    x *= 2
    x /= 4
    assert x is held
    assert torch.allclose(fetched(x).float_prec(), (X + Y - 1) * 2 / 4, rtol=1e-12, atol=1e-12)


def test_writing_in_place_is_refused_while_a_view_looks_on() -> None:
    x = large(X)
    row = x[0]
    with pytest.raises(ChainError, match="shares its values with a view"):
        x += 1
    with pytest.raises(ChainError, match="shares its values with a view"):
        row += 1
    with pytest.raises(ChainError, match="view"):
        x[0] = 5
    del row
    x.add_(1)
    assert torch.equal(x.float_prec(), X + 1)
    with pytest.raises(RuntimeError, match="shape"):
        x[0].clone().add_(x)


def test_scalars_are_read_and_empty_tensors_compute(workers: Any) -> None:
    x = large(torch.tensor(2.5))
    assert x.item() == float(x) == 2.5
    assert bool(large(X).eq(large(X)).all())
    assert torch.equal(large(X), large(X))
    empty = large(torch.empty(2, 0))
    shared = large(torch.empty(2, 0)).share(workers.alice, workers.bob, crypto_provider=workers.charlie)
    for e in (empty, shared):
        for made in (e + e, e * e, e / 3, e > 1, e * 2.5, -e):
            assert fetched(made).float_prec().shape == (2, 0)
        assert fetched(e.sum()).float_prec() == 0


def test_python_integers_of_any_size_are_operands() -> None:
    x = large(X, 3)
    n = 10**40
    before = units(x)
    assert units(x + n) == units(n + x) == [v + n * 1000 for v in before]
    assert units(n - x) == [n * 1000 - v for v in before]
    assert units(x * n) == [v * n for v in before]
    assert units((x - n) % n) == [v % (n * 1000) for v in before]
    assert units(n > x) == [1000] * 6
    assert units(x.child.add(n).wrap()) == [v + n * 1000 for v in before]
    x += n
    x *= 2
    x -= n
    assert units(x) == [2 * v + n * 1000 for v in before]


def test_what_cannot_be_done_says_what_to_do(workers: Any) -> None:
    x = large(X)
    shared = large(X).share(workers.alice, workers.bob, crypto_provider=workers.charlie)
    with pytest.raises(ZeroDivisionError):
        x / 0
    with pytest.raises(ZeroDivisionError):
        shared / 0
    with pytest.raises(UnsupportedOperationError, match="divided by plain numbers"):
        shared / shared
    with pytest.raises(UnsupportedOperationError, match="remainder"):
        shared % 3
    with pytest.raises(UnsupportedOperationError):
        x.exp()
    with pytest.raises(ChainError, match="same precision"):
        x + large(X, 5)
    with pytest.raises(ValueNotHereError):
        shared[0, 0].item()
    with pytest.raises(ChainError, match="not here"):
        shared.float_prec()
    with pytest.raises(ChainError, match="shared already"):
        shared.share(workers.alice, workers.bob, crypto_provider=workers.charlie)
    for options in ({"requires_grad": True}, {"field": 2**32}):
        with pytest.raises(ValueError, match="keeps no gradients"):
            x.share(workers.alice, workers.bob, crypto_provider=workers.charlie, **options)
    with pytest.raises(ChainError, match="encodes plain tensors"):
        sy.LoggingTensor().on(X).fix_prec(storage="large")
    with pytest.raises(UnsupportedOperationError, match="Decode first"):
        x.long()


# -- shares --------------------------------------------------------------------------------------------------

EDGES = [0, 1, -1, 2**15, -(2**15), 2**16, -(2**16), 2**16 - 1, 2**32, 2**48 - 1, -(2**64), 2**64 + 1]
SOME = st.lists(st.one_of(st.integers(-(2**120), 2**120), st.sampled_from(EDGES)), min_size=6, max_size=6)


@settings(max_examples=12)
@given(SOME, SOME, st.sampled_from([(10, 30), (2, 64), (3, 0)]))
def test_shared_sums_and_comparisons_are_exact_and_products_off_by_less_than_two_units(
    a: list[int], b: list[int], precision: tuple[int, int]
) -> None:
    base, digits = precision
    holders = [sy.VirtualWorker(sy.hook, id=f"holder of large numbers {i}") for i in range(3)]
    a, b = [*a, *EDGES, 5], [*b, *[e + 1 for e in EDGES], 5]

    def shared(values: list[int]) -> Any:
        return big(values, digits, base).share(*holders[:2], crypto_provider=holders[2])

    x, y = shared(a), shared(b)
    scale = base**digits
    assert units((x + y).get()) == [p + q for p, q in zip(a, b, strict=True)]
    assert units((x - y).get()) == [p - q for p, q in zip(a, b, strict=True)]
    assert units((x > y).get()) == [(p > q) * scale for p, q in zip(a, b, strict=True)]
    assert units((x == y).get()) == [(p == q) * scale for p, q in zip(a, b, strict=True)]
    assert units((x * 12345678901234567890123).get()) == [p * 12345678901234567890123 for p in a]
    for found, p, q in zip(units((x * y).get()), a, b, strict=True):
        assert abs(found - Fraction(p * q, scale)) < 2
    for divisor in (3, -7, 10**25, 1 << 40):
        for found, p in zip(units((x / divisor).get()), a, strict=True):
            assert abs(found - Fraction(p, divisor)) < 2


def test_many_sums_of_shares_never_overflow_a_limb(workers: Any) -> None:
    value = 2**100 - 1
    x = big([value, -value]).share(workers.alice, workers.bob, crypto_provider=workers.charlie)
    expected = value
    for _ in range(70):
        x = x + x
        expected *= 2
    assert units(x.get()) == [expected, -expected]
    rows = big([value] * 1000).share(workers.alice, workers.bob, crypto_provider=workers.charlie)
    assert units(rows.sum().get()) == [1000 * value]


def test_powers_of_shares_grow_as_integers_do(workers: Any) -> None:
    x = big([3**20, -(7**15)]).share(workers.alice, workers.bob, crypto_provider=workers.charlie)
    assert units((x**5).get()) == [3**100, -(7**75)]


def test_the_number_of_shared_limbs_does_not_tell_the_size_of_ordinary_values(workers: Any) -> None:
    shapes = {
        large(torch.tensor([v], dtype=torch.float64))
        .share(workers.alice, workers.bob, crypto_provider=workers.charlie)
        .child.child.shape
        for v in (0.0, 1e-9, -1.0, 1e18)
    }
    assert len(shapes) == 1


def test_comparisons_and_products_of_shares_with_more_limbs_than_one_sign_holds(workers: Any) -> None:
    x = torch.tensor([1.5, -2.0, 0.0, 1e-30, -1e-30], dtype=torch.float64)
    y = torch.tensor([1.5, 2.0, -0.5, 0.0, 0.0], dtype=torch.float64)
    a, b = (PLACES["shared"](large(v, 300), workers) for v in (x, y))
    assert a.child.child.shape[-1] > 60
    assert (a > b).get().float_prec().tolist() == (x > y).double().tolist()
    assert (a == b).get().float_prec().tolist() == (x == y).double().tolist()
    assert torch.allclose((a * b).get().float_prec(), x * y)


def test_holders_on_a_network_compute_the_same(hook: Any, me: Any) -> None:
    parties = Parties(hook, ("alice", "bob", "dealer"))
    with parties.closing:
        parties.introduce()
        client = parties.client()
        a, b = [2**100 + 7, -(2**80), 5], [3**60, 2**33 - 1, 5]
        x, y = (big(v, 10).share(*client.holders, crypto_provider=client.provider) for v in (a, b))
        for found, p, q in zip(units((x * y).get()), a, b, strict=True):
            assert abs(found - Fraction(p * q, 10**10)) < 2
        assert units((x > y).get()) == [10**10, 0, 0]
        assert units((x == y).get()) == [0, 0, 10**10]
        residues = torch.tensor([1.5, -2.0]).fix_prec(storage="crt")
        secret = residues.share(*client.holders, crypto_provider=client.provider)
        assert (secret * secret + secret).get().float_prec().tolist() == [3.75, 2.0]


def test_shares_are_read_in_process_without_removing_them(workers: Any) -> None:
    x = large(X).share(workers.alice, workers.bob, crypto_provider=workers.charlie)
    assert torch.equal(x.virtual_get().float_prec(), X)
    node = large(X).child.share(workers.alice, workers.bob, crypto_provider=workers.charlie)
    assert isinstance(node, LargePrecisionTensor)
    assert torch.equal(x.get().float_prec(), X)


# -- limbs in the clear, with carries of every kind -----------------------------------------------------------


@given(st.lists(st.integers(-(2**58), 2**58), min_size=1, max_size=8))
def test_carries_do_not_change_the_value_and_signs_are_those_of_the_value(row: list[int]) -> None:
    value = LargePrecisionTensor._restore_large_number(row, limbs.WIDTH)
    rows = torch.tensor(row).view(-1, 1)
    wide = limbs.resized(rows, limbs.count_for(value.bit_length() + 60))
    tidy = limbs.carried(limbs.resized(wide, limbs.count_for(max(value.bit_length(), 1))), 2**58)
    assert limbs.joined(tidy.t(), limbs.WIDTH)[0] == value
    assert int(tidy.abs().max()) <= limbs.TIDY
    sign = int(limbs.sign(tidy))
    assert (sign > 0) - (sign < 0) == (value > 0) - (value < 0)


# -- the names of 2020 ----------------------------------------------------------------------------------------


@given(st.integers(-(2**400), 2**400), st.sampled_from(TYPES))
def test_split_numbers_and_restore_large_number_are_inverses(number: int, kind: torch.dtype) -> None:
    bits = type_precision[kind]
    (parts,) = LargePrecisionTensor._split_numbers([number], bits, kind)
    assert LargePrecisionTensor._restore_large_number(parts, bits) == number
    assert all(abs(part) < 2**bits for part in parts)
    wide = LargePrecisionTensor._expand_item(parts, len(parts) + 2)
    assert wide == [0, 0, *parts]
    assert LargePrecisionTensor._restore_large_number(wide, bits) == number


def test_arrays_of_big_integers_become_limbs() -> None:
    array = np.array([[2**200, -5], [0, 2**64]], dtype=object)
    made = LargePrecisionTensor.create_tensor_from_numpy(array, internal_type=torch.int16)
    assert made.dtype == torch.int16 and made.shape[:2] == (2, 2)
    node = LargePrecisionTensor(internal_type=torch.int16, child=made)
    assert (node._internal_representation_to_large_ints() == array).all()
    with pytest.raises(ValueError, match="whole numbers"):
        LargePrecisionTensor.create_tensor_from_numpy(np.array([0.5]))
    with pytest.raises(ValueError, match="do not fit"):
        LargePrecisionTensor._split_numbers([1], 9, torch.int8)
    with pytest.raises(ValueError, match="does not fit"):
        LargePrecisionTensor._expand_item([1, 2, 3], 2)


def test_the_historical_path_is_the_same_module() -> None:
    from syft.frameworks.torch.tensors.interpreters import large_precision as old

    assert old.LargePrecisionTensor is LargePrecisionTensor is sy.LargePrecisionTensor
    assert old.type_precision is type_precision


# -- travelling ------------------------------------------------------------------------------------------------


def test_large_numbers_travel_with_their_precision_and_identity() -> None:
    x = large(X, internal_type=torch.int8, field=10**80).tag("#x").describe("numbers")
    back = deserialize(serialize(x))
    assert torch.equal(back.float_prec(), X)
    assert (back.tags, back.description) == ({"#x"}, "numbers")
    assert back.child.get_class_attributes() == x.child.get_class_attributes()


def test_frames_of_strangers_are_checked() -> None:
    x = large(X)
    good = serialize(x)
    for name, value in (("precision_fractional", 10**12), ("base", 0), ("presented_dtype", torch.int8)):
        before = getattr(x.child, name)
        setattr(x.child, name, value)
        with pytest.raises((SerdeError, ValueError)):
            deserialize(serialize(x))
        setattr(x.child, name, before)
    x.child._child = torch.zeros(3, dtype=torch.float32)
    with pytest.raises((SerdeError, ValueError)):
        deserialize(serialize(x))
    assert torch.equal(deserialize(good).float_prec(), X)
