"""What happens while a release is prepared: who writes or changes a setting meanwhile gains nothing by it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from syft.dp import release, release_training
from syft.dp.release_training import train_privately
from syft.dp.worker_budgets import BudgetBook, Limit
from syft.exceptions import ReleaseNotPermittedError

torch.set_num_threads(1)

RECORDS = torch.randn(60, 4, generator=torch.Generator().manual_seed(2))
SETTINGS: dict[str, Any] = dict(
    loss="mse", user="ann", epsilon=1.0, delta=1e-6, epochs=1, batch_size=20, lr=0.1
)


def put(worker: Any, values: torch.Tensor, tag: str) -> Any:
    return values.clone().private_tensor(allowed_users=("owner",)).tag(tag).send(worker, user="owner")


@pytest.fixture
def book(bob: Any, tmp_path: Any) -> BudgetBook:
    made = BudgetBook.create(tmp_path / "book")
    bob.keep_budgets(made)
    return made


@pytest.fixture
def data(bob: Any, book: BudgetBook) -> tuple[Any, Any]:
    pointers = put(bob, RECORDS, "#x"), put(bob, torch.zeros(60, 1), "#y")
    for pointer in pointers:
        bob.set_budget(dataset=pointer, epsilon=100.0, delta=1e-2)
    return pointers


def first(module: Any, name: str, act: Callable[[], Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Another thread acts just before a function of a module runs."""
    real = getattr(module, name)
    monkeypatch.setattr(module, name, lambda *a, **k: (act(), real(*a, **k))[1])


def afterwards(module: Any, name: str, act: Callable[[], Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Another thread acts just after it ran."""
    real = getattr(module, name)
    monkeypatch.setattr(module, name, lambda *a, **k: (real(*a, **k), act())[0])


def rows_and_everybody(bob: Any, x: Any) -> tuple[Any, Any]:
    """Rows that may be released, and the sum of all records in every row, which may not."""
    return x * 1.0, x.sum(0, keepdim=True) + torch.zeros(60, 1).send(bob)


# -- rows that are written into ----------------------------------------------------------------------------


def test_a_training_that_was_looked_at_goes_by_what_was_looked_at(
    bob: Any, data: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("dp_accounting")
    mine, every = rows_and_everybody(bob, data[0])
    trained_on: list[torch.Tensor] = []
    make = release_training.make_private

    def spied(model: Any, optimizer: Any, loader: Any, **options: Any) -> Any:
        trained_on.append(loader.dataset.tensors[0])
        return make(model, optimizer, loader, **options)

    monkeypatch.setattr(release_training, "make_private", spied)
    first(release_training, "_rehearsed", lambda: mine.copy_(every), monkeypatch)
    train_privately(mine, data[1], nn.Sequential(nn.Linear(4, 1)), **SETTINGS)
    assert torch.equal(trained_on[-1], RECORDS)
    monkeypatch.undo()
    with pytest.raises(ReleaseNotPermittedError):  # it is not released any more, now that it was written into
        train_privately(mine, data[1], nn.Sequential(nn.Linear(4, 1)), **SETTINGS)


@pytest.mark.parametrize("which", [0, 1])
def test_a_training_on_rows_that_are_written_into_before_they_are_copied_is_refused(
    bob: Any, data: Any, which: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("dp_accounting")
    pointers = [data[0] * 1.0, data[1] * 1.0]
    looked_up: list[int] = []

    def write() -> None:
        looked_up.append(which)
        if len(looked_up) == which + 1:  # that one is looked up, and not yet copied
            pointers[which].copy_(pointers[which])

    afterwards(release_training, "released_rows", write, monkeypatch)
    with pytest.raises(ReleaseNotPermittedError, match="not released"):
        train_privately(*pointers, nn.Sequential(nn.Linear(4, 1)), **SETTINGS)
    assert bob.budget("ann", "#x").releases == bob.budget("ann", "#y").releases == ()


@pytest.mark.parametrize("step", ["released_rows", "settle"])
def test_a_release_of_rows_that_are_written_into_before_they_are_copied_is_refused(
    bob: Any, data: Any, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine, every = rows_and_everybody(bob, data[0])
    afterwards(release, step, lambda: mine.copy_(every), monkeypatch)
    with pytest.raises(ReleaseNotPermittedError, match="not released"):
        bob.release(mine, "mean", 0.1, user="ann", bounds=(0, 1))
    assert bob.budget("ann", "#x").releases == ()


# -- records of a person -----------------------------------------------------------------------------------


def test_a_release_has_noise_for_as_many_records_as_the_owner_says_when_it_is_charged(
    bob: Any, data: Any, book: BudgetBook, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner = BudgetBook(book.path)

    def set_records() -> None:
        owner.set_limit("#x", Limit(100.0, 1e-2), max_records_per_person=7)

    afterwards(release, "settle", set_records, monkeypatch)
    with pytest.raises(ReleaseNotPermittedError, match=r"noise for 1 .* may have 7.*ask again"):
        bob.release(data[0], "mean", 0.1, user="ann", bounds=(0, 1))
    assert bob.budget("ann", "#x").releases == ()
    bob.release(data[0], "mean", 0.1, user="ann", bounds=(0, 1))  # asked again


def test_a_training_has_too(bob: Any, data: Any, book: BudgetBook, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("dp_accounting")
    owner = BudgetBook(book.path)

    def set_records() -> None:
        owner.set_limit("#y", Limit(100.0, 1e-2), max_records_per_person=7)

    first(release_training, "_for_one_more", set_records, monkeypatch)
    with pytest.raises(ReleaseNotPermittedError, match=r"noise for 1 .* may have 7.*ask again"):
        train_privately(*data, nn.Sequential(nn.Linear(4, 1)), **SETTINGS)
    assert bob.budget("ann", "#x").releases == ()


@pytest.fixture
def records_of_requests(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """For how many records of a person each answer has noise."""
    found: list[int] = []
    real = release.answer

    def spied(values: Any, request: Any) -> Any:
        found.append(request.records_per_person)
        return real(values, request)

    monkeypatch.setattr(release, "answer", spied)
    return found


def test_what_was_made_of_two_tensors_of_one_name_has_noise_for_both(
    bob: Any, book: BudgetBook, records_of_requests: list[int]
) -> None:
    """Somebody may be in the first row of one and in the last of the other."""
    x, y = put(bob, RECORDS, "#both"), put(bob, RECORDS.flip(0), "#both")
    bob.set_budget(dataset="#both", epsilon=100.0, max_records_per_person=3)
    for made in (x, x + x * 2, x[:, 0] + y[:, 0], torch.cat([x, y * 2], dim=1)):
        bob.release(made, "mean", 0.1, user="ann", bounds=(-9, 9))
    assert records_of_requests == [3, 3, 6, 6]
    assert len(bob.budget("ann", "#both").releases) == 4


def test_under_two_names_both_are_charged_instead(
    bob: Any, data: Any, records_of_requests: list[int]
) -> None:
    bob.release(data[0] + data[1], "mean", 0.1, user="ann", bounds=(-9, 9))
    assert records_of_requests == [1]
    assert bob.budget("ann", "#x").spent == bob.budget("ann", "#y").spent == 0.1


def test_inputs_and_targets_of_one_name_are_trained_on_with_noise_for_both(
    bob: Any, book: BudgetBook, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("dp_accounting")
    x, y = put(bob, RECORDS, "#both"), put(bob, torch.zeros(60, 1), "#both")
    bob.set_budget(dataset="#both", epsilon=100.0, delta=1e-2)
    changes: list[int] = []
    real = release_training._for_one_more

    def spied(epsilon: float, delta: float, count: int) -> tuple[float, float]:
        changes.append(count)
        return real(epsilon, delta, count)

    monkeypatch.setattr(release_training, "_for_one_more", spied)
    model = nn.Sequential(nn.Linear(4, 1))
    train_privately(x, y, model, **SETTINGS)
    train_privately(x, x[:, :1], model, **SETTINGS)  # of one tensor: one row is one record
    assert changes == [4, 2]
