"""What a call costs: flops, bytes and memory from shapes; on shares, what the group counts."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

import plan_models as models
import syft as sy
from syft.execution.cost import SHARE_METERS, settled_shapes
from syft.execution.errors import PlanArgumentsError, PlanError
from syft.messaging.message import PlanCallMessage
from syft.mpc.group import Group


@pytest.fixture(scope="module")
def mlp() -> Any:
    return sy.func2plan(args_shape=[(-1, 12)])(models.Mlp())


def test_an_mlp_by_hand(mlp: Any) -> None:
    cost = mlp.cost((7, 12))
    assert cost.flops == 2 * 7 * (12 * 8 + 8 * 3)
    assert (cost.inputs, cost.outputs) == (7 * 12 * 4, 7 * 3 * 4)
    assert cost.state == 4 * (12 * 8 + 8 + 8 * 3 + 3)
    assert cost.peak == 2 * 7 * 8 * 4  # the hidden layer before and after relu
    assert [(op.name.rpartition(".")[2], op.flops, op.bytes) for op in cost.operations] == [
        ("linear", 2 * 7 * 96, 7 * 8 * 4), ("relu", 0, 7 * 8 * 4), ("linear", 2 * 7 * 24, 7 * 3 * 4),
    ]  # fmt: skip
    assert mlp.cost((14, 12)).flops == 2 * cost.flops and mlp.cost() == mlp.cost((1, 12))


@pytest.mark.parametrize("name", models.MODELS)
def test_flops_are_those_of_torchs_counter_on_the_model(name: str) -> None:
    make, shape = models.MODELS[name]
    model = make()
    shape = tuple(6 if n == -1 else n for n in shape)
    plan = sy.func2plan(args_shape=[models.MODELS[name][1]])(model)
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model(torch.randn(shape))
    found = plan.cost(shape).flops
    if name == "lstm":  # torch runs it on a CPU as one kernel, for which its counter has no formula
        steps, batch, hidden = 5, 6, 6
        assert found == 2 * steps * batch * 4 * hidden * (4 + hidden + hidden + hidden)
    else:
        assert found == counter.get_total_flops() > 0


def test_peak_memory_forgets_what_is_not_needed_any_more() -> None:
    def deep(x: Any) -> Any:
        for _ in range(20):
            x = x + 1
        return x

    assert sy.func2plan(args_shape=[(-1,)])(deep).cost((1000,)).peak == 2 * 4000
    kept = sy.func2plan(args_shape=[(-1,)])(lambda x: [x + n for n in range(20)])
    assert kept.cost((1000,)).peak == 20 * 4000


def test_the_bytes_of_a_call_are_those_of_its_message(mlp: Any, make_worker: Any) -> None:
    bob = make_worker("bob", log_msgs=True)
    plan = mlp.copy()
    for parameter in plan.parameters():
        parameter.requires_grad_(False)
    plan.send(bob)(torch.rand(7, 12).send(bob))
    message = next(m for m in bob.msg_history if isinstance(m, PlanCallMessage))
    assert abs(len(sy.serde.serialize(message)) - plan.cost((7, 12)).call) <= 8  # ids are of varying length


def test_no_data_is_touched(mlp: Any) -> None:
    before = [t.clone() for t in mlp.state.tensors()]
    cnn = sy.func2plan(args_shape=[(-1, 1, 8, 8)])(models.Cnn().train())
    statistics = cnn.state.tensors()[-1].clone()
    torch.manual_seed(4)
    wanted = torch.rand(1)
    torch.manual_seed(4)
    cnn.cost((4, 1, 8, 8))
    mlp.cost((1 << 30, 12))  # would be 48 GB
    assert torch.equal(torch.rand(1), wanted)
    assert torch.equal(cnn.state.tensors()[-1], statistics)
    assert all(torch.equal(a, b) for a, b in zip(before, mlp.state.tensors(), strict=True))


def test_the_table_is_for_people(mlp: Any) -> None:
    text = str(mlp.cost((1000, 12), protocol="tree"))
    assert text.splitlines()[0] == "Mlp for (1000, 12)"
    assert (
        "flops, forward  240,000" in text and "48 kB" in text and "rounds" in text and "(2 holders)" in text
    )


def test_wrong_shapes_are_refused(mlp: Any) -> None:
    for shapes, message in (
        (((7, 12), (1,)), "2 shapes; the plan 'Mlp' takes 1"),
        (((7, 13),), r"\(7, 13\) as shape 0; .* \(-1, 12\)"),
        (((7,),), "built for"),
        (((-1, 12),), "none is -1"),
        ((7, 12), "2 shapes"),
        ((7,), "is a tuple of sizes"),
    ):
        with pytest.raises(PlanArgumentsError, match=message):
            mlp.cost(*shapes)
    with pytest.raises(PlanError, match="not built"):
        sy.func2plan()(lambda x: x).cost()
    assert settled_shapes(mlp.program, (), "f") == ((1, 12),)


def test_a_result_whose_shape_depends_on_data_has_no_cost() -> None:
    plan = sy.func2plan(args_shape=[(-1,)])(lambda x: x.nonzero())
    with pytest.raises(PlanError, match="only data can tell"):
        plan.cost((3,))


# -- on shares ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("protocol", "holders"), [("tree", 2), ("tree", 3), ("tree2", 2), ("fss", 2), ("snn", 2)]
)
def test_the_cost_on_shares_is_what_a_run_on_shares_costs(
    mlp: Any, protocol: str, holders: int, make_worker: Any
) -> None:
    (cost,) = mlp.cost((5, 12), protocol=protocol, holders=holders).shares
    *members, provider = [make_worker(f"w{index}") for index in range(holders + 1)]
    options: dict[str, Any] = dict(crypto_provider=provider, protocol=protocol)
    plan = mlp.copy()
    plan.fix_precision_().share_(*members, **options)
    x = torch.rand(5, 12).fix_precision().share(*members, **options)  # type: ignore[attr-defined]
    group = Group.of(members, provider)
    group.reset_costs()
    with torch.no_grad():
        plan(x)
    assert (cost.protocol, cost.holders, cost.rounds) == (protocol, holders, group.online.rounds)
    assert cost.online == sum(group.online.bytes_sent) > 0
    assert cost.offline == group.offline.bytes > 0


def test_several_protocols_are_told_apart_and_leave_nobody_behind(mlp: Any, me: Any) -> None:
    known = set(me._known_workers)
    cost = mlp.cost((5, 12), protocol=["tree", "fss"])
    assert [share.protocol for share in cost.shares] == ["tree", "fss"]
    assert cost.shares[0].rounds != cost.shares[1].rounds
    assert set(me._known_workers) == known and mlp.cost((5, 12)).shares == ()
    assert not any(type(t) is sy.Wrapper for t in mlp.state.tensors())


def test_the_cost_of_a_plan_that_is_shared_already_can_be_asked(workers: Any) -> None:
    plan = sy.func2plan(args_shape=[(-1, 12)])(models.Mlp())
    wanted = plan.cost((5, 12), protocol="tree")
    plan.fix_precision_().share_(workers.alice, workers.bob, crypto_provider=workers.charlie)
    found = plan.cost((5, 12), protocol="tree")
    assert found.shares == wanted.shares and found.flops == wanted.flops and found.state == wanted.state


def test_labels_are_shared_as_whole_numbers() -> None:
    shapes, dtypes = [(-1, 3), (-1,)], [torch.float32, torch.int64]
    plan = sy.func2plan(args_shape=shapes, args_dtype=dtypes)(lambda x, n: (x.sum(1), n * 2))
    assert plan.cost((4, 3), (4,), protocol="tree").shares[0].rounds == 0


def test_protocols_that_there_are_not_are_refused(mlp: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="No comparison protocol is called 'nope'"):
        mlp.cost((5, 12), protocol="nope")
    with pytest.raises(ValueError, match="for 2 holders"):
        mlp.cost((5, 12), protocol="fss", holders=3)
    with pytest.raises(ValueError, match="two holders"):
        mlp.cost((5, 12), protocol="tree", holders=1)
    with pytest.raises(TypeError, match="list of names"):
        mlp.cost((5, 12), protocol=[1])
    monkeypatch.delitem(SHARE_METERS, "additive")
    with pytest.raises(PlanError, match="nobody here can share"):
        mlp.cost((5, 12), protocol="tree")


def test_the_cost_of_a_training_plan_is_that_of_its_forward_pass(mlp: Any) -> None:
    model = models.Mlp()
    optimizer = torch.optim.Adam(model.parameters())
    plan = sy.Plan.training(model, nn.functional.mse_loss, optimizer, args_shape=[(-1, 12), (-1, 3)])
    cost = plan.cost((7, 12), (7, 3))
    assert cost.flops == mlp.cost((7, 12)).flops and cost.outputs == 4
    assert cost.state > 2 * mlp.cost().state  # Adam keeps two tensors for each


def test_a_plan_without_arguments_has_a_cost() -> None:
    weight = nn.Parameter(torch.rand(3, 3))
    plan = sy.func2plan()(lambda: weight @ weight)
    plan.build()
    assert plan.cost().flops == 54 and "no tensor" in str(plan.cost())
