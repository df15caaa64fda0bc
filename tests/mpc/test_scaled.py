"""Products and their truncation under one mask, and fields that are read when they are needed."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mpc.lower import HOLDERS, STREAM, deal, revealed
from mpc.network_parties import Parties, node_of
from syft.mpc.binding import kind_digest
from syft.mpc.correlations import Correlation, Square, Triple
from syft.mpc.drivers import Lockstep
from syft.mpc.kernels import Bilinear
from syft.mpc.network import execution, messages
from syft.mpc.protocols import beaver
from syft.mpc.protocols.beaver import MATMUL, MUL
from syft.mpc.protocols.scaled import ScaledTriple, multiply_truncated
from syft.mpc.provider import Provider
from syft.mpc.randomness import BoundStream, new_seed

CASES = [
    (MUL, (5, 7), (7,)),
    (MUL, (40_000,), (40_000,)),  # in blocks
    (MATMUL, (3, 4), (4, 5)),
    (Bilinear.of("conv", padding=1), (2, 3, 5, 5), (4, 3, 3, 3)),
]


def signed(shape: Sequence[int], bits: int) -> torch.Tensor:
    return STREAM.words(shape) >> (63 - bits)


def is_next_to(found: torch.Tensor, product: torch.Tensor, divisor: int) -> bool:
    """Whether all are one of the two integers next to a quotient."""
    floor = torch.div(product, divisor, rounding_mode="floor")
    off = found - floor
    return bool(((off == 0) | ((off == 1) & (product % divisor != 0))).all())


@pytest.mark.parametrize("holders", HOLDERS)
@pytest.mark.parametrize("divisor", [2, 1000, 1 << 16, 1 << 20, 1 << 40, 3**30])
@pytest.mark.parametrize(("op", "of_x", "of_y"), CASES)
def test_a_product_is_divided(op: Bilinear, of_x: Any, of_y: Any, divisor: int, holders: int) -> None:
    x, y = signed(of_x, 30), signed(of_y, 26)
    driver = Lockstep(holders)
    (found,) = driver.run(multiply_truncated, deal(x, holders), deal(y, holders), op, divisor)
    product = op(x, y)
    assert is_next_to(revealed(found), product, divisor)
    sent = x.nbytes + y.nbytes + product.nbytes
    assert (driver.cost.rounds, driver.cost.bytes_sent[0]) == (2, (holders - 1) * sent)
    # Neither the product of the masks nor the mask of the product; NOTE [Narrow signs].
    signs = -(-product.numel() // {2: 4, 1 << 16: 4, 1 << 20: 2}.get(divisor, 1))
    assert driver.provider.cost.bytes - 16 * holders == product.nbytes + 8 * signs


@settings(max_examples=60, deadline=None)
@given(st.integers(-(2**62), 2**62 - 1), st.integers(2, 2**62 - 1))
def test_all_of_the_range_is_divided(product: int, divisor: int) -> None:
    x = torch.tensor([product])
    (found,) = Lockstep(2).run(multiply_truncated, deal(x, 2), deal(torch.tensor([1]), 2), MUL, divisor)
    assert is_next_to(revealed(found), x, divisor)


@pytest.mark.parametrize("keep", ["x", "y", "xy"])
def test_operands_are_kept_masked(keep: str) -> None:
    driver = Lockstep(3)
    x, w, bias = signed((5, 6), 30), signed((6, 4), 20), signed((4,), 30)
    values = {"x": deal(x, 3), "y": deal(w, 3)}
    for keeping in (keep, ""):
        driver.reset()
        found, *kept = driver.run(
            multiply_truncated, values["x"], values["y"], MATMUL, 1 << 10, deal(bias, 3), keeping
        )
        assert is_next_to(revealed(found) - bias, x @ w, 1 << 10)
        values |= dict(zip(keeping, kept, strict=True))
    assert driver.cost.rounds == (1 if keep == "xy" else 2)


def test_what_is_opened_is_masked_anew_in_every_run() -> None:
    driver = Lockstep(2, transcript=True)
    x, y = deal(torch.zeros(1000, dtype=torch.int64), 2), deal(torch.zeros(1000, dtype=torch.int64), 2)
    for _ in range(2):
        driver.run(multiply_truncated, x, y, MUL, 1 << 16)
    assert driver.seen is not None
    opened = [one.tensor for one in driver.seen[0] if one.sender == "opened"]
    assert len(opened) == 6
    for index, one in enumerate(opened):
        ones = (one.view(torch.uint8).unsqueeze(-1) >> torch.arange(8)).bitwise_and(1).double().mean()
        assert abs(float(ones) - 0.5) < 6 * 0.5 / math.sqrt(64_000)
        assert all(not (one == other).any() for other in opened[:index])


@pytest.mark.parametrize("divisor", [0, 1, -5, 1 << 62])
def test_divisors_out_of_range_are_refused(divisor: int) -> None:
    with pytest.raises(ValueError, match="from 2 to"):
        ScaledTriple(MUL, (2,), (2,), divisor=divisor)


def test_products_of_reals_use_what_was_dealt_ahead_for_products_and_for_themselves(workers: Any) -> None:
    holders, provider = (workers.alice, workers.bob), workers.charlie
    x, y = (
        t.fix_precision(base=2, precision_fractional=16).share(*holders, crypto_provider=provider)  # type: ignore[attr-defined]
        for t in (torch.tensor([1.5, -2.0]), torch.tensor([4.0, 0.25]))
    )
    group = node_of(x).group
    kinds = Triple(MUL, (2,), (2,)), ScaledTriple(MUL, (2,), (2,), divisor=1 << 16)
    for kind in kinds:
        group.provide(kind)
    for left in ([0, 1], [0, 0], [0, 0]):
        product = (x * y).get().float_precision()
        assert (product - torch.tensor([6.0, -0.5])).abs().max() < 1e-4
        assert [group.driver.provider.ready(kind) for kind in kinds] == left


@pytest.mark.parametrize("split", [False, True])
def test_what_was_dealt_ahead_is_used_once_whether_it_is_split_or_not(
    split: bool, workers: Any, programs: list[str]
) -> None:
    shape = 256, 256
    plain = torch.randn(2, *shape)
    x, y = (
        t.fix_precision(base=2, precision_fractional=16).share(  # type: ignore[attr-defined]
            workers.alice, workers.bob, crypto_provider=workers.charlie
        )
        for t in plain
    )
    group = node_of(x).group
    kinds = (
        Triple(MATMUL, shape, shape, split=split),
        ScaledTriple(MATMUL, shape, shape, divisor=1 << 16, split=True),
    )
    for kind in kinds:
        group.provide(kind)
    for left in ([0, 1], [0, 0], [0, 0]):
        programs.clear()
        product = (x @ y).get().float_precision()
        assert (product - plain[0] @ plain[1]).abs().max() < 1e-2
        assert len([name for name in programs if "mul" in name]) == 1, programs
        assert [group.driver.provider.ready(kind) for kind in kinds] == left


# -- fields in order -----------------------------------------------------------------------------------------------

MIXED = (Square((5,)), Triple(MATMUL, (100, 100), (100, 3)), Square((20_000,)), ScaledTriple(MUL, (4,), (4,)))


def source_of(rank: int, seeds: list[bytes], kinds: Sequence[Correlation]) -> Any:
    """A holder's source in run 1, to which the provider has sent what it deals."""
    dealing = Provider(2, seeds).begin(1, b"p")
    sent = deque(
        messages.Dealt(b"", 1, b"p", kind_digest(kind), tensors)
        for kind in kinds
        if (tensors := dealing.corrections(kind)[rank])
    )
    membership: Any = SimpleNamespace(
        rank=rank, holders=2, last_run=1, stream=BoundStream(seeds[rank]), receive=lambda *_: sent.popleft()
    )
    return execution.HolderSource(membership, b"p")


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (3, 2, 1, 0), (2, 0, 3, 1)])
@pytest.mark.parametrize("rank", [0, 1])
def test_fields_may_be_read_in_any_order(rank: int, order: tuple[int, ...]) -> None:
    """What the provider sends first is kept for who asks later, and streams do not mix."""
    seeds = [new_seed(), new_seed()]
    dealing = Provider(2, seeds).begin(1, b"p")
    expected = [dealing.make(kind).take(rank) for kind in MIXED]
    source = source_of(rank, seeds, MIXED)
    taken = [iter(source.take(kind)) for kind in MIXED]
    first = [next(fields) for fields in taken]
    rest = {index: tuple(taken[index]) for index in order}
    for index, fields in enumerate(expected):
        found = first[index], *rest[index]
        assert all(torch.equal(a, b) for a, b in zip(found, fields, strict=True))


def test_holders_open_all_before_the_provider_has_dealt(
    parties: Parties, client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, y = torch.randn(3, 4), torch.randn(4, 2)
    xs, ys = client.share(x), client.share(y)
    (xs @ ys).get()
    dealt, waited = execution.deal, []

    def late(*args: Any, **kwargs: Any) -> None:
        until = time.monotonic() + 20
        while time.monotonic() < until and not all(
            parties.membership(name).rounds == before + 2 for name, before in rounds.items()
        ):
            time.sleep(0.01)
        waited.append(time.monotonic() < until)
        dealt(*args, **kwargs)

    rounds = {name: parties.membership(name).rounds for name in ("alice", "bob")}
    monkeypatch.setattr(execution, "deal", late)
    product = (xs + 0) @ (ys + 0)
    assert ((product.get().float_precision()) - x @ y).abs().max() < 0.01
    assert waited == [True]


def test_a_provider_that_fails_is_named_by_holders_that_wait_for_it_last(
    client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = client.share(torch.randn(3))
    (x * x).get()

    def failing(*_args: Any, **_kwargs: Any) -> None:
        raise messages.PeerFailedError("The provider has no more paper.")

    monkeypatch.setattr(execution, "deal", failing)
    with pytest.raises(messages.PeerFailedError, match="no more paper"):
        ((x + 0) * (x + 1)).get()
    monkeypatch.undo()
    assert ((x + 0) * (x + 1)).get().shape == (3,)


def test_plain_products_and_squares_wait_for_their_last_field_only() -> None:
    """The masks are read, and the rest when all is open."""
    read: list[int] = []

    class Counting:
        def __init__(self, source: Any) -> None:
            self.source = source

        def take(self, kind: Correlation) -> Any:
            for number, field in enumerate(self.source.take(kind)):
                read.append(number)
                yield field

    dealing = Provider(2).begin()
    party: Any = beaver.Party(0, 2, Counting(dealing.source(0)))
    x = torch.arange(4)
    for program, masks in ((beaver.spdz_mul(party, x, x), 2), (beaver.square(party, x), 1)):
        read.clear()
        next(program)
        assert read == list(range(masks))
