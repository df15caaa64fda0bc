"""What torch.jit compiled, run in Python node by node: the same values, gradients and names as the original."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from syft.federated.torchscript import ScriptTwin, UnknownScriptError, copy_of, parameter_names, python_twin

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore:.*torch.jit.*", "ignore::torch.jit.TracerWarning"),
]


class Images(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3)
        self.norm = nn.BatchNorm2d(4)
        self.up = nn.ConvTranspose2d(4, 2, 2)
        self.dense = nn.Linear(2 * 4 * 4, 5)
        self.layer_norm = nn.LayerNorm(5)

    def forward(self, x: Tensor) -> Tensor:
        x = F.max_pool2d(F.relu(self.norm(self.conv(x))), 2)
        x = F.leaky_relu(self.up(x), 0.1)
        x = self.layer_norm(self.dense(x.view(x.size(0), -1)))
        return F.log_softmax(x[:, 1:4], dim=1)


class Words(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(7, 4, padding_idx=0)
        self.recurrent = nn.GRU(4, 3, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        output, _state = self.recurrent(self.words(x))
        return torch.cat([output.mean(dim=1), output[:, -1]], dim=1).softmax(dim=1)


class Shapes(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(6, 6)
        self.last = self.first  # tied

    def forward(self, x: Tensor) -> Tensor:
        for _step in range(3):
            x = torch.tanh(self.first(x))
        x = x.reshape(x.shape[0], 2, 3).permute(0, 2, 1).flatten(1)
        return 1 - self.last(x).clamp(-1, 1) * 2.0


CASES = [
    (Images, torch.randn(3, 1, 8, 8)),
    (Words, torch.tensor([[1, 2, 3], [4, 5, 0]])),
    (Shapes, torch.randn(4, 6)),
]


@pytest.mark.parametrize("how", ["trace", "script"])
@pytest.mark.parametrize(("kind", "example"), CASES, ids=lambda value: getattr(value, "__name__", ""))
def test_a_twin_computes_what_the_module_computes(kind: Any, example: Tensor, how: str) -> None:
    torch.manual_seed(0)
    module = kind().eval()
    compiled = torch.jit.trace(module, example[:2]) if how == "trace" else torch.jit.script(module)
    twin = python_twin(compiled)
    assert isinstance(twin, ScriptTwin) and list(twin.state_dict()) == list(module.state_dict())
    expected, found = module(example), twin(example)
    torch.testing.assert_close(found, expected)
    expected.square().sum().backward()
    found.square().sum().backward()
    wanted = dict(module.named_parameters())
    for name, parameter in twin.named_parameters():
        torch.testing.assert_close(parameter.grad, wanted[name].grad)
    with torch.no_grad():
        next(twin.parameters()).zero_()
    torch.testing.assert_close(compiled(example), expected)  # the twin has tensors of its own


def test_a_scripted_module_knows_training_from_evaluation() -> None:
    twin = python_twin(torch.jit.script(Images()))
    before = twin.norm.running_mean.clone()
    twin.eval()(CASES[0][1])
    assert torch.equal(twin.norm.running_mean, before)
    twin.train()(CASES[0][1])
    assert not torch.equal(twin.norm.running_mean, before) and twin.norm.num_batches_tracked == 1


def cross_entropy(pred: Tensor, target: Tensor) -> Tensor:
    return F.cross_entropy(pred, target, label_smoothing=0.1)


def weighted(pred: Tensor, target: Tensor) -> Tensor:
    return F.nll_loss(pred.log_softmax(1), target, weight=torch.tensor([1.0, 2.0, 3.0]), reduction="sum")


def squares(target: Tensor, pred: Tensor) -> Tensor:
    return ((target.view(pred.shape[0], 1).float() - pred.float()) ** 2).mean()


def one_hot(pred: Tensor, target: Tensor) -> Tensor:
    return F.mse_loss(pred, F.one_hot(target, 3).float(), reduction="none").sum()


def smooth(pred: Tensor, target: Tensor) -> Tensor:
    return F.smooth_l1_loss(pred.sum(1), target.float(), beta=0.5)


def binary(pred: Tensor, target: Tensor) -> Tensor:
    return F.binary_cross_entropy_with_logits(pred[:, 0], (target > 0).float())


@pytest.mark.parametrize("loss", [cross_entropy, weighted, squares, one_hot, smooth, binary])
def test_losses_are_those_of_their_python_functions(loss: Any) -> None:
    scores, labels = torch.randn(4, 3, requires_grad=True), torch.tensor([0, 1, 2, 1])
    scripted = torch.jit.script(loss)
    assert set(parameter_names(scripted)) == {"pred", "target"}
    found = python_twin(scripted)(pred=scores, target=labels)
    expected = loss(pred=scores, target=labels)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(*(torch.autograd.grad(value, scores)[0] for value in (found, expected)))
    assert python_twin(loss) is loss


def test_compiled_parts_of_a_module_are_found_wherever_they_are() -> None:
    inner = torch.jit.script(nn.Linear(2, 2))
    model = nn.Sequential(nn.ModuleDict({"a": inner})["a"], nn.Sequential(nn.ReLU(), inner))
    twin = python_twin(model)
    assert not any(isinstance(part, torch.jit.ScriptModule) for part in twin.modules())
    assert twin[0] is twin[1][1], "one part stays one part"
    x = torch.randn(3, 2)
    torch.testing.assert_close(twin(x), model(x))


def test_copies_of_compiled_models_can_be_trained() -> None:
    frozen = nn.Linear(2, 2)
    frozen.bias.requires_grad_(False)
    for model in (torch.jit.script(frozen), nn.Sequential(torch.jit.script(frozen)), frozen):
        made = copy_of(model)
        assert all(p.is_leaf for p in made.parameters())
        assert [p.requires_grad for p in made.parameters()] == [True, False]
        assert next(made.parameters()) is not next(model.parameters())
    scripted = torch.jit.script(squares)
    assert copy_of(scripted) is scripted and copy_of([1]) == copy.copy([1])


class Deciding(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x if bool(x.sum() > 0) else -x


class Reading(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x * x[0].item()


class Odd(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch._cast_Float(x)


@pytest.mark.parametrize(
    ("module", "said"),
    [(Deciding(), "the value of a tensor"), (Reading(), "the value"), (Odd(), "_cast_Float")],
)
def test_what_has_no_plan_is_named_with_its_line(module: nn.Module, said: str) -> None:
    with pytest.raises(UnknownScriptError, match=rf"{said}.*line \d+.*Pass the nn\.Module"):
        python_twin(torch.jit.script(module))(torch.ones(2))
    with pytest.raises(TypeError, match="3 arguments; it has 2"):
        python_twin(torch.jit.script(nn.ReLU()))(torch.ones(2), torch.ones(2))
