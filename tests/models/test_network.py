"""Models of the zoo at workers on a network, open and denying: trained there as they are here, bit for bit."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

import syft as sy
import zoo
import zoo_ways
from syft.policy.permissions import Policy

pytestmark = pytest.mark.network
ENTRIES = {entry.name: entry for entry in zoo.ALL}


@pytest.fixture(scope="module", params=[True, False], ids=["open", "denying"])
def client(request: Any, hook: Any) -> Iterator[Any]:
    policy = Policy(allows_by_default=request.param)
    with sy.NetworkServerWorker(hook, "tcp://127.0.0.1:0", id="models", policy=policy) as server:
        with sy.connect(server.address) as connected:
            assert connected.admits_only_table is not request.param
            yield connected


def trained_alike(name: str, client: Any) -> bool:
    """Whether three steps of AdamW there are those here. Without dropout: a worker draws its own numbers."""
    entry = ENTRIES[name]
    batch = entry.batch()
    here, there = entry.make(), entry.make()
    zoo_ways.train(entry, here, batch)
    there.send(client)
    zoo_ways.train(entry, there, zoo_ways.at(client, batch))
    there.get()
    return all(torch.equal(there.state_dict()[n], t) for n, t in here.state_dict().items())


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["GPT-2", "Llama", "T5", "Mamba", "Wav2Vec2"])
def test_a_model_of_sequences_is_trained_on_a_network_bit_for_bit(name: str, client: Any) -> None:
    pytest.importorskip("transformers")
    assert trained_alike(name, client)


def test_a_net_of_convolutions_without_a_bias_is_trained_on_a_network_bit_for_bit(client: Any) -> None:
    assert trained_alike("ResNet", client)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ENTRIES)
def test_every_model_is_trained_on_a_network_bit_for_bit(name: str, client: Any) -> None:
    pytest.importorskip(ENTRIES[name].library)
    assert trained_alike(name, client)
