"""DP-SGD at a worker on a network: who proved a name pays, models are plans of known operations, nothing else travels."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from syft import serde
from syft.core.spec import spec_of
from syft.dp.private_programs import OPERATIONS, check_program
from syft.dp.release_training import train_privately
from syft.exceptions import BudgetExceededError, GetNotPermittedError, ReleaseNotPermittedError
from syft.execution.operation import Operation, Slot
from syft.execution.program import Input, Program
from syft.execution.replay import Replay
from syft.execution.vocabulary import plan_command
from syft.federated.plan_module import TRAINED, PlanModule, SentModule, traced_module
from syft.identity.tokens import TokenAuthority
from syft.messaging.message import PrivateTrainingMessage
from syft.workers.network.client_worker import connect
from syft.workers.network.server_worker import NetworkServerWorker

pytest.importorskip("dp_accounting")
pytestmark = pytest.mark.network
torch.set_num_threads(1)

ROWS = torch.randn(600, 4, generator=torch.Generator().manual_seed(2))
SETTINGS_OF_TRAINING: dict[str, Any] = dict(
    loss="cross_entropy", user="eve", delta=1e-5, epochs=2, batch_size=100, lr=1.0
)


@pytest.fixture
def ann(hook: Any, me: Any, tmp_path: Path) -> Iterator[Any]:
    """Ann's connection to a worker with inputs, labels, and a budget for everybody."""
    authority = TokenAuthority.create(tmp_path / "keys")
    server = NetworkServerWorker(
        hook,
        "tcp://127.0.0.1:0",
        id="far",
        data=[ROWS.clone().tag("#x"), (ROWS[:, 0] > 0).long().tag("#y")],
        tokens=authority.verifier("far"),
    )
    for tag in ("#x", "#y"):
        server.set_budget(dataset=tag, epsilon=10.0, delta=1e-4)
    with server:
        client = connect(server.address, token=authority.issue("ann", 600), auto_add=False)
        client.owner_s_side = server
        yield client
        client.close()


@pytest.fixture
def data(ann: Any) -> tuple[Any, Any]:
    return ann.search("#x")[0], ann.search("#y")[0]


def test_a_model_is_trained_there_and_who_proved_their_name_pays(ann: Any, data: Any) -> None:
    with pytest.raises(GetNotPermittedError):
        data[0].copy().get()
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    model[0].bias.requires_grad_(False)
    before = {name: p.clone() for name, p in model.named_parameters()}
    trained = train_privately(*data, model, epsilon=8.0, **SETTINGS_OF_TRAINING)
    assert all(torch.equal(p, before[name]) for name, p in model.named_parameters())
    assert torch.equal(trained[0].bias, before["0.bias"])  # what is frozen stays
    x = torch.randn(500, 4)
    assert (trained(x).argmax(1) == (x[:, 0] > 0)).float().mean() > 0.8
    for name in ("#x", "#y"):
        state = ann.budget("eve", name)
        assert (state.user, state.spent, state.releases[0].mechanism) == ("ann", 8.0, "dpsgd")
    with pytest.raises(BudgetExceededError, match="epsilon 2 of 10 left"):
        train_privately(*data, model, epsilon=3.0, **SETTINGS_OF_TRAINING)


@pytest.mark.parametrize("is_told_only", [False, True])
def test_a_training_has_as_much_noise_as_the_owner_asks_for(ann: Any, data: Any, is_told_only: bool) -> None:
    """Data that may only be released has its minimum in what is told of it."""
    from syft.data.schema import DataSetInfo
    from syft.federated.federated_client import FederatedClient

    offers = ann.owner_s_side.extension(FederatedClient)
    if is_told_only:
        offers.infos["y"] = DataSetInfo("y", (), uses=("noise",), minimum_noise=3.0)
    else:
        offers.minimum_noise["y"] = 3.0
    model = nn.Linear(4, 2)
    with pytest.raises(ReleaseNotPermittedError, match=r"noise_multiplier of 3 or more.*Nothing was charged"):
        train_privately(*data, model, epsilon=8.0, **SETTINGS_OF_TRAINING)
    assert ann.budget("ann", "#y").spent == 0.0 and ann.budget("ann", "#x").spent == 0.0
    train_privately(*data, model, epsilon=0.5, **SETTINGS_OF_TRAINING)
    assert ann.budget("ann", "#y").spent == 0.5


def test_wrong_requests_are_explained_there_and_not_charged(ann: Any, data: Any) -> None:
    x, y = data
    linear = nn.Sequential(nn.Linear(4, 2))
    wrong: list[tuple[Any, Any, dict[str, Any], str]] = [
        ((x, y[1:]), linear, {}, "same records"),
        ((x.cumsum(0), y), linear, {}, "not released"),
        ((x, y), linear, {"loss": "guess"}, "There are"),
        ((x, y), linear, {"delta": 0.0}, "delta"),
        ((x, y), linear, {"epochs": 0}, "epochs=0"),
        ((x, y), linear, {"batch_size": -1}, "batch_size=-1"),
        ((x, y), nn.Sequential(nn.Linear(4, 2), nn.BatchNorm1d(2)), {}, "does not run"),
        ((x, y), nn.Sequential(nn.Linear(5, 2)), {}, "shapes cannot be multiplied"),
    ]
    for pointers, model, options, sentence in wrong:
        with pytest.raises((ValueError, RuntimeError, PermissionError), match=sentence):
            train_privately(*pointers, model, **{"epsilon": 1.0, **SETTINGS_OF_TRAINING, **options})
    assert ann.budget("ann", "#x").releases == ()


def mirrored(model: nn.Module, x: torch.Tensor) -> PlanModule:
    """What arrives of a model, for records like those of x."""
    sent = SentModule(traced_module(model, [Input((-1, *x.shape[1:]), x.dtype)]))
    module = serde.deserialize(serde.serialize(sent)).module
    check_program(module, spec_of(x[:1].to("meta")))
    return module


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.relu(self.inner(x)).tanh() + x.sigmoid() * 0.5 - 1
        return torch.flatten(torch.tanh(-y).view(y.size(0), 2, 2), 1).relu()


def test_models_of_the_operations_of_the_list_travel_as_they_are() -> None:
    torch.manual_seed(0)
    images = nn.Sequential(
        nn.Conv2d(3, 8, 3, stride=2, padding=1, groups=1, bias=False, padding_mode="reflect"),
        nn.GroupNorm(2, 8),
        nn.ELU(0.5),
        nn.MaxPool2d(2, stride=1, padding=1),
        nn.AvgPool2d(2, count_include_pad=False),
        nn.SiLU(),
        nn.AdaptiveAvgPool2d((None, 2)),
        nn.LeakyReLU(0.3),
        nn.Sequential(nn.Identity(), nn.Tanh(), nn.Sigmoid(), nn.Softplus(2.0)),
        nn.Flatten(),
        nn.LayerNorm(64, bias=False),
        nn.Linear(64, 4),
        nn.GELU("tanh"),
        nn.ReLU(inplace=True),
    )
    series = nn.Sequential(nn.Conv1d(2, 3, 3, padding="same", dilation=2), nn.Flatten(), nn.LayerNorm((30,)))
    act, block = nn.ReLU(), nn.Sequential(nn.Tanh(), nn.Identity())
    twice = nn.Sequential(nn.Linear(4, 4), act, block, Residual(), nn.Sequential(block, act, act))
    seen: set[str] = set()
    for model, shape in ((images, (3, 16, 16)), (series, (2, 10)), (twice, (4,))):
        x = torch.randn(3, *shape)
        made = mirrored(model, x)
        assert torch.equal(made(x), model(x)) and torch.equal(made(x[:1]), model(x[:1]))
        assert made.state_dict().keys() == model.state_dict().keys()
        seen |= {operation.name for operation in made._replays[0].program.operations}
    assert {name.rpartition(".")[2] for name in seen} == {name.rpartition(".")[2] for name in OPERATIONS} - {
        "reshape"
    }


#: Arguments of each operation of the list, beside its first.
ARGUMENTS: dict[str, tuple[tuple[Any, ...], dict[str, Any]]] = {
    "linear": ((torch.ones(2, 4), torch.ones(2)), {}),
    "conv1d": ((torch.ones(2, 3, 2), torch.ones(2)), {}),
    "conv2d": ((torch.ones(2, 2, 2, 2),), {}),
    "layer_norm": (((4,),), {"weight": torch.ones(4)}),
    "group_norm": ((1,), {"weight": torch.ones(3)}),
    **{name: ((2,), {}) for name in ("max_pool2d", "avg_pool2d", "adaptive_avg_pool2d")},
    "pad": (((1, 1), "reflect"), {}),
    "reshape": (((-1,),), {}),
    "view": ((-1,), {}),
    **{name: ((torch.ones(4),), {}) for name in ("add", "sub", "mul")},
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_no_operation_of_the_list_raises_because_of_a_value(name: str) -> None:
    function, leaf = plan_command(name).function, name.rpartition(".")[2]
    args, kwargs = ARGUMENTS.get(leaf, ((), {}))
    shapes = set()
    for value in (0.0, 1.0, -1.0, 1e38, -1e38, 1e-45, float("nan"), float("inf"), -float("inf")):
        x = torch.full((2, 3, 4, 4) if leaf == "conv2d" or "pool2d" in leaf else (3, 3, 4), value)
        x = x[:, :2] if leaf == "conv2d" else x
        for each in (x, x.requires_grad_()):
            result = function(each * 1.0, *args, **kwargs)
            shapes.add((result.shape, result.dtype))
        result.sum().backward()
    assert len(shapes) == 1


def tied() -> nn.Sequential:
    """One layer in two places, and one weight in two layers, at different depths."""
    torch.manual_seed(3)
    shared, first, last = nn.Linear(4, 4), nn.Linear(4, 4, bias=False), nn.Linear(4, 4)
    last.weight = first.weight
    first.weight.requires_grad_(False)
    return nn.Sequential(shared, nn.Tanh(), first, nn.Sequential(shared, nn.Tanh(), last), nn.Linear(4, 2))


def test_what_is_tied_here_is_tied_there() -> None:
    model, x = tied(), torch.randn(5, 4)
    made = mirrored(model, x)
    assert torch.equal(made(x), model(x))
    assert [name for name, _ in made.named_parameters()] == [name for name, _ in model.named_parameters()]
    assert [p.requires_grad for p in made.parameters()] == [p.requires_grad for p in model.parameters()]
    assert len(made._tensors()) == len(list(model.parameters()))  # what is tied travels once
    for each in (model, made):
        each(x).square().sum().backward()
    grads = zip(made.parameters(), model.parameters(), strict=True)
    assert all(p.grad is None if q.grad is None else torch.allclose(p.grad, q.grad) for p, q in grads)


def test_a_tied_model_is_trained_there_and_comes_back_tied(ann: Any, data: Any) -> None:
    model = tied()
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    trained = train_privately(*data, model, epsilon=9.0, **SETTINGS_OF_TRAINING)
    assert trained[0].weight is trained[3][0].weight and trained[2].weight is trained[3][2].weight
    assert torch.equal(trained[2].weight, before["2.weight"])  # frozen
    assert not torch.equal(trained[0].weight, before["0.weight"])


def test_models_that_do_not_run_are_refused_before_they_travel(ann: Any, data: Any) -> None:
    inside = nn.Sequential(nn.Linear(4, 4))
    inside.add_module("again", inside)
    empty = nn.Sequential(nn.Linear(4, 2))
    empty.add_module("gap", None)
    for model, sentence in ((inside, "contains itself"), (empty, "cannot be trained on records")):
        with pytest.raises((ReleaseNotPermittedError, ValueError), match=sentence):
            train_privately(*data, model, epsilon=1.0, **SETTINGS_OF_TRAINING)
    with pytest.raises(TypeError, match="it takes an nn"):
        train_privately(*data, "a model", epsilon=1.0, **SETTINGS_OF_TRAINING)  # type: ignore[arg-type]
    assert ann.budget("ann", "#x").releases == ()


def of_operations(*operations: Operation, outputs: Any = None) -> SentModule:
    """A module that somebody put together by hand: slot 0 is the input, slots 1 and 2 a weight and a bias."""
    last = Slot(2 + len(operations))
    program = Program((Slot(0),), (Input((-1, 4), torch.float32),), 2, (), operations, outputs or last)
    tensors = [torch.zeros(2, 4), torch.zeros(2)]
    return SentModule(
        PlanModule([Replay(program)], [(0, 1)], ["weight", "bias"], [TRAINED, TRAINED], tensors)
    )


LINEAR = Operation("torch.nn.functional.linear", (Slot(0), Slot(1), Slot(2)), {}, Slot(3), True)


def test_plans_of_strangers_are_checked(ann: Any, data: Any) -> None:
    ids = [pointer.child.id_at_location for pointer in data]

    def train(model: Any) -> Any:
        return ann._recv_msg(
            PrivateTrainingMessage(*ids, model, "cross_entropy", 1.0, 1e-5, 1, 10, 0.1, 0.0, 1.0)
        )

    assert sorted(train(of_operations(LINEAR))) == ["bias", "weight"]
    spent = len(ann.budget("ann", "#x").releases)
    functional = "torch.nn.functional."
    wrong = [
        ("a model", "SentModule"),
        (of_operations(LINEAR, Operation("cumsum", (Slot(3), 0), {}, Slot(4), True)), "does not run cumsum"),
        (of_operations(LINEAR, Operation("torch.linalg.inv", (Slot(3),), {}, Slot(4), True)), "does not run"),
        (
            of_operations(
                LINEAR, Operation(functional + "leaky_relu", (Slot(3), Slot(3)), {}, Slot(4), True)
            ),
            "leaky_relu with a tensor as argument 1",
        ),
        (
            of_operations(LINEAR, Operation("add", (Slot(3), 1), {"alpha": Slot(2)}, Slot(4), True)),
            "add with a tensor as alpha",
        ),
        (
            of_operations(LINEAR, Operation(functional + "pad", (Slot(3), (0, 1 << 40)), {}, Slot(4), True)),
            "a model that takes [0-9]+ bytes",
        ),
        (of_operations(LINEAR, outputs=(Slot(3), Slot(3))), "it gives a tuple"),
        (
            of_operations(
                LINEAR, Operation(functional + "relu", (Slot(2),), {"inplace": True}, Slot(4), True)
            ),
            "writes to its own parameters",
        ),
    ]
    for model, sentence in wrong:
        with pytest.raises((ValueError, PermissionError), match=sentence):
            train(model)
    assert len(ann.budget("ann", "#x").releases) == spent
