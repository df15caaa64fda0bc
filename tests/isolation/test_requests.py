"""Requests of users who have processes of their own: the broker keeps the queue, and believes nothing but its own."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
import torch
from torch import nn

from isolation.conftest import Isolated, find
from syft import serde
from syft.exceptions import (
    BudgetExceededError,
    ComputeNotPermittedError,
    GetNotPermittedError,
    RequestDeniedError,
    RequestNotPermittedError,
    SyftError,
)
from syft.federated import Trainer
from syft.requests.book import RequestBook


def test_values_releases_and_training_are_asked_for(isolated: Isolated, connect: Any) -> None:
    client = connect("asker")
    book = RequestBook.open(isolated.folder / "requests.db")
    patients, released = find(client, "#patients"), find(client, "#released")
    made = patients.mean(dim=0)
    options: dict[str, Any] = {"epsilon": 9.0, "bounds": (0, 5000)}
    asked = [
        made.request(reason="the means"),
        patients[:1].request(),
        client.request_release(patients, "mean", **options),
        client.request_release(released, "mean", **options),
    ]
    with pytest.raises(ComputeNotPermittedError, match="only be released"):
        released.request()
    with pytest.raises(RequestNotPermittedError, match="asked for this before"):
        made.request()
    with pytest.raises(BudgetExceededError):
        client.release(patients, "mean", **options)
    for request in (asked[0], *asked[2:]):
        book.approve(request.id, times=1)
    book.deny(asked[1].id, "one person's")
    assert torch.equal(asked[0].wait(), torch.tensor([52.75, 117.0]))
    with pytest.raises(RequestDeniedError, match="one person's"):
        asked[1].wait()
    with pytest.raises(GetNotPermittedError):
        made.get()
    assert asked[2].wait().shape == (2,) and float(asked[3].wait()) > 0
    assert client.budget("#patients").spent == client.budget("#released").spent == 9.0
    for data in (patients, released):
        with pytest.raises(BudgetExceededError):
            client.release(data, "mean", **options)
    lines = [line for line in isolated.audit if line.user == "asker"]
    counted = {
        a: sum(line.action == a for line in lines) for a in ("request", "approve", "deny", "use approval")
    }
    assert counted == {"request": 4, "approve": 3, "deny": 1, "use approval": 3}
    assert not any(line.reported for line in lines if line.action in counted)


def test_training_is_let_through_as_often_as_it_was_approved(isolated: Isolated, connect: Any) -> None:
    client = connect("learner")

    def trainer(lr: float = 0.1) -> Trainer:
        return Trainer(
            nn.Linear(3, 2),
            nn.CrossEntropyLoss(),
            [client],
            dataset_key="asked",
            optimizer_args={"lr": lr},
            engine="serial",
        )

    request = client.request_training(trainer(), rounds=2, reason="a model")
    book = RequestBook.open(isolated.folder / "requests.db")
    assert "cross_entropy" in book.get(request.id).ask.code
    with pytest.raises(SyftError, match="may not train on"):
        trainer().fit(1)
    book.approve(request.id)
    assert request.wait() is request
    with pytest.raises(SyftError, match="may not train on"):
        trainer(0.2).fit(1)
    assert len(trainer().fit(2)) == 2
    with pytest.raises(SyftError, match="may not train on"):
        trainer().fit(1)


def test_an_approval_to_train_gives_a_process_no_other_data_set(hook: Any) -> None:
    """A process that its user controls names a request that was approved, or waits until the data set is another."""
    from types import SimpleNamespace

    import syft as sy
    from syft.federated.dataset import BaseDataset
    from syft.isolation import records
    from syft.isolation.answers import Answers
    from syft.isolation.channel import close_all
    from syft.policy.owner_policy import OwnerPolicy
    from syft.requests.approvals import Prepared
    from syft.requests.keeper import keeper_of
    from syft.requests.records import Ask

    worker = sy.VirtualWorker(hook, id="offering", policy=OwnerPolicy(), auto_add=False)
    for key in ("harmless", "secret"):
        data = BaseDataset(torch.zeros(3, 1), torch.zeros(3))
        worker.add_dataset(data, key, allowed_users=[], on_request=key == "harmless")
    answers = Answers.__new__(Answers)
    answers.worker = worker
    session: Any = SimpleNamespace(user="eve", its_executor=SimpleNamespace(trains_on={}, approved=None))
    digest = "0" * 64
    told = keeper_of(worker).file("eve", Prepared(Ask("train", digest, ""), "harmless"), "")

    def given(key: str) -> bool:
        try:
            close_all(answers._offered(session, records.Offered(key))[2])
        except GetNotPermittedError:
            return False
        return True

    def used(key: str) -> bool:
        answer = answers._use_approval(session, records.UseApproval("train", key, "", digest))
        return serde.deserialize(answer[1][0], worker) is not None

    worker.approve(told.id, times=2)
    taken = answers._take_value(session, records.TakeValue(told.id))
    assert serde.deserialize(taken[1][0], worker) is None
    assert not used("secret") and not given("secret") and not given("harmless")
    assert used("harmless") and given("harmless") and not given("secret")
    worker.remove_dataset("harmless")
    changed = BaseDataset(torch.ones(3, 1), torch.zeros(3))
    worker.add_dataset(changed, "harmless", allowed_users=[], on_request=True)
    assert not given("harmless") and not used("harmless")


def test_a_process_cannot_charge_beyond_the_budget_by_saying_that_it_was_approved() -> None:
    """The broker compares what is charged with what its own queue says was approved."""
    from types import SimpleNamespace

    from syft.dp.asked_release import text_of_charge
    from syft.dp.composition import Charge
    from syft.exceptions import ProtocolError
    from syft.isolation import records
    from syft.isolation.answers import Answers

    charged: list[Any] = []
    answers = Answers.__new__(Answers)
    answers.worker = SimpleNamespace(policy=SimpleNamespace(record=lambda _record: None))
    answers._book = lambda: SimpleNamespace(charge=lambda *a, **k: charged.append(k))  # type: ignore[method-assign]
    question = records.BookCharge(["#x"], 1, "mean", None, 1.0, 0.0, 1, True)
    right = text_of_charge(Charge("mean", None, 1.0, 0.0, 1))
    for approved in (None, (right, ("#y",)), (text_of_charge(Charge("mean", None, 0.5, 0.0, 1)), ("#x",))):
        executor = SimpleNamespace(approved=approved)
        session: Any = SimpleNamespace(its_executor=executor, user="eve")
        with pytest.raises(ProtocolError, match="has approved another"):
            answers._book_charge(session, question)
        assert executor.approved is None and not charged
    session = SimpleNamespace(its_executor=SimpleNamespace(approved=(right, ("#x",))), user="eve")
    answers._book_charge(session, question)
    assert charged == [{"is_approved": True}]
    with pytest.raises(ProtocolError):  # once
        answers._book_charge(session, question)
    with pytest.raises(ProtocolError, match="bytes"):
        answers._file_request(session, records.FileRequest(1, ""), bytearray(18 << 20), [])
    with pytest.raises(ProtocolError, match="cannot be read"):
        answers._file_request(session, records.FileRequest(1, ""), bytearray(msgspec.msgpack.encode(3)), [])
