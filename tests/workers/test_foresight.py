"""What would not fit into a user's quota is not run at all."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import syft as sy
from syft.exceptions import QuotaExceededError
from syft.messaging.message import ObjectMessage, Operation, Ref
from syft.workers.caller import speaking_for
from syft.workers.owner_policy import OwnerPolicy, read_rules


@pytest.fixture
def small(make_worker: Any) -> Any:
    """A worker whose users may hold 100 MB."""
    return make_worker("small", policy=OwnerPolicy(read_rules('[limits]\nmax_bytes = "100 MB"\n')))


BIG = 10**7

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
    with speaking_for("ana"), pytest.raises(QuotaExceededError, match="not run"):
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


OUTS = {
    "full": ("aten.full.out", [[BIG * 10], 1.0]),
    "arange": ("aten.arange.out", [BIG * 10]),
    "repeat": ("aten.repeat.out", [Ref("ones"), [10**6, 100]]),
    "cat": ("aten.cat.out", [[Ref("wide")] * 100]),
    "a public function": ("torch.arange", [BIG * 10]),
}


@pytest.mark.parametrize("name", OUTS)
def test_an_out_is_not_grown_to_what_does_not_fit(small: Any, name: str) -> None:
    command, args = OUTS[name]
    with speaking_for("ana"):
        for obj_id, tensor in (("ones", torch.ones(1)), ("wide", torch.ones(10**6)), ("out", torch.zeros(0))):
            small.recv_msg(ObjectMessage(tensor, obj_id))
        with pytest.raises(QuotaExceededError, match="not run"):
            small.recv_msg(Operation(command, None, args, {"out": Ref("out")}, ()))
        assert small.get_obj("out").untyped_storage().nbytes() == 0


@pytest.mark.parametrize("command", ["aten.full.out", "torch.full"])
@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")
def test_an_out_that_grows_is_paid_for(small: Any, command: str) -> None:
    quotas = small._holdings.quotas
    results = [] if command.startswith("aten") else ["same"]
    with speaking_for("ana"):
        small.recv_msg(ObjectMessage(torch.zeros(0), "out"))
        for length in (10**6, 2 * 10**6):
            small.recv_msg(Operation(command, None, [[length], 1.0], {"out": Ref("out")}, tuple(results)))
            assert quotas.usage("ana").bytes == 4 * length
        small.force_rm_obj("out")
        for obj_id in results:
            small.force_rm_obj(obj_id)
        assert quotas.usage("ana") == (0, 0)


def test_small_outs_do_not_grow_beyond_the_quota_either(make_worker: Any) -> None:
    tight = make_worker("tight", policy=OwnerPolicy(read_rules("[limits]\nmax_bytes = 1000\n")))
    with speaking_for("ana"):
        tight.recv_msg(ObjectMessage(torch.zeros(240), "most"))
        tight.recv_msg(ObjectMessage(torch.zeros(0), "out"))
        with pytest.raises(QuotaExceededError, match="not run"):
            tight.recv_msg(Operation("aten.full.out", None, [[20], 1.0], {"out": Ref("out")}, ()))
        tight.recv_msg(Operation("aten.full.out", None, [[10], 1.0], {"out": Ref("out")}, ()))
        assert tight._holdings.quotas.usage("ana") == (2, 1000)
