"""Workers on a network whose device has no products of int64, as CUDA has none: everything on secrets is right there.

The CPU stands for the device and refuses what CUDA refuses (`fake_cuda.holders_on_cuda`).
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from fake_cuda import RefusingProducts, holders_on_cuda
from mpc.coverage import BASE, DIGITS, LAYERS, LOSSES
from mpc.network_parties import Parties, node_of
from syft.exceptions import SyftError
from syft.identity.tokens import TokenAuthority

pytestmark = pytest.mark.network

NAMES = ("alice", "bob", "carol")
BINARY = {"base": BASE, "precision_fractional": DIGITS}


@contextlib.contextmanager
def on_cuda(hook: Any, who: tuple[str, ...] = NAMES, authority: Any = None) -> Iterator[SimpleNamespace]:
    made = Parties(hook, NAMES, authority)
    with made.closing, holders_on_cuda([made.servers[name] for name in who]) as products:
        made.introduce()
        client = made.client(**made.shown("dora"))
        client.parties, client.products = made, products
        yield client


@pytest.fixture(scope="module")
def client(hook: Any) -> Iterator[SimpleNamespace]:
    with on_cuda(hook) as made:
        yield made


def words(*shape: int) -> torch.Tensor:
    return torch.randint(-(2**63), 2**63 - 1, shape)


#: Products of a secret and a public value: the function, and the shapes.
PRODUCTS = {
    "mm": (torch.mm, (3, 4), (4, 2)),
    "bmm": (torch.bmm, (2, 3, 4), (2, 4, 5)),
    "matmul": (torch.matmul, (2, 3, 4), (4, 5)),
    "mv": (torch.mv, (3, 4), (4,)),
    "dot": (torch.dot, (4,), (4,)),
    "conv1d": (F.conv1d, (1, 2, 6), (3, 2, 3)),
    "conv2d": (lambda x, w: F.conv2d(x, w, None, 2, 1), (2, 2, 5, 5), (3, 2, 3, 3)),
    "conv2d in groups": (lambda x, w: F.conv2d(x, w, groups=2), (1, 4, 5, 5), (4, 2, 2, 2)),
    "conv_transpose2d": (lambda x, w: F.conv_transpose2d(x, w, None, 2), (1, 2, 3, 3), (2, 3, 2, 2)),
}


@pytest.mark.parametrize("name", PRODUCTS)
def test_a_product_with_public_numbers_is_exact_from_both_sides(client: Any, me: Any, name: str) -> None:
    function, left, right = PRODUCTS[name]
    x, y = words(*left), words(*right)
    expected, before = function(x, y), len(client.products)
    for got in (function(client.share(x), y), function(x, client.share(y))):
        assert torch.equal(got.get(), expected)
    assert len(client.products) > before


def test_a_bias_is_added_and_a_sum_is_weighted(client: Any, me: Any) -> None:
    bias, x, y = words(2), words(3, 4), words(4, 2)
    got = torch.addmm(bias, client.share(x), y, beta=3, alpha=-2)
    assert torch.equal(got.get(), torch.addmm(bias, x, y, beta=3, alpha=-2))


def test_a_factor_that_every_holder_has_is_used_where_it_is(client: Any, me: Any) -> None:
    x, y = words(3, 4), words(4, 2)
    got = client.share(x) @ y.send(*client.holders)
    assert torch.equal(got.get(), x @ y)
    got = x.t().send(*client.holders).t() @ client.share(y)
    assert torch.equal(got.get(), x @ y)


@pytest.mark.parametrize("who", [("alice",), ("bob",), ("bob", "carol")])
def test_one_holder_may_have_a_device_and_the_other_none(hook: Any, me: Any, who: tuple[str, ...]) -> None:
    with on_cuda(hook, who) as client:
        x, y = words(3, 4), words(4, 2)
        assert torch.equal((client.share(x) @ y).get(), x @ y)
        assert client.products


def test_holders_who_deny_by_default_multiply_what_a_user_sent_them(
    hook: Any, me: Any, tmp_path: Any
) -> None:
    with on_cuda(hook, authority=TokenAuthority.create(tmp_path / "keys")) as client:
        assert all(server.admits_only_table for server in client.parties.servers.values())
        for name in ("mm", "bmm", "conv2d"):
            function, left, right = PRODUCTS[name]
            x, y = words(*left), words(*right)
            assert torch.equal(function(client.share(x), y).get(), function(x, y))
        assert client.products


def test_shapes_that_do_not_fit_are_said_by_the_client(client: Any, me: Any) -> None:
    x = client.share(words(3, 4))
    with pytest.raises((RuntimeError, ValueError), match=r"shape|reduction dim"):
        x @ words(3, 2)
    assert torch.equal((x @ torch.zeros(4, 1, dtype=torch.int64)).get(), torch.zeros(3, 1).long())


def test_the_stand_in_refuses_what_cuda_refuses(client: Any, me: Any) -> None:
    """Else the tests here could not fail."""
    x = torch.arange(4).view(2, 2).send(client.alice)
    with pytest.raises((NotImplementedError, SyftError), match="addmm_cuda"):
        (x @ x).get()


@pytest.mark.slow
def test_the_stand_in_refuses_all_that_torch_says_cuda_has_not() -> None:
    from torch.testing._internal.common_methods_invocations import op_db

    refused = [op for op in op_db if torch.int64 in op.dtypes and torch.int64 not in op.dtypesIfCUDA]
    assert len(refused) > 20
    for op in refused:
        if op.name == "native_dropout_backward":  # products element by element
            continue
        said = set()
        for sample in op.sample_inputs("cpu", torch.int64):
            with RefusingProducts(torch.device("cpu")):
                try:
                    op(sample.input, *sample.args, **sample.kwargs)
                except NotImplementedError as error:
                    said.add("not implemented for 'Long'" in str(error))
        assert said == {True}, op.name


def test_workers_on_the_cpu_are_sent_the_commands_they_always_were(hook: Any, me: Any) -> None:
    made = Parties(hook, NAMES)
    with made.closing:
        made.introduce()
        client = made.client()
        x, y = words(3, 4), words(4, 2)
        xs = client.share(x)
        for server in made.servers.values():
            server.log_msgs = True
        made_there = xs @ y
        assert torch.equal(made_there.get(), x @ y)
        history = made.servers["alice"].msg_history
        assert "aten.mm.default" in [getattr(message, "cmd_name", None) for message in history]
        assert "RunProgram" not in [type(message).__name__ for message in history]


def learns(case: Any, index: int, x: torch.Tensor) -> bool:
    """Whether an input collects a gradient: not indices, nor the targets of a loss."""
    return x.is_floating_point() and (case not in LOSSES or index == 0)


def first_of(out: Any) -> Any:
    return out[0] if isinstance(out, tuple) else out


def shared(client: Any, x: Any) -> Any:
    x = x.fix_precision(**BINARY) if x.is_floating_point() else x
    return x.share(*client.holders, crypto_provider=client.provider)


def opened(secret: Any) -> torch.Tensor:
    return secret.get().float_precision()


#: Of the layers and losses of docs/secrets_coverage.md those that are not slow here.
QUICK = {"Linear", "Conv2d", "Embedding", "AvgPool2d", "MSELoss"}


CASES = [
    pytest.param(c, weights, id=f"{c.name}, {weights}", marks=() if c.name in QUICK else pytest.mark.slow)
    for c in (*LAYERS, *LOSSES)
    for weights in ("secret", "public")
    if weights == "secret" or (c in LAYERS and c.public is True)
]


@pytest.mark.parametrize(("case", "weights"), CASES)
def test_what_the_table_of_coverage_lists_is_right_there_and_back(
    client: Any, me: Any, case: Any, weights: str
) -> None:
    torch.manual_seed(3)
    module = case.make()
    hidden = copy.deepcopy(module)
    inputs = [x.requires_grad_(learns(case, i, x)) for i, x in enumerate(case.inputs())]
    expected = first_of(module(*inputs))
    factors = torch.randn(expected.shape)
    (expected * factors).sum().backward()
    given = [shared(client, x.detach()).requires_grad_(x.requires_grad) for x in inputs]
    if weights == "secret" and isinstance(hidden, nn.Module):
        hidden.fix_precision(**BINARY).share(*client.holders, crypto_provider=client.provider)
    got = first_of(hidden(*given))
    (got * factors).sum().backward()
    assert node_of(got.detach()).child.keys() == {"alice", "bob"}
    assert (opened(got.detach()) - expected).abs().max() <= case.forward
    pairs = [(g.grad, x.grad) for g, x in zip(given, inputs, strict=True) if x.grad is not None]
    if weights == "secret" and isinstance(hidden, nn.Module):
        both = zip(hidden.parameters(), module.parameters(), strict=True)
        pairs += [(h.grad, p.grad) for h, p in both]
    assert pairs
    for ours, theirs in pairs:
        assert (opened(ours) - theirs).abs().max() <= case.gradient
