"""Streams are uniform, unbiased and reproducible; sharing is exact and its shares tell nothing."""

from __future__ import annotations

import math
import os

import numpy as np
import pytest
import torch
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from hypothesis import given, settings
from hypothesis import strategies as st

from mpc.lower import HOLDERS, STREAM, spread
from syft.mpc import randomness, ring
from syft.mpc.randomness import BoundStream, Stream, new_seed

INT64 = st.integers(ring.MIN, ring.MAX)


def test_two_streams_of_one_seed_agree_and_two_seeds_do_not():
    seed = new_seed()
    one, other = Stream(seed), Stream(seed)
    for shape in ((3,), (2, 5), (0,), (70_001,)):
        assert torch.equal(one.words(shape), other.words(shape))
    assert not torch.equal(Stream().words(8), Stream().words(8))
    assert torch.equal(one.fork().words(4), other.fork().words(4))


def test_a_stream_reads_the_same_in_one_piece_and_in_many():
    seed = new_seed()
    whole, pieces = Stream(seed), Stream(seed)
    sizes = [1, 2, 3, 16384, 16385, 40_000]
    assert torch.equal(whole.words(sum(sizes)), torch.cat([pieces.words(size) for size in sizes]))


@pytest.mark.parametrize("count", [0, 5, 16_384, 50_001])
def test_the_words_of_several_streams_are_joined(count):
    seeds = [new_seed() for _ in range(3)]
    for function, joined in ((np.add, torch.add), (np.bitwise_xor, torch.bitwise_xor)):
        first, *others = [BoundStream(seed).at(b"p") for seed in seeds]
        apart = [BoundStream(seed).at(b"p") for seed in seeds]
        for shape in ((count,), (1, count)):  # the second goes on where the first ended
            found = first.words_with(others, function, shape)
            x, y, z = (stream.words(shape) for stream in apart)
            assert torch.equal(found, joined(joined(x, y), z))


@pytest.mark.parametrize("is_faster", [True, False])
@pytest.mark.parametrize(
    "sizes", [[30_000], [1, 9_000], [4, 9_000, 3, 20_000], [3_000, 20_000, 1], [9_000, 2], [20_000, 10_000]]
)
def test_a_bound_stream_is_the_key_stream_of_ctr_however_it_is_made(monkeypatch, is_faster, sizes):
    monkeypatch.setattr(randomness, "is_gcm_faster", lambda: is_faster)
    stream = BoundStream(b"0123456789abcdef")
    for purpose in (b"one", b"other"):  # the second begins afresh
        drawn = torch.cat([stream.at(purpose).words(sizes[0]), *map(stream.words, sizes[1:])])
        reference = Cipher(algorithms.AES(stream._key), modes.CTR(stream._place + bytes(4))).encryptor()
        assert drawn.numpy().tobytes() == reference.update(bytes(8 * sum(sizes)))


@pytest.mark.parametrize("is_faster", [True, False])
@pytest.mark.parametrize("derived", [False, True])
def test_a_stream_that_nobody_else_has_may_take_a_key_of_gcm_and_takes_another_in_time(
    monkeypatch, is_faster, derived
):
    """Draws are 80 kB, and a key makes 200 kB: two draws of each."""
    keys = [bytes([number]) * 16 for number in range(1, 9)]
    monkeypatch.setattr(randomness, "is_gcm_faster", lambda: is_faster)
    monkeypatch.setattr(randomness, "new_seed", iter(keys).__next__)
    monkeypatch.setattr(randomness, "_MOST_OF_A_KEY", 200_000)
    stream = Stream()
    first = stream.raw(16)
    if derived:
        stream, first = stream.fork(), b""
    drawn = [stream.words(10_000).numpy().tobytes() for _ in range(5)] + [stream.raw(48)]

    def key_stream(key, mode):
        made = Cipher(algorithms.AES(key), mode).encryptor()
        return lambda size: made.update(bytes(size))

    in_counter_mode = key_stream(keys[0], modes.CTR(bytes(16)))
    assert first in (b"", in_counter_mode(16))
    if is_faster:
        parts = [key_stream(key, modes.GCM(bytes(12))) for key in keys[1:4]]
        expected = [parts[index // 2](80_000) for index in range(5)] + [parts[2](48)]
    else:
        if derived:
            in_counter_mode(16)
            in_counter_mode = key_stream(
                key_stream(keys[0], modes.CTR(bytes(16)))(32)[16:], modes.CTR(bytes(16))
            )
        expected = [in_counter_mode(size) for size in (*[80_000] * 5, 48)]
    assert drawn == expected


def test_a_stream_that_was_given_a_seed_keeps_it_however_much_is_drawn(monkeypatch):
    monkeypatch.setattr(randomness, "is_gcm_faster", lambda: True)
    monkeypatch.setattr(randomness, "_MOST_OF_A_KEY", 200_000)
    seed = new_seed()
    drawn = Stream(seed).raw(500_000)
    assert drawn == Cipher(algorithms.AES(seed), modes.CTR(bytes(16))).encryptor().update(bytes(500_000))


@given(st.lists(st.lists(st.sampled_from([0, 1, 2, 3, 700, 2047, 2048, 2049]), max_size=2), max_size=9))
@settings(max_examples=60, deadline=None)
def test_small_tensors_that_are_drawn_together_are_those_drawn_apart(shapes):
    shapes = [shape for shape in shapes if math.prod(shape) < 5000]
    seed = new_seed()
    apart, together = Stream(seed), Stream(seed)
    expected = [apart.words(shape) for shape in shapes]
    found = list(together.draw_all(shapes))
    assert all(torch.equal(one, other) for one, other in zip(found, expected, strict=True))
    for one in found:
        one.fill_(-1)  # nothing else is written to, and nothing else says that it was
    assert [one._version for one in found] == [1] * len(found)
    assert all(bool((one == -1).all()) for one in found)
    assert torch.equal(together.words(5), apart.words(5))


def test_a_seed_of_the_wrong_size_is_refused():
    with pytest.raises(ValueError, match="16 bytes"):
        Stream(b"short")


def test_words_do_not_touch_torchs_generator():
    before = torch.random.get_rng_state()
    Stream().words(100)
    Stream().permutation(10)
    assert torch.equal(before, torch.random.get_rng_state())


@pytest.mark.parametrize("bound", [1, 2, 3, 67, 1000, 3 * 2**61, 2**63])
def test_bounded_integers_are_uniform(bound):
    drawn = STREAM.below(bound, 200_000)
    assert int(drawn.min()) >= 0 and int(drawn.max()) < bound
    cells = min(bound, 50)
    counts = torch.bincount((drawn.double() / bound * cells).long().clamp(max=cells - 1), minlength=cells)
    expected = 200_000 / cells
    chi = float(((counts - expected) ** 2 / expected).sum())
    if bound in (1, 2, 3, 67, 1000):
        cells_are_equal = bound % cells == 0
        assert not cells_are_equal or chi < cells + 8 * math.sqrt(2 * cells)
    else:
        assert chi < cells + 8 * math.sqrt(2 * cells)


def test_bits_are_fair_and_permutations_are_permutations():
    assert abs(float(STREAM.bits(200_000).double().mean()) - 0.5) < 0.01
    rows = STREAM.permutation(64, rows=500)
    assert torch.equal(rows.sort(-1).values, torch.arange(64).expand(500, 64))
    firsts = torch.bincount(STREAM.permutation(8, rows=16_000)[:, 0], minlength=8)
    assert float(((firsts - 2000.0) ** 2 / 2000).sum()) < 45


@settings(max_examples=60, deadline=None)
@given(st.lists(INT64, min_size=0, max_size=40), st.sampled_from(HOLDERS))
def test_sharing_and_reconstructing_is_the_identity(values, holders):
    x = torch.tensor(values, dtype=torch.int64)
    shares = ring.share(x, holders, STREAM)
    assert len(shares) == holders
    assert torch.equal(ring.reconstruct(shares), x)
    assert torch.equal(ring.reconstruct_bits(ring.share_bits(x, holders, STREAM)), x)
    fresh = [s + z for s, z in zip(shares, ring.zero_shares(x.shape, holders, STREAM), strict=True)]
    assert torch.equal(ring.reconstruct(fresh), x)


def test_one_holder_and_floats_are_refused():
    with pytest.raises(ValueError, match="two holders"):
        ring.share(torch.zeros(1, dtype=torch.int64), 1, STREAM)
    with pytest.raises(TypeError, match="fix_precision"):
        ring.share(torch.zeros(1), 2, STREAM)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 300))
def test_bits_survive_packing(count):
    bits = STREAM.bits(count)
    assert torch.equal(ring.unpack_bits(ring.pack_bits(bits), count), bits)


@pytest.mark.parametrize("radix", [2, 4])
@pytest.mark.parametrize("count", [1, 5, 64, 65, 200, 1000])
def test_packing_level_by_level_ends_with_one_bit_per_element_in_order(radix, count):
    """Packing always the lowest part leaves bit 0 of every element."""
    columns = ring.words_for(count)
    x = torch.zeros(ring.padded(count), dtype=torch.int64)
    x[:count] = spread(count)
    planes, width = x.view(-1, columns), 1
    while width < 64:
        planes, width = ring.pack(planes, radix, width, 0), width * radix
    assert torch.equal(ring.unpack_bits(planes.view(-1), count), x[:count] & 1)


@pytest.mark.parametrize("shape", [(1, 3), (7, 2), (64, 5), (2, 63, 300), (2, 6, 4)])
@pytest.mark.parametrize(("radix", "width"), [(2, 1), (2, 16), (4, 1), (4, 4), (4, 16)])
def test_packing_all_parts_at_once_is_packing_them_one_by_one(shape, radix, width):
    planes = STREAM.words(shape)
    parts = ring.pack_all(planes, radix, width)
    for part in range(radix):
        one_by_one = [ring.pack(one, radix, width, part) for one in planes.view(-1, *shape[-2:])]
        assert torch.equal(parts[part].reshape(-1, *parts.shape[-2:]), torch.stack(one_by_one))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
@pytest.mark.parametrize("derived", [False, True])
def test_a_forked_process_has_streams_of_its_own_unless_they_were_given_a_seed(derived: bool) -> None:
    own, agreed = Stream(), Stream(b"0123456789abcdef")
    if derived:
        own, agreed = own.fork(), agreed.fork()
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(write, own.raw(16) + agreed.raw(16))
        os._exit(0)
    os.waitpid(child, 0)
    theirs = os.read(read, 32)
    os.close(read)
    os.close(write)
    assert theirs[:16] != own.raw(16) and theirs[16:] == agreed.raw(16)
