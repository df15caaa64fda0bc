"""Tensors that are sent in place, or fetched, are handed over without a copy only if nobody else has their memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import syft as sy
from syft.tensors.lone_memory import has_lone_gradient, has_lone_memory


def _of_numpy(_tensor: torch.Tensor) -> Any:
    array = np.ones(6, dtype=np.float32)
    return torch.from_numpy(array), lambda: array.fill(9)


def _of_bytes(_tensor: torch.Tensor) -> Any:
    memory = bytearray(np.ones(6, dtype=np.float32).tobytes())
    return torch.frombuffer(memory, dtype=torch.float32), lambda: memory.__setitem__(slice(0, 24), b"\1" * 24)


def _filled(alias: Any) -> Callable[[], Any]:
    return lambda: alias.fill_(9)


def _through_storage(tensor: torch.Tensor) -> Any:
    storage = tensor.untyped_storage()
    return tensor, lambda: torch.empty(0).set_(storage, 0, (6,), (1,)).fill_(9)


#: How somebody else may reach the memory of a tensor: what to send, and what writes into it.
WAYS: dict[str, Callable[[torch.Tensor], Any]] = {
    "a detached alias": lambda t: (t, _filled(t.detach())),
    "a view": lambda t: (t, _filled(t.detach()[2:])),
    "its base": lambda t: (t[1:4], _filled(t)),
    "all of its base": lambda t: (t.view(2, 3), _filled(t)),
    "its data": lambda t: (t, _filled(t.data)),
    "an array of numpy": lambda t: (t, (lambda array: lambda: array.fill(9))(t.numpy())),
    "an array it was made of": _of_numpy,
    "bytes it was made of": _of_bytes,
    "dlpack": lambda t: (t, _filled(torch.from_dlpack(t))),
    "its storage": _through_storage,
    "another process": lambda t: (t.share_memory_(), lambda: None),
}


@pytest.mark.parametrize("way", WAYS)
def test_what_somebody_else_can_reach_is_copied(bob: Any, way: str) -> None:
    tensor, write = WAYS[way](torch.ones(6))
    assert not has_lone_memory(tensor)
    before = tensor.clone()
    tensor.send_(bob)
    write()
    assert torch.equal(bob._objects[tensor.id_at_location], before)
    assert torch.equal(tensor.get(), before)


def test_a_model_that_nobody_else_has_is_not_copied(bob: Any) -> None:
    model = torch.nn.Linear(3, 4)
    model(torch.ones(2, 3)).sum().backward()
    assert has_lone_memory(model.weight) and has_lone_gradient(model.weight)
    here = [memory for p in model.parameters() for memory in (p.data_ptr(), p.grad.data_ptr())]  # type: ignore[union-attr]
    values = [p.detach().clone() for p in model.parameters()]
    model.send(bob)  # type: ignore[operator]
    ids = [i for p in model.parameters() for i in (p.id_at_location, p.grad.id_at_location)]  # type: ignore[union-attr]
    there = [bob._entries[obj_id].value.data_ptr() for obj_id in ids]
    assert there == here
    model.get()  # type: ignore[operator]
    assert [memory for p in model.parameters() for memory in (p.data_ptr(), p.grad.data_ptr())] == here  # type: ignore[union-attr]
    assert all(map(torch.equal, values, model.parameters()))
    assert not bob._objects


def test_what_a_graph_has_saved_is_copied(bob: Any) -> None:
    weight = torch.nn.Parameter(torch.ones(3))
    loss = (weight * weight).sum()
    assert not has_lone_memory(weight)
    memory = weight.data_ptr()
    weight.send_(bob)
    assert bob._entries[weight.id_at_location].value.data_ptr() != memory
    del loss


def test_a_gradient_that_somebody_holds_is_copied_on_both_ways(bob: Any) -> None:
    weight = torch.nn.Parameter(torch.ones(3))
    weight.sum().backward()
    held = weight.grad
    assert held is not None and not has_lone_gradient(weight)
    weight.send_(bob)
    held.fill_(9)
    remote = weight.grad
    assert remote is not None
    weight.get_()
    assert weight.grad is not None and weight.grad.tolist() == [1, 1, 1]
    assert remote.get().tolist() == [1, 1, 1]  # type: ignore[attr-defined]


def test_a_gradient_stays_where_the_value_is_refused(bob: Any) -> None:
    weight = torch.nn.Parameter(torch.ones(3))
    weight.sum().backward()
    weight.send_(bob)
    bob.restrict(weight.id_at_location, frozenset({"ann"}))
    with pytest.raises(sy.exceptions.GetNotPermittedError):
        weight.get_()
    gradient = weight.grad
    assert gradient is not None and gradient.get().tolist() == [1, 1, 1]  # type: ignore[attr-defined]


def test_the_same_loop_with_and_without_copies(alice: Any, bob: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bit for bit: a model that travels to and fro, with momentum, whether its memory is handed over or copied."""

    def train() -> list[torch.Tensor]:
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(5, 7), torch.nn.BatchNorm1d(7), torch.nn.Linear(7, 2))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        for step in range(6):
            place = bob if step % 2 else alice
            data = torch.randn(8, 5).send(place)  # type: ignore[attr-defined]
            model.send(place)  # type: ignore[operator]
            optimizer.zero_grad()
            model(data).pow(2).sum().backward()
            optimizer.step()
            model.get()  # type: ignore[operator]
        return [*model.state_dict().values()]

    handed_over = train()
    monkeypatch.setattr("syft.tensors.transfer.has_lone_memory", lambda _tensor: False)
    monkeypatch.setattr("syft.tensors.transfer.has_lone_gradient", lambda _tensor: False)
    assert all(map(torch.equal, handed_over, train()))
