"""Types of upper rooms, registered as those rooms do it, and one thread: the tensors are tiny."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from syft import serde


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def there_and_back() -> Any:
    """`there_and_back(obj)`: serialised and deserialised, from bytes and from a bytearray, which must agree."""

    def travel(obj: Any, worker: Any = None, compression: str | None = None, **options: Any) -> Any:
        data = serde.serialize(obj, compression=compression)
        assert b"".join(serde.serialize_frames(obj, compression=compression)) == data
        serde.deserialize(bytearray(data), worker, **options)
        return serde.deserialize(data, worker, **options)

    return travel
