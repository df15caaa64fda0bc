"""Types of upper rooms, registered as those rooms do it, and one thread: the tensors are tiny."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from syft import serde
from syft.mpc.precision import FixedPrecisionTensor
from syft.mpc.sharing import AdditiveSharingTensor
from syft.tensors.pointer import PointerTensor
from syft.workers.abstract import AbstractWorker


def _register_upper_rooms() -> None:
    """What workers/ and mpc/ do when they are imported, for as long as they do not."""
    if not serde.is_registered(AbstractWorker):
        serde.register_workers(AbstractWorker)
    if not serde.is_registered(FixedPrecisionTensor):
        precision = {"base": int, "precision_fractional": int, "dtype": torch.dtype, "float_fractional": int}
        serde.register_chain(FixedPrecisionTensor, precision)
    if not serde.is_registered(AdditiveSharingTensor):
        serde.register(
            AdditiveSharingTensor,
            "AdditiveSharingTensor",
            lambda _me, n: (n._id, n.tags, n.description, n.pointers, n.crypto_provider, n.protocol),
            _shared,
            fields=tuple[
                int | str | None, set[str], str | None, list[PointerTensor], AbstractWorker | None, str | None
            ],
            incompressible=True,
        )


def _shared(_me: Any, parts: Any) -> AdditiveSharingTensor:
    obj_id, tags, description, pointers, provider, protocol = parts
    shares = {pointer.location.id: pointer for pointer in pointers}
    if not shares or len(shares) != len(pointers):
        raise ValueError("a secret has one share or more, each at a worker of its own")
    return AdditiveSharingTensor(
        shares, provider, protocol=protocol, id=obj_id, tags=tags, description=description
    )


_register_upper_rooms()


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
