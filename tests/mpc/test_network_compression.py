"""Over connections that compress, nobody tries to compress what is random: shares, masked values, what is dealt."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from compression_parts import note_compression
from mpc.network_parties import HOLDERS, Parties
from syft.identity.tokens import TokenAuthority
from syft.mpc.documented.securenn import share_convert

pytestmark = pytest.mark.network

#: Above what stands in headers and what is too small to be compressed, also where 64 bits are one word.
COUNT = 20_000


@pytest.fixture
def tried(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of what anybody tried to compress. All parties are threads of this process."""
    return note_compression(monkeypatch)


@pytest.fixture
def client(hook: Any, me: Any, tmp_path: Path) -> Iterator[SimpleNamespace]:
    """A client that compresses, of workers that compress what they send to each other."""
    made = Parties(hook, (*HOLDERS, "carol"), TokenAuthority.create(tmp_path / "tokens"))
    with made.closing:
        made.introduce(compression="zstd")
        yield made.client(compression="zstd", **made.shown("ana"))


def test_the_connections_compress_what_is_not_random(client: Any, tried: list[int]) -> None:
    zeros = torch.zeros(COUNT, dtype=torch.int64)
    pointer = zeros.send(client.alice)  # type: ignore[attr-defined]
    assert torch.equal(pointer.get(), zeros)
    assert tried == [8 * COUNT, 8 * COUNT]  # here, and there


def test_shares_are_not_compressed_on_their_way_there_and_back(client: Any, tried: list[int]) -> None:
    x = torch.arange(COUNT)
    assert torch.equal(client.share(x).get(), x)
    assert not tried


def test_what_is_computed_from_shares_is_not_compressed_when_it_is_opened(
    client: Any, tried: list[int]
) -> None:
    x = torch.arange(COUNT)
    secret = client.share(x)
    assert torch.equal((secret + secret).view(2, -1).flip(0).get(), (x + x).view(2, -1).flip(0))
    assert not tried


def test_masked_values_and_what_is_dealt_are_not_compressed(client: Any, tried: list[int]) -> None:
    x = torch.arange(COUNT) - 100
    secret = client.share(x)
    assert torch.equal((secret * secret).get(), x * x)
    assert torch.equal((secret < 0).get(), (x < 0).long())
    assert not tried


@pytest.mark.parametrize("protocol", ["fss", "snn"])
def test_keys_and_what_an_online_provider_sees_are_not_compressed(
    client: Any, tried: list[int], protocol: str
) -> None:
    x = torch.arange(1000) - 100
    assert torch.equal((client.share(x, protocol=protocol) < 0).get(), (x < 0).long())
    assert not tried


def test_shares_in_another_ring_are_not_compressed(client: Any, tried: list[int]) -> None:
    x = torch.arange(1000)
    assert torch.equal(share_convert(client.share(x)).get(), x)
    assert not tried


def test_shares_that_a_worker_made_are_not_compressed(client: Any, tried: list[int]) -> None:
    x = torch.arange(COUNT)
    pointer = x.send(client.alice)  # type: ignore[attr-defined]
    client.alice.sync()
    tried.clear()
    secret = pointer.share(*client.holders, crypto_provider=client.provider)
    assert torch.equal(secret.get().get(), x)
    assert not tried
