"""Per-sample gradients equal a loop of single backward passes, whichever way they are computed."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from syft.dp.per_sample import factors, per_sample_gradients

torch.set_num_threads(1)


class Recurrent(nn.Module):
    def __init__(self, kind: Any, **options: Any) -> None:
        super().__init__()
        self.rnn = kind(5, 6, batch_first=True, **options)
        self.out = nn.Linear(12 if self.rnn.bidirectional else 6, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.out(self.rnn(x)[0][:, -1])


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.out = nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.out(self.attention(x, x, x, need_weights=False)[0].mean(1))


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(11, 4)
        self.out = nn.Linear(4, 11, bias=False)
        self.out.weight = self.table.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.out(self.table(x).mean(1))


class Twice(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(torch.tanh(self.layer(x)))


class Beside(nn.Module):
    """The weight is used, its layer is never called."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.out = nn.Linear(4, 4), nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.out(torch.tanh(x @ self.layer.weight.T)) + self.layer.bias[:3]


def old_weight_norm(layer: nn.Module) -> nn.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        return nn.utils.weight_norm(layer)


def words() -> torch.Tensor:
    return torch.randint(0, 11, (7, 9))


class Text(nn.Module):
    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.table, self.norm = nn.Embedding(11, 4, **options), nn.LayerNorm(4)
        self.mid, self.out = nn.Linear(4, 5), nn.Linear(5, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.out(torch.tanh(self.mid(self.norm(self.table(x)))).mean(1))


MODELS: dict[str, tuple[Any, Any, str]] = {
    "linear": (
        lambda: nn.Sequential(nn.Linear(6, 5), nn.ReLU(inplace=True), nn.Linear(5, 3)),
        (7, 6),
        "rules",
    ),
    "linear on sequences": (
        lambda: nn.Sequential(nn.Linear(6, 5, bias=False), nn.Flatten(), nn.Linear(20, 3)),
        (7, 4, 6),
        "rules",
    ),
    "conv2d": (
        lambda: nn.Sequential(
            nn.Conv2d(4, 6, 3, stride=2, padding=1, groups=2),
            nn.GroupNorm(2, 6),
            nn.ReLU(inplace=True),
            nn.Conv2d(6, 4, (2, 3), dilation=(1, 2), bias=False),
            nn.Flatten(),
            nn.LazyLinear(3),
        ),
        (7, 4, 11, 12),
        "rules",
    ),
    "conv1d": (
        lambda: nn.Sequential(nn.Conv1d(3, 4, 3, padding=2, stride=2), nn.Flatten(), nn.LazyLinear(3)),
        (7, 3, 10),
        "rules",
    ),
    "conv2d same": (
        lambda: nn.Sequential(nn.Conv2d(2, 3, 3, padding="same"), nn.Flatten(), nn.LazyLinear(3)),
        (7, 2, 5, 5),
        "vmap",
    ),
    "conv3d": (
        lambda: nn.Sequential(nn.Conv3d(2, 3, 2), nn.Flatten(), nn.LazyLinear(3)),
        (7, 2, 4, 4, 4),
        "vmap",
    ),
    "embedding and layer norm": (Text, words, "rules"),
    "embedding with padding": (lambda: Text(padding_idx=3), words, "rules"),
    "lstm": (lambda: Recurrent(nn.LSTM), (7, 4, 5), "vmap"),
    "gru": (lambda: Recurrent(nn.GRU), (7, 4, 5), "vmap"),
    "lstm, deep, both ways": (
        lambda: Recurrent(nn.LSTM, num_layers=2, bidirectional=True),
        (7, 4, 5),
        "vmap",
    ),
    "rnn": (lambda: Recurrent(nn.RNN, nonlinearity="relu", bias=False), (7, 4, 5), "vmap"),
    "attention": (Attention, (7, 5, 8), "vmap"),
    "tied": (Tied, words, "vmap"),
    "called twice": (Twice, (7, 4), "auto"),
    "used beside its layer": (Beside, (7, 4), "auto"),
    "old weight norm": (lambda: nn.Sequential(old_weight_norm(nn.Linear(4, 3))), (7, 4), "vmap"),
}


def setting(name: str) -> tuple[nn.Module, torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    make, shape, _way = MODELS[name]
    model = make()
    x = shape() if callable(shape) else torch.randn(shape)
    outputs = model(x).shape[-1]
    return model, x, torch.randint(0, outputs, (7,))


def loop(model: nn.Module, loss_fn: Any, x: torch.Tensor, y: torch.Tensor) -> dict[str, torch.Tensor]:
    rows: dict[str, list[torch.Tensor]] = {}
    for i in range(len(x)):
        model.zero_grad()
        loss_fn(model(x[i : i + 1]), y[i : i + 1]).backward()
        for name, p in model.named_parameters():
            rows.setdefault(name, []).append(torch.zeros_like(p) if p.grad is None else p.grad.clone())
    return {name: torch.stack(r) for name, r in rows.items()}


@pytest.mark.parametrize("name", MODELS)
def test_gradients_equal_a_loop(name: str) -> None:
    model, x, y = setting(name)
    expected = loop(model, F.cross_entropy, x, y)
    ways = {"auto", "vmap", MODELS[name][2]}
    for way in ways:
        found = per_sample_gradients(model, F.cross_entropy, x, y, way)
        assert found.keys() == expected.keys()
        for parameter in expected:
            torch.testing.assert_close(found[parameter], expected[parameter], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", MODELS)
def test_norms_and_weighted_sums_equal_those_of_the_gradients(name: str) -> None:
    model, x, y = setting(name)
    weights = torch.rand(7)
    found, losses = factors(model, F.cross_entropy, x, y)
    for parameter, gradients in loop(model, F.cross_entropy, x, y).items():
        factor = found[parameter]
        torch.testing.assert_close(
            factor.norms(), gradients.double().flatten(1).norm(dim=1), rtol=1e-4, atol=1e-7
        )
        torch.testing.assert_close(
            factor.weighted_sum(weights),
            torch.einsum("n,n...->...", weights, gradients).double(),
            rtol=1e-4,
            atol=1e-6,
        )
    torch.testing.assert_close(losses, F.cross_entropy(model(x), y, reduction="none").detach())


def test_a_loss_with_weights_is_that_of_the_example_alone() -> None:
    model, x, y = setting("linear")
    loss = nn.CrossEntropyLoss(weight=torch.tensor([0.1, 1.0, 5.0]))
    expected = loop(model, loss, x, y)
    for name, found in per_sample_gradients(model, loss, x, y).items():
        torch.testing.assert_close(found, expected[name], rtol=1e-4, atol=1e-6)


def test_frozen_and_unused_parameters() -> None:
    model, x, y = setting("linear")
    model[0].weight.requires_grad_(False)
    assert "0.weight" not in per_sample_gradients(model, F.cross_entropy, x, y)

    class Half(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.used, self.unused = nn.Linear(6, 3), nn.Linear(6, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.used(x)

    assert per_sample_gradients(Half(), F.cross_entropy, x, y)["unused.weight"].abs().sum() == 0


def test_a_way_that_does_not_fit_is_refused() -> None:
    model, x, y = setting("lstm")
    with pytest.raises(ValueError, match="no rule for LSTM"):
        factors(model, F.cross_entropy, x, y, "rules")
    model, x, y = setting("called twice")
    with pytest.raises(ValueError, match="more than once"):
        factors(model, F.cross_entropy, x, y, "rules")
    with pytest.raises(ValueError, match="auto"):
        factors(model, F.cross_entropy, x, y, "guess")
