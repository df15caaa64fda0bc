"""SecureNN: comparison for two holders with the provider online, by the paper.

Wagh, Gupta, Chandran, "SecureNN: 3-party secure computation for neural network training" (PoPETs 2019(3));
its algorithms at each function, by name and (as we know that version; others may count differently) by
number; its letters in the formulas. P_0 and P_1 hold shares, P_2 is the provider. All three run these
generators: `party.is_provider` tells whose turn it is, and a party with nothing to say in a round yields an
empty one. Shares live in Z_L, L = 2^64, in the odd ring Z_(L-1) (unsigned residues in int64 words), and
bits in Z_p, p = 67 (uint8). Every mask, permutation and blinding factor is drawn per element.

Exact for -2^62 <= x < 2^62: the paper's relu_deriv doubles its input so that share_convert never meets L - 1.
What P_2 sees: the input plus a mask (share_convert), permuted blinded residues under fresh shares and one
bit under a one-time pad (private_compare), the place of a maximum plus a mask (maxpool_deriv). P_0 and P_1
see fresh shares, and operands minus masks.

NOTE [Fresh residues]
P_2 itself deals the shares of x that private_compare starts from. Were the holders to send s_i c_i as
their algebra leaves it, P_2 could divide one holder's residue by the other's: s_i cancels, and what is left
tells whether a guess of r, hence of the secret, is right. So they add shares of zero from their common
randomness first, and P_2 sees a uniform pair with the sum d_i, and nothing besides.

NOTE [No oracle]
In private_compare_shared a client chooses r and beta. Were beta the bit under which P_2 learns the outcome, a client
and a curious P_2 would find the secret by bisection. So P_0 and P_1 draw a bit gamma of their own, P_2 learns
gamma ^ [x > r], and they turn gamma into beta on their shares. Were r not the same at both, the number of zeros that P_2
sees would depend on the secret. So all that they draw for the comparison is bound to r as each of them has it: where
they differ, P_2 sees uniform residues. Everything else that is compared (share_convert, msb) they draw or open
themselves; what P_2 deals for msb is not an argument of the program that clients can ask for.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch

from syft.mpc import kernels, ring
from syft.mpc.party import Expected, Party, Program, together, with_provider
from syft.mpc.programs import party_program
from syft.mpc.protocols.beaver import spdz_mul
from syft.mpc.protocols.registry import ComparisonProtocol, register_comparison
from syft.mpc.protocols.select import LOWEST, Pooling
from syft.mpc.randomness import Stream

PRIME = 67  # the smallest prime above the 64 + 2 that the sums of algorithm 3 reach
HOLDERS = 2
P2 = 2

Kind = Literal["ring", "odd", "bits"]
Handed = tuple[Kind, tuple[int, ...], torch.Tensor | None]


# -- Z_(L-1) and Z_p -------------------------------------------------------------------------------------


def _below(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """[a < b] of words read as unsigned."""
    return ((a ^ ring.MIN) < (b ^ ring.MIN)).long()


def wrap(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Whether a + b, unsigned, reaches 2^64: the paper's wrap."""
    return _below(a + b, a)


def odd_add(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """a + b in Z_(L-1): 2^64 is 1 there, and L - 1 is 0."""
    total = (a + b).add_(wrap(a, b))
    return total.masked_fill_(total == -1, 0)


def odd_sub(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """a - b in Z_(L-1)."""
    return (a - b).sub_(_below(a, b))


def _odd_words(stream: Stream, shape: Sequence[int]) -> torch.Tensor:
    """Uniform over Z_(L-1): the one word outside it is redrawn."""
    words = stream.words(tuple(shape)).view(-1)
    outside = (words == -1).nonzero().view(-1)
    while outside.numel():
        words[outside] = stream.words(outside.numel())
        outside = (words == -1).nonzero().view(-1)
    return words.view(tuple(shape))


def decompose(x: torch.Tensor) -> torch.Tensor:
    """The 64 bits of each word, lowest first, in a new last dimension."""
    return ((x.unsqueeze(-1) >> torch.arange(ring.BITS)) & 1).to(torch.uint8)


# -- messages --------------------------------------------------------------------------------------------


def _draw(kind: Kind, stream: Stream, shape: Sequence[int]) -> torch.Tensor:
    if kind == "bits":
        return stream.residues(PRIME, shape)
    return _odd_words(stream, shape) if kind == "odd" else stream.words(tuple(shape))


def _less(kind: Kind, value: torch.Tensor, share: torch.Tensor) -> torch.Tensor:
    if kind == "bits":
        return (value + (PRIME - share)) % PRIME
    return odd_sub(value, share) if kind == "odd" else value - share


def _hand_out(party: Party, *values: Handed) -> Program[list[torch.Tensor]]:
    """P_2 shares values.

    P_0 reads its part from the seed it has in common with P_2, P_1 is sent the difference.
    """
    if party.is_provider:
        sent = []
        for kind, shape, value in values:
            if value is None:
                raise ValueError("The provider hands out values, got none.")
            sent.append(_less(kind, value, _draw(kind, party.private[0], shape)))
        yield party.exchange({1: sent})
        return [torch.empty(shape, device="meta") for _, shape, _ in values]
    if party.first:
        # NB: drawn before the round, as P_2 does, so that the two streams stay in step under `together`.
        drawn = [_draw(kind, party.private[P2], shape) for kind, shape, _ in values]
        yield party.exchange()
        return drawn
    expected = [
        Expected(tuple(shape), torch.uint8 if kind == "bits" else torch.int64) for kind, shape, _ in values
    ]
    received = yield party.exchange(None, {P2: expected})
    return list(received[P2])


def _to_provider(party: Party, share: torch.Tensor) -> Program[tuple[torch.Tensor, torch.Tensor] | None]:
    """Both holders send a tensor to P_2, who gets the two."""
    if not party.is_provider:
        yield party.exchange({P2: [share]})
        return None
    expected = [Expected(tuple(share.shape), share.dtype)]
    received = yield party.exchange(None, {0: expected, 1: expected})
    return received[0][0], received[1][0]


def _common(party: Party) -> Stream:
    """The randomness P_0 and P_1 have in common."""
    stream: Stream = party.private[1 - party.rank]
    return stream


def _multiply(party: Party, x: torch.Tensor, y: torch.Tensor) -> Program[torch.Tensor]:
    """Algorithm 1 (MatMul), for one element each: Beaver, with P_2's triples."""
    if party.is_provider:
        yield party.exchange()
        return torch.empty(torch.broadcast_shapes(x.shape, y.shape), device="meta")
    return (yield from spdz_mul(party, x, y))


def _refresh(party: Party, share: torch.Tensor) -> torch.Tensor:
    """Add a share of zero from the common randomness (the u_j of the algorithms)."""
    if party.is_provider:
        return share
    u = _common(party).words(tuple(share.shape))
    return share + u if party.first else share - u


# -- the algorithms --------------------------------------------------------------------------------------


@party_program
@with_provider
def select_share(
    party: Party, alpha: torch.Tensor, x: torch.Tensor, y: torch.Tensor
) -> Program[torch.Tensor]:
    """Algorithm 2 (SelectShare): x where the shared bit alpha is 0, y where it is 1."""
    chosen = yield from _multiply(party, alpha, y - x)
    return _refresh(party, x + chosen)


@with_provider
def private_compare(
    party: Party, x_bits: torch.Tensor, r: torch.Tensor, beta: torch.Tensor, common: Stream | None = None
) -> Program[torch.Tensor | None]:
    """Algorithm 3 (PrivateCompare): P_2 learns beta ^ [x > r].

    x is shared bit by bit in Z_p, r and beta are known to P_0 and P_1. beta is what hides the outcome: P_0 and P_1 draw
    it. `common` is what they have in common, if not the stream of the run: NOTE [No oracle].
    """
    shape = tuple(x_bits.shape)
    if party.is_provider:
        pair = yield from _to_provider(party, torch.empty(shape, dtype=torch.uint8, device="meta"))
        if pair is None:
            return None
        d = (pair[0].to(torch.int16) + pair[1]) % PRIME
        return (d == 0).any(-1).long()
    j = party.rank
    common = _common(party) if common is None else common
    s = common.residues(PRIME - 1, shape).to(torch.int16) + 1
    u = common.residues(PRIME - 1, shape).to(torch.int16) + 1
    order = common.permutation(ring.BITS, rows=x_bits.numel() // ring.BITS).view(shape)
    zero = common.residues(PRIME, shape).to(torch.int16)  # NOTE [Fresh residues]
    flip = beta.unsqueeze(-1).to(torch.int16)  # beta = 1: the other side, with t = r + 1 for r
    bound = decompose(r + beta).to(torch.int16)  # r_i, or t_i
    x = x_bits.to(torch.int16)
    w = x + j * bound - 2 * bound * x
    above = w.flip(-1).cumsum(-1, dtype=torch.int16).flip(-1) - w  # the sum over k > i
    # c_i = j r_i - x_i + j + above, or -j t_i + x_i + j + above
    c = (j * bound - x) * (1 - 2 * flip) + j + above
    # t does not exist for r = 2^64 - 1, above which there is nothing: c is 0 at one bit, 1 elsewhere
    full = ((r == -1) & (beta == 1)).unsqueeze(-1)
    if bool(full.any()):
        never = -u if j else u + 1
        never[..., 0] = -u[..., 0] if j else u[..., 0]
        c = torch.where(full, never, c)
    d = (c % PRIME * s + (zero if party.first else PRIME - zero)) % PRIME
    yield from _to_provider(party, d.to(torch.uint8).gather(-1, order))
    return None


def _bits_in_field(party: Party, bits: torch.Tensor) -> Program[torch.Tensor]:
    """Bits shared in Z_L as bits shared in Z_p.

    The lowest bits of the shares XOR to b. P_2 gets c = b ^ m under a pad m of the holders' and hands it out
    in Z_p, where b = m + (1 - 2m) c. Ours: the paper's bits come from P_2 to begin with.
    """
    shape = tuple(bits.shape)
    if party.is_provider:
        pair = yield from _to_provider(party, torch.empty(shape, dtype=torch.uint8, device="meta"))
        yield from _hand_out(party, ("bits", shape, pair[0] ^ pair[1] if pair else None))
        return bits
    common = _common(party)
    m, pad = common.bits(shape).to(torch.uint8), common.bits(shape).to(torch.uint8)
    lowest = (bits & 1).to(torch.uint8).bitwise_xor_(pad)
    yield from _to_provider(party, lowest ^ m if party.first else lowest)
    (c,) = yield from _hand_out(party, ("bits", shape, None))
    return torch.where(m == 1, (PRIME + int(party.first) - c) % PRIME, c)


@party_program
@with_provider
def private_compare_shared(
    party: Party, x_bits: torch.Tensor, r: torch.Tensor, beta: torch.Tensor
) -> Program[torch.Tensor]:
    """Algorithm 3 between secrets: bits shared in Z_L in, beta ^ [x > r] shared in Z_L out. NOTE [No oracle]"""
    in_field = yield from _bits_in_field(party, x_bits)
    shape = tuple(x_bits.shape[:-1])
    if party.is_provider:
        seen = yield from private_compare(party, in_field, r, beta)
        (share,) = yield from _hand_out(party, ("ring", shape, seen))
        return share
    common = _common(party).bound_to(r)
    gamma = common.bits(shape)
    yield from private_compare(party, in_field, r, gamma, common)
    (share,) = yield from _hand_out(party, ("ring", shape, None))
    flip = (gamma ^ beta) & 1
    return torch.where(flip == 1, int(party.first) - share, share)


@party_program
@with_provider
def share_convert(party: Party, a: torch.Tensor) -> Program[torch.Tensor]:
    """Algorithm 4 (ShareConvert): shares in Z_L of a != L - 1 into shares in Z_(L-1)."""
    shape = tuple(a.shape)
    if party.is_provider:
        pair = yield from _to_provider(party, torch.empty(shape, dtype=torch.int64, device="meta"))
        if pair is None:
            return a
        x, delta = pair[0] + pair[1], wrap(*pair)
        bits: Handed = ("bits", (*shape, ring.BITS), decompose(x))
        yield from _hand_out(party, bits, ("odd", shape, delta))
        eta_prime = yield from private_compare(party, torch.empty((*shape, ring.BITS), device="meta"), a, a)
        yield from _hand_out(party, ("odd", shape, eta_prime))
        return a
    common, j = _common(party), party.rank
    eta_2 = common.bits(shape)
    r = common.words(shape)
    r.masked_fill_(r == 0, 1)  # NB: r - 1 has to exist; one value in 2^64 counts double
    r_0 = common.words(shape)
    r_1 = r - r_0
    alpha = wrap(r_0, r_1)
    r_j = r_1 if j else r_0
    beta = wrap(a, r_j)
    yield from _to_provider(party, a + r_j)
    x_bits, delta = yield from _hand_out(party, ("bits", (*shape, ring.BITS), None), ("odd", shape, None))
    yield from private_compare(party, x_bits, r - 1, eta_2)
    (eta_prime,) = yield from _hand_out(party, ("odd", shape, None))
    # eta = eta' ^ eta'': 1 - eta' where eta'' = 1
    one = eta_2 if party.first else torch.zeros_like(eta_2)
    negated = odd_sub(one, eta_prime)
    eta = torch.where(eta_2 == 1, negated, eta_prime)
    theta = odd_add(odd_add(beta, delta), eta)
    if party.first:
        theta = odd_sub(theta, alpha + 1)
    u = _odd_words(common, shape)
    # NB: a share of Z_L may be the word L - 1, which is 0 in Z_(L-1).
    y = odd_sub(a.masked_fill(a == -1, 0), theta)
    return odd_sub(y, u) if j else odd_add(y, u)


Material = list[torch.Tensor]


def _msb_material(party: Party, shape: tuple[int, ...]) -> Program[Material]:
    """What P_2 deals for algorithm 5: a random x in Z_(L-1), its bits in Z_p, and its lowest bit in Z_L."""
    x = _odd_words(Stream(), shape) if party.is_provider else None
    bits = decompose(x) if x is not None else None
    lowest = x & 1 if x is not None else None
    values: list[Handed] = [("odd", shape, x), ("bits", (*shape, ring.BITS), bits), ("ring", shape, lowest)]
    return (yield from _hand_out(party, *values))


@party_program
@with_provider
def msb(party: Party, a: torch.Tensor) -> Program[torch.Tensor]:
    """Algorithm 5 (ComputeMSB): the highest bit of a value shared in Z_(L-1), as a share in Z_L."""
    material = yield from _msb_material(party, tuple(a.shape))
    return (yield from _msb_with(party, a, material))


def _msb_with(party: Party, a: torch.Tensor, material: Material) -> Program[torch.Tensor]:
    """msb(a) is the lowest bit of 2a, for L - 1 is odd; that is r_0 ^ x_0 ^ [x > r] with r = 2a + x open.

    NB: x masks a. It comes from P_2, never from who asks for a program: NOTE [No oracle].
    """
    shape = tuple(a.shape)
    x, x_bits, x_0 = material
    if party.is_provider:
        yield party.exchange()
        beta_prime = yield from private_compare(party, torch.empty((*shape, ring.BITS), device="meta"), a, a)
        yield from _hand_out(party, ("ring", shape, beta_prime))
        return (yield from _multiply(party, a, a))
    j, peer = party.rank, 1 - party.rank
    mine = odd_add(odd_add(a, a), x)
    received = yield party.exchange({peer: [mine]}, {peer: [Expected(shape)]})
    r = odd_add(mine, received[peer][0])
    beta = _common(party).bits(shape)
    yield from private_compare(party, x_bits, r, beta)
    (beta_prime,) = yield from _hand_out(party, ("ring", shape, None))
    r_0 = r & 1
    gamma = beta_prime + j * beta - 2 * beta * beta_prime
    delta = x_0 + j * r_0 - 2 * r_0 * x_0
    theta = yield from _multiply(party, gamma, delta)
    return _refresh(party, gamma + delta - 2 * theta)


@party_program
@with_provider
def relu_deriv(party: Party, a: torch.Tensor) -> Program[torch.Tensor]:
    """Algorithm 6 (DReLU): shares of [a >= 0]. Eight rounds."""
    doubled = a if party.is_provider else 2 * a  # even, hence never L - 1
    y, material = yield from together(share_convert(party, doubled), _msb_material(party, tuple(a.shape)))
    negative = yield from _msb_with(party, y, material)
    return 1 - negative if party.first else -negative


@party_program
@with_provider
def relu(party: Party, a: torch.Tensor) -> Program[torch.Tensor]:
    """Algorithm 7 (ReLU): a times [a >= 0]."""
    positive = yield from relu_deriv(party, a)
    product = yield from _multiply(party, positive, a)
    return _refresh(party, product)


@party_program
@with_provider
def division(party: Party, x: torch.Tensor, y: torch.Tensor, bits: int = 31) -> Program[torch.Tensor]:
    """Algorithm 8 (Division): the quotient of 0 <= x < 2^62 by 0 < y < 2^(62 - bits), x < 2^bits y, digit by digit."""
    quotient = torch.zeros_like(x)
    rest = x
    for i in range(bits - 1, -1, -1):
        scaled = y * (1 << i)
        fits = yield from relu_deriv(party, rest - scaled)
        taken = yield from _multiply(party, fits, scaled)
        rest = rest - taken
        quotient = quotient + fits * (1 << i)
    return _refresh(party, quotient)


@party_program
@with_provider
def signed_division(party: Party, x: torch.Tensor, y: torch.Tensor, bits: int = 31) -> Program[torch.Tensor]:
    """Algorithm 8 of the sizes, then the sign: x / y rounded towards zero. Of y = 0 the size is 2^bits - 1."""
    both = torch.stack(torch.broadcast_tensors(x, y))
    positive = yield from relu_deriv(party, both)
    sizes = yield from select_share(party, positive, -both, both)
    s, t = positive
    quotient, equal = yield from together(division(party, sizes[0], sizes[1], bits), _multiply(party, s, t))
    differ = s + t - 2 * equal
    return (yield from select_share(party, differ, quotient, -quotient))


@party_program
@with_provider
def maxpool(party: Party, x: torch.Tensor) -> Program[tuple[torch.Tensor, torch.Tensor]]:
    """Algorithm 9 (Maxpool): the largest along dimension 0 and its index, the first of equals; |x| < 2^61."""
    best, index = _refresh(party, x[0]), torch.zeros_like(x[0])
    for i in range(1, x.shape[0]):
        stays = yield from relu_deriv(party, best - x[i])
        place = torch.full_like(index, i if party.first else 0)
        best, index = yield from together(
            select_share(party, stays, x[i], best), select_share(party, stays, place, index)
        )
    return best, index


@party_program
@with_provider
def maxpool_deriv(party: Party, x: torch.Tensor) -> Program[torch.Tensor]:
    """Algorithm 10 (DMP): the one-hot rows of the largest along dimension 0."""
    _, index = yield from maxpool(party, x)
    n, shape = x.shape[0], tuple(index.shape)
    if party.is_provider:
        pair = yield from _to_provider(party, torch.empty(shape, dtype=torch.int64, device="meta"))
        if pair is None:
            return x
        k = (pair[0] + pair[1]) % n
        rows = (k.unsqueeze(0) == torch.arange(n).view(n, *[1] * k.ndim)).long()
        yield from _hand_out(party, ("ring", (n, *shape), rows))
        return x
    # r mod n hides the index; where n does not divide L, r + index stays below 2^63: distance n / 2^62.
    common = _common(party)
    r = common.words(shape) if n & (n - 1) == 0 else common.below((1 << 62) // n * n, shape)
    g = common.words(shape)
    yield from _to_provider(party, index + (g if party.first else r - g))
    (rows,) = yield from _hand_out(party, ("ring", (n, *shape), None))
    place = (torch.arange(n).view(n, *[1] * r.ndim) + r % n) % n
    return _refresh(party, rows.gather(0, place))


@party_program
@with_provider
def maxpool2d(party: Party, x: torch.Tensor, pooling: Pooling) -> Program[torch.Tensor]:
    """Max-pooling of (N, C, H, W)."""
    fill = LOWEST // 2 if party.first else 0
    if party.is_provider:
        windows = torch.empty_like(
            kernels.windows(torch.zeros(x.shape), *pooling.geometry, fill=0, ceil_mode=pooling.ceil_mode),
            device="meta",
        )
    else:
        windows = kernels.windows(x, *pooling.geometry, fill=fill, ceil_mode=pooling.ceil_mode)
    best, _ = yield from maxpool(party, windows.movedim(-1, 0))
    return best


# -- as a comparison protocol ------------------------------------------------------------------------------


@party_program
@with_provider
def is_negative(party: Party, x: torch.Tensor) -> Program[torch.Tensor]:
    positive = yield from relu_deriv(party, x)
    return 1 - positive if party.first else -positive


@party_program
@with_provider
def is_zero(party: Party, x: torch.Tensor) -> Program[torch.Tensor]:
    """[x >= 0] + [-x >= 0] - 1."""
    one, other = yield from together(relu_deriv(party, x), relu_deriv(party, -x))
    share: torch.Tensor = one + other
    return share - 1 if party.first else share


@party_program
@with_provider
def relu_with_bit(party: Party, x: torch.Tensor) -> Program[tuple[torch.Tensor, torch.Tensor]]:
    bit = yield from relu_deriv(party, x)
    zero = torch.zeros_like(x)
    return (yield from select_share(party, bit, zero, x)), bit


register_comparison(
    ComparisonProtocol(
        "snn",
        is_negative,
        is_zero,
        relu,
        relu_with_bit,
        HOLDERS,
        None,
        -(1 << 62) + 1,
        (1 << 62) - 1,
    )
)
