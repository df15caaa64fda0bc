"""Operations that are not in the table run as several that are, or are refused by a sentence."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from syft.exceptions import OperationNotAdmittedError
from syft.operations import is_admitted
from syft.operations.decomposition import decompose, is_decomposable, refusal

aten = torch.ops.aten


class _OnlyTheTable(TorchDispatchMode):
    """A worker that admits only the table, and a client that decomposes the rest."""

    def __init__(self) -> None:
        super().__init__()
        self.ran: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        # Notes for a profiler, and numbers of the client's own.
        if func.namespace != "aten" or func is aten._local_scalar_dense.default:
            return func(*args, **(kwargs or {}))
        if is_admitted(str(func)):
            self.ran.append(str(func))
            return func(*args, **(kwargs or {}))
        with self:
            made = decompose(func, args, kwargs or {})
        if made is NotImplemented:
            raise refusal(func)
        return made


@pytest.mark.parametrize(
    ("func", "args"),
    [
        (aten.addcmul.default, (torch.randn(3), torch.randn(3), torch.randn(3))),
        (aten.mvlgamma.default, (torch.rand(3) + 3, 2)),
        (aten.instance_norm.default, (torch.randn(2, 3, 4), None, None, None, None, True, 0.1, 1e-5, False)),
        (aten.nanmean.default, (torch.randn(3, 4), [1])),
        (aten.hardtanh_.default, (torch.randn(3),)),
        (aten.split_with_sizes_copy.default, (torch.randn(4), [1, 3])),
        (aten.special_multigammaln.default, (torch.rand(3) + 3, 2)),
    ],
)
def test_a_decomposed_operation_gives_what_torch_gives(func, args):
    wanted = func(*[a.clone() if isinstance(a, torch.Tensor) else a for a in args])
    with _OnlyTheTable() as mode:
        made = func(*args)
    assert mode.ran
    torch.testing.assert_close(made, wanted)


def test_an_out_is_written_by_a_copy():
    a, b, out = torch.randn(3), torch.randn(3), torch.zeros(3)
    with _OnlyTheTable() as mode:
        torch.maximum(a, b, out=out)
    assert torch.equal(out, torch.maximum(a, b))
    assert mode.ran == ["aten.maximum.default", "aten.copy_.default"]


def test_an_out_of_another_shape_is_refused():
    with pytest.raises(OperationNotAdmittedError, match="resize"), _OnlyTheTable():
        torch.maximum(torch.ones(3), torch.ones(3), out=torch.empty(0))


@pytest.mark.parametrize(
    "name", ["nonzero.default", "_unique2.default", "set_.source_Tensor", "geqrf.default"]
)
def test_what_has_no_decomposition_is_refused_by_name(name):
    packet, overload = name.split(".")
    func = getattr(getattr(aten, packet), overload)
    assert not is_decomposable(func)
    assert f"aten.{name}" in str(refusal(func))


@pytest.mark.parametrize(
    "optimizer", "SGD Adam AdamW Adamax Adagrad RMSprop Rprop NAdam RAdam ASGD Adadelta".split()
)
@pytest.mark.parametrize("foreach", [True, False])
def test_a_step_of_an_optimizer_needs_only_the_table(optimizer, foreach):
    torch.manual_seed(0)
    runs = []
    for mode in (None, _OnlyTheTable()):
        torch.manual_seed(1)
        model = torch.nn.Linear(4, 3)
        steps = getattr(torch.optim, optimizer)(model.parameters(), lr=0.1, foreach=foreach)
        for _ in range(3):
            steps.zero_grad()
            loss = model(torch.ones(2, 4)).square().mean()
            loss.backward()
            if mode is None:
                steps.step()
            else:
                with mode:
                    steps.step()
        runs.append([p.detach().clone() for p in model.parameters()])
    assert all(torch.equal(a, b) for a, b in zip(*runs, strict=True))
