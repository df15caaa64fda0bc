"""Client-level privacy in federated training: what a trained model tells about any one client's whole data set.

One duty: the objects for the Trainer's `privacy` argument. Each clips every client's update as a whole, sees to it
that the sum has noise, and counts what the rounds cost. Imports `accounting`, `noise`, `federated`, `mpc.randomness`.

    ClientPrivacy        the server adds the noise (McMahan et al. 2018): it is trusted to, and to show nobody the updates
    DistributedPrivacy   every client adds a part of the noise before its update is masked (Kairouz, Liu and Steinke
                         2021): the server sees only a sum that has its noise already

NOTE [Neighbours]
Two runs are neighbours when one client's updates are all zero in one of them. Whether a client takes part, and how
many do, is public; so a sum may be divided by the number of its clients. Only with `sampling_rate` below 1 is taking
part part of the secret: then the random choice, and the number of those chosen, must not be shown, and sums are
divided by `denominator`. Clients count alike: weighted by numbers of examples, one client could move the sum by more.

NOTE [Sums without rounding]
A clipped update is a multiple of a power of two in double precision, so fine that nothing is lost and so coarse that
sums of a million clients are exact. So the order of summation does not matter, and one client moves the sum by its own
clipped update and nothing else (Casacuberta et al. 2022). A sum in single precision loses this, by parts in 10^7.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from syft.dp.accounting import Accountant, Budget, Gaussian, Kind, noise_multiplier_for
from syft.dp.noise import LARGEST_VARIANCE, ROUNDED_STEPS, discrete_gaussian, rounded_gaussian
from syft.federated.secure_aggregation.encoding import LARGEST_FRACTION
from syft.federated.secure_aggregation.masked_sum import MaskedSum
from syft.mpc.randomness import Stream

_MANY_VALUES = 1 << 40  # more than any model has, for a round whose length is not known
_FINE = 32  # bits between a clipping bound and the grid of clipped updates


# -- what both have --------------------------------------------------------------------------------------


class _Counted:
    """An accountant, with or without a budget."""

    def __init__(self, budget: Budget | None, accountant: Kind) -> None:
        self.budget = budget
        self.accountant = Accountant(accountant) if budget is None else budget.accountant
        self.rounds = 0
        """How many sums were released."""
        self._dtype = torch.float64
        """Of the updates as they came, and of the sum as it leaves."""

    def epsilon(self, delta: float | None = None) -> float:
        """What the rounds so far cost any one client."""
        if delta is None:
            if self.budget is None:
                raise ValueError(
                    "epsilon() needs a delta: well below one over the number of clients, say 1e-5."
                )
            delta = self.budget.delta
        return self.accountant.epsilon(delta)

    def _charge(self, event: Gaussian) -> None:
        if self.budget is None:
            self.accountant.compose(event)
        else:
            self.budget.spend(event)


def clipped_to_grid(update: Tensor, bound: float, step: float) -> Tensor:
    """`update` scaled down to an L2 norm of at most `bound`, as multiples of `step`, in double precision.

    An update with a value that is not finite becomes zero: whatever else were done with it would tell.
    """
    values = update.detach().to(device="cpu", dtype=torch.float64)
    norm = float(torch.linalg.vector_norm(values))
    if not math.isfinite(norm):
        # NB: squares can overflow where the values do not.
        if not bool(values.isfinite().all()):
            return torch.zeros_like(values)
        values = values / values.abs().max()
        norm = float(torch.linalg.vector_norm(values))
        values, norm = values * (bound / norm), bound
    # A part in 10^9 less than the bound pays for the rounding of the norm itself.
    most = bound * (1 - 1e-9)
    factor = min(1.0, most / norm) if norm > 0 else 1.0
    for _ in range(8):
        on_grid = (values * (factor / step)).round_()
        length = float(torch.linalg.vector_norm(on_grid)) * step
        if length <= most:
            return on_grid * step
        factor *= most / length * (1 - 1e-9)
    return (values * (factor / step)).trunc_() * step  # towards zero: never longer than what was rounded


def _check_positive(**values: float) -> None:
    for name, value in values.items():
        if not (isinstance(value, (int, float)) and math.isfinite(value) and value > 0):
            raise ValueError(f"{name} is a finite number above 0, got {value!r}.")


# -- noise at the server ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class AdaptiveClipping:
    """Let the clipping bound follow a quantile of the updates' norms (Andrew et al. 2021, algorithm 1).

    quantile       the fraction of updates that is to stay unclipped
    learning_rate  how fast the bound moves: by exp(learning_rate) at most in a round
    count_noise    standard deviation of the noise on the number of unclipped updates; a twentieth of the expected
                   number of clients if not given
    """

    quantile: float = 0.5
    learning_rate: float = 0.2
    count_noise: float | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.quantile <= 1:
            raise ValueError(f"quantile is between 0 and 1, got {self.quantile!r}.")
        _check_positive(learning_rate=self.learning_rate)
        if self.count_noise is not None:
            _check_positive(count_noise=self.count_noise)


class ClientPrivacy(_Counted):
    """Central noise: the server clips, sums, and adds Gaussian noise of `noise_multiplier` clipping bounds.

    clip_norm         the L2 norm that an update is clipped to (at first, with `adaptive`)
    noise_multiplier  the noise of a round, as the accountant is told; `for_budget` finds it for an epsilon
    clients           how many there are in all, known to everybody
    sampling_rate     the probability with which each takes part in a round, on its own, drawn by `sample`
    adaptive          see `AdaptiveClipping`; its noisy counts are paid for out of the same `noise_multiplier`
    budget            rounds that would exceed it are refused before anything is released
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
        accountant: Kind = "rdp",
        stream: Stream | None = None,
    ) -> None:
        super().__init__(budget, accountant)
        _check_positive(clip_norm=clip_norm, clients=clients)
        self.event = Gaussian(noise_multiplier, sampling_rate)  # refuses what is neither
        self.clip_norm, self.clients, self.adaptive = float(clip_norm), int(clients), adaptive
        self.count_noise = 0.0
        self.update_multiplier = float(noise_multiplier)
        """The noise on updates, in clipping bounds: more than `noise_multiplier` when counts take their part."""
        if adaptive is not None:
            self.count_noise = adaptive.count_noise or self.denominator / 20
            # Andrew et al. 2021, theorem 1: counts of +-1/2 have sensitivity 1/2, and z^-2 = z_update^-2 + (2 s)^-2.
            left = noise_multiplier**-2 - (2 * self.count_noise) ** -2
            if left <= 0:
                raise ValueError(
                    f"Noise of {self.count_noise:g} on the counts costs more than the whole noise_multiplier of "
                    f"{noise_multiplier:g} allows: it has to be above {noise_multiplier / 2:g}. Set count_noise of "
                    "AdaptiveClipping, or train with more clients."
                )
            self.update_multiplier = left**-0.5
        self._stream = stream or Stream()
        self._unclipped: list[bool] = []
        self._counted = (0, 0)
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
            budget=Budget(epsilon, delta, Accountant(accountant)),
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
        """A client's update with an L2 norm of at most `clip_norm`. See NOTE [Sums without rounding]."""
        self._dtype = update.dtype
        if self.adaptive is not None:
            # NB: NaN compares as False, and counts as clipped.
            norm = float(torch.linalg.vector_norm(update.detach().double()))
            self._unclipped.append(norm <= self.clip_norm)
        return clipped_to_grid(update, self.clip_norm, 2.0 ** (math.frexp(self.clip_norm)[1] - _FINE))

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
                f"A sum over {n_clients} clients was given, and there are {self.clients} in all."
            )
        self._charge(self.event)
        self._released = True
        # NB: the last ones. Of a round that failed after its updates were clipped, the first ones may still be here, and
        # no client may be counted twice.
        mine = self._unclipped[-n_clients:] if n_clients else []
        self._counted = sum(mine), len(mine)
        return _noisy(total, self.update_multiplier * self.clip_norm, self._stream).to(self._dtype)

    def round_done(self) -> None:
        """End the round: the clipping bound follows. Without a sum from `noise` before it, a round that an earlier run
        released is counted: a trainer that resumes calls it once for each of those."""
        if not self._released:
            self._charge(self.event)
        elif self.adaptive is not None:
            # Counts around 1/2, so that one client moves them by 1/2 (Andrew et al. 2021, section 3.1).
            unclipped, seen = self._counted
            counted = torch.tensor([unclipped - seen / 2], dtype=torch.float64)
            noisy = float(_noisy(counted, self.count_noise, self._stream))
            # How many took part is public, unless they were drawn in secret (NOTE [Neighbours]).
            fraction = noisy / (self.denominator if self.sampling_rate < 1.0 else max(seen, 1)) + 0.5
            move = self.adaptive.learning_rate * (fraction - self.adaptive.quantile)
            # NB: noise on a small count can be anything; one round moves the bound by its learning rate at most.
            move = min(max(move, -self.adaptive.learning_rate), self.adaptive.learning_rate)
            self.clip_norm *= math.exp(-move)
        self.rounds += 1
        self._unclipped.clear()
        self._sampled = self._released = False


def _noisy(total: Tensor, std: float, stream: Stream) -> Tensor:
    """Sum and noise on a grid of 2^32 points per standard deviation, as in `dpsgd` (NOTE [Noise on a grid])."""
    unit = std / ROUNDED_STEPS
    drawn = torch.from_numpy(rounded_gaussian(total.numel(), stream)).view(total.shape)
    steps = (total.detach().to(device="cpu", dtype=torch.float64) / unit).nan_to_num(0.0)
    on_grid = steps.round_().clamp_(-(2.0**61), 2.0**61).to(torch.int64)
    return (on_grid + drawn).double() * unit


# -- noise at the clients --------------------------------------------------------------------------------


class DistributedPrivacy(_Counted):
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
        accountant: Kind = "rdp",
        stream: Stream | None = None,
    ) -> None:
        super().__init__(budget, accountant)
        _check_positive(clip_norm=clip_norm, noise_multiplier=noise_multiplier, clients=clients)
        if isinstance(threshold, float):
            threshold = math.ceil(threshold * clients)
        self.threshold = 2 * clients // 3 + 1 if threshold is None else threshold
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
        self._stream = stream or Stream()
        self._summed = False

    def aggregation(self, **options: Any) -> MaskedSum:
        """The secure aggregation that goes with it, whose clients add the noise; `options` as of `MaskedSum`."""
        fixed = {"threshold", "clip", "max_weight", "fraction_bits", "noise", "noise_reach"} & set(options)
        if fixed:
            raise ValueError(
                f"{', '.join(sorted(fixed))} of the aggregation follow from the privacy and are not set."
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
        values = update.numel()
        if math.sqrt(values) > self.clip_norm * self.units:
            raise ValueError(
                f"{values} numbers clipped to {self.clip_norm:g} are mostly below the grid of 2^-{self.fraction_bits}, "
                "on which the exact noise lives, and would be rounded away: ask for less noise, a higher threshold, "
                "or train fewer parameters."
            )
        self._dtype = update.dtype
        return clipped_to_grid(update, self.clip_norm, 1.0 / self.units)

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
            self._charge(Gaussian(self.multiplier(_MANY_VALUES)))
        self.rounds += 1
        self._summed = False


class _NoisySum(MaskedSum):
    """Charges before it sums: a round that fails on the way stays charged, its updates had left the clients."""

    def __init__(self, privacy: DistributedPrivacy, threshold: int, **options: Any) -> None:
        super().__init__(threshold, **options)
        self._privacy = privacy

    def weighted_sum(self, updates: Mapping[str, Tensor], weights: Mapping[str, float]) -> Tensor:
        if len(updates) > self._privacy.clients or set(weights.values()) != {1.0}:
            raise ValueError(
                f"A private sum is over {self._privacy.clients} clients at most, each of weight 1, got {len(updates)} "
                f"with weights {sorted(set(weights.values()))}."
            )
        self._privacy.charge(next(iter(updates.values())).numel())
        return super().weighted_sum(updates, weights)
