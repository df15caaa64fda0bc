"""Ciphertexts as tensors: they compute what torch computes, show nothing, and refuse what they cannot do."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import syft as sy
from syft.exceptions import ChainError, UnsupportedOperationError
from syft.mpc.paillier import PaillierPrivateKey, PaillierPublicKey, PaillierTensor, ShortKeyWarning
from syft.serde import SerdeError, UnserializableError, deserialize, serialize

with warnings.catch_warnings():
    warnings.simplefilter("ignore", ShortKeyWarning)  # 1024 bits: fast, and not for data
    PUBLIC, PRIVATE = sy.keygen(n_bits=1024)
    OTHER_PUBLIC, OTHER_PRIVATE = sy.keygen(n_bits=1024)

X = torch.tensor([[1.5, -2.25, 0.0, 3.1], [0.1, 7.0, -0.3, 1e-3], [100.0, -5.5, 2.0, 1e4]])
W = torch.tensor([[0.5, -1.0], [2.0, 0.25], [0.1, 0.3], [-0.7, 1.1]])
N = torch.tensor([4, -9, 2**40])


def encrypted(tensor: torch.Tensor) -> Any:
    return tensor.encrypt(protocol="paillier", public_key=PUBLIC)


def decrypted(tensor: Any) -> torch.Tensor:
    return tensor.decrypt(protocol="paillier", private_key=PRIVATE)


def ciphers(tensor: Any) -> list[int]:
    return list(tensor.child.child.flat)


# -- keys --------------------------------------------------------------------------------------------------


def test_keys_have_the_asked_size_and_2048_bits_by_default() -> None:
    public, private = sy.keygen()
    assert public.bits == 2048
    assert private.public_key == public
    assert public.n == private.p * private.q
    assert PUBLIC.bits == 1024
    assert PUBLIC != OTHER_PUBLIC


@pytest.mark.parametrize("bits", [512, 1025, 1 << 20, "2048", True])
def test_keys_of_other_sizes_are_refused(bits: Any) -> None:
    with pytest.raises(ValueError, match="even number of bits from 1024 to 8192"):
        sy.keygen(n_bits=bits)


def test_a_public_key_is_checked() -> None:
    for n in (15, PUBLIC.n + 1, -PUBLIC.n):
        with pytest.raises(ValueError, match="product of two primes"):
            PaillierPublicKey(n)
    with pytest.raises(ValueError, match="not the primes"):
        PaillierPrivateKey(PUBLIC, OTHER_PRIVATE.p, OTHER_PRIVATE.q)


def test_a_private_key_is_made_again_from_its_primes_and_shows_nothing() -> None:
    again = PaillierPrivateKey(PUBLIC, PRIVATE.p, PRIVATE.q)
    assert torch.equal(encrypted(N).decrypt("paillier", private_key=again), N)
    for number in (PRIVATE.p, PRIVATE.q):
        assert str(number) not in repr(PRIVATE) + str(PRIVATE)


def test_a_private_key_does_not_travel() -> None:
    for move in (serialize, copy.copy, copy.deepcopy, lambda key: serialize(sy.ObjectWrapper(key))):
        with pytest.raises(UnserializableError, match="private key does not travel"):
            move(PRIVATE)
    assert deserialize(serialize(PUBLIC)) == PUBLIC


# -- values ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "dtype",
    [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int8],
)
def test_what_is_encrypted_is_decrypted(dtype: torch.dtype) -> None:
    values = torch.tensor([[0, 1], [-7, 100]], dtype=dtype)
    back = decrypted(encrypted(values))
    assert back.dtype == dtype
    assert torch.equal(back, values)


@given(st.lists(st.floats(-1e12, 1e12), min_size=1, max_size=3))
def test_reals_keep_48_fractional_bits(values: list[float]) -> None:
    tensor = torch.tensor(values, dtype=torch.float64)
    assert torch.allclose(decrypted(encrypted(tensor)), tensor, rtol=1e-15, atol=2.0**-49)


OPERATIONS: dict[str, Callable[[Any], Any]] = {
    "x + x": lambda x: x + x,
    "x - x": lambda x: x - 2 * x,
    "x + plain": lambda x: x + X,
    "plain - x": lambda x: X - x,
    "x + number": lambda x: x + 1,
    "number - x": lambda x: 2.5 - x,
    "add with alpha": lambda x: torch.add(x, x, alpha=3),
    "sub with alpha": lambda x: torch.sub(x, X, alpha=0.5),
    "broadcast": lambda x: x + x[0] - torch.tensor([1.0, 2.0, 3.0, 4.0]),
    "x * number": lambda x: x * -2.5,
    "x * integer": lambda x: 3 * x,
    "x * plain": lambda x: X * x,
    "x * integers": lambda x: x * torch.tensor([1, 0, -1, 2]),
    "x * mask": lambda x: x * (X > 0),
    "x / number": lambda x: x / 4,
    "x / plain": lambda x: x / torch.tensor([1.0, 2.0, -4.0, 0.5]),
    "neg": lambda x: -x,
    "x @ plain": lambda x: x @ W,
    "plain @ x": lambda x: W.t() @ x.t(),
    "x @ vector": lambda x: x @ W[:, 0],
    "vector @ x": lambda x: W[:3, 0] @ x,
    "dot": lambda x: torch.dot(x[1], W[:, 1]),
    "batched": lambda x: torch.bmm(x.view(1, 3, 4), W.view(1, 4, 2)),
    "linear": lambda x: torch.nn.functional.linear(x, W.t(), W[1]),
    "sum": lambda x: x.sum(),
    "sum along": lambda x: x.sum(1, keepdim=True),
    "sum of two dims": lambda x: x.view(3, 2, 2).sum((0, 2)),
    "mean": lambda x: x.mean(0),
    "different fractions": lambda x: x * 1.5 * 0.5 + x,
    "t": lambda x: x.t(),
    "view and slice": lambda x: x.view(-1)[2:9:3],
    "rows": lambda x: x[[0, 2]],
    "masked": lambda x: x[torch.tensor([True, False, True])],
    "cat": lambda x: torch.cat([x, x * 2.0], 1),
    "stack": lambda x: torch.stack([x, -x]),
    "unbind": lambda x: x.unbind(1)[2],
    "expand": lambda x: x[:, :1].expand(3, 5),
    "double": lambda x: x.double() + 1,
    "clone": lambda x: x.clone(),
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_ciphertexts_compute_what_torch_computes(name: str) -> None:
    operation = OPERATIONS[name]
    found, true = decrypted(operation(encrypted(X))), operation(X)
    assert (found.dtype, found.shape) == (true.dtype, true.shape)
    assert torch.allclose(found, true, rtol=1e-5, atol=1e-6)


def test_integers_stay_exact_and_meet_reals_as_torch_has_it() -> None:
    x = encrypted(N)
    assert torch.equal(decrypted(x * 3 - 1), N * 3 - 1)
    assert torch.equal(decrypted(x.sum()), N.sum())
    for found, true in ((x * 0.5, N * 0.5), (x / 2, N / 2), (x + 0.25, N + 0.25), (x.double(), N.double())):
        assert decrypted(found).dtype == true.dtype
        assert torch.allclose(decrypted(found), true)


def test_a_plain_model_predicts_on_encrypted_rows() -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Flatten(), torch.nn.Linear(3, 1))
    with torch.no_grad():
        assert torch.allclose(decrypted(model(encrypted(X))), model(X), rtol=1e-4, atol=1e-4)


# -- elsewhere ---------------------------------------------------------------------------------------------


def test_a_worker_computes_on_what_it_cannot_read(alice: Any) -> None:
    x, w = encrypted(X).send(alice), W.send(alice)
    result = (x @ w + 1).sum(1).get()
    assert isinstance(result.child, PaillierTensor)
    assert torch.allclose(decrypted(result), (X @ W + 1).sum(1), rtol=1e-5)


def test_ciphertexts_travel_with_their_public_key_and_identity() -> None:
    x = (encrypted(X) * 0.5).tag("#x").describe("halves")
    back = deserialize(serialize(x))
    assert torch.equal(decrypted(back), X * 0.5)
    assert (back.tags, back.description, back.dtype) == ({"#x"}, "halves", X.dtype)
    assert (back.child.fraction, back.child.bound) == (x.child.fraction, x.child.bound)


def test_frames_of_strangers_are_checked() -> None:
    def frame(**changes: Any) -> bytes:
        x = encrypted(N)
        for name, value in changes.items():
            setattr(x.child, name, value)
        return serialize(x)

    for changes in (
        {"bound": PUBLIC.bits},
        {"bound": 0},
        {"fraction": -1},
        {"fraction": 5},
        {"presented_dtype": torch.complex64},
        {"presented_dtype": torch.bool},
    ):
        with pytest.raises(SerdeError, match="PaillierTensor"):
            deserialize(frame(**changes))
    for cipher in (0, PUBLIC.n_squared):
        x = encrypted(N)
        x.child.child[0] = cipher
        with pytest.raises(SerdeError, match="not a ciphertext"):
            deserialize(serialize(x))


def test_a_number_that_is_larger_than_it_says_is_noticed() -> None:
    x = encrypted(N)
    x.child.bound = 8
    with pytest.raises(ValueError, match="larger than it says"):
        decrypted(x)


# -- what is hidden ----------------------------------------------------------------------------------------


def test_equal_values_have_different_ciphertexts() -> None:
    first = ciphers(encrypted(torch.zeros(4)))
    assert len({*first, *ciphers(encrypted(torch.zeros(4)))}) == 8


def test_fraction_and_bound_do_not_depend_on_values() -> None:
    for one, other in ((X, X * 1e-9), (X, X * 1e9)):
        a, b = encrypted(one) * 0.5 + 1, encrypted(other) * 1e10 + 1e-3
        assert (a.child.fraction, a.child.bound) == (b.child.fraction, b.child.bound)


def test_results_are_blinded_when_they_leave(alice: Any) -> None:
    x = encrypted(N)
    summed = x.sum()
    expected = ciphers(summed)  # a function of the inputs: whoever knows them could look for it
    sent = deserialize(serialize(summed))
    assert ciphers(sent) != expected
    assert torch.equal(decrypted(sent), N.sum())
    pointer = x.send(alice)
    assert ciphers(pointer.copy().get()) == ciphers(x)  # nothing was computed
    picked = pointer[[1]].get()
    assert ciphers(picked)[0] not in ciphers(x)
    assert torch.equal(decrypted(picked), N[1:2])


def test_printing_shows_neither_values_nor_ciphertexts() -> None:
    x = encrypted(X)
    for text in (str(x), repr(x), str(x.child), f"{x.child!r}"):
        assert "PaillierTensor>(3, 4) under <PaillierPublicKey 1024 bits" in text
        assert "1.5" not in text
        assert not any(str(c)[:20] in text for c in ciphers(x))


# -- what is refused ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "operation",
    [lambda x: x * x, lambda x: x @ x.t(), lambda x: x / x, lambda x: torch.dot(x[0], x[1])],
    ids=["mul", "mm", "div", "dot"],
)
def test_two_ciphertexts_are_not_multiplied(operation: Any) -> None:
    with pytest.raises(UnsupportedOperationError, match="multiplied by plain values, not by each other"):
        operation(encrypted(X))


@pytest.mark.parametrize(
    "operation",
    [lambda x: x > 0, torch.exp, torch.relu, lambda x: x**2, lambda x: 1 / x, lambda x: x.add_(1)],
    ids=["gt", "exp", "relu", "pow", "reciprocal", "in place"],
)
def test_other_operations_are_refused_with_what_there_is(operation: Any) -> None:
    with pytest.raises(UnsupportedOperationError, match="added, subtracted, summed"):
        operation(encrypted(X))


def test_values_are_not_read_without_the_key() -> None:
    total = encrypted(X).sum()
    for read in (lambda: total.item(), lambda: bool(total), lambda: float(total), lambda: total.tolist()):
        with pytest.raises(ChainError, match="where the private key is"):
            read()


def test_products_end_before_they_overflow() -> None:
    x = encrypted(X)
    for _ in range(6):
        x = x * 1.5
    assert torch.allclose(decrypted(x), X * 1.5**6, rtol=1e-5)
    with pytest.raises(ChainError, match="a key of 1024 bits holds 1022"):
        x * 1.5


def test_what_has_no_encoding_is_refused() -> None:
    for bad in (float("nan"), float("inf"), 2.0**80):
        with pytest.raises(ValueError, match="not finite, or not below"):
            encrypted(torch.tensor([bad]))
        with pytest.raises(ValueError, match="not finite, or not below"):
            encrypted(X) * bad
    for dtype in (torch.complex64, torch.bool):
        with pytest.raises(TypeError, match="cannot be encrypted"):
            encrypted(torch.ones(2, dtype=dtype))
    with pytest.raises(ValueError, match=r"does not fit into torch.int64"):
        decrypted(encrypted(N) * 2**40)
    with pytest.raises(UnsupportedOperationError, match="cannot be rounded"):
        encrypted(X).long()
    with pytest.raises(ChainError, match="cannot be joined"):
        torch.cat([encrypted(X), X])


def test_keys_are_not_mixed() -> None:
    other = X.encrypt(protocol="paillier", public_key=OTHER_PUBLIC)
    with pytest.raises(ChainError, match="same public key"):
        encrypted(X) + other
    with pytest.raises(ValueError, match="the private key is that of"):
        decrypted(other)


def test_arguments_of_encrypt_and_decrypt_are_checked(alice: Any) -> None:
    with pytest.raises(ValueError, match="protocols are 'mpc', 'snn', 'fss', 'paillier'"):
        X.encrypt(protocol="rot13")
    with pytest.raises(TypeError, match="takes public_key="):
        X.encrypt(protocol="paillier", public_key=PRIVATE)
    with pytest.raises(TypeError, match="takes private_key="):
        encrypted(X).decrypt(protocol="paillier", private_key=PUBLIC)
    with pytest.raises(ValueError, match="takes the workers"):
        X.encrypt()
    with pytest.raises(ChainError, match="begins with PaillierTensor"):
        encrypted(encrypted(X))
    with pytest.raises(ChainError, match="PointerTensor"):
        encrypted(X.send(alice))
    with pytest.raises(ChainError, match=r"on a plain tensor"):
        decrypted(X)
    with pytest.raises(ChainError, match="not a shared tensor"):
        encrypted(X).decrypt()
    with pytest.raises(ChainError, match="fetch a pointer"):
        decrypted(encrypted(X).send(alice))


# -- by secret sharing -------------------------------------------------------------------------------------


def test_encrypt_shares_and_decrypt_opens(workers: Any) -> None:
    holders = {"workers": [workers.alice, workers.bob], "crypto_provider": workers.charlie}
    x = X.encrypt(**holders)
    assert isinstance(x.child, sy.FixedPrecisionTensor)
    assert isinstance(x.child.child, sy.AdditiveSharingTensor)
    assert torch.allclose((x * 2).decrypt(), X * 2, atol=5e-3)
    fine = X.encrypt("mpc", precision_fractional=16, base=2, requires_grad=True, **holders)
    (fine * fine).sum().backward()
    assert torch.allclose(fine.grad.decrypt(protocol="mpc"), 2 * X, atol=1e-3)


def test_a_pointer_is_shared_where_it_is(workers: Any) -> None:
    pointer = X.send(workers.alice)
    x = pointer.encrypt(workers=[workers.alice, workers.bob], crypto_provider=workers.charlie)
    assert torch.allclose(x.decrypt(), X, atol=1e-3)
