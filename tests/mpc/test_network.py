"""Programs among workers on a network, each in threads of this process with connections of their own."""

from __future__ import annotations

import contextlib
import inspect
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import syft as sy
from syft.exceptions import (
    GetNotPermittedError,
    ObjectNotFoundError,
    ProtocolError,
    UnknownCommandError,
    WorkerNotFoundException,
)
from syft.identity.tokens import TokenAuthority
from syft.messaging.message import ObjectRequestMessage, Ref
from syft.mpc.correlations import Mask, Square, Triple, Truncation
from syft.mpc.drivers import Lockstep, RoundMismatchError, Shares
from syft.mpc.kernels import Bilinear
from syft.mpc.methods import secret_of
from syft.mpc.network import membership as membership_module
from syft.mpc.network import messages
from syft.mpc.network.membership import Membership, seed_of_run
from syft.mpc.network.messages import PeerFailedError
from syft.mpc.network.outline import outline_of
from syft.mpc.network.programs import PROGRAMS, name_of
from syft.mpc.party import Party
from syft.mpc.protocols import beaver, convert, derived, divide, fss, registry, securenn, select, truncate
from syft.mpc.provider import Provider
from syft.workers.network.client_worker import NetworkClientWorker
from syft.workers.network.server_worker import NetworkServerWorker

pytestmark = pytest.mark.network
HOLDERS = ("alice", "bob")


class Parties:
    """Servers that know each other, and clients of them."""

    def __init__(self, hook: Any, names: tuple[str, ...], authority: TokenAuthority | None = None) -> None:
        self.hook, self.names, self.authority = hook, names, authority
        self.closing = contextlib.ExitStack()
        tokens = {name: authority.verifier(name) if authority else None for name in names}
        self.servers = {
            name: self.closing.enter_context(
                NetworkServerWorker(hook, "tcp://127.0.0.1:0", id=name, tokens=tokens[name])
            )
            for name in names
        }

    def introduce(self, patience: float = 30.0) -> None:
        for one in self.servers.values():
            for other in self.servers.values():
                if other is not one:
                    one.add_worker(self.connect(other.id, patience=patience, **self.shown(one.id)))

    def shown(self, user: str) -> dict[str, str]:
        """What proves who somebody is."""
        return {"token": self.authority.issue(user, 600)} if self.authority else {}

    def connect(self, name: str, **options: Any) -> NetworkClientWorker:
        client = NetworkClientWorker(self.hook, self.servers[name].address, name, auto_add=False, **options)
        return self.closing.enter_context(client)

    def client(self, **options: Any) -> SimpleNamespace:
        """A connection to each, and how to share with them."""
        links = {name: self.connect(name, **options) for name in self.names}
        *holders, provider = links.values()

        def share(tensor: torch.Tensor, **how: Any) -> Any:
            if tensor.is_floating_point():
                tensor = tensor.fix_precision()  # type: ignore[attr-defined]
            return tensor.share(*holders, crypto_provider=provider, **how)  # type: ignore[attr-defined]

        return SimpleNamespace(share=share, holders=holders, provider=provider, **links)

    def stored(self, node: Any) -> list[torch.Tensor]:
        """The shares of a secret, read where they are."""
        for pointer in node.pointers:
            pointer.location.sync()
        return [self.servers[p.location.id]._stored[p.id_at_location] for p in node.pointers]

    def membership(self, name: str) -> Membership:
        (found,) = [m for m in self.servers[name]._stored.values() if type(m) is Membership]
        return found


@pytest.fixture
def parties(hook: Any, me: Any) -> Iterator[Parties]:
    made = Parties(hook, (*HOLDERS, "carol"))
    with made.closing:
        made.introduce()
        yield made


@pytest.fixture
def client(parties: Parties) -> SimpleNamespace:
    return parties.client()


def node_of(secret: Any) -> Any:
    return secret_of(secret.child)


# -- what a user does ------------------------------------------------------------------------------------


def test_arithmetic_and_comparisons_are_those_of_torch(client: Any) -> None:
    x, y = torch.randn(4, 5), torch.randn(4, 5)
    xs, ys = client.share(x), client.share(y)
    for ours, plain in (
        (xs + ys - 1, x + y - 1),
        (xs * 2.5, x * 2.5),
        (xs * ys, x * y),
        (xs @ ys.t(), x @ y.t()),
        (torch.relu(xs), x.relu()),
        (xs.sum(0), x.sum(0)),
        (xs.max(1)[0], x.max(1)[0]),
    ):
        assert (ours.get().float_precision() - plain).abs().max() < 0.01
    assert torch.equal((xs < ys).get().float_precision().bool(), x < y)
    assert torch.equal(xs.argmax(1).get().long().view(-1), x.argmax(1))


def test_integers_are_exact(client: Any) -> None:
    x, y = torch.tensor([-7, 5, 2**40, -(2**62)]), torch.tensor([3, -5, 2**20, 1])
    xs, ys = client.share(x), client.share(y)
    assert torch.equal((xs * ys).get(), x * y)
    assert torch.equal((xs == ys).get().bool(), x == y)
    assert torch.equal(
        torch.div(xs, 7, rounding_mode="floor").get()[:3], torch.div(x, 7, rounding_mode="floor")[:3]
    )
    assert torch.equal(xs.refresh().get(), x)


@pytest.mark.parametrize("protocol", ["tree2", "fss", "snn"])
def test_every_comparison_protocol_runs(client: Any, protocol: str) -> None:
    x = torch.tensor([-3, 0, 4, 2**40, -(2**40)])
    assert (client.share(x, protocol=protocol) < 0).get().tolist() == [1, 0, 0, 0, 1]
    assert torch.relu(client.share(x, protocol=protocol)).get().tolist() == x.relu().tolist()
    assert (client.share(x, protocol=protocol) == 4).get().tolist() == [0, 0, 1, 0, 0]


def test_three_holders(hook: Any, me: Any) -> None:
    made = Parties(hook, ("alice", "bob", "dan", "carol"))
    with made.closing:
        made.introduce()
        client = made.client()
        x = torch.randn(3, 4)
        assert ((client.share(x) * client.share(x)).get().float_precision() - x * x).abs().max() < 0.01
        assert torch.relu(client.share(torch.tensor([-2, 3]))).get().tolist() == [0, 3]


def test_a_model_infers_and_trains_like_plain_torch(client: Any) -> None:
    torch.manual_seed(1)

    def made() -> Any:
        torch.manual_seed(0)
        return torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.ReLU(), torch.nn.Linear(6, 2))

    data, target = torch.randn(8, 4), torch.randn(8, 2)
    plain, shared = made(), made()
    shared.fix_precision().share(*client.holders, crypto_provider=client.provider)
    optimizers = [torch.optim.SGD(m.parameters(), lr=0.1) for m in (plain, shared)]
    secret, secret_target = client.share(data), client.share(target)
    for _ in range(2):
        for model, x, y, optimizer in (
            (plain, data, target, optimizers[0]),
            (shared, secret, secret_target, optimizers[1]),
        ):
            optimizer.zero_grad()
            ((model(x) - y) ** 2).mean().backward()
            optimizer.step()
    with torch.no_grad():
        assert (shared(secret).get().float_precision() - plain(data)).abs().max() < 0.05
    shared.get().float_precision()
    for ours, theirs in zip(shared.parameters(), plain.parameters(), strict=True):
        assert (ours - theirs).abs().max() < 0.05


def test_debug_waits_after_every_command(parties: Parties) -> None:
    client = parties.client(debug=True)
    x = client.share(torch.tensor([2, -3]))
    assert (x * x).get().tolist() == [4, 9]


def test_documented_triples_come_from_the_provider(client: Any) -> None:
    from syft.mpc.documented.beaver import request_triple

    a, b, c = request_triple(client.provider, "matmul", None, (2, 3), (3, 2), client.holders)
    assert torch.equal(a.get() @ b.get(), c.get())


def test_the_documented_private_compare_takes_what_the_holders_have(client: Any) -> None:
    from syft.mpc.documented.securenn import decompose, private_compare

    x, r = torch.tensor([5, 9, 7]), torch.tensor([7, 7, 7])
    beta = torch.tensor([0, 1, 0])
    for given in (r, r.send(*client.holders)):
        bits = client.share(decompose(x))
        assert private_compare(bits, given, beta).get().tolist() == [0, 0, 0]
    with pytest.raises(ValueError, match="one value per number"):
        private_compare(client.share(decompose(x)), r[:2].send(*client.holders), beta)


def test_the_holders_open_a_secret_among_themselves(client: Any) -> None:
    opened = client.share(torch.tensor([5, -6])).reconstruct()
    assert [value.tolist() for value in opened.child.get()] == [[5, -6], [5, -6]]


# -- the same bits, rounds and bytes as in lockstep ----------------------------------------------------------

X = torch.tensor([[5, -3, 0, 2**40], [-(2**40), 7, 7, -1]])
CASES: list[tuple[Any, tuple[Any, ...]]] = [
    (beaver.spdz_mul, (X + 1,)),
    (beaver.spdz_mul, (X.t().contiguous(), Bilinear("matmul"))),
    (beaver.square, ()),
    (truncate.truncate, (1000,)),
    (truncate.truncate, (1 << 16,)),
    (registry.comparison("tree").is_negative, ()),
    (registry.comparison("tree2").is_zero, ()),
    (registry.comparison("fss").relu, ()),
    (select.max_with_indices, (1,)),
    (derived.positive_part, ()),
    (derived.leading_bit, (62,)),
    (derived.one_hot, (8,)),
    (divide.divide_public, (7, "floor")),
]


@pytest.mark.parametrize(("protocol", "rest"), CASES, ids=lambda v: getattr(v, "__name__", ""))
def test_results_rounds_and_bytes_are_those_of_lockstep(
    parties: Parties, client: Any, protocol: Any, rest: tuple[Any, ...]
) -> None:
    x = client.share(X).child
    extra = [client.share(value).child if isinstance(value, torch.Tensor) else value for value in rest]
    group = x.group
    group.reset_costs()
    found = x.nodes(group.run(protocol, x, *extra))
    results = found if isinstance(found, tuple) else (found,)
    dealing = parties.membership("carol").dealing
    number = group.driver._run
    lockstep = Lockstep(2, Provider(2, [seed_of_run(dealing[rank], number) for rank in range(2)]))
    made = len(dealing)
    lockstep.provider.cost.messages -= made
    arguments = [Shares(parties.stored(v)) if hasattr(v, "pointers") else v for v in (x, *extra)]
    expected = lockstep.run(protocol, *arguments)
    expected = (expected,) if isinstance(expected, Shares) else expected
    for ours, theirs in zip(results, expected, strict=True):
        for mine, other in zip(parties.stored(ours), theirs, strict=True):
            assert torch.equal(mine, other)
        assert [tuple(p.spec.shape) for p in ours.pointers] == [tuple(t.shape) for t in theirs]
    assert group.online.rounds == lockstep.cost.rounds
    assert group.online.bytes_sent == lockstep.cost.bytes_sent
    assert group.offline.correlations == lockstep.provider.cost.correlations
    assert group.offline.messages == lockstep.provider.cost.messages


def test_a_run_never_draws_what_another_drew(parties: Parties, client: Any) -> None:
    kind = Square((4,))
    x = client.share(torch.zeros(4, dtype=torch.int64)).child
    first, second = (x.nodes(x.group.run(PROGRAMS["documented.take"], kind)) for _ in range(2))
    for ours, others in zip(first, second, strict=True):
        for mine, other in zip(parties.stored(ours), parties.stored(others), strict=True):
            assert not torch.equal(mine, other)


def test_secure_nn_counts_the_provider_among_the_parties(client: Any) -> None:
    x = client.share(torch.tensor([1, -2]), protocol="snn")
    group = node_of(x).group
    group.reset_costs()
    lockstep = Lockstep(2)
    lockstep.run(securenn.relu, Shares([torch.tensor([1, -2]), torch.zeros(2, dtype=torch.int64)]))
    torch.relu(x)
    assert group.online.bytes_sent == lockstep.cost.bytes_sent
    assert group.online.rounds == lockstep.cost.rounds


# -- the client is not on the way ------------------------------------------------------------------------------


def test_nothing_but_none_comes_back_to_the_client(client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    x = client.share(torch.randn(3, 3))
    y = x @ x
    links = {id(member) for member in (*client.holders, client.provider)}
    told: list[Any] = []
    plain = NetworkClientWorker._recv_msg

    def listen(self: Any, message: Any) -> Any:
        reply = plain(self, message)
        if id(self) in links:
            told.append((type(message), reply))
        return reply

    monkeypatch.setattr(NetworkClientWorker, "_recv_msg", listen)
    z = torch.relu(y @ y) < 1
    assert {reply for _, reply in told} == {None}
    sent = [kind for kind, _ in told if kind is messages.RunProgram]
    assert len(sent) == 2 * 4  # two holders: product, truncation, relu, comparison
    assert z.get().shape == (3, 3)


def test_the_client_goes_on_while_a_holder_is_busy(parties: Parties, client: Any) -> None:
    x = client.share(torch.tensor([3, -4]))
    assert (x * x).get().tolist() == [9, 16]
    busy = parties.servers["bob"]._server._turn
    with busy:
        y = x * x * x  # returns, although bob does nothing
        assert y.shape == (2,)
        assert node_of(y).pointers[0].id_at_location not in parties.servers["alice"]._stored
    assert y.get().tolist() == [27, -64]


def test_an_outline_is_what_the_program_does() -> None:
    for name, args in (("beaver.square", ()), ("truncate.truncate", (1000,)), ("select.relu", ())):
        secret = sy.mpc.network.outline.Secret((3,), torch.int64)
        outline = outline_of(name, 2, (secret, *args), ())
        assert outline.results.shape == (3,) and len(outline.kinds) == 1 and not outline.needs_provider
    assert outline_of("securenn.relu", 2, (secret,), ()).needs_provider


# -- ahead of time ---------------------------------------------------------------------------------------------


def test_what_was_dealt_ahead_is_used_first_and_once(parties: Parties, client: Any) -> None:
    x = client.share(torch.tensor([3, -4]))
    group = node_of(x).group
    group.reset_costs()
    group.provide(Square((2,)), Truncation((2,), 10), count=2)
    assert group.offline.correlations == 4 and group.driver.provider.ready(Square((2,))) == 2
    squares = [x * x, x * x, x * x]
    assert all(s.get().tolist() == [9, 16] for s in squares)
    assert group.offline.correlations == 5
    assert len(parties.membership("alice").ahead) == len(parties.membership("bob").ahead) == 2


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
        with pytest.raises(ProtocolError, match="the client's own"):
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
    group = next(i for i, m in parties.servers["alice"]._stored.items() if type(m) is Membership)
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
    huge, kept = Square((1 << 50,)), Triple(Bilinear("mul"), (1,), (1,), kept_x=0)
    for number, (kind, error) in enumerate(((huge, ValueError), (kept, TypeError))):
        client.provider._recv_msg(messages.DealCorrelations(group, 90 + number, (kind,)))
        with pytest.raises(error):
            client.provider.sync()
    client.provider._recv_msg(messages.DealCorrelations(group, 90, (Square((1,)),)))
    with pytest.raises(ProtocolError, match="dealt once"):
        client.provider.sync()
    with pytest.raises(sy.serde.SerdeError):
        client.provider._recv_msg(messages.DealCorrelations(group, 95, (Mask((1,)),)))


def test_corrections_come_from_the_provider_alone(parties: Parties, client: Any) -> None:
    x = client.share(torch.tensor([3]))
    (x * x).get()
    channel = parties.membership("alice").channels[1]
    channel.send(messages.Dealt(channel.ticket, 9, Square((1,)), (torch.zeros(1, dtype=torch.int64),)))
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
    refs = [Ref(p.id_at_location) for p in node_of(x).pointers]
    driver._run += 1
    for holder, ref, divisor in ((client.alice, refs[0], 10), (client.bob, refs[1], 0)):
        holder._recv_msg(
            messages.RunProgram(driver._group, driver._run, "truncate.truncate", (ref, divisor), {}, (1,))
        )
        holder.flush()
    with pytest.raises(PeerFailedError, match="'bob' failed: ValueError"):
        client.alice.sync()
    with pytest.raises(ValueError, match="Truncation divides"):
        client.bob.sync()
    assert (x * x).get().tolist() == [9, 16]


def test_programs_that_diverge_are_found_out(parties: Parties, client: Any) -> None:
    x = client.share(torch.tensor([3, 4]))
    (x * x).get()
    driver = node_of(x).group.driver
    driver._run += 1
    client.provider._recv_msg(messages.DealCorrelations(driver._group, driver._run, (Square((2,)),)))
    client.provider.flush()
    for holder, pointer, name in zip(
        client.holders, node_of(x).pointers, ("beaver.square", "derived.leading_bit"), strict=True
    ):
        holder._recv_msg(
            messages.RunProgram(driver._group, driver._run, name, (Ref(pointer.id_at_location),), {}, (1,))
        )
        holder.flush()
    with pytest.raises(RoundMismatchError, match="the provider dealt"):
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
        thread.join(60)
    assert not failures, failures[0]


def test_a_provider_that_is_far_ahead_waits(
    parties: Parties, client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(membership_module, "_AHEAD_BYTES", 40_000)
    x = client.share(torch.arange(1000))
    (x * x).get()
    alice, seen = parties.servers["alice"]._server._turn, []
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
    assert all(not server._stored for server in parties.servers.values())


# -- the list of programs ----------------------------------------------------------------------------------------

#: Parts of programs, which take or give more than shares.
PARTS = {
    beaver: {"mask"},
    convert: {"bits_to_arithmetic", "multiply_bits"},
    select: {"multiply_compared", "tournament"},
    securenn: {"private_compare"},
    fss: {"compare"},
}


def test_every_program_has_a_name() -> None:
    named = set(PROGRAMS.values())
    for module in (beaver, convert, derived, divide, fss, securenn, select, truncate):
        for name, function in inspect.getmembers(module, inspect.isgeneratorfunction):
            if function.__module__ == module.__name__ and not name.startswith("_"):
                assert function in named or name in PARTS.get(module, ()), f"{module.__name__}.{name}"
    for protocol in registry.registry.values():
        for program in (protocol.is_negative, protocol.is_zero, protocol.relu, protocol.relu_with_bit):
            name, fixed = name_of(program)
            assert PROGRAMS[name] in named and set(fixed) <= {"how"}


def test_a_program_without_a_name_is_refused(client: Any) -> None:
    def mine(party: Party, x: torch.Tensor) -> Any:
        yield party.open(x)

    with pytest.raises(NotImplementedError, match=r"mine.*PROGRAMS"):
        node_of(client.share(torch.tensor([1]))).run(mine)


def test_records_travel_as_themselves() -> None:
    for value in (
        Triple(Bilinear.of("conv", stride=(1, 2), padding=(0, 0)), (1, 2, 3, 3), (2, 2, 1, 1)),
        messages.Shape((2, 3), torch.uint8),
        select.Pooling((2, 2), (1, 1)),
        fss.Key(3, True, False),
        messages.RunProgram(1, 2, "beaver.square", (Ref(3), 4, None), {"how": "fss"}, (5,), ((1, 0), None)),
    ):
        assert sy.serde.deserialize(sy.serde.serialize(value)) == value
