"""Fixed precision as the programs of 2020 use it."""

from __future__ import annotations

import operator
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import syft as sy
from syft.mpc.precision import FixedPrecisionTensor
from syft.mpc.rules import fixed_bits

COMPARISONS = [operator.gt, operator.ge, operator.lt, operator.le, operator.eq, operator.ne]
COMBINATIONS = {
    "sum": operator.add,
    "difference": operator.sub,
    "product": operator.mul,
    "choice": lambda a, b: a + b - a * b,
    "weighted": lambda a, b: 2.5 * a - b * 3 + 1,
    "opposite": lambda a, b: (1 - a) * b,
    "mean": lambda a, b: (a + b) / 2,
    "count": lambda a, b: (a + b).sum(),
    "turned": lambda a, b: a.view(-1).flip(0) * b.view(-1).flip(0),
}
quarters = st.integers(-12, 12).map(lambda units: units / 4)


def _chain(values: torch.Tensor, holders: int) -> Any:
    fixed = values.fix_precision()
    if not holders:
        return fixed
    workers = [sy.VirtualWorker(sy.hook, id=f"unit{i}") for i in range(holders)]
    return fixed.share(*workers, crypto_provider=sy.VirtualWorker(sy.hook, id="deal"))


def _values(chain: Any) -> torch.Tensor:
    here = chain if isinstance(chain.child.child, torch.Tensor) else chain.get()
    return here.float_precision()


# -- comparisons are numbers (34) -----------------------------------------------------------------------


@settings(max_examples=80)
@given(
    st.lists(st.tuples(quarters, quarters), min_size=1, max_size=4),
    st.sampled_from(COMPARISONS),
    st.sampled_from(COMPARISONS),
    st.sampled_from(sorted(COMBINATIONS)),
    st.sampled_from([0, 2, 3]),
)
def test_comparisons_are_numbers_and_arithmetic_on_them_is_right(
    pairs: list[tuple[float, float]], one: Any, other: Any, combination: str, holders: int
) -> None:
    left, right = (torch.tensor(side) for side in zip(*pairs, strict=True))
    x, y = _chain(left, holders), _chain(right, holders)
    combine = COMBINATIONS[combination]
    expected = combine(one(left, right).float(), other(left, 0.5).float())
    found = combine(one(x, y), other(x, 0.5))
    assert found.dtype == torch.float32
    assert torch.allclose(_values(found), expected, atol=2e-3)


@settings(max_examples=40)
@given(
    st.lists(st.tuples(quarters, quarters), min_size=1, max_size=4),
    st.sampled_from(COMPARISONS),
    st.sampled_from([0, 2, 3]),
    st.sampled_from(["as it is", "a view", "written", "written through a view", "travelled"]),
)
def test_a_comparison_serves_as_a_mask_whatever_was_done_to_it(
    pairs: list[tuple[float, float]], compare: Any, holders: int, history: str
) -> None:
    left, right = (torch.tensor(side) for side in zip(*pairs, strict=True))
    x, y = _chain(left, holders), _chain(right, holders)
    mask, expected = compare(x, y), compare(left, right).float()
    if history == "a view":
        mask, expected = mask.view(1, -1).t(), expected.view(1, -1).t()
    elif history == "written":
        mask.sub_(1)
        expected.sub_(1)
    elif history == "written through a view":
        seen = mask.view(1, -1)
        seen += 1
        expected.view(1, -1).add_(1)
    elif history == "travelled":
        sent = mask  # its shares live as long as this pointer
        mask = sy.serde.deserialize(sy.serde.serialize(sent))
    assert torch.equal(_values(torch.where(mask, x, y)), torch.where(expected != 0, left, right))
    assert torch.equal(_values(x.masked_fill(mask, 7.0)), left.masked_fill(expected != 0, 7.0))
    assert torch.equal(_values(~mask), (expected == 0).float())
    assert torch.equal(_values(mask.bool() & (x > 0).bool()), (expected != 0) & (left > 0))
    assert torch.equal(_values(mask * x), expected * left)


@pytest.mark.parametrize("holders", [0, 2, 3])
def test_the_sign_is_a_difference_of_comparisons(holders: int) -> None:
    x = _chain(torch.tensor([1.5, 0.0, -2.0]), holders)
    assert _values((x > 0) - (x < 0)).tolist() == [1.0, 0.0, -1.0]
    assert _values((x > 0) + (x > 0) + (x > 0)).tolist() == [3.0, 0.0, 0.0]
    assert _values((x > 0).sum()).item() == 1.0
    assert _values((x > 0) & (x < 1)).tolist() == [0.0, 0.0, 0.0]
    assert _values((x > 0) | (x < 0)).tolist() == [1.0, 0.0, 1.0]
    assert _values((x > 0).any() + (x > -9).all()).item() == 2.0
    assert _values((x > 0).long()).tolist() == [1, 0, 0]


def test_integers_in_fixed_precision_compare_to_numbers_too() -> None:
    scores = _chain(torch.tensor([[1.0, 3.0], [4.0, 0.5]]), 2)
    right = scores.argmax(dim=1).eq(torch.tensor([1, 1]))
    assert _values(right + right).tolist() == [2.0, 0.0]
    assert _values(right.sum()).long().item() == 1


def test_a_mask_costs_no_second_comparison_and_its_product_no_truncation(monkeypatch: Any) -> None:
    x = _chain(torch.tensor([[1.5, -2.0]]), 2)
    mask = x > 0
    refuse = pytest.fail

    def refused(*_args: Any) -> Any:
        refuse("the bits were known")

    secret = type(x.child.child)
    for name in ("less_than_zero", "equals_zero", "truncate"):
        monkeypatch.setattr(secret, name, refused)
    product, chosen = mask * x, torch.where(mask.t(), x.t(), 0.0)
    monkeypatch.undo()
    assert _values(product).tolist() == [[1.5, 0.0]] and _values(chosen).tolist() == [[1.5], [0.0]]


def test_what_was_known_of_bits_ends_with_a_write() -> None:
    mask = torch.tensor([1.0, -1.0]).fix_prec() > 0
    view, copied = mask.view(2, 1), mask.clone()
    assert fixed_bits.known(view.child) is not None
    view.add_(1)
    assert fixed_bits.known(mask.child) is None and fixed_bits.known(view.child) is None
    assert torch.where(copied, 5.0, 1.0).float_prec().tolist() == [5.0, 1.0]


def test_a_local_mask_selects_and_a_secret_one_is_refused() -> None:
    x = torch.tensor([1.5, -2.0, 3.0]).fix_prec()
    assert x[x > 0].float_prec().tolist() == [1.5, 3.0]
    assert x.masked_select(x < 0).float_prec().tolist() == [-2.0]
    x[x < 0] = 0.5
    assert x.float_prec().tolist() == [1.5, 0.5, 3.0]
    shared = _chain(torch.tensor([1.5, -2.0]), 2)
    with pytest.raises(NotImplementedError, match="index or mask is a secret"):
        shared[shared > 0]


def test_truth_of_one_local_comparison_is_a_python_bool() -> None:
    x = torch.tensor([2.0]).fix_prec()
    assert (x > 1) and not (x > 3)
    assert bool((x == 2).all()) and isinstance(x.child, FixedPrecisionTensor)


# -- functions with the parameters of 2020 (14), fields (5) ------------------------------------------------------

CALLS = [
    ("sigmoid", {"method": "exp"}),
    ("sigmoid", {"method": "maclaurin"}),
    ("sigmoid", {"method": "chebyshev"}),
    ("tanh", {"method": "chebyshev"}),
    ("tanh", {"method": "sigmoid"}),
    ("exp", {"iterations": 8}),
    ("log", {"iterations": 2, "exp_iterations": 8}),
    ("reciprocal", {"method": "NR", "nr_iters": 10}),
    ("reciprocal", {"method": "division"}),
]


@pytest.mark.parametrize("holders", [0, 2])
@pytest.mark.parametrize(("name", "options"), CALLS)
def test_methods_and_iterations_of_2020_are_accepted(name: str, options: Any, holders: int) -> None:
    values = torch.tensor([0.5, 1.25, 2.0])
    x = _chain(values, holders)
    expected = getattr(values, name)()
    assert torch.allclose(_values(getattr(x, name)(**options)), expected, atol=5e-3)
    assert torch.allclose(_values(getattr(x, name)(*options.values())), expected, atol=5e-3)
    node = getattr(x.child, name)(**options)
    assert torch.allclose(_values(node.wrap()), expected, atol=5e-3)


def test_methods_that_nobody_knows_are_refused() -> None:
    x = torch.tensor([0.5]).fix_prec()
    for name in ("sigmoid", "tanh", "reciprocal"):
        with pytest.raises(ValueError, match="the methods are"):
            getattr(x, name)(method="magic")
    with pytest.raises(ValueError, match="from 1 on"):
        x.exp(iterations=0)
    with pytest.raises(TypeError, match="takes iterations"):
        x.exp(steps=3)
    with pytest.raises(TypeError, match="more than that"):
        x.exp(8, 8)
    with pytest.raises(TypeError):
        torch.tensor([0.5]).sigmoid(method="exp")
    pointer = torch.tensor([0.5]).send(sy.VirtualWorker(sy.hook, id="unit0"))
    with pytest.raises(TypeError, match="fixed precision"):
        pointer.sigmoid(method="exp")


def test_gradients_go_through_functions_with_parameters() -> None:
    x = torch.tensor([0.5], requires_grad=True)
    x.fix_prec().sigmoid(method="exp").float_prec().sum().backward()
    leaf = torch.tensor([0.5]).fix_prec().requires_grad_()
    leaf.sigmoid(method="exp").sum().backward()
    assert abs(leaf.grad.float_prec().item() - 0.235) < 5e-3


def test_a_field_is_a_checked_range() -> None:
    x = torch.tensor([1.5]).fix_prec(field=2**16)
    assert x.child.field == 2**16 and x.float_prec().item() == 1.5
    with pytest.raises(ValueError, match="holds -32768 to 32767"):
        torch.tensor([150.5]).fix_prec(field=2**16)
    with pytest.raises(ValueError, match="powers of two"):
        torch.tensor([1.5]).fix_prec(field=67)
    bob = sy.VirtualWorker(sy.hook, id="unit0")
    there = torch.tensor([1.5]).send(bob).fix_prec(field=2**16)
    assert bob._objects[there.id_at_location].child.field == 2**16
    with pytest.raises(ValueError, match="holds -32768 to 32767"):
        torch.tensor([150.5]).send(bob).fix_prec(field=2**16)
    restricted = torch.tensor([1.5]).send(bob)
    bob.restrict(restricted.id_at_location, frozenset({"ann"}))
    with pytest.raises(ValueError, match="not here"):
        restricted.fix_prec(field=2**16)


# -- optimizers (40) ------------------------------------------------------------------------------------------


def test_hyper_parameters_become_fixed_precision_and_floats_again() -> None:
    weight = torch.nn.Parameter(torch.tensor([1.0]))
    optimizer = torch.optim.Adam([weight], lr=0.1, weight_decay=0.25)
    assert optimizer.fix_precision(precision_fractional=4) is optimizer
    (group,) = optimizer.param_groups
    assert group["lr"].child.item() == 1000 and group["lr"].precision_fractional == 4
    assert abs(group["lr"].float_precision().item() - 0.1) < 1e-6
    assert group["betas"][0].child.item() == 9000 and group["weight_decay"].child.item() == 2500
    optimizer.float_precision()
    assert [type(group[name]) for name in ("lr", "eps", "weight_decay")] == [float] * 3
    assert type(group["betas"][0]) is float and group["lr"] == 0.1
    with pytest.raises(TypeError, match="got field"):
        optimizer.fix_precision(field=3)
    with pytest.raises(ValueError, match="do not describe numbers"):
        optimizer.fix_precision(base=1)


def test_a_learning_rate_below_the_precision_still_trains() -> None:
    model = torch.nn.Linear(1, 1, bias=False)
    torch.nn.init.constant_(model.weight, 1.0)
    model.fix_precision()
    optimizer = torch.optim.SGD(model.parameters(), lr=4e-4).fix_precision()
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
    for _ in range(2):
        optimizer.zero_grad()
        (model(torch.tensor([[100.0]]).fix_prec()) * 1).sum().backward()
        optimizer.step()
        scheduler.step()
    assert abs(model.weight.float_precision().item() - (1 - 0.04 - 0.02)) < 2e-3


# -- items 16 and 34 through pointers: chains that were sent ------------------------------------------------------


@pytest.fixture
def places() -> Any:
    hook = sy.TorchHook(torch)
    made = [sy.VirtualWorker(hook, id=name) for name in ("far_bob", "far_alice", "far_provider")]
    yield made
    for worker in made:
        worker.clear_objects()


@settings(deadline=None, max_examples=25)
@given(
    values=st.lists(st.integers(-5000, 5000), min_size=4, max_size=4),
    digits=st.integers(3, 5),
    base=st.sampled_from([2, 10]),
)
def test_a_chain_that_was_sent_computes_as_it_does_here(values: list[int], digits: int, base: int) -> None:
    bob = sy.VirtualWorker(sy.TorchHook(torch), id="far_bob")
    here = (torch.tensor(values, dtype=torch.float64) / 1000).view(2, 2).fix_prec(digits, base)
    there = here.copy().send(bob)
    for compute in (
        lambda x: (x > 0) - (x < 0),
        lambda x: x @ x + x * 2,
        lambda x: (x - x.mean()) * (x == x),
        lambda x: x.clone().add_(x).mul_(2),
    ):
        expected = compute(here).float_prec()
        far = compute(there)
        assert torch.equal(far.float_prec().get(), expected)
        assert torch.equal(far.get().float_prec(), expected)


def test_decoding_there_gives_a_pointer_to_floats_and_leaves_nothing_behind(places: Any) -> None:
    bob, _alice, _provider = places
    x = torch.tensor([1.5, -2.0]).fix_prec().send(bob)
    floats = x.float_precision()
    assert isinstance(floats.child, sy.PointerTensor) and floats.dtype is torch.float32
    assert type(bob._objects[floats.id_at_location]) is torch.Tensor
    floats += 1
    assert x.get().float_prec().tolist() == [1.5, -2.0]  # a copy, as everywhere
    assert floats.get().tolist() == [2.5, -1.0]
    del x, floats
    assert not bob._objects


def test_a_chain_that_was_sent_is_shared_where_it_is(places: Any) -> None:
    bob, alice, provider = places
    x = torch.tensor([1.5, -2.0]).fix_prec(precision_fractional=4).send(bob)
    secret = x.share(bob, alice, crypto_provider=provider)
    assert secret.location is bob and bob._objects[secret.id_at_location].child.precision_fractional == 4
    opened = (secret * secret).get().get()
    assert isinstance(opened.child, FixedPrecisionTensor) and opened.float_prec().tolist() == [2.25, 4.0]


def test_gradients_of_a_chain_that_was_sent(places: Any) -> None:
    bob, _alice, _provider = places
    x = torch.tensor([1.5, -2.0]).fix_prec().send(bob).requires_grad_()
    loss = (x * x).sum()
    loss.backward()
    assert x.grad.get().float_prec().tolist() == [3.0, -4.0] and x.float_prec().is_leaf
    x.grad = None
    floats = (x * x).sum().float_prec()
    assert isinstance(floats.child, sy.PointerTensor) and bob._objects[floats.id_at_location].item() == 6.25
    (floats * 2).backward()
    assert x.grad.get().float_prec().tolist() == [6.0, -8.0]
    assert loss.get().float_prec().item() == 6.25


def test_what_is_fixed_already_at_a_worker_is_not_encoded_again(places: Any) -> None:
    x = torch.tensor([1.5]).fix_prec(precision_fractional=5).send(places[0])
    with pytest.raises(sy.exceptions.ChainError, match=r"base=10, precision_fractional=5"):
        x.fix_prec()
    with pytest.raises(sy.exceptions.CannotRequestObjectAttribute, match="not in fixed precision"):
        torch.tensor([1.5]).send(places[0]).attr("integers")
    assert torch.tensor([1.5]).send(places[0]).fix_prec().float_prec().get().tolist() == [1.5]


def test_decoding_and_sharing_keep_the_restrictions_of_a_chain(places: Any) -> None:
    bob, alice, provider = places
    x = torch.tensor([1.5]).fix_prec().send(bob)
    bob.restrict(x.id_at_location, frozenset({"ann"}))
    floats = x.float_prec()
    with pytest.raises(sy.exceptions.GetNotPermittedError):
        floats.get()
    with pytest.raises(sy.exceptions.GetNotPermittedError):
        x.share(alice, provider)
    with pytest.raises(sy.exceptions.UnsupportedOperationError, match="as plain tensors"):
        x + x
    assert floats.get(user="ann").tolist() == [1.5]
