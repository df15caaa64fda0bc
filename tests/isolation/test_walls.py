"""What one user does to their own process, and that nobody else hears of it."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest
import torch
from torch.nn import functional as F

import syft as sy
from isolation.conftest import Isolated, find, id_of
from isolation.hooked_fork_server import CRASH, ENDLESS, GUARDED_WRITE, MEMORY
from network.waiting import wait_until
from syft.dp.release_training import train_privately
from syft.exceptions import (
    BudgetExceededError,
    ComputeNotPermittedError,
    GetNotPermittedError,
    NetworkError,
    ObjectNotFoundError,
    SendNotPermittedError,
)

pytestmark = pytest.mark.network


def lines_about(isolated: Isolated, user: str, action: str) -> list[Any]:
    return [line for line in isolated.audit if line.user == user and line.action == action]


# -- work as ever --------------------------------------------------------------------------------------------


def test_a_user_computes_on_the_owners_data_and_cannot_fetch_what_comes_of_it(connect: Any) -> None:
    eve = connect("eve")
    patients = find(eve, "#patients")
    doubled = patients * 2
    assert doubled.shape == (4, 2)
    with pytest.raises(GetNotPermittedError):
        doubled.get()
    mine = torch.tensor([1.0, 2.0]).send(eve)
    assert (mine + mine).get().tolist() == [2.0, 4.0]
    patients.add_(1.0)
    with pytest.raises(SendNotPermittedError):
        eve.sync()


def test_what_a_user_may_not_compute_with_never_enters_their_process(connect: Any) -> None:
    ann, eve = connect("ann"), connect("eve")
    secret = find(ann, "#secret")
    assert (secret + 1).shape == (2,)
    assert not eve.search("#secret")
    from syft.tensors.pointer import PointerTensor

    there = PointerTensor(location=eve, id_at_location=id_of(secret), owner=secret.child.owner).wrap()
    with pytest.raises((ComputeNotPermittedError, ObjectNotFoundError)):
        (there + 1).get()
    with pytest.raises((GetNotPermittedError, ObjectNotFoundError)):
        there.get()


def test_a_plan_with_state_and_training_run_there(hook: Any, connect: Any) -> None:
    eve = connect("eve")
    data, target = torch.eye(4).send(eve), torch.arange(4.0).reshape(4, 1).send(eve)
    weight = torch.zeros(4, 1).send(eve).requires_grad_()
    for _ in range(3):
        loss = ((data @ weight - target) ** 2).sum()
        loss.backward()
        with torch.no_grad():
            weight.sub_(weight.grad * 0.1)
            weight.grad = None
    expected = torch.zeros(4, 1, requires_grad=True)
    for _ in range(3):
        ((torch.eye(4) @ expected - torch.arange(4.0).reshape(4, 1)) ** 2).sum().backward()
        with torch.no_grad():
            expected -= expected.grad * 0.1
            expected.grad = None
    assert torch.equal(weight.get(), expected.detach())


def test_a_model_is_trained_on_data_sets_that_are_offered_to_its_user(
    hook: Any, me: Any, connect: Any
) -> None:
    ann, eve = connect("ann"), connect("eve")
    rows, labels = torch.arange(24.0).reshape(8, 3) / 24, torch.arange(8) % 2
    settings: dict[str, Any] = {"batch_size": 4, "epochs": 2, "optimizer_args": {"lr": 0.5}, "shuffle": False}
    for client, key in ((ann, "anns"), (eve, "rows")):
        torch.manual_seed(3)
        model, plain = torch.nn.Linear(3, 2), torch.nn.Linear(3, 2)
        plain.load_state_dict(model.state_dict())
        config = sy.TrainConfig(model, F.cross_entropy, **settings).send(client)
        loss = client.fit(key)
        sgd = torch.optim.SGD(plain.parameters(), lr=0.5)
        for _ in range(2):
            for at in (0, 4):
                sgd.zero_grad()
                expected = F.cross_entropy(plain(rows[at : at + 4]), labels[at : at + 4])
                expected.backward()
                sgd.step()
        assert torch.allclose(loss, expected.detach())
        assert torch.allclose(config.get().model.weight, plain.weight)
    assert set(ann.datasets) == {"rows", "anns", "asked"} and set(eve.datasets) == {"rows", "asked"}
    other = sy.TrainConfig(torch.nn.Linear(3, 2), F.cross_entropy, **settings).send(eve)
    with pytest.raises(GetNotPermittedError):
        eve.fit("anns")
    del other


# -- between users -------------------------------------------------------------------------------------------


def test_tagged_data_is_found_by_those_who_may_and_outlives_the_session(connect: Any) -> None:
    ann, bob, eve = connect("ann"), connect("bob"), connect("eve")
    torch.tensor([3.0, 4.0]).tag("#handed").send(ann, garbage_collect_data=False)  # type: ignore[attr-defined]
    ann.sync()
    assert not eve.search("#handed")
    with pytest.raises(GetNotPermittedError):
        (find(bob, "#handed") * 2).get()  # the policy lets bob compute with it; it is ann's to fetch
    ann.close()
    again = connect("ann")
    kept = find(again, "#handed")
    assert kept.copy().get().tolist() == [3.0, 4.0]
    kept.add_(1.0)  # it is hers, and others see it as she left it
    again.sync()
    assert find(connect("ann"), "#handed").copy().get().tolist() == [4.0, 5.0]
    kept.get()


def test_an_object_for_another_user_by_name_is_handed_over_and_theirs_to_use(connect: Any) -> None:
    ann, bob, eve = connect("ann"), connect("bob"), connect("eve")
    shared = torch.tensor([1.0, 2.0]).private_tensor(allowed_users=["ann", "bob"]).send(ann, user="ann")  # type: ignore[attr-defined]
    ann.sync()
    from syft.tensors.pointer import PointerTensor

    def at(client: Any) -> Any:
        made = PointerTensor(location=client, id_at_location=id_of(shared), owner=shared.child.owner)
        made.garbage_collect_data = False
        return made.wrap()

    assert (at(bob) * 3).get().tolist() == [3.0, 6.0]
    with pytest.raises(ObjectNotFoundError):
        (at(eve) * 3).get()
    at(bob).add_(1.0)
    with pytest.raises(SendNotPermittedError, match="process of their own"):
        bob.sync()
    assert (shared + 0).get().tolist() == [1.0, 2.0]


# -- trouble -------------------------------------------------------------------------------------------------


class Busy:
    """Somebody who goes on while others are in trouble: the time of every round trip."""

    def __init__(self, client: Any) -> None:
        self._client, self._stop = client, threading.Event()
        self.times: list[float] = []
        self.wrong = 0
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        x = torch.arange(10.0).send(self._client)
        while not self._stop.is_set():
            began = time.perf_counter()
            got = (x * 2).get()
            self.times.append(time.perf_counter() - began)
            self.wrong += got.tolist() != [2.0 * i for i in range(10)]

    def end(self) -> list[float]:
        self._stop.set()
        self._thread.join(120)
        assert not self._thread.is_alive() and not self.wrong
        return sorted(self.times)


@pytest.mark.parametrize(
    ("user", "number", "why"),
    [
        ("hurried", ENDLESS, "ran for more than 0.5 s"),
        ("eve", CRASH, "segmentation fault"),
        ("eve", GUARDED_WRITE, "segmentation fault"),
    ],
    ids=["endless", "crash", "write into the owner's data"],
)
def test_trouble_ends_its_own_process_and_no_other(
    isolated: Isolated, connect: Any, user: str, number: float, why: str
) -> None:
    ann, eve = connect("ann"), connect(user)
    busy = Busy(ann)
    x = torch.ones(3).send(eve)
    held = find(eve, "#patients") * 1.0
    eve.sync()
    before = len([line for line in isolated.audit if line.user == user and not line.granted])
    trouble = x * number
    with pytest.raises(NetworkError, match=why):
        trouble.get()
    del held
    count = len(busy.times)
    wait_until(lambda: len(busy.times) > count + 20)
    busy.end()
    fresh = torch.ones(2).send(eve)  # the same client goes on, in a new session and a new process
    assert (fresh * 2).get().tolist() == [2.0, 2.0]
    refused = [line for line in isolated.audit if line.user == user and not line.granted]
    assert len(refused) > before and any(
        line.action in ("operation", "process") and not line.reported for line in refused[before:]
    )
    assert isolated.process.poll() is None


def test_memory_is_the_users_own_to_exhaust(isolated: Isolated, connect: Any) -> None:
    ann, eve = connect("ann"), connect("eve")
    x = torch.ones(3).send(eve)
    result = x * MEMORY
    with pytest.raises((NetworkError, RuntimeError, MemoryError)):
        result.get()
    assert (torch.ones(2).send(ann) + 1).get().tolist() == [2.0, 2.0]
    assert isolated.process.poll() is None


def test_releases_are_charged_to_the_user_by_the_broker(isolated: Isolated, connect: Any) -> None:
    bob = connect("bob")
    patients = find(bob, "#patients")
    before = isolated.book.state("#patients", "bob").left
    answer = bob.release(patients[:, 0], "mean", epsilon=0.5, bounds=(0.0, 100.0))
    assert torch.isfinite(torch.as_tensor(answer)).all()
    assert isolated.book.state("#patients", "bob").left == pytest.approx(before - 0.5)
    assert bob.budget("#patients").left == pytest.approx(before - 0.5)
    charged = [line for line in isolated.audit if line.action == "charge"]
    assert charged[-1].user == "bob" and not charged[-1].reported and "epsilon 0.5" in charged[-1].reason


def test_statistics_by_group_know_the_column_of_persons_in_every_process(
    isolated: Isolated, connect: Any
) -> None:
    gus = connect("gus")
    options: dict[str, Any] = {"by": 1, "keys": [99.0, 120.0], "max_groups": 1, "max_rows": 1}
    for tag in ("#patients", "#inputs"):  # in the process of the user, and in one for a release alone
        counts = gus.release(find(gus, tag), "group_count", epsilon=1.5, **options)
        assert set(counts) == {99.0, 120.0} and all(count.noise_scale > 0 for count in counts.values())
    with pytest.raises(ValueError, match="it is not known which column names the person"):
        gus.release(find(gus, "#patients")[:, :1], "group_count", epsilon=0.1, **(options | {"by": 0}))


def test_what_may_only_be_released_is_released_in_a_process_of_its_own(
    isolated: Isolated, connect: Any
) -> None:
    """That the process of the user never has it: test_attack, "what is only released"."""
    cid = connect("cid")
    released = find(cid, "#released")
    assert released.shape == (4,)
    released * 2
    with pytest.raises(ComputeNotPermittedError, match="only be released, with noise"):
        cid.sync()
    with pytest.raises(GetNotPermittedError):
        released.get()
    answer = cid.release(released, "mean", epsilon=7.0, bounds=(4321.0, 4324.0))
    assert 4318.0 < float(answer) < 4327.0
    assert cid.budget(released).left == pytest.approx(1.0)
    with pytest.raises(BudgetExceededError, match="Nothing was charged"):
        cid.release(released, "mean", epsilon=7.0, bounds=(4321.0, 4324.0))
    with pytest.raises(ValueError, match="lower first"):
        cid.release(released, "mean", epsilon=0.1, bounds=(2.0, 1.0))
    lines = [line for line in isolated.audit if line.user == "cid" and line.action in ("release", "charge")]
    assert [(line.action, line.granted, line.reported) for line in lines] == [
        ("charge", True, False),
        ("release", True, False),
        ("release", False, False),
        ("release", False, False),
    ]
    mine = torch.ones(2).send(cid)
    assert (mine + 1).get().tolist() == [2.0, 2.0]


def test_a_model_is_trained_on_what_may_only_be_released(isolated: Isolated, connect: Any) -> None:
    dan = connect("dan")
    inputs, classes = find(dan, "#inputs"), find(dan, "#classes")
    model = torch.nn.Linear(2, 2)
    settings: dict[str, Any] = {"epsilon": 4.0, "delta": 1e-6, "epochs": 1, "batch_size": 4, "lr": 0.1}
    trained = train_privately(inputs, classes, model, loss="cross_entropy", user="dan", **settings)
    assert not torch.equal(trained.weight, model.weight)
    assert dan.budget("#inputs").left == pytest.approx(4.0)
