"""Functions that a worker runs as one command: which, when not, and that nothing else tells them from others."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode

import syft as sy
from syft.core.memory import CACHES
from syft.policy.permissions import Policy

hook = sy.TorchHook(torch)

_LINEAR, _LOSS = "torch.nn.functional.linear", "torch.nn.functional.cross_entropy"


def _listening(policy: Policy | None = None) -> tuple[Any, list[Any]]:
    """A worker, and the names of the commands that it is asked to run without a message."""
    worker = sy.VirtualWorker(hook, id="fused", auto_add=False, policy=policy)
    names: list[Any] = []
    run = worker.run_at_once
    worker.run_at_once = lambda speaker, name, *rest: (names.append(name), run(speaker, name, *rest))[1]
    return worker, names


def _net() -> Any:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 3)), torch.randn(4, 6), torch.arange(4) % 3


def test_a_step_of_training_is_a_command_for_each_function_and_each_update() -> None:
    worker, names = _listening()
    net, x, y = _net()
    net.send(worker)
    x, y = x.send(worker), y.send(worker)
    sgd = torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(2):
        names.clear()
        sgd.zero_grad()
        F.cross_entropy(net(x), y).backward()
        sgd.step()
        layers = ((_LINEAR, 2, False), ("torch.relu", 0, True), (_LINEAR, 2, True))
        assert names == [layers, _LOSS, *["add_"] * 4]
    names.clear()
    F.cross_entropy(net[2](net[1](net[0](x))), y)
    assert names == [_LINEAR, "torch.relu", _LINEAR, _LOSS]


class _Net(nn.Module):
    """Makes a tensor in its forward, at the worker where it is."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(6, 5), nn.Linear(5, 3)

    def forward(self, x: Any) -> Any:
        hidden = F.relu(self.first(x))
        return self.second(hidden + torch.arange(5) * 0.1)


def test_the_functions_of_a_model_with_a_forward_of_its_own_are_commands() -> None:
    found = []
    for is_remote in (False, True):
        torch.manual_seed(0)
        model, x, y = _Net(), torch.randn(4, 6), torch.arange(4) % 3
        if is_remote:
            worker, names = _listening()
            model.send(worker)
            x, y = x.send(worker), y.send(worker)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
        for _ in range(3):
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
        if is_remote:
            # An addition that was never run takes the long way, and what is made of it in that step.
            assert [names.count(name) for name in (_LINEAR, "torch.relu", _LOSS)] == [5, 3, 2]
            model.get()
            assert len(worker._objects) == 2 + 8  # and what Adam keeps
        found.append([*model.parameters(), *[p.grad for p in model.parameters()]])
    assert all(torch.equal(one, other) for one, other in zip(*found, strict=True))


class _Watching(TorchDispatchMode):
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize(
    "around",
    [
        _Watching,
        CACHES.off,
        torch.inference_mode,
        lambda: torch.autocast("cpu", torch.bfloat16),
        lambda: torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t),
        torch.autograd.forward_ad.dual_level,
    ],
)
def test_whoever_could_tell_the_difference_is_shown_every_operation(around: Any) -> None:
    worker, names = _listening()
    net, x, y = _net()
    net.send(worker)
    x, y = x.send(worker), y.send(worker)
    for _ in range(2):
        with around():
            F.cross_entropy(net(x), y)
        with around(), torch.no_grad():
            x.add_(1) if around is not torch.autograd.graph.saved_tensors_hooks else None
    assert not {_LINEAR, _LOSS, "torch.relu"} & set(names)


def test_a_worker_that_denies_or_logs_runs_operations() -> None:
    for denies in (True, False):
        worker, names = _listening(Policy(allows_by_default=False) if denies else None)
        worker.log_msgs = not denies
        net, x, _ = _net()
        net.send(worker)(x.send(worker))
        assert _LINEAR not in names or worker.log_msgs
        if worker.log_msgs:
            assert {m.cmd_name for m in worker.msg_history if hasattr(m, "cmd_name")} >= {
                "aten.addmm.default"
            }


@pytest.mark.parametrize(
    "wrong",
    [
        lambda net, x, y: F.linear(x, net[2].weight, net[2].bias),
        lambda net, x, y: F.cross_entropy(x, y[:2]),
        lambda net, x, y: net[0].weight.data.add_(net[2].weight),
        lambda net, x, y: net[0].weight.add_(1),
    ],
)
def test_what_torch_refuses_is_refused_in_the_same_words(wrong: Any) -> None:
    net, x, y = _net()
    with pytest.raises((RuntimeError, ValueError, IndexError)) as plain:
        wrong(net, x, y)
    worker, _ = _listening()
    net.send(worker)
    x, y = x.send(worker), y.send(worker)
    with pytest.raises(type(plain.value)) as remote:
        wrong(net, x, y)
    with CACHES.off(), pytest.raises(type(plain.value)) as unfused:
        wrong(net, x, y)
    assert str(remote.value) == str(unfused.value)


def test_a_tensor_of_another_place_is_refused_by_name() -> None:
    worker, _ = _listening()
    other = sy.VirtualWorker(hook, id="fused_other", auto_add=False)
    net, x, y = _net()
    net.send(worker)
    for wrong in (
        lambda: net(x),
        lambda: net(x.send(other)),
        lambda: F.cross_entropy(net(x.send(worker)), y),
    ):
        with pytest.raises(sy.exceptions.TensorsNotCollocatedException):
            wrong()
    with torch.no_grad(), pytest.raises(sy.exceptions.TensorsNotCollocatedException):
        net[0].weight.add_(torch.zeros(5, 6).send(other))


@pytest.mark.parametrize(
    "options",
    [
        {"reduction": "sum"},
        {"reduction": "none"},
        {"ignore_index": 1},
        {"label_smoothing": 0.1},
        {"size_average": False},
    ],
)
@pytest.mark.filterwarnings("ignore:size_average")
@pytest.mark.parametrize("hooked", [False, True])
def test_options_of_the_loss(options: dict[str, Any], hooked: bool) -> None:
    found = []
    for is_remote in (False, True):
        net, x, y = _net()
        if is_remote:
            worker, _ = _listening()
            net.send(worker)
            x, y = x.send(worker), y.send(worker)
        for _ in range(2):
            net.zero_grad()
            loss = F.cross_entropy(net(x), y, **options)
            if hooked:
                loss.register_hook(lambda grad: grad * 2)
            loss.sum().backward()
        kept = [loss.detach(), *[p.grad.clone() for p in net.parameters()]]
        found.append([tensor.get() if is_remote else tensor for tensor in kept])
    assert all(torch.equal(one, other) for one, other in zip(*found, strict=True))


def test_a_write_is_seen_by_graphs_that_need_the_old_value() -> None:
    worker, _ = _listening()
    net, x, y = _net()
    net.send(worker)
    x, y = x.send(worker), y.send(worker)
    version = net[2].weight._version
    for is_hooked in (False, True):
        loss = F.cross_entropy(net(x), y)
        with torch.no_grad():
            net[2].weight.add_(1)
        if is_hooked:
            loss.register_hook(lambda grad: grad)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            loss.backward()
    assert net[2].weight._version == version + 2


@pytest.mark.parametrize("is_fetched", [False, True])
def test_a_loss_whose_logits_went_is_differentiated(is_fetched: bool) -> None:
    """Before the backward pass, and by the graph here, whose loss has a hook."""
    net, x, y = _net()
    F.cross_entropy(net(x), y).backward()
    wanted = [p.grad * 2 for p in net.parameters()]
    worker, _ = _listening()
    net.zero_grad()
    net.send(worker)
    x, y = x.send(worker), y.send(worker)
    for _ in range(2):
        net.zero_grad()
        logits = net(x)
        loss = F.cross_entropy(logits, y)
        loss.register_hook(lambda grad: grad * 2)
        with torch.no_grad():
            logits.get() if is_fetched else logits.mul_(0)
        with contextlib.suppress(NameError):
            del logits
        loss.backward()
    assert all(
        torch.equal(p.grad.clone().get(), grad) for p, grad in zip(net.parameters(), wanted, strict=True)
    )
    held = len(worker._objects)
    del loss
    assert held - len(worker._objects) <= 1 and len(worker._objects) == 4 + 4 + 2


class _Own(nn.Linear):
    def forward(self, given: Any) -> Any:
        return super().forward(given) * 2


def _plain_layers() -> Any:
    return nn.Sequential(
        nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 4, bias=False), nn.ReLU(), nn.Linear(4, 3), nn.ReLU()
    )


def _one_activation_after_the_other() -> Any:
    return nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.ReLU(), nn.Linear(5, 3))


def _tied_layers() -> Any:
    layer = nn.Linear(6, 6)
    return nn.Sequential(layer, nn.ReLU(), layer, nn.Linear(6, 3))


def _frozen_layers() -> Any:
    model = nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 3))
    model[0].weight.requires_grad_(False)
    return model


def _all_frozen() -> Any:
    return nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 3)).requires_grad_(False)


def _layers_in_layers() -> Any:
    return nn.Sequential(nn.Sequential(nn.Linear(6, 5), nn.ReLU()), nn.Linear(5, 3))


def _with_a_hook() -> Any:
    model = nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 3))
    model[1].register_forward_hook(lambda _module, _given, made: made * 2)
    return model


def _with_a_backward_hook() -> Any:
    model = nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 3))
    model[2].register_full_backward_hook(lambda _module, into, _out: tuple(g * 2 for g in into))
    return model


def _with_a_forward_of_its_own() -> Any:
    model = nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 3))
    model[1].forward = lambda given: given.tanh()
    return model


def _in_place() -> Any:
    return nn.Sequential(nn.Linear(6, 5), nn.ReLU(inplace=True), nn.Linear(5, 3))


def _of_own_layers() -> Any:
    return nn.Sequential(_Own(6, 5), nn.ReLU(), nn.Linear(5, 3))


def _parametrized() -> Any:
    model = nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 3))
    return nn.utils.parametrizations.weight_norm(model[0]) and model


_AT_ONCE = {_plain_layers, _one_activation_after_the_other, _tied_layers, _frozen_layers, _all_frozen}
_MODELS = [value for value in list(globals().values()) if getattr(value, "__module__", "") == __name__]
_MODELS = _MODELS[[m.__name__ for m in _MODELS].index("_plain_layers") :]


@pytest.mark.parametrize("made", _MODELS, ids=lambda made: made.__name__)
@pytest.mark.parametrize("is_hooked", [False, True])
def test_layers_at_once_are_layers_one_by_one(made: Any, is_hooked: bool) -> None:
    found = []
    names: list[Any] = []
    for is_remote in (False, True):
        torch.manual_seed(0)
        model, x, y = made(), torch.randn(2, 2, 6), torch.arange(4) % 3
        if is_remote:
            worker, names = _listening()
            model.send(worker)
            x, y = x.send(worker), y.send(worker)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        seen = []
        for step in range(3):
            optimizer.zero_grad()
            names.clear()
            logits = model(x if step == 1 else x.view(4, 6))
            is_at_once = any(type(name) is tuple for name in names)
            assert not is_remote or is_at_once == (made in _AT_ONCE)
            loss = F.cross_entropy(logits.view(4, 3), y) + logits.pow(2).sum()
            if made is not _all_frozen:
                if is_hooked:
                    logits.register_hook(lambda grad: grad * 2)
                loss.backward()
                optimizer.step()
            with torch.no_grad():
                seen += [loss.detach().clone(), model(x)]
            assert logits.requires_grad == (made is not _all_frozen)
            del logits, loss
        seen += [p.detach().clone() for p in model.parameters()]
        seen += [p.grad.clone() for p in model.parameters() if p.grad is not None]
        found.append([tensor.get() if is_remote else tensor for tensor in seen])
        del seen
    assert len(found[0]) == len(found[1])
    assert all(torch.equal(one, other) for one, other in zip(*found, strict=True))
    parameters = list(model.parameters())
    assert len(worker._objects) == 2 + len(parameters) + sum(p.grad is not None for p in parameters)
