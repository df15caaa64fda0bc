"""Models on shares: they train as plain ones do, layer by layer and as a whole, and leave nothing behind."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

BASE, DIGITS = 2, 16
#: One pass through a layer, values and gradients, with 16 fractional bits.
FORWARD_ERROR, GRADIENT_ERROR = 2e-4, 2e-3
#: Losses over a whole training.
LOSS_ERROR = 1e-2


class Holders:
    """Workers that share, and the group's counters."""

    def __init__(self, make_worker: Any, count: int) -> None:
        self.workers = [make_worker(f"holder{i}") for i in range(count)]
        self.provider = make_worker("provider")

    def share(self, tensor: Any) -> Any:
        if tensor.is_floating_point():
            tensor = tensor.fix_precision(base=BASE, precision_fractional=DIGITS)
        return tensor.share(*self.workers, crypto_provider=self.provider)

    def share_module(self, module: Any) -> Any:
        fixed = module.fix_precision(base=BASE, precision_fractional=DIGITS)
        return fixed.share(*self.workers, crypto_provider=self.provider)

    def objects(self) -> list[int]:
        return [len(worker._objects) for worker in self.workers]


@pytest.fixture
def two(make_worker: Any) -> Holders:
    return Holders(make_worker, 2)


@pytest.fixture
def three(make_worker: Any) -> Holders:
    return Holders(make_worker, 3)


def plain(secret: Any) -> torch.Tensor:
    return secret.virtual_get().float_precision()


# -- training ----------------------------------------------------------------------------------------------


def linear_regression() -> Any:
    x = torch.randn(32, 5)
    return nn.Linear(5, 1), x, x @ torch.randn(5, 1) * 0.5 + 0.1, F.mse_loss


def logistic_regression() -> Any:
    x = torch.randn(32, 5)
    return nn.Linear(5, 1), x, (x[:, :1] > 0).float(), F.binary_cross_entropy_with_logits


def mlp() -> Any:
    x = torch.randn(32, 8)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3))
    return model, x, x[:, :3].argmax(1), F.cross_entropy


def cnn() -> Any:
    x = torch.randn(8, 1, 8, 8)
    model = nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(64, 2)
    )
    return model, x, (x[:, 0, :4].sum((1, 2)) > 0).long(), F.cross_entropy


OPTIMIZERS: dict[str, Callable[..., Any]] = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9),
    "adam": lambda p: torch.optim.Adam(p, lr=0.01),
}


def train(task: Callable[[], Any], optimizer: str, steps: int, holders: Holders) -> tuple[list[float], Any]:
    """Train plainly and on shares; returns the gaps between the losses, and the secret model."""
    torch.manual_seed(1)
    model, x, y, loss_function = task()
    secret = copy.deepcopy(model)
    runs = [
        (model, OPTIMIZERS[optimizer](model.parameters()), x, y),
        # NB: the optimizer is made before the parameters are shared, and goes on working.
        (secret, OPTIMIZERS[optimizer](secret.parameters()), holders.share(x), y),
    ]
    holders.share_module(secret)
    losses: list[list[float]] = []
    for _ in range(steps):
        step = []
        for net, opt, inputs, targets in runs:
            opt.zero_grad()
            loss: Any = loss_function(net(inputs), targets)
            loss.backward()
            opt.step()
            step.append(loss if net is model else loss.get().float_precision())
        losses.append([float(value.detach()) for value in step])
    assert losses[-1][0] < 0.9 * losses[0][0]  # it learns something
    return [abs(a - b) for a, b in losses], secret


@pytest.mark.parametrize("task", [linear_regression, logistic_regression, cnn])
def test_training_on_shares_follows_plain_training(task: Any, two: Holders) -> None:
    gaps, _ = train(task, "sgd", 25, two)
    assert max(gaps) < LOSS_ERROR


def test_an_mlp_follows_plain_training_over_forty_steps_and_leaves_nothing_behind(two: Holders) -> None:
    gaps, secret = train(mlp, "sgd", 40, two)
    assert max(gaps) < LOSS_ERROR
    # Four parameters, and the gradient of each; what optimizer, data and losses had is gone with them.
    assert two.objects() == [8, 8]
    secret.zero_grad()
    assert two.objects() == [4, 4]


def test_objects_stay_as_many_from_step_to_step(two: Holders) -> None:
    torch.manual_seed(0)
    model, x, y, loss_function = cnn()
    two.share_module(model)
    data = two.share(x)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    counts = []
    for _ in range(6):
        optimizer.zero_grad()
        loss_function(model(data), y).backward()
        optimizer.step()
        counts.append(two.objects())
    assert counts[1:] == [counts[1]] * 5


def test_adam_trains_an_mlp_on_shares(two: Holders) -> None:
    gaps, _ = train(mlp, "adam", 25, two)
    assert max(gaps) < LOSS_ERROR


def test_three_holders_train_as_well(three: Holders) -> None:
    gaps, _ = train(mlp, "sgd", 20, three)
    assert max(gaps) < LOSS_ERROR


# -- layers ------------------------------------------------------------------------------------------------

ROWS, PICTURES, SEQUENCE = (6, 8), (2, 4, 6, 6), (5, 2, 8)

LAYERS: dict[str, tuple[Callable[[], Any], tuple[int, ...]]] = {
    "Linear": (lambda: nn.Linear(8, 3), ROWS),
    "BatchNorm1d": (lambda: nn.BatchNorm1d(8), ROWS),
    "BatchNorm1d, evaluating": (lambda: nn.BatchNorm1d(8).eval(), ROWS),
    "BatchNorm2d": (lambda: nn.BatchNorm2d(4), PICTURES),
    "LayerNorm": (lambda: nn.LayerNorm(8), ROWS),
    "GroupNorm": (lambda: nn.GroupNorm(2, 4), PICTURES),
    "Dropout": (lambda: nn.Dropout(0.5), ROWS),
    "Dropout, evaluating": (lambda: nn.Dropout(0.5).eval(), ROWS),
    "Softmax": (lambda: nn.Softmax(-1), ROWS),
    "LogSoftmax": (lambda: nn.LogSoftmax(-1), ROWS),
    "GELU": (lambda: nn.GELU(), ROWS),
    "Sigmoid": (lambda: nn.Sigmoid(), ROWS),
    "Tanh": (lambda: nn.Tanh(), ROWS),
    "SiLU": (lambda: nn.SiLU(), ROWS),
    "ReLU": (lambda: nn.ReLU(), ROWS),
    "LeakyReLU": (lambda: nn.LeakyReLU(), ROWS),
    "Conv1d": (lambda: nn.Conv1d(6, 3, 3), (4, 6, 6)),
    "Conv2d": (lambda: nn.Conv2d(4, 3, 3, stride=2, padding=1), PICTURES),
    "Conv2d, groups": (lambda: nn.Conv2d(4, 4, 3, groups=2), PICTURES),
    "ConvTranspose2d": (lambda: nn.ConvTranspose2d(4, 3, 3, stride=2), PICTURES),
    "MaxPool2d": (lambda: nn.MaxPool2d(2), PICTURES),
    "MaxPool2d, padded": (lambda: nn.MaxPool2d(3, 2, 1), PICTURES),
    "AvgPool2d": (lambda: nn.AvgPool2d(2), PICTURES),
    "AdaptiveAvgPool2d": (lambda: nn.AdaptiveAvgPool2d(1), PICTURES),
    "RNN": (lambda: nn.RNN(8, 4), SEQUENCE),
    "LSTM": (lambda: nn.LSTM(8, 4), SEQUENCE),
    "LSTM, both directions": (lambda: nn.LSTM(8, 4, bidirectional=True, batch_first=True), SEQUENCE),
    "GRU": (lambda: nn.GRU(8, 4), SEQUENCE),
    "LSTMCell": (lambda: nn.LSTMCell(8, 4), ROWS),
    "GRUCell": (lambda: nn.GRUCell(8, 4), ROWS),
    "TransformerEncoderLayer": (lambda: nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0), SEQUENCE),
}


def first_of(result: Any) -> Any:
    return result if isinstance(result, torch.Tensor) else first_of(result[0])


@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_gives_what_it_gives_plainly(name: str, two: Holders) -> None:
    torch.manual_seed(3)
    make, shape = LAYERS[name]
    layer = make()
    secret_layer = two.share_module(copy.deepcopy(layer))
    x = torch.randn(shape, requires_grad=True)
    secret_x = two.share(x.detach()).requires_grad_()
    torch.manual_seed(4)
    expected = first_of(layer(x))
    torch.manual_seed(4)
    result = first_of(secret_layer(secret_x))
    assert (plain(result) - expected).abs().max() < FORWARD_ERROR
    weights = torch.randn(expected.shape)
    (expected * weights).sum().backward()
    (result * weights).sum().backward()
    pairs = zip([x, *layer.parameters()], [secret_x, *secret_layer.parameters()], strict=True)
    for one, other in pairs:
        assert (one.grad is None) == (other.grad is None)
        if one.grad is not None:
            assert (plain(other.grad) - one.grad).abs().max() < GRADIENT_ERROR
    for one, other in zip(layer.buffers(), secret_layer.buffers(), strict=True):
        assert ((plain(other) if other.is_floating_point() else other) - one).abs().max() < FORWARD_ERROR


@pytest.mark.parametrize("secret_index", [False, True])
def test_an_embedding_reads_rows_at_public_and_at_secret_indices(secret_index: bool, two: Holders) -> None:
    torch.manual_seed(0)
    table = nn.Embedding(10, 4, padding_idx=9)
    secret_table = two.share_module(copy.deepcopy(table))
    index = torch.tensor([[1, 2], [9, 2]])
    expected = table(index)
    result = secret_table(two.share(index) if secret_index else index)
    assert (plain(result) - expected).abs().max() < FORWARD_ERROR
    (expected * expected).sum().backward()
    (result * result).sum().backward()
    assert (plain(secret_table.weight.grad) - table.weight.grad).abs().max() < GRADIENT_ERROR


LOSSES: dict[str, Callable[[Any, Any], Any]] = {
    "cross-entropy": F.cross_entropy,
    "cross-entropy, smoothed": lambda x, y: F.cross_entropy(x, y, label_smoothing=0.1),
    "negative log-likelihood": lambda x, y: F.nll_loss(F.log_softmax(x, 1), y),
    "binary cross-entropy": lambda x, y: F.binary_cross_entropy(x.sigmoid(), F.one_hot(y, 8).float()),
    "mean squares": lambda x, y: F.mse_loss(x, F.one_hot(y, 8).float()),
    "absolute": lambda x, y: F.l1_loss(x, F.one_hot(y, 8).float()),
    "Huber": lambda x, y: F.huber_loss(x, F.one_hot(y, 8).float()),
}


@pytest.mark.parametrize("name", LOSSES)
def test_a_loss_with_public_labels(name: str, two: Holders) -> None:
    torch.manual_seed(0)
    x = torch.randn(6, 8, requires_grad=True)
    secret = two.share(x.detach()).requires_grad_()
    labels = torch.tensor([1, 0, 5, 7, 2, 2])
    expected, result = LOSSES[name](x, labels), LOSSES[name](secret, labels)
    expected.backward()
    result.backward()
    assert abs(plain(result) - expected) < FORWARD_ERROR
    assert (plain(secret.grad) - x.grad).abs().max() < GRADIENT_ERROR  # type: ignore[operator]


def test_cross_entropy_with_secret_labels(two: Holders) -> None:
    torch.manual_seed(0)
    x = torch.randn(6, 8, requires_grad=True)
    labels = torch.tensor([1, 0, 5, 7, 2, 2])
    F.cross_entropy(x, labels).backward()
    for secret_labels in (two.share(labels), two.share(F.one_hot(labels, 8).float())):
        secret = two.share(x.detach()).requires_grad_()
        loss = F.cross_entropy(secret, secret_labels)
        loss.backward()
        assert abs(plain(loss) - F.cross_entropy(x, labels)) < FORWARD_ERROR
        assert (plain(secret.grad) - x.grad).abs().max() < GRADIENT_ERROR  # type: ignore[operator]


# -- what is used again --------------------------------------------------------------------------------------


def rounds_of(secret: Any, run: Callable[[], Any]) -> int:
    group = secret.child.child.group
    group.reset_costs()
    run()
    return int(group.online.rounds)


def test_the_backward_of_relu_is_one_product_and_no_comparison(two: Holders) -> None:
    x = two.share(torch.tensor([-1.5, 0.0, 2.0])).requires_grad_()
    result: list[Any] = []
    assert rounds_of(x, lambda: result.append(torch.relu(x))) == 4
    assert rounds_of(x, lambda: result[0].sum().backward()) == 1
    assert plain(x.grad).tolist() == [0, 0, 1]


def test_relu_in_place_keeps_its_bits_until_it_is_written_to_again(two: Holders) -> None:
    x = two.share(torch.tensor([-1.5, 0.0, 2.0])).requires_grad_()
    result = nn.ReLU(inplace=True)(x * 2)
    assert rounds_of(x, lambda: result.sum().backward()) == 1  # the factor 2 is public and whole
    assert plain(x.grad).tolist() == [0, 0, 2]
    secret = two.share(torch.tensor([-1.5, 2.0]))
    secret.relu_()
    secret.add_(-1.0)
    gradient = torch.ops.aten.threshold_backward(secret * 0 + 1, secret, 0)
    assert plain(gradient).tolist() == [0, 1]


def test_the_backward_of_max_pooling_is_one_product_with_its_selection(two: Holders) -> None:
    picture = torch.arange(16.0).view(1, 1, 4, 4)
    x = two.share(picture).requires_grad_()
    pooled = F.max_pool2d(x, 2)
    assert rounds_of(x, lambda: pooled.sum().backward()) == 1
    assert plain(x.grad).flatten().nonzero().flatten().tolist() == [5, 7, 13, 15]


# -- models and optimizers that come and go --------------------------------------------------------------------


def test_a_model_is_shared_and_fetched_in_place(two: Holders) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 1))
    before = copy.deepcopy(model.state_dict())
    parameters = list(model.parameters())
    assert two.share_module(model) is model
    assert all(a is b for a, b in zip(parameters, model.parameters(), strict=True))
    assert all(isinstance(p, nn.Parameter) and p.is_leaf and p.requires_grad for p in model.parameters())
    assert model[1].num_batches_tracked.dtype == torch.int64
    assert two.objects() == [8, 8]
    assert model.get().float_precision() is model  # type: ignore[operator]
    assert two.objects() == [0, 0]
    assert all(
        a is b and type(b) is nn.Parameter for a, b in zip(parameters, model.parameters(), strict=True)
    )
    for name, value in model.state_dict().items():
        torch.testing.assert_close(value, before[name], atol=2**-16, rtol=0)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("asked", [False, True])
def test_the_state_of_an_optimizer_follows_its_model(two: Holders, optimizer: str, asked: bool) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
    reference = copy.deepcopy(model)
    ours, theirs = (OPTIMIZERS[optimizer](m.parameters()) for m in (model, reference))
    x = torch.randn(16, 3)
    y = x.sum(1, keepdim=True)

    def steps(inputs: Any, targets: Any) -> None:
        for net, opt, a, b in ((model, ours, inputs, targets), (reference, theirs, x, y)):
            for _ in range(3):
                opt.zero_grad()
                F.mse_loss(net(a), b).backward()
                opt.step()

    steps(x, y)
    two.share_module(model)
    if asked:
        ours.fix_precision(base=BASE, precision_fractional=DIGITS)
    steps(two.share(x), two.share(y))
    state = [v for v in ours.state[model[0].weight].values() if isinstance(v, torch.Tensor) and v.ndim]
    assert state and all("AdditiveSharingTensor" in str(value) for value in state)
    del state
    model.get().float_precision()  # type: ignore[operator]
    if asked:
        ours.float_precision()
    steps(x, y)
    for one, other in zip(reference.parameters(), model.parameters(), strict=True):
        assert (one - other).abs().max() < 5e-3
    assert all(type(v) is torch.Tensor for v in ours.state[model[0].weight].values())
    assert two.objects() == [0, 0]


def test_a_secret_model_answers_plain_data_and_a_plain_model_secret_data(two: Holders) -> None:
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)), torch.randn(5, 3)
    expected = model(x)
    on_secret_data = model(two.share(x))
    assert (plain(on_secret_data) - expected).abs().max() < FORWARD_ERROR
    secret_model = two.share_module(model)
    assert (plain(secret_model(x)) - expected).abs().max() < FORWARD_ERROR


def test_a_model_of_floats_is_not_shared(two: Holders) -> None:
    with pytest.raises(TypeError, match=r"model\.fix_precision"):
        nn.Linear(2, 2).share(*two.workers, crypto_provider=two.provider)  # type: ignore[operator]


def test_a_gradient_comes_back_with_its_tensor(two: Holders) -> None:
    fixed: Any = torch.tensor([1.0, 2.0]).fix_precision(base=2, precision_fractional=16)  # type: ignore[attr-defined]
    x = fixed.share(*two.workers, crypto_provider=two.provider, requires_grad=True)
    assert x.requires_grad and x.is_leaf
    (x * x).sum().backward()
    fetched = x.get()
    assert fetched.float_precision().tolist() == [1.0, 2.0]
    torch.testing.assert_close(fetched.grad.float_precision(), torch.tensor([2.0, 4.0]), atol=1e-4, rtol=0)
    assert two.objects() == [0, 0]


def test_gradients_flow_from_a_secret_to_the_plain_tensor_it_was_made_of(two: Holders) -> None:
    x = torch.tensor([1.0, -2.0], requires_grad=True)
    secret = two.share(x * 3)
    (secret * secret).sum().backward()
    torch.testing.assert_close(x.grad, 18 * x.detach(), atol=1e-2, rtol=0)
