"""Tensors arrive as `clone()` would make them; torch's small types come back."""

from __future__ import annotations

import copy
import warnings
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from syft import serde
from syft.serde.torch_types import DTYPES
from syft.tensors.sending import spec_when_sent


def random_tensor(dtype: torch.dtype, *shape: int) -> torch.Tensor:
    """Any bytes are a tensor of any dtype, but for truth values."""
    if dtype is torch.bool:
        return torch.randint(0, 2, shape).bool()
    count = torch.Size(shape).numel() * dtype.itemsize
    raw = torch.randint(0, 256, (count,), dtype=torch.uint8)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # complex32 is called experimental
        return raw.view(dtype).view(shape) if count else torch.empty(shape, dtype=dtype)


def raw(tensor: torch.Tensor) -> list[int]:
    """The bytes of the values in row-major order: NaNs compare, too."""
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8).tolist() if tensor.numel() else []


def assert_same(back: torch.Tensor, sent: torch.Tensor) -> None:
    assert back.shape == sent.shape
    assert back.dtype == sent.dtype
    assert back.requires_grad == sent.requires_grad
    assert raw(back) == raw(sent)


@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (1,), (3,), (40, 50), (2, 3, 4, 5)], ids=str)
@pytest.mark.parametrize("name", sorted(DTYPES))
def test_every_dtype_and_shape_comes_back(there_and_back: Any, name: str, shape: tuple[int, ...]) -> None:
    sent = random_tensor(DTYPES[name], *shape)
    back = there_and_back(sent)
    assert type(back) is torch.Tensor
    assert_same(back, sent)
    assert back.stride() == sent.stride()


@settings(max_examples=150)
@given(st.data())
def test_views_arrive_as_a_clone_would(data: st.DataObject) -> None:
    dims = data.draw(st.lists(st.integers(0, 5), min_size=1, max_size=4))
    tensor = torch.arange(float(torch.Size(dims).numel())).view(dims)
    tensor = tensor.permute(data.draw(st.permutations(range(len(dims)))))
    for dim in range(tensor.dim()):
        tensor = tensor[
            (slice(None),) * dim + (slice(data.draw(st.integers(0, 2)), None, data.draw(st.integers(1, 3))),)
        ]
    if data.draw(st.booleans()):
        tensor = tensor.unsqueeze(0).expand(3, *tensor.shape)
    back = serde.deserialize(serde.serialize(tensor))
    assert torch.equal(back, tensor)
    assert back.stride() == tensor.clone().stride()
    assert back.storage_offset() == 0
    assert back.untyped_storage().nbytes() == tensor.numel() * tensor.element_size()


@pytest.mark.parametrize(
    "make", [lambda t: t.t(), lambda t: t[:, ::2], lambda t: t[1:], lambda t: t.expand(2, 30, 40)]
)
def test_metadata_that_the_sender_foretells_is_what_arrives(make: Any) -> None:
    sent = make(torch.randn(30, 40))
    back = serde.deserialize(serde.serialize(sent))
    assert spec_when_sent(sent).strides == back.stride()


def test_channels_last_stays_so() -> None:
    sent = torch.randn(2, 3, 8, 8).to(memory_format=torch.channels_last)
    back = serde.deserialize(serde.serialize(sent))
    assert back.is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(back, sent)


def test_conjugate_and_negative_views_arrive_resolved() -> None:
    sent = torch.randn(4, dtype=torch.complex64)
    assert torch.equal(serde.deserialize(serde.serialize(sent.conj())), sent.conj().resolve_conj())
    assert torch.equal(serde.deserialize(serde.serialize(sent.conj().imag)), sent.conj().imag.resolve_neg())


def test_a_slice_does_not_carry_the_memory_around_it() -> None:
    big = torch.zeros(100_000)
    assert len(serde.serialize(big[5:8])) < 200


def test_requires_grad_and_parameters_come_back_as_leaves(there_and_back: Any) -> None:
    leaf = torch.randn(300, requires_grad=True)
    back = there_and_back(leaf)
    assert back.requires_grad and back.is_leaf and not back._is_view()
    history = there_and_back(leaf * 2)
    assert history.requires_grad and history.is_leaf
    for needs_grad in (True, False):
        parameter = torch.nn.Parameter(torch.randn(300), requires_grad=needs_grad)
        made = there_and_back(parameter)
        assert type(made) is torch.nn.Parameter
        assert_same(made, parameter)
    back.sum().backward()
    with torch.no_grad():
        back.add_(1)
    assert torch.equal(back, leaf + 1)


def test_what_arrives_can_be_written_and_shares_nothing(there_and_back: Any) -> None:
    sent = torch.zeros(1000)
    back = there_and_back(sent)
    back.add_(1)
    assert sent.sum() == 0
    one, other = serde.deserialize(serde.serialize([sent, sent.view(10, 100)]))
    one.fill_(3)
    assert other.sum() == 0


def test_the_state_of_a_module_comes_back(there_and_back: Any) -> None:
    model = torch.nn.Sequential(torch.nn.Conv2d(1, 4, 3), torch.nn.BatchNorm2d(4))
    state = there_and_back(model.state_dict())
    other = copy.deepcopy(model)
    with torch.no_grad():
        for p in other.parameters():
            p.zero_()
    other.load_state_dict(state)
    assert all(
        torch.equal(a, b)
        for a, b in zip(model.state_dict().values(), other.state_dict().values(), strict=True)
    )


def test_id_tags_and_description_travel_if_there_are_any(there_and_back: Any, bob: Any) -> None:
    plain = torch.ones(2)
    back = there_and_back(plain)
    assert back.id == plain.id and not back.tags and back.description is None
    tagged = torch.ones(2).tag("#a", "#b").describe("two ones")  # type: ignore[attr-defined]
    back = there_and_back(tagged, bob)
    assert back.tags == {"#a", "#b"} and back.description == "two ones" and back.owner is bob
    wanted = tagged.id
    assert there_and_back(tagged).id == wanted
    assert there_and_back(tagged).owner.id == "me"


# -- zero copy -------------------------------------------------------------------------------------


def test_tensors_lie_in_a_received_bytearray() -> None:
    received = bytearray(serde.serialize(torch.zeros(1000)))
    back = serde.deserialize(received)
    back.fill_(1.0)
    assert received.count(torch.ones(1).numpy().tobytes()) == 1000
    with pytest.raises(BufferError):
        received.clear()
    del back
    received.clear()


def test_frames_are_the_memory_of_the_tensor() -> None:
    sent = torch.zeros(1000)
    frames = serde.serialize_frames([sent, sent.view(10, 100).t()])
    sent.fill_(2.0)
    one, other = serde.deserialize(b"".join(frames))
    assert (one == 2).all() and (other == 2).all()
    assert other.stride() == (1, 100)


def test_serialising_leaves_a_tensor_free_to_grow() -> None:
    sent = torch.zeros(1000)
    back = serde.deserialize(serde.serialize(sent))
    sent.resize_(2000)
    back.resize_(2000)


def test_a_tensor_that_is_being_sent_in_frames_cannot_grow() -> None:
    sent = torch.zeros(1000)
    frames = serde.serialize_frames(sent)
    with pytest.raises(RuntimeError, match="resiz"):
        sent.resize_(2000)
    assert torch.equal(serde.deserialize(b"".join(frames)), torch.zeros(1000))


def test_bytes_stay_as_they_are() -> None:
    data = serde.serialize(torch.zeros(1000))
    before = bytes(bytearray(data))
    serde.deserialize(data).fill_(1.0)
    assert data == before


def test_a_small_tensor_does_not_keep_a_large_frame_alive() -> None:
    received = bytearray(serde.serialize({"large": torch.zeros(100_000), "small": torch.zeros(100)}))
    small = serde.deserialize(received)["small"]
    received.clear()
    assert small.sum() == 0


@pytest.mark.parametrize("shift", [1, 3, 8])
def test_memory_that_is_not_aligned_is_copied(shift: int) -> None:
    sent = torch.randn(500, dtype=torch.complex128)
    received = memoryview(bytearray(shift) + bytearray(serde.serialize(sent)))[shift:]
    back = serde.deserialize(received)
    assert back.data_ptr() % 16 == 0
    assert torch.equal(back, sent)


def test_buffers_are_aligned_from_the_start_of_the_frame() -> None:
    frames = serde.serialize_frames([torch.zeros(n) for n in (65, 100, 1001)])
    offset = 0
    for frame in frames:
        if isinstance(frame, memoryview):
            assert offset % 64 == 0
        offset += len(frame)


# -- what cannot travel, and small types -----------------------------------------------------------


@pytest.mark.parametrize(
    "tensor",
    [torch.eye(3).to_sparse(), torch.empty(3, device="meta"), torch.empty(2, dtype=torch.uint3)],
    ids=["sparse", "meta", "sub-byte"],
)
def test_other_tensors_are_refused_by_name(tensor: Any) -> None:
    with pytest.raises(serde.UnserializableError, match="cannot be serialised"):
        serde.serialize(tensor)


def test_a_foreign_subclass_is_refused() -> None:
    class Mine(torch.Tensor):
        pass

    with pytest.raises(serde.UnserializableError, match="Convert it to a Tensor"):
        serde.serialize(torch.ones(2).as_subclass(Mine))


@pytest.mark.parametrize(
    "value",
    [
        torch.Size([]),
        torch.Size([2, 0, 3]),
        *(v for v in vars(torch).values() if isinstance(v, torch.dtype)),
        torch.device("cpu"),
        torch.device("cuda", 3),
        torch.strided,
        torch.sparse_coo,
        torch.channels_last,
        torch.preserve_format,
    ],
    ids=str,
)
def test_small_types_come_back(there_and_back: Any, value: Any) -> None:
    back = there_and_back(value)
    assert type(back) is type(value)
    assert back == value
