"""Whatever the bytes are, they are refused with a SerdeError or stand for something valid; nothing runs or grows."""

from __future__ import annotations

import os
import pickle
import random
import struct
import subprocess
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from serde.mutation import corpus, mutate
from syft import serde
from syft.serde import Limits, SerdeError
from syft.serde.wire import count_objects

PREAMBLE = struct.Struct("<4sHHII")


def framed(root: Any, buffers: Any = (), body: bytes = b"", **changes: Any) -> bytes:
    """A frame made by hand."""
    header = msgspec.msgpack.encode([root, list(buffers)])
    fields = {
        "magic": b"\x89SYF",
        "version": 1,
        "reserved": 0,
        "length": len(header),
        "count": len(buffers),
    } | changes
    start = PREAMBLE.pack(*fields.values()) + header
    return start + (bytes(-len(start) % 64) + body if buffers else b"")


def tensor(shape: Any, data: Any, dtype: Any = "float32", flags: Any = 0, *more: Any) -> list[Any]:
    return ["tensor", dtype, shape, data, flags, *more]


def refused(data: Any, words: str, **options: Any) -> None:
    with pytest.raises(SerdeError, match=words) as caught:
        serde.deserialize(data, **options)
    assert str(caught.value).strip().endswith((".", "'", ")", "]")) or ": " in str(caught.value)


def test_a_frame_made_by_hand_is_read() -> None:
    assert serde.deserialize(framed(["list", 1, "a"])) == [1, "a"]
    body = np.arange(100, dtype="<f4").tobytes()
    assert serde.deserialize(framed(tensor([100], 0), [[400, 400, 0]], body)).sum() == 4950


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "too few"),
        (b"\x89SYF", "too few"),
        (pickle.dumps({"a": 1}), "not made by syft"),
        (b"PK\x03\x04" + bytes(100), "not made by syft"),
        (framed(1, version=2), "version 2; this library reads version 1"),
        (framed(1, version=0), "version 0"),
        (framed(1, reserved=7), "reserved"),
        (framed(1, length=2**32 - 1), "allowed"),
        (framed(1, length=1000), "cut off"),
        (framed(1) + b"x", "ends at"),
        (framed(1, count=3), "announces 3"),
        (framed(1)[:-1], "cut off"),
        (PREAMBLE.pack(b"\x89SYF", 1, 0, 0, 0), "header"),
        (PREAMBLE.pack(b"\x89SYF", 1, 0, 5, 0) + b"\xdd\xff\xff\xff\xff", "header"),
        (PREAMBLE.pack(b"\x89SYF", 1, 0, 5, 0) + b"\xc6\xff\xff\xff\xff", "header"),
        (PREAMBLE.pack(b"\x89SYF", 1, 0, 90_000, 0) + b"\x91" * 90_000, "header"),
        (framed({"a": 1}), "dict was found"),
        (framed([]), "list was found"),
        (framed(["nonsense", 1]), "'nonsense'"),
        (framed([["list"], 1]), "not registered"),
        (framed(["os.system", "true"]), "not registered"),
        (framed(msgspec.msgpack.Ext(1, b"x")), "Ext was found"),
        (framed(["dict", 1]), "pairs"),
        (framed(["dict", 1, 2, 1, 3]), "twice"),
        (framed(["set", 1, 1]), "twice"),
        (framed(["dict", ["list"], 1]), "unhashable"),
        (framed(["range", 1, 2, 0]), "zero"),
        (framed(["range", 1, 2, "a"]), "cannot be made"),
        (framed(["complex", 1.0]), "cannot be made"),
        (framed(["slice", 1]), "not enough"),
        (framed(["int", 5]), "buffer 5"),
        (framed(["dtype", "os"]), "not the name"),
        (framed(["device", "gpu", None]), "not the name"),
        (framed(["device", "cuda", -1]), "must be"),
    ],
)
def test_a_malformed_frame_is_refused_with_its_reason(data: bytes, words: str) -> None:
    refused(data, words)
    refused(bytearray(data), words)


@pytest.mark.parametrize(
    ("root", "words"),
    [
        (tensor([5], bytes(16)), "needs 20 bytes and has 16"),
        (tensor([2**31, 2**31, 2**31], b""), "larger than any memory"),
        (tensor([0, 2**61, 2**61], b""), "larger than any memory"),
        (tensor([2**40], b""), "needs"),
        (tensor([-1], b""), "must be"),
        (tensor([4], bytes(16), "float32", 0, [-1]), "must be"),
        (tensor([4], bytes(16), "float32", 0, [2]), "gaps"),
        (tensor([4], bytes(16), "float32", 0, [0]), "gaps"),
        (tensor([2, 2], bytes(16), "float32", 0, [1, 1]), "gaps"),
        (tensor([2, 2], bytes(16), "float32", 0, [2]), "strides"),
        (tensor([2, 2], bytes(16), "float32", 0, [2**61, 1]), "gaps"),
        (tensor([4], bytes(16), "object"), "dtype 'object'"),
        (tensor([16], bytes(16), "qint8"), "dtype"),
        (tensor([2], bytes(2) + bytes(14), "int64", 1), "require gradients"),
        (tensor([3], b"\x00\x01\x02", "bool"), "neither 0 nor 1"),
        (tensor([4], 0), "buffer 0"),
        (tensor([4], -1), "buffer -1"),
        (tensor([4], bytes(16), "float32", 99), "must be"),
        (tensor([4], bytes(16), "float32", 0, None, None, 1, 2), "must be"),
        (tensor(4, bytes(16)), "must be"),
        (["ndarray", "<f4", [4], bytes(15), False], "needs 16"),
        (["ndarray", "O", [1], bytes(8), False], "not the dtype"),
        (["ndarray", "|V8", [1], bytes(8), False], "not the dtype"),
        (["ndarray", "<f4,<f4", [1], bytes(8), False], "not the dtype"),
        (["ndarray", "<U1", [1], b"\xff" * 4, False], "no character"),
        (["ndarray", "|b1", [1], b"\x02", False], "neither 0 nor 1"),
        (["ndarray", "<f4", [1] * 65, bytes(4), False], "dimensions"),
        (["numpy", ["list", 1]], "not made of an array"),
        (["chain", 0, 3], "begins with a int"),
        (["LoggingTensor", [None, [], None], [], "text"], "stands on a str"),
        (["LoggingTensor", [None, [], None], [1], None], "contents"),
        (["MultiPointerTensor", [None, [], None], []], "one pointer or more"),
        (["PointerTensor", [None, [], None], ["nobody", 1, True, None], None], "'nobody'"),
        (["TensorSpec", ["tuple", 2**40, 2**40], ["tuple", 1, 1], 0, ["dtype", "float32"]], "that of none"),
        (["TensorSpec", ["tuple", 2], ["tuple"], 0, ["dtype", "float32"]], "strides"),
        (["Answer", None, ["tuple", "other"], None, False], "an answer|An answer"),
        (["Answer", None, ["tuple"], "set", False], "list or a tuple"),
    ],
)  # fmt: skip
def test_a_malformed_object_is_refused_with_its_reason(root: Any, words: str) -> None:
    refused(framed(root), words)
    with pytest.raises(SerdeError):
        serde.detail(None, root)


def test_buffers_are_used_once_and_all() -> None:
    body = bytes(400)
    one = tensor([100], 0)
    refused(framed(["list", one, one], [[400, 400, 0]], body), "each can be used once")
    refused(framed(1, [[400, 400, 0]], body), "uses 0 of them")
    refused(framed(one, [[400, 401, 0]], body), "claims 401")
    refused(framed(one, [[500, 500, 0]], body), "cut off")
    refused(framed(one, [[2**61, 2**61, 0]], body), "cut off")
    refused(framed(one, [[-1, 400, 0]], body), "header")
    refused(framed(one, [[400, 400, 9]], body), "scheme number 9")


def test_compressed_buffers_must_hold_what_they_claim() -> None:
    import zstandard

    packed = zstandard.ZstdCompressor().compress(bytes(4000))
    good = framed(tensor([1000], 0), [[len(packed), 4000, 2]], packed)
    assert serde.deserialize(good).sum() == 0
    refused(framed(tensor([1001], 0), [[len(packed), 4004, 2]], packed), "another number of bytes")
    refused(framed(tensor([999], 0), [[len(packed), 3996, 2]], packed), "another number of bytes")
    refused(framed(tensor([1000], 0), [[len(packed), 4000, 1]], packed), "lz4")
    refused(framed(tensor([1000], 0), [[100, 4000, 2]], b"\xff" * 100), "zstd")
    bomb = zstandard.ZstdCompressor().compress(bytes(50_000_000))
    data = framed(tensor([12_500_000], 0), [[len(bomb), 50_000_000, 2]], bomb)
    refused(data, "when decompressed", limits=Limits(max_decompressed=1_000_000))
    lying = framed(tensor([100], 0), [[len(bomb), 400, 2]], bomb)
    tracemalloc.start()
    refused(lying, "another number of bytes")
    assert tracemalloc.get_traced_memory()[1] < 5_000_000
    tracemalloc.stop()


def test_every_limit_is_kept() -> None:
    data = serde.serialize([[[1, 2, 3]], torch.zeros(1000)])
    assert serde.deserialize(data, limits=Limits(max_bytes=len(data))) is not None
    refused(data, "bytes was given", limits=Limits(max_bytes=len(data) - 1))
    refused(data, "header has", limits=Limits(max_header=10))
    refused(data, "levels", limits=Limits(max_depth=2))
    refused(data, "values|objects", limits=Limits(max_objects=3))
    with pytest.raises(SerdeError, match="deeper"):
        serde.serialize([[[1]]], limits=Limits(max_depth=2))
    with pytest.raises(SerdeError, match="description of the object"):
        serde.serialize("a" * 1000, limits=Limits(max_header=100))


def test_values_are_counted_before_they_are_made() -> None:
    value = ["list", *range(5000), "x" * 300, b"y" * 70000, 1.5, -3, None, ["list", [1] * 20, 2**40]]
    raw = msgspec.msgpack.encode(value)
    assert (
        count_objects(memoryview(raw), 10**6)
        == len(["outer", "list"]) + 5000 + 5 + len(["inner", "list", "ones", "big"]) + 20
    )
    for claims in (b"\xdd\xff\xff\xff\xff", b"\xdc\xff\xff", b"\x91" * 4000):
        with pytest.raises(SerdeError, match="values"):
            count_objects(memoryview(claims), 3000)
    with pytest.raises(SerdeError, match="byte 0xc1"):
        count_objects(memoryview(b"\xc1"), 10)
    many = framed(["list", *[["list"]] * 50_000])
    tracemalloc.start()
    refused(many, "more than 1000 values", limits=Limits(max_objects=1000))
    assert tracemalloc.get_traced_memory()[1] < 200_000
    tracemalloc.stop()


def test_keys_that_collide_on_purpose_are_refused() -> None:
    prime = 2**61 - 1
    keys = [["int", (k * prime).to_bytes(12, "little")] for k in range(10, 2000)]
    refused(framed(["set", *keys]), "same hash")
    refused(framed(["dict", *[part for key in keys for part in (key, 1)]]), "same hash")
    fine = set(range(5000))
    assert serde.deserialize(serde.serialize(fine)) == fine


class Evil:
    def __reduce__(self) -> Any:
        return os.mkdir, (str(Path(os.environ["SYFT_TEST_TARGET"])),)


@pytest.mark.parametrize("protocol", range(6))
def test_pickles_are_refused_and_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, protocol: int
) -> None:
    target = tmp_path / "made"
    monkeypatch.setenv("SYFT_TEST_TARGET", str(target))
    evil = pickle.dumps(Evil(), protocol)
    for data in (
        evil,
        PREAMBLE.pack(b"\x89SYF", 1, 0, len(evil), 0) + evil,
        framed(evil),
        framed(["bytes", evil]),
        framed(["tensor", evil]),
        framed(["error", "ValueError", [], [evil], ""]),
    ):
        try:
            assert serde.deserialize(data) == evil
        except SerdeError:
            pass
    assert not target.exists()


def test_torch_files_are_refused(tmp_path: Path) -> None:
    torch.save(torch.ones(3), tmp_path / "x.pt")
    refused((tmp_path / "x.pt").read_bytes(), "not made by syft")


@settings(max_examples=300)
@given(st.binary(max_size=300))
def test_random_bytes_are_refused(data: bytes) -> None:
    for given_bytes in (data, PREAMBLE.pack(b"\x89SYF", 1, 0, len(data), 0) + data):
        answered(given_bytes)


SIMPLE = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats()
    | st.text(max_size=5)
    | st.binary(max_size=9),
    lambda inner: st.builds(
        lambda code, parts: [code, *parts],
        st.sampled_from(sorted(serde.registry.BY_CODE)),
        st.lists(inner, max_size=7),
    ),
    max_leaves=25,
)


@settings(max_examples=500)
@given(SIMPLE)
def test_any_words_in_any_order_are_answered(simple: Any) -> None:
    answered(framed(simple))


def answered(data: bytes) -> bool:
    """Whether bytes are read; whatever is made of them can travel itself. Any other error is a failure."""
    try:
        value = serde.deserialize(data)
    except SerdeError:
        return False
    serde.serialize(value)
    return True


def fuzz(worker: Any, count: int, seed: int) -> None:
    rng = random.Random(seed)
    frames = corpus(worker)
    accepted = 0
    for number in range(count):
        data = mutate(rng, frames)
        try:
            accepted += answered(data if number % 2 else bytearray(data))  # type: ignore[arg-type]
        except Exception as error:
            error.add_note(f"frame {number} of seed {seed}: {data!r}")
            raise
    # The mutations are neither all harmless nor all fatal: both ways are exercised.
    assert count * 0.02 < accepted < count * 0.98


def test_the_corpus_is_valid(bob: Any) -> None:
    for frame in corpus(bob):
        assert answered(frame)


def test_every_truncation_is_refused(bob: Any) -> None:
    for frame in corpus(bob):
        for length in {*range(min(len(frame), 200)), *range(200, len(frame), 97)} - {len(frame)}:
            with pytest.raises(SerdeError):
                serde.deserialize(frame[:length])


def test_every_flipped_bit_is_answered(bob: Any) -> None:
    for frame in corpus(bob):
        data = bytearray(frame)
        for place in range(min(len(data), 120)):
            for bit in (0, 3, 7):
                data[place] ^= 1 << bit
                answered(bytes(data))
                data[place] ^= 1 << bit


def test_twenty_thousand_wrong_frames_are_answered(bob: Any) -> None:
    fuzz(bob, 20_000, seed=1)


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_million_wrong_frames_are_answered(bob: Any) -> None:
    fuzz(bob, 1_000_000, seed=2)


_WITHIN_MEMORY = """
import random, resource, sys
sys.path[:0] = [{tests!r}]
import torch
torch.set_num_threads(1)
import syft as sy
sy.TorchHook(torch)
bob = sy.VirtualWorker(id="bob")
import serde.conftest
from serde.mutation import corpus, mutate
from syft import serde as our
frames = corpus(bob)
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (96 << 20),) * 2)
rng = random.Random(3)
for _ in range(4000):
    try:
        our.deserialize(mutate(rng, frames), limits=our.Limits(max_decompressed=1 << 20))
    except our.SerdeError as error:
        if "MemoryError" in str(error) or isinstance(error.__cause__, MemoryError):
            raise SystemExit("a frame asked for too much memory") from error
print("done")
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_wrong_frames_stay_within_little_memory() -> None:
    code = _WITHIN_MEMORY.format(tests=str(Path(__file__).parent.parent))
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=800, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "done"
