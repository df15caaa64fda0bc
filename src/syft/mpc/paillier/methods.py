"""What the hook adds to tensors: `encrypt` and `decrypt`, by secret sharing or under a Paillier key."""

from __future__ import annotations

from typing import Any

import torch

from syft.core.chain import Wrapper, new_wrapper
from syft.core.levels import step_down
from syft.core.swap import become
from syft.exceptions import ChainError
from syft.mpc.fixed_methods import fix_precision
from syft.mpc.methods import SHARING, opened, share
from syft.mpc.paillier import PaillierPrivateKey, PaillierPublicKey, PaillierTensor
from syft.mpc.precision import DEFAULT_BASE, DEFAULT_PRECISION, FixedPrecisionTensor
from syft.mpc.sharing import secret_of
from syft.tensors.autograd import AutogradTensor
from syft.tensors.pointer import PointerTensor
from syft.tensors.transfer import without_autograd_node

PROTOCOLS = (*SHARING, "paillier")


def encrypt(
    self: Any,
    protocol: Any = None,
    *,
    workers: Any = None,
    crypto_provider: Any = None,
    requires_grad: bool = False,
    precision_fractional: int = DEFAULT_PRECISION,
    base: int = DEFAULT_BASE,
    public_key: PaillierPublicKey | None = None,
) -> Any:
    """The tensor as something that whoever holds it cannot read.

    encrypt(public_key)  ciphertexts under that key, without gradients; the same as protocol="paillier" with `public_key=`
    protocol="mpc"       fixed precision, shared among `workers` with randomness of `crypto_provider`; the same as
                         fix_precision(...).share(...), also on a pointer, where it happens there. "snn" and "fss" are
                         the same with that protocol for comparisons.
    """
    protocol, public_key = _with_key("encrypt", protocol, public_key, PaillierPublicKey)
    _check_protocol("encrypt", protocol)
    if protocol in SHARING:
        if public_key is not None:
            raise TypeError(
                f"encrypt(protocol={protocol!r}) shares the tensor and uses no public_key. Leave one of them out."
            )
        if not workers or isinstance(workers, str):
            raise ValueError(
                f"encrypt(protocol={protocol!r}) takes the workers that hold the shares: "
                "encrypt(workers=[alice, bob], crypto_provider=provider). With a Paillier key: encrypt(public_key)."
            )
        fixed = fix_precision(self, precision_fractional=precision_fractional, base=base)
        return share(
            fixed,
            *workers,
            crypto_provider=crypto_provider,
            requires_grad=requires_grad,
            protocol=SHARING[protocol],
        )
    if not isinstance(public_key, PaillierPublicKey):
        raise TypeError(
            f"encrypt(protocol='paillier') takes public_key=, the first of what syft.keygen() returns; a "
            f"{type(public_key).__name__} was found."
        )
    for name, value in (("workers", workers), ("crypto_provider", crypto_provider)):
        if value is not None:
            raise TypeError(
                f"encrypt(protocol='paillier') has no {name}: it uses one key. Leave {name} out, or use protocol='mpc'."
            )
    if requires_grad or (self.requires_grad and torch.is_grad_enabled()):
        raise ValueError(
            "encrypt(protocol='paillier'): ciphertexts have no gradients. Encrypt x.detach(), or use protocol='mpc'."
        )
    if type(self) is Wrapper:
        raise ChainError(
            f"encrypt(protocol='paillier') was called on a chain that begins with {type(self.child).__name__}. It takes "
            "plain tensors: encrypt where the values are, then send."
        )
    return new_wrapper(PaillierTensor.encrypt(self, public_key))


def encrypt_(self: Any, *args: Any, **kwargs: Any) -> Any:
    """`encrypt` in place: whoever holds this tensor holds what is encrypted; returns self."""
    return become(self, encrypt(self, *args, **kwargs))


def decrypt(
    self: Any, protocol: Any = None, *, private_key: PaillierPrivateKey | None = None
) -> torch.Tensor:
    """The inverse of `encrypt`: decrypt(private_key) reads ciphertexts, decrypt() opens shares.

    Opened shares are removed at their holders.
    """
    protocol, private_key = _with_key("decrypt", protocol, private_key, PaillierPrivateKey)
    _check_protocol("decrypt", protocol)
    head = self.child if type(self) is Wrapper else None
    if protocol in SHARING:
        # What was encoded and shared where it is: the secret itself is fetched first.
        if isinstance(head, PointerTensor) and head.spec.number_format is not None:
            self = self.get()
            head = self.child if type(self) is Wrapper else None
        if isinstance(head, AutogradTensor):
            self = without_autograd_node(self) if self.is_leaf else step_down(self)
            head = self.child
        if not isinstance(head, FixedPrecisionTensor) or secret_of(head) is None:
            raise ChainError(
                f"decrypt(protocol={protocol!r}) was called on {_named(head)}, which is not a shared tensor in fixed "
                "precision. Use decrypt(private_key) for ciphertexts, and `.get()` for pointers."
            )
        made: torch.Tensor = opened(self).float_precision()
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


def _with_key(method: str, protocol: Any, key: Any, kind: type) -> tuple[Any, Any]:
    """(protocol, key), where the programs of 2020 pass the key first and name no protocol."""
    if isinstance(protocol, kind):
        if key is not None:
            raise TypeError(f"{method}() was given two keys. Pass one of them.")
        return "paillier", protocol
    if isinstance(protocol, (PaillierPublicKey, PaillierPrivateKey)):
        right = "public" if kind is PaillierPublicKey else "private"
        raise TypeError(
            f"{method}() was given a {type(protocol).__name__}; it takes the {right} key. syft.keygen() returns "
            "(public, private)."
        )
    if protocol is None:
        protocol = "mpc" if key is None else "paillier"
    return protocol, key


def _check_protocol(method: str, protocol: Any) -> None:
    if protocol not in PROTOCOLS:
        raise ValueError(
            f"{method}(protocol={protocol!r}): the protocols are {', '.join(map(repr, PROTOCOLS))}; or pass a key."
        )


def _named(head: Any) -> str:
    return "a plain tensor" if head is None else f"a {type(head).__name__}"


TENSOR_METHODS: dict[str, Any] = {"encrypt": encrypt, "encrypt_": encrypt_, "decrypt": decrypt}
