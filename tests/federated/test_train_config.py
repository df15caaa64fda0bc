"""TrainConfig: what it accepts, and how it goes to a worker and comes back."""

from __future__ import annotations

import gc
from typing import Any

import pytest
import torch
from torch import nn

import syft as sy
from syft.exceptions import ChainError
from syft.messaging.message import TrainConfigMessage


def test_the_documented_defaults() -> None:
    config = sy.TrainConfig(model=nn.Linear(2, 1), loss_fn=nn.functional.mse_loss)
    assert (config.batch_size, config.epochs, config.optimizer) == (32, 1, "SGD")
    assert (config.optimizer_args, config.max_nr_batches, config.shuffle) == ({"lr": 0.1}, -1, True)
    assert sy.TrainConfig(nn.Linear(1, 1), print).optimizer_args is not config.optimizer_args


@pytest.mark.parametrize(
    ("options", "error", "said"),
    [
        ({"model": 3}, TypeError, "has parameters"),
        ({"model": lambda x: x}, TypeError, "has parameters"),
        ({"loss_fn": 3}, TypeError, "is a function"),
        ({"batch_size": 0}, ValueError, "batch_size=0"),
        ({"epochs": 1.5}, ValueError, "epochs=1.5"),
        ({"max_nr_batches": 0}, ValueError, "-1 for all"),
        ({"optimizer": "Optimizer"}, ValueError, "Name one of"),
        ({"optimizer": "__class__"}, ValueError, "Name one of"),
        ({"optimizer": "lr_scheduler"}, ValueError, "Name one of"),
        ({"optimizer_args": {"rate": 1}}, ValueError, "SGD has no argument rate"),
        ({"optimizer_args": {"params": []}}, ValueError, "SGD has no argument params"),
    ],
)
def test_what_it_refuses(options: dict[str, Any], error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        sy.TrainConfig(**{"model": nn.Linear(2, 1), "loss_fn": nn.functional.mse_loss, **options})


def test_copies_go_there_and_the_model_comes_back(bob: Any) -> None:
    model = nn.Linear(2, 1)
    config = sy.TrainConfig(model, nn.functional.mse_loss).send(bob)
    assert config.model_ptr.location is bob and len(bob._objects) == 3
    assert isinstance(bob.get_obj(config.id), sy.TrainConfig) and bob.get_obj(config.id).model is None
    assert bob.get_obj(config.model_ptr.id_at_location).obj is not model
    config.get()
    assert config.model is not model and torch.equal(config.model.weight, model.weight)
    assert len(bob._objects) == 0
    with pytest.raises(ChainError, match="not on a worker"):
        config.get()


def test_what_was_sent_goes_with_the_config(bob: Any) -> None:
    config = sy.TrainConfig(nn.Linear(2, 1), nn.functional.mse_loss).send(bob)
    del config
    gc.collect()
    assert len(bob._objects) == 0


def test_a_model_that_is_elsewhere_is_not_sent(alice: Any, bob: Any) -> None:
    with pytest.raises(ChainError, match=r"on worker 'alice'.*model\.get\(\)"):
        sy.TrainConfig(nn.Linear(2, 1).send(alice), nn.functional.mse_loss).send(bob)


def test_a_message_is_checked_like_a_config(bob: Any) -> None:
    config = sy.TrainConfig(nn.Linear(2, 1), nn.functional.mse_loss).send(bob)
    ids = (config.model_ptr.id_at_location, config.loss_fn_ptr.id_at_location)
    with pytest.raises(ValueError, match="Name one of"):
        bob.recv_msg(TrainConfigMessage(*ids, 1, 1, "__import__", {}, -1, True))
    message = TrainConfigMessage(*ids, 4, 1, "Adam", {"lr": 0.5}, -1, True, seed=3, user="ann")
    assert sy.serde.deserialize(sy.serde.serialize(message)) == message
