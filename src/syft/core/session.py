"""The one place that knows which worker is "me" and which hook is on.

`sy.local_worker`, `sy.hook`, `sy.torch` and `sy.framework` read from here.
"""

from __future__ import annotations

from typing import Any


class Session:
    """State that the hook sets and everybody else reads."""

    def __init__(self) -> None:
        self.local_worker: Any = None
        self.hook: Any = None
        self.framework: Any = None

    def require_local_worker(self) -> Any:
        if self.local_worker is None:
            raise RuntimeError(
                "No local worker exists yet. Write `hook = syft.TorchHook(torch)` once, before "
                "sending tensors or creating workers."
            )
        return self.local_worker


session = Session()
