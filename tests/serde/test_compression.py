"""Compression is chosen by name, noted per buffer, and left out where it is no use."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import syft as sy
from compression_parts import note_compression, uninstall
from federated.secure_round import play
from syft import exceptions, serde
from syft.messaging.message import ObjectMessage
from syft.mpc import ring
from syft.mpc.network import messages
from syft.mpc.randomness import Stream, new_seed

SCHEMES = ("lz4", "zstd")
ZEROS = (torch.zeros(5000, dtype=torch.int64),)


@pytest.fixture
def compressed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of the buffers that were tried to be compressed."""
    return note_compression(monkeypatch)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_what_is_compressed_is_smaller_and_comes_back(there_and_back: Any, scheme: str) -> None:
    value = {
        "zeros": torch.zeros(5000),
        "steps": torch.arange(9000),
        "t": torch.zeros(90, 50).t(),
        "b": b"ab" * 5000,
    }
    assert len(serde.serialize(value, compression=scheme)) < len(serde.serialize(value)) / 2
    back = there_and_back(value, compression=scheme)
    assert all(torch.equal(back[name], value[name]) for name in ("zeros", "steps", "t"))
    assert back["t"].stride() == (1, 50) and back["b"] == value["b"]
    back["zeros"].add_(1)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_random_and_small_buffers_are_sent_as_they_are(scheme: str) -> None:
    for value in (torch.randint(-(2**62), 2**62, (20_000,)), torch.zeros(100)):
        assert serde.serialize(value, compression=scheme) == serde.serialize(value)


def test_no_more_is_compressed_than_the_other_side_decompresses() -> None:
    limits = serde.Limits(max_decompressed=30_000)
    data = serde.serialize([torch.zeros(5000), torch.zeros(5000)], compression="zstd", limits=limits)
    assert 20_000 < len(data) < 21_000
    assert torch.equal(serde.deserialize(data, limits=limits)[1], torch.zeros(5000))


@pytest.mark.parametrize("name", ["gzip", "ZSTD", "", 3, ["lz4"]])
def test_an_unknown_scheme_is_refused_by_name(name: Any) -> None:
    with pytest.raises(exceptions.CompressionNotFoundException, match="lz4, zstd"):
        serde.serialize(1, compression=name)


def test_none_is_no_compression() -> None:
    zeros = torch.zeros(5000)
    assert serde.serialize(zeros, compression="none") == serde.serialize(zeros, compression=None)


def test_a_scheme_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    data = serde.serialize(torch.zeros(5000), compression="zstd")
    uninstall(monkeypatch, "zstandard")
    with pytest.raises(exceptions.DependencyError, match="zstandard"):
        serde.serialize(torch.zeros(5000), compression="zstd")
    with pytest.raises(exceptions.DependencyError, match="zstandard"):
        serde.deserialize(data)
    assert serde.available_compressions() == ("lz4",)


def test_a_scheme_is_agreed_on() -> None:
    assert serde.available_compressions() == ("zstd", "lz4")
    assert serde.choose_compression(["lz4", "snappy"]) == "lz4"
    assert serde.choose_compression(["lz4", "zstd"]) == "zstd"
    assert serde.choose_compression([]) is None


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_marked_tensor_is_never_compressed_and_keeps_its_mark(there_and_back: Any, scheme: str) -> None:
    share = serde.mark_incompressible(torch.zeros(5000, dtype=torch.int64))
    assert len(serde.serialize([share], compression=scheme)) > 40_000
    once = there_and_back(share, compression=scheme)
    assert len(serde.serialize(once, compression=scheme)) > 40_000


class Shares:
    """A type of random tensors."""

    def __init__(self, values: torch.Tensor) -> None:
        self.values = values


def test_a_type_registered_as_incompressible_is_never_compressed(there_and_back: Any) -> None:
    serde.register(
        Shares,
        "test.Shares",
        lambda _me, shares: ([shares.values],),
        lambda _me, parts: Shares(parts[0][0]),
        fields=tuple[list[torch.Tensor]],
        incompressible=True,
    )
    both = [Shares(torch.zeros(5000)), torch.zeros(5000)]
    size = len(serde.serialize(both, compression="zstd"))
    assert 20_000 < size < 21_000, "only what is beside the shares is compressed"
    assert torch.equal(there_and_back(both, compression="zstd")[0].values, torch.zeros(5000))


@pytest.mark.parametrize("share", [ring.share, ring.share_bits])
def test_shares_of_secrets_are_marked_where_they_are_made(share: Any) -> None:
    for part in share(torch.zeros(5000, dtype=torch.int64), 3, Stream(new_seed())):
        part.zero_()  # or nobody could tell: what is random is sent as it is, after it was tried in vain
        assert len(serde.serialize(ObjectMessage(part, 1), compression="zstd")) > 40_000


@pytest.mark.parametrize("message", [messages.Frame(b"", 1, ZEROS), messages.Dealt(b"", 1, b"", b"", ZEROS)])
def test_what_parties_of_a_program_send_each_other_is_never_compressed(message: Any) -> None:
    assert len(serde.serialize(message, compression="zstd")) > 40_000


def test_masked_updates_of_secure_aggregation_are_never_compressed() -> None:
    played = play({name: torch.zeros(5000) for name in ("ana", "ben")})
    for message in played.inputs.values():
        message.vector.zero_()
        assert len(serde.serialize(message, compression="zstd")) > 20_000


def test_ciphertexts_are_never_compressed(compressed: list[int]) -> None:
    public, _private = sy.keygen()
    secret = torch.zeros(8).encrypt(protocol="paillier", public_key=public)  # type: ignore[attr-defined]
    assert len(serde.serialize(secret, compression="zstd")) > 2_000
    assert not compressed
    serde.serialize(torch.zeros(5000), compression="zstd")
    assert compressed == [20_000]
