"""Item 17: Paillier as programs of 2020 spell it, and the scheme itself, by its definition and its algebra."""

from __future__ import annotations

import math
import subprocess
import sys
import warnings
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import syft as sy
from syft.exceptions import ChainError
from syft.mpc.paillier import PaillierTensor, ShortKeyWarning, scheme
from syft.mpc.paillier.keys import PaillierPublicKey

with warnings.catch_warnings():
    warnings.simplefilter("ignore", ShortKeyWarning)  # 1024 bits: fast, and not for data
    PUBLIC, PRIVATE = sy.keygen(n_length=1024)

WHOLE = st.integers(-(2**500), 2**500)


# -- the spelling of 2020 ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "values",
    [
        torch.tensor(2.5),
        torch.tensor([1.0, -2.0, 3.25]),
        torch.tensor([[1, -2], [3, 4]]),
        torch.empty(0),
        torch.empty(2, 0),
    ],
)
def test_the_key_is_the_only_argument_of_encrypt_and_decrypt(values: torch.Tensor) -> None:
    hidden = values.encrypt(PUBLIC)
    assert isinstance(hidden.child, PaillierTensor)
    assert torch.equal(hidden.decrypt(PRIVATE), values)
    assert torch.equal((hidden + hidden).decrypt(PRIVATE), values + values)
    assert torch.equal(values.encrypt(public_key=PUBLIC).decrypt(private_key=PRIVATE), values)


def test_encrypt_in_place_is_seen_by_whoever_holds_the_tensor() -> None:
    x = torch.tensor([1.0, -2.0])
    held = [x]
    assert x.encrypt_(PUBLIC) is x
    assert torch.equal((held[0] * 2).decrypt(PRIVATE), torch.tensor([2.0, -4.0]))
    with pytest.raises(ChainError, match="plain tensors"):
        x.encrypt_(PUBLIC)


def test_a_node_on_a_plain_tensor_encrypts_in_place_once() -> None:
    node = PaillierTensor().on(torch.tensor([3, -4]), wrap=False)
    assert node.encrypt_(PUBLIC) is node
    assert torch.equal(node.decrypt(PRIVATE), torch.tensor([3, -4]))
    with pytest.raises(ChainError, match="encrypted already"):
        node.encrypt_(PUBLIC)


def test_mm_of_an_encrypted_vector_and_a_vector_is_their_dot_product() -> None:
    x, w = torch.tensor([1.0, 2.0, -3.0]), torch.tensor([0.5, -1.0, 2.0])
    m = torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    hidden = x.encrypt(PUBLIC)
    assert torch.equal(hidden.mm(w).decrypt(PRIVATE), x @ w)
    assert torch.equal(torch.mm(w, hidden).decrypt(PRIVATE), x @ w)
    assert torch.equal(hidden.mm(m).decrypt(PRIVATE), x @ m)
    assert torch.equal(m.encrypt(PUBLIC).mm(m.t()).decrypt(PRIVATE), m @ m.t())
    for wrong in (2, 4):
        with pytest.raises(RuntimeError, match="as many rows"):
            hidden.mm(torch.ones(wrong))


def test_wrong_keys_and_mixed_arguments_are_refused_with_the_cure() -> None:
    x = torch.tensor([1.0])
    hidden = x.encrypt(PUBLIC)
    with pytest.raises(TypeError, match="takes the public key"):
        x.encrypt(PRIVATE)
    with pytest.raises(TypeError, match="takes the private key"):
        hidden.decrypt(PUBLIC)
    with pytest.raises(TypeError, match="two keys"):
        x.encrypt(PUBLIC, public_key=PUBLIC)
    with pytest.raises(TypeError, match="no workers"):
        x.encrypt(PUBLIC, workers=["alice"])
    with pytest.raises(TypeError, match="uses no public_key"):
        x.encrypt("mpc", public_key=PUBLIC, workers=["alice"])
    with pytest.raises(ValueError, match="no gradients"):
        torch.ones(1, requires_grad=True).encrypt(PUBLIC)
    for bad in (math.nan, math.inf, 2.0**80):
        with pytest.raises(ValueError, match=r"below 2\^80"):
            torch.tensor([bad], dtype=torch.float64).encrypt(PUBLIC)


@pytest.mark.parametrize("protocol", ["mpc", "snn", "fss"])
def test_encrypt_names_the_comparison_protocol_of_its_shares(workers: Any, protocol: str) -> None:
    x = torch.tensor([1.5, -2.0])
    secret = x.encrypt(protocol, workers=[workers.alice, workers.bob], crypto_provider=workers.charlie)
    assert secret.child.child.protocol == (None if protocol == "mpc" else protocol)
    assert torch.equal((secret * 2).decrypt(protocol), x * 2)


# -- keys --------------------------------------------------------------------------------------------------


def test_keygen_takes_the_length_from_2048_bits_up_and_warns_below() -> None:
    public, _private = sy.keygen(n_length=2048)
    assert public.bits == 2048
    with pytest.warns(ShortKeyWarning, match="does not protect data"):
        assert sy.keygen(n_length=1024)[0].bits == 1024
    for bad in (512, 1022, 2047, 10000, 2048.0, True, "2048"):
        with pytest.raises(ValueError, match="even number of bits from 1024 to 8192"):
            sy.keygen(n_length=bad)
    with pytest.raises(TypeError, match="Pass one of them"):
        sy.keygen(n_length=3072, n_bits=2048)


def test_two_encryptions_of_one_value_differ() -> None:
    assert PUBLIC.encrypt(7) != PUBLIC.encrypt(7)
    assert PUBLIC.blind(PUBLIC.plain(7)) != PUBLIC.plain(7)


def test_what_is_no_ciphertext_is_refused() -> None:
    for bad in (0, -1, PUBLIC.n_squared, PRIVATE.p, PUBLIC.n):
        with pytest.raises(ValueError, match="no ciphertext"):
            PRIVATE.decrypt(bad)
    with pytest.raises(ValueError, match="no Paillier ciphertext"):
        PUBLIC.scale(PUBLIC.n, -1)


# -- the scheme ---------------------------------------------------------------------------------------------


@pytest.fixture(params=[True, False], ids=["gmp", "python"])
def arithmetic(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if not request.param:
        monkeypatch.setattr(scheme, "_gmp", None)
    elif not scheme.has_gmp():
        pytest.skip("gmpy2 is not installed")


def test_vectors_worked_out_by_hand(arithmetic: None) -> None:
    """p = 7, q = 11, n = 77, n^2 = 5929, g = 78.

    g^42 = 1 + 42 * 77 = 3235. 23^77 mod 5929 by squaring: 23^4 = 1178, 23^8 = 298, 23^64 = 562, and 77 = 64 + 8 + 4 + 1,
    so 562 * 298 = 1464, 1464 * 1178 = 5182, 5182 * 23 = 606. 3235 * 606 = 1960410 = 330 * 5929 + 3840.
    """
    assert scheme.unblinded(77, 42) == 3235
    assert scheme.power(23, 77, 5929) == 606
    assert scheme.encrypted(77, 42, 23) == 3840
    assert scheme.Decryption(7, 11).decrypted(3840) == 42
    # The textbook's decryption: lambda = lcm(6, 10) = 30, L(c^30 mod n^2) / L(g^30 mod n^2) mod n, L(u) = (u - 1) / n.
    # g^30 = 1 + 30 * 77, so the divisor is 30, whose inverse mod 77 is 18 (540 = 7 * 77 + 1).
    assert ((pow(3840, 30, 5929) - 1) // 77) * 18 % 77 == 42
    # -1 is 76; 3840^-1 holds 35 = -42.
    assert scheme.unblinded(77, -1) == 1 + 76 * 77
    assert scheme.Decryption(7, 11).decrypted(scheme.scaled(77, 3840, -1)) == 35
    assert scheme.as_signed(77, 35) == 35
    assert scheme.as_signed(77, 42) == -35


def test_every_plaintext_and_every_blinding_of_small_keys(arithmetic: None) -> None:
    for p, q in ((5, 7), (7, 11), (11, 13)):
        n, read = p * q, scheme.Decryption(p, q).decrypted
        units = [r for r in range(1, n) if math.gcd(r, n) == 1]
        for m in range(n):
            ciphers = {scheme.encrypted(n, m, r) for r in units}
            assert len(ciphers) == len(units)  # r -> r^n is injective on the units
            assert {read(c) for c in ciphers} == {m}


def test_primes_for_which_the_scheme_does_not_work_are_refused() -> None:
    for p, q in ((7, 7), (3, 7), (11, 23)):  # 3 divides 7 - 1, 11 divides 23 - 1
        with pytest.raises(ValueError, match="two different primes"):
            scheme.Decryption(p, q)


@given(WHOLE, WHOLE, st.integers(-(2**200), 2**200))
def test_sums_and_multiples_of_plaintexts_are_those_of_integers(m: int, k: int, factor: int) -> None:
    one, other = PUBLIC.encrypt(m), PUBLIC.encrypt(k)
    assert PRIVATE.decrypt(PUBLIC.add(one, other)) == m + k
    assert PRIVATE.decrypt(PUBLIC.add(one, PUBLIC.plain(k))) == m + k
    assert PRIVATE.decrypt(PUBLIC.scale(one, factor)) == m * factor
    assert PRIVATE.decrypt(PUBLIC.blind(one)) == m


def test_public_keys_are_equal_by_their_modulus() -> None:
    assert PaillierPublicKey(PUBLIC.n) == PUBLIC


def test_nothing_imports_the_gpl_package(tmp_path: Any) -> None:
    program = (
        "import sys; sys.modules['phe'] = None; sys.modules['gmpy2'] = None\n"
        "import torch, syft as sy; sy.TorchHook(torch)\n"
        "public, private = sy.keygen()\n"
        "x = torch.tensor([1.5, -2.0]).encrypt(public)\n"
        "assert (x + x).decrypt(private).tolist() == [3.0, -4.0]\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, cwd=tmp_path, timeout=800)
