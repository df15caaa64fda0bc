"""Which layers, losses and optimizers work on secrets, and how exactly: the cases, and the page that lists them.

`python -m mpc.coverage` (in tests/) prints docs/secrets_coverage.md. test_edges_coverage.py runs every case, so a row of
the page is a test that passed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch import optim as O

BASE, DIGITS = 2, 16
TRAINING_STEPS = 6


@dataclass(frozen=True)
class Case:
    """A layer or loss: how it is made, what it is given, and by how much results and gradients may be off."""

    name: str
    make: Callable[[], Any]
    inputs: Callable[[], tuple[torch.Tensor, ...]]
    forward: float = 1e-4
    gradient: float = 3e-4
    #: Public weights on secret data: True, or the reason why not.
    public: bool | str = True


def rows(*shape: int, size: float = 1.0) -> Callable[[], tuple[torch.Tensor, ...]]:
    return lambda: (torch.randn(*shape) * size,)


def two(*shape: int) -> Callable[[], tuple[torch.Tensor, ...]]:
    return lambda: (torch.randn(*shape), torch.randn(*shape))


def labelled(classes: int) -> Callable[[], tuple[torch.Tensor, ...]]:
    return lambda: (torch.randn(4, classes), torch.randint(0, classes, (4,)))


def chances() -> tuple[torch.Tensor, ...]:
    return torch.tensor([0.02, 0.3, 0.5, 0.98]), torch.tensor([1.0, 0.0, 1.0, 0.0])


def places() -> tuple[torch.Tensor, ...]:
    return (torch.randint(0, 7, (3, 4)),)


NORMED = "it writes its statistics, which are secret, into public buffers; evaluating works"
SECRET_PLACES = "secret places in a public table: share the table"

LAYERS = [
    Case("Linear", lambda: nn.Linear(5, 4), rows(3, 5)),
    Case("Bilinear", lambda: nn.Bilinear(4, 3, 2), lambda: (torch.randn(2, 4), torch.randn(2, 3))),
    Case("Conv1d", lambda: nn.Conv1d(2, 3, 3), rows(2, 2, 6)),
    Case("Conv2d", lambda: nn.Conv2d(2, 3, 3, padding=1), rows(1, 2, 5, 5)),
    Case("Conv3d", lambda: nn.Conv3d(1, 2, 2), rows(1, 1, 3, 3, 3)),
    Case("ConvTranspose2d", lambda: nn.ConvTranspose2d(2, 2, 2), rows(1, 2, 3, 3)),
    Case("Embedding", lambda: nn.Embedding(7, 3), places, public=SECRET_PLACES),
    Case("EmbeddingBag", lambda: nn.EmbeddingBag(7, 3), places, public=SECRET_PLACES),
    Case("EmbeddingBag, max", lambda: nn.EmbeddingBag(7, 3, mode="max"), places, public=SECRET_PLACES),
    Case("RNN", lambda: nn.RNN(3, 4), rows(3, 2, 3)),
    Case("LSTM", lambda: nn.LSTM(3, 4), rows(3, 2, 3)),
    Case("GRU", lambda: nn.GRU(3, 4), rows(3, 2, 3)),
    Case("BatchNorm1d", lambda: nn.BatchNorm1d(4), rows(6, 4), public=NORMED),
    Case("BatchNorm1d, deviation 0.01", lambda: nn.BatchNorm1d(4), rows(6, 4, size=0.01), 0.01, 1.0, NORMED),
    Case("BatchNorm2d, evaluating", lambda: nn.BatchNorm2d(3).eval(), rows(2, 3, 3, 3)),
    Case("LayerNorm", lambda: nn.LayerNorm(16), rows(3, 16)),
    Case("LayerNorm, deviation 20", lambda: nn.LayerNorm(768), rows(1, 768, size=20.0)),
    Case("GroupNorm", lambda: nn.GroupNorm(2, 4), rows(2, 4, 5)),
    Case("InstanceNorm1d", lambda: nn.InstanceNorm1d(3, affine=True), rows(2, 3, 6), 2e-4, 5e-4),
    Case("RMSNorm", lambda: nn.RMSNorm(16), rows(3, 16)),
    Case("MaxPool2d", lambda: nn.MaxPool2d(2), rows(1, 2, 4, 4)),
    Case("MaxPool3d", lambda: nn.MaxPool3d(2), rows(1, 1, 4, 4, 4)),
    Case("AvgPool2d", lambda: nn.AvgPool2d(2), rows(1, 2, 4, 4)),
    Case("AdaptiveAvgPool2d", lambda: nn.AdaptiveAvgPool2d(3), rows(1, 2, 5, 5)),
    Case("AdaptiveMaxPool1d", lambda: nn.AdaptiveMaxPool1d(3), rows(1, 2, 7)),
    Case("AdaptiveMaxPool2d", lambda: nn.AdaptiveMaxPool2d(3), rows(1, 2, 5, 5)),
    Case("AdaptiveMaxPool3d", lambda: nn.AdaptiveMaxPool3d(2), rows(1, 1, 3, 3, 3)),
    Case("Upsample, nearest", lambda: nn.Upsample(scale_factor=2), rows(1, 2, 3, 3)),
    Case("Upsample, bilinear", lambda: nn.Upsample(scale_factor=2, mode="bilinear"), rows(1, 2, 3, 3)),
    Case("Upsample, bicubic", lambda: nn.Upsample(scale_factor=2, mode="bicubic"), rows(1, 1, 4, 4), 2e-4),
    Case("Upsample, trilinear", lambda: nn.Upsample(scale_factor=2, mode="trilinear"), rows(1, 1, 2, 2, 2)),
    Case("MultiheadAttention", lambda: Attention(), rows(2, 3, 4), 2e-4, 5e-4),
    Case("ReLU", lambda: nn.ReLU(), rows(3, 5)),
    Case("LeakyReLU", lambda: nn.LeakyReLU(), rows(3, 5)),
    Case("PReLU", lambda: nn.PReLU(), rows(3, 5)),
    Case("ELU", lambda: nn.ELU(), rows(3, 5)),
    Case("GELU", lambda: nn.GELU(), rows(3, 5, size=5.0)),
    Case("SiLU", lambda: nn.SiLU(), rows(3, 5, size=5.0)),
    Case("Mish", lambda: nn.Mish(), rows(3, 5), 2e-4, 5e-4),
    Case("Sigmoid", lambda: nn.Sigmoid(), rows(3, 5, size=5.0)),
    Case("Tanh", lambda: nn.Tanh(), rows(3, 5, size=5.0)),
    Case("Softplus", lambda: nn.Softplus(), rows(3, 5, size=10.0)),
    Case("Softmax", lambda: nn.Softmax(-1), rows(2, 6)),
    Case("LogSoftmax", lambda: nn.LogSoftmax(-1), rows(2, 6)),
    Case("Hardswish", lambda: nn.Hardswish(), rows(3, 5)),
]


class Attention(nn.Module):
    """Self-attention of one sequence."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.MultiheadAttention(4, 2, batch_first=True)

    def forward(self, x: Any) -> Any:
        return self.inner(x, x, x, need_weights=False)[0]


#: Losses; labels and targets are secret as well.
LOSSES = [
    Case("MSELoss", lambda: nn.MSELoss(), two(3, 4)),
    Case("L1Loss", lambda: nn.L1Loss(), two(3, 4)),
    Case("SmoothL1Loss", lambda: nn.SmoothL1Loss(), two(3, 4)),
    Case("HuberLoss", lambda: nn.HuberLoss(), two(3, 4)),
    Case("CrossEntropyLoss", lambda: nn.CrossEntropyLoss(), labelled(5)),
    Case("CrossEntropyLoss, smoothed", lambda: nn.CrossEntropyLoss(label_smoothing=0.1), labelled(5)),
    Case("BCELoss", lambda: nn.BCELoss(), chances, 5e-4, 0.01),
    Case("BCEWithLogitsLoss", lambda: nn.BCEWithLogitsLoss(), lambda: (torch.randn(4) * 9, torch.ones(4))),
    Case("SoftMarginLoss", lambda: nn.SoftMarginLoss(), lambda: (torch.randn(4) * 9, torch.ones(4))),
    Case(
        "KLDivLoss",
        lambda: nn.KLDivLoss(reduction="sum"),
        lambda: (torch.randn(4), torch.rand(4) + 0.1),
        2e-4,
    ),
    Case("CosineEmbeddingLoss", lambda: Cosine(), two(3, 4), 2e-4, 5e-4),
]


class Cosine(nn.Module):
    """The loss of pairs that belong together."""

    def forward(self, x: Any, y: Any) -> Any:
        return nn.functional.cosine_embedding_loss(x, y, torch.ones(x.shape[0]))


@dataclass(frozen=True)
class Trained:
    """An optimizer: how it is made, and by how much parameters may be off after TRAINING_STEPS steps."""

    name: str
    make: Callable[[Any], Any]
    error: float = 1e-3
    refused: str = ""


OPTIMIZERS = [
    Trained("SGD", lambda p: O.SGD(p, lr=0.1)),
    Trained("SGD, Nesterov", lambda p: O.SGD(p, lr=0.05, momentum=0.9, nesterov=True, weight_decay=1e-3)),
    Trained("Adam", lambda p: O.Adam(p, lr=0.01)),
    Trained("Adam, amsgrad", lambda p: O.Adam(p, lr=0.01, amsgrad=True)),
    Trained("AdamW", lambda p: O.AdamW(p, lr=0.01)),
    Trained("NAdam", lambda p: O.NAdam(p, lr=0.01)),
    Trained("RAdam", lambda p: O.RAdam(p, lr=0.01)),
    Trained("Adamax", lambda p: O.Adamax(p, lr=0.01)),
    Trained("Adagrad", lambda p: O.Adagrad(p, lr=0.05), 2e-3),
    Trained("Adadelta", lambda p: O.Adadelta(p)),
    Trained("RMSprop", lambda p: O.RMSprop(p, lr=0.01), 3e-3),
    Trained("RMSprop, centered", lambda p: O.RMSprop(p, lr=0.01, centered=True, momentum=0.5), 5e-3),
    Trained("ASGD", lambda p: O.ASGD(p, lr=0.05)),
    Trained("Rprop", lambda p: O.Rprop(p), refused="signs of products of gradients"),
    Trained("LBFGS", lambda p: O.LBFGS(p), refused="values of the loss"),
    Trained("Adafactor", lambda p: O.Adafactor(p), refused="products of averages"),
]


# -- the page ------------------------------------------------------------------------------------------------


def _table(cases: list[Case], first: str) -> list[str]:
    lines = [
        f"| {first} | result | gradient | secret weights, 2 and 3 holders | public weights, 2 and 3 holders |",
        "|---|---|---|---|---|",
    ]
    for case in cases:
        has_weights = any(True for _ in case.make().parameters())
        public = "no weights" if not has_weights else "yes" if case.public is True else f"no: {case.public}"
        secret = "yes" if has_weights else "no weights"
        lines.append(f"| {case.name} | {case.forward:g} | {case.gradient:g} | {secret} | {public} |")
    return lines


def page() -> str:
    """docs/secrets_coverage.md."""
    lines = [
        "# What works on secrets",
        "",
        "Every row is a test (`tests/mpc/test_edges_coverage.py`), which also keeps this page current. Data is secret,",
        f"among two and among three holders, with `base={BASE}, precision_fractional={DIGITS}`. Gradients are those of",
        "data and weights. The numbers are the largest errors allowed, against torch in floating point, for data of",
        "size 1 unless said otherwise.",
        "",
        "## Layers",
        "",
        *_table(LAYERS, "layer"),
        "",
        "## Losses",
        "",
        "Labels and targets are secret as well.",
        "",
        *_table(LOSSES, "loss"),
        "",
        "## Optimizers",
        "",
        f"The largest error of a parameter after {TRAINING_STEPS} steps of a linear model, two and three holders.",
        "",
        "| optimizer | error |",
        "|---|---|",
        *(
            f"| {one.name} | {'refused: ' + one.refused if one.refused else f'{one.error:g}'} |"
            for one in OPTIMIZERS
        ),
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(page(), end="")
