"""What torch's meta kernels foretell is what the kernels make, strides included, for inputs of any layout."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_map, tree_map_only

import syft as sy
from opdb import differentiable, entries, leaves, op_id, samples
from syft.core import shapes
from syft.core.ops import facts_of
from syft.core.spec import TensorSpec, spec_of

Layout = Callable[[torch.Tensor], torch.Tensor]


def _permuted(order: Callable[[int], list[int]]) -> Layout:
    """Memory in another order than the dimensions."""

    def change(tensor: torch.Tensor) -> torch.Tensor:
        dimensions = order(tensor.dim())
        back = [dimensions.index(d) for d in range(tensor.dim())]
        return tensor.detach().permute(dimensions).contiguous().permute(back)

    return change


def _every_second(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.dim() == 0 or tensor.numel() == 0:
        return tensor.detach().clone()
    wide = tensor.detach().new_empty([*tensor.shape[:-1], tensor.shape[-1] * 2])
    return wide[..., ::2].copy_(tensor.detach())


LAYOUTS: dict[str, Layout] = {
    "transposed": _permuted(lambda n: [*range(n - 2), n - 1, n - 2] if n > 1 else list(range(n))),
    "reversed": _permuted(lambda n: list(range(n))[::-1]),
    "channels last": _permuted(lambda n: [0, *range(2, n), 1] if n > 2 else list(range(n))[::-1]),
    "every second": _every_second,
}

#: Operations that would resize their argument in place; on pointers they are refused.
RESIZE = {"aten.squeeze_.dim", "aten.transpose_.default"}


def _equal(told: TensorSpec, real: TensorSpec) -> bool:
    if told.shape != real.shape or told.dtype != real.dtype:
        return False
    steps = zip(told.shape, told.strides, real.strides, strict=True)
    return 0 in told.shape or (told.offset == real.offset and all(n == 1 or a == b for n, a, b in steps))


def _specs(answer: shapes.Answer) -> list[Any]:
    if answer.spec is not None:
        return [answer.spec]
    return [
        spec
        for part in answer.parts
        for spec in (_specs(part) if isinstance(part, shapes.Answer) else [part])
    ]


class Compared(TorchDispatchMode):
    """Asks about each operation before it runs, and compares."""

    def __init__(self) -> None:
        super().__init__()
        self.wrong: list[str] = []
        self.count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        args, kwargs = args, kwargs or {}
        given, named = tree_map_only(torch.Tensor, spec_of, (args, kwargs))
        facts = facts_of(func)
        result = func(*args, **kwargs)
        misjudged = shapes.MISJUDGED.get(facts.name)
        if facts.name in RESIZE or (misjudged is not None and misjudged(given)):
            return result
        with _disable_current_modes():
            told = shapes.predict(func, given, named)
        if told is not None:
            self.count += 1
            pairs = zip(_specs(told[0]), _specs(shapes.describe(result, facts)), strict=True)
            self.wrong += [
                f"{facts.name}: {a} instead of {b}"
                for a, b in pairs
                if (isinstance(b, TensorSpec) and not (isinstance(a, TensorSpec) and _equal(a, b)))
                or (b is None and a is not None)
            ]
        return result


def _compare(op: Any, limit: int) -> Compared:
    compared = Compared()
    for change in LAYOUTS.values():
        for sample in samples(op, torch.float32, True, limit):

            def laid_out(value: Any, change: Layout = change) -> Any:
                if not isinstance(value, torch.Tensor) or value.layout != torch.strided:
                    return value
                return change(value).requires_grad_(value.requires_grad)

            whole, args, kwargs = tree_map(laid_out, (sample.input, sample.args, sample.kwargs))
            try:
                with compared:
                    results = differentiable(leaves(op.op(whole, *args, **kwargs)))
                    if results:
                        torch.autograd.backward(results, [_gradient(r) for r in results])
            except RuntimeError:
                continue  # not every operation takes every layout
    return compared


def _gradient(result: torch.Tensor) -> torch.Tensor:
    return LAYOUTS["reversed"](torch.ones_like(result))


def _names_of_tables() -> set[str]:
    """Of the operations that are corrected or asked about, without `aten.`, overload and `_backward`."""
    names = {name.split(".")[1].removesuffix("_backward") for name in (*shapes.MISJUDGED, *shapes.CORRECTED)}
    return names | {"layer_norm", "batch_norm", "conv1d", "conv2d", "mse_loss", "log_softmax", "logsigmoid"}


ENTRIES = {op_id(op): op for op in entries(torch.float32)}
IN_TABLES = [name for name, op in ENTRIES.items() if op.name.split(".")[-1].lstrip("_") in _names_of_tables()]


@pytest.mark.parametrize("name", IN_TABLES)
def test_results_of_operations_that_torch_misjudges_are_foretold(name: str) -> None:
    compared = _compare(ENTRIES[name], 2)
    assert compared.count
    assert not compared.wrong


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of what is old, or of mean reductions
@pytest.mark.parametrize("name", ENTRIES)
def test_results_of_every_operation_are_foretold(name: str) -> None:
    assert not _compare(ENTRIES[name], 4).wrong


def test_a_batch_norm_over_swapped_dimensions_trains_remotely() -> None:
    """Its gradient is viewed where torch believes it to be contiguous."""

    class Swapped(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.out = torch.nn.BatchNorm1d(6), torch.nn.Linear(6, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            h = self.norm(torch.transpose(x * 2, 1, 2)).transpose(1, 2)
            return self.out(h.reshape(-1, 6)).reshape(x.shape[0], -1, 2).permute(0, 2, 1)

    def trained(model: torch.nn.Module, x: torch.Tensor, y: torch.Tensor) -> None:
        torch.nn.functional.mse_loss(model(x), y).backward()

    x, y = torch.randn(3, 5, 6), torch.randn(3, 2, 5)
    torch.manual_seed(0)
    local = Swapped()
    torch.manual_seed(0)
    remote = Swapped()
    worker = sy.VirtualWorker(id="of_layouts")
    trained(local, x, y)
    trained(remote.send(worker), x.send(worker), y.send(worker))
    remote.get()
    for here, there in zip(local.parameters(), remote.parameters(), strict=True):
        assert torch.equal(here.grad, there.grad)


@pytest.mark.parametrize("mode", ["reflect", "replicate", "circular"])
@pytest.mark.parametrize("dimensions", [2, 3])
def test_padded_images_with_channels_last_can_be_flattened(mode: str, dimensions: int) -> None:
    """And rolled ones: where they lie in another order than torch believed, a view of them failed at the worker."""
    worker = sy.VirtualWorker(id="of_images")
    x = LAYOUTS["channels last"](torch.randn(2, 3, *[4] * dimensions))
    for change in (
        lambda t: torch.nn.functional.pad(t, (1, 1) * dimensions, mode=mode),
        lambda t: torch.roll(t, 1, 1),
    ):
        here, there = change(x), change(x.send(worker))
        assert there.stride() == here.stride()
        assert torch.equal(there.flatten(1).get(), here.flatten(1))


def test_a_worker_is_asked_once_for_each_metadata(monkeypatch: pytest.MonkeyPatch) -> None:
    worker = sy.VirtualWorker(id="asked_once")
    x = torch.randn(2, 4, 8).transpose(1, 2).contiguous().transpose(1, 2).send(worker)
    weight = torch.randn(3, 4, 3).send(worker)
    asked = []
    original = shapes.remember
    monkeypatch.setattr(shapes, "remember", lambda key, answer: (asked.append(answer), original(key, answer)))
    results = [torch.nn.functional.conv1d(x, weight) for _ in range(3)]
    assert sum(not answer.asks for answer in asked) == 1
    assert {r.stride() for r in results} == {results[0].get().stride()}


def test_strides_that_a_worker_told_for_private_data_are_not_taken_for_those_of_open_data(bob: Any) -> None:
    """Private results lie as was predicted, others as the kernel made them."""
    values = torch.randn(2, 3)
    private = values.clone().private_tensor(allowed_users=("owner",)).send(bob, user="owner")  # type: ignore[attr-defined]
    for x in (private, values.send(bob), private, values.send(bob)):  # type: ignore[attr-defined]
        results = torch.linalg.svd(x, full_matrices=False)
        if x is not private:
            stored = [bob._objects[result.child.id_at_location] for result in results]
            assert [r.stride() for r in results] == [s.stride() for s in stored]
