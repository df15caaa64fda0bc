"""Additive shares as the programs of 2020 use them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import syft as sy
from syft.core.abstract import AbstractTensor
from syft.core.hook_args import default_register_tensor
from syft.frameworks.torch.tensors.interpreters.additive_shared import AdditiveSharingTensor, no_wrap
from syft.frameworks.torch.tensors.interpreters.precision import FixedPrecisionTensor

integers = st.integers(-(2**40), 2**40)


@pytest.fixture
def group(make_worker: Any) -> SimpleNamespace:
    alice, bob, carol, james = (make_worker(name) for name in ("alice", "bob", "carol", "james"))

    def share(value: Any, *options: Any, **named: Any) -> Any:
        tensor = torch.as_tensor(value)
        if tensor.is_floating_point():
            tensor = tensor.fix_precision()  # type: ignore[attr-defined]
        return tensor.share(alice, bob, *options, crypto_provider=james, **named)  # type: ignore[attr-defined]

    return SimpleNamespace(alice=alice, bob=bob, carol=carol, james=james, share=share)


# -- refresh (3) --------------------------------------------------------------------------------------------


def test_refresh_is_the_identity_for_values_and_gradients(group: Any) -> None:
    w = group.share([1.0, -2.0]).requires_grad_()
    x = group.share([3.0, 4.0])
    loss = (w * x).sum()
    fresh = loss.refresh()
    before, after = (t.child.child.pointers[0].wrap().copy().get() for t in (loss, fresh))
    assert not torch.equal(before, after)
    (fresh / 2).backward()
    assert w.grad.get().float_prec().tolist() == [1.5, 2.0]
    assert fresh.detach().get().float_prec().item() == -5.0


def test_a_model_trains_with_the_refreshed_loss_of_2020(group: Any) -> None:
    torch.manual_seed(0)
    data, target = torch.randn(8, 2), torch.randn(8, 1)
    model, plain = torch.nn.Linear(2, 1), torch.nn.Linear(2, 1)
    plain.load_state_dict(model.state_dict())
    model.fix_precision().share(group.alice, group.bob, crypto_provider=group.james)  # type: ignore[attr-defined]
    x, y = group.share(data), group.share(target)
    for net, inputs, wanted, step in ((model, x, y, "refresh"), (plain, data, target, None)):
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        for _ in range(3):
            optimizer.zero_grad()
            loss = ((net(inputs) - wanted) ** 2).sum()
            ((loss.refresh() if step else loss) / 8).backward()
            optimizer.step()
    found = model.get().float_precision()  # type: ignore[attr-defined]
    assert torch.allclose(found.weight, plain.weight, atol=1e-2)


def test_refresh_of_what_is_not_shared_says_so() -> None:
    with pytest.raises(sy.exceptions.SyftError, match="refresh"):
        torch.tensor([1]).refresh()  # type: ignore[attr-defined]


# -- arithmetic and the field (15, 43) ------------------------------------------------------------------------


@settings(max_examples=30)
@given(st.lists(integers, min_size=1, max_size=4), st.integers(2, 1000))
def test_the_remainder_of_a_secret_is_that_of_python(values: list[int], n: int) -> None:
    workers = [sy.VirtualWorker(sy.hook, id=f"unit{i}") for i in range(3)]
    secret = torch.tensor(values).share(*workers[:2], crypto_provider=workers[2])  # type: ignore[attr-defined]
    assert (secret % n).get().tolist() == [value % n for value in values]
    assert secret.mod(n).get().tolist() == [value % n for value in values]


@settings(max_examples=30)
@given(st.lists(st.integers(0, 2**62 - 1), min_size=1, max_size=4), st.integers(2, 5))
def test_the_sum_of_the_shares_modulo_the_field_is_the_secret(values: list[int], holders: int) -> None:
    workers = [sy.VirtualWorker(sy.hook, id=f"unit{i}") for i in range(holders)]
    x = torch.tensor(values).share(*workers)  # type: ignore[attr-defined]
    shares = [worker._objects[x.child.child[worker.id].id_at_location] for worker in workers]
    assert (sum(shares) % x.child.field).tolist() == values
    assert [sum(parts) % x.field for parts in zip(*(s.tolist() for s in shares), strict=True)] == values
    made = AdditiveSharingTensor.generate_shares(torch.tensor(values), holders, x.field, int)
    assert (sum(made) % x.field).tolist() == values and len(made) == holders


def test_dtype_and_field_of_share_are_checked(group: Any) -> None:
    assert group.share([5], dtype="long").field == 2**62 == group.share([5]).field
    assert group.share([5], dtype="int").field == 2**32
    assert group.share([5, -4], dtype="custom", field=2**4).child.field == 2**4
    assert (group.share([5], dtype="int") + 1).get().tolist() == [6]
    with pytest.raises(ValueError, match="holds -2147483648 to 2147483647"):
        group.share([2**40], dtype="int")
    with pytest.raises(ValueError, match="'long', 'int' and 'custom'"):
        group.share([5], dtype="short")
    with pytest.raises(ValueError, match="takes field="):
        group.share([5], dtype="custom")
    with pytest.raises(ValueError, match="powers of two"):
        group.share([5], dtype="custom", field=67)
    there = torch.tensor([5, 2**40]).send(group.alice)  # type: ignore[attr-defined]
    assert there[:1].share(group.alice, group.bob, dtype="int").get().field == 2**32
    with pytest.raises(ValueError, match="holds -2147483648 to 2147483647"):
        there.share(group.alice, group.bob, dtype="int")
    group.alice.restrict(there.id_at_location, frozenset({"ann"}))
    with pytest.raises(ValueError, match="nobody here can check"):
        there.share(group.alice, group.bob, dtype="int", user="ann")


def test_the_truth_of_several_shared_elements_is_a_value_error(group: Any) -> None:
    for secret in (group.share([1, 2]), group.share([1.0, 2.0]), group.share([1.0, 2.0]) > 0):
        with pytest.raises(ValueError, match=r"ambiguous.*\.any\(\)"):
            bool(secret)
    with pytest.raises(ValueError, match="not here"):
        bool(group.share([1]))


# -- places that only the holders know (15) -------------------------------------------------------------------


@pytest.mark.parametrize("values", [torch.arange(12).view(3, 4), torch.arange(12.0).view(3, 4)])
def test_pointers_at_every_holder_are_an_index_and_a_shift(group: Any, values: torch.Tensor) -> None:
    def opened(secret: Any) -> torch.Tensor:
        found = secret.get()
        return found.float_prec() if values.is_floating_point() else found

    index = torch.tensor([2, 0])
    there = index.send(group.alice, group.bob)  # type: ignore[attr-defined]
    x = group.share(values)
    assert torch.equal(opened(x[there]), values[index])
    assert torch.equal(opened(x[:, there]), values[:, index])
    shift = torch.tensor(3).send(group.bob, group.alice)  # type: ignore[attr-defined]
    assert torch.equal(opened(torch.roll(x, shift, 1)), torch.roll(values, 3, 1))
    assert torch.equal(opened(torch.roll(x, shift)), torch.roll(values, 3))
    assert torch.equal(opened(x.roll((shift, 1), (1, 0))), values.roll((3, 1), (1, 0)))
    assert torch.equal(opened(x.roll(1, 0)), values.roll(1, 0))


def test_an_index_that_not_every_holder_has_is_refused(group: Any) -> None:
    x = group.share([1, 2, 3])
    with pytest.raises(sy.exceptions.SyftError, match="every holder"):
        x[torch.tensor([1]).send(group.alice, group.carol)]  # type: ignore[attr-defined]
    with pytest.raises(sy.exceptions.SyftError, match="every holder"):
        torch.roll(x, torch.tensor(1).send(group.alice), 0)  # type: ignore[attr-defined]


# -- a secret shared on a pointer (15) ------------------------------------------------------------------------


def test_what_is_computed_from_a_secret_shared_there_is_fetched_twice(group: Any) -> None:
    x = torch.tensor([1, 2]).send(group.carol).share(group.alice, group.bob, crypto_provider=group.james)  # type: ignore[attr-defined]
    y = (x + x) * x
    assert (x + x).get().get().tolist() == [2, 4]
    assert y.get().get().tolist() == [2, 8]
    here = group.share([10, 10])
    with pytest.raises(
        sy.exceptions.ChainError, match=r"a pointer to 'carol'.*still shared, with `\.get\(\)`"
    ):
        x + here
    assert (x.copy().get() + here).get().tolist() == [11, 12]
    assert (x.get() + 1).get().tolist() == [2, 3]


def test_the_gradient_of_a_secret_shared_there_is_opened_for_its_tensor(group: Any) -> None:
    x = torch.tensor([2.0], requires_grad=True).send(group.carol)  # type: ignore[attr-defined]
    y = (x * 1).fix_prec().share(group.alice, group.bob, crypto_provider=group.james)
    (y * y).sum().backward()
    assert abs(float(x.grad if not x.grad.is_wrapper else x.grad.get()) - 4.0) < 5e-3


# -- nodes (15) ---------------------------------------------------------------------------------------------


def test_a_node_is_put_on_a_tensor_and_split_among_workers(group: Any) -> None:
    chain = AdditiveSharingTensor(crypto_provider=group.james).on(torch.tensor([1, -2]))
    with pytest.raises(sy.exceptions.ChainError, match="not split yet"):
        chain + 1
    with pytest.raises(sy.exceptions.ChainError, match="not split yet"):
        chain.get()
    node = chain.child.init_shares(group.alice, group.bob)
    assert node is chain.child and sorted(node.child) == ["alice", "bob"]
    assert (chain * chain).get().tolist() == [1, 4]
    with pytest.raises(sy.exceptions.ChainError, match="split already"):
        node.init_shares(group.alice, group.bob)
    reals = AdditiveSharingTensor().on(torch.tensor([1.5]))
    assert torch.equal(reals.child.child, torch.tensor([1.5]))
    with pytest.raises(TypeError, match="secrets are integers"):
        reals.child.init_shares(group.alice, group.bob)


def test_shares_are_generated_and_selected(group: Any) -> None:
    with pytest.raises(ValueError, match="two or more"):
        AdditiveSharingTensor.generate_shares(torch.tensor([1]), 1)
    with pytest.raises(TypeError, match="integers"):
        AdditiveSharingTensor.generate_shares(torch.tensor([1.0]), 2)
    chosen = AdditiveSharingTensor.select_worker(({"alice": 1, "bob": 2}, 7), group.bob)
    assert chosen == (2, 7) == AdditiveSharingTensor.select_worker(({"alice": 1, "bob": 2}, 7), "bob")


def test_nodes_of_fixed_precision_are_used_by_themselves(group: Any) -> None:
    node = torch.tensor([1.5, -2.25]).fix_prec().child  # type: ignore[attr-defined]
    assert node.field == 2**62
    assert node.truncate(2).child.tolist() == [15, -22] and node.truncate(0).child.tolist() == [1500, -2250]
    assert node.mul_and_div(2, "mul").float_precision().tolist() == [3.0, -4.5]
    assert node.mul_and_div(node, "div").float_precision().tolist() == [1.0, 1.0]
    shared = node.share(group.alice, group.bob, crypto_provider=group.james)
    assert isinstance(shared.child, AdditiveSharingTensor) and isinstance(node.child, torch.Tensor)
    assert node.share_(group.alice, group.bob, crypto_provider=group.james) is node
    assert node.wrap().get().float_prec().tolist() == [1.5, -2.25]
    with pytest.raises(ValueError, match="'mul' and 'div'"):
        node.mul_and_div(2, "pow")
    with pytest.raises(ValueError, match="digits"):
        node.truncate(-1)
    bare = torch.tensor([3]).share(group.alice, group.bob, crypto_provider=group.james, **no_wrap)  # type: ignore[attr-defined]
    assert type(bare) is AdditiveSharingTensor and bare.get().tolist() == [3]


def test_a_node_encodes_what_it_stands_on(group: Any) -> None:
    node = FixedPrecisionTensor(precision_fractional=2)
    made = node.on(torch.tensor([1.5]), wrap=False).fix_precision()
    assert made is node and node.child.tolist() == [150] and node.float_precision().tolist() == [1.5]
    with pytest.raises(sy.exceptions.ChainError, match="already"):
        node.fix_precision()
    with pytest.raises(ValueError, match="kappa"):
        type(node)(kappa=1)


# -- maxima (47) --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("values", [[[1, 5, 5], [7, 0, -3]], [[1.0, 5.0, 5.0], [7.5, 0.0, -3.0]]])
@pytest.mark.parametrize("name", ["max", "min"])
def test_extremes_along_a_dimension_are_values_and_indices(group: Any, values: Any, name: str) -> None:
    plain, secret = torch.tensor(values), group.share(values)

    def opened(chain: Any) -> torch.Tensor:
        found = chain.get()
        return found.float_prec() if found.is_wrapper else found

    expected = getattr(plain, name)(dim=1)
    found = getattr(secret, name)(dim=1)
    assert torch.equal(opened(found.values), expected.values)
    assert torch.equal(opened(found.indices), expected.indices)
    pair = getattr(secret, name)(dim=1, return_idx=True)
    assert torch.equal(opened(pair[1]), expected.indices)
    assert torch.equal(opened(getattr(secret, name)(dim=1, return_idx=False)), expected.values)
    hot = torch.nn.functional.one_hot(expected.indices, 3)
    assert torch.equal(opened(getattr(secret, f"arg{name}")(dim=1, one_hot=True)), hot.to(plain.dtype))
    whole = torch.nn.functional.one_hot(getattr(plain, f"arg{name}")(), 6).view(2, 3)
    assert torch.equal(opened(getattr(secret, f"arg{name}")(one_hot=True)), whole.to(plain.dtype))


def test_one_hot_places_are_found_below_an_autograd_node(group: Any) -> None:
    secret = group.share([1.0, 3.0, 2.0], requires_grad=True)
    assert secret.argmax(dim=0, one_hot=True).get().float_prec().tolist() == [0.0, 1.0, 0.0]
    with pytest.raises(TypeError, match="one_hot"):
        torch.tensor([1.0]).send(group.alice).argmax(one_hot=True)  # type: ignore[attr-defined]


# -- encryption of models and the crypto store (46) -----------------------------------------------------------


@pytest.mark.parametrize("protocol", ["mpc", "snn", "fss"])
def test_tensors_and_models_are_encrypted_and_decrypted_in_place(group: Any, protocol: str) -> None:
    torch.manual_seed(0)
    options = {"workers": [group.alice, group.bob], "crypto_provider": group.james}
    x = torch.randn(3, 2)
    secret = x.encrypt(protocol=protocol, **options)  # type: ignore[attr-defined]
    name = None if protocol == "mpc" else protocol
    assert secret.child.child.protocol == name
    assert torch.allclose(secret.decrypt(protocol=protocol), x, atol=1e-3)
    model = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.ReLU(), torch.nn.BatchNorm1d(3)).eval()
    expected, weight = model(x).detach(), model[0].weight
    assert model.encrypt(protocol=protocol, **options) is model  # type: ignore[operator]
    assert model[0].weight is weight and weight.child.child.protocol == name
    found = model(x.encrypt(protocol=protocol, **options))  # type: ignore[attr-defined]
    assert torch.allclose(found.decrypt(), expected, atol=2e-2)
    assert model.decrypt() is model and torch.allclose(model(x), expected, atol=2e-2)  # type: ignore[operator]


def test_a_copy_of_a_model_is_encrypted_when_asked(group: Any) -> None:
    model = torch.nn.Linear(2, 1)
    options = {"workers": [group.alice, group.bob], "crypto_provider": group.james}
    made = model.encrypt(inplace=False, **options)  # type: ignore[operator]
    assert made is not model and made.weight.is_wrapper and not model.weight.is_wrapper  # type: ignore[attr-defined]
    with pytest.raises(ValueError, match="'mpc', 'snn', 'fss'"):
        model.encrypt(protocol="paillier", **options)  # type: ignore[operator]
    with pytest.raises(ValueError, match="takes the workers"):
        model.encrypt()  # type: ignore[operator]
    with pytest.raises(ValueError, match="without shared parameters"):
        model.decrypt()  # type: ignore[operator]


def test_models_have_the_names_with_an_underscore(group: Any) -> None:
    model = torch.nn.Linear(2, 1)
    weight = model.weight.detach().clone()
    assert model.send_(group.alice) is model and model.location is group.alice  # type: ignore[operator]
    assert torch.equal(model.get_().weight, weight)  # type: ignore[operator]
    model.fix_precision_().share_(group.alice, group.bob, crypto_provider=group.james)  # type: ignore[operator]
    assert torch.allclose(model.get_().float_precision_().weight, weight, atol=1e-3)  # type: ignore[operator]


def test_primitives_are_dealt_ahead_of_time_and_used(group: Any) -> None:
    workers, store = [group.alice, group.bob], group.james.crypto_store
    x, y = group.share([[1, 2]]), group.share([[3], [4]])
    costs = x.child.group
    store.provide_primitives("matmul", {"shapes": [((1, 2), (2, 1))]}, workers, n_instances=2)
    dealt = costs.offline.correlations
    assert (x @ y).get().tolist() == [[11]] and costs.offline.correlations == dealt
    (part,) = group.alice.crypto_store.get_keys("matmul", shapes=[((1, 2), (2, 1))], provider=group.james)
    (other,) = group.bob.crypto_store.get_keys("matmul", shapes=((1, 2), (2, 1)))
    a, b, c = (one + another for one, another in zip(part, other, strict=True))
    assert torch.equal(a @ b, c)
    with pytest.raises(sy.exceptions.EmptyCryptoPrimitiveStoreError, match="found 0"):
        group.alice.crypto_store.get_keys("matmul", shapes=[((1, 2), (2, 1))])


def test_primitives_of_comparisons_are_accepted_and_dealt_on_demand(group: Any) -> None:
    store = group.james.crypto_store
    store.provide_primitives(["fss_eq", "fss_comp", "xor_add"], workers=["alice", "bob"], n_instances=4)
    assert (group.share([1, -1], protocol="fss") > 0).get().tolist() == [1, 0]
    with pytest.raises(sy.exceptions.EmptyCryptoPrimitiveStoreError):
        group.alice.crypto_store.get_keys("fss_eq", n_instances=2)
    with pytest.raises(ValueError, match="pass shapes="):
        store.provide_primitives("mul", workers=["alice", "bob"])
    with pytest.raises(ValueError, match="none of the bilinear ones"):
        store.provide_primitives("exp", workers=["alice", "bob"], shapes=[((1,), (1,))])
    with pytest.raises(ValueError, match="taken"):
        group.alice.crypto_store.get_keys("mul", remove=False)
    with pytest.raises(ValueError, match="at least two holders"):
        store.provide_primitives("mul", workers=["alice"], shapes=[((1,), (1,))])


def test_the_constants_and_helpers_of_securenn_are_there(group: Any) -> None:
    from syft.frameworks.torch.mpc import securenn, spdz

    assert securenn.p == 67 and group.share([1]).field == 2**securenn.Q_BITS
    assert securenn.no_wrap == spdz.no_wrap == {"no_wrap": True}
    assert securenn.decompose(torch.tensor([6]), 2**4).tolist() == [[0, 1, 1, 0]]
    assert securenn.decompose(torch.tensor([6])).shape == (1, 64)
    x = torch.tensor([[1, 2], [3, 4]])
    assert securenn.flip(x, 1).tolist() == [[2, 1], [4, 3]]
    assert securenn.flip(group.share(x), 0).get().tolist() == [[3, 4], [1, 2]]
    assert group.share(x).child.mod(3).get().tolist() == [[1, 2], [0, 1]] and group.share(x).child.dim() == 2


def test_types_above_hear_of_extremes_what_the_user_wrote() -> None:
    heard: list[Any] = []

    class Listening(AbstractTensor):
        @classmethod
        def on_function_call(cls, command: Any) -> None:
            heard.append((command[0], command[2][1:], command[3]))

    default_register_tensor(Listening)
    x = Listening().on(torch.tensor([[1.0, 2.0]]))
    x.argmax()
    x.max(dim=1)
    x.sigmoid()
    assert heard == [("argmax", (), {}), ("max", (), {"dim": 1}), ("sigmoid", (), {})]
