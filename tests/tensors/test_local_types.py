"""`LocalTensor` and `AutogradTensor`: nodes that leave everything to torch."""

from __future__ import annotations

import copy

import pytest
import torch

from syft.core.chain import Wrapper
from syft.exceptions import MixedChainsError
from syft.tensors.autograd import AutogradTensor
from syft.tensors.local import LocalTensor
from syft.tensors.logging import LoggingTensor


def value(chain: torch.Tensor) -> torch.Tensor:
    return chain.child.child


@pytest.mark.parametrize("kind", [LocalTensor, AutogradTensor])
class TestEveryPassThroughNode:
    def test_shows_itself_between_the_wrapper_and_the_tensor(self, kind):
        chain = kind().on(torch.tensor([1.0, 2.0]))
        assert isinstance(chain, Wrapper)
        assert isinstance(chain.child, kind)
        assert str(chain) == f"(Wrapper)>{kind.__name__}>tensor([1., 2.])"

    def test_computes_what_torch_computes_and_stays_on_top(self, kind):
        x, y = torch.randn(3, 4), torch.randn(4, 2)
        result = torch.relu(kind().on(x) @ kind().on(y)) + 1
        assert isinstance(result.child, kind)
        assert torch.equal(value(result), torch.relu(x @ y) + 1)

    def test_takes_in_plain_tensors(self, kind):
        result = torch.ones(2) - kind().on(torch.tensor([3.0, 4.0]))
        assert isinstance(result.child, kind)
        assert value(result).tolist() == [-2.0, -3.0]

    def test_writes_in_place_into_the_tensor_below(self, kind):
        below = torch.zeros(3)
        chain = kind().on(below)
        with torch.no_grad():
            returned = chain.add_(2)
        assert returned is chain
        assert below.tolist() == [2.0, 2.0, 2.0]

    def test_has_the_gradient_of_plain_torch(self, kind):
        x = torch.randn(5)
        plain = x.clone().requires_grad_()
        (plain.sin() * plain).sum().backward()
        chain = kind().on(x.clone().requires_grad_())
        (chain.sin() * chain).sum().backward()
        assert isinstance(chain.grad.child, kind)
        assert torch.equal(value(chain.grad), plain.grad)

    def test_refuses_to_be_mixed_with_another_type(self, kind):
        with pytest.raises(MixedChainsError):
            kind().on(torch.ones(2)).mul(LoggingTensor().on(torch.ones(2)))

    def test_stacks_with_another_type(self, kind, capsys):
        chain = LoggingTensor().on(kind().on(torch.ones(2)))
        assert value(chain * 3).child.tolist() == [3.0, 3.0]
        assert "mul" in capsys.readouterr().out


def test_a_local_tensor_is_a_leaf_only_where_the_tensor_is():
    assert not LocalTensor().on(torch.ones(2)).requires_grad
    history = torch.ones(2, requires_grad=True) * 2
    chain = LocalTensor().on(history)
    assert chain.requires_grad and not chain.is_leaf


def test_an_autograd_tensor_asks_for_gradients_by_default():
    chain = AutogradTensor().on(torch.tensor([3.0]))
    (chain * chain).sum().backward()
    assert value(chain.grad).tolist() == [6.0]


def test_an_autograd_tensor_can_be_made_around_its_data():
    chain = AutogradTensor(data=torch.tensor([3.0]), tags={"#x"}).wrap()
    assert chain.is_leaf and chain.child.tags == {"#x"}
    (chain * 5).sum().backward()
    assert value(chain.grad).tolist() == [5.0]


def test_an_autograd_tensor_made_around_a_chain_stands_below_its_wrapper():
    chain = AutogradTensor(data=LocalTensor().on(torch.ones(1))).wrap()
    assert str(chain) == "(Wrapper)>AutogradTensor>LocalTensor>tensor([1.])"


def test_an_autograd_tensor_that_asks_for_no_gradient_gets_none():
    assert not AutogradTensor(data=torch.ones(2), requires_grad=False).wrap().requires_grad
    assert not AutogradTensor(requires_grad=False).on(torch.ones(2)).requires_grad


def test_integers_have_no_gradient_and_that_is_no_error():
    assert not AutogradTensor().on(torch.tensor([1, 2])).requires_grad


def test_results_without_history_do_not_become_leaves():
    chain = AutogradTensor().on(torch.ones(2))
    with torch.no_grad():
        result = chain + 1
    assert not result.child.wrap().requires_grad


def test_retain_grad_keeps_the_gradient_of_a_chain_with_a_history():
    leaf = torch.ones(2, requires_grad=True)
    chain = AutogradTensor(retain_grad=True).on(leaf * 2)
    (chain * 3).sum().backward()
    assert value(chain.grad).tolist() == [3.0, 3.0]
    assert leaf.grad.tolist() == [6.0, 6.0]


def test_a_module_trains_on_local_tensors_as_it_does_without():
    torch.manual_seed(0)
    plain = torch.nn.Linear(3, 1)
    wrapped = copy.deepcopy(plain)
    data, target = torch.randn(8, 3), torch.randn(8, 1)
    for model, inputs in ((plain, data), (wrapped, LocalTensor().on(data))):
        if model is wrapped:
            for name, parameter in list(model.named_parameters()):
                setattr(model, name, torch.nn.Parameter(LocalTensor().on(parameter.detach())))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        for _ in range(5):
            optimizer.zero_grad()
            ((model(inputs) - target) ** 2).mean().backward()
            optimizer.step()
    assert torch.equal(value(wrapped.weight), plain.weight)
    assert torch.equal(value(wrapped.bias), plain.bias)
