"""What the owner of a worker allows, and that there is no way round."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import syft as sy
from syft.core.ids import ID_PROVIDER
from syft.exceptions import (
    ComputeNotPermittedError,
    ConnectNotPermittedError,
    GetNotPermittedError,
    OperationNotAdmittedError,
    PermissionDeniedError,
    QuotaExceededError,
    SendNotPermittedError,
)
from syft.messaging.message import (
    AttributeMessage,
    ForceObjectDeleteMessage,
    ForwardMessage,
    GetShapeMessage,
    IsNoneMessage,
    ObjectMessage,
    ObjectRequestMessage,
    Operation,
    Ref,
    SearchMessage,
)
from syft.policy.caller import speaking_for
from syft.policy.owner_policy import Limits, OwnerPolicy, PolicyFileError, UserRules, read_rules
from syft.policy.permissions import Policy
from syft.policy.quotas import Usage

EXAMPLE = """
[defaults]
may_connect = true
may_compute = true
may_get = "own"

[limits]
max_objects = 100_000
max_bytes = "4 GiB"
max_frame = "256 MiB"
seconds_per_operation = 60
connections = 8

[users.ana]
may_get = "all"
max_bytes = "16 GiB"

[users.eve]
may_connect = false

[users.lea]
may_compute = false

[users.noa]
may_get = "none"

[[data]]
tags = ["#mnist"]
may_compute = ["ana", "bob", "noa"]
may_get = ["ana"]
may_find = ["ana", "bob", "noa"]
"""

VALUE = 1234.5


@pytest.fixture
def policy() -> OwnerPolicy:
    return OwnerPolicy(read_rules(EXAMPLE))


@pytest.fixture
def dan(make_worker: Any, policy: OwnerPolicy) -> Any:
    """A worker with a data set that has rules, and one that has none."""
    return make_worker(
        "dan",
        data=[torch.full((3,), VALUE).tag("#mnist"), torch.full((2,), VALUE).tag("#other")],
        policy=policy,
    )


def asked(worker: Any, user: str | None, message: Any) -> Any:
    with speaking_for(user):
        return worker.recv_msg(message)


def pointers(worker: Any, user: str, tag: str) -> Any:
    """The pointer that a search gives a user, or None."""
    with speaking_for(user):
        found = worker.search(tag)
    return found[0] if found else None


def data_id(worker: Any, tag: str) -> Any:
    return worker.search(tag)[0].id_at_location


# -- the file ----------------------------------------------------------------------------------------


def test_the_file_is_understood(policy: OwnerPolicy) -> None:
    assert policy.user("ana") == UserRules(True, True, "all", Limits(max_bytes=16 << 30))
    assert policy.user("bob") == UserRules()
    assert policy.user("eve").may_connect is False and policy.user("eve").may_get == "own"
    assert policy.user("bob").limits == Limits(100_000, 4 << 30, 256 << 20, 60.0, 8)
    assert policy.rules.data[0].may_get == frozenset({"ana"})


def test_an_empty_file_is_what_a_network_worker_has_without_one() -> None:
    assert OwnerPolicy(read_rules("")).rules == OwnerPolicy.for_network().rules
    assert OwnerPolicy.for_network().allows_by_default is False
    assert OwnerPolicy.for_network().user("anybody").may_get == "own"


def test_nobody_is_nobody(policy: OwnerPolicy) -> None:
    for nobody in (None, ""):
        rules = policy.user(nobody)
        assert not rules.may_connect and not rules.may_compute and rules.may_get == "none"
        assert rules.limits.max_bytes == 0


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("x = [", "is not TOML"),
        ("[default]\n", "no section 'default'. The sections are defaults, limits, users, data"),
        (
            "[defaults]\nmay_conect = true",
            r"\[defaults\]: .*unknown field `may_conect`.* The keys are may_connect",
        ),
        ("[defaults]\nmay_connect = 'yes'", r"\[defaults\] may_connect: Expected `bool`"),
        ("[defaults]\nmay_get = 'everything'", r"\[defaults\] may_get: Invalid enum value 'everything'"),
        ("defaults = 5", r"\[defaults\] is a section"),
        ("[limits]\nmax_bytes = 'much'", r"\[limits\] max_bytes: 'much' is not a size"),
        ("[limits]\nmax_bytes = '4 XiB'", "not a size"),
        ("[limits]\nmax_bytes = 0", "1 at least"),
        ("[limits]\nmax_bytes = -5", "1 at least"),
        ("[limits]\nmax_bytes = 1.5", r"max_bytes: Expected"),
        ("[limits]\nmax_objects = 0", r"max_objects: Expected `int` >= 1"),
        ("[limits]\nseconds_per_operation = 0", r"seconds_per_operation: Expected `float` > 0"),
        ("[limits]\nmay_get = 'all'", r"\[limits\]: .*unknown field `may_get`"),
        ("[users]\nana = 5", r"\[users.ana\] is a section"),
        ("[users.ana]\nmax_byts = 5", r"\[users.ana\]: .*unknown field `max_byts`"),
        ("[users.ana]\nmay_get = true", r"\[users.ana\] may_get: Expected `str"),
        ("[users.ana]\nmax_frame = 'x'", r"\[users.ana\] max_frame: 'x' is not a size"),
        ("[users.' ana']\n", "cannot be the name of a user"),
        ("[data]\ntags = ['#x']", "two brackets"),
        ("[[data]]\n", r"\[\[data\]\] number 1: .*missing required field `tags`"),
        (
            "[[data]]\ntags = ['#x']\n[[data]]\ntags = []",
            r"\[\[data\]\] number 2 tags: Expected `array` of length >= 1",
        ),
        ("[[data]]\ntags = '#x'", r"number 1 tags: Expected `array`"),
        ("[[data]]\ntags = ['#x']\nmay_get = 'ana'", r"number 1 may_get: Expected `array"),
        ("[[data]]\ntags = ['#x']\nmay_get = ['']", "cannot be the name of a user"),
        ("[[data]]\ntags = ['#x']\nmay_read = []", r"unknown field `may_read`"),
        (
            "[defaults]\nmay_get = 'all'\n[users.eve]\nmay_get = 'own'",
            r"\[users.eve\]: may_get cannot be \"own\"",
        ),
    ],
)
def test_every_mistake_names_its_key(text: str, words: str) -> None:
    with pytest.raises(PolicyFileError, match=words):
        read_rules(text, "policy.toml")
    with pytest.raises(PolicyFileError, match=r"^policy\.toml"):
        read_rules(text, "policy.toml")


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("5", 5),
        ("5 b", 5),
        ("2 kB", 2000),
        ("2KiB", 2048),
        ("1.5 MiB", 3 << 19),
        ("4 GiB", 4 << 30),
        ("1TB", 10**12),
    ],
)
def test_sizes(text: str, size: int) -> None:
    assert read_rules(f"[limits]\nmax_bytes = '{text}'").defaults.limits.max_bytes == size


@given(st.text())
def test_any_text_is_rules_or_a_sentence(text: str) -> None:
    with contextlib.suppress(PolicyFileError):
        read_rules(text)


def test_files_are_read_again_when_they_change(tmp_path: Path) -> None:
    path = tmp_path / "policy.toml"
    with pytest.raises(PolicyFileError, match="cannot be read"):
        OwnerPolicy.load(path)
    path.write_text("[users.eve]\nmay_connect = false\n")
    policy = OwnerPolicy.load(path)
    assert not policy.reload_if_changed() and not policy.user("eve").may_connect
    path.write_text("[users.eve]\nmay_connect = true\n")
    assert policy.reload_if_changed() and policy.user("eve").may_connect
    path.write_text("[users.eve]\nmay_connect = perhaps\n")
    with pytest.raises(PolicyFileError, match="not TOML"):
        policy.reload_if_changed()
    assert policy.user("eve").may_connect  # the old rules stay
    assert not policy.reload_if_changed()  # and the mistake is told once
    assert not OwnerPolicy().reload_if_changed()


def test_changed_rules_reach_the_data_that_is_there(tmp_path: Path, make_worker: Any) -> None:
    path = tmp_path / "policy.toml"
    path.write_text("[[data]]\ntags = ['#x']\nmay_get = ['ana']\n")
    policy = OwnerPolicy.load(path)
    dan = make_worker("dan", data=[torch.ones(2).tag("#x")], policy=policy)  # type: ignore[attr-defined]
    with speaking_for("ana"):
        assert dan.search("#x")[0].get().tolist() == [1.0, 1.0]
    path.write_text("[[data]]\ntags = ['#x']\nmay_get = ['bob']\n")
    assert policy.reload_if_changed()
    policy.apply_to(dan)
    with speaking_for("ana"), pytest.raises(GetNotPermittedError):
        dan.search("#x")[0].get()
    with speaking_for("bob"):
        assert dan.search("#x")[0].get().tolist() == [1.0, 1.0]


# -- connecting --------------------------------------------------------------------------------------


def test_who_is_let_in(policy: OwnerPolicy) -> None:
    policy.check_connect("ana")
    policy.check_connect("somebody new")
    for user in ("eve", None):
        with pytest.raises(ConnectNotPermittedError, match="does not let them in"):
            policy.check_connect(user)
    Policy().check_connect(None)


# -- the owner's data --------------------------------------------------------------------------------


def test_searches_show_what_a_user_may_find(dan: Any) -> None:
    assert pointers(dan, "ana", "#mnist") is not None
    assert pointers(dan, "cat", "#mnist") is None
    assert pointers(dan, "cat", "#other") is not None
    assert asked(dan, None, SearchMessage(("#other",))) == []
    assert asked(dan, "cat", SearchMessage((data_id(dan, "#mnist"),))) == []
    assert len(dan.search("#mnist")) == 1  # the owner, in the process of the worker


def test_results_follow_the_data(dan: Any) -> None:
    with speaking_for("bob"):
        found = dan.search("#mnist")[0]
        mean = (found * 2).mean()
        with pytest.raises(GetNotPermittedError):
            mean.get()
        with pytest.raises(GetNotPermittedError):
            found.get()
    with speaking_for("ana"):
        assert (dan.search("#mnist")[0] * 2).mean().get().item() == 2 * VALUE
        assert dan.search("#mnist")[0].get().tolist() == [VALUE] * 3


def test_those_who_may_get_all_get_data_without_rules(dan: Any) -> None:
    with speaking_for("ana"):
        mine = torch.ones(2).send(dan)
        assert (dan.search("#other")[0] + mine).get().tolist() == [VALUE + 1] * 2
    with speaking_for("bob"), pytest.raises(GetNotPermittedError):
        (dan.search("#other")[0] + torch.ones(2).send(dan)).get()


def test_all_for_everybody(make_worker: Any) -> None:
    policy = OwnerPolicy(read_rules("[defaults]\nmay_get = 'all'\n[users.noa]\nmay_get = 'none'"))
    dan = make_worker("dan", data=[torch.ones(2).tag("#x")], policy=policy)  # type: ignore[attr-defined]
    with speaking_for("anybody"):
        assert (dan.search("#x")[0] + 1).get().tolist() == [2.0, 2.0]
        mine = torch.ones(2).send(dan)
    with speaking_for("noa"):
        with pytest.raises(GetNotPermittedError):
            (dan.search("#x")[0] + 1).get()
        with pytest.raises(PermissionDeniedError):
            dan.search("#x")[0].move(make_worker("erin"))
    with speaking_for("ben"), pytest.raises(GetNotPermittedError):
        dan.recv_msg(ObjectRequestMessage((mine.id_at_location, "ben", "")))


def test_restrictions_of_the_data_itself_are_narrowed_not_widened(
    make_worker: Any, policy: OwnerPolicy
) -> None:
    private = torch.ones(2).private_tensor(allowed_users=("bob", "ana")).tag("#mnist")  # type: ignore[attr-defined]
    dan = make_worker("dan", data=[private], policy=policy)
    assert dan.allowed_users(data_id(dan, "#mnist")) == frozenset({"ana"})


@pytest.mark.parametrize("user", ["cat", "lea", None])
def test_computing_needs_permission(dan: Any, user: str | None) -> None:
    obj_id = data_id(dan, "#mnist")
    for message in (
        Operation("aten.neg.default", None, (Ref(obj_id),), {}, (ID_PROVIDER.pop(),)),
        Operation("torch.neg", None, (Ref(obj_id),), {}, (ID_PROVIDER.pop(),)),
        Operation("aten.cat.default", None, ([Ref(obj_id)],), {}, (ID_PROVIDER.pop(),)),
        AttributeMessage(obj_id, "data", ID_PROVIDER.pop()),
        GetShapeMessage(obj_id),
        IsNoneMessage(obj_id),
    ):
        with pytest.raises(ComputeNotPermittedError, match="may not compute"):
            asked(dan, user, message)
    assert len(dan._objects) == 2
    record = dan.policy.audit_log[-1]
    assert (record.action, record.user, record.granted, record.obj_id) == ("compute", user, False, obj_id)


def test_somebody_who_may_not_compute_may_not_even_make_zeros(dan: Any) -> None:
    message = Operation("aten.zeros.default", None, ([2],), {}, (ID_PROVIDER.pop(),))
    with pytest.raises(ComputeNotPermittedError):
        asked(dan, "lea", message)
    with speaking_for("lea"):
        assert torch.ones(2).send(dan).get().tolist() == [1.0, 1.0]  # but bring and fetch


def test_somebody_who_may_get_nothing_may_compute_and_clean_up(dan: Any) -> None:
    before = len(dan._objects)
    with speaking_for("noa"):
        mine = torch.ones(3).send(dan)
        total = (dan.search("#mnist")[0] + mine).sum()
        for pointer in (mine, total):
            with pytest.raises(GetNotPermittedError):
                pointer.copy().get()
        mine.add_(1)
        dan.recv_msg(ForceObjectDeleteMessage((mine.id_at_location, total.id_at_location)))
    gc.collect()
    assert len(dan._objects) == before


@pytest.mark.parametrize(
    "change",
    [
        lambda dan, found: found.add_(1),
        lambda dan, found: found.view(-1).zero_(),
        lambda dan, found: found[0:1].fill_(0),
        lambda dan, found: found.copy_(torch.zeros(3).send(dan)),
        lambda dan, found: torch.add(found, 1, out=found),
        lambda dan, found: dan.remote.torch.add(found, 1, out=found),
        lambda dan, found: dan.remote.torch.nn.functional.relu(found, inplace=True),
        lambda dan, found: dan.remote.torch.nn.functional.dropout(found, 0.5, True, True),
        lambda dan, found: dan.remote.torch.nn.functional.batch_norm(
            torch.ones(2, 3).send(dan), found, torch.ones(3).send(dan), training=True
        ),
        lambda dan, found: dan.recv_msg(
            Operation("aten.zeros.default", None, ([3],), {}, (found.id_at_location,))
        ),
        lambda dan, found: dan.recv_msg(ObjectMessage(torch.zeros(3), found.id_at_location)),
        lambda dan, found: dan.recv_msg(ForceObjectDeleteMessage(found.id_at_location)),
        lambda dan, found: dan.recv_msg(ForceObjectDeleteMessage((5, found.id_at_location))),
    ],
)
@pytest.mark.parametrize("user", ["ana", "bob"])
def test_nobody_changes_or_removes_the_owners_data(
    dan: Any, user: str, change: Callable[[Any, Any], Any]
) -> None:
    with speaking_for(user), pytest.raises((SendNotPermittedError, OperationNotAdmittedError)):
        change(dan, dan.search("#mnist")[0])
    (kept,) = (obj for obj in dan._objects.values() if obj.shape == (3,) and obj.tags)
    assert kept.tolist() == [VALUE] * 3
    with speaking_for("ana"):
        assert dan.search("#mnist")[0].get().tolist() == [VALUE] * 3


def test_fetching_the_owners_data_leaves_it_there(dan: Any) -> None:
    for _ in range(2):
        with speaking_for("ana"):
            dan.search("#mnist")[0].get()
    assert len(dan.search("#mnist")) == 1


def test_computing_does_not_take_the_data_from_others(dan: Any) -> None:
    """A public function might write into its arguments, and what it might write into is restricted."""
    with speaking_for("bob"):
        mine = torch.ones(3).send(dan)
        dan.remote.torch.add(dan.search("#mnist")[0], mine)
        dan.search("#mnist")[0] + mine
    with speaking_for("ana"):
        assert dan.search("#mnist")[0].get().tolist() == [VALUE] * 3


# -- what users bring --------------------------------------------------------------------------------


@pytest.fixture
def anas(dan: Any) -> Any:
    with speaking_for("ana"):
        pointer = torch.ones(3).tag("#anas").send(dan, garbage_collect_data=False)  # type: ignore[attr-defined]
    return pointer.id_at_location


def test_what_a_user_brought_is_theirs(dan: Any, anas: Any) -> None:
    assert pointers(dan, "bob", "#anas") is None
    for message in (
        ObjectRequestMessage((anas, "ana", "a claim")),
        Operation("aten.neg.default", None, (Ref(anas),), {}, (ID_PROVIDER.pop(),)),
        Operation("aten.add_.Tensor", None, (Ref(anas), 1), {}, ()),
        Operation("aten.zeros.default", None, ([3],), {}, (anas,)),
        ForceObjectDeleteMessage(anas),
        ObjectMessage(torch.zeros(3), anas, None, "ana"),
        ForwardMessage(anas, "erin", 7, "ana"),
        GetShapeMessage(anas),
        AttributeMessage(anas, "data", ID_PROVIDER.pop(), user="ana"),
    ):
        with pytest.raises(PermissionDeniedError, match="'bob'"):
            asked(dan, "bob", message)
    with speaking_for("ana"):
        assert dan.search("#anas")[0].get().tolist() == [1.0] * 3
    assert not dan.search("#anas")


def test_those_whom_a_user_allows(dan: Any) -> None:
    with speaking_for("ana"):
        private = torch.ones(2).private_tensor(allowed_users=("ana", "bob")).tag("#ours")  # type: ignore[attr-defined]
        private.send(dan, user="ana", garbage_collect_data=False)
    with speaking_for("bob"):
        assert (dan.search("#ours")[0] + 1).get().tolist() == [2.0, 2.0]
    assert pointers(dan, "cat", "#ours") is None


def test_rules_for_tags_let_others_use_what_a_user_brought(make_worker: Any) -> None:
    rules = "[[data]]\ntags = ['#shared']\nmay_compute = ['bob']\nmay_find = ['bob']"
    dan = make_worker("dan", policy=OwnerPolicy(read_rules(rules)))
    with speaking_for("ana"):
        torch.ones(2).tag("#shared").send(dan, garbage_collect_data=False)  # type: ignore[attr-defined]
    with speaking_for("bob"):
        found = dan.search("#shared")[0]
        with pytest.raises(GetNotPermittedError):
            (found + 1).get()
        with pytest.raises(SendNotPermittedError):
            found.add_(1)
    assert pointers(dan, "cat", "#shared") is None


def test_what_is_stored_without_a_word_about_it_is_its_users(dan: Any) -> None:
    with speaking_for("bob"):
        dan.set_obj("made", torch.ones(2))
    assert dan.allowed_users("made") == frozenset({"bob"}) and dan.is_held_by("bob", "made")


def test_results_are_their_makers(dan: Any) -> None:
    with speaking_for("bob"):
        made = dan.remote.torch.zeros(2)
        both = made + 1
    for pointer in (made, both):
        with pytest.raises(GetNotPermittedError):
            asked(dan, "cat", ObjectRequestMessage((pointer.id_at_location, None, "")))
        with pytest.raises(SendNotPermittedError):
            asked(dan, "cat", ForceObjectDeleteMessage(pointer.id_at_location))
    with speaking_for("bob"):
        assert both.get().tolist() == [1.0, 1.0]


def test_training_on_data_one_may_not_see(dan: Any) -> None:
    """The usual use: the model is bob's, the data is not, and so is not what was learnt from it."""
    torch.manual_seed(0)
    model = torch.nn.Linear(3, 1)
    with speaking_for("bob"):
        data = dan.search("#mnist")[0].view(1, 3)
        model.send(dan)
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-9, momentum=0.9)
        for _ in range(3):
            optimizer.zero_grad()
            model(data).sum().backward()
            optimizer.step()
        with pytest.raises(GetNotPermittedError):
            model.get()
        del model, optimizer, data
        gc.collect()
    torch.manual_seed(0)
    model = torch.nn.Linear(3, 1)
    with speaking_for("ana"):
        model.send(dan)
        model(dan.search("#mnist")[0].view(1, 3)).sum().backward()
        assert model.get().weight.grad.tolist() == [[VALUE] * 3]


def test_lstm_calls_obey_too(dan: Any) -> None:
    with speaking_for("cat"):
        model = torch.nn.LSTM(2, 2)
        model.send(dan)
        out, _ = model(torch.ones(3, 1, 2).send(dan))
        out.sum().backward()
        assert out.get().shape == (3, 1, 2)
    with speaking_for("bob"):
        data = dan.search("#other")[0].view(1, 1, 2)
        other = torch.nn.LSTM(2, 2)
        other.send(dan)
        out, _ = other(data)
        with pytest.raises(GetNotPermittedError):
            out.get()


# -- quotas ------------------------------------------------------------------------------------------


@pytest.fixture
def small(make_worker: Any) -> Any:
    rules = "[limits]\nmax_objects = 5\nmax_bytes = 4000\n[users.ana]\nmax_bytes = '1 MiB'\nmax_objects = 100"
    return make_worker("dan", data=[torch.ones(10_000).tag("#big")], policy=OwnerPolicy(read_rules(rules)))  # type: ignore[attr-defined]


def test_nobody_keeps_more_than_they_may(small: Any) -> None:
    before = len(small._objects)
    with speaking_for("bob"):
        kept = torch.ones(500).send(small)
        with pytest.raises(QuotaExceededError, match=r"'bob' holds 2000 bytes .* asked to keep 2400"):
            torch.ones(600).send(small)
        with pytest.raises(QuotaExceededError):
            kept.repeat(2)
        with pytest.raises(QuotaExceededError):
            small.remote.torch.zeros(10**6)
        rows = small.search("#big")[0][:5000]  # a view of the owner's data is no memory of bob's
        assert len(small._objects) == before + 2
        assert small._holdings.quotas.usage("bob") == Usage(2, 2000)
        del rows
        kept.get()
    assert small._holdings.quotas.users().keys() == {""}  # the owner's
    with speaking_for("ana"):
        torch.ones(600).send(small)


def test_the_number_of_objects_is_limited(small: Any) -> None:
    with speaking_for("bob"):
        kept = [torch.ones(1).send(small) for _ in range(5)]
        with pytest.raises(QuotaExceededError, match="holds 5 objects"):
            torch.ones(1).send(small)
        kept.pop()
        gc.collect()
        kept.append(torch.ones(1).send(small))


def test_a_refused_replacement_leaves_the_old_object(small: Any) -> None:
    with speaking_for("bob"):
        kept = torch.ones(3).send(small)
        obj_id = kept.id_at_location
        with pytest.raises(QuotaExceededError):
            small.recv_msg(ObjectMessage(torch.zeros(10_000), obj_id))
        assert kept.get().tolist() == [1.0] * 3
    assert obj_id not in small._objects


def test_counts_are_true_after_a_long_session(small: Any) -> None:
    with speaking_for("ana"):
        for _ in range(20):
            x = torch.ones(10, requires_grad=True).send(small)
            y = (x.view(2, 5) * 3).sum() + small.search("#big")[0].sum()
            y.backward()
            (x * 2).get()
        assert small._holdings.quotas.usage("ana").objects == len(small._objects) - 1
        del x, y
        gc.collect()
        small.run_deletes()
        assert small._holdings.quotas.usage("ana") == Usage(0, 0)


# -- other policies ----------------------------------------------------------------------------------


def test_a_plain_worker_notes_nobody(bob: Any) -> None:
    x = torch.ones(2).send(bob)
    (x + 1).get()
    assert bob._holdings is None
    assert not any(entry.is_owners or entry.holder for entry in bob._entries.values())


def test_any_policy_that_denies_by_default_guards_deletes_and_searches(make_worker: Any) -> None:
    dan = make_worker("dan", data=[torch.ones(2).tag("#owners")], policy=Policy(allows_by_default=False))  # type: ignore[attr-defined]
    eves = torch.ones(2).tag("#eves").send(dan, user="eve")  # type: ignore[attr-defined]
    for obj_id in (data_id(dan, "#owners"), eves.id_at_location):
        with pytest.raises(SendNotPermittedError, match="delete"):
            asked(dan, "ana", ForceObjectDeleteMessage(obj_id))
    assert len(asked(dan, "ana", SearchMessage(("#owners",)))) == 1
    assert asked(dan, "ana", SearchMessage(("#eves",))) == []
    assert len(asked(dan, "eve", SearchMessage(("#eves",)))) == 1
    asked(dan, "eve", ForceObjectDeleteMessage(eves.id_at_location))
    assert not dan.search("#eves")


def test_two_names_of_one_worker_share_what_was_noted(hook: Any, dan: Any) -> None:
    twin = sy.VirtualWorker(hook, id="dan")
    with speaking_for("bob"):
        pointer = torch.ones(2).send(twin)
    assert dan.is_held_by("bob", pointer.id_at_location) and twin._entries is dan._entries
