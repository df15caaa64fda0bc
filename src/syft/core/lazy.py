"""Modules that are imported when somebody names them: `sy.frameworks.torch.fl` after `import syft` alone."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any


def submodules_on_demand(package: str) -> Callable[[str], Any]:
    """The `__getattr__` of a package whose modules are imported when they are first named."""

    def __getattr__(name: str) -> Any:
        if not name.startswith("_"):
            full = f"{package}.{name}"
            try:
                return importlib.import_module(full)
            except ImportError as error:
                if error.name != full:  # it is there, and something that it needs is not
                    raise
                raise AttributeError(f"module {package!r} has no attribute {name!r}. {error}") from None
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return __getattr__
