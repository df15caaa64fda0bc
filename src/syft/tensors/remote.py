"""`worker.remote.torch.zeros(2, 3)`: torch functions that run, and make their tensors, on a worker."""

from __future__ import annotations

from typing import Any, ClassVar

from syft.core.commands import public_operations
from syft.core.interfaces import Worker
from syft.exceptions import UnknownCommandError


class RemoteNamespace:
    """A dotted name that ends in a function; calling it sends the command."""

    def __init__(self, worker: Worker, path: str) -> None:
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


class Remote(RemoteNamespace):
    """`worker.remote`: the frameworks whose functions a worker runs. There is one, torch."""

    #: The frameworks by the name they have in programs.
    known: ClassVar[dict[str, Any]] = {"torch": None}

    def __init__(self, worker: Worker, framework_name: str | None = None) -> None:
        super().__init__(worker, "")
        if framework_name is not None and framework_name not in self.known:
            raise UnknownCommandError(framework_name)
        self._names = tuple(self.known) if framework_name is None else (framework_name,)

    @property
    def frameworks(self) -> dict[str, RemoteNamespace]:
        """The functions of each framework, by its name: `worker.remote.frameworks["torch"].zeros(2)`."""
        return {name: RemoteNamespace(self._worker, name) for name in self._names}

    @staticmethod
    def register_framework(cls: Any) -> Any:
        """Note the attributes of a framework under its ALIAS; for decorating. !! ValueError for another than torch"""
        if getattr(cls, "ALIAS", None) not in Remote.known:
            raise ValueError(
                f"register_framework() was given {getattr(cls, 'ALIAS', cls)!r}. Workers run torch's functions, and no "
                "other framework's."
            )
        Remote.known[cls.ALIAS] = cls
        return cls
