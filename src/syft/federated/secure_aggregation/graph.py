"""Who shares keys with whom in a round: everybody with everybody, or each client with a few.

One duty: the sparse graph of Bell, Bonawitz, Gascon, Lepoint and Raykova, "Secure single-server aggregation with
(poly)logarithmic overhead" (CCS 2020): how many neighbours a client needs, and who they are. Imports `errors`, `keys`.

NOTE [How many neighbours]
Clients stand in a circle, in an order that follows from a hash of all their keys, and each has its masks and shares with
the k/2 before and the k/2 behind it. Of n clients, c collude with the server and d leave. Three things must not happen:

    a client's secrets are read     t of its k neighbours collude: X ~ Hypergeometric(n - 1, c, k), n P[X >= t]
    a group's sum is read           a run of k/2 clients that collude or leave cuts the circle: n ((c + d) / n)^(k/2)
    a round fails                   fewer than t of some client's neighbours stay: Y ~ Hypergeometric(n - 1, n - d, k)

k is the smallest even number for which some t, more than half of those who hold shares, makes the first two together
less likely than 2^-security_bits and the third less likely than 2^-failure_bits. A run that cuts a circle in two needs
another one elsewhere, which is not counted: the bound is on the safe side.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from syft.federated.secure_aggregation.keys import digest


@dataclass(frozen=True)
class SparseGraph:
    """Each client shares keys with some others only, so that a round's cost grows with clients, not with their pairs.

    colluding      the fraction of clients that may work with the server, chosen before the round's keys are
    dropping       the fraction that may leave in a round
    security_bits  with probability 2^-security_bits at most, clients within `colluding` read more than the sum
    failure_bits   with probability 2^-failure_bits at most, a round fails in which no more than `dropping` leave

    It is for servers that follow the protocol: rounds with signatures have everybody as neighbours.
    """

    colluding: float = 0.1
    dropping: float = 0.1
    security_bits: int = 40
    failure_bits: int = 20

    def __post_init__(self) -> None:
        for name, value in (("colluding", self.colluding), ("dropping", self.dropping)):
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < 1:
                raise ValueError(
                    f"SparseGraph was given {name}={value!r}: it is a fraction of the clients, below 1."
                )
        if self.colluding + self.dropping >= 0.5:
            raise ValueError(
                f"SparseGraph was given colluding={self.colluding:g} and dropping={self.dropping:g}, together half of "
                "the clients or more. Then no sparse graph is safe: leave `sparse` out, and all clients are neighbours."
            )
        for name, bits in (("security_bits", self.security_bits), ("failure_bits", self.failure_bits)):
            if isinstance(bits, bool) or not isinstance(bits, int) or not 1 <= bits <= 128:
                raise ValueError(
                    f"SparseGraph was given {name}={bits!r}: it is a whole number from 1 to 128."
                )

    def degree_for(self, clients: int) -> tuple[int, int] | None:
        """Neighbours of each client, and how many of the shares open a secret; None where all have to be neighbours."""
        return _degree(clients, self.colluding, self.dropping, self.security_bits, self.failure_bits)


@lru_cache(maxsize=256)
def _degree(
    clients: int, colluding: float, dropping: float, security_bits: int, failure_bits: int
) -> tuple[int, int] | None:
    """See NOTE [How many neighbours]."""
    bad, gone = math.ceil(colluding * clients), math.ceil(dropping * clients)
    others = clients - 1
    insecure, failing = -security_bits * math.log(2), -failure_bits * math.log(2)
    count = math.log(clients) if clients else 0.0
    for degree in range(2, others - 1, 2):
        cut = count + (degree // 2) * math.log((bad + gone) / clients) if bad + gone else -math.inf
        if cut > insecure:
            continue
        # The least t that keeps secrets; more of them only fail more often.
        least = (degree + 1) // 2 + 1
        for threshold in range(least, degree + 1):
            read = count + _log_tail(others, bad, degree, threshold)
            if _log_sum(read, cut) <= insecure:
                stay = others - gone
                fails = count + _log_tail(others, others - stay, degree, degree - threshold + 1)
                if fails <= failing:
                    return degree, threshold
                break
    return None


def _log_tail(population: int, marked: int, drawn: int, least: int) -> float:
    """log P[X >= least] of a hypergeometric X: how many of `drawn` are among the `marked` of a population."""
    marked = min(marked, population)
    total = -math.inf
    whole = _log_comb(population, drawn)
    for found in range(max(least, drawn - (population - marked)), min(drawn, marked) + 1):
        term = _log_comb(marked, found) + _log_comb(population - marked, drawn - found) - whole
        total = _log_sum(total, term)
    return min(total, 0.0)


def _log_comb(n: int, k: int) -> float:
    return math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)


def _log_sum(one: float, other: float) -> float:
    high, low = max(one, other), min(one, other)
    return high if low == -math.inf else high + math.log1p(math.exp(low - high))


# -- the circle ------------------------------------------------------------------------------------------


def circle(transcript: bytes, names: Sequence[str]) -> list[str]:
    """The clients in an order that nobody chose: it follows from all keys of the round."""
    return sorted(names, key=lambda name: digest("place in the circle", transcript, name))


def window(order: Sequence[str], place: int, neighbours: int) -> list[str]:
    """A client in the middle of its neighbours, as they stand in the circle. All, by name, if there are no more."""
    if not neighbours or len(order) <= neighbours + 1:
        return sorted(order)
    half = neighbours // 2
    return [order[(place + step) % len(order)] for step in range(-half, half + 1)]


def share_places(holders: Sequence[str]) -> Mapping[str, int]:
    """At which place of a client's polynomial each of those who hold a share of its secrets stands."""
    return {name: place for place, name in enumerate(holders, 1)}
