"""Whole models whose inputs, parameters and buffers are chains train exactly as in plain torch."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from syft.core.chain import Wrapper
from syft.tensors.logging import LoggingTensor

pytestmark = pytest.mark.usefixtures("quiet")


def mlp() -> tuple[nn.Module, torch.Tensor, torch.Tensor]:
    model = nn.Sequential(nn.Linear(10, 16), nn.ReLU(), nn.Linear(16, 8), nn.Tanh(), nn.Linear(8, 3))
    return model, torch.randn(6, 10), torch.randint(3, (6,))


def cnn() -> tuple[nn.Module, torch.Tensor, torch.Tensor]:
    model = nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Dropout2d(0.3),
        nn.Conv2d(4, 4, 3),
        nn.Flatten(),
        nn.Dropout(0.3),
        nn.LazyLinear(3),
    )
    x = torch.randn(5, 1, 8, 8)
    model(x)  # makes the lazy layer
    return model, x, torch.randint(3, (5,))


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(5, 7, num_layers=2, batch_first=True, bidirectional=True)
        self.head = nn.Linear(14, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        output, (hidden, _) = self.lstm(x)
        return self.head(output[:, -1] + hidden.sum(0).repeat(1, 2))


def lstm() -> tuple[nn.Module, torch.Tensor, torch.Tensor]:
    return Recurrent(), torch.randn(4, 6, 5), torch.randint(3, (4,))


class Attending(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.TransformerEncoderLayer(
            8, nhead=2, dim_feedforward=16, dropout=0.2, batch_first=True
        )
        self.head = nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.encoder(x).mean(1))


def transformer() -> tuple[nn.Module, torch.Tensor, torch.Tensor]:
    return Attending(), torch.randn(4, 5, 8), torch.randint(3, (4,))


Made = Callable[[], tuple[nn.Module, torch.Tensor, torch.Tensor]]


def chained(module: nn.Module) -> nn.Module:
    """A copy of the module with a chain for every parameter and every floating-point buffer."""
    made = copy.deepcopy(module)
    for part in made.modules():
        for name, parameter in list(part.named_parameters(recurse=False)):
            setattr(part, name, nn.Parameter(LoggingTensor().on(parameter.detach())))
        for name, buffer in list(part.named_buffers(recurse=False)):
            part.register_buffer(name, LoggingTensor().on(buffer))
    return made


def train(model: nn.Module, x: torch.Tensor, y: torch.Tensor, steps: int = 3) -> list[float]:
    torch.manual_seed(11)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02, weight_decay=0.01)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
    return losses


# NB: exact, because a chain runs the very kernels that plain torch runs, in the same order.
@pytest.mark.parametrize("make", [mlp, cnn, lstm, transformer])
def test_three_adam_steps_equal_plain_torch_exactly(make: Made) -> None:
    torch.manual_seed(7)
    model, x, y = make()
    model.train()
    on_chains = chained(model)
    assert all(type(p) is Wrapper and isinstance(p, nn.Parameter) for p in on_chains.parameters())

    wanted = train(model, x, y)
    losses = train(on_chains, LoggingTensor().on(x), LoggingTensor().on(y))

    assert losses == wanted
    assert len(set(wanted)) == 3, "something was learned"
    for (name, got), want in zip(on_chains.state_dict().items(), model.state_dict().values(), strict=True):
        assert type(got) is Wrapper, name
        assert torch.equal(got.child.child, want), name

    model.eval()
    on_chains.eval()
    with torch.no_grad():
        result, expected = on_chains(LoggingTensor().on(x)), model(x)
    assert type(result) is Wrapper
    # The fast path that torch takes for a plain TransformerEncoderLayer in eval mode is another kernel.
    tolerance = {"rtol": 1e-5, "atol": 1e-6} if make is transformer else {"rtol": 0, "atol": 0}
    torch.testing.assert_close(result.child.child, expected, **tolerance)


@pytest.mark.parametrize(
    "options", [{"foreach": True}, {"foreach": False}, {"amsgrad": True}, {"fused": False}]
)
def test_other_ways_to_step_equal_plain_torch(options: dict[str, bool]) -> None:
    values = torch.randn(4)
    plain = nn.Parameter(values.clone())
    chain = nn.Parameter(LoggingTensor().on(values.clone()))
    for parameter in (plain, chain):
        optimizer = torch.optim.AdamW([parameter], lr=0.1, **options)
        for _ in range(3):
            optimizer.zero_grad()
            (parameter**2).sum().backward()
            optimizer.step()
    assert torch.equal(chain.child.child, plain)


def test_plain_parameters_train_on_chained_data(said: list[str]) -> None:
    """Only the data is a chain: parameters stay plain, and their gradients can be used."""
    torch.manual_seed(7)
    model, x, y = mlp()
    twin = copy.deepcopy(model)
    F.cross_entropy(model(x), y).backward()
    F.cross_entropy(twin(LoggingTensor().on(x)), y).backward()
    for a, b in zip(model.parameters(), twin.parameters(), strict=True):
        assert type(b) is nn.Parameter
        gradient = b.grad.child.child if type(b.grad) is Wrapper else b.grad
        assert torch.equal(gradient, a.grad)
    assert "Log function torch.nn.functional.relu" in said
    assert "Default log torch.nn.functional.linear" in said
