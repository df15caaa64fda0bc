"""Models in fixed precision train with torch's own optimizers and follow plain training."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from syft.mpc.fixed_methods import (
    fix_module,
    fix_optimizer,
    fix_precision,
    float_module,
    float_optimizer,
    float_precision,
    precision_of,
)

STEPS = 40
PRECISIONS = [(2, 16), (10, 4), (10, 6)]
OPTIMIZERS: dict[str, Callable[..., Any]] = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, weight_decay=1e-3),
    "adam": lambda p: torch.optim.Adam(p, lr=0.01),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.01),
}


def linear_regression() -> Any:
    x = torch.randn(64, 5)
    return nn.Linear(5, 1), x, x @ torch.randn(5, 1) * 0.5 + 0.1, F.mse_loss


def mlp() -> Any:
    x = torch.randn(64, 8)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3))
    return model, x, x[:, :3].argmax(1), F.cross_entropy


def cnn() -> Any:
    x = torch.randn(16, 1, 8, 8)
    model = nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(4, 4, 3, groups=2),
        nn.ReLU(),
        nn.AvgPool2d(2),
        nn.Flatten(),
        nn.Linear(4, 2),
    )
    return model, x, (x[:, 0, :4].sum((1, 2)) > 0).long(), F.cross_entropy


def norms() -> Any:
    x = torch.randn(32, 8)
    model = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 1))
    return model, x, x[:, :1].tanh(), F.mse_loss


#: Every optimizer in base 2, every precision with SGD; the other pairs, with `-m slow`.
PAIRS = [
    pytest.param(name, precision, marks=[pytest.mark.slow] if name != "sgd" and precision[0] != 2 else [])
    for name in OPTIMIZERS
    for precision in PRECISIONS
]


@pytest.mark.parametrize(("optimizer", "precision"), PAIRS)
@pytest.mark.parametrize("task", [linear_regression, mlp, cnn, norms])
def test_the_loss_follows_plain_training(
    task: Callable[[], Any], optimizer: str, precision: tuple[int, int]
) -> None:
    torch.manual_seed(1)
    plain, x, y, loss_function = task()
    model = copy.deepcopy(plain)
    plain_optimizer, model_optimizer = (OPTIMIZERS[optimizer](m.parameters()) for m in (plain, model))
    base, digits = precision
    assert fix_module(model, digits, base) is model
    fixed_x = fix_precision(x, digits, base)
    fixed_y = fix_precision(y, digits, base) if y.is_floating_point() else y
    first = None
    for _ in range(STEPS // 3 if task in (cnn, norms) else STEPS):
        losses = []
        for net, opt, inputs, targets in (
            (plain, plain_optimizer, x, y),
            (model, model_optimizer, fixed_x, fixed_y),
        ):
            opt.zero_grad()
            loss = loss_function(net(inputs), targets)
            loss.backward()
            opt.step()
            losses.append(loss.item())
        first = losses[0] if first is None else first
        assert abs(losses[0] - losses[1]) < 1e-2
    assert losses[0] < first
    float_module(model)
    for one, other in zip(plain.parameters(), model.parameters(), strict=True):
        assert type(other) is nn.Parameter and (one - other).abs().max() < 0.5


def test_a_model_goes_to_fixed_precision_and_back_in_place() -> None:
    model = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))
    before = copy.deepcopy(model.state_dict())
    parameters = list(model.parameters())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    model(torch.randn(4, 3)).sum().backward()
    optimizer.step()
    after = copy.deepcopy(model.state_dict())
    fix_module(model, 16, 2)
    assert fix_optimizer(optimizer, 16, 2) is optimizer
    assert all(a is b for a, b in zip(parameters, model.parameters(), strict=True))
    assert all(isinstance(p, nn.Parameter) and p.is_leaf and p.requires_grad for p in model.parameters())
    assert model[1].num_batches_tracked.dtype == torch.int64
    assert not hasattr(model[1].num_batches_tracked, "scale")
    assert precision_of(optimizer) == {"precision_fractional": 16, "base": 2}
    assert float_precision(optimizer.state[parameters[0]]["momentum_buffer"]).shape == (2, 3)
    optimizer.zero_grad()
    model(fix_precision(torch.randn(4, 3), 16, 2)).sum().backward()
    optimizer.step()
    float_module(model)
    float_optimizer(optimizer)
    assert precision_of(optimizer) is None
    assert type(optimizer.state[parameters[0]]["momentum_buffer"]) is torch.Tensor
    assert all(type(p) is nn.Parameter for p in model.parameters())
    assert before.keys() == after.keys() == model.state_dict().keys()
    optimizer.zero_grad()
    model(torch.randn(4, 3)).sum().backward()
    optimizer.step()


def test_gradients_cross_the_border_in_both_directions() -> None:
    x = torch.randn(3, requires_grad=True)
    y = x * 2
    chain = fix_precision(y, 16, 2)
    assert chain.grad_fn is not None
    plain = float_precision(chain * 3)
    (plain * 4).sum().backward()
    torch.testing.assert_close(x.grad, torch.full((3,), 24.0), atol=1e-3, rtol=0)
    x.grad = None
    leaf = fix_precision(x, 16, 2)
    assert leaf.is_leaf and leaf.requires_grad
    (leaf * leaf).sum().backward()
    torch.testing.assert_close(float_precision(leaf.grad), 2 * x.detach(), atol=1e-3, rtol=0)


def test_a_fine_average_of_an_optimizer_is_an_ordinary_tensor_elsewhere() -> None:
    parameter = fix_precision(torch.ones(3), 16, 2).requires_grad_()
    optimizer = torch.optim.Adam([parameter], lr=0.1)
    fix_optimizer(optimizer, 16, 2)
    (parameter * torch.tensor([1.0, 2.0, 3.0])).sum().backward()
    optimizer.step()
    average = optimizer.state[parameter]["exp_avg"]
    assert average.child.precision_fractional > average.child.float_fractional == 16
    expected = torch.tensor([0.1, 0.2, 0.3])
    for made, wanted in (
        (average, expected),
        (average + parameter.detach() * 0, expected),
        (average * 10, 10 * expected),
        (torch.stack([average, average])[1], expected),
        (average.clone().mul_(2), 2 * expected),
        (average.view(3, 1)[:, 0].abs().sum(), expected.sum()),
    ):
        torch.testing.assert_close(float_precision(made), wanted, atol=1e-3, rtol=0)


def test_relu_and_max_pool_use_their_bits_again() -> None:
    from syft.mpc.rules import fixed_ring

    asked = []
    compare, extreme = fixed_ring.less_than_zero, fixed_ring.maximum_along
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fixed_ring, "less_than_zero", lambda c: asked.append("compare") or compare(c))
        patch.setattr(fixed_ring, "maximum_along", lambda c, d: asked.append("max") or extreme(c, d))
        x = fix_precision(torch.randn(1, 1, 4, 4), 16, 2).requires_grad_()
        F.max_pool2d(torch.relu(x), 2).sum().backward()
    assert asked == ["compare", "max"]
    assert float_precision(x.grad).sum() <= 4
