"""Split learning: a model cut over two workers learns as if it were in one piece."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from syft.messaging.message import ObjectRequestMessage


def halves() -> tuple[nn.Module, nn.Module]:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 5), nn.Tanh()), nn.Linear(5, 3)


def test_a_cut_model_equals_a_joint_one_and_nothing_passes_through_here(
    alice: Any, bob: Any, monkeypatch: Any
) -> None:
    torch.manual_seed(1)
    inputs, targets = torch.randn(40, 6), torch.randint(3, (40,))
    first, last = halves()
    joint = nn.Sequential(*halves())
    plain = torch.optim.SGD(joint.parameters(), lr=0.1, momentum=0.9)
    first.send(alice)
    last.send(bob)
    opts = [torch.optim.SGD(part.parameters(), lr=0.1, momentum=0.9) for part in (first, last)]
    data, labels = inputs.send(alice), targets.send(bob)
    asked: list[type] = []
    for worker in (alice, bob):
        receive = worker.recv_msg
        monkeypatch.setattr(worker, "_recv_msg", lambda m, r=receive: (asked.append(type(m)), r(m))[1])
    losses = []
    for _ in range(15):
        for opt in opts:
            opt.zero_grad()
        activations = first(data)
        at_bob = activations.move(bob)
        assert at_bob.location is bob
        loss = nn.functional.cross_entropy(last(at_bob), labels)
        loss.backward()
        assert first[0].weight.grad.location is alice
        for opt in opts:
            opt.step()
        losses.append(loss.detach())
    assert ObjectRequestMessage not in asked
    for loss in losses:
        plain.zero_grad()
        expected = nn.functional.cross_entropy(joint(inputs), targets)
        expected.backward()
        plain.step()
        assert torch.equal(loss.get(), expected.detach())
    trained = [*first.get().parameters(), *last.get().parameters()]
    assert all(torch.equal(a, b) for a, b in zip(trained, joint.parameters(), strict=True))
