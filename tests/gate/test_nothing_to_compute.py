"""Where all results are empty no kernel is called: see NOTE [Nothing to compute] in syft.operations.running."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from calls import tensors_of
from test_two_worlds import _calls
from torch.nn import functional as F
from worlds import admitted

import syft as sy
from syft.core.nested import found_in
from syft.operations import all_rows, run, running
from syft.operations.table import FAMILIES
from syft.policy.caller import speaking_for
from syft.policy.permissions import Policy


class _OnMetaOnly:
    """An operation that ends the test where it gets a tensor with memory."""

    def __init__(self, function: Any) -> None:
        self._function = function

    def __getattr__(self, name: str) -> Any:
        return getattr(self._function, name)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        assert all(t.is_meta for t in found_in((args, kwargs), torch.Tensor)), f"{self._function} was called"
        return self._function(*args, **kwargs)


@pytest.fixture
def without_kernel(monkeypatch):
    def of(row):
        for name, called in {"function": row.function, "kernel": row.kernel}.items():
            monkeypatch.setitem(row.__dict__, name, _OnMetaOnly(called))
        monkeypatch.delitem(running.WRITTEN_WHOLE, row.name, raising=False)

    return of


@pytest.mark.parametrize("family", FAMILIES)
def test_no_kernel_is_called_for_empty_results(family, without_kernel):
    found = [(admitted(call), call) for call in _calls(family, 10)]
    empty = [(a, call) for a, call in found if a is not None and a.makes_nothing]
    for row in {a.row.name: a.row for a, _ in empty}.values():
        without_kernel(row)
    for admission, call in empty:
        args, kwargs = tensors_of(call, "recorded", 1)
        outcome = run(admission, args, kwargs)
        assert outcome.failure is None, call
        assert [tuple(made.shape) for made in outcome.results] == [
            tuple(r.spec.shape) for r in admission.results
        ]
        assert running.straight_of(admission, args) is running.NOT_STRAIGHT


def _attention_row():
    return all_rows()["aten._scaled_dot_product_flash_attention_for_cpu.default"]


@pytest.mark.parametrize("shape", [(0, 0, 4, 3), (2, 0, 4, 3), (0, 2, 4, 3), (2, 2, 0, 3)])
def test_a_part_of_an_operation_with_empty_results_is_not_called(shape, without_kernel):
    row = _attention_row()
    q = torch.ones(shape)
    without_kernel(row)  # NB: called with these, it ends the process: of (2, 2, 0, 3) still in torch 2.13
    made = running.compute_inner(row, (q, q, q), {})
    assert made[0].shape == shape and made[0].dtype is torch.float32
    assert made[1].numel() == 0


def test_a_part_with_elements_is_called(without_kernel):
    without_kernel(_attention_row())
    q = torch.ones(1, 1, 2, 3)
    with pytest.raises(AssertionError, match="was called"):
        running.compute_inner(_attention_row(), (q, q, q), {})


@pytest.mark.parametrize("tracks", [False, True])
@pytest.mark.parametrize("shape", [(0, 0, 4, 3), (2, 0, 4, 3)])
def test_attention_without_heads_leaves_the_worker_alive(hook, without_kernel, shape, tracks):
    without_kernel(_attention_row())
    worker = sy.VirtualWorker(id="no_heads", auto_add=False, policy=Policy(allows_by_default=False))
    with speaking_for("ann"):
        q = torch.ones(shape).send(worker)
        if tracks:
            q.requires_grad_()
        made = F.scaled_dot_product_attention(q, q, q)
        assert tuple(made.shape) == shape
        if tracks:
            made.sum().backward()
            assert tuple(q.grad.get().shape) == shape
