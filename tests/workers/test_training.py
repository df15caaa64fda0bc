"""Training on a worker is training: the same numbers, bit for bit, wherever the model is."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import syft as sy

STEPS = 20


class Text(nn.Module):
    """Embedding and a recurrent net; the last output is the answer."""

    def __init__(self, recurrent: type[nn.RNNBase]) -> None:
        super().__init__()
        self.embedding = nn.Embedding(11, 5)
        self.recurrent = recurrent(5, 6, num_layers=2, batch_first=True)
        self.head = nn.Linear(6, 3)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        out, _state = self.recurrent(self.embedding(tokens))
        return self.head(out[:, -1])


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))


def cnn() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(36, 3)
    )


def transformer(dropout: float = 0.0) -> nn.Module:
    layer = nn.TransformerEncoderLayer(6, 2, dim_feedforward=8, dropout=dropout, batch_first=True)
    return nn.Sequential(layer, nn.Flatten(), nn.Linear(24, 3))


MODELS: dict[str, tuple[Callable[[], nn.Module], Callable[[], torch.Tensor]]] = {
    "mlp": (mlp, lambda: torch.randn(5, 6)),
    "cnn": (cnn, lambda: torch.randn(5, 1, 8, 8)),
    "lstm": (lambda: Text(nn.LSTM), lambda: torch.randint(11, (5, 4))),
    "gru": (lambda: Text(nn.GRU), lambda: torch.randint(11, (5, 4))),
    "rnn": (lambda: Text(nn.RNN), lambda: torch.randint(11, (5, 4))),
    "transformer": (transformer, lambda: torch.randn(5, 4, 6)),
}
OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1),
    "momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01),
    "adam": lambda p: torch.optim.Adam(p, lr=0.01),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.01, amsgrad=True),
    "rmsprop": lambda p: torch.optim.RMSprop(p, lr=0.01, centered=True, momentum=0.5),
    "adagrad": lambda p: torch.optim.Adagrad(p, lr=0.05),
    "adamax": lambda p: torch.optim.Adamax(p, lr=0.05),
    "adadelta": lambda p: torch.optim.Adadelta(p, lr=0.5),
    "radam": lambda p: torch.optim.RAdam(p, lr=0.05),
    "rprop": lambda p: torch.optim.Rprop(p, lr=0.05),
    "nadam": lambda p: torch.optim.NAdam(p, lr=0.05),  # keeps numbers here beside tensors there, as ASGD
    "asgd": lambda p: torch.optim.ASGD(p, lr=0.05, t0=1),
}
#: Every optimizer with the MLP, every model with two optimizers.
PAIRS = [("mlp", optimizer) for optimizer in OPTIMIZERS] + [
    ("cnn", "momentum"),
    ("cnn", "adam"),
    ("lstm", "sgd"),
    ("lstm", "adam"),
    ("gru", "momentum"),
    ("gru", "rmsprop"),
    ("rnn", "adagrad"),
    ("transformer", "adamw"),
    ("transformer", "sgd"),
]


def _batches(make: Callable[[], torch.Tensor]) -> list[tuple[torch.Tensor, torch.Tensor]]:
    torch.manual_seed(1)
    return [(make(), torch.randint(3, (5,))) for _ in range(STEPS)]


def _step(model: Any, optimizer: Any, data: Any, target: Any, clip: float | None = None) -> Any:
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(data), target)
    loss.backward()
    if clip is not None:
        nn.utils.clip_grad_norm_(model.parameters(), clip)
    optimizer.step()
    return loss


def _model(name: str) -> nn.Module:
    torch.manual_seed(0)
    return MODELS[name][0]()


def _train_here(name: str, optimizer: str, **options: Any) -> tuple[nn.Module, list[torch.Tensor]]:
    model = _model(name)
    opt = OPTIMIZERS[optimizer](model.parameters())
    losses = [_step(model, opt, *batch, **options).detach() for batch in _batches(MODELS[name][1])]
    return model, losses


def _assert_equal(one: nn.Module, other: nn.Module) -> None:
    mine, theirs = one.state_dict(), other.state_dict()
    assert list(mine) == list(theirs)
    for key, value in mine.items():
        assert torch.equal(value, theirs[key]), f"{key} differs by {(value - theirs[key]).abs().max()}"


@pytest.mark.parametrize(("name", "optimizer"), PAIRS)
def test_training_on_a_worker_equals_training_here(bob: Any, name: str, optimizer: str) -> None:
    here, expected = _train_here(name, optimizer)
    model = _model(name).send(bob)
    opt = OPTIMIZERS[optimizer](model.parameters())
    for (data, target), loss in zip(_batches(MODELS[name][1]), expected, strict=True):
        assert torch.equal(_step(model, opt, data.send(bob), target.send(bob)).get().detach(), loss)
    _assert_equal(model.get(), here)


@pytest.mark.parametrize(
    ("name", "optimizer"), [("mlp", o) for o in OPTIMIZERS] + [("cnn", "adam"), ("lstm", "sgd")]
)
def test_a_model_that_moves_at_every_step_trains_as_if_it_stayed(
    alice: Any, bob: Any, name: str, optimizer: str
) -> None:
    """The state of the one optimizer follows the parameters."""
    here, _losses = _train_here(name, optimizer)
    model = _model(name).send(bob)
    opt = OPTIMIZERS[optimizer](model.parameters())
    for number, (data, target) in enumerate(_batches(MODELS[name][1])):
        worker = (bob, alice)[number % 2]
        model.move(worker)
        assert model.location is worker
        _step(model, opt, data.send(worker), target.send(worker))
    _assert_equal(model.get(), here)
    del model, opt, data, target
    assert len(bob._objects) == len(alice._objects) == 0


def test_training_here_there_and_here_again(bob: Any) -> None:
    """An optimizer made before the send goes on, and its state comes back with the model."""
    here, _losses = _train_here("mlp", "adam")
    model = _model("mlp")
    parameters = list(model.parameters())
    opt = OPTIMIZERS["adam"](model.parameters())
    for number, (data, target) in enumerate(_batches(MODELS["mlp"][1])):
        if number == 7:
            model.send(bob)
        if number == 14:
            model.get()
        remote = 7 <= number < 14
        _step(model, opt, data.send(bob) if remote else data, target.send(bob) if remote else target)
    assert all(a is b for a, b in zip(parameters, model.parameters(), strict=True))
    assert all(type(p) is nn.Parameter for p in parameters)
    _assert_equal(model, here)


def test_clipping_gradients_on_a_worker(bob: Any) -> None:
    here, _losses = _train_here("mlp", "sgd", clip=0.05)
    free, _losses = _train_here("mlp", "sgd")
    model = _model("mlp").send(bob)
    opt = OPTIMIZERS["sgd"](model.parameters())
    for data, target in _batches(MODELS["mlp"][1]):
        _step(model, opt, data.send(bob), target.send(bob), clip=0.05)
    _assert_equal(model.get(), here)
    assert not torch.equal(here[0].weight, free[0].weight)  # the clipping did something


def test_running_statistics_travel_with_a_batch_norm(alice: Any, bob: Any) -> None:
    model = _model("cnn").send(bob)
    data = torch.randn(5, 1, 8, 8)
    model(data.send(bob))
    model.move(alice)
    assert model[1].running_mean.location is alice
    model.eval()
    out = model(data.send(alice)).get()
    model.get()
    twin = _model("cnn")
    twin(data)
    assert torch.equal(model[1].running_mean, twin[1].running_mean)
    assert torch.equal(model[1].running_var, twin[1].running_var)
    assert model[1].num_batches_tracked.item() == 1
    assert torch.equal(out, twin.eval()(data))


def test_dropout_in_evaluation_leaves_a_transformer_exact(bob: Any) -> None:
    torch.manual_seed(0)
    model = transformer(dropout=0.5).eval()
    data = torch.randn(5, 4, 6)
    expected = model(data)
    remote = copy.deepcopy(model).send(bob)
    assert torch.equal(remote(data.send(bob)).get(), expected)
    with torch.no_grad():  # torch may take its fused path here
        torch.testing.assert_close(remote(data.send(bob)).get(), model(data))


def test_dropout_in_training_drops_on_the_worker(bob: Any) -> None:
    dropped = nn.Dropout(0.5)(torch.ones(1000).send(bob)).get()
    assert set(dropped.unique().tolist()) == {0.0, 2.0}


def test_the_gradients_come_back_with_the_model(bob: Any) -> None:
    model = _model("mlp")
    twin = copy.deepcopy(model)
    data, target = torch.randn(5, 6), torch.randint(3, (5,))
    nn.functional.cross_entropy(twin(data), target).backward()
    model.send(bob)
    nn.functional.cross_entropy(model(data.send(bob)), target.send(bob)).backward()
    assert all(p.grad.location is bob for p in model.parameters())
    model.get()
    for mine, theirs in zip(model.parameters(), twin.parameters(), strict=True):
        assert torch.equal(mine.grad, theirs.grad)
    assert len(bob._objects) == 0


def test_gradients_of_before_are_sent_along(bob: Any) -> None:
    """Accumulation goes on where it was."""
    model, twin = _model("mlp"), _model("mlp")
    data = torch.randn(5, 6)
    for one in (model, twin):
        one(data).sum().backward()
    twin(data).sum().backward()
    model.send(bob)
    model(data.send(bob)).sum().backward()
    for mine, theirs in zip(model.get().parameters(), twin.parameters(), strict=True):
        assert torch.equal(mine.grad, theirs.grad)


def test_tied_weights_stay_tied(bob: Any) -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encode = nn.Linear(4, 4, bias=False)
            self.decode = nn.Linear(4, 4, bias=False)
            self.decode.weight = self.encode.weight

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.decode(self.encode(x).relu())

    torch.manual_seed(0)
    model = Tied()
    twin = copy.deepcopy(model)
    data = torch.randn(3, 4)
    model.send(bob)
    assert model.encode.weight is model.decode.weight
    for one, x in ((model, data.send(bob)), (twin, data)):
        opt = torch.optim.SGD(one.parameters(), lr=0.1)
        for _ in range(3):
            opt.zero_grad()
            one(x).square().sum().backward()
            opt.step()
    model.get()
    assert model.encode.weight is model.decode.weight
    _assert_equal(model, twin)


def test_a_copy_of_a_model_lives_where_the_model_is_and_on_its_own(bob: Any) -> None:
    model = _model("cnn").send(bob)
    other = model.copy()
    assert other.location is bob
    opt = torch.optim.SGD(other.parameters(), lr=0.1)
    _step(other, opt, torch.randn(5, 1, 8, 8).send(bob), torch.randint(3, (5,)).send(bob))
    _assert_equal(model.get(), _model("cnn"))
    assert not torch.equal(other.get()[0].weight, model[0].weight)
    assert len(bob._objects) == 0


def test_location_and_owner_of_a_model(me: Any, alice: Any, bob: Any) -> None:
    model = _model("mlp")
    assert model.location is None and model.owner is me
    assert model.send(bob) is model
    assert model.location is bob and model.owner is me
    assert model.move(alice).location is alice
    assert len(bob._objects) == 0
    assert model.move(me).location is None
    assert len(alice._objects) == 0
    model[0].send(bob)
    with pytest.raises(sy.exceptions.ChainError, match=r"several places \(bob, here\)"):
        model.location
    assert model.get().location is None


def test_end_get_brings_a_model_one_worker_closer(alice: Any, bob: Any) -> None:
    model = _model("mlp").send(bob).send(alice)
    data = torch.randn(2, 6)
    model.end_get()
    assert model.location is alice and len(bob._objects) == 0
    assert torch.equal(model(data.send(alice)).get(), _model("mlp")(data))
    _assert_equal(model.get(), _model("mlp"))


def test_jit_still_compiles_modules(bob: Any) -> None:
    model = _model("mlp")
    data = torch.randn(2, 6)
    assert torch.equal(torch.jit.script(model)(data), model(data))
    assert torch.equal(torch.jit.script(model.send(bob).get())(data), model(data))


def test_an_embedding_of_remote_tokens_and_a_sparse_pattern(bob: Any) -> None:
    embedding = nn.Embedding(10, 4, padding_idx=0)
    twin = copy.deepcopy(embedding)
    tokens = torch.tensor([[0, 1], [1, 9]])
    embedding.send(bob)
    embedding(tokens.send(bob)).sum().backward()
    twin(tokens).sum().backward()
    assert torch.equal(embedding.get().weight.grad, twin.weight.grad)
