"""PATE with teachers on workers: votes never leave without noise, and what the answers cost is charged first."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from syft.dp import gnmax
from syft.exceptions import BudgetExceededError, GetNotPermittedError

pytest.importorskip("dp_accounting")
torch.set_num_threads(1)

CENTRES = torch.tensor([[2.0, 0.0], [-1.0, 1.7], [-1.0, -1.7]])


def people(count: int) -> tuple[torch.Tensor, torch.Tensor]:
    kinds = torch.randint(0, 3, (count,))
    return CENTRES[kinds] + 0.6 * torch.randn(count, 2), kinds


@pytest.fixture
def vote(make_worker: Any) -> Any:
    """(ballots on the aggregator, the aggregator, questions, their true kinds) of 20 teachers."""
    torch.manual_seed(3)
    aggregator = make_worker("aggregator")
    questions, truth = people(12)
    votes = []
    for number in range(20):
        owner = f"teacher {number}"
        worker = make_worker(owner)
        x, y = people(30)
        x = x.private_tensor(allowed_users=(owner,)).send(worker, user=owner)
        y = nn.functional.one_hot(y, 3).float()
        y = y.private_tensor(allowed_users=(owner,)).send(worker, user=owner)
        model = nn.Linear(2, 3).send(worker)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.6)
        for _ in range(4):
            optimizer.zero_grad()
            ((model(x) - y) ** 2).mean().backward()
            optimizer.step()
        cast = model(questions.send(worker)).argmax(1)
        for taken in (cast, model.weight):
            with pytest.raises(GetNotPermittedError):
                taken.copy().get(user="student")
        with pytest.raises(GetNotPermittedError):
            cast.move(aggregator, user="student")
        votes.append(cast.move(aggregator, user=owner))
    return torch.stack(votes), aggregator, questions, truth


def test_a_student_learns_from_noisy_answers_and_pays_for_them(vote: Any) -> None:
    ballots, aggregator, questions, truth = vote
    for user in (None, "student", "teacher 0"):
        with pytest.raises(GetNotPermittedError):
            ballots.copy().get(user=user)
    aggregator.set_budget(
        dataset=ballots, computed=True, name="votes", user="student", epsilon=12.0, delta=1e-5
    )
    labels = aggregator.release(ballots, "gnmax", user="student", classes=3, sigma=3.0)
    assert (labels == truth).float().mean() >= 0.75
    state = aggregator.budget("student", "votes")
    # The same divergence, order / sigma^2 per answer: the paper's at the best order, the book's at one fixed beforehand.
    paper = gnmax.epsilon_from_rdp(12 * torch.tensor(gnmax.ORDERS).numpy() / 9.0, gnmax.ORDERS, 1e-5)[0]
    assert 0.7 * paper < state.spent <= 1.15 * paper
    with pytest.raises(BudgetExceededError):
        aggregator.release(ballots, "gnmax", user="student", classes=3, sigma=1.0)

    student = nn.Linear(2, 3)
    optimizer = torch.optim.Adam(student.parameters(), lr=0.1)
    for _ in range(60):
        optimizer.zero_grad()
        nn.functional.cross_entropy(student(questions), labels).backward()
        optimizer.step()
    x, y = people(300)
    assert (student(x).argmax(1) == y).float().mean() > 0.8

    published = gnmax.release(
        aggregator.get_obj(ballots.id_at_location), range(12), sigma=3.0, order=5.0, num_classes=3
    )
    assert 0 < published.epsilon < 2 * paper


def test_the_noise_is_there_and_grows_with_sigma(vote: Any) -> None:
    ballots, aggregator, _questions, _truth = vote
    aggregator.set_budget(
        dataset=ballots, computed=True, name="votes", user="student", epsilon=1e6, delta=1e-5
    )
    clear = aggregator.get_obj(ballots.id_at_location).mode(0).values
    calm = aggregator.release(ballots, "gnmax", user="student", classes=3, sigma=0.1)
    assert torch.equal(calm, clear)
    loud = [aggregator.release(ballots, "gnmax", user="student", classes=3, sigma=400.0) for _ in range(5)]
    assert 0.15 < (torch.stack(loud) == clear).float().mean() < 0.65


def test_one_teachers_ballot_alone_is_not_a_data_set(vote: Any) -> None:
    ballots, aggregator, _questions, _truth = vote
    aggregator.set_budget(
        dataset=ballots, computed=True, name="votes", user="student", epsilon=1e6, delta=1e-5
    )
    with pytest.raises(PermissionError, match="not released"):
        aggregator.release(ballots[0], "gnmax", user="student", classes=3, sigma=1.0)
