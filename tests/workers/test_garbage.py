"""What nobody points to any more is gone, and nothing else."""

from __future__ import annotations

import contextlib
import gc
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from syft.exceptions import ObjectNotFoundError

ROUNDS = 1000
#: Twice the noise of the allocator; a leak of one 4 kB tensor per round would be 4 MB.
FLAT = 3_000_000


def resident_bytes() -> int:
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def stays_flat(worker: Any, run: Callable[[], Any], rounds: int = ROUNDS) -> None:
    """After some rounds of warm-up, neither objects nor memory grow."""
    for _ in range(rounds // 10):
        run()
    gc.collect()
    objects, memory = len(worker._objects), resident_bytes()
    for _ in range(rounds):
        run()
    gc.collect()
    assert len(worker._objects) == objects
    assert len(worker._waiting_deletes) == 0
    assert not any(entry.references for entry in worker._entries.values())
    assert resident_bytes() - memory < FLAT


def test_training_steps(bob: Any) -> None:
    model = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 2)).send(bob)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    data, target = torch.randn(4, 8).send(bob), torch.randint(2, (4,)).send(bob)

    def step() -> None:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(data), target).backward()
        optimizer.step()

    step()
    held = len(bob._objects)
    stays_flat(bob, step)
    assert len(bob._objects) == held


def test_steps_of_a_recurrent_net(bob: Any) -> None:
    """The graph that a remote call keeps on the worker goes with the graph here, used or not."""
    lstm = nn.LSTM(4, 8).send(bob)
    data = torch.randn(3, 2, 4).send(bob)

    def step() -> None:
        lstm(data)
        lstm.zero_grad(set_to_none=True)
        lstm(data)[0].sum().backward()

    stays_flat(bob, step, rounds=300)


def test_failed_operations(bob: Any) -> None:
    x, index = torch.randn(1000).send(bob), torch.tensor([5000]).send(bob)

    def fail() -> None:
        with contextlib.suppress(RuntimeError):
            x + torch.randn(2).send(bob)
        with contextlib.suppress(IndexError):
            x[index]
        with contextlib.suppress(RuntimeError):
            (x * 2).item()
        with contextlib.suppress(ValueError):
            x + torch.randn(1000)
        with contextlib.suppress(RuntimeError):
            x.view(1, 3)

    stays_flat(bob, fail)


def test_dropped_pointers(bob: Any) -> None:
    x = torch.randn(1000).send(bob)
    stays_flat(bob, lambda: (torch.randn(1000).send(bob) + x).split(100)[0])
    assert len(bob._objects) == 1


def test_sent_and_fetched(bob: Any) -> None:
    stays_flat(bob, lambda: torch.randn(1000).send(bob).get())
    assert len(bob._objects) == 0


def test_moves(alice: Any, bob: Any) -> None:
    stays_flat(
        bob, lambda: torch.randn(100, requires_grad=True).send(bob).move(alice).move(bob).sum().backward()
    )
    assert len(bob._objects) == len(alice._objects) == 0


def test_an_exception_with_a_pointer_in_its_traceback(bob: Any) -> None:
    def fail() -> None:
        doomed = torch.randn(1000).send(bob)
        doomed.sum()
        raise KeyError("while a pointer is alive")

    def run() -> None:
        try:
            fail()
        except KeyError as error:
            kept.append(error)

    kept: list[Any] = []
    run()
    assert len(bob._objects) == 1  # the traceback holds it
    kept.clear()
    gc.collect()
    assert len(bob._objects) == 0
    stays_flat(bob, lambda: (run(), kept.clear()))


def test_an_object_lives_as_long_as_anything_that_shares_it(bob: Any) -> None:
    x = torch.ones(3).send(bob)
    alias = x.detach()
    del x
    assert len(bob._objects) == 1
    assert alias.copy().get().tolist() == [1.0, 1.0, 1.0]
    del alias
    assert len(bob._objects) == 0


def test_views_hold_their_memory(bob: Any) -> None:
    x = torch.arange(4.0).send(bob)
    view = x[1:3]
    del x
    assert view.copy().get().tolist() == [1.0, 2.0]
    del view
    assert len(bob._objects) == 0


def test_the_graph_holds_what_backward_needs(bob: Any) -> None:
    x = torch.ones(3, requires_grad=True).send(bob)
    loss = (x * 2).exp().sum()
    assert len(bob._objects) == 3  # x, the result of exp, the loss
    del loss
    assert len(bob._objects) == 1
    loss = (x * 2).exp().sum()
    loss.backward()
    assert len(bob._objects) == 3  # x, its gradient, the loss
    del loss
    assert len(bob._objects) == 2


def test_data_that_is_not_collected(bob: Any) -> None:
    kept = torch.ones(1).send(bob, garbage_collect_data=False)
    assert kept.gc is kept.garbage_collect_data is False
    obj_id = kept.id_at_location
    del kept
    assert obj_id in bob._objects

    later = torch.ones(1).send(bob)
    later.gc = False
    later_id = later.id_at_location
    del later
    assert later_id in bob._objects

    again = torch.ones(1).send(bob, garbage_collect_data=False)
    again.garbage_collect_data = True
    del again
    assert len(bob._objects) == 2


def test_get_removes_also_what_is_not_collected(bob: Any) -> None:
    assert torch.ones(1).send(bob, garbage_collect_data=False).get().item() == 1.0
    assert len(bob._objects) == 0


def test_search_results_never_delete(me: Any, bob: Any) -> None:
    held = torch.ones(1).tag("#here").send(bob)
    for _ in range(3):
        (found,) = bob.search("#here")
        assert not found.gc
        (again,) = me.request_search(["#here"], bob)
        del found, again
    assert held.get().item() == 1.0


def test_sending_a_pointer_hands_the_duty_over(alice: Any, bob: Any) -> None:
    x = torch.ones(1).send(bob)
    far = x.send(alice)
    assert not x.gc
    del x
    assert len(bob._objects) == len(alice._objects) == 1
    del far
    assert len(bob._objects) == len(alice._objects) == 0


def test_the_duty_comes_back_with_the_pointer(alice: Any, bob: Any) -> None:
    near = torch.ones(1).send(bob).send(alice).get()
    assert near.location is bob and near.gc
    assert (len(alice._objects), len(bob._objects)) == (0, 1)
    del near
    assert len(bob._objects) == 0


def test_a_pointer_that_could_not_be_sent_keeps_its_duty(me: Any, alice: Any, bob: Any) -> None:
    x = torch.ones(1).send(bob)
    alice._recv_msg = lambda _message: (_ for _ in ()).throw(ConnectionError("alice is away"))
    with pytest.raises(ConnectionError):
        x.send(alice)
    gc.collect()
    assert x.gc and x.copy().get().item() == 1.0
    del x
    gc.collect()
    assert len(bob._objects) == 0


def test_the_same_tensor_sent_twice_lives_until_both_pointers_are_gone(bob: Any) -> None:
    x = torch.ones(1)
    first, second = x.send(bob), x.send(bob)
    assert first.id_at_location == second.id_at_location == x.id
    assert len(bob._objects) == 1
    del first
    assert second.copy().get().item() == 1.0
    del second
    assert len(bob._objects) == 0


@pytest.mark.parametrize("collects", [True, False])
def test_fetching_one_of_two_leaves_the_other(bob: Any, collects: bool) -> None:
    x = torch.ones(1)
    first, second = x.send(bob), x.send(bob, garbage_collect_data=collects)
    assert second.get().item() == 1.0
    assert first.get().item() == 1.0
    assert len(bob._objects) == 0


def test_a_deleted_object_is_missed_with_advice(bob: Any) -> None:
    x = torch.ones(1).send(bob)
    bob.force_rm_obj(x.id_at_location)
    for call in (lambda: x + 1, x.get, lambda: x.move(bob) + x):
        with pytest.raises(ObjectNotFoundError, match="Keep a pointer"):
            call()
    assert x.is_none()


def test_threads(bob: Any) -> None:
    shared = torch.randn(16).send(bob)
    expected = (shared * 2).sum().get()
    faults: list[BaseException] = []

    def work() -> None:
        try:
            mine = torch.ones(16)
            for _ in range(150):
                p = mine.send(bob)
                if not torch.equal((shared * 2).sum().get(), expected) or (p + p)[0].get() != 2.0:
                    raise AssertionError("threads mixed their data up")
        except BaseException as error:  # noqa: BLE001  (told below)
            faults.append(error)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert faults == []
    gc.collect()
    assert list(bob._objects) == [shared.id_at_location]


def test_finalizers_in_the_middle_of_an_operation(bob: Any) -> None:
    """Cycles are collected at arbitrary points, also while the store is being read."""
    for number in range(300):
        cycle: list[Any] = [torch.ones(2).tag("#cycle").send(bob)]
        cycle.append(cycle)
        del cycle
        if number % 10 == 0:
            bob.search("#cycle")
            bob.taint([torch.ones(1)], frozenset(), ())
    gc.collect()
    assert len(bob._objects) == 0
