"""`worker.remote.torch.zeros(2, 3)`: torch functions that run, and make their tensors, on a worker."""

from __future__ import annotations

from typing import Any

from syft.core.commands import public_operations
from syft.exceptions import UnknownCommandError


class RemoteNamespace:
    """A dotted name that ends in a function; calling it sends the command."""

    def __init__(self, worker: Any, path: str) -> None:
        self._worker, self._path = worker, path

    def __getattr__(self, name: str) -> RemoteNamespace:
        if name.startswith("_"):
            raise AttributeError(name)
        path = f"{self._path}.{name}" if self._path else name
        known = public_operations()
        if path != "torch" and path not in known and not any(k.startswith(path + ".") for k in known):
            raise UnknownCommandError(path)
        return RemoteNamespace(self._worker, path)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._worker.run_command(self._path, args, kwargs)

    def __repr__(self) -> str:
        return f"<{self._path or 'remote'} on worker {self._worker.id!r}>"
