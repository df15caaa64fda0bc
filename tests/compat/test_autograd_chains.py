"""`AutogradTensor` in chains, `backward()` without an argument, chains as parameters, private and numpy chains."""

from __future__ import annotations

from typing import Any

import hypothesis
import numpy as np
import pytest
import torch
from hypothesis import strategies as st
from torch import nn

import syft as sy
from syft.exceptions import ChainError, GetNotPermittedError, SendNotPermittedError
from syft.mpc.precision import FixedPrecisionTensor
from syft.mpc.sharing import AdditiveSharingTensor
from syft.tensors.autograd import AutogradTensor
from syft.tensors.logging import LoggingTensor
from syft.tensors.multi_pointer import MultiPointerTensor
from syft.tensors.pointer import PointerTensor

A = [[3.0, 2.0], [-1.0, 2.0]]
B = [[1.0, 2.0], [3.0, 2.0]]


@pytest.fixture
def at_bob(bob: Any) -> Any:
    return lambda data: torch.tensor(data, requires_grad=True).send(bob, local_autograd=True)


# -- item 4: local_autograd and preinitialize_grad ------------------------------------------------------------


def test_local_autograd_puts_an_autograd_tensor_above_the_pointer(bob: Any) -> None:
    chain = torch.tensor(A, requires_grad=True).send(bob, local_autograd=True)
    assert isinstance(chain.child, AutogradTensor) and isinstance(chain.child.child, PointerTensor)
    assert chain.requires_grad and chain.is_leaf and chain.location is bob
    plain = torch.tensor(A).send(bob, local_autograd=True)
    assert isinstance(plain.child, AutogradTensor) and plain.requires_grad  # as the node has it by default
    untracked = torch.tensor(A).send(bob, local_autograd=True, requires_grad=False)
    assert not untracked.requires_grad
    assert not torch.tensor([1, 2]).send(bob, local_autograd=True).requires_grad
    both = torch.tensor(A).send(bob, local_autograd=True, no_wrap=True)
    assert isinstance(both, AutogradTensor)


def test_local_autograd_follows_what_it_was_not_told_about(bob: Any) -> None:
    chain = torch.tensor(A).send(bob, local_autograd=True)
    (chain * torch.tensor(A).send(bob)).sum().backward()
    assert chain.requires_grad and chain.grad.get().tolist() == A
    zeros = torch.tensor(A).send(bob, local_autograd=True, preinitialize_grad=True)
    assert zeros.grad.get().tolist() == [[0.0, 0.0], [0.0, 0.0]]
    whole = torch.tensor([1, 2]).send(bob, local_autograd=True)
    assert isinstance(whole.child, AutogradTensor) and not whole.requires_grad


def test_local_autograd_with_several_workers(alice: Any, bob: Any) -> None:
    chain = torch.tensor(A, requires_grad=True).send(alice, bob, local_autograd=True)
    assert isinstance(chain.child, AutogradTensor) and isinstance(chain.child.child, MultiPointerTensor)


@pytest.mark.parametrize("local_autograd", [True, False])
def test_a_gradient_of_zeros_is_there_at_once(bob: Any, local_autograd: bool) -> None:
    leaf = torch.tensor(A, requires_grad=True)
    chain = leaf.send(bob, local_autograd=local_autograd, preinitialize_grad=True)
    assert chain.grad.get().tolist() == [[0.0, 0.0], [0.0, 0.0]]
    assert leaf.send(bob, local_autograd=local_autograd).grad is None
    (chain * 3).sum().backward()
    assert chain.grad.get().tolist() == [[3.0, 3.0], [3.0, 3.0]]


def test_sending_in_place_with_local_autograd(bob: Any) -> None:
    leaf = torch.tensor(A, requires_grad=True)
    leaf.send_(bob, local_autograd=True)
    (leaf * 2).backward()
    assert leaf.child.grad is leaf.grad and leaf.child.grad.get().tolist() == [[2.0, 2.0], [2.0, 2.0]]


@pytest.mark.parametrize("name", ["add", "sub", "mul", "matmul", "div"])
@pytest.mark.parametrize("other", ["chain", "pointer"])
@pytest.mark.parametrize("gives_gradient", [True, False])
def test_gradients_of_binary_operations(
    at_bob: Any, bob: Any, name: str, other: str, gives_gradient: bool
) -> None:
    a, b = at_bob(A), at_bob(B)
    if other == "pointer":
        b = torch.tensor(B, requires_grad=True).send(bob)
    here = torch.tensor(A, requires_grad=True), torch.tensor(B, requires_grad=True)
    for swap in (False, True):
        left, right = (b, a) if swap else (a, b)
        result = getattr(left, name)(right)
        assert isinstance(result.child, AutogradTensor)
        if gives_gradient:
            result.backward(torch.ones(2, 2).send(bob))
        else:
            result.backward()
        getattr(here[swap], name)(here[not swap]).backward(torch.ones(2, 2))
    for chain, plain in zip((a, b), here, strict=True):
        torch.testing.assert_close(_plain(chain.grad.get()), plain.grad)


def _plain(tensor: Any) -> Any:
    while getattr(tensor, "is_wrapper", False):
        tensor = tensor.child.child
    return tensor


def test_a_pointer_below_an_autograd_tensor_is_moved(alice: Any, at_bob: Any, bob: Any) -> None:
    leaf = at_bob(A)
    leaf.move(alice)
    assert leaf.location is alice and isinstance(leaf.child, AutogradTensor) and leaf.is_leaf
    y = leaf * 2
    y.move(bob)
    assert y.location is bob and len(bob._objects) == 1
    other = leaf.move(bob)  # the graph of y still uses it
    assert leaf.location is alice and other.location is bob
    (y + other).backward()
    assert _plain(leaf.grad.get()).tolist() == [[3.0, 3.0], [3.0, 3.0]]


# -- item 11: backward without an argument ---------------------------------------------------------------------


def test_backward_without_an_argument_starts_from_ones_on_every_chain(
    alice: Any, bob: Any, charlie: Any
) -> None:
    data = torch.tensor([1.0, -2.0, 3.0])
    leaf = data.clone().requires_grad_()
    chains = [
        leaf.send(bob),
        leaf.send(bob, local_autograd=True),
        AutogradTensor().on(data.clone()),
        AutogradTensor().on(data.fix_prec()),
        data.fix_prec().share(alice, bob, crypto_provider=charlie, requires_grad=True),
        leaf.fix_prec().share(alice, bob, crypto_provider=charlie),
    ]
    for chain in chains:
        (chain * chain).backward()
        gradient = chain.grad
        if chain.child.is_remote:
            gradient = gradient.get()
        if isinstance(
            gradient.child if gradient.is_wrapper else None, (AutogradTensor, FixedPrecisionTensor)
        ):
            gradient = gradient.float_prec() if "Fixed" in str(gradient) else gradient
        torch.testing.assert_close(_plain(gradient).float(), 2 * data, atol=0.01, rtol=0)


def test_plain_tensors_keep_the_rule_of_torch() -> None:
    with pytest.raises(RuntimeError, match="scalar outputs"):
        (torch.ones(3, requires_grad=True) * 2).backward()


# -- item 12: the node ---------------------------------------------------------------------------------------------


def test_the_node_has_grad_data_and_attr(at_bob: Any) -> None:
    chain = at_bob(A)
    node = chain.child
    assert node.grad is None and chain.attr("grad") is None
    chain.sum().backward()
    assert node.grad is chain.grad and node.attr("grad") is chain.grad
    assert node.data is node and torch.equal(node.attr("data").get(), torch.tensor(A))
    assert torch.equal(node.attr("T").get(), torch.tensor(A).T)
    node.grad = None
    assert chain.grad is None
    node.backward()
    assert chain.grad.get().tolist() == [[1.0, 1.0], [1.0, 1.0]]


def test_setting_the_data_of_a_node_changes_its_chain(at_bob: Any) -> None:
    chain, other = at_bob(A), at_bob(B)
    chain.child.data = other.child
    assert chain.child.grad is None and torch.equal(_plain(chain.get()), torch.tensor(B))


def test_a_bare_node_whose_chain_is_gone_says_so() -> None:
    node = AutogradTensor(data=torch.ones(2))
    assert node.grad is None
    with pytest.raises(ChainError, match=r"Call `.backward\(\)` on the tensor"):
        node.backward()
    with pytest.raises(ChainError, match="Gradients belong to chains"):
        node.grad = torch.ones(2)


def test_float_precision_passes_through(alice: Any, bob: Any, charlie: Any) -> None:
    fixed = torch.tensor([1.5, -2.25]).fix_prec(precision_fractional=4)
    assert AutogradTensor().on(fixed).float_precision().tolist() == [1.5, -2.25]
    private = fixed.private_tensor(allowed_users=("ann",)).float_precision()
    assert private.child.allowed_users == ("ann",)
    a = fixed.share(alice, bob, crypto_provider=charlie, requires_grad=True)
    (a * 2).backward()
    assert a.grad.get().float_prec().tolist() == [2.0, 2.0]
    fetched = a.get().float_precision()
    assert fetched.tolist() == [1.5, -2.25] and fetched.is_leaf and fetched.grad.tolist() == [2.0, 2.0]
    local = AutogradTensor().on(fixed)
    (local * 3).backward()
    assert local.grad.float_prec().tolist() == [3.0, 3.0]


@pytest.mark.parametrize("node", [AutogradTensor, LoggingTensor])
def test_in_place_operations_above_a_pointer(bob: Any, node: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(LoggingTensor, "sink", None)
    leaf = torch.tensor(A, requires_grad=True)
    chain = node().on(leaf.send(bob))
    here = leaf.clone().detach().requires_grad_()
    results = []
    for x in (chain, here):
        y = x * 1
        same = y
        y += x
        y.mul_(x)
        y -= 1
        assert y is same
        y.sum().backward()
        results.append(y)
    assert torch.equal(_plain(results[0].detach().get()), results[1].detach())
    assert torch.equal(_plain(chain.grad.get()), here.grad)
    with torch.no_grad():
        chain -= chain.grad
        here -= here.grad
    assert torch.equal(_plain(chain.detach().get()), here.detach())
    with pytest.raises(RuntimeError, match="leaf"):
        chain += 1


@hypothesis.given(
    st.lists(st.sampled_from(["add_", "sub_", "mul_", "sin_", "neg_", "exp"]), min_size=1, max_size=5)
)
@hypothesis.settings(max_examples=25, suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture])
def test_no_program_of_in_place_operations_loses_a_gradient(bob: Any, program: list[str]) -> None:
    leaf = torch.tensor([0.3, -0.2], requires_grad=True)
    chain, here = leaf.send(bob, local_autograd=True), leaf.detach().clone().requires_grad_()
    refused = []
    for x in (chain, here):
        y = x * 2
        for step in program:
            y = getattr(y, step)(*([x] if step in ("add_", "sub_", "mul_") else []))
        try:
            y.sum().backward()
        except RuntimeError as error:  # what a step has saved, a later one has overwritten
            refused.append("modified by an inplace operation" in str(error))
    assert refused in ([], [True, True])
    if not refused:
        torch.testing.assert_close(_plain(chain.grad.get()), here.grad)


def test_sharing_with_requires_grad_puts_an_autograd_tensor_on_top(
    alice: Any, bob: Any, charlie: Any
) -> None:
    fixed = torch.tensor([1.0, -2.0]).fix_prec()
    x = fixed.share(alice, bob, crypto_provider=charlie, requires_grad=True)
    assert isinstance(x.child, AutogradTensor) and isinstance(x.child.child, FixedPrecisionTensor)
    assert isinstance(x.child.child.child, AdditiveSharingTensor) and x.requires_grad
    w = torch.tensor([1.5, 0.5]).fix_prec().share(alice, bob, crypto_provider=charlie)
    for product in (x * w, w * x, torch.mul(w, x)):
        assert product.copy().get().float_prec().tolist() == [1.5, -1.0]
        product.backward()
    assert x.grad.get().float_prec().tolist() == [4.5, 1.5]
    for same in (x.refresh(), x.detach()):
        assert same.get().float_prec().tolist() == [1.0, -2.0]


def test_a_model_shared_with_requires_grad_learns_from_data_shared_with_it(
    alice: Any, bob: Any, charlie: Any
) -> None:
    torch.manual_seed(0)
    data, target = torch.tensor([[0.0, 0], [0, 1], [1, 0], [1, 1]]), torch.tensor([[0.0], [0], [1], [1]])
    holders: dict[str, Any] = {"crypto_provider": charlie, "requires_grad": True}
    model = nn.Linear(2, 1)
    frozen = nn.Linear(2, 1).requires_grad_(False)
    assert all(p.requires_grad for p in frozen.fix_precision().share(alice, bob, **holders).parameters())
    model.fix_precision().share(alice, bob, **holders)
    x, y = (t.fix_precision().share(alice, bob, **holders) for t in (data, target))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1).fix_precision()
    losses = []
    for _ in range(10):
        optimizer.zero_grad()
        loss = ((model(x) - y) ** 2).sum()
        loss.backward()
        optimizer.step()
        losses.append(loss.get().float_precision().item())
    assert losses[-1] < 0.2 * losses[0]
    fetched = model.get().float_precision()
    assert type(fetched.weight) is nn.Parameter and fetched.weight.grad.shape == (1, 2)
    fetched(data).sum().backward()


# -- item 20: a chain in the place of a parameter -----------------------------------------------------------------


@pytest.mark.parametrize("deletes_first", [True, False])
def test_a_chain_takes_the_place_of_a_parameter(deletes_first: bool) -> None:
    model, twin = nn.Linear(3, 2), nn.Linear(3, 2)
    twin.load_state_dict(model.state_dict())
    chain = AutogradTensor().on(model.weight)
    if deletes_first:
        del model.weight
    model.weight = chain
    assert {name for name, _ in model.named_parameters()} == {"weight", "bias"}
    optimizers = [torch.optim.SGD(m.parameters(), lr=0.1) for m in (model, twin)]
    for m, optimizer in zip((model, twin), optimizers, strict=True):
        m(torch.ones(4, 3)).sum().backward()
        optimizer.step()
    assert torch.equal(_plain(model.weight.detach()), twin.weight.detach())


def test_a_chain_that_is_no_parameter_is_refused_as_torch_refuses_tensors() -> None:
    with pytest.raises(TypeError, match="Parameter"):
        nn.Linear(1, 1).weight = AutogradTensor().on(torch.ones(1, 1))


# -- item 18: numpy ------------------------------------------------------------------------------------------------


def test_a_numpy_tensor_and_its_results_are_wrapped() -> None:
    array = np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    for x in (sy.NumpyTensor(numpy_tensor=array), sy.NumpyTensor(array), torch.tensor(array).numpy_tensor()):
        assert isinstance(x, torch.Tensor) and isinstance(x.child, sy.NumpyTensor)
        assert np.array_equal(x.child.child, array)
        for y, expected in (
            (x.add(x), array + array),
            (x.mm(x.transpose()), array @ array.T),
            (x - 1, array - 1),
        ):
            assert type(y.child.child) is np.ndarray and np.array_equal(y.child.child, expected)


def test_transpose_of_a_numpy_tensor_is_that_of_numpy_or_that_of_torch() -> None:
    array = np.arange(24.0).reshape(2, 3, 4)
    x = sy.NumpyTensor(numpy_tensor=array)
    assert np.array_equal(x.transpose().child.child, array.transpose())
    assert np.array_equal(x.transpose(0, 1).child.child, array.swapaxes(0, 1))
    with pytest.raises(IndexError):
        x.transpose(0, 7)


def test_a_tensor_and_its_numpy_tensor_share_memory() -> None:
    tensor = torch.zeros(2)
    tensor.numpy_tensor().add_(3)
    assert tensor.tolist() == [3.0, 3.0]


def test_a_verbose_numpy_tensor_says_what_it_runs(capsys: Any) -> None:
    x = sy.NumpyTensor(numpy_tensor=np.ones(2), verbose=True)
    (x * 2).sum()
    assert capsys.readouterr().out.splitlines() == ["NumpyTensor runs mul", "NumpyTensor runs sum"]


# -- items 27 and 37: private tensors ----------------------------------------------------------------------------------


def test_one_name_is_one_user() -> None:
    private = torch.ones(2).private_tensor(allowed_users="User")
    assert private.child.allowed_users == ("User",)
    assert (
        private.allow("User") and not private.allow("U") and not private.allow("user") and not private.allow()
    )
    assert torch.ones(2).private_tensor(["a", "b"]).child.allowed_users == ("a", "b")
    node = torch.ones(2).private_tensor(allowed_users="User", no_wrap=True)
    assert type(node).__name__ == "PrivateTensor"
    for wrong in (3, None):
        with pytest.raises(TypeError, match="user name"):
            torch.ones(2).private_tensor(allowed_users=wrong)


def test_sending_without_a_location_is_refused_for_a_user_who_may_not_send(bob: Any) -> None:
    private = torch.ones(2).private_tensor(allowed_users="User")
    for call in (lambda: private.send(user="eve"), private.send, lambda: private.send(bob, user="eve")):
        with pytest.raises(SendNotPermittedError):
            call()
    with pytest.raises(TypeError, match="needs the worker"):
        private.send(user="User")


def test_a_private_tensor_that_is_fetched_keeps_its_list(alice: Any, bob: Any) -> None:
    secret = torch.tensor([1.0, 2.0]).private_tensor(allowed_users=["u", "v"])
    for pointer in (
        secret.send(bob, user="u"),
        secret.send(bob, user="u").copy(),
        secret.send(bob, user="u").move(alice, user="u"),
    ):
        with pytest.raises(GetNotPermittedError):
            pointer.get(user="eve")
        fetched = pointer.get(user="v")
        assert set(fetched.child.allowed_users) == {"u", "v"} and fetched.tolist() == [1.0, 2.0]
        for user in (None, "eve"):
            with pytest.raises(SendNotPermittedError):
                fetched.send(alice, user=user)
        assert fetched.send(alice, user="u").get(user="u").tolist() == [1.0, 2.0]


def test_a_private_leaf_is_fetched_with_its_gradient(bob: Any) -> None:
    leaf = torch.tensor([1.0, 2.0], requires_grad=True).private_tensor(allowed_users="u").send(bob, user="u")
    (leaf * 3).sum().backward()
    fetched = leaf.get(user="u")
    assert (
        fetched.is_leaf and fetched.grad.child.allowed_users == ("u",) and fetched.grad.tolist() == [3.0, 3.0]
    )
