"""Secrets that do not change cost less the second time, and are never used as they were before."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from mpc.network_parties import Parties, node_of
from syft.messaging.message import Ref
from syft.mpc import binding
from syft.mpc.correlations import Place, Triple
from syft.mpc.group import Group
from syft.mpc.network import messages
from syft.mpc.protocols import beaver
from syft.mpc.protocols.beaver import MaskedOperand
from syft.mpc.provider import Provider
from syft.mpc.randomness import new_seed
from syft.mpc.reuse import MOST_FORMS, MaskedFormOutdatedError
from syft.workers.virtual import VirtualWorker

HALF = dict(base=2, precision_fractional=16)
TOLERANCE = 1e-3


class Sharing:
    """Workers of one process, or on a network, and how to share with them."""

    def __init__(self, holders: list[Any], provider: Any, stored: Callable[[Any], list[Any]]) -> None:
        self.holders, self.provider, self.stored = holders, provider, stored
        self.group = Group.of(holders, provider)

    def share(self, value: Any) -> Any:
        return value.fix_precision(**HALF).share(*self.holders, crypto_provider=self.provider)

    def sent(self, call: Callable[[], Any]) -> int:
        """Bytes that all parties send for a call."""
        self.group.reset_costs()
        made = call()
        bytes_sent = sum(self.group.online.bytes_sent)
        del made
        return bytes_sent

    def operands(self) -> int:
        """Masked forms that the first holder has."""
        gc.collect()
        return sum(type(one) is MaskedOperand for one in self.stored(self.holders[0]))


def in_process(hook: Any, count: int) -> Sharing:
    *holders, provider = (VirtualWorker(hook, id=f"near-{count}-{n}") for n in range(count + 1))
    return Sharing(holders, provider, lambda holder: list(holder._objects.values()))


@pytest.fixture
def near(hook: Any, me: Any) -> Sharing:
    return in_process(hook, 2)


@pytest.fixture
def three(hook: Any, me: Any) -> Sharing:
    return in_process(hook, 3)


@pytest.fixture
def far(hook: Any, me: Any) -> Any:
    made = Parties(hook, ("alice", "bob", "carol"))
    with made.closing:
        made.introduce()
        client = made.client()

        def stored(holder: Any) -> list[Any]:
            holder.sync()
            return list(made.servers[holder.id]._objects.values())

        sharing = Sharing(client.holders, client.provider, stored)
        sharing.client, sharing.parties = client, made  # type: ignore[attr-defined]
        yield sharing


def opened(secret: Any) -> torch.Tensor:
    return secret.get().float_precision()


def close(secret: Any, expected: torch.Tensor) -> bool:
    return bool((opened(secret) - expected).abs().max() < TOLERANCE)


# -- what is saved -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["near", "three", "far"])
def test_a_weight_is_opened_once(where: str, request: pytest.FixtureRequest) -> None:
    sharing = request.getfixturevalue(where)
    w, x = torch.randn(20, 30), torch.randn(2, 30)
    weight, peers = sharing.share(w), len(sharing.holders) * (len(sharing.holders) - 1)
    data = [sharing.share(x) for _ in range(3)]

    def product(at: int) -> Any:
        made = torch.nn.functional.linear(data[at], weight)
        assert close(made, x @ w.t())
        return made

    sent = [sharing.sent(lambda at=at: product(at)) for at in range(3)]
    assert sent[0] - sent[1] == peers * 8 * w.numel()
    assert sent[1] == sent[2] == peers * 8 * (x.numel() + 2 * 20)  # x, and the truncation of the result


@pytest.mark.parametrize("where", ["near", "three", "far"])
def test_a_weight_and_its_transpose_are_opened_once(where: str, request: pytest.FixtureRequest) -> None:
    sharing = request.getfixturevalue(where)
    w, x, y = torch.randn(20, 30), torch.randn(2, 30), torch.randn(2, 20)
    weight, peers = sharing.share(w), len(sharing.holders) * (len(sharing.holders) - 1)
    rows, columns = sharing.share(x), sharing.share(y)

    def both() -> None:
        assert close(rows @ weight.t(), x @ w.t())
        assert close(columns @ weight, y @ w)
        assert close(weight.t() @ columns.t(), w.t() @ y.t())

    results = 2 * (20 + 30 + 30)
    assert sharing.sent(both) == peers * 8 * (w.numel() + x.numel() + y.numel() + results)
    assert len(node_of(weight)._remembered.masked) == 1
    with torch.no_grad():
        weight.add_(1)
    w = w + 1
    both()


@pytest.mark.parametrize("where", ["near", "three", "far"])
def test_what_goes_into_a_layer_is_opened_once_for_its_gradient(
    where: str, request: pytest.FixtureRequest
) -> None:
    sharing = request.getfixturevalue(where)
    peers = len(sharing.holders) * (len(sharing.holders) - 1)
    weight, bias = (sharing.share(torch.randn(*shape)).requires_grad_() for shape in ((3, 20), (3,)))
    rows = sharing.share(torch.randn(5, 20)) + 0
    made = [nn.functional.linear(rows, weight, bias)]
    back = sharing.share(torch.randn(5, 3))
    found = sharing.sent(lambda: made.pop().backward(back) or weight.grad.copy().get())
    assert found == peers * 8 * (back.numel() + weight.numel())


def test_a_transpose_stands_for_its_matrix_as_it_is(near: Sharing) -> None:
    w, x = torch.randn(4, 3), torch.randn(2, 4)
    weight, data = near.share(w), near.share(x)
    turned = weight.t()
    assert close(turned @ data.t(), w.t() @ x.t())
    with torch.no_grad():
        turned[0].add_(1)
    w[:, 0] += 1
    assert close(data @ weight, x @ w)
    assert close(turned @ data.t(), w.t() @ x.t())
    del weight
    gc.collect()
    assert close(turned @ data.t(), w.t() @ x.t())


@pytest.mark.parametrize("where", ["near", "three", "far"])
def test_masked_forms_go_with_the_secret(where: str, request: pytest.FixtureRequest) -> None:
    sharing = request.getfixturevalue(where)
    weight, data = sharing.share(torch.randn(4, 3)), sharing.share(torch.randn(2, 3))
    record = weakref.ref(node_of(weight)._remembered)
    made = torch.nn.functional.linear(data, weight)
    if where == "far":
        assert sharing.operands() == 2
    assert record() is not None and len(record().masked) == 1
    del weight, data
    gc.collect()
    assert record() is None
    assert sharing.operands() == 0
    assert made.get().shape == (2, 4)


def test_only_so_many_forms_are_kept(near: Sharing) -> None:
    weight, x = near.share(torch.randn(8, 8)), near.share(torch.randn(8))
    for row in range(8):
        assert weight[row].dot(x) is not None
    assert len(node_of(weight)._remembered.masked) == MOST_FORMS


def test_a_weight_that_is_written_to_after_every_use_is_not_kept(near: Sharing) -> None:
    model = nn.Linear(3, 2)
    model.fix_precision(**HALF).share(*near.holders, crypto_provider=near.provider)
    x = near.share(torch.randn(4, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        model(x).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    model(x)
    assert not node_of(model.weight)._remembered.masked


# -- every way of writing ------------------------------------------------------------------------------------------


def optimizer_step(weight: Any, sharing: Sharing) -> torch.Tensor:
    weight.grad = sharing.share(torch.ones(weight.shape))
    torch.optim.SGD([weight], lr=0.5).step()
    return -0.5 * torch.ones(weight.shape)


def copy_(weight: Any, sharing: Sharing) -> torch.Tensor:
    with torch.no_grad():
        weight.copy_(weight + 1)
    return torch.ones(weight.shape)


def copy_into_data(weight: Any, sharing: Sharing) -> torch.Tensor:
    weight.data.copy_(weight.data + 1)
    return torch.ones(weight.shape)


def add_(weight: Any, sharing: Sharing) -> torch.Tensor:
    with torch.no_grad():
        weight.add_(1.0)
    return torch.ones(weight.shape)


def set_(weight: Any, sharing: Sharing) -> torch.Tensor:
    weight.data = (weight + 1).detach()
    return torch.ones(weight.shape)


def one_row(weight: Any, sharing: Sharing) -> torch.Tensor:
    with torch.no_grad():
        weight[1] += 2.0
    change = torch.zeros(weight.shape)
    change[1] = 2.0
    return change


def a_view_of_a_view(weight: Any, sharing: Sharing) -> torch.Tensor:
    with torch.no_grad():
        weight.t()[2].add_(3.0)
    change = torch.zeros(weight.shape)
    change[:, 2] = 3.0
    return change


def zero_(weight: Any, sharing: Sharing) -> torch.Tensor:
    before = weight.detach().clone()
    with torch.no_grad():
        weight[0].zero_()
    change = torch.zeros(weight.shape)
    change[0] = -opened(before)[0]
    return change


def shares_themselves(weight: Any, sharing: Sharing) -> torch.Tensor:
    """Not by an operation on secrets: the first holder adds one to its share."""
    node = node_of(weight)
    node.pointers[0].wrap().add_(1 << 16)
    return torch.ones(weight.shape)


WRITERS = [optimizer_step, copy_, copy_into_data, add_, set_, one_row, a_view_of_a_view, zero_]


@pytest.mark.parametrize("write", WRITERS)
def test_after_a_write_the_new_values_are_used(near: Sharing, write: Callable[..., torch.Tensor]) -> None:
    w, x = torch.randn(4, 3), torch.randn(2, 3)
    weight, data = near.share(w).requires_grad_(), near.share(x)
    for _ in range(2):
        with torch.no_grad():
            assert close(nn.functional.linear(data, weight), x @ w.t())
    w = w + write(weight, near)
    for _ in range(2):
        with torch.no_grad():
            assert close(nn.functional.linear(data, weight), x @ w.t())


@pytest.mark.parametrize("write", WRITERS)
def test_after_a_write_the_new_values_are_used_on_a_network(
    far: Any, write: Callable[..., torch.Tensor]
) -> None:
    w, x = torch.randn(4, 3), torch.randn(2, 3)
    weight, data = far.share(w).requires_grad_(), far.share(x)
    with torch.no_grad():
        nn.functional.linear(data, weight)
    w = w + write(weight, far)
    with torch.no_grad():
        assert close(nn.functional.linear(data, weight), x @ w.t())


def test_load_state_dict(near: Sharing) -> None:
    def shared(model: Any) -> Any:
        return model.fix_precision(**HALF).share(*near.holders, crypto_provider=near.provider)

    one, other = nn.Linear(3, 2), nn.Linear(3, 2)
    x = torch.randn(4, 3)
    expected = other(x).detach()
    shared(one), shared(other)
    data = near.share(x)
    with torch.no_grad():
        one(data)
        one.load_state_dict(other.state_dict())
        for _ in range(2):
            assert close(one(data), expected)


def test_holders_refuse_a_form_whose_share_was_written_to_otherwise(far: Any) -> None:
    weight, data = far.share(torch.randn(4, 3)), far.share(torch.randn(2, 3))
    nn.functional.linear(data, weight).get()
    shares_themselves(weight, far)
    with pytest.raises(MaskedFormOutdatedError, match="written to since"):
        nn.functional.linear(data, weight).get()


# -- what a client can and cannot name ------------------------------------------------------------------------------


def test_a_holder_takes_no_form_of_another_secret(far: Any) -> None:
    """The mask of one secret and the share of another would make an equation in both."""
    one, other = (node_of(far.share(torch.randn(2, 3))) for _ in range(2))
    for node in (one, other):
        torch.mul(node.wrap(), node.wrap() + 0).get()
    driver = far.group.driver
    form = one._remembered.masked[()]
    driver._run += 1
    pointers = other.pointers
    for rank, holder in enumerate(far.holders):
        ref, operand = Ref(pointers[rank].id_at_location), form.operands[rank].id_at_location
        holder._recv_msg(
            messages.RunProgram(
                driver._group,
                driver._run,
                "beaver.spdz_mul",
                (ref, ref),
                {},
                (driver._run,),
                (),
                ((0, operand),),
            )
        )
        with pytest.raises(MaskedFormOutdatedError):
            holder.sync()


def test_what_is_no_masked_form_is_refused(far: Any) -> None:
    node = node_of(far.share(torch.randn(2, 3)))
    torch.mul(node.wrap(), node.wrap() + 0).get()
    driver = far.group.driver
    driver._run += 1
    ref = Ref(node.pointers[0].id_at_location)
    far.holders[0]._recv_msg(
        messages.RunProgram(
            driver._group, driver._run, "beaver.spdz_mul", (ref, ref), {}, (1,), (), ((0, ref.id),)
        )
    )
    with pytest.raises(Exception, match="has no masked form"):
        far.holders[0].sync()


def test_a_masked_form_cannot_be_fetched(far: Any) -> None:
    secret = far.share(torch.randn(2, 3))
    torch.mul(secret, secret + 0).get()
    (form,) = node_of(secret)._remembered.masked.values()
    with pytest.raises(Exception):  # noqa: B017, PT011
        form.operands[0].get()


def test_masked_forms_count_towards_the_quota(far: Any) -> None:
    quotas = far.parties.servers["alice"]._holdings.quotas

    def used() -> int:
        far.holders[0].sync()
        return sum(one.bytes for one in quotas.users().values())

    w = torch.randn(100, 50)
    weight, data = far.share(w), far.share(torch.randn(1, 50))
    before = used()
    nn.functional.linear(data, weight).get()
    gc.collect()
    assert 2 * 8 * w.numel() <= used() - before < 2.2 * 8 * w.numel()


def test_a_provider_keeps_some_masks_of_weights_and_deals_the_same() -> None:
    seeds = [new_seed(), new_seed()]
    forgetful, keeping = Provider(2, seeds), Provider(2, seeds, most_mask_bytes=100)
    places = [Place(run, b"program", 0) for run in (1, 2, 3)]
    used = [0, 0, 1, 2, 1, 0, 2, 2]
    for run, weight in enumerate(used, start=4):
        kind = Triple(beaver.MUL, (5,), (5,), None, places[weight])
        (mine, theirs) = (one.begin(run, b"p").make(kind).parts for one in (forgetful, keeping))
        for ours, others in zip(mine, theirs, strict=True):
            assert all(torch.equal(a, b) for a, b in zip(ours, others, strict=True))
        assert len(keeping._masks) <= 2 and keeping.mask_bytes == 40 * len(keeping._masks) <= 100
    assert [kept.place for kept in keeping._masks] == [places[0], places[2]], "those that were used last"
    assert not forgetful._masks
    wide = Triple(beaver.MUL, (50,), (50,), None, places[0])
    keeping.begin(99, b"p").make(wide)
    assert keeping.mask_bytes <= 100, "a mask that is larger than all that is kept is not"


def test_a_provider_on_a_network_keeps_masks_of_weights(far: Any) -> None:
    weight, x = far.share(torch.tensor([2.0, -3.0])), far.share(torch.tensor([0.5, 4.0]))
    for _ in range(3):
        assert ((x * weight).get().float_precision() - torch.tensor([1.0, -12.0])).abs().max() < TOLERANCE
    dealer = far.parties.membership(far.provider.id).dealer
    assert 0 < dealer.mask_bytes <= dealer.most_mask_bytes


def test_kinds_that_name_a_mask_are_not_collected() -> None:
    """In training every step has masks of its own: what is remembered of each was a leak of a kilobyte a step."""
    for run in range(600):
        kind = Triple(beaver.MUL, (2,), (2,), kept_y=Place(run, b"p", 0))
        assert binding.purpose(run, b"p", 1, kind) != binding.purpose(
            run, b"p", 1, Triple(beaver.MUL, (2,), (2,))
        )
        assert binding.kind_digest(kind) == binding.kind_digest(
            Triple(beaver.MUL, (2,), (2,), None, Place(run, b"p", 0))
        )
    assert binding._encoded_naming.cache_info().currsize <= 256
