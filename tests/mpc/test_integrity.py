"""Authenticated shares (`protocol="spdz2k"`): right without a cheater, and nothing but an error with one."""

from __future__ import annotations

import random
from functools import cache
from typing import Any

import pytest
import torch

import syft as sy
from mpc.cheating import EXAMPLES, TAMPERINGS, A, Cheating, add_small_order, enter, leave, left, ran
from mpc.lower import deal, revealed, spread
from syft.exceptions import ChainError, SyftError
from syft.mpc.correlations import Mask
from syft.mpc.drivers import Lockstep
from syft.mpc.integrity import wide, words
from syft.mpc.integrity.errors import IntegrityError, NoMacsError
from syft.mpc.integrity.linear import MOST_TERMS, terms_of
from syft.mpc.integrity.sealed import Key, Sealed
from syft.mpc.programs import program_named
from syft.mpc.protocols import documented, spdz2k
from syft.mpc.ring import signed

HOLDERS = (2, 3)
CASES = [(name, *case) for name, cases in EXAMPLES.items() for case in cases]


# -- numbers of 110 bits -----------------------------------------------------------------------------------


def test_limbs_are_integers_mod_two_to_the_110() -> None:
    rng = random.Random(1)
    for _ in range(200):
        x, y, c = rng.randrange(1 << 110), rng.randrange(1 << 110), rng.randrange(-(1 << 63), 1 << 63)
        a, b, public = wide.of_integer(x), wide.of_integer(y), wide.of_public(torch.tensor(c))
        assert wide.as_integer(wide.normal_(a + b)) == (x + y) % (1 << 110)
        assert wide.as_integer(wide.normal_(a - b)) == (x - y) % (1 << 110)
        assert wide.as_integer(wide.scaled(public, a)) == c * x % (1 << 110)
        assert wide.as_integer(wide.unpacked(*wide.packed(a))) == x


def test_pairs_of_words_are_integers_mod_two_to_the_110() -> None:
    """Sums that carry, differences that borrow, products by halves: at the edges of words and at random."""
    rng, modulus = random.Random(2), 1 << 110
    edges = [0, 1, (1 << 32) - 1, 1 << 32, (1 << 63) - 1, 1 << 63, (1 << 64) - 1, 1 << 64, modulus - 1]
    pairs = [(x, y) for x in edges for y in edges]
    pairs += [(rng.randrange(modulus), rng.randrange(modulus)) for _ in range(9_000)]  # more than one block

    def written(numbers: list[int]) -> torch.Tensor:
        return torch.stack(
            [torch.tensor([signed(n >> at & (1 << 64) - 1) for n in numbers]) for at in (0, 64)]
        )

    def read(found: torch.Tensor) -> list[int]:
        lo, hi = words.masked(found).tolist()
        return [(low % (1 << 64)) + (high << 64) for low, high in zip(lo, hi, strict=True)]

    xs, ys = [x for x, _ in pairs], [y for _, y in pairs]
    x, y, factors = written(xs), written(ys), [n % (1 << 64) for n in ys]
    public = torch.tensor([signed(n) for n in factors])
    mask = -(public & 1)
    found = {
        "added": (words.added(x, y), [a + b for a, b in pairs]),
        "subtracted": (words.subtracted(x, y), [a - b for a, b in pairs]),
        "negated": (words.negated(x), [-a for a in xs]),
        "scaled": (words.scaled(x, public), [a * c for a, c in zip(xs, factors, strict=True)]),
        "by one": (words.scaled(x, public[-1]), [a * factors[-1] for a in xs]),
        "where": (
            words.negated_where(x, mask),
            [-a if c & 1 else a for a, c in zip(xs, factors, strict=True)],
        ),
        "shifted": (words.shifted_by_word(x), [a << 64 for a in xs]),
        "limbs": (words.of_limbs(words.as_limbs(x)), xs),
    }
    for name, (got, exact) in found.items():
        assert read(got) == [n % modulus for n in exact], name
    rows, column = x[:, :12].view(2, 3, 4), torch.tensor([[3], [-5], [1 << 62]])
    by_rows = words.scaled(rows.transpose(1, 2), column.view(1, 3))
    for k, factor in enumerate((3, (1 << 64) - 5, 1 << 62)):
        assert read(by_rows[:, :, k]) == [a * factor % modulus for a in xs[4 * k : 4 * k + 4]]
        assert read(words.scaled(rows, column)[:, k]) == read(by_rows[:, :, k])


@pytest.mark.parametrize("terms", [(1 << 11) // 3, 1 << 11, (1 << 11) + 1, MOST_TERMS])
def test_products_of_limbs_are_exact_at_the_most_terms(terms: int) -> None:
    """In float64 up to 2^11 terms, in int64 beyond; limbs and factors as large as they come."""
    column = torch.full((5, terms, 1), (1 << 22) - 1)
    factors = (-1, (1 << 63) - 1, -(1 << 63), (1 << 21) + (1 << 43))
    for factor in factors if terms < MOST_TERMS else factors[1:2]:
        row = wide.of_public(torch.full((1, terms), factor))
        for limbs, number in (
            (column, (1 << 110) - 1),
            (column // 2 + 1, sum(1 << (22 * k + 21) for k in range(5))),
        ):
            found = wide.product(torch.mm, row, limbs, terms)
            assert wide.as_integer(found.view(5)) == terms * factor * number % (1 << 110)
    assert terms_of(torch.mm, (1, terms), (terms, 1)) == terms
    with pytest.raises(ValueError, match="adds up to"):
        terms_of(torch.mm, (1, MOST_TERMS + 1), (MOST_TERMS + 1, 1))


# -- without a cheater ---------------------------------------------------------------------------------------


def test_every_covered_program_is_tried() -> None:
    assert set(EXAMPLES) == spdz2k.COVERED


@pytest.mark.parametrize("holders", HOLDERS)
@pytest.mark.parametrize(("name", "secrets", "public"), CASES)
def test_programs_give_what_they_give_without_macs(
    name: str, secrets: Any, public: Any, holders: int
) -> None:
    driver, plain = Lockstep(holders), Lockstep(holders)
    found = left(driver, ran(driver, name, secrets, public))
    expected = revealed(plain.run(program_named(name), *(deal(s, holders) for s in secrets), *public))
    pairs = list(zip(found, expected, strict=True)) if isinstance(found, tuple) else [(found, expected)]
    for one, other in pairs:
        assert one.shape == other.shape
        # truncation's last unit is a coin
        assert int((one - other).abs().max()) <= (name == "truncate.truncate")


@pytest.mark.parametrize("holders", HOLDERS)
def test_signs_and_truncation_are_right_over_the_whole_range(holders: int) -> None:
    driver = Lockstep(holders)
    x = spread(300)
    assert torch.equal(left(driver, ran(driver, "select.is_negative", (x,), ())), (x < 0).long())
    y = spread(300, 62)
    for divisor in (3, 1000, 1 << 16, (1 << 61) + 1):
        error = left(driver, ran(driver, "truncate.truncate", (y,), (divisor,))) - torch.div(
            y, divisor, rounding_mode="floor"
        )
        assert set(error.tolist()) <= {0, 1}


def test_empty_secrets() -> None:
    driver = Lockstep(2)
    for name in ("select.relu", "beaver.square", "select.is_zero"):
        assert left(driver, ran(driver, name, (torch.empty(0, dtype=torch.int64),), ())).shape == (0,)


# -- with one --------------------------------------------------------------------------------------------------


@cache
def _rounds(case: int, holders: int) -> int:
    """Rounds of a program and of all its results' leaving, without a cheater."""
    name, secrets, public = CASES[case]
    driver = Cheating(holders)
    given = [enter(driver, value) for value in secrets]
    driver.rounds_seen = 0
    left(driver, driver.run(spdz2k.apply, name, *given, *public))
    return driver.rounds_seen


def _attack(trials: int, seed: int, first: int) -> int:
    """Random tamperings: every program, round, kind of error and place. Returns how many were tried."""
    rng = random.Random(seed)
    cases = [k for k, case in enumerate(CASES) if case[0] != "divide.divide_shared"]  # it has 30 rounds
    for trial in range(first, first + trials):
        case = cases[trial % len(cases)]
        name, secrets, public = CASES[case]
        holders = HOLDERS[(trial // len(cases)) % 2]
        driver = Cheating(holders, rng.randrange(holders))
        given = [enter(driver, value) for value in secrets]
        tamper = TAMPERINGS[trial % len(TAMPERINGS)]
        driver.arm(
            rng.randrange(_rounds(case, holders)), tamper, rng, alike=holders == 2 or rng.random() < 0.6
        )
        what = f"trial {trial}: {name} {public}, {holders} holders, {tamper.__name__} in round {driver.at}"
        with pytest.raises(IntegrityError, match="nothing says which"):
            pytest.fail(
                f"not caught: {what}: {left(driver, driver.run(spdz2k.apply, name, *given, *public))}"
            )
        assert driver.tampered, what
        assert driver.ledger.noticed[0] != driver.cheater, what
    return trials


@pytest.mark.parametrize("seed", range(4))
def test_tampering_is_caught(seed: int) -> None:
    """200 in all; each seed goes on where the last one ended among the programs."""
    assert _attack(50, seed, first=50 * seed) == 50


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20))
def test_a_thousand_tamperings_are_caught(seed: int) -> None:
    assert _attack(50, 100 + seed, first=50 * seed) == 50


@pytest.mark.parametrize("holders", HOLDERS)
def test_errors_of_small_order_are_caught_every_time(holders: int) -> None:
    """With MACs mod 2^64 each of these would pass with probability 1/2."""
    for trial in range(20):
        driver = Cheating(holders, trial % holders)
        x, y = enter(driver, A), enter(driver, A)
        driver.arm(0, add_small_order, random.Random(trial), alike=True)
        product = driver.run(spdz2k.apply, "beaver.spdz_mul", x, y)
        with pytest.raises(IntegrityError, match="do not add up"):
            leave(driver, product)
        assert driver.ledger.noticed[0] != driver.cheater


def test_the_same_error_in_two_openings_of_bits_does_not_cancel() -> None:
    driver = Lockstep(2)
    x = enter(driver, A)
    driver.run(spdz2k.apply, "select.is_negative", x)
    for page in driver.ledger._pages[:1]:
        bits = [entry for entry in page if hasattr(entry, "tags")]
        for entry in bits[-2:]:
            entry.tags[3].view(-1)[0] ^= 1
    with pytest.raises(IntegrityError, match="do not add up"):
        leave(driver, x)


def test_a_changed_share_is_caught() -> None:
    """What a holder keeps, not what it sends: every word of it that counts."""
    for word, bit in ((0, 0), (0, 63), (1, 5), (2, 0), (3, 0)):
        driver = Lockstep(2)
        x = enter(driver, A)
        x[1][word].view(-1)[2] ^= -(1 << 63) if bit == 63 else 1 << bit
        with pytest.raises(IntegrityError):
            leave(driver, x)


def test_after_a_failed_check_nothing_is_computed_or_opened() -> None:
    driver = Cheating(2, 1)
    x, other = enter(driver, A), enter(driver, A)
    driver.arm(0, add_small_order, random.Random(1), alike=True)
    with pytest.raises(IntegrityError):
        leave(driver, driver.run(spdz2k.apply, "beaver.square", x))
    driver.at = None
    for again in (
        lambda: leave(driver, other),
        lambda: driver.run(spdz2k.apply, "beaver.square", other),
        lambda: driver.run(spdz2k.reveal, other),
        lambda: enter(driver, A),
    ):
        with pytest.raises(IntegrityError, match="ended an earlier computation"):
            again()


def test_a_check_is_made_when_much_is_pending(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spdz2k, "_MOST_PENDING", 1000)
    driver = Lockstep(2)
    x = enter(driver, A)
    for _ in range(4):
        x = driver.run(spdz2k.apply, "select.relu", x)
    assert all(len(page) <= 20 for page in driver.ledger._pages)
    cheating = Cheating(2, 1)
    x = enter(cheating, A)
    cheating.arm(0, add_small_order, random.Random(1), alike=True)
    x = cheating.run(spdz2k.apply, "select.relu", x)
    with pytest.raises(IntegrityError):
        cheating.run(spdz2k.apply, "select.relu", x)


# -- what is opened ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["beaver.square", "truncate.truncate", "select.relu", "derived.one_hot"])
def test_what_is_opened_is_uniform(name: str) -> None:
    """All 110 bits of every number and all bits of every word, for a secret that is the same everywhere."""
    public = {"truncate.truncate": (1000,), "derived.one_hot": (8,)}.get(name, ())
    for secret in (0, 5):
        driver = Lockstep(2)
        ran(driver, name, (torch.full((1_280,), secret),), public)
        for entry in driver.ledger._pages[0]:
            words = entry.opened.reshape(2, -1) if hasattr(entry, "mac") else entry.opened.reshape(1, -1)
            for plane, width in zip(words, (64, 46), strict=False):
                bits = (plane.unsqueeze(0) >> torch.arange(width).unsqueeze(1)) & 1
                count = bits.shape[1]
                # six deviations of a fair coin, for each of some hundred bits
                assert float((bits.double().mean(1) - 0.5).abs().max()) < 3 / count**0.5, name


def test_shares_and_macs_are_uniform() -> None:
    driver = Lockstep(3)
    parts = enter(driver, torch.full((3_000,), 7))
    for part in parts[1:]:
        for plane, width in zip(part, (64, 64, 46, 46), strict=True):
            bits = (plane.unsqueeze(0) >> torch.arange(width).unsqueeze(1)) & 1
            assert float((bits.double().mean(1) - 0.5).abs().max()) < 3 / 3_000**0.5


def test_dealt_on_a_network_is_dealt_in_one_process() -> None:
    """`expand` from the seeds and the corrections gives what `Sealed.deal` cut."""
    from syft.mpc.binding import purpose
    from syft.mpc.correlations import Comparison
    from syft.mpc.provider import Provider, drawn_shapes, expand
    from syft.mpc.randomness import BoundStream, new_seed

    seeds = [new_seed() for _ in range(3)]
    kind = Sealed(Comparison(70, select=True))
    whole = Provider(3, seeds).begin(5, b"p").make(kind)
    sent = Provider(3, seeds).begin(5, b"p").corrections(kind)
    for rank, seed in enumerate(seeds):
        stream = BoundStream(seed).at(purpose(5, b"p", 0, kind))
        drawn = stream.draw_all(drawn_shapes(kind, rank == 2))
        part = expand(kind, drawn, lambda rank=rank: sent[rank], rank == 2)
        assert all(torch.equal(a, b) for a, b in zip(part, whole.take(rank), strict=True))


def test_keys_differ_and_stay() -> None:
    from syft.mpc.randomness import BoundStream

    streams = [BoundStream(bytes([n]) * 16) for n in range(4)]
    keys = [Key.of(stream).alpha for stream in streams]
    assert len(set(keys)) == 4
    assert all(0 <= key < 1 << 46 for key in keys)
    assert keys == [Key.of(stream).alpha for stream in streams]


def test_correlations_with_macs_are_not_handed_out() -> None:
    with pytest.raises(TypeError, match="knows the key"):
        Lockstep(2).run(documented.take, Sealed(Mask((2,))))


# -- for users -------------------------------------------------------------------------------------------------


@pytest.fixture
def share(workers: Any) -> Any:
    def call(tensor: Any, **options: Any) -> Any:
        fixed = (
            tensor.fix_precision(base=2, precision_fractional=16) if tensor.is_floating_point() else tensor
        )
        options = {"protocol": "spdz2k", **options}
        return fixed.share(workers.alice, workers.bob, crypto_provider=workers.charlie, **options)

    return call


def test_tensors(share: Any) -> None:
    x = torch.tensor([[1.5, -2.0, 0.25], [3.0, 0.5, -1.0]])
    secret = share(x)
    assert secret.shape == x.shape
    for found, expected in (
        (secret * secret + 1, x * x + 1),
        (2 - secret[:, 1:], 2 - x[:, 1:]),
        (secret @ secret.t(), x @ x.t()),
        (secret @ torch.ones(3, 2).fix_precision(base=2, precision_fractional=16), x @ torch.ones(3, 2)),  # type: ignore[attr-defined]
        (torch.cat([secret, secret.sum(0, keepdim=True)]), torch.cat([x, x.sum(0, keepdim=True)])),
        (secret.relu(), x.relu()),
        (torch.where(secret > 0, secret, -secret), x.abs()),
        (secret.max(1).values, x.max(1).values),
        (secret.exp(), x.exp()),
        (1 / secret, 1 / x),
        (secret.softmax(1), x.softmax(1)),
        (secret[x > 0], x[x > 0]),
        (secret.masked_fill(x < 0, 9.0), x.masked_fill(x < 0, 9.0)),
    ):
        value = found.get().float_precision()
        assert value.shape == expected.shape
        assert torch.allclose(value, expected, atol=2e-3, rtol=1e-3)
    assert torch.equal(secret.argmax(1).get().float_precision(), x.argmax(1).float())
    assert torch.allclose(secret.virtual_get().float_precision(), x)
    assert torch.allclose(secret.refresh().get().float_precision(), x)


def test_integers_and_opening_among_holders(share: Any, workers: Any) -> None:
    secret = share(torch.tensor([25, -3]))
    assert (secret * 3 - 1).get().tolist() == [74, -10]
    secret = share(torch.tensor([25, -3]))
    assert [p.get().tolist() for p in secret.reconstruct().child.child.values()] == [[25, -3]] * 2


def test_training_equals_training_without_macs(share: Any, workers: Any) -> None:
    losses = []
    for protocol in (None, "spdz2k"):
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(2, 4), torch.nn.ReLU(), torch.nn.Linear(4, 1))
        model.fix_precision(base=2, precision_fractional=16).share(  # type: ignore[operator]
            workers.alice, workers.bob, crypto_provider=workers.charlie, protocol=protocol
        )
        x = share(torch.tensor([[0.0, 1.0], [1.0, 1.0]]), protocol=protocol)
        y = share(torch.tensor([[1.0], [0.0]]), protocol=protocol)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        for _ in range(3):
            optimizer.zero_grad()
            loss = ((model(x) - y) ** 2).mean()
            loss.backward()
            optimizer.step()
        losses.append(float(loss.get().float_precision().detach()))
    assert abs(losses[0] - losses[1]) < 2e-3


def test_convolution(share: Any) -> None:
    torch.manual_seed(1)
    x, w, b = torch.randn(2, 2, 5, 5), torch.randn(3, 2, 3, 3), torch.randn(3)
    found = torch.nn.functional.conv2d(share(x), share(w), share(b), stride=2, padding=1)
    expected = torch.nn.functional.conv2d(x, w, b, stride=2, padding=1)
    assert torch.allclose(found.get().float_precision(), expected, atol=2e-3)
    pooled = torch.nn.functional.max_pool2d(share(x), 2)
    assert torch.allclose(pooled.get().float_precision(), torch.nn.functional.max_pool2d(x, 2), atol=1e-3)


def test_a_worker_shares_its_own(workers: Any) -> None:
    there = torch.tensor([1.0, 2.0]).send(workers.alice).fix_precision()  # type: ignore[attr-defined]
    options = {"crypto_provider": workers.charlie, "protocol": "spdz2k"}
    secret = there.share(workers.alice, workers.bob, **options).get()
    assert (secret * secret).get().float_precision().tolist() == [1.0, 4.0]


def test_mixed_operands_are_refused_with_a_cure(share: Any) -> None:
    with pytest.raises(ChainError, match="Share both with protocol='spdz2k', or both without"):
        share(torch.tensor([1.0])) * share(torch.tensor([1.0]), protocol=None)
    with pytest.raises(ChainError, match="Share both"):
        share(torch.tensor([1.0]), protocol=None) + share(torch.tensor([1.0]))
    with pytest.raises(ChainError, match="Share both"):
        torch.cat([share(torch.tensor([1.0])), share(torch.tensor([1.0]), protocol=None)])


def test_what_has_no_macs_is_refused(share: Any, workers: Any) -> None:
    secret = share(torch.tensor([1.0, 2.0]))
    with pytest.raises(NoMacsError, match="has no form with MACs"):
        secret.child.child.run(program_named("securenn.relu"))
    there = torch.tensor([1.0, 2.0]).send(workers.alice).fix_precision()  # type: ignore[attr-defined]
    with pytest.raises(NoMacsError, match="share\\(\\) of a pointer"):
        there.share(
            workers.alice,
            workers.bob,
            crypto_provider=workers.charlie,
            protocol="spdz2k",
            requires_grad=True,
        )
    with pytest.raises(NoMacsError, match="view"):
        secret[0] = 5.0
    view = secret[:1]
    secret += 1
    with pytest.raises(ChainError, match="Take the view again"):
        view + 1
    assert torch.allclose(secret.get().float_precision(), torch.tensor([2.0, 3.0]))
    with pytest.raises(ChainError, match="without MACs"):
        sy.AdditiveSharingTensor(crypto_provider=workers.charlie, protocol="spdz2k").on(
            torch.tensor([1])
        ).child.init_shares(  # type: ignore[attr-defined]
            workers.alice, workers.bob
        )


def test_a_cheating_worker_is_caught_at_get(share: Any, workers: Any) -> None:
    secret = share(torch.tensor([1.0, 2.0]))
    product = secret * secret
    pointer = product.child.child.pointers[1]
    workers.bob._entries[pointer.id_at_location].value[0] += 1 << 16
    with pytest.raises(IntegrityError):
        product.get()
    with pytest.raises(SyftError, match="new session"):
        secret + 1


# -- on a network ------------------------------------------------------------------------------------------------


@pytest.mark.network
def test_on_a_network(client: Any, parties: Any) -> None:
    x = torch.tensor([[1.5, -2.0, 0.25], [3.0, 0.5, -1.0]])
    secret = client.share(x, protocol="spdz2k")
    for found, expected in (
        (secret * secret + 1, x * x + 1),
        (secret @ secret.t(), x @ x.t()),
        (torch.cat([secret.relu(), secret * 2], 1), torch.cat([x.relu(), x * 2], 1)),
        (secret[x > 0], x[x > 0]),
        (secret.max(1).values, x.max(1).values),
    ):
        value = found.get().float_precision()
        assert value.shape == expected.shape
        assert torch.allclose(value, expected, atol=4e-3)
    opened = secret.reconstruct().child.child.values()
    assert all(torch.equal(p.get(), (x * 1000).long()) for p in opened)


@pytest.mark.network
@pytest.mark.parametrize("error", [1, -(1 << 63)])
def test_a_frame_that_is_changed_on_a_network(
    client: Any, parties: Any, monkeypatch: pytest.MonkeyPatch, error: int
) -> None:
    """Bob adds an error to what he sends in the round of a product."""
    from syft.mpc.network import execution
    from syft.mpc.party import Round

    secret, other = (client.share(torch.tensor([1.5, -2.0]), protocol="spdz2k") for _ in range(2))
    honest, armed = execution._exchange, [True]

    def cheating(membership: Any, one: Round, *where: Any) -> Any:
        numbers = [t for tensors in one.outgoing.values() for t in tensors if t.ndim == 2]
        if membership.members[membership.rank] == "bob" and numbers and armed:
            armed.pop()
            changed = {
                to: tuple(_with_error(t, error) for t in tensors) for to, tensors in one.outgoing.items()
            }
            one = Round(changed, one.incoming, one.finish, one.opened)
        return honest(membership, one, *where)

    monkeypatch.setattr(execution, "_exchange", cheating)
    product = secret * other
    with pytest.raises(SyftError, match=r"IntegrityError|check of authenticated shares failed"):
        product.get()
    assert not armed
    assert parties.membership("alice").ledger.broken is not None
    with pytest.raises(SyftError, match=r"ended an earlier computation|check of authenticated"):
        secret.get()


def _with_error(tensor: torch.Tensor, error: int) -> torch.Tensor:
    made = tensor.clone()
    made[0] += error
    return made


@pytest.mark.network
def test_a_provider_tells_no_other_mask(client: Any) -> None:
    from syft.core.session import session
    from syft.mpc.network import messages
    from syft.mpc.sharing import secret_of

    secret = client.share(torch.tensor([1.5]), protocol="spdz2k")
    secret.get()
    driver = secret_of(client.share(torch.tensor([1.5]), protocol="spdz2k").child).group.driver
    for kind in (Mask((1,)), Sealed(Mask((1,)))):
        with pytest.raises(TypeError, match="masks of what enters and leaves"):
            session.require_local_worker().send_msg(
                messages.TellMask(driver.joined(), 1, b"", kind), client.provider
            )
