"""`simplify` and `detail`: an object as its simple form, without buffers beside it, and back."""

from __future__ import annotations

from typing import Any

from syft.exceptions import DependencyError
from syft.serde.codec_tables import Simple
from syft.serde.errors import SerdeError
from syft.serde.reader import Reader
from syft.serde.writer import Writer


def simplify(worker: Any, obj: Any) -> Simple:
    """An object as None, numbers, strings, bytes and tuples `(code, *contents)` of those."""
    return Writer(worker, inline=True).write(obj)


def detail(worker: Any, simple: Simple) -> Any:
    """The object that a simple form stands for: the inverse of `simplify`. !! SerdeError"""
    try:
        reader = Reader(worker)
        return reader.finish(reader.read(simple))
    except (SerdeError, DependencyError):
        raise
    except Exception as error:  # see NOTE [Parts come from strangers]
        raise SerdeError(
            f"This is not the simple form of an object: {type(error).__name__}: {error}"
        ) from error
