"""The last release of a ledger, noted at the file and not in its contents.

One duty: to let a process that never saw a release tell that it is missing. Imports `file`.

NOTE [Noted at the file]
Two workers share a book, an older copy is written over it, and the one of them that had not looked since the copy
was made sees nothing wrong: all that it ever saw is there. So whoever has charged notes the number and the seal of its
release as an extended attribute of the file. That belongs to the file, and stays when its contents are replaced; it is no
second file that gets lost. It is written after the charge is on the disk: a process that is killed in between leaves a
note that is behind by a release, and no note is ever ahead. So a note never speaks against a book that is whole.
It is a help and no promise: there are file systems and platforms without such attributes, a tool may restore them with
the contents, and a new file has none.
"""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path

from syft.ledger.file import Last

_ATTRIBUTE = "user.syft.last_release"


def noted(path: Path) -> Last | None:
    """The release that was noted last, if there is one, and such a thing as a note."""
    if sys.platform != "linux":
        return None
    try:
        number, _, seal = os.getxattr(path, _ATTRIBUTE).decode("ascii", "replace").partition(" ")
    except OSError:  # no note, or no notes on this file system
        return None
    # NB: who can write garbage here can write it into the book. It is a note that is missing.
    return (int(number), seal) if number.isdigit() and len(number) < 20 else None


def note(path: Path, last: Last) -> None:
    """Note a release that is on the disk, unless a later one was noted."""
    before = noted(path)
    if sys.platform == "linux" and (before is None or before[0] < last[0]):
        with contextlib.suppress(OSError):
            os.setxattr(path, _ATTRIBUTE, f"{last[0]} {last[1]}".encode())
