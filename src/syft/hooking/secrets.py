"""Methods of tensors, models and data sets that upper rooms define: imported when one of them is first used."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from syft.core.rooms import importing
from syft.core.session import session
from syft.workers.base import BaseWorker

_PRECISION = "fix_precision fix_prec fix_precision_ float_precision float_prec float_precision_".split()

#: Class -> the names that the room of secrets adds to it.
SECRETS: dict[type, tuple[str, ...]] = {
    torch.Tensor: (
        *_PRECISION,
        *"fix_prec_ float_prec_ share share_ virtual_get reconstruct refresh mod zero locations field".split(),
        *"crypto_provider offer withdraw".split(),
    ),
    torch.nn.Module: (*_PRECISION, *"encrypt decrypt share share_".split()),
    BaseWorker: ("crypto_store",),
    torch.optim.Optimizer: ("fix_precision", "float_precision"),
}

#: The names that encryption under a key adds to torch.Tensor.
ENCRYPTION = ("encrypt", "encrypt_", "decrypt")


class AddedLater:
    """Stands for a method until it is first asked for; then `add` puts the real ones in place."""

    def __init__(self, name: str, add: Callable[[], None]) -> None:
        self.name = name
        self.add = add

    def __get__(self, obj: Any, owner: Any = None) -> Any:
        with importing():
            self.add()
        return getattr(owner if obj is None else obj, self.name)


def add_secrets() -> None:
    """Replace what stands for the names of `SECRETS` by what they are."""
    from syft.mpc import fixed_methods, methods, module_methods

    of_modules = (
        fixed_methods.MODULE_METHODS | module_methods.MODULE_METHODS | {"share": methods.share_module}
    )
    _replace(torch.Tensor, fixed_methods.TENSOR_METHODS | methods.TENSOR_METHODS)
    _replace(torch.nn.Module, of_modules)
    _replace(BaseWorker, module_methods.WORKER_ATTRIBUTES)
    _replace(torch.optim.Optimizer, fixed_methods.OPTIMIZER_METHODS)
    session.hook._hook_additive_shared_tensor_methods()


def add_encryption() -> None:
    """Replace what stands for the names of `ENCRYPTION`."""
    from syft.mpc.paillier import methods

    _replace(torch.Tensor, methods.TENSOR_METHODS)


def add_federate() -> None:
    """Replace what stands for `dataset.federate`."""
    from syft.federated.dataset import federate

    _replace(torch.utils.data.Dataset, {"federate": federate})


def _replace(holder: type, members: dict[str, Any]) -> None:
    for name, member in members.items():
        if isinstance(vars(holder).get(name), AddedLater):
            setattr(holder, name, member)
