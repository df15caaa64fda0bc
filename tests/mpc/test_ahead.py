"""`sy.mpc.provide()`: the provider deals before the data is there, and hears nothing of the calls that take it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import syft as sy
from mpc.network_parties import Parties
from syft.exceptions import QuotaExceededError
from syft.mpc.group import Group
from syft.mpc.network.membership import TakenAhead
from syft.workers.virtual import VirtualWorker

HALF = dict(base=2, precision_fractional=16)
SHAPE = (2, 1, 6, 6)


@pytest.fixture
def near(hook: Any, me: Any) -> list[Any]:
    return [VirtualWorker(hook, id=f"ahead-{n}") for n in range(3)]


@pytest.fixture
def parties(hook: Any, me: Any) -> Any:
    made = Parties(hook, ("alice", "bob", "carol"))
    with made.closing:
        made.introduce()
        yield made


@pytest.fixture
def far(parties: Parties) -> list[Any]:
    client = parties.client()
    return [*client.holders, client.provider]


def shared(value: Any, workers: list[Any]) -> Any:
    return value.fix_precision(**HALF).share(*workers[:-1], crypto_provider=workers[-1])


def net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 2, 3),
        nn.BatchNorm2d(2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(8, 3),
        nn.Sigmoid(),
    ).eval()


@pytest.mark.parametrize("where", ["near", "far"])
def test_calls_take_what_was_dealt_and_the_provider_deals_nothing(
    where: str, request: pytest.FixtureRequest
) -> None:
    workers = request.getfixturevalue(where)
    plain, x = net(), torch.rand(SHAPE)
    model, group = shared(net(), workers), Group.of(workers[:-1], workers[-1])
    with torch.no_grad():
        expected = plain(x)
        provided = sy.mpc.provide(model, SHAPE, count=2)
        assert provided.calls == 2 and provided.correlations > 5 and provided.bytes > 1000
        dealt = []
        for _ in range(3):
            data = shared(x, workers)
            group.reset_costs()
            assert (model(data).get().float_precision() - expected).abs().max() < 1e-3
            dealt.append(group.offline.correlations)
    # NB: a mask alone is drawn by the holders.
    assert dealt[:2] == [0, 0] and dealt[2] >= provided.correlations - 1


def test_online_no_command_goes_to_the_provider(far: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    model = shared(net(), far)
    with torch.no_grad():
        sy.mpc.provide(model, SHAPE)
        data, said = shared(torch.rand(SHAPE), far), []
        tell = type(far[-1])._recv_msg

        def telling(self: Any, message: Any, *rest: Any) -> Any:
            if self is far[-1]:
                said.append(message)
            return tell(self, message, *rest)

        monkeypatch.setattr(type(far[-1]), "_recv_msg", telling)
        first = model(data).get().float_precision()
        assert not said
        second = model(data).get().float_precision()
        assert said  # what was dealt is used up
    assert (first - second).abs().max() < 1e-3


def test_what_was_dealt_is_different_for_each_call(near: list[Any]) -> None:
    """Masks of the data are new, or two calls would show the difference of their inputs."""
    model = shared(nn.Linear(4, 2), near)
    provider = Group.of(near[:-1], near[-1]).driver.provider
    with torch.no_grad():
        sy.mpc.provide(model, (1, 4), count=3)
    masks = [
        deal.parts[0][0] for (kind, _), deals in provider._ready.items() for deal in deals if not kind.derived
    ]
    assert len(masks) == 3
    assert all(not torch.equal(a, b) for i, a in enumerate(masks) for b in masks[:i])


def test_a_plan_provides_for_its_calls(near: list[Any]) -> None:
    class Net(sy.Plan):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.relu(self.layer(x))

    plan, x = Net(), torch.rand(2, 4)
    plan.build(torch.zeros(2, 4))
    expected = plan(x).detach()
    plan.fix_precision_(**HALF).share_(*near[:-1], crypto_provider=near[-1])
    group = Group.of(near[:-1], near[-1])
    with torch.no_grad():
        assert plan.provide(2, (2, 4)).calls == 2
        group.reset_costs()
        for _ in range(2):
            assert (plan(shared(x, near)).get().float_precision() - expected).abs().max() < 1e-3
        assert group.offline.correlations == 0


def test_a_function_is_given_secrets(near: list[Any]) -> None:
    x = shared(torch.rand(5), near)
    group = Group.of(near[:-1], near[-1])
    sy.mpc.provide(lambda secret: torch.exp(secret) * secret, x, count=1)
    group.reset_costs()
    torch.exp(x) * x
    assert group.offline.correlations == 0


def test_what_cannot_be_provided_for_is_refused(near: list[Any]) -> None:
    with pytest.raises(ValueError, match="Share the model first"):
        sy.mpc.provide(nn.Linear(2, 2), (1, 2))
    for count in (0, -1, 2.0, True):
        with pytest.raises(ValueError, match="number of calls"):
            sy.mpc.provide(nn.Linear(2, 2), (1, 2), count=count)


def test_a_call_of_another_shape_is_dealt_for_when_it_comes(far: list[Any]) -> None:
    model = shared(nn.Linear(4, 2), far)
    plain = nn.Linear(4, 2)
    with torch.no_grad():
        for p, q in zip(plain.parameters(), model.parameters(), strict=True):
            p.copy_(q.clone().get().float_precision())
        sy.mpc.provide(model, (1, 4))
        x = torch.rand(3, 4)
        assert (model(shared(x, far)).get().float_precision() - plain(x)).abs().max() < 1e-3


# -- who pays for it -------------------------------------------------------------------------------------------------


def charged(parties: Parties, name: str) -> list[TakenAhead]:
    return [one for one in parties.servers[name]._objects.values() if type(one) is TakenAhead]


def test_the_user_is_charged_until_it_is_used(parties: Parties, far: list[Any]) -> None:
    model = shared(nn.Linear(64, 32), far)
    server = parties.servers["alice"]

    def used() -> int:
        far[0].sync()
        return sum(one.bytes for one in server._holdings.quotas.users().values())

    with torch.no_grad():
        model(shared(torch.rand(16, 64), far)).get()
        before = used()
        provided = sy.mpc.provide(model, (16, 64), count=2)
        assert used() - before >= provided.bytes * 0.9
        assert len(charged(parties, "alice")) == 2
        for left in (1, 0):
            model(shared(torch.rand(16, 64), far)).get()
            far[0].sync()
            assert len(charged(parties, "alice")) == left
    assert used() - before < 0.2 * provided.bytes


def test_what_exceeds_the_quota_is_refused_and_calls_go_on(
    parties: Parties, far: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = shared(nn.Linear(8, 4), far)
    holdings = parties.servers["alice"]._holdings
    x = torch.rand(32, 8)
    with torch.no_grad():
        data = shared(x, far)
        first = model(data).get().float_precision()
        most = sum(one.bytes for one in holdings.quotas.users().values()) + 20_000
        quota = type(holdings.quotas.quota_of(None))
        monkeypatch.setattr(holdings.quotas, "quota_of", lambda _user: quota(None, most))
        with pytest.raises(QuotaExceededError, match=r"more on this worker|is the most"):
            sy.mpc.provide(model, (32, 8), count=50)
        monkeypatch.undo()
        for _ in range(30):  # what was dealt before the quota was reached, and on
            assert (model(data).get().float_precision() - first).abs().max() < 1e-3
