"""DP-SGD on a worker: noise where the data is, charged before the first step, only layers that are vouched for."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import pytest
import torch
from torch import nn

from syft.core.nested import found_in
from syft.dp.release_training import train_privately
from syft.exceptions import BudgetExceededError, ReleaseNotPermittedError

pytest.importorskip("dp_accounting")
torch.set_num_threads(1)

SETTINGS = dict(loss="cross_entropy", user="ann", delta=1e-5, epochs=2, batch_size=100, lr=1.0)


def put(worker: Any, values: torch.Tensor, tag: str) -> Any:
    return values.private_tensor(allowed_users=("owner",)).tag(tag).send(worker, user="owner")


@pytest.fixture
def data(bob: Any) -> tuple[Any, Any]:
    torch.manual_seed(0)
    x = torch.randn(600, 4)
    pointers = put(bob, x, "#x"), put(bob, (x[:, 0] > 0).long(), "#y")
    for pointer in pointers:
        bob.set_budget(dataset=pointer, epsilon=10.0, delta=1e-4)
    return pointers


def test_a_model_is_trained_where_the_data_is_and_both_data_sets_pay(bob: Any, data: Any) -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    before = [p.clone() for p in model.parameters()]
    trained = train_privately(*data, model, epsilon=8.0, **SETTINGS)
    assert all(torch.equal(p, q) for p, q in zip(model.parameters(), before, strict=True))
    x = torch.randn(500, 4)
    assert (trained(x).argmax(1) == (x[:, 0] > 0)).float().mean() > 0.8
    for name in ("#x", "#y"):
        state = bob.budget("ann", name)
        assert (state.spent, state.releases[0].mechanism) == (8.0, "dpsgd")
    with pytest.raises(BudgetExceededError, match="epsilon 2 of 10 left"):
        train_privately(*data, model, epsilon=3.0, **SETTINGS)
    bob.release(data[0][:, 0], "mean", 2.0, user="ann", bounds=(-3, 3))


def test_less_epsilon_is_more_noise(bob: Any, data: Any) -> None:
    model = nn.Sequential(nn.Linear(4, 2))
    bob.set_budget(dataset=data[0], epsilon=1e4, delta=1e-2)
    bob.set_budget(dataset=data[1], epsilon=1e4, delta=1e-2)

    def spread(epsilon: float) -> float:
        """How far two runs on the same data are apart."""
        one, other = (train_privately(*data, model, epsilon=epsilon, **SETTINGS)[0] for _ in range(2))
        return float((one.weight - other.weight).detach().abs().max())

    assert spread(0.05) > 3 * spread(50.0) > 0


def test_a_model_with_layers_that_stand_twice_is_trained_as_it_is(bob: Any, data: Any) -> None:
    torch.manual_seed(0)
    shared, act = nn.Linear(4, 4), nn.Tanh()
    model = nn.Sequential(shared, act, shared, act, nn.Linear(4, 2))
    trained = train_privately(*data, model, epsilon=8.0, **SETTINGS)
    assert trained[0] is trained[2] and type(trained[0].weight) is nn.Parameter
    assert [name for name, _ in trained.named_parameters()] == [name for name, _ in model.named_parameters()]
    assert not any(torch.equal(p, q) for p, q in zip(trained.parameters(), model.parameters(), strict=True))


def test_labels_and_inputs_at_the_extremes_do_not_show(bob: Any) -> None:
    x, y = torch.randn(200, 4), torch.randint(0, 2, (200,)).float()
    x[0], x[1], y[2], y[3], y[4] = float("nan"), float("inf"), float("nan"), 99.0, -7.0
    x, y = put(bob, x, "#x"), put(bob, y, "#y")
    for pointer in (x, y):
        bob.set_budget(dataset=pointer, epsilon=10.0, delta=1e-4)
    trained = train_privately(x, y, nn.Sequential(nn.Linear(4, 2)), epsilon=5.0, **SETTINGS)
    assert all(p.isfinite().all() for p in trained.parameters())


class Spy(nn.Linear):
    """Keeps what it sees, and adds it to its output."""

    seen: ClassVar[list[Any]] = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.seen.append(x)
        return super().forward(x) + x


def test_code_of_a_model_sees_no_private_row_and_what_it_computes_is_trained(bob: Any, data: Any) -> None:
    model = nn.Sequential(Spy(4, 4), nn.Linear(4, 2))
    model[1].register_forward_hook(lambda *parts: Spy.seen.append(parts))
    Spy.seen.clear()
    trained = train_privately(*data, model, epsilon=8.0, **SETTINGS)
    rows = bob.get_obj(data[0].child.id_at_location)
    rows = getattr(rows, "child", rows)
    seen = [t.detach() for t in found_in(Spy.seen, torch.Tensor) if type(t) is torch.Tensor]
    assert Spy.seen and not any(t.shape == rows.shape for t in seen)
    assert not any((rows == row).all(1).any() for t in seen if t.shape[1:] == (4,) for row in t)
    x = torch.randn(500, 4)
    assert (trained(x).argmax(1) == (x[:, 0] > 0)).float().mean() > 0.8
    assert type(trained[0]) is Spy


@pytest.mark.parametrize(
    ("model", "sentence"),
    [
        (lambda: nn.Sequential(nn.Linear(4, 2), nn.BatchNorm1d(2)), "does not run .*batch_norm"),
        (lambda: nn.Sequential(nn.Dropout(), nn.Linear(4, 2)), "does not run .*dropout"),
        (lambda: _replaced(), "does not run __getitem__"),
        (lambda: nn.Sequential(nn.Flatten(0), nn.Linear(4, 2)), "shapes cannot be multiplied"),
        (lambda: nn.Sequential(nn.Linear(5, 2)), "shapes cannot be multiplied"),
    ],
)
def test_a_model_with_other_operations_is_refused_and_not_charged(
    bob: Any, data: Any, model: Any, sentence: str
) -> None:
    with pytest.raises((ReleaseNotPermittedError, ValueError), match=sentence):
        train_privately(*data, model(), epsilon=1.0, **SETTINGS)
    assert bob.budget("ann", "#x").releases == ()


def _replaced() -> nn.Module:
    model = nn.Sequential(nn.Linear(4, 2))
    model[0].forward = lambda x: x[:, :2]  # type: ignore[method-assign]
    return model


def test_wrong_requests_are_explained_and_not_charged(bob: Any, alice: Any, data: Any) -> None:
    x, y = data
    model = nn.Sequential(nn.Linear(4, 2))
    wrong: list[tuple[Any, dict[str, Any], str]] = [
        ((x, y[1:]), {}, "same records"),
        ((x[1:], y[:-1]), {}, "same records"),
        ((x, torch.zeros(3)), {}, "pointers"),
        ((x, put(alice, torch.zeros(600), "#z")), {}, "move one"),
        ((x.mean(0), y), {}, "same records"),
        ((x.cumsum(0), y), {}, "not released"),
        ((x.long(), y), {}, "floating-point"),
        ((x, y), {"loss": "guess"}, "There are"),
        ((x, y), {"delta": 0.0}, "delta"),
        ((x, y), {"epsilon": 0.0}, "epsilon"),
        ((x, y), {"loss": "mse"}, "target"),
    ]
    for pointers, options, sentence in wrong:
        with pytest.raises((ValueError, TypeError, PermissionError), match=sentence):
            train_privately(*pointers, model, **{"epsilon": 1.0, **SETTINGS, **options})
    assert bob.budget("ann", "#x").releases == ()


@pytest.mark.parametrize(("epsilon", "changes"), [(1e-6, 2), (1.0, 2), (3.0, 14), (50.0, 6), (600.0, 4)])
def test_the_part_of_delta_for_one_record_more_is_that_of_the_sum(epsilon: float, changes: int) -> None:
    from syft.dp.release_training import _for_one_more

    each, part = _for_one_more(epsilon, 1e-5, changes)
    total = math.fsum(math.exp(step * each) for step in range(changes))
    assert each == epsilon / changes
    assert part * total <= 1e-5 and part * total == pytest.approx(1e-5, rel=1e-6)


def test_a_person_may_have_any_number_of_records() -> None:
    from syft.dp.release_training import _for_one_more

    assert _for_one_more(1.0, 1e-5, 2 * 10**12)[1] > 0
