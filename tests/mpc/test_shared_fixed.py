"""Reals on shares: exact where it is promised, within stated bounds elsewhere, for two, three and five holders."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

import syft as sy
from mpc.lower import run, spread
from syft.core.chain import new_wrapper
from syft.mpc.precision import ENCODE_LIMIT, FixedPrecisionTensor
from syft.mpc.protocols import derived, lookup, select
from syft.mpc.sharing import AdditiveSharingTensor

HOLDERS = (2, 3, 5)
BASE, DIGITS = 2, 16
SCALE = BASE**DIGITS
NAMES = ("alice", "bob", "charlie", "dan", "eve")


class Sharing:
    """`sharing(tensor, holders=2)`: a tensor in fixed precision and shared."""

    def __init__(self, make_worker: Any) -> None:
        self.workers = [make_worker(name) for name in NAMES]
        self.provider = make_worker("provider")

    def __call__(
        self, tensor: Any, holders: int = 2, base: int = BASE, digits: int = DIGITS, **options: Any
    ) -> Any:
        fixed = tensor.fix_precision(base=base, precision_fractional=digits)
        return fixed.share(*self.workers[:holders], crypto_provider=self.provider, **options)

    def objects(self, holders: int = 2) -> list[int]:
        return [len(worker._objects) for worker in self.workers[:holders]]


@pytest.fixture
def sharing(make_worker: Any) -> Sharing:
    return Sharing(make_worker)


def plain(secret: Any) -> torch.Tensor:
    return secret.virtual_get().float_precision()


def of_units(
    units: torch.Tensor, holders: int, base: int = BASE, digits: int = DIGITS, protocol: str | None = None
) -> Any:
    """A secret whose integers are given: every value that can be represented, to the last unit."""
    workers = [sy.VirtualWorker(id=f"unit{i}") for i in range(holders)]
    node = FixedPrecisionTensor(base, digits, torch.float64)
    node.child = units
    wrapper: Any = new_wrapper(node)
    return wrapper.share(*workers, crypto_provider=sy.VirtualWorker(id="deal"), protocol=protocol)


def units_of(secret: Any) -> list[Any]:
    """The integers of a secret."""
    return secret.virtual_get().child.child.tolist()


# -- properties over the representable range -------------------------------------------------------------

ENDS = [0, 1, -1, SCALE, -SCALE, ENCODE_LIMIT - 1, -ENCODE_LIMIT + 1, ENCODE_LIMIT // 2, -ENCODE_LIMIT // 2]
anything = st.one_of(
    st.sampled_from(ENDS), st.integers(-ENCODE_LIMIT + 1, ENCODE_LIMIT - 1), st.integers(-100, 100)
)
#: Factors whose product, in units of the square, is below 2^62.
factors = st.one_of(
    st.sampled_from([0, 1, -1, SCALE, -SCALE, 2**30 - 1, -(2**30)]), st.integers(-(2**30), 2**30)
)
holders_of = st.sampled_from(HOLDERS)
precisions = st.sampled_from([(2, 16), (2, 20), (10, 3), (10, 5)])


def pairs(values: st.SearchStrategy[int]) -> st.SearchStrategy[list[tuple[int, int]]]:
    return st.lists(st.tuples(values, values), min_size=1, max_size=8)


@settings(max_examples=40)
@given(pairs(anything), holders_of)
def test_sums_and_differences_are_exact(values: list[tuple[int, int]], holders: int) -> None:
    left, right = zip(*values, strict=True)
    x, y = of_units(torch.tensor(left), holders), of_units(torch.tensor(right), holders)
    assert units_of(x + y) == [a + b for a, b in values]
    assert units_of(x - y) == [a - b for a, b in values]
    assert units_of(-x) == [-a for a in left]


@settings(max_examples=40)
@given(pairs(anything), holders_of)
def test_comparisons_are_exact(values: list[tuple[int, int]], holders: int) -> None:
    values = [*values, (values[0][0], values[0][0])]
    left, right = zip(*values, strict=True)
    x, y = of_units(torch.tensor(left), holders), of_units(torch.tensor(right), holders)
    assert units_of(x < y) == [SCALE * int(a < b) for a, b in values]
    assert units_of(x >= y) == [SCALE * int(a >= b) for a, b in values]
    assert units_of(x == y) == [SCALE * int(a == b) for a, b in values]
    assert units_of(x > 0) == [SCALE * int(a > 0) for a in left]
    assert units_of(torch.maximum(x, y)) == [max(a, b) for a, b in values]


@settings(max_examples=40)
@given(st.lists(anything, min_size=1, max_size=9), holders_of)
def test_relu_abs_and_extremes_are_exact(values: list[int], holders: int) -> None:
    x = of_units(torch.tensor(values), holders)
    assert units_of(x.relu()) == [max(a, 0) for a in values]
    assert units_of(x.abs()) == [abs(a) for a in values]
    # NB: the difference of two extremes has to be in the ring.
    assert units_of(x.max()) == max(values)
    assert units_of(x.min()) == min(values)
    assert units_of(x.argmax()) == values.index(max(values))
    assert units_of(x.argmin()) == values.index(min(values))


@settings(max_examples=15)
@given(
    st.lists(st.integers(-(2**60), 2**60), min_size=1, max_size=6), st.sampled_from(["snn", "fss", "tree2"])
)
def test_every_comparison_protocol_serves_fixed_precision(values: list[int], protocol: str) -> None:
    x = of_units(torch.tensor(values), 2, protocol=protocol)
    assert units_of(x > 0) == [SCALE * int(a > 0) for a in values]
    assert units_of(x.relu()) == [max(a, 0) for a in values]
    assert units_of(x.max()) == max(values)


@settings(max_examples=60)
@given(pairs(factors), holders_of, precisions)
def test_a_product_errs_by_less_than_one_unit(
    values: list[tuple[int, int]], holders: int, precision: tuple[int, int]
) -> None:
    left, right = zip(*values, strict=True)
    scale = precision[0] ** precision[1]
    x, y = (of_units(torch.tensor(v), holders, *precision) for v in (left, right))
    for got, (a, b) in zip(units_of(x * y), values, strict=True):
        assert abs(got * scale - a * b) < scale
    for got, a in zip(units_of(x * x), left, strict=True):
        assert abs(got * scale - a * a) < scale


@settings(max_examples=40)
@given(st.lists(anything, min_size=1, max_size=8), st.integers(1, 2**40), holders_of)
def test_division_by_a_public_integer_errs_by_less_than_one_unit(
    values: list[int], divisor: int, holders: int
) -> None:
    x = of_units(torch.tensor(values), holders)
    for sign in (1, -1):
        for got, a in zip(units_of(x / (sign * divisor)), values, strict=True):
            assert abs(got * divisor - sign * a) < divisor


@settings(max_examples=30)
@given(
    st.lists(st.integers(-(2**36), 2**36), min_size=1, max_size=8),
    st.floats(-1000, 1000, allow_subnormal=False),
    holders_of,
)
def test_a_product_with_a_public_real_errs_by_one_unit_and_2_to_the_minus_22_of_the_result(
    values: list[int], factor: float, holders: int
) -> None:
    x = of_units(torch.tensor(values), holders)
    for got, a in zip(units_of(x * factor), values, strict=True):
        assert abs(got - a * factor) <= 1 + abs(a * factor) * 2.0**-22


@pytest.mark.parametrize("holders", HOLDERS)
def test_matrix_products_and_convolutions_err_by_less_than_one_unit(holders: int) -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randint(-(2**27), 2**27, (4, 6), generator=generator)
    y = torch.randint(-(2**27), 2**27, (6, 3), generator=generator)
    picture = torch.randint(-(2**25), 2**25, (2, 3, 5, 5), generator=generator)
    kernels = torch.randint(-(2**25), 2**25, (4, 3, 3, 3), generator=generator)
    sx, sy_, sp, sk = (of_units(v, holders) for v in (x, y, picture, kernels))
    cases = [
        (sx @ sy_, x @ y),
        (sx @ sy_[:, 0], x @ y[:, 0]),
        (sx.unsqueeze(0) @ sy_.unsqueeze(0), (x @ y).unsqueeze(0)),
        (F.conv2d(sp, sk, padding=1, stride=2), F.conv2d(picture, kernels, padding=1, stride=2)),
        (F.conv1d(sx.view(2, 2, 6), sy_.view(3, 2, 3)), F.conv1d(x.view(2, 2, 6), y.view(3, 2, 3))),
    ]
    for got, exact in cases:
        integers = got.virtual_get().child.child
        assert (integers * SCALE - exact).abs().max() < SCALE


@pytest.mark.parametrize("holders", HOLDERS)
def test_ten_thousand_truncations_are_off_by_at_most_one_unit(holders: int) -> None:
    x = spread(10_000, 63)
    for divisor in (2, 10, 1000, 1 << 16, 3**20, 1 << 61):
        got = of_units(x, holders).child.child.truncate(divisor).virtual_get()
        down = torch.div(x, divisor, rounding_mode="floor")
        assert (((got - down) == 0) | ((got - down) == 1)).all()
        assert torch.equal(got[x % divisor == 0], down[x % divisor == 0])


@pytest.mark.parametrize("holders", HOLDERS)
def test_tiny_and_huge_reals_meet(sharing: Sharing, holders: int) -> None:
    x = torch.tensor([2.0**-16, -(2.0**-16), 2.0**40, -(2.0**40), 0.0], dtype=torch.float64)
    secret = sharing(x, holders)
    assert torch.equal(plain(secret + secret), 2 * x)
    assert torch.equal(plain(secret.sum(0)), x.sum())
    assert torch.equal(plain(secret * 0.5 + secret * 0.5).round(decimals=4), x.round(decimals=4))
    assert torch.equal((secret < 0).virtual_get().float_precision(), x < 0)


# -- the programs below --------------------------------------------------------------------------------------


@pytest.mark.parametrize("holders", HOLDERS)
def test_the_programs_made_for_fixed_precision_are_exact(holders: int) -> None:
    x = torch.tensor([[3, -7, 0], [2**62, -(2**62), 1]])
    values, bits = run(holders, derived.positive_part, x)
    assert torch.equal(values, x.relu()) and torch.equal(bits, (x > 0).long())
    index = torch.tensor([[0, 7, 3], [1, 6, 2]])
    rows = run(holders, derived.one_hot, index, size=8)
    assert torch.equal(rows, F.one_hot(index, 8).movedim(-1, 0))
    with pytest.raises(ValueError, match="power of two"):
        run(2, derived.one_hot, index, size=10)


@pytest.mark.parametrize("holders", HOLDERS)
def test_a_number_is_a_digit_and_a_rest_and_tables_are_read_at_the_digit(holders: int) -> None:
    """For every place between two digits the one below and the one above are found, each with its own rest."""
    shift, size = 28, 32
    x = torch.linspace(4, size - 2, 4001, dtype=torch.float64).mul(1 << shift).long()
    table = lookup.packed(list(range(100, 100 + size)), [1 << k for k in range(size)])
    for _ in range(2):
        rest, read = run(holders, lookup.split_digit, x, shift=shift, size=size, tables=table)
        digit = (x - rest) >> shift
        assert torch.equal((digit << shift) + rest, x) and int(rest.abs().max()) < 1 << shift
        assert set((digit - (x >> shift)).tolist()) == {0, 1}
        assert torch.equal(read[0], digit + 100) and torch.equal(read[1], 1 << digit)


def test_digits_that_are_none_and_tables_that_do_not_fit_are_refused() -> None:
    x = torch.tensor([1 << 28])
    for shift, size in ((28, 24), (0, 8), (60, 32)):
        with pytest.raises(ValueError, match="digit"):
            run(2, lookup.split_digit, x, shift=shift, size=size, tables=lookup.packed([1] * size))
    with pytest.raises(ValueError, match="Tables of 8 words"):
        run(2, lookup.split_digit, x, shift=28, size=8, tables=lookup.packed([1] * 9))


@pytest.mark.parametrize("holders", HOLDERS)
@pytest.mark.parametrize("length", [1, 2, 3, 10, 32, 33])
def test_the_largest_is_the_same_whether_all_pairs_are_compared_or_not(
    holders: int, length: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    generator = torch.Generator().manual_seed(length)
    x = torch.randint(-(1 << 61), 1 << 61, (2, length, 3), generator=generator)
    x[1] = torch.randint(-1, 2, (length, 3), generator=generator)  # many are equal
    for most in (1 << 15, 0):
        monkeypatch.setattr(derived, "_MOST_PAIRS", most)
        for dim in (1, 2):
            assert torch.equal(run(holders, derived.largest, x, dim=dim), x.amax(dim))
            values, place = run(holders, derived.maximum_and_place, x, dim=dim)
            best = x.amax(dim)
            assert torch.equal(values, best)
            first = (x == best.unsqueeze(dim)).long().argmax(dim)
            assert torch.equal(place, F.one_hot(first, x.shape[dim]).movedim(-1, dim))


@pytest.mark.parametrize("holders", HOLDERS)
def test_magnitudes_are_cut_at_the_edge(holders: int) -> None:
    x = torch.tensor([0, 1, -1, 99, 100, 101, -99, -100, -101, 1 << 61, -(1 << 61)])
    negative, above, below, size = run(holders, select.cut_magnitude, x, edge=100)
    assert torch.equal(negative, (x < 0).long())
    assert torch.equal(above, (x > 100).long()) and torch.equal(below, (x < -100).long())
    assert torch.equal(size, x.abs().clamp(max=100))


# -- what it costs ---------------------------------------------------------------------------------------------


def costs(secret: Any, compute: Any) -> Any:
    group = secret.child.child.group
    group.reset_costs()
    compute()
    return group.online


def test_a_fixed_point_product_takes_three_openings_in_two_rounds(sharing: Sharing) -> None:
    x, y = sharing(torch.randn(1000)), sharing(torch.randn(1000))
    cost = costs(x, lambda: x * y)
    assert cost.rounds == 2
    assert cost.bytes_sent[:2] == [3 * 8 * 1000] * 2
    cost = costs(x, lambda: x * x)  # a square opens once
    assert cost.bytes_sent[:2] == [2 * 8 * 1000] * 2
    a, b = sharing(torch.randn(20, 30)), sharing(torch.randn(30, 10))
    cost = costs(a, lambda: a @ b)
    assert cost.rounds == 2
    assert cost.bytes_sent[:2] == [8 * (20 * 30 + 30 * 10 + 20 * 10)] * 2
    assert costs(x, lambda: x + y * 3 - 1).rounds == 0


def test_a_comparison_takes_at_most_eight_rounds_and_48_bytes_per_element(sharing: Sharing) -> None:
    x, y = sharing(torch.randn(6400)), sharing(torch.randn(6400))
    for compute in (lambda: x < y, lambda: x >= y, lambda: x == y, lambda: torch.relu(x), lambda: x.abs()):
        cost = costs(x, compute)
        assert 0 < cost.rounds <= 8
        assert max(cost.bytes_sent) <= 48 * 6400


# -- opening, refreshing, sending ----------------------------------------------------------------------------

X = torch.tensor([[1.5, -2.0], [0.25, 100.0]])


@pytest.mark.parametrize("holders", HOLDERS)
def test_get_gives_fixed_precision_and_removes_the_shares(sharing: Sharing, holders: int) -> None:
    secret = sharing(X, holders)
    assert isinstance(secret.child, FixedPrecisionTensor)
    assert isinstance(secret.child.child, AdditiveSharingTensor)
    assert [w.id for w in secret.locations] == list(NAMES[:holders])
    assert sharing.objects(holders) == [1] * holders
    assert torch.equal(plain(secret), X)
    assert sharing.objects(holders) == [1] * holders
    fixed = secret.get()
    assert isinstance(fixed.child, FixedPrecisionTensor)
    assert torch.equal(fixed.float_precision(), X)
    assert sharing.objects(holders) == [0] * holders
    with pytest.raises(AttributeError, match="fetched already"):
        secret.get()


def test_bits_and_indices_come_back_as_themselves(sharing: Sharing) -> None:
    x, y = sharing(X), sharing(-X)
    assert torch.equal((x > y).get().float_precision(), X > -X)
    assert torch.equal(x.argmax(dim=1).get().float_precision(), X.argmax(dim=1))
    values, places = x.max(dim=0)
    assert torch.equal(values.get().float_precision(), X.max(dim=0)[0])
    assert torch.equal(places.get().float_precision(), X.max(dim=0)[1])
    assert torch.equal(((x > 0) * x).get().float_precision(), X.relu())


def test_reconstruct_refresh_and_zero(sharing: Sharing) -> None:
    secret = sharing(X, 3)
    assert all(torch.equal(value, (X * SCALE).long()) for value in secret.reconstruct().get())
    fresh = secret.refresh()
    shares = [
        [p.location.get_obj(p.id_at_location) for p in chain.child.child.pointers]
        for chain in (secret, fresh)
    ]
    assert not any(torch.equal(old, new) for old, new in zip(*shares, strict=True))
    assert torch.equal(plain(fresh), X)
    assert torch.equal(plain(secret.zero()), torch.zeros(2, 2))
    assert torch.equal(plain(secret.zero((3,))), torch.zeros(3))


def test_a_pointer_is_encoded_and_shared_where_it_is(sharing: Sharing, make_worker: Any) -> None:
    hospital = make_worker("hospital")
    alice, bob = sharing.workers[:2]
    pointer: Any = X.send(hospital)  # type: ignore[attr-defined]
    heard: list[Any] = []
    me = sy.local_worker
    original = me.recv_msg
    me.recv_msg = lambda message: heard.append(message) or original(message)
    try:
        secret = pointer.fix_prec().share(bob, alice, crypto_provider=sharing.provider)
    finally:
        del me.recv_msg
    assert heard == []
    assert secret.location is hospital
    here = secret.get()
    assert [w.id for w in here.locations] == ["bob", "alice"]
    assert torch.equal(here.get().float_precision(), X)


def test_a_secret_is_sent_to_a_worker_and_comes_back(sharing: Sharing, make_worker: Any) -> None:
    analyst = make_worker("analyst")
    sent = sharing(X).send(analyst)
    assert sent.location is analyst
    assert len(analyst._objects) == 1
    there = sent + sent  # the analyst computes on shares that it does not hold
    back = sent.get()
    assert isinstance(back.child.child, AdditiveSharingTensor)
    assert torch.equal(back.get().float_precision(), X)
    assert torch.equal(there.get().get().float_precision(), 2 * X)
    del there, sent, back
    assert sharing.objects() == [0, 0]
    assert len(analyst._objects) == 0


def test_in_place_operations_and_views_write_into_the_secret(sharing: Sharing) -> None:
    secret, want = sharing(X), X.clone()
    row, want_row = secret[0], want[0]
    for part in (row, want_row):
        part.mul_(2)
    secret += sharing(X)
    want += X
    secret[1, 0] = 9.5
    want[1, 0] = 9.5
    assert torch.equal(plain(secret), want)
    assert torch.equal(plain(row), want_row)
    secret.relu_()
    assert torch.equal(plain(secret), want.relu())


def test_public_tensors_and_numbers_join_in(sharing: Sharing) -> None:
    secret = sharing(X)
    public = torch.tensor([[1.0, 2.0], [-3.0, 0.5]])
    fixed: Any = public.fix_precision(base=BASE, precision_fractional=DIGITS)  # type: ignore[attr-defined]
    whole: Any = torch.tensor([[1, 2], [3, 4]])
    integers = whole.share(*sharing.workers[:2], crypto_provider=sharing.provider)
    cases = [
        (secret + public, X + public),
        (public - secret, public - X),
        (secret * public, X * public),
        (secret @ public, X @ public),
        (secret + fixed, X + public),
        (secret * fixed, X * public),
        (fixed @ secret, public @ X),
        (secret * integers, X * whole),
        (secret + integers, X + whole),
        (torch.cat([secret, public]), torch.cat([X, public])),
        (torch.where(public > 0, secret, 7.0), torch.where(public > 0, X, 7.0)),
        (torch.scatter(secret, 1, torch.tensor([[0], [1]]), 5.0), torch.tensor([[5, -2.0], [0.25, 5]])),
        (2 / secret, 2 / X),
    ]
    for got, want in cases:
        torch.testing.assert_close(plain(got), want, atol=2e-3, rtol=1e-5)


# -- mistakes ------------------------------------------------------------------------------------------------


def test_mixed_precision_says_both_precisions(sharing: Sharing) -> None:
    with pytest.raises(sy.exceptions.ChainError, match=r"base=2.*base=10.*Bring both to the same precision"):
        sharing(X) + sharing(X, base=10, digits=3)


def test_floats_and_values_out_of_range_are_refused(sharing: Sharing) -> None:
    alice, bob = sharing.workers[:2]
    with pytest.raises(TypeError, match=r"x\.fix_precision\(\)\.share"):
        X.share(alice, bob, crypto_provider=sharing.provider)  # type: ignore[attr-defined]
    for value in (1e30, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="cannot be represented"):
            sharing(torch.tensor([value]))
    with pytest.raises(ValueError, match="smaller precision_fractional"):
        sharing(X) + 1e18  # NB: from 2^62 on a number is a mask
    assert sharing.objects() == [0, 0]


def test_different_holders_do_not_mix(sharing: Sharing) -> None:
    with pytest.raises(sy.exceptions.ChainError, match=r"different holders.*Share both among the same"):
        sharing(X) * sharing(X, 3)


def test_reading_a_secret_says_where_it_is(sharing: Sharing) -> None:
    secret = sharing(X)
    for read in (lambda: bool(secret[0, 0] > 0), lambda: secret[0, 0].item(), lambda: float(secret.sum())):
        with pytest.raises(ValueError, match=r"not here.*\.get\(\)"):
            read()
    with pytest.raises(sy.exceptions.ChainError, match=r"\.get\(\)` first"):
        secret.float_precision()


def test_an_unsupported_operation_names_itself_and_a_cure(sharing: Sharing) -> None:
    with pytest.raises(NotImplementedError, match=r"_linalg_svd.*Write it with operations"):
        torch.linalg.svd(sharing(X))
    with pytest.raises(NotImplementedError, match=r"nonzero.*would show the secret"):
        sharing(X).nonzero()
    with pytest.raises(NotImplementedError, match="multiply"):
        torch.scatter(sharing(X), 1, torch.tensor([[0], [1]]), 2.0, reduce="multiply")


def test_a_secret_index_of_shared_integers_is_refused_where_it_would_show(sharing: Sharing) -> None:
    def integers(values: list[int]) -> Any:
        tensor: Any = torch.tensor(values)
        return tensor.share(*sharing.workers[:2], crypto_provider=sharing.provider)

    table, index = integers([5, 6, 7]), integers([2, 0])
    for read in (lambda: table[index], lambda: table.gather(0, index), lambda: table.take(index)):
        with pytest.raises((NotImplementedError, ValueError), match=r"secret|split among"):
            read()


def test_printing_shows_the_chain_and_no_content(sharing: Sharing) -> None:
    text = str(sharing(torch.tensor([1234.5])))
    assert text.startswith("(Wrapper)>FixedPrecisionTensor>[AdditiveSharingTensor]")
    assert "*crypto provider: provider*" in text
    assert "1234" not in text
