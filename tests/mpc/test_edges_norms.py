"""Norms of any deviation, and losses of confident mistakes, keep the errors that docs/secrets.md states."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from mpc.edges import FORMS, PRECISIONS, Secrets, assert_close, both


@pytest.fixture(params=PRECISIONS, ids=["base 2", "base 10"])
def precision(request: Any) -> Any:
    return request.param


@pytest.fixture(params=FORMS)
def secrets(request: Any, make_worker: Any, precision: Any) -> Secrets:
    return Secrets(make_worker, FORMS[request.param], precision)


NORMS = {
    "batch": lambda x: F.batch_norm(x.t(), None, None, training=True, eps=1e-4).t(),
    "layer": lambda x: F.layer_norm(x, x.shape[-1:], eps=1e-4),
    "group": lambda x: F.group_norm(x.unsqueeze(1), 1, eps=1e-4).squeeze(1),
    "rms": lambda x: F.rms_norm(x, x.shape[-1:], eps=1e-4),
}


@pytest.mark.parametrize("name", NORMS)
def test_norms_of_every_deviation(name: str, secrets: Secrets) -> None:
    """Rows of deviations from 20 units to the largest allowed, each around a mean of its own size."""
    torch.manual_seed(5)
    count, unit = 24, secrets.unit
    deviations = torch.logspace(
        math.log10(20 * unit), math.log10(2.0**15 / math.sqrt(count) / 2), 12
    ).double()
    x = torch.randn(12, count, dtype=torch.float64) * deviations.view(-1, 1)
    x = x if name == "rms" else x + deviations.view(-1, 1)
    weights = torch.linspace(-1, 1, count, dtype=torch.float64)
    values, (slope,) = both(lambda x: NORMS[name](x) * weights, secrets, x)
    inverse = 1 / torch.sqrt(secrets.encoded(x).var(-1, correction=0, keepdim=True) + 1e-4)
    assert_close(values, 2.0**-17 * values[1].abs() + unit * (4 + 2 * inverse), x)
    largest = slope[1].abs().amax(-1, keepdim=True)
    assert_close(slope, 2.0**-15 * largest + unit * (4 + inverse + 2 * inverse**2), x)


def _rms_by_hand(x: Any) -> Any:
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-4)


def _layer_by_hand(x: Any) -> Any:
    off = x - x.mean(-1, keepdim=True)
    return off / torch.sqrt((off * off).mean(-1, keepdim=True) + 1e-4)


WRITTEN_OUT = {
    "rms": _rms_by_hand,
    "rms by a power": lambda x: x * (torch.square(x).mean(-1, True) + 1e-4) ** -0.5,
    "layer": _layer_by_hand,
}


@pytest.mark.parametrize("name", WRITTEN_OUT)
def test_norms_that_are_written_out_keep_the_squares_of_small_numbers(name: str, secrets: Secrets) -> None:
    """Rows of deviations from 5 units on. Their squares are below a unit, and the least eps is, too."""
    torch.manual_seed(7)
    count, unit = 32, secrets.unit
    deviations = torch.logspace(math.log10(5 * unit), 2, 12).double().view(-1, 1)
    x = torch.randn(12, count, dtype=torch.float64) * deviations
    exact = secrets.encoded(x)
    wanted, got = WRITTEN_OUT[name](exact), secrets.plain(WRITTEN_OUT[name](secrets(x)))
    variance = (
        (exact - exact.mean(-1, keepdim=True) if name == "layer" else exact).square().mean(-1, keepdim=True)
    )
    inverse = 1 / torch.sqrt(variance + 1e-4)
    # Of the inverse: 1 unit. Of the variance: 2 of its units, which are units squared, and for base 10 eps has those.
    of_variance = 2 * unit**2 * inverse**2
    assert_close(
        (got, wanted), exact.abs() * (unit + inverse * (of_variance + 2.0**-17)) + unit * (4 + 2 * inverse)
    )


def test_a_mean_of_squares_has_the_digits_of_a_variance_and_all_others_are_as_they_were(
    secrets: Secrets,
) -> None:
    torch.manual_seed(8)
    small = 3 * secrets.unit * torch.randn(6, 50, dtype=torch.float64)
    exact, secret = secrets.encoded(small), secrets(small)
    along = secrets.plain((secret * secret).mean(1))
    assert_close((along, exact.square().mean(1)), 2 * secrets.unit**2)
    assert not secrets.plain(secret.square()).abs().gt(9 * 9 * secrets.unit**2 + secrets.unit).any()
    written = secret**2
    written += 1
    assert_close((secrets.plain(written.mean(1)), 1 + exact.square().mean(1)), 3 * secrets.unit)


def test_the_mean_of_many_large_squares_fits(secrets: Secrets) -> None:
    """So many that the sum of the products would not fit before its truncation."""
    large = torch.full((2, 300_000), 255.0, dtype=torch.float64)
    got = secrets.plain((secrets(large) ** 2).mean(1))
    assert_close((got, torch.full((2,), 255.0**2, dtype=torch.float64)), 2 * secrets.unit)


def test_gradients_of_a_norm_that_is_written_out(secrets: Secrets) -> None:
    torch.manual_seed(9)
    x = torch.randn(4, 16, dtype=torch.float64)
    weights = torch.linspace(-1, 1, 16, dtype=torch.float64)
    values, (slope,) = both(lambda x: _rms_by_hand(x) * weights, secrets, x)
    assert_close(values, 16 * secrets.unit)
    assert_close(slope, 64 * secrets.unit)


def test_batch_norm_keeps_small_running_variances(secrets: Secrets) -> None:
    torch.manual_seed(1)
    deviation = 30 * secrets.unit
    x = torch.randn(40, 3, dtype=torch.float64) * deviation
    layer = nn.BatchNorm1d(3, momentum=0.5).double()
    layer.running_var.fill_(deviation**2)
    hidden = nn.BatchNorm1d(3, momentum=0.5).double()
    hidden.running_var.fill_(deviation**2)
    secrets.module(hidden)
    exact = secrets.encoded(x)
    layer(exact)
    hidden(secrets(x))
    wanted, got = layer.eval()(exact), secrets.plain(hidden.eval()(secrets(x)).detach())
    assert_close((got, wanted.detach()), 0.1)
    variance = secrets.plain(hidden.running_var)
    assert ((variance - layer.running_var).abs() <= 0.05 * layer.running_var).all()


def test_the_loss_of_a_confident_mistake(secrets: Secrets) -> None:
    """Probabilities from one unit on: value and gradient are torch's."""
    unit = secrets.unit
    inside = torch.logspace(math.log10(unit), math.log10(0.5), 20).double()
    p = torch.cat([inside, 1 - inside])
    exact = secrets.encoded(p)
    for label in (0.0, 1.0):
        target = torch.full_like(exact, label)
        values, (slope,) = both(
            lambda p, t=target: F.binary_cross_entropy(p, t, reduction="none"), secrets, p
        )
        assert_close(values, 2.0**-21 + 3.1 * unit, exact)
        assert_close(slope, 2.0**-17 * slope[1].abs() + 2.1 * unit, exact)
        hidden = secrets.plain(F.binary_cross_entropy(secrets(p), secrets(target), reduction="none"))
        assert_close((hidden, values[1]), 2.0**-21 + 12 * unit)


def test_the_loss_of_a_certain_mistake_ends_at_that_of_one_unit(secrets: Secrets) -> None:
    p = torch.tensor([0.0, 1.0, 0.0, 1.0], dtype=torch.float64)
    target = torch.tensor([1.0, 0.0, 0.0, 1.0], dtype=torch.float64)
    losses = secrets.plain(F.binary_cross_entropy(secrets(p), target, reduction="none"))
    most = math.log(secrets.scale)
    wanted = torch.tensor([most, most, secrets.unit, secrets.unit], dtype=torch.float64)
    assert_close((losses, wanted), 4 * secrets.unit)


def test_logits_of_confident_mistakes_of_any_size(secrets: Secrets) -> None:
    x = torch.tensor([-1e6, -500.0, -20.0, -16.0, 0.0, 12.0, 17.0, 30.0, 1e6], dtype=torch.float64)
    for label in (0.0, 1.0):
        target = torch.full_like(x, label)
        values, (slope,) = both(
            lambda x, t=target: F.binary_cross_entropy_with_logits(x, t, reduction="none"), secrets, x
        )
        assert_close(values, 2.0**-16 + 4 * secrets.unit, x)
        assert_close(slope, 2.0**-15 + 4 * secrets.unit, x)
