"""Connections that are cut at random positions: nothing is lost, nothing runs twice, nothing hangs."""

from __future__ import annotations

import random
import time
from typing import Any

import pytest
import torch

from network.proxy import Proxy, random_budgets
from network.served import Served

pytestmark = pytest.mark.network


def count_through_cuts(connect: Any, scheme: str, cuts: int, seed: int, most_seconds: float) -> None:
    """Count on a remote tensor, and compare with the count here, while connections are cut."""
    rng = random.Random(seed)
    with Served(f"{scheme}://127.0.0.1:0") as served:
        with Proxy(served.port, random_budgets(seed), seed=seed) as proxy:
            client = connect(f"{scheme}://127.0.0.1:{proxy.port}", patience=60.0)
            counter = torch.zeros(3, dtype=torch.int64).send(client)
            expected = 0
            until = time.monotonic() + most_seconds
            while proxy.cuts < cuts:
                assert time.monotonic() < until, f"only {proxy.cuts} cuts after {most_seconds} s"
                for _ in range(rng.randrange(1, 60)):
                    counter.add_(1)
                    expected += 1
                if rng.random() < 0.2:  # a frame that is not copied, and is longer than most connections live
                    noise = torch.arange(rng.randrange(1_000, 12_000))
                    assert torch.equal((noise.send(client) + 1).get(), noise + 1)
                assert (counter + 0).get().tolist() == [expected] * 3
            proxy.stop()


@pytest.mark.parametrize(("scheme", "cuts"), [("tcp", 300), ("ws", 200)])
def test_a_count_is_exact_whatever_is_cut(connect: Any, scheme: str, cuts: int) -> None:
    count_through_cuts(connect, scheme, cuts, seed=1, most_seconds=100)
