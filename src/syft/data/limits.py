"""How much memory the data of a folder may take. It is asked before memory is: a small file can unpack to a large one."""

from __future__ import annotations

import os
from pathlib import Path

from syft.data.errors import DataFileError


def default_limit() -> int:
    """Half of the machine's memory, in bytes."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2
    except (AttributeError, ValueError, OSError):
        return 4 << 30


class MemoryLimit:
    """What is left of the memory for a folder."""

    def __init__(self, most_bytes: int | None = None) -> None:
        self.most = default_limit() if most_bytes is None else most_bytes
        self.left = self.most

    def check(self, file: Path, nbytes: int) -> None:
        """!! DataFileError if the file needs more than is left"""
        if nbytes > self.left:
            raise DataFileError(
                f"{file} needs {size(nbytes)} of memory, and {size(max(0, self.left))} are left of the {size(self.most)} "
                "that the data of a folder may take. Serve fewer rows, a smaller dtype, or raise --data-limit."
            )

    def take(self, nbytes: int) -> None:
        """Count what was made."""
        self.left -= nbytes


def size(nbytes: int) -> str:
    """A number of bytes as people say it."""
    amount = float(nbytes)
    for unit in ("bytes", "KiB", "MiB"):
        if amount < 1024:
            return f"{amount:.3g} {unit}"
        amount /= 1024
    return f"{amount:.3g} GiB" if amount < 1e6 else f"{amount:.2e} GiB"
