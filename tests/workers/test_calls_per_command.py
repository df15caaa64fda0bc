"""What commands in one process cost, in calls of Python functions: times depend on the machine, these do not.

The limits are about a tenth above what was counted when they were written. Raise one only with a reason beside it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import syft as sy
from call_counts import calls_of_python
from syft.policy.caller import speaking_for
from syft.policy.permissions import Policy


def _mlp() -> Any:
    return torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2))


def _adding(worker: Any) -> Callable[[], Any]:
    x, y = torch.ones(10).send(worker), torch.ones(10).send(worker)  # type: ignore[attr-defined]
    return lambda: x + y


def _adding_in_place(worker: Any) -> Callable[[], Any]:
    x, y = torch.ones(10).send(worker), torch.ones(10).send(worker)  # type: ignore[attr-defined]
    z = x + y
    return lambda: z.add_(y)


def _looking(worker: Any) -> Callable[[], Any]:
    x = torch.ones(10).send(worker)  # type: ignore[attr-defined]
    return lambda: x.view(5, 2)


def _sending(worker: Any) -> Callable[[], Any]:
    x = torch.ones(10)
    return lambda: x.send(worker).get()  # type: ignore[attr-defined]


def _travelling(worker: Any) -> Callable[[], Any]:
    model = _mlp()
    return lambda: model.send(worker).get()


def _calling(worker: Any) -> Callable[[], Any]:
    plan = sy.func2plan(args_shape=[(-1, 8)])(_mlp()).send(worker)
    data = torch.randn(5, 8).send(worker)  # type: ignore[attr-defined]

    def call() -> None:
        with torch.no_grad():
            plan(data)

    return call


def _training(worker: Any) -> Callable[[], Any]:
    model = _mlp().send(worker)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    data, target = torch.randn(5, 8).send(worker), torch.zeros(5, dtype=torch.int64).send(worker)  # type: ignore[attr-defined]

    def step() -> None:
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(data), target).backward()
        optimizer.step()

    return step


def _recurrent(worker: Any) -> Callable[[], Any]:
    layer = torch.nn.LSTM(8, 16).send(worker)  # type: ignore[operator]
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    data = torch.randn(5, 4, 8).send(worker)  # type: ignore[attr-defined]

    def step() -> None:
        optimizer.zero_grad()
        layer(data)[0].sum().backward()
        optimizer.step()

    return step


#: What is done, and how many calls it may take on an open worker and on one that denies by default.
LIMITS = {
    _adding: (14, 28),
    _adding_in_place: (11, 24),
    _looking: (14, 32),
    _sending: (87, 104),
    _travelling: (205, 570),
    _calling: (64, 80),
    _training: (276, 1090),
    _recurrent: (1120, 1890),
}


@pytest.mark.parametrize("made", LIMITS)
@pytest.mark.parametrize("denies", [False, True])
def test_a_command_costs_few_calls(hook: Any, made: Callable[[Any], Callable[[], Any]], denies: bool) -> None:
    worker = sy.VirtualWorker(hook, id="counted", auto_add=False, policy=Policy(allows_by_default=not denies))
    with speaking_for("ann"):
        run = made(worker)
        run()
        assert calls_of_python(run, 20) <= LIMITS[made][denies]
