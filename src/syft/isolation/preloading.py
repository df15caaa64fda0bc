"""What an executor may need to import, imported before it is forked: afterwards it opens no file."""

from __future__ import annotations

import contextlib
import importlib
import pkgutil
from pathlib import Path

import torch

from syft.federated.secure_aggregation import MaskedSum

_SYFT = Path(__file__).parents[1]
#: Modules of torch and others that are imported when an operation or a type is first used.
_LATE = """
torch._dynamo torch._decomp torch._decomp.decompositions torch._refs torch._meta_registrations
torch._prims torch._subclasses.fake_tensor torch._functorch.vmap torch.func torch.fx
torch.fx.experimental.proxy_tensor torch._subclasses.schema_check_mode
torch._subclasses.functional_tensor
torch.nn.utils.parametrize torch.utils.data torch.optim
numpy.random encodings.idna encodings.ascii encodings.unicode_escape traceback tokenize linecache sqlite3
lz4.frame zstandard safetensors.torch
cryptography.hazmat.backends.openssl.backend
""".split()
#: It takes a second, and nobody needs it but those who account for noise.
_WITH_BUDGETS = ["dp_accounting", "dp_accounting.pld", "dp_accounting.rdp"]
#: Not for executors: what a person starts, what needs a display or a cluster.
_NOT_HERE = (
    "syft.cli",
    "syft.demo",
    "syft.__main__",
    "syft.isolation",
    "syft.sandbox",
    "syft.grid",
    "syft.frameworks",
    "syft.generic",
)


def import_all(budgets: bool) -> None:
    """Import every module of syft that can be, and what torch imports late; `budgets`: what noise needs, too."""
    for module in pkgutil.walk_packages([str(_SYFT)], "syft."):
        if not module.name.startswith(_NOT_HERE) and not module.name.endswith("__main__"):
            with contextlib.suppress(Exception):
                importlib.import_module(module.name)
    for name in [*_LATE, *_WITH_BUDGETS * budgets]:
        with contextlib.suppress(Exception):
            importlib.import_module(name)
    _use_once()


def _use_once() -> None:
    """Operations whose first use imports something."""
    leaf = torch.ones(2, 2, requires_grad=True)
    torch.nn.functional.softmax(leaf @ leaf, dim=-1).sum().backward()  # type: ignore[no-untyped-call]
    with contextlib.suppress(Exception):
        torch.func.vmap(lambda row: row * 2)(torch.ones(2, 2))
    # Every step of a masked sum: cryptography imports its backend with the first key.
    with contextlib.suppress(Exception):
        updates = {"a": torch.zeros(2), "b": torch.zeros(2)}
        MaskedSum(signed=True).weighted_sum(updates, dict.fromkeys(updates, 1.0))
