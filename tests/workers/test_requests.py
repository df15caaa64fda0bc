"""Requests to the owner of a worker: what is asked for, what an approval covers, and what it does not."""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from torch import nn

import syft as sy
from syft.exceptions import (
    BudgetExceededError,
    GetNotPermittedError,
    LocalTensorError,
    PermissionDeniedError,
    RemoteError,
    RequestDeniedError,
    RequestExpiredError,
    RequestFileError,
    RequestNotFoundError,
    RequestNotPermittedError,
    RequestTimeoutError,
    SyftError,
)
from syft.federated import Trainer
from syft.messaging.message import AskMessage, ObjectRequestMessage, ReleaseMessage
from syft.policy.caller import speaking_for
from syft.policy.owner_policy import OwnerPolicy
from syft.requests import book as request_book
from syft.requests.book import RequestBook
from syft.requests.records import Ask


@pytest.fixture
def hospital(hook: Any, me: Any) -> Any:
    data = [torch.arange(6.0).tag("#x"), torch.arange(600.0).tag("#rows")]  # type: ignore[attr-defined]
    worker = sy.VirtualWorker(hook, id="requests hospital", data=data, policy=OwnerPolicy(), auto_add=False)
    worker.set_budget(dataset="#rows", epsilon=0.5)
    return worker


def mean(hospital: Any) -> Any:
    return hospital.search("#x")[0].mean()


def actions(worker: Any) -> list[str]:
    return [line.action for line in worker.policy.audit_log]


# -- a value ---------------------------------------------------------------------------------------------------


def test_a_value_is_asked_for_approved_and_arrives(hospital: Any) -> None:
    with speaking_for("bob", peer="10.0.0.9:1"):
        pointer = mean(hospital)
        request = pointer.request(reason="for the paper")
        assert (request.status, request.id in repr(request)) == ("waiting", True)
        with pytest.raises(RequestTimeoutError, match="has not answered"):
            request.wait(timeout=0)
    (seen,) = hospital.requests
    assert (seen.user, seen.peer, seen.ask.reason, seen.nbytes) == ("bob", "10.0.0.9:1", "for the paper", 4)
    assert seen.ask.details["shape"] == "()"
    hospital.approve(request.id)
    with speaking_for("bob"):
        assert request.wait() == 2.5
        with pytest.raises(RequestExpiredError, match=r"used up. Ask again"):
            request.wait()
        with pytest.raises(GetNotPermittedError):
            pointer.get()
    assert [a for a in actions(hospital) if a in ("request", "approve", "use approval")] == [
        "request",
        "approve",
        "use approval",
    ]
    assert hospital.requests[0].nbytes == 0


def test_get_is_let_through_by_an_approval_for_as_often_as_it_says(hospital: Any) -> None:
    with speaking_for("bob"):
        pointer = mean(hospital)
        request = pointer.request()
    hospital.approve(request.id, times=2)
    with speaking_for("bob"):
        assert pointer.child.get_copy() == 2.5
        assert (request.status, request._told.uses_left) == ("approved", 1)
        assert pointer.child.get_copy() == 2.5
        with pytest.raises(GetNotPermittedError):
            pointer.child.get_copy()


@pytest.mark.parametrize("change", ["write", "replace"])
def test_what_changes_after_it_was_asked_for_is_not_covered(hospital: Any, change: str) -> None:
    with speaking_for("bob"):
        pointer = mean(hospital)
        request = pointer.request()
    hospital.approve(request.id, times=5)
    with speaking_for("bob"):
        if change == "write":
            pointer.add_(hospital.search("#x")[0][1])
        else:
            other = hospital.search("#x")[0].sum()
            hospital.recv_msg(
                sy.messaging.message.Operation(
                    "aten.clone.default",
                    None,
                    [other.child.ref()],
                    {},
                    (pointer.child.id_at_location,),
                )
            )
        with pytest.raises(GetNotPermittedError):
            pointer.child.get_copy()
        assert request.wait() == 2.5  # what was approved is what it was when it was asked for


def test_an_approval_is_of_nobody_else(hospital: Any) -> None:
    with speaking_for("bob"):
        pointer = hospital.search("#x")[0]
        request = pointer.request()
    hospital.approve(request.id, times=5)
    with speaking_for("eve"):
        with pytest.raises(RequestNotFoundError, match="You have no request"):
            hospital.request(request.id)
        with pytest.raises(RequestNotFoundError):
            request.withdraw()
        with pytest.raises(GetNotPermittedError):
            hospital.search("#x")[0].get()
    with speaking_for("bob"):
        assert torch.equal(request.wait(), torch.arange(6.0))
        hospital.search("#x")[0].get()


def test_the_owners_data_is_covered_over_a_restart_and_not_when_it_has_changed(
    hook: Any, me: Any, tmp_path: Path
) -> None:
    def start(content: torch.Tensor) -> Any:
        data = [content.tag("#x")]  # type: ignore[attr-defined]
        worker = sy.VirtualWorker(hook, id="again", data=data, policy=OwnerPolicy(), auto_add=False)
        worker.keep_requests(tmp_path / "requests.db")
        return worker

    first = start(torch.arange(3.0))
    with speaking_for("bob"):
        request = first.search("#x")[0].request()
        made = (first.search("#x")[0] * 2).request()
    first.approve(request.id, times=3)
    second = start(torch.arange(3.0))
    with speaking_for("bob"):
        assert torch.equal(second.search("#x")[0].get(), torch.arange(3.0))
    second.approve(made.id)
    third = start(torch.arange(3.0) + 1)
    with speaking_for("bob"):
        with pytest.raises(GetNotPermittedError):
            third.search("#x")[0].get()
        assert torch.equal(third.request(made.id).wait(), torch.arange(3.0) * 2)  # its value waited
    assert stat.S_IMODE((tmp_path / "requests.db").stat().st_mode) == 0o600


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.bool, torch.complex64, torch.int8])
@pytest.mark.parametrize("shape", [(), (0, 2), (2, 3)])
def test_values_of_all_kinds_arrive_as_they_were(
    hook: Any, me: Any, dtype: torch.dtype, shape: tuple[int, ...]
) -> None:
    value = (torch.rand(shape) * 9).to(dtype)
    worker = sy.VirtualWorker(hook, id="kinds", policy=OwnerPolicy(), auto_add=False)
    worker.load_data([value.clone().tag("#v")])  # type: ignore[attr-defined]
    with speaking_for("bob"):
        request = worker.search("#v")[0].request()
        worker.approve(request.id)
        found = request.wait()
    assert found.dtype is dtype and torch.equal(found, value)


def test_a_failure_is_told_to_the_owner_and_when_it_was_approved(hospital: Any) -> None:
    with speaking_for("bob"):
        data = hospital.search("#x")[0]
        request = torch.index_select(data, 0, (data + 99).long()).request()
    assert "failure" in hospital.requests[0].ask.details
    hospital.approve(request.id)
    with speaking_for("bob"), pytest.raises(RemoteError, match="could not be computed"):
        request.wait()


# -- releases --------------------------------------------------------------------------------------------------


def test_a_release_beyond_the_budget_is_approved_and_charged(hospital: Any) -> None:
    options: dict[str, Any] = {"epsilon": 1.0, "bounds": (0, 600)}
    with speaking_for("bob"):
        rows = hospital.search("#rows")[0]
        with pytest.raises(BudgetExceededError):
            hospital.release(rows, "mean", **options)
        request = hospital.request_release(rows, "mean", reason="beyond", **options)
    (seen,) = hospital.requests
    assert (seen.ask.epsilon, seen.ask.datasets) == (1.0, ("#rows",))
    assert seen.ask.details["left of #rows"] == "epsilon 0.5 of 0.5"
    hospital.approve(request.id)
    others: list[dict[str, Any]] = [
        {**options, "epsilon": 1.001},
        {**options, "bounds": (0, 601)},
        {**options, "delta": 1e-9, "mechanism": "gaussian"},
    ]
    with speaking_for("bob"):
        for other in others:
            with pytest.raises((BudgetExceededError, ValueError)):
                hospital.release(rows, other.pop("mechanism", "mean"), **other)
        with pytest.raises(BudgetExceededError):
            hospital.release(rows * 1, "mean", **options)
        assert abs(request.wait() - 299.5) < 60
        assert hospital.budget("#rows").spent == 1.0
        with pytest.raises(BudgetExceededError):
            hospital.release(rows, "mean", **options)
    with speaking_for("eve"), pytest.raises(BudgetExceededError):
        hospital.release(hospital.search("#rows")[0], "mean", **options)


def test_a_get_that_is_refused_reads_nothing_of_the_owners_data(
    hospital: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What an approval is bound to is the content of the data: all of it was copied for everybody who tried."""
    from syft.requests import keeper
    from syft.requests.values import seen_content_of

    read: list[int] = []

    def noted(value: Any) -> memoryview:
        read.append(value.numel())
        return seen_content_of(value)

    monkeypatch.setattr(keeper, "seen_content_of", noted)
    with speaking_for("bob"):
        rows, small = hospital.search("#rows")[0], hospital.search("#x")[0]
        for _ in range(2):
            with pytest.raises(GetNotPermittedError):
                hospital.recv_msg(ObjectRequestMessage((rows.id_at_location, None, ""), True))
        hospital.release(rows, "count", epsilon=0.1)
        assert read == []
        request = small.request()
    hospital.approve(request.id)
    with speaking_for("bob"):
        assert request.wait().tolist() == list(range(6))


def test_nobody_asks_for_more_times_than_the_owner_reads(hospital: Any) -> None:
    """`syft approve ID` grants as often as was asked for, and what is asked for does not say how often."""
    with speaking_for("bob"):
        rows, made = hospital.search("#rows")[0], mean(hospital)
        release = ReleaseMessage(rows.id_at_location, "mean", 1.0, 0.0, {"bounds": (0, 600)})
        for message in (release, ObjectRequestMessage((made.id_at_location, None, ""), True)):
            with pytest.raises(RequestNotPermittedError, match="asked for once"):
                hospital.recv_msg(AskMessage(message, "once more", 100_000))
    assert hospital.requests == []


def test_the_owner_reads_what_an_approval_lets_through(hospital: Any) -> None:
    """What a request says of itself may come from a process that its user controls."""
    from syft.dp.asked_release import text_of_charge
    from syft.dp.composition import Charge
    from syft.federated.dataset import BaseDataset
    from syft.requests.approvals import Prepared
    from syft.requests.keeper import keeper_of

    keeper, digest = keeper_of(hospital), "0" * 64
    for key, on_request in (("asked", True), ("not asked", False)):
        data = BaseDataset(torch.zeros(2, 1), torch.zeros(2))
        hospital.add_dataset(data, key, allowed_users=[], on_request=on_request)
    charge = text_of_charge(Charge("mean", None, 50.0, 0.0, 3))
    lies = {"cost": "epsilon 0.01", "data sets": "#harmless", "mechanism": "count"}
    asked = Ask("release", digest, "a count at epsilon 0.01", "", lies, charge=charge, datasets=("#rows",))
    keeper.file("eve", Prepared(asked, 1), "")
    (seen,) = hospital.requests
    assert seen.ask.what == "mean of #rows at epsilon 50, 3 times" and seen.ask.epsilon == 50.0
    assert seen.ask.details["cost"] == "epsilon 50, delta 0, 3 times"
    assert (seen.ask.details["data sets"], seen.ask.details["mechanism"]) == ("#rows", "mean")
    asked = Ask("train", digest, "1 round of training on 'another'", "", {"rounds": "1"}, uses=900)
    keeper.file("eve", Prepared(asked, "asked"), "")
    assert hospital.requests[0].ask.what == "900 rounds of training on the data set 'asked'"
    assert hospital.requests[0].ask.details["rounds"] == "900"
    form = {"shape": "(2,)", "dtype": "float32"}
    refused: list[Prepared] = [
        Prepared(msgspec.structs.replace(asked, binding="1" * 64), "not asked"),
        Prepared(Ask("release", digest, "x", charge='["mean", "1.0"]', datasets=("#rows",)), 1),
        Prepared(Ask("release", digest, "x", datasets=("#rows",)), 1),
        Prepared(Ask("get", digest, "x", "", form), 1, bytes(4)),
        Prepared(Ask("get", digest, "x", "", form), 1),
        Prepared(Ask("get", digest, "x", "", {**form, "shape": "(10000000000,)"}), 1, b""),
        Prepared(Ask("get", digest, "x", "", {**form, "shape": "(-1,)"}), 1, b""),
        Prepared(Ask("get", digest, "x", "", {**form, "dtype": "object"}), 1, b""),
        Prepared(Ask("get", digest, "x"), 1, b""),
    ]
    for prepared in refused:
        with pytest.raises(RequestNotPermittedError):
            keeper.file("eve", prepared, "")


# -- training --------------------------------------------------------------------------------------------------


def test_training_is_approved_for_one_model_and_its_settings(hospital: Any) -> None:
    rows = sy.BaseDataset(torch.randn(8, 3), torch.randn(8, 1))
    hospital.add_dataset(rows, "scans", on_request=True)
    hospital.add_dataset(rows, "anns", allowed_users=["ann"])
    hospital.add_dataset(rows, "open")

    def trainer(key: str = "scans", loss: Any = None, lr: Any = 0.1, user: str = "bob", **more: Any) -> Any:
        settings: Any = lr if callable(lr) else {"lr": lr}
        model, used = nn.Linear(3, 1), loss or nn.MSELoss()
        return Trainer(
            model,
            used,
            [hospital],
            dataset_key=key,
            user=user,
            optimizer_args=settings,
            engine="serial",
            **more,
        )

    with pytest.raises(SyftError, match="may not train on"):
        trainer().fit(1)
    request = hospital.request_training(trainer(), rounds=2, reason="a model")
    (seen,) = hospital.requests
    assert "torch.nn.functional.linear" in seen.ask.code and "mse_loss" in seen.ask.code
    assert seen.ask.details["optimizer"] == "SGD(lr=0.1)" and seen.uses_left == 2
    hospital.approve(request.id)
    assert request.wait() is request
    for other in (
        trainer(lr=0.2),
        trainer(loss=nn.L1Loss()),
        trainer(batch_size=2),
        trainer(epochs=3),
        trainer(user="eve"),
    ):
        with pytest.raises(SyftError, match="may not train on"):
            other.fit(1)
    approved = trainer()
    assert "may not train on" in str(approved.evaluate_clients().failures)
    config = sy.TrainConfig(model=nn.Linear(3, 1), loss_fn=nn.MSELoss()).send(
        hospital, dataset_key="scans", user="bob"
    )
    with pytest.raises(SyftError, match="approved is rounds of a Trainer"):
        hospital.fit("scans", user="bob")
    del config
    assert len(approved.fit(2)) == 2
    with pytest.raises(SyftError, match="may not train on"):
        trainer().fit(1)
    for bad, said in (
        (lambda: hospital.request_training(trainer("anns")), "offers you no data set"),
        (lambda: hospital.request_training(trainer("open")), "without asking"),
        (
            lambda: hospital.request_training(trainer(lr=lambda n: {"lr": 1 / n}), rounds=2),
            "rounds that differ",
        ),
        (lambda: hospital.request_training(trainer("nowhere")), "offers you no data set"),
        (lambda: hospital.request_training(object()), "Give the Trainer"),
        (lambda: hospital.request_training(trainer(), rounds=0), "1 at least"),
    ):
        with pytest.raises((SyftError, TypeError, ValueError), match=said):
            bad()
    again = hospital.request_training(trainer())
    hospital.approve(again.id)
    hospital.remove_dataset("scans")
    hospital.add_dataset(sy.BaseDataset(torch.randn(8, 3), torch.randn(8, 1)), "scans", on_request=True)
    with pytest.raises(SyftError, match="may not train on"):
        trainer().fit(1)


# -- what is wrong with a request ------------------------------------------------------------------------------


def test_a_name_in_a_plan_adds_no_line_to_it() -> None:
    from syft.execution.program import Input
    from syft.federated.asked_training import shown_code
    from syft.federated.plan_module import traced_loss, traced_module

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_parameter("weight\nloss:\n  nothing\x1b[2J", nn.Parameter(torch.ones(1)))

        def forward(self, x: Any) -> Any:
            return x * next(self.parameters())

    rows = Input((-1, 1), torch.float32)
    model = traced_module(Model(), [rows])
    code = shown_code(model, traced_loss(nn.functional.mse_loss, model, [rows], rows))
    assert [line for line in code.split("\n") if line.startswith("loss:")] == ["loss:"]
    assert "nothing" in code and "\x1b" not in code and "  nothing" not in code.split("\n")


def test_requests_that_cannot_be_made_are_refused_with_a_cure(hospital: Any, monkeypatch: Any) -> None:
    with speaking_for("bob"):
        data = hospital.search("#x")[0]
        own = torch.ones(2).send(hospital)
        gone = data * 3
        hospital.force_rm_obj(gone.child.id_at_location)
        made = data.sum()
        made.request()
        cases: list[tuple[Callable[[], Any], type[Exception], str]] = [
            (lambda: own.request(), RequestNotPermittedError, r"without asking: pointer.get\(\)"),
            (lambda: gone.request(), SyftError, "has no object|not found|no longer"),
            (lambda: made.request(), RequestNotPermittedError, r"asked for this before.*wait\(\)"),
            (lambda: data.request(reason="x" * 1001), RequestNotPermittedError, "in fewer words"),
            (lambda: data.request(reason=3), TypeError, "is a text"),
            (lambda: torch.ones(1).request(), LocalTensorError, "on this machine already"),
            (lambda: hospital.request("nowhere"), RequestNotFoundError, r"pointer.request\(reason"),
            (
                lambda: hospital.request_release(data, "mean", epsilon=1, bounds=(0, 1)),
                SyftError,
                "not released",
            ),
            (
                lambda: hospital.recv_msg(sy.messaging.message.AskMessage(3, "")),
                RequestNotPermittedError,
                "pointer.request",
            ),
            (
                lambda: hospital.recv_msg(sy.messaging.message.RequestMessage("eat", "x")),
                RequestNotPermittedError,
                "There is no action",
            ),
        ]
        for call, error, said in cases:
            with pytest.raises(error, match=said):
                call()
    with pytest.raises(RequestNotPermittedError, match="Name yourself"):
        data.request()
    for bad in (lambda: hospital.approve("nowhere"), lambda: hospital.deny("nowhere")):
        with pytest.raises(RequestNotFoundError, match="lists those there are"):
            bad()
    (seen,) = [one for one in hospital.requests if one.status == "waiting"]
    for wrong in ({"times": 0}, {"times": 1.5}, {"seconds": 0}, {"seconds": float("nan")}):
        with pytest.raises(ValueError, match="An approval"):
            hospital.approve(seen.id, **wrong)
    hospital.deny(seen.id, "not this one")
    with pytest.raises(ValueError, match="is denied and cannot be approved"):
        hospital.approve(seen.id)
    with speaking_for("bob"), pytest.raises(RequestDeniedError, match="not this one"):
        hospital.request(seen.id).wait()
    hospital.asks_in_memory = False
    monkeypatch.setattr(hospital, "is_in_process", False)
    for owners in (
        lambda: hospital.approve("x"),
        lambda: hospital.deny("x"),
        lambda: hospital.keep_requests("x"),
    ):
        with pytest.raises(PermissionDeniedError, match="for its owner to decide"):
            owners()


def test_a_flood_of_requests_is_stopped(hospital: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_book, "MOST_OPEN_PER_USER", 3)
    monkeypatch.setattr(request_book, "MOST_PER_HOUR", 5)
    monkeypatch.setattr(request_book, "MOST_VALUE", 40)
    monkeypatch.setattr(request_book, "MOST_VALUES_PER_USER", 60)
    with speaking_for("bob"):
        data = hospital.search("#x")[0]
        with pytest.raises(RequestNotPermittedError, match="48 bytes, and 40 at most"):
            data.double().request()
        first = data.request()
        data[:5].request()
        with pytest.raises(RequestNotPermittedError, match="44 bytes of values"):
            data[:6].clone().request()
        data[0].request()
        with pytest.raises(RequestNotPermittedError, match=r"request.withdraw\(\)"):
            data[1].request()
        first.withdraw()
        assert first.status == "withdrawn" and hospital.requests[-1].nbytes == 0
        data[1].request().withdraw()
        data[1].request().withdraw()
        with pytest.raises(RequestNotPermittedError, match="within an hour"):
            data[1].request()
    monkeypatch.setattr(request_book, "MOST_OPEN", 2)
    with speaking_for("eve"), pytest.raises(RequestNotPermittedError, match="queue of this worker is full"):
        hospital.search("#x")[0].request()


# -- the book --------------------------------------------------------------------------------------------------


def an_ask(number: int = 0, uses: int = 1) -> Ask:
    return Ask("get", f"{number:064x}", "a value", "why", uses=uses)


def test_time_ends_requests_and_approvals(tmp_path: Path) -> None:
    now = [1000.0]
    book = RequestBook(tmp_path / "queue", clock=lambda: now[0])
    waits, approved = book.file("ann", "", an_ask(1), b"1"), book.file("ann", "", an_ask(2), b"2")
    book.approve(approved.id, seconds=60)
    now[0] += 61
    assert book.use("ann", "get", an_ask(2).binding) is None
    assert (book.get(approved.id).status, book.get(approved.id).nbytes) == ("expired", 0)
    now[0] += 31 * 86_400
    assert book.get(waits.id).status == "expired"
    events: list[Any] = []
    book.copy_events(events.append)
    assert [e.action for e in events] == ["request", "request", "approve", "expire", "expire"]
    assert book.copy_events(events.append) == 0


def test_one_approval_is_used_once_by_whoever_races(tmp_path: Path) -> None:
    book = RequestBook(tmp_path / "queue")
    request = book.file("ann", "", an_ask())
    book.approve(request.id)
    others = [RequestBook(tmp_path / "queue") for _ in range(4)]
    won: list[Any] = []
    threads = [
        threading.Thread(target=lambda b=b: won.append(b.use("ann", "get", an_ask().binding))) for b in others
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(one is not None for one in won) == 1


def test_a_crash_leaves_the_queue_as_it_was_before_or_after(tmp_path: Path) -> None:
    path = tmp_path / "queue"
    RequestBook(path).file("ann", "", an_ask(), b"value")
    child = os.fork()
    if child == 0:  # NB: it ends in the middle of a transaction
        with RequestBook(path)._transaction() as connection:
            connection.execute("UPDATE requests SET status = 'approved'")
            os._exit(0)
    os.waitpid(child, 0)
    (found,) = RequestBook(path).all()
    assert found.status == "waiting" and RequestBook(path).value_of(found.id) == b"value"


def test_a_file_that_is_no_queue_is_refused(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("x" * 5000)
    with pytest.raises(RequestFileError, match="cannot be read"):
        RequestBook(tmp_path / "text")
    with pytest.raises(FileNotFoundError, match="syft worker --requests"):
        RequestBook.open(tmp_path / "nowhere")
    book = RequestBook(tmp_path / "queue")
    (tmp_path / "queue").chmod(0o644)
    book.all()
    assert stat.S_IMODE((tmp_path / "queue").stat().st_mode) == 0o600
    (tmp_path / "queue").unlink()
    with pytest.raises(RequestFileError, match="is gone"):
        book.all()
