"""The largest of a few, all pairs of which are compared at once: what counts then is rounds.

NOTE [The winner of all pairs]
One comparison of all pairs says of each element whether it is larger than all before it, and not smaller than any after
it: the product of its bits (`beaver.conjunction`), which is 1 for the first of the largest and 0 for all others. That bit
times the element, summed up, is the maximum. Three rounds for the comparison (fan-in 4), one for products of up to nine
bits, two for more, and one for the selection.
"""

from __future__ import annotations

import math
from functools import lru_cache, partial
from typing import Any

import torch

from syft.mpc import ring
from syft.mpc.party import Party, Program, cat, stack
from syft.mpc.protocols.beaver import conjunction
from syft.mpc.protocols.compare import How, negative_bits
from syft.mpc.protocols.convert import multiply_bits
from syft.mpc.protocols.lookup import packed, placed

#: The most factors of one product: it takes two to the power of that of words.
_MOST_FACTORS = 9


def first_largest(party: Party, x: Any, how: How) -> Program[tuple[Any, Any]]:
    """The maximum along dimension 0, of two elements at least, and 1 where it first is. NOTE [The winner of all pairs]"""
    length, shape = x.shape[0], x.shape[1:]
    values = x.reshape(length, -1)
    first, second = torch.triu_indices(length, length, 1, device=x.device)
    compared = yield from negative_bits(party, values[first] - values[second], how)
    words = yield from winners(party, compared.bits, length, values.shape[1])
    # x_0 + sum of w_i (x_i - x_0): that of the others says whether x_0 is the winner.
    above = values[1:] - values[:1]
    bits, (chosen,) = yield from multiply_bits(party, words, above.numel(), [above.reshape(-1, 1)])
    others, chosen = bits.view(above.shape), chosen.view(above.shape)
    lowest = party.plus(-total(others), 1)
    best = values[0] + total(chosen)
    return best.view(shape), cat([lowest.unsqueeze(0), others]).view(x.shape)


def total(rows: Any) -> Any:
    """The sum along dimension 0."""
    return sum(rows[1:], start=rows[0])


def winners(party: Party, less: Any, length: int, count: int) -> Program[Any]:
    """Whether each element but the first of each of `count` groups is the first of the largest, as packed words of
    (length - 1, count) bits, from [x_i < x_j] of all pairs i < j.
    """
    rows = placed(_rivals(length), length - 1, less.device)
    both = stack([less, party.inverted(less)])
    pairs = length * (length - 1) // 2 * count
    factors = _on_words(both, partial(ring.regrouped, count=pairs, length=count, rows=rows))
    if length - 1 > _MOST_FACTORS:
        places = _grouped(length - 1)
        parts = placed(packed(*places), len(places[0]), less.device)
        factors = yield from conjunction(party, factors[parts])
    return (yield from conjunction(party, factors))


def _grouped(count: int) -> list[list[int]]:
    """(factors, products), about as many of both: the places of the factors of each product, each place in one of them.
    The last place stands in for those missing.
    """
    products = math.isqrt(count)
    factors = -(-count // products)
    return [[min(factors * product + at, count - 1) for product in range(products)] for at in range(factors)]


@lru_cache(maxsize=64)
def _rivals(length: int) -> bytes:
    """(rivals, elements): where what the element must be is, among [x_i < x_j] and then its opposite, for all pairs."""
    pairs = {(i, j): at for at, (i, j) in enumerate(_pairs(length))}
    rivals = [[i for i in range(length) if i != j] for j in range(1, length)]
    found = [
        [pairs[i, j] if i < j else len(pairs) + pairs[j, i] for i in each]
        for j, each in enumerate(rivals, start=1)
    ]
    return packed(*map(list, zip(*found, strict=True)))


def _pairs(length: int) -> list[tuple[int, int]]:
    return [(i, j) for i in range(length) for j in range(i + 1, length)]


def _on_words(words: Any, function: Any) -> Any:
    """A function of words with any dimensions in front, of shares of any form."""
    return function(words) if isinstance(words, torch.Tensor) else words.like(function(words.planes))
