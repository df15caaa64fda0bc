"""The functions that programs of 2019 and 2020 call on shared tensors, against plain integers."""

from __future__ import annotations

import collections
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from mpc.lower import STREAM, deal, revealed, spread
from syft.exceptions import ChainError, UnsupportedOperationError
from syft.mpc import ring
from syft.mpc.documented import beaver, securenn, spdz
from syft.mpc.documented.odd_shares import OddSharingTensor
from syft.mpc.drivers import Lockstep, Shares
from syft.mpc.party import with_provider
from syft.mpc.protocols import securenn as programs
from syft.mpc.protocols.select import Pooling
from syft.mpc.sharing import FIELD, AdditiveSharingTensor

TOP = 1 << 62
ENDS = [-TOP, -TOP + 1, -2, -1, 0, 1, 2, TOP - 2, TOP - 1]
FORMS = ["node", "chain"]


@pytest.fixture
def group(make_worker: Any) -> Any:
    """`group(tensor, holders=2, form="chain")`: the tensor shared, as a chain or as its node."""
    workers = [make_worker(name) for name in ("alice", "bob", "charlie")]
    provider = make_worker("provider")

    def share(tensor: torch.Tensor, holders: int = 2, form: str = "chain") -> Any:
        shared = tensor.share(*workers[:holders], crypto_provider=provider)  # type: ignore[attr-defined]
        return shared if form == "chain" else shared.child

    share.workers, share.provider = workers, provider  # type: ignore[attr-defined]
    return share


def opened(result: Any, form: str = "chain") -> torch.Tensor:
    """The value of a result, after a look at its form: a chain for a chain, a node for a node."""
    assert isinstance(result, torch.Tensor) == (form == "chain")
    return result.virtual_get()  # type: ignore[no-any-return]


# -- products --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("holders", [2, 3])
def test_spdz_mul_is_the_command_of_its_name(group: Any, holders: int, form: str) -> None:
    x, y = torch.tensor([[3, -7, 1 << 40], [0, 5, -1]]), torch.tensor([[-2, 9, 1 << 20], [4, 0, -1]])
    pictures, weights = STREAM.below(99, (2, 3, 5, 5)) - 50, STREAM.below(99, (4, 3, 2, 2)) - 50
    rows, taps = pictures[:, :, 0], weights[:, :, 0]
    cases: list[tuple[str, torch.Tensor, torch.Tensor, dict[str, Any], torch.Tensor]] = [
        ("mul", x, y, {}, x * y),
        ("__mul__", x, y[0], {}, x * y[0]),
        ("torch.matmul", x, y.t(), {}, x @ y.t()),
        ("mm", x, y.t(), {}, x @ y.t()),
        ("dot", x[0], y[0], {}, x[0] @ y[0]),
        ("bmm", x[None], y.t()[None], {}, (x @ y.t())[None]),
        ("conv2d", pictures, weights, dict(stride=2, padding=1), F.conv2d(pictures, weights, None, 2, 1)),
        ("torch.nn.functional.conv1d", rows, taps, {}, F.conv1d(rows, taps)),
        ("conv_transpose1d", rows, taps[:3], {}, F.conv_transpose1d(rows, taps[:3])),
    ]
    for cmd, a, b, params, want in cases:
        shares = group(a, holders, form), group(b, holders, form)
        result = spdz.spdz_mul(cmd, *shares, group.provider, FIELD, **params)
        assert torch.equal(opened(result, form), want), cmd


def test_spdz_mul_wraps_as_the_ring_does(group: Any) -> None:
    x, y = spread(200), spread(200).flip(0)
    assert torch.equal(spdz.spdz_mul("mul", group(x), group(y), "provider", None).get(), x * y)


def test_spdz_mul_refuses_what_does_not_fit(group: Any, make_worker: Any) -> None:
    x = group(torch.tensor([[1, 2]]))
    with pytest.raises(ValueError, match=r"'torch.add' is none of the bilinear ones.*x \+ y"):
        spdz.spdz_mul("torch.add", x, x, group.provider, x.field)
    with pytest.raises(ValueError, match=r"field=67.*field=x_sh.field"):
        spdz.spdz_mul("mul", x, x, group.provider, 67)
    with pytest.raises(ChainError, match=r"provider other, .* shared with provider"):
        spdz.spdz_mul("mul", x, x, make_worker("other"), x.field)
    with pytest.raises(ChainError, match="different holders"):
        spdz.spdz_mul("mul", x, group(torch.tensor([1]), 3), group.provider, x.field)
    with pytest.raises(ValueError, match=r"matmul does not fit the shapes \(1, 2\) and \(1, 2\)"):
        spdz.spdz_mul("matmul", x, x, group.provider, x.field)
    with pytest.raises(ValueError, match="bmm takes two tensors of 3 dimensions"):
        spdz.spdz_mul("bmm", x, x, group.provider, x.field)
    with pytest.raises(ValueError, match="mul was given stride; the parameters it takes are: none"):
        spdz.spdz_mul("mul", x, x, group.provider, x.field, stride=2)
    with pytest.raises(ChainError, match="takes shared tensors, and got a Tensor"):
        spdz.spdz_mul("mul", x, torch.tensor([1]), group.provider, x.field)
    real = torch.tensor([1.5]).fix_precision().share(*group.workers[:2], crypto_provider=group.provider)  # type: ignore[attr-defined]
    with pytest.raises(ChainError, match=r"works on integers.*Write x \* y"):
        spdz.spdz_mul("mul", real, real, group.provider, x.field)


def test_a_triple_is_a_product_of_noise_and_no_two_are_the_same(group: Any) -> None:
    holders = group.workers
    a, b, c = beaver.request_triple(group.provider, "matmul", FIELD, (3, 4), (4, 2), holders)
    assert all(type(one) is AdditiveSharingTensor and one.locations == holders for one in (a, b, c))
    assert torch.equal(opened(c, "node"), opened(a, "node") @ opened(b, "node"))
    seen = []
    for _ in range(20):
        triple = beaver.request_triple("provider", "mul", None, (50,), (50,), ["alice", "bob"])
        values = [opened(one, "node") for one in triple]
        assert torch.equal(values[2], values[0] * values[1])
        seen += [values[0], values[1]]
    assert torch.cat(seen).unique().numel() == 40 * 50
    picture = beaver.request_triple(
        "provider", "conv2d", FIELD, (1, 1, 4, 4), (1, 1, 2, 2), holders, stride=2
    )
    a, b, c = (opened(one, "node") for one in picture)
    assert torch.equal(c, F.conv2d(a, b, stride=2))


def test_a_triple_that_cannot_be_is_refused(group: Any) -> None:
    ask = beaver.request_triple
    holders = group.workers[:2]
    with pytest.raises(ValueError, match="none of the bilinear ones"):
        ask(group.provider, "exp", FIELD, (1,), (1,), holders)
    with pytest.raises(ValueError, match="field=67"):
        ask(group.provider, "mul", 67, (1,), (1,), holders)
    with pytest.raises(ValueError, match="crypto provider is 'alice'"):
        ask("alice", "mul", FIELD, (1,), (1,), holders)
    with pytest.raises(ValueError, match="at least two holders"):
        ask(group.provider, "mul", FIELD, (1,), (1,), holders[:1])
    with pytest.raises(ValueError, match=r"does not fit the shapes \(2, 3\) and \(2, 3\)"):
        ask(group.provider, "matmul", FIELD, (2, 3), (2, 3), holders)


# -- bits and signs --------------------------------------------------------------------------------------


def test_decompose_here_and_elsewhere(group: Any) -> None:
    x = torch.tensor([[0, 1, -1], [5, ring.MIN, ring.MAX]])
    bits = securenn.decompose(x)
    assert bits.shape == (2, 3, 64) and bits[1, 0, :4].tolist() == [1, 0, 1, 0]
    weights = torch.tensor([ring.signed(1 << k) for k in range(64)])
    assert torch.equal((bits * weights).sum(-1), x)
    there = x.send(group.workers[0])  # type: ignore[attr-defined]
    assert torch.equal(securenn.decompose(there).get(), bits)  # type: ignore[attr-defined]
    with pytest.raises(ChainError, match="Decompose before sharing"):
        securenn.decompose(group(x))
    with pytest.raises(TypeError, match="takes integers"):
        securenn.decompose(torch.ones(2))


@pytest.mark.parametrize("form", FORMS)
def test_select_share_takes_the_second_where_the_bit_is_zero(group: Any, form: str) -> None:
    x, y, bit = spread(100), spread(100).flip(0), STREAM.bits(100)
    result = securenn.select_share(group(bit, 2, form), group(x, 2, form), group(y, 2, form))
    assert torch.equal(opened(result, form), torch.where(bit == 1, y, x))
    one = securenn.select_share(group(torch.tensor(1)), group(x), group(y))
    assert torch.equal(one.get(), y)


@pytest.mark.parametrize("form", FORMS)
def test_private_compare_of_shared_bits(group: Any, form: str) -> None:
    edges = [0, 1, 2, -1, -2, ring.MIN, ring.MAX]
    x = torch.tensor([a for a in edges for _ in edges] * 2)
    r = torch.tensor([b for _ in edges for b in edges] * 2)
    beta = torch.arange(2).repeat_interleave(len(edges) ** 2)
    larger = torch.tensor([int(a % 2**64 > b % 2**64) for a, b in zip(x.tolist(), r.tolist(), strict=True)])
    bits = group(securenn.decompose(x), 2, form)
    assert torch.equal(opened(securenn.private_compare(bits, r, beta), form), beta ^ larger)
    there = [value.send(*group.workers[:2]) for value in (r, beta)]  # type: ignore[attr-defined]
    assert torch.equal(opened(securenn.private_compare(bits, *there), form), beta ^ larger)


def test_private_compare_refuses_what_does_not_fit(group: Any) -> None:
    bits = group(securenn.decompose(torch.tensor([1, 2, 3])))
    zero = torch.zeros(3, dtype=torch.int64)
    with pytest.raises(ValueError, match=r"64 bits of every number.*Share decompose\(x\)"):
        securenn.private_compare(group(torch.tensor([1])), zero, zero)
    with pytest.raises(ValueError, match=r"beta of the shape \(2,\) for numbers of the shape \(3,\)"):
        securenn.private_compare(bits, zero, zero[:2])
    elsewhere = zero.send(group.workers[0], group.workers[2])  # type: ignore[attr-defined]
    with pytest.raises(ChainError, match="needs r at the holders alice, bob, and it is at alice, charlie"):
        securenn.private_compare(bits, elsewhere, zero)
    with pytest.raises(ChainError, match="takes r as a plain tensor or as pointers"):
        securenn.private_compare(bits, group(zero), zero)


@pytest.mark.parametrize("form", FORMS)
def test_share_convert_keeps_the_secret_and_msb_reads_it(group: Any, form: str) -> None:
    a = spread(1000)
    a = torch.cat([a[a != -1], torch.tensor([0, -2, ring.MIN, ring.MAX])])
    odd = securenn.share_convert(group(a, 2, form))
    assert (odd.child if form == "chain" else odd).field == 2**64 - 1
    assert torch.equal(opened(odd, form), a)
    assert torch.equal(opened(securenn.msb(odd), form), (a < 0).long())
    node = odd.child if form == "chain" else odd
    assert isinstance(node, OddSharingTensor)
    for use in (lambda: node.wrap() + 1, lambda: int(securenn.share_convert(group(torch.tensor(4))))):
        with pytest.raises(UnsupportedOperationError, match=r"for msb\(...\) and .get\(\) only"):
            use()
    assert torch.equal(odd.get(), a)


@pytest.mark.parametrize("form", FORMS)
def test_signs_and_relu_over_the_whole_range(group: Any, form: str) -> None:
    x = torch.cat([torch.tensor(ENDS), spread(500, bits=63)]).view(-1, 1)
    shared = group(x, 2, form)
    assert torch.equal(opened(securenn.relu_deriv(shared), form), (x >= 0).long())
    assert torch.equal(opened(securenn.relu(shared), form), x.relu())
    assert torch.equal(opened(securenn.msb(shared), form), (x < 0).long())
    assert torch.equal(opened(shared, form), x)


@pytest.mark.parametrize("form", FORMS)
def test_division_rounds_towards_zero(group: Any, form: str) -> None:
    most = 2**31 - 1  # |y| < 2^(62 - 31), |x / y| < 2^31
    x = [0, 1, 7, -7, 100, -100, most, -most, 2**31 * most - 1, 1 - 2**31 * most, 5, -5, 2**40, -1]
    y = [5, -1, 2, 2, -7, -7, 1, 1, most, most, 5, 5, -most, most]
    want = [abs(a) // abs(b) * (1 if a * b >= 0 else -1) for a, b in zip(x, y, strict=True)]
    result = securenn.division(group(torch.tensor(x), 2, form), group(torch.tensor(y), 2, form))
    assert opened(result, form).tolist() == want


def test_division_by_zero_broadcasting_and_digits(group: Any) -> None:
    x, y = torch.tensor([100, -100, 0]), torch.tensor([0])
    assert securenn.division(group(x), group(y), bit_len_max=4).get().tolist() == [15, -15, 15]
    assert securenn.division(group(x), group(torch.tensor(9)), bit_len_max=4).get().tolist() == [11, -11, 0]
    widest = torch.tensor([2**61 - 1, 1 - 2**61, 0, -1])
    assert torch.equal(securenn.division(group(widest), group(torch.tensor([1])), 61).get(), widest)
    for wrong in (0, 62, None):
        with pytest.raises(ValueError, match="1 to 61 binary digits"):
            securenn.division(group(x), group(y), bit_len_max=wrong)  # type: ignore[arg-type]


# -- maxima ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("shape", [(), (1,), (2,), (3,), (2, 3), (2, 2, 2)])
def test_maxpool_and_its_derivative(group: Any, shape: tuple[int, ...], form: str) -> None:
    x = STREAM.below(7, shape) - 3
    shared = group(x, 2, form)
    value, index = securenn.maxpool(shared)
    assert opened(value, form) == x.max() and opened(index, form) == x.argmax()
    hot = opened(securenn.maxpool_deriv(shared), form)
    assert hot.shape == x.shape and hot.reshape(-1).tolist() == F.one_hot(x.argmax(), x.numel()).tolist()


def test_maxpool_at_the_ends_of_its_range(group: Any) -> None:
    top = (1 << 61) - 1
    value, index = securenn.maxpool(group(torch.tensor([-top, top, -top, top, 0])))
    assert (int(value.get()), int(index.get())) == (top, 1)


def test_what_maxpool_gives_shares_no_memory_with_what_it_got(group: Any) -> None:
    shared = group(torch.tensor([5]))
    value, _ = securenn.maxpool(shared)
    value += 1
    assert shared.get().tolist() == [5] and value.get().tolist() == 6


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("kernel", "stride", "padding"), [(1, 1, 0), (2, 2, 0), (3, 1, 1), ((2, 3), (2, 1), (1, 0))]
)
def test_maxpool2d(group: Any, kernel: Any, stride: Any, padding: Any, form: str) -> None:
    x = STREAM.below(200, (2, 1, 4, 5)) - 100
    result = securenn.maxpool2d(group(x, 2, form), kernel, stride, padding)
    want = F.max_pool2d(x.double(), kernel, stride, padding).long()
    assert torch.equal(opened(result, form), want)
    assert torch.equal(opened(securenn.maxpool2d(group(x, 2, form)), form), x)


def test_pooling_that_cannot_be_is_refused(group: Any) -> None:
    x = group(torch.zeros((1, 1, 3, 3), dtype=torch.int64))
    with pytest.raises(ValueError, match=r"pictures \(N, C, H, W\)"):
        securenn.maxpool2d(group(torch.zeros(3, 3, dtype=torch.int64)), 2)
    with pytest.raises(ValueError, match="at least as large as the kernel"):
        securenn.maxpool2d(x, 4)
    with pytest.raises(ValueError, match="at most half the kernel"):
        securenn.maxpool2d(x, 2, 1, 2)
    with pytest.raises(ValueError, match="looks for the largest element, and this tensor has none"):
        securenn.maxpool(group(torch.zeros(0, dtype=torch.int64)))


# -- chains, holders -------------------------------------------------------------------------------------


def test_reals_in_fixed_precision_stay_reals_and_bits_are_bits(group: Any) -> None:
    x = torch.tensor([[1.5, -2.25], [0.0, 3.125]])

    def share(t: torch.Tensor) -> Any:
        return t.fix_precision().share(*group.workers[:2], crypto_provider=group.provider)  # type: ignore[attr-defined]

    def real(t: Any) -> torch.Tensor:
        return t.get().float_precision()  # type: ignore[no-any-return]

    assert torch.equal(real(securenn.relu(share(x))), x.relu())
    assert torch.equal(real(securenn.relu_deriv(share(x))), x >= 0)
    assert torch.equal(real(securenn.msb(share(x))), x < 0)
    value, index = securenn.maxpool(share(x))
    assert float(real(value)) == 3.125 and int(real(index)) == 3
    pooled = securenn.maxpool2d(share(x[None, None]), 2)
    assert real(pooled).tolist() == [[[[3.125]]]]
    bit = securenn.relu_deriv(share(x))
    assert torch.equal(real(securenn.select_share(bit, share(-x), share(x))), x.abs())
    with pytest.raises(ChainError, match="works on integers"):
        securenn.division(share(x), share(x))
    with pytest.raises(ChainError, match="met shared integers"):
        securenn.select_share(bit, share(x), group(torch.tensor([1])))
    with pytest.raises(ChainError, match="works on integers"):
        securenn.select_share(share(x), share(x), share(x))
    finer: Any = x.fix_precision(precision_fractional=5)  # type: ignore[attr-defined]
    other = finer.share(*group.workers[:2], crypto_provider=group.provider)
    with pytest.raises(ChainError, match="same precision"):
        securenn.select_share(bit, share(x), other)


PICTURE = torch.ones((1, 1, 2, 2), dtype=torch.int64)
CALLS: dict[str, Callable[[Any], Any]] = {
    "select_share": lambda x: securenn.select_share(x, x, x),
    "private_compare": lambda x: securenn.private_compare(x, 0, 0),
    "msb": securenn.msb,
    "share_convert": securenn.share_convert,
    "relu_deriv": securenn.relu_deriv,
    "relu": securenn.relu,
    "division": lambda x: securenn.division(x, x),
    "maxpool": securenn.maxpool,
    "maxpool_deriv": securenn.maxpool_deriv,
    "maxpool2d": securenn.maxpool2d,
}


@pytest.mark.parametrize("name", CALLS)
def test_three_holders_are_told_what_to_do(group: Any, name: str) -> None:
    with pytest.raises(
        ValueError, match=rf"{name} of SecureNN .* 3 holders \(alice, bob, charlie\).* or write"
    ):
        CALLS[name](group(PICTURE, 3))


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("value", [PICTURE, 5, None], ids=["tensor", "number", "nothing"])
def test_what_is_not_shared_is_told_how_to_be(name: str, value: Any) -> None:
    with pytest.raises(ChainError, match=r"takes shared tensors, and got a \w+. Share it first"):
        CALLS[name](value)


def test_secrets_with_different_providers_do_not_meet(group: Any, make_worker: Any) -> None:
    x = group(torch.tensor([1]))
    other: Any = torch.tensor([1]).share(*group.workers[:2], crypto_provider=make_worker("other"))  # type: ignore[attr-defined]
    for call in (lambda: securenn.division(x, other), lambda: securenn.select_share(x, x, other)):
        with pytest.raises(ChainError, match=r"provider provider, .* provider other"):
            call()


def test_nothing_is_left_at_the_holders(group: Any) -> None:
    x = group(PICTURE)
    before = [len(w._objects) for w in group.workers]
    for name in set(CALLS) - {"private_compare"}:
        CALLS[name](x)
    spdz.spdz_mul("mul", x, x, group.provider, FIELD)
    beaver.request_triple(group.provider, "mul", FIELD, (2,), (2,), group.workers[:2])
    assert [len(w._objects) for w in group.workers] == before


# -- the programs below: what a review of them against the paper found -------------------------------------


def _compare(x: torch.Tensor, r: torch.Tensor, beta: torch.Tensor, one: torch.Tensor) -> list[torch.Tensor]:
    """What P_2 gets from P_0 and P_1 in private_compare, when it dealt `one` as the first share of x's bits."""
    driver = Lockstep(2, transcript=True)

    @with_provider
    def program(party: Any, x_bits: torch.Tensor) -> Any:
        return (yield from programs.private_compare(party, x_bits, r, beta))

    bits = programs.decompose(x)
    driver.run(program, Shares([one, (bits + (programs.PRIME - one)) % programs.PRIME]))
    assert driver.seen is not None
    return [seen.tensor for seen in driver.seen[2]]


def test_the_provider_cannot_use_that_it_dealt_the_bits() -> None:
    """Each holder's residues are uniform and independent of the shares P_2 chose: NOTE [Fresh residues]."""
    x, r = STREAM.words(300), STREAM.words(300)
    for beta in (torch.zeros(300, dtype=torch.int64), torch.ones(300, dtype=torch.int64)):
        nothing = torch.zeros((300, 64), dtype=torch.uint8)
        for seen in _compare(x, r, beta, nothing):
            assert chi_square(torch.bincount(seen.view(-1).long(), minlength=67).double()) < limit(67)


def test_the_provider_cannot_check_a_guess_of_the_secret() -> None:
    """The quotients of the two holders' residues, by which s_i cancels, fit the truth no better than chance."""
    p = programs.PRIME

    def quotients(pairs: Any) -> collections.Counter[int]:
        return collections.Counter(a * pow(b, p - 2, p) % p if b else p for a, b in pairs)

    fits = 0
    for _ in range(10):
        x, r = STREAM.words(1), STREAM.words(1)
        one = STREAM.residues(p, (1, 64))
        seen = _compare(x, r, torch.zeros(1, dtype=torch.int64), one)
        known = []
        for j, share in enumerate((one, (programs.decompose(x) + (p - one)) % p)):
            bits, bound = share.view(-1).tolist(), programs.decompose(r).view(-1).tolist()
            w = [a + j * b - 2 * a * b for a, b in zip(bits, bound, strict=True)]
            known.append([(j * bound[i] - bits[i] + j + sum(w[i + 1 :])) % p for i in range(64)])
        told = quotients(zip(*(t.view(-1).tolist() for t in seen), strict=True))
        fits += told == quotients(zip(*known, strict=True))
    assert fits == 0


def chi_square(counts: torch.Tensor) -> float:
    expected = counts.sum() / len(counts)
    return float(((counts - expected) ** 2 / expected).sum())


def limit(kinds: int) -> float:
    """One false alarm in 1e8 of a chi-square over so many kinds."""
    return (kinds - 1) + 6.5 * (2 * (kinds - 1)) ** 0.5 + 6


@pytest.mark.parametrize("secret", [0, -1, 12345, 1 - TOP])
def test_what_the_provider_puts_together_is_noise(secret: int) -> None:
    """Not only each message: the sum of what the two holders send it, too."""
    count = 4000
    driver = Lockstep(2, transcript=True)
    driver.run(programs.relu_deriv, deal(torch.full((count,), secret), 2))
    assert driver.seen is not None
    seen = [one.tensor for one in driver.seen[2]]
    words = [t for t in seen if t.dtype == torch.int64]
    masked = (words[0] + words[1]).view(torch.uint8)
    assert len(words) == 2 and chi_square(torch.bincount(masked.long(), minlength=256).double()) < limit(256)
    residues = [t.long() for t in seen if t.dtype == torch.uint8]
    assert len(residues) == 4  # two private compares
    for first, second in (residues[:2], residues[2:]):
        d = (first + second) % programs.PRIME
        zeros = (d == 0).sum(-1)
        assert int(zeros.max()) == 1 and abs(float(zeros.double().mean()) - 0.5) < 6.5 * 0.5 / count**0.5
        places = torch.bincount((d == 0).nonzero()[:, 1], minlength=64).double()
        assert chi_square(places) < limit(64)
        assert chi_square(torch.bincount(d[d != 0], minlength=67)[1:].double()) < limit(66)


@pytest.mark.parametrize("n", [3, 4])
def test_the_provider_does_not_learn_which_was_the_largest(n: int) -> None:
    x = torch.zeros((n, 3000), dtype=torch.int64)
    x[1] = 5
    driver = Lockstep(2, transcript=True)
    driver.run(programs.maxpool_deriv, deal(x, 2))
    assert driver.seen is not None
    first, second = (one.tensor for one in driver.seen[2][-2:])
    assert chi_square(torch.bincount((first + second) % n, minlength=n).double()) < limit(n)


def test_the_bits_of_a_comparison_reach_the_provider_under_a_pad() -> None:
    driver = Lockstep(2, transcript=True)
    x, r, beta = torch.full((200,), -1), torch.zeros(200, dtype=torch.int64), STREAM.bits(200)
    shares = deal(programs.decompose(x).long(), 2)
    driver.run(programs.private_compare_shared, shares, Shares([r, r]), Shares([beta, beta]))
    assert driver.seen is not None
    first, second = (one.tensor.long() for one in driver.seen[2][:2])
    for bits in (first, second, first ^ second):  # 12,800 coins: a deviation of 0.0044
        assert abs(float(bits.double().mean()) - 0.5) < 0.03


def test_programs_take_empty_tensors() -> None:
    for shape in [(0,), (2, 0)]:
        empty = torch.zeros(shape, dtype=torch.int64)
        for program in (programs.relu, programs.relu_deriv):
            assert revealed(Lockstep(2).run(program, deal(empty, 2))).shape == shape
        bits = deal(torch.zeros((*shape, 64), dtype=torch.int64), 2)
        held = Shares([empty, empty])
        assert revealed(Lockstep(2).run(programs.private_compare_shared, bits, held, held)).shape == shape


def test_pooling_rounds_up_when_asked() -> None:
    x = STREAM.below(200, (1, 2, 5, 5)) - 100
    pooling = Pooling((2, 2), (2, 2), ceil_mode=True)
    result = revealed(Lockstep(2).run(programs.maxpool2d, deal(x, 2), pooling=pooling))
    assert torch.equal(result, F.max_pool2d(x.double(), 2, ceil_mode=True).long())


def test_the_documented_programs_of_2019_run(group: Any) -> None:
    from syft.frameworks.torch.crypto import securenn as snn
    from syft.frameworks.torch.crypto.spdz import spdz_mul
    from syft.frameworks.torch.tensors.interpreters.additive_shared import AdditiveSharingTensor as Node

    alice, bob = group.workers[:2]
    x: Any = torch.tensor([-3, 0, 10]).share(alice, bob, crypto_provider=group.provider)  # type: ignore[attr-defined]
    y: Any = torch.tensor([2, 5, 10]).share(alice, bob, crypto_provider=group.provider)  # type: ignore[attr-defined]
    assert isinstance(x.child, Node)
    assert spdz_mul("mul", x.child, y.child, group.provider, x.field).get().tolist() == [-6, 0, 100]
    assert snn.relu(x).get().tolist() == [0, 0, 10]
    assert snn.division(y, x.child.put_back(torch.tensor([1, 2, 3]))).get().tolist() == [2, 2, 3]
