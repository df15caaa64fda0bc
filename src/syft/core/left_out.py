"""Paths and names of 2020 that are not part of this library, and what to use instead.

Python asks `LeftOutFinder` for a module when nobody else has it, so nothing that exists pays for it.
"""

from __future__ import annotations

import sys
from importlib.abc import MetaPathFinder
from typing import Any

from syft.exceptions import LeftOutError

_ONLY_TORCH = (
    "Only torch is served: build the model with torch.nn and share it with model.fix_precision().share(...)."
)
_GRID = (
    "The HTTP grid is not part of this library: reach workers with sy.connect(address) and search them together with "
    "sy.PrivateGridNetwork(*workers)."
)
_LATTICE = (
    "The FV scheme is not part of this library: use sy.keygen() and tensor.encrypt(protocol='paillier', ...)."
)
_FALCON = (
    "Replicated sharing is not part of this library: tensor.share(...) shares additively among two and more."
)
_CRYPTEN = "CrypTen interoperation is not part of this library: tensor.fix_precision().share(...) computes on secrets."

#: Path of a module (with all below it), or of a name in a package -> what to use instead.
LEFT_OUT: dict[str, str] = {
    "syft.frameworks.keras": _ONLY_TORCH,
    "syft.frameworks.tensorflow": _ONLY_TORCH,
    "syft.workers.tfe": _ONLY_TORCH,
    "syft.KerasHook": _ONLY_TORCH,
    "syft.TensorFlowHook": _ONLY_TORCH,
    "syft.TFECluster": _ONLY_TORCH,
    "syft.TFEWorker": _ONLY_TORCH,
    "syft.workers.node_client": _GRID,
    "syft.grid.public_grid": _GRID,
    "syft.grid.authentication": _GRID,
    "syft.grid.PublicGridNetwork": _GRID,
    "syft.grid.clients": _GRID,
    "syft.PublicGridNetwork": _GRID,
    "syft.NodeClient": _GRID,
    "syft.frameworks.torch.he.fv": _LATTICE,
    "syft.frameworks.torch.mpc.falcon": _FALCON,
    "syft.frameworks.torch.tensors.interpreters.replicated_shared": _FALCON,
    "syft.ReplicatedSharingTensor": _FALCON,
    "syft.frameworks.crypten": _CRYPTEN,
}


def what_instead(path: str) -> str | None:
    """What to use instead of a path, if it is one that is left out."""
    while path:
        if path in LEFT_OUT:
            return LEFT_OUT[path]
        path = path.rpartition(".")[0]
    return None


class LeftOutFinder(MetaPathFinder):
    """Asked last by Python's import system; says of a path that is left out what to use instead."""

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> None:
        if fullname.startswith("syft."):
            instead = what_instead(fullname)
            if instead is not None:
                raise LeftOutError(fullname, instead)


def install() -> None:
    """Let Python ask; once per process."""
    if not any(type(finder).__name__ == LeftOutFinder.__name__ for finder in sys.meta_path):
        sys.meta_path.append(LeftOutFinder())
