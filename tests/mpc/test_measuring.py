"""`sy.mpc.measure()`: bills add up to what the parties count; `sy.mpc.checked()`: overflow raises where it happens."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import syft as sy
from syft.mpc.group import Group
from syft.mpc.protocols import derived
from syft.workers.virtual import VirtualWorker

HALF = dict(base=2, precision_fractional=16)


@pytest.fixture
def workers(hook: Any, me: Any) -> list[Any]:
    return [VirtualWorker(hook, id=f"measured-{n}") for n in range(3)]


@pytest.fixture
def far(client: Any, me: Any) -> list[Any]:
    return [*client.holders, client.provider]


def shared(value: Any, workers: list[Any], **digits: Any) -> Any:
    return value.fix_precision(**(digits or HALF)).share(*workers[:-1], crypto_provider=workers[-1])


def model_and_data(workers: list[Any]) -> tuple[Any, Any]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(18, 3))
    return shared(model, workers), shared(torch.rand(2, 1, 5, 5), workers)


# -- bills -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["workers", "far"])
def test_a_bill_adds_up_to_what_the_parties_count(where: str, request: pytest.FixtureRequest) -> None:
    parties = request.getfixturevalue(where)
    model, x = model_and_data(parties)
    group = Group.of(parties[:-1], parties[-1])
    group.reset_costs()
    with sy.mpc.measure() as bill:
        model(x).sum().backward()
    total, online, offline = bill.total, group.online, group.offline
    assert (total.rounds, total.bytes) == (online.rounds, sum(online.bytes_sent))
    assert total.most_sent == max(online.bytes_sent)
    assert (total.offline_bytes, total.correlations) == (offline.bytes, offline.correlations)
    assert 0 < total.seconds <= online.seconds * 1.001
    rows = {one.name: one for one in bill.operations}
    assert {"convolution", "relu", "addmm", "convolution_backward"} <= set(rows)
    assert (rows["relu"].calls, rows["relu"].rounds) == (1, 4)
    assert rows["convolution"].rounds == rows["addmm"].rounds == 2


def test_in_process_and_on_a_network_a_bill_is_the_same(workers: list[Any], far: list[Any]) -> None:
    bills = []
    for parties in (workers, far):
        model, x = model_and_data(parties)
        with sy.mpc.measure() as bill, torch.no_grad():
            model(x)
        bills.append(
            [(one.name, one.calls, one.rounds, one.bytes, one.offline_bytes) for one in bill.operations]
        )
    assert bills[0] == bills[1]


def test_bills_can_be_nested_and_end_with_their_block(workers: list[Any]) -> None:
    x = shared(torch.rand(4), workers)
    with sy.mpc.measure() as outer:
        x * x
        with sy.mpc.measure() as inner:
            x.relu()
        x.exp()
    x.relu()
    assert [one.name for one in inner.operations] == ["relu"]
    assert [one.name for one in outer.operations] == ["mul", "relu", "exp"]


def test_what_other_threads_do_is_not_on_the_bill(workers: list[Any]) -> None:
    x = shared(torch.rand(4), workers)
    with sy.mpc.measure() as bill:
        other = threading.Thread(target=lambda: x.exp())
        other.start()
        x * x
        other.join()
    assert [(one.name, one.rounds) for one in bill.operations] == [("mul", 2)]


def test_estimates_follow_rounds_bytes_and_seconds(workers: list[Any]) -> None:
    x = shared(torch.rand(1000), workers)
    with sy.mpc.measure() as bill:
        x * x
    total = bill.total
    expected = total.seconds + total.rounds * 0.5 + total.most_sent / 1e3
    assert bill.on(latency=0.5, bandwidth=1e3) == pytest.approx(expected)
    assert bill.on(network=sy.mpc.WAN) == pytest.approx(total.on(sy.mpc.WAN))
    assert total.seconds < bill.on() < bill.on(network=sy.mpc.WAN)
    for wrong in (dict(latency=-1.0), dict(bandwidth=0.0), dict(latency=float("nan"))):
        with pytest.raises(ValueError, match="latency from 0 on"):
            bill.on(**wrong)


def test_a_bill_is_a_table_and_a_plot(workers: list[Any]) -> None:
    x = shared(torch.rand(10), workers)
    with sy.mpc.measure() as bill:
        (x * x).relu()
    lines = str(bill).splitlines()
    assert any("relu" in line and " 4 " in line for line in lines)
    assert "total" in lines[-2]
    pyplot = pytest.importorskip("matplotlib.pyplot")
    axes = bill.plot()
    assert [label.get_text() for label in axes.get_yticklabels()] == sorted(
        ["mul", "relu"],
        key=lambda name: next(one.on(sy.mpc.LAN) for one in bill.operations if one.name == name),
    )
    assert len(axes.patches) == 6
    pyplot.close("all")


def test_a_plan_tells_its_cost_by_operation_and_for_the_second_call(workers: list[Any]) -> None:
    model = nn.Sequential(nn.Linear(20, 10), nn.ReLU(), nn.Linear(10, 2))

    @sy.func2plan(args_shape=[(3, 20)])
    def plan(x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x) * x

    (cost,) = plan.cost((3, 20), protocol="tree", holders=2).shares
    assert [one.name for one in cost.operations] == ["relu", "mul"]
    assert sum(one.rounds for one in cost.operations) == cost.rounds == 6
    assert sum(one.online for one in cost.operations) == cost.online
    assert sum(one.offline for one in cost.operations) == cost.offline
    assert cost.on(0.1, 1e6) == pytest.approx(0.6 + cost.online / 2e6)

    class Net(sy.Plan):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.layers = model

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.layers(x)

    net = Net()
    net.build(torch.zeros(1, 20))
    (first,) = net.cost((1, 20), protocol="tree", holders=2).shares
    assert first.again.online < first.online - 8 * 2 * 200
    assert first.again.rounds == first.rounds


# -- frames of one-hot vectors are bytes -----------------------------------------------------------------------------


def test_looking_up_a_table_opens_one_byte_per_element(workers: list[Any]) -> None:
    x = shared(torch.linspace(-3, 3, 640), workers)
    group = Group.of(workers[:-1], workers[-1])
    secret = (x * 4).long().child.child
    group.reset_costs()
    secret.run(derived.one_hot, 64)
    assert group.online.bytes_sent[:2] == [640, 640]
    F.gelu(x)
    group.reset_costs()
    F.gelu(x)
    assert group.online.bytes_sent[0] / 640 < 200  # 213 when one-hot vectors were opened as words


# -- checks ----------------------------------------------------------------------------------------------------------

OVERFLOWS: dict[str, tuple[Callable[[Any], Any], list[float], str]] = {
    "product": (lambda x: x * x, [2.0, 1e5], "mul"),
    "sum": (lambda x: x + x + x, [6.9e13], "add"),
    "matrix product": (lambda x: x.view(1, -1) @ x.view(-1, 1), [3e4] * 8, "mm"),
    "power": (lambda x: x**3, [1e4], "pow"),
    "exp": (lambda x: x.exp(), [31.0], "exp"),
    "sum of many": (lambda x: x.sum(), [3e13] * 16, "sum"),
    "in place": (lambda x: x.mul_(x), [1e5], "mul_"),
    "public factor": (lambda x: x * 1e12, [1e6], "mul"),
}
DOMAINS: dict[str, tuple[Callable[[Any], Any], list[float], str]] = {
    "reciprocal": (lambda x: 1 / x, [1.0, 0.0], "div"),
    "log": (lambda x: x.log(), [1.0, -1.0], "log"),
    "log of 0": (lambda x: x.log(), [0.0], "log"),
    "sqrt": (lambda x: x.sqrt(), [4.0, -4.0], "sqrt"),
    "rsqrt": (lambda x: x.rsqrt(), [0.0], "rsqrt"),
}


@pytest.mark.parametrize("is_shared", [True, False], ids=["shared", "here"])
@pytest.mark.parametrize("case", [*OVERFLOWS, *DOMAINS])
def test_what_does_not_fit_raises_with_operation_and_line(
    workers: list[Any], case: str, is_shared: bool
) -> None:
    call, values, name = (OVERFLOWS | DOMAINS)[case]
    error = sy.mpc.SecretOverflowError if case in OVERFLOWS else sy.mpc.SecretDomainError
    plain = torch.tensor(values, dtype=torch.float64)
    x = shared(plain, workers) if is_shared else plain.fix_precision(**HALF)  # type: ignore[attr-defined]
    with (
        sy.mpc.checked(),
        pytest.raises(error, match=rf"^{name} .*test_measuring\.py, line {call.__code__.co_firstlineno}"),
    ):
        call(x)
    with pytest.raises(ArithmeticError), sy.mpc.checked():
        call(shared(plain, workers))
    call(shared(plain, workers))  # silent as ever


def test_integers_are_checked(workers: list[Any]) -> None:
    x = torch.tensor([2**40]).share(*workers[:-1], crypto_provider=workers[-1])
    with sy.mpc.checked() as checks, pytest.raises(sy.mpc.SecretOverflowError, match=r"should be 1\.2"):
        x * x
    assert checks.compared == 1


def test_a_training_that_fits_is_compared_and_passes(workers: list[Any]) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.GELU(), nn.Flatten(), nn.Linear(18, 3))
    shared(model, workers)
    x, y = shared(torch.rand(4, 1, 5, 5), workers), torch.tensor([0, 2, 1, 1])
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    with sy.mpc.checked() as checks:
        for _ in range(2):
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            for _ in range(2):
                model(x)
    assert checks.compared > 50


def test_masks_are_no_overflow(workers: list[Any]) -> None:
    x = shared(torch.rand(2, 4), workers)
    mask = torch.tensor([[False, True, False, False]] * 2)
    with sy.mpc.checked():
        weights = F.softmax(x.masked_fill(mask, float("-inf")), -1)
    assert weights.get().float_precision()[:, 1].abs().max() < 1e-3


def test_an_overflow_in_the_backward_pass_is_found(workers: list[Any]) -> None:
    x = shared(torch.tensor([1e5]), workers).requires_grad_()
    with sy.mpc.checked():
        y = x * 3.0
        with pytest.raises(sy.mpc.SecretOverflowError, match="test_measuring"):
            y.backward(shared(torch.tensor([5e13]), workers))


def test_values_on_a_network_are_not_read(far: list[Any]) -> None:
    x = shared(torch.rand(2), far)
    with sy.mpc.checked(), pytest.raises(NotImplementedError, match="VirtualWorkers"):
        x * x
