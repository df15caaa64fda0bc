"""`remote`: a torch function or a plan as one that runs on a worker."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from syft.core.public_names import public_name
from syft.core.session import session
from syft.execution.plan import Plan


def remote(func: Any, location: Any) -> Callable[..., Any]:
    """`remote(torch.add, location=bob)(x_ptr, y_ptr)` adds at bob and returns a pointer.

    func      a torch function, its name ("torch.add"), or a plan that is built
    location  the worker, or its id

    The function that is returned takes pointers to there and numbers. With `return_value=True` the results are fetched;
    `return_arity` says how many results there will be, and more or fewer !! ValueError.
    """
    worker = session.require_local_worker().get_worker(location, fail_hard=True)
    if isinstance(func, Plan):
        held = func.send(worker)
        run: Callable[..., Any] = held
    else:
        name = func if isinstance(func, str) else public_name(func) if callable(func) else None
        if not name or not name.startswith("torch."):
            raise TypeError(
                f"remote() was given {func!r}. A worker runs torch functions and plans, and no other code: pass e.g. "
                "torch.add, or make a plan of your function with @sy.func2plan(args_shape=[...])."
            )

        def run(*args: Any, **kwargs: Any) -> Any:
            return worker.run_command(name, args, kwargs)

    def at_worker(
        *args: Any, return_value: bool = False, return_arity: int | None = None, **kwargs: Any
    ) -> Any:
        results = run(*args, **kwargs)
        several = isinstance(results, (tuple, list))
        count = len(results) if several else 1
        if return_arity is not None and count != return_arity:
            raise ValueError(
                f"The function returned {count} results, and return_arity={return_arity} was given. Give the number "
                "of its results."
            )
        if not return_value:
            return results
        return type(results)(r.get() for r in results) if several else results.get()

    return at_worker
