"""What a client can choose that a party sees: nothing that depends on a secret."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import syft.mpc.documented.securenn  # noqa: F401  (its programs have names, too)
from mpc.lower import STREAM, deal, revealed
from mpc.network_parties import Parties, node_of
from syft.messaging.message import Ref
from syft.mpc.drivers import Lockstep, Shares
from syft.mpc.network import messages
from syft.mpc.network.programs import PROGRAMS
from syft.mpc.protocols import securenn
from syft.mpc.protocols.select import Pooling

COUNT = 1200


def outcomes(seen: list[Any]) -> list[torch.Tensor]:
    """What the provider makes of the pairs of residues it got: whether one of the 64 is zero."""
    bits = [
        one.tensor.long() for one in seen if one.tensor.dtype == torch.uint8 and int(one.tensor.max()) > 1
    ]
    sums = [(one + other) % securenn.PRIME for one, other in zip(bits[::2], bits[1::2], strict=True)]
    return [(d == 0).sum(-1) for d in sums]


def told_to_the_provider(x: int, r: tuple[int, int], beta: int) -> torch.Tensor:
    """The provider's outcomes of one comparison, asked for COUNT times, with each holder's r."""
    driver = Lockstep(2, transcript=True)
    bits = deal(securenn.decompose(torch.full((COUNT,), x)).long(), 2)
    bound = Shares(torch.full((COUNT,), one) for one in r)
    held = Shares([torch.full((COUNT,), beta)] * 2)
    driver.run(securenn.private_compare_shared, bits, bound, held)
    assert driver.seen is not None
    (found,) = outcomes(driver.seen[2])
    return found


def is_fair(share: float, count: int = COUNT) -> bool:
    return abs(share - 0.5) < 6.5 * 0.5 / count**0.5


def test_a_client_who_chooses_r_and_beta_cannot_search_with_a_curious_provider() -> None:
    secret, low, high = 1_234_567, 0, 1 << 32
    while low < high:  # the bisection that found the secret when beta was the client's
        middle = (low + high) // 2
        seen = told_to_the_provider(secret, (middle, middle), beta=0)
        assert is_fair(float(seen.double().mean())), (
            f"the provider can tell how the secret compares to {middle}"
        )
        low, high = (middle + 1, high) if bool(seen[0]) else (low, middle)
    assert low != secret or high != secret


def zeros_if(x: int, bounds: tuple[int, int], flip: int, one: torch.Tensor) -> torch.Tensor:
    """How many zeros algorithm 3 has if x is the secret and `one` the first holder's residues, which P_2 dealt."""
    bits = securenn.decompose(torch.full((COUNT,), x)).long()
    total = torch.zeros_like(bits)
    for j, share in enumerate((one, bits - one)):
        bound = securenn.decompose(torch.tensor([bounds[j] + flip])).long()
        w = share + j * bound - 2 * bound * share
        above = w.flip(-1).cumsum(-1).flip(-1) - w
        total += (j * bound - share) * (1 - 2 * flip) + j + above
    return (total % securenn.PRIME == 0).sum(-1)


def test_holders_that_were_given_different_bounds_send_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    """P_2, who dealt the residues, cannot check a guess of the secret by counting zeros: NOTE [No oracle]"""

    def as_dealt(_party: Any, bits: torch.Tensor) -> Any:
        return bits
        yield

    monkeypatch.setattr(securenn, "_bits_in_field", as_dealt)
    secret, guess, bounds = 1000, 77, (3, -4)
    bits = securenn.decompose(torch.full((COUNT,), secret))
    one = STREAM.residues(securenn.PRIME, bits.shape)
    driver = Lockstep(2, transcript=True)
    held = Shares(torch.full((COUNT,), bound) for bound in bounds)
    residues = Shares([one, (bits + (securenn.PRIME - one)) % securenn.PRIME])
    beta = Shares([torch.zeros(COUNT, dtype=torch.int64)] * 2)
    driver.run(securenn.private_compare_shared, residues, held, beta)
    assert driver.seen is not None
    (zeros,) = outcomes(driver.seen[2])
    fits = [
        float(
            ((zeros == zeros_if(x, bounds, 0, one.long())) | (zeros == zeros_if(x, bounds, 1, one.long())))
            .double()
            .mean()
        )
        for x in (secret, guess)
    ]
    assert abs(fits[0] - fits[1]) < 0.12  # all of them fit the secret if both draw the same


@pytest.mark.parametrize("beta", [0, 1])
def test_the_result_is_the_clients_beta_and_the_comparison(beta: int) -> None:
    x, r = STREAM.words(50), STREAM.words(50)
    bits = deal(securenn.decompose(x).long(), 2)
    held = [Shares([one, one]) for one in (r, torch.full_like(r, beta))]
    found = revealed(Lockstep(2).run(securenn.private_compare_shared, bits, *held))
    larger = [int(a % (1 << 64) > b % (1 << 64)) for a, b in zip(x.tolist(), r.tolist(), strict=True)]
    assert found.tolist() == [beta ^ one for one in larger]


# -- every program that the provider takes part in -----------------------------------------------------------------


def shared(value: int, *more: int) -> Shares:
    return deal(torch.full((COUNT, *more), value), 2)


def compared(value: int) -> tuple[Any, ...]:
    bits = deal(securenn.decompose(torch.full((COUNT,), value)).long(), 2)
    known = Shares([torch.full((COUNT,), 7)] * 2)
    return bits, known, known


def windows(value: int) -> Shares:
    return deal(torch.full((COUNT // 4, 1, 2, 2), value), 2)


ONLINE: dict[str, Callable[[int], tuple[Any, ...]]] = {
    "securenn.select_share": lambda v: (shared(1), shared(v), shared(-v)),
    "securenn.private_compare_shared": compared,
    "securenn.share_convert": lambda v: (shared(2 * v),),
    "securenn.msb": lambda v: (shared(v),),
    "securenn.relu_deriv": lambda v: (shared(v),),
    "securenn.relu": lambda v: (shared(v),),
    "securenn.division": lambda v: (shared(abs(v)), shared(3), 2),
    "securenn.signed_division": lambda v: (shared(v), shared(3), 2),
    "securenn.maxpool": lambda v: (
        deal(torch.stack([torch.full((COUNT,), v), torch.zeros(COUNT).long()]), 2),
    ),
    "securenn.maxpool_deriv": lambda v: (
        deal(torch.stack([torch.full((COUNT,), v), torch.zeros(COUNT).long()]), 2),
    ),
    "securenn.maxpool2d": lambda v: (windows(v), Pooling((2, 2), (2, 2))),
    "securenn.is_negative": lambda v: (shared(v),),
    "securenn.is_zero": lambda v: (shared(v),),
    "securenn.relu_with_bit": lambda v: (shared(v),),
}
#: The same programs on a flattened tensor, which compares one pair at a time.
FLAT = {"documented.maxpool", "documented.maxpool_deriv"}


def test_no_program_of_the_provider_is_left_out() -> None:
    online = {name for name, one in PROGRAMS.items() if getattr(one, "provider_online", False)}
    assert online == set(ONLINE) | FLAT


@pytest.mark.parametrize("name", ONLINE)
@pytest.mark.parametrize("secret", [12345, -12345])
def test_what_the_provider_puts_together_does_not_depend_on_the_secret(name: str, secret: int) -> None:
    driver = Lockstep(2, transcript=True)
    driver.run(PROGRAMS[name], *ONLINE[name](secret))
    assert driver.seen is not None
    said: dict[tuple[int, Any], list[torch.Tensor]] = {}
    for seen in driver.seen[2]:
        said.setdefault((seen.round, seen.sender), []).append(seen.tensor)
    both = [(one, said[number, 1]) for (number, sender), one in said.items() if sender == 0]
    for one, other in (pair for ours, theirs in both for pair in zip(ours, theirs, strict=True)):
        assert one.dtype == other.dtype
        if one.dtype == torch.int64:
            joined = (one + other).view(torch.uint8)
            low = joined if name != "securenn.maxpool_deriv" else joined.view(-1, 8)[:, 0]
            ones = (low.unsqueeze(-1) >> torch.arange(8)).bitwise_and(1).double()
            assert is_fair(float(ones.mean()), ones.numel())
        elif int(torch.maximum(one, other).max()) <= 1:
            joined = (one ^ other).double()
            assert is_fair(float(joined.mean()), joined.numel())
        else:
            zeros = ((one.long() + other) % securenn.PRIME == 0).sum(-1).double()
            assert float(zeros.max()) == 1 and is_fair(float(zeros.mean()), zeros.numel())


# -- commands that no function of ours sends -----------------------------------------------------------------------


@pytest.mark.network
def test_a_client_cannot_bring_the_mask_of_msb(parties: Parties, client: Any) -> None:
    """With x = 0 as what the provider should deal, the holders would open twice the secret among themselves."""
    x = client.share(torch.tensor([3, 4]))
    (x * x).get()
    driver = node_of(x).group.driver
    nothing = torch.zeros(2, dtype=torch.int64)
    material = nothing, torch.zeros((2, 64), dtype=torch.uint8), nothing
    driver._run += 1
    for rank, member in enumerate((*client.holders, client.provider)):
        is_holder = rank < len(client.holders)
        shape = messages.Shape((2,), torch.int64)
        share = Ref(node_of(x).pointers[rank].id_at_location) if is_holder else shape
        returned = (77,) if is_holder else ()
        member._recv_msg(
            messages.RunProgram(
                driver._group, driver._run, "securenn.msb", (share,), {"material": material}, returned
            )
        )
        member.flush()
    for member in (*client.holders, client.provider):
        with pytest.raises((TypeError, messages.PeerFailedError), match=r"material|failed: TypeError"):
            member.sync()
    assert all(parties.membership(name).bytes_sent == 8 * 2 * 2 - 16 for name in ("alice", "bob"))
