"""Client-level privacy in federated training: what a trained model tells about any one client's whole data set.

One duty: the objects for the Trainer's `privacy` argument. Each clips every client's update as a whole, sees to it
that the sum has noise, and counts what the rounds cost. Imports `client_updates`, `noise`, `federated`,
`mpc.randomness`.

    ClientPrivacy        the server adds the noise (McMahan et al. 2018): it is trusted to, and to show nobody the updates
    DistributedPrivacy   every client adds a part of the noise before its update is masked (Kairouz, Liu and Steinke
                         2021): the server sees only a sum that has its noise already

NOTE [Neighbours]
Two runs are neighbours when one client's updates are all zero in one of them. Whether a client takes part, and how
many do, is public; so a sum may be divided by the number of its clients. Only with `sampling_rate` below 1 is taking
part part of the secret: then the random choice, and the number of those chosen, must not be shown, and sums are
divided by `denominator`. Clients count alike: weighted by numbers of examples, one client could move the sum by more.

The accountant's sampling theorem is about one client more or less. A client that is not there adds nothing to a sum and
nothing to a count (NOTE [Counts]); nor does one whose update is zero. So both kinds of neighbours are the same pair of
distributions, and all parts of a round are paid for by one event, on one sample.

NOTE [Counts]
Adaptive clipping looks at the sum over clients of f(update): f is 1/2 for an update within the clipping bound, -1/2
for a longer one, and 0 for one that is zero. So f is 0 in the run where the client's update is zero, or the client not
there, and at most 1/2 from it in the other: the sensitivity of the count is 1/2. Were a zero counted as unclipped, a
client could move the count by 1. Together with the updates' sum, of sensitivity C and noise z_u C, the round is one
Gaussian of noise multiplier z with z^-2 = z_u^-2 + (2 s)^-2 (Andrew et al. 2021, theorem 1).

NOTE [Rounding is paid for]
Sums of clipped updates are exact, in double precision and in words of a secure aggregation, which tells its grid. To
the noise they are added as multiples of u = std / 2^32. Dividing n updates of length C by u, and rounding d quotients,
brings two sums apart by n C / 2^52 + sqrt(d) u at most. Updates are clipped to that much less than C; for a count, it
is taken out of the noise.

NOTE [Answers that cannot be used]
An update that is not finite, and all else that a client's training of its data may end in, counts as an update of zeros,
and is in no report. Were it left out of the sum, the number that the sum is divided by would tell.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from syft.dp.accounting import Accountant, Budget, Gaussian, Kind, noise_multiplier_for
from syft.dp.client_updates import (
    LARGEST_CLIP,
    LEAST_CLIP,
    Counted,
    check_clients,
    check_clip_norm,
    check_not_too_coarse,
    check_positive,
    clipped_to_grid,
    is_number,
    is_whole,
)
from syft.dp.noise import LARGEST_VARIANCE, ROUNDED_STEPS, discrete_gaussian, rounded_gaussian
from syft.federated.records import PrivateContribution
from syft.federated.secure_aggregation.encoding import LARGEST_FRACTION
from syft.federated.secure_aggregation.masked_sum import MaskedSum
from syft.mpc.randomness import Stream

_MANY_VALUES = 1 << 40  # more than any model has, for a round whose length is not known
_FINE = 32  # bits between a clipping bound and the grid of clipped updates, at most
_SUM_BITS = 52  # of a sum in double precision
_LARGEST_SUM = 2.0**60  # in steps of the noise's grid: with the noise it stays inside 63 bits


# -- noise at the server ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class AdaptiveClipping:
    """Let the clipping bound follow a quantile of the updates' norms (Andrew et al. 2021, algorithm 1).

    quantile       the fraction of updates that is to stay unclipped; one that is zero counts as half of each
    learning_rate  how fast the bound moves: by exp(learning_rate) at most in a round
    count_noise    standard deviation of the noise on the number of unclipped updates; a twentieth of the expected
                   number of clients if not given
    """

    quantile: float = 0.5
    learning_rate: float = 0.2
    count_noise: float | None = None

    def __post_init__(self) -> None:
        if not (is_number(self.quantile) and 0 <= self.quantile <= 1):
            raise ValueError(f"quantile is between 0 and 1, got {self.quantile!r}.")
        check_positive(learning_rate=self.learning_rate)
        if self.count_noise is not None:
            check_positive(count_noise=self.count_noise)


class ClientPrivacy(Counted):
    """Central noise: the server clips, sums, and adds Gaussian noise of `noise_multiplier` clipping bounds.

    clip_norm         the L2 norm that an update is clipped to (at first, with `adaptive`)
    noise_multiplier  the noise of a round, as the accountant is told; `for_budget` finds it for an epsilon
    clients           how many there are in all, known to everybody
    sampling_rate     the probability with which each takes part in a round, on its own, drawn by `sample`
    adaptive          see `AdaptiveClipping`; its noisy counts are paid for out of the same `noise_multiplier`
    budget            rounds that would exceed it are refused before anything is released
    accountant        "rdp" (the default) or "pld"; a budget has one of its own
    """

    def __init__(
        self,
        clip_norm: float,
        noise_multiplier: float,
        *,
        clients: int,
        sampling_rate: float = 1.0,
        adaptive: AdaptiveClipping | None = None,
        budget: Budget | None = None,
        accountant: Kind | None = None,
        stream: Stream | None = None,
    ) -> None:
        super().__init__(budget, accountant, stream)
        check_clip_norm(clip_norm)
        check_clients(clients)
        self.event = Gaussian(noise_multiplier, sampling_rate)  # refuses what is neither
        # All clients together, in steps of the noise's grid.
        if (least := clients * ROUNDED_STEPS / _LARGEST_SUM) > noise_multiplier:
            raise ValueError(
                f"ClientPrivacy was given noise_multiplier={noise_multiplier:g}: beside so little noise the sum of "
                f"{clients} clients does not fit into 64 bits, and it would hide nobody. It is at least {least:.2g} "
                "here, and about 1 where it protects; leave privacy out for none."
            )
        self.clip_norm, self.clients, self.adaptive = float(clip_norm), clients, adaptive
        self.count_noise = 0.0
        self.update_multiplier = float(noise_multiplier)
        """The noise on updates, in clipping bounds: more than `noise_multiplier` when counts take their part."""
        if not isinstance(adaptive, AdaptiveClipping | None):
            raise TypeError(
                f"ClientPrivacy was given adaptive={adaptive!r}: it is AdaptiveClipping(), or None."
            )
        if adaptive is not None:
            self.count_noise = adaptive.count_noise or self.denominator / 20
            # Andrew et al. 2021, theorem 1; see NOTE [Counts].
            moved = 0.5 + self.count_noise / ROUNDED_STEPS + clients * 2.0**-53  # NOTE [Rounding is paid for]
            left = noise_multiplier**-2 - (moved / self.count_noise) ** 2
            if left <= 0:
                raise ValueError(
                    f"Noise of {self.count_noise:g} on the counts costs more than the whole noise_multiplier of "
                    f"{noise_multiplier:g} allows: it has to be above {noise_multiplier / 2:g}. Set count_noise of "
                    "AdaptiveClipping, or train with more clients."
                )
            self.update_multiplier = left**-0.5
        self._counts: list[float] = []
        """Of each update that was clipped: see NOTE [Counts]."""
        self._counted = (0.0, 0)
        self._sampled = self._released = False

    @classmethod
    def for_budget(
        cls,
        clip_norm: float,
        *,
        epsilon: float,
        delta: float,
        rounds: int,
        clients: int,
        sampling_rate: float = 1.0,
        adaptive: AdaptiveClipping | None = None,
        accountant: Kind = "rdp",
    ) -> ClientPrivacy:
        """With the least noise for which `rounds` rounds cost at most `epsilon`; later rounds are refused."""
        multiplier = noise_multiplier_for(
            epsilon, delta, sampling_rate=sampling_rate, steps=rounds, kind=accountant
        )
        return cls(
            clip_norm,
            multiplier,
            clients=clients,
            sampling_rate=sampling_rate,
            adaptive=adaptive,
            budget=Budget(
                epsilon, delta, Accountant(accountant), planned=(Gaussian(multiplier, sampling_rate), rounds)
            ),
        )

    @property
    def noise_multiplier(self) -> float:
        return self.event.noise_multiplier

    @property
    def sampling_rate(self) -> float:
        return self.event.sampling_rate

    @property
    def denominator(self) -> float:
        """What a sum is divided by for a mean: the expected number of clients, whoever came."""
        return self.sampling_rate * self.clients

    def sample(self, clients: Sequence[str]) -> list[str]:
        """Who takes part in the next round: each with probability `sampling_rate`, maybe nobody. Tell no one."""
        if len(clients) > self.clients:
            raise ValueError(
                f"{len(clients)} clients were given, and epsilon is computed for {self.clients}."
            )
        self._sampled = True
        if self.sampling_rate == 1.0:
            return list(clients)
        words = self._stream.words(len(clients)) & (2**63 - 1)
        taken = words <= int(self.sampling_rate * 2**63) - 1
        return [name for name, is_in in zip(clients, taken.tolist(), strict=True) if is_in]

    def clip(self, update: Tensor) -> Tensor:
        """A client's update with an L2 norm of at most `clip_norm`. NOTE [Sums without rounding] tells how."""
        return self._clipped(update, self._finest_step())

    def clip_to_grid(self, update: Tensor, step: float) -> Tensor:
        """As `clip`, in multiples of `step`, a power of two: what an aggregation rounds to."""
        values = update.numel()
        cure = (
            "let the aggregation be finer (a smaller clip and max_weight, more fraction_bits), raise clip_norm, or train "
            "fewer parameters"
        )
        check_not_too_coarse(values, self.clip_norm, step, cure)
        return self._clipped(update, max(step, self._finest_step()))

    def contribution(self, values: int, step: float, dtype: torch.dtype) -> PrivateContribution:
        """What clients that keep their updates clip them to. !! ValueError"""
        if self.adaptive is not None:
            raise ValueError(
                "AdaptiveClipping counts updates that are here, and over a network masked updates stay at their workers. "
                "Give ClientPrivacy a fixed clip_norm, or use PlainSum()."
            )
        cure = "let the aggregation be finer (a smaller clip, max_weight=1.0), raise clip_norm, or train fewer parameters"
        check_not_too_coarse(values, self.clip_norm, step, cure)
        self._dtype = dtype
        bound = self.clip_norm * (1 - self._rounding(values))
        return PrivateContribution(bound, max(step, self._finest_step()))

    def _finest_step(self) -> float:
        bits = min(_FINE, _SUM_BITS - self.clients.bit_length())
        return math.ldexp(1.0, math.frexp(self.clip_norm)[1] - bits)

    def _clipped(self, update: Tensor, step: float) -> Tensor:
        self._dtype = update.dtype
        if self.adaptive is not None:
            norm = float(torch.linalg.vector_norm(update.detach().double()))
            # NB: NaN compares as False, and counts as clipped.
            self._counts.append(0.0 if norm == 0.0 else 0.5 if norm <= self.clip_norm else -0.5)
        return clipped_to_grid(update, self.clip_norm * (1 - self._rounding(update.numel())), step)

    def _rounding(self, values: int) -> float:
        """How much of the bound NOTE [Rounding is paid for] takes. !! ValueError where it is most of it"""
        part = math.sqrt(values) * self.update_multiplier / ROUNDED_STEPS + self.clients * 2.0**-52
        if part > 0.5:
            raise ValueError(
                f"{values} numbers of {self.clients} clients, with a noise of {self.update_multiplier:g} bounds, are "
                "more than can be summed without rounding: ask for less noise, or train fewer parameters."
            )
        return part

    def noise(self, total: Tensor, n_clients: int) -> Tensor:
        """The sum of this round's clipped updates, with its noise. Charged first; once a round."""
        if self._released:
            raise ValueError(
                "noise() was called twice in a round. Each round's sum is released once: call round_done()."
            )
        if self.sampling_rate < 1.0 and not self._sampled:
            raise ValueError(
                f"epsilon is computed for clients that are each drawn with probability {self.sampling_rate:g}, and "
                "this round's were not: draw them with sample(), or make ClientPrivacy with sampling_rate=1.0, which "
                "holds for any choice."
            )
        if n_clients > self.clients:
            raise ValueError(
                f"A sum over {n_clients} clients was given, and ClientPrivacy was made for {self.clients} in all. "
                "Make it with the number of all clients that may take part."
            )
        self._charge(self.event)
        self._released = True
        # NB: the last ones. Of a round that failed after its updates were clipped, the first ones may still be here, and
        # no client may be counted twice.
        mine = self._counts[-n_clients:] if n_clients else []
        self._counted = sum(mine), len(mine)
        return _noisy(total, self.update_multiplier * self.clip_norm, self._stream).to(self._dtype)

    def round_done(self) -> None:
        """End the round: the clipping bound follows. Without a sum from `noise` before it, a round that an earlier run
        released is counted: for charges that were not kept (see `take_over`)."""
        if not self._released:
            self._charge(self.event)
        elif self.adaptive is not None:
            count, seen = self._counted
            noisy = float(_noisy(torch.tensor([count], dtype=torch.float64), self.count_noise, self._stream))
            # How many took part is public, unless they were drawn in secret (NOTE [Neighbours]).
            fraction = noisy / (self.denominator if self.sampling_rate < 1.0 else max(seen, 1)) + 0.5
            move = self.adaptive.learning_rate * (fraction - self.adaptive.quantile)
            # NB: noise on a small count can be anything; one round moves the bound by its learning rate at most.
            move = min(max(move, -self.adaptive.learning_rate), self.adaptive.learning_rate)
            self._set_moving_clip(self.clip_norm * math.exp(-move))
        self.rounds += 1
        self._begin()

    def round_failed(self) -> None:
        """End a round that did not come to its end. What it was charged for stays charged; the bound stays."""
        self.rounds += self._released
        self._begin()

    def _begin(self) -> None:
        self._counts.clear()
        self._sampled = self._released = False

    def _coming(self) -> Gaussian:
        return self.event

    def _moving_clip(self) -> float | None:
        return None if self.adaptive is None else self.clip_norm

    def _set_moving_clip(self, clip_norm: float) -> None:
        if self.adaptive is not None:
            self.clip_norm = min(max(clip_norm, LEAST_CLIP), LARGEST_CLIP)


def _noisy(total: Tensor, std: float, stream: Stream) -> Tensor:
    """Sum and noise on a grid of 2^32 points per standard deviation, as in `dpsgd` (NOTE [Noise on a grid])."""
    unit = std / ROUNDED_STEPS
    drawn = rounded_gaussian(total.numel(), stream).view(total.shape)
    steps = (total.detach().to(device="cpu", dtype=torch.float64) / unit).nan_to_num(0.0)
    on_grid = steps.round_().clamp_(-(2.0**61), 2.0**61)
    return on_grid.add_(drawn).mul_(unit)


# -- noise at the clients --------------------------------------------------------------------------------


class DistributedPrivacy(Counted):
    """Distributed noise: every client adds discrete Gaussian noise to its words before they are masked.

    clip_norm         the L2 norm that an update is clipped to
    noise_multiplier  the noise of the sum, in clipping bounds, when no more than `least` honest clients are in it
    clients           how many take part in a round at most
    threshold         of the secure aggregation: fewer than so many are never summed (a fraction is of `clients`)
    colluding         how many clients may tell the server their noise, which it then subtracts

    NOTE [Drop-outs and noise]
    Nobody knows beforehand who will drop out, and noise cannot be added later. So each client's variance is that of the
    whole divided by `least` = threshold - colluding, and epsilon is computed for that many: it holds however many drop
    out. With m clients in the sum the noise is sqrt(m / least) times as large as it need be. The threshold is a number
    of clients here, not a fraction of whoever came.

    NOTE [No amplification]
    The server is the one to be protected from, and it knows who takes part. So the rounds are counted with a sampling
    rate of 1, whatever was sampled.
    """

    def __init__(
        self,
        clip_norm: float,
        noise_multiplier: float,
        *,
        clients: int,
        threshold: int | float | None = None,
        colluding: int = 0,
        budget: Budget | None = None,
        accountant: Kind | None = None,
        stream: Stream | None = None,
    ) -> None:
        super().__init__(budget, accountant, stream)
        check_clip_norm(clip_norm)
        check_positive(noise_multiplier=noise_multiplier)
        check_clients(clients)
        self.threshold = _count_of(threshold, clients)
        if not is_whole(colluding):
            raise ValueError(f"colluding is a whole number of clients, got {colluding!r}.")
        self.least = self.threshold - colluding
        if colluding < 0 or self.least < 1:
            raise ValueError(
                f"With a threshold of {self.threshold} and {colluding} colluding clients nobody is left whose noise "
                "counts: colluding is from 0 to threshold - 1."
            )
        self.clients = clients
        # A client's standard deviation in units is between half the exact sampler's largest and that.
        each = noise_multiplier * clip_norm / math.sqrt(self.least)
        self.fraction_bits = math.floor(math.log2(math.isqrt(LARGEST_VARIANCE) / each))
        if not 0 <= self.fraction_bits <= LARGEST_FRACTION:
            raise ValueError(
                f"Noise with a standard deviation of {each:.3g} needs a grid of 2^{-self.fraction_bits}, and that "
                f"of secure aggregation is from 2^0 to 2^-{LARGEST_FRACTION}: scale the updates and clip_norm."
            )
        self.units = 1 << self.fraction_bits
        self.clip_norm = float(clip_norm)
        self.variance = min(math.ceil((each * self.units) ** 2), LARGEST_VARIANCE)
        """Of one client's noise, in units squared."""
        self.noise_reach = 16 * math.isqrt(LARGEST_VARIANCE)  # probability below e^-128 of more
        self._summed = False

    def aggregation(self, **options: Any) -> MaskedSum:
        """The secure aggregation that goes with it, whose clients add the noise; `options` as of `MaskedSum`."""
        fixed = {"threshold", "clip", "max_weight", "fraction_bits", "noise", "noise_reach"} & set(options)
        if fixed:
            raise ValueError(
                f"aggregation() was given {', '.join(sorted(fixed))}, which follow from the privacy. Leave them out."
            )
        return _NoisySum(
            self,
            self.threshold,
            clip=self.clip_norm,
            max_weight=1.0,
            fraction_bits=self.fraction_bits,
            noise=self.draw,
            noise_reach=self.noise_reach,
            **options,
        )

    def draw(self, count: int, units: int) -> Tensor:
        """One client's noise for `count` words, in units."""
        if units != self.units:
            raise ValueError(
                f"Noise made for {self.units} units per 1.0 was asked for words of {units}: use the aggregation that "
                "aggregation() makes."
            )
        return torch.from_numpy(discrete_gaussian(count, self.variance, self._stream))

    def multiplier(self, values: int) -> float:
        """The noise multiplier that `values` numbers in the sum of `least` clients have, as a Gaussian's."""
        # Kairouz, Liu and Steinke 2021, theorem 1: (eps^2 / 2)-concentrated, eps = D / (sqrt(n) s) + tau sqrt(d). The
        # Gaussian of multiplier 1 / eps has the same divergence at every order.
        tau = 10 * math.fsum(
            math.exp(-2 * math.pi**2 * self.variance * k / (k + 1)) for k in range(1, self.least)
        )
        sensitivity = self.clip_norm * self.units
        return 1 / (sensitivity / math.sqrt(self.least * self.variance) + tau * math.sqrt(values))

    def noise_std(self, survivors: int) -> float:
        """The standard deviation that each number of a sum over so many clients really has."""
        return math.sqrt(survivors * self.variance) / self.units

    def clip(self, update: Tensor) -> Tensor:
        """A client's update on the grid, with an L2 norm of at most `clip_norm`."""
        cure = "ask for less noise, a higher threshold, or train fewer parameters"
        check_not_too_coarse(update.numel(), self.clip_norm, 1.0 / self.units, cure)
        self._dtype = update.dtype
        return clipped_to_grid(update, self.clip_norm, 1.0 / self.units)

    def clip_to_grid(self, update: Tensor, step: float) -> Tensor:
        """As `clip`, which has a grid of its own. !! ValueError for an aggregation with another one"""
        if step != 1.0 / self.units:
            raise ValueError(
                f"DistributedPrivacy was given an aggregation that rounds to multiples of {step:.3g}, and its noise is "
                f"made for 2^-{self.fraction_bits}. Give the Trainer aggregation=privacy.aggregation()."
            )
        return self.clip(update)

    def contribution(self, values: int, step: float, dtype: torch.dtype) -> PrivateContribution:
        """What clients that keep their updates clip them to, and the noise that each adds. !! ValueError"""
        self.clip_to_grid(torch.zeros(values, dtype=dtype), step)  # checks the grid
        return PrivateContribution(self.clip_norm, 1.0 / self.units, self.variance)

    def charge(self, values: int) -> None:
        """Charge one sum of `values` numbers, before it is made. `aggregation()` does it by itself."""
        self._charge(Gaussian(self.multiplier(values)))
        self._summed = True

    def noise(self, total: Tensor, n_clients: int) -> Tensor:
        """The sum as it is: its noise came with the updates."""
        if not self._summed:
            raise ValueError(
                "DistributedPrivacy was given a sum that no noise was added to: its noise comes from the clients, "
                "through secure aggregation. Give the Trainer aggregation=privacy.aggregation() too."
            )
        if n_clients < self.threshold:
            raise ValueError(
                f"A sum over {n_clients} clients was given, and the noise was made for {self.threshold} or more."
            )
        return total.to(self._dtype)

    def round_done(self) -> None:
        """End the round; without a sum before it, count one that an earlier run released (see ClientPrivacy)."""
        if not self._summed:
            self._charge(self._coming())
        self.rounds += 1
        self._summed = False

    def round_failed(self) -> None:
        """End a round that did not come to its end. What it was charged for stays charged."""
        self.rounds += self._summed
        self._summed = False

    def _coming(self) -> Gaussian:
        return Gaussian(self.multiplier(_MANY_VALUES))


def _count_of(threshold: Any, clients: int) -> int:
    """A threshold as a number of clients. !! ValueError"""
    if threshold is None:
        return 2 * clients // 3 + 1
    if isinstance(threshold, float) and 0 < threshold <= 1:
        return math.ceil(threshold * clients)
    if not is_whole(threshold) or not 1 <= threshold <= clients:
        raise ValueError(
            f"threshold is a number of clients from 1 to the {clients} there are, or a fraction of them above 0 and at "
            f"most 1.0, got {threshold!r}: fewer than so many are never summed, and so many have to be there."
        )
    return int(threshold)


class _NoisySum(MaskedSum):
    """Charges before it sums: a round that fails on the way stays charged, its updates had left the clients."""

    def __init__(self, privacy: DistributedPrivacy, threshold: int, **options: Any) -> None:
        super().__init__(threshold, **options)
        self._privacy = privacy

    def before_sum(self, length: int, weights: Mapping[str, float]) -> None:
        if len(weights) > self._privacy.clients or set(weights.values()) != {1.0}:
            raise ValueError(
                f"A private sum is over {self._privacy.clients} clients at most, each of weight 1, got {len(weights)} "
                f"with weights {sorted(set(weights.values()))}."
            )
        self._privacy.charge(length)
