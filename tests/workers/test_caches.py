"""Programs with all that is learnt, and with nothing of it: equal results, equal stores. See syft.core.memory."""

from __future__ import annotations

import gc
import random
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import syft as sy
import zoo
import zoo_ways
from syft.core import shapes
from syft.core.memory import CACHES, Memory
from syft.execution.held import HeldPlan
from syft.operations import admission
from syft.policy.caller import speaking_for
from syft.policy.permissions import Policy
from syft.tensors import kept_graphs

# -- programs ------------------------------------------------------------------------------------------


def _sent(worker: Any, *tensors: torch.Tensor) -> list[Any]:
    return [tensor.clone().send(worker) for tensor in tensors]  # type: ignore[attr-defined]


def _numbers(*shape: int) -> torch.Tensor:
    return torch.randn(*shape)


def _labels(count: int, kinds: int = 3) -> torch.Tensor:
    return torch.randint(kinds, (count,))


def _trained(
    worker: Any, model: nn.Module, optimizer: Callable[..., Any], data: torch.Tensor, steps: int = 4
) -> Any:
    """The losses, gradients, state and optimizer state of a model that was trained there, some steps of it fetched."""
    target = _labels(len(data))
    model.send(worker)  # type: ignore[operator]
    x, y = _sent(worker, data, target)
    optimizing = optimizer(model.parameters())
    losses = []
    for step in range(steps):
        optimizing.zero_grad(set_to_none=step % 2 == 0)
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizing.step()
        losses.append(loss.get() if step % 2 else loss)
    gradients = [p.grad.clone().get() for p in model.parameters()]
    model.get()  # type: ignore[operator]
    losses = [loss if type(loss) is torch.Tensor else loss.get() for loss in losses]
    return losses, gradients, model.state_dict(), optimizing.state_dict()["state"]


def _mlp(worker: Any, optimizer: Callable[..., Any]) -> Any:
    return _trained(
        worker, nn.Sequential(nn.Linear(8, 6), nn.ReLU(), nn.Linear(6, 3)), optimizer, _numbers(5, 8)
    )


class _Flat(nn.Module):
    """A recurrent layer and a head on its last step."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.head = nn.LSTM(4, 5, batch_first=True), nn.Linear(5, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.layer(x)[0][:, -1])  # type: ignore[no-any-return]


def _lstm(worker: Any) -> Any:
    return _trained(worker, _Flat(), partial(torch.optim.SGD, lr=0.1), _numbers(5, 3, 4))


def _cnn(worker: Any) -> Any:
    model = nn.Sequential(
        nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(27, 3)
    )
    return _trained(worker, model, partial(torch.optim.SGD, lr=0.1, momentum=0.9), _numbers(4, 1, 8, 8), 3)


def _plan(worker: Any) -> Any:
    model = nn.Sequential(nn.Linear(8, 6), nn.ReLU(), nn.Linear(6, 3))
    plan = sy.func2plan(args_shape=[(-1, 8)])(model).send(worker)
    found = []
    for rows in (3, 3, 5, 3):
        (x,) = _sent(worker, _numbers(rows, 8))
        found.append(plan(x).detach().get())
    return found


def _training_plan(worker: Any) -> Any:
    model = nn.Sequential(nn.Linear(8, 6), nn.Linear(6, 3))
    data, target = _numbers(4, 8), _labels(4)
    plan = sy.Plan.training(model, F.cross_entropy, torch.optim.SGD(model.parameters(), lr=0.1)).build(
        data, target
    )
    remote = plan.send(worker)
    losses = [remote(*_sent(worker, data, target)).get() for _ in range(3)]
    plan.get_()
    return losses, model.state_dict()


def _federated_loop(worker: Any) -> Any:
    other = sy.VirtualWorker(id="caches_other")
    worker.add_worker(other), other.add_worker(worker)
    rows = sy.BaseDataset(_numbers(12, 8), _labels(12)).federate((other, worker))
    loader = sy.FederatedDataLoader(rows, batch_size=4)
    model = nn.Sequential(nn.Linear(8, 6), nn.ReLU(), nn.Linear(6, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    losses = []
    for _ in range(2):
        for data, target in loader:
            model.send(data.location)
            optimizer.zero_grad()
            loss = F.cross_entropy(model(data), target)
            loss.backward()
            optimizer.step()
            model.get()
            losses.append(loss.get())
    other.remove_worker_from_local_worker_registry()
    return losses, model.state_dict(), optimizer.state_dict()["state"]


#: Functions of one and of two square matrices; those in the last list write into the first.
_OF_ONE = [torch.relu, torch.t, torch.Tensor.contiguous, lambda x: x[1:].sum(0, True), lambda x: x * 2]
_OF_ONE += [lambda x: x - 1.5, lambda x: x.softmax(1), lambda x: x.view(2, 8).reshape(4, 4), torch.clone]
_OF_TWO = [torch.add, torch.mul, torch.mm, torch.sub, lambda x, y: torch.cat([x, y])[2:6], torch.maximum]
_WRITING = [
    lambda x, y: x.add_(y, alpha=0.5),
    lambda x, y: x.mul_(0.5),
    lambda x, y: x[1].copy_(y[0]),
    lambda x, y: x.t().sub_(y),
]


def _random_commands(worker: Any, seed: int, count: int = 80) -> Any:
    """Commands drawn by chance on matrices, tracked and not: forward, views, writes, backward passes.

    Each runs in plain torch first. One that torch refuses (shapes, graphs that are used twice or written into) is left
    out, and the gradients begin anew; of the others the values are those of torch, bit for bit.
    """
    rng = random.Random(seed)
    # Pairs of a plain tensor and a pointer.
    values = [_numbers(4, 4) for _ in range(5)]
    held: list[Any] = list(zip([v.clone() for v in values], _sent(worker, *values), strict=True))
    leaves = held[:3]
    for pair in leaves:
        pair[0].requires_grad_(), pair[1].requires_grad_()
    heard: list[Any] = []

    def differentiate(x: Any, hooked: bool, retained: bool) -> Any:
        loss = x.tanh().sum()
        if hooked:
            loss.register_hook(lambda gradient: gradient * 2)
        loss.backward(retain_graph=True) if retained else loss.backward()
        return loss

    for _ in range(count):
        choice = rng.random()
        chosen = [rng.choice(held)]
        tracks = True
        if choice < 0.45:
            command = rng.choice(_OF_TWO)
            chosen.append(rng.choice(held))
        elif choice < 0.75:
            command = rng.choice(_OF_ONE)
        elif choice < 0.9:
            command, tracks = rng.choice(_WRITING), choice < 0.85
            chosen = [rng.choice(held[3:] if tracks else leaves), rng.choice(held if tracks else held[3:])]
        else:
            command = partial(differentiate, hooked=rng.random() < 0.2, retained=rng.random() < 0.3)
        with torch.set_grad_enabled(tracks):
            try:
                plain = command(*[pair[0] for pair in chosen])
            except RuntimeError:
                for pair in leaves:
                    pair[0].grad = pair[1].grad = None
                continue
            pointer = command(*[pair[1] for pair in chosen])
        if choice >= 0.9:
            heard.append([None if x.grad is None else x.grad.clone().get() for _, x in leaves])
            assert _plain(heard[-1]) == _plain([x.grad for x, _ in leaves])
        elif tracks and plain.shape == (4, 4):
            held.append((plain.clamp(-3, 3), pointer.clamp(-3, 3)))
            del held[5 + rng.randrange(8) :: 9]
    # What is held stays in the store, without graphs: how much of one is left after an error is torch's affair.
    kept = [pointer.detach().clone() for _, pointer in held]
    found = [pointer.copy().get() for pointer in kept]
    assert _plain(found) == _plain([plain for plain, _ in held])
    return heard, found, kept


def _of_the_zoo(worker: Any, model: str, way: str) -> Any:
    entry = next(entry for entry in zoo.ALL if entry.name == model)
    others = [sy.VirtualWorker(id=f"caches_{name}", auto_add=False) for name in ("a", "b")]
    zoo_ways.plan_of.cache_clear()
    return zoo_ways.tried(way, entry, worker, *others)


PROGRAMS: dict[str, Callable[[Any], Any]] = {
    "sgd": partial(_mlp, optimizer=partial(torch.optim.SGD, lr=0.1)),
    "momentum": partial(_mlp, optimizer=partial(torch.optim.SGD, lr=0.1, momentum=0.9, weight_decay=0.01)),
    "nesterov": partial(_mlp, optimizer=partial(torch.optim.SGD, lr=0.1, momentum=0.9, nesterov=True)),
    "adam": partial(_mlp, optimizer=partial(torch.optim.Adam, lr=0.1)),
    "lstm": _lstm,
    "cnn": _cnn,
    "plan": _plan,
    "training plan": _training_plan,
    "federated loop": _federated_loop,
    **{f"random commands {seed}": partial(_random_commands, seed=seed) for seed in range(3)},
}


@pytest.fixture(scope="module", autouse=True)
def quick_collections() -> Iterator[None]:
    """Only what these tests make is looked through for garbage."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


#: What every run of the tests tries on an open worker and on one that denies; the rest is for `-m slow`.
_QUICK = (
    {"sgd", "momentum", "adam", "lstm", "cnn", "plan", "federated loop", "random commands 0"},
    {"sgd", "training plan", "random commands 1"},
)

# -- both ways -----------------------------------------------------------------------------------------


def _plain(value: Any) -> Any:
    """A result as values that are compared with `==`: bit for bit."""
    if isinstance(value, sy.Wrapper):
        return None  # it is compared in the store
    if isinstance(value, HeldPlan):
        return value._name, value._names, value._kinds, repr(value._program)
    if isinstance(value, torch.Tensor):
        return tuple(value.shape), str(value.dtype), value.detach().contiguous().view(-1).tolist()
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, (list, tuple)) else value


def _store(worker: Any) -> list[str]:
    """What a worker holds and knows of it, the ids aside."""
    assert worker._objects is not None  # who looks has graphs freed that wait for it; see NOTE [Freed later]
    return sorted(
        repr((_plain(e.value), e.allowed, e.holder, e.is_private, e.is_public, e.failure, e.references))
        for e in worker._entries.values()
    )


def _run(program: Callable[[Any], Any], denies: bool) -> tuple[Any, list[str]]:
    worker = sy.VirtualWorker(
        id="caches_both_ways", auto_add=False, policy=Policy(allows_by_default=not denies)
    )
    torch.manual_seed(3)
    with speaking_for("ann"):
        result = program(worker)
        gc.collect()
        return _plain(result), _store(worker)


def _assert_equal_both_ways(program: Callable[[Any], Any], denies: bool = False) -> None:
    known = _run(program, denies), _run(program, denies)
    with CACHES.off():
        nothing = _run(program, denies)
        assert not shapes._answers and not admission._admissions
    assert known[0] == nothing and known[1] == nothing


@pytest.mark.parametrize(
    ("name", "denies"),
    [
        pytest.param(name, denies, marks=[] if name in _QUICK[denies] else pytest.mark.slow)
        for denies in (False, True)
        for name in PROGRAMS
    ],
)
def test_a_program_gives_the_same_with_and_without_caches(hook: Any, name: str, denies: bool) -> None:
    _assert_equal_both_ways(PROGRAMS[name], denies)


def test_training_of_a_model_of_the_zoo_gives_the_same(hook: Any) -> None:
    _assert_equal_both_ways(partial(_of_the_zoo, model="Graph convolution", way="remote training"))


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("way", zoo_ways.WAYS)
@pytest.mark.parametrize("model", [entry.name for entry in zoo.ALL])
def test_the_whole_zoo_gives_the_same(hook: Any, model: str, way: str) -> None:
    pytest.importorskip("transformers")
    _assert_equal_both_ways(partial(_of_the_zoo, model=model, way=way))


@pytest.mark.slow
@pytest.mark.parametrize("denies", [False, True])
@pytest.mark.parametrize("seed", range(10, 60))
def test_many_random_programs_give_the_same(hook: Any, seed: int, denies: bool) -> None:
    _assert_equal_both_ways(partial(_random_commands, seed=seed), denies)


# -- the switch ----------------------------------------------------------------------------------------


@pytest.fixture
def backward_passes(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Of each backward pass, whether the worker differentiated its own graph."""
    told: list[bool] = []
    there = kept_graphs.backward_there

    def noted(loss: Any) -> bool:
        told.append(there(loss))
        return told[-1]

    monkeypatch.setattr(sy.PointerTensor, "backward_there", staticmethod(noted))
    return told


def test_the_switch_turns_learning_off_and_on_again(backward_passes: list[bool]) -> None:
    _run(PROGRAMS["sgd"], False)
    assert any(backward_passes) and shapes._answers
    backward_passes.clear()
    with CACHES.off():
        _run(PROGRAMS["sgd"], False)
        assert len(backward_passes) == 4 and not any(backward_passes)
        with CACHES.off():
            pass
        assert not CACHES.are_on
    assert CACHES.are_on and not shapes._answers


def test_a_difference_between_the_ways_is_found(hook: Any) -> None:
    with pytest.raises(AssertionError):
        _assert_equal_both_ways(lambda worker: torch.ones(2) * CACHES.are_on)
    with pytest.raises(AssertionError):
        _assert_equal_both_ways(lambda worker: _sent(worker, torch.ones(2) * CACHES.are_on))


def test_a_memory_has_a_limit_and_goes_with_its_holder() -> None:
    before = len(CACHES.memories)
    memory = Memory(2)
    for number in range(3):
        memory[number] = number
    assert dict(memory) == {2: 2} and len(CACHES.memories) == before + 1
    del memory
    assert len(CACHES.memories) == before


@pytest.mark.parametrize(("value", "are_on"), [("off", False), ("on", True), ("", True)])
def test_the_environment_turns_it_off(monkeypatch: pytest.MonkeyPatch, value: str, are_on: bool) -> None:
    monkeypatch.setenv("SYFT_CACHES", value)
    assert type(CACHES)().are_on is are_on


def test_another_value_in_the_environment_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SYFT_CACHES", "maybe")
    with pytest.raises(ValueError, match="Set it to on or off"):
        type(CACHES)()
