"""Training at a client equals training in plain torch; offers, figures and permissions are as the owner said."""

from __future__ import annotations

import asyncio
import copy
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import Dataset, TensorDataset

import syft as sy
from syft.exceptions import GetNotPermittedError, ObjectNotFoundError, RemoteError
from syft.execution.func2plan import func2plan
from syft.execution.plan import Plan
from syft.federated.federated_client import FederatedClient
from syft.policy.permissions import Policy


def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))


@pytest.fixture
def rows() -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(1)
    return torch.randn(50, 4), torch.randint(3, (50,))


def train_plainly(
    model: nn.Module, data: torch.Tensor, target: torch.Tensor, optimizer: Any, orders: list[torch.Tensor]
) -> torch.Tensor:
    loss = torch.zeros(())
    for order in orders:
        for chosen in order.split(16):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(data[chosen]), target[chosen])
            loss.backward()
            optimizer.step()
    return loss.detach()


def assert_same(one: nn.Module, other: nn.Module) -> None:
    theirs = other.state_dict()
    assert all(torch.equal(value, theirs[name]) for name, value in one.state_dict().items())


class Pairs(Dataset):
    def __init__(self, data: torch.Tensor, target: torch.Tensor) -> None:
        self.data, self.target = data, target

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, index: int) -> Any:
        return self.data[index], self.target[index]


class TestByItself:
    @pytest.mark.parametrize("make", [sy.BaseDataset, TensorDataset, Pairs])
    @pytest.mark.parametrize("optimizer", ["SGD", "Adam"])
    def test_fit_is_plain_training(self, rows: Any, make: Any, optimizer: str) -> None:
        client = sy.FederatedClient({"rows": make(*rows)})
        expected = net()
        orders = torch.Generator().manual_seed(7)
        loss = train_plainly(
            expected,
            *rows,
            getattr(torch.optim, optimizer)(expected.parameters(), lr=0.05),
            [torch.randperm(50, generator=orders) for _ in range(3)],
        )
        model = net()
        client.set_obj(
            sy.TrainConfig(
                model,
                nn.CrossEntropyLoss(),
                batch_size=16,
                epochs=3,
                optimizer=optimizer,
                optimizer_args={"lr": 0.05},
                seed=7,
            )
        )
        assert torch.equal(client.fit("rows"), loss)
        assert_same(model, expected)

    def test_the_optimizer_goes_on_from_fit_to_fit(self, rows: Any) -> None:
        client = sy.FederatedClient({"rows": TensorDataset(*rows)})
        expected, model = net(), net()
        opt = torch.optim.SGD(expected.parameters(), lr=0.1, momentum=0.9)
        train_plainly(expected, *rows, opt, [torch.arange(50)] * 2)
        config = sy.TrainConfig(
            model,
            nn.functional.cross_entropy,
            batch_size=16,
            optimizer_args={"lr": 0.1, "momentum": 0.9},
            shuffle=False,
        )
        client.set_obj(config)
        client.fit("rows")
        client.fit("rows")
        assert_same(model, expected)

    def test_max_nr_batches_and_the_global_seed(self, rows: Any) -> None:
        client = sy.FederatedClient({"rows": TensorDataset(*rows)})
        calls: list[int] = []

        def loss_fn(target: torch.Tensor, pred: torch.Tensor) -> torch.Tensor:  # the older order of arguments
            calls.append(len(target))
            return nn.functional.cross_entropy(pred, target)

        results = []
        for _ in range(2):
            torch.manual_seed(4)
            model = net()
            client.set_obj(sy.TrainConfig(model, loss_fn, batch_size=10, epochs=2, max_nr_batches=3))
            client.fit("rows")
            results.append(model)
        assert calls == [10] * 12
        assert_same(*results)

    def test_evaluate_counts_and_leaves_the_model_alone(self, rows: Any) -> None:
        data, target = rows
        model = net().train()
        before = copy.deepcopy(model)
        client = sy.FederatedClient({"rows": TensorDataset(data, target)})
        client.set_obj(sy.TrainConfig(model, nn.CrossEntropyLoss(), batch_size=16))
        figures = client.evaluate("rows", return_histograms=True)
        assert_same(model, before)
        assert model.training
        with torch.no_grad():
            output = before.eval()(data)
        predicted = output.argmax(1)
        assert figures["loss"] == pytest.approx(nn.functional.cross_entropy(output, target).item(), rel=1e-5)
        assert figures["nr_correct_predictions"] == int((predicted == target).sum())
        assert figures["nr_predictions"] == 50
        assert torch.equal(figures["histogram_predictions"], torch.bincount(predicted, minlength=3))
        assert torch.equal(figures["histogram_target"], torch.bincount(target, minlength=3))
        assert client.evaluate("rows", return_histograms=True, nr_bins=5)["histogram_target"].shape == (5,)
        assert set(client.evaluate("rows", return_raw_accuracy=False)) == {"loss"}

    def test_regression_has_no_classes_to_count(self) -> None:
        client = sy.FederatedClient({"rows": TensorDataset(torch.randn(6, 2), torch.randn(6))})
        client.set_obj(sy.TrainConfig(nn.Sequential(nn.Linear(2, 1), nn.Flatten(0)), nn.MSELoss()))
        with pytest.raises(ValueError, match="return_raw_accuracy=False"):
            client.evaluate("rows")
        assert client.evaluate("rows", return_raw_accuracy=False)["loss"] > 0

    def test_offers_and_their_errors(self, rows: Any, bob: Any) -> None:
        client = sy.FederatedClient({"rows": TensorDataset(*rows)})
        with pytest.raises(ValueError, match="no TrainConfig"):
            client.fit("rows")
        client.set_obj(sy.TrainConfig(net(), nn.CrossEntropyLoss()))
        with pytest.raises(ValueError, match="No data set 'cols' is offered here; these are: 'rows'"):
            client.fit("cols")
        with pytest.raises(ValueError, match="offered already"):
            client.add_dataset(TensorDataset(*rows), "rows")
        with pytest.raises(TypeError, match="no numbered items"):
            client.add_dataset(3, "three")
        with pytest.raises(ValueError, match="Offer it there"):
            client.add_dataset(sy.BaseDataset(*rows).send(bob), "elsewhere")
        with pytest.raises(TypeError, match="without an id"):
            client.set_obj(net())
        client.remove_dataset("rows")
        with pytest.raises(ValueError, match="these are: none"):
            client.remove_dataset("rows")
        client.add_dataset(TensorDataset(torch.zeros(0, 4), torch.zeros(0)), "empty")
        with pytest.raises(ValueError, match="no rows"):
            client.fit("empty")
        frozen = net().requires_grad_(False)
        client.set_obj(sy.TrainConfig(frozen, nn.CrossEntropyLoss()))
        client.add_dataset(TensorDataset(*rows), "rows")
        with pytest.raises(ValueError, match="learns nothing"):
            client.fit("rows")


class TestOnAWorker:
    def test_fit_and_evaluate_in_one_message_each(self, bob: Any, rows: Any) -> None:
        bob.add_dataset(sy.BaseDataset(*rows), "rows")
        model, expected = net(), net()
        loss = train_plainly(
            expected, *rows, torch.optim.SGD(expected.parameters(), lr=0.1), [torch.arange(50)]
        )
        bob.log_msgs = True
        config = sy.TrainConfig(model, nn.functional.cross_entropy, batch_size=16, shuffle=False).send(bob)
        sent = len(bob.msg_history)
        assert torch.equal(bob.fit("rows", return_ids=[0]), loss)
        assert len(bob.msg_history) == sent + 1
        figures = bob.evaluate("rows")
        assert figures["nr_predictions"] == 50
        assert_same(model, net())  # a copy was trained
        assert_same(config.model_ptr.get().obj, expected)

    def test_plans_are_models_and_losses_too(self, bob: Any, rows: Any) -> None:
        class Net(Plan):
            def __init__(self) -> None:
                super().__init__()
                torch.manual_seed(0)
                self.layer = nn.Linear(4, 3)

            def forward(self, x: torch.Tensor) -> torch.Tensor:
                return self.layer(x)

        @func2plan(args_shape=[(-1, 3), (-1,)])
        def loss_fn(pred: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
            return nn.functional.mse_loss(pred.sum(1), target)

        data, target = rows[0], rows[1].float()
        bob.add_dataset(sy.BaseDataset(data, target), "rows")
        model = Net()
        model.build(torch.zeros(1, 4))
        config = sy.TrainConfig(model, loss_fn, batch_size=16, shuffle=False).send(bob)
        bob.fit("rows")
        torch.manual_seed(0)
        expected = nn.Linear(4, 3)
        opt = torch.optim.SGD(expected.parameters(), lr=0.1)
        for chosen in torch.arange(50).split(16):
            opt.zero_grad()
            nn.functional.mse_loss(expected(data[chosen]).sum(1), target[chosen]).backward()
            opt.step()
        trained = config.get().model.parameters()
        assert all(torch.equal(a, b) for a, b in zip(trained, expected.parameters(), strict=True))

    def test_several_at_the_same_time(self, workers: Any, rows: Any) -> None:
        places = list(vars(workers).values())
        configs = []
        for place in places:
            place.add_dataset(TensorDataset(*rows), "rows")
            configs.append(sy.TrainConfig(net(), nn.CrossEntropyLoss(), batch_size=16, seed=2).send(place))

        async def all_of_them() -> list[Any]:
            return await asyncio.gather(*[place.async_fit("rows") for place in places])

        losses = asyncio.run(all_of_them())
        assert losses[0] == losses[1] == losses[2]
        models = [config.get().model for config in configs]
        assert_same(models[0], models[1])
        assert_same(sy.federated.federated_avg(models), models[0])

    def test_a_model_that_was_dropped_cannot_be_trained(self, bob: Any, rows: Any) -> None:
        bob.add_dataset(TensorDataset(*rows), "rows")
        with pytest.raises(ValueError, match="no TrainConfig"):
            bob.fit("rows")
        sy.TrainConfig(net(), nn.CrossEntropyLoss()).send(bob)
        with pytest.raises(ObjectNotFoundError):
            bob.fit("rows")

    def test_nothing_grows(self, bob: Any, rows: Any) -> None:
        bob.add_dataset(TensorDataset(*rows), "rows")
        for _ in range(5):
            config = sy.TrainConfig(net(), nn.CrossEntropyLoss()).send(bob)
            bob.fit("rows")
            config.get()
        client = bob.extension(FederatedClient)
        assert len(bob._objects) == 0 and len(client.sent) == 1
        del config
        assert len(client._optimizers) == 0


class TestPermissions:
    def test_only_allowed_users_train_and_have_the_model(self, bob: Any, rows: Any) -> None:
        bob.add_dataset(TensorDataset(*rows), "rows", allowed_users=["ann"])
        config = sy.TrainConfig(net(), nn.CrossEntropyLoss())
        config.send(bob, user="eve")
        with pytest.raises(GetNotPermittedError, match="'eve' may not train on object 'rows'"):
            bob.fit("rows", user="eve")
        with pytest.raises(GetNotPermittedError, match="evaluate on"):
            bob.evaluate("rows", user="eve")
        config.send(bob, user="ann")
        bob.fit("rows", user="ann")
        with pytest.raises(GetNotPermittedError):
            config.model_ptr.get(user="eve")
        assert isinstance(config.get(user="ann").model, nn.Sequential)
        granted = [(r.user, r.granted) for r in bob.policy.audit_log if r.action == "train on"]
        assert granted == [("eve", False), ("ann", True)]

    def test_private_tensors_of_an_offered_data_set_count(self, bob: Any, rows: Any) -> None:
        data, target = rows
        bob.add_dataset(sy.BaseDataset(data.private_tensor(allowed_users=("ann",)), target), "rows")
        sy_config = sy.TrainConfig(net(), nn.CrossEntropyLoss()).send(bob)
        with pytest.raises(GetNotPermittedError):
            bob.fit("rows")
        sy_config.send(bob, user="ann")
        assert bob.fit("rows", user="ann") > 0

    def test_two_users_do_not_get_each_others_settings(self, bob: Any, rows: Any) -> None:
        bob.add_dataset(TensorDataset(*rows), "rows")
        mine = sy.TrainConfig(net(), nn.CrossEntropyLoss(), shuffle=False).send(bob, user="ann")
        theirs = sy.TrainConfig(net(), nn.CrossEntropyLoss(), shuffle=False).send(bob, user="eve")
        bob.fit("rows", user="ann")
        assert_same(theirs.get(user="eve").model, net())
        with pytest.raises(AssertionError):
            assert_same(mine.get(user="ann").model, net())

    def test_a_strict_worker_does_not_quote_data_in_errors(self, make_worker: Any) -> None:
        dan = make_worker("dan", policy=Policy(allows_by_default=False))
        dan.add_dataset(TensorDataset(torch.randn(4, 4), torch.tensor([0, 1, 2, 77])), "rows", ["ann"])
        sy.TrainConfig(net(), nn.CrossEntropyLoss()).send(dan, user="eve")
        with pytest.raises(GetNotPermittedError):
            dan.fit("rows", user="eve")
        config = sy.TrainConfig(net(), nn.CrossEntropyLoss()).send(dan, user="ann")
        with pytest.raises(RemoteError, match="withheld") as caught:
            dan.fit("rows", user="ann")
        assert "77" not in str(caught.value)
        with pytest.raises(GetNotPermittedError):
            config.model_ptr.get(user="eve")
