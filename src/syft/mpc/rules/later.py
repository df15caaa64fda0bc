"""What a backward pass of autograd leaves undone until it is known what it is needed for.

NOTE [Undone gradients]
The gradient of a parameter is a product, and the optimizer's step multiplies it by a public number: one truncation is
enough for both if nobody else asks for the gradient, and what all parameters need shares its rounds
(`protocols.steps`). So a product of matrices in a backward pass waits (`LazyShares`) until something else than a
transposition, a sum or a step asks for it. Then it is computed as ever, from its operands, which it keeps until then: the
gradient that a user reads, hands to a hook, adds to or to another optimizer is the same. It is computed before one
of its operands is written to, too. A gradient that nobody asks for is not computed.

NOTE [Undone quotients]
In the same way a division by a public integer waits, and joins the truncation of the products that follow. Their sum is
larger by that integer until then; `_MOST_RANGE` says how much of the range that may take.

NOTE [Undone losses]
The mean of squared errors is their sum, divided. The errors are opened under a mask for their squares, which serves the
gradients, too. The division waits for the program of the backward pass that takes the errors, and shares its round. If
the loss is read before, it is made then.

Only of secrets without MACs whose shares lie on CPUs, and not inside `checked()`, which looks at each result.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from syft.core.spec import spec_of
from syft.mpc import checking, reuse
from syft.mpc.authenticated import is_authenticated
from syft.mpc.correlations import Triple
from syft.mpc.kernels import Bilinear, is_on_cuda
from syft.mpc.lazy_shares import LazyShares
from syft.mpc.protocols import derived, steps
from syft.mpc.protocols.beaver import MATMUL
from syft.mpc.protocols.truncate import HIGH
from syft.mpc.rules import fixed_kinds as kinds
from syft.mpc.rules.registry import rule_with_func
from syft.mpc.rules.shared_linear import rearrange
from syft.mpc.sharing import AdditiveSharingTensor as AST

aten = torch.ops.aten

#: Of a product of reals with scale 2^16 after a division by up to 2^14: sums of products up to 2^15 on average fit.
_MOST_RANGE = 1 << 46


@dataclass(frozen=True, eq=False)
class Product:
    """op(x, y) / divisor of secrets that are there."""

    x: AST
    y: AST
    op: Bilinear
    divisor: int

    @property
    def sources(self) -> tuple[AST, ...]:
        return self.x, self.y

    def transposed(self) -> Product:
        turned = dict(self.op.params)
        params = {
            f"transpose_{name}": True for name, other in ("xy", "yx") if not turned.get(f"transpose_{other}")
        }
        return Product(self.y, self.x, Bilinear.of("matmul", **params), self.divisor)

    def computed(self) -> AST:
        made: AST = reuse.multiply(self.x, self.y, self.op, self.divisor)
        return made


@dataclass(frozen=True, eq=False)
class Quotient:
    """x / divisor; `get` gives x, from secrets that are there."""

    get: Callable[[], AST]
    divisor: int
    sources: tuple[AST, ...]

    def computed(self) -> AST:
        return self.get().truncate(self.divisor)


def in_backward() -> bool:
    """Whether autograd runs a backward pass on this thread whose results are not differentiated again."""
    return torch._C._current_graph_task_id() != -1 and not torch.is_grad_enabled()


def may_wait(*secrets: Any) -> bool:
    """Whether something of these children may be computed later."""
    return not checking.is_checking() and all(
        type(one) is AST and one.is_split and not is_authenticated(one) and not is_on_cuda(one)
        for one in secrets
    )


def recipe_of(child: Any) -> Any:
    """What an undone child will be, None for any other."""
    shares = getattr(child, "child", None)
    return shares.recipe if type(shares) is LazyShares else None


def undone(recipe: Product | Quotient, spec: Any, make: Callable[[], Any] | None = None) -> AST:
    """A secret that is computed from others when it is needed, and before they are written to."""
    sources = recipe.sources
    shares = LazyShares(
        lambda: (recipe.computed if make is None else make)().child, spec, sources[0].locations, recipe
    )
    for source in sources:
        reuse.remembered(source).pending.add(shares)
    made = sources[0].of([])
    made.child = shares
    made.was_shared_there = all(source.was_shared_there for source in sources)
    return made


# -- what waits ------------------------------------------------------------------------------------------------


def product(func: Any, x: AST, y: Any, divisor: int) -> AST | None:
    """A product of matrices in a backward pass that waits, or None."""
    if func is not aten.mm.default or not in_backward() or not may_wait(x, y):
        return None
    shapes = tuple(x.shape), tuple(y.shape)
    if any(
        x.group.driver.provider.ready(Triple(MATMUL, *shapes, split=split)) for split in (False, True)
    ):  # what was dealt for it is used first
        return None
    x, y, op = reuse.straightened(x, y, MATMUL)
    operands = []
    for one in (x, y):
        recipe = recipe_of(one)
        if isinstance(recipe, Quotient) and divisor * recipe.divisor <= HIGH:
            one, divisor = recipe.get(), divisor * recipe.divisor
        operands.append(one)
    if any(type(one.child) is LazyShares and not one.child.is_made for one in operands):
        return None
    first, second = operands
    first.check_same_holders(second)
    made = Product(first, second, op, divisor)
    shape = op.output_shape(first.shape, second.shape)
    return undone(made, spec_of(torch.empty(shape, dtype=torch.int64, device="meta")))


def quotient(child: Any, divisor: int, scale: int) -> AST | None:
    """child / divisor of reals, which waits, or None."""
    if (
        not 1 < divisor <= HIGH
        or scale**2 * divisor > _MOST_RANGE
        or not in_backward()
        or not may_wait(child)
    ):
        return None
    return undone(Quotient(lambda: child, divisor, (child,)), child.spec)


def mean_of_squares(child: Any, scale: int) -> AST | None:
    """The mean of all child * child / scale of reals, whose division waits; None if it may not. NOTE [Undone losses]"""
    count = math.prod(child.shape)
    if not count or count * scale**2 > _MOST_RANGE or not may_wait(child):
        return None
    total, form = child.run(derived.sum_of_squares)
    reuse.remember(child, form)
    made = undone(Quotient(lambda: total, count * scale, (total,)), total.spec)
    if torch.is_grad_enabled():
        reuse.remembered(child).riders.add(made.child)
    return made


@rule_with_func(AST, aten.t.default, aten.view.default, aten.sum.dim_IntList)
def rearranged(func: Any, x: AST, *args: Any, **kwargs: Any) -> Any:
    """As `rearrange`; of what is undone, later."""
    recipe = recipe_of(x)
    if recipe is None or kwargs:
        return rearrange(func, x, *args, **kwargs)
    shape = func(x.spec.meta(), *args)
    if func is aten.t.default and isinstance(recipe, Product):
        found: Any = recipe.transposed()
    elif isinstance(recipe, Quotient):
        found = Quotient(lambda: rearrange(func, recipe.get(), *args), recipe.divisor, recipe.sources)
    else:
        return rearrange(func, x, *args)
    is_sum = func is aten.sum.dim_IntList
    made = undone(found, spec_of(shape), None if is_sum else lambda: rearrange(func, x, *args))
    if not is_sum:  # a view of the same memory, once it is there
        reuse.note_view(func, 0, args, kwargs, x, made)
        reuse.remembered(x).pending.add(made.child)
    return made


# -- what it was needed for ------------------------------------------------------------------------------------


def selected(bits: Any, child: Any) -> Any:
    """bits * child where the child is an undone product; None for all others."""
    recipe = recipe_of(child)
    if not isinstance(recipe, Product) or not may_wait(bits) or bits.shape != child.shape:
        return None
    recipe.x.check_same_holders(bits)
    task = _Task("selected", (bits, recipe.x, recipe.y), recipe.op, recipe.divisor)
    riders = [one for node in (recipe.x, recipe.y) for one in _riders_of(node)]
    made, *others = _run(
        [task, *(_Task("quotient", (one.recipe.get(),), 1, one.recipe.divisor) for one in riders)]
    )
    for rider, other in zip(riders, others, strict=True):
        rider.put(other.child)
    return made


def _riders_of(node: AST) -> list[LazyShares]:
    """Losses that wait for a program with an operand that they were made of. NOTE [Undone losses]"""
    found = reuse.remembered(node).riders
    riders = [one for one in found if not one.is_made]
    found.clear()
    return riders


def scaled_together(children: Sequence[Any], number: float) -> list[tuple[AST, int]] | None:
    """(child, sign) for number * child of each, sign * child: from one program where some are undone, else None."""
    if not any(recipe_of(child) is not None for child in children) or not may_wait(*children):
        return None
    factor, last = kinds.public_factor(abs(number))
    sign = 1 if number > 0 else -1
    tasks = []
    for child in children:
        recipe = recipe_of(child)
        if isinstance(recipe, Product):
            divisor = _joined(recipe.divisor, abs(number))
            tasks.append(
                _Task("product", (recipe.x, recipe.y), recipe.op, recipe.divisor, factor, last)
                if divisor is None
                else _Task("product", (recipe.x, recipe.y), recipe.op, divisor, 1, 1)
            )
        elif isinstance(recipe, Quotient) and recipe.divisor * last <= HIGH:
            tasks.append(_Task("quotient", (recipe.get(),), factor, recipe.divisor * last))
        else:
            tasks.append(_Task("quotient", (child,), factor, last))
    for task in tasks[1:]:
        tasks[0].operands[0].check_same_holders(task.operands[0])
    return [(made, sign) for made in _run(tasks)]


def _joined(divisor: int, number: float) -> int | None:
    """The integer that divides a product by `divisor` and multiplies it by a number; None if none is close enough."""
    if not 0 < number < math.inf:
        return None
    exact = divisor / number
    found = round(exact) if exact <= HIGH else 0
    return found if found > 1 and abs(exact / found - 1) <= 2.0**-kinds.FACTOR_BITS else None


class _Task:
    """What `steps.side_by_side` is asked for: its name, operands and parameters."""

    def __init__(self, name: str, operands: tuple[AST, ...], *parameters: Any) -> None:
        self.name, self.operands, self.parameters = name, operands, parameters


def _run(tasks: list[_Task]) -> list[AST]:
    """The results of tasks from one program."""
    nodes: list[AST] = []
    for task in tasks:
        nodes += [node for node in task.operands if not any(node is other for other in nodes)]
    positions = {id(node): at for at, node in enumerate(nodes)}
    plan = [
        (task.name, tuple(positions[id(node)] for node in task.operands), *task.parameters) for task in tasks
    ]
    factors = tuple(sorted({at for name, places, *_ in plan if name != "quotient" for at in places}))
    group = nodes[0].group
    with group.issuing():
        epoch = group.epoch()
        given, keep = list(nodes), []
        for at in factors:
            given[at], is_kept = reuse.as_factor(nodes[at], epoch, group, uses=1)
            keep += [at] * is_kept
        shares, kept = nodes[0].run_masked(steps.side_by_side, tuple(plan), factors, tuple(keep), *given)
    for at, form in zip(keep, kept or (), strict=True):
        reuse.remember(nodes[at], form)
    return list(shares)
