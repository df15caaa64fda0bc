"""What the hook adds for encryption to models, `model.encrypt(...)`, and to workers, `worker.crypto_store`."""

from __future__ import annotations

import copy
from typing import Any

from syft.mpc.fixed_methods import float_module
from syft.mpc.methods import SHARING, share_module
from syft.mpc.precision import DEFAULT_BASE, DEFAULT_PRECISION
from syft.mpc.sharing import secret_of


def encrypt_module(
    self: Any,
    protocol: str = "mpc",
    *,
    workers: Any = None,
    crypto_provider: Any = None,
    requires_grad: bool = False,
    precision_fractional: int = DEFAULT_PRECISION,
    base: int = DEFAULT_BASE,
    inplace: bool = True,
) -> Any:
    """Parameters and buffers in fixed precision and shared among `workers`; returns the model.

    protocol  "mpc", or "snn" or "fss" for that comparison protocol
    inplace   False: this model stays as it is, and a copy is encrypted
    """
    if protocol not in SHARING:
        raise ValueError(
            f"A model was encrypted with protocol={protocol!r}: the protocols of models are "
            f"{', '.join(map(repr, SHARING))}. Paillier ciphertexts have no gradients; encrypt single tensors with it."
        )
    if not workers or isinstance(workers, str):
        raise ValueError(
            "model.encrypt(...) takes the workers that hold the shares: encrypt(workers=[alice, bob], "
            "crypto_provider=provider)."
        )
    model = self if inplace else copy.deepcopy(self)
    model.fix_precision(precision_fractional=precision_fractional, base=base)
    options: dict[str, Any] = {"requires_grad": True} if requires_grad else {}
    return share_module(
        model, *workers, crypto_provider=crypto_provider, protocol=SHARING[protocol], **options
    )


def decrypt_module(self: Any, inplace: bool = True) -> Any:
    """The inverse of `encrypt`: shares are opened (and removed at their holders), reals are floats again."""
    if not any(secret_of(tensor.child) is not None for tensor in self.parameters() if tensor.is_wrapper):
        raise ValueError(
            "model.decrypt() was called on a model without shared parameters. It undoes model.encrypt(workers=...)."
        )
    model = self if inplace else copy.deepcopy(self)
    return float_module(model.get())


MODULE_METHODS: dict[str, Any] = {
    "encrypt": encrypt_module,
    "decrypt": decrypt_module,
    "share_": share_module,
}


class _CryptoStoreOf:
    """`worker.crypto_store`; few programs ask for it, so its module is imported then."""

    def __get__(self, worker: Any, owner: Any = None) -> Any:
        from syft.mpc.crypto_store import CryptoStore

        return self if worker is None else CryptoStore(worker)


WORKER_ATTRIBUTES: dict[str, Any] = {"crypto_store": _CryptoStoreOf()}
