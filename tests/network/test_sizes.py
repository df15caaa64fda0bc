"""Large tensors: they travel in chunks, and cost little more memory than they have."""

from __future__ import annotations

import time
from typing import Any

import pytest
import torch

from network.served import Peak, Served

pytestmark = pytest.mark.network

MB = 1 << 20
CHUNK = 32 * MB
GENEROUS = '[limits]\nmax_frame = "3 GiB"\nmax_bytes = "6 GiB"\n'


def go_there_and_back(client: Any, served: Served, count: int) -> tuple[Peak, Peak]:
    """Send so many numbers and fetch them: no end ever needs a copy more than it ends up with."""
    torch.zeros(20_000_000).send(client).get()  # type: ignore[attr-defined]  # what the first time needs
    large = torch.arange(count, dtype=torch.float32)
    size = large.numel() * 4
    slack = 2 * CHUNK + 16 * MB
    assert slack < size / 2
    here, there = Peak(), Peak(served.process.pid)
    pointer = large.send(client)  # type: ignore[attr-defined]
    client.sync()
    assert here.extra < slack
    assert there.extra < size + slack
    back = pointer.get()
    assert here.extra < size + slack
    assert there.extra < size + slack
    assert torch.equal(back, large)
    return here, there


@pytest.mark.parametrize("scheme", ["tcp", "ws"])
def test_two_hundred_megabytes_go_there_and_back(connect: Any, scheme: str) -> None:
    with Served(f"{scheme}://127.0.0.1:0") as served:
        go_there_and_back(connect(served), served, 50_000_000)


@pytest.mark.slow
def test_a_gigabyte_needs_little_more_than_a_gigabyte(connect: Any) -> None:
    with Served(policy=GENEROUS) as served:
        began = time.monotonic()
        here, there = go_there_and_back(connect(served), served, 250_000_000)
        took = time.monotonic() - began
        print(
            f"1 GB there and back: {took:.2f} s, extra {here.extra / MB:.0f} MB here, {there.extra / MB:.0f} MB there"
        )
