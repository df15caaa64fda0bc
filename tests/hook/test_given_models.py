"""A model that is handed over to a worker of this process together: as tensor by tensor, to the bit and to the object."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import syft as sy
from syft.hooking import given_models, modules
from syft.policy.caller import speaking_for
from syft.policy.permissions import Policy

hook = sy.TorchHook(torch)


def _train(model: Any, x: Any, y: Any, optimizer: Any) -> None:
    optimizer.zero_grad()
    F.cross_entropy(model(x), y).backward()
    optimizer.step()


def _usual(model: Any) -> Any:
    return None


def _hooked(model: Any) -> Any:
    model[0].weight.register_hook(lambda grad: grad * 2)


def _seen_by_numpy(model: Any) -> Any:
    return model[0].weight.detach().numpy()


def _with_a_view(model: Any) -> Any:
    return model[0].weight.detach()[1:]


def _tagged(model: Any) -> Any:
    model[2].bias.tag("#bias").describe("a bias")


def _frozen(model: Any) -> Any:
    model[0].weight.requires_grad_(False)


def _tied(model: Any) -> Any:
    model[3].weight = model[2].weight


def _transposed(model: Any) -> Any:
    model[3].weight.data = model[3].weight.data.t().contiguous().t()


def _with_gradients_that_others_have(model: Any) -> Any:
    model[3].weight.grad = torch.ones(3, 3)
    return model[3].weight.grad


def _with_an_id(model: Any) -> Any:
    return model[1].running_mean.id, model[0].weight.id


_MODELS = [value for name, value in list(globals().items()) if name.startswith("_") and callable(value)][1:]


def _values(value: Any) -> Any:
    return value.tolist() if isinstance(value, torch.Tensor) else value


def _run(change: Callable[[Any], Any], policy: Policy) -> Any:
    """All that can be seen of a model that travels there, is trained, and comes back, three times."""
    worker = sy.VirtualWorker(hook, id="given", auto_add=False, policy=policy)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.Linear(3, 3), nn.Linear(3, 3))
    kept = change(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    x, y = torch.randn(5, 4).send(worker), torch.arange(5).send(worker) % 3
    seen: list[Any] = []
    for _ in range(3):
        model.send(worker)
        seen.append([_values(e.value) for e in worker._entries.values()])
        seen.append([type(t).__name__ for t in (*model.parameters(), *model.buffers())])
        _train(model, x, y, optimizer)
        model.get()
        seen.append([(type(t).__name__, t.requires_grad, t.stride(), t.tolist()) for t in model.parameters()])
        seen.append([(type(t).__name__, t.tolist()) for t in model.buffers()])
        seen.append([None if p.grad is None else p.grad.tolist() for p in model.parameters()])
        seen.append([(e.allowed, e.is_private, e.references) for e in worker._entries.values()])
    seen.append([(r.action, r.user, r.granted, r.reason) for r in worker.policy.audit_log])
    seen.append([t.tags for t in (*model.parameters(), *model.buffers())])
    if change is _with_an_id:
        seen.append([isinstance(obj_id, int) for obj_id in kept] + [model[1].running_mean.id == kept[0]])
    elif kept is not None:
        seen.append(kept.tolist())
    return seen


@pytest.mark.parametrize("change", _MODELS, ids=lambda change: change.__name__)
@pytest.mark.parametrize("denies", [False, True])
def test_a_model_travels_as_tensor_by_tensor(
    change: Callable[[Any], Any], denies: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    with speaking_for("ann"):
        together = _run(change, Policy(allows_by_default=not denies))
        for module in (modules, given_models):
            monkeypatch.setattr(module, "gives_freely", lambda _worker: False)
        assert together == _run(change, Policy(allows_by_default=not denies))


def test_nothing_is_handed_over_that_somebody_else_has() -> None:
    worker = sy.VirtualWorker(hook, id="given_views", auto_add=False)
    model = nn.Linear(3, 2)
    plain = copy.deepcopy(model.weight.detach())
    view = model.weight.detach()
    model.send(worker)
    with torch.no_grad():
        model.weight.add_(1)
    assert torch.equal(view, plain)
    there = model.weight.detach()[0]
    model.get()
    with torch.no_grad():
        model.weight.zero_()
    assert torch.equal(there.get(), plain[0] + 1)


@pytest.mark.parametrize("is_differentiated", [True, False])
def test_a_loss_that_is_kept_costs_no_copies_of_the_model(is_differentiated: bool) -> None:
    worker = sy.VirtualWorker(hook, id="given_kept", auto_add=False)
    model = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 3))
    x, y = torch.randn(5, 4).send(worker), torch.arange(5).send(worker) % 3
    twin = copy.deepcopy(model)
    places = [parameter.data_ptr() for parameter in model.parameters()]
    losses = []
    for _ in range(3):
        model.send(worker)
        loss = F.cross_entropy(model(x), y)
        if is_differentiated:
            loss.backward()
        losses.append(loss)
        model.get()
        assert all(type(p.grad) is torch.Tensor for p in model.parameters()) == is_differentiated
        if is_differentiated:
            assert [parameter.data_ptr() for parameter in model.parameters()] == places
        assert all(map(torch.equal, model.parameters(), twin.parameters()))
        with pytest.raises((RuntimeError, sy.exceptions.SyftError)):
            loss.backward()
        with torch.no_grad():
            for parameter in (*model.parameters(), *twin.parameters()):
                parameter.add_(1)
    assert len({loss.copy().get().item() for loss in losses}) == 3
    del loss, losses, x, y
    assert not worker._objects


def test_what_travels_to_a_worker_that_is_listened_to_is_heard() -> None:
    worker = sy.VirtualWorker(hook, id="given_heard", auto_add=False, log_msgs=True)
    nn.Linear(3, 2).send(worker).get()
    kinds = [type(message).__name__ for message in worker.msg_history]
    assert kinds.count("ObjectMessage") == kinds.count("ObjectRequestMessage") == 2
