"""torch's own operator database, run on a worker through pointers and compared with plain torch."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import torch

import opdb
from syft.core.chain import Wrapper
from syft.core.ops import facts_of
from syft.operations.writes import UNDECLARED_WRITERS
from syft.tensors.pointer import PointerTensor

ENTRIES = {opdb.op_id(op): op for op in opdb.entries(torch.float32)}

#: What does not agree yet, and why.
XFAIL = {
    "item": "asks for the value",
    "allclose": "asks for the value",
    "equal": "asks for the value",
    "cov": "torch compares two weights by value",
    "narrow": "a start that is a tensor is read by value",
    "tensor_split": "split points that are a tensor are read by value",
    "nn.functional.gaussian_nll_loss": "torch looks whether a variance is negative",
    "as_strided.partial_views": "reaches memory beside the view, which is not sent",
    "to_sparse": "chains hold dense tensors",
    "sparse.sampled_addmm": "takes a sparse tensor, which cannot be sent",
    "sparse.mm.reduce": "takes a sparse tensor, which cannot be sent",
    "nn.functional.linear_cross_entropy.chunked_none": "its backward collects in a tensor that is here",
}

#: The formulas of torch make zeros of their own for a gradient (or a rank) that does not depend on the data.
MADE_HERE = {
    "copysign",
    "linalg.matrix_rank",
    "linalg.matrix_rank.hermitian",
    "max_pool2d_with_indices_backward",
    "nextafter",
    "normal",
    "normal.number_mean",
    "repeat",
    "sgn",
}


def _names() -> list[Any]:
    return [
        pytest.param(name, marks=pytest.mark.xfail(reason=XFAIL[name])) if name in XFAIL else name
        for name in ENTRIES
    ]


@pytest.fixture(autouse=True)
def quietly() -> Iterator[None]:
    """The database itself uses what torch has deprecated."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _there_and_back(bob: Any) -> tuple[Any, Any]:
    return (
        lambda t: t.send(bob),
        lambda t: t.copy().get() if type(t) is Wrapper else t,
    )


@pytest.mark.parametrize("name", _names())
def test_an_operation_on_a_worker_agrees_with_torch_forward_and_backward(bob: Any, name: str) -> None:
    opdb.compare(ENTRIES[name], torch.float32, *_there_and_back(bob), may_be_plain=name in MADE_HERE)


def test_at_least_98_percent_agree() -> None:
    """The others have run above, strictly."""
    assert set(XFAIL) <= set(ENTRIES) | opdb.LATER
    assert (len(ENTRIES) - len(XFAIL)) / len(ENTRIES) >= 0.98
    assert len(ENTRIES) > 600


class Inspector:
    """Looks at every operation from both sides."""

    def __init__(self, worker: Any) -> None:
        self.worker = worker
        self.operations = 0
        self.faults: list[str] = []
        self.interpret = PointerTensor.interpret

    def __call__(self, cls: Any, func: Any, args: Any, kwargs: Any) -> Any:
        read = [] if _writes(func) else [self._stored(p) for p in _pointers((args, kwargs))]
        before = [t.clone() for t in read]
        result = self.interpret(func, args, kwargs)
        self.operations += 1
        for pointer in _pointers(result):
            stored = self._stored(pointer)
            if not _same_layout(pointer.spec, stored):
                self.faults.append(f"{func}: told {pointer.spec}, stored {stored.shape} {stored.stride()}")
        for was, tensor in zip(before, read, strict=True):
            if not _same_bits(was, tensor):
                self.faults.append(f"{func} wrote into an argument that its schema does not name")
        return result

    def _stored(self, pointer: Any) -> torch.Tensor:
        return self.worker._objects[pointer.id_at_location]


def _writes(func: Any) -> bool:
    return facts_of(func).mutates or func._schema.name.partition("::")[2] in UNDECLARED_WRITERS


def _same_bits(one: torch.Tensor, other: torch.Tensor) -> bool:
    return one.shape == other.shape and _bits(one).equal(_bits(other))


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    return torch.empty(tensor.shape, dtype=tensor.dtype).copy_(tensor).view(-1).view(torch.uint8)


def _pointers(value: Any) -> Iterator[PointerTensor]:
    if isinstance(value, PointerTensor):
        yield value
    elif isinstance(value, dict):
        yield from _pointers(list(value.values()))
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from _pointers(item)


def _same_layout(spec: Any, tensor: torch.Tensor) -> bool:
    """Strides count where there is something to step over."""
    if spec.shape != tensor.shape or spec.dtype != tensor.dtype:
        return False
    if tensor.numel() == 0:
        return True
    return spec.offset == tensor.storage_offset() and all(
        mine == theirs
        for size, mine, theirs in zip(spec.shape, spec.strides, tensor.stride(), strict=True)
        if size > 1
    )


@pytest.mark.parametrize("name", [name for name in ENTRIES if name not in XFAIL])
def test_the_client_knows_what_the_worker_stored_and_nothing_is_written_unannounced(
    bob: Any, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    inspector = Inspector(bob)
    monkeypatch.setattr(PointerTensor, "interpret", classmethod(inspector.__call__))
    monkeypatch.setattr(PointerTensor, "shortcut", None)  # what it would do, `interpret` does, too
    opdb.compare(ENTRIES[name], torch.float32, *_there_and_back(bob), limit=3, may_be_plain=True)
    assert inspector.faults == []


def test_the_inspector_sees_operations_and_faults(bob: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    inspector = Inspector(bob)
    monkeypatch.setattr(PointerTensor, "interpret", classmethod(inspector.__call__))
    monkeypatch.setattr(PointerTensor, "shortcut", None)  # what it would do, `interpret` does, too
    x = torch.ones(3).send(bob)
    x + x
    assert inspector.operations == 1 and inspector.faults == []
    x.child._spec = torch.ones(4).send(bob).child.spec
    x * 1
    assert len(inspector.faults) == 1
