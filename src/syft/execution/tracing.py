"""`FrameworkWrapper`: torch's functions in the name of a role of a protocol; and the log of calls, `Trace`."""

from __future__ import annotations

from typing import Any

import torch

from syft.core.public_names import function_named
from syft.execution.errors import PlanError
from syft.execution.trace_log import Trace as Trace
from syft.execution.trace_log import tracer as tracer


class FrameworkWrapper:
    """`role.torch`: functions of torch that make tensors of that role."""

    def __init__(self, role: Any) -> None:
        self._role = role

    def __getattr__(self, name: str) -> Any:
        function = function_named(f"torch.{name}")
        if function is None:
            raise AttributeError(
                f"torch.{name} was asked of a role; torch has no such function that makes or takes tensors."
            )

        def call(*args: Any, **kwargs: Any) -> Any:
            role = self._role
            is_new = not any(isinstance(value, torch.Tensor) for value in (*args, *kwargs.values()))
            if role.worker is not None and is_new:
                return getattr(role.worker.remote.torch, name)(*args, **kwargs)
            for value in (*args, *kwargs.values()):
                if isinstance(value, torch.Tensor) and role.worker is not None and value.location is None:  # type: ignore[attr-defined]
                    raise PlanError(
                        f"torch.{name} of the role {role.id!r} was called with a tensor that is here. Load it first: "
                        f"{role.id}.load(tensor)."
                    )
            return role.takes(function(*args, **kwargs))

        return call
