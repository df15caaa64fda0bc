"""`MultiPointerTensor`: one tensor on several workers."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import syft as sy
from syft.exceptions import TensorsNotCollocatedException
from syft.tensors.multi_pointer import MultiPointerTensor


@pytest.fixture
def both(alice: Any, bob: Any) -> Any:
    return torch.tensor([1.0, 2.0]).send(alice, bob)


def test_sending_to_several_workers(both: Any, alice: Any, bob: Any) -> None:
    assert isinstance(both.child, MultiPointerTensor) and both.shape == (2,)
    assert both.child.locations == [alice, bob] and both.location is None
    assert list(both.child.child) == ["alice", "bob"]
    assert "alice" in str(both) and "bob" in str(both) and "2." not in str(both)
    assert torch.ones(1).send([alice, bob]).child.locations == [alice, bob]


def test_operations_fan_out(both: Any, alice: Any, bob: Any) -> None:
    result = (both * 2 + both).view(2, 1).max(dim=0)
    assert [v.tolist() for v in result.values.get()] == [[6.0], [6.0]]
    both.add_(1)
    both[0] = 9.0
    assert [v.tolist() for v in both.get()] == [[9.0, 3.0], [9.0, 3.0]]
    del both, result


def test_fetching(both: Any, alice: Any, bob: Any) -> None:
    assert (both + 0).get(sum_results=True).tolist() == [2.0, 4.0]
    assert both.child.virtual_get(sum_results=True).tolist() == [2.0, 4.0]
    assert [v.tolist() for v in both.child.virtual_get()] == [[1.0, 2.0]] * 2
    assert len(alice._objects) == len(bob._objects) == 1


def test_combining_pointers(alice: Any, bob: Any) -> None:
    a, b = torch.tensor([1.0]).send(alice), torch.tensor([5.0]).send(bob)
    combined = sy.combine_pointers(a, b)
    assert [v.item() for v in (combined * 2).get()] == [2.0, 10.0]
    assert combined.get(sum_results=True).item() == 6.0
    with pytest.raises(ValueError, match="at least one"):
        sy.combine_pointers()
    with pytest.raises(ValueError, match="at most one"):
        sy.combine_pointers(torch.ones(1).send(bob), torch.ones(1).send(bob))
    with pytest.raises(TypeError, match="Send the tensors first"):
        sy.combine_pointers(torch.ones(1))


def test_other_places_are_refused(both: Any, alice: Any, bob: Any, charlie: Any) -> None:
    other = torch.ones(2).send(alice, charlie)
    with pytest.raises(TensorsNotCollocatedException):
        both + other


def test_gradients_fan_out(alice: Any, bob: Any) -> None:
    w = torch.ones(2, requires_grad=True).send(alice, bob)
    x = sy.combine_pointers(torch.tensor([1.0, 2.0]).send(alice), torch.tensor([3.0, 4.0]).send(bob))
    (w * x).sum().backward()
    assert [g.tolist() for g in w.grad.get()] == [[1.0, 2.0], [3.0, 4.0]]


def test_a_model_on_several_workers(alice: Any, bob: Any) -> None:
    torch.manual_seed(0)
    model = torch.nn.Linear(2, 1)
    twin = torch.nn.Linear(2, 1)
    twin.load_state_dict(model.state_dict())
    model.send(alice, bob)
    data = sy.combine_pointers(torch.ones(1, 2).send(alice), torch.zeros(1, 2).send(bob))
    out = model(data).get()
    assert torch.equal(out[0], twin(torch.ones(1, 2))) and torch.equal(out[1], twin(torch.zeros(1, 2)))


def test_nothing_is_left(alice: Any, bob: Any) -> None:
    many = torch.ones(3).send(alice, bob)
    (many + many).sum()
    del many
    assert len(alice._objects) == len(bob._objects) == 0
