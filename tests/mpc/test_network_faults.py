"""Programs among workers on a network: who takes part, strangers, failures, and many at once."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import torch

import syft as sy
from mpc.network_parties import HOLDERS, Parties, node_of
from syft.exceptions import (
    GetNotPermittedError,
    ObjectNotFoundError,
    ProtocolError,
    UnknownCommandError,
    WorkerNotFoundException,
)
from syft.identity.tokens import TokenAuthority
from syft.messaging.message import ObjectRequestMessage, Ref
from syft.mpc.binding import Share, program_digest
from syft.mpc.correlations import Place, Square, Triple
from syft.mpc.drivers import RoundMismatchError
from syft.mpc.kernels import Bilinear
from syft.mpc.network import membership as membership_module
from syft.mpc.network import messages
from syft.mpc.network.membership import Membership
from syft.mpc.network.messages import PeerFailedError
from syft.mpc.protocols import beaver
from syft.workers.network.server_worker import NetworkServerWorker

pytestmark = pytest.mark.network


# -- who takes part ---------------------------------------------------------------------------------------------


def test_workers_that_were_not_introduced_are_named(hook: Any, me: Any) -> None:
    made = Parties(hook, (*HOLDERS, "carol"))
    with made.closing:
        client = made.client()
        x = client.share(torch.tensor([1, 2]))
        assert (x + x).get().tolist() == [2, 4]  # needs nobody else
        with pytest.raises(
            WorkerNotFoundException, match=r"'alice' has no connection of its own to worker 'bob'.*--peer"
        ):
            client.share(torch.tensor([1, 2])) * 2 * x


def test_a_link_that_is_the_clients_own_is_refused(hook: Any, me: Any) -> None:
    made = Parties(hook, (*HOLDERS, "carol"))
    with made.closing:
        client = made.client()
        for one in made.servers.values():
            one.add_workers(m for m in (*client.holders, client.provider) if m.id != one.id)
        x = client.share(torch.tensor([1, 2]))
        with pytest.raises(ProtocolError, match="one of the client's"):
            x * x


def test_workers_of_both_kinds_do_not_mix(client: Any, make_worker: Any) -> None:
    for holders, provider in (
        (client.holders, None),
        (client.holders, make_worker("near")),
        ([client.alice, make_worker("near")], client.provider),
    ):
        with pytest.raises(ValueError, match=r"on a network and .* in this process"):
            torch.tensor([1]).share(*holders, crypto_provider=provider)


def test_values_are_read_with_get_only(client: Any) -> None:
    x = client.share(torch.tensor([1, 2]))
    with pytest.raises(NotImplementedError, match="not read here"):
        x.virtual_get()


def test_a_group_is_made_anew_when_its_members_were_cleared(client: Any) -> None:
    for value in (3, 4):
        x = client.share(torch.tensor([value]))
        assert (x * x).get().tolist() == [value**2]
        client.bob.clear_objects()


def test_joining_is_written_down(parties: Parties, client: Any) -> None:
    x = client.share(torch.tensor([3]))
    (x * x).get()
    (record,) = [r for r in parties.servers["alice"].policy.audit_log if r.action == "join"]
    assert record.granted and record.user == client.alice.user and "alice, bob, carol" in record.reason


# -- strangers --------------------------------------------------------------------------------------------------


def test_frames_need_a_ticket(parties: Parties, client: Any) -> None:
    x = client.share(torch.tensor([3]))
    (x * x).get()
    stranger = parties.connect("alice")
    for message in (
        messages.Frame(bytes(16), 2, (torch.zeros(1, dtype=torch.int64),)),
        messages.RunFailed(bytes(16), 2, "ha"),
        messages.Seeds(bytes(16), bytes(16), bytes(16)),
        messages.AreYouThere(bytes(16)),
    ):
        stranger._recv_msg(message) if not message.is_asked() else None
        with pytest.raises(ProtocolError, match="no such ticket"):
            stranger._recv_msg(message) if message.is_asked() else stranger.sync()
    assert (x * x).get().tolist() == [9]


def test_a_group_serves_the_user_who_made_it(parties: Parties, client: Any) -> None:
    x = client.share(torch.tensor([3]))
    (x * x).get()
    group = next(i for i, m in parties.servers["alice"]._objects.items() if type(m) is Membership)
    stranger = parties.connect("alice")
    share = node_of(x).pointers[0].id_at_location
    stranger._recv_msg(messages.RunProgram(group, 99, "beaver.square", (Ref(share),), {}, (12345,)))
    with pytest.raises(ObjectNotFoundError):
        stranger.sync()
    with pytest.raises(ObjectNotFoundError):
        stranger._recv_msg(messages.GroupCosts(group))
    with pytest.raises(ProtocolError, match="has given its ticket"):
        stranger._recv_msg(messages.Ticket(group, 1, bytes(16)))
    assert (x * x).get().tolist() == [9]


def test_shares_and_results_are_restricted_to_who_brought_them(parties: Parties, client: Any) -> None:
    x = client.share(torch.tensor([3, 4]))
    y = x * x
    pointer = node_of(y).pointers[0]
    client.alice.sync()
    stranger = parties.connect("alice")
    with pytest.raises(GetNotPermittedError):
        stranger._recv_msg(ObjectRequestMessage((pointer.id_at_location, None, "")))
    assert parties.servers["alice"].allowed_users(pointer.id_at_location) == {client.alice.user}
    assert y.get().tolist() == [9, 16]


def test_another_users_shares_are_not_computed_on(parties: Parties, client: Any) -> None:
    theirs = node_of(client.share(torch.tensor([3, 4])))
    client.alice.sync()
    other = parties.client()
    mine = node_of(other.share(torch.tensor([1, 1])))
    stolen = mine.of(
        [
            sy.tensors.pointer.new_pointer(o.location, p.id_at_location, p.spec)
            for o, p in zip(mine.pointers, theirs.pointers, strict=True)
        ]
    )
    for pointer in stolen.pointers:
        pointer.garbage_collect_data = False
    stolen.run(beaver.reveal)
    with pytest.raises(sy.exceptions.ComputeNotPermittedError):
        other.alice.sync()


def test_only_names_of_the_list_are_run(parties: Parties, client: Any) -> None:
    x = client.share(torch.tensor([3]))
    (x * x).get()
    driver = node_of(x).group.driver
    share = node_of(x).pointers[0].id_at_location
    for number, (name, error) in enumerate(
        (("os.system", UnknownCommandError), ("beaver.release", UnknownCommandError))
    ):
        client.alice._recv_msg(messages.RunProgram(driver._group, 50 + number, name, (Ref(share),), {}, (1,)))
        with pytest.raises(error):
            client.alice.sync()
    client.alice._recv_msg(messages.RunProgram(driver._group, 50, "beaver.square", (Ref(share),), {}, (1,)))
    with pytest.raises(ProtocolError, match="numbers go up"):
        client.alice.sync()


def test_a_provider_deals_what_fits_and_each_run_once(parties: Parties, client: Any) -> None:
    x = client.share(torch.tensor([3]))
    (x * x).get()
    group = node_of(x).group.driver._group
    op = Bilinear("matmul")
    huge, kept = (
        Square((1 << 50,)),
        Triple(op, (1, 1 << 50), (1 << 50, 1), Place(1, b"", 0), Place(2, b"", 0)),
    )
    no_place = Triple(op, (1, 1), (1, 1), kept_x=0)  # type: ignore[arg-type]
    wrong = ((huge, ValueError), (kept, ValueError), (no_place, sy.serde.SerdeError))
    for number, (kind, error) in enumerate(wrong):
        client.provider._recv_msg(messages.DealCorrelations(group, 90 + number, (kind,)))
        with pytest.raises(error):
            client.provider.sync()
    client.provider._recv_msg(messages.DealCorrelations(group, 90, (Square((1,)),)))
    with pytest.raises(ProtocolError, match="dealt once"):
        client.provider.sync()


def test_corrections_come_from_the_provider_alone(parties: Parties, client: Any) -> None:
    x = client.share(torch.tensor([3]))
    (x * x).get()
    channel = parties.membership("alice").channels[1]
    channel.send(messages.Dealt(channel.ticket, 9, b"", bytes(16), (torch.zeros(1, dtype=torch.int64),)))
    with pytest.raises(ProtocolError, match="come from the provider"):
        channel.peer.sync()


def test_users_with_tokens_share_where_the_data_is(hook: Any, me: Any, tmp_path: Any) -> None:
    authority = TokenAuthority.create(tmp_path / "keys")
    made = Parties(hook, (*HOLDERS, "carol"), authority)
    dan = NetworkServerWorker(hook, "tcp://127.0.0.1:0", id="dan", tokens=authority.verifier("dan"))
    with made.closing:
        made.servers["dan"] = made.closing.enter_context(dan)
        made.introduce()
        ana, ben = made.client(**made.shown("ana")), made.client(**made.shown("ben"))
        values = torch.tensor([3, -4]).send(made.connect("dan", **made.shown("ana")))
        secret = values.share(*ana.holders, crypto_provider=ana.provider).get()
        assert (secret * secret).get().tolist() == [9, 16]
        pointer = node_of(secret).pointers[0]
        assert made.servers["alice"].allowed_users(pointer.id_at_location) == {"ana"}
        with pytest.raises(GetNotPermittedError):
            ben.alice._recv_msg(ObjectRequestMessage((pointer.id_at_location, "ana", "")))


# -- when something fails ----------------------------------------------------------------------------------------


def test_a_failure_is_told_at_both_ends_and_the_next_run_works(parties: Parties, client: Any) -> None:
    x = client.share(torch.tensor([3, 4]))
    (x * x).get()
    driver = node_of(x).group.driver
    here = Ref(node_of(x).pointers[0].id_at_location)
    driver._run += 1
    for holder, ref in ((client.alice, here), (client.bob, Ref(12345))):
        holder._recv_msg(
            messages.RunProgram(driver._group, driver._run, "truncate.truncate", (ref, 10), {}, (1,))
        )
        holder.flush()
    with pytest.raises(PeerFailedError, match="'bob' failed: ObjectNotFoundError"):
        client.alice.sync()
    with pytest.raises(ObjectNotFoundError):
        client.bob.sync()
    assert (x * x).get().tolist() == [9, 16]


def test_programs_that_diverge_are_found_out(parties: Parties, client: Any) -> None:
    x = client.share(torch.tensor([3, 4]))
    (x * x).get()
    driver = node_of(x).group.driver
    driver._run += 1
    square = program_digest("beaver.square", (Share((2,), torch.int64),), {}, ())
    deal = messages.DealCorrelations(driver._group, driver._run, (Square((2,)),), square)
    client.provider._recv_msg(deal)
    client.provider.flush()
    for holder, pointer, name in zip(
        client.holders, node_of(x).pointers, ("beaver.square", "derived.leading_bit"), strict=True
    ):
        holder._recv_msg(
            messages.RunProgram(driver._group, driver._run, name, (Ref(pointer.id_at_location),), {}, (1,))
        )
        holder.flush()
    # Whoever is faster tells bob: the provider, or alice, whom it told.
    with pytest.raises(
        (RoundMismatchError, PeerFailedError),
        match=r"'carol' dealt for another program than worker 'bob'|'bob' another program, or with other shapes",
    ):
        client.bob.sync()
    with pytest.raises((PeerFailedError, RoundMismatchError)):
        client.alice.sync()
    assert (x * x).get().tolist() == [9, 16]


def test_a_run_that_the_peer_was_not_asked_for_ends(parties: Parties) -> None:
    client = parties.client(patience=0.1)
    x = client.share(torch.tensor([3, 4]))
    (x * x).get()
    driver = node_of(x).group.driver
    driver._run += 1
    message = messages.RunProgram(
        driver._group, driver._run, "beaver.square", (Ref(node_of(x).pointers[0].id_at_location),), {}, (1,)
    )
    client.alice._recv_msg(message)
    with pytest.raises(PeerFailedError, match="not asked to take part"):
        client.alice.sync()


def test_a_dead_holder_is_told_of_in_time(hook: Any, me: Any) -> None:
    made = Parties(hook, (*HOLDERS, "carol"))
    with made.closing:
        made.introduce(patience=0.3)
        client = made.client(patience=0.3)
        x = client.share(torch.tensor([3, 4]))
        (x * x).get()
        driver = node_of(x).group.driver
        made.servers["bob"].stop()
        message = messages.RunProgram(
            driver._group, 2, "beaver.square", (Ref(node_of(x).pointers[0].id_at_location),), {}, (1,)
        )
        client.alice._recv_msg(message)
        with pytest.raises((PeerFailedError, sy.exceptions.NetworkError), match="bob"):
            client.alice.sync()


def test_a_restarted_holder_joins_anew(hook: Any, me: Any) -> None:
    made = Parties(hook, (*HOLDERS, "carol"))
    with made.closing:
        made.introduce()
        client = made.client()
        x = client.share(torch.tensor([3, 4]))
        (x * x).get()
        address = made.servers["bob"].address
        made.servers["bob"].stop()
        made.servers["bob"] = made.closing.enter_context(NetworkServerWorker(hook, address, id="bob"))
        for name in ("alice", "carol"):
            made.servers["bob"].add_worker(made.connect(name))
        with pytest.raises(sy.exceptions.WorkerRestartedError):
            client.bob.sync()
        y = client.share(torch.tensor([5, 6]))
        assert (y * y).get().tolist() == [25, 36]


# -- many at once ------------------------------------------------------------------------------------------------


def test_clients_and_threads_do_not_mix(parties: Parties) -> None:
    failures: list[BaseException] = []

    def work(client: Any, number: int) -> None:
        try:
            for step in range(6):
                x = torch.tensor([number, -step, number * step])
                secret = client.share(x)
                assert torch.equal((secret * secret).get(), x * x)
                assert torch.relu(client.share(x)).get().tolist() == x.relu().tolist()
        except BaseException as error:  # noqa: BLE001  (told by the test)
            failures.append(error)

    clients = [parties.client() for _ in range(2)]
    threads = [threading.Thread(target=work, args=(clients[n % 2], n + 1)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert not failures, failures[0]


def test_a_provider_that_is_far_ahead_waits(
    parties: Parties, client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(membership_module, "_AHEAD_BYTES", 40_000)
    x = client.share(torch.arange(1000))
    (x * x).get()
    alice, seen = parties.servers["alice"]._server._worker_lock, []
    with alice:
        squares = [x * x for _ in range(30)]
        client.provider.flush()
        for _ in range(20):
            threading.Event().wait(0.02)
            seen.append(parties.membership("bob")._waiting_bytes)
    assert max(seen) <= 40_000 + 8_000
    assert all(torch.equal(s.get(), torch.arange(1000) ** 2) for s in squares)


def test_what_a_client_leaves_is_freed(parties: Parties) -> None:
    client = parties.client()
    x = client.share(torch.tensor([3, 4]))
    y = x * x
    assert y.get().tolist() == [9, 16]
    for member in (*client.holders, client.provider):
        member.close()
    assert all(not server._objects for server in parties.servers.values())
