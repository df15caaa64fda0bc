"""What the server is sent tells nothing but the sum, and clients refuse what would open more."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import msgspec
import numpy as np
import pytest
import torch

from federated.secure_round import identities, names, play, seeded
from syft.federated.secure_aggregation import (
    Identity,
    ProtocolViolationError,
    RoundSetting,
    SecureClient,
    SecureServer,
    TooFewClientsError,
)
from syft.federated.secure_aggregation.client import transcript
from syft.federated.secure_aggregation.keys import KeyPair
from syft.federated.secure_aggregation.masks import add_masks, pair_seed, pair_sign, self_seed
from syft.federated.secure_aggregation.messages import Confirmations, Delivery, Roster, Survivors
from syft.federated.secure_aggregation.shamir import lagrange, recover

torch.set_num_threads(1)

LENGTH = 20_000


def is_uniform(words: torch.Tensor) -> bool:
    """Pearson's chi-square over bytes, within eight standard deviations, for every byte of the word.

    Masks are drawn anew in every run: at five, one of some thousand runs would fail.
    """
    octets = words.numpy().view(np.uint8).reshape(-1, 8)
    for column in range(8):
        counts = np.bincount(octets[:, column], minlength=256)
        expected = octets.shape[0] / 256
        chi = float(((counts - expected) ** 2 / expected).sum())
        if abs(chi - 255) > 8 * math.sqrt(2 * 255):
            return False
    return True


def largest_gap(words: torch.Tensor, others: torch.Tensor) -> float:
    """The two-sample Kolmogorov-Smirnov statistic, in units of its scale."""
    both = torch.cat([words, others]).sort().values
    first = torch.searchsorted(words.sort().values, both, right=True) / words.numel()
    second = torch.searchsorted(others.sort().values, both, right=True) / others.numel()
    scale = math.sqrt(1 / words.numel() + 1 / others.numel())
    return float((first - second).abs().max()) / scale


# -- the server's view -----------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [0.0, 1.0, -1024.0])
def test_a_masked_input_is_uniform_whatever_the_update(value: float) -> None:
    updates = {name: torch.full((LENGTH,), value) for name in names(4)}
    played = play(updates, entropy=lambda name: seeded("uniform", name, value))
    for message in played.inputs.values():
        assert is_uniform(message.vector[:-1])
    assert not is_uniform(torch.full((LENGTH,), 12345))  # the test can fail


def test_every_sum_of_some_inputs_is_still_uniform_and_the_sum_of_all_less_self_masks_is_not() -> None:
    """Pairwise masks cancel only when everybody is there; until then, and under self masks, nothing shows."""
    updates = {name: torch.full((LENGTH,), 3.0) for name in names(4)}
    played = play(updates, entropy=lambda name: seeded("subsets", name))
    vectors = [message.vector[:-1] for message in played.inputs.values()]
    for chosen in range(1, 16):
        assert is_uniform(
            sum((v for k, v in enumerate(vectors) if chosen >> k & 1), torch.zeros(1, dtype=torch.int64))
        )
    # With the self masks opened, as the server opens them, every proper subset still has pairwise masks on it.
    played.unmask()
    bare = [m.vector.clone() for m in played.inputs.values()]
    weights = lagrange([1, 2, 3])
    answering = names(4)[:3]
    keys = {name: client._roster for name, client in played.clients.items()}
    mark = transcript(played.setting, Roster(played.setting.round, tuple(keys["client-00"].values())))
    for name, vector in zip(names(4), bare, strict=True):
        secret = recover(
            {k + 1: played.answers[a].self_masks[name] for k, a in enumerate(answering)}, weights
        )
        add_masks(vector, [(-1, self_seed(secret, mark, name))])
    for chosen in range(1, 15):
        assert is_uniform(
            sum((v[:-1] for k, v in enumerate(bare) if chosen >> k & 1), torch.zeros(1, dtype=torch.int64))
        )
    total = sum(bare, torch.zeros(1, dtype=torch.int64))
    assert (played.setting.encoding.decode(total[:-1]) == 12.0).all()


def test_updates_with_the_same_sum_look_the_same() -> None:
    """Two worlds: (x, -x) and (0, 0). What the server gets of either has one distribution, and the sums are equal."""
    loud = torch.linspace(-1000, 1000, LENGTH)
    worlds = ([loud, -loud, 0 * loud], [0 * loud, 0 * loud, 0 * loud])
    seen = []
    for world in worlds:
        updates = dict(zip(names(3), world, strict=True))
        played = play(updates, entropy=lambda name: seeded("worlds", name))
        seen.append(torch.cat([m.vector[:-1] for m in played.inputs.values()]))
        assert played.unmask().total.abs().max() == 0
    assert largest_gap(*seen) < 1.95  # one in a thousand
    shifted = seen[0] // 2
    assert largest_gap(shifted, seen[1]) > 10  # the test can fail


def test_masks_do_not_repeat_between_rounds_clients_or_pairs() -> None:
    updates = {name: torch.zeros(100) for name in names(3)}
    vectors = [m.vector for _ in range(3) for m in play(updates).inputs.values()]
    words = torch.cat(vectors)
    assert words.unique().numel() == words.numel()


def test_keys_are_fresh_in_every_round() -> None:
    keys = set()
    for _ in range(5):
        advertised = SecureClient("a", RoundSetting.new(3, 5)).advertise_keys()
        keys |= {advertised.sealing_key, advertised.mask_key}
    assert len(keys) == 10
    assert len({RoundSetting.new(3, 5).round for _ in range(5)}) == 5


def test_a_dropped_update_stays_hidden_after_its_mask_key_is_opened() -> None:
    """It arrives late: the server then knows all its pairwise masks, and its self mask is still on it."""
    updates = {name: torch.full((LENGTH,), 7.0) for name in names(4)}
    setting = RoundSetting.new(4, LENGTH)
    server = SecureServer(setting, updates)
    clients = {name: SecureClient(name, setting, entropy=seeded("late", name)) for name in updates}
    for client in clients.values():
        server.receive(client.advertise_keys())
    roster = server.roster()
    for client in clients.values():
        server.receive(client.share_keys(roster))
    deliveries = server.deliveries()
    late = "client-02"
    messages = {name: clients[name].masked_input(deliveries[name], updates[name]) for name in updates}
    for name in updates:
        if name != late:
            server.receive(messages[name])
    survivors = server.survivors()
    answers = {name: clients[name].unmask(survivors) for name in survivors.clients}
    places = {name: place for place, name in enumerate(names(4), 1)}
    pair = KeyPair(recover({places[name]: answer.mask_keys[late] for name, answer in answers.items()}))
    mark = transcript(setting, roster)
    public = {keys.client: keys.mask_key for keys in roster.keys}
    seeds = [
        (-pair_sign(late, other), pair_seed(pair.agree(public[other], other), mark, late, other))
        for other in names(4)
        if other != late
    ]
    opened = add_masks(messages[late].vector.clone(), seeds)
    assert is_uniform(opened[:-1])
    assert all(late not in answer.self_masks for answer in answers.values())
    with pytest.raises(ProtocolViolationError, match="it is late"):
        server.receive(messages[late])


def test_fewer_answers_than_the_threshold_open_nothing() -> None:
    played = play(
        {name: torch.full((LENGTH,), 1.0) for name in names(5)}, entropy=lambda name: seeded("few", name)
    )
    answers = [played.clients[name].unmask(played.survivors) for name in names(5)[:3]]  # the threshold is 4
    with pytest.raises(ProtocolViolationError, match="too few were given"):
        recover({place: answer.self_masks["client-00"] for place, answer in enumerate(answers, 1)})


# -- what clients refuse ---------------------------------------------------------------------------------


def test_nobody_gives_out_both_shares_of_a_peer() -> None:
    """A server that first says that a client survived, and then that it did not."""
    played = play({name: torch.ones(5) for name in names(4)})
    client, peer = played.clients["client-00"], "client-03"
    first = client.unmask(played.survivors)
    assert peer in first.self_masks and peer not in first.mask_keys
    without = Survivors(played.setting.round, tuple(n for n in names(4) if n != peer))
    with pytest.raises(ProtocolViolationError, match="out of turn"):
        client.unmask(without)
    with pytest.raises(ProtocolViolationError, match="out of turn"):
        client.unmask(played.survivors)
    other = played.clients["client-01"].unmask(without)
    assert not set(other.mask_keys) & set(other.self_masks)
    assert set(other.mask_keys) == {peer}


def test_two_lists_of_survivors_give_the_server_too_few_shares_of_either_kind() -> None:
    """Told differently, honest clients give t shares of one kind at most: the threshold is more than half."""
    played = play({name: torch.ones(5) for name in names(6)}, threshold=4)
    peer = "client-05"
    without = Survivors(played.setting.round, tuple(n for n in names(6) if n != peer))
    answers = [
        played.clients[name].unmask(played.survivors if number % 2 else without)
        for number, name in enumerate(names(5))
    ]
    assert sum(peer in answer.self_masks for answer in answers) < 4
    assert sum(peer in answer.mask_keys for answer in answers) < 4


@pytest.mark.parametrize(
    ("lie", "error", "said"),
    [
        (lambda s: s[:2], TooFewClientsError, "2 clients are on the list.*threshold of this round is 3"),
        (lambda s: s[1:], ProtocolViolationError, "'client-00' sent its input, and is not on the list"),
        (lambda s: (*s, s[0]), ProtocolViolationError, "a client twice"),
        (lambda s: (*s, "mallory"), ProtocolViolationError, "'mallory', who shared no keys"),
    ],
)
def test_a_list_of_survivors_that_lies_is_not_answered(lie: Any, error: Any, said: str) -> None:
    played = play({name: torch.ones(5) for name in names(4)})
    with pytest.raises(error, match=said):
        played.clients["client-00"].unmask(Survivors(played.setting.round, lie(played.survivors.clients)))
    with pytest.raises(ProtocolViolationError, match="got a Survivors of round"):
        played.clients["client-00"].unmask(Survivors(bytes(16), played.survivors.clients))
    played.clients["client-00"].unmask(played.survivors)  # the truth still is


def advertised(count: int = 4, **options: Any) -> tuple[dict[str, SecureClient], Roster]:
    setting = RoundSetting.new(count, 5, **options)
    clients = {name: SecureClient(name, setting) for name in names(count)}
    return clients, Roster(setting.round, tuple(client.advertise_keys() for client in clients.values()))


@pytest.mark.parametrize(
    ("lie", "error", "said"),
    [
        (lambda k: k[:2], TooFewClientsError, "2 clients advertised keys"),
        (lambda k: k[1:], ProtocolViolationError, "does not have the keys that 'client-00' advertised"),
        (lambda k: (*k, k[1]), ProtocolViolationError, "a client twice"),
        (
            lambda k: (
                *k,
                msgspec.structs.replace(k[1], client="mallory", sealing_key=b"1" * 32, mask_key=b"2" * 32),
            ),
            ProtocolViolationError,
            "5 clients, and the round was set for 4",
        ),
        (
            lambda k: (*k[:3], msgspec.structs.replace(k[3], mask_key=k[2].mask_key)),
            ProtocolViolationError,
            "the same key",
        ),
        (
            lambda k: (*k[:3], msgspec.structs.replace(k[3], round=bytes(16))),
            ProtocolViolationError,
            "a AdvertisedKeys of round 0000",
        ),
        (
            lambda k: (*k[:3], msgspec.structs.replace(k[3], sealing_key=bytes(32))),
            ProtocolViolationError,
            "'client-03' is not a usable X25519 key",
        ),
    ],
)
def test_a_roster_that_lies_is_refused(lie: Any, error: Any, said: str) -> None:
    clients, roster = advertised()
    with pytest.raises(error, match=said):
        clients["client-00"].share_keys(Roster(roster.round, lie(roster.keys)))


def delivered() -> tuple[dict[str, SecureClient], dict[str, Delivery]]:
    clients, roster = advertised()
    server = SecureServer(clients["client-00"].setting, clients)
    for keys in roster.keys:
        server.receive(keys)
    server.roster()
    for client in clients.values():
        server.receive(client.share_keys(roster))
    return clients, server.deliveries()


def flipped(sealed: bytes, position: int) -> bytes:
    return sealed[:position] + bytes([sealed[position] ^ 1]) + sealed[position + 1 :]


@pytest.mark.parametrize("position", [0, 12, 80, -1])
def test_a_tampered_share_is_refused(position: int) -> None:
    clients, deliveries = delivered()
    good = deliveries["client-00"]
    body = good.sealed["client-02"]
    bad = dict(good.sealed, **{"client-02": flipped(body, position % len(body))})
    with pytest.raises(ProtocolViolationError, match="as from 'client-02' were not made by 'client-02'"):
        clients["client-00"].masked_input(Delivery(good.round, good.recipient, bad), torch.ones(5))
    with pytest.raises(ProtocolViolationError, match="'client-02'"):
        clients["client-00"].masked_input(
            Delivery(good.round, good.recipient, dict(good.sealed, **{"client-02": b"short"})), torch.ones(5)
        )


def test_shares_of_another_sender_recipient_or_round_are_refused() -> None:
    clients, deliveries = delivered()
    good = deliveries["client-00"]
    swapped = dict(good.sealed)
    swapped["client-01"], swapped["client-02"] = swapped["client-02"], swapped["client-01"]
    with pytest.raises(ProtocolViolationError, match="not made by"):
        clients["client-00"].masked_input(Delivery(good.round, "client-00", swapped), torch.ones(5))
    with pytest.raises(ProtocolViolationError, match="delivery of 'client-01'"):
        clients["client-00"].masked_input(deliveries["client-01"], torch.ones(5))
    _clients, replayed = delivered()
    with pytest.raises(ProtocolViolationError, match="got a Delivery of round"):
        clients["client-00"].masked_input(replayed["client-00"], torch.ones(5))
    dressed_up = Delivery(good.round, "client-00", replayed["client-00"].sealed)
    with pytest.raises(ProtocolViolationError, match="replayed"):
        clients["client-00"].masked_input(dressed_up, torch.ones(5))
    few = Delivery(good.round, "client-00", {"client-01": good.sealed["client-01"]})
    with pytest.raises(TooFewClientsError, match="2 clients sent shares"):
        clients["client-00"].masked_input(few, torch.ones(5))
    strange = Delivery(good.round, "client-00", dict(good.sealed, mallory=b""))
    with pytest.raises(ProtocolViolationError, match="'mallory', not among"):
        clients["client-00"].masked_input(strange, torch.ones(5))
    clients["client-00"].masked_input(good, torch.ones(5))


def test_clients_that_were_shown_different_rosters_cannot_read_each_other() -> None:
    """The server puts keys of its own in the place of client-03's, for client-00 only."""
    clients, roster = advertised()
    server = SecureServer(clients["client-00"].setting, clients)
    for keys in roster.keys:
        server.receive(keys)
    server.roster()
    own = SecureClient("client-03", clients["client-00"].setting).advertise_keys()
    for name, client in clients.items():
        shown = Roster(roster.round, (*roster.keys[:3], own)) if name == "client-00" else roster
        server.receive(client.share_keys(shown))
    deliveries = server.deliveries()
    with pytest.raises(ProtocolViolationError, match="different rosters"):
        clients["client-01"].masked_input(deliveries["client-01"], torch.ones(5))


def test_a_client_that_agreed_to_another_setting_cannot_be_read() -> None:
    setting = RoundSetting.new(3, 5)
    other = msgspec.structs.replace(setting, clip=setting.clip / 2)
    clients = {name: SecureClient(name, setting) for name in names(3)}
    clients["client-02"] = SecureClient("client-02", other)
    roster = Roster(setting.round, tuple(client.advertise_keys() for client in clients.values()))
    sealed = {name: client.share_keys(roster).sealed for name, client in clients.items()}
    mine = {sender: bodies["client-00"] for sender, bodies in sealed.items() if sender != "client-00"}
    with pytest.raises(ProtocolViolationError, match="as from 'client-02'"):
        clients["client-00"].masked_input(Delivery(setting.round, "client-00", mine), torch.ones(5))


def test_every_step_is_taken_once_and_in_turn() -> None:
    clients, roster = advertised()
    client = clients["client-00"]
    with pytest.raises(ProtocolViolationError, match="it has advertised"):
        client.advertise_keys()
    with pytest.raises(ProtocolViolationError, match="out of turn"):
        client.unmask(Survivors(roster.round, tuple(names(4))))
    client.share_keys(roster)
    with pytest.raises(ProtocolViolationError, match="out of turn"):
        client.share_keys(roster)
    with pytest.raises(ProtocolViolationError, match="round without signatures"):
        client.confirm(Survivors(roster.round, tuple(names(4))))
    with pytest.raises(ProtocolViolationError, match="make a new SecureClient"):
        SecureClient("a", client.setting).share_keys(roster)
    with pytest.raises(ValueError, match="has a name"):
        SecureClient("", client.setting)


def test_a_client_forgets_its_secrets_with_its_last_message() -> None:
    played = play({name: torch.ones(5) for name in names(3)})
    client = played.clients["client-00"]
    client.unmask(played.survivors)
    assert client._sealing is None and client._masking is None and client._seed == b"" and not client._held


# -- signatures ------------------------------------------------------------------------------------------


def signed_round(count: int = 4) -> tuple[dict[str, SecureClient], SecureServer, Roster, dict[str, Identity]]:
    setting = RoundSetting.new(count, 5, signed=True)
    who = identities(names(count))
    clients = {name: SecureClient(name, setting, identity=who[name]) for name in names(count)}
    server = SecureServer(setting, clients)
    for client in clients.values():
        server.receive(client.advertise_keys())
    return clients, server, server.roster(), who


def test_an_invented_client_is_refused_in_a_signed_round() -> None:
    clients, _server, roster, _who = signed_round()
    invented = SecureClient(
        "client-03", clients["client-00"].setting, identity=identities(["client-03"])["client-03"]
    )
    lie = Roster(roster.round, (*roster.keys[:3], invented.advertise_keys()))
    with pytest.raises(ProtocolViolationError, match="signature of 'client-03' on its keys"):
        clients["client-00"].share_keys(lie)
    stranger = msgspec.structs.replace(roster.keys[3], client="mallory")
    with pytest.raises(ProtocolViolationError, match="'mallory' is in this round and no public key"):
        clients["client-00"].share_keys(Roster(roster.round, (*roster.keys[:3], stranger)))
    with pytest.raises(ValueError, match="without an identity"):
        SecureClient("a", clients["client-00"].setting)


def test_a_server_cannot_do_away_with_signatures_or_with_the_crowd() -> None:
    who = identities(["a"])["a"]
    with pytest.raises(ValueError, match="for signed rounds, and this round is not"):
        SecureClient("a", RoundSetting.new(4, 5), identity=who)
    with pytest.raises(ValueError, match="sums of 3 clients; client 'a' wants 10 or more"):
        SecureClient("a", RoundSetting.new(4, 5), least_threshold=10)


def test_survivors_that_were_not_confirmed_by_enough_open_nothing() -> None:
    clients, server, roster, _who = signed_round()
    for client in clients.values():
        server.receive(client.share_keys(roster))
    deliveries = server.deliveries()
    for name, client in clients.items():
        server.receive(client.masked_input(deliveries[name], torch.ones(5)))
    survivors = server.survivors()
    without = Survivors(survivors.round, survivors.clients[:3])
    client = clients["client-00"]
    confirmed = {
        name: c.confirm(without if name == "client-02" else survivors) for name, c in clients.items()
    }
    with pytest.raises(ProtocolViolationError, match="out of turn"):
        client.confirm(without)
    with pytest.raises(ProtocolViolationError, match="another list of survivors"):
        client.unmask(without, Confirmations(survivors.round, tuple(confirmed.values())))
    with pytest.raises(ProtocolViolationError, match="without the others' confirmations"):
        client.unmask(survivors)
    with pytest.raises(ProtocolViolationError, match="'client-02' on its list of survivors"):
        client.unmask(survivors, Confirmations(survivors.round, tuple(confirmed.values())))
    good = [c for name, c in confirmed.items() if name != "client-02"]
    with pytest.raises(TooFewClientsError, match="2 clients confirmed"):
        client.unmask(survivors, Confirmations(survivors.round, tuple(good[:2])))
    with pytest.raises(ProtocolViolationError, match="a client twice"):
        client.unmask(survivors, Confirmations(survivors.round, (*good[:2], good[0])))
    client.unmask(survivors, Confirmations(survivors.round, tuple(good)))


def test_an_identity_does_not_show_its_key() -> None:
    private, public = Identity.new_key()
    identity = Identity(private, {"a": public})
    assert repr(private) not in repr(identity) and dataclasses.is_dataclass(identity)
