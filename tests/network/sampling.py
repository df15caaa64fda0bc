"""A pytest plugin: `--sample 3/40` keeps one in forty tests, always the same ones; those named with `--always` stay.

pytest -p network.sampling --sample 3/40 --always test_dropped_pointers --transport tcp tests/workers
"""

from __future__ import annotations

import zlib

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--sample", default="0/1", help="NUMBER/COUNT: the tests of that number, of so many groups"
    )
    parser.addoption("--always", action="append", default=[], help="part of the name of tests to keep")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    number, count = map(int, config.getoption("--sample").split("/"))
    always: list[str] = config.getoption("--always")
    kept, left_out = [], []
    for item in items:
        is_kept = zlib.crc32(item.nodeid.encode()) % count == number or any(w in item.nodeid for w in always)
        (kept if is_kept else left_out).append(item)
    items[:] = kept
    config.hook.pytest_deselected(items=left_out)
