"""The audits have power: they find no more than was claimed, and do find what is a few times broken.

An audit that finds nothing proves little if it would find nothing in a broken mechanism either. So each mechanism is
looked at twice: as it is, and as it would be with several times the epsilon, which has to be found out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from syft.dp.accounting import Accountant, Gaussian
from syft.dp.audit import epsilon_lower_bound
from syft.dp.dpsgd import PrivateTraining, make_private
from syft.dp.release_mechanisms import Request, answer, settle
from syft.mpc.randomness import Stream

pytestmark = pytest.mark.chance

torch.set_num_threads(1)

Read = Callable[[Any], float]
MANY = 12
#: name -> (neighbours that differ as much as they can, the number of an answer that is looked at, options, runs, how many
#: times the claimed epsilon is found out with so many)
ASKED: dict[str, tuple[Any, Any, Read, dict[str, Any], int, float]] = {
    "laplace": ([0.0, 0.0], [0.0, 1.0], float, {"bounds": (0, 1)}, 800, 3.0),
    "mean": ([0.5] * 20 + [0.0], [0.5] * 20 + [1.0], float, {"bounds": (0, 1)}, 800, 3.0),
    "count": ([1.0, 1.0, 0.0], [1.0, 1.0, 1.0], float, {}, 800, 4.0),
    "histogram": ([0.1] * 3, [0.1, 0.1, 0.9], lambda h: float(h[0] - h[1]), {"edges": [0, 0.5, 1]}, 800, 4.0),
    "gaussian": ([0.0, 0.0], [0.0, 1.0], float, {"bounds": (0, 1), "delta": 1e-2}, 1200, 6.0),
    "variance": ([0.5] * 4, [0.5] * 3 + [1.0], float, {"bounds": (0, 1)}, 800, 10.0),
    "quantile": ([0.0] * 5, [0.0] * 4 + [1.0], float, {"bounds": (0, 1), "fraction": 1.0, "candidates": 11}, 1500, 10.0),
    "exponential": ([[1.0] + [0.0] * MANY], [[0.0] + [1.0] * MANY], float, {"bounds": (0, 1)}, 1500, 4.0),
    "noisy_max": ([[1.0] + [0.0] * MANY], [[0.0] + [1.0] * MANY], float, {"bounds": (0, 1)}, 1500, 4.0),
}  # fmt: skip


def found(name: str, times: float) -> float:
    """What an attacker finds in the mechanism with so many times the epsilon of 1 that is claimed."""
    one, other, read, options, runs, _ = ASKED[name]
    options = dict(options)
    delta = options.pop("delta", 0.0)
    seen = []
    for rows in (one, other):
        values = torch.tensor(rows, dtype=torch.float64)
        request = Request(name, times, delta, options, tuple(values.shape))
        settle(request, values.dtype)
        seen.append([read(answer(values, request)) for _ in range(runs)])
    return epsilon_lower_bound(*seen, delta=delta)


#: Made of the same noise as others that are tried each time.
ALIKE = ("mean", "variance", "exponential", "count")


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[pytest.mark.slow] if n in ALIKE else []) for n in ASKED]
)
def test_a_release_is_worth_what_it_costs_and_a_broken_one_is_found_out(name: str) -> None:
    assert found(name, 1.0) <= 1.0
    assert found(name, ASKED[name][-1]) > 1.0


class TooLittleNoise(PrivateTraining):
    """Charges for the noise it was made with, and adds a part of it."""

    part = 0.3

    @property
    def sensitivity(self) -> float:
        return self.part * super().sensitivity


@pytest.mark.parametrize(
    ("part", "runs"),
    [
        (1.0, 400),
        (0.1, 600),
        pytest.param(1.0, 6000, marks=pytest.mark.slow),
        pytest.param(0.5, 6000, marks=pytest.mark.slow),
    ],
)
def test_two_steps_on_drawn_batches_betray_no_more_than_epsilon_and_with_a_part_of_the_noise_do(
    part: float, runs: int
) -> None:
    """The whole way: Poisson batches, clipping, noise, the optimizer. One row may be the canary; the other is still."""
    claimed = Accountant("pld").compose(Gaussian(1.0, 0.5), 2).epsilon(1e-2)
    scores: list[list[float]] = []
    for number, canary in enumerate((100.0, 0.0)):
        model = nn.Linear(1, 1, bias=False)
        data = TensorDataset(torch.tensor([[0.0], [canary]]), torch.tensor([[0.0], [1e6]]))
        training = make_private(
            model,
            torch.optim.SGD(model.parameters(), lr=1.0),
            DataLoader(data, batch_size=1),
            loss_fn=nn.MSELoss(),
            noise_multiplier=1.0,
        )
        training.stream = training.loader._stream = Stream(bytes([number]) * 16)
        if part < 1:
            training.__class__ = TooLittleNoise
            training.part = part  # type: ignore[attr-defined]
        scores.append([])
        for _ in range(runs):
            nn.init.zeros_(model.weight)
            for inputs, targets in training.loader:
                training.step(inputs, targets)
            scores[-1].append(float(model.weight.detach()))
        assert training.accountant.spent == {Gaussian(1.0, 0.5): 2 * runs}
    assert (epsilon_lower_bound(*scores, delta=1e-2) > claimed) is (part < 1)
