"""One trace of a model is the model: for other batches, here, at a worker, after a fetch, after serialisation."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch

import plan_models as models
import syft as sy

BATCHES = (1, 7, 64)


def planned(name: str, training: bool) -> tuple[Any, Any, tuple[int, ...]]:
    """A model, a plan of another copy of it, and the shape it takes."""
    make, shape = models.MODELS[name]
    torch.manual_seed(3)
    model = make().train(training)
    twin = copy.deepcopy(model)
    return model, sy.func2plan(args_shape=[shape])(twin), shape


def batch(shape: tuple[int, ...], size: int) -> torch.Tensor:
    return torch.randn([size if n == -1 else n for n in shape], generator=torch.Generator().manual_seed(size))


def run(function: Any, x: torch.Tensor) -> tuple[list[torch.Tensor], Any]:
    """The results of a call with fixed random numbers, and its total."""
    torch.manual_seed(11)
    result = function(x)
    return models.tensors_in(result), models.total(result)


def assert_same(ours: list[torch.Tensor], theirs: list[torch.Tensor]) -> None:
    assert len(ours) == len(theirs)
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)


def gradients(model: Any, x: torch.Tensor) -> tuple[torch.Tensor, list[Any]]:
    x = x.clone().requires_grad_()
    model.zero_grad()
    run(model, x)[1].backward()
    return x.grad, [p.grad for p in model.parameters()]  # type: ignore[return-value]


@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize("name", models.MODELS)
@pytest.mark.parametrize("way", ["here", "replayed", "serialised"])
def test_a_plan_here_equals_its_model(name: str, training: bool, way: str) -> None:
    model, plan, shape = planned(name, training)
    if way == "replayed":
        plan = plan.copy()
    elif way == "serialised":
        plan = sy.serde.deserialize(sy.serde.serialize(plan))
    for size in BATCHES:
        if size == 1 and training and name == "cnn":
            size = 2
        x = batch(shape, size)
        assert_same(run(plan, x)[0], run(model, x)[0])
        given = x.clone().requires_grad_()
        for p in plan.parameters():
            p.grad = None
        run(plan, given)[1].backward()
        wanted, wanted_of_parameters = gradients(model, x)
        torch.testing.assert_close(given.grad, wanted, rtol=1e-4, atol=1e-5)
        ours = {n: t.grad for n, t in zip(plan.state.names, plan.state.tensors(), strict=True)}
        for (of, _), theirs in zip(model.named_parameters(), wanted_of_parameters, strict=True):
            torch.testing.assert_close(ours[of], theirs, rtol=1e-4, atol=1e-5)
        # The model has run twice as often: once for the values, once for the gradients; so has the plan.
        state = dict(zip(plan.state.names, plan.state.tensors(), strict=True))
        assert set(state) == {n for n, _ in [*model.named_parameters(), *model.named_buffers()]}
        for buffer, value in model.named_buffers():
            torch.testing.assert_close(state[buffer], value)


@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize("name", models.MODELS)
def test_a_plan_at_a_worker_equals_its_model_and_its_gradients(
    name: str, training: bool, make_worker: Any
) -> None:
    bob = make_worker("bob", log_msgs=True)
    model, plan, shape = planned(name, training)
    remote = plan.send(bob)
    for size in BATCHES:
        if size == 1 and training and name == "cnn":
            size = 2
        x = batch(shape, size)
        pointer = x.send(bob).requires_grad_()
        before = len(bob.msg_history)
        torch.manual_seed(11)
        result = remote(pointer)
        assert len(bob.msg_history) - before == 1
        theirs, _ = run(model, x)
        assert_same(
            [t.copy().get().detach() for t in models.tensors_in(result)], [t.detach() for t in theirs]
        )
        for p in remote.parameters():
            p.grad = None
        models.total(result).backward()
        buffers = copy.deepcopy(dict(model.named_buffers()))
        wanted, wanted_of_parameters = gradients(model, x)
        model.load_state_dict(buffers, strict=False)
        torch.testing.assert_close(pointer.grad.copy().get(), wanted, rtol=1e-4, atol=1e-5)
        for ours, theirs in zip(remote.parameters(), wanted_of_parameters, strict=True):
            torch.testing.assert_close(ours.grad.copy().get(), theirs, rtol=1e-4, atol=1e-5)
    fetched = sy.local_worker.fetch_plan(plan.id, bob)
    x = batch(shape, 7)
    assert_same(run(fetched, x)[0], run(model, x)[0])


def test_statistics_of_a_batch_norm_move_at_the_worker_and_come_back(bob: Any) -> None:
    model, plan, shape = planned("cnn", True)
    x = batch(shape, 8)
    plan.send(bob)(x.send(bob))
    model(x)
    plan.get_()
    named = dict(zip(plan.state.names, plan.state.tensors(), strict=True))
    assert named["norm.num_batches_tracked"] == 1
    assert torch.equal(named["norm.running_mean"], model.norm.running_mean)


def test_building_changes_neither_the_model_nor_the_random_numbers() -> None:
    model = models.Cnn().train()
    before = copy.deepcopy(model.state_dict())
    torch.manual_seed(5)
    wanted = torch.rand(3)
    torch.manual_seed(5)
    sy.func2plan(args_shape=[(-1, 1, 8, 8)])(model)
    assert torch.equal(torch.rand(3), wanted)
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name]), name


def test_sizes_that_are_unknown_in_two_places_are_both_free() -> None:
    model = models.Block().eval()
    plan = sy.func2plan(args_shape=[(-1, -1, 8)])(model).copy()
    for shape in ((1, 3, 8), (4, 1, 8), (2, 60, 8)):
        x = torch.randn(shape)
        assert_same([plan(x)], [model(x)])
