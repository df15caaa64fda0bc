"""What the hook adds to tensors: `encrypt` and `decrypt`, by secret sharing or under a Paillier key."""

from __future__ import annotations

from typing import Any

import torch

from syft.core.chain import Wrapper, new_wrapper
from syft.exceptions import ChainError
from syft.mpc.fixed_methods import fix_precision
from syft.mpc.methods import secret_of, share
from syft.mpc.paillier import PaillierPrivateKey, PaillierPublicKey, PaillierTensor
from syft.mpc.precision import DEFAULT_BASE, DEFAULT_PRECISION, FixedPrecisionTensor

PROTOCOLS = ("mpc", "paillier")


def encrypt(
    self: Any,
    protocol: str = "mpc",
    *,
    workers: Any = None,
    crypto_provider: Any = None,
    requires_grad: bool = False,
    precision_fractional: int = DEFAULT_PRECISION,
    base: int = DEFAULT_BASE,
    public_key: PaillierPublicKey | None = None,
) -> Any:
    """The tensor as something that whoever holds it cannot read.

    protocol="mpc"       fixed precision, shared among `workers` with randomness of `crypto_provider`; the same as
                         fix_precision(...).share(...), also on a pointer, where it happens there
    protocol="paillier"  ciphertexts under `public_key`, without gradients
    """
    _check_protocol("encrypt", protocol)
    if protocol == "mpc":
        if not workers or isinstance(workers, str):
            raise ValueError(
                "encrypt(protocol='mpc') takes the workers that hold the shares: "
                "encrypt(workers=[alice, bob], crypto_provider=provider)."
            )
        fixed = fix_precision(self, precision_fractional=precision_fractional, base=base)
        return share(fixed, *workers, crypto_provider=crypto_provider, requires_grad=requires_grad)
    if not isinstance(public_key, PaillierPublicKey):
        raise TypeError(
            f"encrypt(protocol='paillier') takes public_key=, the first of what syft.keygen() returns; a "
            f"{type(public_key).__name__} was found."
        )
    if type(self) is Wrapper:
        raise ChainError(
            f"encrypt(protocol='paillier') was called on a chain that begins with {type(self.child).__name__}. It takes "
            "plain tensors: encrypt where the values are, then send."
        )
    return new_wrapper(PaillierTensor.encrypt(self, public_key))


def decrypt(
    self: Any, protocol: str = "mpc", *, private_key: PaillierPrivateKey | None = None
) -> torch.Tensor:
    """The inverse of `encrypt`: opens shares (which are removed at their holders), or decrypts with the private key."""
    _check_protocol("decrypt", protocol)
    head = self.child if type(self) is Wrapper else None
    if protocol == "mpc":
        if not isinstance(head, FixedPrecisionTensor) or secret_of(head) is None:
            raise ChainError(
                f"decrypt(protocol='mpc') was called on {_named(head)}, which is not a shared tensor in fixed precision. "
                "Use decrypt(protocol='paillier', private_key=...) for ciphertexts, and `.get()` for pointers."
            )
        opened = self.get()
        if secret_of(opened.child) is not None:  # NOTE [The first get]
            opened = opened.get()
        made: torch.Tensor = opened.float_precision()
        return made
    if not isinstance(private_key, PaillierPrivateKey):
        raise TypeError(
            f"decrypt(protocol='paillier') takes private_key=, the second of what syft.keygen() returns; a "
            f"{type(private_key).__name__} was found."
        )
    if not isinstance(head, PaillierTensor):
        raise ChainError(
            f"decrypt(protocol='paillier') was called on {_named(head)}. It takes what encrypt(protocol='paillier') "
            "returned, or was computed from it; fetch a pointer with `.get()` first."
        )
    return head.decrypt(private_key)


def _check_protocol(method: str, protocol: Any) -> None:
    if protocol not in PROTOCOLS:
        raise ValueError(f"{method}(protocol={protocol!r}): the protocols are 'mpc' and 'paillier'.")


def _named(head: Any) -> str:
    return "a plain tensor" if head is None else f"a {type(head).__name__}"


TENSOR_METHODS: dict[str, Any] = {"encrypt": encrypt, "decrypt": decrypt}
