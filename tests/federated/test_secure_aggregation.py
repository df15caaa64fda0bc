"""Masked sums equal plain sums whoever drops out, and rounds that cannot be finished say why."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from federated.secure_round import names, play
from syft import serde
from syft.federated.secure_aggregation import (
    MaskedSum,
    ProtocolViolationError,
    RoundSetting,
    SecureAggregationError,
    SecureClient,
    SecureServer,
    TooFewClientsError,
)
from syft.federated.secure_aggregation.masked_sum import STEPS
from syft.federated.secure_aggregation.messages import AdvertisedKeys, UnmaskingShares

torch.set_num_threads(1)


def updates(count: int, length: int = 50, seed: int = 0) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return {name: torch.randn(length, generator=generator, dtype=torch.float64) for name in names(count)}


def weights(count: int) -> dict[str, float]:
    return {name: 10.0 + number for number, name in enumerate(names(count))}


def plain(values: Any, weighing: Any, who: Any) -> torch.Tensor:
    return sum(weighing[name] * values[name] for name in who)


def leaving(plan: dict[str, list[int]]) -> Callable[[str, tuple[str, ...]], list[str]]:
    return lambda step, _present: [f"client-{number:02}" for number in plan.get(step, [])]


# -- the sum ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("gone", [0, 1, 3])
def test_the_sum_is_that_of_those_who_stayed(signed: bool, step: str, gone: int) -> None:
    """10 clients; up to 30 % leave before each step. Whoever left after sending an input is in the sum."""
    values, weighing = updates(10), weights(10)
    masked = MaskedSum(signed=signed, dropouts=leaving({step: list(range(4, 4 + gone))}))
    total = masked.weighted_sum(values, weighing)
    before_input = STEPS.index(step) <= STEPS.index("input")
    stayed = [n for number, n in enumerate(names(10)) if not (before_input and 4 <= number < 4 + gone)]
    assert masked.report is not None
    assert masked.report.survivors == tuple(stayed)
    assert len(masked.report.dropped) == (gone if before_input else 0)
    assert masked.report.weight == sum(weighing[name] for name in stayed)
    setting = masked.setting(10, 50)
    assert (total - plain(values, weighing, stayed)).abs().max() <= 10 / setting.encoding.units


def test_clients_may_leave_at_every_step_of_one_round() -> None:
    values, weighing = updates(13), weights(13)
    masked = MaskedSum(
        threshold=0.6, dropouts=leaving({"keys": [0], "shares": [3], "input": [5, 12], "unmasking": [7]})
    )
    total = masked.weighted_sum(values, weighing)
    stayed = [name for number, name in enumerate(names(13)) if number not in (0, 3, 5, 12)]
    torch.testing.assert_close(total, plain(values, weighing, stayed), rtol=0, atol=1e-6)
    assert masked.report is not None and masked.report.survivors == tuple(stayed)


@given(st.data())
@settings(max_examples=15)
def test_any_sum_within_the_range_is_exact_to_the_grid(data: Any) -> None:
    count = data.draw(st.integers(2, 5))
    clip = data.draw(st.sampled_from([0.5, 3.0, 1e4]))
    numbers = st.lists(st.floats(-clip, clip), min_size=3, max_size=3)
    values = {name: torch.tensor(data.draw(numbers), dtype=torch.float64) for name in names(count)}
    weighing = {name: data.draw(st.floats(0, 7)) for name in values}
    masked = MaskedSum(clip=clip, max_weight=7.0)
    total = masked.weighted_sum(values, weighing)
    # Half a unit per client, and the double's own rounding.
    bound = count / masked.setting(count, 3).encoding.units + 1e-12 * clip * 7 * count
    assert (total - plain(values, weighing, values)).abs().max() <= bound


def test_the_ends_of_the_range_do_not_wrap() -> None:
    for sign in (1.0, -1.0):
        values = {name: torch.full((2,), sign * 1024.0) for name in names(7)}
        total = MaskedSum().weighted_sum(values, dict.fromkeys(values, 2.0**20))
        assert total.tolist() == [sign * 7 * 2.0**30] * 2


def test_values_outside_the_range_are_clamped_and_it_is_said(caplog: pytest.LogCaptureFixture) -> None:
    values = {"a": torch.tensor([5.0, 0.5]), "b": torch.tensor([-7.0, 0.25])}
    masked = MaskedSum(clip=1.0)
    with caplog.at_level(logging.WARNING):
        total = masked.weighted_sum(values, {"a": 2.0, "b": 1.0})
    assert total.tolist() == [1.0, 1.25]
    assert masked.report is not None and masked.report.clamped == 2
    assert "2 of 4 values were outside the declared range" in caplog.text


def test_the_type_of_the_updates_is_kept_and_they_are_not_written_into() -> None:
    values = {name: update.float() for name, update in updates(3).items()}
    before = {name: update.clone() for name, update in values.items()}
    assert MaskedSum().weighted_sum(values, weights(3)).dtype == torch.float32
    assert all(torch.equal(values[name], before[name]) for name in values)


# -- too few ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("step", "said"),
    [
        ("keys", "advertised keys"),
        ("shares", "sent shares of their keys"),
        ("input", "sent their masked input"),
        ("confirmation", "confirmed the list"),
        ("unmasking", "helped to unmask"),
    ],
)
def test_below_the_threshold_nothing_is_opened(step: str, said: str) -> None:
    masked = MaskedSum(threshold=7, signed=True, dropouts=leaving({step: [0, 1, 2, 3]}))
    with pytest.raises(TooFewClientsError, match=f"6 clients {said}.*threshold of this round is 7"):
        masked.weighted_sum(updates(10), weights(10))
    assert masked.report is None


def test_exactly_the_threshold_is_enough() -> None:
    masked = MaskedSum(threshold=7, dropouts=leaving({"input": [1, 2, 3]}))
    total = masked.weighted_sum(updates(10), weights(10))
    stayed = [name for number, name in enumerate(names(10)) if number not in (1, 2, 3)]
    torch.testing.assert_close(total, plain(updates(10), weights(10), stayed), rtol=0, atol=1e-6)


@pytest.mark.parametrize(("clients", "signed", "threshold"), [(10, False, 5), (9, True, 6), (4, False, 5)])
def test_a_threshold_that_protects_nobody_is_refused(clients: int, signed: bool, threshold: int) -> None:
    with pytest.raises(ValueError, match=rf"threshold of {threshold} was asked for {clients} clients"):
        RoundSetting.new(clients, 5, threshold=threshold, signed=signed)
    with pytest.raises(ValueError, match=r"above 0\.5"):
        MaskedSum(threshold=0.5)


# -- messages --------------------------------------------------------------------------------------------


def test_a_round_is_the_same_over_bytes_and_they_are_counted() -> None:
    masked = MaskedSum()
    masked.weighted_sum(updates(5, 1000), weights(5))
    assert masked.report is not None
    assert 5 * 8 * 1001 < masked.report.to_server < 5 * 8 * 1001 + 5 * 2500
    assert 0 < masked.report.from_server < 10_000


def test_settings_and_messages_travel() -> None:
    setting = RoundSetting.new(4, 3)
    assert serde.deserialize(serde.serialize(setting)) == setting
    keys = SecureClient("a", setting).advertise_keys()
    assert serde.deserialize(serde.serialize(keys)) == keys
    forged = serde.serialize(AdvertisedKeys(b"x", 5, b"k", b"m", b""))  # type: ignore[arg-type]
    with pytest.raises(serde.SerdeError, match="AdvertisedKeys"):
        serde.deserialize(forged)


def test_errors_travel() -> None:
    error = serde.deserialize(serde.serialize(TooFewClientsError("sent their masked input", 2, 5)))
    assert isinstance(error, TooFewClientsError) and (error.found, error.threshold) == (2, 5)
    assert str(error).startswith("2 clients sent their masked input, and the threshold of this round is 5.")


def test_late_repeated_foreign_and_misplaced_messages_change_nothing() -> None:
    values = updates(4)
    setting = RoundSetting.new(4, 50)
    server = SecureServer(setting, values)
    clients = {name: SecureClient(name, setting) for name in values}
    advertised = {name: client.advertise_keys() for name, client in clients.items()}
    first, *_others, last = names(4)
    for name in values:
        if name != last:
            server.receive(advertised[name])
    with pytest.raises(ProtocolViolationError, match="twice"):
        server.receive(advertised[first])
    with pytest.raises(ProtocolViolationError, match=r"'mallory' .* not among the 4 clients"):
        server.receive(SecureClient("mallory", setting).advertise_keys())
    other = RoundSetting.new(4, 50)
    with pytest.raises(ProtocolViolationError, match=f"of round {other.round.hex()} to the server of round"):
        server.receive(SecureClient(last, other).advertise_keys())
    with pytest.raises(ProtocolViolationError, match="takes no str"):
        server.receive("keys")
    roster = server.roster()
    with pytest.raises(ProtocolViolationError, match="it is late"):
        server.receive(advertised[last])
    with pytest.raises(ProtocolViolationError, match="taken once, in order"):
        server.roster()
    with pytest.raises(ProtocolViolationError, match="while it was at shares"):
        server.result()
    assert server.waiting_for() == tuple(names(3))
    for name in names(3):
        server.receive(clients[name].share_keys(roster))
    deliveries = server.deliveries()
    for name in names(3):
        server.receive(clients[name].masked_input(deliveries[name], values[name]))
    survivors = server.survivors()
    for name in names(3):
        server.receive(clients[name].unmask(survivors))
    torch.testing.assert_close(server.result().total, sum(values[n] for n in names(3)), rtol=0, atol=1e-6)


def test_malformed_contents_are_refused_and_name_their_sender() -> None:
    played = play(updates(4), silent=["client-03"])
    name = "client-01"
    answer = played.clients[name].unmask(played.survivors)
    swapped = UnmaskingShares(answer.round, name, answer.self_masks, answer.mask_keys)
    with pytest.raises(ProtocolViolationError, match=r"'client-01' sent 3 shares of mask keys"):
        played.server.receive(swapped)
    short = UnmaskingShares(answer.round, name, answer.mask_keys, dict(answer.self_masks, **{name: b"short"}))
    with pytest.raises(ProtocolViolationError, match="66 bytes"):
        played.server.receive(short)
    played.server.receive(answer)
    with pytest.raises(ProtocolViolationError, match="twice"):
        played.server.receive(answer)


@pytest.mark.parametrize("silent", [[], ["client-03"]])
def test_wrong_shares_are_noticed(silent: list[str]) -> None:
    """Of a self mask when nobody dropped out, of a mask key when somebody did."""
    played = play(updates(4), silent=silent)
    for name in played.survivors.clients:
        answer = played.clients[name].unmask(played.survivors)
        if name == "client-00":
            kind = "mask_keys" if silent else "self_masks"
            shares = dict(getattr(answer, kind))
            who = max(shares)
            shares[who] = bytes([0, shares[who][1] ^ 1]) + shares[who][2:]
            parts = dict(mask_keys=answer.mask_keys, self_masks=answer.self_masks) | {kind: shares}
            answer = UnmaskingShares(answer.round, name, **parts)
        played.server.receive(answer)
    with pytest.raises(SecureAggregationError, match=r"'client-0[0-3]'.* cannot be opened"):
        played.server.result()


def test_the_server_refuses_an_impossible_invitation() -> None:
    with pytest.raises(ValueError, match="2 clients were invited to a round for 3"):
        SecureServer(RoundSetting.new(4, 5), ["a", "b"])


# -- wrong input -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "weighing", "said"),
    [
        ({"a": torch.ones(2)}, {"a": 1.0}, "2 clients or more"),
        ({"a": torch.ones(2), "b": torch.ones(3)}, {"a": 1.0, "b": 1.0}, "one shape and dtype"),
        ({"a": torch.ones(2), "b": torch.ones(2)}, {"a": 1.0}, "Every update has a weight"),
        ({"a": torch.ones(2, 2), "b": torch.ones(2, 2)}, {"a": 1.0, "b": 1.0}, "flat floating-point"),
        ({"a": torch.ones(2).long(), "b": torch.ones(2).long()}, {"a": 1.0, "b": 1.0}, "flat floating-point"),
        (
            {"a": torch.ones(2), "b": torch.full((2,), torch.nan)},
            {"a": 1.0, "b": 1.0},
            "2 values that are NaN",
        ),
        ({"a": torch.ones(2), "b": torch.ones(2)}, {"a": 1.0, "b": 1e9}, "declare a larger max_weight"),
        ({"a": torch.ones(2), "b": torch.ones(2)}, {"a": 1.0, "b": -1.0}, "finite numbers of 0 or more"),
        (
            {"a": torch.ones(2), "b": torch.ones(2)},
            {"a": 1.0, "b": float("nan")},
            "finite numbers of 0 or more",
        ),
    ],
)
def test_what_cannot_be_summed_is_refused(values: Any, weighing: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        MaskedSum().weighted_sum(values, weighing)


def test_a_sum_without_room_is_refused() -> None:
    with pytest.raises(ValueError, match="leaves 3 bits"):
        MaskedSum(clip=2.0**35, max_weight=2.0**20).weighted_sum(updates(16), weights(16))
    with pytest.raises(ValueError, match="40 fractional bits do not fit"):
        RoundSetting.new(20, 5, fraction_bits=40)
    with pytest.raises(ValueError, match="has room for 20 at most"):
        RoundSetting.new(
            16, 5, clip=1.0, max_weight=1.0, fraction_bits=50, noise_reach=(1 << 59) - (1 << 49) - (1 << 21)
        )
