"""Every layer, loss and optimizer of docs/secrets_coverage.md gives on secrets what it gives plainly."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from mpc.coverage import BASE, DIGITS, LAYERS, LOSSES, OPTIMIZERS, TRAINING_STEPS, Case, Trained, page
from mpc.edges import Secrets
from syft.exceptions import UnsupportedOperationError

PAGE = Path(__file__).parents[2] / "docs" / "secrets_coverage.md"


@pytest.fixture(params=[2, 3], ids=["two holders", "three holders"])
def secrets(request: Any, make_worker: Any) -> Secrets:
    return Secrets(make_worker, request.param, (BASE, DIGITS))


def test_the_page_lists_what_is_tested_here() -> None:
    assert PAGE.read_text() == page(), (
        "write it anew: cd tests; python -m mpc.coverage > ../docs/secrets_coverage.md"
    )


def run(module: Any, inputs: Any, weights: Any = None) -> tuple[Any, Any]:
    out = module(*inputs)
    out = out[0] if isinstance(out, tuple) else out
    weights = torch.randn(out.shape) if weights is None else weights
    (out * weights).sum().backward()
    return out.detach(), weights


def largest(pairs: Any) -> float:
    return max((float((a - b).abs().max()) for a, b in pairs), default=0.0)


def learns(case: Case, index: int, x: Any) -> bool:
    """Whether an input collects a gradient: not indices, nor the targets of a loss."""
    return bool(x.is_floating_point()) and (case not in LOSSES or index == 0)


def compare(case: Case, secrets: Secrets, secret_weights: bool) -> None:
    torch.manual_seed(3)
    module = case.make()
    hidden = copy.deepcopy(module)
    inputs = [x.requires_grad_(learns(case, i, x)) for i, x in enumerate(case.inputs())]
    out, weights = run(module, inputs)
    given = [secrets(x.detach()) for x in inputs]
    given = [x.requires_grad_(learns(case, i, x)) for i, x in enumerate(given)]
    if secret_weights:
        secrets.module(hidden)
    got, _ = run(hidden, given, weights)
    assert largest([(secrets.plain(got), out)]) <= case.forward
    pairs = [
        (secrets.plain(g.grad), x.grad) for g, x in zip(given, inputs, strict=True) if x.grad is not None
    ]
    if secret_weights:
        parameters = zip(hidden.parameters(), module.parameters(), strict=True)
        pairs += [(secrets.plain(h.grad), p.grad) for h, p in parameters]
    assert largest(pairs) <= case.gradient
    assert pairs


@pytest.mark.parametrize("case", [*LAYERS, *LOSSES], ids=lambda case: case.name)
def test_a_layer_or_loss_with_secret_weights(case: Case, secrets: Secrets) -> None:
    compare(case, secrets, secret_weights=True)


@pytest.mark.parametrize(
    "case", [c for c in LAYERS if any(True for _ in c.make().parameters())], ids=lambda case: case.name
)
def test_a_layer_with_public_weights(case: Case, secrets: Secrets) -> None:
    if case.public is True:
        compare(case, secrets, secret_weights=False)
    else:
        with pytest.raises((UnsupportedOperationError, TypeError, ValueError)):
            compare(case, secrets, secret_weights=False)


# What three holders compute is asked of each layer above, and of whole trainings in test_shared_training.py.
@pytest.mark.parametrize(
    "secrets",
    [2, pytest.param(3, marks=pytest.mark.slow)],
    ids=["two holders", "three holders"],
    indirect=True,
)
@pytest.mark.parametrize("optimizer", OPTIMIZERS, ids=lambda optimizer: optimizer.name)
def test_an_optimizer_goes_where_it_goes_plainly_or_refuses(optimizer: Trained, secrets: Secrets) -> None:
    torch.manual_seed(0)
    x = torch.randn(16, 4)
    y = x @ torch.randn(4, 1) * 0.5
    model = nn.Linear(4, 1)
    hidden = secrets.module(copy.deepcopy(model))
    runs = [(model, optimizer.make(model.parameters()), x, y)]
    runs.append((hidden, optimizer.make(hidden.parameters()), secrets(x), secrets(y)))
    if optimizer.refused:
        with pytest.raises(UnsupportedOperationError, match=optimizer.refused):
            step(*runs[1])
        return
    before = [p.detach().clone() for p in model.parameters()]
    for _ in range(TRAINING_STEPS):
        for one in runs:
            step(*one)
    after = [p.detach() for p in model.parameters()]
    assert largest(zip(before, after, strict=True)) > 2 * optimizer.error
    pairs = [(secrets.plain(h.detach()), p) for h, p in zip(hidden.parameters(), after, strict=True)]
    assert largest(pairs) <= optimizer.error


def step(model: Any, optimizer: Any, x: Any, y: Any) -> None:
    def closure() -> Any:
        optimizer.zero_grad()
        loss = ((model(x) - y) ** 2).mean()
        loss.backward()
        return loss

    if isinstance(optimizer, torch.optim.LBFGS):
        optimizer.step(closure)
    else:
        closure()
        optimizer.step()
