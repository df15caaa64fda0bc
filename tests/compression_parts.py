"""What tests of compression in several rooms look at, and take away."""

from __future__ import annotations

import importlib
from typing import Any

import pytest

from syft.serde import wire


def note_compression(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of what this process tries to compress from now on."""
    sizes: list[int] = []
    compress = wire.compress

    def noting(memory: memoryview, scheme: Any) -> bytes | None:
        sizes.append(len(memory))
        return compress(memory, scheme)

    monkeypatch.setattr(wire, "compress", noting)
    return sizes


def uninstall(monkeypatch: pytest.MonkeyPatch, package: str) -> None:
    """From now on, as if it were not installed."""
    real = importlib.import_module

    def missing(name: str, relative_to: str | None = None) -> Any:
        if name == package:
            raise ImportError(name)
        return real(name, relative_to)

    monkeypatch.setattr(importlib, "import_module", missing)
