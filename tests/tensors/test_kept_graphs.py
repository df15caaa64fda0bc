"""`loss.backward()` as one message: the same numbers and the same objects as operation by operation, or that way."""

from __future__ import annotations

import gc
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

import syft as sy
from syft.messaging.message import BackwardMessage
from syft.workers.handlers import HANDLERS

hook = sy.TorchHook(torch)


class Reversed(torch.autograd.Function):
    """Gradients change their sign; the value is returned as it came."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        return -grad


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(6, 5), nn.Linear(5, 3)
        self.unused = nn.Linear(2, 2)

    def forward(self, x: Any) -> Any:
        return self.second(F.relu(self.first(x)))


def _plain(net, x, y):
    F.cross_entropy(net(x), y).backward()


def _twice_before_a_step(net, x, y):
    for _ in range(2):
        F.cross_entropy(net(x), y).backward()


def _detached_branch(net, x, y):
    hidden = net.first(x)
    F.cross_entropy(net.second(hidden.detach() + hidden.tanh()), y).backward()


def _leaf_of_a_result(net, x, y):
    hidden = net.first(x).detach().requires_grad_()
    F.cross_entropy(net.second(hidden * hidden), y).backward()
    (net.first(x) * hidden.grad).sum().backward()


def _two_leaves_of_one_value(net, x, y):
    other = net.first.weight.detach().requires_grad_()
    (F.linear(x, other) * F.linear(x, net.first.weight)).sum().backward()
    net.first.weight.grad.add_(other.grad, alpha=0.5)


def _written_in_place(net, x, y):
    hidden = net.first(x)
    view = hidden.view(-1)
    hidden.relu_()
    F.cross_entropy(net.second(hidden) + view.sum(), y).backward()


def _frozen(net, x, y):
    net.first.weight.requires_grad_(False)
    F.cross_entropy(net(x), y).backward()


def _reversed(net, x, y):
    F.cross_entropy(net.second(Reversed.apply(net.first(x))), y).backward()


def _hook_on_a_result(net, x, y):
    hidden = net.first(x)
    hidden.register_hook(lambda grad: grad * 3)
    F.cross_entropy(net.second(hidden), y).backward()


def _hook_afterwards(net, x, y):
    hidden = net.first(x)
    loss = F.cross_entropy(net.second(hidden), y)
    hidden.register_hook(lambda grad: grad * 3)
    loss.backward()


def _hook_on_a_parameter(net, x, y):
    handle = net.first.weight.register_hook(lambda grad: grad * 2)
    F.cross_entropy(net(x), y).backward()
    handle.remove()


def _hook_after_accumulation(net, x, y):
    def double(parameter):
        parameter.grad = parameter.grad * 2

    handle = net.first.weight.register_post_accumulate_grad_hook(double)
    F.cross_entropy(net(x), y).backward()
    handle.remove()


def _hook_of_a_node(net, x, y):
    loss = F.cross_entropy(net(x), y)
    loss.grad_fn.register_prehook(lambda grads: tuple(g * 2 for g in grads))
    loss.backward()


def _hook_of_the_node_of_a_leaf(net, x, y):
    """A node that was asked for once may be listened to in every later graph."""
    node = net.first.weight.expand_as(net.first.weight).grad_fn.next_functions[0][0]
    handle = node.register_prehook(lambda grads: tuple(g * 2 for g in grads))
    for _ in range(2):
        F.cross_entropy(net(x), y).backward()
    handle.remove()


def _hook_of_a_module(net, x, y):
    handle = net.second.register_full_backward_hook(lambda _m, into, _out: tuple(g * 2 for g in into))
    F.cross_entropy(net(x), y).backward()
    handle.remove()


def _retained(net, x, y):
    hidden = net.first(x)
    hidden.retain_grad()
    F.cross_entropy(net.second(hidden), y).backward()
    net.first.bias.grad = hidden.grad.sum(0)


def _retained_graph(net, x, y):
    loss = F.cross_entropy(net(x), y)
    loss.backward(retain_graph=True)
    loss.backward()


def _of_some_inputs(net, x, y):
    F.cross_entropy(net(x), y).backward(inputs=[net.second.weight])


def _two_losses_of_one_graph(net, x, y):
    hidden = net.first(x)
    (F.cross_entropy(net.second(hidden), y) + hidden.pow(2).mean()).backward()


def _two_graphs_that_meet(net, x, y):
    (net(x).logsumexp(1).sum() * net(x * 2).abs().mean()).backward()


def _by_autograd_grad(net, x, y):
    loss = F.cross_entropy(net(x), y)
    for parameter, grad in zip(
        net.second.parameters(), torch.autograd.grad(loss, net.second.parameters()), strict=True
    ):
        parameter.grad = grad


def _second_order(net, x, y):
    loss = F.cross_entropy(net(x), y)
    (grad,) = torch.autograd.grad(loss, net.first.weight, create_graph=True)
    (loss + grad.pow(2).sum()).backward()


def _checkpointed(net, x, y):
    F.cross_entropy(net.second(checkpoint(net.first, x, use_reentrant=False)), y).backward()


def _saved_tensors_changed(net, x, y):
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t * 2, lambda t: t):
        loss = net(x).pow(2).sum()
    loss.backward()


def _with_several_results(net, x, y):
    values, _indices = net.first(x).max(dim=1)
    (values.sum() + F.layer_norm(net.first(x), (5,)).pow(3).sum()).backward()


def _joined_in_a_list(net, x, y):
    torch.cat([net.first(x), net.first(x * 2)]).pow(2).sum().backward()


def _logits_written_afterwards(net, x, y):
    """torch has saved their logarithms, and does not mind."""
    logits = net(x)
    loss = F.cross_entropy(logits, y, label_smoothing=0.1) * 2
    logits.detach().sum()
    logits.view(-1).mul_(3)
    logits.add_(1)
    loss.backward()


def _logits_fetched_and_hooked(net, x, y):
    logits = net(x)
    loss = F.cross_entropy(logits, y)
    loss.register_hook(lambda grad: grad * 3)
    if type(logits) is sy.Wrapper:
        logits.get()
    loss.backward()


def _bias_written_before(net, x, y):
    """No gradient of a product depends on what was added to it."""
    hidden = net.first(x)
    result = F.relu(hidden)
    with torch.no_grad():
        net.first.bias.mul_(0.5)
    result.register_hook(lambda grad: grad * 2)
    (result * result).sum().backward()


def _relu_of_itself(net, x, y):
    hidden = net.first(x).relu()
    torch.relu(hidden.relu() - 0.1).sum().backward(inputs=[net.first.weight])


def _tied(net, x, y):
    square = net.first.weight[:, :5]
    hidden = F.linear(F.linear(net.first(x), square), square.t())
    hidden.register_hook(lambda grad: grad * 2)
    F.cross_entropy(hidden, y, reduction="sum").backward()


def _second_order_of_a_net(net, x, y):
    loss = F.cross_entropy(net(x), y)
    grads = torch.autograd.grad(loss, [net.first.weight, net.second.bias], create_graph=True)
    (loss + sum(grad.pow(2).sum() for grad in grads)).backward()


def _penalty_without_logarithms(net, x, y):
    hidden = net.second(F.relu(net.first(x)))
    grads = torch.autograd.grad(hidden.tanh().sum(), list(net.second.parameters()), create_graph=True)
    sum(grad.pow(2).sum() for grad in grads).backward()


def _of_rank_three(net, x, y):
    hidden = net.first(x.view(2, 2, 6))
    F.cross_entropy(net.second(hidden).view(4, 3), y).backward()
    F.linear(hidden.detach()[0, 0], net.second.weight).sum().backward()


def _without_a_graph_and_with(net, x, y):
    with torch.no_grad():
        constant = net(x)
    F.cross_entropy(net(x) + constant, y).backward()


PROGRAMS = [value for name, value in list(globals().items()) if name.startswith("_") and callable(value)]


def _run(program, keeps: bool | None, is_heard: bool = True) -> tuple[list[Any], int, int]:
    """The gradients after two runs; how many objects were left, and how many backward passes were one message.

    What is heard are messages: a worker to which somebody listens runs no function as one command.
    """
    bob = sy.VirtualWorker(hook, id=f"graphs_{program.__name__}_{keeps}", auto_add=False)
    torch.manual_seed(0)
    net, x, y = Net(), torch.randn(4, 6), torch.randint(3, (4,))
    asked = []
    if keeps is not None:
        bob.keeps_graphs = keeps
        net.send(bob)
        x, y = x.send(bob), y.send(bob)
    if is_heard and keeps is not None:
        bob._recv_msg = lambda message: (
            asked.append(type(message)),
            sy.VirtualWorker._recv_msg(bob, message),
        )[1]
    for _ in range(2):  # what was never run before takes another way
        net.zero_grad()
        program(net, x, y)
    held = len(bob._objects)
    grads = [p.grad if p.grad is None or keeps is None else p.grad.copy().get() for p in net.parameters()]
    return grads, held, asked.count(BackwardMessage)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_gradients_and_objects_are_the_same_however_they_are_computed(program):
    plain, _, _ = _run(program, None)
    kept, held, _ = _run(program, True)
    fused, held_fused, _ = _run(program, True, is_heard=False)
    passed, held_without, asked = _run(program, False)
    assert asked == 0 and held == held_without == held_fused
    for mine, *others in zip(plain, kept, fused, passed, strict=True):
        for other in others:
            assert (mine is None) == (other is None)
            if mine is not None:
                assert torch.equal(mine, other) and mine.stride() == other.stride()


@pytest.mark.parametrize(
    ("program", "most"),
    [(_plain, 2), (_twice_before_a_step, 4), (_detached_branch, 2), (_two_graphs_that_meet, 2), (_frozen, 2)],
)
def test_usual_programs_take_one_message(program, most):
    assert _run(program, True)[2] >= most - 1  # operations that were never run take the other way


@pytest.mark.parametrize(
    "program",
    [
        *(
            _hook_on_a_result,
            _hook_of_a_node,
            _reversed,
            _retained,
            _written_in_place,
            _saved_tensors_changed,
        ),
        *(_hook_of_the_node_of_a_leaf, _hook_on_a_parameter, _two_leaves_of_one_value),
    ],
)
def test_programs_that_the_worker_cannot_know_do_not(program):
    assert _run(program, True)[2] == 0


def _remote(name):
    bob = sy.VirtualWorker(hook, id=name, auto_add=False)
    torch.manual_seed(0)
    return bob, Net().send(bob), torch.randn(4, 6).send(bob), torch.randint(3, (4,)).send(bob)


def test_a_graph_is_differentiated_once():
    _, net, x, y = _remote("graphs_once")
    for _ in range(2):
        hidden = net.first(x)
        loss = F.cross_entropy(net.second(hidden), y)
        loss.backward()
        for again in (loss.backward, lambda: torch.autograd.backward(loss), lambda: hidden.sum().backward()):  # noqa: B023
            with pytest.raises(RuntimeError, match="second time"):
                again()


def test_a_fetched_loss_cannot_be_differentiated_again():
    _, net, x, y = _remote("graphs_fetched")
    for _ in range(2):
        loss = F.cross_entropy(net(x), y)
        loss.backward()
        with pytest.raises(RuntimeError, match="second time"):
            loss.get().backward()


def test_one_message_per_step_and_no_operation_of_the_backward_pass():
    bob, net, x, y = _remote("graphs_counted")
    sgd = torch.optim.SGD(net.parameters(), lr=0.1)
    kinds: list[Any] = []
    for _ in range(3):
        kinds.clear()
        bob._recv_msg = lambda message: (
            kinds.append(type(message)),
            sy.VirtualWorker._recv_msg(bob, message),
        )[1]
        sgd.zero_grad()
        loss = F.cross_entropy(net(x), y)
        forward = len(kinds)
        loss.backward()
        backward = kinds[forward:]
        sgd.step()
    assert backward == [BackwardMessage]
    assert forward == 7 and len(kinds) == 12  # t, addmm, relu, t, addmm, log_softmax, nll_loss; four updates


@pytest.mark.parametrize("kept", ["nothing", "loss", "output", "sum"])
def test_objects_stay_the_same_over_a_thousand_steps(kept):
    bob, net, x, y = _remote(f"graphs_flat_{kept}")
    sgd = torch.optim.SGD(net.parameters(), lr=0.01)
    results: list[Any] = []
    counts = []
    total: Any = 0
    for step in range(1000 if kept == "nothing" else 60):
        sgd.zero_grad()
        output = net(x)
        loss = F.cross_entropy(output, y)
        loss.backward()
        sgd.step()
        if kept in ("loss", "output"):
            results.append(loss if kept == "loss" else output)
        elif kept == "sum":
            total = total + loss.get()
        if step % 20 == 19:
            counts.append(len(bob._entries) - len(results))
    gc.collect()
    assert max(counts[1:]) <= counts[1] + 8, counts


def test_a_switch_and_whoever_reads_messages_turn_it_off():
    assert sy.VirtualWorker.keeps_graphs and not sy.NetworkServerWorker.keeps_graphs

    class Listening(sy.VirtualWorker):
        pass

    assert not Listening.keeps_graphs
    bob, net, x, y = _remote("graphs_logged")
    bob.log_msgs = True
    for _ in range(2):
        F.cross_entropy(net(x), y).backward()
    assert BackwardMessage not in {type(message) for message in bob.msg_history}


def test_restricted_data_takes_the_way_that_is_guarded():
    bob, net, _, y = _remote("graphs_private")
    for _ in range(3):
        x = torch.ones(4, 6).private_tensor(allowed_users=["ann"]).send(bob, user="ann")
        net.zero_grad()
        F.cross_entropy(net(x), y).backward()
        with pytest.raises(sy.exceptions.GetNotPermittedError):
            net.first.weight.grad.copy().get()
        assert net.first.weight.grad.copy().child.get_copy(user="ann").shape == (5, 6)


def test_a_worker_without_the_graph_says_so():
    bob, net, x, y = _remote("graphs_missing")
    assert HANDLERS[BackwardMessage](bob, BackwardMessage(1, (), ())) is None
    for _ in range(2):
        net.zero_grad()
        loss = F.cross_entropy(net(x), y)
        bob._entries[loss.child.id_at_location].tracked = None  # it was replaced
        loss.backward()
    assert net.first.weight.grad.copy().get().abs().sum() > 0


def test_an_error_in_the_backward_pass_is_raised_and_leaves_no_gradients():
    _, net, x, _ = _remote("graphs_error")
    for _ in range(2):
        hidden = net.first(x).exp()
        loss = hidden.sum()
        with torch.no_grad():
            hidden.zero_()
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            loss.backward()
    assert net.first.weight.grad is None


class _Reversed(torch.autograd.Function):
    """Returns the same value, with another gradient."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x.detach()

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        return -gradient


@pytest.mark.parametrize("last", [True, False])
def test_a_function_that_returns_its_input_keeps_its_gradient(bob: Any, last: bool) -> None:
    weight = torch.ones(3).send(bob).requires_grad_()
    for _ in range(2):
        weight.grad = None
        result = _Reversed.apply((weight * 2).sum()) if last else (_Reversed.apply(weight * 2) * 3).sum()
        result.backward()
        assert weight.grad.clone().get().tolist() == ([-2.0] * 3 if last else [-6.0] * 3)
