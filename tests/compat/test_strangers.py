"""What a stranger who knows 0.2 by heart tried, and found different."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import syft as sy
from syft.exceptions import CannotRequestObjectAttribute, ChainError
from syft.tensors.logging import LoggingTensor


def test_dot_of_numpy_matrices_is_their_product() -> None:
    x = sy.NumpyTensor(numpy_tensor=np.array([[1, 2, 3, 4]]))
    assert x.dot(x.transpose()).child.child.tolist() == [[30]]
    v = sy.NumpyTensor(numpy_tensor=np.array([1, 2]))
    assert v.dot(v).child.child.tolist() == 5


def test_a_pointer_to_an_attribute_is_not_fetched(bob: Any) -> None:
    x = LoggingTensor().on(torch.tensor([1.0, 2])).send(bob)
    x.child.point_to_attr = "child"
    with pytest.raises(CannotRequestObjectAttribute, match="point_to_attr = None"):
        x.get()
    x.child.point_to_attr = None
    assert x.get().child.child.tolist() == [1.0, 2.0]


@pytest.mark.parametrize("n_holders", [2, 3])
def test_secrets_of_the_same_holders_in_another_order_go_together(make_worker: Any, n_holders: int) -> None:
    holders, dealer = [make_worker(f"h{i}") for i in range(n_holders)], make_worker("dealer")
    x = torch.tensor([3, -2]).share(*holders, crypto_provider=dealer)
    y = torch.tensor([5, 7]).share(*reversed(holders), crypto_provider=dealer)
    assert (x + y).get().tolist() == [8, 5]
    assert (y * x).get().tolist() == [15, -14]
    assert (x > y).get().tolist() == [0, 0]
    assert torch.cat([y, x]).get().tolist() == [5, 7, 3, -2]
    assert y.get().tolist() == [5, 7] and x.get().tolist() == [3, -2]


def test_secrets_of_other_holders_do_not_meet(make_worker: Any) -> None:
    a, b, c, dealer = (make_worker(name) for name in ("a", "b", "c", "dealer"))
    x = torch.tensor([3]).share(a, b, crypto_provider=dealer)
    with pytest.raises(ChainError, match="different holders"):
        x + torch.tensor([3]).share(a, c, crypto_provider=dealer)


def test_a_protocol_tells_whether_its_workers_are_resolved(alice: Any, bob: Any) -> None:
    @sy.func2plan(args_shape=[(1,)])
    def one_more(x: torch.Tensor) -> torch.Tensor:
        return x + 1

    protocol = sy.Protocol([("first", one_more), ("second", one_more)])
    assert not protocol.workers_resolved
    protocol.deploy(alice, bob)
    assert protocol.workers_resolved


def test_comparisons_at_a_worker_are_numbers_in_fixed_precision(bob: Any) -> None:
    x = torch.tensor([1.0, -2.0, 0.0]).fix_prec().send(bob)
    assert ((x > 0) - (x < 0)).get().float_prec().tolist() == [1.0, -1.0, 0.0]
    assert ((x >= 0) + (x >= 0) + (x == 0)).get().float_prec().tolist() == [2.0, 0.0, 3.0]
    assert ((x != 0) * x).sum().get().float_prec().item() == -1.0
    assert (x <= x).get().float_prec().tolist() == [1.0, 1.0, 1.0]
    # Plain tensors keep torch's rule.
    assert (torch.tensor([1.0, -2.0]).send(bob) > 0).dtype is torch.bool


def test_comparisons_of_a_matrix_that_lies_otherwise_in_memory(bob: Any) -> None:
    x = torch.tensor([[1.0, -2.0], [0.0, 3.0]]).t().fix_prec().send(bob)
    assert ((x > 0) - (x < 0)).get().float_prec().tolist() == [[1.0, 0.0], [-1.0, 1.0]]


def test_a_leaf_at_a_worker_shows_its_gradient(bob: Any) -> None:
    x = torch.tensor([1, 2, 3.0], requires_grad=True).send(bob)
    there = bob._objects[x.id_at_location]
    assert there.grad is None
    (x + x).sum().backward()
    there = bob._objects[x.id_at_location]
    assert there.grad.tolist() == [2.0, 2.0, 2.0] and there.tolist() == [1.0, 2.0, 3.0]
    model = torch.nn.Linear(2, 1).send(bob)
    model(torch.ones(3, 2).send(bob)).sum().backward()
    assert bob._objects[model.weight.id_at_location].grad.tolist() == [[3.0, 3.0]]
    model.get()
    assert model.weight.grad.tolist() == [[3.0, 3.0]]


def test_an_object_at_a_worker_has_its_id_and_owner_there(bob: Any) -> None:
    x = torch.tensor([1, 2]).send(bob)
    there = bob._objects[x.id_at_location]
    assert there.id == x.id_at_location and there.owner is bob
    y = x + x
    assert bob._objects[y.id_at_location].owner is bob


def test_a_bare_pointer_asks_the_worker_for_the_shape(make_worker: Any) -> None:
    worker = make_worker("logs", log_msgs=True)
    x = torch.zeros(2, 3).send(worker)
    assert x.child.get_shape() == torch.Size([2, 3])
    assert type(worker._get_msg(-1)).__name__ == "GetShapeMessage"


@pytest.mark.parametrize(("kind", "options"), [(torch.optim.Adam, {}), (torch.optim.SGD, {"momentum": 0.9})])
def test_one_optimizer_per_worker_remembers_what_one_would_here(
    alice: Any, bob: Any, kind: Any, options: dict[str, Any]
) -> None:
    from syft.federated.floptimizer import Optims

    model = torch.nn.Linear(2, 1)
    here = torch.nn.Linear(2, 1)
    here.load_state_dict(model.state_dict())
    optims = Optims(["bob", "alice"], optim=kind(model.parameters(), lr=0.1, **options))
    mine = {w: kind(here.parameters(), lr=0.1, **options) for w in ("bob", "alice")}
    rows = {w.id: (w, torch.rand(4, 2), torch.rand(4, 1)) for w in (bob, alice)}
    for _epoch in range(3):
        for worker, data, target in rows.values():
            x, y = data.send(worker), target.send(worker)
            optimizer = optims.get_optim(x.location.id)
            model.send(x.location)
            optimizer.zero_grad()
            ((model(x) - y) ** 2).mean().backward()
            optimizer.step()
            model.get()
            mine[worker.id].zero_grad()
            ((here(data) - target) ** 2).mean().backward()
            mine[worker.id].step()
    assert torch.allclose(model.weight, here.weight, atol=1e-6)
    assert optims.count() == 2 and set(optims.fetch_optims()) == {"bob", "alice"}
    with pytest.raises(KeyError, match="Name all workers"):
        optims.get_optim("eve")
    with pytest.raises(TypeError, match=r"torch.optim.Adam"):
        Optims(["bob"], optim=torch.optim.Adam)  # type: ignore[arg-type]


def test_a_plan_is_translated_to_torchscript_by_the_class_of_that_name() -> None:
    from syft.execution.translation.torchscript import PlanTranslatorTorchscript

    @sy.func2plan(args_shape=[(2,)])
    def thrice(x: torch.Tensor) -> torch.Tensor:
        return x * 3

    made = thrice.add_translation(PlanTranslatorTorchscript)
    assert isinstance(made, torch.jit.ScriptModule) and thrice.torchscript is made
    assert made(torch.tensor([1.0, 2.0])).tolist() == [3.0, 6.0]
