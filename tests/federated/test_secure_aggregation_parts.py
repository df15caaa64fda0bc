"""The pieces of secure aggregation: secret sharing, encodings, keys, masks."""

from __future__ import annotations

import itertools
import secrets
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from syft.federated.secure_aggregation.encoding import Encoding
from syft.federated.secure_aggregation.errors import ProtocolViolationError
from syft.federated.secure_aggregation.keys import KeyPair, derive, label, seal, unseal
from syft.federated.secure_aggregation.masks import add_masks, pair_sign
from syft.federated.secure_aggregation.shamir import PRIME, SHARE_BYTES, lagrange, recover, split
from syft.mpc.randomness import Stream

torch.set_num_threads(1)
secret_bytes = st.binary(min_size=32, max_size=32)


# -- Shamir ----------------------------------------------------------------------------------------------


@given(secret_bytes, st.integers(1, 7), st.integers(0, 5), st.randoms(use_true_random=False))
def test_any_threshold_of_shares_recovers_the_secret(
    secret: bytes, threshold: int, more: int, random: Any
) -> None:
    places = random.sample(range(1, 1000), threshold + more)
    shares = dict(zip(places, split(secret, threshold, places), strict=True))
    chosen = random.sample(places, random.randint(threshold, len(places)))
    assert recover({place: shares[place] for place in chosen}) == secret


def test_every_subset_of_the_threshold_recovers_and_no_smaller_one_does() -> None:
    secret = secrets.token_bytes(32)
    shares = dict(enumerate(split(secret, 3, range(1, 6)), 1))
    for chosen in itertools.combinations(shares, 3):
        assert recover({place: shares[place] for place in chosen}) == secret
    for chosen in itertools.chain.from_iterable(itertools.combinations(shares, n) for n in (1, 2)):
        with pytest.raises(ProtocolViolationError, match="too few"):
            recover({place: shares[place] for place in chosen})


@given(secret_bytes, secret_bytes)
@settings(max_examples=20)
def test_fewer_shares_fit_every_secret(secret: bytes, other: bytes) -> None:
    """For t - 1 shares of one secret there is, for any other, exactly one polynomial that explains them."""
    shares = dict(enumerate(split(secret, 3, range(1, 6)), 1))
    known = {place: int.from_bytes(shares[place], "big") for place in (2, 4)}
    # The polynomial through (0, other) and the two known shares, at place 5: a share that makes them recover `other`.
    points = {0: int.from_bytes(other, "big")} | known
    value = 0
    for x, y in points.items():
        term = y
        for z in points:
            if z != x:
                term = term * (5 - z) * pow(x - z, -1, PRIME) % PRIME
        value = (value + term) % PRIME
    forged = {2: shares[2], 4: shares[4], 5: value.to_bytes(SHARE_BYTES, "big")}
    assert recover(forged) == other


@given(secret_bytes, secret_bytes)
def test_sums_of_shares_are_shares_of_the_sum(one: bytes, other: bytes) -> None:
    places = range(1, 5)
    added = {
        place: ((int.from_bytes(a, "big") + int.from_bytes(b, "big")) % PRIME).to_bytes(SHARE_BYTES, "big")
        for place, a, b in zip(places, split(one, 2, places), split(other, 2, places), strict=True)
    }
    total = int.from_bytes(one, "big") + int.from_bytes(other, "big")
    if total < 1 << 256:
        assert recover(added) == total.to_bytes(32, "big")
    else:
        with pytest.raises(ProtocolViolationError):
            recover(added)


def test_the_prime_is_one() -> None:
    """Lucas and Lehmer: 2^p - 1 is prime if and only if s_(p-2) = 0."""
    s = 4
    for _ in range(521 - 2):
        s = (s * s - 2) % PRIME
    assert s == 0 and PRIME == 2**521 - 1


def test_wrong_shares_and_impossible_thresholds_are_refused() -> None:
    secret = bytes(range(32))
    shares = dict(enumerate(split(secret, 2, [1, 2, 3]), 1))
    with pytest.raises(ProtocolViolationError, match="do not belong to one secret"):
        recover({1: shares[1], 2: shares[3]})
    for bad in (b"", b"\xff" * SHARE_BYTES, shares[1] + b"0"):
        with pytest.raises(ProtocolViolationError, match="66 bytes"):
            recover({1: bad, 2: shares[2]})
    for threshold, places in ((0, [1]), (2, [1]), (1, [0]), (1, [1, 1])):
        with pytest.raises(ValueError, match=r"threshold|places"):
            split(secret, threshold, places)
    with pytest.raises(ValueError, match="32 bytes"):
        split(b"short", 1, [1])
    with pytest.raises(ValueError, match="each once"):
        lagrange([])


# -- encoding --------------------------------------------------------------------------------------------


@given(st.floats(1e-3, 1e6), st.floats(1e-3, 1e6), st.integers(1, 10_000), st.sampled_from([-1.0, 1.0]))
def test_the_largest_sum_that_an_encoding_lets_in_does_not_wrap(
    clip: float, weight: float, clients: int, sign: float
) -> None:
    encoding = Encoding.fitting(clip, weight, clients)
    word, _ = encoding.encode(torch.tensor([sign * clip], dtype=torch.float64), weight)
    assert abs(int(word)) * clients < 2**63
    assert encoding.encode_weight(weight) * clients < 2**63
    if encoding.fraction_bits < 52:
        with pytest.raises(ValueError, match="do not fit"):
            Encoding(clip, weight, clients, encoding.fraction_bits + 1)


@given(st.floats(-8, 8), st.floats(0, 3))
def test_decoding_is_within_half_a_unit(value: float, weight: float) -> None:
    encoding = Encoding(8.0, 3.0, 10, 20)
    word, clamped = encoding.encode(torch.tensor([value], dtype=torch.float64), weight)
    assert clamped == 0
    assert abs(float(encoding.decode(word)) - value * weight) <= 0.5 / encoding.units + 1e-13
    assert abs(encoding.decode_weight(encoding.encode_weight(weight)) - weight) < 1e-12


@pytest.mark.parametrize("bad", [0.0, -1.0, float("inf"), float("nan")])
def test_a_range_that_is_none_is_refused(bad: float) -> None:
    for arguments in ((bad, 1.0), (1.0, bad)):
        with pytest.raises(ValueError, match="finite number above 0"):
            Encoding.fitting(*arguments, 3)
        with pytest.raises(ValueError, match="finite number above 0"):
            Encoding(*arguments, 3, 10)


# -- keys and masks --------------------------------------------------------------------------------------


def test_two_parties_agree_and_purposes_have_keys_of_their_own() -> None:
    a, b, c = KeyPair.new(), KeyPair.new(), KeyPair.new()
    assert a.agree(b.public, "b") == b.agree(a.public, "a") != a.agree(c.public, "c")
    shared = a.agree(b.public, "b")
    assert len({derive(shared, 16, *parts) for parts in (("x",), ("y",), ("x", "1"), ("x", "1", "2"))}) == 4
    assert label("ab", "c") != label("a", "bc") and label("a") != label(b"a")
    with pytest.raises(ValueError, match="32 bytes"):
        KeyPair(b"short")


@given(st.binary(max_size=100))
def test_what_is_sealed_is_opened_by_its_recipient_only(plain: bytes) -> None:
    key = secrets.token_bytes(32)
    sealed = seal(key, b"t", "a", "b", plain, secrets.token_bytes)
    assert unseal(key, b"t", "a", "b", sealed) == plain
    for arguments in ((b"u", "a", "b"), (b"t", "b", "a"), (b"t", "a", "c")):
        with pytest.raises(ProtocolViolationError, match="not made by"):
            unseal(key, *arguments, sealed)


@given(st.integers(0, 20_000), st.lists(st.sampled_from([1, -1]), max_size=3))
@settings(max_examples=20)
def test_masks_are_the_words_of_their_streams(length: int, signs: list[int]) -> None:
    seeds = [(sign, secrets.token_bytes(16)) for sign in signs]
    masked = add_masks(torch.arange(length), seeds)
    expected = torch.arange(length)
    for sign, seed in seeds:
        expected = expected + sign * Stream(seed).words(length)
    assert torch.equal(masked, expected)
    assert torch.equal(add_masks(masked, [(-sign, seed) for sign, seed in seeds]), torch.arange(length))


def test_the_signs_of_a_pair_are_opposite() -> None:
    assert pair_sign("a", "b") == -pair_sign("b", "a")
