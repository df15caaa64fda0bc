"""Who may have what, and that there is no way round."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import pytest
import torch

import syft as sy
from syft.core.ids import ID_PROVIDER
from syft.exceptions import (
    CannotRequestObjectAttribute,
    GetNotPermittedError,
    InvalidTensorForRemoteGet,
    PermissionDeniedError,
    RemoteError,
    ResponseSignatureError,
    SendNotPermittedError,
    UnknownCommandError,
    ValueNotHereError,
)
from syft.messaging.message import (
    AttributeMessage,
    CallBackwardMessage,
    CallMessage,
    CallObjectMessage,
    ForwardMessage,
    GetShapeMessage,
    ObjectMessage,
    ObjectRequestMessage,
    Operation,
    Ref,
    RemoteGetMessage,
    SearchMessage,
)
from syft.policy.permissions import Policy

VALUE = 1234.5


@pytest.fixture
def secret(bob: Any) -> Any:
    """What only Ann may have."""
    return torch.full((3,), VALUE).private_tensor(allowed_users=("ann",)).send(bob, user="ann")


@pytest.fixture
def digits(bob: Any) -> Any:
    return torch.tensor([7, 0, 7]).private_tensor(allowed_users=("ann",)).send(bob, user="ann")


def refused(call: Callable[[], Any]) -> str:
    """The call is refused for lack of permission, in words that hold nothing of the value."""
    with pytest.raises(PermissionDeniedError) as caught:
        call()
    text = f"{caught.value}{caught.value.__cause__}{caught.value.__context__}"
    assert "1234.5" not in text
    return text


# -- what permissions are --------------------------------------------------------------------------


def test_an_allowed_user_gets_the_value(secret: Any) -> None:
    assert torch.equal(secret.get(user="ann"), torch.full((3,), VALUE))


def test_others_are_refused_and_the_value_stays(bob: Any, secret: Any) -> None:
    assert "'eve'" in refused(lambda: secret.get(user="eve"))
    assert "gave no user name" in refused(secret.get)
    assert torch.equal(secret.get(user="ann"), torch.full((3,), VALUE))
    gc.collect()  # the refusals' tracebacks held the pointer
    assert len(bob._objects) == 0


def test_sending_a_private_tensor_needs_permission_too(bob: Any) -> None:
    private = torch.ones(2).private_tensor(allowed_users=["ann"])
    for user in (None, "eve"):
        with pytest.raises(SendNotPermittedError, match="user="):
            private.send(bob, user=user)
    assert len(bob._objects) == 0


def test_results_may_be_had_only_by_those_allowed_on_all_inputs(bob: Any) -> None:
    x = torch.ones(2).private_tensor(allowed_users=("ann", "ben")).send(bob, user="ann")
    y = torch.ones(2).private_tensor(allowed_users=("ben", "cat")).send(bob, user="ben")
    free = torch.ones(2).send(bob)
    for user in (None, "ann", "cat"):
        refused(lambda user=user: (x * y + free).get(user=user))
    assert (x * y + free).get(user="ben").tolist() == [2.0, 2.0]
    assert (x + free).copy().get(user="ann").tolist() == [2.0, 2.0]
    assert (free + 1).get().tolist() == [2.0, 2.0]


def test_local_private_tensors_hand_their_users_on() -> None:
    x = torch.ones(2).private_tensor(allowed_users=("ann", "ben"))
    y = torch.ones(2).private_tensor(allowed_users=("ben",))
    assert (x + y).child.allowed_users == ("ben",)
    assert (x + y).allow("ben") and not (x + y).allow("ann")
    assert x.child.register_credentials(["cat"]).allowed_users == ("cat",)
    assert "1." not in str(x)
    assert torch.ones(1).allow("anybody")
    with pytest.raises(TypeError, match="list or tuple"):
        torch.ones(2).private_tensor(allowed_users=3)


def test_data_of_the_owner_keeps_its_users_and_tags(make_worker: Any) -> None:
    data = torch.full((2,), VALUE).private_tensor(allowed_users=("ann",)).tag("#salary")
    carol = make_worker("carol", data=[data])
    (found,) = carol.search("#salary")
    refused(found.get)
    assert found.get(user="ann").tolist() == [VALUE, VALUE]


def test_refused_and_granted_gets_are_written_down(bob: Any, secret: Any) -> None:
    obj_id = secret.id_at_location
    refused(lambda: secret.get(user="eve", reason="curiosity"))
    secret.get(user="ann", reason="audit")
    refusal, grant = list(bob.policy.audit_log)[-2:]
    assert (refusal.obj_id, refusal.user, refusal.granted, refusal.reason) == (
        obj_id,
        "eve",
        False,
        "curiosity",
    )
    assert (grant.obj_id, grant.user, grant.granted, grant.reason) == (obj_id, "ann", True, "audit")
    assert refusal.time <= grant.time


def test_the_audit_log_has_an_end() -> None:
    policy = Policy(audit_length=10)
    for i in range(100):
        policy.check_get("ann", i, None)
    assert [record.obj_id for record in policy.audit_log] == list(range(90, 100))


def test_a_worker_that_denies_by_default(make_worker: Any) -> None:
    """As on a network: unmarked data goes back to whoever brought it, the owner's own data to nobody."""
    data = torch.full((2,), VALUE).tag("#mine")
    dan = make_worker("dan", data=[data], policy=Policy(allows_by_default=False))
    (owners,) = dan.search("#mine")
    brought = torch.ones(2).send(dan, user="eve")
    refused(lambda: owners.get(user="eve"))
    refused(lambda: (owners * brought).get(user="eve"))
    refused(lambda: brought.copy().get(user="ann"))
    assert (brought + 1).get(user="eve").tolist() == [2.0, 2.0]
    assert dan.remote.torch.zeros(2).get().tolist() == [0.0, 0.0]


# -- ways round ------------------------------------------------------------------------------------


@pytest.mark.parametrize("show", [str, repr, "{}".format, lambda p: f"{p.child}", lambda p: f"{p.child!r}"])
def test_printing(secret: Any, show: Callable[[Any], str]) -> None:
    assert "1234.5" not in show(secret)


@pytest.mark.parametrize(
    "derive",
    [
        lambda p: p.copy(),
        lambda p: p + 0,
        lambda p: p * 0,
        lambda p: p.clone().detach(),
        lambda p: p.data,
        lambda p: p[0],
        lambda p: p[torch.tensor([0, 1]).send(p.location)],
        lambda p: p.sum(),
        lambda p: p.view(-1),
        lambda p: p.unbind()[1],
        lambda p: p.to(torch.float64),
        lambda p: torch.stack([p, p]),
        lambda p: torch.zeros_like(p).copy_(p),
        lambda p: torch.where(p > 0, p, p),
        lambda p: p.attr("data"),
        lambda p: p.view(1, 3).attr("T"),
        lambda p: torch.ops.aten.alias(p),
        lambda p: p.location.remote.torch.add(p, 0),
        lambda p: p.location.remote.torch.clone(p),
    ],
)
def test_what_is_computed_from_it(secret: Any, derive: Callable[[Any], Any]) -> None:
    refused(derive(secret).get)
    refused(lambda: derive(secret).copy().get(user="eve"))


@pytest.mark.parametrize(
    "read", [lambda p: p.item(), bool, float, int, lambda p: p.tolist(), lambda p: p.numpy()]
)
def test_python_values(secret: Any, read: Callable[[Any], Any]) -> None:
    with pytest.raises(ValueNotHereError):
        read(secret[0])


@pytest.mark.parametrize(
    "write",
    [
        lambda mine, p: mine.copy_(p),
        lambda mine, p: mine.add_(p),
        lambda mine, p: mine.addcmul_(p, p),
        lambda mine, p: mine.__setitem__(slice(0, 3), p),
        lambda mine, p: mine[0:3].copy_(p),
        lambda mine, p: mine.index_add_(0, torch.arange(3).send(p.location), p),
        lambda mine, p: mine.masked_scatter_(torch.ones(3, dtype=torch.bool).send(p.location), p),
        lambda mine, p: torch.add(p, 0, out=mine),
        lambda mine, p: torch._foreach_add_([mine], [p]),
        lambda mine, p: torch._foreach_copy_([mine], [p]),
        lambda mine, p: p.location.remote.copy_(mine, p),
    ],
)
def test_writing_it_into_a_tensor_of_my_own_and_into_views_made_before(
    bob: Any, secret: Any, write: Callable[[Any, Any], Any]
) -> None:
    mine = torch.zeros(3).send(bob)
    flat, first, alias = mine.view(-1), mine[0], mine.detach()
    write(mine, secret)
    for reach in (mine, flat, first, alias, mine.view(-1), flat + 0):
        refused(reach.copy().get)
    refused(mine.get)


def test_running_statistics_of_a_batch_norm_are_written_too(bob: Any) -> None:
    """torch's schema does not say so."""
    secret = torch.full((2, 1), VALUE).private_tensor(allowed_users=("ann",)).send(bob, user="ann")
    mean, var = torch.zeros(1).send(bob), torch.ones(1).send(bob)
    view = mean.view(1, 1)
    torch.nn.functional.batch_norm(secret, mean, var, training=True, momentum=1.0)
    refused(mean.copy().get)
    refused(view.copy().get)
    mean, var = torch.zeros(1).send(bob), torch.ones(1).send(bob)
    torch.nn.functional.instance_norm(secret.view(1, 1, 2), mean, var, momentum=1.0)
    refused(mean.get)


def test_what_was_only_read_beside_it_stays_mine(bob: Any, secret: Any) -> None:
    mine = torch.ones(3).send(bob)
    (mine * secret).sum()
    assert mine.get().tolist() == [1.0, 1.0, 1.0]


def test_gradients(bob: Any, secret: Any) -> None:
    mine = torch.ones(3, requires_grad=True).send(bob)
    (mine * secret).sum().backward()
    refused(mine.grad.copy().get)
    refused(lambda: mine.grad.get(user="eve"))
    refused(mine.get)


def test_moving_and_sending_on(alice: Any, bob: Any, me: Any, secret: Any) -> None:
    refused(lambda: secret.move(alice))
    refused(lambda: secret.move(alice, user="eve"))
    refused(lambda: secret.move(me))
    refused(lambda: secret.copy().remote_send(alice))
    assert len(alice._objects) == 0
    through = secret.copy().send(alice)  # a pointer may travel; the value may not
    refused(through.remote_get)
    refused(lambda: through.get().get())


def test_a_move_by_an_allowed_user_takes_the_restriction_along(alice: Any, secret: Any) -> None:
    moved = secret.move(alice, user="ann")
    refused(moved.copy().get)
    assert moved.get(user="ann").tolist() == [VALUE] * 3


def test_a_remote_get_by_an_allowed_user_takes_the_restriction_along(
    alice: Any, bob: Any, secret: Any
) -> None:
    through = secret.copy().send(alice)
    here = through.remote_get(user="ann")
    refused(here.copy().get)
    assert here.get(user="ann").tolist() == [VALUE] * 3


def test_a_remote_get_of_something_that_is_no_pointer_does_not_quote_it(secret: Any) -> None:
    for call in (secret.remote_get, secret.mid_get):
        with pytest.raises(InvalidTensorForRemoteGet) as caught:
            call()
        assert "1234.5" not in str(caught.value)


def test_attributes(secret: Any) -> None:
    refused(secret.attr("data").get)
    for name in ("__class__", "storage", "_base", "grad_fn", "untyped_storage"):
        with pytest.raises(CannotRequestObjectAttribute):
            secret.attr(name)
    refused(lambda: secret.child.setattr("data", 1))


def test_search_then_get(me: Any, bob: Any) -> None:
    torch.full((3,), VALUE).tag("#pay").private_tensor(allowed_users=("ann",)).tag("#pay").send(
        bob, user="ann", garbage_collect_data=False
    )
    for (found,) in (bob.search("#pay"), me.request_search("#pay", bob)):
        assert "1234.5" not in str(found)
        refused(found.get)
        refused(found.copy().get)


def test_several_workers_at_once(alice: Any, bob: Any) -> None:
    private = torch.full((2,), VALUE).private_tensor(allowed_users=("ann",))
    both = private.send(alice, bob, user="ann")
    refused(both.get)
    refused(lambda: both.child.virtual_get())
    refused(lambda: (both + 0).get(sum_results=True))
    refused(lambda: sy.combine_pointers(both.child.child["alice"], torch.ones(2).send(bob)).get())
    assert [v.tolist() for v in both.child.virtual_get(user="ann")] == [[VALUE] * 2] * 2


def test_the_error_of_an_operation_tells_nothing(bob: Any, digits: Any) -> None:
    """Whether it failed would be one bit, and a table of the right length asks for any bit."""
    for length in (1, 5, 7, 8, 9):
        table = torch.arange(length).send(bob)
        picked = table[digits]
        refused(picked.get)
        refused((picked + 1).get)
        refused(picked.view(1, 3).attr("T").get)
        assert not picked.is_none()
        assert picked.shape == (3,) == bob.recv_msg(GetShapeMessage(picked.id_at_location))
        if length < 8:
            with pytest.raises(RemoteError, match=r"out of (bounds|range)"):
                (picked + 1).sum().get(user="ann")
        else:
            assert picked.get(user="ann").tolist() == [7, 0, 7]


@pytest.mark.parametrize(
    "oracle",
    [
        lambda p: torch.bernoulli(p),
        lambda p: torch.multinomial(-p, 1),
        lambda p: torch.linalg.cholesky(-torch.diag(p)),
        lambda p: torch.linalg.inv(torch.diag(p * 0)),
        lambda p: torch.ones(3).send(p.location).index_fill(0, p.long(), 1.0),
        lambda p: torch.ones(3).long().send(p.location) // (p.long() * 0),
        lambda p: torch.nn.functional.nll_loss(torch.randn(3, 4).send(p.location), p.long()),
        lambda p: torch.nn.functional.embedding(p.long(), torch.randn(3, 4).send(p.location)),
        lambda p: torch.zeros(3).send(p.location).scatter_(0, p.long(), 1.0),
    ],
)
def test_operations_that_fail_on_some_values_do_not_show_it(
    secret: Any, oracle: Callable[[Any], Any]
) -> None:
    result = oracle(secret)
    if isinstance(result, torch.Tensor):
        refused(result.get)


@pytest.mark.parametrize(
    "name", ["_assert_async", "_foobar", "_test_string_default", "_sparse_mm", "_nested_get_values"]
)
def test_operations_that_torch_keeps_to_itself_are_not_run(bob: Any, me: Any, secret: Any, name: str) -> None:
    with pytest.raises(RuntimeError, match=f"aten.{name}"):
        me.send_msg(Operation(f"aten.{name}.default", None, (Ref(secret.id_at_location),), {}, (1,)), bob)


def test_a_failed_write_is_told_to_those_who_may_know(bob: Any, digits: Any) -> None:
    mine = torch.zeros(3).send(bob)
    mine.scatter_(0, digits, 1.0)
    refused(mine.copy().get)
    with pytest.raises(RemoteError, match="out of bounds"):
        mine.get(user="ann")


def test_shape_errors_are_told_in_full(bob: Any, secret: Any) -> None:
    """They are found without looking at the data."""
    with pytest.raises(RuntimeError, match=r"size|broadcast"):
        secret + torch.ones(2).send(bob)
    with pytest.raises(RuntimeError, match=r"size|broadcast"):
        bob.remote.torch.add(secret, torch.ones(2).send(bob))


@pytest.mark.parametrize(
    "reveal",
    [
        lambda p: p.nonzero(),
        lambda p: p[p > 0],
        lambda p: torch.masked_select(p, p > 0),
        lambda p: p.unique(),
        lambda p: torch.unique_consecutive(p),
        lambda p: torch.repeat_interleave(p.long()),
        lambda p: torch.bincount(p.long()),
        lambda p: torch.argwhere(p),
        lambda p: p.location.remote.torch.nonzero(p),
        lambda p: p.location.remote.torch.unique(p),
        lambda p: p.location.remote.torch.equal(p, p),
        lambda p: p.location.remote.torch.allclose(p, p),
        lambda p: p.location.remote.is_nonzero(p[0]),
        lambda p: p.location.remote.torch.arange(p[0]),
    ],
)
def test_shapes_that_depend_on_the_data(secret: Any, reveal: Callable[[Any], Any]) -> None:
    with pytest.raises(
        (PermissionDeniedError, UnknownCommandError, TypeError, ValueError, RuntimeError)
    ) as caught:
        reveal(secret)
    assert "1234.5" not in str(caught.value)


def test_lstm_and_its_backward(bob: Any) -> None:
    lstm = torch.nn.LSTM(2, 3).send(bob)
    secret = torch.full((4, 1, 2), VALUE).private_tensor(allowed_users=("ann",)).send(bob, user="ann")
    out, (h, _c) = lstm(secret)
    refused(out.get)
    refused(h.get)
    lstm(secret)[0].sum().backward()
    for parameter in lstm.parameters():
        refused(parameter.grad.copy().get)
    weight = next(lstm.parameters())
    with pytest.raises(GetNotPermittedError):
        weight.get()
    weight.grad = None
    assert weight.copy().get().shape == (12, 2)  # what was only read stays free


def test_uninitialised_memory(bob: Any, me: Any) -> None:
    """Freed memory of the process may hold what somebody else computed."""
    for _ in range(20):
        dropped = torch.full((1000,), VALUE)
        del dropped
        x = torch.zeros(1).send(bob)
        for made in (
            bob.remote.torch.empty(1000),
            torch.empty_like(bob.remote.torch.zeros(1000)),
            x.new_empty(1000),
            x.new_empty_strided((2,), (999,)).as_strided((1000,), (1,)),
            bob.remote.torch.empty_strided((2,), (999,)).as_strided((1000,), (1,)),
            x.clone().resize_(1000),
        ):
            assert not made.get().count_nonzero()


# -- raw messages ----------------------------------------------------------------------------------


def operation(me: Any, bob: Any, name: str, *args: Any, ids: Any = (), **kwargs: Any) -> Any:
    return me.send_msg(Operation(name, None, args, kwargs, tuple(ids)), bob)


def test_asking_for_the_object_by_message(me: Any, bob: Any, secret: Any) -> None:
    obj_id = secret.id_at_location
    for keep in (True, False):
        refused(lambda keep=keep: me.send_msg(ObjectRequestMessage((obj_id, None, ""), keep=keep), bob))
    refused(lambda: me.request_obj(obj_id, bob, "eve"))
    (found,) = me.send_msg(SearchMessage((obj_id,)), bob)
    assert "1234.5" not in repr(found)


def test_results_by_message(me: Any, bob: Any, secret: Any) -> None:
    ref, new = Ref(secret.id_at_location), ID_PROVIDER.pop()
    operation(me, bob, "aten.add.Tensor", ref, 0, ids=[new])
    operation(me, bob, "torch.clone", ref, ids=[new + 1])
    me.send_msg(Operation("clone", ref, (), {}, (new + 2,)), bob)
    me.send_msg(Operation("aten.stack.default", None, ([ref, ref],), {}, (new + 3,)), bob)
    for obj_id in (new, new + 1, new + 2, new + 3):
        refused(lambda obj_id=obj_id: me.request_obj(obj_id, bob))


@pytest.mark.parametrize("name", ["aten.unbind.int", "torch.unbind"])
@pytest.mark.parametrize("given", [0, 1, 2, 4])
def test_results_that_got_ids_of_their_own(me: Any, bob: Any, secret: Any, name: str, given: int) -> None:
    ids = [ID_PROVIDER.pop() for _ in range(given)]
    with pytest.raises(ResponseSignatureError) as caught:
        operation(me, bob, name, Ref(secret.id_at_location), ids=ids)
    assert len(caught.value.ids_generated) == 3
    for obj_id in caught.value.ids_generated:
        refused(lambda obj_id=obj_id: me.request_obj(obj_id, bob))


@pytest.mark.parametrize(
    "name", ["aten.nonzero.default", "torch.nonzero", "aten.masked_select.default", "torch.unique"]
)
def test_shapes_by_message_without_asking_for_them(me: Any, bob: Any, digits: Any, name: str) -> None:
    before, new = len(bob._objects), ID_PROVIDER.pop()
    ref = Ref(digits.id_at_location)
    args = (ref, Ref((digits > 0).id_at_location)) if "masked" in name else (ref,)
    with pytest.raises((PermissionDeniedError, RuntimeError)):
        operation(me, bob, name, *args, ids=[new])
    assert new not in bob._objects
    assert len(bob._objects) == before


def test_local_tensors_cannot_be_slipped_into_a_message(me: Any, bob: Any, secret: Any) -> None:
    """In one process they would arrive as themselves."""
    mine, ref = torch.zeros(3), Ref(secret.id_at_location)
    for message in (
        Operation("aten.copy_.default", None, (mine, ref), {}, ()),
        Operation("aten.add.out", None, (ref, 0), {"out": mine}, ()),
        Operation("copy_", mine, (ref,), {}, ()),
        Operation("aten._foreach_copy_.default", None, ([mine], [ref]), {}, ()),
        Operation("aten.bernoulli.default", None, (ref,), {"generator": torch.Generator()}, (1,)),
    ):
        with pytest.raises(TypeError, match="references"):
            me.send_msg(message, bob)
    assert not mine.count_nonzero()


def test_taking_the_place_of_the_object(me: Any, bob: Any, secret: Any) -> None:
    """Neither to lift its restriction nor to plant another value."""
    obj_id = secret.id_at_location
    free = torch.zeros(3).send(bob)
    free_ref = Ref(free.id_at_location)
    other = torch.zeros(3)
    other.id = obj_id
    for call in (
        lambda: other.send(bob),
        lambda: me.send_msg(ObjectMessage(torch.zeros(3), obj_id), bob),
        lambda: me.send_obj(torch.zeros(3), bob, obj_id),
        lambda: operation(me, bob, "aten.clone.default", free_ref, ids=[obj_id]),
        lambda: operation(me, bob, "torch.zeros", 3, ids=[obj_id]),
        lambda: operation(me, bob, "aten.unbind.int", free_ref, ids=[1, obj_id, 2]),
        lambda: me.send_msg(AttributeMessage(free.id_at_location, "data", return_id=obj_id), bob),
        lambda: me.send_msg(ForwardMessage(free.id_at_location, "bob", obj_id), bob),
        lambda: me.send_command(bob, ("torch.zeros", None, (3,), {}), return_ids=[obj_id]),
    ):
        with pytest.raises(SendNotPermittedError):
            call()
    refused(secret.copy().get)
    assert secret.get(user="ann").tolist() == [VALUE] * 3


def test_forwarding_by_message(me: Any, alice: Any, bob: Any, secret: Any) -> None:
    refused(lambda: me.send_msg(ForwardMessage(secret.id_at_location, "alice", 5), bob))
    refused(lambda: me.send_msg(ForwardMessage(secret.id_at_location, "me", 5, "eve"), bob))
    with pytest.raises(InvalidTensorForRemoteGet) as caught:
        me.send_msg(RemoteGetMessage(secret.id_at_location, "eve"), bob)
    assert "1234.5" not in str(caught.value)
    assert len(alice._objects) == 0


def test_attributes_by_message(me: Any, bob: Any, secret: Any) -> None:
    me.send_msg(AttributeMessage(secret.id_at_location, "data", return_id=77), bob)
    refused(lambda: me.request_obj(77, bob))
    holder = sy.ObjectWrapper(type("Holder", (), {})()).send(bob)
    holder.setattr("it", secret)
    refused(holder.get)
    refused(lambda: holder.attr("it").get())


def test_calls_by_message(me: Any, bob: Any, secret: Any) -> None:
    mine = torch.zeros(3).send(bob)
    args = (Ref(mine.id_at_location), Ref(secret.id_at_location))
    for name in ("copy_", "torch.add", "torch.Tensor.copy_", "os.system"):
        with pytest.raises(UnknownCommandError):
            me.send_msg(CallMessage(name, args, {}, (), 1, (2,)), bob)
    assert mine.get().tolist() == [0.0, 0.0, 0.0]
    with pytest.raises(TypeError, match="no call"):
        me.send_msg(CallBackwardMessage(secret.id_at_location, (), ()), bob)


def test_the_record_of_a_call_cannot_be_read(me: Any, bob: Any) -> None:
    lstm = torch.nn.LSTM(2, 3).send(bob)
    secret = torch.full((4, 1, 2), VALUE).private_tensor(allowed_users=("ann",)).send(bob, user="ann")
    before = set(bob._objects)
    out, _state = lstm(secret)
    for obj_id in set(bob._objects) - before:
        refused(lambda obj_id=obj_id: me.request_obj(obj_id, bob))
        for name in ("inputs", "outputs", "__dict__"):
            with pytest.raises(CannotRequestObjectAttribute):
                me.send_msg(AttributeMessage(obj_id, name, return_id=9), bob)
    assert out.shape == (4, 1, 3)


def test_a_callable_is_not_given_restricted_data(me: Any, bob: Any, secret: Any) -> None:
    """Eve could bring one that keeps what it sees."""
    seen: list[Any] = []
    eves = sy.ObjectWrapper(lambda x: seen.append(x) or x).send(bob)
    refused(lambda: eves(secret))
    refused(
        lambda: me.send_msg(CallObjectMessage(eves.id_at_location, (Ref(secret.id_at_location),), {}, 5), bob)
    )
    assert not seen
    reply = me.send_msg(
        CallObjectMessage(eves.id_at_location, (Ref(secret.id_at_location),), {}, 5, user="ann"), bob
    )
    assert reply.id == 5 and len(seen) == 1
    refused(lambda: me.request_obj(5, bob))


def test_a_callable_of_the_owner_may_be_called_on_restricted_data(bob: Any, secret: Any) -> None:
    bob.load_data([sy.ObjectWrapper(lambda x: x + 1).tag("#plus one")])
    (plus_one,) = bob.search("#plus one")
    result = plus_one(secret)
    refused(result.get)
    assert result.get(user="ann").tolist() == [VALUE + 1] * 3


def test_operations_that_reach_memory_beside_their_tensors_are_refused(me: Any, bob: Any) -> None:
    x = torch.zeros(1).send(bob)
    ref, sizes = (
        Ref(x.id_at_location),
        Ref(torch.tensor([[64]]).send(bob, garbage_collect_data=False).id_at_location),
    )
    for name, args in (
        ("aten._reshape_alias.default", (ref, [64], [1])),
        ("aten._nested_view_from_buffer.default", (ref, sizes, sizes, sizes)),
        ("aten._sparse_coo_tensor_unsafe.default", (sizes, ref, [4])),
    ):
        with pytest.raises(RuntimeError, match="not a known"):
            operation(me, bob, name, *args, ids=[1])
    with pytest.raises(RuntimeError, match="out of bounds"):
        operation(me, bob, "aten.as_strided.default", ref, [64], [1], ids=[1])


def test_resizing_in_place_is_refused(me: Any, bob: Any) -> None:
    """It would hand out memory that nobody has cleared."""
    x = torch.zeros(1).send(bob)
    for name in ("aten.resize_.default", "aten.resize_as_.default", "aten._resize_output.default", "resize_"):
        with pytest.raises(RuntimeError, match="not a known"):
            operation(me, bob, name, Ref(x.id_at_location), [100])
