"""Ids and bytes as programs of 2020 use them (COMPAT items 25 and 26)."""

from __future__ import annotations

import importlib
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import syft as sy
from syft import serde
from syft.core import ids
from syft.core.ids import IdProvider
from syft.exceptions import CompressionNotFoundException, IdNotUniqueError
from syft.serde import compression

# -- ids ---------------------------------------------------------------------------------------------


def test_given_ids_are_taken_from_the_end_and_then_random_ones() -> None:
    provider = IdProvider(given_ids=[3, 2, 1])
    assert [provider.pop() for _ in range(3)] == [1, 2, 3]
    fresh = provider.pop()
    assert isinstance(fresh, int) and fresh > 3


def test_ids_that_are_set_come_before_those_given_earlier() -> None:
    provider = IdProvider(given_ids=[2, 1])
    provider.set_next_ids([20, 10])
    assert [provider.pop() for _ in range(4)] == [10, 20, 1, 2]


def test_an_id_that_was_handed_out_is_refused_by_name() -> None:
    provider = IdProvider()
    seen = [provider.pop() for _ in range(300)]
    for known in (seen[0], seen[-1]):
        with pytest.raises(IdNotUniqueError, match=str(known)):
            provider.set_next_ids([12345, known])
    provider.set_next_ids([seen[0]], check_ids=False)
    assert provider.pop() == seen[0]
    provider.set_next_ids([7])
    assert provider.pop() == 7
    with pytest.raises(IdNotUniqueError, match=r"\[7\]"):
        provider.set_next_ids([7], check_ids=True)
    with pytest.raises(IdNotUniqueError, match=r"\[8\]"):
        provider.set_next_ids([8, 8])
    provider.set_next_ids([9])
    with pytest.raises(IdNotUniqueError, match=r"\[9\]"):
        provider.set_next_ids([9])


def test_a_random_id_that_nobody_has_yet_is_not_refused() -> None:
    provider = IdProvider()
    first = provider.pop()
    waiting = [i for seed in provider._batches for i in ids._batch_of(seed) if i != first]
    assert set(waiting) == set(provider._fresh)
    provider.set_next_ids(waiting[:1])
    assert provider.pop() == waiting[0]


@given(st.lists(st.integers(0, 5)), st.lists(st.booleans(), max_size=20))
def test_a_record_holds_what_was_handed_out_since_it_began(given_ids: list[int], stops: list[bool]) -> None:
    provider = IdProvider(given_ids)
    provider.pop()
    provider.start_recording_ids()
    popped = []
    for stop in stops:
        if stop:
            assert provider.get_recorded_ids(continue_recording=True) == popped
        popped.append(provider.pop())
    assert provider.get_recorded_ids() == popped
    provider.pop()
    assert provider.get_recorded_ids() == [], "the record ended"


def test_the_provider_of_the_library_can_be_recorded(bob: Any) -> None:
    sy.ID_PROVIDER.start_recording_ids()
    x = torch.ones(1).send(bob)
    y = x + x
    recorded = sy.ID_PROVIDER.get_recorded_ids()
    assert x.id_at_location in recorded and y.id_at_location in recorded


def test_random_ids_differ_and_fit_60_bits() -> None:
    made = {sy.generic.id_provider.create_random_id() for _ in range(100)}
    assert len(made) == 100 and max(made) < 1 << 60


def test_remembering_ids_takes_bounded_memory() -> None:
    provider = IdProvider()
    for _ in range(ids._REMEMBERED_BATCHES + 5):
        provider._draw()
        provider._fresh.clear()
    assert len(provider._batches) == ids._REMEMBERED_BATCHES
    assert {len(seed) for seed in provider._batches} == {16}


# -- bytes -------------------------------------------------------------------------------------------


def test_the_module_of_2020_is_the_one_of_today() -> None:
    module = sy.serde.serde
    assert module.serialize is serde.serialize and module.deserialize is serde.deserialize
    x = torch.tensor([1.0, 2.0])
    assert torch.equal(module.deserialize(module.serialize(x)), x)


def test_a_strategy_is_ignored_with_a_warning() -> None:
    with pytest.warns(UserWarning, match=r"serialize\(strategy=\.\.\.\) is ignored"):
        data = serde.serialize(torch.ones(1), strategy="torch")
    with pytest.warns(UserWarning, match=r"deserialize\(strategy=\.\.\.\) is ignored"):
        assert serde.deserialize(data, strategy=print).item() == 1.0


def test_what_is_simple_already_can_be_serialised(me: Any) -> None:
    simple = serde.simplify(me, [torch.ones(2), "text"])
    tensor, text = serde.deserialize(serde.serialize(simple, simplified=True))
    assert tensor.tolist() == [1.0, 1.0] and text == "text"
    with pytest.raises(serde.SerdeError):
        serde.serialize(object(), simplified=True)


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.tensor([1.5]).fix_prec(),
        lambda: sy.LoggingTensor().on(torch.tensor([1.5])),
        lambda: sy.LoggingTensor().on(torch.tensor([1.5])).fix_prec(),
    ],
)
def test_every_link_of_a_chain_keeps_its_id(make: Any, quiet: None) -> None:
    sent = make()
    got = serde.deserialize(serde.serialize([sent]))[0]
    while True:
        assert got.id == sent.id
        if getattr(sent, "is_wrapper", True) is False and not hasattr(sent, "child"):
            break
        sent, got = sent.child, got.child


def test_a_gradient_is_kept() -> None:
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    (x * x).sum().backward()
    back = serde.deserialize(x.serialize())
    assert back.grad.tolist() == [2.0, 4.0] and back.is_leaf
    parameter = torch.nn.Parameter(torch.ones(300))
    (parameter * 3).sum().backward()
    for binary in (serde.serialize(parameter), bytearray(parameter.ser("me", "lz4"))):
        back = serde.deserialize(binary)
        assert isinstance(back, torch.nn.Parameter) and torch.equal(back.grad, torch.full((300,), 3.0))
    history = x * 2
    assert serde.deserialize(serde.serialize(history)).grad is None


def test_what_is_sent_to_a_worker_goes_without_its_gradient() -> None:
    x = torch.ones(10_000, requires_grad=True)
    before = sum(len(part) for part in serde.serialize_frames(x))
    x.sum().backward()
    assert sum(len(part) for part in serde.serialize_frames(x)) == before


def test_a_gradient_that_is_none_is_refused(me: Any) -> None:
    x = torch.ones(2, requires_grad=True)
    x.sum().backward()
    whole = serde.codec.Writer(me, inline=True, keeps_gradients=True).write(x)
    assert serde.detail(me, whole).grad.tolist() == [1.0, 1.0]
    for wrong in (torch.ones(3), torch.ones(2, dtype=torch.float64), "text"):
        with pytest.raises(serde.SerdeError, match="gradient"):
            serde.detail(me, (*whole[:-1], serde.simplify(me, wrong)))


def test_objects_serialise_themselves(bob: Any) -> None:
    text = sy.String("hello")
    assert serde.deserialize(text.serialize()) == text
    assert serde.deserialize(text.ser()) == text
    node = torch.tensor([1.5]).fix_prec().child
    assert serde.deserialize(node.ser()).wrap().float_precision().tolist() == [1.5]


def test_simplify_and_detail_take_their_documented_names(me: Any, bob: Any) -> None:
    pointer = torch.ones(1).send(bob).child
    parts = sy.PointerTensor.simplify(worker=me, ptr=pointer)
    assert sy.PointerTensor.detail(me, tensor_tuple=parts).id_at_location == pointer.id_at_location
    assert sy.PointerTensor.simplify(me, pointer) == parts
    with pytest.raises(TypeError):
        sy.PointerTensor.simplify(me, tensor=pointer)


# -- compression -------------------------------------------------------------------------------------


@given(st.binary(max_size=3000) | st.integers(0, 5000).map(bytes))
def test_what_was_compressed_comes_back(data: bytes) -> None:
    assert compression._decompress(compression._compress(data)) == data
    for apply, name in (
        (compression.apply_no_compression, compression.NO_COMPRESSION),
        (compression.apply_lz4_compression, compression.LZ4),
        (compression.apply_zstd_compression, compression.ZSTD),
    ):
        compressed, scheme = apply(data)
        assert scheme == name
        mark = compression.scheme_to_bytes[name]
        assert compression._decompress(mark + len(data).to_bytes(8, "little") + compressed) == data


def test_bytes_that_nothing_made_are_refused() -> None:
    with pytest.raises(CompressionNotFoundException, match="marks no compression"):
        compression._decompress(b"\x09" + bytes(20))
    with pytest.raises(CompressionNotFoundException):
        compression._decompress(b"")
    with pytest.raises(serde.SerdeError, match="claim"):
        compression._decompress(b"\x01" + (1 << 40).to_bytes(8, "little") + b"x")
    with pytest.raises(serde.SerdeError):
        compression._decompress(b"\x00" + (5).to_bytes(8, "little") + b"1234")
    with pytest.raises(serde.SerdeError):
        compression._decompress(b"\x02" + (5).to_bytes(8, "little") + b"1234")


def test_tensors_become_bytes_without_pickle() -> None:
    module = importlib.import_module("syft.serde.torch.serde")
    x = torch.arange(6.0).view(2, 3)
    assert torch.equal(module.torch_tensor_deserializer(None, module.torch_tensor_serializer(None, x)), x)
    assert torch.equal(module.numpy_tensor_deserializer(module.numpy_tensor_serializer(None, x)), x)
    assert module.TORCH_STR_DTYPE[module.TORCH_DTYPE_STR[torch.float32]] is torch.float32
    assert module.TORCH_ID_MFORMAT[module.TORCH_MFORMAT_ID[torch.channels_last]] is torch.channels_last
    with pytest.raises(serde.SerdeError, match="not for a tensor"):
        module.torch_tensor_deserializer(None, serde.serialize("text"))


# -- objects -----------------------------------------------------------------------------------------


def test_an_object_is_given_its_owner_and_id(hook: Any, me: Any, bob: Any) -> None:
    module = sy.generic.object
    x = torch.ones(1)
    module.initialize_object(hook, x, owner=bob, id=5)
    assert x.owner is bob and x.id == 5
    text = sy.String("old")
    module.initialize_object(hook, text, init_args=["new"])
    assert str(text.child if text.child is not None else text) == "new" and text.owner is me


def test_a_dotted_attribute_is_reached() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(1, 1))
    reach = sy.AbstractTensor.rgetattr
    assert reach(model, "0.weight") is model[0].weight
    assert reach(model, "1.weight", None) is None
    with pytest.raises(AttributeError):
        reach(model, "1.weight")


def test_a_node_is_copied_and_refreshed(alice: Any, bob: Any, charlie: Any, quiet: None) -> None:
    node = sy.LoggingTensor().on(torch.tensor([1.0])).child
    copied = node.copy()
    copied.child.add_(1)
    assert node.child.item() == 1.0 and copied.child.item() == 2.0
    with pytest.raises(sy.exceptions.ChainError, match="share"):
        node.refresh()
    secret = torch.tensor([5]).share(alice, bob, crypto_provider=charlie)
    logged = sy.LoggingTensor().on(secret).child
    assert logged.refresh().wrap().get().child.child.tolist() == [5]


def test_a_tensor_is_initialised_with_owner_and_id(hook: Any, bob: Any) -> None:
    x = torch.ones(1)
    sy.generic.tensor.initialize_tensor(hook, x, owner=bob, id=6)
    assert x.owner is bob and x.id == 6
