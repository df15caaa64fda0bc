"""What a pointer tells of its tensor (shape, strides, contiguity) is what the worker has, whoever may see the values."""

from __future__ import annotations

import contextlib
import random
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch.utils._pytree import tree_map

import opdb
import syft as sy
from core.test_shapes import ENTRIES, IN_TABLES, LAYOUTS
from syft.core.chain import new_wrapper
from syft.core.ids import ID_PROVIDER
from syft.core.spec import spec_of
from syft.policy.caller import speaking_for
from syft.policy.owner_policy import OwnerPolicy, read_rules
from syft.serde import deserialize, serialize
from syft.tensors.pointer import PointerTensor, new_pointer
from syft.tensors.sending import spec_when_sent
from syft.workers.guards import PERMISSION

RULES = read_rules('[limits]\nmax_bytes = "1 GB"\nmax_objects = 100000\n')
Lift = Callable[[torch.Tensor], Any]


def told_otherwise(pointer: PointerTensor) -> str | None:
    """What the client believes of a tensor and what it is, where these differ."""
    stored = pointer.location._entries[pointer.id_at_location].value
    spec, real = pointer.spec, spec_of(stored)
    steps = zip(real.shape, spec.strides, real.strides, strict=True)
    same = (spec.shape, spec.dtype) == (real.shape, real.dtype) and (
        0 in real.shape or (spec.offset == real.offset and all(n == 1 or a == b for n, a, b in steps))
    )
    return None if same else f"told {spec}, stored {real}"


class Checked:
    """Looks at the result of every operation on pointers."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seen, self.faults = Counter[Any](), set[str]()
        interpret = PointerTensor.interpret

        def looked_at(cls: Any, func: Any, args: Any, kwargs: Any) -> Any:
            result = interpret(func, args, kwargs)
            for pointer in result if isinstance(result, (tuple, list)) else (result,):
                if isinstance(pointer, PointerTensor) and pointer.id_at_location in pointer.location._entries:
                    self.seen[pointer.location.id] += 1
                    fault = told_otherwise(pointer)
                    if fault is not None:
                        self.faults.add(f"{func}: {fault}")
            return result

        monkeypatch.setattr(PointerTensor, "interpret", classmethod(looked_at))
        monkeypatch.setattr(PointerTensor, "shortcut", None)  # what it would do, `interpret` does, too


@pytest.fixture(scope="module")
def lifts(hook: Any) -> dict[str, Lift]:
    """Ways to bring a tensor to a worker; the results of an operation are then open, or hidden, there."""
    both, watched, denying = (
        sy.VirtualWorker(hook, id=f"layouts-{number}", auto_add=False, policy=policy)
        for number, policy in enumerate((None, None, OwnerPolicy(RULES)))
    )
    watched.add_guard(PERMISSION)

    def private(worker: Any) -> Lift:
        return lambda t: t.private_tensor(allowed_users=("owner",)).send(worker, user="owner")  # type: ignore[attr-defined]

    def owners(tensor: torch.Tensor) -> Any:
        obj_id = ID_PROVIDER.pop()
        denying.register_obj(tensor, obj_id)
        return new_wrapper(new_pointer(denying, obj_id, spec_of(tensor)))

    return {
        "open": lambda t: t.send(both),  # type: ignore[attr-defined]
        "private": private(both),
        "open, with a guard": lambda t: t.send(watched),  # type: ignore[attr-defined]
        "private, with a guard": private(watched),
        "the owner's": owners,
        "a guest's": lambda t: t.send(denying),  # type: ignore[attr-defined]
    }


#: Those whom a worker that denies by default has to know.
GUESTS = ("the owner's", "a guest's")


def run_on_all(op: Any, lifts: dict[str, Lift], limit: int) -> None:
    """An entry of torch's database, in every layout, on open and hidden data in turns. Not all take every layout."""
    for change in (*LAYOUTS.values(), torch.Tensor.detach):
        for sample in opdb.samples(op, torch.float32, True, limit):
            for who, lift in 2 * list(lifts.items()):

                def laid_out(value: Any, change: Any = change, lift: Lift = lift) -> Any:
                    if not isinstance(value, torch.Tensor) or value.layout is not torch.strided:
                        return value
                    made = lift(change(value.detach()).clone())
                    return made.requires_grad_() if value.requires_grad else made

                try:
                    with speaking_for("eve") if who in GUESTS else contextlib.nullcontext():
                        first, args, kwargs = tree_map(laid_out, (sample.input, sample.args, sample.kwargs))
                        results = opdb.differentiable(opdb.leaves(op.op(first, *args, **kwargs)))
                        if results:
                            torch.autograd.backward(results, [torch.ones_like(r) for r in results])
                except Exception:  # noqa: BLE001  (refused, or wrong for torch, too)
                    continue


@pytest.fixture(autouse=True)
def quietly() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def check(name: str, lifts: dict[str, Lift], monkeypatch: pytest.MonkeyPatch, limit: int) -> Checked:
    checked = Checked(monkeypatch)
    run_on_all(ENTRIES[name], lifts, limit)
    assert not checked.faults
    return checked


@pytest.mark.parametrize("name", IN_TABLES)
def test_strides_that_kernels_choose_are_told(
    name: str, lifts: dict[str, Lift], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert check(name, lifts, monkeypatch, 2).seen or name == "normal.number_mean"  # torch makes that here


@pytest.mark.slow
@pytest.mark.parametrize("name", ENTRIES)
def test_strides_of_every_operation_are_told(
    name: str, lifts: dict[str, Lift], monkeypatch: pytest.MonkeyPatch
) -> None:
    check(name, lifts, monkeypatch, 3)


def test_all_workers_are_looked_at(lifts: dict[str, Lift], monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(check("nn.functional.conv2d", lifts, monkeypatch, 2).seen) == 3


def test_the_check_sees_what_is_told_otherwise(bob: Any) -> None:
    pointer = torch.ones(2, 3).send(bob).child  # type: ignore[attr-defined]
    assert told_otherwise(pointer) is None
    pointer._spec = spec_of(torch.ones(3, 2).t())
    assert told_otherwise(pointer) is not None


def odd_layouts() -> Iterator[torch.Tensor]:
    rng = random.Random(3)
    for _ in range(500):
        sizes = [rng.choice((0, 1, 1, 2, 3)) for _ in range(rng.randrange(5))]
        order = rng.sample(range(len(sizes)), len(sizes))
        made = torch.zeros([n * rng.choice((1, 2)) for n in sizes]).permute(order)
        made = made[tuple(slice(0, None, rng.choice((1, 2))) for _ in sizes)]
        strides = [
            rng.choice((0, 1, 5, 7)) if n == 1 and rng.random() < 0.3 else step
            for n, step in zip(made.shape, made.stride(), strict=True)
        ]
        yield made.as_strided(made.shape, strides)
        yield made.unsqueeze(0).expand(rng.choice((1, 2)), *made.shape)


def test_a_tensor_that_was_sent_has_the_strides_that_are_told(bob: Any) -> None:
    """Also those of dimensions of size one: kernels look at them to tell whether channels are last."""
    for tensor in odd_layouts():
        pointer = tensor.send(bob)  # type: ignore[attr-defined]
        stored = bob._objects[pointer.child.id_at_location]
        assert pointer.stride() == stored.stride() == spec_when_sent(tensor).strides
        assert deserialize(serialize(tensor)).stride() == stored.stride()
        assert pointer.is_contiguous() == stored.is_contiguous()
