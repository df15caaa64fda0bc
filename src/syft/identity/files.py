"""Files that matter: never half written, not overwritten by accident; those of secrets readable by their owner alone."""

from __future__ import annotations

import contextlib
import os
import secrets
import sys
from pathlib import Path


def write_file(path: Path, data: bytes, *, private: bool, overwrite: bool = False) -> None:
    """Write a whole file, on the disk when this returns. !! FileExistsError unless `overwrite`

    A private file is created with the mode 0600: there is no moment at which others could open it.
    """
    beside = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600 if private else 0o644)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        if overwrite:
            os.replace(beside, path)
        else:
            _link(beside, path)
        sync_directory(path.parent)
    finally:
        with contextlib.suppress(FileNotFoundError):
            beside.unlink()


def _link(beside: Path, path: Path) -> None:
    """Give a file its name, unless the name is taken: asked and done in one step of the file system."""
    try:
        os.link(beside, path)
        return
    except FileExistsError:
        pass
    except OSError:  # a file system without links
        if not path.exists():
            beside.replace(path)
            return
    raise FileExistsError(
        f"{path} exists already and is not overwritten. Choose another name or directory, or pass overwrite=True "
        "if nobody needs it any more."
    )


def make_private_directory(directory: Path) -> None:
    """Create a directory that only its owner can enter; an existing one is left as it is."""
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)


def sync_directory(directory: Path) -> None:
    """Make sure that names which were added to a directory survive a crash of the machine."""
    if sys.platform == "win32":  # where a directory cannot be opened
        return
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
