"""Programs among workers on a network: what a user does, and that it is what the lockstep driver does."""

from __future__ import annotations

import inspect
import itertools
import subprocess
import sys
from typing import Any

import pytest
import torch

import syft as sy
from mpc.network_parties import Parties, node_of
from syft.messaging.message import Ref
from syft.mpc.binding import Share, program_digest
from syft.mpc.correlations import Square, Triple, Truncation
from syft.mpc.drivers import Lockstep, Shares
from syft.mpc.kernels import Bilinear
from syft.mpc.network import messages
from syft.mpc.network.outline import outline_of
from syft.mpc.network.programs import OPENING, PROGRAMS, name_of
from syft.mpc.party import Party
from syft.mpc.programs import party_program
from syft.mpc.protocols import (
    beaver,
    convert,
    derived,
    divide,
    exponential,
    fss,
    leading,
    lookup,
    registry,
    securenn,
    select,
    softmax,
    truncate,
    waves,
)
from syft.mpc.protocols.polynomials import matrix_of
from syft.mpc.provider import Provider
from syft.mpc.rules.fixed_exponentials import power_below_one
from syft.workers.network.client_worker import NetworkClientWorker

pytestmark = pytest.mark.network


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
    (derived.largest, (1,)),
    (truncate.rescale, (3, 7)),
    (truncate.rescale_together, (3, 7, X + 1, X[0])),
    (derived.relu_of_windows, (select.Pooling((2, 2), (2, 2)), -(1 << 60))),
    (lookup.piecewise, (28, 8, lookup.packed([5] * 8, [1 << 28] * 8, [7] * 8))),
    (
        exponential.exponential,
        (4, -20, 4, 8, ((1 << 23, 20, 0), (1 << 23, 3, 1)), (9, 0), -9, 30, 1 << 57, 4),
    ),
    (
        leading.scaled_function,
        (
            lookup.packed(list(range(8)), [3] * 8),
            lookup.packed([5] * 8, [1 << k for k in range(8)]),
            *(2, matrix_of([1.0, 0.5, 0.25]), 28, 1 << 20, 1 << 12),
        ),
    ),
    (
        leading.shifted_function,
        (
            lookup.packed([5] * 8, [6] * 8),
            lookup.packed([5] * 8, [7] * 8),
            1,
            matrix_of([1.0, 0.5]),
            28,
            3,
            8,
        ),
    ),
    (
        softmax.softmax,
        (1, power_below_one(1 << 16, 1 << 28), 16, 28, 128, lookup.packed(*[[3] * 128] * 5), 1 << 40),
    ),
    (
        softmax.log_softmax,
        (1, power_below_one(1 << 16, 1 << 28), 16, 28, 128, lookup.packed(*[[3] * 128] * 10), 1 << 40),
    ),
    (softmax.log_softmax_backward, (X + 2, X[:, :1] + 1, 1, 1 << 40, 1 << 16)),
    (select.cut_magnitude, (1000,)),
    (waves.odd_function, (3, 12, (1 << 40, 1 << 39), 1 << 30, 200, 1 << 29)),
    (waves.sines, (3, 12, (1 << 40,), 1 << 30)),
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
    name, fixed = name_of(protocol)
    told = [Share(tuple(v.shape), torch.int64) if hasattr(v, "pointers") else v for v in (x, *extra)]
    program = program_digest(name, told, fixed, ())
    provider = Provider(2, [dealing[rank] for rank in range(2)], next_run=number)
    lockstep = Lockstep(2, provider, program=program)
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
    assert len(sent) == 2 * 3  # two holders: product with its truncation, relu, comparison
    assert z.get().shape == (3, 3)


def test_the_client_goes_on_while_a_holder_is_busy(parties: Parties, client: Any) -> None:
    x = client.share(torch.tensor([3, -4]))
    assert (x * x).get().tolist() == [9, 16]
    busy = parties.servers["bob"]._server._worker_lock
    with busy:
        y = x * x * x  # returns, although bob does nothing
        assert y.shape == (2,)
        assert node_of(y).pointers[0].id_at_location not in parties.servers["alice"]._objects
    assert y.get().tolist() == [27, -64]


def test_an_outline_is_what_the_program_does() -> None:
    for name, args in (("beaver.square", ()), ("truncate.truncate", (1000,)), ("select.relu", ())):
        secret = sy.mpc.network.outline.Secret((3,), torch.int64)
        outline = outline_of(name, 2, (secret, *args), ())
        assert outline.results.shape == (3,) and len(outline.kinds) == 1 and not outline.needs_provider
    assert outline_of("securenn.relu", 2, (secret,), ()).needs_provider


def test_outlines_of_products_are_those_of_running_them() -> None:
    """They are told without a product of zeros; a kind more or less would make holders wait for ever."""
    module = sy.mpc.network.outline
    words, checked = torch.int64, 0
    for op, shapes in (
        (Bilinear("mul"), ((2, 1), (3,))),
        (Bilinear("matmul"), ((2, 3), (3, 4))),
        (Bilinear("matmul"), ((256, 256), (256, 256))),
    ):
        for x_masked, y_masked, keep in itertools.product(
            (False, True), (False, True), ("x", "y", "xy", None)
        ):
            given = [
                module.MaskedSecret(shape, words, at) if is_masked else module.Secret(shape, words)
                for at, (shape, is_masked) in enumerate(zip(shapes, (x_masked, y_masked), strict=True))
            ]
            if (x_masked and "x" in (keep or "")) or (y_masked and "y" in (keep or "")):
                continue
            name = "beaver.spdz_mul" if keep is None else "beaver.multiply_keeping"
            args = (*given, op, *(() if keep is None else (keep,)))
            kinds, results = module._as_one_party(module.program_named(name), 2, args, {})
            found = outline_of(name, 2, args, ())
            assert found == module.Outline(tuple(kinds), module._described(results), False), (name, args)
            checked += 1
    assert checked == 27


LARGE = {
    "matmul": ((256, 130), (130, 256)),
    "conv2d": ((2, 17, 32, 32), (64, 17, 3, 3)),
    "mul": ((1 << 17,), (1 << 17,)),
}


@pytest.mark.parametrize("protocol", [None, "spdz2k"])
@pytest.mark.parametrize("name", LARGE)
def test_large_products_are_those_of_small_ones(name: str, protocol: str | None, client: Any) -> None:
    """Programs for large products among workers on a network, and what stands in for them where there are MACs."""
    function = torch.conv2d if name == "conv2d" else getattr(torch, name)
    x, y = (torch.randint(-9, 9, shape) for shape in LARGE[name])
    options = {} if protocol is None else {"protocol": protocol}
    made = function(client.share(x, **options), client.share(y, **options))
    assert torch.equal(made.get(), function(x, y))


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


# -- the list of programs ----------------------------------------------------------------------------------------

#: Parts of programs, which take or give more than shares.
PARTS = {
    beaver: {"mask", "open_operands"},
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


def test_a_worker_that_imported_nothing_else_knows_every_program() -> None:
    """Also those of the documented functions, which only their callers import."""
    names = "import syft; from syft.mpc.programs import PROGRAMS; print(*sorted(PROGRAMS))"
    listed = subprocess.run([sys.executable, "-c", names], capture_output=True, text=True, check=True)
    known = set(listed.stdout.split())
    assert known == set(PROGRAMS) and {"documented.take", "local.add", "beaver.reveal"} <= known
    assert known >= OPENING == {"beaver.reveal", "spdz2k.leave", "spdz2k.reveal"}


def test_a_program_keeps_its_name() -> None:
    def square(party: Party, x: torch.Tensor) -> Any:
        yield party.open(x)

    square.__module__ = "somewhere.else.beaver"
    with pytest.raises(ValueError, match=r"beaver\.square"):
        party_program(square)
    assert PROGRAMS["beaver.square"] is beaver.square


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
