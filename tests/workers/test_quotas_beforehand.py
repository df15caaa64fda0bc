"""What would not fit into a user's quota is not run at all."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import syft as sy
from syft.exceptions import OperationNotAdmittedError, QuotaExceededError
from syft.messaging.message import ObjectMessage, Operation, Ref
from syft.policy.caller import speaking_for
from syft.policy.owner_policy import OwnerPolicy, read_rules


@pytest.fixture
def small(make_worker: Any) -> Any:
    """A worker whose users may hold 100 MB."""
    return make_worker("small", policy=OwnerPolicy(read_rules('[limits]\nmax_bytes = "100 MB"\n')))


BIG = 10**7

#: What is too large, or is no operation of which the size can be told. Nothing of it has run.
REFUSED = (QuotaExceededError, OperationNotAdmittedError, ValueError)

CALLS = {
    "zeros": lambda w: w.remote.torch.zeros(10**6, 10**6),
    "full": lambda w: w.remote.torch.full((10**5, 10**5), 1.0),
    "arange": lambda w: w.remote.torch.arange(0, 1e12),
    "linspace": lambda w: w.remote.torch.linspace(0, 1, 10**11),
    "eye": lambda w: w.remote.torch.eye(10**6),
    "repeat": lambda w: torch.ones(10).send(w).repeat(10**6, 10**4),
    "broadcast": lambda w: torch.ones(10**5, 1).send(w) + torch.ones(1, 10**5).send(w),
    "outer": lambda w: torch.outer(torch.ones(10**5).send(w), torch.ones(10**5).send(w)),
    "expand and copy": lambda w: torch.ones(1).send(w).expand(10**10).clone(),
    "pad": lambda w: torch.nn.functional.pad(torch.ones(3).send(w), (0, 10**11)),
    "bincount": lambda w: w.run_command("torch.bincount", (torch.tensor([10**12]).send(w),)),
    "one_hot": lambda w: w.run_command("torch.nn.functional.one_hot", (torch.tensor([10**12]).send(w),)),
    "repeat_interleave": lambda w: w.run_command(
        "torch.repeat_interleave", (torch.ones(1).send(w), torch.tensor([10**12]).send(w))
    ),
    "combinations": lambda w: w.run_command("torch.combinations", (torch.ones(1000).send(w), 5)),
    "kron": lambda w: torch.kron(torch.ones(10**5).send(w), torch.ones(10**5).send(w)),
}


@pytest.mark.parametrize("name", CALLS)
def test_what_does_not_fit_is_not_run(small: Any, name: str) -> None:
    with speaking_for("ana"), pytest.raises(REFUSED):
        CALLS[name](small)


def test_what_fits_is_run(small: Any) -> None:
    with speaking_for("ana"):
        assert small.remote.torch.zeros(BIG).sum().get().item() == 0.0
        view = torch.ones(1).send(small).expand(10**10)
        assert view.shape == (10**10,)
        kept = [small.remote.torch.zeros(BIG) for _ in range(2)]
        with pytest.raises(QuotaExceededError, match="may hold"):
            small.remote.torch.zeros(BIG)
        kept.pop()
        assert small.remote.torch.zeros(BIG).shape == (BIG,)


def test_a_plan_that_would_need_too_much_on_the_way_is_not_run(small: Any) -> None:
    @sy.func2plan(args_shape=[(-1,)])
    def squares(x: Any) -> Any:
        return (x[:, None] * x[None, :]).sum()

    with speaking_for("ana"):
        plan = squares.send(small)
        assert plan(torch.ones(100).send(small)).get().item() == 10_000.0
        with pytest.raises(QuotaExceededError, match="squares"):
            plan(torch.ones(10**5).send(small))


def test_how_large_private_values_are_does_not_show(small: Any) -> None:
    small.register_obj(torch.tensor([10**12]).tag("#large"))
    small.register_obj(torch.tensor([3]).tag("#little"))
    said = []
    with speaking_for("ana"):
        for tag in ("#large", "#little"):
            (x,) = small.search(tag)
            with pytest.raises(sy.exceptions.SyftError) as refusal:
                small.run_command("torch.bincount", (x,))
            said.append(str(refusal.value).replace(str(x.id_at_location), "ID"))
    assert said[0] == said[1]


@pytest.mark.parametrize("command", ["aten.full.out", "torch.full"])
def test_an_out_is_not_written_into(small: Any, command: str) -> None:
    """It could grow. Pointers write an `out=` by a copy."""
    with speaking_for("ana"):
        small.recv_msg(ObjectMessage(torch.zeros(3), "out"))
        with pytest.raises(OperationNotAdmittedError):
            small.recv_msg(Operation(command, None, [[3], 1.0], {"out": Ref("out")}, ()))
        assert small._objects["out"].tolist() == [0, 0, 0]
        mine = torch.zeros(3).send(small)
        torch.add(mine, 1.0, out=mine)
        with pytest.raises(ValueError, match="not resized"):
            torch.add(mine, 1.0, out=torch.zeros(2).send(small))
        assert mine.get().tolist() == [1, 1, 1]
