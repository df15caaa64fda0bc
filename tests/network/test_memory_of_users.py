"""A user with a quota of 1 MB makes a worker take no more than that, by plans, batches and configs either."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
import torch

import syft as sy
from network.hospital import serving, user
from network.served import Peak
from stopwatch import Stopwatch
from syft.exceptions import ComputeNotPermittedError, QuotaExceededError, SyftError
from syft.execution.held import HeldPlan
from syft.execution.operation import Operation as Step
from syft.execution.operation import Size, Slot
from syft.execution.plan import Plan
from syft.execution.program import Input, Program
from syft.execution.state import State
from syft.execution.training import TrainedGroup, TrainingStep
from syft.federated.federated_client import FederatedClient
from syft.messaging.message import (
    BatchMessage,
    CallObjectMessage,
    ForceObjectDeleteMessage,
    ObjectMessage,
    Operation,
    PlanCallMessage,
    Ref,
    StatusMessage,
    TrainConfigMessage,
)
from syft.tensors.object_wrapper import ObjectWrapper

pytestmark = pytest.mark.network

SMALL = '[limits]\nmax_bytes = "1 MB"\n'
MUCH = 200_000_000  # elements: 800 MB


@pytest.fixture
def hospital(hook: Any, authority: Any) -> Iterator[Any]:
    with serving(hook, authority, SMALL) as server:
        yield server


@pytest.fixture
def eve(hospital: Any, authority: Any) -> Iterator[Any]:
    with user(hospital, authority, "eve") as client:
        client._link.ask(ObjectMessage(torch.ones(4), 1))
        yield client


@pytest.fixture
def little_is_taken() -> Iterator[None]:
    """The highest mark of this process, which is that of the worker, too, moves by much less than `MUCH`."""
    peak = Peak()
    yield
    assert peak.extra < 300 << 20


def program(steps: Sequence[Step], outputs: Any, constants: Sequence[Any] = (), state: int = 0) -> Program:
    return Program((Slot(0),), (Input((4,), torch.float32),), state, tuple(constants), tuple(steps), outputs)


def call(client: Any, made: Program, *results: Any) -> None:
    client._link.ask(ObjectMessage(HeldPlan(made), 2))
    client._link.ask(PlanCallMessage(2, (Ref(1),), (), None, results))


def held_bytes(client: Any) -> int:
    return int(client._link.ask(StatusMessage())["bytes"])


@pytest.mark.usefixtures("little_is_taken")
def test_what_a_plan_makes_of_its_constants_alone(eve: Any) -> None:
    steps = [
        Step("repeat", (Slot(1), MUCH), {}, Slot(2)),
        Step("torch.sum", (Slot(2),), {}, Slot(3)),
    ]
    with pytest.raises(QuotaExceededError, match="was not run: its results would take"):
        call(eve, program(steps, (Slot(3),), [torch.ones(1)]), 3)


@pytest.mark.usefixtures("little_is_taken")
def test_many_results_of_a_plan_have_to_fit_together(eve: Any) -> None:
    count = 1000
    steps = [Step("torch.ones", ((200_000,),), {}, Slot(1 + i)) for i in range(count)]
    results = tuple(Slot(1 + i) for i in range(count))
    with pytest.raises(QuotaExceededError, match=r"would take 800\d{6} bytes"):
        call(eve, program(steps, results), *range(10, 10 + count))


def test_what_a_plan_drops_on_its_way_does_not_count(eve: Any) -> None:
    steps = [Step("torch.ones", ((200_000,),), {}, Slot(1))]
    steps += [Step("add", (Slot(1 + i), 1), {}, Slot(2 + i)) for i in range(1)]
    steps += [Step("torch.sum", (Slot(2),), {}, Slot(3))]
    with pytest.raises(QuotaExceededError):  # two at a time are too much
        call(eve, program(steps, (Slot(3),)), 3)
    steps = []
    for i in range(0, 40, 2):
        steps += [
            Step("torch.ones", ((200_000,),), {}, Slot(1 + i)),
            Step("torch.sum", (Slot(1 + i),), {}, Slot(2 + i)),
        ]
    call(eve, program(steps, (Slot(40),)), 3)


def test_constants_and_programs_are_charged(eve: Any) -> None:
    before = held_bytes(eve)
    steps = [Step("add", (Slot(0), Slot(1)), {}, Slot(2))]
    eve._link.ask(ObjectMessage(HeldPlan(program(steps, (Slot(2),), [torch.ones(100_000)])), 2))
    assert held_bytes(eve) - before > 400_000
    with pytest.raises(QuotaExceededError):
        eve._link.ask(ObjectMessage(HeldPlan(program(steps, (Slot(2),), [torch.ones(200_000)])), 3))
    many = [Step("neg", (Slot(i),), {}, Slot(i + 1)) for i in range(1000)]
    eve._link.ask(ForceObjectDeleteMessage((2,)))
    eve._link.ask(ObjectMessage(HeldPlan(program(many, (Slot(1000),))), 4))
    assert held_bytes(eve) - before > 500_000


@pytest.mark.parametrize("depth", [2, 5, 15])
def test_numbers_beyond_all_sizes_are_not_computed(eve: Any, depth: int) -> None:
    size: Any = 10
    for _ in range(depth):
        size = Size("**", size, 64)
    steps = [Step("torch.zeros", ((Size("%", size, 7),),), {}, Slot(1))]
    clock = Stopwatch()
    with pytest.raises(SyftError, match=r"beyond 2\*\*63"):
        call(eve, program(steps, (Slot(1),)), 3)
    assert clock.seconds < 20


@pytest.mark.usefixtures("little_is_taken")
def test_what_users_sent_is_not_called_but_as_a_plan(eve: Any, hospital: Any) -> None:
    steps = [
        Step("torch.ones", ((MUCH,),), {}, Slot(1)),
        Step("torch.sum", (Slot(1),), {}, Slot(2)),
    ]
    plan = Plan.of_program(program(steps, Slot(2)), State.of([], [], []), name="much", id=77)
    eve._link.ask(ObjectMessage(ObjectWrapper(plan), 2))
    with pytest.raises(ComputeNotPermittedError, match=r"called after plan\.send\(worker\)"):
        eve._link.ask(CallObjectMessage(2, (Ref(1),), {}, 3))
    last = hospital.policy.audit_log[-1]
    assert (last.action, last.user, last.granted) == ("compute", "eve", False)


@pytest.mark.usefixtures("little_is_taken")
def test_a_row_that_is_asked_for_often(eve: Any) -> None:
    pointer = sy.BaseDataset(torch.ones(2, 50_000), torch.ones(2)).send_whole(eve)
    eve.sync()
    with pytest.raises(QuotaExceededError, match="The batch of 4000 rows was not run"):
        eve._link.ask(BatchMessage(pointer.id_at_location, (0,) * 4000))
    data, _targets = pointer.batch([1, 0])
    assert data.get().shape == (2, 50_000)


def test_a_training_plan_lets_go_of_a_state_that_was_deleted(eve: Any, hospital: Any) -> None:
    steps = [
        Step("__getitem__", (Slot(1), slice(0, 4, None)), {}, Slot(3)),
        Step("mul", (Slot(3), Slot(0)), {}, Slot(4)),
        Step("sum", (Slot(4),), {}, Slot(5)),
    ]
    training = TrainingStep("SGD", (TrainedGroup({"lr": 0.1}, (0,), ({},)),), 1)
    made = program(steps, (Slot(5),), state=2)
    eve._link.ask(Operation("aten.ones.default", None, [[100_000]], {}, (10,)))
    eve._link.ask(ObjectMessage(torch.zeros(1), 11))
    eve._link.ask(ObjectMessage(HeldPlan(made, (10, 11), ("w", "s"), (), (1, 0), training, name="t"), 20))
    for _ in range(2):
        eve._link.ask(PlanCallMessage(20, (Ref(1),), (), None, (12,)))
    assert hospital.get_obj(10)[0] == pytest.approx(0.8)
    keeper = hospital._objects[20]._trainer
    assert keeper._keeper is not None
    eve._link.ask(ForceObjectDeleteMessage((10, 11, 12)))
    gc.collect()
    assert keeper._keeper is None and not keeper._kept


def test_configs_are_small_and_not_kept_without_end(
    eve: Any, hospital: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = [Step("neg", (Slot(0),), {}, Slot(1))]
    plan = Plan.of_program(program(steps, Slot(1)), State.of([], [], []), name="x", id=77)
    eve._link.ask(ObjectMessage(ObjectWrapper(plan), 5))

    def config(rate: Any) -> TrainConfigMessage:
        return TrainConfigMessage(5, 5, 1, 1, "SGD", {"lr": rate}, -1, True)

    for wrong in (tuple(range(300_000)), "x" * 2000, torch.ones(3)):
        with pytest.raises(ValueError, match="a few numbers and words"):
            eve._link.ask(config(wrong))
    monkeypatch.setattr("syft.federated.fit_handlers._MOST_CONFIGS", 3)
    eve._link.ask(config(0.1))
    sent = hospital.extension(FederatedClient).sent
    for name in ("a", "b", "c"):
        sent[name] = sent["eve"]
        eve._link.ask(config(0.1))
    assert len(sent) <= 4 and "eve" in sent
