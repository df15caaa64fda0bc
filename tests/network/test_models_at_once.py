"""A model comes back from a worker on a network in the time of one answer, however many tensors it has."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import nn

from syft.exceptions import GetNotPermittedError, ObjectNotFoundError
from syft.tensors import transfer

pytestmark = pytest.mark.network


def _model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.Linear(3, 2))


def _trained(model: Any, data: Any) -> Any:
    model(data).pow(2).sum().backward()
    torch.optim.SGD(model.parameters(), lr=0.1).step()
    return model


def _waits(client: Any) -> list[str]:
    """Notes each time that the client waits for answers."""
    waits: list[str] = []
    link = client._link
    ask, ask_all = link.ask, link.ask_all
    link.ask = lambda message: (waits.append(type(message).__name__), ask(message))[1]
    link.ask_all = lambda messages: (waits.append(f"{len(messages)} together"), ask_all(messages))[1]
    return waits


def test_parameters_gradients_and_buffers_are_asked_for_together(connect: Any, serve: Any) -> None:
    server = serve()
    client = connect(server)
    data = torch.randn(5, 4)
    here = _trained(_model(), data)
    there = _trained(_model().send(client), data.send(client))
    waits = _waits(client)
    there.get()
    assert waits == ["15 together"]  # six parameters with their gradients, three buffers
    for (name, mine), (_, theirs) in zip(here.named_parameters(), there.named_parameters(), strict=True):
        assert torch.equal(mine, theirs) and torch.equal(mine.grad, theirs.grad), name
    for mine, theirs in zip(here.buffers(), there.buffers(), strict=True):
        assert torch.equal(mine, theirs)
    del there
    client.sync()
    assert client.objects_count_remote() == 0


def test_large_tensors_are_asked_for_one_by_one(connect: Any, serve: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(transfer, "_TOGETHER_BYTES", 40)
    client = connect(serve())
    model = nn.Linear(4, 3).send(client)
    waits = _waits(client)
    model.get()
    assert waits == ["1 together", "ObjectRequestMessage"]


def test_a_refusal_changes_nothing_and_no_value_is_used_later(connect: Any, serve: Any) -> None:
    server = serve()
    client = connect(server)
    model = nn.Linear(4, 3).send(client)
    client.sync()
    gone = server._entries.pop(model.bias.id_at_location)
    with pytest.raises(ObjectNotFoundError):
        model.get()
    server._entries[model.bias.id_at_location] = gone
    with torch.no_grad():
        model.weight.zero_()
    model.get()
    assert not model.weight.any()


def test_what_may_not_be_fetched_is_refused_as_before(connect: Any, serve: Any) -> None:
    server = serve()
    client = connect(server)
    model = nn.Linear(4, 3).send(client)
    client.sync()
    server.restrict(model.weight.id_at_location, frozenset({"ann"}))
    with pytest.raises(GetNotPermittedError):
        model.get()
    assert model.location is client


def test_a_model_is_sent_in_one_frame_and_large_tensors_alone(connect: Any, serve: Any) -> None:
    client = connect(serve())
    sent: list[int] = []
    pack = client._link._outbox.pack
    client._link._outbox.pack = lambda *args: (sent.append(len(client._link._outbox)), pack(*args))[1]
    widths = [30, 40, 50, 60]
    model = nn.Sequential(*[nn.Linear(a, b) for a, b in pairwise(widths)])
    copy = [p.detach().clone() for p in model.parameters()]
    model.send(client)  # type: ignore[operator]
    assert max(sent) == len(copy) and len(sent) <= 2  # the keeper of the link may have sent what was there
    sent.clear()
    large = nn.Linear(1100, 500)
    large.send(client)  # type: ignore[operator]
    assert 1 in sent and max(sent) <= 2
    model.get()  # type: ignore[operator]
    assert all(torch.equal(p, q) for p, q in zip(model.parameters(), copy, strict=True))
