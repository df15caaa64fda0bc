"""Workers whose every message and reply travels as bytes do what workers do."""

from __future__ import annotations

import copy
from collections import Counter
from typing import Any

import pytest
import torch

import syft as sy
from syft import exceptions, serde
from syft.workers.virtual import VirtualWorker


@pytest.fixture
def wire(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """All messages between workers become bytes and back, errors too; counts them by name."""
    sent: Counter[str] = Counter()

    def carry(self: Any, message: Any, location: Any) -> Any:
        sent[type(message).__name__] += 1
        arrived = serde.deserialize(bytearray(serde.serialize(message, self, "lz4")), location)
        try:
            reply = location._recv_msg(arrived)
        except Exception as error:  # noqa: BLE001  (it travels, too)
            raise serde.deserialize(serde.serialize(error, location), self) from None
        return serde.deserialize(bytearray(serde.serialize(reply, location)), self)

    monkeypatch.setattr(VirtualWorker, "_send_msg", carry)
    monkeypatch.setattr(VirtualWorker, "keeps_graphs", False)  # a graph does not travel as bytes
    return sent


def train(model: Any, data: Any, target: Any) -> None:
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(4):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(data), target).backward()
        optimizer.step()


def test_a_model_trained_over_the_wire_equals_one_trained_here(wire: Counter[str], bob: Any) -> None:
    torch.manual_seed(0)
    here = torch.nn.Sequential(
        torch.nn.Conv2d(1, 2, 3), torch.nn.Flatten(), torch.nn.ReLU(), torch.nn.Linear(72, 3)
    )
    there = copy.deepcopy(here)
    data, target = torch.randn(5, 1, 8, 8), torch.tensor([0, 1, 2, 1, 0])
    train(here, data, target)
    there.send(bob)
    train(there, data.send(bob), target.send(bob))  # type: ignore[attr-defined]
    there.get()  # type: ignore[operator]
    for mine, theirs in zip(here.parameters(), there.parameters(), strict=True):
        assert torch.equal(mine, theirs)
    assert wire["Operation"] > 100
    assert wire["ObjectMessage"] >= 6


def test_search_move_and_metadata(wire: Counter[str], alice: Any, bob: Any, me: Any) -> None:
    x = torch.arange(6.0).view(2, 3).t().tag("#six").send(bob)  # type: ignore[attr-defined]
    (found,) = me.request_search("#six", bob)
    assert found.tags == {"#six"} and found.shape == (3, 2)
    assert found.child.spec.strides == x.child.spec.strides
    moved = x.move(alice)
    assert moved.location is alice
    assert torch.equal((moved * 2).get(), torch.arange(6.0).view(2, 3).t() * 2)
    assert (moved > 2).nonzero().get().shape == (3, 2)
    assert {"SearchMessage", "ForwardMessage", "ObjectRequestMessage"} <= set(wire)


def test_an_error_arrives_with_both_tracebacks(wire: Counter[str], bob: Any, me: Any) -> None:
    private = torch.ones(2).private_tensor(allowed_users=("ann",)).send(bob, user="ann")  # type: ignore[attr-defined]
    with pytest.raises(exceptions.GetNotPermittedError) as caught:
        private.get(user="eve")
    assert "check_get" in caught.value.remote_traceback  # type: ignore[attr-defined]
    assert private.get(user="ann").tolist() == [1.0, 1.0]


def test_secrets_travel_in_shares(wire: Counter[str], workers: Any) -> None:
    x = (
        torch.tensor([1.5, -2.0])
        .fix_precision()
        .share(workers.alice, workers.bob, crypto_provider=workers.charlie)
    )  # type: ignore[attr-defined]
    assert torch.allclose((x * x).get().float_precision(), torch.tensor([2.25, 4.0]), atol=2e-3)
    assert wire["ObjectMessage"] >= 2


def test_strings_live_elsewhere(wire: Counter[str], bob: Any) -> None:
    text = sy.String("some words").send(bob)
    assert text.upper().get() == "SOME WORDS"
    assert wire["CallMethodMessage"] == 1
