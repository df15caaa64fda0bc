"""Plans as modules of torch: fx and TorchScript give what the plan gives, and train as it trains."""

from __future__ import annotations

import copy
import io
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import fx, nn

import plan_models as models
import syft as sy
from syft.execution.errors import InvalidProgramError, PlanError
from syft.execution.export import fx_of
from syft.execution.operation import Operation, Size, Slot
from syft.execution.program import Input, Program
from syft.execution.state import State

WAYS = {"fx": lambda plan: plan.to_fx(), "torchscript": lambda plan: plan.to_torchscript()}


def outcome(function: Any, parameters: Any, x: torch.Tensor) -> list[torch.Tensor]:
    """Results and gradients of a call with fixed random numbers."""
    torch.manual_seed(11)
    given = x.clone().requires_grad_()
    result = function(given)
    gradients = torch.autograd.grad(models.total(result), [given, *parameters])
    return [*models.tensors_in(result), *gradients]


@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize("name", models.MODELS)
@pytest.mark.parametrize("way", WAYS)
def test_an_export_gives_what_the_model_gives_for_any_batch(way: str, name: str, training: bool) -> None:
    make, shape = models.MODELS[name]
    torch.manual_seed(3)
    model = make().train(training)
    plan = sy.func2plan(args_shape=[shape])(copy.deepcopy(model))
    exported = WAYS[way](plan)
    named = dict(exported.named_parameters())
    assert set(named) == {n for n, _ in model.named_parameters()}
    for size in (2, 7, 64):
        x = torch.randn([size if n == -1 else n for n in shape])
        wanted = outcome(model, model.parameters(), x)
        found = outcome(exported, [named[n] for n, _ in model.named_parameters()], x)
        for ours, theirs in zip(found, wanted, strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)
    assert set(exported.state_dict()) == set(model.state_dict())
    for key, value in model.state_dict().items():
        torch.testing.assert_close(exported.state_dict()[key], value)


def test_the_kinds_are_torchs() -> None:
    plan = sy.func2plan(args_shape=[(-1, 12)])(models.Mlp())
    assert isinstance(plan.to_fx(), fx.GraphModule) and isinstance(
        plan.to_torchscript(), torch.jit.ScriptModule
    )
    assert "linear" in plan.to_fx().code


def test_fx_has_the_tensors_of_the_plan_and_torchscript_its_own() -> None:
    plan = sy.func2plan(args_shape=[(-1, 12)])(models.Mlp())
    module, script = plan.to_fx(), plan.to_torchscript()
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    x = torch.rand(4, 12)
    before = script(x)
    module(x).sum().backward()
    optimizer.step()
    assert torch.equal(module(x), plan(x)) and not torch.equal(plan(x), before)
    assert torch.equal(script(x), before)


def test_exporting_changes_neither_statistics_nor_random_numbers() -> None:
    plan = sy.func2plan(args_shape=[(-1, 1, 8, 8)])(models.Cnn().train())
    before = [t.clone() for t in plan.state.tensors()]
    torch.manual_seed(4)
    wanted = torch.rand(1)
    torch.manual_seed(4)
    script = plan.to_torchscript()
    plan.to_fx()
    assert torch.equal(torch.rand(1), wanted)
    assert all(torch.equal(a, b) for a, b in zip(before, plan.state.tensors(), strict=True))
    assert script.state_dict()["norm.num_batches_tracked"] == 0


def test_torchscript_can_be_saved_and_loaded() -> None:
    plan = sy.func2plan(args_shape=[(-1, 5, 4)])(models.CellLoop())
    file = io.BytesIO()
    torch.jit.save(plan.to_torchscript(), file)
    file.seek(0)
    loaded, x = torch.jit.load(file), torch.rand(9, 5, 4)
    outs, (h, c) = loaded(x)  # a dict comes as the tuple of its values
    assert torch.equal(outs, plan(x)["all"]) and torch.equal(c, plan(x)["last"][1]) and h.shape == (9, 6)


def test_an_exported_module_goes_through_torchs_tools() -> None:
    plan = sy.func2plan(args_shape=[(-1, 12)])(models.Mlp())
    module = plan.to_fx()
    x = torch.rand(3, 12)
    assert torch.equal(copy.deepcopy(module)(x), plan(x))
    assert torch.equal(fx.Interpreter(module).run(x), plan(x))
    assert torch.equal(fx.symbolic_trace(module)(x), plan(x))


def _stops(x: Any) -> Any:
    with torch.no_grad():
        y = (x * 3).add_(1)
        z = x * 2
        z.mul_(y)
    return y * x + z


def _writes_no_grad(x: Any) -> Any:
    y = x * 2
    with torch.no_grad():
        y.add_(1)
    return y * 3


def _constant(x: Any) -> Any:
    table = torch.tensor([1.0, 2.0, 3.0, 4.0])
    table += 1
    return x * table, torch.empty(3)


def _size_arithmetic(x: Any) -> Any:
    rows, columns = x.shape
    return x.reshape(rows * columns // 2, -1).repeat(2, 1)[: rows - 1] * 2 + rows


def _writes(x: Any) -> Any:
    y = x.clone()
    y[0, 1:3] = 7
    y[:, ::2] += 1
    return (3 - y, y.max(1)), [~(y > 1)]


@pytest.mark.parametrize("function", [_stops, _writes_no_grad, _constant, _size_arithmetic, _writes])
@pytest.mark.parametrize("way", WAYS)
def test_odd_functions_are_exported_with_their_gradients(way: str, function: Any) -> None:
    plan = sy.func2plan(args_shape=[(-1, 4)])(function)
    exported = WAYS[way](plan)
    for _ in range(2):
        for rows in (3, 6):
            x = torch.rand(rows, 4)
            results, totals = [], []
            for one in (exported, plan.copy()):
                given = x.clone().requires_grad_()
                tensors = models.tensors_in(one(given))
                results.append(tensors)
                real = [t for t in tensors if t.requires_grad]
                totals.append(torch.autograd.grad(models.total(real), given)[0])
            assert len(results[0]) == len(results[1])
            for ours, theirs in zip(*results, strict=True):
                torch.testing.assert_close(ours, theirs)
                assert ours.requires_grad == theirs.requires_grad
            torch.testing.assert_close(*totals)


def test_nested_arguments() -> None:
    def function(pair: Any, scale: Any, last: Any) -> Any:
        return {"sum": pair[0] + pair[1]["b"], 3: [last * scale]}

    args = ([torch.ones(2, 3), {"b": torch.rand(2, 3)}], 4, torch.rand(5))
    plan = sy.func2plan()(function).build(*args)
    wanted, found = function(*args), plan.to_fx()(*args)
    assert torch.equal(found["sum"], wanted["sum"]) and torch.equal(found[3][0], wanted[3][0])
    total, (scaled,) = plan.to_torchscript()(args[0][0], args[0][1]["b"], args[2])
    assert torch.equal(total, wanted["sum"]) and torch.equal(scaled, wanted[3][0])


def test_two_arguments_of_one_batch_size() -> None:
    shapes, dtypes = [(-1, 5), (-1,)], [torch.float32, torch.int64]
    plan = sy.func2plan(args_shape=shapes, args_dtype=dtypes)(nn.functional.cross_entropy)
    x, y = torch.rand(9, 5), torch.randint(5, (9,))
    for way in WAYS.values():
        assert torch.equal(way(plan)(x, y), nn.functional.cross_entropy(x, y))


def test_of_a_training_plan_the_loss_is_exported() -> None:
    model = models.Mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    plan = sy.Plan.training(model, nn.functional.mse_loss, optimizer, args_shape=[(-1, 12), (-1, 3)])
    x, y = torch.rand(4, 12), torch.rand(4, 3)
    torch.testing.assert_close(plan.to_fx()(x, y), nn.functional.mse_loss(model(x), y))


# -- what is refused -----------------------------------------------------------------------------------


def test_state_that_is_not_here_is_refused(workers: Any) -> None:
    plan = sy.func2plan(args_shape=[(-1, 12)])(models.Mlp())
    plan.fix_precision_().share_(workers.alice, workers.bob, crypto_provider=workers.charlie)
    for way in WAYS.values():
        with pytest.raises(PlanError, match=r"'first\.weight' of its state"):
            way(plan)
    with pytest.raises(PlanError, match="not built"):
        sy.func2plan()(lambda x: x).to_fx()


def test_a_trace_that_is_right_for_one_size_only_is_refused() -> None:
    plan = sy.func2plan(args_shape=[(-1, 4)])(lambda x: nn.functional.dropout(x, 1 / x.shape[0]))
    x = torch.rand(5, 4)
    torch.manual_seed(0)
    wanted = plan(x)
    torch.manual_seed(0)
    assert torch.equal(plan.to_fx()(x), wanted)
    with pytest.raises(PlanError, match="to_fx"):
        plan.to_torchscript()


def test_a_plan_that_returns_no_tensor_has_no_torchscript() -> None:
    program = Program((Slot(0),), (Input((-1,), torch.float32),), 0, (), (), Size("dim", 0, 0))
    plan = sy.Plan.of_program(program, State())
    assert plan.to_fx()(torch.ones(3)) == 3
    with pytest.raises(PlanError, match="no tensor"):
        plan.to_torchscript()


EVIL = 'x\n    raise SystemExit\n#\'"""); raise SystemExit #'


@pytest.mark.parametrize(
    "text", [EVIL, "", "0", "0.1", "a..b", "class", "training", "forward", "a.b", "a b", "_modules"]
)
def test_names_of_strangers_never_become_code(text: str) -> None:
    program = Program(
        (Slot(0),),
        (Input((-1,), torch.float32),),
        3,
        (),
        (Operation("add", (Slot(0), Slot(1)), {}, Slot(4)), Operation("add", (Slot(4), Slot(2)), {}, Slot(5)),
         Operation("add", (Slot(5), Slot(3)), {}, Slot(6))),
        {EVIL: Slot(6), "text": EVIL},
    )  # fmt: skip
    state = State.of([nn.Parameter(torch.tensor([n])) for n in (1.0, 10.0, 100.0)], ["a", text, f"{text}.c"])
    module = fx_of(program, state, text)
    found = module(torch.ones(2))
    assert torch.equal(found[EVIL], torch.full((2,), 112.0)) and found["text"] == EVIL
    assert len(list(module.parameters())) == 3
    keyed = replace(
        program, operations=(Operation("add", (Slot(0), 1), {EVIL: 1}, Slot(4)),), outputs=Slot(4)
    )
    with pytest.raises(InvalidProgramError):
        fx_of(keyed, state, text)
