"""`provide()`: let the provider deal for calls of a model before the data is there.

    sy.mpc.provide(model, (1, 3, 32, 32), count=10)                     the holders keep it in memory
    sy.mpc.provide(model, (1, 3, 32, 32), count=100, store="night")     on their disks: `syft.mpc.supplied_calls`

The call is made on zeros first: twice, so that weights are masked and norms folded, and once more to note what it takes.
That is dealt `count` times, and the holders keep it. Calls on data of the same shapes then take it, and the provider
hears nothing of them. A call that takes something else has that dealt when it is needed, as ever.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from syft.execution.cost import SHARE_PROVIDERS, settled_shapes
from syft.mpc.precision import FixedPrecisionTensor
from syft.mpc.sharing import secret_of
from syft.mpc.supplied_calls import secrets_among, settled, store_calls, tensors_of
from syft.mpc.taken import noting_taken


@dataclass(frozen=True)
class Provided:
    """What was dealt: calls, correlations for each, and bytes that each holder keeps for all of them."""

    calls: int
    correlations: int
    bytes: int


def provide(
    call: Callable[..., Any], *arguments: Any, count: int = 1, store: str | None = None, lot: int = 16
) -> Provided:
    """Deal for `count` calls of a module, a plan or a function on secrets.

    `arguments` are those of a call, with shapes (tuples of sizes) in the place of secrets of reals: they are shared like
    the parameters of the model. A function without shared parameters is given secrets instead. Gradients are on or off as
    they are here; a call that differs in that takes other things.

    With `store`, a name, holders on a network keep it on their disks, and `supplied(name, call)` uses it. Calls are
    dealt in lots: a restart costs the rest of a lot, and the first call of each masks the weights again.
    """
    for named, value in (("count", count), ("lot", lot)):
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise ValueError(f"provide({named}={value!r}): it is a number of calls from 1 on.")
    template = next(
        (node for node in secrets_among(tensors_of(call)) if isinstance(node, FixedPrecisionTensor)), None
    )
    if template is None and any(_is_shape(value) for value in arguments):
        raise ValueError(
            "provide() was given shapes, and the call has no shared parameters that say who holds such secrets. Share "
            "the model first, or pass secrets."
        )

    def examples() -> list[Any]:
        return [_example(value, template) for value in arguments]

    if store is not None:
        correlations, nbytes = store_calls(call, examples, count, store, lot)
        return Provided(count, correlations // count, nbytes)
    for _ in range(2):
        settled(call(*examples()))
    given = examples()
    with noting_taken() as taken:
        settled(call(*given))
    for _ in range(count):
        for provider in {id(one.provider): one.provider for one in taken}.values():
            provider.provide_again([one for one in taken if one.provider is provider])
    kept = sum(one.nbytes for entry in taken for one in (*entry.kind.base, *entry.kind.derived))
    return Provided(count, len(taken), count * kept)


def _is_shape(value: Any) -> bool:
    return isinstance(value, (tuple, list, torch.Size)) and all(isinstance(n, int) for n in value)


def _example(value: Any, template: Any) -> Any:
    """An argument of a call made for its costs: zeros in the place of a shape."""
    if not _is_shape(value):
        return value
    secret = secret_of(template)
    zeros: Any = torch.zeros(tuple(value))
    fixed = zeros.fix_precision(base=template.base, precision_fractional=template.float_fractional)
    return fixed.share(*secret.locations, crypto_provider=secret.crypto_provider, protocol=secret.protocol)


def _provide_plan(
    plan: Any, count: int, shapes: tuple[tuple[int, ...], ...], store: str | None, lot: int
) -> Provided:
    return provide(plan, *settled_shapes(plan.program, shapes, plan.name), count=count, store=store, lot=lot)


SHARE_PROVIDERS["additive"] = _provide_plan
