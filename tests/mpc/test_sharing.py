"""Shared integers through torch: exact for two, three and five holders and for every comparison protocol."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

import syft as sy
from syft.mpc.sharing import AdditiveSharingTensor
from syft.tensors.autograd import AutogradTensor

HOLDERS = ("alice", "bob", "charlie", "dan", "eve")


@pytest.fixture
def group(make_worker: Any) -> Any:
    """`group(tensor, holders=2)`: the tensor shared among that many workers."""
    workers = [make_worker(name) for name in HOLDERS]
    provider = make_worker("provider")

    def share(tensor: torch.Tensor, holders: int = 2, protocol: str | None = None) -> Any:
        return tensor.share(*workers[:holders], crypto_provider=provider, protocol=protocol)  # type: ignore[attr-defined]

    share.workers = workers  # type: ignore[attr-defined]
    share.provider = provider  # type: ignore[attr-defined]
    return share


CASES = [(2, None), (3, None), (5, None), (2, "snn"), (2, "fss"), (2, "tree2")]
X = torch.tensor([[3, -7, 100], [5, 0, -(2**40)]])
Y = torch.tensor([[1, 2, 3], [-5, 0, 7]])

OPERATIONS: dict[str, Any] = {
    "add": lambda x, y: x + y,
    "add a public tensor": lambda x, y: x + Y,
    "add a number": lambda x, y: x + 5,
    "subtract from a number": lambda x, y: 5 - x,
    "negate": lambda x, y: -x,
    "mul": lambda x, y: x * y,
    "mul by a public tensor": lambda x, y: Y * x,
    "square": lambda x, y: y * y,
    "pow": lambda x, y: y**3,
    "matmul": lambda x, y: x @ y.t(),
    "matmul with a public tensor": lambda x, y: x @ Y.t(),
    "conv1d": lambda x, y: F.conv1d(x[:, None], y[:1, None, :2]),
    "conv1d with public weights": lambda x, y: F.conv1d(x[:, None], Y[:1, None, :2]),
    "greater": lambda x, y: x > y,
    "less than a number": lambda x, y: x < 3,
    "greater or equal": lambda x, y: x >= y,
    "less or equal": lambda x, y: x <= y,
    "equal": lambda x, y: x == y,
    "not equal": lambda x, y: x != y,
    "relu": lambda x, y: x.relu(),
    "abs": lambda x, y: x.abs(),
    "sign": lambda x, y: x.sign(),
    "clamp": lambda x, y: x.clamp(-3, 4),
    "max": lambda x, y: x.max(),
    "max along": lambda x, y: x.max(dim=1)[0],
    "index of max along": lambda x, y: x.max(dim=1)[1],
    "argmax": lambda x, y: x.argmax(),
    "argmax along": lambda x, y: x.argmax(dim=0),
    "min along": lambda x, y: x.min(dim=0)[0],
    "argmin": lambda x, y: x.argmin(dim=1),
    "amax": lambda x, y: x.amax(dim=(0, 1)),
    "maximum": lambda x, y: torch.maximum(x, y),
    "minimum": lambda x, y: torch.minimum(x, y),
    "floor division": lambda x, y: x // 7,
    "floor division by a negative": lambda x, y: x // -7,
    "truncated division": lambda x, y: torch.div(x, 7, rounding_mode="trunc"),
    "sum": lambda x, y: x.sum(),
    "sum along": lambda x, y: x.sum(dim=1),
    "cat": lambda x, y: torch.cat([x, y]),
    "cat with a public tensor": lambda x, y: torch.cat([x, Y]),
    "stack": lambda x, y: torch.stack([x, y]),
    "index": lambda x, y: x[0, 1:],
    "permute": lambda x, y: x.permute(1, 0),
    "roll": lambda x, y: x.roll(1, 0),
    "chunk": lambda x, y: x.chunk(3, dim=1)[1],
    "unbind": lambda x, y: x.unbind()[1],
    "pad": lambda x, y: F.pad(x, (1, 1), value=4),
    "where": lambda x, y: torch.where(x > 0, x, y),
    "masked fill, public mask": lambda x, y: x.masked_fill(Y > 1, 9),
    "cumsum": lambda x, y: x.cumsum(1),
}


@pytest.mark.parametrize(("holders", "protocol"), CASES)
@pytest.mark.parametrize("name", OPERATIONS)
def test_an_operation_on_shares_is_exact(group: Any, name: str, holders: int, protocol: str | None) -> None:
    run = OPERATIONS[name]
    want = run(X, Y)
    got = run(group(X, holders, protocol), group(Y, holders, protocol)).get()
    assert torch.equal(got, want.to(torch.int64))


integers = st.integers(-(2**61), 2**61 - 1)


@settings(max_examples=40)
@given(st.lists(integers, min_size=1, max_size=6), st.sampled_from([2, 3, 5]))
def test_comparisons_and_relu_are_exact_over_the_whole_range(values: list[int], holders: int) -> None:
    workers = [sy.VirtualWorker(id=f"h{i}") for i in range(holders)]
    provider = sy.VirtualWorker(id="deal")
    plain = torch.tensor([*values, 0, 1, -1, 2**61 - 1, -(2**61)])
    secret: Any = plain.share(*workers, crypto_provider=provider)  # type: ignore[attr-defined]
    assert torch.equal((secret < 0).virtual_get(), (plain < 0).long())
    assert torch.equal((secret == values[0]).virtual_get(), (plain == values[0]).long())
    assert torch.equal(secret.relu().virtual_get(), plain.relu())
    assert secret.argmax().virtual_get() == plain.argmax()


def test_division_of_secrets_by_secrets(group: Any) -> None:
    x, y = torch.tensor([100, -100, 7, 0, 12345]), torch.tensor([7, 7, -2, 5, 12345])
    got = torch.div(group(x), group(y), rounding_mode="floor").get()
    assert torch.equal(got, torch.div(x, y, rounding_mode="floor"))


def test_in_place_operations_and_views_write_into_the_secret(group: Any) -> None:
    secret = group(X.clone())
    view = secret[0]
    same = secret
    same += group(Y)
    assert same is secret
    assert torch.equal(view.virtual_get(), (X + Y)[0])
    view.mul_(2)
    secret[1] = 9
    want = X + Y
    want[0] *= 2
    want[1] = 9
    assert torch.equal(secret.get(), want)


# -- holding, opening, printing --------------------------------------------------------------------


def test_a_share_alone_says_nothing_and_all_add_up(group: Any) -> None:
    secret = group(torch.zeros(20_000, dtype=torch.int64), 3)
    shares = [p.location.get_obj(p.id_at_location) for p in secret.child.pointers]
    assert torch.equal(sum(shares), torch.zeros(20_000, dtype=torch.int64))
    for share in shares:
        top = (share >> 63) & 1
        assert abs(top.double().mean() - 0.5) < 0.02
        assert share.unique().numel() == share.numel()


def test_get_removes_the_shares_and_a_second_get_is_refused(group: Any) -> None:
    alice = group.workers[0]
    secret = group(X)
    assert len(alice._objects) == 1
    assert torch.equal(secret.get(), X)
    assert len(alice._objects) == 0
    with pytest.raises(AttributeError, match="fetched already"):
        secret.get()


def test_nothing_is_left_behind_by_a_computation(group: Any) -> None:
    x, y = group(X), group(Y)
    before = [len(w._objects) for w in group.workers]
    for _ in range(10):
        ((x * y).relu() + x).max()
    assert [len(w._objects) for w in group.workers] == before


def test_printing_lists_the_shares_and_the_provider_and_no_content(group: Any) -> None:
    text = str(group(torch.tensor([123456789])))
    assert "AdditiveSharingTensor" in text
    assert "-> alice:" in text and "-> bob:" in text
    assert "*crypto provider: provider*" in text
    assert "123456789" not in text


def test_reconstruct_gives_every_holder_the_value(group: Any) -> None:
    opened = group(X, 3).reconstruct()
    assert all(torch.equal(value, X) for value in opened.get())


def test_refresh_changes_the_shares_and_not_the_secret(group: Any) -> None:
    secret = group(X)
    fresh = secret.refresh()
    old, new = (
        p.location.get_obj(p.id_at_location) for p in (secret.child.pointers[0], fresh.child.pointers[0])
    )
    assert not torch.equal(old, new)
    assert torch.equal(fresh.get(), X)
    assert torch.equal(secret.zero().get(), torch.zeros_like(X))


def test_a_remote_tensor_is_shared_where_it_is(group: Any, make_worker: Any) -> None:
    hospital = make_worker("hospital")
    me = sy.local_worker
    pointer = X.send(hospital)  # type: ignore[attr-defined]
    me_saw: list[Any] = []
    original = me.recv_msg
    me.recv_msg = lambda m: me_saw.append(m) or original(m)
    try:
        secret = pointer.share(*group.workers[:2], crypto_provider=group.provider)
    finally:
        del me.recv_msg
    assert me_saw == []
    assert torch.equal(secret.get().get(), X)


def test_the_first_get_after_sharing_there_opens_nothing(group: Any, make_worker: Any) -> None:
    """As in the tutorials of 2020: share there, get the secret, add secrets, open the sum."""
    parts = [(X + i).send(make_worker(f"w{i}")) for i in range(3)]  # type: ignore[attr-defined]
    secrets = [p.share(*group.workers[:2], crypto_provider=group.provider).get() for p in parts]
    assert all(isinstance(s.child, sy.AdditiveSharingTensor) for s in secrets)
    assert torch.equal((secrets[0] + secrets[1] + secrets[2]).get(), 3 * X + 3)
    again = (X.send(make_worker("w9"))).share(*group.workers[:2], crypto_provider=group.provider)  # type: ignore[attr-defined]
    assert torch.equal((again + again).get().get(), 2 * X), "what is computed from it is still there"


def test_a_private_remote_tensor_is_shared_only_by_those_who_may_have_it(
    group: Any, make_worker: Any
) -> None:
    hospital = make_worker("hospital")
    pointer = X.private_tensor(allowed_users=("ann",)).send(hospital, user="ann")  # type: ignore[attr-defined]
    with pytest.raises(sy.exceptions.GetNotPermittedError):
        pointer.share(*group.workers[:2], crypto_provider=group.provider, user="mallory")
    secret = pointer.share(*group.workers[:2], crypto_provider=group.provider, user="ann")
    assert torch.equal(secret.get().get(), X)


def test_the_cost_of_a_relu_is_counted_exactly(group: Any) -> None:
    secret = group(torch.arange(-500, 500))
    costs = secret.child.group
    costs.reset_costs()
    secret.relu()
    assert costs.online.rounds <= 8
    per_element = max(costs.online.bytes_sent[:2]) / 1000
    assert 8 <= per_element <= 48
    assert costs.offline.bytes > 0


def test_correlations_are_made_ahead_of_time_and_used_once(group: Any) -> None:
    from syft.mpc.correlations import Triple
    from syft.mpc.kernels import Bilinear

    x, y = group(X), group(Y)
    kind = Triple(Bilinear("mul"), tuple(X.shape), tuple(Y.shape))
    costs, provider = x.child.group, x.child.group.driver.provider
    costs.provide(kind, count=2)
    assert provider.ready(kind) == 2
    made = costs.offline.correlations
    assert torch.equal((x * y).get(), X * Y)
    assert (provider.ready(kind), costs.offline.correlations) == (1, made)


# -- mistakes --------------------------------------------------------------------------------------


def test_one_holder_is_not_enough(group: Any) -> None:
    with pytest.raises(ValueError, match="at least two holders"):
        X.share(group.workers[0], crypto_provider=group.provider)  # type: ignore[attr-defined]


def test_a_holder_cannot_deal_its_own_randomness(group: Any) -> None:
    alice, bob = group.workers[:2]
    with pytest.raises(ValueError, match="crypto provider is 'alice'"):
        X.share(alice, bob, crypto_provider=alice)  # type: ignore[attr-defined]


def test_floats_want_fix_precision_first(group: Any) -> None:
    with pytest.raises(TypeError, match="fix_precision"):
        group(torch.ones(2))
    with pytest.raises(ValueError, match="fix_precision"):
        group(X) + 1.5
    with pytest.raises(ValueError, match="fix_precision"):
        group(X) * torch.rand(2, 3)


def test_secrets_of_different_holders_do_not_mix(group: Any) -> None:
    alice, _, charlie = group.workers[:3]
    other = Y.share(alice, charlie, crypto_provider=group.provider)  # type: ignore[attr-defined]
    with pytest.raises(sy.exceptions.ChainError, match="different holders"):
        group(X) + other
    with pytest.raises(sy.exceptions.ChainError, match="different holders"):
        group(X) * other


def test_reading_a_secret_as_if_it_were_here_is_refused(group: Any) -> None:
    secret = group(torch.tensor([1]))
    for read in (bool, float, int, lambda t: t.item()):
        with pytest.raises(ValueError, match="split among alice, bob"):
            read(secret)


def test_an_unsupported_operation_names_itself_and_the_cure(group: Any) -> None:
    with pytest.raises(NotImplementedError, match=r"aten.exp.*fix_precision"):
        group(X).exp()


def test_unknown_protocols_fields_and_workers_are_refused(group: Any) -> None:
    alice, bob = group.workers[:2]
    with pytest.raises(ValueError, match="No comparison protocol"):
        group(X, protocol="magic")
    with pytest.raises(ValueError, match="for 2 holders"):
        group(X, 3, "fss")
    with pytest.raises(ValueError, match=r"2\*\*64"):
        X.share(alice, bob, crypto_provider=group.provider, field=97)  # type: ignore[attr-defined]
    with pytest.raises(sy.exceptions.WorkerNotFoundException):
        X.share("alice", "nobody", crypto_provider=group.provider)  # type: ignore[attr-defined]


def test_sharing_twice_is_refused(group: Any) -> None:
    with pytest.raises(sy.exceptions.ChainError, match="shared already"):
        group(X).share(*group.workers[:2], crypto_provider=group.provider)


def test_integers_have_no_gradient(group: Any) -> None:
    alice, bob = group.workers[:2]
    secret = X.share(alice, bob, crypto_provider=group.provider, requires_grad=True)  # type: ignore[attr-defined]
    assert isinstance(secret.child, AutogradTensor) and not secret.requires_grad
    with pytest.raises(RuntimeError, match="does not require grad"):
        secret.sum().backward()
    assert torch.equal(secret.get(), X)


def test_the_node_is_what_the_documents_call_it(group: Any) -> None:
    secret = group(X)
    assert isinstance(secret.child, AdditiveSharingTensor)
    assert [w.id for w in secret.locations] == ["alice", "bob"]
    assert secret.field == 2**62
