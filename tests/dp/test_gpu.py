"""DP-SGD on a GPU does what it does on a CPU. Skipped where there is none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from syft.dp.clipping import clipped_sum
from syft.dp.dpsgd import make_private

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")

ROWS, CLASSES, BOUND = 24, 3, 0.5


class Last(nn.Module):
    """Of what a recurrent layer or attention makes of a sequence, its end."""

    def __init__(self, inner: nn.Module, call: Callable[[Any, Tensor], Tensor], width: int) -> None:
        super().__init__()
        self.inner, self.call, self.out = inner, call, nn.Linear(width, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.call(self.inner, x)[:, -1])


def attend(layer: nn.MultiheadAttention, x: Tensor) -> Tensor:
    return layer(x, x, x, need_weights=False)[0]  # type: ignore[no-any-return]


MODELS: dict[str, Callable[[], tuple[nn.Module, Tensor]]] = {
    "linear": lambda: (
        nn.Sequential(nn.Linear(20, 8), nn.ReLU(), nn.Linear(8, CLASSES)),
        torch.randn(ROWS, 20).double(),
    ),
    "convolution": lambda: (
        nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1, groups=1),
            nn.GroupNorm(2, 8),
            nn.ReLU(),
            nn.Conv2d(8, 8, 3, stride=2, groups=2),
            nn.AdaptiveAvgPool2d(2),
            nn.Flatten(),
            nn.Linear(32, CLASSES),
        ),
        torch.randn(ROWS, 3, 12, 12).double(),
    ),
    "embedding": lambda: (
        nn.Sequential(nn.Embedding(50, 4), nn.Flatten(), nn.LayerNorm(28), nn.Linear(28, CLASSES)),
        torch.randint(0, 50, (ROWS, 7)),
    ),
    "lstm": lambda: (
        Last(nn.LSTM(6, 8, batch_first=True), lambda layer, x: layer(x)[0], 8),
        torch.randn(ROWS, 5, 6).double(),
    ),
    "attention": lambda: (
        Last(nn.MultiheadAttention(8, 2, batch_first=True), attend, 8),
        torch.randn(ROWS, 5, 8).double(),
    ),
}


def by_one(model: nn.Module, x: Tensor, y: Tensor) -> dict[str, Tensor]:
    """The sum of clipped gradients, an example at a time, on the CPU."""
    names, parameters = zip(*model.named_parameters(), strict=True)
    total = {name: torch.zeros_like(p) for name, p in zip(names, parameters, strict=True)}
    for row in range(len(x)):
        loss = nn.functional.cross_entropy(model(x[row : row + 1]), y[row : row + 1])
        gradients = torch.autograd.grad(loss, parameters)
        norm = float(torch.sqrt(sum((g**2).sum() for g in gradients)))  # type: ignore[arg-type]
        for name, gradient in zip(names, gradients, strict=True):
            total[name] += gradient * min(1.0, BOUND / norm)
    return total


@pytest.mark.parametrize("way", ["auto", "vmap"])
@pytest.mark.parametrize("kind", MODELS)
def test_clipped_sums_are_those_of_single_examples(kind: str, way: str) -> None:
    torch.manual_seed(0)
    model, x = MODELS[kind]()
    model, y = model.double(), torch.randint(0, CLASSES, (ROWS,))
    wanted = by_one(model, x, y)
    sums, losses = clipped_sum(model.cuda(), nn.CrossEntropyLoss(), x.cuda(), y.cuda(), {"": BOUND}, way=way)
    assert losses.is_cuda and all(value.is_cuda for value in sums.values())
    for name, value in sums.items():
        torch.testing.assert_close(value.cpu(), wanted[name], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("physical_batch", [None, 50])
def test_a_private_training_learns(physical_batch: int | None) -> None:
    torch.manual_seed(0)
    x = torch.randn(2000, 6, device="cuda")
    data = TensorDataset(x, (x[:, 0] > 0).long())
    model = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 2)).cuda()
    training = make_private(
        model,
        torch.optim.SGD(model.parameters(), lr=2.0),
        DataLoader(data, batch_size=200),
        loss_fn=nn.CrossEntropyLoss(),
        target_epsilon=3.0,
        target_delta=1e-5,
        epochs=3,
        physical_batch=physical_batch,
    )
    for _ in range(3):
        for inputs, targets in training.loader:
            training.step(inputs, targets)
    assert 2.5 < training.epsilon() <= 3.0
    accuracy = (model(x).argmax(1) == data.tensors[1]).double().mean()
    assert accuracy > 0.9 and next(model.parameters()).is_cuda


def test_the_noise_has_its_standard_deviation() -> None:
    data = TensorDataset(torch.zeros(100, 1, device="cuda"), torch.zeros(100, 100_000, device="cuda"))
    model = nn.Linear(1, 100_000, bias=False).cuda()
    torch.nn.init.zeros_(model.weight)
    training = make_private(
        model,
        torch.optim.SGD(model.parameters(), lr=1.0),
        DataLoader(data, batch_size=10),
        loss_fn=nn.MSELoss(),
        noise_multiplier=2.0,
        max_grad_norm=0.3,
    )
    training.step(*next(iter(training.loader)))
    noise = model.weight.detach().double() * training.expected_batch
    assert abs(float(noise.std()) / 0.6 - 1) < 0.02 and abs(float(noise.mean())) < 0.02
