"""Ordinary models train on a worker that denies by default, and give what they give here, bit for bit."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn

from syft.policy.caller import speaking_for
from syft.policy.owner_policy import OwnerPolicy, read_rules


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer, self.head = nn.LSTM(4, 6), nn.Linear(6, 3)

    def forward(self, x: Any) -> Any:
        out, _ = self.layer(x)
        return self.head(out[-1])


def encoder() -> nn.Module:
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
    return nn.Sequential(layer, nn.Flatten(), nn.Linear(40, 3))


def cnn() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(36, 3)
    )


MODELS = {
    "mlp": (lambda: nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3)), (5, 6)),
    "cnn": (cnn, (5, 1, 8, 8)),
    "lstm": (Recurrent, (7, 5, 4)),
    "transformer": (encoder, (5, 5, 8)),
}
OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
    "adam": lambda p: torch.optim.Adam(p, lr=0.01),
}


def train(model: nn.Module, optimizer: Any, data: Any, target: Any) -> list[Any]:
    losses = []
    for _ in range(3):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(data), target)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return losses


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("name", MODELS)
def test_a_model_trains_there_as_it_does_here(make_worker: Any, name: str, optimizer: str) -> None:
    make, shape = MODELS[name]
    torch.manual_seed(0)
    here = make()
    there = copy.deepcopy(here)
    data, target = torch.randn(shape), torch.randint(3, (5,))
    worker = make_worker("hospital", policy=OwnerPolicy(read_rules("")))
    expected = train(here, OPTIMIZERS[optimizer](here.parameters()), data, target)
    with speaking_for("eve"):
        there.send(worker)  # type: ignore[operator]
        losses = train(
            there, OPTIMIZERS[optimizer](there.parameters()), data.send(worker), target.send(worker)
        )
        assert [loss.get().item() for loss in losses] == [loss.item() for loss in expected]
        there.get()  # type: ignore[operator]
    for one, other in zip(there.state_dict().values(), here.state_dict().values(), strict=True):
        assert torch.equal(one, other)


@pytest.mark.filterwarnings("ignore")
def test_a_small_bert_trains_there_as_it_does_here(make_worker: Any) -> None:
    transformers = pytest.importorskip("transformers")
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
    dropout = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    config = transformers.BertConfig(vocab_size=40, max_position_embeddings=16, **sizes, **dropout)
    torch.manual_seed(0)
    here = transformers.BertForSequenceClassification(config).train()
    there = copy.deepcopy(here)
    words, labels = torch.randint(40, (3, 6)), torch.tensor([0, 1, 1])
    worker = make_worker("hospital", policy=OwnerPolicy(read_rules("")))

    def steps(model: Any, words: Any, labels: Any) -> list[Any]:
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        losses = []
        for _ in range(2):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(input_ids=words).logits, labels)
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
        return losses

    expected = steps(here, words, labels)
    with speaking_for("eve"):
        there.send(worker)
        losses = steps(there, words.send(worker), labels.send(worker))  # type: ignore[attr-defined]
        assert [loss.get().item() for loss in losses] == [loss.item() for loss in expected]
        there.get()
    for name, value in here.state_dict().items():
        assert torch.equal(there.state_dict()[name], value), name
