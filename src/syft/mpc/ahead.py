"""`provide()`: let the provider deal for calls of a model before the data is there.

    sy.mpc.provide(model, (1, 3, 32, 32), count=10)

The call is made on zeros first: twice, so that weights are masked and norms folded, and once more to note what it takes.
That is dealt `count` times, and the holders keep it. Calls on data of the same shapes then take it, and the provider
hears nothing of them. A call that takes something else has that dealt when it is needed, as ever.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from syft.core.chain import Wrapper
from syft.execution.cost import SHARE_PROVIDERS, settled_shapes
from syft.execution.plan import Plan
from syft.mpc.precision import FixedPrecisionTensor
from syft.mpc.sharing import AdditiveSharingTensor, secret_of
from syft.mpc.taken import noting_taken


@dataclass(frozen=True)
class Provided:
    """What was dealt: calls, correlations for each, and bytes that each holder keeps for all of them."""

    calls: int
    correlations: int
    bytes: int


def provide(call: Callable[..., Any], *arguments: Any, count: int = 1) -> Provided:
    """Deal for `count` calls of a module, a plan or a function on secrets.

    `arguments` are those of a call, with shapes (tuples of sizes) in the place of secrets of reals: they are shared like
    the parameters of the model. A function without shared parameters is given secrets instead. Gradients are on or off as
    they are here; a call that differs in that takes other things.
    """
    if not isinstance(count, int) or isinstance(count, bool) or count < 1:
        raise ValueError(f"provide(count={count!r}): it is a number of calls from 1 on.")
    template = next(_secrets_of(call), None)
    if template is None and any(_is_shape(value) for value in arguments):
        raise ValueError(
            "provide() was given shapes, and the call has no shared parameters that say who holds such secrets. Share "
            "the model first, or pass secrets."
        )
    for _ in range(2):
        call(*(_example(value, template) for value in arguments))
    given = [_example(value, template) for value in arguments]
    with noting_taken() as taken:
        call(*given)
    for _ in range(count):
        for provider in {id(one.provider): one.provider for one in taken}.values():
            provider.provide_again([one for one in taken if one.provider is provider])
    kept = sum(one.nbytes for entry in taken for one in (*entry.kind.base, *entry.kind.derived))
    return Provided(count, len(taken), count * kept)


def _is_shape(value: Any) -> bool:
    return isinstance(value, (tuple, list, torch.Size)) and all(isinstance(n, int) for n in value)


def _secrets_of(call: Any) -> Iterator[Any]:
    """The shared reals among the parameters, buffers or state of a call."""
    if isinstance(call, Plan):
        tensors = call.state.tensors()
    elif isinstance(call, torch.nn.Module):
        tensors = [*call.parameters(), *call.buffers()]
    else:
        tensors = []
    for tensor in tensors:
        node = tensor.child if type(tensor) is Wrapper else None
        if isinstance(node, FixedPrecisionTensor) and isinstance(secret_of(node), AdditiveSharingTensor):
            yield node


def _example(value: Any, template: Any) -> Any:
    """An argument of a call made for its costs: zeros in the place of a shape."""
    if not _is_shape(value):
        return value
    secret = secret_of(template)
    zeros: Any = torch.zeros(tuple(value))
    fixed = zeros.fix_precision(base=template.base, precision_fractional=template.float_fractional)
    return fixed.share(*secret.locations, crypto_provider=secret.crypto_provider, protocol=secret.protocol)


def _provide_plan(plan: Any, count: int, shapes: tuple[tuple[int, ...], ...]) -> Provided:
    return provide(plan, *settled_shapes(plan.program, shapes, plan.name), count=count)


SHARE_PROVIDERS["additive"] = _provide_plan
