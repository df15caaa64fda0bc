"""The one place that knows which worker is "me" and which hook is on.

`sy.local_worker`, `sy.hook`, `sy.torch` and `sy.framework` read from here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Session:
    """State that the hook sets and everybody else reads."""

    def __init__(self) -> None:
        self.local_worker: Any = None
        self.hook: Any = None
        self.framework: Any = None
        #: Hooks torch; `syft/__init__.py` sets it, because the room of the hook is above this one.
        self.hook_maker: Callable[[], Any] | None = None

    def require_hook(self) -> Any:
        """The hook; torch is hooked if nobody has done it."""
        if self.hook is None and self.hook_maker is not None:
            self.hook_maker()
        return self.hook

    def require_local_worker(self) -> Any:
        if self.local_worker is None:
            raise RuntimeError(
                "No local worker exists yet. Write `hook = syft.TorchHook(torch)` once, before "
                "sending tensors or creating workers."
            )
        return self.local_worker


session = Session()
