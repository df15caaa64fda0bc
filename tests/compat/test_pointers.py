"""Pointers as programs of 2020 use them: in place, with ids that stay, and never destructive."""

from __future__ import annotations

from typing import Any

import hypothesis
import pytest
import torch
from hypothesis import strategies as st
from torch import nn

import syft as sy
from syft.exceptions import (
    AlreadyFetchedError,
    InvalidTensorForRemoteGet,
    LocalTensorError,
    TensorsNotCollocatedException,
)
from syft.tensors.multi_pointer import MultiPointerTensor
from syft.tensors.pointer import PointerTensor


@pytest.fixture
def x() -> torch.Tensor:
    return torch.arange(12.0).reshape(3, 4)


# -- item 1: remote_get in place -----------------------------------------------------------------------


def test_remote_get_whose_result_is_dropped_loses_nothing(alice: Any, bob: Any, x: torch.Tensor) -> None:
    far = x.send(bob).send(alice)
    node, far_id = far.child, far.id_at_location
    far.remote_get()
    assert far.child is node and far.location is alice and far.id_at_location == far_id
    assert len(bob._objects) == 0 and len(alice._objects) == 1
    assert torch.equal(far.get(), x)


@pytest.mark.parametrize("name", ["remote_get", "mid_get"])
def test_remote_get_returns_the_same_pointer(alice: Any, bob: Any, x: torch.Tensor, name: str) -> None:
    far = x.send(bob).send(alice)
    assert getattr(far, name)() is far
    assert torch.equal((far + 1).get(), x + 1)


def test_remote_get_keeps_a_leaf_a_leaf(alice: Any, bob: Any) -> None:
    far = torch.ones(3, requires_grad=True).send(bob).send(alice)
    far.remote_get()
    (far * 3).sum().backward()
    assert far.grad.get().tolist() == [3.0, 3.0, 3.0]


def test_remote_get_of_a_value_laid_out_in_another_way(alice: Any, bob: Any, x: torch.Tensor) -> None:
    turned = x.send(bob).t()
    far = turned.send(alice)
    far.remote_get()
    stored = alice.get_obj(far.id_at_location)
    assert far.stride() == stored.stride()
    assert torch.equal(far.get(), x.t())


# -- item 2: garbage collection --------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["gc", "garbage_collection", "garbage_collect_data"])
def test_a_value_that_is_not_collected_stays(bob: Any, x: torch.Tensor, name: str) -> None:
    for kept in (False, True):
        pointer = x.clone().send(bob)
        setattr(pointer if kept else pointer.child, name, False)
        for spelling in ("gc", "garbage_collection", "garbage_collect_data"):
            assert getattr(pointer, spelling) is False and getattr(pointer.child, spelling) is False
        obj_id = pointer.id_at_location
        del pointer
        assert obj_id in bob._objects


def test_reading_disable_gc_keeps_the_value(bob: Any, x: torch.Tensor) -> None:
    pointer = x.clone().send(bob)
    assert pointer.disable_gc is pointer
    node = x.clone().send(bob).child
    assert node.disable_gc is node
    ids = [pointer.id_at_location, node.id_at_location]
    del pointer, node
    assert all(obj_id in bob._objects for obj_id in ids)


def test_set_garbage_collect_data_on_every_kind_of_remote_chain(
    alice: Any, bob: Any, charlie: Any, x: torch.Tensor
) -> None:
    kinds = [
        lambda: x.clone().send(bob),
        lambda: x.clone().send(bob, alice),
        lambda: x.clone().send(bob, local_autograd=True),
        lambda: x.long().share(alice, bob, crypto_provider=charlie),
        lambda: x.fix_prec().share(alice, bob, crypto_provider=charlie),
    ]
    for make in kinds:
        for on_node in (False, True):
            chain = make()
            holder = chain.child if on_node else chain
            assert holder.get_garbage_collect_data() is True
            holder.set_garbage_collect_data(False)
            assert holder.get_garbage_collect_data() is False and chain.garbage_collection is False
            before = len(alice._objects) + len(bob._objects)
            del holder, chain
            assert len(alice._objects) + len(bob._objects) == before > 0
            alice.clear_objects()
            bob.clear_objects()


@pytest.mark.parametrize("name", ["gc", "garbage_collection", "garbage_collect_data", "disable_gc"])
def test_asking_a_local_tensor_whether_it_has_gc_does_not_raise(x: torch.Tensor, name: str) -> None:
    from syft.tensors.logging import LoggingTensor

    for tensor in (x, nn.Parameter(x), LoggingTensor().on(x), nn.Linear(2, 2).weight):
        assert not hasattr(tensor, name)
    with pytest.raises(LocalTensorError, match="no remote value"):
        getattr(x, name)


# -- item 8: move and remote_send --------------------------------------------------------------------------


def test_a_move_whose_result_is_dropped_moves(alice: Any, bob: Any, x: torch.Tensor) -> None:
    pointer = x.send(bob)
    obj_id = pointer.id_at_location
    pointer.move(alice)
    assert pointer.location is alice and pointer.id_at_location == obj_id
    assert obj_id in alice._objects and obj_id not in bob._objects
    assert torch.equal(pointer.get(), x)
    assert len(alice._objects) == len(bob._objects) == 0


def test_a_move_does_not_overwrite_what_has_the_same_id_there(alice: Any, bob: Any, x: torch.Tensor) -> None:
    at_bob, at_alice = x.send(bob), x.send(alice)
    assert at_bob.id_at_location == at_alice.id_at_location
    at_bob.add_(1)
    at_bob.move(alice)
    assert at_bob.id_at_location != at_alice.id_at_location
    assert torch.equal(at_alice.get(), x) and torch.equal(at_bob.get(), x + 1)


def test_a_moved_leaf_is_a_leaf_that_collects_its_gradient(alice: Any, bob: Any) -> None:
    first, second = nn.Linear(4, 3).send(bob), nn.Linear(3, 1).send(alice)
    t = first(torch.ones(2, 4).send(bob))
    cut = t.detach().requires_grad_().move(alice).requires_grad_()
    assert cut.is_leaf and cut.location is alice
    second(cut).sum().backward()
    assert cut.grad.location is alice
    t.backward(cut.grad.copy().move(bob))
    expected = second.weight.detach().copy().get().expand(2, 3).t() @ torch.ones(2, 4)
    torch.testing.assert_close(first.weight.grad.get(), expected)


def test_a_moved_leaf_brings_its_gradient_along(alice: Any, bob: Any) -> None:
    leaf = torch.ones(3, requires_grad=True).send(bob)
    (leaf * 2).sum().backward()
    leaf.move(alice)
    assert leaf.grad.location is alice and leaf.grad.get().tolist() == [2.0, 2.0, 2.0]


@pytest.mark.parametrize("power", [1, 2])
def test_no_gradient_is_lost_when_a_leaf_is_moved_that_a_graph_still_uses(
    alice: Any, bob: Any, power: int
) -> None:
    leaf = torch.tensor([2.0, 3.0], requires_grad=True).send(bob)
    before = leaf.pow(power).sum() if power > 1 else (leaf * 5).sum()
    moved = leaf.move(alice)
    assert moved.location is alice
    before.backward()
    (moved * 10).sum().backward()
    slope = [2 * 2.0 + 10, 2 * 3.0 + 10] if power > 1 else [15.0, 15.0]
    assert leaf.grad.get().tolist() == slope


def test_what_has_a_history_stays_connected_when_it_is_moved(alice: Any, bob: Any) -> None:
    leaf = torch.tensor([2.0, 3.0], requires_grad=True).send(bob)
    y = leaf * leaf
    z = y * y  # keeps y at bob for its own gradient
    y.move(alice)
    assert y.location is alice
    (y.sum().move(bob) + z.sum()).backward()
    assert leaf.grad.get().tolist() == [2 * v + 4 * v**3 for v in (2.0, 3.0)]


@hypothesis.given(st.lists(st.sampled_from(["alice", "bob", "charlie"]), min_size=1, max_size=6))
@hypothesis.settings(max_examples=30, suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture])
def test_no_way_round_the_workers_loses_the_value_or_leaves_a_copy(
    alice: Any, bob: Any, charlie: Any, route: list[str]
) -> None:
    workers = {w.id: w for w in (alice, bob, charlie)}
    x = torch.arange(4.0)
    pointer = x.send(bob)
    for name in route:
        assert pointer.move(workers[name]) is pointer
        assert pointer.location is workers[name] and pointer.id_at_location == x.id
        assert sum(len(w._objects) for w in workers.values()) == 1
    assert torch.equal(pointer.get(), x)
    assert sum(len(w._objects) for w in workers.values()) == 0


def test_move_says_what_requires_grad_cannot_do(alice: Any, bob: Any) -> None:
    leaf = torch.ones(2).send(bob)
    assert leaf.move(alice, requires_grad=True).requires_grad
    y = leaf * 2
    with pytest.raises(RuntimeError, match="detach"):
        y.move(bob, requires_grad=False)


def test_remote_send_whose_result_is_dropped_keeps_id_and_value(
    alice: Any, bob: Any, x: torch.Tensor
) -> None:
    pointer = x.send(bob)
    pointer.remote_send(alice)
    assert pointer.location is bob and pointer.id_at_location == x.id
    assert bob.get_obj(x.id).location is alice and x.id in alice._objects
    pointer.remote_get()
    assert torch.equal(pointer.get(), x)
    assert len(alice._objects) == len(bob._objects) == 0


def test_remote_send_leaves_what_a_graph_needs(alice: Any, bob: Any) -> None:
    leaf = torch.tensor([2.0, 3.0], requires_grad=True).send(bob)
    data = torch.tensor([5.0, 7.0]).send(bob)
    loss = (leaf * data).sum()
    data.remote_send(alice)
    loss.backward()
    assert leaf.grad.get().tolist() == [5.0, 7.0]
    assert data.get().get().tolist() == [5.0, 7.0]


def test_remote_send_with_change_location_moves(alice: Any, bob: Any, x: torch.Tensor) -> None:
    pointer = x.send(bob)
    pointer.remote_send(alice, change_location=True)
    assert pointer.location is alice and x.id in alice._objects and len(bob._objects) == 0


def test_remote_send_refuses_a_tensor_with_a_history(alice: Any, bob: Any) -> None:
    y = torch.ones(2, requires_grad=True).send(bob) * 2
    with pytest.raises(RuntimeError, match="detach"):
        y.remote_send(alice)
    assert y.location is bob


# -- items 36 and 9: gradients and losses that are fetched -----------------------------------------------------


def test_a_fetched_gradient_is_still_there_for_the_optimizer(bob: Any) -> None:
    weight = torch.tensor([1.0, 2.0], requires_grad=True).send(bob)
    optimizer = torch.optim.SGD([weight], lr=0.5)
    (weight * 4).sum().backward()
    assert weight.grad.get().tolist() == [4.0, 4.0]
    assert weight.grad.get().tolist() == [4.0, 4.0]
    optimizer.step()
    assert weight.detach().get().tolist() == [-1.0, 0.0]


def test_gradients_of_all_kinds_of_chains_survive_being_fetched(alice: Any, bob: Any, charlie: Any) -> None:
    data = torch.tensor([1.0, 2.0], requires_grad=True)
    shared = data.detach().fix_prec().share(alice, bob, crypto_provider=charlie, requires_grad=True)
    for leaf in (data.send(alice, bob), data.send(bob, local_autograd=True), shared):
        (leaf * 2).sum().backward()
        first, second = leaf.grad.get(), leaf.grad.get()
        assert str(first) == str(second)
        with torch.no_grad():
            leaf -= leaf.grad


def test_a_fetched_model_has_its_gradients(bob: Any) -> None:
    model = nn.Linear(3, 1).send(bob)
    model(torch.ones(2, 3).send(bob)).sum().backward()
    assert torch.equal(model.get().weight.grad, torch.full((1, 3), 2.0))


def test_data_of_a_live_graph_can_be_fetched_before_the_backward_pass(bob: Any, x: torch.Tensor) -> None:
    weight = torch.ones(3, 4, requires_grad=True).send(bob)
    data = x.send(bob)
    loss = (weight * data).sum()
    assert torch.equal(data.get(), x)
    loss.backward()
    assert torch.equal(weight.grad.get(), x)


def _batches(bob: Any, model: Any, optimizer: Any, count: int) -> Any:
    for _ in range(count):
        optimizer.zero_grad()
        yield nn.functional.mse_loss(model(torch.randn(16, 8).send(bob)), torch.randn(16, 1).send(bob))


def _model(bob: Any) -> tuple[Any, Any]:
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 1)).send(bob)
    return model, torch.optim.SGD(model.parameters(), lr=0.01)


def test_adding_up_losses_of_training_does_not_fill_the_worker(bob: Any) -> None:
    model, optimizer = _model(bob)
    running, counts = 0, []
    for loss in _batches(bob, model, optimizer, 20):
        loss.backward()
        optimizer.step()
        running += loss.get()
        counts.append(len(bob._objects))
    del loss
    assert max(counts[5:]) == counts[2] and running.requires_grad


def test_adding_up_losses_of_secrets_does_not_fill_the_workers(alice: Any, bob: Any, charlie: Any) -> None:
    def share(t: Any) -> Any:
        return t.fix_precision().share(alice, bob, crypto_provider=charlie)

    weight = share(torch.ones(3, 1)).requires_grad_()
    running, counts = 0, []
    for _ in range(6):
        loss = ((share(torch.randn(4, 3)) @ weight) ** 2).sum()
        loss.backward()
        weight.grad = None
        running = running + loss.get().float_precision()
        del loss
        counts.append(len(bob._objects))
    assert counts[-1] == counts[1]


def test_leaves_of_split_learning_do_not_fill_the_workers(alice: Any, bob: Any) -> None:
    first, last = nn.Linear(8, 4).send(alice), nn.Linear(4, 1).send(bob)
    optimizers = [torch.optim.SGD(m.parameters(), lr=0.01) for m in (first, last)]
    running, counts, leaf = 0, [], None
    for _ in range(20):
        hidden = first(torch.randn(16, 8).send(alice))
        leaf = hidden.detach().requires_grad_().move(bob).requires_grad_()
        loss = last(leaf).pow(2).mean()
        loss.backward()
        hidden.backward(leaf.grad.copy().move(alice))
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
        running += loss.get()
        counts.append((len(alice._objects), len(bob._objects)))
    assert counts[3] == counts[-1]


@pytest.mark.parametrize("fetch_first", [True, False])
def test_leaves_that_somebody_has_keep_their_gradients(bob: Any, fetch_first: bool) -> None:
    model, optimizer = _model(bob)
    leaves, fetched, seen = [], [], []
    for _ in range(20):
        leaf = torch.randn(4, 8).send(bob).requires_grad_()
        leaf.register_hook(seen.append)
        loss = (model(leaf) * leaf.sum()).sum()
        if fetch_first:
            fetched.append(loss.get())
            fetched[-1].backward()
        else:
            loss.backward()
            fetched.append(loss.get())
        leaves.append(leaf)
        optimizer.step()
    assert all(torch.equal(leaf.grad.get(), grad.get()) for leaf, grad in zip(leaves, seen, strict=True))
    assert all(leaf.get().shape == (4, 8) for leaf in leaves)


def test_a_leaf_that_another_graph_uses_is_still_differentiated(bob: Any) -> None:
    weight = torch.ones(3, requires_grad=True).send(bob)
    leaf = torch.tensor([1.0, 2.0, 3.0]).send(bob).requires_grad_()
    other, fetched = (leaf * weight).exp().sum(), []
    for _ in range(10):
        once = leaf.pow(2).sum()
        once.backward()
        fetched.append(once.get())
    del leaf
    for _ in range(10):
        once = (weight * 1).pow(2).sum()
        once.backward()
        fetched.append(once.get())
    weight.grad = None
    other.backward()
    assert torch.allclose(
        weight.grad.get(), torch.tensor([1.0, 2.0, 3.0]).exp() * torch.tensor([1.0, 2.0, 3.0])
    )


def test_losses_that_nobody_differentiates_are_let_go_when_their_parameters_change(bob: Any) -> None:
    model, optimizer = _model(bob)
    total, counts = 0, []
    for _epoch in range(6):
        for loss in _batches(bob, model, optimizer, 3):
            loss.backward()
            optimizer.step()
        for loss in _batches(bob, model, optimizer, 10):  # an evaluation without torch.no_grad()
            total += loss.get()
        counts.append(len(bob._objects))
    assert max(counts[2:]) <= counts[0] * 3
    with pytest.raises(RuntimeError, match=r"overwritten|modified by an inplace"):
        total.backward()


def test_losses_of_one_step_can_be_added_up_and_differentiated(bob: Any) -> None:
    torch.manual_seed(3)
    model, optimizer = _model(bob)
    twin = model.copy().get()
    torch.manual_seed(4)
    total = sum(loss.get() for loss in _batches(bob, model, optimizer, 40))
    total.backward()
    torch.manual_seed(4)
    expected = [nn.functional.mse_loss(twin(torch.randn(16, 8)), torch.randn(16, 1)) for _ in range(40)]
    sum(expected).backward()  # type: ignore[union-attr]
    for remote, local in zip(model.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(remote.grad.get(), local.grad)


def test_a_second_get_is_still_an_error(bob: Any, x: torch.Tensor) -> None:
    pointer = x.send(bob)
    pointer.get()
    with pytest.raises(AlreadyFetchedError):
        pointer.get()


# -- item 39: errors ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["remote_get", "mid_get"])
def test_the_error_of_a_local_tensor_names_what_was_called(x: torch.Tensor, bob: Any, name: str) -> None:
    for tensor in (x, x.send(bob)):
        with pytest.raises(InvalidTensorForRemoteGet, match=rf"^{name}\(\) was called on"):
            getattr(tensor, name)()


def test_item_of_several_elements_that_are_elsewhere_advises_get(
    alice: Any, bob: Any, x: torch.Tensor
) -> None:
    for chain in (x.send(bob), x.send(alice, bob), x.send(bob, local_autograd=True)):
        with pytest.raises(RuntimeError, match=r"`\.get\(\)`"):
            chain.item()


# -- item 33: one error, under the name that the user wrote -------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("add", lambda a, b: a + b),
        ("add", lambda a, b: a.add(b)),
        ("torch.add", torch.add),
        ("matmul", lambda a, b: a @ b),
        ("torch.cat", lambda a, b: torch.cat([a, b])),
        ("torch.nn.functional.linear", nn.functional.linear),
        ("torch.nn.functional.mse_loss", nn.functional.mse_loss),
        ("add_", lambda a, b: a.add_(b)),
        ("torch.where", lambda a, b: torch.where(a > 0, a, b)),
    ],
)
def test_an_error_names_what_the_user_wrote(alice: Any, bob: Any, name: str, call: Any) -> None:
    at_bob, at_alice, here = torch.ones(2, 2).send(bob), torch.ones(2, 2).send(alice), torch.ones(2, 2)
    chained = torch.ones(2, 2).send(bob, local_autograd=True, requires_grad=False)
    for other in (at_alice, here):
        for first in (at_bob, chained):
            with pytest.raises(TensorsNotCollocatedException, match=f"^{name} was called with"):
                call(first, other)


def test_no_error_of_a_chain_names_an_operation_of_the_dispatcher(bob: Any, x: torch.Tensor) -> None:
    pointer = x.send(bob)
    pointer.get()
    with pytest.raises(ValueError, match=r"^mul was called on an empty wrapper"):
        pointer * 2


# -- item 16: multi-pointers and create_pointer -----------------------------------------------------------------


def test_multi_pointers_in_another_order_of_workers_go_together(
    alice: Any, bob: Any, x: torch.Tensor
) -> None:
    one, other = x.send(alice, bob), (x * 10).send(bob, alice)
    for result in ((one + other).get(), (other + one).get(), torch.stack([one, other]).sum(0).get()):
        assert all(torch.equal(part, x * 11) for part in result) and len(result) == 2


def test_multi_pointers_of_other_workers_are_refused(
    alice: Any, bob: Any, charlie: Any, x: torch.Tensor
) -> None:
    for workers in ((alice, charlie), (alice,), (alice, bob, charlie)):
        with pytest.raises(ValueError, match="add"):
            x.send(alice, bob) + sy.combine_pointers(*[x.send(w) for w in workers])


def test_pointers_are_combined(alice: Any, bob: Any, x: torch.Tensor) -> None:
    both = x.send(alice).combine((x + 1).send(bob))
    assert isinstance(both.child, MultiPointerTensor)
    assert [part.tolist() for part in both.get()] == [x.tolist(), (x + 1).tolist()]


def test_create_pointer_takes_the_id_of_the_pointer(me: Any, bob: Any, x: torch.Tensor) -> None:
    bob.register_obj(x, x.id)
    pointer = x.create_pointer(location=bob, ptr_id=77, garbage_collect_data=False)
    assert pointer.id == 77 and pointer.id_at_location == x.id and isinstance(pointer.child, PointerTensor)
    assert torch.equal((pointer + 1).get(), x + 1)
    with me.registration_enabled():
        kept = x.create_pointer(location=bob, ptr_id=78, garbage_collect_data=False, register=True)
    assert me._objects[78].id_at_location == kept.id_at_location


# -- item 42 -----------------------------------------------------------------------------------------------------


def test_a_worker_made_without_the_hook_says_so() -> None:
    for wrong in ("bob", 7):
        with pytest.raises(TypeError, match=rf"VirtualWorker\(hook, id={wrong!r}\)"):
            sy.VirtualWorker(wrong)


# -- item 28: registration -----------------------------------------------------------------------------------------


def test_local_tensors_are_registered_while_it_is_enabled(me: Any) -> None:
    before = torch.ones(2)
    with me.registration_enabled() as same:
        made = torch.tensor([1.0, 2.0])
        result = made * 2
    after = torch.zeros(2)
    assert (
        same is me and torch.equal(me._objects[made.id], made) and torch.equal(me._objects[result.id], result)
    )
    assert before.id not in me._objects and after.id not in me._objects


def test_a_local_worker_that_is_no_client_registers_tensors(me: Any) -> None:
    me.is_client_worker = False
    made = torch.ones(3)
    with torch.device("cpu"):  # another mode on top
        me.is_client_worker = True
        other = torch.ones(3)
    later = torch.ones(3)
    assert made.id in me._objects and other.id not in me._objects and later.id not in me._objects
    me.is_client_worker = False
    again = torch.ones(3)
    me.is_client_worker = True
    assert again.id in me._objects and torch.overrides._get_current_function_mode() is None
