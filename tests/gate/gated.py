"""`Gated`: inside, every aten operation is admitted from specs and run by the table, as a worker and its client would."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from syft.core import shapes
from syft.core.ops import EAGER_TWINS, facts_of, written_argument
from syft.core.spec import TensorSpec, spec_of
from syft.operations import admit, all_rows, is_admitted, run
from syft.operations.decomposition import decompose, refusal

_ITEM = torch.ops.aten._local_scalar_dense.default


class HiddenFailureError(Exception):
    """An operation failed that a user would not hear of."""


class Gated(TorchDispatchMode):
    """Runs each operation through `admit` and `run`, or decomposes it.

    `may_read` says which numbers are the client's own: modules and optimizers count, and keep their settings in tensors.
    """

    def __init__(self, may_read: Callable[[torch.Tensor], bool] = lambda _: False) -> None:
        super().__init__()
        self.may_read = may_read
        self.ran: set[str] = set()
        self.decomposed: set[str] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        row = all_rows().get(str(func))
        is_own = func is _ITEM and self.may_read(args[0])
        # Notes for a profiler, and layers that run inside of a whole call.
        if func.namespace != "aten" or is_own or (row is not None and row.inner):
            return func(*args, **kwargs)
        func = EAGER_TWINS.get(func, func)
        facts = facts_of(func)
        if facts.changes_shape and facts.functional is not None:
            return func(*args, **kwargs)  # the client's side: it changes what a wrapper shows
        kwargs = {k: v for k, v in kwargs.items() if not isinstance(v, torch.Generator)}
        if not is_admitted(facts.name):
            self.decomposed.add(facts.name)
            with self:
                made = decompose(func, args, kwargs)
            if made is NotImplemented:
                raise refusal(func)
            return made
        self.ran.add(facts.name)
        admission = admit(facts.name, as_specs(args), as_specs(kwargs))
        outcome = run(admission, args, kwargs)
        if outcome.failure is not None:
            raise HiddenFailureError(f"{facts.name}: {outcome.failure}")
        return _shaped(admission.answer, iter(outcome.results), facts, args, kwargs)


def as_specs(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return spec_of(value)
    if isinstance(value, (list, tuple)) and not isinstance(value, torch.Size):
        return type(value)(as_specs(v) for v in value)
    return {k: as_specs(v) for k, v in value.items()} if isinstance(value, dict) else value


def _shaped(answer: shapes.Answer, fresh: Any, facts: Any, args: Any, kwargs: Any) -> Any:
    """Results in the form that torch returns them."""
    if answer.spec is not None:
        return next(fresh)
    made = []
    for index, part in enumerate(answer.parts):
        if part is shapes.ALIAS:
            made.append(written_argument(facts, index, args, kwargs))
        elif isinstance(part, shapes.Answer):
            made.append(_shaped(part, fresh, facts, args, kwargs))
        else:
            made.append(next(fresh) if isinstance(part, TensorSpec) else part)
    return answer.kind(made) if answer.kind is not None else made[0] if made else None
