"""Compression of buffers: none, lz4, zstd. Each is optional, and each buffer says which one it has.

Both sides must have the package; `available_compressions` is what to offer a peer, `choose_compression` picks one
of what a peer offers. Shares are never compressed: they are random, so it would be work for nothing.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from syft.exceptions import CompressionNotFoundException, DependencyError
from syft.serde.errors import SerdeError

#: Smaller buffers are sent as they are.
WORTH_COMPRESSING = 1024
#: A buffer is compressed if a sample of it shrinks below this part.
WORTHWHILE_RATIO = 0.9
_SAMPLE = 16384
#: The most that one block of lz4 holds.
_LZ4_LIMIT = 0x7E000000


@dataclass(frozen=True, slots=True)
class Compression:
    """A scheme. `number` is its mark in frames; `decompress(data, size)` returns exactly `size` writable bytes."""

    name: str
    number: int
    package: str
    compress: Callable[[memoryview], bytes]
    decompress: Callable[[memoryview, int], bytearray]


def _package(module: str, package: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise DependencyError(package) from error


def _lz4_compress(data: memoryview) -> bytes:
    return _package("lz4.block", "lz4").compress(data, store_size=False)  # type: ignore[no-any-return]


def _lz4_decompress(data: memoryview, size: int) -> bytearray:
    block = _package("lz4.block", "lz4")
    return block.decompress(data, uncompressed_size=size, return_bytearray=True)  # type: ignore[no-any-return]


def _zstd_compress(data: memoryview) -> bytes:
    return _package("zstandard", "zstandard").ZstdCompressor(level=1).compress(data)  # type: ignore[no-any-return]


def _zstd_decompress(data: memoryview, size: int) -> bytearray:
    zstandard = _package("zstandard", "zstandard")
    out = bytearray(size)
    # NB: `decompress` would allocate whatever the frame claims; the reader writes into our memory and stops there.
    reader = zstandard.ZstdDecompressor(max_window_size=1 << 27).stream_reader(data)
    view, filled = memoryview(out), 0
    while filled < size:
        count = reader.readinto(view[filled:])
        if not count:
            break
        filled += count
    if filled != size or reader.read(1):
        raise SerdeError(f"A compressed buffer holds another number of bytes than the {size} it claims.")
    return out


COMPRESSIONS: dict[str, Compression] = {
    "lz4": Compression("lz4", 1, "lz4", _lz4_compress, _lz4_decompress),
    "zstd": Compression("zstd", 2, "zstandard", _zstd_compress, _zstd_decompress),
}


def compression_named(name: str | None) -> Compression | None:
    """The scheme of that name; None (or "none") is no compression. !! CompressionNotFoundException"""
    if name is None or name == "none":
        return None
    found = COMPRESSIONS.get(name) if isinstance(name, str) else None
    if found is None:
        raise CompressionNotFoundException(
            f"There is no compression {name!r}. Use one of: none, {', '.join(sorted(COMPRESSIONS))}."
        )
    return found


def compression_at_hand(name: str | None) -> str | None:
    """That name, or None for no compression. !! CompressionNotFoundException, DependencyError if it does not work here"""
    scheme = compression_named(name)
    if scheme is None:
        return None
    if not _is_installed(scheme.package):
        raise DependencyError(scheme.package)
    return scheme.name


def compress(memory: memoryview, scheme: Compression) -> bytes | None:
    """The memory compressed, or None if it is not worth it."""
    size = len(memory)
    if size < WORTH_COMPRESSING or size > _LZ4_LIMIT:
        return None
    if size > 4 * _SAMPLE:
        middle = size // 2
        sample = memoryview(bytes(memory[:_SAMPLE]) + bytes(memory[middle : middle + _SAMPLE]))
        if len(scheme.compress(sample)) > WORTHWHILE_RATIO * len(sample):
            return None
    compressed = scheme.compress(memory)
    return compressed if len(compressed) <= WORTHWHILE_RATIO * size else None


def decompress(data: memoryview, number: int, size: int) -> memoryview:
    """The `size` bytes that a buffer held. !! SerdeError if it does not hold exactly those."""
    scheme = next((c for c in COMPRESSIONS.values() if c.number == number), None)
    if scheme is None:
        raise SerdeError(f"A buffer is compressed by the scheme number {number}, which is unknown here.")
    try:
        out = scheme.decompress(data, size)
    except (SerdeError, DependencyError):
        raise
    except Exception as error:
        raise SerdeError(f"A buffer is not what {scheme.name} makes: {error}") from error
    if len(out) != size:
        raise SerdeError(f"A compressed buffer holds {len(out)} bytes and claims {size}.")
    return memoryview(out)


def available_compressions() -> tuple[str, ...]:
    """The schemes that work here, best first: what to offer a peer."""
    return tuple(name for name in ("zstd", "lz4") if _is_installed(COMPRESSIONS[name].package))


def choose_compression(offered: Iterable[str]) -> str | None:
    """The best scheme that a peer offers and that works here; None if there is none."""
    theirs = set(offered)
    return next((name for name in available_compressions() if name in theirs), None)


def _is_installed(package: str) -> bool:
    try:
        importlib.import_module(package)
    except ImportError:
        return False
    return True


# -- the names of 2020 -------------------------------------------------------------------------------
# One byte that says which scheme, then the bytes, whole. Frames of this library compress per buffer instead (`wire`).

NO_COMPRESSION, LZ4, ZSTD = "none", "lz4", "zstd"
scheme_to_bytes: dict[str, bytes] = {NO_COMPRESSION: b"\x00", LZ4: b"\x01", ZSTD: b"\x02"}
#: What `_decompress` allocates at the most, by what the bytes claim.
_LONGEST = 1 << 31


def apply_no_compression(decompressed_input_bin: bytes) -> tuple[bytes, str]:
    """(the bytes, the name of the scheme)"""
    return decompressed_input_bin, NO_COMPRESSION


def apply_lz4_compression(decompressed_input_bin: bytes) -> tuple[bytes, str]:
    """(the bytes compressed, the name of the scheme); !! DependencyError without lz4"""
    return _lz4_compress(memoryview(decompressed_input_bin)), LZ4


def apply_zstd_compression(decompressed_input_bin: bytes) -> tuple[bytes, str]:
    """(the bytes compressed, the name of the scheme); !! DependencyError without zstandard"""
    return _zstd_compress(memoryview(decompressed_input_bin)), ZSTD


def _apply_compress_scheme(decompressed_input_bin: bytes) -> tuple[bytes, str]:
    """By the best scheme that is installed; frames of this library are compressed where `compression=` says so."""
    apply = {"zstd": apply_zstd_compression, "lz4": apply_lz4_compression, None: apply_no_compression}
    return apply[choose_compression(COMPRESSIONS)](decompressed_input_bin)


def _compress(decompressed_input_bin: bytes) -> bytes:
    """The mark of a scheme, the length, and the bytes; not compressed unless that makes them shorter."""
    compressed, scheme = _apply_compress_scheme(decompressed_input_bin)
    if len(compressed) >= len(decompressed_input_bin):
        compressed, scheme = apply_no_compression(decompressed_input_bin)
    return scheme_to_bytes[scheme] + len(decompressed_input_bin).to_bytes(8, "little") + compressed


def _decompress(binary: bytes) -> bytes:
    """What `_compress` was given. !! CompressionNotFoundException for an unknown mark, SerdeError for damage"""
    mark, size, data = binary[:1], int.from_bytes(binary[1:9], "little"), memoryview(binary)[9:]
    if mark not in scheme_to_bytes.values() or len(binary) < 9:
        raise CompressionNotFoundException(
            f"The bytes begin with {mark!r}, which marks no compression. Decompress what _compress returned."
        )
    if size > _LONGEST:
        raise SerdeError(f"The bytes claim to be {size} bytes long; {_LONGEST} is the most.")
    if mark == scheme_to_bytes[NO_COMPRESSION]:
        if len(data) != size:
            raise SerdeError(f"There are {len(data)} bytes and they claim to be {size}.")
        return bytes(data)
    return bytes(decompress(data, int(mark[0]), size))
