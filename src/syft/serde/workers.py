"""How workers travel: by their id. Who they are is the receiver's knowledge."""

from __future__ import annotations

from typing import Any

from syft.serde.reader import resolve_worker
from syft.serde.registry import register


def register_workers(cls: type) -> None:
    """Let workers of this class and of all below it travel; called once, by the room of workers."""
    register(cls, "worker", _encode, _decode, fields=tuple[int | str], subclasses=True)


def _encode(_worker: Any, named: Any) -> tuple[Any, ...]:
    return (named.id,)


def _decode(worker: Any, parts: tuple[int | str]) -> Any:
    return resolve_worker(worker, parts[0])
