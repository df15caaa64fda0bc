"""The loop that people write for plain torch: the same training as `training.step`, or an error that says why not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

from syft.dp.accounting import BudgetExceededError
from syft.dp.dpsgd import PrivateTraining, make_private
from syft.dp.own_loop import own_loop
from syft.mpc.randomness import Stream

pytest.importorskip("dp_accounting")
torch.set_num_threads(1)


def made(
    loss_fn: Any = None, batch: int = 20, seed: bytes = b"s", loader: Any = None, **options: Any
) -> PrivateTraining:
    torch.manual_seed(1)
    x = torch.randn(100, 6)
    model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    options.setdefault("target_epsilon", None)
    if options["target_epsilon"] is None:
        options.setdefault("noise_multiplier", 1.0)
    data = loader or DataLoader(TensorDataset(x, (x[:, 0] > 0).long()), batch_size=batch)
    training = make_private(model, optimizer, data, loss_fn=loss_fn or nn.CrossEntropyLoss(), **options)
    training.stream = Stream((b"noise" + seed).ljust(16))
    training.loader._stream = Stream((b"rows" + seed).ljust(16))
    return training


@pytest.mark.parametrize("options", [{}, {"clipping": "per_layer", "physical_batch": 7}])
def test_the_loop_trains_bit_for_bit_as_step_does(options: dict[str, Any]) -> None:
    stepped, looped = made(**options), made(**options)
    model, optimizer, criterion, loader = own_loop(looped)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2)
    other = torch.optim.lr_scheduler.StepLR(stepped.optimizer, 2)
    for (x, y), (inputs, targets) in zip(loader, stepped.loader, strict=True):
        optimizer.zero_grad()
        outputs = model(x)
        loss = criterion(outputs, y)
        assert outputs.detach().shape == (len(x), 3)
        loss.backward()
        optimizer.step()
        scheduler.step()
        assert loss.item() == pytest.approx(stepped.step(inputs, targets))
        other.step()
    for one, two in zip(looped.model.parameters(), stepped.model.parameters(), strict=True):
        assert torch.equal(one, two)
    assert looped.accountant.spent == stepped.accountant.spent
    assert looped.epsilon(1e-5) == stepped.epsilon(1e-5) > 0
    assert model.train() is model
    assert model.eval()(torch.zeros(2, 6)).shape == (2, 3)  # the model itself, for a validation


Loop = tuple[Any, Any, Any, Any, PrivateTraining]


def forward(loop: Loop) -> Any:
    model, _optimizer, criterion, loader, _training = loop
    x, y = next(iter(loader))
    return criterion(model(x), y)


def step_without_backward(loop: Loop) -> None:
    forward(loop)
    loop[1].step()


def plain_model(loop: Loop) -> None:
    x, y = next(iter(loop[3]))
    nn.functional.cross_entropy(loop[4].model(x), y).backward()
    loop[1].step()


def zero_grad_after_backward(loop: Loop) -> None:
    forward(loop).backward()
    loop[1].zero_grad()
    loop[1].step()


def two_backwards(loop: Loop) -> None:
    loss = forward(loop)
    loss.backward(retain_graph=True)
    loss.backward()


def accumulated(loop: Loop) -> None:
    forward(loop).backward()
    loop[1].zero_grad()
    forward(loop).backward()


def next_batch_before_step(loop: Loop) -> None:
    batches = iter(loop[3])
    x, y = next(batches)
    loop[2](loop[0](x), y).backward()
    next(batches)
    loop[1].step()


def scaled(loop: Loop) -> None:
    (forward(loop) / 2).backward()


def clipped_by_hand(loop: Loop) -> None:
    forward(loop).backward()
    for parameter in loop[4].model.parameters():
        parameter.grad = torch.ones_like(parameter)
    loop[1].step()


def old_gradients(loop: Loop) -> None:
    for _ in range(2):
        forward(loop).backward()
        loop[1].step()


def stepped_twice(loop: Loop) -> None:
    forward(loop).backward()
    loop[1].step()
    loop[1].step()


def own_rows(loop: Loop) -> None:
    loop[2](loop[0](torch.zeros(3, 6)), torch.zeros(3, dtype=torch.long)).backward()


def other_criterion(loop: Loop) -> None:
    x, y = next(iter(loop[3]))
    nn.CrossEntropyLoss()(loop[0](x), y)


def attribute_of_outputs(loop: Loop) -> None:
    _ = loop[0](torch.zeros(3, 6)).loss


def outputs_of_the_plain_model(loop: Loop) -> None:
    loop[2](loop[4].model(torch.zeros(3, 6)), torch.zeros(3, dtype=torch.long))


def twice(loop: Loop) -> None:
    own_loop(loop[4])


MISTAKES: dict[Callable[[Loop], None], str] = {
    step_without_backward: "without a gradient",
    plain_model: "without a gradient",
    zero_grad_after_backward: "without a gradient",
    two_backwards: "twice",
    accumulated: "twice",
    next_batch_before_step: "another batch",
    scaled: "times 0.5",
    clipped_by_hand: "was changed between",
    old_gradients: "gradients of an earlier step",
    stepped_twice: "without a gradient",
    own_rows: "outstanding",
    other_criterion: "only its criterion",
    attribute_of_outputs: "only the criterion",
    outputs_of_the_plain_model: "got a Tensor",
    twice: "second time",
}


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda f: f.__name__)
def test_what_would_make_another_gradient_is_refused_and_nothing_is_released(
    mistake: Callable[[Loop], None],
) -> None:
    training = made()
    loop = (*own_loop(training), training)
    before = [p.clone() for p in training.model.parameters()]
    with pytest.raises((ValueError, TypeError, AttributeError), match=MISTAKES[mistake]):
        mistake(loop)
    honest = 1 if mistake in (old_gradients, stepped_twice) else 0
    assert sum(training.accountant.spent.values()) == honest
    changed = any(not torch.equal(a, b) for a, b in zip(before, training.model.parameters(), strict=True))
    assert changed == bool(honest)


def test_a_loss_that_is_summed_a_target_that_is_used_up_and_training_step_beside_the_loop() -> None:
    for reduction in ("sum", "none"):
        with pytest.raises(ValueError, match=f"reduction='{reduction}'"):
            own_loop(made(nn.CrossEntropyLoss(reduction=reduction)))
    training = made(target_epsilon=50.0, target_delta=1e-5, epochs=1)
    model, optimizer, criterion, loader = own_loop(training)
    for number, (x, y) in enumerate(loader):
        if number == 2:
            training.step(x, y)
            continue
        optimizer.zero_grad()
        criterion(model(x), y).backward()
        optimizer.step()
    x, y = next(iter(loader))
    optimizer.zero_grad()
    criterion(model(x), y).backward()
    before = [p.clone() for p in training.model.parameters()]
    with pytest.raises(BudgetExceededError):
        optimizer.step()
    assert all(torch.equal(a, b) for a, b in zip(before, training.model.parameters(), strict=True))


class Told(Dataset[Any]):
    """Rows that say in which process they were made."""

    def __len__(self) -> int:
        return 40

    def __getitem__(self, row: int) -> Any:
        worker = torch.utils.data.get_worker_info()
        return torch.full((6,), float(row)), torch.tensor(-1 if worker is None else worker.id)


def test_num_workers_make_the_batches_and_the_rows_are_those_that_were_drawn() -> None:
    here = made(loader=DataLoader(Told(), batch_size=8))
    there = made(loader=DataLoader(Told(), batch_size=8, num_workers=2, persistent_workers=True))
    makers = set()
    for _ in range(2):
        for (x, y), (other, _) in zip(there.loader, here.loader, strict=True):
            assert torch.equal(x, other)
            assert there.loader.outstanding == len(x)
            makers |= set(y.tolist())
    assert makers == {0, 1}
    rare = made(loader=DataLoader(Told(), batch_size=1, num_workers=1), seed=b"rare")
    sizes = [len(x) for x, _y in rare.loader]
    assert 0 in sizes  # a batch without rows is made, too
    next(iter(rare.loader))
    assert len([x for x, _y in rare.loader]) == len(rare.loader)  # after one that was left in the middle


def test_a_wrong_number_of_inputs_is_refused_before_it_is_charged() -> None:
    training = made()
    x, y = next(iter(training.loader))
    for inputs in ((x, x), {"x": x}, {"input": x, "mask": x}):
        with pytest.raises(TypeError, match="Nothing was charged"):
            training.step(inputs, y)
    assert not training.accountant.spent
    assert training.step((x,), y) > 0
