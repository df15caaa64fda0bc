"""`TrainConfig` and `fit` at workers on a network: the documented calls, plain training's numbers, the owner's word."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import TensorDataset

import syft as sy
from syft.core.ids import ID_PROVIDER
from syft.exceptions import (
    CannotRequestObjectAttribute,
    ComputeNotPermittedError,
    GetNotPermittedError,
    ObjectNotFoundError,
    PermissionDeniedError,
    RemoteError,
)
from syft.execution.func2plan import func2plan
from syft.federated.layout import read_state
from syft.federated.plan_module import SentModule
from syft.federated.train_config import put
from syft.identity.tokens import TokenAuthority
from syft.messaging.message import CallObjectMessage, FitMessage, TrainConfigMessage
from syft.policy.owner_policy import OwnerPolicy, read_rules
from syft.serde.errors import SerdeError
from syft.tensors.object_wrapper import CallablePointer, ObjectWrapper
from syft.workers.network.client_worker import NetworkClientWorker, connect
from syft.workers.network.server_worker import NetworkServerWorker
from trainer_parts import classes, net, same

pytestmark = pytest.mark.network
torch.set_num_threads(1)

PARTS = classes(clients=3)
SETTINGS: dict[str, Any] = dict(
    batch_size=16, epochs=2, optimizer="Adam", optimizer_args={"lr": 0.02}, seed=3
)


@pytest.fixture
def authority(tmp_path: Any) -> TokenAuthority:
    return TokenAuthority.create(tmp_path / "keys")


@pytest.fixture
def hospital(hook: Any, me: Any, authority: Any) -> Iterator[NetworkServerWorker]:
    policy = OwnerPolicy(read_rules("[users.mute]\nmay_get = 'none'\n[users.idle]\nmay_compute = false\n"))
    with NetworkServerWorker(
        hook, "tcp://127.0.0.1:0", id="hospital", tokens=authority.verifier("hospital"), policy=policy
    ) as worker:
        yield worker


@pytest.fixture
def as_user(hospital: Any, authority: Any) -> Iterator[Any]:
    made: list[NetworkClientWorker] = []

    def make(name: str) -> NetworkClientWorker:
        made.append(connect(hospital.address, token=authority.issue(name, 600), auto_add=False))
        return made[-1]

    yield make
    for client in made:
        client.close()


@pytest.fixture
def ann(as_user: Any) -> Any:
    return as_user("ann")


def here(dataset: Any, fits: int = 1) -> tuple[nn.Module, torch.Tensor]:
    """The same training by a FederatedClient of this process, which other tests compare with plain torch."""
    client = sy.FederatedClient({"rows": dataset})
    model = net()
    client.set_obj(sy.TrainConfig(model, F.cross_entropy, **SETTINGS))
    for _ in range(fits):
        torch.manual_seed(11)  # for the dropout
        loss = client.fit("rows")
    return model, loss


def test_fit_evaluate_and_get_are_those_of_this_process(hospital: Any, ann: Any) -> None:
    dataset = PARTS["client 0"]
    hospital.add_dataset(dataset, "rows")
    model = net()
    config = sy.TrainConfig(model, F.cross_entropy, **SETTINGS).send(ann)
    for _ in range(2):  # the optimizer goes on
        torch.manual_seed(11)
        loss = ann.fit("rows")
    expected, expected_loss = here(dataset, fits=2)
    assert torch.equal(loss, expected_loss)
    figures = ann.evaluate("rows", return_histograms=True)
    trained = config.get().model
    assert type(trained) is nn.Sequential and trained is not model
    assert same(read_state(trained), read_state(expected))
    assert same(read_state(model), read_state(net()))
    with torch.no_grad():
        predicted = expected.eval()(dataset.tensors[0]).argmax(1)
    assert torch.equal(figures["histogram_predictions"], torch.bincount(predicted, minlength=2))
    assert torch.equal(figures["histogram_target"], torch.bincount(dataset.tensors[1], minlength=2))
    assert figures["nr_predictions"] == len(dataset)
    del config
    ann.sync()
    assert len(hospital._objects) == 0


def test_a_config_can_be_sent_again_and_plans_come_back_as_plans(hospital: Any, ann: Any) -> None:
    layer = nn.Linear(6, 2)

    @func2plan(args_shape=[(-1, 6)])
    def model(x: torch.Tensor) -> torch.Tensor:
        return layer(x)

    hospital.add_dataset(PARTS["client 0"], "rows")
    config = sy.TrainConfig(model, F.cross_entropy, shuffle=False).send(ann)
    before = layer.weight.detach().clone()
    ann.fit("rows")
    trained = config.get().model
    assert isinstance(trained, sy.Plan)
    assert not torch.equal(trained.state.tensors()[0], before) and torch.equal(layer.weight, before)
    again = sy.TrainConfig(nn.Linear(6, 2), F.cross_entropy).send(ann)
    first = ann.fit("rows")
    again.get().send(ann)
    assert ann.fit("rows") < first
    assert again.get().model.weight.shape == (2, 6)


def test_several_workers_train_at_the_same_time(hook: Any, me: Any) -> None:
    servers = [NetworkServerWorker(hook, f"inproc://fit-{i}", id=f"fit-{i}") for i in range(3)]
    clients, configs = [], []
    for server, part in zip(servers, PARTS.values(), strict=True):
        server.add_dataset(part, "rows")
        server.start(block=False)
        clients.append(connect(server.address))
        configs.append(sy.TrainConfig(nn.Linear(6, 2), nn.CrossEntropyLoss(), seed=1).send(clients[-1]))

    async def all_of_them() -> list[Any]:
        return await asyncio.gather(*[client.async_fit("rows") for client in clients])

    assert all(loss > 0 for loss in asyncio.run(all_of_them()))
    models = [config.get().model for config in configs]
    assert sy.federated.federated_avg(models).weight.shape == (2, 6)
    for client, server in zip(clients, servers, strict=True):
        client.close()
        server.stop()


# -- what the owner says -----------------------------------------------------------------------------------


def test_only_those_to_whom_it_is_offered_train(hospital: Any, as_user: Any) -> None:
    hospital.add_dataset(PARTS["client 0"], "open")
    hospital.add_dataset(PARTS["client 1"], "anns", allowed_users=["ann"])
    ann, eve = as_user("ann"), as_user("eve")
    config = sy.TrainConfig(nn.Linear(6, 2), F.cross_entropy).send(ann, user="somebody else")
    ann.fit("anns")
    assert config.get().model.weight.shape == (2, 6)
    theirs = sy.TrainConfig(nn.Linear(6, 2), F.cross_entropy).send(eve)
    for attempt in (lambda: eve.fit("anns", user="ann"), lambda: eve.evaluate("anns")):
        with pytest.raises(GetNotPermittedError, match="'eve' may not"):
            attempt()
    eve.fit("open")
    theirs.get()
    with pytest.raises(ValueError, match="offers you no data set 'anns'; it offers 'open'"):
        theirs.send(eve, dataset_key="anns")
    decided = [(r.user, r.granted) for r in hospital.policy.audit_log if r.action == "train on"]
    assert decided == [("ann", True), ("eve", False), ("eve", True)]


def test_who_may_not_compute_or_have_anything_does_not_train(hospital: Any, as_user: Any) -> None:
    hospital.add_dataset(PARTS["client 0"], "rows")
    for name, error in (("mute", GetNotPermittedError), ("idle", ComputeNotPermittedError)):
        client = as_user(name)
        module = SentModule(sy.federated.plan_module.traced_module(nn.Linear(6, 2), _rows()))
        pointer = put(module, client, None)
        place = pointer.id_at_location
        config = TrainConfigMessage(place, place, 8, 1, "SGD", {"lr": 0.1}, -1, True)
        with pytest.raises(error):
            _train(client, config)


def _train(client: Any, config: TrainConfigMessage) -> None:
    for message in (config, FitMessage("rows")):
        client._recv_msg(message)


def _rows() -> Any:
    from syft.execution.program import Input

    return [Input((-1, 6), torch.float32)]


def test_offers_are_made_where_the_data_is(ann: Any) -> None:
    for attempt in (lambda: ann.add_dataset(PARTS["client 0"], "rows"), lambda: ann.remove_dataset("rows")):
        with pytest.raises(PermissionDeniedError, match="for its owner to say, where the worker runs"):
            attempt()


def test_rows_that_differ_have_to_be_named(hospital: Any, ann: Any) -> None:
    config = sy.TrainConfig(nn.Linear(6, 2), F.cross_entropy)
    with pytest.raises(ValueError, match="rows differ, or none: none"):
        config.send(ann)
    hospital.add_dataset(PARTS["client 0"], "rows")
    hospital.add_dataset(TensorDataset(torch.zeros(3, 9), torch.zeros(3)), "others")
    hospital.add_dataset(TensorDataset(torch.zeros(0, 6), torch.zeros(0)), "empty")
    with pytest.raises(ValueError, match="dataset_key="):
        config.send(ann)
    with pytest.raises(ValueError, match="is empty, or its rows are not tensors"):
        config.send(ann, dataset_key="empty")
    config.send(ann, dataset_key="rows")
    with pytest.raises(RemoteError, match="PlanArgumentsError"):
        ann.fit("others")
    assert ann.fit("rows") > 0


def test_errors_do_not_quote_the_data(hospital: Any, ann: Any) -> None:
    hospital.add_dataset(TensorDataset(torch.randn(4, 6), torch.tensor([0, 1, 0, 7654321])), "rows")
    sy_config = sy.TrainConfig(nn.Linear(6, 2), F.cross_entropy).send(ann)
    with pytest.raises(RemoteError, match="withheld") as caught:
        ann.fit("rows")
    assert "7654321" not in "".join([str(caught.value), *caught.value.__notes__])
    assert sy_config.get().model.weight.shape == (2, 6)


def test_a_model_that_was_dropped_cannot_be_trained(hospital: Any, ann: Any) -> None:
    hospital.add_dataset(PARTS["client 0"], "rows")
    sy.TrainConfig(nn.Linear(6, 2), F.cross_entropy).send(ann)
    ann.sync()
    with pytest.raises(ObjectNotFoundError):
        ann.fit("rows")


# -- models that are no models -----------------------------------------------------------------------------


def test_nothing_that_calls_elsewhere_runs_beside_data(hospital: Any, ann: Any) -> None:
    """A pointer that is called sends its arguments to another worker: it is refused as a model and as a loss."""
    hospital.add_dataset(PARTS["client 0"], "rows")
    config = sy.TrainConfig(nn.Linear(6, 2), F.cross_entropy).send(ann)
    spy = ObjectWrapper(CallablePointer(hospital, 5, garbage_collect_data=False))
    loss = put(spy, ann, None)
    # It does not even arrive where a worker takes no pointers.
    with pytest.raises((TypeError, SerdeError), match=r"does not run beside data|accepts no pointers"):
        ann._recv_msg(
            TrainConfigMessage(
                config.model_ptr.id_at_location, loss.id_at_location, 8, 1, "SGD", {"lr": 0.1}, -1, True
            )
        )


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_what_torch_jit_compiled_travels_as_a_plan_and_comes_back_compiled(hospital: Any, ann: Any) -> None:
    hospital.add_dataset(PARTS["client 0"], "rows")
    layer, rows = nn.Linear(6, 2), torch.zeros(2, 6)

    def loss(pred: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(pred, target)

    expected = sy.TrainConfig(layer, loss, seed=1).send(ann)
    wanted = ann.fit("rows")
    weight = expected.get().model.weight
    scripted = torch.jit.script(layer)
    example = (torch.zeros(2, 2), torch.zeros(2, dtype=torch.int64))
    recurrent = sy.TrainConfig(torch.jit.script(_Recurrent()), F.cross_entropy).send(ann)
    assert ann.fit("rows") > 0
    assert isinstance(recurrent.get().model, torch.jit.ScriptModule)
    for model in (scripted, torch.jit.trace(layer, rows), nn.Sequential(scripted)):
        for compiled in (loss, torch.jit.script(loss), torch.jit.trace(loss, example)):
            config = sy.TrainConfig(model, compiled, seed=1).send(ann)
            assert torch.allclose(ann.fit("rows"), wanted)
            trained = config.get().model
            assert isinstance(trained, torch.jit.ScriptModule | nn.Sequential)
            assert torch.allclose(next(trained.parameters()), weight)
            assert torch.equal(next(model.parameters()), layer.weight)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_a_compiled_model_that_has_no_plan_is_refused_before_anything_is_sent(
    hospital: Any, ann: Any
) -> None:
    hospital.add_dataset(PARTS["client 0"], "rows")
    branching = torch.jit.script(_Branching())
    with pytest.raises(TypeError, match=r"torch\.jit, uses the value of a tensor.*Pass the nn\.Module"):
        sy.TrainConfig(branching, F.cross_entropy).send(ann)
    with pytest.raises(TypeError, match=r"prim::fork.*Pass the nn\.Module"):
        sy.TrainConfig(torch.jit.script(_Forking()), F.cross_entropy).send(ann)
    ann.sync()
    assert len(hospital._objects) == 0


class _Branching(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if bool(x.sum() > 0):
            return self.layer(x)
        return -self.layer(x)


class _Forking(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.jit.wait(torch.jit.fork(self.layer, x))


class _Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.LSTM(6, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        output, _state = self.layer(x.unsqueeze(0))
        return output.squeeze(0).max(dim=1, keepdim=True)[0] + output.squeeze(0)


def test_a_fetched_model_shows_its_module_as_in_2020_and_a_message_does_not_reach_it(
    hospital: Any, ann: Any
) -> None:
    hospital.add_dataset(PARTS["client 0"], "rows")
    config = sy.TrainConfig(nn.Linear(6, 2), F.cross_entropy).send(ann)
    rows = torch.ones(2, 6).send(ann)
    ann.fit("rows")
    with pytest.raises(ComputeNotPermittedError, match="not called there"):
        ann._recv_msg(
            CallObjectMessage(config.model_ptr.id_at_location, (rows.child.ref(),), {}, ID_PROVIDER.pop())
        )
    with pytest.raises((TypeError, CannotRequestObjectAttribute)):
        config.model_ptr.attr("training")
    fetched = config.model_ptr.get()
    assert type(fetched) is SentModule
    assert isinstance(fetched.obj, nn.Module) and fetched.obj is fetched.module
    assert fetched.obj(torch.ones(3, 6)).shape == (3, 2)


def test_attributes_of_a_sent_model_cannot_be_set(hospital: Any, ann: Any) -> None:
    hospital.add_dataset(PARTS["client 0"], "rows")
    config = sy.TrainConfig(nn.Linear(6, 2), F.cross_entropy).send(ann)
    for name in ("forward", "module", "training", "obj"):
        with pytest.raises(CannotRequestObjectAttribute):
            config.model_ptr.setattr(name, 3)
    with pytest.raises((TypeError, CannotRequestObjectAttribute)):
        config.model_ptr.attr("module")
    other = put(ObjectWrapper(7, id=ID_PROVIDER.pop()), ann, None)
    with pytest.raises(TypeError):
        ann._recv_msg(
            TrainConfigMessage(other.id_at_location, other.id_at_location, 8, 1, "SGD", {"lr": 0.1}, -1, True)
        )
