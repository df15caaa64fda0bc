"""Calls of plans that repeat on a worker that denies by default: the same happens with what is remembered and without."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional as F

import syft as sy
from syft.core.memory import CACHES
from syft.exceptions import (
    ComputeNotPermittedError,
    PlanArgumentsError,
    QuotaExceededError,
    RemoteError,
    SendNotPermittedError,
)
from syft.operations.slots import Steps
from syft.policy.caller import speaking_for
from syft.policy.permissions import Policy
from syft.policy.quotas import Quota


@pytest.fixture
def replays(monkeypatch: pytest.MonkeyPatch) -> list[Steps]:
    """Every run of steps that were remembered."""
    found: list[Steps] = []
    compute = Steps.compute

    def noted(self: Steps, *args: Any) -> Any:
        found.append(self)
        return compute(self, *args)

    monkeypatch.setattr(Steps, "compute", noted)
    return found


class _Strict(Policy):
    """Denies by default; what a user may hold, and who may compute, can change at any time."""

    def __init__(self) -> None:
        super().__init__(allows_by_default=False)
        self.quota, self.computes = Quota(), True

    def quota_of(self, user: str | None) -> Quota:
        return self.quota

    def check_compute(self, user: str | None, obj_id: Any, about: Any) -> None:
        if not self.computes:
            raise ComputeNotPermittedError("not now")


def _worker(hook: Any) -> Any:
    return sy.VirtualWorker(hook, id="strict", auto_add=False, policy=_Strict())


def _mlp(seed: int = 1) -> torch.nn.Module:
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(8, 6), torch.nn.ReLU(), torch.nn.Linear(6, 3))


def _batches(count: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    draw = torch.Generator().manual_seed(2)
    return [(torch.randn(5, 8, generator=draw), torch.randint(3, (5,), generator=draw)) for _ in range(count)]


def _training(worker: Any, model: Any, optimizer: Any) -> Any:
    kinds = [torch.float32, torch.int64]
    return sy.Plan.training(model, F.cross_entropy, optimizer, [(-1, 8), (-1,)], kinds).send(worker)


def _trained(hook: Any, make: Callable[[Any], Any], rates: list[float]) -> tuple[list[float], list[Any]]:
    worker, model = _worker(hook), _mlp()
    optimizer = make(model.parameters())
    with speaking_for("ann"):
        plan = _training(worker, model, optimizer)
        losses = []
        for (x, y), rate in zip(_batches(len(rates)), rates, strict=True):
            optimizer.param_groups[0]["lr"] = rate
            losses.append(plan(x.send(worker), y.send(worker)).get().item())  # type: ignore[attr-defined]
        return losses, [t.get() for t in plan.parameters()]


OPTIMIZERS: dict[str, Callable[[Any], Any]] = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1),
    "decayed": lambda p: torch.optim.SGD(p, lr=0.1, weight_decay=0.1, maximize=True),
    "momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_steps_of_training_are_those_of_torch(hook: Any, name: str, replays: list[Steps]) -> None:
    rates = [0.1, 0.1, 0.2, 0.1, 0.2, 0.2, 0.3, 0.4, 0.5, 0.1]
    kept, parameters = _trained(hook, OPTIMIZERS[name], rates)
    # Steps that depend on what an optimizer keeps are not remembered.
    assert len(replays) == (5 if name in ("sgd", "decayed") else 0)
    count = len(replays)
    with CACHES.off():
        anew, others = _trained(hook, OPTIMIZERS[name], rates)
    assert len(replays) == count
    assert kept == anew
    assert all(torch.equal(a, b) for a, b in zip(parameters, others, strict=True))
    model = _mlp()
    optimizer = OPTIMIZERS[name](model.parameters())
    for (x, y), rate, loss in zip(_batches(len(rates)), rates, kept, strict=True):
        optimizer.param_groups[0]["lr"] = rate
        optimizer.zero_grad()
        found = F.cross_entropy(model(x), y)
        assert found.item() == loss
        found.backward()
        optimizer.step()
    assert all(torch.equal(a, b) for a, b in zip(parameters, model.parameters(), strict=True))


def test_a_step_that_fails_fails_as_one_that_is_run_anew(hook: Any, replays: list[Steps]) -> None:
    """A label that there is not: who may fetch is told, and who may not gets zeros and nothing else."""

    def run(may_fetch: bool) -> tuple[Any, ...]:
        worker, model = _worker(hook), _mlp()
        with speaking_for("owner"):
            wrong = torch.full((5,), 9).send(worker)  # type: ignore[attr-defined]
        if not may_fetch:
            worker._entries[wrong.child.id_at_location].computers = frozenset({"ann"})
        with speaking_for("owner" if may_fetch else "ann"):
            x, y = (part.send(worker) for part in _batches(1)[0])  # type: ignore[attr-defined]
            plan = _training(worker, model, torch.optim.SGD(model.parameters(), lr=0.1))
            plan(x, y), plan(x, y)
            told = None
            try:
                plan(x, wrong)
            except RemoteError as error:
                told = str(error)
            entries = [worker._entries[t.child.id_at_location] for t in plan.state]
            return told, [(e.failure, e.allowed, e.value.clone()) for e in entries]

    for may_fetch in (True, False):
        kept = run(may_fetch)
        with CACHES.off():
            anew = run(may_fetch)
        assert kept[0] == anew[0]
        assert (kept[0] is not None) == may_fetch
        for one, other in zip(kept[1], anew[1], strict=True):
            assert one[:2] == other[:2]
            assert torch.equal(one[2], other[2])
    assert len(replays) == 4


def _calls(worker: Any) -> tuple[Any, Any]:
    plan = sy.func2plan(args_shape=[(-1, 8)])(_mlp()).send(worker)
    x = torch.randn(5, 8).send(worker)  # type: ignore[attr-defined]
    with torch.no_grad():
        for _ in range(2):
            plan(x)
    return plan, x


def test_who_may_compute_and_how_much_is_asked_every_time(hook: Any, replays: list[Steps]) -> None:
    worker = _worker(hook)
    policy = worker.policy
    with speaking_for("ann"), torch.no_grad():
        plan, x = _calls(worker)
        assert len(replays) == 1
        policy.computes = False
        with pytest.raises(ComputeNotPermittedError):
            plan(x)
        policy.computes, policy.quota = True, Quota(max_bytes=1)
        with pytest.raises(QuotaExceededError):
            plan(x)
        assert len(replays) == 1
        policy.quota = Quota()
        plan(x)
        assert len(replays) == 2


def test_what_becomes_restricted_restricts_what_is_computed_from_it(hook: Any, replays: list[Steps]) -> None:
    worker = _worker(hook)
    with speaking_for("ann"), torch.no_grad():
        plan, x = _calls(worker)
        worker._entries[x.child.id_at_location].allowed = frozenset({"ann", "ben"})
        first = plan(x)
        assert worker._entries[first.child.id_at_location].allowed == frozenset({"ann"})
        worker._entries[x.child.id_at_location].allowed = frozenset({"ben"})
        second = plan(x)
        assert worker._entries[second.child.id_at_location].allowed == frozenset()
    assert len(replays) == 3


def test_results_replace_nothing_of_others(hook: Any) -> None:
    worker = _worker(hook)
    with speaking_for("ben"):
        his = torch.ones(2).send(worker)  # type: ignore[attr-defined]
    with speaking_for("ann"), torch.no_grad():
        plan, x = _calls(worker)
        with pytest.raises(SendNotPermittedError):
            plan.request_run_plan(worker, his.child.id_at_location, x)


def test_one_tensor_in_two_places_and_two_that_lie_together(hook: Any, replays: list[Steps]) -> None:
    worker = _worker(hook)

    @sy.func2plan(args_shape=[(4,), (4,)])
    def differ(x: Any, y: Any) -> Any:
        return x * 2 - y

    x = torch.arange(4.0)
    with speaking_for("ann"), torch.no_grad():
        plan = differ.send(worker)
        there = x.send(worker)  # type: ignore[attr-defined]
        same = there.view(4)
        other = (x + 1).send(worker)  # type: ignore[attr-defined]
        for one, two, wanted in [(there, there, x), (there, same, x), (there, other, x - 1)] * 3:
            assert torch.equal(plan(one, two).get(), wanted)
    assert replays


def test_other_shapes_are_other_calls(hook: Any) -> None:
    worker, model = _worker(hook), _mlp()
    with speaking_for("ann"), torch.no_grad():
        plan = sy.func2plan(args_shape=[(-1, 8)])(model).send(worker)
        for rows in (5, 5, 3, 5, 3, 1, 2, 4, 6, 6, 5):
            x = torch.randn(rows, 8)
            assert torch.equal(plan(x.send(worker)).get(), model(x))  # type: ignore[attr-defined]
            assert torch.equal(plan(x.t().contiguous().t().send(worker)).get(), model(x.t().contiguous().t()))  # type: ignore[attr-defined]
        with pytest.raises(PlanArgumentsError):
            plan(torch.ones(5, 7).send(worker))  # type: ignore[attr-defined]


def test_state_that_changed_is_used_as_it_is_now(hook: Any, replays: list[Steps]) -> None:
    worker = _worker(hook)
    with speaking_for("ann"), torch.no_grad():
        plan, x = _calls(worker)
        before = plan(x).get()
        plan.state[-1].add_(1.0)
        assert torch.allclose(plan(x).get(), before + 1)
    assert len(replays) == 3


def test_a_client_that_tracks_gradients_gets_them_after_calls_without(hook: Any) -> None:
    worker = sy.VirtualWorker(hook, id="open", auto_add=False)
    plan = sy.func2plan(args_shape=[(-1, 8)])(_mlp()).send(worker)
    x = torch.randn(5, 8).send(worker)  # type: ignore[attr-defined]
    with torch.no_grad():
        assert not plan(x).requires_grad
        assert not plan(x).requires_grad
    result = plan(x)
    result.sum().backward()
    assert all(p.grad is not None for p in plan.parameters())
