"""What the tests of the lower half share: dealing, running, and values that sit on the edges."""

from __future__ import annotations

from typing import Any

import torch

from syft.mpc import ring
from syft.mpc.drivers import Lockstep, Shares
from syft.mpc.randomness import Stream

HOLDERS = (2, 3, 5)
FAN_INS = (2, 4)
STREAM = Stream()


def deal(x: torch.Tensor, holders: int) -> Shares:
    return Shares(ring.share(x, holders, STREAM))


def run(holders: int, protocol: Any, *tensors: torch.Tensor, **public: Any) -> Any:
    """Share the tensors, run the protocol, put the result together."""
    driver = Lockstep(holders)
    return revealed(driver.run(protocol, *(deal(x, holders) for x in tensors), **public))


def revealed(result: Any) -> Any:
    if type(result) is tuple:
        return tuple(revealed(one) for one in result)
    return ring.reconstruct(result)


def spread(count: int, bits: int = 64) -> torch.Tensor:
    """Signed integers of every size up to `bits` bits, the ends of the range and its middle among them."""
    words = STREAM.words(count)
    shifts = STREAM.below(bits, count) + (64 - bits)
    words >>= shifts
    top = 1 << (bits - 1)
    edges = torch.tensor([-top, top - 1, -1, 0, 1, -top + 1, top - 2, top // 2, -(top // 2)])
    words[: min(count, len(edges))] = edges[:count]
    return words
