"""Rounds in which clients share keys with some others only, and narrow words: sums, costs, what colluders see."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import msgspec
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from federated.secure_round import names, seeded
from syft.federated.engines.serial import SerialEngine
from syft.federated.secure_aggregation import (
    MaskedSum,
    ProtocolViolationError,
    RoundSetting,
    SecureAggregationError,
    SecureClient,
    SecureServer,
    SparseGraph,
    TooFewClientsError,
)
from syft.federated.secure_aggregation.graph import _log_tail, circle, window
from syft.federated.secure_aggregation.kept_updates import _STEPS, Kept
from syft.federated.secure_aggregation.keys import KeyPair
from syft.federated.secure_aggregation.masks import add_masks, pair_seed, pair_sign, self_seed
from syft.federated.secure_aggregation.messages import Roster, Survivors
from syft.federated.secure_aggregation.over_network import NetworkMaskedSum
from syft.federated.secure_aggregation.shamir import PRIME, lagrange, recover, share_value

torch.set_num_threads(1)

SMALL = SparseGraph(colluding=0.1, dropping=0.1, security_bits=10, failure_bits=5)


# -- how many neighbours ---------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(st.integers(2, 40), st.data())
def test_tails_of_the_hypergeometric_are_those_of_counting(population: int, data: Any) -> None:
    marked = data.draw(st.integers(0, population))
    drawn = data.draw(st.integers(0, population))
    least = data.draw(st.integers(0, drawn + 1))
    ways = sum(
        math.comb(marked, found) * math.comb(population - marked, drawn - found)
        for found in range(least, drawn + 1)
    )
    exact = ways / math.comb(population, drawn)
    assert math.exp(_log_tail(population, marked, drawn, least)) == pytest.approx(exact, abs=1e-12)


def test_what_must_not_happen_is_as_rare_as_it_is_said_to_be() -> None:
    """Of 600 circles with colluders and drop-outs at random, no more are bad than 2^-bits allows."""
    graph = SparseGraph(colluding=0.15, dropping=0.15, security_bits=5, failure_bits=5)
    clients, trials = 60, 600
    degree, opening = graph.degree_for(clients)  # type: ignore[misc]
    draw = random.Random(1)
    insecure = failed = 0
    for _ in range(trials):
        order = list(range(clients))
        draw.shuffle(order)
        bad = set(range(9))
        gone = set(draw.sample(range(clients), 9))
        near = [window(list(map(str, order)), place, degree) for place in range(clients)]
        holders = {int(each[degree // 2]): set(map(int, each)) for each in near}
        honest = [c for c in order if c not in bad]
        read = any(len(holders[c] & bad) >= opening for c in honest)
        left = [c for c in order if c not in bad | gone]
        insecure += read or not _is_connected(left, holders)
        failed += any(len((holders[c] - {c}) - gone) < opening for c in order if c not in gone)
    slack = 4 * math.sqrt(trials * 2**-5)
    assert insecure <= trials * 2**-5 + slack and failed <= trials * 2**-5 + slack
    # Fewer neighbours would not do: the bound is not void.
    assert graph.degree_for(clients)[0] > 6 and graph.degree_for(9) is None  # type: ignore[index]


def _is_connected(nodes: list[Any], neighbours: Any) -> bool:
    if not nodes:
        return True
    inside, seen, ahead = set(nodes), {nodes[0]}, [nodes[0]]
    while ahead:
        for other in neighbours[ahead.pop()]:
            if other in inside and other not in seen:
                seen.add(other)
                ahead.append(other)
    return len(seen) == len(inside)


def test_degrees_grow_slowly_and_with_what_is_feared() -> None:
    degrees = [SparseGraph().degree_for(n)[0] for n in (100, 1000, 10_000, 100_000)]  # type: ignore[index]
    assert degrees == sorted(degrees) and degrees[-1] < 70
    assert SparseGraph(0.2, 0.2).degree_for(1000) > SparseGraph(0.1, 0.1).degree_for(1000)  # type: ignore[operator]
    with pytest.raises(ValueError, match="together half of the clients"):
        SparseGraph(0.3, 0.2)
    with pytest.raises(ValueError, match=r"colluding=1\.5"):
        SparseGraph(1.5)
    with pytest.raises(ValueError, match="security_bits=0"):
        SparseGraph(security_bits=0)


# -- rounds ----------------------------------------------------------------------------------------------


def masked(count: int, **options: Any) -> tuple[MaskedSum, dict[str, torch.Tensor]]:
    generator = torch.Generator().manual_seed(count)
    updates = {name: torch.randn(50, generator=generator) for name in names(count)}
    return MaskedSum(clip=8.0, max_weight=4.0, sparse=SMALL, **options), updates


@pytest.mark.parametrize("step", [None, "shares", "input", "unmasking"])
def test_the_sum_is_that_of_those_who_stayed(step: str | None) -> None:
    one, updates = masked(60, threshold=0.6)
    gone = set(names(60)[::15])
    one.dropouts = None if step is None else lambda at, present: gone if at == step else ()
    weights = {name: 1.0 + k % 3 for k, name in enumerate(updates)}
    total = one.weighted_sum(updates, weights)
    stayed = set(updates) if step in (None, "unmasking") else set(updates) - gone
    assert one.report is not None and set(one.report.survivors) == stayed
    assert torch.allclose(total, sum(updates[n] * weights[n] for n in stayed), atol=1e-4)  # type: ignore[arg-type]
    assert one.report.weight == sum(weights[name] for name in stayed)


def test_agreements_and_bytes_of_a_client_do_not_grow_with_the_clients(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    counted = [0]
    agree = KeyPair.agree

    def counting(self: Any, *args: Any) -> bytes:
        counted[0] += 1
        return agree(self, *args)

    monkeypatch.setattr(KeyPair, "agree", counting)
    costs = []
    for count in (60, 120):
        one, updates = masked(count)
        counted[0] = 0
        one.weighted_sum(updates, dict.fromkeys(updates, 1.0))
        degree = one.setting(count, 50).neighbours
        assert counted[0] == 2 * degree * count  # one to seal and unseal with, one for the mask
        assert one.report is not None
        costs.append((one.report.to_server + one.report.from_server) / count / degree)
    assert costs[1] == pytest.approx(costs[0], rel=0.05)


@pytest.mark.slow
def test_a_thousand_clients_take_less_than_thirty_seconds() -> None:
    import time

    updates = {f"client-{k:04}": torch.full((1000,), k / 1000) for k in range(1000)}
    one = MaskedSum(clip=1.0, max_weight=1.0, word_bits=32, sparse=SparseGraph())
    began = time.process_time()
    total = one.weighted_sum(updates, dict.fromkeys(updates, 1.0))
    assert time.process_time() - began < 30
    assert total[0] == pytest.approx(499.5, abs=1e-2)


def test_a_round_fails_where_too_few_of_somebodys_neighbours_stay() -> None:
    one, updates = masked(60, threshold=31)
    one.dropouts = lambda at, present: present[:29] if at == "unmasking" else ()
    with pytest.raises(SecureAggregationError, match=r"hold shares of|helped to unmask"):
        one.weighted_sum(updates, dict.fromkeys(updates, 1.0))


def test_signatures_and_a_sparse_graph_exclude_each_other() -> None:
    with pytest.raises(ValueError, match="leave one of the two out"):
        RoundSetting.new(60, 4, sparse=SMALL, signed=True)
    setting = RoundSetting.new(60, 4, sparse=SMALL)
    with pytest.raises(ValueError, match="a signed round has everybody as neighbours"):
        msgspec.structs.replace(setting, signed=True)
    for change in ({"neighbours": 59}, {"neighbours": 3}, {"share_threshold": 2}, {"neighbours": 0}):
        with pytest.raises(ValueError, match="neighbours"):
            msgspec.structs.replace(setting, **change)
    with pytest.raises(TypeError, match="it is a SparseGraph"):
        MaskedSum(sparse=True)  # type: ignore[arg-type]
    assert RoundSetting.new(9, 4, sparse=SMALL).neighbours == 0  # so few are all neighbours


def test_a_client_takes_no_neighbourhood_that_is_none() -> None:
    setting = RoundSetting.new(40, 4, sparse=SMALL)
    server = SecureServer(setting, names(40))
    clients = {name: SecureClient(name, setting) for name in names(40)}
    for client in clients.values():
        server.receive(client.advertise_keys())
    rosters = server.rosters()
    mine = rosters["client-00"]
    others = rosters["client-01"]
    for lie, said in (
        (Roster(mine.round, mine.keys), "not possible"),
        (Roster(mine.round, mine.keys, 10**6, mine.transcript), "set for 40"),
        (Roster(mine.round, mine.keys[1:], 40, mine.transcript), "in the middle of"),
        (Roster(mine.round, mine.keys[1:] + mine.keys[:1], 40, mine.transcript), "in the middle of"),
        (Roster(mine.round, mine.keys, 40, b"short"), "no digest"),
        (others, "in the middle of"),
        (Roster(mine.round, mine.keys[1:], 3, mine.transcript), "not possible"),
    ):
        with pytest.raises((ProtocolViolationError, TooFewClientsError), match=said):
            clients["client-00"].share_keys(lie)
    clients["client-00"].share_keys(mine)


# -- what a server and its colluders see -----------------------------------------------------------------


@dataclass
class _View:
    """All that the server was sent, and all that colluding clients know, after a whole round."""

    setting: RoundSetting
    mark: bytes
    holders: dict[str, Any]
    colluders: set[str]
    gone: set[str]
    inputs: dict[str, torch.Tensor]
    mask_shares: dict[str, dict[int, bytes]]
    seed_shares: dict[str, dict[int, bytes]]
    keys: dict[str, KeyPair]


def _play(count: int, colluders: set[str], gone: set[str], updates: dict[str, torch.Tensor]) -> Any:
    setting = RoundSetting.new(count, 8, clip=8.0, max_weight=1.0, threshold=count * 3 // 5, sparse=SMALL)
    setting = msgspec.structs.replace(setting, round=bytes(16))
    server = SecureServer(setting, updates)
    clients = {name: SecureClient(name, setting, entropy=seeded("view", name)) for name in updates}
    for client in clients.values():
        server.receive(client.advertise_keys())
    rosters = server.rosters()
    keys = {name: client._pairs()[1] for name, client in clients.items()}
    for name, client in clients.items():
        server.receive(client.share_keys(rosters[name]))
    deliveries = server.deliveries()
    inputs = {}
    for name in sorted(set(updates) - gone):
        message = clients[name].masked_input(deliveries[name], updates[name])
        inputs[name] = message.vector.clone()
        server.receive(message)
    view = _View(
        setting,
        server._transcript,
        server._holders,
        colluders,
        gone,
        inputs,
        {},
        {},
        {n: keys[n] for n in colluders},
    )
    for name in colluders - gone:  # they hold shares of both kinds, of all their neighbours
        for of, (key_share, seed_share) in clients[name]._held.items():
            place = view.holders[of][name]
            view.mask_shares.setdefault(of, {})[place] = key_share
            view.seed_shares.setdefault(of, {})[place] = seed_share
    for name, told in server.survivor_lists().items():
        answer = clients[name].unmask(told)
        server.receive(answer)
        for of, share in answer.mask_keys.items():
            view.mask_shares.setdefault(of, {})[view.holders[of][name]] = share
        for of, share in answer.self_masks.items():
            view.seed_shares.setdefault(of, {})[view.holders[of][name]] = share
    return view, server.result(), keys


def test_colluders_below_the_threshold_hold_what_fits_every_other_input() -> None:
    count = 60
    people = names(count)
    colluders, gone = set(people[7:13]), set(people[40:44])
    generator = torch.Generator().manual_seed(3)
    updates = {name: torch.randn(8, generator=generator) for name in people}
    view, found, _ = _play(count, colluders, gone, updates)
    honest = [name for name in people if name not in colluders | gone]
    opening = view.setting.opening

    # 1. The mask key of an honest survivor: too few shares, which fit every key there could be.
    for name in honest:
        shares = view.mask_shares.get(name, {})
        assert len(shares) < opening
        other_key = int.from_bytes(seeded("another key", name)(32), "big")
        free = [p for p in range(1, len(view.holders[name]) + 1) if p not in shares][
            : opening - 1 - len(shares)
        ]
        points = {p: share_value(s) for p, s in shares.items()} | {p: p * 7 + 1 for p in free}
        assert len(points) + 1 == opening and _fits(points, other_key, shares)

    # 2. They take off all masks that they can: everything but those between two honest clients.
    rest = {}
    for name in honest:
        seeds = [(-1, self_seed(_opened(view.seed_shares[name], opening), view.mark, name))]
        for other in view.holders[name]:
            if other == name:
                continue
            key = view.keys.get(other) if other in colluders else None
            if other in gone:
                key = KeyPair(_opened(view.mask_shares[other], opening))
            if key is not None and other not in honest:
                seed = pair_seed(key.agree(_public(name), name), view.mark, name, other)
                seeds.append((-pair_sign(name, other), seed))
        rest[name] = add_masks(view.inputs[name].clone(), seeds)
    # What is left adds up to the sum of the honest, which they may know, and single ones are not their updates.
    encode = view.setting.encoding
    true = {name: encode.encode(updates[name])[0] for name in honest}
    assert torch.equal(sum(v[:-1] for v in rest.values()), sum(true.values()))  # type: ignore[arg-type]
    assert all(not torch.equal(rest[name][:-1], true[name]) for name in honest)

    # 3. Any other inputs of the same sum explain it as well, with other masks between honest neighbours.
    other = {name: torch.randint(-1000, 1000, (8,), generator=generator) for name in honest}
    other[honest[0]] += sum(true.values()) - sum(other.values())  # type: ignore[arg-type]
    owed = {name: rest[name][:-1] - other[name] for name in honest}  # what honest masks have to add up to
    masks: dict[tuple[str, str], torch.Tensor] = {}
    for child, parent in _tree_leaves_first(honest, view.holders):
        masks[child, parent] = owed[child].clone()  # the child adds it, the parent subtracts it
        owed[parent] += owed[child]
        owed[child] = torch.zeros(8, dtype=torch.int64)
    assert all((left == 0).all() for left in owed.values())
    for name in honest:
        explained = other[name].clone()
        for (child, parent), mask in masks.items():
            explained += mask if child == name else -mask if parent == name else 0
        assert torch.equal(explained, rest[name][:-1])
    assert len(found.survivors) == count - len(gone)


def test_with_enough_colluders_the_same_view_opens_an_update() -> None:
    """The test above can fail: were the neighbours of one client to collude, they would have its mask key."""
    people = names(60)
    updates = {name: torch.zeros(8) for name in people}
    view, _, _ = _play(60, set(), set(), updates)
    target = people[20]
    colluders = set(view.holders[target]) - {target}
    view, _, keys = _play(60, colluders, set(), updates)
    assert len(view.mask_shares[target]) >= view.setting.opening
    assert _opened(view.mask_shares[target], view.setting.opening) == keys[target].private_bytes()


def _opened(shares: dict[int, bytes], opening: int) -> bytes:
    chosen = dict(sorted(shares.items())[:opening])
    return recover(chosen, lagrange(list(chosen)))


def _fits(points: dict[int, int], secret: int, shares: dict[int, bytes]) -> bool:
    """Whether a polynomial of the right degree goes through all shares held and has this secret at 0."""
    places = [0, *points]
    values = {0: secret, **points}

    def at(x: int) -> int:
        total = 0
        for p in places:
            above = below = 1
            for q in places:
                if q != p:
                    above, below = above * (x - q) % PRIME, below * (p - q) % PRIME
            total += values[p] * above * pow(below, -1, PRIME)
        return total % PRIME

    return at(0) == secret and all(at(p) == share_value(s) for p, s in shares.items())


def _public(name: str) -> bytes:
    """A client's mask key as the roster has it."""
    entropy = seeded("view", name)
    entropy(32)
    return KeyPair(entropy(32)).public


def _tree_leaves_first(nodes: list[str], holders: dict[str, Any]) -> list[tuple[str, str]]:
    """A spanning tree of the honest part of the graph, whose existence is what the degree is for."""
    inside, seen, ahead, edges = set(nodes), {nodes[0]}, [nodes[0]], []
    while ahead:
        parent = ahead.pop(0)
        for child in holders[parent]:
            if child in inside and child not in seen:
                seen.add(child)
                ahead.append(child)
                edges.append((child, parent))
    assert seen == inside, "the honest clients are not connected"
    return edges[::-1]


def test_the_circle_follows_from_the_keys() -> None:
    people = names(30)
    one, other = circle(b"a" * 32, people), circle(b"b" * 32, people)
    assert one != other and sorted(one) == sorted(other) == people
    assert window(one, 0, 6)[3] == one[0] and len(set(window(one, 0, 6))) == 7
    assert Survivors(bytes(16), ()).total == 0


# -- words of fewer bits ---------------------------------------------------------------------------------


@settings(max_examples=40, deadline=None)
@given(st.integers(10, 32), st.integers(1, 70), st.integers(2, 6), st.data())
def test_sums_in_narrow_words_are_exact_to_the_grid(bits: int, length: int, count: int, data: Any) -> None:
    fraction = data.draw(st.integers(0, max(0, bits - 1 - (count + 1).bit_length() - 1)))
    one = MaskedSum(clip=0.5, max_weight=1.0, fraction_bits=fraction, word_bits=bits)
    generator = torch.Generator().manual_seed(data.draw(st.integers(0, 99)))
    updates = {n: torch.rand(length, generator=generator).double() - 0.5 for n in names(count)}
    total = one.weighted_sum(updates, dict.fromkeys(updates, 1.0))
    wanted = sum((u * 2**fraction).round() for u in updates.values()) / 2**fraction
    assert torch.equal(total, wanted)  # type: ignore[arg-type]


def test_ends_of_the_range_do_not_wrap_and_what_has_no_room_is_refused() -> None:
    for bits in (8, 13, 16, 24, 32):
        one = MaskedSum(clip=1.0, max_weight=1.0, fraction_bits=bits - 5, word_bits=bits)
        updates = {name: torch.tensor([1.0, -1.0]) for name in names(7)}
        assert one.weighted_sum(updates, dict.fromkeys(updates, 1.0)).tolist() == [7.0, -7.0]
    with pytest.raises(ValueError, match="in words of 32"):
        MaskedSum(word_bits=32).setting(10, 4)  # the clip and the weights of 64 bits
    with pytest.raises(ValueError, match="2 to 32 bits, or 64"):
        MaskedSum(word_bits=40, clip=1.0, max_weight=1.0).setting(10, 4)
    with pytest.raises(ValueError, match="Give fraction_bits"):
        MaskedSum(word_bits="fit").setting(10, 4)
    with pytest.raises(TypeError, match="word_bits=True"):
        MaskedSum(word_bits=True)


def test_words_as_wide_as_the_sum_are_what_travels() -> None:
    updates = {name: torch.rand(10_000) - 0.5 for name in names(10)}
    alike = dict.fromkeys(updates, 1.0)
    sizes = {}
    for bits in (64, "fit"):
        one = MaskedSum(clip=0.5, max_weight=1.0, fraction_bits=12, word_bits=bits)  # type: ignore[arg-type]
        one.weighted_sum(updates, alike)
        assert one.report is not None
        sizes[bits] = one.report.to_server / 10
    setting = one.setting(10, 10_000)
    assert setting.word_bits == 16 and sizes[64] - sizes["fit"] == pytest.approx(
        10_000 * (8 - 16 / 8), rel=0.01
    )
    assert sizes["fit"] < 10_000 * 16 / 8 + 4000  # the words, and the shares of ten keys


def test_narrow_masked_words_are_uniform() -> None:
    setting = RoundSetting.new(3, 20_000, clip=1.0, max_weight=1.0, word_bits=16, fraction_bits=8)
    server, people = SecureServer(setting, names(3)), {n: SecureClient(n, setting) for n in names(3)}
    for client in people.values():
        server.receive(client.advertise_keys())
    roster = server.roster()
    for client in people.values():
        server.receive(client.share_keys(roster))
    sent = people["client-00"].masked_input(server.deliveries()["client-00"], torch.ones(20_000))
    assert sent.vector.dtype == torch.uint8 and sent.vector.numel() == 2 * 20_000 + 8
    counts = np.bincount(sent.vector.numpy(), minlength=256)
    expected = sent.vector.numel() / 256
    assert abs(float(((counts - expected) ** 2 / expected).sum()) - 255) < 8 * math.sqrt(2 * 255)
    wrong = msgspec.structs.replace(sent, vector=sent.vector[:-1])
    with pytest.raises(ProtocolViolationError, match="uint8 words"):
        server.receive(wrong)


# -- at workers on a network -----------------------------------------------------------------------------


class _Asked:
    """A client of a network, whose worker's steps run here."""

    def __init__(self, name: str, kept: Kept) -> None:
        self.name, self.kept, self.worker = (
            name,
            kept,
            SimpleNamespace(id=name, extension=lambda kind: kind()),
        )

    def context(self) -> bytes:
        return b"task"

    def secure_step(self, step: str, content: Any, weight: float = 1.0) -> Any:
        fits, take = _STEPS[step]
        assert fits(content)
        return take(self.worker, self.kept, content, weight)


@pytest.mark.parametrize("insists", [False, True])
def test_workers_take_part_in_sparse_rounds_unless_their_owner_wants_sums_only(insists: bool) -> None:
    updates = {name: torch.full((4,), float(k)) for k, name in enumerate(names(20))}
    clients = {name: _Asked(name, Kept(u, 1, 2, b"task", insists)) for name, u in updates.items()}
    settings = MaskedSum(clip=32.0, max_weight=1.0, sparse=SMALL, word_bits=32)
    assert settings.setting(20, 4).neighbours == 14
    summing = NetworkMaskedSum(settings, clients, SerialEngine(), None, 4, torch.float32)  # type: ignore[arg-type]
    alike = dict.fromkeys(updates, 1.0)
    if insists:
        with pytest.raises(TooFewClientsError):
            summing.weighted_sum(updates, alike)
        with pytest.raises(ProtocolViolationError, match="without sparse="):
            clients["client-00"].secure_step("keys", settings.setting(20, 4, b"task", "alike"))
        return
    assert summing.weighted_sum(updates, alike).tolist() == pytest.approx([190.0] * 4)
